"""The processes of a run: on several GPUs each takes its share of the episodes, and the first one writes.

share = join_processes(needs_several=options.sharded)
rows = share.gather_rows(evaluate(share.take(items)))
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import pandas as pd
import torch

from lib.config import ParamsError

# Others wait while the first process asks experts; PyTorch's ten minutes would end a run in the middle of that.
LONGEST_WAIT = timedelta(days=1)

Element = TypeVar("Element")


class ProcessShare:
    """Which part of the work this process does.

    Attributes:
        rank: Rank of this process.
        num_processes: In all.
        accelerator: Accelerator of accelerate.
    """

    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator
        self.rank: int = accelerator.process_index
        self.num_processes: int = accelerator.num_processes

    @property
    def is_first(self) -> bool:
        """Whether this process prints and writes."""
        return self.rank == 0

    @property
    def scope(self) -> str:
        """What a sentence of the report adds to a count of this process alone; nothing where it is the only one."""
        if self.num_processes == 1:
            return ""
        return f" (asked by the first of {self.num_processes} processes)"

    def divide(self, num_episodes: int) -> int:
        """How many of the episodes of an update are this process's.

        Raises:
            ParamsError: They cannot be shared equally.
        """
        share, remainder = divmod(num_episodes, self.num_processes)
        if remainder:
            raise ParamsError(
                f"{num_episodes} episodes cannot be shared by {self.num_processes} processes; take another --batch"
            )
        return share

    def take(self, items: Sequence[Element]) -> list[Element]:
        """Every n-th of the items, beginning with this process's number."""
        return list(items[self.rank :: self.num_processes])

    def gather_rows(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows of all processes, in every process."""
        if self.num_processes == 1:
            return rows
        from accelerate.utils import gather_object

        # As plain objects: columns of lists have no tensor.
        return pd.DataFrame(gather_object(rows.to_dict("records")))

    def add_up(self, counts: Mapping[str, float]) -> dict[str, float]:
        """Sums counts over all processes, and gives each of them the sums.

        Args:
            counts: Those of this process, by name.
        """
        if self.num_processes == 1:
            return dict(counts)
        from accelerate.utils import gather_object

        counts_by_process = gather_object([dict(counts)])
        return {
            name: sum(process_counts[name] for process_counts in counts_by_process)
            for name in counts
        }

    def trim_equally(self, samples: Sequence[Element]) -> list[Element]:
        """As many samples as every process has, for gradients are averaged over processes; filters leave some more."""
        if self.num_processes == 1:
            return list(samples)
        from accelerate.utils import gather_object

        return list(samples[: min(gather_object([len(samples)]))])

    def wait(self) -> None:
        """Wait until all processes are here."""
        if self.num_processes > 1:
            self.accelerator.wait_for_everyone()


def join_processes(needs_several: bool) -> ProcessShare:
    """Joins the processes that torchrun or `accelerate launch` has started.

    Args:
        needs_several: Whether a single process is refused, as in sharded training.

    Raises:
        ParamsError: There is one process only.
    """
    from accelerate import Accelerator, InitProcessGroupKwargs

    # Without GPUs, accelerate takes each of several processes for the only one unless it is told that it is on a CPU.
    is_one_of_several_on_cpu = "LOCAL_RANK" in os.environ and not torch.cuda.is_available()
    waiting = InitProcessGroupKwargs(timeout=LONGEST_WAIT)
    share = ProcessShare(Accelerator(cpu=is_one_of_several_on_cpu, kwargs_handlers=[waiting]))
    if needs_several and share.num_processes == 1:
        raise ParamsError(
            "--sharded divides the weights among several processes, and this is one; start the command by "
            "`torchrun --standalone --nproc-per-node 2 -m lib train ...`, or leave --sharded out"
        )
    return share
