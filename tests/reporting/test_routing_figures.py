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

from lib import draw as drawing
from lib import params, stats
from lib.reporting import replay as replayed
from lib.reporting.backends import backend
from lib.reporting.routing import common, comparison, episodes, experts, numbers, training, verdicts
from lib.routing import protocol, replay
from lib.routing.arms import Budgets
from lib.routing.baselines import ITSELF, ROUTERS
from lib.routing.outcomes import THEN_ITSELF
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


def test_arms_have_their_labels_and_variants_their_own_name():
    assert common.label("number") == "CoRL, budget as a number" and common.label("corl-no-kl") == "corl-no-kl"


def test_budgets_are_listed_in_a_sentence():
    assert common.listed(["low"]) == "low" and common.listed(["low", "high"]) == "low and high"
    assert common.listed(list(protocol.WORDS)) == "low, medium and high" and common.listed([]) == "none of the budgets"


def test_stand_ins_among_the_experts_are_told_and_decide_the_backend():
    assert experts.stand_ins(PARAMS) == "" and backend(PARAMS.llm, PARAMS.routing.experts) == "lab"
    mixed = params.settings(profile="smoke", routing={"experts": {"lab-nano": "scripted-small"}})
    assert (
        experts.stand_ins(mixed) == " (lab-nano: scripted stand-in)"
        and backend(mixed.llm, mixed.routing.experts) == "scripted"
    )


def test_every_difficulty_has_its_set():
    assert common.set_name(pd.Series([1, 4, 6]), OWN).tolist() == ["short", "middle", "long"]


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


def test_a_dollar_a_question_is_no_limit_and_half_a_dollar_is_one(results):
    words = {"low": 1e-6, "medium": 0.5, "high": common.NO_LIMIT}
    table = experts.budget_table(dataclasses.replace(results, budgets=Budgets(words, PRICE, 1e-6))).set_index("word")
    assert common.NO_LIMIT == 1.0 and table.loc["high"].tolist() == ["no limit", "-", "-", "-"]
    assert table.loc["medium"].tolist() == ["500000.0", "500000.00", "250000.00", "125000.00"]
    assert "(no limit)" in episodes._verdict_words(episode(0, "high", L, 0, 1.0))
    assert "(B = 500000.0)" in episodes._verdict_words(episode(0, "medium", L, 0, 0.5))


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


def test_everybody_has_a_bar_in_a_colour_of_their_own_and_the_prompt_a_grey_one():
    speakers = ["prompt", "controller", *PRICE, "nobody"]
    spoken = json.dumps([(who, f"said by {who}", 0.0) for who in speakers])
    markup, _ = episodes.episode_html(pd.DataFrame([episode(0, "low", "", 1, 1e-6, spoken=spoken)]), "c")
    shades = {}
    for who, part in zip(speakers, markup.split("<p style")[1:], strict=False):
        assert f"said by {who}<" in part and ";color:" not in part
        shades[who] = re.search("5px [a-z]+ (#[0-9a-fA-F]{6});", part).group(1)
    assert len(set(shades.values())) == len(speakers) and shades["prompt"] == drawing.GREY
    assert shades["controller"] == drawing.ink(drawing.colour("CoRL"))  # as in the figures
    assert all(shades[expert] == drawing.ink(drawing.colour(expert)) for expert in PRICE)


def test_an_episode_s_price_and_end_are_told():
    markup, plain = episodes.episode_html(odd_episode(), "c")
    assert markup.count("per million") == 1 and "$2.0 per million" in markup
    said = "right; spent 2.0, within the budget (B = 2.0); reward 1; 1 calls, 1 malformed turns"
    assert said in markup and plain.splitlines()[-1] == said
    row = episode(0, "low", L, 0, 1e-6)
    assert episodes._verdict_words(row).startswith("wrong; spent 4.0, above the budget (B = 1.0); reward 0")
    assert "(no limit)" in episodes._verdict_words(episode(0, "high", L, 0, 1000.0))


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


def test_where_nobody_spends_the_hardest_question_is_told():
    assert set(episodes.telling(study(IDLE))["item"]) == {5}


def test_the_question_that_is_told_ends_as_most_of_its_length_do():
    """Spending rises at both steps on 1, 2 and 4. 4 is the hardest, but unlike 5 and 6, as long, it is right under
    medium; so it is 2, as 3 is right under medium and high, and harder than 1, the only one of its length. On 5 and 6
    spending rises once and never. The other seed ends the other way everywhere."""
    called = {"low": [N, N, N, N, M, N], "medium": [M, M, M, M, M, N], "high": [L, L, M, L, L, N]}
    right = {"low": [1, 0, 0, 0, 0, 0], "medium": [1, 1, 1, 1, 0, 0], "high": [1, 1, 1, 1, 1, 1]}
    results = study({w: ([called[w]] * 2, [right[w], [1 - r for r in right[w]]]) for w in protocol.WORDS})
    lengths = dict(enumerate([2, 3, 3, 4, 4, 4]))
    frame = results.episodes.assign(difficulty=results.episodes["item"].map(lengths)).sample(frac=1, random_state=1)
    told = episodes.telling(dataclasses.replace(results, episodes=frame))
    assert set(told["item"]) == {1} and told["right"].tolist() == [0, 1, 1] and set(told["seed"]) == {0}


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


