"""The losses: what clipping stops, and the same values and gradients as TRL's on the same batch."""

import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from trl import GRPOConfig, GRPOTrainer

from lib.language_models.tokenizer import get_tokenizer
from lib.rl.token_ppo import divergence, policy_loss
from tests.budgeted_routing import small

CLIP = 0.2
ONE = torch.tensor([[True]])


@pytest.mark.parametrize(
    ("ratio", "advantage", "stopped"),
    [
        (1.5, 1.0, True),  # already more likely than it may become
        (1.5, -1.0, False),
        (0.5, 1.0, False),
        (0.5, -1.0, True),  # already less likely
        (1.1, 1.0, False),
        (1.1, -1.0, False),
        (0.9, 1.0, False),
        (0.9, -1.0, False),
        (1.0, 1.0, False),
        (1.0, 0.0, True),  # nothing to learn
    ],
)
@pytest.mark.parametrize("by", ["sequence", "token"])
def test_the_gradient_is_zero_exactly_where_the_clip_stops(ratio, advantage, stopped, by):
    new = torch.tensor([[ratio]]).log().requires_grad_()
    loss = policy_loss(new, torch.zeros(1, 1), torch.tensor([[advantage]]), ONE, CLIP, by)
    loss.backward()
    assert (new.grad == 0).all() == stopped
    if not stopped:
        assert new.grad.item() == pytest.approx(-ratio * advantage)
    assert loss.item() == pytest.approx(
        -min(ratio * advantage, min(max(ratio, 0.8), 1.2) * advantage)
    )


def test_the_policy_loss_is_eq_4_by_hand():
    """Two sequences of one and two own tokens, ratios 1.5 and 0.5, 1: -(1.2 + (-0.8 + 2) / 2) / 2."""
    new = torch.tensor([[1.5, 9.0, 9.0], [0.5, 9.0, 1.0]]).log()
    mask = torch.tensor([[True, False, False], [True, False, True]])
    advantages = torch.tensor([[1.0, 9.0, 9.0], [-1.0, 9.0, 2.0]])
    for by, loss in (("sequence", -(1.2 + 0.6) / 2), ("token", -2.4 / 3)):
        assert policy_loss(
            new, torch.zeros(2, 3), advantages, mask, CLIP, by
        ).item() == pytest.approx(loss)


LOGP = st.floats(-20, 0, width=32)


@given(st.lists(st.tuples(LOGP, LOGP), min_size=1, max_size=8))
def test_the_estimated_divergence_is_never_negative_and_zero_where_both_agree(told):
    new, reference = torch.tensor(told, dtype=torch.double).T
    assert (divergence(new, reference) >= -1e-12).all()
    assert not divergence(new, new).any()


@pytest.fixture(
    params=[("sequence", "grpo"), ("token", "bnpo"), ("token", "dapo")], ids=lambda pair: pair[1]
)
def both(request, silence, tmp_path):
    """Our learner and TRL's trainer of one policy; the old policy and the reference are somewhere else."""
    average, loss_type = request.param
    policy = small.toy(words=len(get_tokenizer()))
    made = small.learner(policy=policy, advantages="group", average=average, kl=0.3, clip=CLIP)
    small.drift(made.reference, 0.05, 1)
    settings = GRPOConfig(
        output_dir=str(tmp_path),
        per_device_train_batch_size=6,
        num_generations=3,
        beta=0.0,
        epsilon=CLIP,
        loss_type=loss_type,
        use_cpu=True,
        report_to="none",
        bf16=False,
        gradient_checkpointing=False,
        temperature=1.0,
        gradient_accumulation_steps=1,
        use_bias_correction_kl=False,  # TRL 1.16 multiplies the divergence by the ratio otherwise; Shao et al. do not
    )
    theirs = GRPOTrainer(
        policy,
        reward_funcs=[lambda completions, **_: [0.0] * len(completions)],
        args=settings,
        train_dataset=Dataset.from_dict({"prompt": ["a"]}),
        processing_class=get_tokenizer(),
    )
    theirs.beta, theirs.current_gradient_accumulation_steps = (
        0.3,
        1,
    )  # it gets the reference's log-probabilities
    return made, theirs


def as_trl_has_it(part, samples) -> dict[str, torch.Tensor]:
    """The same episodes: prompts padded on the left, what follows on the right, others' tokens in the tool mask."""
    prompts = [list(s.mask).index(True) for s in samples]
    before, after = max(prompts), max(len(s.ids) - n for s, n in zip(samples, prompts, strict=True))
    rows = {
        name: []
        for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask", "tool_mask")
    }
    for s, n in zip(samples, prompts, strict=True):
        blank, rest = before - n, after - (len(s.ids) - n)
        rows["prompt_ids"].append([0] * blank + list(s.ids[:n]))
        rows["prompt_mask"].append([0] * blank + [1] * n)
        rows["completion_ids"].append(list(s.ids[n:]) + [0] * rest)
        rows["completion_mask"].append([1] * (len(s.ids) - n) + [0] * rest)
        rows["tool_mask"].append([int(own) for own in s.mask[n:]] + [0] * rest)
    return {name: torch.tensor(told) for name, told in rows.items()} | {
        "num_items_in_batch": part.mask.sum()
    }


def test_the_loss_and_its_gradients_are_trls(both):
    made, theirs = both
    # in the learner's order, so that rows and group advantages stand side by side
    samples = sorted(
        small.samples(6, words=len(get_tokenizer()), groups=2), key=lambda s: len(s.ids)
    )
    ((part,),) = made._minibatches(samples)
    made._fill(part)
    made._advantages([part])
    inputs = as_trl_has_it(part, samples)
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    seen, keep = (
        torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
        inputs["completion_ids"].shape[1],
    )
    with torch.no_grad():
        for name, model in (
            ("old_per_token_logps", made.policy),
            ("ref_per_token_logps", made.reference),
        ):
            logits = model(input_ids=ids, attention_mask=seen).logits[:, -keep - 1 : -1]
            inputs[name] = logits.log_softmax(-1).gather(2, inputs["completion_ids"][..., None])[
                ..., 0
            ]
    inputs["advantages"] = torch.stack(
        [a[m][0] for a, m in zip(part.advantages, part.mask, strict=True)]
    )
    small.drift(made.policy, 0.02, 2)  # ratios that are not 1

    value, told = made._loss(part)
    made.policy.zero_grad()
    value.backward()
    ours = torch.cat([w.grad.flatten() for w in made.policy.parameters()])
    made.policy.zero_grad()
    loss = theirs._compute_loss(theirs.model, inputs)
    loss.backward()
    gradients = torch.cat([w.grad.flatten() for w in made.policy.parameters()])
    assert (
        0.05 < told["clipped"] < 0.95
        and told["kl"] > 1e-3
        and inputs["advantages"].abs().max() > 0.5
    )
    assert told["loss"] == pytest.approx(loss.item(), rel=1e-4)
    torch.testing.assert_close(ours, gradients, atol=1e-4 * float(gradients.abs().max()), rtol=1e-4)
