"""The context components of Table 1: each renders one section of the prompt and nothing else.

C = A(c_1, ..., c_n) (section 3.1): an orchestrator's context is the list of its components, assembled
by `assemble` into a system and a user message in the order of appendix A.2. Every component has one
template file under `templates`; the sentences there are ours, the information is A.2's.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from lib.orchestration.environment_copies import Domain, Foresight

VERSION = 1  # of prompts, templates included
TEMPLATES = Path(__file__).parent / "templates"


@dataclass(frozen=True)
class Budget:
    """Dollars of an episode: in all, left, and what a reply has cost so far."""

    total: float
    left: float
    typical: float


@dataclass(frozen=True)
class Situation:
    """All that any component may show at one step; nothing else of the episode exists for a prompt.

    state: words by name; recent: lines on past steps; results: what policies did on copies in this
    step; weights: importance of the objectives, summing to one.
    """

    domain: Domain
    kind: str
    topic: str
    names: tuple[str, ...]
    weights: tuple[float, ...]
    step: int
    horizon: int
    state: Mapping[str, str]
    recent: Sequence[str] = ()
    summary: str = ""
    results: Sequence[str] = ()
    final: bool = True
    limit: int = 0
    steps: int = 1
    budget: Budget | None = None
    cards: str = ""
    tools: str = ""


@dataclass(frozen=True)
class Component:
    """One section of the context. name: as in Table 1; role: which message it belongs to."""

    name: str
    role: str
    template: str
    meaning: str = field(compare=False)

    def render(self, situation: Situation) -> str:
        """The section's text. Raises jinja2.UndefinedError for a template that asks for more than there is."""
        return template(self.template).render(vars(situation)).strip()


QUERY = Component("query", "user", "query.md", "the request of this step")
STATE = Component("state", "user", "state.md", "how things stand")
INSTRUCTIONS = Component("instr", "system", "instructions.md", "role, rules, reply format")
SHORT_MEMORY = Component("mem_s", "user", "short_memory.md", "the last interactions")
LONG_MEMORY = Component(
    "mem_l", "system", "long_memory.md", "a running summary, written by the model"
)
KNOWLEDGE = Component("know", "user", "knowledge.md", "cards that describe the policies")
TOOLS = Component(
    "tools", "user", "tools.md", "signatures of the policies, and what trying them gave"
)
REFLECTION = Component("reflect", "user", "reflection.md", "simulated rollouts")

# Order within a message: A.2, Figures 7, 8 and 14 to 17.
ORDER = (INSTRUCTIONS, LONG_MEMORY, QUERY, KNOWLEDGE, TOOLS, STATE, REFLECTION, SHORT_MEMORY)
_ALWAYS = {"query", "state", "instr", "mem_s", "mem_l"}
TABLE_1 = {
    "KO": _ALWAYS | {"know"},
    "TO": _ALWAYS | {"tools"},
    "RO": _ALWAYS | {"tools", "reflect"},
}


@dataclass(frozen=True)
class RenderedComponent:
    """A rendered component: what a reader of the prompt sees in one colour."""

    component: str
    role: str
    text: str


def components(kind: str, without: Sequence[str] = ()) -> tuple[Component, ...]:
    """The components of KO, TO or RO by Table 1, in the order of the prompt.

    without: names to leave out (Table 5 removes mem_s, mem_l or both).
    Raises ValueError for an unknown orchestrator or component.
    """
    if kind not in TABLE_1:
        raise ValueError(f"unknown orchestrator {kind!r}; there are {', '.join(TABLE_1)}")
    unknown = set(without) - TABLE_1[kind]
    if unknown:
        raise ValueError(
            f"{kind} has no component {sorted(unknown)}; it has {sorted(TABLE_1[kind])}"
        )
    return tuple(each for each in ORDER if each.name in TABLE_1[kind] - set(without))


def render(parts_of: Sequence[Component], situation: Situation) -> list[RenderedComponent]:
    """Every component's section, in order."""
    return [RenderedComponent(each.name, each.role, each.render(situation)) for each in parts_of]


