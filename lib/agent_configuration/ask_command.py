"""Ask the agents that ARC configures: `python -m lib ask "What is the number of Ana * 38 ?"`.

A policy that lesson 07 trained chooses workflow, tools, budgets and prompts for the question; the agents then work on
it. Printed are the configuration, how sure the policy was of each part, what every agent left, the answer, and what it
cost. The lab's agents know the bench's own kinds of questions only; with --model any other of llm.models is set up.
Nothing of question and replies is kept, unless --out names a folder for the recording.
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from lib import config
from lib.agent_configuration import experiment, explain
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


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
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
    return parser.parse_args(given)


def asked(options: argparse.Namespace) -> tuple[list[explain.Reason], str, ConfiguredAnswer]:
    """Why, what, and what came of it. Raises ParamsError for an unknown model, or where there is no policy yet."""
    everything = config.load(options.profile)
    settings = everything.configuration
    model = options.model or settings.model
    if model not in everything.llm.models:
        raise ParamsError(f"--model {model}: llm.models has {', '.join(everything.llm.models)}")
    if not options.question.strip():
        raise ParamsError("the question is empty; write one, such as '3 + 4 * 2 - 5 = ?'")
    changed = everything.model_copy(
        update={"configuration": settings.model_copy(update={"model": model})}
    )
    item = Item(options.question, "", "", "asked", 1, f"asked/{options.question}")
    context = experiment.make_context(changed)
    # In a fresh clone; without a policy there is no answer, so then no time is spent on it.
    if (Path(options.policy) / "policy.json").is_file():
        add_released_models(changed.lab, list_lab_models(changed), context.models, build.RUNS)
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.out or scratch
        context = replace(context, runs=folder, cassettes=folder)
        with experiment.opened_place(context, changed.configuration) as place:
            kind = experiment.guess_kind(place, item)
            policy = experiment.published(options.policy, place, kind)
            states = torch.from_numpy(place.states([item]))
            (chosen,) = policy.decide(states).configurations
            costs = announce_questions(changed, 1, "one question")
            if costs:
                print(costs, file=sys.stderr, flush=True)
            (outcome,) = place.system(model).run([ConfiguredQuestion(item, chosen, options.seed)])
            reasons = explain.reasons(policy, states)
        export_recording(changed.llm, experiment.NAME, folder)
    return reasons, str(chosen), outcome


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


def main(given: list[str] | None = None) -> int:
    """Run; mistakes in the input end in one line and the code 2."""
    options = arguments(given)
    try:
        why, chosen, outcome = asked(options)
    except (
        BudgetExceeded,
        LLMError,
        SandboxUnavailable,
        OSError,
        ValueError,
    ) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    print(f"configuration: {chosen}\n")
    for reason in why:
        other = f" (then {reason.runner}: {reason.second:.2f})" if reason.runner else ""
        print(f"  {reason.part:<24} {reason.chosen}: {reason.probability:.2f}{other}")
    print()
    for note in outcome.trail:
        print(f"  {note.role:<10} {note.whole}{' [cut off]' if note.cut else ''}")
    why_none = f" ({', '.join(dict.fromkeys(outcome.failures))})" if outcome.failures else ""
    print(f"\nanswer: {outcome.answer if outcome.answer is not None else 'none' + why_none}")
    print(
        f"cost: {outcome.calls} calls, {outcome.tokens_in} tokens read, {outcome.tokens_out} written, "
        f"{outcome.used} calls of tools, ${outcome.cost_usd:.3g}, {outcome.seconds:.3g} s by the declared clock"
    )
    return 0
