"""A hosted model in the slots of the parameters: settings by lot, and arithmetic that it can do.

settings    sections by lot in which a hosted model stands for words, some of which no controller has
wrong       accepted settings with a word that no controller has, or refused ones that name only known words
questions   arithmetic asked in lessons 05, 06 and 07, of a model that makes no mistakes
missed      questions that it is shown as unable to answer
uncaught    anything but an answer, or a ParamsError of one line
"""

import math
import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import certifi
import numpy as np

from lib import config
from lib.agent_configuration import action_space
from lib.agent_configuration import experiment as configuration
from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_system import ConfiguredQuestion
from lib.agent_configuration.questions import questions
from lib.budgeted_routing import expert_outcomes
from lib.config import ParamsError
from lib.config.budgeted_routing import EXPERT_WORDS
from lib.experiment import seeds
from lib.tool_orchestration import prompted_baseline, single_tools, tool_environment
from tests.agent_configuration.test_experiment import lab_models
from tests.agent_configuration.test_experiment import settings as make_team_settings
from tests.budgeted_routing.small_systems import SMOKE_PARAMS, open_endpoint_pool, serve_answers
from tests.llm.server import KEY, KEY_VARIABLE
from tests.slots.able_model import answer_request
from tests.slots.models import NAME, draw_arithmetic, make_endpoint
from tests.slots.test_arithmetic import offer_hosted_model
from tests.tool_orchestration.common import CLOCK

SETTINGS = 300
QUESTIONS = 200  # per family and kind of slot
OTHER_WORDS = ("smol", NAME, "claude-3", "lab-huge", "gpt_4+", "nano", "calculator")


def draw_settings(rng: np.random.Generator) -> tuple[dict[str, Any], bool]:
    """Changed parameters as plain values, and whether every word in them can be written where it has to be."""
    content = SMOKE_PARAMS.model_dump()
    content["llm"]["models"][NAME] = make_endpoint("http://127.0.0.1:9/v1")
    section = ("routing", "tools")[int(rng.integers(2))]
    words = [*EXPERT_WORDS, *OTHER_WORDS]
    chosen = [words[i] for i in rng.permutation(len(words))[: int(rng.integers(2, 4))]]
    if rng.random() < 0.5:
        chosen = [EXPERT_WORDS[i] for i in rng.permutation(len(EXPERT_WORDS))[: len(chosen)]]
    models = {word: NAME if rng.random() < 0.7 else "nano" for word in chosen}
    if section == "tools":  # whose names no controller of a closed vocabulary writes
        content["tools"] = content["tools"] | {"models": models}
        return content, True
    content["routing"] = content["routing"] | {"experts": models}
    return content, set(chosen) <= set(EXPERT_WORDS)


def try_settings(num: int) -> Counter[str]:
    """Sections by lot, and what came of them."""
    rng = seeds.rng("hardening", "slots")
    counts: Counter[str] = Counter()
    for _ in range(num):
        content, is_right = draw_settings(rng)
        try:
            config.validate_settings(content)
            was_accepted = True
        except ParamsError as error:
            was_accepted = False
            counts["uncaught"] += "\n" in str(error)
        except Exception:
            counts["uncaught"] += 1
            continue
        counts["wrong"] += was_accepted != is_right
    return counts


def ask_expert_and_tools(url: str, family: str, num: int) -> Counter[str]:
    """Questions to an expert of lesson 05, to a tool and to a prompted orchestrator of lesson 06."""
    items = draw_arithmetic(family, num)
    assignments = [offer_hosted_model(item, "calculator") for item in items]
    with (
        open_endpoint_pool(url, max_tokens=500) as pool,
        tool_environment.ToolEnvironment(pool, CLOCK) as desk,
    ):
        expert_rows = expert_outcomes.measure_experts(pool, items, "test")
        tool_rows = single_tools.try_single_tools(desk, assignments, ["lab-nano"], "test")
        episodes = prompted_baseline.roll_out_assignments(desk, "mine", assignments, 6, 0, 0.0)
    right = expert_rows["correct"].sum() + sum(row["correct"] for row in tool_rows)
    right += sum(episode.correct for episode in episodes)
    return Counter(questions=3 * num, missed=3 * num - int(right))


def ask_agents(url: str, kind: str, num: int) -> Counter[str]:
    """Questions to agents of lesson 07 in configurations by lot, in which all have the tools that a lookup needs."""
    params = make_team_settings(
        llm={"models": {NAME: make_endpoint(url)}}, model=NAME, larger=NAME, prompted=NAME
    )
    rng = seeds.rng("hardening", "slots", kind)
    every_tool = 2 ** len(action_space.TOOLS) - 1
    items = questions(kind, "test", num)
    jobs = []
    for item in items:
        workflow = int(rng.integers(len(action_space.WORKFLOWS)))
        tiers = rng.integers(len(action_space.TIERS), size=3).tolist()
        structure = (workflow, every_tool, every_tool, *tiers)
        jobs.append(
            ConfiguredQuestion(item, Configuration(action_space.repair_structure(structure)))
        )
    with tempfile.TemporaryDirectory() as folder:
        models = lab_models(Path(folder) / "models")
        context = configuration.make_context(params, models, folder)
        with configuration.open_workbench(context, params.configuration) as place:
            correct = place.play(NAME, jobs)["correct"]
    return Counter(questions=len(jobs), missed=int((~correct.astype(bool)).sum()))


def measure(say: Callable[[str], None], scale: float = 1.0) -> dict[str, int | float]:
    """Settings and questions tried, and what went wrong in them."""
    num_settings = math.ceil(SETTINGS * scale)
    num_questions = math.ceil(QUESTIONS * scale)
    counts = try_settings(num_settings)
    say(f"{num_settings:,} settings, {counts['wrong']} wrongly accepted or refused")
    environment = {KEY_VARIABLE: KEY, "SSL_CERT_FILE": certifi.where()}
    with mock.patch.dict(os.environ, environment), serve_answers(answer_request) as server:
        for family in ("chain", "big"):
            counts += ask_expert_and_tools(server.url, family, num_questions)
        for kind in ("chain", "mixed"):
            counts += ask_agents(server.url, kind, num_questions)
    say(f"{counts['questions']:,} questions, {counts['missed']} missed")
    words = ("questions", "missed", "wrong", "uncaught")
    return {"slots.settings": num_settings} | {f"slots.{word}": counts[word] for word in words}
