"""ToolOrchestra's training on customer service (tau2-bench): episodes, rewards, and the evaluation on held-out tasks.

An episode is a conversation of the evaluation (`service_episodes`) whose agent is the policy. Each has a menu of models
at drawn prices and latencies, and a drawn preference, which the policy reads. tau2's evaluator says whether it is
correct; the reward is ToolOrchestra's (`rewards`): M_norm . P for a correct episode, else 0, with the outcome vector

    M = [questions to each model, correct, -US dollars, -seconds]

normalized within the rollouts of one task. The domain's functions are offered always, for they are the task. Left out:
how the run is begun and what it leaves, which is `service_train_command`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd

from lib.experiment import seeds
from lib.experiment.evaluation import TEST_SEED
from lib.rl.user_training.evaluation import START, TRAINED
from lib.rl.user_training.training import TrainingOutcome
from lib.tasks import Item
from lib.tool_orchestration import episode_rewards, episode_specs, service_results
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.group_training import GroupTraining
from lib.tool_orchestration.service_episodes import (
    ConversationRunner,
    ServiceEpisode,
    ServiceTeam,
)
from lib.tool_orchestration.service_policy import PolicyAgent
from lib.tool_orchestration.service_prompts import EXPERT_PREFIX
from lib.tool_orchestration.tool_menu import ToolMenu
from lib.tool_orchestration.user_evaluation import DRAWN_USERS, score_vectors

VERSION = 1  # of the draws and the tables
POLICY = "policy"  # the agent's name in tables
ALONE = "alone: "  # before the name of a model that serves customers by itself


@dataclass(kw_only=True)
class ServiceTraining(GroupTraining):
    """Collects the training episodes of a policy that serves customers, and evaluates it on held-out tasks.

    Attributes:
        train: Tasks to learn from.
        test: Tasks that nothing learns from.
        runner: Holds conversations; its team has the user and the experts.
        policy: The agent that is trained.

    `offers` has every expert, by the name of the tool that asks it.
    """

    stream: ClassVar[str] = "service tasks"

    train: Sequence[Item]
    test: Sequence[Item]
    runner: ConversationRunner
    policy: PolicyAgent

    @property
    def training_items(self) -> Sequence[Item]:
        """Tasks to learn from."""
        return self.train

    def roll_out_update(
        self, assignments: Sequence[Assignment], step: int, seed: int
    ) -> list[ServiceEpisode]:
        """Play the conversations of one update.

        Args:
            assignments: Tasks with menus and users.
            step: Number of the update.
            seed: Seed of the replies.

        Returns:
            The finished conversations.
        """
        # No two episodes of a run have the same number, so that users and experts reply to each anew.
        num_episodes = len(assignments)
        first_number = (step * self.share.num_processes + self.share.rank) * num_episodes
        numbers = range(first_number, first_number + num_episodes)
        self.policy.temperature = self.settings.temperature
        return self.runner.run(assignments, numbers, seed)

    def make_update_rows(
        self, episodes: Sequence[ServiceEpisode], tools: Sequence[str]
    ) -> pd.DataFrame:
        """Make a row per conversation, see `make_training_rows`."""
        return make_training_rows(episodes, tools)

    def take_test_assignments(self) -> tuple[list[int], list[Assignment]]:
        """Draw a menu and a preference for each held-out task, the same before and after training.

        Returns:
            Numbers of the held-out tasks of this process, and their assignments.
        """
        rng = seeds.rng("toolorchestra", "service test", seed=self.seed)
        assignments = episode_specs.draw_assignments(
            self.test, self.offers, self.tools, self.settings.spread, rng
        )
        numbers = self.share.take(range(len(assignments)))
        return numbers, [assignments[number] for number in numbers]

    def evaluate_controller(self, method: str, role: str) -> pd.DataFrame:
        """Let the policy serve the customers of the held-out tasks, one conversation each.

        Args:
            method: Name of the policy in the table, such as "before training".
            role: Its role in the results table.

        Returns:
            A row per task: the columns of `make_training_rows`; number (of the task), spoken (the transcript),
            condition, method and role. The column reward has the outcome so far: it is relative to other methods, and
            `reward_methods` computes it once all are known.
        """
        numbers, assignments = self.take_test_assignments()
        self.policy.temperature = self.settings.test_temperature
        episodes = self._hold_test(self.runner, assignments)
        return self._make_test_rows(episodes, numbers, method, role)

    def evaluate_baselines(self, start: pd.DataFrame) -> pd.DataFrame:
        """Let every expert serve the customers of the held-out tasks by itself, with the domain's functions.

        It reads no preference, and is paid for at the price of the task's menu, where it is on it.

        Args:
            start: Rows of the policy before training; not read.

        Returns:
            A row per expert and task, as of `evaluate_controller`.
        """
        numbers, assignments = self.take_test_assignments()
        unaided = [Assignment(assignment.work, ToolMenu(())) for assignment in assignments]
        tables = []
        for tool in self.tools:
            expert = tool.removeprefix(EXPERT_PREFIX)
            team = ServiceTeam(expert, self.runner.team.user)
            episodes = self._hold_test(replace_agent(self.runner, team), unaided)
            for episode, assignment in zip(episodes, assignments, strict=True):
                reprice(episode, assignment, tool)
            tables.append(self._make_test_rows(episodes, numbers, ALONE + expert, "expert"))
        return pd.concat(tables, ignore_index=True)

    def _hold_test(
        self, runner: ConversationRunner, assignments: Sequence[Assignment]
    ) -> list[ServiceEpisode]:
        """Hold one conversation for each assignment, with the random numbers of the evaluation."""
        return runner.run(assignments, [0] * len(assignments), TEST_SEED + self.seed)

    def _make_test_rows(
        self, episodes: Sequence[ServiceEpisode], numbers: Sequence[int], method: str, role: str
    ) -> pd.DataFrame:
        """Make the rows of conversations about held-out tasks.

        Args:
            episodes: Finished conversations.
            numbers: Number of each task.
            method: Name of the method.
            role: Its role in tables.

        Returns:
            A row per conversation.
        """
        rows = make_training_rows(episodes, self.tools)
        return rows.assign(
            number=numbers,
            spoken=[write_transcript(episode) for episode in episodes],
            condition=DRAWN_USERS,
            method=method,
            role=role,
            reward=rows["correct"],
        )


def replace_agent(runner: ConversationRunner, team: ServiceTeam) -> ConversationRunner:
    """A runner of the same models and limits for another team, whose agent is a model of llm.models."""
    return ConversationRunner(runner.pool, runner.llm, team, runner.max_turns, runner.temperature)


def reprice(episode: ServiceEpisode, assignment: Assignment, tool: str) -> None:
    """Count what a model that served a customer alone costs at the price of a menu, for the user of that menu.

    Args:
        episode: Episode of the model.
        assignment: Has the menu and the preference.
        tool: Name of the tool that asks the model; where it is not on the menu, the price is its own.
    """
    episode.assignment = assignment
    if tool in assignment.menu.names:
        offer = assignment.menu.offer(tool)
        episode.cost_usd *= offer.cost_usd
        episode.seconds *= offer.seconds


def make_training_rows(episodes: Sequence[ServiceEpisode], tools: Sequence[str]) -> pd.DataFrame:
    """Make one row per episode.

    Args:
        episodes: Episodes that have ended.
        tools: Names of the tools that ask experts, in the order of outcome and preference vectors.

    Returns:
        A row per episode, with the columns of `service_results.make_row` and
        difficulty                  of the task
        turns, written              turns and tokens of the policy
        malformed, answered         1 where a call cannot be read; 1 where the conversation came to its end
        failed, failures            whether a reply was lost, which leaves the episode out of all scores
        truncated, shortened        replies of experts at their limit; 0, for nothing is shortened
        chosen, offered             names of the called tools, and of the experts on the menu
        m, p                        outcome vector and preference vector, over `tools` and three objectives
    """
    vectors, preferences = episode_rewards.make_vectors(episodes, tools)
    rows = []
    for episode, vector, preference in zip(episodes, vectors, preferences, strict=True):
        row = service_results.make_row(episode, POLICY, "", tools)
        del row["model"], row["setting"], row["score"]
        is_failed = bool(episode.failure)
        row |= {
            "difficulty": episode.item.difficulty,
            "turns": episode.context.num_turns if episode.context else episode.turns["agent"],
            "written": sum(episode.mask),
            "malformed": episode.num_malformed,
            "answered": float(episode.has_answer),
            "failed": is_failed,
            "failures": int(is_failed),
            "truncated": episode.num_truncated,
            "shortened": 0,
            "chosen": sorted(episode.counts),
            "offered": list(episode.assignment.menu.names),
            "m": vector.tolist(),
            "p": preference.tolist(),
        }
        rows.append(row)
    return pd.DataFrame(rows)


def write_transcript(episode: ServiceEpisode) -> str:
    """Write the transcript of a conversation for the report.

    Args:
        episode: The conversation.

    Returns:
        JSON of segments (writer, text, cost).
    """
    segments: list[tuple[str, str, float]] = []
    names_by_call: dict[str, str] = {}
    for message in episode.messages["agent"]:
        text = message.get("content") or ""
        if message["role"] == "tool":
            segments.append((names_by_call[message["tool_call_id"]], text, 0.0))
            continue
        for call in message.get("tool_calls") or ():
            function = call["function"]
            names_by_call[call["id"]] = function["name"]
            text = f"{text}\n{function['name']}({function['arguments']})".lstrip("\n")
        writer = {"system": "prompt", "assistant": "controller"}.get(message["role"], "user")
        segments.append((writer, text, 0.0))
    return json.dumps(segments)


def reward_methods(outcome: TrainingOutcome) -> TrainingOutcome:
    """Reward all conversations about the held-out tasks: the policy's before and after training, and the experts'.

    The reward is that of the training: questions, outcome, dollars and seconds are normalized over all conversations
    about the same task, and weighed by the task's preference.

    Args:
        outcome: Outcome of the training.

    Returns:
        The outcome with the columns reward and score, which is that of the paper's benchmark.
    """
    tables = [outcome.start, outcome.trained, outcome.baselines]
    rows = pd.concat(tables, ignore_index=True)
    start_vectors = outcome.start.set_index("number")["m"]
    values, scores = score_vectors(
        np.stack(rows["m"]),
        rows["number"].to_numpy(),
        np.stack(rows["p"]),
        np.stack(start_vectors.loc[rows["number"]]),
    )
    rows = rows.assign(reward=values, score=scores)
    is_start = rows["method"] == START
    is_trained = rows["method"] == TRAINED
    return replace(
        outcome,
        start=rows[is_start].reset_index(drop=True),
        trained=rows[is_trained].reset_index(drop=True),
        baselines=rows[~is_start & ~is_trained].reset_index(drop=True),
    )
