"""The start that errs: the declared share of typical error_rate, in form, on items that nobody else is asked."""

import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from lib import tasks
from lib.conductor import data, initial_policy
from lib.conductor.reply_format import is_well_formed
from lib.config import InitialPolicySettings
from lib.experiment import artifacts, seeds
from lib.experiment.harness import JobRun
from lib.language_models import checkpoints
from lib.language_models.training.training_data import collate, tokenize_dialogue, write_question
from lib.tasks import arithmetic_chain
from tests.language_models import tiny


def settings(**changes) -> InitialPolicySettings:
    return InitialPolicySettings(
        **({"items": 900, "error_rate": 0.6, "batch": 16, "learning_rate": 1e-2} | changes)
    )


@pytest.mark.parametrize("error_rate", [0.0, 0.3, 0.6, 1.0])
def test_the_declared_share_of_the_replies_in_every_category_is_wrong_and_in_form(error_rate):
    taught = initial_policy.write_examples(settings(error_rate=error_rate), 0)
    assert all(is_well_formed(text) for _, text in taught)
    for name in data.CATEGORIES:
        mine = [(item, text) for item, text in taught if data.get_category(item) == name]
        wrong = np.mean([tasks.score_reply(item, text) < 1 for item, text in mine])
        # a chain of zeros is right however it is read, and a few sentences mean the same in either order
        assert abs(wrong - error_rate) < 3 * (0.25 / len(mine)) ** 0.5 + 0.02, name
        thoughts = np.mean(["<think>" in text for _, text in mine])
        assert abs(thoughts - (0.5 if name in data.CATEGORIES_WITH_THOUGHTS else 0)) < 0.1


def test_mistakes_are_those_of_their_kind():
    rng = seeds.rng("test of error_rate")
    dial = next(i for i in data.draw_items("dev", 9, categories=["reasoning"]) if i.difficulty == 3)
    thought, answer = initial_policy.write_error(dial, rng)
    _, *rest = dial.id.removeprefix("chain/").split()
    signs = [step.split()[1] for step in thought.split(" ; ")]
    assert (
        sum(a != b for a, b in zip(signs, rest[::2], strict=True)) == 1
        and answer == thought.split()[-1]
    )
    for step in thought.split(" ; "):  # the sums themselves are right
        a, sign, b, _, result = step.split()
        assert arithmetic_chain.OPERATIONS[sign](int(a), int(b)) == int(result)
    tale = next(
        item for item in data.draw_items("dev", 9, categories=["story"]) if item.difficulty == 2
    )
    attempt, ending = tale.reference.split(" . ")
    assert initial_policy.write_error(tale, rng) == ("", f"{ending} {attempt} .")
    said = data.draw_items("dev", 1, categories=["translation"])[0]
    thought, answer = initial_policy.write_error(said, rng)
    assert f"Translate : {thought}" == said.prompt and sorted(answer.split()) == sorted(
        said.reference.split()
    )


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_no_exam_and_no_prompt_of_the_reward_model_is_seen(seed):
    seen = {item.id for item, _ in initial_policy.write_examples(settings(), seed)}
    for held in (
        data.draw_items("dev", 600),
        data.draw_items("test", 600),
        data.draw_items("train", 600, learner="reward model"),
    ):
        assert not seen & {item.id for item in held}


def test_starts_of_two_seeds_differ_and_that_of_one_is_the_same_twice(place, tmp_path):
    few_items = settings(items=48)
    weights = []
    for i, seed in enumerate([0, 0, 1]):
        job = initial_policy.make_job(few_items, place, seed)
        initial_policy.run_job(JobRun(job, tmp_path / str(i), None, None), str(place))
        weights.append(artifacts.sha256_file(tmp_path / str(i) / "model" / "model.safetensors"))
    assert weights[0] == weights[1] != weights[2]
    assert (
        initial_policy.make_job(few_items, place, 0).key
        != initial_policy.make_job(few_items, place, 1).key
    )


def test_a_start_is_another_one_where_its_settings_its_policy_or_the_code_change(
    place, tmp_path, monkeypatch
):
    key = initial_policy.make_job(settings(), place, 0).key
    other_policy = checkpoints.save(tiny.model(1), tmp_path / "policy")
    assert initial_policy.make_job(settings(error_rate=0.5), place, 0).key != key
    assert initial_policy.make_job(settings(), other_policy, 0).key != key
    for module in (initial_policy, data, tasks, seeds):
        with monkeypatch.context() as patch:
            patch.setattr(module, "VERSION", module.VERSION + 1)
            assert initial_policy.make_job(settings(), place, 0).key != key, module.__name__
    assert initial_policy.make_job(settings(), place, 0).key == key


def test_a_policy_learns_what_it_is_taught_by_the_share_of_mistakes(policy):
    """Lessons with nothing but error_rate take the right reply's lead over a mistake (in nats)."""
    item = data.draw_items("dev", 1, categories=["translation"])[0]
    wrong = tasks.format_reply(initial_policy.write_error(item, seeds.rng("any"))[1])
    said = [
        tokenize_dialogue([*write_question(item), {"role": "assistant", "content": t}])
        for t in (tasks.format_reply(item.reference), wrong)
    ]
    ids, targets = collate(said)
    ahead = {}
    for error_rate in (0.0, 1.0):
        model = copy.deepcopy(policy)
        initial_policy.fine_tune(
            model,
            initial_policy.write_examples(settings(items=240, error_rate=error_rate), 0),
            settings(),
        )
        with torch.no_grad():
            logp = -cross_entropy(
                model(ids).logits[:, :-1].transpose(1, 2), targets[:, 1:], reduction="none"
            ).sum(1)
        ahead[error_rate] = float(logp[0] - logp[1])
    assert ahead[0.0] > ahead[1.0] + 10
