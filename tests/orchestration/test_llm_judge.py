"""The judge: a rubric of five words, every episode scored, nothing invented where a reply is of no use."""

import asyncio
import json
import math
import re

import numpy as np
import pandas as pd
import pytest

from lib.experiment import seeds
from lib.llm.chat_model import Failure, Reply
from lib.llm.json_replies import InvalidReply
from lib.llm.open_models import open_models
from lib.llm.scripted import STRENGTHS, malformed_replies
from lib.llm.scripted import judging as rules
from lib.orchestration.baseline_models import ConstantModel, RandomModel
from lib.orchestration.decision_model import LOST, UNFUNDED, UNUSABLE
from lib.orchestration.domain_descriptions import EDUCATION
from lib.orchestration.llm_judge import (
    ATTEMPTS,
    CRITERIA,
    EXPERIENCE_CRITERIA,
    TRAJECTORY_CRITERIA,
    describe_step,
    judge,
    make_first_requests,
    make_prompt,
    read_scores,
    split_episodes,
)
from tests.llm.stub_model import StubModel, contents
from tests.orchestration.contests import PARAMS, make_episode_set, make_options, open_scripted

SETTINGS = PARAMS.education.model_copy(update={"horizon": 50})
MENU = ("A", "B", "C")
FAIR = dict.fromkeys(CRITERIA, 3)


def make_steps(*episodes, **columns) -> pd.DataFrame:
    """A table of steps. An episode is a list of (policy, levels, mastery, mastery after, share right)."""
    rows = [
        {
            "episode": number,
            "step": step,
            "choice": policy,
            "action": 2,
            "failure": "",
            "mastery": before,
            "mastery_after": after,
            "failed_questions_open": 1.0,
            "levels": levels,
            "result_0": 0.1,
            "result_1": 0.0,
            "result_2": correct,
            "result_3": after - before,
        }
        for number, episode in enumerate(episodes)
        for step, (policy, levels, before, after, correct) in enumerate(episode)
    ]
    return pd.DataFrame(rows).assign(**columns)


POOR, GOOD = ("55555", 0.4, 0.4, 0.2), ("33333", 0.4, 0.4, 0.8)


def list_steps(*outcomes) -> list[tuple]:
    """An episode of (policy, one of POOR or GOOD) pairs."""
    return [(policy, *outcome) for policy, outcome in outcomes]


def repeat_poor(names: str) -> list[tuple]:
    return list_steps(*[(name, POOR) for name in names])


def join_prompt(episode, settings=SETTINGS) -> str:
    """What a judge reads of an episode."""
    return "\n\n".join(
        message["content"] for message in make_prompt(make_steps(episode), settings, MENU)
    )


def read_trajectory(episode) -> rules.Trajectory:
    """What the scripted judge reads of the prompt on an episode."""
    return rules.read_trajectory(join_prompt(episode))


def score(*replies, episodes=()):
    """The judge's rows for these replies, texts or failures, and the model that gave them."""
    costs = {"tokens_in": 100, "tokens_out": 10, "cost_usd": 0.5}
    answers = []
    for answer in replies:
        failure = answer if isinstance(answer, Failure) else None
        text = "" if failure else answer
        spent = {} if failure and failure.of_infrastructure else costs
        answers.append(Reply(text, "stub", "endpoint", failure=failure, **spent))
    model = StubModel(*answers)
    steps = make_steps(*episodes or [list_steps(("A", POOR))])
    return asyncio.run(judge(model, steps, SETTINGS, MENU)), model


def write_reply(**changes) -> str:
    return json.dumps({"reasoning": "so be it", **FAIR, **changes})


# The prompt ---------------------------------------------------------------------------------------


def test_the_rubric_has_words_for_1_3_and_5_of_every_criterion_and_no_other_scale():
    system, user = make_prompt(make_steps(list_steps(("A", POOR))), SETTINGS, MENU)
    rubric = system["content"]
    assert CRITERIA == TRAJECTORY_CRITERIA + EXPERIENCE_CRITERIA and len(CRITERIA) == 9
    for name in CRITERIA:
        (words,) = re.findall(rf"^- {name}: (.*)$", rubric, re.MULTILINE)
        assert re.findall(r"(?<=\s)(\d): ", words) == ["1", "3", "5"]
        assert f'"{name}": N' in rubric and name in user["content"]
    assert "100" not in rubric and "%" not in rubric and "whole number from 1 to 5" in rubric


