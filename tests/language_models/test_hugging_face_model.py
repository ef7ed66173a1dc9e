"""A Hugging Face folder as a chat model: batches, plain sampling, ends, stops, tools, templates, streams."""

import asyncio
import json
import shutil
import time

import numpy as np
import pytest
import torch

from lib import config
from lib.language_models import hugging_face_model
from lib.language_models.hugging_face_folder import ModelFolderError
from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.language_models.local_models import open_local
from lib.llm.chat_model import ChatRequest
from tests.language_models.hugging_face_folders import (
    CHATML,
    END,
    NO_SYSTEM_TEMPLATE,
    OTHER_END,
    TOOL_TEMPLATE,
    make_parrot_folder,
    make_random_folder,
    make_tokenizer,
)

ADD = {
    "type": "function",
    "function": {"name": "add", "description": "a + b", "parameters": {"type": "object"}},
}


@pytest.fixture(scope="module")
def random_folder(tmp_path_factory):
    return make_random_folder(tmp_path_factory.mktemp("models") / "random")


@pytest.fixture(scope="module")
def random_model(random_folder):
    return HuggingFaceModel(random_folder, device="cpu", batch_size=8)


def make_request(text: str = "Hello", **settings) -> ChatRequest:
    defaults = {"temperature": 0.0, "max_tokens": 20}
    return ChatRequest([{"role": "user", "content": text}], **{**defaults, **settings})


def make_parrot(folder, chunks, template=CHATML, **options) -> HuggingFaceModel:
    return HuggingFaceModel(make_parrot_folder(folder, chunks, template, **options), device="cpu")


def make_mixed_requests() -> list[ChatRequest]:
    """Prompts, temperatures, seeds and limits that differ."""
    return [
        make_request(
            "x" * (7 * index % 50), temperature=index % 3, seed=index, max_tokens=3 + index
        )
        for index in range(12)
    ]


@pytest.fixture
def batches(monkeypatch):
    """Prompt lengths of every batch that the network is asked for."""
    lengths = []
    sample_batch = hugging_face_model.sample_batch

    def count_and_sample(network, sequences, end_token_ids):
        lengths.append([len(sequence.prompt_ids) for sequence in sequences])
        return sample_batch(network, sequences, end_token_ids)

    monkeypatch.setattr(hugging_face_model, "sample_batch", count_and_sample)
    return lengths


# Batches


def test_a_reply_is_the_same_alone_and_in_a_batch(random_model):
    requests = make_mixed_requests()
    together = random_model.generate(requests)
    alone = [random_model.generate([request])[0] for request in requests]
    assert [reply.text for reply in together] == [reply.text for reply in alone]
    for reply, request in zip(together, requests, strict=True):
        assert reply.finish_reason == "stop" or reply.tokens_out == request.max_tokens
    assert len({reply.tokens_out for reply in together}) > 4


def test_batches_are_full_and_hold_prompts_of_like_lengths(random_model, batches):
    random_model.generate(make_mixed_requests())
    assert [len(batch) for batch in batches] == [8, 4]
    lengths = [length for batch in batches for length in batch]
    assert lengths == sorted(lengths, reverse=True)


def test_calls_that_arrive_side_by_side_share_a_batch(random_model, batches):
    async def ask() -> list[str]:
        calls = [random_model.reply_to(make_request(f"{index}")) for index in range(6)]
        return [reply.text for reply in await asyncio.gather(*calls)]

    texts = asyncio.run(ask())
    assert [len(batch) for batch in batches] == [6]
    assert texts == [
        reply.text for reply in random_model.generate([make_request(f"{i}") for i in range(6)])
    ]


def test_equal_requests_differ_by_seed_and_by_sample_only(random_model):
    requests = [
        make_request(temperature=1.0, seed=seed, sample=sample)
        for seed, sample in [(0, 0), (0, 0), (1, 0), (0, 1)]
    ]
    first, again, other_seed, other_sample = (
        reply.text for reply in random_model.generate(requests)
    )
    assert first == again
    assert len({first, other_seed, other_sample}) == 3


