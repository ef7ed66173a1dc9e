"""Take out of an executed notebook whatever differs between two runs of the same thing.

That is timing, execution metadata, widget state, paths of this machine, memory addresses, and the
order in which standard output and standard error happened to arrive. What a reader should see stays,
warnings included.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat

_CELL_FILE = re.compile(r"(?:/[^\s'\"<>]*)?/ipykernel_\d+/\d+\.py")
_ADDRESS = re.compile(r"\bat 0x[0-9a-fA-F]{6,16}")
_EMBEDDED = re.compile(r"(data:[\w/+.-]+;base64,[A-Za-z0-9+/=\s]+)")
_WIDGETS = ("application/vnd.jupyter.widget-view+json", "application/vnd.jupyter.widget-state+json")


class Scrubber:
    """Replaces the paths of one machine by names that mean the same on all."""

    def __init__(self, root: Path) -> None:
        # the most specific place first: a virtual environment lies in the root, both may lie at home
        places = [(root, "."), (sys.prefix, "<python>"), (tempfile.gettempdir(), "<tmp>"), (Path.home(), "~")]
        variants = {
            (path, name) for place, name in places for path in (str(place), os.path.realpath(place)) if len(path) > 1
        }
        ordered = sorted(variants, key=lambda pair: (-len(pair[0]), pair[1]))
        self.rules = [
            (re.compile(re.escape(path) + r"(?P<rest>/?)(?![\w-])|" + re.escape(path) + "/"), name)
            for path, name in ordered
        ]

    def text(self, text: str) -> str:
        """`text` without paths and addresses; embedded images are left as they are."""
        parts = _EMBEDDED.split(text)
        return "".join(part if place % 2 else self._plain(part) for place, part in enumerate(parts))

    def _plain(self, text: str) -> str:
        text = _ADDRESS.sub("at 0x...", _CELL_FILE.sub("<cell>", text))
        for pattern, name in self.rules:
            text = pattern.sub(lambda match, name=name: _shorter(match.group(), name), text)
        return text


def _shorter(path: str, name: str) -> str:
    """The root itself is ".", what lies in it needs no prefix; other places keep their name."""
    if not path.endswith("/"):
        return name
    return "" if name == "." else f"{name}/"


def _merge_streams(outputs: list) -> list:
    """Neighbouring streams become one per name, standard output first: arrival order is chance."""
    out: list = []
    for output in outputs:
        group = out[-1] if out and isinstance(out[-1], dict) and out[-1].get("streams") else None
        if output.output_type != "stream":
            out.append(output)
        elif group:
            group["streams"].setdefault(output.name, []).append(output.text)
        else:
            out.append({"streams": {output.name: [output.text]}})
    return [flat for item in out for flat in (_flatten(item) if isinstance(item.get("streams"), dict) else [item])]


def _flatten(group: dict) -> list:
    streams = group["streams"]
    names = sorted(streams, key=lambda name: name != "stdout")
    return [nbformat.v4.new_output("stream", name=name, text="".join(streams[name])) for name in names]


def _scrub_output(output, scrubber: Scrubber):
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


def scrub(nb: nbformat.NotebookNode, root: Path) -> nbformat.NotebookNode:
    """The notebook, changed in place, with nothing in it that a second run would change."""
    scrubber = Scrubber(root)
    nb.metadata = nbformat.from_dict({key: nb.metadata[key] for key in ("kernelspec",) if key in nb.metadata})
    nb.metadata["language_info"] = {"name": "python"}
    for cell in nb.cells:
        tags = cell.metadata.get("tags", [])
        cell.metadata = nbformat.from_dict({"tags": tags} if tags else {})
        if "injected-parameters" in tags:
            cell["id"] = "injected-parameters"
        if cell.cell_type != "code":
            continue
        outputs = [_scrub_output(output, scrubber) for output in _merge_streams(cell.outputs)]
        cell.outputs = [output for output in outputs if output.get("data", True)]
    return nb
