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
_TYPICAL_IN, _TYPICAL_OUT = 20, 30  # tokens of a call to a model, for the price on a menu


class _Rate(Section):
    cost_usd: NotNegative
    seconds: NotNegative


_UNCHANGED = _Rate(cost_usd=1.0, seconds=1.0)  # of a model that no price list names


class PriceList(Section):
    """Dollars and seconds per call of functions; of models as factors on what their cards measured."""

    calls: dict[str, _Rate]
    models: dict[str, _Rate]

    @model_validator(mode="after")
    def _has_all_functions(self):
        expected = {*FUNCTIONS, OFFICE}
        wrong = expected ^ set(self.calls)
        if wrong:
            raise ValueError(
                f"calls needs a price of {', '.join((*FUNCTIONS, OFFICE))} alone, see {sorted(wrong)}"
            )
        return self


def read_price_list(path: str | Path) -> PriceList:
    """A price list from YAML. Raises ParamsError that names the file, and the key or the value in it."""
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
    """A tool on a menu.

    Attributes:
        name: As an orchestrator calls it.
        model: Whether it is a model; then cost_usd and seconds are factors per token, of a function they are per call.
        cost_usd: Price in this rollout.
        seconds: Latency in this rollout.
        typical_cost_usd: Price of a usual call.
        typical_seconds: Latency of a usual call.
        skills: By kind of question the highest difficulty that it is good at.
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
        return self.name in LOCAL_TOOLS

    def scale_prices(self, cost_usd: float, seconds: float) -> Offer:
        """The same at other prices: cost_usd and seconds are factors."""
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
    """Makes the offer of every tool at list prices.

    Args:
        prices: The list.
        model_cards: Cards of the models that are tools, by the orchestrator's word for them.

    Returns:
        By name: functions, those of an office, then models. A model that the list does not name costs what its card
        or its line in llm.models says, so that one line adds a model.
    """
    offers = {}
    for name in FUNCTIONS:
        offers[name] = make_function_offer(name, prices, FUNCTION_SKILLS[name])
    offers[OFFICE] = make_office_offer(prices)
    for name, card in model_cards.items():
        rate = prices.models.get(name, _UNCHANGED)
        usd_per_token = card["dollars_per_1k_tokens"] / 1000
        typical_cost_usd = usd_per_token * (_TYPICAL_IN + _TYPICAL_OUT) * rate.cost_usd
        typical_seconds = _TYPICAL_OUT / card["tokens_per_second"] * rate.seconds
        offers[name] = Offer(
            name,
            True,
            rate.cost_usd,
            rate.seconds,
            typical_cost_usd,
            typical_seconds,
            find_skills(card),
            measured=bool(card["accuracy"]),
        )
    return offers


def make_function_offer(name: str, prices: PriceList, skills: Mapping[str, int]) -> Offer:
    """Make the offer of a function at its list price, which a call always costs.

    Args:
        name: A key of the list's calls.
        prices: The list.
        skills: By kind of question the highest difficulty that it is good at.

    Returns:
        The offer.
    """
    rate = prices.calls[name]
    return Offer(name, False, rate.cost_usd, rate.seconds, rate.cost_usd, rate.seconds, skills)


def make_office_offer(prices: PriceList) -> Offer:
    """The price of every function of an office."""
    return make_function_offer(OFFICE, prices, {})


def find_skills(card: Mapping[str, Any]) -> dict[str, int]:
    """Finds up to which difficulty a model is good at each kind of question.

    Args:
        card: Of the model. It is good at a difficulty if it answers three of four questions, in the usual wording.

    Returns:
        By kind the highest difficulty below which it is good at all; without kinds that it is not good at.
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
    """What a user prefers, P.

    Attributes:
        accuracy: Weight in [0, 1].
        cost: Weight in [0, 1].
        latency: Weight in [0, 1].
        tools: Those whose calls the user likes, with weight 1.
        confidential: Whether menus say "confidential data" instead of these tools' names.
    """

    accuracy: float
    cost: float
    latency: float
    tools: tuple[str, ...] = ()
    confidential: bool = False

    def vector(self, names: Sequence[str]) -> np.ndarray:
        """P, (tools + 3,), over tools `names`, then accuracy, cost, latency."""
        liked = [float(name in self.tools) for name in names]
        return np.array([*liked, self.accuracy, self.cost, self.latency])

    @property
    def sentence(self) -> str:
        """As people would say it."""
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
    """What one rollout is offered.

    Attributes:
        offers: Tools with their prices.
        office: Names of the functions of an office, which are there as well.
        office_offer: The price of all of these functions; None without an office.
        asks_user: Whether the user can be asked about the task, which costs nothing.
    """

    offers: tuple[Offer, ...]
    office: tuple[str, ...] = ()
    office_offer: Offer | None = None
    asks_user: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        names = [*(offer.name for offer in self.offers), *self.office]
        return (*names, ASK_USER) if self.asks_user else tuple(names)

    def offer(self, name: str) -> Offer:
        """A tool on the menu; a function of an office has the office's price. Raises KeyError for another."""
        if name in self.office and self.office_offer is not None:
            return self.office_offer
        if name == ASK_USER and self.asks_user:
            return Offer(ASK_USER, False, 0.0, 0.0, 0.0, 0.0, {})
        return {offer.name: offer for offer in self.offers}[name]


def list_tools(settings: ToolSettings) -> tuple[str, ...]:
    """All tools, in the order of preference vectors: functions, then models."""
    return (*FUNCTIONS, *settings.models)


def draw_preference(rng: np.random.Generator, names: Sequence[str]) -> UserPreference:
    """Draws a user: weights evenly over the simplex, the largest scaled to 1, in ninths.

    A quarter of the users like the tools on their own machine, since their data is confidential; another quarter like
    one or two tools.

    Args:
        rng: Random numbers.
        names: Tools that can be liked.

    Returns:
        The user.
    """
    weights = rng.dirichlet(np.ones(3))
    weights = (np.round(9 * (weights / weights.max())) / 9).tolist()
    uniform = rng.random()
    local_tools = tuple(name for name in names if name in LOCAL_TOOLS)
    if uniform < 0.25 and local_tools:
        return UserPreference(*weights, local_tools, True)
    if uniform < 0.5 and names:
        order = rng.permutation(len(names))
        num_liked = int(rng.integers(1, 3))
        liked_tools = tuple(names[index] for index in sorted(order[:num_liked]))
        return UserPreference(*weights, liked_tools)
    return UserPreference(*weights)
