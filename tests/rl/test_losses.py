"""Losses and advantages: worked by hand, against their definitions, and equal to TRL's on the same batch."""

import copy
import math

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from trl import GRPOConfig, GRPOTrainer

from lib.language_models.tokenizer import get_tokenizer
from lib.rl.losses import (
    average_over_tokens,
    compute_clipped_objective,
    compute_gae,
    compute_group_advantages,
    compute_masked_gae,
    compute_policy_loss,
    compute_value_loss,
    estimate_kl,
    gather_masked,
    scatter_masked,
    whiten,
)
from tests.budgeted_routing import small_systems

CLIP = 0.2
KL_WEIGHT = 0.3
JUNK = st.floats(-1e6, 1e6, width=32)
VALUE = st.floats(-2, 2, width=32)
LOGPROB = st.floats(-20, 0, width=32)
FRACTION = st.floats(0, 1)
NONFINITE = [math.nan, math.inf, -math.inf]


# The clipped objective ----------------------------------------------------------------------------

# ratio, advantage, objective
CLIPPED = [
    (1.0, 2.0, 2.0), (1.1, 2.0, 2.2), (1.5, 2.0, 2.4), (0.5, 2.0, 1.0),
    (1.0, -2.0, -2.0), (0.9, -2.0, -1.8), (0.5, -2.0, -1.6), (1.5, -2.0, -3.0),
]  # fmt: skip


@pytest.mark.parametrize("ratio, advantage, expected", CLIPPED)
def test_the_objective_is_flat_where_the_ratio_left_the_clip_range_in_the_direction_of_the_advantage(
    ratio, advantage, expected
):
    old = torch.tensor([0.3]).log()
    new = torch.tensor([0.3 * ratio]).log().requires_grad_()
    objective = compute_clipped_objective(new, old, torch.tensor([advantage]), CLIP)
    objective.backward()
    assert objective.item() == pytest.approx(expected, rel=1e-5)
    is_flat = ratio > 1 + CLIP if advantage > 0 else ratio < 1 - CLIP
    slope = 0.0 if is_flat else ratio * advantage
    assert new.grad.item() == pytest.approx(slope, rel=1e-5)


def test_each_row_may_have_its_own_clip():
    new, clip = torch.tensor([[1.5, 0.5], [1.5, 0.5]]).log(), torch.tensor([[0.2], [0.6]])
    advantages = torch.tensor([[1.0, -1.0], [1.0, -1.0]])
    objective = compute_clipped_objective(new, torch.zeros(2, 2), advantages, clip)
    torch.testing.assert_close(objective, torch.tensor([[1.2, -0.8], [1.5, -0.5]]))


# Averages, policy loss, KL and value loss ---------------------------------------------------------


def test_the_policy_loss_is_eq_4_of_corl_by_hand():
    """Two sequences of one and two policy tokens, ratios 1.5 and 0.5, 1: -(1.2 + (-0.8 + 2) / 2) / 2."""
    new = torch.tensor([[1.5, 9.0, 9.0], [0.5, 9.0, 1.0]]).log()
    mask = torch.tensor([[True, False, False], [True, False, True]])
    advantages = torch.tensor([[1.0, 9.0, 9.0], [-1.0, 9.0, 2.0]])
    for by, expected in (("sequence", -(1.2 + 0.6) / 2), ("token", -2.4 / 3)):
        loss = compute_policy_loss(new, torch.zeros(2, 3), advantages, mask, CLIP, by)
        assert loss.item() == pytest.approx(expected)


def test_the_value_loss_is_half_the_mean_squared_error_by_hand():
    """Errors 1 and 2, 3 at policy tokens: means of squares are (1 + 6.5) / 2 and 14 / 3."""
    values = torch.tensor([[1.0, 9.0, 9.0], [2.0, 9.0, 3.0]])
    mask = torch.tensor([[True, False, False], [True, False, True]])
    returns = torch.zeros(2, 3)
    assert compute_value_loss(values, returns, mask, "sequence").item() == pytest.approx(3.75 / 2)
    assert compute_value_loss(values, returns, mask, "token").item() == pytest.approx(14 / 6)


def test_an_average_by_anything_else_is_refused():
    with pytest.raises(ValueError, match="not by 'batch'"):
        average_over_tokens(torch.ones(1, 2), torch.ones(1, 2), "batch")


