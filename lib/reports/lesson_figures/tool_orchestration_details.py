"""Tables of the appendix of lesson 06: tools and users of `train toolorchestra` and `evaluate toolorchestra`.

A menu in plain English, the sandbox, a tool that fails, price lists, an office task with its criteria and its user, and
how the preference score reads under different units. Nothing is trained or asked of a language model.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from lib import stats, tasks
from lib.config import Params
from lib.config.budgeted_routing import PriceConfigurationSettings
from lib.experiment import results_table, seeds
from lib.llm.open_models import ChatModels
from lib.rl import call_protocol
from lib.rl.expert_pool import ExpertPool
from lib.tasks.synthesis import Call, Task, verify_trajectory
from lib.tool_orchestration import (
    episode_specs,
    price_configurations,
    rewards,
    synthetic_evaluation,
    synthetic_training,
    tool_menu,
)
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.lab_estimates import MARGIN
from lib.tool_orchestration.rewards import MICRO_USD_PER_USD, MS_PER_SECOND
from lib.tool_orchestration.single_tools import make_strategy
from lib.tool_orchestration.tool_environment import ToolEnvironment, ToolEpisode
from lib.tool_orchestration.tool_menu import Offer, ToolMenu, UserPreference
from lib.tool_orchestration.user_dialogue import ScriptedUser, UserDialogue, UserQuestion
from lib.tools.python import python
from lib.tools.sandbox import Sandbox

FAMILIES = {"chain": "chains", "big": "big numbers", "facts": "facts"}
PROGRAMS = (
    "print(sum(range(10)))",
    "open('/etc/passwd').read()",
    "import os; os.system('ls')",
    "while True: pass",
    "3 +",
)
# How the preference score may be read: units of cost and latency per dollar and per second.
SCORE_UNITS = {
    "micro-dollars and ms": (MICRO_USD_PER_USD, MS_PER_SECOND), "dollars and seconds": (1.0, 1.0),
    "as printed, amounts negative": (-1.0, -1.0),
}  # fmt: skip
BOUNDED = "with a bound"
START_USD, START_SECONDS = 2e-3, 1.5  # of the start, in the example of the preference score


# Tools and menus -----------------------------------------------------------------------------------


def make_tool_table(offers: Mapping[str, Offer], params: Params) -> pd.DataFrame:
    """Tabulate tools at list prices: what each is, its typical price and latency, and what it is good at.

    Args:
        offers: By name, at list prices.
        params: Say which model stands behind a tool.

    Returns:
        A row for each tool.
    """
    rows = []
    for offer in offers.values():
        skills = [f"{FAMILIES[kind]} up to {reach}" for kind, reach in offer.skills.items()]
        if offer.name == tool_menu.OFFICE:
            skills = ["an office's own records"]
        rows.append(
            {
                "tool": offer.name,
                "kind": find_kind(offer, params),
                "$ per million calls": offer.typical_cost_usd * MICRO_USD_PER_USD,
                "ms": offer.typical_seconds * MS_PER_SECOND,
                "good at": ", ".join(skills) or "nothing by its card",
            }
        )
    return pd.DataFrame(rows)


def find_kind(offer: Offer, params: Params) -> str:
    """Whether a tool is a function, a scripted model, or a model of which backend."""
    if not offer.model:
        return "function"
    backend = params.llm.models[params.tools.models[offer.name]].backend
    return "scripted model" if backend == "scripted" else f"model, {backend}"


def draw_example(offers: Mapping[str, Offer], spread: float) -> Assignment:
    """Draw a question with a long menu and a user who likes some tools by name.

    Args:
        offers: By name, at list prices.
        spread: Factor within which prices and latencies vary.

    Returns:
        The first of the drawn assignments that is so.

    Raises:
        ValueError: None is.
    """
    rng = seeds.rng("toolorchestra", "appendix example")
    questions = tasks.draw_items("facts", "test", 40, (2,), seed=1)
    names = [name for name in offers if name != tool_menu.OFFICE]
    assignments = episode_specs.draw_assignments(questions, offers, names, spread, rng)
    for assignment in assignments:
        preference = assignment.preference
        likes_by_name = bool(preference.tools) and not preference.confidential
        weighs_all = min(preference.accuracy, preference.cost, preference.latency) > 0
        has_long_menu = len(assignment.menu.offers) == episode_specs.MENU_SIZES[1]
        if likes_by_name and weighs_all and has_long_menu:
            return assignment
    raise ValueError("no drawn user likes a tool by name; draw more questions")


def make_preference_table(assignment: Assignment) -> pd.DataFrame:
    """Tabulate a user's vector P over the tools of a menu, accuracy, cost and latency."""
    names = [offer.name for offer in assignment.menu.offers]
    vector = assignment.preference.vector(names)
    columns = [*names, *tool_menu.OBJECTIVES]
    return pd.DataFrame([vector], columns=columns, index=["P"]).rename_axis("vector")


