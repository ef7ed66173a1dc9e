"""What a training on a user's questions takes: at the most, by its settings, and about, by a few measured episodes."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from lib.agent_configuration.cost_plan import plan_agent_calls
from lib.agent_configuration.user_inputs import ConfigurationInputs
from lib.agent_configuration.user_training import COMPARED, NUM_TRIALS
from lib.agent_configuration.written_atoms import MAX_ATTEMPTS, REPLY_TOKENS
from lib.llm.cost_estimate import PlannedCalls, announce_costs
from lib.llm.token_counts import count_bytes, estimate_tokens
from lib.rl.user_training.experts import JUDGE_TOKENS
from lib.tasks import Item

NUM_TESTED = 5  # random choices, ARC, base, best constant, flat bandit
WRITER_TOKENS = 2_500  # of the request for instructions, with the replies before


def count_episodes(inputs: ConfigurationInputs) -> dict[str, int]:
    """Count the episodes of a run at the most.

    Args:
        inputs: What the run is given.

    Returns:
        Numbers of episodes by what they are for.
    """
    num_test = len(inputs.questions.test)
    num_methods = NUM_TESTED
    if len({item.group for item in inputs.dev}) > 1:
        num_methods += 1  # the best constant per group
    counts = {
        "trial": NUM_TRIALS,
        "dev": inputs.num_candidates * len(inputs.dev),
        "training": len(COMPARED) * len(inputs.groups) * inputs.episodes_per_policy,
        "evaluation": num_methods * num_test,
    }
    if inputs.options.oracle:
        counts["oracle"] = inputs.num_candidates * num_test
    return counts


def announce_most(inputs: ConfigurationInputs) -> str:
    """Describe how many episodes and calls the run makes at the most, and what they may cost.

    Args:
        inputs: What the run is given.

    Returns:
        Two sentences.
    """
    counts = count_episodes(inputs)
    num_episodes = sum(counts.values())
    largest_budget = max(max(tiers) for tiers in inputs.budgets)
    agent_calls = plan_agent_calls(inputs.params, inputs.model, num_episodes, largest_budget)
    planned = [agent_calls]
    question_tokens = _average_question_tokens([*inputs.questions.train, *inputs.questions.test])
    for name in inputs.judges:
        tokens_in = round(num_episodes * (question_tokens + JUDGE_TOKENS))
        tokens_out = num_episodes * inputs.llm.models[name].max_tokens
        planned.append(PlannedCalls(name, num_episodes, tokens_in, tokens_out))
    if inputs.options.write_atoms:
        planned.append(
            PlannedCalls(
                inputs.options.write_atoms,
                MAX_ATTEMPTS,
                MAX_ATTEMPTS * WRITER_TOKENS,
                MAX_ATTEMPTS * REPLY_TOKENS,
            )
        )
    purposes = ", ".join(f"{count:,} {purpose}" for purpose, count in counts.items())
    costs = announce_costs(inputs.llm, planned).replace("llm.max_usd", "--max-usd")
    return (
        f"{num_episodes:,} episodes at the most ({purposes}), of up to {agent_calls.calls // num_episodes} calls to "
        f"{inputs.model} each. {costs}"
    )


def _average_question_tokens(items: list[Item]) -> float:
    return float(np.mean([estimate_tokens(count_bytes(item.prompt)) for item in items]))


def announce_estimate(
    inputs: ConfigurationInputs, trials: pd.DataFrame, seconds_per_episode: float
) -> str:
    """Announce what the whole run takes, judged by the trial episodes.

    Args:
        inputs: What the run is given.
        trials: Rows of the trial episodes.
        seconds_per_episode: As measured; nan where nothing was played now.

    Returns:
        Sentences with calls, tokens and dollars, and what to change where agents are cut off or fail.
    """
    num_episodes = sum(count_episodes(inputs).values())
    mean_usage = trials[["turns", "tokens_in", "tokens_out", "cost_usd"]].mean()
    totals = num_episodes * mean_usage
    cost_usd = float(totals["cost_usd"])
    sentences = [
        f"By {len(trials)} trial episodes the run takes about {totals['turns']:,.0f} calls, "
        f"{totals['tokens_in']:,.0f} tokens read, {totals['tokens_out']:,.0f} written, ${cost_usd:.3g}"
        + _describe_minutes(num_episodes * seconds_per_episode / 60)
        + "."
    ]
    if inputs.backend == "endpoint" and cost_usd > inputs.llm.max_usd:
        sentences.append(
            f"That is more than --max-usd {inputs.llm.max_usd:g}, at which it stops and can be resumed; fewer "
            "--updates cost less."
        )
    sentences += _describe_troubles(trials)
    return " ".join(sentences)


def _describe_minutes(minutes: float) -> str:
    return "" if math.isnan(minutes) else f" and {max(minutes, 0.1):,.1f} minutes"


def _describe_troubles(trials: pd.DataFrame) -> list[str]:
    """Describe what went wrong in trial episodes, with remedies.

    Args:
        trials: A row per episode.

    Returns:
        Sentences.
    """
    sentences = []
    num_trials = len(trials)
    unanswered = int((trials["answered"] == 0).sum())
    if unanswered:
        sentences.append(
            f"{unanswered} of {num_trials} trials end without <answer> tags; the scorer reads the answer from the text."
        )
    kinds = " ".join(trials["failure_kinds"]).split()
    for kind in dict.fromkeys(kinds):
        remedy = ""
        if kind == "context_too_long":
            remedy = "; smaller budgets (--budget) or a larger window of the server help"
        sentences.append(f"{kinds.count(kind)} replies of the trials failed: {kind}{remedy}.")
    num_cut = int((trials["cut"] > 0).sum())
    if num_cut:
        sentences.append(f"{num_cut} of {num_trials} trials were cut off by a limit of tokens.")
    return sentences
