"""The study: the same bytes however it is run, nothing lost when it is stopped, and what prompts may cost."""

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from lib import config, envs
from lib.config import ROOT
from lib.experiment import seeds
from lib.experiment.run_context import RunContext
from lib.llm import cost_ledger, scripted
from lib.orchestration import (
    baselines,
    decisions,
    domains,
    environment_copies,
    llm_judge,
    orchestrators,
    prompt_components,
    prompted_experiment,
    reply_parser,
    variants,
)
from lib.orchestration.variants import Method
from lib.policy_zoo import evaluate, networks, policies, recipes
from tests.llm.stub_model import StubModel
from tests.orchestration import zoo

SCRIPTED = "scripted-medium"


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """The tiny zoo on disk, as `lib.policy_zoo.train` leaves one: two seeds, cards, references."""
    root = tmp_path_factory.mktemp("zoo")
    for domain in zoo.DOMAINS:
        zoo.write(root, domain, zoo.cards(domain))
    return root


def small(**changes) -> config.Params:
    """Smoke parameters with short episodes, two seeds, one process unless said otherwise."""
    base = {
        "education": {"horizon": 12},
        "minigrid": {"horizon": 12},
        "zoo": {"seeds": 2},
        "orchestration": {"episodes": 2, "jobs": 1, "models": [SCRIPTED]},
    }
    for section, values in changes.items():
        base[section] = base.get(section, {}) | values
    return config.settings(profile="smoke", **base)


def every(domain: str) -> list[Method]:
    (reference, chance), own = variants.rivals(), {"education": "MO-MGDA", "minigrid": "MO-pseudoS"}
    return [
        *variants.orchestrators(small()),
        Method("SO-d1", "single"),
        replace(reference, name=own[domain]),
        chance,
    ]


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_every_method_plays_every_episode_of_every_seed(domain, trained, tmp_path):
    record = prompted_experiment.run(small(), domain, every(domain), tmp_path, trained)
    ends = record[record["done"]].groupby(["method", "seed"]).size()
    assert (ends == 2).all() and len(ends) == 2 * len(every(domain))
    assert (record.groupby(["method", "seed", "episode"])["step"].diff().dropna() == 1).all()
    for row in record.itertuples():
        assert row.choice in row.alternatives.split(";") or row.kind in ("reference", "single")


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_a_single_policy_plays_as_it_does_in_the_evaluation_of_the_zoo(domain, trained, tmp_path):
    from lib.policy_zoo import evaluate, train

    settings = small(zoo={"seeds": 1, "episodes": 2})
    mine = prompted_experiment.run(settings, domain, [Method("SO-d2", "single")], tmp_path, trained)
    actor = train.load(domain, trained)["SO-d2"][0].act
    theirs = evaluate.evaluate(settings, {"SO-d2": [actor]}, domain, zoo.TASK[domain])
    order = ["episode", "step"]
    for column in ("action", "reward_0", "reward_1", "reward_2", "done"):
        assert list(mine.sort_values(order)[column]) == list(theirs.sort_values(order)[column])


def test_a_finished_study_is_read_and_not_run_again(trained, tmp_path, monkeypatch):
    chosen = [Method(f"RO {SCRIPTED}", "RO", SCRIPTED)]
    first = prompted_experiment.run(small(), "education", chosen, tmp_path, trained)
    monkeypatch.setattr(prompted_experiment.Bench, "play", None)  # calling it would fail
    pd.testing.assert_frame_equal(
        first, prompted_experiment.run(small(), "education", chosen, tmp_path, trained)
    )


def find_keys(settings, zoo_folder, domain="education") -> dict[str, str]:
    """The keys of the jobs of every method, by label."""
    return {
        job.label: job.key
        for job in prompted_experiment.make_jobs(settings, domain, every(domain), zoo_folder)
    }


