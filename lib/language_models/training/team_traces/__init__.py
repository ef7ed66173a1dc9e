"""Traces for models that work in a team: what each agent of a workflow is shown, and what a good one says (lesson
07).

An agent is shown a question and, behind it, what other agents left: evidence, a draft to check, votes, or its
subtask. What it leaves for others are its notes: results of its calls, its reasoning, its answer. Notes may end
anywhere, because budgets cut them; an agent that reads them goes on from the last whole step.

Traces are made from an item's moves: the calls and reasoning steps that lead to its answer, in order. A tool helps
where numbers are big or a record is needed. Hints are obeyed: "be brief" leaves the reasoning out, "step by step"
writes it, "check each step" makes a verifier work, "use the ..." makes sure that a tool is used. Without a hint an
agent does either, so prompts matter.

Left out: the workflows themselves (`lib.agent_configuration`).
"""

from lib.language_models.training.team_traces.moves import (
    FAMILIES,
    NOTHING,
    Move,
    answer_in_words,
    decide_route,
    list_moves,
    look_up_hops,
    select_helpful_tools,
)
from lib.language_models.training.team_traces.notes import (
    carry_out_moves,
    write_notes,
    write_notes_on_moves,
    write_user_message,
)
from lib.language_models.training.team_traces.shared_work import (
    PLAN,
    SPLIT,
    WorkHalf,
    split_plan,
    split_work,
)
from lib.language_models.training.team_traces.writers import DECOYS, TOOL_HINTS, write_trace

VERSION = 1  # of the traces of teams

__all__ = [
    "DECOYS",
    "FAMILIES",
    "NOTHING",
    "PLAN",
    "SPLIT",
    "TOOL_HINTS",
    "Move",
    "WorkHalf",
    "answer_in_words",
    "carry_out_moves",
    "decide_route",
    "list_moves",
    "look_up_hops",
    "select_helpful_tools",
    "split_plan",
    "split_work",
    "write_notes",
    "write_notes_on_moves",
    "write_trace",
    "write_user_message",
]
