"""GEPA, few-shot bootstrapping and the two-agent conversation, on agents whose reward is known."""

import asyncio

import numpy as np
import pytest

from lib.agent_configuration import gepa_baseline, prompt_optimizers
from lib.agent_configuration.agent_system import ConfiguredAnswer
from lib.agent_configuration.agent_team import Note
from lib.agent_configuration.prompt_optimizers import PromptedSystem, converse
from lib.agent_configuration.rewards import Weights
from lib.tasks import Item
from tests.agent_configuration.small import ATOMS, Asked, Voice, team

ITEMS = [Item(f"{i} + 4 = ?", str(i + 4), "", "chain", 1, f"chain/{i} + 4") for i in range(6)]
HELPFUL = "use the search"  # the one instruction that makes an answer right
REASON = (1, 15, 0, 2, 0, 2)


class ObedientSystem:
    """Agents that are right where the reasoner is told the helpful instruction, or where a demonstration is shown."""

    def __init__(self, helpful: str = HELPFUL) -> None:
        self.prompts: dict[str, str] = {}
        self.helpful = helpful
        self.num_played = 0

    def run(self, jobs):
        self.num_played += len(jobs)
        outcomes = []
        for job in jobs:
            texts = [self.prompts[name] for name in job.configuration.atoms[0]]
            is_right = any(self.helpful in text for text in texts)
            is_right |= job.item == ITEMS[0]  # an easy question
            note = Note("reasoner", 0, "a step", job.item.reference, "", 0.0)
            outcomes.append(
                ConfiguredAnswer(is_right, "7", "", 1, 1, 1, 1, 0.0, 0.0, 0, (), 0, (), (note,))
            )
        return outcomes

    def compute_rewards(self, jobs, outcomes, weights) -> np.ndarray:
        return np.array([weights.alpha * outcome.correct for outcome in outcomes])


@pytest.fixture
def prompted() -> PromptedSystem:
    return PromptedSystem(ObedientSystem(), REASON, Weights())


# GEPA ---------------------------------------------------------------------------------------------


def test_gepa_finds_the_instruction_that_helps_by_the_rule_and_keeps_to_its_episodes(prompted):
    best = gepa_baseline.optimize_with_gepa(prompted, ITEMS, ATOMS, max_episodes=150, seed=0)
    assert HELPFUL in best["reasoner"].split(prompt_optimizers.SEPARATOR)
    assert prompted.system.num_played <= 150 + 2 * len(ITEMS)


def test_gepa_takes_the_text_of_a_model_that_reflects_and_shows_it_what_happened(prompted):
    """The reflecting model is shown the question, what the agent said and what would have been right."""
    prompts_read = []

    def reflect(prompt) -> str:
        prompts_read.append(str(prompt))
        return f"```\n{HELPFUL}\n```"

    best = gepa_baseline.optimize_with_gepa(
        prompted, ITEMS, ATOMS, max_episodes=120, seed=0, reflect=reflect
    )
    assert best["reasoner"] == HELPFUL
    assert any("+ 4 = ?" in text and "is wrong; it is" in text for text in prompts_read)


def test_equal_seeds_give_equal_candidates():
    def run_once():
        system = PromptedSystem(ObedientSystem(), REASON, Weights())
        return gepa_baseline.optimize_with_gepa(system, ITEMS, ATOMS, max_episodes=60, seed=3)

    assert run_once() == run_once()


# Bootstrapping ------------------------------------------------------------------------------------


def test_bootstrapping_shows_agents_what_they_said_where_they_were_right():
    """Only the first question is right at first; shown it, the agents are right on all."""
    system = ObedientSystem(helpful="question 0 + 4 = ?")
    prompted = PromptedSystem(system, REASON, Weights())
    best = prompt_optimizers.bootstrap_demonstrations(prompted, ITEMS, max_episodes=100, seed=0)
    assert best["reasoner"].startswith("question 0 + 4 = ? a step answer 4")


def test_bootstrapping_shows_nothing_where_that_is_best():
    system = ObedientSystem(helpful="never")
    prompted = PromptedSystem(system, REASON, Weights())
    assert prompt_optimizers.bootstrap_demonstrations(prompted, ITEMS, 100, seed=0) == {}


def test_bootstrapping_keeps_to_its_episodes(prompted):
    prompt_optimizers.bootstrap_demonstrations(prompted, ITEMS, max_episodes=9, seed=0)
    assert prompted.system.num_played <= 9


# The conversation ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "verdicts, roles",
    [
        (["right"], "rv"),
        (["wrong", "right"], "rvrv"),
        (["wrong"] * 3, "rvrvrvr"),  # the turns are over
    ],
)
def test_a_critic_objects_until_it_is_content_or_the_turns_are_over(verdicts, roles):
    def reply(request: Asked) -> str:
        if request.role == "verifier":
            return f"<answer> {verdicts[request.number - 1]} </answer>"
        return f"<answer> a{request.number} </answer>"

    voice = Voice(reply)
    answer = asyncio.run(converse(team(voice, (2, 15, 15, 2, 2, 2)), "Q"))
    assert "".join(request.role[0] for request in voice.heard) == roles
    assert answer.answer == f"a{roles.count('r')}"


def test_the_structure_is_the_workflow_with_the_best_mean_reward_on_training_questions():
    class PrefersVoting(ObedientSystem):
        def compute_rewards(self, jobs, outcomes, weights):
            return np.array([float(job.configuration.workflow == "voting") for job in jobs])

    structure = prompt_optimizers.select_structure(PrefersVoting(), ITEMS, Weights())
    assert structure == (5, 15, 0, 2, 0, 2)
