"""What is planned is what is taken, and what is left out of a training is not counted."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config

from lib.rl.memory_plan import MemoryPlan, plan_memory
from lib.rl.policy_model import PolicyModelSettings
from tests.budgeted_routing import small_systems
from tests.rl.training_memory import EPISODE_TOKENS, make_config

ROOT = Path(__file__).resolve().parents[2]
GROUP = {"advantages": "group", "kl": 0.1, "minibatch": 2, "microbatch": 1}
CRITIC = {"advantages": "gae", "value": "apart", "kl": 0.0, "minibatch": 2, "microbatch": 2}
TRAININGS = {
    "all weights": ({}, GROUP),
    "a critic with its own trunk": ({}, CRITIC),
    "LoRA": ({"lora_rank": 16}, GROUP | {"minibatch": 4, "microbatch": 4}),
    "LoRA in bfloat16": (
        {"dtype": "bfloat16", "lora_rank": 8},
        GROUP | {"minibatch": 4, "microbatch": 2},
    ),
}


def plan(model: dict, learn: dict, config=None, **changes) -> MemoryPlan:
    options = {"episode_tokens": EPISODE_TOKENS, "policy_tokens": EPISODE_TOKENS // 2} | changes
    return plan_memory(
        config or make_config(),
        PolicyModelSettings(**model),
        small_systems.make_learn_settings(**learn),
        **options,
    )


@pytest.mark.parametrize(("model", "learn"), TRAININGS.values(), ids=TRAININGS)
def test_a_training_on_the_cpu_takes_what_was_planned(model, learn):
    """Within 15 %, in a process of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.rl.training_memory"]
    finished = subprocess.run(
        [*command, json.dumps({"model": model, "learn": learn})],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert finished.returncode == 0, finished.stderr
    used = json.loads(finished.stdout.splitlines()[-1])["bytes"]
    assert plan(model, learn).total == pytest.approx(used, rel=0.15)


def test_lora_needs_no_copy_of_the_model_and_hardly_an_optimiser():
    full, lora = plan({}, GROUP), plan({"lora_rank": 8}, GROUP)
    assert full.reference == full.weights and lora.reference == 0
    assert lora.optimiser < 0.05 * full.optimiser and lora.gradients < 0.05 * full.gradients


def test_no_reference_is_planned_where_leaving_it_costs_nothing():
    assert plan({}, GROUP | {"kl": 0.0}).reference == 0


def test_weights_are_those_of_the_model():
    network = LlamaForCausalLM(make_config())
    num_weights = sum(weight.numel() for weight in network.parameters())
    planned = plan({}, GROUP)
    assert planned.weights == 4 * num_weights
    assert (planned.optimiser, planned.gradients) == (8 * num_weights, 4 * num_weights)
    assert plan({"dtype": "bfloat16", "lora_rank": 1}, GROUP).weights < 2.2 * num_weights


def test_checkpointing_keeps_little_of_each_layer():
    kept, computed_again = plan({}, GROUP), plan({"gradient_checkpointing": True}, GROUP)
    assert computed_again.activations < 0.4 * kept.activations


def test_logits_do_not_grow_beyond_a_chunk():
    large = make_config(vocab_size=150_000)
    settings = {"lora_rank": 1, "logits_bytes": 2**24}
    long, short = (
        plan(settings, GROUP, large, policy_tokens=tokens).logits for tokens in (10**4, 10**3)
    )
    assert long == short <= 3.5 * 2**24


def test_shares_of_weights_and_optimiser_are_planned_for_sharded_training():
    whole = plan({}, GROUP)
    shared = plan({"sharded": True}, GROUP, num_processes=4)
    assert shared.optimiser == whole.optimiser // 4 and shared.reference == whole.reference // 4
    assert whole.weights // 4 < shared.weights < whole.weights


def test_the_table_shows_every_part_the_peak_and_the_machine():
    config = Qwen2Config(
        vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=128,
    )  # fmt: skip
    planned = plan({}, GROUP, config, sampled_at_once=16)
    text = planned.describe()
    for words in (
        "weights",
        "reference",
        "critic",
        "KV cache",
        "at the peak",
        "free on this machine",
    ):
        assert words in text
    assert planned.fits and "does not fit" not in text


def test_a_plan_beyond_the_machine_names_what_saves_memory():
    config = LlamaConfig(hidden_size=8192, num_hidden_layers=80, intermediate_size=28_672)
    planned = plan({}, GROUP, config)
    assert not planned.fits and "use LoRA" in planned.describe()


def test_a_folder_without_a_config_is_named(tmp_path):
    with pytest.raises(ValueError, match=f"{tmp_path} holds no config"):
        plan({}, GROUP, tmp_path)
