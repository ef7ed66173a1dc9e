"""Write office tasks: `python -m lib tasks make --out offices.json`.

By a procedure in the lab's words, or with --writer by any model of llm.models in params.yaml, about --topic after
--topic: schema, records, functions, tasks, harder tasks, each checked by doing it in SQLite. What a model writes is
data, never code. The file is opened by `lib.tasks.synthesis.load`.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from lib import config
from lib.config import ParamsError
from lib.language_models.serving.transport import lab
from lib.llm.client_factory import export, opened
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import CassetteMiss, ConfigurationError, ReplyError
from lib.llm.event_loop import Loop
from lib.tasks.synthesis import DOMAINS, Corpus, LLMWriter, synthesize

NAME = "offices"  # of the cassette and of the purse
CASSETTES = config.ROOT / "data/cassettes"


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m lib tasks make",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", required=True, help="the JSON file to write")
    parser.add_argument("--writer", help="a name of llm.models; default: a procedure")
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        dest="topics",
        help="a domain for the writer to invent",
    )
    parser.add_argument(
        "--databases", type=int, default=8, help="of all domains together; default: %(default)s"
    )
    parser.add_argument(
        "--tasks", type=int, default=6, help="on each database; default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--profile", choices=config.PROFILES, default="laptop", help="default: %(default)s"
    )
    return parser.parse_args(given)


def write(options: argparse.Namespace) -> Corpus:
    """Write and save the corpus. Raises ParamsError for a writer that there is not, or one without a topic."""
    if options.writer is None:
        corpus = synthesize(DOMAINS, options.databases, options.tasks, options.seed)
    else:
        corpus = _by_model(options)
    corpus.save(options.out)
    return corpus


def _by_model(options: argparse.Namespace) -> Corpus:
    """A question at a time; equal ones are different askings. A reply that cannot be used is silence."""
    llm, transports = config.load(options.profile).llm, {}
    if options.writer not in llm.models:
        raise ParamsError(f"--writer {options.writer}: llm.models has {', '.join(llm.models)}")
    if not options.topics:
        raise ParamsError("--writer needs at least one --topic, such as --topic library")
    if llm.models[options.writer].backend == "lab":
        llm, transports = lab(llm)
    loop, asked = Loop(), Counter()
    client = opened(llm, NAME, Path(options.out).parent, CASSETTES, transports=transports)

    def ask(prompt: str) -> str:
        told, before = [{"role": "user", "content": prompt}], asked[prompt]
        asked[prompt] += 1
        try:
            return loop.run(
                client.chat(options.writer, told, seed=before, sample=before, who="writer")
            ).text
        except ReplyError:
            return ""

    try:
        return synthesize(
            LLMWriter(ask, options.topics), options.databases, options.tasks, options.seed
        )
    finally:
        loop.run(client.__aexit__())
        loop.close()
        export(llm, NAME, CASSETTES)


def main(given: list[str] | None = None) -> int:
    """Run; mistakes in the input end in one line and the code 2."""
    options = arguments(given)
    try:
        corpus = write(options)
    except (BudgetExceeded, CassetteMiss, ConfigurationError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "stopped; nothing was written, and what endpoints answered is on the cassette",
            file=sys.stderr,
        )
        return 130
    print(corpus.statistics().T.to_string(header=False))
    print(f"{len(corpus.tasks)} tasks in {options.out}, {len(corpus.dropped)} dropped")
    return 0
