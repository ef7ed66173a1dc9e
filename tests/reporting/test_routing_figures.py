"""Lesson 05's figures, tables and sentences say what their numbers say.

The study here is made up so that its means can be worked out on paper: six questions of difficulty 1 to 6, two
seeds, experts that cost 1, 2 and 4 micro-dollars a question, the same in pieces for 3, 5 and 9.
"""

import dataclasses
import json
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from threadpoolctl import threadpool_limits

from lib import params
from lib.reporting import figures
from lib.reporting import replay as replayed
from lib.reporting import routing as draw
from lib.routing import protocol, replay
from lib.routing.arms import Budgets
from lib.routing.baselines import ITSELF, ROUTERS
from lib.routing.study import Results
from lib.stats import Interval
from tests.routing.test_replay import SETTINGS as REPLAY
from tests.routing.test_replay import table as recorded

PARAMS = params.load("smoke")
OWN = PARAMS.routing
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
WILD = {word: ACTS[word] for word in WORDS} | {"low": ACTS["high"], "high": ACTS["low"]}  # budgets misread
NUMBERS = {"001": 0, "008": 2, "040": 5}  # label -> questions on which it calls the large expert


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
        "item": item, "difficulty": item + 1, "label": word, "budget": budget, "right": float(right), "within": within,
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
    for word, n in NUMBERS.items():
        for s in range(seeds):
            called = [L if i < n else "" for i in range(6)]
            rows += [
                episode(i, word, called[i], i < n, int(word) * 1e-6, arm="number", seed=s, style="number")
                for i in range(6)
            ]
    return rows


def trained(seeds: int, late: str, updates: int = 10) -> list[dict]:
    """Rollouts: nobody calls in the first half, and `late` is called in the second, where half are right."""
    rows = []
    for arm in ("corl", "hard", *draw.FIXED):
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
        for arm in draw.FIXED
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
                        {"split": split, "item": item, "difficulty": hard, "prompt": f"{split} d{hard} {item} = ?",
                         "strategy": name + suffix, "right": float(right and hard <= reach[name]),
                         "dollars": price[name], "calls": 1 + bool(suffix), "reply": f"r{hard % 2}"}
                    )  # fmt: skip
    return pd.DataFrame(rows)


def study(acts=ACTS, seeds: int = 2, late: str = L, right: bool = True) -> Results:
    own = [
        episode(i, "low", "", float(right and i % 6 == 0), 1e-6, split=split)
        for split, n in (("train", 18), ("test", 6))
        for i in range(n)
    ]
    frames = (pd.DataFrame(rows) for rows in (all_tests(acts, seeds), trained(seeds, late), looked(seeds, late), own))
    empty = pd.DataFrame()
    return Results(strategies(right), *frames, empty, Budgets(WORDS, PRICE, 1e-6), 1e-8, empty)


@pytest.fixture(scope="module")
def results() -> Results:
    return study()


@pytest.fixture(scope="module")
def rivals(results) -> pd.DataFrame:
    with threadpool_limits(1):
        return draw.compared(results)


@pytest.fixture(scope="module")
def claims(results):
    """What three sentences of the paper come to: order, best, equal."""
    return draw.order_claims(results), draw.against_best(results), draw.at_equal_cost(results)


def title(figure: Figure) -> str:
    return " ".join(figure.get_suptitle().split())


def holds(found: Interval, value: float) -> None:
    """A value worked out by hand, inside its own interval."""
    assert found.value == pytest.approx(value, abs=1e-9)
    assert found.lo <= found.value <= found.hi


# Names --------------------------------------------------------------------------------------------


def test_arms_have_their_labels_and_variants_their_own_name():
    assert draw.label("number") == "CoRL, budget as a number" and draw.label("corl-no-kl") == "corl-no-kl"


def test_stand_ins_among_the_experts_are_told_and_decide_the_backend():
    assert draw.stand_ins(PARAMS) == "" and draw.backend(PARAMS) == "lab"
    mixed = params.settings(profile="smoke", routing={"experts": {"lab-nano": "scripted-small"}})
    assert draw.stand_ins(mixed) == " (lab-nano: scripted stand-in)" and draw.backend(mixed) == "scripted"


def test_every_difficulty_has_its_set():
    assert draw.set_name(pd.Series([1, 4, 6]), OWN).tolist() == ["short", "middle", "long"]


# Prices and budgets -------------------------------------------------------------------------------


