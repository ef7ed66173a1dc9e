"""ARC on your own model and questions: a small policy learns which agents to set up for each question.

One chat model of llm.models plays all agents: a reasoner, a verifier, an answerer. For each question the policy chooses
one of nine workflows, the tools and the tokens of each agent, and short instructions (atoms) for their prompts. Right
answers are rewarded, calls and tokens cost a little, and tools that are given should be used (ARC, eq. 3 and 4). Policy
and value networks are small; the agents' model is asked only, and learns nothing.

Questions are in three parts: to learn from, dev, and held-out ones. On the held-out ones ARC is compared with random
choices, the base model with all tools in one call, the best constant configuration on dev, a flat bandit that was
trained on the same questions for as many episodes, and an oracle over everything that was tried. What the run may take
is printed first, and --max-usd is a hard stop. Report, tables, policy and all replies lie under --out. Run the same
command again to go on after Ctrl-C or the spending limit: nothing is paid twice.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from lib.agent_configuration import user_report
from lib.agent_configuration.action_space import TOOLS, valid
from lib.agent_configuration.atoms import BASE, Atom, collect_prompts, read_library
from lib.agent_configuration.encoders import make_encoder
from lib.agent_configuration.episode_cache import EpisodeCache, EpisodeProgress
from lib.agent_configuration.rewards import Weights
from lib.agent_configuration.saved_policy import save_policies
from lib.agent_configuration.user_agents import (
    UserAgents,
    open_user_agents,
    select_user_atoms,
)
from lib.agent_configuration.user_inputs import ConfigurationInputs, describe_run, read_inputs
from lib.agent_configuration.user_plan import announce_estimate, announce_most
from lib.agent_configuration.user_training import UserTraining
from lib.agent_configuration.variants import ARC
from lib.agent_configuration.written_atoms import WRITTEN, write_atoms, write_library
from lib.config import ParamsError
from lib.experiment.harness import use_one_thread
from lib.rl.user_training.options import add_data_options, add_run_options, parse_options
from lib.rl.user_training.processes import join_processes
from lib.rl.user_training.progress import ProgressLine
from lib.rl.user_training.run_folder import open_run_folder
from lib.rl.user_training.training import is_first_process, run_command

ATOMS = "atoms.yaml"
EPISODES = "played.parquet"
POLICY = "policy"  # the folder of the trained policies under --out
EXAMPLES = """\
examples:
  python -m lib train arc --data gsm8k:data/gsm8k --split train --model small --tools calculator,python \\
      --max-usd 3 --out runs/gsm8k-arc
  python -m lib train arc --data questions.csv --scorer f1 --model small --tools search --documents handbook/ \\
      --write-atoms large --updates 40 --set ppo.structure_rate=3e-3 --max-usd 1 --out runs/handbook
  python -m lib train arc --data questions.csv --model mine --set 'llm.models.mine={backend: endpoint, \\
      base_url: "http://localhost:8080/v1", model: qwen3, max_tokens: 2048, price_in: 0, price_out: 0}' --out runs/mine