def test_an_average_without_any_policy_token_is_0():
    for by in ("sequence", "token"):
        assert average_over_tokens(torch.ones(2, 2), torch.zeros(2, 2), by).item() == 0


@given(st.lists(st.tuples(LOGPROB, LOGPROB), min_size=1, max_size=8))
def test_the_kl_estimate_is_never_negative_and_0_where_both_policies_agree(pairs):
    new, reference = torch.tensor(pairs, dtype=torch.double).T
    assert (estimate_kl(new, reference) >= -1e-12).all()
    assert not estimate_kl(new, new).any()


def test_the_kl_estimate_has_the_kl_divergence_as_its_mean_under_the_policy():
    policy = torch.tensor([0.5, 0.3, 0.2], dtype=torch.double)
    reference = torch.tensor([0.2, 0.2, 0.6], dtype=torch.double)
    divergence = (policy * (policy / reference).log()).sum()
    mean_estimate = (policy * estimate_kl(policy.log(), reference.log())).sum()
    assert mean_estimate.item() == pytest.approx(divergence.item())


# The same batch in TRL ----------------------------------------------------------------------------

ROWS, GROUP, PROMPT, COMPLETION = 6, 3, 4, 9
LOSS_TYPES = {"grpo": "sequence", "bnpo": "token", "dapo": "token"}  # TRL's name: our `by`


def make_trl_trainer(policy, folder, loss_type: str, **changes) -> GRPOTrainer:
    """TRL's GRPO on a small policy; rewards are the numbers that stand in a column of the data."""
    config = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=ROWS,
        num_generations=GROUP,
        beta=0.0,
        epsilon=CLIP,
        loss_type=loss_type,
        use_cpu=True,
        report_to="none",
        bf16=False,
        gradient_checkpointing=False,
        temperature=1.0,
        gradient_accumulation_steps=1,
        **changes,
    )
    trainer = GRPOTrainer(
        policy,
        reward_funcs=[lambda completions, number, **_: number],
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a"]}),
        processing_class=get_tokenizer(),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def make_trl_inputs(num_words: int) -> dict[str, torch.Tensor]:
    """Random episodes in TRL's form; replies of experts stand in completions and have 0 in the tool mask."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, COMPLETION + 1, (ROWS, 1), generator=generator)
    tool_mask = torch.randint(2, (ROWS, COMPLETION), generator=generator)
    tool_mask[:, 0] = 1  # the policy writes the first token
    rewards = torch.randint(3, (ROWS,), generator=generator).float()

    def draw_ids(width: int) -> torch.Tensor:
        return torch.randint(1, num_words, (ROWS, width), generator=generator)

    completion_mask = (torch.arange(COMPLETION) < lengths).long()
    return {
        "prompt_ids": draw_ids(PROMPT),
        "prompt_mask": torch.ones(ROWS, PROMPT, dtype=torch.long),
        "completion_ids": draw_ids(COMPLETION),
        "completion_mask": completion_mask,
        "tool_mask": tool_mask,
        "num_items_in_batch": (completion_mask * tool_mask).sum(),
        "advantages": compute_group_advantages(rewards, GROUP),
    }


def compute_completion_logprobs(model, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    """Log-probabilities of the tokens of completions, (rows, completion)."""
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    attention_mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1)
    logits = model(input_ids=ids, attention_mask=attention_mask).logits[:, PROMPT - 1 : -1]
    return logits.log_softmax(-1).gather(2, inputs["completion_ids"][..., None])[..., 0]


def compute_gradient(loss: torch.Tensor, model) -> torch.Tensor:
    """The gradient of a loss by all weights of a model, in a row."""
    return torch.cat([each.flatten() for each in torch.autograd.grad(loss, model.parameters())])


@pytest.mark.parametrize("has_ratio_in_kl", [False, True])
@pytest.mark.parametrize("loss_type", LOSS_TYPES)
def test_loss_and_gradient_equal_trls(loss_type, has_ratio_in_kl, silence, tmp_path):
    """TRL's KL term is ours without `use_bias_correction_kl`, and ours times the ratio with it."""
    num_words = len(get_tokenizer())
    policy = small_systems.make_toy_model(words=num_words)
    trainer = make_trl_trainer(policy, tmp_path, loss_type, use_bias_correction_kl=has_ratio_in_kl)
    trainer.beta = (
        KL_WEIGHT  # set here, since the inputs have the log-probabilities of the reference
    )
    reference = copy.deepcopy(policy)
    small_systems.perturb_weights(reference, 0.05, 1)
    inputs = make_trl_inputs(num_words)
    with torch.no_grad():
        inputs["old_per_token_logps"] = compute_completion_logprobs(policy, inputs)
        inputs["ref_per_token_logps"] = compute_completion_logprobs(reference, inputs)
    small_systems.perturb_weights(policy, 0.02, 2)  # ratios that are not 1

    new, old = compute_completion_logprobs(policy, inputs), inputs["old_per_token_logps"]
    mask = inputs["completion_mask"] * inputs["tool_mask"]
    advantages = inputs["advantages"][:, None].expand_as(mask)
    kl_estimate = estimate_kl(new, inputs["ref_per_token_logps"])
    ratio = (new - old).exp()
    if has_ratio_in_kl:
        kl_estimate = kl_estimate * ratio
    by = LOSS_TYPES[loss_type]
    kl = average_over_tokens(kl_estimate, mask, by)
    loss = compute_policy_loss(new, old, advantages, mask, CLIP, by) + KL_WEIGHT * kl

    is_clipped = (ratio - 1).abs()[mask.bool()] > CLIP
    assert is_clipped.any() and not is_clipped.all() and kl.item() > 1e-3
    expected = trainer._compute_loss(trainer.model, inputs)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)
    gradient, expected_gradient = (compute_gradient(each, policy) for each in (loss, expected))
    tolerance = 1e-4 * float(expected_gradient.abs().max())
    torch.testing.assert_close(gradient, expected_gradient, atol=tolerance, rtol=1e-4)


