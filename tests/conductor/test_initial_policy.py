"""The initial policy: the declared fractions of typical replies, on items that nothing else uses."""

import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from lib import config, tasks
from lib.conductor import data, initial_policy, typical_replies
from lib.conductor.reply_format import extract_thought, is_well_formed
from lib.conductor.typical_replies import (
    write_error,
    write_malformed,
    write_thought,
    write_typical_reply,
)
from lib.config import InitialPolicySettings
from lib.experiment import artifacts, seeds
from lib.experiment.harness import JobRun
from lib.language_models import checkpoints
from lib.language_models.tokenizer import UNK, encode, get_tokenizer
from lib.language_models.training.training_data import collate, tokenize_dialogue, write_question
from lib.tasks import arithmetic_chain
from tests.language_models import tiny

LAPTOP = config.load("laptop").conductor


def settings(error_rate: float = 0.6, **changes) -> InitialPolicySettings:
    """Replies in form, one in two with a thought."""
    rates = {"with_thought": error_rate, "without_thought": error_rate}
    fields = {
        "items": 900,
        "thought_rate": 0.5,
        "repetition_rate": 0.0,
        "malformed_rate": 0.0,
        "error_rates": dict.fromkeys(data.CATEGORIES, rates),
        "batch": 16,
        "learning_rate": 1e-2,
    }
    return InitialPolicySettings(**(fields | changes))


def draw_one(category: str, difficulty: int):
    items = data.draw_items("dev", 30, categories=[category])
    return next(item for item in items if item.difficulty == difficulty)


# Replies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error_rate", [0.0, 0.3, 0.6, 1.0])
def test_the_declared_fraction_of_the_replies_in_every_category_is_wrong(error_rate):
    examples = initial_policy.write_examples(settings(error_rate), 0)
    assert all(is_well_formed(text) for _, text in examples)
    for category in data.CATEGORIES:
        replies = [(i, text) for i, text in examples if data.get_category(i) == category]
        wrong = np.mean([tasks.score_reply(item, text) < 1 for item, text in replies])
        # A chain of zeros is right however it is read, and a few sentences are the same in either order.
        assert abs(wrong - error_rate) < 3 * (0.25 / len(replies)) ** 0.5 + 0.02, category
        with_thought = np.mean(["<think>" in text for _, text in replies])
        assert abs(with_thought - 0.5) < 0.1


def test_a_thought_leads_to_the_answer_that_follows_it():
    """So that what a thought is worth can be read from the likelihood of the reference after it."""
    rng = seeds.rng("test of thoughts")
    for item in data.draw_items("dev", 30):
        thought, answer = write_error(item, rng)
        if data.get_category(item) == "reasoning":
            assert (
                thought.split()[-1] == answer and write_thought(item).split()[-1] == item.reference
            )
        if data.get_category(item) == "story":
            hero, wish = thought.split()[1], thought.split()[-1]
            right_hero, right_wish = write_thought(item).split()[1], write_thought(item).split()[-1]
            assert f" {right_hero} " in item.prompt and f" {right_wish} ." in item.prompt
            assert hero != right_hero and wish != right_wish and f" {right_hero} " not in answer


def test_errors_are_those_of_their_category():
    rng = seeds.rng("test of errors")
    chain = draw_one("reasoning", 3)
    thought, answer = write_error(chain, rng)
    _, *symbols = chain.id.removeprefix("chain/").split()
    signs = [step.split()[1] for step in thought.split(" ; ")]
    assert sum(a != b for a, b in zip(signs, symbols[::2], strict=True)) == 1
    for step in thought.split(" ; "):  # the sums themselves are right
        a, sign, b, _, result = step.split()
        assert arithmetic_chain.OPERATIONS[sign](int(a), int(b)) == int(result)

    sentence = draw_one("translation", 2)
    thought, answer = write_error(sentence, rng)
    assert f"Translate : {thought}" == sentence.prompt
    assert sorted(answer.split()) == sorted(sentence.reference.split())

    tale = draw_one("story", 3)
    _, answer = write_error(tale, rng, has_thought=False)
    assert answer.count("made a plan .") == 3


