"""ToolOrchestra on a model of your own: an orchestrator learns by GRPO which tool or model to call for whom.

The orchestrator is any causal language model that follows instructions. For each question it is offered some of the
tools, at prices and times that vary, and is told what the user cares for: accuracy, cost, time, or certain tools.
Right answers are rewarded by those wishes, compared within the rollouts of one question; wrong ones get nothing.
Tools are a calculator and a Python sandbox, and the models that --experts names, usually endpoints, with the dollars
and seconds of a call as measured on a few questions.

Some of the questions are held out. On them the orchestrator is compared, before and after the training, with each
model, the best one on the training questions, a random one, and an oracle; and asked again for users who care for cost
only and for accuracy only. The orchestrator's own tokens are free, since it runs on your own machine. The report, all
tables, the checkpoint and the trained model lie under --out, and so do the replies (toolorchestra.jsonl). Run the same
command again to go on after Ctrl-C or a spending limit.

With --tasks tau2:retail (or tau2:airline, tau2:telecom) the orchestrator serves customers of tau2-bench, who are played
by a model: `python -m lib train toolorchestra --tasks tau2:retail --help`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

import numpy as np
import pandas as pd

from lib.config import ROOT, ParamsError, ToolSettings
from lib.experiment import seeds
from lib.experiment.evaluation import TEST_SEED
from lib.rl.memory_plan import MemoryPlan
from lib.rl.user_training import results
from lib.rl.user_training.data import QuestionSplit, name_units
from lib.rl.user_training.experts import CallCost, CallPlan, announce_plan, measure_calls
from lib.rl.user_training.inputs import (
    RunInputs,
    describe_inputs,
    open_experts,
    read_inputs,
    summarize_losses,
)
from lib.rl.user_training.options import make_parser, parse_options
from lib.rl.user_training.processes import join_processes
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
from lib.tasks import FAMILIES, Item
from lib.tasks.scorers import Scorer
from lib.tool_orchestration import (
    episode_rewards,
    episode_specs,
    single_tools,
    tool_environment,
    tool_menu,
)
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.group_training import GroupTraining
from lib.tool_orchestration.plain_prompt import write_plain_messages
from lib.tool_orchestration.tool_environment import NAME, ToolEnvironment, ToolEpisode
from lib.tool_orchestration.tool_menu import FUNCTIONS, Offer, ToolMenu, UserPreference
from lib.tool_orchestration.user_evaluation import (
    DRAWN_USERS,
    STEERING_USERS,
    compute_rewards,
    describe_steering,
    estimate_steering,
)

EXAMPLES = """\
  python -m lib train toolorchestra --model models/Qwen2.5-1.5B-Instruct --data gsm8k:data/gsm8k --split train \\
      --experts small,large --lora 16 --out runs/gsm8k-tools
  python -m lib train toolorchestra --model models/SmolLM2-135M-Instruct --data questions.csv --scorer numeric \\
      --experts small,large --updates 20 --batch 16 --set rollouts=4 --out runs/first
"""
MEASURES = {
    "reward": "reward",
    "correct": "share correct",
    "cost_usd": "dollars for 1,000 questions",
    "seconds": "seconds a question",
    "calls": "calls a question",
}
GENERAL_FUNCTIONS = (
    "calculator",
    "python",
)  # those that are of use beyond the lab's fictional world


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line; None for the arguments of the process."""
    parser = make_parser("toolorchestra", __doc__, EXAMPLES)
    return parse_options(parser, argv)


def make_offers(
    settings: ToolSettings, call_costs: Mapping[str, CallCost], functions: Sequence[str]
) -> dict[str, Offer]:
    """Make the menu entries of all tools at usual prices: functions as declared, models as measured.

    Args:
        settings: Names the price list of the functions.
        call_costs: Measured cost and time of a call, by model.
        functions: Names of the functions on menus.

    Returns:
        Entries by tool name. Price and latency of a model on a menu are factors on what each call costs and takes.
    """
    prices = tool_menu.read_price_list(ROOT / settings.prices)
    offers = {}
    for name in functions:
        offers[name] = tool_menu.make_function_offer(name, prices, {})
    for name, cost in call_costs.items():
        offers[name] = Offer(
            name,
            model=True,
            cost_usd=1.0,
            seconds=1.0,
            typical_cost_usd=cost.cost_usd,
            typical_seconds=cost.seconds,
            skills={},
            measured=False,
        )
    return offers


