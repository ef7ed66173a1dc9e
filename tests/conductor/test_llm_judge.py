"""A language model as judge: what it is shown, which replies count, and what an unusable judge costs."""

import asyncio
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from lib import config
from lib.conductor import data
from lib.conductor.llm_judge import (
    NO_OPINION,
    TRIES,
    VOTES,
    JudgeReward,
    majority,
    prompt,
    read,
    voted,
)
from lib.experiment import seeds
from lib.llm.client import Client
from lib.llm.client_factory import opened
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import ConfigurationError, ReplyError
from lib.llm.scripted import STRENGTHS, respond
from lib.llm.scripted.grading import GRADE_ASKED, grade
from lib.llm.transport import InProcess, completion

LLM = config.load("smoke").llm
EXACT = replace(STRENGTHS["scripted-large"], noise=0.0)


class Answers:
    """A client that says the given things in turn, and remembers how it was asked; opens itself."""

    def __init__(self, *texts) -> None:
        self.texts, self.asked, self.closed = list(texts), [], 0

    def __call__(self):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        self.closed += 1

    async def chat(self, model, messages, **options):
        self.asked.append((model, messages, options))
        await asyncio.sleep(0)
        text = self.texts[(len(self.asked) - 1) % len(self.texts)]
        if isinstance(text, Exception):
            raise text
        return SimpleNamespace(text=text)


def graded(
    client, *replies: str, think: bool = False, asked="What?"
) -> tuple[JudgeReward, list[float]]:
    judge = JudgeReward(client, "some", think)
    return judge, judge(
        [asked] * len(replies), replies, ["seven"] * len(replies), row=[0] * len(replies)
    )


GOOD = "<answer> seven </answer>"

# Numbers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "1.7",
        "7",
        "0.5 because",
        "",
        " ",
        "-0.5",
        "0,5",
        "0.5.",
        "01",
        "10",
        "1e-1",
        "nan",
        "half",
        "1.01",
        "0.5 0.6",
        ".",
    ],
)
def test_anything_else_is_no_number(text):
    assert read(text) is None


# What is sent -------------------------------------------------------------------------------------


def test_replies_without_the_form_are_not_sent_and_get_nothing():
    client = Answers("0.9")
    _, scores = graded(
        client, "seven", GOOD, f"{GOOD} and more", "<answer> seven", f"<think> a </think> {GOOD}"
    )
    assert scores == [0.0, 0.9, 0.0, 0.0, 0.9] and len(client.asked) == 2
    _, scores = graded(client, GOOD, f"<think> a </think> {GOOD}", think=True)
    assert scores == [0.0, 0.9] and len(client.asked) == 3


def test_the_judge_sees_question_reference_and_reply_and_nothing_of_the_training():
    client = Answers("0.9")
    graded(client, GOOD, asked=[{"role": "user", "content": "How many {x} are 3 + 4 ?"}])
    ((model, messages, options),) = client.asked
    assert model == "some" and messages == prompt("How many {x} are 3 + 4 ?", "seven", GOOD)
    (message,) = messages
    for part in (
        "How many {x} are 3 + 4 ?",
        "# Reference\nseven\n",
        f"# Answer\n{GOOD}\n",
        GRADE_ASKED,
    ):
        assert part in message["content"]
    assert options["who"] == "judge" and options["sample"] == 0 and "temperature" not in options


# A judge that is of no use ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble", ["what a question", "7", ReplyError("timeout", "late")], ids=str
)
def test_who_says_no_number_three_times_has_no_opinion_and_is_counted(trouble):
    client = Answers(trouble)
    judge, scores = graded(client, GOOD, "no form", GOOD)
    assert scores == [NO_OPINION, 0.0, NO_OPINION] and NO_OPINION == 0.5
    assert judge.lost == 2 and len(client.asked) == 2 * TRIES == 6


@pytest.mark.parametrize("trouble", ["what a question", ReplyError("truncated", "cut")], ids=str)
def test_who_says_it_at_the_second_or_third_time_is_heard(trouble):
    for before in (1, 2):
        client = Answers(*[trouble] * before, "0.25")
        judge, scores = graded(client, GOOD)
        assert scores == [0.25] and judge.lost == 0 and len(client.asked) == before + 1


