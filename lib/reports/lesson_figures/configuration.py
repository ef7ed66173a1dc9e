"""Tables and figures of lesson 07 and its appendix: differences, training, errors, transfer, encoders, rewards."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure

from lib import plots, stats
from lib.agent_configuration import (
    atoms,
    embeddings,
    encoders,
    estimates,
    recorded_vectors,
    results,
    rewards,
    synthetic_benchmark,
)
from lib.agent_configuration import synthetic_estimates as synthetic
from lib.agent_configuration.action_space import WORKFLOWS
from lib.agent_configuration.error_taxonomy import GROUPS
from lib.agent_configuration.questions import KINDS, questions
from lib.agent_configuration.variants import NO_SFT
from lib.config import ROOT, ConfigurationSettings, Params
from lib.experiment import artifacts, results_table
from lib.language_models import checkpoints
from lib.plots.tables import with_interval

# What the table of theorem 3.2 calls the quantities of `theorem_3_2.checks`.
THEOREM_LABELS = {
    "tau": "tau",
    "after": "reward of the elite as it was",
    "fresh": "reward when tried once more",
    "margin": "that minus tau",
    "outside": "probability outside the elite",
}
# What tables and figures call encoders, and the rows that encoders are compared with.
ENCODER_LABELS = {
    "hashing": "hashed words",
    "tfidf": "word weights (tf-idf)",
    embeddings.FEATURES: "five plain features",
    embeddings.COMMONEST: "most frequent label",
}
# What the table of encoders calls the scores of `embeddings.compare_encoders`.
ENCODER_SCORE_LABELS = {
    "numbers": "length of a vector",
    "ari": "clusters match kinds (adjusted Rand index)",
    "classification": "kind of question",
    "complexity": "number of steps",
    "decision": "best configuration",
}
# Of the figure of accuracy against cost; variants of ARC would lie on one another.
TRADEOFF_METHODS = (
    "base", "random", "grid", "best_constant", "by_kind", "gepa", "bootstrap", "conversation", "bandit", "arc",
    "oracle",
)  # fmt: skip
# Weights of all-MiniLM-L6-v2, whose vectors are recorded.
_RECORDED_WEIGHTS = {"recorded:all-MiniLM-L6-v2": 22_713_216}
_MILLION = 1e6
_NEITHER_RIGHT_NOR_WRONG = (1.5, 3.5)  # a right answer alone has 5
_FEWEST_REWARDS = 5  # of a violin; fewer are drawn as points


# The lesson -----------------------------------------------------------------------------------------


def draw_synthetic_regret(mean_regret: pd.DataFrame) -> Figure:
    """Draws the reward that policies lack to the optimum, by episodes, and that of the best constant as a level.

    Args:
        mean_regret: Mean regret with its interval, by method and step (episodes so far).
    """
    variants = [variant.name for variant in synthetic_benchmark.VARIANTS]
    regret = results_table.select(mean_regret.reset_index(), method=variants)
    level = results_table.select(mean_regret.reset_index(), method=synthetic.BEST_CONSTANT)
    # The constant learns nothing: a level line over all steps.
    levels = [level.assign(step=step) for step in sorted(set(regret["step"]))]
    last = regret[regret["step"] == regret["step"].max()].set_index("method")["value"]
    constant_regret = float(level["value"].iloc[0])
    arc = synthetic.ARC.name
    return plots.line_plot(
        pd.concat([regret, *levels]),
        "step",
        "value",
        "method",
        f"At the end {arc} lacks {last[arc]:.2f} of reward to the optimum, the best constant "
        f"{constant_regret:.2f}",
        "episodes",
        "regret: optimum minus policy, in reward",
        seed=None,
        dashed=[synthetic.BEST_CONSTANT],
        note="By likeliest choices. The best constant needs no episode.",
    )


def tabulate_synthetic_differences(
    end: pd.DataFrame, method: str = synthetic.ARC.name
) -> pd.DataFrame:
    """Tabulates ARC minus each baseline in simulation, by greedy and by sampled choices, with a verdict each.

    Args:
        end: Rows of the synthetic environment after the last episode.
        method: ARC, with the discount or without.

    Returns:
        A row for each baseline that is compared. The best constant samples nothing, so that its cells for sampled
        choices are empty.
    """
    compared = synthetic.compare_with_baselines(end, [method])
    compared = compared.droplevel("method")
    columns = {}
    for choices in synthetic.COLUMNS:
        of_choices = compared.loc[choices]
        columns[choices] = stats.intervals(of_choices)
        columns[f"verdict, {choices}"] = stats.verdict(of_choices, synthetic.MARGIN)
    table = pd.DataFrame(columns)
    in_order = [baseline for baseline in synthetic.BASELINES if baseline in table.index]
    return table.loc[in_order].fillna("").rename_axis(f"{method} minus")


def draw_gain_of_choosing(
    interaction: float, headroom: pd.DataFrame, episodes: pd.DataFrame, passed: pd.Series
) -> Figure:
    """Draws what choosing by the kind of question can gain, and how many episodes a policy needs for it, by noise.

    Args:
        interaction: How much the effects of a configuration depend on the kind of question.
        headroom: Reward of the optimum minus the best constant, with its interval, by noise.
        episodes: Training episodes until the policy stays above the best constant, with an interval, by noise.
        passed: For each trained policy 1 where it ends above the best constant, else 0.
    """
    mean_by_measure = {
        "headroom over the best constant, in reward": headroom,
        "episodes until above the best constant": episodes,
    }
    # A row for each level of noise, a panel for each measure.
    table = pd.concat(mean_by_measure, names=["measure"]).swaplevel()
    table = table.rename(index="noise {:g}".format, level="noise")
    title = (
        f"Interaction {interaction:g}: choosing by the kind of question can gain "
        f"{headroom['value'].min():.2f} to {headroom['value'].max():.2f} of reward, and "
        f"{passed.sum():.0f} of {len(passed)} policies end above the best constant"
    )
    note = (
        "A policy that never stays above the best constant counts with the length of the training."
    )
    return plots.forest_plot(table, title, note=note)


def label_methods(tests: pd.DataFrame, settings: Params) -> dict[str, str]:
    """What tables and figures call each method of the test rows.

    Args:
        tests: Test rows.
        settings: Settings of the run; they say which methods are scripted.
    """
    return {method: results.label(method, settings) for method in tests["method"].unique()}


def draw_rewards(mean_rewards: pd.DataFrame, labels: Mapping[str, str]) -> Figure:
    """Draws the mean reward of the most important methods on test questions, from random choices to the oracle.

    Args:
        mean_rewards: Mean reward with its interval, by method.
        labels: What figures call each method.
    """
    methods = ["random", "best_constant", "by_kind", "bandit", "arc", "oracle"]
    levels = mean_rewards.reindex([method for method in methods if method in mean_rewards.index])
    named = [
        f"{labels[method]} {levels.loc[method, 'value']:.2f}" for method in levels.index[-4:-1]
    ]
    roles = {labels[method]: results.find_role(method) for method in levels.index}
    title = f"Mean reward: {', '.join(named)}"
    return plots.forest_plot(
        levels.rename(index=labels), title, "reward on test questions", roles=roles
    )


def draw_tradeoff(cost: pd.DataFrame, accuracy: pd.DataFrame, labels: Mapping[str, str]) -> Figure:
    """Draws accuracy against cost (Figure 4), and what mixtures of untrained configurations reach.

    Args:
        cost: Mean cost of 1,000 questions in US dollars, with its interval, by method.
        accuracy: Share of right answers with its interval, by method. Methods outside TRADEOFF_METHODS are left out.
        labels: What figures call each method.
    """
    cost = cost[cost.index.isin(TRADEOFF_METHODS)]
    accuracy = accuracy[accuracy.index.isin(TRADEOFF_METHODS)]
    roles = {method: results.find_role(method) for method in accuracy.index}
    constants = [labels[method] for method, role in roles.items() if role == "constant"]
    arc, by_kind = accuracy["value"]["arc"], accuracy["value"]["by_kind"]
    title = (
        f"ARC is right on {arc:.2f} for ${cost['value']['arc']:.3f} per 1,000 questions, "
        f"the best constant per kind on {by_kind:.2f} for ${cost['value']['by_kind']:.3f}"
    )
    return plots.tradeoff_plot(
        cost.rename(index=labels),
        accuracy.rename(index=labels),
        title,
        "$ per 1,000 questions",
        "share of right answers",
        line="mixtures",
        through=constants,
        roles={labels[method]: role for method, role in roles.items()},
    )


# The appendix: reward and synthetic environment ----------------------------------------------------------


def tabulate_reward_facts(facts: rewards.RewardFacts) -> pd.DataFrame:
    """Tabulates the rewards of three episodes that follow from eq. 3 and 4.

    Args:
        facts: The rewards of the three episodes.
    """
    rewards_by_episode = {
        "right, one call, no tools": facts.right_without_tools,
        "right, all eight tools allocated and none used": facts.right_with_idle_tools,
        f"wrong, {facts.most_tool_calls} tool calls": facts.wrong_with_most_tool_calls,
    }
    return pd.DataFrame({"reward": rewards_by_episode}).rename_axis("episode")


def tabulate_theorem_on_networks(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulates what theorem 3.2 promises of a perfect imitation, as measured on trained networks.

    Args:
        rows: Rows of the synthetic environment after one number of episodes.

    Returns:
        A row for each imitation: reward minus tau, and share of choices outside the elite, with intervals.
    """
    estimates_by_quantity = synthetic.estimate_floor(rows)
    columns = {
        quantity: stats.intervals(of_quantity)
        for quantity, of_quantity in estimates_by_quantity.items()
    }
    return pd.DataFrame(columns).rename_axis("imitation")


