"""Train the lab models that are not trained yet, in processes that resume, and put them in one place.

One cell of the sweep is one model. A model with a `base` starts from another one's weights and waits
for it. Working files live under `data/runs/models`, finished models in `data/models`.
"""

from __future__ import annotations

import shutil
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pandas as pd
import torch
import transformers

from lib import params as parameters
from lib import store, sweep
from lib.models import checkpoints
from lib.models.checkpoints import MODELS
from lib.models.training import NotLearned, Training
from lib.params import ROOT, LabModel, LabSettings
from lib.sources import deciding

RUNS = ROOT / "data/runs/models"
_WRITERS = {"lib.models.agent", "lib.models.team"}
_WRITTEN = {"agent": {"lib.models.agent"}, "team": _WRITERS}  # modules that write the traces of a style


@dataclass(frozen=True)
class Lab:
    """By name the folders of the trained models, the seconds and the attempts that they took; and their curves."""

    folders: dict[str, Path]
    curves: pd.DataFrame
    seconds: dict[str, float]
    attempts: dict[str, int]


def cell(settings: LabSettings, name: str) -> sweep.Cell:
    """The cell of one model; that of its base is part of its settings."""
    model = settings.models[name]
    sources = deciding("lib.models.build", without=_WRITERS - _written(model))
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    held = {"model": model.model_dump(), "seed": settings.seed, "sources": sources, **versions}
    if model.base:
        held["base"] = cell(settings, model.base).digest
    return sweep.Cell(name, held)


def _written(model: LabModel) -> set[str]:
    """Who writes traces for a model: who edits those of one style need not train the other models anew."""
    styles = {course.style for course in (*model.diet, model.target)}
    return {name for style in styles for name in _WRITTEN.get(style, ())}


def train_cell(cell: sweep.Cell, folder: Path, progress) -> dict[str, int]:
    """Train one model; leaves it in `folder`, and its curve, which grows while it learns.

    The transition is sharp and depends on the seed: a training that misses its target is tried again with
    another seed. Raises NotLearned if none of the attempts meets it.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    settings = parameters.validate(cell.settings["model"], LabModel)
    start = None
    if settings.base:
        start = checkpoints.load(folder.parent / f"{settings.base}-{cell.settings['base']}" / "model")
    for attempt in range(settings.attempts):
        missed = folder / f"missed-{attempt}.json"
        if missed.exists():  # by a run that was killed later
            continue
        training = Training(settings, cell.settings["seed"] + 1_000 * attempt, deepcopy(start))
        try:
            checkpoints.save(training.run(folder, progress), folder / "model")
            return {"updates": training.step, "attempt": attempt + 1}
        except NotLearned as error:
            (folder / "checkpoint.safetensors").unlink(missing_ok=True)
            store.write_json(missed, str(error))
    raise NotLearned(f"{cell.name}: {store.read_json(missed)}")


def build(settings: LabSettings, out: str | Path = MODELS, runs: str | Path = RUNS) -> Lab:
    """Train what is not trained yet and put every model under `out`. Raises NotLearned."""
    runs, out = Path(runs), Path(out)
    cells = {name: cell(settings, name) for name in settings.models}
    chains = _chains(settings)
    label = f"training {len(cells)} models"
    done = sweep.run_chains(train_cell, [[cells[n] for n in each] for each in chains], runs, settings.jobs, label)
    receipts = dict(zip(chain.from_iterable(chains), done, strict=True))
    folders = {name: out / name for name in cells}
    for name, one in cells.items():
        shutil.rmtree(folders[name], ignore_errors=True)
        shutil.copytree(one.folder(runs) / "model", folders[name])
    seconds = {name: receipt["seconds"] for name, receipt in receipts.items()}
    return Lab(folders, curves(settings, runs), seconds, {n: r["result"]["attempt"] for n, r in receipts.items()})


def curves(settings: LabSettings, runs: str | Path = RUNS) -> pd.DataFrame:
    """The learning curves as far as they have come: model, step, loss, accuracy; one row per look."""
    places = {name: cell(settings, name).folder(Path(runs)) / "curve.parquet" for name in settings.models}
    found = [store.read_parquet(place).assign(model=name) for name, place in places.items() if place.exists()]
    return pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=["step", "loss", "accuracy", "model"])


def _chains(settings: LabSettings) -> list[list[str]]:
    """Every model without a base with those that start from it after it, the heaviest chain first: two chains at
    once keep two cores busy to the end, which waves of equal depth do not."""
    models = settings.models

    def following(name: str) -> list[str]:
        return [name, *(n for other in models if models[other].base == name for n in following(other))]

    chains = [following(name) for name in models if models[name].base is None]
    return sorted(chains, key=lambda each: -sum(_weight(models[name]) for name in each))


def _weight(model: LabModel) -> int:
    """About how long its training takes: updates times dialogues times weights."""
    return model.steps * model.batch * model.layers * model.hidden * (4 * model.hidden + 3 * model.intermediate)
