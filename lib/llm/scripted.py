"""Scripted stand-ins: programs that read a prompt and reply as a language model would.

`scripted-small`, `-medium` and `-large` answer every prompt of the policy orchestrators (KO, TO, RO,
their summaries) and of the judge. They know the *text* of the request and nothing else: no simulator,
no policy, no setting of the bench. They differ in how much of the context they can use (a window at its
end), how noisily they compare numbers, how far they look, and how often they spoil a reply; `STRENGTHS`
is the whole difference. All chance comes from the request (model, text, seed), so the same request has
the same reply everywhere.

Left out: any claim about language models. The heuristics are plain averages of the numbers in the
prompt, they were not fitted to any result, and nothing here knows a policy by name. The temperature is
ignored. How a prompt's lines look is repeated here as patterns, because this room may not import the
one that writes them; tests hold the two together.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from lib import seeds
from lib.llm.transport import InProcess, completion

Draw = np.random.Generator


@dataclass(frozen=True)
class Strength:
    """What tells the stand-ins apart.

    window: characters from the end of the context that it can use, None for all; noise: standard
    deviation of what it adds to every score (scores are mean rewards, about 0 to 1); breaks: share of
    JSON replies that it spoils (halved after each complaint); tries: fewest and most policies that it
    looks at before it decides, None for as many as it may; recalls: whether it uses an older summary.
    """

    window: int | None
    noise: float
    breaks: float
    tries: tuple[int, int] | None
    recalls: bool


STRENGTHS = {
    "scripted-small": Strength(window=1_500, noise=0.12, breaks=0.12, tries=(1, 2), recalls=False),
    "scripted-medium": Strength(window=3_500, noise=0.04, breaks=0.04, tries=(2, 2), recalls=True),
    "scripted-large": Strength(window=None, noise=0.01, breaks=0.005, tries=None, recalls=True),
}

# How evidence is weighed. Decisions of ours, fitted to nothing.
ALIKE = 1 / 3  # importance of an objective whose own is out of sight: one of three
PROGRESS = 1 / 3  # what progress counts beside the objectives: as much as one of three
STRIDE = 0.2  # mastery gained in one step that counts as full progress: one level of difficulty
CARD = 4.0  # steps of one's own that a card is worth
MEMORY = 4.0  # steps that a policy's line in the summary is worth at the most
NEARBY = 0.5  # what a thing in view at no distance adds for the policy trained for it, times its importance
STALE = 0.1  # what standing still without any reward takes from the policies that did it
SHARE_OF_REST = 0.5  # of the steps that an episode may still have, how many to expect
INVENTED = "best_policy"  # what is picked when no name can be seen
WORDS = 150  # of a summary, at the most


def answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """The chat completion for an OpenAI-compatible request body.

    Read are model, messages, seed and max_completion_tokens or max_tokens; tokens are words and
    punctuation marks, our own count. Raises ValueError for a model that is not in STRENGTHS and for
    messages that are not text.
    """
    model = body.get("model")
    if model not in STRENGTHS:
        raise ValueError(f"there is no scripted model {model!r}; there are {', '.join(STRENGTHS)}")
    messages = _checked(body.get("messages"))
    whole = "\n\n".join(f"<{role}>\n{content}" for role, content in messages)
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    draw = seeds.rng("scripted", model, digest, seed=int(body.get("seed") or 0))
    complaints = sum(role == "assistant" for role, _ in messages)
    text, finish = respond("\n\n".join(content for _, content in messages), STRENGTHS[model], draw, complaints)
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    text, used, cut = _limited(text, limit)
    asked = sum(count_tokens(content) for _, content in messages)
    return completion(model, text, asked, used, "length" if cut else finish)


def transport() -> InProcess:
    """The stand-ins behind the same client as endpoints."""
    return InProcess(answer)


def respond(context: str, strength: Strength, draw: Draw, complaints: int = 0) -> tuple[str, str]:
    """The text of a reply and its finish reason.

    context: all messages in order, joined; complaints: how often the reply was sent back already.
    """
    text = context if strength.window is None else context[-strength.window :]
    if _SUMMARY_ASKED in text:
        return summarise(read(text), strength), "stop"
    spoil = draw.random() < strength.breaks * 0.5**complaints
    if _JUDGE_ASKED in text:
        reply, breaks, options = judge(text, strength, draw), _JUDGE_BREAKS, _Options()
    else:
        view = read(text)
        reply, breaks = decide(view, strength, draw), _BREAKS
        options = _Options(view.names, tuple(trial.name for trial in view.results))
    if not spoil:
        return json.dumps(reply, ensure_ascii=False), "stop"
    return breaks[int(draw.integers(len(breaks)))](reply, options, draw)


_TOKEN = re.compile(r"\w+|[^\w\s]")


@lru_cache(maxsize=1_024)  # a system message comes again and again
def count_tokens(text: str) -> int:
    """Words and punctuation marks: the stand-ins' own count, close to but not any tokeniser's."""
    return len(_TOKEN.findall(text))


def _limited(text: str, limit: int | None) -> tuple[str, int, bool]:
    """The text up to its limit-th token, its tokens, and whether anything was cut off."""
    ends = [match.end() for match in _TOKEN.finditer(text)]
    if limit is None or len(ends) <= limit:
        return text, len(ends), False
    return text[: ends[limit - 1]], limit, True


def _checked(messages: Any) -> list[tuple[str, str]]:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise ValueError(f"messages must be a list of at least one message, got {messages!r}")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
            raise ValueError(f"a message must be a role and a content of text, got {message!r}")
    return [(str(message.get("role")), message["content"]) for message in messages]


# Reading ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trial:
    """What a policy is reported to have done: rewards by objective, per step or in all as the line says
    it, what changed, over how many steps; before: how things stood; count: how many times it was seen."""

    name: str
    rewards: Mapping[str, float]
    change: str = ""
    steps: int = 1
    count: float = 1.0
    before: str = ""


@dataclass(frozen=True)
class CardSeen:
    """What is left of a policy's card, or of its entry among the tools, inside the window."""

    objectives: tuple[str, ...] = ()
    normalised: float | None = None
    snippets: tuple[str, ...] = ()
    words: str = ""


