"""Lesson 06's displays: a tool menu and its user, the sandbox, an office task and its criteria, and one question before
and after training."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from lib.config import Params, ToolSettings
from lib.language_models.tokenizer import encode
from lib.reports.lesson_figures import spoken
from lib.tasks.synthesis import Call, Task, verify_trajectory
from lib.tool_orchestration import episode_specs, prompted_baseline, test_sets, tool_menu
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.experiment import START, ToolOrchestrationResults
from lib.tool_orchestration.results import LABELS, PAPER
from lib.tool_orchestration.rewards import MICRO_USD_PER_USD, MS_PER_SECOND
from lib.tool_orchestration.tool_environment import OwnTokenPrice, ToolEnvironment
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


def first_tool_schema(assignment: Assignment) -> str:
    """The OpenAI function schema of the first function on a menu, or else of the first tool, as JSON."""
    environment = ToolEnvironment(None, {})  # type: ignore[arg-type]  # no model is called
    schemas = prompted_baseline.write_schemas(assignment, environment, lab=False)
    functions = [i for i, offer in enumerate(assignment.menu.offers) if not offer.model]
    index = functions[0] if functions else 0
    return json.dumps(schemas[index], indent=2)


def make_sandbox_table() -> pd.DataFrame:
    """Runs lines that a model may write, harmless and not: how each ends, and the reply that the model gets."""
    rows = []
    with Sandbox() as sandbox:
        tool = python(sandbox)
        for code in CODES:
            kind = sandbox.run(code).kind or "none: it worked"
            rows.append({"code": code, "kind of end": kind, "heard": tool({"code": code})})
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
    columns = ["trajectory", "calls", "said", "execution", "fidelity", "completeness", "solved"]
    return pd.DataFrame(rows, columns=columns)


# An episode ----------------------------------------------------------------------------------------


def choose_episodes(results: ToolOrchestrationResults) -> pd.DataFrame:
    """Chooses the test question on which training shows best.

    After training its episode ends right, without a malformed turn, and otherwise than before, with as many calls as
    any (up to three); of equal questions it is one that was wrong before.

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
    correctness = "right" if row["correct"] else "wrong"
    return (
        f"{correctness}; ${row['cost_usd'] * MICRO_USD_PER_USD:.1f} per million, "
        f"of it ${row['own_cost_usd'] * MICRO_USD_PER_USD:.1f} for the orchestrator's own tokens; "
        f"{row['seconds'] * MS_PER_SECOND:.1f} ms; {row['calls']} calls, {row['malformed']} "
        "malformed turns"
    )
