"""CoRL's training in the synthetic environment: episodes are sampled, and the controllers are updated by PPO.

Reward, clipped objective, generalized advantage estimation (GAE) over masked sequences and the penalty are those of the
lab, from `rl.budget_reward` and `rl.losses`. An episode is a sequence of T = 3 tokens: the controller's first choice,
the expert's reply, and the controller's second choice. The reply is no token of the controller's and is masked, as in
CoRL's eq. 4. From top to bottom:

    VARIANTS                 what is trained: CoRL, and CoRL with one part changed
    sample_episodes          controllers choose, experts reply, episodes are rewarded
    train_controllers        updates, until their number is reached
    update_controllers       advantages, then epochs of gradient steps

Letters of shapes: G controllers, r episodes of each (rows), m rows of a minibatch, T = 3 tokens, K kinds of queries,
A options.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lib.budgeted_routing.synthetic_controllers import BatchedControllers
from lib.budgeted_routing.synthetic_environment import (
    BUDGETS,
    RoutingEnvironments,
    draw_uniforms,
    make_queries,
)
from lib.config import LearnSettings, RoutingSyntheticSettings
from lib.rl import budget_reward, losses


@dataclass(frozen=True)
class SyntheticRoutingVariant:
    """One way to train controllers in the synthetic environment.

    Attributes:
        name: Name of the method in tables.
        budget_in_prompt: Whether the controller reads the budget.
        budget_in_reward: Whether an episode beyond the budget gets no reward (CoRL, eq. 7), or correctness alone is
            rewarded (r_p).
        whiten_over: Advantages are whitened over the episodes of each budget, or over the whole batch.
        fixed_budget: The one budget of all training episodes (CoRL, section 5); None gives each budget a third of them.
    """

    name: str
    budget_in_prompt: bool = True
    budget_in_reward: bool = True
    whiten_over: Literal["budget", "batch"] = "budget"
    fixed_budget: str | None = None


CORL = SyntheticRoutingVariant("CoRL")
# CoRL with one part changed.
ABLATIONS = (
    SyntheticRoutingVariant("whitened over all budgets", whiten_over="batch"),
    SyntheticRoutingVariant("budget not in the prompt", budget_in_prompt=False),
    SyntheticRoutingVariant("budget not in the reward", budget_in_reward=False),
)
FIXED_BUDGET_VARIANTS = tuple(
    SyntheticRoutingVariant(
        f"{budget} budget only", budget_in_prompt=False, whiten_over="batch", fixed_budget=budget
    )
    for budget in ("low", "high")
)
VARIANTS = (CORL, *ABLATIONS, *FIXED_BUDGET_VARIANTS)


@dataclass(frozen=True)
class SyntheticEpisodes:
    """r episodes of G controllers, two choices each; row i is under budget i % 3 unless the budget is fixed.

    Attributes:
        inputs: (G, r, 2, inputs) what the network read before the first and the second choice.
        options: (G, r, 2) the options that were sampled: 0 answers or hands on the reply, others call an expert.
        mask: (G, r, 3) bool, True at tokens of the controller, of the three tokens first choice, reply and second
            choice. There is a second choice only after a call.
        old_logprobs: (G, r, 3) log-probabilities of the options when they were sampled, 0 where the mask is False.
        values: (G, r, 3) estimate V of the reward before each choice, 0 where the mask is False.
        rewards: (G, r) 1 for a correct answer within the budget, else 0.
    """

    inputs: Tensor
    options: Tensor
    mask: Tensor
    old_logprobs: Tensor
    values: Tensor
    rewards: Tensor


# Episodes ------------------------------------------------------------------------------------------


@torch.no_grad()
def sample_episodes(
    environments: RoutingEnvironments,
    controllers: BatchedControllers,
    variant: SyntheticRoutingVariant,
    uniforms: Tensor,
) -> SyntheticEpisodes:
    """Plays episodes: a controller answers a query or calls an expert, and then hands on the reply or calls again.

    A signal says whether a reply looks correct. The reward is 1 for a correct answer whose calls cost at most the
    budget (low, medium or high), else 0.

    Args:
        environments: G environments with K kinds of queries.
        controllers: One controller for each environment; they sample their options.
        variant: Whether the budget is in prompt and reward, and whether all episodes have one fixed budget.
        uniforms: (G, r, 1 + K + 5) uniform numbers in [0, 1) from `draw_uniforms`, which decide all that is random in r
            episodes of each controller.

    Returns:
        r episodes of each controller.
    """
    # Queries, and the random numbers of what follows, (G, r) each.
    kinds, observations = make_queries(environments, uniforms)
    num_kinds = observations.shape[-1]
    turn_uniforms = uniforms[..., 1 + num_kinds :]
    (
        first_choice_uniforms,
        first_reply_uniforms,
        signal_uniforms,
        second_choice_uniforms,
        second_reply_uniforms,
    ) = turn_uniforms.unbind(-1)

    # Budgets by turns, so that every minibatch has as many episodes of each. (G, r) indices in BUDGETS.
    num_controllers, num_rows = kinds.shape
    budget_ids = torch.arange(num_rows) % len(BUDGETS)
    if variant.fixed_budget is not None:
        budget_ids = torch.full_like(budget_ids, BUDGETS.index(variant.fixed_budget))
    budget_ids = budget_ids.expand(num_controllers, num_rows)
    budget_words = (budget_ids + 1) * variant.budget_in_prompt

    # Accuracy of each of A options on the kind of each query, (G, r, A).
    kind_index = kinds[..., None].expand(-1, -1, controllers.num_options)
    accuracy = torch.gather(environments.accuracy, 1, kind_index)

    # First choice: option 0 answers the query, the others call an expert.
    no_call = torch.zeros_like(kinds)
    no_signal = no_call.float()
    first_inputs = controllers.encode_inputs(observations, budget_words, no_call, no_signal)
    first = controllers.sample_options(first_inputs, first_choice_uniforms)
    has_reply = first.options > 0
    first_accuracy = torch.gather(accuracy, 2, first.options[..., None])[..., 0]
    first_is_correct = first_reply_uniforms < first_accuracy

    # The signal agrees with the correctness of the reply as often as its accuracy says.
    signal_is_right = signal_uniforms < environments.reply_signal_accuracy
    signals = torch.where(signal_is_right == first_is_correct, 1.0, -1.0) * has_reply

    # Second choice: option 0 hands on the reply, the others call again. After an answer there is none.
    second_inputs = controllers.encode_inputs(observations, budget_words, first.options, signals)
    second = controllers.sample_options(second_inputs, second_choice_uniforms)
    second_options = second.options * has_reply
    second_accuracy = torch.gather(accuracy, 2, second_options[..., None])[..., 0]
    second_is_correct = second_reply_uniforms < second_accuracy
    is_correct = torch.where(second_options > 0, second_is_correct, first_is_correct)

    # Reward, CoRL eq. 7. Without the budget in the reward no cost is beyond it.
    first_cost = torch.gather(environments.price, 1, first.options)
    second_cost = torch.gather(environments.price, 1, second_options)
    cost_usd = first_cost + second_cost
    budgets = environments.budget[budget_ids]
    if not variant.budget_in_reward:
        budgets = torch.full_like(cost_usd, torch.inf)
    rewards = budget_reward.compute_budget_reward(is_correct.float(), cost_usd, budgets)

    # Tokens: first choice, reply, second choice. The reply is no token of the controller's.
    always = torch.ones_like(has_reply)
    never = torch.zeros_like(has_reply)
    mask = torch.stack([always, never, has_reply], -1)  # (G, r, 3)
    logprobs_of_choices = torch.stack([first.logprobs, second.logprobs], 2)  # (G, r, 2)
    values_of_choices = torch.stack([first.values, second.values], 2)
    return SyntheticEpisodes(
        inputs=torch.stack([first.inputs, second.inputs], 2),
        options=torch.stack([first.options, second_options], 2),
        mask=mask,
        old_logprobs=_place_at_tokens(logprobs_of_choices, mask),
        values=_place_at_tokens(values_of_choices, mask),
        rewards=rewards,
    )


def _place_at_tokens(numbers_of_choices: Tensor, mask: Tensor) -> Tensor:
    """Places a number for each of two choices at the choice's token in the sequence of an episode.

    The three tokens of an episode are the first choice, the expert's reply and the second choice.

    Args:
        numbers_of_choices: (G, r, 2) a number for the first and the second choice, in r episodes of G controllers.
        mask: (G, r, 3) 1 at tokens of the controller.

    Returns:
        (G, r, 3) the numbers at their tokens; 0 where the mask is 0.
    """
    first, second = numbers_of_choices.unbind(-1)
    reply = torch.zeros_like(first)
    return torch.stack([first, reply, second], -1) * mask


# Updates -------------------------------------------------------------------------------------------


def train_controllers(
    environments: RoutingEnvironments,
    settings: RoutingSyntheticSettings,
    learn: LearnSettings,
    variant: SyntheticRoutingVariant = CORL,
    observe: Callable[[int, BatchedControllers], None] | None = None,
) -> BatchedControllers:
    """Trains one controller in each synthetic environment by PPO.

    Args:
        environments: One for each grid point and seed, from `make_environments`.
        settings: Number of hidden units, of updates and of episodes in each, learning rate and weight of the KL
            penalty.
        learn: Constants of PPO: clip, gamma and lam (of advantages), how tokens are averaged, weight of the value loss,
            largest norm of a gradient.
        variant: What is trained: CoRL, or CoRL with one part changed.
        observe: Called with the number of updates so far and the controllers, before the first and after each update.

    Returns:
        The trained controllers.
    """
    num_grid_points = len(environments.accuracy) // settings.seeds
    controllers = BatchedControllers(settings, num_grid_points)
    optimizer = torch.optim.Adam(controllers.parameters(), lr=settings.learning_rate)

    for update in range(settings.updates):
        if observe is not None:
            observe(update, controllers)

        # A seed has the same random numbers at all grid points.
        uniforms = draw_uniforms(settings, "episodes", settings.batch, update)
        uniforms = uniforms.repeat(num_grid_points, 1, 1)  # (G, r, 1 + K + 5)
        episodes = sample_episodes(environments, controllers, variant, uniforms)
        update_controllers(controllers, optimizer, episodes, settings, learn, variant)

        # The learning rate falls to 0, as the lab's does.
        remaining = 1 - (update + 1) / settings.updates
        for group in optimizer.param_groups:
            group["lr"] = settings.learning_rate * remaining

    if observe is not None:
        observe(settings.updates, controllers)
    return controllers


def update_controllers(
    controllers: BatchedControllers,
    optimizer: torch.optim.Optimizer,
    episodes: SyntheticEpisodes,
    settings: RoutingSyntheticSettings,
    learn: LearnSettings,
    variant: SyntheticRoutingVariant,
) -> None:
    """Updates all controllers by PPO: epochs of gradient steps on minibatches of the same episodes.

    The loss is CoRL's masked policy loss (eq. 4), plus a penalty for leaving the initial policy (KL divergence), plus
    the squared error of V, the controller's estimate of the reward.

    Args:
        controllers: G controllers; their weights are changed.
        optimizer: Adam on these weights.
        episodes: r episodes of each controller, sampled with its weights as they are now; an episode is a sequence of
            T = 3 tokens (first choice, reply, second choice).
        settings: `epochs` passes over the episodes, in minibatches of `minibatch`; `kl` weighs the KL penalty.
        learn: Constants of PPO: clip, gamma and lam (of advantages), how tokens are averaged, weight of the value loss,
            largest norm of a gradient.
        variant: Whether advantages are whitened over the episodes of each budget, or over all.
    """
    mask = episodes.mask  # (G, r, T)
    num_controllers, num_rows, _ = mask.shape

    # Advantages and returns of the controller's tokens; all episodes of all controllers are rows of one call.
    advantages, returns = losses.compute_masked_gae(
        episodes.rewards.flatten(),
        episodes.values.flatten(0, 1),
        mask.flatten(0, 1),
        learn.gamma,
        learn.lam,
    )
    advantages = advantages.view(mask.shape)  # (G, r, T)
    returns = returns.view(mask.shape)
    num_groups = len(BUDGETS) if variant.whiten_over == "budget" else 1
    advantages = whiten_by_controller(advantages, mask, num_groups)

    # At the start all options were equally likely.
    initial_logprob = -torch.tensor(float(controllers.num_options)).log()
    token_mask = mask.float()

    for _ in range(settings.epochs):
        # Episodes are independent and alike, so that they need no shuffling.
        for start in range(0, num_rows, settings.minibatch):
            rows = slice(start, start + settings.minibatch)
            inputs = episodes.inputs[:, rows]  # (G, m, 2, inputs), m episodes of a minibatch
            options = episodes.options[:, rows]  # (G, m, 2)
            row_mask = token_mask[:, rows]  # (G, m, T)

            # The networks as they are now, at the tokens of the episodes: (G * m, T) from here on.
            logprobs, values = controllers(inputs.flatten(1, 2))  # (G, 2 m, A), (G, 2 m)
            chosen_logprobs = torch.gather(logprobs, 2, options.flatten(1, 2)[..., None])
            new_logprobs = _place_at_tokens(chosen_logprobs.view(options.shape), row_mask)
            new_logprobs = new_logprobs.flatten(0, 1)
            new_values = _place_at_tokens(values.view(options.shape), row_mask).flatten(0, 1)
            old_logprobs = episodes.old_logprobs[:, rows].flatten(0, 1)
            row_advantages = advantages[:, rows].flatten(0, 1)
            row_returns = returns[:, rows].flatten(0, 1)
            row_mask = row_mask.flatten(0, 1)

            # L = L_policy + beta KL + c_v L_value
            loss = losses.compute_policy_loss(
                new_logprobs, old_logprobs, row_advantages, row_mask, learn.clip, learn.average
            )
            kl = losses.estimate_kl(new_logprobs, initial_logprob)
            loss = loss + settings.kl * losses.average_over_tokens(kl, row_mask, learn.average)
            value_loss = losses.compute_value_loss(new_values, row_returns, row_mask, learn.average)
            loss = loss + learn.value_weight * value_loss

            # The loss is a mean over G controllers: times G, each has the gradient that it would have alone.
            optimizer.zero_grad()
            (loss * num_controllers).backward()
            clip_gradients(controllers, learn.max_grad_norm)
            optimizer.step()


def whiten_by_controller(values: Tensor, mask: Tensor, num_groups: int) -> Tensor:
    """Shifts and scales advantages to mean 0 and standard deviation 1, within groups of episodes of every controller.

    It is `lib.rl.losses.whiten` for all G controllers in one pass.

    Args:
        values: (G, r, T) advantages of T tokens in r episodes of each controller, 0 where the mask is False.
        mask: (G, r, T) bool, True at tokens of the controller.
        num_groups: Row i belongs to group i % num_groups: 3 for a group for each budget, 1 for all rows together.

    Returns:
        (G, r, T) whitened values, 0 where the mask is False.
    """
    num_controllers, num_rows, num_tokens = values.shape
    shape = (num_controllers, num_rows // num_groups, num_groups, num_tokens)
    grouped_values = values.view(shape)
    grouped_mask = mask.view(shape)

    # Mean and deviation over rows and tokens, (G, 1, groups, 1) each.
    count = grouped_mask.sum((1, 3), keepdim=True)
    mean = (grouped_values * grouped_mask).sum((1, 3), keepdim=True) / count
    centred = (grouped_values - mean) * grouped_mask
    deviation = (centred.square().sum((1, 3), keepdim=True) / count).sqrt()
    return (centred / (deviation + 1e-8)).view_as(values)


def clip_gradients(controllers: BatchedControllers, max_norm: float) -> None:
    """Scales down the gradient of every controller whose norm is above a limit.

    It is `torch.nn.utils.clip_grad_norm_` for each controller alone; the first axis of all weights is the controller.

    Args:
        controllers: G controllers after a backward pass; their gradients are changed.
        max_norm: Largest Euclidean norm of the gradient over all weights of a controller.
    """
    gradients = [parameter.grad for parameter in controllers.parameters()]
    squared_norm = sum(gradient.flatten(1).square().sum(1) for gradient in gradients)  # (G,)
    scale = (max_norm / (squared_norm.sqrt() + 1e-6)).clamp(max=1)
    for gradient in gradients:
        gradient.mul_(scale[:, None, None])
