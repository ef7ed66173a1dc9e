"""Readers of briefs by the names that `orchestration.readers` uses, and any model of `llm.models` beside them."""

from functools import partial
from pathlib import Path
from typing import Any

from lib import tasks
from lib.config import ROOT, LabSettings, LLMSettings, Params
from lib.language_models import chat_template, checkpoints, kv_cache_forward, tokenizer
from lib.language_models.cache_key import describe_model
from lib.language_models.cache_key import versions as versions_of_asking
from lib.language_models.local_models import open_local
from lib.language_models.training import decision_traces, released_weights
from lib.llm.open_models import open_models
from lib.orchestration import decision_context, lab_model_reader, llm_reader, reply_parser
from lib.orchestration.decision_context import Rational, Reader

VERSION = 1  # of which reader a name stands for
RATIONAL = "rational"
RUNS, CASSETTES = ROOT / "data/runs/orchestration", ROOT / "data/cassettes/02_orchestration"
RECORDING = "readers"  # name of the recording and of the spending limit of endpoints


def versions(name: str, llm: LLMSettings) -> dict[str, int]:
    """The VERSIONs of the code that decides what a reader chooses."""
    decided_by = {"briefs": decision_context.VERSION, "readers": VERSION}
    if name == lab_model_reader.NAME:
        decided_by["lab-orchestrator"] = lab_model_reader.VERSION
        decided_by["tasks"] = tasks.VERSION  # the names of policies in the words of the lab
        decided_by["decision situations"] = decision_traces.VERSION
        decided_by["tokenizer"] = tokenizer.VERSION
        decided_by["chat template"] = chat_template.VERSION
        decided_by["initial weights"] = checkpoints.VERSION
        decided_by["forward pass"] = kv_cache_forward.VERSION
    elif name != RATIONAL:
        decided_by["spoken briefs"] = llm_reader.VERSION
        decided_by["choices in replies"] = reply_parser.VERSION
        decided_by |= versions_of_asking(llm, [name])
    return decided_by


def describe_reader(name: str, lab: LabSettings, llm: LLMSettings) -> dict[str, Any]:
    """What a job holds of a reader, beside the VERSIONs of its code; `make_reader` takes it.

    Raises:
        ValueError: A name that is no reader's.
    """
    if name == RATIONAL:
        return {}
    if name == lab_model_reader.NAME:
        card = released_weights.card(name)
        return {"weights": card and card["sha256"], "lab": _select_lab_model(lab, name)}
    if name not in llm.models:
        known = ", ".join((RATIONAL, lab_model_reader.NAME, *llm.models))
        raise ValueError(f"{name!r} in orchestration.readers is no reader; there are {known}")
    return {"model": describe_model(llm, name)}


def _select_lab_model(lab: LabSettings, name: str) -> dict[str, Any]:
    """The settings of one lab model and of those that it starts from."""
    models = {}
    next_name: str | None = name
    while next_name is not None:
        models[next_name] = lab.models[next_name].model_dump()
        next_name = lab.models[next_name].base
    return lab.to_job_settings("seed") | {"models": models}


def make_reader(
    name: str,
    description: dict[str, Any],
    llm: LLMSettings,
    runs: str | Path = RUNS,
    cassettes: str | Path = CASSETTES,
) -> Reader:
    """A reader by its name.

    Args:
        name: As in `orchestration.readers`.
        description: What `describe_reader` returned.
        llm: The models that may be asked, and how to reach them.
        runs, cassettes: Folders of the purse and of the recorded replies of endpoints.

    Raises:
        ModelError: The released weights of lab-orchestrator were trained by another recipe.
    """
    if name == RATIONAL:
        return Rational()
    if name == lab_model_reader.NAME:
        return lab_model_reader.Taught(LabSettings.from_job_settings(description["lab"]))
    return llm_reader.ChatModelReader(
        name,
        llm.models[name].backend,
        partial(open_models, llm, [name], RECORDING, runs, cassettes, open_local=open_local()),
    )


def reader(name: str, params: Params) -> Reader:
    """A reader by its name, for who has all parameters. Raises as `describe_reader` and `make_reader` do."""
    return make_reader(name, describe_reader(name, params.lab, params.llm), params.llm)
