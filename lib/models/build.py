"""Every lab model in one place: shipped ones are unpacked, others are trained, in processes that resume.

One cell of the sweep is one model. What decides its weights is its recipe: settings, seed, code, and the recipe of
its `base`, the model whose weights it starts from. Where the recipe is the one that data/lab was trained by, the cell
unpacks; where it is not (somebody changed params.yaml), it trains. Working files live under `data/runs/models`,
finished models in `data/models`.
"""

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
from lib.models import checkpoints, shipped, situations
from lib.models.checkpoints import MODELS
from lib.models.training import NotLearned, Training
from lib.params import ROOT, LabModel, LabSettings
from lib.sources import deciding

RUNS = ROOT / "data/runs/models"
# how a model is asked and where it is put changes no weight
_LOOKING = ("build", "shipped", "answering", "batching", "forward", "generation")
_WRITERS = {"lib.models.agent", "lib.models.team"}
_WRITTEN = {"agent": {"lib.models.agent"}, "team": _WRITERS}  # modules that write the traces of a style
_DRAWN = {situations.FAMILY: situations.__name__}  # modules that draw a family that the others are not taught


@dataclass(frozen=True)
class Lab:
    """By name the folders of the models and the attempts that their trainings took; and their curves."""

    folders: dict[str, Path]
    curves: pd.DataFrame
    attempts: dict[str, int]


def recipe(settings: LabSettings, name: str) -> str:
    """The hash of everything that a model's weights follow from, but for versions of libraries and the processor."""
    model = settings.models[name]
    without = {*_WRITERS - _written(model), *(f"lib.models.{each}" for each in _LOOKING)}
    held = {"model": model.model_dump(), "seed": settings.seed}
    drawn = sorted({_DRAWN[course.family] for course in model.diet if course.family in _DRAWN})
    held["sources"] = deciding("lib.models.training", *drawn, without=without)
    if model.base:
        held["base"] = recipe(settings, model.base)
    return store.sha256_json([name, held])


def cell(settings: LabSettings, name: str, ships: bool = True) -> sweep.Cell:
    """The cell of one model; that of its base is part of its settings. ships: unpack it where it is shipped; without,
    it is trained in any case."""
    model, made = settings.models[name], recipe(settings, name)
    held = {"model": model.model_dump(), "seed": settings.seed, "recipe": made, "ships": ships}
    if ships and _fits(name, made):
        held["sha256"] = shipped.card(name)["sha256"]
    else:
        held |= {"torch": torch.__version__, "transformers": transformers.__version__}
    if model.base:
        held["base"] = cell(settings, model.base, ships).digest
    return sweep.Cell(name, held)


def _fits(name: str, made: str) -> bool:
    """Whether a model is shipped that was trained by this recipe."""
    held = shipped.card(name)
    return held is not None and held["recipe"] == made


def _written(model: LabModel) -> set[str]:
    """Who writes traces for a model: who edits those of one style need not train the other models anew."""
    styles = {course.style for course in (*model.diet, model.target)}
    return {name for style in styles for name in _WRITTEN.get(style, ())}


def make_cell(cell: sweep.Cell, folder: Path, progress) -> dict[str, int]:
    """Unpack a shipped model, or train it; leaves it in `folder`, and its curve."""
    if "sha256" not in cell.settings:
        return train_cell(cell, folder, progress)
    held = shipped.card(cell.name)
    model = shipped.unpack(cell.name, parameters.validate(cell.settings["model"], LabModel))
    checkpoints.save(model, folder / "model")
    store.write_parquet(folder / "curve.parquet", shipped.curve(held))
    return {"attempt": held["attempt"]}


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
            checkpoints.save(shipped.rounded(training.run(folder, progress)), folder / "model")
            return {"attempt": attempt + 1}
        except NotLearned as error:
            (folder / "checkpoint.safetensors").unlink(missing_ok=True)
            store.write_json(missed, str(error))
    raise NotLearned(f"{cell.name}: {store.read_json(missed)}")


def build(settings: LabSettings, out: str | Path = MODELS, runs: str | Path = RUNS, ships: bool = True) -> Lab:
    """Unpack or train what is not there yet and put every model under `out`. Raises NotLearned, and ModelError for
    shipped files that are broken."""
    runs, out = Path(runs), Path(out)
    cells = {name: cell(settings, name, ships) for name in settings.models}
    anew = [name for name, one in cells.items() if "sha256" not in one.settings]
    chains = _chains(settings)
    label = f"training {len(anew)} models" if anew else f"unpacking {len(cells)} models"
    done = sweep.run_chains(make_cell, [[cells[n] for n in each] for each in chains], runs, settings.jobs, label)
    receipts = dict(zip(chain.from_iterable(chains), done, strict=True))
    folders = {name: out / name for name in cells}
    for name, one in cells.items():
        shutil.rmtree(folders[name], ignore_errors=True)
        shutil.copytree(one.folder(runs) / "model", folders[name])
    return Lab(folders, curves(settings, runs, ships), {n: r["result"]["attempt"] for n, r in receipts.items()})


def curves(settings: LabSettings, runs: str | Path = RUNS, ships: bool = True) -> pd.DataFrame:
    """The learning curves as far as they have come: model, step, loss, accuracy; one row per look."""
    places = {name: cell(settings, name, ships).folder(Path(runs)) / "curve.parquet" for name in settings.models}
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