@dataclass(frozen=True)
class Purse:
    """The budget line of a query, in dollars."""

    left: float
    total: float
    typical: float


@dataclass(frozen=True)
class View:
    """All that the window shows. What was cut off is empty or None."""

    names: tuple[str, ...] = ()
    importance: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    cards: Mapping[str, CardSeen] = field(default_factory=dict)
    results: tuple[Trial, ...] = ()
    recent: tuple[Trial, ...] = ()
    memory: tuple[Trial, ...] = ()
    trend: Mapping[str, float] = field(default_factory=dict)
    step: int | None = None
    horizon: int | None = None
    purse: Purse | None = None
    limit: int | None = None
    at_once: int = 0  # policies that a reply may look at: 0 in KO, 1 in TO, many in RO
    final: bool = False


_SUMMARY_ASKED = "# What the new summary must hold"
_JUDGE_ASKED = "# Scores to give"
_MANY = 99
_NAMES = re.compile(r"by its exact name: (.+)\.$|Names are exactly: (.+)\.$", re.MULTILINE)
_IMPORTANCE = re.compile(r"^- ([\w-]+), importance (\d+\.\d+):", re.MULTILINE)
_STATE = re.compile(r"^- (mastery|failed questions open|position|in front|in view|gold left): (.*)$", re.MULTILINE)
_REWARD = re.compile(r"([A-Za-z][\w-]*) (\d+\.\d+)")
_RESULT = re.compile(
    r"^- (\S+): (?:did [^;\n]*|(\d+) steps: [^;\n]*); (?:.*; )?rewards ([^;\n]+); "
    r"(.*) \((?:one copy|mean of (\d+) copies)\)$",
    re.MULTILINE,
)
_RECENT = re.compile(r"(?:^- step \d+: ([^\n]*?); )?picked (\S+); did [^;\n]*; rewards ([^;\n]+); (.*)$", re.MULTILINE)
_MEMORY = re.compile(r"(?<=\n)(\S+): picked (\d+) times?; mean ([^;\n]+)(?:; (mastery \S+) a step)?\.$", re.MULTILINE)
_TREND = re.compile(r"^From the start: (.*)\.$", re.MULTILINE)
_TREND_PART = re.compile(r"([a-z ]+?) (\d[\d.]*) to \d")
_QUERY = re.compile(r"Pick the policy for step (\d+) of at most (\d+)")
_PURSE = re.compile(r"Budget: \$([\d.]+) of \$([\d.]+) left; a reply has cost about \$([\d.]+)\.")
_LIMIT = re.compile(r"(\d+) (?:policies )?at the most")
_FIELD = re.compile(r'"(name|optimized_objective|applicability|failure_modes)": "([^"]*)"')
_NORMALISED = re.compile(r'"normalized_reward": ([\d.]+)')
_SNIPPET = re.compile(r'"([^"\n]* -> [^"\n]* -> [^"\n]*)"')
_CHANGE = re.compile(r"mastery ([+-]\d+\.\d+)")
_PLACE = re.compile(r"column (\d+), row (\d+)")
_DISTANCE = re.compile(r"([\w-]+) (\d+) ahead, (?:(\d+) to the|straight)")
_QUANTITY = re.compile(r"(mastery|failed questions open|gold left) (\d+(?:\.\d+)?)")


