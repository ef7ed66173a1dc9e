"""Generators: turns come from the distribution that a trainer scores, and end where a turn ends."""

import warnings

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import AutoModelForCausalLM, AutoTokenizer

from lib.language_models import tokenizer as lab
from lib.language_models.hugging_face_folder import ModelFolderError
from lib.rl import call_protocol, generators
from lib.rl.call_protocol import Answer
from lib.rl.generators import LONGEST_LAB_TURN, HFGenerator, LabGenerator
from lib.rl.policy_model import PolicyModel, PolicyModelSettings
from lib.rl.rollout import Episode, roll_out
from lib.rl.token_batch import Sample, collate_samples
from tests.budgeted_routing import small_systems
from tests.language_models.hugging_face_folders import (
    END,
    NO_SYSTEM_TEMPLATE,
    OTHER_END,
    WINDOW,
    make_parrot_folder,
    make_random_folder,
    make_tokenizer,
)

SYSTEM, QUESTION = "budget low", "3 + 4 = ?"
MESSAGES = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": QUESTION}]
# What a folder may recommend, all of which would change the distribution.
RECOMMENDED = {
    "do_sample": True,
    "temperature": 0.1,
    "top_k": 1,
    "top_p": 0.2,
    "min_p": 0.9,
    "typical_p": 0.1,
    "repetition_penalty": 5.0,
    "no_repeat_ngram_size": 1,
    "suppress_tokens": list(range(60, 120)),
    "forced_eos_token_id": 3,
}


