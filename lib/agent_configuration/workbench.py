"""Everything that one job of lesson 07 works with: agents of any model, their tools, instructions and rewards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from lib.agent_configuration import encoders, questions, sources
from lib.agent_configuration.action_space import AGENTS, Configuration
from lib.agent_configuration.agent_models import AgentModel, ChatAgentModel, LabAgentModel
from lib.agent_configuration.agent_system import ConfiguredQuestion, System, make_table
from lib.agent_configuration.atoms import Atom, collect_prompts, read_library, select_atoms
from lib.agent_configuration.error_taxonomy import classify
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.rewards import Weights
from lib.config import ROOT, ConfigurationSettings, Params
from lib.experiment import sweep
from lib.experiment.run_context import RunContext
from lib.language_models import checkpoints
from lib.language_models.lab_model import open_lab_model, open_shared_store
from lib.language_models.local_models import open_local
from lib.llm.chat_model import ChatModel
from lib.llm.event_loop import EventLoopThread
from lib.llm.open_models import ChatModels, open_models
from lib.tasks import Item
from lib.tools import Index, Sandbox, Tool, calculator, lookup, python
from lib.tools import search as search_tool

RUNS = ROOT / "data/runs/configuration"
CASSETTES = ROOT / "data/cassettes/07_agent_configuration"
NAME = "configuration"  # of the cassette and of the spending limit
HOSTED_TOKENS_PER_SECOND = 50.0  # of an endpoint, declared
BASE_FAMILY = "base"
TEST_DRAW = 1_000  # samples of dev and test questions, apart from those of training


def make_context(
    params: Params, models: str | Path = checkpoints.MODELS, runs: str | Path = RUNS
) -> RunContext:
    """Make the context of the experiment's jobs: folders, processes, clients, and the file with the atoms.

    Args:
        params: All settings.
        models: Folder of the lab models.
        runs: Folder of the jobs.

    Returns:
        The context.
    """
    settings = params.configuration
    context = RunContext.of(
        params, models, runs, CASSETTES, settings.jobs, save_every=settings.save_every
    )
    return replace(context, inputs={"atoms": str(ROOT / settings.atoms)})


def make_toolbox(sandbox: Sandbox) -> dict[str, Tool]:
    """Make the four tools of the agents: calculator, search, lookup and python.

    Args:
        sandbox: Runs the programs.

    Returns:
        Tools by name.
    """
    tools = (
        calculator(),
        search_tool(Index(sources.build_documents())),
        lookup(sources.build_records()),
        python(sandbox),
    )
    return {tool.name: tool for tool in tools}


class ConfigurationWorkbench:
    """Everything that one job works with: agents of any model, their tools, prompts and rewards; `close` it."""

    def __init__(
        self, settings: ConfigurationSettings, context: RunContext, tools: Mapping[str, Tool]
    ) -> None:
        """Raises ParamsError for a library of atoms that is none."""
        self.settings = settings
        self.context = context
        self.tools = tools
        self.models = context.models
        self.atoms_file = context.inputs["atoms"]
        self.backend = context.llm.models[settings.model].backend
        self.atoms: list[Atom] = select_atoms(read_library(self.atoms_file), self.backend)
        self.weights = Weights(**settings.reward.model_dump())
        self.loop = EventLoopThread()
        self._opened: dict[str, ChatModels] = {}

    def open_model(self, name: str) -> ChatModel:
        """Open a model; it stays open until `close`.

        Args:
            name: Its name in llm.models.

        Returns:
            The model, the same one whenever it is asked for.
        """
        if name not in self._opened:
            context = self.context
            self._opened[name] = open_models(
                context.llm,
                [name],
                NAME,
                context.runs,
                context.cassettes,
                sweep.count_workers(context.workers),
                open_local(self.models),
            )
        return self._opened[name][name]

    def close(self) -> None:
        """Write the replies that are to be kept, and end models and event loop."""
        open_shared_store().flush()
        for models in self._opened.values():
            self.loop.run(models.aclose())
        self.loop.close()

    @cached_property
    def encode(self) -> encoders.Encoder:
        """The encoder of questions; only what has a policy reads it. Raises EncoderError for one that is not here."""
        return encoders.make_encoder(self.settings.encoder, self.models)

    def make_system(self, model: str) -> System:
        """The agents of a model of llm.models. Raises ModelError for a lab model that is not here."""
        agent_model = self._make_agent_model(model)
        return System(
            agent_model,
            self.tools,
            self.settings.select_tiers(agent_model.backend),
            collect_prompts(self.atoms, agent_model.backend),
            self.loop,
        )

    def _make_agent_model(self, name: str) -> AgentModel:
        settings = self.context.llm.models[name]
        temperature = self.settings.temperature
        if settings.backend == "lab":
            return LabAgentModel(open_lab_model(settings.model or name, self.models), temperature)
        return ChatAgentModel(self.open_model(name), temperature, 1 / HOSTED_TOKENS_PER_SECOND)

    def draw_items(self, split: str, n: int, kinds: Sequence[str] = ()) -> list[Item]:
        """Draw questions, kind by kind.

        Args:
            split: train, dev or test.
            n: Number of questions of each kind.
            kinds: Names of the kinds; () for all.

        Returns:
            The same questions whenever the arguments are the same.
        """
        items: list[Item] = []
        for kind in kinds or [kind.name for kind in KINDS]:
            items += questions.questions(kind, split, n)
        return items

    def make_states(self, items: Sequence[Item]) -> np.ndarray:
        """Make what policies read of n questions, (n, inputs)."""
        return encoders.make_states([item.prompt for item in items], self.encode)

    def list_atom_names(self, kind: str = "") -> list[list[str]]:
        """List the names of the prompt instructions (atoms) that each agent may get.

        Args:
            kind: The kind of question; "" for the atoms that fit every kind.

        Returns:
            A list of names for each of the three agents.
        """
        if kind:
            atoms = self.select_atoms(kind)
        else:
            atoms = [atom for atom in self.atoms if atom.family == BASE_FAMILY]
        return [[atom.name for atom in atoms if atom.role == role] for role in AGENTS]

    def select_atoms(self, kind: str) -> list[Atom]:
        """The atoms of a kind of question: those for all, and those that were written for it."""
        return select_atoms(self.atoms, self.backend, kind)

    def play(self, model: str, jobs: Sequence[ConfiguredQuestion]) -> pd.DataFrame:
        """Let agents answer questions under given configurations.

        Args:
            model: Name in llm.models of the agents' model.
            jobs: The questions with their configurations.

        Returns:
            A row for each, see `agent_system.make_table`.
        """
        agents = self.make_system(model)
        outcomes = agents.run(jobs)
        return make_table(jobs, outcomes, agents.compute_rewards(jobs, outcomes, self.weights))

    def test_configurations(
        self,
        items: Sequence[Item],
        configurations: Sequence[Configuration],
        model: str,
        agents: System | None = None,
    ) -> pd.DataFrame:
        """Test questions, each under the configuration chosen for it.

        Args:
            items: The questions.
            configurations: One for each question.
            model: Name in llm.models of the agents' model.
            agents: The agents; None for those that `make_system` makes of the model.

        Returns:
            Rows of `agent_system.make_table`, with model, and error: the kind of error of a wrong answer, else "".
        """
        agents = agents or self.make_system(model)
        jobs = [
            ConfiguredQuestion(item, configuration, TEST_DRAW)
            for item, configuration in zip(items, configurations, strict=True)
        ]
        outcomes = agents.run(jobs)
        errors = []
        for job, outcome in zip(jobs, outcomes, strict=True):
            is_wrong = not outcome.correct and not outcome.lost_calls
            errors.append(classify(job.item, job.configuration, outcome) if is_wrong else "")
        rewards = agents.compute_rewards(jobs, outcomes, self.weights)
        return make_table(jobs, outcomes, rewards).assign(error=errors, model=model)


@contextmanager
def open_workbench(
    context: RunContext, settings: ConfigurationSettings
) -> Iterator[ConfigurationWorkbench]:
    """Open the agents of the settings and their tools; they are closed at the end.

    Args:
        context: See `make_context`.
        settings: The section `configuration`, whole or with the fields that a job was handed.

    Yields:
        The workbench.
    """
    with Sandbox() as sandbox:
        bench = ConfigurationWorkbench(settings, context, make_toolbox(sandbox))
        try:
            yield bench
        finally:
            bench.close()
