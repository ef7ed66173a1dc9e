"""The agents of a user: a chat model that plays all of them, tools over the user's documents, budgets, a scorer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lib.agent_configuration import sources
from lib.agent_configuration.action_space import AGENTS, TIERS, TOOLS
from lib.agent_configuration.agent_models import AgentModel, ChatAgentModel, LabAgentModel
from lib.agent_configuration.agent_system import System
from lib.agent_configuration.atoms import BASE, Atom
from lib.agent_configuration.document_files import read_passages
from lib.agent_configuration.workbench import HOSTED_TOKENS_PER_SECOND
from lib.config import ConfigurationSettings, LLMSettings, ParamsError
from lib.language_models.local_models import open_local
from lib.llm.event_loop import EventLoopThread
from lib.llm.open_models import ChatModels, export_recording, open_models
from lib.tasks.scorers import make_scorer
from lib.tools import Index, Sandbox, SandboxUnavailable, Tool, calculator, lookup, python, search

RECORDING = "arc"  # name of the recording and of the spending limit
USER_TOOLS = ("calculator", "search", "python")  # that know more than the lab's world
PASSAGES_FOUND = 2  # by one search
# Low, medium and high of each agent (ARC, 4.2).
PAPER_BUDGETS = {
    "reasoner": (512, 1024, 2048),
    "verifier": (256, 512, 1024),
    "answerer": (128, 256, 512),
}
# Words by which an instruction names a tool.
_TOOL_WORDS = {
    "calculator": ("calculator",),
    "search": ("search", "documents"),
    "lookup": ("lookup", "records"),
    "python": ("python", "program"),
}

Budgets = tuple[tuple[int, int, int], ...]  # of each agent, in the order of AGENTS


# Tools -------------------------------------------------------------------------------------------


def choose_tools(
    names: Sequence[str] | None, documents: Path | None, is_lab_world: bool
) -> tuple[str, ...]:
    """Choose the tools that agents may be given.

    Args:
        names: As the command line names them; None for all that make sense.
        documents: What the search is over; None for nothing.
        is_lab_world: Whether the questions are about the lab's world, which has documents and records already.

    Returns:
        Names, in the order of TOOLS.

    Raises:
        ParamsError: There is no such tool, or nothing that it could read.
    """
    # Without a choice: everything that has something to read here.
    if names is None:
        possible = TOOLS if is_lab_world else USER_TOOLS
        names = [name for name in possible if name != "search" or documents or is_lab_world]
    for name in names:
        if name not in TOOLS:
            raise ParamsError(
                f"--tools {name}: there is no such tool; there are {', '.join(TOOLS)}"
            )
    if "search" in names and documents is None and not is_lab_world:
        raise ParamsError(
            "--tools search: there is nothing to search; name a folder or a file by --documents"
        )
    if documents is not None and "search" not in names:
        raise ParamsError(f"--documents {documents}: add search to --tools, which reads them")
    if "lookup" in names and not is_lab_world:
        raise ParamsError(
            "--tools lookup: it reads the records of the lab's world, which these questions are not about; leave it out"
        )
    # In the order of TOOLS, whichever order the command line has.
    return tuple(name for name in TOOLS if name in names)


def make_tools(
    names: Sequence[str], documents: Path | None, sandbox: Sandbox | None
) -> dict[str, Tool]:
    """Make tools.

    Args:
        names: What `choose_tools` returned.
        documents: A file or a folder; None for the documents of the lab's world.
        sandbox: Where programs run; None where no agent writes any.

    Returns:
        The tools by name.

    Raises:
        TaskError: The documents cannot be read.
    """
    tools = {}
    for name in names:
        if name == "calculator":
            tools[name] = calculator()
        elif name == "lookup":
            tools[name] = lookup(sources.build_records())
        elif name == "python":
            tools[name] = python(sandbox)
        elif documents is None:
            tools[name] = search(Index(sources.build_documents()))
        else:
            tools[name] = search(Index(read_passages(documents)), PASSAGES_FOUND)
    return tools


def select_user_atoms(
    atoms: Sequence[Atom], backend: str, tools: Sequence[str], families: Sequence[str] = (BASE,)
) -> list[Atom]:
    """Select the prompt instructions (atoms) that agents can get.

    Args:
        atoms: The library.
        backend: Backend of the agents; a lab model is offered only what it obeys.
        tools: The tools that agents may be given; an atom that names another tool is left out.
        families: Families of the library that are selected.

    Returns:
        The atoms, in the order of the library.
    """
    absent_words: list[str] = []
    for tool, words in _TOOL_WORDS.items():
        if tool not in tools:
            absent_words += words
    selected = []
    for atom in atoms:
        text = f"{atom.text} {atom.hint or ''}".lower()
        names_absent_tool = any(word in text for word in absent_words)
        is_obeyed = backend != "lab" or atom.hint is not None
        if atom.family in families and is_obeyed and not names_absent_tool:
            selected.append(atom)
    return selected


# Budgets -----------------------------------------------------------------------------------------


def choose_budgets(
    texts: Sequence[str], settings: ConfigurationSettings, llm: LLMSettings, model: str
) -> Budgets:
    """Choose the tokens that each agent may write in a call.

    Args:
        texts: Values of --budget, such as "reasoner=512,1024,2048".
        settings: Has the budgets of lab models.
        llm: The models.
        model: Name in llm.models of the agents' model; no budget can be larger than its max_tokens.

    Returns:
        Low, medium and high of each agent. What no text sets is the paper's, all of them scaled down
        until the model can fill the largest.

    Raises:
        ParamsError: A text that is none, or a budget that the model cannot fill.
    """
    most = llm.models[model].max_tokens
    usual = dict(PAPER_BUDGETS)
    if llm.models[model].backend == "lab":
        usual = dict.fromkeys(AGENTS, tuple(settings.tiers))
    # By one factor, so that the agents' budgets keep their proportions.
    largest = max(max(tiers) for tiers in usual.values())
    factor = min(1.0, most / largest)
    budgets = {
        agent: tuple(int(tokens * factor) for tokens in tiers) for agent, tiers in usual.items()
    }
    for text in texts:
        agent, tiers = _read_budget(text)
        if max(tiers) > most:
            raise ParamsError(
                f"--budget {text}: {model} writes at most {most} tokens (max_tokens); give less, or --set "
                f"'llm.models.{model}={{max_tokens: {max(tiers)}}}'"
            )
        budgets[agent] = tiers
    for agent, tiers in budgets.items():
        if not 0 < tiers[0] < tiers[1] < tiers[2]:
            raise ParamsError(
                f"{model} writes at most {most} tokens (max_tokens), too few for three budgets of the {agent}; give it "
                f"more by --set 'llm.models.{model}={{max_tokens: 2048}}'"
            )
    return tuple(budgets[agent] for agent in AGENTS)


def _read_budget(text: str) -> tuple[str, tuple[int, int, int]]:
    """Parse a value of --budget, such as reasoner=256,512,1024.

    Args:
        text: The value.

    Returns:
        The agent, and its low, medium and high number of tokens.

    Raises:
        ParamsError: The value has another form.
    """
    agent, _, numbers = text.partition("=")
    try:
        tiers = tuple(int(number) for number in numbers.split(","))
    except ValueError:
        tiers = ()
    is_rising = len(tiers) == len(TIERS) and 0 < tiers[0] < tiers[1] < tiers[2]
    if agent not in AGENTS or not is_rising:
        raise ParamsError(
            f"--budget {text}: write {', '.join(AGENTS)}, then =, then three rising numbers of tokens, such as "
            "reasoner=256,512,1024"
        )
    return agent, tiers


# Agents ------------------------------------------------------------------------------------------


@dataclass
class UserAgents:
    """Everything that takes part in a run.

    Attributes:
        models: All models that are asked, by name: agents, judge, writer of atoms.
        agent_model: What all agents are.
        tools: Tools by name.
        loop: The event loop that all models are asked on.
    """

    models: ChatModels
    agent_model: AgentModel
    tools: Mapping[str, Tool]
    loop: EventLoopThread

    def make_system(
        self, budgets: Budgets, prompts: Mapping[str, str], scorer: str, is_lab_world: bool
    ) -> System:
        """Make the agent system.

        Args:
            budgets: What `choose_budgets` returned.
            prompts: The text of each atom, by name.
            scorer: As `make_scorer` takes it.
            is_lab_world: Whether the questions are about the lab's world; sums of a user follow no rule of its chains.

        Returns:
            The system. A call that its server fails costs its episode the score, and ends no run by itself.
        """
        return System(
            self.agent_model,
            self.tools,
            budgets,
            prompts,
            self.loop,
            scorer=make_scorer(scorer, self.models),
            stops_at_lost_calls=False,
            tells_rules=is_lab_world,
        )


@contextlib.contextmanager
def open_user_agents(
    llm: LLMSettings,
    model: str,
    others: Sequence[str],
    tools: Sequence[str],
    documents: Path | None,
    temperature: float,
    folder: Path,
) -> Iterator[UserAgents]:
    """Open models and tools; what servers reply is recorded under the folder.

    Args:
        llm: The settings of all these models.
        model: Name in llm.models of the agents' model.
        others: Further models that are asked: a judge, a writer of atoms.
        tools: What `choose_tools` returned.
        documents: What the search is over.
        temperature: Sampling temperature of the agents.
        folder: Folder of the run.

    Yields:
        The agents; they are closed behind it, also where the run was stopped.

    Raises:
        ParamsError: No sandbox for programs works here.
        TaskError: The documents cannot be read.
        ModelError: A lab model that is not here.
    """
    with contextlib.ExitStack() as stack:
        sandbox = None
        if "python" in tools:
            sandbox = stack.enter_context(Sandbox())
            try:
                python(sandbox)({"code": "1 + 1"})
            except SandboxUnavailable as error:
                raise ParamsError(f"--tools python: {error}; leave it out") from error
        made_tools = make_tools(tools, documents, sandbox)
        names = list(dict.fromkeys([model, *others]))
        models = open_models(llm, names, RECORDING, folder, folder, 1, open_local())
        # What was paid for is kept, however the run ends.
        stack.callback(export_recording, llm, RECORDING, folder)
        loop = EventLoopThread()
        stack.callback(loop.close)
        stack.callback(lambda: loop.run(models.aclose()))
        agent_model: AgentModel
        if llm.models[model].backend == "lab":
            agent_model = LabAgentModel(models[model], temperature)
        else:
            agent_model = ChatAgentModel(models[model], temperature, 1 / HOSTED_TOKENS_PER_SECOND)
        yield UserAgents(models, agent_model, made_tools, loop)
