"""What a prompt, or the end of one, shows: lines and JSON read by their own form, nothing else known."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


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
class BudgetLine:
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
    purse: BudgetLine | None = None
    limit: int | None = None
    at_once: int = 0  # policies that a reply may look at: 0 in KO, 1 in TO, many in RO
    final: bool = False


SUMMARY_ASKED = "# What the new summary must hold"
JUDGE_ASKED = "# Scores to give"
MANY = 99
_NAMES = re.compile(r"by its exact name: (.+)\.$|Names are exactly: (.+)\.$", re.MULTILINE)
_IMPORTANCE = re.compile(r"^- ([\w-]+), importance (\d+\.\d+):", re.MULTILINE)
_STATE = re.compile(
    r"^- (mastery|failed questions open|position|in front|in view|gold left): (.*)$", re.MULTILINE
)
_REWARD = re.compile(r"([A-Za-z][\w-]*) (\d+\.\d+)")
_RESULT = re.compile(
    r"^- (\S+): (?:did [^;\n]*|(\d+) steps: [^;\n]*); (?:.*; )?rewards ([^;\n]+); "
    r"(.*) \((?:one copy|mean of (\d+) copies)\)$",
    re.MULTILINE,
)
_RECENT = re.compile(
    r"(?:^- step \d+: ([^\n]*?); )?picked (\S+); did [^;\n]*; rewards ([^;\n]+); (.*)$",
    re.MULTILINE,
)
_MEMORY = re.compile(
    r"(?<=\n)(\S+): picked (\d+) times?; mean ([^;\n]+)(?:; (mastery \S+) a step)?\.$", re.MULTILINE
)
_TREND = re.compile(r"^From the start: (.*)\.$", re.MULTILINE)
_TREND_PART = re.compile(r"([a-z ]+?) (\d[\d.]*) to \d")
_QUERY = re.compile(r"Pick the policy for step (\d+) of at most (\d+)")
_PURSE = re.compile(r"Budget: \$([\d.]+) of \$([\d.]+) left; a reply has cost about \$([\d.]+)\.")
_LIMIT = re.compile(r"(\d+) (?:policies )?at the most")
_FIELD = re.compile(r'"(name|optimized_objective|applicability|failure_modes)": "([^"]*)"')
_NORMALISED = re.compile(r'"normalized_reward": ([\d.]+)')
_SNIPPET = re.compile(r'"([^"\n]* -> [^"\n]* -> [^"\n]*)"')
CHANGE = re.compile(r"mastery ([+-]\d+\.\d+)")
PLACE = re.compile(r"column (\d+), row (\d+)")
DISTANCE = re.compile(r"([\w-]+) (\d+) ahead, (?:(\d+) to the|straight)")
QUANTITY = re.compile(r"(mastery|failed questions open|gold left) (\d+(?:\.\d+)?)")


def read(text: str) -> View:
    """What a prompt, or the end of one, shows. Lines count by their own form, wherever they stand, so a
    section whose heading was cut off is read as far as it goes."""
    results = tuple(
        Trial(name, rewards_in(rewards), change, int(steps or 1), float(copies or 1))
        for name, steps, rewards, change, copies in _RESULT.findall(text)
    )
    recent = tuple(
        Trial(name, rewards_in(rewards), change, before=before)
        for before, name, rewards, change in _RECENT.findall(text)
    )
    memory = tuple(
        Trial(name, rewards_in(rewards), change, count=float(count))
        for name, count, rewards, change in _MEMORY.findall(text)
    )
    cards = _cards(text)
    query, purse, trend = (pattern.search(text) for pattern in (_QUERY, _PURSE, _TREND))
    at_once = MANY if "# Simulated rollouts" in text else int("# Tool results" in text)
    limit = _LIMIT.search(text) if at_once else None
    return View(
        names=_names(text, [*cards, *(trial.name for trial in (*results, *recent, *memory))]),
        importance={name: float(value) for name, value in _IMPORTANCE.findall(text)},
        state=dict(_STATE.findall(text)),
        cards=cards,
        results=results,
        recent=recent,
        memory=memory,
        trend={name.strip(): float(value) for name, value in _TREND_PART.findall(trend[1])}
        if trend
        else {},
        step=int(query[1]) if query else None,
        horizon=int(query[2]) if query else None,
        purse=BudgetLine(*map(float, purse.groups())) if purse else None,
        limit=int(limit[1]) if limit else None,
        at_once=at_once,
        final="Nothing is left to try: decide now." in text,
    )


def rewards_in(text: str) -> dict[str, float]:
    return {name: float(value) for name, value in _REWARD.findall(text)}


def _names(text: str, mentioned: Sequence[str]) -> tuple[str, ...]:
    """The policies: as listed, or where the list was cut off those that are mentioned anywhere."""
    listed = _NAMES.search(text)
    return (
        tuple((listed[1] or listed[2]).split(", ")) if listed else tuple(dict.fromkeys(mentioned))
    )


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
            words="; ".join(
                fields[key] for key in ("applicability", "failure_modes") if key in fields
            ),
        )
    return cards
