"""What lesson 07 estimates from the rows of its results table, of its own run and of the recorded one.

gate.configuration.headroom          accuracy of the best choice for each dev question above the best single one
gate.configuration.headroom_in_kind  the same above the best choice for each kind
gate.configuration.headroom_at_any_cost  the same above the most accurate single one, whatever it costs
gate.configuration.saving            share of the constant's cost that the best choice for each question saves
gate.configuration.signal            reward of ARC above random choices: whether training finds anything
arc.gain                             reward of ARC above the best constant per kind
<method>.accuracy, .reward, .cost_usd, .tokens
contrast.arc_<baseline>.accuracy and .reward, of the first baselines also .cost_usd
regret.<method>                      reward of the oracle above the method
oracle.dominates                     whether no method is above the oracle on any question
transfer.<kind>.<kind>.gap           accuracy on the second kind of what learned on the first, minus what learned there
larger.gap                           accuracy of ARC's choices with larger agents minus with its own
workflows.best.<kind>, .lead.<kind>  which workflow is best, and how far ahead of the next
atoms.<name>.effect                  accuracy with the atom minus without; .effect_tokens likewise
errors.<method>.configuration        share of a method's wrong answers that the configuration is to blame for
<method>.workflow_entropy.<kind>     entropy of the workflows that the policy of a kind chooses, in bits
arc.episodes, arc.seeds              episodes of each policy, and trainings
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from lib import stats
from lib.agent_configuration import atom_effects, baselines
from lib.agent_configuration.results import (
    ATOMS,
    BY_WORKFLOW,
    GATE,
    LARGER,
    OTHER,
    OWN,
    TEST,
    TRAIN,
    compare_workflows,
    measure_adaptation,
    none_wins_everywhere,
)
from lib.stats.ranges import NONNEGATIVE, UNIT, range_of_name

# Compared with ARC; the first were named before the run and are tested together.
PRIMARY = ("by_kind", "best_constant", "bandit", "autoregressive", "mdp", "random")
SECONDARY = (
    "base", "grid", "greedy", "undiscounted", "unmasked", "sparse", "grpo", "arc_no_sft", "arc_dpo", "zero_shot",
    "few_shot", "gepa", "bootstrap", "conversation", "oracle",
)  # fmt: skip
# Differences within these count as equivalent; written down before the run.
MARGINS = {"correct": 0.02, "reward": 0.1}
NAMES = {"correct": "accuracy", "reward": "reward", "cost_usd": "cost_usd", "tokens_out": "tokens"}


def estimate_metrics(rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate all metrics of lesson 07 that come from its agents.

    Args:
        rows: Rows of `results.make_rows`.

    Returns:
        Estimates (series with an interval) and single values by metric key, see the head of this module. Metrics of a
        method that was not run are left out.
    """
    return (
        estimate_gate(rows)
        | estimate_levels(rows)
        | estimate_contrasts(rows)
        | estimate_oracle(rows)
        | estimate_atoms(rows)
        | estimate_transfer(rows)
        | estimate_workflows(rows)
        | estimate_workflow_entropy(rows)
        | estimate_errors(rows)
        | estimate_larger_agents(rows)
        | count_training(rows)
    )


def select_tests(rows: pd.DataFrame, style: str = OWN) -> pd.DataFrame:
    """Select the rows of test questions in one style, see `results`; by default OWN, the kind that a policy learned."""
    return rows[(rows["split"] == TEST) & (rows["style"] == style)]


