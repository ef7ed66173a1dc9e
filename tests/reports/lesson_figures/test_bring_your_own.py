"""Tables and metrics of lesson 11 say what the outcomes, reports and logs say."""

import pandas as pd
import pytest

from lib import config, stats, tasks
from lib.llm.chat_model import ChatModel, Reply
from lib.reports.lesson_figures import bring_your_own as lesson_tables
from lib.routers import model_settings
from lib.routers.fit_router import CONSTANT, MIXTURE, ROUTER, AverageQuality


def make_interval(value: float) -> dict[str, float]:
    return {"value": value, "ci_low": value - 0.1, "ci_high": value + 0.1}


def make_report(accuracy: float, cost_usd: float) -> dict:
    """What a report of `fit_router` says of methods, which differ in nothing here."""
    scores = {"accuracy": make_interval(accuracy), "cost_usd": make_interval(cost_usd)}
    gains = {CONSTANT: make_interval(0.2), MIXTURE: make_interval(0.1)}
    return {"methods": dict.fromkeys((ROUTER, CONSTANT, MIXTURE), scores), "gain_over": gains}


def test_held_out_scores_are_arranged_by_method_and_budget():
    reports = {"low": make_report(0.5, 0.001), "high": make_report(0.9, 0.002)}
    cost, accuracy = lesson_tables.arrange_held_out(reports)
    assert accuracy.index.names == ["method", "budget"]
    assert accuracy.loc[(ROUTER, "high"), "value"] == 0.9
    assert cost.loc[(MIXTURE, "low"), "value"] == pytest.approx(1.0)


def test_a_file_of_models_that_is_written_is_read_as_it_was_meant(tmp_path):
    entry = {"backend": "endpoint", "base_url": "http://127.0.0.1:1/v1", "model": "m: {1}"}
    entry |= {"price_in": 4e-8, "price_out": 0}
    path = model_settings.write_model_file(tmp_path / "models.yaml", {"mine": entry})
    model = model_settings.read_model_settings("smoke", path).models["mine"]
    assert (model.backend, model.model, model.price_in) == ("endpoint", "m: {1}", 4e-8)


def test_the_reward_of_a_step_is_averaged_within_episodes_first():
    steps = pd.DataFrame({"method": "rule", "seed": 0, "episode": [0, 0, 0, 1], "reward": 0.0})
    steps.loc[3, "reward"] = 1.0
    assert lesson_tables.estimate_step_reward(steps).loc["rule", "value"] == 0.5


def test_models_solve_the_same_chains_which_are_labelled_by_their_length():
    seen = []

    def solve_none(items):
        seen.append([item.id for item in items])
        return [False] * len(items)

    solved = lesson_tables.measure_solved_chains({"first": solve_none, "second": solve_none})
    assert seen[0] == seen[1]
    assert len(solved) == 2 * lesson_tables.NUM_CHAINS * len(lesson_tables.CHAIN_LENGTHS)
    estimates = lesson_tables.estimate_solved_by_length(solved)
    labels = estimates.index.unique("length").tolist()
    assert labels[:2] == ["1 operation", "2 operations"]
    assert (estimates["value"] == 0).all()


def test_a_chat_model_solves_the_chains_to_which_it_replies_correctly():
    class SevenModel(ChatModel):
        name = "seven"
        backend = "scripted"
        price_in = price_out = 0.0
        max_tokens = 8

        async def reply_to(self, request):
            return Reply(tasks.format_reply("7"), self.name, self.backend)

    items = tasks.draw_items("chain", "test", 20, difficulty=1)
    solved = lesson_tables.make_chat_solver(SevenModel())(items)
    assert solved == [item.reference == "7" for item in items]
    assert any(solved) and not all(solved)


def test_a_lab_model_solves_short_chains():
    items = tasks.draw_items("chain", "test", 5, difficulty=1)
    solve = lesson_tables.make_lab_solver("lab-mini", config.settings(profile="laptop").lab)
    assert all(solve(items))


def test_metrics_name_questions_baselines_and_budgets():
    gate = pd.DataFrame([make_interval(0.2)], index=["money"]).assign(**{"question is": "open"})
    metrics = lesson_tables.collect_headroom_metrics(gate)
    assert metrics["table.money.is"] == "open"
    assert metrics["table.headroom.money"]["value"] == 0.2

    quality = AverageQuality(0.6, 0.5, 0.7, stats.Interval(0.1, 0.0, 0.2))
    served = pd.DataFrame([make_interval(0.5)], index=["low"])
    metrics = lesson_tables.collect_router_metrics(make_report(0.5, 0.001), quality, served)
    assert metrics["router.aiq_gap"].value == 0.1
    assert metrics["router.gain_over_constant"].value == 0.2
    assert metrics["router.gain_over_mixture"].value == 0.1
    assert metrics["served.low.correct"]["value"] == 0.5
