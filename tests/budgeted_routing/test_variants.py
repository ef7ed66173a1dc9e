"""Which budget stands over which question: by words, by numbers, or one for all."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from lib.budgeted_routing import expert_outcomes, variants
from lib.budgeted_routing.variants import (
    NAMED,
    VARIANTS,
    Budgets,
    drawn,
    examined,
    make_variant,
    numbered,
)
from lib.reports.lesson import METRIC_KEY
from lib.rl import call_protocol
from lib.rl.budget_reward import compute_cost_reward
from tests.budgeted_routing.small import EXPERTS, SMOKE, items

WORDS = {"low": 1e-5, "medium": 4e-5, "high": 1e3}
CALLS = {"lab-nano": 1e-5, "lab-mini": 4e-5, "lab-large": 2e-4}
BUDGETS = Budgets(WORDS, CALLS, 1e-6)
ITEMS = items(40)


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
        told = expert_outcomes.prices(
            asked, EXPERTS, SMOKE.model_copy(update={"quantile": quantile})
        )
        assert list(told) == list(EXPERTS) and list(told.values()) == pytest.approx(prices)


def test_low_affords_the_cheapest_medium_the_middle_and_high_anything():
    told = expert_outcomes.budgets(CALLS, SMOKE)
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


def test_training_mixes_budgets_by_lot_and_the_lot_is_the_rngs():
    for name, style in (("corl", "soft"), ("hard", "hard")):
        told, again, other = (
            drawn(NAMED[name], ITEMS, BUDGETS, np.random.default_rng(seed)) for seed in (0, 0, 1)
        )
        assert [t.item for t in told] == ITEMS and {t.style for t in told} == {style}
        assert {t.attempt for t in told} == {0, 1}, "experts are heard in independent tries"
        assert all(t.budget == WORDS[t.label] for t in told)
        assert min(Counter(t.label for t in told)[word] for word in call_protocol.BUDGET_WORDS) > 5
        assert told == again != other


def test_budgets_in_numbers_are_dollars_in_units_and_the_prompt_says_which():
    told = drawn(NAMED["number"], items(300), BUDGETS, np.random.default_rng(0))
    assert all(t.style == "number" and t.budget == pytest.approx(int(t.label) * 1e-6) for t in told)
    units = np.array([int(t.label) for t in told])
    assert (
        units.min() >= 5
        and units.max() <= 160
        and 20 < np.median(units) < 40
        and len(set(units)) > 40
    )
    assert numbered(ITEMS[0], 40, BUDGETS) == variants.BudgetTask(
        ITEMS[0], "number", "040", pytest.approx(4e-5)
    )


@pytest.mark.parametrize("name", ["corl", "hard", "number"])
def test_every_question_is_asked_under_every_budget_in_order(name):
    told, numbers = (
        examined(NAMED[name].style, ITEMS[:3], BUDGETS, SMOKE),
        {f"{n:03.0f}": n * 1e-6 for n in SMOKE.numeric_budgets},
    )
    budgets = numbers if name == "number" else WORDS
    assert [(t.label, t.item) for t in told] == [
        (label, item) for label in budgets for item in ITEMS[:3]
    ]
    assert all(
        t.budget == pytest.approx(budgets[t.label]) and t.style == NAMED[name].style for t in told
    )


def test_a_variant_changes_the_trainer_and_nothing_else():
    made = make_variant("KL 0.1, whole", kl=0.1, average="token")
    assert made == variants.RoutingVariant(
        "kl-0-1-whole", "KL 0.1, whole", "soft", {"kl": 0.1, "average": "token"}
    )
    other = make_variant("No baseline", "hard", lam=0.5)
    assert (other.style, other.changes) == ("hard", {"lam": 0.5}) and other.name not in NAMED


def test_arms_have_names_of_their_own_that_can_be_names_of_metrics():
    assert len(NAMED) == len(VARIANTS) == len({variant.label for variant in VARIANTS})
    assert all(METRIC_KEY.fullmatch(f"routing.{name}.score") for name in NAMED)
    assert {variant.style for variant in VARIANTS} == set(SMOKE.updates)
