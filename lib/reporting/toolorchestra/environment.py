"""What an orchestrator has before it: a menu, a user, tools as schemas, the sandbox, tools at list prices; and the
office tasks: how many the pipeline wrote and dropped, one of them, and the three criteria on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from lib.params import Params, ToolSettings
from lib.reporting.toolorchestra.common import MILLI, MILLION
from lib.routing.toolorchestra import assignments, exams, menu, prompted
from lib.routing.toolorchestra.assignments import Assignment
from lib.routing.toolorchestra.desk import Desk
from lib.routing.toolorchestra.menu import Offer
from lib.routing.toolorchestra.study import Results
from lib.tasks.synthesis import Call, Task, judge
from lib.tools.python import python
from lib.tools.sandbox import Sandbox

FAMILIES = {"chain": "chains", "big": "big numbers", "facts": "facts"}
CODES = (
    "print(sum(range(10)))", "open('/etc/passwd').read()", "import os; os.system('ls')", "while True: pass", "3 +",
)  # fmt: skip
_DROPPED = "dropped: "


def assigned(results: Results, settings: ToolSettings) -> list[Assignment]:
    """The assignments of the exam `test` at list prices, in the order of its items."""
    return exams.exam("test", results.offers, results.offers, settings)


def example(results: Results, settings: ToolSettings) -> Assignment:
    """A question with as long a menu as any, and a user who likes tools by name, if there is one."""

    def told(a: Assignment) -> tuple:
        who = a.preference
        return bool(who.tools) and not who.confidential, min(who.accuracy, who.cost) > 0, len(a.menu.offers)

    return max((a for a in assigned(results, settings) if a.kind != "office"), key=told)


def menu_words(assignment: Assignment) -> str:
    """The prompt of an orchestrator, and what the user would say."""
    told = [f"{m['role'] + ':':8} {m['content']}" for m in assignment.messages]
    return "\n".join([*told, f"The user would say: {assignment.preference.sentence}"])


def _priced(offers: Iterable[Offer]) -> pd.DataFrame:
    """Each tool with its typical price and latency, and its skills in words."""
    good = [", ".join(f"{FAMILIES[family]} up to {reach}" for family, reach in o.skills.items()) for o in offers]
    return pd.DataFrame(
        {
            "tool": [o.name for o in offers],
            "$ per million calls": [o.typical_dollars * MILLION for o in offers],
            "ms": [o.typical_seconds * MILLI for o in offers],
            "good at": [told or "nothing by its card" for told in good],
        }
    )


def menu_table(assignment: Assignment) -> pd.DataFrame:
    """Each tool of a menu: what the orchestrator reads, and what that means."""
    table = _priced(assignment.menu.offers)
    liked = table["tool"].isin(assignment.preference.tools)
    return table.assign(tool=[o.text for o in assignment.menu.offers], liked=liked).rename(columns={"tool": "reads"})


def tool_table(results: Results, params: Params) -> pd.DataFrame:
    """Every tool that there is, at list prices."""
    table, backends = _priced(results.offers.values()), {"scripted": "scripted stand-in"}
    of = {word: params.llm.models[name].backend for word, name in params.tools.models.items()}
    kinds = [backends.get(of[n], f"model, {of[n]}") if n in of else "function" for n in table["tool"]]
    table.insert(1, "kind", kinds)
    table.loc[table["tool"] == menu.OFFICE, "good at"] = "an office's own records"
    at_home, offered = (*menu.LOCAL, menu.OFFICE), ~table["tool"].isin(params.tools.unseen)
    return table.assign(**{"on the user's machine": table["tool"].isin(at_home), "in training": offered})


def schema(assignment: Assignment) -> str:
    """The first function on a menu, or else the first tool, as OpenAI's API is told of it."""
    desk = Desk(None, {})  # type: ignore[arg-type]  # nobody is asked anything
    told = prompted.schemas(assignment, desk, lab=False)
    places = [i for i, offer in enumerate(assignment.menu.offers) if not offer.model]
    return json.dumps(told[places[0] if places else 0], indent=2)


def sandbox_table() -> pd.DataFrame:
    """Lines that a model may write, benign and not: what kind of end they come to, and what is heard of it."""
    with Sandbox() as sandbox:
        tool = python(sandbox)
        kinds = [sandbox.run(code).kind or "none: it worked" for code in CODES]
        return pd.DataFrame({"code": CODES, "kind of end": kinds, "heard": [tool({"code": code}) for code in CODES]})


# Office tasks --------------------------------------------------------------------------------------


def statistics_table(results: Results) -> pd.DataFrame:
    """One column per domain, and all together."""
    table = results.corpus.set_index("domain").T
    table["all"] = table.sum(axis=1)
    calls, tasks = table.loc["golden calls"], table.loc["tasks"]
    table.loc["golden calls", "all"] = (calls * tasks)[:-1].sum() / max(1, tasks["all"])
    counts = table.map("{:.0f}".format)
    counts.loc["golden calls"] = table.loc["golden calls"].map("{:.1f}".format)
    return counts.rename_axis("of office tasks").rename_axis(None, axis=1).reset_index()


def kept(results: Results) -> int:
    """Tasks that are left to learn from."""
    return int(results.corpus["tasks"].sum())


def dropped(results: Results) -> Mapping[str, int]:
    """Tasks left out, by reason."""
    names = [c for c in results.corpus if c.startswith(_DROPPED)]
    return {name.removeprefix(_DROPPED): int(results.corpus[name].sum()) for name in names}


def office_task() -> Task:
    """A task that reads, writes and has something to say: one with as few calls as any, of a test office."""
    return min(assignments.office("test", 40, 1), key=lambda task: (not _telling(task), len(task.calls), task.id))


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
    rows = [(name, len(calls), said, *_acted(task, calls, said)) for name, (calls, said) in told.items()]
    heads = ["trajectory", "calls", "said", "execution", "fidelity", "completeness", "solved"]
    return pd.DataFrame(rows, columns=heads)
