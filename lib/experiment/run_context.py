"""What the studies of all systems share: how a sweep is carried out, and the tables that its jobs write."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from lib.config import LLMSettings, Params
from lib.experiment import artifacts
from lib.experiment.sweep import Job


@dataclass(frozen=True)
class RunContext:
    """How a study is carried out: what changes none of its numbers, and so is in no job's key.

    Attributes:
        llm_json: Settings of the language model clients, as JSON: addresses, names of keys, timeouts, the spending
            limit. What of them decides a reply is in the settings of the jobs, see `lib.language_models.cache_key`.
        models: Folder of the lab models.
        runs: Folder of the jobs.
        cassettes: Folder of recorded replies.
        workers: Processes that share the client's concurrency; None is one per core.
        inputs: Folders of finished jobs that others build on, by key.
        save_every: Updates of a training between two checkpoints.
    """

    llm_json: str
    models: str
    runs: str
    cassettes: str
    workers: int | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    save_every: int = 1

    @classmethod
    def of(
        cls,
        params: Params,
        models: str | Path,
        runs: str | Path,
        cassettes: str | Path,
        workers: int | None = None,
        save_every: int = 1,
    ) -> "RunContext":
        """Builds the context of an experiment from its parameters and folders.

        Args:
            params: The typed settings.
            models: Folder of the small models.
            runs: Folder of the jobs' results.
            cassettes: Folder of recorded replies.
            workers: Processes that run jobs side by side; None for one per core.
            save_every: Updates between two checkpoints of a training.
        """
        return cls(
            llm_json=params.llm.model_dump_json(),
            models=str(models),
            runs=str(runs),
            cassettes=str(cassettes),
            workers=workers,
            save_every=save_every,
        )

    @classmethod
    def without_models(cls, runs: str | Path, workers: int | None = None) -> "RunContext":
        """The context of an experiment that asks no language model and loads none."""
        return cls(llm_json="{}", models="", runs=str(runs), cassettes="", workers=workers)

    @property
    def llm(self) -> LLMSettings:
        return _parse_llm(self.llm_json)


@cache
def _parse_llm(llm_json: str) -> LLMSettings:
    """Parses the settings once per process: a job asks for them many times."""
    return LLMSettings.model_validate_json(llm_json)


def read_tables(
    jobs: Sequence[Job],
    runs: str | Path,
    name: str,
    default_method: str = "",
    with_identity: bool = True,
) -> pd.DataFrame:
    """Reads the table `name` of all jobs that wrote one, and stacks their rows.

    Args:
        jobs: Finished jobs.
        runs: Folder of their folders.
        name: Name of the Parquet file, without its suffix.
        default_method: What the column method says for a job whose settings name no method.
        with_identity: Whether to add the columns method and seed from the jobs' settings.

    Returns:
        The rows in the order of the jobs; empty where no job wrote the table.
    """
    tables = []
    for job in jobs:
        path = job.folder(runs) / f"{name}.parquet"
        if path.exists():
            columns = _get_method_and_seed(job, default_method) if with_identity else {}
            tables.append(artifacts.read_parquet(path).assign(**columns))
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _get_method_and_seed(job: Job, default_method: str) -> dict[str, Any]:
    variant = job.settings["variant"]
    method = variant["name"] if variant else default_method
    return {"method": method, "seed": job.settings["seed"]}
