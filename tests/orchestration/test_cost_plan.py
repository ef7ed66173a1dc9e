"""What endpoints may cost: plans are bounds of calls and tokens, and stand on the terminal first."""

import json

from lib.llm.token_counts import estimate_tokens
from lib.orchestration import cost_plan, decision_models, experiment
from lib.orchestration.jobs import make_jobs
from tests.llm.stub_model import StubModel
from tests.orchestration import zoo
from tests.orchestration.small import ENDPOINT, SCRIPTED, make_params, play_job, trained

__all__ = ["trained"]


def answer_at_length(request) -> str:
    """The most expensive way to decide: an unusable reply, then a call for one policy that was not tried."""
    is_correction = len(request.messages) > 2
    if not is_correction:
        return "I do not know."
    fields = request.response_format["json_schema"]["schema"]["properties"]
    if "call" not in fields:
        return '{"reasoning": "x", "policy": "SO-d1"}'
    call = fields["call"]
    name = call["items"]["enum"][0] if "items" in call else call["enum"][0]
    return json.dumps({"reasoning": "x", "call": [name] if "items" in call else name})


def check_plan(planned, requests) -> None:
    """Plans are bounds of calls and of tokens, and no wild ones."""
    assert len(requests) <= planned.calls <= 2 * len(requests)
    sizes = [sum(len(m["content"]) for m in request.messages) for request in requests]
    assert sum(map(estimate_tokens, sizes)) <= planned.tokens_in
    first_prompts = [
        size for size, request in zip(sizes, requests, strict=True) if len(request.messages) <= 2
    ]
    assert estimate_tokens(max(first_prompts)) <= cost_plan.PROMPT_TOKENS


def test_calls_of_an_endpoint_are_planned_at_their_most(trained, tmp_path, monkeypatch):
    params = make_params(llm={"models": {SCRIPTED: ENDPOINT}})
    worlds = [("education", "paper"), ("education", "varied")]
    (planned,) = cost_plan.plan_contest_calls(params, worlds)
    assert cost_plan.plan_contest_calls(make_params(), worlds) == []

    stub = StubModel(name=SCRIPTED, answer=answer_at_length)
    monkeypatch.setattr(decision_models, "open_models", stub.open)
    for domain, world in worlds:
        for job in make_jobs(params, domain, world, trained):
            play_job(job, params, tmp_path / job.key, trained)
    check_plan(planned, stub.requests)


def test_calls_of_prompted_models_are_planned_at_their_most(trained, tmp_path, monkeypatch):
    params = make_params(llm={"models": {SCRIPTED: ENDPOINT}})
    variants = ((), ("mem_s",))
    (planned,) = cost_plan.plan_prompted_calls(params, zoo.DOMAINS, [SCRIPTED], len(variants))
    assert cost_plan.plan_prompted_calls(make_params(), zoo.DOMAINS, [SCRIPTED]) == []

    stub = StubModel(name=SCRIPTED, answer=answer_at_length)
    monkeypatch.setattr(decision_models, "open_models", stub.open)
    experiment.run_prompted(
        params, zoo.DOMAINS, [SCRIPTED], zoo=trained, runs=tmp_path, without=variants
    )
    check_plan(planned, stub.requests)


def test_costs_stand_on_the_terminal_before_the_first_call_to_an_endpoint(
    trained, tmp_path, monkeypatch, capsys
):
    params = make_params(llm={"models": {SCRIPTED: ENDPOINT}})
    lines = []

    def answer(request):
        lines.append(capsys.readouterr().err)
        return '{"reasoning": "x", "policy": "SO-d2"}'

    stub = StubModel(name=SCRIPTED, answer=answer)
    monkeypatch.setattr(decision_models, "open_models", stub.open)
    experiment.run_prompted(params, ["education"], [SCRIPTED], zoo=trained, runs=tmp_path)
    assert "deciding with prompts: At most" in lines[0] and "to endpoints" in lines[0]
    assert "At most" not in "".join(lines[1:])
    experiment.run_prompted(params, ["education"], [SCRIPTED], zoo=trained, runs=tmp_path)
    assert capsys.readouterr().err == ""