def test_different_questions_do_not_share_their_random_numbers(tmp_path):
    # A model that holds all tokens for equally likely writes its random numbers out.
    model = HuggingFaceModel(make_random_folder(tmp_path / "flat"), device="cpu")
    with torch.no_grad():
        model.net.lm_head.weight.zero_()
    replies = model.generate([make_request(f"{index}", temperature=1.0) for index in range(8)])
    assert len({reply.text for reply in replies}) == 8


# Sampling


def test_settings_of_the_generation_config_change_no_reply(random_folder, tmp_path):
    plain = HuggingFaceModel(random_folder, device="cpu")
    settings = {
        "repetition_penalty": 5.0,
        "top_k": 1,
        "top_p": 0.1,
        "do_sample": True,
        "temperature": 9.0,
    }
    folder = make_random_folder(tmp_path / "penalty", generation_config=settings)
    model = HuggingFaceModel(folder, device="cpu")
    assert model.net.generation_config.repetition_penalty == 5.0

    # The greedy reply is the argmax of plain logits, token by token.
    ids = model.encode_prompt(make_request())
    expected = []
    with torch.inference_mode():
        for _ in range(20):
            logits = model.net(torch.tensor([[*ids, *expected]])).logits[0, -1]
            expected.append(int(logits.argmax()))
            if expected[-1] in model.end_token_ids:
                break
    [greedy] = model.generate([make_request()])
    assert greedy.text == model.tokenizer.decode(expected, skip_special_tokens=True)

    sampled = [
        make_request(temperature=temperature, seed=seed)
        for seed in range(4)
        for temperature in (1.0, 0.6)
    ]
    texts = [reply.text for reply in model.generate(sampled)]
    assert texts == [reply.text for reply in plain.generate(sampled)]
    assert len(set(texts)) > 4


def test_first_tokens_come_as_often_as_the_plain_softmax_says(random_model):
    num_samples, temperature = 400, 2.0
    request = make_request("Hi", temperature=temperature, max_tokens=1)
    requests = [
        make_request("Hi", temperature=temperature, max_tokens=1, sample=i)
        for i in range(num_samples)
    ]
    replies = random_model.generate(requests)

    with torch.inference_mode():
        logits = random_model.net(torch.tensor([random_model.encode_prompt(request)])).logits[0, -1]
    probability, token = (logits.double() / temperature).softmax(0).max(0)
    likeliest = random_model.tokenizer.decode([int(token)])
    frequency = np.mean([reply.text == likeliest for reply in replies])
    assert abs(frequency - probability) < 4 * np.sqrt(probability * (1 - probability) / num_samples)


# Ends


@pytest.mark.parametrize("end", [END, OTHER_END, "stop-here"])
def test_a_reply_stops_at_the_first_of_all_end_tokens(tmp_path, end):
    chunks = ["Hello", "after", "stop-here"]
    tokenizer = make_tokenizer(chunks)
    # <|im_end|> ends turns of the chat template, <|endoftext|> is the tokenizer's end, the third is listed here.
    listed = tokenizer.convert_tokens_to_ids(["stop-here", "after"])
    model = make_parrot(
        tmp_path / "parrot",
        ["Hello", "after", "stop-here"] if end == "stop-here" else ["Hello"],
        end=end if end != "stop-here" else OTHER_END,
        generation_config={"eos_token_id": listed} if end == "stop-here" else None,
    )
    special = model.tokenizer.convert_tokens_to_ids([END, OTHER_END])
    assert model.end_token_ids == {*special, *(listed if end == "stop-here" else [])}

    [reply] = model.generate([make_request()])
    assert (reply.text, reply.finish_reason, reply.tokens_out) == ("Hello", "stop", 2)
    assert reply.usable


def test_an_end_of_turn_that_is_no_special_token_ends_nothing(tmp_path):
    model = make_parrot(
        tmp_path / "parrot", ["<end_of_turn>", "Hello"], CHATML + "{# <end_of_turn> #}"
    )
    assert model.generate([make_request()])[0].text == "<end_of_turn>Hello"


