"""From a tiny run to the verdict: numbers of the results table, and the mark of a model that is cut off too often."""

import json

import numpy as np
import pandas as pd
import pytest

from lib import stats
from lib.experiment.results_table import UNUSABLE_SHARE, make_results, select
from lib.llm.chat_model import Failure, Reply
from lib.orchestration import decision_models, experiment, results
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.llm_judge import CRITERIA
from lib.reports.execute.execute_lesson import _read_reply_lines
from lib.reports.lesson import Lesson
from lib.reports.reply_shares import FOOTNOTE
from lib.scoreboard import costs, verdicts
from lib.scoreboard.metrics import Metrics
from lib.stats.verdicts import NOT_OPEN
from tests.llm.stub_model import StubModel
from tests.orchestration import lesson_rows
from tests.orchestration.small import ENDPOINT, SCRIPTED, make_params, trained
from tests.orchestration.test_bad_days import GOOD
from tests.reports.test_lesson import ALT, figure
from tests.scoreboard.test_claims import make_claim

__all__ = ["trained"]

NAME = "02_orchestration"
CUT_OFF = Failure("truncated", "at 100 tokens")
PARAMS = lesson_rows.make_params()


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """Every method in every world, with differences that are known; in the paper's students nothing can be won."""
    return lesson_rows.make_rows(PARAMS, closed_worlds=(("education", "paper"),))


# Headroom and contrasts ---------------------------------------------------------------------------


def test_headroom_is_what_planning_ahead_gains_over_the_best_policy_on_training_students(rows):
    headroom = results.estimate_headroom(rows)
    for place, row in headroom.iterrows():
        expected = 0.0 if place == ("education", "paper") else 0.4
        assert row["value"] == pytest.approx(expected, abs=0.02)
        assert row["is_open"] == (place != ("education", "paper"))


def test_every_contrast_of_the_settings_is_asked_in_every_world(rows):
    contrasts = results.estimate_contrasts(rows, PARAMS.orchestration)
    assert len(contrasts) == 5 * len(PARAMS.orchestration.contrasts)
    row = contrasts.loc[("education", "speed", "RO_best-policy")]
    assert row["value"] == pytest.approx(0.2, abs=0.02)  # .5 of RO less .3 of a policy
    assert (row["verdict"], row["is_significant"]) == ("holds", True)
    row = contrasts.loc[("minigrid", "varied", "TO_KO")]
    assert row["value"] == pytest.approx(0.05, abs=0.02)
    row = contrasts.loc[("education", "varied", "RO_RO-greedy")]
    assert row["value"] == pytest.approx(0.0, abs=0.02) and row["verdict"] != "holds"


def test_where_nothing_can_be_won_no_contrast_has_a_verdict(rows):
    contrasts = results.estimate_contrasts(rows, PARAMS.orchestration).loc[("education", "paper")]
    assert set(contrasts["verdict"]) == {NOT_OPEN}
    assert not contrasts["is_significant"].any()
    # Neither do they make it harder for the others: Holm counts the questions that are asked.
    without = rows[~((rows["group"] == "education") & (rows["condition"] == "paper"))]
    alone = results.estimate_contrasts(without, PARAMS.orchestration)
    whole = results.estimate_contrasts(rows, PARAMS.orchestration).loc[alone.index]
    pd.testing.assert_frame_equal(alone, whole)


def test_contrasts_can_be_asked_of_another_model(rows):
    renamed = rows.assign(
        method=rows["method"].str.replace(lesson_rows.MODEL, "other", regex=False)
    )
    settings = PARAMS.orchestration
    expected = results.estimate_contrasts(rows, settings)
    pd.testing.assert_frame_equal(
        results.estimate_contrasts(renamed, settings, model="other"), expected
    )


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("RO lab-orchestrator", "RO.lab-orchestrator"),
        ("KO scripted-large, no memory", "KO.scripted-large.no-memory"),
        ("SO-d1", "policy.SO-d1"),
        ("MO-MGDA", "policy.MO-MGDA"),
        ("best policy", "baseline.best-policy"),
        ("random", "baseline.random"),
    ],
)
def test_a_row_of_table_2_has_a_name_that_a_metric_can_have(method, name):
    assert results.name_row_of_table_2(method) == name


# Table 2 and courses ------------------------------------------------------------------------------


def make_episodes(points: dict[str, list[tuple[float, float, float]]]) -> pd.DataFrame:
    """Rooms of two seeds, whose results by method are given for each item."""
    records = []
    for method, results_by_item in points.items():
        for seed in range(2):
            for item, (d1, d2, d3) in enumerate(results_by_item):
                record = {"method": method, "seed": seed, "item": f"{seed}-{item}"}
                record |= {"d1": d1, "d2": d2, "d3": d3, "length": 10 * (item + 1)}
                records.append(record | {"reward": (d1 + d2 + d3) / 3, "model": ""})
    frame = pd.DataFrame(records)
    usage = {"tokens_in": 100, "tokens_out": 20, "cost_usd": 0.5}
    frame = frame.assign(group="minigrid", condition="paper", role="router", **usage)
    return make_results("orchestration", frame)