def test_a_malformed_reply_breaks_the_form_and_its_answer_can_be_read_in_three_of_five_ways():
    rng = seeds.rng("test of forms")
    item = draw_one("reasoning", 2)
    replies = {write_malformed("a b", item.reference, rng) for _ in range(200)}
    assert len(replies) == 5 and not any(map(is_well_formed, replies))
    assert sum(tasks.score_reply(item, reply) == 1 for reply in replies) == 3
    assert sum(extract_thought(reply) is None for reply in replies) == 3


def test_repeated_thoughts_are_longer_than_the_limit_at_times():
    rng = seeds.rng("test of repetition")
    always = settings(thought_rate=1.0, repetition_rate=1.0)
    replies = [write_typical_reply(item, always, rng) for item in data.draw_items("train", 300)]
    lengths = np.array([len(encode(reply)) for reply in replies])
    assert 0.2 < np.mean(lengths > LAPTOP.grpo.max_tokens) < 1


def test_every_word_is_in_the_vocabulary():
    unknown = get_tokenizer().convert_tokens_to_ids(UNK)
    for _, text in initial_policy.write_examples(LAPTOP.initial_policy, 0):
        assert unknown not in encode(text), text


def test_replies_of_the_lesson_are_wrong_malformed_and_long_as_the_parameters_say():
    own = LAPTOP.initial_policy
    examples = initial_policy.write_examples(own, 0)
    well_formed = np.mean([is_well_formed(text) for _, text in examples])
    assert well_formed == pytest.approx(1 - own.malformed_rate, abs=0.04)
    assert 0.2 < np.mean([tasks.score_reply(item, text) for item, text in examples]) < 0.7


# Initial policies ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_no_test_item_and_no_prompt_of_the_reward_model_is_used(seed):
    used = {item.id for item, _ in initial_policy.write_examples(settings(), seed)}
    for others in (
        data.draw_items("dev", 600),
        data.draw_items("test", 600),
        data.draw_items("train", 600, learner="reward model"),
    ):
        assert not used & {item.id for item in others}


def test_initial_policies_of_two_seeds_differ_and_that_of_one_is_the_same_twice(place, tmp_path):
    few_items = settings(items=48)
    weights = []
    for i, seed in enumerate([0, 0, 1]):
        job = initial_policy.make_job(few_items, place, seed)
        initial_policy.run_job(JobRun(job, tmp_path / str(i), None, None), str(place))
        weights.append(artifacts.sha256_file(tmp_path / str(i) / "model" / "model.safetensors"))
    assert weights[0] == weights[1] != weights[2]
    keys = [initial_policy.make_job(few_items, place, seed).key for seed in (0, 1)]
    assert keys[0] != keys[1]


def test_an_initial_policy_is_another_one_where_its_settings_its_policy_or_the_code_change(
    place, tmp_path, monkeypatch
):
    key = initial_policy.make_job(settings(), place, 0).key
    other_policy = checkpoints.save(tiny.model(1), tmp_path / "policy")
    assert initial_policy.make_job(settings(0.5), place, 0).key != key
    assert initial_policy.make_job(settings(), other_policy, 0).key != key
    for module in (initial_policy, typical_replies, data, tasks, seeds):
        with monkeypatch.context() as patch:
            patch.setattr(module, "VERSION", module.VERSION + 1)
            assert initial_policy.make_job(settings(), place, 0).key != key, module.__name__
    assert initial_policy.make_job(settings(), place, 0).key == key


def test_a_policy_learns_the_fraction_of_errors(policy):
    """Examples with nothing but errors take the right reply's lead over an error (in nats)."""
    item = draw_one("translation", 2)
    wrong = tasks.format_reply(write_error(item, seeds.rng("any"))[1])
    dialogues = [
        tokenize_dialogue([*write_question(item), {"role": "assistant", "content": text}])
        for text in (tasks.format_reply(item.reference), wrong)
    ]
    ids, targets = collate(dialogues)
    lead = {}
    for error_rate in (0.0, 1.0):
        model = copy.deepcopy(policy)
        few = settings(error_rate, items=240, thought_rate=0.0)
        initial_policy.fine_tune(model, initial_policy.write_examples(few, 0), few)
        with torch.no_grad():
            logits = model(ids).logits[:, :-1].transpose(1, 2)
            log_probs = -cross_entropy(logits, targets[:, 1:], reduction="none").sum(1)
        lead[error_rate] = float(log_probs[0] - log_probs[1])
    assert lead[0.0] > lead[1.0] + 10
