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
    """Make the functions that open models which answer in this process, for `lib.llm.open_models`.

    Args:
        models: Folder with a subfolder for each lab model, a small transformer that was trained here.

    Returns:
        By backend ("lab", "hugging_face"), a function from a model's name and settings to the opened model. Weights are
        read when it is called, once per process.
    """
    return {
        "lab": partial(_open_lab, models=str(models)),
        "hugging_face": _open_hugging_face,
    }


def fill_in_lab_prices(llm: LLMSettings, models: str | Path = checkpoints.MODELS) -> LLMSettings:
    """Fill in the prices of lab models in the settings: those of their cards, where params.yaml has none.

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
    """Open a Hugging Face folder, `settings.model`, as a chat model with limits and prices."""
    # Values one by one, because the cache of opened models needs hashable arguments.
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
    """Load a Hugging Face folder as a chat model; later calls with the same arguments return the same object."""
    return HuggingFaceModel(
        folder,
        name,
        max_tokens=max_tokens,
        temperature=temperature,
        price_in=price_in,
        price_out=price_out,
        kwh_per_token=kwh_per_token,
    )