def choose_functions(items: Sequence[Item], experts: Sequence[str]) -> tuple[str, ...]:
    """Choose the functions on menus: search and lookup only for the lab's questions, since they know no other world.

    Args:
        items: The questions.
        experts: Names of the models among the tools.

    Returns:
        Names of functions.

    Raises:
        ParamsError: An expert has the name of a function.
    """
    clashes = sorted(set(experts) & set(FUNCTIONS))
    if clashes:
        raise ParamsError(
            f"--experts {clashes[0]}: a tool has this name; give the model another one in llm.models"
        )
    are_lab_tasks = all(item.group in FAMILIES for item in items)
    return FUNCTIONS if are_lab_tasks else GENERAL_FUNCTIONS


@dataclass(kw_only=True)
class ToolTraining(GroupTraining):
    """Collects the training episodes of ToolOrchestra on a user's questions, and evaluates on held-out ones.

    Attributes:
        questions: Questions to learn from and to evaluate on.
        environment: Executes tool calls.
        scorer: Scores answers.
        controller: The orchestrator that is trained.
    """

    stream: ClassVar[str] = "user questions"

    questions: QuestionSplit
    environment: ToolEnvironment
    scorer: Scorer
    controller: Controller

    @property
    def training_items(self) -> Sequence[Item]:
        """Questions to learn from."""
        return self.questions.train

    def roll_out_update(
        self, assignments: Sequence[Assignment], step: int, seed: int
    ) -> list[ToolEpisode]:
        """Roll out the episodes of an update, see `GroupTraining`."""
        return self._roll_out(assignments, seed, self.settings.temperature)

    def make_update_rows(
        self, episodes: Sequence[ToolEpisode], tools: Sequence[str]
    ) -> pd.DataFrame:
        """Make a row per episode, see `episode_rewards.make_episode_rows`."""
        return episode_rewards.make_episode_rows(episodes, tools)

    def complete_rows(
        self, rollouts: pd.DataFrame, episodes: Sequence[ToolEpisode]
    ) -> pd.DataFrame:
        """Add the lengths of the episodes, and name the question in the column item."""
        item_ids = [episode.assignment.work.id for episode in episodes]
        return _add_lengths(rollouts, episodes).assign(item=item_ids)

    def _roll_out(
        self, assignments: Sequence[Assignment], seed: int, temperature: float
    ) -> list[ToolEpisode]:
        """Roll out one scored episode of the orchestrator for each assignment."""
        return tool_environment.roll_out_assignments(
            self.controller.generator,
            self.environment,
            assignments,
            self.settings.rounds,
            seed,
            temperature,
            self.scorer,
        )

    def draw_test_assignments(self, items: Sequence[Item], name: str) -> list[Assignment]:
        """Draw a menu and a user for each held-out question, the same before and after training.

        Args:
            items: The questions.
            name: Name of the set of questions, which seeds the draw beside the seed of the run.

        Returns:
            An assignment for each question.
        """
        rng = seeds.rng("toolorchestra", "user test", name, seed=self.seed)
        return episode_specs.draw_assignments(
            items, self.offers, self.tools, self.settings.spread, rng
        )

    def evaluate_controller(self, method: str, role: str) -> pd.DataFrame:
        """Evaluate the orchestrator on the held-out questions.

        Args:
            method: Name of the orchestrator, such as before or after training.
            role: Its role in the results table.

        Returns:
            A row per question and condition: randomly drawn users, and users who care for one objective only. Columns
            are those of `episode_rewards.make_episode_rows`, number, sample, turns, written, condition, method, role
            and reward.
        """
        assignments = self.draw_test_assignments(self.questions.test, "test")
        units = name_units(self.questions.test)
        numbers = self.share.take(range(len(assignments)))
        tables = []
        for condition in (DRAWN_USERS, *STEERING_USERS):
            examples = [assignments[number] for number in numbers]
            if condition in STEERING_USERS:
                user = STEERING_USERS[condition]
                examples = [replace(example, preference=user) for example in examples]
            episodes = self._roll_out(
                examples, TEST_SEED + self.seed, self.settings.test_temperature
            )
            rows = episode_rewards.make_episode_rows(
                episodes, self.tools, self.controller.generator.decode
            )
            tables.append(
                _add_lengths(rows, episodes).assign(
                    condition=condition,
                    number=numbers,
                    item=[units[number][0] for number in numbers],
                    sample=[units[number][1] for number in numbers],
                    chosen=[names.split() for names in rows["chosen"]],
                    offered=[names.split() for names in rows["offered"]],
                )
            )
        rows = pd.concat(tables, ignore_index=True)
        return rows.assign(method=method, role=role, reward=rows["correct"])

    def evaluate_baselines(self, start: pd.DataFrame) -> pd.DataFrame:
        """Let every model answer by itself, without an orchestrator, at the prices of the menus.

        Args:
            start: Rows of the orchestrator before training; not read.

        Returns:
            A row per model (column tool) and question (item), for the splits "train" and "test": correct, cost_usd,
            seconds, calls, group and difficulty. An empty table in all processes but the first.
        """
        if not self.share.is_first:
            return pd.DataFrame()
        # A function answers no question by itself, so that only models are baselines.
        models = [name for name in self.tools if self.offers[name].model]
        tables = []
        for split, items in (
            ("train", self.questions.baseline_train),
            ("test", self.questions.test),
        ):
            assignments = self.draw_test_assignments(items, split)
            rows = single_tools.try_single_tools(
                self.environment, assignments, models, split, self.scorer
            )
            for row in rows:
                assignment = assignments[row["item"]]
                row |= {"group": assignment.kind, "difficulty": assignment.difficulty}
            columns = ["item", "tool", "correct", "cost_usd", "seconds", "calls"]
            table = pd.DataFrame(rows, columns=[*columns, "group", "difficulty"])
            tables.append(table.assign(split=split))
        return pd.concat(tables, ignore_index=True)


