"""Take out of an executed notebook whatever differs between two runs of the same thing.

That is timing, execution metadata, widget state, paths of this machine, memory addresses, and the
order in which standard output and standard error happened to arrive. What a reader should see stays,
warnings included.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from lib.reports.execute import strip_outputs

_CELL_FILE = re.compile(r"(?:/[^\s'\"<>]*)?/ipykernel_\d+/\d+\.py")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,16}")
_EMBEDDED = re.compile(r"(data:[\w/+.-]+;base64,[A-Za-z0-9+/=\s]+)")
_KERNEL = {"kernelspec": strip_outputs.KERNEL, "language_info": {"name": "python"}}
_WIDGETS = ("application/vnd.jupyter.widget-view+json", "application/vnd.jupyter.widget-state+json")


class Scrubber:
    """Replaces the paths of one machine by names that mean the same on all."""

    def __init__(self, root: Path) -> None:
        folders = [
            (root, "."),
            (sys.prefix, "<python>"),
            (sys.base_prefix, "<python>"),
            (tempfile.gettempdir(), "<tmp>"),
            (os.path.expanduser("~"), "~"),  # "~" itself where nobody has a home
        ]
        name_by_path: dict[str, str] = {}
        for folder, name in folders:
            for path in (str(folder), os.path.realpath(folder)):
                if len(path) > 1:  # "/" would match everywhere
                    name_by_path.setdefault(path, name)
        # the longest first: a virtual environment lies in the root, and both may lie at home
        self.rules = [
            (re.compile(re.escape(path) + r"(?:/|(?![\w.-]))"), name_by_path[path])
            for path in sorted(name_by_path, key=len, reverse=True)
        ]

    def text(self, text: str) -> str:
        """`text` without paths and addresses; embedded images are left as they are."""
        pieces = _EMBEDDED.split(text)  # images are those with an odd index
        for i in range(0, len(pieces), 2):
            pieces[i] = self._replace_paths(pieces[i])
        return "".join(pieces)

    def _replace_paths(self, text: str) -> str:
        text = _ADDRESS.sub("at 0x...", _CELL_FILE.sub("<cell>", text))
        for pattern, name in self.rules:
            text = pattern.sub(lambda match, name=name: _rename_path(match.group(), name), text)
        return text


def _rename_path(path: str, name: str) -> str:
    """The root itself is ".", files in it need no prefix; other folders keep their name."""
    if not path.endswith("/"):
        return name
    return "" if name == "." else f"{name}/"


def scrub(notebook: NotebookNode, root: Path) -> NotebookNode:
    """Removes from an executed notebook whatever differs between two equal runs: times, paths, counters.

    Args:
        notebook: As it was executed.
        root: The project's folder, whose path is replaced.

    Returns:
        A changed copy.
    """
    scrubber = Scrubber(root)
    notebook = nbformat.from_dict(notebook)
    notebook.metadata = nbformat.from_dict(_KERNEL)
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": sorted(tags)} if tags else {})
        if cell.cell_type == "code":
            outputs = [_scrub_output(output, scrubber) for output in _merge_streams(cell.outputs)]
            cell.outputs = [output for output in outputs if output.get("data", True)]
    return notebook


def _merge_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Merges neighbouring outputs to standard output and standard error, whose order is random.

    Args:
        outputs: Outputs of a cell.

    Returns:
        The outputs; of each run of streams one text per stream, standard output first.
    """
    merged: list[NotebookNode] = []
    pending: dict[str, str] = {}  # text by stream name
    for output in [*outputs, None]:  # None ends the last group of streams
        if output is not None and output.output_type == "stream":
            pending[output.name] = pending.get(output.name, "") + output.text
            continue
        for name in ("stdout", "stderr"):
            if name in pending:
                merged.append(nbformat.v4.new_output("stream", name=name, text=pending[name]))
        pending = {}
        if output is not None:
            merged.append(output)
    return merged


def _scrub_output(output: NotebookNode, scrubber: Scrubber) -> NotebookNode:
    """Removes from one output of a cell what differs between two equal runs.

    Args:
        output: Which is changed.
        scrubber: Replaces paths and addresses in texts.
    """
    if output.output_type == "stream":
        output.text = scrubber.text(output.text)
    elif output.output_type == "error":
        output.evalue = scrubber.text(output.evalue)
        output.traceback = [scrubber.text(line) for line in output.traceback]
    else:
        for kind in _WIDGETS:
            output.data.pop(kind, None)
        for kind, content in output.data.items():
            if isinstance(content, str) and (kind.startswith("text/") or kind == "image/svg+xml"):
                output.data[kind] = scrubber.text(content)
    return output
