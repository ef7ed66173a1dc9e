"""Two runs against each other: what a replication must find, and what it must refuse."""

import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

from lib.config import ROOT
from lib.experiment import artifacts
from lib.scoreboard import lesson_metrics, replicate_command, replication
from lib.scoreboard.replication import ReplicationError, Run, compare_runs

LESSON = "05_budgeted_routing"


def make_run(metrics: dict, profile: str = "laptop", zoo: str = "one", lesson: str = LESSON) -> Run:
    return Run({lesson: metrics}, {lesson: profile}, zoo)


def make_sampled_metrics(values, half_width: float) -> dict:
    ends = (("", 0.0), ("_ci_low", -half_width), ("_ci_high", half_width))
    return {f"arm{i}.accuracy{end}": float(x + d) for i, x in enumerate(values) for end, d in ends}


def test_a_run_replicates_itself():
    metrics = make_sampled_metrics(np.linspace(0, 1, 9), 0.1) | {
        "low_verdict": "holds",
        "count": 3,
        "cost_usd": 2.5,
    }
    comparison = compare_runs(make_run(metrics), make_run(metrics))
    assert (comparison["coverage"], comparison["captured"], comparison["disjoint"]) == (1, 1, 0)
    assert (
        comparison["pairs"],
        comparison["verdicts"],
        comparison["changed"],
        comparison["contradictions"],
    ) == (
        9,
        1,
        0,
        0,
    )
    assert not [key for key in comparison if key.startswith("worst.")]


def test_honest_intervals_give_what_is_expected():
    rng = np.random.default_rng(1)
    first, second = (make_sampled_metrics(rng.normal(size=20_000), 1.959964) for _ in range(2))
    comparison = compare_runs(make_run(first), make_run(second))
    for share in ("coverage", "disjoint", "captured"):
        assert comparison[share] == pytest.approx(comparison[f"{share}_expected"], abs=0.006)
    assert comparison["coverage_expected"] == 0.95 and comparison[
        "disjoint_expected"
    ] == pytest.approx(0.0056, abs=1e-4)


