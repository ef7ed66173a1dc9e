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
from lib.config import ROOT, LabModelSettings, LabSettings
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
    """All lab models, ready to be loaded.

    Attributes:
        folders: By model.
        curves: As `read_curves`.
        attempts: By model, the trainings that it took to meet the target.
    """

    folders: dict[str, Path]
    curves: pd.DataFrame
    attempts: dict[str, int]


def versions(model: LabModelSettings) -> dict[str, int]:
    """Collect the VERSION numbers of the modules that decide a model's trained weights, for a cache key.

    Args:
        model: The model's settings. The writers of traces (training conversations of agents) count only where its
            training data has traces.

    Returns:
        Version by name of the component, for example {"tokenizer": 1, ...}.
    """
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


def make_recipe(settings: LabSettings, name: str) -> dict[str, Any]:
    """Collect everything that decides a lab model's trained weights, except versions of libraries and the processor.

    Args:
        settings: Settings of all lab models, small transformers that are trained here.
        name: Name of the model.

    Returns:
        JSON: "model", its settings; "seed"; "versions" of the code; "base", a hash of the recipe of the model whose
        weights it starts from, if there is one.
    """
    model = settings.models[name]
    decided_by = {
        "model": model.model_dump(),
        "seed": settings.seed,
        "versions": versions(model),
    }
    if model.base:
        base_recipe = make_recipe(settings, model.base)
        decided_by["base"] = artifacts.sha256_json(base_recipe)
    # Through JSON, so that it equals a recipe that was read from a card.
    return json.loads(artifacts.to_json(decided_by))


def fits_released(settings: LabSettings, name: str) -> bool:
    """Whether the weights in data/lab were trained by the recipe that the settings hold."""
    card = released_weights.card(name)
    return card is not None and card["recipe"] == make_recipe(settings, name)


def make_training_job(settings: LabSettings, name: str, use_released: bool = True) -> sweep.Job:
    """Make the job (one cached run) that unpacks or trains one lab model; its settings are the key of the cache.

    Args:
        settings: Settings of all lab models, small transformers that are trained here.
        name: Name of the model.
        use_released: Whether to unpack the model where it is released with this recipe; else it is trained.

    Returns:
        The job, for `make_model`.
    """
    model = settings.models[name]
    decided_by = {"name": name} | make_recipe(settings, name)
    # What is unpacked depends on the released bytes, what is trained on the libraries.
    if use_released and fits_released(settings, name):
        decided_by |= {"job": "unpack", "sha256": released_weights.card(name)["sha256"]}
    else:
        decided_by |= {
            "job": "train",
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        }
    if model.base:
        decided_by["base_job"] = make_training_job(settings, model.base, use_released).key
    return sweep.Job(name, decided_by)


def make_model(job: sweep.Job, folder: Path, progress) -> dict[str, int]:
    """Unpack a released model, or train it.

    Args:
        job: As `make_training_job` makes it.
        folder: Folder of the job; gets the model and its curve.
        progress: progress(fraction) is called after every update.

    Returns:
        {"attempt": n}: which training met its target accuracy, from 1.

    Raises:
        NotLearned: If no attempt meets the target.
        ModelError: For released files that are broken.
    """
    if job.settings["job"] == "train":
        return train_model(job, folder, progress)
    name = job.settings["name"]
    card = released_weights.card(name)
    settings = parameters.validate_settings(job.settings["model"], LabModelSettings)
    model = released_weights.unpack(name, settings)
    checkpoints.save(model, folder / "model")
    artifacts.write_parquet(folder / "curve.parquet", released_weights.curve(card))
    return {"attempt": card["attempt"]}


def train_model(job: sweep.Job, folder: Path, progress) -> dict[str, int]:
    """Train one lab model until it meets its target accuracy, with another seed after each training that does not.

    Small models learn a skill in a sharp transition, which some seeds miss.

    Args:
        job: As `make_training_job` makes it.
        folder: Folder of the job; gets the model, and its curve, which grows while it learns. The job of its base lies
            beside it.
        progress: progress(fraction) is called after every update.

    Returns:
        {"attempt": n}: which training met the target, from 1.

    Raises:
        NotLearned: If no attempt meets the target.
    """
    # One thread sums in one order, so numbers do not depend on the machine's load; jobs share the cores.
    torch.set_num_threads(1)
    # Denormal numbers are slow on a CPU and too small to matter.
    torch.set_flush_denormal(True)
    settings = parameters.validate_settings(job.settings["model"], LabModelSettings)
    initial_model = None
    if settings.base:
        initial_model = checkpoints.load(folder.parent / job.settings["base_job"] / "model")
    for attempt in range(settings.attempts):
        failure = folder / f"missed-{attempt}.json"
        if failure.exists():  # an earlier run missed the target and was killed later
            continue
        # Far apart: a corpus draws from the seeds behind its own.
        seed = job.settings["seed"] + 1_000 * attempt
        training = Pretraining(settings, seed, deepcopy(initial_model))
        try:
            # In half precision like the released weights, so that both are the same model.
            model = training.train(folder, progress)
            checkpoints.save(released_weights.round_weights(model), folder / "model")
            return {"attempt": attempt + 1}
        except NotLearned as error:
            (folder / "checkpoint.safetensors").unlink(missing_ok=True)
            artifacts.write_json(failure, str(error))
    raise NotLearned(f"{job.settings['name']}: {artifacts.read_json(failure)}")