def test_a_stop_string_ends_the_generation_across_tokens_and_is_cut_off(tmp_path):
    model = make_parrot(tmp_path / "parrot", ["One", ". Tw", "o, ", "three", "four"])
    [reply, free] = model.generate([make_request(stop=["Two"]), make_request()])
    assert (reply.text, reply.finish_reason, reply.tokens_out) == ("One. ", "stop", 3)
    assert free.text == "One. Two, threefour"


# What a reply is


def test_a_reply_that_is_cut_off_is_kept_and_fails_as_truncated(tmp_path):
    model = make_parrot(tmp_path / "parrot", ["One", " two"], end=None)
    [reply] = model.generate([make_request(max_tokens=5)])
    assert (reply.text, reply.finish_reason, reply.failure.kind) == (
        "One two" * 2 + "One",
        "length",
        "truncated",
    )


def test_a_reply_of_blanks_is_empty(tmp_path):
    [reply] = make_parrot(tmp_path / "parrot", [" ", "\n\n"]).generate([make_request()])
    assert reply.failure.kind == "empty"


@pytest.mark.parametrize("opens", [False, True])
def test_reasoning_stands_in_the_message_and_is_counted(tmp_path, opens):
    chunks = ["<think>", "\n2 + 2", "</think>", "\n\n", "Four"]
    template = CHATML
    if opens:  # the prompt opens the reasoning already
        chunks, template = chunks[1:], CHATML + "{{ '<think>\n' }}"
    model = make_parrot(tmp_path / "parrot", chunks, template)
    [reply] = model.generate([make_request()])
    assert (reply.text, reply.message["reasoning_content"]) == ("Four", "2 + 2")
    assert (reply.tokens_reasoning, reply.tokens_out) == (
        chunks.index("</think>") + 1,
        len(chunks) + 1,
    )
    assert reply.message["content"] == "Four"

    [reply] = model.generate([make_request(max_tokens=2)])
    assert (reply.text, reply.failure.kind, reply.tokens_reasoning) == ("", "truncated", 2)


def test_prompt_and_limit_that_exceed_the_window_fail_with_the_numbers(random_model):
    prompt_tokens = random_model.count_prompt_tokens(make_request())
    [reply, fits] = random_model.generate(
        [make_request(max_tokens=512), make_request(max_tokens=512 - prompt_tokens)]
    )
    assert reply.failure.kind == "context_too_long"
    assert (
        f"512 tokens; the prompt has {prompt_tokens} and max_tokens is 512" in reply.failure.detail
    )
    assert fits.failure is None or fits.failure.kind == "truncated"


def test_a_request_without_a_limit_may_fill_the_window(tmp_path):
    folder = make_parrot_folder(tmp_path / "parrot", ["One", " two"], end=None)
    model = HuggingFaceModel(folder, device="cpu", max_tokens=1024)
    [reply] = model.generate([make_request("x" * 460, max_tokens=None)])
    assert reply.failure.kind == "truncated" and reply.tokens_in + reply.tokens_out == 512
    short = HuggingFaceModel(folder, device="cpu", max_tokens=5)
    assert short.generate([make_request(max_tokens=None)])[0].tokens_out == 5


def test_costs_and_energy_follow_from_the_tokens(random_folder):
    model = HuggingFaceModel(
        random_folder, "other-name", device="cpu", price_in=2.0, price_out=3.0, kwh_per_token=0.5
    )
    [reply] = model.generate([make_request()])
    assert (reply.model, reply.backend) == ("other-name", "hugging_face")
    assert reply.tokens_in == model.count_prompt_tokens(make_request())
    assert reply.cost_usd == 2 * reply.tokens_in + 3 * reply.tokens_out
    assert reply.kwh == 0.5 * (reply.tokens_in + reply.tokens_out)


def test_a_response_format_is_refused_with_the_remedy(random_model):
    [reply] = random_model.generate([make_request(response_format={"type": "json_object"})])
    assert (
        reply.failure.kind == "bad_request" and "ask for JSON in the prompt" in reply.failure.detail
    )


