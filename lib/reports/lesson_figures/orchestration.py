"""Tables and titles of lesson 02: the questions about KO, TO and RO, Table 2, and how often to decide.

Left out: the estimates, which are `lib.orchestration.lesson_estimates` and `lib.orchestration.results`.
"""

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from lib import stats
from lib.config import OrchestrationSettings
from lib.experiment import results_table
from lib.experiment.full_results import FullResults
from lib.experiment.results_table import UNUSABLE_SHARE
from lib.language_models.training import smollm_baseline
from lib.llm.reply_shares import describe_share
from lib.orchestration import lesson_estimates, results
from lib.orchestration.lesson_estimates import DOMAINS, QUESTIONS
from lib.plots.tables import interval_table, listed
from lib.stats.verdicts import FAILS, HOLDS, lacks_answers

ENVIRONMENTS = {"education": "students", "minigrid": "rooms"}
# What the query of a world asks for, in panels of figures.
QUERIES = {"paper": "asked for all objectives", "speed": "asked for mastery"}
# Columns of Table 2 in the lesson: heading -> quantity and decimals.
MAIN_COLUMNS = {
    "steps": ("length", 1),
    "utility": ("utility", 3),
    "hypervolume of the mean": ("hv_mean", 2),
    "hypervolume of the union": ("hv_union", 2),
    "tokens": ("tokens", 0),
    "dollars": ("cost_usd", 4),
}
# What the appendix adds; objectives stand in both domains under their own names.
FURTHER_COLUMNS = {
    "education": {
        "aptitude": ("aptitude", 3),
        "gap": ("gap", 3),
        "performance": ("performance", 3),
        "sparsity": ("sparsity", 3),
    },
    "minigrid": {
        "success": ("success", 2),
        "no lava": ("no_lava", 2),
        "gold": ("gold", 2),
        "sparsity": ("sparsity", 3),
    },
}


# The questions -------------------------------------------------------------------------------------


def tabulate_questions(questions: pd.DataFrame) -> pd.DataFrame:
    """Tabulates the answers to the three questions, a row per environment, world and system.

    Args:
        questions: Estimated differences in utility by domain, world, system and question, with verdict and
            is_significant.

    Returns:
        A column per question with difference, interval and verdict, and the largest minimum detectable effect of the
        row. A star marks a difference that is significant when all are tested together.
    """
    intervals = stats.intervals(questions)
    texts = []
    for interval, verdict, is_significant in zip(
        intervals, questions["verdict"], questions["is_significant"], strict=True
    ):
        star = "*" if is_significant else ""
        texts.append(f"{_format_difference(interval)}{star}, {verdict}")
    answers = pd.Series(texts, index=questions.index).unstack("question")[list(QUESTIONS)]
    answers.columns = [f"minus {question}" for question in QUESTIONS]
    row_levels = ["group", "condition", "system"]
    mde = questions["mde"].groupby(level=row_levels).max()
    table = answers.assign(**{"minimum detectable effect": mde})
    # Rows in the order of the questions; unstacking has sorted them.
    row_order = questions.index.droplevel("question").unique()
    table = table.loc[row_order].rename(ENVIRONMENTS, level="group")
    return table.rename_axis(["environment", "world", "system"])


def _format_difference(interval: stats.Interval) -> str:
    """A difference with its interval, where there are enough runs for one."""
    text = f"{interval.value:+.3f}"
    if stats.has_few_runs(interval.num_runs) or not interval.known:
        return text
    return f"{text} [{interval.ci_low:+.3f}, {interval.ci_high:+.3f}]"


def summarize_questions(questions: pd.DataFrame, model: str) -> str:
    """Writes the title of the figure: how often the answer to a question is yes.

    Args:
        questions: Those that are drawn.
        model: The name of the model as it is shown.

    Returns:
        Such as `KO, TO and RO by lab-orchestrator are clearly above best policy in 9 of 9 rows, random in 6 and
        greedy in 0`; where the model gave too few usable replies, that it is left out.
    """
    reason = explain_left_out(questions)
    if reason:
        return f"KO, TO and RO by {model} are left out: {reason}"
    num_rows = len(questions) // len(QUESTIONS)
    phrases = []
    for question in QUESTIONS:
        verdicts = questions.xs(question, level="question")["verdict"]
        phrases.append(f"{question} in {(verdicts == HOLDS).sum()}")
    phrases[0] += f" of {num_rows} rows"
    return f"KO, TO and RO by {model} are clearly above {listed(phrases)}"


