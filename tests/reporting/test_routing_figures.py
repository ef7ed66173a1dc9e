"""Lesson 05's figures, tables and sentences say what their numbers say.

The study here is made up so that its means can be worked out on paper: six questions of difficulty 1 to 6, two
seeds, experts that cost 1, 2 and 4 micro-dollars a question, the same in pieces for 3, 5 and 9.
"""

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from lib import draw as drawing
from lib import params, stats
from lib.reporting.routing import common, comparison, episodes, experts, numbers, training, verdicts
from lib.routing import protocol
from lib.routing.arms import Budgets
from lib.routing.baselines import ITSELF, ROUTERS
from lib.routing.study import Results
from lib.stats import Interval

PARAMS = params.load("smoke")
KINDS = ("short", "short", "middle", "middle", "long", "long")  # of the six questions
OWN = PARAMS.routing.model_copy(update={"questions": {kind: [1] for kind in dict.fromkeys(KINDS)}})
PRICE = {"lab-nano": 1e-6, "lab-mini": 2e-6, "lab-large": 4e-6}
PIECES = {"lab-nano": 3e-6, "lab-mini": 5e-6, "lab-large": 9e-6}
REACH = {"lab-nano": 2, "lab-mini": 4, "lab-large": 5}  # the hardest question that each is right on
REACH_IN_PIECES = {"lab-nano": 4, "lab-mini": 6, "lab-large": 6}
WORDS = {"low": 1e-6, "medium": 2e-6, "high": 1000.0}
N, M, L = PRICE
# word -> for each seed whom CoRL calls, and whether it is right, by question
ACTS = {
    "low": ([["", N, N, "", "", ""], ["", N, N, N, "", ""]], [[1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]),
    "medium": ([["", M, M, M, M, M], ["", M, M, M, M, f"{M} {M}"]], [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 0, 1]]),
    "high": ([["", L, L, L, L, L], [L, L, L, L, L, f"{L} {L}"]], [[1, 1, 1, 1, 0, 1], [1, 1, 1, 1, 1, 1]]),
}
IDLE = {word: ([[""] * 6] * 2, [[0] * 6] * 2) for word in WORDS}
NUMBERS = {"001": 0, "008": 2, "040": 5}  # label -> questions on which it calls the large expert, and is right
AT_FIRST = dict.fromkeys(NUMBERS, 1)  # the same before training: above the budget of 1


@pytest.fixture(autouse=True)
def one_thread_for_matrices(one_thread):
    """Fits this small only wait for the second thread, ten times as long where others compute too."""
    with threadpool_limits(1):
        yield


def episode(item: int, word: str, called: str, right: float, budget: float, **more) -> dict:
    """A row as of `study.episode_rows`."""
    names = called.split()
    dollars = float(sum(PRICE[name] for name in names))
    within = float(dollars <= budget)
    spoken = [("prompt", f"<s> budget {word}", 0.0)]
    for name in names:
        spoken += [("controller", f"<call> {name} <t> 1 + 1 = ?", 0.0), (name, "<response> 2", PRICE[name])]
    spoken.append(("controller", "<answer> 2 </answer>", 0.0))
    row = {
        "item": item, "kind": KINDS[item % 6], "difficulty": item + 1,
        "label": word, "budget": budget, "right": float(right), "within": within,
        "reward": right * within, "dollars": dollars, "calls": len(names), "called": called, "malformed": 0,
        "failures": 0, "turns": 1 + len(names), "written": 5, "tokens": 20 + 10 * len(names),
        "spoken": json.dumps(spoken), "temperature": 0.0, "style": "soft",
    }  # fmt: skip
    return row | more


def examined(acts, arm: str, seeds: int, **more) -> list[dict]:
    return [
        episode(i, word, called[s][i], right[s][i], WORDS[word], arm=arm, seed=s, **more)
        for word, (called, right) in acts.items()
        for s in range(seeds)
        for i in range(6)
    ]


def all_tests(acts, seeds: int) -> list[dict]:
    rows = []
    for heat in (0.0, 1.0):  # with draws nobody is ever right, so that a mix-up shows
        shown = acts if heat == 0 else {word: (called, [[0] * 6] * 2) for word, (called, _) in acts.items()}
        rows += examined(shown, "corl", seeds, temperature=heat)
        rows += examined(shown, "hard", seeds, temperature=heat, style="hard")
        for style in ("soft", "hard"):
            rows += examined(IDLE, "start", 1, temperature=heat, style=style)
    for arm, runs, calls in (("start", 1, AT_FIRST), ("number", seeds, NUMBERS)):
        acts = {w: ([[L if i < n else "" for i in range(6)]] * 2, [[i < n for i in range(6)]] * 2)
                for w, n in calls.items()}  # fmt: skip
        rows += in_numbers(acts, arm, runs)
    return rows


def in_numbers(acts, arm: str = "number", seeds: int = 2) -> list[dict]:
    """Test episodes under budgets of so many micro-dollars; acts: as ACTS."""
    return [
        episode(i, word, called[s][i], right[s][i], int(word) * 1e-6, arm=arm, seed=s, style="number")
        for word, (called, right) in acts.items()
        for s in range(seeds)
        for i in range(6)
    ]


def asked_for(results: Results, acts) -> Results:
    """With other test episodes of the controller that reads numbers."""
    others = results.episodes[results.episodes["arm"] != "number"]
    return dataclasses.replace(results, episodes=pd.concat([others, pd.DataFrame(in_numbers(acts))], ignore_index=True))


def trained(seeds: int, late: str, updates: int = 10) -> list[dict]:
    """Rollouts: nobody calls in the first half, and `late` is called in the second, where half are right."""
    rows = []
    for arm in ("corl", "hard", *training.FIXED):
        words = WORDS if arm in ("corl", "hard") else {"medium": PRICE[L] if arm == "fixed-high" else PRICE[N]}
        for s in range(seeds):
            for update in range(updates):
                called = late if update >= updates / 2 else ""
                rows += [
                    episode(i, word, called, float(bool(called) and i == 1), budget, arm=arm, seed=s, update=update)
                    for word, budget in words.items()
                    for i in range(2)
                ]
    return rows


