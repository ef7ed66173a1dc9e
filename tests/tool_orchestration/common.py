"""What the tests of ToolOrchestra share: cards and prices, menus and assignments by hand, a desk without models."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from lib import tasks
from lib.config import ROOT
from lib.language_models import tokenizer as lab
from lib.language_models.chat_template import format_tool_call as called
from lib.rl.expert_pool import ExpertQuery, ExpertReply
from lib.tasks import Item
from lib.tasks.synthesis import Task
from lib.tool_orchestration import episode_specs, tool_menu
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_environment import (
    ToolEnvironment,
    ToolEpisode,
    roll_out_assignments,
)
from lib.tool_orchestration.tool_menu import Offer, ToolMenu, UserPreference
from tests.budgeted_routing import small_systems
from tests.budgeted_routing.small_systems import ScriptedController, ScriptedExperts

TOOLS = small_systems.SMOKE_PARAMS.tools
MODELS = tuple(TOOLS.models)
NAMES = (*tool_menu.FUNCTIONS, *MODELS)
NOBODY = UserPreference(1.0, 0.0, 0.0)
REACHES = {  # by model and family: up to which difficulty it is good
    "lab-nano": {"chain": 2},
    "lab-mini": {"chain": 4},
    "lab-large": {"chain": 6, "facts": 1},
    "reasoner": {"chain": 6},
    "answerer": {"facts": 3},
}
WINDOW = 4_000  # tokens: menus in English are long in the lab's vocabulary
CLOCK = {name: 0.01 * (i + 1) for i, name in enumerate(MODELS)}  # seconds per token


def card(
    reaches: Mapping[str, int], cost_usd: float = 0.001, speed: float = 1000.0
) -> dict[str, Any]:
    """A card as it is measured: everything right up to a difficulty, and half of it beyond."""
    told = [
        {
            "category": family,
            "skin": "plain",
            "difficulty": d,
            "accuracy": 1.0 if d <= reach else 0.5,
            "n": 8,
        }
        for family, reach in reaches.items()
        for d in range(1, 9)
    ]
    return {"dollars_per_1k_tokens": cost_usd, "tokens_per_second": speed, "accuracy": told}


@cache
def cards() -> dict[str, dict[str, Any]]:
    """Models that get dearer and slower in their order."""
    return {
        name: card(REACHES[name], 0.0002 * 3**i, 1 / CLOCK[name]) for i, name in enumerate(MODELS)
    }


@cache
def offers() -> dict[str, Offer]:
    """Everything on offer at list prices. Do not change it."""
    return tool_menu.make_offers(tool_menu.read_price_list(ROOT / TOOLS.prices), cards())


def item(kind: str, difficulty: int = 1, seed: int = 0, split: str = "train") -> Item:
    """A question."""
    (one,) = tasks.draw_items(kind, split, 1, difficulty, seed=seed)
    return one


@cache
def offices(split: str = "train") -> tuple[Task, ...]:
    """Office tasks of all domains and difficulties."""
    return episode_specs.write_office_corpus(split, 24, 0).tasks


def office(changes: bool) -> Task:
    """An office task that changes its database (and has nothing to report), or only asks."""
    easy = (
        t
        for t in offices()
        if (t.domain.name, t.difficulty) == ("town", 1) and bool(t.info) != changes
    )
    return next(t for t in easy if all((name != "lookup") == changes for name, *_ in t.calls))


def given(
    work: Item | Task,
    *names: str,
    preference: UserPreference = NOBODY,
    outage: int = 0,
    factors: tuple[float, float] = (1.0, 1.0),
) -> Assignment:
    """Work with a menu of these tools at list prices times factors."""
    told = ToolMenu(tuple(offers()[name].scale_prices(*factors) for name in names))
    if not isinstance(work, Item):
        functions = tuple(f.name for f in work.domain.functions)
        told = ToolMenu(told.offers, functions, offers()[tool_menu.OFFICE].scale_prices(*factors))
    return Assignment(work, told, preference, outage)


def call(tool: str, argument: str) -> str:
    """A whole turn that calls."""
    return f"<think> + 1 </think> {called(tool, argument)}"


def answer(text: Any) -> str:
    """A whole turn that answers."""
    return f"<think> + 0 </think> {tasks.format_reply(str(text))}"


class Singers(ScriptedExperts):
    """Models without a model: each query costs 1e-5 dollars and has ten tokens, unless a function says otherwise."""

    def __init__(
        self, reply: Callable[[ExpertQuery], ExpertReply] | str = "<answer> 4 </answer>"
    ) -> None:
        super().__init__(
            reply if callable(reply) else lambda query: ExpertReply(reply, 1e-5, 7, 10)
        )
        self.experts = MODELS


@contextmanager
def at_work(
    reply: Callable[[ExpertQuery], ExpertReply] | str = "<answer> 4 </answer>",
) -> Iterator[ToolEnvironment]:
    """A desk with real functions and made-up models."""
    with ToolEnvironment(Singers(reply), CLOCK) as desk:
        yield desk


def played(
    desk: ToolEnvironment,
    assigned: Assignment,
    *turns: str,
    rounds: int = 5,
) -> ToolEpisode:
    """One scripted episode."""
    controller = ScriptedController(*turns, window=WINDOW)
    (episode,) = roll_out_assignments(controller, desk, [assigned], rounds, 0)
    return episode


def told(episode: ToolEpisode) -> list[str]:
    """What the orchestrator was told in reply, the prompt left out."""
    heard = [
        i
        for i, own in list(zip(episode.ids, episode.mask, strict=True))[episode.prompt_length :]
        if not own
    ]
    return [
        part.replace("</response>", "").strip()
        for part in lab.decode(heard).split("<response>")[1:]
    ]
