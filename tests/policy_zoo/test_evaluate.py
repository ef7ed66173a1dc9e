"""Playing, recording and summing up, on small runs of the real environments."""

import numpy as np
import pandas as pd
import pytest

from lib import config, stats
from lib.experiment.results_table import make_results
from lib.policy_zoo import evaluate, policy_cards, simulator_calibration, tour_demo, train
from lib.policy_zoo.recipes import SINGLE, make_batch, recipes

SMOKE = config.load("smoke")


@pytest.fixture(scope="module")
def zoos(tmp_path_factory):
    """Both zoos at smoke, trained once for the tests of this file."""
    folder = tmp_path_factory.mktemp("zoo")
    return {
        d: train.build(SMOKE, d, folder / "zoo", folder / "runs") for d in ("education", "minigrid")
    }, folder


@pytest.fixture(scope="module")
def records(zoos):
    tasks = {"education": "Linear Algebra", "minigrid": "composite"}
    built, _ = zoos
    return {
        domain: evaluate.evaluate(
            SMOKE,
            evaluate.actors(built[domain].policies) | evaluate.baselines(domain, 2),
            domain,
            task,
        )
        for domain, task in tasks.items()
    }


def test_a_zoo_holds_every_recipe_for_every_seed_and_loads_again(zoos):
    built, folder = zoos
    for domain, zoo in built.items():
        assert set(zoo.policies) == {recipe.name for recipe in recipes(SMOKE, domain)}
        again = train.load(domain, folder / "zoo")
        for name, by_seed in zoo.policies.items():
            assert len(by_seed) == SMOKE.zoo.seeds
            for before, after in zip(by_seed, again[name], strict=True):
                assert all(np.array_equal(before.params[p], after.params[p]) for p in before.params)


def test_all_methods_meet_the_same_students(records):
    record = records["education"]
    first = record[record["step"] == 0].pivot_table("mastery", ["seed", "episode"], "method")
    assert (first.nunique(axis=1) == 1).all()


def test_every_episode_is_recorded_once_to_its_end(records):
    for record in records.values():
        ends = record.groupby(["method", "seed", "episode"])["done"].agg(["sum", "last"])
        assert (ends["sum"] == 1).all() and ends["last"].all()
        assert len(ends) == record["method"].nunique() * SMOKE.zoo.seeds * SMOKE.zoo.episodes


def test_the_record_adds_up_to_what_the_single_environment_pays(records):
    from lib.envs import make_education_rules
    from lib.envs.education import Education

    record = records["education"]
    rows = record[
        (record["method"] == "always easy") & (record["seed"] == 1) & (record["episode"] == 3)
    ]
    env = Education(make_education_rules(SMOKE.education))
    env.reset()
    env._key = evaluate.evaluation_streams("education", 1, 4)[3]
    env._begin()
    paid = np.array([env.step(int(a))[1] for a in rows["action"]])
    np.testing.assert_allclose(rows[["reward_0", "reward_1", "reward_2"]].to_numpy(), paid)


def test_the_oracle_is_never_worse_than_a_policy_it_may_pick(records):
    for domain, record in records.items():
        table = evaluate.with_oracle(evaluate.episodes(record, domain), domain)
        score = table[evaluate.front_columns(domain)].mean(axis=1).groupby(table["method"]).mean()
        assert score[evaluate.ORACLE] >= score[list(SINGLE)].max() - 1e-12


def test_mixtures_draw_their_actions_with_their_probabilities():
    draws = np.arange(1000) / 1000
    actions = evaluate.mixture_policy([0.25, 0.0, 0.75])(np.zeros((1000, 1)), draws)
    assert np.bincount(actions, minlength=3).tolist() == [250, 0, 750]


def test_an_actor_that_never_ends_an_episode_is_cut_by_the_horizon():
    env = make_batch(SMOKE, "minigrid", ["composite"] * 8)
    record = evaluate.play(
        env, evaluate.mixture_policy(np.eye(6)[4]), evaluate.evaluation_streams("minigrid", 0, 8)
    )
    assert (record.groupby("episode").size() == SMOKE.minigrid.horizon).all()


