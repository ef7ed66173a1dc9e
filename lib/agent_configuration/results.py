"""The study of lesson 07 as rows of a results table: everybody on the same test questions.

`split` tells kinds of rows apart:

    test      a method on a test question: correct, reward, cost_usd, tokens_out, workflow, error ...
              style is OWN (a policy on the kind that it learned from), OTHER (other kinds), LARGER (larger agents)
    workflows the best configuration of each workflow (method), chosen on training questions, on test questions
    gate      what choosing for each question gains on dev questions, before anything is trained
    atoms     an episode with an atom (style) or without
    train     mean reward, accuracy and use of tools of an update (step), by kind
    shares    ARC's training in parts (step): how often each workflow was chosen (calls), and how it did
    labels    what each training question (step) wants, by all configurations that were tried on it

Methods that are trained have a row per seed; what is searched or prompted has one.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from lib import stats
from lib.agent_configuration import atom_effects, baselines, embeddings
from lib.agent_configuration.action_space import WORKFLOWS
from lib.agent_configuration.baselines import GRID, SAMPLED
from lib.agent_configuration.experiment import AgentConfigurationResults
from lib.agent_configuration.questions import questions
from lib.agent_configuration.variants import (
    ARC,
    DPO,
    NAMED,
    NO_SFT,
    UNTRAINED,
    label_method,
)
from lib.config import Params
from lib.llm import reply_shares
from lib.stats.verdicts import FAILS, HOLDS, UNDECIDED

SYSTEM = "configuration"  # of the results table
# Values of `split`.
TEST, BY_WORKFLOW, GATE, ATOMS, TRAIN = "test", "workflows", "gate", "atoms", "train"
SHARES, LABELS = "shares", "labels"
OWN, OTHER, LARGER = "own kind", "other kind", "larger agents"  # values of `style` of test rows
PROMPTED = ("zero_shot", "few_shot")
_CONSTANTS = ("base", "grid", "greedy", "random", "best_constant", "by_kind")
_TRAIN_COLUMNS = ["correct", "reward", "cost_usd", "tokens_out", "used"]
NUM_PARTS = 16  # of a training, in which shares of workflows are counted
_COLUMNS = [
    "method", "seed", "split", "style", "group", "item", "sample", "step", "correct", "reward", "cost_usd", "seconds",
    "tokens_in", "tokens_out", "calls", "used", "allocated", "turns", "cut", "cut_by_model", "failures", "lost_calls",
    "workflow", "atoms", "digest", "only", "error", "failed", "lost_choice", "key", "prompt", "best_tools",
    "best_budget",
]  # fmt: skip


def label(method: str, params: Params) -> str:
    """Make the name of a method in tables and figures.

    Args:
        method: Name in the rows, such as "zero_shot".
        params: Say which models are used.

    Returns:
        The name; "(scripted)" follows where a program stands in for the language model of the method.
    """
    name = label_method(method)
    models = params.llm.models
    prompted_backend = models[params.configuration.prompted].backend
    agent_backend = models[params.configuration.model].backend
    has_scripted_choices = method in PROMPTED and prompted_backend == "scripted"
    has_scripted_texts = method == "gepa" and agent_backend == "lab"
    return f"{name} (scripted)" if has_scripted_choices or has_scripted_texts else name


def describe_backend(params: Params) -> str:
    """Describe the backend of the agents, larger ones included: which models the metrics rest on."""
    settings = params.configuration
    return params.llm.describe_backend([settings.model, settings.larger])


def make_rows(results: AgentConfigurationResults, params: Params) -> pd.DataFrame:
    """Make the rows of the results table, see the head of this module.

    Args:
        results: What `experiment.run` returned.
        params: The settings.

    Returns:
        Rows for `results_table.make_results`; `method` holds names, not labels.
    """
    # Rows of every split
    tests = make_test_rows(results, params)
    gate = baselines.make_gate_rows(results.tried).assign(split=GATE, style="", seed=0)
    atoms = results.atoms.rename(columns={"atom": "style"}).assign(
        split=ATOMS, method=ATOMS, seed=0
    )
    tables = [
        tests,
        make_workflow_rows(results.tried),
        gate,
        atoms,
        make_label_rows(results.tried),
    ]
    if len(results.rollouts):
        tables.append(make_training_rows(results.rollouts))
        tables.append(make_share_rows(results.rollouts))
    rows = pd.concat(tables, ignore_index=True)

    # Rows without an item of their own have the question as item
    if "item" not in rows:
        rows["item"] = ""
    question = rows["group"].astype(str) + "/" + rows["prompt"].astype(str)
    rows["item"] = rows["item"].where(rows["item"].notna() & (rows["item"] != ""), question)

    # Fill what a split has no value for
    word_columns = (
        "style", "only", "error", "workflow", "atoms", "digest", "key", "prompt", "best_tools", "best_budget",
    )  # fmt: skip
    for name in word_columns:
        rows[name] = rows[name].fillna("") if name in rows else ""
    rows["step"] = rows["step"].fillna(-1).astype(int) if "step" in rows else -1
    for name in ("seed", "sample", "calls", "failures", "tokens_in", "tokens_out"):
        rows[name] = rows[name].fillna(0).astype(int)

    columns = [name for name in _COLUMNS if name in rows]
    return rows[columns].assign(
        role=rows["method"].map(find_role), backend=describe_backend(params)
    )


def find_role(method: str) -> str:
    """Find the role of a method, one of `results_table.ROLES`, which decides how figures show it.

    Args:
        method: Name of a method, or of a workflow in the split BY_WORKFLOW.

    Returns:
        "paper" for ARC's variants, "router" for other methods that choose for each question, "constant" for the rest,
        and "oracle".
    """
    if method == "oracle":
        return "oracle"
    if method in _CONSTANTS or method not in {*UNTRAINED, *NAMED}:
        is_trained = method.removesuffix(NO_SFT).removesuffix(DPO) in NAMED
        return "paper" if is_trained else "constant"
    return "paper" if method.startswith("arc") else "router"


def make_test_rows(results: AgentConfigurationResults, params: Params) -> pd.DataFrame:
    """Make the rows of the split TEST: every method, and the oracle.

    Args:
        results: What `experiment.run` returned.
        params: Say which model the agents are.

    Returns:
        Rows with style: LARGER where the agents are larger than those of the lesson, otherwise OWN where the policy
        learned from the kind of question that it is tested on, or from no kind in particular, and OTHER elsewhere.
    """
    settings = params.configuration
    tests = results.tests

    # Kind that a policy learned from (`only`), and style
    only = tests["only"].fillna("") if "only" in tests else pd.Series("", index=tests.index)
    is_own = (only == "") | (only == tests["group"])
    style = np.where(tests["model"] != settings.model, LARGER, np.where(is_own, OWN, OTHER))
    tests = tests.assign(style=style, only=only)

    # The oracle takes, afterwards, the best of all that was tried or chosen on the first sample.
    tried_on_tests = results.tried[results.tried["split"] == "test"]
    is_scored = (tests["style"] == OWN) & tests["reward"].notna()
    oracle = baselines.select_oracle(tried_on_tests, tests[is_scored])
    oracle = oracle.assign(method="oracle", style=OWN, seed=0)
    rows = pd.concat([tests, oracle], ignore_index=True)
    return rows.assign(split=TEST, seed=rows["seed"].fillna(0).astype(int))


def make_workflow_rows(tried: pd.DataFrame) -> pd.DataFrame:
    """Make the rows of the split BY_WORKFLOW: the best configuration of each workflow.

    Args:
        tried: The table of `AgentConfigurationResults`, with every configuration that was tried.

    Returns:
        Test rows of the configuration with the best mean reward on training questions, among those of the workflow in
        the declared set; `method` is the workflow.
    """
    declared = tried[tried["set"].isin([GRID, SAMPLED])]
    tables = []
    for _, workflow_rows in declared.groupby("workflow", sort=False):
        # Chosen on training questions, so that the test rows are not the best of many by chance.
        tables.append(baselines.select_constant(workflow_rows))
    rows = pd.concat(tables, ignore_index=True)
    return rows.assign(method=rows["workflow"], split=BY_WORKFLOW, style="", seed=0)


def make_training_rows(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Make the rows of the split TRAIN: means over the episodes of each update (step) and kind.

    Args:
        rollouts: A row for each training episode.
    """
    return _average_episodes(rollouts, ["method", "seed", "only", "step"]).assign(split=TRAIN)


