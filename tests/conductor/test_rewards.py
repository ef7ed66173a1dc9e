"""The five rewards: what is well formed, how long is short, what a rank is, and what the policy says of a reply."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel

from lib.conductor.policy_readout import PolicyReadout, read_rollouts
from lib.conductor.reply_format import extract_thought, get_completion_text, is_well_formed
from lib.conductor.rewards import (
    COMPONENTS,
    RANKED,
    compute_length_reward,
    make_reward_functions,
    normalize_rewards,
    rank_within_groups,
)
from lib.config import RewardSettings
from tests.language_models import tiny

MODEL = tiny.model(2, hidden=16, layers=4, intermediate=16)

# Form ---------------------------------------------------------------------------------------------

BOTH = [
    "<think> a b </think> <answer> c </answer>",
    " <think>a\nb</think>\n<answer>\nc d\n</answer> \n",
    "<think>a</think><answer>b</answer>",
    "<think> 1 < 2 </think> <answer> 3 > 2 </answer>",
]
ANSWERS = ["<answer> c </answer>", "\n<answer>c</answer>\n"]
NEITHER = [
    "", "c", "<answer> c", "c </answer>", "<think> a </think>", "<answer> c </answer> and so on",
    "so <answer> c </answer>", "<answer> c </answer> <answer> d </answer>", "<answer> <answer> c </answer>",
    "<answer> <answer> c </answer> </answer>", "<answer> c <think> a </think> </answer>",
    "<think> a <answer> c </answer>", "<think> a <think> b </think> <answer> c </answer>",
    "<think> a </think> <think> b </think> <answer> c </answer>", "<answer> c </answer> <think> a </think>",
    "<think> a </think> b <answer> c </answer>", "<think> <answer> c </answer> </think>", "<Answer> c </Answer>",
    "<answer></answer>", "<think> </think> <answer> c </answer>", "<think> a </think> <answer> </answer>",
    "<think> a </think> <answer> c", "</think> <answer> c </answer>", "<answer> c </answer> </answer>",
]  # fmt: skip


@pytest.mark.parametrize("text", NEITHER)
def test_anything_else_is_not(text):
    assert not is_well_formed(text) and not is_well_formed(text, require_thought=True)


def test_a_long_reply_without_an_end_is_refused_without_delay():
    """A pattern that backtracks would take for ever."""
    for text in (
        "<answer> " * 20_000,
        "<think> " + "a < " * 20_000,
        "<think> </think> <answer> " + "<a" * 20_000,
    ):
        assert not is_well_formed(text)


@pytest.mark.parametrize(
    ("text", "before"),
    [
        ("<think> a b </think> <answer> c </answer>", "a b"),
        ("<answer> c </answer>", ""),
        ("<think> a b", None),
        ("a <answer> b <answer> c", None),
        ("", None),
    ],
)
def test_the_thought_is_what_stands_in_its_tags_before_the_answer(text, before):
    assert extract_thought(text) == before


# Length -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("length", "paid"),
    [(0, 1), (9, 1), (10, 1), (11, 0.95), (15, 0.75), (29, 0.05), (30, 0), (31, 0), (10_000, 0)],
)
def test_brevity_pays_all_up_to_the_shortest_and_nothing_from_the_longest(length, paid):
    assert compute_length_reward(length, 10, 30) == pytest.approx(paid)


# Ranks --------------------------------------------------------------------------------------------


def test_equals_share_the_mean_of_their_ranks():
    assert rank_within_groups(torch.tensor([1.0, 5.0, 1.0, 0.0, 5.0]), 5).tolist() == [
        0.375,
        0.875,
        0.375,
        0.0,
        0.875,
    ]
    assert rank_within_groups(torch.full((4,), 7.0), 4).tolist() == [0.5] * 4


def test_groups_are_ranked_by_themselves():
    assert rank_within_groups(torch.tensor([1.0, 2.0, 200.0, 100.0, 5.0, 5.0]), 2).tolist() == [
        0.0,
        1.0,
        1.0,
        0.0,
        0.5,
        0.5,
    ]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-3, 3), min_size=4, max_size=4),
    st.lists(st.integers(-3, 3), min_size=4, max_size=4),
)
def test_ranks_are_in_0_1_have_the_mean_of_a_half_and_follow_the_order(one, other):
    got = rank_within_groups(torch.tensor([*one, *other], dtype=torch.float32), 4)
    for values, ranks in ((one, got[:4].tolist()), (other, got[4:].tolist())):
        assert sum(ranks) / 4 == pytest.approx(0.5) and min(ranks) >= 0 and max(ranks) <= 1
        for v, r in zip(values, ranks, strict=True):
            assert all((v > u) == (r > q) for u, q in zip(values, ranks, strict=True))


@pytest.mark.parametrize(("n", "group"), [(5, 2), (4, 1), (4, 0), (3, 5)])
def test_values_that_make_no_groups_are_refused(n, group):
    with pytest.raises(ValueError, match="groups"):
        rank_within_groups(torch.zeros(n), group)


# As reward functions ------------------------------------------------------------------------------


def test_the_five_measure_what_they_say():
    def preference(completions, **_):
        return [0.5] * len(completions)

    reading = PolicyReadout(torch.zeros(2, 3), torch.tensor([1.5, 2.5]), torch.tensor([-3.0, -4.0]))
    made = make_reward_functions(
        RewardSettings(require_thought=True, min_length=2, max_length=4),
        preference,
        lambda: reading,
    )
    assert tuple(made) == COMPONENTS
    completions = [[{"role": "assistant", "content": text}] for text in (BOTH[0], ANSWERS[0])]
    batch = {
        "prompts": ["a", "b"],
        "completions": completions,
        "completion_ids": [[1, 2], [1, 2, 3]],
        "row": [0, 1],
    }
    assert {name: measure(**batch) for name, measure in made.items()} == {
        "fmt": [1.0, 0.0],
        "ppl": [-3.0, -4.0],
        "ent": [1.5, 2.5],
        "len": [1.0, 0.5],
        "pref": [0.5, 0.5],
    }


# What the policy says -----------------------------------------------------------------------------


def sequences(n: int) -> dict[str, list[list[int]]]:
    """Rollouts of many lengths; some have no thought."""
    parts = {
        "prompts": tiny.prompts(n, 1, 30),
        "completions": tiny.prompts(n, 2, 20),
        "prefixes": tiny.prompts(n, 3, 15),
        "references": tiny.prompts(n, 4, 6),
    }
    out = {name: [list(ids) for ids in values] for name, values in parts.items()}
    out["prefixes"][0] = []
    return out


@torch.no_grad()
def naive(model, prompt, completion, thought, reference, layer):
    """The same by transformers, one sequence at a time, nothing padded."""
    out = model(torch.tensor([prompt + completion]), output_hidden_states=True)
    log_p = out.logits[0, len(prompt) - 1 : -1].log_softmax(-1)
    entropy = -(log_p.exp() * log_p).sum(-1).mean()
    depth = len(out.hidden_states) - 1
    block = {"first": 1, "middle": (depth + 1) // 2, "last": depth}[layer]
    before = prompt + thought
    log_p = (
        model(torch.tensor([before + reference])).logits[0, len(before) - 1 : -1].log_softmax(-1)
    )
    h = out.hidden_states[block][0, -1]
    h = h * out.hidden_states[-1][0, -1].norm() / h.norm()  # as long as the last layer's
    return h, entropy, log_p[range(len(reference)), reference].mean()


@pytest.mark.parametrize("layer", ["first", "middle", "last"])
def test_a_reading_is_what_transformers_says_of_each_sequence_alone(layer):
    batch = sequences(6)
    got = read_rollouts(MODEL, **batch, layer=layer)
    expected = [naive(MODEL, *row, layer) for row in zip(*batch.values(), strict=True)]
    h, entropy, likelihood = (torch.stack(part) for part in zip(*expected, strict=True))
    assert torch.allclose(got.h, h, atol=1e-5) and got.h.dtype == torch.float32
    assert torch.allclose(got.entropy, entropy, atol=1e-5)
    assert torch.allclose(got.likelihood, likelihood, atol=1e-5)
    assert got.entropy.std() > 0.01 and got.likelihood.std() > 0.1  # or it would be no test


def test_a_reading_does_not_depend_on_what_else_is_in_the_batch():
    batch = sequences(6)
    whole = read_rollouts(MODEL, **batch)
    for rows in ([3], [5, 0], [2, 4, 1]):
        part = read_rollouts(
            MODEL, **{name: [values[i] for i in rows] for name, values in batch.items()}
        )
        for name in ("h", "entropy", "likelihood"):
            assert torch.allclose(getattr(part, name), getattr(whole, name)[rows], atol=1e-5), name


def test_a_large_vocabulary_is_read_in_parts_with_the_same_result(monkeypatch):
    batch = sequences(6)
    whole = read_rollouts(MODEL, **batch)
    monkeypatch.setattr("lib.conductor.policy_readout._MAX_LOGITS", 3 * MODEL.config.vocab_size + 1)
    parts = read_rollouts(MODEL, **batch)
    assert torch.allclose(parts.entropy, whole.entropy, atol=1e-6)
    assert torch.allclose(parts.likelihood, whole.likelihood, atol=1e-6)


def test_a_reading_has_no_chance_in_it_though_the_policy_is_being_trained():
    """Models of other houses have dropout, and TRL trains in training mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = GPT2Config(
            vocab_size=500,
            n_positions=64,
            n_embd=16,
            n_layer=2,
            n_head=2,
            bos_token_id=1,
            eos_token_id=1,
        )
        other = GPT2LMHeadModel(config).train()
        before = torch.get_rng_state()
        one, again = read_rollouts(other, **sequences(3)), read_rollouts(other, **sequences(3))
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(one.h, again.h) and torch.equal(one.likelihood, again.likelihood)
    assert other.training


