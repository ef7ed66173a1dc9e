"""Clean copies of the notebooks, so that saving one with its outputs makes no stage stale.

A clean copy holds sources, tags and attachments: no outputs, counts, widget state or editor
metadata, no blank cells (JupyterLab adds one at the end), and cell ids derived from position and
content. Code of cells that are tagged `hide` is folded, in JupyterLab as on the page.
`python -m lib.reports.execute.strip_outputs` is the pipeline's stage `clean`.
"""

import argparse
from pathlib import Path
from typing import Any

import nbformat

from lib.experiment import artifacts

KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


def read(path: Path) -> nbformat.NotebookNode:
    """Reads a notebook in the current format.

    Args:
        path: The file.

    Raises:
        ValueError: It is no notebook.
    """
    try:
        notebook = nbformat.read(path, as_version=4)
        nbformat.validate(notebook)  # reading one that is not valid only warns
        return notebook
    except Exception as error:  # nbformat raises half a dozen unrelated types here
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise ValueError(
            f"{path.name} is not a notebook ({reason}); restore it with `git checkout`"
        ) from error


def clean(nb: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Copies a notebook without outputs, counters, empty cells and other metadata than tags.

    Args:
        nb: The notebook.
    """
    cells = [cell for cell in nb.cells if cell.source.strip()]
    copy = nbformat.v4.new_notebook(
        metadata={"kernelspec": KERNEL, "language_info": {"name": "python"}}
    )
    copy.cells = [_clean_cell(cell, index) for index, cell in enumerate(cells)]
    return copy


def _clean_cell(cell: nbformat.NotebookNode, index: int) -> nbformat.NotebookNode:
    """Copies a cell without outputs, with an id from its position and content.

    Args:
        cell: The cell.
        index: Its position.
    """
    new_cell = {
        "code": nbformat.v4.new_code_cell,
        "markdown": nbformat.v4.new_markdown_cell,
        "raw": nbformat.v4.new_raw_cell,
    }[cell.cell_type]
    digest = artifacts.sha256_bytes(f"{cell.cell_type}\n{cell.source}".encode())[:8]
    tags = sorted(cell.metadata.get("tags", []))
    metadata: dict[str, Any] = {"tags": tags} if tags else {}
    if "hide" in tags:
        metadata["jupyter"] = {"source_hidden": True}
    copy = new_cell(cell.source, id=f"{index:03d}-{digest}", metadata=metadata)
    if cell.get("attachments"):
        copy["attachments"] = cell.attachments
    return copy


def to_text(nb: nbformat.NotebookNode) -> str:
    """Canonical text: sorted keys, one final newline."""
    return nbformat.writes(nb, version=4).rstrip("\n") + "\n"


def clean_folder(source: Path, target: Path) -> list[Path]:
    """Writes a clean copy of every notebook of a folder into another one.

    Args:
        source: The notebooks.
        target: The copies; a copy without an original is removed.

    Returns:
        Paths of the copies.
    """
    originals = sorted(path for path in source.glob("*.ipynb") if not path.name.startswith("."))
    target.mkdir(parents=True, exist_ok=True)
    for stale in set(target.glob("*.ipynb")) - {target / path.name for path in originals}:
        stale.unlink()
    return [
        artifacts.write_text(target / path.name, to_text(clean(read(path)))) for path in originals
    ]


def main(arguments: list[str] | None = None) -> None:
    """Write clean copies of the notebooks."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.reports.execute.strip_outputs", description=main.__doc__
    )
    parser.add_argument(
        "--source", type=Path, default=Path("notebooks"), help="default: %(default)s"
    )
    parser.add_argument(
        "--target", type=Path, default=Path("data/notebooks"), help="default: %(default)s"
    )
    options = parser.parse_args(arguments)
    try:
        clean_folder(options.source, options.target)
    except ValueError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
