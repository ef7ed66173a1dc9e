"""Prompted models: one question per episode, replies that can and cannot be used, money, memory, whole episodes."""

import asyncio
import json
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest

from lib.experiment import artifacts
from lib.llm.chat_model import Failure, Reply
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import ConfigurationError, InfrastructureError
from lib.llm.open_models import ChatModels
from lib.llm.scripted import STRENGTHS
from lib.orchestration import prompts
from lib.orchestration.contexts import Budget
from lib.orchestration.decision_model import LOST, UNFUNDED, UNUSABLE, DecisionUsage
from lib.orchestration.prompted_model import (
    ATTEMPTS,
    SHORTEST_REPLY,
    PromptedModel,
    count_affordable_tokens,
    make_response_format,
)
from lib.orchestration.reply_parser import SUMMARY_WORDS, read_summary
from lib.policy_zoo.recipes import SINGLE
from tests.llm.stub_model import StubModel, contents
from tests.orchestration.contests import (
    DOMAINS,
    SYSTEMS,
    make_context,
    make_episode_set,
    make_options,
    make_result,
    open_scripted,
    open_stub,
    replace_in,
)

GOOD = '{"reasoning": "gaps are open", "policy": "SO-d2"}'


def decide(context, *answers, **settings):
    """The decision of a stub that gives these answers in turn, and the stub."""
    stub = StubModel(*answers)
    (decision,) = open_stub(stub, **settings).decide([context])
    return decision, stub


def charge(text: str, tokens_in: int = 100, tokens_out: int = 20, cost_usd: float = 0.01) -> Reply:
    """A reply that costs something."""
    amounts = {"tokens_in": tokens_in, "tokens_out": tokens_out, "cost_usd": cost_usd}
    return Reply(text, "stub", "endpoint", kwh=0.5, **amounts)


# What is a decision ---------------------------------------------------------------------------------


def test_a_choice_is_certain_and_its_price_is_counted():
    decision, stub = decide(make_context(), charge(GOOD))
    assert decision.probabilities.tolist() == [0, 1, 0] and decision.calls == ()
    assert (decision.reasoning, decision.failure) == ("gaps are open", "")
    assert decision.usage == DecisionUsage(1, 100, 20, 0.01, 0.5)
    assert stub.requests[0].messages == prompts.assemble(prompts.render(make_context()))
    assert stub.requests[0].caller == "KO stub"


@pytest.mark.parametrize(
    ("system", "call", "calls"),
    [
        ("TO", '"SO-d3"', ("SO-d3",)),
        ("RO", '["SO-d3", "SO-d2"]', ("SO-d3", "SO-d2")),
        ("RO", '["SO-d2"]', ("SO-d2",)),
    ],
)
def test_a_call_asks_for_trials_and_decides_nothing(system, call, calls):
    reply = f'{{"reasoning": "unsure", "call": {call}}}'
    decision, _ = decide(make_context(system=system), reply)
    assert decision.calls == calls and decision.probabilities is None and decision.failure == ""


REFUSED_CALLS = {
    "KO calls nobody": (make_context, {"system": "KO"}, '"SO-d2"', "must_decide"),
    "a policy that was tried": (make_context, {"system": "TO"}, '"SO-d1"', "already_tried"),
    "one of them was tried": (
        make_context,
        {"system": "RO"},
        '["SO-d2", "SO-d1"]',
        "already_tried",
    ),
    "one policy twice": (make_context, {"system": "RO"}, '["SO-d2", "SO-d2"]', "already_tried"),
    "two at once in TO": (make_context, {"system": "TO"}, '["SO-d2", "SO-d3"]', "wrong_fields"),
    "no call is left": (make_context, {"system": "TO", "calls_left": 0}, '"SO-d2"', "must_decide"),
    "more than are left": (
        make_context,
        {"system": "RO", "calls_left": 1},
        '["SO-d2", "SO-d3"]',
        "wrong_fields",
    ),
    "nobody of that name": (make_context, {"system": "TO"}, '"SO-d9"', "unknown_policy"),
}


@pytest.mark.parametrize(
    ("make", "changes", "call", "kind"), REFUSED_CALLS.values(), ids=REFUSED_CALLS
)
def test_a_call_that_may_not_be_made_is_sent_back_once(make, changes, call, kind):
    reply = f'{{"reasoning": "unsure", "call": {call}}}'
    decision, stub = decide(make(**changes), reply, GOOD)
    assert decision.usage.failure_kinds == [kind] and decision.usage.invalid_replies == 1
    assert decision.probabilities.tolist() == [0, 1, 0] and len(stub.requests) == 2
    decision, stub = decide(make(**changes), reply)
    assert decision.failure == UNUSABLE and decision.probabilities is None and decision.calls == ()
    assert len(stub.requests) == ATTEMPTS


