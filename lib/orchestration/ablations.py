"""Ablations of policy orchestration: memory (Table 5) and the rules of the simulated student. How far to look ahead
(Figure 6) is asked in lesson 02, where a reader decides."""

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd

from lib.config import EducationSettings, Params
from lib.orchestration import prompted_experiment, results, variants
from lib.policy_zoo import evaluate, train
from lib.policy_zoo.evaluate import Act
from lib.policy_zoo.recipes import OBJECTIVES
from lib.policy_zoo.zoo_folder import ensure_zoo
from lib.stats.ablation_comparison import Comparison, Measure

UTILITY = Measure("utility", "mean of the objectives")
LENGTH = Measure("length", "steps", "lower")
DOLLARS = Measure("cost_usd", "$ per episode", "lower")
TABLE_2 = {"SO-d1": 20.0, "SO-d2": 43.0, "SO-d3": 49.0}  # steps of an episode (PO, Table 2)
SHOWN = ("SO-d1", "SO-d2", "SO-d3", "MO-S", "random")
# Every decision on the student's rules that the paper leaves open, and what else it might have been.
SWITCHES: Mapping[str, Sequence[object]] = {
    "ncc_rule": ("exact",),
    "ncc_scope": ("set",),
    "repeats": ("everywhere", "failed_only"),
    "warmup": ("keep", "ncc"),
    "steps_per_level": (1, 3),
    "initial": (0.2,),
    "consecutive": (3,),
}
# What a policy that only ever does this would need; stands in for the policy in the search, where none is trained.
PROXY = {"SO-d1": "always challenge", "SO-d2": "always failed", "SO-d3": "always easy"}


def memory(params: Params, domain: str, zoo: str | Path | None = None, **where) -> Comparison:
    """KO, TO and RO without short-term memory, without the summary, and without both, also by objective (Table 5).

    zoo, where: of `prompted_experiment.run`.
    """
    zoo = ensure_zoo(params, [domain], zoo)  # with all seeds, of which rooms use some
    model = params.ablations.model
    groups = variants.forgetful(model)
    compared = [each for group in groups.values() for each in group]
    named = {each.name: each.name.replace(f" {model}", "") for each in compared}
    if domain == "minigrid":  # rooms take longest of all
        fewer = min(params.zoo.seeds, params.ablations.room_seeds)
        params = params.model_copy(update={"zoo": params.zoo.model_copy(update={"seeds": fewer})})
    record = prompted_experiment.run(
        params, domain, compared, zoo=zoo, label="remembering less", **where
    )
    against = {
        named[each.name]: named[group[0].name] for group in groups.values() for each in group[1:]
    }
    return Comparison(
        f"memory_{domain}",
        f"memory in {domain}",
        _episodes(record, domain, named),
        against,
        (UTILITY, *_objectives(domain), LENGTH, DOLLARS),
        params.llm.describe_backend([model]),
    )


def _objectives(domain: str) -> list[Measure]:
    return [
        Measure(c, name)
        for c, name in zip(evaluate.front_columns(domain), OBJECTIVES[domain], strict=True)
    ]


def _episodes(record: pd.DataFrame, domain: str, named: Mapping[str, str]) -> pd.DataFrame:
    """One row per episode: variant, seed, unit (seed and number), utility, length, dollars."""
    table = results.outcomes(record, domain)
    frame = table.assign(variant=table["method"].map(named), unit=_named(table))
    places = {variant: i for i, variant in enumerate(named.values())}
    return frame.sort_values(
        "variant", key=lambda names: names.map(places), kind="stable", ignore_index=True
    )


def _named(table: pd.DataFrame) -> pd.Series:
    """Names of episodes: every seed has its own."""
    return table["seed"].astype(str) + "/" + table["episode"].astype(str)


# The student's rules --------------------------------------------------------------------------------


def rules(params: Params, zoo: str | Path | None = None) -> dict[str, Comparison]:
    """The zoo's policies, trained under the rules of params.yaml, with students of other rules: one comparison per
    policy, a variant per rule. Where `education.answers` is set, difficulties calibrated from answers too.

    zoo: folder of the trained policies; None for those of lesson 01, which are trained where they are missing.
    """
    zoo = ensure_zoo(params, ["education"], zoo)
    usual = params.education
    changed = {
        f"{key} {value}": {key: value}
        for key, values in SWITCHES.items()
        for value in values
        if getattr(usual, key) != value
    }
    if usual.answers:
        other = "label" if usual.difficulty == "calibrated" else "calibrated"
        changed[f"difficulty {other}"] = {"difficulty": other}
    trained = {name: each for name, each in train.load("education", zoo).items() if name in SHOWN}
    who = evaluate.actors(trained) | {
        "random": evaluate.baselines("education", params.zoo.seeds)["random"]
    }
    parts = [
        _students(params, changes, who, variant)
        for variant, changes in ({"as it is": {}} | changed).items()
    ]
    frame = pd.concat(parts, ignore_index=True)
    return {
        name: Comparison(
            f"education_switches.{name}",
            f"the student's rules, for {name}",
            frame[frame["method"] == name],
            dict.fromkeys(changed, "as it is"),
            (LENGTH, UTILITY),
            "policy",
        )
        for name in SHOWN
    }


def _students(
    params: Params, changes: Mapping[str, object], who: Mapping[str, Sequence[Act]], variant: str
):
    """Episodes of everybody under changed rules, one row each."""
    education = EducationSettings(**params.education.model_dump() | dict(changes))
    sized = params.zoo.model_copy(update={"episodes": params.ablations.students})
    record = evaluate.evaluate(
        params.model_copy(update={"education": education, "zoo": sized}),
        who,
        "education",
        "student",
    )
    table = evaluate.episodes(record, "education")
    utility = table[evaluate.front_columns("education")].mean(axis=1)
    return table.assign(variant=variant, unit=_named(table), utility=utility)


def search(params: Params) -> pd.DataFrame:
    """How far the lengths of three constant strategies are from Table 2 of the paper under every combination of the
    rules that it leaves open: one row each, nearest first. Columns: the rules, steps of each strategy, distance (mean
    of |log of the ratio|), ours. The strategies stand in for policies, which would have to be trained anew each time;
    no orchestrator is looked at."""
    keys = ("steps_per_level", "warmup", "repeats", "ncc_rule")
    grid = product(
        (1, 2),
        ("keep", "measure", "ncc"),
        ("everywhere", "not_easy", "failed_only"),
        ("at_or_above", "exact"),
    )
    constant = evaluate.baselines("education", 1)
    who = {name: constant[proxy] for name, proxy in PROXY.items()}
    rows = []
    for values in grid:
        told = dict(zip(keys, values, strict=True))
        lengths = (
            _students(params, told, who, "")[["method", "length"]]
            .groupby("method")["length"]
            .mean()
        )
        off = np.mean([abs(np.log(lengths[name] / paper)) for name, paper in TABLE_2.items()])
        ours = all(getattr(params.education, key) == value for key, value in told.items())
        rows.append(
            told
            | {name: float(lengths[name]) for name in TABLE_2}
            | {"distance": float(off), "ours": ours}
        )
    return pd.DataFrame(rows).sort_values("distance", kind="stable", ignore_index=True)
