"""What calls cost is measured, what a run may cost is announced, and models can be added on the command line."""

import pytest

from lib import config
from lib.config import ParamsError
from lib.llm.chat_model import Failure, Reply
from lib.llm.errors import InfrastructureError
from lib.llm.open_models import ChatModels
from lib.rl.expert_pool import ExpertPool
from lib.rl.user_training.experts import (
    TRIAL_QUESTIONS,
    CallPlan,
    announce_plan,
    change_params,
    check_names,
    measure_calls,
)
from lib.tasks import Item
from tests.budgeted_routing.small_systems import FunctionModel

EXPERTS = {"lab-large": "large", "lab-nano": "nano"}


def make_items(num_items: int) -> list[Item]:
    return [Item(f"question {n}", "4", "", "own", 1, str(n)) for n in range(num_items)]


def open_pool(answer) -> ExpertPool:
    models = ChatModels({name: FunctionModel(name, answer) for name in ("nano", "large")})
    return ExpertPool(models, EXPERTS, 1.0, tells_rules=False)


def test_a_call_costs_what_it_is_billed_and_takes_what_it_took():
    def answer(name, request):
        num_tokens, seconds = {"nano": (10, 0.0), "large": (400, 2.0)}[name]
        cost_usd = 1e-5 * num_tokens
        return Reply(
            "word", name, "endpoint", tokens_out=num_tokens, cost_usd=cost_usd, seconds=seconds
        )

    with open_pool(answer) as pool:
        costs = measure_calls(pool, make_items(20))
        assert pool.counts["lab-nano"].calls == TRIAL_QUESTIONS
    assert list(costs) == ["lab-nano", "lab-large"]  # the cheapest first
    assert costs["lab-nano"].cost_usd == pytest.approx(1e-4)
    assert costs["lab-large"].cost_usd == pytest.approx(4e-3)
    assert costs["lab-large"].seconds == 2.0 and costs["lab-large"].seconds_per_token == 0.005
    # A model that says nothing of its time has a declared one.
    assert not costs["lab-nano"].is_measured and costs["lab-nano"].seconds == pytest.approx(0.2)


def test_an_expert_of_which_no_call_comes_back_ends_the_run():
    def answer(name, request):
        failure = Failure("timeout") if name == "nano" else None
        return Reply("word", name, "endpoint", failure=failure)

    with open_pool(answer) as pool, pytest.raises(InfrastructureError, match="lab-nano: none of 3"):
        measure_calls(pool, make_items(3))


def test_a_plan_counts_the_questions_as_long_as_they_are_and_one_expert_a_call():
    """4 episodes with one call each, to the more expensive of two endpoints, after 3 trials and 2 baselines each."""
    about = {"backend": "endpoint", "base_url": "http://localhost:1/v1", "model": "m"}
    common = {"kwh_per_token": 0.0, "temperature": 1.0, "max_tokens": 100, "timeout": 1.0}
    common |= {"retries": 0, "concurrency": 1, "reasoning_tokens": 0}
    prices = {"cheap": 1e-6, "costly": 1e-5}
    models = {
        name: about | common | {"price_in": price, "price_out": 2 * price}
        for name, price in prices.items()
    }
    llm = config.validate_settings(
        {"cassette": "off", "max_usd": 5.0, "models": models}, config.LLMSettings, "a test"
    )
    items = [Item("word " * 800, "4", "", "own", 1, str(n)) for n in range(3)]
    plan = CallPlan(episodes=4, calls_per_episode=1, baseline_questions=2, query_tokens=8)
    sentence = announce_plan(llm, {"a": "cheap", "b": "costly"}, [], items, plan)
    # 1,000 tokens in and 100 out: 9 * (1000 * 1e-5 + 100 * 2e-5) + 5 * (1000 * 1e-6 + 100 * 2e-6) = .114
    assert sentence.startswith("At most 14 calls and $0.11 to endpoints")
    judged = announce_plan(llm, {"a": "cheap", "b": "costly"}, ["cheap"], items, plan)
    assert judged.startswith(
        "At most 24 calls"
    )  # 4 answers, and 2 of each expert and of the controller


def test_a_model_of_the_command_line_has_the_rest_in_common_with_the_others():
    params = config.load("smoke")
    change = (
        "llm.models.mine={backend: hugging_face, model: FOLDER, price_in: 1e-7, price_out: 2e-7}"
    )
    changed = change_params(params, "routing", [change, "rounds=3"])
    assert changed.llm.models["mine"].model == "FOLDER"
    assert changed.llm.models["mine"].concurrency == params.llm.models["scripted-small"].concurrency
    assert changed.routing.rounds == 3 and "mine" not in params.llm.models


def test_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(
        ParamsError, match="there is no model 'nobody'; llm.models has scripted-small"
    ):
        check_names(config.load("smoke").llm, ["scripted-small", "nobody"])
