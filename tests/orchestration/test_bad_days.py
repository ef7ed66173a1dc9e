"""Bad days: whatever a model replies no episode is lost and no policy invented; a server that is down ends the run."""

import json

import pytest

from lib.llm.chat_model import Failure, Reply
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import ConfigurationError, InfrastructureError
from lib.llm.failure_policy import FailureWatch
from lib.llm.open_models import ChatModels
from lib.llm.parse_response import CallInfo, Pricing, parse_response
from lib.orchestration import prompted_experiment
from lib.orchestration.variants import Method
from tests.llm.server import completion
from tests.llm.stub_model import StubModel
from tests.orchestration.test_prompted_experiment import SCRIPTED, small, trained

__all__ = ["trained"]

GOOD = '{"reasoning": "it has worked so far", "policy": "SO-d3"}'
CALL = CallInfo(SCRIPTED, "scripted", Pricing(), prompt_bytes=100, max_tokens=1_000)


def read(body) -> Reply:
    """A server's answer as a model's reply."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_response(content, CALL)


ODD = {
    "fences": completion(f"```json\n{GOOD}\n```"),
    "unknown name": completion('{"reasoning": "", "policy": "SO-d9"}'),
    "refusal": completion(
        None, message={"role": "assistant", "content": None, "refusal": "I cannot help with that."}
    ),
    "refusal in words": completion("I am sorry, but I cannot choose."),
    "truncated": completion('{"reasoning": "because the', finish_reason="length"),
    "null": completion(None),
    "empty": completion(""),
}
READABLE = {"fences"}  # the choice is clear, so the reply counts


def play(model: StubModel, kind: str, monkeypatch, tmp_path, trained, **changes):
    """The record of two short episodes in which `model` decides."""
    settings = small(zoo={"seeds": 1}, education={"horizon": 8}, **changes)
    monkeypatch.setattr(
        prompted_experiment, "open_lesson_models", lambda *_: ChatModels({SCRIPTED: model})
    )
    method = Method(f"{kind} odd", kind, SCRIPTED)
    return prompted_experiment.run(settings, "education", [method], tmp_path, trained)


@pytest.mark.parametrize(
    ("odd", "kind"),
    [(odd, "KO") for odd in sorted(ODD)]
    + [(odd, kind) for odd in ("fences", "null") for kind in ("TO", "RO")],
)
def test_an_odd_reply_every_time_loses_no_episode(odd, kind, monkeypatch, tmp_path, trained):
    record = play(StubModel(read(ODD[odd])), kind, monkeypatch, tmp_path, trained)
    assert record["done"].sum() == 2
    if odd in READABLE:
        assert not record["fallback"].any() and set(record["choice"]) == {"SO-d3"}
    else:
        # The declared fallback.
        assert record["fallback"].all() and set(record["choice"]) == {"SO-d2"}
        assert (record["invalid"] >= 1).all() and (record["trouble"] != "").all()


@pytest.mark.parametrize("odd", ["truncated", "refusal", "unknown name"])
def test_a_second_try_is_enough(odd, monkeypatch, tmp_path, trained):
    def answer(request):
        is_correction = len(request.messages) > 2
        return GOOD if is_correction else read(ODD[odd])

    model = StubModel(answer=answer)
    record = play(model, "KO", monkeypatch, tmp_path, trained)
    assert not record["fallback"].any() and set(record["choice"]) == {"SO-d3"}


def test_a_server_that_fails_now_and_then_is_counted_and_is_not_asked_again_at_once(
    monkeypatch, tmp_path, trained
):
    late = Failure("timeout", "late")
    model = StubModel(*[GOOD] * 5, late)
    record = play(model, "KO", monkeypatch, tmp_path, trained)
    failed = record[record["trouble"] == "timeout"]
    assert len(failed) and failed["fallback"].all() and (failed["calls"] == 1).all()
    assert failed["cost_usd"].sum() == 0


class Watched(StubModel):
    """A stub whose failures are counted as an endpoint's are."""

    def __init__(self, *answers) -> None:
        super().__init__(*answers)
        self.watch = FailureWatch("stub")

    async def reply_to(self, request):
        reply = await super().reply_to(request)
        self.watch.add(reply)
        return reply


def test_a_server_that_is_down_ends_the_run_instead_of_playing_fallbacks(
    monkeypatch, tmp_path, trained
):
    with pytest.raises(InfrastructureError, match="5 in a row"):
        play(Watched(Failure("connection", "refused")), "KO", monkeypatch, tmp_path, trained)


def test_a_wrong_key_stops_the_run_instead_of_playing_fallbacks(monkeypatch, tmp_path, trained):
    with pytest.raises(ConfigurationError, match="401"):
        play(StubModel(ConfigurationError("401")), "KO", monkeypatch, tmp_path, trained)


class Broke(StubModel):
    """A model that hits llm.max_usd at one call."""

    calls_left = 0

    async def reply_to(self, request):
        Broke.calls_left -= 1
        if Broke.calls_left == 0:
            raise BudgetExceeded("the run", 1.0, 1.0, 0.1)
        return await super().reply_to(request)


def test_the_hard_stop_keeps_finished_episodes_and_a_rerun_pays_only_for_the_rest(
    monkeypatch, tmp_path, trained
):
    changes = {"zoo": {"seeds": 2}, "education": {"horizon": 8}, "orchestration": {"episodes": 1}}
    settings = small(**changes)
    model = Broke(GOOD)
    monkeypatch.setattr(
        prompted_experiment, "open_lesson_models", lambda *_: ChatModels({SCRIPTED: model})
    )
    method = Method("KO odd", "KO", SCRIPTED)
    Broke.calls_left = 12  # the first job of about eight decisions ends, the second does not
    with pytest.raises(BudgetExceeded) as caught:
        prompted_experiment.run(settings, "education", [method], tmp_path, trained)
    assert "1 jobs" in " ".join(caught.value.__notes__)
    calls_before = len(model.requests)
    record = prompted_experiment.run(settings, "education", [method], tmp_path, trained)
    assert record["done"].sum() == 2
    assert len(model.requests) - calls_before <= 9  # one episode, not two
