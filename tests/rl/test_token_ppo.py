"""The trainer: tokens of others teach nothing, the first pass is exact, and rewards are learned."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch

from lib.language_models.chat_template import encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS, PAD
from lib.rl.losses import compute_group_advantages
from lib.rl.policy_model import PolicyModel
from lib.rl.token_batch import Sample, collate_samples
from lib.rl.token_ppo import TokenPPO
from tests.budgeted_routing import small_systems
from tests.budgeted_routing.small_systems import draw_samples, flatten_weights
from tests.language_models import tiny
from tests.rl.trainers import averages, have_equal_weights, kinds, make_trainer, run_updates


def list_microbatches(trainer: TokenPPO, chosen) -> list:
    return list(itertools.chain(*trainer._split_samples(chosen)))


@kinds
@averages
def test_states_before_tokens_of_others_change_nothing(advantages, value, average):
    """They are replaced by noise: in the policy, in its reference and in the critic's trunk."""
    options = {
        "advantages": advantages,
        "value": value,
        "average": average,
        "kl": 0.3,
        "epochs": 2,
        "whiten": True,
    }
    plain, noisy = make_trainer(**options), make_trainer(**options)
    (microbatch,) = list_microbatches(noisy, draw_samples())

    def blur_states(module, arguments, output):
        states = output.last_hidden_state.clone()
        states[:, :-1][~microbatch.mask] = 7.0
        states[:, -1] = -7.0
        output.last_hidden_state = states
        return output

    trunks = [noisy.policy.trunk, noisy.policy.reference.base_model]
    if value == "apart":
        trunks.append(noisy.critic.trunk)
    for trunk in trunks:
        trunk.register_forward_hook(blur_states)
    assert plain.update(draw_samples()) == noisy.update(draw_samples())
    assert have_equal_weights(plain, noisy)
    assert not torch.equal(
        flatten_weights(plain.policy.network), flatten_weights(small_systems.make_toy_model())
    )


@kinds
@pytest.mark.parametrize("minibatch", [64, 4], ids=["one minibatch", "several"])
def test_the_ratio_of_the_first_pass_is_exactly_one(advantages, value, minibatch):
    """In every update and in every minibatch of it."""
    trainer = make_trainer(advantages=advantages, value=value, minibatch=minibatch, epochs=2)
    for seed in range(3):
        microbatches = list_microbatches(trainer, draw_samples(10, seed))
        assert len(microbatches) == (1 if minibatch == 64 else 3)
        for microbatch in microbatches:
            trainer._evaluate(microbatch, needs_old_logprobs=True)
            logprobs = trainer.policy.compute_logprobs(microbatch)
            assert torch.equal(logprobs, microbatch.old_logprobs)
        assert trainer.update(draw_samples(10, seed))["ratio"] == 0.0
    moved = trainer.policy.compute_logprobs(microbatches[0])
    assert not torch.equal(moved, microbatches[0].old_logprobs)


def test_an_update_of_one_step_learns_the_same_with_and_without_a_pass_of_its_own_for_old_logprobs(
    monkeypatch,
):
    options = {"advantages": "group", "kl": 0.3, "microbatch": 3}
    saving, thorough = make_trainer(**options), make_trainer(**options)
    evaluate = thorough._evaluate
    monkeypatch.setattr(thorough, "_evaluate", lambda microbatch, _: evaluate(microbatch, True))
    assert run_updates(saving, range(3)) == run_updates(thorough, range(3))
    assert have_equal_weights(saving, thorough)


def test_padding_and_neighbours_do_not_change_what_is_read():
    trainer, chosen = make_trainer(), draw_samples(6)
    (microbatch,) = list_microbatches(trainer, chosen)
    together = trainer.policy.compute_logprobs(microbatch)
    by_length = sorted(chosen, key=lambda sample: len(sample.ids))
    for sample, row in zip(by_length, together, strict=True):
        alone = trainer.policy.compute_logprobs(collate_samples([sample], 0))[0]
        torch.testing.assert_close(row[: len(alone)], alone, atol=1e-5, rtol=0)
        assert not row[len(alone) :].any()