def looked(seeds: int, late: str) -> list[dict]:
    """Of unseen questions; at the end half are right where the dear expert is called."""
    return [
        episode(i, "medium", late if update else "", float(update and i % 2), 4e-6, arm=arm, seed=s, update=update)
        for arm in training.FIXED
        for s in range(seeds)
        for update in (0, 5, 10)
        for i in range(4)
    ]


def strategies(right: bool = True) -> pd.DataFrame:
    rows = []
    for split, each in (("train", 3), ("test", 1)):
        for name in PRICE:
            for suffix, price, reach in (("", PRICE, REACH), (" in pieces", PIECES, REACH_IN_PIECES)):
                for item in range(6 * each):
                    hard = item % 6 + 1
                    rows.append(
                        {"split": split, "item": item, "kind": KINDS[hard - 1], "difficulty": hard, "try": 0,
                         "prompt": f"{split} d{hard} {item} = ?",
                         "strategy": name + suffix, "right": float(right and hard <= reach[name]),
                         "dollars": price[name], "calls": 1 + bool(suffix), "reply": f"r{hard % 2}"}
                    )  # fmt: skip
    return pd.DataFrame(rows)


def study(acts=ACTS, seeds: int = 2, late: str = L, right: bool = True) -> Results:
    own = [
        episode(i, "low", "", float(right and i % 6 == 0), 1e-6, split=split, reply="")
        for split, n in (("train", 18), ("test", 6))
        for i in range(n)
    ]
    frames = (pd.DataFrame(rows) for rows in (all_tests(acts, seeds), trained(seeds, late), looked(seeds, late), own))
    empty = pd.DataFrame()
    return Results(strategies(right), *frames, empty, Budgets(WORDS, PRICE, 1e-6), 1e-8, empty)


def paid(results: Results, earned: dict) -> Results:
    """With other rewards in tests. earned: (arm, style, temperature): on how many questions, the first ones, there is
    a reward under low, medium and high. With dice everybody breaks every budget, so that a mix-up shows."""
    frame = results.episodes.copy()
    who = zip(frame["arm"], frame["style"], frame["temperature"], frame["label"], frame["item"], strict=True)
    frame["reward"] = [
        float(item < earned[arm, style, heat][protocol.WORDS.index(word)]) if (arm, style, heat) in earned else 0.0
        for arm, style, heat, word, item in who
    ]
    frame.loc[frame["temperature"] > 0, "within"] = 0.0
    return dataclasses.replace(results, episodes=frame)


@pytest.fixture(scope="module")
def results() -> Results:
    return study()


@pytest.fixture(scope="module")
def rivals(results) -> pd.DataFrame:
    with threadpool_limits(1):
        return comparison.compared(results)


@pytest.fixture(scope="module")
def claims(results):
    """What three sentences of the paper come to: order, best, equal."""
    return verdicts.order_claims(results), verdicts.against_best(results), verdicts.at_equal_cost(results)


def title(figure: Figure) -> str:
    return " ".join(figure.get_suptitle().split())


def holds(found: Interval, value: float) -> None:
    """A value worked out by hand, inside its own interval."""
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.lo <= found.value <= found.hi


# Names --------------------------------------------------------------------------------------------


# Prices and budgets -------------------------------------------------------------------------------


def test_prices_stand_beside_what_they_buy(results):
    table = experts.price_table(results, OWN).set_index("expert")
    assert table.index.tolist() == list(PRICE)
    assert table["right, short"].tolist() == [1, 1, 1] and table["right, middle"].tolist() == [0, 1, 1]
    assert table["right, long"].tolist() == [0, 0, 0.5]
    assert table["$ per million"].tolist() == pytest.approx([1, 2, 4])
    assert table["budget for a call"].tolist() == pytest.approx([1, 2, 4])


def test_a_budget_is_told_in_calls_unless_there_is_no_limit(results):
    table = experts.budget_table(results).set_index("word")
    assert table.index.tolist() == list(protocol.WORDS) and table.columns[0] == f"B, {common.MONEY}"
    assert table.loc["medium", [f"calls to {e}" for e in PRICE]].tolist() == ["2.00", "1.00", "0.50"]
    assert table.loc["low"].tolist() == ["1.0", "1.00", "0.50", "0.25"]
    assert table.loc["high"].tolist() == ["no limit", "-", "-", "-"]


# One question taken apart -------------------------------------------------------------------------


def odd_episode() -> pd.DataFrame:
    row = episode(0, "medium", M, 1, 2e-6)
    parts = [("prompt", "<s> 1 < 2 & 3", 0.0), ("controller", "<call> x", 0.0), ("lab-mini", "<response> 4", 2e-6),
             ("nobody", "<response> error", 0.0)]  # fmt: skip
    return pd.DataFrame([row | {"spoken": json.dumps(parts), "malformed": 1}])


def test_an_episode_shows_who_wrote_what_and_escapes_it():
    markup, plain = episodes.episode_html(odd_episode(), 'caption "one" <b>')
    assert "<s>" not in markup and "<call>" not in markup and "<b>" not in markup
    assert "1 &lt; 2 &amp; 3" in markup and 'aria-label="caption &quot;one&quot; &lt;b&gt;"' in markup
    assert [line.split()[0] for line in plain.splitlines()[:4]] == ["prompt", "controller", "lab-mini", "nobody"]
    assert "<s> 1 < 2 & 3" in plain  # plain text is not escaped


def test_the_mask_is_1_for_the_controller_and_0_for_everybody_else():
    markup, plain = episodes.episode_html(odd_episode(), "c")
    learned = [part for part in markup.split("<p style")[1:] if "mask 1, learned" in part]
    (own,) = learned
    assert "<strong>&lt;call&gt; x</strong>" in own and markup.count("<strong>") == 1
    assert "5px solid" in own and markup.count("5px solid") == 1 and markup.count("5px dotted") == 3
    assert markup.count("mask 0, read only") == 3
    assert [("mask 1" in line) for line in plain.splitlines()[:4]] == [False, True, False, False]


