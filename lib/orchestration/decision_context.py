"""What a decider may know at one step, as numbers, and the rational reader that decides it exactly.

A `Brief` is the context of KO, TO or RO (Table 1) without words: the query's weights, the state, and either what cards
say of policies in situations like this one (KO) or what they did on copies (TO one step, RO several). Whoever reads
briefs is a `Reader`: the rational one below, a model that was taught to, a pretrained one, an endpoint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

VERSION = 1  # of what is read in a brief
Rewards = tuple[float, ...]  # one number in [0, 1] for each objective


@dataclass(frozen=True)
class Brief:
    """All that a decider may know at one step of one episode; numbers have two digits.

    weights: of the query, summing to 1; names: the menu; state: named numbers; situation: the word for it that cards
    use; cards: name -> situation -> rewards (KO); looks: name -> rewards of `steps` steps on copies (TO, RO); recent:
    the last (policy, rewards), oldest first.
    """

    kind: str
    objectives: tuple[str, ...]
    weights: Rewards
    names: tuple[str, ...]
    state: Mapping[str, float]
    situation: str
    cards: Mapping[str, Mapping[str, Rewards]] = field(default_factory=dict)
    looks: Mapping[str, Rewards] = field(default_factory=dict)
    steps: int = 0
    recent: tuple[tuple[str, Rewards], ...] = ()

    @property
    def told(self) -> dict[str, Rewards]:
        """What is told of each policy here: its look, or the page of its card for this situation."""
        return {
            name: self.looks[name] if self.looks else self.cards[name][self.situation]
            for name in self.names
        }

    def worth(self) -> np.ndarray:
        """What each policy comes to, (K,): weights times the rewards that its look, or its card, tells."""
        return np.array(list(self.told.values())) @ np.array(self.weights)


class Reader(Protocol):
    """Whoever reads briefs. name: as in tables; backend: as in metrics."""

    name: str
    backend: str

    def choose(self, briefs: Sequence[Brief]) -> list[str | None]:
        """The policy that acts next, for each brief.

        What is not on its menu counts as malformed. None says that the infrastructure lost the reply, as a provider's
        filter does, so that nobody knows what the reader would have chosen.
        """
        ...


class Rational:
    """The glass box among readers: weights times rewards, the first of the best. What the context is worth."""

    name, backend = "rational", "scripted"

    def choose(self, briefs: Sequence[Brief]) -> list[str]:
        return [brief.names[int(np.argmax(brief.worth()))] for brief in briefs]