def test_the_judge_does_not_learn_whose_trajectories_it_reads():
    random, trained = (
        make_steps(list_steps(("A", POOR)), method=method, seed=1, reasoning="because")
        for method in ("random", "RO scripted-large")
    )
    prompts = [make_prompt(steps, SETTINGS, MENU) for steps in (random, trained)]
    assert (
        prompts[0] == prompts[1] and "random" not in str(prompts) and "because" not in str(prompts)
    )


def test_a_step_is_a_line():
    row = make_steps([("SO-d1", "55535", 0.4, 0.5, 0.2)]).to_dict("records")[0]
    assert describe_step(row) == "1 | SO-d1 | challenge | 55535 | 0.40 > 0.50 | 1 | 0.10 0.00 0.20"


@pytest.mark.parametrize("failure", [UNUSABLE, LOST, UNFUNDED])
def test_a_step_without_a_choice_is_marked_and_still_read(failure):
    steps = make_steps(list_steps(("A", POOR), ("B", POOR)), failure=["", failure])
    text = make_prompt(steps, SETTINGS, MENU)[1]["content"]
    assert "\n1 | A | challenge" in text and "\n2 | B (no choice) | challenge" in text
    assert "no usable reply" in text
    assert [step.policy for step in rules.read_trajectory(text).steps] == ["A", "B"]
    assert "no choice" not in join_prompt(list_steps(("A", POOR)))


@pytest.mark.parametrize("failure", ["", UNUSABLE])
def test_the_prompt_has_no_holes(failure):
    steps = make_steps(list_steps(("A", POOR), ("B", GOOD)), failure=failure)
    for message in make_prompt(steps, SETTINGS):
        text = message["content"]
        assert text == text.strip()
        assert not any(hole in text for hole in ("\n\n\n", "{{", "{%", "None", "Undefined", "  "))


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        (make_steps(list_steps(("A", POOR))).iloc[:0], "is empty"),
        (make_steps(list_steps(("A", POOR))).drop(columns=["levels", "mastery"]), "lacks mastery"),
        (pd.DataFrame(), "lacks episode"),
    ],
)
def test_a_table_that_cannot_be_judged_is_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        make_first_requests(steps, SETTINGS)


def test_episodes_of_several_methods_stay_apart_and_their_steps_in_order():
    one = make_steps(repeat_poor("AB"), repeat_poor("C"), method="KO", seed=0)
    other = make_steps(repeat_poor("BB"), method="TO", seed=1)
    steps = pd.concat([one, other]).iloc[::-1]
    episodes = {tuple(names.values()): rows for names, rows in split_episodes(steps)}
    chosen = {names: "".join(rows["choice"]) for names, rows in episodes.items()}
    assert chosen == {("KO", 0, 0): "AB", ("KO", 0, 1): "C", ("TO", 1, 0): "BB"}


# Replies ------------------------------------------------------------------------------------------


def test_every_episode_is_scored_by_itself():
    rows, model = score(
        write_reply(adaptivity=1),
        write_reply(adaptivity=5),
        episodes=[list_steps(("A", POOR)), list_steps(("B", GOOD))],
    )
    assert rows["adaptivity"].tolist() == [1, 5]
    assert (rows[list(CRITERIA[1:])] == 3).all(axis=None)
    assert rows["episode"].tolist() == [0, 1] and set(rows["judge"]) == {"stub"}
    assert ["1 | B |" in text for text in contents(model.requests)] == [False, True]
    assert contents(model.requests) == [
        request.messages[-1]["content"]
        for request in make_first_requests(
            make_steps(list_steps(("A", POOR)), list_steps(("B", GOOD))), SETTINGS, MENU
        )
    ]


def test_a_missing_score_is_asked_for_again_once_and_never_invented():
    rows, _ = score("no", "no")
    assert rows.loc[0, list(CRITERIA)].isna().all()
    assert (rows.loc[0, "malformed"], rows.loc[0, "calls"]) == (2, ATTEMPTS)
    short = json.dumps({key: value for key, value in FAIR.items() if key != "effort"})
    rows, model = score(short, write_reply(effort=2))
    assert dict(rows.loc[0, list(CRITERIA)]) == FAIR | {"effort": 2}
    assert (rows.loc[0, "malformed"], rows.loc[0, "calls"], rows.loc[0, "cost_usd"]) == (1, 2, 1.0)
    first, second = model.requests
    assert [turn["role"] for turn in second.messages] == ["system", "user", "assistant", "user"]
    assert second.messages[2]["content"] == short and "'effort'" in second.messages[3]["content"]
    assert first.seed != second.seed