def _add_lengths(rows: pd.DataFrame, episodes: Sequence[ToolEpisode]) -> pd.DataFrame:
    """Add the columns turns (number of turns) and written (number of tokens that the orchestrator wrote)."""
    return rows.assign(
        turns=[len(episode.turns) for episode in episodes],
        written=[episode.num_written_tokens for episode in episodes],
    )


# The run -----------------------------------------------------------------------------------------


def train(options: argparse.Namespace) -> None:
    """Train, evaluate and write the report.

    Args:
        options: Options of the command line.

    Raises:
        ParamsError, TaskError, ScorerError: Something of the input is wrong; nothing was asked or read yet.
        SandboxUnavailable: No sandbox for programs works here.
    """
    with ProgressLine(f"reading {options.data}", is_silent=not is_first_process()) as progress:
        inputs = read_inputs(options, "tools", "models")
        settings = inputs.params.tools
        functions = choose_functions(inputs.questions.train, list(inputs.experts))
        loop = LoopSettings(
            learn=settings.learn,
            num_updates=options.updates or settings.updates,
            batch=options.batch or settings.groups * settings.rollouts,
            max_turns=settings.rounds,
            turn_tokens=settings.turn_tokens,
            response_tokens=settings.response_tokens,
            save_every=settings.save_every,
        )
        share = join_processes(needs_several=options.sharded)
        groups = divide_batch(share.divide(loop.batch), settings.rollouts)
        for sentence in (
            *inputs.notes,
            inputs.questions.note,
            describe_largest_cost(inputs, settings, loop),
        ):
            progress.say(sentence)
        model_settings = make_model_settings(options, settings.temperature)
        memory = plan_run_memory(
            options,
            model_settings,
            loop,
            write_longest_prompt(inputs, settings, functions),
            share,
        )
        progress.say(memory.describe())

        described = describe_run(inputs, settings, loop, functions)
        with (
            open_run_folder(options.out, described, share) as folder,
            open_experts(
                inputs, NAME, settings.model_temperature, share.rank, share.num_processes
            ) as (pool, scorer),
        ):
            # What calls take, which menus are made of.
            progress.activity = "asking the models what a call takes"
            trial_items = inputs.questions.baseline_train
            entries = keep_json(
                folder / "call_costs.json",
                lambda: list_call_costs(measure_calls(pool, trial_items)),
                share,
            )
            call_costs = {name: CallCost(**cost) for name, cost in entries}
            progress.say(describe_call_costs(call_costs))
            clock = {name: cost.seconds_per_token for name, cost in call_costs.items()}

            progress.activity = f"reading {options.model}"
            controller = read_controller(options, model_settings, loop, "", share)
            with ToolEnvironment(pool, clock, reads_marked_answers=True) as environment:
                system = ToolTraining(
                    questions=inputs.questions,
                    environment=environment,
                    scorer=scorer,
                    settings=settings,
                    offers=make_offers(settings, call_costs, functions),
                    controller=controller,
                    share=share,
                    groups=groups,
                    seed=options.seed,
                )
                outcome = train_and_test(system, controller, folder, loop, share, progress)
            if share.is_first:
                write_report(inputs, system, outcome, described, memory, progress)


