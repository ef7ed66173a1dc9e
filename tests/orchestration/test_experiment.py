"""The jobs of the contest: each holds what it reads, and the same settings give the same episodes."""

import pandas as pd
import pytest

from lib import config, envs
from lib.experiment import artifacts, seeds
from lib.experiment.harness import JobRun
from lib.experiment.run_context import RunContext
from lib.language_models import kv_cache_forward
from lib.language_models.training import decision_traces
from lib.llm import cost_ledger
from lib.orchestration import (
    batched_evaluation,
    decision_context,
    decision_models,
    experiment,
    lab_model_reader,
    llm_reader,
    prompted_experiment,
)
from lib.policy_zoo import networks, planned_policies, policies, ppo, recipes
from tests.llm.stub_model import StubModel
from tests.orchestration import zoo
from tests.orchestration.test_prompted_experiment import trained

__all__ = ["trained"]

PLACES = [(domain, world) for domain in zoo.DOMAINS for world in ("paper", "ours")]
CEILING = {"education": {"steps": 2, "then": [1]}, "minigrid": {"steps": 2, "then": [1]}}


def small(**changes) -> config.Params:
    """Smoke parameters with few, short episodes, two seeds, one process."""
    base = {
        "education": {"horizon": 6},
        "minigrid": {"horizon": 6},
        "zoo": {"seeds": 2},
        "orchestration": {
            "students": 2,
            "training": 2,
            "jobs": 1,
            "lookahead": 2,
            "readers": ["rational"],
            "decision_intervals": [2],
            "lookahead_depths": [3],
            "ceiling": CEILING,
            "custom_environments": {"minigrid": {"horizon": 7}},
        },
    }
    return config.settings(profile="smoke", **config.overlay_settings(base, changes))


def find_keys(settings, folder) -> dict[tuple[str, str, int], str]:
    """The key of the job of each domain, world and seed."""
    keys = {}
    for domain, world in PLACES:
        for job in experiment.make_jobs(settings, domain, world, folder):
            keys[domain, world, job.settings["seed"]] = job.key
    return keys


def find_changed_places(before, after) -> set[tuple[str, str]]:
    assert set(before) == set(after)
    return {place[:2] for place, key in before.items() if after[place] != key}


EDUCATION, MINIGRID = {PLACES[0], PLACES[1]}, {PLACES[2], PLACES[3]}
OURS = {PLACES[1], PLACES[3]}


@pytest.mark.parametrize(
    "changes, places",
    [
        (
            {
                "orchestration": {
                    "jobs": 3,
                    "memory": 1,
                    "probes": 1,
                    "episodes": 7,
                    "equivalence_margin": 0.5,
                }
            },
            set(),
        ),
        ({"llm": {"max_usd": 1.0}}, set()),
        ({"orchestration": {"students": 3}}, EDUCATION | MINIGRID),
        ({"orchestration": {"decision_intervals": [3]}}, OURS),
        ({"orchestration": {"lookahead_depths": [4]}}, {("education", "paper")}),
        ({"orchestration": {"ceiling": {"minigrid": {"steps": 3}}}}, {("minigrid", "ours")}),
        ({"orchestration": {"custom_environments": {"slip": 0.2}}}, {("minigrid", "ours")}),
        (
            {"orchestration": {"custom_environments": {"education": {"spread": 0.3}}}},
            {("education", "ours")},
        ),
        ({"education": {"delta": 0.1}}, EDUCATION),
        (
            {"minigrid": {"lava": 1}},
            {("minigrid", "paper")},
        ),  # custom rooms have as much lava as custom_environments says
    ],
)
def test_a_setting_changes_the_keys_of_the_places_that_read_it(changes, places, trained):
    assert (
        find_changed_places(find_keys(small(), trained), find_keys(small(**changes), trained))
        == places
    )


@pytest.mark.parametrize("world", ["paper", "ours"])
def test_a_place_holds_only_the_policies_that_act_in_it(world, trained):
    (job, _) = experiment.make_jobs(small(), "education", world, trained)
    names = ["SO-d1", "SO-d2", "SO-d3"]
    if world == "paper":
        names += ["MO-S", "MO-RM", "MO-MGDA"]
    assert list(job.settings["menu"]["policies"]) == names
    (rooms, _) = experiment.make_jobs(small(), "minigrid", "ours", trained)
    assert list(rooms.settings["menu"]) == ["slip"]


