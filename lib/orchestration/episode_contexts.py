"""The contexts of a batch of episodes: what a decision model gets to read of each episode at each step (Table 1).

What policies would do on copies is added later, by `tool_results`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lib.orchestration.contexts import (
    Budget,
    DecisionContext,
    Interaction,
    Query,
    State,
    round_results,
)
from lib.orchestration.decision_model import DecisionUsage
from lib.orchestration.domain_descriptions import Describer
from lib.orchestration.episode_tables import BatchStep
from lib.orchestration.system_options import SystemOptions


class EpisodeHistory:
    """What came of each episode so far, as far as contexts hold it.

    Attributes:
        interactions: By episode, its past steps.
        summaries: By episode, its long-term memory.
        usages: By episode, the calls, tokens and dollars of its decisions.
        chosen_policies: (episodes,) the policy that acts, as an index of `SystemOptions.policies`.
        has_chosen: (episodes,) whether one has acted.
    """

    def __init__(self, num_episodes: int) -> None:
        self.interactions: list[list[Interaction]] = [[] for _ in range(num_episodes)]
        self.summaries = [""] * num_episodes
        self.usages = [DecisionUsage() for _ in range(num_episodes)]
        self.chosen_policies = np.zeros(num_episodes, dtype=np.int64)
        self.has_chosen = np.zeros(num_episodes, dtype=bool)

    def remember_step(
        self, batch_step: BatchStep, describer: Describer, policies: Sequence[str]
    ) -> None:
        """Add a step to the short-term memory of the running episodes.

        Args:
            batch_step: The states, decisions, actions and rewards of the step.
            describer: Puts into words what the step changed.
            policies: Names of the policies on the menu.
        """
        action_names = list(describer.domain.actions)
        criterion_values = batch_step.criterion_values
        measurements_after = batch_step.measurements_after
        if "lava" in measurements_after:
            # A room rewards avoided lava at its end; memory says of each step what a look-ahead says.
            criterion_values = criterion_values.copy()
            criterion_values[:, 1] = ~measurements_after["lava"]
        for position, episode in enumerate(batch_step.episodes):
            state_in_words: Mapping[str, str] = {}
            change = ""
            if batch_step.states_in_words is not None:
                state_in_words = batch_step.states_in_words[position]
                change = describer.describe_change(
                    _select_episode(batch_step.state_features, position),
                    _select_episode(measurements_after, position),
                )
            self.interactions[episode].append(
                Interaction(
                    step=batch_step.step + 1,
                    state=state_in_words,
                    policy=policies[batch_step.chosen_policies[position]],
                    action=action_names[batch_step.actions[position]],
                    results=round_results(criterion_values[position]),
                    change=change,
                )
            )


class ContextBuilder:
    """Makes the contexts that one system (KO, TO, RO or a baseline) gets to read in a set of episodes.

    `rows` are the numbers of the running episodes, in the order of the environment's rows; a `position` is an index of
    `rows`.
    """

    def __init__(
        self,
        describer: Describer,
        random_streams: np.ndarray,
        weights: np.ndarray,
        options: SystemOptions,
        history: EpisodeHistory,
    ) -> None:
        """Prepare what is the same in all contexts: policy cards, and signatures of the policies as tools.

        Args:
            describer: Reads the domain's states.
            random_streams: (episodes,) uint64, the key of each episode's random numbers.
            weights: (episodes, criteria) of the queries.
            options: What the system may read and try.
            history: What came of these episodes so far; it is read for every context.
        """
        self.describer = describer
        self.random_streams = random_streams
        self.weights = weights
        self.options = options
        self.history = history

        # Cards and signatures stay as they are from step to step.
        self.knowledge = ()
        if "know" in options.components:
            self.knowledge = tuple(options.knowledge[name] for name in options.policies)
        self.tools = ()
        if "tools" in options.components and options.tools:
            self.tools = tuple(options.tools[name] for name in options.policies)

    def make_contexts(
        self,
        rows: np.ndarray,
        step: int,
        state_features: Mapping[str, np.ndarray],
        states_in_words: Sequence[Mapping[str, str]] | None,
    ) -> list[DecisionContext]:
        """Make what the decision model reads about every running episode, before any policy is tried.

        Args:
            rows: (running,) numbers of the episodes.
            step: Number of the step, from 0.
            state_features: The states in numbers, (running,) by name.
            states_in_words: The states in words; None for models that do not read them.

        Returns:
            A context for each episode.
        """
        options = self.options
        num_recent = options.memory if "mem_s" in options.components else 0
        situations = self.describer.name_situations(state_features)
        contexts = []
        for position, row in enumerate(rows):
            state = State(
                features=_read_features(state_features, position),
                words=states_in_words[position] if states_in_words is not None else {},
                situation=situations[position],
            )
            last_policy = ""
            if self.history.has_chosen[row]:
                last_policy = options.policies[self.history.chosen_policies[row]]
            contexts.append(
                replace(
                    self._make_bare_context(row, step, state, num_recent),
                    knowledge=self.knowledge,
                    tools=self.tools,
                    calls_left=options.max_calls if options.steps_of_call else 0,
                    calls_at_once=options.calls_at_once,
                    rollout_steps=options.steps_of_call,
                    last_policy=last_policy,
                )
            )
        return contexts

    def make_summary_contexts(
        self,
        rows: np.ndarray,
        step: int,
        state_features: Mapping[str, np.ndarray],
        states_in_words: Sequence[Mapping[str, str]],
        interval: int,
    ) -> list[DecisionContext]:
        """Contexts from which a language model writes a summary of each running episode, its long-term memory.

        Args:
            rows: (running,) numbers of the episodes.
            step: Number of the step, from 0.
            state_features: Numbers that describe the states, each (running,), by name.
            states_in_words: The same states in words, one per running episode.
            interval: Number of past steps that a context holds: those since the last summary.

        Returns:
            One context per running episode.

        Source: PO (Policy Orchestration), A.2, Figure 9.
        """
        contexts = []
        for position, row in enumerate(rows):
            state = State(
                features=_read_features(state_features, position),
                words=states_in_words[position],
                situation="",  # only cards are read by situation, and a summary has none
            )
            contexts.append(self._make_bare_context(row, step, state, num_recent=interval))
        return contexts

    def _make_bare_context(
        self, row: int, step: int, state: State, num_recent: int
    ) -> DecisionContext:
        """Make the part of a context that every system has: query, state, and short- and long-term memory.

        Args:
            row: Number of the episode.
            step: Number of the step, from 0.
            state: State of the episode.
            num_recent: Past steps in short-term memory.

        Returns:
            The context without policy cards, tools or results.
        """
        weights = tuple(self.weights[row].tolist())
        query = Query(weights, step + 1, self.describer.horizon, self.describer.topic)
        interactions = self.history.interactions[row]
        recent = interactions[-num_recent:] if num_recent else ()
        return DecisionContext(
            system=self.options.system,
            domain=self.describer.domain,
            policies=self.options.policies,
            query=query,
            state=state,
            components=self.options.components,
            recent=tuple(recent),
            summary=self.history.summaries[row],
            budget=self._read_budget(row),
            stream=int(self.random_streams[row]),
            episode=int(row),
        )

    def _read_budget(self, row: int) -> Budget | None:
        """Compute what an episode may still spend on decisions.

        Args:
            row: Number of the episode.

        Returns:
            Total, remaining and mean dollars per call; None where there is no limit.
        """
        total = self.options.budget_usd
        if total is None:
            return None
        usage = self.history.usages[row]
        remaining_usd = max(total - usage.cost_usd, 0.0)
        return Budget(total, remaining_usd, usage.cost_usd / max(usage.calls, 1))


def _read_features(state_features: Mapping[str, np.ndarray], position: int) -> dict[str, float]:
    """The state of one episode in numbers, by name."""
    return {name: float(values[position]) for name, values in state_features.items()}


def _select_episode(values_by_name: Mapping[str, np.ndarray], position: int) -> dict[str, Any]:
    """What arrays over the running episodes, (running, ...) by name, hold for one of them."""
    return {name: values[position] for name, values in values_by_name.items()}
