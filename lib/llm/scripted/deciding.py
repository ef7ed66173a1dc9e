"""Which policy to try on copies of the environment, or to pick, by plain averages of the numbers in the prompt.

Left out: learning. The same prompt is weighed alike in every episode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lib.llm.scripted.model_strength import (
    CARD_WEIGHT,
    EXPECTED_FRACTION,
    IDLE_PENALTY,
    INVENTED,
    NEARBY_BONUS,
    SUMMARY_WEIGHT,
    UNKNOWN_IMPORTANCE,
    Strength,
)
from lib.llm.scripted.reading import (
    DISTANCE,
    NO_LIMIT,
    POSITION,
    PromptView,
    Trial,
    VisibleCard,
)

# Deciding -------------------------------------------------------------------------------------------


def decide(view: PromptView, strength: Strength, rng: np.random.Generator) -> dict[str, Any]:
    """Reply to an orchestrator's prompt: ask to try more policies on copies, or pick the policy that acts next.

    Args:
        view: What the prompt of KO, TO or RO shows.
        strength: Strength of the scripted model.
        rng: Random numbers; first the noise of the scores, then the number of policies to try.

    Returns:
        The fields of the reply: reasoning, and either `call` (policies to try) or `policy` (the choice).
    """
    if not view.names:
        return {
            "reasoning": "No policy is named here, so I take what should do best.",
            "policy": INVENTED,
        }
    ranked = score_policies(view, strength, rng)
    tried = [trial.name for trial in view.results]
    num_to_try = _count_policies_to_try(view, strength, rng, len(tried))

    # Try the most promising of the policies that were not tried yet.
    untried = [score for score in ranked if score.name not in tried]
    to_try = untried[:num_to_try]
    if to_try:
        names = [score.name for score in to_try]
        call = names if view.at_once > 1 else names[0]
        return {"reasoning": _explain_look(to_try, view), "call": call}

    # Or pick the best; where some were tried, only among those.
    if tried:
        ranked = [score for score in ranked if score.name in tried] or ranked
    return {"reasoning": _explain_pick(ranked, view), "policy": ranked[0].name}


def _explain_look(to_try: Sequence[PolicyScore], view: PromptView) -> str:
    """Say why these policies are tried next, for the reasoning of the reply.

    Args:
        to_try: The policies to try on copies of the environment, the most promising first.
        view: What the prompt shows.

    Returns:
        One sentence with what the first of them promises.
    """
    most_promising = to_try[0]
    names = ", ".join(score.name for score in to_try)
    if most_promising.has_evidence:
        value, reasons = f"{most_promising.value:.2f}", most_promising.reasons
        expectation = f"{most_promising.name} promises {value} ({reasons})"
    else:
        expectation = f"{most_promising.name} is untested"
    progress = f"{len(view.results)} of {len(view.names)} policies were tried in this state"
    return f"{expectation}; {progress}, so I look at {names}."


def _explain_pick(ranked: Sequence[PolicyScore], view: PromptView) -> str:
    """Say why the best policy is picked: its expected value, the evidence for it, and that of the second best.

    A policy could also be tried on a copy of the environment before it is picked. Where only the price of the replies
    that a trial takes prevents this, a second sentence says so.

    Args:
        ranked: Expected values of the policies that could be picked, best first.
        view: What the prompt of the model that picks shows: the budget, and whether trials are allowed.

    Returns:
        One or two sentences.
    """
    best = ranked[0]
    grounds = f" ({best.reasons})" if best.reasons else ", a guess without any figures,"
    explanation = f"{best.name} comes to {best.value:.2f}{grounds}"
    if len(ranked) > 1:
        explanation += f", {ranked[1].name} to {ranked[1].value:.2f}"

    trials_allowed = view.at_once and not view.is_final
    shows_price = view.budget and view.budget.typical_reply
    if trials_allowed and shows_price and not _can_afford_trial(view, trial_replies=0):
        explanation += (
            f". About {_count_affordable_replies(view):.0f} replies are left "
            f"for {_estimate_remaining_steps(view):.0f} steps, so I try no more"
        )
    return explanation + "."


# How many policies to try ---------------------------------------------------------------------------

# In each step of an episode the model is asked repeatedly: a reply either asks to try policies on copies of the
# environment, or picks the policy of this step. Each reply is paid from the episode's budget.


def _count_policies_to_try(
    view: PromptView, strength: Strength, rng: np.random.Generator, num_tried: int
) -> int:
    """Decide how many policies the next reply asks to try on copies of the environment.

    Args:
        view: What the prompt shows.
        strength: Strength of the scripted model; how many policies it wants to try in a step.
        rng: Random numbers, of which one is drawn.
        num_tried: Policies that were tried in this step already.

    Returns:
        The number of policies; 0 to pick a policy now.
    """
    if view.at_once == 0 or view.is_final:
        return 0
    fewest, most = strength.policies_tried or (NO_LIMIT, NO_LIMIT)
    limit = NO_LIMIT if view.limit is None else view.limit
    target_number = min(int(rng.integers(fewest, most + 1)), limit)

    # TO tries one policy in each reply, RO all of them in one.
    trial_replies = num_tried if view.at_once == 1 else min(num_tried, 1)
    if target_number <= num_tried or not _can_afford_trial(view, trial_replies):
        return 0
    return min(target_number - num_tried, view.at_once)


def _can_afford_trial(view: PromptView, trial_replies: int) -> bool:
    """Decide whether the episode's budget allows one more reply that tries policies before this step's decision.

    Each remaining step gets an equal share of the replies that the budget still pays for:

        share = (affordable replies + trial_replies) / expected remaining steps

    where those of this step count again, since they belong to its share. The step needs trial_replies + 1 replies with
    the next trial, and one more for the decision.

    Args:
        view: What the prompt shows; its budget line holds dollars.
        trial_replies: Replies of this step that have tried policies already.

    Returns:
        Whether the share covers trial_replies + 2 replies; always without a budget.
    """
    budget = view.budget
    if budget is None:
        return True
    if budget.typical_reply == 0:
        # No price is shown. Before the first paid reply one trial is risked, so that a price becomes known; if money is
        # gone already, replies cost less than the prompt's digits can show.
        money_was_spent = budget.remaining < budget.total
        return trial_replies == 0 or money_was_spent
    replies_to_share = _count_affordable_replies(view) + trial_replies
    replies_per_step = replies_to_share / _estimate_remaining_steps(view)
    return replies_per_step >= trial_replies + 2


def _count_affordable_replies(view: PromptView) -> float:
    """How many replies the rest of the budget pays for at their mean price so far; inf where none is known."""
    budget = view.budget
    return budget.remaining / budget.typical_reply if budget.typical_reply else math.inf


def _estimate_remaining_steps(view: PromptView) -> float:
    """Expected steps until the episode ends, this one included: EXPECTED_FRACTION of those up to its horizon."""
    if view.step is None:
        return 1.0
    return max(1.0, EXPECTED_FRACTION * (view.horizon - view.step + 1))


# Scores ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PolicyScore:
    """What a policy comes to.

    Attributes:
        name: The policy's.
        value: Its score.
        reasons: Why, in words.
        has_evidence: Whether anything was known of it.
    """

    name: str
    value: float
    reasons: str
    has_evidence: bool


@dataclass(frozen=True)
class Evidence:
    """One thing that is known of a policy: its scalarized result, how many steps it counts as, and where it is from."""

    value: float
    weight: float
    source: str


def score_policies(
    view: PromptView, strength: Strength, rng: np.random.Generator
) -> list[PolicyScore]:
    """Score every policy that is visible by the mean of all evidence on it, plus noise.

    Results, cards, recent steps and the summary pool as if they were observations: a result counts its
    copies, a card CARD_WEIGHT, a step in the recent past 1, a line of the summary its steps up to SUMMARY_WEIGHT.

    Args:
        view: What the prompt shows.
        strength: Strength of the model.
        rng: Random numbers.

    Returns:
        The scores, best first.
    """
    noise = (
        rng.standard_normal(len(view.names)) * strength.noise
    )  # (policies,), in units of results
    evidence = {name: _collect_evidence(name, view, strength) for name in view.names}
    means = {}
    for name, pieces in evidence.items():
        if pieces:
            total_weight = sum(piece.weight for piece in pieces)
            means[name] = sum(piece.value * piece.weight for piece in pieces) / total_weight
    # Of a policy without evidence, expect what the others do on average.
    typical = sum(means.values()) / len(means) if means else 0.0

    scores = []
    for name, noise_of_policy in zip(view.names, noise, strict=True):
        reasons = [piece.source for piece in evidence[name]]
        bonus = _nearby_bonus(name, view)
        penalty = _idle_penalty(name, view)
        if bonus:
            reasons.append(f"what it was trained for is near, +{bonus:.2f}")
        if penalty:
            reasons.append(f"it has stood still, -{penalty:.2f}")
        situation = bonus - penalty
        score = PolicyScore(
            name=name,
            value=means.get(name, typical) + situation + float(noise_of_policy),
            reasons="; ".join(reasons),
            has_evidence=name in means,
        )
        scores.append(score)
    return sorted(scores, key=lambda score: -score.value)


def scalarize_results(trial: Trial, importance: Mapping[str, float]) -> float:
    """Weigh the results of a trial by the importance of their criteria, sum_i w_i r_i.

    Args:
        trial: Results of a policy by criterion.
        importance: Weights by criterion, in [0, 1]; others count UNKNOWN_IMPORTANCE.

    Returns:
        The weighted sum, in units of results.
    """
    return sum(
        importance.get(criterion, UNKNOWN_IMPORTANCE) * result
        for criterion, result in trial.results.items()
    )


def describe_results(results: Mapping[str, float]) -> str:
    """Results in words, with three digits: `gap 0.500, aptitude 0.100`."""
    return ", ".join(f"{name} {value:.3f}" for name, value in results.items())


# Evidence -------------------------------------------------------------------------------------------


def _collect_evidence(name: str, view: PromptView, strength: Strength) -> list[Evidence]:
    """Collect from the prompt what speaks for a policy: estimates of its results, the most reliable kind first.

    Args:
        name: Name of the policy.
        view: What the scripted model reads in the prompt: trial results, policy cards, recent steps and a summary.
        strength: Which of these kinds the scripted model makes use of.

    Returns:
        Estimates of the scalarized result, each with a weight and its source in words.
    """
    evidence = []
    for trial in view.results:
        if trial.name == name:
            value = scalarize_results(trial, view.importance)
            source = f"{describe_results(trial.results)}; {trial.change}"
            evidence.append(Evidence(value, trial.count, source))

    promised = _read_promise(view.cards.get(name), view)
    if promised is not None:
        value = scalarize_results(Trial(name, promised), view.importance)
        source = f"its card says {describe_results(promised)}"
        evidence.append(Evidence(value, CARD_WEIGHT, source))

    # A step without any reward says nothing where rewards come at the end.
    recent_values = [
        scalarize_results(trial, view.importance)
        for trial in view.recent
        if trial.name == name and any(trial.results.values())
    ]
    if recent_values:
        num_steps = len(recent_values)
        source = f"{num_steps} recent {'step' if num_steps == 1 else 'steps'}"
        evidence.append(Evidence(sum(recent_values) / num_steps, num_steps, source))

    if strength.uses_summary:
        for trial in view.summary:
            if trial.name == name and any(trial.results.values()):
                value = scalarize_results(trial, view.importance)
                weight = min(trial.count, SUMMARY_WEIGHT)
                source = f"{trial.count:.0f} picks in the summary"
                evidence.append(Evidence(value, weight, source))
    return evidence


def _read_promise(card: VisibleCard | None, view: PromptView) -> Mapping[str, float] | None:
    """Read which results a policy's card lets expect in the current state.

    Args:
        card: The policy's description in the prompt; None where there is none.
        view: What else the prompt shows.

    Returns:
        The card's row of this situation; the mean of its rows where the situation is out of sight; None without rows.
    """
    if card is None or not card.results:
        return None
    if view.situation in card.results:
        return card.results[view.situation]
    rows = list(card.results.values())
    return {criterion: sum(row[criterion] for row in rows) / len(rows) for criterion in rows[0]}


# The situation --------------------------------------------------------------------------------------


def _nearby_bonus(name: str, view: PromptView) -> float:
    """Compute a bonus for a policy whose objective is in view: gold, or lava for the objective "no-lava".

    Args:
        name: Name of the policy.
        view: The prompt, with the policies' cards and the objects in view.

    Returns:
        The bonus, larger for near objects and important objectives; 0 where nothing of the kind is in view.
    """
    card = view.cards.get(name)
    in_view = view.state.get("in view", "")
    if card is None or not in_view:
        return 0.0
    bonus = 0.0
    for objective in card.objectives:
        distances = [
            int(ahead) + int(aside or 0)
            for kind, ahead, aside in DISTANCE.findall(in_view)
            if kind == objective.removeprefix("no-")
        ]
        if distances:
            importance = view.importance.get(objective, UNKNOWN_IMPORTANCE)
            bonus += NEARBY_BONUS * importance / (1 + min(distances))
    return bonus


def _idle_penalty(name: str, view: PromptView) -> float:
    """Compute a penalty for a policy that acted while the robot stayed on one cell without a reward.

    Args:
        name: Name of the policy.
        view: The prompt, with the current position and the recent steps.

    Returns:
        IDLE_PENALTY times the fraction of recent steps that the policy acted; 0 where the robot moved or was rewarded.
    """
    position = POSITION.search(view.state.get("position", ""))
    if position is None or len(view.recent) < 2:
        return 0.0
    for trial in view.recent:
        earlier = POSITION.search(trial.before)
        if earlier is None or earlier[0] != position[0]:
            return 0.0
        if any(trial.results.values()):
            return 0.0
    steps_of_policy = sum(trial.name == name for trial in view.recent)
    return IDLE_PENALTY * steps_of_policy / len(view.recent)
