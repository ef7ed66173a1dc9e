"""All decision makers in one figure: the share of the headroom that each gains, a panel a level of evidence.

    share of the headroom = (the decision maker - the best single choice) / (the oracle - the best single choice)

0 is the best single choice, which looks at nothing: an expert, a policy, a reward or a configuration. For recorded
outcomes at half the money (midway between the cheapest model's cost and the best constant's) it is the best mixture
of experts, because no single one costs that much. 1 is the oracle, which looks back; in a synthetic environment it is
the computed optimum. The interval is the one of the numerator, with the headroom taken as known, so that it may pass 1.
A share itself can pass 1 only where the oracle chooses once and the method several times, as CoRL does when it calls
one expert after another. Estimates are those of a lesson's recorded full run where it is current, otherwise of its own
run.

A decision maker that several worlds test counts with its mean over those whose question is open. One whose question is
not open, or that was not measured in this run, is named and not drawn.

    measure_shares_won    the shares, from the metrics of the lessons
    plot_shares_won       the figure
    count_by_level        how many win, as in its title
    state_finding         the same counts over all levels, as a sentence
    summarize_by_level    the same in words, losses included
"""

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib import plots
from lib.plots.theme import WIDE, Layout, label_rows, responsive
from lib.scoreboard import expressions, verdicts
from lib.scoreboard.metrics import Metrics, MissingMetric
from lib.stats import Interval, interval_arithmetic

PANELS = {  # evidence level: its title
    "synthetic": "Synthetic environments, known optimum",
    "lab": "Small models that are trained here",
    "recorded": "Real models, recorded, at half the money",
}
_LEVEL_NAMES = {"synthetic": "synthetic", "lab": "small models", "recorded": "recorded"}
AXIS_LABEL = "share of the headroom gained: 0 = best single choice, 1 = oracle"
_ORCHESTRATION = "02_orchestration"
_CONDUCTOR = "04_conductor"
_ROUTING = "05_budgeted_routing"
_TOOLS = "06_tool_orchestration"
_CONFIGURATION = "07_agent_configuration"
_RECORDED = "08_recorded_outcomes"
# Asks the cheap expert, sees whether it was right, asks the expensive one if not; nothing is learned.
CASCADE = "cascade"
_STYLED_NAMES = {"MAESTRO": "Conductor"}  # in `lib.plots.styles`
_FULL_RUN = "full."  # prefix of the metrics of a recorded full run
_MIN_DRAWN_SHARE = -1.5  # what is worse is drawn there

OPEN = "open"
CLOSED = "closed"  # too little to win by choosing
MISSING = "missing"  # not measured in this run
_NOT_MEASURED = Interval(math.nan, math.nan, math.nan)


@dataclass(frozen=True)
class Question:
    """Where to find the metrics of one method in one setting, as expressions over the metrics of a lesson.

    An expression such as "{corl.low.minus_best_constant}" reads the metric of that key.

    Attributes:
        lesson: The lesson that measured them.
        gain: The method minus the best single choice.
        headroom: The oracle minus the best single choice.
        minus_router: The method minus a simple router; empty where there is none.
        gate: Key of the metric that says whether there is headroom; empty where `headroom` itself says it.
    """

    lesson: str
    gain: str
    headroom: str
    minus_router: str = ""
    gate: str = ""


@dataclass(frozen=True)
class DecisionMaker:
    """A row of the figure.

    Attributes:
        evidence_level: A key of `PANELS`.
        method: Name of the method.
        setting: Where it is tested; empty where there is one setting only.
        questions: One for each world that it is tested in.
    """

    evidence_level: str
    method: str
    setting: str
    questions: tuple[Question, ...]

    @property
    def name(self) -> str:
        """As it stands in the figure."""
        return f"{self.method}, {self.setting}" if self.setting else self.method


