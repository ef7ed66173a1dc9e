"""An orchestrator that is only prompted: any model of llm.models, with the menu as OpenAI function schemas.

For the pilot study (ToolOrchestra, appendix A): an off-the-shelf model is told what there is, what it costs and what
the user prefers, and nothing trains it. The same tools answer, through the same desk.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from lib import tasks
from lib.llm.client import Reply
from lib.llm.errors import ReplyError
from lib.llm.json_replies import arguments, words
from lib.rl import call_protocol
from lib.rl.rollout import Exchange, draws
from lib.tasks import Item
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.tool_environment import Desk, ToolEpisode, judged
from lib.tool_orchestration.tool_menu import Offer
from lib.tools import Tool

VERSION = 1  # of the episodes of an orchestrator that is only prompted
LAB_SYSTEM = "role reasoner"  # lab models were taught roles, not sentences
_ONE = {"type": "object", "properties": {"words": {"type": "string"}}, "required": ["words"]}
_SYSTEM = (
    "Solve the task with the tools on offer. Each call costs what its description says, and every turn takes time. "
    "{} Sums of single digits go strictly from left to right, and only the last digit of every result counts. End "
    "with <answer> ... </answer>."
)


def roll(
    desk: Desk, model: str, wanted: Sequence[Assignment], rounds: int, key: int, temperature: float
) -> list[ToolEpisode]:
    """An episode per assignment, in order; model: a name of llm.models; own tokens are not counted here."""
    pool = desk.pool
    lab = pool.client.settings.models[model].backend == "lab"
    episodes = [ToolEpisode(a, [], [], 0) for a in wanted]
    held = [messages(a, lab) for a in wanted]
    offered = [schemas(a, desk, lab) for a in wanted]
    for turn in range(rounds):
        alive = [i for i, e in enumerate(episodes) if not e.done]
        if not alive:
            break
        keys = [draws(key, i, turn) for i in alive]
        replies = pool.converse(
            model, [held[i] for i in alive], [offered[i] for i in alive], keys, temperature
        )
        asked = []
        for i, one, seed in zip(alive, replies, keys, strict=True):
            said, call = _read(episodes[i], one, desk)
            episodes[i].done = turn == rounds - 1 or not call
            if not episodes[i].done:
                asked.append((i, said, call, seed))
                continue
            fine = call is not None or tasks.answered(said) is not None
            malformed = "" if fine else "neither a call nor an answer"
            episodes[i].exchanges.append(Exchange(said, call, None, malformed))
        heard = desk.reply([(episodes[i], call, seed) for i, _, call, seed in asked])
        for (i, said, call, _), reply in zip(asked, heard, strict=True):
            episodes[i].exchanges.append(Exchange(said, call, reply))
            held[i] += _told(call, call_protocol.heard(reply.text), f"call_{turn}")
    for episode in episodes:
        episode.correct = judged(episode)
    return episodes


def messages(assignment: Assignment, lab: bool) -> list[dict[str, Any]]:
    """What the model is told first."""
    system = LAB_SYSTEM if lab else _SYSTEM.format(assignment.preference.sentence)
    return [{"role": "system", "content": system}, {"role": "user", "content": assignment.prompt}]


def schemas(assignment: Assignment, desk: Desk, lab: bool) -> list[dict[str, Any]]:
    """The menu as OpenAI function schemas; a lab model writes one line of words, whatever the parameters."""
    out = [_schema(offer, desk) for offer in assignment.menu.offers]
    if not isinstance(assignment.work, Item):
        out += assignment.work.domain.schemas()
    if lab:
        return [
            {"type": "function", "function": each["function"] | {"parameters": _ONE}}
            for each in out
        ]
    return out


def _schema(offer: Offer, desk: Desk) -> dict[str, Any]:
    good = (
        ", ".join(f"{family} up to difficulty {reach}" for family, reach in offer.skills.items())
        or "unknown"
    )
    model = Tool(offer.name, f"A model. Good at: {good}.", {"question": {"type": "string"}}, str)
    told = desk.tools.get(offer.name, model).schema["function"]
    price = f" About ${offer.typical_cost_usd:.2g} and {offer.typical_seconds:.2g} s per call."
    return {"type": "function", "function": told | {"description": told["description"] + price}}


def _read(
    episode: ToolEpisode, reply: Reply | ReplyError, desk: Desk
) -> tuple[str, call_protocol.Call | None]:
    """What was said, and the call in it if it is one that can be made; a failed reply is silence."""
    if isinstance(reply, ReplyError) or not reply.calls:
        return reply.text, None
    name, written = reply.calls[0]
    given = arguments(written)
    if given is None:
        return reply.text, None
    line = _line(episode.assignment, desk, name, given)
    return reply.text, None if desk.wrong(episode.assignment, name, line) else call_protocol.Call(
        name, line
    )


def _line(assignment: Assignment, desk: Desk, name: str, given: Mapping[str, Any]) -> str:
    """Arguments as a line of words, in the order of the tool's parameters, whatever that of the model."""
    if name in assignment.menu.office:
        order = assignment.work.domain.function(name).parameters
    else:
        order = tuple(desk.tools[name].parameters) if name in desk.tools else ()
    return words(given[key] for key in (order if set(order) == set(given) else given))


def _told(call: call_protocol.Call, reply: str, mark: str) -> list[dict[str, Any]]:
    written = json.dumps({"words": call.query})
    function = {
        "id": mark,
        "type": "function",
        "function": {"name": call.expert, "arguments": written},
    }
    return [
        {"role": "assistant", "content": None, "tool_calls": [function]},
        {"role": "tool", "tool_call_id": mark, "content": reply},
    ]
