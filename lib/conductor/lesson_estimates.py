"""What lesson 04 measures, by metric key. With language models it is the same of a reader's run and of the recorded
full run:

    gate.CATEGORY                     what the policy that the verifier rewards gains over the start, on test items
    gate.signal                       the smallest gate of the categories that count
    reward.NAME.groups_that_differ    share of groups at the start in which the reward is not the same for all replies
    reward.NAME.truth[.CATEGORY]      its correlation with the verifier inside groups; without CATEGORY in its best one
    score.METHOD                      mean score on test items of the categories that count
    contrast.METHOD_OTHER.score       METHOD minus OTHER, in pairs of seed and item
    category.NAME.conductor_minus_em  the Conductor minus entropy minimisation, in one category
    layers.last_minus_LAYER           the Conductor that reads the last layer minus one that reads another (Table 4)
    losses.full_minus_VARIANT         the Conductor minus one with another loss (Table 5)

A method that was not trained has no keys. In the synthetic environment, by `collect_synthetic_metrics`:

    glass.METHOD_minus_OTHER          difference of quality at the central setting, with its verdict
    glass.correct_proxy               the Conductor's mean weight on the reward that fits the category
    glass.easy_weight                 its mean weight on the easy reward
    glass.map.holds                   fraction of the settings of the map at which it is clearly above equal weights
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from lib import stats
from lib.conductor import reward_diagnostics, synthetic_methods, variants
from lib.conductor.experiment import choose_best_static
from lib.conductor.rewards import COMPONENTS
from lib.conductor.variants import ConductorVariant
from lib.config import ConductorSettings
from lib.experiment import results_table
from lib.stats.verdicts import HOLDS, NOT_OPEN

Estimate = pd.Series  # a row of `lib.stats`: value, ci_low, ci_high, mde and more
Estimates = dict[str, Estimate]  # by metric key

FIRST_STEPS = 8  # of a training in which rewards are measured: the policy has hardly moved
BEST_STATIC = "best_static"
CORRELATION = (-1.0, 1.0)  # where intervals of correlations end
# Names in metric keys of the methods that the two heads are compared with, beside the best static mix.
COMPARED = {
    "base": variants.BASE,
    "cot": variants.COT,
    "sft": variants.SFT,
    "nover": variants.NOVER,
    "em": variants.EM,
    "len": variants.LENGTH,
    "pref": variants.PREFERENCE,
    "judge": variants.JUDGE,
    "equal": variants.EQUAL_WEIGHTS,
    "random": variants.RANDOM_WEIGHTS,
    "conductor": variants.CONDUCTOR,
    "anchored": variants.ANCHORED,
    "oracle": variants.ORACLE,
}
HEADS = ("conductor", "anchored")
# The primary contrasts, named before any result was seen; they are tested together (Holm).
PRIMARY = (
    "contrast.conductor_equal.score",
    f"contrast.conductor_{BEST_STATIC}.score",
    "contrast.conductor_base.score",
    "contrast.anchored_equal.score",
    f"contrast.anchored_{BEST_STATIC}.score",
)

# Compared in the synthetic environment, by metric key: a method, and the one whose quality is subtracted.
SYNTHETIC_PAIRS = {
    "glass.conductor_minus_equal": ("Conductor", "Equal"),
    "glass.conductor_minus_random": ("Conductor", "Random"),
    "glass.conductor_minus_best_static": ("Conductor", synthetic_methods.BEST_STATIC),
    "glass.conductor_minus_anchored": ("Conductor", "Anchored 10%"),
    "glass.conductor_minus_oracle": ("Conductor", synthetic_methods.ORACLE),
    "glass.anchored_minus_equal": ("Anchored 10%", "Equal"),
    "glass.anchored_minus_direct": ("Anchored 10%", "quality on 10%"),
    "glass.best_per_category_minus_equal": (synthetic_methods.BEST_PROXIES, "Equal"),
}
# Columns that identify a setting of the map.
MAP_COLUMNS = ("noise", "easy_fraction", "other_agreement")


def collect_estimates(rows: pd.DataFrame, settings: ConductorSettings) -> Estimates:
    """Estimate everything that lesson 04 measures with language models.

    Args:
        rows: The results table `conductor`: tests, and training rollouts of equal weights.
        settings: The section `conductor`; gate and group size are read.

    Returns:
        Estimates by metric key; the module lists them.
    """
    # What can be learned at all decides which categories count in everything below.
    gains = estimate_gains(rows)
    open_categories = list_open_categories(rows, settings)
    estimates = {f"gate.{category}": gain for category, gain in gains.iterrows()}
    smallest = gains.loc[open_categories, "value"].idxmin()
    estimates["gate.signal"] = gains.loc[smallest]
    estimates |= estimate_reward_knowledge(rows, settings.grpo.generations)

    # Dev items chose the categories and the best static mix; from here on only test items are read.
    tests = results_table.select(rows, split="test", group=open_categories)
    labels = label_methods(rows)
    estimates |= estimate_scores(tests, labels)
    estimates |= estimate_contrasts(tests, labels)
    estimates |= _compare_by_category(results_table.select(rows, split="test"))
    estimates |= _compare_with_conductor(tests, "layers.last_minus_", variants.LAYERS)
    return estimates | _compare_with_conductor(tests, "losses.full_minus_", variants.LOSSES)


def estimate_gains(rows: pd.DataFrame, split: str = "test") -> pd.DataFrame:
    """Estimate by category what a policy gains that the verifier itself rewards: all there is to learn.

    Args:
        rows: The results table `conductor`.
        split: `test` or `dev`.

    Returns:
        A row of `lib.stats` per category: score of the oracle minus score of the initial policy.
    """
    return stats.paired_difference(
        results_table.select(rows, split=split),
        "correct",
        {"method": variants.ORACLE.label},
        {"method": variants.BASE.label},
        "group",
    )


def list_open_categories(rows: pd.DataFrame, settings: ConductorSettings) -> list[str]:
    """List the categories of tasks in which training can gain anything.

    In these the oracle's gain on dev items is at least `gate`, and the interval of the gain lies above 0.

    Args:
        rows: The results table `conductor`.
        settings: Settings, of which `gate` is read.

    Returns:
        Names of categories. Where none is open, the one with the largest gain; its verdicts are then "not open"
        (`has_open_category`).
    """
    gains = estimate_gains(rows, "dev")
    is_open = (gains["value"] >= settings.gate) & (gains["ci_low"] > 0)
    return gains.index[is_open].tolist() or [gains["value"].idxmax()]


def has_open_category(rows: pd.DataFrame, settings: ConductorSettings) -> bool:
    """Decide whether any category is open, by the rule of `list_open_categories`."""
    gains = estimate_gains(rows, "dev")
    return bool(((gains["value"] >= settings.gate) & (gains["ci_low"] > 0)).any())


def label_methods(rows: pd.DataFrame) -> dict[str, str]:
    """Map the names of trained methods in metric keys to their labels in the rows.

    Args:
        rows: The results table `conductor`.

    Returns:
        Labels by name; `best_static` is the single reward that was best on dev items.
    """
    trained = set(rows["method"])
    labels = {key: variant.label for key, variant in COMPARED.items() if variant.label in trained}
    candidates = {variant.label for variant in variants.STATIC_CANDIDATES}
    if candidates & trained:
        labels[BEST_STATIC] = choose_best_static(rows)
    return labels


def estimate_reward_knowledge(rows: pd.DataFrame, group_size: int) -> Estimates:
    """Estimate for each reward how often it differs within a group, and how it correlates with the true quality.

    Args:
        rows: The results table, with training rollouts of equal weights.
        group_size: Rollouts of a group, the replies to one prompt.

    Returns:
        Estimates over seeds by metric key: reward.NAME.groups_that_differ, reward.NAME.truth.CATEGORY and
        reward.NAME.truth, as the module defines them.
    """
    signals = measure_signals(rows, group_size)
    estimates = {}
    for name, of_reward in signals.groupby("reward", sort=False):
        differ = stats.mean(of_reward, "groups_that_differ", bounds=stats.UNIT).iloc[0]
        estimates[f"reward.{name}.groups_that_differ"] = differ

        # Its correlation with the verifier, in every category and in its best one.
        truths = stats.mean(of_reward, "truth", "group", bounds=CORRELATION)
        for category, truth in truths.iterrows():
            estimates[f"reward.{name}.truth.{category}"] = truth
        # A reward is useful where it knows something; with two seeds there is no interval to go by.
        best_category = truths["ci_low"].fillna(truths["value"]).idxmax()
        estimates[f"reward.{name}.truth"] = truths.loc[best_category]
    return estimates


def measure_signals(rows: pd.DataFrame, group_size: int) -> pd.DataFrame:
    """Measure how informative the rewards are in the first steps, when the policy has hardly moved.

    Args:
        rows: The results table, with training rollouts of equal weights.
        group_size: Rollouts of a group.

    Returns:
        The table of `reward_diagnostics.measure_reward_signals`, with the columns item and method that `lib.stats` asks
        for; its items are the categories.
    """
    equal = variants.EQUAL_WEIGHTS.label
    rollouts = results_table.select(rows, split="train", method=equal)
    first_rollouts = rollouts[rollouts["step"] < FIRST_STEPS]
    signals = reward_diagnostics.measure_reward_signals(first_rollouts, group_size)
    return signals.assign(item=signals["group"], method=equal)


def estimate_scores(tests: pd.DataFrame, labels: Mapping[str, str]) -> Estimates:
    """Estimate the mean score of every method on test items.

    Args:
        tests: Test rows of the results table.
        labels: What `label_methods` returned.

    Returns:
        Estimates by metric key: score.METHOD.
    """
    estimates = {}
    for key, label in labels.items():
        of_method = results_table.select(tests, method=label)
        estimates[f"score.{key}"] = stats.mean(of_method, "correct").iloc[0]
    return estimates


def estimate_contrasts(tests: pd.DataFrame, labels: Mapping[str, str]) -> Estimates:
    """Estimate the score of either Conductor, the published and the anchored one, minus that of every other method.

    Args:
        tests: Test rows of the results table.
        labels: What `label_methods` returned.

    Returns:
        Estimates by metric key: contrast.CONDUCTOR_METHOD.score.
    """
    estimates = {}
    for head in HEADS:
        if head not in labels:
            continue
        for key, label in labels.items():
            if label != labels[head]:
                difference = estimate_difference(tests, labels[head], label)
                estimates[f"contrast.{head}_{key}.score"] = difference
    return estimates


def estimate_difference(tests: pd.DataFrame, method: str, baseline: str) -> Estimate:
    """Estimate the score of a method minus that of a baseline, in pairs of the same seed and item.

    Args:
        tests: Test rows of the results table.
        method: Label of the method.
        baseline: Label of the method that is subtracted.

    Returns:
        The estimate, over the seeds that both were trained under.
    """
    # Secondary methods have fewer seeds: a seed that only one of the two has is no pair.
    compared = results_table.select(tests, method=[method, baseline])
    seeds_by_method = compared.groupby("method")["seed"].agg(set)
    shared_seeds = set.intersection(*seeds_by_method)
    return stats.paired_difference(
        results_table.select(compared, seed=shared_seeds),
        "correct",
        {"method": method},
        {"method": baseline},
    ).iloc[0]


def _compare_by_category(tests: pd.DataFrame) -> Estimates:
    """Estimate the Conductor's score minus that of entropy minimisation, in every category of tasks.

    Args:
        tests: Scores of test items.

    Returns:
        Paired differences by metric key; empty unless both methods were trained.
    """
    methods = [variants.CONDUCTOR.label, variants.EM.label]
    if not set(methods) <= set(tests["method"]):
        return {}
    estimates = {}
    for category, of_category in tests.groupby("group", sort=False):
        key = f"category.{category}.conductor_minus_em"
        estimates[key] = estimate_difference(of_category, *methods)
    return estimates


def _compare_with_conductor(
    tests: pd.DataFrame, prefix: str, compared: Sequence[ConductorVariant]
) -> Estimates:
    """Estimate the published Conductor minus variants of it.

    Args:
        tests: Test rows of the results table.
        prefix: Prefix of the metric keys; the name of the variant follows.
        compared: The variants; those that were not trained are left out.

    Returns:
        Estimates by metric key.
    """
    estimates = {}
    for variant in compared:
        if variant.label in set(tests["method"]):
            # "h: first layer" becomes "first", "no entropy" becomes "no_entropy".
            name = variant.label.removeprefix("h: ").removesuffix(" layer").replace(" ", "_")
            difference = estimate_difference(tests, variants.CONDUCTOR.label, variant.label)
            estimates[f"{prefix}{name}"] = difference
    return estimates


def tabulate_contrasts(
    estimates: Mapping[str, Estimate], keys: Sequence[str], margin: float, is_open: bool
) -> pd.DataFrame:
    """Tabulate contrasts with their verdicts.

    Args:
        estimates: What `collect_estimates` returned.
        keys: Which ones; what was not trained is left out.
        margin: Differences of score within it count as equivalent.
        is_open: Whether anything can be learned; where not, every verdict is "not open".

    Returns:
        A row per contrast: the columns of `lib.stats`, significant_together (by Holm's correction for all rows) and
        verdict.
    """
    present = [key for key in keys if key in estimates]
    table = pd.DataFrame({key: estimates[key] for key in present}).T.infer_objects()
    table["significant_together"] = stats.holm(table)
    verdicts = stats.verdict(table, margin)
    table["verdict"] = verdicts if is_open else NOT_OPEN
    return table


def estimate_observed(rows: pd.DataFrame, group_size: int) -> Estimates:
    """Estimate what training rewarded and where it led: advantages, length of replies, and weights.

    Args:
        rows: The results table, with training rollouts of the Conductor and of equal weights.
        group_size: Rollouts of a group.

    Returns:
        Estimates by metric key: observed.METHOD.quality, the correlation of advantages with the verifier inside groups,
        and observed.conductor.quality_minus.equal; METHOD.tokens and conductor.tokens_minus.equal, of test replies;
        conductor.weights.CATEGORY.REWARD, the mean weights on test replies.
    """
    # Per training, the correlation of advantages with the verifier inside groups. `lib.stats` asks for items.
    conductor = variants.CONDUCTOR.label
    equal = variants.EQUAL_WEIGHTS.label
    rollouts = results_table.select(rows, split="train", method=[conductor, equal])
    by_run = reward_diagnostics.correlate_advantages(rollouts, group_size).assign(item="all")
    tests = results_table.select(rows, split="test")

    # That correlation and the length of test replies, of each method.
    estimates = {}
    for label in (conductor, equal):
        runs_of_method = results_table.select(by_run, method=label)
        quality = stats.mean(runs_of_method, "quality").iloc[0]
        estimates[f"observed.{label.lower()}.quality"] = quality
        tests_of_method = results_table.select(tests, method=label)
        num_tokens = stats.mean(tests_of_method, "tokens_out").iloc[0]
        estimates[f"{label.lower()}.tokens"] = num_tokens

    # The Conductor minus equal weights.
    pair = {"method": conductor}, {"method": equal}
    difference = stats.paired_difference(by_run, "quality", *pair)
    estimates["observed.conductor.quality_minus.equal"] = difference.iloc[0]
    difference = stats.paired_difference(tests, "tokens_out", *pair)
    estimates["conductor.tokens_minus.equal"] = difference.iloc[0]

    # The Conductor's mean weights by category.
    of_conductor = results_table.select(tests, method=conductor)
    for name in COMPONENTS:
        by_category = stats.mean(of_conductor, f"w_{name}", "group")
        for category, weight in by_category.iterrows():
            estimates[f"conductor.weights.{category}.{name}"] = weight
    return estimates


def collect_training_metrics(rows: pd.DataFrame, settings: ConductorSettings) -> dict[str, Any]:
    """Collect what training rewarded, where it led, and how long and how often the Conductor was trained.

    Args:
        rows: The results table, with training rollouts of the Conductor and of equal weights.
        settings: Of which gate, group size and interval between updates are read.

    Returns:
        Values of `estimate_observed` and `describe_setup` by metric key.
    """
    is_open = has_open_category(rows, settings)
    num_open_categories = len(list_open_categories(rows, settings)) if is_open else 0
    observed = estimate_observed(rows, settings.grpo.generations)
    return observed | describe_setup(rows, settings, num_open_categories)


def collect_verdicts(contrasts: pd.DataFrame) -> dict[str, str | float]:
    """Collect the verdict and the minimum detectable effect of every contrast.

    Args:
        contrasts: What `tabulate_contrasts` returned.

    Returns:
        Values by metric key: CONTRAST_verdict and CONTRAST_mde.
    """
    values = {}
    for key, row in contrasts.iterrows():
        values[f"{key}_verdict"] = row["verdict"]
        values[f"{key}_mde"] = float(row["mde"])
    return values


def describe_setup(
    rows: pd.DataFrame, settings: ConductorSettings, num_open_categories: int
) -> dict[str, str | int]:
    """Describe how long and how often the Conductor was trained.

    Args:
        rows: The results table, with training rollouts of the Conductor.
        settings: Settings, of which the interval between updates is read.
        num_open_categories: Categories that count, for gate.open.

    Returns:
        Values by metric key.
    """
    trained = results_table.select(rows, split="train", method=variants.CONDUCTOR.label)
    num_steps = int(trained["step"].max()) + 1
    return {
        "backend": "lab",
        "conductor.seeds": int(trained["seed"].nunique()),
        "conductor.steps": num_steps,
        "conductor.updates": num_steps // settings.head.update_interval,
        "gate.open": num_open_categories,
    }


def collect_synthetic_metrics(rows: pd.DataFrame) -> dict[str, Any]:
    """Collect the metrics of the synthetic environment: differences of quality, the Conductor's weights, and verdicts.

    Args:
        rows: The results table `conductor_synthetic`.

    Returns:
        Values by metric key; the module lists them.
    """
    # Differences of quality at the central setting.
    central_rows = results_table.select(rows, style="centre")
    metrics = {}
    for key, (method, baseline) in SYNTHETIC_PAIRS.items():
        difference = _compare_in_synthetic(central_rows, method, baseline)
        metrics[key] = difference.iloc[0]
        metrics[f"{key}_verdict"] = stats.verdict(difference).iloc[0]

    # The Conductor's weights there. The proxy that fits category c is the reward at position 1 + c, as the easy reward
    # stands before all proxies.
    conductor_rows = results_table.select(central_rows, method="Conductor")
    matching_weights = []
    for _, row in conductor_rows.iterrows():
        matching_proxy = COMPONENTS[1 + int(row["group"])]
        matching_weights.append(row[f"w_{matching_proxy}"])
    conductor_rows = conductor_rows.assign(matching_weight=matching_weights)
    metrics["glass.correct_proxy"] = stats.mean(conductor_rows, "matching_weight").iloc[0]
    metrics["glass.easy_weight"] = stats.mean(conductor_rows, f"w_{COMPONENTS[0]}").iloc[0]

    # The fraction of the settings of the map at which the Conductor is clearly above equal weights.
    map_rows = results_table.select(rows, style="map")
    on_map = _compare_in_synthetic(map_rows, "Conductor", "Equal", MAP_COLUMNS)
    metrics["glass.map.holds"] = float(stats.verdict(on_map).eq(HOLDS).mean())
    return metrics


def _compare_in_synthetic(
    rows: pd.DataFrame, method: str, baseline: str, by: Sequence[str] = ()
) -> pd.DataFrame:
    """Estimate the quality that a method reaches minus that of another one, in pairs of the same seed and category.

    Args:
        rows: Rows of the results table `conductor_synthetic`, whose column `reward` is the quality.
        method: The method of interest.
        baseline: The one to compare it with.
        by: Columns that tell settings apart.

    Returns:
        A row of `lib.stats` per setting.
    """
    return stats.paired_difference(rows, "reward", {"method": method}, {"method": baseline}, by)
