"""Whom orchestrators call that are only prompted, and how well they serve users: tables from rows of episodes.

The pilot study of ToolOrchestra (appendix A): of all calls to models, the share of each. Two biases are read off it.
An orchestrator that calls models of its own family more often than a random choice would has self-enhancement bias; one
that calls the strongest other model more often has other-enhancement bias. In the preference benchmark every answer is
scored by what its user cares for (`rewards`). Left out: who is asked, which is `evaluate_command`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib.experiment import seeds
from lib.stats.intervals import mean_interval
from lib.tool_orchestration import rewards

_FAMILY = re.compile(r"[a-z]+")
SELF, OTHER = "self-enhancement", "other-enhancement"
SINGLE_MODEL_PREFIX = (
    "always "  # and a model's name: the method that lets this model answer every question
)


def find_family(model: str) -> str:
    """Find the family of a model: the letters that its name begins with, without its maker's name.

    >>> find_family("openai/gpt-5-mini"), find_family("Qwen/Qwen3-8B"), find_family("lab-mini")
    ('gpt', 'qwen', 'lab')
    """
    name = model.rsplit("/", 1)[-1].lower()
    match = _FAMILY.search(name)
    return match[0] if match else name


def compute_call_shares(rows: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Compute the share of an orchestrator's calls that go to each model, question by question.

    Args:
        rows: One per orchestrator (method) and question (item), with chosen: names of the called tools.
        models: Names of the models among the tools; calls to functions are left out.

    Returns:
        (rows with a call to a model, models) shares that add up to 1, with method and item as the index.
    """
    shares = []
    for row in rows.itertuples(index=False):
        model_calls = [name for name in row.chosen.split() if name in models]
        # A question that was answered without a model has no shares to average.
        if not model_calls:
            continue
        share_by_model = {}
        for name in models:
            share_by_model[name] = model_calls.count(name) / len(model_calls)
        shares.append({"method": row.method, "item": row.item} | share_by_model)
    table = pd.DataFrame(shares, columns=["method", "item", *models])
    return table.set_index(["method", "item"])


def tabulate_pilot(rows: pd.DataFrame, models: Sequence[str]) -> pd.DataFrame:
    """Tabulate the pilot study: shares of calls by model, accuracy and cost of each orchestrator.

    Args:
        rows: One per orchestrator (method) and question (item), with chosen (names of the called tools), correct (nan
            where a reply was lost), cost_usd (of the calls) and own_cost_usd (of the orchestrator's own tokens).
        models: Names of the models among the tools.

    Returns:
        A row per orchestrator: share of calls to each model with a 95 % interval over questions, the share of questions
        without a call to any, accuracy, dollars per 1,000 questions with the orchestrator's own tokens and without.
    """
    shares = compute_call_shares(rows, models)
    table = {}
    for method, group in rows.groupby("method", sort=False):
        of_method = shares[shares.index.get_level_values("method") == method]
        row = {}
        for name in models:
            row[f"to {name}"] = format_mean(of_method[name].to_numpy(), method, name)
        row["no model called"] = f"{1 - len(of_method) / len(group):.2f}"
        scored = group["correct"].dropna().to_numpy()
        row["accuracy"] = format_mean(scored, method, "accuracy")
        cost_usd = group["cost_usd"].mean()
        row["$ per 1,000"] = f"{1000 * cost_usd:.3g}"
        row["with own tokens"] = f"{1000 * (cost_usd + group['own_cost_usd'].mean()):.3g}"
        table[method] = row
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("orchestrator")


def tabulate_biases(
    shares: pd.DataFrame,
    families: Mapping[str, str],
    orchestrator_families: Mapping[str, str],
    accuracy: Mapping[str, float],
) -> pd.DataFrame:
    """Tabulate how much more often than at random orchestrators call their own family, and the strongest other model.

    Args:
        shares: What `compute_call_shares` returned.
        families: Model family of each model among the tools.
        orchestrator_families: Model family of each orchestrator.
        accuracy: Accuracy of each model by itself, which says who is the strongest.

    Returns:
        A row per orchestrator and bias: the models meant, the share of calls, that of a random choice, and the
        difference with a 95 % interval over questions. No row where the family has no model on the menu, or all.
    """
    models = list(shares.columns)
    rows = []
    for method in dict.fromkeys(shares.index.get_level_values("method")):
        values = shares.xs(method, level="method")
        family_models = [name for name in models if families[name] == orchestrator_families[method]]
        other_models = [name for name in models if name not in family_models]
        strongest = sorted(other_models, key=lambda name: accuracy.get(name, 0.0))[-1:]
        for bias, group in ((SELF, family_models), (OTHER, strongest)):
            if not group or len(group) == len(models):
                continue
            # (questions,) above what a random choice among the models would give
            excess = values[group].sum(axis=1).to_numpy() - len(group) / len(models)
            rows.append(
                {
                    "orchestrator": method,
                    "bias": bias,
                    "models": ", ".join(group),
                    "share of calls": f"{values[group].sum(axis=1).mean():.2f}",
                    "at random": f"{len(group) / len(models):.2f}",
                    "difference": format_mean(excess, method, bias),
                }
            )
    columns = ["orchestrator", "bias", "models", "share of calls", "at random", "difference"]
    return pd.DataFrame(rows, columns=columns).set_index("orchestrator")