def test_episodes_with_draws_are_kept_apart(results):
    assert common.by_budget(results, "corl", drawn=True)["high"]["right"].value == 0
    assert common.by_budget(results, "corl", drawn=True)["high"]["calls"].value == 1


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


def test_whether_dice_make_training_look_better_is_told_in_both_directions(results):
    """In sixths, with dice and without: 5 and 2 under low, 0 and 0 under medium, -1 and 1 under high. Hard prompts
    do the opposite."""
    dice = {("start", "soft", 1.0): (0, 3, 4), ("corl", "soft", 1.0): (5, 3, 3)}
    none = {("start", "soft", 0.0): (1, 5, 2), ("corl", "soft", 0.0): (3, 5, 3)}
    hard = {("start", "hard", heat): (3, 3, 3) for heat in (0.0, 1.0)}
    hard |= {("hard", "hard", 1.0): (0, 6, 6), ("hard", "hard", 0.0): (6, 0, 0)}
    assert verdicts.learned_words(paid(results, dice | none | hard)) == (
        "Under soft prompts training gains more with dice than without under low, and less under high."
    )
    swapped = {(arm, style, 1 - heat): earned for (arm, style, heat), earned in (dice | none | hard).items()}
    assert verdicts.learned_words(paid(results, swapped)) == (
        "Under soft prompts training gains more with dice than without under high, and less under low."
    )
    assert verdicts.learned_words(paid(results, EARNED)).endswith(
        "under none of the budgets, and less under low, medium and high."
    )


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


def test_many_equal_mixtures_leave_the_gap_inside_its_interval():
    """The best of many in a resample is better than the best on average: the interval stays around the value."""
    rng = np.random.default_rng(0)
    others = np.stack([rng.permutation(np.arange(40) < 20) for _ in range(8)], axis=1).astype(float)
    for s in (1, 2):
        holds(common.gap_to_mixtures(np.ones((s, 40)), np.full((s, 40), 2.0), others, np.ones((40, 8)), "many"), 0.5)


# Over training ------------------------------------------------------------------------------------


def test_figure_3_has_a_title_and_words_from_the_numbers(results):
    figure = training.calls_over_training(results)
    assert title(figure) == training.ratio_claim(results)
    ends = "low 1.00, medium 1.00, high 1.00"
    assert title(figure) == f"Share of questions on which {L} is called, last fifth: soft {ends}; hard {ends}"
    assert title(training.calls_over_training(study(late=""))).count("0.00") == 6
    alt = training.ratio_alt(results)
    assert alt.count(" to ") >= 12 and all(word in alt for word in protocol.WORDS)
    assert training.ratio_alt(study(late="")).count("0.00 to 0.00") >= 6
    told = training.prompts_words(results)
    ends = "low 0.00 to 1.00, medium 0.00 to 1.00, high 0.00 to 1.00"
    assert told.endswith(f" fifth. soft prompts, 10 updates: {ends}. hard prompts, 10 updates: {ends}.")


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


def test_figure_3_tells_any_expert_from_the_dearest():
    """Where the small expert is called, the dearest one's share stays 0."""
    seen = {
        name: max(float(np.max(line.get_ydata())) for line in lines if len(line.get_ydata()))
        for name, lines in panels(training.calls_over_training(study(late=N))).items()
    }
    assert {name.split(" called: ")[0]: top for name, top in seen.items()} == {"any expert": 1.0, L: 0.0}
    assert len(seen) == 4


def test_figure_3_s_panels_name_prompt_and_number_of_updates_soft_first(results):
    """A shorter training fills the axis as a longer one does."""
    rollouts = results.rollouts
    short = rollouts[(rollouts["arm"] != "hard") | (rollouts["update"] < 6)]
    drawn = panels(training.calls_over_training(dataclasses.replace(results, rollouts=short)))
    assert list(drawn) == [
        "any expert called: soft prompts, 10 updates", f"{L} called: soft prompts, 10 updates",
        "any expert called: hard prompts, 6 updates", f"{L} called: hard prompts, 6 updates",
    ]  # fmt: skip
    for lines in drawn.values():  # the ends are the middles of the first and the last of twelve parts
        places = np.concatenate([line.get_xdata() for line in lines if len(line.get_xdata()) > 2])
        assert (places.min(), places.max()) == pytest.approx((1 / 24, 23 / 24))
    only = panels(training.calls_over_training(dataclasses.replace(results, rollouts=short), ("hard", "corl")))
    assert [name.split(": ")[1][:4] for name in only] == ["hard", "hard", "soft", "soft"]


