"""Jobs without training: the declared set, greedy search, prompted policies and prompt optimizers, random choices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from lib.agent_configuration import (
    action_space,
    atom_effects,
    baselines,
    prompt_optimizers,
    prompted_baseline,
    search,
)
from lib.agent_configuration.action_space import WORKFLOWS, Configuration
from lib.agent_configuration.agent_system import ConfiguredQuestion, read_configurations
from lib.agent_configuration.baselines import GREEDY, GRID, SAMPLED
from lib.agent_configuration.cost_plan import GREEDY_ROUNDS
from lib.agent_configuration.prompt_optimizers import (
    CONVERSATION,
    Candidate,
    PromptedSystem,
    converse,
)
from lib.agent_configuration.prompted_baseline import Example
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.workbench import TEST_DRAW, ConfigurationWorkbench
from lib.experiment import artifacts, seeds
from lib.experiment.harness import JobRun
from lib.tasks import Item

NUM_EXAMPLES = 10  # configurations that are tried for the examples of a prompt
CONFIGURATIONS_AT_ONCE = 7  # of the declared set, that are tried side by side
GREEDY_NUMBER = 10_000  # of the first end of a greedy search, among the numbers of the declared set
# Splits of the table `tried`, and the sample of each: what is chosen on one sample is scored on the other.
SPLITS = {
    "train": ("train", 0),
    "dev": ("dev", TEST_DRAW),
    "dev_again": ("dev", TEST_DRAW + 1),
    "test": ("test", TEST_DRAW),
    "again": ("test", TEST_DRAW + 1),
}


# The declared set ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class NumberedConfiguration:
    """A configuration that is tried on every question.

    Attributes:
        number: Its number in the table `tried`.
        set_name: GRID, SAMPLED or GREEDY.
        configuration: What is tried.
    """

    number: int
    set_name: str
    configuration: Configuration


def declare_configurations(bench: ConfigurationWorkbench) -> list[NumberedConfiguration]:
    """List the fixed configurations that are evaluated on every question, before any training.

    Args:
        bench: Has the settings and the library of atoms.

    Returns:
        The grid (see `search.make_grid`), the base configuration `search.BASE`, and configurations sampled at random,
        numbered in this order.
    """
    settings = bench.settings
    grid = search.make_grid(settings.grid)
    sampled = [
        search.BASE,
        *search.sample_configurations(settings.sampled, bench.list_atom_names()),
    ]
    sets = [GRID] * len(grid) + [SAMPLED] * len(sampled)
    return [
        NumberedConfiguration(number, set_name, configuration)
        for number, (set_name, configuration) in enumerate(zip(sets, grid + sampled, strict=True))
    ]


def try_declared(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Evaluate the configurations of this job on all questions, and write the table `tried`.

    Args:
        bench: Agents, questions and rewards.
        run: The job; its settings say which of the `num_parts` jobs that share the set it is (`part`).
    """
    first_number = run.settings["part"]
    num_jobs = run.settings["num_parts"]
    candidates = declare_configurations(bench)[first_number::num_jobs]
    tables = []
    for first in range(0, len(candidates), CONFIGURATIONS_AT_ONCE):
        tables.append(try_everywhere(bench, candidates[first : first + CONFIGURATIONS_AT_ONCE]))
        run.report_progress(min(1.0, (first + CONFIGURATIONS_AT_ONCE) / len(candidates)))
    run.write_table("tried", pd.concat(tables, ignore_index=True))


