"""What a run is given: options, settings, questions and experts, read and checked before anything large is read."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from lib import config
from lib.config import LLMSettings, Params, ParamsError
from lib.language_models.local_models import open_local
from lib.llm.open_models import export_recording, open_models
from lib.rl.expert_pool import ExpertPool
from lib.rl.user_training.data import (
    QuestionSplit,
    check_vocabulary,
    hash_questions,
    load_questions,
    split_questions,
)
from lib.rl.user_training.experts import (
    change_params,
    check_names,
    list_judges,
    select_models,
)
from lib.tasks.scorers import Scorer, make_scorer


@dataclass(frozen=True)
class RunInputs:
    """What a run is given.

    Attributes:
        options: Options of the command line.
        params: All parameters, those of --set among them.
        notes: What was filtered and dropped in the data, in sentences.
        questions: To learn from and to evaluate on.
        experts: Names in llm.models by the controller's word.
        judges: Names in llm.models of those that score answers.
        llm: The settings of experts and judges alone, with prices.
    """

    options: argparse.Namespace
    params: Params
    notes: tuple[str, ...]
    questions: QuestionSplit
    experts: Mapping[str, str]
    judges: Sequence[str]
    llm: LLMSettings

    @property
    def folder(self) -> Path:
        """Where everything of the run lies."""
        return self.options.out


def read_inputs(options: argparse.Namespace, section: str, experts_key: str) -> RunInputs:
    """Read and check what a run is given.

    Args:
        options: Options of `parse_options`.
        section: Section of params.yaml, the system's.
        experts_key: Key of the section, the experts by word where the command line names none.

    Returns:
        The inputs.

    Raises:
        ParamsError: A folder without a model, a setting that cannot be, an expert that is not there, or questions
            that a lab model among the experts cannot read.
        TaskError: The data cannot be read.
        ScorerError: There is no such scorer.
    """
    # What is wrong with the command line is said before anything is opened that costs time or money.
    check_model_folder(options.model)
    dataset = load_questions(options)
    judges = list_judges(dataset.scorer)
    if not judges:
        make_scorer(dataset.scorer)  # says what is wrong with it
    params = change_params(config.load(options.profile), section, options.changes)
    experts = dict(getattr(getattr(params, section), experts_key))
    if options.experts is not None:
        experts = {name: name for name in options.experts}
    if len(experts) < 2:
        raise ParamsError(
            f"--experts {', '.join(experts)}: a choice needs two experts or more; name another of llm.models"
        )

    # Only models that are asked need prices and keys.
    names = [*experts.values(), *judges]
    check_names(params.llm, names)
    check_vocabulary(params.llm, list(experts.values()), dataset.items)
    llm = select_models(params.llm, names)
    questions = split_questions(dataset, options.held_out, options.max_test, options.seed)
    return RunInputs(options, params, dataset.notes, questions, experts, judges, llm)


def check_model_folder(folder: Path) -> None:
    """Raise ParamsError where a folder holds no model."""
    if not (folder / "config.json").is_file():
        raise ParamsError(f"{folder} holds no model: there is no config.json in it")


def describe_inputs(inputs: RunInputs, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Collects the inputs that must stay the same when a run is continued.

    Args:
        inputs: Inputs of the run.
        settings: Settings of the system, what decides numbers.

    Returns:
        Values for JSON, by name.
    """
    options = inputs.options
    questions = inputs.questions
    models = {word: describe_model(inputs.llm, name) for word, name in inputs.experts.items()}
    return {
        "model": str(options.model),
        "data": str(options.data),
        "questions to learn from": hash_questions(questions.train),
        "questions of the evaluation": hash_questions(questions.test),
        "scorer": questions.scorer,
        "experts": models,
        "seed": options.seed,
        "dtype": options.dtype,
        "lora": options.lora,
        "gradient_checkpointing": options.gradient_checkpointing,
        "sharded": options.sharded,
        **settings,
    }


def describe_model(llm: LLMSettings, name: str) -> dict[str, Any]:
    """Selects the settings of a model that must not change while a run is continued.

    Args:
        llm: Settings of all models.
        name: Name of the model.

    Returns:
        Model, backend, prices (dollars per token) and token limit.
    """
    about = llm.models[name]
    return {
        "model": about.model or name,
        "backend": about.backend,
        "price_in": about.price_in,
        "price_out": about.price_out,
        "max_tokens": about.max_tokens,
    }


@contextlib.contextmanager
def open_experts(
    inputs: RunInputs, name: str, temperature: float, rank: int = 0, num_processes: int = 1
) -> Iterator[tuple[ExpertPool, Scorer]]:
    """Open experts and scorer; what endpoints reply is recorded under the run's folder.

    Args:
        inputs: Inputs of the run.
        name: Name of the recording and of the spending limit.
        temperature: Temperature of the experts.
        rank: Rank of this process.
        num_processes: That ask side by side.

    Yields:
        The experts and the scorer; they are closed behind it.
    """
    folder = inputs.folder
    names = [*inputs.experts.values(), *inputs.judges]
    models = open_models(inputs.llm, names, name, folder, folder, num_processes, open_local())
    try:
        with ExpertPool(models, inputs.experts, temperature, tells_rules=False) as pool:
            yield pool, make_scorer(inputs.questions.scorer, pool.models)
    finally:
        # Also where a run was stopped: what was paid for is not asked again.
        if rank == 0:
            export_recording(inputs.llm, name, folder)


def summarize_losses(rows: pd.DataFrame) -> list[str]:
    """Counts lost and shortened replies in sentences.

    Args:
        rows: A row per episode.

    Returns:
        A sentence for each kind that occurred.
    """
    counts = {
        "episodes lost a reply or a judgement and are in no score": rows["correct"].isna().sum(),
        "prompts were longer than the model's window": (rows["turns"] == 0).sum(),
        "replies reached the expert's own limit of tokens": rows["truncated"].sum(),
        "replies were shortened for the controller": rows["shortened"].sum(),
    }
    return [f"{int(count):,} {name}" for name, count in counts.items() if count]
