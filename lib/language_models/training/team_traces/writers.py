"""One writer per kind of team trace, and the random choices that they share.

A trace is one example conversation for supervised fine-tuning. Every writer takes an item, its moves (the steps of the
solution: a tool call or a line of reasoning) and a random generator, and returns (messages, tools on offer).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from lib.language_models.tokenizer import TOOLS
from lib.language_models.training.agent_traces import (
    BRIEF,
    CHECK,
    STEPS,
    Message,
    Trace,
    insert_mistake,
    write_assistant_turn,
    write_system_message,
)
from lib.language_models.training.team_traces.moves import (
    NOTHING,
    Move,
    answer_in_words,
    decide_route,
    list_moves,
    select_helpful_tools,
)
from lib.language_models.training.team_traces.notes import (
    carry_out_moves,
    write_notes,
    write_notes_on_moves,
    write_user_message,
)
from lib.language_models.training.team_traces.shared_work import PLAN, SPLIT, split_work
from lib.tasks import Item, format_reply

TOOL_HINTS = {tool: f"use the {tool}" for tool in TOOLS if tool != "python"}
DECOYS = (  # hints that mean nothing to these models, as most instructions mean nothing
    "avoid error", "only the answer", "name the evidence", "first plan then answer", "evaluate again",
    "the best votes", "the right number then the answer", "check the number", "first the people then the number",
    "check the people", "first the answer then the letter", "only the letter", "first the last", "check the name",
    "first search then the calculator", "only the number",
)  # fmt: skip
_IGNORED_HINTS = {  # by role
    "reasoner": (CHECK,), "worker": (CHECK,), "verifier": (STEPS, BRIEF), "answerer": (STEPS, BRIEF, CHECK),
    "router": (STEPS, BRIEF, CHECK),
}  # fmt: skip
_USE_PROBABILITY = 0.8  # that a tool that helps is used without a hint
_HINT_PROBABILITY = 0.35  # of each kind of hint


# Random choices of a trace -------------------------------------------------------------------------


@dataclass(frozen=True)
class _ToolChoice:
    """Which tools a trace offers, and which of them the agent calls.

    Attributes:
        offered: Names of the tools in the system message.
        used: Those that the agent calls, the preferred one first.
        hints: Instructions that make it call them, such as "use the calculator".
    """

    offered: list[str]
    used: list[str]
    hints: list[str]


def _draw_tool_choice(rng: np.random.Generator, moves: Sequence[Move]) -> _ToolChoice:
    """Draw which tools are on offer and which of them the agent calls.

    Args:
        rng: Random numbers.
        moves: The steps of the solution; a tool helps where it can do one of them.

    Returns:
        The tools on offer, those used, and the hints to use them.
    """
    offered = _draw_tools(rng)
    helpful = sorted(select_helpful_tools(offered, moves))
    # A hint makes sure that a tool is used; without one the agent uses all helpful tools or none.
    hinted = []
    for tool in helpful:
        if tool in TOOL_HINTS and rng.random() < _HINT_PROBABILITY:
            hinted.append(tool)
    used = []
    if hinted or rng.random() < _USE_PROBABILITY:
        not_hinted = [tool for tool in helpful if tool not in hinted]
        used = [*hinted, *not_hinted]
    hints = [TOOL_HINTS[tool] for tool in hinted]
    return _ToolChoice(offered, used, hints)


def _draw_tools(rng: np.random.Generator) -> list[str]:
    """Draw names of tools, each with probability 1/2."""
    return [tool for tool in TOOLS if rng.random() < 0.5]


def _draw_style(rng: np.random.Generator) -> tuple[bool, list[str]]:
    """Draw whether an agent writes its reasoning down, and whether a hint in the prompt says so.

    Returns:
        (is_brief, hints): whether the reasoning is left out, and ["be brief"], ["step by step"] or []. Without a hint
        the agent does either, so that the model learns to react to the hint.
    """
    # Two hints, "be brief" and "step by step", so twice the probability of one.
    has_hint = rng.random() < 2 * _HINT_PROBABILITY
    if not has_hint:
        return _flip(0.5, rng), []
    is_brief = _flip(0.3, rng)
    hint = BRIEF if is_brief else STEPS
    return is_brief, [hint]


def _flip(probability: float, rng: np.random.Generator) -> bool:
    return bool(rng.random() < probability)


def _write_hints(
    role: str, rng: np.random.Generator, hints: Sequence[str] = (), tools: Sequence[str] = ()
) -> Message:
    """Write the system message of an agent: "role verifier check each step only the letter".

    Up to two distractors, hints that change nothing in this role, stand among the hints that the agent obeys. So the
    model learns which instructions matter to it.

    Args:
        role: Such as "verifier".
        rng: Draws the distractors and the order of all hints.
        hints: Instructions that the agent obeys in this trace.
        tools: Names of the tools on offer.

    Returns:
        The message {"role": "system", "content": ...}.
    """
    # A hint to use a tool that is not on offer is a distractor, too.
    other_tools = [hint for tool, hint in TOOL_HINTS.items() if tool not in tools]
    distractors = [*DECOYS, *_IGNORED_HINTS[role], *other_tools]
    all_hints = list(hints)
    for _ in range(2):
        if rng.random() < _HINT_PROBABILITY:
            index = int(rng.integers(len(distractors)))
            all_hints.append(distractors[index])
    order = rng.permutation(len(all_hints))
    shuffled = [all_hints[i] for i in order]
    return write_system_message(role, *shuffled)


def _draw_wrong_answer(item: Item, rng: np.random.Generator) -> str:
    """Draw a wrong answer of the same kind as the right one: another number, person or town."""
    # `insert_mistake` works on steps, so the answer is put into one: "is 12" -> "is 17".
    (step,) = insert_mistake([f"is {item.reference}"], 0, rng, follow=False)
    return _read_result(step)


def _read_result(step: str) -> str:
    """The result of a step, its last word: "3 + 4 = 7" -> "7"."""
    return step.split()[-1]


def _draw_draft(item: Item, moves: Sequence[Move], rng: np.random.Generator) -> tuple[str, str]:
    """Draw a draft for a verifier: a whole solution, right or with one mistake, each with probability 1/2.

    Args:
        item: The question.
        moves: The steps of its right solution.
        rng: Draws the mistake, and whether the draft shows its steps (3 of 4 do).

    Returns:
        (draft, verdict): "3 + 4 = 8 ; 8 * 2 = 6 answer 6" and "right" or "wrong".
    """
    steps: list[str] = []
    for move in moves:
        steps += move.text.split(" ; ")
    is_brief = _flip(0.25, rng)
    if rng.random() < 0.5:
        reasoning = "" if is_brief else " ; ".join(steps)
        return write_notes([], reasoning, item.reference), "right"

    # The wrong answer is the result of the last wrong step, unless the item's answer is no step's result.
    index = int(rng.integers(len(steps)))
    wrong_steps = insert_mistake(steps, index, rng, follow=item.group == "chain")
    if _read_result(steps[-1]) == item.reference:
        answer = _read_result(wrong_steps[-1])
    else:
        answer = _draw_wrong_answer(item, rng)
    if answer == item.reference:  # a chain may come back to the right result
        answer = _draw_wrong_answer(item, rng)
    reasoning = "" if is_brief else " ; ".join(wrong_steps)
    return write_notes([], reasoning, answer), "wrong"


def _draw_checked_draft(
    item: Item, moves: Sequence[Move], rng: np.random.Generator
) -> tuple[str, str]:
    """Draw a draft and the notes of a verifier on it.

    Args:
        item: The question.
        moves: The steps of its right solution.
        rng: Draws mistake, tools and style.

    Returns:
        (draft, check): the draft as of `_draw_draft`, and the verifier's steps with its verdict, such as
        "3 + 4 = 7 answer wrong".
    """
    draft, verdict = _draw_draft(item, moves, rng)
    tools = _draw_tools(rng)
    is_brief = _flip(0.4, rng)
    check = write_notes_on_moves(moves, verdict, tools, is_brief)
    return draft, check


def _draw_partial_notes(
    moves: Sequence[Move], num_moves: int, answer: str, rng: np.random.Generator
) -> str:
    """Write the notes of an agent that a token budget may have cut off.

    Args:
        moves: The steps of the whole solution.
        num_moves: How many of them the agent has done.
        answer: The right answer; only an agent that has done all moves may give it.
        rng: Draws the tools that it used, and where its notes end.

    Returns:
        Its results and reasoning, such as "3 + 4 = 7 ; 7 *"; half of the unfinished ones end within a step.
    """
    tools = _draw_tools(rng)
    # The budget may also end between the last move and the answer.
    if num_moves == len(moves):
        has_answer = _flip(0.8, rng)
        is_brief = _flip(0.3, rng)
        last_words = answer if has_answer else None
        return write_notes_on_moves(moves, last_words, tools, is_brief)

    notes = write_notes_on_moves(moves[:num_moves], None, tools, brief=False)
    is_cut_within_step = rng.random() < 0.5
    if not is_cut_within_step:
        return notes
    next_step = moves[num_moves].text.split()
    num_words = int(rng.integers(1, len(next_step)))
    begun_step = " ".join(next_step[:num_words])
    return f"{notes} ; {begun_step}" if num_moves else begun_step


def _draw_shared_notes(item: Item, tools: Sequence[str], rng: np.random.Generator) -> list[str]:
    """Write the notes of two agents, each with one half of the work, in parallel or one after the other.

    Args:
        item: The question.
        tools: Names of the tools that both used.
        rng: Draws the order of work and whether the agents are brief.

    Returns:
        Two texts: results, reasoning and answer of either agent.
    """
    first, second = split_work(item)
    in_parallel = _flip(0.5, rng)
    is_brief = _flip(0.4, rng)
    first_notes = write_notes_on_moves(first.moves, first.answer, tools, is_brief)
    # In parallel, the second agent cannot know the result of the first that its half begins with.
    if in_parallel and not second.is_independent:
        second_notes = write_notes([], "", NOTHING)
    else:
        second_notes = write_notes_on_moves(second.moves, second.answer, tools, is_brief)
    return [first_notes, second_notes]


def _draw_votes(item: Item, rng: np.random.Generator) -> list[str]:
    """Draw three agents' votes on a question, of which the majority is right, in random order.

    Args:
        item: The question.
        rng: Random numbers.

    Returns:
        Three answers; NOTHING stands for an agent without one, which does not count in the majority.
    """
    wrong_vote = NOTHING if rng.random() < 0.3 else _draw_wrong_answer(item, rng)
    third_vote = item.reference if rng.random() < 0.3 else wrong_vote
    votes = [item.reference, item.reference, third_vote]
    # One right vote is a majority where the other two agents have no answer.
    if rng.random() < 0.15:
        votes = [item.reference, NOTHING, NOTHING]
    order = rng.permutation(3)
    return [votes[i] for i in order]


# One writer per kind of trace ----------------------------------------------------------------------


def write_trace(item: Item, rng: np.random.Generator) -> Trace:
    """Write one training conversation: an agent in a random role of a team solves an item.

    Args:
        item: A question of one of FAMILIES.
        rng: Draws the kind of trace, its hints, tools and mistakes.

    Returns:
        (messages, tools): the conversation, whose assistant turns are the targets of supervised fine-tuning, and the
        names of the tools on offer.

    Raises:
        TaskError: For a family without traces.
    """
    # Teams answer a multiple-choice question with the words of the option, not with its letter.
    item = answer_in_words(item)
    moves = list_moves(item)
    writers = list(_WRITERS)
    weights = np.array(list(_WRITERS.values()))
    index = int(rng.choice(len(writers), p=weights / weights.sum()))
    write_kind = writers[index]
    return write_kind(item, moves, rng)


def _write_solver_trace(
    item: Item,
    moves: Sequence[Move],
    rng: np.random.Generator,
    role: str,
    answer: str,
    hints: Sequence[str] = (),
    context: Sequence[str] = (),
    brief: bool = False,
) -> Trace:
    """Write a conversation in which an agent works through steps of a solution and then answers.

    Args:
        item: The question.
        moves: The steps that this agent does: a tool call or a line of reasoning each.
        rng: Draws the tools on offer, distractors and the order of hints.
        role: The agent's role in the system message.
        answer: What it answers at the end.
        hints: Instructions that it obeys ("be brief"); hints to use a tool are added here.
        context: What other agents wrote, put behind the question, such as "evidence 3 + 4 = 7".
        brief: Whether it leaves its reasoning out.

    Returns:
        (messages, tools): the conversation, and the names of the tools on offer.
    """
    tools = _draw_tool_choice(rng, moves)
    system = _write_hints(role, rng, [*hints, *tools.hints], tools.offered)
    user = write_user_message(item.prompt, *context)
    turns = carry_out_moves(moves, answer, tools.used, brief)
    return [system, user, *turns], tools.offered


def _write_reasoner_trace(item: Item, moves: list[Move], rng: np.random.Generator) -> Trace:
    """Write a conversation in which a reasoner solves a question alone."""
    brief, hints = _draw_style(rng)
    return _write_solver_trace(
        item, moves, rng, role="reasoner", answer=item.reference, hints=hints, brief=brief
    )


def _write_continuation_trace(item: Item, moves: list[Move], rng: np.random.Generator) -> Trace:
    """Write a conversation in which a reasoner goes on where another agent stopped.

    Args:
        item: The question.
        moves: The steps of its solution; the other agent has done the first few, none or all of them.
        rng: Draws how many steps are done, the other agent's notes, hints and tools.

    Returns:
        (messages, tools): the conversation, with the other agent's notes as "evidence ..." behind the question, and
        the names of the tools on offer.
    """
    # The reasoner does only the steps that the notes do not hold yet.
    num_moves = int(rng.integers(len(moves) + 1))
    notes = _draw_partial_notes(moves, num_moves, item.reference, rng)
    brief, hints = _draw_style(rng)
    return _write_solver_trace(
        item,
        moves[num_moves:],
        rng,
        role="reasoner",
        answer=item.reference,
        hints=hints,
        context=[f"evidence {notes}"],
        brief=brief,
    )


def _write_direct_trace(item: Item, moves: list[Move], rng: np.random.Generator) -> Trace:
    """Write a conversation in which an answerer gets no evidence: it calls tools if any help, then answers."""
    return _write_solver_trace(item, moves, rng, role="answerer", answer=item.reference, brief=True)


def _write_verifier_trace(item: Item, moves: list[Move], rng: np.random.Generator) -> Trace:
    """Write a conversation in which a verifier judges a draft "right" or "wrong".

    Args:
        item: The question.
        moves: The steps of its right solution, which a careful verifier does again.
        rng: Draws the draft, the hint "check each step" and the tools.

    Returns:
        (messages, tools): the conversation, and the names of the tools on offer.
    """
    draft, verdict = _draw_draft(item, moves, rng)
    # Without the hint the verifier writes no reasoning, though it may still call tools.
    is_careful = _flip(0.6, rng)
    return _write_solver_trace(
        item,
        moves,
        rng,
        role="verifier",
        answer=verdict,
        hints=[CHECK] if is_careful else [],
        context=[f"draft {draft}"],
        brief=not is_careful,
    )


def _write_corrector_trace(item: Item, moves: list[Move], rng: np.random.Generator) -> Trace:
    """Write a conversation in which a reasoner sees a draft and a verifier's check, and solves the question anew.

    Args:
        item: The question, with its right answer.
        moves: The steps of its solution in order: tool calls, or lines of reasoning.
        rng: Draws a right or wrong draft, the check that fits it, and the style (with or without written reasoning,
            and the hint in the system message that asks for it).

    Returns:
        (messages, tools): the conversation up to the right answer, and the names of the tools on offer.
    """
    draft, check = _draw_checked_draft(item, moves, rng)
    brief, hints = _draw_style(rng)
    return _write_solver_trace(
        item,
        moves,
        rng,
        role="reasoner",
        answer=item.reference,
        hints=hints,
        context=[f"draft {draft}", f"evidence {check}"],
        brief=brief,
    )


def _write_worker_trace(item: Item, moves: list[Move], rng: np.random.Generator) -> Trace:
    """Write a conversation in which a worker does one half of the work on a question.

    Args:
        item: The question.
        moves: Not used: each half has its own steps.
        rng: Draws the half, the notes of the first worker if the second sees any, hints and tools.

    Returns:
        (messages, tools): the conversation, and the names of the tools on offer.
    """
    first, second = split_work(item)
    is_second = _flip(0.6, rng)
    half = second if is_second else first
    context = [f"subtask {half.name}"]
    has_notes = is_second and _flip(0.6, rng)
    if has_notes:
        note_tools = _draw_tools(rng)
        notes_are_brief = _flip(0.4, rng)
        notes = write_notes_on_moves(first.moves, first.answer, note_tools, notes_are_brief)
        context.append(f"evidence {notes}")

    # Without the first half's result a second half that builds on it cannot be done: the right answer is NOTHING.
    is_stuck = is_second and not has_notes and not second.is_independent
    brief, hints = _draw_style(rng)
    return _write_solver_trace(
        item,
        () if is_stuck else half.moves,
        rng,
        role="worker",
        answer=NOTHING if is_stuck else half.answer,
        hints=hints,
        context=context,
        brief=brief,
    )


def _write_answerer_trace(item: Item, moves: list[Move], rng: np.random.Generator) -> Trace:
    """Write a conversation in which an answerer turns what other agents wrote into the final answer.

    Args:
        item: The question.
        moves: The steps of its solution: a tool call or a line of reasoning each.
        rng: Draws which of four kinds of evidence the answerer reads, and its contents.

    Returns:
        (messages, tools): system message, question with evidence, and answer; no tools, for an answerer with evidence
        only reads.
    """
    evidence_kinds = ("notes", "checked draft", "shared work", "votes")
    evidence_kind = evidence_kinds[int(rng.integers(len(evidence_kinds)))]
    tools = _draw_tools(rng)  # of the agents that shared the work
    if evidence_kind == "notes":
        # One agent's results and reasoning, at times without the last step.
        lacks_last_move = _flip(0.2, rng)
        num_moves = len(moves) - int(lacks_last_move)
        notes = _draw_partial_notes(moves, num_moves, item.reference, rng)
        context = [f"evidence {notes}"]
    elif evidence_kind == "checked draft":
        # A solution that may be wrong, and a verifier's verdict on it.
        draft, check = _draw_checked_draft(item, moves, rng)
        context = [f"draft {draft}", f"evidence {check}"]
    elif evidence_kind == "shared work":
        # Two agents' notes, each on one half of the work.
        context = [f"evidence {notes}" for notes in _draw_shared_notes(item, tools, rng)]
    else:
        # Three agents' answers, of which the majority is right.
        votes = " ".join(_draw_votes(item, rng))
        context = [f"votes {votes}"]
    system = _write_hints("answerer", rng)
    user = write_user_message(item.prompt, *context)
    reply = write_assistant_turn(format_reply(item.reference))
    return [system, user, reply], []


def _write_router_trace(item: Item, moves: list[Move], rng: np.random.Generator) -> Trace:
    """Write a conversation in which a router names what a question needs, for example "calculator"."""
    system = _write_hints("router", rng)
    user = write_user_message(item.prompt)
    route = format_reply(decide_route(item))
    reply = write_assistant_turn(route)
    return [system, user, reply], []


def _write_coordinator_trace(item: Item, moves: list[Move], rng: np.random.Generator) -> Trace:
    """Write a conversation in which a router divides a question: "first 3 + 4 then * 2".

    Args:
        item: The question.
        moves: Not used: the plan names the halves, not their steps.
        rng: Draws whether the halves run in parallel ("split") or in order ("plan"), and distractors.

    Returns:
        (messages, tools): system message, question and plan; no tools.
    """
    first, second = split_work(item)
    division = SPLIT if rng.random() < 0.5 else PLAN
    # The system message says how the halves will run: "role router split ...".
    content = _write_hints("router", rng)["content"]
    content = content.replace("role router", f"role router {division}", 1)
    plan = f"first {first.name} then {second.name}"
    reply = write_assistant_turn(format_reply(plan))
    system = {"role": "system", "content": content}
    user = write_user_message(item.prompt)
    return [system, user, reply], []


_WRITERS: dict[Callable[[Item, list[Move], np.random.Generator], Trace], float] = {  # by weight
    _write_reasoner_trace: 4.0,
    _write_continuation_trace: 1.5,
    _write_direct_trace: 1.5,
    _write_verifier_trace: 2.0,
    _write_corrector_trace: 1.0,
    _write_answerer_trace: 3.0,
    _write_router_trace: 0.3,
    _write_coordinator_trace: 1.0,
    _write_worker_trace: 2.0,
}
