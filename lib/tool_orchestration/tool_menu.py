"""What an orchestrator reads before it decides: tools with price and latency, and what the user prefers.

    tools lab-mini $ 6 / 4 + 4 , search $ 3 / 4 ? 3 best 9 cheap 4 fast 0 use search

Digits after $ and / are the logarithms of a typical call's price and time; what follows is what the tool is good
at, + chains, * big numbers, ? facts, and up to which difficulty. Of models that is read off their measured cards.
Each rollout has tools, prices and latencies of its own (ToolOrchestra, "heterogeneous availability of tools").
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import ValidationError, model_validator

from lib.config import ParamsError, ToolSettings, from_yaml
from lib.config.types import NotNegative, Section
from lib.language_models.training.model_cards import GOOD

VERSION = 1  # of menus, prices and users
FUNCTIONS = ("calculator", "search", "lookup", "python")
LOCAL = FUNCTIONS  # on the user's own machine: what confidential data may go to
OFFICE = "office"  # the functions of an office together: one price, and no place in the vector of preferences
SIGNS = {"chain": "+", "big": "*", "facts": "?"}  # families of questions, as a menu writes them
SKILLS = {
    "calculator": {"big": 4},
    "search": {"facts": 3},
    "lookup": {"facts": 3},
    "python": {"big": 4},
}
OBJECTIVES = ("accuracy", "cost", "latency")
WORDS = dict(zip(OBJECTIVES, ("best", "cheap", "fast"), strict=True))
_LEAST_DOLLARS, _LEAST_SECONDS = (
    1e-7,
    1e-3,
)  # what the digit 0 stands for; one more is twice as much
_TYPICAL_IN, _TYPICAL_OUT = 20, 30  # tokens of a call to a model, for the digits on a menu


class _Rate(Section):
    cost_usd: NotNegative
    seconds: NotNegative


class PriceList(Section):
    """Dollars and seconds per call of functions; of models as factors on what their cards measured."""

    calls: dict[str, _Rate]
    models: dict[str, _Rate]

    @model_validator(mode="after")
    def _whole(self):
        if wrong := {*FUNCTIONS, OFFICE} ^ set(self.calls):
            raise ValueError(
                f"calls needs a price of {', '.join((*FUNCTIONS, OFFICE))} alone, see {sorted(wrong)}"
            )
        return self


def price_list(path: str | Path) -> PriceList:
    """A price list from YAML. Raises ParamsError that names the file, and the key or the value in it."""
    try:
        return PriceList.model_validate(from_yaml(Path(path).read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the whole file"
        raise ParamsError(f"{path}, {where}: {first['msg']}, got {first['input']!r}") from error
    except (OSError, ValueError) as error:
        raise ParamsError(f"{path} is no price list that can be read ({error})") from error


@dataclass(frozen=True)
class Offer:
    """A tool on a menu. model: its price and seconds are factors per token, of a function they are per call;
    dollars, seconds: of this rollout; typical_cost_usd, typical_seconds: of a usual call; skills: the highest
    difficulty that it is good at, by family; measured: whether that is known, which of hosted models it is not."""

    name: str
    model: bool
    cost_usd: float
    seconds: float
    typical_cost_usd: float
    typical_seconds: float
    skills: Mapping[str, int]
    measured: bool = True

    @property
    def local(self) -> bool:
        return self.name in LOCAL

    def times(self, cost_usd: float, seconds: float) -> Offer:
        """The same at other prices."""
        return replace(
            self,
            cost_usd=self.cost_usd * cost_usd,
            seconds=self.seconds * seconds,
            typical_cost_usd=self.typical_cost_usd * cost_usd,
            typical_seconds=self.typical_seconds * seconds,
        )

    @property
    def text(self) -> str:
        """As the lab's orchestrators read it."""
        good = [f"{SIGNS[family]} {reach}" for family, reach in self.skills.items()]
        price, time = (
            level(self.typical_cost_usd, _LEAST_DOLLARS),
            level(self.typical_seconds, _LEAST_SECONDS),
        )
        return " ".join([self.name, "$", str(price), "/", str(time), *good])


def level(amount: float, least: float) -> int:
    """The digit of an amount: how often `least` is doubled to come to it, 0 to 9."""
    return int(np.clip(round(math.log2(max(amount, least) / least)), 0, 9))


