"""Playing, recording and summing up, on small runs of the real environments."""

import numpy as np
import pandas as pd
import pytest

from lib import config, stats
from lib.envs.education_batch import EducationBatch
from lib.experiment.results_table import make_results
from lib.policy_zoo import evaluate, policy_cards, simulator_calibration, tour_demo, train
from lib.policy_zoo.recipes import SINGLE, list_recipes, make_batched_env

SMOKE = config.load("smoke")


@pytest.fixture(scope="module")
def zoos(tmp_path_factory):
    """Both zoos at smoke, trained once for the tests of this file."""
    folder = tmp_path_factory.mktemp("zoo")
    return {
        d: train.build_zoo(SMOKE, d, folder / "zoo", folder / "runs")
        for d in ("education", "minigrid")
    }, folder


@pytest.fixture(scope="module")
def records(zoos):
    tasks = {"education": "Linear Algebra", "minigrid": "composite"}
    built, _ = zoos
    return {
        domain: evaluate.evaluate(
            SMOKE,
            evaluate.make_actors(built[domain].policies) | evaluate.make_baselines(domain, 2),
            domain,
            task,
        )
        for domain, task in tasks.items()
    }


def test_a_zoo_holds_every_recipe_for_every_seed_and_loads_again(zoos):
    built, folder = zoos
    for domain, zoo in built.items():
        assert set(zoo.policies) == {recipe.name for recipe in list_recipes(SMOKE, domain)}
        again = train.load_zoo(domain, folder / "zoo")
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
        table = evaluate.add_oracle(evaluate.summarize_episodes(record, domain), domain)
        score = table[evaluate.front_columns(domain)].mean(axis=1).groupby(table["method"]).mean()
        assert score[evaluate.ORACLE] >= score[list(SINGLE)].max() - 1e-12


def test_mixtures_draw_their_actions_with_their_probabilities():
    draws = np.arange(1000) / 1000
    actions = evaluate.make_mixture([0.25, 0.0, 0.75])(np.zeros((1000, 1)), draws)
    assert np.bincount(actions, minlength=3).tolist() == [250, 0, 750]


def test_an_actor_that_never_ends_an_episode_is_cut_by_the_horizon():
    env = make_batched_env(SMOKE, "minigrid", ["composite"] * 8)
    record = evaluate.play(
        env, evaluate.make_mixture(np.eye(6)[4]), evaluate.evaluation_streams("minigrid", 0, 8)
    )
    assert (record.groupby("episode").size() == SMOKE.minigrid.horizon).all()


def test_episodes_become_a_record_whose_vectors_are_those_of_the_fronts(records):
    for domain, steps in records.items():
        table = evaluate.add_oracle(evaluate.summarize_episodes(steps, domain), domain)
        rows = make_results("zoo", evaluate.make_rows(table, domain, "here"))
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
    rows = evaluate.make_rows(
        evaluate.summarize_episodes(records["minigrid"], "minigrid"), "minigrid", "composite"
    )
    growth = evaluate.measure_union_growth(rows, ["random"])
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
    with pytest.raises(ValueError, match="no episodes of"):
        policy_cards.make_card(records["education"], "education", "SO-d9")


@pytest.mark.parametrize(
    ("value", "word"), [(0.6, "high"), (0.59, "medium"), (0.4, "medium"), (0.39, "low")]
)
def test_the_rubric_has_the_papers_thresholds(value, word):
    assert policy_cards.rate_reward(value) == word


