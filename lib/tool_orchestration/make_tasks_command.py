"""Write office tasks: `python -m lib tasks make --out offices.json`.

By a procedure in the lab's words, or with --writer by any model of llm.models in params.yaml, about --topic after
--topic: schema, records, functions, tasks, harder tasks, each checked by doing it in SQLite. What a model writes is
data, never code; it is recorded beside the file, so that the same command asks nothing twice. With --solvers a task is
dropped that the strongest of these models does not solve in 8 tries. The file is opened by
`lib.tasks.synthesis.load_corpus`.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

from lib import config
from lib.config import ParamsError
from lib.language_models.local_models import open_local
from lib.llm.chat_model import ChatRequest
from lib.llm.cost_estimate import PlannedCalls, announce_costs
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import LLMError
from lib.llm.event_loop import EventLoopThread
from lib.llm.failure_policy import ReplyCounts
from lib.llm.open_models import export_recording, open_models
from lib.rl.expert_pool import ExpertPool
from lib.tasks.synthesis import DOMAINS, HARDEST, Corpus, LLMWriter, filter_tasks, synthesize
from lib.tasks.synthesis.filters import NUM_ATTEMPTS
from lib.tool_orchestration import task_solvers, tool_menu
from lib.tool_orchestration.prompted_baseline import plan_prompted_episodes
from lib.tool_orchestration.tool_environment import ToolEnvironment

PROMPT_TOKENS = 4_000  # of tables, functions and records that a writer reads, at the most


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The options.
    """
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
        "--solvers",
        type=split_names,
        default=(),
        metavar="A,B",
        help="names of llm.models; default: nobody has to solve the tasks",
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
    return parser.parse_args(argv)


def split_names(text: str) -> tuple[str, ...]:
    """Split names at commas, and keep each once.

    >>> split_names("small, large,small")
    ('small', 'large')
    """
    names = [name.strip() for name in text.split(",")]
    return tuple(dict.fromkeys(name for name in names if name))


def write(options: argparse.Namespace) -> Corpus:
    """Write office tasks, filter them, and save them.

    Args:
        options: Options of the command line.

    Returns:
        The corpus of tasks.

    Raises:
        ParamsError: A writer or a solver that there is not, or a writer without a topic.
    """
    llm = config.load(options.profile).llm
    unknown = [name for name in options.solvers if name not in llm.models]
    if unknown:
        raise ParamsError(f"--solvers {unknown[0]}: llm.models has {', '.join(llm.models)}")
    if options.writer is None:
        corpus = synthesize(DOMAINS, options.databases, options.tasks, options.seed)
    else:
        corpus = _synthesize_by_model(options)
    if options.solvers:
        corpus = drop_unsolved_tasks(corpus, options)
    corpus.save(options.out)
    return corpus


def drop_unsolved_tasks(corpus: Corpus, options: argparse.Namespace) -> Corpus:
    """Drop the tasks that the strongest solver does not solve in NUM_ATTEMPTS tries (ToolOrchestra: pass@8).

    Args:
        corpus: The tasks that were written.
        options: The command line: --solvers, --profile and --out.

    Returns:
        The corpus without these tasks, which stand among the dropped ones.
    """
    params = config.load(options.profile)
    llm = params.llm
    max_turns = params.tools.rounds
    num_episodes = task_solvers.PROBE_TASKS + NUM_ATTEMPTS * len(corpus.tasks)
    planned = [
        plan_prompted_episodes(llm, name, num_episodes, max_turns) for name in options.solvers
    ]
    print(announce_costs(llm, planned), flush=True)

    out = Path(options.out)
    recording = f"{out.stem}-solvers"
    names = list(options.solvers)
    models = open_models(llm, names, recording, out.parent, out.parent, open_local=open_local())
    office_offer = tool_menu.make_office_offer(
        tool_menu.read_price_list(config.ROOT / params.tools.prices)
    )
    try:
        with (
            ExpertPool(models, {name: name for name in names}, task_solvers.TEMPERATURE) as pool,
            ToolEnvironment(pool, {}) as environment,
        ):
            solvers = task_solvers.make_prompted_solvers(
                environment, office_offer, names, max_turns
            )
            rates = task_solvers.measure_solvers(solvers, corpus.tasks)
            strongest = task_solvers.choose_strongest(rates)
            solved, unsolved = filter_tasks(corpus.tasks, solvers[strongest])
    finally:
        # Also where it was stopped: what was paid for is not asked again.
        export_recording(llm, recording, out.parent)
    shares = ", ".join(f"{name} {rate:.0%}" for name, rate in rates.items())
    print(f"tasks solved in one try: {shares}; {strongest} decides")
    return Corpus(corpus.sources, tuple(solved), (*corpus.dropped, *unsolved))