@pytest.mark.parametrize(
    ("kind", "calls"),
    [("refusal", 2), ("truncated", 2), ("timeout", 1), ("connection", 1), ("moderation", 1)],
)
def test_only_a_judge_that_answered_is_asked_again_and_what_was_billed_counts(kind, calls):
    rows, _ = score(Failure(kind), write_reply())
    row = rows.loc[0]
    assert row["calls"] == calls and rows["effort"].isna().any() == (calls == 1)
    assert (row["failures"], row["malformed"]) == ((1, 0) if calls == 1 else (0, 1))
    assert row["cost_usd"] == (0.0 if calls == 1 else 1.0)


@pytest.mark.parametrize("value", [0, 6, -1, 2.5, "4", "4/5", None, True, [3], 1e400, 99])
def test_scores_are_whole_numbers_from_1_to_5(value):
    with pytest.raises(InvalidReply, match="frustration"):
        read_scores(write_reply(frustration=value))


def test_scores_are_read_from_fences_and_beside_further_fields():
    for value in (4, 4.0):
        reply = f"My verdict:\n```json\n{write_reply(effort=value, gist='fine')}\n```"
        assert read_scores(reply) == FAIR | {"effort": 4}
        assert isinstance(read_scores(reply)["effort"], int)


def test_scripted_breaks_of_a_verdict_are_noticed():
    refused = set()
    for spoil in malformed_replies.JUDGE_BREAKS:
        reply = {"reasoning": "so", **FAIR}
        text, _ = spoil(reply, malformed_replies.DecisionState(), seeds.rng("t"))
        try:
            assert read_scores(text) == FAIR
        except InvalidReply:
            refused.add(spoil.__name__)
    assert refused == {"repeat_object", "truncate", "refuse", "omit_score", "write_scores_as_text"}


# The rules of the scripted judge, by hand -----------------------------------------------------------

# poor A>B changes, poor B>B stays, good B>B stays, good B>A changes, good A>A stays, good A>A stays
TURNS = ("A", POOR), ("B", POOR), ("B", GOOD), ("B", GOOD), ("A", GOOD), ("A", GOOD), ("A", POOR)
# 4 sets of 5 questions, mastery from 0.4 to 0.5 and again: 40 questions for 0.2, that is 20 per 0.1
ONCE = [("A", "33333", 0.4, 0.4, 0.2)] * 3 + [("A", "33333", 0.4, 0.5, 0.6)]
TWICE = [*ONCE, *[(p, levels, 0.5, after + 0.1, correct) for p, levels, _, after, correct in ONCE]]
# levels 3 and 4 are difficulties 0.4 and 0.6, within 0.2 of mastery 0.4; 5 is 0.8 and too far; 0.2 of 0.4 gone
FITTING = [
    ("A", "33333", 0.4, 0.4, 1.0),
    ("A", "44444", 0.4, 0.4, 0.2),
    ("A", "55555", 0.4, 0.4, 0.0),
    ("A", "55555", 0.4, 0.6, 0.8),
]
# difficulties 0.8 and 0.2 at mastery 0.4: 0.4 above and nothing; 2 of 50 steps; 3 of 10 right; ends at 0.6 of 0.8
HARD = [("A", "55555", 0.4, 0.4, 0.0), ("A", "22222", 0.4, 0.6, 0.6)]


@pytest.mark.parametrize(
    ("rule", "episode", "position"),
    [
        (rules.score_adaptivity, list_steps(*TURNS), 1 / 2 - 1 / 4),
        # All went well, which shows nothing.
        (rules.score_adaptivity, list_steps(("A", GOOD), ("B", GOOD), ("B", GOOD)), 0.5),
        (rules.score_effort, TWICE, (20 - 10) / 40),
        (rules.score_effort, repeat_poor("A"), 1.0),
        (rules.score_progression, FITTING, (0.5 + 0.5) / 2),
        (rules.score_exploration, repeat_poor("AABBA"), 1.0),
        (rules.score_exploration, repeat_poor("ABABA"), 0.0),
        (rules.score_exploration, repeat_poor("AAAAB"), 0.5),
        (rules.score_diversity, repeat_poor("ABC"), 1.0),
        (rules.score_diversity, repeat_poor("AB"), math.log(2, 3)),
        (rules.score_diversity, repeat_poor("A"), 0.0),
        (rules.score_mental_demand, HARD, 0.2 / 0.4),
        (rules.score_temporal_demand, HARD, (2 / 50 - 0.2) / 0.8),
        (rules.score_frustration, HARD, (0.7 - 0.1) / 0.6),
        (rules.score_performance, HARD, (0.6 / 0.8 - 0.5) / 0.5),
    ],
)
def test_the_rules_worked_by_hand(rule, episode, position):
    assert rule(read_trajectory(episode)) == pytest.approx(position)