def read(text: str) -> View:
    """What a prompt, or the end of one, shows. Lines count by their own form, wherever they stand, so a
    section whose heading was cut off is read as far as it goes."""
    results = tuple(
        Trial(name, _rewards(rewards), change, int(steps or 1), float(copies or 1))
        for name, steps, rewards, change, copies in _RESULT.findall(text)
    )
    recent = tuple(
        Trial(name, _rewards(rewards), change, before=before) for before, name, rewards, change in _RECENT.findall(text)
    )
    memory = tuple(
        Trial(name, _rewards(rewards), change, count=float(count))
        for name, count, rewards, change in _MEMORY.findall(text)
    )
    cards = _cards(text)
    query, purse, trend = (pattern.search(text) for pattern in (_QUERY, _PURSE, _TREND))
    at_once = _MANY if "# Simulated rollouts" in text else int("# Tool results" in text)
    limit = _LIMIT.search(text) if at_once else None
    return View(
        names=_names(text, [*cards, *(trial.name for trial in (*results, *recent, *memory))]),
        importance={name: float(value) for name, value in _IMPORTANCE.findall(text)},
        state=dict(_STATE.findall(text)),
        cards=cards,
        results=results,
        recent=recent,
        memory=memory,
        trend={name.strip(): float(value) for name, value in _TREND_PART.findall(trend[1])} if trend else {},
        step=int(query[1]) if query else None,
        horizon=int(query[2]) if query else None,
        purse=Purse(*map(float, purse.groups())) if purse else None,
        limit=int(limit[1]) if limit else None,
        at_once=at_once,
        final="Nothing is left to try: decide now." in text,
    )


def _rewards(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in _REWARD.findall(text)}


def _names(text: str, mentioned: Sequence[str]) -> tuple[str, ...]:
    """The policies: as listed, or where the list was cut off those that are mentioned anywhere."""
    listed = _NAMES.search(text)
    return tuple((listed[1] or listed[2]).split(", ")) if listed else tuple(dict.fromkeys(mentioned))


def _cards(text: str) -> dict[str, CardSeen]:
    """Entries of the cards or tools, by name; each ends with a brace, and one cut at its head still counts."""
    if '"name": "' not in text:
        return {}
    cards = {}
    for block in text.split("}"):
        fields = dict(_FIELD.findall(block))
        if "name" not in fields:
            continue
        normalised = _NORMALISED.search(block)
        cards[fields["name"]] = CardSeen(
            objectives=tuple(fields.get("optimized_objective", "").split(" + ")),
            normalised=float(normalised[1]) if normalised else None,
            snippets=tuple(_SNIPPET.findall(block)),
            words="; ".join(fields[key] for key in ("applicability", "failure_modes") if key in fields),
        )
    return cards


# Comparing ----------------------------------------------------------------------------------------


