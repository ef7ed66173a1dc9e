"""How good a policy is: what counts in a story told twice, and that replies are what the policy said."""

import numpy as np
import pytest
import torch

from lib import tasks
from lib.conductor import data, evaluation
from lib.conductor.evaluation import ItemReply, SamplingSettings
from lib.conductor.meta_policy_training import ConductorWeighting
from lib.conductor.reply_format import is_well_formed
from lib.conductor.reward_model import PreferenceReward
from lib.conductor.rewards import COMPONENTS, compute_length_reward
from lib.conductor.weighting import FixedWeighting
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.tokenizer import EOS, decode, encode
from lib.language_models.training.training_data import write_question
from tests.conductor import small

SAMPLES = 4
ITEMS = data.draw_items("test", 8)
REASONING, STORY, TRANSLATION = ITEMS[:3]
WRONG = "<answer> nothing </answer>"


def said(item, *texts: str) -> list[ItemReply]:
    return [
        ItemReply(item, text, tuple(encode(text)), tuple(encode_conversation(write_question(item))))
        for text in texts
    ]


def score(item, *texts: str) -> dict:
    (row,) = evaluation.score_items(said(item, *texts), len(texts)).to_dict("records")
    return row


# Scores -------------------------------------------------------------------------------------------


def test_a_story_that_is_told_twice_counts_once():
    good, other = STORY.solution, f"<think> well </think> {STORY.solution}"
    row = score(STORY, good, good, other, WRONG)
    assert (
        tasks.score_reply(STORY, good) == tasks.score_reply(STORY, other) == 1
        and tasks.score_reply(STORY, WRONG) == 0
    )
    assert row["group"] == "story" and row["correct"] == pytest.approx(2 / 4)
    assert row["verified"] == pytest.approx(3 / 4) and row["novel"] == pytest.approx(3 / 4)
    assert score(STORY, *[good] * 4)["correct"] == pytest.approx(1 / 4)


def test_a_good_story_after_bad_ones_counts():
    assert score(STORY, WRONG, WRONG, STORY.solution)["correct"] == pytest.approx(1 / 3)


@pytest.mark.parametrize("item", [REASONING, TRANSLATION], ids=data.get_category)
def test_elsewhere_what_is_right_twice_counts_twice(item):
    row = score(item, item.solution, item.solution, item.solution, WRONG)
    assert row["correct"] == row["verified"] == pytest.approx(3 / 4, abs=0.05) and row[
        "novel"
    ] == pytest.approx(1 / 2)


def test_there_is_one_row_per_item_with_lengths_and_form():
    given = said(REASONING, "<answer> 1 </answer>", "1") + said(STORY, WRONG, f"{WRONG} {WRONG}")
    frame = evaluation.score_items(given, 2)
    assert list(frame) == [
        "group",
        "item",
        "correct",
        "verified",
        "novel",
        "tokens_out",
        "well_formed",
    ]
    assert frame["group"].tolist() == ["reasoning", "story"] and frame["item"].tolist() == [0, 1]
    assert frame["tokens_out"].tolist() == [2.0, 4.5] and frame["well_formed"].tolist() == [
        0.5,
        0.5,
    ]


# Replies ------------------------------------------------------------------------------------------


def replies(policy, seed: int = 0, prefix: str = ""):
    return evaluation.sample_replies(
        policy, ITEMS, SamplingSettings(SAMPLES, 1.0, 11, prefix), seed
    )


def test_replies_are_the_same_twice_and_others_with_another_seed(policy):
    first = replies(policy)
    assert replies(policy) == first and [r.text for r in replies(policy, seed=1)] != [
        r.text for r in first
    ]


def test_what_a_reply_is_made_to_begin_with_is_part_of_text_and_tokens(policy):
    start = tuple(encode("<think>"))
    every = replies(policy, prefix="<think>")
    given = every
    assert all(
        reply.text.startswith("<think>") and reply.ids[: len(start)] == start for reply in given
    )
    assert all(
        reply.prompt == tuple(encode_conversation(write_question(reply.item))) for reply in given
    )
    assert any("</think>" in reply.text for reply in given)  # it goes on from there
    assert max(len(reply.ids) for reply in given) == 11 + len(start)


