"""Many questions at once: outcomes in order, equal jobs once, and what they are paid."""

import asyncio

import numpy as np
import pandas as pd
import pytest

from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_system import (
    ConfiguredQuestion,
    System,
    drop_lost_questions,
    make_table,
)
from lib.agent_configuration.rewards import Weights
from lib.language_models.chat_template import parse_tool_call
from lib.llm.chat_model import Reply
from lib.tasks import Item
from tests.agent_configuration.small import (
    ATOMS,
    CHAIN,
    LONG,
    NAMES,
    TIERS,
    Asked,
    Voice,
    make_turn,
    toolbox,
)

DIRECT, REASON = (
    Configuration((0, 0, 0, 2, 0, 0)),
    Configuration((1, 3, 0, 2, 0, 1), (tuple(NAMES[:2]), (), (NAMES[5],))),
)
SUM = "<call> calculator 4 * 8 </call>"


def system(voice: Voice, loop) -> System:
    return System(voice, toolbox(), TIERS, {atom.name: atom.hint for atom in ATOMS}, loop)


def echo(request: Asked) -> str:
    """The sum, if it is one digit and one digit; with the key, so that tries differ."""
    return f"<think> {request.key} </think> <answer> {7 if '3 + 4 =' in request.content else 0} </answer>"


def test_equal_jobs_are_done_once_and_others_are_not(loop):
    voice = Voice(echo)
    jobs = [
        ConfiguredQuestion(CHAIN, DIRECT),
        ConfiguredQuestion(CHAIN, DIRECT),
        ConfiguredQuestion(CHAIN, DIRECT, 1),
        ConfiguredQuestion(LONG, DIRECT),
        ConfiguredQuestion(CHAIN, DIRECT),
    ]
    outcomes = system(voice, loop).run(jobs)
    assert len(voice.heard) == 3
    assert outcomes[0] == outcomes[1] == outcomes[4] and outcomes[2] != outcomes[0]


def test_the_dice_of_a_job_hang_on_its_question_and_its_draw_and_on_nobody_else(loop):
    outcomes_alone = system(Voice(echo), loop).run([ConfiguredQuestion(CHAIN, DIRECT, 3)])
    crowd = [
        ConfiguredQuestion(LONG, DIRECT),
        ConfiguredQuestion(CHAIN, DIRECT, 3),
        ConfiguredQuestion(CHAIN, REASON, 3),
        ConfiguredQuestion(CHAIN, DIRECT),
    ]
    among = system(Voice(echo), loop).run(crowd)
    assert outcomes_alone[0] == among[1]
    keys = [outcome.trail[0].steps for outcome in among]
    assert keys[1] == keys[2] and len(set(keys)) == 3 and all(0 <= int(key) < 2**62 for key in keys)


def test_agents_are_told_their_atoms_and_have_their_tools_and_budgets(loop):
    voice = Voice(echo)
    system(voice, loop).run([ConfiguredQuestion(CHAIN, REASON)])
    first, second = voice.heard
    assert (first.system, first.tools, first.limit) == (
        "step by step be brief",
        ("calculator", "search"),
        30,
    )
    assert (second.system, second.tools, second.limit) == ("only the answer", (), 20)


def costly(request: Asked) -> Reply:
    """A reasoner who calls a tool first and is cut, and an answerer."""
    if request.role == "answerer":
        return make_turn("<answer> 7 </answer>", 100, 4)
    return (
        make_turn(SUM, 10, 6, parse_tool_call(SUM))
        if request.number == 1
        else make_turn("<think> so", 20, 24, None, True)
    )


def test_an_outcome_adds_up_what_its_calls_cost(loop):
    (outcome,) = system(Voice(costly, prices=(0.001, 0.1), pace=0.5), loop).run(
        [ConfiguredQuestion(CHAIN, REASON)]
    )
    assert (outcome.correct, outcome.answer, outcome.text) == (True, "7", "<answer> 7 </answer>")
    assert (outcome.calls, outcome.turns, outcome.tokens_in, outcome.tokens_out) == (2, 3, 130, 34)
    assert (outcome.used, outcome.tools) == (1, ("calculator",))
    assert (
        outcome.cost_usd == pytest.approx(0.13 + 3.4)
        and outcome.seconds == 17.0
        and outcome.cut == 1
        and outcome.failures == ()
    )
    assert [(note.role, note.agent, note.at) for note in outcome.trail] == [
        ("reasoner", 0, 15.0),
        ("answerer", 2, 17.0),
    ]


def test_an_answer_that_does_not_end_in_its_tags_is_wrong(loop):
    (outcome,) = system(Voice(lambda request: "<answer> 7 </answer> or so"), loop).run(
        [ConfiguredQuestion(CHAIN, DIRECT)]
    )
    assert not outcome.correct and outcome.answer is None


