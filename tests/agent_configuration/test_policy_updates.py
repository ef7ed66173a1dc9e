"""How the policies learn: every loss by hand, and that a step goes where it should."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from torch import nn
from torch.distributions import Categorical

from lib.agent_configuration import policies, policy_updates
from lib.agent_configuration.action_space import WORKFLOWS
from lib.agent_configuration.policies import PromptSteps
from lib.agent_configuration.policy_updates import EpisodeBatch, PolicyTrainer, Rules
from lib.experiment import seeds

INPUTS = 3


def dice(*seed: int) -> torch.Generator:
    return seeds.torch_generator("test", "learn", *seed)


def steps(episodes: list[int], positions: list[int]) -> PromptSteps:
    """Prompt decisions, of which only the episode and the place matter."""
    m = len(episodes)
    return PromptSteps(
        torch.tensor(episodes), torch.tensor(positions), *(torch.zeros(m) for _ in range(4))
    )


def batch(rewards: list[float], prompt_steps: PromptSteps | None = None) -> EpisodeBatch:
    """Episodes of which only the rewards and the prompt decisions matter."""
    n = len(rewards)
    return EpisodeBatch(*torch.zeros(3, n, 6), prompt_steps, torch.tensor(rewards), torch.arange(n))


class Coin(nn.Module):
    """A policy over two choices that sees nothing; `evaluate_actions` takes the choices."""

    def __init__(self, first: float = 0.5) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([math.log(first), math.log(1 - first)]))

    def evaluate_actions(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        over = Categorical(logits=self.logits.expand(len(actions), 2))
        return over.log_prob(actions), over.entropy()

    @property
    def first(self) -> float:
        return float(self.logits.softmax(-1)[0].detach())


# Returns and advantages ----------------------------------------------------------------------------


def test_a_decision_is_paid_less_the_more_decisions_follow():
    """Two and one prompt decisions: the structure is the first of three and of two; then none; then nine, with
    appendix F's gamma."""
    episodes = batch([8.0, 4.0], steps([0, 1, 0], [0, 0, 1]))
    first, later = episodes.compute_returns(0.5)
    assert episodes.count_prompt_steps().tolist() == [2, 1]
    assert first.tolist() == [8 * 0.25, 4 * 0.5] and later.tolist() == [8 * 0.5, 4.0, 8.0]
    episodes = batch([8.0, -4.0])
    first, later = episodes.compute_returns(0.5)
    assert (
        first.tolist() == [8.0, -4.0]
        and len(later) == 0
        and episodes.count_prompt_steps().tolist() == [0, 0]
    )
    first, later = batch([1.0], steps([0] * 9, list(range(9)))).compute_returns(0.95)
    assert float(first[0]) == pytest.approx(0.6302494)  # five eighths
    assert later.tolist() == pytest.approx([0.95 ** (8 - position) for position in range(9)])


# PPO -----------------------------------------------------------------------------------------------


def toy(n: int, grouped: bool) -> tuple[PolicyTrainer, EpisodeBatch]:
    """Structures of which those with workflow 3 are paid."""
    trainer, at = (
        PolicyTrainer.create(
            policies.make_structure_policy(INPUTS, hidden=16), INPUTS, 3e-3, not grouped
        ),
        torch.ones(n, INPUTS),
    )
    sampled = trainer.policy.sample(at, dice(4))
    rewards = (sampled.actions[:, 0] == 3).float()
    return trainer, EpisodeBatch(
        at, sampled.actions, sampled.logp.detach(), None, rewards, torch.arange(n) // 8
    )


def chance(trainer: PolicyTrainer, workflow: int) -> float:
    with torch.no_grad():
        hidden = trainer.policy.trunk(torch.ones(1, INPUTS))
        return float(
            trainer.policy.compute_logits(hidden, 0, torch.zeros(1, 0, dtype=torch.int64)).softmax(
                -1
            )[0, workflow]
        )


@pytest.mark.parametrize("grouped", [False, True])
def test_an_update_makes_what_was_paid_more_likely_and_the_rest_less(grouped):
    trainer, episodes = toy(256, grouped)
    before = [chance(trainer, workflow) for workflow in range(9)]
    for _ in range(4):
        policy_updates.update(trainer, None, episodes, Rules(grouped=grouped))
    after = [chance(trainer, workflow) for workflow in range(9)]
    assert after[3] > before[3] + 0.02 and sum(after) - after[3] < sum(before) - before[3]


def test_group_relative_updates_have_no_value_network():
    trainer, episodes = toy(64, True)
    assert trainer.value is None
    measurements = policy_updates.update(trainer, None, episodes, Rules(grouped=True))
    assert measurements["structure_value"] == 0.0
    optimized = {
        id(weight) for group in trainer.optimizer.param_groups for weight in group["params"]
    }
    assert optimized == {id(weight) for weight in trainer.policy.parameters()}


