"""The judge: a rubric that can be worked by hand, every episode scored, nothing invented where a reply is of no use."""

import asyncio
import json
import math

import pandas as pd
import pytest

from lib import config
from lib.experiment import seeds
from lib.llm.chat_model import Failure, Reply
from lib.llm.open_models import open_models
from lib.llm.scripted import STRENGTHS, malformed_replies
from lib.llm.scripted import judging as rules
from lib.orchestration.llm_judge import CRITERIA, Scores, judge, prompt, read, step_line
from lib.orchestration.reply_parser import InvalidReply
from tests.llm.stub_model import StubModel, contents

SMOKE = config.load("smoke")
EDUCATION = SMOKE.education
FAIR = dict.fromkeys(CRITERIA, 50.0)


def log(*episodes, method: str = "RO scripted-large", **columns) -> pd.DataFrame:
    """A decision record. An episode is a list of (policy, levels, mastery, mastery after, share right)."""
    rows = [
        {
            "method": method,
            "seed": 0,
            "episode": number,
            "step": step,
            "choice": policy,
            "action": 2,
            "fallback": False,
            "alternatives": "A;B;C",
            "mastery": before,
            "mastery_after": after,
            "open_failed": 1,
            "levels": levels,
            "reward_0": 0.1,
            "reward_1": 0.0,
            "reward_2": correct,
            "done": step == len(episode) - 1,
        }
        for number, episode in enumerate(episodes)
        for step, (policy, levels, before, after, correct) in enumerate(episode)
    ]
    return pd.DataFrame(rows).assign(**columns)


POOR, GOOD = ("55555", 0.4, 0.4, 0.2), ("33333", 0.4, 0.4, 0.8)


def steps(*which) -> list[tuple]:
    """An episode of (policy, one of POOR or GOOD) pairs."""
    return [(policy, *outcome) for policy, outcome in which]


def record(episode) -> rules.Trajectory:
    """What a stand-in reads of the judge's prompt on an episode."""
    return rules.read_trajectory(
        "\n\n".join(turn["content"] for turn in prompt(log(episode), EDUCATION))
    )


def scored(*replies, episodes=()):
    """The judge's rows for these replies, texts or failures, and the model that gave them."""
    costs = {"tokens_in": 100, "tokens_out": 10, "cost_usd": 0.5}
    answers = []
    for answer in replies:
        failure = answer if isinstance(answer, Failure) else None
        text = "" if failure else answer
        spent = {} if failure and failure.of_infrastructure else costs
        answers.append(Reply(text, "stub", "endpoint", failure=failure, **spent))
    model = StubModel(*answers)
    rows = log(*episodes or [steps(("A", POOR))])
    return asyncio.run(judge(model, rows, EDUCATION)), model


def reply(**changes) -> str:
    return json.dumps({"reasoning": "so be it", **FAIR, **changes})


# The rubric of the scripted judge, by hand --------------------------------------------------------


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


def poor(names: str) -> list[tuple]:
    return steps(*[(name, POOR) for name in names])


@pytest.mark.parametrize(
    ("rule", "episode", "score"),
    [
        (rules.score_adaptivity, steps(*TURNS), (1 / 2 - 1 / 4) / 0.5),
        (
            rules.score_adaptivity,
            steps(("A", GOOD), ("B", GOOD), ("B", GOOD)),
            0.5,
        ),  # undecided: all went well
        (rules.score_effort, TWICE, (20 - 10) / 40),
        (rules.score_effort, poor("A"), 1.0),
        (rules.score_progression, FITTING, (0.5 + 0.5) / 2),
        (rules.score_exploration, poor("AABBA"), 1.0),
        (rules.score_exploration, poor("ABABA"), 0.0),
        (rules.score_exploration, poor("AAAAB"), 0.5),
        (rules.score_diversity, poor("ABC"), 1.0),
        (rules.score_diversity, poor("AB"), math.log(2, 3)),
        (rules.score_diversity, poor("A"), 0.0),
        (rules.score_mental_demand, HARD, 0.2 / 0.4),
        (rules.score_temporal_demand, HARD, (2 / 50 - 0.2) / 0.8),
        (rules.score_frustration, HARD, (0.7 - 0.1) / 0.6),
        (rules.score_performance, HARD, (0.6 / 0.8 - 0.5) / 0.5),
    ],
)
def test_the_rubric_worked_by_hand(rule, episode, score):
    assert rule(record(episode)) == pytest.approx(score)


# The prompt ---------------------------------------------------------------------------------------


def test_every_step_that_is_shown_is_read_back_and_scored_by_what_the_reply_asks_for():
    assert tuple(rules.RUBRIC) == CRITERIA
    assert set(CRITERIA) == set(Scores.model_fields) - {"reasoning"}
    seen = record([("A", "12345", 0.4, 0.4, 0.2), *steps(("B", GOOD), ("C", POOR))])
    assert [step.policy for step in seen.steps] == ["A", "B", "C"]
    assert seen.policies == ("A", "B", "C") and (seen.horizon, seen.goal) == (
        EDUCATION.horizon,
        EDUCATION.goal,
    )
    assert seen.steps[0] == rules.TrajectoryStep("A", (0.0, 0.2, 0.4, 0.6, 0.8), 0.4, 0.4, 0.2)


def test_the_judge_does_not_learn_whose_trajectories_it_reads():
    one, other = (
        prompt(log(steps(("A", POOR)), method=name), EDUCATION)
        for name in ("RO scripted-large", "random")
    )
    assert one == other


@pytest.mark.parametrize(
    "wrong, message",
    [
        (log(steps(("A", POOR))).iloc[:0], "is empty"),
        (log(steps(("A", POOR))).drop(columns=["levels", "mastery"]), "lacks mastery, levels"),
    ],
)
def test_a_log_that_cannot_be_judged_is_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        prompt(wrong, EDUCATION)


