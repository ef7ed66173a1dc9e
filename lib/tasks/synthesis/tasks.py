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
        """Create an SQLite database in memory with these records. To need it often, open it once and `copy` it."""
        return Database(self.domain, self.records)


@dataclass(frozen=True)
class GoldenOutcome:
    """What the golden calls of a task, the right sequence of tool calls, lead to on the task's database.

    Attributes:
        content: All records after the calls, as `Database.serialize` writes them.
        operated_entries: (table, key) of the entries that the calls read or wrote.
        replies: The reply to each call, in order.
    """

    content: str
    operated_entries: frozenset[Entry]
    replies: tuple[str, ...]


@dataclass(frozen=True)
class Task:
    """A task for an agent with tools: an instruction to read or change records of a database.

    Attributes:
        id: Unique in its corpus.
        source: The database that it is about.
        intent: The purpose that it was written for.
        instruction: What the agent is told to do.
        calls: The golden calls, the right sequence of tool calls.
        info: Values that the agent must mention in its reply.
        difficulty: 1, and one more for each complexity added.
        parent: The id of the easier task that it was made from; None for a task of difficulty 1.
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
        """The tables and functions of its database."""
        return self.source.domain

    @property
    def database(self) -> str:
        """The id of the database."""
        return self.source.id

    @property
    def records(self) -> Records:
        """The records of its database before any call: value by table, key and column."""
        return self.source.records

    @property
    def split(self) -> str:
        """The split of its database: "train", "dev" or "test"."""
        return self.source.split

    @property
    def answer(self) -> str:
        """The right reply at the end: the values to be mentioned, or "done"."""
        return " and ".join(self.info) or DONE

    def open(self) -> Database:
        """Create its database as it is before any call. To try a task often, open it once and `copy` it."""
        return self.source.open()

    @cached_property
    def golden_outcome(self) -> GoldenOutcome:
        """Execute the golden calls (the right tool calls) on a fresh database, once; the outcome is kept.

        Raises:
            CallError: Where one of the calls fails.
        """
        database = self.open()
        replies = []
        for function_name, *arguments in self.calls:
            replies.append(database.call(function_name, arguments))
        return GoldenOutcome(
            content=database.serialize(),
            operated_entries=frozenset(database.operated_entries),
            replies=tuple(replies),
        )


def list_steps(task: Task) -> list[tuple[str, str]]:
    """List the golden calls of an agent's task, the right sequence of tool calls, each with the reply that it gets.

    Args:
        task: An instruction on a database, with its golden calls.

    Returns:
        (call, reply) of each, the call as a line of words: ("lookup friend Ana", "Cy").

    Raises:
        CallError: Where a call fails on the task's database.
    """
    # The calls are executed the first time that the outcome is asked for.
    replies = task.golden_outcome.replies
    steps = []
    for call, reply in zip(task.calls, replies, strict=True):
        steps.append((" ".join(call), reply))
    return steps
