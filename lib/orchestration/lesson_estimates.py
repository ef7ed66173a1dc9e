"""What lesson 02 measures, by metric key: the same estimates of a reader's run and of the recorded full run.

    gate.DOMAIN.WORLD.headroom                       what planning ahead gains over the best single policy
    contrast.DOMAIN.WORLD.FIRST_SECOND.utility       the questions of `orchestration.contrasts`
    length.education.WORLD.SYSTEM_minus.BASELINE     steps until the student is done; SYSTEM may be random
    depth.education.WORLD.STEPS.length               by how far RO looks ahead (1: TO), and A_minus_B
    memory.education.SYSTEM.utility                  without short-term memory minus with it
    reference.minigrid.MO-pseudoS_minus.SYSTEM.QUANTITY   of the policy that was trained in the composite room
    sparing.DOMAIN.INTERVAL.utility, .calls          of RO that decides at every INTERVAL-th step only
    table2.DOMAIN.ROW.QUANTITY                       the paper's Table 2
    judge.ROW.CRITERION, judge.SYSTEM.CRITERION_minus.BASELINE   scores of a judge, in the appendix

KO, TO and RO are those of `orchestration.model` but for Table 2, where a row names its model. Every difference is
paired by student or room. Left out: what is shown of them, which the lesson decides.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from lib import stats
from lib.config import OrchestrationSettings
from lib.experiment import results_table
from lib.orchestration import results
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.methods import BEST_POLICY, NAMES_OF_VARIANTS, ORACLE
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


def collect_estimates(
    rows: pd.DataFrame, settings: OrchestrationSettings, skip_missing: bool = False
) -> Estimates:
    """Everything that the lesson measures on a table of episodes: estimates by metric key.

    Args:
        rows: A row per method, seed and episode, those of prompted models among them where there are some.
        settings: The section `orchestration` of params.yaml that the episodes were played with.
        skip_missing: Leave out a group of estimates of which the table lacks a method, instead of raising. For a run
            that was recorded before the settings changed.

    Returns:
        Means and paired differences with intervals.

    Raises:
        NoRowsError: A method that the settings name is not in the table, and skip_missing is false.
    """
    # Table 2 alone compares prompted models, which played fewer episodes.
    batch_rows = select_own_methods(rows, settings)
    groups = (
        (estimate_contrasts, batch_rows),
        (estimate_lengths, batch_rows),
        (estimate_depths, batch_rows),
        (estimate_memory, batch_rows),
        (estimate_reference, batch_rows),
        (estimate_decision_intervals, batch_rows),
        (estimate_table_2, rows),
    )
    estimates = estimate_gates(batch_rows)  # of methods that no setting names
    for estimate_group, group_rows in groups:
        try:
            estimates |= estimate_group(group_rows, settings)
        except stats.NoRowsError:
            if not skip_missing:
                raise
    return estimates


def select_own_methods(rows: pd.DataFrame, settings: OrchestrationSettings) -> pd.DataFrame:
    """The rows of methods that play every episode: baselines, and KO, TO and RO of `orchestration.model`.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        rows: A row per method, seed and episode.
        settings: The section `orchestration` of params.yaml.
    """
    return results_table.select(rows, model=["", "greedy", settings.model])


def list_verdicts(rows: pd.DataFrame, settings: OrchestrationSettings) -> dict[str, str]:
    """List the verdicts in words: whether choosing a policy can gain anything, and how each comparison ended.

    Args:
        rows: A row per method, seed and episode.
        settings: The section `orchestration` of params.yaml.

    Returns:
        Verdicts by metric key. Gates are open or not open; a contrast of two methods has a word of
        `lib.stats.verdicts`.
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


