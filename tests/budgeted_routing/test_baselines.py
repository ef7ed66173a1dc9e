"""What a controller has to beat: who chooses what, who pays for what, and that nobody looks at the test's answers."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from lib.budgeted_routing import baselines
from lib.budgeted_routing.baselines import ITSELF, ROUTERS, Tried

STRATEGIES = (ITSELF, "small", "small in pieces", "large", "large in pieces")
EXPERTS = (1, 3)
PRICE = np.array([0.0, 1.0, 3.0, 8.0, 20.0])
BUDGETS = {"low": 1.0, "medium": 9.0, "high": 1000.0}


def table(correct, cost_usd=PRICE, prompts=None, replies=None) -> Tried:
    correct = np.asarray(correct, dtype=float)
    n = len(correct)
    prompts = tuple(prompts or [f"question {i}" for i in range(n)])
    told = np.full((n, len(EXPERTS)), "so it is") if replies is None else np.asarray(replies)
    replies = np.column_stack([np.full(n, ""), told])  # the controller's are not on record
    return Tried(
        STRATEGIES,
        EXPERTS,
        correct,
        np.broadcast_to(cost_usd, correct.shape).astype(float),
        prompts,
        replies,
    )


def chance(n: int = 60, seed: int = 0) -> Tried:
    """Everything by lot, prices too."""
    rng = np.random.default_rng(seed)
    correct = rng.random((n, len(STRATEGIES))) < [0.1, 0.4, 0.5, 0.6, 0.7]
    prompts = [" ".join(rng.choice(list("abcdef"), size=4)) for _ in range(n)]
    replies = rng.choice(["yes", "no", "perhaps"], size=(n, len(EXPERTS)))
    return table(correct, PRICE * rng.uniform(0.5, 1.5, size=(n, 1)), prompts, replies)


def separable(n: int, seed: int) -> Tried:
    """The first word tells which expert is right: the small one adds, the large one proves."""
    rng = np.random.default_rng(seed)
    adds = np.arange(n) % 2 == 0
    correct = np.zeros((n, len(STRATEGIES)))
    correct[adds, 1], correct[~adds, 3] = 1, 1
    prompts = [f"{'add' if a else 'prove'} {rng.integers(2)}" for a in adds]
    return table(correct, prompts=prompts)


def told(train: Tried, test: Tried, router: str, label: str = "high") -> pd.DataFrame:
    rows = baselines.compare(train, test, BUDGETS)
    return rows[(rows["method"] == router) & (rows["condition"] == label)].reset_index(drop=True)


@pytest.mark.parametrize(("split", "base"), [("train", 0.0), ("test", 100.0)])
def test_a_study_s_tables_become_one_column_per_strategy_and_one_row_per_question(split, base):
    """In every cell a number of its own; questions stand there in any order."""
    rows = pd.DataFrame(
        [
            {
                "split": part,
                "item": i,
                "sample": 0,
                "prompt": f"{part} {i}",
                "method": name,
                "correct": float(i == 3) if name == ITSELF else (i + s) % 2,
                "cost_usd": 100.0 * (part == "test") + 10 * i + s,
                "reply": "" if name == ITSELF else f"{name} to {i}",
            }
            for part in ("train", "test")
            for s, name in enumerate(STRATEGIES)
            for i in (3, 1, 0, 2)
        ]
    )
    own = rows["method"] == ITSELF
    found = baselines.tried_on(rows[~own], rows[own], split, ["small", "large"])
    assert found.strategies == STRATEGIES and found.experts == EXPERTS
    assert found.prompts == tuple(f"{split} {i}" for i in range(4))
    assert found.cost_usd.tolist() == [[base + 10 * i + s for s in range(5)] for i in range(4)]
    assert found.correct[:, 0].tolist() == [0, 0, 0, 1]
    assert found.correct[:, 1:].tolist() == [[(i + s) % 2 for s in range(1, 5)] for i in range(4)]
    assert found.replies.tolist() == [["", f"small to {i}", f"large to {i}"] for i in range(4)]
    assert [found.strategies[m] for m in found.stages] == [ITSELF, "small", "large"]


def test_reward_is_right_within_the_budget_and_a_price_at_the_budget_is_within():
    part = table([[1, 1, 1, 1, 0]])
    assert part.reward(0.0).tolist() == [[1, 0, 0, 0, 0]]
    assert part.reward(3.0).tolist() == [[1, 1, 1, 0, 0]]
    assert part.reward(1000.0).tolist() == [[1, 1, 1, 1, 0]]


def test_everybody_has_a_row_per_question_under_every_budget_and_gets_and_pays_what_was_chosen():
    test = chance(17, 1)
    rows = baselines.compare(chance(), test, BUDGETS)
    assert set(rows["method"]) == {*STRATEGIES, *ROUTERS} and list(
        dict.fromkeys(rows["condition"])
    ) == list(BUDGETS)
    for _, part in rows.groupby(["method", "condition"]):
        assert part["item"].tolist() == list(range(17))
    assert len(rows) == 3 * 17 * (len(STRATEGIES) + len(ROUTERS))
    for row in rows[rows["method"] != "cascade"].itertuples():
        m = STRATEGIES.index(row.chosen)
        assert row.method in (*ROUTERS, row.chosen)
        assert (row.correct, row.cost_usd) == (
            test.correct[row.item, m],
            test.cost_usd[row.item, m],
        )


def test_the_same_seed_gives_the_same_table_and_another_one_changes_random_alone():
    train, test = chance(), chance(40, 1)
    first = baselines.compare(train, test, BUDGETS, seed=3)
    pd.testing.assert_frame_equal(first, baselines.compare(train, test, BUDGETS, seed=3))
    other = baselines.compare(train, test, BUDGETS, seed=4)
    random = first["method"] == "random"
    pd.testing.assert_frame_equal(first[~random], other[~random])
    assert (first[random]["chosen"] != other[random]["chosen"]).any()


def test_no_router_but_the_oracle_looks_at_the_test_s_outcomes():
    train, test = chance(), chance(40, 1)
    turned = dataclasses.replace(test, correct=1 - test.correct)
    one, other = (baselines.compare(train, part, BUDGETS) for part in (test, turned))
    knows = one["method"] == "oracle"
    assert one[~knows]["chosen"].tolist() == other[~knows]["chosen"].tolist()
    assert one[knows]["chosen"].tolist() != other[knows]["chosen"].tolist()


def test_random_assigns_to_each_expert_about_as_often_and_to_nobody_else():
    chosen = told(chance(), chance(400, 1), "random")["chosen"].value_counts()
    assert set(chosen.index) == {"small", "large"} and chosen.min() > 160


def test_the_best_constant_is_the_best_of_the_training_questions_under_that_budget():
    train, test = chance(), chance(17, 1)
    best = {}
    for label, budget in BUDGETS.items():
        (best[label],) = set(told(train, test, "best constant", label)["chosen"])
        assert best[label] == STRATEGIES[train.reward(budget).mean(0).argmax()]
    assert len(set(best.values())) > 1  # the budget decides


@pytest.mark.parametrize("router", ["nearest neighbours", "logistic"])
def test_a_router_learns_which_word_decides_under_the_budget_it_is_tested_at(router):
    """At low the large expert is never paid, so nothing is lost by the cheapest."""
    test = separable(30, 1)
    high, low = (told(separable(80, 0), test, router, label) for label in ("high", "low"))
    assert high["chosen"].tolist() == [
        "small" if p.startswith("add") else "large" for p in test.prompts
    ]
    assert high["reward"].eq(1).all()
    assert (
        low["chosen"][::2].eq("small").all()
        and not low["chosen"].isin(["large", "large in pieces"]).any()
    )


@pytest.mark.parametrize("router", ["nearest neighbours", "logistic"])
def test_a_router_sees_how_long_a_question_is_whatever_its_words(router):
    """None of the test's words stands in a training question."""
    lengths = np.arange(60) % 2 * 4 + 2
    correct = np.zeros((60, len(STRATEGIES)))
    correct[lengths == 2, 1], correct[lengths == 6, 3] = 1, 1
    train = table(
        correct, prompts=[" ".join(f"w{i}.{j}" for j in range(n)) for i, n in enumerate(lengths)]
    )
    test = table(correct[:2], prompts=["brief question", "a question that goes on longer"])
    assert told(train, test, router)["chosen"].tolist() == ["small", "large"]