@pytest.mark.parametrize(
    "settings",
    [{"max_tokens": 0}, {"temperature": -1.0}, {"tools": [{"name": "flat"}]}, {"seed": "one"}],
)
def test_a_request_that_makes_no_sense_is_a_failure_and_the_others_get_replies(
    random_model, settings
):
    wrong, right = random_model.generate([make_request(**settings), make_request()])
    assert wrong.failure.kind == "bad_request" and "\n" not in wrong.failure.detail
    assert right.tokens_out > 0


# Tools

CALL_CHUNKS = [
    "Let me add.",
    "\n<tool_call>",
    "\n{",
    '"name": "add", ',
    '"arguments": ',
    '{"a": 1, "b": "é"}',
    "}\n</tool_call>",
]


def test_a_tool_call_is_read_and_its_message_goes_back_into_the_template_verbatim(tmp_path):
    model = make_parrot(tmp_path / "parrot", CALL_CHUNKS, TOOL_TEMPLATE)
    request = make_request("1 + 1", tools=[ADD])
    [reply] = model.generate([request])
    [call] = reply.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("add", {"a": 1, "b": "é"})
    assert (reply.text, reply.finish_reason, reply.failure) == ("Let me add.", "tool_calls", None)

    messages = [
        *request.messages,
        reply.message,
        {"role": "tool", "tool_call_id": call.id, "content": "2"},
    ]
    prompt = model.encode_prompt(ChatRequest(messages, tools=[ADD]))
    assert "".join(CALL_CHUNKS) + END in model.tokenizer.decode(prompt)
    [second] = model.generate([ChatRequest(messages, tools=[ADD], temperature=0.0)])
    assert second.tool_calls[0].id != call.id


def test_the_same_text_is_no_call_where_no_tools_are_on_offer(tmp_path):
    model = make_parrot(tmp_path / "parrot", CALL_CHUNKS, TOOL_TEMPLATE)
    replies = model.generate([make_request(), make_request(tools=[ADD], tool_choice="none")])
    for reply in replies:
        assert not reply.tool_calls and reply.text == "".join(CALL_CHUNKS)


def test_a_call_that_cannot_be_read_or_is_missing_is_malformed(tmp_path):
    broken = make_parrot(tmp_path / "broken", CALL_CHUNKS[:3], TOOL_TEMPLATE)
    [reply] = broken.generate([make_request(tools=[ADD])])
    assert reply.failure.kind == "malformed" and reply.text == "".join(CALL_CHUNKS[:3])
    talker = make_parrot(tmp_path / "talker", ["Two."], TOOL_TEMPLATE)
    named = {"type": "function", "function": {"name": "add"}}
    requests = [
        make_request(tools=[ADD], tool_choice=choice) for choice in ("auto", "required", named)
    ]
    kinds = [reply.failure and reply.failure.kind for reply in talker.generate(requests)]
    assert kinds == [None, "malformed", "malformed"]


def test_tools_that_the_template_does_not_show_are_refused(random_model):
    [reply] = random_model.generate([make_request(tools=[ADD])])
    assert reply.failure.kind == "bad_request" and "shows no tools" in reply.failure.detail


def test_a_call_of_an_earlier_turn_is_shown_by_templates_that_know_none(random_model):
    function = {"name": "add", "arguments": '{"a": 1}'}
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": function}],
    }
    text = random_model.tokenizer.decode(random_model.encode_prompt(ChatRequest([message])))
    assert '<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>' in text


# Templates


def test_a_system_text_goes_in_front_of_the_user_s_where_the_template_takes_none(tmp_path):
    folder = make_random_folder(tmp_path / "no-system", NO_SYSTEM_TEMPLATE)
    model = HuggingFaceModel(folder, device="cpu")
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    request = ChatRequest(messages, max_tokens=3)
    with pytest.warns(UserWarning, match="takes no system role") as warned:
        replies = model.generate([request, request])
    assert len(warned) == 1
    assert all(reply.tokens_out == 3 for reply in replies)
    text = model.tokenizer.decode(model.encode_prompt(request))
    assert text == "<|im_start|>user\nBe brief.\n\nHello<|im_end|>\n<|im_start|>assistant\n"