def test_prices_stand_beside_what_they_buy(results):
    table = draw.price_table(results, OWN).set_index("expert")
    assert table.index.tolist() == list(PRICE)
    assert table["right, short"].tolist() == [1, 1, 1] and table["right, middle"].tolist() == [0, 1, 1]
    assert table["right, long"].tolist() == [0, 0, 0.5]
    assert table["$ per million"].tolist() == pytest.approx([1, 2, 4])
    assert table["budget for a call"].tolist() == pytest.approx([1, 2, 4])


def test_a_budget_is_told_in_calls_unless_there_is_no_limit(results):
    table = draw.budget_table(results).set_index("word")
    assert table.index.tolist() == list(protocol.WORDS)
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
    markup, plain = draw.episode_html(odd_episode(), 'caption "one" <b>')
    assert "<s>" not in markup and "<call>" not in markup and "<b>" not in markup
    assert "1 &lt; 2 &amp; 3" in markup and 'aria-label="caption &quot;one&quot; &lt;b&gt;"' in markup
    assert [line.split()[0] for line in plain.splitlines()[:4]] == ["prompt", "controller", "lab-mini", "nobody"]
    assert "<s> 1 < 2 & 3" in plain  # plain text is not escaped


def test_the_mask_is_1_for_the_controller_and_0_for_everybody_else():
    markup, plain = draw.episode_html(odd_episode(), "c")
    learned = [part for part in markup.split("<p style")[1:] if "mask 1, learned" in part]
    (own,) = learned
    assert "<strong>&lt;call&gt; x</strong>" in own and markup.count("<strong>") == 1
    assert markup.count("mask 0, read only") == 3
    assert [("mask 1" in line) for line in plain.splitlines()[:4]] == [False, True, False, False]


def test_an_episode_s_price_and_end_are_told():
    markup, plain = draw.episode_html(odd_episode(), "c")
    assert markup.count("per million") == 1 and "$2.0 per million" in markup
    said = "right; spent 2.0, within the budget (B = 2.0); reward 1; 1 calls, 1 malformed turns"
    assert said in markup and plain.splitlines()[-1] == said
    row = episode(0, "low", L, 0, 1e-6)
    assert draw._verdict_words(row).startswith("wrong; spent 4.0, above the budget (B = 1.0); reward 0")
    assert "(no limit)" in draw._verdict_words(episode(0, "high", L, 0, 1000.0))


def test_the_question_that_tells_most_has_every_budget_in_order():
    """Spending rises at both steps on questions 1 and 2 of the first seed; 2 is the harder. Question 5 is as dear
    under every budget, 4 cheaper in the middle, 3 rises once."""
    low, high = [["", N, N, "", L, L], [""] * 6], [["", L, L, M, L, L], [L] * 6]
    results = study({"low": (low, [[0] * 6] * 2), "medium": ACTS["medium"], "high": (high, [[0] * 6] * 2)})
    frame = results.episodes
    frame.loc[(frame["item"] == 5) & (frame["label"] == "medium"), "dollars"] = PRICE[L]
    told = draw.telling(dataclasses.replace(results, episodes=frame.sample(frac=1, random_state=1)))
    assert told["label"].tolist() == list(protocol.WORDS) and set(told["item"]) == {2}
    assert told["called"].tolist() == [N, M, L] and set(told["seed"]) == {0} and set(told["temperature"]) == {0.0}


def test_where_nobody_spends_the_hardest_question_is_told():
    assert set(draw.telling(study(IDLE))["item"]) == {5}


# By budget ----------------------------------------------------------------------------------------

BY_HAND = {  # right, reward, dollars, violations, calls, dear calls
    "low": (4 / 12, 4 / 12, 5 / 12, 0, 5 / 12, 0),
    "medium": (9 / 12, 8 / 12, 22 / 12, 1 / 12, 11 / 12, 0),
    "high": (11 / 12, 11 / 12, 4.0, 0, 1.0, 1.0),
}


def test_measures_by_budget_are_the_means(results):
    found = draw.by_budget(results, "corl")
    assert list(found) == list(protocol.WORDS) and list(found["low"]) == list(draw.MEASURES)
    for word, values in BY_HAND.items():
        for column, value in zip(draw.MEASURES, values, strict=True):
            holds(found[word][column], value)


def test_episodes_with_draws_are_kept_apart(results):
    assert draw.by_budget(results, "corl", drawn=True)["high"]["right"].value == 0
    assert draw.by_budget(results, "corl", drawn=True)["high"]["calls"].value == 1


