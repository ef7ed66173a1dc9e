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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import pandas as pd

from lib import stats
from lib.budgeted_routing import baselines, expert_outcomes, prompts, variants
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
from lib.rl.user_training.experts import CallPlan, announce_plan, measure_calls
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

GROUP = 8  # episodes of one question, for group advantages
EXAMPLES = """\
  python -m lib train corl --model models/Qwen2.5-1.5B-Instruct --data gsm8k:data/gsm8k --split train \\
      --experts small,large --budget low=0.0005 --lora 16 --out runs/gsm8k
  python -m lib train corl --model models/SmolLM2-135M-Instruct --data questions.csv --scorer numeric \\
      --experts small,large --updates 20 --batch 16 --set learn.minibatch=16 --out runs/first
"""
MEASURES = {
    "reward": "reward",
    "correct": "share correct",
    "within": "share within budget",
    "cost_usd": "dollars for 1,000 questions",
    "calls": "calls a question",
}


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
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
    return parse_options(parser, argv)


def read_budgets(texts: Sequence[str]) -> dict[str, float]:
    """What the command line says that words are worth.

    Args:
        texts: WORD=DOLLARS each.

    Returns:
        Dollars by word, of the words that are there.

    Raises:
        ParamsError: Another word, or no number from 0 on.
    """
    budgets = {}
    for text in texts:
        word, _, amount = text.partition("=")
        try:
            cost_usd = float(amount)
        except ValueError:
            cost_usd = math.nan
        if word not in BUDGET_WORDS or not cost_usd >= 0:
            raise ParamsError(
                f"--budget {text}: write low, medium or high, =, and dollars per question"
            )
        budgets[word] = cost_usd
    _refuse_falling_budgets(budgets)
    return budgets


def _refuse_falling_budgets(budgets: Mapping[str, float]) -> None:
    amounts = [budgets[word] for word in BUDGET_WORDS if word in budgets]
    if amounts != sorted(amounts):
        raise ParamsError(f"--budget: low, medium and high must rise, got {dict(budgets)}")


def choose_budgets(
    outcomes: pd.DataFrame, settings: RoutingSettings, named: Mapping[str, float]
) -> Budgets:
    """What the words mean in this run.

    Args:
        outcomes: Of `expert_outcomes.measure_experts`, on the questions to learn from.
        settings: Of the quantile, and of the word high.
        named: Of `read_budgets`; the other words are measured.

    Returns:
        The budgets.

    Raises:
        ParamsError: A word that was named is worth more than one above it that was measured, or the reverse.
    """
    experts = list(dict.fromkeys(outcomes["method"]))
    prices = expert_outcomes.measure_call_prices(outcomes, experts, settings)
    words = expert_outcomes.derive_budgets(prices, settings) | dict(named)
    _refuse_falling_budgets(words)
    return Budgets(words, prices, None)


def describe_budgets(budgets: Budgets) -> str:
    """What each word is worth, and a warning where two words allow the same."""
    amounts = ", ".join(f"{word} ${budgets.words[word]:.4g}" for word in BUDGET_WORDS)
    sentence = f"Budgets of a question: {amounts}."
    dearest = max(budgets.calls.values())
    if budgets.words["low"] >= dearest:
        sentence += (
            f" Even low affords the most expensive expert (${dearest:.4g} a call), so budgets hardly differ; "
            "set them by --budget low=..."
        )
    return sentence


