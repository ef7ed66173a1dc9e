"""The study: the same bytes however it is run, nothing lost when it is stopped, and what prompts may cost."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from lib import params, sources, store
from lib.orchestration import methods, study
from lib.orchestration.methods import Method
from lib.params import ROOT
from lib.zoo import policies as saved
from tests.orchestration import zoo

SCRIPTED = "scripted-medium"


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """The tiny zoo on disk, as `lib.zoo.train` leaves one: two seeds, cards, references."""
    root = tmp_path_factory.mktemp("zoo")
    for domain in zoo.DOMAINS:
        cards = {card["name"]: card for card in zoo.cards(domain)}
        references = {"education": ("MO-S", "MO-RM", "MO-MGDA"), "minigrid": ("MO-pseudoS",)}[domain]
        for name in (*cards, *references):
            actor = zoo.policy(domain, name, (), 1.0) if name in references else zoo.policies(domain)[name]
            for seed in range(2):
                saved.save(actor, root / domain / name, f"seed-{seed}")
            store.write_json(root / domain / name / "card.json", cards.get(name, {}))
    return root


def small(**changes) -> params.Params:
    """Smoke parameters with short episodes, two seeds, one process unless said otherwise."""
    base = {
        "education": {"horizon": 12},
        "minigrid": {"horizon": 12},
        "zoo": {"seeds": 2},
        "orchestration": {"episodes": 2, "jobs": 1, "models": [SCRIPTED]},
    }
    for section, values in changes.items():
        base[section] = base.get(section, {}) | values
    return params.settings(profile="smoke", **base)


def every(domain: str) -> list[Method]:
    (reference, chance), own = methods.rivals(), {"education": "MO-MGDA", "minigrid": "MO-pseudoS"}
    return [*methods.orchestrators(small()), Method("SO-d1", "single"), replace(reference, name=own[domain]), chance]


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_every_method_plays_every_episode_of_every_seed(domain, trained, tmp_path):
    record = study.run(small(), domain, every(domain), tmp_path, trained)
    ends = record[record["done"]].groupby(["method", "seed"]).size()
    assert (ends == 2).all() and len(ends) == 2 * len(every(domain))
    assert (record.groupby(["method", "seed", "episode"])["step"].diff().dropna() == 1).all()
    for row in record.itertuples():
        assert row.choice in row.alternatives.split(";") or row.kind in ("reference", "single")


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_a_single_policy_plays_as_it_does_in_the_evaluation_of_the_zoo(domain, trained, tmp_path):
    from lib.zoo import evaluate, train

    settings = small(zoo={"seeds": 1, "episodes": 2})
    mine = study.run(settings, domain, [Method("SO-d2", "single")], tmp_path, trained)
    actor = train.load(domain, trained)["SO-d2"][0].act
    theirs = evaluate.evaluate(settings, {"SO-d2": [actor]}, domain, zoo.TASK[domain])
    order = ["episode", "step"]
    for column in ("action", "reward_0", "reward_1", "reward_2", "done"):
        assert list(mine.sort_values(order)[column]) == list(theirs.sort_values(order)[column])


def test_processes_and_one_process_give_the_same_record(trained, tmp_path):
    chosen = every("education")[:4]
    alone = study.run(small(), "education", chosen, tmp_path / "one", trained)
    together = study.run(small(orchestration={"jobs": 2}), "education", chosen, tmp_path / "two", trained)
    pd.testing.assert_frame_equal(alone, together)


def test_a_finished_study_is_read_and_not_run_again(trained, tmp_path, monkeypatch):
    chosen = [Method(f"RO {SCRIPTED}", "RO", SCRIPTED)]
    first = study.run(small(), "education", chosen, tmp_path, trained)
    monkeypatch.setattr(study.Bench, "play", None)  # calling it would fail
    pd.testing.assert_frame_equal(first, study.run(small(), "education", chosen, tmp_path, trained))


def test_what_cannot_change_a_decision_is_in_no_cell_name(trained):
    chosen = every("education")
    base = study.cells(small(), "education", chosen, trained)
    same = [
        small(orchestration={"jobs": 2}),
        small(orchestration={"sparing": [3]}),
        small(llm={"max_dollars": 1.0, "cassette": "off"}),
        small(llm={"models": {SCRIPTED: {"timeout": 3.0, "concurrency": 2}}}),
        small(zoo={"episodes": 7}),
    ]
    assert all(study.cells(other, "education", chosen, trained) == base for other in same)
    for other in (
        small(orchestration={"memory": 1}),
        small(education={"horizon": 11}),
        small(llm={"models": {SCRIPTED: {"temperature": 0.1}}}),
    ):
        assert study.cells(other, "education", chosen, trained)[0] != base[0]


@pytest.mark.parametrize("place", ["llm/scripted/deciding.py", "orchestration/templates/state.md", "llm/client.py"])
def test_an_edited_program_that_decides_makes_new_cells(place, trained, monkeypatch):
    chosen, edited, kept = every("education"), (sources.ROOT / "lib" / place).read_bytes(), sources._hash
    before = study.cells(small(), "education", chosen, trained)
    monkeypatch.setattr(sources, "_hash", lambda kind, content: "-" if content == edited else kept(kind, content))
    after = study.cells(small(), "education", chosen, trained)
    assert all(one.digest != other.digest for one, other in zip(before, after, strict=True))


KILLED = """
import sys
from pathlib import Path
from lib.orchestration import study
from tests.orchestration.test_study import every, small
runs, zoo = map(Path, sys.argv[1:])
study.run(small(orchestration={"episodes": 6, "jobs": 2}), "education", every("education"), runs, zoo)
"""


def kill_after(files: int, runs: Path, trained: Path) -> None:
    """Run the study in a process of its own and kill the whole group once `files` results lie there."""
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(runs), str(trained)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(list(runs.rglob("*.parquet"))) < files and time.monotonic() < deadline:
        time.sleep(0.02)
    assert child.poll() is None, "the study ended before it could be killed"
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def test_a_killed_study_goes_on_and_ends_with_the_same_record(trained, tmp_path):
    settings = small(orchestration={"episodes": 6, "jobs": 2})
    undisturbed = study.run(settings, "education", every("education"), tmp_path / "whole", trained)
    runs = tmp_path / "killed"
    for files in (2, 12):
        kill_after(files, runs, trained)
    resumed = study.run(settings, "education", every("education"), runs, trained)
    pd.testing.assert_frame_equal(undisturbed, resumed)
    assert not list(runs.rglob("episode-*.parquet"))


def test_a_budget_is_never_passed_and_unpaid_decisions_keep_the_last_policy(trained, tmp_path):
    dear = small(llm={"models": {SCRIPTED: {"price_in": 3e-6, "price_out": 1.5e-5}}}, education={"horizon": 30})
    record = study.run(dear, "education", [Method("limited", "RO", SCRIPTED, budget=0.02)], tmp_path, trained)
    spent = record.groupby(["seed", "episode"])["dollars"].sum()
    assert (spent <= 0.02).all() and spent.max() > 0.005
    unfunded = record[~record["funded"]]
    assert len(unfunded)
    for (_, _), rows in record.groupby(["seed", "episode"]):
        kept = rows["choice"].shift()[~rows["funded"].to_numpy()].dropna()
        assert (kept == rows.loc[kept.index, "choice"]).all()


def decider(method: Method, trained: Path, **changes):
    """Who decides in a method's cells."""
    (cell, _) = study.cells(small(orchestration=changes), "education", [method], trained)
    return study.Bench(cell.settings, study.Means.of(small(), trained, trained, trained)).decider(None)


