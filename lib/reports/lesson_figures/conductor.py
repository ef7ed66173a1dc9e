"""Tables and titles of lesson 04, the Conductor."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lib import stats
from lib.conductor import data, typical_replies, variants
from lib.conductor.lesson_estimates import BEST_STATIC, COMPARED, PRIMARY, label_methods
from lib.conductor.rewards import COMPONENTS
from lib.config import InitialPolicySettings
from lib.experiment import results_table, seeds
from lib.plots.tables import listed

# Methods of the key figure, from the start to the verifier.
# The methods of Tables 1 and 3 of the paper, with ours and the best single reward.
SHOWN_METHODS = (
    "base",
    "cot",
    "sft",
    "judge",
    "nover",
    "em",
    "equal",
    "random",
    BEST_STATIC,
    "conductor",
    "anchored",
    "oracle",
)
# Estimates that the lesson shows of a reader's run and of the recorded full run: metric keys, and words for the table.
SHOWN_ESTIMATES = {
    "gate.signal": "smallest gain of Oracle in an open category",
    "score.base": "score of Base",
    "score.equal": "score of Equal",
    "score.conductor": "score of the Conductor",
    "score.oracle": "score of Oracle",
    "contrast.conductor_equal.score": "Conductor minus Equal",
    "contrast.conductor_base.score": "Conductor minus Base",
    "contrast.conductor_oracle.score": "Conductor minus Oracle",
}


def tabulate_typical_errors(settings: InitialPolicySettings, seed: int = 1) -> pd.DataFrame:
    """Tabulates one wrong reply of every category that the initial policy learns, beside the reference.

    Args:
        settings: Settings of the initial policy.
        seed: Seed of the items and replies.

    Returns:
        A row per category.
    """
    rng = seeds.rng("conductor", "typical replies shown", seed=seed)
    rows = []
    for item in data.draw_items("train", len(data.CATEGORIES), seed=seed):
        thought, answer = typical_replies.write_error(item, rng)
        rows.append(
            {
                "category": data.get_category(item),
                "prompt": item.prompt,
                "a typical error": answer,
                "correct": item.reference,
                "its thought": thought,
            }
        )
    return pd.DataFrame(rows)


def tabulate_reward_signals(estimates: Mapping[str, pd.Series]) -> pd.DataFrame:
    """Tabulates how much each reward varies inside groups at the start, and how well it agrees with the verifier.

    Args:
        estimates: Estimates by metric key, such as "reward.NAME.groups_that_differ".

    Returns:
        A row per reward: the share of groups in which it differs, and its correlation with the verifier by category.
    """
    rows = {}
    for name in COMPONENTS:
        row = {"groups that differ": estimates[f"reward.{name}.groups_that_differ"]}
        for category in data.CATEGORIES:
            row[category] = estimates[f"reward.{name}.truth.{category}"]
        frame = pd.DataFrame(row).T.infer_objects()
        rows[name] = stats.intervals(frame)
    return pd.DataFrame(rows).T.rename_axis("reward")


def estimate_scores(rows: pd.DataFrame, tests: pd.DataFrame) -> pd.DataFrame:
    """Estimates the mean scores of the methods of the key figure, in its order; the best static mix bears its
    reward's name.

    Args:
        rows: The results table, from which the best static mix is chosen on dev items.
        tests: Its test rows of the categories that count.

    Returns:
        A row of `lib.stats` per method.
    """
    labels = label_methods(rows)
    shown = list(dict.fromkeys(labels[key] for key in SHOWN_METHODS if key in labels))
    shown_tests = results_table.select(tests, method=shown)
    # Variances are pooled over methods with equally many seeds; the primary methods have more than the others.
    num_seeds = shown_tests.groupby("method")["seed"].nunique()
    scores = []
    for _, methods in num_seeds.groupby(num_seeds):
        tests_of_methods = results_table.select(shown_tests, method=list(methods.index))
        scores.append(stats.mean(tests_of_methods, "correct", "method", pool=True))
    return pd.concat(scores).reindex(shown)


def summarize_scores(scores: pd.DataFrame) -> str:
    """Writes the title of the key figure: the Conductor's score beside those of the other rewards.

    Args:
        scores: Estimates by variant.
    """
    score = scores["value"]
    conductor = score[variants.CONDUCTOR.label]
    phrases = []
    for variant in (variants.EQUAL_WEIGHTS, variants.BASE):
        if variant.label in score:
            phrases.append(f"{variant.label} {score[variant.label]:.2f}")
    single_rewards = [name for name in scores.index if name in _LABELS_OF_SINGLE_REWARDS]
    if single_rewards:
        highest = score[single_rewards].idxmax()
        phrases.append(f"the single reward {highest} {score[highest]:.2f}")
    return f"The Conductor scores {conductor:.2f}, {listed(phrases)}"


_LABELS_OF_SINGLE_REWARDS = tuple(variant.label for variant in variants.STATIC_CANDIDATES)


def arrange_contrasts(table: pd.DataFrame) -> pd.DataFrame:
    """Arranges contrasts for display: both methods in words, difference, verdict and detectable effect.

    Args:
        table: Estimated differences by metric key, with verdict, mde and num_runs.

    Returns:
        A row per contrast.
    """
    shown = pd.DataFrame(
        {
            "difference": stats.intervals(table),
            "verdict": table["verdict"],
            "minimum detectable effect": table["mde"].astype(float).round(3),
            "seeds": table["num_runs"].astype(int),
        }
    )
    shown.index = [_describe_contrast(key) for key in table.index]
    return shown.rename_axis("contrast")


def _describe_contrast(key: str) -> str:
    """Describes a comparison in words by its metric key.

    Args:
        key: Such as "contrast.conductor_best_static.score", which is "Conductor minus best static".
    """
    if not key.startswith("contrast."):
        prefix, _, name = key.rpartition("_")
        baseline = name.replace("_", " ")
        if prefix.startswith("layers"):
            return f"last layer minus {baseline} layer"
        return f"Conductor minus {key.removeprefix('losses.full_minus_').replace('_', ' ')}"
    head, _, other = key.removeprefix("contrast.").removesuffix(".score").partition("_")
    other_label = COMPARED[other].label if other in COMPARED else other.replace("_", " ")
    return f"{COMPARED[head].label} minus {other_label}"


def list_mean_weights(rows: pd.DataFrame, num_bins: int = 12) -> pd.DataFrame:
    """Averages the Conductor's weights in the course of training: a row per seed, step, category and reward.

    Args:
        rows: The results table, with training rollouts of the Conductor.
        num_bins: Groups of steps that are averaged.

    Returns:
        Columns: seed, step (the middle of its bin), group, component, weight.
    """
    trained = results_table.select(rows, split="train", method=variants.CONDUCTOR.label)
    width = max(1, int(np.ceil((trained["step"].max() + 1) / num_bins)))
    # Steps of a bin are named by its middle.
    binned = trained.assign(step=trained["step"] // width * width + width // 2)
    columns = [f"w_{name}" for name in COMPONENTS]
    means = binned.groupby(["seed", "step", "group"], sort=False)[columns].mean().reset_index()
    long = means.melt(["seed", "step", "group"], columns, "component", "weight")
    return long.assign(component=long["component"].str.removeprefix("w_"))


def summarize_weights(weights: pd.DataFrame) -> str:
    """Writes the title of the figure of reward weights: which reward has most weight at the end of training.

    Args:
        weights: Columns step, group (category), component (reward) and weight.
    """
    last = weights[weights["step"] == weights["step"].max()]
    means = last.groupby(["group", "component"], sort=False)["weight"].mean().unstack()
    leaders = means.idxmax(axis=1)
    if leaders.nunique() == 1:
        share = means.max(axis=1).mean()
        return f"In every category the Conductor ends with most weight on {leaders.iloc[0]} ({share:.0%})"
    phrases = [f"{leader} in {category}" for category, leader in leaders.items()]
    return f"The Conductor ends with most weight on {listed(phrases)}"


def tabulate_pretrained_test(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulates a pretrained model before and after training: means over held-out replies with 95 % intervals.

    Args:
        rows: The table of facts of `lib.conductor.pretrained_demonstration`.

    Returns:
        A row per method, as texts.
    """
    is_test = rows["split"] == "test"
    test = rows.loc[is_test, ["method", "item", "sample", "correct", "in_form", "tokens_out"]]
    replies = results_table.make_results(
        "conductor", test.assign(item=test["item"].astype(str), seed=0, role="paper")
    )
    columns = {
        "right answers": "correct",
        "replies in the form": "in_form",
        "tokens of a reply": "tokens_out",
    }
    table = {
        heading: stats.intervals(stats.mean(replies, measure, "method"))
        for heading, measure in columns.items()
    }
    return pd.DataFrame(table).loc[["start", "equal", "conductor"]].rename_axis("method")