def read(folder, **settings) -> HFGenerator:
    settings = {"max_turn_tokens": 24, "max_response_tokens": 8} | settings
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    return HFGenerator(model, AutoTokenizer.from_pretrained(folder), **settings)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A random Llama of two end tokens."""
    path = tmp_path_factory.mktemp("models") / "random"
    tokenizer = make_tokenizer()
    end_ids = tokenizer.convert_tokens_to_ids([END, OTHER_END])
    make_random_folder(path, generation_config={"eos_token_id": end_ids})
    model = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():  # both end tokens come up in some of the turns
        model.lm_head.weight.mul_(0.3)
        for end_id in end_ids:
            model.lm_head.weight[end_id] = 1.5 * model.lm_head.weight[end_id]
    model.save_pretrained(path)
    return path


def make_contexts(generator: HFGenerator, num_contexts: int = 8) -> list[list[int]]:
    """Prompts of many lengths."""
    return [
        generator.encode_prompt([MESSAGES[0], {"role": "user", "content": "7" * (1 + 5 * index)}])
        for index in range(num_contexts)
    ]


# The distribution -------------------------------------------------------------------------------


def test_what_a_folder_recommends_for_sampling_changes_no_token(folder, tmp_path):
    plain = make_random_folder(tmp_path / "plain")
    recommending = make_random_folder(tmp_path / "recommending", generation_config=RECOMMENDED)
    turns = [
        generator.write_turns(make_contexts(generator), range(8), 1.0)
        for generator in (read(plain), read(recommending))
    ]
    assert turns[0] == turns[1] and len(set(map(tuple, turns[0]))) == 8


@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_tokens_are_as_frequent_as_the_scored_softmax_says(folder, temperature):
    generator = read(folder, max_turn_tokens=1, batch_size=500)
    context = generator.encode_prompt(MESSAGES)
    num_draws = 3000
    turns = generator.write_turns([context] * num_draws, range(num_draws), temperature)
    counts = np.bincount([ids[0] for ids in turns], minlength=generator.model.config.vocab_size)

    with torch.inference_mode():
        logits = generator.model(torch.tensor([context])).logits[0, -1].double()
    expected = num_draws * (logits / temperature).softmax(0).numpy()
    is_frequent = expected >= 5
    observed = [*counts[is_frequent], counts[~is_frequent].sum()]
    predicted = [*expected[is_frequent], expected[~is_frequent].sum()]
    assert is_frequent.sum() > 5
    assert stats.chisquare(observed, predicted).pvalue > 1e-3


@pytest.mark.parametrize(
    ("settings", "tolerance"),
    [
        (PolicyModelSettings(), 1e-4),
        (PolicyModelSettings(gradient_checkpointing=True), 1e-4),
        (PolicyModelSettings(lora_rank=4), 1e-4),
        (PolicyModelSettings(dtype="bfloat16"), 0.3),
    ],
    ids=["plain", "gradient checkpointing", "lora", "bfloat16"],
)
def test_the_trainer_scores_every_token_as_it_was_sampled(folder, settings, tolerance, monkeypatch):
    """Episodes of several turns, in batches with padding on both sides."""
    policy = PolicyModel.from_folder(folder, settings, "cpu")
    with (
        torch.no_grad()
    ):  # adapters begin at zero, where a generator without them would not be noticed
        for parameter in policy.list_trained_parameters():
            if settings.lora_rank:
                parameter.add_(0.05 * torch.randn(parameter.shape))
    generator = HFGenerator(
        policy.network, AutoTokenizer.from_pretrained(folder), 12, 8, batch_size=3
    )
    sampled = []

    def record(network, sequences, end_token_ids):
        sampled.extend(sequences)
        yield from sample_batch(network, sequences, end_token_ids)

    sample_batch = generators.sample_batch
    monkeypatch.setattr(generators, "sample_batch", record)
    contexts = make_contexts(generator)
    turns = generator.write_turns(contexts, range(len(contexts)), 1.0)

    samples = []
    for context, ids in zip(contexts, turns, strict=True):
        mask = [False] * len(context) + [True] * len(ids)
        samples.append(Sample([*context, *ids], mask, 0.0))
    batch = collate_samples(samples, generator.pad_id)
    with torch.no_grad():
        scored = policy.compute_logprobs(batch)  # (episodes, tokens - 1)
    logprobs_by_turn = {tuple(sequence.ids): sequence.logprobs for sequence in sampled}
    for row, mask, ids in zip(scored, batch.mask, turns, strict=True):
        difference = row[mask].numpy() - np.array(logprobs_by_turn[tuple(ids)])
        assert abs(difference).max() < tolerance


def test_a_turn_is_the_same_alone_and_beside_others(folder):
    one_by_one = read(folder, batch_size=1)
    contexts = make_contexts(one_by_one)
    expected = one_by_one.write_turns(contexts, range(8), 1.0)
    assert read(folder, batch_size=3).write_turns(contexts, range(8), 1.0) == expected
    assert read(folder).write_turns(contexts[::-1], range(7, -1, -1), 1.0) == expected[::-1]
    assert read(folder).write_turns(contexts, range(8, 16), 1.0) != expected


# Where a turn ends ------------------------------------------------------------------------------


class Deaf:
    """An environment for which every turn is an answer."""

    def parse_turn(self, episode, text):
        return Answer(text)

    def answer_calls(self, calls):
        return []


def test_a_turn_ends_at_the_first_of_several_end_tokens_and_nothing_after_it_is_learned_from(
    folder,
):
    generator = read(folder, max_turn_tokens=48)
    prompt = generator.encode_prompt(MESSAGES)
    episodes = [Episode(None, list(prompt), [False] * len(prompt), len(prompt)) for _ in range(64)]
    roll_out(generator, Deaf(), episodes, 1, seed=0)

    end_ids = set(generator.tokenizer.convert_tokens_to_ids([END, OTHER_END]))
    assert end_ids <= generator.end_token_ids
    last_ids = set()
    for episode in episodes:
        turn = episode.ids[len(prompt) :]
        assert sum(episode.mask) == len(turn) and not end_ids & set(turn[:-1])
        if len(turn) < 48:
            last_ids.add(turn[-1])
    assert last_ids == end_ids  # either token ends turns, while others go on beside them


def test_a_stop_string_ends_a_turn_even_where_a_token_joins_it_with_what_follows(tmp_path):
    chunks = ["<answer>", "7", "</answer", ">.", "more"]
    generator = read(make_parrot_folder(tmp_path / "parrot", chunks))
    prompt = generator.encode_prompt(MESSAGES)
    (turn,) = generator.write_turns([prompt], [0], 0.0)
    assert generator.decode(turn) == "<answer>7</answer>."
    text = call_protocol.cut_after_stop_string(generator.decode(turn))
    assert call_protocol.parse_turn(text, ()) == Answer("<answer>7</answer>")


def test_a_turn_without_an_end_has_as_many_tokens_as_the_limit(tmp_path):
    folder = make_parrot_folder(tmp_path / "endless", ["a", "b", "c"], end=None)
    generator = read(folder, max_turn_tokens=7)
    assert [
        len(ids) for ids in generator.write_turns(make_contexts(generator, 2), [0, 1], 0.0)
    ] == [
        7,
        7,
    ]


# Prompts, tokenizers, windows ------------------------------------------------------------------


def test_the_preface_and_the_system_text_open_the_conversation(folder):
    generator = read(folder, preface="You may call experts.")
    text = generator.decode(generator.encode_prompt(MESSAGES))
    assert text.index("You may call experts.") < text.index(SYSTEM) < text.index(QUESTION)


def test_without_a_system_role_the_system_text_stands_before_the_first_user_message(tmp_path):
    folder = make_random_folder(tmp_path / "no-system", template=NO_SYSTEM_TEMPLATE)
    generator = read(folder, preface="You may call experts.")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        text = generator.decode(generator.encode_prompt(MESSAGES))
        generator.encode_prompt(MESSAGES)
    assert "user\nYou may call experts.\nbudget low\n\n3 + 4 = ?" in text
    assert [str(warning.message) for warning in caught] == [
        "no-system: its chat template takes no system role; the system text goes in front of the first user message"
    ]


def test_a_tokenizer_without_a_chat_template_is_refused_in_one_line(tmp_path):
    folder = make_random_folder(tmp_path / "base", template=None)
    with pytest.raises(ModelFolderError, match="base: its tokenizer has no chat template; use"):
        read(folder)


def test_a_tokenizer_without_a_padding_token_is_used_as_it_is(folder):
    generator = read(folder)
    before = generator.tokenizer.padding_side
    generator.write_turns(make_contexts(generator), range(8), 1.0)
    assert generator.tokenizer.pad_token is None and generator.tokenizer.padding_side == before
    assert generator.pad_id in generator.end_token_ids

    generator.tokenizer.pad_token = END
    again = HFGenerator(generator.model, generator.tokenizer, 8, 8)
    assert again.pad_id == generator.tokenizer.convert_tokens_to_ids(END)


def test_there_is_room_for_a_turn_where_it_can_be_written_to_its_end(folder):
    generator = read(folder, max_turn_tokens=20)
    assert generator.has_room([5] * (WINDOW - 20)) and not generator.has_room([5] * (WINDOW - 19))
    (turn,) = generator.write_turns([[5] * (WINDOW - 20)], [0], 1.0)
    assert 1 <= len(turn) <= 20


def test_a_batch_size_below_one_is_refused(folder):
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        read(folder, batch_size=0)


# Beside a training ------------------------------------------------------------------------------


def test_batches_have_the_batch_size_at_most_and_progress_is_reported(folder, monkeypatch):
    generator = read(folder, batch_size=3)
    batch_sizes = []
    sample_batch = generators.sample_batch

    def record(network, sequences, end_token_ids):
        batch_sizes.append(len(sequences))
        return sample_batch(network, sequences, end_token_ids)

    monkeypatch.setattr(generators, "sample_batch", record)
    reports = []
    generator.report_progress = lambda *numbers: reports.append(numbers)
    generator.write_turns(make_contexts(generator), range(8), 1.0)
    assert batch_sizes == [3, 3, 2]
    assert reports == [(num_finished, 8) for num_finished in range(9)]


def test_no_memory_is_one_line_with_the_remedy(folder, monkeypatch):
    def run_out(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        yield

    monkeypatch.setattr(generators, "sample_batch", run_out)
    generator = read(folder)
    with pytest.raises(torch.OutOfMemoryError, match="cpu has no memory .* smaller batch_size"):
        generator.write_turns(make_contexts(generator), range(8), 1.0)


def test_sampling_evaluates_with_a_cache_and_leaves_the_training_as_it_was(folder):
    generator = read(folder)
    expected = generator.write_turns(make_contexts(generator), range(8), 1.0)

    network = generator.model.train()
    network.model.norm.eval()  # a frozen part
    network.gradient_checkpointing_enable()
    widths, modes, gradients = [], [], []

    def record(module, arguments, keywords, output):
        widths.append(keywords["input_ids"].shape[1])
        modes.append(module.training)
        gradients.append(output.logits.requires_grad)

    handle = network.register_forward_hook(record, with_kwargs=True)
    assert generator.write_turns(make_contexts(generator), range(8), 1.0) == expected
    handle.remove()
    assert set(widths[1:]) == {1}, "every token would read its whole context again"
    assert not any(modes) and not any(gradients)
    assert network.training and network.model.layers[0].training
    assert not network.model.norm.training

    # Nothing of the sampling is left behind that a backward pass could not use.
    network(torch.tensor([[5, 6, 7]])).logits.sum().backward()
    assert network.lm_head.weight.grad is not None


def test_a_model_in_peft_s_wrapper_samples_with_its_adapters(folder, tmp_path):
    peft = pytest.importorskip("peft")
    base = AutoModelForCausalLM.from_pretrained(folder)
    config = peft.LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False)
    torch.manual_seed(0)
    wrapped = peft.get_peft_model(base, config).train()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    generator = HFGenerator(wrapped, tokenizer, 24, 8)
    contexts = make_contexts(generator)
    turns = generator.write_turns(contexts, range(8), 1.0)
    assert wrapped.training and turns != read(folder).write_turns(contexts, range(8), 1.0)

    merged = wrapped.merge_and_unload().eval()
    assert HFGenerator(merged, tokenizer, 24, 8).write_turns(contexts, range(8), 1.0) == turns


# Beside the lab's engine ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lab_generators() -> tuple[HFGenerator, LabGenerator]:
    """A lab controller that has half learned the protocol, through transformers and through the lab's engine."""
    model = small_systems.make_protocol_model()
    return HFGenerator(model, lab.get_tokenizer(), 32, 8), LabGenerator(model, 32, 8)