def frank(n: int, seed: int) -> Tried:
    """The small expert is right in half the cases, and says when; the large one always is."""
    rng = np.random.default_rng(seed)
    correct = np.tile([0.0, 0, 0, 1, 1], (n, 1))
    correct[:, 1] = rng.permutation(np.arange(n) % 2)
    replies = [["surely" if ok else "hm", "surely"] for ok in correct[:, 1]]
    return table(correct, prompts=[f"q {rng.integers(5)}" for _ in range(n)], replies=replies)


def test_a_cascade_stops_where_the_reply_is_trusted_and_pays_for_everybody_it_asked():
    test = frank(30, 1)
    rows = told(frank(80, 0), test, "cascade", "medium")
    sure = test.correct[:, 1] == 1
    assert rows["chosen"].tolist() == np.where(sure, "small", "large").tolist()
    assert rows["cost_usd"].tolist() == np.where(sure, 1.0, 1.0 + 8.0).tolist()
    assert rows["correct"].eq(1).all() and rows["reward"].eq(1).all()


def modest(n: int, seed: int) -> Tried:
    """The controller is right on what is easy, which the question tells; the small expert never is."""
    rng = np.random.default_rng(seed)
    easy = rng.permutation(np.arange(n) % 2)
    correct = np.column_stack([easy, np.zeros(n), np.zeros(n), np.ones(n), np.ones(n)])
    return table(correct, prompts=["easy" if e else "hard" for e in easy])