def test_a_conversation_that_the_template_refuses_is_a_failure_in_one_line(tmp_path):
    template = CHATML + "{% if messages|length > 1 %}{{ raise_exception('only\none') }}{% endif %}"
    model = HuggingFaceModel(make_random_folder(tmp_path / "picky", template), device="cpu")
    message = {"role": "user", "content": "Hello"}
    image = {"role": "user", "content": [{"type": "image_url", "image_url": {}}]}
    requests = [
        ChatRequest([message, message]),
        ChatRequest([image]),
        ChatRequest([{"role": "user"}], max_tokens=1),
    ]
    replies = model.generate(requests)
    assert [reply.failure and reply.failure.kind for reply in replies] == [
        "bad_request",
        "bad_request",
        "truncated",
    ]
    assert "only one" in replies[0].failure.detail and "image_url" in replies[1].failure.detail


def test_parts_of_a_text_are_joined(random_model):
    parts = [{"type": "text", "text": "Hel"}, {"type": "text", "text": "lo"}]
    request = ChatRequest([{"role": "user", "content": parts}])
    assert random_model.encode_prompt(request) == random_model.encode_prompt(make_request())


# Folders


def test_what_cannot_be_loaded_is_said_in_one_line_with_the_remedy(random_folder, tmp_path):
    with pytest.raises(ModelFolderError, match="no Hugging Face folder"):
        HuggingFaceModel(tmp_path)
    silent = make_random_folder(tmp_path / "silent", template=None)
    with pytest.raises(
        ModelFolderError, match="no chat template; use the instruction-tuned"
    ) as error:
        HuggingFaceModel(silent, device="cpu")
    assert "\n" not in str(error.value)
    with pytest.raises(ModelFolderError, match="cuda:99.*is not on this machine; use"):
        HuggingFaceModel(random_folder, device="cuda:99")
    with pytest.raises(ModelFolderError, match="dtype must be 'auto' or one of float32"):
        HuggingFaceModel(random_folder, device="cpu", dtype="int3")
    with pytest.raises(ValueError, match="batch_size"):
        HuggingFaceModel(random_folder, device="cpu", batch_size=0)


def test_weights_that_may_hold_code_are_not_read(random_folder, tmp_path):
    folder = shutil.copytree(random_folder, tmp_path / "pickled")
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(ModelFolderError, match="safetensors"):
        HuggingFaceModel(folder, device="cpu")


def test_numbers_have_32_bits_on_a_cpu_unless_others_are_asked_for(tmp_path):
    folder = make_parrot_folder(tmp_path / "parrot", ["One", " two"])
    assert HuggingFaceModel(folder, device="cpu").net.dtype == torch.float32
    model = HuggingFaceModel(folder, device="cpu", dtype="bfloat16")
    assert model.net.dtype == torch.bfloat16
    assert model.generate([make_request()])[0].text == "One two"


def test_the_fingerprint_is_that_of_the_weights_wherever_they_lie(
    random_folder, random_model, tmp_path
):
    moved = shutil.copytree(random_folder, tmp_path / "moved")
    (moved / "card.json").write_text('{"parameters": 7}')
    model = HuggingFaceModel(moved, device="cpu")
    assert model.fingerprint == random_model.fingerprint
    assert (model.card, random_model.card) == ({"parameters": 7}, {})
    other = HuggingFaceModel(make_random_folder(tmp_path / "other", seed=1), device="cpu")
    assert other.fingerprint != random_model.fingerprint


# Streams


async def read_stream(model, request):
    """The pieces of a stream and its reply."""
    pieces = [piece async for piece in model.stream(request)]
    return pieces[:-1], pieces[-1]


def test_a_stream_says_token_by_token_what_the_whole_reply_says(random_model):
    num_pieces = 0
    for seed in range(6):
        request = make_request(temperature=seed / 2, seed=seed, max_tokens=40)
        pieces, reply = asyncio.run(read_stream(random_model, request))
        [whole] = random_model.generate([request])
        num_pieces += len(pieces)
        assert "".join(pieces) == reply.text == whole.text
        assert (reply.tokens_out, reply.finish_reason) == (whole.tokens_out, whole.finish_reason)
    assert num_pieces > 30


