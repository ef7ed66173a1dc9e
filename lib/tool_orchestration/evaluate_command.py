"""Prompted orchestrators on your endpoints: `python -m lib evaluate toolorchestra --data QUESTIONS --out FOLDER`.

Each model of --orchestrators, any name of llm.models in params.yaml, is prompted with a menu of tools as function
schemas: the models of --experts, a calculator and a Python sandbox, and query and code writers where tools.query_writer
and tools.code_writer name a model. Nothing is trained. Printed and kept under --out are:

  pilot study            the share of calls to each model, and whether an orchestrator favours its own family
                         (self-enhancement) or the strongest other model (other-enhancement)
  preference benchmark   what answers are worth to users who differ in what they care for, at drawn menus and prices,
                         against --reference and against every model by itself; with --price-configurations also
                         under the random price lists of tools.price_configurations
  office tasks           with --office N: tasks on a database whose user leaves parts out until asked

Models are described on menus by how they did on questions apart from the test: by tools.description_writer, or by a
rule, which is labelled as scripted. What it may cost is printed first; --plan-only ends there. Replies are recorded
under --out, so that the same command asks nothing twice.

With --tasks tau2:retail (or tau2:airline, tau2:telecom) models serve customers of tau2-bench, with functions alone and
with other models as tools: `python -m lib evaluate toolorchestra --tasks tau2:retail --help`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from lib import config
from lib.config import LLMSettings, Params, ParamsError, ToolSettings
from lib.config.budgeted_routing import SCRIPTED_USER
from lib.experiment import artifacts, seeds
from lib.experiment.evaluation import TEST_SEED
from lib.language_models.local_models import open_local
from lib.llm.cost_estimate import PlannedCalls, announce_costs, take_most_expensive
from lib.llm.open_models import export_recording, open_models
from lib.llm.token_counts import count_bytes, estimate_tokens
from lib.rl.expert_pool import ExpertPool
from lib.rl.user_training.data import (
    QuestionSplit,
    check_vocabulary,
    load_questions,
    split_questions,
)
from lib.rl.user_training.experts import (
    DECLARED_TOKENS_PER_SECOND,
    JUDGE_TOKENS,
    TRIAL_QUESTIONS,
    CallCost,
    change_params,
    check_names,
    list_judges,
    measure_calls,
    select_models,
)
from lib.rl.user_training.options import add_set_option
from lib.rl.user_training.training import run_command
from lib.tasks import Item
from lib.tasks.scorers import SCORERS, Scorer, make_scorer
from lib.tasks.synthesis import Task
from lib.tool_orchestration import (
    episode_rewards,
    episode_specs,
    model_descriptions,
    pilot_study,
    price_configurations,
    prompted_baseline,
    rewards,
    service_command,
    single_tools,
    tool_menu,
    user_dialogue,
    writer_tools,
)
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.make_tasks_command import split_names
from lib.tool_orchestration.model_descriptions import Description
from lib.tool_orchestration.prompted_baseline import plan_prompted_episodes
from lib.tool_orchestration.tool_environment import ToolEnvironment, ToolEpisode
from lib.tool_orchestration.tool_menu import Offer, ToolMenu, UserPreference
from lib.tool_orchestration.train_command import choose_functions, describe_call_costs, make_offers
from lib.tool_orchestration.user_evaluation import make_tool_vectors

RECORDING = "evaluation"  # name of the recording and of the spending limit under --out
PILOT_USER = UserPreference(1.0, 1.0, 0.0)  # "achieve best results while maintaining lowest cost"
USUAL_PRICES = "usual prices"  # condition of rows under the price list that models are measured at
WRITER_PROMPT_TOKENS = 300  # of a description's or a user's prompt, more than any has
EXAMPLES = """\
examples:
  python -m lib evaluate toolorchestra --data gsm8k:data/gsm8k --split test --orchestrators small,large \\
      --experts small,large --questions 50 --out runs/pilot
  python -m lib evaluate toolorchestra --data hle:data/hle --scorer judge:large --experts small,large \\
      --orchestrators mine --set 'llm.models.mine={backend: endpoint, base_url: "http://localhost:8000/v1", \
model: my-model, price_in: 1e-7, price_out: 4e-7}' --plan-only --out runs/hle
"""


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line.

    Args:
        argv: Arguments; None for those of the process.

    Returns:
        The options.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lib evaluate toolorchestra",
        description=__doc__,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--data", required=True, metavar="SOURCE", help="as `train toolorchestra` takes it"
    )
    for column in ("prompt", "reference", "group", "id", "choices"):
        parser.add_argument(f"--{column}-column", metavar="NAME", help="of a file")
    parser.add_argument("--split", help="train, dev or test, of data that has splits")
    parser.add_argument("--scorer", metavar="S", help=f"one of {', '.join(SCORERS)}")
    parser.add_argument(
        "--orchestrators", type=split_names, metavar="A,B", help="default: tools.agent"
    )
    parser.add_argument(
        "--experts", type=split_names, metavar="A,B,C", help="default: those of tools.models"
    )
    parser.add_argument(
        "--questions", type=int, default=50, metavar="N", help="to test on; default: %(default)s"
    )
    parser.add_argument(
        "--office", type=int, default=0, metavar="N", help="office tasks; default: none"
    )
    parser.add_argument(
        "--price-configurations", action="store_true", help="repeat under random price lists"
    )
    parser.add_argument("--reference", metavar="NAME", help="default: the first orchestrator")
    parser.add_argument(
        "--description-prompt", metavar="FILE", help="in place of the instruction to the writer"
    )
    parser.add_argument("--plan-only", action="store_true", help="print the costs and end")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR")
    parser.add_argument("--profile", choices=config.PROFILES, default="paper")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    add_set_option(
        parser,
        "change a setting of tools, or add a model by llm.models.NAME={...}; may be repeated",
    )
    return parser.parse_args(argv)


@dataclass(frozen=True)
class EvaluationInputs:
    """The inputs of an evaluation, checked before any model is called.

    Attributes:
        options: Options of the command line.
        params: All parameters, those of --set among them.
        llm: The models that may be asked alone, with prices.
        experts: Names in llm.models of the models among the tools.
        orchestrators: Names in llm.models.
        judges: Names in llm.models of those that score answers.
        writers: By writer tool (a model writes a search query, or a program, which is then run) the model that writes.
        questions: Questions to describe models by (`baseline_train`), and questions to test on (`test`).
        office_tasks: Tasks on a database, whose user leaves parts of the task out until asked.
        functions: Names of the functions on menus.
        notes: What a reader has to know, in sentences.
    """

    options: argparse.Namespace
    params: Params
    llm: LLMSettings
    experts: tuple[str, ...]
    orchestrators: tuple[str, ...]
    judges: tuple[str, ...]
    writers: Mapping[str, str]
    questions: QuestionSplit
    office_tasks: tuple[Task, ...]
    functions: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def settings(self) -> ToolSettings:
        """The settings of ToolOrchestra."""
        return self.params.tools

    @property
    def num_price_lists(self) -> int:
        """The number of price lists in the benchmark: the usual one, and the random ones."""
        if not self.options.price_configurations:
            return 1
        return 1 + self.settings.price_configurations.number

    @property
    def user_model(self) -> str | None:
        """The model that plays users; None for the scripted user."""
        name = self.settings.dialogue.user
        return None if name == SCRIPTED_USER or not self.office_tasks else name

    @property
    def asked_names(self) -> list[str]:
        """Names of all models that may be called, each once."""
        names = [*self.experts, *self.orchestrators, *self.judges, *self.writers.values()]
        optional = [self.settings.description_writer, self.user_model]
        return list(dict.fromkeys([*names, *(name for name in optional if name is not None)]))


def read_inputs(options: argparse.Namespace) -> EvaluationInputs:
    """Read and check the inputs of an evaluation.

    Args:
        options: Options of the command line.

    Returns:
        The inputs.

    Raises:
        ParamsError: A setting or a name that cannot be.
        TaskError, ScorerError: The questions cannot be read or scored.
    """
    params = change_params(config.load(options.profile), "tools", options.changes)
    settings = params.tools
    # Names of llm.models stand for themselves: an orchestrator that reads English needs no word of the lab.
    experts = options.experts or tuple(dict.fromkeys(settings.models.values()))
    orchestrators = options.orchestrators or (settings.agent,)
    if len(experts) < 2:
        raise ParamsError(f"--experts {', '.join(experts)}: a choice needs two models or more")
    check_names(params.llm, [*experts, *orchestrators])
    # Wrong input is reported before any model is called.
    methods = [*orchestrators, *(pilot_study.SINGLE_MODEL_PREFIX + name for name in experts)]
    if options.reference is not None and options.reference not in methods:
        raise ParamsError(
            f"--reference {options.reference}: it is none of the methods ({', '.join(methods)})"
        )
    model_descriptions.read_template(options.description_prompt)
    dataset = load_questions(options)
    judges = list_judges(dataset.scorer)
    check_names(params.llm, judges)
    if not judges:
        make_scorer(dataset.scorer)  # says what is wrong with it
    check_vocabulary(params.llm, [*experts, *orchestrators], dataset.items)
    # Models are described by questions that are not in the test.
    questions = split_questions(dataset, 0.5, options.questions, options.seed)
    functions = choose_functions(questions.test, experts)
    writers, sentences = writer_tools.choose_writers(params.llm, settings, functions)
    office_tasks = _choose_office_tasks(options)
    inputs = EvaluationInputs(
        options=options,
        params=params,
        llm=params.llm,
        experts=tuple(experts),
        orchestrators=tuple(orchestrators),
        judges=tuple(judges),
        writers=writers,
        questions=questions,
        office_tasks=office_tasks,
        functions=functions,
        notes=(*dataset.notes, *sentences),
    )
    return replace(inputs, llm=select_models(params.llm, inputs.asked_names))


def _choose_office_tasks(options: argparse.Namespace) -> tuple[Task, ...]:
    """Choose office tasks whose user can withhold parts of the request until asked.

    Args:
        options: `office` is the number of tasks, `seed` that of their corpus.

    Returns:
        The tasks.
    """
    if not options.office:
        return ()
    # Twice as many as asked for, since some instructions name no record.
    corpus = episode_specs.write_office_corpus("test", 2 * options.office, options.seed)
    tasks = [task for task in corpus.tasks if user_dialogue.make_dialogue(task) is not None]
    return tuple(tasks[: options.office])


def plan_costs(inputs: EvaluationInputs) -> str:
    """Plan the calls of an evaluation.

    Args:
        inputs: Inputs of the evaluation.

    Returns:
        A sentence with the largest number of calls, and what they may cost.
    """
    llm, settings = inputs.llm, inputs.settings
    items = [*inputs.questions.test, *inputs.questions.baseline_train]
    tokens = [estimate_tokens(count_bytes(item.prompt)) for item in items]
    question_tokens = float(np.mean(tokens))
    num_test = len(inputs.questions.test)
    num_profile = len(inputs.questions.baseline_train)
    # The pilot study, and the benchmark under every price list.
    num_episodes = num_test * (1 + inputs.num_price_lists)
    num_office = len(inputs.office_tasks)

    planned = []
    for name in inputs.orchestrators:
        planned.append(plan_prompted_episodes(llm, name, num_episodes, settings.rounds))
        planned.append(plan_prompted_episodes(llm, name, num_office, settings.dialogue.turns))
    # Any call of an orchestrator may go to the same model, or to a writer.
    num_calls = len(inputs.orchestrators) * num_episodes * (settings.rounds - 1)
    num_calls += len(inputs.orchestrators) * num_office * (settings.dialogue.turns - 1)
    callable_models = dict.fromkeys([*inputs.experts, *inputs.writers.values()])
    alternatives = [_plan(llm, name, num_calls, question_tokens) for name in callable_models]
    planned.append(take_most_expensive(llm, alternatives))
    num_single_calls = TRIAL_QUESTIONS + num_profile + num_test
    planned += [_plan(llm, name, num_single_calls, question_tokens) for name in inputs.experts]

    # A judge reads every answer: of orchestrators, and of models by themselves.
    num_answers = len(inputs.orchestrators) * num_episodes
    num_answers += len(inputs.experts) * (num_profile + num_test * inputs.num_price_lists)
    for name in inputs.judges:
        planned.append(_plan(llm, name, num_answers, question_tokens + JUDGE_TOKENS))
    if settings.description_writer is not None:
        writer = settings.description_writer
        planned.append(_plan(llm, writer, len(inputs.experts), WRITER_PROMPT_TOKENS))
    if inputs.user_model is not None:
        num_questions = len(inputs.orchestrators) * num_office * (settings.dialogue.turns - 1)
        planned.append(_plan(llm, inputs.user_model, num_questions, WRITER_PROMPT_TOKENS))
    return announce_costs(llm, planned)


def _plan(llm: LLMSettings, name: str, num_calls: int, prompt_tokens: float) -> PlannedCalls:
    """Plan calls of one model with prompts of a mean length, and with replies as long as the model may write."""
    tokens_out = num_calls * llm.models[name].max_tokens
    return PlannedCalls(name, num_calls, round(num_calls * prompt_tokens), tokens_out)


@contextmanager
def open_tools(inputs: EvaluationInputs) -> Iterator[tuple[ToolEnvironment, Scorer]]:
    """Open the models, the tool environment and the scorer; replies of endpoints are recorded under --out.

    Args:
        inputs: Inputs of the evaluation.

    Yields:
        The environment, which executes tool calls, and the scorer of answers.
    """
    folder = inputs.options.out
    models = open_models(inputs.llm, inputs.asked_names, RECORDING, folder, folder, 1, open_local())
    experts = {name: name for name in inputs.experts}
    try:
        with (
            ExpertPool(
                models, experts, inputs.settings.model_temperature, tells_rules=False
            ) as pool,
            ToolEnvironment(
                pool,
                {},
                reads_marked_answers=True,
                writer_models=inputs.writers,
                user=user_dialogue.make_user(inputs.settings.dialogue.user),
            ) as environment,
        ):
            yield environment, make_scorer(inputs.questions.scorer, pool.models)
    finally:
        # Also where it was stopped: what was paid for is not asked again.
        export_recording(inputs.llm, RECORDING, folder)


def evaluate(options: argparse.Namespace) -> None:
    """Run the command: read the inputs, print the costs, call the models, and write the tables.

    Args:
        options: Options of the command line.
    """
    inputs = read_inputs(options)
    split = (
        f"{len(inputs.questions.baseline_train)} questions to describe models by, "
        f"{len(inputs.questions.test)} others to test on."
    )
    for sentence in (*inputs.notes, split, plan_costs(inputs)):
        print(sentence, flush=True)
    if options.plan_only:
        return
    with open_tools(inputs) as (environment, scorer):
        evaluation = Evaluation(inputs, environment, scorer)
        tables = evaluation.run()
    write_tables(inputs, tables)


class Evaluation:
    """Runs prompted orchestrators, and every model by itself, on the questions and tasks of an evaluation."""

    def __init__(
        self, inputs: EvaluationInputs, environment: ToolEnvironment, scorer: Scorer
    ) -> None:
        """Measure on a few questions what calls of each model cost, and what each model can do, for the menus.

        Args:
            inputs: Inputs of the evaluation.
            environment: Executes tool calls; its models are open.
            scorer: Scores answers.
        """
        self.inputs = inputs
        self.environment = environment
        self.scorer = scorer
        profile_items = inputs.questions.baseline_train
        call_costs = measure_calls(environment.pool, profile_items)
        print(describe_call_costs(call_costs), flush=True)
        # The clock is measured by calls, which need the environment's pool: so it is set here.
        environment.clock.update({name: c.seconds_per_token for name, c in call_costs.items()})
        offers = self._make_offers(call_costs)
        # Models are described by questions that are not in the test.
        profile_assignments = self._assign_whole_menu(profile_items, offers)
        self.profile_rows = self._run_single_models(profile_assignments, "profile")
        self.descriptions = self._describe_models()
        self.offers = model_descriptions.describe_offers(offers, self.descriptions)

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of all tools, in the order of outcome and preference vectors."""
        return tuple(self.offers)

    def _make_offers(self, call_costs: Mapping[str, CallCost]) -> dict[str, Offer]:
        """Make the menu entries of all tools at list prices.

        Args:
            call_costs: Measured cost and time of a call, by model.

        Returns:
            Entries by tool name: functions at declared prices, models as measured, and writer tools (a model writes a
            search query, or a program, which is then run) at their model's price.
        """
        inputs = self.inputs
        offers = make_offers(inputs.settings, call_costs, inputs.functions)
        for name, model in inputs.writers.items():
            offers[name] = writer_tools.make_writer_offer(
                name, inputs.llm, model, DECLARED_TOKENS_PER_SECOND
            )
        return offers

    def _assign_whole_menu(
        self, items: Sequence[Item], offers: Mapping[str, Offer]
    ) -> list[Assignment]:
        """Give every question all tools on its menu, and a user who wants correct answers at low cost.

        Args:
            items: Questions.
            offers: All tools with their prices, by name.

        Returns:
            An assignment for each question; the order of its menu is random.
        """
        rng = seeds.rng("toolorchestra", "user pilot", seed=self.inputs.options.seed)
        assignments = []
        for item in items:
            # In random order, so that the first place on the menu favours no tool.
            shuffled = tuple(offers[name] for name in rng.permutation(list(offers)))
            assignments.append(Assignment(item, ToolMenu(shuffled), PILOT_USER))
        return assignments

    def _run_single_models(self, assignments: Sequence[Assignment], split: str) -> pd.DataFrame:
        """Let every model answer by itself, without an orchestrator, the questions whose menus have it.

        Args:
            assignments: Questions with menus.
            split: Name of the questions, which seeds the models' replies.

        Returns:
            A row per model and question: tool (the model), item (index of the assignment), group (kind of question),
            correct (nan where a reply was lost), cost_usd, seconds, calls.
        """
        rows = single_tools.try_single_tools(
            self.environment, assignments, self.inputs.experts, split, self.scorer
        )
        for row in rows:
            row["group"] = assignments[row["item"]].kind
        return pd.DataFrame(rows)

    def _describe_models(self) -> dict[str, Description]:
        """Write what menus say of each model, from how it did on the profile questions."""
        profiles = model_descriptions.profile_outcomes(self.profile_rows)
        template = model_descriptions.read_template(self.inputs.options.description_prompt)
        writer = self.inputs.settings.description_writer
        generate = self.environment.pool.generate
        return model_descriptions.write_descriptions(profiles, writer, generate, template)

    def _roll_out(
        self, model: str, assignments: Sequence[Assignment], max_turns: int
    ) -> list[ToolEpisode]:
        """Roll out one episode of a prompted orchestrator for each assignment.

        Args:
            model: Name of the orchestrator in llm.models.
            assignments: Questions, or office tasks, which are verified by their databases and not by the scorer.
            max_turns: Largest number of turns of an episode.

        Returns:
            Scored episodes, in the order of the assignments.
        """
        is_office = any(isinstance(assignment.work, Task) for assignment in assignments)
        return prompted_baseline.roll_out_assignments(
            self.environment,
            model,
            assignments,
            max_turns,
            TEST_SEED + self.inputs.options.seed,
            self.inputs.settings.test_temperature,
            None if is_office else self.scorer,
        )

    def _tabulate_orchestrators(
        self, assignments: Sequence[Assignment], condition: str, max_turns: int
    ) -> pd.DataFrame:
        """Run all orchestrators on the same assignments.

        Args:
            assignments: Questions or office tasks, with menus and users.
            condition: Name of the price list, or of the kind of user, for the column `condition`.
            max_turns: Largest number of turns of an episode.

        Returns:
            A row per orchestrator (column method) and assignment, with the columns of
            `episode_rewards.make_episode_rows`, condition, and own_cost_usd (cost of the orchestrator's own tokens).
            The outcome vectors in column m include cost and latency of the orchestrator's own turns; the columns
            cost_usd and seconds are those of its calls alone.
        """
        tables = []
        for model in self.inputs.orchestrators:
            episodes = self._roll_out(model, assignments, max_turns)
            rows = episode_rewards.make_episode_rows(episodes, self.tools)

            # Outcome vectors hold cost and latency as negative numbers, so what is added is subtracted.
            own_cost_usd = np.array([episode.own_cost_usd for episode in episodes])
            own_seconds = np.array([episode.own_seconds for episode in episodes])
            vectors = np.stack(rows["m"])  # (episodes, tools + 3)
            vectors[:, rewards.COST_INDEX] -= own_cost_usd
            vectors[:, rewards.LATENCY_INDEX] -= own_seconds
            rows = rows.assign(
                method=model, condition=condition, own_cost_usd=own_cost_usd, m=vectors.tolist()
            )
            tables.append(rows)
        return pd.concat(tables, ignore_index=True)

    def run(self) -> dict[str, pd.DataFrame]:
        """Run the pilot study, the preference benchmark, and the office tasks if there are any.

        Returns:
            By name: "pilot", "benchmark" and "office" have a row per method and question or task, "descriptions" a row
            per model with what menus say of it.
        """
        inputs = self.inputs
        rounds = inputs.settings.rounds
        print(f"pilot study: {len(inputs.questions.test)} questions", flush=True)
        pilot_assignments = self._assign_whole_menu(inputs.questions.test, self.offers)
        pilot = self._tabulate_orchestrators(pilot_assignments, USUAL_PRICES, rounds)
        tables = {"pilot": pilot, "benchmark": self._run_benchmark()}
        if inputs.office_tasks:
            print(f"office tasks: {len(inputs.office_tasks)}", flush=True)
            assignments = self._assign_office_tasks()
            tables["office"] = self._tabulate_orchestrators(
                assignments, self.environment.user.label, inputs.settings.dialogue.turns
            )
        tables["descriptions"] = model_descriptions.tabulate_descriptions(self.descriptions)
        return tables

    def _run_benchmark(self) -> pd.DataFrame:
        """Run the preference benchmark: random menus and users, under every price list.

        Returns:
            A row per method (orchestrators, and every model by itself), question and price list (column condition).
        """
        inputs = self.inputs
        settings = inputs.settings
        rng = seeds.rng("toolorchestra", "user benchmark", seed=inputs.options.seed)
        assignments = episode_specs.draw_assignments(
            inputs.questions.test, self.offers, self.tools, settings.spread, rng
        )
        price_lists = {USUAL_PRICES: self.offers}
        if inputs.options.price_configurations:
            random_lists = price_configurations.draw_offers(
                self.offers, settings.price_configurations
            )
            for number, offers in enumerate(random_lists):
                price_lists[f"prices {number}"] = offers

        tables = []
        for condition, offers in price_lists.items():
            print(f"preference benchmark: {condition}", flush=True)
            # The same questions, menus and users under every list: differences are paired.
            priced = price_configurations.reprice_assignments(assignments, self.offers, offers)
            tables.append(self._tabulate_orchestrators(priced, condition, settings.rounds))
            tables.append(self._tabulate_single_models(priced, condition))
        return pd.concat(tables, ignore_index=True)

    def _tabulate_single_models(
        self, assignments: Sequence[Assignment], condition: str
    ) -> pd.DataFrame:
        """Let every model answer by itself, as a baseline: the method "always M" for a model M.

        Args:
            assignments: Questions with menus and users; a model answers those whose menus have it.
            condition: Name of the price list, for the column `condition`.

        Returns:
            A row per model and question, with the columns of `_run_single_models` and, as for orchestrators, method,
            condition, m (outcome vector), p (preference vector of the user), chosen (the model) and own_cost_usd,
            which is 0 since there is no orchestrator. An empty table where no menu has a model.
        """
        rows = self._run_single_models(assignments, "test")
        if rows.empty:
            return rows
        # Calls of each tool, correctness, -US dollars, -seconds: (rows, tools + 3).
        outcome_vectors = make_tool_vectors(rows, self.tools)
        preference_vectors = []
        for assignment_index in rows["item"]:
            user = assignments[assignment_index].preference
            preference_vectors.append(user.vector(self.tools).tolist())
        return rows.assign(
            method=pilot_study.SINGLE_MODEL_PREFIX + rows["tool"],
            condition=condition,
            m=outcome_vectors.tolist(),
            p=preference_vectors,
            chosen=rows["tool"],
            own_cost_usd=0.0,
        )

    def _assign_office_tasks(self) -> list[Assignment]:
        """Make assignments of the office tasks: their own functions as the menu, and a user who can be asked.

        Returns:
            An assignment for each task.
        """
        prices = tool_menu.read_price_list(config.ROOT / self.inputs.settings.prices)
        offer = tool_menu.make_office_offer(prices)
        assignments = []
        for task in self.inputs.office_tasks:
            dialogue = user_dialogue.make_dialogue(task)
            assignments.append(episode_specs.assign_office_task(task, offer, dialogue))
        return assignments


