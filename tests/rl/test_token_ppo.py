"""The trainer: others' tokens teach nothing, the first pass is exact, and going on equals never having stopped."""

import itertools
import multiprocessing
import os
import socket
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState

from lib.experiment import artifacts
from lib.language_models.chat_template import encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS, PAD
from lib.rl.losses import group_advantages
from lib.rl.token_ppo import Sample, TokenPPO, batch
from tests.budgeted_routing import small
from tests.budgeted_routing.small import learner, samples, weights
from tests.language_models import tiny

KINDS = [("gae", "shared"), ("gae", "apart"), ("group", "shared")]
kinds = pytest.mark.parametrize(("advantages", "value"), KINDS, ids=["gae", "gae apart", "group"])
averages = pytest.mark.parametrize("average", ["sequence", "token"])


def same(one: TokenPPO, other: TokenPPO) -> bool:
    return all(torch.equal(a, b) for a, b in zip(state(one), state(other), strict=True))


def state(made: TokenPPO) -> list[torch.Tensor]:
    return [weights(each) for each in (made.policy, made.reference, made.critic) if each]


def trained(made: TokenPPO, steps) -> list[dict[str, float]]:
    return [made.update(samples(6, step)) for step in steps]


@kinds
@averages
def test_what_the_policy_would_have_said_in_place_of_others_changes_nothing(
    advantages, value, average
):
    """States before tokens of others are replaced by noise: in the policy, in its reference and in V."""
    told = samples()
    options = {
        "advantages": advantages,
        "value": value,
        "average": average,
        "kl": 0.3,
        "epochs": 2,
        "whiten": True,
    }
    plain, noisy = learner(**options), learner(**options)
    (part,) = small.parts(noisy, told)

    def blur(module, arguments, output):
        state = output.last_hidden_state.clone()
        state[:, :-1][~part.mask] = 7.0
        state[:, -1] = -7.0
        output.last_hidden_state = state
        return output

    for trunk in (
        noisy.policy.base_model,
        noisy.reference.base_model,
        noisy.critic and noisy.critic.trunk,
    ):
        if trunk:
            trunk.register_forward_hook(blur)
    assert plain.update(told) == noisy.update(told) and same(plain, noisy)
    assert not torch.equal(weights(plain.policy), weights(small.toy()))


def test_a_batch_is_padded_on_the_right_and_knows_whose_the_next_token_is():
    made = batch(
        [Sample([1, 2, 3], [False, True, False], 0.5, 7), Sample([4, 5], [False, True], 1.0, 3)], 0
    )
    assert made.ids.tolist() == [[1, 2, 3], [4, 5, 0]] and made.seen.tolist() == [
        [1, 1, 1],
        [1, 1, 0],
    ]
    assert made.mask.tolist() == [[True, False], [True, False]]
    assert made.rewards.tolist() == [0.5, 1.0] and made.groups == [7, 3]


@kinds
@pytest.mark.parametrize("minibatch", [64, 4], ids=["one minibatch", "several"])
def test_the_ratio_of_the_first_pass_is_exactly_one(advantages, value, minibatch):
    """In every update and in every minibatch of it."""
    made = learner(advantages=advantages, value=value, minibatch=minibatch, epochs=2)
    for seed in range(3):
        told = samples(10, seed)
        parts = small.parts(made, told)
        assert len(parts) == (1 if minibatch == 64 else 3)
        for part in parts:
            made._fill(part)
            assert torch.equal(made._read(made.policy, part)[0], part.old)
        assert made.update(told)["ratio"] == 0.0
    with torch.no_grad():
        assert not torch.equal(
            made._read(made.policy, parts[0])[0], parts[0].old
        )  # and then it moves


def test_padding_and_neighbours_do_not_change_what_is_read():
    made, told = learner(), samples(6)
    (part,) = small.parts(made, told)
    together = made._read(made.policy, part)[0]
    for sample, row in zip(sorted(told, key=lambda s: len(s.ids)), together, strict=True):
        alone = made._read(made.policy, batch([sample], 0))[0][0]
        torch.testing.assert_close(row[: len(alone)], alone, atol=1e-5, rtol=0)
        assert not row[len(alone) :].any()