def _list_orchestrators() -> Iterator[DecisionMaker]:
    """Lists the metrics of KO, TO and RO (policy orchestration) in four environments.

    The simple router takes the policy that looks best on the same cards or simulations.

    Yields:
        A method with one question per environment.
    """
    worlds = ("education.speed", "education.varied", "minigrid.paper", "minigrid.varied")
    for system in ("KO", "TO", "RO"):
        questions = []
        for world in worlds:
            contrast = f"contrast.{world}.{system}"
            gate = f"gate.{world}.headroom"
            question = Question(
                lesson=_ORCHESTRATION,
                gain=f"{{{contrast}_best-policy.utility}}",
                headroom=f"{{{gate}}}",
                minus_router=f"{{{contrast}_{system}-greedy.utility}}",
                gate=gate,
            )
            questions.append(question)
        yield DecisionMaker("lab", system, "", tuple(questions))


def _list_budgeted_routers() -> Iterator[DecisionMaker]:
    """Lists the metrics of CoRL's controller at each budget, in simulation and with small models.

    The simple router of the small models is logistic regression.
    """
    for budget in ("low", "medium", "high"):
        synthetic = f"synthetic.{budget}"
        headroom = f"{synthetic}.headroom"
        question = Question(
            lesson=_ROUTING,
            gain=f"{{{synthetic}.minus_best_without_query}}",
            headroom=f"{{{headroom}}}",
            gate=headroom,
        )
        yield DecisionMaker("synthetic", "CoRL", f"{budget} budget", (question,))

        lab = f"corl.{budget}.minus"
        gain = f"{{{lab}_best_constant}}"
        question = Question(
            lesson=_ROUTING,
            gain=gain,
            headroom=f"{gain} - {{{lab}_oracle}}",
            minus_router=f"{{{lab}_logistic}}",
            gate=f"gate.routing.{budget}.headroom",
        )
        yield DecisionMaker("lab", "CoRL", f"{budget} budget", (question,))


def _list_conductors() -> Iterator[DecisionMaker]:
    """Lists the metrics of MAESTRO's Conductor, in simulation and with small models.

    The best single choice is the best fixed reward; the oracle is trained on the true reward.
    """
    for level, prefix, suffix in (("synthetic", "glass", ""), ("lab", "contrast", ".score")):
        separator = "_minus_" if level == "synthetic" else "_"
        gain = f"{{{prefix}.conductor{separator}best_static{suffix}}}"
        question = Question(
            lesson=_CONDUCTOR,
            gain=gain,
            headroom=f"{gain} - {{{prefix}.conductor{separator}oracle{suffix}}}",
        )
        yield DecisionMaker(level, "MAESTRO", "", (question,))


def _list_tool_orchestrators() -> Iterator[DecisionMaker]:
    """Lists the metrics of ToolOrchestra, in simulation and with small models.

    The simple router is logistic regression on the descriptions of tools.
    """
    question = Question(
        lesson=_TOOLS,
        gain="{synthetic.above_constant}",
        headroom="{synthetic.headroom}",
        gate="synthetic.headroom",
    )
    yield DecisionMaker("synthetic", "ToolOrchestra", "", (question,))
    gain = "{trained.minus_best_single}"
    question = Question(
        lesson=_TOOLS,
        gain=gain,
        headroom=f"{gain} - {{trained.minus_oracle}}",
        minus_router="{trained.minus_logistic}",
        gate="gate.tools.headroom",
    )
    yield DecisionMaker("lab", "ToolOrchestra", "", (question,))


def _list_agent_configurators() -> Iterator[DecisionMaker]:
    """Lists the metrics of ARC (agent configuration), measured in reward: in simulation and with small models.

    The best single choice is one configuration for all questions. The simple router is a bandit over whole
    configurations.
    """
    in_simulation = Question(
        lesson=_CONFIGURATION,
        gain="{glass.above_constant}",
        headroom="{glass.headroom}",
        minus_router="{glass.above_flat.bandit}",
        gate="glass.headroom",
    )
    yield DecisionMaker("synthetic", "ARC", "", (in_simulation,))

    with_small_models = Question(
        lesson=_CONFIGURATION,
        gain="{contrast.arc_best_constant.reward}",
        headroom="{regret.best_constant}",
        minus_router="{contrast.arc_bandit.reward}",
        gate="gate.configuration.headroom",
    )
    yield DecisionMaker("lab", "ARC", "", (with_small_models,))