def test_the_lab_generator_and_the_trainer_agree_on_logprobs():
    """With a model of the size that lesson 05 trains; the generator has a forward pass of its own."""
    shape = small_systems.SMOKE_PARAMS.lab.models[small_systems.SMOKE.base]
    fields = ("hidden", "layers", "heads", "intermediate", "window")
    network = tiny.model(0, spread=6.0, **{name: getattr(shape, name) for name in fields})
    prompts = tiny.prompts(12, longest=80)
    requests = [Prompt(prompt, 24, 1.0, index) for index, prompt in enumerate(prompts)]
    written = generate(Forward(network), requests, encode_special(EOS))
    episodes = [
        Sample([*prompt, *turn.ids], [False] * len(prompt) + [True] * len(turn.ids), 0.0)
        for prompt, turn in zip(prompts, written, strict=True)
    ]
    batch = collate_samples(episodes, encode_special(PAD))
    logprobs = PolicyModel(network).compute_logprobs(batch).detach()
    for row, mask, turn in zip(logprobs, batch.mask, written, strict=True):
        np.testing.assert_allclose(row[mask], turn.logprobs, atol=1e-4)
    assert 0.5 < -float(logprobs[batch.mask].mean()) < 8  # neither certain nor blind


def play_game(trainer: TokenPPO, num_episodes: int, seed: int) -> list[Sample]:
    """Episodes of prompt, turn, reply, turn, reply; the reward is 1 if the first turn is 5 and not 6."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.ones(num_episodes, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(2):
            probabilities = trainer.policy.network(ids).logits[:, -1, 5:7].softmax(-1)
            turns = 5 + torch.multinomial(probabilities, 1, generator=generator)
            replies = torch.randint(7, 9, (num_episodes, 1), generator=generator)
            ids = torch.cat([ids, turns, replies], 1)
    mask = [False, True, False, True, False]
    return [
        Sample(row, mask, float(row[1] == 5), index // 8) for index, row in enumerate(ids.tolist())
    ]


@kinds
@averages
def test_it_learns_what_is_rewarded(advantages, value, average):
    trainer = make_trainer(
        advantages=advantages,
        value=value,
        average=average,
        whiten=advantages == "gae",
        learning_rate=1e-2,
        value_learning_rate=1e-2,
        kl=0.0,
        epochs=2,
        minibatch=16,
    )
    rewards = []
    for step in range(16):
        episodes = play_game(trainer, 32, step)
        rewards.append(np.mean([sample.reward for sample in episodes]))
        trainer.update(episodes)
    assert 0.1 < rewards[0] < 0.8 and np.mean(rewards[-4:]) > 0.95, rewards


def test_lora_learns_what_is_rewarded():
    trainer = make_trainer(
        {"lora_rank": 4},
        advantages="gae",
        value="apart",
        whiten=True,
        learning_rate=5e-2,
        value_learning_rate=1e-2,
        kl=0.0,
        epochs=2,
        minibatch=16,
    )
    frozen = small_systems.make_toy_model().state_dict()
    rewards = []
    for step in range(16):
        episodes = play_game(trainer, 32, step)
        rewards.append(np.mean([sample.reward for sample in episodes]))
        trainer.update(episodes)
    assert 0.1 < rewards[0] < 0.8 and np.mean(rewards[-4:]) > 0.95, rewards
    for name, weight in trainer.policy.network.state_dict().items():
        if "lora_" not in name:
            assert torch.equal(weight, frozen[name.replace(".base_layer", "")])


def test_a_penalty_keeps_the_policy_near_its_start():
    divergence = {}
    for kl in (0.01, 10.0):
        trainer = make_trainer(kl=kl, learning_rate=1e-2)
        for step in range(8):
            metrics = trainer.update(play_game(trainer, 16, step))
        divergence[kl] = metrics["kl"]
    assert divergence[10.0] < 0.1 * divergence[0.01]


def test_without_a_penalty_there_is_no_reference_and_no_divergence_is_reported():
    trainer = make_trainer(kl=0.0)
    assert np.isnan(trainer.update(draw_samples())["kl"]) and trainer.policy.reference is None


def read_learning_rates(trainer: TokenPPO, num_updates: int) -> list[float]:
    """The optimiser's learning rate after each update, over the full one."""
    rates = []
    for _ in range(num_updates):
        trainer.update(draw_samples(4))
        rates.append(trainer.optimiser.param_groups[0]["lr"] / 1e-3)
    return rates


