"""Which controllers are trained and compared: CoRL under prompts of different styles.

A controller is a small language model that answers a question itself or pays an expert model to. Its prompt names a
budget, the limit on what the question's calls may cost, as a word (low, medium, high) or as a number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lib.budgeted_routing.budget_episodes import BudgetTask
from lib.config import RoutingSettings
from lib.experiment import seeds
from lib.rl import call_protocol
from lib.rl.expert_pool import NUM_SAMPLES
from lib.rl.sft_warmup import draw_budget
from lib.tasks import Item

VERSION = 2  # of the tasks that a training draws and a test asks


@dataclass(frozen=True)
class RoutingVariant:
    """One way to train a controller.

    Attributes:
        name: In jobs and tables.
        label: In figures and on pages.
        style: Of the prompt: soft, hard or number (`lib.rl.call_protocol`).
        changes: Settings of the trainer that differ from `routing.learn`, by name.
    """

    name: str
    label: str
    style: str
    changes: Mapping[str, Any] = field(default_factory=dict)

    def to_job_settings(self) -> dict[str, str]:
        """What a job's settings hold of it; its changes are in the job's settings of the trainer."""
        return {"name": self.name, "style": self.style}

    @classmethod
    def from_job_settings(cls, values: Mapping[str, str]) -> "RoutingVariant":
        """The variant of a job, which needs no label."""
        return cls(label="", **values)


VARIANTS = (
    RoutingVariant("corl", "CoRL", "soft"),
    RoutingVariant("number", "CoRL, budget as a number", "number"),
    RoutingVariant("hard", "CoRL, hard prompts", "hard"),
)
VARIANTS_BY_NAME = {variant.name: variant for variant in VARIANTS}


def make_variant(label: str, base: str = "corl", **changes: Any) -> RoutingVariant:
    """Make a variant that differs from another in settings of the trainer, for `experiment.run`.

    Args:
        label: Such as "no KL"; the variant's name is made of its letters and digits, here "no-kl".
        base: Name of the variant that it is like.
        changes: Fields of `routing.learn` with their new values, such as kl=0.0.
    """
    base_variant = VARIANTS_BY_NAME[base]
    words = "".join(char if char.isalnum() else " " for char in label.lower()).split()
    all_changes = {**base_variant.changes, **changes}
    return RoutingVariant("-".join(words), label, base_variant.style, all_changes)


@dataclass(frozen=True)
class Budgets:
    """What budgets and calls are worth, in US dollars.

    Attributes:
        words: B of a question, by budget word.
        calls: Of one call to each expert, the cheapest first.
        unit_usd: Of one unit of a budget that is a number; None where there are no such budgets.
    """

    words: Mapping[str, float]
    calls: Mapping[str, float]
    unit_usd: float | None


# Training ------------------------------------------------------------------------------------------


def draw_training_tasks(
    variant: RoutingVariant,
    items: Sequence[Item],
    budgets: Budgets,
    settings: RoutingSettings,
    num_episodes: int,
    group: int,
    seed: int,
) -> list[BudgetTask]:
    """Draw the tasks of one update: random questions, each under a random budget (CoRL, 3.3).

    Args:
        variant: Its style of prompts.
        items: Questions to learn from.
        budgets: What budgets are worth.
        settings: Its range of numeric budgets is read.
        num_episodes: Number of tasks.
        group: Number of tasks in a row that are the same, for group advantages; 1 for none.
        seed: Of the update.

    Returns:
        One task per episode.
    """
    num_different = -(-num_episodes // group)  # rounded up
    indices = seeds.rng("routing", "questions", seed=seed).choice(len(items), num_different)
    rng = seeds.rng("routing", "budgets", seed=seed)
    # Which of an expert's recorded replies to a question an episode meets.
    attempts = rng.integers(NUM_SAMPLES, size=num_different).tolist()

    # A job is handed the range only where its budgets are numbers.
    budget_range = settings.budget_range if variant.style == "number" else ()
    tasks = []
    for index, attempt in zip(indices, attempts, strict=True):
        label = draw_budget(variant.style, rng, budget_range)
        task = make_task(items[index], variant.style, label, budgets)
        tasks += [replace(task, attempt=attempt)] * group
    return tasks[:num_episodes]


def make_task(item: Item, style: str, label: str, budgets: Budgets) -> BudgetTask:
    """Put a question under a budget.

    Args:
        item: The question.
        style: Of the prompt: soft, hard or number.
        label: The budget as the prompt names it: a word, or the digits of a number of units for the style `number`.
        budgets: What that is worth.
    """
    if style == "number":
        budget_usd = int(label) * budgets.unit_usd
    else:
        budget_usd = budgets.words[label]
    return BudgetTask(item, style, label, budget_usd)


# Tests ---------------------------------------------------------------------------------------------


def make_test_tasks(
    style: str, items: Sequence[Item], budgets: Budgets, settings: RoutingSettings
) -> list[BudgetTask]:
    """Put every test question under every budget of a style of prompts.

    Args:
        style: soft, hard or number.
        items: The questions.
        budgets: What budgets are worth.
        settings: Its numeric budgets are read.

    Returns:
        Tasks, budget by budget, in each the questions in their order.
    """
    labels = list_budget_labels(style, settings)
    return [make_task(item, style, label, budgets) for label in labels for item in items]


def list_budget_labels(style: str, settings: RoutingSettings) -> list[str]:
    """The budgets that a style of prompts is tested with, as the prompt names them."""
    if style == "number":
        return [call_protocol.format_budget(units) for units in settings.numeric_budgets]
    return list(call_protocol.BUDGET_WORDS)
