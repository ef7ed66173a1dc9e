"""The command line of the runner: `python -m lib.reports.execute LESSON [--timeout SECONDS]`."""

import argparse
import os
import signal
import sys
from pathlib import Path

from lib.experiment.process_group import die_with_parent

ROOT = Path(__file__).resolve().parents[3]
INTERRUPTED, TERMINATED = 130, 143  # what a shell expects after Ctrl-C and after a polite kill


def _terminate(*_) -> None:
    raise SystemExit(TERMINATED)


def main(arguments: list[str] | None = None) -> int:
    """Execute one lesson with the parameters that its stage in dvc.yaml declares."""
    parser = argparse.ArgumentParser(prog="python -m lib.reports.execute", description=main.__doc__)
    parser.add_argument("lesson", help="name of a stage in dvc.yaml, such as 01_policy_zoo")
    parser.add_argument(
        "--timeout", type=float, default=3600.0, help="seconds per cell, default %(default)g"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if "DVC_STAGE" in os.environ:  # under the pipeline: a killed dvc leaves no runner behind
        die_with_parent()
    signal.signal(signal.SIGTERM, _terminate)
    from lib.reports.execute.dvc_stage import RunError
    from lib.reports.execute.execute_lesson import (
        run,  # imported late: `--help` and typing errors answer at once
    )

    try:
        run(options.lesson, options.root.resolve(), options.timeout)
    except (RunError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        about = f"{error.strerror}: {error.filename}" if error.filename else str(error)
        print(f"error: {options.lesson}: {about}; the last report is as it was", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; finished work is kept, run again to go on", file=sys.stderr)
        return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