def make_price_list_table(
    offers: Mapping[str, Offer], settings: PriceConfigurationSettings
) -> pd.DataFrame:
    """Tabulate the typical price of every tool, in dollars per million calls, under each random price list.

    Args:
        offers: By name, at list prices.
        settings: Number, spread and seed of the lists.

    Returns:
        A row for each tool, a column for the usual prices and for each list.
    """
    price_lists = {"usual": offers}
    for number, drawn_offers in enumerate(price_configurations.draw_offers(offers, settings)):
        price_lists[f"list {number}"] = drawn_offers

    columns = {}
    for title, listed in price_lists.items():
        prices = {name: offer.typical_cost_usd for name, offer in listed.items()}
        columns[title] = MICRO_USD_PER_USD * pd.Series(prices)
    return pd.DataFrame(columns).rename_axis("tool")


# Tools at work -------------------------------------------------------------------------------------


def make_sandbox_table() -> pd.DataFrame:
    """Runs harmless and harmful example programs in the sandbox.

    Returns:
        A row per program: its code, the kind of error, and the reply that the model gets.
    """
    rows = []
    with Sandbox() as sandbox:
        tool = python(sandbox)
        for code in PROGRAMS:
            kind = sandbox.run(code).kind or "none"
            reply = tool({"code": code})
            rows.append({"code": code, "error": kind, "reply to the model": reply})
    return pd.DataFrame(rows)


def make_outage_table(offers: Mapping[str, Offer]) -> pd.DataFrame:
    """Make calls of an episode in which the tool that is called first fails from its second call on.

    Args:
        offers: By name, at list prices; `lookup` and `search` are used.

    Returns:
        A row for each call: the tool, its argument, what comes back, what it costs and how long it takes.
    """
    (item,) = tasks.draw_items("facts", "test", 1, (2,), seed=1)
    menu = ToolMenu((offers["lookup"], offers["search"]))
    assignment = Assignment(item, menu, UserPreference(1.0, 0.0, 0.0), outage=2)
    episode = ToolEpisode(assignment, [], [], 0)

    rows = []
    with (
        ExpertPool(ChatModels({}), {}, temperature=1.0) as pool,
        ToolEnvironment(pool, {}) as environment,
    ):

        def call_tool(name: str, argument: str) -> str:
            """Calls a tool in the example episode, and records its reply, cost and time in `rows`.

            Args:
                name: Name of the tool.
                argument: Its only argument.
            """
            before = episode.seconds
            call = call_protocol.Call(name, argument)
            (reply,) = environment.answer_calls([(episode, call, 0)])
            text = call_protocol.clean_reply(reply.text)
            rows.append(
                {
                    "tool": name,
                    "argument": argument,
                    "reply": text,
                    "$ per million calls": reply.cost_usd * MICRO_USD_PER_USD,
                    "ms": (episode.seconds - before) * MS_PER_SECOND,
                }
            )
            return text

        # Two relations lead to the answer: the second lookup fails, and the search finds it.
        lookup = make_strategy("lookup", item)
        second_argument = lookup.send(call_tool("lookup", next(lookup)))
        call_tool("lookup", second_argument)
        call_tool("search", second_argument.replace(" ", " of "))
    return pd.DataFrame(rows)


# Office tasks --------------------------------------------------------------------------------------


def choose_office_task() -> Task:
    """Choose a task of a test office that reads, writes and has something to say, with as few calls as any."""
    office_tasks = episode_specs.draw_office_tasks("test", 40, 1)
    return min(
        office_tasks, key=lambda task: (not _separates_criteria(task), len(task.calls), task.id)
    )


def _separates_criteria(task: Task) -> bool:
    """Whether a task shows that the criteria differ: a trajectory can fail execution alone, or the other two alone.

    Args:
        task: With its golden calls.
    """
    reads, writes = _split_calls(task)
    if not task.info or not reads or not writes:
        return False
    # (execution, fidelity, completeness): nothing written, and nothing read.
    only_reads = _judge_calls(task, reads, task.answer)[:3]
    only_writes = _judge_calls(task, writes, task.answer)[:3]
    return only_reads == (False, True, True) and only_writes == (True, False, False)


def _split_calls(task: Task) -> tuple[list[Call], list[Call]]:
    """The golden calls that read, and those that write."""
    writes = [call for call in task.calls if task.domain.find_function(call[0]).writes]
    reads = [call for call in task.calls if call not in writes]
    return reads, writes


