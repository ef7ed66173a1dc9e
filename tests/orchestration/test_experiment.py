"""The experiment of lesson 02: what its jobs hold, who plays in which world, and what may be known beforehand."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib import config, envs
from lib.config import ROOT
from lib.envs.education import draw_talents
from lib.experiment import artifacts, results_table, seeds
from lib.experiment.harness import JobRun
from lib.experiment.run_context import RunContext
from lib.language_models.training import decision_traces
from lib.llm import cost_ledger, scripted
from lib.llm.token_counts import estimate_tokens
from lib.orchestration import (
    baseline_models,
    constrained_model,
    contexts,
    decision_model,
    decision_models,
    domain_descriptions,
    episode_batch,
    experiment,
    lab_orchestrator,
    llm_judge,
    prompted_model,
    prompts,
    reply_parser,
)
from lib.orchestration.baseline_models import GreedyModel, RandomModel
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.experiment import BEST_POLICY, ORACLE, PLACES, UPPER_BOUND, World
from lib.policy_zoo import networks, planned_policies, policies, ppo, recipes
from lib.policy_zoo.recipes import SINGLE
from tests.language_models.hugging_face_folders import make_random_folder
from tests.llm.stub_model import StubModel
from tests.orchestration import untrained, zoo
from tests.orchestration.small import ENDPOINT, SCRIPTED, make_params, trained

__all__ = ["trained"]

STUDENTS = {place for place in PLACES if place[0] == "education"}
ROOMS = {place for place in PLACES if place[0] == "minigrid"}
VARIED = {place for place in PLACES if place[1] == "varied"}
ALL = STUDENTS | ROOMS
PLANNED_ROOMS = {("minigrid", "varied")}


# What a job holds ---------------------------------------------------------------------------------


def find_keys(params, folder) -> dict[tuple[str, str, int], str]:
    """The key of the job of each domain, world and seed."""
    keys = {}
    for domain, world in PLACES:
        for job in experiment.make_jobs(params, domain, world, folder):
            keys[domain, world, job.settings["seed"]] = job.key
    return keys


def find_changed_places(before, after) -> set[tuple[str, str]]:
    assert set(before) == set(after)
    return {place[:2] for place, key in before.items() if after[place] != key}


@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({"orchestration": {"jobs": 3, "episodes": 7, "equivalence_margin": 0.5}}, set()),
        ({"orchestration": {"prompted": [], "contrasts": [["RO", "TO"]]}}, set()),
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
def test_a_setting_changes_the_keys_of_the_places_that_read_it(changes, places, trained):
    before = find_keys(make_params(), trained)
    assert find_changed_places(before, find_keys(make_params(**changes), trained)) == places


@pytest.mark.parametrize(
    ("module", "places"),
    [
        *((module, ALL) for module in (contexts, decision_model, domain_descriptions)),
        *((module, ALL) for module in (episode_batch, baseline_models, experiment)),
        *((module, ALL) for module in (decision_models, envs, recipes, seeds)),
        *((module, ALL) for module in (prompts, prompted_model, reply_parser)),
        *((module, ALL) for module in (scripted, cost_ledger)),
        *((module, ALL - PLANNED_ROOMS) for module in (networks, policies)),
        (planned_policies, ROOMS),
        *((module, set()) for module in (ppo, llm_judge, lab_orchestrator, constrained_model)),
    ],
)
def test_a_version_that_is_raised_changes_the_keys_of_the_places_that_run_its_code(
    module, places, trained, monkeypatch
):
    before = find_keys(make_params(), trained)
    monkeypatch.setattr(module, "VERSION", 99)
    assert find_changed_places(before, find_keys(make_params(), trained)) == places


@pytest.mark.parametrize("module", [lab_orchestrator, decision_traces])
def test_the_versions_of_the_model_that_decides_are_in_the_keys_and_no_other_ones(
    module, trained, monkeypatch
):
    of_lab = make_params(orchestration={"model": lab_orchestrator.NAME})
    before, scripted_before = find_keys(of_lab, trained), find_keys(make_params(), trained)
    monkeypatch.setattr(module, "VERSION", 99)
    assert find_changed_places(before, find_keys(of_lab, trained)) == ALL
    assert find_keys(make_params(), trained) == scripted_before


def test_a_place_holds_only_the_policies_that_act_in_it(trained):
    menus = {}
    for domain, world in PLACES:
        (job, _) = experiment.make_jobs(make_params(), domain, world, trained)
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
    changed = {place for place, key in before.items() if after[place] != key}
    worlds = ["paper", "speed", "varied"] if name in SINGLE else ["paper", "speed"]
    assert changed == {("education", world, 1) for world in worlds}


def test_a_card_that_is_written_anew_changes_the_keys(trained, tmp_path):
    folder = tmp_path / "zoo"
    shutil.copytree(trained, folder)
    artifacts.write_json(folder / "education" / "SO-d2" / "card.json", {"name": "SO-d2"})
    before, after = find_keys(make_params(), trained), find_keys(make_params(), folder)
    assert find_changed_places(before, after) == STUDENTS


def test_a_policy_that_is_missing_is_named_before_anything_runs(tmp_path):
    with pytest.raises(policies.PolicyError, match="train the zoo"):
        experiment.make_jobs(make_params(), "education", "paper", tmp_path)


def test_a_model_that_nobody_has_is_named_with_those_there_are(trained):
    params = make_params(orchestration={"model": SCRIPTED})
    params = params.model_copy(
        update={"orchestration": params.orchestration.model_copy(update={"model": "nobody"})}
    )
    with pytest.raises(ValueError, match="'nobody' is no decision model; there are lab-orch"):
        experiment.make_jobs(params, "education", "paper", trained)


# Policies that are described by what trains them --------------------------------------------------


def test_without_a_folder_policies_are_described_by_their_trainings():
    def list_menus(**changes):
        jobs = experiment.make_jobs(make_params(**changes), "education", "paper", None)
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


# Who plays ----------------------------------------------------------------------------------------


def play_job(job, params, folder: Path, zoo_folder: Path) -> pd.DataFrame:
    """The episodes of a job that knows its settings and no others."""
    context = RunContext.of(params, zoo_folder, folder, folder, 1)
    experiment.play_job(JobRun(job, folder, lambda done: None, context))
    return artifacts.read_parquet(folder / "episodes.parquet")


@pytest.mark.parametrize(("domain", "world"), PLACES)
def test_a_job_plays_every_method_on_the_same_episodes_and_gives_the_same_again(
    domain, world, trained, tmp_path
):
    params = make_params()
    job = experiment.make_jobs(params, domain, world, trained)[0]
    tables = [play_job(job, params, tmp_path / name, trained) for name in ("first", "second")]
    pd.testing.assert_frame_equal(*tables)
    episodes = tables[0]
    items = episodes.groupby("method")["item"].agg(list)
    assert all(listed == ["0-0", "0-1", "0-2"] for listed in items)
    assert {(row.group, row.condition) for row in episodes.itertuples()} == {(domain, world)}

    methods = set(items.index)
    shared = {*SINGLE, BEST_POLICY, "random", "round-robin", "LinUCB", UPPER_BOUND}
    for model in ("greedy", SCRIPTED):
        shared |= {f"{system} {model}" for system in SYSTEMS} | {f"RO {model}, one copy"}
    assert shared <= methods
    assert (f"KO {SCRIPTED}, no short-term" in methods) == (world == "paper")
    has_depths = domain == "education" and world != "varied"
    assert ("RO greedy, 3 steps" in methods) == has_depths
    assert (f"RO {SCRIPTED}, every 2" in methods) == (world == "varied")
    assert ("MO-S" in methods) == has_depths
    assert not methods & {ORACLE}
    assert (tmp_path / "first" / "steps.parquet").exists() == (world != "varied")


def test_rows_say_who_decided_in_which_context(trained, tmp_path):
    params = make_params()
    job = experiment.make_jobs(params, "education", "paper", trained)[0]
    episodes = play_job(job, params, tmp_path / "job", trained).groupby("method").first()
    row = episodes.loc[f"RO {SCRIPTED}"]
    assert (row["orchestrator"], row["model"], row["backend"]) == ("RO", SCRIPTED, "scripted")
    row = episodes.loc["KO greedy"]
    assert (row["orchestrator"], row["model"], row["backend"]) == ("KO", "greedy", "policy")
    for name in ("random", "SO-d1", UPPER_BOUND):
        assert (episodes.loc[name, ["orchestrator", "model"]] == "").all()
    asks = episodes["model"] == SCRIPTED
    assert (episodes.loc[asks, "calls"] > 0).all() and not episodes.loc[~asks, "calls"].any()


def test_the_oracle_dominates_on_every_episode(trained, tmp_path):
    places = [("education", "varied"), ("minigrid", "varied")]
    rows = experiment.run(make_params(), places, trained, tmp_path, tmp_path)
    keys = ["group", "seed", "item"]
    best = rows[rows["method"] == ORACLE].set_index(keys)["reward"]
    assert len(best) == 2 * 2 * 3 and best.index.is_unique
    others = rows[rows["method"] != ORACLE].set_index(keys)["reward"]
    assert (others <= others.index.map(best)).all()
    assert set(others[others == others.index.map(best)].index) == set(best.index)


def test_the_results_table_is_that_of_every_system(trained, tmp_path):
    params, places = make_params(), [("education", "speed")]
    rows = experiment.run(params, places, trained, tmp_path / "runs", tmp_path)
    written = results_table.read_results("orchestration", tmp_path)
    assert written["reward"].tolist() == rows["reward"].tolist()
    assert set(rows["system"]) == {"orchestration"} and set(rows["split"]) == {"test"}
    assert set(rows["style"]) == {"speed"} and set(rows["seed"]) == {0, 1}
    assert rows["outcomes"].map(len).tolist() == rows["length"].tolist()
    steps = experiment.read_steps(params, places, trained, tmp_path / "runs")
    lengths = steps.groupby(["method", "item"]).size()
    expected = rows[rows["method"] != ORACLE].set_index(["method", "item"])["length"]
    assert lengths.to_dict() == expected.to_dict()


# A world ------------------------------------------------------------------------------------------


def make_world(domain: str, name: str, num_test: int = 6, **changes) -> World:
    """A world of constant actions or planned policies, in which arithmetic decides."""
    params = make_params(education={"horizon": 20}, **changes)
    environments = experiment.make_environments(params, name)
    menu = untrained.make_contest(domain).menu
    cards = {
        policy: {"name": policy, "optimized_objective": "x", "behavior_hint": "y"}
        for policy in SINGLE
    }
    return World(
        name=name,
        domain=domain,
        settings=params.orchestration,
        upper_bound=params.orchestration.upper_bound[domain].model_dump(),
        contests=experiment.make_contests(
            environments, params.orchestration, domain, name, 0, menu, num_test
        ),
        cards=cards,
        model=GreedyModel(),
    )


def test_who_is_judged_is_nobody_that_anything_is_learned_from():
    streams = {}
    for seed in range(3):
        for domain in ("education", "minigrid"):
            params = make_params()
            made = experiment.make_contests(
                params, params.orchestration, domain, "paper", seed, untrained.ConstantMenu(), 5
            )
            assert set(made) == {"test", "cards", "linucb", "dev"}
            for use, contest in made.items():
                streams[domain, seed, use] = contest.streams
    everybody = np.concatenate(list(streams.values()))
    assert len(np.unique(everybody)) == len(everybody)


def test_more_test_students_are_the_same_ones_and_further_ones():
    few, many = (make_world("education", "paper", num_test=n).test for n in (3, 8))
    assert many.streams[:3].tolist() == few.streams.tolist()


@pytest.mark.parametrize("domain", ["education", "minigrid"])
def test_queries_weigh_alike_in_the_papers_world_and_differently_in_the_varied_one(domain):
    paper, varied = (make_world(domain, name, 40) for name in ("paper", "varied"))
    expected = [1 / 3, 1 / 3, 1 / 3] + [0.0] * (domain == "education")
    assert np.allclose(paper.test.weights, expected)
    assert set(paper.name_query_styles()) == {"paper"}
    assert len(np.unique(varied.test.weights, axis=0)) == 40
    styles = varied.name_query_styles()
    assert set(styles) == set(recipes.OBJECTIVES[domain])
    for weights, style in zip(varied.test.weights, styles, strict=True):
        assert weights.max() == weights[recipes.OBJECTIVES[domain].index(style)]


def test_weights_of_the_settings_are_those_of_the_papers_world():
    world = make_world("education", "paper", orchestration={"weights": [1, 1, 2]})
    assert np.allclose(world.test.weights, [0.25, 0.25, 0.5, 0.0])


def test_in_the_world_of_speed_utility_is_the_share_of_the_horizon_that_is_saved():
    world = make_world("education", "speed")
    assert np.allclose(world.test.weights, [0, 0, 0, 1])
    for model, system in ((RandomModel(), ""), (GreedyModel(), "RO")):
        episodes = world.play(world.test, model, world.make_options(system)).episodes
        assert (episodes["reward"] == 1 - episodes["length"] / 20).all()
        assert episodes["length"].nunique() > 1


def test_in_other_worlds_utility_is_the_weighted_results():
    world = make_world("education", "varied")
    episodes = world.play(world.test, RandomModel(), world.make_options()).episodes
    results = episodes[["d1", "d2", "d3", "progress"]].to_numpy()
    assert np.allclose(episodes["reward"], (results * world.test.weights).sum(axis=1))


def test_the_best_policy_is_that_of_training_students(monkeypatch):
    """Whoever wins on the students that are judged is not asked."""
    world = make_world("education", "paper")
    rewards = {"SO-d1": 0.1, "SO-d2": 0.5, "SO-d3": 0.3}
    played = []

    def play(contest, model, options):
        played.append(contest)
        return replace(world.contests["dev"].play(model, options))

    def play_rewarded(contest, model, options):
        result = play(contest, model, options)
        result.episodes["reward"] = rewards[model.name]
        return result

    monkeypatch.setattr(world, "play", play_rewarded)
    methods = {method.name: method for method in world.make_methods()}
    assert methods[BEST_POLICY].model.name == "SO-d2"
    assert played == [world.contests["dev"]] * 3


def test_linucb_and_cards_are_made_from_students_of_their_own(monkeypatch):
    world = make_world("education", "paper")
    watched = []
    watch, average = experiment.watch_random_policies, experiment.average_by_situation
    monkeypatch.setattr(
        experiment, "watch_random_policies", lambda c, n: watched.append(c) or watch(c, n)
    )
    monkeypatch.setattr(
        experiment, "average_by_situation", lambda c, n: watched.append(c) or average(c, n)
    )
    world.make_methods()
    assert watched == [world.contests["linucb"], world.contests["cards"]]


def test_methods_differ_from_their_neighbours_in_what_their_names_say():
    methods = {method.name: method for method in make_world("education", "varied").make_methods()}
    whole = methods["RO greedy"].options
    assert methods["RO greedy, every 2"].options == replace(whole, interval=2)
    assert methods["RO greedy, one copy"].options == whole
    assert (
        methods["RO greedy, one copy"].num_copies == 1 and methods["RO greedy"].num_copies is None
    )

    methods = {method.name: method for method in make_world("education", "paper").make_methods()}
    assert methods["RO greedy, 3 steps"].options == replace(whole, rollout_steps=3)
    assert methods["KO greedy, no short-term"].options.without == ("mem_s",)
    assert methods["MO-S"].options.policies == ("MO-S",)
    for system in SYSTEMS:
        assert methods[f"{system} greedy"].options.system == system


def test_a_card_tells_of_the_next_questions_and_of_the_end_of_a_room(monkeypatch):
    for domain, num_steps in (("education", 1), ("minigrid", 7)):
        world = make_world(domain, "varied")
        steps = []
        average = experiment.average_by_situation

        def note(contest, num, steps=steps, average=average):
            steps.append(num)
            return average(contest, num)

        monkeypatch.setattr(experiment, "average_by_situation", note)
        for _ in range(3):
            world.make_options("KO")
        assert steps == [num_steps]  # once for all
        monkeypatch.setattr(experiment, "average_by_situation", average)


def test_students_of_the_varied_world_have_an_ability_of_their_own_that_no_number_shows():
    streams = seeds.keys("abilities", n=400)
    spread = experiment.make_environments(make_params(), "varied").education.spread
    abilities = draw_talents(streams, spread) / 1000
    assert abs(abilities.mean()) < 0.05
    assert abilities.min() < -0.9 * spread and abilities.max() > 0.9 * spread
    assert not draw_talents(streams, make_params().education.spread).any()

    contest = make_world("education", "varied").test
    env = contest._make_env(len(contest.streams))
    env.seed_with(contest.streams)
    env.reset()
    numbers = contest.describer.read_numbers(env)
    assert len(np.unique(env.talent)) == len(contest.streams)
    assert set(numbers) == {"mastery", "failed questions open"}


# Prompted models ----------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", ["education", "minigrid"])
def test_prompted_models_play_the_first_episodes_that_everybody_meets(domain, trained, tmp_path):
    params = make_params()
    episodes, steps = experiment.run_prompted(params, [domain], zoo=trained, runs=tmp_path)
    assert set(episodes["method"]) == {f"{system} {SCRIPTED}" for system in SYSTEMS}
    assert set(episodes["item"]) == {"0-0", "0-1", "1-0", "1-1"}
    assert len(episodes) == 3 * 2 * 2 and len(steps) == episodes["length"].sum()

    # The same students, model and context: the same episodes as in the contest.
    (job, _) = experiment.make_jobs(params, domain, "paper", trained)
    contest = play_job(job, params, tmp_path / "contest", trained)
    keys = ["method", "item", "length", "reward", "calls", "tokens_in"]
    both = episodes[keys].merge(contest[keys])
    assert len(both) == 3 * 2


def test_a_finished_experiment_is_read_and_not_run_again(trained, tmp_path, monkeypatch):
    first = experiment.run_prompted(make_params(), ["education"], zoo=trained, runs=tmp_path)
    monkeypatch.setattr(experiment.World, "play", None)  # calling it would fail
    again = experiment.run_prompted(make_params(), ["education"], zoo=trained, runs=tmp_path)
    for before, after in zip(first, again, strict=True):
        pd.testing.assert_frame_equal(before, after)


def test_who_remembers_less_has_a_name_that_says_so_and_a_shorter_prompt(trained, tmp_path):
    variants = ((), ("mem_s",), ("mem_l",), ("mem_s", "mem_l"))
    episodes, _ = experiment.run_prompted(
        make_params(), ["education"], zoo=trained, runs=tmp_path, without=variants
    )
    assert episodes["method"].nunique() == 3 * 4
    tokens = episodes.groupby("method")["tokens_in"].sum()
    for system in SYSTEMS:
        whole = tokens[f"{system} {SCRIPTED}"]
        for suffix in (", no short-term", ", no memory"):
            assert tokens[f"{system} {SCRIPTED}{suffix}"] < whole


KILLED = """
import sys
from pathlib import Path
from lib.orchestration import experiment
from tests.orchestration.small import make_params
runs, zoo = map(Path, sys.argv[1:])
params = make_params(orchestration={"jobs": 2})
experiment.run_prompted(params, ["education", "minigrid"], zoo=zoo, runs=runs)
"""


def test_a_killed_experiment_of_two_processes_ends_with_the_tables_of_one_process(
    trained, tmp_path
):
    runs = tmp_path / "killed"
    child = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(runs), str(trained)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 120
    while not list(runs.rglob("done.json")) and time.monotonic() < deadline:
        assert child.poll() is None, "the experiment ended before it could be killed"
        time.sleep(0.02)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()

    domains = ["education", "minigrid"]
    resumed = experiment.run_prompted(make_params(), domains, zoo=trained, runs=runs)
    whole = experiment.run_prompted(make_params(), domains, zoo=trained, runs=tmp_path / "whole")
    for expected, table in zip(whole, resumed, strict=True):
        pd.testing.assert_frame_equal(expected, table)


# What endpoints may cost --------------------------------------------------------------------------


def answer_at_length(request) -> str:
    """The most expensive way to decide: an unusable reply, then a call for one policy that was not tried."""
    is_correction = len(request.messages) > 2
    if not is_correction:
        return "I do not know."
    fields = request.response_format["json_schema"]["schema"]["properties"]
    if "call" not in fields:
        return '{"reasoning": "x", "policy": "SO-d1"}'
    call = fields["call"]
    name = call["items"]["enum"][0] if "items" in call else call["enum"][0]
    return json.dumps({"reasoning": "x", "call": [name] if "items" in call else name})


def check_plan(planned, requests) -> None:
    """Plans are bounds of calls and of tokens, and no wild ones."""
    assert len(requests) <= planned.calls <= 2 * len(requests)
    sizes = [sum(len(m["content"]) for m in request.messages) for request in requests]
    assert sum(map(estimate_tokens, sizes)) <= planned.tokens_in
    first_prompts = [
        size for size, request in zip(sizes, requests, strict=True) if len(request.messages) <= 2
    ]
    assert estimate_tokens(max(first_prompts)) <= experiment.PROMPT_TOKENS


def test_calls_of_an_endpoint_are_planned_at_their_most(trained, tmp_path, monkeypatch):
    params = make_params(llm={"models": {SCRIPTED: ENDPOINT}})
    places = [("education", "paper"), ("education", "varied")]
    (planned,) = experiment.plan_contest_calls(params, places)
    assert experiment.plan_contest_calls(make_params(), places) == []

    stub = StubModel(name=SCRIPTED, answer=answer_at_length)
    monkeypatch.setattr(decision_models, "open_models", stub.open)
    for domain, world in places:
        for job in experiment.make_jobs(params, domain, world, trained):
            play_job(job, params, tmp_path / job.key, trained)
    check_plan(planned, stub.requests)


def test_calls_of_prompted_models_are_planned_at_their_most(trained, tmp_path, monkeypatch):
    params = make_params(llm={"models": {SCRIPTED: ENDPOINT}})
    variants = ((), ("mem_s",))
    (planned,) = experiment.plan_prompted_calls(params, zoo.DOMAINS, [SCRIPTED], len(variants))
    assert experiment.plan_prompted_calls(make_params(), zoo.DOMAINS, [SCRIPTED]) == []

    stub = StubModel(name=SCRIPTED, answer=answer_at_length)
    monkeypatch.setattr(decision_models, "open_models", stub.open)
    experiment.run_prompted(params, zoo.DOMAINS, zoo=trained, runs=tmp_path, without=variants)
    check_plan(planned, stub.requests)


def test_costs_stand_on_the_terminal_before_the_first_call_to_an_endpoint(
    trained, tmp_path, monkeypatch, capsys
):
    params = make_params(llm={"models": {SCRIPTED: ENDPOINT}})
    lines = []

    def answer(request):
        lines.append(capsys.readouterr().err)
        return '{"reasoning": "x", "policy": "SO-d2"}'

    stub = StubModel(name=SCRIPTED, answer=answer)
    monkeypatch.setattr(decision_models, "open_models", stub.open)
    experiment.run_prompted(params, ["education"], zoo=trained, runs=tmp_path)
    assert "deciding with prompts: At most" in lines[0] and "to endpoints" in lines[0]
    assert "At most" not in "".join(lines[1:])
    experiment.run_prompted(params, ["education"], zoo=trained, runs=tmp_path)
    assert capsys.readouterr().err == ""


# Constrained replies ------------------------------------------------------------------------------


def test_a_model_of_constrained_replies_has_rows_in_the_same_schema(trained, tmp_path):
    folder = make_random_folder(tmp_path / "parrot-1B")
    params = make_params(education={"horizon": 12}, orchestration={"episodes": 2})
    rows = experiment.run_constrained(params, folder, trained, tmp_path / "runs")
    prompted, _ = experiment.run_prompted(params, ["education"], zoo=trained, runs=tmp_path)
    assert list(rows) == list(prompted)
    assert set(rows["method"]) == {f"{system} parrot-1B" for system in SYSTEMS}
    assert set(rows["item"]) == {"0-0", "0-1"} and set(rows["condition"]) == {"paper"}
    assert (rows["decisions"] == -(-rows["length"] // experiment.CONSTRAINED_INTERVAL)).all()
    again = experiment.run_constrained(params, folder, trained, tmp_path / "again")
    pd.testing.assert_frame_equal(rows, again)


def test_other_weights_are_another_job_and_the_folder_is_none():
    params = make_params()
    jobs = experiment.make_constrained_jobs(params, "m", "a hash", None)
    assert [job.settings["system"] for job in jobs] == list(SYSTEMS)
    other = experiment.make_constrained_jobs(params, "m", "another hash", None)
    assert not {job.key for job in jobs} & {job.key for job in other}
    assert "/" not in str(jobs[0].settings["inputs"])


@pytest.mark.parametrize("module", [constrained_model, prompts, decision_models, episode_batch])
def test_a_version_behind_constrained_replies_is_in_their_key(module, monkeypatch):
    before = experiment.make_constrained_jobs(make_params(), "m", "a hash", None)[0].key
    monkeypatch.setattr(module, "VERSION", 99)
    assert experiment.make_constrained_jobs(make_params(), "m", "a hash", None)[0].key != before


def test_the_settings_of_the_lesson_name_known_methods():
    params = config.load("laptop")
    world = make_world("education", "paper")
    names = {method.name for method in world.make_methods()} | set(SYSTEMS) | {BEST_POLICY}
    for contrast in params.orchestration.contrasts:
        assert set(contrast) <= names
