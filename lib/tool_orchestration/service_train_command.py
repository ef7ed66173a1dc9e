"""ToolOrchestra on customer service: an orchestrator of your own learns on the tasks of tau2-bench.

The orchestrator, any causal language model that follows instructions, serves customers: it reads the domain's policy,
talks to a user whom the model of --user plays, calls the domain's functions, and may ask the models of --experts, at
prices and latencies that vary, for somebody with preferences about accuracy, cost and time. Calls are JSON in the form
of its chat template, or in <tool_call> tags where the template has none. tau2's own evaluator judges the final
database; correct conversations are rewarded by the preferences, compared within the rollouts of one task (GRPO).

It learns from the tasks of --split and is evaluated on those of --test-split, before and after the training, beside
every expert that serves the same customers by itself. A conversation of which a server lost a reply is counted, and in
no score. Memory and costs are printed first; --plan-only ends there, and --max-usd is a hard stop. The report, all
tables, the checkpoint and the trained model lie under --out, and so do the replies (service.jsonl). Run the same
command again to go on after Ctrl-C or a spending limit. tau2-bench is optional: `make tau2` installs it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lib import config
from lib.config import LLMSettings, ParamsError, ToolSettings
from lib.llm.cost_estimate import PlannedCalls, announce_costs, estimate_costs
from lib.llm.token_counts import count_bytes, estimate_tokens
from lib.rl import tool_conversation
from lib.rl.expert_pool import ExpertPool
from lib.rl.memory_plan import MemoryPlan
from lib.rl.user_training import results
from lib.rl.user_training.data import check_vocabulary, hash_questions
from lib.rl.user_training.experts import (
    TRIAL_QUESTIONS,
    CallCost,
    change_params,
    check_names,
    measure_calls,
    select_models,
)
from lib.rl.user_training.inputs import check_model_folder, describe_model, summarize_losses
from lib.rl.user_training.options import (
    MAX_TEST_QUESTIONS,
    add_memory_options,
    add_run_options,
    parse_options,
    read_count,
    write_epilog,
)
from lib.rl.user_training.processes import ProcessShare, join_processes
from lib.rl.user_training.progress import ProgressLine
from lib.rl.user_training.run_folder import keep_json, open_run_folder
from lib.rl.user_training.training import (
    CONTROLLER,
    Controller,
    LoopSettings,
    TrainingOutcome,
    is_first_process,
    make_model_settings,
    plan_run_memory,
    read_controller,
    run_command,
    train_and_test,
)
from lib.tasks import Item
from lib.tasks.tau2_bench import VERSION as TASKS_VERSION
from lib.tasks.tau2_bench import ServiceEnvironment, load_domain
from lib.tool_orchestration import service_episodes, service_training
from lib.tool_orchestration.make_tasks_command import split_names
from lib.tool_orchestration.service_episodes import ConversationRunner, ServiceTeam
from lib.tool_orchestration.service_options import (
    add_service_options,
    check_numbers,
    load_tasks,
    open_pool,
)
from lib.tool_orchestration.service_plan import RESULT_TOKENS, plan_episodes
from lib.tool_orchestration.service_policy import PolicyAgent
from lib.tool_orchestration.service_prompts import (
    make_expert_offer,
    make_menu,
    write_agent_prompt,
    write_expert_schema,
)
from lib.tool_orchestration.service_training import POLICY, ServiceTraining
from lib.tool_orchestration.tool_menu import Offer, UserPreference
from lib.tool_orchestration.train_command import (
    describe_call_costs,
    describe_learning,
    divide_batch,
    list_call_costs,
)

MEASURES = {
    "reward": "reward",
    "correct": "share solved",
    "cost_usd": "dollars for 1,000 conversations",
    "seconds": "seconds a conversation",
    "calls": "calls a conversation",
}
BASELINE_NOTE = "Every expert serves the same customers by itself, at the price of the task's menu."
EXAMPLES = """\
  python -m lib train toolorchestra --tasks tau2:retail --model models/Qwen2.5-7B-Instruct --lora 16 \\
      --experts small,large --user large --max-usd 200 --out runs/retail
  python -m lib train toolorchestra --tasks tau2:retail --model models/SmolLM2-135M-Instruct --experts small,large \\
      --user small --turns 10 --updates 2 --batch 4 --set rollouts=2 --set learn.microbatch=1 --max-usd 5 \\
      --max-test 10 --out runs/first