def _judge_calls(task: Task, calls: Sequence[Call], reply: str) -> tuple[bool, bool, bool, bool]:
    """Make calls in a fresh office: execution, fidelity, completeness, and whether the task is solved."""
    office = task.open()
    for name, *arguments in calls:
        office.call(name, arguments)
    verdict = verify_trajectory(task, office, reply)
    return verdict.execution, verdict.fidelity, verdict.completeness, verdict.solved


def make_criteria_table(task: Task) -> pd.DataFrame:
    """Tabulates hand-written trajectories of a task, and which criteria each meets.

    Args:
        task: With its golden calls.
    """
    reads, writes = _split_calls(task)
    trajectories = {
        "everything as it should be": (task.calls, task.answer),
        "forgot to write": (reads, task.answer),
        "forgot to say": (task.calls, "done"),
        "guessed what it should have read": (writes, task.answer),
        "did nothing, said everything": ([], task.answer),
    }
    rows = []
    for name, (calls, reply) in trajectories.items():
        rows.append((name, len(calls), reply, *_judge_calls(task, calls, reply)))
    criteria = ["execution", "fidelity", "completeness", "solved"]
    return pd.DataFrame(rows, columns=["trajectory", "calls", "last reply", *criteria])


def make_dialogue_table(dialogue: UserDialogue) -> pd.DataFrame:
    """Ask the scripted user first in general, and then about every placeholder.

    Args:
        dialogue: What the user says first, and keeps back.

    Returns:
        A row for each question of an agent, with the user's answer.
    """
    user = ScriptedUser()
    questions = ["What can I do for you ?"]
    questions += [f"What is {placeholder} ?" for placeholder in dialogue.withheld]
    rows = []
    for text in questions:
        rows.append({"agent": text, "user": user.answer(UserQuestion(dialogue, text))})
    return pd.DataFrame(rows)


# The preference score ------------------------------------------------------------------------------


def make_score_table() -> pd.DataFrame:
    """Tabulate the preference score of four correct answers, by the units of cost and latency.

    The start spends START_USD and START_SECONDS; the user weighs accuracy, cost and latency with 1.

    Returns:
        A row for each answer, a column for each reading of the formula and for the score with a bound.
    """
    factors = {
        "as the start": (1.0, 1.0),
        "a quarter of the cost": (0.25, 1.0),
        "twice the cost": (2.0, 1.0),
        "a hundredth of the cost, ten times as slow": (0.01, 10.0),
    }
    cost_factors, latency_factors = np.array(list(factors.values())).T
    num_answers = len(factors)
    no_calls = np.zeros((num_answers, 0))
    correct = np.ones(num_answers)
    vectors = rewards.make_outcome_vectors(
        no_calls, correct, START_USD * cost_factors, START_SECONDS * latency_factors
    )
    start_vectors = np.repeat(vectors[:1], num_answers, axis=0)  # (answers, 3)
    preferences = np.ones((num_answers, rewards.NUM_OBJECTIVES))

    columns = {}
    for title, units in SCORE_UNITS.items():
        columns[title] = rewards.compute_preference_scores(
            vectors, start_vectors, preferences, units
        )
    columns[BOUNDED] = rewards.compute_bounded_scores(vectors, start_vectors, preferences)
    return pd.DataFrame(columns, index=list(factors)).rename_axis("a correct answer that spends")


# Synthetic environment -----------------------------------------------------------------------------


def tabulate_learned_slopes(synthetic: pd.DataFrame) -> pd.DataFrame:
    """Tabulate which share of the optimum's slope of spending over the weight on cost was learned.

    Args:
        synthetic: Rows of `synthetic_benchmark.run`.

    Returns:
        (spreads of prices, numbers of updates), without the policy before training.
    """
    price_map = results_table.select(synthetic, split="map")
    weights_on_cost = price_map[price_map["group"] == "cost"]
    slopes = stats.statistic(
        weights_on_cost,
        ["weight", "cost_usd"],
        synthetic_evaluation.compute_slope,
        ["prices", "method", "step"],
    )
    by_update = slopes["value"].unstack("step")
    learned = by_update.xs(synthetic_training.TOOLORCHESTRA.name, level="method").drop(columns=0)
    optimum = by_update.xs("optimum", level="method")[0]
    return learned.div(optimum, axis=0)


def summarize_appendix(reward_differences: pd.DataFrame) -> str:
    """The conclusion: which changed part of the method changes the reward, from differences with their intervals.

    Args:
        reward_differences: ToolOrchestra minus each variant, a row for each.

    Returns:
        A sentence.
    """
    sentence = stats.summary_sentence(reward_differences, MARGIN)
    return f"One part changed, reward of ToolOrchestra minus that: {sentence}"