# The appendix: questions and instructions -----------------------------------------------------------------


def tabulate_example_questions() -> pd.DataFrame:
    """Tabulates one test question of each kind, with its answer and the benchmark that the kind stands for."""
    examples = []
    for kind in KINDS:
        (item,) = questions(kind.name, "test", 1)
        examples.append(
            {
                "kind": kind.name,
                "stands in for": kind.paper,
                "for example": item.prompt,
                "answer": item.reference,
            }
        )
    return pd.DataFrame(examples)


def select_first_policies(tests: pd.DataFrame, model: str) -> pd.DataFrame:
    """Selects test episodes of the policies of ARC's first training, each on the kind of question it learned from.

    Args:
        tests: Results on test questions, with `only`, the kind of question that the policy was trained on.
        model: Model of the agents.

    Returns:
        The rows, whose `item` is the question itself.
    """
    of_first_training = (tests["method"] == "arc") & (tests["seed"] == 0)
    on_learned_kind = (tests["only"] == tests["group"]) & (tests["model"] == model)
    selected = tests[of_first_training & on_learned_kind]
    return selected.assign(item=selected["prompt"])


def tabulate_instruction_families(settings: ConfigurationSettings) -> pd.DataFrame:
    """Tabulates the families of the instruction library: size, diversity and specificity (Table 6).

    Args:
        settings: Settings of the lesson; they name the library and the encoder of the policies.
    """
    library = atoms.read_library(ROOT / settings.atoms)
    encode = encoders.make_encoder(settings.encoder)
    table = pd.DataFrame(atoms.measure_families(library, encode)).T
    return table.astype({"atoms": int}).rename_axis("family")