@dataclass
class BudgetTraining:
    """CoRL on a user's questions: what is drawn, rewarded and tested.

    Attributes:
        questions: To learn from and to evaluate on.
        pool: The experts.
        scorer: Of answers.
        settings: Of CoRL.
        variant: The style of prompts.
        budgets: What the words mean.
        outcomes: What every expert makes of the questions by itself.
        controller: The model.
        share: Of this process.
        batch: Episodes of an update in this process.
        seed: Of the run.
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
        """Questions under budgets, both at random; rewards of eq. 7."""
        settings = self.settings
        update_seed = (self.seed * 10**6 + step) * 1_000 + self.share.rank
        group = GROUP if settings.learn.advantages == "group" else 1
        budget_tasks = variants.draw_training_tasks(
            self.variant,
            self.questions.train,
            self.budgets,
            settings,
            self.batch,
            group,
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
        ids = [task.item.id for task in budget_tasks]
        samples = make_samples(episodes, group)
        return UpdateData(samples, rollouts.assign(item=ids), average_rollouts(rollouts))

    def test_controller(self, method: str, role: str) -> pd.DataFrame:
        """The held-out questions under every budget, as in use."""
        items = self.share.take(self.questions.test)
        units = self.share.take(name_units(self.questions.test))
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
        rows = _name_items(rows, items, units)
        chosen = [names.split() for names in rows["chosen"]]
        return rows.assign(method=method, role=role, chosen=chosen)

    def test_baselines(self, start: pd.DataFrame) -> pd.DataFrame:
        """Constants, routers that learn from the training questions, and the oracle, under every budget."""
        if not self.share.is_first:
            return pd.DataFrame()
        outcomes, alone = _select_scored(self.outcomes, self._try_alone())
        experts = sorted(self.budgets.calls, key=self.budgets.calls.__getitem__)
        train = baselines.make_outcome_matrix(outcomes, alone, "train", experts)
        test = baselines.make_outcome_matrix(outcomes, alone, "test", experts)
        rows = baselines.compare(train, test, self.budgets.words, seed=self.seed)

        # The routers number the questions that have a score.
        scored_numbers = sorted(set(alone.loc[alone["split"] == "test", "item"]))
        units = name_units(self.questions.test)
        rows = _name_items(
            rows,
            [self.questions.test[number] for number in scored_numbers],
            [units[number] for number in scored_numbers],
        )
        return rows.assign(
            method=[f"always {name}" if name in experts else name for name in rows["method"]],
            role=[find_role(name, experts) for name in rows["method"]],
            calls=(rows["chosen"] != CONTROLLER_ALONE).astype(int),
            chosen=[[] if name in ("", CONTROLLER_ALONE) else [name] for name in rows["chosen"]],
        )

    def _try_alone(self) -> pd.DataFrame:
        """What the controller answers by itself, without protocol and experts, as it is now."""
        generator = self.controller.generator
        plain_generator = HFGenerator(
            generator.model,
            generator.tokenizer,
            generator.max_turn_tokens,
            generator.max_response_tokens,
        )
        plain_generator.report_progress = generator.report_progress
        model = ControllerModel(CONTROLLER_ALONE, plain_generator)
        score_replies = partial(score_with, self.pool, self.scorer)
        tables = [
            expert_outcomes.measure_controller_alone(model, items, split, 1, score_replies)
            for split, items in list_splits(self.questions)
        ]
        return pd.concat(tables, ignore_index=True)


def list_splits(questions: QuestionSplit) -> list[tuple[str, Sequence[Item]]]:
    """What baselines learn from, and what everything is evaluated on."""
    return [("train", questions.baseline_train), ("test", questions.test)]


def try_experts(pool: ExpertPool, questions: QuestionSplit, scorer: Scorer) -> pd.DataFrame:
    """What every expert makes of the questions by itself (`expert_outcomes.measure_experts`)."""
    score_replies = partial(score_with, pool, scorer)
    tables = [
        expert_outcomes.measure_experts(pool, items, split, 1, score_replies)
        for split, items in list_splits(questions)
    ]
    return pd.concat(tables, ignore_index=True)


def _select_scored(
    outcomes: pd.DataFrame, alone: pd.DataFrame
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Both tables without the questions of which a reply or a judgement was lost.

    Raises:
        TaskError: None is left to learn from, or to evaluate on.
    """
    both = pd.concat([outcomes, alone], ignore_index=True)
    lost = both[both["correct"].isna()]
    lost_units = set(zip(lost["split"], lost["item"], strict=True))
    tables = []
    for table in (outcomes, alone):
        units = zip(table["split"], table["item"], strict=True)
        tables.append(table[[unit not in lost_units for unit in units]])
    for split, least in (("train", 2), ("test", 1)):
        num_left = tables[1].loc[tables[1]["split"] == split, "item"].nunique()
        if num_left < least:
            raise TaskError(
                f"{num_left} questions of the {split} set have a reply of every expert; check the experts' servers, "
                "delete experts.parquet in --out and run again"
            )
    return tables[0], tables[1]