def test_before_and_after_stand_side_by_side(results):
    table = draw.learned_table(results)
    assert table["prompts"].tolist() == ["soft"] * 3 + ["hard"] * 3
    assert table["budget"].tolist() == list(protocol.WORDS) * 2
    assert table["accuracy"].tolist() == ["0.00 to 0.33", "0.00 to 0.75", "0.00 to 0.92"] * 2
    assert table["reward"].tolist() == ["0.00 to 0.33", "0.00 to 0.67", "0.00 to 0.92"] * 2
    assert table["reward gained"].str[:5].tolist() == ["0.33 ", "0.67 ", "0.92 "] * 2
    assert table["above budget"].tolist() == ["0.00 to 0.00", "0.00 to 0.08", "0.00 to 0.00"] * 2
    assert table[draw.MONEY].tolist() == ["0.0 to 0.4", "0.0 to 1.8", "0.0 to 4.0"] * 2
    assert table["reward, drawn"].eq("0.00 to 0.00").all()


# Over training ------------------------------------------------------------------------------------


def test_figure_3_has_a_title_and_words_from_the_numbers(results):
    figure = draw.calls_over_training(results)
    assert title(figure) == draw.ratio_claim(results)
    assert title(figure).startswith(f"{L} is called on a share of, at the end: soft low ")
    assert title(draw.calls_over_training(study(late=""))).count("0.00") == 6
    alt = draw.ratio_alt(results)
    assert alt.count(" to ") >= 12 and all(word in alt for word in protocol.WORDS)
    assert draw.ratio_alt(study(late="")).count("0.00 to 0.00") >= 6
    told = draw.prompts_words(results)
    assert "soft prompts, " in told and "hard prompts, " in told and told.count(" to ") >= 6


def test_figure_3_tells_any_expert_from_the_dearest(results):
    """Where the small expert is called, the dearest one's share stays 0."""
    seen = {}
    for axes in draw.calls_over_training(study(late=N)).axes:
        name = axes.get_title(loc="left") or axes.get_title()
        seen[name] = max(float(np.max(line.get_ydata())) for line in axes.get_lines() if len(line.get_ydata()))
    assert {name.split(": ")[1]: top for name, top in seen.items()} == {"any expert called": 1.0, f"{L} called": 0.0}
    assert len(seen) == 4 and sum(name.startswith("soft") for name in seen) == 2


@pytest.mark.parametrize(
    ("make", "claim", "alt", "told"),
    [
        (draw.fixed_calls, draw.fixed_calls_claim, draw.fixed_calls_alt, "0.00 to 1.00"),
        (draw.fixed_rewards, draw.fixed_rewards_claim, draw.fixed_rewards_alt, "0.00 to 0.50"),
        (draw.fixed_looks, draw.looks_claim, draw.looks_claim, "0.50 right for $4.0"),
    ],
)
def test_figures_of_fixed_budgets_have_titles_and_words_from_the_numbers(results, make, claim, alt, told):
    figure = make(results)
    assert title(figure) == claim(results) and told in title(figure) and told in alt(results)
    assert all(draw.label(arm) in alt(results) for arm in draw.FIXED)
    assert title(make(study(late=""))) != title(figure) and told not in alt(study(late=""))


def test_reward_over_training_is_paid_within_the_budget_alone(results):
    """The dear expert is called: under the cheap budget that earns nothing."""
    assert draw.fixed_rewards_claim(results) == (
        "Reward, first to last fifth: B affords the cheapest expert 0.00 to 0.00; "
        "B affords the dearest expert 0.00 to 0.50"
    )
    assert "B affords the dearest expert, $ per million questions: 0.00 to 4.00" in draw.fixed_rewards_alt(results)


# Table 2 and the plane ----------------------------------------------------------------------------


def test_table_2_has_everybody_per_set(results, rivals):
    table = draw.table_2(results, rivals, OWN).set_index("model")
    pieces = [name + suffix for name in PRICE for suffix in ("", " in pieces")]
    assert table.index.tolist() == [ITSELF, *pieces, *ROUTERS, "CoRL, low", "CoRL, medium", "CoRL, high"]
    assert table.loc[M, list(OWN.sets)].tolist() == ["1.00 for 2.0", "1.00 for 2.0", "0.00 for 2.0"]
    assert table.loc["CoRL, high", list(OWN.sets)].tolist() == ["1.00 for 3.0", "1.00 for 4.0", "0.75 for 5.0"]
    assert table.loc["CoRL, low", list(OWN.sets)].tolist() == ["1.00 for 0.5", "0.00 for 0.8", "0.00 for 0.0"]
    assert table.loc[[M, "CoRL, high", "oracle"], "all"].str[:5].tolist() == ["0.67 ", "0.92 ", "1.00 "]
    assert table.loc[[M, "CoRL, high", "CoRL, low"], "all, $"].tolist() == [2.0, 4.0, 0.4]


