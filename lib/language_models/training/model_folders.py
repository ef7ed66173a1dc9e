"""The folder of the lab models with their cards, for every lesson that asks them: what it lacks is made on the spot.

    models = ensure_models(params.lab)  # data/models, complete, for these settings
    add_released_models(params.lab, ["lab-nano"])  # data/models with this model, for a command in a fresh clone

A lab model is a small transformer that is trained here; its card, card.json beside the weights, says how accurate it
is and what a token costs. The models and cards are those of lesson 03, made by the functions that it calls
(`build.build_models`, `model_cards.measure_models`). Their jobs are kept under data/runs/models, so who makes them
first makes them for all.
Left out: models of one's own, whose folder is handed to an experiment as `models`.
"""

import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from pathlib import Path

from lib.config import LabSettings
from lib.experiment import artifacts, file_lock
from lib.language_models.checkpoints import MODELS
from lib.language_models.training import build, model_cards

_WEIGHTS, _CARD = "model.safetensors", "card.json"


def ensure_models(
    settings: LabSettings,
    models: str | Path | None = None,
    names: Iterable[str] | None = None,
    out: str | Path = MODELS,
    runs: str | Path = build.RUNS,
) -> Path:
    """Return the folder of the lab models, after making those that it lacks: unpacked or trained, and measured.

    Args:
        settings: Size, data and training of every lab model, and how its card is measured.
        models: A folder of the caller's own, which is returned as it is; None for `out`.
        names: Names of the models that are needed; None for all.
        out: Folder with a subfolder for each model.
        runs: Folder of the jobs that make the models, which are not repeated.

    Returns:
        The folder.

    Raises:
        NotLearned: None of the attempts to train a model met its target.
        ModelError: A released file is broken.
    """
    if models is not None:
        return Path(models)
    if names is not None:
        settings = select_models(settings, names)
    if not has_models(settings, out, runs):
        with file_lock.hold_lock(Path(runs) / "making.lock"):
            if not has_models(settings, out, runs):  # no other notebook made them meanwhile
                print("First, the lab models of lesson 03:")
                build.build_models(settings, out, runs)
                model_cards.measure_models(settings, out, runs)
    return Path(out)


def add_released_models(
    settings: LabSettings,
    names: Iterable[str],
    out: str | Path = MODELS,
    runs: str | Path = build.RUNS,
) -> list[str]:
    """Add lab models that a folder lacks from the weights that come with the project, for a command in a fresh clone.

    Models that are there stay as they are, whichever profile measured their cards. Nothing is trained: a model whose
    settings are not those of its released weights stays absent. Progress goes to stderr.

    Args:
        settings: Size, data and training of every lab model, and how its card is measured.
        names: Names of the models that are needed.
        out: Folder with a subfolder for each model.
        runs: Folder of the jobs that unpack and measure.

    Returns:
        Names of the models that were added; measuring their cards takes some ten seconds each.

    Raises:
        ModelError: A released file is broken.
    """
    added = []
    for name in dict.fromkeys(names):
        folder = Path(out) / name
        is_there = (folder / _WEIGHTS).is_file() and (folder / _CARD).is_file()
        with_bases = select_models(settings, [name]).models  # what it starts from is unpacked, too
        if not is_there and all(build.fits_released(settings, model) for model in with_bases):
            added.append(name)
    if added:
        print(
            f"{out} lacks {', '.join(added)}; unpacking the released weights and measuring them, "
            "once, for about a minute",
            file=sys.stderr,
            flush=True,
        )
        with redirect_stdout(sys.stderr):  # stdout is for the command's results
            ensure_models(settings, names=added, out=out, runs=runs)
    return added


def select_models(settings: LabSettings, names: Iterable[str]) -> LabSettings:
    """Reduce the settings to some lab models and those whose weights they start from (their `base`).

    Args:
        settings: Settings of all lab models.
        names: Names of the models that are needed.

    Returns:
        The settings, with fewer models.
    """
    selected = set()
    for name in names:
        while name is not None:
            selected.add(name)
            name = settings.models[name].base
    models = {name: model for name, model in settings.models.items() if name in selected}
    return settings.model_copy(update={"models": models})


def has_models(
    settings: LabSettings, out: str | Path = MODELS, runs: str | Path = build.RUNS
) -> bool:
    """Whether a folder holds the lab models of these settings with their cards.

    Args:
        settings: Settings of the lab models; those of another profile (smoke, laptop, paper) have other cards.
        out: Folder with a subfolder for each model.
        runs: Folder of the finished jobs.

    Returns:
        Whether weights and cards are byte for byte those that the jobs of these settings left.
    """
    for name in settings.models:
        training_job = build.make_training_job(settings, name)
        measuring_job = model_cards.make_measuring_job(settings, name, training_job)
        weights = training_job.folder(runs) / "model" / _WEIGHTS
        card = measuring_job.folder(Path(runs) / "cards") / _CARD
        folder = Path(out) / name
        has_weights = artifacts.has_same_bytes(weights, folder / _WEIGHTS)
        if not (has_weights and artifacts.has_same_bytes(card, folder / _CARD)):
            return False
    return True
