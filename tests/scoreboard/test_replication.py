"""Two runs against each other: what a replication must find, and what it must refuse."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from lib.config import ROOT
from lib.experiment import artifacts
from lib.scoreboard import replicate_command, replication
from lib.scoreboard.replication import ReplicationError, Run, compared

LESSON = "05_budgeted_routing"


def run(metrics: dict, profile: str = "laptop", zoo: str = "one", lesson: str = LESSON) -> Run:
    return Run({lesson: metrics}, {lesson: profile}, zoo)


def sampled(values, half: float) -> dict:
    ends = (("", 0.0), ("_ci_low", -half), ("_ci_high", half))
    return {f"arm{i}.accuracy{end}": float(x + d) for i, x in enumerate(values) for end, d in ends}


def test_a_run_replicates_itself():
    held = sampled(np.linspace(0, 1, 9), 0.1) | {
        "low_verdict": "holds",
        "count": 3,
        "cost_usd": 2.5,
    }
    told = compared(run(held), run(held))
    assert (told["coverage"], told["captured"], told["disjoint"]) == (1, 1, 0)
    assert (told["pairs"], told["verdicts"], told["changed"], told["contradictions"]) == (
        9,
        1,
        0,
        0,
    )
    assert not [key for key in told if key.startswith("worst.")]


def test_honest_intervals_give_what_is_expected():
    rng = np.random.default_rng(1)
    one, two = (sampled(rng.normal(size=20_000), 1.959964) for _ in range(2))
    told = compared(run(one), run(two))
    for share in ("coverage", "disjoint", "captured"):
        assert told[share] == pytest.approx(told[f"{share}_expected"], abs=0.006)
    assert told["coverage_expected"] == 0.95 and told["disjoint_expected"] == pytest.approx(
        0.0056, abs=1e-4
    )


@pytest.mark.parametrize(
    ("shift", "covered", "captured", "disjoint"),
    [(0.09, 1, 1, 0), (0.12, 1, 0, 0), (0.16, 0, 0, 0), (0.21, 0, 0, 1)],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_shifted_metric_is_found(shift, covered, captured, disjoint, sign):
    told = compared(run(sampled([0.5], 0.1)), run(sampled([0.5 + sign * shift], 0.1)))
    assert (told["coverage"], told["captured"], told["disjoint"]) == (covered, captured, disjoint)
    assert (f"worst.{LESSON}.arm0.accuracy" in told) == (not covered)


def test_half_widths_are_those_that_point_to_each_other():
    one = {"x": 0.0, "x_ci_low": -10.0, "x_ci_high": 0.1}
    two = {"x": 0.5, "x_ci_low": 0.3, "x_ci_high": 10.0}
    assert compared(run(one), run(two))["disjoint"] == compared(run(two), run(one))["disjoint"] == 1


def test_an_interval_of_no_width_counts_only_where_the_other_run_drew_one():
    point, span = (
        {"x": 1.0, "x_ci_low": 1.0, "x_ci_high": 1.0},
        {"x": 0.9, "x_ci_low": 0.8, "x_ci_high": 0.95},
    )
    assert compared(run(point), run(point))["pairs"] == 0
    told = compared(run(point), run(span))
    assert told["pairs"] == 1 and told["disjoint"] == 1


def test_a_verdict_that_turns_round_is_a_contradiction_and_one_that_fades_is_not():
    one = {"a_verdict": "holds", "b_verdict": "holds", "claims.by_id.c": "fails", "backend": "lab"}
    two = {
        "a_verdict": "undecided",
        "b_verdict": "does not hold",
        "claims.by_id.c": "holds",
        "backend": "replay",
    }
    told = compared(run(one), run(two))
    assert (told["verdicts"], told["changed"], told["contradictions"]) == (3, 3, 2)
    assert told[f"changed.{LESSON}.a_verdict"] == "holds -> undecided"
    assert told[f"changed.{LESSON}.claims.by_id.c"] == "does not hold -> holds"


def test_figures_are_told_by_lesson_too():
    one = Run(
        {"04_x": sampled([0.5], 0.1), "05_x": sampled([0.5], 0.1)},
        {"04_x": "laptop", "05_x": "laptop"},
        "",
    )
    two = Run({"04_x": sampled([0.5], 0.1), "05_x": sampled([0.9], 0.1)}, one.profiles, "")
    told = compared(one, two)
    assert (told["coverage"], told["coverage.04_x"], told["coverage.05_x"]) == (0.5, 1, 0)


def test_what_one_run_alone_names_is_counted():
    told = compared(run(sampled([0.5, 0.6], 0.1)), run(sampled([0.5], 0.1)))
    assert told["pairs"] == 1 and told[f"unpaired.{LESSON}"] == 1


@pytest.mark.parametrize(
    ("second", "said"),
    [
        (run({}, profile="smoke"), "profile laptop, not smoke"),
        (run({}, zoo="two"), "different lab zoos"),
        (run({}, lesson="06_tools"), "no metrics of 06_tools"),
        (Run({}, {}, "one"), "no metrics of any lesson"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(second, said):
    with pytest.raises(ReplicationError, match=said):
        compared(run({}), second)


def test_a_broken_file_is_named(tmp_path):
    artifacts.write_text(tmp_path / f"reports/metrics/{LESSON}.json", "{")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    with pytest.raises(ReplicationError, match=LESSON):
        replication.read(tmp_path)


def test_committed_metrics_replicate_themselves():
    told = compared(replication.read(ROOT), replication.read(ROOT))
    assert told["coverage"] == 1 and told["pairs"] > 1_000 and told["verdicts"] > 100


def test_lessons_are_named_by_how_they_begin():
    assert replicate_command.lessons(ROOT, ["05", "08"]) == [LESSON, "08_recorded_outcomes"]
    assert len(replicate_command.lessons(ROOT, [])) == 11
    with pytest.raises(ReplicationError, match="no lesson 77"):
        replicate_command.lessons(ROOT, ["77"])


def test_the_work_copy_is_a_project_of_its_own(tmp_path):
    place = replicate_command.work_copy(ROOT, tmp_path / "copy")
    kept = artifacts.write_text(place / "data/runs/kept", "x")
    artifacts.write_text(place / "lib/gone.py", "")
    replicate_command.work_copy(ROOT, place)
    assert (
        kept.exists()
        and not (place / "lib/gone.py").exists()
        and not (place / "reports/metrics").exists()
    )
    assert replication.read(place).zoo == replication.read(ROOT).zoo
    code = "import lib.config; print(lib.config.ROOT)"
    told = os.environ | {"PYTHONPATH": str(place)}
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=place, env=told, capture_output=True, text=True
    )
    assert found.stdout.strip() == str(place.resolve())
