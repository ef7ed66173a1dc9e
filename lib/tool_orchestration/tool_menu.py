"""What an orchestrator chooses from: tools with prices and latencies, for a user with preferences.

What a model is good at is read off its measured card. Each rollout has tools, prices and latencies of its own
(ToolOrchestra, "heterogeneous availability of tools"). Left out: how a menu is written down, which is `plain_prompt` in
English, `prompted_baseline` as function schemas and `lab_menus` for the lab's small models.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError, model_validator

from lib.config import ParamsError, ToolSettings, from_yaml
from lib.config.types import NotNegative, Section
from lib.language_models.training.model_cards import GOOD

VERSION = 1  # of menus, prices and users
FUNCTIONS = ("calculator", "search", "lookup", "python")
LOCAL_TOOLS = FUNCTIONS  # on the user's own machine: what confidential data may go to
ASK_USER = (
    "ask_user"  # a question to the user about the task, where the user keeps parts of it back
)
OFFICE = "office"  # the functions of an office together: one price, and no place in the vector of preferences
KINDS = ("chain", "big", "facts")  # families of questions that a tool may be good at
FUNCTION_SKILLS = {
    "calculator": {"big": 4},
    "search": {"facts": 3},
    "lookup": {"facts": 3},
    "python": {"big": 4},
}
OBJECTIVES = ("accuracy", "cost", "latency")
OBJECTIVE_WORDS = dict(zip(OBJECTIVES, ("best", "cheap", "fast"), strict=True))
# Tokens of a usual call to a model, for the price on a menu: the question that it reads, and its reply.
_TYPICAL_TOKENS_IN = 20
_TYPICAL_TOKENS_OUT = 30
_CONFIDENTIAL_SHARE = 0.25  # of users, whose data must stay on their machine
_LIKED_TOOLS_SHARE = 0.25  # of users, who like to see one or two tools used


class _Rate(Section):
    """Price and latency of a call of a function; of a model, factors on what was measured."""

    cost_usd: NotNegative
    seconds: NotNegative


_UNCHANGED = _Rate(cost_usd=1.0, seconds=1.0)  # of a model that no price list names


class PriceList(Section):
    """Dollars and seconds per call of functions; of models as factors on what their cards measured."""

    calls: dict[str, _Rate]
    models: dict[str, _Rate]

    @model_validator(mode="after")
    def _has_all_functions(self) -> PriceList:
        """Check that there is a price for each function and for an office, and for nothing else."""
        expected = {*FUNCTIONS, OFFICE}
        wrong = expected ^ set(self.calls)
        if wrong:
            raise ValueError(
                f"calls needs a price of {', '.join((*FUNCTIONS, OFFICE))} alone, see {sorted(wrong)}"
            )
        return self


def read_price_list(path: str | Path) -> PriceList:
    """Read a price list from a YAML file.

    Args:
        path: The file, with the sections `calls` and `models`.

    Returns:
        The price list.

    Raises:
        ParamsError: The file cannot be read or a price is wrong; the message names the file, the key and the value.
    """
    try:
        return PriceList.model_validate(from_yaml(Path(path).read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the whole file"
        raise ParamsError(f"{path}, {key}: {first['msg']}, got {first['input']!r}") from error
    except (OSError, ValueError) as error:
        raise ParamsError(f"{path} is no price list that can be read ({error})") from error


@dataclass(frozen=True)
class Offer:
    """A tool on a menu, with its price and latency there.

    Attributes:
        name: As an orchestrator calls it.
        model: Whether the tool is a language model.
        cost_usd: Price on this menu: US dollars per call of a function; of a model a factor on what its tokens cost.
        seconds: Latency on this menu: seconds per call of a function; of a model a factor on what its tokens take.
        typical_cost_usd: Price of a usual call.
        typical_seconds: Latency of a usual call.
        skills: For each kind of question that it is good at, the highest difficulty at which it is.
        measured: Whether its skills are known, which those of hosted models are not.
        description: What the tool can do, in words for orchestrators that read English; empty for the usual words.
    """

    name: str
    model: bool
    cost_usd: float
    seconds: float
    typical_cost_usd: float
    typical_seconds: float
    skills: Mapping[str, int]
    measured: bool = True
    description: str = ""

    @property
    def local(self) -> bool:
        """Whether the tool runs on the user's own machine."""
        return self.name in LOCAL_TOOLS

    def scale_prices(self, cost_usd: float, seconds: float) -> Offer:
        """Return the same tool at another price and latency.

        Args:
            cost_usd: Factor on its price.
            seconds: Factor on its latency.
        """
        return replace(
            self,
            cost_usd=self.cost_usd * cost_usd,
            seconds=self.seconds * seconds,
            typical_cost_usd=self.typical_cost_usd * cost_usd,
            typical_seconds=self.typical_seconds * seconds,
        )


