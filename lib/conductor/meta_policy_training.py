"""How the Conductor learns: REINFORCE on what the rollouts of the last steps were worth.

    grad J = 1/(N G) sum_ij [ A_ij grad log pi(a_ij | h_ij) + lambda grad H(pi(. | h_ij)) ]    MAESTRO, eq. 3

A is the group-relative advantage that the policy itself was paid: the Conductor has no reward of its own.
The triplets (h, a, A) are buffered, and every M steps one update is made of them, on its own time scale.

`Anchored` is ours: the same head, buffer and updates, in which A is replaced by what the emphasised reward had to do
with a quality that somebody verified. Leading dimensions of all tensors are allowed: `stacked` puts many Conductors
side by side, each of which learns what it would learn alone.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from lib.conductor.meta_policy import Conductor, emphasis, entropy, sample
from lib.conductor.rewards import COMPONENTS, centred
from lib.conductor.weighting import Weighting
from lib.config import HeadSettings
from lib.experiment import seeds
from lib.rl import losses
from lib.rl.seed_batched import SeedBatched

VERSION = 1  # of how the Conductor learns
Triplet = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # h (B, d), action (B,), advantage (B,)


def meta_loss(
    conductor: Conductor,
    h: torch.Tensor,
    action: torch.Tensor,
    advantage: torch.Tensor,
    entropy_coefficient: float,
    pairwise: float = 0.0,
    group: int = 1,
) -> torch.Tensor:
    """Equations 5 and 6: what one update minimises.

    h: (..., N, d); action, advantage: (..., N), groups of `group` beside each other; pairwise: weight of
    `pairwise_loss`, the variant of Table 5. Conductors side by side each have their own mean, and losses add up.
    """
    p = conductor(h)
    chosen = p.gather(-1, action[..., None])[..., 0].log()
    loss = -(advantage * chosen).mean(-1) - entropy_coefficient * entropy(p).mean(-1)
    if pairwise:
        loss = loss + pairwise * pairwise_loss(
            chosen.unflatten(-1, (-1, group)), advantage.unflatten(-1, (-1, group))
        )
    return loss.sum()


def pairwise_loss(chosen: torch.Tensor, advantage: torch.Tensor) -> torch.Tensor:
    """-log sigmoid(log pi(a_i) - log pi(a_j)) over the pairs of a group in which i did better than j.

    chosen, advantage: (..., groups, G). The paper names a pairwise perturbation and does not write it down.
    Differences of advantages would change nothing: centred in the group, they are eq. 5 times G. So the
    variant is the logistic one, which only asks who did better (decision). 0 where nobody did.
    """
    better = advantage[..., :, None] > advantage[..., None, :]
    margin = chosen[..., :, None] - chosen[..., None, :]
    over = (-3, -2, -1)
    return -(nn.functional.logsigmoid(margin) * better).sum(over) / better.sum(over).clamp(min=1)


class Conducted(Weighting):
    """The Conductor at work: draws an emphasis for every rollout, learns from what came of it.

    In homogeneous mode a group shares one context (its mean) and one action: what the paper calls naive,
    because centred advantages then cancel in eq. 5; what is left is rounding, which AdamW blows up into steps
    that mean nothing. In joint mode there is no REINFORCE: the weights stay in the policy's own loss, whose
    gradient is followed after every step (Table 6).
    """

    def __init__(self, width: int, settings: HeadSettings, group: int, seed: int) -> None:
        """width: of h; group: rollouts per prompt; seed: of the drawn actions."""
        self.settings, self.group, self.centred = settings, group, settings.centred
        self.conductor = Conductor(width, len(COMPONENTS), settings.floor, settings.temperature)
        self.optimiser = torch.optim.AdamW(self.conductor.parameters(), lr=settings.learning_rate)
        self.stream = seeds.key("conductor", "emphasis", seed=seed)
        self.held: list[Triplet] = []
        self.pending: tuple[torch.Tensor, torch.Tensor] | None = None
        self.updates = 0

    def __call__(self, h: torch.Tensor, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        self._move(h.device)
        h = self._contexts(h)
        with torch.set_grad_enabled(self.settings.joint):
            p = self.conductor(h)
            action = self._draw(p.detach(), step)
            self.pending = h, action
            weights = emphasis(p, action, self.settings.kappa)
        if (
            weights.requires_grad
        ):  # the deviation that advantages are divided by has no slope where all are paid alike
            weights.register_hook(lambda slope: slope.nan_to_num(0.0, 0.0, 0.0))
        return weights, action

    @torch.no_grad()
    def settled(self, h: torch.Tensor) -> torch.Tensor:
        self._move(h.device)
        return self.conductor(h.float())

    def learn(
        self,
        advantage: torch.Tensor,
        rewards: torch.Tensor | None = None,
        quality: torch.Tensor | None = None,
        prompt: torch.Tensor | None = None,
    ) -> None:
        """Keep the step's triplets; update if `every` steps are held."""
        if self.pending is None or self.settings.joint:
            return
        h, action = self.pending
        pay = self._pay(advantage.detach(), action, rewards, quality, prompt)
        self.held.append((h.detach(), action, pay))
        self.pending = None
        if len(self.held) == self.settings.every:
            h, action, advantage = (
                torch.cat(part, dim=pay.ndim - 1) for part in zip(*self.held, strict=True)
            )
            settings = self.settings
            meta_loss(
                self.conductor,
                h,
                action,
                advantage,
                settings.entropy,
                settings.pairwise,
                self.group,
            ).backward()
            self.held = []
            self._update()

    def _pay(self, advantage: torch.Tensor, action, rewards, quality, prompt) -> torch.Tensor:
        """What each drawn emphasis is paid: here the advantage of its rollout (eq. 3)."""
        return advantage

    def after_step(self) -> None:
        """In joint mode, the gradient that the policy's loss left."""
        if self.settings.joint and next(self.conductor.parameters()).grad is not None:
            self._update()

    def _update(self) -> None:
        self.optimiser.step()
        self.optimiser.zero_grad()
        self.updates += 1

    def _move(self, device: torch.device) -> None:
        """Everything to where the states are; a checkpoint is read before that is known."""
        if next(self.conductor.parameters()).device != device:
            self.conductor.to(device)
            for state in self.optimiser.state.values():
                state |= {
                    name: tensor.to(device) for name, tensor in state.items() if name != "step"
                }
        self.held = [tuple(tensor.to(device) for tensor in triplet) for triplet in self.held]

    def _contexts(self, h: torch.Tensor) -> torch.Tensor:
        """h as float32; in homogeneous mode the group's mean for all of it."""
        h = h.detach().float()
        if not self.settings.homogeneous:
            return h
        return h.unflatten(-2, (-1, self.group)).mean(-2).repeat_interleave(self.group, -2)

    def _draw(self, p: torch.Tensor, step: int) -> torch.Tensor:
        numbers = np.arange(p.shape[-2])
        if self.settings.homogeneous:
            numbers = numbers // self.group * self.group  # one number per group
        return sample(
            p,
            torch.from_numpy(seeds.uniform(self.stream, step * p.shape[-2] + numbers)).to(p.device),
        )

    def state(self) -> dict[str, np.ndarray]:
        out = {f"conductor.{name}": t for name, t in self.conductor.state_dict().items()}
        for i, state in self.optimiser.state_dict()["state"].items():
            out |= {
                f"optimiser.{i}.{name}": torch.as_tensor(value) for name, value in state.items()
            }
        for i, triplet in enumerate(self.held):
            out |= {
                f"held.{i}.{name}": t
                for name, t in zip(("h", "action", "advantage"), triplet, strict=True)
            }
        out["updates"] = torch.tensor(self.updates)
        return {name: tensor.detach().cpu().numpy().copy() for name, tensor in out.items()}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Go on from `state`. Raises KeyError or RuntimeError where the arrays are of another Conductor."""
        parts: dict[str, dict[str, torch.Tensor]] = {"conductor": {}, "optimiser": {}, "held": {}}
        for name, array in arrays.items():
            part, _, rest = name.partition(".")
            if part in parts:
                parts[part][rest] = torch.from_numpy(np.array(array))
        self.conductor.load_state_dict(parts["conductor"])
        whole = self.optimiser.state_dict()
        whole["state"] = {}
        for name, tensor in parts["optimiser"].items():
            i, key = name.split(".", 1)
            whole["state"].setdefault(int(i), {})[key] = tensor
        self.optimiser.load_state_dict(whole)
        steps = sorted({int(name.split(".")[0]) for name in parts["held"]})
        self.held = [
            tuple(parts["held"][f"{i}.{name}"] for name in ("h", "action", "advantage"))
            for i in steps
        ]
        self.updates = int(arrays["updates"])


class Anchored(Conducted):
    """The anchored Conductor (ours): on a share of the prompts somebody verified the replies, and an emphasis is paid

        B = (r_a - mean of r_a in its group) * z / share,    z: verified quality, standardised in the group

    on those prompts and nothing on others. Its mean over the group is the covariance of the emphasised reward with
    quality: a reward is worth emphasising where it ranks replies as the truth does. The policy is paid as before, by
    the weighed rewards alone; verified quality reaches it through the weights only.
    """

    def __init__(self, width: int, settings: HeadSettings, group: int, seed: int) -> None:
        super().__init__(width, settings, group, seed)
        self.lot = lots([seed])

    def _pay(self, advantage, action, rewards, quality, prompt) -> torch.Tensor:
        if rewards is None or quality is None or prompt is None:
            raise ValueError(
                "an anchored Conductor must be told rewards, verified quality and prompts"
            )
        own = centred(rewards.detach().flatten(0, -2), self.group).gather(
            -1, action.flatten()[:, None]
        )[:, 0]
        z = losses.compute_group_advantages(quality.to(own).flatten(), self.group)
        known = chosen(self.lot, prompt, self.settings.verified).to(own)
        return (own * z).view_as(advantage) * known / max(self.settings.verified, 1e-9)


def stacked(one: Conducted, names: Sequence[int]) -> Conducted:
    """`one`, made into as many Conductors side by side as there are seeds in `names`, for tensors (S, B, ...)."""
    one.conductor = SeedBatched([one.conductor] * len(names))
    one.optimiser = torch.optim.AdamW(one.conductor.parameters(), lr=one.settings.learning_rate)
    one.stream = np.array([seeds.key("conductor", "emphasis", seed=s) for s in names])[:, None]
    one.lot = lots(names)
    return one


def lots(names: Sequence[int]) -> np.ndarray:
    """The stream of each seed that says which prompts are verified, (S, 1), or (1,) for one seed alone."""
    keys = np.array([seeds.key("conductor", "verified prompts", seed=seed) for seed in names])
    return keys if len(names) == 1 else keys[:, None]


def chosen(lot: np.ndarray, prompt: torch.Tensor, share: float) -> torch.Tensor:
    """Which rollouts belong to a prompt that somebody verifies, by lot, once and for all: bool, as `prompt`."""
    return torch.from_numpy(seeds.uniform(lot, prompt.cpu().numpy()) < share).to(prompt.device)