def write_tables(inputs: EvaluationInputs, tables: Mapping[str, pd.DataFrame]) -> None:
    """Print summaries of the tables, and write them and all rows under --out.

    Args:
        inputs: Inputs of the evaluation.
        tables: What `Evaluation.run` returned.
    """
    folder = inputs.options.out
    for name in ("pilot", "benchmark", "office"):
        if name in tables:
            artifacts.write_parquet(folder / f"{name}.parquet", tables[name])
    pilot = tables["pilot"]
    models = list(inputs.experts)
    accuracy = tables["benchmark"].groupby("method")["correct"].mean()
    accuracy_by_model = {}
    for name in models:
        method = pilot_study.SINGLE_MODEL_PREFIX + name
        accuracy_by_model[name] = accuracy.get(method, 0.0)
    # By the server's name of a model, which says more than the user's.
    families = {name: _find_family(inputs.llm, name) for name in models}
    orchestrator_families = {name: _find_family(inputs.llm, name) for name in inputs.orchestrators}
    shares = pilot_study.compute_call_shares(pilot, models)
    reference = inputs.options.reference or inputs.orchestrators[0]
    scored = pilot_study.score_benchmark(tables["benchmark"], reference)
    summaries = {
        "Models on the menu": tables["descriptions"],
        "Pilot study: share of calls to models": pilot_study.tabulate_pilot(pilot, models),
        "Pilot study: biases": pilot_study.tabulate_biases(
            shares, families, orchestrator_families, accuracy_by_model
        ),
        f"Preference benchmark, against {reference}": pilot_study.tabulate_benchmark(scored),
    }
    if inputs.options.price_configurations:
        summaries["Preference benchmark by price list"] = tabulate_price_lists(scored)
    if "office" in tables:
        label = tables["office"]["condition"].iloc[0]
        summaries[f"Office tasks, {label}"] = tabulate_office(tables["office"])
    lines = [*inputs.notes]
    with pd.option_context("display.max_colwidth", 100, "display.width", 200):
        for title, table in summaries.items():
            lines += ["", title, table.to_string()]
    text = "\n".join(lines)
    artifacts.write_text(folder / "summary.txt", text)
    print(text)
    print(f"\nrows and summary: {folder}", file=sys.stderr)


