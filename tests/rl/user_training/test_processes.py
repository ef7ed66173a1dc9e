"""Runs in several processes: what each does, and weights that are divided among them."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch

from lib.budgeted_routing import train_command
from lib.config import ROOT, ParamsError
from lib.experiment import artifacts
from lib.rl.generators import HFGenerator
from lib.rl.user_training import inputs
from lib.rl.user_training.options import make_parser
from lib.rl.user_training.processes import join_processes
from tests.rl.two_processes import run_in_two_processes
from tests.rl.user_training import small
from tests.studies import Killed

SEVERAL_MINIBATCHES = ("--set", "learn.minibatch=2", "--set", "learn.learning_rate=0.01")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a model, questions, and a run of two processes with whole weights in each."""
    root = tmp_path_factory.mktemp("processes")
    small.make_qwen_folder(root / "model")
    small.write_questions(root / "questions.jsonl", 20)
    for lora in ("0", "2"):
        codes = run_in_two_processes(partial(train, root, f"whole-{lora}", lora, ()), root, 200)
        assert codes == [0, 0], codes
    return root


def train(root: Path, out: str, lora: str, more: tuple[str, ...], rank: int, accelerator) -> int:
    """`train corl` in one of two processes; half of the turns are the model's own, of any length."""
    inputs.open_models = small.open_functions()
    write_turns = HFGenerator.write_turns

    def write_or_answer(generator, contexts, turn_seeds, temperature):
        turns = write_turns(generator, contexts, turn_seeds, temperature)
        for index, seed in enumerate(turn_seeds):
            if seed % 2:
                turns[index] = generator.encode(small.answer_by_seed("", seed))
        return turns

    HFGenerator.write_turns = write_or_answer
    arguments = ["--model", str(root / "model"), "--data", str(root / "questions.jsonl")]
    arguments += ["--out", str(root / out), "--experts", small.EXPERTS, *small.SMALL]
    if lora != "0":
        arguments += ["--lora", lora]
    return train_command.main([*arguments, *SEVERAL_MINIBATCHES, *more])


def train_until_killed(root: Path, out: str, lora: str, rank: int, accelerator) -> str:
    collect_episodes = train_command.BudgetTraining.collect_episodes

    def die_at_second_update(training, step):
        if step == 1:
            raise Killed
        return collect_episodes(training, step)

    train_command.BudgetTraining.collect_episodes = die_at_second_update
    try:
        train(root, out, lora, ("--sharded",), rank, accelerator)
    except Killed:
        return "killed"
    return "finished"


def assert_same_run(folder: Path, expected: Path) -> None:
    for name in ("rollouts", "evaluation", "learning", "episodes"):
        table = artifacts.read_parquet(folder / f"{name}.parquet")
        expected_table = artifacts.read_parquet(expected / f"{name}.parquet")
        pd.testing.assert_frame_equal(table, expected_table, atol=2e-5, rtol=1e-4)
    weights = artifacts.read_tensors(folder / "controller/model.safetensors")
    expected_weights = artifacts.read_tensors(expected / "controller/model.safetensors")
    assert set(weights) == set(expected_weights)
    for name, weight in weights.items():
        torch.testing.assert_close(
            torch.as_tensor(weight), torch.as_tensor(expected_weights[name]), atol=2e-5, rtol=0
        )
    for name in ("config.json", "generation_config.json"):
        assert artifacts.read_json(folder / "controller" / name) == artifacts.read_json(
            expected / "controller" / name
        )


@pytest.mark.parametrize("lora", ["0", "2"], ids=["all weights", "LoRA"])
def test_a_sharded_run_equals_one_with_whole_weights_in_each_process(lora, place):
    work = partial(train, place, f"sharded-{lora}", lora, ("--sharded",))
    codes = run_in_two_processes(work, place, 200)
    assert codes == [0, 0], codes
    assert_same_run(place / f"sharded-{lora}", place / f"whole-{lora}")

    # And something was learned, so that equal weights are no wonder.
    start = artifacts.read_tensors(place / "model/model.safetensors")
    after = artifacts.read_tensors(place / f"sharded-{lora}" / "controller/model.safetensors")
    assert any((after[name] != start[name]).any() for name in start)
    checkpoints = {path.name for path in (place / f"sharded-{lora}").glob("checkpoint*")}
    assert checkpoints == {f"checkpoint-rank-{rank}-of-2.safetensors" for rank in range(2)}


def test_a_sharded_run_that_was_killed_and_goes_on_equals_one_that_never_stopped(place):
    killed = run_in_two_processes(partial(train_until_killed, place, "resumed", "2"), place, 200)
    assert killed == ["killed", "killed"], killed
    assert not (place / "resumed/report.html").exists()
    work = partial(train, place, "resumed", "2", ("--sharded",))
    assert run_in_two_processes(work, place, 200) == [0, 0]
    assert_same_run(place / "resumed", place / "whole-2")
    rollouts = artifacts.read_parquet(place / "resumed/rollouts.parquet")
    assert rollouts["step"].tolist() == [0] * 4 + [1] * 4
    # A row of the table of learning is about the episodes of both processes.
    learning = artifacts.read_parquet(place / "resumed/learning.parquet")
    assert learning["reward"].tolist() == rollouts.groupby("step")["reward"].mean().tolist()


def test_sharded_in_one_process_is_refused_with_the_launch_line():
    with pytest.raises(ParamsError, match="torchrun --standalone --nproc-per-node 2 -m lib train"):
        join_processes(needs_several=True)
    assert join_processes(needs_several=False).num_processes == 1


def test_the_launch_line_of_the_help_starts_two_processes(tmp_path):
    help_text = make_parser("corl", "", "").format_help()
    [line] = [line.strip() for line in help_text.splitlines() if "torchrun --standalone" in line]
    assert line == "torchrun --standalone --nproc-per-node 2 -m lib train corl --model ..."
    script = tmp_path / "ask.py"
    script.write_text(
        "from lib.rl.user_training.processes import join_processes\n"
        "share = join_processes(needs_several=True)\n"
        "import sys\n"
        "sys.stdout.write(f'share {share.rank} of {share.num_processes}\\n')\n"  # in one piece
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    finished = subprocess.run(
        [*command, "--nproc-per-node", "2", str(script)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert finished.returncode == 0, finished.stderr
    assert {"share 0 of 2", "share 1 of 2"} <= set(finished.stdout.splitlines())