def test_rewards_of_everybody_end_with_corl(results, rivals):
    rows = draw.reward_rows(results, rivals)
    assert list(rows)[-len(ROUTERS) - 1 :] == [*ROUTERS, "CoRL"] and set(rows["CoRL"]) == set(protocol.WORDS)
    for word, values in BY_HAND.items():
        holds(rows["CoRL"][word], values[1])
    assert rows[L]["low"].value == 0 and rows[L]["high"].value == pytest.approx(5 / 6)
    assert "low 0.33" in draw.reward_claim(rows) and "(best baseline: " in draw.reward_claim(rows)
    alt = draw.reward_alt(rows)
    assert all(name in alt for name in rows) and "CoRL low 0.33, medium 0.67, high 0.92" in alt


def test_the_best_baseline_in_a_title_is_not_the_oracle():
    def row(value):
        return {word: Interval(value, value, value) for word in protocol.WORDS}

    rows = {"lab-nano": row(0.3), "logistic": row(0.6), "oracle": row(0.9), "CoRL": row(0.5)}
    assert draw.reward_claim(rows).count("best baseline: logistic, 0.60") == 3


def test_the_plane_has_constants_random_and_corl(results, rivals):
    points = draw.plane_points(results, rivals)
    assert set(points) == {ITSELF, *PRICE, *(f"{e} in pieces" for e in PRICE), "random"} | {
        f"CoRL, {word}" for word in protocol.WORDS
    }
    for word, (right, _, dollars, *_) in BY_HAND.items():
        cost, quality = points[f"CoRL, {word}"]
        holds(cost, dollars)
        holds(quality, right)
    assert points[f"{M} in pieces"][0].value == pytest.approx(5) and points[f"{M} in pieces"][1].value == 1
    claim = draw.plane_claim(points)
    assert claim.endswith("low 0.33 for $0.4, medium 0.75 for $1.8, high 0.92 for $4.0")
    alt = draw.plane_alt(points)
    assert all(f"{name}: {q.value:.2f} right for ${c.value:.1f}" in alt for name, (c, q) in points.items())
    assert title(figures.cost_quality(points, claim, draw.MONEY, "accuracy")) == claim


# What the controller costs itself -----------------------------------------------------------------


def test_the_controller_s_own_cost_by_hand(results):
    """Of the experts alone, the hull goes from (1, 2/6) to (2, 4/6) to mini in pieces (5, 1)."""
    table = draw.own_cost(results).set_index("budget")
    assert table["tokens per question"].tolist() == [24.2, 29.2, 30.0]
    assert table["paid to experts"].tolist() == pytest.approx([5 / 12, 22 / 12, 4])
    assert table["controller"].tolist() == pytest.approx([0.01 * (20 + 10 * calls) for calls in (5 / 12, 11 / 12, 1)])
    assert table["together"].tolist() == pytest.approx([0.658333, 2.125, 4.3], abs=1e-5)
    assert table["accuracy"].tolist() == pytest.approx([4 / 12, 9 / 12, 11 / 12])
    buys = table["blind mixture of experts for the same"].tolist()
    assert np.isnan(buys[0]) and buys[1:] == pytest.approx([2 / 3 + 0.125 / 9, 2 / 3 + 2.3 / 9])


def test_the_words_name_the_budgets_under_which_the_controller_is_worth_it():
    table = pd.DataFrame({"budget": list(protocol.WORDS), "accuracy": [0.5, 0.5, 0.5]})
    column = "blind mixture of experts for the same"
    assert draw.own_cost_words(table.assign(**{column: [0.4, 0.4, 0.6]})).endswith("under low and medium.")
    assert draw.own_cost_words(table.assign(**{column: [0.6, 0.4, 0.6]})).endswith("under medium.")
    assert draw.own_cost_words(table.assign(**{column: [0.4] * 3})).endswith("under low, medium and high.")
    assert draw.own_cost_words(table.assign(**{column: [0.9] * 3})).endswith("under no budget.")