def offers(prices: PriceList, cards: Mapping[str, Mapping[str, Any]]) -> dict[str, Offer]:
    """Every tool that there is at these prices. cards: of the models, by the orchestrator's word for them.

    Raises ParamsError for a model without a price.
    """
    out = {}
    for name in (*FUNCTIONS, OFFICE):
        rate = prices.calls[name]
        out[name] = Offer(
            name,
            False,
            rate.cost_usd,
            rate.seconds,
            rate.cost_usd,
            rate.seconds,
            SKILLS.get(name, {}),
        )
    for name, card in cards.items():
        if name not in prices.models:
            raise ParamsError(
                f"the price list has no {name!r} among its models; it has {sorted(prices.models)}"
            )
        rate = prices.models[name]
        cost_usd = (
            card["dollars_per_1k_tokens"] / 1000 * (_TYPICAL_IN + _TYPICAL_OUT) * rate.cost_usd
        )
        seconds = _TYPICAL_OUT / card["tokens_per_second"] * rate.seconds
        out[name] = Offer(
            name,
            True,
            rate.cost_usd,
            rate.seconds,
            cost_usd,
            seconds,
            skills(card),
            measured=bool(card["accuracy"]),
        )
    return out


def skills(card: Mapping[str, Any]) -> dict[str, int]:
    """By family the difficulty up to which a model is good by its card: at least 3 of 4 right, plain skin."""
    out = {}
    for family in SIGNS:
        held = {
            r["difficulty"]: r["accuracy"]
            for r in card["accuracy"]
            if (r["category"], r["skin"]) == (family, "plain")
        }
        good = list(takewhile(lambda level, held=held: held[level] >= GOOD, sorted(held)))
        out |= {family: good[-1]} if good else {}
    return out


@dataclass(frozen=True)
class UserPreference:
    """P: weights in [0, 1] of the objectives, and the tools whose calls the user likes (weight 1). confidential:
    the tools are told as "confidential data" instead of by name."""

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
    def text(self) -> str:
        """As the lab's orchestrators read it; a weight is told in ninths."""
        weights = [f"{WORDS[name]} {round(9 * getattr(self, name))}" for name in OBJECTIVES]
        liked = (
            ["confidential data"]
            if self.confidential
            else ["use " + " ".join(self.tools)]
            if self.tools
            else []
        )
        return " ".join([*weights, *liked])

    @property
    def sentence(self) -> str:
        """As people would say it."""
        weights = ", ".join(f"{name} {getattr(self, name):.1f}" for name in OBJECTIVES)
        if self.confidential:
            liked = " My data is confidential: stay on this machine, and away from models behind an API."
        else:
            liked = (
                f" I like to see these tools used: {', '.join(self.tools)}." if self.tools else ""
            )
        return f"What matters to me, from 0 to 1: {weights}.{liked}"


@dataclass(frozen=True)
class ToolMenu:
    """What one rollout is offered. office: functions of an office that are there as well, by name."""

    offers: tuple[Offer, ...]
    office: tuple[str, ...] = ()
    desk: Offer | None = None  # the price of the office's functions

    @property
    def names(self) -> tuple[str, ...]:
        return (*(offer.name for offer in self.offers), *self.office)

    def offer(self, name: str) -> Offer:
        """A tool on the menu; a function of an office has the office's price. Raises KeyError for another."""
        if name in self.office and self.desk is not None:
            return self.desk
        return {offer.name: offer for offer in self.offers}[name]

    @property
    def text(self) -> str:
        """As the lab's orchestrators read it."""
        told = [offer.text for offer in self.offers]
        return " ".join(["tools", " , ".join([*told, *self.office])])


def names(settings: ToolSettings) -> tuple[str, ...]:
    """All tools, in the order of preference vectors: functions, then models."""
    return (*FUNCTIONS, *settings.models)


def seen(settings: ToolSettings) -> tuple[str, ...]:
    """The tools that menus of training, and of most exams, may have."""
    return tuple(name for name in names(settings) if name not in settings.unseen)


def drawn_preference(rng: np.random.Generator, names: Sequence[str]) -> UserPreference:
    """A user by lot: weights even over the simplex, largest 1; every other user likes tools too, every fourth the
    local ones, for their data is confidential."""
    shares = rng.dirichlet(np.ones(3))
    weights = (np.round(9 * (shares / shares.max())) / 9).tolist()
    lot = rng.random()
    local = tuple(name for name in names if name in LOCAL)
    if lot < 0.25 and local:
        return UserPreference(*weights, local, True)
    if lot < 0.5 and names:
        liked = rng.permutation(len(names))[: int(rng.integers(1, 3))]
        return UserPreference(*weights, tuple(names[i] for i in sorted(liked)))
    return UserPreference(*weights)