def test_the_question_that_tells_most_has_every_budget_in_order():
    """Spending rises at both steps on questions 1 and 2 of the first seed; 2 is the harder. Question 5 is as dear
    under every budget, 4 cheaper in the middle, 3 rises once."""
    low, high = [["", N, N, "", L, L], [""] * 6], [["", L, L, M, L, L], [L] * 6]
    results = study({"low": (low, [[0] * 6] * 2), "medium": ACTS["medium"], "high": (high, [[0] * 6] * 2)})
    frame = results.episodes
    frame.loc[(frame["item"] == 5) & (frame["label"] == "medium"), "dollars"] = PRICE[L]
    told = episodes.telling(dataclasses.replace(results, episodes=frame.sample(frac=1, random_state=1)))
    assert told["label"].tolist() == list(protocol.WORDS) and set(told["item"]) == {2}
    assert told["called"].tolist() == [N, M, L] and set(told["seed"]) == {0} and set(told["temperature"]) == {0.0}


# By budget ----------------------------------------------------------------------------------------

BY_HAND = {  # right, reward, dollars, violations, calls, dear calls
    "low": (4 / 12, 4 / 12, 5 / 12, 0, 5 / 12, 0),
    "medium": (9 / 12, 8 / 12, 22 / 12, 1 / 12, 11 / 12, 0),
    "high": (11 / 12, 11 / 12, 4.0, 0, 1.0, 1.0),
}


def test_measures_by_budget_are_the_means(results):
    found = common.by_budget(results, "corl")
    assert list(found) == list(protocol.WORDS) and list(found["low"]) == list(common.MEASURES)
    for word, values in BY_HAND.items():
        for column, value in zip(common.MEASURES, values, strict=True):
            holds(found[word][column], value)


EARNED = {  # (arm, style, temperature): questions with a reward under low, medium and high
    ("start", "soft", 0.0): (0, 1, 2), ("corl", "soft", 0.0): (6, 5, 4),
    ("start", "soft", 1.0): (3, 4, 5), ("corl", "soft", 1.0): (4, 4, 4),
    ("start", "hard", 0.0): (1, 1, 1), ("hard", "hard", 0.0): (2, 4, 1),
    ("start", "hard", 1.0): (0, 0, 6), ("hard", "hard", 1.0): (6, 3, 0),
}  # fmt: skip


def test_before_and_after_stand_side_by_side_with_dice_and_without(results):
    table = verdicts.learned_table(paid(results, EARNED))
    assert table["prompts"].tolist() == ["soft"] * 3 + ["hard"] * 3
    assert table["budget"].tolist() == list(protocol.WORDS) * 2
    assert table["reward with dice"].tolist() == [
        "0.50 to 0.67", "0.67 to 0.67", "0.83 to 0.67", "0.00 to 1.00", "0.00 to 0.50", "1.00 to 0.00"]  # fmt: skip
    assert table["reward without"].tolist() == [
        "0.00 to 1.00", "0.17 to 0.83", "0.33 to 0.67", "0.17 to 0.33", "0.17 to 0.67", "0.17 to 0.17"]  # fmt: skip
    dice, none = (table[f"gained {how}"].str.split(" ").str[0].tolist() for how in ("with dice", "without"))
    assert dice == ["0.17", "0.00", "-0.17", "1.00", "0.50", "-1.00"]
    assert none == ["1.00", "0.67", "0.33", "0.17", "0.50", "0.00"]
    assert table["above budget"].tolist() == ["0.00 to 0.00", "0.00 to 0.08", "0.00 to 0.00"] * 2  # without dice
    assert len(table.columns) == 7


def test_gains_are_of_one_arm_at_one_temperature_by_pairs_of_question(results):
    told = paid(results, EARNED)
    for arm, drawn, sixths in (("corl", False, (6, 4, 2)), ("corl", True, (1, 0, -1)), ("hard", True, (6, 3, -6))):
        found = verdicts.gains(told, arm, drawn)
        assert list(found) == list(protocol.WORDS)
        for gap, n in zip(found.values(), sixths, strict=True):
            holds(gap, n / 6)
    everywhere = verdicts.gains(told)["low"]
    assert (everywhere.lo, everywhere.hi) == pytest.approx((1, 1))
    assert verdicts.gains(told, drawn=True)["medium"] == Interval(0.0, 0.0, 0.0)  # the same questions as before


# The best blind mixture for as much ---------------------------------------------------------------

OTHERS = np.array([[0, 1, 1], [0, 0, 1], [1, 1, 1], [0, 1, 1]], float), np.tile([1.0, 2.0, 4.0], (4, 1))


def test_the_gap_is_the_mean_above_the_hull_at_the_same_mean_cost():
    """Others are right in 1/4, 3/4 and 4/4 for 1, 2 and 4; own cost is 3, where the hull is at 7/8."""
    right, dollars = np.array([[1, 0, 1, 1], [1, 1, 1, 1.0]]), np.array([[0, 6, 4, 2], [2, 4, 0, 6.0]])
    gap = common.gap_to_mixtures(right, dollars, *OTHERS, "by hand")
    holds(gap, 7 / 8 - stats.hull_at(np.array([1.0, 2.0, 4.0]), np.array([0.25, 0.75, 1.0]), 3.0))
    holds(common.gap_to_mixtures(right, dollars - 1.5, *OTHERS, "by hand"), 7 / 8 - 1 / 2)
    holds(common.gap_to_mixtures(right, dollars + 9, *OTHERS, "by hand"), 7 / 8 - 1)  # dearer than all: flat


def test_below_the_cheapest_it_is_the_cheapest():
    right, dollars = np.array([[1, 0, 1, 0], [0, 0, 1, 1.0]]), np.full((2, 4), 0.25)
    holds(common.gap_to_mixtures(right, dollars, *OTHERS, "cheap"), 1 / 2 - 1 / 4)


