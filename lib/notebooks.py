"""Notebooks as files: cleaned sources, declared parameters, and executed copies without traces.

Cleaning takes out what an editor leaves behind (outputs, counts, random cell ids), so that saving a
notebook with outputs changes nothing that a stage depends on. Scrubbing takes out of an executed
notebook what differs between two runs of the same thing: times, addresses, temporary names, paths.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode

from lib import store
from lib.params import ROOT

_KERNEL = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
_TRACES = (
    (re.compile(r"\S*ipykernel_\d+/\d+\.py"), "<cell>"),
    (re.compile(r"0x[0-9a-f]{6,}"), "0x..."),
)


class NotebookError(ValueError):
    """A notebook that cannot be run as it is; the message names it and what to change."""


def read(path: str | Path) -> NotebookNode:
    """A notebook in format 4. Raises NotebookError if it is missing or broken."""
    path = Path(path)
    if not path.exists():
        raise NotebookError(f"{path} is missing")
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:  # nbformat raises half a dozen unrelated types here
        raise NotebookError(f"{path} is not a notebook: {error}; restore it with git") from error


def write(path: str | Path, notebook: NotebookNode) -> Path:
    """Write a notebook atomically."""
    return store.write_text(path, nbformat.writes(notebook) + "\n")


def clean(notebook: NotebookNode) -> NotebookNode:
    """The source of a notebook alone: no outputs or counts, tags kept, ids from place and content."""
    cells = []
    for number, cell in enumerate(notebook.cells):
        kept = {"id": store.sha256_json([number, cell.source])[:8], "metadata": {}}
        if cell.metadata.get("tags"):
            kept["metadata"]["tags"] = sorted(cell.metadata.tags)
        make = {"code": nbformat.v4.new_code_cell, "markdown": nbformat.v4.new_markdown_cell}
        if cell.cell_type not in make:
            raise NotebookError(f"cell {number + 1} is of type {cell.cell_type}; use code or markdown")
        cells.append(make[cell.cell_type](cell.source, **kept))
    return nbformat.v4.new_notebook(cells=cells, metadata=_KERNEL)


def clean_all(source: str | Path = ROOT / "notebooks", target: str | Path = ROOT / "data/notebooks") -> None:
    """Write cleaned copies of all notebooks and remove copies of notebooks that are gone."""
    source, target = Path(source), Path(target)
    names = {path.name for path in source.glob("*.ipynb")}
    if not names:
        raise NotebookError(f"no notebooks in {source}")
    for name in sorted(names):
        write(target / name, clean(read(source / name)))
    for old in target.glob("*.ipynb"):
        if old.name not in names:
            old.unlink()


def declared_parameters(notebook: NotebookNode, name: str) -> set[str]:
    """Names assigned in the cell tagged `parameters`. Raises NotebookError unless there is just one."""
    cells = [c for c in notebook.cells if "parameters" in c.metadata.get("tags", [])]
    if len(cells) != 1:
        raise NotebookError(f"{name}: needs one cell tagged `parameters`, found {len(cells)}")
    names: set[str] = set()
    for statement in ast.parse(cells[0].source).body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def scrub(notebook: NotebookNode) -> NotebookNode:
    """An executed notebook without anything that differs between two equal runs."""
    notebook = nbformat.from_dict(notebook)
    notebook.metadata = nbformat.from_dict(_KERNEL)
    for number, cell in enumerate(notebook.cells):
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": sorted(tags)} if tags else {})
        if "injected-parameters" in tags:
            cell.id = store.sha256_json([number, cell.source])[:8]
        if cell.cell_type == "code":
            cell.outputs = [nbformat.from_dict(_scrub_text(output)) for output in cell.outputs]
    return notebook


def _scrub_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _scrub_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_scrub_text(item) for item in value]
    if not isinstance(value, str) or value.startswith("data:"):
        return value
    value = value.replace(str(ROOT) + "/", "").replace(str(Path.home()), "~")
    for pattern, replacement in _TRACES:
        value = pattern.sub(replacement, value)
    return value
