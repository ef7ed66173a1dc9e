"""ARC: a training with both refinements and its tests, a part of the searched set, and an arm of the synthetic
benchmark. Agents are the released lab models, whose weights are the same bytes everywhere."""

from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

from lib import config
from lib.agent_configuration import experiment, synthetic_benchmark
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.variants import NAMED
from lib.config import ConfigurationSettings, LLMSettings, Params
from lib.experiment import artifacts, sweep
from lib.experiment.harness import run_job
from lib.language_models import checkpoints, lab_model
from lib.language_models.training import released_weights
from lib.llm.reply_store import ReplyStore
from tests.golden import SmallJob

SHOWN = 8  # episodes whose numbers are kept one by one

# All that the jobs read, so that a change to params.yaml or to the library of atoms is no change here.
REWARD = {
    "alpha": 5.0,
    "beta_s": 0.02,
    "beta_t": 0.03,
    "eta": 1.0,
    "delta_1": 0.1,
    "delta_2": 0.2,
    "delta_3": 0.3,
}
LEARNING = {
    "batch": 8, "group": 1, "structure_rate": 3e-3, "prompt_rate": 3e-3, "clip": 0.2, "gamma": 0.95, "entropy": 0.05,
    "value": 0.5, "max_grad_norm": 0.5, "epochs": 2,
}  # fmt: skip
REFINING = {
    "epochs": 2, "batch": 4, "structure_rate": 3e-3, "prompt_rate": 3e-3, "entropy": 0.01, "max_grad_norm": 0.5,
    "share": 0.5, "beta": 0.05, "good": 0.0, "bad": 2.0,
}  # fmt: skip
SETTINGS = {
    "model": "team",
    "larger": "team-large",
    "prompted": "team",
    "encoder": "hashing",
    "encoders": ["hashing"],
    "tiers": [8, 24, 64],
    "hosted_tiers": [256, 512, 1024],
    "temperature": 0.7,
    "seeds": 1,
    "ablation_seeds": 1,
    "jobs": 1,
    "draws": 2,
    "train_items": 3,
    "search_items": 1,
    "dev_items": 2,
    "test_items": 2,
    "grid": 9,
    "sampled": 9,
    "episodes": 24,
    "save_every": 1,
    "reward": REWARD,
    "ppo": LEARNING,
    "grpo": LEARNING | {"group": 4, "gamma": None},
    "sft": REFINING,
    "dpo": REFINING,
    "glass": {
        "seeds": 2,
        "interaction": 2.0,
        "noise": 1.0,
        "eval_points": [16, 48],
        "sft_after": [48],
        "batch": 16,
        "hidden": 8,
        "observation_noise": 0.2,
        "structure_rate": 3e-3,
        "prompt_rate": 3e-3,
        "sft_rate": 1e-2,
        "sft_prompt_rate": 1e-2,
        "sft_batch": 8,
        "states": 2,
        "num_samples": 2,
        "interactions": [2.0],
        "noises": [1.0],
        "map_seeds": 2,
        "map_episodes": 16,
        "map_every": 16,
    },
}
COMMON = {
    "backend": "lab", "kwh_per_token": 1.4e-6, "temperature": 0.7, "max_tokens": 96, "timeout": 60.0, "retries": 4,
    "concurrency": 8,
}  # fmt: skip
MODELS = {
    "team": COMMON | {"model": "lab-team"},
    "team-large": COMMON | {"model": "lab-team-large"},
}
CARDS = {
    "lab-team": {"dollars_per_1k_tokens": 1e-3, "tokens_per_second": 100.0},
    "lab-team-large": {"dollars_per_1k_tokens": 2e-3, "tokens_per_second": 50.0},
}
ATOMS = """
base:
  reasoner:
    stepwise: {strategy: stepwise, hint: step by step, text: Work step by step.}
    calculator: {strategy: tools, hint: use the calculator, text: Use the calculator.}
  verifier:
    check: {strategy: verify, hint: check each step, text: Check each step.}
  answerer:
    only: {strategy: extraction, hint: only the answer, text: Write only the answer.}
    majority: {strategy: verify, hint: the best votes, text: Take what most attempts say.}
"""


