"""ARC on a user's questions: candidates for a constant, two policies trained side by side, and a held-out evaluation.

Everything that decides, plays, rewards and learns is the lesson's; here it meets questions, agents and a folder. The
flat bandit chooses from the same space, on the same questions, for as many episodes as ARC, and the best constant is
chosen from configurations that were tried for as many episodes on dev questions.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch

from lib.agent_configuration import baselines, encoders, search
from lib.agent_configuration.action_space import AGENTS, Configuration, without_other_tools
from lib.agent_configuration.agent_system import ConfiguredQuestion, System
from lib.agent_configuration.atoms import Atom
from lib.agent_configuration.episode_cache import EpisodeCache, get_group
from lib.agent_configuration.saved_policy import PolicyDescription
from lib.agent_configuration.training import (
    ConfigurationPolicy,
    ConfigurationTraining,
    refine,
    train_side_by_side,
)
from lib.agent_configuration.training_job import make_plan, make_refining
from lib.agent_configuration.user_inputs import ConfigurationInputs
from lib.agent_configuration.variants import ARC, FLAT_BANDIT, ConfigurationVariant
from lib.agent_configuration.workbench import TEST_DRAW
from lib.experiment import artifacts, seeds
from lib.llm.chat_model import INFRASTRUCTURE_FAILURES
from lib.llm.errors import InfrastructureError
from lib.rl.user_training.data import name_units
from lib.rl.user_training.evaluation import START, TRAINED
from lib.rl.user_training.progress import ProgressLine
from lib.rl.user_training.training import MEASURES, TrainingOutcome
from lib.tasks import Item

ROLLOUTS = "rollouts.parquet"
NUM_TRIALS = 12  # episodes under different configurations, which tell what an episode takes
MAX_LOST_SHARE = 0.5  # of trial or dev episodes, above which the run ends
COMPARED = (ARC, FLAT_BANDIT)  # what is trained
BASE = "base: all tools, one call"
BEST_CONSTANT = "best constant on dev"
BEST_CONSTANT_PER_GROUP = "best constant per group on dev"
BANDIT = "flat bandit"
ORACLE = "oracle"
_TRIED = "tried"  # a configuration that is tried on test questions for the oracle alone
_TEXT_COLUMNS = ["text", "answer", "spoken"]


def declare_candidates(
    num_candidates: int, atoms: Sequence[Atom], tools: Sequence[str], seed: int
) -> list[Configuration]:
    """Declare the configurations that may become the constant.

    Args:
        num_candidates: Number of configurations at the most, all different.
        atoms: The prompt instructions (atoms) that agents can get.
        tools: The tools that agents may be given.
        seed: Seed of the random numbers.

    Returns:
        The base, then in turn one of a grid without atoms and one at random with atoms. A longer list begins with a
        shorter one.
    """
    names = [[atom.name for atom in atoms if atom.role == role] for role in AGENTS]
    grid = search.make_grid()
    # Excluded tools make some equal, so more are drawn than are needed.
    sampled = search.sample_configurations(4 * len(grid), names, seed)
    order = seeds.rng("configuration", "user grid", seed=seed).permutation(len(grid))
    in_turn = [search.BASE]
    for number, configuration in enumerate(sampled):
        if number < len(grid):
            in_turn.append(grid[order[number]])
        in_turn.append(configuration)
    candidates = []
    for configuration in in_turn:
        structure = without_other_tools(configuration.structure, tools)
        candidates.append(Configuration(structure, configuration.atoms))
    return list(dict.fromkeys(candidates))[:num_candidates]


@dataclass
class UserTraining:
    """The trainings, baselines and the evaluation of one run.

    Attributes:
        inputs: What the run is given.
        system: The agents.
        episodes: Plays what is no training, and keeps it.
        atoms: The prompt instructions (atoms) that agents can get.
        encode: The encoder of questions.
        progress: The line on the terminal.
        trainings: By variant and group.
        policies: After their refinement, by variant and group.
        elites: What the refinement of ARC started from, by group.
        seconds: How long the training took in this call.
    """

    inputs: ConfigurationInputs
    system: System
    episodes: EpisodeCache
    atoms: list[Atom]
    encode: encoders.Encoder
    progress: ProgressLine
    trainings: dict[tuple[str, str], ConfigurationTraining] = field(default_factory=dict)
    policies: dict[tuple[str, str], ConfigurationPolicy] = field(default_factory=dict)
    elites: dict[str, dict[str, float]] = field(default_factory=dict)
    seconds: float = 0.0

    # Before the training --------------------------------------------------------------------------

    def make_states(self, items: Sequence[Item]) -> np.ndarray:
        """s_q of questions, (n, inputs)."""
        return encoders.make_states([item.prompt for item in items], self.encode)

    def describe_policy(self, variant: ConfigurationVariant) -> PolicyDescription:
        """Describe what a policy of a variant reads and chooses from.

        Args:
            variant: The variant.

        Returns:
            The description, from which an untrained policy can be made.
        """
        _, num_inputs = self.make_states(self.inputs.questions.train[:1]).shape
        return PolicyDescription(
            kind=variant.kind,
            inputs=num_inputs,
            atoms=self.atoms,
            tools=self.inputs.tools,
            tiers=self.inputs.budgets,
            encoder=self.inputs.encoder,
            model=self.inputs.model,
        )

    def list_candidates(self) -> list[Configuration]:
        """The configurations that are tried on dev questions."""
        inputs = self.inputs
        return declare_candidates(
            inputs.num_candidates, self.atoms, inputs.tools, inputs.options.seed
        )

    def try_trials(self) -> tuple[pd.DataFrame, float]:
        """Play a few trial episodes, to measure cost and time of one.

        Returns:
            Their rows, and the seconds that one took on average while several were under way; nan where all of them
            were played before.

        Raises:
            InfrastructureError: Most of them lost a call.
        """
        items = self.inputs.questions.baseline_train
        # Candidates as in the comparison, since what an episode takes depends on its workflow.
        candidates = declare_candidates(
            NUM_TRIALS, self.atoms, self.inputs.tools, self.inputs.options.seed
        )
        jobs = [
            ConfiguredQuestion(items[number % len(items)], configuration)
            for number, configuration in enumerate(candidates)
        ]
        num_before = len(self.episodes)
        started = time.monotonic()
        rows = self.episodes.play(jobs, "trial questions")
        num_new_episodes = len(self.episodes) - num_before
        seconds = time.monotonic() - started
        _check_scored(rows, "trial episodes", self.inputs.model)
        # Episodes of an earlier call are read, and their time says nothing of the model.
        if not num_new_episodes:
            return rows, float("nan")
        return rows, seconds / num_new_episodes

    def try_candidates(self) -> pd.DataFrame:
        """Answer every dev question with every candidate for the best fixed configuration.

        Returns:
            Rows with split "dev" and number (of the candidate).

        Raises:
            InfrastructureError: Most of the episodes lost a call.
        """
        jobs = []
        numbers = []
        for number, configuration in enumerate(self.list_candidates()):
            for item in self.inputs.dev:
                jobs.append(ConfiguredQuestion(item, configuration, TEST_DRAW))
                numbers.append(number)
        rows = self.episodes.play(jobs, "candidates for the best constant on dev questions")
        _check_scored(rows, "episodes on dev questions", self.inputs.model)
        return rows.assign(split="dev", number=numbers)

    # The training ---------------------------------------------------------------------------------

    def start_trainings(self) -> None:
        """Make a training for each variant and group; rewards of an earlier call are taken from the file."""
        path = self.inputs.folder / ROLLOUTS
        recorded = artifacts.read_parquet(path) if path.exists() else None
        seed = self.inputs.options.seed
        for variant in COMPARED:
            description = self.describe_policy(variant)
            plan = make_plan(self.inputs.settings, variant)
            for group in self.inputs.groups:
                items = self.inputs.select_group(self.inputs.questions.train, group)
                recorded_of_training = None
                if recorded is not None:
                    is_variant = recorded["method"] == variant.name
                    recorded_of_training = recorded[is_variant & (recorded["only"] == group)]
                self.trainings[variant.name, group] = ConfigurationTraining(
                    description.make_policy(seed),
                    self.system,
                    items,
                    self.make_states(items),
                    plan,
                    seed,
                    recorded_of_training,
                    get_group,
                )

    def train(self) -> None:
        """Do all updates, then refine the policies; an interruption loses no finished update."""
        started = time.monotonic()
        trainings = list(self.trainings.values())
        num_updates = trainings[0].plan.num_updates
        save_every = self.inputs.settings.save_every
        num_recorded = self._count_recorded_updates()

        def report_update() -> None:
            """Report an update that was not played before, and save it when it is due."""
            step = trainings[0].step
            is_new = step > num_recorded
            if is_new:
                rows = pd.concat([training.rows[-1] for training in trainings])
                self.progress.say(f"update {step}/{num_updates}: {describe_rows(rows)}")
            self.episodes.progress.begin(f"update {min(step + 1, num_updates)}/{num_updates}")
            # An update that was read from the record lies on disk already.
            if is_new and (step % save_every == 0 or step == num_updates):
                self._save_rollouts()

        self.episodes.progress.begin(f"update {min(num_recorded + 1, num_updates)}/{num_updates}")
        try:
            train_side_by_side(trainings, report_update)
        except (KeyboardInterrupt, Exception):
            # Finished updates have been paid for: they are kept whatever stopped the run.
            if trainings[0].step > num_recorded:
                self._save_rollouts()
            raise
        refining = make_refining(self.inputs.settings, "sft")
        for (name, group), training in self.trainings.items():
            self.policies[name, group], elite = refine(training, refining, training.seed)
            if name == ARC.name:
                self.elites[group] = elite
        self.seconds = time.monotonic() - started

    def select_policies(self, variant: ConfigurationVariant) -> dict[str, ConfigurationPolicy]:
        """The refined policies of a variant, by group."""
        return {
            group: policy for (name, group), policy in self.policies.items() if name == variant.name
        }

    def _count_recorded_updates(self) -> int:
        """Updates that earlier calls have played for every training."""
        counts = []
        for training in self.trainings.values():
            counts.append(0 if training.recorded is None else training.recorded["step"].nunique())
        return min(counts)

    def _save_rollouts(self) -> None:
        artifacts.write_parquet(self.inputs.folder / ROLLOUTS, self.stack_rollouts())

    def stack_rollouts(self) -> pd.DataFrame:
        """A row per training episode, with method and only (the group that its policy learns from)."""
        tables = []
        for (name, group), training in self.trainings.items():
            for rows in training.rows:
                tables.append(rows.assign(method=name, only=group))
        return pd.concat(tables, ignore_index=True)

    def summarize_learning(self) -> pd.DataFrame:
        """Summarize ARC's training by update.

        Returns:
            A row per update: means of its episodes, and its losses averaged over groups.
        """
        rollouts = self.stack_rollouts()
        arc_rollouts = rollouts[rollouts["method"] == ARC.name]
        measures = [name for name in MEASURES if name in arc_rollouts]
        mean_outcomes = arc_rollouts.groupby("step")[[*measures, "tokens_out"]].mean()
        loss_tables = []
        for (name, _), training in self.trainings.items():
            if name == ARC.name:
                loss_tables.append(pd.DataFrame(training.losses_by_update))
        mean_losses = pd.concat(loss_tables).groupby("step").mean()
        return mean_outcomes.join(mean_losses).reset_index()

    # The evaluation -------------------------------------------------------------------------------

    def choose_configurations(
        self, policies: Mapping[str, ConfigurationPolicy], is_sampled: bool = False
    ) -> list[Configuration]:
        """Choose a configuration for each held-out question.

        Args:
            policies: A policy for each group of questions.
            is_sampled: Whether choices are sampled, and not the likeliest.

        Returns:
            The configurations, in the order of the questions.
        """
        chosen: dict[tuple[str, str], Configuration] = {}
        for group, policy in policies.items():
            items = self.inputs.select_group(self.inputs.questions.test, group)
            if not items:
                continue
            generator = None
            if is_sampled:
                seed = self.inputs.options.seed
                generator = seeds.torch_generator("configuration", "user start", group, seed=seed)
            states = torch.from_numpy(self.make_states(items))
            configurations = policy.decide(states, generator).configurations
            for item, configuration in zip(items, configurations, strict=True):
                chosen[item.id, item.prompt] = configuration
        return [chosen[item.id, item.prompt] for item in self.inputs.questions.test]

    def evaluate(
        self, configurations: Sequence[Configuration], method: str, role: str
    ) -> pd.DataFrame:
        """Answer every held-out question under the configuration that was chosen for it.

        Args:
            configurations: One for each question.
            method: Name of the method that chose them.
            role: The method's role in the results table.

        Returns:
            Rows of `EpisodeCache.play`, with method, role, item, sample and condition.
        """
        items = self.inputs.questions.test
        jobs = [
            ConfiguredQuestion(item, configuration, TEST_DRAW)
            for item, configuration in zip(items, configurations, strict=True)
        ]
        rows = self.episodes.play(jobs, f"held-out questions, {method}")
        units = name_units(items)
        return rows.assign(
            method=method,
            role=role,
            condition="",
            item=[item_id for item_id, _ in units],
            sample=[sample for _, sample in units],
        )

    def evaluate_start(self) -> pd.DataFrame:
        """The policies with their first weights, sampled: choices at random, each workflow as likely as the others."""
        description = self.describe_policy(ARC)
        policies = {
            group: description.make_policy(self.inputs.options.seed) for group in self.inputs.groups
        }
        return self.evaluate(self.choose_configurations(policies, is_sampled=True), START, "start")

    def evaluate_trained(self) -> pd.DataFrame:
        """ARC's policies after training and refinement, with the likeliest choice."""
        configurations = self.choose_configurations(self.select_policies(ARC))
        return self.evaluate(configurations, TRAINED, "paper")

    def evaluate_baselines(self, tried: pd.DataFrame) -> pd.DataFrame:
        """Evaluate everything that ARC is compared with, but for the oracle.

        Args:
            tried: What `try_candidates` returned.

        Returns:
            Rows of `evaluate`.
        """
        items = self.inputs.questions.test
        candidates = self.list_candidates()
        base = candidates[0]
        best = candidates[baselines.find_best_number(tried, split="dev")]
        tables = [
            self.evaluate([base] * len(items), BASE, "constant"),
            self.evaluate([best] * len(items), BEST_CONSTANT, "constant"),
        ]
        best_by_group = {}
        for group, rows in tried.groupby("group"):
            if rows["reward"].notna().any():
                best_by_group[group] = candidates[baselines.find_best_number(rows, split="dev")]
        if len(best_by_group) > 1:
            constants = [best_by_group.get(item.group, best) for item in items]
            tables.append(self.evaluate(constants, BEST_CONSTANT_PER_GROUP, "constant"))
        configurations = self.choose_configurations(self.select_policies(FLAT_BANDIT))
        tables.append(self.evaluate(configurations, BANDIT, "router"))
        return pd.concat(tables, ignore_index=True)

    def try_candidates_on_test(self) -> pd.DataFrame:
        """Answer every test question with every candidate, for the oracle alone.

        Returns:
            Rows of the oracle's candidates.
        """
        num_items = len(self.inputs.questions.test)
        tables = [
            self.evaluate([configuration] * num_items, _TRIED, "oracle")
            for configuration in self.list_candidates()
        ]
        return pd.concat(tables, ignore_index=True)

    def run(self) -> TrainingOutcome:
        """Train the configurator, and evaluate it on the test questions with all baselines and the oracle.

        Stages that an earlier call of the command has finished are read from its files.

        Returns:
            An evaluated episode per row: of the untrained policy, of the trained one, and of the baselines with the
            oracle; also the rollouts and learning curves of the training, and its seconds.
        """
        start = self.evaluate_start()
        candidate_rows = self.try_candidates()
        self.start_trainings()
        self.train()
        trained = self.evaluate_trained()
        baseline_rows = self.evaluate_baselines(candidate_rows)
        tables = [start, trained, baseline_rows]
        if self.inputs.options.oracle:
            tables.append(self.try_candidates_on_test())
        oracle = baselines.select_oracle(*tables).assign(method=ORACLE, role="oracle")
        return TrainingOutcome(
            start=start,
            trained=trained,
            baselines=pd.concat([baseline_rows, oracle], ignore_index=True),
            rollouts=self.stack_rollouts(),
            learning=self.summarize_learning(),
            seconds=self.seconds,
        )