def _name_items(
    rows: pd.DataFrame, items: Sequence[Item], units: Sequence[tuple[str, int]]
) -> pd.DataFrame:
    """Rows with the ids and groups of their questions in place of numbers."""
    numbers = rows["item"].tolist()
    return rows.assign(
        item=[units[number][0] for number in numbers],
        sample=[units[number][1] for number in numbers],
        group=[items[number].group for number in numbers],
    )


def find_role(method: str, experts: Sequence[str]) -> str:
    """The role of a baseline in the results table."""
    if method in experts:
        return "expert"
    if method == "oracle":
        return "oracle"
    constants = (CONTROLLER_ALONE, "random", "best constant", "best expert")
    return "constant" if method in constants else "router"


def score_with(
    pool: ExpertPool, scorer: Scorer, items: Sequence[Item], replies: Sequence[str]
) -> list[float]:
    """Scores of replies, on the pool's event loop, since the scorer may be one of its models."""
    return [score.value for score in pool.run(scorer.score_all(items, replies))]


# The run -----------------------------------------------------------------------------------------


def train(options: argparse.Namespace) -> None:
    """Train, evaluate and write the report.

    Raises:
        ParamsError, TaskError, ScorerError: Something of the input is wrong; nothing was asked or read yet.
    """
    with ProgressLine(f"reading {options.data}", is_silent=not is_first_process()) as progress:
        named_budgets = read_budgets(options.budgets)
        template = prompts.read_template(options.style, options.prompt)
        inputs = read_inputs(options, "routing", "experts")
        settings = inputs.params.routing
        loop = LoopSettings(
            learn=settings.learn,
            num_updates=options.updates or settings.updates[options.style],
            batch=options.batch or settings.batch,
            max_turns=settings.rounds,
            turn_tokens=settings.turn_tokens,
            response_tokens=settings.response_tokens,
            save_every=settings.save_every,
        )
        share = join_processes(needs_several=options.sharded)
        batch = share.divide(loop.batch)
        for sentence in (*inputs.notes, inputs.questions.note, plan_run(inputs, settings, loop)):
            progress.say(sentence)
        model_settings = make_model_settings(options, settings.temperature)
        # Of prices in the prompt only the lengths matter here, and they are not known yet.
        longest_question = max((item.prompt for item in inputs.questions.train), key=len)
        system_prompt = prompts.write_system_prompt(
            template, dict.fromkeys(inputs.experts, 1.23e-4)
        )
        memory = plan_run_memory(
            options,
            model_settings,
            loop,
            f"{system_prompt} {longest_question}",
            share,
        )
        progress.say(memory.describe())

        described = describe_run(inputs, settings, loop, named_budgets, template)
        with (
            open_run_folder(options.out, described, share) as folder,
            open_experts(
                inputs, RECORDING_NAME, settings.expert_temperature, share.rank, share.num_processes
            ) as (pool, scorer),
        ):
            # What experts cost and can do, which prompts and budgets are made of.
            progress.activity = "asking the experts what a call costs"
            trial_items = inputs.questions.baseline_train
            call_costs = keep_json(
                folder / "call_costs.json",
                lambda: [
                    [name, asdict(cost)] for name, cost in measure_calls(pool, trial_items).items()
                ],
                share,
            )
            progress.activity = "asking every expert every question of the baselines"
            outcomes = keep_table(
                folder / "experts.parquet",
                lambda: _in_first(share, lambda: try_experts(pool, inputs.questions, scorer)),
                share,
            )
            train_outcomes = outcomes[outcomes["split"] == "train"]
            budgets = choose_budgets(train_outcomes, settings, named_budgets)
            progress.say(describe_budgets(budgets))

            progress.activity = f"reading {options.model}"
            preface = prompts.write_system_prompt(
                template, {name: cost["cost_usd"] for name, cost in call_costs}
            )
            controller = read_controller(options, model_settings, loop, preface, share)
            system = BudgetTraining(
                questions=inputs.questions,
                pool=pool,
                scorer=scorer,
                settings=settings,
                variant=variants.VARIANTS_BY_NAME["hard" if options.style == "hard" else "corl"],
                budgets=budgets,
                outcomes=outcomes,
                controller=controller,
                share=share,
                batch=batch,
                seed=options.seed,
            )
            outcome = train_and_test(system, controller, folder, loop, share, progress)
            if share.is_first:
                write_report(inputs, system, outcome, described, memory, progress)


