"""Customer service of tau2-bench with agents and users that are programs. Skipped where `make tau2` was not run."""

import json
import math
from itertools import islice

import pytest

from lib import tasks
from lib.config import LLMSettings, load
from lib.llm.chat_model import Failure, Reply, ToolCall
from lib.llm.open_models import ChatModels
from lib.rl.expert_pool import ExpertPool
from lib.rl.user_training.experts import change_params
from lib.tasks.tau2_bench import explain_absence
from lib.tool_orchestration import service_episodes, service_plan, service_prompts
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.service_episodes import ConversationRunner, ServiceTeam
from tests.budgeted_routing.small_systems import FunctionModel
from tests.tasks.tau2_bench import gold_team

pytestmark = pytest.mark.skipif(bool(explain_absence()), reason=explain_absence() or "installed")
HOSTED = (
    "{backend: endpoint, base_url: 'http://localhost:1/v1', model: maker/x, price_in: 1.0e-6, "
    "price_out: 2.0e-6, max_tokens: 100}"
)


def make_llm() -> LLMSettings:
    names = ("agent", "user", "expert")
    changes = [f"llm.models.{name}={HOSTED}" for name in names]
    return change_params(load("paper"), "tools", changes).llm


def hold(answer, items, experts=(), max_turns=30, samples=(0,)):
    """Hold conversations of a team of programs."""
    models = {name: FunctionModel(name, answer, "endpoint") for name in ("agent", "user", "expert")}
    team = ServiceTeam("agent", "user", tuple(experts))
    with ExpertPool(ChatModels(models), {name: name for name in models}, 0.0) as pool:
        runner = ConversationRunner(pool, make_llm(), team, max_turns)
        menu = service_prompts.make_menu(experts)
        assignments = [Assignment(item, menu) for item in items for _ in samples]
        return runner.run(assignments, list(samples) * len(items))


def pick(source: str, *numbers: int):
    items = tasks.load(source).items
    return [items[number] for number in numbers]


def change(speaker: str, change_reply, turn: int = 0):
    """The gold team, with the replies of one speaker changed from one of its turns on."""

    def answer(name, request):
        reply = gold_team.answer(name, request)
        num_turns = sum(message["role"] == "assistant" for message in request.messages)
        return change_reply(reply, request) if name == speaker and num_turns >= turn else reply

    return answer


@pytest.mark.parametrize("source", ["tau2:retail", "tau2:airline", "tau2:telecom"])
def test_a_team_that_carries_out_the_gold_actions_solves_the_tasks(source):
    # All telecom tasks, since few of the base ones have a scenario that no earlier task has.
    split = "full" if source == "tau2:telecom" else None
    items = filter(gold_team.is_first_of_scenario, tasks.load(source, split=split).items)
    episodes = hold(gold_team.answer, list(islice(items, 3)))
    assert [episode.correct for episode in episodes] == [1.0, 1.0, 1.0]
    assert {episode.ending for episode in episodes} == {"user"}
    for episode in episodes:
        # A cent is ten replies of the agent; what the user costs is apart.
        assert episode.cost_usd == pytest.approx(1e-3 * episode.turns["agent"])
        assert episode.user_cost_usd == pytest.approx(1e-3 * episode.turns["user"])


def test_the_agent_reads_the_policy_and_the_user_the_scenario():
    requests = {}

    def answer(name, request):
        requests.setdefault(name, request)
        return gold_team.answer(name, request)

    hold(answer, pick("tau2:telecom", 3))
    agent, user = requests["agent"], requests["user"]
    assert "<main_policy>" in agent.messages[0]["content"]
    assert agent.messages[1]["content"] == service_prompts.GREETING
    assert "You have some tools" in user.messages[0]["content"]
    assert len(agent.tools) == 13 and len(user.tools) == 30
    assert user.messages[1] == {"role": "user", "content": service_prompts.GREETING}