"""


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The options.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lib train toolorchestra",
        description=__doc__,
        epilog=write_epilog("toolorchestra", EXAMPLES),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    group = parser.add_argument_group("model and tasks")
    group.add_argument(
        "--model",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="a causal language model of Hugging Face that follows instructions, with its tokenizer",
    )
    group.add_argument(
        "--experts",
        required=True,
        type=split_names,
        metavar="A,B",
        help="models of llm.models that the orchestrator may ask",
    )
    add_service_options(group)
    group.add_argument("--split", default="train", help="tasks to learn from; default: %(default)s")
    group.add_argument(
        "--test-split", default="test", help="tasks of the evaluation; default: %(default)s"
    )
    group.add_argument(
        "--max-test",
        type=read_count,
        default=MAX_TEST_QUESTIONS,
        metavar="N",
        help="tasks of each domain in the evaluation at the most; default: %(default)s",
    )
    add_run_options(parser.add_argument_group("the run"))
    add_memory_options(parser.add_argument_group("memory"))
    return parse_options(parser, argv)


@dataclass(frozen=True)
class TrainingInputs:
    """The inputs of a training, checked before anything large is read or any model is called.

    Attributes:
        options: Options of the command line.
        settings: Settings of ToolOrchestra, those of --set among them.
        llm: The user and the experts alone, with prices and the spending limit.
        train: Tasks to learn from.
        test: Tasks of the evaluation; none of them is in train.
        note: How many there are, in a sentence.
    """

    options: argparse.Namespace
    settings: ToolSettings
    llm: LLMSettings
    train: tuple[Item, ...]
    test: tuple[Item, ...]
    note: str

    @property
    def team(self) -> ServiceTeam:
        """The policy, the user and all experts."""
        return ServiceTeam(POLICY, self.options.user, tuple(self.options.experts))

    @property
    def asked_names(self) -> list[str]:
        """Names of all models that may be called, each once."""
        return list(dict.fromkeys([*self.options.experts, self.options.user]))


def read_inputs(options: argparse.Namespace) -> TrainingInputs:
    """Read and check the inputs of a training.

    Args:
        options: Options of the command line.

    Returns:
        The inputs.

    Raises:
        ParamsError: A folder without a model, a number or a name that cannot be.
        TaskError: The tasks cannot be read, for example since tau2-bench is not installed.
    """
    check_model_folder(options.model)
    check_numbers(options, ("turns",))
    params = change_params(config.load(options.profile), "tools", options.changes)
    names = list(dict.fromkeys([*options.experts, options.user]))
    check_names(params.llm, names)
    llm = params.llm.model_copy(update={"max_usd": options.max_usd, "cassette": "record"})

    test = []
    for dataset in load_tasks(options.tasks, options.test_split, options.max_test, options.seed):
        test += dataset.items
    # All tasks of the other split count as seen, also those that --max-test leaves out.
    held_out = set()
    for dataset in load_tasks(options.tasks, options.test_split, None, options.seed):
        held_out |= {(item.group, item.id) for item in dataset.items}
    train = []
    for dataset in load_tasks(options.tasks, options.split, None, options.seed):
        train += [item for item in dataset.items if (item.group, item.id) not in held_out]
    if not train:
        raise ParamsError(
            f"--split {options.split} has no task that --test-split {options.test_split} has not"
        )
    check_vocabulary(params.llm, names, train)
    note = (
        f"{len(train):,} tasks to learn from ({options.split}), {len(test):,} of the evaluation "
        f"({options.test_split}); no task of the evaluation is in the training."
    )
    return TrainingInputs(
        options, params.tools, select_models(llm, names), tuple(train), tuple(test), note
    )


# The plan ----------------------------------------------------------------------------------------


def make_loop_settings(inputs: TrainingInputs) -> LoopSettings:
    """Make the settings of the training loop.

    Args:
        inputs: Inputs of the training; what the command line leaves open is as in the profile.

    Returns:
        The settings: updates, conversations of each, and the limits of turns and tokens.
    """
    options, settings = inputs.options, inputs.settings
    return LoopSettings(
        learn=settings.learn,
        num_updates=options.updates or settings.updates,
        batch=options.batch or settings.groups * settings.rollouts,
        max_turns=options.turns,
        turn_tokens=settings.turn_tokens,
        # Results are read whole, as in the evaluation; this is for the plan of memory.
        response_tokens=RESULT_TOKENS + inputs.llm.models[options.user].max_tokens,
        save_every=settings.save_every,
    )


def write_longest_prompt(inputs: TrainingInputs) -> str:
    """Write the longest prompt that the policy may have to read, from which its memory is planned.

    Args:
        inputs: Inputs of the training.

    Returns:
        The prompt.
    """
    menu = make_menu(inputs.options.experts)
    preference = UserPreference(1.0, 1.0, 1.0, menu.names)
    expert_schemas = [write_expert_schema(inputs.llm, offer) for offer in menu.offers]
    prompts = []
    task_by_domain = {item.group: item for item in inputs.train}
    for item in task_by_domain.values():
        domain = load_domain(item.metadata["domain"])
        tools = ServiceEnvironment(domain, item.metadata["task"]).tools.values()
        schemas = [tool.schema for tool in tools]
        instruction = tool_conversation.write_instruction([*schemas, *expert_schemas])
        prompts.append(f"{write_agent_prompt(domain, preference)}\n{instruction}")
    return max(prompts, key=len)


def plan_costs(inputs: TrainingInputs, loop: LoopSettings) -> list[str]:
    """Plan the calls of an update and of the whole run, in sentences with their largest number and cost.

    Args:
        inputs: Inputs of the training.
        loop: Settings of the updates.

    Returns:
        A sentence about an update, and one about the run.
    """
    llm, options = inputs.llm, inputs.options

    def plan(
        team: ServiceTeam, items: Sequence[Item], num_samples: int, is_policy: bool
    ) -> list[PlannedCalls]:
        policy_tokens = loop.turn_tokens if is_policy else None
        return plan_episodes(llm, team, items, num_samples, options.turns, policy_tokens)

    # Every task of an update may be the one with the longest policy.
    longest = max(inputs.train, key=lambda item: len(item.history[0][1]))
    update = plan(inputs.team, [longest], loop.batch, is_policy=True)
    planned = plan(inputs.team, [longest], loop.num_updates * loop.batch, is_policy=True)
    planned += plan(inputs.team, inputs.test, 2, is_policy=True)
    for expert in options.experts:
        team = ServiceTeam(expert, options.user)
        planned += plan(team, inputs.test, 1, is_policy=False)
        planned.append(_plan_trials(llm, expert, longest))
    return [
        describe_update_costs(llm, update, loop.batch),
        announce_costs(llm, planned).replace("llm.max_usd", "--max-usd"),
        f"(Every conversation with all {options.turns} turns, every reply at its limit of tokens.)",
    ]


def _plan_trials(llm: LLMSettings, expert: str, item: Item) -> PlannedCalls:
    """The first calls to an expert, which measure what a call takes."""
    prompt_tokens = estimate_tokens(sum(count_bytes(m["content"]) for m in item.messages))
    max_tokens = llm.models[expert].max_tokens
    return PlannedCalls(
        expert, TRIAL_QUESTIONS, TRIAL_QUESTIONS * prompt_tokens, TRIAL_QUESTIONS * max_tokens
    )


def describe_update_costs(
    llm: LLMSettings, planned: Sequence[PlannedCalls], num_episodes: int
) -> str:
    """Describe what the calls of an update may cost.

    Args:
        llm: The models with their prices.
        planned: Calls of one update, the user's first and then the experts'.
        num_episodes: Conversations of an update.

    Returns:
        A sentence with the calls of the user and of the experts, each with its model and its cost in dollars.
    """
    costs = estimate_costs(llm, planned).to_dict("records")
    clauses = []
    for role, row in zip(("the user", "experts"), costs, strict=False):  # there may be no experts
        clauses.append(f"{row['calls']:,} calls of {role} ({row['model']}, ${row['cost_usd']:.2f})")
    return f"An update of {num_episodes:,} conversations takes at most {' and '.join(clauses)}."


# The run -----------------------------------------------------------------------------------------


def train(options: argparse.Namespace) -> None:
    """Train, evaluate and write the report.

    Args:
        options: Options of the command line.

    Raises:
        ParamsError, TaskError: Something of the input is wrong; nothing was asked or read yet.
    """
    tasks = ", ".join(options.tasks)
    with ProgressLine(f"reading {tasks}", is_silent=not is_first_process()) as progress:
        inputs = read_inputs(options)
        settings = inputs.settings
        loop = make_loop_settings(inputs)
        share = join_processes(needs_several=options.sharded)
        groups = divide_batch(share.divide(loop.batch), settings.rollouts)
        model_settings = make_model_settings(options, settings.temperature)
        memory = plan_run_memory(options, model_settings, loop, write_longest_prompt(inputs), share)
        for sentence in (inputs.note, *plan_costs(inputs, loop), memory.describe()):
            progress.say(sentence)
        if options.plan_only:
            return

        progress.activity = f"reading {options.model}"
        controller = read_controller(options, model_settings, loop, "", share)
        policy = make_policy(controller, options.model.name)
        check_room(inputs, policy)
        described = describe_run(inputs, loop, policy)
        with (
            open_run_folder(options.out, described, share) as folder,
            open_pool(
                inputs.llm,
                inputs.asked_names,
                folder,
                settings.model_temperature,
                options.experts,
                share.rank,
                share.num_processes,
            ) as pool,
        ):
            # What calls take, which menus are made of.
            progress.activity = "asking the experts what a call takes"
            call_costs = measure_experts(inputs, pool, folder, share)
            progress.say(describe_call_costs(call_costs))
            runner = ConversationRunner(
                pool, inputs.llm, inputs.team, options.turns, settings.model_temperature, policy
            )
            system = ServiceTraining(
                train=inputs.train,
                test=inputs.test,
                runner=runner,
                policy=policy,
                settings=settings,
                offers=make_offers(call_costs),
                share=share,
                groups=groups,
                seed=options.seed,
            )
            outcome = train_and_test(system, controller, folder, loop, share, progress)
            if share.is_first:
                write_report(inputs, outcome, described, memory, progress)


def make_policy(controller: Controller, name: str) -> PolicyAgent:
    """Make the agent that a controller is, and let its turns end as its form of calls asks for.

    Args:
        controller: The model of the run.
        name: Name of its folder, for messages.

    Raises:
        PromptError: Its chat template can show no conversation with a user and tools.
    """
    generator = controller.generator
    conversation = tool_conversation.ToolConversation(
        generator.tokenizer, generator.end_token_ids, name
    )
    generator.stop_strings = conversation.stop_strings
    return PolicyAgent(generator, conversation, POLICY)


def check_room(inputs: TrainingInputs, policy: PolicyAgent) -> None:
    """Check that the context window has room for the prompt of a task and a turn.

    Args:
        inputs: Inputs of the training.
        policy: Has tokenizer and window.

    Raises:
        ParamsError: It has not.
    """
    prompt = write_longest_prompt(inputs)
    ids = policy.generator.encode(prompt)
    if not policy.generator.has_room(ids):
        raise ParamsError(
            f"--model {inputs.options.model}: policy and functions take {len(ids):,} tokens, which leave no room for a "
            "turn in its window; take a model with a longer one"
        )


def measure_experts(
    inputs: TrainingInputs, pool: ExpertPool, folder: Path, share: ProcessShare
) -> dict[str, CallCost]:
    """Measure cost and latency of a call to each expert, once per folder.

    Args:
        inputs: Inputs of the training.
        pool: The opened experts.
        folder: Keeps the measurement.
        share: The process's share of the run.

    Returns:
        Costs by expert, the cheapest first.
    """
    entries = keep_json(
        folder / "call_costs.json",
        lambda: list_call_costs(measure_calls(pool, inputs.train)),
        share,
    )
    return {name: CallCost(**cost) for name, cost in entries}


def make_offers(call_costs: Mapping[str, CallCost]) -> dict[str, Offer]:
    """Make the menu entries of all experts at usual prices, by the names of the tools that ask them."""
    offers = [
        make_expert_offer(name, cost.cost_usd, cost.seconds) for name, cost in call_costs.items()
    ]
    return {offer.name: offer for offer in offers}


def describe_run(
    inputs: TrainingInputs, loop: LoopSettings, policy: PolicyAgent
) -> dict[str, object]:
    """Describe the settings that decide the numbers of the run, for its folder and its report.

    Args:
        inputs: Inputs of the training.
        loop: Updates, batch and lengths of turns.
        policy: The trained model.

    Returns:
        Settings by name.
    """
    options, settings = inputs.options, inputs.settings
    return {
        "model": str(options.model),
        "tasks": list(options.tasks),
        "tasks to learn from": hash_questions(inputs.train),
        "tasks of the evaluation": hash_questions(inputs.test),
        "versions": [
            TASKS_VERSION,
            service_episodes.VERSION,
            tool_conversation.VERSION,
            service_training.VERSION,
        ],
        "experts": {name: describe_model(inputs.llm, name) for name in options.experts},
        "user": {options.user: describe_model(inputs.llm, options.user)},
        "calls in the template's own form": not policy.conversation.is_plain,
        "seed": options.seed,
        "dtype": options.dtype,
        "lora": options.lora,
        "gradient_checkpointing": options.gradient_checkpointing,
        "sharded": options.sharded,
        "updates": loop.num_updates,
        "batch": loop.batch,
        "rollouts": settings.rollouts,
        "turns": options.turns,
        "turn_tokens": loop.turn_tokens,
        "spread": settings.spread,
        "temperature": settings.temperature,
        "test_temperature": settings.test_temperature,
        "model_temperature": settings.model_temperature,
        "least_deviation": settings.least_deviation,
        "learn": settings.learn.model_dump(),
    }


def write_report(
    inputs: TrainingInputs,
    outcome: TrainingOutcome,
    described: Mapping[str, object],
    memory: MemoryPlan,
    progress: ProgressLine,
) -> None:
    """Compare the policy before and after training with the experts, write all files, and print the result.

    Args:
        inputs: Inputs of the run.
        outcome: Rows before training, after training, and of every expert by itself.
        described: What `describe_run` returned.
        memory: The planned memory.
        progress: Prints sentences.
    """
    folder = inputs.options.out
    rewarded = service_training.reward_methods(outcome)
    train_ids = {f"{item.group}: {item.id}" for item in inputs.train}
    # Calls, outcome, dollars and seconds are normalized to [0, 1] and weighed, so weights add up to the bound.
    largest_reward = max(float(np.sum(preferences)) for preferences in rewarded.start["p"])
    comparison = results.compare_outcome(
        "toolorchestra", rewarded, list(MEASURES), train_ids, (0.0, largest_reward)
    )
    notes = [
        inputs.note,
        f"The user is played by {inputs.options.user}; what that costs is in no reward.",
        describe_learning(outcome.rollouts, outcome.learning),
        *(f"Training: {loss}." for loss in describe_losses(outcome.rollouts)),
        *(f"Evaluation: {loss}." for loss in describe_losses(outcome.trained)),
        *(f"{name}: {describe_endings(rows)}." for name, rows in group_rows(outcome).items()),
    ]
    sentence = results.write_results(
        folder,
        rewarded,
        comparison,
        results.RunDescription(
            system="toolorchestra",
            title=f"ToolOrchestra: {inputs.options.model.name} on {', '.join(inputs.options.tasks)}",
            measures=MEASURES,
            notes=notes,
            settings=described,
            costs=describe_costs(outcome, memory),
            baseline_note=BASELINE_NOTE,
        ),
    )
    for line in (sentence, *notes):
        progress.say(line)
    progress.say(f"report: {folder / results.REPORT}")
    progress.say(f"controller: {folder / CONTROLLER}")


def describe_costs(outcome: TrainingOutcome, memory: MemoryPlan) -> dict[str, object]:
    """Describe what the run cost.

    Args:
        outcome: Tables of the run.
        memory: Planned memory.

    Returns:
        Amounts by name; experts cost what their menus say.
    """
    user_cost_usd = 0.0
    for table in (outcome.rollouts, outcome.start, outcome.trained, outcome.baselines):
        user_cost_usd += table["user_cost_usd"].sum()
    costs = results.describe_costs(outcome, memory.total)
    costs["dollars for the user, in training and evaluation"] = round(float(user_cost_usd), 6)
    return costs


def group_rows(outcome: TrainingOutcome) -> dict[str, pd.DataFrame]:
    """Rows of the training, and of the evaluation before and after it, by words for the report."""
    return {
        "Training conversations": outcome.rollouts,
        "Before training": outcome.start,
        "After training": outcome.trained,
    }


def describe_losses(rows: pd.DataFrame) -> list[str]:
    """Describe which replies conversations lost, and why.

    Args:
        rows: A row per conversation.

    Returns:
        Sentences.
    """
    losses = summarize_losses(rows)
    counts = rows.loc[rows["failure"] != "", "failure"].value_counts(sort=False)
    if len(counts):
        reasons = ", ".join(f"{reason} ({count})" for reason, count in counts.items())
        losses.append(f"lost replies: {reasons}")
    return losses


def describe_endings(rows: pd.DataFrame) -> str:
    """Describe how many conversations were solved, and why the scored ones ended.

    Args:
        rows: A row per conversation.

    Returns:
        A sentence.
    """
    scored = rows[rows["correct"].notna()]
    counts = scored["ending"].value_counts()
    reasons = ", ".join(f"{reason} {count}" for reason, count in counts.items())
    return (
        f"{int(scored['correct'].sum())} of {len(scored)} solved; ended by {reasons or 'nothing'}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; a mistake in the input ends it with one line of explanation and the exit code 2."""
    return run_command(read_options(argv), train)