def test_the_gap_to_oneself_is_0_in_every_resample():
    """Who answers and costs as the only other one does resamples along with it, however noisy both are."""
    one = np.array([[1], [0], [1], [0], [0], [1.0]]), np.array([[2], [9], [4], [1], [7], [3.0]])
    gap = common.gap_to_mixtures(*(np.tile(column.T, (2, 1)) for column in one), *one, "itself")
    assert verdicts.verdict(gap) == "no difference"


def test_the_gap_s_interval_widens_with_questions_and_with_seeds_that_differ():
    n = 60
    others, dollars = (np.full((n, 1), 0.25), np.full((n, 1), 1.0)), np.ones((2, n))

    def gap(right) -> Interval:
        found = common.gap_to_mixtures(right, dollars, *others, "noise")
        holds(found, 0.25)
        return found

    calm, half = gap(np.full((2, n), 0.5)), np.tile(np.arange(n) < n / 2, (2, 1)).astype(float)
    assert calm.hi - calm.lo < 1e-9
    noisy = gap(half)  # by hand: 2 * 1.96 * sqrt(0.25 / 60), by sqrt(2 / 1) for two seeds
    assert noisy.hi - noisy.lo == pytest.approx(2 * 1.96 * (0.25 / n) ** 0.5 * 2**0.5, rel=0.1)
    seeds = gap(np.repeat([[0.4], [0.6]], n, axis=1))  # a quarter of resamples holds but one seed, deviation 0.1
    assert (seeds.lo, seeds.hi) == pytest.approx((0.25 - 0.1 * 2**0.5, 0.25 + 0.1 * 2**0.5), abs=0.02)
    both = gap(half * [[1.2], [0.8]])
    assert both.hi - both.lo > max(noisy.hi - noisy.lo, seeds.hi - seeds.lo)


# Over training ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("updates", "n"), [(1, 1), (2, 1), (6, 1), (10, 2), (13, 3), (28, 6)])
def test_a_fifth_of_the_updates_is_rounded_and_never_empty(updates, n):
    """A fifth of 6 is 1.2, of 13 is 2.6, of 28 is 5.6."""
    part = pd.DataFrame({"update": np.repeat(np.arange(updates), 3)}).sample(frac=1, random_state=0)
    first, last = (sorted(set(part.loc[where, "update"])) for where in training._fifths(part))
    assert first == list(range(n)) and last == list(range(updates - n, updates))
    assert [int(where.sum()) for where in training._fifths(part)] == [3 * n, 3 * n]


def test_the_ends_of_a_training_are_fifths_of_its_own_updates(results):
    """Of six updates a fifth is one: the experts are called in the last one alone. Of ten it is two: they are called
    in five."""
    rollouts = results.rollouts
    short = rollouts[rollouts["arm"].isin(["corl", "fixed-low"]) | (rollouts["update"] < 6)]
    told = dataclasses.replace(results, rollouts=short)
    ends = "low 0.00 to 1.00, medium 0.00 to 1.00, high 0.00 to 1.00"
    assert training.prompts_words(told).endswith(f"soft prompts, 10 updates: {ends}. hard prompts, 6 updates: {ends}.")
    assert training.fixed_calls_alt(told).count(f"{L}: 0.00 to 1.00") == 2
    changes = training.as_in_the_paper(told)["change"].tolist()
    assert changes[:3] == ["1.00 [1.00, 1.00]", "0.50 [0.50, 0.50]", "0.50 [0.50, 0.50]"]
    early = rollouts["update"] == 1  # the second of ten is of the first fifth, half of it
    called = rollouts.assign(called=rollouts["called"].where(~early, L), calls=rollouts["calls"].where(~early, 1))
    assert training.prompts_words(dataclasses.replace(results, rollouts=called)).count("0.50 to 1.00") == 6


def panels(figure: Figure) -> dict[str, list]:
    """Lines by the title of their panel, in order."""
    return {axes.get_title(loc="left") or axes.get_title(): axes.get_lines() for axes in figure.axes}


def test_reward_over_training_is_paid_within_the_budget_alone(results):
    """The dear expert is called: under the cheap budget that earns nothing."""
    assert training.fixed_rewards_claim(results) == (
        "Reward, first to last fifth: B affords the cheapest expert 0.00 to 0.00; "
        "B affords the dearest expert 0.00 to 0.50"
    )
    assert "B affords the dearest expert, $ per million questions: 0.00 to 4.00" in training.fixed_rewards_alt(results)


def test_what_the_paper_sees_is_judged_arm_by_arm(results):
    """From no calls to the dear expert in all: right in half, 4 spent, and above the cheap budget alone."""
    table = training.as_in_the_paper(results)
    assert list(table.columns) == ["the paper sees", "here", "change", "is it so"]
    low, high = (common.label(arm) for arm in training.FIXED)
    steady = {value: f"{value} [{value}, {value}]" for value in ("1.00", "0.50", "-1.00", "0.00", "4.00")}
    assert table.to_numpy().tolist() == [
        ["more calls to the dearest expert where B affords it", high, steady["1.00"], "as there"],
        ["r_p rises", low, steady["0.50"], "as there"], ["r_p rises", high, steady["0.50"], "as there"],
        ["r_c falls", low, steady["-1.00"], "as there"], ["r_c falls", high, steady["0.00"], "not clear"],
        ["r rises where B is large", high, steady["0.50"], "as there"],
        ["the price rises", low, steady["4.00"], "as there"], ["the price rises", high, steady["4.00"], "as there"],
        ["a larger B is right more often", training.LARGER, steady["0.00"], "not clear"],
        ["a larger B costs more", training.LARGER, steady["0.00"], "not clear"],
    ]  # fmt: skip


