"""Which budget stands over which question: by words, by numbers, or one for all."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from lib.budgeted_routing import expert_outcomes, variants
from lib.budgeted_routing.variants import (
    VARIANTS,
    VARIANTS_BY_NAME,
    Budgets,
    draw_training_tasks,
    make_test_tasks,
    make_variant,
)
from lib.reports.lesson import METRIC_KEY
from lib.rl.budget_reward import compute_cost_reward
from tests.budgeted_routing.small_systems import EXPERTS, SMOKE, draw_chains

WORDS = {"low": 1e-5, "medium": 4e-5, "high": 1e3}
CALLS = {"lab-nano": 1e-5, "lab-mini": 4e-5, "lab-large": 2e-4}
BUDGETS = Budgets(WORDS, CALLS, 1e-6)
ITEMS = draw_chains(40)


def test_prices_are_quantiles_over_the_questions_that_an_expert_answers_right():
    """Ten right and ten wrong: one call costs 1 to 10 cents, times 1, 5 or 25; where it is wrong, a thousand times."""
    rows = [
        (expert, correct, 0.01 * (i + 1) * price * (1 if correct else 1_000))
        for price, expert in zip((1, 5, 25), EXPERTS, strict=True)
        for correct in (1.0, 0.0)
        for i in range(10)
    ]
    table = pd.DataFrame(rows, columns=["method", "correct", "cost_usd"])
    never = table.assign(correct=0.0)  # nothing better is known
    for asked, quantile, prices in (
        (table, 1.0, [0.1, 0.5, 2.5]),
        (table, 0.5, [0.055, 0.275, 1.375]),
        (never, 1.0, [100, 500, 2_500]),
    ):
        told = expert_outcomes.measure_call_prices(
            asked, EXPERTS, SMOKE.model_copy(update={"quantile": quantile})
        )
        assert list(told) == list(EXPERTS) and list(told.values()) == pytest.approx(prices)


def test_low_affords_the_cheapest_medium_the_middle_and_high_anything():
    told = expert_outcomes.derive_budgets(CALLS, SMOKE)
    assert told == {"low": 1e-5, "medium": 4e-5, "high": SMOKE.high_budget_usd}
    affords = {
        word: [compute_cost_reward(price, budget) for price in CALLS.values()]
        for word, budget in told.items()
    }
    assert affords == {"low": [1, 0, 0], "medium": [1, 1, 0], "high": [1, 1, 1]}
    assert (
        compute_cost_reward(2 * CALLS["lab-nano"], told["low"]) == 0
        and compute_cost_reward(3 * 1e-5, told["medium"]) == 1
    )


def draw_tasks(name: str, seed: int = 0, num_episodes: int = 300, group: int = 1):
    variant = VARIANTS_BY_NAME[name]
    return draw_training_tasks(variant, ITEMS, BUDGETS, SMOKE, num_episodes, group, seed)


@pytest.mark.parametrize("name", ["corl", "hard"])
def test_training_mixes_questions_budgets_and_replies_at_random(name):
    tasks = draw_tasks(name)
    assert {task.style for task in tasks} == {VARIANTS_BY_NAME[name].style}
    assert all(task.budget == WORDS[task.budget_label] for task in tasks)
    assert min(Counter(task.budget_label for task in tasks)[word] for word in WORDS) > 60
    assert Counter(task.reply_sample for task in tasks)[0] == pytest.approx(150, abs=50)
    assert {task.item.id for task in tasks} == {item.id for item in ITEMS}
    assert tasks == draw_tasks(name) != draw_tasks(name, seed=1)


def test_a_group_has_one_question_one_budget_and_one_reply():
    tasks = draw_tasks("corl", num_episodes=24, group=8)
    assert [tasks[8 * i : 8 * i + 8] for i in range(3)] == [[tasks[8 * i]] * 8 for i in range(3)]
    assert len({(task.item.id, task.budget_label) for task in tasks}) > 1


def test_budgets_in_numbers_are_units_on_a_logarithmic_scale_within_the_range():
    tasks = draw_tasks("number")
    units = np.array([int(task.budget_label) for task in tasks])
    assert [task.budget for task in tasks] == pytest.approx(list(units * 1e-6))
    smallest, largest = SMOKE.budget_range
    assert units.min() >= smallest and units.max() <= largest
    # The middle of a logarithmic scale is the geometric mean.
    assert np.median(units) == pytest.approx((smallest * largest) ** 0.5, rel=0.5)


@pytest.mark.parametrize("name", ["corl", "hard", "number"])
def test_every_question_is_asked_under_every_budget_in_order(name):
    budgets = WORDS
    if name == "number":
        budgets = {f"{units:03.0f}": units * 1e-6 for units in SMOKE.numeric_budgets}
    style = VARIANTS_BY_NAME[name].style
    tasks = make_test_tasks(style, ITEMS[:3], BUDGETS, SMOKE)
    assert [(task.budget_label, task.item) for task in tasks] == [
        (label, item) for label in budgets for item in ITEMS[:3]
    ]
    assert [task.budget for task in tasks] == pytest.approx(
        [budgets[task.budget_label] for task in tasks]
    )
    assert {task.style for task in tasks} == {style}


def test_a_variant_changes_the_trainer_and_nothing_else():
    made = make_variant("KL 0.1, whole", kl=0.1, average="token")
    assert made == variants.RoutingVariant(
        "kl-0-1-whole", "KL 0.1, whole", "soft", {"kl": 0.1, "average": "token"}
    )
    other = make_variant("No baseline", "hard", lam=0.5)
    assert (other.style, other.changes) == (
        "hard",
        {"lam": 0.5},
    ) and other.name not in VARIANTS_BY_NAME


def test_arms_have_names_of_their_own_that_can_be_names_of_metrics():
    labels = {variant.label for variant in VARIANTS_BY_NAME.values()}
    assert len(labels) == len(VARIANTS_BY_NAME) == len(VARIANTS) + 5
    assert all(METRIC_KEY.fullmatch(f"routing.{name}.score") for name in VARIANTS_BY_NAME)
    assert {variant.style for variant in VARIANTS} == set(SMOKE.updates)