def _find_family(llm: LLMSettings, name: str) -> str:
    """Find the family of a model, such as "gpt", by the name under which its server knows it."""
    return pilot_study.find_family(llm.models[name].model or name)


def tabulate_price_lists(scored: pd.DataFrame) -> pd.DataFrame:
    """Tabulate the mean bounded score (in [0, 1]) by price list.

    Args:
        scored: What `pilot_study.score_benchmark` returned.

    Returns:
        A row per price list, with a column per method.
    """
    return scored.pivot_table(
        index="condition", columns="method", values="bounded", sort=False
    ).round(3)


def tabulate_office(rows: pd.DataFrame) -> pd.DataFrame:
    """Tabulate how orchestrators did on office tasks.

    Args:
        rows: A row per orchestrator (method) and task.

    Returns:
        A row per orchestrator with means over tasks: correct (fraction solved), the criteria of a solution execution,
        fidelity and completeness, the number of questions to the user, and the number of calls.
    """
    num_questions = []
    for names in rows["chosen"]:
        num_questions.append(names.split().count(tool_menu.ASK_USER))
    rows = rows.assign(**{"questions to the user": num_questions})
    columns = ["correct", "execution", "fidelity", "completeness", "questions to the user", "calls"]
    return rows.groupby("method", sort=False)[columns].mean().round(2)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; a mistake in the input ends it with one line of explanation and the exit code 2."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    # Tasks that a user and a database belong to are another evaluation, with options of its own.
    if any(argument.partition("=")[0] == "--tasks" for argument in arguments):
        return service_command.main(arguments)
    return run_command(read_options(arguments), evaluate)


if __name__ == "__main__":
    raise SystemExit(main())