@pytest.mark.parametrize(
    ("make", "claim", "alt", "told"),
    [
        (training.fixed_calls, training.fixed_calls_claim, training.fixed_calls_alt, "0.00 to 1.00"),
        (training.fixed_rewards, training.fixed_rewards_claim, training.fixed_rewards_alt, "0.00 to 0.50"),
        (training.fixed_looks, training.looks_claim, training.looks_claim, "0.50 right for $4.0"),
    ],
)
def test_figures_of_fixed_budgets_have_titles_and_words_from_the_numbers(results, make, claim, alt, told):
    figure = make(results)
    assert title(figure) == claim(results) and told in title(figure) and told in alt(results)
    assert all(common.label(arm) in alt(results) for arm in training.FIXED)
    assert title(make(study(late=""))) != title(figure) and told not in alt(study(late=""))


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


def test_seeds_that_disagree_on_unseen_questions_leave_the_larger_budget_open(results):
    """A half more and nothing: Student's half-width is 12.706 * 0.35355 / sqrt(2). Nothing and 4 micro-dollars more:
    12.706 * 2.82843 / sqrt(2)."""
    right, price = {"fixed-low": (1, 2), "fixed-high": (3, 2)}, {"fixed-low": ("", ""), "fixed-high": ("", L)}
    table = training.as_in_the_paper(unseen(results, right, price)).iloc[-2:]
    assert table["change"].tolist() == ["0.25 [-2.93, 3.43]", "2.00 [-23.41, 27.41]"]
    assert table["is it so"].tolist() == ["not clear"] * 2


def test_the_reward_rises_where_the_budget_is_large_alone(results):
    """Nobody is paid under the small budget, and half are under the large one: only the large one is asked for."""
    frame = results.rollouts.copy()
    frame.loc[frame["arm"] == "fixed-high", "reward"] = 0.0
    for rollouts, told in ((results.rollouts, "as there"), (frame, "not clear")):
        table = training.as_in_the_paper(dataclasses.replace(results, rollouts=rollouts))
        mine = table[table["the paper sees"] == "r rises where B is large"]
        assert mine[["here", "is it so"]].to_numpy().tolist() == [[common.label("fixed-high"), told]]


def test_what_falls_where_the_paper_sees_it_rise_goes_the_other_way(results):
    backwards = results.rollouts.assign(update=9 - results.rollouts["update"])
    table = training.as_in_the_paper(dataclasses.replace(results, rollouts=backwards))
    other = "the other way"
    same = "not clear"  # on unseen questions too, which know nothing of it
    assert table["is it so"].tolist() == [other, other, other, other, same, other, other, other, same, same]
    assert table["change"].str.split(" ").str[0].tolist() == [
        "-1.00", "-0.50", "-0.50", "1.00", "0.00", "-0.50", "-4.00", "-4.00", "0.00", "0.00"]  # fmt: skip


def test_seeds_that_disagree_leave_what_the_paper_sees_open(results):
    """One seed gains a half, the other nothing: Student's half-width is 12.706 * 0.35355 / sqrt(2). What the other
    measures do stays as it is."""
    frame = results.rollouts.copy()
    frame.loc[(frame["arm"] == "fixed-high") & (frame["seed"] == 1), "right"] = 0.0
    table = training.as_in_the_paper(dataclasses.replace(results, rollouts=frame))
    rises = table[table["the paper sees"] == "r_p rises"].set_index("here")
    low, high = (common.label(arm) for arm in training.FIXED)
    assert rises.loc[high, ["change", "is it so"]].tolist() == ["0.25 [-2.93, 3.43]", "not clear"]
    assert rises.loc[low, "is it so"] == "as there"
    alone = training.as_in_the_paper(study(seeds=1))  # one run decides nothing
    assert set(alone["is it so"]) == {"not clear"} and alone["change"].str.endswith("(one run, no interval)").all()


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
    assert {name: table.loc[name, list(OWN.sets)].tolist() for name in by_hand} == by_hand
    shown = table.loc[[M, "oracle, low", "oracle, high", *(f"CoRL, {word}" for word in protocol.WORDS)]]
    assert shown["all"].str.split(" ").str[0].tolist() == ["0.67", "0.33", "1.00", "0.33", "0.75", "0.92"]
    assert shown["$"].tolist() == ["2.0", "0.2", "2.3", "0.4", "1.8", "4.0"]


