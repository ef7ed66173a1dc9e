"""The course of every experiment: stages of jobs that build on one another, and the tables that they leave.

    stages = [Stage("experts", first_jobs, prepare), Stage("training controllers", jobs, train_and_test)]
    finished = run_stages(stages, context)
    episodes = finished.read_tables("episodes")

A system says which jobs there are (`Job`: a label, and the settings that decide the result) and what the work of a job
is: a function of a `JobRun`. Where a job lies, whether it is finished, in which process it runs and what its progress
line says is decided here and in `sweep`. A job builds on another by its key: `settings["inputs"]` names the keys.
Left out: what a system measures, and how many seeds it needs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from lib.config.types import Section
from lib.experiment import artifacts, sweep
from lib.experiment.run_context import RunContext, read_tables
from lib.experiment.sweep import Job, JobProgress

SectionType = TypeVar("SectionType", bound=Section)


class JobRun:
    """A job at work: what it was handed, the folder that it writes to, and the jobs that it builds on."""

    def __init__(self, job: Job, folder: Path, progress: JobProgress, context: RunContext) -> None:
        """Brings together what a job works with.

        Args:
            job: Its settings are all that may decide its result.
            folder: Where it writes its files.
            progress: Called with the fraction of the work that is done.
            context: How the experiment is carried out, which changes no result.
        """
        self.job = job
        self.folder = Path(folder)
        self.report_progress = progress
        self.context = context

    @property
    def settings(self) -> Mapping[str, Any]:
        """Everything that decides the result."""
        return self.job.settings

    @property
    def kind(self) -> str:
        """Which kind of job it is."""
        return self.settings["job"]

    @property
    def seed(self) -> int:
        """Number of the repetition."""
        return self.settings["seed"]

    def read_section(self, name: str, section: type[SectionType]) -> SectionType:
        """The parameters under `name`, with the fields that the job was handed and no others."""
        return section.from_job_settings(self.settings[name])

    def input_folder(self, name: str) -> Path:
        """The folder of a finished job that this one builds on.

        Args:
            name: What `settings["inputs"]`, or the settings themselves, call the key of that job.
        """
        keys = self.settings.get("inputs", self.settings)
        return Path(self.context.inputs[keys[name]])

    def write_table(self, name: str, rows: pd.DataFrame) -> None:
        """Writes a table into the job's folder, where `FinishedJobs.read_tables` finds it."""
        artifacts.write_parquet(self.folder / f"{name}.parquet", rows)


Work = Callable[[JobRun], Any]


@dataclass(frozen=True)
class Stage:
    """Jobs that may run side by side, after those of the stages before.

    Attributes:
        label: What the progress line calls them.
        jobs: The jobs.
        work: Does one of them and returns something that JSON can hold. It must be importable by name, or a partial of
            such a function.
        workers: Processes at a time; None leaves it to the context.
    """

    label: str
    jobs: Sequence[Job]
    work: Work
    workers: int | None = None


@dataclass(frozen=True)
class FinishedJobs:
    """The jobs of an experiment that is done.

    Attributes:
        jobs: In the order of the stages.
        receipts: Receipts of each job, {"result", "seconds"}.
        runs: Folder of the jobs' folders.
    """

    jobs: tuple[Job, ...]
    receipts: tuple[dict[str, Any], ...]
    runs: Path

    def read_tables(
        self, name: str, default_method: str = "", with_identity: bool = True
    ) -> pd.DataFrame:
        """The table `name` of all jobs that wrote one, stacked; see `run_context.read_tables`."""
        return read_tables(self.jobs, self.runs, name, default_method, with_identity)

    def list_results(self) -> list[tuple[Job, dict[str, Any]]]:
        """Every job with its receipt."""
        return list(zip(self.jobs, self.receipts, strict=True))


def run_stages(
    stages: Sequence[Stage],
    context: RunContext,
    on_exit: Callable[[], Any] | None = None,
    announcement: str = "",
) -> FinishedJobs:
    """Runs what is not finished yet, stage after stage.

    Args:
        stages: A stage finds the folders of the jobs before it in `JobRun.input_folder`.
        context: How the experiment is carried out; jobs lie in `context.runs`.
        on_exit: Called at the end, also after an error or an interrupt: to keep replies that were paid for.
        announcement: Stands on the terminal before the first job that is not finished: what it may cost.

    Returns:
        All jobs, with what they left.

    Raises:
        ValueError: Two jobs of a stage have one label or one key.
        Exception: Whatever a job raises, after those that were running have been stopped.
    """
    jobs: list[Job] = []
    receipts: list[dict[str, Any]] = []
    open_jobs = [
        job
        for stage in stages
        for job in stage.jobs
        if sweep.read_receipt(job, context.runs) is None
    ]
    # Costs matter only where a call may still be made; a finished run announces nothing.
    if announcement and open_jobs:
        sweep.print_to_terminal(announcement)
    try:
        for stage in stages:
            # Jobs of this stage find the folders of all stages before it.
            inputs = {job.key: str(job.folder(context.runs)) for job in jobs}
            stage_context = replace(context, inputs={**context.inputs, **inputs})
            work = partial(run_job, work=stage.work, context=stage_context)
            workers = stage.workers or context.workers
            receipts += sweep.run(work, stage.jobs, context.runs, workers, stage.label)
            jobs += stage.jobs
    finally:
        if on_exit is not None:
            on_exit()
    return FinishedJobs(tuple(jobs), tuple(receipts), Path(context.runs))


def run_job(job: Job, folder: Path, progress: JobProgress, work: Work, context: RunContext) -> Any:
    """Does one job, as `sweep` calls it."""
    return work(JobRun(job, folder, progress, context))


def use_one_thread() -> None:
    """Lets torch use one thread, and count numbers near zero as zero: as fast, and the same in every process."""
    import torch  # imported late: jobs without networks do not wait for it

    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
