"""`python -m lib evaluate maestro`: replies are kept, scores have intervals, a judge votes."""

import json

import pandas as pd
import pytest

from lib.conductor import data
from lib.conductor import evaluate_command as command
from lib.experiment import artifacts
from lib.language_models import checkpoints
from tests.language_models import tiny

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two untrained policies and a test set."""
    root = tmp_path_factory.mktemp("evaluated")
    for seed, name in enumerate(("start", "policy")):
        model = tiny.model(seed, hidden=16, layers=1, heads=2, intermediate=16)
        checkpoints.save(model, root / name)
    rows = [
        {"prompt": [{"role": "user", "content": item.prompt}], "reference": item.reference}
        for item in data.draw_items("test", 6)
    ]
    (root / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return root


def run(place, out, *more):
    folders = [str(place / "start"), str(place / "policy")]
    options = ["--data", str(place / "test.jsonl"), "--out", str(place / out)]
    return command.main([*folders, *options, "--max-tokens", "5", "--samples", "2", *more])


def test_both_answer_every_prompt_and_the_judge_votes(place, capsys):
    assert run(place, "out", "--judge", "scripted-medium") == 0
    said = capsys.readouterr().out
    assert "difference" in said and "votes" in said
    scores = artifacts.read_parquet(place / "out/scores.parquet")
    assert scores.groupby("method").size().to_dict() == {"start": 12, "trained": 12}
    votes = scores.pivot_table("votes", ["item", "sample"], "method")
    assert (votes.sum(axis=1) == 1).all()


def test_replies_are_kept(place, monkeypatch):
    assert run(place, "kept") == 0
    monkeypatch.setattr(command, "sample_plain_replies", None)
    assert run(place, "kept") == 0


def test_a_judge_that_is_not_there_is_named(place, capsys):
    assert run(place, "nobody", "--judge", "nobody") == 2
    assert "nobody" in capsys.readouterr().err


def test_answers_and_form_are_scored():
    replies = pd.DataFrame(
        {
            "method": "start",
            "item": [0, 1, 2],
            "sample": 0,
            "tokens_out": 3,
            "reference": "7",
            "reply": ["<answer> 7 </answer>", "<answer> 8 </answer>", "7"],
        }
    )
    scores = command.score_replies(replies)
    assert scores["correct"].tolist() == [1, 0, 0] and scores["in_form"].tolist() == [1, 1, 0]
