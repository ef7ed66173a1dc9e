"""How the Conductor learns: the formula of the paper, its bookkeeping, and what naive sampling costs."""

import math

import numpy as np
import pytest
import torch

from lib.conductor.meta_policy import Conductor, compute_emphasis_weights
from lib.conductor.meta_policy_training import (
    ConductorWeighting,
    MetaBatch,
    compute_joint_loss,
    compute_meta_loss,
    compute_pairwise_loss,
)
from lib.conductor.weighting import RolloutOutcomes
from lib.rl.losses import compute_group_advantages
from tests.conductor.small import K, head

WIDTH, GROUP = 4, 3


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def conductor(seed: int = 0) -> Conductor:
    """One that has opinions, in double precision."""
    made = Conductor(WIDTH, K, floor=1e-3, temperature=1.5).double()
    with torch.no_grad():
        made.linear.weight.copy_(random(K, WIDTH, seed=seed))
        made.linear.bias.copy_(random(K, seed=seed + 1))
    return made


def batch(n: int, seed: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """States, actions, advantages that are centred in groups."""
    advantage = random(n // GROUP, GROUP, seed=seed).double()
    action = torch.randint(K, (n,), generator=torch.Generator().manual_seed(seed + 1))
    return (
        random(n, WIDTH, seed=seed + 2).double(),
        action,
        (advantage - advantage.mean(1, keepdim=True)).flatten(),
    )


def gradients(made: Conductor) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in made.parameters()])


def conducted(seed: int = 0, opinions: bool = True, **changes) -> ConductorWeighting:
    made = ConductorWeighting(WIDTH, head(**changes), GROUP, seed)
    if opinions:
        with torch.no_grad():
            made.conductor.linear.weight.copy_(random(K, WIDTH))
    return made


