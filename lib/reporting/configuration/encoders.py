"""How good encoders of questions are for choosing configurations (ARC, appendix D), and what prompt atoms are worth.

What a question wants is read off the sampled configurations: the workflow, the use of tools and the first agent's
budget that are paid best on it, each averaged over everything else. One try each: the labels are noisy, and so is
every encoder's score. Scores are of one split into folds and have no interval.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib import stats
from lib.configuration import atoms as library
from lib.configuration import embeddings, encoders
from lib.configuration.atoms import Atom
from lib.configuration.questions import questions
from lib.configuration.space import TIERS
from lib.configuration.study import Results
from lib.params import Params
from lib.reporting.configuration.common import KINDS
from lib.reporting.configuration.workflows import sampled
from lib.stats import Interval
from lib.tasks import Item

FEATURES, COMMONEST = "f_q alone", "the commonest label"
UNRATED = "unrated"  # needs a model that rates
METRICS = ("ari", "classification", "complexity", "decision", "overall")


@dataclass(frozen=True)
class Labels:
    """What is to be told from questions, (n,) each. kinds: of question; tools: whether any pay; steps: of the worked
    solution; wanted: (n, 3) best workflow, tools, budget."""

    prompts: list[str]
    kinds: list[str]
    tools: list[str]
    steps: list[float]
    wanted: np.ndarray


def labels(results: Results, params: Params) -> Labels:
    """Of the questions that every sampled configuration was tried on in training."""
    rows = sampled(results, "train")
    rows = rows.assign(
        tools=np.where(rows["allocated"] > 0, "tools", "none"), budget=rows["budget1"].map(lambda tier: TIERS[tier])
    )
    best = pd.concat([_best(rows, column) for column in ("workflow", "tools", "budget")], axis=1)
    first = rows.drop_duplicates("item").set_index("item").loc[best.index]
    lengths = {item.prompt: float(len(item.reference.split(" ; "))) for item in _items(rows, params)}
    return Labels(
        first["prompt"].tolist(), first["kind"].tolist(), best["tools"].tolist(),
        [lengths[prompt] for prompt in first["prompt"]], best.to_numpy(str),
    )  # fmt: skip


def _best(rows: pd.DataFrame, column: str) -> pd.Series:
    """By question, the value of a column with the highest mean reward."""
    means = rows.pivot_table(index="item", columns=column, values="reward", aggfunc="mean", sort=False)
    return means.idxmax(axis=1).rename(column)


def _items(rows: pd.DataFrame, params: Params) -> list[Item]:
    return [
        item
        for kind in KINDS
        if kind in set(rows["kind"])
        for item in questions(kind, "train", params.configuration.search_items)
    ]


def scored(vectors: np.ndarray, told: Labels) -> dict[str, float]:
    """The four tests of appendix D and their weighted sum. Clusters are held against kind and tools, classification is
    the mean of both."""
    both = [f"{kind}, {tool}" for kind, tool in zip(told.kinds, told.tools, strict=True)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few questions: a network may not settle, a label may miss from a fold
        kinds = embeddings.classification(vectors, told.kinds)
        tools = embeddings.classification(vectors, told.tools) if len(set(told.tools)) > 1 else 1.0
        found = {
            "ari": embeddings.clustering(vectors, both), "classification": (kinds + tools) / 2,
            "complexity": embeddings.complexity(vectors, told.steps),
            "decision": embeddings.decision(vectors, told.wanted),
        }  # fmt: skip
    return found | {"overall": embeddings.overall(found)}


def commonest(told: Labels) -> dict[str, float]:
    """What who knows only how common each label is would score."""
    share = [_most(column) for column in (told.kinds, told.tools)]
    heads = np.column_stack([column == pd.Series(column).mode()[0] for column in told.wanted.T])
    found = {
        "ari": 0.0, "classification": float(np.mean(share)), "complexity": 0.0,
        "decision": float((heads.mean() + heads.all(1).mean()) / 2),
    }  # fmt: skip
    return found | {"overall": embeddings.overall(found)}


def _most(column: Sequence[str]) -> float:
    return float(pd.Series(list(column)).value_counts(normalize=True).iloc[0])


def scores(results: Results, params: Params, models: str | None = None) -> dict[str, dict[str, float]]:
    """Appendix D for the encoders of `configuration.encoders`, and for what needs none. Raises EncoderError for an
    encoder that is not here. models: folder of lab models, the repository's own by default."""
    told, out = labels(results, params), {}
    where = () if models is None else (models,)
    for name in params.configuration.encoders:
        vectors = encoders.encoder(name, *where)(told.prompts)
        out[name] = {"numbers": float(vectors.shape[1]), **scored(vectors, told)}
    features = encoders.features(told.prompts)
    out[FEATURES] = {"numbers": float(features.shape[1]), **scored(features, told)}
    return out | {COMMONEST: {"numbers": 0.0, **commonest(told)}}


