"""What every cell of a study depends on: models that are asked, programs, versions.

A cell whose fingerprint changes is done again; what changes no reply (a key, a timeout) is not in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from lib import store
from lib.params import ROOT, LLMSettings

_LAB = (  # modules of lib/models that decide what a lab model says
    "answering", "batching", "checkpoints", "corpus", "dialogue", "forward", "generation", "tokenizer", "training",
)  # fmt: skip
_HOW = ("api_key_env", "timeout", "retries", "concurrency")  # changes no reply
_HELD = ("model.safetensors", "card.json")  # of a lab model: what it says, and what it costs


def fingerprint(
    llm: LLMSettings, names: Mapping[str, str], base: str, models: Path, sources: Iterable[Path]
) -> dict[str, Any]:
    """names: the controller's word for each model that is asked, and its name in llm.models; base: the lab model that
    is trained; models: the folder of lab models; sources: of the study itself, files or folders."""
    asked = {
        word: {key: value for key, value in llm.models[name].model_dump().items() if key not in _HOW}
        for word, name in names.items()
    }
    lab = {about["model"] or word for word, about in asked.items() if about["backend"] == "lab"}
    programs = [*sources, ROOT / "lib/seeds.py", *(ROOT / f"lib/models/{name}.py" for name in _LAB)]
    return {
        "asked": asked,
        "models": {name: [store.sha256_file(models / name / part) for part in _HELD] for name in sorted(lab | {base})},
        "base": base,
        "sources": store.sha256_sources(*programs),
        "versions": {module.__name__: module.__version__ for module in (torch, transformers)},
    }
