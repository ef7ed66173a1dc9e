"""Models are opened by name; those that nobody names need neither key nor weights."""

import asyncio

import pandas as pd
import pytest

from lib.llm.chat_model import ChatRequest, Reply
from lib.llm.errors import ConfigurationError, RecordingMiss
from lib.llm.open_models import export_recording, open_models
from lib.llm.recorded_model import RecordedModel
from lib.llm.scripted_model import ScriptedModel
from tests.llm.server import INNER, KEY_VARIABLE, QUESTION, Answer, Server, completion, settings


def open_in(folder, llm, names, **options):
    return open_models(llm, names, "lesson", folder / "runs", folder / "cassettes", **options)


def test_a_name_that_is_in_no_settings_is_named_with_those_that_are(tmp_path):
    with pytest.raises(ConfigurationError, match=r"'yours'.*\['mine'\]"):
        open_in(tmp_path, settings(), ["yours"])


def test_a_backend_that_nobody_can_open_is_named(tmp_path):
    llm = settings(models={"small": INNER | {"backend": "lab"}})
    with pytest.raises(ConfigurationError, match="small: nothing here opens .* 'lab'"):
        open_in(tmp_path, llm, ["small"])


def test_only_the_models_that_are_named_are_opened(tmp_path, monkeypatch):
    monkeypatch.delenv(KEY_VARIABLE)
    llm = settings(models={"inner": INNER | {"model": "scripted-small"}})
    models = open_in(tmp_path, llm, ["inner"])
    assert list(models) == ["inner"] and not (tmp_path / "runs").exists()
    with pytest.raises(ConfigurationError, match="no model 'mine' here"):
        models["mine"]


def test_a_local_model_is_opened_by_the_function_for_its_backend(tmp_path):
    llm = settings(models={"small": INNER | {"backend": "lab"}})
    local = ScriptedModel("small", llm.models["small"], lambda body: completion("7"))
    models = open_in(tmp_path, llm, ["small"], open_local={"lab": lambda name, about: local})
    assert models["small"] is local


def test_an_endpoint_is_recorded_and_its_recording_exported(tmp_path):
    async def play():
        async with Server(Answer()) as server:
            llm = settings(server.url).model_copy(update={"cassette": "record"})
            async with open_in(tmp_path, llm, ["mine"]) as models:
                reply = await models["mine"].reply_to(ChatRequest(QUESTION))
                counts = models.reply_counts
            return reply, counts, llm

    reply, counts, llm = asyncio.run(play())
    assert reply.text == "SO-d2" and counts["mine"].calls == 1
    export_recording(llm, "lesson", tmp_path / "cassettes")
    assert len((tmp_path / "cassettes/lesson.jsonl").read_text().splitlines()) == 1


def test_where_nothing_was_recorded_nothing_is_exported(tmp_path):
    export_recording(settings(), "lesson", tmp_path / "cassettes")
    assert not (tmp_path / "cassettes").exists()


# Scripted and recorded models -----------------------------------------------------------------------


def test_a_scripted_model_answers_from_the_request_and_is_charged():
    requests = []

    def respond(body):
        requests.append(body)
        return completion("7", 10, 5)

    about = settings(models={"inner": INNER | {"price_in": 1e-3, "price_out": 1e-2}}).models
    model = ScriptedModel("inner", about["inner"], respond)
    (reply,) = model.generate([ChatRequest(QUESTION, seed=9, max_tokens=7)])
    assert (reply.text, reply.backend) == ("7", "scripted")
    assert reply.cost_usd == pytest.approx(0.06)
    assert requests == [{"model": "inner", "messages": QUESTION, "max_tokens": 7, "seed": 9}]


def test_a_request_that_a_script_refuses_is_a_bad_request():
    def respond(body):
        raise ValueError("messages must be text")

    about = settings(models={"inner": INNER}).models["inner"]
    (reply,) = ScriptedModel("inner", about, respond).generate([ChatRequest(QUESTION)])
    assert reply.failure.kind == "bad_request" and "must be text" in reply.failure.detail


def make_outcomes() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "prompt": ["3 + 4 = ?", "3 + 4 = ?", "2 + 2 = ?"],
            "sample": [0, 1, 0],
            "reply": ["7", "8", "4"],
            "cost_usd": [0.1, 0.2, 0.3],
        }
    )


def test_a_recorded_model_gives_the_recorded_reply_of_prompt_and_sample():
    model = RecordedModel.from_table("gpt", make_outcomes())
    messages = [{"role": "user", "content": "3 + 4 = ?"}]
    first, second = model.generate(
        [ChatRequest(messages, sample=sample, seed=99) for sample in (0, 1)]
    )
    assert (first.text, second.text, second.cost_usd) == ("7", "8", 0.2)
    assert isinstance(first, Reply) and first.replayed


def test_what_was_not_recorded_is_named():
    model = RecordedModel.from_table("gpt", make_outcomes())
    with pytest.raises(RecordingMiss, match=r"gpt has no recorded reply, sample 2.*'3 \+ 4 = \?'"):
        model.generate([ChatRequest([{"role": "user", "content": "3 + 4 = ?"}], sample=2)])


def test_two_replies_to_one_prompt_and_sample_are_refused():
    with pytest.raises(ValueError, match="two replies to one prompt and sample"):
        RecordedModel.from_table("gpt", make_outcomes().assign(sample=0))


def test_a_table_without_replies_is_refused_with_what_it_has():
    with pytest.raises(ValueError, match="lacks reply; it has"):
        RecordedModel.from_table("gpt", make_outcomes().drop(columns="reply"))
