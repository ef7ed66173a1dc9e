"""The study of lesson 07 as rows of a record: everybody on the same test questions, and what was sampled.

Styles of the record `configuration`: `exam`, everybody under the agents' own model; `larger`, ARC's choices under the
larger one; `alone`, ARC trained on one kind of question; `sampled`, configurations that nobody chose, by
workflow; `best`, of each workflow the one that was paid best on training questions. What
is trained, and random choices, have one run per seed; what is searched or prompted has one.
"""

from dataclasses import replace

import numpy as np
import pandas as pd

from lib import stats
from lib.agent_configuration import agent_system, baselines
from lib.agent_configuration.action_space import WORKFLOWS
from lib.agent_configuration.experiment import AgentConfigurationResults
from lib.agent_configuration.search import BASE
from lib.agent_configuration.variants import ALONE, NAMED, TESTED, VARIANTS
from lib.config import Params
from lib.experiment import seeds
from lib.llm import reply_shares
from lib.stats.ranges import NONNEGATIVE, UNIT
from lib.stats.verdicts import FAILS, HOLDS, UNDECIDED

SYSTEM = "configuration"  # of the record
PROMPTED = ("zero_shot", "few_shot")
_ROLES = dict.fromkeys(
    ("arc", "arc_no_sft", "arc_dpo", "grpo", *(variant.name for variant in ALONE)), "paper"
)
_ROLES |= dict.fromkeys(("bandit", "episodes", *PROMPTED), "router") | {"oracle": "oracle"}


def label(variant: str, params: Params) -> str:
    """How a variant is called; a prompted policy that is a program is called a stand-in."""
    name = TESTED[variant] if variant in TESTED else NAMED[variant].label
    scripted = (
        variant in PROMPTED
        and params.llm.models[params.configuration.prompted].backend == "scripted"
    )
    return f"{name} (scripted stand-in)" if scripted else name


def backend(params: Params) -> str:
    """Whose decisions the lesson's metrics rest on."""
    return params.llm.describe_backend([params.configuration.model, params.configuration.larger])


def stand_in(params: Params) -> str:
    """For captions: that the agents are scripted, empty where they are models."""
    return " (agents: scripted stand-in)" if backend(params) == "scripted" else ""


