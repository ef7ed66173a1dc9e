"""The models that a router's commands ask: those of llm.models in params.yaml, and those of a file of the user's own.

A file of the user's own adds models without a change to params.yaml, on which the lessons depend:

    models:
      small: {backend: endpoint, base_url: "http://localhost:11434/v1", model: "qwen3:0.6b", price_in: 0, price_out: 0}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lib import config
from lib.config import LLMSettings, ParamsError
from lib.config.load import from_yaml, read_params_file
from lib.language_models import checkpoints
from lib.language_models.lab_model import open_lab_model
from lib.language_models.training import build
from lib.language_models.training.model_folders import add_released_models

MODELS_HELP = "YAML file with models: {NAME: {backend, base_url, model, price_in, price_out, ...}}, as llm.models has"


def read_model_settings(profile: str, own_file: Path | None = None) -> LLMSettings:
    """Reads the section llm of the settings, with the models of a user's file added.

    Args:
        profile: Profile of params.yaml.
        own_file: The user's file; None for none. What a model does not say is taken from llm.common.

    Returns:
        The settings.

    Raises:
        ParamsError: The file cannot be read, or a model in it is wrong.
    """
    llm = config.load(profile).llm
    if own_file is None:
        return llm
    if not own_file.is_file():
        raise ParamsError(f"there is no file {own_file}; it holds models by name, as llm.models")
    content = from_yaml(own_file.read_text(encoding="utf-8"))
    models = content.get("models") if isinstance(content, Mapping) else None
    if not isinstance(models, Mapping) or not models:
        raise ParamsError(f"{own_file} holds no models; write models: and below it one a name")
    common = read_params_file()["llm"]["common"]
    merged = {name: {**common, **_check_mapping(own_file, name, models[name])} for name in models}
    try:
        added = LLMSettings(cassette="off", max_usd=0.0, models=merged)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ParamsError(f"{own_file}: {reason}") from error
    return llm.model_copy(update={"models": llm.models | added.models})


def write_model_file(path: Path, models: Mapping[str, Mapping[str, Any]]) -> Path:
    """Writes a file of models, which `read_model_settings` and the router's commands read.

    Args:
        path: Of the file.
        models: By name, the entry of a model: backend, base_url, model, price_in, price_out, ...

    Returns:
        The path.
    """
    # An object of JSON is one of YAML, too.
    lines = [f"  {name}: {json.dumps(dict(entry))}" for name, entry in models.items()]
    path.write_text("\n".join(["models:", *lines, ""]), encoding="utf-8")
    return path


def _check_mapping(own_file: Path, name: str, model: Any) -> Mapping[str, Any]:
    if not isinstance(model, Mapping):
        raise ParamsError(f"{own_file}: {name} is {model!r}; write {{backend: endpoint, ...}}")
    return model


def select_models(
    llm: LLMSettings, names: Sequence[str], profile: str, models_folder: Path = checkpoints.MODELS
) -> LLMSettings:
    """Selects some models of the section llm; lab models get the prices of their cards.

    Lab models are small transformers that were trained here; in a fresh clone their released weights are unpacked.

    Args:
        llm: All models.
        names: Those that will be asked.
        profile: Profile of params.yaml, for the lab models.
        models_folder: Folder of the lab models.

    Returns:
        The settings.

    Raises:
        ParamsError: There is no model of such a name.
        ModelError: A lab model cannot be read.
    """
    for name in names:
        if name not in llm.models:
            raise ParamsError(
                f"there is no model {name!r}; llm.models has {', '.join(llm.models)}; --model-file FILE adds your own"
            )
    lab_names = [
        llm.models[name].model or name for name in names if llm.models[name].backend == "lab"
    ]
    if lab_names and models_folder == checkpoints.MODELS:
        add_released_models(config.load(profile).lab, lab_names, models_folder, build.RUNS)
    selected = {}
    for name in names:
        settings = llm.models[name]
        if settings.backend == "lab":
            settings = open_lab_model(name, models_folder, settings).settings
        selected[name] = settings
    return llm.model_copy(update={"models": selected})