def _list_recorded() -> Iterator[DecisionMaker]:
    """Lists the metrics of all methods on tables of recorded outcomes, where half the maximal cost may be spent.

    The simple router is logistic regression on the questions.
    """
    tables = (
        ("llmrouter", "known tasks"),
        ("llmrouter-new", "new tasks"),
        ("swe-multimodal", "agents on bugs"),
    )
    methods = (
        ("CoRL", "corl"),
        ("ToolOrchestra", "toolorchestra"),
        ("ARC", "arc"),
        (CASCADE, "check"),
    )
    for table, tasks in tables:
        for method, key in methods:
            # The cascade may check a reply before it pays for another, a question of its own.
            gate = "check" if key == "check" else "money"
            gain = f"{{{table}.{key}.half_gap}}"
            question = Question(
                lesson=_RECORDED,
                gain=gain,
                headroom=f"{{{table}.oracle.half_gap}}",
                minus_router=f"{gain} - {{{table}.logistic.half_gap}}",
                gate=f"gate.{table}.{gate}.is",
            )
            yield DecisionMaker("recorded", method, tasks, (question,))


DECISION_MAKERS = (
    *_list_orchestrators(),
    *_list_conductors(),
    *_list_budgeted_routers(),
    *_list_tool_orchestrators(),
    *_list_agent_configurators(),
    *_list_recorded(),
)


@dataclass(frozen=True)
class ShareWon:
    """What a decision maker gained of the headroom, which is what choosing could gain.

    Attributes:
        decision_maker: Whose share it is.
        state: OPEN, CLOSED or MISSING; the shares mean nothing unless it is open.
        share: The share of the headroom gained, with its interval.
        minus_router: The share of the headroom gained minus that of the simple router; nan without one.
        num_worlds: Worlds whose question is open.
    """

    decision_maker: DecisionMaker
    state: str
    share: Interval = _NOT_MEASURED
    minus_router: Interval = _NOT_MEASURED
    num_worlds: int = 0

    @property
    def name(self) -> str:
        """As it stands in the figure."""
        if len(self.decision_maker.questions) == 1 or self.state != OPEN:
            return self.decision_maker.name
        return f"{self.decision_maker.name}, mean of {self.num_worlds} worlds"

    @property
    def router_share(self) -> float:
        """The share of the simple router; nan without one."""
        return self.share.value - self.minus_router.value

    @property
    def sign(self) -> int | None:
        """1, 0 or -1: above the best single choice, not clearly different, below it; None unless it is open."""
        return _find_sign(self.share) if self.state == OPEN else None

    @property
    def sign_against_router(self) -> int | None:
        """The same against the simple router; None where there is none."""
        has_router = self.state == OPEN and math.isfinite(self.minus_router.value)
        return _find_sign(self.minus_router) if has_router else None


def _find_sign(estimate: Interval) -> int:
    return int(estimate.ci_low > 0) - int(estimate.ci_high < 0)


def measure_shares_won(
    metrics: Metrics, decision_makers: Sequence[DecisionMaker] = DECISION_MAKERS
) -> list[ShareWon]:
    """Measures which share of the headroom each decision maker gained.

    Args:
        metrics: What the lessons measured.
        decision_makers: Where their metrics stand.

    Returns:
        One share per decision maker, panel after panel.
    """
    levels = list(PANELS)
    rows = sorted(decision_makers, key=lambda row: levels.index(row.evidence_level))
    return [_measure_share_won(metrics, row) for row in rows]


def _measure_share_won(metrics: Metrics, decision_maker: DecisionMaker) -> ShareWon:
    """Computes the share of the headroom that a method won, averaged over its settings with headroom.

    Args:
        metrics: What the lessons measured.
        decision_maker: The method, with the metrics of each setting.
    """
    answers = [_answer_question(metrics, question) for question in decision_maker.questions]
    measured = [answer for answer in answers if answer is not None]
    open_answers = [answer for answer in measured if answer.state == OPEN]
    if not measured:
        return ShareWon(decision_maker, MISSING)
    if not open_answers:
        return ShareWon(decision_maker, CLOSED)
    return ShareWon(
        decision_maker,
        OPEN,
        _average([answer.share for answer in open_answers]),
        _average([answer.minus_router for answer in open_answers]),
        len(open_answers),
    )


