"""Jobs without training: the declared set, greedy search, prompted policies and prompt optimizers, random choices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from lib.agent_configuration import (
    action_space,
    atom_effects,
    prompt_optimizers,
    prompted_baseline,
    search,
)
from lib.agent_configuration.action_space import WORKFLOWS, Configuration
from lib.agent_configuration.agent_system import ConfiguredQuestion, read_configurations
from lib.agent_configuration.cost_plan import GREEDY_ROUNDS
from lib.agent_configuration.prompt_optimizers import CONVERSATION, PromptedSystem, converse
from lib.agent_configuration.prompted_baseline import Example
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.workbench import TEST_DRAW, ConfigurationWorkbench
from lib.experiment import artifacts, seeds
from lib.experiment.harness import JobRun
from lib.tasks import Item

NUM_EXAMPLES = 10  # configurations that are tried for the examples of a prompt
CONFIGURATIONS_AT_ONCE = 7  # of the declared set, that are tried side by side
GREEDY_NUMBER = 10_000  # of the first end of a greedy search, among the numbers of the declared set
# Sets of configurations.
GRID, SAMPLED, GREEDY = "grid", "sampled", "greedy"
# Splits of the table `tried`, and the sample of each: what is chosen on one sample is scored on the other.
SPLITS = {
    "train": ("train", 0),
    "dev": ("dev", TEST_DRAW),
    "dev_again": ("dev", TEST_DRAW + 1),
    "test": ("test", TEST_DRAW),
    "again": ("test", TEST_DRAW + 1),
}


# The declared set ----------------------------------------------------------------------------------


def declare_configurations(
    bench: ConfigurationWorkbench,
) -> list[tuple[str, Configuration]]:
    """Declare the configurations that are tried on every question: the grid, the base, and sampled ones.

    Returns:
        (set, configuration) of each. They are fixed before any training.
    """
    settings = bench.settings
    declared = [(GRID, configuration) for configuration in search.grid(settings.grid)]
    sampled = [search.BASE, *search.sampled(settings.sampled, bench.atom_names())]
    return declared + [(SAMPLED, configuration) for configuration in sampled]


def try_declared(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Try every `num_parts`-th declared configuration on all questions; write the table `tried`."""
    part, num_parts = run.settings["part"], run.settings["num_parts"]
    numbered = list(enumerate(declare_configurations(bench)))[part::num_parts]
    tables = []
    for first in range(0, len(numbered), CONFIGURATIONS_AT_ONCE):
        chunk = numbered[first : first + CONFIGURATIONS_AT_ONCE]
        tables.append(try_everywhere(bench, chunk))
        run.report_progress(min(1.0, (first + CONFIGURATIONS_AT_ONCE) / len(numbered)))
    run.write_table("tried", pd.concat(tables, ignore_index=True))


def try_everywhere(
    bench: ConfigurationWorkbench, numbered: Sequence[tuple[int, tuple[str, Configuration]]]
) -> pd.DataFrame:
    """Try configurations on training, dev and test questions, the latter two in two samples each.

    Args:
        bench: The agents.
        numbered: (number, (set, configuration)) of each.

    Returns:
        Rows as of `agent_system.table`, with split, set and number.
    """
    settings = bench.settings
    num_items = {
        "train": settings.search_items,
        "dev": settings.dev_items,
        "test": settings.test_items,
    }
    jobs = []
    labels = []
    for number, (set_name, configuration) in numbered:
        for split, (source, draw) in SPLITS.items():
            for item in bench.items(source, num_items[source]):
                jobs.append(ConfiguredQuestion(item, configuration, draw))
                labels.append({"split": split, "set": set_name, "number": number})
    played = bench.play(settings.model, jobs).drop(columns=["text"])
    return played.assign(**pd.DataFrame(labels).to_dict("list"))


# Greedy search -------------------------------------------------------------------------------------