# Components ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reward_model(taught):
    return PreferenceReward(taught[0])


def test_components_are_what_the_rewards_say_of_the_replies(policy, reward_model):
    given = replies(policy)
    frame = evaluation.measure_rewards(
        policy, given, reward_model, small.REWARDS, None, "last", "both"
    )
    assert list(frame) == [
        "group",
        *COMPONENTS,
        "prompt",
        "reference",
        "reply",
        "verified",
        "has_thought",
    ]
    assert frame["group"].tolist() == [data.get_category(reply.item) for reply in given]
    assert frame["fmt"].tolist() == [float(is_well_formed(reply.text)) for reply in given]
    lengths = [
        compute_length_reward(len(r.ids), small.REWARDS.min_length, small.REWARDS.max_length)
        for r in given
    ]
    np.testing.assert_allclose(frame["len"], lengths)
    scores = reward_model([write_question(r.item) for r in given], [r.text for r in given])
    np.testing.assert_allclose(frame["pref"], scores, atol=1e-6)
    assert frame["reply"].tolist() == [reply.text for reply in given]
    assert frame["reference"].tolist() == [reply.item.reference for reply in given]
    assert frame["verified"].tolist() == [
        tasks.score_reply(reply.item, reply.text) for reply in given
    ]
    assert (
        frame["has_thought"].tolist() == ["<think>" in reply.text for reply in given]
        and 0 < frame["has_thought"].mean() < 1
    )


def test_the_reference_is_read_after_the_thought(policy, reward_model):
    """ppl of one reply, by transformers, token by token."""
    reply = ItemReply(
        TRANSLATION, "<think> a </think> <answer> b </answer>", tuple(encode("<answer>")), (2, 5, 9)
    )
    frame = evaluation.measure_rewards(
        policy, [reply], reward_model, small.REWARDS, None, "last", "both"
    )
    before, wanted = (
        encode("<think> a </think> <answer>"),
        encode(TRANSLATION.reference),
    )
    with torch.no_grad():
        log_p = policy(torch.tensor([[2, 5, 9, *before, *wanted]])).logits[0].log_softmax(-1)
    at = 3 + len(before)
    expected = np.mean([log_p[at + i - 1, t].item() for i, t in enumerate(wanted)])
    assert frame["ppl"][0] == pytest.approx(expected, abs=1e-5)


def test_they_come_item_by_item_with_what_was_asked(policy):
    given = replies(policy)
    assert [reply.item for reply in given] == [item for item in ITEMS for _ in range(SAMPLES)]
    assert all(
        reply.prompt == tuple(encode_conversation(write_question(reply.item))) for reply in given
    )
    groups = [
        {reply.text for reply in given[i : i + SAMPLES]} for i in range(0, len(given), SAMPLES)
    ]
    assert sum(len(group) for group in groups) > len(given) / 2  # each is drawn anew


def test_text_is_what_the_tokens_say_without_the_end(policy):
    given = replies(policy)
    assert {reply.ids[-1] == encode_special(EOS) for reply in given} == {True, False}
    for reply in given:
        assert (
            reply.text == decode([i for i in reply.ids if i != encode_special(EOS)])
            and len(reply.ids) <= 11
        )


def test_settled_weights_stand_beside_them_where_there_are_any(policy, reward_model):
    given = replies(policy)[:8]
    conducted = ConductorWeighting(small.HIDDEN, small.head(), 5, 0)
    with torch.no_grad():
        conducted.conductor.linear.weight.normal_(generator=torch.Generator().manual_seed(0))
    frames = [
        evaluation.measure_rewards(
            policy, given, reward_model, small.REWARDS, weighting, "first", "both"
        )
        for weighting in (conducted, FixedWeighting({"len": 1.0, "quality": 1.0}))
    ]
    columns = [f"w_{name}" for name in COMPONENTS]
    np.testing.assert_allclose(frames[0][columns].sum(axis=1), 1, atol=1e-5)
    assert frames[0][columns].std().max() > 0.01
    assert frames[1][columns].to_numpy().tolist() == [[0.0, 0.0, 0.0, 1.0, 0.0]] * 8