def test_a_stream_splits_no_character_and_shows_no_stop_string_and_no_call(tmp_path):
    letters = make_parrot(tmp_path / "letters", ["a", "Ã", "©", "S", "T", "x"])  # é has two bytes
    pieces, _ = asyncio.run(read_stream(letters, make_request(stop=["STOP"])))
    assert pieces == ["a", "é", "STx"]
    pieces, reply = asyncio.run(read_stream(letters, make_request(stop=["STx"])))
    assert pieces == ["a", "é"] and reply.text == "aé"

    caller = make_parrot(tmp_path / "caller", CALL_CHUNKS, TOOL_TEMPLATE)
    pieces, reply = asyncio.run(read_stream(caller, make_request(tools=[ADD])))
    assert pieces == ["Let me add."] and reply.tool_calls[0].name == "add"


def test_a_stream_of_a_failure_is_the_failure(random_model):
    pieces, reply = asyncio.run(read_stream(random_model, make_request(max_tokens=9999)))
    assert pieces == [] and reply.failure.kind == "context_too_long"


def test_closing_a_stream_stops_the_generation_soon(tmp_path):
    model = make_parrot(tmp_path / "parrot", ["One", " two"], end=None)
    num_steps = 0

    def count(*_):
        nonlocal num_steps
        num_steps += 1
        time.sleep(0.01)

    model.net.register_forward_pre_hook(count)

    async def read_two_pieces() -> None:
        stream = model.stream(make_request(max_tokens=400))
        assert [await anext(stream), await anext(stream)] == ["One", " two"]
        await stream.aclose()

    asyncio.run(read_two_pieces())
    model._worker.join()
    assert num_steps < 20


def test_whoever_gives_up_stops_its_reply_and_no_other(tmp_path):
    model = make_parrot(tmp_path / "parrot", ["One", " two"], end=None)

    async def ask() -> str:
        gone = asyncio.create_task(model.reply_to(make_request(max_tokens=400)))
        stays = asyncio.create_task(model.reply_to(make_request(max_tokens=50)))
        await asyncio.sleep(0.03)
        gone.cancel()
        return (await stays).text

    assert asyncio.run(ask()) == "One two" * 25


def test_closing_the_model_fails_what_is_under_way_and_it_may_be_asked_again(tmp_path):
    model = make_parrot(tmp_path / "parrot", ["One", " two"], end=None)
    model.net.register_forward_pre_hook(lambda *_: time.sleep(0.01))

    async def ask_and_close():
        task = asyncio.create_task(model.reply_to(make_request(max_tokens=400)))
        await asyncio.sleep(0.05)
        await model.aclose()
        return await task

    reply = asyncio.run(ask_and_close())
    assert reply.failure.kind == "connection"
    assert model.generate([make_request(max_tokens=2)])[0].text == "One two"


def test_an_error_of_the_network_is_a_failure_and_not_an_exception(random_folder):
    model = HuggingFaceModel(random_folder, device="cpu")
    with torch.no_grad():
        model.net.lm_head.weight.fill_(torch.nan)
    [reply] = model.generate([make_request()])
    assert reply.failure.kind == "server_error" and "not finite" in reply.failure.detail


def test_a_request_without_a_temperature_gets_that_of_the_settings(random_folder):
    settings = config.load("smoke").llm.models["scripted-small"]
    changes = {"backend": "hugging_face", "model": str(random_folder), "temperature": 0.0}
    changes |= {"max_tokens": 8}
    model = open_local()["hugging_face"]("mine", settings.model_copy(update=changes))
    seeded = [make_request(temperature=None, max_tokens=8, seed=seed) for seed in (1, 2)]
    greedy = make_request(temperature=0.0, max_tokens=8)
    first, second, expected = model.generate([*seeded, greedy])
    assert first.text == second.text == expected.text