def test_an_agent_may_ask_a_model_which_reads_policy_and_conversation():
    asked = []

    def ask_first(name, request):
        if name == "expert":
            asked.append(request)
        if name == "agent" and request.messages[-1]["role"] == "user" and not asked:
            call = ToolCall("a", "ask_expert", json.dumps({"question": "What now?"}))
            return Reply("", name, "endpoint", (call,), cost_usd=1e-3)
        if name == "agent":
            # The gold agent counts results, and knows nothing of the expert's.
            messages = [m for m in request.messages if m.get("tool_call_id") != "a"]
            request = service_episodes.ChatRequest(messages, tools=request.tools)
        return gold_team.answer(name, request)

    (episode,) = hold(ask_first, pick("tau2:retail", 0), experts=["expert"])
    assert episode.correct == 1.0 and episode.counts["ask_expert"] == 1
    assert episode.expert_cost_usd == pytest.approx(1e-3)
    (request,) = asked
    assert "<policy>" in request.messages[0]["content"]
    assert request.messages[1]["content"].endswith("The agent asks: What now?")
    assert "task retail 0" in request.messages[1]["content"]


def test_a_question_without_words_is_an_error_that_the_agent_reads():
    def ask_nothing(name, request):
        if name != "agent":
            return gold_team.answer(name, request)
        call = ToolCall("a", "ask_expert", '{"text": 3}')
        return Reply("", name, "endpoint", (call,))

    (episode,) = hold(ask_nothing, pick("tau2:retail", 0), experts=["expert"])
    assert (episode.ending, episode.correct) == ("errors", 0.0)
    assert episode.environment.num_errors == service_episodes.MAX_ERRORS


@pytest.mark.parametrize("speaker", ["agent", "user"])
def test_a_reply_that_the_server_lost_is_not_scored(speaker):
    def lose(reply, request):
        return Reply("", reply.model, "endpoint", failure=Failure("timeout"))

    (episode,) = hold(change(speaker, lose, turn=1), pick("tau2:retail", 0))
    assert math.isnan(episode.correct) and episode.failure == f"{speaker}: timeout"


@pytest.mark.parametrize("kind", ["empty", "refusal", "context_too_long"])
def test_what_the_agents_model_fails_to_do_is_wrong_and_what_the_users_model_fails_is_not_scored(
    kind,
):
    def fail(reply, request):
        return Reply("", reply.model, "endpoint", failure=Failure(kind))

    (episode,) = hold(change("agent", fail, turn=2), pick("tau2:retail", 0))
    assert (episode.correct, episode.ending) == (0.0, f"agent: {kind}")
    (episode,) = hold(change("user", fail), pick("tau2:retail", 0))
    assert math.isnan(episode.correct) and episode.failure == f"user: {kind}"


def test_a_conversation_without_end_is_wrong():
    def chat(name, request):
        return Reply("Anything else?" if name == "agent" else "Yes.", name, "endpoint")

    (episode,) = hold(chat, pick("tau2:retail", 0), max_turns=4)
    assert (episode.correct, episode.ending, episode.turns["user"]) == (0.0, "turns", 4)


def test_a_user_who_ends_before_the_work_is_done_finds_it_undone():
    def stop(reply, request):
        return Reply("Never mind. ###STOP###", reply.model, "endpoint")

    (episode,) = hold(change("user", stop), pick("tau2:retail", 0))
    assert episode.ending == "user" and episode.correct == 0.0
    assert not episode.verdict.database


def test_several_calls_of_one_reply_are_all_carried_out():
    order = json.dumps({"order_id": "#W2378156"})
    calls = (ToolCall("a", "get_order_details", order), ToolCall("", "fly", "{}"))

    def call_twice(name, request):
        if name == "user":
            return gold_team.answer(name, request)
        if request.messages[-1]["role"] == "tool":
            return Reply("Done.", name, "endpoint")
        return Reply("", name, "endpoint", calls)

    (episode,) = hold(call_twice, pick("tau2:retail", 0))
    results = [m["content"] for m in episode.messages["agent"] if m["role"] == "tool"]
    assert len(results) == 2 and "#W2378156" in results[0] and "not found" in results[1]


def test_planned_calls_are_an_upper_bound():
    items = pick("tau2:retail", 0, 1)
    team = ServiceTeam("agent", "user", ("expert",))
    agent, user, expert = service_plan.plan_episodes(make_llm(), team, items, 2, 30)
    assert (agent.calls, user.calls, expert.calls) == (120, 120, 120)
    assert agent.tokens_out == 120 * 100 and agent.tokens_in > user.tokens_in > 0