# Replies that cannot be used --------------------------------------------------------------------------

USABLE = {
    "fences": (f"```json\n{GOOD}\n```", 0),
    "thoughts": (f"<think>SO-d1? no</think>{GOOD}", 0),
    "prose around": (f"I would say {GOOD}. Fine?", 1),
    "a trailing comma": (GOOD[:-1] + ",}", 1),
}
UNUSABLE_REPLIES = {
    "prose": ("I am sorry, but I cannot choose.", "not_json"),
    "cut off": (GOOD[:-5], "not_json"),
    "cut off at the limit": (Failure("truncated"), "truncated"),
    "refused": (Failure("refusal"), "refusal"),
    "empty": (Failure("empty"), "empty"),
    "too long": (GOOD + " " * 30_000, "too_long"),
    "two objects": (GOOD + GOOD, "not_one_object"),
    "unknown name": ('{"policy": "SO-d4"}', "unknown_policy"),
    "name in another case": ('{"policy": "so-d2"}', "unknown_policy"),
}


@pytest.mark.parametrize(("reply", "num_repaired"), USABLE.values(), ids=USABLE)
def test_a_clear_choice_counts_however_it_is_wrapped(reply, num_repaired):
    decision, stub = decide(make_context(), reply)
    assert decision.probabilities.argmax() == 1 and len(stub.requests) == 1
    assert decision.usage.repaired_replies == num_repaired
    assert decision.usage.invalid_replies == 0


@pytest.mark.parametrize(("reply", "kind"), UNUSABLE_REPLIES.values(), ids=UNUSABLE_REPLIES)
def test_an_unusable_reply_is_sent_back_once_and_counted(reply, kind):
    decision, stub = decide(make_context(), reply, charge(GOOD))
    assert decision.probabilities.argmax() == 1 and decision.failure == ""
    assert decision.usage.failure_kinds == [kind] and decision.usage.calls == 2

    first, second = stub.requests
    assert second.messages[:2] == first.messages
    echo, correction = second.messages[2:]
    assert (echo["role"], correction["role"]) == ("assistant", "user")
    assert len(echo["content"]) <= prompts.LONGEST_ECHO
    assert (
        "cannot be used" in correction["content"] and "SO-d1, SO-d2, SO-d3" in correction["content"]
    )
    assert first.seed != second.seed

    decision, stub = decide(make_context(), reply)
    assert decision.failure == UNUSABLE and decision.probabilities is None
    assert decision.usage.failure_kinds == [kind, kind] and decision.usage.invalid_replies == 2
    assert len(stub.requests) == 2


def test_a_filter_loses_one_decision_and_no_other_and_is_not_asked_again():
    contexts = [replace_in(make_context(), step=step) for step in range(1, 6)]

    def answer(request):
        is_third = "for step 3 of" in request.messages[-1]["content"]
        return Failure("moderation", "filtered") if is_third else GOOD

    stub = StubModel(answer=answer)
    decisions = open_stub(stub).decide(contexts)
    assert [decision.failure for decision in decisions] == ["", "", LOST, "", ""]
    assert len(stub.requests) == 5
    lost = decisions[2].usage
    assert (lost.calls, lost.invalid_replies, lost.failure_kinds) == (1, 0, ["moderation"])


@pytest.mark.parametrize("kind", ["timeout", "connection", "rate_limit", "server_error"])
def test_a_reply_that_a_later_run_could_get_ends_this_one(kind):
    with pytest.raises(InfrastructureError, match=kind):
        decide(make_context(), Failure(kind, "late"))
    model = open_stub(StubModel(Failure(kind, "late")), summary_interval=4)
    with pytest.raises(InfrastructureError, match=kind):
        model.summarize([make_context()])


@pytest.mark.parametrize(
    "error", [ConfigurationError("401"), BudgetExceeded("the run", 1.0, 1.0, 0.1)]
)
def test_a_wrong_key_and_the_spending_limit_end_the_run(error):
    with pytest.raises(type(error)):
        decide(make_context(), error)


# Asking ---------------------------------------------------------------------------------------------