def small_jobs(folder: Path) -> list[SmallJob]:
    """A training of ARC, the first part of the searched set, and ARC in the synthetic benchmark."""
    settings = make_params(folder)
    models = folder / "models"
    for name, card in CARDS.items():
        checkpoints.save(released_weights.unpack(name, settings.lab.models[name]), models / name)
        artifacts.write_json(models / name / "card.json", card)
    context = experiment.make_context(settings, models, folder / "runs")
    work = ask_anew(partial(run_job, work=experiment.work, context=context))
    jobs = experiment.make_jobs(settings, [NAMED["arc"]], models)
    return [
        SmallJob(_first(jobs, experiment.TRAINING), work, summarize_training),
        SmallJob(_first(jobs, experiment.DECLARED_SET), work, summarize_search),
        SmallJob(
            _first(
                synthetic_benchmark.make_jobs(settings.configuration), synthetic_benchmark.TRAINING
            ),
            synthetic_benchmark.run_job,
            summarize_benchmark,
        ),
    ]


def make_params(folder: Path) -> Params:
    """The parameters of the jobs; the library of atoms is written into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    atoms_file = folder / "atoms.yaml"
    atoms_file.write_text(ATOMS, encoding="utf-8")
    llm = {"cassette": "off", "max_usd": 0.0, "models": MODELS}
    changes = {
        "configuration": config.validate_settings(
            SETTINGS | {"atoms": str(atoms_file)}, ConfigurationSettings, "a golden job"
        ),
        "llm": config.validate_settings(llm, LLMSettings, "a golden job"),
    }
    return config.load("smoke").model_copy(update=changes)


def ask_anew(work: Callable) -> Callable:
    """The same work with agents that remember no reply of an earlier run, so that a change to them shows."""

    @wraps(work)
    def work_without_memory(*arguments: Any) -> Any:
        with mock.patch.object(lab_model, "open_shared_store", lambda: ReplyStore(None)):
            return work(*arguments)

    return work_without_memory


def _first(jobs: list[sweep.Job], kind: str) -> sweep.Job:
    return next(job for job in jobs if job.settings["job"] == kind)


def summarize_training(folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    """First episodes and losses of the training, what the refinements started from, all policies and their tests."""
    rollouts, learning, tests = (
        artifacts.read_parquet(folder / f"{name}.parquet")
        for name in ("rollouts", "learning", "tests")
    )
    policies = {
        f"{name}, {kind.name}": artifacts.read_tensors(folder / f"{name}-{kind.name}.safetensors")
        for name in ("arc_no_sft", "arc", "arc_dpo")
        for kind in KINDS
    }
    return {
        "refinements": result,
        "workflows of rollouts": rollouts["w"].head(SHOWN).tolist(),
        "rewards of rollouts": rollouts["reward"].head(SHOWN).tolist(),
        "mean of rollouts": _mean_outcomes(rollouts),
        "losses": learning.drop(columns=["step", "only"]).mean().tolist(),
        "tests": {
            f"{method}, {model}": _mean_outcomes(part)
            for (method, model), part in tests.groupby(["method", "model"])
        },
        "errors": tests["error"].value_counts().sort_index().to_dict(),
        "norms": {name: _norm(arrays) for name, arrays in policies.items()},
    }


def summarize_search(folder: Path, result: dict[str, Any]) -> dict[str, Any]:
    """First configurations and their outcomes by split."""
    rows = artifacts.read_parquet(folder / "tried.parquet")
    return {
        "configurations": rows.drop_duplicates("number")[["w", "tools1", "tools2", "allocated"]]
        .to_numpy()
        .tolist(),
        "rewards": rows["reward"].head(SHOWN).tolist(),
        "outcomes": {split: _mean_outcomes(part) for split, part in rows.groupby("split")},
    }


def summarize_benchmark(folder: Path, result: None) -> dict[str, Any]:
    """Evaluations on the way and after imitation, by arm and step."""
    rows = artifacts.read_parquet(folder / "rows.parquet")
    columns = ["reward", "correct", "drawn", "asked", "instructions", "margin", "outside"]
    means = rows.groupby(["method", "step"])[columns].mean()
    return {f"{method}, {step}": means.loc[(method, step)].tolist() for method, step in means.index}


def _mean_outcomes(rows: pd.DataFrame) -> list[float]:
    columns = [
        "reward",
        "correct",
        "calls",
        "turns",
        "tokens_out",
        "tokens_in",
        "cost_usd",
        "seconds",
        "used",
        "cut",
    ]
    return rows[columns].mean().tolist()


def _norm(arrays: dict[str, np.ndarray]) -> float:
    """Of all weights of a policy, in the Euclidean norm."""
    return float(np.sqrt(sum(np.square(array.astype(float)).sum() for array in arrays.values())))