def try_everywhere(
    bench: ConfigurationWorkbench, candidates: Sequence[NumberedConfiguration]
) -> pd.DataFrame:
    """Try configurations on training, dev and test questions, the latter two in two samples each.

    Args:
        bench: Agents, questions and rewards.
        candidates: The configurations.

    Returns:
        Rows as of `agent_system.make_table`, with split, set and number.
    """
    settings = bench.settings
    num_items = {
        "train": settings.search_items,
        "dev": settings.dev_items,
        "test": settings.test_items,
    }

    # Every configuration on every question of every split, with the columns that say which
    configured_questions = []
    labels = []
    for candidate in candidates:
        for split, (source, draw) in SPLITS.items():
            label = {"split": split, "set": candidate.set_name, "number": candidate.number}
            for item in bench.draw_items(source, num_items[source]):
                configured_questions.append(ConfiguredQuestion(item, candidate.configuration, draw))
                labels.append(label)
    rows = bench.play(settings.model, configured_questions).drop(columns=["text"])
    return rows.assign(**pd.DataFrame(labels).to_dict("list"))


# Greedy search -------------------------------------------------------------------------------------


def search_greedily(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Search greedily for the best configuration of each kind of question, then evaluate the results on all kinds.

    Writes the tables greedy (after each step of a search the number of configurations tried and the best mean reward so
    far) and tried.

    Args:
        bench: Agents, questions and rewards.
        run: The job.
    """
    settings = bench.settings
    best_configurations = []
    paths = []
    for number, kind in enumerate(KINDS):
        # Search on training questions of this kind
        items = bench.draw_items("train", settings.search_items, (kind.name,))

        def score(candidates: Sequence[Configuration], items: Sequence[Item] = items) -> np.ndarray:
            return _compute_mean_rewards(bench, candidates, items)

        atom_names = bench.list_atom_names(kind.name)
        best, path = search.search_greedily(score, rounds=GREEDY_ROUNDS, atoms=atom_names)
        best_configurations.append(NumberedConfiguration(GREEDY_NUMBER + number, GREEDY, best))
        paths.append(pd.DataFrame(path, columns=["tried", "reward"]).assign(group=kind.name))
        run.report_progress((number + 1) / (len(KINDS) + 1))
    run.write_table("greedy", pd.concat(paths, ignore_index=True))
    run.write_table("tried", try_everywhere(bench, best_configurations))


def _compute_mean_rewards(
    bench: ConfigurationWorkbench, candidates: Sequence[Configuration], items: Sequence[Item]
) -> np.ndarray:
    """Compute the mean reward of n configurations on the same questions.

    Questions of which the infrastructure lost an answer are left out for all configurations.

    Args:
        bench: Agents and rewards.
        candidates: The n configurations.
        items: The questions.

    Returns:
        (n,) mean rewards, 0 where the infrastructure lost an answer to every question.
    """
    configured_questions = [
        ConfiguredQuestion(item, candidate) for candidate in candidates for item in items
    ]
    rows = bench.play(bench.settings.model, configured_questions)
    rewards = rows["reward"].to_numpy().reshape(len(candidates), len(items))
    has_lost_answer = np.isnan(rewards).any(axis=0)  # (items,)
    scored = rewards[:, ~has_lost_answer]
    if not scored.size:
        return np.zeros(len(candidates))
    return scored.mean(1)


# Policies that are prompted, or draw at random -----------------------------------------------------


def prompt_policies(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Let a language model choose a configuration for each test question, with examples and without.

    Args:
        bench: Agents, questions and rewards.
        run: The job, which gets the table tests.
    """
    settings = bench.settings
    items = bench.draw_items("test", settings.test_items)
    model = bench.open_model(settings.prompted)
    examples_by_method = {"zero_shot": [], "few_shot": _collect_examples(bench)}
    tables = []
    for method, examples in examples_by_method.items():
        choices = bench.loop.run(prompted_baseline.choose_configurations(model, items, examples))
        configurations = [choice.configuration for choice in choices]
        tests = bench.test_configurations(items, configurations, settings.model).assign(
            method=method,
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
    """Collect the examples of the few-shot prompt, each a question with a configuration and its reward.

    Args:
        bench: Agents, questions and rewards.

    Returns:
        For the first training question of each kind, the best and the worst of about NUM_EXAMPLES configurations of the
        grid.
    """
    settings = bench.settings
    every_nth = max(1, settings.grid // NUM_EXAMPLES)
    candidates = search.make_grid(settings.grid)[::every_nth]
    examples = []
    for kind in KINDS:
        item = bench.draw_items("train", 1, (kind.name,))[0]
        configured_questions = [ConfiguredQuestion(item, candidate) for candidate in candidates]
        rewards = bench.play(settings.model, configured_questions)["reward"].dropna()
        if len(rewards):  # none where a provider's filter stops the question
            for number in (int(rewards.idxmax()), int(rewards.idxmin())):
                reward = float(rewards[number])
                examples.append(Example(item.prompt, candidates[number], reward))
    return examples


def choose_at_random(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Test a random structure without atoms for every test question.

    Args:
        bench: Agents, questions and rewards.
        run: The job, which gets the table tests.
    """
    items = bench.draw_items("test", bench.settings.test_items)
    structures = action_space.list_structures()
    rng = seeds.rng("configuration", "random", seed=run.seed)
    configurations = [
        Configuration(action_space.check_structure(structures[i].tolist()))
        for i in rng.integers(len(structures), size=len(items))
    ]
    tests = bench.test_configurations(items, configurations, bench.settings.model)
    run.write_table("tests", tests.assign(method="random", seed=run.seed, failed=0.0))


# Constants -----------------------------------------------------------------------------------------


def check_constants(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Answer the test questions with the best fixed configurations once more, to see why wrong answers are wrong.

    Args:
        bench: Agents, questions and rewards.
        run: The job, which reads the tables of the searches and gets the table tests.
    """
    folders = [run.input_folder(label) for label in run.settings["inputs"]]
    outcomes = pd.concat([artifacts.read_parquet(folder / "tried.parquet") for folder in folders])
    items = bench.draw_items("test", bench.settings.test_items)
    tables = []
    for method, rows in baselines.select_constants(outcomes).items():
        questions = zip(rows["key"], rows["prompt"], strict=True)
        configuration_of_question = dict(zip(questions, read_configurations(rows), strict=True))
        configurations = [configuration_of_question[item.id, item.prompt] for item in items]
        tests = bench.test_configurations(items, configurations, bench.settings.model)
        tables.append(tests.assign(method=method, seed=0))
    run.write_table("tests", pd.concat(tables, ignore_index=True))


# Prompt optimizers ---------------------------------------------------------------------------------


def optimize_prompts(bench: ConfigurationWorkbench, run: JobRun) -> dict[str, Any]:
    """Optimize prompts for each kind by GEPA and by bootstrapping, and let two agents talk; test all three.

    Args:
        bench: Agents, questions and rewards.
        run: The job, which gets the table tests.

    Returns:
        The structure and the texts of each method and kind.
    """
    settings = bench.settings
    tables = []
    report: dict[str, Any] = {}
    for number, kind in enumerate(KINDS):
        train_items = bench.draw_items("train", settings.search_items, (kind.name,))
        test_items = bench.draw_items("test", settings.test_items, (kind.name,))
        system = bench.make_system(settings.model)
        structure = prompt_optimizers.select_structure(system, train_items, bench.weights)

        # Prompts in this structure
        prompted = PromptedSystem(system, structure, bench.weights)
        texts_by_method = {
            "gepa": _optimize_with_gepa(bench, prompted, train_items, kind.name, number),
            "bootstrap": prompt_optimizers.bootstrap_demonstrations(
                prompted, train_items, settings.episodes, seed=number
            ),
        }
        for method, texts in texts_by_method.items():
            configurations = [prompted.configure(texts)] * len(test_items)
            tests = bench.test_configurations(test_items, configurations, settings.model, system)
            tables.append(tests.assign(method=method, seed=0))
            report[f"{method}/{kind.name}"] = texts
        report[f"structure/{kind.name}"] = WORKFLOWS[structure[0]]

        # A conversation in place of any workflow
        conversation = bench.make_system(settings.model)
        conversation.programs = dict.fromkeys(WORKFLOWS, converse)
        configurations = [CONVERSATION] * len(test_items)
        tests = bench.test_configurations(test_items, configurations, settings.model, conversation)
        tables.append(tests.assign(method="conversation", seed=0))
        run.report_progress((number + 1) / len(KINDS))
    run.write_table("tests", pd.concat(tables, ignore_index=True))
    return report


def _optimize_with_gepa(
    bench: ConfigurationWorkbench,
    prompted: PromptedSystem,
    items: Sequence[Item],
    kind_name: str,
    seed: int,
) -> Candidate:
    """Evolve the prompts of all agents on training questions of one kind with GEPA.

    Args:
        bench: Agents, atoms and settings.
        prompted: The system whose prompts are evolved.
        items: Training questions.
        kind_name: Name of their kind.
        seed: Seed of the search.

    Returns:
        The best prompts.
    """
    # imported late: gepa loads more than a second of modules that no other job needs
    from lib.agent_configuration import gepa_baseline

    # A lab agent obeys hints of the library only, which a rule proposes; others are told what a model writes.
    reflect = None
    if bench.backend != "lab":
        model = bench.open_model(bench.settings.prompted)
        reflect = gepa_baseline.make_reflection(model, bench.loop, seed)
    atoms = bench.select_atoms(kind_name)
    return gepa_baseline.optimize_with_gepa(
        prompted, items, atoms, bench.settings.episodes, seed, reflect
    )


# Atoms, and the choices of trained policies ----------------------------------------------------------


def try_atoms(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Measure what each atom changes, and write the table `atoms`."""
    run.write_table("atoms", atom_effects.measure_atom_effects(bench))


def try_policy_choices(bench: ConfigurationWorkbench, run: JobRun) -> None:
    """Try every choice of every trained policy on all test questions of its kind, in both samples.

    With the declared set these are what the oracle chooses from: nobody can be above it.

    Args:
        bench: Agents, questions and rewards.
        run: The job, which reads the tests of all trainings and gets the table tried.
    """
    settings = bench.settings
    choices_by_kind = _collect_policy_choices(run, settings.model)
    tables = []
    for number, (kind, configurations) in enumerate(choices_by_kind.items()):
        items = bench.draw_items("test", settings.test_items, (kind,))
        for split in ("test", "again"):
            _, draw = SPLITS[split]
            configured_questions = [
                ConfiguredQuestion(item, configuration, draw)
                for configuration in configurations
                for item in items
            ]
            rows = bench.play(settings.model, configured_questions).drop(columns=["text"])
            tables.append(rows.assign(split=split, set="policies", number=-1))
        run.report_progress((number + 1) / len(choices_by_kind))
    run.write_table("tried", pd.concat(tables, ignore_index=True))


def _collect_policy_choices(run: JobRun, model: str) -> dict[str, list[Configuration]]:
    """Collect the different configurations that trained policies chose for questions of the kind they learned from.

    Args:
        run: The job whose inputs are the trainings.
        model: Name of the agents' model; tests with other agents are left out.

    Returns:
        Configurations by kind.
    """
    # Keys of a dictionary, to have each once and in order.
    choices_by_kind: dict[str, dict[Configuration, None]] = {kind.name: {} for kind in KINDS}
    for label in run.settings["inputs"]:
        tests = artifacts.read_parquet(run.input_folder(label) / "tests.parquet")
        is_own_kind = tests["only"] == tests["group"]
        rows = tests[is_own_kind & (tests["model"] == model)]
        rows = rows.drop_duplicates(["group", "digest"])
        for kind, configuration in zip(rows["group"], read_configurations(rows), strict=True):
            choices_by_kind[kind].setdefault(configuration)
    return {kind: list(configurations) for kind, configurations in choices_by_kind.items()}
