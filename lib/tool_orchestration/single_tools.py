"""Every tool by itself, used by a fixed procedure: what each tool can do, without an orchestrator.

A strategy is a generator: it yields the argument of a call, is sent the reply, and returns its answer. `python` and
`calculator` get the expression of a question, `lookup` and `search` are asked relation by relation, and a model is
asked the question as it stands. Office tasks are left out: no single tool can do them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator, Sequence
from typing import Any

from lib import tasks
from lib.experiment import seeds
from lib.rl import call_protocol, rollout
from lib.rl.expert_pool import ExpertReply
from lib.tasks import Item
from lib.tasks.scorers import Scorer
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_environment import ToolEnvironment, ToolEpisode

# Yields arguments of calls, is sent replies, returns the answer.
Strategy = Generator[str, str, str]
_SENTENCE = re.compile(r" is (\S+) \.$")


def make_strategy(tool: str, item: Item) -> Strategy:
    """Make the procedure by which a tool is used on a question.

    Args:
        tool: Name of a function, or of a model.
        item: The question.

    Returns:
        The strategy.
    """
    if tool in ("python", "calculator"):
        return _ask_once(item.prompt.removesuffix(" = ?"))
    if tool in ("lookup", "search"):
        return _follow_relations(tool, item)
    return _ask_once(call_protocol.USER_QUESTION)


def _ask_once(argument: str) -> Strategy:
    """Call the tool once; its reply is the answer."""
    return (yield argument)


def _follow_relations(tool: str, item: Item) -> Strategy:
    """Answer a multi-hop question by one call for each relation, from the innermost to the outermost.

    Args:
        tool: "lookup" or "search".
        item: A question whose id ends in its relations and its subject.

    Returns:
        The strategy; its answer is the subject that the last relation leads to.
    """
    *relations, subject = item.id.split("/")[1:]
    for relation in reversed(relations):
        if tool == "lookup":
            subject = yield f"{relation} {subject}"
            continue
        sentence = _SENTENCE.search((yield f"{relation} of {subject}"))
        if sentence is None:
            return call_protocol.ERROR_REPLY
        subject = sentence[1]
    return subject


def try_single_tools(
    environment: ToolEnvironment,
    assigned: Sequence[Assignment],
    tools: Sequence[str],
    split: str,
    scorer: Scorer | None = None,
) -> list[dict[str, Any]]:
    """Call every tool by itself on every question that it accepts, at the menu's prices.

    Args:
        environment: Executes tool calls.
        assigned: Questions with menus.
        tools: Names of the tools to use.
        split: Name of the set of questions, which seeds models' replies.
        scorer: How replies are scored; None for the strict rule of the procedural families.

    Returns:
        Rows with item (number), tool, correct (nan where a reply was lost), cost_usd, seconds, calls, and how many
        replies the infrastructure lost (failed), the model's own limit cut (truncated) and failed otherwise (unusable).
    """
    rows = []
    for tool in tools:
        numbers = []
        for number, assignment in enumerate(assigned):
            if tool in {offer.name for offer in assignment.usable}:
                numbers.append(number)
        tool_assignments = [assigned[number] for number in numbers]
        episodes, answers = _use_tool(environment, tool, tool_assignments, split)
        scores = _score_tool_answers(environment, episodes, answers, scorer)
        for number, episode, correct in zip(numbers, episodes, scores, strict=True):
            rows.append(
                {
                    "item": number,
                    "tool": tool,
                    "correct": math.nan if episode.failed else correct,
                    "cost_usd": episode.cost_usd,
                    "seconds": episode.seconds,
                    "calls": episode.counts.get(tool, 0),
                    **count_failures(episode.replies),
                }
            )
    return rows


def count_failures(replies: Sequence[ExpertReply]) -> dict[str, int]:
    """Count the replies of tools without an answer.

    Args:
        replies: Replies of any tools.

    Returns:
        How many the infrastructure lost (failed), the model's own limit cut (truncated), and failed otherwise
        (unusable).
    """
    num_lost = sum(reply.lost for reply in replies)
    num_truncated = sum(reply.truncated for reply in replies)
    num_without_answer = sum(reply.failure is not None for reply in replies)
    return {
        "failed": num_lost,
        "truncated": num_truncated,
        "unusable": num_without_answer - num_lost - num_truncated,
    }


def _score_tool_answers(
    environment: ToolEnvironment,
    episodes: Sequence[ToolEpisode],
    answers: Sequence[str],
    scorer: Scorer | None,
) -> list[float]:
    """Score the answers of a single tool.

    Args:
        environment: Runs a scorer that is a model.
        episodes: With the question and the tool's replies.
        answers: The strategy's answer in each episode, for scoring by rule.
        scorer: Reads the tool's whole last reply; None for the strict rule of the procedural families.

    Returns:
        A score in [0, 1] for each episode.
    """
    items = [episode.assignment.work for episode in episodes]
    if scorer is None:
        replies = [tasks.format_reply(answer) for answer in answers]
        return [tasks.score_reply(*pair) for pair in zip(items, replies, strict=True)]
    replies = [episode.replies[-1].text for episode in episodes]
    return [score.value for score in environment.pool.run(scorer.score_all(items, replies))]


def _use_tool(
    environment: ToolEnvironment, tool: str, assigned: Sequence[Assignment], split: str
) -> tuple[list[ToolEpisode], list[str]]:
    """Use one tool by its strategy on many questions, side by side.

    Args:
        environment: Executes tool calls.
        tool: Name of the tool.
        assigned: Questions with menus that have the tool.
        split: Name of the set of questions, which seeds models' replies.

    Returns:
        The episodes with their calls, and the answer of each; "" where a reply was lost.
    """
    strategies = [make_strategy(tool, assignment.work) for assignment in assigned]
    episodes = [ToolEpisode(assignment, [], [], 0) for assignment in assigned]
    answers = [""] * len(strategies)
    arguments = {index: next(strategy) for index, strategy in enumerate(strategies)}
    turn = 0
    while arguments:
        calls = []
        for index, argument in arguments.items():
            seed = seeds.key("toolorchestra", "tried", split, tool, index, seed=turn) >> 1
            call = call_protocol.Call(tool, argument)
            calls.append((episodes[index], call, int(seed)))
        replies = environment.answer_calls(calls)

        # Hand each reply to its strategy, which makes another call or ends with an answer.
        next_arguments = {}
        for index, (episode, call, _), reply in zip(arguments, calls, replies, strict=True):
            episode.turns.append(rollout.Turn("", call, reply))
            if reply.lost:
                continue
            try:
                next_arguments[index] = strategies[index].send(
                    call_protocol.clean_reply(reply.text)
                )
            except StopIteration as end:
                answers[index] = end.value
        arguments = next_arguments
        turn += 1
    return episodes, answers
