"""A language model as judge."""

import math

import pytest

from lib.llm.chat_model import ChatModel, ChatRequest, Failure, Reply
from lib.llm.scripted import complete_chat
from lib.tasks.scorers import make_scorer
from lib.tasks.scorers.judge_scorer import JudgeScorer, make_messages
from tests.tasks.scorers.items import make_item

ITEM = make_item("Paris", prompt="What is the capital of France?", alternatives=("Lutetia",))


class Judge(ChatModel):
    """A judge that explains first and grades last, from a list of replies."""

    name = "big"
    backend = "scripted"

    def __init__(self, *replies: str | Failure) -> None:
        self.replies = list(replies)
        self.requests: list[ChatRequest] = []

    async def reply_to(self, request: ChatRequest) -> Reply:
        self.requests.append(request)
        reply = self.replies[len(self.requests) - 1]
        if isinstance(reply, Failure):
            return Reply("", self.name, self.backend, failure=reply)
        return Reply(reply, self.name, self.backend)


def test_the_judge_s_grades_are_the_scores():
    judge = Judge(
        "It says Paris, as the reference does.\nScore: 1",
        "It names two cities.\n**Score:** 0.5",
        "Score: 0/10",
    )
    scorer = make_scorer("judge:big", {"big": judge})
    scores = scorer.score([ITEM] * 3, ["Paris", "Paris or Lyon", "Rome"])
    assert scorer.name == "judge:big"
    assert [score.value for score in scores] == [1, 0.5, 0]
    assert scores[0].explanation.startswith("It says Paris")


def test_a_grade_that_cannot_be_read_is_lost_and_never_a_default():
    [score] = JudgeScorer(Judge("I would say it is rather good.")).score([ITEM], ["Paris"])
    assert score.lost and math.isnan(score.value)
    assert score.failure.startswith("malformed: the judge wrote no grade")
    assert "rather good" in score.failure


@pytest.mark.parametrize("kind", ["connection", "rate_limit", "refusal", "truncated"])
def test_a_failure_of_the_judge_is_passed_on(kind):
    judge = Judge(Failure(kind, "what happened"), "Score: 1")
    lost, graded = JudgeScorer(judge).score([ITEM] * 2, ["Paris", "Paris"])
    assert math.isnan(lost.value) and lost.failure == f"{kind}: what happened"
    assert graded.value == 1 and graded.failure is None


def test_the_judge_reads_question_references_and_answer_but_no_thought():
    judge = Judge("Score: 1")
    JudgeScorer(judge).score([ITEM], ["<think>secret thought</think>It is Paris."])
    [request] = judge.requests
    system, user = request.messages
    assert (system["role"], user["role"]) == ("system", "user")
    for text in ("What is the capital of France?", "Paris\nor: Lutetia", "It is Paris."):
        assert text in user["content"]
    assert "secret thought" not in user["content"]
    assert "Score: <number>" in system["content"]
    assert request.temperature == 0 and request.caller == "judge"


def test_options_and_earlier_messages_are_part_of_the_question():
    item = make_item(
        "A",
        prompt="And this?",
        choices=("red", "blue"),
        history=(("system", "Be brief."), ("user", "Hello")),
    )
    content = make_messages(item, "")[1]["content"]
    for text in ("[system] Be brief.", "Hello", "And this?", "A) red", "B) blue", "(no answer)"):
        assert text in content
    listed = make_item("A", prompt="red or blue?", choices=("red", "blue"))
    assert "A) red" not in make_messages(listed, "x")[1]["content"]


def test_the_scripted_models_can_be_the_judge():
    values = {}
    for answer in ("Paris", "Rome"):
        body = {
            "model": "scripted-large",
            "messages": make_messages(ITEM, answer),
            "max_tokens": 100,
            "seed": 0,
        }
        text = complete_chat(body)["choices"][0]["message"]["content"]
        [score] = JudgeScorer(Judge(text)).score([ITEM], [answer])
        values[answer] = score.value
    assert values["Paris"] > values["Rome"]
