"""What KO, TO and RO get to read and to try in an experiment: the options of one method's context."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from lib.orchestration.contexts import TABLE_1, PolicyKnowledge, ToolSignature
from lib.policy_zoo.recipes import SINGLE


@dataclass(frozen=True)
class SystemOptions:
    """The context that a decision model gets.

    Attributes:
        system: KO, TO or RO; empty for baselines that see query and state only.
        rollout_steps: Steps of a rollout of RO; TO tries one step.
        max_calls: Policies that may be tried per decision.
        memory: Past steps in short-term memory.
        knowledge: Policy cards by policy, for KO.
        tools: Signatures by policy, for TO and RO.
        without: Components to leave out.
        interval: Steps between decisions; in between the chosen policy goes on.
        fallback: Name of the policy that acts where nothing usable was decided.
        budget_usd: Dollars of an episode; None is without a limit.
        policies: The menu.

    Raises:
        ValueError: There is no such system, or it has no component that `without` names.
    """

    system: str = ""
    rollout_steps: int = 1
    max_calls: int = 3
    memory: int = 3
    knowledge: Mapping[str, PolicyKnowledge] = field(default_factory=dict)
    tools: Mapping[str, ToolSignature] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    interval: int = 1
    fallback: str = SINGLE[0]
    budget_usd: float | None = None
    policies: tuple[str, ...] = SINGLE

    def __post_init__(self) -> None:
        """Check that the system exists and has every component that `without` names; raises ValueError."""
        if self.system and self.system not in TABLE_1:
            raise ValueError(f"unknown system {self.system!r}; there are {', '.join(TABLE_1)}")
        unknown = set(self.without) - self.all_components
        if unknown:
            raise ValueError(
                f"{self.system or 'a baseline'} has no component {sorted(unknown)}; "
                f"it has {sorted(self.all_components)}"
            )

    @property
    def all_components(self) -> frozenset[str]:
        """The system's components by Table 1, before `without`."""
        return frozenset(TABLE_1.get(self.system, {"query", "state"}))

    @property
    def components(self) -> frozenset[str]:
        """The components that contexts have."""
        return self.all_components - set(self.without)

    @property
    def steps_of_call(self) -> int:
        """KO tries nothing, TO one step, RO a rollout (section 3.2)."""
        return {"TO": 1, "RO": self.rollout_steps}.get(self.system, 0)

    @property
    def calls_at_once(self) -> int:
        """Policies that one reply may try: TO one after another, RO side by side."""
        return {"TO": 1, "RO": self.max_calls}.get(self.system, 0)