def estimate_gate(rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate the gate: whether there is anything to gain by choosing a configuration for each question.

    The gate's rows have dev questions, which nobody learns from, under four choices that are made without a policy:

        best per question    a configuration for each question, chosen on one sample of answers and scored on another
        best per kind        the configuration with the best mean reward on the training questions of the kind
        best constant        one configuration for all questions, the one with the best mean reward
        most accurate        one configuration for all questions, the one with the best accuracy, whatever it costs

    Args:
        rows: Rows of `results.make_rows`.

    Returns:
        Paired differences by metric key, each of which begins with "gate.configuration.":

        headroom: accuracy of best per question minus best constant.
        headroom.<kind>: the same on the questions of one kind.
        headroom_in_kind: accuracy of best per question minus best per kind, what is left when the kind is known.
        headroom_of_kinds: accuracy of best per kind minus best constant, what knowing the kind gains.
        headroom_at_any_cost: accuracy of best per question minus most accurate.
        headroom_reward: reward of best per question minus best constant.
        saving: share of the best constant's cost that best per question saves.
        signal: reward of ARC minus random choices on test questions, whether training finds anything at all; left out
            where one of them was not run.
    """
    gate = rows[rows["split"] == GATE]
    per_question = baselines.BEST_PER_QUESTION
    per_kind = baselines.BEST_PER_KIND
    constant = baselines.BEST_CONSTANT
    most_accurate = baselines.MOST_ACCURATE
    # metric: (column, treatment, reference)
    compared = {
        "headroom": ("correct", per_question, constant),
        "headroom_in_kind": ("correct", per_question, per_kind),
        "headroom_at_any_cost": ("correct", per_question, most_accurate),
        "headroom_of_kinds": ("correct", per_kind, constant),
        "headroom_reward": ("reward", per_question, constant),
    }
    estimates: dict[str, Any] = {}
    for metric, (column, treatment, reference) in compared.items():
        estimates[metric] = estimate_difference(gate, column, treatment, reference)
    estimates["saving"] = estimate_saving(gate, per_question, constant)
    for kind, kind_rows in gate.groupby("group", sort=False):
        estimates[f"headroom.{kind}"] = estimate_difference(
            kind_rows, "correct", per_question, constant
        )

    # Whether training finds anything
    tests = select_tests(rows)
    if {"arc", "random"} <= set(tests["method"]):
        estimates["signal"] = estimate_difference(tests, "reward", "arc", "random")
    return {f"gate.configuration.{metric}": estimate for metric, estimate in estimates.items()}


def estimate_saving(rows: pd.DataFrame, treatment: str, reference: str) -> pd.Series:
    """Estimate which share of a reference's mean cost a treatment saves.

    Args:
        rows: Rows with method and cost_usd, on the same questions and samples for both methods.
        treatment: Name of the method that may save.
        reference: Name of the method whose mean cost is 1.

    Returns:
        Mean saving with its interval; negative where the treatment costs more.
    """
    reference_cost = rows.loc[rows["method"] == reference, "cost_usd"].mean()
    # The difference of negative costs is what is saved.
    relative = rows.assign(saving=-rows["cost_usd"] / reference_cost)
    return estimate_difference(relative, "saving", treatment, reference)


def estimate_levels(rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate the mean accuracy, reward, cost and tokens of each method on test questions.

    Args:
        rows: Rows of `results.make_rows`.

    Returns:
        Means with intervals by "<method>.<quantity>", such as "arc.accuracy".
    """
    tests = select_tests(rows)
    estimates = {}
    for column, quantity in NAMES.items():
        for method, estimate in stats.mean(tests, column, "method").iterrows():
            estimates[f"{method}.{quantity}"] = estimate
    return estimates


def estimate_contrasts(rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate the contrasts: ARC minus each baseline on the same test questions.

    Args:
        rows: Rows of `results.make_rows`.

    Returns:
        contrast.arc_<baseline>.accuracy and .reward, of primary baselines also .cost_usd; and arc.gain, the reward of
        ARC minus the best constant for each kind. Empty where ARC was not run.
    """
    tests = select_tests(rows)
    tested_methods = set(tests["method"])
    if "arc" not in tested_methods:
        return {}
    estimates: dict[str, Any] = {}
    for baseline in (*PRIMARY, *SECONDARY):
        if baseline not in tested_methods:
            continue
        columns = ["correct", "reward"]
        if baseline in PRIMARY:
            columns.append("cost_usd")
        for column in columns:
            difference = estimate_difference(tests, column, "arc", baseline)
            estimates[f"contrast.arc_{baseline}.{NAMES[column]}"] = difference
    estimates["arc.gain"] = estimate_difference(tests, "reward", "arc", "by_kind")
    return estimates


def decide_contrasts(estimates: Mapping[str, Any], column: str = "correct") -> pd.DataFrame:
    """Decide the verdict of each contrast of ARC with a baseline.

    Args:
        estimates: What `estimate_contrasts` returned.
        column: What is compared, "correct" or "reward".

    Returns:
        A row for each baseline with the columns of the estimate, verdict (see `stats.verdict`), and significant_holm:
        whether the difference is significant when all primary baselines are tested together (Holm), NaN for others.
    """
    prefix = "contrast.arc_"
    suffix = f".{NAMES[column]}"
    estimate_by_baseline = {}
    for metric, estimate in estimates.items():
        if metric.startswith(prefix) and metric.endswith(suffix):
            baseline = metric.removeprefix(prefix).removesuffix(suffix)
            estimate_by_baseline[baseline] = estimate
    contrasts = pd.DataFrame(estimate_by_baseline).T.rename_axis("baseline").infer_objects()

    primary = [baseline for baseline in PRIMARY if baseline in contrasts.index]
    significant = stats.holm(contrasts.loc[primary])
    return contrasts.assign(
        verdict=stats.verdict(contrasts, MARGINS[column]),
        significant_holm=significant.reindex(contrasts.index),
    )


def collect_verdicts(estimates: Mapping[str, Any]) -> dict[str, str | float]:
    """Collect the verdict and the minimum detectable effect (mde) of every contrast.

    Args:
        estimates: What `estimate_metrics` returned.

    Returns:
        Values by metric key, the key of the contrast with "_verdict" or "_mde" behind it.
    """
    values: dict[str, str | float] = {}
    for column in MARGINS:
        for baseline, row in decide_contrasts(estimates, column).iterrows():
            key = f"contrast.arc_{baseline}.{NAMES[column]}"
            values[f"{key}_verdict"] = row["verdict"]
            values[f"{key}_mde"] = float(row["mde"])
    return values


def estimate_oracle(rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate the regret of every method: the reward of the oracle minus its own.

    The oracle knows afterwards which of all configurations that were tried on a question has the highest reward.

    Args:
        rows: Rows of `results.make_rows`.

    Returns:
        regret.<method>, and oracle.dominates: whether no method has a higher reward than the oracle on any question.
        Empty where there is no oracle.
    """
    tests = select_tests(rows)
    if "oracle" not in set(tests["method"]):
        return {}
    oracle = tests[tests["method"] == "oracle"]
    scored = tests[tests["reward"].notna()]
    estimates: dict[str, Any] = {"oracle.dominates": baselines.oracle_dominates(oracle, scored)}
    for method in dict.fromkeys(tests["method"]):
        if method != "oracle":
            estimates[f"regret.{method}"] = estimate_difference(tests, "reward", "oracle", method)
    return estimates


def estimate_atoms(rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate what each atom (prompt instruction) changes: an episode with the atom minus the same one without.

    Args:
        rows: Rows of `results.make_rows`.

    Returns:
        atoms.<atom>.effect (accuracy) and .effect_tokens over all kinds of questions, with ".<kind>" behind them on one
        kind, and atoms.idle, the number of atoms that change no episode. Empty where no atom was measured.
    """
    atoms = rows[rows["split"] == ATOMS].drop(columns=["method", "atoms"], errors="ignore")
    if atoms.empty:
        return {}
    atoms = atoms.rename(columns={"style": "atom"})
    effects = atom_effects.estimate_atom_effects(atoms, ("correct", "tokens_out"))
    estimates: dict[str, Any] = {}
    for (atom, kind, column), effect in effects.iterrows():
        atom_key = atom.replace("/", "_")
        quantity = "effect" if column == "correct" else "effect_tokens"
        suffix = "" if kind == "all" else f".{kind}"
        estimates[f"atoms.{atom_key}.{quantity}{suffix}"] = _clip_to_range(effect, column)
    estimates["atoms.idle"] = len(atom_effects.list_idle_atoms(atoms))
    return estimates


def estimate_transfer(rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate how well a policy that ARC trained on one kind of question does on another kind.

    Args:
        rows: Rows of `results.make_rows`; column `only` has the kind that a policy learned from, the source, and
            `group` the kind that it is tested on, the target.

    Returns:
        transfer.<source>.<target>.gap: accuracy on the target of the policy that learned from the source, minus that of
        the policy that learned from the target.
    """
    tests = rows[(rows["split"] == TEST) & (rows["method"] == "arc")]
    own_kind = tests[tests["style"] == OWN]
    other_kind = tests[tests["style"] == OTHER]
    estimates = {}
    for (source, target), transferred in other_kind.groupby(["only", "group"], sort=False):
        learned_there = own_kind[own_kind["group"] == target]
        difference = stats.paired_difference(
            pd.concat([transferred, learned_there]), "correct", {"only": source}, {"only": target}
        ).iloc[0]
        estimates[f"transfer.{source}.{target}.gap"] = _clip_to_range(difference, "correct")
    return estimates


def estimate_workflows(rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate which workflow is best on each kind of question, and how far it is ahead.

    Args:
        rows: Rows of `results.make_rows`.

    Returns:
        workflows.best.<kind>: name of the workflow with the highest accuracy.
        workflows.lead.<kind>: its accuracy minus that of the next best workflow.
        workflows.none_wins_everywhere: verdict on the claim that no workflow is best on all kinds.
        Empty where fewer than two workflows were compared.
    """
    by_workflow = rows[rows["split"] == BY_WORKFLOW]
    if by_workflow["method"].nunique() < 2:
        return {}
    leads = compare_workflows(by_workflow)
    estimates: dict[str, Any] = {"workflows.none_wins_everywhere": none_wins_everywhere(leads)}
    lead_over_next = leads.groupby("group", sort=False).head(1)
    for (kind, best, _), lead in lead_over_next.iterrows():
        estimates[f"workflows.best.{kind}"] = best
        estimates[f"workflows.lead.{kind}"] = _clip_to_range(lead, "correct")
    return estimates


def estimate_workflow_entropy(rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate how many different workflows ARC's policies choose before SFT, as an entropy.

    Args:
        rows: Rows of `results.make_rows`.

    Returns:
        arc_no_sft.workflow_entropy.<kind>: entropy in bits of the workflows that the policy of a kind chooses, mean
        over seeds with a t interval. 0 bits is one workflow for all questions.
    """
    arc = rows[rows["method"] == "arc_no_sft"]
    adaptation = measure_adaptation(arc)  # a row for each seed and kind
    estimates = {}
    for (method, kind), seed_rows in adaptation.groupby(["method", "group"], sort=False):
        interval = stats.t_interval(seed_rows["entropy"].to_numpy(), NONNEGATIVE)
        estimates[f"{method}.workflow_entropy.{kind}"] = pd.Series(
            {"value": interval.value, "ci_low": interval.ci_low, "ci_high": interval.ci_high}
        )
    return estimates


def estimate_errors(rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate for each method which share of its wrong answers its configurations are to blame for.

    Args:
        rows: Rows of `results.make_rows`; column `error` has the kind of error (`error_taxonomy`), "" of right answers.

    Returns:
        errors.<method>.configuration: share of the method's wrong answers.
    """
    tests = select_tests(rows)
    wrong = tests[tests["error"] != ""]
    if wrong.empty:
        return {}
    # Seeds are wrong on different questions, so each seed has items of its own.
    wrong = wrong.assign(
        configuration=(wrong["error"] == "configuration").astype(float),
        item=wrong["seed"].astype(str) + "/" + wrong["item"].astype(str),
    )
    shares = stats.mean(wrong, "configuration", "method")
    return {f"errors.{method}.configuration": share for method, share in shares.iterrows()}


def estimate_larger_agents(rows: pd.DataFrame) -> dict[str, Any]:
    """Estimate how much more accurate ARC's configurations are when larger agents carry them out.

    ARC's policies learned with the agents of the lesson. The same configurations are tested with these agents (style
    OWN) and with agents of a larger model (style LARGER), without further learning.

    Args:
        rows: Rows of `results.make_rows`.

    Returns:
        Accuracy with the larger agents minus with the lesson's: `larger.gap` over all kinds of questions, and
        `larger.<kind>.gap`. Empty where larger agents were not tested.
    """
    tests = rows[(rows["split"] == TEST) & (rows["method"] == "arc")]
    if not {OWN, LARGER} <= set(tests["style"]):
        return {}
    rows_by_metric = {"larger.gap": tests}
    for kind, kind_rows in tests.groupby("group", sort=False):
        rows_by_metric[f"larger.{kind}.gap"] = kind_rows
    estimates = {}
    for metric, metric_rows in rows_by_metric.items():
        difference = stats.paired_difference(
            metric_rows, "correct", {"style": LARGER}, {"style": OWN}
        ).iloc[0]
        estimates[metric] = _clip_to_range(difference, "correct")
    return estimates


def count_training(rows: pd.DataFrame) -> dict[str, Any]:
    """Count how much ARC was trained.

    Args:
        rows: Rows of `results.make_rows`.

    Returns:
        arc.episodes: episodes of the policy that had fewest.
        arc.seeds: number of trainings.
        Empty where ARC was not trained.
    """
    train = rows[(rows["split"] == TRAIN) & (rows["method"] == "arc")]
    if train.empty:
        return {}
    episodes = train.groupby(["seed", "only"])["calls"].sum()
    return {"arc.episodes": int(episodes.min()), "arc.seeds": int(train["seed"].nunique())}


def estimate_difference(
    rows: pd.DataFrame, column: str, treatment: str, reference: str
) -> pd.Series:
    """Estimate the mean of a column under one method minus under another, in pairs of rows.

    A pair has the same question, the same sample of the answer and, of methods that were trained, the same seed.

    Args:
        rows: Rows with method, seed, item, sample and the column.
        column: What is compared, such as "correct" or "reward".
        treatment: Name of the first method.
        reference: Name of the method that is subtracted.

    Returns:
        Mean difference (value) with its interval (ci_low, ci_high), see `stats.paired_difference`.
    """
    compared = _match_seeds(rows[rows["method"].isin([treatment, reference])])
    difference = stats.paired_difference(
        compared, column, {"method": treatment}, {"method": reference}
    ).iloc[0]
    return _clip_to_range(difference, column)


def _match_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """Give two methods the same seeds, so that their rows can be paired.

    Args:
        rows: Rows of two methods. One that was trained has several seeds, any other has one.

    Returns:
        Rows under the seeds that every trained method has; those of a method with one seed are repeated under each of
        them. Where no method was trained, all rows have seed 0.
    """
    seeds_by_method = {}
    for method, method_rows in rows.groupby("method", sort=False):
        seeds_by_method[method] = set(method_rows["seed"])
    seeds_of_trained = [seeds for seeds in seeds_by_method.values() if len(seeds) > 1]
    if not seeds_of_trained:
        return rows.assign(seed=0)

    shared_seeds = sorted(set.intersection(*seeds_of_trained))
    tables = []
    for method, method_rows in rows.groupby("method", sort=False):
        if len(seeds_by_method[method]) == 1:
            tables += [method_rows.assign(seed=seed) for seed in shared_seeds]
        else:
            tables.append(method_rows[method_rows["seed"].isin(shared_seeds)])
    return pd.concat(tables, ignore_index=True)


def _clip_to_range(estimate: pd.Series, column: str) -> pd.Series:
    """Clip the interval of a difference to what is possible: quantities of 0 to 1 differ by 1 at most.

    Args:
        estimate: A difference with ci_low and ci_high.
        column: Name of the quantity, which says its range.

    Returns:
        The estimate; of a quantity that is not between 0 and 1 as it was.
    """
    if range_of_name(column) != UNIT:
        return estimate
    clipped = estimate.copy()
    clipped[["ci_low", "ci_high"]] = np.clip(
        estimate[["ci_low", "ci_high"]].astype(float), -1.0, 1.0
    )
    return clipped
