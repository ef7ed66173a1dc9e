"""The experiment in the lab world: jobs and their keys, test menus, rows and estimates, and a small run of it all."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from lib import config
from lib.experiment import artifacts, results_table
from lib.language_models import checkpoints
from lib.rl import losses, sft_warmup, token_ppo
from lib.tool_orchestration import (
    format_warmup,
    full_run,
    lab_episodes,
    lab_estimates,
    lab_experiment,
    lab_menus,
    lab_results,
    lab_tests,
    lab_training,
    lab_world,
    menu_baselines,
    rewards,
    steering,
    synthetic_benchmark,
)
from lib.tool_orchestration.lab_experiment import LabWorldResults
from lib.tool_orchestration.lab_menus import KIND_SIGNS, QUESTIONS
from lib.tool_orchestration.lab_training import LAB_VARIANTS, PREFERENCES, SIGN_ERROR
from lib.tool_orchestration.menu_baselines import MenuOutcomes
from tests.budgeted_routing import small_systems
from tests.budgeted_routing.job_helpers import copy_one_model, find_job_folders
from tests.language_models import tiny
from tests.studies import Killed, dying
from tests.tool_orchestration.test_lab_world import TOOLS, draw, draw_outcomes

NUM_MENUS = 48


# Menus ---------------------------------------------------------------------------------------------


def test_held_out_tools_are_on_no_menu_but_those_made_for_them_and_on_each_of_these():
    for name in (lab_world.DEV_MENUS, lab_world.TEST_MENUS, lab_world.STEERING_MENUS):
        menus = lab_world.draw_menus(name, 24, TOOLS, ["half"])
        assert len(menus) == 24
        assert not any(lab_world.has_any_tool(menu, ["half"]) for menu in menus)
    menus = lab_world.draw_menus(lab_world.HELD_OUT_MENUS, 24, TOOLS, ["half"])
    assert 0 < len(menus) < 24
    assert all(lab_world.has_any_tool(menu, ["half"]) for menu in menus)


def test_sets_of_menus_are_the_same_every_time_and_differ_from_one_another():
    first, again = (lab_world.draw_menus("test", 12, TOOLS, []) for _ in range(2))
    assert first == again
    prompts = {menu.item.prompt for menu in first}
    dev = {menu.item.prompt for menu in lab_world.draw_menus("dev", 12, TOOLS, [])}
    assert not prompts & dev


# Measurements without sampling ---------------------------------------------------------------------


@pytest.fixture
def prefer_cheapest(monkeypatch):
    """An orchestrator that calls the tool with the lowest price level, whatever model is passed."""

    def compute_turn_log_probs(model, assignments):
        levels = [[entry.price_level for entry in a.entries] for a in assignments]
        is_lowest = np.array(levels) == np.min(levels, axis=1, keepdims=True)
        return np.log(is_lowest + 1e-12)

    monkeypatch.setattr(steering, "compute_turn_log_probs", compute_turn_log_probs)


def test_who_follows_prices_moves_to_what_the_unseen_list_made_cheap(prefer_cheapest):
    rows = lab_tests.measure_unseen_prices(None, draw(6))
    assert rows["usual"].to_numpy() == pytest.approx(np.zeros(6), abs=1e-6)
    assert rows["unseen"].to_numpy() == pytest.approx(np.ones(6), abs=1e-6)
    assert rows["shift"].to_numpy() == pytest.approx(np.ones(6), abs=1e-6)


def test_a_held_out_tool_counts_as_called_where_it_is_the_cheapest_for_who_follows_prices(
    prefer_cheapest,
):
    world = lab_world.LabWorld(tuple(TOOLS), ("half",), None)
    rows = lab_tests.measure_held_out_tools(None, world, 48)
    menus = world.draw_menus(lab_world.HELD_OUT_MENUS, 48)
    for row, menu in zip(rows.itertuples(), menus, strict=True):
        (entry,) = [entry for entry in menu.entries if entry.tool.name == "half"]
        assert row.probability == pytest.approx(float(entry.price_level == 0), abs=1e-6)
        assert row.chance == pytest.approx(0.25)


# Rows and estimates --------------------------------------------------------------------------------


def make_results(choose_by_method: dict[str, str], num_seeds: int = 3) -> LabWorldResults:
    """Results of orchestrators that follow a baseline, and spend nothing themselves.

    Args:
        choose_by_method: By method, "random", "cheapest" or "best" (in the very outcomes).
        num_seeds: Of every method.
    """
    test = draw_outcomes(NUM_MENUS, 2)
    # A second sample of replies on the same menus.
    second = replace(test, correct=test.correct.copy())
    dev = draw_outcomes(NUM_MENUS, 1)
    rng = np.random.default_rng(0)
    levels = np.array([[entry.price_level for entry in a.entries] for a in test.assignments])
    choices = {
        "random": rng.integers(lab_menus.MENU_SIZE, size=NUM_MENUS),
        "cheapest": levels.argmin(1),
        "best": menu_baselines.choose_oracle(test).argmax(1),
    }
    episodes = []
    spending = []
    for method, choice_name in choose_by_method.items():
        chosen = choices[choice_name]
        menus = np.arange(NUM_MENUS)
        probabilities = np.eye(lab_menus.MENU_SIZE)[chosen]
        for seed in range(num_seeds):
            identity = {"method": method, "seed": seed}
            table = pd.DataFrame(
                {
                    "item": menus,
                    "group": [a.item.group for a in test.assignments],
                    "correct": test.correct[menus, chosen],
                    "cost_usd": test.cost_usd[menus, chosen],
                    "own_cost_usd": 0.0,
                    "seconds": test.seconds[menus, chosen],
                    "calls": 1,
                    "malformed": 0,
                }
            )
            episodes.append(table.assign(**identity, chosen=[[] for _ in menus]))
            spent = steering.average_spending(test.assignments, probabilities)
            for user in lab_menus.STEERING_USERS:
                table = pd.DataFrame(spent).assign(item=menus, user=user, covered=0.9)
                spending.append(table.assign(**identity))
    by_menu = pd.concat(episodes)[["item", "method", "seed"]]
    held_out = by_menu.assign(is_best=by_menu["item"] % 2 == 0, probability=0.5, chance=0.2)
    prices = by_menu.assign(usual=0.1, unseen=0.4, shift=0.3)
    return LabWorldResults(
        {"dev": [dev, dev], "test": [test, second]},
        pd.concat(episodes, ignore_index=True),
        pd.concat(spending, ignore_index=True),
        held_out.reset_index(drop=True),
        prices.reset_index(drop=True),
        pd.DataFrame(),
    )


FOLLOWED = {
    "start": "random",
    "preferences": "best",
    "no preferences": "random",
    "sign error": "random",
}


@pytest.fixture(scope="module")
def results() -> LabWorldResults:
    return make_results(FOLLOWED)


def select_tests(results: LabWorldResults) -> pd.DataFrame:
    rows = results_table.make_results(lab_results.SYSTEM, lab_results.make_rows(results))
    return results_table.select(rows, split="test")


def test_an_orchestrator_that_follows_a_baseline_has_its_scores_and_the_oracle_is_above_all(
    results,
):
    rows = select_tests(results)
    means = rows.groupby("method")["score"].mean()
    assert means[lab_results.TRAINED] == pytest.approx(means[lab_results.ORACLE])
    oracle = rows[rows["method"] == lab_results.ORACLE].set_index("item")["score"]
    assert (rows["score"] <= rows["item"].map(oracle) + 1e-9).all()
    assert rows["score"].between(0, 1).all()
    roles = rows.drop_duplicates("method").set_index("method")["role"]
    assert roles[lab_results.TRAINED] == "paper"
    assert roles[lab_results.RANDOM] == roles["cheapest tool"] == "constant"
    assert roles["only half"] == "expert"


def test_a_single_tool_has_rows_only_where_it_is_on_the_menu(results):
    rows = select_tests(results)
    outcomes = results.outcomes["test"][0]
    for tool in TOOLS:
        on_menu = [lab_world.has_any_tool(a, [tool.name]) for a in outcomes.assignments]
        assert (rows["method"] == lab_results.SINGLE_TOOL_PREFIX + tool.name).sum() == sum(on_menu)


def estimate(results: LabWorldResults) -> dict:
    """Estimates of the rows as a recorded run would keep them."""
    rows = results_table.make_results(lab_results.SYSTEM, lab_results.make_rows(results))
    return lab_estimates.estimate_metrics(full_run.round_measurements(rows))


def test_estimates_follow_from_what_each_method_does(results):
    metrics = estimate(results)
    assert metrics["trained.gain"]["ci_low"] > 0
    assert metrics["gate.tools.form"]["value"] == pytest.approx(0.9)
    assert metrics["trained.minus_best_single"]["ci_low"] > 0
    assert metrics["trained.minus_oracle"]["value"] == pytest.approx(0, abs=1e-4)
    # Nobody here reads who the user is.
    for name in ("steer.cost", "steer.latency", "start.steer.cost"):
        assert metrics[name]["value"] == pytest.approx(0)
    assert metrics["heldout_tools.called_where_best"]["value"] == pytest.approx(0.3)
    assert metrics["unseen_prices.shift"]["value"] == pytest.approx(0.3)
    assert "varied_prices.shift" not in metrics  # nobody was trained at list prices


def test_steering_is_the_paired_difference_between_users(results):
    spending = results.spending.copy()
    saves = spending["user"].eq("cost") & spending["method"].eq("preferences")
    spending.loc[saves, "cost"] -= 0.25
    metrics = estimate(replace(results, spending=spending))
    assert metrics["steer.cost"]["value"] == pytest.approx(0.25)
    assert metrics["start.steer.cost"]["value"] == pytest.approx(0)
    assert metrics["trained.steer.cost_minus_start"]["value"] == pytest.approx(0.25)
    # Who is trained with the sign error does not save: the gap grows by what the other saves.
    assert metrics["sign_error.cost"]["value"] == pytest.approx(
        estimate(results)["sign_error.cost"]["value"] + 0.25
    )


def test_own_tokens_lower_the_score_with_them_and_not_that_of_the_calls(results):
    expensive = replace(
        results,
        episodes=results.episodes.assign(
            cost_usd=results.episodes["cost_usd"] + 1.0, own_cost_usd=1.0
        ),
    )
    before = lab_results.make_orchestrator_rows(results)
    after = lab_results.make_orchestrator_rows(expensive)
    assert after["score_of_calls"].to_numpy() == pytest.approx(before["score_of_calls"].to_numpy())
    assert after["score"].mean() < before["score"].mean()


def test_nothing_is_to_be_won_where_all_tools_do_the_same():
    outcomes = draw_outcomes(NUM_MENUS, 2)
    same = np.ones_like(outcomes.correct)
    # Costs and latencies differ by next to nothing, so that a scale exists.
    tiny_steps = 1 + 1e-9 * np.arange(lab_menus.MENU_SIZE) * same
    flat = MenuOutcomes(outcomes.assignments, same, tiny_steps, tiny_steps)
    accuracy_users = [replace(a, user=lab_menus.ACCURACY_ONLY) for a in flat.assignments]
    flat = replace(flat, assignments=accuracy_users)
    results = make_results(FOLLOWED)
    gates = lab_results.make_gate_rows(
        replace(results, outcomes={"dev": [flat, flat], "test": [flat, flat]})
    )
    assert gates["headroom"].to_numpy() == pytest.approx(np.zeros(NUM_MENUS))
    assert gates["wish"].to_numpy() == pytest.approx(np.zeros(NUM_MENUS))


# Jobs ----------------------------------------------------------------------------------------------

NAMES = ("everything", "generalist", "chains", "facts", "passages", "half")


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> Path:
    """Tools that are tiny models with cards, and the model that orchestrators are made of."""
    folder = tmp_path_factory.mktemp("models")
    for number, tool in enumerate(TOOLS):
        checkpoints.save(tiny.model(number, window=512), folder / tool.name)
        accuracy = []
        for (kind, difficulty), value in tool.accuracy.items():
            row = {"category": kind, "skin": "plain", "difficulty": difficulty, "accuracy": value}
            accuracy.append(row)
        card = {
            "dollars_per_1k_tokens": 0.001,
            "tokens_per_second": 1000.0,
            "accuracy": accuracy,
        }
        artifacts.write_json(folder / tool.name / "card.json", card)
    return folder


def change_settings(**changes):
    """The parameters at smoke with tiny models in the lab world."""
    params = small_systems.SMOKE_PARAMS
    nano = params.llm.models["nano"]
    llm_models = {name: nano.model_copy(update={"model": name}) for name in NAMES}
    lab_settings = params.tools.lab_world.model_copy(
        update={
            "models": list(NAMES),
            "held_out": ["half"],
            "base": "everything",
            "seeds": 1,
            "control_seeds": 1,
            "menus": 6,
        }
        | changes
    )
    lab_models = params.lab.models | {"everything": tiny.settings()}
    return params.model_copy(
        update={
            "llm": params.llm.model_copy(
                update={"cassette": "off", "models": params.llm.models | llm_models}
            ),
            "lab": params.lab.model_copy(update={"models": lab_models}),
            "tools": params.tools.model_copy(update={"lab_world": lab_settings, "jobs": 1}),
        }
    )


def list_keys(models: Path, **changes) -> dict[str, str]:
    params = change_settings(**changes)
    first_jobs = lab_experiment.make_first_jobs(params, models)
    starts = lab_experiment.make_starts(params, models, first_jobs)
    trainings = lab_experiment.make_jobs(params, LAB_VARIANTS, starts)
    return {job.label: job.key for job in [*first_jobs, *starts, *trainings]}


TRAININGS = {f"{variant.name}/seed-0" for variant in LAB_VARIANTS}
ALL_JOBS = {"tools", "reading", "start/seed-0"} | TRAININGS
STARTS_AND_TRAININGS = {"start/seed-0"} | TRAININGS


def find_changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys() == ALL_JOBS
    return {label for label in before if before[label] != after[label]}


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        ({"updates": 5}, TRAININGS),
        ({"groups": 4}, TRAININGS),
        ({"draws": 3}, TRAININGS),
        ({"save_every": 7}, set()),
        ({"control_seeds": 1}, set()),
        ({"steering_menus": 12}, STARTS_AND_TRAININGS),
        ({"temperature": 0.5}, STARTS_AND_TRAININGS),
        ({"menus": 7}, ALL_JOBS - {"reading"}),
        ({"held_out": ["chains"]}, ALL_JOBS),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_a_setting_changes_the_keys_of_the_jobs_that_read_it_and_of_no_others(
    change, changed, models
):
    assert find_changed(list_keys(models), list_keys(models, **change)) == changed


@pytest.mark.parametrize(
    ("module", "changed"),
    [
        (lab_menus, ALL_JOBS),
        (lab_episodes, ALL_JOBS),
        (lab_experiment, ALL_JOBS),
        (steering, STARTS_AND_TRAININGS),
        (format_warmup, ALL_JOBS - {"tools"}),
        (sft_warmup, ALL_JOBS - {"tools"}),
        (rewards, TRAININGS),
        (token_ppo, TRAININGS),
        (losses, TRAININGS),
        (synthetic_benchmark, set()),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_raised_version_makes_the_jobs_new_whose_numbers_it_decides(
    module, changed, models, monkeypatch
):
    before = list_keys(models)
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    assert find_changed(before, list_keys(models)) == changed


def test_other_weights_of_a_tool_make_all_keys_new(models, tmp_path):
    folder = copy_one_model(models, tmp_path, "chains")
    checkpoints.save(tiny.model(99, window=512), folder)
    assert find_changed(list_keys(models), list_keys(tmp_path)) == ALL_JOBS


def test_every_seed_has_a_start_of_its_own_and_its_trainings_build_on_it(models):
    params = change_settings(seeds=3)
    first_jobs = lab_experiment.make_first_jobs(params, models)
    starts = lab_experiment.make_starts(params, models, first_jobs)
    keys = {job.settings["seed"]: job.key for job in starts}
    assert len(set(keys.values())) == 3
    assert all(job.settings["inputs"] == {"reading": first_jobs[1].key} for job in starts)
    for job in lab_experiment.make_jobs(params, [PREFERENCES, SIGN_ERROR], starts):
        assert job.settings["inputs"] == {"start": keys[job.settings["seed"]]}


def test_a_small_run_leaves_all_tables_and_the_second_run_trains_nothing(models, runs, silence):
    params = change_settings()
    results = lab_experiment.run(params, models=models, runs=runs)
    methods = {"start", *(variant.name for variant in LAB_VARIANTS)}
    assert set(results.episodes["method"]) == methods
    assert set(results.spending["method"]) == methods
    assert results.learning.groupby("method").size().to_dict() == {
        variant.name: params.tools.lab_world.updates for variant in LAB_VARIANTS
    }
    for samples in results.outcomes.values():
        assert [outcomes.correct.shape for outcomes in samples] == [(6, 4)] * 2
        assert not np.array_equal(samples[0].cost_usd, samples[1].cost_usd)

    # Finished jobs are found again.
    times = {path: path.stat().st_mtime_ns for path in Path(runs).rglob("episodes.parquet")}
    lab_experiment.run(params, models=models, runs=runs)
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_a_training_that_was_killed_goes_on_from_its_checkpoint_to_the_same_tables(
    models, runs, silence, tmp_path, monkeypatch
):
    """All other jobs are those of the small run above."""
    params = change_settings(save_every=1)
    finished = lab_experiment.run(params, [SIGN_ERROR], models, runs)
    training_folders = find_job_folders(runs, f"{SIGN_ERROR.name}/seed-0")
    for folder in runs.glob("*"):
        if folder not in training_folders:
            (tmp_path / folder.name).symlink_to(folder)

    # The process dies in the second update, after the first was kept.
    collect_groups = lab_training.collect_groups
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(lab_training, "collect_groups", dying(collect_groups, 2))
        lab_experiment.run(params, [SIGN_ERROR], models, tmp_path)
    resumed = lab_experiment.run(params, [SIGN_ERROR], models, tmp_path)
    for name in ("learning", "episodes", "spending", "held_out", "prices"):
        assert_frame_equal(getattr(resumed, name), getattr(finished, name), check_exact=True)
    (before,), (after,) = training_folders, find_job_folders(tmp_path, f"{SIGN_ERROR.name}/seed-0")
    weights = "model/model.safetensors"
    assert (before / weights).read_bytes() == (after / weights).read_bytes()


def test_a_model_that_is_missing_is_named_before_anything_starts(tmp_path):
    with pytest.raises(checkpoints.ModelError, match="everything"):
        lab_experiment.run(change_settings(), models=tmp_path, runs=tmp_path / "runs")


def test_a_description_says_what_the_card_measured():
    for tool in TOOLS:
        for kind in KIND_SIGNS:
            mean = np.mean([tool.accuracy[kind, d] for d in QUESTIONS[kind]])
            assert tool.describe_ability(kind) == min(9, int(10 * mean))


def test_the_full_run_has_the_seeds_that_it_promises_and_controls_fewer(models, monkeypatch):
    monkeypatch.setattr(checkpoints, "MODELS", models)
    params = change_settings(seeds=3, control_seeds=2)
    labels = [job.label for job in full_run.list_jobs(params)]
    assert len(labels) == len(set(labels))
    assert sum(label.startswith(f"{PREFERENCES.name}/") for label in labels) == 3
    for variant in full_run.CONTROLS:
        assert sum(label.startswith(f"{variant.name}/") for label in labels) == 2
    assert config.load("full").tools.lab_world.seeds >= 8
    assert config.load("full").tools.lab_world.updates >= 60