def arrange_questions(contrasts: pd.DataFrame) -> pd.DataFrame:
    """Pick from all contrasts the lesson's questions: is a system above the best policy, random choice, and arithmetic?

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    A contrast is the difference in utility of two methods. Arithmetic decides with the system's own context, in place
    of a model.

    Args:
        contrasts: By domain, world and contrast, as `results.estimate_contrasts` returns them.

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
    """List the results that lesson 02 shows twice, of the reader's run and of the recorded full run, by metric key.

    A metric key is the name under which a result is stored, such as "gate.education.paper.headroom". A world is a set
    of episodes with its rules and objectives. RO (reflection-based orchestration) is the only system shown.

    Args:
        questions: A table whose index has the levels domain, world, system and question; its values are not read.

    Returns:
        First a key for each world: how much choosing among policies can gain there at most. Then, for each world, the
        keys of RO's difference in utility from each baseline of QUESTIONS.
    """
    # A world appears in the index once for each system and question.
    worlds = questions.index.droplevel(["system", "question"]).unique()
    keys = [f"gate.{domain}.{world}.headroom" for domain, world in worlds]
    for domain, world in worlds:
        for question in QUESTIONS:
            contrast = name_question("RO", question)
            keys.append(f"contrast.{domain}.{world}.{contrast}.utility")
    return keys


def is_oracle_best(rows: pd.DataFrame) -> bool:
    """Check that in no episode a method has a higher utility than the oracle, the best method in hindsight.

    Args:
        rows: A row per method, seed and episode, the oracle among the methods.

    Returns:
        Whether that holds.
    """
    keys = ["group", "condition", "seed", "item"]
    is_oracle = rows["method"] == ORACLE
    oracle_utility = rows[is_oracle].set_index(keys)["reward"]
    utility = rows[~is_oracle].set_index(keys)["reward"]
    rounding_error = 1e-12
    return bool((utility <= oracle_utility.reindex(utility.index) + rounding_error).all())


# By key --------------------------------------------------------------------------------------------


def estimate_gates(rows: pd.DataFrame) -> Estimates:
    """Utility of planning ahead minus that of the best single policy, by metric key; from a table of episodes."""
    headroom = results.estimate_headroom(rows)
    return {f"gate.{domain}.{world}.headroom": row for (domain, world), row in headroom.iterrows()}


def estimate_contrasts(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """Differences in utility of the pairs in `orchestration.contrasts`, in every world, by metric key."""
    contrasts = results.estimate_contrasts(rows, settings)
    return {
        f"contrast.{domain}.{world}.{contrast}.utility": row
        for (domain, world, contrast), row in contrasts.iterrows()
    }


def estimate_lengths(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """Estimate how many steps KO, TO, RO and random choice need more than baselines, for the paper's students.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        rows: A row per method, seed and episode.
        settings: The section `orchestration` of params.yaml.

    Returns:
        Paired differences by metric key, in the worlds "paper" and "speed".
    """
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
    """Estimate how the look-ahead depth of RO changes the length of episodes (Figure 6).

    RO (reflection-based orchestration) simulates every policy for several steps on copies of the environment before it
    decides. The depth is the number of these steps.

    Args:
        rows: A row per method, seed and episode.
        settings: The section `orchestration` of params.yaml.

    Returns:
        Mean length by depth, and the paired difference of every two depths, by metric key.
    """
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
    """Name the methods that simulate policies before they decide, by the number of simulated steps.

    TO simulates one step, RO several.

    Args:
        model: Name of the decision model.
        settings: The section `orchestration` of params.yaml.

    Returns:
        Names of methods by number of steps, in rising order.
    """
    methods = {1: f"TO {model}", settings.lookahead: f"RO {model}"}
    for depth in settings.lookahead_depths:
        methods[depth] = f"RO {model}, {depth} steps"
    return dict(sorted(methods.items()))


def estimate_memory(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """Estimate what short-term memory changes: utility without it minus utility with it (Table 5).

    Both methods play the same students. The systems are KO, which reads descriptions of the policies, TO, which tries
    each policy for one step, and RO, which tries each for several.

    Args:
        rows: A row per method, seed and episode, with the utility in column `reward`.
        settings: The section `orchestration` of params.yaml.

    Returns:
        The paired difference of each system, by metric key.
    """
    world_rows = results_table.select(rows, group="education", condition="paper")
    estimates = {}
    for system in SYSTEMS:
        with_memory = results.name_method(system, settings.model)
        without_memory = f"{with_memory}{_NO_SHORT_TERM}"
        estimates[f"memory.education.{system}.utility"] = _estimate_difference(
            world_rows, "reward", without_memory, with_memory
        )
    return estimates


def estimate_reference(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """Estimate how far the reference policy of rooms is above each orchestrator, from a table of episodes.

    The reference, MO-pseudoS, is a single policy that was trained for goal and gold together; no model chooses for it.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        rows: A row per method, seed and episode.
        settings: The section `orchestration` of params.yaml; its `model` names the orchestrators' model.

    Returns:
        Mean differences (reference minus orchestrator) with intervals, paired by room, by metric key. Quantities:
        utility, and shares of success, avoided lava and gold. Empty where the table has no episodes of the paper's
        room, as in a run of education alone.
    """
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
    """Estimate utility and number of model calls when RO decides only every n-th step, in the varied worlds.

    RO (reflection-based orchestration) simulates every policy for several steps before it decides. Between two
    decisions the last policy goes on.

    Args:
        rows: A row per method, seed and episode.
        settings: The section `orchestration` of params.yaml.

    Returns:
        Means by metric key, `sparing.<domain>.<n>.utility` and `.calls`.
    """
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
    """Name the methods that decide only every n-th step.

    Args:
        system: KO or RO.
        settings: The section `orchestration` of params.yaml.

    Returns:
        Names by n, in rising order from 1 (a decision at every step).
    """
    method = results.name_method(system, settings.model)
    methods = {1: method}
    for interval in sorted(settings.decision_intervals):
        methods[interval] = f"{method}, every {interval}"
    return methods


def estimate_table_2(rows: pd.DataFrame, settings: OrchestrationSettings) -> Estimates:
    """Estimate the paper's Table 2 (length, objectives, hypervolume, cost) for every method in both domains.

    Args:
        rows: A row per method, seed and episode.
        settings: The section `orchestration` of params.yaml.

    Returns:
        Estimates by metric key, `table2.<domain>.<method>.<quantity>`.
    """
    estimates = {}
    for domain in DOMAINS:
        table_rows = select_rows_of_table_2(rows, domain)
        table = results.estimate_table_2(table_rows, domain, settings.episodes)
        for (method, quantity), row in table.iterrows():
            key = f"table2.{domain}.{results.name_row_of_table_2(method)}.{quantity}"
            estimates[key] = row
    return estimates


def estimate_recorded_rows(rows: pd.DataFrame, settings: OrchestrationSettings) -> dict[str, Any]:
    """Estimate the rows of Table 2 that only the recorded full run has: those of a pretrained model.

    Args:
        rows: Episodes of the pretrained model.
        settings: The section `orchestration` of params.yaml.

    Returns:
        Estimates and the backend of each row, by keys that begin with `full.`.
    """
    values: dict[str, Any] = {}
    for domain in rows["group"].unique():
        table = results.estimate_table_2(rows, domain, settings.episodes)
        for (method, quantity), row in table.iterrows():
            key = f"full.table2.{domain}.{results.name_row_of_table_2(method)}.{quantity}"
            values[key] = row
    for key, backend in list_backends_of_table_2(rows, settings).items():
        values[f"full.{key}"] = backend
    return values


def select_rows_of_table_2(rows: pd.DataFrame, domain: str) -> pd.DataFrame:
    """Select the episodes of the methods that the paper's Table 2 compares, in the paper's world of one domain.

    Left out are variants of another method, upper bounds (which know the future or look further than methods may), and
    "best policy", which repeats the episodes of SO-d1, SO-d2 or SO-d3 under another name.

    Args:
        rows: A row per method, seed and episode.
        domain: education or minigrid.

    Returns:
        The rows of `rows` that are left.
    """
    paper_rows = results_table.select(rows, group=domain, condition="paper")
    # Variants are named after their method, a comma and what differs: "RO lab-orchestrator, one copy".
    is_variant = paper_rows["method"].str.contains(", ")
    is_bound = paper_rows["role"] == "oracle"
    # Its episodes stand in the table already, as those of the policy that was best in training.
    is_repetition = paper_rows["method"] == BEST_POLICY
    return paper_rows[~is_variant & ~is_bound & ~is_repetition]


def estimate_judge_scores(judged: pd.DataFrame, methods: Sequence[str], model: str) -> Estimates:
    """Estimate the mean score that a judge gave each method, and differences between methods on the same episodes.

    Args:
        judged: A row per judged episode, with a score for each criterion, marked where too few replies were usable.
        methods: Names of methods; KO, TO, RO and random among them.
        model: Name of the orchestrators' model.

    Returns:
        `judge.ROW.CRITERION` for every method, and `judge.SYSTEM.CRITERION_minus.BASELINE` for TO minus KO, RO minus KO
        and RO minus random.
    """
    estimates = {}
    for criterion, scores in results.estimate_scores(judged, methods).items():
        for method in methods:
            row = results.name_row_of_table_2(method)
            estimates[f"judge.{row}.{criterion}"] = scores.loc[method]
        for name, baseline_name in (("TO", "KO"), ("RO", "KO"), ("RO", "random")):
            method = results.name_method(name, model)
            baseline = results.name_method(baseline_name, model)
            key = f"judge.{name}.{criterion}_minus.{baseline_name}"
            estimates[key] = results.compare_scores(judged, criterion, method, baseline)
    return estimates


def list_backends_of_table_2(rows: pd.DataFrame, settings: OrchestrationSettings) -> dict[str, str]:
    """List the backend of each row of Table 2 that was decided by another model than `orchestration.model`.

    Args:
        rows: A row per method, seed and episode.
        settings: The section `orchestration` of params.yaml.

    Returns:
        Such as "endpoint", by `table2.DOMAIN.ROW.backend`.
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
    """Sort methods as the paper's Table 2 does: policies of one objective, of several, baselines, orchestrators.

    Args:
        methods: Names of rows, such as "SO-d1", "MO-MGDA", "random" or "KO lab-orchestrator"; the last is an
            orchestration system (KO, TO or RO of the paper) and the language model that decides.

    Returns:
        The same names; the three systems of one language model stand together.
    """
    single_objective = []
    multi_objective = []
    baselines = []
    orchestrators = []
    for method in methods:
        first_word = method.split(" ")[0]
        if first_word in SYSTEMS:
            orchestrators.append(method)
        elif method in SINGLE:
            single_objective.append(method)
        elif method.startswith("MO-"):
            multi_objective.append(method)
        else:
            baselines.append(method)
    orchestrators.sort(key=lambda method: method.partition(" ")[2])  # by the language model
    return single_objective + multi_objective + baselines + orchestrators


def _estimate_difference(rows: pd.DataFrame, column: str, first: str, second: str) -> Estimate:
    """The mean of a column for method `first` minus that for `second`, paired by student or room."""
    difference = stats.paired_difference(rows, column, {"method": first}, {"method": second})
    return difference.iloc[0]