def test_a_lab_model_has_the_same_prompts_and_texts_through_both(lab_generators):
    generator, lab_generator = lab_generators
    messages = call_protocol.make_messages("hard", "low", QUESTION)
    ids = lab_generator.encode_prompt(messages)
    assert generator.encode_prompt(messages) == ids
    assert generator.encode("<response> 7 </response>") == lab.encode("<response> 7 </response>")
    assert generator.decode(ids) == lab_generator.decode(ids)


def test_a_lab_model_writes_the_same_greedy_turns_through_both(lab_generators):
    generator, lab_generator = lab_generators
    contexts = [
        generator.encode_prompt(call_protocol.make_messages("soft", word, item.prompt))
        for item in small_systems.draw_chains(12)
        for word in call_protocol.BUDGET_WORDS
    ]
    turns, expected = (
        each.write_turns(contexts, range(len(contexts)), 0.0) for each in (generator, lab_generator)
    )
    num_equal = sum(one == other for one, other in zip(turns, expected, strict=True))
    assert num_equal >= len(turns) - 1  # but for a tie of two tokens
    assert any(generator.decode(ids).endswith(call_protocol.STOP_STRINGS) for ids in turns)


def test_sampled_turns_of_a_lab_model_have_one_stop_string_at_their_end(lab_generators):
    generator, _ = lab_generators
    contexts = make_contexts(generator)
    for ids in generator.write_turns(contexts, range(8), 1.0):
        text = generator.decode(ids)
        stops = [text.count(stop) for stop in call_protocol.STOP_STRINGS]
        assert 1 <= len(ids) <= 32 and sum(stops) <= 1
        if sum(stops):
            assert text.endswith(call_protocol.STOP_STRINGS)


def test_a_turn_of_the_papers_length_leaves_a_lab_model_room_for_its_own():
    """At `paper` a turn may have 500 tokens, more than the window of a lab model holds."""
    generator = LabGenerator(small_systems.make_toy_model(words=len(lab.get_tokenizer())), 500, 8)
    assert generator.max_turn_tokens == LONGEST_LAB_TURN
