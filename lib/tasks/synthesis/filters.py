"""What makes a task unfit: its golden calls fail, nobody can solve it, or there is nothing to do.

The three filters of ToolOrchestra, appendix "Data Synthesis". Taken literally, the third never drops a
task whose golden calls touch anything, as operation completeness then asks for an action. Here a task
needs no action if a trajectory without calls meets the other two criteria: the content is already what it
should be, and nothing has to be mentioned.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lib.tasks.synthesis.database import CallError
from lib.tasks.synthesis.tasks import Task
from lib.tasks.synthesis.verification import judge

ERROR, UNSOLVED, IDLE = "error", "unsolved", "idle"
TRIES = 8

Solver = Callable[
    [Sequence[Task], int], Sequence[bool]
]  # tasks and the number of the try; which were solved


@dataclass(frozen=True)
class Dropped:
    """What was left out: at which step of the pipeline, why, and the task, where it got that far."""

    step: str
    reason: str
    domain: str
    detail: str = ""
    task: Task | None = None


def fault(task: Task) -> Dropped | None:
    """The filters that need no solver; None for a task that passes them."""
    try:
        after = task.golden.content
    except CallError as error:
        return _dropped(task, ERROR, f"a golden call replies: {error}")
    idle = task.open().content() == after and judge(task, after, (), "").fidelity
    return _dropped(task, IDLE, "nothing has to be done") if idle else None


def sift(
    tasks: Sequence[Task], solver: Solver | None = None, tries: int = TRIES
) -> tuple[list[Task], list[Dropped]]:
    """The tasks that pass all filters, in their order, and those that do not, with the reason.

    solver: the strongest model at hand, asked for all tasks at once and again for those not solved yet, `tries`
    times (pass@8); without one that filter is left out. Raises ValueError where it judges another number of tasks.
    """
    faults = {i: found for i, task in enumerate(tasks) if (found := fault(task))}
    open_ = [i for i in range(len(tasks)) if i not in faults]
    for attempt in range(tries if solver else 0):
        if not open_:
            break
        solved = solver([tasks[i] for i in open_], attempt)  # type: ignore[misc]
        if len(solved) != len(open_):
            raise ValueError(f"the solver judged {len(solved)} of {len(open_)} tasks")
        open_ = [i for i, done in zip(open_, solved, strict=True) if not done]
    if solver:
        faults |= {i: _dropped(tasks[i], UNSOLVED, f"not solved in {tries} tries") for i in open_}
    return [task for i, task in enumerate(tasks) if i not in faults], [
        faults[i] for i in sorted(faults)
    ]


def _dropped(task: Task, reason: str, detail: str) -> Dropped:
    return Dropped("filter", reason, task.domain.name, detail, task)
