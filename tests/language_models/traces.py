"""Traces that teach agents and teams, taken apart."""

import re
from functools import cache

from lib import tasks
from lib.experiment import seeds
from lib.language_models.chat_template import parse_tool_call
from lib.language_models.training import agent_traces, team_traces
from lib.language_models.training.training_data import TRACE_WRITERS
from lib.tasks import Item, extract_answer

TAUGHT = {  # family, skin and difficulties by style
    "agent": [(family, "any", None) for family in agent_traces.FAMILIES],
    "team": [
        ("chain", "plain", (1, 2, 3, 4, 5, 6)),
        ("passage", "plain", (1, 2, 3, 4, 5)),
        ("facts", "plain", (1, 2, 3)),
        ("facts", "choice", (1, 2, 3)),
        ("mixed", "plain", (1, 2, 3)),
    ],
}
LEFT = r" (?=(?:evidence|draft|votes|subtask) )"  # before what others left


class Shown:
    """A trace, taken apart."""

    def __init__(self, item: Item, messages, tools) -> None:
        self.item, self.messages, self.tools = item, messages, tools
        words = messages[0]["content"].removeprefix("role ").split(" ", 1)
        self.role, self.told = words[0], " ".join(words[1:])
        content = messages[1]["content"]
        self.alone = content == item.prompt
        assert self.alone or content.startswith(f"question {item.prompt} "), content
        rest = "" if self.alone else content.removeprefix(f"question {item.prompt} ")
        self.shown = [tuple(part.split(" ", 1)) for part in re.split(LEFT, rest) if part]
        self.kinds = [kind for kind, _ in self.shown]
        said = [m["content"] for m in messages[2:] if m["role"] == "assistant"]
        self.calls = [parse_tool_call(text) for text in said[:-1]]
        self.results = [m["content"] for m in messages if m["role"] == "tool"]
        self.thoughts = [
            step
            for text in said
            for part in re.findall("<think> (.*?) </think>", text)
            for step in part.split(" ; ")
        ]
        self.answer = extract_answer(said[-1])
        self.needed = item.worked_solution.split(" ; ")  # steps of the whole solution

    @property
    def flawless(self) -> bool:
        """Whether the draft that is shown is right, in its steps if it has any and in its answer."""
        steps, answer = noted(self.shown[0][1])
        return steps in ([], self.needed) and answer == self.item.reference

    @property
    def looked_up(self) -> list[str]:
        """The records that were asked for, as steps of a solution."""
        out = []
        for (name, argument), told in zip(self.calls, self.results, strict=True):
            if name in ("lookup", "search"):
                relation, subject = argument.replace(" of ", " ").split()
                out.append(
                    f"the {relation} of {subject} is {told if name == 'lookup' else told.split()[-2]}"
                )
        return out


def noted(text: str) -> tuple[list[str], str]:
    """Steps and answer of somebody's notes."""
    steps, _, answer = f" {text}".partition(" answer ")
    return [] if steps.strip() in ("", team_traces.NOTHING) else steps.strip().split(" ; "), answer


@cache
def traces(style: str) -> tuple[Shown, ...]:
    """Some two thousand traces of all families."""
    out = []
    for family, skin, difficulties in TAUGHT[style]:
        for number, item in enumerate(
            tasks.draw_items(family, "train", 420, difficulties, skin, seed=8)
        ):
            made = TRACE_WRITERS[style](item, seeds.rng("test", style, family, skin, seed=number))
            out.append(Shown(team_traces.answer_in_words(item) if style == "team" else item, *made))
    return tuple(out)


def of(style: str, *roles: str) -> list[Shown]:
    found = [shown for shown in traces(style) if shown.role in roles]
    assert len(found) > 100
    return found
