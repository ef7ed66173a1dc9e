"""Decision models without a language model: what every orchestrator is compared with.

- `GreedyModel` computes: weights times the results that the context gives, the best policy acts. With the context of RO
  it is the same look-ahead without a language model; with that of KO it is a rule on policy cards.
- `ConstantModel`, `RoundRobinModel` and `RandomModel` read nothing.
- `LinUCBModel` learned, from training students, what each policy gives in a state.
- `PlanModel` looks further than any system may; it measures headroom.

All have the query's weights and the menu that the orchestrators have.
"""

from collections.abc import Sequence
from itertools import permutations

import numpy as np

from lib.orchestration.contexts import DecisionContext, compute_utilities
from lib.orchestration.decision_model import Decision, NumericModel, choose_surely

VERSION = 1  # of baselines
_LARGEST_COUNT = 50  # numbers other than shares are scaled by it, and cut off at it


class GreedyModel(NumericModel):
    """The scalarised greedy baseline: argmax_k sum over criteria of weight x result; the first of the best."""

    name = "greedy"

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        decisions = []
        for context in contexts:
            utilities = compute_utilities(context)
            decisions.append(choose_surely(int(utilities.argmax()), len(utilities)))
        return decisions


class RandomModel(NumericModel):
    """Every policy is as likely, at every step."""

    name = "random"
    is_greedy = False

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        num_policies = [len(context.policies) for context in contexts]
        return [Decision(np.full(count, 1 / count)) for count in num_policies]


class ConstantModel(NumericModel):
    """One policy all the way."""

    def __init__(self, policy: str) -> None:
        """policy: its name on the menu."""
        self.name = policy

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        menu = contexts[0].policies
        index = menu.index(self.name)
        return [choose_surely(index, len(menu)) for _ in contexts]


class RoundRobinModel(NumericModel):
    """Each policy in turn."""

    name = "round-robin"

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        decisions = []
        for context in contexts:
            num_policies = len(context.policies)
            decisions.append(choose_surely((context.query.step - 1) % num_policies, num_policies))
        return decisions


class LinUCBModel(NumericModel):
    """LinUCB with disjoint models (Li et al. 2010, algorithm 1), frozen after training.

    A_k = I + sum x x^T,  b_k = sum u x,  theta_k = A_k^-1 b_k

    x are the features of a context, u the utility of policy k there. Every policy is tried on copies in every training
    state, so that one matrix A serves all. It is judged without the exploration bonus, and learns no more.
    """

    name = "LinUCB"

    def __init__(self, contexts: Sequence[DecisionContext]) -> None:
        """Fit a linear model of utility for each policy.

        Args:
            contexts: Contexts of training episodes, with the results of every policy.
        """
        features = np.stack([extract_features(context) for context in contexts])  # (n, features)
        utilities = np.stack([compute_utilities(context) for context in contexts])  # (n, policies)
        gram = np.eye(features.shape[1]) + features.T @ features
        # (features, policies)
        self.theta = np.linalg.solve(gram, features.T @ utilities)

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        features = np.stack([extract_features(context) for context in contexts])
        estimates = features @ self.theta  # (n, policies)
        best = estimates.argmax(axis=1)
        return [choose_surely(int(index), estimates.shape[1]) for index in best]


def extract_features(context: DecisionContext) -> np.ndarray:
    """Compute the features from which LinUCB predicts utility.

    Args:
        context: The context of one decision; its state holds counts, and shares in [0, 1].

    Returns:
        (features,) a constant 1, the state scaled to [0, 1], the share of steps that remain, and the query weights.
    """
    query = context.query
    # All states of a domain have the same features in the same order. Counts are scaled, shares are not.
    state_features = [
        value if 0 <= value <= 1 else min(value, _LARGEST_COUNT) / _LARGEST_COUNT
        for value in context.state.features.values()
    ]
    steps_left = (query.horizon - query.step + 1) / query.horizon
    return np.array([1.0, *state_features, steps_left, *query.weights])


class PlanModel(NumericModel):
    """Follows the plan that does best on copies with fresh random numbers: what choosing can gain at most.

    A plan is a policy for each coming step. It sees no random number of the real episode, so what it gains could be
    earned; but it may look as far as it likes, and plan to hand over from one policy to another, which no system may.
    """

    name = "plan"

    def __init__(self, num_steps: int, handover_steps: Sequence[int], num_policies: int) -> None:
        """List all plans: each policy throughout, and each handover from one policy to another after some steps.

        Args:
            num_steps: Length of a plan.
            handover_steps: Steps after which a plan may hand over.
            num_policies: Policies on the menu.
        """
        steps = np.arange(num_steps)
        plans = [np.full(num_steps, policy) for policy in range(num_policies)]
        for handover in handover_steps:
            for first, second in permutations(range(num_policies), 2):
                plans.append(np.where(steps < handover, first, second))
        self.plans = np.array(plans)  # (plans, steps)

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        decisions = []
        for context in contexts:
            best_plan = int(context.plan_values.argmax())
            first_policy = int(self.plans[best_plan, 0])
            decisions.append(choose_surely(first_policy, len(context.policies)))
        return decisions