def test_rewards_of_everybody_end_with_corl(results, rivals):
    rows = comparison.reward_rows(results, rivals)
    assert list(rows)[-len(ROUTERS) - 1 :] == [*ROUTERS, "CoRL"] and set(rows["CoRL"]) == set(protocol.WORDS)
    for word, values in BY_HAND.items():
        holds(rows["CoRL"][word], values[1])
    assert rows[L]["low"].value == 0 and rows[L]["high"].value == pytest.approx(5 / 6)
    assert "low 0.33" in comparison.reward_claim(rows) and "(best baseline: " in comparison.reward_claim(rows)
    alt = comparison.reward_alt(rows)
    assert all(name in alt for name in rows) and "CoRL low 0.33, medium 0.67, high 0.92" in alt


def test_the_best_baseline_in_a_title_is_not_the_oracle():
    def row(value):
        return {word: Interval(value, value, value) for word in protocol.WORDS}

    rows = {"lab-nano": row(0.3), "logistic": row(0.6), "oracle": row(0.9), "CoRL": row(0.5)}
    assert comparison.reward_claim(rows).count("best baseline: logistic, 0.60") == 3


def test_rewards_are_drawn_side_by_side_from_0_to_1(results, rivals):
    rows = comparison.reward_rows(results, rivals)
    figure = comparison.rewards_figure(rows)
    assert title(figure).replace("- ", "-") == comparison.reward_claim(rows).replace("- ", "-")  # broken at hyphens too
    assert [axes.get_xlabel() for axes in figure.axes] == [f"reward, {word}" for word in protocol.WORDS]
    assert [axes.get_xlim() for axes in figure.axes] == [(-0.05, 1.05)] * 3


def test_the_plane_has_constants_random_and_corl(results, rivals):
    points = comparison.plane_points(results, rivals)
    assert set(points) == {ITSELF, *PRICE, *(f"{e} in pieces" for e in PRICE), "random"} | {
        f"CoRL, {word}" for word in protocol.WORDS
    }
    for word, (right, _, dollars, *_) in BY_HAND.items():
        holds(points[f"CoRL, {word}"][common.MONEY], dollars)
        holds(points[f"CoRL, {word}"]["accuracy"], right)
    pieces = points[f"{M} in pieces"]
    assert pieces[common.MONEY].value == pytest.approx(5) and pieces["accuracy"].value == 1
    claim = comparison.plane_claim(points)
    assert claim.endswith("low 0.33 for $0.4, medium 0.75 for $1.8, high 0.92 for $4.0")
    alt = comparison.plane_alt(points)
    assert all(f"{name}: {row['accuracy'].value:.2f} right for $" in alt for name, row in points.items())
    assert title(drawing.plane(points, None, claim, line="mixtures")) == claim


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


def test_mixed_experts_need_no_controller(results):
    """A strategy that the controller ends, as good as it is cheap, is a constant, and none of the experts mixed."""
    ends = results.experts[results.experts["strategy"] == N].assign(
        strategy=N + THEN_ITSELF, right=1.0, dollars=PRICE[N] / 4
    )
    more = dataclasses.replace(results, experts=pd.concat([results.experts, ends], ignore_index=True))
    assert N + THEN_ITSELF in common.known(more, "test").strategies
    for gap, value in zip(comparison.own_cost(more)["minus mixed experts"], OWN_GAPS, strict=True):
        holds(gap, value)
    equal = verdicts.at_equal_cost(more)
    holds(equal["high"]["all constants"], 11 / 12 - 1)  # here it counts: right on all for a quarter of nano's price
    holds(equal["high"]["single experts"], 11 / 12 - 5 / 6)


def test_the_words_name_the_budgets_under_which_the_controller_is_worth_it():
    up, down, open_ = Interval(0.2, 0.1, 0.3), Interval(-0.2, -0.3, -0.1), Interval(0.2, -0.1, 0.3)

    def told(*gaps: Interval) -> str:
        words = comparison.own_cost_words(pd.DataFrame({"budget": protocol.WORDS, "minus mixed experts": gaps}))
        assert words.startswith("With its own tokens charged, CoRL is clearly above a blind mixture of experts")
        return words.split(" for as much ")[1]

    assert told(up, down, open_) == "under low, clearly below under medium."
    assert told(up, open_, up) == "under low and high, clearly below under none of the budgets."
    assert told(down, down, down) == ("under none of the budgets, clearly below under low, medium and high.")
    assert told(open_, Interval(0, 0, 0), Interval(0.5, np.nan, np.nan)) == (
        "under none of the budgets, clearly below under none of the budgets."
    )


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