def _in_first(share: ProcessShare, make_table: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """A table that the first process makes; the others bring no rows."""
    return make_table() if share.is_first else pd.DataFrame()


def plan_run(inputs: RunInputs, settings: RoutingSettings, loop: LoopSettings) -> str:
    """How many calls the run makes at the most, and what they may cost."""
    num_test_episodes = 2 * len(BUDGET_WORDS) * len(inputs.questions.test)
    plan = CallPlan(
        episodes=loop.num_updates * loop.batch + num_test_episodes,
        calls_per_episode=settings.rounds - 1,
        baseline_questions=len(inputs.questions.baseline_train) + len(inputs.questions.test),
        query_tokens=loop.turn_tokens,
    )
    items = [*inputs.questions.train, *inputs.questions.test]
    return announce_plan(inputs.llm, inputs.experts, inputs.judges, items, plan)


def describe_run(
    inputs: RunInputs,
    settings: RoutingSettings,
    loop: LoopSettings,
    named_budgets: Mapping[str, float],
    template: str,
) -> dict[str, object]:
    """What decides the numbers of the run, for its folder and its report."""
    values = {
        "style": inputs.options.style,
        "prompt": template,
        "budgets named": dict(named_budgets),
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
    """Compare, write all files, and say what came out."""
    train_ids = {item.id for item in inputs.questions.train}
    comparison = results.compare_outcome("corl", outcome, list(MEASURES), train_ids, stats.UNIT)
    notes = [
        inputs.questions.note,
        describe_budgets(system.budgets),
        *describe_steering(comparison),
        *(f"Training: {loss}." for loss in summarize_losses(outcome.rollouts)),
        *(f"Evaluation: {loss}." for loss in summarize_losses(outcome.trained)),
        *(
            f"{expert}: {counts.describe()}{system.share.scope}."
            for expert, counts in system.pool.counts.items()
            if counts.calls
        ),
    ]
    sentence = results.write_results(
        inputs.folder,
        outcome,
        comparison,
        results.RunDescription(
            system="corl",
            title=f"CoRL: {inputs.options.model.name} on {inputs.options.data}",
            measures=MEASURES,
            notes=notes,
            settings=settings,
            planned_memory=memory.total,
            details={
                "Reward under each budget": results.summarize_by_condition(comparison, "reward"),
                "Dollars for 1,000 questions under each budget": results.summarize_by_condition(
                    comparison, "cost_usd"
                ),
            },
        ),
    )
    for line in (sentence, *notes):
        progress.say(line)
    progress.say(f"report: {inputs.folder / results.REPORT}")
    progress.say(f"controller: {inputs.folder / CONTROLLER}")


def describe_steering(comparison: HeldOutComparison) -> list[str]:
    """Whether the trained controller spends more under a larger budget, in a sentence."""
    rows = comparison.rows[comparison.rows["method"] == TRAINED]
    differences = estimate_difference(rows, "cost_usd", {"condition": "high"}, {"condition": "low"})
    verdict = decide_verdicts(differences).iloc[0]
    return [
        f"Under high it spends {format_dollars(differences.iloc[0])} a question more than under low: steering by the "
        f"budget: {verdict}."
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """Run; mistakes in the input end in one line and the code 2."""
    return run_command(read_options(argv), train)


if __name__ == "__main__":
    raise SystemExit(main())