@pytest.mark.parametrize("text", BOTH)
def test_a_thought_and_an_answer_are_well_formed_whether_or_not_a_thought_is_needed(text):
    assert is_well_formed(text) and is_well_formed(text, require_thought=True)


@pytest.mark.parametrize("text", ANSWERS)
def test_an_answer_alone_is_well_formed_only_where_a_thought_may_be_left_out(text):
    assert is_well_formed(text) and not is_well_formed(text, require_thought=True)


def test_a_completion_is_a_text_or_messages():
    assert (
        get_completion_text("a") == "a"
        and get_completion_text([{"role": "assistant", "content": "b"}]) == "b"
    )


def test_ranks_go_from_the_worst_to_the_best():
    assert rank_within_groups(torch.tensor([3.0, -1.0, 10.0, 3.5, 0.0]), 5).tolist() == [
        0.5,
        0.0,
        1.0,
        0.75,
        0.25,
    ]


def test_only_some_rewards_are_ranked():
    names = (*COMPONENTS, "quality", "judge")
    measured = torch.tensor(
        [[0.25, -7.0, 3.0, 0.5, 0.75, 0.1, 0.3], [1.0, -2.0, 1.0, 0.25, 0.5, 0.2, 0.1]]
    )
    got = normalize_rewards(measured, names, 2)
    assert RANKED == ("ppl", "ent", "judge")
    expected = [[0.25, 0.0, 1.0, 0.5, 0.75, 0.1, 1.0], [1.0, 1.0, 0.0, 0.25, 0.5, 0.2, 0.0]]
    assert torch.equal(got, torch.tensor(expected))