def test_a_value_network_learns_what_episodes_are_paid():
    """Half of the states are worth 1, the others -1."""
    trainer, episodes = toy(64, False)
    values = torch.arange(64) % 2 * 2.0 - 1
    episodes = replace(episodes, states=episodes.states * values[:, None], rewards=values)
    fits = [
        policy_updates.update(trainer, None, episodes, Rules(epochs=1))["structure_value"]
        for _ in range(60)
    ]
    assert fits[0] > 0.5 and fits[-1] < 0.1


def test_prompt_decisions_are_updated_with_their_own_advantages():
    """One agent, one atom: to tell it is paid, to stop is not, whatever the structure."""
    roles = np.array([[True], [False], [False]])
    prompt = policies.PromptPolicy(INPUTS, roles, hidden=16)
    structure, trainer = toy(128, False)[0], PolicyTrainer.create(prompt, prompt.num_inputs, 3e-3)
    at, chances = torch.ones(128, INPUTS), []
    for turn in range(3):
        sampled = structure.policy.sample(at, dice(5, turn))
        with torch.no_grad():
            prompts = prompt.sample(at, sampled.actions, dice(6, turn))
            chosen, decided = prompts.atoms, prompts.steps
            first = decided.select(decided.position == 0)
            chances.append(
                float(
                    prompt.compute_logits(first.states, first.is_allowed).softmax(-1)[:, 0].mean()
                )
            )
        rewards = torch.tensor([float(len(agents[0])) for agents in chosen])
        episodes = EpisodeBatch(
            at, sampled.actions, sampled.logp.detach(), decided, rewards, torch.arange(128)
        )
        measurements = policy_updates.update(structure, trainer, episodes, Rules())
        assert {"prompt_loss", "prompt_entropy", "prompt_value"} < set(measurements)
    assert chances[0] < chances[1] < chances[2]


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_gradients_are_cut_to_their_greatest_norm(scale):
    """With steps of plain gradient descent at rate 1 the weights move by the gradient itself."""
    policy = policies.make_structure_policy(INPUTS, hidden=8)
    value = policies.ValueNetwork(INPUTS, 8)
    weights = [*policy.parameters(), *value.parameters()]
    trainer = PolicyTrainer(policy, value, torch.optim.SGD(weights, lr=1.0))
    before = [weight.detach().clone() for weight in weights]
    trainer.step(scale * sum((weight**2).sum() for weight in weights), 0.5)
    moved = float(
        sum(((a - b) ** 2).sum() for a, b in zip(before, weights, strict=True)).detach() ** 0.5
    )
    free = float(2 * scale * sum((weight**2).sum() for weight in before) ** 0.5)
    assert moved == pytest.approx(min(0.5, free), rel=1e-3)


# The elite, and imitating it -----------------------------------------------------------------------


def test_the_elite_is_right_and_among_the_best():
    """Eleven rewards from 0 to 10: tau of three tenths is 7, four are that good, two of them right."""
    rewards, correct = np.arange(11.0), np.array([1, 0, 1, 0, 1, 0, 1, 1, 0, 0, 1])
    chosen, tau = policy_updates.elite(correct, rewards, 0.3)
    assert tau == pytest.approx(7.0) and np.flatnonzero(chosen).tolist() == [7, 10]
    chosen, tau = policy_updates.elite(np.array([0, 1, 1]), np.array([3.0, 1.0, 2.0]), 1.0)
    assert tau == 1.0 and chosen.tolist() == [False, True, True]
    for n in (5, 0):
        assert not policy_updates.elite(np.zeros(n), np.arange(float(n)), 0.3)[0].any()


def coin_side(first: float, rate: float = 0.2) -> tuple[Coin, PolicyTrainer]:
    coin = Coin(first)
    return coin, PolicyTrainer(coin, None, torch.optim.Adam(coin.parameters(), lr=rate))


def test_the_loss_of_imitation_is_minus_log_p_minus_the_entropy_bonus():
    """-log 0.8 - 0.5 H(0.8)."""
    _, trainer = coin_side(0.8)
    entropy = -0.8 * math.log(0.8) - 0.2 * math.log(0.2)
    (loss,) = policy_updates.imitate(trainer, [(torch.zeros(4, dtype=torch.int64),)], 0.5, 10.0)
    assert loss == pytest.approx(-math.log(0.8) - 0.5 * entropy, rel=1e-5)


@pytest.mark.parametrize(
    "actions, entropy, end",
    [
        ([0, 0, 1, 0], 0.0, pytest.approx(0.75, abs=1e-3)),  # lemma 3.1: the shares that are shown
        ([0] * 8, 0.0, pytest.approx(1.0, abs=0.05)),
        (
            [0] * 8,
            1.0,
            pytest.approx(brentq(lambda p: p * math.log(p / (1 - p)) - 1, 0.5, 0.99), abs=1e-3),
        ),
    ],
)
def test_imitation_moves_towards_what_is_shown_and_an_entropy_bonus_leaves_it_less_certain(
    actions, entropy, end
):
    """The opposite sign would leave it more certain."""
    coin, trainer = coin_side(0.5)
    policy_updates.imitate(trainer, [(torch.tensor(actions),)] * 150, entropy, 10.0)
    assert coin.first == end


