"""Every lab model in one place: released ones are unpacked, others are trained, in processes that resume.

One job is one model. What decides its weights is its recipe: settings, seed, VERSIONs of the code, and the recipe of
its `base`, the model whose weights it starts from. Where the recipe is the one that data/lab was trained by, the job
unpacks; where it is not (somebody changed params.yaml), it trains. Working files live under `data/runs/models`,
finished models in `data/models`.
"""

import json
import shutil
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import transformers

from lib import config as parameters
from lib import tasks
from lib.config import ROOT, LabModel, LabSettings
from lib.experiment import artifacts, seeds, sweep
from lib.language_models import chat_template, checkpoints, generation, kv_cache_forward, tokenizer
from lib.language_models.checkpoints import MODELS
from lib.language_models.training import (
    agent_traces,
    decision_traces,
    muon,
    pretraining,
    released_weights,
    team_traces,
    training_data,
)
from lib.language_models.training.pretraining import NotLearned, Pretraining

RUNS = ROOT / "data/runs/models"


@dataclass(frozen=True)
class LabBuild:
    """By name the folders of the models and the attempts that their trainings took; and their curves."""

    folders: dict[str, Path]
    curves: pd.DataFrame
    attempts: dict[str, int]


def versions(model: LabModel) -> dict[str, int]:
    """The VERSIONs of the code that decides a model's weights: writers of traces only where it is taught traces."""
    decided_by = {
        "random streams": seeds.VERSION,
        "tasks": tasks.VERSION,
        "tokenizer": tokenizer.VERSION,
        "chat template": chat_template.VERSION,
        "initial weights": checkpoints.VERSION,
        "training batches": training_data.VERSION,
        "forward pass": kv_cache_forward.VERSION,
        "generation": generation.VERSION,
        "muon": muon.VERSION,
        "training": pretraining.VERSION,
    }
    styles = {component.style for component in (*model.data_mixture, model.target)}
    families = {component.family for component in model.data_mixture}
    if styles & {"agent", "team"}:  # the traces of teams are made of those of agents
        decided_by["agent traces"] = agent_traces.VERSION
    if "team" in styles:
        decided_by["team traces"] = team_traces.VERSION
    if decision_traces.FAMILY in families:
        decided_by["decision situations"] = decision_traces.VERSION
    return decided_by


def recipe(settings: LabSettings, name: str) -> dict[str, Any]:
    """Everything that a model's weights follow from, but for versions of libraries and the processor, as JSON.

    Returns:
        model: its settings; seed; versions: see `versions`; base: the hash of the recipe of its base, if it has one.
    """
    model = settings.models[name]
    decided_by = {"model": model.model_dump(), "seed": settings.seed, "versions": versions(model)}
    if model.base:
        decided_by["base"] = artifacts.sha256_json(recipe(settings, model.base))
    return json.loads(artifacts.to_json(decided_by))


def fits_released(settings: LabSettings, name: str) -> bool:
    """Whether the weights in data/lab were trained by the recipe that the settings hold."""
    card = released_weights.card(name)
    return card is not None and card["recipe"] == recipe(settings, name)


