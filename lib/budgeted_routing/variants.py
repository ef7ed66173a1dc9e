"""Which trainings are compared: CoRL under soft prompts, and the same under others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lib.budgeted_routing.budget_episodes import BudgetTask
from lib.config import RoutingSettings
from lib.experiment import seeds
from lib.rl import call_protocol
from lib.rl.expert_pool import NUM_SAMPLES
from lib.rl.sft_warmup import BUDGET_UNITS_RANGE
from lib.tasks import Item

VERSION = 1  # of the tasks that a training draws and a test asks


@dataclass(frozen=True)
class RoutingVariant:
    """One kind of training.

    style: of the prompt, which also says how many updates it has; changes: to the trainer's settings.
    """

    name: str
    label: str
    style: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def decided_by(self) -> dict[str, str]:
        """What a job is handed of it: its changes are in the trainer's settings, its label in tables."""
        return {"name": self.name, "style": self.style}

    @classmethod
    def from_settings(cls, values: Mapping[str, str]) -> "RoutingVariant":
        """The variant of a job, which needs no label."""
        return cls(label="", **values)


VARIANTS = (
    RoutingVariant("corl", "CoRL", "soft"),
    RoutingVariant("number", "CoRL, budget as a number", "number"),
    RoutingVariant("hard", "CoRL, hard prompts", "hard"),
)
NAMED = {variant.name: variant for variant in VARIANTS}


def make_variant(label: str, base: str = "corl", **changes: Any) -> RoutingVariant:
    """A variant like another with other settings of the trainer, for `experiment.run`; named after its label."""
    of = NAMED[base]
    name = "-".join("".join(c if c.isalnum() else " " for c in label.lower()).split())
    return RoutingVariant(name, label, of.style, {**of.changes, **changes})


@dataclass(frozen=True)
class Budgets:
    """Dollars: of each word, of one call to each expert (cheapest first), and of one unit of a number.

    unit_usd: None where no budget is a number.
    """

    words: Mapping[str, float]
    calls: Mapping[str, float]
    unit_usd: float | None


def drawn(
    variant: RoutingVariant, items: list[Item], budgets: Budgets, rng: np.random.Generator
) -> list[BudgetTask]:
    """Training questions, each in a try and under a budget by lot (CoRL, 3.3)."""
    tries = rng.integers(NUM_SAMPLES, size=len(items)).tolist()
    asked = _budgeted(variant, items, budgets, rng)
    return [replace(task, attempt=attempt) for task, attempt in zip(asked, tries, strict=True)]


def draw_training_tasks(
    variant: RoutingVariant,
    items: Sequence[Item],
    budgets: Budgets,
    num_episodes: int,
    group: int,
    seed: int,
) -> list[BudgetTask]:
    """The tasks of one update.

    Args:
        variant: Its style of prompts.
        items: Questions to learn from.
        budgets: What the words mean.
        num_episodes: Of the update.
        group: How many episodes in a row have the same task, for group advantages; 1 for none.
        seed: Of the update.

    Returns:
        One task per episode.
    """
    num_tasks = -(-num_episodes // group)
    indices = seeds.rng("routing", "questions", seed=seed).choice(len(items), num_tasks)
    budget_rng = seeds.rng("routing", "budgets", seed=seed)
    tasks = drawn(variant, [items[index] for index in indices], budgets, budget_rng)
    return [task for task in tasks for _ in range(group)][:num_episodes]


def _budgeted(
    variant: RoutingVariant, items: list[Item], budgets: Budgets, rng: np.random.Generator
) -> list[BudgetTask]:
    if variant.style == "number":
        units = [
            int(call_protocol.format_budget(unit))
            for unit in np.exp(rng.uniform(*np.log(BUDGET_UNITS_RANGE), size=len(items)))
        ]
        return [numbered(item, unit, budgets) for item, unit in zip(items, units, strict=True)]
    words = [
        call_protocol.BUDGET_WORDS[i]
        for i in rng.integers(len(call_protocol.BUDGET_WORDS), size=len(items))
    ]
    return [
        BudgetTask(item, variant.style, word, budgets.words[word])
        for item, word in zip(items, words, strict=True)
    ]


def numbered(item: Item, unit: float, budgets: Budgets) -> BudgetTask:
    """A question under a budget in numbers."""
    return BudgetTask(item, "number", call_protocol.format_budget(unit), unit * budgets.unit_usd)


def examined(
    style: str, items: list[Item], budgets: Budgets, settings: RoutingSettings
) -> list[BudgetTask]:
    """Test questions in a style of prompts, each under every budget of that style."""
    if style == "number":
        return [
            numbered(item, unit, budgets) for unit in settings.numeric_budgets for item in items
        ]
    return [
        BudgetTask(item, style, word, budgets.words[word])
        for word in call_protocol.BUDGET_WORDS
        for item in items
    ]