def worth(trial: Trial, importance: Mapping[str, float]) -> float:
    """One number for what a policy did: rewards weighed by importance, progress, and what must not happen.

    Progress is mastery gained per step, full at STRIDE. For an objective called no-X the share of copies
    that met X is taken off. Objectives of unknown importance count ALIKE.
    """
    value = sum(importance.get(name, ALIKE) * reward for name, reward in trial.rewards.items())
    gained = _CHANGE.search(trial.change)
    if gained:
        value += PROGRESS * float(gained[1]) / (STRIDE * trial.steps)
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
    typical = sum(means.values()) / len(means) if means else 0.0  # of what is unknown, expect the average
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
            found.append((worth(trial, view.importance), trial.count, f"{_shown(trial.rewards)}; {trial.change}"))
    card = view.cards.get(name)
    if card:
        found += _card_evidence(card, view)
    # A step that paid nothing at all says nothing where rewards come at the end.
    own = [worth(trial, view.importance) for trial in view.recent if trial.name == name and any(trial.rewards.values())]
    if own:
        found.append((sum(own) / len(own), len(own), f"{len(own)} recent {'step' if len(own) == 1 else 'steps'}"))
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
    speaking = [(match, _rewards(snippet.rpartition(" -> ")[2])) for match, snippet in speaking if match is not None]
    fitting = [rewards for match, rewards in speaking if match] or [rewards for _, rewards in speaking]
    progress = re.search(r"([\d.]+) a step", card.words)
    change = f"mastery +{progress[1]}" if progress else ""
    if fitting:
        mean = {name: sum(each.get(name, 0.0) for each in fitting) / len(fitting) for name in fitting[0]}
        return [(worth(Trial("", mean, change), view.importance), CARD, f"its card says {_shown(mean)}")]
    rates = _rates(card, view)
    if rates:
        return [(worth(Trial("", rates), view.importance), CARD, f"its card says {_shown(rates)}")]
    if card.normalised is None or not card.objectives:
        return []
    promised = dict.fromkeys(card.objectives, card.normalised)
    return [(worth(Trial("", promised), view.importance), CARD, f"its card says {_shown(promised)}")]


def _rates(card: CardSeen, view: View) -> dict[str, float]:
    """Shares of episodes that a card states for objectives: `goal 27%`, and `on lava in 57%` for no-lava."""
    objectives = {*view.importance, *card.objectives, *(name for each in card.snippets for name in _rewards(each))}
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
        elif condition in ("failed questions open", "none failed") and "failed questions open" in state:
            told.append((int(state["failed questions open"]) > 0) == (condition == "failed questions open"))
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
    cells = [(thing, int(ahead) + int(aside or 0)) for thing, ahead, aside in _DISTANCE.findall(seen)]
    bonus = 0.0
    for objective in card.objectives:
        distances = [far for thing, far in cells if thing == objective.removeprefix("no-")]
        if distances:
            bonus += NEARBY * view.importance.get(objective, ALIKE) / (1 + min(distances))
    return bonus


def _stale(name: str, view: View) -> float:
    """What speaks against a policy because the robot has stood on one cell, unpaid, while it acted."""
    here = _PLACE.search(view.state.get("position", ""))
    if here is None or len(view.recent) < 2:
        return 0.0
    places = [_PLACE.search(trial.before) for trial in view.recent]
    moved = any(place is None or place[0] != here[0] for place in places)
    if moved or any(value for trial in view.recent for value in trial.rewards.values()):
        return 0.0
    return STALE * sum(trial.name == name for trial in view.recent) / len(view.recent)


def _shown(rewards: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in rewards.items())


# Deciding -----------------------------------------------------------------------------------------


def decide(view: View, strength: Strength, draw: Draw) -> dict[str, Any]:
    """The reply to a KO, TO or RO prompt: look at more policies, or pick the best of what was seen."""
    if not view.names:
        return {"reasoning": "No policy is named here, so I take what should do best.", "policy": INVENTED}
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
    least, most = strength.tries or (_MANY, _MANY)
    most = min(int(draw.integers(least, most + 1)), _MANY if view.limit is None else view.limit)
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
    known = f"{first.name} promises {first.value:.2f} ({first.because})" if first.seen else f"{first.name} is untested"
    return f"{known}; {len(view.results)} of {len(view.names)} policies were tried in this state, so I look at {names}."


def _why_pick(ranked: Sequence[Score], view: View) -> str:
    """Why the first of the ranked is picked, with the numbers that decided."""
    best = ranked[0]
    grounds = f" ({best.because})" if best.because else ", a guess without any figures,"
    said = f"{best.name} comes to {best.value:.2f}{grounds}"
    if len(ranked) > 1:
        said += f", {ranked[1].name} to {ranked[1].value:.2f}"
    if view.at_once and not view.final and view.purse and view.purse.typical and not _affordable(view, 0):
        said += (
            f". About {_replies_left(view):.0f} replies are left for {_steps_left(view):.0f} steps, so I try no more"
        )
    return said + "."


# Summarising --------------------------------------------------------------------------------------