def test_layers_differ_in_their_direction_and_not_in_their_length():
    first, middle, last = (
        read_rollouts(MODEL, **sequences(2), layer=layer).h for layer in ("first", "middle", "last")
    )
    assert not torch.allclose(first, middle, atol=0.1)
    assert not torch.allclose(middle, last, atol=0.1)
    for states in (first, middle):
        assert torch.allclose(states.norm(dim=-1), last.norm(dim=-1), rtol=1e-4)


def test_a_head_may_see_the_prompt_alone_or_another_rollout():
    batch = sequences(4)
    other = batch | {"completions": tiny.prompts(4, 9, 8)}
    both, prompt, shuffled = (
        read_rollouts(MODEL, **batch, head_input=sees).h for sees in ("both", "prompt", "shuffled")
    )
    assert torch.allclose(
        prompt, read_rollouts(MODEL, **other, head_input="prompt").h, atol=1e-5
    ), "whatever was replied"
    assert not torch.allclose(both, prompt, atol=0.1)
    assert torch.equal(shuffled, both[[2, 3, 0, 1]])


def test_a_rollout_without_a_prefix_has_no_likelihood_and_changes_no_other():
    batch = sequences(4)
    whole = read_rollouts(MODEL, **batch)
    some = read_rollouts(MODEL, **batch | {"prefixes": [None, *batch["prefixes"][1:3], None]})
    assert some.likelihood.isnan().tolist() == [True, False, False, True]
    assert torch.allclose(some.likelihood[1:3], whole.likelihood[1:3], atol=1e-5)
    assert torch.equal(some.h, whole.h) and torch.equal(some.entropy, whole.entropy)
    none = read_rollouts(MODEL, **batch | {"prefixes": [None] * 4})
    assert none.likelihood.isnan().all()


def test_equal_thoughts_have_equal_likelihoods_to_the_last_bit():
    batch = sequences(4)
    for name in ("prompts", "prefixes", "references"):
        batch[name][3] = batch[name][1]
    likelihood = read_rollouts(MODEL, **batch).likelihood
    assert likelihood[1] == likelihood[3] != likelihood[2]
    alone = read_rollouts(MODEL, **{name: values[1:2] for name, values in batch.items()})
    assert float(alone.likelihood[0]) == pytest.approx(float(likelihood[1]), abs=1e-5)


def test_a_reading_leaves_no_gradient():
    got = read_rollouts(MODEL, **sequences(2))
    assert not (got.h.requires_grad or got.entropy.requires_grad or got.likelihood.requires_grad)
