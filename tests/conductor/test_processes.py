"""`train maestro` in two CPU processes: weights divided by FSDP as data/accelerate/fsdp.yaml says, or whole in each."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch
import yaml
from accelerate import Accelerator, DistributedType
from accelerate.state import AcceleratorState
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from torch.distributed.tensor import DTensor
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from lib.conductor import data, train_command
from lib.conductor.policy_readout import read_rollouts
from lib.conductor.trainer import ConductorTrainer
from lib.config import ROOT
from lib.experiment import artifacts
from lib.language_models import checkpoints
from lib.rl.sharding import call_gathered
from tests.conductor import small
from tests.rl.two_processes import run_in_two_processes
from tests.studies import Killed

# Four rollouts a step, so two in each process; the reference model moves after every second step.
SMALL = {
    "grpo.prompts_per_step": 2,
    "grpo.generations": 2,
    "grpo.max_tokens": 11,
    "grpo.learning_rate": 0.01,
    "grpo.sync_every": 2,
    "grpo.save_every": 2,
    "grpo.top_entropy": 1.0,
    "head.update_interval": 1,
}
STEPS = 4
LIMIT_S = 200  # of a run


@pytest.fixture(scope="module")
def folder(models, tmp_path_factory) -> Path:
    """A folder with a policy that ends its replies, a reward model with its scale, prompts, and a run of two processes
    that each hold the whole weights."""
    root = tmp_path_factory.mktemp("processes")
    policy = models / small.SMOKE.policy
    (root / "policy").symlink_to(policy)
    torch.manual_seed(0)
    reward_model = AutoModelForSequenceClassification.from_pretrained(policy, num_labels=1)
    reward_model.save_pretrained(root / "reward")
    AutoTokenizer.from_pretrained(policy).save_pretrained(root / "reward")
    artifacts.write_json(root / "reward/scale.json", {"centre": 0.0, "spread": 1.0, "prompts": 1})
    rows = [
        {"prompt": [{"role": "user", "content": item.prompt}], "reference": item.reference}
        for item in data.draw_items("train", 2 * STEPS)
    ]
    (root / "prompts.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run_in_two_processes(partial(train, root, "whole", False), root, LIMIT_S) == [0, 0]
    return root


def train(root: Path, out: str, is_sharded: bool, rank: int, accelerator: Accelerator) -> int:
    """`train maestro` in one of two processes."""
    if is_sharded:
        shard_as_configured()
    arguments = [str(root / "policy"), "--data", str(root / "prompts.jsonl")]
    arguments += ["--reward-model", str(root / "reward"), "--out", str(root / out)]
    arguments += ["--profile", "smoke"]
    for name, value in SMALL.items():
        arguments += ["--set", f"{name}={value}"]
    return train_command.main(arguments)


def shard_as_configured() -> None:
    """Do what accelerate does with data/accelerate/fsdp.yaml, which it refuses where there are no GPUs."""
    settings = yaml.safe_load((ROOT / "data/accelerate/fsdp.yaml").read_text())["fsdp_config"]
    os.environ["ACCELERATE_USE_FSDP"] = "true"
    os.environ |= {name.upper(): str(value) for name, value in settings.items()}
    set_up = AcceleratorState.__init__

    def set_up_as_on_gpus(state, *arguments, fsdp_plugin=None, **options) -> None:
        set_up(state, *arguments, fsdp_plugin=fsdp_plugin, **options)
        if fsdp_plugin is not None:
            state.fsdp_plugin = fsdp_plugin
        # All instances share their attributes, and each that is made takes the type from the process group again.
        if vars(state).get("fsdp_plugin") is not None:
            state.distributed_type = DistributedType.FSDP

    AcceleratorState.__init__ = set_up_as_on_gpus


def train_until_killed(root: Path, out: str, rank: int, accelerator: Accelerator) -> str:
    """A sharded run that ends in its last step."""
    read_policy = ConductorTrainer._read_policy

    def die_in_last_step(trainer, references, completions):
        if trainer.state.global_step == STEPS - 1:
            raise Killed
        return read_policy(trainer, references, completions)

    ConductorTrainer._read_policy = die_in_last_step
    try:
        train(root, out, True, rank, accelerator)
    except Killed:
        return "killed"
    return "finished"


def assert_same_run(folder: Path, expected: Path) -> None:
    rollouts = artifacts.read_parquet(folder / "rollouts.parquet")
    expected_rollouts = artifacts.read_parquet(expected / "rollouts.parquet")
    pd.testing.assert_frame_equal(rollouts, expected_rollouts, atol=1e-4, rtol=1e-3)
    head = artifacts.read_tensors(folder / "conductor.safetensors")
    expected_head = artifacts.read_tensors(expected / "conductor.safetensors")
    assert_same_weights(head, expected_head)
    # By way of transformers: FSDP also writes a tied output layer, which is the embedding once more.
    policy = AutoModelForCausalLM.from_pretrained(folder / "policy").state_dict()
    expected_policy = AutoModelForCausalLM.from_pretrained(expected / "policy").state_dict()
    assert_same_weights(policy, expected_policy)


def assert_same_weights(weights: Mapping, expected: Mapping) -> None:
    assert set(weights) == set(expected)
    for name, weight in weights.items():
        torch.testing.assert_close(
            torch.as_tensor(weight), torch.as_tensor(expected[name]), atol=1e-4, rtol=0
        )


def test_a_sharded_run_equals_one_with_whole_weights_in_each_process(folder):
    def train_and_list(rank: int, accelerator: Accelerator) -> tuple[int, set[str]]:
        """The exit code, and names of the policy's weights that are divided when rollouts are to be read."""
        divided = set()
        read_policy = ConductorTrainer._read_policy

        def list_and_read(trainer, references, completions):
            for name, weight in trainer.model.named_parameters():
                if isinstance(weight, DTensor):
                    divided.add(name)
            return read_policy(trainer, references, completions)

        ConductorTrainer._read_policy = list_and_read
        return train(folder, "sharded", True, rank, accelerator), divided

    results = run_in_two_processes(train_and_list, folder, LIMIT_S)
    assert results[0] == results[1], results
    exit_code, divided = results[0]
    assert exit_code == 0
    # Embeddings and the last normalisation stay gathered after a forward pass, the layers do not.
    names = set(artifacts.read_tensors(folder / "policy/model.safetensors"))
    assert divided >= {name for name in names if name.startswith("model.layers.")} != set()
    assert_same_run(folder / "sharded", folder / "whole")

    # And something was learned, so that equal weights are no wonder.
    start = artifacts.read_tensors(folder / "policy/model.safetensors")
    after = artifacts.read_tensors(folder / "sharded/policy/model.safetensors")
    assert any((after[name] != start[name]).any() for name in start)
    head = artifacts.read_tensors(folder / "sharded/conductor.safetensors")
    assert (head["conductor.linear.weight"] != 0).any()


