"""What every cell of a study depends on: models that are asked, programs, versions.

A cell whose fingerprint changes is done again; what changes no reply (a key, a timeout) is not in it.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from lib import store
from lib.params import LLMSettings
from lib.sources import deciding

# A client, a cassette, a server carry replies and change none; this module gives names.
_CARRYING = ("lib.llm", "lib.models.asked", "lib.models.server", "lib.models.transport")
# Modules that made the models and their cards, whose files are in a cell's name, for studies that run them no more.
MADE = ("lib.models.agent", "lib.models.build", "lib.models.cards", "lib.models.team")
_HOW = ("api_key_env", "timeout", "retries", "concurrency")  # changes no reply
_HELD = ("model.safetensors", "card.json")  # of a lab model: what it says, and what it costs


def fingerprint(
    llm: LLMSettings, names: Mapping[str, str], base: str, models: Path, study: str, without: Iterable[str] = ()
) -> dict[str, Any]:
    """names: the controller's word for each model that is asked, and its name in llm.models; base: the lab model that
    is trained; models: the folder of lab models; study: the module whose cells these are; without: modules that it
    imports and that decide nothing in them."""
    asked = {
        word: {key: value for key, value in llm.models[name].model_dump().items() if key not in _HOW}
        for word, name in names.items()
    }
    lab = {about["model"] or word for word, about in asked.items() if about["backend"] == "lab"}
    programs = {"sources": deciding(study, without=(*_CARRYING, *without))}
    if any(about["backend"] == "scripted" for about in asked.values()):
        programs["scripted"] = deciding("lib.llm.scripted")
    return programs | {
        "asked": asked,
        "models": {name: [store.sha256_file(models / name / part) for part in _HELD] for name in sorted(lab | {base})},
        "base": base,
        "versions": {module.__name__: module.__version__ for module in (torch, transformers)},
    }
