"""Whether a trajectory solved a task: three criteria, all of which must hold.

Execution correctness, process fidelity and operation completeness (ToolOrchestra, appendix "Data
Synthesis"). Fidelity is as the paper has it: what must be said has to be mentioned, whatever else is said.
Who says every word there is mentions the right one too; hand in a short answer where that could pay.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lib.tasks.synthesis.database import Entry
from lib.tasks.synthesis.tasks import Task


@dataclass(frozen=True)
class VerificationResult:
    """execution: the content is that after the golden calls; fidelity: the information was mentioned;
    completeness: every entry that the golden calls operate on was operated on."""

    execution: bool
    fidelity: bool
    completeness: bool

    @property
    def solved(self) -> bool:
        return self.execution and self.fidelity and self.completeness


def judge(
    task: Task, database_after: str, operated: Iterable[Entry], said: str
) -> VerificationResult:
    """The verdict on a trajectory.

    database_after: `Database.content()` after it; operated: `Database.operated` after it; said: all that the
    agent said. Raises CallError where the task's own golden calls fail, as nothing can be judged then.
    """
    return VerificationResult(
        execution=database_after == task.golden.content,
        fidelity=all(mentions(said, information) for information in task.info),
        completeness=task.golden.operated <= set(operated),
    )


def mentions(said: str, information: str) -> bool:
    """Whether a text holds the words of the information, one after the other, whole and with their case.

    A part of a longer word, or of a longer number such as 13 or 3.5, mentions nothing.
    """
    found = r"\s+".join(map(re.escape, information.split()))
    return re.search(rf"(?<![\w-])(?<!\d[.,]){found}(?![\w-])(?![.,]\d)", said) is not None
