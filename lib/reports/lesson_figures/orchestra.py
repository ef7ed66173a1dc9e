"""Lesson 06's displays: a menu and its user, the sandbox, an office task and its criteria, and one question before and
after training."""

import json
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from lib import plots
from lib.config import Params, ToolSettings
from lib.language_models.tokenizer import encode
from lib.reports.lesson_figures import spoken
from lib.tasks.synthesis import Call, Task, judge
from lib.tool_orchestration import episode_specs, prompted_baseline, test_sets, tool_menu
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.experiment import START, Results
from lib.tool_orchestration.results import LABELS, PAPER
from lib.tool_orchestration.rewards import MICRO, MILLI
from lib.tool_orchestration.tool_environment import Desk, Own
from lib.tool_orchestration.tool_menu import Offer
from lib.tools.python import python
from lib.tools.sandbox import Sandbox

plots.register(
    {  # tools, methods
        "calculator": ("#0072B2", "s"),
        "search": ("#009E73", "d"),
        "lookup": ("#B997E5", "v"),
        "python": ("#D55E00", "<"),
        "reasoner": ("#8C6239", "8"),
        "answerer": ("#CC79A7", "h"),
        "sign error": ("#D55E00", "v"),
        "CoRL's reward": ("#117733", "D"),
        "failures kept": ("#999933", ">"),
        "best always": ("#E69F00", "p"),
        "one a kind": ("#44AA99", "H"),
        "always calculator": ("#0072B2", "s"),
        "always search": ("#009E73", "d"),
        "always lookup": ("#B997E5", "v"),
        "always python": ("#D55E00", "<"),
        "always lab-nano": ("#56B4E9", "o"),
        "always lab-mini": ("#E69F00", "s"),
        "always lab-large": ("#AA2255", "^"),
    }
)
FAMILIES = {"chain": "chains", "big": "big numbers", "facts": "facts"}
CODES = (
    "print(sum(range(10)))",
    "open('/etc/passwd').read()",
    "import os; os.system('ls')",
    "while True: pass",
    "3 +",
)


def assigned(results: Results, settings: ToolSettings) -> list[Assignment]:
    """The assignments of the exam `test` at list prices, in the order of its items."""
    return test_sets.exam("test", results.offers, results.offers, settings)


def example(results: Results, settings: ToolSettings) -> Assignment:
    """A question with as long a menu as any, and a user who likes tools by name, if there is one."""

    def told(a: Assignment) -> tuple:
        who = a.preference
        return (
            bool(who.tools) and not who.confidential,
            min(who.accuracy, who.cost) > 0,
            len(a.menu.offers),
        )

    return max((a for a in assigned(results, settings) if a.kind != "office"), key=told)


def priced(offers: Iterable[Offer]) -> pd.DataFrame:
    """Each tool: what an orchestrator reads of it, its typical price and latency, and its skills in words."""

    def good(o):
        return ", ".join(f"{FAMILIES[family]} up to {reach}" for family, reach in o.skills.items())

    told = [
        (
            o.name,
            o.text,
            o.typical_cost_usd * MICRO,
            o.typical_seconds * MILLI,
            good(o) or "nothing by its card",
        )
        for o in offers
    ]
    return pd.DataFrame(told, columns=["tool", "reads", "$ per million calls", "ms", "good at"])


def tool_table(results: Results, params: Params) -> pd.DataFrame:
    """Every tool that there is, at list prices."""
    table, backends = (
        priced(results.offers.values()).drop(columns="reads"),
        {"scripted": "scripted stand-in"},
    )
    of = {word: params.llm.models[name].backend for word, name in params.tools.models.items()}
    kinds = [
        backends.get(of[n], f"model, {of[n]}") if n in of else "function" for n in table["tool"]
    ]
    table.insert(1, "kind", kinds)
    table.loc[table["tool"] == tool_menu.OFFICE, "good at"] = "an office's own records"
    at_home, offered = (
        (*tool_menu.LOCAL, tool_menu.OFFICE),
        ~table["tool"].isin(params.tools.unseen),
    )
    return table.assign(
        **{"on the user's machine": table["tool"].isin(at_home), "in training": offered}
    )


def schema(assignment: Assignment) -> str:
    """The first function on a menu, or else the first tool, as OpenAI's API is told of it."""
    desk = Desk(None, {})  # type: ignore[arg-type]  # nobody is asked anything
    told = prompted_baseline.schemas(assignment, desk, lab=False)
    places = [i for i, offer in enumerate(assignment.menu.offers) if not offer.model]
    return json.dumps(told[places[0] if places else 0], indent=2)


def sandbox_table() -> pd.DataFrame:
    """Lines that a model may write, benign and not: what kind of end they come to, and what is heard of it."""
    with Sandbox() as sandbox:
        tool = python(sandbox)
        kinds = [sandbox.run(code).kind or "none: it worked" for code in CODES]
        return pd.DataFrame(
            {"code": CODES, "kind of end": kinds, "heard": [tool({"code": code}) for code in CODES]}
        )


# Office tasks --------------------------------------------------------------------------------------


def office_task() -> Task:
    """A task that reads, writes and has something to say: one with as few calls as any, of a test office."""
    return min(
        episode_specs.office("test", 40, 1),
        key=lambda task: (not _telling(task), len(task.calls), task.id),
    )


