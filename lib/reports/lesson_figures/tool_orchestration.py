"""Tables and titles of lesson 06: a menu and its user, scores, steering, contrasts."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from lib import stats
from lib.config import Params
from lib.experiment import results_table
from lib.language_models.checkpoints import MODELS
from lib.tool_orchestration import lab_estimates, lab_results, lab_world
from lib.tool_orchestration.lab_experiment import START
from lib.tool_orchestration.lab_menus import LabAssignment
from lib.tool_orchestration.lab_results import TRAINED
from lib.tool_orchestration.lab_training import NO_PREFERENCES, SIGN_ERROR
from lib.tool_orchestration.rewards import MICRO_USD_PER_USD, MS_PER_SECOND

# Methods of the figure of scores, from the start to the oracle.
SHOWN_METHODS = (
    START,
    lab_results.BEST_SINGLE,
    TRAINED,
    lab_results.LARGEST_WISH,
    lab_results.LOGISTIC,
    lab_results.ORACLE,
)
SHOWN_USERS = (START, NO_PREFERENCES.label, SIGN_ERROR.label, TRAINED)
USER_LABELS = {"accuracy": "accuracy only", "cost": "cost only", "latency": "latency only"}
# Estimates that the lesson shows of a reader's run and of the recorded full run, by metric key.
SHOWN_KEYS = (
    "steer.cost",
    "steer.latency",
    "trained.gain",
    "trained.minus_best_single",
    "heldout_tools.called_where_best",
    "unseen_prices.shift",
)
CONTRAST_LABELS = {
    name: f"{TRAINED} minus {reference}" for name, reference in lab_estimates.CONTRASTS.items()
}


def choose_example_menu(params: Params) -> LabAssignment:
    """Choose a test menu whose user cares for cost most and for something else too."""
    settings = params.tools.lab_world
    tools = lab_world.read_tools(params.llm, settings.models, str(MODELS))
    menus = lab_world.draw_menus(lab_world.TEST_MENUS, 48, tools, settings.held_out)

    def rank_example(menu: LabAssignment) -> tuple[bool, float]:
        user = menu.user
        return user.cost == 1.0, min(user.accuracy, user.cost)

    return max(menus, key=rank_example)


def tabulate_menu(menu: LabAssignment) -> pd.DataFrame:
    """Tabulate the tools of a menu: what the orchestrator reads, and what stands behind it."""
    rows = []
    for entry in menu.entries:
        rows.append(
            {
                "name on this menu": entry.name,
                "reads": "   ".join(entry.list_facts(menu.item.group)),
                "model behind it": entry.tool.name,
                "measured accuracy": entry.tool.get_accuracy(menu.item),
                "$ per million tokens": entry.usd_per_token * MICRO_USD_PER_USD,
                "ms per token": entry.seconds_per_token * MS_PER_SECOND,
            }
        )
    return pd.DataFrame(rows).set_index("name on this menu")


def estimate_levels(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate the score of each of SHOWN_METHODS that is in the rows.

    Args:
        rows: Of `lab_results.make_rows`, or the recorded run's.

    Returns:
        A row of estimates for each method.
    """
    tests = results_table.select(rows, split=lab_results.TEST)
    means = stats.mean(tests, "score", "method", bounds=(0.0, 1.0))
    return means.loc[[method for method in SHOWN_METHODS if method in means.index]]


def summarize_levels(levels: pd.DataFrame) -> str:
    """A title that says where the trained orchestrator ends: "Score: start .46, ToolOrchestra .55, oracle .93"."""
    names = [name for name in (START, TRAINED, lab_results.LOGISTIC) if name in levels.index]
    values = ", ".join(f"{name} {levels.loc[name, 'value']:.2f}" for name in names)
    return f"Score of a user's wishes: {values}"


