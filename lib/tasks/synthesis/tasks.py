"""A task: an instruction on a database, the golden calls that carry it out, and what must be reported.

After ToolOrchestra, appendix "Data Synthesis": instruction I, golden function calls A = a_1 .. a_l, and
short information o that must be mentioned on the way. `list_steps` gives the golden calls with their replies,
which is what supervised learning reads. Left out: how tasks are written (`writers`) and judged (`verification`).
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

from lib.experiment import artifacts
from lib.tasks.synthesis.database import DONE, Database, Entry
from lib.tasks.synthesis.domains import Records, TaskDomain

Call = tuple[str, ...]  # the name of a function, then its arguments


@dataclass(frozen=True)
class Source:
    """The records of one database.

    Attributes:
        domain: Its tables and functions.
        records: By table, key and column.
        subject: Whom or what they are about.
    """

    domain: TaskDomain
    records: Records
    subject: str = ""

    @cached_property
    def id(self) -> str:
        """The domain's name and a hash of schema and content: equal databases have one id."""
        digest = artifacts.sha256_json(
            {"domain": self.domain.model_dump(), "records": self.records}
        )
        return f"{self.domain.name}-{digest[:12]}"

    @cached_property
    def split(self) -> str:
        """train (8 of 10), dev or test, from the hash of the records: no content is in two splits."""
        content = artifacts.to_json({table: rows for table, rows in self.records.items() if rows})
        tenth = int.from_bytes(hashlib.sha256(content.encode()).digest()[:8], "little") % 10
        return {8: "dev", 9: "test"}.get(tenth, "train")

    def open(self) -> Database:
        """A database with these records. To open it often, open it once and `copy` it."""
        return Database(self.domain, self.records)


@dataclass(frozen=True)
class Golden:
    """What the golden calls of a task lead to.

    Attributes:
        content: `Database.serialize()` after them.
        operated_entries: Those that they read or wrote.
        replies: Theirs, in their order.
    """

    content: str
    operated_entries: frozenset[Entry]
    replies: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """One task.

    Attributes:
        id: Unique in its corpus.
        source: The database that it is about.
        intent: The purpose that it was written for.
        instruction: What the agent is told to do.
        calls: The golden calls.
        info: Words that must be mentioned.
        difficulty: 1, and one more for each complexity added.
        parent: The id of the task that it was made from; None for one of difficulty 1.
    """

    id: str
    source: Source
    intent: str
    instruction: str
    calls: tuple[Call, ...]
    info: tuple[str, ...] = ()
    difficulty: int = 1
    parent: str | None = None

    @property
    def domain(self) -> TaskDomain:
        """Of its database."""
        return self.source.domain

    @property
    def database(self) -> str:
        """The id of the database."""
        return self.source.id

    @property
    def records(self) -> Records:
        """Of its database, before anything is done."""
        return self.source.records

    @property
    def split(self) -> str:
        """Of its database."""
        return self.source.split

    @property
    def answer(self) -> str:
        """What to reply at the end: the information, or that it is done."""
        return " and ".join(self.info) or DONE

    def open(self) -> Database:
        """The database before anything is done. To try a task often, open it once and `copy` it."""
        return self.source.open()

    @cached_property
    def golden(self) -> Golden:
        """The golden calls carried out, once. Raises CallError where one of them fails."""
        database = self.open()
        replies = tuple(database.call(name, arguments) for name, *arguments in self.calls)
        return Golden(database.serialize(), frozenset(database.operated_entries), replies)


def list_steps(task: Task) -> list[tuple[str, str]]:
    """Carry the golden calls out.

    Args:
        task: Which.

    Returns:
        (call as a line, reply) of each.

    Raises:
        CallError: Where one of them fails.
    """
    calls_and_replies = zip(task.calls, task.golden.replies, strict=True)
    return [(" ".join(call), reply) for call, reply in calls_and_replies]