def test_every_claim_has_its_difference_before_after_and_with_dice(results, judged):
    table, _ = judged
    assert list(table.columns) == ["to be above 0", "before", "after", "verdict", "after, dice"] and len(table) == 19
    told = table.set_index("to be above 0")
    found = verdicts.claims(results, routers())
    assert told["after"].tolist() == [str(gap) for gap in found.values()]
    assert told["verdict"].tolist() == [verdicts.verdict(gap) for gap in found.values()]
    assert told.loc[f"calls to {L}, high minus medium", "verdict"] == "undecided"  # two seeds that differ
    assert told.loc[f"calls to {L}, medium minus low", "verdict"] == "no difference"
    value = told[["before", "after", "after, dice"]].map(lambda text: text.split(" ")[0])
    # at first nobody calls and nobody is right; with dice CoRL calls as without, and is never right
    assert value.loc["calls, medium minus low"].tolist() == ["0.00", "0.50", "0.50"]
    assert value.loc[f"accuracy, high minus {L} alone"].tolist() == ["-0.83", "0.08", "-0.83"]
    assert value.loc["reward, high minus logistic router"].tolist() == ["0.00", "0.92", "0.00"]
    assert value.loc["at equal cost, high minus single experts, mixed"].tolist() == ["-0.17", "0.08", "-0.83"]


def test_nobody_is_better_than_an_expert_who_is_always_right(judged):
    """The verdict is that of the interval, with a word on the ceiling beside it."""
    plain, perfect = (table.set_index("to be above 0") for table in judged)
    name = f"accuracy, high minus {L} alone"
    assert not plain["verdict"].str.contains("ceiling").any()
    assert perfect.index[perfect["verdict"].str.contains("ceiling")].tolist() == [name]
    assert perfect.loc[name, "after"].startswith("-0.08 ")  # one of twelve, so by chance; the rest as without
    assert perfect.loc[name, "verdict"] == "undecided (ceiling)" and plain.loc[name, "verdict"] == "undecided"


@pytest.mark.parametrize(("expert", "split"), [(L, "train"), (M, "test")], ids=["on training alone", "not the best"])
def test_there_is_no_ceiling_but_the_best_expert_on_test_questions(results, expert, split):
    table = results.experts.copy()
    table.loc[(table["strategy"] == expert) & (table["split"] == split), "right"] = 1.0
    told = dataclasses.replace(results, experts=table)
    assert verdicts.best_expert(told) == L
    assert not verdicts.claims_table(told, routers())["verdict"].str.contains("ceiling").any()


def test_the_verdicts_are_counted_and_a_ceiling_is_explained():
    table = pd.DataFrame({"verdict": ["holds", "undecided", "holds", "does not hold", "holds", "undecided"]})
    assert verdicts.claims_words(table) == ("Of 6 claims after training: 3 'holds', 2 'undecided', 1 'does not hold'.")
    told = verdicts.claims_words(
        pd.DataFrame(
            {"verdict": ["undecided", "does not hold (ceiling)", "undecided", "does not hold", "does not hold"]}
        )
    )
    assert told == (
        "Of 5 claims after training: 3 'does not hold', 2 'undecided'. "
        "(ceiling): the expert alone is right on every test question, nobody can be above it."
    )


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


def of_numbers(*found: tuple[float, float]) -> pd.DataFrame:
    """What is spent, and how often that is above the budget, for 1, 10, 100, ..."""
    rows = [
        {c: Interval(over if c == "violations" else x, x, x) for c in common.MEASURES} | {"asked": 10**i}
        for i, (x, over) in enumerate(found)
    ]
    return pd.DataFrame(rows)


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


def test_where_nobody_within_the_budget_is_right_breaking_it_was_in_vain(results):
    """Under 1 nobody is right on 5 and 6; the whole budget spent is not above it."""
    acts = {"001": ([[N, N, N, N, L, L]] * 2, [[1, 1, 0, 0, 1, 1]] * 2)}
    assert numbers.numbers_words(asked_for(results, acts)).startswith(
        "A budget was broken on 33% of the test questions. On 0% of these some constant would have been paid within "
        "it, and 100% were"
    )
    assert numbers.numbers_words(results) == "No budget was broken on any test question."  # 4 of 8 and of 40


GAP, FIRST_GAP = Interval(-0.125, -0.5, 0.25), Interval(0.375, 0.125, 0.75)


