"""A small experiment of lesson 02: the tiny zoo on disk, and settings with few and short episodes."""

from pathlib import Path

import pytest

from lib import config
from lib.config import Params
from tests.orchestration import zoo

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
            "prompted": [SCRIPTED],
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
