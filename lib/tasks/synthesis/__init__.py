"""Tasks for an agent with tools, synthesised: domains, records, functions, tasks, harder tasks, filters.

The pipeline of ToolOrchestra (appendix "Data Synthesis") in miniature and for real, in SQLite. `synthesize`
makes a corpus, by a procedure or by a language model; `verify_trajectory` says whether a trajectory solved a task.
"""

from collections.abc import Sequence

import numpy as np

from lib.experiment import seeds
from lib.tasks.item import SPLITS, TaskError
from lib.tasks.synthesis.corpus import Corpus, load_corpus
from lib.tasks.synthesis.database import CallError, CompletedCall, Database, find_problems
from lib.tasks.synthesis.domains import DOMAINS, Column, Function, Records, TableSchema, TaskDomain
from lib.tasks.synthesis.filters import DropRecord, Solver, filter_tasks, find_fault
from lib.tasks.synthesis.llm_writer import LLMWriter
from lib.tasks.synthesis.tasks import Call, GoldenOutcome, Source, Task, list_steps
from lib.tasks.synthesis.verification import VerificationResult, mentions, verify_trajectory
from lib.tasks.synthesis.writers import Draft, ProceduralWriter, Writer

VERSION = 2  # of the office tasks of this package, and of how trajectories are judged
HARDEST = 3


def synthesize(
    writer: Writer | Sequence[TaskDomain] = DOMAINS,
    databases: int = 40,
    tasks_per_database: int = 6,
    seed: int = 0,
    split: str | None = None,
) -> Corpus:
    """Make a corpus of tasks for an agent with tools: databases, and instructions to read and change their records.

    Tasks come in chains, each harder than the one before it; a task that a filter drops ends its chain. A writer that
    cannot write enough leaves the corpus short. Equal arguments give equal corpora.

    Args:
        writer: Writes domains, records and tasks; or domains, about which a `ProceduralWriter` writes.
        databases: Number of databases, shared evenly among the domains.
        tasks_per_database: Number of tasks at most.
        seed: Seed of all random numbers.
        split: "train", "dev" or "test": only databases of this split, which a hash of their records decides. None
            takes databases of all splits.

    Returns:
        The databases, the tasks that pass the filters, and records of what was dropped and why.

    Raises:
        TaskError: For an unknown split, fewer than one database or task, or two domains of one name.
    """
    if split not in (None, *SPLITS):
        raise TaskError(f"unknown split {split!r}; there are {', '.join(SPLITS)}")
    if databases < 1 or tasks_per_database < 1:
        raise TaskError(
            f"a corpus has databases and tasks, got {databases} and {tasks_per_database}"
        )
    if isinstance(writer, Sequence):
        writer = ProceduralWriter(tuple(writer))
    writer.dropped.clear()
    domains = writer.write_domains()
    domain_names = [domain.name for domain in domains]
    if len(set(domain_names)) < len(domain_names):
        raise TaskError(f"two domains have one name: {', '.join(domain_names)}")

    sources: list[Source] = []
    tasks: list[Task] = []
    for i, domain in enumerate(domains):
        # If the number of databases is no multiple of the number of domains, the first domains have one more.
        num_databases = databases // len(domains) + (i < databases % len(domains))
        for source, rng in _generate_databases(writer, domain, num_databases, split, seed):
            sources.append(source)
            tasks += _write_task_chains(writer, source, tasks_per_database, rng)
    fit_tasks, dropped = filter_tasks(tasks)
    return Corpus(tuple(sources), tuple(fit_tasks), (*writer.dropped, *dropped))


def _generate_databases(
    writer: Writer, domain: TaskDomain, n: int, split: str | None, seed: int
) -> list[tuple[Source, np.random.Generator]]:
    """Generate different databases of one domain, each from a subject of its own.

    Args:
        writer: Writes the subjects (what a database is about) and the records.
        domain: The tables and functions of the databases.
        n: Number of databases wanted.
        split: "train", "dev" or "test": databases of other splits are left out. None takes all.
        seed: Seed of the random numbers.

    Returns:
        (database, random generator for its tasks) of up to n databases; fewer where the writer gives too little.
    """
    stream = ("tasks", "synthesis", domain.name)
    # Databases are generated first and sorted into splits afterwards, by a hash of their records (`Source.split`). A
    # split is a fraction of them, so it takes many attempts: `patience` for each database wanted. Without a split two
    # attempts are enough, because only invalid records and duplicates are left out.
    attempts_per_database = writer.patience if split else 2
    num_subjects = n * attempts_per_database
    subjects = writer.write_subjects(domain, num_subjects, seeds.rng(*stream, seed=seed))

    sources: dict[str, tuple[Source, np.random.Generator]] = {}  # by id
    for i, subject in enumerate(subjects):
        if len(sources) == n:
            break
        rng = seeds.rng(*stream, i, seed=seed)
        records = writer.write_records(domain, subject, rng)
        if records is None:  # the writer gave no valid records
            continue
        source = Source(domain, records, subject)
        if split in (None, source.split):
            # Equal databases have equal ids; the first one counts.
            sources.setdefault(source.id, (source, rng))
    return list(sources.values())


def _write_task_chains(
    writer: Writer, source: Source, n: int, rng: np.random.Generator
) -> list[Task]:
    """Write tasks on one database in chains: a task for an intent, a harder version of it, and a harder one of that.

    Args:
        writer: Writes the intents (purposes in a few words) and the tasks.
        source: The database.
        n: Number of tasks at most.
        rng: Random numbers.

    Returns:
        The tasks that passed the filters that need no solver. The others are added to `writer.dropped`.
    """
    tasks: list[Task] = []
    num_drafts = 0
    # Twice as many intents as tasks, as some intents give no fit task.
    for intent in writer.write_intents(source, 2 * n, rng):
        draft = writer.write_task(source, intent, rng)
        parent = None
        for difficulty in range(1, HARDEST + 1):
            if draft is None or len(tasks) == n:
                break
            task = Task(
                id=f"{source.id}-{num_drafts}",
                source=source,
                intent=intent,
                instruction=draft.instruction,
                calls=draft.calls,
                info=draft.info,
                difficulty=difficulty,
                parent=parent,
            )
            num_drafts += 1
            # An unfit task ends its chain: a harder version of it would be unfit, too, or mean something else.
            fault = find_fault(task)
            is_duplicate = any(task.instruction == other.instruction for other in tasks)
            if fault is None and is_duplicate:
                fault = DropRecord("task", "twice", source.domain.name, task.instruction, task)
            if fault is not None:
                writer.dropped.append(fault)
                break
            tasks.append(task)
            parent = task.id
            if difficulty < HARDEST:
                draft = writer.write_harder_task(source, draft, rng)
    return tasks