def count_verdicts(questions: pd.DataFrame) -> str:
    """Summarizes in how many comparisons KO, TO and RO are above or below, for the conclusion.

    Args:
        questions: A verdict per comparison and question.

    Returns:
        A clause; or why the comparisons are left out.
    """
    reason = explain_left_out(questions)
    if reason:
        return f"KO, TO and RO are left out: {reason}"
    clauses = []
    for question in QUESTIONS:
        verdicts = questions.xs(question, level="question")["verdict"]
        num_above = (verdicts == HOLDS).sum()
        num_below = (verdicts == FAILS).sum()
        clauses.append(f"{question} (above in {num_above}, below in {num_below})")
    num_rows = len(questions) // len(QUESTIONS)
    return f"of {num_rows} comparisons of KO, TO and RO with {listed(clauses)}"


def explain_left_out(estimates: pd.DataFrame) -> str:
    """Why nothing is concluded from estimates that all rest on too few usable replies; empty for others."""
    if estimates.empty or not lacks_answers(estimates).all():
        return ""
    return describe_share(float(estimates[UNUSABLE_SHARE].max()))


def tabulate_comparison(comparison: pd.DataFrame, questions: pd.DataFrame) -> pd.DataFrame:
    """Tabulates the estimates that the lesson shows of two runs: headroom, and RO minus each baseline.

    Args:
        comparison: Of `compare_estimates`, a row per estimate with its key.
        questions: Estimates by domain, world, system and question, whose worlds are shown.

    Returns:
        Rows of `comparison` by environment, world and estimate, named in words.
    """
    is_displayed = comparison["estimate"].isin(lesson_estimates.list_shown_keys(questions))
    displayed = comparison[is_displayed].copy()
    # Such as gate.education.speed.headroom, or contrast.education.speed.RO_best-policy.utility.
    key_parts = displayed["estimate"].str.split(".", expand=True)
    displayed["environment"] = key_parts[1].map(ENVIRONMENTS)
    displayed["world"] = key_parts[2]
    # "RO_RO-greedy" is RO minus the greedy rule with RO's context.
    contrasts = key_parts[3].str.replace("_RO-", "_").str.replace("-", " ")
    displayed["estimate"] = contrasts.str.replace("_", " minus ")
    return displayed.set_index(["environment", "world", "estimate"])


# Table 2 -------------------------------------------------------------------------------------------


def tabulate_table_2(
    rows: pd.DataFrame,
    settings: OrchestrationSettings,
    models: Sequence[str],
    domains: Sequence[str] = DOMAINS,
    is_complete: bool = False,
) -> pd.DataFrame:
    """Formats the paper's Table 2, a row per method.

    Args:
        rows: Episodes of all methods.
        settings: The section `orchestration` of params.yaml.
        models: Whose KO, TO and RO stand in it.
        domains: education, minigrid or both.
        is_complete: Whether objectives and sparsity stand in it too.

    Returns:
        Columns with headings in words, by environment and method.
    """
    tables = {}
    for domain in domains:
        table_rows = lesson_estimates.select_rows_of_table_2(rows, domain)
        table_rows = results_table.select(table_rows, model=["", *models])
        estimates = results.estimate_table_2(table_rows, domain, settings.episodes)
        columns: Mapping[str, tuple[str, int]] = MAIN_COLUMNS
        if is_complete:
            columns = {**MAIN_COLUMNS, **FURTHER_COLUMNS[domain]}
        methods = lesson_estimates.sort_rows_of_table_2(list(dict.fromkeys(table_rows["method"])))
        tables[ENVIRONMENTS[domain]] = _write_columns(estimates, methods, columns)
    return pd.concat(tables, names=["environment", "method"])


