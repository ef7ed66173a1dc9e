"""Batched generation: a sequence is the same alone and in any batch, whenever it arrives, and as the model has it."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.language_models.chat_template import encode_special
from lib.language_models.generation import ContextTooLong, GenerationBatch, Prompt, generate
from lib.language_models.kv_cache_forward import MIN_BATCH_SIZE, Forward
from lib.language_models.tokenizer import EOS, get_tokenizer
from tests.language_models import tiny

END = encode_special(EOS)
MODEL = tiny.model()
FORWARD = Forward(MODEL)


def asked(n: int, seed: int = 0, longest: int = 60, most: int = 40) -> list[Prompt]:
    """Prompts of random lengths, limits and temperatures."""
    rng = np.random.default_rng(seed)
    temperatures = (0.0, 0.3, 1.0, 2.0)
    return [
        Prompt(ids, int(rng.integers(1, most + 1)), temperatures[rng.integers(4)], seed * 1_000 + i)
        for i, ids in enumerate(tiny.prompts(n, seed, longest))
    ]


def assert_equal(one, other):
    """Bit for bit."""
    assert one.ids == other.ids and (one.finish, one.stop) == (other.finish, other.stop)
    assert one.logprobs == other.logprobs and one.entropies == other.entropies
    assert (one.hidden is None) == (other.hidden is None)
    assert one.hidden is None or np.array_equal(one.hidden, other.hidden)


def alone(prompts, layer=None) -> list:
    return [generate(FORWARD, [prompt], END, layer)[0] for prompt in prompts]


@torch.inference_mode()
def distribution(ids) -> torch.Tensor:
    """Log-probabilities of the next token, (V,) double, by transformers."""
    return MODEL(torch.tensor([ids])).logits[0, -1].double().log_softmax(0)


# The same in any company --------------------------------------------------------------------------


@pytest.mark.parametrize("layer", [None, 1])
def test_a_sequence_is_the_same_alone_and_in_batches_of_any_size_bit_for_bit(layer):
    prompts = asked(33, seed=1)
    expected = alone(prompts, layer)
    assert len({g.finish for g in expected}) == 2 and len({len(g.ids) for g in expected}) > 10
    for at_once in (3, len(prompts)):
        for one, other in zip(
            generate(FORWARD, prompts, END, layer, at_once), expected, strict=True
        ):
            assert_equal(one, other)


@settings(max_examples=6, deadline=None)
@given(
    st.integers(2, 10_000),
    st.integers(1, 14),
    st.integers(1, 14),
    st.sampled_from([None, 0, 1, 2, -1]),
)
def test_so_are_random_batches(seed, n, at_once, layer):
    prompts = asked(n, seed, longest=150, most=30)
    for one, other in zip(
        generate(FORWARD, prompts, END, layer, at_once), alone(prompts, layer), strict=True
    ):
        assert_equal(one, other)


def test_long_prompts_beside_short_ones_change_nothing_where_columns_are_added():
    """A neighbour whose tokens fill 64 columns more makes the arrays wider for all."""
    ids = tiny.prompts(4, seed=5, longest=9)
    long = tuple([9] * (tiny.WINDOW - 60))
    prompts = [
        Prompt(p, 60, 1.0, i) for i, p in enumerate([*ids, long, long[:63], long[:64], long[:120]])
    ]
    for one, other in zip(generate(FORWARD, prompts, END, -1), alone(prompts, -1), strict=True):
        assert_equal(one, other)


@settings(max_examples=6, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(0, 4), min_size=3, max_size=15))
def test_sequences_that_join_while_others_run_change_nothing(seed, arrivals):
    prompts = asked(sum(arrivals), seed, longest=90)
    running, results, waiting = GenerationBatch(FORWARD, END, 1), [], list(prompts)
    for many in arrivals:
        now, waiting = waiting[:many], waiting[many:]
        results += running.add(now) if now else []
        running.step()
    while len(running):
        running.step()
    for one, other in zip(results, alone(prompts, 1), strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("layer", [None, 1, -1])
def test_a_prompt_that_many_sequences_start_from_is_read_once_and_changes_none_of_them(
    layer, monkeypatch
):
    ids = tiny.prompts(3, seed=4)
    prompts = [Prompt(ids[i % 3], limit=20, temperature=float(i % 2), seed=i) for i in range(30)]
    expected = alone(prompts, layer)

    counts = []
    prefill = Forward.prefill

    def count_prompts(forward, prompts, *rest):
        counts.append(len(prompts))
        return prefill(forward, prompts, *rest)

    monkeypatch.setattr(Forward, "prefill", count_prompts)
    results = generate(FORWARD, prompts, END, layer)
    assert counts == [MIN_BATCH_SIZE]
    for one, other in zip(results, expected, strict=True):
        assert_equal(one, other)


def test_a_sequence_that_is_dropped_ends_and_the_others_do_not_notice():
    prompts = [Prompt(ids, 30, 1.0, i, ()) for i, ids in enumerate(tiny.prompts(12, seed=3))]
    running = GenerationBatch(FORWARD, -1)
    results = running.add(prompts)
    for _ in range(5):
        running.step()
    for result in results[:7]:
        running.drop(result)
    assert len(running) == 5 and [r.finish for r in results[:7]] == ["dropped"] * 7
    while len(running):
        assert not set(map(id, running.step())) & set(map(id, results[:7]))
    expected = [generate(FORWARD, [p], -1)[0] for p in prompts]
    for one, other in zip(results[7:], expected[7:], strict=True):
        assert_equal(one, other)
    for one, other in zip(results[:7], expected[:7], strict=True):
        assert one.ids == other.ids[:5]


def test_the_same_seed_writes_the_same_and_others_write_others():
    ids = tiny.prompts(1, seed=6)[0]
    texts = [
        tuple(g.ids)
        for g in generate(FORWARD, [Prompt(ids, 20, 1.0, s) for s in [*range(30), 7]], -1)
    ]
    assert texts[7] == texts[-1] and len(set(texts)) == 30


# What the model says ------------------------------------------------------------------------------


def test_greedy_tokens_are_those_of_transformers():
    different = set()
    for ids in tiny.prompts(12, seed=2, longest=120):
        with torch.inference_mode():
            theirs = MODEL.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                do_sample=False,
                max_new_tokens=40,
                eos_token_id=END,
                pad_token_id=0,
            )[0, len(ids) :].tolist()
        assert generate(FORWARD, [Prompt(ids, 40)], END)[0].ids == theirs
        different.update(theirs)
    assert len(different) > 50  # or it would be no test


def test_logprobs_entropies_and_states_are_those_of_reading_the_text_again():
    """At temperature 1, whatever the temperature of drawing was."""
    for layer in (0, 1, 2):
        prompts = asked(16, seed=7)
        for prompt, result in zip(prompts, generate(FORWARD, prompts, END, layer), strict=True):
            with torch.inference_mode():
                out = MODEL(torch.tensor([[*prompt.ids, *result.ids]]), output_hidden_states=True)
            logp = out.logits[0, len(prompt.ids) - 1 : -1].double().log_softmax(1)
            ids = torch.tensor(result.ids)
            np.testing.assert_allclose(
                result.logprobs, logp.gather(1, ids[:, None])[:, 0], atol=1e-4
            )
            np.testing.assert_allclose(result.entropies, -(logp.exp() * logp).sum(1), atol=1e-4)
            states = out.hidden_states[layer][0, len(prompt.ids) - 1 : -1]
            np.testing.assert_allclose(result.hidden, states, atol=1e-4)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_drawn_tokens_follow_the_softmax_of_the_temperature(temperature):
    """Chi-square over the first tokens of 4 000 seeds; rare tokens together."""
    ids, n = tiny.prompts(1, seed=11)[0][:12], 4_000
    results = generate(
        FORWARD, [Prompt(ids, 1, temperature, seed) for seed in range(n)], END, max_batch_size=500
    )
    drawn = np.bincount([result.ids[0] for result in results], minlength=len(get_tokenizer()))
    with torch.inference_mode():
        expected = n * (distribution(ids) / temperature).softmax(0).numpy()
    common = expected >= 5
    observed = np.append(drawn[common], drawn[~common].sum())
    wanted = np.append(expected[common], expected[~common].sum())
    chi_square, freedom = ((observed - wanted) ** 2 / wanted).sum(), len(wanted) - 1
    assert freedom >= 10 and chi_square < freedom + 4 * np.sqrt(2 * freedom), (chi_square, freedom)


# Ends ---------------------------------------------------------------------------------------------


def test_a_sequence_ends_at_its_limit_and_at_the_end_of_turn():
    prompts = [Prompt(ids, 25, 1.0, i) for i, ids in enumerate(tiny.prompts(30, seed=8))]
    free = generate(FORWARD, prompts, -1)
    assert all(
        g.finish == "length" and len(g.ids) == 25 and g.reply_ids == g.ids and g.stop == ()
        for g in free
    )
    end = Counter(i for g in free for i in set(g.ids)).most_common(1)[0][
        0
    ]  # a token that many of them write
    ended = generate(FORWARD, prompts, end)
    for before, result in zip(free, ended, strict=True):
        if end in before.ids:
            assert result.finish == "stop" and result.stop == (end,)
            assert (
                result.ids == before.ids[: before.ids.index(end) + 1]
                and result.reply_ids == result.ids[:-1]
            )
        else:
            assert result.ids == before.ids and result.finish == "length"
    assert {g.finish for g in ended} == {"stop", "length"}


@pytest.mark.parametrize("length", [1, 2, 3])
def test_a_stop_of_several_tokens_ends_a_sequence_when_it_is_whole(length):
    base = Prompt(tiny.prompts(1, seed=9)[0], 30, 1.0, 5)
    free = generate(FORWARD, [base], -1)[0].ids
    at = next(
        i
        for i in range(4, 25)
        if free[i : i + length] not in [free[j : j + length] for j in range(i)]
    )
    stop = tuple(free[at : at + length])
    never = (stop[0], -5)  # begins like it, and is never whole
    stopped = generate(FORWARD, [Prompt(base.ids, 30, 1.0, 5, (never, stop))], -1, -1)[0]
    assert stopped.ids == free[: at + length] and stopped.reply_ids == free[:at]
    assert (stopped.finish, stopped.stop) == ("stop", stop)
    assert len(stopped.logprobs) == len(stopped.entropies) == len(stopped.hidden) == at + length


# Windows ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "limit"), [(tiny.WINDOW, 1), (1, tiny.WINDOW), (200, 57)])
def test_what_does_not_fit_into_the_window_is_refused_with_the_numbers(length, limit):
    with pytest.raises(ContextTooLong, match=f"{tiny.WINDOW}.*{length}.*{limit}"):
        generate(FORWARD, [Prompt((9,), 1), Prompt(tuple([9] * length), limit)], END)


@pytest.mark.parametrize("prompt", [Prompt((), 5), Prompt((9,), 0), Prompt((9,), -1)])
def test_a_prompt_without_tokens_or_room_is_refused(prompt):
    with pytest.raises(ValueError, match="at least one token"):
        generate(FORWARD, [prompt], END)


def test_sequences_under_way_outlive_a_prompt_that_is_refused():
    prompts = asked(9, seed=12)
    running = GenerationBatch(FORWARD, END)
    results = running.add(prompts)
    running.step()
    with pytest.raises(ContextTooLong):
        running.add([Prompt((9,), 1), Prompt((9,), 10_000)])
    while len(running):
        running.step()
    for one, other in zip(results, alone(prompts), strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("temperature", [1e-6, 1e-300, 5e-324])
def test_a_temperature_of_almost_nothing_is_greedy(temperature):
    ids = tiny.prompts(1, seed=9)[0]
    greedy, cold = generate(FORWARD, [Prompt(ids, 12), Prompt(ids, 12, temperature)], -1)
    assert cold.ids == greedy.ids


def test_the_numbers_of_a_stream_are_new_for_every_token():
    """If each token were drawn with the same number, equal states would give equal tokens for ever."""
    flat = tiny.model(spread=0.01)  # every token about equally likely
    results = generate(Forward(flat), [Prompt((9,), 60, 1.0, s) for s in range(8)], -1)
    ids = [i for r in results for i in r.ids]
    assert len(set(ids)) > 150
    firsts = [(a, b) for r in results for a, b in pairwise(r.ids)]
    assert abs(np.corrcoef(np.array(firsts).T)[0, 1]) < 0.2


def test_a_stop_in_the_prompt_is_no_stop():
    ids = tiny.prompts(1, seed=9)[0]
    free = generate(FORWARD, [Prompt(ids, 10, 1.0, 5)], -1)[0].ids
    across = (ids[-1], free[0])
    assert generate(FORWARD, [Prompt(ids, 10, 1.0, 5, (across,))], -1)[0].ids == free


def test_at_the_limit_a_stop_is_still_a_stop():
    prompt = Prompt((9, 10, 11), 1, 0.0)
    first = generate(FORWARD, [prompt], -1)[0].ids[0]
    assert generate(FORWARD, [prompt], first)[0].finish == "stop"


def test_the_window_can_be_filled_to_the_last_token():
    result = generate(FORWARD, [Prompt(tuple([9] * 200), tiny.WINDOW - 200, 1.0)], -1)[0]
    assert len(result.ids) == tiny.WINDOW - 200


@pytest.mark.parametrize("layer", [-4, 3, 7])
def test_a_layer_that_there_is_not_is_named(layer):
    with pytest.raises(ValueError, match=f"0 .* to 2, not {layer}"):
        generate(FORWARD, [Prompt((9,), 1)], END, layer)
