"""The command line of the runner: `python -m lib.reports.execute LESSON [--timeout SECONDS]`."""

import argparse
import os
import signal
import sys
from pathlib import Path

from lib.experiment.process_group import clear_up_at_signals, die_with_parent

ROOT = Path(__file__).resolve().parents[3]
INTERRUPTED = 130  # what a shell expects after Ctrl-C
MAX_CLEANUP_SECONDS = 20


def main(arguments: list[str] | None = None) -> int:
    """Execute one lesson with the parameters that its stage in dvc.yaml declares."""
    parser = argparse.ArgumentParser(prog="python -m lib.reports.execute", description=main.__doc__)
    parser.add_argument("lesson", help="name of a stage in dvc.yaml, such as 01_policy_zoo")
    parser.add_argument(
        "--timeout", type=float, default=3600.0, help="seconds per cell, default %(default)g"
    )
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    stopping = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    clear_up_at_signals(stopping, MAX_CLEANUP_SECONDS)
    if "DVC_STAGE" in os.environ:  # under the pipeline: a killed dvc leaves no runner behind
        die_with_parent(number=signal.SIGTERM)
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