def test_rollouts_are_read_where_nothing_has_run_the_policy_before(folder):
    """As after generation by vLLM; one process has no thought to read, and must not keep the other waiting."""
    prompts, completions = [[5, 6, 7], [5, 6]], [[8, 9], [10, 11, 12]]
    references = [[13, 14], [15]]

    def read_in_turn(rank: int, accelerator: Accelerator) -> list[dict[str, torch.Tensor]]:
        prefixes = [[8], None] if rank == 0 else [None, None]
        arguments = (prompts, completions, prefixes, references)
        whole = checkpoints.load(folder / "policy")
        expected = read_rollouts(whole, *arguments)
        shard_as_configured()
        sharded = checkpoints.load(folder / "policy")
        fsdp2_prepare_model(Accelerator(cpu=True), sharded)
        readout = call_gathered(sharded, read_rollouts, sharded, *arguments)
        return [asdict(readout), asdict(expected)]

    results = run_in_two_processes(read_in_turn, folder, LIMIT_S)
    assert all(isinstance(result, list) for result in results), results
    for readout, expected in results:
        for name, values in expected.items():
            torch.testing.assert_close(readout[name], values, equal_nan=True)
    assert [readout["likelihood"].isfinite().tolist() for readout, _ in results] == [
        [True, False],
        [False, False],
    ]


def test_a_sharded_run_that_was_killed_and_goes_on_equals_one_that_never_stopped(folder):
    killed = run_in_two_processes(partial(train_until_killed, folder, "resumed"), folder, LIMIT_S)
    assert killed == ["killed", "killed"], killed
    assert not (folder / "resumed/policy").exists()
    work = partial(train, folder, "resumed", True)
    assert run_in_two_processes(work, folder, LIMIT_S) == [0, 0]
    assert_same_run(folder / "resumed", folder / "whole")


def test_a_checkpoint_of_a_sharded_run_holds_whole_weights(folder):
    checkpoint = folder / f"resumed/checkpoint-{STEPS}"
    state = artifacts.read_tensors(checkpoint / "conductor.safetensors")
    start = artifacts.read_tensors(folder / "policy/model.safetensors")
    for name, weight in start.items():
        assert state[f"reference.{name}"].shape == weight.shape