# The appendix: training -----------------------------------------------------------------------------


def tabulate_elites(refined: pd.DataFrame) -> pd.DataFrame:
    """Tabulates the episodes that ARC's policies imitated, by kind of question, as means over seeds.

    Args:
        refined: What imitation started from, by method and kind: tau, size of the elite, mean reward.

    Returns:
        A row for each kind: the threshold tau, the episodes of the elite, and their mean reward.
    """
    of_sft = refined[(refined["method"] == "arc") & (refined["how"] == "sft")]
    means = of_sft.groupby("only", sort=False)[["tau", "elite", "reward"]].mean()
    columns = {"elite": "episodes in the elite", "reward": "their mean reward"}
    return means.rename(columns=columns).rename_axis("kind")


def tabulate_theorem(checks: pd.DataFrame) -> pd.DataFrame:
    """Tabulates what theorem 3.2 promises by the noise of the rewards, as means over samples of episodes.

    Args:
        checks: A row per random buffer of episodes: noise of the rewards, margin over tau, and so on.

    Returns:
        A row for each noise, with intervals; the columns are those of `THEOREM_LABELS`.
    """
    columns = {}
    for quantity, label in THEOREM_LABELS.items():
        columns[label] = stats.intervals(stats.mean(checks, quantity, "noise"))
    return pd.DataFrame(columns)