def _check_scored(rows: pd.DataFrame, name: str, model: str) -> None:
    """Check that enough episodes were not lost for methods to be compared.

    Args:
        rows: A row per episode.
        name: What the episodes are, in words.
        model: Name of the agents' model.

    Raises:
        InfrastructureError: Too many lost a call.
    """
    num_lost = int((rows["lost_calls"] > 0).sum())
    if num_lost <= MAX_LOST_SHARE * len(rows):
        return
    kinds = dict.fromkeys(" ".join(rows["failure_kinds"]).split())
    listed = ", ".join(kind for kind in kinds if kind in INFRASTRUCTURE_FAILURES)
    raise InfrastructureError(
        f"{model}: {num_lost} of {len(rows)} {name} lost a call ({listed}); check the server and run again. A model "
        "that refuses tools (bad_request) needs a chat template with tools, or --tools none"
    )


def describe_rows(rows: pd.DataFrame) -> str:
    """Describe episodes in a line: means, and how many were lost or cut off.

    Args:
        rows: Rows of `agent_system.make_table`.

    Returns:
        The line.
    """
    phrases = [f"{name} {rows[name].mean():.2f}" for name in ("reward", "correct", "calls")]
    phrases.append(f"{rows['tokens_out'].mean():.0f} tokens written")
    phrases.append(f"${rows['cost_usd'].mean():.2g} an episode")
    counts = {
        "lost": (rows["lost_calls"] > 0).sum(),
        "with a reply that cannot be used": (rows["failures"] > rows["lost_calls"]).sum(),
        "cut off by a budget": (rows["cut"] > rows["cut_by_model"]).sum(),
        "cut off by the model's own limit": (rows["cut_by_model"] > 0).sum(),
    }
    phrases += [f"{int(count)} {name}" for name, count in counts.items() if count]
    return ", ".join(phrases)