def fed(made: ConductorWeighting, steps, n: int = 6) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What it said at each step, being told made-up advantages."""
    said = []
    for step in steps:
        said.append(made.weigh_rollouts(random(n, WIDTH, seed=step), step))
        made.learn(RolloutOutcomes(random(n, seed=100 + step)))
        made.finish_step()
    return said


def same(one: ConductorWeighting, other: ConductorWeighting) -> bool:
    a, b = one.get_state(), other.get_state()
    return a.keys() == b.keys() and all(
        np.array_equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a
    )


# The loss -----------------------------------------------------------------------------------------


def test_the_gradient_is_the_formula_of_the_paper_written_out():
    """Equation 3, term by term, with the derivatives of the softmax by hand."""
    made, (h, action, advantage), entropy = conductor(), batch(6), 0.3
    compute_meta_loss(made, MetaBatch(h, action, advantage), entropy).backward()
    w, b, tau, floor = made.linear.weight.detach(), made.linear.bias.detach(), made.tau, made.floor
    expected = {
        "weight": torch.zeros(K, WIDTH).double(),
        "bias": torch.zeros(K).double(),
        "log_tau": 0.0,
    }
    for h_i, a_i, advantage_i in zip(h, action.tolist(), advantage.tolist(), strict=True):
        z = (w @ h_i + b) / tau
        soft = [math.exp(x) / sum(math.exp(y) for y in z.tolist()) for x in z.tolist()]
        pi = [(1 - K * floor) * p + floor for p in soft]
        for j in range(K):
            # d pi_k / d z_j = (1 - K eps) soft_k (1[j = k] - soft_j)
            slope = [(1 - K * floor) * soft[k] * ((j == k) - soft[j]) for k in range(K)]
            gain = advantage_i * slope[a_i] / pi[a_i]
            gain += entropy * sum(-(math.log(pi[k]) + 1) * slope[k] for k in range(K))
            expected["weight"][j] += gain * h_i / tau / len(h)
            expected["bias"][j] += gain / tau / len(h)
            expected["log_tau"] += gain * -float(z[j]) / len(h)
    assert torch.allclose(-made.linear.weight.grad, expected["weight"], atol=1e-12)
    assert torch.allclose(-made.linear.bias.grad, expected["bias"], atol=1e-12)
    assert -made.log_tau.grad.item() == pytest.approx(
        expected["log_tau"], abs=1e-6
    )  # tau is kept in 32 bits


def test_a_group_with_one_context_and_one_action_teaches_nothing():
    """Centred advantages cancel; what the paper calls naive."""
    h, _, advantage = batch(6)
    h = h.view(2, GROUP, WIDTH).mean(1).repeat_interleave(GROUP, 0)
    for action in ([0] * 6, [1, 1, 1, 4, 4, 4]):
        made = conductor()
        compute_meta_loss(made, MetaBatch(h, torch.tensor(action), advantage), 0.0).backward()
        assert gradients(made).abs().max() < 1e-9


@pytest.mark.parametrize("shared", ["context", "action"])
def test_sharing_only_the_context_or_only_the_action_still_teaches(shared):
    made, (h, action, advantage) = conductor(), batch(6)
    if shared == "context":
        h, action = h[:1].expand(6, -1), torch.tensor([0, 1, 2, 0, 1, 2])
    else:
        action = torch.zeros(6, dtype=torch.long)
    compute_meta_loss(made, MetaBatch(h, action, advantage), 0.0).backward()
    assert gradients(made).abs().max() > 1e-3


def test_the_entropy_pulls_towards_the_uniform_distribution():
    made = conductor()
    h = torch.zeros(1, WIDTH).double()
    compute_meta_loss(
        made, MetaBatch(h, torch.tensor([0]), torch.zeros(1).double()), 1.0
    ).backward()
    best, worst = made.linear.bias.argmax(), made.linear.bias.argmin()
    assert made.linear.bias.grad[best] > 0 > made.linear.bias.grad[worst]


# The pairwise variant -----------------------------------------------------------------------------


def test_the_pairwise_loss_asks_only_who_did_better():
    chosen = torch.tensor([[-1.0, -2.0, -0.5]])
    advantage = torch.tensor([[0.3, -0.7, 0.3]])  # the first and the third beat the second
    by_hand = (math.log1p(math.exp(-1.0)) + math.log1p(math.exp(-1.5))) / 2
    assert float(compute_pairwise_loss(chosen, advantage)) == pytest.approx(by_hand)
    assert float(compute_pairwise_loss(chosen, 100 * advantage)) == pytest.approx(by_hand)


def test_pairs_are_of_one_group_and_where_all_did_equally_well_there_are_none():
    chosen = torch.tensor([[-1.0, -2.0], [-3.0, -9.0]], requires_grad=True)
    one_pair = compute_pairwise_loss(chosen, torch.tensor([[1.0, -1.0], [5.0, 5.0]]))
    assert one_pair.item() == pytest.approx(math.log1p(1 / math.e))
    loss = compute_pairwise_loss(chosen, torch.zeros(2, 2))
    loss.backward()
    assert float(loss.detach()) == 0 and not chosen.grad.any()


# At work ------------------------------------------------------------------------------------------


def test_weights_are_the_emphasis_of_what_it_drew():
    made, h = conducted(kappa=0.25), random(6, WIDTH)
    weights, action = made.weigh_rollouts(h, 0)
    one_hot = torch.nn.functional.one_hot(action, K)
    assert torch.allclose(weights, 0.75 * made.compute_mean_weights(h) + 0.25 * one_hot)
    assert not weights.requires_grad


def test_each_rollout_of_a_group_draws_its_own_action():
    drawn = torch.cat(
        [action for _, action in fed(conducted(opinions=False, update_interval=10_000), range(40))]
    )
    groups = drawn.view(-1, GROUP)
    assert set(drawn.tolist()) == set(range(K))
    assert (
        groups.min(1).values != groups.max(1).values
    ).float().mean() > 0.8  # 1 - 1/25 is expected


def test_in_homogeneous_mode_a_group_shares_context_weights_and_action_and_groups_differ():
    made = conducted(homogeneous=True)
    drawn = []
    for step in range(30):
        weights, action = made.weigh_rollouts(random(6, WIDTH, seed=step), step)
        grouped = weights.view(2, GROUP, K)
        assert torch.equal(grouped, grouped[:, :1].expand(-1, GROUP, -1))
        assert (action.view(2, GROUP) == action.view(2, GROUP)[:, :1]).all()
        drawn.append(tuple(action.view(2, GROUP)[:, 0].tolist()))
    assert len(set(drawn)) > 5 and any(a != b for a, b in drawn)
    h = random(6, WIDTH)
    mean = h.view(2, GROUP, WIDTH).mean(1).repeat_interleave(GROUP, 0)
    weights, action = made.weigh_rollouts(h, 0)
    assert torch.allclose(weights, compute_emphasis_weights(made.conductor(mean), action, 0.5))
    assert torch.equal(
        made.compute_mean_weights(h[:5]), conducted().compute_mean_weights(h[:5])
    )  # where nothing is drawn, no group is needed


@pytest.mark.parametrize("homogeneous", [True, False])
def test_only_heterogeneous_emphasis_can_teach_the_conductor(homogeneous):
    """The whole way, with advantages as GRPO centres them: the update of Adam has no size where the gradient is 0."""
    made = conducted(homogeneous=homogeneous, update_interval=1, entropy=0.0, floor=0.0)
    before = made.conductor.linear.weight.clone()
    made.optimizer = torch.optim.SGD(made.conductor.parameters(), lr=1.0)
    made.weigh_rollouts(random(6, WIDTH), 0)
    made.learn(RolloutOutcomes(batch(6)[2].float()))
    moved = (made.conductor.linear.weight - before).abs().max().item()
    assert moved < 1e-6 if homogeneous else moved > 1e-2


def test_actions_are_new_every_step_and_the_same_for_the_same_seed():
    h = random(30, WIDTH)
    one, again, other = conducted(0), conducted(0), conducted(1)
    first, second = one.weigh_rollouts(h, 0)[1], one.weigh_rollouts(h, 1)[1]
    assert not torch.equal(first, second)
    assert torch.equal(again.weigh_rollouts(h, 0)[1], first) and not torch.equal(
        other.weigh_rollouts(h, 0)[1], first
    )


def test_there_is_an_update_every_m_steps_and_then_an_empty_buffer():
    made = conducted(update_interval=3)
    for step in range(1, 10):
        before = made.conductor.linear.weight.clone()
        fed(made, [step])
        assert made.num_updates == step // 3 and len(made.buffer) == step % 3
        assert torch.equal(before, made.conductor.linear.weight) == (step % 3 != 0)


def test_an_update_is_made_of_all_that_was_held_and_of_nothing_else():
    made, by_hand = conducted(update_interval=2, pairwise=0.5), conducted()
    h = [random(6, WIDTH, seed=step) for step in range(4)]
    advantage = [random(6, seed=100 + step) for step in range(4)]
    said = fed(made, range(4))
    for pair in ((0, 1), (2, 3)):
        loss = compute_meta_loss(
            by_hand.conductor,
            MetaBatch(
                torch.cat([h[i] for i in pair]),
                torch.cat([said[i][1] for i in pair]),
                torch.cat([advantage[i] for i in pair]),
            ),
            by_hand.settings.entropy,
            0.5,
            GROUP,
        )
        by_hand.optimizer.zero_grad()
        loss.backward()
        by_hand.optimizer.step()
    assert torch.equal(made.conductor.linear.weight, by_hand.conductor.linear.weight)
    assert torch.equal(made.conductor.log_tau, by_hand.conductor.log_tau)


def test_settled_weights_draw_nothing_and_change_nothing():
    made = conducted(update_interval=1)
    before = made.get_state()
    assert torch.allclose(made.compute_mean_weights(random(5, WIDTH)).sum(1), torch.ones(5))
    made.learn(RolloutOutcomes(random(5)))
    assert made.num_updates == 0 and all(
        np.array_equal(before[k], v) for k, v in made.get_state().items()
    )


def test_it_learns_which_component_pays():
    """Whoever emphasises component 2 has the advantage."""
    made = conducted(opinions=False, update_interval=1, learning_rate=0.05)
    for step in range(60):
        _, action = made.weigh_rollouts(random(30, WIDTH, seed=step), step)
        made.learn(RolloutOutcomes((action == 2).float() - (action == 2).float().mean()))
    assert made.compute_mean_weights(random(50, WIDTH, seed=1000))[:, 2].mean() > 0.8


# Joint mode ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", ["equal", "different"])
def test_the_joint_loss_has_a_gradient_only_where_lengths_differ_in_a_group(lengths):
    """Advantages of a group sum to 0 whatever the weights are, so equal lengths leave nothing."""
    made = conducted(joint=True)
    weights, _ = made.weigh_rollouts(random(6, WIDTH), 0)
    weights, rewards = weights.double(), random(6, K, seed=9).double()
    advantage = compute_group_advantages((weights * rewards).sum(-1), GROUP)
    num_tokens = torch.full((6,), 5.0)
    if lengths == "different":
        num_tokens = torch.tensor([1.0, 5.0, 9.0, 2.0, 2.0, 8.0])
    compute_joint_loss(advantage, num_tokens.double(), 10).backward()
    largest = made.conductor.linear.weight.grad.abs().max()
    assert largest > 1e-4 if lengths == "different" else largest < 1e-7


def test_in_joint_mode_the_gradient_comes_through_the_weights():
    made = conducted(joint=True, kappa=0.5)
    before = made.conductor.linear.weight.clone()
    weights, _ = made.weigh_rollouts(random(6, WIDTH), 0)
    (weights * random(6, K)).sum().backward()
    made.learn(RolloutOutcomes(random(6)))
    assert made.num_updates == 0 and not made.buffer
    made.finish_step()
    assert made.num_updates == 1 and not torch.equal(before, made.conductor.linear.weight)
    made.finish_step()
    assert made.num_updates == 1  # a gradient is followed once


def test_only_in_joint_mode_does_a_gradient_that_lies_about_move_it():
    made = conducted()
    made.conductor(random(6, WIDTH)).log().sum().backward()
    made.finish_step()
    assert made.num_updates == 0


# Going on -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes", [{}, {"homogeneous": True}, {"pairwise": 1.0}, {"centred": True}], ids=str
)
def test_going_on_from_a_state_equals_never_having_stopped(changes):
    """Stopped after 4 steps of M = 3: one update made, one triplet held."""
    through, stopped, fresh = (conducted(update_interval=3, **changes) for _ in range(3))
    expected = fed(through, range(8))
    fed(stopped, range(4))
    state = stopped.get_state()
    assert len(stopped.buffer) == 1 and int(state["num_updates"]) == 1
    fresh.load_state(state)
    assert fresh.num_updates == 1 and len(fresh.buffer) == 1
    for (w, a), (v, b) in zip(fed(fresh, range(4, 8)), expected[4:], strict=True):
        assert torch.equal(w, v) and torch.equal(a, b)
    assert same(fresh, through) and fresh.num_updates == 2


def test_the_pairwise_loss_is_added_with_its_weight():
    made, (h, action, advantage) = conductor(), batch(6)
    chosen = made.log_prob(h, action).view(2, GROUP)
    plain = compute_meta_loss(made, MetaBatch(h, action, advantage), 0.1)
    both = compute_meta_loss(made, MetaBatch(h, action, advantage), 0.1, 2.0, GROUP)
    assert (both - plain).item() == pytest.approx(
        2 * compute_pairwise_loss(chosen, advantage.view(2, GROUP)).item()
    )


def test_advantages_without_a_step_before_them_teach_nothing():
    made = conducted(update_interval=1)
    made.learn(RolloutOutcomes(random(6)))
    fed(made, [0])
    made.learn(RolloutOutcomes(random(6)))
    assert made.num_updates == 1 and not made.buffer


def test_in_joint_mode_nothing_comes_through_a_one_hot_emphasis():
    made = conducted(joint=True, kappa=1.0)
    weights, action = made.weigh_rollouts(random(6, WIDTH), 0)
    assert torch.equal(weights, torch.nn.functional.one_hot(action, K).float())
    weights.sum().backward()
    assert not made.conductor.linear.weight.grad.any()


def test_what_is_learned_later_does_not_reach_into_a_state():
    made = conducted(update_interval=1)
    fed(made, range(2))
    state = made.get_state()
    before = {name: array.copy() for name, array in state.items()}
    fed(made, range(2, 4))
    assert all(np.array_equal(array, before[name]) for name, array in state.items())


def test_one_that_has_not_learned_anything_can_be_restored_and_what_was_held_is_forgotten():
    fresh, other, full = conducted(), conducted(opinions=False), conducted()
    fed(full, range(2))
    for restored in (other, full):
        restored.load_state(fresh.get_state())
        assert not restored.buffer and restored.num_updates == 0 and same(restored, fresh)
    fed(fresh, range(5))
    fed(other, range(5))
    assert same(fresh, other)


def test_a_state_of_another_width_or_without_its_count_of_updates_is_refused():
    cut = {name: array for name, array in conducted().get_state().items() if name != "num_updates"}
    with pytest.raises((KeyError, RuntimeError)):
        conducted().load_state(ConductorWeighting(WIDTH + 1, head(), GROUP, 0).get_state())
    with pytest.raises(KeyError):
        conducted().load_state(cut)


def test_what_was_restored_goes_where_the_states_are():
    """A checkpoint is read before the first state says on which device the policy is."""
    stopped, fresh = conducted(update_interval=2), conducted(update_interval=2)
    fed(stopped, range(3))
    fresh.load_state(stopped.get_state())
    elsewhere = torch.device(
        "meta"
    )  # stands for a GPU: arithmetic with tensors of two devices is refused
    fresh.weigh_rollouts(torch.empty(6, WIDTH, device=elsewhere), 3)
    fresh.learn(RolloutOutcomes(torch.empty(6, device=elsewhere)))
    assert fresh.num_updates == 2