@pytest.mark.parametrize(
    "module, places",
    [
        (batched_evaluation, EDUCATION | MINIGRID),
        (decision_context, EDUCATION | MINIGRID),
        (experiment, EDUCATION | MINIGRID),
        (envs, EDUCATION | MINIGRID),
        (decision_models, EDUCATION | MINIGRID),
        (recipes, EDUCATION | MINIGRID),
        (seeds, EDUCATION | MINIGRID),
        (networks, EDUCATION | {PLACES[2]}),
        (policies, EDUCATION | {PLACES[2]}),
        (planned_policies, MINIGRID),
        (ppo, set()),
        (prompted_experiment, set()),
        (lab_model_reader, set()),
        (llm_reader, set()),
    ],
)
def test_a_version_that_is_raised_changes_the_keys_of_the_places_that_run_its_code(
    module, places, trained, monkeypatch
):
    before = find_keys(small(), trained)
    monkeypatch.setattr(module, "VERSION", 99)
    assert find_changed_places(before, find_keys(small(), trained)) == places


@pytest.mark.parametrize(
    "reader, modules",
    [
        ("lab-orchestrator", [lab_model_reader, decision_traces, kv_cache_forward]),
        ("scripted-small", [llm_reader, cost_ledger]),
    ],
)
def test_the_versions_of_a_reader_stand_in_the_keys_of_those_who_ask_it(
    reader, modules, trained, monkeypatch
):
    settings = small(orchestration={"readers": ["rational", reader]})
    before, without = find_keys(settings, trained), find_keys(small(), trained)
    for module in modules:
        with monkeypatch.context() as patch:
            patch.setattr(module, "VERSION", 99)
            assert find_changed_places(before, find_keys(settings, trained)) == EDUCATION | MINIGRID
            assert find_keys(small(), trained) == without


@pytest.mark.parametrize(("domain", "world"), PLACES)
def test_a_job_that_knows_its_settings_alone_plays_every_arm(domain, world, trained, tmp_path):
    job = experiment.make_jobs(small(), domain, world, trained)[0]
    context = RunContext.of(small(), trained, tmp_path, tmp_path, 1)
    tables = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        experiment.play_contest(JobRun(job, folder, lambda done: None, context))
        tables.append(artifacts.read_parquet(folder / "episodes.parquet"))
    pd.testing.assert_frame_equal(*tables)
    episodes_by_arm = tables[0].groupby("method").size()
    assert (episodes_by_arm == 2).all() and {"RO rational", experiment.CEILING} <= set(
        episodes_by_arm.index
    )
    assert ("RO rational, every 2" in episodes_by_arm.index) == (world == "ours")
    assert ("RO rational, 3 steps" in episodes_by_arm.index) == (
        (domain, world) == ("education", "paper")
    )


def test_readings_by_an_endpoint_are_planned_at_their_most(trained, tmp_path, monkeypatch):
    """A stub in the endpoint's place reads fewer briefs than planned, and not many fewer."""
    name = "scripted-small"
    hosted = {
        "backend": "endpoint",
        "base_url": "http://localhost:1/v1",
        "model": "m",
        "price_in": 1e-6,
        "price_out": 1e-6,
    }
    settings = small(llm={"models": {name: hosted}}, orchestration={"readers": ["rational", name]})
    places = [("education", "paper"), ("education", "ours")]
    (planned,) = experiment.plan_readings(settings, places)
    assert experiment.plan_readings(small(), places) == []

    model = StubModel('{"reasoning": "x", "policy": "SO-d2"}', name=name)
    monkeypatch.setattr(decision_models, "open_models", model.open)
    for domain, world in places:
        for job in experiment.make_jobs(settings, domain, world, trained):
            folder = tmp_path / job.key
            context = RunContext.of(settings, trained, tmp_path, tmp_path)
            experiment.play_contest(JobRun(job, folder, lambda _: None, context))
    num_calls = len(model.requests)
    assert num_calls <= planned.calls <= 3 * num_calls
    largest = max(sum(len(m["content"]) for m in r.messages) for r in model.requests)
    assert largest / 4 <= experiment.BRIEF_TOKENS
