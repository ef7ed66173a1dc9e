"""Ask the agents that ARC configures: `python -m lib ask "What is the number of Ana * 38 ?"`.

A policy that lesson 07 trained chooses workflow, tools, budgets and prompts for the question; the agents then work on
it. Printed are the configuration, how sure the policy was of each part, what every agent left, the answer, and what it
cost. The lab's agents know the bench's own kinds of questions only; with --model any other of llm.models is set up.
Nothing of question and replies is kept, unless --out names a folder for the recording.
"""

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from lib import config
from lib.agent_configuration import experiment, explain
from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_system import ConfiguredAnswer, ConfiguredQuestion
from lib.agent_configuration.cost_plan import announce_questions
from lib.config import Params, ParamsError
from lib.language_models.training import build
from lib.language_models.training.model_folders import add_released_models
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import LLMError
from lib.llm.open_models import export_recording
from lib.tasks import Item
from lib.tools import SandboxUnavailable


def read_options(argv: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The options.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lib ask",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "question", help='such as "3 + 4 * 2 - 5 = ?" or "What is the home of the friend of Ana ?"'
    )
    parser.add_argument(
        "--policy",
        default=str(experiment.POLICY),
        help="folder of a trained policy; default: of lesson 07",
    )
    parser.add_argument(
        "--model", help="a name of llm.models for all agents; default: configuration.model"
    )
    parser.add_argument(
        "--out",
        help="folder that keeps what servers replied and what was spent; default: nothing is kept",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="of the agents' random numbers; default: %(default)s"
    )
    parser.add_argument(
        "--profile", choices=config.PROFILES, default="laptop", help="default: %(default)s"
    )
    return parser.parse_args(argv)


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question that was asked on the command line.

    Attributes:
        configuration: What the policy chose for it.
        reasons: Every choice with its probability.
        outcome: What the agents answered, and what it cost.
    """

    configuration: Configuration
    reasons: list[explain.Reason]
    outcome: ConfiguredAnswer


def ask(options: argparse.Namespace) -> AnsweredQuestion:
    """Let a trained policy configure the agents for the question, and let them answer it.

    Args:
        options: Options of the command line.

    Returns:
        The question with its answer.

    Raises:
        ParamsError: An unknown model, an empty question, or no trained policy.
    """
    params = _read_params(options)
    item = Item(options.question, "", "", "asked", 1, f"asked/{options.question}")
    context = experiment.make_context(params)
    # In a fresh clone; without a policy there is no answer, so then no time is spent on it.
    if (Path(options.policy) / "policy.json").is_file():
        add_released_models(params.lab, list_lab_models(params), context.models, build.RUNS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or scratch
        context = replace(context, runs=folder, cassettes=folder)
        with experiment.open_workbench(context, params.configuration) as bench:
            kind = experiment.guess_kind(bench, item)
            policy = experiment.read_published_policy(options.policy, bench, kind)
            states = torch.from_numpy(bench.make_states([item]))
            (configuration,) = policy.decide(states).configurations

            costs = announce_questions(params, 1, "one question")
            if costs:
                print(costs, file=sys.stderr, flush=True)
            job = ConfiguredQuestion(item, configuration, options.seed)
            (outcome,) = bench.make_system(params.configuration.model).run([job])
            reasons = explain.list_reasons(policy, states)
        export_recording(params.llm, experiment.NAME, folder)
    return AnsweredQuestion(configuration, reasons, outcome)


def _read_params(options: argparse.Namespace) -> Params:
    """Load the settings of a profile, with the model of the command line for all agents.

    Args:
        options: Options of the command line.

    Returns:
        All settings.

    Raises:
        ParamsError: There is no such model, or the question is empty.
    """
    params = config.load(options.profile)
    model = options.model or params.configuration.model
    if model not in params.llm.models:
        raise ParamsError(f"--model {model}: llm.models has {', '.join(params.llm.models)}")
    if not options.question.strip():
        raise ParamsError("the question is empty; write one, such as '3 + 4 * 2 - 5 = ?'")
    settings = params.configuration.model_copy(update={"model": model})
    return params.model_copy(update={"configuration": settings})


def list_lab_models(params: Params) -> list[str]:
    """List the lab models (small transformers that are trained here) that a question needs: of agents and encoder.

    Args:
        params: All parameters; `configuration.model` is the agents' model, a name of `llm.models`.

    Returns:
        Names of folders in data/models; none where agents and encoder are other models.
    """
    settings = params.configuration
    names = []
    agent_model = params.llm.models[settings.model]
    if agent_model.backend == "lab":
        names.append(agent_model.model or settings.model)
    encoder_kind, _, encoder_model = settings.encoder.partition(":")
    if encoder_kind == "lab":
        names.append(encoder_model)
    return names


def print_answer(answered: AnsweredQuestion) -> None:
    """Print the configuration and its probabilities, the agents' notes, the answer, and the cost.

    Args:
        answered: The answered question.
    """
    outcome = answered.outcome
    print(f"configuration: {answered.configuration}\n")
    for reason in answered.reasons:
        runner_up = ""
        if reason.runner_up:
            runner_up = f" (then {reason.runner_up}: {reason.runner_up_probability:.2f})"
        print(f"  {reason.question:<24} {reason.choice}: {reason.probability:.2f}{runner_up}")
    print()
    for note in outcome.trail:
        print(f"  {note.role:<10} {note.whole}{' [cut off]' if note.cut else ''}")
    answer = outcome.answer
    # Why there is no answer, each kind of failure once.
    if answer is None:
        failures = ", ".join(dict.fromkeys(outcome.failures))
        answer = f"none ({failures})" if failures else "none"
    print(f"\nanswer: {answer}")
    print(
        f"cost: {outcome.calls} calls, {outcome.tokens_in} tokens read, {outcome.tokens_out} written, "
        f"{outcome.used} calls of tools, ${outcome.cost_usd:.3g}, {outcome.seconds:.3g} s by the declared clock"
    )


def main(argv: list[str] | None = None) -> int:
    """Run the command.

    Args:
        argv: Arguments; None for those of the process.

    Returns:
        The exit code: 2 for a mistake in the input, which is explained in one line, and 130 after Ctrl-C.
    """
    options = read_options(argv)
    try:
        answered = ask(options)
    except (BudgetExceeded, LLMError, SandboxUnavailable, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print_answer(answered)
    return 0