def test_table_2_has_the_papers_hypervolumes():
    """The reference is (-1, -1, -1): {(1, 1, 0)} has 4; two points that differ have more than their mean."""
    rows = make_episodes({"RO": [(1, 1, 0)] * 3, "KO": [(1, 1, 0), (0, 1, 1), (1, 1, 0)]})
    table = results.estimate_table_2(rows, "minigrid", num_episodes=2)
    assert table.loc[("RO", "hv_mean"), "value"] == pytest.approx(4.0)
    assert table.loc[("RO", "hv_union"), "value"] == pytest.approx(4.0)
    assert table.loc[("KO", "hv_mean"), "value"] == pytest.approx(1.5 * 2 * 1.5)
    # The union of two boxes of 4 that share 1 x 2 x 1.
    assert table.loc[("KO", "hv_union"), "value"] == pytest.approx(6.0)
    assert table.loc[("RO", "tokens"), "value"] == pytest.approx(120)
    assert table.loc[("RO", "length"), "value"] == pytest.approx(15)  # of the first two alone


def test_table_2_reads_the_papers_world_alone(rows):
    table = results.estimate_table_2(rows, "education", num_episodes=5)
    paper = select(rows, group="education", condition="paper", method="RO lab-orchestrator")
    value = table.loc[("RO lab-orchestrator", "aptitude"), "value"]
    assert value == pytest.approx(paper["d1"].mean())


def test_a_student_who_is_done_keeps_the_last_mastery():
    rows = pd.DataFrame(
        {
            "method": ["RO", "RO", "KO"],
            "seed": [0, 0, 0],
            "outcomes": [[0.4, 0.8], [0.4, 0.6, 0.7, 0.8], [0.5]],
        }
    )
    course = results.tabulate_course(rows, horizon=4).set_index(["method", "step"])["mastery"]
    assert course["RO"].tolist() == pytest.approx([0.4, 0.7, 0.75, 0.8])
    assert course["KO"].tolist() == [0.5] * 4


def test_questions_are_in_the_flow_zone_where_their_mean_difficulty_is_near_mastery():
    steps = pd.DataFrame(
        {
            "method": "RO",
            "model": "m",
            "backend": "lab",
            "seed": 0,
            "item": ["a", "a", "b"],
            "levels": ["333", "36", "1"],  # levels count from 1: difficulties .4, .7 and 0
            "mastery": [0.4, 0.4, 0.4],
        }
    )
    table = results.share_in_flow_zone(steps, delta=0.2).set_index("item")
    assert table.loc["a", "distance"] == pytest.approx(0.15)
    assert table["in_zone"].tolist() == [0.5, 0.0]


# A model that is cut off --------------------------------------------------------------------------


def play(num_cut_off: int, monkeypatch, tmp_path, trained) -> pd.DataFrame:
    """KO, TO and RO by a model of which so many of ten replies are cut off, and a baseline that asks nobody."""
    endpoint = make_params().llm.models[SCRIPTED].model_dump() | ENDPOINT
    params = make_params(
        llm={"models": {"claude": endpoint}}, orchestration={"summary_interval": 0}
    )
    # Prices differ a little, so that differences have an interval.
    replies = [
        Reply(GOOD, "claude", "endpoint", tokens_out=number, cost_usd=1e-3 + 1e-4 * number)
        for number in range(10)
    ]
    for number in range(num_cut_off):
        replies[4 * number] = CUT_OFF  # never two in a row, so that the second try is answered
    model = StubModel(*replies, name="claude")
    monkeypatch.setattr(decision_models, "open_models", model.open)
    episodes, _ = experiment.run_prompted(params, ["education"], ["claude"], trained, tmp_path)
    free = episodes[episodes["orchestrator"] == "KO"].assign(
        method="random", model="", backend="policy", calls=0, cost_usd=0.0, tokens_in=0
    )
    free = free.assign(replies_truncated=0, invalid_replies=0, tokens_out=0)
    return pd.concat([episodes, free], ignore_index=True)


def show_lesson(episodes: pd.DataFrame, tmp_path) -> tuple[Lesson, pd.DataFrame]:
    """The lesson's cells on such a run: the check, a comparison and its verdict, a table, metrics."""
    lesson = Lesson(NAME, "Orchestration", "smoke", {}, tmp_path / "reports")
    episodes = lesson.check_replies(results.count_replies(episodes), episodes)
    difference = stats.paired_difference(
        episodes, "cost_usd", {"method": "KO claude"}, {"method": "random"}
    )
    lesson.table(difference.set_axis(["KO claude"]), "Dollars above chance")
    lesson.metric("KO.cost_usd_minus.random", difference.iloc[0])
    lesson.metric("KO.cost_usd_minus.random_verdict", stats.verdict(difference).item())
    lesson.figure(figure(), "front", ALT)
    lesson.conclusion(stats.summary_sentence(difference.set_axis(["KO"])))
    lesson.save("front", [])
    return lesson, episodes


