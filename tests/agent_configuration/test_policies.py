"""The policies: masked actions have no probability at all, whoever draws and learns, and atoms obey their rules."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.agent_configuration import action_space, policies, policy_updates
from lib.agent_configuration.policies import MultiDiscretePolicy, PromptPolicy
from lib.agent_configuration.policy_updates import EpisodeBatch, PolicyTrainer, Rules
from lib.experiment import seeds

INPUTS, HIDDEN = 4, 8
ALONE = torch.tensor([0, 1, 5])  # workflows without a second agent
ROLES = np.array(
    [[1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 0, 1, 1]], bool
)  # of small.ATOMS
EVERY = torch.cartesian_prod(
    *(torch.arange(size) for size in action_space.SIZES)
)  # structures, valid or not


def opinionated(policy: torch.nn.Module, seed: int = 0, spread: float = 0.7) -> torch.nn.Module:
    """The policy with random weights of some size, so that it prefers things."""
    with torch.no_grad():
        for number, weight in enumerate(policy.parameters()):
            weight.normal_(0, spread, generator=dice(seed, number))
    return policy


def dice(*seed: int) -> torch.Generator:
    return seeds.torch_generator("test", *seed)


def states(n: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, INPUTS, generator=dice(seed, 99))


def structure(masked: bool = True, spread: float = 0.7) -> MultiDiscretePolicy:
    return opinionated(policies.make_structure_policy(INPUTS, masked, HIDDEN), spread=spread)


def prompt(seed: int = 0, allowed: np.ndarray = ROLES) -> PromptPolicy:
    return opinionated(PromptPolicy(INPUTS, allowed, HIDDEN), seed)


def pinned(sampled: torch.Tensor) -> torch.Tensor:
    """Rows of structures in which a part that the workflow lacks is not 0."""
    return torch.isin(sampled[:, 0], ALONE) & ((sampled[:, 2] != 0) | (sampled[:, 4] != 0))


# Masks of the structure policy ---------------------------------------------------------------------


def test_masked_actions_stay_impossible_after_gradients_and_gradients_stay_finite():
    policy = structure()
    before = [weight.detach().clone() for weight in policy.parameters()]
    trainer, at = PolicyTrainer.create(policy, INPUTS, 0.05), states(64)
    for turn in range(6):
        sampled = policy.sample(at, dice(2, turn))
        rewards = torch.randn(64, generator=dice(3, turn))
        batch = EpisodeBatch(
            at, sampled.actions, sampled.logp.detach(), None, rewards, torch.arange(64)
        )
        policy_updates.update(trainer, None, batch, Rules(entropy=0.5))
    assert all(torch.isfinite(weight).all() for weight in policy.parameters())
    assert all((a != b).any() for a, b in zip(before, policy.parameters(), strict=True))
    assert not pinned(policy.sample(states(4_000), dice(4)).actions).any()
    wrong = EVERY[pinned(EVERY)]
    assert torch.all(
        policy.evaluate_actions(states(1).expand(len(wrong), -1), wrong)[0] == -torch.inf
    )


@pytest.mark.parametrize("masked", [True, False])
def test_probabilities_sum_to_one_and_only_without_masks_a_part_lies_outside_the_valid_structures(
    masked,
):
    with torch.no_grad():
        logp, _ = structure(masked).evaluate_actions(states(1).expand(len(EVERY), -1), EVERY)
    chances, outside = logp.double().exp(), pinned(EVERY)
    assert (~outside).sum() == 41_904 and float(chances.sum()) == pytest.approx(1, abs=1e-5)
    assert (chances[~outside] > 0).all()
    assert (chances[outside] == 0).all() if masked else chances[outside].sum() > 0.1


# Drawing and judging -------------------------------------------------------------------------------

FLAT = {
    "bandit": policies.make_bandit_policy,
    "autoregressive": policies.make_autoregressive_policy,
}


def parts(kind: str) -> MultiDiscretePolicy:
    return structure() if kind == "structure" else opinionated(FLAT[kind](INPUTS, ROLES, HIDDEN))


@pytest.mark.parametrize("kind", ["structure", "bandit", "autoregressive"])
def test_what_was_drawn_is_judged_as_it_was_drawn_and_without_dice_every_part_is_the_likeliest(
    kind,
):
    policy = parts(kind)
    sampled = policy.sample(states(200), dice(5))
    assert torch.allclose(
        policy.evaluate_actions(states(200), sampled.actions)[0], sampled.logp, atol=1e-5
    )
    assert len(sampled.actions.unique(dim=0)) > 100
    greedy, hidden = policy.sample(states(20), None).actions, policy.trunk(states(20))
    for dimension in range(len(policy.sizes)):
        logits = policy.compute_logits(hidden, dimension, greedy[:, :dimension])
        assert torch.all(
            logits.gather(1, greedy[:, dimension : dimension + 1]).squeeze(1)
            == logits.max(1).values
        )


def test_the_entropy_is_that_of_all_parts_given_what_was_drawn():
    """Of a policy that knows nothing: log 9 + 2 log 16 + 3 log 3, without the pinned parts where they are pinned."""
    _, entropy = structure(spread=0.0).evaluate_actions(
        states(2), torch.tensor([[2, 0, 0, 0, 0, 0], [5, 0, 0, 0, 0, 0]])
    )
    entropy_alone = np.log(9) + np.log(16) + 2 * np.log(3)
    assert entropy.tolist() == pytest.approx(
        [entropy_alone + np.log(16) + np.log(3), entropy_alone], rel=1e-5
    )


@pytest.mark.parametrize("kind, independent", [("bandit", True), ("autoregressive", False)])
def test_parts_of_a_bandit_are_independent_and_steps_see_what_came_before(kind, independent):
    """log p(a, b) + log p(a', b') is log p(a, b') + log p(a', b) exactly where a and b know nothing of each other."""
    policy, gaps = parts(kind), []
    for dimension, size in list(enumerate(policy.sizes))[1:]:
        rows = policy.sample(states(1), dice(8)).actions.repeat(4, 1)
        rows[:, 0], rows[:, dimension] = (
            torch.tensor([2, 7, 2, 7]),
            torch.tensor([0, size - 1, size - 1, 0]),
        )
        logp, _ = policy.evaluate_actions(states(1).expand(4, -1), rows)
        gaps.append(abs(float((logp[0] + logp[1] - logp[2] - logp[3]).detach())))
    assert (max(gaps) < 1e-4) if independent else (min(gaps) > 1e-4)


def test_a_flat_policy_has_a_part_for_every_atom_of_every_agent():
    policy = policies.make_bandit_policy(INPUTS, ROLES, HIDDEN)
    assert policy.sizes == (9, 16, 16, 3, 3, 3, 8, 8, 8, 8, 8, 8, 8, 8, 8)
    sampled = parts("bandit").sample(states(2_000), dice(1)).actions
    assert sampled.shape == (2_000, 15)
    assert sampled[:, 6:].min() == 0 and sampled[:, 6:].max() == 7


@pytest.mark.parametrize("kind", FLAT)
def test_a_flat_policy_has_the_masks_of_the_hierarchy(kind):
    """Nothing for an agent that the workflow lacks, and to each agent only atoms of its role."""
    sampled = parts(kind).sample(states(2_000), dice(1)).actions
    assert not pinned(sampled[:, :6]).any()
    for row in sampled.tolist():
        present = action_space.list_agents(action_space.WORKFLOWS[row[0]])
        for agent in range(3):
            for choice in row[6 + 3 * agent : 9 + 3 * agent]:
                assert choice == 0 or (agent in present and ROLES[agent, choice - 1])


def test_parts_that_the_workflow_pins_are_no_steps_of_an_mdp():
    policy = parts("autoregressive")
    direct, verify = action_space.WORKFLOWS.index("direct"), action_space.WORKFLOWS.index("verify")
    is_choice = policy.find_dimensions_with_choice(torch.tensor([direct, verify]))
    names = list(action_space.DIMENSIONS)
    assert not is_choice[0, names.index("tools2")] and is_choice[1, names.index("tools2")]
    assert is_choice[:, 0].all() and not is_choice[0, 9:].any() and is_choice[1, 9:].any()


# Prompts -------------------------------------------------------------------------------------------


def structures(n: int) -> torch.Tensor:
    """Structures of all workflows in turn."""
    return torch.tensor([[i % 9, 0, 0, i % 3, 0, 0] for i in range(n)])


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 10**6))
def test_atoms_are_of_the_agents_role_never_twice_the_same_and_three_at_the_most_and_stop_ends_a_list(
    seed,
):
    """A list of three needs no STOP; every agent that is there decides at least once, and nobody else."""
    policy, n = prompt(seed), 27
    prompts = policy.sample(states(n, seed), structures(n), dice(seed))
    atoms_by_episode, steps = prompts.atoms, prompts.steps
    for row, agents in enumerate(atoms_by_episode):
        expected = []
        for agent, atoms in enumerate(agents):
            assert len(atoms) <= action_space.MAX_ATOMS == 3 and len(set(atoms)) == len(atoms)
            assert all(ROLES[agent, atom] for atom in atoms)
            if agent in action_space.list_agents(action_space.WORKFLOWS[row % 9]):
                expected += [*atoms, *([policy.stop] if len(atoms) < 3 else [])]
            else:
                assert not atoms
        steps_of_episode = steps.select(steps.episode == row)
        assert (
            steps_of_episode.actions.tolist() == expected
            and steps_of_episode.position.tolist() == list(range(len(expected)))
        )


def test_decisions_are_judged_as_they_were_drawn_and_what_may_not_be_told_has_a_probability_of_exactly_zero():
    policy = prompt()
    steps = policy.sample(states(90), structures(90), dice(2)).steps
    logp, entropy = (values.detach() for values in policy.evaluate_actions(steps))
    assert (
        torch.allclose(logp, steps.logp, atol=1e-6)
        and torch.all(logp <= 0)
        and float(logp.min()) < -0.5
    )
    assert torch.all(entropy <= steps.is_allowed.sum(1).log() + 1e-5)
    chances = policy.compute_logits(steps.states, steps.is_allowed).softmax(-1)
    assert torch.all(chances[~steps.is_allowed] == 0.0) and torch.all(
        chances[steps.is_allowed] > 0.0
    )
    wrong = replace(
        steps, actions=steps.is_allowed.int().argmin(1)
    )  # the first atom that is not allowed
    assert not steps.is_allowed.all(1).any() and torch.all(
        policy.evaluate_actions(wrong)[0] == -torch.inf
    )


def test_a_prompt_decision_sees_question_structure_agent_and_what_was_told():
    policy = prompt()
    chosen = torch.zeros(1, 7, dtype=torch.bool)
    chosen[0, 3] = True
    row = policy.make_states(
        torch.tensor([[0.5, 1.5, 2.5, 3.5]]), torch.tensor([[8, 15, 0, 2, 1, 0]]), 1, chosen
    )[0].tolist()
    hot = [8, 9 + 15, 9 + 16 + 0, 9 + 32 + 2, 9 + 32 + 3 + 1, 9 + 32 + 6 + 0]
    expected = [0.5, 1.5, 2.5, 3.5] + [float(i in hot) for i in range(9 + 32 + 9)]
    assert row == [*expected, 0, 1, 0, *[0, 0, 0, 1, 0, 0, 0]] and len(row) == policy.num_inputs


def test_probabilities_of_all_prompts_sum_to_one():
    """Of an agent with two atoms: (), a, b, ab, ba, each with its STOP."""
    policy = prompt(allowed=np.array([[1, 1], [0, 0], [0, 0]], bool))
    total, at, structure_ = 0.0, states(1), torch.tensor([[0, 0, 0, 0, 0, 0]])
    for atoms in ((), (0,), (1,), (0, 1), (1, 0)):
        chosen, chance = torch.zeros(1, 2, dtype=torch.bool), 1.0
        for atom in (*atoms, policy.stop):
            logits = policy.compute_logits(
                policy.make_states(at, structure_, 0, chosen),
                policy.find_allowed_choices(0, chosen),
            )
            chance *= float(logits.softmax(-1)[0, atom].detach())
            if atom != policy.stop:
                chosen[0, atom] = True
        total += chance
    assert total == pytest.approx(1, abs=1e-6)


def test_a_fresh_policy_rules_nothing_out():
    policy = policies.make_structure_policy(INPUTS)
    chances = (
        policy.compute_logits(policy.trunk(states(50)), 0, torch.zeros(50, 0, dtype=torch.int64))
        .softmax(-1)
        .detach()
    )
    assert float(chances.min()) > 0.5 / 9 and float(chances.max()) < 2 / 9


def test_who_has_no_more_atoms_can_only_stop():
    """The verifier has one atom here, so its second decision is none."""
    policy = prompt()
    prompts = policy.sample(states(300), structures(300), dice(1))
    atoms_by_episode, steps = prompts.atoms, prompts.steps
    assert any(agents[1] for agents in atoms_by_episode)
    only = steps.select(steps.is_allowed.sum(1) == 1)
    assert len(only.actions) > 0
    assert torch.all(only.actions == policy.stop) and torch.all(only.logp == 0.0)
