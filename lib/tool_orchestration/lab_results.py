"""The experiment in the lab world as rows of a results table.

Rows of several kinds lie in one table, so that a recorded run keeps all that estimates read; `split` tells them apart:

    test        a method on a test menu: score, correct, cost_usd, seconds, chosen ...
    steering    what an orchestrator would spend on a menu for a user (`style`) who cares for one objective only
    held out    the probability of tools that training never had
    prices      the probability of tools that an unseen price list made cheap
    gate        what there is to win on a menu, before anything is trained
    train       means over the episodes of an update (`step`)

All methods are tested on the same menus. `score` is the bounded preference score (`menu_baselines.compute_menu_scores`)
with the orchestrator's own tokens in cost and latency, `score_of_calls` without them; for baselines, which have no
orchestrator, the two are equal.

Left out: estimates, which are `lab_estimates`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib.tool_orchestration import lab_world, menu_baselines
from lib.tool_orchestration.lab_experiment import SAMPLES, START, LabWorldResults
from lib.tool_orchestration.lab_training import ALL_LAB_VARIANTS, PREFERENCES
from lib.tool_orchestration.menu_baselines import MenuOutcomes
from lib.tool_orchestration.tool_menu import OBJECTIVES

SYSTEM = "toolorchestra"
TRAINED = PREFERENCES.label
LABELS = {START: START} | {variant.name: variant.label for variant in ALL_LAB_VARIANTS}

RANDOM = "random"
BEST_SINGLE = "best single tool"
BEST_BY_KIND = "best by kind"
CASCADE = "type-aware cascade"
LOGISTIC = "logistic on descriptions"
LARGEST_WISH = "largest wish"
BY_OBJECTIVE = {"accuracy": "ablest tool", "cost": "cheapest tool", "latency": "fastest tool"}
ORACLE = "oracle"
SINGLE_TOOL_PREFIX = "only "  # and the name of the one tool that this method calls
CONSTANTS = (RANDOM, BEST_SINGLE, *BY_OBJECTIVE.values())
ROLES = dict.fromkeys(CONSTANTS, "constant") | {ORACLE: "oracle"}

# Values of the column `split`.
TEST, STEERING, HELD_OUT, PRICES, GATE, TRAIN = (
    "test",
    "steering",
    "held out",
    "prices",
    "gate",
    "train",
)
# Rows of the split GATE belong to no method.
NO_METHOD = "what there is to win"


def make_rows(results: LabWorldResults) -> pd.DataFrame:
    """Make the rows of the results table.

    Args:
        results: What `lab_experiment.run` returned.

    Returns:
        Rows with the columns of the results table that are known, and those that the head of this module names.
    """
    spending = results.spending.rename(
        columns={
            "user": "style",
            "cost": "expected_cost",
            "latency": "expected_latency",
            "accuracy": "expected_accuracy",
        }
    )
    held_out = results.held_out.assign(is_best=results.held_out["is_best"].astype(float))
    learning = results.learning.assign(item=results.learning.get("step", pd.Series(dtype=int)))
    tables = {
        TEST: pd.concat([make_orchestrator_rows(results), make_baseline_rows(results)]),
        STEERING: label_methods(spending),
        HELD_OUT: label_methods(held_out),
        PRICES: label_methods(results.prices),
        GATE: make_gate_rows(results),
        TRAIN: label_methods(learning) if len(learning) else learning,
    }
    rows = pd.concat(
        [table.assign(split=split) for split, table in tables.items()], ignore_index=True
    )

    # Types of the results table, whatever the splits had.
    rows["item"] = rows["item"].astype(int).astype(str)
    rows["seed"] = rows["seed"].fillna(0).astype(int)
    return fill_words_and_counts(rows).assign(backend="lab")


def fill_words_and_counts(rows: pd.DataFrame) -> pd.DataFrame:
    """Fill columns that only some splits have: words with "", counts with 0, lists with [], step with -1.

    Args:
        rows: All splits, with nan in the columns that a split does not have.

    Returns:
        The rows, with the columns wild (1 where a test episode has a malformed turn) and malformed_share (of the
        episodes of an update) in addition; malformed is then a count of turns.
    """
    is_malformed = (rows["malformed"] > 0).astype(float)
    filled = rows.assign(wild=is_malformed.where(rows["split"] == TEST))
    is_update = rows["split"].eq(TRAIN)
    filled["malformed_share"] = rows["malformed"].where(is_update)
    filled["malformed"] = rows["malformed"].where(~is_update).fillna(0).astype(int)
    filled["calls"] = rows["calls"].fillna(0).astype(int)
    filled["step"] = rows["step"].fillna(-1).astype(int) if "step" in rows else -1
    for name in ("group", "style"):
        filled[name] = rows[name].fillna("")
    filled["chosen"] = [list(names) if np.ndim(names) else [] for names in rows["chosen"]]
    return filled


def label_methods(rows: pd.DataFrame) -> pd.DataFrame:
    """Replace the names of methods by their labels, and add the column role ("start", "paper" or "router")."""
    labels = rows["method"].map(LABELS)
    roles = np.where(labels.eq(START), "start", np.where(labels.eq(TRAINED), "paper", "router"))
    return rows.assign(method=labels, role=roles)


def make_orchestrator_rows(results: LabWorldResults) -> pd.DataFrame:
    """Make the rows of orchestrators on test menus.

    Args:
        results: What `lab_experiment.run` returned.

    Returns:
        A row per method, seed and menu: the columns of `lab_tests.measure_episodes`, score and score_of_calls (the
        bounded preference score with and without the cost of the orchestrator's own tokens), method and role.
    """
    outcomes = results.outcomes[lab_world.TEST_MENUS][0]
    tables = []
    for _, rows in results.episodes.groupby(["method", "seed"], sort=False):
        rows = rows.sort_values("item")
        # (n, 1) each: one choice on each of n menus
        correct = rows["correct"].to_numpy()[:, None]
        cost = rows["cost_usd"].to_numpy()[:, None]
        seconds = rows["seconds"].to_numpy()[:, None]
        cost_of_calls = cost - rows["own_cost_usd"].to_numpy()[:, None]
        score = menu_baselines.compute_menu_scores(outcomes, correct, cost, seconds)
        score_of_calls = menu_baselines.compute_menu_scores(
            outcomes, correct, cost_of_calls, seconds
        )
        tables.append(rows.assign(score=score[:, 0], score_of_calls=score_of_calls[:, 0]))
    return label_methods(pd.concat(tables))


def list_choices(dev: MenuOutcomes, test: MenuOutcomes) -> dict[str, np.ndarray]:
    """List the choices of all baselines on the test menus.

    Args:
        dev: Menus with the outcomes of their tools, from which baselines that learn do so.
        test: n menus of M tools, with outcomes, on which choices are made.

    Returns:
        By the baseline's name, (n, M) probabilities of choosing each tool; nan on menus where it cannot choose.
    """
    choices = {
        RANDOM: menu_baselines.choose_at_random(test),
        BEST_SINGLE: menu_baselines.choose_best_tool(dev, test),
        BEST_BY_KIND: menu_baselines.choose_best_by_kind(dev, test),
        CASCADE: menu_baselines.choose_by_type_and_price(test),
        LOGISTIC: menu_baselines.choose_by_logistic_regression(dev, test),
        LARGEST_WISH: menu_baselines.choose_by_largest_wish(test),
        ORACLE: menu_baselines.choose_oracle(test),
    }
    for objective, name in BY_OBJECTIVE.items():
        choices[name] = menu_baselines.choose_by_objective(test, objective)
    tool_names: set[str] = set()
    for assignment in test.assignments:
        tool_names.update(entry.tool.name for entry in assignment.entries)
    for name in sorted(tool_names):
        choices[SINGLE_TOOL_PREFIX + name] = menu_baselines.choose_single_tool(test, name)
    return choices


def make_baseline_rows(results: LabWorldResults) -> pd.DataFrame:
    """Make the rows of the baselines on test menus: expectations over their choices, without sampling.

    Args:
        results: What `lab_experiment.run` returned; outcomes are those that orchestrators are scored against.

    Returns:
        A row per baseline (column method) and menu (item) on which it can choose, with the columns of
        `make_orchestrator_rows`.
    """
    dev = results.outcomes[lab_world.DEV_MENUS][0]
    test = results.outcomes[lab_world.TEST_MENUS][0]
    scores = test.compute_scores()
    kinds = [assignment.item.group for assignment in test.assignments]
    tables = []
    for name, choice in list_choices(dev, test).items():
        score = menu_baselines.average_choices(choice, scores)
        table = pd.DataFrame(
            {
                "item": np.arange(len(kinds)),
                "group": kinds,
                "method": name,
                "role": _find_role(name),
                "correct": menu_baselines.average_choices(choice, test.correct),
                "cost_usd": menu_baselines.average_choices(choice, test.cost_usd),
                "seconds": menu_baselines.average_choices(choice, test.seconds),
                "score": score,
                "score_of_calls": score,
            }
        )
        # A tool alone has no score on menus that lack it.
        tables.append(table[~np.isnan(score)])
    rows = pd.concat(tables)
    nothing = [[] for _ in range(len(rows))]
    return rows.assign(seed=0, own_cost_usd=0.0, calls=1, malformed=0, chosen=nothing)


def _find_role(baseline: str) -> str:
    """Find the role of a baseline in the results table: "constant", "oracle", "expert" or "router"."""
    if baseline in ROLES:
        return ROLES[baseline]
    return "expert" if baseline.startswith(SINGLE_TOOL_PREFIX) else "router"


# Gates ---------------------------------------------------------------------------------------------


def make_gate_rows(results: LabWorldResults) -> pd.DataFrame:
    """Make the rows of the gates: how much a perfect choice could gain on each test menu, before any training.

    Args:
        results: What `lab_experiment.run` returned.

    Returns:
        A row per menu (item) with headroom (`compute_headroom`) and wish (`compute_wish_gain`), in units of the score.
    """
    headroom = compute_headroom(results)
    return pd.DataFrame(
        {
            "item": np.arange(len(headroom)),
            "method": NO_METHOD,
            "role": "constant",
            "headroom": headroom,
            "wish": compute_wish_gain(results),
        }
    )


def compute_headroom(results: LabWorldResults) -> np.ndarray:
    """Compute what the best choice for each menu scores above the best single tool.

    The choice is made on one sample of outcomes and scored on another, so that chance outcomes do not count as a gain.

    Args:
        results: What `lab_experiment.run` returned.

    Returns:
        (n,) difference of scores on each of n test menus, averaged over the samples.
    """
    dev = results.outcomes[lab_world.DEV_MENUS][0]
    samples = results.outcomes[lab_world.TEST_MENUS]
    differences = []
    for sample in range(SAMPLES):
        chosen_on = samples[sample]
        # Scored on another sample than it was chosen on: the best of several by chance would count as headroom.
        scored_on = samples[(sample + 1) % SAMPLES]
        choice = menu_baselines.choose_oracle(chosen_on)
        constant = menu_baselines.choose_best_tool(dev, scored_on)
        scores = scored_on.compute_scores()
        differences.append(menu_baselines.average_choices(choice - constant, scores))
    return np.mean(differences, axis=0)


def compute_wish_gain(results: LabWorldResults) -> np.ndarray:
    """Compute what a rule that reads what users weigh most scores above the best rule that does not.

    Both read one kind of fact on the menu: the best ability, the lowest price or the lowest latency. Which of them is
    best for all users is chosen on dev menus.

    Args:
        results: What `lab_experiment.run` returned.

    Returns:
        (n,) difference of scores on each of n test menus.
    """
    dev = results.outcomes[lab_world.DEV_MENUS][0]
    mean_scores = {}
    for objective in OBJECTIVES:
        choice = menu_baselines.choose_by_objective(dev, objective)
        scores = menu_baselines.average_choices(choice, dev.compute_scores())
        mean_scores[objective] = float(scores.mean())
    # The rule is chosen on dev menus, and compared on test menus.
    best_for_all_users = max(mean_scores, key=mean_scores.get)

    test = results.outcomes[lab_world.TEST_MENUS][0]
    constant = menu_baselines.choose_by_objective(test, best_for_all_users)
    difference = menu_baselines.choose_by_largest_wish(test) - constant
    return menu_baselines.average_choices(difference, test.compute_scores())