def test_calibration_is_said_and_drawn(results):
    asked = numbers.asked_and_spent(results)
    before = of_numbers((0.5, 0.0), (0.7, 0.3), (0.6, 0.1)).assign(asked=asked["asked"])
    figure = numbers.calibration(asked, before, GAP, FIRST_GAP)
    assert title(figure) == numbers.calibration_claim(asked, before, GAP, FIRST_GAP)
    assert title(figure) == (
        "Asked 1 to 40, before training it spends 0.5 to 0.7, reward less that of the best constant +0.38 "
        "[+0.12, +0.75]; after training it spends 0.0 to 3.3, reward less that of the best constant -0.12 "
        "[-0.50, +0.25]"
    )
    dotted = [line for axes in figure.axes for line in axes.get_lines() if line.get_linestyle() == ":"]
    assert [line.get_ydata() for line in dotted] == [pytest.approx([0.5, 0.7, 0.6]), pytest.approx([0.0, 0.3, 0.1])]
    falling = of_numbers((3.0, 0.5), (2.0, 0.2), (1.0, 0.25))
    assert "after training it spends 1.0 to 3.0, " in numbers.calibration_claim(falling, falling, GAP, FIRST_GAP)
    alt = numbers.calibration_alt(asked, before)
    assert "asked 8: spent 1.3 (before training 0.7), above in 0%" in alt and "asked 40: spent 3.3" in alt


def marked(figure) -> list[list[float]]:
    """Where a ring points a place out."""
    rings = [line for line in figure.axes[0].lines if line.get_gid() == "ring"]
    return [[line.get_xdata()[0], line.get_ydata()[0]] for line in rings]


def test_the_front_is_drawn_whole_and_for_one_budget(results):
    asked = numbers.asked_and_spent(results)
    whole, one = numbers.front(asked, results), numbers.front(asked, results, 8)
    assert title(whole) == numbers.front_claim(asked)
    assert title(whole) == "Budgets in numbers as points: asked 1, 0.00 right for 0.0; asked 40, 0.83 right for 3.3"
    assert title(one) == "Asked 8: spends 1.3, 0.33 right, 0.3 calls, above the budget in 0%"
    assert title(numbers.front(asked, results, 40)) != title(one)
    assert marked(whole) == [] and marked(one) == [pytest.approx([4 * 2 / 6, 2 / 6])]
    for figure in (whole, one):
        notes = {text.get_text() for text in figure.axes[0].texts}
        assert notes == {"1", "8", "40", ITSELF, *(f"{e}{w}" for e in ("nano", "mini", "large")
                                                   for w in ("", " in pieces"))}  # fmt: skip
    assert "8: 0.33 for 1.3" in numbers.front_alt(asked) and "40: 0.83 for 3.3" in numbers.front_alt(asked)


def test_budgets_in_a_row_at_nearly_the_same_point_share_a_label():
    own = {1: (0.0, 0.1), 2: (1.0, 0.5), 5: (1.2, 0.52), 9: (1.25, 0.6), 20: (3.0, 0.6)}
    own = {number: tuple(Interval(x, np.nan, np.nan) for x in pair) for number, pair in own.items()}
    assert numbers._labelled(own) == {
        ("CoRL", 1): "1", ("CoRL", 2): "2 to 5", ("CoRL", 9): "9", ("CoRL", 20): "20"}  # fmt: skip


# What else could have been done -------------------------------------------------------------------


def test_alternatives_are_those_of_the_tables(results):
    table = episodes.counterfactuals(results, "medium", n=6)
    assert table["question"].tolist() == [f"test d{i + 1} {i} = ?" for i in range(6)]
    pieces = [name + suffix for name in ("nano", "mini", "large") for suffix in ("", " in pieces")]
    assert list(table.columns) == ["question", "called", "CoRL", ITSELF, *pieces]
    assert table["called"].tolist() == ["nobody", *["mini"] * 5]
    assert table["CoRL"].tolist() == ["✓ 0.0", *["✓ 2.0"] * 3, "✗ 2.0", "✗ 2.0"]
    assert table["large"].tolist() == [*["✓ 4.0"] * 5, "✗ 4.0"]
    assert table["mini in pieces"].tolist() == ["✓ 5.0"] * 6
    assert table[ITSELF].tolist() == ["✓ 0.0", *["✗ 0.0"] * 5]


def test_fewer_alternatives_come_from_the_whole_range(results):
    assert episodes.counterfactuals(results, "low", n=3)["question"].str[:7].tolist() == [
        "test d1",
        "test d3",
        "test d6",
    ]


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


def test_regrets_are_said_in_one_sentence(results):
    assert episodes.regrets_words(episodes.regrets(results)) == (
        "Over all test questions and seeds under the medium budget: "
        "in 50% it earned its reward, and no alternative would have for less; "
        "in 17% it earned its reward, and an alternative would have for less; "
        "in 0% it missed a reward that some alternative would have earned; "
        "in 33% it missed a reward that no alternative would have earned."
    )
    assert "under the low budget: in 33% it earned" in episodes.regrets_words(episodes.regrets(results, "low"), "low")


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


