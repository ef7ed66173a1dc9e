"""The paper's settings, executed on shrunk counts: so that the profile `paper` is more than a promise.

Models, lengths, rewards, group size, learning rates and the Conductor are those of `PROFILE=paper`; there are only
fewer prompts, items and updates. What a run of it measures means nothing.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from lib import config
from lib.conductor import experiment, variants
from lib.conductor.results import make_results_table
from lib.config import ConductorSettings, Params

NUM_STEPS = 3  # as many as between two updates of the Conductor
# Counts that are shrunk; everything else stays as the profile says.
_SHRUNK = {"seeds": 1, "test_items": 4, "jobs": 1}
_SHRUNK_SECTIONS = {
    "grpo": {"epochs": 1},
    "initial_policy": {"items": 128},
    "preference": {"prompts": 24, "epochs": 1},
}


def shrink(settings: ConductorSettings) -> dict[str, Any]:
    """The changes of the section `conductor` that leave `NUM_STEPS` steps of everything.

    Args:
        settings: The section at the profile `paper`.
    """
    num_prompts = NUM_STEPS * settings.grpo.prompts_per_step
    return {"prompts": num_prompts, **_SHRUNK, **_SHRUNK_SECTIONS}


def load_shrunk_paper_profile(llm: dict[str, Any] | None = None) -> Params:
    """All settings of the profile `paper`, with shrunk counts in the section `conductor`."""
    paper = config.load("paper").conductor
    return config.settings(profile="paper", llm=llm, conductor=shrink(paper))


def run_shrunk_paper_profile(
    models: str | Path | None = None, llm: dict[str, Any] | None = None
) -> bool:
    """Train and test the Conductor with the paper's settings for a few steps.

    Args:
        models: Folder of the lab models, as of `experiment.run`.
        llm: Changes to the judge's backend.

    Returns:
        Whether every step was made, the Conductor was updated, and every number of the results is finite.
    """
    params = load_shrunk_paper_profile(llm)
    with tempfile.TemporaryDirectory() as runs:
        results = experiment.run(
            params, [variants.CONDUCTOR], models, runs, label="the paper's settings, a few steps"
        )
    rows = make_results_table(results)
    trained = rows[rows["split"] == "train"]
    weights = trained.filter(like="w_").to_numpy(dtype=float)
    has_all_steps = trained["step"].max() + 1 == NUM_STEPS
    is_finite = np.isfinite(weights).all() and rows["correct"].notna().all()
    return bool(has_all_steps and is_finite)