def divide_batch(num_episodes: int, rollouts: int) -> int:
    """Divide the episodes of an update in this process into groups, the rollouts of one question each.

    Args:
        num_episodes: Episodes of an update in this process.
        rollouts: Episodes of each question.

    Returns:
        The number of groups, which is that of questions.

    Raises:
        ParamsError: The episodes are no whole number of groups.
    """
    groups, remainder = divmod(num_episodes, rollouts)
    if remainder or not groups:
        raise ParamsError(
            f"--batch: {num_episodes} episodes are no whole number of groups of {rollouts} rollouts; take a multiple, "
            "or --set rollouts=..."
        )
    return groups


def describe_largest_cost(inputs: RunInputs, settings: ToolSettings, loop: LoopSettings) -> str:
    """Computes how many calls of experts a training can make at most, and what they can cost at most.

    Args:
        inputs: Questions, models and prices.
        settings: Settings of ToolOrchestra.
        loop: Number of updates, episodes in a batch, and tokens in a turn.

    Returns:
        A sentence with the largest number of calls and the largest cost in dollars.
    """
    training_episodes = loop.num_updates * loop.batch
    # Test questions are answered before and after the training: by every user that the evaluation distinguishes.
    num_users = 1 + len(STEERING_USERS)
    test_episodes = 2 * num_users * len(inputs.questions.test)
    plan = CallPlan(
        episodes=training_episodes + test_episodes,
        calls_per_episode=settings.rounds - 1,  # the last round answers
        baseline_questions=len(inputs.questions.baseline_train) + len(inputs.questions.test),
        query_tokens=loop.turn_tokens,
    )
    items = [*inputs.questions.train, *inputs.questions.test]
    return announce_plan(inputs.llm, inputs.experts, inputs.judges, items, plan)


def write_longest_prompt(
    inputs: RunInputs, settings: ToolSettings, functions: Sequence[str]
) -> str:
    """Write the longest prompt that the orchestrator may have to read, from which its memory is planned.

    Args:
        inputs: Questions and models.
        settings: Settings of ToolOrchestra.
        functions: Functions that may be on menus.

    Returns:
        The prompt.
    """
    question = max(inputs.questions.train, key=lambda item: len(item.prompt))
    # What calls cost is not measured yet; a placeholder has numbers as long as measured ones.
    placeholder = CallCost(1.23e-4, 1.2, 0.1, True)
    offers = make_offers(settings, dict.fromkeys(inputs.experts, placeholder), functions)

    # Models are described at greater length than functions.
    models_last = sorted(offers.values(), key=lambda offer: offer.model)
    menu_size = episode_specs.MENU_SIZES[1]
    menu = ToolMenu(tuple(models_last[-menu_size:]))
    user = UserPreference(1.0, 1.0, 1.0, menu.names)
    messages = write_plain_messages(Assignment(question, menu, user))
    return "\n".join(message["content"] for message in messages)


def list_call_costs(call_costs: Mapping[str, CallCost]) -> list[tuple[str, dict]]:
    """List measured costs of calls as (model, fields), for JSON."""
    return [(name, asdict(cost)) for name, cost in call_costs.items()]


def describe_call_costs(call_costs: Mapping[str, CallCost]) -> str:
    """Describe in a sentence what a call to each model costs and takes."""
    words = []
    for name, cost in call_costs.items():
        origin = "" if cost.is_measured else " (declared)"
        words.append(f"{name} ${cost.cost_usd:.3g} and {cost.seconds:.2g} s{origin}")
    return f"A call takes about: {', '.join(words)}."