def unseen(results: Results, right: dict[str, tuple[int, int]], price: dict[str, tuple[str, str]]) -> Results:
    """With other last looks at unseen questions: by arm and for each seed, on how many of four it is right, and whom
    it calls. Before the end it is the other way round: who is right then is wrong, and all is free."""
    rows = [
        episode(i, "medium", price[arm][s] if update == 10 else "", (i < n) == (update == 10), 4e-6, arm=arm, seed=s,
                update=update)
        for arm, counts in right.items() for s, n in enumerate(counts) for update in (0, 5, 10) for i in range(4)
    ]  # fmt: skip
    return dataclasses.replace(results, looks=pd.DataFrame(rows).sample(frac=1, random_state=0))


def test_on_unseen_questions_the_larger_budget_is_held_against_the_smaller_by_pairs_of_seed(results):
    """At the end 1 of 4 and 3 of 4 against 0 and 2, so 0.25 in both seeds, however far they are from each other; and 4
    and 2 micro-dollars against 2 and 0."""
    right, price = {"fixed-low": (0, 2), "fixed-high": (1, 3)}, {"fixed-low": (M, ""), "fixed-high": (L, M)}
    table = training.as_in_the_paper(unseen(results, right, price))
    assert table.iloc[-2:].to_numpy().tolist() == [
        ["a larger B is right more often", training.LARGER, "0.25 [0.25, 0.25]", "as there"],
        ["a larger B costs more", training.LARGER, "2.00 [2.00, 2.00]", "as there"],
    ]
    low, high = training.FIXED
    swapped = ({low: found[high], high: found[low]} for found in (right, price))
    table = training.as_in_the_paper(unseen(results, *swapped)).iloc[-2:]
    assert table["is it so"].tolist() == ["the other way"] * 2
    assert table["change"].tolist() == ["-0.25 [-0.25, -0.25]", "-2.00 [-2.00, -2.00]"]


# Table 2 and the plane ----------------------------------------------------------------------------


def test_table_2_has_the_blind_once_and_who_knows_the_budget_under_each(results, rivals):
    """By hand: the best constant is nano, mini, mini in pieces; the oracle takes nano for question 2, mini for 3 and 4,
    large for 5, mini in pieces for 6, as far as the budget goes."""
    table = comparison.table_2(results, rivals, OWN).set_index("model")
    blind = [ITSELF, *(name + suffix for name in PRICE for suffix in ("", " in pieces")), "random"]
    aware = [*(name for name in ROUTERS if name != "random"), "CoRL"]
    assert table.index.tolist() == blind + [f"{name}, {word}" for word in protocol.WORDS for name in aware]
    by_hand = {
        ITSELF: ["0.50 (0.0)", "0.00 (0.0)", "0.00 (0.0)"], M: ["1.00 (2.0)", "1.00 (2.0)", "0.00 (2.0)"],
        f"{N} in pieces": ["1.00 (3.0)", "1.00 (3.0)", "0.00 (3.0)"],
        "best constant, low": ["1.00 (1.0)", "0.00 (1.0)", "0.00 (1.0)"],
        "best constant, medium": ["1.00 (2.0)", "1.00 (2.0)", "0.00 (2.0)"],
        "best constant, high": ["1.00 (5.0)"] * 3,
        "oracle, low": ["1.00 (0.5)", "0.00 (0.0)", "0.00 (0.0)"],
        "oracle, medium": ["1.00 (0.5)", "1.00 (2.0)", "0.00 (0.0)"],
        "oracle, high": ["1.00 (0.5)", "1.00 (2.0)", "1.00 (4.5)"],
        "CoRL, low": ["1.00 (0.5)", "0.00 (0.8)", "0.00 (0.0)"],
        "CoRL, medium": ["1.00 (1.0)", "1.00 (2.0)", "0.25 (2.5)"],
        "CoRL, high": ["1.00 (3.0)", "1.00 (4.0)", "0.75 (5.0)"],
    }  # fmt: skip
    assert {name: table.loc[name, list(OWN.questions)].tolist() for name in by_hand} == by_hand
    shown = table.loc[[M, "oracle, low", "oracle, high", *(f"CoRL, {word}" for word in protocol.WORDS)]]
    assert shown["all"].str.split(" ").str[0].tolist() == ["0.67", "0.33", "1.00", "0.33", "0.75", "0.92"]
    assert shown["$"].tolist() == ["2.0", "0.2", "2.3", "0.4", "1.8", "4.0"]


# What the controller costs itself -----------------------------------------------------------------


OWN_GAPS = (1 / 3 - 1 / 3, 3 / 4 - (2 / 3 + 0.125 / 9), 11 / 12 - (2 / 3 + 2.3 / 9))


def test_the_controller_s_own_cost_by_hand(results):
    """Of the experts alone, the hull goes from (1, 2/6) to (2, 4/6) to mini in pieces (5, 1). Under low nobody is as
    cheap as CoRL, so it is held against nano."""
    table = comparison.own_cost(results).set_index("budget")
    assert list(table.columns) == [
        "tokens", "to experts", "to itself", "together", "accuracy", "minus mixed experts"]  # fmt: skip
    assert table["tokens"].tolist() == ["24.2", "29.2", "30.0"]
    assert table["to experts"].tolist() == pytest.approx([5 / 12, 22 / 12, 4])
    assert table["to itself"].tolist() == pytest.approx([0.01 * (20 + 10 * calls) for calls in (5 / 12, 11 / 12, 1)])
    assert table["together"].tolist() == pytest.approx([0.658333, 2.125, 4.3], abs=1e-5)
    assert table["accuracy"].tolist() == pytest.approx([4 / 12, 9 / 12, 11 / 12])
    for gap, value in zip(table["minus mixed experts"], OWN_GAPS, strict=True):
        assert isinstance(gap, Interval) and gap.lo < gap.hi
        holds(gap, value)


# The claims ---------------------------------------------------------------------------------------


