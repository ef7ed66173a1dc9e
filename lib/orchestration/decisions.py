"""A decision, the episode it belongs to, and what deciding needs to know of the past.

Everything that decides - KO, TO, RO and the controls - is a `Decider`: it looks at an `OrchestrationEpisode` and
returns a `Decision`. It keeps nothing between calls that belongs to an episode, so that one decider
serves many episodes at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from lib.llm.cost_ledger import Ledger
from lib.orchestration.environment_copies import World
from lib.orchestration.prompt_components import RenderedComponent, interaction_line
from lib.policy_zoo.policies import Policy

VERSION = 1  # of decisions and episodes


@dataclass(frozen=True)
class ModelExchange:
    """One question to a model: the prompt's parts, the reply, and what came of it. For readers."""

    parts: Sequence[RenderedComponent]
    reply: str
    outcome: str


@dataclass
class Decision:
    """Which policy acts next, and what it took to find out.

    policy: its name; actor: the policy itself where it is not on the menu (references); looked: policies
    tried on copies; invalid: replies that could not be used; repaired: replies mended without asking
    again; fallback: no usable reply in the end; funded: whether the budget allowed to ask at all.
    """

    policy: str = ""
    actor: Policy | None = None
    reasoning: str = ""
    context: str = ""
    looked: list[str] = field(default_factory=list)
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float = 0.0
    kwh: float = 0.0
    invalid: int = 0
    repaired: int = 0
    fallback: bool = False
    funded: bool = True
    trouble: list[str] = field(default_factory=list)
    exchanges: list[ModelExchange] = field(default_factory=list)

    def columns(self) -> dict:
        """The decider's columns of the decision record."""
        plain = (
            "context",
            "calls",
            "tokens_in",
            "tokens_out",
            "cost_usd",
            "kwh",
            "invalid",
            "repaired",
        )
        return {
            "choice": self.policy,
            **{name: getattr(self, name) for name in plain},
            "looked": ";".join(self.looked),
            "fallback": self.fallback,
            "funded": self.funded,
            "trouble": ";".join(self.trouble),
            "reasoning": self.reasoning[:300],
        }


@dataclass
class OrchestrationEpisode:
    """One episode under way: the world, what happened (lines for prompts), and the account."""

    world: World
    account: Ledger = field(default_factory=Ledger)
    lines: list[str] = field(default_factory=list)
    summary: str = ""
    last: str = ""

    def act(self, decision: Decision) -> dict:
        """Carry a decision out; returns the environment's columns of the record."""
        world, state = self.world, self.world.state()
        step = world.t + 1
        row = world.step(decision.actor or decision.policy)
        self.lines.append(
            interaction_line(step, state, decision.policy, row, world.change(row), world.words)
        )
        self.last = decision.policy
        return row


class Decider(Protocol):
    """Anything that picks who acts next."""

    async def decide(self, episode: OrchestrationEpisode) -> Decision:
        """The decision for the episode's next step."""
        ...
