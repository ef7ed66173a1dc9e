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
_KEPT_COLUMNS = [
    "method", "seed", "split", "style", "group", "item", "sample", "step", "correct", "reward", "cost_usd", "seconds",
    "tokens_in", "tokens_out", "calls", "used", "allocated", "turns", "cut", "cut_by_model", "failures", "lost_calls",
    "workflow", "atoms", "digest", "only", "error", "failed", "lost_choice", "key", "prompt", "best_tools",
    "best_budget",
]  # fmt: skip


def label(method: str, params: Params) -> str:
    """What tables call a method; one whose choices or texts a program makes is called scripted."""
    name = label_method(method)
    models = params.llm.models
    is_scripted_choice = (
        method in PROMPTED and models[params.configuration.prompted].backend == "scripted"
    )
    is_scripted_text = method == "gepa" and models[params.configuration.model].backend == "lab"
    return f"{name} (scripted)" if is_scripted_choice or is_scripted_text else name


def describe_backend(params: Params) -> str:
    """Whose decisions the lesson's metrics rest on."""
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
    if "item" not in rows:
        rows["item"] = ""
    question = rows["group"].astype(str) + "/" + rows["prompt"].astype(str)
    rows["item"] = rows["item"].where(rows["item"].notna() & (rows["item"] != ""), question)
    words = (
        "style", "only", "error", "workflow", "atoms", "digest", "key", "prompt", "best_tools", "best_budget",
    )  # fmt: skip
    for name in words:
        rows[name] = rows[name].fillna("") if name in rows else ""
    rows["step"] = rows["step"].fillna(-1).astype(int) if "step" in rows else -1
    for name in ("seed", "sample", "calls", "failures", "tokens_in", "tokens_out"):
        rows[name] = rows[name].fillna(0).astype(int)
    kept = [name for name in _KEPT_COLUMNS if name in rows]
    return rows[kept].assign(role=rows["method"].map(find_role), backend=describe_backend(params))


def find_role(method: str) -> str:
    """The role of a method in figures."""
    if method == "oracle":
        return "oracle"
    if method in _CONSTANTS or method not in {*UNTRAINED, *NAMED}:
        is_trained = method.removesuffix(NO_SFT).removesuffix(DPO) in NAMED
        return "paper" if is_trained else "constant"
    return "paper" if method.startswith("arc") else "router"


def make_test_rows(results: AgentConfigurationResults, params: Params) -> pd.DataFrame:
    """Test rows of every method, and of the oracle."""
    settings = params.configuration
    tried, tests = results.tried, results.tests
    only = tests["only"].fillna("") if "only" in tests else pd.Series("", index=tests.index)
    is_own = (only == "") | (only == tests["group"])
    style = np.where(tests["model"] != settings.model, LARGER, np.where(is_own, OWN, OTHER))
    tests = tests.assign(style=style, only=only)

    # The oracle takes, afterwards, the best of all that was tried or chosen on the first sample.
    first_sample = tried[tried["split"] == "test"]
    own_rows = tests[tests["style"] == OWN]
    oracle = baselines.select_oracle(first_sample, own_rows[own_rows["reward"].notna()])
    oracle = oracle.assign(method="oracle", style=OWN, seed=0)
    rows = pd.concat([tests, oracle], ignore_index=True)
    return rows.assign(split=TEST, seed=rows["seed"].fillna(0).astype(int))


def make_workflow_rows(tried: pd.DataFrame) -> pd.DataFrame:
    """Test rows, for each workflow, of its configuration with the best mean reward on training questions."""
    declared = tried[tried["set"].isin([GRID, SAMPLED])]
    tables = [
        baselines.select_constant(of_workflow)
        for _, of_workflow in declared.groupby("workflow", sort=False)
    ]
    rows = pd.concat(tables, ignore_index=True)
    return rows.assign(method=rows["workflow"], split=BY_WORKFLOW, style="", seed=0)