class SlowModel(StubModel):
    """Counts the calls under way, and how often it was opened."""

    def __init__(self, *answers, **settings) -> None:
        super().__init__(*answers, **settings)
        self.under_way = self.most_under_way = self.num_opened = 0

    async def reply_to(self, request):
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await asyncio.sleep(0.01)
        reply = await super().reply_to(request)
        self.under_way -= 1
        return reply

    def open(self) -> ChatModels:
        self.num_opened += 1
        return ChatModels({self.name: self})


def test_all_episodes_are_asked_about_at_once_by_a_model_that_is_opened_once():
    contexts = [replace_in(make_context(), stream=stream) for stream in range(20)]
    slow = SlowModel(GOOD)
    model = PromptedModel("stub", "endpoint", slow.open)
    decisions = model.decide(contexts)
    assert len(decisions) == len(slow.requests) == 20
    # The first one, alone, says whether the server takes a schema.
    assert slow.most_under_way == 19 and (slow.num_opened, slow.num_closed) == (1, 1)
    model.decide(contexts)
    assert slow.most_under_way == 20
    assert model.decide([]) == []


def test_every_episode_gets_the_decision_that_is_its_own():
    def answer(request):
        step = int(re.search(r"for step (\d+) of", request.messages[-1]["content"])[1])
        return json.dumps({"policy": SINGLE[step % 3]})

    contexts = [replace_in(make_context(), step=step) for step in (1, 2, 3, 7, 8, 30)]
    decisions = open_stub(StubModel(answer=answer)).decide(contexts)
    chosen = [int(decision.probabilities.argmax()) for decision in decisions]
    assert chosen == [1, 2, 0, 1, 2, 0]


def test_a_schema_allows_what_the_parser_allows_and_nothing_else():
    (ko, to, ro, last) = (
        make_response_format(context)["json_schema"]
        for context in (
            make_context(system="KO"),
            make_context(system="TO"),
            make_context(system="RO"),
            make_context(system="RO", calls_left=0),
        )
    )
    for schema in (ko, to, ro, last):
        shape = schema["schema"]
        assert schema["strict"] and not shape["additionalProperties"]
        assert (
            list(shape["properties"]) == shape["required"] and shape["required"][0] == "reasoning"
        )
    for schema in (ko, last):
        assert schema["schema"]["properties"]["policy"]["enum"] == list(SINGLE)
        assert "call" not in schema["schema"]["properties"]
    # SO-d1 was tried.
    assert to["schema"]["properties"]["call"]["enum"] == ["SO-d2", "SO-d3", None]
    assert ro["schema"]["properties"]["call"]["items"]["enum"] == ["SO-d2", "SO-d3"]
    assert to["schema"]["properties"]["policy"]["enum"] == [*SINGLE, None]

    both = '{"reasoning": "x", "call": null, "policy": "SO-d3"}'
    decision, _ = decide(make_context(system="TO"), both)
    assert decision.probabilities.argmax() == 2


@pytest.mark.parametrize(
    "detail", ["response_format is not supported", "unknown field json_schema"]
)
def test_a_server_that_takes_no_schema_is_asked_for_free_json_from_then_on(detail):
    def answer(request):
        return Failure("bad_request", detail) if request.response_format else charge(GOOD)

    stub = StubModel(answer=answer)
    model = open_stub(stub)
    contexts = [replace_in(make_context(), stream=stream) for stream in range(5)]
    decisions = model.decide(contexts) + model.decide(contexts)
    assert all(decision.probabilities is not None for decision in decisions)
    assert sum(request.response_format is not None for request in stub.requests) == 1
    assert len(stub.requests) == 11
    assert decisions[0].usage.calls == 2 and decisions[0].usage.invalid_replies == 0


def test_another_refused_request_is_no_matter_of_formats():
    with pytest.raises(InfrastructureError, match="bad_request"):
        decide(make_context(), Failure("bad_request", "unknown model"))


def test_seeds_belong_to_the_episode_the_step_the_calls_and_the_attempt():
    context = make_context(system="TO")
    variants = [
        context,
        replace(context, stream=context.stream + 1),
        replace_in(context, step=6),
        replace(context, tool_results=(make_result("education", "SO-d1", "TO"),) * 2),
        make_context(system="RO"),
    ]

    def list_seeds(sample: int = 0) -> list[int]:
        stub = StubModel("no", GOOD)
        for variant in variants:
            open_stub(stub, sample=sample).decide([variant])
        assert {request.sample for request in stub.requests} == {sample}
        return [request.seed for request in stub.requests]

    assert list_seeds() == list_seeds()
    assert len(set(list_seeds() + list_seeds(sample=1))) == 2 * 2 * len(variants)
    assert all(0 <= seed < 2**31 for seed in list_seeds())


