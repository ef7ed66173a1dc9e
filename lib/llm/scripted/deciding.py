"""Which policy to try on copies of the environment, or to pick, by plain averages of the numbers in the prompt.

Left out: learning. The same prompt is weighed alike in every episode.
"""

from __future__ import annotations

import math
import re
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
    read_rewards,
)

# Deciding -------------------------------------------------------------------------------------------


def decide(view: PromptView, strength: Strength, rng: np.random.Generator) -> dict[str, Any]:
    """Reply to an orchestrator's prompt: ask to try more policies on copies, or pick the policy that acts next.

    Args:
        view: What the prompt of KO, TO or RO shows.
        strength: Of the scripted model.
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
    """Say why the first of the ranked policies is picked, with the numbers that decided.

    Args:
        ranked: Scores of the policies that could be picked, best first.
        view: What the prompt shows.

    Returns:
        One or two sentences; the second where only the price of further replies kept it from trying policies.
    """
    best = ranked[0]
    grounds = f" ({best.reasons})" if best.reasons else ", a guess without any figures,"
    explanation = f"{best.name} comes to {best.value:.2f}{grounds}"
    if len(ranked) > 1:
        explanation += f", {ranked[1].name} to {ranked[1].value:.2f}"

    may_try = view.at_once and not view.is_final
    shows_price = view.budget and view.budget.typical_reply
    if may_try and shows_price and not _can_afford_trial(view, trial_replies=0):
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
        strength: Of the scripted model; how many policies it wants to try in a step.
        rng: Random numbers, of which one is drawn.
        num_tried: Policies that were tried in this step already.

    Returns:
        The number of policies; 0 to pick a policy now.
    """
    if view.at_once == 0 or view.is_final:
        return 0
    fewest, most = strength.policies_tried or (NO_LIMIT, NO_LIMIT)
    limit = NO_LIMIT if view.limit is None else view.limit
    num_wanted = min(int(rng.integers(fewest, most + 1)), limit)

    # TO tries one policy in each reply, RO all of them in one.
    trial_replies = num_tried if view.at_once == 1 else min(num_tried, 1)
    if num_wanted <= num_tried or not _can_afford_trial(view, trial_replies):
        return 0
    return min(num_wanted - num_tried, view.at_once)


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
    """One thing that is known of a policy: its scalarized reward, how many steps it counts as, and where it is from."""

    reward: float
    weight: float
    source: str


def score_policies(
    view: PromptView, strength: Strength, rng: np.random.Generator
) -> list[PolicyScore]:
    """Score every policy that is visible by the mean reward of all evidence on it, plus noise.

    Results, cards, recent steps and the summary pool as if they were observations: a result counts its
    copies, a card CARD_WEIGHT, a step in the recent past 1, a line of the summary its steps up to SUMMARY_WEIGHT.

    Args:
        view: What the prompt shows.
        strength: Of the model.
        rng: Random numbers.

    Returns:
        The scores, best first.
    """
    noise = rng.standard_normal(len(view.names)) * strength.noise  # (policies,), in units of reward
    evidence = {name: _collect_evidence(name, view, strength) for name in view.names}
    means = {}
    for name, pieces in evidence.items():
        if pieces:
            total_weight = sum(piece.weight for piece in pieces)
            means[name] = sum(piece.reward * piece.weight for piece in pieces) / total_weight
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


def scalarize_rewards(trial: Trial, importance: Mapping[str, float]) -> float:
    """Weigh the rewards of a trial by the importance of their objectives, sum_i w_i r_i.

    Args:
        trial: Rewards of a policy by objective, and what changed in words.
        importance: Weights by objective, in [0, 1]; others count UNKNOWN_IMPORTANCE.

    Returns:
        The weighted sum, in units of reward; for an objective no-X less the weighted fraction of copies that met X.
    """
    value = sum(
        importance.get(objective, UNKNOWN_IMPORTANCE) * reward
        for objective, reward in trial.rewards.items()
    )
    for objective in trial.rewards:
        if objective.startswith("no-"):
            # Avoidance is rewarded at the end of an episode only; in a trial its failures show in words.
            hazard = objective.removeprefix("no-")
            fraction_met = _read_percentage(trial.change, f"{hazard} in ")
            value -= importance.get(objective, UNKNOWN_IMPORTANCE) * fraction_met
    return value


def describe_rewards(rewards: Mapping[str, float]) -> str:
    """Rewards in words, with two digits: `gap 0.50, aptitude 0.10`."""
    return ", ".join(f"{name} {value:.2f}" for name, value in rewards.items())


def _read_percentage(text: str, words_before: str) -> float:
    """The fraction behind some words, e.g. 0.13 in `lava in 13% of copies`; 0 where they do not stand there."""
    match = re.search(re.escape(words_before) + r"(\d+)%", text)
    return int(match[1]) / 100 if match else 0.0


# Evidence -------------------------------------------------------------------------------------------