def build_models(
    settings: LabSettings,
    out: str | Path = MODELS,
    runs: str | Path = RUNS,
    use_released: bool = True,
) -> LabBuild:
    """Unpack the released weights of every lab model, or train it where its settings have changed, in parallel jobs.

    Args:
        settings: Settings of the lab models, small transformers that are trained here.
        out: Folder of the finished models, one subfolder each.
        runs: Folder of the jobs; those that are done already are not repeated.
        use_released: Whether to unpack models that are released with this recipe.

    Returns:
        The models.

    Raises:
        NotLearned: Where no training of a model meets its target.
        ModelError: For released files that are broken.
    """
    runs, out = Path(runs), Path(out)
    jobs = {}
    for name in settings.models:
        jobs[name] = make_training_job(settings, name, use_released)
    num_trained = sum(job.settings["job"] == "train" for job in jobs.values())
    if num_trained:
        label = f"training {num_trained} models"
    else:
        label = f"unpacking {len(jobs)} models"

    # A base has to be there before the models that start from it.
    names_by_chain = list_training_chains(settings)
    chains = [[jobs[name] for name in names] for names in names_by_chain]
    receipts = sweep.run_chains(make_model, chains, runs, settings.jobs, label)
    attempts = {}
    for name, receipt in zip(chain.from_iterable(names_by_chain), receipts, strict=True):
        attempts[name] = receipt["result"]["attempt"]

    # Copies: a finished model may be changed, the result of its job may not.
    folders = {name: out / name for name in jobs}
    for name, job in jobs.items():
        trained_folder = job.folder(runs) / "model"
        shutil.rmtree(folders[name], ignore_errors=True)
        shutil.copytree(trained_folder, folders[name])
    return LabBuild(folders, read_curves(settings, runs, use_released), attempts)


def read_curves(
    settings: LabSettings, runs: str | Path = RUNS, use_released: bool = True
) -> pd.DataFrame:
    """Read the learning curves of lab models, also of those that are still being trained.

    Args:
        settings: Settings of the models.
        runs: Folder of the jobs that train or unpack them.
        use_released: Whether released models are unpacked, as `build_models` was told.

    Returns:
        One row per model and evaluation: step, loss, accuracy, model.
    """
    tables = []
    for name in settings.models:
        job = make_training_job(settings, name, use_released)
        path = job.folder(runs) / "curve.parquet"
        if path.exists():  # after its first evaluation
            tables.append(artifacts.read_parquet(path).assign(model=name))
    if not tables:
        return pd.DataFrame(columns=["step", "loss", "accuracy", "model"])
    return pd.concat(tables, ignore_index=True)


def list_training_chains(settings: LabSettings) -> list[list[str]]:
    """List the models in the order in which they are to be trained.

    Args:
        settings: The models.

    Returns:
        Chains of names: a model without a base, and behind it those that start from it. The longest training comes
        first: two chains side by side keep two cores busy to the end, which waves of equal depth do not.
    """
    models = settings.models

    def list_descendants(name: str) -> list[str]:
        # The model itself, and behind it all that start from it, directly or not.
        names = [name]
        for descendant, model in models.items():
            if model.base == name:
                names += list_descendants(descendant)
        return names

    chains = [list_descendants(name) for name, model in models.items() if model.base is None]
    return sorted(chains, key=lambda names: -sum(_estimate_work(models[name]) for name in names))


def _estimate_work(model: LabModelSettings) -> int:
    """Estimate how long a training takes compared with others: updates times batch size times weights, in no unit."""
    weights_per_layer = model.hidden * (4 * model.hidden + 3 * model.intermediate)
    return model.steps * model.batch * model.layers * weights_per_layer