def test_masked_actions_stay_impossible_when_a_policy_imitates():
    policy = policies.make_structure_policy(INPUTS, hidden=8)
    trainer, at = PolicyTrainer.create(policy, INPUTS, 1e-2, has_value=False), torch.ones(1, INPUTS)
    actions = torch.tensor([[0, 3, 0, 1, 0, 0]])
    before = float(policy.evaluate_actions(at, actions)[0].detach())
    losses = policy_updates.imitate(trainer, [(at, actions)] * 20, 0.01, 0.5)
    assert (
        losses[-1] < losses[0]
        and float(policy.evaluate_actions(at, actions)[0].detach()) > before + 1
    )
    assert (
        float(policy.evaluate_actions(at, torch.tensor([[0, 3, 1, 1, 0, 0]]))[0].detach())
        == -math.inf
    )


# DPO -----------------------------------------------------------------------------------------------


def test_the_preference_loss_is_that_of_the_difference_of_differences():
    """beta [(1) - (-1)] is 1, and -log sigma(1) = log(1 + 1/e); the second pair has not moved: log 2."""
    better, worse = torch.tensor([-2.0, -3.0]), torch.tensor([-5.0, -4.0])
    loss = policy_updates.compute_dpo_loss(
        better, worse, better - torch.tensor([1.0, 0.0]), worse + torch.tensor([1.0, 0.0]), 0.5
    )
    assert float(loss) == pytest.approx((math.log(1 + math.exp(-1)) + math.log(2)) / 2, rel=1e-6)


def test_the_first_epochs_loss_is_that_of_the_entropy_alone():
    """All ratios are 1 and normalised advantages have mean 0, so -0.05 H is left."""
    trainer, episodes = toy(40, False)
    episodes = replace(episodes, rewards=torch.randn(40, generator=dice(3)))
    measurements = policy_updates.update(trainer, None, episodes, Rules(entropy=0.05, epochs=1))
    assert measurements["structure_loss"] == pytest.approx(
        -0.05 * measurements["structure_entropy"], abs=1e-6
    )
    assert measurements["structure_entropy"] > 5


def test_log_probabilities_of_an_episodes_decisions_are_added():
    prompt_steps = steps([2, 0, 2], [0, 0, 1])
    assert policy_updates.sum_over_steps(
        torch.tensor([-1.0, -2.0, -4.0]), prompt_steps, 4
    ).tolist() == [
        -2.0,
        0.0,
        -5.0,
        0.0,
    ]


def test_an_mdp_discounts_each_choice_by_how_many_choices_come_after_it():
    """Two episodes, worked by hand: "direct" has no second agent, so fewer of its parts are choices."""
    roles = np.array([[True], [False], [False]])
    policy = policies.make_autoregressive_policy(2, roles, 4)
    sizes = policy.sizes
    trainer = PolicyTrainer.create(policy, policy_updates.count_step_inputs(2, sizes), 1e-3)
    actions = torch.zeros(2, len(sizes), dtype=torch.int64)
    actions[1, 0] = WORKFLOWS.index("verify")
    states = torch.eye(2)
    logp, _ = policy.evaluate_dimensions(states, actions)
    rewards = torch.tensor([1.0, 2.0])
    batch = EpisodeBatch(
        states,
        actions,
        logp.sum(1).detach(),
        None,
        rewards,
        torch.arange(2),
        logp_by_dimension=logp.detach(),
    )
    targets = []

    def record(inputs):
        targets.append(inputs)
        return torch.zeros(len(inputs))

    trainer.value.forward = record
    losses_of_update = policy_updates.update(
        trainer, None, batch, Rules(stepwise=True, gamma=0.5, epochs=1)
    )
    # "direct": workflow, tools1, three budgets but budget2, and three slots of the reasoner's atoms are choices.
    num_choices = policy.find_dimensions_with_choice(actions[:, 0]).sum(1).tolist()
    assert num_choices == [7, 9]
    returns = [0.5 ** (6 - t) for t in range(7)] + [2 * 0.5 ** (8 - t) for t in range(9)]
    assert losses_of_update["structure_value"] == pytest.approx(
        np.mean(np.square(returns)), rel=1e-5
    )
    assert targets[0].shape == (16, policy_updates.count_step_inputs(2, sizes))
    # A step sees the choices before it and none after: the first step of each episode sees none.
    num_choices_before = targets[0][:, 2 : 2 + sum(sizes)].sum(1)
    assert (
        num_choices_before[0] == num_choices_before[7] == 0
        and num_choices_before[6] > num_choices_before[1] > 0
    )
