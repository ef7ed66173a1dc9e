"""The stand-in for a prompted policy: it goes by the look of a question, or by the nearest example that paid."""

import json
from dataclasses import replace

import pytest

from lib.agent_configuration import prompted_baseline
from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.prompted_baseline import Example, write_messages
from lib.experiment import seeds
from lib.llm.scripted import STRENGTHS, respond
from lib.llm.scripted.model_strength import Strength

SURE = Strength(window=None, noise=0.0, malformed_rate=0.0, policies_tried=None, uses_summary=True)
FOLLOWED, OTHER = Configuration((7, 1, 2, 1, 0, 2)), Configuration((4, 8, 0, 0, 0, 0))


def configured(question: str, *examples: Example, strength: Strength = SURE, seed: int = 0) -> dict:
    """What the stand-in replies to the real prompt."""
    text = "\n\n".join(message["content"] for message in write_messages(question, examples))
    said, finish = respond(text, strength, seeds.rng("test", "configuring", seed=seed))
    assert finish == "stop"
    return json.loads(said)


@pytest.mark.parametrize(
    "question, workflow, tools1, tools2, budgets",
    [
        ("Who has most ?", "direct", [], [], ["low", "medium", "medium"]),
        ("3 + 4 * 2 - 5 = ?", "reason", ["calculator"], [], ["high", "medium", "medium"]),
        (
            "What is the pet of Ana ?",
            "reason",
            ["search", "lookup"],
            [],
            ["high", "medium", "medium"],
        ),
        (
            "What is the number of the friend of Ana * 38 ?",
            "verify",
            ["calculator", "search", "lookup"],
            ["calculator"],
            ["high", "medium", "medium"],
        ),
        (
            "Ana has 3 pens . Bo has 7 pens . Who has most ?",
            "verify",
            ["search", "lookup"],
            [],
            ["high", "medium", "medium"],
        ),
    ],
)
def test_without_examples_the_words_of_the_question_decide(
    question, workflow, tools1, tools2, budgets
):
    told = {"workflow": workflow, "tools1": tools1, "tools2": tools2, "budgets": budgets}
    assert configured(question) == told
    prompted_baseline.parse_reply(json.dumps(told))


def test_the_nearest_example_that_paid_is_followed_and_of_equally_near_ones_the_first():
    near, far = Example("What is the pet of Bo ?", FOLLOWED, 4.0), Example("3 + 4 = ?", OTHER, 4.9)
    assert configured("What is the pet of Ana ?", far, near) == prompted_baseline.to_reply_fields(
        FOLLOWED
    )
    assert configured("3 + 9 = ?", far, near) == prompted_baseline.to_reply_fields(OTHER)
    worse = Example(near.question, OTHER, 2.0)
    assert configured(near.question, worse, near) == prompted_baseline.to_reply_fields(OTHER)


@pytest.mark.parametrize(
    "paid, followed", [(1.01, True), (1.0, False), (0.5, False), (-0.5, False)]
)
def test_an_example_that_did_not_pay_is_not_followed(paid, followed):
    told = configured(
        "What is the pet of Ana ?", Example("What is the pet of Bo ?", FOLLOWED, paid)
    )
    assert (told == prompted_baseline.to_reply_fields(FOLLOWED)) == followed


def test_noise_makes_all_budgets_medium_as_often_as_its_strength_says():
    noisy = replace(SURE, noise=0.3)
    spoilt = [
        configured("3 + 4 * 2 = ?", strength=noisy, seed=s)["budgets"] == ["medium"] * 3
        for s in range(200)
    ]
    assert 0.2 < sum(spoilt) / 200 < 0.4


@pytest.mark.parametrize("name", ["scripted-small", "scripted-medium"])
def test_every_stand_in_answers_a_prompt_with_many_examples(name):
    shown = [Example(f"What is the pet of Ana {i} ?", FOLLOWED, 4.0) for i in range(20)]
    assert prompted_baseline.parse_reply(
        json.dumps(configured("What is the pet of Bo ?", *shown, strength=STRENGTHS[name]))
    )