def select_pretrained_rows(full: FullResults) -> pd.DataFrame:
    """The episodes of the pretrained model in a recorded run that is current.

    Args:
        full: The recorded run.

    Returns:
        No rows where the run is outdated, or was made without the model's weights.
    """
    if not full.is_current:
        return pd.DataFrame()
    return results_table.select(full.rows, model=smollm_baseline.NAME)


def _write_columns(
    estimates: pd.DataFrame, methods: Sequence[str], columns: Mapping[str, tuple[str, int]]
) -> pd.DataFrame:
    """Formats estimates as text, a column per quantity.

    Args:
        estimates: Indexed by method and quantity.
        methods: Rows of the table, in order.
        columns: (quantity, decimals) by heading.
    """
    texts = []
    for heading, (quantity, digits) in columns.items():
        intervals = stats.intervals(estimates.xs(quantity, level="quantity"))
        cells = {method: {heading: intervals[method]} for method in methods}
        texts.append(interval_table(cells, digits))
    return pd.concat(texts, axis=1)


# How far and how often -----------------------------------------------------------------------------


def estimate_lengths_by_depth(
    rows: pd.DataFrame, settings: OrchestrationSettings, deciders: Sequence[str]
) -> pd.DataFrame:
    """Estimates the steps of an episode by the depth of the look-ahead, for `plots.line_plot`.

    Args:
        rows: Results table, a row per method, seed and episode.
        settings: The section `orchestration` of params.yaml.
        deciders: A line each: a model, or greedy.

    Returns:
        Estimates, a row each, with columns decider, world, query and depth.
    """
    blocks = []
    for decider in deciders:
        for depth, method in lesson_estimates.name_methods_by_depth(decider, settings).items():
            students = results_table.select(
                rows, group="education", condition=["paper", "speed"], method=method
            )
            lengths = stats.mean(students, "length", "condition")
            block = lengths.rename_axis("world").reset_index()
            blocks.append(block.assign(decider=decider, depth=depth))
    table = pd.concat(blocks, ignore_index=True)
    return table.assign(query=table["world"].map(QUERIES))


def summarize_depths(lengths: pd.DataFrame, decider: str) -> str:
    """Writes the title of the figure: what the longest rollout changes against a single step.

    Args:
        lengths: Mean steps of an episode (value) by decider, query and depth of the look-ahead.
        decider: Whose line it is about.
    """
    of_decider = lengths[lengths["decider"] == decider]
    reason = explain_left_out(of_decider)
    if reason:
        return f"Rollouts of different lengths by {decider} are left out: {reason}"
    values = of_decider.pivot(index="query", columns="depth", values="value")
    longest = values.columns.max()
    changes = values[longest] - values[values.columns.min()]
    phrases = [f"{change:+.1f} ({query})" for query, change in changes.items()]
    return (
        f"With {decider}, {longest} steps ahead instead of 1 change the length by {listed(phrases)}"
    )


def summarize_final_mastery(mastery: pd.DataFrame, label_model: Callable[[str], str]) -> str:
    """Writes the title of the figure: with which model each orchestrator ends at the highest mastery.

    Args:
        mastery: Columns orchestrator, model, seed and mastery, at the last step.
        label_model: From a model's name to its name with the mark of a model without usable replies (`Lesson.label`).
    """
    means = mastery.groupby(["orchestrator", "model"], sort=False)["mastery"].mean()
    phrases = []
    for orchestrator, of_orchestrator in means.groupby("orchestrator", sort=False):
        _, best_model = of_orchestrator.idxmax()
        phrases.append(f"{label_model(best_model)} ({orchestrator})")
    return f"Mastery ends highest with {listed(phrases)}"