def summarise(view: View, strength: Strength) -> str:
    """The reply to a summary request: per policy a line of running means, a trend, what worked best.

    Counts and means go on from the old summary where the stand-in recalls it; at most WORDS words.
    """
    old = view.memory if strength.recalls else ()
    merged = sorted(_merged((*old, *view.recent)), key=lambda trial: -trial.count)
    if not merged:
        return "Nothing can be said of the new steps."
    closing = [line for line in (_trend(view, strength), _best(merged)) if line]
    room = WORDS - sum(len(line.split()) for line in closing)
    lines = []
    for trial in merged:
        line = _memory_line(trial)
        room -= len(line.split())
        if room < 0:
            break
        lines.append(line)
    return "\n".join([*lines, *closing])


def _merged(trials: Sequence[Trial]) -> list[Trial]:
    """One trial per policy: counts added, rewards and mastery change averaged over the steps behind them."""
    groups: dict[str, list[Trial]] = {}
    for trial in trials:
        groups.setdefault(trial.name, []).append(trial)
    merged = []
    for name, group in groups.items():
        count = sum(trial.count for trial in group)
        rewards = {
            key: sum(trial.rewards.get(key, 0.0) * trial.count for trial in group) / count for key in group[0].rewards
        }
        gains = [(float(match[1]), trial.count) for trial in group if (match := _CHANGE.search(trial.change))]
        gained = sum(gain * weight for gain, weight in gains) / sum(weight for _, weight in gains) if gains else None
        merged.append(Trial(name, rewards, "" if gained is None else f"mastery {gained:+.3f}", count=count))
    return merged


def _memory_line(trial: Trial) -> str:
    times = "time" if trial.count == 1 else "times"
    change = f"; {trial.change} a step" if trial.change else ""
    return f"{trial.name}: picked {trial.count:.0f} {times}; mean {_shown(trial.rewards)}{change}."


def _trend(view: View, strength: Strength) -> str:
    """Where the state came from and where it is, e.g. `From the start: mastery 0.40 to 0.60.`"""
    seen = [dict(_QUANTITY.findall(f"{trial.before}; {trial.change}")) for trial in view.recent]
    first, last = ({}, {}) if not seen else (seen[0], seen[-1])
    start = {name: float(value) for name, value in first.items()} | (view.trend if strength.recalls else {})
    parts = [f"{name} {start[name]:g} to {float(value):g}" for name, value in last.items() if name in start]
    return f"From the start: {', '.join(parts)}." if parts else ""


def _best(merged: Sequence[Trial]) -> str:
    ranked = sorted(merged, key=lambda trial: -worth(trial, {}))
    best, worst = ranked[0], ranked[-1]
    if best is worst:
        return f"Only {best.name} has been picked, worth {worth(best, {}):.2f} a step."
    if worth(best, {}) - worth(worst, {}) < 0.005:  # equal as far as two digits show
        return f"No policy stands out so far; all are worth {worth(best, {}):.2f} a step."
    return (
        f"Keep {best.name}, which was worth most ({worth(best, {}):.2f} a step); "
        f"avoid {worst.name} ({worth(worst, {}):.2f})."
    )


# Judging ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A line of a trajectory: who acted, difficulty of the questions, mastery, share of right answers."""

    policy: str
    difficulty: tuple[float, ...]
    before: float
    after: float
    right: float

    @property
    def good(self) -> bool:
        """Whether the step went well: mastery rose, or at least three of five answers were right."""
        return self.after > self.before or self.right >= 0.6


@dataclass(frozen=True)
class Record:
    """The trajectories of a judge's prompt: episodes of steps, policies to choose from, horizon, goal."""

    episodes: tuple[tuple[Step, ...], ...]
    policies: tuple[str, ...]
    horizon: int
    goal: float

    @property
    def steps(self) -> list[Step]:
        return [step for episode in self.episodes for step in episode]

    @property
    def turns(self) -> list[tuple[Step, Step]]:
        """Every step with the one after it in the same episode."""
        return [pair for episode in self.episodes for pair in pairwise(episode)]


_EPISODE = "## Episode "
_LINE = re.compile(
    r"^\d+ \| (\S+)(?: \(fallback\))? \| [\w-]+ \| ([1-6]*) \| (\d\.\d+) > (\d\.\d+) \| \d+ \| "
    r"\d\.\d+ \d\.\d+ (\d\.\d+)$",
    re.MULTILINE,
)
_CHOICES = re.compile(r"chosen from: (.+)\.$", re.MULTILINE)
_ENDS = re.compile(r"ends at mastery (\d\.\d+), or after (\d+) steps")


