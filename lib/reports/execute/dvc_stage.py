"""What a pipeline stage declares about its notebook, and whether the notebook agrees.

A stage names sections of the resolved settings (`data/settings.json`); the notebook's `parameters`
cell assigns the same names. A difference either way is an error before anything starts, because a
parameter that silently keeps its default makes a report about something else.
"""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from lib.config import from_yaml
from lib.experiment import artifacts
from lib.reports.execute import strip_outputs

SETTINGS = "data/settings.json"
FULL = "full."  # sections of the profile `full`: a stage depends on them, its notebook has no such parameter
MODELS_OF = "llm_of."  # the section llm with the models that one section names; a notebook's parameter `llm`
SOURCES = "data/notebooks"
_COMMAND = "python -m lib.reports.execute "


class RunError(Exception):
    """A run that cannot start or did not finish; the message says what, and what to do."""


@dataclass(frozen=True)
class LessonStage:
    """One lesson of the pipeline.

    Attributes:
        name: Name of the notebook.
        sections: Parameters of the notebook.
        models_of: Sections whose models make up the parameter llm.
        outs: Files that it promises.
    """

    name: str
    sections: tuple[str, ...]
    models_of: tuple[str, ...]
    outs: tuple[str, ...]


def _entry(item: str | dict[str, Any]) -> str:
    return item if isinstance(item, str) else next(iter(item))


def lessons(root: Path) -> dict[str, LessonStage]:
    """Reads the stages of `dvc.yaml` that run a notebook.

    Args:
        root: The project's folder.

    Returns:
        Stages by name.

    Raises:
        RunError: The file is missing or malformed.
    """
    path = root / "dvc.yaml"
    if not path.exists():
        raise RunError("dvc.yaml is missing; restore it with `git checkout dvc.yaml`")
    try:
        content = from_yaml(path.read_text(encoding="utf-8")) or {}
    except (ValueError, OSError) as error:
        raise RunError(f"dvc.yaml is not valid YAML: {error}") from error
    stages = content.get("stages", {}) if isinstance(content, dict) else None
    if not isinstance(stages, dict) or not all(isinstance(body, dict) for body in stages.values()):
        raise RunError("dvc.yaml holds no stages; restore it with `git checkout dvc.yaml`")
    return {
        name: _stage(name, body)
        for name, body in stages.items()
        if body.get("cmd") == _COMMAND + name
    }


def _stage(name: str, body: dict[str, Any]) -> LessonStage:
    """Reads one stage of `dvc.yaml`: the sections of settings that it depends on, and its outputs.

    Args:
        name: Name of the stage.
        body: Its content.

    Raises:
        RunError: It depends on settings of another file.
    """
    sections: list[str] = []
    for item in body.get("params", []):
        if not isinstance(item, dict) or set(item) != {SETTINGS}:
            raise RunError(
                f"dvc.yaml, stage {name}: parameters must come from {SETTINGS}, got {item!r}"
            )
        sections += [section for section in item[SETTINGS] if not section.startswith(FULL)]
    models_of = [name.removeprefix(MODELS_OF) for name in sections if name.startswith(MODELS_OF)]
    sections = [name for name in sections if not name.startswith(MODELS_OF)]
    if models_of:
        sections.append("llm")
    outs = [*body.get("outs", []), *body.get("metrics", [])]
    return LessonStage(
        name, tuple(sections), tuple(models_of), tuple(_entry(item) for item in outs)
    )


def find(name: str, root: Path) -> LessonStage:
    """The stage called `name`. Raises RunError listing the lessons there are."""
    stages = lessons(root)
    if name not in stages:
        raise RunError(
            f"no lesson {name!r} in dvc.yaml; the lessons are: {', '.join(sorted(stages)) or 'none'}"
        )
    return stages[name]