def list_pretrained_weights(rows: pd.DataFrame, steps_per_point: int = 5) -> pd.DataFrame:
    """Averages the Conductor's weights in the course of training a pretrained model.

    Args:
        rows: The table of facts of `lib.conductor.pretrained_demonstration`.
        steps_per_point: Steps that are averaged.

    Returns:
        Columns: seed (0, there is one training), step (the last of those averaged), component, weight.
    """
    rollouts = rows[(rows["split"] == "train") & (rows["method"] == "conductor")]
    # The mean of a bin is known at its last step.
    last_step = (rollouts["step"] // steps_per_point + 1) * steps_per_point
    columns = [f"w_{name}" for name in COMPONENTS]
    means = rollouts.assign(step=last_step).groupby("step")[columns].mean().reset_index()
    long = means.melt("step", columns, "component", "weight")
    return long.assign(seed=0, component=long["component"].str.removeprefix("w_"))


def describe_pretrained_cost(description: Mapping[str, Any]) -> str:
    """Describes in a sentence what the trainings of the demonstration took.

    Args:
        description: The JSON file beside its table of facts.
    """
    phrases = []
    for method, cost in description["cost"].items():
        if not cost["steps"]:
            continue  # the last call found the training at its end, and timed nothing
        seconds = cost["seconds"] / cost["steps"]
        phrases.append(
            f"{method} {seconds:.1f} s a step (timed over {cost['steps']} steps, {cost['device']})"
        )
    return f"{description['model']}, LoRA of rank {description['lora_rank']}: {'; '.join(phrases)}."


def summarize_lesson(synthetic_metrics: Mapping[str, Any], contrasts: pd.DataFrame) -> str:
    """Writes the conclusion: the Conductor against equal weights in simulation, and with language models.

    Args:
        synthetic_metrics: Estimates in simulation by metric key.
        contrasts: Estimated differences with language models by metric key, with verdicts.
    """
    difference = synthetic_metrics["glass.conductor_minus_equal"]
    table = pd.DataFrame({"Conductor minus equal weights": difference}).T.infer_objects()
    first = f"Where the truth is known, {stats.summary_sentence(table)}"
    phrases = []
    for key in contrasts.index:
        if key in PRIMARY:
            row = contrasts.loc[key]
            phrases.append(f"{_describe_contrast(key)} {row['value']:+.2f} ({row['verdict']})")
    return f"{first} With small language models, in score: {listed(phrases)}."