def select_decision_intervals(rows: pd.DataFrame, settings: OrchestrationSettings) -> pd.DataFrame:
    """Selects the episodes of KO and RO in the varied worlds, by the interval between decisions.

    Args:
        rows: Results table, a row per method, seed and episode.
        settings: The section `orchestration` of params.yaml.

    Returns:
        The rows with the columns environment, system and every (steps between decisions).
    """
    blocks = []
    for system in ("KO", "RO"):
        for interval, method in lesson_estimates.name_methods_by_interval(system, settings).items():
            block = results_table.select(rows, condition="varied", method=method)
            blocks.append(block.assign(system=system, every=interval))
    selected = pd.concat(blocks)
    return selected.assign(environment=selected["group"].map(ENVIRONMENTS))


def summarize_decision_intervals(utility: pd.DataFrame) -> str:
    """Writes the title of the figure: what deciding at every step gains over deciding once an episode.

    Args:
        utility: Estimates by environment, system and every.
    """
    reason = explain_left_out(utility)
    if reason:
        return f"How often to decide is left out: {reason}"
    values = utility["value"].unstack("every")
    gains = values[values.columns.min()] - values[values.columns.max()]
    phrases = []
    for environment, gain in gains.groupby("environment", sort=False):
        phrases.append(f"{gain.min():+.2f} to {gain.max():+.2f} for {environment}")
    return f"Deciding at every step instead of once an episode: {listed(phrases)}"


# The appendix --------------------------------------------------------------------------------------


def tabulate_further_contrasts(contrasts: pd.DataFrame) -> pd.DataFrame:
    """Tabulates the contrasts that belong to none of the three questions, a row per environment and world.

    Args:
        contrasts: Estimated differences in utility, with verdicts, by domain, world and contrast such as
            "RO_best-policy".
    """
    asked = lesson_estimates.list_contrasts_of_questions()
    is_further = ~contrasts.index.get_level_values("contrast").isin(asked)
    further = contrasts[is_further]
    texts = [
        f"{_format_difference(interval)}, {verdict}"
        for interval, verdict in zip(stats.intervals(further), further["verdict"], strict=True)
    ]
    names = further.index.get_level_values("contrast").unique()
    table = pd.Series(texts, index=further.index).unstack("contrast")[list(names)]
    table.columns = [name.replace("_", " minus ") for name in names]
    worlds = further.index.droplevel("contrast").unique()
    table = table.loc[worlds].rename(ENVIRONMENTS, level="group")
    return table.rename_axis(["environment", "world"])


def summarize_choices(rows: pd.DataFrame, method: str) -> str:
    """Whom a method picks most often, or why that is not known, for the title of a figure.

    Args:
        rows: Episodes of one world.
        method: One of its methods.
    """
    unusable_share = results.list_unusable_shares(rows).get(method)
    if unusable_share:
        return f"the choices of {method} are left out: {describe_share(unusable_share)}"
    most_chosen = share_choices(rows).loc[method].mean().idxmax()
    return f"{method} picks {most_chosen} more often than any other policy"


def summarize_memory(memory: pd.DataFrame, model: str) -> str:
    """Summarizes what the loss of short-term memory changes, for the conclusion of the appendix.

    Args:
        memory: Estimates by system, with `verdict`.
        model: The name of the model as it is shown.
    """
    reason = explain_left_out(memory)
    if reason:
        return f"What short-term memory is worth to {model} is left out: {reason}."
    num_changed = memory["verdict"].isin([HOLDS, FAILS]).sum()
    return (
        f"Taking short-term memory away from {model} clearly changes the utility of "
        f"{num_changed} of {len(memory)} orchestrators with the paper's students."
    )


def share_choices(rows: pd.DataFrame, width: int = 5) -> pd.DataFrame:
    """Computes how often each policy acts, by method and step, for `plots.stacked_shares`.

    Args:
        rows: Episodes of one environment and world.
        width: Steps that are counted together.

    Returns:
        Shares of the decisions, by method and first step.
    """
    choices = rows[["method", "seed", "item", "chosen"]].explode("chosen")
    step = choices.groupby(["method", "seed", "item"]).cumcount()
    first_step = (step // width * width).rename("step")
    return pd.crosstab([choices["method"], first_step], choices["chosen"], normalize="index")