def test_the_rubric_of_stability():
    assert [policy_cards.rate_stability(x) for x in (0.049, 0.05, 0.149, 0.15)] == [
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
    assert evaluate.list_trained_objectives(name) == places


def test_a_simplex_grid_has_all_its_points_and_its_corners():
    grid = tour_demo.make_simplex(5)
    assert len(grid) == 15 and np.allclose(grid.sum(axis=1), 1)
    assert {(1, 0, 0), (0, 1, 0), (0, 0, 1)} <= set(map(tuple, grid))


def test_trying_an_action_on_copies_leaves_the_student_alone_and_draws_fresh_numbers():
    rules = make_batched_env(SMOKE, "education", ["Linear Algebra"]).rules
    first, again = (tour_demo.try_actions(rules, seed=7, warm_steps=3, copies=50) for _ in range(2))
    pd.testing.assert_frame_equal(first, again)
    assert first[first["method"] == "easy"]["performance"].nunique() > 1


@pytest.fixture(scope="module")
def searched():
    """A search over a few combinations of switches, those in force among them."""
    rules = make_batched_env(SMOKE, "education", ["Linear Algebra"]).rules
    switches = {
        "steps_per_level": (1, 2),
        "near_delta": ("below", "at_most"),
        "solved": ("retire", "requeue"),
    }
    assert switches.keys() < simulator_calibration.SWITCHES.keys()
    table = simulator_calibration.search(rules, num_students=40, switches=switches)
    return rules, switches, table


def test_the_switch_search_ranks_every_combination_and_finds_the_one_in_force(searched):
    rules, switches, table = searched
    assert len(table) == 8 and table["distance"].is_monotonic_increasing
    row = table.loc[simulator_calibration.find_rank(table, rules) - 1]
    assert all(row[name] == getattr(rules, name) for name in switches)


def test_combinations_are_described_in_words(searched):
    _, switches, table = searched
    described = simulator_calibration.describe_combinations(table)
    is_retired = table["solved"] == "retire"
    assert (described["solved questions"] == "never asked again").tolist() == is_retired.tolist()
    assert described["steps of always easy"].tolist() == table["SO-d3 length"].tolist()
    assert described["mastery steps per level"].tolist() == table["steps_per_level"].tolist()
    assert not switches.keys() & set(described.columns)


def test_every_value_of_a_rule_has_words_or_is_a_number():
    for setting, values in simulator_calibration.SWITCHES.items():
        texts = [simulator_calibration.describe_rule(setting, value) for value in values]
        assert len(set(texts)) == len(values)
        assert not any("_" in text for text in texts)


def test_every_switch_that_is_searched_is_a_rule_and_its_values_hold_the_one_in_force():
    rules = make_batched_env(SMOKE, "education", ["Linear Algebra"]).rules
    for name, values in simulator_calibration.SWITCHES.items():
        assert getattr(rules, name) in values


def test_the_search_says_whether_random_choice_is_no_quicker_than_the_best_single_action(searched):
    _, _, table = searched
    lengths = table[["SO-d1 length", "SO-d2 length", "SO-d3 length"]].min(axis=1)
    expected = table["random length"] >= lengths
    assert table["random is no quicker"].tolist() == expected.tolist()
    assert set(table["pair"]) <= {"failed + easy", "failed + challenge", "easy + challenge"}


def test_the_search_measures_what_the_evaluation_plays(searched):
    rules, _, table = searched
    row = table.loc[simulator_calibration.find_rank(table, rules) - 1]
    env = EducationBatch(rules, 40)
    streams = evaluate.evaluation_streams("switches", 0, 40)
    for column, probabilities in (("SO-d1 length", [0, 0, 1]), ("random length", [1 / 3] * 3)):
        steps = evaluate.play(env, evaluate.make_mixture(probabilities), streams)
        assert row[column] == pytest.approx(steps.groupby("episode").size().mean())


def test_the_questions_that_count_are_those_at_or_above_mastery(records):
    record = records["education"]
    assert (record["counted"] <= SMOKE.education.questions).all()
    assert (record["counted_correct"] <= record["counted"]).all()

    # At mastery 0.4 every challenge counts; an easy set counts only where it asks at mastery.
    first = record[record["step"] == 0].set_index("method")
    assert (first.loc["always challenge", "counted"] == SMOKE.education.questions).all()
    rises = record[record["mastery_after"] > record["mastery"]]
    assert (rises["counted_correct"] > 0).all()


def test_the_table_of_teaching_adds_up_to_the_record(records):
    record = records["education"]
    table = evaluate.summarize_teaching(record, SMOKE.education.questions)
    assert table["steps"].is_monotonic_increasing
    easy = record[record["method"] == "always easy"]
    row = table.loc["always easy"]
    num_episodes = easy.groupby(["seed", "episode"]).ngroups
    assert row["steps"] == pytest.approx(len(easy) / num_episodes)
    rewards = easy[["reward_0", "reward_1", "reward_2"]].mean(axis=1)
    assert row["return of an episode"] == pytest.approx(rewards.sum() / num_episodes)
    counted_share = easy["counted"].sum() / (len(easy) * SMOKE.education.questions)
    assert row["questions that count, %"] == pytest.approx(100 * counted_share)


def test_greedy_actors_take_the_most_probable_action_whatever_is_drawn(zoos):
    built, _ = zoos
    (actor, _) = evaluate.make_actors(built["education"].policies, greedy=True)["MO-S"]
    env = make_batched_env(SMOKE, "education", ["Linear Algebra"] * 4)
    observation = env.reset()
    policy = built["education"].policies["MO-S"][0]
    expected = policy.compute_logits(observation).argmax(-1).numpy()
    for draws in (np.zeros(4), np.full(4, 0.999)):
        np.testing.assert_array_equal(actor(observation, draws), expected)


def test_cards_are_made_of_other_students_than_tables():
    for domain in ("education", "minigrid"):
        by_purpose = {
            purpose: evaluate.evaluation_streams(domain, 1, 500, purpose)
            for purpose in ("evaluation", "cards")
        }
        assert not set(by_purpose["evaluation"]) & set(by_purpose["cards"])
