"""The reward model: who is preferred to whom, how often wrongly, and what its scores are."""

from collections import Counter

import pytest
import torch
from transformers import AutoModelForSequenceClassification

from lib import tasks
from lib.conductor import data, reward_model
from lib.conductor.reward_model import PreferencePair, PreferenceReward, make_pairs
from lib.experiment import artifacts
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.training.training_data import tokenize_dialogue, write_question
from tests.conductor import small

REPLIES = 3


@pytest.fixture(scope="module")
def forward(policy):
    return Forward(policy)


@pytest.fixture(scope="module")
def correct(forward) -> list[PreferencePair]:
    """Pairs of which none is judged the wrong way round."""
    return make_pairs(forward, "train", small.preference(prompts=60, replies=REPLIES), 1.0, 0.0, 0)


@pytest.fixture(scope="module")
def model(taught) -> PreferenceReward:
    return PreferenceReward(taught[0])


def asked(n: int, split: str = "test") -> tuple[list, list[str]]:
    """Prompts as messages and replies of very different lengths."""
    items = data.draw_items(split, n)
    return [write_question(item) for item in items], [
        item.solution * (1 + i % 3) for i, item in enumerate(items)
    ]


# Pairs --------------------------------------------------------------------------------------------


def test_the_better_of_a_pair_scores_higher_where_nobody_errs(correct):
    assert len(correct) > 100
    for pair in correct:
        assert tasks.score_reply(pair.item, pair.better) > tasks.score_reply(pair.item, pair.worse)


def test_pairs_are_all_of_one_prompt_and_no_two_are_equal(correct):
    assert len({(pair.item.id, frozenset((pair.better, pair.worse))) for pair in correct}) == len(
        correct
    )
    of_prompt = Counter(id(pair.item) for pair in correct)
    assert max(of_prompt.values()) <= (REPLIES + 1) * REPLIES / 2
    assert {data.get_category(pair.item) for pair in correct} == set(data.CATEGORIES)


@pytest.mark.parametrize("error_rate", [0.1, 0.3])
def test_the_declared_share_is_judged_the_wrong_way_round(forward, correct, error_rate):
    judged = make_pairs(
        forward, "train", small.preference(prompts=60, replies=REPLIES), 1.0, error_rate, 0
    )
    assert [{p.better, p.worse} for p in judged] == [
        {p.better, p.worse} for p in correct
    ]  # the same comparisons
    wrong = [a.better == b.worse for a, b in zip(judged, correct, strict=True)]
    deviation = (error_rate * (1 - error_rate) / len(wrong)) ** 0.5
    assert abs(sum(wrong) / len(wrong) - error_rate) < 3 * deviation


def test_pairs_are_those_of_seed_and_split(forward, correct):
    assert (
        make_pairs(forward, "train", small.preference(prompts=60, replies=REPLIES), 1.0, 0.0, 0)
        == correct
    )
    other = make_pairs(forward, "train", small.preference(prompts=60, replies=REPLIES), 1.0, 0.0, 1)
    held = make_pairs(forward, "dev", small.preference(prompts=12, replies=REPLIES), 1.0, 0.0, 0)
    assert {p.item.prompt for p in other} != {p.item.prompt for p in correct}
    assert {p.item.split for p in held} == {"dev"} and {p.item.split for p in correct} == {"train"}


# Scores -------------------------------------------------------------------------------------------


def test_scores_are_probabilities_in_the_order_of_the_raw_ones(model):
    prompts, replies = asked(12)
    scores, raw = torch.tensor(model(prompts, replies)), model.compute_scores(prompts, replies)
    assert scores.shape == raw.shape == (12,) and (scores >= 0).all() and (scores <= 1).all()
    assert torch.equal(scores.argsort(), raw.argsort()) and scores.std() > 1e-3
    centre, spread = model.centre, model.spread
    assert torch.allclose(scores, torch.sigmoid((raw - centre) / spread))


def test_a_reply_scores_the_same_alone_and_beside_longer_ones(model):
    prompts, replies = asked(8)
    together = model.compute_scores(prompts, replies)
    alone = torch.cat(
        [model.compute_scores([p], [r]) for p, r in zip(prompts, replies, strict=True)]
    )
    assert torch.allclose(together, alone, atol=1e-5) and together.std() > 1e-3


def test_what_it_reads_is_the_dialogue_as_the_lab_writes_it(model):
    prompts, replies = asked(4)
    told = [
        tokenize_dialogue([*p, {"role": "assistant", "content": r}]).ids
        for p, r in zip(prompts, replies, strict=True)
    ]
    with torch.no_grad():
        expected = torch.cat([model.model(torch.tensor([ids])).logits[:, 0] for ids in told])
    assert torch.allclose(model.compute_scores(prompts, replies), expected, atol=1e-5)


# Training -----------------------------------------------------------------------------------------


