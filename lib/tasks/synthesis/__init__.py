"""Tasks for an agent with tools, synthesised: domains, records, functions, tasks, harder tasks, filters.

The pipeline of ToolOrchestra (appendix "Data Synthesis") in miniature and for real, in SQLite. `synthesize`
makes a corpus, by a procedure or by a language model; `judge` says whether a trajectory solved a task.
"""

from collections.abc import Sequence
from itertools import count

import numpy as np

from lib.experiment import seeds
from lib.tasks.item import SPLITS, TaskError
from lib.tasks.synthesis.corpus import Corpus, load
from lib.tasks.synthesis.database import CallError, Database, check
from lib.tasks.synthesis.domains import DOMAINS, Column, Function, Records, TableSchema, TaskDomain
from lib.tasks.synthesis.filters import Dropped, Solver, fault, sift
from lib.tasks.synthesis.llm_writer import LLMWriter
from lib.tasks.synthesis.tasks import Call, Golden, Source, Task, steps
from lib.tasks.synthesis.verification import VerificationResult, judge, mentions
from lib.tasks.synthesis.writers import Draft, Procedural, Writer

VERSION = 1  # of the office tasks of this package
HARDEST = 3


def synthesize(
    writer: Writer | Sequence[TaskDomain] = DOMAINS,
    databases: int = 40,
    tasks_per_database: int = 6,
    seed: int = 0,
    split: str | None = None,
) -> Corpus:
    """A corpus: `databases` of them, shared evenly among the domains, with up to so many tasks on each.

    writer: who writes, or the domains that a procedure writes about; split: only databases of train, dev or
    test, which are told apart by their content; None takes them as they come. Tasks come in chains, each
    harder than the one before it; what a filter drops is not made harder.
    Equal arguments give equal corpora. A writer that cannot write enough leaves the corpus short. Raises
    TaskError for an unknown split, fewer than one database or task, or two domains of one name.
    """
    if split not in (None, *SPLITS):
        raise TaskError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    if databases < 1 or tasks_per_database < 1:
        raise TaskError(
            f"a corpus has databases and tasks, got {databases} and {tasks_per_database}"
        )
    if isinstance(writer, Sequence):
        writer = Procedural(tuple(writer))
    writer.dropped.clear()
    domains = writer.domains()
    if len({domain.name for domain in domains}) < len(domains):
        raise TaskError(
            f"two domains have one name: {', '.join(domain.name for domain in domains)}"
        )
    sources: list[Source] = []
    tasks: list[Task] = []
    for i, domain in enumerate(domains):
        wanted = databases // len(domains) + (i < databases % len(domains))
        for source, rng in _sources(writer, domain, wanted, split, seed):
            sources.append(source)
            tasks += _chains(writer, source, tasks_per_database, rng)
    kept, unfit = sift(tasks)
    return Corpus(tuple(sources), tuple(kept), (*writer.dropped, *unfit))


def _sources(
    writer: Writer, domain: TaskDomain, wanted: int, split: str | None, seed: int
) -> list[tuple[Source, np.random.Generator]]:
    """Databases of a split, no two of the same content, each with the generator that its tasks are drawn from."""
    found: dict[str, tuple[Source, np.random.Generator]] = {}
    most = wanted * (writer.patience if split else 2)
    subjects = writer.subjects(
        domain, most, seeds.rng("tasks", "synthesis", domain.name, seed=seed)
    )
    for i, subject in enumerate(subjects):
        if len(found) == wanted:
            break
        rng = seeds.rng("tasks", "synthesis", domain.name, i, seed=seed)
        records = writer.records(domain, subject, rng)
        if records is not None:
            source = Source(domain, records, subject)
            if split in (None, source.split):
                found.setdefault(source.id, (source, rng))
    return list(found.values())


def _chains(writer: Writer, source: Source, n: int, rng: np.random.Generator) -> list[Task]:
    """Up to n tasks on one database: a task for an intent, a harder one out of it, and a harder one out of that."""
    tasks: list[Task] = []
    number = count()
    for intent in writer.intents(source, 2 * n, rng):
        draft, parent = writer.task(source, intent, rng), None
        for difficulty in range(1, HARDEST + 1):
            if draft is None or len(tasks) == n:
                break
            name = f"{source.id}-{next(number)}"
            task = Task(
                name, source, intent, draft.instruction, draft.calls, draft.info, difficulty, parent
            )
            unfit = fault(task)
            if unfit is None and any(task.instruction == other.instruction for other in tasks):
                unfit = Dropped("task", "twice", source.domain.name, task.instruction, task)
            if unfit is not None:
                writer.dropped.append(unfit)
                break
            tasks.append(task)
            parent = task.id
            draft = writer.evolve(source, draft, rng) if difficulty < HARDEST else None
    return tasks