def test_neighbouring_budgets_are_compared_in_pairs(claims):
    order, *_ = claims
    assert list(order) == ["medium minus low", "high minus medium"]
    for row, values in zip(order.values(), [(6 / 12, 0, 17 / 12, 5 / 12), (1 / 12, 1, 26 / 12, 2 / 12)], strict=True):
        for column, value in zip(("calls", "dear calls", "dollars", "right"), values, strict=True):
            holds(row[common.MEASURES[column]], value)


def test_the_best_expert_is_that_of_the_training_questions(results):
    assert verdicts.best_expert(results) == L
    table = results.experts.copy()
    worse = (table["split"] == "train") & (table["strategy"] == L)
    table.loc[worse, "right"] = 0.0
    assert verdicts.best_expert(dataclasses.replace(results, experts=table)) == M


def test_corl_is_compared_with_the_best_expert_question_by_question(claims):
    _, best, _ = claims
    holds(best["right"], 11 / 12 - 5 / 6)
    holds(best["dollars"], 0.0)


def test_gaps_at_equal_cost_by_hand(claims):
    """Random routing is (7/3, 11/18) beside alone (0, 1/6) and large (4, 5/6); the best mixture of single experts
    goes over mini (2, 4/6); that of all constants on to mini in pieces (5, 1)."""
    *_, equal = claims
    random = 1 / 6 + (11 / 18 - 1 / 6) / (7 / 3) * np.array([5 / 12, 22 / 12])
    single = 1 / 6 + 0.25 * np.array([5 / 12, 22 / 12])
    expected = {
        "low": (1 / 3 - random[0], 1 / 3 - single[0], 1 / 3 - single[0]),
        "medium": (3 / 4 - random[1], 3 / 4 - single[1], 3 / 4 - single[1]),
        "high": (11 / 12 - 5 / 6, 11 / 12 - 5 / 6, 11 / 12 - (2 / 3 + 2 / 9)),
    }
    assert list(equal) == list(protocol.WORDS)
    for word, values in expected.items():
        for name, value in zip(verdicts.MIXTURES, values, strict=True):
            holds(equal[word][name], value)


def test_a_verdict_holds_does_not_hold_or_is_undecided():
    assert verdicts.verdict(Interval(0.2, 0.1, 0.3)) == "holds"
    assert verdicts.verdict(Interval(-0.2, -0.3, -0.1)) == "does not hold"
    assert verdicts.verdict(Interval(0.2, -0.1, 0.3)) == "undecided"
    assert verdicts.verdict(Interval(0.2, float("nan"), float("nan"))) == "undecided"
    assert verdicts.verdict(Interval(0.0, 0.0, 0.0)) == "no difference"


def routers() -> pd.DataFrame:
    """Rewards of two routers, in no order: the logistic one is paid for questions 1 and 2 under low, for all under
    medium and for none under high, the other one the other way round."""
    paid_for = {"low": [1, 1, 0, 0, 0, 0], "medium": [1] * 6, "high": [0] * 6}
    rows = [
        {"router": router, "label": word, "item": item, "reward": float(reward if router == "logistic" else 1 - reward)}
        for router in ("cascade", "logistic")
        for word, rewards in paid_for.items()
        for item, reward in enumerate(rewards)
    ]
    return pd.DataFrame(rows).sample(frac=1, random_state=0)


def test_the_reward_is_compared_with_a_router_s_question_by_question(results):
    found = verdicts.against_router(results, routers())
    assert list(found) == list(protocol.WORDS)
    assert found["low"] == Interval(0.0, 0.0, 0.0)  # paid for the same questions as CoRL
    holds(found["medium"], 8 / 12 - 1)
    holds(found["high"], 11 / 12)
    holds(verdicts.against_router(results, routers(), "cascade")["low"], 4 / 12 - 4 / 6)
    assert verdicts.against_router(results, routers(), arm="start")["medium"] == Interval(-1.0, -1.0, -1.0)
    assert verdicts.against_router(results, routers(), drawn=True)["high"] == Interval(0.0, 0.0, 0.0)


def test_the_claims_are_the_paper_s_three_and_one_of_ours(results, claims):
    _, best, gaps = claims
    found = verdicts.claims(results, routers())
    steps = {"medium minus low": (6 / 12, 0, 17 / 12), "high minus medium": (1 / 12, 1, 26 / 12)}
    names = [f"{what}, {step}" for step in steps for what in ("calls", f"calls to {L}", "$ per million")]
    mixed = [f"at equal cost, {word} minus {about}" for word in protocol.WORDS for about in verdicts.MIXTURES.values()]
    routed = [f"reward, {word} minus logistic router" for word in protocol.WORDS]
    assert list(found) == [*names, f"accuracy, high minus {L} alone", *mixed, *routed]
    for name, value in zip(names, [value for values in steps.values() for value in values], strict=True):
        holds(found[name], value)
    assert found[f"accuracy, high minus {L} alone"] == best["right"]
    assert [found[name] for name in mixed] == [gap for row in gaps.values() for gap in row.values()]
    for name, value in zip(routed, (0, 8 / 12 - 1, 11 / 12), strict=True):
        holds(found[name], value)


@pytest.fixture(scope="module")
def judged(results):
    """The table of claims, and the same where the best expert is right on every test question."""
    table = results.experts.copy()
    table.loc[(table["strategy"] == L) & (table["split"] == "test"), "right"] = 1.0
    with threadpool_limits(1):
        return [verdicts.claims_table(r, routers()) for r in (results, dataclasses.replace(results, experts=table))]


# A budget in numbers ------------------------------------------------------------------------------


def test_asked_and_spent_by_hand(results):
    asked, before = numbers.asked_and_spent(results), numbers.asked_and_spent(results, "start")
    assert asked["asked"].tolist() == before["asked"].tolist() == [1, 8, 40]
    for table, calls in ((asked, NUMBERS), (before, AT_FIRST)):
        for row, n in zip(table.to_dict("records"), calls.values(), strict=True):
            holds(row["dollars"], 4 * n / 6)
            holds(row["right"], n / 6)