def score_benchmark(rows: pd.DataFrame, reference: str) -> pd.DataFrame:
    """Score the answers of the preference benchmark by their users' preferences, relative to a reference method.

    Args:
        rows: One per method, question (item) and price list (condition), with m, the outcome vector [calls of each
            tool, outcome, -US dollars, -seconds], and p, the user's weights of the same entries.
        reference: The method that takes the place of the paper's checkpoint before training.

    Returns:
        The rows whose question the reference answered under the same prices, with the columns score (the paper's,
        without a bound) and bounded (in [0, 1]); nan where a reply was lost, of the method or of the reference.

    Raises:
        ValueError: The reference is no method.
    """
    keys = ["condition", "item"]
    references = rows[rows["method"] == reference].set_index(keys)["m"]
    if references.empty:
        methods = ", ".join(dict.fromkeys(rows["method"]))
        raise ValueError(f"--reference {reference}: it is none of the methods ({methods})")
    rows = rows.join(references.rename("reference_m"), on=keys, how="inner")
    rows = rows.reset_index(drop=True).assign(score=np.nan, bounded=np.nan)

    # A reply that was lost says nothing of anybody: its outcome is nan.
    is_lost = np.isnan(np.stack(rows["m"])).any(axis=1)
    is_reference_lost = np.isnan(np.stack(rows["reference_m"])).any(axis=1)
    scored = np.flatnonzero(~is_lost & ~is_reference_lost)
    if not len(scored):
        return rows

    # (n, k) each
    vectors = np.stack(rows["m"].iloc[scored])
    reference_vectors = np.stack(rows["reference_m"].iloc[scored])
    preferences = np.stack(rows["p"].iloc[scored])
    rows.loc[scored, "score"] = rewards.compute_preference_scores(
        vectors, reference_vectors, preferences
    )
    rows.loc[scored, "bounded"] = rewards.compute_bounded_scores(
        vectors, reference_vectors, preferences
    )
    return rows


def tabulate_benchmark(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the preference benchmark by method.

    Args:
        rows: What `score_benchmark` returned.

    Returns:
        A row per method: on how many questions, accuracy, dollars with the orchestrator's own tokens and without,
        seconds of the calls, and both scores averaged over questions and price lists, with 95 % intervals over
        questions. Methods answer different questions where a model is not on every menu.
    """
    table = {}
    for method, group in rows.groupby("method", sort=False):
        columns = ["correct", "cost_usd", "own_cost_usd", "seconds", "score", "bounded"]
        # Price lists are repetitions of a question, so they are averaged before questions are compared.
        questions = group.groupby("item")[columns].mean().dropna()
        means = questions.mean()
        accuracy = format_mean(questions["correct"].to_numpy(), method, "accuracy")
        bounded_score = format_mean(questions["bounded"].to_numpy(), method, "bounded")
        table[method] = {
            "questions": len(questions),
            "accuracy": accuracy,
            "$ per 1,000": f"{1000 * means['cost_usd']:.3g}",
            "with own tokens": f"{1000 * (means['cost_usd'] + means['own_cost_usd']):.3g}",
            "seconds": f"{means['seconds']:.3g}",
            "score, bounded": bounded_score,
            "score of the paper": f"{means['score']:.3g}",
        }
    return pd.DataFrame.from_dict(table, orient="index").rename_axis("method")


def format_mean(values: np.ndarray, *stream: str) -> str:
    """Format a mean with its 95 % interval over questions.

    Args:
        values: (questions,) one value for each question.
        stream: Names of the random stream that resamples the questions.

    Returns:
        Such as "0.61 [0.50, 0.71]"; the mean alone below three questions, "-" without any.
    """
    if not len(values):
        return "-"
    if len(values) < 3:
        return f"{np.mean(values):.2f}"
    interval = mean_interval(values, seeds.rng("toolorchestra", "pilot", *stream))
    return f"{interval.value:.2f} [{interval.ci_low:.2f}, {interval.ci_high:.2f}]"