def collect_theorem_metrics(checks: pd.DataFrame) -> dict[str, pd.Series]:
    """Collects the two promises of theorem 3.2 as metrics `theorem.noise_PERCENT.margin` and `.outside`.

    Args:
        checks: A row per random buffer of episodes: noise of the rewards, margin over tau, probability outside the
            elite.
    """
    metrics = {}
    for quantity in ("margin", "outside"):
        for noise, estimate in stats.mean(checks, quantity, "noise").iterrows():
            metrics[f"theorem.noise_{100 * noise:.0f}.{quantity}"] = estimate
    return metrics


def draw_training(rows: pd.DataFrame) -> Figure:
    """Draws reward, accuracy and use of tools of ARC's policies while they learn, a line for each kind (Figures 9, 10).

    Args:
        rows: The results table; `calls` are the episodes of an update.
    """
    train = results_table.select(rows, split=results.TRAIN, method="arc")
    panels = {"reward": "reward", "correct": "share of right answers", "used": "calls of tools"}
    columns = ["seed", "group", "step", *panels]
    # Episodes so far: updates times the episodes of each.
    measured = train[columns].assign(episodes=(train["step"] + 1) * train["calls"])
    measured = measured.melt(["seed", "group", "episodes"], list(panels), "panel")
    measured["panel"] = measured["panel"].map(panels)
    last = measured["episodes"].max()
    # The last fifth, as the mean of a single update is noisy.
    is_late = measured["episodes"] > 0.8 * last
    late = measured[is_late & (measured["panel"] == "share of right answers")]
    accuracy = late.groupby("group", sort=False)["value"].mean()
    at_end = ", ".join(f"{kind} {value:.2f}" for kind, value in accuracy.items())
    return plots.line_plot(
        measured,
        "episodes",
        "value",
        "group",
        f"Right in the last fifth of training: {at_end}",
        "episodes",
        "mean of sampled choices",
        panels="panel",
        bins=20,
        same_scale=False,
    )


def draw_accuracy_by_workflow(rows: pd.DataFrame, verdict: str) -> Figure:
    """Draws the accuracy of each workflow at its best on each kind of question (Figure 12).

    Args:
        rows: The results table.
        verdict: On the claim that no workflow is best for every kind.
    """
    by_workflow = results_table.select(rows, split=results.BY_WORKFLOW)
    accuracy = stats.mean(by_workflow, "correct", ["method", "group"])["value"].unstack("group")
    accuracy = accuracy.reindex(
        index=[name for name in WORKFLOWS if name in accuracy.index],
        columns=[kind.name for kind in KINDS if kind.name in accuracy],
    )
    best = ", ".join(f"{kind} {name}" for kind, name in accuracy.idxmax().items())
    title = f"Most often right: {best}. That none is best everywhere: {verdict}"
    return plots.heatmap(accuracy, title, "accuracy", "kind of question", "workflow")


