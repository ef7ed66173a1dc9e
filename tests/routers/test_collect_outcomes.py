"""Collecting outcomes: failed calls are rows that say nothing about a model, and are asked again."""

import asyncio

import pandas as pd
import pytest

from lib.llm.endpoint import Endpoint
from lib.llm.spending_limit import SpendingLimit
from lib.recorded_outcomes.user_tables import read_outcome_table
from lib.routers.collect_outcomes import (
    CollectSettings,
    collect_outcomes,
    list_calls,
    read_rows,
    select_remaining,
)
from lib.tasks.dataset import Dataset
from lib.tasks.item import Item
from lib.tasks.scorers.scorer import make_scorer
from tests.llm.server import KEY, KEY_VARIABLE, Answer, Server, completion, settings_of

ITEMS = tuple(
    Item(f"What is {number} + 1 ?", str(number + 1), "", f"g{number % 4}", 1, f"q{number:02d}")
    for number in range(8)
)
DATASET = Dataset("sums", ITEMS, "numeric")
SETTINGS = CollectSettings("numeric")


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv(KEY_VARIABLE, KEY)


def answer_sum(asked):
    """The sum of a question, as a model that explains first."""
    number = int(asked.body["messages"][-1]["content"].split()[2])
    return Answer(completion(f"It is {number} and 1, so the answer is {number + 1}"))


def collect(path, *answers, num_samples=1, limit=None):
    """Asks two names of one server; returns the rows, the requests, and what ended the run."""

    async def play():
        async with Server(*answers) as server:
            models = {
                name: Endpoint(name, settings_of(server.url, retries=0), spending_limit=limit)
                for name in ("a", "b")
            }
            calls = list_calls(DATASET, list(models), num_samples)
            rows = read_rows(path, SETTINGS)
            remaining = select_remaining(calls, rows)
            error = None
            try:
                scorer = make_scorer("numeric")
                await collect_outcomes(
                    models, scorer, remaining, SETTINGS, path, rows, lambda _: None
                )
            except Exception as reason:
                error = reason
            for model in models.values():
                await model.aclose()
            return pd.read_parquet(path), len(server.asked), error

    return asyncio.run(play())


def test_every_call_is_a_row_and_every_sample_has_a_seed_of_its_own(tmp_path):
    rows, num_asked, error = collect(tmp_path / "t.parquet", answer_sum, num_samples=2)
    assert error is None and num_asked == len(rows) == 32
    assert (rows["correct"] == 1).all() and (rows["cost_usd"] > 0).all()
    assert rows.groupby(["item", "model"])["sample"].agg(list).map(lambda v: v == [0, 1]).all()
    table = read_outcome_table(tmp_path / "t.parquet")
    assert table.correct.shape == (8, 2) and table.prompts[0] == "What is 0 + 1 ?"


def test_a_failed_call_is_a_row_without_an_outcome_and_is_asked_again(tmp_path):
    path = tmp_path / "t.parquet"

    def fail_for_one(asked):
        if "What is 3 " in asked.body["messages"][-1]["content"]:
            return Answer({"error": "down"}, status=503)
        return answer_sum(asked)

    rows, _, error = collect(path, fail_for_one)
    failed = rows[rows["item"] == "q03"]
    assert error is None and failed["correct"].isna().all() and failed["score"].isna().all()
    assert failed["failure"].str.startswith("server_error: 503").all()
    assert rows["correct"].mean() == 1  # of those that were answered
    again, num_asked, error = collect(path, answer_sum)
    assert error is None and num_asked == 2 and len(again) == 16
    assert (again["correct"] == 1).all() and (again["failure"] == "").all()


def test_a_reply_that_was_cut_off_is_a_result_and_is_scored(tmp_path):
    cut = Answer(completion("It is", finish_reason="length"))
    rows, _, _ = collect(tmp_path / "t.parquet", cut)
    assert (rows["correct"] == 0).all() and rows["failure"].str.startswith("truncated").all()


def test_a_spending_limit_ends_the_run_and_what_was_paid_is_kept(tmp_path):
    path = tmp_path / "t.parquet"
    limit = SpendingLimit(
        tmp_path / "spent.sqlite", 170.0
    )  # a call reserves 164 dollars, costs .06
    rows, num_asked, error = collect(path, answer_sum, limit=limit)
    assert "BudgetExceeded" in type(error).__name__ or error is None
    assert len(rows) == num_asked and (rows["correct"] == 1).all()


def test_two_wordings_of_one_question_have_names_of_their_own():
    wordings = (ITEMS[0], Item("Add 1 to 0 !", "1", "", "g0", 1, "q00"), ITEMS[0])
    calls = list_calls(Dataset("sums", wordings, "numeric"), ["a"], 1)
    assert [call.item_id for call in calls] == ["q00", "q00 (2)"]