def _telling(task: Task) -> bool:
    """Whether each criterion can be missed on its own."""
    reads, writes = _parted(task)
    if not task.info or not reads or not writes:
        return False
    lazy, rash = _acted(task, reads, task.answer), _acted(task, writes, task.answer)
    return lazy[:3] == (False, True, True) and rash[:3] == (True, True, False)


def _parted(task: Task) -> tuple[list[Call], list[Call]]:
    """Golden calls that read, and that write."""
    writes = [call for call in task.calls if task.domain.function(call[0]).writes]
    return [call for call in task.calls if call not in writes], writes


def _acted(task: Task, calls: Sequence[Call], said: str) -> tuple[bool, bool, bool, bool]:
    office = task.open()
    for name, *arguments in calls:
        office.call(name, arguments)
    found = judge(task, office.content(), office.operated, said)
    return found.execution, found.fidelity, found.completeness, found.solved


def criteria_table(task: Task) -> pd.DataFrame:
    """Trajectories made by hand, and which criteria they meet."""
    reads, writes = _parted(task)
    told = {
        "everything as it should be": (task.calls, task.answer),
        "forgot to write": (reads, task.answer),
        "forgot to say": (task.calls, "done"),
        "guessed what it should have read": (writes, task.answer),
        "did nothing, said everything": ([], task.answer),
    }
    rows = [
        (name, len(calls), said, *_acted(task, calls, said)) for name, (calls, said) in told.items()
    ]
    heads = ["trajectory", "calls", "said", "execution", "fidelity", "completeness", "solved"]
    return pd.DataFrame(rows, columns=heads)


# An episode ----------------------------------------------------------------------------------------


def telling(results: Results) -> pd.DataFrame:
    """Episodes of start and trained (seed 0) on one question: one that ends right after training, with as many calls
    as any, and otherwise than before; without a malformed turn, if there is such a one."""
    part = results.episodes.query("style == 'test' and seed == 0")
    before, after = (
        part[part["method"] == method].set_index("item") for method in (START, "paper")
    )

    def rank(item: int) -> tuple:
        was, done = before.loc[item], after.loc[item]
        other = was["chosen"] != done["chosen"] or was["correct"] != done["correct"]
        return (
            done["correct"],
            not done["malformed"],
            other,
            min(done["calls"], 3),
            was["correct"] < 1,
            -item,
        )

    return part[
        (part["item"] == max(after.index, key=rank)) & part["method"].isin([START, "paper"])
    ].sort_values("method", key=lambda of: of != START, kind="stable")


def parts(row: Mapping, own: Own, asked: Assignment) -> list[tuple[str, str, float, float, bool]]:
    """Who, text, dollars and seconds of every part, and whether its time is exact.

    Every token is charged to the orchestrator once; those that separate speakers are charged to the prompt. A call
    takes as long as its tool, what the orchestrator writes as long as its tokens; calls to several models share
    what is left evenly.
    """
    told = json.loads(row["spoken"])
    lengths = [len(encode(text)) for _, text, _ in told]
    lengths[0] += round(row["own_cost_usd"] / own.cost_usd) - sum(lengths) if own.cost_usd else 0
    times = [
        _time(who, n * own.seconds, asked) for (who, _, _), n in zip(told, lengths, strict=True)
    ]
    known = [time for time in times if time is not None]
    open_ = len(times) - len(known)
    rest = max(0.0, row["seconds"] - sum(known)) / max(1, open_)
    return [
        (
            who,
            text,
            paid + n * own.cost_usd,
            rest if time is None else time,
            time is not None or open_ == 1,
        )
        for (who, text, paid), n, time in zip(told, lengths, times, strict=True)
    ]


def _time(who: str, writing: float, asked: Assignment) -> float | None:
    """Seconds of a part; None for a model's reply, which only the whole tells. writing: of the orchestrator, if it is
    its own."""
    if who in ("controller", "prompt", "nobody"):
        return writing if who == "controller" else 0.0
    offer = next((offer for offer in asked.menu.offers if offer.name == who), asked.menu.desk)
    return None if offer is None or offer.model else offer.seconds


def episode_html(episodes: pd.DataFrame, own: Own, asked: Assignment, caption: str) -> spoken.Shown:
    """Episodes one below the other: every part in the colour of who wrote it, mask, price and time beside it; and as
    plain text. own: what the orchestrator's tokens cost."""
    shown = []
    for row in episodes.to_dict("records"):
        heading = LABELS[row["method"]] + (
            "" if row["method"] == START else f", seed {row['seed']}"
        )
        shown.append(
            (heading, [_shown(*part) for part in parts(row, own, asked)], verdict_words(row))
        )
    return spoken.together(caption, shown)


def _shown(who: str, text: str, cost_usd: float, seconds: float, exact: bool) -> spoken.Shown:
    time = f", {'' if exact else 'about '}{seconds * MILLI:.1f} ms" if seconds else ""
    note = f"; ${cost_usd * MICRO:.1f} per million{time}"
    own = who == "controller"
    return spoken.part("orchestrator" if own else who, text, PAPER if own else "", note)


def verdict_words(row: Mapping) -> str:
    """How it ended."""
    correct = "right" if row["correct"] else "wrong"
    return (
        f"{correct}; ${row['cost_usd'] * MICRO:.1f} per million, of it ${row['own_cost_usd'] * MICRO:.1f} for the "
        f"orchestrator's own tokens; {row['seconds'] * MILLI:.1f} ms; {row['calls']} calls, {row['malformed']} "
        "malformed turns"
    )