def test_the_learning_rate_rises_and_then_stays_or_falls_straight_to_the_end():
    changes = {"learning_rate": 1e-3, "value_learning_rate": 4e-3, "warmup": 4, "num_updates": 8}
    constant = make_trainer(schedule="constant", **changes)
    assert read_learning_rates(constant, 6) == pytest.approx([0.25, 0.5, 0.75, 1, 1, 1])
    linear = make_trainer(schedule="linear", **changes)
    expected = [0.25, 0.5, 0.75, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8]
    assert read_learning_rates(linear, 8) == pytest.approx(expected)
    last_rates = [group["lr"] for group in linear.optimiser.param_groups]
    assert last_rates == pytest.approx([1e-3 / 8, 4e-3 / 8])  # the critic's too


def test_the_gradient_of_the_policy_is_clipped_to_its_longest():
    """Adam hardly shows how long it was, so it is kept after the step."""
    norms = []
    for max_grad_norm in (1e-3, 1e3):
        trainer = make_trainer(max_grad_norm=max_grad_norm, value="apart")
        trainer.optimiser.zero_grad = lambda: None
        trainer.update(draw_samples())
        gradients = [weight.grad.flatten() for weight in trainer.policy.network.parameters()]
        norms.append(torch.cat(gradients).norm().item())
    assert norms[0] == pytest.approx(1e-3, rel=1e-3) and 1e-2 < norms[1] < 1e3


@kinds
def test_the_same_seed_learns_the_same_and_another_takes_minibatches_in_another_order(
    advantages, value
):
    options = {"advantages": advantages, "value": value, "minibatch": 3}
    one, two, other = (make_trainer(seed=seed, **options) for seed in (1, 1, 2))
    metrics = [run_updates(trainer, range(4)) for trainer in (one, two, other)]
    assert metrics[0] == metrics[1] != metrics[2]
    assert have_equal_weights(one, two) and not have_equal_weights(one, other)


@kinds
@averages
def test_a_minibatch_in_microbatches_is_learned_from_as_a_whole(
    advantages, value, average, monkeypatch
):
    """Of unequal size and length: gradients, before Adam makes them all as long, add up to those of one pass."""
    gradients, metrics = [], []
    for microbatch in (8, 3):
        trainer = make_trainer(
            minibatch=8,
            microbatch=microbatch,
            average=average,
            advantages=advantages,
            value=value,
            kl=0.3,
        )
        small_systems.perturb_weights(trainer.policy.reference, 0.1)

        def keep_gradients(trainer=trainer) -> None:
            parameters = trainer._list_parameters().values()
            gradients.append(torch.cat([weight.grad.flatten() for weight in parameters]))

        monkeypatch.setattr(trainer, "_apply_gradients", keep_gradients)
        metrics.append(trainer.update(draw_samples(8)))
    atol = 1e-5 * float(gradients[0].abs().max())
    torch.testing.assert_close(gradients[1], gradients[0], atol=atol, rtol=1e-3)
    assert metrics[1] == pytest.approx(metrics[0], abs=1e-5) and metrics[0]["kl"] > 1e-3


def test_replies_of_others_are_read_all_the_same():
    """Or the policy could not use them: another reply is another log-probability of what follows."""
    sample = Sample([1, 2, 3, 4, 5], [False, True, False, False, True], 1.0)
    other = Sample([1, 2, 3, 9, 5], sample.mask, 1.0)
    policy = make_trainer().policy
    one, two = (policy.compute_logprobs(collate_samples([s], 0))[0] for s in (sample, other))
    assert one[0] == two[0] != 0 and one[3] != two[3] and not one[1:3].any()


def test_a_reward_that_is_no_number_stops_the_update_before_anything_is_learned():
    trainer = make_trainer()
    with pytest.raises(ValueError, match="sample 3 has the reward nan"):
        trainer.update([*draw_samples(3), replace(draw_samples(1)[0], ids=[1] * 90, mask=[False] * 89 + [True],
                                             reward=float("nan"))])  # fmt: skip
    assert (
        torch.equal(
            flatten_weights(trainer.policy.network), flatten_weights(small_systems.make_toy_model())
        )
        and trainer.step == 0
    )


