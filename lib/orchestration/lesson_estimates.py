"""What lesson 02 measures, by metric key: the same estimates of a reader's run and of the recorded full run.

    gate.DOMAIN.WORLD.headroom                       what planning ahead gains over the best single policy
    contrast.DOMAIN.WORLD.FIRST_SECOND.utility       the questions of `orchestration.contrasts`
    length.education.WORLD.SYSTEM_minus.BASELINE     steps until the student is done; SYSTEM may be random
    depth.education.WORLD.STEPS.length               by how far RO looks ahead (1: TO), and A_minus_B
    memory.education.SYSTEM.utility                  without short-term memory minus with it
    reference.minigrid.MO-pseudoS_minus.SYSTEM.QUANTITY   of the policy that was trained in the room for everything
    sparing.DOMAIN.INTERVAL.utility, .calls          of RO that decides at every INTERVAL-th step only
    table2.DOMAIN.ROW.QUANTITY                       the paper's Table 2

KO, TO and RO are those of `orchestration.model` but for Table 2, where a row names its model. Every difference is
paired by student or room. Left out: what is shown of them, which the lesson decides.
"""

from collections.abc import Callable, Mapping
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from lib import stats
from lib.config import OrchestrationSettings
from lib.experiment import results_table
from lib.orchestration import results
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.experiment import BEST_POLICY, NAMES_OF_VARIANTS, ORACLE
from lib.policy_zoo.recipes import REFERENCES, SINGLE
from lib.stats.verdicts import NOT_OPEN

Estimate = pd.Series  # a row of `lib.stats`
Estimates = dict[str, Estimate]  # by metric key

DOMAINS = ("education", "minigrid")
# What each of KO, TO and RO is compared with, in the order of the lesson's figure. The third has the same context, and
# arithmetic in place of a model.
QUESTIONS = (BEST_POLICY, "random", "greedy")
_NO_SHORT_TERM = NAMES_OF_VARIANTS["mem_s",]
_QUANTITIES_OF_ROOMS = {"utility": "reward", "success": "d1", "no_lava": "d2", "gold": "d3"}
# With the reference point (-1, -1, -1) and rewards in [0, 1], a front encloses 8 at the most.
_BOUNDS_OF_FRONTS = {"hv_mean": (0.0, 8.0), "hv_union": (0.0, 8.0), "sparsity": (0.0, np.inf)}


