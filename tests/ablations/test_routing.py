"""Ablations of paying for answers: which episodes are compared with which, in a made-up study."""

import pandas as pd
import pytest

from lib import params
from lib.ablations import routing
from lib.routing import study as corl
from lib.routing.arms import Budgets
from lib.routing.toolorchestra import arms as orchestra
from lib.routing.toolorchestra import study as tools

SETTINGS = params.load("smoke")
SEEDS, ITEMS = 2, 4
WORDS = ("low", "medium", "high")
CALLS = {  # by arm, style and word: calls to the cheapest and to the dearest expert
    ("start", "soft", "low"): (2, 1), ("start", "hard", "low"): (1, 0),
    ("start", "soft", "medium"): (1, 1), ("start", "hard", "medium"): (1, 1),
    ("start", "soft", "high"): (2, 2), ("start", "hard", "high"): (2, 2),
    ("corl", "soft", "low"): (1, 0), ("corl", "soft", "medium"): (1, 1), ("corl", "soft", "high"): (0, 3),
    ("hard", "hard", "low"): (0, 0), ("hard", "hard", "medium"): (1, 0), ("hard", "hard", "high"): (0, 1),
    ("fixed-low", "soft", "medium"): (2, 0), ("fixed-high", "soft", "medium"): (1, 2),
}  # fmt: skip
CHEAP, *_, DEAR = SETTINGS.routing.experts


def episodes() -> pd.DataFrame:
    """Every arm at the temperature of tests, and with dice, where everything is ten times as much."""
    rows = []
    for (arm, style, word), (cheap, dear) in CALLS.items():
        for heat, times in ((0.0, 1), (1.0, 10)):
            for seed in range(1 if arm == "start" else SEEDS):
                for item in range(ITEMS):
                    called = " ".join([CHEAP] * cheap * times + [DEAR] * dear * times)
                    rows.append(
                        {"arm": arm, "style": style, "label": word, "temperature": heat, "seed": seed, "item": item,
                         "calls": times * (cheap + dear), "called": called, "right": float(item < cheap + dear),
                         "dollars": 1e-6 * times * (cheap + 10 * dear), "reward": 0.5}
                    )  # fmt: skip
    return pd.DataFrame(rows)


def results(rollouts: pd.DataFrame | None = None) -> corl.Results:
    empty, budgets = pd.DataFrame(), Budgets({}, {}, 1.0)
    rollouts = empty if rollouts is None else rollouts
    return corl.Results(empty, episodes(), rollouts, empty, empty, empty, budgets, 0.0, empty)


# CoRL ---------------------------------------------------------------------------------------------


def test_prompts_are_compared_before_and_after_training_under_the_low_budget():
    made = routing.prompts(SETTINGS, results())
    assert made.against == {
        "hard, start": "soft, start", "soft, trained": "soft, start", "hard, trained": "hard, start"
    }  # fmt: skip
    calls = made.levels["calls"]["value"].to_dict()
    assert calls == {"soft, start": 3, "hard, start": 1, "soft, trained": 1, "hard, trained": 0}
    assert made.gains["calls"]["value"]["soft, trained"] == -2 and made.gains["calls"]["value"]["hard, trained"] == -1
    assert made.gains["dollars"]["value"]["soft, trained"] == pytest.approx(1 - 12)  # per million
    assert made.backend == "lab"


def test_budgets_are_compared_high_with_low_under_the_training_of_each_prompt():
    made = routing.budgets(SETTINGS, results())
    assert made.against == {"soft, high": "soft, low", "hard, high": "hard, low"}
    assert made.gains["calls"]["value"]["soft, high"] == 3 - 1 and made.gains["calls"]["value"]["hard, high"] == 1
    assert made.gains["dollars"]["value"]["soft, high"] == pytest.approx(30 - 1)