def make_offers(
    prices: PriceList, model_cards: Mapping[str, Mapping[str, Any]]
) -> dict[str, Offer]:
    """Make the menu entry of every tool at list prices.

    Args:
        prices: The price list.
        model_cards: Measured cards of the models among the tools (price per token, speed, accuracy), by tool name.

    Returns:
        Entries by tool name: functions, the functions of an office together, then models. A model that the list does
        not name costs what its card or its line in llm.models says, so that one line adds a model.
    """
    offers = {}
    for name in FUNCTIONS:
        offers[name] = make_function_offer(name, prices, FUNCTION_SKILLS[name])
    offers[OFFICE] = make_office_offer(prices)
    for name, card in model_cards.items():
        # A price list has factors on what the card measured; without one nothing changes.
        rate = prices.models.get(name, _UNCHANGED)
        usd_per_token = card["dollars_per_1k_tokens"] / 1000
        typical_tokens = _TYPICAL_TOKENS_IN + _TYPICAL_TOKENS_OUT
        offers[name] = Offer(
            name,
            model=True,
            cost_usd=rate.cost_usd,
            seconds=rate.seconds,
            typical_cost_usd=usd_per_token * typical_tokens * rate.cost_usd,
            typical_seconds=_TYPICAL_TOKENS_OUT / card["tokens_per_second"] * rate.seconds,
            skills=find_skills(card),
            measured=bool(card["accuracy"]),
        )
    return offers


def make_function_offer(name: str, prices: PriceList, skills: Mapping[str, int]) -> Offer:
    """Make the menu entry of a function at its list price, which every call costs.

    Args:
        name: Name of the function, a key of `prices.calls`.
        prices: The price list.
        skills: For each kind of question that it is good at, the highest difficulty at which it is.

    Returns:
        The entry.
    """
    rate = prices.calls[name]
    return Offer(
        name,
        model=False,
        cost_usd=rate.cost_usd,
        seconds=rate.seconds,
        typical_cost_usd=rate.cost_usd,
        typical_seconds=rate.seconds,
        skills=skills,
    )


def make_office_offer(prices: PriceList) -> Offer:
    """Make the menu entry that all functions of an office share, at their list price."""
    return make_function_offer(OFFICE, prices, {})


def find_skills(card: Mapping[str, Any]) -> dict[str, int]:
    """Find up to which difficulty a model is good at each kind of question.

    A model is good at a difficulty if its accuracy there is at least GOOD, at questions in their usual wording.

    Args:
        card: The model's card; its rows `accuracy` have category (kind of question), difficulty, skin (wording) and
            accuracy.

    Returns:
        For each kind the highest difficulty such that the model is good at it and at all lower ones; kinds at whose
        lowest difficulty it is not good are left out.
    """
    skills = {}
    for kind in KINDS:
        accuracy_by_difficulty = {}
        for row in card["accuracy"]:
            if row["category"] == kind and row["skin"] == "plain":
                accuracy_by_difficulty[row["difficulty"]] = row["accuracy"]
        for difficulty in sorted(accuracy_by_difficulty):
            if accuracy_by_difficulty[difficulty] < GOOD:
                break
            skills[kind] = difficulty
    return skills