def search_greedily(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Climb on the training questions of each kind; write the paths, and the ends tried on all questions."""
    settings = bench.settings
    ends = []
    paths = []
    for number, kind in enumerate(KINDS):
        items = bench.items("train", settings.search_items, (kind.name,))

        def score(candidates: Sequence[Configuration], items: Sequence[Item] = items) -> np.ndarray:
            return _compute_mean_rewards(bench, candidates, items)

        best, path = search.greedy(score, rounds=GREEDY_ROUNDS, atoms=bench.atom_names(kind.name))
        ends.append((GREEDY_NUMBER + number, (GREEDY, best)))
        paths.append(pd.DataFrame(path, columns=["tried", "reward"]).assign(group=kind.name))
        run.report_progress((number + 1) / (len(KINDS) + 1))
    run.write_table("greedy", pd.concat(paths, ignore_index=True))
    run.write_table("tried", try_everywhere(bench, ends))


def _compute_mean_rewards(
    bench: ConfigurationWorkbench, candidates: Sequence[Configuration], items: Sequence[Item]
) -> np.ndarray:
    """Mean reward of each candidate, (n,); a question of which an answer was lost compares no candidates."""
    jobs = [ConfiguredQuestion(item, candidate) for candidate in candidates for item in items]
    rewards = bench.play(bench.settings.model, jobs)["reward"].to_numpy()
    rewards = rewards.reshape(len(candidates), len(items))
    scored = rewards[:, ~np.isnan(rewards).any(axis=0)]
    return scored.mean(1) if scored.size else np.zeros(len(candidates))


# Policies that are prompted, or draw at random -----------------------------------------------------


def prompt_policies(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Let a language model choose a configuration for each test question, with examples and without."""
    settings = bench.settings
    items = bench.items("test", settings.test_items)
    model = bench.open_model(settings.prompted)
    tables = []
    for name, examples in (("zero_shot", []), ("few_shot", _collect_examples(bench))):
        choices = bench.loop.run(prompted_baseline.choose(model, items, examples))
        configurations = [choice.configuration for choice in choices]
        tests = bench.test(items, configurations, settings.model).assign(
            method=name,
            seed=0,
            failed=[float(choice.is_fallback) for choice in choices],
            lost_choice=[float(choice.is_lost) for choice in choices],
        )
        # The reward of another configuration says nothing about the policy whose choice was lost.
        is_lost = tests["lost_choice"] > 0
        tests[["correct", "reward"]] = tests[["correct", "reward"]].mask(is_lost)
        tables.append(tests)
    run.write_table("tests", pd.concat(tables, ignore_index=True))


def _collect_examples(bench: ConfigurationWorkbench) -> list[Example]:
    """For the few-shot prompt: of each kind's first training question the best and the worst of a part of the grid."""
    settings = bench.settings
    every_nth = max(1, settings.grid // NUM_EXAMPLES)
    candidates = search.grid(settings.grid)[::every_nth]
    examples = []
    for kind in KINDS:
        item = bench.items("train", 1, (kind.name,))[0]
        jobs = [ConfiguredQuestion(item, candidate) for candidate in candidates]
        rewards = bench.play(settings.model, jobs)["reward"].dropna()
        if len(rewards):  # none where a provider's filter stops the question
            for number in (int(rewards.idxmax()), int(rewards.idxmin())):
                reward = float(rewards[number])
                examples.append(Example(item.prompt, candidates[number], reward))
    return examples


def choose_at_random(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Test a random structure without atoms for every test question."""
    items = bench.items("test", bench.settings.test_items)
    structures = action_space.structures()
    rng = seeds.rng("configuration", "random", seed=run.seed)
    configurations = [
        Configuration(action_space.checked(structures[i].tolist()))
        for i in rng.integers(len(structures), size=len(items))
    ]
    tests = bench.test(items, configurations, bench.settings.model)
    run.write_table("tests", tests.assign(method="random", seed=run.seed, failed=0.0))


# Prompt optimizers ---------------------------------------------------------------------------------


def optimize_prompts(bench: ConfigurationWorkbench, run: JobRun) -> dict[str, Any]:
    """Optimize prompts for each kind by GEPA and by bootstrapping, and let two agents talk; test all three.

    Returns:
        The structure and the texts of each method and kind.
    """
    # imported late: gepa loads more than a second of modules that no other job needs
    from lib.agent_configuration import gepa_baseline

    settings = bench.settings
    tables = []
    candidates: dict[str, Any] = {}
    for number, kind in enumerate(KINDS):
        train_items = bench.items("train", settings.search_items, (kind.name,))
        test_items = bench.items("test", settings.test_items, (kind.name,))
        system = bench.system(settings.model)
        structure = prompt_optimizers.select_structure(system, train_items, bench.weights)
        prompted = PromptedSystem(system, structure, bench.weights)
        max_episodes = settings.episodes

        # A lab agent obeys hints of the library only, which a rule proposes; others are told what a model writes.
        reflect = None
        if bench.backend != "lab":
            model = bench.open_model(settings.prompted)
            reflect = gepa_baseline.make_reflection(model, bench.loop, seed=number)
        by_method = {
            "gepa": gepa_baseline.optimize_with_gepa(
                prompted, train_items, bench.select_atoms(kind.name), max_episodes, number, reflect
            ),
            "bootstrap": prompt_optimizers.bootstrap_demonstrations(
                prompted, train_items, max_episodes, seed=number
            ),
        }
        for method, candidate in by_method.items():
            configuration = prompted.configure(candidate)
            tests = bench.test(
                test_items, [configuration] * len(test_items), settings.model, system
            )
            tables.append(tests.assign(method=method, seed=0))
            candidates[f"{method}/{kind.name}"] = candidate
        candidates[f"structure/{kind.name}"] = WORKFLOWS[structure[0]]

        conversation = bench.system(settings.model)
        conversation.programs = dict.fromkeys(WORKFLOWS, converse)
        tests = bench.test(
            test_items, [CONVERSATION] * len(test_items), settings.model, conversation
        )
        tables.append(tests.assign(method="conversation", seed=0))
        run.report_progress((number + 1) / len(KINDS))
    run.write_table("tests", pd.concat(tables, ignore_index=True))
    return candidates


# Atoms, and the choices of trained policies ----------------------------------------------------------


def try_atoms(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Measure what each atom changes; write the table `atoms`."""
    run.write_table("atoms", atom_effects.measure_atom_effects(bench))


def try_policy_choices(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Try every choice of every trained policy on all test questions of its kind, in both samples.

    With the declared set these are what the oracle chooses from: nobody can be above it.
    """
    settings = bench.settings
    chosen: dict[str, dict[Configuration, None]] = {kind.name: {} for kind in KINDS}
    for label in run.settings["inputs"]:
        path = run.input_folder(label) / "tests.parquet"
        tests = artifacts.read_parquet(path)
        own_kind = tests[(tests["only"] == tests["group"]) & (tests["model"] == settings.model)]
        distinct = own_kind.drop_duplicates(["group", "digest"])
        for kind, configuration in zip(
            distinct["group"], read_configurations(distinct), strict=True
        ):
            chosen[kind].setdefault(configuration)

    tables = []
    for number, (kind, configurations) in enumerate(chosen.items()):
        items = bench.items("test", settings.test_items, (kind,))
        for split in ("test", "again"):
            _, draw = SPLITS[split]
            jobs = [
                ConfiguredQuestion(item, configuration, draw)
                for configuration in configurations
                for item in items
            ]
            played = bench.play(settings.model, jobs).drop(columns=["text"])
            tables.append(played.assign(split=split, set="policies", number=-1))
        run.report_progress((number + 1) / len(chosen))
    run.write_table("tried", pd.concat(tables, ignore_index=True))
