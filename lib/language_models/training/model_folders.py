"""The folder of the lab models with their cards, for every lesson that asks them: what it lacks is made on the spot.

    models = ensure_models(params.lab)  # data/models, complete, for these settings

The models and cards are those of lesson 03, made by the functions that it calls (`build.build_models`,
`model_cards.measure_models`). Their jobs are kept under data/runs/models, so who makes them first makes them for all.
Left out: models of one's own, whose folder is handed to an experiment as `models`.
"""

from collections.abc import Iterable
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
    """The folder of the lab models. Models that lesson 03 has not made yet are unpacked or trained, and measured.

    Args:
        settings: Of the lab models.
        models: A folder of one's own, which is returned as it is; None for `out`.
        names: Of the models that are needed; None for all.
        out: Where the models of these settings lie.
        runs: Folder of the jobs.

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


def select_models(settings: LabSettings, names: Iterable[str]) -> LabSettings:
    """The settings of some models and of those that they start from.

    Args:
        settings: Of the lab models.
        names: Of models.
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
    """Whether `out` holds the models of these settings with their cards: what their finished jobs left, byte for byte.

    Args:
        settings: Of the lab models; those of another profile have other cards.
        out: Folder of the models.
        runs: Folder of the jobs.
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