def test_every_try_is_another_request():
    """Or a cassette, or a judge without chance, would say the same again."""
    client = Answers("?")
    graded(client, GOOD)
    assert [options["sample"] for _, _, options in client.asked] == [0, 1, 2]
    assert len({options["seed"] for _, _, options in client.asked}) == TRIES


@pytest.mark.parametrize(
    "trouble", [ConfigurationError("no key"), BudgetExceeded("judge", 1.0, 0.9, 0.2), KeyError("a")]
)
def test_what_stops_a_run_stops_it(trouble):
    client = Answers(trouble)
    with pytest.raises(type(trouble)):
        graded(client, GOOD)
    with pytest.raises(type(trouble)):
        majority(client, "some", ["What?"], ["seven"], [GOOD])
    assert client.closed == 2


# Afterwards ---------------------------------------------------------------------------------------

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
    assert voted(text) is verdict


LOST = ReplyError("timeout", "late")


@pytest.mark.parametrize(
    ("votes", "verdict"),
    [
        ((YES, YES, NO), True),
        ((NO, YES, NO), False),
        ((YES, YES, YES), True),
        (("?", YES, LOST), True),
        ((NO, LOST, YES), None),
        ((LOST, "", "?"), None),
    ],
)
def test_the_majority_of_three_counts_and_lost_votes_do_not(votes, verdict):
    client = Answers(*votes)
    assert majority(client, "some", ["What?"], ["seven"], ["8"]) == [verdict]
    assert len(client.asked) == VOTES == 3 and client.closed == 1
    assert [options["sample"] for _, _, options in client.asked] == [0, 1, 2]
    assert (
        client.asked[0][1]
        == prompt("What?", "seven", "8", verdict=True)
        != prompt("What?", "seven", "8")
    )


def test_the_scripted_judge_finds_the_reference_good_and_something_else_not(tmp_path):
    items = data.draw("test", 8)
    ask = partial(majority, partial(opened, LLM, "test", tmp_path, tmp_path), "scripted-large")
    asked, references = [item.prompt for item in items], [item.answer for item in items]
    assert ask(asked, references, [item.solution for item in items]) == [True] * 8
    assert ask(asked, references, ["<answer> nothing </answer>"] * 8) == [False] * 8


# With a client ------------------------------------------------------------------------------------


def scripted(tmp_path, model: str = "scripted-large") -> JudgeReward:
    return JudgeReward(partial(opened, LLM, "test", tmp_path, tmp_path), model)


def test_it_can_be_asked_again_though_more_wait_than_may_ask_at_once():
    """Every step of a training asks anew. An endpoint makes everybody wait; the scripted models do not."""

    async def slow(body):
        await asyncio.sleep(0.001)
        return completion(body["model"], "0.5", 1, 1)

    many = 3 * LLM.models["scripted-large"].concurrency
    judge = JudgeReward(partial(Client, LLM, {"scripted": InProcess(slow)}), "scripted-large")
    for _ in range(3):
        assert judge(["What?"] * many, [GOOD] * many, ["seven"] * many) == [0.5] * many


def test_of_two_answers_the_better_is_named_wherever_it_stands():
    """A judge that reads well goes for the reference; one that always says A is split, two votes to one."""
    told = partial(opened, LLM, "pairs", "/nowhere", "/nowhere")
    good, bad = "<answer> seven </answer>", "<answer> nine </answer>"
    asked = (told, "scripted-large", ["What?"] * 3, ["seven"] * 3)
    assert majority(*asked, [good, bad, good], [bad, good, good]) == [True, False, None]
    first = Answers("So the better answer is A")
    assert majority(first, "some", ["What?"], ["seven"], [bad], [good]) == [True]
    shown = [messages[0]["content"] for _, messages, _ in first.asked]
    assert [text.index(bad) < text.index(good) for text in shown] == [True, False, True]
    assert majority(Answers("neither"), "some", ["What?"], ["seven"], [bad], [good]) == [None]


# The scripted grader ------------------------------------------------------------------------------


def mark(reference: str, answer: str, strength=EXACT) -> float:
    return float(
        grade(
            prompt("What?", reference, answer)[0]["content"], strength, seeds.rng("test of grading")
        )
    )


