"""What every tool of `tools.models` and every function answers by itself, to measure how much choosing could gain.

Lesson 03 asks all tools the same questions, in independent samples, and compares the best choice for each question with
the best single tool. Nothing learns from these outcomes. Left out: the tools of the lab world, which lesson 06 measures
on menus of its own (`lab_experiment`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from lib.config import ROOT, LLMSettings, Params
from lib.experiment import sweep
from lib.experiment.run_context import RunContext
from lib.language_models.local_models import open_local
from lib.language_models.training import model_cards
from lib.language_models.training.model_folders import ensure_models
from lib.llm.cost_estimate import PlannedCalls, announce_costs, asks_endpoint
from lib.llm.open_models import open_models
from lib.rl.expert_pool import NUM_SAMPLES, ExpertPool
from lib.tool_orchestration import episode_specs, tool_menu
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.single_tools import try_single_tools
from lib.tool_orchestration.tool_environment import (
    HOSTED_TOKENS_PER_SECOND,
    NAME,
    ToolEnvironment,
)
from lib.tool_orchestration.tool_menu import Offer, ToolMenu, UserPreference

RUNS = ROOT / "data/runs/toolorchestra"  # of the spending limit and of recordings
CASSETTES = ROOT / "data/cassettes/06_tool_orchestration"
QUESTION_TOKENS = 64  # of a question to a tool, more than any has
QUESTION_SEED = 29


def measure_tool_outcomes(
    params: Params, num_questions: int, models: str | Path | None = None, runs: str | Path = RUNS
) -> pd.DataFrame:
    """Ask every tool by itself all questions of dev and test, in NUM_SAMPLES independent samples.

    Args:
        params: The models among the tools are `tools.models`.
        num_questions: Of dev, and of test, about.
        models: Folder of the lab models; None for those of lesson 03, which are made where they are missing.
        runs: Folder of recordings and of the spending limit.

    Returns:
        Rows with split, method (the tool), item, sample, correct: what `stats.headroom` takes. A tool that cannot be
        asked a question is wrong about it.

    Raises:
        ModelError: The folder has no lab models.
        ParamsError: The price list cannot be read.
        SandboxUnavailable: No sandbox for programs works here.
    """
    announcement = announce_outcomes(params, num_questions)
    sweep.print_to_terminal(announcement)
    folder = ensure_models(params.lab, models)
    context = RunContext.of(params, folder, runs, CASSETTES, params.tools.jobs, save_every=1)
    tools = tool_menu.list_tools(params.tools)
    offers = make_list_offers(params, folder)
    whole_menu = ToolMenu(tuple(offers[name] for name in tools))
    user = UserPreference(1.0, 0.0, 0.0)

    tables = []
    with _open_tools(params, context, folder) as environment:
        for split in ("dev", "test"):
            questions = episode_specs.draw_questions_evenly(num_questions, split, QUESTION_SEED)
            assignments = [Assignment(item, whole_menu, user) for item in questions]
            for sample in range(NUM_SAMPLES):
                rows = try_single_tools(environment, assignments, tools, f"{split} {sample}")
                outcomes = pd.DataFrame(rows).pivot(index="item", columns="tool", values="correct")
                # (questions, tools), 0 where a tool cannot be asked
                outcomes = outcomes.reindex(columns=list(tools)).fillna(0.0)
                table = outcomes.rename_axis(columns="method").stack().rename("correct")
                tables.append(table.reset_index().assign(split=split, **{"sample": sample}))
    return pd.concat(tables, ignore_index=True)


def announce_outcomes(params: Params, num_questions: int) -> str:
    """Describe what it may cost to ask every tool all questions.

    Args:
        params: Name the models among the tools.
        num_questions: Number of questions.

    Returns:
        A line for the terminal; "" where no endpoint is among the tools.
    """
    llm = params.llm
    names = list(dict.fromkeys(params.tools.models.values()))
    if not asks_endpoint(llm, names):
        return ""
    num_calls = 2 * NUM_SAMPLES * num_questions
    planned_calls = []
    for name in names:
        tokens_out = llm.models[name].max_tokens * num_calls
        planned_calls.append(PlannedCalls(name, num_calls, QUESTION_TOKENS * num_calls, tokens_out))
    return f"trying every tool: {announce_costs(llm, planned_calls)}"


def make_list_offers(params: Params, models: str | Path) -> dict[str, Offer]:
    """Make the offer of every tool of the parameters at list prices.

    Args:
        params: Name the price list and the models.
        models: Folder of the lab models, whose cards are read.

    Returns:
        By name: functions, those of an office, then models.

    Raises:
        ParamsError: The price list cannot be read.
    """
    prices = tool_menu.read_price_list(ROOT / params.tools.prices)
    return tool_menu.make_offers(prices, read_model_cards(params, models))


def read_model_cards(params: Params, models: str | Path) -> dict[str, dict[str, Any]]:
    """Read the cards of `tools.models`, by the name of the tool."""
    cards = {}
    for tool, name in params.tools.models.items():
        cards[tool] = read_model_card(params.llm, name, models)
    return cards


def read_model_card(llm: LLMSettings, name: str, models: str | Path) -> dict[str, Any]:
    """Read what is known of a model.

    Args:
        llm: The models.
        name: Name of the model in llm.models.
        models: Folder of the lab models.

    Returns:
        A lab model's card; of an endpoint its price, and the speed of a hosted model: what it is good at is unknown.
    """
    about = llm.models[name]
    if about.backend == "lab":
        return model_cards.read_card(about.model or name, models)
    cost_usd = 1000 * max(about.price_in or 0.0, about.price_out or 0.0)
    return {
        "dollars_per_1k_tokens": cost_usd,
        "tokens_per_second": HOSTED_TOKENS_PER_SECOND,
        "accuracy": [],
    }


@contextmanager
def _open_tools(
    params: Params, context: RunContext, models: str | Path
) -> Iterator[ToolEnvironment]:
    """Open the models and the tool environment, and close them after use.

    Args:
        params: Name the models among the tools.
        context: Folders of the run.
        models: Folder of the lab models.

    Yields:
        The environment, which executes tool calls.
    """
    names: Mapping[str, str] = params.tools.models
    cards = read_model_cards(params, models)
    seconds_per_token = {tool: 1 / card["tokens_per_second"] for tool, card in cards.items()}
    chat_models = open_models(
        context.llm,
        list(names.values()),
        NAME,
        context.runs,
        context.cassettes,
        sweep.count_workers(context.workers),
        open_local(context.models),
    )
    with (
        ExpertPool(chat_models, names, params.tools.model_temperature) as pool,
        ToolEnvironment(pool, seconds_per_token) as environment,
    ):
        yield environment
