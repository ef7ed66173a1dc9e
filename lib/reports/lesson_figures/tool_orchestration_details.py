"""Tables and titles of the appendix of lesson 06: the earlier experiment.

A tool menu and its user, the sandbox, an office task and its criteria, one question before and after training, and
what methods score on test questions, on the preference benchmark, under new conditions and for all users of a grid.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from lib import stats
from lib.config import Params, ToolSettings
from lib.experiment import results_table
from lib.language_models.tokenizer import encode
from lib.reports.lesson_figures import spoken
from lib.tasks.synthesis import Call, Task, verify_trajectory
from lib.tool_orchestration import (
    appendix_estimates,
    episode_specs,
    rule_baselines,
    synthetic_evaluation,
    test_sets,
    tool_menu,
)
from lib.tool_orchestration import results as office_results
from lib.tool_orchestration.appendix_estimates import START_LABEL
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.experiment import START, ToolOrchestrationResults
from lib.tool_orchestration.results import LABELS, PAPER, SIGN
from lib.tool_orchestration.rewards import MICRO_USD_PER_USD, MS_PER_SECOND
from lib.tool_orchestration.tool_environment import OwnTokenPrice
from lib.tool_orchestration.tool_menu import Offer
from lib.tools.python import python
from lib.tools.sandbox import Sandbox

FAMILIES = {"chain": "chains", "big": "big numbers", "facts": "facts"}
CODES = (
    "print(sum(range(10)))",
    "open('/etc/passwd').read()",
    "import os; os.system('ls')",
    "while True: pass",
    "3 +",
)
MEASURES = {"correct": "accuracy", "micro_usd": "$ per million", "ms": "ms"}
OBJECTIVE_COLUMNS = {"accuracy": "correct", "cost": "micro_usd", "latency": "ms"}
CONDITIONS = {
    "test": "test questions",
    "unseen_tools": "unseen tools",
    "unseen_prices": "unseen prices",
    "outage": "an outage",
}


def make_test_assignments(
    results: ToolOrchestrationResults, settings: ToolSettings
) -> list[Assignment]:
    """The assignments of the test set `test` at list prices, in the order of its items."""
    return test_sets.make_test_set("test", results.offers, results.offers, settings)


def choose_example(results: ToolOrchestrationResults, settings: ToolSettings) -> Assignment:
    """Chooses a question with as long a menu as any, and a user who prefers tools by name, if there is one."""

    def rank_example(assignment: Assignment) -> tuple:
        preference = assignment.preference
        names_tools = bool(preference.tools) and not preference.confidential
        least_weight = min(preference.accuracy, preference.cost)
        return names_tools, least_weight > 0, len(assignment.menu.offers)

    assignments = make_test_assignments(results, settings)
    questions = [assignment for assignment in assignments if assignment.kind != "office"]
    return max(questions, key=rank_example)


def make_price_table(offers: Iterable[Offer]) -> pd.DataFrame:
    """Tabulates tools: the text that an orchestrator reads, typical price and latency, and the skills in words."""
    rows = []
    for offer in offers:
        skills = [
            f"{FAMILIES[family]} up to {difficulty}" for family, difficulty in offer.skills.items()
        ]
        rows.append(
            {
                "tool": offer.name,
                "reads": offer.text,
                "$ per million calls": offer.typical_cost_usd * MICRO_USD_PER_USD,
                "ms": offer.typical_seconds * MS_PER_SECOND,
                "good at": ", ".join(skills) or "nothing by its card",
            }
        )
    return pd.DataFrame(rows, columns=["tool", "reads", "$ per million calls", "ms", "good at"])


def make_tool_table(results: ToolOrchestrationResults, params: Params) -> pd.DataFrame:
    """Tabulates every tool at list prices, with its kind, where it runs, and whether it is offered in training."""
    table = make_price_table(results.offers.values()).drop(columns="reads")

    # What stands behind a tool: a function, a scripted model, or a model of some backend.
    backends = {
        tool: params.llm.models[model].backend for tool, model in params.tools.models.items()
    }
    kinds = []
    for tool in table["tool"]:
        backend = backends.get(tool)
        if backend is None:
            kinds.append("function")
        elif backend == "scripted":
            kinds.append("scripted stand-in")
        else:
            kinds.append(f"model, {backend}")
    table.insert(1, "kind", kinds)

    table.loc[table["tool"] == tool_menu.OFFICE, "good at"] = "an office's own records"
    local_tools = (*tool_menu.LOCAL_TOOLS, tool_menu.OFFICE)
    table["on the user's machine"] = table["tool"].isin(local_tools)
    table["in training"] = ~table["tool"].isin(params.tools.unseen)
    return table


def make_sandbox_table() -> pd.DataFrame:
    """Runs lines that a model may write, harmless and not: the error, and the reply that the model gets."""
    rows = []
    with Sandbox() as sandbox:
        tool = python(sandbox)
        for code in CODES:
            kind = sandbox.run(code).kind or "none"
            reply = tool({"code": code})
            rows.append({"code": code, "error": kind, "reply to the model": reply})
    return pd.DataFrame(rows)


# Office tasks --------------------------------------------------------------------------------------


def choose_office_task() -> Task:
    """Chooses a task of a test office that reads, writes and has something to say, with as few calls as any."""
    tasks = episode_specs.draw_office_tasks("test", 40, 1)
    return min(tasks, key=lambda task: (not _separates_criteria(task), len(task.calls), task.id))


def _separates_criteria(task: Task) -> bool:
    """Whether execution can be missed on its own, and whether a guess in place of a reading costs the other two."""
    reads, writes = _split_calls(task)
    if not task.info or not reads or not writes:
        return False
    # (execution, fidelity, completeness): nothing written, and nothing read.
    only_reads = _judge_calls(task, reads, task.answer)[:3]
    only_writes = _judge_calls(task, writes, task.answer)[:3]
    return only_reads == (False, True, True) and only_writes == (True, False, False)


def _split_calls(task: Task) -> tuple[list[Call], list[Call]]:
    """The golden calls that read, and those that write."""
    writes = [call for call in task.calls if task.domain.find_function(call[0]).writes]
    reads = [call for call in task.calls if call not in writes]
    return reads, writes


def _judge_calls(task: Task, calls: Sequence[Call], reply: str) -> tuple[bool, bool, bool, bool]:
    """Makes calls in a fresh office: execution, fidelity, completeness, and whether the task is solved."""
    office = task.open()
    for name, *arguments in calls:
        office.call(name, arguments)
    verdict = verify_trajectory(task, office, reply)
    return verdict.execution, verdict.fidelity, verdict.completeness, verdict.solved


def make_criteria_table(task: Task) -> pd.DataFrame:
    """Tabulates trajectories written by hand, and which criteria they meet."""
    reads, writes = _split_calls(task)
    trajectories = {
        "everything as it should be": (task.calls, task.answer),
        "forgot to write": (reads, task.answer),
        "forgot to say": (task.calls, "done"),
        "guessed what it should have read": (writes, task.answer),
        "did nothing, said everything": ([], task.answer),
    }
    rows = [
        (name, len(calls), reply, *_judge_calls(task, calls, reply))
        for name, (calls, reply) in trajectories.items()
    ]
    columns = [
        "trajectory",
        "calls",
        "last reply",
        "execution",
        "fidelity",
        "completeness",
        "solved",
    ]
    return pd.DataFrame(rows, columns=columns)


# An episode ----------------------------------------------------------------------------------------


def choose_episodes(results: ToolOrchestrationResults) -> pd.DataFrame:
    """Chooses the test question on which training shows best.

    After training its episode ends correctly, without a malformed turn, and otherwise than before, with as many calls
    as any (up to three); of equal questions it is one that was wrong before.

    Returns:
        Two episodes of seed 0 on that question: before training, and after.
    """
    episodes = results.episodes.query("style == 'test' and seed == 0")
    before = episodes[episodes["method"] == START].set_index("item")
    after = episodes[episodes["method"] == "paper"].set_index("item")

    def rank_item(item: int) -> tuple:
        untrained, trained = before.loc[item], after.loc[item]
        differs = (
            untrained["chosen"] != trained["chosen"] or untrained["correct"] != trained["correct"]
        )
        return (
            trained["correct"],
            not trained["malformed"],
            differs,
            min(trained["calls"], 3),
            untrained["correct"] < 1,
            -item,
        )

    best_item = max(after.index, key=rank_item)
    pair = episodes[(episodes["item"] == best_item) & episodes["method"].isin([START, "paper"])]
    return pair.sort_values("method", key=lambda method: method != START, kind="stable")


class Segment(NamedTuple):
    """A part of an episode that one author wrote."""

    author: str
    text: str
    cost_usd: float
    seconds: float
    is_exact: bool  # whether the time is known for this segment alone


def split_episode(
    row: Mapping, token_price: OwnTokenPrice, assignment: Assignment
) -> list[Segment]:
    """Splits an episode into segments, with the cost and time of each.

    Every token is charged to the orchestrator once; those that separate authors are charged to the prompt. A call
    takes as long as its tool, what the orchestrator writes as long as its tokens; calls to several models share
    the remaining time evenly.

    Args:
        row: The episode, of the results table.
        token_price: Dollars and seconds of an orchestrator's token.
        assignment: What the episode was about, with its menu.
    """
    spoken_segments = json.loads(row["spoken"])  # (author, text, dollars of a call) each
    num_tokens = [len(encode(text)) for _, text, _ in spoken_segments]
    if token_price.cost_usd:
        all_tokens = round(row["own_cost_usd"] / token_price.cost_usd)
        num_tokens[0] += all_tokens - sum(num_tokens)  # the first segment is the prompt

    times = []
    for (author, _, _), n in zip(spoken_segments, num_tokens, strict=True):
        times.append(_segment_seconds(author, n * token_price.seconds, assignment))
    exact_times = [time for time in times if time is not None]
    num_unknown = len(times) - len(exact_times)
    time_share = max(0.0, row["seconds"] - sum(exact_times)) / max(1, num_unknown)

    segments = []
    for (author, text, call_cost), n, time in zip(spoken_segments, num_tokens, times, strict=True):
        cost_usd = call_cost + n * token_price.cost_usd
        seconds = time_share if time is None else time
        is_exact = time is not None or num_unknown == 1
        segments.append(Segment(author, text, cost_usd, seconds, is_exact))
    return segments


def _segment_seconds(author: str, writing_seconds: float, assignment: Assignment) -> float | None:
    """Seconds that a segment takes.

    Args:
        author: Who wrote it.
        writing_seconds: How long the orchestrator writes at it, if it is the orchestrator's.
        assignment: Holds the tools with their typical times.

    Returns:
        Seconds; None for a model's reply, for which the results table has only the time of the whole episode.
    """
    if author == "controller":
        return writing_seconds
    if author in ("prompt", "nobody"):
        return 0.0
    by_name = (offer for offer in assignment.menu.offers if offer.name == author)
    offer = next(by_name, assignment.menu.office_offer)
    return None if offer is None or offer.model else offer.seconds


def episode_html(
    episodes: pd.DataFrame, token_price: OwnTokenPrice, assignment: Assignment, caption: str
) -> spoken.Rendered:
    """Renders episodes one below the other, each segment in the colour of its author, with mask, price and time.

    Args:
        episodes: Rows of the results table, on the question of `assignment`.
        token_price: Dollars and seconds of an orchestrator's token.
        assignment: The question and its menu.
        caption: Stands above all of them.

    Returns:
        HTML and plain text.
    """
    rendered = []
    for row in episodes.to_dict("records"):
        heading = LABELS[row["method"]]
        if row["method"] != START:
            heading += f", seed {row['seed']}"
        segments = [_render_segment(s) for s in split_episode(row, token_price, assignment)]
        rendered.append((heading, segments, describe_outcome(row)))
    return spoken.join_episodes(caption, rendered)


def _render_segment(segment: Segment) -> spoken.Rendered:
    note = f"; ${segment.cost_usd * MICRO_USD_PER_USD:.1f} per million"
    if segment.seconds:
        note += f", {'' if segment.is_exact else 'about '}{segment.seconds * MS_PER_SECOND:.1f} ms"
    if segment.author == "controller":
        return spoken.render_segment("orchestrator", segment.text, PAPER, note)
    return spoken.render_segment(segment.author, segment.text, "", note)


def describe_outcome(row: Mapping) -> str:
    """How an episode ended, as a line of text."""
    correctness = "correct" if row["correct"] else "wrong"
    return (
        f"{correctness}; ${row['cost_usd'] * MICRO_USD_PER_USD:.1f} per million, "
        f"of it ${row['own_cost_usd'] * MICRO_USD_PER_USD:.1f} for the orchestrator's own tokens; "
        f"{row['seconds'] * MS_PER_SECOND:.1f} ms; {row['calls']} calls, {row['malformed']} "
        "malformed turns"
    )


# Synthetic environment -----------------------------------------------------------------------------


def tabulate_learned_slopes(synthetic: pd.DataFrame) -> pd.DataFrame:
    """Tabulate which share of the optimum's slope of spending over the weight on cost was learned.

    Args:
        synthetic: Rows of `synthetic_benchmark.run`.

    Returns:
        (spreads of prices, numbers of updates), without the policy before training.
    """
    price_map = results_table.select(synthetic, split="map")
    weights_on_cost = price_map[price_map["group"] == "cost"]
    slopes = stats.statistic(
        weights_on_cost,
        ["weight", "cost_usd"],
        synthetic_evaluation.compute_slope,
        ["prices", "method", "step"],
    )
    by_update = slopes["value"].unstack("step")
    learned = by_update.xs(PAPER, level="method").drop(columns=0)
    optimum = by_update.xs("optimum", level="method")[0]
    return learned.div(optimum, axis=0)


# Results -------------------------------------------------------------------------------------------


def tabulate_means(rows: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Tabulate means by method, with intervals.

    Args:
        rows: Of the results table.
        columns: What each column is called in the table.
    """
    means = {}
    for column, title in columns.items():
        means[title] = stats.intervals(stats.mean(rows, column, "method"))
    return pd.DataFrame(means)


