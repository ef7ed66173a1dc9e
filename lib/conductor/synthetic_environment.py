"""A synthetic environment whose optimum is known: prompts, candidate replies with a true quality, and five rewards.

Prompts belong to categories. Each prompt has candidate replies x with the true quality q = u_c . x, and five rewards:
an easy one that most replies get, and four proxies. Proxy c agrees with quality in category c (correlation
`matching_agreement`); the other three agree less there (`other_agreement`). The best reply of every prompt is found by
enumeration. Left out: tokens; a reply is one decision.

A policy has a weight vector theta_c per category c and chooses reply x with probability softmax(theta_c . x). The state
that a Conductor reads is the category, one-hot, and x.

All seeds of all settings stand in one tensor. Letters of shapes: W settings, S seeds, C categories, N prompts of a
step, G rollouts of a prompt, M candidates of a prompt, D features of a reply, P proxies, K rewards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch.nn.functional import one_hot

from lib.conductor.meta_policy import sample_actions
from lib.conductor.rewards import COMPONENTS, normalize_rewards
from lib.config import ConductorSyntheticSettings
from lib.experiment import seeds

PROXIES = COMPONENTS[1:]  # the first reward is the easy one
JUDGE_AGREEMENT = 0.7  # of the judge with quality; it errs about the same replies every time
VERIFIER_ERROR_RATE = 0.2  # of the verifier that errs
STREAM = "glass"  # of all random numbers; under another name they would be others


@dataclass(frozen=True)
class RewardSetting:
    """How far the rewards of an environment agree with quality.

    Attributes:
        matching_agreement: Correlation of a category's own proxy with quality.
        other_agreement: Correlation of the other three proxies with quality.
        noise: Standard deviation of what is added to every proxy, whose own is 1.
        easy_fraction: Fraction of the replies that get the easy reward.
    """

    matching_agreement: float
    other_agreement: float
    noise: float = 0.0
    easy_fraction: float = 1.0

    @property
    def condition(self) -> str:
        """The setting as the results table names it."""
        return (
            f"matching {self.matching_agreement:g}, other {self.other_agreement:g}, "
            f"noise {self.noise:g}, easy {self.easy_fraction:g}"
        )


@dataclass
class SyntheticRollouts:
    """One step's rollouts of every environment, (W S, N G), groups side by side.

    Attributes:
        log_probs: Log-probabilities of the chosen candidates, with their gradient.
        h: (W S, N G, C + D) states that a Conductor reads.
        rewards: (W S, N G, K) normalised rewards.
        quality: True quality.
        checked_quality: What a verifier or judge says of it.
        prompt: Numbers of the prompts.
    """

    log_probs: torch.Tensor
    h: torch.Tensor
    rewards: torch.Tensor
    quality: torch.Tensor
    checked_quality: torch.Tensor
    prompt: torch.Tensor


class BatchedEnvironments:
    """Environments of several settings and seeds side by side.

    Seed s has the same directions, prompts and random numbers in every setting and under every method.

    Attributes:
        seed_names: Seed of each of the W * S rows.
        width: Width of the states that a Conductor reads, C + D.
        quality_directions: (W S, C, D) unit vectors u_c.
        proxy_directions: (W S, C, P, D) unit vectors.
        judge_directions: (W S, C, D) unit vectors of the judge's opinion.
    """

    def __init__(
        self,
        settings: ConductorSyntheticSettings,
        reward_settings: Sequence[RewardSetting],
        num_seeds: int,
        split: str = "test",
    ) -> None:
        """Draw the directions in feature space along which quality, proxies and judge measure a reply.

        Args:
            settings: Sizes of the environment.
            reward_settings: How far rewards agree with quality, W of them.
            num_seeds: S.
            split: `dev` has other environments than `test`.
        """
        self.settings = settings
        self.reward_settings = list(reward_settings)
        self.num_seeds = num_seeds
        self.split = split
        self.seed_names = [seed for _ in reward_settings for seed in range(num_seeds)]
        self.width = settings.categories + settings.features

        # u is the direction of quality.
        num_proxies = len(PROXIES)
        shape = num_seeds, settings.categories
        u = _normalize(self._draw_normals("quality", *shape, settings.features))  # (S, C, D)

        # v are directions orthogonal to it, one for each proxy and one for the judge.
        raw = self._draw_normals("proxies", *shape, num_proxies + 1, settings.features)
        along_quality = (raw * u[:, :, None]).sum(-1, keepdim=True) * u[:, :, None]
        v = _normalize(raw - along_quality)  # (S, C, P + 1, D)

        # A proxy with correlation rho is rho u + sqrt(1 - rho^2) v.
        agreements = [_list_agreements(setting, settings.categories) for setting in reward_settings]
        rho = torch.stack(agreements)[:, None, :, :, None]  # (W, 1, C, P, 1)
        proxies = rho * u[None, :, :, None]
        proxies = proxies + (1 - rho**2).sqrt() * v[None, :, :, :num_proxies]  # (W, S, C, P, D)
        self.proxy_directions = proxies.flatten(0, 1)
        self.quality_directions = self.repeat_over_settings(u)

        # The judge is made like a proxy, from the last of the orthogonal directions.
        judge = JUDGE_AGREEMENT * u + (1 - JUDGE_AGREEMENT**2) ** 0.5 * v[:, :, -1]
        self.judge_directions = self.repeat_over_settings(judge)

        # One number per row of the W * S environments.
        noise = []
        easy_fraction = []
        for setting in reward_settings:
            noise += [setting.noise] * num_seeds
            easy_fraction += [setting.easy_fraction] * num_seeds
        self.noise = torch.tensor(noise)[:, None, None]  # (W S, 1, 1)
        self.easy_fraction = torch.tensor(easy_fraction)[:, None, None]

    def _draw_normals(self, name: str, *shape: int) -> torch.Tensor:
        """Draw standard normal numbers from the stream of this name."""
        normals = seeds.rng(STREAM, self.split, name).standard_normal(shape)
        return torch.from_numpy(normals).float()

    def repeat_over_settings(self, values: torch.Tensor) -> torch.Tensor:
        """Repeat (S, ...) to (W * S, ...): every setting has the same."""
        return values.repeat(len(self.reward_settings), *[1] * (values.ndim - 1))

    def roll_out(
        self, theta: torch.Tensor, step: int, head_input: str = "both", checker: str = "verifier"
    ) -> SyntheticRollouts:
        """Sample the replies of one training step from the policies, and compute their rewards.

        Args:
            theta: (W S, C, D) weights of the softmax policies.
            step: Number of the step; it selects the random numbers.
            head_input: What h holds, as of `make_states`.
            checker: Who says what quality is: `verifier`, `verifier with errors` or `judge`.

        Returns:
            The replies of N prompts, G each, with their log-probabilities, rewards and quality.
        """
        s = self.settings
        draws = self._draw_step(step)  # random numbers by name
        category = draws["category"]  # (W S, N)
        row = torch.arange(len(theta))[:, None]

        # The policy chooses among the candidates, G times for every prompt.
        logits = (draws["candidates"] @ theta[row, category][..., None])[..., 0]  # (W S, N, M)
        log_probs = logits.log_softmax(-1)
        probabilities = log_probs.detach().exp()[:, :, None].expand(-1, -1, s.group, -1)
        choice = sample_actions(probabilities, draws["choice"])  # (W S, N, G)
        feature_index = choice[..., None].expand(-1, -1, -1, s.features)
        x = draws["candidates"].gather(2, feature_index)  # (W S, N, G, D)

        # What the replies are worth, and what the rewards say.
        quality = self._project(x, self.quality_directions[row, category])
        rewards = self._compute_rewards(x, row, category, draws)
        checked = quality
        if checker == "judge":
            checked = self._project(x, self.judge_directions[row, category])
        elif checker == "verifier with errors":
            # Where it errs it gives the quality of the reply beside it in the group.
            is_wrong = draws["error"] < VERIFIER_ERROR_RATE
            checked = torch.where(is_wrong, quality.roll(1, -1), quality)

        # The states that a Conductor reads, and numbers of prompts that no two steps share.
        h = make_states(s.categories, head_input, category, x, draws["order"])
        first_prompt = step * s.prompts
        prompt = (first_prompt + torch.arange(s.prompts)).repeat_interleave(s.group)
        return SyntheticRollouts(
            log_probs=log_probs.gather(2, choice).flatten(1, 2),
            h=h.flatten(1, 2),
            rewards=rewards.flatten(1, 2),
            quality=quality.flatten(1, 2),
            checked_quality=checked.flatten(1, 2),
            prompt=prompt.expand(len(theta), -1),
        )

    def _project(self, x: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
        """Project replies on the direction of their prompt: sum over D of (W S, N, G, D) times (W S, N, D)."""
        return torch.einsum("sngd,snd->sng", x, directions)

    def _compute_rewards(
        self, x: torch.Tensor, row: torch.Tensor, category: torch.Tensor, draws: dict
    ) -> torch.Tensor:
        """Compute the five normalised rewards of replies.

        Args:
            x: (W S, N, G, D) features of the replies.
            row: (W S, 1) number of each environment.
            category: (W S, N) categories of the prompts.
            draws: Random numbers of the step, of `_draw_step`.

        Returns:
            (W S, N, G, K) rewards in [0, 1].
        """
        # Proxies: sum over D of features times direction, (W S, N, G, P).
        directions = self.proxy_directions[row, category]  # (W S, N, P, D)
        proxies = torch.einsum("sngd,snkd->sngk", x, directions)
        noise = self.noise[..., None]
        noisy = (proxies + noise * draws["noise"]) / (1 + noise**2).sqrt()  # deviation 1 again

        # The easy reward: 1 for a random fraction of the replies, whatever they are worth.
        easy = (draws["easy"] < self.easy_fraction).float()[..., None]

        # The first two proxies are ranked in their group below, as r_ppl and r_ent are; a sigmoid brings the others
        # into [0, 1].
        ranked_later = noisy[..., :2]
        in_unit_interval = noisy[..., 2:].sigmoid()
        measured = torch.cat([easy, ranked_later, in_unit_interval], -1)

        # Groups side by side, (W S N G, K), as the trainer has them.
        flat = normalize_rewards(measured.flatten(0, 2), COMPONENTS, self.settings.group)
        return flat.view_as(measured)

    def _draw_step(self, step: int) -> dict[str, torch.Tensor]:
        """Draw all random numbers of a step, the same for every setting of the rewards.

        Args:
            step: Number of the step.

        Returns:
            (W S, N, ...) tensors by name: W settings, S seeds, N prompts.
        """
        s = self.settings
        draws = _draw_step(
            self.split,
            step,
            self.num_seeds,
            s.prompts,
            s.candidates,
            s.features,
            s.group,
            s.categories,
        )
        return {name: self.repeat_over_settings(values) for name, values in draws.items()}


def make_states(
    num_categories: int,
    head_input: str,
    category: torch.Tensor,
    x: torch.Tensor,
    order: torch.Tensor,
) -> torch.Tensor:
    """Make the states that a Conductor reads: the prompt's category, one-hot, and the features of the reply.

    Args:
        num_categories: C.
        head_input: `both`; `prompt` or `reply`, without the other half; `shuffled`, the state of another rollout.
        category: (W S, N) categories of the prompts.
        x: (W S, N, G, D) features of the replies.
        order: (W S, N, G) random numbers that shuffle the rollouts.

    Returns:
        (W S, N, G, C + D) states.
    """
    prompt_features = one_hot(category, num_categories).float()
    prompt_features = prompt_features[:, :, None].expand(*x.shape[:-1], -1)  # (W S, N, G, C)

    # The half that is left out is 0, so that h always has the same width.
    reads_prompt = head_input != "reply"
    reads_reply = head_input != "prompt"
    h = torch.cat([prompt_features * reads_prompt, x * reads_reply], -1)
    if head_input != "shuffled":
        return h

    flat = h.flatten(1, 2)  # (W S, N G, C + D)
    # A random permutation of a row, which may bring a state back to its own rollout.
    shuffled = order.flatten(1).argsort(-1)
    return flat.gather(1, shuffled[..., None].expand_as(flat)).view_as(h)


def _normalize(vectors: torch.Tensor) -> torch.Tensor:
    """Scale vectors (..., D) to length 1."""
    return vectors / vectors.norm(dim=-1, keepdim=True)


def _list_agreements(setting: RewardSetting, num_categories: int) -> torch.Tensor:
    """List the correlations of the proxies with quality by category, (C, P)."""
    # Proxy c is the good one of category c: the diagonal.
    rho = torch.full((num_categories, len(PROXIES)), setting.other_agreement)
    diagonal = torch.arange(num_categories)
    rho[diagonal, diagonal] = setting.matching_agreement
    return rho


@lru_cache(maxsize=1024)
def _draw_step(
    split: str,
    step: int,
    num_seeds: int,
    prompts: int,
    candidates: int,
    features: int,
    group: int,
    categories: int,
) -> dict[str, torch.Tensor]:
    """Draw the random numbers of one step for several seeds; those of a seed do not depend on how many there are.

    Args:
        split: `dev` or `test`.
        step: Number of the step.
        num_seeds: S.
        prompts: N, of a step.
        candidates: M, replies that a policy chooses from.
        features: D, of a reply.
        group: G, rollouts of a prompt.
        categories: C, of prompts.

    Returns:
        By name. category: (S, N); candidates: (S, N, M, D) features; choice, easy, error and order: (S, N, G) uniform
        numbers; noise: (S, N, G, P).
    """

    def stream(name: str) -> np.random.Generator:
        return seeds.rng(STREAM, split, name, step)

    rollouts = num_seeds, prompts, group
    replies = num_seeds, prompts, candidates, features
    arrays = {
        "category": stream("categories").integers(categories, size=(num_seeds, prompts)),
        "candidates": stream("replies").standard_normal(replies, dtype=np.float32),
        "choice": stream("picks").random(rollouts),
        "easy": stream("easy").random(rollouts, dtype=np.float32),
        "noise": stream("noise").standard_normal((*rollouts, len(PROXIES)), dtype=np.float32),
        "error": stream("errs").random(rollouts, dtype=np.float32),
        "order": stream("order").random(rollouts, dtype=np.float32),
    }
    return {name: torch.from_numpy(values) for name, values in arrays.items()}
