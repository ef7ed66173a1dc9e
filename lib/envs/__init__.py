"""Environments with vector rewards, registered with Gymnasium, and their batched twins.

Importing this package registers `orchestration/Education-v0` and the grid rooms.
"""

from dataclasses import fields
from functools import lru_cache
from pathlib import Path

import gymnasium
import numpy as np

from lib.config import ROOT, EducationSettings
from lib.envs.education import LEVELS, Education, EducationRules
from lib.envs.grid import register_grid
from lib.envs.question_bank import Bank, calibrate_levels, load_bank

VERSION = 1  # of the environments and the question bank of this package
# Rules that are settings of the same name; the counts of items come from the bank.
_RULE_NAMES = {rule.name for rule in fields(EducationRules) if rule.init} - {"items"}


def _from_root(path: str) -> Path:
    return ROOT / path  # an absolute path stays as it is


def load_topic_bank(settings: EducationSettings) -> Bank:
    """Reads the questions of the target skill, with levels as labelled or as calibrated from answers."""
    bank = load_bank(_from_root(settings.bank))
    if settings.difficulty == "calibrated":
        bank = calibrate_levels(bank, _from_root(settings.answers))
    return bank.select_topic(settings.topic)


def make_education_rules(settings: EducationSettings) -> EducationRules:
    """Makes the rules of the simulator from the parameters and the bank that they name."""
    files = [_from_root(path) for path in (settings.bank, settings.answers) if path]
    # The times of the files are part of the cache's key, so that a changed file is read again.
    modification_times = [path.stat().st_mtime_ns for path in files if path.exists()]
    return _make_rules_cached(settings, *modification_times)


@lru_cache(maxsize=16)
def _make_rules_cached(settings: EducationSettings, *_modification_times: int) -> EducationRules:
    levels = load_topic_bank(settings).levels  # 1 to 6
    counts = np.bincount(levels, minlength=LEVELS + 1)[1:]
    items = tuple(counts.tolist())
    rules = {name: getattr(settings, name) for name in _RULE_NAMES}
    return EducationRules(items, **rules)


def make_education(settings: EducationSettings | None = None, **arguments) -> Education:
    """Makes one student with the bank's own question ids.

    Args:
        settings: The parameters; those of `params.yaml` by default.
        arguments: Further arguments of `Education`, such as render_mode.
    """
    if settings is None:
        from lib.config import load

        settings = load().education
    bank = load_topic_bank(settings)
    ids_by_level = []
    for level in range(1, LEVELS + 1):
        ids = bank.ids[bank.levels == level]
        ids_by_level.append(ids.tolist())
    return Education(make_education_rules(settings), ids_by_level, **arguments)


if "orchestration/Education-v0" not in gymnasium.registry:
    gymnasium.register(
        "orchestration/Education-v0",
        entry_point="lib.envs:make_education",
        disable_env_checker=True,  # the checker expects scalar rewards
    )
register_grid()
