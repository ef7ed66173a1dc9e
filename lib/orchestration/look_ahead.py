"""Look-aheads: what policies, or plans of several policies, do on copies of the episodes under way.

Copies draw fresh random numbers: what they show may happen, it is not what will. All plans of an episode meet the same
numbers, so they differ by what they do.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lib.envs.batched_env import BatchedEnv, Transition
from lib.experiment import seeds
from lib.orchestration.domain_descriptions import Describer
from lib.orchestration.menus import Menu

# Streams of random numbers, apart from the environment's own: of policies that draw their actions, and of copies.
ACTION_DRAWS = np.uint64(0xAC7)
COPY_DRAWS = np.uint64(0xC0B1)
_MAX_COPIES = 4096  # of an episode at one step; more would share random numbers with the next step


@dataclass
class LookAhead:
    """What plans did on copies of the running episodes.

    Attributes:
        results: (episodes, plans, criteria) mean over copies.
        actions: (steps, episodes, plans) actions of the first copy, -1 after its end.
        alive: (steps, episodes, plans, copies) whether a copy was still running.
        measurements: By step and name, what was measured after it, such as mastery, (episodes, plans, copies, ...);
            empty unless they are described in words.
    """

    results: np.ndarray
    actions: np.ndarray
    alive: np.ndarray
    measurements: list[dict[str, np.ndarray]]


class PlanSimulator:
    """Follows plans on copies of running episodes. A plan is a policy for each coming step.

    Attributes:
        copies: The environment that is overwritten by the copies of each look-ahead.
    """

    def __init__(
        self, copies: BatchedEnv, describer: Describer, menu: Menu, random_streams: np.ndarray
    ) -> None:
        """Prepare to simulate plans of policies on copies of episodes; nothing is simulated yet.

        Args:
            copies: An environment by the rules of the episodes; its rows do not matter.
            describer: Reads the domain's states.
            menu: The policies that can act.
            random_streams: (all episodes,) uint64, the key of each episode's random numbers.
        """
        self.copies = copies
        self.describer = describer
        self.menu = menu
        self.random_streams = random_streams

    def follow_plans(
        self,
        env: BatchedEnv,
        observation: np.ndarray,
        rows: np.ndarray,
        step: int,
        plans: np.ndarray,
        num_copies: int,
        with_measurements: bool = False,
    ) -> LookAhead:
        """Simulate every plan from the state of every running episode, on copies of the environment.

        A plan names the policy that acts at each coming step. A copy that has ended counts no further.

        Args:
            env: The running episodes.
            observation: (episodes, ...) what policies see there.
            rows: (episodes,) numbers of these episodes among all.
            step: Steps that they have taken.
            plans: (plans, steps) index of the policy that acts at each step.
            num_copies: Copies of an episode for each plan.
            with_measurements: Whether to keep what prompts describe, such as mastery after each step.

        Returns:
            Mean results (episodes, plans, criteria), with the actions and which copies were still running, by step.
        """
        num_plans, num_steps = plans.shape
        shape = (len(rows), num_plans, num_copies)
        num_rollouts = int(np.prod(shape))
        copies = self.copies

        # A rollout is one copy of an episode under one plan.
        episode_of_rollout = np.repeat(np.arange(len(rows)), num_plans * num_copies)
        plan_of_rollout = np.tile(np.repeat(np.arange(num_plans), num_copies), len(rows))
        policies = plans[plan_of_rollout]  # (rollouts, steps)
        copies.restore(env.state(), rows=episode_of_rollout)
        copies.key = self._make_copy_keys(rows, step, num_plans, num_copies)
        action_streams = seeds.next_key(copies.key ^ ACTION_DRAWS)
        action_draws = seeds.uniform(action_streams[:, None], np.arange(num_steps))

        num_criteria = len(self.describer.domain.criteria)
        total = np.zeros((num_rollouts, num_criteria))  # of rewards, over steps
        length = np.zeros(num_rollouts)
        on_lava = np.zeros(num_rollouts, dtype=bool)
        actions = np.full((num_steps, num_rollouts), -1)
        alive = np.zeros((num_steps, num_rollouts), dtype=bool)
        measurements: list[dict[str, np.ndarray]] = []

        running = np.arange(num_rollouts)  # rollouts that have not ended, the rows of `copies`
        observation = observation[episode_of_rollout]
        for plan_step in range(num_steps):
            draws = action_draws[running, plan_step]
            action = self.menu.act(copies, policies[running, plan_step], observation, draws)
            features_before = self.describer.read_state_features(copies)
            transition = copies.advance(action, restart=False)
            progress = self.describer.measure_progress(features_before, copies)

            total[running] += np.concatenate([transition.reward, progress], axis=1)
            length[running] += 1
            actions[plan_step, running] = action
            alive[plan_step, running] = True
            if self.describer.domain.name == "minigrid":
                on_lava[running] = copies.outcomes["lava"]
            if with_measurements:
                after_step = self.describer.measure_after_step(copies)
                measurements.append(_place_in_all_rollouts(after_step, running, shape))

            running, observation = drop_ended_rows(copies, transition, running)
            if not running.size:
                break

        if self.describer.averages_over_steps:
            total /= length[:, None]
        else:
            # Within a few steps no episode pays for having avoided lava: count the copies that did.
            total[:, 1] = ~on_lava
        return LookAhead(
            results=total.reshape(*shape, num_criteria).mean(axis=2),
            actions=actions.reshape(num_steps, *shape)[..., 0],
            alive=alive.reshape(num_steps, *shape),
            measurements=measurements,
        )

    def _make_copy_keys(
        self, rows: np.ndarray, step: int, num_plans: int, num_copies: int
    ) -> np.ndarray:
        """Make the key of random numbers of every rollout, the same under every plan.

        Args:
            rows: (episodes,) numbers of the episodes.
            step: Steps that they have taken.
            num_plans: Plans that are simulated from each episode.
            num_copies: Copies of an episode for each plan.

        Returns:
            (episodes * plans * copies,) uint64 keys.
        """
        first_copy = np.uint64(step * _MAX_COPIES)
        copy_numbers = first_copy + np.arange(num_copies, dtype=np.uint64)
        copy_streams = self.random_streams[rows] ^ COPY_DRAWS  # (episodes,)
        with np.errstate(over="ignore"):  # keys wrap around
            keys = seeds.next_key(copy_streams[:, None] + copy_numbers)  # (episodes, copies)
        keys_by_plan = np.repeat(keys[:, None], num_plans, axis=1)  # (episodes, plans, copies)
        return keys_by_plan.ravel()


def _place_in_all_rollouts(
    values_by_name: Mapping[str, np.ndarray], running: np.ndarray, shape: tuple[int, ...]
) -> dict[str, np.ndarray]:
    """Extend arrays over the running rollouts to all rollouts, with 0 for those that have ended.

    Args:
        values_by_name: (running, ...) by name.
        running: (running,) which rollouts they are.
        shape: (episodes, plans, copies).

    Returns:
        By name, (episodes, plans, copies, ...).
    """
    num_rollouts = int(np.prod(shape))
    placed = {}
    for name, values in values_by_name.items():
        inner_shape = values.shape[1:]
        values_of_all = np.zeros((num_rollouts, *inner_shape), dtype=values.dtype)
        values_of_all[running] = values
        placed[name] = values_of_all.reshape(*shape, *inner_shape)
    return placed


def drop_ended_rows(
    env: BatchedEnv, transition: Transition, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Drop the episodes that ended with the last step from a batched environment.

    Args:
        env: The running episodes; changed in place.
        transition: Transition of the last step.
        rows: (rows,) numbers of the episodes in `env`.

    Returns:
        Those of `rows` that go on, and their observations.
    """
    if not transition.done.any():
        return rows, transition.observation
    running = np.flatnonzero(~transition.done)
    env.restore(env.state(), rows=running)
    return rows[running], transition.observation[running]