def test_the_table_of_numbers_by_hand(results):
    """The best constant is nano (2/6) under 1, and mini in pieces (6/6) under 8 and 40. Before training one question
    goes to the large expert, which is above the budget of 1 alone."""
    asked, before = numbers.asked_and_spent(results), numbers.asked_and_spent(results, "start")
    table = numbers.numbers_table(asked, before, results)
    assert list(table.columns) == ["B", "reward", "minus best constant", "spent", "above B", "before"]
    assert table["B"].tolist() == [1, 8, 40]
    value = table[list(table.columns[1:])].map(lambda text: text.split(" ")[0])
    assert value.to_numpy().T.tolist() == [
        ["0.00", "0.33", "0.83"], ["-0.33", "-0.67", "-0.17"], ["0.00", "1.33", "3.33"], ["0.00"] * 3,
        ["0.17", "0.00", "0.00"],
    ]  # fmt: skip
    assert all(table[c].str.endswith("]").all() for c in table.columns[1:-1])
    assert table["minus best constant"].tolist()[1].startswith("-0.67 [-1.")  # below -2/3: an interval of its own


def test_the_mean_gap_by_hand(results):
    """After training 0, 2/6 and 5/6 against 2/6, 1 and 1; before it 0, 1/6 and 1/6, for under 1 it spends 4."""
    holds(numbers.mean_gap(results), (-2 / 6 - 4 / 6 - 1 / 6) / 3)
    holds(numbers.mean_gap(results, "start"), (-2 / 6 - 5 / 6 - 5 / 6) / 3)
    assert numbers.mean_gap(results).hi < 0 and numbers.mean_gap(study(seeds=1)).known


ALONE = [""] * 6, [1, 0, 0, 0, 0, 0]  # nobody is called


def test_the_constant_beside_a_number_was_chosen_on_training_questions(results):
    """There nano is never right and mini in four of six; on test questions mini is wrong on question 2, where nano is
    right. Under 1 nobody is left but the controller; under 2 mini; under 4 large, under 8 in pieces: 1/6, 3/6, 5/6
    and 1. Who calls nobody is right on question 1."""
    table = results.experts.copy()
    table.loc[(table["split"] == "train") & (table["strategy"] == N), "right"] = 0.0
    table.loc[(table["split"] == "test") & (table["strategy"] == M) & (table["item"] == 1), "right"] = 0.0
    alone = {word: tuple([part] * 2 for part in ALONE) for word in ("001", "002", "004", "008")}
    told = dataclasses.replace(asked_for(results, alone), experts=table)
    asked = numbers.asked_and_spent(told)
    found = numbers.numbers_table(asked, asked, told)
    assert found["minus best constant"].str.split(" ").str[0].tolist() == ["0.00", "-0.33", "-0.67", "-0.83"]
    holds(numbers.mean_gap(told), -(0 + 2 + 4 + 5) / 24)


def test_the_mean_gap_is_paired_by_question_seed_and_number(results):
    """Who does under 1 as nano does has no gap at all; nor has who is paid for question 3 under 1, where nano is
    wrong, and not under 2, where mini is right."""
    nano, both = [1, 1, 0, 0, 0, 0], [1, 1, 1, 0, 0, 0]
    same = asked_for(results, {"001": ([[N] * 6] * 2, [nano] * 2)})
    assert numbers.mean_gap(same) == Interval(0.0, 0.0, 0.0)
    acts = {"001": ([[N] * 6] * 2, [both] * 2), "002": ([[M] * 6] * 2, [[1, 1, 0, 1, 0, 0]] * 2)}
    assert numbers.mean_gap(asked_for(results, acts)) == Interval(0.0, 0.0, 0.0)
    acts["001"] = [[N] * 6] * 2, [both, nano]  # in the second seed question 3 is lost under 2 alone
    gap = numbers.mean_gap(asked_for(results, acts))
    holds(gap, -1 / 24)
    assert gap.lo < -1 / 24 < gap.hi


# 7 of 24 are above the budget. Under 1 somebody would be paid for questions 1 and 2, under 4 for 1 to 5 (for 3 mini,
# where large, the best under 4, is wrong): of the seven for 2 and 1 under 1, for 3 and 5 under 4. Right: 2, 4 and 5
# under 1.
BROKEN = {
    "001": ([["", M, N, M, "", ""], [L, "", "", "", L, ""]], [[1, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0]]),
    "004": ([["", "", f"{M} {L}", "", "", f"{L} {L}"], ["", L, "", "", f"{L} {N}", ""]],
            [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]]),
}  # fmt: skip


def test_whether_a_budget_was_broken_in_vain_by_hand(results):
    table = results.experts.copy()
    table.loc[(table["split"] == "test") & (table["strategy"] == L) & (table["item"] == 2), "right"] = 0.0
    told = dataclasses.replace(asked_for(results, BROKEN), experts=table)
    assert numbers.numbers_words(told) == (
        "A budget was broken on 29% of the test questions. On 57% of these some constant would have been paid within "
        "it, and 43% were answered rightly, for nothing."
    )
    asked = numbers.asked_and_spent(told)
    table = numbers.numbers_table(asked, asked.assign(violations=asked["reward"]), told)
    assert table["above B"].str[:5].tolist() == ["0.33 ", "0.25 "]
    # paid for question 1 in one seed under 1; for 1 in both and 2 in one under 4; large has 4/6
    assert table["before"].tolist() == table["reward"].str[:4].tolist() == ["0.08", "0.25"]
    holds(numbers.mean_gap(told), (1 / 12 - 2 / 6 + 3 / 12 - 4 / 6) / 2)


GAP, FIRST_GAP = Interval(-0.125, -0.5, 0.25), Interval(0.375, 0.125, 0.75)


def marked(figure) -> list[list[float]]:
    """Where a ring points a place out."""
    rings = [line for line in figure.axes[0].lines if line.get_gid() == "ring"]
    return [[line.get_xdata()[0], line.get_ydata()[0]] for line in rings]


