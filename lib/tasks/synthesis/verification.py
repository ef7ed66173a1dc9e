"""Whether a trajectory (an agent's calls and replies) solved a task: three criteria, all of which must hold.

Execution correctness, process fidelity and operation completeness (ToolOrchestra, appendix "Data
Synthesis"). The paper's fidelity asks whether the information is mentioned in the trajectory. Here it is judged on the
calls that the database carried out: the information has to come out of one of them, and only then does it count that
the agent reports it. A value that was guessed, or copied from a list of all words, is no information. A text
that lists every word there is would report the right one too: pass a short answer where an agent could profit from
that.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from lib.tasks.synthesis.database import Database
from lib.tasks.synthesis.tasks import Task


@dataclass(frozen=True)
class VerificationResult:
    """Which of the three criteria a trajectory meets.

    Attributes:
        execution: The database has the same content as after the golden calls, the right sequence of tool calls.
        fidelity: All information that the agent was asked for came out of its calls, and it reported it.
        completeness: The agent read or wrote every entry (table, key) that the golden calls read or write.
    """

    execution: bool
    fidelity: bool
    completeness: bool

    @property
    def solved(self) -> bool:
        """Whether all three hold."""
        return self.execution and self.fidelity and self.completeness


def verify_trajectory(task: Task, office: Database, report: str) -> VerificationResult:
    """Check whether a trajectory solved a task, by comparing its outcome with that of the golden calls.

    Args:
        task: The task, with its golden calls and the information to report.
        office: The task's database after the trajectory, which knows the calls that it carried out.
        report: What the agent told the user at the end.

    Returns:
        For each of the three criteria, whether it holds.

    Raises:
        CallError: Where the task's own golden calls fail: there is nothing to compare with.
    """
    golden = task.golden_outcome
    replies = [call.reply for call in office.completed_calls]
    is_faithful = all(
        mentions(report, information) and _was_looked_up(information, replies)
        for information in task.info
    )
    return VerificationResult(
        execution=office.serialize() == golden.content,
        fidelity=is_faithful,
        completeness=golden.operated_entries <= office.operated_entries,
    )


def _was_looked_up(information: str, replies: Iterable[str]) -> bool:
    """Whether a piece of information stands in the reply to a call that was really made."""
    return any(mentions(reply, information) for reply in replies)


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
