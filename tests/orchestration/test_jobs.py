"""What the jobs of lesson 02 hold: which settings, versions and policies change their keys."""

import shutil

import pytest

from lib import envs
from lib.experiment import artifacts, seeds
from lib.language_models.training import decision_traces
from lib.llm import cost_ledger, scripted
from lib.orchestration import (
    baseline_models,
    constrained_model,
    contexts,
    decision_model,
    decision_models,
    domain_descriptions,
    episode_batch,
    lab_orchestrator,
    llm_judge,
    prompted_model,
    prompts,
    reply_parser,
    worlds,
)
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.jobs import make_constrained_jobs, make_jobs
from lib.orchestration.worlds import WORLDS
from lib.policy_zoo import networks, planned_policies, policies, ppo, recipes
from lib.policy_zoo.recipes import SINGLE
from tests.orchestration import zoo
from tests.orchestration.small import SCRIPTED, make_params, trained

__all__ = ["trained"]

STUDENTS = {world for world in WORLDS if world[0] == "education"}
ROOMS = {world for world in WORLDS if world[0] == "minigrid"}
VARIED = {world for world in WORLDS if world[1] == "varied"}
ALL = STUDENTS | ROOMS
PLANNED_ROOMS = {("minigrid", "varied")}


def find_keys(params, folder) -> dict[tuple[str, str, int], str]:
    """The key of the job of each domain, world and seed."""
    keys = {}
    for domain, world in WORLDS:
        for job in make_jobs(params, domain, world, folder):
            keys[domain, world, job.settings["seed"]] = job.key
    return keys


def find_changed_worlds(before, after) -> set[tuple[str, str]]:
    assert set(before) == set(after)
    return {job[:2] for job, key in before.items() if after[job] != key}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"orchestration": {"jobs": 3, "episodes": 7, "equivalence_margin": 0.5}}, set()),
        ({"orchestration": {"prompted": ["scripted-large"], "contrasts": [["RO", "TO"]]}}, set()),
        ({"llm": {"max_usd": 1.0}}, set()),
        ({"zoo": {"episodes": 9}}, set()),
        ({"orchestration": {"students": 4}}, ALL),
        ({"orchestration": {"training": 4}}, ALL),
        ({"orchestration": {"memory": 1}}, ALL),
        ({"orchestration": {"max_calls": 2}}, ALL),
        ({"orchestration": {"rollout_copies": 3}}, ALL),
        ({"orchestration": {"decision_intervals": [3]}}, VARIED),
        ({"orchestration": {"lookahead_depths": [4]}}, STUDENTS - VARIED),
        ({"orchestration": {"upper_bound": {"minigrid": {"steps": 3}}}}, ROOMS),
        ({"orchestration": {"varied": {"slip": 0.2}}}, PLANNED_ROOMS),
        ({"orchestration": {"varied": {"education": {"spread": 0.3}}}}, STUDENTS & VARIED),
        ({"education": {"delta": 0.1}}, STUDENTS),
        # The varied rooms have a horizon and lava of their own.
        ({"minigrid": {"lava": 1}}, ROOMS - VARIED),
    ],
)
def test_a_setting_changes_the_keys_of_the_worlds_that_read_it(changes, expected, trained):
    before = find_keys(make_params(), trained)
    assert find_changed_worlds(before, find_keys(make_params(**changes), trained)) == expected


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        *((module, ALL) for module in (contexts, decision_model, domain_descriptions)),
        *((module, ALL) for module in (episode_batch, baseline_models, worlds)),
        *((module, ALL) for module in (decision_models, envs, recipes, seeds)),
        *((module, ALL) for module in (prompts, prompted_model, reply_parser)),
        *((module, ALL) for module in (scripted, cost_ledger)),
        *((module, ALL - PLANNED_ROOMS) for module in (networks, policies)),
        (planned_policies, PLANNED_ROOMS),
        *((module, set()) for module in (ppo, llm_judge, lab_orchestrator, constrained_model)),
    ],
)
def test_a_version_that_is_raised_changes_the_keys_of_the_worlds_that_run_its_code(
    module, expected, trained, monkeypatch
):
    before = find_keys(make_params(), trained)
    monkeypatch.setattr(module, "VERSION", 99)
    assert find_changed_worlds(before, find_keys(make_params(), trained)) == expected


@pytest.mark.parametrize("module", [lab_orchestrator, decision_traces])
def test_the_versions_of_the_model_that_decides_are_in_the_keys_and_no_other_ones(
    module, trained, monkeypatch
):
    of_lab = make_params(orchestration={"model": lab_orchestrator.NAME})
    before, scripted_before = find_keys(of_lab, trained), find_keys(make_params(), trained)
    monkeypatch.setattr(module, "VERSION", 99)
    assert find_changed_worlds(before, find_keys(of_lab, trained)) == ALL
    assert find_keys(make_params(), trained) == scripted_before


