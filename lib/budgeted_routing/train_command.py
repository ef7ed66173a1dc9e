"""CoRL on a model of your own: a controller learns by PPO when to answer itself, and which expert to pay.

The controller is any causal language model that follows instructions. It answers under a budget in words (low,
medium, high), and is rewarded for a right answer whose calls cost no more than the budget (eq. 7). Experts are models
of llm.models, usually endpoints; how an answer is compared with its reference is the scorer's business.

Some of the questions are held out. On them the controller is compared, before and after the training, with each expert
alone, the controller alone, a random expert, routers that learned from the training questions, and an oracle. The
report, all tables, the checkpoint and the trained model lie under --out, and so do the experts' replies
(routing.jsonl). Run the same command again to go on after Ctrl-C or a spending limit: nothing is paid twice.
"""

from __future__ import annotations

import argparse
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import pandas as pd

from lib import stats
from lib.budgeted_routing import baselines, expert_outcomes, prompts, variants, warm_start
from lib.budgeted_routing.budget_episodes import make_episode_rows, make_samples, roll_out_episodes
from lib.budgeted_routing.expert_outcomes import CONTROLLER_ALONE, RECORDING_NAME
from lib.budgeted_routing.variants import Budgets, RoutingVariant
from lib.config import ParamsError, RoutingSettings
from lib.experiment.evaluation import TEST_SEED
from lib.rl.call_protocol import BUDGET_WORDS
from lib.rl.controller_training import UpdateData
from lib.rl.expert_pool import ExpertPool
from lib.rl.generators import HFGenerator
from lib.rl.memory_plan import MemoryPlan
from lib.rl.user_training import results
from lib.rl.user_training.controller_model import ControllerModel
from lib.rl.user_training.data import QuestionSplit, name_units
from lib.rl.user_training.evaluation import (
    TRAINED,
    HeldOutComparison,
    decide_verdicts,
    estimate_difference,
    format_dollars,
)
from lib.rl.user_training.experts import (
    TRIAL_QUESTIONS,
    CallPlan,
    announce_plan,
    measure_calls,
)
from lib.rl.user_training.inputs import (
    RunInputs,
    describe_inputs,
    open_experts,
    read_inputs,
    summarize_losses,
)
from lib.rl.user_training.options import make_parser, parse_options
from lib.rl.user_training.processes import ProcessShare, join_processes
from lib.rl.user_training.progress import ProgressLine
from lib.rl.user_training.run_folder import keep_json, keep_table, open_run_folder
from lib.rl.user_training.training import (
    CONTROLLER,
    Controller,
    LoopSettings,
    TrainingOutcome,
    average_rollouts,
    is_first_process,
    make_model_settings,
    plan_run_memory,
    read_controller,
    run_command,
    train_and_test,
)
from lib.tasks import Item, TaskError
from lib.tasks.scorers import Scorer

