"""What agents of a team are shown, what they say, and the notes that they leave for others."""

from collections.abc import Sequence

from lib.language_models.chat_template import format_tool_call
from lib.language_models.training.agent_traces import (
    Message,
    write_assistant_turn,
    write_user_turn,
)
from lib.language_models.training.team_traces.moves import NOTHING, Move, select_helpful_tools
from lib.tasks import format_reply


def write_user_message(question: str, *context: str) -> Message:
    """Write the user message for an agent: "question 3 + 4 = ? evidence 3 + 4 = 7".

    Args:
        question: The prompt of an item.
        context: What other agents wrote, each text with a word that says what it is ("evidence ...", "draft ...",
            "votes ...", "subtask ...").

    Returns:
        The message {"role": "user", "content": ...}; without context the content is the question alone.
    """
    if not context:
        return write_user_turn(question)
    return write_user_turn(" ".join(["question", question, *context]))


def write_notes(results: Sequence[tuple[str, str]], reasoning: str, answer: str | None) -> str:
    """Write an agent's notes for other agents: "home Ana : Loro answer Loro".

    Args:
        results: (argument, result) of its tool calls.
        reasoning: Its reasoning steps, joined by " ; "; may be empty.
        answer: Its answer; None where it was cut off before it gave one.

    Returns:
        The notes as one line; NOTHING without results, reasoning and answer.
    """
    steps = [f"{argument} : {result}" for argument, result in results]
    if reasoning:
        steps.append(reasoning)
    words = []
    if steps:
        words.append(" ; ".join(steps))
    if answer is not None:
        words.append(f"answer {answer}")
    return " ".join(words) or NOTHING


def carry_out_moves(
    moves: Sequence[Move], answer: str, tools: Sequence[str], brief: bool
) -> list[Message]:
    """Write the turns of an agent that works through steps of a solution and then answers.

    Args:
        moves: The steps: a tool call or a line of reasoning each.
        answer: What it answers at the end.
        tools: Names of the tools that it calls, the preferred one first; a step that none of them can do is reasoned.
        brief: Whether it leaves its reasoning out.

    Returns:
        Messages: assistant turns with a call, tool messages with the result, and the assistant's answer.
    """
    # A model of this size can do a big sum only with a tool or in written steps. Without both the trace must not
    # teach it to guess, so the answer becomes NOTHING.
    for move in moves:
        is_big_sum = any(tool == "calculator" for tool, _, _ in move.calls)
        if brief and is_big_sum and not select_helpful_tools(tools, [move]) and answer.isdigit():
            answer = NOTHING

    messages: list[Message] = []
    thoughts: list[str] = []  # reasoning steps since the last call
    for move in moves:
        calls_by_tool = {call[0]: call for call in move.calls}
        usable_tools = [tool for tool in tools if tool in calls_by_tool]
        if usable_tools:
            # The reasoning since the last call stands in the same turn, before this call.
            tool, argument, result = calls_by_tool[usable_tools[0]]
            reasoning = f"<think> {' ; '.join(thoughts)} </think> " if thoughts else ""
            thoughts = []
            messages.append(write_assistant_turn(reasoning + format_tool_call(tool, argument)))
            messages.append({"role": "tool", "content": result})
        elif not brief:
            thoughts.append(move.text)
    reply = format_reply(answer, " ; ".join(thoughts))
    messages.append(write_assistant_turn(reply))
    return messages


def write_notes_on_moves(
    moves: Sequence[Move], answer: str | None, tools: Sequence[str], brief: bool
) -> str:
    """Write the notes of an agent that has done steps of a solution, for other agents to read.

    Args:
        moves: The steps that it has done: a tool call or a line of reasoning each.
        answer: Its answer; None where it was cut off before it gave one.
        tools: Names of the tools that it used; a step that none of them can do was reasoned.
        brief: Whether it left its reasoning out.

    Returns:
        The notes as one line, such as "home Ana : Loro answer Loro"; NOTHING where it has nothing to report.
    """
    results, thoughts = [], []
    for move in moves:
        calls = [call for call in move.calls if call[0] in tools]
        if calls:
            _, argument, result = calls[0]
            results.append((argument, result))
        elif not brief:
            thoughts.append(move.text)
    return write_notes(results, " ; ".join(thoughts), answer)