def _synthesize_by_model(options: argparse.Namespace) -> Corpus:
    """Let a chat model write office tasks, one prompt at a time.

    A prompt that is repeated is sent as another sample; a reply that cannot be used counts as empty.

    Args:
        options: Options of the command line: --writer, --topic, --out and the numbers of databases and tasks.

    Returns:
        The corpus of tasks.

    Raises:
        ParamsError: The writer is not in llm.models, or there is no topic.
    """
    llm = config.load(options.profile).llm
    if options.writer not in llm.models:
        raise ParamsError(f"--writer {options.writer}: llm.models has {', '.join(llm.models)}")
    if not options.topics:
        raise ParamsError("--writer needs at least one --topic, such as --topic library")
    print(announce_costs(llm, [plan_writing(options, llm)]), flush=True)
    # What a model was asked and replied is the user's: it lies beside the file that it is for.
    out = Path(options.out)
    work = f"{out.stem}-writer"
    models = open_models(
        llm, [options.writer], work, out.parent, out.parent, open_local=open_local()
    )
    loop = EventLoopThread()
    samples: Counter[str] = Counter()
    counts = ReplyCounts()

    def ask(prompt: str) -> str:
        """Ask the writer for a reply to a prompt, with a new sample index each time.

        Args:
            prompt: The prompt.

        Returns:
            The reply; "" where it cannot be used.
        """
        sample = samples[prompt]
        samples[prompt] += 1
        request = ChatRequest(
            [{"role": "user", "content": prompt}], seed=sample, sample=sample, caller="writer"
        )
        reply = loop.run(models[options.writer].reply_to(request))
        counts.add(reply)
        return reply.text if reply.usable else ""

    try:
        return synthesize(
            LLMWriter(ask, options.topics), options.databases, options.tasks, options.seed
        )
    finally:
        print(f"{options.writer}: {counts.describe()}")
        loop.run(models.aclose())
        loop.close()
        export_recording(llm, work, out.parent)


def plan_writing(options: argparse.Namespace, llm: config.LLMSettings) -> PlannedCalls:
    """Plan the calls of the model that writes office tasks: the largest number that it may take.

    Args:
        options: The command line.
        llm: The models.

    Returns:
        The calls; replies are as long as they may be.
    """
    calls_per_domain = 4  # subjects, twice; tables; functions
    # Records of two subjects are written, and each is checked, for a database that is kept.
    calls_per_database = 4
    # Purposes; then for twice as many purposes as needed a task and its harder versions.
    calls_per_database += 1 + 2 * options.tasks * HARDEST
    num_calls = calls_per_domain * len(options.topics) + calls_per_database * options.databases
    tokens_out = num_calls * llm.models[options.writer].max_tokens
    return PlannedCalls(options.writer, num_calls, PROMPT_TOKENS * num_calls, tokens_out)


def main(argv: list[str] | None = None) -> int:
    """Run the command; a mistake in the input ends it with one line of explanation.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The exit code: 0, 2 after a mistake, 130 where it was stopped.
    """
    options = arguments(argv)
    try:
        corpus = write(options)
    except (BudgetExceeded, LLMError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            "stopped; no tasks were written, and what endpoints answered is recorded beside them",
            file=sys.stderr,
        )
        return 130
    print(corpus.statistics().T.to_string(header=False))
    print(f"{len(corpus.tasks)} tasks in {options.out}, {len(corpus.dropped)} dropped")
    return 0