@dataclass(frozen=True)
class UserPreference:
    """What a user cares for: weights of three objectives, and tools that the user likes to see called.

    Attributes:
        accuracy: Weight of a correct answer, in [0, 1].
        cost: Weight of low cost, in [0, 1].
        latency: Weight of low latency, in [0, 1].
        tools: Names of the tools whose calls the user likes; each has weight 1 in the preference vector.
        confidential: Whether the user likes these tools since they keep confidential data on the user's machine.
    """

    accuracy: float
    cost: float
    latency: float
    tools: tuple[str, ...] = ()
    confidential: bool = False

    def vector(self, names: Sequence[str]) -> np.ndarray:
        """Make the preference vector, called P in the paper.

        Args:
            names: Names of all tools, in the order of the vector.

        Returns:
            (tools + 3,): for each tool 1 if the user likes its calls, else 0; then the weights of accuracy, cost and
            latency.
        """
        liked = [float(name in self.tools) for name in names]
        return np.array([*liked, self.accuracy, self.cost, self.latency])

    @property
    def sentence(self) -> str:
        """Describe the preference in English, as a prompted orchestrator reads it.

        >>> UserPreference(1.0, 0.5, 0.0, ("search",)).sentence
        'What matters to me, from 0 to 1: accuracy 1.0, cost 0.5, latency 0.0. I like to see these tools used: search.'
        """
        weights = ", ".join(f"{name} {getattr(self, name):.1f}" for name in OBJECTIVES)
        sentences = [f"What matters to me, from 0 to 1: {weights}."]
        if self.confidential:
            sentences.append(
                "My data is confidential: stay on this machine, and away from models behind an API."
            )
        elif self.tools:
            sentences.append(f"I like to see these tools used: {', '.join(self.tools)}.")
        return " ".join(sentences)


@dataclass(frozen=True)
class ToolMenu:
    """The tools that an orchestrator may call in one rollout.

    Attributes:
        offers: Tools with their prices and latencies.
        office: Names of the functions of an office, which may be called as well; () for a question.
        office_offer: The entry with the price and latency that all functions of the office share; None without one.
        asks_user: Whether the user can be asked about the task, which costs nothing.
    """

    offers: tuple[Offer, ...]
    office: tuple[str, ...] = ()
    office_offer: Offer | None = None
    asks_user: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Names of everything that may be called: tools, functions of the office, and the question to the user."""
        names = [*(offer.name for offer in self.offers), *self.office]
        return (*names, ASK_USER) if self.asks_user else tuple(names)

    def offer(self, name: str) -> Offer:
        """Return the entry of a tool on the menu, with its price and latency.

        Args:
            name: One of `names`. All functions of an office have the same entry; a question to the user is free.

        Returns:
            The entry.

        Raises:
            KeyError: The menu has no tool of this name.
        """
        if name in self.office and self.office_offer is not None:
            return self.office_offer
        if name == ASK_USER and self.asks_user:
            return Offer(
                ASK_USER,
                model=False,
                cost_usd=0.0,
                seconds=0.0,
                typical_cost_usd=0.0,
                typical_seconds=0.0,
                skills={},
            )
        return {offer.name: offer for offer in self.offers}[name]


def list_tools(settings: ToolSettings) -> tuple[str, ...]:
    """List the names of all tools in the order of outcome and preference vectors: functions, then models."""
    return (*FUNCTIONS, *settings.models)


def draw_preference(rng: np.random.Generator, names: Sequence[str]) -> UserPreference:
    """Draw a user's preferences at random.

    The weights of accuracy, cost and latency are uniform on the simplex, scaled so that the largest is 1, and rounded
    to ninths. A quarter of the users have confidential data and like all tools on their own machine; another quarter
    like one or two tools at random.

    Args:
        rng: Random number generator.
        names: Names of the tools that a user may like.

    Returns:
        The preferences.
    """
    weights = rng.dirichlet(np.ones(len(OBJECTIVES)))  # (3,)
    weights = (np.round(9 * (weights / weights.max())) / 9).tolist()
    uniform = rng.random()
    local_tools = tuple(name for name in names if name in LOCAL_TOOLS)
    if uniform < _CONFIDENTIAL_SHARE and local_tools:
        return UserPreference(*weights, local_tools, confidential=True)
    if uniform < _CONFIDENTIAL_SHARE + _LIKED_TOOLS_SHARE and names:
        order = rng.permutation(len(names))
        num_liked = int(rng.integers(1, 3))
        liked_tools = tuple(names[index] for index in sorted(order[:num_liked]))
        return UserPreference(*weights, liked_tools)
    return UserPreference(*weights)
