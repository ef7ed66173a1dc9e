"""Dialogues with a user who says parts of an office task only when asked."""

import json
import re

import pytest

from lib import config
from lib.config import ParamsError
from lib.llm.chat_model import Failure, Reply, ToolCall
from lib.llm.open_models import ChatModels
from lib.tool_orchestration import prompted_baseline, user_dialogue
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_environment import ToolEnvironment
from lib.tool_orchestration.tool_menu import ASK_USER, OFFICE, ToolMenu
from lib.tool_orchestration.user_dialogue import (
    ChatUser,
    ScriptedUser,
    UserQuestion,
    make_dialogue,
    make_user,
)
from tests.budgeted_routing.small_systems import FunctionModel
from tests.tool_orchestration import common

TASKS = [task for task in common.offices() if make_dialogue(task)]
_BRACKETS = re.compile(r"\[([a-z]+ \d)\]")
USER = ScriptedUser()


def assign(task) -> Assignment:
    """An office task whose user leaves names out."""
    functions = tuple(function.name for function in task.domain.functions)
    menu = ToolMenu(
        (common.offers()["search"],), functions, common.offers()[OFFICE], asks_user=True
    )
    return Assignment(task, menu, common.NOBODY, dialogue=make_dialogue(task))


def write_call(function: str, arguments: dict) -> Reply:
    call = ToolCall("id", function, json.dumps(arguments))
    return Reply("", "agent", "endpoint", (call,), message={"role": "assistant", "content": ""})


class Agents(common.Singers):
    """A pool with an agent, and perhaps a user, that are functions of the conversation."""

    def __init__(self, **models) -> None:
        super().__init__()
        self.requests = []

        def wrap(reply):
            def answer(name, request):
                self.requests.append((name, request))
                return reply(request.messages)

            return answer

        self.models = ChatModels(
            {name: FunctionModel(name, wrap(reply)) for name, reply in models.items()}
        )

    def generate(self, model, requests):
        return self.models[model].generate(requests)


def make_agent(task, asks: bool):
    """An agent that knows which golden calls to make, once the user has said every name that they need."""

    def reply(messages) -> Reply:
        placeholders = list(dict.fromkeys(_BRACKETS.findall(messages[1]["content"])))
        results = [message["content"] for message in messages if message["role"] == "tool"]
        if asks and len(results) < len(placeholders):
            return write_call(ASK_USER, {"question": f"What is {placeholders[len(results)]} ?"})
        said = " ".join(results)
        num_done = len(results) - (len(placeholders) if asks else 0)
        if num_done == len(task.calls):
            return Reply(f"<answer> {task.answer} </answer>", "agent", "endpoint")
        name, *arguments = task.calls[num_done]
        # A name that nobody said is not known to it.
        withheld = make_dialogue(task).withheld.values()
        known = [word if word not in withheld or word in said else "unknown" for word in arguments]
        parameters = task.domain.find_function(name).parameters
        return write_call(name, dict(zip(parameters, known, strict=True)))

    return reply


def play(task, agent, user=None, **models):
    pool = Agents(agent=agent, **models)
    turns = config.load("laptop").tools.dialogue.turns
    with ToolEnvironment(pool, common.CLOCK, user=user) as environment:
        (episode,) = prompted_baseline.roll_out_assignments(
            environment, "agent", [assign(task)], turns, 0, 0.0
        )
    return episode, pool


def test_the_opening_leaves_names_out_and_the_request_has_them():
    assert len(TASKS) > 15
    for task in TASKS:
        dialogue = make_dialogue(task)
        words = dialogue.opening.split()
        assert dialogue.request == task.instruction
        assert not set(dialogue.withheld.values()) & set(words)
        restored = dialogue.opening
        for name, word in dialogue.withheld.items():
            restored = restored.replace(f"[{name}]", word)
        assert restored.startswith(task.instruction)


def test_a_scripted_user_says_what_is_asked_and_nothing_else():
    dialogue = user_dialogue.UserDialogue("", "", {"boats 1": "crow", "boats 12": "owl"})
    assert USER.answer(UserQuestion(dialogue, "What is boats 1 ?")) == "boats 1 is crow ."
    assert "crow" not in USER.answer(UserQuestion(dialogue, "and boats 12?"))
    both = USER.answer(UserQuestion(dialogue, "Boats 1 and BOATS 12"))
    assert "crow" in both and "owl" in both
    vague = USER.answer(UserQuestion(dialogue, "What do you mean?"))
    assert "boats 1" in vague and "crow" not in vague and "owl" not in vague


@pytest.mark.parametrize("task", TASKS[:6], ids=lambda task: task.instruction)
def test_an_agent_solves_the_task_by_asking_and_not_without(task):
    asking, _ = play(task, make_agent(task, asks=True))
    assert asking.correct == 1.0
    assert asking.counts[ASK_USER] == len(make_dialogue(task).withheld)
    silent, _ = play(task, make_agent(task, asks=False))
    assert silent.correct == 0.0 and ASK_USER not in silent.counts


def test_questions_to_the_user_cost_nothing_and_calls_of_the_office_do():
    task = TASKS[0]
    episode, _ = play(task, make_agent(task, asks=True))
    rate = common.offers()[OFFICE]
    assert episode.cost_usd == pytest.approx(len(task.calls) * rate.cost_usd)
    assert episode.seconds == pytest.approx(len(task.calls) * rate.seconds)


def test_a_chat_model_as_user_reads_the_request_and_answers_in_its_own_words():
    task = TASKS[0]

    def speak(messages) -> Reply:
        return Reply(
            f"Well, {' and '.join(make_dialogue(task).withheld.values())}", "u", "endpoint"
        )

    episode, pool = play(task, make_agent(task, asks=True), ChatUser("u"), u=speak)
    asked = [request for name, request in pool.requests if name == "u"]
    assert episode.correct == 1.0 and len(asked) == episode.counts[ASK_USER]
    assert task.instruction in asked[0].messages[0]["content"]
    assert asked[0].messages[-1]["content"].startswith("What is")


def test_an_episode_whose_user_was_lost_is_in_no_score():
    task = TASKS[0]

    def vanish(messages) -> Reply:
        return Reply("", "u", "endpoint", failure=Failure("timeout"))

    episode, _ = play(task, make_agent(task, asks=True), ChatUser("u"), u=vanish)
    assert episode.failed and episode.correct != episode.correct


def test_on_a_menu_without_a_dialogue_nobody_can_be_asked():
    task = TASKS[0]
    assigned = common.given(task, "search")
    with common.at_work() as environment:
        reason = environment.explain_malformed(assigned, ASK_USER, "what?")
    assert "no tool 'ask_user'" in reason


def test_users_are_labelled_and_turns_are_those_of_the_profiles():
    assert make_user("scripted").label == "scripted user"
    assert make_user("my-endpoint").label == "simulated user: my-endpoint"
    turns = {profile: config.load(profile).tools.dialogue for profile in ("laptop", "paper")}
    assert [turns[profile].turns for profile in turns] == [12, 50]
    assert all(settings.user == "scripted" for settings in turns.values())


def test_a_user_that_is_no_model_is_refused_with_the_names_that_there_are():
    content = config.load("smoke").model_dump()
    content["tools"]["dialogue"]["user"] = "nobody"
    with pytest.raises(ParamsError, match="nobody"):
        config.validate_settings(content, config.Params, "a test")
