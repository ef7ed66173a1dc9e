"""The prompts of KO, TO and RO: one section for each context component of Table 1.

C = A(c_1, ..., c_n) (section 3.1): every component renders one section from a `DecisionContext`, and `assemble` joins
the sections into a system and a user message, in the order of appendix A.2. A component has a template of its name
under `templates`, and `select` hands the template what it may show, so that no section can show what belongs to
another. The information is A.2's, the sentences are ours.

A criterion that the query does not ask for (weight 0) stands in no section. Random numbers, the episode's number and
results that nobody asked for are in no template's reach: equal contexts have equal prompts.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from lib.orchestration.contexts import DecisionContext, Interaction, Rewards, ToolResult
from lib.orchestration.decision_model import PromptSection

VERSION = 1  # of prompts, templates included
TEMPLATES = Path(__file__).parent / "templates"
MEMORY_STATE = 2  # entries of a past state that its line shows, the first ones
LONGEST_ECHO = 2_000  # characters of an unusable reply that are shown to the model again
_NOT_SHOWN = ("domain", "rubric", "name")  # of a card: known, shown once for all, shown in front


@dataclass(frozen=True)
class Component:
    """One component of Table 1.

    Attributes:
        name: Name of the component in Table 1; the template is `templates/NAME.md`.
        role: The message that its section belongs to, system or user.
        meaning: What it is, for readers of a prompt.
        select: Function from a context to the variables of the template.
    """

    name: str
    role: str
    meaning: str
    select: Callable[[DecisionContext], dict[str, Any]] = field(compare=False, repr=False)

    def render(self, context: DecisionContext, with_reasoning: bool = True) -> PromptSection:
        """The section of this component in a prompt, from its template.

        A component, such as the query or the state, is one section of the prompt (Table 1).

        Args:
            context: What the system knows.
            with_reasoning: Whether a reply gives its reasons, for the component that states its format.

        Raises:
            jinja2.UndefinedError: The template asks for what `select` does not hand it.
        """
        variables = self.select(context) | {"with_reasoning": with_reasoning}
        text = load_template(self.name).render(variables).strip()
        return PromptSection(self.name, self.role, text)


# What each component may show ---------------------------------------------------------------------


def _select_instructions(context: DecisionContext) -> dict[str, Any]:
    """Select what the instructions of the prompt show, such as role, task, actions and policies.

    Args:
        context: What the system knows.

    Returns:
        Variables of the template.
    """
    domain = context.domain
    return {
        "system": context.system,
        "role": domain.role,
        "task": _describe_task(context),
        "observation": domain.observation,
        "actions": domain.actions,
        "unit": domain.unit,
        "policies": context.policies,
        "max_calls": count_calls(context),
        "rollout_steps": context.rollout_steps,
        "must_decide": context.must_decide,
        "has_budget": context.budget is not None,
    }


def _select_query(context: DecisionContext) -> dict[str, Any]:
    """What the section of the query may show: step, horizon, importance of the criteria, and budget."""
    return {
        "system": context.system,
        "step": context.query.step,
        "horizon": context.query.horizon,
        "criteria": list_criteria(context),
        "must_decide": context.must_decide,
        "budget": context.budget,
    }


def _select_knowledge(context: DecisionContext) -> dict[str, Any]:
    return {"cards": write_cards(context), "situation": context.state.situation}


def _select_tools(context: DecisionContext) -> dict[str, Any]:
    """What the section of tools may show: signatures of the policies, and for TO what trying them gave."""
    # Calls of TO are part of its tools; rollouts have a component of their own (Figures 15 and 17).
    shows_results = context.system == "TO"
    return {
        "tools": write_tools(context),
        "shows_results": shows_results,
        "results": _describe_tool_results(context) if shows_results else [],
    }


def _select_state(context: DecisionContext) -> dict[str, Any]:
    return {"state": context.state.words}


def _select_rollouts(context: DecisionContext) -> dict[str, Any]:
    return {"results": _describe_tool_results(context)}


def _select_recent_steps(context: DecisionContext) -> dict[str, Any]:
    return {"steps": [describe_interaction(step, context) for step in context.recent]}


def _select_summary(context: DecisionContext) -> dict[str, Any]:
    return {"summary": context.summary}


# In the order of the prompt: A.2, Figures 7, 8 and 14 to 17.
COMPONENTS = (
    Component("instr", "system", "role, rules, reply format", _select_instructions),
    Component("mem_l", "system", "a running summary, written by the model", _select_summary),
    Component("query", "user", "what is asked for: objectives, step, budget", _select_query),
    Component("know", "user", "cards that describe the policies", _select_knowledge),
    Component("tools", "user", "signatures of the policies, and what calls gave", _select_tools),
    Component("state", "user", "the environment's state", _select_state),
    Component("reflect", "user", "simulated rollouts", _select_rollouts),
    Component("mem_s", "user", "the last interactions", _select_recent_steps),
)


# Prompts ------------------------------------------------------------------------------------------


def render(context: DecisionContext, with_reasoning: bool = True) -> list[PromptSection]:
    """The sections of a prompt, one for each component that a context has, in the order of the prompt.

    A component, such as the query or the state, is one section of the prompt (Table 1).

    Args:
        context: One episode at one step, as KO, TO or RO sees it.
        with_reasoning: Whether the reply that is asked for gives its reasons before the choice.
    """
    return [
        component.render(context, with_reasoning)
        for component in COMPONENTS
        if component.name in context.components
    ]


def assemble(sections: Sequence[PromptSection]) -> list[dict[str, str]]:
    """Join sections into messages, the paper's assembly function A.

    Args:
        sections: Sections of one prompt, in order.

    Returns:
        A system and a user message; a role without a section has none.
    """
    messages = []
    for role in ("system", "user"):
        texts = [section.text for section in sections if section.role == role]
        if texts:
            messages.append({"role": role, "content": "\n\n".join(texts)})
    return messages


def summary_messages(context: DecisionContext) -> list[dict[str, str]]:
    """Write the message that asks a model for a new running summary of an episode (A.2, Figure 9).

    Args:
        context: A context whose `recent` holds the steps since the last summary.

    Returns:
        One user message.
    """
    variables = {
        "task": _describe_task(context),
        "unit": context.domain.unit,
        **_select_summary(context),
        **_select_recent_steps(context),
    }
    return [{"role": "user", "content": load_template("summary").render(variables).strip()}]


def write_correction(context: DecisionContext, problem: str) -> str:
    """The message that is sent back after a reply that cannot be used.

    Args:
        context: What the reply was to.
        problem: What is wrong with it, in a few words.
    """
    variables = {
        "problem": problem,
        "policies": context.policies,
        "must_decide": context.must_decide,
    }
    return load_template("correction").render(variables).strip()


def send_back(
    messages: Sequence[Mapping[str, str]], reply_text: str, correction: str
) -> list[Mapping[str, str]]:
    """Extend a conversation by a reply that cannot be used and the request to correct it.

    Args:
        messages: The conversation so far.
        reply_text: The reply that cannot be used; the beginning of a long one is enough.
        correction: What is wrong with it.

    Returns:
        The longer conversation.
    """
    echo = reply_text[:LONGEST_ECHO] or "(nothing)"
    reply_message = {"role": "assistant", "content": echo}
    return [*messages, reply_message, {"role": "user", "content": correction}]


@lru_cache
def load_template(name: str) -> Template:
    """Load a template of `templates` by its name without ending; one that asks for what it is not given fails."""
    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(loader=loader, undefined=StrictUndefined, autoescape=False)
    return environment.get_template(f"{name}.md")


# Contexts in words --------------------------------------------------------------------------------


def count_calls(context: DecisionContext) -> int:
    """How many policies may be tried in this step altogether, those that were tried already included."""
    return min(context.calls_left + len(context.tool_results), len(context.policies))


def list_criteria(context: DecisionContext) -> list[tuple[str, str, float]]:
    """List the criteria that the query weighs; those of weight 0 are left out.

    Args:
        context: A context of any system.

    Returns:
        Name, meaning and importance of each.
    """
    domain = context.domain
    meanings = {**domain.objectives, **domain.measures}
    return [
        (name, meanings[name], weight)
        for name, weight in zip(domain.criteria, context.query.weights, strict=True)
        if weight > 0
    ]


def describe_results(results: Rewards, context: DecisionContext) -> str:
    """Write the results that the query weighs as text, such as `aptitude 0.670, gap 0.000`.

    Args:
        results: A number for each criterion of the domain.
        context: Has the query.

    Returns:
        Names and values, with commas between them.
    """
    result_by_name = dict(zip(context.domain.criteria, results, strict=True))
    asked_for = [name for name, _, _ in list_criteria(context)]
    return ", ".join(f"{name} {result_by_name[name]:.3f}" for name in asked_for)


def describe_tool_result(result: ToolResult, context: DecisionContext) -> str:
    """Describe as one line of a prompt what a policy did on copies of the environment.

    Args:
        result: Actions and results of the policy.
        context: Has the query, which says which results count.

    Returns:
        Such as `SO-d1: did challenge; difficulties 0.8 0.8; results aptitude 0.670; mastery +0.100 (one copy)`.
    """
    actions = ", ".join(result.actions)
    behavior = f"did {actions}"
    if result.num_steps > 1:
        behavior = f"{result.num_steps} steps: {actions}"
    results = f"results {describe_results(result.results, context)}"
    clauses = [behavior, result.details, results, result.change]
    line = "; ".join(clause for clause in clauses if clause)
    copies = "one copy" if result.num_copies == 1 else f"mean of {result.num_copies} copies"
    return f"{result.policy}: {line} ({copies})"


def describe_interaction(interaction: Interaction, context: DecisionContext) -> str:
    """Describe a past step of the episode as one line of a prompt: state, policy, action, results, change (Figure 11).

    Args:
        interaction: The step.
        context: Has the query, which says which results count.

    Returns:
        The line.
    """
    first_entries = list(interaction.state.items())[:MEMORY_STATE]
    # What stands in brackets is the same at every step.
    state = ", ".join(f"{name} {value.split(' (')[0]}" for name, value in first_entries)
    results = describe_results(interaction.results, context)
    return (
        f"step {interaction.step}: {state}; picked {interaction.policy}; did {interaction.action}; "
        f"results {results}; {interaction.change}"
    )


def write_cards(context: DecisionContext) -> str:
    """Write the cards of all policies as JSON (Figure 12), with the rubric that defines their words once.

    Args:
        context: A context of KO.

    Returns:
        The JSON.
    """
    cards = []
    rubric: Mapping[str, Any] = {}
    for policy, knowledge in zip(context.policies, context.knowledge, strict=True):
        card: dict[str, Any] = {"name": policy}
        for key, value in knowledge.card.items():
            if key not in _NOT_SHOWN:
                card[key] = _shorten_number(value)
        card["results"] = [
            f"{situation}: {describe_results(results, context)}"
            for situation, results in knowledge.results.items()
        ]
        cards.append(card)
        rubric = rubric or knowledge.card.get("rubric", {})
    content: dict[str, Any] = {"policies": cards}
    if rubric:
        content["rubric"] = rubric
    return json.dumps(content, indent=1, ensure_ascii=False)


def write_tools(context: DecisionContext) -> str:
    """Write all policies as tools in JSON (Figure 13): name, objective and description, and what a call returns.

    Args:
        context: A context of TO or RO.

    Returns:
        The JSON.
    """
    domain = context.domain
    schema = {
        "input": {"state": f"what the policy observes: {domain.observation}"},
        "output": {
            "did": f"one of {', '.join(domain.actions)}",
            "results": {name: "number, mean over copies" for name, _, _ in list_criteria(context)},
            "change": f"what it did to the {domain.unit}",
        },
    }
    tools = [
        {
            "name": tool.name,
            "optimized_objective": tool.objective,
            "description": tool.behavior,
        }
        for tool in context.tools
    ]
    return json.dumps({"schema": schema, "tools": tools}, indent=1, ensure_ascii=False)


def _describe_task(context: DecisionContext) -> str:
    return context.domain.task.format(topic=context.query.topic)


def _describe_tool_results(context: DecisionContext) -> list[str]:
    return [describe_tool_result(result, context) for result in context.tool_results]


def _shorten_number(value: Any) -> Any:
    return float(f"{value:.3g}") if isinstance(value, float) else value
