"""All decision makers in one figure: how much of what choosing could win each wins, a panel a level of evidence.

    share won = (the decision maker - the best constant) / (the best that there is - the best constant)

0 is the best that needs no choice, 1 the optimum of a synthetic environment, or the oracle of a lab or a recorded
table, which looks back. The interval is the one of the numerator: the headroom is taken as known. A decision maker
whose question is not open is named and not drawn. Left out: lessons 06 and 07 in the lab, whose runs are weak; the
claims say so.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure

from lib import plots
from lib.plots.tables import listed
from lib.plots.theme import label_rows
from lib.scoreboard import verdicts
from lib.scoreboard.metrics import Metrics, MissingMetric
from lib.stats import Interval, interval_arithmetic

PANELS = {  # evidence level: its title, what 0 is, and what 1 is
    "synthetic": ("Synthetic environment with a known optimum", "best constant", "optimum"),
    "lab": ("Lab: small models and policies that are trained here", "best constant", "oracle"),
    "recorded": (
        "Recorded: real models and agents, at half the money",
        "best mixture of constants",
        "oracle",
    ),
}
_ORCHESTRATION = "02_orchestration"
_CONDUCTOR = "04_conductor"
_ROUTING = "05_budgeted_routing"
_TOOLS = "06_tool_orchestration"
_CONFIGURATION = "07_agent_configuration"
_RECORDED = "08_recorded_outcomes"
# Asks the cheap expert, sees whether it was right, asks the expensive one if not; nothing is learned.
CASCADE = "checked cascade"
_MIN_DRAWN_SHARE = -1.5  # what is worse is drawn there


@dataclass(frozen=True)
class DecisionMaker:
    """Where the metrics of a decision maker stand.

    Attributes:
        evidence_level: A key of `PANELS`.
        name: As it stands in the figure.
        lesson: The lesson that measured it.
        gain: Keys of `lesson` joined by ` - `: the decision maker minus the best constant.
        headroom: The same of the best that there is minus the best constant.
        baseline_gain: The same of a plain router minus the best constant; empty for none.
        gate: (lesson, key) of the metric that says whether the question is open.
    """

    evidence_level: str
    name: str
    lesson: str
    gain: str
    headroom: str
    baseline_gain: str = ""
    gate: tuple[str, str] | None = None


def _list_orchestrators() -> list[DecisionMaker]:
    """KO, TO and RO of policy orchestration, in every world that may be open."""
    worlds = (
        ("education", "speed", "students asked for speed"),
        ("education", "varied", "students of varied ability"),
        ("minigrid", "paper", "the paper's rooms"),
        ("minigrid", "varied", "rooms with planned policies"),
    )
    decision_makers = []
    for domain, world, environment in worlds:
        contrast = f"contrast.{domain}.{world}"
        headroom = f"gate.{domain}.{world}.headroom"
        for system in ("KO", "TO", "RO"):
            decision_makers.append(
                DecisionMaker(
                    evidence_level="lab",
                    name=f"{system}, {environment}",
                    lesson=_ORCHESTRATION,
                    gain=f"{contrast}.{system}_best-policy.utility",
                    headroom=headroom,
                    baseline_gain=f"{contrast}.KO_best-policy.utility - {contrast}.KO_LinUCB.utility",
                    gate=(_ORCHESTRATION, headroom),
                )
            )
    return decision_makers


def _list_routers() -> list[DecisionMaker]:
    """CoRL's controller at each budget, in the synthetic environment and in the lab."""
    decision_makers = []
    for budget in ("low", "medium", "high"):
        synthetic = f"synthetic.{budget}"
        decision_makers.append(
            DecisionMaker(
                evidence_level="synthetic",
                name=f"CoRL, {budget} budget",
                lesson=_ROUTING,
                gain=f"{synthetic}.minus_best_without_query",
                headroom=f"{synthetic}.headroom",
                gate=(_ROUTING, f"{synthetic}.headroom"),
            )
        )
        lab = f"corl.{budget}.minus"
        decision_makers.append(
            DecisionMaker(
                evidence_level="lab",
                name=f"CoRL, {budget} budget",
                lesson=_ROUTING,
                gain=f"{lab}_best_constant",
                headroom=f"{lab}_best_constant - {lab}_oracle",
                baseline_gain=f"{lab}_best_constant - {lab}_logistic",
                gate=(_ROUTING, f"gate.routing.{budget}.headroom"),
            )
        )
    return decision_makers