def make_share_rows(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Make the rows of the split SHARES: how often ARC chose each workflow in the course of its training.

    Args:
        rollouts: A row for each training episode.

    Returns:
        A row for each of NUM_PARTS equal parts of a training (step) and workflow: the number of episodes that had the
        workflow (calls), and their means.
    """
    arc = rollouts[rollouts["method"] == ARC.name]
    num_updates = arc["step"].max() + 1
    # Equal parts of the training, 0 to NUM_PARTS - 1.
    by_part = arc.assign(step=arc["step"] * NUM_PARTS // num_updates)
    shares = _average_episodes(by_part, ["method", "seed", "only", "step", "workflow"])
    return shares.assign(split=SHARES)


def _average_episodes(rollouts: pd.DataFrame, group_columns: list[str]) -> pd.DataFrame:
    """Average the episodes of each group.

    Args:
        rollouts: A row for each training episode.
        group_columns: Columns whose values define a group; `only` and `step` are among them.

    Returns:
        A row for each group, with the means of _TRAIN_COLUMNS and the number of episodes (calls).
    """
    grouped = rollouts.groupby(group_columns, sort=False)
    means = grouped[_TRAIN_COLUMNS].mean().reset_index()
    means["calls"] = grouped.size().to_numpy()
    # The results table holds tokens as whole numbers.
    means["tokens_out"] = means["tokens_out"].round().astype(int)
    return means.assign(style="", group=means["only"], item=means["step"].astype(str), prompt="")


def make_label_rows(tried: pd.DataFrame) -> pd.DataFrame:
    """Make the rows of the split LABELS: which workflow, tools and budget are best for each training question.

    Args:
        tried: The table of `AgentConfigurationResults`, with every configuration that was tried.

    Returns:
        A row for each question, see `embeddings.label_questions`; step is its number among those of its kind.
    """
    sampled = tried[(tried["split"] == "train") & (tried["set"] == SAMPLED)]
    best_parts = embeddings.label_questions(sampled)
    return pd.DataFrame(
        {
            "split": LABELS,
            "method": LABELS,
            "style": "",
            "seed": 0,
            "group": best_parts["group"],
            "step": best_parts.groupby("group").cumcount(),
            "workflow": best_parts["workflow"],
            "best_tools": best_parts["tools"],
            "best_budget": best_parts["budget"],
            "item": best_parts.index.astype(str),
        }
    )


def read_labels(rows: pd.DataFrame) -> pd.DataFrame:
    """Read from the results table which workflow, tools and budget are best for each training question.

    Args:
        rows: Rows of `make_rows`, which have a number (step) in place of the question.

    Returns:
        A row for each question, as of `embeddings.label_questions`: prompt, group (the kind), steps (of its solution),
        workflow, tools and budget.
    """
    labels = rows[rows["split"] == LABELS]
    prompts = []
    steps = []
    for kind, number in zip(labels["group"], labels["step"], strict=True):
        question = questions(kind, "train", int(labels["step"].max()) + 1)[number]
        prompts.append(question.prompt)
        steps.append(float(len(question.worked_solution.split(" ; "))))
    return pd.DataFrame(
        {
            "prompt": prompts,
            "group": labels["group"].to_numpy(),
            "steps": steps,
            "workflow": labels["workflow"].to_numpy(),
            "tools": labels["best_tools"].to_numpy(),
            "budget": labels["best_budget"].to_numpy(),
        }
    )


def count_replies(rows: pd.DataFrame, params: Params) -> pd.DataFrame:
    """Count how many turns of agents, and how many choices of prompted policies, gave no answer.

    A turn that a budget cut off is what its configuration came to, and no defect of the model: only those that the
    model's own limit cut count as cut off.

    Args:
        rows: The results table.
        params: Says which models are the agents and which one is prompted.

    Returns:
        See `lib.llm.reply_shares.count_replies`; keys are method and style.
    """
    settings, models = params.configuration, params.llm.models
    rows = rows[rows["split"] == TEST]
    lost_turns = _read_count(rows, "lost_calls")
    agents = np.where(rows["style"] == LARGER, settings.larger, settings.model)
    turns = rows[["method", "style"]].assign(
        model=agents,
        backend=[models[name].backend for name in agents],
        calls=_read_count(rows, "turns"),
        failed=lost_turns,
        truncated=_read_count(rows, "cut_by_model"),
        unusable=_read_count(rows, "failures") - lost_turns,
    )

    # A prompted policy is asked once for each question; `failed` says where a fallback stands in for its choice.
    prompted = rows[rows["method"].isin(PROMPTED) & (rows["style"] == OWN)]
    choices = pd.DataFrame(
        {
            "method": prompted["method"],
            "style": prompted["style"],
            "model": settings.prompted,
            "backend": models[settings.prompted].backend,
            "calls": 1,
            "failed": _read_count(prompted, "lost_choice"),
            "fallback": _read_count(prompted, "failed"),
        }
    )
    calls = pd.concat([turns, choices], ignore_index=True)
    return reply_shares.count_replies(calls, keys=["method", "style"])


def _read_count(rows: pd.DataFrame, column: str) -> pd.Series:
    """Read a column of counts as whole numbers; 0 where a method has nothing to count."""
    if column not in rows:
        return pd.Series(0, index=rows.index)
    return rows[column].fillna(0).astype(int)


def drop_lost_questions(rows: pd.DataFrame) -> pd.DataFrame:
    """Drop the test questions of which an answer was lost, so that all methods answer the same ones.

    To be called after `count_replies`, which counts them.

    Args:
        rows: The results table.

    Returns:
        The remaining rows.
    """
    is_test = rows["split"] == TEST
    lost = set(rows.loc[is_test & rows["reward"].isna(), "item"])
    return rows[~(is_test & rows["item"].isin(lost))].reset_index(drop=True)


def list_idle_atoms(rows: pd.DataFrame) -> list[str]:
    """Atoms that change no episode, from the rows of the split ATOMS."""
    atoms = rows[rows["split"] == ATOMS].rename(columns={"style": "atom", "atoms": "_"})
    return atom_effects.list_idle_atoms(atoms)


# What workflows are worth (ARC, Figure 12) ----------------------------------------------------------


def compare_workflows(rows: pd.DataFrame) -> pd.DataFrame:
    """Estimate how far the best workflow of each kind of question is ahead of every other one, in accuracy.

    The best is selected by the same numbers, so its leads are too large on average.

    Args:
        rows: Rows of the split BY_WORKFLOW.

    Returns:
        Leads (best minus other) indexed by group (the kind), best and other, the smallest lead of a kind first.
    """
    leads = {}
    for kind, kind_rows in rows.groupby("group", sort=False):
        # Of equal workflows the first in the paper's order is the best. Rounding undoes errors of summation.
        accuracy = kind_rows.groupby("method")["correct"].mean().round(12)
        accuracy = accuracy.reindex([name for name in WORKFLOWS if name in accuracy.index])
        ranked = accuracy.sort_values(ascending=False, kind="stable").index
        best = accuracy.idxmax()
        for other in ranked[1:]:
            lead = stats.paired_difference(
                kind_rows, "correct", {"method": best}, {"method": other}
            ).iloc[0]
            leads[kind, best, other] = lead
    return pd.DataFrame(leads).T.rename_axis(["group", "best", "other"])


def none_wins_everywhere(leads: pd.DataFrame) -> str:
    """Decide on the paper's claim that no workflow is best on every kind of question.

    Args:
        leads: What `compare_workflows` returned.

    Returns:
        "holds" where every workflow is significantly behind another one on some kind, with all leads tested at once
        (Holm); "does not hold" where one workflow has the highest mean on all kinds, alone; otherwise "undecided".
    """
    best_workflows = set(leads.index.get_level_values("best"))
    other_workflows = set(leads.index.get_level_values("other"))
    if len(best_workflows) == 1 and (leads["value"] > 0).all():
        return FAILS
    is_significant = stats.holm(leads) & (leads["ci_low"] > 0)
    beaten_workflows = set(leads.index[is_significant].get_level_values("other"))
    is_every_one_beaten = beaten_workflows >= best_workflows | other_workflows
    return HOLDS if is_every_one_beaten else UNDECIDED


# How choices adapt (ARC, table 2) -------------------------------------------------------------------


def count_unique(workflows: np.ndarray) -> float:
    """Count the different workflows among the choices for n questions, (n,)."""
    return float(len(np.unique(workflows)))


def compute_entropy(workflows: np.ndarray) -> float:
    """Compute the entropy in bits of how often each workflow was chosen, from the choices for n questions, (n,)."""
    shares = np.unique(workflows, return_counts=True)[1] / len(workflows)
    return float(-(shares * np.log2(shares)).sum())


def compute_gini(workflows: np.ndarray) -> float:
    """Compute how unevenly workflows were chosen, as a Gini coefficient.

    Args:
        workflows: (n,) the workflow that was chosen for each question.

    Returns:
        0 where all workflows in use were chosen equally often, towards 1 where one was chosen nearly always.
    """
    _, counts = np.unique(workflows, return_counts=True)
    shares = np.sort(counts / len(workflows))  # in rising order, sum 1
    num_workflows = len(shares)
    # G = sum_i (2 i - n - 1) x_i / n, with ranks i from 1.
    rank = np.arange(1, num_workflows + 1)
    return float((2 * rank - num_workflows - 1) @ shares / num_workflows)


def measure_adaptation(rows: pd.DataFrame) -> pd.DataFrame:
    """Measure how much the choice of a workflow varies between questions (ARC, table 2).

    Args:
        rows: Rows of `make_rows`.

    Returns:
        A row for each method, seed and group (the kind of question): workflows (how many different ones are chosen),
        entropy (in bits) and gini.
    """
    tests = rows[(rows["split"] == TEST) & (rows["style"] == OWN)]
    measures = []
    for (method, seed, kind), policy_rows in tests.groupby(["method", "seed", "group"], sort=False):
        workflows = policy_rows["workflow"].to_numpy()
        measures.append(
            {
                "method": method,
                "seed": seed,
                "group": kind,
                "workflows": count_unique(workflows),
                "entropy": compute_entropy(workflows),
                "gini": compute_gini(workflows),
            }
        )
    columns = ["method", "seed", "group", "workflows", "entropy", "gini"]
    return pd.DataFrame(measures, columns=columns)