@pytest.mark.parametrize(
    ("shift", "covered", "captured", "disjoint"),
    [(0.09, 1, 1, 0), (0.12, 1, 0, 0), (0.16, 0, 0, 0), (0.21, 0, 0, 1)],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_shifted_metric_is_found(shift, covered, captured, disjoint, sign):
    comparison = compare_runs(
        make_run(make_sampled_metrics([0.5], 0.1)),
        make_run(make_sampled_metrics([0.5 + sign * shift], 0.1)),
    )
    assert (comparison["coverage"], comparison["captured"], comparison["disjoint"]) == (
        covered,
        captured,
        disjoint,
    )
    assert (f"worst.{LESSON}.arm0.accuracy" in comparison) == (not covered)


def test_half_widths_are_those_that_point_to_each_other():
    first = {"x": 0.0, "x_ci_low": -10.0, "x_ci_high": 0.1}
    second = {"x": 0.5, "x_ci_low": 0.3, "x_ci_high": 10.0}
    assert (
        compare_runs(make_run(first), make_run(second))["disjoint"]
        == compare_runs(make_run(second), make_run(first))["disjoint"]
        == 1
    )


def test_an_interval_of_no_width_counts_only_where_the_other_run_drew_one():
    point, span = (
        {"x": 1.0, "x_ci_low": 1.0, "x_ci_high": 1.0},
        {"x": 0.9, "x_ci_low": 0.8, "x_ci_high": 0.95},
    )
    assert compare_runs(make_run(point), make_run(point))["pairs"] == 0
    comparison = compare_runs(make_run(point), make_run(span))
    assert comparison["pairs"] == 1 and comparison["disjoint"] == 1


def test_a_verdict_that_turns_round_is_a_contradiction_and_one_that_fades_is_not():
    first = {
        "a_verdict": "holds",
        "b_verdict": "holds",
        "claims.by_id.c": "fails",
        "backend": "lab",
    }
    second = {
        "a_verdict": "undecided",
        "b_verdict": "does not hold",
        "claims.by_id.c": "holds",
        "backend": "replay",
    }
    comparison = compare_runs(make_run(first), make_run(second))
    assert (comparison["verdicts"], comparison["changed"], comparison["contradictions"]) == (
        3,
        3,
        2,
    )
    assert comparison[f"changed.{LESSON}.a_verdict"] == "holds -> undecided"
    assert comparison[f"changed.{LESSON}.claims.by_id.c"] == "does not hold -> holds"


def test_figures_are_told_by_lesson_too():
    first = Run(
        {"04_x": make_sampled_metrics([0.5], 0.1), "05_x": make_sampled_metrics([0.5], 0.1)},
        {"04_x": "laptop", "05_x": "laptop"},
        "",
    )
    second = Run(
        {"04_x": make_sampled_metrics([0.5], 0.1), "05_x": make_sampled_metrics([0.9], 0.1)},
        first.profiles,
        "",
    )
    comparison = compare_runs(first, second)
    assert (comparison["coverage"], comparison["coverage.04_x"], comparison["coverage.05_x"]) == (
        0.5,
        1,
        0,
    )


def test_what_one_run_alone_names_is_counted():
    comparison = compare_runs(
        make_run(make_sampled_metrics([0.5, 0.6], 0.1)), make_run(make_sampled_metrics([0.5], 0.1))
    )
    assert comparison["pairs"] == 1 and comparison[f"unpaired.{LESSON}"] == 1


def test_a_replication_of_what_a_lesson_measures_no_more_is_called_one_of_an_earlier_state(
    tmp_path,
):
    metrics = make_sampled_metrics([0.5, 0.6], 0.1)
    comparison = compare_runs(make_run(metrics), make_run(metrics))
    artifacts.write_json(tmp_path / lesson_metrics.REPLICATION_FILE, comparison)
    # Other numbers under the same names are another run of the same.
    artifacts.write_json(tmp_path / f"{LESSON}.json", make_sampled_metrics([0.1, 0.2], 0.3))
    assert "earlier state" not in lesson_metrics.describe_replication(tmp_path)

    artifacts.write_json(tmp_path / f"{LESSON}.json", metrics | {"new_verdict": "holds"})
    sentence = "This is of an earlier state: what lessons 05 measure has changed since."
    assert lesson_metrics.describe_replication(tmp_path).endswith(sentence)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (make_run({}, profile="smoke"), "profile laptop, not smoke"),
        (make_run({}, zoo="two"), "different lab zoos"),
        (make_run({}, lesson="06_tools"), "no metrics of 06_tools"),
        (Run({}, {}, "one"), "no metrics of any lesson"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused(second, message):
    with pytest.raises(ReplicationError, match=message):
        compare_runs(make_run({}), second)


def test_a_broken_file_is_named(tmp_path):
    artifacts.write_text(tmp_path / f"reports/metrics/{LESSON}.json", "{")
    shutil.copy(ROOT / "params.yaml", tmp_path)
    with pytest.raises(ReplicationError, match=LESSON):
        replication.read_run(tmp_path)


def test_committed_metrics_replicate_themselves():
    comparison = compare_runs(replication.read_run(ROOT), replication.read_run(ROOT))
    assert (
        comparison["coverage"] == 1 and comparison["pairs"] > 1_000 and comparison["verdicts"] > 100
    )


def test_lessons_are_named_by_how_they_begin():
    assert replicate_command.select_lessons(ROOT, ["05_", "08_"]) == [
        LESSON,
        "08_recorded_outcomes",
    ]
    with_appendix = [LESSON, "05a_budgeted_routing_details"]
    assert replicate_command.select_lessons(ROOT, ["05"]) == with_appendix
    notebooks = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"))
    # The last two are a reader's own parts, which claim nothing.
    assert replicate_command.select_lessons(ROOT, []) == notebooks[:-2]
    assert notebooks[-2:] == ["11_bring_your_own", "11a_own_parts"]
    with pytest.raises(ReplicationError, match="no lesson 77"):
        replicate_command.select_lessons(ROOT, ["77"])


def test_the_work_copy_is_a_project_of_its_own(tmp_path):
    copy_root = replicate_command.make_work_copy(ROOT, tmp_path / "copy")
    output = artifacts.write_text(copy_root / "data/runs/kept", "x")
    artifacts.write_text(copy_root / "lib/gone.py", "")
    replicate_command.make_work_copy(ROOT, copy_root)
    assert (
        output.exists()
        and not (copy_root / "lib/gone.py").exists()
        and not (copy_root / "reports/metrics").exists()
    )
    assert replication.read_run(copy_root).zoo == replication.read_run(ROOT).zoo
    code = "import lib.config; print(lib.config.ROOT)"
    environment = os.environ | {"PYTHONPATH": str(copy_root)}
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=copy_root, env=environment, capture_output=True, text=True
    )
    assert process.stdout.strip() == str(copy_root.resolve())