@dataclass(frozen=True)
class _Answer:
    """What one world says of a decision maker; the fields are those of `ShareWon`."""

    state: str
    share: Interval = _NOT_MEASURED
    minus_router: Interval = _NOT_MEASURED


def _answer_question(metrics: Metrics, question: Question) -> _Answer | None:
    """Computes the share of the headroom that a method won in one setting: gain / headroom.

    Args:
        metrics: What the lessons measured; the full run is preferred to the reader's own run.
        question: Which metrics to read.

    Returns:
        The share, or CLOSED where there is no headroom; None where neither run has the metrics.
    """
    for prefix in (_FULL_RUN, ""):
        try:
            gain = _evaluate(metrics, question.lesson, question.gain, prefix)
            headroom = _evaluate(metrics, question.lesson, question.headroom, prefix)
            minus_router = _NOT_MEASURED
            if question.minus_router:
                minus_router = _evaluate(metrics, question.lesson, question.minus_router, prefix)
        except MissingMetric:
            continue
        # Shares of no headroom, or too little of it, mean nothing.
        gate_is_closed = bool(question.gate) and _gate_is_closed(metrics, question, prefix)
        if gate_is_closed or headroom.value <= 0:
            return _Answer(CLOSED)
        scale = interval_arithmetic.exact(1 / headroom.value)
        return _Answer(
            OPEN,
            interval_arithmetic.times(scale, gain),
            interval_arithmetic.times(scale, minus_router),
        )
    return None


def _gate_is_closed(metrics: Metrics, question: Question, prefix: str) -> bool:
    """Whether too little can be won; lessons measure some gates once for both runs."""
    gate = question.gate
    if f"{prefix}{gate}" in metrics.lessons.get(question.lesson, {}):
        gate = f"{prefix}{gate}"
    return bool(verdicts.explain_closed_gate(metrics, question.lesson, gate))


def _evaluate(metrics: Metrics, lesson: str, text: str, prefix: str) -> Interval:
    """Evaluates an expression on the metrics of a lesson, as an estimate with its interval.

    Estimates count as independent. Those of the same items are positively correlated, so the interval of a difference
    may be too wide, but not too narrow.

    Args:
        metrics: What the lessons measured.
        lesson: The lesson whose metrics are read.
        text: The expression, such as "{gain} - {oracle}".
        prefix: Put before every key, such as "full." for the metrics of the full run.
    """
    test = expressions.parse_test(re.sub(r"\{", "{" + prefix, text))
    evaluator = expressions.Evaluator(lambda _, key: metrics.get_estimate(lesson, key), {}, {})
    return evaluator.evaluate(test.lhs, test.metric_keys)


def _average(estimates: Sequence[Interval]) -> Interval:
    """The mean of independent estimates."""
    total = functools.reduce(interval_arithmetic.plus, estimates)
    return interval_arithmetic.times(interval_arithmetic.exact(1 / len(estimates)), total)


@responsive
def plot_shares_won(shares_won: Sequence[ShareWon], *, layout: Layout = WIDE) -> Figure:
    """Draws the shares of the headroom that decision makers gained.

    Args:
        shares_won: Result of `measure_shares_won`.
        layout: How much room there is.

    Returns:
        A figure with a panel a level of evidence, one above the other; without panels if there is nothing to draw.
    """
    rows_by_level = {level: _select_open(shares_won, level) for level in PANELS}
    rows_by_level = {level: rows for level, rows in rows_by_level.items() if rows}
    # Panels are as high as they have rows, plus title and labels; narrow names have two lines.
    row_height = 0.4 if layout.is_narrow else 0.27
    heights = [len(rows) + 1.6 for rows in rows_by_level.values()]
    width = min(plots.WIDTH, layout.max_width)
    height = row_height * sum(heights) + 0.6
    title = title_shares_won(shares_won)
    figure = plots.new_figure(title, width, height, _note_shares_won(shares_won))
    if not rows_by_level:
        return figure
    panels = figure.subplots(
        len(rows_by_level), 1, sharex=True, squeeze=False, height_ratios=heights
    ).ravel()
    for axes, (level, rows) in zip(panels, rows_by_level.items(), strict=True):
        _draw_panel(axes, layout.wrap_label(PANELS[level]), rows, layout)
    # No interval is cut off at the right.
    drawn = [share_won for rows in rows_by_level.values() for share_won in rows]
    highest = max(share_won.share.ci_high for share_won in drawn)
    panels[-1].set_xlim(_MIN_DRAWN_SHARE - 0.05, max(1.15, highest + 0.05))
    panels[-1].set_xlabel(layout.wrap_label(AXIS_LABEL))
    return figure


