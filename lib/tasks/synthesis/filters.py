"""Filters for synthesised tasks: golden calls that fail, tasks that nobody solves, tasks with nothing to do.

The three filters of ToolOrchestra, appendix "Data Synthesis". Taken literally, the third never drops a
task whose golden calls touch anything, as operation completeness then asks for an action. Here a task
needs no action if a trajectory without calls meets the other two criteria: the content is already what it
should be, and nothing has to be mentioned.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lib.tasks.synthesis.database import CallError
from lib.tasks.synthesis.tasks import Task
from lib.tasks.synthesis.verification import verify_trajectory

ERROR, UNSOLVED, IDLE = "error", "unsolved", "idle"
NUM_ATTEMPTS = 8

# (tasks, index of the attempt) -> for each task, whether it was solved
Solver = Callable[[Sequence[Task], int], Sequence[bool]]


@dataclass(frozen=True)
class DropRecord:
    """Why a domain, database or task was left out of a corpus.

    Attributes:
        step: The step of the pipeline that dropped it, for example "schema" or "filter".
        reason: One of a few words, to count by, for example "malformed" or "unsolved".
        domain: Name of the domain.
        detail: What was wrong, in words.
        task: The task; None where it was dropped before there was one.
    """

    step: str
    reason: str
    domain: str
    detail: str = ""
    task: Task | None = None


def find_fault(task: Task) -> DropRecord | None:
    """Check a task with the filters that need no model: do its golden calls succeed, and is there anything to do?

    Args:
        task: An instruction on a database with its golden calls, the right sequence of tool calls.

    Returns:
        Why the task is dropped; None for a task that passes.
    """
    try:
        # Of an agent that makes no call and says nothing.
        verdict = verify_trajectory(task, task.open(), report="")
    except CallError as error:
        return _drop(task, ERROR, f"a golden call replies: {error}")
    # A task asks for nothing if that agent meets the two criteria that do not count its calls.
    if verdict.execution and verdict.fidelity:
        return _drop(task, IDLE, "nothing has to be done")
    return None


def filter_tasks(
    tasks: Sequence[Task], solver: Solver | None = None, attempts: int = NUM_ATTEMPTS
) -> tuple[list[Task], list[DropRecord]]:
    """Keep the tasks whose golden calls succeed, that ask for something, and that a strong model can solve.

    Args:
        tasks: Tasks of one corpus.
        solver: solver(tasks, attempt) says which of the tasks the strongest model at hand solved. It is called for all
            tasks, and then again for those not solved yet. None: tasks need not be solvable.
        attempts: Number of attempts at each task (pass@8 in the paper).

    Returns:
        (fit, dropped): the tasks that pass, and why the others were dropped, both in the order of `tasks`.

    Raises:
        ValueError: Where the solver returns another number of results than tasks.
    """
    faults: dict[int, DropRecord] = {}  # by position in `tasks`
    for i, task in enumerate(tasks):
        fault = find_fault(task)
        if fault is not None:
            faults[i] = fault

    if solver is not None:
        unsolved = [i for i in range(len(tasks)) if i not in faults]
        for attempt in range(attempts):
            if not unsolved:
                break
            solved = solver([tasks[i] for i in unsolved], attempt)
            if len(solved) != len(unsolved):
                raise ValueError(f"the solver judged {len(solved)} of {len(unsolved)} tasks")
            # A task is solved by one success in any attempt.
            unsolved = [i for i, success in zip(unsolved, solved, strict=True) if not success]
        for i in unsolved:
            faults[i] = _drop(tasks[i], UNSOLVED, f"not solved in {attempts} tries")

    fit = [task for i, task in enumerate(tasks) if i not in faults]
    return fit, [faults[i] for i in sorted(faults)]


def _drop(task: Task, reason: str, detail: str) -> DropRecord:
    """Record why the filters of this module leave a task out."""
    return DropRecord("filter", reason, task.domain.name, detail, task)
