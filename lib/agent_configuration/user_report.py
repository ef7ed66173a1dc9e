"""What a training on a user's questions leaves: the comparison, tables, a summary, and the report to read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from lib import stats
from lib.agent_configuration.action_space import AGENTS, WORKFLOWS, list_agents
from lib.agent_configuration.graph import count_most_tool_calls
from lib.agent_configuration.rewards import Weights, derive_reward_facts
from lib.agent_configuration.user_training import (
    BASE,
    BEST_CONSTANT,
    ORACLE,
    UserTraining,
)
from lib.agent_configuration.variants import ARC
from lib.agent_configuration.workflows import CALLS
from lib.experiment import artifacts
from lib.llm.failure_policy import ReplyCounts
from lib.rl.user_training import results
from lib.rl.user_training.evaluation import (
    TRAINED,
    HeldOutComparison,
    average_over_conditions,
    estimate_difference,
    estimate_means,
    format_difference,
)
from lib.rl.user_training.training import TrainingOutcome
from lib.stats.ranges import Range

SYSTEM = "arc"
MEASURES = {
    "reward": "reward (eq. 3)",
    "correct": "share correct",
    "cost_usd": "dollars for 1,000 questions",
    "tokens_out": "tokens written a question",
    "calls": "calls of agents a question",
}
BASELINE_NOTE = (
    "The oracle takes for each question the most rewarded of all answers that anybody here gave, so nothing exceeds "
    "it, and a part of its lead is luck. Before training the policy chooses at random."
)
MAX_GROUPS = 12  # that a table has a row for each of


def write_report(
    training: UserTraining,
    outcome: TrainingOutcome,
    settings: Mapping[str, Any],
    reply_counts: Mapping[str, ReplyCounts],
) -> None:
    """Compare ARC with its baselines on the held-out questions, write all files, and print the result.

    Args:
        training: Trainings and baselines of the run.
        outcome: Its rows.
        settings: What `user_inputs.describe_run` returned.
        reply_counts: Counts of replies of the models behind servers, in this call of the command.
    """
    inputs = training.inputs
    weights = training.episodes.weights
    train_ids = {item.id for item in (*inputs.questions.train, *inputs.dev)}
    comparison = results.compare_outcome(
        SYSTEM, outcome, list(MEASURES), train_ids, find_reward_range(weights, training)
    )
    notes = [
        *compare_accuracy(comparison),
        inputs.questions.note,
        *describe_losses(outcome),
        *describe_elites(training),
        describe_reward(weights, len(inputs.tools)),
        *(f"{name}: {counts.describe()}." for name, counts in reply_counts.items()),
    ]
    description = results.RunDescription(
        system=SYSTEM,
        title=f"ARC: agents of {inputs.model} on {inputs.options.data}",
        measures=MEASURES,
        notes=notes,
        settings=settings,
        details=make_details(comparison),
        costs=describe_costs(training, outcome),
        baseline_note=BASELINE_NOTE,
    )
    artifacts.write_parquet(inputs.folder / "learning.parquet", outcome.learning)
    sentence = results.write_results(inputs.folder, outcome, comparison, description)
    for line in (sentence, *notes):
        training.progress.say(line)
    training.progress.say(f"report: {inputs.folder / results.REPORT}")


def find_reward_range(weights: Weights, training: UserTraining) -> Range:
    """Find the least and the largest reward that eq. 3 and 4 allow in this space.

    Args:
        weights: Coefficients of the reward.
        training: Has the tools and the budgets.

    Returns:
        The two rewards.
    """
    most_steps = max(most for _, most in CALLS.values())
    most_tool_calls = max(count_most_tool_calls().values()) if training.inputs.tools else 0
    most_allocated = 2 * len(training.inputs.tools)
    # Each call of an agent writes at most the largest of all budgets.
    largest_budget = max(max(tiers) for tiers in training.inputs.budgets)
    most_tokens = most_steps * largest_budget / training.system.max_tokens
    low = (
        -weights.beta_s * most_steps
        - weights.beta_t * most_tokens
        - weights.eta * weights.delta_3 * most_allocated
    )
    high = weights.alpha + weights.eta * (weights.delta_1 * most_tool_calls + weights.delta_2)
    return low, high


def compare_accuracy(comparison: HeldOutComparison) -> list[str]:
    """Compare ARC's share of right answers and its tokens with those of the base and of the best constant.

    Args:
        comparison: All methods, compared on the held-out questions.

    Returns:
        A sentence for each of the two.
    """
    rows = average_over_conditions(comparison.rows, ["correct", "tokens_out"])
    sentences = []
    for baseline in (BASE, BEST_CONSTANT):
        pair = {"method": TRAINED}, {"method": baseline}
        correct = estimate_difference(rows, "correct", *pair)
        tokens = estimate_difference(rows, "tokens_out", *pair)
        sentences.append(
            f"After training minus {baseline}: share correct {describe_difference(correct.iloc[0])}, tokens written "
            f"{describe_difference(tokens.iloc[0])} a question."
        )
    return sentences


def describe_difference(estimate: pd.Series) -> str:
    """A difference with its interval; where every question changed alike, no interval is told."""
    if estimate["ci_low"] == estimate["ci_high"]:
        return f"{estimate['value']:+.2f} (every question alike)"
    return format_difference(estimate)


def describe_losses(outcome: TrainingOutcome) -> list[str]:
    """Describe what was lost, failed or was cut off, in training and in the evaluation.

    Args:
        outcome: The rows of the run.

    Returns:
        Sentences; none where nothing happened.
    """
    evaluated = pd.concat([outcome.start, outcome.trained, outcome.baselines], ignore_index=True)
    evaluated = evaluated[evaluated["method"] != ORACLE]
    sentences = []
    for name, rows in (("Training", outcome.rollouts), ("Evaluation", evaluated)):
        counts = {
            "lost a reply or a judgement and are in no score": rows["lost_calls"] > 0,
            "had a reply of the model that cannot be used": rows["failures"] > rows["lost_calls"],
            "were cut off by a budget": rows["cut"] > rows["cut_by_model"],
            "were cut off by the model's own limit": rows["cut_by_model"] > 0,
        }
        losses = [f"{int(flags.sum()):,} {words}" for words, flags in counts.items() if flags.any()]
        if losses:
            sentences.append(f"{name}, of {len(rows):,} episodes: {'; '.join(losses)}.")
    kinds = pd.Series(" ".join(evaluated["failure_kinds"]).split(), dtype=str)
    counts_by_kind = kinds.value_counts()
    if len(counts_by_kind):
        listed = ", ".join(f"{count:,} {kind}" for kind, count in counts_by_kind.items())
        sentences.append(f"Failed replies of the evaluation by kind: {listed}.")
    return sentences


def describe_elites(training: UserTraining) -> list[str]:
    """Describe the episodes that supervised fine-tuning (SFT) learned from.

    Args:
        training: The finished training.

    Returns:
        A sentence for each policy.
    """
    sentences = []
    for group, elite in training.elites.items():
        name = f" of {group}" if group else ""
        if not elite["elite"]:
            sentences.append(f"No episode{name} was right: SFT had nothing to learn from.")
            continue
        num_episodes = training.inputs.episodes_per_policy
        sentences.append(
            f"SFT{name} learned from {elite['elite']:,} of {num_episodes:,} episodes: right ones with a reward of "
            f"{elite['tau']:.2f} or more."
        )
    return sentences


def describe_reward(weights: Weights, num_tools: int) -> str:
    """Describe what eq. 3 and 4 reward at their ends.

    Args:
        weights: Coefficients of the reward.
        num_tools: Tools that an agent may have.

    Returns:
        A sentence.
    """
    most_steps = max(most for _, most in CALLS.values())
    most_tool_calls = max(count_most_tool_calls().values()) if num_tools else 0
    facts = derive_reward_facts(weights, num_tools, most_steps, most_tool_calls)
    sentence = f"By eq. 3 and 4 a right answer in one call without tools earns {facts.right_without_tools:.2f}"
    if not num_tools:
        return f"{sentence}."
    sentence += (
        f", a wrong one after {most_tool_calls} tool calls {facts.wrong_with_most_tool_calls:.2f}"
    )
    if 0 < facts.tool_calls_to_outweigh <= most_tool_calls:
        sentence += f": {facts.tool_calls_to_outweigh} tool calls outweigh a right answer"
        sentence += " (--set reward.delta_1=0 ends that)"
    return f"{sentence}."


def make_details(comparison: HeldOutComparison) -> dict[str, pd.DataFrame]:
    """Make further tables of the report: what methods chose, and answers by group.

    Args:
        comparison: All methods, compared on the held-out questions.

    Returns:
        The tables by caption.
    """
    rows = comparison.rows[comparison.rows["method"] != ORACLE]
    details = {"What was chosen": summarize_choices(rows)}
    groups = list(dict.fromkeys(rows["group"]))
    if 1 < len(groups) <= MAX_GROUPS:
        means = estimate_means(rows, "correct", ["method", "group"])
        by_group = stats.intervals(means).unstack("group")  # (methods, groups)
        methods = list(dict.fromkeys(rows["method"]))
        details["Share correct by group"] = by_group.reindex(methods)[groups].reset_index()
    return details


def summarize_choices(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarize what each method chose: different configurations, the share of each workflow, tools and budgets.

    Args:
        rows: Rows of the evaluation.

    Returns:
        A row for each method. Workflows that nobody chose are left out; the budget of an agent is 0 (low) to 2 (high),
        averaged over the questions whose workflow has the agent.
    """
    tables = []
    for method, of_method in rows.groupby("method", sort=False):
        summary: dict[str, Any] = {
            "method": method,
            "configurations": of_method["digest"].nunique(),
        }
        for workflow in WORKFLOWS:
            summary[workflow] = f"{(of_method['workflow'] == workflow).mean():.0%}"
        summary["tool calls"] = f"{of_method['used'].mean():.1f}"
        summary["tools allocated"] = f"{of_method['allocated'].mean():.1f}"
        for number, agent in enumerate(AGENTS):
            # The budget of an agent that a workflow leaves out has no effect, and no meaning in a mean.
            has_agent = of_method["workflow"].map(
                lambda name, number=number: number in list_agents(name)
            )
            budgets = of_method.loc[has_agent, f"budget{number + 1}"]
            summary[f"budget of the {agent}"] = f"{budgets.mean():.1f}" if len(budgets) else ""
        summary["instructions"] = f"{of_method['atoms'].map(count_atoms).mean():.1f}"
        tables.append(summary)
    table = pd.DataFrame(tables)
    # Columns of workflows that no method chose would be empty.
    unused = [name for name in WORKFLOWS if (table[name] == "0%").all()]
    return table.drop(columns=unused)


