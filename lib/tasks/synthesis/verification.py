"""Whether a trajectory (an agent's calls and replies) solved a task: three criteria, all of which must hold.

Execution correctness, process fidelity and operation completeness (ToolOrchestra, appendix "Data
Synthesis"). Fidelity is as in the paper: the information has to be mentioned, whatever else the agent says. A text
that lists every word there is would mention the right one too: pass a short answer where an agent could profit from
that.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lib.tasks.synthesis.database import Entry
from lib.tasks.synthesis.tasks import Task


@dataclass(frozen=True)
class VerificationResult:
    """Which of the three criteria a trajectory meets.

    Attributes:
        execution: The database has the same content as after the golden calls, the right sequence of tool calls.
        fidelity: The agent mentioned all information that it was asked for.
        completeness: The agent read or wrote every entry (table, key) that the golden calls read or write.
    """

    execution: bool
    fidelity: bool
    completeness: bool

    @property
    def solved(self) -> bool:
        """Whether all three hold."""
        return self.execution and self.fidelity and self.completeness


def verify_trajectory(
    task: Task, content: str, operated_entries: Iterable[Entry], text: str
) -> VerificationResult:
    """Check whether a trajectory solved a task, by comparing its outcome with that of the golden calls.

    Args:
        task: The task, with its golden calls and the information to report.
        content: All records after the trajectory, as `Database.serialize()` gives them.
        operated_entries: (table, key) of the entries that the trajectory read or wrote.
        text: All text that the agent wrote.

    Returns:
        For each of the three criteria, whether it holds.

    Raises:
        CallError: Where the task's own golden calls fail: there is nothing to compare with.
    """
    return VerificationResult(
        execution=content == task.golden_outcome.content,
        fidelity=all(mentions(text, information) for information in task.info),
        completeness=task.golden_outcome.operated_entries <= set(operated_entries),
    )


def mentions(text: str, information: str) -> bool:
    """Whether a text mentions a piece of information: "Ana has 3 keys ." mentions "3 keys".

    Whole words count, in the same order and case: "13 keys" or "3.5" do not mention "3".

    Args:
        text: Text of an agent.
        information: One word or several with blanks between them.

    Returns:
        Whether the words stand in the text one after the other.
    """
    words = r"\s+".join(map(re.escape, information.split()))
    not_inside_before = r"(?<![\w-])(?<!\d[.,])"
    not_inside_after = r"(?![\w-])(?![.,]\d)"
    return re.search(not_inside_before + words + not_inside_after, text) is not None