"""


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Args:
        argv: Arguments; None for those of the process.

    Returns:
        The options.

    Raises:
        SystemExit: With the code 2 for a wrong or an empty command line, with 0 after --help.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lib train arc",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    _add_agent_options(parser.add_argument_group("agents"))
    add_data_options(parser.add_argument_group("questions"))
    run_group = parser.add_argument_group("the run")
    add_run_options(run_group)
    run_group.add_argument(
        "--max-usd",
        type=_read_dollars,
        metavar="USD",
        help="spending limit of all calls for this --out together; default: llm.max_usd of params.yaml",
    )
    run_group.add_argument(
        "--plan", action="store_true", help="say what the run takes at the most, and ask nothing"
    )
    run_group.add_argument(
        "--oracle",
        action="store_true",
        help="try all candidates of the best constant on the held-out questions too, for the oracle alone",
    )
    return parse_options(parser, argv)


def _add_agent_options(group: argparse._ArgumentGroup) -> None:
    """Add the options on the agents and on what the policy chooses from.

    Args:
        group: Group of a parser.
    """
    group.add_argument(
        "--model", required=True, metavar="NAME", help="of llm.models in params.yaml: all agents"
    )
    group.add_argument(
        "--tools",
        type=_read_tools,
        metavar="A,B",
        help=f"that agents may be given, of {', '.join(TOOLS)} (the last but for search read nothing of yours, and "
        "lookup knows the lab's world only), or none; default: all that make sense",
    )
    group.add_argument(
        "--documents",
        type=Path,
        metavar="PATH",
        help="what the tool search is over: a folder or a file of text (.txt, .md) or tables with a column text",
    )
    group.add_argument(
        "--budget",
        action="append",
        default=[],
        metavar="AGENT=LOW,MEDIUM,HIGH",
        dest="budgets",
        help="tokens that reasoner, verifier or answerer may write in a call; may be repeated; default: the paper's, "
        "512,1024,2048, 256,512,1024 and 128,256,512, scaled down until the model's max_tokens can fill them",
    )
    group.add_argument(
        "--atoms",
        type=Path,
        metavar="FILE",
        help="library of instructions; default: the shipped one",
    )
    group.add_argument(
        "--write-atoms",
        metavar="MODEL",
        help="let this model of llm.models write further instructions for the questions; they are checked, kept in "
        "OUT/atoms.yaml and used again",
    )
    group.add_argument(
        "--encoder",
        metavar="E",
        help="what the policy reads of a question: hashing, tf-idf, minilm (an installed package), lab:NAME or "
        "sentence:FOLDER; default: configuration.encoder",
    )
    group.add_argument(
        "--by-group",
        action="store_true",
        help="train one policy for each group of the questions, as the paper does for each data set",
    )


def _read_tools(text: str) -> tuple[str, ...]:
    if text.strip() == "none":
        return ()
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _read_dollars(text: str) -> float:
    try:
        dollars = float(text)
    except ValueError:
        dollars = -1.0
    if not 0 <= dollars < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: write US dollars, 0 or more")
    return dollars


def train(options: argparse.Namespace) -> None:
    """Train, evaluate and write the report.

    Args:
        options: Options of the command line.

    Raises:
        ParamsError, TaskError, ScorerError, EncoderError: Something of the input is wrong; nothing was asked yet.
        LLMError, BudgetExceeded: A model cannot be asked any more; what was finished is kept.
    """
    with ProgressLine(f"reading {options.data}", is_silent=not is_first_process()) as progress:
        inputs = read_inputs(options)
        share = join_processes(needs_several=False)
        if share.num_processes > 1:
            raise ParamsError("the policies are small: start the command once, without torchrun")
        for sentence in (*inputs.notes, inputs.questions.note, announce_most(inputs)):
            progress.say(sentence)
        if options.plan:
            return
        described = describe_run(inputs)
        if inputs.backend != "hugging_face":
            use_one_thread()  # several threads wait for one another at networks of this size
        with (
            open_run_folder(options.out, described, share) as folder,
            open_user_agents(
                inputs.llm,
                inputs.model,
                inputs.other_models,
                inputs.tools,
                options.documents,
                inputs.settings.temperature,
                folder,
            ) as agents,
        ):
            progress.activity = "choosing instructions"
            atoms = choose_atoms(inputs, agents)
            progress.say(describe_space(inputs, atoms))
            training = make_training(inputs, agents, atoms, progress)

            # A few questions first, to know what an episode takes.
            trials, seconds = training.try_trials()
            progress.say(announce_estimate(inputs, trials, seconds))

            outcome = training.run()
            save_policies(
                folder / POLICY,
                training.select_policies(ARC),
                training.describe_policy(ARC),
                training.encode,
            )
            counts = agents.models.reply_counts
            user_report.write_report(training, outcome, described, counts)
            progress.say(f"policy: {folder / POLICY}")


def choose_atoms(inputs: ConfigurationInputs, agents: UserAgents) -> list[Atom]:
    """Choose the instructions of a run: the shipped general ones, and written ones where they were asked for.

    They are kept under --out; a later call reads them there.

    Args:
        inputs: What the run is given.
        agents: Have the model that writes.

    Returns:
        The instructions that the agents can get.
    """
    path = inputs.folder / ATOMS
    if not path.exists():
        atoms = [atom for atom in read_library(inputs.atoms_file) if atom.family == BASE]
        writer = inputs.options.write_atoms
        if writer:
            items = inputs.questions.train
            atoms += write_atoms(agents.models[writer], items, inputs.tools, agents.loop)
        write_library(path, atoms)
    return select_user_atoms(read_library(path), inputs.backend, inputs.tools, (BASE, WRITTEN))


def describe_space(inputs: ConfigurationInputs, atoms: Sequence[Atom]) -> str:
    """Describe in a sentence what the policy chooses from.

    Args:
        inputs: Tools and budgets.
        atoms: The instructions that agents may get.

    Returns:
        The sentence.
    """
    num_written = sum(atom.family == WRITTEN for atom in atoms)
    written = f", {num_written} of them written for these questions" if num_written else ""
    tools = ", ".join(inputs.tools) or "no tools"
    budgets = "; ".join("/".join(map(str, tiers)) for tiers in inputs.budgets)
    return (
        f"Space: {valid(inputs.tools):,} structures with {tools}, budgets of {budgets} tokens, {len(atoms)} "
        f"instructions{written}."
    )


def make_training(
    inputs: ConfigurationInputs,
    agents: UserAgents,
    atoms: list[Atom],
    progress: ProgressLine,
) -> UserTraining:
    """Make the training of a run.

    Args:
        inputs: What the run is given.
        agents: Models and tools.
        atoms: The instructions that the agents can get.
        progress: The line on the terminal.

    Returns:
        The training.
    """
    system = agents.make_system(
        inputs.budgets,
        collect_prompts(atoms, inputs.backend),
        inputs.questions.scorer,
        inputs.is_lab_world,
    )

    episode_progress = EpisodeProgress(progress)
    system.report_progress = episode_progress.count
    weights = Weights(**inputs.settings.reward.model_dump())
    episodes = EpisodeCache(inputs.folder / EPISODES, system, weights, episode_progress)
    training_questions = [item.prompt for item in inputs.questions.train]
    encode = make_encoder(inputs.encoder, training_questions=training_questions)
    return UserTraining(inputs, system, episodes, atoms, encode, progress)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; a mistake in the input ends it with one line of explanation and the exit code 2."""
    return run_command(read_options(argv), train)


if __name__ == "__main__":
    raise SystemExit(main())
