"""An orchestrator that is only prompted: any model of llm.models, with the menu as OpenAI function schemas.

For the pilot study (ToolOrchestra, appendix A): an off-the-shelf model reads what there is, what it costs and what the
user prefers, and nothing trains it. The same tools answer, through the same environment. A reply that cannot be used
ends the episode without an answer; one that the infrastructure lost leaves it out of all scores.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from lib import tasks
from lib.config import LLMSettings
from lib.language_models.chat_template import format_tool_call
from lib.llm.chat_model import ChatRequest, Reply, ToolCall
from lib.llm.cost_estimate import PlannedCalls
from lib.llm.json_replies import join_values, read_arguments
from lib.rl import call_protocol
from lib.rl.rollout import Turn, derive_turn_seed
from lib.tasks import Item
from lib.tasks.scorers import Scorer
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_environment import (
    HOSTED_TOKENS_PER_SECOND,
    ToolEnvironment,
    ToolEpisode,
    score_episodes,
)
from lib.tool_orchestration.tool_menu import ASK_USER, Offer
from lib.tools import Tool

MENU_TOKENS = 1_000  # of function schemas and instructions, more than any menu has
LAB_SYSTEM = "role reasoner"  # lab models were taught roles, not sentences
_LINE_SCHEMA = {
    "type": "object",
    "properties": {"words": {"type": "string"}},
    "required": ["words"],
}
_ASK_USER_SCHEMA = Tool(
    ASK_USER,
    "Asks the user about the task, for free.",
    {"question": {"type": "string"}},
    str,
).schema
_NOT_MADE = "One call at a time; this one was not made."
_SYSTEM = (
    "Solve the task with the tools on offer. Each call costs what its description says, and every turn takes time. "
    "{preference} {rule} End with <answer> ... </answer>."
)


def roll_out_assignments(
    environment: ToolEnvironment,
    model: str,
    assignments: Sequence[Assignment],
    max_turns: int,
    seed: int,
    temperature: float,
    scorer: Scorer | None = None,
) -> list[ToolEpisode]:
    """Roll out one episode of a prompted orchestrator for each assignment, side by side, and score it.

    Args:
        environment: Executes tool calls; its pool has the orchestrator's model too.
        model: Name of the orchestrator in llm.models.
        assignments: Questions and office tasks, each with a menu of tools and a user.
        max_turns: Largest number of turns of an episode.
        seed: Seed of all random draws of this batch.
        temperature: Sampling temperature of the orchestrator.
        scorer: How answers to questions are scored; None for the strict rule of the procedural families.

    Returns:
        The episodes, in the order of the assignments. Their cost_usd and seconds are those of the calls; the
        orchestrator's own tokens are in own_cost_usd and own_seconds.
    """
    lab = environment.pool.models[model].backend == "lab"
    episodes = [ToolEpisode(assignment, [], [], 0) for assignment in assignments]
    conversations = [write_messages(assignment, lab) for assignment in assignments]
    menus = [write_schemas(assignment, environment, lab) for assignment in assignments]
    for turn in range(max_turns):
        alive = [index for index, episode in enumerate(episodes) if not episode.is_done]
        if not alive:
            break

        # One turn of the model in every episode that goes on.
        turn_seeds = [derive_turn_seed(seed, index, turn) for index in alive]
        requests = [
            ChatRequest(
                list(conversations[index]),
                tools=menus[index],
                temperature=temperature,
                seed=turn_seed,
                caller=model,
            )
            for index, turn_seed in zip(alive, turn_seeds, strict=True)
        ]
        replies = environment.pool.generate(model, requests)

        # Turns that end their episode: answers, replies that cannot be used, and whatever comes in the last round.
        pending: list[tuple[int, Reply, call_protocol.Call, int]] = []
        for index, reply, turn_seed in zip(alive, replies, turn_seeds, strict=True):
            episode = episodes[index]
            episode.own_cost_usd += reply.cost_usd
            episode.own_seconds += reply.seconds or reply.tokens_out / HOSTED_TOKENS_PER_SECOND
            call = None if reply.failure else _read_call(episode.assignment, reply, environment)
            episode.is_done = turn == max_turns - 1 or call is None
            if call is not None and not episode.is_done:
                pending.append((index, reply, call, turn_seed))
                continue
            episode.lost_own_reply = reply.failure is not None and reply.failure.of_infrastructure
            is_answer = tasks.extract_answer(reply.text) is not None
            is_malformed = call is None and not is_answer
            why = "neither a call nor an answer" if is_malformed else ""
            episode.turns.append(Turn(reply.text, call, malformed=why))

        # The calls of all others, at once.
        tool_replies = environment.answer_calls(
            [(episodes[index], call, turn_seed) for index, _, call, turn_seed in pending]
        )
        for (index, reply, call, _), tool_reply in zip(pending, tool_replies, strict=True):
            episodes[index].turns.append(Turn(reply.text, call, tool_reply))
            if tool_reply.lost:
                episodes[index].is_done = True
                continue
            result = call_protocol.clean_reply(tool_reply.text)
            conversations[index] += _write_turn(reply, call, result, f"call_{turn}")
    score_episodes(episodes, environment.pool, scorer)
    return episodes


def plan_prompted_episodes(
    llm: LLMSettings, name: str, num_episodes: int, max_turns: int
) -> PlannedCalls:
    """Plan the calls of an orchestrator that is prompted: it reads its menu and all earlier turns again in every turn.

    Args:
        llm: The models.
        name: Name of the orchestrator in llm.models.
        num_episodes: Questions and office tasks.
        max_turns: Largest number of turns of an episode.

    Returns:
        The calls; replies are as long as they may be.
    """
    max_tokens = llm.models[name].max_tokens
    num_turns = num_episodes * max_turns
    tokens_in = num_turns * (MENU_TOKENS + max_turns * max_tokens)
    return PlannedCalls(name, num_turns, tokens_in, num_turns * max_tokens)


def write_messages(assignment: Assignment, lab: bool) -> list[dict[str, Any]]:
    """Write the messages that the orchestrator reads first: the user's preferences and the task.

    Args:
        assignment: A question or an office task with its user.
        lab: Whether the orchestrator is a lab model, which knows roles and no English.

    Returns:
        A system message and a user message.
    """
    system = LAB_SYSTEM
    if not lab:
        rule = tasks.describe_rules(assignment.prompt)
        system = _SYSTEM.format(preference=assignment.preference.sentence, rule=rule)
    return [
        {"role": "system", "content": " ".join(system.split())},
        {"role": "user", "content": assignment.prompt},
    ]


def write_schemas(
    assignment: Assignment, environment: ToolEnvironment, lab: bool
) -> list[dict[str, Any]]:
    """Write the menu as function schemas of OpenAI's API.

    Args:
        assignment: With its menu.
        environment: Has the schemas of functions and writer tools.
        lab: Whether the orchestrator is a lab model; then every function takes one line of words.

    Returns:
        A schema for each tool, for the question to the user if it may be asked, and for the functions of an office.
    """
    offered = [_write_schema(offer, environment) for offer in assignment.menu.offers]
    if assignment.menu.asks_user:
        offered.append(_ASK_USER_SCHEMA)
    if not isinstance(assignment.work, Item):
        offered += assignment.work.domain.build_tool_schemas()
    if lab:
        return [
            {"type": "function", "function": schema["function"] | {"parameters": _LINE_SCHEMA}}
            for schema in offered
        ]
    return offered


def _write_schema(offer: Offer, environment: ToolEnvironment) -> dict[str, Any]:
    """Write the function schema of one tool, with its usual price and latency in the description.

    Args:
        offer: The tool's entry on the menu.
        environment: Has the schemas of functions; a model takes a question.

    Returns:
        The schema, as OpenAI's API takes it.
    """
    if offer.name in environment.writers:
        schema = environment.writers[offer.name].schema
    elif offer.name in environment.tools:
        schema = environment.tools[offer.name].schema
    else:
        parameters = {"question": {"type": "string"}}
        schema = Tool(offer.name, _describe_model(offer), parameters, str).schema

    function = schema["function"]
    price = f"About ${offer.typical_cost_usd:.2g} and {offer.typical_seconds:.2g} s per call."
    description = f"{function['description']} {price}"
    return {"type": "function", "function": function | {"description": description}}


def _describe_model(offer: Offer) -> str:
    """Describe what a model can do: by its description, or else by the skills that were measured."""
    if offer.description:
        return f"A model. {offer.description}"
    skills = [f"{kind} up to difficulty {highest}" for kind, highest in offer.skills.items()]
    return f"A model. Good at: {', '.join(skills) or 'unknown'}."


def _read_call(
    assignment: Assignment, reply: Reply, environment: ToolEnvironment
) -> call_protocol.Call | None:
    """Parse the first tool call of a reply.

    Args:
        assignment: Has the menu.
        reply: The orchestrator's reply.
        environment: Knows which calls are well-formed.

    Returns:
        The call; None where there is none or it is malformed.
    """
    if not reply.tool_calls:
        return None
    tool_call = reply.tool_calls[0]
    line = _read_arguments(assignment, tool_call, environment, reply.backend == "lab")
    if line is None or environment.explain_malformed(assignment, tool_call.name, line):
        return None
    return call_protocol.Call(tool_call.name, line)


def _read_arguments(
    assignment: Assignment, tool_call: ToolCall, environment: ToolEnvironment, lab: bool
) -> str | None:
    """Convert the arguments of a tool call to one line of words, in the order of the tool's parameters.

    Args:
        assignment: With its menu, which says what an office function takes.
        tool_call: Arguments as JSON.
        environment: Has the parameters of the other functions.
        lab: Whether a lab model wrote the call; its arguments are a line already.

    Returns:
        The line; None where the arguments are no JSON object.
    """
    if lab:
        return join_values([tool_call.arguments])
    values: Mapping[str, Any] | None = read_arguments(tool_call.arguments)
    if values is None:
        return None
    order: Sequence[str] = ()
    if tool_call.name in assignment.menu.office:
        order = assignment.work.domain.find_function(tool_call.name).parameters
    elif tool_call.name in environment.tools:
        order = tuple(environment.tools[tool_call.name].parameters)
    names = order if set(order) == set(values) else values
    return join_values(values[name] for name in names)


def _write_turn(
    reply: Reply, call: call_protocol.Call, result: str, own_id: str
) -> list[dict[str, Any]]:
    """Write the messages of one turn that join the conversation: the orchestrator's call and the tool's reply.

    Args:
        reply: Reply of the orchestrator.
        call: The one call of it that was made.
        result: The tool's reply.
        own_id: Id of the call where the server gave none.

    Returns:
        An assistant message, and a tool message for each call of the reply.
    """
    if reply.backend == "lab":
        call_text = format_tool_call(call.expert, call.query)
        return [
            {"role": "assistant", "content": call_text},
            {"role": "tool", "tool_call_id": own_id, "content": result},
        ]

    results = [result] + [_NOT_MADE] * (len(reply.tool_calls) - 1)
    return write_call_messages(reply, results, own_id)


def write_call_messages(reply: Reply, results: Sequence[str], own_id: str) -> list[dict[str, Any]]:
    """Write the messages of one turn of a server's model: its calls, and the result of each.

    Args:
        reply: Reply of the model, with at least one call.
        results: What each call returned; servers refuse a conversation in which a call has no result.
        own_id: Begins the ids of calls where the server gave none.

    Returns:
        An assistant message, and a tool message for each call.
    """
    # A server's own message stands in the conversation whole: some need what came with it, such as a signature.
    ids = [tool_call.id or f"{own_id}_{index}" for index, tool_call in enumerate(reply.tool_calls)]
    written_calls = []
    for call_id, tool_call in zip(ids, reply.tool_calls, strict=True):
        function = {"name": tool_call.name, "arguments": tool_call.arguments}
        written_calls.append({"id": call_id, "type": "function", "function": function})
    message = {"role": "assistant", "content": reply.text or None, "tool_calls": written_calls}
    if reply.message and all(tool_call.id for tool_call in reply.tool_calls):
        message = dict(reply.message)
    tool_messages = [
        {"role": "tool", "tool_call_id": call_id, "content": content}
        for call_id, content in zip(ids, results, strict=True)
    ]
    return [message, *tool_messages]
