"""The forward pass of generation against transformers, for prompts of any length in one batch."""

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from lib.language_models.kv_cache_forward import COLUMN_STEP, MIN_BATCH_SIZE, PROMPT_BLOCK, Forward
from tests.language_models import tiny

LENGTHS = {
    "one token": [1] * MIN_BATCH_SIZE,
    "around a block": [
        PROMPT_BLOCK - 1,
        PROMPT_BLOCK,
        PROMPT_BLOCK + 1,
        2 * PROMPT_BLOCK - 1,
        2 * PROMPT_BLOCK,
        2 * PROMPT_BLOCK + 1,
        1,
        2,
    ],
    "around the columns": [
        COLUMN_STEP - 1,
        COLUMN_STEP,
        COLUMN_STEP + 1,
        2 * COLUMN_STEP,
        2 * COLUMN_STEP + 3,
        5,
        1,
        3 * PROMPT_BLOCK,
    ],
    "as different as can be": [1, tiny.WINDOW, 17, 100, 3, 64, 128, 200, 33, 250, 2],
}


def rows_of(lengths: list[int], seed: int = 0) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(seed)
    return [tuple(rng.integers(8, 300, size=length).tolist()) for length in lengths]


@torch.inference_mode()
def theirs(model, ids) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logits (V,) and hidden states (d,) of every layer after one sequence, by transformers."""
    out = model(torch.tensor([ids]), output_hidden_states=True)
    return out.logits[0, -1], [state[0, -1] for state in out.hidden_states]


def close(ours: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.allclose(ours, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS)
@pytest.mark.parametrize("layers", [1, 3])
@torch.inference_mode()
def test_logits_and_every_layers_states_are_those_of_transformers(lengths, layers):
    model = tiny.model(layers=layers, heads=4)
    forward, prompts = Forward(model), rows_of(lengths)
    states = forward.prefill(
        prompts, forward.make_cache(len(prompts), max(lengths)), all_layers=True
    )
    assert len(states) == layers + 1
    logits = forward.compute_logits(states[-1])
    for row, ids in enumerate(prompts):
        scores, hidden = theirs(model, ids)
        assert close(logits[row], scores), f"row {row} of {len(ids)} tokens"
        for depth, state in enumerate(hidden):
            assert close(states[depth][row], state), f"row {row}, layer {depth}"


@torch.inference_mode()
def test_tokens_that_come_one_by_one_give_what_the_whole_sequence_gives():
    model = tiny.model()
    forward, whole = Forward(model), rows_of([70, 30, 17, 5, 64, 63, 16, 1])
    more = rows_of([20] * MIN_BATCH_SIZE, seed=1)
    cache = forward.make_cache(MIN_BATCH_SIZE, 70)
    forward.prefill(whole, cache)
    for step in range(20):
        states = forward(torch.tensor([[ids[step]] for ids in more]), cache, all_layers=True)
        if step in (0, 7, 19):
            for row in range(MIN_BATCH_SIZE):
                scores, hidden = theirs(model, whole[row] + more[row][: step + 1])
                assert close(forward.compute_logits(states[-1][:, 0])[row], scores)
                assert all(
                    close(state[row, 0], other) for state, other in zip(states, hidden, strict=True)
                )


@torch.inference_mode()
def test_a_row_gets_the_same_bits_beside_any_neighbours():
    forward, prompts = (
        Forward(tiny.model()),
        rows_of([40, 3, 130, 64, 17, 16, 1, 90, 65, 12, 33, 250]),
    )
    together = forward.prefill(prompts, forward.make_cache(len(prompts), 250))[0]
    for row, ids in enumerate(prompts):
        alone = forward.prefill(
            [ids] * MIN_BATCH_SIZE, forward.make_cache(MIN_BATCH_SIZE, len(ids))
        )[0]
        assert torch.equal(alone[0], together[row])


@torch.inference_mode()
def test_rows_that_are_kept_and_joined_go_on_as_they_were():
    forward = Forward(tiny.model())
    first, second = (
        rows_of([20, 70, 5, 33, 8, 9, 10, 11, 12]),
        rows_of([130, 2, 40, 1, 6, 7, 8, 9], seed=1),
    )
    token = torch.full((1,), 9)

    def after(prompts):
        cache = forward.make_cache(len(prompts), max(map(len, prompts)))
        forward.prefill(prompts, cache)
        return cache

    one, two = after(first), after(second)
    expected_one = forward(token.expand(9)[:, None], after(first))[0]
    expected_two = forward(token.expand(8)[:, None], after(second))[0]
    one.select_rows(torch.tensor([8, 1, 2]))
    one.append_rows(two)
    assert one.lengths.tolist() == [12, 70, 5, 130, 2, 40, 1, 6, 7, 8, 9]
    states = forward(token.expand(11)[:, None], one)[0]
    assert torch.equal(states, torch.cat([expected_one[[8, 1, 2]], expected_two]))


class RecordingForward(Forward):
    """A forward pass that notes the shape of every batch of tokens it reads."""

    def __init__(self, model):
        super().__init__(model)
        self.shapes = []

    def __call__(self, ids, cache, all_layers=False):
        self.shapes.append(tuple(ids.shape))
        return super().__call__(ids, cache, all_layers)


@torch.inference_mode()
def test_prompts_that_have_ended_are_not_read_further():
    forward = RecordingForward(tiny.model())
    lengths = [3 * PROMPT_BLOCK] * 2 + [2 * PROMPT_BLOCK] * 10 + [PROMPT_BLOCK] * 20
    forward.prefill(rows_of(lengths), forward.make_cache(len(lengths), max(lengths)))
    assert forward.shapes == [
        (32, PROMPT_BLOCK),
        (12, PROMPT_BLOCK),
        (MIN_BATCH_SIZE, PROMPT_BLOCK),
    ]


@pytest.mark.parametrize("count", [1, MIN_BATCH_SIZE - 1, 30])
@torch.inference_mode()
def test_last_states_come_in_the_order_of_the_prompts_and_are_the_same_for_each_alone(count):
    forward = Forward(tiny.model())
    lengths = np.random.default_rng(count).integers(1, 200, size=count)
    prompts = rows_of(lengths.tolist(), seed=count)
    states = forward.compute_last_states(prompts, all_layers=True)
    assert [state.shape for state in states] == [(count, 32)] * (forward.num_layers + 1)
    for row, prompt in enumerate(prompts):
        for layer, state in enumerate(forward.compute_last_states([prompt], all_layers=True)):
            assert torch.equal(state[0], states[layer][row])


def test_a_prompt_without_tokens_is_named():
    with pytest.raises(ValueError, match="prompt 1 of 3 has none"):
        Forward(tiny.model()).prefill([(9,), (), (8, 9)], None)


@torch.inference_mode()
def test_the_cache_grows_with_its_rows_and_shrinks_when_the_long_ones_leave():
    forward = Forward(tiny.model())
    lengths = [COLUMN_STEP + 1, COLUMN_STEP - 1, *[5] * MIN_BATCH_SIZE]
    cache = forward.make_cache(len(lengths), 1)
    assert cache.num_columns == COLUMN_STEP
    forward.prefill(rows_of(lengths), cache)
    assert cache.num_columns == 2 * COLUMN_STEP

    cache.select_rows(torch.arange(1, len(lengths)))
    assert cache.num_columns == COLUMN_STEP
    assert all(keys.is_contiguous() for keys in [*cache.keys, *cache.values])

    one_token = torch.full((len(lengths) - 1, 1), 9)
    forward(one_token, cache)  # the longest row has COLUMN_STEP tokens now
    assert cache.num_columns == COLUMN_STEP
    forward(one_token, cache)
    assert cache.num_columns == 2 * COLUMN_STEP


@pytest.mark.parametrize(
    "change", [{"num_key_value_heads": 1}, {"attention_bias": True}, {"mlp_bias": True}], ids=str
)
def test_a_model_of_another_shape_is_refused(change):
    shape = {"vocab_size": 20, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    with pytest.raises(ValueError, match="as many key heads as query heads and no biases"):
        Forward(LlamaForCausalLM(LlamaConfig(**shape | {"intermediate_size": 16} | change)))


@torch.inference_mode()
def test_a_head_of_its_own_is_used():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = LlamaForCausalLM(
            LlamaConfig(
                vocab_size=400,
                hidden_size=32,
                num_hidden_layers=1,
                num_attention_heads=2,
                intermediate_size=32,
                tie_word_embeddings=False,
            )
        ).eval()
    forward, prompts = Forward(model), rows_of([12] * MIN_BATCH_SIZE)
    logits = forward.compute_logits(
        forward.prefill(prompts, forward.make_cache(MIN_BATCH_SIZE, 12))[-1]
    )
    assert close(logits[0], theirs(model, prompts[0])[0])
    assert not close(forward.head, forward.embedding)


@torch.inference_mode()
def test_without_a_wish_for_layers_only_the_last_states_are_returned():
    forward, prompts = Forward(tiny.model()), rows_of([9] * MIN_BATCH_SIZE)
    (last,) = forward.prefill(prompts, forward.make_cache(MIN_BATCH_SIZE, 9))
    assert torch.equal(
        last, forward.prefill(prompts, forward.make_cache(MIN_BATCH_SIZE, 9), all_layers=True)[-1]
    )


def test_the_models_own_weights_are_left_alone():
    model = tiny.model()
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    Forward(model)
    assert all(torch.equal(weight, before[name]) for name, weight in model.named_parameters())