def find_changed_labels(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert set(before) == set(after)
    return {label for label, key in before.items() if after[label] != key}


@pytest.mark.parametrize(
    "changes",
    [
        {"orchestration": {"jobs": 2}},
        {
            "orchestration": {
                "decision_intervals": [3],
                "lookahead_depths": [],
                "students": 7,
                "judge": "scripted-small",
            }
        },
        {"llm": {"max_usd": 1.0, "cassette": "off"}},
        {"llm": {"models": {SCRIPTED: {"timeout": 3.0, "concurrency": 2}}}},
        {"zoo": {"episodes": 7}},
        {"minigrid": {"horizon": 11}},
    ],
)
def test_a_setting_that_no_decision_of_students_depends_on_leaves_all_keys_alone(changes, trained):
    assert find_keys(small(**changes), trained) == find_keys(small(), trained)


@pytest.mark.parametrize(
    "changes, kinds",
    [
        ({"orchestration": {"memory": 1}}, ("KO", "TO", "RO")),
        ({"orchestration": {"probes": 2}}, ("TO",)),
        ({"orchestration": {"lookahead": 4}}, ("RO",)),
        ({"orchestration": {"rollout_copies": 3}}, ("TO", "RO")),
        ({"llm": {"models": {SCRIPTED: {"temperature": 0.1}}}}, ("KO", "TO", "RO")),
        ({"education": {"horizon": 11}}, ("KO", "TO", "RO", "SO", "MO", "random")),
    ],
)
def test_a_setting_changes_the_keys_of_the_jobs_that_read_it(changes, kinds, trained):
    changed = find_changed_labels(find_keys(small(), trained), find_keys(small(**changes), trained))
    expected = {
        label for label in find_keys(small(), trained) if label.split("/")[1].startswith(kinds)
    }
    assert changed == expected


def test_a_topic_of_students_changes_no_key_of_a_room(trained):
    other = small(education={"topic": "Probability"})
    assert find_keys(other, trained, "minigrid") == find_keys(small(), trained, "minigrid")
    assert find_keys(other, trained) != find_keys(small(), trained)


@pytest.mark.parametrize("name, seed", [("SO-d1", 0), ("MO-MGDA", 1)])
def test_a_policy_that_is_trained_anew_changes_the_keys_of_the_jobs_in_which_it_acts(
    name, seed, trained, tmp_path
):
    before = find_keys(small(), trained)
    shutil.copytree(trained, tmp_path / "zoo")
    policy = zoo.policy("education", name, ("easy",), 2.0)
    policies.save(policy, tmp_path / "zoo" / "education" / name, f"seed-{seed}")
    changed = find_changed_labels(before, find_keys(small(), tmp_path / "zoo"))
    of_seed = {label for label in before if label.endswith(f"seed-{seed}")}
    assert changed == (
        of_seed if name == "SO-d1" else {label for label in of_seed if name in label}
    )


VERSIONED = {
    "everybody": [
        prompt_components,
        decisions,
        domains,
        envs,
        evaluate,
        cost_ledger,
        variants,
        networks,
        policies,
        recipes,
        seeds,
        prompted_experiment,
        environment_copies,
    ],
    "who asks": [orchestrators, reply_parser, scripted],
    "who does not": [baselines],
    "nobody": [llm_judge],
}


@pytest.mark.parametrize(
    ("whose", "module"), [(whose, each) for whose, group in VERSIONED.items() for each in group]
)
def test_a_version_that_is_raised_changes_the_keys_of_the_jobs_that_run_its_code(
    whose, module, trained, monkeypatch
):
    before = find_keys(small(), trained)
    monkeypatch.setattr(module, "VERSION", 99)
    changed = find_changed_labels(before, find_keys(small(), trained))
    asking = {label for label in before if label.split("/")[1][:2] in variants.KINDS}
    expected = {
        "everybody": set(before),
        "who asks": asking,
        "who does not": set(before) - asking,
        "nobody": set(),
    }
    assert changed == expected[whose]


def test_a_policy_that_is_missing_is_named_before_anything_runs(tmp_path):
    with pytest.raises(policies.PolicyError, match="train the zoo"):
        prompted_experiment.make_jobs(small(), "education", every("education"), tmp_path)


KILLED = """
import sys
from pathlib import Path
from lib.orchestration import prompted_experiment as study
from tests.orchestration.test_prompted_experiment import every, small
runs, zoo = map(Path, sys.argv[1:])
study.run(small(orchestration={"episodes": 4, "jobs": 2}), "education", every("education"), runs, zoo)
"""


def kill_after(files: int, runs: Path, trained: Path) -> None:
    """Run the study in a process of its own and kill the whole group once `files` results lie there."""
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(runs), str(trained)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(list(runs.rglob("*.parquet"))) < files and time.monotonic() < deadline:
        time.sleep(0.02)
    assert child.poll() is None, "the study ended before it could be killed"
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def test_a_killed_study_of_two_processes_ends_with_the_record_of_one_process(trained, tmp_path):
    methods = every("education")
    one_process = small(orchestration={"episodes": 4, "jobs": 1})
    two_processes = small(orchestration={"episodes": 4, "jobs": 2})
    undisturbed = prompted_experiment.run(
        one_process, "education", methods, tmp_path / "whole", trained
    )
    runs = tmp_path / "killed"
    kill_after(6, runs, trained)
    resumed = prompted_experiment.run(two_processes, "education", methods, runs, trained)
    pd.testing.assert_frame_equal(undisturbed, resumed)
    assert not list(runs.rglob("episode-*.parquet"))


def test_a_budget_is_never_passed_and_unpaid_decisions_keep_the_last_policy(trained, tmp_path):
    dear = small(
        llm={"models": {SCRIPTED: {"price_in": 3e-6, "price_out": 1.5e-5}}},
        education={"horizon": 30},
    )
    record = prompted_experiment.run(
        dear, "education", [Method("limited", "RO", SCRIPTED, budget=0.02)], tmp_path, trained
    )
    spent = record.groupby(["seed", "episode"])["cost_usd"].sum()
    assert (spent <= 0.02).all() and spent.max() > 0.005
    unfunded = record[~record["funded"]]
    assert len(unfunded)
    for (_, _), rows in record.groupby(["seed", "episode"]):
        kept = rows["choice"].shift()[~rows["funded"].to_numpy()].dropna()
        assert (kept == rows.loc[kept.index, "choice"]).all()


def decider(method: Method, trained: Path, **changes):
    """Who decides in a method's jobs."""
    (job, _) = prompted_experiment.make_jobs(
        small(orchestration=changes), "education", [method], trained
    )
    return prompted_experiment.Bench(
        job.settings, RunContext.of(small(), trained, trained, trained)
    ).decider({method.model: StubModel()})


def test_who_remembers_less_has_less_in_its_prompts(trained):
    for kind, group in variants.forgetful(SCRIPTED).items():
        assert [method.kind for method in group] == [kind] * 4 and len(
            {method.name for method in group}
        ) == 4
        parts = [{part.name for part in decider(method, trained).components} for method in group]
        gone = [parts[0] - each for each in parts]
        assert gone == [set(), {"mem_s"}, {"mem_l"}, {"mem_s", "mem_l"}]


def test_watching_an_episode_shows_what_the_record_holds(trained, tmp_path):
    method = Method(f"TO {SCRIPTED}", "TO", SCRIPTED)
    record = prompted_experiment.run(small(), "education", [method], tmp_path, trained)
    seen = prompted_experiment.watch(small(), "education", method, seed=1, number=1, zoo=trained)
    rows = record[(record["seed"] == 1) & (record["episode"] == 1)].sort_values("step")
    assert [decision.policy for decision, _ in seen] == list(rows["choice"])
    assert [decision.context for decision, _ in seen] == list(rows["context"])
    assert all(decision.exchanges for decision, _ in seen)


def test_the_plan_bounds_what_was_asked(trained, tmp_path):
    (planned,) = prompted_experiment.plan(small(), trained)
    records = [
        prompted_experiment.run(small(), d, variants.orchestrators(small()), tmp_path, trained)
        for d in zoo.DOMAINS
    ]
    asked = sum(record["calls"].sum() for record in records)
    assert 0 < asked <= planned.calls


def test_finished_episodes_are_not_planned_again(trained, tmp_path):
    method = Method(f"KO {SCRIPTED}", "KO", SCRIPTED)
    args = small(), "education", [method], trained
    (whole,) = prompted_experiment.plan_calls(*args)
    assert prompted_experiment.plan_calls(*args, tmp_path) == [whole]
    first, second = prompted_experiment.make_jobs(*args)
    (second.folder(tmp_path)).mkdir(parents=True)
    (second.folder(tmp_path) / "episode-00000.parquet").touch()
    (rest,) = prompted_experiment.plan_calls(*args, tmp_path)
    num_episodes = 2 * first.settings["episodes"]
    assert rest.calls * num_episodes == whole.calls * (num_episodes - 1)
    prompted_experiment.run(small(), "minigrid", [method], tmp_path, trained)
    (nothing,) = prompted_experiment.plan_calls(small(), "minigrid", [method], trained, tmp_path)
    assert nothing.calls == 0


def test_costs_stand_on_the_terminal_before_the_first_call_to_an_endpoint(
    trained, tmp_path, monkeypatch, capsys
):
    paid = {
        "backend": "endpoint",
        "base_url": "http://127.0.0.1:9/v1",
        "model": "m",
        "price_in": 1e-6,
        "price_out": 1e-6,
    }
    settings = small(llm={"models": {SCRIPTED: paid}})
    lines = []

    def answer(request):
        lines.append(capsys.readouterr().err)
        return '{"reasoning": "x", "policy": "SO-d2"}'

    model = StubModel(name=SCRIPTED, answer=answer)
    monkeypatch.setattr(prompted_experiment, "open_lesson_models", model.open)
    method = Method(f"KO {SCRIPTED}", "KO", SCRIPTED)
    prompted_experiment.run(settings, "education", [method], tmp_path, trained)
    assert "deciding in education: At most" in lines[0] and "to endpoints" in lines[0]
    assert "At most" not in "".join(lines[1:])
    prompted_experiment.run(settings, "education", [method], tmp_path, trained)
    assert capsys.readouterr().err == ""
