"""What an orchestrator has before it: a menu, a user, tools as schemas, the sandbox, and tools at list prices."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pandas as pd

from lib.params import Params, ToolSettings
from lib.reporting.toolorchestra.common import MILLI, MILLION
from lib.routing.toolorchestra import exams, menu, prompted
from lib.routing.toolorchestra.assignments import Assignment
from lib.routing.toolorchestra.desk import Desk
from lib.routing.toolorchestra.menu import SIGNS, Offer
from lib.routing.toolorchestra.study import Results
from lib.tools.python import python
from lib.tools.sandbox import Sandbox

FAMILIES = {"chain": "chains", "big": "big numbers", "facts": "facts"}
CODES = (
    "print(sum(range(10)))", "open('/etc/passwd').read()", "import os; os.system('ls')", "while True: pass", "3 +",
)  # fmt: skip


def assigned(results: Results, settings: ToolSettings) -> list[Assignment]:
    """The assignments of the exam `test` at list prices, in the order of its items."""
    return exams.exam("test", results.offers, results.offers, settings)


def example(results: Results, settings: ToolSettings) -> Assignment:
    """A question with as long a menu as any, and a user who likes tools by name, if there is one."""
    asked = [a for a in assigned(results, settings) if a.kind != "office"]

    def told(a: Assignment) -> tuple:
        who = a.preference
        return bool(who.tools) and not who.confidential, min(who.accuracy, who.cost) > 0, len(a.menu.offers)

    return max(asked, key=told)


def good_at(skills: Mapping[str, int]) -> str:
    """Skills in words."""
    return ", ".join(f"{FAMILIES[family]} up to {reach}" for family, reach in skills.items()) or "nothing by its card"


def menu_words(assignment: Assignment) -> str:
    """The prompt of an orchestrator, and what the user would say."""
    told = [f"{m['role'] + ':':8} {m['content']}" for m in assignment.messages]
    return "\n".join([*told, f"The user would say: {assignment.preference.sentence}"])


def menu_table(assignment: Assignment) -> pd.DataFrame:
    """Each tool of a menu: what the orchestrator reads, and what that means."""
    return pd.DataFrame(
        [
            {
                "reads": offer.text, "$ per million calls": offer.typical_dollars * MILLION,
                "ms": offer.typical_seconds * MILLI, "good at": good_at(offer.skills),
                "liked": offer.name in assignment.preference.tools,
            }
            for offer in assignment.menu.offers
        ]
    )  # fmt: skip


def signs_words() -> str:
    """What the signs of a menu mean."""
    told = ", ".join(f"{sign} {FAMILIES[family]}" for family, sign in SIGNS.items())
    return f"Signs: {told}. Digits after $ and / are logarithms: one more is twice as dear, or takes twice as long."


def schema(assignment: Assignment) -> str:
    """The first function on a menu, or else the first tool, as OpenAI's API is told of it."""
    desk = Desk(None, {})  # type: ignore[arg-type]  # nobody is asked anything
    told = prompted.schemas(assignment, desk, lab=False)
    places = [i for i, offer in enumerate(assignment.menu.offers) if not offer.model]
    return json.dumps(told[places[0] if places else 0], indent=2)


def sandbox_table() -> pd.DataFrame:
    """Lines that a model may write, benign and not: what kind of end they come to, and what is heard of it."""
    with Sandbox() as sandbox:
        tool = python(sandbox)
        return pd.DataFrame(
            [
                {
                    "code": code,
                    "kind of end": sandbox.run(code).kind or "none: it worked",
                    "heard": tool({"code": code}),
                }
                for code in CODES
            ]
        )


def _kind(offer: Offer, params: Params) -> str:
    if not offer.model:
        return "function"
    about = params.llm.models[params.tools.models[offer.name]]
    return "scripted stand-in" if about.backend == "scripted" else f"model, {about.backend}"


def tool_table(results: Results, params: Params) -> pd.DataFrame:
    """Every tool that there is, at list prices."""
    return pd.DataFrame(
        [
            {
                "tool": offer.name,
                "kind": _kind(offer, params),
                "$ per million calls": offer.typical_dollars * MILLION,
                "ms": offer.typical_seconds * MILLI,
                "good at": "an office's own records" if offer.name == menu.OFFICE else good_at(offer.skills),
                "on the user's machine": offer.local or offer.name == menu.OFFICE,
                "in training": offer.name not in params.tools.unseen,
            }
            for offer in results.offers.values()
        ]
    )