# Replies ------------------------------------------------------------------------------------------


def test_every_episode_is_scored_by_itself():
    rows, model = scored(
        reply(adaptivity=12.5),
        reply(adaptivity=80),
        episodes=[steps(("A", POOR)), steps(("B", GOOD))],
    )
    assert list(rows["adaptivity"]) == [12.5, 80] and (rows[list(CRITERIA[1:])] == 50).all(
        axis=None
    )
    assert list(rows["item"]) == ["0-0", "0-1"] and set(rows["method"]) == {"RO scripted-large"}
    assert ["1 | B |" in text for text in contents(model.requests)] == [False, True]


def test_a_missing_score_is_asked_for_again_once_and_never_invented():
    rows, _ = scored("no", "no")
    assert rows.loc[0, list(CRITERIA)].isna().all()
    assert (rows.loc[0, "malformed"], rows.loc[0, "calls"]) == (2, 2)
    short = json.dumps({key: value for key, value in FAIR.items() if key != "effort"})
    rows, model = scored(short, reply(effort=2))
    assert dict(rows.loc[0, list(CRITERIA)]) == FAIR | {"effort": 2}
    assert (rows.loc[0, "malformed"], rows.loc[0, "calls"], rows.loc[0, "cost_usd"]) == (1, 2, 1.0)
    first, second = model.requests
    sent_back = second.messages
    assert [turn["role"] for turn in sent_back] == ["system", "user", "assistant", "user"]
    assert sent_back[2]["content"] == short and "'effort'" in sent_back[3]["content"]
    assert first.seed != second.seed


@pytest.mark.parametrize(
    "kind, calls", [("refusal", 2), ("truncated", 2), ("timeout", 1), ("connection", 1)]
)
def test_only_a_judge_that_answered_is_asked_again_and_what_was_billed_counts(kind, calls):
    rows, _ = scored(Failure(kind), reply())
    row = rows.loc[0]
    assert row["calls"] == calls and rows["effort"].isna().any() == (calls == 1)
    assert (row["failures"], row["malformed"]) == ((1, 0) if calls == 1 else (0, 1))
    assert row["cost_usd"] == (0.0 if calls == 1 else 1.0)


@pytest.mark.parametrize("model", STRENGTHS)
def test_the_scripted_models_judge(model, tmp_path):
    episode = steps(*zip("ABCABBCA" * 3, [POOR, GOOD, GOOD, POOR] * 6, strict=True))
    trajectories = log(episode)

    async def ask():
        async with open_models(SMOKE.llm, [model], "test", tmp_path, tmp_path) as models:
            return await judge(models[model], trajectories, EDUCATION)

    rows = asyncio.run(ask())
    assert list(rows["backend"]) == ["scripted"] and rows.loc[0, "tokens_in"] > 800
    assert rows.loc[0, list(CRITERIA)].between(0, 100).all() and rows.equals(asyncio.run(ask()))
    told = {name: 100 * rule(record(episode)) for name, rule in rules.RUBRIC.items()}
    if model == "scripted-large":  # its noise is small
        assert all(abs(rows.loc[0, name] - min(max(told[name], 0), 100)) < 5 for name in CRITERIA)


def test_a_step_is_a_line():
    row = log([("SO-d1", "55535", 0.4, 0.5, 0.2)]).to_dict("records")[0]
    assert step_line(row) == "1 | SO-d1 | challenge | 55535 | 0.40 > 0.50 | 1 | 0.10 0.00 0.20"


def test_a_fallback_is_marked_and_still_read():
    shown = prompt(log(steps(("A", POOR), ("B", POOR)), fallback=[False, True]), EDUCATION)[1][
        "content"
    ]
    assert "2 | B (fallback) | challenge" in shown and "stood in" in shown
    assert [step.policy for step in rules.read_trajectory(shown).steps] == ["A", "B"]
    assert "fallback" not in prompt(log(steps(("A", POOR))), EDUCATION)[1]["content"]


@pytest.mark.parametrize("fallback", [True, False])
def test_the_prompt_has_no_holes(fallback):
    for turn in prompt(log(steps(("A", POOR), ("B", GOOD)), fallback=fallback), EDUCATION):
        assert turn["content"] == turn["content"].strip()
        assert not any(
            hole in turn["content"] for hole in ("\n\n\n", "{{", "{%", "None", "Undefined", "  ")
        )


def test_small_judges_what_is_left_in_its_window():
    long = "\n\n".join(
        turn["content"]
        for turn in prompt(log([("A", *POOR)] * 50 + [("B", *POOR)] * 50), EDUCATION)
    )
    seen = rules.read_trajectory(long[-STRENGTHS["scripted-small"].window :])
    assert 0 < len(seen.steps) < 50 and {step.policy for step in seen.steps} == {"B"}


@pytest.mark.parametrize("score", [101, -1, "40", "40/100", None, True, [3], 1e400])
def test_scores_are_numbers_from_0_to_100(score):
    with pytest.raises(InvalidReply, match="frustration"):
        read(reply(frustration=score))
    assert read(f"My verdict:\n```json\n{reply(effort=4, gist='fine')}\n```").effort == 4.0


def test_scripted_breaks_of_a_verdict_are_noticed():
    spoiled = 0
    for spoil in malformed_replies.JUDGE_BREAKS:
        said, _ = spoil(
            {"reasoning": "so", **FAIR}, malformed_replies.DecisionState(), seeds.rng("t")
        )
        try:
            assert read(said).model_dump() == FAIR
        except InvalidReply:
            spoiled += 1
    assert spoiled == len({"twice", "truncated", "refused", "incomplete", "out_of_range"})