def test_who_remembers_less_has_less_in_its_prompts(trained):
    for kind, group in methods.forgetful(SCRIPTED).items():
        assert [method.kind for method in group] == [kind] * 4 and len({method.name for method in group}) == 4
        parts = [{part.name for part in decider(method, trained).components} for method in group]
        gone = [parts[0] - each for each in parts]
        assert gone == [set(), {"mem_s"}, {"mem_l"}, {"mem_s", "mem_l"}]


def test_watching_an_episode_shows_what_the_record_holds(trained, tmp_path):
    method = Method(f"TO {SCRIPTED}", "TO", SCRIPTED)
    record = study.run(small(), "education", [method], tmp_path, trained)
    seen = study.watch(small(), "education", method, seed=1, number=1, zoo=trained)
    rows = record[(record["seed"] == 1) & (record["episode"] == 1)].sort_values("step")
    assert [decision.policy for decision, _ in seen] == list(rows["choice"])
    assert [decision.context for decision, _ in seen] == list(rows["context"])
    assert all(decision.exchanges for decision, _ in seen)


def test_the_plan_bounds_what_was_asked(trained, tmp_path):
    (planned,) = study.plan(small(), trained)
    records = [study.run(small(), d, methods.orchestrators(small()), tmp_path, trained) for d in zoo.DOMAINS]
    asked = sum(record["calls"].sum() for record in records)
    assert 0 < asked <= planned.calls