def test_prompts_and_replies_are_kept_only_on_demand():
    context = make_context(system="TO")
    decision, _ = decide(context, "no", GOOD, keep_exchanges=True)
    first, second = decision.exchanges
    assert (first.reply, second.reply) == ("no", GOOD)
    assert first.outcome.startswith("cannot be used: ") and second.outcome == "picked SO-d2"
    assert list(second.parts) == prompts.render(context)
    decision, _ = decide(context, '{"call": "SO-d2"}', keep_exchanges=True)
    assert decision.exchanges[0].outcome == "tries SO-d2"
    assert decide(context, GOOD)[0].exchanges == []


# Budgets --------------------------------------------------------------------------------------------


class PricedModel(StubModel):
    """A stub with prices: a dollar per thousand tokens read, two per thousand written."""

    price_in = 0.001
    price_out = 0.002


def test_without_money_for_prompt_and_reply_nothing_is_asked():
    context = make_context(budget=Budget(10.0, 0.5, 0.4))
    stub = PricedModel(GOOD)
    (decision,) = open_stub(stub).decide([context])
    assert (
        decision.failure == UNFUNDED and stub.requests == [] and decision.usage == DecisionUsage()
    )


def test_a_reply_is_no_longer_than_what_the_budget_pays_for():
    messages = [{"role": "user", "content": "x" * 1_000}]
    model = PricedModel(GOOD)
    prompt = 0.5  # dollars: at most 500 tokens
    assert count_affordable_tokens(model, messages, prompt + 0.4) == 200
    assert count_affordable_tokens(model, messages, prompt + 100.0) == model.max_tokens
    cheapest = prompt + SHORTEST_REPLY * model.price_out
    assert count_affordable_tokens(model, messages, cheapest + 1e-9) == SHORTEST_REPLY
    assert count_affordable_tokens(model, messages, cheapest - 1e-9) == 0
    assert count_affordable_tokens(model, messages, 0.0) == 0
    assert count_affordable_tokens(StubModel(GOOD), messages, 0.0) == StubModel.max_tokens

    context = make_context(budget=Budget(10.0, 4.0, 0.4))
    stub = PricedModel(charge(GOOD))
    open_stub(stub).decide([context])
    limit = stub.requests[0].max_tokens
    characters = sum(len(message["content"]) for message in stub.requests[0].messages)
    assert SHORTEST_REPLY <= limit < stub.max_tokens
    assert characters / 2 * stub.price_in + limit * stub.price_out <= 4.0
    stub = PricedModel(charge(GOOD))
    open_stub(stub).decide([make_context()])
    assert stub.requests[0].max_tokens is None


def test_a_correction_is_paid_from_what_the_first_reply_left():
    context = make_context(budget=Budget(10.0, 8.0, 0.4))
    stub = PricedModel(charge("no", cost_usd=7.0))
    (decision,) = open_stub(stub).decide([context])
    assert decision.failure == UNFUNDED and len(stub.requests) == 1
    assert decision.usage.cost_usd == 7.0 and decision.usage.failure_kinds == ["not_json"]


@pytest.mark.parametrize("model", STRENGTHS)
def test_a_budget_runs_out_in_the_middle_of_an_episode_and_is_never_passed(model, tmp_path):
    episode_set = make_episode_set("education", 3)
    free = episode_set.play(open_scripted(model, tmp_path), make_options("education", "KO"))
    budget = free.episodes["cost_usd"].min() / 2
    options = make_options("education", "KO", budget_usd=budget)
    played = episode_set.play(open_scripted(model, tmp_path), options)
    assert (played.episodes["cost_usd"] <= budget).all()
    assert (played.episodes["cost_usd"] > 0.5 * budget).all()
    for _, steps in played.steps.groupby("episode"):
        unfunded = (steps["failure"] == UNFUNDED).to_numpy()
        first = int(unfunded.argmax())
        assert first > 0 and unfunded[first:].all()  # and no money comes back
        assert steps["choice"].iloc[first - 1 :].nunique() == 1  # the last policy goes on
        assert (steps["calls"].iloc[first + 1 :] == 0).all()
    shown = [decision.exchanges[0].parts for decision in played.exchanges[0] if decision.exchanges]
    budget_lines = [re.search(r"Budget: .*", str(sections))[0] for sections in shown]
    assert len(set(budget_lines)) == len(budget_lines)