def draw_workflow_shares(rows: pd.DataFrame) -> Figure:
    """Draws which workflows ARC's policies choose in the course of training, a panel for each kind (Figure 11).

    Args:
        rows: Results table.
    """
    shares = results_table.select(rows, split=results.SHARES)
    counts = shares.pivot_table(
        index=["group", "step"], columns="workflow", values="calls", aggfunc="sum", fill_value=0
    )
    counts = counts.reindex(columns=[name for name in WORKFLOWS if name in counts])
    table = counts.div(counts.sum(axis=1), axis=0)
    last = table.xs(table.index.get_level_values("step").max(), level="step").idxmax(axis=1)
    chosen = ", ".join(f"{kind} {workflow}" for kind, workflow in last.items())
    return plots.stacked_shares(
        table,
        f"Most chosen at the end of training: {chosen}",
        f"part of the training, of {results.NUM_PARTS}",
        "share of episodes, %",
        panels="group",
        note="All seeds together; choices are sampled.",
    )


@plots.theme()
def draw_rewards_by_workflow(tried: pd.DataFrame) -> Figure:
    """Draws how the rewards of single episodes are distributed, by workflow and kind (Figure 13).

    Args:
        tried: Results of fixed configurations, with split, set, group (kind of question), workflow and reward.
    """
    episodes = tried[(tried["split"] == "test") & tried["set"].isin(["grid", "sampled"])]
    is_between = episodes["reward"].between(*_NEITHER_RIGHT_NOR_WRONG)
    low, high = _NEITHER_RIGHT_NOR_WRONG
    title = (
        f"Right or wrong decides: {1 - is_between.mean():.0%} of single episodes have a reward below "
        f"{low:g} or above {high:g}"
    )
    note = "Width, or points: episodes with this reward. Configurations were declared, not learned."
    figure = plots.new_figure(title, plots.MAX_WIDTH, 6.0, note)
    workflows = [name for name in WORKFLOWS if name in set(episodes["workflow"])]
    kinds = [kind.name for kind in KINDS if kind.name in set(episodes["group"])]
    panels = plots.add_panels(figure, len(kinds), sharex=True, sharey=True)
    for axes, kind in zip(panels, kinds, strict=True):
        of_kind = episodes[episodes["group"] == kind]
        draw = (
            sns.violinplot
            if of_kind["workflow"].value_counts().min() >= _FEWEST_REWARDS
            else sns.stripplot
        )
        options = {"cut": 0, "density_norm": "width", "inner": None, "linewidth": 0.6}
        if draw is sns.stripplot:
            # Without jitter, which seaborn draws from a generator without a seed.
            options = {"size": 3, "alpha": 0.5, "jitter": False}
        draw(
            of_kind,
            x="reward",
            y="workflow",
            order=workflows,
            ax=axes,
            color=plots.colour("ARC"),
            **options,
        )
        axes.set_title(kind)
        axes.set_ylabel("")
    medians = episodes.groupby(["group", "workflow"])["reward"].median()
    figure.data = medians.rename("median reward").reset_index()
    descriptions = [
        f"{kind}: highest median {medians[kind].max():.1f} ({medians[kind].idxmax()})"
        for kind in kinds
    ]
    figure.alt_text = plots.join_descriptions(title, descriptions)
    return figure


# The appendix: who did how --------------------------------------------------------------------------


def tabulate_methods(
    rows: pd.DataFrame, metrics: Mapping[str, Any], labels: Mapping[str, str]
) -> pd.DataFrame:
    """Tabulates the accuracy of every method by kind of question, and its regret in reward (Table 1 of ARC).

    Args:
        rows: Results table.
        metrics: With `regret.METHOD`, the oracle's reward minus that of the method.
        labels: Names of methods as shown.
    """
    tests = estimates.select_tests(rows)
    accuracy = stats.mean(tests, "correct", ["method", "group"])["value"]
    by_kind = accuracy.unstack("group", sort=False)
    by_kind["all"] = stats.mean(tests, "correct", "method")["value"]
    regret = {}
    for method in by_kind.index:
        estimate = metrics.get(f"regret.{method}")
        regret[method] = 0.0 if estimate is None else estimate["value"]
    table = by_kind.assign(regret=pd.Series(regret)).astype(float).round(2)
    return table.sort_values("regret", kind="stable").rename(index=labels)