GROUP_SIZE = 8  # episodes of one question, whose rewards are compared where advantages are group-relative (GRPO)
EXAMPLES = """\
  python -m lib train corl --model models/Qwen2.5-1.5B-Instruct --data gsm8k:data/gsm8k --split train \\
      --experts small,large --budget low=0.0005 --lora 16 --out runs/gsm8k
  python -m lib train corl --model models/SmolLM2-135M-Instruct --data questions.csv --scorer numeric \\
      --experts small,large --warm-start 64 --updates 20 --batch 16 --set learn.minibatch=16 --out runs/first
"""
# What the evaluation averages: columns of its rows, and how the report calls them.
MEASURES = {
    "reward": "reward",
    "correct": "share correct",
    "within": "share within budget",
    "cost_usd": "dollars for 1,000 questions",
    "calls": "calls a question",
}


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line of `python -m lib train corl`.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The options of every training command, and CoRL's: budgets (texts WORD=DOLLARS), style (soft or hard), and
        prompt (a file with the system message, or None).

    Raises:
        SystemExit: With the code 2 for a wrong command line, with 0 after --help.
    """
    parser = make_parser("corl", __doc__, EXAMPLES)
    group = parser.add_argument_group("CoRL")
    group.add_argument(
        "--budget",
        action="append",
        default=[],
        metavar="WORD=DOLLARS",
        dest="budgets",
        help="what low, medium or high is worth per question; may be repeated; default: measured, low affords a call "
        "to the cheapest expert, medium one to the middle one, high anything",
    )
    group.add_argument(
        "--style",
        choices=("soft", "hard"),
        default="soft",
        help="of the prompt: hard ones say what to do under each budget; default: %(default)s",
    )
    group.add_argument(
        "--prompt",
        metavar="FILE",
        help="text of the system message in place of the project's, with {experts} where the experts and what a call "
        "to each costs are to stand; default: templates/STYLE.md of lib/budgeted_routing",
    )
    group.add_argument(
        "--warm-start",
        type=int,
        default=0,
        metavar="N",
        help="first learn the form of calls and answers from N examples in which chance decides who answers; for "
        "models that do not follow the instructions by themselves; default: %(default)s, none",
    )
    return parse_options(parser, argv)


# Budgets -----------------------------------------------------------------------------------------


def parse_budget_options(texts: Sequence[str]) -> dict[str, float]:
    """Parse the values of `--budget WORD=DOLLARS`, the dollars that each budget word stands for.

    A budget limits what the calls to experts may cost for one question. Prompts name it by a word: low, medium, high.

    Args:
        texts: Values of the option, such as "low=0.0005".

    Returns:
        US dollars a question by budget word, of the words that the user has set.

    Raises:
        ParamsError: A word is none of the three, an amount is no number from 0 on, or amounts fall from low to high.
    """
    usd_by_word = {}
    for text in texts:
        word, _, amount = text.partition("=")
        try:
            cost_usd = float(amount)
        except ValueError:
            cost_usd = math.nan
        # `not >=` refuses nan too.
        if word not in BUDGET_WORDS or not cost_usd >= 0:
            raise ParamsError(
                f"--budget {text}: write low, medium or high, =, and dollars per question"
            )
        usd_by_word[word] = cost_usd
    _check_budgets_rise(usd_by_word)
    return usd_by_word


def _check_warm_start(options: argparse.Namespace) -> None:
    """Raise ParamsError for a negative number of examples, and for sharded weights, which a warm start cannot train."""
    if options.warm_start < 0:
        raise ParamsError(f"--warm-start {options.warm_start}: give a number of examples from 0 on")
    if options.warm_start and options.sharded:
        raise ParamsError(
            "--warm-start holds the whole model in one process; run it without --sharded and --updates 1, then train "
            f"OUT/{warm_start.FOLDER} with --sharded"
        )


def _check_budgets_rise(usd_by_word: Mapping[str, float]) -> None:
    """Raise ParamsError if a budget word stands for fewer dollars than a lower one; absent words are skipped."""
    amounts = [usd_by_word[word] for word in BUDGET_WORDS if word in usd_by_word]
    if amounts != sorted(amounts):
        raise ParamsError(f"--budget: low, medium and high must rise, got {dict(usd_by_word)}")


def choose_budgets(
    outcomes: pd.DataFrame, settings: RoutingSettings, usd_by_word: Mapping[str, float]
) -> Budgets:
    """Choose how many dollars each budget word (low, medium, high) allows the calls of one question to cost.

    Where the user has not set a word, the prices of the experts decide: low affords one call to the cheapest expert,
    medium one call to the expert in the middle, and high is in practice no limit.

    Args:
        outcomes: What each expert scored and cost on the training questions, a row per expert and question, with the
            columns method (the expert), correct and cost_usd (`expert_outcomes.measure_experts`).
        settings: CoRL's settings; `quantile` (of an expert's costs, which is its price) and `high_budget_usd` are read.
        usd_by_word: US dollars a question for the words that the user has set (`parse_budget_options`).

    Returns:
        Dollars by budget word, and the price of a call to each expert.

    Raises:
        ParamsError: An amount that the user has set and one that follows from prices fall from low to high.
    """
    experts = list(dict.fromkeys(outcomes["method"]))
    prices = expert_outcomes.measure_call_prices(outcomes, experts, settings)
    derived_usd_by_word = expert_outcomes.derive_budgets(prices, settings)
    all_usd_by_word = derived_usd_by_word | dict(usd_by_word)
    _check_budgets_rise(all_usd_by_word)
    return Budgets(usd_by_word=all_usd_by_word, price_by_expert=prices, unit_usd=None)


def describe_budgets(budgets: Budgets) -> str:
    """Say what each budget word allows a question to cost, and warn where low and high allow the same.

    Args:
        budgets: US dollars a question by budget word, and US dollars a call by expert.

    Returns:
        One sentence, or two with the warning, for the terminal and the report.
    """
    usd_by_word = budgets.usd_by_word
    amounts = ", ".join(f"{word} ${usd_by_word[word]:.4g}" for word in BUDGET_WORDS)
    sentence = f"Budgets of a question: {amounts}."
    highest_price = max(budgets.price_by_expert.values())
    if usd_by_word["low"] >= highest_price:
        sentence += (
            f" Even low affords the most expensive expert (${highest_price:.4g} a call), so budgets hardly differ; "
            "set them by --budget low=..."
        )
    return sentence


# The trained system ------------------------------------------------------------------------------


@dataclass
class BudgetTraining:
    """CoRL on a user's questions: which episodes are trained on, and how controller and baselines are evaluated.

    The controller is the language model that is trained. In an episode it answers one question, by itself or with the
    help of experts, models whose calls cost money, under a budget that limits the cost. The reward is the score of the
    answer where the cost is within the budget, else 0. With several processes, each has an instance of its own and
    does a share of the work.

    Attributes:
        questions: Questions to learn from and held-out questions to evaluate on.
        pool: The experts that the controller may call.
        scorer: Compares an answer with the question's reference.
        settings: CoRL's settings.
        variant: Its style of prompts: soft (the budget is named) or hard (rules for each budget are added).
        budgets: US dollars a question by budget word, and US dollars a call by expert.
        outcomes: What every expert scores and costs on every question by itself (`measure_experts_alone`).
        controller: The model, its text generator and its optimiser.
        share: Which part of the questions this process works on.
        batch: Episodes per update in this process.
        seed: Seed of everything that is random in the run.
    """

    questions: QuestionSplit
    pool: ExpertPool
    scorer: Scorer
    settings: RoutingSettings
    variant: RoutingVariant
    budgets: Budgets
    outcomes: pd.DataFrame
    controller: Controller
    share: ProcessShare
    batch: int
    seed: int

    def collect_episodes(self, step: int) -> UpdateData:
        """Roll out the episodes of one update: random training questions under random budgets (CoRL, section 3.3).

        Args:
            step: Number of the update, from 0 on; part of the seed of all that is random here.

        Returns:
            The episodes as samples for PPO, a table with a row per episode (the columns of `make_episode_rows`, with
            step and the question's id in item), and the means of the table.
        """
        settings = self.settings
        # Processes draw different episodes.
        update_seed = (self.seed * 10**6 + step) * 1_000 + self.share.rank
        group_size = GROUP_SIZE if settings.learn.advantages == "group" else 1
        budget_tasks = variants.draw_training_tasks(
            self.variant,
            self.questions.train,
            self.budgets,
            settings,
            self.batch,
            group_size,
            update_seed,
        )
        episodes = roll_out_episodes(
            self.controller.generator,
            self.pool,
            budget_tasks,
            settings.rounds,
            update_seed,
            settings.temperature,
            self.scorer,
        )

        rollouts = make_episode_rows(episodes).assign(step=step)
        means = average_rollouts(rollouts)
        rollouts["item"] = [task.item.id for task in budget_tasks]
        return UpdateData(make_samples(episodes, group_size), rollouts, means)

    def evaluate_controller(self, method: str, role: str) -> pd.DataFrame:
        """Let the controller, as it is now, answer this process's share of the held-out questions under every budget.

        Args:
            method: What the results table calls the controller: "before training" or "after training".
            role: Its role in the results table: "start" before the training, "paper" after it.

        Returns:
            A row per question and budget, with the columns of `make_episode_rows`, among them condition (the budget
            word), correct, reward and cost_usd. Here item is the question's id, sample the number of its wording, and
            chosen the list of the experts that were called; method and role are added.
        """
        items = self.share.take(self.questions.test)
        ids_and_samples = self.share.take(name_units(self.questions.test))
        budget_tasks = variants.make_test_tasks(
            self.variant.style, items, self.budgets, self.settings
        )
        generator = self.controller.generator
        episodes = roll_out_episodes(
            generator,
            self.pool,
            budget_tasks,
            self.settings.rounds,
            TEST_SEED + self.seed,
            self.settings.test_temperature,
            self.scorer,
        )

        rows = make_episode_rows(episodes, generator.decode, len(items))
        rows = _identify_questions(rows, items, ids_and_samples)
        called_experts = [names.split() for names in rows["chosen"]]
        return rows.assign(method=method, role=role, chosen=called_experts)

    def evaluate_baselines(self, start: pd.DataFrame) -> pd.DataFrame:
        """Evaluate what the controller is compared with on the held-out questions, under every budget.

        Baselines choose for every question who answers: one expert, or the controller as it is now, by itself. Among
        them are constant choices, routers that learn from the training questions, and an oracle that sees the outcomes
        (`lib.budgeted_routing.baselines`). They need no calls beyond `outcomes`.

        Args:
            start: Not used; other systems read the controller's held-out rows from before the training.

        Returns:
            A row per baseline, budget and question that has all scores: method ("always X" for the expert X), role
            (`find_baseline_role`), condition (the budget word), item (the question's id), sample, group, correct,
            cost_usd, within (1 where the cost is within the budget), reward, chosen (list of the expert whose answer
            was given; empty for the controller) and calls (of experts; a cascade may make several). No rows in all
            processes but the first.
        """
        if not self.share.is_first:
            return pd.DataFrame()

        # Scores and costs of every strategy on every question.
        expert_rows, controller_rows = _drop_lost_questions(
            self.outcomes, self.measure_controller_alone()
        )
        prices = self.budgets.price_by_expert
        experts = sorted(prices, key=lambda expert: prices[expert])  # cheapest first
        train = baselines.make_outcome_matrix(expert_rows, controller_rows, "train", experts)
        test = baselines.make_outcome_matrix(expert_rows, controller_rows, "test", experts)
        rows = baselines.compare_baselines(train, test, self.budgets.usd_by_word, seed=self.seed)

        # Baselines number the questions that have all scores, in the order of the test questions.
        is_test = controller_rows["split"] == "test"
        scored_numbers = sorted(set(controller_rows.loc[is_test, "item"]))
        ids_and_samples = name_units(self.questions.test)
        rows = _identify_questions(
            rows,
            [self.questions.test[number] for number in scored_numbers],
            [ids_and_samples[number] for number in scored_numbers],
        )

        # The columns of the results table that say what each baseline is and did.
        methods = []
        roles = []
        answering_experts = []
        for name, strategy in zip(rows["method"], rows["chosen"], strict=True):
            methods.append(f"always {name}" if name in experts else name)
            roles.append(find_baseline_role(name, experts))
            answering_experts.append([] if strategy == CONTROLLER_ALONE else [strategy])
        return rows.assign(method=methods, role=roles, chosen=answering_experts)

    def measure_controller_alone(self) -> pd.DataFrame:
        """Let the controller, as it is now, answer by itself: without CoRL's prompt and without experts.

        Returns:
            A row per question of `list_question_splits`, with the columns of
            `expert_outcomes.measure_controller_alone`: split, item (number of the question), correct, cost_usd (0) and
            others.
        """
        # The same network, but without the system message that explains calls and budgets.
        generator = self.controller.generator
        plain_generator = HFGenerator(
            generator.model,
            generator.tokenizer,
            generator.max_turn_tokens,
            generator.max_response_tokens,
        )
        plain_generator.report_progress = generator.report_progress
        model = ControllerModel(CONTROLLER_ALONE, plain_generator)

        score_replies = partial(score_replies_in_pool, self.pool, self.scorer)
        tables = [
            expert_outcomes.measure_controller_alone(model, items, split, 1, score_replies)
            for split, items in list_question_splits(self.questions)
        ]
        return pd.concat(tables, ignore_index=True)


# What experts and baselines score ----------------------------------------------------------------


def list_question_splits(questions: QuestionSplit) -> list[tuple[str, Sequence[Item]]]:
    """List the two sets of questions on which every expert is measured.

    Args:
        questions: All questions of the run, split into training and held-out questions.

    Returns:
        ("train", questions that trained baselines learn from) and ("test", questions that everything is evaluated on).
    """
    return [("train", questions.baseline_train), ("test", questions.test)]


def measure_experts_alone(
    pool: ExpertPool, questions: QuestionSplit, scorer: Scorer
) -> pd.DataFrame:
    """Ask every expert every question once, without a controller, and record scores and costs.

    Args:
        pool: The experts, models that the controller may call for money.
        questions: Those of `list_question_splits` are asked.
        scorer: Compares each reply with the question's reference.

    Returns:
        A row per expert and question: split (train or test), item (number of the question in its split), method (the
        expert), correct (the score), cost_usd and the other columns of `expert_outcomes.measure_experts`.
    """
    score_replies = partial(score_replies_in_pool, pool, scorer)
    tables = [
        expert_outcomes.measure_experts(pool, items, split, 1, score_replies)
        for split, items in list_question_splits(questions)
    ]
    return pd.concat(tables, ignore_index=True)


def _drop_lost_questions(
    expert_rows: pd.DataFrame, controller_rows: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Drop the questions of which a reply or a score was lost, so that all methods are compared on the same ones.

    Args:
        expert_rows: A row per expert and question, with the columns split, item (number of the question in its split)
            and correct (the score; nan where it was lost).
        controller_rows: A row per question with the same columns: what the controller answers by itself.

    Returns:
        Both tables, without those questions.

    Raises:
        TaskError: Fewer than two training questions or one test question remain.
    """
    all_rows = pd.concat([expert_rows, controller_rows], ignore_index=True)
    lost_rows = all_rows[all_rows["correct"].isna()]
    lost_questions = set(zip(lost_rows["split"], lost_rows["item"], strict=True))

    tables = []
    for table in (expert_rows, controller_rows):
        questions = zip(table["split"], table["item"], strict=True)
        has_all_scores = [question not in lost_questions for question in questions]
        tables.append(table[has_all_scores])
    scored_expert_rows, scored_controller_rows = tables

    for split, min_questions in (("train", 2), ("test", 1)):
        is_in_split = scored_controller_rows["split"] == split
        num_questions = scored_controller_rows.loc[is_in_split, "item"].nunique()
        if num_questions < min_questions:
            raise TaskError(
                f"{num_questions} questions of the {split} set have a reply of every expert; check the experts' "
                "servers, delete experts.parquet in --out and run again"
            )
    return scored_expert_rows, scored_controller_rows


def _identify_questions(
    rows: pd.DataFrame, items: Sequence[Item], ids_and_samples: Sequence[tuple[str, int]]
) -> pd.DataFrame:
    """Replace the numbers of questions in the column item by their ids, as the results table needs them.

    Args:
        rows: Any table with the column item, an index of `items`.
        items: Questions.
        ids_and_samples: Of each question its id, and which of the wordings with this id it is.

    Returns:
        The rows with the columns item (id), sample (number of the wording) and group (the question's category).
    """
    numbers = rows["item"].tolist()
    return rows.assign(
        item=[ids_and_samples[number][0] for number in numbers],
        sample=[ids_and_samples[number][1] for number in numbers],
        group=[items[number].group for number in numbers],
    )


def find_baseline_role(method: str, experts: Sequence[str]) -> str:
    """Find which kind of baseline a method is, for the results table.

    Args:
        method: Name of an expert, which then answers every question, or of a baseline in
            `lib.budgeted_routing.baselines`.
        experts: Names of all experts.

    Returns:
        "expert"; "oracle" (chooses with the outcomes at hand, an upper bound); "constant" (reads no question: the
        controller alone, a random expert, the best strategy for all); or "router" (chooses by the question).
    """
    if method in experts:
        return "expert"
    if method == "oracle":
        return "oracle"
    constants = (CONTROLLER_ALONE, "random", "best constant", "best expert")
    return "constant" if method in constants else "router"


def score_replies_in_pool(
    pool: ExpertPool, scorer: Scorer, items: Sequence[Item], replies: Sequence[str]
) -> list[float]:
    """Score replies to questions, on the event loop of the experts, since the scorer may be one of their models.

    Args:
        pool: The experts, whose event loop runs the scorer.
        scorer: Compares a reply with the question's reference.
        items: n questions.
        replies: n texts.

    Returns:
        n scores in [0, 1]; nan where a judge's reply was lost.
    """
    scores = pool.run(scorer.score_all(items, replies))
    return [score.value for score in scores]


# The run -----------------------------------------------------------------------------------------


def train(options: argparse.Namespace) -> None:
    """Train a controller by CoRL on a user's questions: measure the experts, train, evaluate and write the report.

    Everything that the run writes lies under `options.out`. What is there from an earlier call is used again.

    Args:
        options: The command line (`read_options`).

    Raises:
        ParamsError, TaskError, ScorerError: Something of the input is wrong. In most cases nothing was asked of an
            expert yet; budgets and prices are compared later.
    """
    with ProgressLine(f"reading {options.data}", is_silent=not is_first_process()) as progress:
        # Read and check the input, before anything costs time or money.
        usd_by_word = parse_budget_options(options.budgets)
        _check_warm_start(options)
        template = prompts.read_template(options.style, options.prompt)
        inputs = read_inputs(options, "routing", "experts")
        settings = inputs.params.routing
        loop = _make_loop_settings(options, settings)
        share = join_processes(needs_several=options.sharded)
        batch = share.divide(loop.batch)
        call_plan = announce_planned_calls(inputs, settings, loop)
        for sentence in (*inputs.notes, inputs.questions.note, call_plan):
            progress.say(sentence)

        model_settings = make_model_settings(options, settings.temperature)
        longest_prompt = _write_longest_prompt(template, inputs)
        memory = plan_run_memory(options, model_settings, loop, longest_prompt, share)
        progress.say(memory.describe())

        run_settings = collect_run_settings(inputs, settings, loop, usd_by_word, template)
        with (
            open_run_folder(options.out, run_settings, share) as folder,
            open_experts(
                inputs, RECORDING_NAME, settings.expert_temperature, share.rank, share.num_processes
            ) as (pool, scorer),
        ):
            # What a call to each expert costs on average, which the prompt names.
            def measure_call_costs() -> list[list[object]]:
                """[expert, its average cost] of every expert, as JSON keeps them in order."""
                costs = measure_calls(pool, inputs.questions.baseline_train)
                return [[expert, asdict(cost)] for expert, cost in costs.items()]

            num_trials = len(inputs.questions.baseline_train[:TRIAL_QUESTIONS])
            progress.activity = f"asking each expert {num_trials} questions, for what a call costs"
            call_costs = keep_json(folder / "call_costs.json", measure_call_costs, share)

            # What every expert scores by itself: baselines choose among experts by it, and it decides the budgets.
            def measure_outcomes() -> pd.DataFrame:
                """The table of the first process; the others add no rows."""
                if not share.is_first:
                    return pd.DataFrame()
                return measure_experts_alone(pool, inputs.questions, scorer)

            num_questions = len(inputs.questions.baseline_train) + len(inputs.questions.test)
            progress.activity = f"asking each expert the {num_questions} questions of the baselines"
            outcomes = keep_table(folder / "experts.parquet", measure_outcomes, share)
            train_outcomes = outcomes[outcomes["split"] == "train"]
            budgets = choose_budgets(train_outcomes, settings, usd_by_word)
            progress.say(describe_budgets(budgets))

            # The model, with the system message that lists experts and prices.
            progress.activity = f"reading {options.model}"
            average_costs = {expert: cost["cost_usd"] for expert, cost in call_costs}
            system_prompt = prompts.write_system_prompt(template, average_costs)
            controller = read_controller(options, model_settings, loop, system_prompt, share)
            variant_name = "hard" if options.style == "hard" else "corl"
            system = BudgetTraining(
                questions=inputs.questions,
                pool=pool,
                scorer=scorer,
                settings=settings,
                variant=variants.VARIANTS_BY_NAME[variant_name],
                budgets=budgets,
                outcomes=outcomes,
                controller=controller,
                share=share,
                batch=batch,
                seed=options.seed,
            )

            # A warm start leaves a model in a folder, from which the training starts like from any other.
            if options.warm_start:
                warm_folder = folder / warm_start.FOLDER
                if share.is_first and not warm_folder.exists():
                    progress.say(train_warm_start(system, options, warm_folder, progress))
                share.wait()
                warm_options = argparse.Namespace(**vars(options) | {"model": warm_folder})
                controller = read_controller(
                    warm_options, model_settings, loop, system_prompt, share
                )
                system.controller = controller

            # Evaluate, train, evaluate again.
            outcome = train_and_test(system, controller, folder, loop, share, progress)
            if share.is_first:
                write_report(inputs, system, outcome, run_settings, memory, progress)


def train_warm_start(
    system: BudgetTraining, options: argparse.Namespace, folder: Path, progress: ProgressLine
) -> str:
    """Teach the controller the form of calls and answers, and write it into a folder (`warm_start`).

    Args:
        system: The training, with the controller as it was read; its weights change.
        options: The command line; `warm_start` (number of examples) and `seed` are read.
        folder: Where the model goes; it appears when it is complete.
        progress: The line on the terminal.

    Returns:
        A sentence for the terminal.
    """
    controller = system.controller
    progress.activity = "warm start: what the controller answers by itself"
    own_rows = system.measure_controller_alone()
    own_rows = own_rows[own_rows["split"] == "train"].sort_values("item")
    examples = warm_start.draw_examples(
        system.questions.baseline_train,
        list(own_rows["reply"]),
        list(system.budgets.price_by_expert),
        system.budgets,
        system.variant.style,
        options.warm_start,
        options.seed,
    )
    samples = warm_start.make_warm_samples(
        controller.generator, system.pool, examples, system.settings.rounds, options.seed
    )

    def report_step(step: int, num_steps: int) -> None:
        progress.activity = (
            f"warm start on {options.warm_start} examples, step {step + 1}/{num_steps}"
        )

    losses = warm_start.train_on_samples(
        controller.policy, samples, controller.generator.pad_id, options.seed, report_step
    )

    # The folder appears with all its files, so that a run that is killed here writes it again.
    partial_folder = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial_folder, ignore_errors=True)
    controller.policy.save_folder(partial_folder)
    controller.generator.tokenizer.save_pretrained(partial_folder)
    partial_folder.rename(folder)
    first_loss, last_loss = losses["loss"].iloc[[0, -1]]
    return (
        f"Warm start: {len(samples)} of {len(examples)} examples fit the window; loss of a token {first_loss:.2f}, "
        f"after {len(losses)} steps {last_loss:.2f}."
    )


def _make_loop_settings(options: argparse.Namespace, settings: RoutingSettings) -> LoopSettings:
    """Make the settings of the training loop: those of CoRL, with the updates and the batch of the command line.

    Args:
        options: The command line; updates and batch are None where the user has not set them.
        settings: CoRL's settings.

    Returns:
        The settings.
    """
    return LoopSettings(
        learn=settings.learn,
        num_updates=options.updates or settings.updates[options.style],
        batch=options.batch or settings.batch,
        max_turns=settings.rounds,
        turn_tokens=settings.turn_tokens,
        response_tokens=settings.response_tokens,
        save_every=settings.save_every,
    )


def _write_longest_prompt(template: str, inputs: RunInputs) -> str:
    """Write the longest prompt of the training, by which its memory is planned.

    Args:
        template: The system message, with a field for the experts and their prices.
        inputs: Names of the experts and the training questions.

    Returns:
        The system message and the longest training question.
    """
    # Prices are not measured yet; only how long they are when written matters here.
    placeholder_prices = dict.fromkeys(inputs.experts, 1.23e-4)
    system_prompt = prompts.write_system_prompt(template, placeholder_prices)
    longest_question = max((item.prompt for item in inputs.questions.train), key=len)
    return f"{system_prompt} {longest_question}"


def announce_planned_calls(inputs: RunInputs, settings: RoutingSettings, loop: LoopSettings) -> str:
    """Say how many calls to experts the run makes at most, and what they may cost.

    Args:
        inputs: Experts with their list prices, and questions.
        settings: CoRL's settings; `rounds` (turns of an episode at most) is read.
        loop: Number of updates and of episodes per update.

    Returns:
        A sentence for the terminal.
    """
    # Held-out questions are answered under every budget, before and after the training.
    num_test_episodes = 2 * len(BUDGET_WORDS) * len(inputs.questions.test)
    plan = CallPlan(
        episodes=loop.num_updates * loop.batch + num_test_episodes,
        calls_per_episode=settings.rounds - 1,  # the last turn is the answer
        baseline_questions=len(inputs.questions.baseline_train) + len(inputs.questions.test),
        query_tokens=loop.turn_tokens,
    )
    items = [*inputs.questions.train, *inputs.questions.test]
    return announce_plan(inputs.llm, inputs.experts, inputs.judges, items, plan)


def collect_run_settings(
    inputs: RunInputs,
    settings: RoutingSettings,
    loop: LoopSettings,
    usd_by_word: Mapping[str, float],
    template: str,
) -> dict[str, object]:
    """Collect everything that decides the numbers of a run, so that a later call in its folder must have the same.

    Args:
        inputs: Command line, experts and questions.
        settings: CoRL's settings.
        loop: Settings of the training loop.
        usd_by_word: US dollars a question for the budget words that the user has set.
        template: Text of the system message.

    Returns:
        Values for JSON by name, also for the report.
    """
    values = {
        "style": inputs.options.style,
        "prompt": template,
        "budgets named": dict(usd_by_word),
        "warm start examples": inputs.options.warm_start,
        "updates": loop.num_updates,
        "batch": loop.batch,
        "turns": settings.rounds,
        "turn_tokens": loop.turn_tokens,
        "response_tokens": loop.response_tokens,
        "temperature": settings.temperature,
        "test_temperature": settings.test_temperature,
        "expert_temperature": settings.expert_temperature,
        "learn": settings.learn.model_dump(),
    }
    return describe_inputs(inputs, values)


def write_report(
    inputs: RunInputs,
    system: BudgetTraining,
    outcome: TrainingOutcome,
    settings: Mapping[str, object],
    memory: MemoryPlan,
    progress: ProgressLine,
) -> None:
    """Compare the trained controller with its start and all baselines, write the report, and print the result.

    Args:
        inputs: Command line, questions and the folder of the run, into which all files go.
        system: The training, for its budgets and its counts of expert calls.
        outcome: Tables of the training and of the evaluations before and after it.
        settings: What decides the run (`collect_run_settings`); the report lists it.
        memory: The memory that the training was planned to take.
        progress: The line on the terminal, below which sentences are printed.
    """
    train_ids = {item.id for item in inputs.questions.train}
    comparison = results.compare_outcome("corl", outcome, list(MEASURES), train_ids, stats.UNIT)

    # Sentences for the terminal and the report: data, budgets, what the controller learned, lost replies, calls.
    notes = [
        inputs.questions.note,
        describe_budgets(system.budgets),
        describe_budget_effect(comparison),
    ]
    notes += [f"Training: {loss}." for loss in summarize_losses(outcome.rollouts)]
    notes += [f"Evaluation: {loss}." for loss in summarize_losses(outcome.trained)]
    for expert, counts in system.pool.counts.items():
        if counts.calls:
            notes.append(f"{expert}: {counts.describe()}{system.share.scope}.")

    reward_table = results.summarize_by_condition(comparison, "reward")
    cost_table = results.summarize_by_condition(comparison, "cost_usd")
    description = results.RunDescription(
        system="corl",
        title=f"CoRL: {inputs.options.model.name} on {inputs.options.data}",
        measures=MEASURES,
        notes=notes,
        settings=settings,
        planned_memory=memory.total,
        details={
            "Reward under each budget": reward_table,
            "Dollars for 1,000 questions under each budget": cost_table,
        },
    )
    sentence = results.write_results(inputs.folder, outcome, comparison, description)
    for line in (sentence, *notes):
        progress.say(line)
    progress.say(f"report: {inputs.folder / results.REPORT}")
    progress.say(f"controller: {inputs.folder / CONTROLLER}")


def describe_budget_effect(comparison: HeldOutComparison) -> str:
    """Say whether the trained controller spends more under the budget high than under low, on the same questions.

    If it does, its spending can be steered by the budget in the prompt, which is what CoRL is for.

    Args:
        comparison: Rows of the evaluation, one per method, question and budget word (the column condition).

    Returns:
        A sentence with the mean difference in dollars, its interval and a verdict.
    """
    rows = comparison.rows[comparison.rows["method"] == TRAINED]
    differences = estimate_difference(rows, "cost_usd", {"condition": "high"}, {"condition": "low"})
    (verdict,) = decide_verdicts(differences)
    return (
        f"Under high it spends {format_dollars(differences.iloc[0])} a question more than under low: steering by the "
        f"budget: {verdict}."
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m lib train corl`.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The exit code: 0, 2 for a mistake in the input or a spending limit (one line on the terminal), 130 for Ctrl-C.
    """
    return run_command(read_options(argv), train)


if __name__ == "__main__":
    raise SystemExit(main())