# What else could have been done -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "twelfths"),
    [
        ("low", (4, 0, 0, 8)),  # nano, bought for question 2, is the cheapest that is right
        # mini for question 2, where nano would do, in both seeds; on 5 and 6 nobody within the budget is right, not
        # even mini asked twice, who is right on 6 for too much
        ("medium", (6, 2, 0, 4)),
        # at no limit large is needed for 5, once taken and once not, and for 6 unless it is asked twice, which costs
        # more than mini in pieces; for 2 to 4, and in one seed for 1, somebody cheaper would do
        ("high", (3, 8, 1, 0)),
    ],
)
def test_regrets_by_hand_share_all_questions(results, word, twelfths):
    table = episodes.regrets(results, word)
    assert table["share of questions"].tolist() == pytest.approx([n / 12 for n in twelfths])
    assert table["share of questions"].sum() == pytest.approx(1)
    assert table["CoRL"].str.split(" ").str[0].tolist() == ["earned", "earned", "missed", "missed"]


# Metrics and the finding --------------------------------------------------------------------------


def test_metrics_are_the_means(results, rivals):
    found = verdicts.metrics(results, rivals, PARAMS)
    assert found["backend"] == "lab"
    for word, (right, reward, dollars, over, calls, dear) in BY_HAND.items():
        holds(found[f"corl.{word}.accuracy"], right)
        holds(found[f"corl.{word}.reward"], reward)
        holds(found[f"corl.{word}.dollars_per_million"], dollars)
        assert found[f"corl.{word}.dollars"].value == pytest.approx(dollars / 1e6)
        assert found[f"corl.{word}.dollars"].hi == pytest.approx(found[f"corl.{word}.dollars_per_million"].hi / 1e6)
        holds(found[f"corl.{word}.violations"], over)
        holds(found[f"corl.{word}.calls"], calls)
        holds(found[f"corl.{word}.calls_large"], dear)
        assert found[f"budget.{word}.dollars"] == WORDS[word]


def test_metrics_of_rivals_are_the_means(results, rivals):
    found = verdicts.metrics(results, rivals, PARAMS)
    for name, right in (("nano", 2 / 6), ("mini", 4 / 6), ("large", 5 / 6)):
        holds(found[f"expert.{name}.accuracy"], right)
        assert found[f"expert.{name}.dollars"] == pytest.approx(PRICE[f"lab-{name}"])
        holds(found[f"expert.{name}.high.reward"], right)
    assert found["expert.large.low.reward"].value == 0
    random = rivals[(rivals["router"] == "random") & (rivals["label"] == "high")]
    holds(found["random.accuracy"], random["right"].mean())
    holds(found["controller_alone.accuracy"], 1 / 6)
    holds(found["mini_in_pieces.high.reward"], 1.0)
    assert found["oracle.high.reward"].value == 1.0


def equal(value: float) -> dict:
    """The same gap to all mixtures, clear of 0."""
    return {w: dict.fromkeys(verdicts.MIXTURES, Interval(value, value - 0.1, value + 0.1)) for w in protocol.WORDS}


RISING, FALLING, FLAT = Interval(1, 0.5, 1.5), Interval(-1, -1.5, -0.5), Interval(0.0, -0.5, 0.5)


def finding(results: Results, rivals: pd.DataFrame) -> str:
    """Of a study as it is; what rivals do rests on its experts alone."""
    claims = verdicts.order_claims(results), verdicts.against_best(results), verdicts.at_equal_cost(results)
    return verdicts.finding(results, *claims, verdicts.against_router(results, rivals), numbers.mean_gap(results))


# Where there is little to say ---------------------------------------------------------------------


def everything(results) -> list[str]:
    """Every function of the lesson on one study; the sentences."""
    rivals = comparison.compared(results)
    order, best, equal = verdicts.order_claims(results), verdicts.against_best(results), verdicts.at_equal_cost(results)
    asked, before = numbers.asked_and_spent(results), numbers.asked_and_spent(results, "start")
    number, start = numbers.mean_gap(results), numbers.mean_gap(results, "start")
    points, rewards = (
        comparison.plane_points(results, rivals),
        comparison.reward_rows(results, rivals),
    )
    drawn = [
        training.calls_over_training(results), training.fixed_calls(results), training.fixed_rewards(results),
        training.fixed_looks(results), numbers.calibration(asked, before, number, start), numbers.front(asked, results),
        numbers.front(asked, results, 8),
        drawing.plane(points, None, comparison.plane_claim(points), line="mixtures"),
        comparison.rewards_figure(rewards),
    ]  # fmt: skip
    assert all(isinstance(figure, Figure) and figure.axes for figure in drawn)
    judged, charged, regrets = (
        verdicts.claims_table(results, rivals),
        comparison.own_cost(results),
        episodes.regrets(results),
    )
    tables = [
        experts.price_table(results, OWN), experts.budget_table(results), verdicts.learned_table(results),
        comparison.table_2(results, rivals, OWN), numbers.numbers_table(asked, before, results), judged, charged,
        regrets, episodes.counterfactuals(results), verdicts.rule_table(results, OWN), episodes.telling(results),
        training.as_in_the_paper(results),
    ]  # fmt: skip
    assert regrets["share of questions"].sum() == pytest.approx(1)
    assert all(len(table) for table in tables)
    assert episodes.episode_html(episodes.telling(results), "c")[0] and verdicts.metrics(results, rivals, PARAMS)
    alts = [
        training.ratio_alt(results), training.fixed_calls_alt(results), training.fixed_rewards_alt(results),
        numbers.calibration_alt(asked, before), numbers.front_alt(asked), comparison.plane_alt(points),
        comparison.reward_alt(rewards),
        comparison.own_cost_words(charged), verdicts.claims_words(judged), episodes.regrets_words(regrets),
        numbers.numbers_words(results), training.prompts_words(results), verdicts.learned_words(results),
    ]  # fmt: skip
    routed = verdicts.against_router(results, rivals)
    return [*map(title, drawn), *alts, verdicts.finding(results, order, best, equal, routed, number)]
