"""Constrained models: the distribution is the model's own over the menu, in a batch as alone, and JSON is its habit."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.llm.chat_model import ChatRequest
from lib.orchestration import prompts
from lib.orchestration.constrained_model import ConstrainedModel, write_reply
from lib.orchestration.contexts import TABLE_1
from lib.orchestration.decision_model import UNUSABLE
from lib.policy_zoo.recipes import SINGLE
from tests.language_models.hugging_face_folders import (
    CHATML,
    make_parrot_folder,
    make_random_folder,
)
from tests.orchestration.contests import (
    SYSTEMS,
    make_context,
    make_episode_set,
    make_options,
    make_result,
)

WINDOW = 16_384
LONG_SECTIONS = ("instr", "know")  # left out where they do not matter: bytes are tokens here
PRICES = {"price_in": 0.001, "price_out": 0.01}


def open_folder(folder: Path, window: int = WINDOW, **settings) -> ConstrainedModel:
    """A tiny model with a window that prompts fit into."""
    config_path = folder / "config.json"
    config = json.loads(config_path.read_text())
    config_path.write_text(json.dumps(config | {"max_position_embeddings": window}))
    return ConstrainedModel(HuggingFaceModel(folder, device="cpu", **PRICES), **settings)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> ConstrainedModel:
    return open_folder(make_random_folder(tmp_path_factory.mktemp("random") / "random"))


def make_short_context(domain: str = "education", system: str = "KO", **changes):
    """A context of a final decision, without the sections that are long."""
    context = make_context(domain, system, calls_left=0, **changes)
    return replace(context, components=context.components - set(LONG_SECTIONS))


def make_contexts() -> list:
    """Contexts whose prompts differ in length."""
    contexts = [make_short_context("education", system) for system in SYSTEMS]
    contexts += [make_short_context("minigrid", system) for system in SYSTEMS]
    contexts.append(replace(contexts[0], recent=(), summary="Everything is new. " * 9))
    return contexts


@torch.inference_mode()
def score_alone(model: ConstrainedModel, context, policy: str) -> tuple[float, int]:
    """Log-probability and number of tokens of one reply after one prompt, by a plain forward pass."""
    messages = prompts.assemble(prompts.render(context, with_reasoning=False))
    prompt = model.model.encode_prompt(ChatRequest(messages))
    reply = model.model.tokenizer(write_reply(policy), add_special_tokens=False)["input_ids"]
    logits = model.model.net(torch.tensor([prompt + reply])).logits[0].double()
    logprobs = logits.log_softmax(dim=-1)[len(prompt) - 1 : -1]
    return float(logprobs[torch.arange(len(reply)), reply].sum()), len(reply)


def renormalize(model: ConstrainedModel, context) -> np.ndarray:
    """exp(s_k) / sum_j exp(s_j) over the menu."""
    scores = np.array([score_alone(model, context, policy)[0] for policy in context.policies])
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


# The distribution -------------------------------------------------------------------------------------


def test_the_distribution_is_the_models_own_over_the_replies_that_there_are(model):
    contexts = make_contexts()
    decisions = model.decide(contexts)
    for context, decision in zip(contexts, decisions, strict=True):
        expected = renormalize(model, context)
        assert decision.probabilities == pytest.approx(expected, abs=1e-4)
        assert decision.probabilities.sum() == pytest.approx(1.0)
    peaks = [decision.probabilities.max() for decision in decisions]
    assert max(peaks) > 0.4, "the model has no opinion, so that this test shows nothing"


def test_names_of_equal_length_are_ranked_as_by_the_mean_log_probability_of_a_token(model):
    for context in make_contexts():
        scores, lengths = zip(
            *(score_alone(model, context, policy) for policy in SINGLE), strict=True
        )
        assert len(set(lengths)) == 1
        (decision,) = model.decide([context])
        by_mean = np.argsort(np.array(scores) / np.array(lengths))
        assert np.argsort(decision.probabilities).tolist() == by_mean.tolist()


def test_a_longer_name_gets_what_its_whole_text_is_worth_and_no_name_swallows_another(model):
    context = replace(make_short_context(), policies=("SO-d1", "SO-d12", "S"))
    (decision,) = model.decide([context])
    assert decision.probabilities == pytest.approx(renormalize(model, context), abs=1e-4)
    # SO-d12 needs one token more than SO-d1, so that it is the less likely text by far.
    scores = [score_alone(model, context, policy) for policy in context.policies]
    assert scores[1][1] == scores[0][1] + 1
    means = [score / length for score, length in scores]
    assert np.ptp(means) < np.ptp([score for score, _ in scores])


def test_a_decision_is_the_same_alone_in_a_batch_and_in_any_order(model):
    contexts = make_contexts()[2:]
    together = model.decide(contexts)
    reverse = model.decide(contexts[::-1])[::-1]
    for context, one, other in zip(contexts, together, reverse, strict=True):
        (alone,) = model.decide([context])
        assert np.array_equal(one.probabilities, other.probabilities)
        assert alone.probabilities == pytest.approx(one.probabilities, abs=1e-5)
    small_batches = ConstrainedModel(model.model, batch_size=2).decide(contexts)
    for one, other in zip(together, small_batches, strict=True):
        assert other.probabilities == pytest.approx(one.probabilities, abs=1e-5)


def test_equal_prompts_are_computed_once_and_decided_alike(model, monkeypatch):
    batches = []
    answer_batch = model._answer_batch

    def count_questions(questions):
        batches.append(len(questions))
        return answer_batch(questions)

    monkeypatch.setattr(model, "_answer_batch", count_questions)
    context = make_short_context()
    hidden = [replace(context, stream=stream, episode=stream) for stream in range(30)]
    decisions = model.decide([*hidden, make_short_context("minigrid")])
    assert batches == [2]
    assert all(np.array_equal(d.probabilities, decisions[0].probabilities) for d in decisions[:30])
    decisions[0].probabilities[:] = 0  # and nobody shares an array
    assert decisions[1].probabilities.sum() == pytest.approx(1.0)


# The habit of replying in JSON --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "is_valid"),
    [
        (['{"', "policy"], True),
        (["```", "json"], True),
        (["Sure", "!"], False),
        (["<|im_end|>"], False),
    ],
)
def test_whether_it_would_have_begun_with_json_is_recorded(chunks, is_valid, tmp_path):
    model = open_folder(make_parrot_folder(tmp_path / "parrot", chunks, end=None))
    contexts = [make_short_context(system=system) for system in SYSTEMS]
    for decision in model.decide(contexts):
        assert decision.usage.invalid_replies == (not is_valid)
        assert decision.usage.failure_kinds == ([] if is_valid else ["not_json"])
        assert decision.failure == "" and decision.probabilities is not None


def test_the_share_of_invalid_replies_reaches_the_table_of_episodes(tmp_path):
    model = open_folder(make_parrot_folder(tmp_path / "parrot", ["Sure", "!"], end=None))
    options = make_options("education", "KO", without=LONG_SECTIONS)
    played = make_episode_set("education", 1).play(model, options)
    length = played.episodes["length"].tolist()
    assert played.episodes["invalid_replies"].tolist() == length
    assert (
        played.episodes["replies_unusable"].tolist() == played.episodes["calls"].tolist() == length
    )
    assert played.episodes["malformed"].tolist() == [0]


def test_a_thought_that_the_template_has_opened_is_closed_first(tmp_path):
    template = CHATML + "{{ '<think>\n' }}"
    model = open_folder(make_random_folder(tmp_path / "thinks", template))
    context = make_short_context()
    question = model._make_question(context)
    text = model.model.tokenizer.decode(question.prompt_ids)
    assert text.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


# What it takes ------------------------------------------------------------------------------------------


def test_tokens_and_prices_are_those_of_prompt_and_reply(model):
    context = make_short_context()
    (decision,) = model.decide([context])
    messages = prompts.assemble(prompts.render(context, with_reasoning=False))
    tokens_in = model.model.count_prompt_tokens(ChatRequest(messages))
    tokens_out = len('{"policy": "SO-d1"}')  # bytes are tokens here
    usage = decision.usage
    assert (usage.calls, usage.tokens_in, usage.tokens_out) == (1, tokens_in, tokens_out)
    assert usage.cost_usd == pytest.approx(0.001 * tokens_in + 0.01 * tokens_out)
    assert usage.kwh == pytest.approx(model.model.kwh_per_token * (tokens_in + tokens_out))


def test_a_prompt_that_does_not_fit_into_the_window_fails_and_the_others_are_decided(tmp_path):
    short = make_short_context("education", "TO")
    long = replace(short, summary="word " * 900)
    model = open_folder(make_random_folder(tmp_path / "narrow"), window=3_000)
    decisions = model.decide([long, short, long])
    assert [decision.failure for decision in decisions] == [UNUSABLE, "", UNUSABLE]
    assert decisions[0].usage.failure_kinds == ["context_too_long"]
    assert decisions[0].probabilities is None and decisions[1].probabilities is not None


def test_prompts_ask_for_no_reasoning_and_are_kept_on_demand(model):
    keeping = ConstrainedModel(model.model, keep_exchanges=True)
    context = make_context(system="RO", calls_left=0)
    (decision,) = keeping.decide([context])
    (exchange,) = decision.exchanges
    index = int(decision.probabilities.argmax())
    assert exchange.reply == write_reply(SINGLE[index]) == f'{{"policy": "{SINGLE[index]}"}}'
    assert json.loads(exchange.reply) == {"policy": SINGLE[index]}
    assert not any("reasoning" in section.text for section in exchange.parts)
    assert model.decide([context])[0].exchanges == []


# Whole episodes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
def test_it_plays_episodes_with_the_results_of_all_policies_and_without_calls(system, model):
    keeping = ConstrainedModel(model.model, keep_exchanges=True)
    episode_set = make_episode_set("minigrid", 1)
    without = [name for name in LONG_SECTIONS if name in TABLE_1[system]]
    options = make_options("minigrid", system, without=tuple(without))
    played = episode_set.play(keeping, options)
    assert (played.steps["failure"] == "").all() and (played.steps["calls"] == 1).all()
    for decisions in played.exchanges.values():
        for decision in decisions:
            (exchange,) = decision.exchanges
            prompt = "\n".join(section.text for section in exchange.parts)
            assert prompt.count("(mean of 4 copies)") == (0 if system == "KO" else len(SINGLE))
            assert '"call"' not in prompt
    again = episode_set.play(keeping, options)
    assert again.steps.equals(played.steps)


def test_what_calls_showed_can_change_the_distribution(model):
    def decide(results):
        shown = (make_result("education", "SO-d1", "TO", results),)
        return model.decide([make_short_context(system="TO", tool_results=shown)])[0]

    first, second = decide((0.1, 0.1, 0.1)), decide((0.9, 0.9, 0.9))
    assert not np.array_equal(first.probabilities, second.probabilities)


def test_it_keeps_no_summary(model):
    assert model.summary_interval == 0
    with pytest.raises(NotImplementedError, match="random keeps no summary"):
        model.summarize([])
