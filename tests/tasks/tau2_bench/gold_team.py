"""An agent and a user that are programs: they know the gold actions of each task, and say what has to be said."""

import json
import re
from functools import cache

from lib.llm.chat_model import ChatRequest, Reply, ToolCall
from lib.tasks import Item
from lib.tasks.tau2_bench import DOMAINS, load_domain

_TASK = re.compile(r"task (\w+) (\d+)")
_ACTION = re.compile(r"please do (\d+)")


def find_task(text: str):
    """The task whose number a message names, as (domain, number of the task)."""
    domain, number = _TASK.search(text).groups()
    return list(load_domain(domain).tasks.values())[int(number)]


def name_task(scenario: str) -> str:
    """Name the task whose scenario a user's system message has; the first of several that share it."""
    text = scenario.partition("<scenario>\n")[2].removesuffix("\n</scenario>")
    return list_scenarios()[text]


@cache
def list_scenarios() -> dict[str, str]:
    """Names of tasks by their scenario."""
    names = {}
    for domain in DOMAINS:
        for number, task in enumerate(load_domain(domain).tasks.values()):
            names.setdefault(str(task.user_scenario), f"task {domain} {number}")
    return names


def is_first_of_scenario(item: Item) -> bool:
    """Whether `name_task` finds this task: in telecom many share a scenario, and differ in what is wrong."""
    domain = load_domain(item.metadata["domain"])
    name = list_scenarios()[str(domain.tasks[item.id].user_scenario)]
    return find_task(name).id == item.id


def make_call(name: str, action, own_id: str) -> Reply:
    call = ToolCall(own_id, action.name, json.dumps(action.arguments))
    return Reply("", name, "endpoint", (call,), cost_usd=1e-3, tokens_in=100, tokens_out=10)


def make_text(name: str, text: str) -> Reply:
    return Reply(text, name, "endpoint", cost_usd=1e-3, tokens_in=100, tokens_out=10)


def act_as_agent(name: str, request: ChatRequest) -> Reply:
    """Carry out the gold actions one after the other; those of the user are asked for."""
    texts = [m["content"] or "" for m in request.messages if m["role"] == "user"]
    task = find_task(texts[0])
    results = [m for m in request.messages if m["role"] == "tool"]
    num_done = len(results) + texts.count("did it")
    actions = task.evaluation_criteria.actions or []
    if num_done == len(actions):
        return make_text(
            name, " ".join(["Done.", *(task.evaluation_criteria.communicate_info or [])])
        )
    action = actions[num_done]
    if action.requestor == "user":
        return make_text(name, f"please do {num_done}")
    return make_call(name, action, f"id_{num_done}")


def act_as_user(name: str, request: ChatRequest) -> Reply:
    """Name the task, do what is asked for, and end where the agent says that it is done."""
    system, last = request.messages[0]["content"], request.messages[-1]
    if last["role"] == "tool":
        return make_text(name, "did it")
    if last["content"].startswith("Done."):
        return make_text(name, "###STOP###")
    asked = _ACTION.match(last["content"])
    if asked is None:
        return make_text(name, name_task(system))
    task = find_task(request.messages[2]["content"])
    action = task.evaluation_criteria.actions[int(asked.group(1))]
    return make_call(name, action, f"user_{asked.group(1)}")


def answer(name: str, request: ChatRequest) -> Reply:
    """Reply as agent, user or expert, by what the system message says."""
    system = request.messages[0]["content"]
    if system.startswith("# User Simulation"):
        return act_as_user(name, request)
    if system.startswith("You advise"):
        return make_text(name, "Do as the policy says.")
    return act_as_agent(name, request)
