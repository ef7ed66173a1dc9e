"""Cache keys of experiments that call language models: which models, and which versions of the code that calls them.

A job (one cached run of an experiment) holds both in its settings, and runs again when they change. Left out: what
changes no reply, as a timeout or the name of an API key's variable.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from lib import tasks
from lib.config import LLMSettings
from lib.experiment import artifacts, seeds
from lib.language_models import (
    chat_template,
    checkpoints,
    generation,
    kv_cache_forward,
    lab_model,
    tokenizer,
)
from lib.language_models.hugging_face_folder import hash_folder
from lib.language_models.serving import chat_completions
from lib.llm import cost_ledger, json_replies, scripted, token_counts

_CONNECTION = (  # changes no reply
    "api_key_env",
    "timeout",
    "retries",
    "concurrency",
    "token_parameter",
    "reasoning_tokens",
)
# Settings that did not exist when the first results were cached.
_ADDED_LATER = ("query", "price_cached_in", "reasoning_effort", "extra_body")
_MODEL_FILES = ("model.safetensors", "card.json")  # of a lab model: what it says, and what it costs


def describe_models(
    llm: LLMSettings, names: Mapping[str, str], base: str | None, models: Path
) -> dict[str, Any]:
    """Describe the language models of an experiment, as the part of its cache key that changes with them.

    Args:
        llm: Settings of all configured models.
        names: The experiment's models: {"small": "lab-s"} for its role and the model's name in `llm.models`.
        base: Name of the lab model that the experiment fine-tunes; None for none. Lab models are the small models
            trained in this repository.
        models: Folder with a subfolder of weights for each lab model.

    Returns:
        "asked": for each role the settings that decide a reply; "weights": SHA-256 of the files of each lab model;
        "base": as given; "libraries": versions of torch and transformers.
    """
    settings_by_role = {role: describe_model(llm, name) for role, name in names.items()}

    # The key holds hashes of the weights, because retraining changes a lab model but not its name. The setting
    # `model` names the folder of the weights; without it the folder has the name of the role.
    lab_models = {
        settings["model"] or role
        for role, settings in settings_by_role.items()
        if settings["backend"] == "lab"
    }
    if base:
        lab_models.add(base)
    weights = {}
    for folder_name in sorted(lab_models):
        folder = models / folder_name
        weights[folder_name] = [artifacts.sha256_file(folder / file) for file in _MODEL_FILES]
    return {
        "asked": settings_by_role,
        "weights": weights,
        "base": base,
        "libraries": {module.__name__: module.__version__ for module in (torch, transformers)},
    }


def describe_model(llm: LLMSettings, name: str) -> dict[str, Any]:
    """Select the settings of a model that decide its replies or their price.

    Args:
        llm: Settings of all configured models.
        name: Name of one of them.

    Returns:
        Values by name of the setting; for a Hugging Face model also "files", a hash of its folder.
    """
    settings = llm.models[name].model_dump(exclude=set(_CONNECTION))
    # A newer setting enters the key only where it is used, so that results cached before it existed stay valid.
    for added in _ADDED_LATER:
        if not settings[added]:
            del settings[added]
    if settings["backend"] == "hugging_face":
        settings["files"] = hash_folder(Path(settings["model"]))
    return settings


def versions(llm: LLMSettings, names: Iterable[str]) -> dict[str, int]:
    """Collect the VERSION numbers of the modules that decide what a model replies, for a cache key.

    Args:
        llm: Settings of all configured models.
        names: Names of the models that are called. The version of scripted models (rules in place of a language model)
            counts only where one of them is scripted.

    Returns:
        Version by name of the component, for example {"tokenizer": 1, ...}.
    """
    decided_by = {
        "random streams": seeds.VERSION,
        "tasks": tasks.VERSION,
        "tokenizer": tokenizer.VERSION,
        "chat template": chat_template.VERSION,
        "initial weights": checkpoints.VERSION,
        "forward pass": kv_cache_forward.VERSION,
        "generation": generation.VERSION,
        "requests": lab_model.VERSION,
        "chat completions": chat_completions.VERSION,
        "reply parsing": json_replies.VERSION,
        "token counts": token_counts.VERSION,
        "cost ledger": cost_ledger.VERSION,
    }
    if any(llm.models[name].backend == "scripted" for name in names):
        decided_by["scripted models"] = scripted.VERSION
    return decided_by