# The claims ---------------------------------------------------------------------------------------


def test_neighbouring_budgets_are_compared_in_pairs(claims):
    order, *_ = claims
    assert list(order) == ["medium minus low", "high minus medium"]
    for row, values in zip(order.values(), [(6 / 12, 0, 17 / 12, 5 / 12), (1 / 12, 1, 26 / 12, 2 / 12)], strict=True):
        for column, value in zip(("calls", "dear calls", "dollars", "right"), values, strict=True):
            holds(row[draw.MEASURES[column]], value)


def test_the_best_expert_is_that_of_the_training_questions(results):
    assert draw.best_expert(results) == L
    table = results.experts.copy()
    worse = (table["split"] == "train") & (table["strategy"] == L)
    table.loc[worse, "right"] = 0.0
    assert draw.best_expert(dataclasses.replace(results, experts=table)) == M


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
        for name, value in zip(draw.MIXTURES, values, strict=True):
            holds(equal[word][name], value)


def test_a_verdict_holds_does_not_hold_or_is_undecided():
    assert draw.verdict(Interval(0.2, 0.1, 0.3)) == "holds"
    assert draw.verdict(Interval(-0.2, -0.3, -0.1)) == "does not hold"
    assert draw.verdict(Interval(0.2, -0.1, 0.3)) == "undecided"
    assert draw.verdict(Interval(0.2, float("nan"), float("nan"))) == "undecided"
    assert draw.verdict(Interval(0.0, 0.0, 0.0)) == "no difference at all"


def test_every_claim_has_its_difference_and_verdict(results, claims):
    _, best, _ = claims
    table = draw.claims_table(results)
    words = {"holds", "does not hold", "undecided", "no difference at all", f"cannot hold: {L} is always right"}
    assert len(table) == 2 * 3 + 1 + 3 * 3 and set(table["verdict"]) <= words
    told = table.set_index("to be above 0")
    assert told.loc["calls to the dearest expert: high minus medium", "verdict"] == "holds"
    assert told.loc["calls to the dearest expert: medium minus low", "verdict"] == "no difference at all"
    assert told.loc[f"accuracy: high minus {L} alone", "after"] == str(best["right"])
    assert sum(name.startswith("accuracy at equal cost, low: minus") for name in told.index) == 3
    assert (told["before training"] != told["after"]).any()


# A budget in numbers ------------------------------------------------------------------------------


def test_asked_and_spent_by_hand(results):
    asked = draw.asked_and_spent(results)
    assert asked["asked"].tolist() == [1, 8, 40]
    for row, n in zip(asked.to_dict("records"), NUMBERS.values(), strict=True):
        holds(row["dollars"], 4 * n / 6)
        holds(row["right"], n / 6)
    table = draw.numbers_table(asked)
    assert table[f"asked, {draw.MONEY}"].tolist() == [1, 8, 40] and len(table) == 3
    assert table["accuracy"].str[:4].tolist() == ["0.00", "0.33", "0.83"]
    assert table["above budget"].str[:4].tolist() == ["0.00"] * 3


def of_numbers(*found: tuple[float, float]) -> pd.DataFrame:
    """What is spent, and how often that is above the budget, for 1, 10, 100, ..."""
    rows = [
        {c: Interval(over if c == "violations" else x, x, x) for c in draw.MEASURES} | {"asked": 10**i}
        for i, (x, over) in enumerate(found)
    ]
    return pd.DataFrame(rows)


def test_calibration_is_said_and_drawn(results):
    asked = draw.asked_and_spent(results)
    before = of_numbers((0.5, 0.0), (0.5, 0.0), (0.5, 0.0)).assign(asked=asked["asked"])
    figure = draw.calibration(asked, before)
    assert title(figure) == draw.calibration_claim(asked, before)
    assert title(figure).startswith("Asked 1 to 40, before training it spends 0.5 to 0.5 (rank correlation")
    assert "after training it spends 0.0 to 3.3 (rank correlation with the number 1.00" in title(figure)
    falling = of_numbers((3.0, 0.5), (2.0, 0.2), (1.0, 0.25))
    assert "after training it spends 1.0 to 3.0 (rank correlation with the number -1.00" in draw.calibration_claim(
        falling, falling
    )
    alt = draw.calibration_alt(asked, before)
    assert "asked 8: spent 1.3 (before training 0.5), above in 0%" in alt and "asked 40: spent 3.3" in alt


