"""Episodes of the lab world: an orchestrator thinks what it wants, calls a tool by its name, and hands on the reply.

    <think> needed cheap $ 0 judge0 </think> <call> judge0 question </call>    the tool is asked the user's question
    <response> 8 </response>
    <think> + </think> <answer> it </answer>                                   its reply is the answer

The thought before a call says what the user weighs most, and quotes one fact of the menu: an ability, a price or a
latency, and the tool that has it. An orchestrator that was only taught this form quotes any fact of any tool, whatever
the user weighs; which it should want is what rewards teach.

Left out: queries of the orchestrator's own wording, and several calls before an answer, which are allowed and not
taught.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lib import tasks
from lib.language_models.chat_template import format_tool_call, parse_tool_call
from lib.rl import call_protocol, rollout
from lib.rl.expert_pool import ExpertPool, ExpertQuery, ExpertReply
from lib.rl.generators import Generator
from lib.tool_orchestration.lab_menus import (
    KIND_SIGNS,
    ORCHESTRATOR_SECONDS_PER_TOKEN,
    ORCHESTRATOR_USD_PER_TOKEN,
    WISH_SIGN,
    LabAssignment,
    MenuEntry,
    name_heaviest_wish,
)

VERSION = 2  # of episodes of the lab world and what they cost
MAX_TURNS = 3


def write_call_turn(assignment: LabAssignment, entry: MenuEntry, fact_index: int) -> str:
    """Write a turn in which the orchestrator thinks, and passes the user's question on to a tool.

    For example, for a user who weighs cost most, the tool "judge0", and its price level 0 as the quoted fact:

        <think> needed cheap $ 0 judge0 </think> <call> judge0 question </call>

    Args:
        assignment: A question with its menu of tools and its user.
        entry: The tool on the menu that is called.
        fact_index: Which fact of the menu about this tool the thought quotes: 0 for its ability at this kind of
            question, 1 for its price level, 2 for its latency level.

    Returns:
        The text of the turn: a thought, which names the user's most heavily weighted objective and quotes the fact, and
        the call.
    """
    objective = name_heaviest_wish(assignment.user)  # "best", "cheap" or "fast"
    fact = entry.list_facts(assignment.item.group)[fact_index]  # such as "$ 0 judge0"
    thought = f"<think> {WISH_SIGN} {objective} {fact} </think>"
    call = format_tool_call(entry.name, call_protocol.USER_QUESTION)
    return f"{thought} {call}"


def write_answer_turn(assignment: LabAssignment) -> str:
    """Write the turn that ends an episode: the orchestrator gives the last tool's reply as its answer.

    Args:
        assignment: A question with its menu of tools and its user.

    Returns:
        The text of the turn, such as `<think> + </think> <answer> it </answer>`: the thought is the sign of the kind of
        question, and "it" stands for the last reply.
    """
    sign = KIND_SIGNS[assignment.item.group]
    answer = tasks.format_reply(call_protocol.LAST_REPLY)
    return f"<think> {sign} </think> {answer}"


@dataclass
class LabEpisode(rollout.Episode):
    """An episode of an orchestrator on one question with a menu of tools.

    Attributes:
        seconds: Latency of the calls, without the orchestrator's own writing.
    """

    seconds: float = 0.0

    @property
    def assignment(self) -> LabAssignment:
        """The question with its menu and user."""
        return self.task

    @property
    def total_cost_usd(self) -> float:
        """US dollars of the calls and of the orchestrator's tokens, read and written, each counted once."""
        return self.cost_usd + len(self.ids) * ORCHESTRATOR_USD_PER_TOKEN

    @property
    def total_seconds(self) -> float:
        """Latency in seconds of the calls and of the orchestrator's writing."""
        return self.seconds + self.num_written_tokens * ORCHESTRATOR_SECONDS_PER_TOKEN


