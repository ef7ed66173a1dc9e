"""Figures and tables of the replay in lesson 05: routers on recorded outcomes, with a budget or without."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw, stats
from lib.page.tables import interval_table
from lib.params import ReplaySettings
from lib.routing import replay
from lib.routing.study import Results
from lib.stats import Interval
from lib.tasks.readers import Outcomes

LAB = "lab"
NAMES = {
    "corl": "CoRL's reward, budget given", "priced": "right - price, price given", "knn": "nearest neighbours",
    "logistic": "logistic", "cascade": "cascade", "random": "random", "best_constant": "best constant",
    "oracle": "oracle", "shortest": "shortest first", "longest": "longest first",
}  # fmt: skip
SHOWN = ("corl", "priced", "knn", "logistic", "cascade", "random", "oracle")  # in the figure
ABOUT = {LAB: "lab experts", "mmlu": "MMLU: Mixtral and GPT-4", "gsm8k": "GSM8K: Mixtral and GPT-4"}
KEPT = ("aiq", "gap", "apgr", "cpt50", "cpt80")
UNDER_B = {  # metric of `replay.by_budget` -> what its line is called, and whose colour it has
    "over": ("its queries above B", "violations"), "ceiling": ("oracle under B", "oracle"),
    "constant": ("best constant under B", "best_constant"), "reward": (NAMES["corl"], "corl"),
}  # fmt: skip
MADE_UP = {"shares": (0.0, 0.25, 0.5, 0.75, 1.0), "qualities": (0.60, 0.72, 0.66, 0.75, 0.80)}  # a curve that falls
Budgets = Mapping[str, Mapping[float, Mapping[str, Interval]]]  # table -> `replay.by_budget`


def lab_table(results: Results) -> Outcomes:
    """Whole questions to single experts, as the study recorded them; every question is a group of its own."""
    experts = list(results.budgets.calls)
    table = results.experts[results.experts["strategy"].isin(experts)]
    wide = {
        c: table.pivot(index=["split", "item"], columns="strategy", values=c)[experts] for c in ("right", "dollars")
    }
    prompts = table.drop_duplicates(["split", "item"]).set_index(["split", "item"])["prompt"].loc[wide["right"].index]
    own = np.unique(prompts, return_inverse=True)[1]
    return Outcomes(
        tuple(prompts), own.astype(str), tuple(experts), wide["right"].to_numpy() >= 0.5, wide["dollars"].to_numpy()
    )


def tables(results: Results, settings: ReplaySettings) -> dict[str, Outcomes]:
    """The lab's own outcomes, and RouteLLM's where `routing.replay.routellm` names them."""
    found = {LAB: lab_table(results)}
    return found | (replay.routellm(settings) if settings.routellm else {})


def note(settings: ReplaySettings) -> str:
    """What is replayed here, and how more would be."""
    if settings.routellm:
        return "Replayed: the lab experts' outcomes, and RouteLLM's tables of MMLU and GSM8K."
    return (
        "Replayed: the lab experts' outcomes. RouteLLM's tables (real answers of Mixtral and GPT-4 to MMLU and GSM8K) "
        "are not shipped: set routing.replay.routellm to a folder with gsm8k_responses.csv and mmlu/*.csv, which stand "
        "under routellm/evals of github.com/lm-sys/RouteLLM, and they appear here too."
    )


def fronts(curves: pd.DataFrame, summaries: Mapping[str, Mapping]) -> Figure:
    """Cost against accuracy of every router, one panel for each table; means over splits."""
    shown = {key: NAMES[key] for key in SHOWN}
    fixed = {key: key for key in curves["router"].unique() if key.startswith(replay.ALWAYS)}
    part = curves[curves["router"].isin([*shown, *fixed])]
    part = part.assign(
        table=part["table"].map(lambda name: ABOUT.get(name, name)), who=part["router"].map(shown | fixed),
        point=part.groupby(["table", "router", "seed"]).cumcount(), dollars=part["dollars"] * 1e6,
    )  # fmt: skip
    means = part.groupby(["table", "who", "point"], sort=False)[["dollars", "accuracy"]].mean()
    x, y = (means[[column]].set_axis(["value"], axis=1) for column in ("dollars", "accuracy"))
    return draw.plane(
        x, y, claim(summaries), "$ per million queries", "accuracy", panels="table",
        names={who: who.removeprefix(replay.ALWAYS) for who in part["who"].unique()},
        like=dict.fromkeys(fixed, "constant"), note="Means over splits by group. Brown: one expert for all.",
    )  # fmt: skip


def claim(summaries: Mapping[str, Mapping[str, Mapping[str, Interval]]]) -> str:
    """What the budget-conditioned router gains over the best blind mixture, as a sentence."""
    told = []
    for name, rows in summaries.items():
        gap = rows["corl"]["gap"]
        length = max(rows[control]["gap"].value for control in ("shortest", "longest"))
        word = "not told apart from" if not gap.excludes(0) else "above" if gap.value > 0 else "below"
        told.append(
            f"{ABOUT.get(name, name)}: {word} the best blind mixture ({gap.value:+.3f} AIQ; by length alone "
            f"{length:+.3f})"
        )
    return f"A router under CoRL's reward. {'; '.join(told)}"


def alt(summaries: Mapping[str, Mapping[str, Mapping[str, Interval]]]) -> str:
    """The figure in words."""
    told = [
        f"{ABOUT.get(name, name)}: " + ", ".join(f"{NAMES.get(r, r)} {row['aiq'].value:.3f}" for r, row in rows.items())
        for name, rows in summaries.items()
    ]
    return "Cost against accuracy of routers on recorded outcomes; area under the hull (AIQ). " + "; ".join(told) + "."


def table(rows: Mapping[str, Mapping[str, Interval]]) -> pd.DataFrame:
    """AIQ, its gap to the best blind mixture, and for two models APGR and CPT, by router."""
    shown = {NAMES.get(r, r): {k: v for k, v in row.items() if k in KEPT} for r, row in rows.items()}
    return interval_table(shown, digits=3).rename_axis("router")


def refused(curves: pd.DataFrame, names: Mapping[str, object]) -> pd.DataFrame:
    """Metrics that could not be read off, each with its reason."""
    rows = [
        [ABOUT.get(name, name), NAMES.get(router, router), key, why]
        for name in names
        for router, reasons in replay.refusals(curves[curves["table"] == name]).items()
        for key, why in reasons.items()
    ]
    return pd.DataFrame(rows, columns=["table", "router", "metric", "why it is left out"])


def metrics(summaries: Mapping[str, Mapping[str, Mapping[str, Interval]]]) -> dict[str, Interval]:
    """Keys `replay.TABLE.ROUTER.METRIC`."""
    return {
        f"replay.{name}.{router}.{key}": value
        for name, rows in summaries.items()
        for router, row in rows.items()
        for key, value in row.items()
        if key in KEPT
    }


# By budget -----------------------------------------------------------------------------------------


def budgets_figure(budgets: Budgets) -> Figure:
    """Reward under every budget of the learned router, the best constant and the oracle, one panel for each table."""
    rows = [
        (ABOUT.get(name, name), label, budget * 1e6, row[key].value, row[key].lo, row[key].hi)
        for name, found in budgets.items() for key, (label, _) in UNDER_B.items() for budget, row in found.items()
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["table", "who", "budget", "value", "lo", "hi"])
    sheet = draw.lines(
        frame, "budget", "value", "who", budgets_claim(budgets), "budget B, $ per million queries",
        "share of queries", seed=None, panels="table", dashed=[UNDER_B["ceiling"][0]],
        like={label: NAMES.get(look, look) for label, look in UNDER_B.values()},
        note="Over splits by group; reward: right within B; the constant is chosen on training prompts. Dots: told "
        "apart from the constant, paired by split. A query that nobody within B gets right may cost more than B and "
        "loses nothing.",
    )  # fmt: skip
    for axes, by_budget in zip(sheet.axes, budgets.values(), strict=True):
        apart = {budget * 1e6: row["reward"].value for budget, row in by_budget.items() if row["gap"].excludes(0)}
        axes.plot(list(apart), list(apart.values()), "o", color=draw.colour(NAMES["corl"]))
        axes.set_xscale("log")
    return sheet


def budgets_claim(budgets: Budgets) -> str:
    """At how many budgets the learned router is told apart from the best constant, as a sentence."""
    told = []
    for name, rows in budgets.items():
        apart = [row["gap"].value > 0 for row in rows.values() if row["gap"].excludes(0)]
        above, below = sum(apart), len(apart) - sum(apart)
        told.append(
            f"{ABOUT.get(name, name)}: clearly above at {above}, clearly below at {below} of {len(rows)} budgets"
        )
    return f"The learned router beside the best constant under the same budget. {'; '.join(told)}"


def budgets_alt(budgets: Budgets) -> str:
    """The figure in words."""
    told = []
    for name, rows in budgets.items():
        mean = {key: np.mean([row[key].value for row in rows.values()]) for key in UNDER_B}
        told.append(
            f"{ABOUT.get(name, name)}, from ${min(rows) * 1e6:,.1f} to ${max(rows) * 1e6:,.1f} per million queries: "
            f"learned {mean['reward']:.3f}, best constant {mean['constant']:.3f}, oracle {mean['ceiling']:.3f}, "
            f"queries over budget {mean['over']:.0%}"
        )
    return f"Reward against the budget. Means over all budgets. {'; '.join(told)}."


def budget_metrics(curves: pd.DataFrame) -> dict[str, Interval]:
    """Keys `replay.TABLE.corl.reward_gap`: reward minus that of the best constant under the same budget, on the mean
    over budgets."""
    return {
        f"replay.{name}.corl.reward_gap": replay.reward_gap(part) for name, part in curves.groupby("table", sort=False)
    }


# CPT refused ---------------------------------------------------------------------------------------


@draw.theme()
def refusal_example() -> tuple[Figure, str]:
    """A made-up curve that falls before it rises, why no CPT is read off it, and what the running maximum would say."""
    shares, qualities = (np.array(MADE_UP[key]) for key in ("shares", "qualities"))
    target, rising = replay.TARGETS[0], stats.monotone(qualities)
    ends = qualities[0], qualities[-1]
    try:
        refused = f"A CPT of {stats.cpt(shares, qualities, *ends, target):.2f} can be read off"
    except ValueError as error:
        refused = f"Refused: {error}"
    found = stats.cpt(shares, rising, *ends, target)
    sheet = draw.sheet(f"Made up: a curve that falls, and the CPT of {found:.2f} that its peak would give", 6, 3.6)
    axes = draw.tiles(sheet, 1)[0]
    axes.plot(shares, rising, "--", color=draw.colour(NAMES["oracle"]), label="running maximum")
    axes.plot(shares, qualities, "o-", color=draw.colour(NAMES["corl"]), label="as measured (made up)")
    axes.plot(found, np.interp(found, shares, rising), "x", color="black", label="its CPT")
    axes.set(xlabel="share of queries to the strong model", ylabel="accuracy")
    axes.legend(fontsize=8, frameon=False, loc="lower right")
    return sheet, (
        f"{refused}. Of the running maximum the CPT at {target:.0%} would be {found:.2f}: the peak counts in full, "
        "whether or not it is luck."
    )
