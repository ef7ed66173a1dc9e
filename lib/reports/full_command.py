"""The command that makes the table of facts of a lesson's full run: `make full LESSON=...`.

It trains what is not trained yet, keeps every finished job, and may be interrupted and run again. The table that it
writes under data/results is committed; lessons show it beside the reader's own run.
"""

import argparse
import os
import sys
import time
from importlib import import_module

from lib import config
from lib.experiment import sweep
from lib.experiment.full_results import FullRun, read_full_results, write_full_results
from lib.experiment.seeds import ROOT_SEED
from lib.language_models.checkpoints import ModelError
from lib.llm.errors import LLMError

# Lesson: where its FULL_RUN is.
MODULES = {
    "02_orchestration": "lib.orchestration.full_run",
    "04_conductor": "lib.conductor.full_run",
    "05_budgeted_routing": "lib.budgeted_routing.full_run",
    "05a_budgeted_routing_details": "lib.budgeted_routing.appendix_run",
    "06_tool_orchestration": "lib.tool_orchestration.full_run",
    "07_agent_configuration": "lib.agent_configuration.full_run",
}
EXIT_INTERRUPTED = 130
EXAMPLES = """examples:
  python -m lib full --list                 which lessons have a full run, and whether its table is current
  python -m lib full 05_budgeted_routing    train what is missing and write data/results/05_budgeted_routing.parquet
  python -m lib full 05                     the number or the beginning of the name is enough"""


def load_full_run(lesson: str) -> FullRun:
    """The full run of a lesson. Raises KeyError for a lesson without one."""
    return import_module(MODULES[lesson]).FULL_RUN


def find_lesson(beginning: str) -> str:
    """Finds a lesson by its number or the beginning of its name.

    Args:
        beginning: Such as "05" or "05_budgeted".

    Raises:
        ValueError: There is none with a full run, or more than one.
    """
    lessons = [lesson for lesson in MODULES if lesson.split("_")[0] == beginning]
    if not lessons:
        lessons = [lesson for lesson in MODULES if lesson.startswith(beginning)]
    if len(lessons) != 1:
        raise ValueError(f"no lesson {beginning!r} with a full run; there are {', '.join(MODULES)}")
    return lessons[0]


def describe_tables() -> str:
    """Describes the recorded full run of every lesson in a line: whether it is current, and what has changed."""
    params = config.load("full")
    lines = []
    for lesson in MODULES:
        full_run = load_full_run(lesson)
        full = read_full_results(full_run, params)
        line = f"{lesson}: {full.status}"
        if len(full.rows):
            line += f", {full.num_jobs} jobs, {len(full.rows):,} rows, {full.seconds / 3600:.1f} h of one core"
        lines.append(line)
        lines += [f"  {change}" for change in full.changes]
    return "\n".join(lines)


def run_full(lesson: str) -> str:
    """Runs the full run of a lesson and writes its table.

    Args:
        lesson: Name of the notebook.

    Returns:
        A sentence that says what was written.

    Raises:
        ValueError: The environment asks for another root seed than 0.
        ParamsError: A mistake in params.yaml.
        ModelError: A model that it starts from is missing.
        LLMError: No endpoint can be used.
    """
    if os.environ.get(ROOT_SEED, "0") != "0":
        raise ValueError(f"{ROOT_SEED} is {os.environ[ROOT_SEED]}; a full run is of root seed 0")
    params = config.load("full")
    full_run = load_full_run(lesson)
    started = time.monotonic()
    rows = full_run.make_rows(params)
    minutes = (time.monotonic() - started) / 60

    # What the jobs took, in whichever session they were done.
    runs = full_run.runs
    jobs = list(full_run.list_jobs(params))
    for job in full_run.list_optional_jobs(params):
        if sweep.read_receipt(job, runs) is not None:
            jobs.append(job)
    seconds = sum(sweep.read_receipt(job, runs)["seconds"] for job in jobs)
    size = write_full_results(full_run, rows, jobs, seconds, full_run.path)
    return (
        f"{full_run.path}: {len(rows):,} rows of {len(jobs)} jobs, {size / 1e6:.2f} MB; "
        f"{minutes:.0f} min now, {seconds / 3600:.1f} h of one core in all"
    )


def main(arguments: list[str] | None = None) -> int:
    """Train every seed and method of a lesson, and keep the results as a table of facts."""
    parser = argparse.ArgumentParser(
        prog="python -m lib full",
        description=main.__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("lesson", nargs="?", help="name of the lesson, or how it begins")
    parser.add_argument(
        "--list", action="store_true", help="what there is, and whether it is current"
    )
    options = parser.parse_args(arguments)
    os.environ.setdefault("BENCH_PROGRESS", sweep.STDERR)  # a line every ten seconds
    try:
        if options.list or options.lesson is None:
            print(describe_tables())
        else:
            print(run_full(find_lesson(options.lesson)))
    except FileNotFoundError as error:
        remedy = f"make repro LESSON={options.lesson or '03_model_zoo'}"
        print(f"error: {error.filename} is missing; make it with `{remedy}`", file=sys.stderr)
        return 1
    except (ValueError, ModelError, LLMError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted; finished jobs are kept, run again to go on", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0