def test_the_engine_and_the_trainer_agree_on_what_was_said():
    """With a model of the size that lesson 05 trains; the engine has a forward pass of its own."""
    shape = small.EVERYTHING.lab.models[small.SMOKE.base]
    size = {
        name: getattr(shape, name)
        for name in ("hidden", "layers", "heads", "intermediate", "window")
    }
    policy = tiny.model(0, spread=6.0, **size)
    prompts = tiny.prompts(12, longest=80)
    written = generate(
        Forward(policy), [Prompt(p, 24, 1.0, i) for i, p in enumerate(prompts)], encode_special(EOS)
    )
    told = [
        Sample([*p, *g.ids], [False] * len(p) + [True] * len(g.ids), 0.0)
        for p, g in zip(prompts, written, strict=True)
    ]
    made = learner(policy=policy, pad=encode_special(PAD))
    part = batch(told, encode_special(PAD))
    read = made._read(made.policy, part)[0]
    for row, own, generation in zip(read, part.mask, written, strict=True):
        np.testing.assert_allclose(row[own].detach(), generation.logprobs, atol=1e-4)
    assert 0.5 < -float(read[part.mask].detach().mean()) < 8  # it has opinions and doubts


def played(made: TokenPPO, n: int, seed: int) -> list[Sample]:
    """Episodes `prompt, own, other's, own, other's`: paid if the first own token is 5. The policy says 5 or 6."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.ones(n, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(2):
            odds = made.policy(ids).logits[:, -1, 5:7].softmax(-1)
            own = 5 + torch.multinomial(odds, 1, generator=generator)
            other = torch.randint(7, 9, (n, 1), generator=generator)
            ids = torch.cat([ids, own, other], 1)
    mask = [False, True, False, True, False]
    return [Sample(row.tolist(), mask, float(row[1] == 5), i // 8) for i, row in enumerate(ids)]


@kinds
@averages
def test_it_learns_what_is_paid(advantages, value, average):
    changes = {
        "learning_rate": 1e-2,
        "value_learning_rate": 1e-2,
        "kl": 0.0,
        "epochs": 2,
        "minibatch": 16,
    }
    made = learner(
        advantages=advantages, value=value, average=average, whiten=advantages == "gae", **changes
    )
    paid = []
    for step in range(16):
        told = played(made, 32, step)
        paid.append(np.mean([sample.reward for sample in told]))
        made.update(told)
    assert 0.1 < paid[0] < 0.8 and np.mean(paid[-4:]) > 0.95, paid


def test_a_distance_that_costs_keeps_the_policy_near_its_start():
    moved = {}
    for kl in (0.0, 10.0):
        made = learner(kl=kl, learning_rate=1e-2)
        for step in range(8):
            told = made.update(played(made, 16, step))
        moved[kl] = told["kl"]
    assert moved[10.0] < 0.1 * moved[0.0]


def rates(made: TokenPPO, steps: int) -> list[float]:
    """The learning rate of every update, as shares of the full one; the optimiser is asked."""
    return [
        made.update(samples(4)) and made.optimiser.param_groups[0]["lr"] / 1e-3
        for _ in range(steps)
    ]


def test_the_learning_rate_rises_and_then_stays_or_falls_straight_to_the_end():
    changes = {"learning_rate": 1e-3, "value_learning_rate": 4e-3, "warmup": 4, "total": 8}
    assert rates(learner(schedule="constant", **changes), 6) == pytest.approx(
        [0.25, 0.5, 0.75, 1, 1, 1]
    )
    made = learner(schedule="linear", **changes)
    assert rates(made, 8) == pytest.approx([0.25, 0.5, 0.75, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8])
    assert [group["lr"] for group in made.optimiser.param_groups] == pytest.approx(
        [1e-3 / 8, 4e-3 / 8]
    )  # V's too


def test_the_gradient_of_the_policy_is_cut_to_its_longest():
    """Adam hardly shows how long it was, so it is kept after the step."""
    norms = []
    for most in (1e-3, 1e3):
        made = learner(max_grad_norm=most, value="apart")
        made.optimiser.zero_grad = lambda: None
        made.update(samples())
        norms.append(torch.cat([w.grad.flatten() for w in made.policy.parameters()]).norm().item())
    assert norms[0] == pytest.approx(1e-3, rel=1e-3) and 1e-2 < norms[1] < 1e3


@kinds
def test_the_same_seed_learns_the_same_and_another_takes_minibatches_in_another_order(
    advantages, value
):
    one, two, other = (
        learner(seed, advantages=advantages, value=value, minibatch=3) for seed in (1, 1, 2)
    )
    logs = [trained(made, range(4)) for made in (one, two, other)]
    assert logs[0] == logs[1] != logs[2]
    assert same(one, two) and not same(one, other)


@kinds
def test_going_on_equals_never_having_stopped(advantages, value, tmp_path):
    """Also where another policy and other steps went before it."""
    changes = {
        "advantages": advantages,
        "value": value,
        "minibatch": 3,
        "epochs": 2,
        "warmup": 5,
        "kl": 0.3,
    }
    through, stopped = learner(**changes), learner(**changes)
    log = trained(through, range(5))
    assert trained(stopped, range(3)) == log[:3]
    stopped.save(tmp_path / "point")
    for before in (range(0), range(7, 9)):
        resumed = learner(policy=small.toy(9), **changes)
        trained(resumed, before)
        resumed.restore(tmp_path / "point")
        assert resumed.step == 3
        assert trained(resumed, range(3, 5)) == log[3:] and same(resumed, through)


def test_a_checkpoint_is_safetensors_and_equal_states_are_equal_bytes(tmp_path):
    for name in "ab":
        made = learner(minibatch=3)
        trained(made, range(2))
        made.save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    names = set(artifacts.read_tensors(tmp_path / "a"))
    assert {name.split(".")[0] for name in names} == {
        "policy",
        "reference",
        "critic",
        "optimiser",
        "step",
        "tensors",
    }


def without(name: str, path) -> None:
    """A checkpoint that lacks some tensors."""
    artifacts.write_tensors(
        path,
        {n: array for n, array in artifacts.read_tensors(path).items() if not n.startswith(name)},
    )


BROKEN = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "empty": lambda path: path.write_bytes(b""),
    "text": lambda path: path.write_bytes(b"not a checkpoint"),
    "another size": lambda path: learner(policy=small.toy(hidden=8)).save(path),
    "without V": lambda path: learner(advantages="group").save(path),
    # an optimiser would go on with what there is
    **{
        name: partial(without, name)
        for name in (
            "policy.",
            "reference.model.norm",
            "critic.head",
            "step",
            "optimiser.",
            "optimiser.0.exp_avg_sq",
        )
    },
}


@pytest.mark.parametrize("breaking", BROKEN.values(), ids=BROKEN)
def test_a_broken_checkpoint_is_a_value_error_that_names_the_file(breaking, tmp_path):
    made, path = learner(), tmp_path / "point.safetensors"
    made.update(samples())
    made.save(path)
    breaking(path)
    with pytest.raises(ValueError, match=path.name):
        learner().restore(path)


def one_of_two(rank: int, port: int, out) -> None:
    """A process of two: learns from every other episode, and keeps the weights that come of it."""
    torch.set_num_threads(1)
    os.environ |= {
        "ACCELERATE_USE_CPU": "true",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "OMP_NUM_THREADS": "1",
    }
    AcceleratorState._reset_state(reset_partial_state=True)
    made = learner(accelerator=Accelerator(cpu=True), learning_rate=1e-2)
    for step in range(3):
        made.update(samples(8, step)[rank::2])
    torch.save(state(made), out / f"{rank}.pt")
    os._exit(0)  # nothing of the test run that was copied is to be tidied up twice


def test_several_processes_learn_together_what_one_would_learn_alone(tmp_path):
    """Two processes with four episodes each, against one with all eight."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    context = multiprocessing.get_context("fork")  # what is imported is imported
    workers = [
        context.Process(target=one_of_two, args=(rank, port, tmp_path), daemon=True)
        for rank in range(2)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    one, two = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    alone = learner(learning_rate=1e-2)
    for step in range(3):
        alone.update(samples(8, step))
    for a, b in zip(one, state(alone), strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=0)


@kinds
@averages
def test_a_minibatch_read_in_parts_is_learned_from_as_a_whole(advantages, value, average):
    """Parts of unequal size and length: gradients, before Adam makes them all as long, add up to those of one pass."""
    told, rows = [], []
    for microbatch in (8, 3):
        made = learner(
            minibatch=8,
            microbatch=microbatch,
            average=average,
            advantages=advantages,
            value=value,
            kl=0.3,
        )
        small.drift(made.reference, 0.1)
        made._step = lambda made=made: told.append(
            torch.cat([w.grad.flatten() for w in made._parameters()])
        )
        rows.append(made.update(samples(8)))
    torch.testing.assert_close(told[1], told[0], atol=1e-5 * float(told[0].abs().max()), rtol=1e-3)
    assert rows[1] == pytest.approx(rows[0], abs=1e-5) and rows[0]["kl"] > 1e-3


def test_what_others_said_is_read_all_the_same():
    """Or the controller could not use it: another response is another log-probability of what follows."""
    sample = Sample([1, 2, 3, 4, 5], [False, True, False, False, True], 1.0)
    other = Sample([1, 2, 3, 9, 5], sample.mask, 1.0)
    made = learner()
    one, two = (made._read(made.policy, batch([s], 0))[0][0] for s in (sample, other))
    assert one[0] == two[0] != 0 and one[3] != two[3] and not one[1:3].any()


def test_a_sample_without_a_prompt_or_without_own_tokens_is_refused():
    good = Sample([1, 2], [False, True], 1.0)
    for bad in (
        Sample([1, 2, 3], [False, False, False], 1.0),
        Sample([1, 2], [True, True], 1.0),  # no prompt
        Sample([1, 2, 3], [False, True], 1.0),
        Sample([1, 2], [False, True, True], 1.0),
        Sample([], [], 1.0),
    ):
        with pytest.raises(ValueError, match="tokens of the controller"):
            batch([good, bad], 0)
    assert batch([good], 0).mask.tolist() == [[True]]


def test_at_the_start_there_is_no_distance_to_the_start():
    made = learner(kl=0.5)
    assert made.update(samples())["kl"] == 0.0 and made.update(samples())["kl"] > 0


def test_v_learns_what_is_paid_on_average():
    """Half of the prompts is always paid, the other half never; whatever the controller says."""
    made = learner(value="apart", value_learning_rate=1e-2, learning_rate=1e-9)
    errors = []
    for _ in range(40):
        told = [
            Sample([1 + i % 2, 5, 7, 6], [False, True, False, True], float(i % 2), i)
            for i in range(8)
        ]
        errors.append(made.update(told)["value_error"])
    assert errors[0] == 0.25 and errors[-1] < 0.02  # half of the mean of 0 and 1


def test_all_episodes_of_an_update_are_learned_from_once_per_pass():
    """Minibatches are cut by length; none is lost, none comes twice."""
    made, seen = learner(minibatch=4, epochs=2), []
    descend = made._descend
    made._descend = lambda parts: (
        seen.extend(tuple(r) for p in parts for r in p.ids.tolist()) or descend(parts)
    )
    told = samples(10)
    made.update(told)
    stripped = sorted(tuple(itertools.takewhile(bool, ids)) for ids in seen)
    assert stripped == sorted([tuple(s.ids) for s in told] * 2)


@pytest.mark.parametrize(("minibatch", "n"), [(3, 3), (64, 1)])
def test_advantages_are_whitened_over_all_of_an_update_stratum_by_stratum(minibatch, n):
    """Where rewards are rare they weigh as much as elsewhere."""
    made = learner(whiten=True, minibatch=minibatch)
    parts = small.parts(
        made, [replace(sample, stratum=i % 2) for i, sample in enumerate(samples(8))]
    )
    assert len(parts) == n
    for i, part in enumerate(parts):
        part.advantages = (
            torch.sin(torch.arange(part.mask.numel()).view(part.mask.shape) + 5.0 * i) * part.mask
        )
    before = [part.advantages.clone() for part in parts]
    made._advantages(parts)
    for stratum in (0, 1):
        own = [part.mask & (part.strata == stratum)[:, None] for part in parts]
        one, two = (
            torch.cat([a[m] for a, m in zip(told, own, strict=True)])
            for told in (before, [part.advantages for part in parts])
        )
        torch.testing.assert_close(two, (one - one.mean()) / one.std(correction=0))
    assert all(not part.advantages[~part.mask].any() for part in parts)


def test_every_row_of_a_batch_gets_its_own_groups_advantage_in_any_order():
    """The learner sorts by length and cuts into minibatches; groups are told by their ids."""
    told = samples(9, groups=3)
    expected = group_advantages(torch.tensor([s.reward for s in told]), [s.group for s in told])
    wanted = {
        (tuple(s.ids), tuple(s.mask)): a for s, a in zip(told, expected.tolist(), strict=True)
    }
    assert len(wanted) == 9 and len({round(a, 4) for a in wanted.values()}) > 2
    for shuffled in (told, told[::-1], told[3:] + told[:3]):
        made = learner(advantages="group", minibatch=4)
        parts, seen = small.parts(made, shuffled), {}
        made._advantages(parts)
        for part in parts:
            for ids, n, own, each in zip(
                part.ids, part.seen.sum(1), part.mask, part.advantages, strict=True
            ):
                assert not each[~own].any() and len(set(each[own].tolist())) == 1
                seen[tuple(ids[:n].tolist()), (False, *own[: n - 1].tolist())] = float(each[own][0])
        assert seen == pytest.approx(wanted)