def collect_estimates(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """Everything that the lesson measures on its episodes.

    Args:
        rows: Of `experiment.run`, and of prompted models where there are some.
        settings: Of the orchestrators.

    Returns:
        Estimates by metric key; what the rows do not hold is left out.
    """
    # Table 2 alone compares prompted models, which played fewer episodes.
    batch_rows = select_own_methods(rows, settings)
    return {
        **estimate_gates(batch_rows),
        **estimate_contrasts(batch_rows, settings),
        **estimate_lengths(batch_rows, settings),
        **estimate_depths(batch_rows, settings),
        **estimate_memory(batch_rows, settings),
        **estimate_reference(batch_rows, settings),
        **estimate_decision_intervals(batch_rows, settings),
        **estimate_table_2(rows, settings),
    }


def select_own_methods(rows: pd.DataFrame, settings: OrchestrationSettings) -> pd.DataFrame:
    """The methods that play every episode: baselines, and KO, TO and RO of `orchestration.model`.

    Args:
        rows: Episodes.
        settings: Of the orchestrators.
    """
    return results_table.select(rows, model=["", "greedy", settings.model])


def list_verdicts(rows: pd.DataFrame, settings: OrchestrationSettings) -> dict[str, str]:
    """What the estimates say, in words, by metric key.

    Args:
        rows: Of `experiment.run`.
        settings: Of the orchestrators.

    Returns:
        By the key of an estimate, with `_verdict` behind it: open or not open of a gate, a word of
        `lib.stats.verdicts` of a contrast.
    """
    batch_rows = select_own_methods(rows, settings)
    verdicts = {}
    for (domain, world), row in results.estimate_headroom(batch_rows).iterrows():
        verdicts[f"gate.{domain}.{world}.headroom_verdict"] = describe_gate(row["is_open"])
    contrasts = results.estimate_contrasts(batch_rows, settings)
    for (domain, world, contrast), row in contrasts.iterrows():
        key = f"contrast.{domain}.{world}.{contrast}.utility_verdict"
        verdicts[key] = row["verdict"]
    return verdicts


def describe_gate(is_open: bool) -> str:
    """Whether a question is open, in the words of `lib.stats.verdicts`."""
    return "open" if is_open else NOT_OPEN


def make_estimators(
    keys: Mapping[str, object], settings: OrchestrationSettings
) -> dict[str, Callable[[pd.DataFrame], Estimate]]:
    """Estimates as functions of the rows, as `lib.reports.full_and_run.compare_with_full_run` takes them.

    Args:
        keys: Metric keys.
        settings: Of the orchestrators.

    Returns:
        By key, a function from episodes to the estimate. What is estimated of the same rows is estimated once.
    """
    estimates_by_rows: dict[int, Estimates] = {}

    def read_estimate(key: str, rows: pd.DataFrame) -> Estimate:
        if id(rows) not in estimates_by_rows:
            estimates_by_rows[id(rows)] = collect_estimates(rows, settings)
        return estimates_by_rows[id(rows)][key]

    return {key: partial(read_estimate, key) for key in keys}


def arrange_questions(contrasts: pd.DataFrame) -> pd.DataFrame:
    """The three questions of the lesson: is a system above the best policy, above random, above a rule?

    The rule has the system's own context, and arithmetic in place of a model.

    Args:
        contrasts: Of `results.estimate_contrasts`.

    Returns:
        Estimates and verdicts by domain, world, system and question; a question is one of QUESTIONS.
    """
    blocks = []
    for system in SYSTEMS:
        for question in QUESTIONS:
            block = contrasts.xs(name_question(system, question), level="contrast")
            blocks.append(block.assign(system=system, question=question))
    questions = pd.concat(blocks).set_index(["system", "question"], append=True)
    return questions.sort_index(level=["group", "condition"], sort_remaining=False)


def name_question(system: str, question: str) -> str:
    """The contrast that answers one of QUESTIONS about a system, such as "RO_RO-greedy"."""
    baseline = f"{system} {question}" if question == "greedy" else question
    return results.name_contrast(system, baseline)


def list_contrasts_of_questions() -> list[str]:
    """All contrasts that answer one of QUESTIONS."""
    return [name_question(system, question) for system in SYSTEMS for question in QUESTIONS]


def list_shown_keys(questions: pd.DataFrame) -> list[str]:
    """The keys that the lesson shows of its run and of the recorded one: every gate, and RO in the given questions.

    Args:
        questions: Of `arrange_questions`; those of open worlds.
    """
    worlds = questions.index.droplevel(["system", "question"]).unique()
    keys = [f"gate.{domain}.{world}.headroom" for domain, world in worlds]
    for domain, world in worlds:
        for question in QUESTIONS:
            contrast = name_question("RO", question)
            keys.append(f"contrast.{domain}.{world}.{contrast}.utility")
    return keys


def is_oracle_best(rows: pd.DataFrame) -> bool:
    """Whether no method passes the oracle in any episode.

    Args:
        rows: Of `experiment.run`, the oracle among them.
    """
    keys = ["group", "condition", "seed", "item"]
    is_oracle = rows["method"] == ORACLE
    bounds = rows[is_oracle].set_index(keys)["reward"]
    rewards = rows[~is_oracle].set_index(keys)["reward"]
    return bool((rewards <= bounds.reindex(rewards.index) + 1e-12).all())


# By key --------------------------------------------------------------------------------------------


def estimate_gates(rows: pd.DataFrame) -> Estimates:
    """What could be won by choosing, by domain and world."""
    headroom = results.estimate_headroom(rows)
    return {f"gate.{domain}.{world}.headroom": row for (domain, world), row in headroom.iterrows()}


def estimate_contrasts(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """The questions that were written down before any run, in every world."""
    contrasts = results.estimate_contrasts(rows, settings)
    return {
        f"contrast.{domain}.{world}.{contrast}.utility": row
        for (domain, world, contrast), row in contrasts.iterrows()
    }


def estimate_lengths(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """Steps of KO, TO, RO and random minus those of baselines, for the paper's students."""
    baselines = ("random", BEST_POLICY, "LinUCB", *REFERENCES["education"])
    estimates = {}
    for world in ("paper", "speed"):
        world_rows = results_table.select(rows, group="education", condition=world)
        for name in (*SYSTEMS, "random"):
            for baseline in baselines:
                if name == baseline:
                    continue
                key = f"length.education.{world}.{name}_minus.{baseline.replace(' ', '-')}"
                method = results.name_method(name, settings.model)
                estimates[key] = _estimate_difference(world_rows, "length", method, baseline)
    return estimates


def estimate_depths(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """Steps of an episode by how far RO looks ahead (Figure 6), and their differences."""
    method_by_depth = name_methods_by_depth(settings.model, settings)
    estimates = {}
    for world in ("paper", "speed"):
        world_rows = results_table.select(rows, group="education", condition=world)
        for depth, method in method_by_depth.items():
            depth_rows = results_table.select(world_rows, method=method)
            key = f"depth.education.{world}.{depth}.length"
            estimates[key] = stats.mean(depth_rows, "length").iloc[0]
        for first, second in combinations(method_by_depth, 2):
            key = f"depth.education.{world}.{first}_minus_{second}.length"
            estimates[key] = _estimate_difference(
                world_rows, "length", method_by_depth[first], method_by_depth[second]
            )
    return estimates


def name_methods_by_depth(model: str, settings: OrchestrationSettings) -> dict[int, str]:
    """The methods that look ahead by so many steps: TO by one, RO by several.

    Args:
        model: Who decides.
        settings: Of the orchestrators.

    Returns:
        By steps of the look-ahead, in rising order.
    """
    methods = {1: f"TO {model}", settings.lookahead: f"RO {model}"}
    for depth in settings.lookahead_depths:
        methods[depth] = f"RO {model}, {depth} steps"
    return dict(sorted(methods.items()))


def estimate_memory(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """Utility without short-term memory minus utility with it (Table 5), for the paper's students."""
    world_rows = results_table.select(rows, group="education", condition="paper")
    estimates = {}
    for system in SYSTEMS:
        method = results.name_method(system, settings.model)
        forgetful = f"{method}{_NO_SHORT_TERM}"
        key = f"memory.education.{system}.utility"
        estimates[key] = _estimate_difference(world_rows, "reward", forgetful, method)
    return estimates


def estimate_reference(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """How far the policy that was trained in the paper's room for all objectives is above KO, TO and RO there."""
    world_rows = results_table.select(rows, group="minigrid", condition="paper")
    if world_rows.empty:
        return {}
    (reference,) = REFERENCES["minigrid"]
    estimates = {}
    for system in SYSTEMS:
        method = results.name_method(system, settings.model)
        for quantity, column in _QUANTITIES_OF_ROOMS.items():
            key = f"reference.minigrid.{reference}_minus.{system}.{quantity}"
            estimates[key] = _estimate_difference(world_rows, column, reference, method)
    return estimates


def estimate_decision_intervals(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """Utility and calls of RO where a choice holds for several steps, in the varied worlds."""
    estimates = {}
    for domain in DOMAINS:
        for interval, method in name_methods_by_interval("RO", settings).items():
            method_rows = results_table.select(
                rows, group=domain, condition="varied", method=method
            )
            for quantity, column in (("utility", "reward"), ("calls", "calls")):
                key = f"sparing.{domain}.{interval}.{quantity}"
                estimates[key] = stats.mean(method_rows, column).iloc[0]
    return estimates


def name_methods_by_interval(system: str, settings: OrchestrationSettings) -> dict[int, str]:
    """The methods that decide at every so many steps only.

    Args:
        system: KO or RO.
        settings: Of the orchestrators.

    Returns:
        By steps between decisions, in rising order, from 1.
    """
    method = results.name_method(system, settings.model)
    methods = {1: method}
    for interval in sorted(settings.decision_intervals):
        methods[interval] = f"{method}, every {interval}"
    return methods


def estimate_table_2(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """The paper's Table 2 in both domains, a key per row and quantity."""
    estimates = {}
    for domain in DOMAINS:
        table_rows = select_rows_of_table_2(rows, domain)
        table = tabulate_estimates(table_rows, domain, settings.episodes)
        for (method, quantity), row in table.iterrows():
            key = f"table2.{domain}.{results.name_row_of_table_2(method)}.{quantity}"
            estimates[key] = row
    return estimates


def tabulate_estimates(rows: pd.DataFrame, domain: str, num_episodes: int) -> pd.DataFrame:
    """`results.estimate_table_2` with the utility of the query, and with intervals that end where a quantity does.

    Args:
        rows: Of one domain's methods.
        domain: education or minigrid.
        num_episodes: Per seed, the first ones.

    Returns:
        Estimates by method and quantity.
    """
    table = results.estimate_table_2(rows, domain, num_episodes)
    quantities = table.index.get_level_values("quantity")
    for quantity, (lowest, highest) in _BOUNDS_OF_FRONTS.items():
        is_quantity = quantities == quantity
        for end in ("ci_low", "ci_high"):
            table.loc[is_quantity, end] = table.loc[is_quantity, end].clip(lowest, highest)
    paper_rows = results_table.select(rows, group=domain, condition="paper")
    number = paper_rows["item"].str.split("-").str[1].astype(int)
    utility = stats.mean(paper_rows[number < num_episodes], "reward", "method")
    utility = pd.concat({"utility": utility}, names=["quantity"]).swaplevel()
    return pd.concat([table, utility])


def estimate_recorded_rows(rows: pd.DataFrame, settings: OrchestrationSettings) -> dict[str, Any]:
    """Rows of Table 2 that the recorded full run alone has: estimates and backends, by keys that begin with `full.`.

    Args:
        rows: Episodes of a pretrained model.
        settings: Of the orchestrators.
    """
    values: dict[str, Any] = {}
    for domain in rows["group"].unique():
        table = tabulate_estimates(rows, domain, settings.episodes)
        for (method, quantity), row in table.iterrows():
            key = f"full.table2.{domain}.{results.name_row_of_table_2(method)}.{quantity}"
            values[key] = row
    for key, backend in list_backends_of_table_2(rows, settings).items():
        values[f"full.{key}"] = backend
    return values


def select_rows_of_table_2(rows: pd.DataFrame, domain: str) -> pd.DataFrame:
    """The methods that stand in Table 2: all but variants of another method, and the upper bounds.

    Args:
        rows: Episodes.
        domain: education or minigrid.
    """
    paper_rows = results_table.select(rows, group=domain, condition="paper")
    is_variant = paper_rows["method"].str.contains(", ")
    is_bound = paper_rows["role"] == "oracle"
    is_other_name = paper_rows["method"] == BEST_POLICY  # of one of the single policies
    return paper_rows[~is_variant & ~is_bound & ~is_other_name]


def list_backends_of_table_2(rows: pd.DataFrame, settings: OrchestrationSettings) -> dict[str, str]:
    """Who decided a row of Table 2 that another model than `orchestration.model` decided, by metric key.

    Args:
        rows: Episodes.
        settings: Of the orchestrators.

    Returns:
        `table2.DOMAIN.ROW.backend`.
    """
    backends = {}
    for domain in DOMAINS:
        table_rows = select_rows_of_table_2(rows, domain)
        prompted = table_rows[~table_rows["model"].isin(["", settings.model])]
        for method, backend in prompted.groupby("method", sort=False)["backend"].first().items():
            key = f"table2.{domain}.{results.name_row_of_table_2(method)}.backend"
            backends[key] = backend
    return backends


def sort_rows_of_table_2(methods: list[str]) -> list[str]:
    """Methods in the order of the paper's table: single policies, references, other baselines, orchestrators.

    Args:
        methods: Names of rows.

    Returns:
        The same names; KO, TO and RO of one model stand together.
    """

    def rank_method(method: str) -> tuple[int, str]:
        system, _, model = method.partition(" ")
        if system in SYSTEMS:
            return 3, model
        if method in SINGLE:
            return 0, ""
        return (1 if method.startswith("MO-") else 2), ""

    return sorted(methods, key=rank_method)  # stable: otherwise as they came


def _estimate_difference(rows: pd.DataFrame, column: str, first: str, second: str) -> Estimate:
    """The mean of first - second, inside pairs."""
    difference = stats.paired_difference(rows, column, {"method": first}, {"method": second})
    return difference.iloc[0]
