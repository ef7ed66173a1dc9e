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
    in_process_client,
    kv_cache_forward,
    tokenizer,
)
from lib.language_models.serving import chat_completions
from lib.llm import cost_ledger, json_replies, scripted, token_counts

_CONNECTION = ("api_key_env", "timeout", "retries", "concurrency")  # changes no reply
_MODEL_FILES = ("model.safetensors", "card.json")  # of a lab model: what it says, and what it costs


def describe_models(
    llm: LLMSettings, names: Mapping[str, str], base: str | None, models: Path
) -> dict[str, Any]:
    """What a job holds of the models that it asks.

    Args:
        llm: The models that there are.
        names: What the study calls each model that it asks, and the name of that model in llm.models.
        base: The lab model that is trained, if any.
        models: Folder of lab models.

    Returns:
        asked: by the study's name, the settings that decide a reply; weights: hashes of the files of the lab models
        among them; base: its name; libraries: versions of those that compute.
    """
    asked = {name: describe_model(llm, model) for name, model in names.items()}
    lab_models = {
        model["model"] or name for name, model in asked.items() if model["backend"] == "lab"
    }
    return {
        "asked": asked,
        "weights": {
            name: _hash_files(models / name)
            for name in sorted(lab_models | ({base} if base else set()))
        },
        "base": base,
        "libraries": {module.__name__: module.__version__ for module in (torch, transformers)},
    }


def describe_model(llm: LLMSettings, name: str) -> dict[str, Any]:
    """The settings of a model in llm.models that decide a reply or its price."""
    return llm.models[name].model_dump(exclude=set(_CONNECTION))


def versions(llm: LLMSettings, names: Iterable[str]) -> dict[str, int]:
    """The VERSIONs of the code that asks models: of lab models in this process and, where one is named, of scripts.

    names: of the models in llm.models.
    """
    decided_by = {
        "random streams": seeds.VERSION,
        "tasks": tasks.VERSION,
        "tokenizer": tokenizer.VERSION,
        "chat template": chat_template.VERSION,
        "initial weights": checkpoints.VERSION,
        "forward pass": kv_cache_forward.VERSION,
        "generation": generation.VERSION,
        "requests": in_process_client.VERSION,
        "chat completions": chat_completions.VERSION,
        "reply parsing": json_replies.VERSION,
        "token counts": token_counts.VERSION,
        "cost ledger": cost_ledger.VERSION,
    }
    if any(llm.models[name].backend == "scripted" for name in names):
        decided_by["scripted models"] = scripted.VERSION
    return decided_by


def _hash_files(folder: Path) -> list[str]:
    return [artifacts.sha256_file(folder / name) for name in _MODEL_FILES]