def _select_open(shares_won: Sequence[ShareWon], level: str) -> list[ShareWon]:
    return [
        share_won
        for share_won in shares_won
        if share_won.decision_maker.evidence_level == level and share_won.state == OPEN
    ]


def _note_shares_won(shares_won: Sequence[ShareWon]) -> str:
    """Writes the note below the figure: what bars and squares mean, and which methods are not drawn."""
    closed = [share_won for share_won in shares_won if share_won.state == CLOSED]
    missing = [share_won for share_won in shares_won if share_won.state == MISSING]
    beyond_oracle = [share_won for share_won in shares_won if share_won.share.ci_high > 1]
    note = (
        "Headroom: what choosing could gain. Bars: intervals of 95 %. Hollow square: a simple router with the same "
        "information (logistic regression; for KO, TO and RO, which are knowledge-, tool- and reflection-based "
        "orchestration of policies, a rule that takes what looks best; for ARC a flat bandit). Cascade: calls the "
        "cheap expert, then the expensive one if it was wrong; it learns nothing. "
        f"Not open, so not drawn: {_list_names(closed) or 'nobody'}."
    )
    if beyond_oracle:
        note += (
            " A bar that passes 1 is the interval of the gain, with the headroom taken as known: "
            f"{_list_names(beyond_oracle)}."
        )
    if missing:
        note += f" Not in this run: {_list_names(missing)}."
    return note


def _list_names(shares_won: Sequence[ShareWon]) -> str:
    """Lists the names of methods, with their level of evidence where a name occurs on several levels.

    Args:
        shares_won: Results of the methods.
    """
    all_names = [decision_maker.name for decision_maker in DECISION_MAKERS]
    names = []
    for share_won in shares_won:
        name = share_won.decision_maker.name
        if all_names.count(name) > 1:
            name += f" ({_LEVEL_NAMES[share_won.decision_maker.evidence_level]})"
        names.append(name)
    return "; ".join(names)


def _draw_panel(axes: Axes, title: str, shares_won: Sequence[ShareWon], layout: Layout) -> None:
    """Draws one panel: a row per method with its share won, the interval, and the share of a simple router.

    Args:
        axes: Where it is drawn.
        title: Title of the panel.
        shares_won: The rows, from top to bottom.
        layout: Layout of the figure; a narrow one has shorter row names.
    """
    for x, style in ((0, "--"), (1, "-")):
        axes.axvline(x, color=plots.GREY, linewidth=1, linestyle=style)

    for y, share_won in enumerate(shares_won):
        method = share_won.decision_maker.method
        styled_name = _STYLED_NAMES.get(method, method)
        colour = plots.colour(styled_name)
        # What lies beyond the axis is drawn at its end.
        share = share_won.share
        ci_low, value, ci_high = np.clip(
            [share.ci_low, share.value, share.ci_high], _MIN_DRAWN_SHARE, None
        )
        axes.plot([ci_low, ci_high], [y, y], color=colour, linewidth=2.2, solid_capstyle="butt")
        axes.plot(value, y, plots.marker(styled_name), color=colour, markersize=7)
        if np.isfinite(share_won.router_share):
            x = max(share_won.router_share, _MIN_DRAWN_SHARE)
            hollow = {"color": "none", "markeredgecolor": plots.GREY}
            axes.plot(x, y, "s", markersize=8, **hollow)

    max_characters = layout.max_name_width if layout.is_narrow else 40
    label_rows(axes, [share_won.name for share_won in shares_won], max_characters)
    axes.set_ylim(len(shares_won) - 0.3, -0.7)
    axes.set_title(title, fontsize=10, loc="left", x=0.0)


