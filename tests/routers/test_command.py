"""`python -m lib router evaluate TABLE.csv`: an answer where there is one, a reason where a table cannot be used."""

import numpy as np
import pandas as pd
import pytest

from lib.experiment.seeds import rng
from lib.recorded_outcomes import headroom
from lib.routers.evaluate_command import (
    CLOSE,
    TOO_FEW,
    WORSE,
    count_items_needed,
    decide_question,
    find_mde,
    main,
)
from tests.recorded_outcomes.small import long, made


def run(path, *options: str) -> int:
    return main([str(path), "--profile", "smoke", *options])


def write_rows(path, rows):
    rows.to_csv(path, index=False)
    return path


def make_planted_rows(num_items: int, seed: int):
    """Two models, each of which is right on its half of the feature: a router that sees it is always right."""
    feature = rng("test", "planted", num_items, seed=seed).normal(size=num_items)
    correct = np.column_stack([feature > 0, feature <= 0]).astype(int)
    columns = {
        "item": np.repeat([f"q{index}" for index in range(num_items)], 2),
        "model": np.tile(["small", "large"], num_items),
        "correct": correct.ravel(),
        "cost_usd": np.tile([0.001, 0.02], num_items),
        "e0": np.repeat(feature, 2),
    }
    return pd.DataFrame(columns)


def test_it_says_yes_where_a_router_is_cheaper_at_equal_quality(tmp_path, capsys):
    path = write_rows(tmp_path / "mine.csv", long(made(400)))
    assert run(path) == 0
    output = capsys.readouterr().out
    assert "Yes: " in output and "best constant" in output and "oracle" in output
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_it_says_no_where_models_are_coins_of_one_price_and_items_are_many(tmp_path, capsys):
    rows = long(made(3_000, dice=True)).assign(cost_usd=1.0)
    assert run(write_rows(tmp_path / "mine.csv", rows)) == 0
    assert "No, and no router is likely to" in capsys.readouterr().out


@pytest.mark.parametrize("num_items", [12, 24, 48])
@pytest.mark.parametrize("seed", range(2))
def test_few_items_never_say_that_no_router_is_likely_to_win(tmp_path, capsys, num_items, seed):
    path = write_rows(tmp_path / "mine.csv", make_planted_rows(num_items, seed))
    assert run(path) == 0
    output = capsys.readouterr().out
    assert "no router is likely to" not in output
    told = [f"Too few items to tell ({num_items};", "Yes: ", "though there is something to win"]
    assert any(text in output for text in told)


def test_too_few_items_are_said_with_the_detectable_effect_and_how_many_would_do(tmp_path, capsys):
    rows = long(made(24, dice=True)).assign(cost_usd=1.0)
    assert run(write_rows(tmp_path / "mine.csv", rows)) == 0
    output = capsys.readouterr().out
    assert "Too few items to tell (24; about " in output
    assert "minimum detectable effect" in output


def test_the_items_needed_grow_with_the_square_of_the_detectable_effect():
    gate = pd.DataFrame({"ci_low": [-0.05], "ci_high": [0.05]}, index=["accuracy"])
    ratio = find_mde(gate, "accuracy") / headroom.QUESTIONS["accuracy"]
    assert count_items_needed(1_000, gate, "accuracy") == pytest.approx(1_000 * ratio**2, rel=0.06)
    assert count_items_needed(1_000, gate / 100, "accuracy") > 1_000


@pytest.mark.parametrize(
    ("ci_low", "ci_high", "word"),
    [
        (-0.02, 0.02, headroom.NOT_OPEN),
        (0.03, 0.06, CLOSE),  # .05 could have been detected, and is among what is possible
        (-0.30, 0.04, TOO_FEW),  # below .05 by luck: .05 could not have been detected
        (-0.30, 0.30, TOO_FEW),
        (0.06, 0.08, WORSE),  # enough, and not open: quality fell
    ],
)
def test_no_is_said_only_where_the_least_gain_could_have_been_detected(ci_low, ci_high, word):
    gate = pd.DataFrame({"ci_low": [ci_low], "ci_high": [ci_high]}, index=["accuracy"])
    assert decide_question(gate, "accuracy") == word


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda rows: rows.assign(cost_usd=-1), "0 or more"),
        (lambda rows: rows.assign(cost_usd=0), "all models are free"),
        (lambda rows: rows[rows["item"] < "i0003"], "3 items"),
        (lambda rows: rows.drop(columns=["e0", "e1"]), "nothing describes the items"),
        (lambda rows: rows.assign(e0=range(len(rows))), "differs"),
    ],
    ids=["negative costs", "all free", "few items", "no features", "features differ"],
)
def test_a_table_that_cannot_be_used_is_named_with_its_reason(tmp_path, capsys, change, reason):
    path = write_rows(tmp_path / "mine.csv", change(long(made(30))))
    assert run(path) == 2
    error = capsys.readouterr().err
    assert reason in error and error.count("\n") == 1
    assert not path.with_suffix(".png").exists()


@pytest.mark.parametrize("num_items", [6, 7, 9])
def test_the_fewest_items_that_are_read_are_evaluated(tmp_path, num_items):
    rows = make_planted_rows(num_items, seed=0)
    assert run(write_rows(tmp_path / "mine.csv", rows)) == 0


def test_a_picture_that_cannot_be_written_is_refused_before_the_work(tmp_path, capsys, monkeypatch):
    path = write_rows(tmp_path / "mine.csv", long(made(30)))
    monkeypatch.setattr(headroom, "gate", lambda *_: pytest.fail("the work began"))
    for out in (tmp_path, tmp_path / "nowhere" / "a.png"):
        assert run(path, "--out", str(out)) == 2
        assert "--out" in capsys.readouterr().err


@pytest.mark.parametrize("repeats", ["0", "-1", "x"])
def test_a_number_of_repeats_below_one_is_refused(tmp_path, capsys, repeats):
    with pytest.raises(SystemExit) as error:
        main([str(tmp_path / "mine.csv"), f"--repeats={repeats}"])
    assert error.value.code == 2 and "give 1 or more" in capsys.readouterr().err
