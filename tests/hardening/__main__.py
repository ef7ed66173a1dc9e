"""What attacks do to the bench, in figures: `python -m tests.hardening [SECTION ...]`.

Each module of this package that has `measure(say, scale) -> metrics` is a section; `say` prints a line while it runs,
scale multiplies how often things are tried. All metrics together go to reports/metrics/hardening.json; those of
sections that were not asked for stay as they were.
"""

import argparse
import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

import tests.hardening as package
from lib.config import ROOT
from lib.experiment import artifacts

FILE = ROOT / "reports/metrics/hardening.json"
Measure = Callable[..., dict[str, int | float]]


def sections() -> dict[str, Measure]:
    """The sections by name."""
    names = [
        each.name
        for each in pkgutil.iter_modules(package.__path__)
        if not each.name.startswith(("_", "test_"))
    ]
    modules = {name: importlib.import_module(f"{package.__name__}.{name}") for name in names}
    return {name: module.measure for name, module in modules.items() if hasattr(module, "measure")}


def main(arguments: list[str] | None = None) -> None:
    """Attack the bench, print what came of it and keep the figures."""
    found = sections()
    parser = argparse.ArgumentParser(prog="python -m tests.hardening", description=main.__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(found)}; default: all"
    )
    parser.add_argument(
        "--scale", type=float, default=1.0, help="times as often as usual (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, default=FILE, help="default: reports/metrics/hardening.json"
    )
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.sections) - set(found)):
        parser.error(f"there is no section {unknown[0]!r}; there are {', '.join(found)}")
    metrics = artifacts.read_json(options.out) if options.out.exists() else {}
    for name in options.sections or found:
        metrics |= found[name](
            lambda line, name=name: print(f"{name}: {line}", flush=True), options.scale
        )
    artifacts.write_json(options.out, metrics)
    for key in sorted(metrics):
        print(f"{key:<32} {metrics[key]:>10,}")


if __name__ == "__main__":
    main()