def test_the_finding_names_the_direction(results):
    rows = {step: {common.MONEY: RISING, "calls": RISING} for step in "ab"}
    routed = {"low": FALLING, "medium": RISING, "high": FLAT}
    text = verdicts.finding(results, rows, {"right": Interval(0.1, 0.05, 0.15)}, equal(0.2), routed, GAP)
    assert "rises with the budget (low $0.4, medium $1.8, high $4.0; before training it did not clearly rise)" in text
    assert text.count("; the number of calls rises.") == 1
    assert f"+0.100 [+0.050, +0.150] against {L} alone" in text
    assert (
        "clearly better than random routing under low, medium and high (before training: none of the budgets), than "
        "any blind mixture of the constants under low, medium and high;"
    ) in text
    assert text.endswith(
        "its reward is clearly above that of the logistic router under medium. Where the budget is a number, its "
        "reward less that of the best constant is -0.125 [-0.500, +0.250]."
    )
    rows = {step: {name: FALLING for name in row} for step, row in rows.items()}
    routed = dict.fromkeys(protocol.WORDS, FALLING)
    text = verdicts.finding(results, rows, {"right": Interval(-0.1, -0.15, -0.05)}, equal(-0.2), routed, FIRST_GAP)
    assert "does not clearly rise" in text and "calls does not" in text and "-0.100 [-0.150, -0.050]" in text
    assert "random routing under none of the budgets (" in text and "constants under none of the budgets;" in text
    assert "logistic router under none of the budgets. Where" in text
    assert text.endswith(" is +0.375 [+0.125, +0.750].")


def test_the_finding_tells_calls_from_spending(results, claims):
    _, best, gaps = claims
    routed = dict.fromkeys(protocol.WORDS, FLAT)
    rows = {step: {common.MONEY: FLAT, "calls": RISING} for step in "ab"}
    text = verdicts.finding(results, rows, best, gaps, routed, GAP)
    assert "questions does not clearly rise" in text and "calls rises" in text
    rows["a"] = {common.MONEY: RISING, "calls": RISING}  # one step of two is not enough
    assert "questions does not clearly rise" in verdicts.finding(results, rows, best, gaps, routed, GAP)


def test_the_finding_tells_random_routing_from_other_mixtures(results, claims):
    order, best, _ = claims
    gaps = {
        word: {"random routing": RISING if word == "low" else FLAT, "single experts": FLAT,
               "all constants": RISING if word == "high" else FALLING}
        for word in protocol.WORDS
    }  # fmt: skip
    text = verdicts.finding(results, order, best, gaps, dict.fromkeys(protocol.WORDS, FLAT), GAP)
    assert (
        "random routing under low (before training: none of the budgets), than any blind mixture of the constants "
        "under high;"
    ) in text


def first_steps(results: Results, calls: dict[str, str], right: dict[str, float]) -> Results:
    """With another controller before training, under soft prompts and without dice: whom it calls on every question,
    and whether it is right."""
    rows = [
        episode(i, word, calls[word], right[word], WORDS[word], arm="start", seed=0)
        for word in protocol.WORDS
        for i in range(6)
    ]
    frame = results.episodes
    old = (frame["arm"] == "start") & (frame["style"] == "soft") & (frame["temperature"] == 0)
    return dataclasses.replace(results, episodes=pd.concat([frame[~old], pd.DataFrame(rows)], ignore_index=True))


def test_the_finding_says_where_random_routing_was_beaten_before_training(results, claims):
    """Right on all for nothing, where only the controller alone, right on 1/6, is as cheap; and wrong on all."""
    for right, told in (
        ({"low": 1, "medium": 0, "high": 1}, "low and high"),
        ({"low": 0, "medium": 1, "high": 0}, "medium"),
    ):
        began = first_steps(results, dict.fromkeys(protocol.WORDS, ""), right)
        text = verdicts.finding(began, *claims, dict.fromkeys(protocol.WORDS, FLAT), GAP)
        assert f"(before training: {told}), than any" in text
        now = common.listed([w for w, row in claims[2].items() if verdicts.verdict(row["random routing"]) == "holds"])
        assert f"than random routing under {now} (before" in text


@pytest.mark.parametrize(
    ("calls", "so"),
    [
        (("", N, M), True),  # both steps dearer
        (("", N, N), False),
        (("", M, N), False),
        (("", "", ""), False),
        ((M, N, ""), False),
    ],
)
def test_the_finding_says_whether_spending_rose_with_the_budget_before_training(results, claims, calls, so):
    order = {step: {common.MONEY: RISING, "calls": RISING} for step in "ab"}
    began = first_steps(results, dict(zip(protocol.WORDS, calls, strict=True)), dict.fromkeys(protocol.WORDS, 0))
    text = verdicts.finding(began, order, *claims[1:], dict.fromkeys(protocol.WORDS, FLAT), GAP)
    told = "rose" if so else "did not clearly rise"
    assert f"rises with the budget (low $0.4, medium $1.8, high $4.0; before training it {told}); the number" in text


