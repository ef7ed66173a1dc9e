"""ToolOrchestra: outcomes of tools, reading, a start and a training in the lab world, and the synthetic benchmark.
The models are released ones, whose weights are the same bytes everywhere."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib import config
from lib.config import LLMSettings, Params, ToolSyntheticSettings
from lib.config.budgeted_routing import LabWorldSettings
from lib.experiment import artifacts, sweep
from lib.experiment.harness import run_job
from lib.experiment.run_context import RunContext
from lib.language_models import checkpoints
from lib.language_models.training import released_weights
from lib.tool_orchestration import lab_experiment, synthetic_benchmark
from lib.tool_orchestration.lab_menus import QUESTIONS
from lib.tool_orchestration.lab_training import PREFERENCES
from lib.tool_orchestration.lab_world import DEV_MENUS, TEST_MENUS
from tests.golden import SmallJob
from tests.golden.budgeted_routing import LEARN, MODEL, measure_distance

SHOWN = 8  # episodes whose numbers are kept one by one
BASE = "lab-reader"
# By name in llm.models: the lab model, and its accuracy by kind of question on its card.
TOOLS = {
    "mini": ("lab-mini", {"chain": 0.9, "facts": 0.1, "passage": 0.8}),
    "control": ("lab-control", {"chain": 1.0, "facts": 0.9, "passage": 0.1}),
    "facts": ("lab-facts", {"chain": 0.1, "facts": 0.9, "passage": 0.9}),
    "caller": ("lab-caller", {"chain": 0.8, "facts": 0.8, "passage": 0.2}),
    "passage": ("lab-passage", {"chain": 0.9, "facts": 0.2, "passage": 1.0}),
}

# All that the jobs read, so that a change to params.yaml is no change here.
OPTIMISERS = {"muon": 0.02, "adamw": 3e-3, "warmup": 4}
SYNTHETIC = {
    "seeds": 2, "updates": [1, 2], "malformed_updates": 2, "groups": 3, "rollouts": 4, "epochs": 2, "clip": 0.2,
    "learning_rate": 0.1, "menu": 3, "prices": 8.0, "spreads": [2.0, 8.0], "spread": 2.0,
    "observation_noise": 0.1, "malformed_probability": 0.2, "users": 4, "test_users": 2, "menus": 3,
    "least_deviation": 0.01,
}  # fmt: skip
LAB_WORLD = {
    "models": list(TOOLS), "held_out": ["passage"], "base": BASE, "seeds": 1, "control_seeds": 1, "updates": 2,
    "reading": {"items": 200, "steps": 20, "batch": 16, "seed": 0, "target": 0.99, "rounds": 2},
    "warm": {"items": 200, "listings": 100, "steps": 60, "batch": 16, "seed": 0},
    "groups": 3, "rollouts": 4, "draws": 2, "turn_tokens": 40, "response_tokens": 16, "temperature": 1.0,
    "learn": LEARN | {"advantages": "group", "learning_rate": 3e-4}, "save_every": 1, "menus": 12, "steering_menus": 6,
}  # fmt: skip


def small_jobs(folder: Path) -> list[SmallJob]:
    """Every job can run by itself: the start that the training builds on is made under `folder`."""
    settings = make_settings()
    models = folder / "models"
    for name, accuracy in (*TOOLS.values(), (BASE, {})):
        shape = settings.lab.models[name]
        checkpoints.save(released_weights.unpack(name, shape), models / name)
        artifacts.write_json(models / name / "card.json", make_card(accuracy))
    context = RunContext.of(settings, models, folder, folder, workers=1, save_every=1)

    # A model that reads menus, and a start that is made of it.
    tools_job, reading_job = first_jobs = lab_experiment.make_first_jobs(settings, models)
    run_first_job = partial(run_job, work=lab_experiment.run_first_job, context=context)
    sweep.run(run_first_job, [reading_job], folder / "runs", workers=1)
    reader = reading_job.folder(folder / "runs")
    context = replace(context, inputs={reading_job.key: str(reader)})
    (start_job,) = lab_experiment.make_starts(settings, models, first_jobs)
    teach_form = partial(run_job, work=lab_experiment.teach_form, context=context)
    sweep.run(teach_form, [start_job], folder / "runs", workers=1)
    start = start_job.folder(folder / "runs")
    context = replace(context, inputs=context.inputs | {start_job.key: str(start)})

    (training_job,) = lab_experiment.make_jobs(settings, [PREFERENCES], [start_job])
    run_training = partial(run_job, work=lab_experiment.run_training, context=context)
    return [
        SmallJob(tools_job, run_first_job, summarize_outcomes),
        SmallJob(reading_job, run_first_job, partial(summarize_reading, models / BASE)),
        SmallJob(start_job, teach_form, partial(summarize_orchestrator, reader / "model")),
        SmallJob(training_job, run_training, partial(summarize_training, start / "model")),
        *(
            SmallJob(job, synthetic_benchmark.work, summarize_benchmark)
            for job in synthetic_benchmark.make_jobs(settings.tools.synthetic)
        ),
    ]


def make_settings() -> Params:
    """Settings of which nothing but the sizes of released models comes from params.yaml."""
    whole = config.load("smoke")
    models = {name: MODEL | {"model": file} for name, (file, _) in TOOLS.items()}
    base = whole.lab.models[BASE].model_copy(update=OPTIMISERS)
    sections = {
        "synthetic": config.validate_settings(SYNTHETIC, ToolSyntheticSettings, "a golden job"),
        "lab_world": config.validate_settings(LAB_WORLD, LabWorldSettings, "a golden job"),
    }
    changes = {
        "tools": whole.tools.model_copy(update=sections),
        "llm": config.validate_settings(
            {"cassette": "off", "max_usd": 0.0, "models": models}, LLMSettings, "a golden job"
        ),
        "lab": whole.lab.model_copy(update={"models": whole.lab.models | {BASE: base}}),
    }
    return whole.model_copy(update=changes)


def make_card(accuracy_by_kind: dict[str, float]) -> dict[str, Any]:
    """A card of a model that does kinds of questions equally well at all difficulties."""
    accuracy = []
    for kind, value in accuracy_by_kind.items():
        for difficulty in QUESTIONS[kind]:
            row = {"category": kind, "skin": "plain", "difficulty": difficulty, "accuracy": value}
            accuracy.append(row)
    return {"dollars_per_1k_tokens": 0.001, "tokens_per_second": 1000.0, "accuracy": accuracy}


# What is kept -------------------------------------------------------------------------------------


def summarize_outcomes(folder: Path, result: None) -> dict[str, Any]:
    summary = {}
    for name in (DEV_MENUS, TEST_MENUS):
        rows = artifacts.read_parquet(folder / f"{name}.parquet")
        columns = ["correct", "cost_usd", "seconds"]
        summary[name] = rows.groupby(["sample", "tool"])[columns].mean().to_numpy().tolist()
    return summary


def summarize_reading(before: Path, folder: Path, result: None) -> dict[str, Any]:
    """What a model finds on menus, and how far its weights are from those that it began with."""
    rows = artifacts.read_parquet(folder / "reading.parquet")
    return {"distance": measure_distance(before, folder / "model")} | rows.iloc[0].to_dict()


def summarize_orchestrator(before: Path, folder: Path, result: None) -> dict[str, Any]:
    """Tests of an orchestrator, and how far its weights are from those that it began with."""
    summary: dict[str, Any] = {"distance": measure_distance(before, folder / "model")}
    for name in ("episodes", "spending", "held_out", "prices"):
        table = artifacts.read_parquet(folder / f"{name}.parquet").select_dtypes("number")
        summary[name] = {"rows": len(table)} | table.mean().to_dict()
        summary[name]["first rows"] = table.head(SHOWN).to_numpy().tolist()
    return summary


def summarize_training(before: Path, folder: Path, result: None) -> dict[str, Any]:
    learning = artifacts.read_parquet(folder / "learning.parquet").select_dtypes("number")
    return summarize_orchestrator(before, folder, result) | {
        "learning": dict(zip(learning.columns, np.array(learning).T.tolist(), strict=True))
    }


def summarize_benchmark(folder: Path, result: None) -> dict[str, Any]:
    rows = artifacts.read_parquet(folder / "rows.parquet")
    by_arm = rows.groupby(["method", "step"], sort=False)
    columns = ("correct", "cost_usd", "seconds", "reward", "regret", "malformed_probability")
    return {"rows": len(rows)} | {name: by_arm[name].mean().tolist() for name in columns}
