"""The command line that the trainings on a user's own model share.

parser = make_parser("corl", __doc__, EXAMPLES)
parser.add_argument("--style", ...)  # what a system adds
options = parse_options(parser, argv)
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from lib import config
from lib.tasks.scorers import SCORERS

HELD_OUT_SHARE = 0.2  # of the questions, which nothing learns from
MAX_TEST_QUESTIONS = 100  # of the held-out questions that are asked in the evaluation
DTYPES = ("auto", "float32", "bfloat16")
SEVERAL_PROCESSES = """\
several processes, each of which takes its share of the episodes (and with --sharded of the weights):
  torchrun --standalone --nproc-per-node 2 -m lib train {system} --model ...
On GPUs, `accelerate launch --num_processes 2 -m lib train {system} ...` does the same; without GPUs it starts one
process only, and torchrun is the way.
"""


def make_parser(system: str, description: str, examples: str) -> argparse.ArgumentParser:
    """Makes the command line parser of `python -m lib train SYSTEM`.

    Args:
        system: The command's last word.
        description: What the command does.
        examples: Command lines to copy, which stand at the end of the help.

    Returns:
        A parser, to which a system adds its own options.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m lib train {system}",
        description=description,
        epilog=write_epilog(system, examples),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    questions = parser.add_argument_group("model and questions")
    questions.add_argument(
        "--model",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="a causal language model of Hugging Face that follows instructions, with its tokenizer",
    )
    questions.add_argument(
        "--experts",
        type=_read_names,
        metavar="A,B,C",
        help="names of llm.models in params.yaml; default: those of the system's settings",
    )
    add_data_options(questions)
    add_run_options(parser.add_argument_group("the run"))
    add_memory_options(parser.add_argument_group("memory"))
    return parser


def write_epilog(system: str, examples: str) -> str:
    """The end of the help: command lines to copy, and how several processes are started."""
    return f"examples:\n{examples}\n{SEVERAL_PROCESSES.format(system=system)}"


def add_data_options(group: argparse._ArgumentGroup) -> None:
    """Adds options for the source of questions, their scorer, and the held-out share to a command line."""
    group.add_argument(
        "--data",
        required=True,
        metavar="SOURCE",
        help="a file (.jsonl, .json, .csv, .tsv, .parquet), PRESET:PATH such as gsm8k:FOLDER, "
        "reasoning_gym:TASK, or a procedural family",
    )
    for column, meaning in (
        ("prompt", "with the question; default: prompt, question or another usual name"),
        ("reference", "with the answer; default: reference, answer or another usual name"),
        ("group", "with the subject or domain; default: a usual name, or none"),
        ("id", "with what a question is about, which splits; default: a usual name, or the prompt"),
        ("choices", "with the options of a multiple-choice question; default: a usual name"),
    ):
        group.add_argument(f"--{column}-column", metavar="NAME", help=f"of a file, {meaning}")
    group.add_argument("--split", help="train, dev or test, of data that has splits")
    group.add_argument(
        "--scorer",
        metavar="S",
        help=f"one of {', '.join(SCORERS)}; default: the usual one of the data, exact for a file",
    )
    group.add_argument(
        "--held-out",
        type=_read_share,
        default=HELD_OUT_SHARE,
        metavar="SHARE",
        help="of the questions, which are for the evaluation only; default: %(default)s",
    )
    group.add_argument(
        "--max-test",
        type=read_count,
        default=MAX_TEST_QUESTIONS,
        metavar="N",
        help="held-out questions that are asked at the most, and training questions that baselines learn from; "
        "default: %(default)s",
    )


def add_run_options(group: argparse._ArgumentGroup) -> None:
    """Adds options for the output folder, the length of the training and settings to a command line."""
    group.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="DIR",
        help="everything of the run: report, tables, checkpoint, the trained model; an earlier run goes on",
    )
    group.add_argument(
        "--profile", choices=config.PROFILES, default="paper", help="default: %(default)s"
    )
    group.add_argument(
        "--updates", type=read_count, metavar="N", help="of the model; default: the profile's"
    )
    group.add_argument(
        "--batch", type=read_count, metavar="N", help="episodes per update; default: the profile's"
    )
    group.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    add_set_option(
        group,
        "change a setting of the system such as learn.kl=0.01, or add a model, such as "
        "'llm.models.mine={backend: hugging_face, model: FOLDER, price_in: 1e-7, price_out: 2e-7}'; may be repeated",
    )


def add_set_option(group: argparse._ActionsContainer, meaning: str) -> None:
    """Add --set, which changes parameters (`experts.change_params`); meaning: what it can change, for --help."""
    group.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="changes", help=meaning
    )


def add_memory_options(group: argparse._ArgumentGroup) -> None:
    """Adds options for number format, LoRA, gradient checkpointing and sharding to a command line."""
    group.add_argument(
        "--dtype",
        choices=DTYPES,
        default="auto",
        help="of the weights; auto is float32 on a CPU and bfloat16 elsewhere; default: %(default)s",
    )
    group.add_argument(
        "--lora",
        type=read_count,
        metavar="RANK",
        help="train low-rank adapters instead of all weights; the start model is then no second copy",
    )
    group.add_argument(
        "--gradient-checkpointing",
        action="store_true",
        help="compute activations twice instead of keeping them: slower, less memory",
    )
    group.add_argument(
        "--sharded",
        action="store_true",
        help="divide weights, gradients and optimiser among the processes, for a model that one GPU cannot learn; each "
        "holds the whole model while it samples",
    )


def parse_options(
    parser: argparse.ArgumentParser, argv: Sequence[str] | None = None
) -> argparse.Namespace:
    """Read a command line; one without anything shows the help.

    Args:
        parser: Parser of `make_parser`.
        argv: The arguments; None for those of the process.

    Returns:
        The options.

    Raises:
        SystemExit: With the code 2 for a wrong or an empty command line, with 0 after --help.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    if not argv:
        parser.print_help()
        raise SystemExit(2)
    return parser.parse_args(argv)


def _read_names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(
            f"{text!r}: write different names of llm.models with commas between them"
        )
    return names


def _read_share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0 < share < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: write a number above 0 and below 1, such as 0.2"
        )
    return share


def read_count(text: str) -> int:
    try:
        count = int(text)
    except ValueError:
        count = 0
    if count < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: write a whole number from 1 on")
    return count
