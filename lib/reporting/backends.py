"""Who decided: captions that name scripted stand-ins, and the backend that metrics rest on."""

from __future__ import annotations

from collections.abc import Mapping

from lib.params import LLMSettings


def stand_ins(llm: LLMSettings, names: Mapping[str, str]) -> str:
    """Those of `names` (a word, and a name of llm.models) that are scripted, for captions; empty where none is."""
    scripted = [word for word, name in names.items() if llm.models[name].backend == "scripted"]
    return f" ({', '.join(scripted)}: scripted stand-in)" if scripted else ""


def backend(llm: LLMSettings, names: Mapping[str, str]) -> str:
    """Whose decisions metrics rest on: lab, or another where one of them is."""
    return llm.decided_by(names.values())
