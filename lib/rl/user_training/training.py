"""The training of a user's model, whatever the system: the model in memory, the updates, the evaluations around them.

A system brings its prompts, its reward and its baselines (`TrainedSystem`). A run that was stopped, by Ctrl-C or by a
spending limit, goes on with the same command and comes to the same result; no reply is paid for twice.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import pandas as pd
import torch
from transformers import AutoConfig, AutoTokenizer
from transformers.utils import logging

from lib.config import LearnSettings, ParamsError
from lib.experiment import artifacts
from lib.experiment.training import CHECKPOINT, TrainingTables
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import LLMError
from lib.rl.controller_training import UpdateData, train_controller
from lib.rl.generators import BATCH_SIZE, HFGenerator
from lib.rl.heap import return_freed_tensors
from lib.rl.memory_plan import MemoryPlan, plan_memory
from lib.rl.policy_model import PolicyModel, PolicyModelSettings
from lib.rl.sharding import gather_weights
from lib.rl.token_ppo import TokenPPO
from lib.rl.user_training.evaluation import START, TRAINED
from lib.rl.user_training.processes import ProcessShare
from lib.rl.user_training.progress import ProgressLine
from lib.rl.user_training.run_folder import keep_table

CONTROLLER = "controller"  # the folder of the trained model under --out
START_TABLE = "start.parquet"
BASELINE_TABLE = "baselines.parquet"
# Of the rollouts of an update, what a line on the terminal and the table of learning have.
MEASURES = ("reward", "correct", "cost_usd", "calls", "malformed")
# What ends in one line; anything else is a mistake of this program and shows where it happened.
_EXPECTED_ERRORS = (
    BudgetExceeded,
    LLMError,
    OSError,
    ValueError,
    FloatingPointError,
    torch.OutOfMemoryError,
)


@dataclass(frozen=True)
class LoopSettings:
    """What the updates of any system read.

    Attributes:
        learn: The trainer's settings.
        num_updates: Number of updates of the whole training.
        batch: Episodes per update, of all processes together.
        max_turns: Largest number of turns of an episode.
        turn_tokens: Tokens of a turn at the most.
        response_tokens: Tokens of an expert's reply that the controller reads at the most.
        save_every: Updates between two checkpoints.
    """

    learn: LearnSettings
    num_updates: int
    batch: int
    max_turns: int
    turn_tokens: int
    response_tokens: int
    save_every: int


class TrainedSystem(Protocol):
    """What CoRL and ToolOrchestra bring to a training."""

    def collect_episodes(self, step: int) -> UpdateData:
        """Draw tasks, roll them out, and say what is learned from."""

    def evaluate_controller(self, method: str, role: str) -> pd.DataFrame:
        """The controller as it is now, on the held-out questions."""

    def evaluate_baselines(self, start: pd.DataFrame) -> pd.DataFrame:
        """Everything that the controller is compared with, before any update; start: its held-out rows."""


@dataclass
class Controller:
    """The model of a run.

    Attributes:
        policy: The network and its reference.
        generator: Writes turns; it samples from the network as it is.
        learner: Updates the weights.
    """

    policy: PolicyModel
    generator: HFGenerator
    learner: TokenPPO


def make_model_settings(options: argparse.Namespace, temperature: float) -> PolicyModelSettings:
    """How the model is held in memory.

    Args:
        options: Options of the command line.
        temperature: At which tokens are sampled in training.
    """
    return PolicyModelSettings(
        dtype=options.dtype,
        lora_rank=options.lora or 0,
        gradient_checkpointing=options.gradient_checkpointing,
        sharded=options.sharded,
        temperature=temperature,
    )


def plan_run_memory(
    options: argparse.Namespace,
    model_settings: PolicyModelSettings,
    settings: LoopSettings,
    longest_prompt: str,
    share: ProcessShare,
) -> MemoryPlan:
    """Plans the memory that the training takes, by the longest episode that there can be.

    Args:
        options: Options of the command line.
        model_settings: How the model is held.
        settings: Settings of the updates.
        longest_prompt: Instructions and question together.
        share: Share of this process, which names the device and the number of processes.

    Returns:
        The plan, to be printed before anything large is read.

    Raises:
        ValueError: The folder holds no model or no tokenizer.
    """
    tokenizer = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    config = AutoConfig.from_pretrained(options.model, local_files_only=True)
    num_prompt_tokens = len(tokenizer(longest_prompt)["input_ids"])
    turn_tokens = settings.max_turns * settings.turn_tokens
    num_tokens = num_prompt_tokens + turn_tokens + settings.max_turns * settings.response_tokens
    window = getattr(config.get_text_config(), "max_position_embeddings", num_tokens)
    return plan_memory(
        config,
        model_settings,
        settings.learn,
        min(num_tokens, window),
        min(turn_tokens, window),
        sampled_at_once=min(BATCH_SIZE, settings.batch),
        device=share.accelerator.device,
        num_processes=share.num_processes,
    )


def read_controller(
    options: argparse.Namespace,
    model_settings: PolicyModelSettings,
    settings: LoopSettings,
    preface: str,
    share: ProcessShare,
) -> Controller:
    """Read the model.

    Args:
        options: Options of the command line.
        model_settings: Settings of `make_model_settings`.
        settings: Settings of the updates.
        preface: What the system message says before what a task says.
        share: Share of this process.

    Returns:
        The model with its generator and its learner, as at the start of a training.

    Raises:
        ValueError: The folder holds no model that can be trained.
        ModelFolderError: It has no chat template, or names no end token.
    """
    logging.disable_progress_bar()  # a line says what is under way
    policy = PolicyModel.from_folder(options.model, model_settings, share.accelerator.device)
    tokenizer = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    generator = HFGenerator(
        policy.network, tokenizer, settings.turn_tokens, settings.response_tokens, preface
    )
    learner = TokenPPO(
        policy,
        settings.learn,
        generator.pad_id,
        settings.num_updates,
        options.seed,
        share.accelerator if share.num_processes > 1 else None,
    )
    return Controller(policy, generator, learner)


@dataclass(frozen=True)
class TrainingOutcome:
    """What a training left.

    Attributes:
        start: Held-out rows of the controller before any update.
        trained: The same after the last one.
        baselines: Held-out rows of everything else.
        rollouts: A row per training episode.
        learning: A row per update.
        seconds: That this call took, without what earlier calls took.
    """

    start: pd.DataFrame
    trained: pd.DataFrame
    baselines: pd.DataFrame
    rollouts: pd.DataFrame
    learning: pd.DataFrame
    seconds: float


def train_and_test(
    system: TrainedSystem,
    controller: Controller,
    folder: Path,
    settings: LoopSettings,
    share: ProcessShare,
    progress: ProgressLine,
) -> TrainingOutcome:
    """Evaluate, train, evaluate again.

    Every process calls this and does its share of each step: it answers some of the questions and writes some of the
    episodes. Tables come back with the rows of all.

    Args:
        system: Draws, rewards and tests.
        controller: As it was read.
        folder: Folder of the run; a checkpoint in it is gone on from.
        settings: Settings of the updates.
        share: Which part of the questions and episodes this process works on, and whether it writes files.
        progress: The line on the terminal that says what is done at the moment.

    Returns:
        The tables.

    Raises:
        ParamsError: The folder has a checkpoint and no table of the start.
        ValueError: The checkpoint is broken, or of another model.
    """
    started = time.monotonic()
    policy = controller.policy
    has_checkpoint = controller.learner.has_checkpoint(folder / CHECKPOINT)
    for name in (START_TABLE, BASELINE_TABLE):
        if has_checkpoint and not (folder / name).exists():
            raise ParamsError(
                f"{folder / name} is missing, and the model is not at its start any more; take another --out"
            )

    # Before the training: the controller as it comes, and baselines. While turns are written, sharded weights are
    # whole in every process, since each writes as many tokens as its questions take.
    with gather_weights(policy.network):
        _report_turns(controller, progress, "held-out questions before the training")
        test_start = partial(system.evaluate_controller, START, "start")
        start = keep_table(folder / START_TABLE, test_start, share)

        _report_turns(controller, progress, "asking the baselines")
        evaluate_baselines = partial(system.evaluate_baselines, start)
        baselines = keep_table(folder / BASELINE_TABLE, evaluate_baselines, share)

    # The training itself, from the last checkpoint where there is one.
    tables = RunTables(folder, controller.learner, share)
    _run_updates(system, controller, tables, settings, progress)

    # The same held-out questions again, and the model that answered them.
    with gather_weights(policy.network):
        _report_turns(controller, progress, "held-out questions after the training")
        trained = share.gather_rows(system.evaluate_controller(TRAINED, "paper"))
    policy.save_folder(folder / CONTROLLER, is_writer=share.is_first)
    if share.is_first:
        controller.generator.tokenizer.save_pretrained(folder / CONTROLLER)
    share.wait()
    return TrainingOutcome(
        start=start,
        trained=trained,
        baselines=baselines,
        rollouts=artifacts.read_parquet(folder / "rollouts.parquet"),
        learning=artifacts.read_parquet(folder / "learning.parquet"),
        seconds=time.monotonic() - started,
    )


class RunTables(TrainingTables):
    """The growing tables of a run, which the first process writes; losses in them are of its share of the episodes.

    Every process saves its own checkpoint where weights are divided, and the first one where all have the same.
    """

    def __init__(self, folder: Path, learner: TokenPPO, share: ProcessShare) -> None:
        self.share = share
        super().__init__(folder, learner)

    def has_checkpoint(self) -> bool:
        return self.learner.has_checkpoint(self.checkpoint)

    def save(self) -> None:
        if self.share.is_first:
            super().save()  # the tables, then its checkpoint
        elif self.learner.policy.is_sharded:
            self.learner.save(self.checkpoint)
        self.share.wait()


def _run_updates(
    system: TrainedSystem,
    controller: Controller,
    tables: RunTables,
    settings: LoopSettings,
    progress: ProgressLine,
) -> None:
    """Runs all updates; an interruption while episodes are rolled out loses no finished update."""
    learner = controller.learner
    num_updates = settings.num_updates
    is_learning = False
    latest_rollouts = pd.DataFrame()

    def collect_episodes(step: int) -> UpdateData:
        """Rolls out the episodes of an update.

        Args:
            step: Number of the update.
        """
        nonlocal is_learning, latest_rollouts
        is_learning = False
        activity = f"update {step + 1}/{num_updates}"
        _report_turns(controller, progress, f"{activity}: {settings.batch} episodes")
        with gather_weights(controller.policy.network):
            data = system.collect_episodes(step)
        data = combine_processes(data, tables.share)
        latest_rollouts = data.rollouts
        progress.activity = f"{activity}: learning from {len(data.samples)} episodes"
        is_learning = True
        return data

    def report_progress(fraction: float) -> None:
        nonlocal is_learning
        is_learning = False
        progress.say(f"update {learner.step}/{num_updates}: {describe_update(latest_rollouts)}")

    try:
        train_controller(
            learner,
            controller.generator,
            num_updates,
            collect_episodes,
            tables,
            settings.save_every,
            report_progress,
        )
    except (KeyboardInterrupt, Exception):
        # In the middle of a gradient step the weights are those of no update.
        if learner.step and not is_learning and tables.share.num_processes == 1:
            tables.save()
        raise


def combine_processes(data: UpdateData, share: ProcessShare) -> UpdateData:
    """Gathers the episodes of an update from all processes.

    Args:
        data: Of this process.
        share: Share of this process.

    Returns:
        Rollouts and counts of all processes, the same in each; samples of this process alone, which learns from them.
    """
    rollouts = share.gather_rows(data.rollouts)
    means = average_rollouts(rollouts)
    counts = {name: means.get(name, total) for name, total in share.add_up(data.counts).items()}
    return UpdateData(share.trim_equally(data.samples), rollouts, counts)


def _report_turns(controller: Controller, progress: ProgressLine, activity: str) -> None:
    """Let the line on the terminal say from now on what is done, and how many turns of it are written.

    Args:
        controller: Its generator counts the turns.
        progress: The line.
        activity: What is done, in a few words.
    """

    def report(num_finished: int, num_turns: int) -> None:
        progress.activity = f"{activity}, {num_finished} of {num_turns} turns written"

    progress.activity = activity
    controller.generator.report_progress = report


def average_rollouts(rollouts: pd.DataFrame) -> dict[str, float]:
    """Averages an update's episodes for the table of learning; lost episodes are left out.

    Args:
        rollouts: A row per episode.

    Returns:
        By measure; nan where nothing could be scored.
    """
    means = {name: float(rollouts[name].mean()) for name in MEASURES}
    lost = {"lost": float(rollouts["correct"].isna().sum())}
    return means | lost | {"over_window": float((rollouts["turns"] == 0).sum())}


def describe_update(rollouts: pd.DataFrame) -> str:
    """Summarizes one update in a line: mean reward, correctness, calls and cost, and the replies that were lost.

    Args:
        rollouts: A row per episode of the update.
    """
    means = average_rollouts(rollouts)
    words = [f"{name} {means[name]:.2f}" for name in ("reward", "correct", "calls", "malformed")]
    words.append(f"${means['cost_usd']:.2g} an episode")
    counts = {
        "lost": means["lost"],
        "prompts over the window": means["over_window"],
        "replies cut off by the expert's limit": rollouts["truncated"].sum(),
        "replies shortened for the controller": rollouts["shortened"].sum(),
    }
    words += [f"{int(count)} {name}" for name, count in counts.items() if count]
    return ", ".join(words)


def run_command(options: argparse.Namespace, train: Callable[[argparse.Namespace], None]) -> int:
    """Run a training; what is wrong with the input, and whatever stops it, ends in one line.

    Args:
        options: Options of the command line.
        train: Does the work.

    Returns:
        The exit code: 0, 2 for a mistake or a limit, 130 for Ctrl-C.
    """
    return_freed_tensors()
    try:
        train(options)
    except _EXPECTED_ERRORS as error:
        reason = " ".join(str(error).split())
        if hasattr(options, "max_usd"):
            # The limit is that of the command line here.
            reason = reason.replace("llm.max_usd", "--max-usd")
        print(f"error: {reason}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            f"stopped; run the same command to go on from the last checkpoint in {options.out}",
            file=sys.stderr,
        )
        return 130
    return 0


def is_first_process() -> bool:
    """Whether this process prints, as far as torchrun or `accelerate launch` has said by now."""
    return int(os.environ.get("RANK", "0")) == 0
