"""Descriptions of models on a menu, written from how they did on sampled tasks (ToolOrchestra, "Model description").

A chat model (`tools.description_writer`, any name of llm.models) turns a measured profile into two or three sentences.
The instruction is our own, and a file of the user may take its place. Where no model is set, and where its reply cannot
be used, a rule writes the text; such a description carries the author SCRIPTED, and every table shows it. Prices are
left out: the menu has them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from lib.config import ParamsError
from lib.language_models.training.model_cards import GOOD, POOR
from lib.llm.chat_model import ChatRequest, Reply
from lib.tool_orchestration.tool_menu import Offer

SCRIPTED = "scripted"  # author of a text that a rule wrote
TEMPLATE = Path(__file__).parent / "templates" / "description.md"
PROFILE_FIELD = "{profile}"
MAX_CHARACTERS = 700  # of a description; a menu has several

Generate = Callable[[str, Sequence[ChatRequest]], list[Reply]]


@dataclass(frozen=True)
class Measurement:
    """How a model did on one kind of task.

    Attributes:
        kind: Kind of task.
        accuracy: Share of correct answers.
        num_tasks: Number of tasks that it was measured on.
    """

    kind: str
    accuracy: float
    num_tasks: int


@dataclass(frozen=True)
class Description:
    """What a menu says of a model.

    Attributes:
        text: The sentences.
        author: The name in llm.models of who wrote them, or SCRIPTED.
    """

    text: str
    author: str

    @property
    def label(self) -> str:
        """Who wrote it, for tables and pages."""
        return "scripted (no model wrote it)" if self.author == SCRIPTED else self.author


def profile_card(card: Mapping[str, Any]) -> list[Measurement]:
    """Profile a lab model by its measured card.

    Args:
        card: Its rows `accuracy` have category (kind of task), skin (wording), accuracy and n (number of tasks).

    Returns:
        A measurement for each kind of task, in the usual wording ("plain"), all difficulties together.
    """
    totals: dict[str, list[float]] = {}
    for row in card["accuracy"]:
        if row["skin"] != "plain":
            continue
        correct_and_tasks = totals.setdefault(row["category"], [0.0, 0.0])
        # Accuracies are weighted by their numbers of tasks.
        correct_and_tasks[0] += row["accuracy"] * row["n"]
        correct_and_tasks[1] += row["n"]
    return [
        Measurement(kind, correct / num_tasks, int(num_tasks))
        for kind, (correct, num_tasks) in totals.items()
        if num_tasks
    ]


def profile_outcomes(rows: pd.DataFrame) -> dict[str, list[Measurement]]:
    """Profile models by their answers: accuracy by kind of task.

    Args:
        rows: One per model and question: tool, group (kind of task), correct; nan where a reply was lost.

    Returns:
        Profiles by model.
    """
    scored = rows.dropna(subset=["correct"])
    outcomes = scored.groupby(["tool", "group"], sort=True)["correct"].agg(["mean", "size"])

    profiles: dict[str, list[Measurement]] = {}
    for (model, kind), row in outcomes.iterrows():
        accuracy = float(row["mean"])
        num_tasks = int(row["size"])
        profiles.setdefault(model, []).append(Measurement(kind, accuracy, num_tasks))
    return profiles


def format_profile(profile: Sequence[Measurement]) -> str:
    """Format a profile for the prompt of the model that writes descriptions, one line for each kind of task."""
    lines = [f"{m.kind}: {m.accuracy:.0%} of {m.num_tasks} tasks" for m in profile]
    return "\n".join(lines) or "nothing was measured"


def write_by_rule(profile: Sequence[Measurement]) -> str:
    """Describe by rule at which kinds of tasks a model is strong (accuracy at least GOOD), mixed, or weak.

    >>> write_by_rule([Measurement("chain", 0.9, 40), Measurement("facts", 0.1, 20)])
    'Strong on chain (90% of 40 tasks); weak on facts (10% of 20 tasks).'
    """
    if not profile:
        return "Nothing was measured of it."
    kinds_by_level: dict[str, list[str]] = {"strong": [], "mixed": [], "weak": []}
    for measurement in sorted(profile, key=lambda m: -m.accuracy):
        level = "mixed"
        if measurement.accuracy >= GOOD:
            level = "strong"
        elif measurement.accuracy < POOR:
            level = "weak"
        text = f"{measurement.kind} ({measurement.accuracy:.0%} of {measurement.num_tasks} tasks)"
        kinds_by_level[level].append(text)
    clauses = [f"{level} on {', '.join(kinds)}" for level, kinds in kinds_by_level.items() if kinds]
    sentence = "; ".join(clauses) + "."
    return sentence[0].upper() + sentence[1:]


def read_template(path: str | Path | None = None) -> str:
    """Reads the instruction to the writer.

    Args:
        path: File of the user in place of the project's text.

    Returns:
        The text, with PROFILE_FIELD where the measurements stand.

    Raises:
        ParamsError: The file cannot be read, or has no PROFILE_FIELD.
    """
    file = TEMPLATE if path is None else Path(path)
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ParamsError(f"{file}: cannot be read as UTF-8 text ({error})") from error
    if PROFILE_FIELD not in text:
        raise ParamsError(f"{file}: write {PROFILE_FIELD} where the measurements are to stand")
    return text


def write_descriptions(
    profiles: Mapping[str, Sequence[Measurement]],
    writer: str | None,
    generate: Generate | None = None,
    template: str | None = None,
) -> dict[str, Description]:
    """Writes a description of every model.

    Args:
        profiles: Measurements by model.
        writer: Name in llm.models of who writes; None for the rule.
        generate: Replies of a model by its name, such as `ExpertPool.generate`.
        template: What `read_template` returned; None for the project's.

    Returns:
        Descriptions by model. Where the writer's reply cannot be used the rule writes, which the author shows.
    """
    by_rule = {name: Description(write_by_rule(p), SCRIPTED) for name, p in profiles.items()}
    if writer is None or generate is None:
        return by_rule
    instruction = read_template() if template is None else template
    requests = []
    for profile in profiles.values():
        # The model's name is left out: the writer may know things of it that were not measured here.
        # Not str.format: a user's text may hold other braces.
        prompt = instruction.replace(PROFILE_FIELD, format_profile(profile))
        messages = [{"role": "user", "content": prompt}]
        requests.append(ChatRequest(messages, temperature=0.0, caller="descriptions"))
    descriptions = {}
    for name, reply in zip(profiles, generate(writer, requests), strict=True):
        text = " ".join(reply.text.split())[:MAX_CHARACTERS]
        is_usable = reply.usable and bool(text)
        descriptions[name] = Description(text, writer) if is_usable else by_rule[name]
    return descriptions


def describe_offers(
    offers: Mapping[str, Offer], descriptions: Mapping[str, Description]
) -> dict[str, Offer]:
    """Add descriptions to the tools of a menu.

    Args:
        offers: Tools with prices, by name.
        descriptions: By the name of the tool; tools without one stay as they are.

    Returns:
        The tools with their descriptions, by name.
    """
    described = {}
    for name, offer in offers.items():
        if name in descriptions:
            offer = replace(offer, description=descriptions[name].text)
        described[name] = offer
    return described


def tabulate_descriptions(descriptions: Mapping[str, Description]) -> pd.DataFrame:
    """Tabulate descriptions: a row per model, with the columns "description" and "written by"."""
    rows = {name: (d.text, d.label) for name, d in descriptions.items()}
    table = pd.DataFrame.from_dict(rows, orient="index", columns=["description", "written by"])
    return table.rename_axis("model")