def tabulate_adaptation(rows: pd.DataFrame, labels: Mapping[str, str]) -> pd.DataFrame:
    """Table 2 of ARC: how many workflows each method chooses on a kind of question, and how evenly; means of kinds."""
    measured = results.measure_adaptation(rows)
    means = measured.groupby("method", sort=False)[["workflows", "entropy", "gini"]].mean()
    return means.round(2).rename(index=labels)


def tabulate_objectives(rows: pd.DataFrame, labels: Mapping[str, str]) -> pd.DataFrame:
    """Tabulates accuracy by kind after PPO or GRPO, and after SFT or DPO (Table 4 of ARC).

    Args:
        rows: Results table.
        labels: Names of methods as shown.
    """
    methods = ["arc_no_sft", "grpo_no_sft", "arc", "grpo", "arc_dpo"]
    tests = results_table.select(estimates.select_tests(rows), method=methods)
    accuracy = stats.mean(tests, "correct", ["method", "group"])["value"].unstack(
        "group", sort=False
    )
    accuracy["all"] = stats.mean(tests, "correct", "method")["value"]
    in_order = [method for method in methods if method in accuracy.index]
    return accuracy.loc[in_order].astype(float).round(2).rename(index=labels)


def tabulate_transfer_gaps(rows: pd.DataFrame) -> pd.DataFrame:
    """Accuracy on one kind of question of what learned on another, minus that of what learned there.

    Args:
        rows: The results table.

    Returns:
        Estimates by pair of kinds, such as "chain to hops".
    """
    gaps = {}
    for key, gap in estimates.estimate_transfer(rows).items():
        source, target = _read_kinds(key)
        gaps[f"{source} to {target}"] = gap
    return pd.DataFrame(gaps).T.infer_objects()


def _read_kinds(key: str) -> tuple[str, str]:
    """The kind that was learned and the kind of the test, from a key such as transfer.chain.hops.gap."""
    _, source, target, _ = key.split(".")
    return source, target


def tabulate_transfer(rows: pd.DataFrame, names: Sequence[str]) -> pd.DataFrame:
    """Table 3 of ARC: accuracy of a policy at home and on another kind, and how similar the kinds' questions are.

    Args:
        rows: The results table.
        names: Names of encoders, which measure the similarity.
    """
    arc = results_table.select(rows, split=results.TEST, method="arc")
    home = arc[arc["style"] == results.OWN].groupby("group")["correct"].mean()
    gaps = estimates.estimate_transfer(rows)
    kinds = [kind.name for kind in KINDS]
    similarities = {name: embeddings.measure_similarity(kinds, name) for name in names}
    table = {}
    for key, gap in gaps.items():
        source, target = _read_kinds(key)
        entry = {
            "at home": home[source],
            "on the other kind": home[target] + gap["value"],
            "minus the policy that learned there": with_interval(
                *gap[["value", "ci_low", "ci_high"]].astype(float)
            ),
        }
        for name, similarity in similarities.items():
            entry[f"similarity, {label_encoder(name)}"] = round(
                float(similarity.loc[source, target]), 2
            )
        table[f"{source} to {target}"] = entry
    return pd.DataFrame(table).T.rename_axis("learned from, tested on")


def draw_larger_agents(metrics: Mapping[str, Any]) -> Figure:
    """Draws how larger agents change the accuracy of ARC's choices, by kind (Figure 5).

    Args:
        metrics: With `larger.KIND.gap`, accuracy with larger agents minus with its own.
    """
    gaps = {}
    for key, estimate in metrics.items():
        if key.startswith("larger."):
            kind = key.removeprefix("larger.").removesuffix("gap").strip(".")
            gaps[kind or "all kinds"] = estimate
    gaps = pd.DataFrame(gaps).T.infer_objects()
    change = gaps.loc["all kinds", "value"]
    title = f"With the larger agents the accuracy of ARC's choices changes by {change:+.2f}"
    return plots.forest_plot(
        gaps, title, "accuracy with larger agents minus with its own", line=0.0
    )