def assemble(parts: Sequence[RenderedComponent]) -> list[dict[str, str]]:
    """The assembly function A: sections joined into one system and one user message."""
    roles = {
        role: [part.text for part in parts if part.role == role] for role in ("system", "user")
    }
    return [{"role": role, "content": "\n\n".join(texts)} for role, texts in roles.items() if texts]


def summary_request(situation: Situation) -> list[dict[str, str]]:
    """The messages that ask for a new running summary (A.2, Figure 9)."""
    return [{"role": "user", "content": template("summary.md").render(vars(situation)).strip()}]


def correction(problem: str, names: Sequence[str], final: bool) -> str:
    """What is sent back after a reply that cannot be used."""
    return template("correction.md").render(problem=problem, names=names, final=final).strip()


def again(
    messages: Sequence[Mapping[str, str]], said: str, complaint: str
) -> list[Mapping[str, str]]:
    """The messages that send a reply back."""
    turns = [
        {"role": "assistant", "content": said or "(nothing)"},
        {"role": "user", "content": complaint},
    ]
    return [*messages, *turns]


def knowledge_json(cards: Sequence[Mapping[str, Any]]) -> str:
    """The cards of the menu as JSON (A.2, Figure 12): the rubric once, numbers with three digits."""
    shown = [
        {key: _short(card[key]) for key in card if key not in ("rubric", "domain")}
        for card in cards
    ]
    return json.dumps(
        {"policies": shown, "rubric": cards[0]["rubric"]}, indent=1, ensure_ascii=False
    )


def tools_json(cards: Sequence[Mapping[str, Any]], domain: Domain) -> str:
    """The signatures of the policies as tools (A.2, Figure 13)."""
    schema = {
        "input": {"state": f"what the policy sees: {domain.seen}"},
        "output": {
            "did": f"one of {', '.join(domain.actions)}",
            "rewards": {name: "number in [0, 1]" for name in domain.objectives},
            "change": f"what it did to the {domain.unit}",
        },
    }
    keys = ("name", "behavior_hint", "optimized_objective")
    tools = [{key: card[key] for key in keys} for card in cards]
    return json.dumps({"schema": schema, "tools": tools}, indent=1, ensure_ascii=False)


def result_line(seen: Foresight, domain: Domain) -> str:
    """A look-ahead as one line of a prompt, e.g. `SO-d1: did challenge; ...; rewards aptitude 0.67, ...`."""
    what = (
        f"did {seen.actions[0]}"
        if seen.steps == 1
        else f"{seen.steps} steps: {', '.join(seen.actions)}"
    )
    rewards = ", ".join(
        f"{name} {value:.2f}" for name, value in zip(domain.objectives, seen.rewards, strict=True)
    )
    told = f"{seen.told}; " if seen.told else ""
    copies = "one copy" if seen.copies == 1 else f"mean of {seen.copies} copies"
    return f"{seen.policy}: {what}; {told}rewards {rewards}; {seen.change} ({copies})"


def interaction_line(
    step: int, state: Mapping[str, str], policy: str, row: Mapping, change: str, domain: Domain
) -> str:
    """A past step as one line of a prompt."""
    before = ", ".join(f"{name} {value.split(' (')[0]}" for name, value in list(state.items())[:2])
    did = list(domain.actions)[int(row["action"])]
    rewards = ", ".join(
        f"{name} {row[f'reward_{i}']:.2f}" for i, name in enumerate(domain.objectives)
    )
    return f"step {step}: {before}; picked {policy}; did {did}; rewards {rewards}; {change}"


def _short(value: Any) -> Any:
    return float(f"{value:.3g}") if isinstance(value, float) else value


@lru_cache
def template(name: str) -> Template:
    """A template of this room by file name; one that asks for what it is not given fails."""
    loader = FileSystemLoader(TEMPLATES)
    return Environment(loader=loader, undefined=StrictUndefined, autoescape=False).get_template(
        name
    )
