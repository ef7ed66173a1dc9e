"""A small experiment of lesson 02: the tiny zoo on disk, and settings with few and short episodes."""

from pathlib import Path

import pandas as pd
import pytest

from lib import config
from lib.config import Params
from lib.experiment import artifacts
from lib.experiment.harness import JobRun
from lib.experiment.run_context import RunContext
from lib.experiment.sweep import Job
from lib.orchestration import experiment
from lib.orchestration.baseline_models import GreedyModel
from lib.orchestration.worlds import World, make_environments, make_episode_sets
from lib.policy_zoo.recipes import SINGLE
from tests.orchestration import untrained, zoo

SCRIPTED = "scripted-medium"
ENDPOINT = {  # as a reader's params.yaml has it
    "backend": "endpoint",
    "base_url": "http://127.0.0.1:9/v1",
    "model": "m",
    "price_in": 1e-6,
    "price_out": 1e-6,
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """The tiny zoo on disk, as `lib.policy_zoo.train` leaves one: two seeds, cards, references."""
    root = tmp_path_factory.mktemp("zoo")
    for domain in zoo.DOMAINS:
        zoo.write(root, domain, zoo.cards(domain))
    return root


def make_params(**changes) -> Params:
    """Settings of smoke with few, short episodes, two seeds, one process; a scripted model decides."""
    base = {
        "education": {"horizon": 6},
        "minigrid": {"horizon": 6},
        "zoo": {"seeds": 2},
        "orchestration": {
            "model": SCRIPTED,
            "prompted": ["scripted-small"],
            "judge": SCRIPTED,
            "students": 3,
            "training": 3,
            "episodes": 2,
            "jobs": 1,
            "lookahead": 2,
            "summary_interval": 3,
            "decision_intervals": [2],
            "lookahead_depths": [3],
            "upper_bound": {
                "education": {"steps": 2, "handovers": [1]},
                "minigrid": {"steps": 2, "handovers": [1]},
            },
            "varied": {"minigrid": {"horizon": 7}},
        },
    }
    return config.settings(profile="smoke", **config.overlay_settings(base, changes))


def play_job(job: Job, params: Params, folder: Path, zoo_folder: Path) -> pd.DataFrame:
    """The episodes of a job that knows its settings and no others."""
    context = RunContext.of(params, zoo_folder, folder, folder, 1)
    experiment.play_job(JobRun(job, folder, lambda done: None, context))
    return artifacts.read_parquet(folder / "episodes.parquet")


def make_world(domain: str, name: str, num_test: int = 6, **changes) -> World:
    """A world of constant actions or planned policies, in which arithmetic decides."""
    params = make_params(education={"horizon": 20}, **changes)
    environments = make_environments(params, name)
    menu = untrained.make_episode_set(domain).menu
    cards = {
        policy: {"name": policy, "optimized_objective": "x", "behavior_hint": "y"}
        for policy in SINGLE
    }
    return World(
        name=name,
        domain=domain,
        settings=params.orchestration,
        upper_bound=params.orchestration.upper_bound[domain].model_dump(),
        episode_sets=make_episode_sets(
            environments, params.orchestration, domain, name, 0, menu, num_test
        ),
        cards=cards,
        model=GreedyModel(),
    )
