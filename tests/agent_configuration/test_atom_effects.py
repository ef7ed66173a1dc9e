"""What an atom changes: paired with the same question without it, and idle where nothing changes."""

import pandas as pd
import pytest

from lib.agent_configuration import atom_effects
from lib.agent_configuration.atom_effects import NO_ATOM


def make_rows() -> pd.DataFrame:
    """Without atoms half of the questions are right; "helps" makes all right, "idle" changes nothing."""
    rows = []
    for atom in (NO_ATOM, "helps", "idle"):
        for kind in ("chain", "hops"):
            for number in range(4):
                for sample in range(2):
                    is_right = atom == "helps" or number % 2 == 0
                    rows.append(
                        {
                            "atom": atom,
                            "group": kind,
                            "item": f"{kind} {number}",
                            "sample": sample,
                            "correct": float(is_right),
                            "reward": 5.0 * is_right,
                            "tokens_out": 20 if atom == "helps" else 10,
                            "used": 1,
                        }
                    )
    return pd.DataFrame(rows)


def test_an_effect_is_the_difference_in_pairs_of_question_and_sample():
    effects = atom_effects.estimate_atom_effects(make_rows().assign(seed=0))
    assert effects.loc[("helps", "all", "correct"), "value"] == pytest.approx(0.5)
    assert effects.loc[("helps", "hops", "tokens_out"), "value"] == pytest.approx(10)
    assert effects.loc[("idle", "all", "reward"), "value"] == 0


def test_an_atom_that_changes_no_episode_is_idle():
    assert atom_effects.list_idle_atoms(make_rows()) == ["idle"]


def test_an_atom_that_changes_one_episode_is_not_idle():
    rows = make_rows()
    is_idle = (rows["atom"] == "idle") & (rows["item"] == "hops 3") & (rows["sample"] == 1)
    rows.loc[is_idle, "tokens_out"] += 1
    assert atom_effects.list_idle_atoms(rows) == []