# Long-term memory -----------------------------------------------------------------------------------


def summarize(context, *answers):
    stub = StubModel(*answers)
    ((summary, usage),) = open_stub(stub, summary_interval=4).summarize([context])
    return summary, usage, stub


def test_a_summary_is_the_reply_and_its_price_is_counted():
    context = make_context(summary="old")
    summary, usage, stub = summarize(context, charge("SO-d1 works.\nSO-d3 does not."))
    assert summary == "SO-d1 works.\nSO-d3 does not." and usage == DecisionUsage(
        1, 100, 20, 0.01, 0.5
    )
    assert stub.requests[0].messages == prompts.summary_messages(context)
    assert stub.requests[0].response_format is None


@pytest.mark.parametrize(
    ("answer", "num_invalid"),
    [
        (Failure("truncated"), 1),
        (Failure("refusal"), 1),
        (Failure("moderation"), 0),
        ("<think>hm</think>", 0),
    ],
)
def test_without_a_usable_reply_the_old_summary_stays(answer, num_invalid):
    summary, usage, _ = summarize(make_context(summary="old"), answer)
    assert summary == "old" and (usage.calls, usage.invalid_replies) == (1, num_invalid)


def test_a_summary_that_cannot_be_paid_is_not_asked_for():
    context = make_context(summary="old", budget=Budget(1.0, 0.01, 0.1))
    stub = PricedModel("new")
    ((summary, usage),) = open_stub(stub, summary_interval=4).summarize([context])
    assert (summary, usage, stub.requests) == ("old", DecisionUsage(), [])


def test_a_summary_is_cut_after_its_last_word_and_holds_no_thoughts():
    words = [f"word{number}" for number in range(400)]
    summary = read_summary("<think>let me see</think>\n" + "\n".join(words))
    assert summary.split() == words[:SUMMARY_WORDS] and summary.count("\n") == SUMMARY_WORDS - 1
    assert read_summary("  short\n") == "short" and read_summary(" ") == ""
    assert read_summary("a\ud800b").encode() == b"a?b"


def test_the_summary_is_renewed_every_few_steps_and_shown_from_then_on(tmp_path):
    episode_set = make_episode_set("education", 1)
    model = open_scripted("scripted-large", tmp_path)
    played = episode_set.play(model, make_options("education", "KO"))
    shown = [
        next(s.text for s in decision.exchanges[0].parts if s.component == "mem_l")
        for decision in played.exchanges[0]
    ]
    renewed = [step for step in range(1, len(shown)) if shown[step] != shown[step - 1]]
    assert len(shown) > 8 and renewed == list(range(4, len(shown), 4))
    num_decision_calls = sum(decision.usage.calls for decision in played.exchanges[0])
    assert played.episodes["calls"].sum() == num_decision_calls + len(renewed)

    without = make_options("education", "KO", without=("mem_l",))
    played = episode_set.play(open_scripted("scripted-large", tmp_path), without)
    assert played.episodes["calls"].sum() == played.steps["calls"].sum()


# Whole episodes -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plays(tmp_path_factory):
    """Episodes of a scripted model, by domain and system."""
    folder = tmp_path_factory.mktemp("scripted")
    return {
        (domain, system): make_episode_set(domain).play(
            open_scripted("scripted-large", folder), make_options(domain, system)
        )
        for domain, system in product(DOMAINS, SYSTEMS)
    }


CASES = list(product(DOMAINS, SYSTEMS))


@pytest.mark.parametrize(("domain", "system"), CASES)
def test_a_scripted_model_plays_episodes_to_their_end(domain, system, plays):
    played = plays[domain, system]
    episode_set = make_episode_set(domain)
    assert len(played.episodes) == 2 and set(played.steps["choice"]) <= set(SINGLE)
    ends = played.steps.groupby("episode")["step"].max() + 1
    assert ends.tolist() == played.episodes["length"].tolist()
    assert (played.episodes["length"] <= episode_set.describer.horizon).all()
    assert (played.steps["decided"] == 1).all() and (played.steps["calls"] >= 1).all()
    assert (played.steps["reasoning"] != "").mean() > 0.9
    assert (played.episodes["cost_usd"] > 0).all() and (played.episodes["kwh"] > 0).all()