def test_training_leaves_a_model_with_its_scale_and_says_how_often_it_agrees(taught):
    folder, agreement = taught
    assert list(agreement.columns) == ["group", "correct", "pairs"]
    assert agreement["group"].tolist() == list(data.CATEGORIES)
    assert (agreement["correct"] <= agreement["pairs"]).all() and (agreement["pairs"] > 0).all()
    assert artifacts.read_json(folder / "scale.json").keys() == {"centre", "spread"}


def test_it_starts_from_the_policys_own_trunk_and_learns(taught, policy):
    """Few updates at a small rate leave it near where it came from."""
    model = AutoModelForSequenceClassification.from_pretrained(taught[0], num_labels=1)
    trained, start = (
        model.model.layers[0].mlp.up_proj.weight,
        policy.model.layers[0].mlp.up_proj.weight,
    )
    moved = (trained - start).norm() / start.norm()
    assert 0 < moved < 0.1


def test_training_is_the_same_twice(taught, place, tmp_path):
    agreement = reward_model.train(place, small.PREFERENCE, 1.0, 0, tmp_path / "model")
    assert agreement.equals(taught[1])
    first, second = (
        (folder / "model.safetensors").read_bytes() for folder in (taught[0], tmp_path / "model")
    )
    assert first == second


def test_it_learns_what_is_preferred(place, tmp_path):
    """With enough pairs and a large rate it prefers, of its own training pairs, the better ones."""
    settings = small.preference(prompts=40, annotator_error_rate=0.0, epochs=3, learning_rate=1e-2)
    agreement = reward_model.train(place, settings, 1.0, 0, tmp_path / "model")
    assert agreement["correct"].sum() / agreement["pairs"].sum() > 0.7


@pytest.mark.parametrize("content", [None, "config only"])
def test_a_folder_without_a_model_is_refused(content, tmp_path, taught):
    if content:
        (tmp_path / "config.json").write_bytes((taught[0] / "config.json").read_bytes())
    with pytest.raises((OSError, ValueError)):
        PreferenceReward(tmp_path)


def test_references_are_compared_too(correct):
    """They are right, so where a pair holds one it is the better one; and some pairs hold none."""
    with_reference = [pair for pair in correct if pair.item.solution in (pair.better, pair.worse)]
    assert 0.3 < len(with_reference) / len(correct) < 1
    assert all(pair.better == pair.item.solution for pair in with_reference)


def test_completions_may_be_messages_and_prompts_texts(model):
    prompts, replies = asked(4)
    messages = [[{"role": "assistant", "content": reply}] for reply in replies]
    assert model(prompts, messages, completion_ids=None, anything=1) == model(prompts, replies)
    texts = [prompt[-1]["content"] for prompt in prompts]
    scores = model(texts, [f" {reply}" for reply in replies])
    assert len(set(scores)) == 4 and all(0 < score < 1 for score in scores)
    whole = model.tokenizer(
        f"{texts[0]} {replies[0]}", return_tensors="pt", add_special_tokens=False
    )
    with torch.no_grad():
        raw = model.model(whole["input_ids"]).logits[0, 0]
    assert model.compute_scores(texts[:1], [f" {replies[0]}"])[0] == pytest.approx(
        raw.item(), abs=1e-5
    )


def test_its_name_is_that_of_the_reward(model):
    assert model.__name__ == "pref"


def test_most_scores_are_neither_0_nor_1(taught, forward):
    model = PreferenceReward(taught[0])
    held = make_pairs(forward, "dev", small.preference(prompts=12, replies=2), 1.0, 0.0, 0)
    scores = torch.tensor(
        model(
            [write_question(p.item) for p in held] * 2,
            [p.better for p in held] + [p.worse for p in held],
        )
    )
    assert 0.2 < scores.mean() < 0.8 and scores.std() > 0.05


def test_agreement_counts_a_prompt_once(taught, forward, tmp_path):
    held = make_pairs(forward, "dev", small.preference(prompts=12, replies=REPLIES), 1.0, 0.0, 0)
    counted = reward_model.measure_agreement(
        PreferenceReward(taught[0]), held, tmp_path / "scale.json"
    )
    assert counted["pairs"].sum() == len({pair.item.id for pair in held}) < len(held)
    again = reward_model.measure_agreement(
        PreferenceReward(taught[0]),
        [PreferencePair(p.item, p.worse, p.better) for p in held],
        tmp_path / "s",
    )
    assert (counted["correct"] + again["correct"] == counted["pairs"]).all()


def test_agreement_without_a_pair_is_an_empty_table_and_the_scale_is_plain(taught, tmp_path):
    counted = reward_model.measure_agreement(
        PreferenceReward(taught[0]), [], tmp_path / "scale.json"
    )
    assert counted.empty and list(counted.columns) == ["group", "correct", "pairs"]
    assert artifacts.read_json(tmp_path / "scale.json") == {"centre": 0.0, "spread": 1.0}
