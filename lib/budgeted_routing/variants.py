"""Which controllers are trained and compared: CoRL under prompts of different styles.

A controller is a small language model that answers a question itself or pays an expert model to. Its prompt names a
budget, the limit on what the question's calls may cost. Styles of prompts differ in how: soft ones name it by a word
(low, medium, high), hard ones add a rule for what to do under it, and those of the style number write a number. Where
one budget holds for a whole training, the prompt does not name it: the styles of `call_protocol.FIXED_BUDGETS`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lib.budgeted_routing.budget_episodes import BudgetTask
from lib.config import RoutingSettings
from lib.experiment import seeds
from lib.rl import call_protocol
from lib.rl.call_protocol import FIXED_BUDGETS, draw_budget
from lib.rl.expert_pool import NUM_SAMPLES
from lib.tasks import Item

VERSION = 2  # of the tasks that a training draws and a test asks


@dataclass(frozen=True)
class RoutingVariant:
    """One way to train a controller, the model that answers questions and may call experts within a budget.

    Attributes:
        name: Name in jobs and tables.
        label: Label in figures and on pages.
        style: How the prompt states the budget: soft (a word), hard (a word, with a rule for what to do under it) or
            number (digits); see `lib.rl.call_protocol`.
        changes: Settings of the trainer that differ from `routing.learn`, by name.
        passes_question: Whether experts get the user's question word for word, whatever query the controller writes.
    """

    name: str
    label: str
    style: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    passes_question: bool = False

    def to_job_settings(self) -> dict[str, Any]:
        """Return what is part of a training job's settings and so of its cache key: name, style, passes_question.

        The label decides no number, and `changes` stand in the job's settings of the trainer. What is the default is
        left out, so that a new field leaves finished jobs as they are.
        """
        values: dict[str, Any] = {"name": self.name, "style": self.style}
        if self.passes_question:
            values["passes_question"] = True
        return values

    @classmethod
    def from_job_settings(cls, values: Mapping[str, Any]) -> "RoutingVariant":
        """Make a variant from its values in a job's settings; its label is empty.

        Args:
            values: What `to_job_settings` returned.
        """
        return cls(label="", **values)


VARIANTS = (
    RoutingVariant("corl", "CoRL", "soft"),
    RoutingVariant("number", "CoRL, budget as a number", "number"),
    RoutingVariant("hard", "CoRL, hard prompts", "hard"),
)
# One budget in a whole training, which the prompt does not name (CoRL, Figures 4 to 7).
FIXED_BUDGET_VARIANTS = (
    RoutingVariant("fixed-low", "CoRL, low budget only", "fixed-low"),
    RoutingVariant("fixed-medium", "CoRL, medium budget only", "fixed-medium"),
    RoutingVariant("fixed-high", "CoRL, high budget only", "fixed-high"),
)
# The control of the queries that a controller writes (g of eq. 2): experts read the user's question instead.
QUESTION_PASSED_ON = RoutingVariant(
    "question-passed-on", "CoRL, question passed on", "soft", passes_question=True
)
# CoRL again, tested as the paper tests it: several samples of every answer at the temperature of training.
MEAN_OF_SAMPLES = RoutingVariant("mean-of-samples", "CoRL, mean of samples", "soft")
VARIANTS_BY_NAME = {
    variant.name: variant
    for variant in (*VARIANTS, *FIXED_BUDGET_VARIANTS, QUESTION_PASSED_ON, MEAN_OF_SAMPLES)
}


def count_updates(settings: RoutingSettings, style: str) -> int:
    """Return how many updates a training has whose prompts are of this style.

    Args:
        settings: CoRL's settings; `updates` is read. With one fixed budget there are as many as with soft prompts.
        style: Style of the prompts.
    """
    return settings.updates["soft" if style in FIXED_BUDGETS else style]


def make_variant(label: str, base: str = "corl", **changes: Any) -> RoutingVariant:
    """Make a variant of CoRL that differs from another one in settings of the trainer, for an ablation.

    >>> make_variant("no KL", kl=0.0).name
    'no-kl'

    Args:
        label: What figures call it; letters and digits of it make the variant's name.
        base: Name of the variant that it is like otherwise.
        changes: Fields of `routing.learn` with their new values, such as kl=0.0.

    Returns:
        The variant, which `experiment.run` trains.
    """
    base_variant = VARIANTS_BY_NAME[base]
    words = "".join(char if char.isalnum() else " " for char in label.lower()).split()
    all_changes = {**base_variant.changes, **changes}
    return RoutingVariant("-".join(words), label, base_variant.style, all_changes)


@dataclass(frozen=True)
class Budgets:
    """What budgets allow and what calls cost, in US dollars.

    A budget limits what the calls to experts may cost for one question. A prompt names it by a word or by a number.

    Attributes:
        usd_by_word: The limit for one question that each budget word (low, medium, high) stands for.
        price_by_expert: What one call to each expert typically costs, the cheapest first.
        unit_usd: The limit per unit where a prompt states the budget as a number of units; None where none does.
    """

    usd_by_word: Mapping[str, float]
    price_by_expert: Mapping[str, float]
    unit_usd: float | None


# Training ------------------------------------------------------------------------------------------


def draw_training_tasks(
    variant: RoutingVariant,
    items: Sequence[Item],
    budgets: Budgets,
    settings: RoutingSettings,
    num_episodes: int,
    group_size: int,
    seed: int,
) -> list[BudgetTask]:
    """Draw what the episodes of one update are about: random questions, each under a random budget (CoRL, 3.3).

    Args:
        variant: The variant that is trained; its style decides whether budgets are words or numbers.
        items: Questions to learn from.
        budgets: US dollars by budget word, and US dollars of a unit.
        settings: CoRL's settings; `budget_range` (smallest and largest number of units) is read for the style number.
        num_episodes: Number of tasks.
        group_size: Number of successive tasks that are equal, so that their rewards can be compared with each other
            (GRPO's group advantages); 1 where advantages need no groups.
        seed: Seed of the update.

    Returns:
        One task per episode: question, budget, and which of the experts' independent replies it meets.
    """
    num_groups = math.ceil(num_episodes / group_size)
    item_indices = seeds.rng("routing", "questions", seed=seed).choice(len(items), num_groups)
    rng = seeds.rng("routing", "budgets", seed=seed)
    # Experts have NUM_SAMPLES independent replies to a question; an episode meets one of them.
    reply_samples = rng.integers(NUM_SAMPLES, size=num_groups).tolist()

    # A job has the range among its settings only where its budgets are numbers.
    budget_range = settings.budget_range if variant.style == "number" else ()
    tasks = []
    for item_index, reply_sample in zip(item_indices, reply_samples, strict=True):
        budget_label = draw_budget(variant.style, rng, budget_range)
        task = make_task(items[item_index], variant.style, budget_label, budgets)
        task = replace(task, reply_sample=reply_sample, passes_question=variant.passes_question)
        tasks += [task] * group_size
    return tasks[:num_episodes]


def make_task(item: Item, style: str, budget_label: str, budgets: Budgets) -> BudgetTask:
    """Put a question under a budget, the limit on what the calls to experts may cost.

    Args:
        item: The question.
        style: How the prompt states the budget: soft or hard (a word; hard adds a rule for it), or number.
        budget_label: The budget as it stands in the prompt: low, medium or high, or for the style number the digits of
            a number of units.
        budgets: US dollars by budget word, and US dollars of a unit.

    Returns:
        The task, with its budget in US dollars.
    """
    if style == "number":
        budget_usd = int(budget_label) * budgets.unit_usd
    else:
        budget_usd = budgets.usd_by_word[budget_label]
    return BudgetTask(item, style, budget_label, budget_usd)


# Tests ---------------------------------------------------------------------------------------------


def make_test_tasks(
    style: str,
    items: Sequence[Item],
    budgets: Budgets,
    settings: RoutingSettings,
    passes_question: bool = False,
) -> list[BudgetTask]:
    """Put every test question under every budget, the limit on what the calls to experts may cost.

    Args:
        style: How the prompt states the budget: soft or hard (a word; hard adds a rule for it), or number. With one
            fixed budget, questions are put under that one only.
        items: Test questions.
        budgets: US dollars by budget word, and US dollars of a unit.
        settings: CoRL's settings; `numeric_budgets`, in units, is read for the style number.
        passes_question: Whether experts get the user's question, whatever query the controller writes.

    Returns:
        Tasks: all questions in their order under the first budget, then all under the next.
    """
    tasks = []
    for budget_label in list_budget_labels(style, settings):
        for item in items:
            task = make_task(item, style, budget_label, budgets)
            tasks.append(replace(task, passes_question=passes_question))
    return tasks


def list_budget_labels(style: str, settings: RoutingSettings) -> list[str]:
    """List the budgets that controllers are tested under, as prompts write them.

    Args:
        style: How the prompt states the budget: soft or hard (a word), or number.
        settings: CoRL's settings; `numeric_budgets` is read for the style number.

    Returns:
        low, medium and high; or for the style number the digits of numbers of units, such as 060; or the one budget
        of a style with a fixed budget.
    """
    if style in FIXED_BUDGETS:
        return [FIXED_BUDGETS[style]]
    if style == "number":
        return [call_protocol.format_budget(units) for units in settings.numeric_budgets]
    return list(call_protocol.BUDGET_WORDS)
