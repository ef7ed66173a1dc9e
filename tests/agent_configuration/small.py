"""What the tests of configuring agents share: speakers without a model, small tools, atoms and questions by hand."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_models import LabAgentModel
from lib.agent_configuration.agent_team import Note, Team
from lib.agent_configuration.atoms import Atom
from lib.agent_configuration.workflows import PROGRAMS
from lib.language_models import chat_template
from lib.llm.chat_model import Failure, Reply, ToolCall
from lib.tasks import Item
from lib.tools import Index, Tool, calculator, lookup, search

TIERS = (10, 20, 30)
FRIENDS = {"friend": {"Ana": "Bo", "Bo": "Cy"}}
ATOMS = [
    Atom(
        strategy="stepwise",
        hint="step by step",
        text="Go slowly.",
        name="base/reasoner/steps",
        role="reasoner",
    ),
    Atom(
        strategy="brevity",
        hint="be brief",
        text="Be quick.",
        name="base/reasoner/brief",
        role="reasoner",
    ),
    Atom(
        strategy="tools",
        hint="use the search",
        text="Search.",
        name="base/reasoner/search",
        role="reasoner",
    ),
    Atom(
        strategy="decompose",
        hint="first plan",
        text="Plan.",
        name="base/reasoner/plan",
        role="reasoner",
    ),
    Atom(
        strategy="verify",
        hint="check each step",
        text="Check.",
        name="base/verifier/check",
        role="verifier",
    ),
    Atom(
        strategy="extraction",
        hint="only the answer",
        text="Only that.",
        name="base/answerer/only",
        role="answerer",
    ),
    Atom(
        strategy="verify",
        hint="the best votes",
        text="Most.",
        name="base/answerer/most",
        role="answerer",
    ),
]
NAMES = [atom.name for atom in ATOMS]
CHAIN = Item("3 + 4 = ?", "7", "3 + 4 = 7", "chain", 1, "chain/3 + 4")
LONG = Item(
    "3 + 4 * 2 - 5 = ?", "9", "3 + 4 = 7 ; 7 * 2 = 4 ; 4 - 5 = 9", "chain", 3, "chain/3 + 4 * 2 - 5"
)


def toolbox() -> dict[str, Tool]:
    """The four tools; the one for Python repeats its code."""
    about = {"code": {"type": "string", "description": "code"}}
    tools = (
        calculator(),
        search(Index(["The friend of Ana is Bo ."])),
        lookup(FRIENDS),
        Tool("python", "Runs code.", about, lambda code: f"ran {code}"),
    )
    return {tool.name: tool for tool in tools}


@dataclass(frozen=True)
class Asked:
    """A request as a speaker had it. system: the first message without its role; content: the user's message;
    last: the last message's content; number: which request of this role it is, from 1."""

    messages: list[dict[str, str]]
    role: str
    system: str
    content: str
    last: str
    tools: tuple[str, ...]
    limit: int
    key: int
    number: int


def make_turn(
    text: str,
    tokens_in: int,
    tokens_out: int,
    call: tuple[str, str] | None = None,
    cut: bool = False,
    failure: str = "",
) -> Reply:
    """A reply as an agent model gives it. call: name and arguments of a tool; cut: whether its limit ended it."""
    kind = failure or ("truncated" if cut else "")
    return Reply(
        text,
        "voice",
        "lab",
        tokens_in=tokens_in,
        tokens_out=tokens_out,
        tool_calls=(ToolCall("", *call),) if call else (),
        failure=Failure(kind) if kind else None,
    )


def summarize(reply: Reply) -> tuple:
    """Text, tokens in and out, the tool call, and the kind of failure."""
    calls = [(call.name, call.arguments) for call in reply.tool_calls]
    kind = reply.failure.kind if reply.failure else ""
    return reply.text, reply.tokens_in, reply.tokens_out, calls, kind


class Voice:
    """A speaker without a model: a function from `Asked` says what it says, one token in and one out unless told, after
    as many seconds as `wait` says. most: how many were under way at the same time."""

    name = "voice"

    def __init__(
        self,
        reply: Callable[[Asked], Reply | str],
        backend: str = "lab",
        prices: Sequence[float] = (0.0, 0.0),
        pace: float = 0.0,
        wait: Callable[[Asked], float] = lambda request: 0.0,
    ) -> None:
        self.reply, self.backend, self.seconds_per_token, self.wait = reply, backend, pace, wait
        self.price_in, self.price_out = prices
        self.heard: list[Asked] = []
        self.now = self.most = 0

    async def take_turn(self, messages, tools, limit, key) -> Reply:
        words = messages[0]["content"].removeprefix("role ").split(" ", 1)
        number = 1 + sum(request.role == words[0] for request in self.heard)
        request = Asked(
            messages,
            words[0],
            " ".join(words[1:]),
            messages[1]["content"],
            messages[-1]["content"],
            tuple(tools),
            limit,
            key,
            number,
        )
        self.heard.append(request)
        turn = self.reply(request)
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(self.wait(request))
        self.now -= 1
        if isinstance(turn, str):
            turn = make_turn(turn, 1, 1, chat_template.parse_tool_call(turn) if tools else None)
        return turn

    run_tool = LabAgentModel.run_tool
    describe_arguments = LabAgentModel.describe_arguments
    write_exchange = LabAgentModel.write_exchange


def team(
    voice: Voice,
    structure: Sequence[int],
    tiers: Sequence[int] = TIERS,
    prompts: Sequence[Sequence[str]] = ((), (), ()),
    key: int = 7,
) -> Team:
    """A team at the start of a question."""
    return Team(voice, toolbox(), Configuration(tuple(structure)), prompts, tiers, key)


def run(at_work: Team, question: str = "Q") -> Note:
    """What the team's workflow ends in."""
    return asyncio.run(PROGRAMS[at_work.configuration.workflow](at_work, question))


def one_call(
    voice: Voice, tools: int = 15, budget: int = 2, tiers: Sequence[int] = TIERS
) -> tuple[Note, Team]:
    """The single call of the first workflow."""
    small_team = team(voice, (0, tools, 0, budget, 0, 0), tiers)
    return run(small_team), small_team


def voiced(*replies: Reply | str) -> Callable[[Asked], Reply | str]:
    """These replies one after another, whoever asks."""
    remaining_replies = iter(replies)
    return lambda request: next(remaining_replies)