def test_fixed_budgets_stand_beside_the_start_with_the_same_word():
    made = routing.fixed(SETTINGS, results())
    assert made.against == {"small budget": "start", "large budget": "small budget"}
    assert made.levels["dear"]["value"].to_dict() == {
        "start": 1, "small budget": 0, "large budget": 2
    }  # fmt: skip
    assert made.gains["dollars"]["value"]["large budget"] == pytest.approx(21 - 2)
    assert made.main.better == "lower" and made.main.column == "dollars"


def training(updates: int, seeds: int = SEEDS) -> pd.DataFrame:
    """Right once more in four with every update, and always within the budget but in the first."""
    rows = [
        {"arm": arm, "seed": seed, "update": n, "right": float(i < n), "within": float(n > 0)}
        for arm in routing.FIXED
        for seed in range(seeds)
        for n in range(updates)
        for i in range(4)
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("updates", "right", "within"), [(6, 1 - 0.125, 0.5), (2, 0.25, 1.0), (1, 0.0, 0.0), (4, 0.625 - 0.125, 0.5)]
)
def test_over_a_training_its_last_third_is_held_against_its_first(updates, right, within):
    """Of six updates 0 and 1 against 4 and 5: right 0 and 1/4 against twice 1."""
    told = routing.over_training(results(training(updates)))
    assert set(told["arm"]) == {"small budget", "large budget"} and told["seed"].nunique() == SEEDS
    assert told["right"].eq(right).all() and told["within"].eq(within).all()


def test_the_four_trainings_that_are_compared_are_asked_for(monkeypatch):
    monkeypatch.setattr(corl, "run", lambda params, compared, **where: ([arm.name for arm in compared], where))
    assert routing.controllers(SETTINGS, runs="r") == (["corl", "hard", "fixed-low", "fixed-high"], {"runs": "r"})


def test_experts_by_script_make_a_comparison_a_scripted_one():
    experts = dict(SETTINGS.routing.experts) | {CHEAP: "scripted-small"}
    told = SETTINGS.model_copy(update={"routing": SETTINGS.routing.model_copy(update={"experts": experts})})
    assert routing.prompts(told, results()).backend == "scripted"


# ToolOrchestra ------------------------------------------------------------------------------------

COSTS = {"start": 5.0, "paper": 4.0, "published": 9.0, "listed": 6.0}  # micro-dollars of a question


@pytest.fixture
def priced(monkeypatch):
    """The exams that each arm sits; those of another list cost ten times as much."""
    asked = []

    def run(params, compared, label=""):
        asked.extend(compared)
        sat = {arm.name: arm.exams for arm in compared} | {tools.START: ("test", "outage", "unseen_prices")}
        rows = [
            {"arm": arm, "exam": exam, "seed": seed, "item": item, "right": 1.0, "seconds": 0.001 * COSTS[arm],
             "dollars": 1e-6 * COSTS[arm] * (10 if exam == "unseen_prices" else 1)}
            for arm, told in sat.items()
            for exam in told
            for seed in range(1 if arm == tools.START else SEEDS)
            for item in range(ITEMS)
        ]  # fmt: skip
        return type("Results", (), {"episodes": pd.DataFrame(rows)})

    monkeypatch.setattr(tools, "run", run)
    return asked


def test_trainings_at_other_prices_are_held_against_prices_by_lot(priced):
    made = routing.pricing(SETTINGS)
    assert [arm.name for arm in priced] == ["paper", "published", "listed"] and priced[2] is orchestra.LISTED
    test, unseen = made["test"], made["unseen_prices"]
    assert test.against == {"sign error": "prices by lot", "list prices only": "prices by lot"}
    assert unseen.against == {"list prices only": "prices by lot"}  # the other sits the main exams alone
    assert test.gains["dollars"]["value"]["sign error"] == pytest.approx(5)
    assert test.gains["milliseconds"]["value"]["list prices only"] == pytest.approx(2)
    assert unseen.gains["dollars"]["value"]["list prices only"] == pytest.approx(20)
    assert test.levels["dollars"]["value"]["start"] == pytest.approx(5) and "start" in unseen.levels["dollars"].index
    assert test.name == "tool_pricing.test" and unseen.name == "tool_pricing.unseen_prices"
