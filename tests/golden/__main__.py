"""Compare or record the small jobs of all systems: see `tests.golden`."""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.golden import SYSTEMS, runner


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden", description=__doc__)
    parser.add_argument("systems", nargs="*", help="which; default: all")
    parser.add_argument("--record", action="store_true", help="keep what the jobs give now")
    options = parser.parse_args()
    num_different = 0
    for system in options.systems or SYSTEMS:
        with tempfile.TemporaryDirectory() as folder:
            measured = [measured for measured, _ in runner.run_system(system, Path(folder))]
        if options.record:
            print(f"{system}: recorded in {runner.record(system, measured)}")
            continue
        problems = runner.compare(system, measured)
        num_different += bool(problems)
        print("\n".join(problems) or f"{system}: the same")
    return min(1, num_different)


if __name__ == "__main__":
    sys.exit(main())