@pytest.mark.parametrize("divide, scale_rewards", [(True, "group"), (False, "none")])
def test_group_advantages_equal_trls(divide, scale_rewards, silence, tmp_path):
    policy = small_systems.make_toy_model(words=len(get_tokenizer()))
    changes = {"scale_rewards": scale_rewards, "max_completion_length": 2}
    trainer = make_trl_trainer(policy, tmp_path, "grpo", **changes)
    rewards = [1.0, 0.0, 0.0, 0.5, 0.5, 0.5]  # the second group agrees
    batch = [{"prompt": "a", "number": reward} for reward in rewards]
    expected = trainer._generate_and_score_completions(batch)["advantages"]
    advantages = compute_group_advantages(torch.tensor(rewards), GROUP, divide)
    torch.testing.assert_close(advantages, expected)


# Rows of any mask ---------------------------------------------------------------------------------


@st.composite
def token_rows(draw, max_rows: int = 5) -> list[list[tuple[bool, float]]]:
    """Rows of (is it a policy token?, V), each with at least one policy token and one that is none."""
    rows = []
    for _ in range(draw(st.integers(1, max_rows))):
        tokens = draw(st.lists(st.tuples(st.booleans(), VALUE), max_size=10))
        tokens.insert(draw(st.integers(0, len(tokens))), (True, draw(VALUE)))
        rows.append([(False, draw(JUNK)), *tokens])
    return rows


