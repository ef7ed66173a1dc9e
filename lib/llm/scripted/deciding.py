"""Which policy to look at or to pick: evidence is compared by plain averages of the numbers in the prompt."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lib.llm.scripted.model_strength import (
    ALIKE,
    CARD,
    INVENTED,
    MEMORY,
    NEARBY,
    SHARE_OF_REST,
    STALE,
    Draw,
    Strength,
)
from lib.llm.scripted.reading import DISTANCE, MANY, PLACE, CardSeen, Trial, View, rewards_in


def worth(trial: Trial, importance: Mapping[str, float]) -> float:
    """One number for what a policy did: rewards weighed by the query's importance, and nothing that it does not name.

    For an objective called no-X the share of copies that met X is taken off: it is paid at the end only. Objectives of
    unknown importance count ALIKE.
    """
    value = sum(importance.get(name, ALIKE) * reward for name, reward in trial.rewards.items())
    for name in trial.rewards:
        if name.startswith("no-"):
            value -= importance.get(name, ALIKE) * _percent(trial.change, f"{name[3:]} in ")
    return value


def _percent(text: str, before: str) -> float:
    """The share behind some words, e.g. 0.13 in `lava in 13% of copies`; 0 where they do not stand."""
    match = re.search(re.escape(before) + r"(\d+)%", text)
    return int(match[1]) / 100 if match else 0.0


@dataclass(frozen=True)
class Score:
    """What a policy comes to and why; seen: whether there was any evidence on it."""

    name: str
    value: float
    because: str
    seen: bool


def scores(view: View, strength: Strength, draw: Draw) -> list[Score]:
    """Every policy that is visible, best first: the mean worth of all evidence on it, plus noise.

    Results, cards, recent steps and the summary pool as if they were observations: a result counts its
    copies, a card CARD, a step in the recent past 1, a line of the summary its steps up to MEMORY.
    """
    noises = draw.standard_normal(len(view.names)) * strength.noise
    pooled = {name: _evidence(name, view, strength) for name in view.names}
    means = {
        name: sum(value * count for value, count, _ in known) / sum(count for _, count, _ in known)
        for name, known in pooled.items()
        if known
    }
    typical = (
        sum(means.values()) / len(means) if means else 0.0
    )  # of what is unknown, expect the average
    extras = {name: _situation(name, view) for name in view.names}
    ranked = [
        Score(
            name=name,
            value=means.get(name, typical) + extra + float(noise),
            because="; ".join((*(why for *_, why in pooled[name]), *whys)),
            seen=name in means,
        )
        for (name, (extra, whys)), noise in zip(extras.items(), noises, strict=True)
    ]
    return sorted(ranked, key=lambda score: -score.value)


def _evidence(name: str, view: View, strength: Strength) -> list[tuple[float, float, str]]:
    """(worth, weight, words) of every piece of evidence on a policy, the strongest kind first."""
    found = []
    for trial in view.results:
        if trial.name == name:
            found.append(
                (
                    worth(trial, view.importance),
                    trial.count,
                    f"{in_words(trial.rewards)}; {trial.change}",
                )
            )
    card = view.cards.get(name)
    if card:
        found += _card_evidence(card, view)
    # A step that paid nothing at all says nothing where rewards come at the end.
    own = [
        worth(trial, view.importance)
        for trial in view.recent
        if trial.name == name and any(trial.rewards.values())
    ]
    if own:
        found.append(
            (
                sum(own) / len(own),
                len(own),
                f"{len(own)} recent {'step' if len(own) == 1 else 'steps'}",
            )
        )
    if strength.recalls:
        for trial in view.memory:
            if trial.name == name and any(trial.rewards.values()):
                told = f"{trial.count:.0f} picks in the summary"
                found.append((worth(trial, view.importance), min(trial.count, MEMORY), told))
    return found


def _card_evidence(card: CardSeen, view: View) -> list[tuple[float, float, str]]:
    """What a card promises here: the mean of its examples that match the state, else of all that speak of
    a state, else the rates in its words, else its normalised reward for what it was trained for."""
    speaking = [(_matches(snippet, view.state), snippet) for snippet in card.snippets]
    speaking = [
        (match, rewards_in(snippet.rpartition(" -> ")[2]))
        for match, snippet in speaking
        if match is not None
    ]
    fitting = [rewards for match, rewards in speaking if match] or [
        rewards for _, rewards in speaking
    ]
    if fitting:
        mean = {
            name: sum(each.get(name, 0.0) for each in fitting) / len(fitting) for name in fitting[0]
        }
        return [(worth(Trial("", mean), view.importance), CARD, f"its card says {in_words(mean)}")]
    rates = _rates(card, view)
    if rates:
        return [
            (worth(Trial("", rates), view.importance), CARD, f"its card says {in_words(rates)}")
        ]
    if card.normalised is None or not card.objectives:
        return []
    promised = dict.fromkeys(card.objectives, card.normalised)
    return [
        (worth(Trial("", promised), view.importance), CARD, f"its card says {in_words(promised)}")
    ]


def _rates(card: CardSeen, view: View) -> dict[str, float]:
    """Shares of episodes that a card states for objectives: `goal 27%`, and `on lava in 57%` for no-lava."""
    objectives = {
        *view.importance,
        *card.objectives,
        *(name for each in card.snippets for name in rewards_in(each)),
    }
    rates = {}
    for name in sorted(objectives):
        words = f"on {name[3:]} in " if name.startswith("no-") else f"{name} "
        if re.search(re.escape(words) + r"\d+%", card.words):
            share = _percent(card.words, words)
            rates[name] = 1 - share if name.startswith("no-") else share
    return rates


def _matches(snippet: str, state: Mapping[str, str]) -> bool | None:
    """Whether an example of a card is like the state; None where it speaks of no state."""
    told = []
    for condition in snippet.split(" -> ")[0].split(" + "):
        bound = re.fullmatch(r"mastery (>=|<) ([\d.]+)", condition)
        if bound and "mastery" in state:
            above = float(state["mastery"].split()[0]) >= float(bound[2])
            told.append(above == (bound[1] == ">="))
        elif (
            condition in ("failed questions open", "none failed")
            and "failed questions open" in state
        ):
            told.append(
                (int(state["failed questions open"]) > 0) == (condition == "failed questions open")
            )
    return all(told) if told else None


def _situation(name: str, view: View) -> tuple[float, list[str]]:
    """What the state adds to a policy or takes from it, and why."""
    near, stale = _occasion(name, view), _stale(name, view)
    words = [f"what it was trained for is near, +{near:.2f}"] * bool(near)
    return near - stale, words + [f"it has stood still, -{stale:.2f}"] * bool(stale)


def _occasion(name: str, view: View) -> float:
    """What speaks for a policy because the thing it was trained for (gold, or lava for no-lava) is in view."""
    card, seen = view.cards.get(name), view.state.get("in view", "")
    if card is None or not seen:
        return 0.0
    cells = [
        (thing, int(ahead) + int(aside or 0)) for thing, ahead, aside in DISTANCE.findall(seen)
    ]
    bonus = 0.0
    for objective in card.objectives:
        distances = [far for thing, far in cells if thing == objective.removeprefix("no-")]
        if distances:
            bonus += NEARBY * view.importance.get(objective, ALIKE) / (1 + min(distances))
    return bonus


def _stale(name: str, view: View) -> float:
    """What speaks against a policy because the robot has stood on one cell, unpaid, while it acted."""
    here = PLACE.search(view.state.get("position", ""))
    if here is None or len(view.recent) < 2:
        return 0.0
    places = [PLACE.search(trial.before) for trial in view.recent]
    moved = any(place is None or place[0] != here[0] for place in places)
    if moved or any(value for trial in view.recent for value in trial.rewards.values()):
        return 0.0
    return STALE * sum(trial.name == name for trial in view.recent) / len(view.recent)


def in_words(rewards: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in rewards.items())


# Deciding ------------------------------------------------------------------------------------------


def decide(view: View, strength: Strength, draw: Draw) -> dict[str, Any]:
    """The reply to a KO, TO or RO prompt: look at more policies, or pick the best of what was seen."""
    if not view.names:
        return {
            "reasoning": "No policy is named here, so I take what should do best.",
            "policy": INVENTED,
        }
    ranked = scores(view, strength, draw)
    tried = [trial.name for trial in view.results]
    more = _looks(view, strength, draw, len(tried))
    wanted = [score for score in ranked if score.name not in tried][:more]
    if wanted:
        names = [score.name for score in wanted]
        call = names if view.at_once > 1 else names[0]
        return {"reasoning": _why_look(wanted, view), "call": call}
    if tried:
        ranked = [score for score in ranked if score.name in tried] or ranked
    return {"reasoning": _why_pick(ranked, view), "policy": ranked[0].name}


def _looks(view: View, strength: Strength, draw: Draw, tried: int) -> int:
    """How many policies to look at in this reply; 0 to decide."""
    if view.at_once == 0 or view.final:
        return 0
    least, most = strength.tries or (MANY, MANY)
    most = min(int(draw.integers(least, most + 1)), MANY if view.limit is None else view.limit)
    if most <= tried or not _affordable(view, (tried if view.at_once == 1 else min(tried, 1))):
        return 0
    return min(most - tried, view.at_once)


def _affordable(view: View, used: int) -> bool:
    """Whether one more look leaves the steps to come their share of replies.

    used: replies spent on looking in this step. The share is (replies left + used) / steps expected; a
    look needs used + 2 of it, since a decision has to follow. Before any reply has been paid the price
    is unknown, and one look is risked.
    """
    if view.purse is None:
        return True
    if view.purse.typical == 0:
        return used == 0 or view.purse.left < view.purse.total  # paid, yet too cheap to be shown
    return (_replies_left(view) + used) / _steps_left(view) >= used + 2


def _replies_left(view: View) -> float:
    return view.purse.left / view.purse.typical if view.purse.typical else math.inf


def _steps_left(view: View) -> float:
    if view.step is None:
        return 1.0
    return max(1.0, SHARE_OF_REST * (view.horizon - view.step + 1))


def _why_look(wanted: Sequence[Score], view: View) -> str:
    first = wanted[0]
    names = ", ".join(score.name for score in wanted)
    known = (
        f"{first.name} promises {first.value:.2f} ({first.because})"
        if first.seen
        else f"{first.name} is untested"
    )
    return f"{known}; {len(view.results)} of {len(view.names)} policies were tried in this state, so I look at {names}."


def _why_pick(ranked: Sequence[Score], view: View) -> str:
    """Why the first of the ranked is picked, with the numbers that decided."""
    best = ranked[0]
    grounds = f" ({best.because})" if best.because else ", a guess without any figures,"
    said = f"{best.name} comes to {best.value:.2f}{grounds}"
    if len(ranked) > 1:
        said += f", {ranked[1].name} to {ranked[1].value:.2f}"
    if (
        view.at_once
        and not view.final
        and view.purse
        and view.purse.typical
        and not _affordable(view, 0)
    ):
        said += (
            f". About {_replies_left(view):.0f} replies are left for {_steps_left(view):.0f} steps, "
            "so I try no more"
        )
    return said + "."