def make_training_rows(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Means over the episodes of each update and kind, and how many episodes were played (calls)."""
    return _average_episodes(rollouts, ["method", "seed", "only", "step"]).assign(split=TRAIN)


def make_share_rows(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Of each part of ARC's training how many episodes had a workflow (calls), and their means."""
    arc = rollouts[rollouts["method"] == ARC.name]
    num_steps = arc["step"].max() + 1
    parts = arc.assign(step=arc["step"] * NUM_PARTS // num_steps)
    shares = _average_episodes(parts, ["method", "seed", "only", "step", "workflow"])
    return shares.assign(split=SHARES)


def _average_episodes(rollouts: pd.DataFrame, key: list[str]) -> pd.DataFrame:
    """Means of groups of episodes, and how many they are (calls)."""
    grouped = rollouts.groupby(key, sort=False)
    means = grouped[_TRAIN_COLUMNS].mean().reset_index()
    means["calls"] = grouped.size().to_numpy()
    means["tokens_out"] = means["tokens_out"].round().astype(int)
    return means.assign(style="", group=means["only"], item=means["step"].astype(str), prompt="")


def make_label_rows(tried: pd.DataFrame) -> pd.DataFrame:
    """What each training question wants, for the table of encoders; step is its number among those of its kind."""
    sampled = tried[(tried["split"] == "train") & (tried["set"] == SAMPLED)]
    wanted = embeddings.label_questions(sampled)
    return pd.DataFrame(
        {
            "split": LABELS,
            "method": LABELS,
            "style": "",
            "seed": 0,
            "group": wanted["group"],
            "step": wanted.groupby("group").cumcount(),
            "workflow": wanted["workflow"],
            "best_tools": wanted["tools"],
            "best_budget": wanted["budget"],
            "item": wanted.index.astype(str),
        }
    )


def read_labels(rows: pd.DataFrame) -> pd.DataFrame:
    """What `embeddings.label_questions` gives, from the results table, which has numbers in place of questions."""
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
    """How many turns of agents, and choices of prompted policies, gave no answer, by method and style.

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
    """A column of counts; 0 for methods that have nothing to count."""
    if column not in rows:
        return pd.Series(0, index=rows.index)
    return rows[column].fillna(0).astype(int)


def drop_lost_questions(rows: pd.DataFrame) -> pd.DataFrame:
    """Leave out test questions of which the infrastructure lost an answer, so that everybody answers the same ones.

    To be called after `count_replies`, which counts them.
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
    """How far the best workflow of each kind of question is ahead of each other one, in accuracy.

    The best is picked by the numbers that are shown, so every lead has its interval.

    Args:
        rows: Rows of the split BY_WORKFLOW.

    Returns:
        Estimates indexed by group (the kind), best and other.
    """
    leads = {}
    for kind, of_kind in rows.groupby("group", sort=False):
        means = of_kind.groupby("method")["correct"].mean().round(12)
        in_order = means.reindex([name for name in WORKFLOWS if name in means.index])
        best = in_order.idxmax()
        for other in in_order.sort_values(ascending=False, kind="stable").index[1:]:
            pair = {"method": best}, {"method": other}
            leads[kind, best, other] = stats.paired_difference(of_kind, "correct", *pair).iloc[0]
    return pd.DataFrame(leads).T.rename_axis(["group", "best", "other"])


def none_wins_everywhere(leads: pd.DataFrame) -> str:
    """The verdict on the paper's claim that no workflow is best everywhere.

    Args:
        leads: What `compare_workflows` returned.

    Returns:
        "holds" where every workflow is significantly behind another one on some kind, with all leads tested at once
        (Holm); "does not hold" where one workflow has the highest mean on all kinds, alone; otherwise "undecided".
    """
    best, other = (set(leads.index.get_level_values(level)) for level in ("best", "other"))
    if len(best) == 1 and (leads["value"] > 0).all():
        return FAILS
    is_behind = stats.holm(leads) & (leads["ci_low"] > 0)
    beaten = set(leads.index[is_behind].get_level_values("other"))
    return UNDECIDED if (best | other) - beaten else HOLDS


# How choices adapt (ARC, table 2) -------------------------------------------------------------------


def count_unique(workflows: np.ndarray) -> float:
    """How many workflows are chosen, of (n,)."""
    return float(len(np.unique(workflows)))


def compute_entropy(workflows: np.ndarray) -> float:
    """Entropy of the workflows' shares, in bits."""
    shares = np.unique(workflows, return_counts=True)[1] / len(workflows)
    return float(-(shares * np.log2(shares)).sum())


def compute_gini(workflows: np.ndarray) -> float:
    """Gini coefficient of the shares of the workflows in use: 0 where all are used alike."""
    shares = np.sort(np.unique(workflows, return_counts=True)[1] / len(workflows))
    n = len(shares)
    return float((2 * np.arange(1, n + 1) - n - 1) @ shares / n)


def measure_adaptation(rows: pd.DataFrame) -> pd.DataFrame:
    """Table 2 of ARC: workflows, entropy and Gini of what each method and seed chooses for a kind of question."""
    tests = rows[(rows["split"] == TEST) & (rows["style"] == OWN)]
    measured = []
    for (method, seed, kind), of_run in tests.groupby(["method", "seed", "group"], sort=False):
        workflows = of_run["workflow"].to_numpy()
        measured.append(
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
    return pd.DataFrame(measured, columns=columns)
