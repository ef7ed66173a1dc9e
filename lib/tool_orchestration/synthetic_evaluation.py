"""What a policy earns in ToolOrchestra's synthetic environment, computed from its probabilities: no rollout is sampled.

The same menus and users serve every variant and every number of updates. Beside the policies stand choices that learn
nothing: a random one, the best constant, and the optimum (ToolOrchestra in `synthetic_training` is compared with them).

Letters of shapes: S seeds, n menus, M tools on a menu, T tools, k = T + 3 entries of a preference vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch

from lib.config import ToolSyntheticSettings
from lib.tool_orchestration.synthetic_environment import (
    CONDITIONS,
    KNOWN_TOOLS,
    TOOLS,
    USUAL,
    SyntheticMenus,
    ToolEnvironments,
    compute_expected_utilities,
    draw_menus,
    draw_users,
)
from lib.tool_orchestration.synthetic_training import BatchedToolPolicies
from lib.tool_orchestration.tool_menu import UserPreference

WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # on cost, or on latency, beside a weight of 1 on accuracy
RANDOM = "random"
BEST_CONSTANT = "best constant"
OPTIMUM = "optimum"


def list_users_of_grid() -> dict[str, UserPreference]:
    """Lists users with weight 1 on accuracy and one of WEIGHTS on cost or on latency.

    Returns:
        Preferences by name, such as "cost 0.25".
    """
    users = {f"cost {weight:g}": UserPreference(1.0, weight, 0.0) for weight in WEIGHTS}
    for weight in WEIGHTS[1:]:
        users[f"latency {weight:g}"] = UserPreference(1.0, 0.0, weight)
    return users


@dataclass(frozen=True)
class EvaluationCase:
    """One user on the menus of one condition.

    Attributes:
        user: Name of the user.
        condition: One of CONDITIONS.
        menus: n for each seed.
        preferences: (S, n, k) P of the user, the same for all menus.
        utilities: (S, n, M) expected utility of each choice.
        optimal_probs: (S, n, M) 1 at the best choice.
    """

    user: str
    condition: str
    menus: SyntheticMenus
    preferences: np.ndarray
    utilities: np.ndarray
    optimal_probs: np.ndarray


class ToolChoiceEvaluation:
    """Evaluates policies on the same menus and users."""

    def __init__(self, environments: ToolEnvironments, settings: ToolSyntheticSettings) -> None:
        """
        Args:
            environments: One for each seed.
            settings: `menus` of each condition, and `test_users` beside those of the grid.
        """
        self.environments = environments
        preferences_by_user = {
            name: user.vector(TOOLS) for name, user in list_users_of_grid().items()
        }
        for index, preference in enumerate(draw_users(settings.test_users, "test users")):
            preferences_by_user[f"user {index}"] = preference

        self.cases: list[EvaluationCase] = []
        for condition in CONDITIONS:
            menus = draw_menus(
                environments, settings, settings.menus, "tests", condition, condition=condition
            )
            for name, preference in preferences_by_user.items():
                # Every menu is shown to the same user.
                preferences = np.broadcast_to(preference, (*menus.kinds.shape, len(preference)))
                utilities = compute_expected_utilities(environments, menus, preferences)
                optimal_probs = _choose_largest(utilities)
                self.cases.append(
                    EvaluationCase(name, condition, menus, preferences, utilities, optimal_probs)
                )

    def _select_cases(self, conditions: Sequence[str]) -> list[EvaluationCase]:
        """Selects the users on the menus of some conditions."""
        return [case for case in self.cases if case.condition in conditions]

    @torch.no_grad()
    def evaluate_policies(
        self,
        method: str,
        policies: BatchedToolPolicies,
        step: int,
        conditions: Sequence[str] = CONDITIONS,
    ) -> pd.DataFrame:
        """Evaluates trained policies on all users and menus.

        Args:
            method: Name of the training variant, for the column `method`.
            policies: One policy for each seed.
            step: Number of updates so far, for the column `step`.
            conditions: Some of CONDITIONS.

        Returns:
            One row for each seed, user and condition, with the columns of `average_over_menus`.
        """
        tables = []
        for case in self._select_cases(conditions):
            log_probs = policies.compute_log_probs(self.environments, case.menus, case.preferences)
            tables.append(self.average_over_menus(case, log_probs.double().exp().numpy()))
        role = "paper" if step else "start"
        return pd.concat(tables, ignore_index=True).assign(method=method, role=role, step=step)

    def evaluate_references(self, conditions: Sequence[str] = CONDITIONS) -> pd.DataFrame:
        """Evaluates choices that learn nothing: random, the best constant and the optimum.

        The best constant is one order of the tools for all users, by mean utility over users and usual menus; the first
        of it on the menu is called.

        Args:
            conditions: Some of CONDITIONS.

        Returns:
            One row for each reference, seed, user and condition, with the columns of `average_over_menus`.
        """
        mean_utilities = self._average_utilities_by_tool()  # (S, T)
        seed_index = np.arange(len(mean_utilities))[:, None, None]
        tables = []
        for case in self._select_cases(conditions):
            probs_by_method = {
                RANDOM: np.full(case.utilities.shape, 1 / case.menus.size),
                BEST_CONSTANT: _choose_largest(mean_utilities[seed_index, case.menus.tools]),
                OPTIMUM: case.optimal_probs,
            }
            for method, probs in probs_by_method.items():
                with_malformed = np.pad(probs, ((0, 0), (0, 0), (0, 1)))
                rows = self.average_over_menus(case, with_malformed)
                role = "oracle" if method == OPTIMUM else "constant"
                tables.append(rows.assign(method=method, role=role))
        return pd.concat(tables, ignore_index=True)

    def _average_utilities_by_tool(self) -> np.ndarray:
        """Averages the expected utility of each tool over the usual menus that list it, and over all users.

        Returns:
            (S, T) mean utility of T tools for S seeds; -1, below every utility, for a tool that is on no menu.
        """
        sums = np.zeros((self.environments.num_seeds, len(TOOLS)))
        counts = np.zeros_like(sums)
        for case in self._select_cases([USUAL]):
            tools = case.menus.tools
            seed_index = np.broadcast_to(np.arange(len(sums))[:, None, None], tools.shape)
            np.add.at(sums, (seed_index, tools), case.utilities)
            np.add.at(counts, (seed_index, tools), 1)
        means = np.full_like(sums, -1.0)
        np.divide(sums, counts, out=means, where=counts > 0)
        return means

    def average_over_menus(self, case: EvaluationCase, probs: np.ndarray) -> pd.DataFrame:
        """Averages what a user gets from a policy over n menus.

        Args:
            case: A user on the menus of a condition.
            probs: (S, n, M + 1) the policy's probabilities of calling each of M tools on the menu, and of a malformed
                call, for S seeds.

        Returns:
            One row for each seed, with the columns
            correct                 expected accuracy
            cost_usd, seconds       expected spending, relative to the mean tool of the menu
            reward                  expected utility
            regret                  largest expected utility of the menu minus the reward
            optimal                 probability of the choice with the largest utility
            newcomer                probability of calling a tool that is held out of training: mean over menus where it
                                    is the best choice, minus mean over menus where it is not
            liked                   probability of calling tools that the user likes, minus that of a random choice
            malformed_probability   probability of a malformed call
            and seed, item (the user's name), condition.
        """
        malformed_probs = probs[..., -1]
        probs = probs[..., :-1]
        menus = case.menus

        # Cost and latency, relative to the menu's mean tool.
        relative_prices = menus.prices / menus.prices.mean(2, keepdims=True)
        # spending_sc = mean over n of sum_m p_snm price_snmc: seed s, menu n, tool m, dollars or seconds c
        num_menus = probs.shape[1]
        spending = np.einsum("snm,snmc->sc", probs, relative_prices) / num_menus

        reward = (probs * case.utilities).sum(-1)  # (S, n)
        correct = (probs * menus.look_up(self.environments.accuracy)).sum(-1)

        # Tools that are held out of training, where they are the best choice and where they are not.
        is_held_out = menus.tools >= len(KNOWN_TOOLS)  # (S, n, M)
        held_out_probs = (probs * is_held_out).sum(-1)  # (S, n)
        held_out_is_best = (case.optimal_probs * is_held_out).any(-1)
        called_where_best = _average_where(held_out_is_best, held_out_probs)
        called_elsewhere = _average_where(~held_out_is_best, held_out_probs)

        is_liked = np.take_along_axis(case.preferences, menus.tools, -1) > 0
        liked_gain = (probs * is_liked).sum(-1) - is_liked.mean(-1)
        return pd.DataFrame(
            {
                "seed": np.arange(len(probs)),
                "item": case.user,
                "condition": case.condition,
                "correct": correct.mean(1),
                "cost_usd": spending[:, 0],
                "seconds": spending[:, 1],
                "reward": reward.mean(1),
                "regret": (case.utilities.max(-1) - reward).mean(1),
                "optimal": (probs * case.optimal_probs).sum(-1).mean(1),
                "newcomer": called_where_best - called_elsewhere,
                "liked": liked_gain.mean(1),
                "malformed_probability": malformed_probs.mean(1),
            }
        )


def _choose_largest(values: np.ndarray) -> np.ndarray:
    """Returns choice probabilities of the shape of `values`: 1 at the largest entry of the last axis, else 0.

    Of several largest entries the first one is chosen.
    """
    return np.eye(values.shape[-1])[values.argmax(-1)]


def _average_where(mask: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Averages (S, n) values over the menus n where the mask (S, n) is True; (S,), 0 for seeds where it nowhere is."""
    return np.where(mask, values, 0).sum(1) / np.maximum(mask.sum(1), 1)


def compute_slope(points: np.ndarray) -> float:
    """Computes the slope of the least-squares line through n points.

    Args:
        points: (n, 2) x and y of each point.

    Returns:
        The slope of y over x.
    """
    x = points[:, 0]
    y = points[:, 1]
    centred_x = x - x.mean()
    covariance = (centred_x * (y - y.mean())).sum()
    return float(covariance / (centred_x**2).sum())
