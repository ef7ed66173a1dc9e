"""What is learned from training students and rooms, whom no method is tested on: the mean results on policy cards, and
the contexts that LinUCB (a linear contextual bandit) is fitted on.
"""

from collections.abc import Sequence

import numpy as np

from lib.orchestration.baseline_models import RandomModel
from lib.orchestration.contexts import DecisionContext, Rewards, round_results
from lib.orchestration.decision_model import Decision
from lib.orchestration.episode_batch import EpisodeSet
from lib.orchestration.system_options import SystemOptions


class _RecordingRandomModel(RandomModel):
    """Chooses policies at random, and keeps every context that it was asked to decide in.

    Attributes:
        contexts: In the order in which they came.
    """

    def __init__(self) -> None:
        self.contexts: list[DecisionContext] = []

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        self.contexts.extend(contexts)
        return super().decide(contexts)


def collect_training_contexts(episode_set: EpisodeSet, num_steps: int) -> list[DecisionContext]:
    """Play training episodes with random choice of policies, and return the context of every decision.

    A context holds the state, and what each policy does on copies of it.

    Args:
        episode_set: The training episodes.
        num_steps: Steps that each policy is simulated for, on copies of each state.

    Returns:
        Contexts with the results of every policy, which the random choice did not look at.
    """
    model = _RecordingRandomModel()
    episode_set.play(model, SystemOptions(system="RO", rollout_steps=num_steps))
    return model.contexts


def average_results_by_situation(
    episode_set: EpisodeSet, num_steps: int
) -> dict[str, dict[str, Rewards]]:
    """Average the results of each policy in each situation, as policy cards state them.

    A situation is a coarse description of a state, such as "mastery low, failed questions open". Each state of the
    training episodes is one sample: every policy is simulated on copies of it.

    Args:
        episode_set: The training episodes.
        num_steps: Steps that each policy is simulated for.

    Returns:
        Policy -> situation -> mean result per criterion (objectives, then further measures), over the states in the
        situation. A situation that no state is in has the mean over all states.
    """
    contexts = collect_training_contexts(episode_set, num_steps)
    policies = contexts[0].policies
    situation_of_context = np.array([context.state.situation for context in contexts])
    results_of_contexts = []
    for context in contexts:
        results_by_policy = context.results_by_policy()
        results_of_contexts.append([results_by_policy[name] for name in policies])
    results = np.array(results_of_contexts)  # (contexts, policies, criteria)

    averages: dict[str, dict[str, Rewards]] = {}
    for index, name in enumerate(policies):
        averages[name] = {}
        for situation in episode_set.describer.situations:
            results_of_policy = results[:, index]  # (contexts, criteria)
            is_in_situation = situation_of_context == situation
            # A card has a line for every situation, also for one that no training episode came to.
            if is_in_situation.any():
                results_of_policy = results_of_policy[is_in_situation]
            averages[name][situation] = round_results(results_of_policy.mean(axis=0))
    return averages
