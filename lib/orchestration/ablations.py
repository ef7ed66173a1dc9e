"""Ablations of policy orchestration: memory (Table 5), and the rules of the simulated student.

How far to look ahead (Figure 6) is a question of lesson 02. How the rules were chosen is shown in the appendix of
lesson 01 (`lib.policy_zoo.simulator_calibration`).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from lib.config import EducationSettings, Params
from lib.orchestration import experiment
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.methods import NAMES_OF_VARIANTS
from lib.policy_zoo import evaluate, simulator_calibration, train
from lib.policy_zoo.evaluate import Act
from lib.policy_zoo.recipes import OBJECTIVES
from lib.policy_zoo.zoo_folder import ensure_zoo
from lib.stats.ablation_comparison import Comparison, Measure

UTILITY = Measure("utility", "mean of the objectives")
LENGTH = Measure("length", "steps", "lower")
DOLLARS = Measure("cost_usd", "$ per episode", "lower")
# Components that prompts leave out (PO, Table 5).
MEMORY_VARIANTS = ((), ("mem_s",), ("mem_l",), ("mem_s", "mem_l"))
# Policies that meet students of other rules: each trained for one objective (SO), for all three (MO-S), or at random.
POLICIES = ("SO-d1", "SO-d2", "SO-d3", "MO-S", "random")
UNCHANGED = "as it is"
# Settings of the simulated student that the paper leaves open, and the values that each of them might have.
RULES: Mapping[str, Sequence[Any]] = dict(simulator_calibration.SWITCHES) | {
    "steps_per_level": (1, 2, 3),
    "warmup": ("keep", "measure", "ncc"),
    "initial": (0.2, 0.4),
    "consecutive": (2, 3),
}


def compare_memory(
    params: Params, domain: str, zoo: str | Path | None = None, **folders: str | Path
) -> Comparison:
    """Let KO, TO and RO decide without short-term memory, without the summary, and without both, and compare (Table 5).

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        params: All settings; `ablations.model` is asked.
        domain: education or minigrid.
        zoo: Folder of the trained policies; None for those of lesson 01, which are trained where they are missing.
        folders: Further folders of `experiment.run_prompted`.

    Returns:
        Episodes of each system and memory, to be compared with the system that has all of it.
    """
    zoo = ensure_zoo(params, [domain], zoo)  # with all seeds, of which rooms use some
    model = params.ablations.model
    if domain == "minigrid":  # rooms take longest of all
        num_seeds = min(params.zoo.seeds, params.ablations.room_seeds)
        zoo_settings = params.zoo.model_copy(update={"seeds": num_seeds})
        params = params.model_copy(update={"zoo": zoo_settings})
    episodes, _ = experiment.run_prompted(
        params, [domain], [model], zoo, without=MEMORY_VARIANTS, label="memory", **folders
    )

    # One system after another, the whole one first.
    names = NAMES_OF_VARIANTS
    baselines = {}
    for system in SYSTEMS:
        for components in MEMORY_VARIANTS[1:]:
            baselines[f"{system}{names[components]}"] = system
    order = [f"{system}{names[components]}" for system in SYSTEMS for components in MEMORY_VARIANTS]
    variants = episodes["method"].str.replace(f" {model}", "", regex=False)
    frame = episodes.assign(
        variant=pd.Categorical(variants, order), unit=episodes["item"], utility=episodes["reward"]
    )
    frame = frame.sort_values("variant", kind="stable", ignore_index=True)
    frame["variant"] = frame["variant"].astype(str)

    objectives = [
        Measure(column, name)
        for column, name in zip(("d1", "d2", "d3"), OBJECTIVES[domain], strict=True)
    ]
    return Comparison(
        f"memory_{domain}",
        f"memory in {domain}",
        frame,
        baselines,
        (UTILITY, *objectives, LENGTH, DOLLARS),
        params.llm.describe_backend([model]),
    )


# The student's rules ------------------------------------------------------------------------------


def compare_rules(params: Params, zoo: str | Path | None = None) -> dict[str, Comparison]:
    """Let trained policies teach students of other rules than they were trained with, and compare utility and length.

    The simulated student follows rules that the paper leaves partly open. One of them is changed at a time, also how
    hard questions are where answers were recorded (`education.answers`).

    Args:
        params: All settings.
        zoo: Folder of the trained policies; None for those of lesson 01, which are trained where they are missing.

    Returns:
        By policy, a comparison with a variant for each changed rule.
    """
    zoo = ensure_zoo(params, ["education"], zoo)
    trained = train.load_zoo("education", zoo)
    actors = evaluate.make_actors({name: trained[name] for name in POLICIES if name in trained})
    actors["random"] = evaluate.make_baselines("education", params.zoo.seeds)["random"]

    changes_by_variant = list_rule_changes(params.education)
    tables = [
        play_students(params, changes, actors).assign(variant=variant)
        for variant, changes in ({UNCHANGED: {}} | changes_by_variant).items()
    ]
    frame = pd.concat(tables, ignore_index=True)
    return {
        name: Comparison(
            f"education_switches.{name}",
            f"the student's rules, for {name}",
            frame[frame["method"] == name],
            dict.fromkeys(changes_by_variant, UNCHANGED),
            (LENGTH, UTILITY),
            "policy",
        )
        for name in POLICIES
    }


def list_rule_changes(education: EducationSettings) -> dict[str, dict[str, Any]]:
    """List all ways to change one rule of the simulated student, by a name in words.

    A rule is a setting of `education` that the paper leaves open, such as `warmup`: what the questions before an
    episode do to mastery.

    Args:
        education: The settings in force, from which each change differs.

    Returns:
        By the rule and its other value, such as "first questions: may raise mastery", the settings to change.
    """
    changes_by_name = {}
    for setting, values in RULES.items():
        for value in values:
            if getattr(education, setting) != value:
                name = simulator_calibration.describe_rule(setting, value)
                changes_by_name[name] = {setting: value}
    # How hard a question is comes from its label, or is estimated ("calibrated") from a file of recorded answers.
    # Without that file there are labels only, and nothing to change.
    if education.answers:
        difficulty = "label" if education.difficulty == "calibrated" else "calibrated"
        name = simulator_calibration.describe_rule("difficulty", difficulty)
        changes_by_name[name] = {"difficulty": difficulty}
    return changes_by_name


def play_students(
    params: Params, changes: Mapping[str, Any], actors: Mapping[str, Sequence[Act]]
) -> pd.DataFrame:
    """Let policies teach the same students under changed rules, and return a row per policy, seed and student.

    Args:
        params: All settings; `ablations.students` is the number of students.
        changes: Settings of the section `education` that differ, by name.
        actors: Actors by name, the policy of each seed.

    Returns:
        Rows with policy (`method`), `seed`, `unit` (the student), `length` in steps and `utility`.
    """
    education = EducationSettings(**params.education.model_dump() | dict(changes))
    zoo_settings = params.zoo.model_copy(update={"episodes": params.ablations.students})
    changed = params.model_copy(update={"education": education, "zoo": zoo_settings})
    steps = evaluate.evaluate(changed, actors, "education", education.topic)
    episodes = evaluate.summarize_episodes(steps, "education")
    utility = episodes[evaluate.front_columns("education")].mean(axis=1)
    # Every seed has students of its own.
    unit = episodes["seed"].astype(str) + "/" + episodes["episode"].astype(str)
    return episodes.assign(unit=unit, utility=utility)