def make_training_job(settings: LabSettings, name: str, ships: bool = True) -> sweep.Job:
    """The job of one model; that of its base is part of its settings.

    ships: unpack the model where it is released; without, it is trained in any case.
    """
    model = settings.models[name]
    decided_by = {"name": name} | recipe(settings, name)
    if ships and fits_released(settings, name):
        decided_by |= {"job": "unpack", "sha256": released_weights.card(name)["sha256"]}
    else:
        decided_by |= {
            "job": "train",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
    if model.base:
        decided_by["base_job"] = make_training_job(settings, model.base, ships).key
    return sweep.Job(name, decided_by)


def make_model(job: sweep.Job, folder: Path, progress) -> dict[str, int]:
    """Unpack a released model, or train it; leaves it in `folder`, and its curve."""
    if job.settings["job"] == "train":
        return train_model(job, folder, progress)
    name = job.settings["name"]
    card = released_weights.card(name)
    model = released_weights.unpack(
        name, parameters.validate_settings(job.settings["model"], LabModel)
    )
    checkpoints.save(model, folder / "model")
    artifacts.write_parquet(folder / "curve.parquet", released_weights.curve(card))
    return {"attempt": card["attempt"]}


def train_model(job: sweep.Job, folder: Path, progress) -> dict[str, int]:
    """Train one model; leaves it in `folder`, and its curve, which grows while it learns.

    The transition is sharp and depends on the seed: a training that misses its target is tried again with
    another seed. Raises NotLearned if none of the attempts meets it.
    """
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    settings = parameters.validate_settings(job.settings["model"], LabModel)
    initial_model = None
    if settings.base:
        initial_model = checkpoints.load(folder.parent / job.settings["base_job"] / "model")
    for attempt in range(settings.attempts):
        failure = folder / f"missed-{attempt}.json"
        if failure.exists():  # by a run that was killed later
            continue
        seed = job.settings["seed"] + 1_000 * attempt
        run = Pretraining(settings, seed, deepcopy(initial_model))
        try:
            checkpoints.save(released_weights.rounded(run.run(folder, progress)), folder / "model")
            return {"attempt": attempt + 1}
        except NotLearned as error:
            (folder / "checkpoint.safetensors").unlink(missing_ok=True)
            artifacts.write_json(failure, str(error))
    raise NotLearned(f"{job.settings['name']}: {artifacts.read_json(failure)}")


def build(
    settings: LabSettings, out: str | Path = MODELS, runs: str | Path = RUNS, ships: bool = True
) -> LabBuild:
    """Unpack or train what is not there yet and put every model under `out`. Raises NotLearned, and ModelError for
    shipped files that are broken."""
    runs, out = Path(runs), Path(out)
    jobs = {name: make_training_job(settings, name, ships) for name in settings.models}
    num_trained = sum(job.settings["job"] == "train" for job in jobs.values())
    label = f"training {num_trained} models" if num_trained else f"unpacking {len(jobs)} models"

    names_by_chain = _chains(settings)
    chains = [[jobs[name] for name in names] for names in names_by_chain]
    receipts = sweep.run_chains(make_model, chains, runs, settings.jobs, label)
    attempts = {}
    for name, receipt in zip(chain.from_iterable(names_by_chain), receipts, strict=True):
        attempts[name] = receipt["result"]["attempt"]

    folders = {name: out / name for name in jobs}
    for name, job in jobs.items():
        shutil.rmtree(folders[name], ignore_errors=True)
        shutil.copytree(job.folder(runs) / "model", folders[name])
    return LabBuild(folders, curves(settings, runs, ships), attempts)


def curves(settings: LabSettings, runs: str | Path = RUNS, ships: bool = True) -> pd.DataFrame:
    """The learning curves as far as they have come: model, step, loss, accuracy; one row per look."""
    tables = []
    for name in settings.models:
        path = make_training_job(settings, name, ships).folder(runs) / "curve.parquet"
        if path.exists():
            tables.append(artifacts.read_parquet(path).assign(model=name))
    if not tables:
        return pd.DataFrame(columns=["step", "loss", "accuracy", "model"])
    return pd.concat(tables, ignore_index=True)


def _chains(settings: LabSettings) -> list[list[str]]:
    """Every model without a base with those that start from it after it, the heaviest chain first: two chains at
    once keep two cores busy to the end, which waves of equal depth do not."""
    models = settings.models

    def following(name: str) -> list[str]:
        return [
            name,
            *(n for other in models if models[other].base == name for n in following(other)),
        ]

    chains = [following(name) for name in models if models[name].base is None]
    return sorted(chains, key=lambda each: -sum(_weight(models[name]) for name in each))


def _weight(model: LabModel) -> int:
    """About how long its training takes: updates times dialogues times weights."""
    return (
        model.steps
        * model.batch
        * model.layers
        * model.hidden
        * (4 * model.hidden + 3 * model.intermediate)
    )