def test_the_grade_is_the_f1_of_the_words():
    # shared: the (twice), cat; 3 of 5 given and 3 of 4 wanted: 2 * 3 / 9
    assert mark("the cat the mat", "<answer> the big cat the end </answer>") == 0.67
    assert mark("a b", "<answer> b a </answer>") == 1.0
    assert mark("a b", "<answer> c d </answer>") == 0.0
    assert mark("a b", "<answer> a a a a </answer>") == 0.33
    assert (
        mark("a b", "<think> x y z </think> <answer> a b </answer>") == 1.0
    )  # thoughts are not graded
    assert mark("a b", "<answer></answer>") == 0.0


@pytest.mark.parametrize("name", list(STRENGTHS))
def test_scripted_models_grade_and_never_spoil_it(name):
    """A grade that is always read; the window of the smallest one hides the reference of a long question."""
    text = prompt("What?", "a b", "<answer> a b </answer>")[0]["content"]
    for seed in range(30):
        assert read(respond(text, STRENGTHS[name], seeds.rng("x", seed=seed))[0]) is not None
        vote = prompt("What?", "a b", "<answer> a b </answer>", verdict=True)[0]["content"]
        assert voted(respond(vote, STRENGTHS[name], seeds.rng("x", seed=seed))[0])
    long = prompt("What?" * 1_000, "a b", "<answer> " + "a b " * 400 + "</answer>")[0]["content"]
    said = respond(long, STRENGTHS[name], seeds.rng("x"))[0]
    assert (said == "0.50") == (name == "scripted-small")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0.73", 0.73),
        ("1", 1.0),
        (".5", 0.5),
        (" 0.0\n", 0.0),
        ("0", 0.0),
        ("1.00", 1.0),
        ("\t0.125 ", 0.125),
    ],
)
def test_a_number_from_0_to_1_is_read(text, number):
    assert read(text) == number
    judge, scores = graded(Answers(text), GOOD)
    assert scores == [number] and judge.lost == 0


def test_texts_and_messages_are_the_same_to_it():
    client = Answers("0.9")
    graded(client, GOOD)
    judge = JudgeReward(client, "some")
    judge(
        [[{"role": "user", "content": "What?"}]],
        [[{"role": "assistant", "content": GOOD}]],
        ["seven"],
    )
    assert client.asked[0][1] == client.asked[1][1]


def test_scores_are_in_the_order_of_the_replies():
    class Echo(Answers):
        async def chat(self, model, messages, **_):
            said = messages[0]["content"].split("<answer> ")[1].split(" ")[0]
            await asyncio.sleep(0.002 * (10 - int(said)))  # the first is the last
            return SimpleNamespace(text=f"0.{said}")

    _, scores = graded(Echo(), *(f"<answer> {i} </answer>" for i in range(10)))
    assert scores == [i / 10 for i in range(10)]


def test_the_scripted_judge_prefers_the_reference_to_something_else(tmp_path):
    items = data.draw("test", 8)
    other = [
        f"<answer> {items[i - 1].answer} </answer>" for i in range(8)
    ]  # of the category before
    asked, references = [item.prompt for item in items], [item.answer for item in items]
    good = scripted(tmp_path)(asked, [item.solution for item in items], references)
    bad = scripted(tmp_path)(asked, other, references)
    assert min(good) > 0.9 and max(bad) < 0.6
    assert scripted(tmp_path)(asked, other, references) == bad
    assert not list(tmp_path.iterdir())  # no cassette and no purse where nobody is paid


def test_it_works_where_a_loop_is_running(tmp_path):
    async def notebook():
        return scripted(tmp_path)(["What?"], [GOOD], ["seven"])

    assert asyncio.run(notebook())[0] > 0.9


def test_where_the_parts_cannot_be_seen_the_grade_is_a_half():
    for text in ("", "# Answer\na\n", "# Reference\na\n", f"{GRADE_ASKED}\n"):
        assert grade(text, EXACT, seeds.rng("test of grading")) == "0.50"


def test_noise_stays_within_0_and_1_and_is_of_the_request():
    noisy = replace(EXACT, noise=0.5)
    grades = [
        float(grade(prompt("?", "a b", GOOD)[0]["content"], noisy, seeds.rng("x", seed=i)))
        for i in range(50)
    ]
    assert min(grades) == 0.0 and max(grades) == 1.0 and len(set(grades)) > 10
    assert mark("a b", GOOD, noisy) == mark("a b", GOOD, noisy)
