"""What the results of a study depend on when it asks language models: the models, and the code that asks them.

A job holds both in its settings. What changes no reply (the name of a key, a timeout) is left out.
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
_ADDED_LATER = ("query", "price_cached_in", "reasoning_effort", "extra_body")
_MODEL_FILES = ("model.safetensors", "card.json")  # of a lab model: what it says, and what it costs


def describe_models(
    llm: LLMSettings, names: Mapping[str, str], base: str | None, models: Path
) -> dict[str, Any]:
    """Describe the models that a job asks, for its settings.

    Args:
        llm: The models that there are.
        names: What the study calls each model that it asks, and the name of that model in llm.models.
        base: The lab model that is trained, if any.
        models: Folder of lab models.

    Returns:
        asked: by the study's name, the settings that decide a reply; weights: hashes of the files of the lab models
        among them; base: its name; libraries: versions of those that compute.
    """
    settings_by_name = {name: describe_model(llm, model) for name, model in names.items()}
    # A lab model is what its files hold, whatever it is called.
    lab_models = {
        model["model"] or name
        for name, model in settings_by_name.items()
        if model["backend"] == "lab"
    }
    if base:
        lab_models.add(base)
    weights = {}
    for name in sorted(lab_models):
        weights[name] = [artifacts.sha256_file(models / name / file) for file in _MODEL_FILES]
    return {
        "asked": settings_by_name,
        "weights": weights,
        "base": base,
        "libraries": {module.__name__: module.__version__ for module in (torch, transformers)},
    }


def describe_model(llm: LLMSettings, name: str) -> dict[str, Any]:
    """Select the settings of a model that decide a reply or its price.

    Args:
        llm: The models that there are.
        name: One of llm.models.

    Returns:
        The settings.
    """
    settings = llm.models[name].model_dump(exclude=set(_CONNECTION))
    # A setting that came later and is not used leaves the keys of earlier jobs as they are.
    for added in _ADDED_LATER:
        if not settings[added]:
            del settings[added]
    if settings["backend"] == "hugging_face":
        settings["files"] = hash_folder(Path(settings["model"]))
    return settings


def versions(llm: LLMSettings, names: Iterable[str]) -> dict[str, int]:
    """The VERSIONs of the code that asks models.

    Args:
        llm: The models that there are.
        names: The models in llm.models that are asked; scripted models only decide where one is named.

    Returns:
        VERSIONs by what they are of.
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