def _list_recorded() -> list[DecisionMaker]:
    """The decision makers on recorded outcomes, which lesson 08 replays."""
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
    decision_makers = []
    for table, tasks in tables:
        for name, method in methods:
            # The cascade may check a reply before it pays for another, a question of its own.
            question = "check" if method == "check" else "money"
            decision_makers.append(
                DecisionMaker(
                    evidence_level="recorded",
                    name=f"{name}, {tasks}",
                    lesson=_RECORDED,
                    gain=f"{table}.{method}.half_gap",
                    headroom=f"{table}.oracle.half_gap",
                    baseline_gain=f"{table}.knn.half_gap",
                    gate=(_RECORDED, f"gate.{table}.{question}.is"),
                )
            )
    return decision_makers


def _list_other_synthetic() -> list[DecisionMaker]:
    """MAESTRO, ToolOrchestra and ARC in their synthetic environments."""
    conductor_gain = "glass.conductor_minus_best_static"
    decision_makers = [
        DecisionMaker(
            evidence_level="synthetic",
            name="MAESTRO's Conductor",
            lesson=_CONDUCTOR,
            gain=conductor_gain,
            headroom=f"{conductor_gain} - glass.conductor_minus_oracle",
        )
    ]
    others = (
        ("ToolOrchestra", _TOOLS, "synthetic"),
        ("ARC", _CONFIGURATION, "glass"),
    )
    for name, lesson, prefix in others:
        decision_makers.append(
            DecisionMaker(
                evidence_level="synthetic",
                name=name,
                lesson=lesson,
                gain=f"{prefix}.above_constant",
                headroom=f"{prefix}.headroom",
                gate=(lesson, f"{prefix}.headroom"),
            )
        )
    return decision_makers


DECISION_MAKERS = (
    *_list_other_synthetic(),
    *_list_orchestrators(),
    *_list_routers(),
    *_list_recorded(),
)


@dataclass(frozen=True)
class ShareWon:
    """What a decision maker won of what choosing could win.

    Attributes:
        decision_maker: Whose share it is.
        share: The share won, with its interval.
        baseline_share: That of the plain router beside it; nan for none.
        is_closed: Its question is not open, so the share means nothing.
    """

    decision_maker: DecisionMaker
    share: Interval
    baseline_share: float
    is_closed: bool

    @property
    def sign(self) -> int | None:
        """1, 0 or -1: above the best constant, no significant difference, below it; None where the question is
        closed."""
        if self.is_closed:
            return None
        return int(self.share.ci_low > 0) - int(self.share.ci_high < 0)


def measure_shares_won(
    metrics: Metrics, decision_makers: Sequence[DecisionMaker] = DECISION_MAKERS
) -> list[ShareWon]:
    """Measures what each decision maker won of what choosing could win.

    Args:
        metrics: What the lessons measured.
        decision_makers: Where their metrics stand.

    Returns:
        One share per decision maker whose metrics there are, panel after panel.
    """
    levels = list(PANELS)
    shares_won = []
    for row in sorted(decision_makers, key=lambda row: levels.index(row.evidence_level)):
        try:
            gain = _evaluate_difference(metrics, row.lesson, row.gain)
            headroom = _evaluate_difference(metrics, row.lesson, row.headroom)
            baseline_gain = np.nan
            if row.baseline_gain:
                baseline_gain = _evaluate_difference(metrics, row.lesson, row.baseline_gain).value
        except MissingMetric:
            continue  # a small run has left it out
        # Shares of no headroom, or too little of it, mean nothing.
        gate_is_closed = bool(row.gate and verdicts.explain_closed_gate(metrics, *row.gate))
        has_headroom = headroom.value > 0
        scale = 1 / headroom.value if has_headroom else np.nan
        share = Interval(gain.value * scale, gain.ci_low * scale, gain.ci_high * scale)
        is_closed = gate_is_closed or not has_headroom
        shares_won.append(ShareWon(row, share, baseline_gain * scale, is_closed))
    return shares_won


def _evaluate_difference(metrics: Metrics, lesson: str, text: str) -> Interval:
    """Subtracts from the first of several keys joined by ` - ` all the others.

    The metrics files hold estimates, not the pairs that they come from, so the estimates count as independent: their
    variances add. Estimates of the same items are positively correlated, so the interval is too wide, never too narrow.
    """
    difference, *subtracted = [metrics.get_estimate(lesson, key) for key in text.split(" - ")]
    for estimate in subtracted:
        difference = interval_arithmetic.minus(difference, estimate)
    return difference