def table(found: Mapping[str, Mapping[str, float]]) -> pd.DataFrame:
    """Appendix D, the best encoder first."""
    ranked = sorted(found, key=lambda name: -found[name]["overall"])
    return pd.DataFrame(
        [
            {"encoder": name, "numbers": int(found[name].get("numbers", 0))}
            | {metric: found[name][metric] for metric in METRICS}
            for name in ranked
        ]
    )


# Atoms (appendix E) ---------------------------------------------------------------------------------


def atoms_table(every: Sequence[Atom], phi: Callable[[Sequence[str]], np.ndarray]) -> pd.DataFrame:
    """Appendix E by family: diversity and specificity from the texts; what only a model could rate is left open."""
    out = []
    for family, row in library.measures(every, phi).items():
        told = {"family": family, "atoms": int(row["atoms"])}
        told |= {name: row[name] for name in ("uniqueness", "coverage", "semantic", "diversity", "specificity")}
        out.append(told | {"coherence": UNRATED, "clarity": UNRATED})
    return pd.DataFrame(out)


def configurations(results: Results) -> pd.DataFrame:
    """Sampled configurations with their workflow, names of atoms, and mean accuracy and reward over both tries of the
    test questions."""
    rows = pd.concat([sampled(results, split) for split in ("test", "again")], ignore_index=True)
    found = rows.groupby("number").agg(
        workflow=("workflow", "first"), atoms=("atoms", "first"), right=("right", "mean"), reward=("reward", "mean")
    )
    names = found["atoms"].map(lambda told: {n.strip() for n in told.replace("|", ",").split(",") if n.strip()})
    return found.assign(atoms=names)


def worth(results: Results, column: str = "reward") -> dict[str, tuple[Interval, int]]:
    """Of each atom: the mean of configurations that have it minus that of those of their workflow that have not, with
    Student's interval over the former, and how many they are. What it is compared with is taken as known."""
    found = configurations(results)
    out = {}
    for atom in sorted(set().union(*found["atoms"])) if len(found) else []:
        has = found["atoms"].map(lambda names, a=atom: a in names)
        without = found[~has].groupby("workflow")[column].mean()
        less = (found.loc[has, column] - found.loc[has, "workflow"].map(without)).dropna()
        if len(less):
            out[atom] = (stats.t_interval(less.to_numpy()), len(less))
    return out


def worth_table(results: Results) -> pd.DataFrame:
    """What each atom is worth to the agents, with minus without, most first; and how many configurations have it."""
    paid, right = worth(results), worth(results, "right")
    ranked = sorted(paid, key=lambda atom: -paid[atom][0].value)
    return pd.DataFrame(
        [
            {
                "atom": atom, "configurations": paid[atom][1],
                "reward": paid[atom][0], "accuracy": right[atom][0], "clear": paid[atom][0].excludes(0),
            }
            for atom in ranked
        ],
        columns=["atom", "configurations", "reward", "accuracy",
                 "clear"],
    )  # fmt: skip