def test_a_cascade_begins_with_the_controller_which_is_free_and_does_not_ask_whom_its_budget_cannot_pay():
    train, test = modest(80, 0), modest(30, 1)
    rows, easy = told(train, test, "cascade"), test.correct[:, 0] == 1
    assert (
        rows["chosen"].tolist() == np.where(easy, ITSELF, "large").tolist()
        and rows["correct"].eq(1).all()
    )
    assert (
        rows["cost_usd"].tolist() == np.where(easy, 0.0, 8.0).tolist()
    )  # the small expert is not on its list
    rows = baselines.compare(
        train, test, {"little": 2.0}
    )  # which large is beyond: someone else must end it
    assert rows[rows["method"] == "cascade"]["chosen"].eq(ITSELF).all()


def test_list_and_threshold_are_chosen_on_training_rewards_with_scores_from_other_folds(
    monkeypatch,
):
    """Every question and reply here is a word of its own: a scorer tried on what it learned from would know all."""
    rng = np.random.default_rng(0)
    correct = np.tile([0.0, 0, 0, 1, 1], (40, 1))
    correct[:, 1] = rng.permutation(np.arange(40) % 2)
    train = table(
        correct,
        prompts=[f"p{i}" for i in range(40)],
        replies=[[f"s{i}", f"l{i}"] for i in range(40)],
    )
    test, calls, real = frank(10, 1), [], baselines._escalated

    def spy(part, trust, asked, threshold, budget):
        found = real(part, trust, asked, threshold, budget)
        calls.append((part, trust, (asked, threshold), found[2].mean()))
        return found

    monkeypatch.setattr(baselines, "_escalated", spy)
    baselines._cascade(train, test, 1000.0, 0)
    *tried, (last, _, way, _) = calls
    assert last is test and all(part is train for part, *_ in tried)
    lists = [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)]
    assert [w for _, _, w, _ in tried] == [
        (asked, t) for asked in lists for t in baselines.THRESHOLDS
    ]
    assert way == max(tried, key=lambda call: call[3])[2]
    held = tried[0][1][1]
    learn, _ = baselines.features([f"p{i} s{i}" for i in range(40)], ["x"])
    seen = baselines.chance(learn, correct[:, 1], learn)
    good = correct[:, 1] == 1
    assert seen[good].min() > seen[~good].max()  # the scores that it must not use
    assert held[good].mean() - held[~good].mean() < 0.05


def test_nobody_is_paid_more_than_the_oracle_for_any_question():
    for seed in range(3):
        rows = baselines.compare(chance(seed=seed), chance(40, seed + 10), BUDGETS)
        for _, part in rows.groupby("condition"):
            wide = part.pivot(index="item", columns="method", values="reward")
            assert (wide["oracle"].to_numpy()[:, None] >= wide.to_numpy()).all()
            assert wide["oracle"].tolist() == wide[list(STRATEGIES)].max(axis=1).tolist()


def test_the_oracle_takes_the_cheapest_that_is_paid_and_the_cheapest_of_all_where_none_is():
    test = table(
        [[0, 0, 1, 1, 1], [0, 0, 0, 1, 1], [0, 0, 0, 0, 0], [0, 0, 1, 1, 0]],
        np.array([[0, 1, 3, 8, 20], [0, 1, 3, 8, 20], [2, 1, 3, 8, 20], [0, 1, 9, 8, 20]]),
    )
    assert told(test, test, "oracle")["chosen"].tolist() == [
        "small in pieces",
        "large",
        "small",
        "large",
    ]
    low = told(test, test, "oracle", "low")
    assert low["chosen"].tolist() == [ITSELF, ITSELF, "small", ITSELF] and low["reward"].eq(0).all()


def test_of_equally_good_constants_the_cheapest_is_taken():
    tie = table([[0, 1, 1, 1, 0], [0, 0, 0, 0, 1]], np.array([0, 9, 3, 5, 20]))
    assert set(told(tie, tie, "best constant")["chosen"]) == {"small in pieces"}
    nothing = table(np.zeros((4, 5)))
    assert set(told(nothing, nothing, "best constant")["chosen"]) == {ITSELF}


def test_features_are_fitted_on_training_texts_alone():
    train, test = baselines.features(["add 1", "add 2"], ["add 9 unheard"])
    assert train.shape[1] == test.shape[1] == 6  # three words, two pairs, the length
    assert np.count_nonzero(test) == 2
    assert (baselines.features(["add 1", "add 2"], ["other"])[0] == train).all()


def test_pairs_of_words_count_too():
    """Single words do not tell these apart."""
    train, test = baselines.features(["a b c", "c a b", "b c a", "a c b"] * 10, ["a b c", "a c b"])
    wanted = np.array([[1.0], [1.0], [1.0], [0.0]] * 10)
    sure, doubtful = baselines._logistic(train, wanted, test)[:, 0]
    assert sure > 0.8 and doubtful < 0.5


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_strategy_that_always_ends_alike_is_no_obstacle(value):
    learn = np.eye(4)
    assert baselines.chance(learn, np.full(4, value), np.eye(4)[:3]).tolist() == [value] * 3
    same = table(np.full((12, 5), value))
    rows = baselines.compare(same, same, BUDGETS)
    assert rows[rows["method"].isin(["logistic", "cascade"])]["correct"].eq(value).all()