def test_rewards_take_each_number_from_its_own_column(loop):
    """Two calls, 34 of 90 tokens, one use of two allotted tools; then nothing used of one; then nothing at all."""
    agents = system(Voice(costly), loop)
    idle = Configuration((0, 8, 0, 2, 0, 0))
    jobs = [
        ConfiguredQuestion(CHAIN, REASON),
        ConfiguredQuestion(CHAIN, idle),
        ConfiguredQuestion(LONG, DIRECT),
    ]
    outcomes = agents.run(jobs)
    weights = Weights(alpha=2, beta_s=3, beta_t=45, eta=7, delta_1=11, delta_2=13, delta_3=17)
    rewards = agents.compute_rewards(jobs, outcomes, weights)
    assert agents.max_tokens == 90.0
    assert rewards == pytest.approx([2 - 6 - 17 + 7 * (11 + 13), 2 - 3 - 2 - 7 * 17, -3 - 2])


@pytest.mark.parametrize("kind, is_scored", [("refusal", True), ("moderation", False)])
def test_a_prompt_that_a_filter_stops_is_not_scored_and_a_refusal_is_wrong(loop, kind, is_scored):
    agents = system(Voice(lambda request: make_turn("", 3, 0, failure=kind), "endpoint"), loop)
    jobs = [ConfiguredQuestion(CHAIN, DIRECT)]
    outcomes = agents.run(jobs)
    (row,) = make_table(jobs, outcomes, agents.compute_rewards(jobs, outcomes, Weights())).to_dict(
        "records"
    )
    assert (row["failures"], row["lost_calls"]) == (1, int(not is_scored))
    assert np.isnan([row["correct"], row["reward"]]).tolist() == [not is_scored] * 2
    assert row["tokens_in"] == 3  # what was billed is booked


def test_a_question_that_was_lost_for_one_is_left_out_for_all():
    first = pd.DataFrame({"prompt": ["a", "b"], "reward": [1.0, np.nan]})
    second = pd.DataFrame({"prompt": ["b", "a", "c"], "reward": [2.0, 3.0, 4.0]})
    kept_first, kept_second = drop_lost_questions(first, second)
    assert kept_first["prompt"].tolist() == ["a"] and kept_second["prompt"].tolist() == ["a", "c"]
    (untouched,) = drop_lost_questions(second)
    assert untouched is second


def test_the_table_has_a_row_per_job_with_its_parts(loop):
    agents = system(Voice(costly, prices=(0.001, 0.1), pace=0.5), loop)
    jobs = [ConfiguredQuestion(CHAIN, REASON), ConfiguredQuestion(LONG, DIRECT)]
    table = make_table(jobs, agents.run(jobs), np.array([1.5, -2.0]))
    first, second = table.to_dict("records")
    expected = {
        "key": "chain/3 + 4",
        "prompt": "3 + 4 = ?",
        "group": "chain",
        "difficulty": 1,
        "workflow": "reason",
        "w": 1,
        "tools1": 3,
        "tools2": 0,
        "budget1": 2,
        "budget2": 0,
        "budget3": 1,
        "atoms": "base/reasoner/steps , base/reasoner/brief |  | base/answerer/only",
        "allocated": 2,
        "digest": REASON.digest,
        "correct": 1.0,
        "reward": 1.5,
        "calls": 2,
        "turns": 3,
        "tokens_out": 34,
        "tokens_in": 130,
        "cost_usd": pytest.approx(3.53),
        "seconds": 17.0,
        "used": 1,
        "cut": 1,
        "cut_by_model": 0,
        "failures": 0,
        "lost_calls": 0,
        "answered": 1.0,
        "answer": "7",
        "text": "<answer> 7 </answer>",
    }
    assert first == expected and list(table.columns) == list(expected)
    assert (second["key"], second["correct"], second["reward"], second["answer"]) == (
        LONG.id,
        0.0,
        -2.0,
        "7",
    )
    facts = Item(
        "What is the pet of Ana ?",
        "cat",
        "the pet of Ana is cat",
        "facts",
        1,
        "facts/pet/Ana",
        "choice",
    )
    jobs = [ConfiguredQuestion(facts, DIRECT)]
    assert make_table(jobs, agents.run(jobs), np.zeros(1))["group"].tolist() == ["choice"]


def test_slow_episodes_keep_their_place(loop):
    voice = Voice(echo, wait=lambda request: 0.02 if request.content == LONG.prompt else 0.0)
    outcomes = system(voice, loop).run(
        [ConfiguredQuestion(LONG, DIRECT), ConfiguredQuestion(CHAIN, DIRECT)]
    )
    assert [o.answer for o in outcomes] == ["0", "7"]


def test_an_empty_batch_is_no_outcome_and_a_system_can_be_awaited_on_a_running_loop(loop):
    agents = system(Voice(echo), loop)
    assert agents.run([]) == [] and len(agents.compute_rewards([], [], Weights())) == 0
    assert asyncio.run(agents.run_async([ConfiguredQuestion(CHAIN, DIRECT)])) == agents.run(
        [ConfiguredQuestion(CHAIN, DIRECT)]
    )


def test_the_table_says_that_nothing_was_answered_and_needs_as_many_rewards_as_jobs(loop):
    jobs = [ConfiguredQuestion(CHAIN, DIRECT)]
    outcomes = system(Voice(lambda request: "no"), loop).run(jobs)
    table = make_table(jobs, outcomes, np.zeros(1))
    assert table[["answered", "answer", "text"]].values.tolist() == [[0.0, "", "no"]]
    with pytest.raises(ValueError):
        make_table(jobs, outcomes, np.zeros(2))
