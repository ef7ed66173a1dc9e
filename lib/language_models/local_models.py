"""Opening models of `llm.models` that answer in this process: lab models, and folders of Hugging Face."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from lib.config import LLMSettings, ModelSettings
from lib.language_models import checkpoints
from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.language_models.lab_model import open_lab_model
from lib.llm.chat_model import ChatModel


def open_local(
    models: str | Path = checkpoints.MODELS,
) -> dict[str, Callable[[str, ModelSettings], ChatModel]]:
    """What `lib.llm.open_models` needs to open models in this process.

    Args:
        models: Folder of the lab models.

    Returns:
        By backend, a function from name and settings to a model. Weights are read when it is called, once per process.
    """
    return {
        "lab": partial(_open_lab, models=str(models)),
        "hugging_face": _open_hugging_face,
    }


def fill_in_lab_prices(llm: LLMSettings, models: str | Path = checkpoints.MODELS) -> LLMSettings:
    """Settings in which every lab model has prices: those of its card, where params.yaml has none.

    Args:
        llm: The section llm of params.yaml.
        models: Folder of the lab models.

    Returns:
        The same settings with the prices filled in.

    Raises:
        ModelError: For a lab model that is not there, or was never measured.
    """
    with_prices = {}
    for name, settings in llm.models.items():
        if settings.backend == "lab":
            settings = open_lab_model(name, models, settings).settings
        with_prices[name] = settings
    return llm.model_copy(update={"models": with_prices})


def _open_lab(name: str, settings: ModelSettings, models: str) -> ChatModel:
    return open_lab_model(name, models, settings)


def _open_hugging_face(name: str, settings: ModelSettings) -> ChatModel:
    return _load_folder(
        settings.model,
        name,
        settings.max_tokens,
        settings.temperature,
        settings.price_in or 0.0,
        settings.price_out or 0.0,
        settings.kwh_per_token,
    )


@cache
def _load_folder(
    folder: str,
    name: str,
    max_tokens: int,
    temperature: float,
    price_in: float,
    price_out: float,
    kwh_per_token: float,
) -> HuggingFaceModel:
    """A folder is read once per process, whose threads keep it from one cell to the next."""
    return HuggingFaceModel(
        folder,
        name,
        max_tokens=max_tokens,
        temperature=temperature,
        price_in=price_in,
        price_out=price_out,
        kwh_per_token=kwh_per_token,
    )
