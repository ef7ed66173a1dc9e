"""Ask your models your questions, and keep what came of it: `python -m lib router collect QUESTIONS --out FILE`.

QUESTIONS is a file with prompts and reference answers (.csv, .jsonl, .parquet), a data set as published
(gsm8k:FOLDER), or a family of this project (chain). Models are names of llm.models in params.yaml, or of --model-file.
The table has a row for each call: item, group, model, sample, correct, score, cost_usd, seconds, tokens_in,
tokens_out, prompt_hash, failure. Beside it lie the prompts and what servers replied; nothing is kept elsewhere.
The same command goes on where it was stopped, and asks again what failed.
"""

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from lib import config
from lib.config import LLMSettings
from lib.language_models.local_models import open_local
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import LLMError
from lib.llm.event_loop import run_coroutine
from lib.llm.open_models import ChatModels, export_recording, open_models
from lib.recorded_outcomes.tables import TableError
from lib.routers import collect_outcomes
from lib.routers.collect_outcomes import CollectSettings, OutcomeCall
from lib.routers.model_settings import MODELS_HELP, read_model_settings, select_models
from lib.tasks.dataset import Dataset, load
from lib.tasks.scorers.scorer import SCORERS, Scorer, ScorerError, make_scorer

EXAMPLES = """examples:
  python -m lib router collect chain --limit 200 --models nano-listed,mini-listed,large-listed --max-usd 0 \\
      --out data/mine/outcomes.parquet
  python -m lib router collect questions.csv --model-file models.yaml --models small,large --samples 2 \\
      --scorer math --max-usd 3 --out outcomes.parquet
then:
  python -m lib router evaluate outcomes.parquet
  python -m lib router fit outcomes.parquet --budget 0.002 --out ROUTER
"""


def make_parser() -> argparse.ArgumentParser:
    """Makes the parser of the command line of `router collect`.

    Returns:
        The parser.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lib router collect",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=EXAMPLES,
    )
    add = parser.add_argument
    add("questions", help="a file, PRESET:PATH, or a family of tasks")
    add("--models", required=True, metavar="NAME,NAME", help="names of llm.models, two or more")
    add("--model-file", type=Path, metavar="FILE", help=MODELS_HELP)
    add("--out", required=True, type=Path, metavar="FILE.parquet", help="the table")
    add(
        "--max-usd",
        required=True,
        type=float,
        metavar="USD",
        help="spending limit of all runs for this table together; 0 where no endpoint is asked",
    )
    add("--samples", type=int, default=1, metavar="N", help="of each; default: %(default)s")
    add(
        "--scorer",
        help="how replies are judged; default: the usual one of the questions. "
        + "; ".join(f"{name}: {meaning}" for name, meaning in SCORERS.items()),
    )
    add("--limit", type=int, metavar="N", help="questions at the most, drawn at random")
    add("--split", help="train, dev or test, of questions that have splits")
    add(
        "--temperature",
        type=float,
        help="of replies; default: each model's own, or "
        f"{collect_outcomes.RESAMPLED_TEMPERATURE:g} for several samples",
    )
    add("--max-tokens", type=int, metavar="N", help="of a reply; default: each model's own")
    add("--seed", type=int, default=0, help="of samples and of --limit; default: %(default)s")
    add("--plan", action="store_true", help="say what it would cost, and ask nothing")
    add("--profile", choices=config.PROFILES, default="laptop", help="default: %(default)s")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Collects outcomes.

    Args:
        arguments: Arguments of the command line.

    Returns:
        0; or 2 where something is wrong or the money is spent, which one line on standard error says; or 130 where it
        was interrupted.
    """
    options = make_parser().parse_args(arguments)
    try:
        return run(options)
    except (BudgetExceeded, LLMError, ScorerError, OSError, ValueError) as error:
        reason = " ".join(str(error).split())
        # The limit is that of the command line here.
        print(f"error: {reason.replace('llm.max_usd', '--max-usd')}", file=sys.stderr)
        if options.out.is_file():
            print(f"what was finished is in {options.out}; run again to go on", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"stopped; run again to go on with {options.out}", file=sys.stderr)
        return 130