def _collect_evidence(name: str, view: PromptView, strength: Strength) -> list[Evidence]:
    """Collect from the prompt what speaks for a policy: estimates of its reward, the most reliable kind first.

    Args:
        name: Name of the policy.
        view: What the scripted model reads in the prompt: trial results, policy cards, recent steps and a summary.
        strength: Which of these kinds the scripted model makes use of.

    Returns:
        Estimates of the scalarized reward, each with a weight and its source in words.
    """
    evidence = []
    for trial in view.results:
        if trial.name == name:
            reward = scalarize_rewards(trial, view.importance)
            source = f"{describe_rewards(trial.rewards)}; {trial.change}"
            evidence.append(Evidence(reward, trial.count, source))

    promised = _read_promise(view.cards.get(name), view)
    if promised is not None:
        reward = scalarize_rewards(Trial("", promised), view.importance)
        source = f"its card says {describe_rewards(promised)}"
        evidence.append(Evidence(reward, CARD_WEIGHT, source))

    # A step without any reward says nothing where rewards come at the end.
    recent_rewards = [
        scalarize_rewards(trial, view.importance)
        for trial in view.recent
        if trial.name == name and any(trial.rewards.values())
    ]
    if recent_rewards:
        num_steps = len(recent_rewards)
        source = f"{num_steps} recent {'step' if num_steps == 1 else 'steps'}"
        evidence.append(Evidence(sum(recent_rewards) / num_steps, num_steps, source))

    if strength.uses_summary:
        for trial in view.summary:
            if trial.name == name and any(trial.rewards.values()):
                reward = scalarize_rewards(trial, view.importance)
                weight = min(trial.count, SUMMARY_WEIGHT)
                source = f"{trial.count:.0f} picks in the summary"
                evidence.append(Evidence(reward, weight, source))
    return evidence


def _read_promise(card: VisibleCard | None, view: PromptView) -> dict[str, float] | None:
    """Read which rewards a policy's card (its description in the prompt) lets expect in the current state.

    They are the mean of its examples that match the state, else of all that speak of a state, else the rates in its
    text, else its normalised reward for what it was trained for.
    """
    if card is None:
        return None
    matching = []  # rewards of examples whose conditions hold now
    with_condition = []  # rewards of all examples that have conditions on the state
    for snippet in card.snippets:
        matches = _matches_state(snippet, view.state)
        if matches is not None:
            rewards = read_rewards(snippet.rpartition(" -> ")[2])
            with_condition.append(rewards)
            if matches:
                matching.append(rewards)
    examples = matching or with_condition
    if examples:
        promised = {}
        for objective in examples[0]:
            total = sum(rewards.get(objective, 0.0) for rewards in examples)
            promised[objective] = total / len(examples)
        return promised

    rates = _read_rates(card, view)
    if rates:
        return rates
    if card.normalised is None:
        return None
    return dict.fromkeys(card.objectives, card.normalised)


def _matches_state(snippet: str, state: Mapping[str, str]) -> bool | None:
    """Whether the conditions of a card's example hold in the current state.

    Args:
        snippet: An example such as "mastery >= 0.5 + none failed -> goal 0.8".
        state: The state in the prompt, value by name.

    Returns:
        Whether all conditions hold; None for an example without conditions on the state.
    """
    matches = []  # for each condition on the state whether it holds
    for condition in snippet.split(" -> ")[0].split(" + "):
        bound = re.fullmatch(r"mastery (>=|<) ([\d.]+)", condition)
        if bound and "mastery" in state:
            mastery = float(state["mastery"].split()[0])
            condition_is_above = bound[1] == ">="
            matches.append((mastery >= float(bound[2])) == condition_is_above)
        elif (
            condition in ("failed questions open", "none failed")
            and "failed questions open" in state
        ):
            some_open = int(state["failed questions open"]) > 0
            matches.append(some_open == (condition == "failed questions open"))
    return all(matches) if matches else None


def _read_rates(card: VisibleCard, view: PromptView) -> dict[str, float]:
    """Fractions of episodes that a card states for objectives: `goal 27%`, and `on lava in 57%` for no-lava."""
    objectives = {*view.importance, *card.objectives}
    for snippet in card.snippets:
        objectives |= read_rewards(snippet).keys()
    rates = {}
    for objective in sorted(objectives):
        is_avoidance = objective.startswith("no-")
        hazard = objective.removeprefix("no-")
        words_before = f"on {hazard} in " if is_avoidance else f"{objective} "
        if re.search(re.escape(words_before) + r"\d+%", card.text):
            rate = _read_percentage(card.text, words_before)
            rates[objective] = 1 - rate if is_avoidance else rate
    return rates


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
        if any(trial.rewards.values()):
            return 0.0
    steps_of_policy = sum(trial.name == name for trial in view.recent)
    return IDLE_PENALTY * steps_of_policy / len(view.recent)
