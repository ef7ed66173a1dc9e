"""Environments with vector rewards, registered with Gymnasium, and their batched twins.

Importing this package registers `orchestration/Education-v0` and the grid rooms.
"""

from dataclasses import fields
from functools import lru_cache
from pathlib import Path

import gymnasium

from lib.config import ROOT, EducationSettings
from lib.envs.education import LEVELS, Education, EducationRules
from lib.envs.grid import register_grid
from lib.envs.question_bank import Bank, calibrated_levels, load_bank

VERSION = 1  # of the environments and the question bank of this package
_RULES = {rule.name for rule in fields(EducationRules) if rule.init} - {"items"}


def _from_root(path: str) -> Path:
    return ROOT / path  # an absolute path stays as it is


def topic_bank(settings: EducationSettings) -> Bank:
    """The questions of the target skill, with levels as labelled or as calibrated from answers."""
    bank = load_bank(_from_root(settings.bank))
    if settings.difficulty == "calibrated":
        bank = calibrated_levels(bank, _from_root(settings.answers))
    return bank.topic(settings.topic)


def make_education_rules(settings: EducationSettings) -> EducationRules:
    """Rules of the simulator from the parameters and the bank that they name; read once per file."""
    files = [_from_root(path) for path in (settings.bank, settings.answers) if path]
    return _rules(settings, *(path.stat().st_mtime_ns for path in files if path.exists()))


@lru_cache(maxsize=16)
def _rules(settings: EducationSettings, *_written: int) -> EducationRules:
    levels = topic_bank(settings).levels
    items = tuple(int((levels == level + 1).sum()) for level in range(LEVELS))
    return EducationRules(items, **{name: getattr(settings, name) for name in _RULES})


def make_education(settings: EducationSettings | None = None, **arguments) -> Education:
    """One student with the bank's own question ids; the parameters of `params.yaml` by default."""
    if settings is None:
        from lib.config import load

        settings = load().education
    bank = topic_bank(settings)
    ids = [[int(i) for i in bank.ids[bank.levels == level + 1]] for level in range(LEVELS)]
    return Education(make_education_rules(settings), ids, **arguments)


if "orchestration/Education-v0" not in gymnasium.registry:
    gymnasium.register(
        "orchestration/Education-v0",
        entry_point="lib.envs:make_education",
        disable_env_checker=True,
    )  # the checker expects scalar rewards
register_grid()