def test_at_the_start_there_is_no_distance_to_the_start():
    trainer = make_trainer(kl=0.5)
    assert trainer.update(draw_samples())["kl"] == 0.0 and trainer.update(draw_samples())["kl"] > 0


def test_the_critic_learns_the_mean_reward_of_each_prompt():
    """Half of the prompts always get the reward, the others never, whatever the policy writes."""
    trainer = make_trainer(value="apart", value_learning_rate=1e-2, learning_rate=1e-9)
    mask = [False, True, False, True]
    episodes = [Sample([1 + i % 2, 5, 7, 6], mask, float(i % 2), i) for i in range(8)]
    errors = [trainer.update(episodes)["value_error"] for _ in range(40)]
    assert errors[0] == 0.25 and errors[-1] < 0.02  # half of the mean of 0 and 1


def test_all_episodes_of_an_update_are_learned_from_once_per_pass(monkeypatch):
    """Minibatches are cut by length; none is lost, none comes twice."""
    trainer, learned = make_trainer(minibatch=4, epochs=2), []
    take_step = trainer._take_step

    def record_step(minibatch):
        for microbatch in minibatch:
            learned.extend(microbatch.ids.tolist())
        return take_step(minibatch)

    monkeypatch.setattr(trainer, "_take_step", record_step)
    trainer.update(draw_samples(10))
    without_padding = sorted(tuple(itertools.takewhile(bool, ids)) for ids in learned)
    assert without_padding == sorted([tuple(sample.ids) for sample in draw_samples(10)] * 2)


@pytest.mark.parametrize(("minibatch", "count"), [(3, 3), (64, 1)])
def test_advantages_are_whitened_over_all_of_an_update_stratum_by_stratum(minibatch, count):
    """Where rewards are rare they weigh as much as elsewhere."""
    trainer = make_trainer(whiten=True, minibatch=minibatch)
    chosen = [replace(sample, stratum=index % 2) for index, sample in enumerate(draw_samples(8))]
    microbatches = list_microbatches(trainer, chosen)
    assert len(microbatches) == count
    for index, microbatch in enumerate(microbatches):
        numbers = torch.arange(microbatch.mask.numel()).view(microbatch.mask.shape)
        microbatch.advantages = torch.sin(numbers + 5.0 * index) * microbatch.mask
    before = [microbatch.advantages.clone() for microbatch in microbatches]
    trainer._assign_advantages(microbatches)
    after = [microbatch.advantages for microbatch in microbatches]
    for stratum in (0, 1):
        masks = [part.mask & (part.strata == stratum)[:, None] for part in microbatches]
        raw, whitened = (
            torch.cat([values[mask] for values, mask in zip(tensors, masks, strict=True)])
            for tensors in (before, after)
        )
        torch.testing.assert_close(whitened, (raw - raw.mean()) / raw.std(correction=0))
    assert all(not part.advantages[~part.mask].any() for part in microbatches)


def test_every_episode_gets_its_groups_advantage_in_any_order():
    """The trainer sorts by length and cuts into minibatches; groups are known by their ids."""
    chosen = draw_samples(9, groups=3)
    rewards = torch.tensor([sample.reward for sample in chosen])
    advantages = compute_group_advantages(rewards, [sample.group for sample in chosen])
    expected = {
        (tuple(sample.ids), tuple(sample.mask)): advantage
        for sample, advantage in zip(chosen, advantages.tolist(), strict=True)
    }
    assert len(expected) == 9 and len({round(value, 4) for value in expected.values()}) > 2
    for shuffled in (chosen, chosen[::-1], chosen[3:] + chosen[:3]):
        trainer = make_trainer(advantages="group", minibatch=4)
        microbatches, assigned = list_microbatches(trainer, shuffled), {}
        trainer._assign_advantages(microbatches)
        for part in microbatches:
            lengths = part.attention_mask.sum(1).tolist()
            rows = zip(part.ids.tolist(), lengths, part.mask, part.advantages, strict=True)
            for ids, length, mask, row in rows:
                assert not row[~mask].any() and len(set(row[mask].tolist())) == 1
                key = (tuple(ids[:length]), (False, *mask[: length - 1].tolist()))
                assigned[key] = float(row[mask][0])
        assert assigned == pytest.approx(expected)
