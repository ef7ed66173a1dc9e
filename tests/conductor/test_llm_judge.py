"""A language model as judge: what it is shown, which replies count, and what an unusable judge costs."""

from dataclasses import replace
from functools import partial

import pytest

from lib import config
from lib.conductor import data
from lib.conductor.llm_judge import (
    TRIES,
    VOTES,
    JudgeReward,
    parse_verdict,
    vote_by_majority,
    write_grading_prompt,
)
from lib.experiment import seeds
from lib.llm.chat_model import Failure
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import ConfigurationError, InfrastructureError, LLMError
from lib.llm.open_models import open_models
from lib.llm.scripted import STRENGTHS, respond
from lib.llm.scripted.grading import GRADE_ASKED, grade_answer
from lib.tasks.scorers.extraction import read_score
from tests.llm.stub_model import StubModel, contents

LLM = config.load("smoke").llm
EXACT = replace(STRENGTHS["scripted-large"], noise=0.0)
GOOD = "<answer> seven </answer>"
LATE = Failure("timeout", "late")


def judge_replies(
    model: StubModel, *replies: str, require_thought: bool = False, question="What?"
) -> tuple[JudgeReward, list[float]]:
    judge = JudgeReward(model.open, model.name, require_thought)
    questions, references = [question] * len(replies), ["seven"] * len(replies)
    return judge, judge(questions, replies, references, row=[0] * len(replies))


# What is sent -------------------------------------------------------------------------------------


def test_replies_without_the_form_are_not_sent_and_get_nothing():
    model = StubModel("0.9")
    replies = ("seven", GOOD, f"{GOOD} and more", "<answer> seven", f"<think> a </think> {GOOD}")
    _, scores = judge_replies(model, *replies)
    assert scores == [0.0, 0.9, 0.0, 0.0, 0.9] and len(model.requests) == 2
    _, scores = judge_replies(model, GOOD, f"<think> a </think> {GOOD}", require_thought=True)
    assert scores == [0.0, 0.9] and len(model.requests) == 3


def test_the_judge_sees_question_reference_and_reply_and_nothing_of_the_training():
    model = StubModel("0.9")
    judge_replies(model, GOOD, question=[{"role": "user", "content": "How many {x} are 3 + 4 ?"}])
    (request,) = model.requests
    assert request.messages == write_grading_prompt("How many {x} are 3 + 4 ?", "seven", GOOD)
    (text,) = contents(model.requests)
    for part in ("How many {x} are 3 + 4 ?", "# Reference\nseven\n", f"# Answer\n{GOOD}\n"):
        assert part in text
    assert GRADE_ASKED in text
    assert request.caller == "judge" and request.sample == 0 and request.temperature is None


def test_texts_and_messages_are_the_same_to_it():
    model = StubModel("0.9")
    judge_replies(model, GOOD)
    judge = JudgeReward(model.open, model.name)
    judge(
        [[{"role": "user", "content": "What?"}]],
        [[{"role": "assistant", "content": GOOD}]],
        ["seven"],
    )
    assert model.requests[0].messages == model.requests[1].messages


def test_scores_are_in_the_order_of_the_replies():
    def score_by_answer(request):
        answer = request.messages[0]["content"].split("<answer> ")[1].split(" ")[0]
        return f"0.{answer}"

    replies = [f"<answer> {number} </answer>" for number in range(10)]
    _, scores = judge_replies(StubModel(answer=score_by_answer), *replies)
    assert scores == [number / 10 for number in range(10)]


@pytest.mark.parametrize(
    ("text", "score"), [("0.73", 0.73), ("Score: 0.8", 0.8), ("**0.8**", 0.8), ("80%", 0.8)]
)
def test_numbers_are_read_as_people_write_them(text, score):
    judge, scores = judge_replies(StubModel(text), GOOD)
    assert scores == [pytest.approx(score)] and judge.num_unparsed == 0


# A judge that is of no use ------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", ["what a question", LATE], ids=str)
def test_a_judgement_without_a_number_is_lost_after_three_tries_and_counted(trouble):
    model = StubModel(trouble)
    judge, scores = judge_replies(model, GOOD, "no form", GOOD)
    assert judge.num_unparsed == 2 and len(model.requests) == 2 * TRIES == 6
    assert scores == [0.0, 0.0, 0.0]  # nothing is learned, not even the form


def test_a_lost_judgement_gets_the_mean_of_its_group():
    def lose_nine(request):
        text = request.messages[0]["content"]
        return "no idea" if "> nine" in text else "0.2" if "> one" in text else "0.6"

    replies = [f"<answer> {word} </answer>" for word in ("one", "two", "nine")]
    _, scores = judge_replies(StubModel(answer=lose_nine), *replies)
    assert scores == [0.2, 0.6, pytest.approx(0.4)]


def test_a_judge_that_writes_no_number_for_many_replies_ends_the_run():
    with pytest.raises(LLMError, match=r"stub as judge: 5 of 5 judgements hold no number"):
        judge_replies(StubModel("what a question"), *[GOOD] * 5)


@pytest.mark.parametrize("trouble", ["what a question", Failure("truncated")], ids=str)
def test_a_number_at_the_second_or_third_try_counts(trouble):
    for num_before in (1, 2):
        model = StubModel(*[trouble] * num_before, "0.25")
        judge, scores = judge_replies(model, GOOD)
        assert (
            scores == [0.25] and judge.num_unparsed == 0 and len(model.requests) == num_before + 1
        )


