"""A model from a Hugging Face folder behind the same API: what it can do it does, the rest it refuses by name."""

import asyncio

import httpx2
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from lib import config as params
from lib.language_models.checkpoints import ModelError
from lib.language_models.serving import server
from lib.language_models.training import smollm_baseline

WORDS = [
    "<unk>",
    "<end>",
    "user",
    "assistant",
    "system",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
]
TEMPLATE = "{% for m in messages %}{{ m.role }} {{ m.content }} {% endfor %}assistant "


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model with random weights, a tokenizer of eleven words and a chat template."""
    place = tmp_path_factory.mktemp("models") / "tiny-chat"
    words = Tokenizer(
        models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>")
    )
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    spoken = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="<end>")
    spoken.chat_template = TEMPLATE
    spoken.save_pretrained(place)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        eos_token_id=1,
        bos_token_id=None,
    )
    LlamaForCausalLM(config).save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def hosted(folder):
    return smollm_baseline.HuggingFaceModel(folder)


def asked(hosted, path: str = "chat/completions", **body) -> httpx2.Response:
    """What the server answers."""
    application = server.app({})
    application.state.answering = hosted
    content = {"model": "tiny-chat", "messages": [{"role": "user", "content": "one two"}]} | body

    async def ask() -> httpx2.Response:
        transport = httpx2.ASGITransport(application)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.post(f"/v1/{path}", json=content)

    return asyncio.run(ask())


def test_a_reply_has_text_usage_and_an_end_and_equal_requests_get_equal_replies(hosted):
    one, again = (asked(hosted, max_tokens=5, temperature=1.0, seed=3).json() for _ in range(2))
    assert one == again
    assert (
        one["usage"]["prompt_tokens"] == 4 and one["usage"]["completion_tokens"] <= 5
    )  # user one two assistant
    assert one["choices"][0]["finish_reason"] in ("length", "stop")
    replies = {
        asked(hosted, max_tokens=8, seed=seed).json()["choices"][0]["message"]["content"]
        for seed in range(6)
    }
    assert len(replies) > 1


def test_a_stream_says_the_same_as_the_whole(hosted):
    whole = asked(hosted, max_tokens=6, temperature=0.0).json()["choices"][0]
    text = asked(hosted, max_tokens=6, temperature=0.0, stream=True).text
    assert text.rstrip().endswith("data: [DONE]") and whole["message"]["content"] in text
    assert f'"finish_reason":"{whole["finish_reason"]}"' in text


def test_a_stop_word_cuts_the_reply(hosted):
    text = asked(hosted, max_tokens=12, temperature=0.0).json()["choices"][0]["message"]["content"]
    word = text.split()[1]
    cut = asked(hosted, max_tokens=12, temperature=0.0, stop=word).json()["choices"][0]
    assert cut["message"]["content"] == text[: text.index(word)] and cut["finish_reason"] == "stop"


@pytest.mark.parametrize(
    "body, status, said",
    [
        ({"model": "other"}, 404, "no model 'other'"),
        ({"n": 2}, 400, "n must be 1"),
        ({"logprobs": True}, 400, "logprobs is not supported"),
        (
            {"messages": [{"role": "user", "content": "one " * 80}]},
            400,
            "no room in a window of 64",
        ),
        ({"nonsense": 1}, 400, "nonsense is not supported"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(hosted, body, status, said):
    answer = asked(hosted, **body)
    assert answer.status_code == status and said in answer.json()["error"]["message"]


def test_its_card_is_on_the_lab_s_scale(hosted):
    settings = params.load("smoke").lab
    found = smollm_baseline.card(hosted, settings)
    assert found["parameters"] == sum(p.numel() for p in hosted.net.parameters())
    assert found["dollars_per_1k_tokens"] == pytest.approx(
        found["flops_per_token"] * settings.dollars_per_teraflop / 1e9
    )
    assert found["measured_tokens_per_second"] > 0


def test_a_folder_that_is_none_and_a_package_that_is_missing_are_named(
    tmp_path, monkeypatch, capsys
):
    with pytest.raises(ModelError, match="no Hugging Face folder"):
        smollm_baseline.HuggingFaceModel(tmp_path)
    assert (
        server.main(["--model", str(tmp_path)]) == 1
        and "no Hugging Face folder" in capsys.readouterr().err
    )
    monkeypatch.setattr(smollm_baseline, "PACKAGE", "no-such-package-here")
    monkeypatch.setattr(smollm_baseline, "FOLDER", tmp_path / "x")
    assert smollm_baseline.main([]) == 1 and "make pretrained" in capsys.readouterr().err
