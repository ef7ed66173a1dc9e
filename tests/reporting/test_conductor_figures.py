"""Lesson 04's tables and titles say what their numbers say."""

import numpy as np
import pandas as pd
import pytest

from lib.conductor.rewards import COMPONENTS
from lib.reporting import conductor as draw
from lib.stats import Interval


def interval(value, half=0.02):
    return Interval(value, value - half, value + half)


def rows(**means):
    return {arm: {"mean": interval(value)} for arm, value in means.items()}


def items(arms, seeds=2, each=6):
    """Scores that differ by arm, seed and item."""
    table = [
        {"arm": arm, "seed": seed, "category": name, "item": c * each + i, "tokens": 5.0,
         "score": min(1.0, level + 0.01 * seed + 0.02 * i)}
        for arm, level in arms.items() for seed in range(seeds) for c, name in enumerate(draw.NAMES)
        for i in range(each)
    ]  # fmt: skip
    return pd.DataFrame(table)


def rollouts(arms=draw.SHOWN, steps=8, group=5, seeds=2):
    """Rollouts in which `ppl` is the quality, `fmt` the same for all, the rest noise."""
    rng = np.random.default_rng(0)
    parts = []
    for arm in arms:
        for seed in range(seeds):
            n = steps * len(draw.NAMES) * group
            part = pd.DataFrame(rng.random((n, 5)), columns=list(COMPONENTS)).assign(fmt=1.0)
            for name in COMPONENTS:
                part[f"r_{name}"], part[f"w_{name}"] = part[name], 0.2
            part["step"] = np.repeat(np.arange(steps), len(draw.NAMES) * group)
            part["category"] = np.tile(np.repeat(draw.NAMES, group), steps)
            part = part.assign(arm=arm, seed=seed, quality=part["ppl"], tokens=10 + part["step"], advantage=part["len"])
            parts.append(part.assign(action=3))
    return pd.concat(parts, ignore_index=True)


def test_no_static_weight_is_right_in_both_made_up_tasks():
    margins = np.array([[draw.margin(e, w) for w in np.linspace(0, 1, 101)] for e in draw.BY_HAND.values()])
    assert (margins.min(0) <= 1e-9).all()
    assert (margins.max(1) > 0).all()  # each has weights that are right in it
    assert "0.37" in draw.static_alt() and "0.50" in draw.static_alt()


def test_best_and_second_are_named_only_where_intervals_separate():
    assert draw.marks(rows(base=0.5, equal=0.6, conductor=0.7), "mean") == {"conductor": "best", "equal": "second"}
    assert draw.marks(rows(base=0.59, equal=0.6, conductor=0.7), "mean") == {"conductor": "best"}
    assert draw.marks(rows(base=0.5, equal=0.69, conductor=0.7), "mean") == {}
    assert draw.marks(rows(base=0.5, conductor=0.6, oracle=0.9), "mean") == {"conductor": "best"}


def test_scores_come_with_intervals_in_the_order_of_the_arms():
    found = draw.scores(items({"conductor": 0.6, "base": 0.3}))
    assert list(found) == ["base", "conductor"]
    assert found["base"]["story"].value == pytest.approx(0.3 + 0.005 + 0.05)
    assert found["base"]["mean"].lo < found["base"]["mean"].value < found["base"]["mean"].hi
    assert "best" in draw.score_table(found).set_index("arm").loc["Conductor", "mean"]


def test_differences_are_paired_and_get_a_verdict():
    gaps = draw.differences(items({"conductor": 0.6, "base": 0.3, "random": 0.6}), "conductor", ["base", "random"])
    table = draw.verdicts(gaps).set_index("against")
    assert table.loc["Base", "mean"].endswith("better")
    assert table.loc["Random", "mean"].endswith("undecided")
    assert draw.score_claim(gaps) == (
        "Mean score of the Conductor: above Base (+0.30), not told apart from Random (+0.00)"
    )


def test_the_best_constant_is_among_the_constants():
    assert draw.best_constant(rows(base=0.9, em=0.5, pref=0.6, conductor=0.95)) == "pref"


def groups(group=5):
    """Groups of replies in which `ppl` is the quality and a thought costs 0.5 of `len`."""
    part = rollouts(["base"], steps=6, seeds=1).sort_values("category", kind="stable", ignore_index=True)
    part["right"], part["thinks"] = part["quality"], np.arange(len(part)) % group < 2
    part["r_len"] = np.where(part["thinks"], 0.5, 1.0)
    return part


def test_knowledge_finds_the_reward_that_is_the_quality():
    known = draw.knowledge(groups(), 5)
    assert known["ppl"].to_numpy() == pytest.approx(1.0)
    assert known["fmt"].to_numpy() == pytest.approx(0.0)
    assert "ppl in story (+1.00)" in draw.knowledge_claim(known)


def test_what_a_thought_does_is_counted_in_groups_that_have_both_kinds():
    made = groups()
    made.loc[made.index[:5], ["thinks", "r_len"]] = [True, 0.0]  # a group that only thinks: left out
    table = draw.thinking(made, 5).set_index("category")
    assert table["len"].to_numpy() == pytest.approx(-0.5)
    assert table["share that thinks"].max() > 0.4


def test_the_heaviest_reward_shares_its_place_with_those_that_reach_it():
    row = {"fmt": interval(0.5, 0.05), "len": interval(0.42, 0.04), "ppl": interval(0.1, 0.01)}
    other = row | {"len": interval(0.2, 0.01)}
    title = draw.weights_claim({"story": row, "social": row, "reasoning": other})
    assert title == "The Conductor ends on fmt or len (story, social); fmt (reasoning)"


WEIGHTS = {name: {r: interval(0.2) for r in COMPONENTS} for name in draw.NAMES}


@pytest.mark.parametrize(
    "make",
    [lambda r: draw.weights_over_training(r, WEIGHTS), draw.lengths, lambda r: draw.component_curves(r, 5)],
)
def test_figures_over_training_can_be_drawn(make):
    assert len(make(rollouts()).axes) in (4, 6)


def test_a_judge_s_verdicts_stand_beside_the_verifier_s():
    table = pd.DataFrame({"arm": "base", "category": "story", "right": [1.0, 0.0, 1.0, 1.0]})
    (row,) = draw.verdict_table(table, [True, True, None, False]).to_dict("records")
    assert row["no verdict"] == 1 and row["agree"] == pytest.approx(0.33)
    assert row["judge"].startswith("0.67")
    (row,) = draw.verdict_table(table, [None] * 4).to_dict("records")
    assert row["judge"] == "no verdict"