def describe_run(
    inputs: RunInputs, settings: ToolSettings, loop: LoopSettings, functions: Sequence[str]
) -> dict[str, object]:
    """Describe the settings that decide the numbers of the run, for its folder and its report.

    Args:
        inputs: Questions and models.
        settings: Settings of ToolOrchestra.
        loop: Updates, batch and lengths of turns.
        functions: Functions that may be on menus.

    Returns:
        Settings by name.
    """
    values = {
        "functions": list(functions),
        "updates": loop.num_updates,
        "batch": loop.batch,
        "rollouts": settings.rollouts,
        "turns": settings.rounds,
        "turn_tokens": loop.turn_tokens,
        "response_tokens": loop.response_tokens,
        "spread": settings.spread,
        "temperature": settings.temperature,
        "test_temperature": settings.test_temperature,
        "model_temperature": settings.model_temperature,
        "least_deviation": settings.least_deviation,
        "learn": settings.learn.model_dump(),
    }
    return describe_inputs(inputs, values)


def write_report(
    inputs: RunInputs,
    system: ToolTraining,
    outcome: TrainingOutcome,
    settings: Mapping[str, object],
    memory: MemoryPlan,
    progress: ProgressLine,
) -> None:
    """Compare the orchestrator before and after training with the baselines, write all files, and print the result.

    Args:
        inputs: Inputs of the run.
        system: The training.
        outcome: Its rows: before training, after training, and of every model by itself.
        settings: What `describe_run` returned.
        memory: The planned memory.
        progress: Prints sentences.
    """
    losses = [
        *(f"Training: {loss}." for loss in summarize_losses(outcome.rollouts)),
        *(f"Evaluation: {loss}." for loss in summarize_losses(outcome.trained)),
    ]
    rewarded, steered = compute_rewards(outcome, system.tools)
    train_ids = {item.id for item in inputs.questions.train}
    # Outcome, dollars, seconds and calls are normalized to [0, 1] and weighed, so weights add up to the bound.
    largest_reward = max(float(np.sum(preferences)) for preferences in rewarded.start["p"])
    comparison = results.compare_outcome(
        "toolorchestra", rewarded, list(MEASURES), train_ids, (0.0, largest_reward)
    )
    steering = estimate_steering(steered)
    notes = [
        inputs.questions.note,
        *describe_steering(steering),
        describe_learning(outcome.rollouts, outcome.learning),
        *losses,
        *(
            f"{name}: {counts.describe()}{system.share.scope}."
            for name, counts in system.environment.pool.counts.items()
            if counts.calls
        ),
    ]
    sentence = results.write_results(
        inputs.folder,
        rewarded,
        comparison,
        results.RunDescription(
            system="toolorchestra",
            title=f"ToolOrchestra: {inputs.options.model.name} on {inputs.options.data}",
            measures=MEASURES,
            notes=notes,
            settings=settings,
            planned_memory=memory.total,
        ),
    )
    for line in (sentence, *notes):
        progress.say(line)
    progress.say(f"report: {inputs.folder / results.REPORT}")
    progress.say(f"controller: {inputs.folder / CONTROLLER}")


def describe_learning(rollouts: pd.DataFrame, learning: pd.DataFrame) -> str:
    """Describe in a sentence how many episodes were learned from, and why the others were left out.

    Args:
        rollouts: A row per episode.
        learning: A row per update, with the columns learned_from and left_out_... (numbers of episodes).

    Returns:
        The sentence.
    """
    names = {
        "left_out_malformed": "with a malformed turn",
        "left_out_unanswered": "without an answer",
        "left_out_agreeing": "in groups whose rewards agree",
    }
    reasons = [f"{int(learning[name].sum()):,} {words}" for name, words in names.items()]
    num_learned = int(learning["learned_from"].sum())
    return f"{num_learned:,} of {len(rollouts):,} episodes were learned from; left out: {', '.join(reasons)}."


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; a mistake in the input ends it with one line of explanation and the exit code 2.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The exit code.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Tasks that a user and a database belong to are another training, with options of its own.
    if any(argument.partition("=")[0] == "--tasks" for argument in arguments):
        from lib.tool_orchestration import service_train_command

        return service_train_command.main(arguments)
    return run_command(read_options(arguments), train)


if __name__ == "__main__":
    raise SystemExit(main())