def run(options: argparse.Namespace) -> int:
    """Asks the models for what the outcome table lacks, and writes the table.

    Args:
        options: Options of the command line, as `make_parser` reads them.

    Returns:
        0. Errors are raised, for `main` to report.
    """
    model_names = read_names(options)
    check_out(options.out)
    dataset = load_questions(options)
    settings = make_settings(options, dataset)

    calls = collect_outcomes.list_calls(dataset, model_names, options.samples)
    finished_rows = collect_outcomes.read_rows(options.out, settings)
    remaining = collect_outcomes.select_remaining(calls, finished_rows)

    judge_names = list_judges(dataset.scorer)
    asked_names = list(dict.fromkeys([*model_names, *judge_names]))
    llm = read_llm_settings(options, asked_names)
    folder, recording = options.out.parent, options.out.stem
    folder.mkdir(parents=True, exist_ok=True)
    models = open_models(llm, asked_names, recording, folder, folder, open_local=open_local())
    try:
        planned = collect_outcomes.plan_calls(models, remaining, settings)
        for judge in judge_names:
            planned.append(collect_outcomes.plan_judgements(models[judge], remaining, settings))
        num_finished = len(calls) - len(remaining)
        announcement = collect_outcomes.announce_collection(
            llm, planned, num_finished, options.max_usd
        )
        print(announcement, flush=True)
        if options.plan:
            return 0
        scorer = make_scorer(dataset.scorer, models)
        check_scorer(scorer, dataset, judge_names)
        rows = finished_rows
        if remaining:
            rows = run_coroutine(
                collect_and_close(models, scorer, remaining, settings, options.out, finished_rows)
            )
    finally:
        # Also where it was stopped: a reply that was paid for is not asked again.
        export_recording(llm, recording, folder)
    print(collect_outcomes.summarize(rows).to_string(float_format="{:.6g}".format))
    print(f"{len(rows):,} rows in {options.out}")
    return 0


def load_questions(options: argparse.Namespace) -> Dataset:
    """Loads the questions that the command line names, and prints the notes of their reader.

    Args:
        options: Options of the command line.

    Returns:
        The questions, with a scorer.

    Raises:
        ScorerError: They have no reference answers, and no scorer is named that needs none.
    """
    dataset = load(
        options.questions,
        scorer=options.scorer,
        split=options.split,
        limit=options.limit,
        seed=options.seed,
    )
    if not dataset.scorer:
        raise ScorerError(
            f"{options.questions} has no reference answers, so --scorer must say how replies are judged, such as "
            "judge:MODEL"
        )
    for note in dataset.notes:
        print(note)
    return dataset


def make_settings(options: argparse.Namespace, dataset: Dataset) -> CollectSettings:
    """Makes the settings of the collection; several samples of a question need a temperature above 0."""
    temperature = options.temperature
    if temperature is None and options.samples > 1:
        temperature = collect_outcomes.RESAMPLED_TEMPERATURE
        print(f"{options.samples} samples of each are drawn at temperature {temperature:g}")
    return CollectSettings(dataset.scorer, temperature, options.max_tokens, options.seed)


def list_judges(scorer: str) -> list[str]:
    """Lists the models that judge replies: that of "judge:MODEL", none for any other scorer."""
    return [scorer.partition(":")[2]] if scorer.startswith("judge:") else []


def read_llm_settings(options: argparse.Namespace, names: Sequence[str]) -> LLMSettings:
    """Reads the settings of the named models; replies are recorded, and --max-usd is the limit of spending."""
    llm = read_model_settings(options.profile, options.model_file)
    llm = llm.model_copy(update={"max_usd": options.max_usd, "cassette": "record"})
    return select_models(llm, names, options.profile)


async def collect_and_close(
    models: ChatModels,
    scorer: Scorer,
    calls: Sequence[OutcomeCall],
    settings: CollectSettings,
    table: Path,
    rows,
):
    """`collect_outcomes.collect_outcomes`, after which the models are closed in the event loop that opened them."""
    async with models:
        return await collect_outcomes.collect_outcomes(
            models, scorer, calls, settings, table, rows, lambda line: print(line, flush=True)
        )


def read_names(options: argparse.Namespace) -> list[str]:
    """Reads the models' names from the command line, and checks all numbers of the command line.

    Args:
        options: Options of the command line.

    Returns:
        Names in llm.models.

    Raises:
        ValueError: An option has a wrong value; the message names it.
    """
    names = [name.strip() for name in options.models.split(",") if name.strip()]
    if len(set(names)) < 2 or len(set(names)) < len(names):
        raise ValueError(f"--models {options.models}: name two or more models, each once, as a,b")
    for option, value in (("--samples", options.samples), ("--max-tokens", options.max_tokens)):
        if value is not None and value < 1:
            raise ValueError(f"{option} {value}: give a whole number from 1 on")
    if not 0 <= options.max_usd < math.inf:
        raise ValueError(f"--max-usd {options.max_usd}: give US dollars, 0 or more")
    if options.temperature is not None and not 0 <= options.temperature <= 2:
        raise ValueError(f"--temperature {options.temperature}: give a number from 0 to 2")
    return names


def check_out(out: Path) -> None:
    """Raises TableError for an --out that is no name of a Parquet file."""
    if out.suffix != ".parquet" or out.is_dir():
        raise TableError(f"--out {out}: name a file that ends in .parquet")


def check_scorer(scorer: Scorer, dataset: Dataset, judge_names: Sequence[str]) -> None:
    """Scores one reference answer, so that a scorer that cannot score these items fails before anything is paid."""
    if not judge_names:
        first_item = dataset.items[0]
        scorer.score([first_item], [first_item.reference])