def draw_errors(rows: pd.DataFrame, labels: Mapping[str, str]) -> Figure:
    """Draws why wrong answers were wrong, by the rules of appendix I, a bar for each method (Figure 6).

    Args:
        rows: The results table. Policies before SFT are left out of the figure.
        labels: What figures call each method.
    """
    wrong = _select_errors(rows)
    wrong = wrong[~wrong["method"].str.endswith(NO_SFT)]
    most_frequent = {
        method: of_method["error_group"].mode()[0] for method, of_method in wrong.groupby("method")
    }
    named = [
        f"{labels[method]} {most_frequent[method]}"
        for method in ("arc", "by_kind", "random")
        if method in most_frequent
    ]
    title = f"Most frequent kind of error: {', '.join(named)}"
    return _draw_shares_of_errors(wrong, wrong["method"].map(labels), title)


def draw_arc_errors_by_kind(rows: pd.DataFrame) -> Figure:
    """Draws why ARC's wrong answers were wrong, a bar for each kind of question."""
    wrong = _select_errors(rows)
    wrong = wrong[wrong["method"] == "arc"]
    share = float((wrong["error"] == "configuration").mean()) if len(wrong) else 0.0
    title = f"{share:.0%} of ARC's wrong answers are the configuration's, by the rules"
    return _draw_shares_of_errors(wrong, wrong["group"], title)


def _select_errors(rows: pd.DataFrame) -> pd.DataFrame:
    tests = estimates.select_tests(rows)
    wrong = tests[tests["error"] != ""]
    return wrong.assign(error_group=wrong["error"].map(GROUPS))


def _draw_shares_of_errors(wrong: pd.DataFrame, bars: pd.Series, title: str) -> Figure:
    """Stacked shares of the kinds of errors.

    Args:
        wrong: Rows of wrong answers.
        bars: The bar of each row.
        title: The message.
    """
    shares = pd.crosstab(bars, wrong["error_group"], normalize="index")
    shares = shares.loc[list(dict.fromkeys(bars))]
    counts = {str(bar): f"{count} wrong" for bar, count in bars.value_counts().items()}
    return plots.stacked_shares(
        shares, title, "share of wrong answers, %", beside=counts, note="All seeds together."
    )


# The appendix: encoders -----------------------------------------------------------------------------


def count_encoder_weights(name: str) -> int:
    """Counts the weights that an encoder uses to encode a question, which its running time depends on.

    Args:
        name: Such as "lab:MODEL" or "tfidf".

    Returns:
        The number; 0 for an encoder without weights.
    """
    family, _, model = name.partition(":")
    if name in _RECORDED_WEIGHTS:
        return _RECORDED_WEIGHTS[name]
    if family == "lab":
        tensors = artifacts.read_tensors(checkpoints.MODELS / model / "model.safetensors")
        return sum(array.size for array in tensors.values())
    if name == "tfidf":
        return len(encoders.list_word_weights(encoders.make_encoder(name)))
    return 0


def label_encoder(name: str) -> str:
    """What tables and figures call an encoder.

    Args:
        name: Such as "lab:MODEL" or "tfidf".
    """
    family, _, model = name.partition(":")
    if family == "lab":
        return f"{model} (lesson 03)"
    if model:
        return model  # a pretrained one is known by its name
    return ENCODER_LABELS.get(name, name)


def tabulate_encoders(scores: pd.DataFrame) -> pd.DataFrame:
    """Tabulates the scores of encoders under names in words.

    Args:
        scores: What `embeddings.compare_encoders` returned.

    Returns:
        The same rows and columns; the names are those of `label_encoder` and `ENCODER_SCORE_LABELS`.
    """
    return scores.rename(index=label_encoder, columns=ENCODER_SCORE_LABELS)