def pad_rows(rows: list[list[tuple[bool, float]]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Values and mask, padded on the right."""
    width = max(map(len, rows))
    padded = [[*row, *[(False, 0.0)] * (width - len(row))] for row in rows]
    values = torch.tensor([[value for _, value in row] for row in padded])
    mask = torch.tensor([[is_policy for is_policy, _ in row] for row in padded])
    return values, mask


@given(token_rows())
@settings(deadline=None, max_examples=60)
def test_scattering_is_the_inverse_of_gathering(rows):
    values, mask = pad_rows(rows)
    gathered = gather_masked(values, mask)
    assert gathered.shape[1] == mask.sum(1).max()
    assert torch.equal(scatter_masked(gathered, mask), torch.where(mask, values, 0.0))
    assert torch.equal(gather_masked(scatter_masked(gathered, mask), mask), gathered)


# GAE ----------------------------------------------------------------------------------------------


def test_an_episode_that_ends_hides_what_follows_and_one_that_goes_on_counts_the_last_value():
    """gamma 1/2, lambda 1/2: deltas are 1 + 1 - 1, 2 - 2 (its end) and 3 + 2 - 4; values 1, 2, 4, then 4."""
    rewards, values = torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 2.0, 4.0]])
    continues = torch.tensor([[1.0, 0.0, 1.0]])
    advantages, returns = compute_gae(rewards, values, continues, torch.tensor([4.0]), 0.5, 0.5)
    assert advantages.tolist() == [[1.0, 0.0, 1.0]] and returns.tolist() == [[2.0, 2.0, 5.0]]


def sum_discounted_deltas(
    reward: float, values: list[float], gamma: float, lam: float
) -> list[float]:
    """A_t as the sum of (gamma lam)^k delta_{t+k}, in a double loop."""
    deltas = []
    for t, value in enumerate(values):
        is_last = t == len(values) - 1
        target = reward if is_last else gamma * values[t + 1]
        deltas.append(target - value)
    return [
        sum((gamma * lam) ** k * delta for k, delta in enumerate(deltas[t:]))
        for t in range(len(values))
    ]


@given(token_rows(), FRACTION, FRACTION, st.lists(VALUE, min_size=5, max_size=5))
@settings(deadline=None, max_examples=60)
def test_gae_equals_its_definition_in_a_double_loop(rows, gamma, lam, rewards):
    values, mask = pad_rows(rows)
    rewards = rewards[: len(rows)]
    advantages, returns = compute_masked_gae(torch.tensor(rewards), values, mask, gamma, lam)
    for index, reward in enumerate(rewards):
        is_policy = mask[index]
        policy_values = values[index][is_policy].tolist()
        expected = sum_discounted_deltas(reward, policy_values, gamma, lam)
        expected_returns = np.add(expected, policy_values)
        np.testing.assert_allclose(advantages[index][is_policy], expected, atol=1e-4)
        np.testing.assert_allclose(returns[index][is_policy], expected_returns, atol=1e-4)
        assert not advantages[index][~is_policy].any() and not returns[index][~is_policy].any()


@given(token_rows(), FRACTION, FRACTION, st.lists(VALUE, min_size=5, max_size=5), st.data())
@settings(deadline=None, max_examples=60)
def test_tokens_of_experts_change_no_bit_of_gae_wherever_they_stand(
    rows, gamma, lam, rewards, data
):
    """Rows of policy tokens alone, and the same rows with anything between them."""
    bare_rows = [[token for token in row if token[0]] for row in rows]
    mixed_rows = []
    for row in bare_rows:
        mixed_row = list(row)
        for _ in range(data.draw(st.integers(0, 8))):
            position = data.draw(st.integers(0, len(mixed_row)))
            mixed_row.insert(position, (False, data.draw(JUNK)))
        mixed_rows.append(mixed_row)

    rewards = torch.tensor(rewards)[: len(rows)]
    bare_values, bare_mask = pad_rows(bare_rows)
    mixed_values, mixed_mask = pad_rows(mixed_rows)
    bare = compute_masked_gae(rewards, bare_values, bare_mask, gamma, lam)
    mixed = compute_masked_gae(rewards, mixed_values, mixed_mask, gamma, lam)
    for of_bare, of_mixed in zip(bare, mixed, strict=True):  # advantages, then returns
        assert torch.equal(of_bare[bare_mask], of_mixed[mixed_mask])


def test_values_that_are_nan_at_tokens_of_experts_change_nothing():
    values = torch.tensor([[float("nan"), 0.5, float("inf"), 0.25]])
    mask = torch.tensor([[False, True, False, True]])
    advantages, returns = compute_masked_gae(torch.tensor([1.0]), values, mask, 1.0, 1.0)
    assert advantages.tolist() == [[0, 0.5, 0, 0.75]] and returns.tolist() == [[0, 1, 0, 1]]


# Rewards that are no numbers ----------------------------------------------------------------------


@pytest.mark.parametrize("broken", NONFINITE)
@pytest.mark.parametrize("groups", [2, [0, 1, 0, 1, 2, 2]])
def test_a_reward_that_is_nan_or_infinite_is_refused_in_groups_with_its_index(broken, groups):
    rewards = torch.tensor([1.0, 0.0, broken, 0.0, broken, 1.0])
    with pytest.raises(ValueError, match=r"^2 of 6 rewards are NaN or infinite, .* index 2 "):
        compute_group_advantages(rewards, groups)


@pytest.mark.parametrize("broken", NONFINITE)
def test_a_reward_that_is_nan_or_infinite_is_refused_by_gae_with_its_index(broken):
    values, mask = torch.zeros(3, 2), torch.ones(3, 2, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"^1 of 3 rewards are NaN or infinite, .* index 1 "):
        compute_masked_gae(torch.tensor([1.0, broken, 0.0]), values, mask, 1.0, 1.0)


# Groups -------------------------------------------------------------------------------------------


def test_group_advantages_equal_a_case_by_hand():
    """Group 7: 1, 0, 0 with mean 1/3 and deviation 1/sqrt(3), of a sample as TRL's; group 3: 0.5 and 1.5."""
    advantages = compute_group_advantages(torch.tensor([1.0, 0.5, 0.0, 1.5, 0.0]), [7, 3, 7, 3, 7])
    third, half = 3**-0.5 + 1e-4, 0.5**0.5 + 1e-4
    assert advantages.tolist() == pytest.approx(
        [2 / 3 / third, -0.5 / half, -1 / 3 / third, 0.5 / half, -1 / 3 / third]
    )
    advantages = compute_group_advantages(
        torch.tensor([1.0, 0.5, 0.0, 1.5, 0.0]), [7, 3, 7, 3, 7], divide=False
    )
    assert advantages.tolist() == pytest.approx([2 / 3, -0.5, -1 / 3, 0.5, -1 / 3])


def test_groups_that_stand_beside_each_other_need_no_ids():
    rewards = torch.rand(12, generator=torch.Generator().manual_seed(0))
    assert torch.equal(
        compute_group_advantages(rewards, 4),
        compute_group_advantages(rewards, [i // 4 for i in range(12)]),
    )


def test_with_correction_0_squares_are_divided_by_n_as_in_arc():
    """Ids 4 and 9 are whole numbers; the third group has deviation sqrt(2/9) * 3 (ARC, appendix H)."""
    rewards, groups = (
        torch.tensor([1.0, 5.0, 3.0, 5.0, 0.0, 0.0, 3.0]),
        torch.tensor([4, 9, 4, 9, 7, 7, 7]),
    )
    expected = [-1.0, 0.0, 1.0, 0.0, -(0.5**0.5), -(0.5**0.5), 2**0.5]
    advantages = compute_group_advantages(rewards, groups, correction=0, epsilon=1e-8)
    assert advantages.tolist() == pytest.approx(expected, abs=1e-6)


@given(
    st.lists(st.tuples(st.floats(0, 1, width=32), st.integers(0, 3)), min_size=1, max_size=12),
    st.randoms(),
    st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_groups_may_stand_in_any_order(rewards_and_groups, random, divide):
    order = list(range(len(rewards_and_groups)))
    random.shuffle(order)
    rewards = torch.tensor([reward for reward, _ in rewards_and_groups])
    groups = [group for _, group in rewards_and_groups]
    in_order = compute_group_advantages(rewards, groups, divide)
    shuffled = compute_group_advantages(rewards[order], [groups[i] for i in order], divide)
    torch.testing.assert_close(
        shuffled, in_order[order], atol=1e-3, rtol=1e-3
    )  # sums in another order


@pytest.mark.parametrize("divide", [True, False])
def test_a_group_of_equal_rewards_and_a_group_of_one_get_0(divide):
    advantages = compute_group_advantages(
        torch.tensor([1.0, 1.0, 0.3, 0.0, 1.0]), [0, 0, 1, 2, 2], divide
    )
    assert advantages[:3].tolist() == [0, 0, 0]
    assert advantages[3] < 0 < advantages[4]


# Whitening ----------------------------------------------------------------------------------------


def test_whitening_by_hand():
    """1, 3 and 5: mean 3, deviation sqrt(8/3)."""
    step = 2 / (8 / 3) ** 0.5
    torch.testing.assert_close(
        whiten(torch.tensor([1.0, 5.0, 3.0])), torch.tensor([-step, step, 0])
    )
    assert not whiten(torch.full((3,), 2.0)).any()  # no deviation


def test_along_a_dimension_each_row_is_whitened_by_itself():
    whitened = whiten(torch.tensor([[1.0, 3.0], [10.0, 30.0]]), dim=1, correction=1)
    torch.testing.assert_close(whitened, torch.tensor([[-1.0, 1.0], [-1.0, 1.0]]) / 2**0.5)
