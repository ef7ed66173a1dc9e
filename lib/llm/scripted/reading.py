"""What a prompt, or the end of one, shows: lines and JSON read by their own form.

Every line is read wherever it stands, so a section whose heading was cut off is read as far as it goes. Left out: what
the lines mean for a decision (`deciding`).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Trial:
    """What a policy is reported to have done.

    Attributes:
        name: The policy's.
        results: By criterion, per step or in all as the line says it.
        change: What changed, in the words of the line.
        steps: Over how many steps.
        count: How many times it was seen.
        before: The state before, in the words of the line.
    """

    name: str
    results: Mapping[str, float]
    change: str = ""
    steps: int = 1
    count: float = 1.0
    before: str = ""


@dataclass(frozen=True)
class VisibleCard:
    """What is left of a policy's card, or of its entry among the tools, inside the window.

    Attributes:
        objectives: What it was made for.
        results: By situation, mean results by criterion.
    """

    objectives: tuple[str, ...] = ()
    results: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class BudgetLine:
    """The budget line of a query, in dollars: what remains, of how much, and the cost of a reply so far."""

    remaining: float
    total: float
    typical_reply: float


@dataclass(frozen=True)
class PromptView:
    """All that the window shows. What was cut off is empty or None.

    Attributes:
        names: Policies to choose from.
        importance: Importance of the criteria of the query.
        state: By the quantity's name, in the words of the prompt.
        situation: The row of the cards that applies.
        cards: By policy.
        results: Policies that were tried in this state.
        recent: The last steps.
        summary: Lines of the running summary.
        trend: Where quantities began.
        step: Which step it is, from 1.
        horizon: Most steps of an episode.
        budget: What may still be spent.
        limit: How many policies may be tried in all.
        at_once: How many a reply may try: 0 in KO, 1 in TO, NO_LIMIT in RO.
        is_final: Whether nothing may be tried any more.
    """

    names: tuple[str, ...] = ()
    importance: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, str] = field(default_factory=dict)
    situation: str = ""
    cards: Mapping[str, VisibleCard] = field(default_factory=dict)
    results: tuple[Trial, ...] = ()
    recent: tuple[Trial, ...] = ()
    summary: tuple[Trial, ...] = ()
    trend: Mapping[str, float] = field(default_factory=dict)
    step: int | None = None
    horizon: int | None = None
    budget: BudgetLine | None = None
    limit: int | None = None
    at_once: int = 0
    is_final: bool = False


SUMMARY_ASKED = "# What the new summary must hold"
JUDGE_ASKED = "# Scores to give"
NO_LIMIT = 99  # policies: more than any prompt has
_NAMES = re.compile(r"by its exact name: (.+)\.$|Names are exactly: (.+)\.$", re.MULTILINE)
_IMPORTANCE = re.compile(r"^- ([\w-]+), importance (\d+\.\d+):", re.MULTILINE)
_STATE = re.compile(
    r"^- (mastery|failed questions open|position|in front|in view|gold left): (.*)$", re.MULTILINE
)
_SITUATION = re.compile(r"The situation now: (.*)\.$", re.MULTILINE)
_RESULT_OF_CRITERION = re.compile(r"([A-Za-z][\w-]*) (-?\d+\.\d+)")
_RESULT = re.compile(
    r"^- (\S+): (?:did [^;\n]*|(\d+) steps: [^;\n]*); (?:.*; )?results ([^;\n]+)(?:; (.*))? "
    r"\((?:one copy|mean of (\d+) copies)\)$",
    re.MULTILINE,
)
_RECENT = re.compile(
    r"(?:^- step \d+: ([^\n]*?); )?picked (\S+); did [^;\n]*; results ([^;\n]+); (.*)$",
    re.MULTILINE,
)
_SUMMARY_LINE = re.compile(
    r"(?<=\n)(\S+): picked (\d+) times?; mean ([^;\n]+)(?:; (mastery \S+) a step)?\.$", re.MULTILINE
)
_TREND = re.compile(r"^From the start: (.*)\.$", re.MULTILINE)
_TREND_QUANTITY = re.compile(r"([a-z ]+?) (\d[\d.]*) to \d")
_REQUEST = re.compile(r"Pick the policy for step (\d+) of at most (\d+)")
_BUDGET = re.compile(r"Budget: \$([\d.]+) of \$([\d.]+) left; a reply has cost about \$([\d.]+)\.")
_LIMIT = re.compile(r"(\d+) (?:policies )?at the most")
_CARD_FIELD = re.compile(r'"(name|optimized_objective)": "([^"]*)"')
_CARD_ROW = re.compile(r'"([^":\n]+): ((?:[\w-]+ -?\d+\.\d+(?:, )?)+)"')
MASTERY_CHANGE = re.compile(r"mastery ([+-]\d+\.\d+)")
POSITION = re.compile(r"column (\d+), row (\d+)")
DISTANCE = re.compile(r"([\w-]+) (\d+) ahead, (?:(\d+) to the|straight)")
QUANTITY = re.compile(r"(mastery|failed questions open|gold left) (\d+(?:\.\d+)?)")


def read_prompt(text: str) -> PromptView:
    """Find in an orchestrator's prompt everything that a scripted model decides by.

    The prompt is Markdown that `lib.orchestration.prompts` writes: policies with their cards, the state, earlier steps
    with their results, what policies did on copies of the environment, and what is asked. A small scripted model sees
    only the end of it, so anything may be missing.

    Args:
        text: The prompt, or the end of it.

    Returns:
        The fields as numbers and names; what is missing is empty or None. `at_once` is how many policies a reply may
        try on copies: 0 where nothing may be tried (KO), 1 where tools are called one by one (TO), NO_LIMIT where
        several rollouts are asked for together (RO); `limit` is how many may be tried in all.
    """
    # Each trial is one line of the prompt: a policy, its results, what changed in the environment.
    results = tuple(
        Trial(name, read_results(line), change, int(steps or 1), float(copies or 1))
        for name, steps, line, change, copies in _RESULT.findall(text)
    )
    recent = tuple(
        Trial(name, read_results(line), change, before=before)
        for before, name, line, change in _RECENT.findall(text)
    )
    summary = tuple(
        Trial(name, read_results(line), change, count=float(count))
        for name, count, line, change in _SUMMARY_LINE.findall(text)
    )
    trend_line = _TREND.search(text)
    trend = {}
    if trend_line:
        for name, start in _TREND_QUANTITY.findall(trend_line[1]):
            trend[name.strip()] = float(start)

    # Which policies there are: as listed, or where the list was cut off those that are mentioned anywhere.
    cards = _read_cards(text)
    listed = _NAMES.search(text)
    if listed:
        names = tuple((listed[1] or listed[2]).split(", "))
    else:
        trials = (*results, *recent, *summary)
        names = tuple(dict.fromkeys([*cards, *(trial.name for trial in trials)]))

    # Which of the three orchestrators asks shows in the headings.
    if "# Simulated rollouts" in text:
        at_once = NO_LIMIT
    else:
        at_once = 1 if "# Tool results" in text else 0
    limit = _LIMIT.search(text) if at_once else None
    request = _REQUEST.search(text)
    situation = _SITUATION.search(text)
    budget = _BUDGET.search(text)

    return PromptView(
        names=names,
        importance={name: float(value) for name, value in _IMPORTANCE.findall(text)},
        state=dict(_STATE.findall(text)),
        situation=situation[1] if situation else "",
        cards=cards,
        results=results,
        recent=recent,
        summary=summary,
        trend=trend,
        step=int(request[1]) if request else None,
        horizon=int(request[2]) if request else None,
        budget=BudgetLine(*map(float, budget.groups())) if budget else None,
        limit=int(limit[1]) if limit else None,
        at_once=at_once,
        is_final="Nothing is left to try: decide now." in text,
    )


def read_results(text: str) -> dict[str, float]:
    """Results by criterion from a text such as `gap 0.500, aptitude 0.100`."""
    return {name: float(value) for name, value in _RESULT_OF_CRITERION.findall(text)}


def _read_cards(text: str) -> dict[str, VisibleCard]:
    """Read the policies' cards, or their entries among the tools, from the JSON in a prompt.

    Args:
        text: The prompt, or the end of it.

    Returns:
        Cards by the policy's name; empty where none is visible.
    """
    if '"name": "' not in text:
        return {}
    cards = {}
    # Not parsed as JSON, because the window may have cut off the beginning. Every entry ends with a brace.
    for block in text.split("}"):
        fields = dict(_CARD_FIELD.findall(block))
        if "name" not in fields:
            continue
        results = {situation: read_results(line) for situation, line in _CARD_ROW.findall(block)}
        objectives = tuple(fields.get("optimized_objective", "").split(" + "))
        cards[fields["name"]] = VisibleCard(objectives, results)
    return cards