def title_shares_won(shares_won: Sequence[ShareWon]) -> str:
    """Writes the title of the figure: how many methods clearly beat the best single choice, and a simple router."""
    counts = count_by_level(shares_won)
    against_single, against_router = [], []
    for level, level_name in _LEVEL_NAMES.items():
        if counts[f"{level}.open"]:
            text = f"{level_name} {counts[f'{level}.above']} of {counts[f'{level}.open']}"
            against_single.append(text)
        if counts[f"{level}.with_router"]:
            num_above = counts[f"{level}.above_router"]
            against_router.append(f"{level_name} {num_above} of {counts[f'{level}.with_router']}")
    nobody = "nobody was measured"
    return (
        f"Beat the best single choice: {', '.join(against_single) or nobody}. "
        f"Beat a simple router: {', '.join(against_router) or nobody}"
    )


def count_by_level(shares_won: Sequence[ShareWon]) -> dict[str, int]:
    """Counts what the title of the figure says.

    Args:
        shares_won: Result of `measure_shares_won`.

    Returns:
        By `LEVEL.open`, `LEVEL.above`, `LEVEL.with_router` and `LEVEL.above_router`: methods in their settings whose
        question is open, those clearly above the best single choice, those that are compared with a simple router, and
        those clearly above it. The cascade, which learns nothing, is not counted.
    """
    counts = {}
    for level in PANELS:
        rows = [
            row for row in _select_open(shares_won, level) if row.decision_maker.method != CASCADE
        ]
        against_router = [row for row in rows if row.sign_against_router is not None]
        counts[f"{level}.open"] = len(rows)
        counts[f"{level}.above"] = sum(row.sign == 1 for row in rows)
        counts[f"{level}.with_router"] = len(against_router)
        counts[f"{level}.above_router"] = sum(
            row.sign_against_router == 1 for row in against_router
        )
    return counts


def state_finding(counts: Mapping[str, int]) -> str:
    """Says how many methods and settings beat the best single choice and a simple router, over all levels of evidence.

    Args:
        counts: Result of `count_by_level`.

    Returns:
        A sentence with four counts.
    """

    def sum_levels(key: str) -> int:
        return sum(counts[f"{level}.{key}"] for level in PANELS)

    return (
        f"{sum_levels('above')} of {sum_levels('open')} methods and settings beat the best single choice, and "
        f"{sum_levels('above_router')} of {sum_levels('with_router')} beat a simple router."
    )


def summarize_by_level(shares_won: Sequence[ShareWon]) -> dict[str, str]:
    """Says what is known at each level of evidence, losses included.

    Args:
        shares_won: Result of `measure_shares_won`.

    Returns:
        Names of decision makers by `level.word` of `front_page.STANDING_LABELS`. Against the best single choice, each
        with its share of the headroom: above, level (not clearly different) or below it. Against a simple router, each
        with both shares: above_router, level_router, below_router. Also not_open and missing. Words that hold for
        nobody are left out.
    """
    summary = {}
    for level in PANELS:
        rows = _select_open(shares_won, level)
        for word, sign in (("above", 1), ("level", 0), ("below", -1)):
            summary[f"{level}.{word}"] = [
                f"{row.name} ({row.share.value:z.2f})" for row in rows if row.sign == sign
            ]
            summary[f"{level}.{word}_router"] = [
                f"{row.name} ({row.share.value:z.2f} against {row.router_share:z.2f})"
                for row in rows
                if row.sign_against_router == sign
            ]
        for word, state in (("not_open", CLOSED), ("missing", MISSING)):
            summary[f"{level}.{word}"] = [
                share_won.name
                for share_won in shares_won
                if share_won.state == state and share_won.decision_maker.evidence_level == level
            ]
    return {key: "; ".join(names) for key, names in summary.items() if names}