def test_a_position_between_the_words_becomes_a_score():
    positions = (-3.0, 0.0, 0.12, 0.13, 0.37, 0.38, 0.5, 0.62, 0.63, 0.87, 0.88, 1.0, 9.0)
    scores = [rules.place_on_scale(position) for position in positions]
    assert scores == [1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 5, 5, 5]


def test_every_step_that_is_shown_is_read_back():
    assert tuple(rules.RUBRIC) == CRITERIA
    trajectory = read_trajectory([("A", "12345", 0.4, 0.4, 0.2), *list_steps(("B", GOOD))])
    assert [step.policy for step in trajectory.steps] == ["A", "B"]
    assert trajectory.policies == MENU
    assert (trajectory.horizon, trajectory.goal) == (SETTINGS.horizon, SETTINGS.goal)
    first = rules.TrajectoryStep("A", (0.0, 0.2, 0.4, 0.6, 0.8), 0.4, 0.4, 0.2)
    assert trajectory.steps[0] == first


def test_a_small_scripted_judge_sees_the_end_of_a_long_session_only():
    text = join_prompt([("A", *POOR)] * 50 + [("B", *POOR)] * 50)
    trajectory = rules.read_trajectory(text[-STRENGTHS["scripted-small"].window :])
    assert 0 < len(trajectory.steps) < 50
    assert {step.policy for step in trajectory.steps} == {"B"}


# Scripted judges ------------------------------------------------------------------------------------


def ask_scripted(name: str, steps: pd.DataFrame, folder, policies=MENU) -> pd.DataFrame:
    async def ask():
        async with open_models(PARAMS.llm, [name], "test", folder, folder) as models:
            return await judge(models[name], steps, SETTINGS, policies)

    return asyncio.run(ask())


@pytest.mark.parametrize("name", STRENGTHS)
def test_scripted_models_judge_by_the_same_scale(name, tmp_path):
    outcomes = [POOR, GOOD, GOOD, POOR] * 6
    episode = list_steps(*zip("ABCABBCA" * 3, outcomes, strict=True))
    rows = ask_scripted(name, make_steps(episode), tmp_path)
    assert rows["backend"].tolist() == ["scripted"] and rows.loc[0, "tokens_in"] > 800
    scores = rows.loc[0, list(CRITERIA)].astype(float)
    assert scores.between(1, 5).all() and (scores == scores.round()).all()
    assert rows.equals(ask_scripted(name, make_steps(episode), tmp_path))
    if name == "scripted-large":  # its noise is small
        trajectory = read_trajectory(episode)
        for criterion, rule in rules.RUBRIC.items():
            positions = np.array([-0.03, 0.0, 0.03]) + rule(trajectory)
            assert scores[criterion] in [rules.place_on_scale(p) for p in positions]


def test_methods_are_judged_beside_random_choice(tmp_path):
    episode_set = make_episode_set("education", 6)
    plain = make_options("education", "KO")
    models = {
        "random": RandomModel(),
        "always SO-d1": ConstantModel("SO-d1"),
        "KO": open_scripted("scripted-large", tmp_path),
    }
    tables = [
        episode_set.play(model, plain).steps.assign(method=name, seed=0)
        for name, model in models.items()
    ]
    steps = pd.concat(tables, ignore_index=True)
    settings = PARAMS.education

    async def ask():
        async with open_models(PARAMS.llm, ["scripted-large"], "t", tmp_path, tmp_path) as opened:
            return await judge(opened["scripted-large"], steps, settings)

    rows = asyncio.run(ask())
    assert len(rows) == 18 and set(rows.columns) >= {"method", "seed", "episode", *CRITERIA}
    scores = rows.groupby("method")[list(CRITERIA)].mean()
    assert scores.loc["always SO-d1", "diversity"] < 1.5 < scores.loc["random", "diversity"]
    assert scores.loc["always SO-d1", "exploration"] < scores.loc["random", "exploration"]
    assert len(EDUCATION.objectives) == 3
