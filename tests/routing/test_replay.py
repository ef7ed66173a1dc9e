"""Routing on recorded outcomes: who is charged what, what is learned, and that nothing leaks into the test part."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
import torch

from lib import params, stats
from lib.params import ReplaySettings
from lib.routing import replay
from lib.routing.replay import KNOBS
from lib.seeds import rng
from lib.tasks.items import TaskError
from lib.tasks.readers import STRONG, WEAK, Outcomes

SETTINGS = ReplaySettings(
    routellm=None,
    dims=8,
    updates=150,
    batch=64,
    learning_rate=1e-2,
    seeds=2,
    test_share=0.3,
    neighbours=5,
    prices={"small": 1e-6, "large": 1e-4},
    reply_tokens=10,
)
PRICE = {"small": 1.0, "middle": 4.0, "large": 16.0}
KINDS = {"add": "easy", "solve": "middling", "prove": "hard"}
RIGHT = {"small": {"easy"}, "middle": {"easy", "middling"}, "large": {"easy", "middling", "hard"}}


def table(models=("small", "large"), n=300, groups=10, luck=0.0) -> Outcomes:
    """Prompts whose first word tells who is right; a reply costs the same for every prompt. luck: share of the
    prompts beyond a model that it gets right all the same."""
    draw = rng("test", "replay")
    words = draw.choice(list(KINDS), n)
    fillers = draw.choice(["apples", "pears", "plums", "figs", "nuts"], (n, 2))
    prompts = tuple(f"{word} {a} {b} {i}" for i, (word, (a, b)) in enumerate(zip(words, fillers, strict=True)))
    correct = np.array([[KINDS[word] in RIGHT[model] for model in models] for word in words])
    correct |= draw.random(correct.shape) < luck
    cost = np.tile([PRICE[model] for model in models], (n, 1))
    return Outcomes(prompts, np.array([f"g{i % groups}" for i in range(n)]), tuple(models), correct, cost)


def parted(outcomes: Outcomes) -> tuple[Outcomes, Outcomes]:
    return replay.split(outcomes, 0, 0.3)


@pytest.fixture(scope="module")
def three() -> tuple[Outcomes, pd.DataFrame]:
    """The test part of a table of three models, and all curves on it."""
    train, test = parted(table(("small", "middle", "large")))
    return test, replay.curves(train, test, SETTINGS, 0)


@pytest.fixture(scope="module")
def two() -> tuple[Outcomes, pd.DataFrame]:
    train, test = parted(table())
    return test, replay.curves(train, test, SETTINGS, 0)


def at(rows: pd.DataFrame, router: str, knob: float) -> pd.Series:
    """The row of a router whose knob is nearest."""
    mine = rows[(rows["router"] == router) & np.isfinite(rows["knob"])]
    return mine.loc[(mine["knob"] - knob).abs().idxmin()]


# Prices --------------------------------------------------------------------------------------------


def test_costs_are_tokens_times_price_where_the_table_tells_none():
    plain = replace(table(n=2), prompts=("a" * 40, "b" * 8), cost=None)
    cost = replay.priced(plain, SETTINGS.prices, SETTINGS.reply_tokens).cost
    assert cost == pytest.approx(np.array([[20e-6, 20e-4], [12e-6, 12e-4]]))


def test_models_are_put_in_order_of_their_cost():
    shuffled = table(("large", "small", "middle"))
    ordered = replay.cheap_first(shuffled)
    assert ordered.models == ("small", "middle", "large") and (np.diff(ordered.cost.mean(0)) > 0).all()
    assert (ordered.correct == table(("small", "middle", "large")).correct).all()


@pytest.mark.parametrize(
    "models, change, message",
    [
        (("small", "large"), {"cost": None}, "tells no costs.*priced"),
        (("large", "small"), {}, "mean costs are.*cheap_first"),
        (("small",), {}, "two models or more"),
    ],
)
def test_tables_without_costs_or_order_are_refused(models, change, message):
    train, test = parted(replace(table(models), **change))
    with pytest.raises(TaskError, match=message):
        replay.curves(train, test, SETTINGS, 0)


# Splits and embeddings -----------------------------------------------------------------------------


def test_a_split_parts_groups_and_takes_out_prompts_that_stand_on_both_sides():
    outcomes = table()
    twice = replace(outcomes, prompts=(*outcomes.prompts[:1], " " + outcomes.prompts[0], *outcomes.prompts[2:]))
    assert twice.groups[0] != twice.groups[1]
    for seed in range(8):
        train, test = replay.split(twice, seed, 0.3)
        assert not set(train.groups) & set(test.groups)
        assert not {p.strip() for p in train.prompts} & {p.strip() for p in test.prompts}
        assert len(train) + len(test) in (len(twice), len(twice) - 1)


def test_embeddings_know_nothing_of_the_test_prompts():
    train = table().prompts
    alone, _ = replay.embed(train, ["add figs"], 8)
    beside, vectors = replay.embed(train, ["zebra unheard", "add figs", "prove nuts"], 8)
    assert alone.shape == (300, 8) and vectors.shape == (3, 8)
    assert (alone == beside).all() and vectors[0] == pytest.approx(np.zeros(8))


# Rows ----------------------------------------------------------------------------------------------


def test_constants_are_the_means_of_the_table(three):
    test, rows = three
    for i, name in enumerate(test.models):
        row = rows[rows["router"] == f"always {name}"].iloc[0]
        assert row["accuracy"] == test.correct[:, i].mean() and row["dollars"] == test.cost[:, i].mean()
        assert row["strong"] == (i == 2) and np.isnan(row["knob"]) and np.isnan(row["over_budget"])


@pytest.mark.parametrize("router", ["corl", "priced", "knn", "logistic", "cascade", "random", "shortest", "longest"])
def test_every_curve_reaches_both_ends(router, three):
    test, rows = three
    mine = rows[rows["router"] == router]
    assert len(mine) >= KNOBS
    cheapest, dearest = mine.sort_values(["strong", "dollars"]).iloc[[0, -1]].itertuples()
    assert (cheapest.strong, cheapest.dollars, cheapest.accuracy) == (0, 1.0, test.correct[:, 0].mean())
    assert (dearest.strong, dearest.accuracy) == (1, test.correct[:, 2].mean())
    assert dearest.dollars == (1 + 4 + 16 if router == "cascade" else 16)


def test_controls_by_length_send_the_shortest_or_the_longest_to_the_dearest():
    train, test = parted(table(n=80))
    lengths = np.array([len(prompt) for prompt in test.prompts], dtype=float)
    by_length = replace(test, cost=np.stack([np.ones(len(test)), 100 * lengths], axis=1))
    rows = replay.curves(train, by_length, SETTINGS.model_copy(update={"updates": 1}), 0)
    dollars = {router: at(rows, router, 0.5)["dollars"] for router in ("shortest", "longest")}
    half = len(test) // 2
    expected = (100 * np.sort(lengths)[:half].sum() + len(test) - half) / len(test)
    assert dollars["shortest"] == pytest.approx(expected) and dollars["shortest"] < dollars["longest"]


def test_the_oracle_is_best_and_nobody_is_as_good_for_less(three):
    _, rows = three
    oracle = at(rows, "oracle", 0)
    assert (rows["accuracy"] <= oracle["accuracy"]).all()
    assert (rows.loc[rows["accuracy"] == oracle["accuracy"], "dollars"] >= oracle["dollars"] - 1e-12).all()


def test_no_point_of_any_router_lies_above_the_oracle_s_hull(three):
    _, rows = three
    oracle = rows[rows["router"] == "oracle"]
    for row in rows.itertuples():
        assert row.accuracy <= stats.hull_at(oracle["dollars"], oracle["accuracy"], row.dollars) + 1e-9


def test_the_cascade_pays_for_all_that_were_asked(three):
    _, rows = three
    cascade = rows[rows["router"] == "cascade"]
    # a query that ends at large has paid 1 + 4 + 16, one that ends at middle 1 + 4
    assert (cascade["dollars"] >= 1 + 20 * cascade["strong"] - 1e-9).all()
    assert (cascade["dollars"] <= 21 * cascade["strong"] + 5 * (1 - cascade["strong"]) + 1e-9).all()
    easy = cascade[(cascade["strong"] > 0) & (cascade["strong"] < 1)]
    assert len(easy) and easy["accuracy"].max() > 0.95  # the scorer tells the kinds apart


def test_every_router_that_predicts_sees_how_long_a_query_is():
    """All prompts are the same words, over and over: their embeddings are equal."""
    times = np.array([*range(1, 31), *range(201, 231)])
    prompts = tuple(" ".join(["more and"] * n) for n in times)
    correct = np.stack([times < 100, times > 100], axis=1)
    outcomes = Outcomes(prompts, times.astype(str), ("small", "large"), correct, np.tile([1.0, 16.0], (60, 1)))
    parts = outcomes.subset(times % 3 != 0), outcomes.subset(times % 3 == 0)
    rows = replay.curves(*parts, SETTINGS.model_copy(update={"updates": 1}), 0)
    best = rows.groupby("router")["accuracy"].max()
    assert best[["knn", "logistic", "cascade"]].min() > 0.9 and best["always small"] == 0.5


# Learning ------------------------------------------------------------------------------------------


def test_the_policy_keeps_within_budgets_and_spends_what_they_allow():
    train, test = parted(table(("small", "middle", "large"), n=600, luck=0.3))
    rows = replay.curves(train, test, SETTINGS, 0)
    affordable = rows[(rows["router"] == "corl") & (rows["knob"] > 1.2)]
    assert len(affordable) >= KNOBS - 2 and affordable["over_budget"].max() <= 0.02
    for budget, accuracy in zip((2.0, 9.0, 19.0), test.correct.mean(0), strict=True):
        row = at(rows, "corl", budget)
        assert row["accuracy"] == pytest.approx(accuracy, abs=0.02)
        assert row["reward"] == pytest.approx(row["accuracy"], abs=0.02)


def test_a_price_on_dollars_teaches_to_save():
    train, test = parted(table(n=600, luck=0.3))
    rows = replay.curves(train, test, SETTINGS, 0)
    apart = test.cost[np.arange(len(test)), [0 if p.startswith("add") else 1 for p in test.prompts]].mean()
    assert test.correct[:, 1].all()
    best = rows[rows["accuracy"] > 0.99].groupby("router")["dollars"].min()
    assert best["priced"] == pytest.approx(apart, rel=0.05)
    assert rows[(rows["router"] == "corl") & (rows["knob"] > 16)]["accuracy"].min() > 0.98


@pytest.mark.parametrize("router", ["knn", "logistic"])
def test_routers_that_predict_find_the_kinds_too(router, two):
    _, rows = two
    best = rows[(rows["router"] == router) & (rows["accuracy"] > 0.95)]
    assert best["dollars"].min() < 1.3 * at(rows, "oracle", 0)["dollars"]


def test_equal_seeds_give_equal_curves_and_leave_torch_alone():
    train, test = parted(table(n=80))
    brief = SETTINGS.model_copy(update={"updates": 10})
    threads, state = torch.get_num_threads(), torch.get_rng_state()
    first, again, other = (replay.curves(train, test, brief, seed) for seed in (0, 0, 1))
    pd.testing.assert_frame_equal(first, again)
    assert not first.equals(other)
    assert torch.get_num_threads() == threads and (torch.get_rng_state() == state).all()


# A router of one's own -----------------------------------------------------------------------------


def by_first_word(train: Outcomes, test: Outcomes) -> np.ndarray:
    """Share of right answers of each model on training prompts that begin alike."""
    kinds = np.array([prompt.split()[0] for prompt in train.prompts])
    return np.array([train.correct[kinds == prompt.split()[0]].mean(0) for prompt in test.prompts])


def test_a_router_of_ones_own_is_drawn_beside_the_others_and_changes_none_of_them():
    brief = SETTINGS.model_copy(update={"updates": 5})
    without = replay.run(table(n=200), brief, "toy")
    rows = replay.run(table(n=200), brief, "toy", routers={"mine": by_first_word})
    pd.testing.assert_frame_equal(rows[rows["router"] != "mine"].reset_index(drop=True), without)
    mine, oracle = (replay.summary(rows)[name]["aiq"].value for name in ("mine", "oracle"))
    assert mine == pytest.approx(oracle, abs=1e-6)  # in this table the first word tells everything


def test_a_router_of_ones_own_does_not_see_what_it_is_judged_by():
    seen = []

    def nosy(train: Outcomes, test: Outcomes) -> np.ndarray:
        seen.append(test.correct.any())
        return test.correct

    rows = replay.curves(*parted(table(n=80)), SETTINGS.model_copy(update={"updates": 1}), 0, {"nosy": nosy})
    assert seen == [False] and rows.loc[rows["router"] == "nosy", "accuracy"].max() <= rows["accuracy"].max()


# Runs and summaries --------------------------------------------------------------------------------


def points(*rows: tuple, seed: int = 0) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["router", "accuracy", "dollars", "strong"])
    return frame.assign(knob=np.nan, over_budget=np.nan, reward=np.nan, seed=seed)


ENDS = (("always small", 0.6, 1.0, 0.0), ("always large", 0.8, 3.0, 1.0))


def test_a_summary_by_hand():
    first = points(*ENDS, ("knn", 0.8, 2.0, 0.5))
    second = points(*ENDS, ("knn", 0.75, 2.0, 0.5), seed=1)
    found = replay.summary(pd.concat([first, second]))
    assert set(found) == {"best_constant", "knn"} and "gap" not in found["best_constant"]
    assert found["best_constant"]["aiq"].value == pytest.approx(0.7)
    assert found["best_constant"]["apgr"].value == pytest.approx(0.5)
    assert found["knn"]["aiq"].value == pytest.approx((0.75 + 0.725) / 2)  # (0.7 + 0.8) / 2, (0.675 + 0.775) / 2
    assert found["knn"]["gap"].value == pytest.approx((0.05 + 0.025) / 2)
    assert found["knn"]["apgr"].value == pytest.approx((0.75 + 0.625) / 2)
    assert found["knn"]["cpt50"].value == pytest.approx((0.25 + 1 / 3) / 2)
    assert found["knn"]["cpt80"].value == pytest.approx((0.4 + 0.6) / 2)
    assert not replay.refusals(first)


def test_a_curve_that_falls_has_no_cpt_but_a_reason():
    both = pd.concat([points(*ENDS, ("oracle", 0.9, 2.0, 0.5)), points(*ENDS, ("oracle", 0.7, 2.0, 0.5), seed=1)])
    found, reasons = replay.summary(both)["oracle"], replay.refusals(both)["oracle"]
    assert set(found) == {"aiq", "gap", "apgr", "cpt50_monotone", "cpt80_monotone"}
    assert set(reasons) == {"cpt50", "cpt80"}
    assert reasons["cpt50"].startswith("1 of 2 splits: quality falls by 0.1 between the shares 0.5 and 1")


def test_three_models_have_areas_alone_and_mixtures_of_constants_are_the_measure(three):
    found = replay.summary(three[1].assign(seed=0))
    assert all(set(metrics) <= {"aiq", "gap"} for metrics in found.values())
    assert found["oracle"]["gap"].value >= found["priced"]["gap"].value > 0.05
    assert all(metrics["gap"].value >= 0 for name, metrics in found.items() if name != "best_constant")


# By budget -----------------------------------------------------------------------------------------


def test_the_constant_under_a_budget_is_chosen_on_training_prompts_and_judged_on_the_test_s():
    """Small is better in training, large on the test."""
    train, test = parted(table(n=80))
    train = replace(train, correct=np.arange(2 * len(train)).reshape(-1, 2) % 4 == 0)
    test = replace(test, correct=np.tile([[False, True], [False, True], [True, False], [False, False]], (6, 1)))
    rows = replay.curves(train, test, SETTINGS.model_copy(update={"updates": 1}), 0)
    budgets = rows[rows["constant"].notna()]
    assert set(budgets["router"]) == {"corl"} and len(budgets) == KNOBS and np.isfinite(budgets["knob"]).all()
    least, below, above = budgets.iloc[0], at(budgets, "corl", 9.0), budgets.iloc[-1]
    assert (least["constant"], least["ceiling"]) == (0, 0)  # nobody can be paid
    assert (below["constant"], below["ceiling"]) == (0.25, 0.25)
    assert (above["constant"], above["ceiling"]) == (0.25, 0.75)


def test_under_one_budget_nobody_earns_more_than_the_oracle(three):
    _, rows = three
    budgets = rows.dropna(subset=list(replay.PEERS))
    assert (budgets[["reward", "constant"]].max(axis=1) <= budgets["ceiling"]).all()


def under_budgets(*rewards: tuple[float, float, float], seed: int, scale: float) -> pd.DataFrame:
    """Rows of corl: reward, constant, ceiling at the budgets 1, 10, ... times scale, and the ends without others."""
    rows = [(scale * 10.0**i, *told, 0.1 * seed) for i, told in enumerate(rewards)]
    rows = [(0.0, 0.0, np.nan, np.nan, 1.0), *rows, (np.inf, 0.9, np.nan, np.nan, 0.0)]
    frame = pd.DataFrame(rows, columns=["knob", "reward", "constant", "ceiling", "over_budget"])
    return frame.assign(router="corl", seed=seed, table="toy")


def test_rewards_by_budget_by_hand():
    first = under_budgets((0.5, 0.4, 0.8), (0.6, 0.6, 0.9), seed=0, scale=1.0)
    second = under_budgets((0.7, 0.5, 0.8), (0.5, 0.6, 0.8), seed=1, scale=4.0)
    found = replay.by_budget(pd.concat([first, second]))
    assert list(found) == pytest.approx([2.0, 20.0])  # geometric means
    low, high = found.values()
    means = {key: interval.value for key, interval in low.items()}
    assert means == pytest.approx(
        {"reward": 0.6, "constant": 0.45, "ceiling": 0.8, "gap": 0.15, "short": 0.2, "over": 0.05}
    )
    assert (low["gap"].lo, low["gap"].hi) == pytest.approx(
        (stats.t_interval([0.1, 0.2]).lo, stats.t_interval([0.1, 0.2]).hi)
    )
    assert high["gap"].value == pytest.approx(-0.05)
    gap = replay.reward_gap(pd.concat([first, second]))
    assert (gap.value, gap.lo) == pytest.approx((0.05, 0.05)) and gap.known  # 0.05 under both seeds


# RouteLLM ------------------------------------------------------------------------------------------


def told(path, *prompts: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"prompt,{WEAK},{STRONG}\n" + "".join(f"{prompt},True,False\n" for prompt in prompts))


def test_the_tables_of_routellm_are_read_and_priced(tmp_path):
    told(tmp_path / "gsm8k_responses.csv", "one", "two", "one ")
    told(tmp_path / "mmlu/mmlu_law.csv", "three")
    told(tmp_path / "mmlu/mmlu_art.csv", "four", "five")
    settings = params.load("smoke").routing.replay.model_copy(update={"routellm": str(tmp_path)})
    found = replay.routellm(settings)
    assert sorted(found["mmlu"].groups) == ["art", "art", "law"]
    first, second, again = found["gsm8k"].groups
    assert first == again != second  # equal but for white space
    expected = (3 / 4 + settings.reply_tokens) * settings.prices[STRONG]
    assert found["gsm8k"].cost[0, 1] == pytest.approx(expected)


def test_costs_of_the_table_are_kept():
    assert replay.priced(table(), {}, 10).cost is not None
    assert (replay.priced(table(), SETTINGS.prices, 10).cost == table().cost).all()


def test_a_split_that_leaves_nothing_to_test_on_is_refused():
    with pytest.raises(TaskError, match="all 150 test prompts stand in training groups"):
        replay.split(replace(table(groups=2), prompts=("the same",) * 300), 0, 0.5)


def test_embeddings_of_few_words_have_few_dimensions():
    train, test = replay.embed(["a b", "a a", "b a"], ["b"], 8)
    assert train.shape == (3, 2) and test.shape == (1, 2)
    with pytest.raises(TaskError, match="2 training prompts share no words"):
        replay.embed(["?", "!"], ["b"], 8)


def test_embeddings_tell_signs_apart():
    sums = [f"3 {sign} 4 = ?" for sign in "+-*"] * 4
    _, vectors = replay.embed(sums, sums[:3], 8)
    assert min(np.linalg.norm(a - b) for a, b in combinations(vectors, 2)) > 0.1


def test_the_oracle_asks_the_cheapest_where_nobody_is_right():
    train, test = parted(table(n=80))
    hopeless = replace(test, correct=np.zeros_like(test.correct))
    rows = replay.curves(train, hopeless, SETTINGS.model_copy(update={"updates": 1}), 0)
    assert (rows.loc[rows["router"] == "oracle", "dollars"] == 1).all()


def test_beyond_its_budget_the_policy_is_free_where_it_cannot_win(three):
    test, rows = three
    row = at(rows, "corl", 2.0)  # small alone can be paid, and it is right on easy prompts alone
    assert row["reward"] == pytest.approx(test.correct[:, 0].mean(), abs=0.02)
    assert row["over_budget"] > 0.1


def test_below_the_cheapest_price_every_call_is_over_budget(two):
    _, rows = two
    least = at(rows, "corl", 0.8)
    assert least["over_budget"] == 1 and least["reward"] == 0


def test_a_model_that_is_always_right_or_never_and_one_that_is_free_are_no_trouble():
    outcomes = table(n=60)
    outcomes = replace(outcomes, cost=np.tile([0.0, 3.0], (60, 1)), correct=np.tile([False, True], (60, 1)))
    rows = replay.curves(*parted(outcomes), SETTINGS.model_copy(update={"updates": 60}), 0)
    assert np.isfinite(rows[["accuracy", "dollars", "strong"]].to_numpy()).all()
    assert at(rows, "oracle", 0)["accuracy"] == 1
    assert at(rows, "logistic", 0.0)["accuracy"] == 1


@pytest.mark.parametrize("chances", [np.zeros(3), np.full((24, 2), np.nan)])
def test_chances_of_another_shape_or_none_are_refused(chances):
    with pytest.raises(TaskError, match="router 'odd' must return finite chances"):
        replay.curves(
            *parted(table(n=80)), SETTINGS.model_copy(update={"updates": 1}), 0, {"odd": lambda train, test: chances}
        )


def test_a_run_has_a_part_for_every_seed_and_tells_how_far_it_is():
    brief, told = SETTINGS.model_copy(update={"updates": 5}), []
    rows = replay.run(table(("large", "small"), n=80), brief, "toy", told.append)
    assert told == [0.5, 1.0] and set(rows["table"]) == {"toy"} and set(rows["seed"]) == {0, 1}
    assert not rows[rows["seed"] == 0].drop(columns="seed").equals(rows[rows["seed"] == 1].drop(columns="seed"))


def test_a_strong_model_that_is_no_better_leaves_only_areas():
    rows = points(("always small", 0.8, 1.0, 0.0), ("always large", 0.7, 3.0, 1.0), ("knn", 0.9, 2.0, 0.5))
    assert set(replay.summary(rows)["knn"]) == {"aiq", "gap"}
    assert "no gap to recover" in replay.refusals(rows)["knn"]["apgr"]


@pytest.mark.parametrize("measure", [replay.summary, replay.by_budget, replay.reward_gap])
def test_tables_are_not_averaged_with_one_another(measure):
    rows = points(*ENDS).assign(table=["a", "b"])
    with pytest.raises(ValueError, match="curves of 2 tables"):
        measure(rows)


def test_missing_tables_name_their_source(tmp_path):
    with pytest.raises(TaskError, match="not shipped; set replay.routellm.*github.com/lm-sys/RouteLLM"):
        replay.routellm(SETTINGS)
    told(tmp_path / "gsm8k_responses.csv", "one")
    with pytest.raises(TaskError, match="mmlu: not there; set replay.routellm.*routellm/evals/mmlu/responses"):
        replay.routellm(SETTINGS.model_copy(update={"routellm": str(tmp_path)}))
