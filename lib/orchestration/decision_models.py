"""Decision models by the name that `orchestration.model` and `orchestration.prompted` use."""

from functools import partial
from pathlib import Path
from typing import Any

from lib import tasks
from lib.config import ROOT, LabSettings, LLMSettings, OrchestrationSettings
from lib.language_models import chat_template, checkpoints, kv_cache_forward, tokenizer
from lib.language_models.cache_key import describe_model
from lib.language_models.cache_key import versions as versions_of_asking
from lib.language_models.local_models import open_local
from lib.language_models.training import decision_traces, released_weights
from lib.llm.open_models import open_models
from lib.orchestration import lab_orchestrator, prompted_model, prompts, reply_parser
from lib.orchestration.decision_model import DecisionModel

VERSION = 1  # of which decision model a name stands for
LAB = lab_orchestrator.NAME
RUNS = ROOT / "data/runs/orchestration"
CASSETTES = ROOT / "data/cassettes/02_orchestration"
RECORDING = "orchestration"  # name of the recording, and of the spending limit, of endpoints


def versions(name: str, llm: LLMSettings) -> dict[str, int]:
    """List the VERSION constants of the code that decides what a decision model chooses.

    Args:
        name: LAB (lab-orchestrator, a small model that ships with the project), or a name of `llm.models`.
        llm: The chat models.

    Returns:
        Version numbers by the name of the code; they enter the cache key of a job.
    """
    decided_by = {"decision models": VERSION}
    if name == LAB:
        return decided_by | {
            "lab-orchestrator": lab_orchestrator.VERSION,
            "tasks": tasks.VERSION,  # the words of the lab
            "decision traces": decision_traces.VERSION,
            "tokenizer": tokenizer.VERSION,
            "chat template": chat_template.VERSION,
            "initial weights": checkpoints.VERSION,
            "forward pass": kv_cache_forward.VERSION,
        }
    decided_by |= {
        "prompts": prompts.VERSION,
        "prompted model": prompted_model.VERSION,
        "choices in replies": reply_parser.VERSION,
    }
    return decided_by | versions_of_asking(llm, [name])


def describe_decision_model(name: str, lab: LabSettings, llm: LLMSettings) -> dict[str, Any]:
    """Describe a decision model for the settings of a job, which decide its cache key.

    Args:
        name: LAB (lab-orchestrator, a small model that ships with the project), or a name of `llm.models`.
        lab: The small models and how they are trained.
        llm: The chat models that can be asked.

    Returns:
        A hash of the weights and the training settings of lab-orchestrator, or the settings of a chat model.

    Raises:
        ValueError: No model has this name.
    """
    if name == LAB:
        card = released_weights.card(name)
        return {"weights": card and card["sha256"], "lab": _select_lab_model(lab, name)}
    if name not in llm.models:
        known = ", ".join((LAB, *llm.models))
        raise ValueError(
            f"orchestration.model: {name!r} is no decision model; there are {known}. "
            "Name one of them, or add yours to llm.models"
        )
    return {"model": describe_model(llm, name)}


def _select_lab_model(lab: LabSettings, name: str) -> dict[str, Any]:
    """Select the training settings of a small model, and of the models whose weights it starts from.

    Args:
        lab: Training settings of all small models.
        name: Name of the model.

    Returns:
        The settings as a dictionary, which enters the cache key of a job.
    """
    models = {}
    next_name: str | None = name
    while next_name is not None:
        models[next_name] = lab.models[next_name].model_dump()
        next_name = lab.models[next_name].base
    return lab.to_job_settings("seed") | {"models": models}


def open_decision_model(
    name: str,
    description: dict[str, Any],
    llm: LLMSettings,
    settings: OrchestrationSettings,
    processes: int = 1,
    runs: str | Path = RUNS,
    cassettes: str | Path = CASSETTES,
    keep_exchanges: bool = False,
) -> DecisionModel:
    """Open the decision model of a name: lab-orchestrator, or a prompted chat model.

    Args:
        name: LAB (lab-orchestrator), or a name of `llm.models`.
        description: Description of the model, as `describe_decision_model` returns it.
        llm: The chat models that may be asked, and how to reach them.
        settings: The section `orchestration` of params.yaml; `summary_interval` is read.
        processes: Number of processes that ask at once.
        runs: Folder of the file that counts the dollars spent on models.
        cassettes: Folder of the recorded replies of endpoints.
        keep_exchanges: Whether decisions carry their prompts and replies.

    Returns:
        The model, which is asked through `decide`.

    Raises:
        ModelError: The released weights of lab-orchestrator were trained by another recipe.
    """
    if name == LAB:
        return lab_orchestrator.LabOrchestrator(LabSettings.from_job_settings(description["lab"]))
    return prompted_model.PromptedModel(
        name,
        llm.models[name].backend,
        partial(open_models, llm, [name], RECORDING, runs, cassettes, processes, open_local()),
        summary_interval=settings.summary_interval,
        keep_exchanges=keep_exchanges,
    )


# Models whose replies are constrained ---------------------------------------------------------------


def list_constrained_versions() -> dict[str, int]:
    """The VERSIONs of the code that decides what a model with constrained replies chooses, by a name in words."""
    from lib.orchestration import constrained_model  # imported late: it loads transformers

    return {
        "decision models": VERSION,
        "prompts": prompts.VERSION,
        "constrained model": constrained_model.VERSION,
    }


def open_constrained_model(folder: str | Path, name: str) -> DecisionModel:
    """Open a Hugging Face model whose replies must name a policy of the menu.

    Args:
        folder: Folder of the model; its card.json may hold a price per token.
        name: Name of the model in tables.

    Returns:
        The model on the CPU, which is asked through `decide`.
    """
    from lib.language_models.hugging_face_model import HuggingFaceModel
    from lib.orchestration.constrained_model import ConstrainedModel

    model = HuggingFaceModel(folder, name, device="cpu")
    price = model.card.get("dollars_per_1k_tokens", 0.0) / 1000
    model.price_in = price
    model.price_out = price
    return ConstrainedModel(model)