def read_record(text: str) -> Record:
    """The trajectories that a judge's prompt, or the end of one, shows."""
    episodes = []
    for part in text.split(_EPISODE):
        steps = tuple(
            Step(name, tuple((int(level) - 1) / 5 for level in levels), float(before), float(after), float(right))
            for name, levels, before, after, right in _LINE.findall(part)
        )
        if steps:
            episodes.append(steps)
    choices, ends = _CHOICES.search(text), _ENDS.search(text)
    seen = dict.fromkeys(step.policy for episode in episodes for step in episode)
    return Record(
        episodes=tuple(episodes),
        policies=tuple(choices[1].split(", ")) if choices else tuple(seen),
        horizon=int(ends[2]) if ends else max(map(len, episodes), default=1),
        goal=float(ends[1]) if ends else 1.0,
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _changes(record: Record, good: bool) -> list[bool]:
    """Whether another policy followed, after every good (or poor) step."""
    return [now.policy != then.policy for now, then in record.turns if now.good == good]


def adaptivity(record: Record) -> float:
    """(share of changes after poor steps - after good ones) / 0.5; one half where there is but one kind."""
    poor, good = _changes(record, good=False), _changes(record, good=True)
    return (_mean(poor) - _mean(good)) / 0.5 if poor and good else 0.5


def progression(record: Record) -> float:
    """Mean of two: share of sets within 0.2 of mastery in difficulty, share of the way to the goal."""
    near = [abs(_mean(step.difficulty) - step.before) <= 0.2 + 1e-9 for step in record.steps if step.difficulty]
    way = [
        min(max((episode[-1].after - episode[0].before) / max(record.goal - episode[0].before, 1e-9), 0.0), 1.0)
        for episode in record.episodes
    ]
    return (_mean(near) + _mean(way)) / 2


def exploration(record: Record) -> float:
    """1 - |2 s - 1| with s the share of turns that change the policy: half of them is the best balance."""
    return 1 - abs(2 * _mean([now.policy != then.policy for now, then in record.turns]) - 1)


def diversity(record: Record) -> float:
    """Entropy of policy use over the entropy of even use."""
    used = [step.policy for step in record.steps]
    shares = [used.count(name) / len(used) for name in dict.fromkeys(used)]
    return -sum(p * math.log(p) for p in shares) / math.log(max(len(record.policies), len(shares), 2))


def mental(record: Record) -> float:
    """Mean of max(0, difficulty - mastery) over questions, / 0.4: two levels above mastery is the most."""
    return _mean([max(0.0, d - step.before) for step in record.steps for d in step.difficulty]) / 0.4


def temporal(record: Record) -> float:
    """Mean length as a share of the horizon, from 0.2 (least demand) to 1 (most)."""
    return (_mean([len(episode) / record.horizon for episode in record.episodes]) - 0.2) / 0.8


def performance(record: Record) -> float:
    """Mean mastery at the end, from half the goal (worst) to the goal (best)."""
    return (_mean([episode[-1].after for episode in record.episodes]) / record.goal - 0.5) / 0.5


def effort(record: Record) -> float:
    """Questions asked per 0.1 of mastery gained, from 10 (least effort) to 50 (most)."""
    asked = sum(len(step.difficulty) for step in record.steps)
    gained = sum(episode[-1].after - episode[0].before for episode in record.episodes)
    return (asked * 0.1 / gained - 10) / 40 if gained > 0 else 1.0


def frustration(record: Record) -> float:
    """Share of wrong answers, from 0.1 (least) to 0.7 (most)."""
    return (1 - _mean([step.right for step in record.steps]) - 0.1) / 0.6


# Each rule gives 0 to 1 (what is outside is clipped), which becomes 1 to 5. Table 12, then Table 4.
RUBRIC: dict[str, Callable[[Record], float]] = {
    rule.__name__: rule
    for rule in (
        adaptivity,
        progression,
        exploration,
        diversity,
        mental,
        temporal,
        performance,
        effort,
        frustration,
    )
}


def judge(text: str, strength: Strength, draw: Draw) -> dict[str, Any]:
    """The reply to the judge's prompt: RUBRIC applied to the trajectories that can be seen, plus noise."""
    record = read_record(text)
    noise = dict(zip(RUBRIC, draw.standard_normal(len(RUBRIC)) * strength.noise, strict=True))
    if not record.episodes:
        return {"reasoning": "No trajectory can be read here, so I stay in the middle."} | dict.fromkeys(RUBRIC, 3)
    given = {name: _five(rule(record) + noise[name]) for name, rule in RUBRIC.items()}
    poor, good = (_mean(_changes(record, good=kind)) for kind in (False, True))
    last = _mean([episode[-1].after for episode in record.episodes])
    wrong = 1 - _mean([step.right for step in record.steps])
    said = (
        f"Over {len(record.episodes)} episodes the choice changed after {poor:.0%} of poor and {good:.0%} of good "
        f"steps. Mastery ended at {last:.2f} on average, and {wrong:.0%} of the answers were wrong."
    )
    return {"reasoning": said} | given


def _five(value: float) -> int:
    """A whole score from 1 to 5 for a value from 0 to 1, halves upwards."""
    return 1 + math.floor(4 * min(max(value, 0.0), 1.0) + 0.5)


# Spoiling -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Options:
    """What a spoiled decision may refer to."""

    names: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()


Break = Callable[[dict[str, Any], _Options, Draw], tuple[str, str]]


def _plain(reply: Mapping[str, Any]) -> str:
    return json.dumps(reply, ensure_ascii=False)


def _said(reply: Mapping[str, Any], **fields: Any) -> tuple[str, str]:
    """The same reasoning with other fields."""
    return _plain({"reasoning": reply["reasoning"], **fields}), "stop"


def _pick(reply: Mapping[str, Any]) -> str:
    """The name that a reply settles on, or the first that it wants to look at."""
    said = reply["policy"] if "policy" in reply else reply["call"]
    return said if isinstance(said, str) else said[0]


def fenced(reply, options, draw):
    """A code fence around the JSON."""
    return f"```json\n{_plain(reply)}\n```", "stop"


def trailing_comma(reply, options, draw):
    """A comma before the closing brace."""
    return _plain(reply)[:-1] + ",}", "stop"


def chatty(reply, options, draw):
    """Prose around the JSON."""
    return f"Here is my decision:\n{_plain(reply)}\nLet me know if you need more.", "stop"


def single_quoted(reply, options, draw):
    """Python's quotes instead of JSON's."""
    return repr(reply), "stop"


def twice(reply, options, draw):
    """Two objects."""
    return f"{_plain(reply)}\n{_plain(reply)}", "stop"


def truncated(reply, options, draw):
    """A reply that breaks off."""
    text = _plain(reply)
    return text[: int(len(text) * (0.3 + 0.5 * draw.random()))], "length"


def refused(reply, options, draw):
    """A sentence that declines."""
    return "I'm sorry, but I cannot make this decision for a real person.", "stop"


def misnamed(reply, options, draw):
    """A name that does not exist."""
    return _said(reply, policy=f"{_pick(reply)} policy")


def recased(reply, options, draw):
    """A name in another case."""
    return _said(reply, policy=_pick(reply).swapcase())


def listed(reply, options, draw):
    """A list of names for the one policy."""
    return _said(reply, policy=[_pick(reply)])


def nothing(reply, options, draw):
    """null for the policy."""
    return _said(reply, policy=None)


def called_again(reply, options, draw):
    """A wish to look at what was looked at already, or, where nothing can be tried, to look at all."""
    name = options.tried[0] if options.tried else _pick(reply)
    return _said(reply, call=name if options.tried else [name, name])


def incomplete(reply, options, draw):
    """A score left out."""
    scored = list(reply)[1:]
    missing = scored[int(draw.integers(len(scored)))]
    return _plain({key: value for key, value in reply.items() if key != missing}), "stop"


def out_of_five(reply, options, draw):
    """Scores as text, such as 4/5."""
    return _plain({key: f"{value}/5" if isinstance(value, int) else value for key, value in reply.items()}), "stop"


_EITHER: tuple[Break, ...] = (fenced, trailing_comma, chatty, single_quoted, twice, truncated, refused)
_BREAKS: tuple[Break, ...] = (*_EITHER, misnamed, recased, listed, nothing, called_again)
_JUDGE_BREAKS: tuple[Break, ...] = (*_EITHER, incomplete, out_of_five)
