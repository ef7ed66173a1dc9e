"""Many episodes side by side, and decision models that decide in all of them.

All episodes of a batch advance together, so a model is asked once a step for all of them. Every method meets the same
students or rooms, with the same random numbers.

An `EpisodeSet` holds the students or rooms of one world (domain, rules, policies, queries) under one seed;
`EpisodeSet.play` lets one decision model play all of them with the context of one system. How a context is made is in
`episode_contexts`, what policies do on copies in `look_ahead`, what is recorded in `episode_tables`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib.config import Environments
from lib.envs.batched_env import BatchedEnv
from lib.experiment import seeds
from lib.orchestration.contexts import DecisionContext, ToolResult
from lib.orchestration.decision_model import UNFUNDED, Decision, DecisionModel
from lib.orchestration.domain_descriptions import DESCRIBERS
from lib.orchestration.episode_contexts import ContextBuilder, EpisodeHistory
from lib.orchestration.episode_tables import BatchStep, EpisodeRecorder, PlayedEpisodes
from lib.orchestration.look_ahead import (
    ACTION_DRAWS,
    LookAhead,
    PlanSimulator,
    drop_ended_rows,
)
from lib.orchestration.menus import Menu
from lib.orchestration.system_options import SystemOptions
from lib.orchestration.tool_results import make_tool_results
from lib.policy_zoo.recipes import make_batched_env

VERSION = 1  # of episodes, look-aheads and what is recorded of them
_CHOICE_DRAWS = np.uint64(1)  # stream of an episode from which choices are sampled


class EpisodeSet:
    """Episodes of one world under one seed, which every method plays with the same random numbers.

    Attributes:
        describer: Reads the domain's states.
        random_streams: (episodes,) uint64, the key of each episode's random numbers: equal keys, equal episodes.
        weights: (episodes, criteria) of each episode's query.
        num_copies: Copies of an episode on which policies are tried.
        simulator: Tries policies, or plans of several policies, on copies.
    """

    def __init__(
        self,
        environments: Environments,
        domain: str,
        menu: Menu,
        random_streams: np.ndarray,
        weights: np.ndarray,
        num_copies: int,
    ) -> None:
        """Prepare the episodes; nothing is played yet.

        Args:
            environments: Settings of the world's environments.
            domain: education or minigrid.
            menu: The policies that can act.
            random_streams: (episodes,) uint64, the key of each episode's random numbers.
            weights: (episodes, criteria) of the queries, or (criteria,) for all.
            num_copies: Copies of an episode on which policies are tried.
        """
        self.environments = environments
        self.domain = domain
        self.describer = DESCRIBERS[domain](environments)
        self.menu = menu
        self.random_streams = random_streams
        num_criteria = len(self.describer.domain.criteria)
        self.weights = np.broadcast_to(weights, (len(random_streams), num_criteria))
        self.num_copies = num_copies
        self.simulator = PlanSimulator(self.make_env(1), self.describer, menu, random_streams)

    def make_env(self, num_rows: int) -> BatchedEnv:
        """A batched environment by the rules of this world, with a row for each of `num_rows` episodes."""
        return make_batched_env(self.environments, self.domain, [self.describer.task] * num_rows)

    def play(self, model: DecisionModel, options: SystemOptions) -> PlayedEpisodes:
        """Play all episodes to their end, and return tables of the episodes and of their steps.

        Args:
            model: The model that decides which policy acts.
            options: What the model gets to read and to try.
        """
        return _EpisodeBatch(self, model, options).play()

    def look_ahead(
        self,
        env: BatchedEnv,
        observation: np.ndarray,
        rows: np.ndarray,
        step: int,
        plans: np.ndarray,
        with_measurements: bool = False,
    ) -> LookAhead:
        """Simulate plans on copies of the running episodes, and return what they gave.

        Args:
            env: The running episodes.
            observation: (running, ...) what policies see there.
            rows: (running,) numbers of these episodes.
            step: Steps that they have taken.
            plans: (plans, steps) index of the policy that acts at each coming step.
            with_measurements: Whether to keep what prompts describe, such as mastery after each step.
        """
        return self.simulator.follow_plans(
            env, observation, rows, step, plans, self.num_copies, with_measurements
        )


class _EpisodeBatch:
    """One decision model at work in all episodes of a set.

    `rows` are the numbers of the running episodes, in the order of the environment's rows; a `position` is an index of
    `rows`.
    """

    def __init__(
        self, episode_set: EpisodeSet, model: DecisionModel, options: SystemOptions
    ) -> None:
        """Prepare memory, contexts and tables for one model's play.

        Args:
            episode_set: The episodes.
            model: The model that decides which policy acts.
            options: What the model gets to read and to try.
        """
        self.episode_set = episode_set
        self.describer = episode_set.describer
        self.model = model
        self.options = options
        # (policies,) the position on the menu of each policy that can be chosen.
        self.menu_index = np.array(
            [episode_set.menu.names.index(name) for name in options.policies]
        )
        self.history = EpisodeHistory(len(episode_set.random_streams))
        self.context_builder = ContextBuilder(
            episode_set.describer,
            episode_set.random_streams,
            episode_set.weights,
            options,
            self.history,
        )
        self.recorder = EpisodeRecorder(
            episode_set.describer, options.policies, episode_set.weights
        )
        self.exchanges: dict[int, list[Decision]] = {}

    def play(self) -> PlayedEpisodes:
        """Play all episodes step by step until they have ended.

        At each step, or at every `interval` steps, the decision model picks a policy for every running episode. The
        policy then acts in the environment.

        Returns:
            Tables of the episodes and of their steps.
        """
        episode_set = self.episode_set
        history = self.history
        num_episodes = len(episode_set.random_streams)
        env = episode_set.make_env(num_episodes)
        env.seed_with(episode_set.random_streams)
        observation = env.reset()
        # Random numbers for actions and for choices must not repeat those of the environment, nor each other, so each
        # purpose changes the episode's key in its own way; ^ or + makes no difference. Actions follow the rule of
        # `policy_zoo.evaluate.play`, so that a policy that acts throughout does what it does there under an equal key.
        action_draws = seeds.next_key(episode_set.random_streams ^ ACTION_DRAWS)
        choice_draws = seeds.next_key(episode_set.random_streams + _CHOICE_DRAWS)

        rows = np.arange(num_episodes)
        step = 0
        while rows.size:
            state_features = self.describer.read_state_features(env)
            states_in_words = None
            if self.model.reads_words:
                states_in_words = self._describe_states(env)

            # Decide; between decisions the policy that was chosen goes on.
            decisions: list[Decision] = []
            if step % self.options.interval == 0:
                self._update_summaries(env, rows, step, state_features)
                contexts = self.context_builder.make_contexts(
                    rows, step, state_features, states_in_words
                )
                # Only the upper bound reads plan values: the utility of each plan (a policy for each coming step).
                contexts = self._add_plan_values(contexts, env, observation, rows, step)
                tool_results = self._try_policies(env, observation, rows, step, state_features)
                decisions = self._ask_until_decided(contexts, tool_results)
                self._choose(rows, decisions, seeds.uniform(choice_draws[rows], step))

            # Act.
            policies = self.menu_index[history.chosen_policies[rows]]
            draws = seeds.uniform(action_draws[rows], step)
            actions = episode_set.menu.act(env, policies, observation, draws)
            transition = env.advance(actions, restart=False)
            progress = self.describer.measure_progress(state_features, env)

            # Write down what came of it.
            batch_step = BatchStep(
                step=step,
                episodes=rows,
                state_features=state_features,
                states_in_words=states_in_words,
                chosen_policies=history.chosen_policies[rows],
                actions=actions,
                criterion_values=np.concatenate([transition.reward, progress], axis=1),
                measurements_after=self.describer.measure_after_step(env),
                decisions=decisions,
            )
            self.recorder.record_step(batch_step)
            # Baselines name no system: they have no short-term memory that could hold the step.
            if self.options.system:
                history.remember_step(batch_step, self.describer, self.options.policies)

            rows, observation = drop_ended_rows(env, transition, rows)
            step += 1

        steps = self.recorder.tabulate_steps()
        episodes = self.recorder.tabulate_episodes(steps, history.usages)
        return PlayedEpisodes(episodes, steps, self.exchanges)

    def _describe_states(self, env: BatchedEnv) -> list[dict[str, str]]:
        """The states of all running episodes in words."""
        return [self.describer.describe_state(env, row) for row in range(env.num_envs)]

    # What is known before a decision -------------------------------------------------------------

    def _update_summaries(
        self, env: BatchedEnv, rows: np.ndarray, step: int, state_features: Mapping[str, np.ndarray]
    ) -> None:
        """Let the model rewrite its long-term memory, a summary of each running episode (A.2, Figure 9), where due.

        Args:
            env: The running episodes.
            rows: (running,) their numbers.
            step: Steps that they have taken.
            state_features: States of these episodes in numbers, (running,) by name.
        """
        interval = self.model.summary_interval
        if not interval or "mem_l" not in self.options.components:
            return
        if step == 0 or step % interval:
            return
        states_in_words = self._describe_states(env)
        contexts = self.context_builder.make_summary_contexts(
            rows, step, state_features, states_in_words, interval
        )
        for row, (summary, usage) in zip(rows, self.model.summarize(contexts), strict=True):
            self.history.summaries[row] = summary
            self.history.usages[row].add(usage)

    def _add_plan_values(
        self,
        contexts: list[DecisionContext],
        env: BatchedEnv,
        observation: np.ndarray,
        rows: np.ndarray,
        step: int,
    ) -> list[DecisionContext]:
        """Add the simulated utility of every plan to the contexts, for the upper bound; other models get theirs
        unchanged.

        A plan is a policy for each coming step: one throughout, or one that hands over to another.

        Args:
            contexts: One per running episode.
            env: The running episodes.
            observation: (running, ...) what policies see there.
            rows: (running,) numbers of these episodes.
            step: Steps that they have taken.

        Returns:
            The contexts, each with (plans,) utilities.
        """
        plans = getattr(self.model, "plans", None)
        if plans is None:
            return contexts
        look_ahead = self.episode_set.look_ahead(env, observation, rows, step, plans)
        # Utility: sum over criteria of weight x result, (episodes, plans).
        weights = self.episode_set.weights[rows]
        utilities = (look_ahead.results * weights[:, None]).sum(axis=-1)
        return [
            replace(context, plan_values=plan_values)
            for context, plan_values in zip(contexts, utilities, strict=True)
        ]

    def _try_policies(
        self,
        env: BatchedEnv,
        observation: np.ndarray,
        rows: np.ndarray,
        step: int,
        state_features: Mapping[str, np.ndarray],
    ) -> list[dict[str, ToolResult]]:
        """Simulate every policy on copies of every running episode, for TO and RO.

        KO and baselines may try nothing, and get an empty dictionary for each episode.

        Args:
            env: The running episodes.
            observation: (running, ...) what policies see there.
            rows: (running,) numbers of these episodes.
            step: Steps that they have taken.
            state_features: States of these episodes in numbers, (running,) by name.

        Returns:
            For each episode, the result of trying a policy by the policy's name.
        """
        num_steps = self.options.steps_of_call
        if num_steps == 0:
            return [{} for _ in rows]
        plans = np.repeat(self.menu_index[:, None], num_steps, axis=1)  # (policies, steps)
        look_ahead = self.episode_set.look_ahead(
            env, observation, rows, step, plans, with_measurements=self.model.reads_words
        )
        return make_tool_results(look_ahead, self.describer, state_features, self.options.policies)

    # Deciding ------------------------------------------------------------------------------------

    def _ask_until_decided(
        self,
        contexts: Sequence[DecisionContext],
        tool_results: Sequence[Mapping[str, ToolResult]],
    ) -> list[Decision]:
        """Ask the decision model until it has decided in every running episode.

        The model may try policies on copies of the environment before it decides (section 3.2).

        Args:
            contexts: One per running episode, before any policy is tried.
            tool_results: What trying a policy gives, by episode and policy name. A model that chooses its calls sees
                those that it asks for, any other one sees them all at once.

        Returns:
            Decisions with the usage of all replies of this step, and the policies that were tried.
        """
        contexts = list(contexts)
        if self.options.steps_of_call and not self.model.chooses_calls:
            # Such a model cannot ask, so it gets the results of all policies, in the order of the menu.
            for position, results_by_policy in enumerate(tool_results):
                results = [results_by_policy[name] for name in self.options.policies]
                contexts[position] = replace(
                    contexts[position], tool_results=tuple(results), calls_left=0
                )

        decisions = [Decision() for _ in contexts]
        undecided = list(range(len(contexts)))
        while undecided:
            answers = self.model.decide([contexts[position] for position in undecided])
            for position, answer in zip(undecided, answers, strict=True):
                contexts[position] = _continue_context(
                    contexts[position], answer, tool_results[position]
                )
                # The decision carries the usage and exchanges of earlier replies, too.
                earlier = decisions[position]
                answer.usage.add(earlier.usage)
                answer.exchanges = [*earlier.exchanges, *answer.exchanges]
                decisions[position] = answer
            undecided = [position for position in undecided if decisions[position].calls]

        for context, decision in zip(contexts, decisions, strict=True):
            decision.calls = tuple(result.policy for result in context.tool_results)
        return decisions

    def _choose(self, rows: np.ndarray, decisions: Sequence[Decision], draws: np.ndarray) -> None:
        """Set the policy that acts in each running episode: the model's decision, or the fallback without one.

        Args:
            rows: (running,) numbers of the episodes.
            decisions: One for each, with a distribution over policies.
            draws: (running,) random numbers in [0, 1), for models whose choices are sampled.
        """
        history = self.history
        for row, decision, draw in zip(rows, decisions, draws, strict=True):
            history.usages[row].add(decision.usage)
            if decision.exchanges:
                self.exchanges.setdefault(int(row), []).append(decision)

            probabilities = decision.probabilities
            if probabilities is None:
                # Without money the last policy goes on.
                goes_on = decision.failure == UNFUNDED and history.has_chosen[row]
                if not goes_on:
                    history.chosen_policies[row] = self.options.policies.index(
                        self.options.fallback
                    )
            elif self.model.is_greedy:
                history.chosen_policies[row] = probabilities.argmax()
            else:
                history.chosen_policies[row] = _sample_index(probabilities, draw)
            history.has_chosen[row] = True


def _continue_context(
    context: DecisionContext, answer: Decision, results_by_policy: Mapping[str, ToolResult]
) -> DecisionContext:
    """Update a context after a reply that wants to try policies, for the next question in the same step.

    Args:
        context: The context of the last question.
        answer: The model's reply to it, with the policies that it wants to try.
        results_by_policy: What trying each policy gives in this episode.

    Returns:
        The context with the new results, fewer calls left and a smaller budget.
    """
    if context.budget is not None:
        # The next reply of this step is paid from what this one left.
        remaining_usd = max(context.budget.left - answer.usage.cost_usd, 0.0)
        context = replace(context, budget=replace(context.budget, left=remaining_usd))
    if answer.calls:
        new_results = [results_by_policy[name] for name in answer.calls]
        context = replace(
            context,
            tool_results=(*context.tool_results, *new_results),
            calls_left=context.calls_left - len(new_results),
        )
    return context


def _sample_index(probabilities: np.ndarray, draw: float) -> int:
    """The index that a random number in [0, 1) falls on; probabilities need not sum to 1."""
    edges = np.cumsum(probabilities)
    index = np.searchsorted(edges, draw * edges[-1], side="right")
    return min(int(index), len(probabilities) - 1)
