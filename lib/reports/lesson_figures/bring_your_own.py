"""Tables and metrics of lesson 11 and its appendix: the reader's models, a fitted router, served requests, and chains.

Left out: what the reader copies from the lesson, which stands in its cells.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from lib import stats, tasks
from lib.config import LabSettings
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.training import pretraining, released_weights
from lib.llm.chat_model import ChatModel, ChatRequest
from lib.routers.fit_router import CONSTANT, MIXTURE, ROUTER, AverageQuality

CHAIN_LENGTHS = (1, 2, 3, 4, 6)  # operations of the chains that a program and a lab model solve
NUM_CHAINS = 60  # of each length
_USD_PER_1K = 1_000

# From items to whether each is solved.
Solver = Callable[[Sequence[tasks.Item]], Sequence[bool] | np.ndarray]


def arrange_held_out(
    report_by_budget: Mapping[str, Mapping[str, Any]],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Cost and accuracy on held-out questions of a router and of two baselines, at every budget.

    Args:
        report_by_budget: By name of the budget, the report of the router that was fitted for it.

    Returns:
        Estimates of cost, in US dollars for 1,000 questions, and of accuracy, by method and budget.
    """
    cost = {}
    accuracy = {}
    for budget, report in report_by_budget.items():
        for method in (ROUTER, CONSTANT, MIXTURE):
            cost[method, budget] = report["methods"][method]["cost_usd"]
            accuracy[method, budget] = report["methods"][method]["accuracy"]
    names = ["method", "budget"]
    cost_table = _USD_PER_1K * pd.DataFrame(cost).T.rename_axis(names)
    return cost_table, pd.DataFrame(accuracy).T.rename_axis(names)


def estimate_step_reward(steps: pd.DataFrame) -> pd.DataFrame:
    """Estimates the mean reward of a step by method, with an interval over seeds and episodes.

    Args:
        steps: A row for each step: method, seed, episode and reward.
    """
    by_episode = steps.groupby(["method", "seed", "episode"])["reward"].mean().reset_index()
    rows = by_episode.rename(columns={"episode": "item"}).assign(sample=0)
    return stats.mean(rows, "reward", "method")


def make_chat_solver(model: ChatModel) -> Solver:
    """Makes a function that asks a chat model questions, and says which replies are correct.

    Args:
        model: The chat model.

    Returns:
        From items to one truth value each.
    """

    def solve(items: Sequence[tasks.Item]) -> list[bool]:
        replies = model.generate([ChatRequest(item.messages) for item in items])
        return [
            tasks.is_correct(item, reply.text) for item, reply in zip(items, replies, strict=True)
        ]

    return solve


def make_lab_solver(name: str, settings: LabSettings) -> Solver:
    """Makes a function that lets a lab model, a small transformer of this project, solve items.

    Args:
        name: Name of a released lab model.
        settings: Settings of the lab models.
    """
    forward = Forward(released_weights.unpack(name, settings.models[name]))
    return partial(pretraining.find_solved_items, forward)


def measure_solved_chains(solver_by_model: Mapping[str, Solver]) -> pd.DataFrame:
    """Lets models solve the same chains of operations.

    Args:
        solver_by_model: By model, a function from items to whether each is solved.

    Returns:
        A row for each model and chain: method, length (operations), item and correct.
    """
    frames = []
    for length in CHAIN_LENGTHS:
        items = tasks.draw_items("chain", "test", NUM_CHAINS, difficulty=length)
        # The index is part of the name, because two short chains may be equal.
        names = [f"{length}-{index}" for index in range(len(items))]
        for model, solve in solver_by_model.items():
            correct = np.asarray(solve(items), dtype=float)
            frames.append(
                pd.DataFrame({"method": model, "length": length, "item": names, "correct": correct})
            )
    return pd.concat(frames).assign(seed=0, sample=0)


def estimate_solved_by_length(solved: pd.DataFrame) -> pd.DataFrame:
    """Estimates the share of solved chains by length and method.

    Args:
        solved: A row per question and method, with length (operations) and correct.
    """
    estimates = stats.mean(solved, "correct", ["length", "method"])
    labels = {}
    for length in CHAIN_LENGTHS:
        labels[length] = "1 operation" if length == 1 else f"{length} operations"
    return estimates.rename(index=labels, level="length")


# Metrics ------------------------------------------------------------------------------------------


def collect_headroom_metrics(gate: pd.DataFrame) -> dict[str, object]:
    """Collects the metrics of headroom on the collected table: what choosing could win, and whether it is enough.

    Args:
        gate: A row per question: headroom with its interval, and in `question is` whether it is enough.
    """
    metrics = {}
    for question, row in gate.iterrows():
        metrics[f"table.headroom.{question}"] = row
        metrics[f"table.{question}.is"] = row["question is"]
    return metrics


def collect_router_metrics(
    report: Mapping[str, Any], quality: AverageQuality, served_accuracy: pd.DataFrame
) -> dict[str, object]:
    """Collects the metrics of the fitted router: its gain on held-out questions, and the accuracy of served answers.

    Args:
        report: Report of the router at one budget.
        quality: AIQ, the mean height of its curve of accuracy over cost.
        served_accuracy: Accuracy of the served answers with its interval, by budget.
    """
    metrics: dict[str, object] = {
        "router.aiq_gap": quality.gain,
        "router.gain_over_constant": stats.Interval(**report["gain_over"][CONSTANT]),
        "router.gain_over_mixture": stats.Interval(**report["gain_over"][MIXTURE]),
    }
    for budget, row in served_accuracy.iterrows():
        metrics[f"served.{budget}.correct"] = row
    return metrics