def test_a_world_holds_only_the_policies_that_act_in_it(trained):
    menus = {}
    for domain, world in WORLDS:
        (job, _) = make_jobs(make_params(), domain, world, trained)
        menus[domain, world] = job.settings["menu"]
    references = ["MO-S", "MO-RM", "MO-MGDA"]
    assert list(menus["education", "paper"]["policies"]) == [*SINGLE, *references]
    assert list(menus["education", "speed"]["policies"]) == [*SINGLE, *references]
    assert list(menus["education", "varied"]["policies"]) == list(SINGLE)
    assert list(menus["minigrid", "paper"]["policies"]) == [*SINGLE, "MO-pseudoS"]
    assert list(menus["minigrid", "varied"]) == ["slip"]


@pytest.mark.parametrize(("name", "file"), [("SO-d1", "seed-1"), ("MO-MGDA", "seed-1")])
def test_a_policy_that_is_trained_anew_changes_the_jobs_in_which_it_acts(
    name, file, trained, tmp_path
):
    folder = tmp_path / "zoo"
    shutil.copytree(trained, folder)
    policies.save(zoo.policy("education", name, ("easy",), 2.0), folder / "education" / name, file)
    before, after = find_keys(make_params(), trained), find_keys(make_params(), folder)
    changed = {job for job, key in before.items() if after[job] != key}
    worlds = ["paper", "speed", "varied"] if name in SINGLE else ["paper", "speed"]
    assert changed == {("education", world, 1) for world in worlds}


def test_a_card_that_is_written_anew_changes_the_keys(trained, tmp_path):
    folder = tmp_path / "zoo"
    shutil.copytree(trained, folder)
    artifacts.write_json(folder / "education" / "SO-d2" / "card.json", {"name": "SO-d2"})
    before, after = find_keys(make_params(), trained), find_keys(make_params(), folder)
    assert find_changed_worlds(before, after) == STUDENTS


def test_a_policy_that_is_missing_is_named_before_anything_runs(tmp_path):
    with pytest.raises(policies.PolicyError, match="train the zoo"):
        make_jobs(make_params(), "education", "paper", tmp_path)


def test_a_model_that_nobody_has_is_named_with_those_there_are(trained):
    params = make_params(orchestration={"model": SCRIPTED})
    params = params.model_copy(
        update={"orchestration": params.orchestration.model_copy(update={"model": "nobody"})}
    )
    with pytest.raises(ValueError, match="'nobody' is no decision model; there are lab-orch"):
        make_jobs(params, "education", "paper", trained)


# Policies that are described by what trains them --------------------------------------------------


def test_without_a_folder_policies_are_described_by_their_trainings():
    def list_menus(**changes):
        jobs = make_jobs(make_params(**changes), "education", "paper", None)
        return [job.settings["menu"] for job in jobs]

    first, second = list_menus()
    assert list(first["policies"]) == [*SINGLE, "MO-S", "MO-RM", "MO-MGDA"]
    assert len({*first["policies"].values(), *second["policies"].values()}) == 12
    assert list_menus(minigrid={"lava": 1}, orchestration={"students": 9}) == [first, second]

    longer, _ = list_menus(zoo={"education": {"mgda": {"timesteps": 512}}})
    changed = {name for name, key in first["policies"].items() if longer["policies"][name] != key}
    assert changed == {"MO-MGDA"} and longer["cards"] == first["cards"]
    more_episodes, _ = list_menus(zoo={"episodes": 9})
    assert more_episodes["policies"] == first["policies"]
    assert more_episodes["cards"] != first["cards"]


# Constrained replies ------------------------------------------------------------------------------


def test_other_weights_are_another_job_and_the_folder_is_none():
    params = make_params()
    jobs = make_constrained_jobs(params, "m", "a hash", None)
    assert [job.settings["system"] for job in jobs] == list(SYSTEMS)
    other = make_constrained_jobs(params, "m", "another hash", None)
    assert not {job.key for job in jobs} & {job.key for job in other}
    assert "/" not in str(jobs[0].settings["inputs"])


@pytest.mark.parametrize("module", [constrained_model, prompts, decision_models, episode_batch])
def test_a_version_behind_constrained_replies_is_in_their_key(module, monkeypatch):
    before = make_constrained_jobs(make_params(), "m", "a hash", None)[0].key
    monkeypatch.setattr(module, "VERSION", 99)
    assert make_constrained_jobs(make_params(), "m", "a hash", None)[0].key != before