@pytest.mark.parametrize("num_cut_off", [2, 0])
def test_a_model_that_is_cut_off_in_two_of_ten_replies_leaves_the_verdicts(
    num_cut_off, monkeypatch, tmp_path, trained, capsys
):
    episodes = play(num_cut_off, monkeypatch, tmp_path / "runs", trained)
    counts = results.count_replies(episodes).set_index("method")
    assert list(counts.index) == [f"{system} claude" for system in SYSTEMS]
    share = counts["truncated"].sum() / counts["calls"].sum()
    assert share == pytest.approx(num_cut_off / 10, abs=0.03)
    assert not counts[["failed", "unusable", "fallback"]].any(axis=None)

    capsys.readouterr()
    _, marked_episodes = show_lesson(episodes, tmp_path)
    page = capsys.readouterr().out
    metrics = json.loads((tmp_path / "reports/metrics" / f"{NAME}.json").read_text())
    claim = make_claim(lesson=NAME, test="{KO.cost_usd_minus.random} > 0")
    (claim_verdict,) = verdicts.judge_claims([claim], Metrics({NAME: metrics}))
    (terminal_line,) = _read_reply_lines(NAME, tmp_path)
    assert terminal_line in page and terminal_line.startswith("claude: ")
    break_even = costs.tabulate_break_even(marked_episodes).set_index("method").loc["KO claude"]
    if num_cut_off:
        share = counts.loc["KO claude", "share_without_answer"]
        assert "KO claude †" in page and FOOTNOTE in page
        assert terminal_line.endswith("above 5%, left out of verdicts")
        assert metrics["KO.cost_usd_minus.random_verdict"] == "untestable"
        assert metrics[f"KO.cost_usd_minus.random_{UNUSABLE_SHARE}"] == pytest.approx(share)
        assert "KO.cost_usd_minus.random" not in metrics
        assert claim_verdict.verdict == "untestable"
        assert claim_verdict.reason == f"a model gave no usable reply in {share:.0%} of its calls"
        assert break_even["the zoo is there"] == f"left out: {claim_verdict.reason}"
        assert results.list_unusable_shares(marked_episodes)["KO claude"] == pytest.approx(share)
    else:
        assert "claude †" not in page and terminal_line.endswith("all usable")
        assert metrics["KO.cost_usd_minus.random_verdict"] == "holds"
        assert claim_verdict.verdict == "holds"
        assert break_even["$ per episode, measured"] > 0
        assert results.list_unusable_shares(marked_episodes) == {}


def test_replies_are_counted_by_the_model_behind_a_method(rows):
    counts = results.count_replies(
        rows.assign(replies_failed=0, replies_truncated=1, replies_unusable=1)
    )
    assert set(counts["model"]) == {"greedy", lesson_rows.MODEL}
    row = counts.set_index("method").loc["RO lab-orchestrator"]
    num_episodes = (rows["method"] == "RO lab-orchestrator").sum()
    assert (row["calls"], row["truncated"]) == (3 * num_episodes, num_episodes)
    assert not row["too_many"]  # errors of a lab model are results


def test_a_judge_that_gives_no_scores_is_counted_as_a_judge():
    judged = pd.DataFrame(
        {
            "judge": "claude",
            "backend": "endpoint",
            "method": ["RO", "KO"],
            "calls": [2, 2],
            "failures": [1, 0],
            "malformed": [0, 2],
        }
    )
    (counts,) = results.count_judge_replies(judged).itertuples()
    assert (counts.judge, counts.calls, counts.failed, counts.unusable) == ("claude", 4, 1, 2)
    assert counts.too_many


def test_prices_are_means_per_episode_of_those_who_ask(rows):
    prices = results.estimate_price(select(rows, group="education", condition="speed"))
    assert set(prices) == set(results.PRICE)
    table = prices["calls"]
    assert "random" not in table.index and np.isclose(table.loc["RO lab-orchestrator", "value"], 3)


def test_a_judge_without_usable_replies_leaves_its_mark_in_place_of_scores():
    methods = ["random", "KO"]
    judged = pd.DataFrame(
        {"method": method, "seed": 0, "item": item, UNUSABLE_SHARE: 1.0}
        | dict.fromkeys(CRITERIA, float("nan"))
        for method in methods
        for item in ("a", "b", "c")
    )
    scores = results.estimate_scores(judged, methods)["adaptivity"]
    difference = results.compare_scores(judged, "adaptivity", "KO", "random")
    assert scores["value"].isna().all() and (scores[UNUSABLE_SHARE] == 1.0).all()
    assert pd.isna(difference["value"]) and difference[UNUSABLE_SHARE] == 1.0

    # Two episodes of KO and one of random are scored: one pair.
    is_scored = (judged["method"] == "KO") & (judged["item"] != "c") | (judged.index == 0)
    judged.loc[is_scored, list(CRITERIA)] = np.array([[1.0], [4.0], [2.0]]).repeat(9, axis=1)
    assert results.estimate_scores(judged, methods)["adaptivity"]["value"].tolist() == [1.0, 3.0]
    difference = results.compare_scores(judged, "adaptivity", "KO", "random")
    assert difference["value"] == 3.0 and difference[UNUSABLE_SHARE] == 1.0
