"""The office tasks: how many the pipeline wrote and dropped, one of them, and the three criteria on it."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib.routing.toolorchestra import assignments
from lib.routing.toolorchestra.study import Results
from lib.tasks.synthesis import Call, Task, judge, steps

_DROPPED = "dropped: "


def statistics_table(results: Results) -> pd.DataFrame:
    """One column per domain, and all together."""
    table = results.corpus.copy()
    if table.empty:
        return pd.DataFrame({"of office tasks": ["tasks"], "all": ["0"]})
    total = table.select_dtypes("number").sum()
    total["golden calls"] = (table["golden calls"] * table["tasks"]).sum() / max(1, table["tasks"].sum())
    table = pd.concat([table, pd.DataFrame([{"domain": "all"} | total.to_dict()])], ignore_index=True)
    return _upright(table)


def _upright(table: pd.DataFrame) -> pd.DataFrame:
    """Domains side by side, counts as whole numbers."""
    columns = [c for c in table if c != "domain"]
    rows = [
        {"of office tasks": name}
        | {
            domain: f"{amount:.{int(name == 'golden calls')}f}"
            for domain, amount in zip(table["domain"], table[name], strict=True)
        }
        for name in columns
    ]
    return pd.DataFrame(rows)


def dropped(results: Results) -> dict[str, int]:
    """Tasks left out, by reason."""
    names = [c for c in results.corpus if c.startswith(_DROPPED)]
    return {name.removeprefix(_DROPPED): int(results.corpus[name].sum()) for name in names}


def kept(results: Results) -> int:
    """Tasks that are left to learn from."""
    return int(results.corpus["tasks"].sum()) if "tasks" in results.corpus else 0


def words(results: Results, tries: int) -> str:
    """What the filters did, as a sentence."""
    lost = dropped(results)
    told = ", ".join(f"{n} as {reason}" for reason, n in lost.items()) or "none"
    return (
        f"Of {kept(results) + sum(lost.values())} tasks written, the filters drop {told} (unsolved: by the start, in "
        f"{tries} tries); {kept(results)} are left to learn from."
    )


def example(n: int = 40) -> Task:
    """A task that reads, writes and has something to say: one with as few calls as any, of a test office."""
    found = assignments.office("test", n, 1)
    return min(found, key=lambda task: (not _telling(task), len(task.calls), task.id))


def _telling(task: Task) -> bool:
    """Whether each criterion can be missed on its own."""
    reads = [call for call in task.calls if call not in _writes(task)]
    if not task.info or not 0 < len(reads) < len(task.calls):
        return False
    lazy, rash = _acted(task, reads, task.answer), _acted(task, _writes(task), task.answer)
    return lazy[:3] == (False, True, True) and rash[:3] == (True, True, False)


def _writes(task: Task) -> list[Call]:
    return [call for call in task.calls if task.domain.function(call[0]).writes]


def task_table(task: Task) -> pd.DataFrame:
    """Golden calls with their replies."""
    return pd.DataFrame([{"golden call": line, "reply": reply} for line, reply in steps(task)])


def task_words(task: Task) -> str:
    """What is asked, and what has to be said."""
    said = ", ".join(task.info) or "nothing"
    return (
        f"Instruction: {task.instruction}\nTo be mentioned: {said}\nDifficulty: {task.difficulty} ({task.domain.name})"
    )


def _acted(task: Task, calls: Sequence[Call], said: str) -> tuple[bool, bool, bool, bool]:
    office = task.open()
    for name, *arguments in calls:
        office.call(name, arguments)
    found = judge(task, office.content(), office.operated, said)
    return found.execution, found.fidelity, found.completeness, found.solved


def criteria_table(task: Task) -> pd.DataFrame:
    """Trajectories made by hand, and which criteria they meet."""
    writes = _writes(task)
    reads = [call for call in task.calls if call not in writes]
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
