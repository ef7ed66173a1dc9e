"""What the tests of the trainer and of its checkpoints share."""

import pytest
import torch

from lib.rl.policy_model import PolicyModel, PolicyModelSettings
from lib.rl.token_ppo import TokenPPO
from tests.budgeted_routing import small_systems

KINDS = [("gae", "shared"), ("gae", "apart"), ("group", "shared")]
kinds = pytest.mark.parametrize(
    ("advantages", "value"), KINDS, ids=["shared critic", "separate critic", "group"]
)
averages = pytest.mark.parametrize("average", ["sequence", "token"])
MODELS = {
    "float32": {},
    "LoRA": {"lora_rank": 2},
    "bfloat16": {"dtype": "bfloat16"},
    "LoRA in bfloat16": {"dtype": "bfloat16", "lora_rank": 2, "gradient_checkpointing": True},
}
models = pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)


def make_trainer(
    model: dict | None = None, network=None, seed: int = 0, accelerator=None, folder=None, **changes
) -> TokenPPO:
    """A trainer of a model of a dozen words; with `folder`, of the model in it."""
    settings = PolicyModelSettings(**model or {})
    if folder is None:
        policy = PolicyModel(network or small_systems.make_toy_model(), settings)
    else:
        policy = PolicyModel.from_folder(folder, settings, "cpu")
    num_updates = changes.pop("num_updates", 100)
    return TokenPPO(
        policy, small_systems.make_learn_settings(**changes), 0, num_updates, seed, accelerator
    )


def list_weights(trainer: TokenPPO) -> list[torch.Tensor]:
    """All that is trained, and the reference."""
    weights = list(trainer._list_parameters().values())
    if trainer.policy.reference is not None:
        weights += trainer.policy.reference.parameters()
    return [weight.detach() for weight in weights]


def have_equal_weights(trainer: TokenPPO, other: TokenPPO) -> bool:
    pairs = zip(list_weights(trainer), list_weights(other), strict=True)
    return all(torch.equal(one, two) for one, two in pairs)


def run_updates(trainer: TokenPPO, steps) -> list[dict[str, float]]:
    """One update for each step, on six episodes that the step decides."""
    return [trainer.update(small_systems.draw_samples(6, step)) for step in steps]