def marked(figure: Figure) -> list[list[float]]:
    """Where the ring is."""
    return [line.get_xydata()[0].tolist() for line in figure.axes[0].get_lines() if line.get_markersize() == 15]


def test_the_front_is_drawn_whole_and_for_one_budget(results):
    asked = draw.asked_and_spent(results)
    whole, one = draw.front(asked, results), draw.front(asked, results, 8)
    assert title(whole) == draw.front_claim(asked)
    assert title(whole) == "Budgets in numbers as points: asked 1, 0.00 right for 0.0; asked 40, 0.83 right for 3.3"
    assert title(one) == "Asked 8: spends 1.3, 0.33 right, 0.3 calls, above the budget in 0%"
    assert title(draw.front(asked, results, 40)) != title(one)
    assert marked(whole) == [] and marked(one) == [pytest.approx([4 * 2 / 6, 2 / 6])]
    for figure in (whole, one):
        notes = {text.get_text() for text in figure.axes[0].texts}
        assert notes == {"1", "8", "40", ITSELF, *(f"{e}{w}" for e in ("nano", "mini", "large")
                                                   for w in ("", " in pieces"))}  # fmt: skip
    assert "8: 0.33 for 1.3" in draw.front_alt(asked) and "40: 0.83 for 3.3" in draw.front_alt(asked)


def test_budgets_in_a_row_at_nearly_the_same_point_share_a_label():
    names, cost, right = [1, 2, 5, 9, 20], [0.0, 1.0, 1.2, 1.25, 3.0], [0.1, 0.5, 0.52, 0.6, 0.6]
    assert draw._labelled(names, cost, right) == [
        ("1", (0.0, 0.1)), ("2 to 5", (1.0, 0.5)), ("9", (1.25, 0.6)), ("20", (3.0, 0.6))]  # fmt: skip


# What else could have been done -------------------------------------------------------------------


def test_alternatives_are_those_of_the_tables(results):
    table = draw.counterfactuals(results, "medium", n=6)
    assert table["question"].tolist() == [f"test d{i + 1} {i} = ?" for i in range(6)]
    assert table["CoRL called"].tolist() == ["nobody", *[M] * 5]
    assert table["CoRL"].tolist() == ["✓ 0.0", *["✓ 2.0"] * 3, "✗ 2.0", "✗ 2.0"]
    assert table[L].tolist() == [*["✓ 4.0"] * 5, "✗ 4.0"]
    assert table[f"{M} in pieces"].tolist() == ["✓ 5.0"] * 6
    assert table[ITSELF].tolist() == ["✓ 0.0", *["✗ 0.0"] * 5]


def test_fewer_alternatives_come_from_the_whole_range(results):
    assert draw.counterfactuals(results, "low", n=3)["question"].str[:7].tolist() == ["test d1", "test d3", "test d6"]


# Metrics and the finding --------------------------------------------------------------------------


def test_metrics_are_the_means(results, rivals):
    found = draw.metrics(results, rivals, PARAMS)
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
    found = draw.metrics(results, rivals, PARAMS)
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


def finding(results) -> str:
    claims = draw.order_claims(results), draw.against_best(results), draw.at_equal_cost(results)
    return draw.finding(results, *claims)


def test_the_finding_names_the_direction():
    rows = {step: {draw.MONEY: Interval(1, 0.5, 1.5), "calls": Interval(1, 0.5, 1.5)} for step in "ab"}
    gap = {"right": Interval(0.1, 0.05, 0.15)}

    def equal(value):
        return {w: dict.fromkeys(draw.MIXTURES, Interval(value, value - 0.1, value + 0.1)) for w in protocol.WORDS}

    text = draw.finding(study(), rows, gap, equal(0.2))
    assert "rises with the budget (low $0.4, medium $1.8, high $4.0)" in text and "number of calls rises" in text
    assert f"+0.100 [+0.050, +0.150] against {L} alone" in text
    assert "random routing under low, medium and high" in text and "constants under low, medium and high." in text
    falls = {step: {name: Interval(-1, -1.5, -0.5) for name in row} for step, row in rows.items()}
    text = draw.finding(study(), falls, {"right": Interval(-0.1, -0.15, -0.05)}, equal(-0.2))
    assert "does not clearly rise" in text and "calls does not" in text and "-0.100 [-0.150, -0.050]" in text
    assert "random routing under no budget" in text and "constants under no budget." in text


