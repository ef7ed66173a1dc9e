"""What the trainer takes for granted of TRL's private parts. If one of these fails, TRL has changed: read its
GRPOTrainer again before anything else is believed."""

import inspect

import pytest
import trl
from trl import GRPOTrainer

from lib.conductor.rewards import COMPONENTS
from lib.conductor.trainer import ConductorTrainer
from lib.conductor.weighting import FixedWeighting
from tests.conductor import small


@pytest.fixture(scope="module")
def trainer(place, tmp_path_factory):
    """A trainer that has not trained, with one answer of each overridden method."""
    return small.trainer(
        place,
        tmp_path_factory.mktemp("contract"),
        FixedWeighting({"fmt": 1.0}),
        extra={"extra": quality},
    )


def quality(completions, **_):
    return [0.5] * len(completions)


@pytest.fixture(scope="module")
def seen(trainer):
    """What TRL's own methods were called with and returned in one step, by name."""
    kept = {}

    def keeping(name):
        method = getattr(GRPOTrainer, name)

        def kept_call(self, *arguments):
            out = method(self, *arguments)
            kept[name] = arguments, out
            return out

        return kept_call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("_generate", "_calculate_rewards", "_generate_and_score_completions"):
            patch.setattr(GRPOTrainer, name, keeping(name))
        trainer.model.train()
        rows = [row for i in range(2) for row in [trainer.train_dataset[i]] * 3]
        trainer._generate_and_score_completions(rows)
    return kept


def test_the_version_is_the_one_that_was_read():
    assert trl.__version__.startswith("1.16")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("_generate", ["self", "prompts"]),
        ("_calculate_rewards", ["self", "inputs", "prompts", "completions", "completion_ids_list"]),
        ("_generate_and_score_completions", ["self", "inputs"]),
    ],
)
def test_the_overridden_methods_take_what_they_took(name, parameters):
    assert list(inspect.signature(getattr(GRPOTrainer, name)).parameters) == parameters
    assert list(inspect.signature(getattr(ConductorTrainer, name)).parameters) == parameters
    assert getattr(GRPOTrainer, name) is not getattr(ConductorTrainer, name)


def test_the_constructor_takes_what_it_is_given():
    needed = {
        "model",
        "reward_funcs",
        "args",
        "train_dataset",
        "processing_class",
        "rollout_func",
        "callbacks",
    }
    assert needed <= set(inspect.signature(GRPOTrainer.__init__).parameters)


def test_generation_returns_tokens_of_prompts_and_completions_first(seen):
    _, out = seen["_generate"]
    for tokens in out[:2]:
        assert isinstance(tokens, list) and len(tokens) == 6
        assert all(
            isinstance(ids, list) and ids and all(type(i) is int for i in ids) for ids in tokens
        )
    assert out[0][0] == out[0][2] != out[0][3]  # the prompts, in groups beside each other
    assert max(map(len, out[1])) <= small.GRPO.max_tokens


def test_rewards_are_asked_of_rows_and_come_as_a_matrix(seen):
    (inputs, prompts, completions, ids), out = seen["_calculate_rewards"]
    assert out.shape == (6, K_AND_EXTRA) and len(prompts) == len(completions) == len(ids) == 6
    assert {"reference", "category", "row"} <= set(inputs[0])
    assert ids == seen["_generate"][1][1]  # the very tokens that were kept


K_AND_EXTRA = len(COMPONENTS) + 1


def test_what_comes_out_has_the_advantages(seen):
    _, out = seen["_generate_and_score_completions"]
    assert out["advantages"].shape == (6,)


def test_the_attributes_that_are_relied_on_are_there(trainer):
    assert (
        isinstance(trainer.eos_token_ids, list)
        and trainer._tokenizer.eos_token_id in trainer.eos_token_ids
    )
    assert trainer._tokenizer.pad_token_id is not None
    assert set(trainer._metrics) == {"train", "eval"}
    assert trainer.num_generations == trainer.num_generations_eval == small.GRPO.generations
    assert trainer.ref_model is not None and trainer.ref_model is not trainer.model
    assert (
        len(trainer.reward_func_names) == K_AND_EXTRA and trainer.reward_func_names[-1] == "quality"
    )
    assert trainer.reward_weights.tolist() == [1.0] * K_AND_EXTRA  # ours are in the rewards


@pytest.mark.parametrize(
    "field",
    [
        "loss_type",
        "scale_rewards",
        "top_entropy_quantile",
        "importance_sampling_level",
        "mask_truncated_completions",
        "multi_objective_aggregation",
        "sync_ref_model",
        "ref_model_sync_steps",
        "ref_model_mixup_alpha",
    ],
)
def test_the_configuration_still_has_the_fields_of_table_7(field, trainer):
    assert hasattr(trainer.args, field)
