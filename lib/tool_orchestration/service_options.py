"""What the evaluation and the training on customer service (tau2-bench) share: options, tasks, opened models."""

from __future__ import annotations

import argparse
import contextlib
import math
from collections.abc import Iterator, Sequence
from pathlib import Path

from lib.config import LLMSettings, ParamsError
from lib.language_models.local_models import open_local
from lib.llm.open_models import export_recording, open_models
from lib.rl.expert_pool import ExpertPool
from lib.tasks import Dataset, load
from lib.tasks.tau2_bench import PREFIX
from lib.tool_orchestration.make_tasks_command import split_names

RECORDING = "service"  # name of the recording and of the spending limit under --out


def add_service_options(group: argparse._ActionsContainer) -> None:
    """Add the options on tasks, the user's model, turns and the spending limit to a parser.

    Args:
        group: The parser, or a group of its options.
    """
    group.add_argument(
        "--tasks",
        required=True,
        type=split_names,
        metavar="tau2:DOMAIN,...",
        help="tau2:retail, tau2:airline, tau2:telecom, one or more",
    )
    group.add_argument(
        "--user", required=True, metavar="NAME", help="the model that plays the user"
    )
    group.add_argument(
        "--turns", type=int, default=50, metavar="N", help="of agent and user; default: 50"
    )
    group.add_argument(
        "--max-usd",
        required=True,
        type=float,
        metavar="USD",
        help="spending limit of all runs with this --out together; 0 where no call is paid for",
    )
    group.add_argument("--plan-only", action="store_true", help="print the plan and end")


def check_numbers(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Raise ParamsError for a number that cannot be.

    Args:
        options: Options of the command line.
        names: Options that are counts, or None.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and value < 1:
            raise ParamsError(f"--{name} {value}: give a whole number from 1 on")
    if not 0 <= options.max_usd < math.inf:
        raise ParamsError(f"--max-usd {options.max_usd}: give US dollars, 0 or more")


def load_tasks(
    sources: Sequence[str], split: str | None, limit: int | None, seed: int
) -> list[Dataset]:
    """Load the tasks of domains.

    Args:
        sources: As tau2:retail.
        split: Split of the domains; None for the tasks that scores are published on.
        limit: Tasks of each domain at the most, drawn at random; None for all.
        seed: Seed of the draw.

    Returns:
        A data set per domain.

    Raises:
        ParamsError: A source is no domain of tau2-bench.
        TaskError: There is no such domain or split, or tau2-bench is not installed.
    """
    for source in sources:
        if not source.startswith(PREFIX):
            raise ParamsError(f"--tasks {source}: name a domain as {PREFIX}retail")
    return [load(source, split=split, limit=limit, seed=seed) for source in sources]


@contextlib.contextmanager
def open_pool(
    llm: LLMSettings,
    names: Sequence[str],
    folder: Path,
    temperature: float | None,
    experts: Sequence[str] = (),
    rank: int = 0,
    num_processes: int = 1,
) -> Iterator[ExpertPool]:
    """Open models; what endpoints reply is recorded under the run's folder.

    Args:
        llm: The models, with prices and the spending limit.
        names: Names of those that may be asked, each once.
        folder: Folder of the run.
        temperature: Temperature of all models; None for that of each model's settings.
        experts: Those among them that are asked questions by `ExpertPool.ask`, as `measure_calls` does.
        rank: Rank of this process.
        num_processes: Number of processes that ask side by side.

    Yields:
        The models under their own names; they are closed behind it.
    """
    models = open_models(llm, names, RECORDING, folder, folder, num_processes, open_local())
    try:
        model_names = {name: name for name in experts}
        with ExpertPool(models, model_names, temperature, tells_rules=False) as pool:
            yield pool
    finally:
        # Replies are kept where the run is stopped too, so that none is paid for twice.
        if rank == 0:
            export_recording(llm, RECORDING, folder)