@pytest.mark.parametrize(("domain", "system"), CASES)
def test_equal_runs_are_equal(domain, system, plays, tmp_path):
    model = open_scripted("scripted-large", tmp_path)
    again = make_episode_set(domain).play(model, make_options(domain, system))
    pd.testing.assert_frame_equal(again.steps, plays[domain, system].steps)
    pd.testing.assert_frame_equal(again.episodes, plays[domain, system].episodes)
    assert artifacts.sha256_json(str(again.exchanges)) == artifacts.sha256_json(
        str(plays[domain, system].exchanges)
    )


@pytest.mark.parametrize(("domain", "system"), CASES)
def test_a_prompt_shows_the_results_of_the_calls_that_were_made_and_of_no_others(
    domain, system, plays
):
    num_calls = 0
    for decisions in plays[domain, system].exchanges.values():
        for decision in decisions:
            asked_for: list[str] = []
            for exchange in decision.exchanges:
                prompt = "\n".join(section.text for section in exchange.parts)
                shown = re.findall(r"^- (SO-d\d): .*\(mean of 4 copies\)$", prompt, re.MULTILINE)
                assert shown == asked_for
                if exchange.outcome.startswith("tries "):
                    new = exchange.outcome.removeprefix("tries ").split(", ")
                    assert not set(new) & set(asked_for) and system != "KO"
                    assert len(new) == 1 or system == "RO"
                    asked_for += new
            assert list(decision.calls) == asked_for
            num_calls += len(asked_for)
    tried = plays[domain, system].steps["tried"]
    assert num_calls == sum(len(names.split(";")) for names in tried if names)
    assert (num_calls > 0) == (system != "KO")


def test_ro_shows_rollouts_and_to_single_steps(plays):
    for system, pattern in (("TO", r": did \w+; "), ("RO", r": 3 steps: ")):
        decisions = plays["education", system].exchanges[0]
        last_prompts = [
            "\n".join(section.text for section in decision.exchanges[-1].parts)
            for decision in decisions[:3]
        ]
        assert all(re.search(pattern, prompt) for prompt in last_prompts)


def test_a_model_that_never_replies_sensibly_loses_no_episode_and_picks_nobody():
    episode_set = make_episode_set("education")
    for system in SYSTEMS:
        stub = StubModel("I would rather not.")
        played = episode_set.play(
            open_stub(stub), make_options("education", system, fallback="SO-d3")
        )
        assert (played.steps["failure"] == UNUSABLE).all()
        assert set(played.steps["choice"]) == {"SO-d3"}
        assert played.episodes["malformed"].tolist() == played.episodes["length"].tolist()
        assert played.episodes["invalid_replies"].sum() == 2 * played.episodes["length"].sum()


def test_a_policy_that_was_tried_cannot_be_tried_again_in_the_same_step():
    # SO-d1 again and again: the first call is made, the second is refused twice.
    stub = StubModel('{"reasoning": "again", "call": "SO-d1"}')
    played = make_episode_set("education").play(open_stub(stub), make_options("education", "TO"))
    assert set(played.steps["tried"]) == {"SO-d1"}
    assert (played.steps["failure"] == UNUSABLE).all()
    assert (played.steps["failure_kinds"] == "already_tried;already_tried").all()
    assert (played.steps["calls"] == 3).all()


def test_what_the_server_lost_is_not_counted_against_the_model():
    def answer(request):
        text = request.messages[1]["content"]
        return Failure("moderation") if "for step 2 of" in text else GOOD

    played = make_episode_set("education").play(
        open_stub(StubModel(answer=answer)), make_options("education", "KO", fallback="SO-d1")
    )
    lost = played.steps[played.steps["failure"] == LOST]
    assert set(lost["step"]) == {1} and set(lost["choice"]) == {"SO-d1"}
    assert (played.episodes["failures"] == 1).all() and (played.episodes["malformed"] == 0).all()
    assert set(played.steps[played.steps["failure"] == ""]["choice"]) == {"SO-d2"}


def test_last_messages_differ_by_episode(plays):
    stub = StubModel(GOOD)
    make_episode_set("education", 4).play(open_stub(stub), make_options("education", "KO"))
    assert len(set(contents(stub.requests))) > len(stub.requests) / 2
    assert np.isfinite(plays["education", "KO"].episodes["reward"]).all()
