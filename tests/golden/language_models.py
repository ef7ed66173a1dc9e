"""Language models: a tiny one is trained on questions, traces and decision situations, then measured."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from lib import config
from lib.experiment import artifacts, sweep
from lib.language_models.training import build, decision_traces, model_cards
from tests.golden import SmallJob
from tests.language_models import tiny

MIXTURE = [
    config.MixtureComponent(family="chain", difficulties=[1, 2], skin="plain"),
    config.MixtureComponent(family="chain", difficulties=[1, 2], style="brief"),
    config.MixtureComponent(family="facts", difficulties=[1, 2], skin="plain", style="agent"),
    config.MixtureComponent(family="mixed", difficulties=[1, 2], style="team"),
    config.MixtureComponent(family=decision_traces.FAMILY, difficulties=[2, 3]),
]


def small_jobs(folder: Path) -> list[SmallJob]:
    """A training of a few updates, and the measurement of the trained model."""
    settings = make_settings()
    training_job = build.make_training_job(settings, "m", use_released=False)
    if not (training_job.folder(folder) / "model").exists():
        sweep.run(build.make_model, [training_job], folder, workers=1)
    measuring_job = model_cards.make_measuring_job(settings, "m", training_job)
    work = partial(
        model_cards.measure_model, model_folders={"m": str(training_job.folder(folder) / "model")}
    )
    return [
        SmallJob(training_job, build.make_model, summarize_training),
        SmallJob(measuring_job, work, summarize_measurement),
    ]


def make_settings() -> config.LabSettings:
    """The lab with one tiny model that is taught a little of everything."""
    model = tiny.settings(
        data_mixture=MIXTURE,
        window=512,
        target=config.Target(family="chain", difficulty=1, accuracy=0.0),
    )
    base = config.load("smoke").lab.model_dump()
    content = base | {
        "models": {"m": model.model_dump()},
        "demo_model": "m",
        "jobs": 1,
        "test_items": 2,
    }
    return config.validate_settings(content, config.LabSettings, "a golden job")


def summarize_training(folder: Path, result: Any) -> dict[str, Any]:
    """The curve, and norms of the trained weights."""
    curve = artifacts.read_parquet(folder / "curve.parquet")
    weights = artifacts.read_tensors(folder / "model" / "model.safetensors")
    return {
        "loss": curve["loss"].tolist(),
        "accuracy": curve["accuracy"].tolist(),
        "norms": [float(np.linalg.norm(weights[name])) for name in sorted(weights)][:6],
    }


def summarize_measurement(folder: Path, result: Any) -> dict[str, Any]:
    """Replies of the untrained kind, their confidence, and the price of a token."""
    answers = artifacts.read_parquet(folder / "answers.parquet")
    return {
        "replies": answers["reply"].str.len().head(10).tolist(),
        "confidence": float(answers["confidence"].mean()),
        "tokens_out": int(answers["tokens_out"].sum()),
        "flops": result["flops"],
        "cost_usd": result["cost_usd"],
    }