def count_atoms(text: str) -> int:
    """Count the instructions in the column `atoms` of a table of episodes."""
    by_agent = [agent.strip() for agent in text.split("|")]
    return sum(len(names.split(" , ")) for names in by_agent if names)


def describe_costs(training: UserTraining, outcome: TrainingOutcome) -> dict[str, object]:
    """Describe what a run took; replies that were recorded count as on the day they were paid.

    Args:
        training: Has the episodes beside the training.
        outcome: Has the episodes of the training.

    Returns:
        Numbers by what they are.
    """
    rollouts = outcome.rollouts
    other_episodes = training.episodes.list_rows()
    arc_rollouts = rollouts[rollouts["method"] == ARC.name]
    tokens = rollouts["tokens_out"].sum() + other_episodes["tokens_out"].sum()
    return {
        "dollars for agents in training": round(float(rollouts["cost_usd"].sum()), 6),
        "dollars for agents in trials, baselines and evaluation": round(
            float(other_episodes["cost_usd"].sum()), 6
        ),
        "training episodes of ARC": len(arc_rollouts),
        "training episodes of the flat bandit": len(rollouts) - len(arc_rollouts),
        "other episodes": len(other_episodes),
        "tokens that agents wrote": int(tokens),
        "minutes of the training in this call": round(outcome.seconds / 60, 2),
    }