def draw_encoders(scores: pd.DataFrame) -> Figure:
    """Draws the overall score of each encoder against its size (Figure 8 has running time in place of size).

    Args:
        scores: A row per encoder, with `overall`, the mean of its scores in appendix D.
    """
    sizes = {}
    overall = {}
    for name, row in scores.iterrows():
        label = label_encoder(name)
        sizes[label] = stats.Interval(count_encoder_weights(name) / _MILLION, np.nan, np.nan)
        overall[label] = stats.Interval(float(row["overall"]), np.nan, np.nan)
    best = label_encoder(scores["overall"].idxmax())
    return plots.tradeoff_plot(
        _stack(sizes),
        _stack(overall),
        f"{best} has the highest overall score, {scores['overall'].max():.2f}",
        "million weights that read a question",
        "overall score of appendix D",
    )


def _stack(intervals: Mapping[str, stats.Interval]) -> pd.DataFrame:
    rows = {
        name: {"value": interval.value, "ci_low": interval.ci_low, "ci_high": interval.ci_high}
        for name, interval in intervals.items()
    }
    return pd.DataFrame(rows).T.rename_axis("encoder")


def list_encoders(names: Sequence[str], questions: Sequence[str]) -> list[str]:
    """Lists the encoders that can read questions here; says which of them cannot.

    Args:
        names: Names of encoders, as of `encoders.make_encoder`.
        questions: Texts. A recorded encoder has the vectors of some questions only.
    """
    present = []
    for name in names:
        family, _, model = name.partition(":")
        if family != "recorded" or recorded_vectors.has_vectors(model, questions):
            present.append(name)
        else:
            print(f"Left out: {model}, whose vectors of these questions are not recorded.")
    return present


def choose_similarity_encoders(settings: ConfigurationSettings) -> list[str]:
    """Chooses two encoders that measure the similarity of kinds of questions: the policies' own, and the last
    installed one.

    Args:
        settings: Settings of the lesson.
    """
    compared_questions = []
    for kind in KINDS:
        compared_questions += embeddings.list_compared_questions(kind.name)
    names = [settings.encoder, *list_encoders(settings.encoders, compared_questions)[-1:]]
    return list(dict.fromkeys(names))  # once, where they are the same


def collect_encoder_scores(scores: pd.DataFrame) -> dict[str, float]:
    """Collects the overall score of each encoder as metrics `encoders.NAME.overall`.

    Args:
        scores: A row per encoder, with `overall`, the mean of its scores in appendix D.
    """
    metrics = {}
    for name, overall in scores["overall"].items():
        metrics[f"encoders.{make_key(name)}.overall"] = float(overall)
    return metrics


def make_key(name: str) -> str:
    """A part of a metric's key from the name of an encoder."""
    return re.sub(r"[^A-Za-z0-9_+-]+", "_", name)


def collect_atom_effects(metrics: Mapping[str, Any]) -> pd.DataFrame:
    """Collects the effect of each instruction on accuracy, over all kinds of questions.

    Args:
        metrics: All estimates of the lesson by metric key, such as "atoms.KIND_AGENT_NAME.effect".

    Returns:
        Estimates by instruction, such as "reasoner: stepwise".
    """
    effects = {}
    for key, estimate in metrics.items():
        if key.startswith("atoms.") and key.endswith(".effect"):
            _, agent, name = key.removesuffix(".effect").split("_", 2)
            effects[f"{agent}: {name}"] = estimate
    return pd.DataFrame(effects).T.infer_objects()


def summarize_atoms(effects: pd.DataFrame, num_idle: int) -> str:
    """Writes the title of the figure: how many instructions have a clear effect, and how many change no episode.

    Args:
        effects: Estimates by instruction.
        num_idle: Instructions with which every episode is as it is without.
    """
    num_higher = int((effects["ci_low"] > 0).sum())
    num_lower = int((effects["ci_high"] < 0).sum())
    return (
        f"Of {len(effects)} instructions {num_higher} clearly raise accuracy, {num_lower} lower it, "
        f"and {num_idle} change nothing"
    )