def test_episodes_become_a_record_whose_vectors_are_those_of_the_fronts(records):
    for domain, steps in records.items():
        table = evaluate.with_oracle(evaluate.episodes(steps, domain), domain)
        rows = make_results("zoo", evaluate.as_record(table, domain, "here"))
        vectors = table[evaluate.front_columns(domain)].to_numpy()
        np.testing.assert_array_equal(rows[["d1", "d2", "d3"]].to_numpy(), vectors)
        np.testing.assert_array_equal(np.stack(rows["outcomes"]), vectors)
        assert set(rows[rows["role"] == "expert"]["method"]) == set(SINGLE) and "oracle" in set(
            rows["method"]
        )
        found = stats.mean(rows, "d1", "method").loc["SO-d1"]
        means = (
            table[table["method"] == "SO-d1"]
            .groupby("seed")[evaluate.front_columns(domain)[0]]
            .mean()
        )
        expected = stats.t_interval(means.to_numpy())
        # Reaching the goal of a room is 0 or 1, so its interval ends at 0; aptitude may be negative.
        expected_low = max(expected.ci_low, 0.0) if domain == "minigrid" else expected.ci_low
        assert (found.value, found.ci_low) == pytest.approx((expected.value, expected_low))


def test_the_union_hypervolume_grows_with_its_episodes_and_the_mean_does_not(records):
    rows = evaluate.as_record(
        evaluate.episodes(records["minigrid"], "minigrid"), "minigrid", "composite"
    )
    growth = evaluate.union_growth(rows, ["random"])
    assert (
        growth["value"].is_monotonic_increasing
        and growth["value"].iloc[-1] > growth["value"].iloc[0]
    )
    assert growth["mean"].nunique() == 1


def test_cards_of_all_policies_fit_the_schema_and_say_what_was_measured(records):
    for domain, record in records.items():
        for name in record["method"].unique():
            card = policy_cards.make_card(record, domain, name)
            assert policy_cards.Card.model_validate(card.model_dump()) == card
    pseudo = policy_cards.make_card(records["minigrid"], "minigrid", "MO-pseudoS")
    assert pseudo.objectives == ["goal", "gold"]  # staying off lava was never paid
    easy = policy_cards.make_card(records["education"], "education", "always easy")
    assert easy.behavior_hint == "chooses easy 100% of the time"
    with pytest.raises(ValueError, match="no evaluation episodes"):
        policy_cards.make_card(records["education"], "education", "SO-d9")


@pytest.mark.parametrize(
    ("value", "word"), [(0.6, "high"), (0.59, "medium"), (0.4, "medium"), (0.39, "low")]
)
def test_the_rubric_has_the_papers_thresholds(value, word):
    assert policy_cards.level(value, 0.6, 0.4) == word


def test_the_rubric_of_stability():
    assert [policy_cards.stability(x) for x in (0.049, 0.05, 0.149, 0.15)] == [
        "stable",
        "moderate",
        "moderate",
        "volatile",
    ]


def test_the_last_step_of_an_episode_counts_towards_mastery(records):
    record = records["education"]
    ends = record[record["done"] & (record["method"] == "always challenge")]
    early = ends[ends["step"] < SMOKE.education.horizon - 1]
    assert len(early) and (early["mastery_after"] >= SMOKE.education.goal).all()
    inner = record[~record["done"]].set_index(["method", "seed", "episode", "step"])[
        "mastery_after"
    ]
    later = record[record["step"] > 0].assign(step=lambda r: r["step"] - 1)
    following = later.set_index(["method", "seed", "episode", "step"])["mastery"]
    assert np.allclose(inner.sort_index(), following.sort_index())


@pytest.mark.parametrize(
    ("name", "places"),
    [("SO-d2", (1,)), ("MO-S", (0, 1, 2)), ("MO-pseudoS", (0, 2)), ("random", (0, 1, 2))],
)
def test_every_method_is_judged_by_what_it_is_paid_for(name, places):
    assert evaluate.paid_for(name) == places


def test_a_simplex_grid_has_all_its_points_and_its_corners():
    grid = tour_demo.simplex(5)
    assert len(grid) == 15 and np.allclose(grid.sum(axis=1), 1)
    assert {(1, 0, 0), (0, 1, 0), (0, 0, 1)} <= set(map(tuple, grid))


def test_trying_an_action_on_copies_leaves_the_student_alone_and_draws_fresh_numbers():
    rules = make_batch(SMOKE, "education", ["Linear Algebra"]).rules
    first, again = (tour_demo.try_actions(rules, seed=7, warm_steps=3, copies=50) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert first[first["method"] == "easy"]["performance"].nunique() > 1


def test_the_switch_search_ranks_every_combination_and_finds_the_one_in_force():
    rules = make_batch(SMOKE, "education", ["Linear Algebra"]).rules
    table = simulator_calibration.search(rules, students=20)
    assert len(table) == np.prod(
        [len(values) for values in simulator_calibration.SWITCHES.values()]
    )
    assert table["distance"].is_monotonic_increasing
    place = simulator_calibration.rank(table, rules)
    assert all(
        table.loc[place - 1, name] == getattr(rules, name)
        for name in simulator_calibration.SWITCHES
    )
