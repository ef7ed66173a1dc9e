"""From a tiny run to the verdict: a model that is cut off too often is marked everywhere, one that answers nowhere."""

import json

import pandas as pd
import pytest

from lib import config, stats
from lib.experiment.results_table import UNUSABLE_SHARE
from lib.llm.chat_model import Failure, Reply
from lib.llm.event_loop import run_coroutine
from lib.llm.open_models import ChatModels
from lib.orchestration import experiment, llm_judge, prompted_experiment, results
from lib.orchestration.variants import Method
from lib.reports.execute.execute_lesson import _read_reply_lines
from lib.reports.lesson import Lesson
from lib.reports.reply_shares import FOOTNOTE
from lib.scoreboard import costs, verdicts
from lib.scoreboard.metrics import Metrics
from tests.llm.stub_model import StubModel
from tests.orchestration.test_bad_days import GOOD
from tests.orchestration.test_prompted_experiment import SCRIPTED, small, trained
from tests.reports.test_lesson import ALT, figure
from tests.scoreboard.test_claims import make_claim

__all__ = ["trained"]

# As a reader's params.yaml has it: the settings of a model that is there, changed to an endpoint.
ENDPOINT = config.load("smoke").llm.models[SCRIPTED].model_dump() | {
    "backend": "endpoint",
    "base_url": "https://host/v1",
    "model": "m",
}
CUT_OFF = Failure("truncated", "at 100 tokens")
METHODS = [Method("KO claude", "KO", "claude"), Method("random", "control")]
NAME = "02_orchestration"


def play(num_cut_off: int, monkeypatch, tmp_path, trained) -> pd.DataFrame:
    """Decisions of a model of which so many of ten replies are cut off, and of chance."""
    settings = small(
        zoo={"seeds": 2}, education={"horizon": 8}, llm={"models": {"claude": ENDPOINT}}
    )
    # Prices differ a little, so that differences have an interval.
    replies = [
        Reply(GOOD, "claude", "endpoint", tokens_out=number, cost_usd=1e-3 + 1e-4 * number)
        for number in range(10)
    ]
    for number in range(num_cut_off):
        replies[4 * number] = CUT_OFF  # never two in a row, so that the second try is answered
    model = StubModel(*replies, name="claude")
    monkeypatch.setattr(
        prompted_experiment, "open_lesson_models", lambda *_: ChatModels({"claude": model})
    )
    return prompted_experiment.run(settings, "education", METHODS, tmp_path, trained)


def show_lesson(record: pd.DataFrame, tmp_path) -> tuple[Lesson, pd.DataFrame]:
    """The lesson's cells on such a run: the check, a comparison and its verdict, a table, metrics."""
    lesson = Lesson(NAME, "Orchestration", "smoke", {}, tmp_path / "reports")
    record = lesson.check_replies(results.count_replies(record), record)
    outcomes = results.outcomes(record, "education")
    outcomes["item"] = outcomes["seed"].astype(str) + "/" + outcomes["episode"].astype(str)
    difference = stats.paired_difference(
        outcomes.assign(seed=0), "cost_usd", {"method": "KO claude"}, {"method": "random"}
    )
    lesson.table(difference.set_axis(["KO claude"]), "Dollars above chance")
    lesson.metric("KO.cost_usd_minus.random", difference.iloc[0])
    lesson.metric("KO.cost_usd_minus.random_verdict", stats.verdict(difference).item())
    lesson.metrics(results.metrics(results.results(record), record, "education"))
    lesson.figure(figure(), "front", ALT)
    lesson.conclusion(stats.summary_sentence(difference.set_axis(["KO"])))
    lesson.save("front", [])
    return lesson, record


