"""A table of replies, written by hand, with the score that each deserves."""

import json
from functools import cache
from pathlib import Path

import pytest

from lib.tasks.scorers import Scorer, make_scorer
from tests.tasks.scorers.items import make_item

LINES = (Path(__file__).parent / "pairs.jsonl").read_text(encoding="utf-8").splitlines()
PAIRS = [json.loads(line) for line in LINES]


@cache
def get_scorer(name: str) -> Scorer:
    return make_scorer(name)


@pytest.mark.parametrize(
    "pair", PAIRS, ids=[f"{number}-{pair['scorer']}" for number, pair in enumerate(PAIRS, start=1)]
)
def test_a_reply_of_the_table_has_the_score_of_the_table(pair):
    item = make_item(
        pair["reference"],
        choices=tuple(pair.get("choices", ())),
        alternatives=tuple(pair.get("alternatives", ())),
    )
    [score] = get_scorer(pair["scorer"]).score([item], [pair["reply"]])
    # F1 stands with two decimal places in the table.
    assert score.value == pytest.approx(pair["score"], abs=0.005), score


def test_the_table_holds_many_replies_that_are_right_and_many_that_are_wrong():
    keys = {
        json.dumps({name: pair[name] for name in sorted(pair) if name != "score"}) for pair in PAIRS
    }
    assert len(keys) == len(PAIRS) >= 300
    assert sum(pair["score"] < 1 for pair in PAIRS) >= 120
    assert sum(pair["score"] == 1 for pair in PAIRS) >= 120
