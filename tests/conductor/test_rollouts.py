"""The lab's engine as TRL's rollout function: new chance in every step, and the same in every run."""

from types import SimpleNamespace

import pytest
import torch

from lib.conductor import data
from lib.conductor.rollouts import RolloutFunction
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.tokenizer import EOS
from lib.language_models.training.training_data import write_question

PROMPTS = [write_question(item) for item in data.draw_items("train", 4) for _ in range(3)]


@pytest.fixture(scope="module")
def trainer(policy):
    """As much of one as is looked at."""
    accelerator = SimpleNamespace(unwrap_model=lambda model: model)
    return SimpleNamespace(
        accelerator=accelerator, model=policy, state=SimpleNamespace(global_step=0)
    )


def rolled(trainer, seed: int = 0, step: int = 0, temperature: float = 1.0) -> dict[str, list]:
    trainer.state.global_step = step
    return RolloutFunction(seed, temperature, 11)(PROMPTS, trainer)


def test_what_trl_needs_is_there(trainer):
    out = rolled(trainer)
    assert out.keys() == {"prompt_ids", "completion_ids", "logprobs"}
    assert out["prompt_ids"] == [encode_conversation(prompt) for prompt in PROMPTS]
    for ids, logprobs in zip(out["completion_ids"], out["logprobs"], strict=True):
        assert len(ids) == len(logprobs) <= 11 and (
            ids[-1] == encode_special(EOS) or len(ids) == 11
        )


def test_log_probabilities_are_the_policys(trainer, policy):
    out = rolled(trainer)
    for prompt, ids, logprobs in zip(*out.values(), strict=True):
        with torch.no_grad():
            log_p = (
                policy(torch.tensor([prompt + ids])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            )
        assert logprobs == pytest.approx(log_p[range(len(ids)), ids].tolist(), abs=1e-4)


def test_steps_and_seeds_write_others_and_the_same_write_the_same(trainer):
    out = [
        str(rolled(trainer, seed, step)["completion_ids"]) for seed in (0, 1) for step in (0, 1, 2)
    ]
    assert len(set(out)) == 6 and str(rolled(trainer, 1, 1)["completion_ids"]) == out[4]


def test_rollouts_of_a_prompt_differ_unless_it_is_cold(trainer):
    def groups(temperature):
        ids = list(map(tuple, rolled(trainer, temperature=temperature)["completion_ids"]))
        return [len(set(ids[i : i + 3])) for i in range(0, len(ids), 3)]

    assert max(groups(1.0)) == 3 and groups(1e-4) == [1, 1, 1, 1]


def test_it_is_the_policy_of_now_that_writes(trainer, policy):
    """Weights that changed since the last step count."""
    before = rolled(trainer)["completion_ids"]
    weight = policy.model.layers[0].mlp.up_proj.weight
    kept = weight.detach().clone()
    try:
        with torch.no_grad():
            weight.mul_(-3.0)
        assert rolled(trainer)["completion_ids"] != before
    finally:
        with torch.no_grad():
            weight.copy_(kept)
    assert rolled(trainer)["completion_ids"] == before