def test_the_finding_tells_calls_from_spending(claims):
    _, best, equal = claims
    flat, rising = Interval(0.0, -0.5, 0.5), Interval(1.0, 0.5, 1.5)
    text = draw.finding(study(), {step: {draw.MONEY: flat, "calls": rising} for step in "ab"}, best, equal)
    assert "questions does not clearly rise" in text and "calls rises" in text


def test_the_finding_of_a_study_and_of_its_opposite(results):
    """Spending rises here by more than chance; with the budgets misread it falls."""
    assert "Spending per million questions rises with the budget" in finding(results)
    opposite = finding(study(WILD))
    assert "does not clearly rise with the budget (low $4.0, medium $1.8, high $0.4)" in opposite
    assert "-0.500" in opposite  # 4/12 against 5/6


# Where there is little to say ---------------------------------------------------------------------


def everything(results) -> list[str]:
    """Every function of the lesson on one study; the sentences."""
    rivals = draw.compared(results)
    order, best, equal = draw.order_claims(results), draw.against_best(results), draw.at_equal_cost(results)
    asked, points, rewards = (
        draw.asked_and_spent(results),
        draw.plane_points(results, rivals),
        draw.reward_rows(results, rivals),
    )
    drawn = [
        draw.calls_over_training(results), draw.fixed_calls(results), draw.fixed_rewards(results),
        draw.fixed_looks(results), draw.calibration(asked, asked), draw.front(asked, results),
        draw.front(asked, results, 8),
        figures.cost_quality(points, draw.plane_claim(points), draw.MONEY, "accuracy"),
        figures.grouped_points(rewards, draw.reward_claim(rewards), {w: f"reward, {w}" for w in protocol.WORDS}),
    ]  # fmt: skip
    assert all(isinstance(figure, Figure) and figure.axes for figure in drawn)
    tables = [
        draw.price_table(results, OWN), draw.budget_table(results), draw.learned_table(results),
        draw.table_2(results, rivals, OWN), draw.numbers_table(asked), draw.counterfactuals(results),
        draw.claims_table(results), draw.rule_table(results, OWN), draw.own_cost(results), draw.telling(results),
    ]  # fmt: skip
    assert all(len(table) for table in tables)
    assert draw.episode_html(draw.telling(results), "c")[0] and draw.metrics(results, rivals, PARAMS)
    alts = [
        draw.ratio_alt(results), draw.fixed_calls_alt(results), draw.fixed_rewards_alt(results),
        draw.calibration_alt(asked, asked), draw.front_alt(asked), draw.plane_alt(points), draw.reward_alt(rewards),
        draw.own_cost_words(draw.own_cost(results)),
    ]  # fmt: skip
    return [*map(title, drawn), *alts, draw.finding(results, order, best, equal)]


@pytest.mark.parametrize(
    "poor",
    [{"acts": IDLE, "late": ""}, {"acts": IDLE, "late": "", "right": False}, {"seeds": 1}],
    ids=["nobody ever calls", "all are wrong", "one seed"],
)
def test_a_study_with_little_to_say_can_be_told(poor):
    told = everything(study(**poor))
    assert all(told) and not any(re.search(r"\bnan\b", text) for text in told)


def test_one_seed_has_intervals_over_questions():
    found = draw.by_budget(study(seeds=1), "corl")["medium"]["right"]
    assert found.value == pytest.approx(4 / 6) and found.known and found.lo < found.value < found.hi


# The replay ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replays():
    """Curves of a table with three models and one with two, and their summaries."""
    settings = REPLAY.model_copy(update={"updates": 10})
    tables = {"lab": recorded(("small", "middle", "large"), n=120), "gsm8k": recorded(n=120, luck=0.3)}
    with threadpool_limits(1):
        curves = pd.concat([replay.run(table, settings, name) for name, table in tables.items()])
    return tables, curves, {name: replay.summary(curves[curves["table"] == name]) for name in tables}


def test_the_lab_s_table_is_what_the_study_recorded(results):
    table = replayed.lab_table(results)
    assert table.models == tuple(PRICE) and len(table) == 18 + 6
    assert len(set(table.groups)) == 24  # every question a group of its own
    for prompt, right, cost in zip(table.prompts, table.correct, table.cost, strict=True):
        hard = int(prompt.split()[1][1:])
        assert right.tolist() == [hard <= REACH[e] for e in PRICE] and cost.tolist() == list(PRICE.values())