def tabulate_comparison(
    rows: pd.DataFrame,
    columns: Mapping[str, str],
    treatment: str = PAPER,
    baseline: str = START_LABEL,
) -> pd.DataFrame:
    """Tabulate means of two methods and their difference in pairs of the same seed and question.

    Args:
        rows: Of the results table, one test set.
        columns: What each column is called in the table.
        treatment: A method.
        baseline: Another one.

    Returns:
        Rows for the baseline, the treatment and "difference".
    """
    selected = results_table.select(rows, method=[baseline, treatment])
    conditions = {"method": treatment}, {"method": baseline}
    comparison = {}
    for column, title in columns.items():
        means = stats.mean(selected, column, "method").loc[[baseline, treatment]]
        difference = stats.paired_difference(selected, column, *conditions)
        both = pd.concat([means, difference.set_axis(["difference"])])
        comparison[title] = stats.intervals(both)
    return pd.DataFrame(comparison)


def tabulate_changes(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate what training, users' weights and the sign error change, with verdicts."""
    changes = appendix_estimates.estimate_changes(rows)
    return pd.DataFrame(
        {
            "change": stats.intervals(changes),
            "above 0": stats.verdict(changes),
            "smallest detectable effect": changes["mde"].astype(float).round(3),
        }
    )


def tabulate_methods(questions: pd.DataFrame) -> pd.DataFrame:
    """Tabulate every method on the test questions; baselines have no tokens of their own."""
    columns = MEASURES | {"own_micro_usd": "of it own tokens", "score": "preference score"}
    table = tabulate_means(questions, columns)
    has_own_tokens = questions.groupby("method", sort=False)["own_micro_usd"].mean() > 0
    table.loc[~has_own_tokens, "of it own tokens"] = None
    return table


def tabulate_differences(questions: pd.DataFrame) -> pd.DataFrame:
    """Tabulate ToolOrchestra minus each baseline on the same questions."""
    columns = MEASURES | {"score": "preference score"}
    differences = {}
    for column, title in columns.items():
        by_baseline = appendix_estimates.compare_with_baselines(questions, column)
        differences[title] = stats.intervals(by_baseline)
    return pd.DataFrame(differences)


def list_tradeoff_methods(questions: pd.DataFrame, best_tool: str) -> list[str]:
    """List the methods of the figure of accuracy and cost.

    Args:
        questions: Rows of the test questions.
        best_tool: The best single tool, which stands in the rows under two names.

    Returns:
        All methods but the oracle and "always" the best tool.
    """
    left_out = (rule_baselines.ORACLE, rule_baselines.ALWAYS + best_tool)
    return [method for method in questions["method"].unique() if method not in left_out]


def summarize_tradeoff(costs: pd.DataFrame, accuracies: pd.DataFrame) -> str:
    """A title with accuracy and price of the trained orchestrator and of the best single tool."""
    parts = []
    for method in (PAPER, rule_baselines.BEST):
        accuracy, cost = accuracies.loc[method, "value"], costs.loc[method, "value"]
        parts.append(f"{method} {accuracy:.2f} for ${cost:.0f}")
    return f"Accuracy and dollars per million questions: {', '.join(parts)}"


def tabulate_office_tasks(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate orchestrators on office tasks: criteria, cost, calls and malformed turns."""
    tasks = results_table.select(rows, style="test", condition="office")
    columns = MEASURES | {"calls": "calls", "has_malformed_turn": "malformed turn"}
    criteria = [name for name in ("execution", "fidelity", "completeness") if name in tasks]
    return tabulate_means(tasks, columns | dict(zip(criteria, criteria, strict=True)))


def tabulate_benchmark(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the preference score of orchestrators: mean over all examples, and the sum over seeds' means."""
    examples = appendix_estimates.select_orchestrated(rows)
    sums = examples.groupby(["method", "seed"], sort=False)["score"].sum()
    return pd.DataFrame(
        {
            "mean score": stats.intervals(stats.mean(examples, "score", "method")),
            "sum over examples": sums.groupby("method", sort=False).mean(),
        }
    )


def tabulate_units(results: ToolOrchestrationResults) -> pd.DataFrame:
    """Tabulate the mean preference score by the units of cost and latency, and had ToolOrchestra spent double."""
    scores, double = {}, {}
    for name, units in office_results.UNITS.items():
        examples = office_results.compute_scores(results, units)
        scores[name] = examples.groupby("method", sort=False)["score"].mean()
        more_expensive = office_results.compute_scores(results, units, dearer=2.0)
        double[name] = more_expensive.groupby("method")["score"].mean()[PAPER]
    table = pd.DataFrame(scores)
    table.loc[f"{PAPER}, had it spent double"] = double
    return table


def tabulate_preferred_calls(questions: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the share of calls to tools that users like; of confidential users, to models, which they do not."""
    asked = questions[(questions["own_cost_usd"] > 0) & (questions["liked"] != "")]
    names = {False: "calls to liked tools", True: "confidential: calls to models"}
    asked = asked.assign(wish=asked["confidential"].map(names))
    shares = office_results.estimate_ratios(
        asked, "preferred_calls", "tool_calls", ["method", "wish"]
    )
    table = stats.intervals(shares).unstack("wish", sort=False)
    menus = results_table.select(asked, method=START_LABEL)
    table.loc["a random choice"] = menus.groupby("wish")["preferred_at_random"].mean()
    return table


def tabulate_sign_error(questions: pd.DataFrame) -> pd.DataFrame:
    """Tabulate ToolOrchestra and the sign error, with the cost of correct answers alone."""
    table = tabulate_comparison(questions, MEASURES, SIGN, PAPER)
    costs = questions.assign(cost_if_correct=questions["micro_usd"] * questions["correct"])
    ratios = office_results.estimate_ratios(costs, "cost_if_correct", "correct")
    difference = appendix_estimates.estimate_cost_of_correct_answers(questions)
    both = pd.concat([ratios.loc[[PAPER, SIGN]], difference.set_axis(["difference"])])
    table["$ per million correct answers"] = stats.intervals(both)
    return table


def summarize_training_costs(curves: pd.DataFrame) -> str:
    """A title with what both signs of the reward spend in the last fifth of training."""
    num_updates = curves["step"].max() + 1
    late = curves[curves["step"] >= num_updates - max(1, round(num_updates / 5))]
    means = late.groupby("method")["micro_usd"].mean()
    costs = ", ".join(f"{method} ${means[method]:.1f}" for method in (PAPER, SIGN))
    return f"Dollars per million questions at the end of training: {costs}"


def melt_training_curves(curves: pd.DataFrame) -> pd.DataFrame:
    """One row for each method, seed, update and measure (`panel`): accuracy and cost of both signs.

    Args:
        curves: Of `results.average_updates`.
    """
    panels = {"correct": "accuracy", "micro_usd": "$ per million questions"}
    selected = results_table.select(curves, method=[PAPER, SIGN])
    long = selected.melt(["method", "seed", "step"], list(panels), "panel")
    return long.replace({"panel": panels})


def select_conditions(rows: pd.DataFrame) -> pd.DataFrame:
    """Select the test sets with new tools, prices and outages, `style` in words, before and after training."""
    selected = results_table.select(
        rows, condition="question", style=list(CONDITIONS), method=[START_LABEL, PAPER]
    )
    return selected.replace({"style": CONDITIONS})


def summarize_conditions(rows: pd.DataFrame) -> str:
    """A title with the accuracy after minus before training in each condition."""
    conditions = {"method": PAPER}, {"method": START_LABEL}
    gains = stats.paired_difference(rows, "correct", *conditions, "style")["value"]
    parts = ", ".join(f"{name} {value:+.2f}" for name, value in gains.items())
    return f"Accuracy after minus before training: {parts}"


def tabulate_unseen_tools(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate menus with a tool that training never had, by whether it alone is capable of the question."""
    menus = results_table.select(rows, style="unseen_tools", method=[START_LABEL, PAPER]).replace(
        {"only_newcomer_is_capable": {True: "alone", False: "one of several"}}
    )
    by = ["only_newcomer_is_capable", "method"]
    columns = {"correct": "accuracy", "newcomer_first": "called first"}
    means = {}
    for column, title in columns.items():
        means[title] = stats.intervals(stats.mean(menus, column, by))
    table = pd.DataFrame(means)
    table["a random first call"] = menus.groupby(by)["newcomer_at_random"].mean()
    return table.rename_axis(["the unseen tool is capable", "method"])


def tabulate_unseen_prices(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the share of calls to tools that the other price list made cheaper, by price list, and the shift."""
    lists = {"test": "training prices", "unseen_prices": "unseen prices"}
    selected = results_table.select(
        rows, style=list(lists), condition="question", method=[START_LABEL, PAPER]
    )
    shares = office_results.estimate_ratios(
        selected, "cheaper_calls", "tool_calls", ["method", "style"]
    )
    table = stats.intervals(shares).unstack("style", sort=False).rename(columns=lists)
    shift = appendix_estimates.estimate_price_shift(selected)
    return table.assign(shift=stats.intervals(shift))


def tabulate_outages(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate how orchestrators fare where the tool that is called first fails."""
    broken = results_table.select(rows, style="outage", method=[START_LABEL, PAPER])
    table = tabulate_means(broken, {"correct": "accuracy", "met_outage": "met the outage"})
    conditional = {
        "switched": "of these: called another tool",
        "correct_after_outage": "of these: correct",
    }
    for column, title in conditional.items():
        ratios = office_results.estimate_ratios(broken, column, "met_outage")
        table[title] = stats.intervals(ratios)
    return table


def average_by_weight(simplex: pd.DataFrame, objective: str) -> pd.DataFrame:
    """Average accuracy, cost and latency over users with the same weight on one objective.

    Args:
        simplex: Of `appendix_estimates.select_simplex`.
        objective: "accuracy", "cost" or "latency".

    Returns:
        Estimates with panel (the measure), method and weight as columns.
    """
    # A user takes the part of a sample, so that intervals are over seeds and questions.
    users = simplex.assign(weight=simplex[f"p_{objective}"], sample=simplex["user"])
    means = {}
    for column, title in MEASURES.items():
        means[title] = stats.mean(users, column, ["method", "weight"])
    return pd.concat(means, names=["panel"]).reset_index()


def tabulate_simplex(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the slope of each measure over the weight on it, and the hypervolume over all users."""
    slopes = appendix_estimates.estimate_simplex_slopes(rows)
    table = {}
    for column, title in MEASURES.items():
        table[f"{title}, weight 1 minus weight 0"] = stats.intervals(slopes[column])
    simplex = appendix_estimates.select_simplex(rows)
    table["hypervolume"] = stats.intervals(office_results.estimate_hypervolumes(simplex))
    return pd.DataFrame(table)


def summarize_simplex(rows: pd.DataFrame) -> str:
    """A title with the slope of cost over the weight on cost, before and after training."""
    slopes = appendix_estimates.estimate_simplex_slopes(rows)["micro_usd"]["value"]
    parts = ", ".join(f"{method} {slopes[method]:+.1f}" for method in (START_LABEL, PAPER))
    return f"Dollars per million questions, weight on cost 1 minus 0: {parts}"


def collect_filter_shares(results: ToolOrchestrationResults) -> dict[str, dict[str, float]]:
    """Collect the shares of rollouts that each filter left out, under both signs of the reward.

    Args:
        results: What the experiment left.

    Returns:
        By method, and there by metric key.
    """
    shares = office_results.compute_left_out_shares(results)
    metrics_by_method = {}
    for method in (PAPER, SIGN):
        prefix = f"filters.{appendix_estimates.METHOD_KEYS[method]}"
        by_reason = shares.loc[method].items()
        metrics_by_method[method] = {f"{prefix}.{reason}": float(x) for reason, x in by_reason}
    return metrics_by_method


def summarize_appendix(rows: pd.DataFrame, num_updates: int) -> str:
    """The conclusion, from the table of changes."""
    changes = stats.summary_sentence(appendix_estimates.estimate_changes(rows))
    return f"The earlier experiment, {num_updates} updates from one shared start: {changes}"