def plot_shares_won(shares_won: Sequence[ShareWon]) -> Figure:
    """Draws the shares that decision makers won.

    Args:
        shares_won: Result of `measure_shares_won`.

    Returns:
        A figure with a panel a level of evidence, one above the other; without panels if there is nothing to draw.
    """
    shares_by_level = {}
    for level in PANELS:
        on_level = [
            share_won
            for share_won in shares_won
            if share_won.decision_maker.evidence_level == level and not share_won.is_closed
        ]
        if on_level:
            shares_by_level[level] = on_level
    closed_names = [
        share_won.decision_maker.name for share_won in shares_won if share_won.is_closed
    ]
    note = (
        "Bars: intervals of 95 %. Hollow square: a plain router, or LinUCB, on the same items. KO, TO, RO: policy "
        "orchestration. Checked cascade: asks the cheap one, then the expensive one if it was wrong. "
        f"Closed, so not drawn: {listed(closed_names, 'nobody')}."
    )
    with plots.theme():
        # Panels are as high as they have rows, plus title and labels.
        heights = [len(on_level) + 2.2 for on_level in shares_by_level.values()]
        title = title_shares_won(shares_won)
        figure = plots.new_figure(title, plots.WIDTH, 0.27 * sum(heights) + 0.6, note)
        if not shares_by_level:
            return figure
        panels = figure.subplots(
            len(shares_by_level), 1, sharex=True, squeeze=False, height_ratios=heights
        ).ravel()
        for axes, (level, on_level) in zip(panels, shares_by_level.items(), strict=True):
            _draw_panel(axes, level, on_level)
        panels[-1].set_xlim(_MIN_DRAWN_SHARE - 0.05, 1.15)
        panels[-1].set_xlabel("share won of what choosing could win")
    return figure


def _draw_panel(axes, level: str, shares_won: Sequence[ShareWon]) -> None:
    num_rows = len(shares_won)
    title, label_of_zero, label_of_one = PANELS[level]
    for x, label, style in ((0, label_of_zero, "--"), (1, label_of_one, "-")):
        axes.axvline(x, color=plots.GREY, linewidth=1, linestyle=style)
        axes.text(
            x, num_rows - 0.1, f"{label} ", ha="right", va="center", fontsize=9, color=plots.GREY
        )

    for y, share_won in enumerate(shares_won):
        method = share_won.decision_maker.name.split(",")[0]
        styled_name = "cascade" if method == CASCADE else method.removeprefix("MAESTRO's ")
        colour = plots.colour(styled_name)
        # What lies beyond the axis is drawn at its end.
        share = share_won.share
        ci_low, value, ci_high = np.clip(
            [share.ci_low, share.value, share.ci_high], _MIN_DRAWN_SHARE, None
        )
        axes.plot([ci_low, ci_high], [y, y], color=colour, linewidth=2.2, solid_capstyle="butt")
        axes.plot(value, y, plots.marker(styled_name), color=colour, markersize=7)
        if np.isfinite(share_won.baseline_share):
            x = max(share_won.baseline_share, _MIN_DRAWN_SHARE)
            hollow = {"color": "none", "markeredgecolor": plots.GREY}
            axes.plot(x, y, "s", markersize=8, **hollow)

    label_rows(axes, [share_won.decision_maker.name for share_won in shares_won], 30)
    axes.set_ylim(num_rows + 0.3, -0.6)
    axes.set_title(title, fontsize=10, loc="left", x=0.0)


def title_shares_won(shares_won: Sequence[ShareWon]) -> str:
    """How many decision makers beat the best constant on each level, as the title of the figure."""
    phrases = []
    for level, level_name in (
        ("synthetic", "in synthetic environments"),
        ("lab", "in the lab"),
        ("recorded", "on recorded outcomes"),
    ):
        on_level = [
            share_won
            for share_won in shares_won
            if share_won.decision_maker.evidence_level == level and not share_won.is_closed
        ]
        # The cascade learns nothing, so it is no decision maker of a paper.
        learned = [
            share_won
            for share_won in on_level
            if not share_won.decision_maker.name.startswith(CASCADE)
        ]
        num_above = sum(share_won.sign == 1 for share_won in learned)
        if learned:
            phrases.append(f"{num_above} of {len(learned)} {level_name}")
    return f"Who beats the best constant clearly: {listed(phrases, 'nobody was measured')}"


def summarize_by_level(shares_won: Sequence[ShareWon]) -> dict[str, str]:
    """Says what is known at each level of evidence.

    Args:
        shares_won: Result of `measure_shares_won`.

    Returns:
        Names of decision makers by `level.word` of `front_page.KNOWN`: above the best constant, level with it (no
        significant difference) or below it, each with the share won; not_open, whose question is closed. Words that
        hold for nobody are left out.
    """
    summary = {}
    for level in PANELS:
        on_level = [
            share_won
            for share_won in shares_won
            if share_won.decision_maker.evidence_level == level
        ]
        for word, sign in (("above", 1), ("level", 0), ("below", -1)):
            phrases = [
                f"{share_won.decision_maker.name} ({share_won.share.value:.2f})"
                for share_won in on_level
                if share_won.sign == sign
            ]
            if phrases:
                summary[f"{level}.{word}"] = "; ".join(phrases)
        closed_names = [
            share_won.decision_maker.name for share_won in on_level if share_won.is_closed
        ]
        if closed_names:
            summary[f"{level}.not_open"] = "; ".join(closed_names)
    return summary