def rows(results: AgentConfigurationResults, params: Params) -> pd.DataFrame:
    """All rows of the results table, see `results_table.write_results`; own columns: those of `agent_system.table`,
    mille (dollars per 1,000 questions) and error."""
    tests, larger = results.tests, params.configuration.larger
    parts = {
        "exam": everybody(results, params),
        "alone": tests[tests["method"].isin([variant.name for variant in ALONE])],
        "larger": tests[(tests["method"] == "arc") & (tests["model"] == larger)],
        "sampled": sampled(results),
        "best": best_of_each(results),
    }
    every = pd.concat(
        [part.assign(style=style) for style, part in parts.items()], ignore_index=True
    )
    arms = {
        variant: variant if variant in WORKFLOWS else label(variant, params)
        for variant in every["method"].unique()
    }
    return every.assign(
        method=every["method"].map(arms),
        role=every["method"].map(_ROLES).fillna("constant"),
        split="test",
        item=every["group"].astype(str) + "/" + every["prompt"].astype(str),
        mille=1e3 * every["cost_usd"],
        backend=backend(params),
        error=every["error"].fillna(""),
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
    lost_turns = _read_count(rows, "lost_calls")
    agents = np.where(rows["style"] == "larger", settings.larger, settings.model)
    turns = rows[["method", "style"]].assign(
        model=agents,
        backend=[models[name].backend for name in agents],
        calls=rows["turns"],
        failed=lost_turns,
        truncated=_read_count(rows, "cut_by_model"),
        unusable=rows["failures"] - lost_turns,
    )

    # A prompted policy is asked once for each question; `failed` says where a fallback stands in for its choice.
    labels = [label(variant, params) for variant in PROMPTED]
    prompted = rows[rows["method"].isin(labels) & (rows["style"] == "exam")]
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
    """A column of counts; 0 where earlier runs did not count it, and for methods that have nothing to count."""
    if column not in rows:
        return pd.Series(0, index=rows.index)
    return rows[column].fillna(0).astype(int)


def drop_lost_questions(
    results: AgentConfigurationResults, rows: pd.DataFrame
) -> tuple[AgentConfigurationResults, pd.DataFrame]:
    """Leave out questions of which the infrastructure lost an answer, so that everybody answers the same ones.

    A provider's filter loses the same question in every run. To be called after `count_replies`, which counts them.

    Args:
        results: What the study left.
        rows: The results table.

    Returns:
        Both without questions that have no reward (nan) in one of their tables.
    """
    searched, tests, scored_rows = agent_system.drop_lost_questions(
        results.searched, results.tests, rows
    )
    return replace(results, searched=searched, tests=tests), scored_rows


def everybody(results: AgentConfigurationResults, params: Params) -> pd.DataFrame:
    """Test rows of all of `variants.TESTED` under the agents' model, with variant and seed. The best constant, and the
    best of each kind, are chosen on training questions; the oracle takes, afterwards, the best of all that anybody
    tried."""
    tried, tests = (
        results.searched,
        results.tests[results.tests["model"] == params.configuration.model],
    )
    base = (
        (tried["digest"] == BASE.digest) & (tried["set"] == "sampled") & (tried["split"] == "test")
    )
    climbed = tests[tests["method"] == "greedy"]
    found = {
        variant: part for variant, part in tests.groupby("method", sort=False) if variant in TESTED
    }
    found |= {
        "base": tried[base],
        "grid": baselines.constant(tried, "grid"),
        "by_kind": baselines.by_kind(tried),
        "best_constant": baselines.best_constant(
            tried, climbed, float(results.greedy["reward"].iloc[-1])
        ),
    }
    found["oracle"] = baselines.oracle(tried[tried["split"] == "test"], *found.values()).assign(
        seed=0
    )
    parts = [found[variant].assign(method=variant) for variant in TESTED if variant in found]
    every = pd.concat(parts, ignore_index=True)
    return every.assign(seed=every["seed"].fillna(0).astype(int))


def sampled(results: AgentConfigurationResults, split: str = "test") -> pd.DataFrame:
    """Rows of configurations that were sampled without learning: variant is the workflow, seed the configuration."""
    tried = results.searched
    tried = tried[(tried["set"] == "sampled") & (tried["split"] == split)]
    return tried.assign(method=tried["workflow"], seed=tried["number"])


def best_of_each(results: AgentConfigurationResults) -> pd.DataFrame:
    """Test rows, by workflow, of its configuration that was paid best on training questions."""
    found = [
        baselines.constant(part) for _, part in results.searched.groupby("workflow", sort=False)
    ]
    every = pd.concat(found, ignore_index=True)
    return every.assign(method=every["workflow"], seed=0)


def episodes(results: AgentConfigurationResults) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Training episodes of what was trained on all kinds, and what every update left: with variant (its label), and how
    many episodes were played until then. Updates of group-relative training are larger, hence fewer."""
    labels = {variant.name: variant.label for variant in VARIANTS}
    key = ["method", "seed", "step"]
    played, learned = (
        part[part["method"].isin(list(labels))] for part in (results.rollouts, results.learning)
    )
    until = played.groupby(key).size().groupby(level=key[:2]).cumsum().rename("episodes")
    return tuple(part.join(until, on=key).replace({"method": labels}) for part in (played, learned))


# What workflows are worth ---------------------------------------------------------------------------


def leads(found: pd.DataFrame) -> pd.DataFrame:
    """How far the best workflow of each kind of question (highest mean) is ahead of each other one, in accuracy, by
    group (the kind), best and other. found: rows of the record with one configuration a workflow. Best is picked by the
    numbers that are shown, so a lead is told with its interval, and leads are not corrected for how many are looked
    at."""
    out = {}
    for kind, part in found.groupby("group", sort=False):
        means = (
            part.groupby("method")["correct"]
            .mean()
            .round(12)
            .reindex([w for w in WORKFLOWS if w in set(part["method"])])
        )
        for other in means.sort_values(ascending=False, kind="stable").index[1:]:
            pair = {"method": means.idxmax()}, {"method": other}
            difference = stats.paired_difference(part, "correct", *pair)
            out[kind, means.idxmax(), other] = difference.iloc[0]
    return pd.DataFrame(out).T.rename_axis(["group", "best", "other"])


def none_wins_everywhere(found: pd.DataFrame) -> str:
    """The verdict on the paper's claim that no workflow is best everywhere.

    Args:
        found: `leads`, each of a winner that was picked on the same questions.

    Returns:
        "holds" where every workflow is significantly behind another one on some kind, with all leads tested at once
        (Holm); "does not hold" where one workflow has the highest mean on all kinds, alone; otherwise "undecided".
    """
    best, other = (set(found.index.get_level_values(level)) for level in ("best", "other"))
    if len(best) == 1 and (found["value"] > 0).all():
        return FAILS
    is_behind = stats.holm(found) & (found["ci_low"] > 0)
    beaten = set(found.index[is_behind].get_level_values("other"))
    return UNDECIDED if (best | other) - beaten else HOLDS


# How choices adapt (ARC, table 2) -------------------------------------------------------------------


def unique(choices: np.ndarray) -> float:
    """How many workflows there are; choices: (n, 2) of numbers of workflow and kind, here and below."""
    return float(len(np.unique(choices[:, 0])))


def entropy(choices: np.ndarray) -> float:
    """Of the workflows' shares, in bits."""
    shares = np.unique(choices[:, 0], return_counts=True)[1] / len(choices)
    return float(-(shares * np.log2(shares)).sum())


def gini(choices: np.ndarray) -> float:
    """Gini coefficient of the shares of those used: 0 where all are used alike."""
    shares = np.sort(np.unique(choices[:, 0], return_counts=True)[1] / len(choices))
    n = len(shares)
    return float((2 * np.arange(1, n + 1) - n - 1) @ shares / n)


def told(choices: np.ndarray) -> float:
    """Bits that the kind of question tells of the workflow: entropy over all less mean entropy within a kind. Diversity
    alone is no merit, random choices have most of it; this is what adapts."""
    inside = [
        (choices[:, 1] == kind).mean() * entropy(choices[choices[:, 1] == kind])
        for kind in set(choices[:, 1])
    ]
    return max(0.0, entropy(choices) - sum(inside))


def by_chance(found: pd.DataFrame, deals: int = 50) -> pd.Series:
    """What `told` would be, by variant, if kinds had nothing to do with choices: kinds dealt out anew, over seeds."""
    out = {}
    for variant, part in found.groupby("method", sort=False):
        rng = seeds.rng("configuration", "by chance", variant)
        runs = [run[["choice", "group"]].to_numpy(float) for _, run in part.groupby("seed")]
        shuffled = [
            np.column_stack([run[:, 0], rng.permutation(run[:, 1])])
            for run in runs
            for _ in range(deals)
        ]
        out[variant] = float(np.mean([told(each) for each in shuffled]))
    return pd.Series(out, name="by chance")


def adapts(found: pd.DataFrame) -> pd.DataFrame:
    """Table 2 of ARC by variant, intervals over seeds: workflows, entropy, Gini, what the kind tells, and that by
    chance. found: exam rows of the record."""
    numbered = found.assign(
        choice=pd.factorize(found["workflow"])[0], group=pd.factorize(found["group"])[0]
    )
    columns = {
        "workflows": unique,
        "entropy, bits": entropy,
        "Gini": gini,
        "told by the kind, bits": told,
    }
    parts = {
        name: stats.statistic(
            numbered, ["choice", "group"], each, "method", UNIT if name == "Gini" else NONNEGATIVE
        )
        for name, each in columns.items()
    }
    for part in (
        parts.values()
    ):  # who has one run has no interval: resampled questions have fewer workflows
        part.loc[part["num_runs"] == 1, ["ci_low", "ci_high"]] = np.nan
    return pd.DataFrame({name: stats.intervals(part) for name, part in parts.items()}).join(
        by_chance(numbered)
    )