class LabMenuEnvironment:
    """Reads an orchestrator's turns and answers its calls, through a pool of lab models."""

    def __init__(self, pool: ExpertPool) -> None:
        """
        Args:
            pool: Runs the lab models, by their names.
        """
        self.pool = pool

    def parse_turn(self, episode: LabEpisode, text: str) -> call_protocol.ParsedTurn:
        """Parse a turn of the orchestrator.

        Args:
            episode: Episode whose menu says which tools there are.
            text: What the orchestrator wrote.

        Returns:
            A call, an answer, or a malformed turn with the reason.
        """
        if tasks.extract_answer(text) is not None:
            return call_protocol.Answer(text)
        parsed = parse_tool_call(text)
        if parsed is None:
            return call_protocol.Malformed("neither a call nor an answer")
        name, query = parsed
        if episode.assignment.find_entry(name) is None:
            return call_protocol.Malformed(f"there is no tool {name!r} on the menu")
        if not query:
            return call_protocol.Malformed(f"{name} takes a question")
        return call_protocol.Call(name, query)

    def answer_calls(
        self, calls: Sequence[tuple[LabEpisode, call_protocol.Call, int]]
    ) -> list[ExpertReply]:
        """Answer calls at the prices of their menus.

        Args:
            calls: Episodes, each with its call and the seed of the reply.

        Returns:
            Replies in the order of the calls.
        """
        entries = []
        queries = []
        for episode, call, seed in calls:
            entry = episode.assignment.find_entry(call.expert)
            # The word "question" as the argument stands for the user's question.
            question = call.query
            if question == call_protocol.USER_QUESTION:
                question = episode.assignment.item.prompt
            entries.append(entry)
            queries.append(ExpertQuery(entry.tool.name, question, seed))

        replies = []
        for (episode, _, _), entry, reply in zip(
            calls, entries, self.pool.ask(queries), strict=True
        ):
            episode.seconds += reply.tokens_out * entry.seconds_per_token
            replies.append(charge_reply(reply, entry))
        return replies


def charge_reply(reply: ExpertReply, entry: MenuEntry) -> ExpertReply:
    """Return a tool's reply with its cost at the menu's price per token, read or written."""
    num_tokens = reply.tokens_in + reply.tokens_out
    return ExpertReply(
        reply.text,
        num_tokens * entry.usd_per_token,
        reply.tokens_in,
        reply.tokens_out,
        reply.seconds,
        reply.failure,
    )


def roll_out_assignments(
    generator: Generator,
    environment: LabMenuEnvironment,
    assignments: Sequence[LabAssignment],
    seed: int,
    temperature: float,
) -> list[LabEpisode]:
    """Roll out one episode for each assignment.

    Args:
        generator: Samples the orchestrator's turns.
        environment: Answers calls to tools.
        assignments: Questions with menus.
        seed: Seed of all random draws of this batch.
        temperature: Sampling temperature of the orchestrator.

    Returns:
        Scored episodes in the order of the assignments.
    """
    episodes = []
    for assignment in assignments:
        ids = list(generator.encode_prompt(assignment.messages))
        episodes.append(LabEpisode(assignment, ids, [False] * len(ids), len(ids)))
    rollout.roll_out(generator, environment, episodes, MAX_TURNS, seed, temperature)
    for episode in episodes:
        episode.correct = score_episode(episode)
    return episodes


def score_episode(episode: LabEpisode) -> float:
    """Score an episode: 1.0 for a correct answer, else 0.0; nan where the infrastructure lost a reply."""
    if episode.failed:
        return math.nan
    if episode.answer is None:
        return 0.0
    reply = tasks.format_reply(episode.answer)
    return tasks.score_reply(episode.assignment.item, reply)


def measure_tool_outcomes(
    environment: LabMenuEnvironment, assignments: Sequence[LabAssignment], sample: int
) -> dict[str, np.ndarray]:
    """Call every tool on every menu once, without an orchestrator.

    Args:
        environment: Answers calls to tools.
        assignments: Questions with menus.
        sample: Number of the sample, which seeds the tools' replies.

    Returns:
        By measure, "correct" (0 or 1), "cost_usd" and "seconds" (latency): an array (assignments, MENU_SIZE), with the
        tools in the order of the menu.
    """
    calls = []
    for index, assignment in enumerate(assignments):
        for entry in assignment.entries:
            episode = LabEpisode(assignment, [], [], 0)
            call = call_protocol.Call(entry.name, call_protocol.USER_QUESTION)
            calls.append((episode, call, rollout.derive_turn_seed(sample, index, 0)))

    # All calls at once, since the lab models answer in batches.
    replies = environment.answer_calls(calls)

    correct = []
    for (episode, _, _), reply in zip(calls, replies, strict=True):
        answer = tasks.format_reply(call_protocol.clean_reply(reply.text))
        correct.append(tasks.score_reply(episode.assignment.item, answer))
    # (menus, tools on a menu)
    shape = (len(assignments), -1)
    return {
        "correct": np.array(correct).reshape(shape),
        "cost_usd": np.array([reply.cost_usd for reply in replies]).reshape(shape),
        "seconds": np.array([episode.seconds for episode, _, _ in calls]).reshape(shape),
    }
