"""What KO, TO and RO know when they decide: the context components of the paper's Table 1.

| component | holds                                            | KO  | TO  | RO  |
|-----------|--------------------------------------------------|-----|-----|-----|
| query     | importance of the objectives, step, horizon      | yes | yes | yes |
| state     | the environment's state                          | yes | yes | yes |
| instr     | role, rules, reply format                        | yes | yes | yes |
| mem_s     | the last interactions                            | yes | yes | yes |
| mem_l     | a running summary, written by the model          | yes | yes | yes |
| know      | policy cards                                     | yes | -   | -   |
| tools     | signatures of the policies, and what a call gave | -   | yes | yes |
| reflect   | rollouts of several steps instead of one         | -   | -   | yes |

A `DecisionContext` is one episode at one step. It is the whole input of a decision model, so what one system sees and
another does not is the only difference between them. Prompts are rendered from it (`prompts`), the small language
model reads it in its own vocabulary (`lab_orchestrator`), baselines read its numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

VERSION = 1  # of what contexts hold
SYSTEMS = ("KO", "TO", "RO")
ALWAYS = frozenset({"query", "state", "instr", "mem_s", "mem_l"})
TABLE_1 = {
    "KO": ALWAYS | {"know"},
    "TO": ALWAYS | {"tools"},
    "RO": ALWAYS | {"tools", "reflect"},
}
DIGITS = 3  # decimals of results in a context
Rewards = tuple[float, ...]  # one number per objective, two decimals as in a prompt


@dataclass(frozen=True)
class Domain:
    """The words of one domain.

    Attributes:
        name: education or minigrid.
        role: Who the decision model is, for the instructions.
        task: What is to be done; {topic} is filled.
        objectives: Name of an objective -> what it asks for, in the environment's order.
        measures: Name of a further quantity that a query may ask for -> what it is.
        actions: Name of an action -> what it does, in the environment's order.
        observation: What a policy observes.
        unit: What an episode is about: a student, a robot.
    """

    name: str
    role: str
    task: str
    objectives: Mapping[str, str]
    measures: Mapping[str, str]
    actions: Mapping[str, str]
    observation: str
    unit: str

    @property
    def criteria(self) -> tuple[str, ...]:
        """Everything that a query can weigh: objectives, then measures."""
        return (*self.objectives, *self.measures)


@dataclass(frozen=True)
class Query:
    """What is asked for.

    Attributes:
        weights: Importance of each criterion of the domain; they sum to 1.
        step: The step that is decided, from 1.
        horizon: Steps of an episode at the most.
        topic: What the student learns; empty in a room.
    """

    weights: Rewards
    step: int
    horizon: int
    topic: str = ""


@dataclass(frozen=True)
class State:
    """The environment's state, as far as any system may see it.

    Attributes:
        features: The state in numbers, by name, for baselines that compute.
        words: The state in words, by name, for prompts.
        situation: A coarse label of the state, such as "mastery low, failed questions open". Policy cards have results
            by situation.
    """

    features: Mapping[str, float]
    words: Mapping[str, str]
    situation: str


@dataclass(frozen=True)
class PolicyKnowledge:
    """One policy's card (component `know`).

    Attributes:
        card: The fields of the paper's Figure 12.
        results: Situation -> mean result per criterion, of training episodes.
    """

    card: Mapping[str, Any]
    results: Mapping[str, Rewards]


@dataclass(frozen=True)
class ToolSignature:
    """One policy as a tool (component `tools`): its name and what it is said to do."""

    name: str
    objective: str
    behavior: str


@dataclass(frozen=True)
class ToolResult:
    """What one policy did on copies of the environment (TO: one step; RO: a rollout of several).

    Attributes:
        policy: Name of the policy.
        num_steps: Steps of the rollout.
        num_copies: Copies with fresh random numbers that the results average over.
        results: Mean result per criterion.
        actions: Names of the actions along the first copy.
        details: What else is shown, such as the difficulties asked.
        change: What it did to the state.
    """

    policy: str
    num_steps: int
    num_copies: int
    results: Rewards
    actions: tuple[str, ...] = ()
    details: str = ""
    change: str = ""


@dataclass(frozen=True)
class Interaction:
    """One past step (component `mem_s`).

    Attributes:
        step: Number of the step, from 1.
        state: The state before, in words.
        policy: Name of the policy that acted.
        action: What it did.
        results: Result per criterion of this step.
        change: What it did to the state.
    """

    step: int
    state: Mapping[str, str]
    policy: str
    action: str
    results: Rewards
    change: str


@dataclass(frozen=True)
class Budget:
    """Dollars of an episode.

    Attributes:
        total: The budget.
        left: What is not spent yet.
        typical_reply: What a reply has cost so far, on average.
    """

    total: float
    left: float
    typical_reply: float


@dataclass(frozen=True)
class DecisionContext:
    """One episode at one step, as one of the systems sees it.

    Attributes:
        system: KO, TO or RO.
        domain: The words of the domain.
        policies: Names of the policies to choose from.
        query, state: The components `query` and `state` of Table 1.
        components: The components of Table 1 that the system has; fewer where an ablation leaves some out.
        recent: Short-term memory, oldest first.
        summary: Long-term memory.
        knowledge: Policy cards, in the order of `policies` (KO).
        tools: Signatures, in the order of `policies` (TO, RO).
        tool_results: What calls in this step gave, in the order of the calls (TO, RO).
        calls_left: Policies that may still be tried in this step (TO, RO).
        calls_at_once: Policies that one reply may try (TO 1, RO several).
        rollout_steps: Steps of a call (TO 1, RO several).
        budget: Dollars of the episode, where it has a budget.
        stream: Key of the episode's random numbers; no component shows it.
        episode: Number of the episode in its batch.
        last_policy: Name of the policy that acted last; empty at the first step.
        plan_values: (plans,) what plans of several policies gave on copies. Only for the upper bound.
    """

    system: str
    domain: Domain
    policies: tuple[str, ...]
    query: Query
    state: State
    components: frozenset[str] = frozenset()
    recent: tuple[Interaction, ...] = ()
    summary: str = ""
    knowledge: tuple[PolicyKnowledge, ...] = ()
    tools: tuple[ToolSignature, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    calls_left: int = 0
    calls_at_once: int = 0
    rollout_steps: int = 0
    budget: Budget | None = None
    stream: int = 0
    episode: int = 0
    last_policy: str = ""
    plan_values: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def untried(self) -> tuple[str, ...]:
        """The policies that no call of this step has tried."""
        tried = {result.policy for result in self.tool_results}
        return tuple(name for name in self.policies if name not in tried)

    @property
    def must_decide(self) -> bool:
        """Whether nothing is left to try: always so for KO."""
        return self.calls_left == 0 or not self.untried

    def results_by_policy(self) -> dict[str, Rewards]:
        """List the expected result of each policy on every criterion, by the policy's name.

        KO reads results from policy cards, those of the present situation. TO and RO measured them on copies of the
        environment; policies that were not tried are left out.

        Returns:
            By policy, a number for each criterion.
        """
        if self.system == "KO":
            return {
                name: knowledge.results[self.state.situation]
                for name, knowledge in zip(self.policies, self.knowledge, strict=True)
            }
        return {result.policy: result.results for result in self.tool_results}


def round_results(results: np.ndarray) -> Rewards:
    """(criteria,) results as contexts hold them: a tuple, rounded to DIGITS decimals."""
    return tuple(round(float(result), DIGITS) for result in results)


def compute_utilities(context: DecisionContext) -> np.ndarray:
    """Utility of each policy by what a context says of it: u_k = sum over criteria of weight x result.

    Args:
        context: A context with results for every policy.

    Returns:
        (policies,) utilities, in the order of the menu.
    """
    results = context.results_by_policy()
    table = np.array([results[name] for name in context.policies])  # (policies, criteria)
    return table @ np.array(context.query.weights)