def estimate_spending(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate the expected cost of each of SHOWN_USERS' orchestrators, for each kind of user.

    Args:
        rows: Of `lab_results.make_rows`, or the recorded run's.

    Returns:
        Estimates by method and user, relative to the menu's mean tool.
    """
    spending = results_table.select(rows, split=lab_results.STEERING)
    named = spending[spending["method"].isin(SHOWN_USERS)].replace({"style": USER_LABELS})
    tables = {
        "cost": stats.mean(named, "expected_cost", ["method", "style"]),
        "latency": stats.mean(named, "expected_latency", ["method", "style"]),
    }
    return pd.concat(tables, names=["spent"])


def summarize_steering(estimates: Mapping[str, pd.Series]) -> str:
    """A title that says what the weights of users change."""
    cost, latency = (estimates[name] for name in lab_estimates.STEERING)
    return (
        f"Users who care for cost only save {_percent(cost)} of a mean tool, "
        f"for latency only {_percent(latency)}"
    )


def _percent(estimate: pd.Series) -> str:
    """An estimate with its interval in percent: "44 % [31, 57]"."""
    if pd.isna(estimate["ci_low"]):
        return f"{estimate['value']:.0%}"
    return f"{estimate['value']:.0%} [{estimate['ci_low']:.0%}, {estimate['ci_high']:.0%}]"


def tabulate_contrasts(estimates: Mapping[str, pd.Series], margin: float) -> pd.DataFrame:
    """Tabulate the differences of score with their verdicts; the primary ones are tested together.

    Args:
        estimates: Of `lab_estimates.estimate_metrics`.
        margin: Differences of score within it count as equivalent.

    Returns:
        A row for each contrast that was measured, by metric key: the columns of `lib.stats`, verdict, and
        `significant_together` for the primary contrasts (Holm).
    """
    present = [name for name in lab_estimates.CONTRASTS if name in estimates]
    table = pd.DataFrame({name: estimates[name] for name in present}).T.infer_objects()
    table["verdict"] = stats.verdict(table, margin)
    primary = table.loc[[name for name in lab_estimates.PRIMARY if name in table.index]]
    table["significant_together"] = stats.holm(primary).reindex(table.index)
    return table


def tabulate_estimates(
    estimates: Mapping[str, pd.Series], names: Mapping[str, str]
) -> pd.DataFrame:
    """Tabulate estimates in words: value with interval, verdict, smallest detectable effect, seeds.

    Args:
        estimates: By metric key.
        names: What each key is called in the table; keys that were not measured are left out.

    Returns:
        A row for each name.
    """
    present = {key: name for key, name in names.items() if key in estimates}
    table = pd.DataFrame({key: estimates[key] for key in present}).T.infer_objects()
    return pd.DataFrame(
        {
            "estimate": stats.intervals(table),
            "above 0": stats.verdict(table),
            "smallest detectable effect": table["mde"].astype(float).round(3),
            "seeds": table["num_runs"].astype(int),
        }
    ).set_axis(list(present.values()))


def summarize_lesson(estimates: Mapping[str, pd.Series], contrasts: pd.DataFrame) -> str:
    """The conclusion in two sentences, negative results first."""
    steering = pd.DataFrame({key: estimates[key] for key in lab_estimates.STEERING})
    sentences = ("what cost-only users save", "what latency-only users wait less")
    steering = stats.summary_sentence(steering.T.infer_objects().set_axis(list(sentences)))
    named = contrasts.set_axis([CONTRAST_LABELS[key] for key in contrasts.index])
    return f"Score of a user's wishes: {stats.summary_sentence(named)} Steering: {steering}"


def collect_verdicts(contrasts: pd.DataFrame) -> dict[str, str | float]:
    """The verdict and the minimum detectable effect of every contrast, by metric key.

    Args:
        contrasts: Of `tabulate_contrasts`.
    """
    values: dict[str, str | float] = {}
    for key, row in contrasts.iterrows():
        values[f"{key}_verdict"] = row["verdict"]
        values[f"{key}_mde"] = float(row["mde"])
    return values