def test_the_finding_tells_what_is_learned_with_dice_from_what_is_left_without(results, claims):
    """On every question with dice under low, and without under medium and high."""
    earned = {("corl", "soft", 1.0): (6, 0, 0), ("corl", "soft", 0.0): (0, 6, 6)}
    text = verdicts.finding(paid(results, earned), *claims, dict.fromkeys(protocol.WORDS, FLAT), GAP)
    assert text.startswith(
        "Training clearly raises the reward under low with dice, as in training, and under medium and high without; "
        "it clearly lowers it under none of the budgets without. Without dice spending"
    )


def test_the_finding_names_what_is_clearly_lost_without_dice(results, claims):
    """Without dice all is lost under low and all is won under high; under medium one question of six is lost, which
    may be chance. With dice all is lost under medium and high."""
    earned = {
        ("start", "soft", 0.0): (6, 6, 0), ("corl", "soft", 0.0): (0, 5, 6),
        ("start", "soft", 1.0): (0, 6, 6), ("corl", "soft", 1.0): (6, 0, 0),
    }  # fmt: skip
    text = verdicts.finding(paid(results, earned), *claims, dict.fromkeys(protocol.WORDS, FLAT), GAP)
    assert text.startswith(
        "Training clearly raises the reward under low with dice, as in training, and under high without; it clearly "
        "lowers it under low without. Without dice"
    )


def finding(results: Results, rivals: pd.DataFrame) -> str:
    """Of a study as it is; what rivals do rests on its experts alone."""
    claims = verdicts.order_claims(results), verdicts.against_best(results), verdicts.at_equal_cost(results)
    return verdicts.finding(results, *claims, verdicts.against_router(results, rivals), numbers.mean_gap(results))


def test_the_finding_of_a_study_and_of_its_opposite(results, rivals):
    """Where seeds agree, spending rises here by more than chance; with the budgets misread it falls."""
    agreed = study({word: ([called[1]] * 2, [right[1]] * 2) for word, (called, right) in ACTS.items()})
    assert "spending per million questions rises with the budget (low $" in finding(agreed, rivals)
    told = finding(results, rivals)
    assert "does not clearly rise with the budget (low $0.4, medium $1.8, high $4.0; before" in told
    assert " best constant is -0.389 [" in told  # -7/18
    opposite = finding(study(WILD), rivals)
    assert "does not clearly rise with the budget (low $4.0, medium $1.8, high $0.4; before" in opposite
    assert "-0.500" in opposite  # 4/12 against 5/6


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


@pytest.mark.parametrize(
    "poor",
    [{"acts": IDLE, "late": ""}, {"acts": IDLE, "late": "", "right": False}, {"seeds": 1}],
    ids=["nobody ever calls", "all are wrong", "one seed"],
)
def test_a_study_with_little_to_say_can_be_told(poor):
    told = everything(study(**poor))
    assert all(told) and not any(re.search(r"\bnan\b", text) for text in told)


def test_one_seed_has_intervals_over_questions():
    found = common.by_budget(study(seeds=1), "corl")["medium"]["right"]
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
    assert {replayed.NAMES[name] for name in replayed.SHOWN} <= {text.get_text() for text in figure.axes[0].texts}
    one = {"lab": summaries["lab"]}
    alone = replayed.fronts(curves[curves["table"] == "lab"], one)
    assert len(alone.axes) == 1 and title(alone) == replayed.claim(one) != title(figure)


@pytest.mark.parametrize(
    ("gap", "word"),
    [
        (Interval(0.1, 0.05, 0.15), "above the best blind mixture (+0.100 AIQ;"),
        (Interval(-0.1, -0.15, -0.05), "below the best blind mixture (-0.100 AIQ;"),
        (Interval(0.1, -0.05, 0.15), "not told apart from the best blind mixture (+0.100 AIQ;"),
    ],
)
@pytest.mark.parametrize(
    ("shortest", "longest", "length"), [(-0.25, 0.03, "+0.030"), (0.04, -0.3, "+0.040"), (-0.02, -0.3, "-0.020")]
)
def test_the_replay_s_title_says_where_the_router_and_length_alone_stand(gap, word, shortest, longest, length):
    """Of the shortest first and the longest first the better one."""
    rows = {"corl": gap, "shortest": Interval(shortest, -1, 1), "longest": Interval(longest, -1, 1)}
    claim = replayed.claim({"lab": {router: {"gap": own} for router, own in rows.items()}})
    assert claim.endswith(f"lab experts: {word} by length alone {length})")


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