@pytest.mark.parametrize("num_cut_off", [2, 0])
def test_a_model_that_is_cut_off_in_two_of_ten_replies_leaves_the_verdicts(
    num_cut_off, monkeypatch, tmp_path, trained, capsys
):
    record = play(num_cut_off, monkeypatch, tmp_path, trained)
    (counts,) = results.count_replies(record).itertuples()
    assert counts.method == "KO claude" and counts.model == "claude" and counts.calls >= 20
    assert counts.truncated == pytest.approx(counts.calls * num_cut_off / 10, abs=1)
    assert counts.failed == counts.unusable == counts.fallback == 0

    capsys.readouterr()
    _, marked_record = show_lesson(record, tmp_path)
    page = capsys.readouterr().out
    metrics = json.loads((tmp_path / "reports/metrics" / f"{NAME}.json").read_text())
    claim = make_claim(lesson=NAME, test="{KO.cost_usd_minus.random} > 0")
    (claim_verdict,) = verdicts.judge_claims([claim], Metrics({NAME: metrics}))
    (terminal_line,) = _read_reply_lines(NAME, tmp_path)
    break_even = costs.tabulate_break_even(results.results(marked_record), marked_record)
    assert terminal_line in page and terminal_line.startswith(f"claude: {counts.calls} calls")
    if num_cut_off:
        share = counts.share_without_answer
        assert "KO claude †" in page and FOOTNOTE in page
        assert terminal_line.endswith("above 5%, left out of verdicts")
        assert metrics["KO.cost_usd_minus.random_verdict"] == "untestable"
        assert metrics[f"KO.cost_usd_minus.random_{UNUSABLE_SHARE}"] == pytest.approx(share)
        assert metrics[f"education.KO.claude.cost_usd_{UNUSABLE_SHARE}"] == pytest.approx(share)
        assert not {"education.KO.claude.cost_usd", "KO.cost_usd_minus.random"} & set(metrics)
        assert claim_verdict.verdict == "untestable"
        assert claim_verdict.reason == f"a model gave no usable reply in {share:.0%} of its calls"
        assert break_even["the zoo is there"].str.startswith("left out").all()
        assert break_even["$ per episode, measured"].isna().all()
        assumed = costs.tabulate_assumed_costs(marked_record).set_index("method")
        assert assumed.loc["KO claude", "total $"] == f"left out: {claim_verdict.reason}"
        assert pd.isna(assumed.loc["KO claude", "infer $"])
        measured = costs.tabulate_measured_costs(results.results(marked_record), marked_record)
        assert measured.loc["KO claude", "cost usd"] == "" and pd.isna(
            measured.loc["KO claude", "kg CO2e"]
        )
    else:
        assert metrics["education.KO.claude.cost_usd"] >= 0
        assert break_even["$ per episode, measured"].notna().all()
        assert "†" not in page.split("table: ", 2)[2] and terminal_line.endswith("all usable")
        assert metrics["KO.cost_usd_minus.random_verdict"] == "holds"
        assert not [key for key in metrics if key.endswith(UNUSABLE_SHARE)]
        assert claim_verdict.verdict == "holds"
        assert not break_even["the zoo is there"].str.startswith("left out").any()


def test_replies_of_readers_are_counted_by_the_model_behind_a_method():
    rows = pd.DataFrame(
        {
            "method": ["KO claude, every 5", "RO lab-orchestrator", "random"],
            "backend": ["endpoint", "lab", "policy"],
            "calls": [10, 10, 10],
            "malformed": [1, 1, 0],
        }
    )
    counts = experiment.count_replies(rows)
    assert list(counts["model"]) == ["claude", "lab-orchestrator"]
    assert list(counts["too_many"]) == [True, False]
    with_lost = experiment.count_replies(rows.assign(malformed=0, failed=[2, 0, 0]))
    assert list(with_lost["failed"]) == list(with_lost["fallback"]) == [2, 0]
    assert list(with_lost["unusable"]) == [0, 0] and with_lost["too_many"].iloc[0]


def test_a_judge_that_gives_no_scores_marks_what_it_judged(monkeypatch, tmp_path, trained):
    settings = small()
    record = play(0, monkeypatch, tmp_path, trained)
    model = StubModel(CUT_OFF, name="claude")
    judged = run_coroutine(llm_judge.judge(model, record, settings.education))
    (counts,) = results.count_judge_replies(judged).itertuples()
    assert counts.judge == "claude" and counts.share_without_answer == 1 and counts.too_many


def test_a_gap_of_hypervolumes_is_marked_by_either_of_its_methods():
    compare = results._list_compared_methods
    assert compare("RO.claude.hv_mean_minus.TO") == ("RO.claude", "TO.claude")
    assert compare("RO.claude.hv_mean_minus.other") == ("RO.claude", "RO.other")