def test_every_try_is_another_request():
    """Or a recording, or a judge without chance, would say the same again."""
    model = StubModel("?")
    judge_replies(model, GOOD)
    assert [request.sample for request in model.requests] == [0, 1, 2]
    assert len({request.seed for request in model.requests}) == TRIES


STOPS = [
    ConfigurationError("no key"),
    BudgetExceeded("judge", 1.0, 0.9, 0.2),
    InfrastructureError("down"),
    KeyError("a"),
]


@pytest.mark.parametrize("trouble", STOPS, ids=lambda error: type(error).__name__)
def test_what_stops_a_run_stops_it(trouble):
    model = StubModel(trouble)
    with pytest.raises(type(trouble)):
        judge_replies(model, GOOD)
    with pytest.raises(type(trouble)):
        vote_by_majority(model.open, model.name, ["What?"], ["seven"], [GOOD])
    assert model.num_closed == 2


# Votes --------------------------------------------------------------------------------------------

YES, NO = "It fits.\nSo the result is True", "It does not.\nSo the result is False."


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (YES, True),
        (NO, False),
        ("So the result is True or False", None),
        ("So the result is True, as I said", None),
        ("True", None),
        ("", None),
        ("the result is true", None),
        (f"{NO}\n{YES}\n", True),
    ],
)
def test_a_verdict_is_what_stands_at_the_end(text, verdict):
    assert parse_verdict(text) is verdict


@pytest.mark.parametrize(
    ("votes", "verdict"),
    [
        ((YES, YES, NO), True),
        ((NO, YES, NO), False),
        ((YES, YES, YES), True),
        (("?", YES, LATE), True),
        ((NO, LATE, YES), None),
        ((LATE, "", "?"), None),
    ],
)
def test_the_majority_of_three_counts_and_lost_votes_do_not(votes, verdict):
    model = StubModel(*votes)
    assert vote_by_majority(model.open, model.name, ["What?"], ["seven"], ["8"]) == [verdict]
    assert len(model.requests) == VOTES == 3 and model.num_closed == 1
    assert [request.sample for request in model.requests] == [0, 1, 2]
    assert model.requests[0].messages == write_grading_prompt("What?", "seven", "8", verdict=True)


def open_scripted(folder):
    return partial(open_models, LLM, ["scripted-large"], "test", folder, folder)


def test_the_scripted_judge_finds_the_reference_good_and_something_else_not(tmp_path):
    items = data.draw_items("test", 8)
    ask = partial(vote_by_majority, open_scripted(tmp_path), "scripted-large")
    questions, references = [item.prompt for item in items], [item.reference for item in items]
    assert ask(questions, references, [item.solution for item in items]) == [True] * 8
    assert ask(questions, references, ["<answer> nothing </answer>"] * 8) == [False] * 8


def test_of_two_answers_the_better_is_named_wherever_it_stands(tmp_path):
    """A judge that reads well goes for the reference; one that always says A is split, two votes to one."""
    good, bad = "<answer> seven </answer>", "<answer> nine </answer>"
    arguments = (open_scripted(tmp_path), "scripted-large", ["What?"] * 3, ["seven"] * 3)
    assert vote_by_majority(*arguments, [good, bad, good], [bad, good, good]) == [True, False, None]
    first = StubModel("So the better answer is A")
    assert vote_by_majority(first.open, "stub", ["What?"], ["seven"], [bad], [good]) == [True]
    texts = contents(first.requests)
    assert [text.index(bad) < text.index(good) for text in texts] == [True, False, True]
    neither = StubModel("neither")
    assert vote_by_majority(neither.open, "stub", ["What?"], ["seven"], [bad], [good]) == [None]


# The scripted grader ------------------------------------------------------------------------------


def mark(reference: str, answer: str, strength=EXACT) -> float:
    text = write_grading_prompt("What?", reference, answer)[0]["content"]
    return float(grade_answer(text, strength, seeds.rng("test of grading")))


def test_the_grade_is_the_f1_of_the_words():
    # shared: the (twice), cat; 3 of 5 given and 3 of 4 wanted: 2 * 3 / 9
    assert mark("the cat the mat", "<answer> the big cat the end </answer>") == 0.67
    assert mark("a b", "<answer> b a </answer>") == 1.0
    assert mark("a b", "<answer> c d </answer>") == 0.0
    assert mark("a b", "<answer> a a a a </answer>") == 0.33
    # Reasoning is not graded.
    assert mark("a b", "<think> x y z </think> <answer> a b </answer>") == 1.0
    assert mark("a b", "<answer></answer>") == 0.0


@pytest.mark.parametrize("name", list(STRENGTHS))
def test_scripted_models_grade_and_never_spoil_it(name):
    """A grade that is always read; the window of the smallest one hides the reference of a long question."""
    text = write_grading_prompt("What?", "a b", "<answer> a b </answer>")[0]["content"]
    vote = write_grading_prompt("What?", "a b", "<answer> a b </answer>", verdict=True)[0][
        "content"
    ]
    for seed in range(30):
        grade = respond(text, STRENGTHS[name], seeds.rng("x", seed=seed))[0]
        assert read_score(grade) == float(grade)
        assert parse_verdict(respond(vote, STRENGTHS[name], seeds.rng("x", seed=seed))[0])
    long = write_grading_prompt("What?" * 1_000, "a b", "<answer> " + "a b " * 400 + "</answer>")[
        0
    ]["content"]
    grade = respond(long, STRENGTHS[name], seeds.rng("x"))[0]
    assert (grade == "0.50") == (name == "scripted-small")