def test_equal_questions_share_a_group(results):
    table = results.experts.assign(prompt=results.experts["prompt"].str.replace("train d1 6 ", "test d1 0 "))
    found = replayed.lab_table(dataclasses.replace(results, experts=table))
    same = [g for p, g in zip(found.prompts, found.groups, strict=True) if p == "test d1 0 = ?"]
    assert len(same) == 2 and len(set(same)) == 1 and len(set(found.groups)) == 23


def test_the_note_says_what_is_replayed_and_what_is_not():
    without, with_ = (replayed.note(REPLAY.model_copy(update={"routellm": place})) for place in (None, "/somewhere"))
    assert "not shipped" in without and "routing.replay.routellm" in without
    assert "not shipped" not in with_ and "MMLU and GSM8K" in with_


def test_without_a_folder_the_lab_s_table_is_all_there_is(results):
    assert list(replayed.tables(results, REPLAY)) == [replayed.LAB]


def test_the_replay_s_figure_has_a_panel_for_every_table(replays):
    _, curves, summaries = replays
    figure = replayed.fronts(curves, summaries)
    assert title(figure) == replayed.claim(summaries)
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["lab experts", "GSM8K: Mixtral and GPT-4"]
    assert {text.get_text() for text in figure.axes[-1].get_legend().get_texts()} == {
        replayed.NAMES[name] for name in replayed.SHOWN
    }
    one = {"lab": summaries["lab"]}
    alone = replayed.fronts(curves[curves["table"] == "lab"], one)
    assert len(alone.axes) == 1 and title(alone) == replayed.claim(one) != title(figure)


@pytest.mark.parametrize(
    ("gap", "word"),
    [
        (Interval(0.1, 0.05, 0.15), "above the best blind mixture (+0.100 AIQ)"),
        (Interval(-0.1, -0.15, -0.05), "below the best blind mixture (-0.100 AIQ)"),
        (Interval(0.1, -0.05, 0.15), "not told apart from the best blind mixture (+0.100 AIQ)"),
    ],
)
def test_the_replay_s_title_says_where_the_router_stands(gap, word):
    assert replayed.claim({"lab": {"corl": {"gap": gap}}}).endswith(f"lab experts: {word}")


def test_the_replay_s_words_hold_every_area(replays):
    *_, summaries = replays
    alt = replayed.alt(summaries)
    for rows in summaries.values():
        assert all(f"{replayed.NAMES.get(r, r)} {row['aiq'].value:.3f}" in alt for r, row in rows.items())


def test_the_replay_s_table_has_a_row_per_router(replays):
    *_, summaries = replays
    three, two = (replayed.table(summaries[name]) for name in ("lab", "gsm8k"))
    assert three.index.tolist() == [replayed.NAMES[router] for router in summaries["lab"]]
    assert three.index.name == "router" and list(three.columns) == ["aiq", "gap"]
    assert set(two.columns) <= set(replayed.KEPT) and "apgr" in two
    value = summaries["lab"]["oracle"]["aiq"].value
    assert three.loc["oracle", "aiq"].startswith(f"{value:.3f}")


def test_what_was_refused_has_its_reason(replays):
    _, curves, _ = replays
    assert replayed.refused(curves, {"lab": None}).empty  # of three models nothing is read off
    equal = curves[curves["table"] == "gsm8k"].copy()
    equal.loc[equal["router"].str.startswith(replay.ALWAYS), "accuracy"] = 0.5  # no gap between weak and strong
    table = replayed.refused(equal, {"gsm8k": None})
    assert {"aiq", "gap"}.isdisjoint(table["metric"]) and {"apgr", "cpt50"} <= set(table["metric"])
    assert set(table["table"]) == {"GSM8K: Mixtral and GPT-4"} and "nearest neighbours" in set(table["router"])
    why = table[table["metric"] == "apgr"]["why it is left out"]
    assert len(why) > 5 and why.str.startswith("2 of 2 splits: there is no gap to recover").all()


def test_the_replay_s_metrics_are_those_of_the_summaries(replays):
    *_, summaries = replays
    found = replayed.metrics(summaries)
    assert found["replay.lab.corl.aiq"] is summaries["lab"]["corl"]["aiq"]
    assert {key.split(".")[-1] for key in found} <= set(replayed.KEPT)
    assert "replay.lab.best_constant.gap" not in found and "replay.gsm8k.random.apgr" in found
    assert len(found) == sum(sum(key in replayed.KEPT for key in row) for s in summaries.values() for row in s.values())
