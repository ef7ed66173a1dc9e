"""One small job of every system, with the numbers that it must go on giving.

`tests/golden/SYSTEM.py` says how the small job is run (`small_jobs`); `tests/golden/SYSTEM.json` keeps its settings
with their VERSIONs, its results, the class of processor that gave them and a hash of each function that ran, so that
a message can name those that were edited since; `tests/test_golden.py` runs it anew.

    python -m tests.golden                 compare all, and say what differs
    python -m tests.golden --record NAME   keep what the jobs of a system give now (after a VERSION was raised)
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lib.experiment.sweep import Job

SYSTEMS = (
    "language_models",
    "policy_zoo",
    "orchestration",
    "conductor",
    "budgeted_routing",
    "tool_orchestration",
    "agent_configuration",
    "recorded_outcomes",
)


@dataclass(frozen=True)
class SmallJob:
    """A job that takes seconds, how it is run, and what of its result is kept.

    work: work(job, folder, progress), as `lib.experiment.sweep.run` calls it.
    summarize: summarize(folder, result) gives numbers by name, from the job's files and what `work` returned.
    """

    job: Job
    work: Callable[[Job, Path, Callable[[float], None]], Any]
    summarize: Callable[[Path, Any], dict[str, Any]]
