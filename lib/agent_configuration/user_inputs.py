"""What `python -m lib train arc` is given: questions in three parts, models, tools, budgets, settings, all checked."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lib import config
from lib.agent_configuration import encoders, user_agents
from lib.agent_configuration.action_space import AGENTS
from lib.agent_configuration.atoms import read_library
from lib.agent_configuration.document_files import read_passages
from lib.agent_configuration.user_agents import Budgets
from lib.config import ROOT, ConfigurationSettings, LLMSettings, Params, ParamsError
from lib.experiment import artifacts
from lib.rl.user_training.data import (
    QuestionSplit,
    check_vocabulary,
    hash_questions,
    load_questions,
    split_off_dev,
    split_questions,
)
from lib.rl.user_training.experts import (
    change_params,
    check_names,
    list_judges,
    select_models,
)
from lib.rl.user_training.inputs import describe_model
from lib.tasks import FAMILIES, Dataset, Item, TaskError
from lib.tasks.scorers import make_scorer

SECTION = "configuration"  # of params.yaml
ENCODERS = {"tf-idf": "tfidf", "minilm": "sentence:all-MiniLM-L6-v2"}  # shorter names of some
ONE_POLICY = ""  # the group of a policy for all questions
MIN_GROUP = 2  # training questions of a group that has a policy of its own


@dataclass(frozen=True)
class ConfigurationInputs:
    """What a run is given.

    Attributes:
        options: Options of the command line.
        params: All parameters, those of --set among them.
        notes: What was filtered and dropped in the data, in sentences.
        questions: To learn from and to evaluate on.
        dev: Questions on which constants are chosen.
        judges: Names in llm.models of those that score answers.
        llm: The settings of all models that are asked, with prices and the spending limit.
        tools: The tools that agents may be given.
        budgets: Tokens of each agent.
        encoder: Name of the encoder.
    """

    options: argparse.Namespace
    params: Params
    notes: tuple[str, ...]
    questions: QuestionSplit
    dev: tuple[Item, ...]
    judges: Sequence[str]
    llm: LLMSettings
    tools: tuple[str, ...]
    budgets: Budgets
    encoder: str

    @property
    def folder(self) -> Path:
        """Where everything of the run lies."""
        return self.options.out

    @property
    def settings(self) -> ConfigurationSettings:
        return self.params.configuration

    @property
    def model(self) -> str:
        """What all agents are, a name of llm.models."""
        return self.options.model

    @property
    def backend(self) -> str:
        return self.llm.models[self.model].backend

    @property
    def is_lab_world(self) -> bool:
        """Whether the questions are about the lab's world, and not a user's own."""
        return self.options.data in FAMILIES

    @property
    def other_models(self) -> list[str]:
        """Models that are asked beside the agents'."""
        writer = [self.options.write_atoms] if self.options.write_atoms else []
        return [*self.judges, *writer]

    @property
    def atoms_file(self) -> Path:
        """The library that the command line or the settings name."""
        return self.options.atoms or ROOT / self.settings.atoms

    @property
    def groups(self) -> list[str]:
        """Groups of questions that have a policy of their own, in the order of the data."""
        if not self.options.by_group:
            return [ONE_POLICY]
        return list(dict.fromkeys(item.group for item in self.questions.train))

    def select_group(self, items: Sequence[Item], group: str) -> list[Item]:
        """The questions that a policy chooses for."""
        return [item for item in items if group in (ONE_POLICY, item.group)]

    @property
    def episodes_per_policy(self) -> int:
        """Training episodes of one policy."""
        batch = self.settings.ppo.batch
        return max(1, self.settings.episodes // batch) * batch

    @property
    def num_candidates(self) -> int:
        """Configurations that are tried on dev for the best constant: with as many episodes as a training has."""
        affordable = self.episodes_per_policy * len(self.groups) // len(self.dev)
        return max(2, min(affordable, self.settings.grid + self.settings.sampled))


def read_inputs(options: argparse.Namespace) -> ConfigurationInputs:
    """Read and check what a run is given.

    Args:
        options: Options of the command line.

    Returns:
        The inputs.

    Raises:
        ParamsError: A setting that cannot be, a model or a tool that is not there, or questions that a lab model cannot
            read.
        TaskError: Data or documents cannot be read.
        ScorerError: There is no such scorer.
        EncoderError: The encoder is not here.
    """
    # What is wrong with the command line is said before anything is asked that costs time or money.
    dataset = drop_repeated_questions(load_questions(options))
    judges = list_judges(dataset.scorer)
    if not judges:
        make_scorer(dataset.scorer)  # says what is wrong with it
    params = read_params(options)
    writer = [options.write_atoms] if options.write_atoms else []
    names = [options.model, *judges, *writer]
    check_names(params.llm, names)
    check_vocabulary(params.llm, [options.model], dataset.items)
    llm = select_models(params.llm, names)
    if options.max_usd is not None:
        llm = llm.model_copy(update={"max_usd": options.max_usd})

    tools = user_agents.choose_tools(options.tools, options.documents, options.data in FAMILIES)
    if options.documents is not None:
        read_passages(options.documents)  # says what is wrong with them
    read_library(options.atoms or ROOT / params.configuration.atoms)
    budgets = user_agents.choose_budgets(
        options.budgets, params.configuration, params.llm, options.model
    )
    encoder = ENCODERS.get(options.encoder, options.encoder) or params.configuration.encoder
    encoders.make_encoder(encoder, training_questions=["a question"])

    questions = split_questions(dataset, options.held_out, options.max_test, options.seed)
    questions, dev = split_off_dev(questions, options.held_out, options.max_test, options.seed)
    if options.by_group:
        _check_groups(questions, dev)
    return ConfigurationInputs(
        options=options,
        params=params,
        notes=dataset.notes,
        questions=questions,
        dev=dev,
        judges=judges,
        llm=llm,
        tools=tools,
        budgets=budgets,
        encoder=encoder,
    )


def read_params(options: argparse.Namespace) -> Params:
    """Read the parameters with the changes of a command line.

    Args:
        options: Options of the command line; --batch and --updates are settings of the section, too.

    Returns:
        The parameters.
    """
    changes = list(options.changes)
    if options.batch:
        changes.append(f"ppo.batch={options.batch}")
    params = change_params(config.load(options.profile), SECTION, changes)
    if not options.updates:
        return params
    num_episodes = options.updates * params.configuration.ppo.batch
    return change_params(params, SECTION, [f"episodes={num_episodes}"])


def drop_repeated_questions(dataset: Dataset) -> Dataset:
    """Drop questions that occur more than once, and refuse whole conversations.

    Args:
        dataset: The questions of a user.

    Returns:
        The dataset without repeated questions, with a note on how many there were.

    Raises:
        TaskError: A question has earlier messages, which agents are not shown.
    """
    items = list({(item.id, item.prompt): item for item in dataset.items}.values())
    for item in items:
        if item.history:
            raise TaskError(
                f"{dataset.name}: the question {item.prompt[:60]!r} has earlier messages; agents read one question, so "
                "write all of it into the prompt"
            )
    num_repeated = len(dataset.items) - len(items)
    if not num_repeated:
        return dataset
    note = f"{num_repeated:,} repeated questions were left out."
    return replace(dataset, items=tuple(items), notes=(*dataset.notes, note))


def _check_groups(questions: QuestionSplit, dev: Sequence[Item]) -> None:
    """Check that every group has enough questions for a policy of its own.

    Args:
        questions: Questions to learn from and to test on.
        dev: Questions on which constants are compared.

    Raises:
        ParamsError: A group has too few.
    """
    counts = Counter(item.group for item in questions.train)
    for item in [*questions.train, *dev, *questions.test]:
        num_questions = counts[item.group]
        if num_questions < MIN_GROUP:
            raise ParamsError(
                f"--by-group: the group {item.group!r} has {num_questions} questions to learn from, too few for a "
                f"policy of its own; bring {MIN_GROUP} or more, or leave --by-group out for one policy"
            )


def describe_run(inputs: ConfigurationInputs) -> dict[str, Any]:
    """Describe what decides the numbers of a run, for its folder and its report.

    Args:
        inputs: What the run is given.

    Returns:
        Settings by name; data by their hashes.
    """
    options = inputs.options
    settings = inputs.settings
    documents = ""
    if options.documents is not None:
        documents = artifacts.sha256_json(read_passages(options.documents))[:16]
    return {
        "model": describe_model(inputs.llm, inputs.model),
        "data": str(options.data),
        "questions to learn from": hash_questions(inputs.questions.train),
        "questions for constants": hash_questions(inputs.dev),
        "questions of the evaluation": hash_questions(inputs.questions.test),
        "scorer": inputs.questions.scorer,
        "tools": list(inputs.tools),
        "documents": documents,
        "budgets": dict(zip(AGENTS, map(list, inputs.budgets), strict=True)),
        "encoder": encoders.identify_encoder(inputs.encoder),
        "atoms": artifacts.sha256_file(inputs.atoms_file)[:16],
        "write_atoms": options.write_atoms or "",
        "by_group": options.by_group,
        "seed": options.seed,
        # The folder's check knows this setting as the one that a later run may raise.
        "updates": inputs.episodes_per_policy // settings.ppo.batch,
        "candidates": settings.grid + settings.sampled,
        "draws": settings.draws,
        "temperature": settings.temperature,
        "reward": settings.reward.model_dump(),
        "ppo": settings.ppo.model_dump(),
        "sft": settings.sft.model_dump(),
    }
