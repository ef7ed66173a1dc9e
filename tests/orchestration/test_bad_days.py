"""Bad days: whatever a model replies no episode is lost and no policy invented; a server that is down ends the run."""

import json

import pytest

from lib.llm.chat_model import Failure, Reply
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import ConfigurationError, InfrastructureError
from lib.llm.failure_policy import FailureWatch
from lib.llm.parse_response import CallInfo, Pricing, parse_response
from lib.orchestration import decision_models, experiment
from lib.policy_zoo.recipes import SINGLE
from tests.llm.server import completion
from tests.llm.stub_model import StubModel
from tests.orchestration.small import SCRIPTED, make_params, trained

__all__ = ["trained"]

GOOD = '{"reasoning": "it has worked so far", "policy": "SO-d3"}'
CALL = CallInfo(SCRIPTED, "scripted", Pricing(), prompt_bytes=100, max_tokens=1_000)


def read(body) -> Reply:
    """A server's answer as a model's reply."""
    return parse_response(json.dumps(body).encode(), CALL)


REFUSAL = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
ODD_REPLIES = {
    "fences": completion(f"```json\n{GOOD}\n```"),
    "unknown name": completion('{"reasoning": "", "policy": "SO-d9"}'),
    "refusal": completion(None, message=REFUSAL),
    "refusal in words": completion("I am sorry, but I cannot choose."),
    "truncated": completion('{"reasoning": "because the', finish_reason="length"),
    "null": completion(None),
    "empty": completion(""),
}
READABLE = {"fences"}  # the choice is clear, so the reply counts


def play(model: StubModel, monkeypatch, folder, zoo, num_seeds: int = 1):
    """Episodes and steps of KO, TO and RO in which `model` decides."""
    params = make_params(zoo={"seeds": num_seeds}, orchestration={"summary_interval": 0})
    model.name = SCRIPTED
    monkeypatch.setattr(decision_models, "open_models", model.open)
    return experiment.run_prompted(params, ["education"], [SCRIPTED], zoo=zoo, runs=folder)


@pytest.mark.parametrize("name", ODD_REPLIES)
def test_an_odd_reply_every_time_loses_no_episode(name, monkeypatch, tmp_path, trained):
    model = StubModel(read(ODD_REPLIES[name]))
    episodes, steps = play(model, monkeypatch, tmp_path, trained)
    assert len(episodes) == 3 * 2 and len(steps) == episodes["length"].sum()
    if name in READABLE:
        assert set(steps["choice"]) == {"SO-d3"} and not episodes["malformed"].any()
        return
    # The declared fallback, after the reply was sent back once.
    assert set(steps["choice"]) == {"SO-d2"}
    assert (episodes["malformed"] == episodes["length"]).all()
    assert (episodes["invalid_replies"] == 2 * episodes["length"]).all()
    assert (steps["failure_kinds"] != "").all() and not episodes["failures"].any()


@pytest.mark.parametrize("name", ["truncated", "refusal", "unknown name"])
def test_a_second_try_is_enough(name, monkeypatch, tmp_path, trained):
    def answer(request):
        is_correction = len(request.messages) > 2
        return GOOD if is_correction else read(ODD_REPLIES[name])

    episodes, steps = play(StubModel(answer=answer), monkeypatch, tmp_path, trained)
    assert set(steps["choice"]) == {"SO-d3"} and not episodes["malformed"].any()
    assert (episodes["invalid_replies"] == episodes["length"]).all()


def test_a_prompt_that_a_filter_stops_is_lost_and_no_choice_of_the_model(
    monkeypatch, tmp_path, trained
):
    stopped = Failure("moderation", "flagged")
    model = StubModel(*[GOOD] * 5, stopped)
    episodes, steps = play(model, monkeypatch, tmp_path, trained)
    lost = steps[steps["failure"] == "lost"]
    assert 0 < len(lost) == episodes["failures"].sum() and not episodes["malformed"].any()
    assert set(lost["choice"]) == {"SO-d2"}
    assert (lost["calls"] == 1).all()  # not asked again


class WatchedStub(StubModel):
    """A stub whose failures are counted as an endpoint's are."""

    def __init__(self, *answers) -> None:
        super().__init__(*answers)
        self.watch = FailureWatch("stub")

    async def reply_to(self, request):
        reply = await super().reply_to(request)
        self.watch.add(reply)
        return reply


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Failure("connection", "refused"), InfrastructureError),
        (ConfigurationError("401"), ConfigurationError),
    ],
)
def test_a_server_that_is_down_or_a_wrong_key_ends_the_run_instead_of_playing_fallbacks(
    answer, error, monkeypatch, tmp_path, trained
):
    with pytest.raises(error):
        play(WatchedStub(answer), monkeypatch, tmp_path, trained)
    assert not list(tmp_path.rglob("done.json"))


class LimitedStub(StubModel):
    """A model that hits llm.max_usd at one call."""

    calls_left = 0

    async def reply_to(self, request):
        self.calls_left -= 1
        if self.calls_left == 0:
            raise BudgetExceeded("the run", 1.0, 1.0, 0.1)
        return await super().reply_to(request)


def test_the_hard_stop_keeps_finished_jobs_and_a_rerun_pays_only_for_the_rest(
    monkeypatch, tmp_path, trained
):
    model = LimitedStub(GOOD)
    _, steps = play(model, monkeypatch, tmp_path / "whole", trained, num_seeds=2)
    num_calls = len(model.requests)
    calls_of_seed = steps.groupby("seed")["calls"].sum()
    assert num_calls == calls_of_seed.sum()

    model.calls_left = int(calls_of_seed[0]) + 3  # the first job ends, the second does not
    with pytest.raises(BudgetExceeded) as caught:
        play(model, monkeypatch, tmp_path / "cut", trained, num_seeds=2)
    assert "1 of 2 jobs" in " ".join(caught.value.__notes__)
    num_calls = len(model.requests)
    episodes, _ = play(model, monkeypatch, tmp_path / "cut", trained, num_seeds=2)
    assert len(episodes) == 2 * 3 * 2
    assert len(model.requests) - num_calls == calls_of_seed[1]


def test_no_reply_can_name_a_policy_that_is_not_on_the_menu(monkeypatch, tmp_path, trained):
    names = iter(["SO-d1", "MO-S", "so-d2", "SO-d33", "0", "SO-d3\n"] * 10_000)
    model = StubModel(answer=lambda request: json.dumps({"reasoning": "", "policy": next(names)}))
    _, steps = play(model, monkeypatch, tmp_path, trained)
    assert set(steps["choice"]) <= set(SINGLE)
