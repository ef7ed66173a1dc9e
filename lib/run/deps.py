"""What each stage of the pipeline depends on: the code that its command really runs, read from its imports.

`python -m lib.run.deps --write` rewrites the `deps` of dvc.yaml. Dependencies outside of lib (data, settings, reports
of other lessons) are declared by hand and kept. A folder whose modules are all needed is written as the folder.
"""

import argparse
import io
import re
import textwrap
from collections.abc import Collection
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedSeq

from lib import sources, store

SAFE = ("lib/__init__.py", "lib/parent.py")  # nothing that they do reaches a result
_MODULE = "python -m "
_WIDTH = 120
_LONG = re.compile(rf"^(?=.{{{_WIDTH + 1}}})( *)(?:- )?\S+: \[(.*)\]$", re.MULTILINE)


def places(command: str, root: Path) -> list[str | Path]:
    """What a stage starts with: the module of its command; of a lesson its notebook and all of lib/run."""
    module, *rest = command.removeprefix(_MODULE).split()
    if module != "lib.run":
        own = root / module.replace(".", "/") / "__main__.py"  # what `python -m` starts of a package
        return [module, *([own] if own.exists() else [])]
    return [f"notebooks/{rest[0]}.ipynb", *(root / "lib/run").glob("*.py")]


def code(command: str, root: Path = sources.ROOT) -> list[str]:
    """The code that a stage depends on, as sorted paths of folders and files relative to `root`."""
    return folded(set(sources.closure(*places(command, root), without=SAFE, root=root)), root / "lib", root)


def folded(files: Collection[Path], folder: Path, root: Path) -> list[str]:
    """Files under a folder, relative to `root`, with a folder in their place where none of its modules is missing."""
    out = [path.relative_to(root).as_posix() for path in files if path.parent == folder]
    for below in (path for path in folder.iterdir() if path.is_dir() and path.name != "__pycache__"):
        inside = {path for path in files if path.is_relative_to(below)}
        there = {path for path in below.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
        modules = {path for path in there if path.suffix == ".py"} or there
        if inside and modules <= inside:
            out.append(below.relative_to(root).as_posix())
        elif inside:
            out += folded(inside, below, root)
    return sorted(out)


def updated(text: str, root: Path = sources.ROOT) -> str:
    """The text of dvc.yaml with the code that stages depend on as it is, everything else and its comments kept."""
    yaml = YAML()
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.width, yaml.preserve_quotes = 2**20, True  # `_by_room` breaks lines where a reader would
    content = yaml.load(text)
    for body in content["stages"].values():
        kept = [dep for dep in body["deps"] if not dep.startswith("lib/")]
        body["deps"] = CommentedSeq(sorted([*kept, *code(body["cmd"], root)]))
        body["deps"].fa.set_flow_style()  # a line each would hide everything else
    out = io.StringIO()
    yaml.dump(content, out)
    return _LONG.sub(_by_room, out.getvalue())


def _by_room(line: re.Match) -> str:
    """A long list in lines, those of each room beginning a line of their own."""
    rooms: dict[str, list[str]] = {}
    for entry in line[2].split(", "):
        rooms.setdefault("/".join(entry.split("/")[:-1][:2]), []).append(entry)
    below = line[1] + "    "
    wrapped = {"width": _WIDTH, "initial_indent": below, "subsequent_indent": below, "break_on_hyphens": False}
    lines = [textwrap.fill(", ".join(entries) + ",", **wrapped) for entries in rooms.values()]
    return "\n".join([line[0].split("[")[0] + "[", *lines, f"{line[1]}  ]"])


def main(arguments: list[str] | None = None) -> int:
    """Say whether dvc.yaml names the code that its stages run; with --write, have it do so."""
    parser = argparse.ArgumentParser(prog="python -m lib.run.deps", description=main.__doc__)
    parser.add_argument("--write", action="store_true", help="rewrite dvc.yaml")
    parser.add_argument("--root", type=Path, default=sources.ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    path = options.root / "dvc.yaml"
    before = path.read_text(encoding="utf-8")
    after = updated(before, options.root.resolve())
    if options.write and after != before:
        store.write_text(path, after)
    told = "is up to date" if after == before else "is written anew" if options.write else "is not up to date: --write"
    print(f"{path.name} {told}")
    return int(after != before and not options.write)


if __name__ == "__main__":
    raise SystemExit(main())
