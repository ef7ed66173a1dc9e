"""The domains of tau2-bench: tasks of customer service, each with a policy, tools and a database.

    domain = load_domain("retail")
    task = domain.tasks["0"]
    environment = domain.make_environment()     # of tau2, with the database as it is before any call

A database is read from its file once; every episode gets a copy. Left out: the toy domain "mock".
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from lib.tasks.item import Item, TaskError
from lib.tasks.tau2_bench.installation import import_tau2

DOMAINS = ("retail", "airline", "telecom")
PREFIX = "tau2:"  # of a source of `lib.tasks.load`
BASE_SPLIT = "base"  # the tasks that scores are published on
_DATABASES = {  # module and class of each database, that of the agent first
    "retail": (("data_model", "RetailDB", "RETAIL_DB_PATH"),),
    "airline": (("data_model", "FlightDB", "AIRLINE_DB_PATH"),),
    "telecom": (
        ("data_model", "TelecomDB", "TELECOM_DB_PATH"),
        ("user_data_model", "TelecomUserDB", "TELECOM_USER_DB_PATH"),
    ),
}


@dataclass(frozen=True)
class ServiceDomain:
    """A domain of customer service.

    Attributes:
        name: "retail", "airline" or "telecom".
        policy: The rules that the agent has to keep, in English.
        tasks: All tasks by id, as tau2-bench defines them.
        splits: Ids of the tasks of each split; "base" are those that scores are published on.
        module: Module of tau2, which makes environments.
        databases: The database of the agent and, in telecom, that of the user's phone, before any call: class and JSON.
    """

    name: str
    policy: str
    tasks: Mapping[str, Any]
    splits: Mapping[str, tuple[str, ...]]
    module: ModuleType
    databases: tuple[tuple[type, str], ...]

    def make_environment(self, solo_mode: bool = False) -> Any:
        """Make an environment of tau2 with copies of the databases.

        Args:
            solo_mode: As tau2's evaluator passes it; False is the only mode here: the user takes part.

        Returns:
            Tools and databases, before the initial actions of any task.
        """
        # Reading JSON takes less time than copying the objects.
        with _pause_garbage_collection():
            copies = [database.model_validate_json(text) for database, text in self.databases]
        if len(copies) == 1:
            return self.module.get_environment(db=copies[0], solo_mode=solo_mode)
        return self.module.get_environment(db=copies[0], user_db=copies[1], solo_mode=solo_mode)


@contextmanager
def _pause_garbage_collection() -> Iterator[None]:
    """Pause the garbage collector, which takes half of the time of making a hundred thousand small objects."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@lru_cache(maxsize=len(DOMAINS))
def load_domain(name: str) -> ServiceDomain:
    """Read a domain from the package.

    Args:
        name: One of DOMAINS.

    Returns:
        The domain, the same object each time.

    Raises:
        TaskError: There is no such domain, or the package is not installed.
    """
    if name not in DOMAINS:
        raise TaskError(f"tau2-bench has no domain {name!r}; there are {', '.join(DOMAINS)}")
    module = import_tau2(f"tau2.domains.{name}.environment")
    paths = import_tau2(f"tau2.domains.{name}.utils")
    databases = []
    for module_name, class_name, path_name in _DATABASES[name]:
        database_class = getattr(import_tau2(f"tau2.domains.{name}.{module_name}"), class_name)
        database = database_class.load(getattr(paths, path_name))
        databases.append((database_class, database.model_dump_json()))
    # The split "None" is all tasks that there are.
    tasks = {task.id: task for task in module.get_tasks(None)}
    splits = {split: tuple(ids) for split, ids in module.get_tasks_split().items()}
    policy = module.get_environment().get_policy()
    return ServiceDomain(name, policy, tasks, splits, module, tuple(databases))


def list_items(domain: ServiceDomain, split: str | None = None) -> list[Item]:
    """List the tasks of a split as items.

    Args:
        domain: Domain of tau2-bench.
        split: "train", "test", "base" and in telecom "small" or "full"; None for "base".

    Returns:
        Items in the order of the package: the prompt is the reason why the customer calls, the system message the
        agent's policy. There is no reference: the final database is judged, not a reply.

    Raises:
        TaskError: There is no such split.
    """
    split = split or BASE_SPLIT
    if split not in domain.splits:
        raise TaskError(
            f"{PREFIX}{domain.name} has no split {split!r}; there are {', '.join(domain.splits)}"
        )
    ids = set(domain.splits[split])
    return [make_item(domain, task) for task in domain.tasks.values() if task.id in ids]


def make_item(domain: ServiceDomain, task: Any) -> Item:
    """Make an item of a task of tau2-bench, see `list_items`."""
    instructions = task.user_scenario.instructions
    reason = instructions if isinstance(instructions, str) else instructions.reason_for_call
    num_actions = len(task.evaluation_criteria.actions or [])
    return Item(
        prompt=" ".join(reason.split()),
        reference="",
        worked_solution="",
        group=domain.name,
        difficulty=max(1, num_actions),
        id=task.id,
        history=(("system", domain.policy),),
        metadata={"domain": domain.name, "task": task.id},
    )
