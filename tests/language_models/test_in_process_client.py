"""Asking a lab model in this process: what the server says, once for equal requests, remembered from then on."""

import asyncio

import pytest

from lib.language_models import checkpoints, in_process_client
from lib.language_models.checkpoints import ModelError
from lib.language_models.in_process_client import Asker
from lib.language_models.reply_cache import Memory
from lib.language_models.serving.chat_completions import Answering, ServedModel
from lib.llm.transport import completion
from tests.language_models import tiny

ASKED = [{"role": "user", "content": "1 + 2 = ?"}]


@pytest.fixture
def ask(models):
    """Ask a model, once for every argument tuple, all at the same time; closes what it opened."""
    opened = []

    def one(*requests, name: str = "lab-nano", kept: Memory | None = None):
        opened.append(Asker(models[name], kept))

        async def together():
            return await asyncio.gather(*(opened[-1].say(*request) for request in requests))

        return asyncio.run(together())

    yield one
    for each in opened:
        each.close()


def test_it_says_what_the_server_says(ask, models):
    (said,) = ask((ASKED, 12, 0.9, 5))

    async def served():
        answering = Answering(models)
        body = {
            "model": "lab-nano",
            "messages": ASKED,
            "max_tokens": 12,
            "temperature": 0.9,
            "seed": 5,
        }
        try:
            return await answering.chat(body).whole()
        finally:
            await answering.aclose()

    reply = asyncio.run(served())
    choice, usage = reply["choices"][0], reply["usage"]
    assert said.text == choice["message"]["content"] and said.cut == (
        choice["finish_reason"] == "length"
    )
    assert (said.tokens_in, said.tokens_out) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert completion("m", said.text, 1, 1)  # as a reply's text is


def test_equal_requests_are_generated_once_and_others_are_not(ask, monkeypatch):
    generated = []
    whole = Asker._generate

    async def counted(self, asked, *request):
        generated.append(asked)
        return await whole(self, asked, *request)

    monkeypatch.setattr(Asker, "_generate", counted)
    said = ask(*[(ASKED, 12, 0.9, seed) for seed in (1, 1, 2, 1)])
    assert len(generated) == 2 and said[0] == said[1] == said[3] != said[2]


def test_what_was_said_is_remembered_by_the_next_and_is_the_same_without(
    ask, tmp_path, monkeypatch
):
    first = Memory(tmp_path / "lab.sqlite")
    (said,) = ask((ASKED, 12, 0.9, 5), kept=first)
    first.close()
    (plain,) = ask((ASKED, 12, 0.9, 5))
    monkeypatch.setattr(Asker, "_generate", None)  # nothing is generated again
    second = Memory(tmp_path / "lab.sqlite")
    assert ask((ASKED, 12, 0.9, 5), kept=second) == [said] == [plain]
    second.close()


def test_a_model_is_never_given_another_models_reply(ask, tmp_path):
    kept = Memory(tmp_path / "lab.sqlite")
    said = [
        ask((ASKED, 12, 0.9, 5), name=name, kept=kept)[0].text for name in ("lab-nano", "lab-mini")
    ]
    assert said[0] != said[1]
    kept.close()


def test_a_call_of_a_tool_ends_the_turn_where_tools_are_on_offer(ask):
    (said,) = ask((ASKED, 40, 0.0, 0, ("calculator",)), name="caller")
    assert said.call == ("calculator", "4 * 8") and said.text.endswith("</call>")
    (plain,) = ask((ASKED, 40, 0.0, 0), name="caller")
    assert plain.call is None


def test_a_question_beyond_the_window_is_a_failure_that_costs_nothing(ask):
    long = [{"role": "user", "content": "1 + " * tiny.WINDOW}]
    (said,) = ask((long, 8, 0.0, 0))
    assert said == in_process_client.Said("", 0, 0, failure="context_too_long")


def test_a_model_without_a_price_is_named(models):
    made = Asker(ServedModel("lab-x", models["lab-nano"].forward))
    with pytest.raises(ModelError, match="lab-x has no card.*make repro"):
        _ = made.price
    made.close()


def test_a_model_that_is_not_there_is_named(tmp_path):
    checkpoints.save(tiny.model(), tmp_path / "lab-a")
    with pytest.raises(ModelError, match=r"no lab model 'lab-b'.*lab-a"):
        in_process_client.asker("lab-b", tmp_path)