def parameters(stage: LessonStage, root: Path) -> dict[str, Any]:
    """Reads the settings that a stage declares, and no others, so that others cannot change its numbers unnoticed.

    Args:
        stage: The stage.
        root: The project's folder.

    Returns:
        Settings by section.

    Raises:
        RunError: The file of settings is missing or lacks a section.
    """
    path = root / SETTINGS
    if not path.exists():
        raise RunError(f"{SETTINGS} is missing; make it with `dvc repro settings`")
    settings = artifacts.read_json(path)
    if not isinstance(settings, dict):
        raise RunError(f"{SETTINGS} holds no sections; make it anew with `dvc repro settings`")
    absent = [section for section in stage.sections if section not in settings]
    if absent:
        raise RunError(
            f"stage {stage.name} declares {', '.join(absent)}, which {SETTINGS} does not hold; "
            f"it holds {', '.join(sorted(settings))}"
        )
    # Only what the stage declares, so that other settings cannot change its numbers unnoticed.
    values = {section: settings[section] for section in stage.sections}
    if stage.models_of:
        values["llm"] = _merge_models(stage, settings)
    return values


def _merge_models(stage: LessonStage, settings: dict[str, Any]) -> dict[str, Any]:
    """Builds the section `llm` of a stage, with the models of all sections that it declares.

    Args:
        stage: The stage.
        settings: All settings.

    Raises:
        RunError: A declared section has no models.
    """
    by_section = settings.get("llm_of", {})
    absent = [section for section in stage.models_of if section not in by_section]
    if absent:
        raise RunError(
            f"stage {stage.name} declares {MODELS_OF}{absent[0]}, which {SETTINGS} does not hold; "
            f"it holds {', '.join(sorted(by_section))}"
        )
    models: dict[str, Any] = {}
    for section in stage.models_of:
        models |= by_section[section]["models"]
    return by_section[stage.models_of[0]] | {"models": models}


def notebook(stage: LessonStage, root: Path) -> nbformat.NotebookNode:
    """Reads the notebook of a stage, without outputs.

    Args:
        stage: The stage.
        root: The project's folder.

    Raises:
        RunError: There is none.
    """
    path = root / SOURCES / f"{stage.name}.ipynb"
    if not path.exists():
        raise RunError(
            f"{SOURCES}/{stage.name}.ipynb is missing; write notebooks/{stage.name}.ipynb, then `dvc repro clean`"
        )
    return strip_outputs.read(path)


def assigned_names(nb: nbformat.NotebookNode) -> tuple[str, ...]:
    """Lists the names that the cell tagged `parameters` assigns, in order.

    Args:
        nb: The notebook.

    Raises:
        RunError: There is not exactly one such cell, or it is no Python.
    """
    cells = [cell for cell in nb.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        raise RunError(
            f"a notebook needs exactly one code cell tagged `parameters`, this one has {len(cells)}"
        )
    try:
        statements = ast.parse(cells[0].source).body
    except SyntaxError as error:
        raise RunError(f"the `parameters` cell is not Python: {error}") from error
    names: list[str] = []
    for node in statements:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        names += [target.id for target in targets if isinstance(target, ast.Name)]
    return tuple(names)


def check(stage: LessonStage, nb: nbformat.NotebookNode) -> None:
    """Checks that the stage in `dvc.yaml` and the notebook name the same parameters.

    Args:
        stage: The stage.
        nb: Its notebook.

    Raises:
        RunError: They differ; the message lists the names.
    """
    assigned = set(assigned_names(nb))
    declared = set(stage.sections)
    problems = []
    if declared - assigned:
        problems.append(
            f"{', '.join(sorted(declared - assigned))}: declared by the stage in dvc.yaml, "
            "not assigned in the notebook's `parameters` cell"
        )
    if assigned - declared:
        problems.append(
            f"{', '.join(sorted(assigned - declared))}: assigned in the notebook's `parameters` cell, "
            "not declared by the stage in dvc.yaml"
        )
    if problems:
        raise RunError(
            f"{stage.name}: stage and notebook disagree on the parameters\n  "
            + "\n  ".join(problems)
        )
