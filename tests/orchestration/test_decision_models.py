"""Readers of briefs: they are shown enough, they name policies of the menu, and recordings fit what was asked."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

from lib import config
from lib.experiment import artifacts
from lib.language_models.checkpoints import ModelError
from lib.language_models.training.decision_traces import LOOKAHEAD, STATES
from lib.llm.endpoint import Endpoint
from lib.llm.errors import InfrastructureError
from lib.llm.open_models import ChatModels
from lib.orchestration import decision_benchmark, decision_models, lab_model_reader
from lib.orchestration.decision_context import Brief, Rational
from lib.orchestration.llm_reader import ChatModelReader, messages, schema
from tests.llm.server import Answer, Server, certificate, completion, key, settings_of

__all__ = ["certificate", "key"]

SMOKE = config.load("smoke")
CARDS = {
    "SO-d1": {"calm": (0.5, 0.1), "dark": (0.0, 1.0), "wet": (0.3, 0.3)},
    "SO-d2": {"calm": (0.2, 0.9), "dark": (0.9, 0.0), "wet": (0.2, 0.2)},
}
KO = Brief("KO", ("speed", "care"), (0.75, 0.25), ("SO-d1", "SO-d2"), {"left": 3}, "dark", CARDS)
TO = replace(KO, kind="TO", cards={}, looks={"SO-d1": (0.4, 0.8), "SO-d2": (0.8, 0.1)}, steps=1)
POSED = decision_benchmark.load()
BRIEFS = [each.brief for each in POSED]


@pytest.fixture(scope="module")
def lab():
    return lab_model_reader.Taught(SMOKE.lab)


# In the lab's words ---------------------------------------------------------------------------------


def test_a_rational_reader_of_the_lab_s_words_picks_what_it_picks_of_the_numbers():
    """Nothing that decides is lost on the way to the lab's words, but for weights and gaps that are rounded away."""
    correct, lost = 0, []
    for brief in BRIEFS:
        told, behind = lab_model_reader.situation(brief)
        worth = dict(zip(brief.names, brief.worth(), strict=True))
        lost.append(max(worth.values()) - worth[behind[told.ranking[0]]])
        correct += lost[-1] < 1e-9
    assert correct / len(BRIEFS) > 0.95 and max(lost) < 0.02


def test_ko_to_and_ro_differ_in_which_numbers_stand_there():
    cards, looks, deep = (
        lab_model_reader.situation(brief)[0] for brief in (KO, TO, replace(TO, kind="RO", steps=3))
    )
    assert cards.state in STATES and looks.state == LOOKAHEAD and looks == deep
    assert cards.weights == looks.weights and list(cards.values) == list(looks.values)
    assert list(cards.values.values()) == [(0, 99), (89, 0)]  # of the page that holds in the dark


def test_what_a_policy_is_called_changes_no_number():
    called = {"SO-d1": "first", "SO-d2": "second"}
    other = replace(
        KO,
        names=tuple(called.values()),
        cards={called[name]: pages for name, pages in CARDS.items()},
    )
    one, two = (lab_model_reader.situation(brief)[0] for brief in (KO, other))
    assert list(one.values.values()) == list(two.values.values()) and list(one.values) != list(
        two.values
    )


def test_the_lab_reader_names_policies_of_the_menu_and_company_changes_no_choice(lab):
    chosen = lab.choose(BRIEFS[:40])
    assert all(name in brief.names for name, brief in zip(chosen, BRIEFS, strict=False))
    alone = lab_model_reader.Taught(SMOKE.lab)
    assert [alone.choose([brief])[0] for brief in BRIEFS[:12]] == chosen[:12]


def test_the_lab_reader_reads_far_better_than_chance_and_what_the_query_weighs(lab):
    rows = (
        decision_benchmark.answers([lab, decision_benchmark.UniformDecider()], POSED)
        .groupby("method")[["correct", "reward"]]
        .mean()
    )
    assert rows.loc["lab-orchestrator", "correct"] > rows.loc["random", "correct"] + 0.3
    assert rows.loc["lab-orchestrator", "reward"] > rows.loc["random", "reward"] / 3
    sides = [replace(TO, weights=weights) for weights in ((0.9, 0.1), (0.1, 0.9))]
    assert lab.choose(sides) == ["SO-d2", "SO-d1"]


def test_the_lab_reader_finds_the_page_of_the_situation(lab):
    assert lab.choose([KO, replace(KO, situation="calm")]) == Rational().choose(
        [KO, replace(KO, situation="calm")]
    )


def test_a_menu_of_more_policies_than_there_are_names_is_refused():
    names = tuple(f"p{i}" for i in range(40))
    with pytest.raises(ValueError, match="names for"):
        lab_model_reader.situation(replace(TO, names=names, looks=dict.fromkeys(names, (0.1, 0.2))))


# Named in the parameters ----------------------------------------------------------------------------


def test_a_reader_is_made_by_its_name_and_known_by_what_decides_its_choices():
    assert decision_models.reader("rational", SMOKE).choose([TO]) == ["SO-d2"]
    assert decision_models.describe_reader("rational", SMOKE.lab, SMOKE.llm) == {}
    released = artifacts.read_json("data/lab/lab-orchestrator.json")["sha256"]
    assert (
        decision_models.describe_reader("lab-orchestrator", SMOKE.lab, SMOKE.llm)["weights"]
        == released
    )
    assert decision_models.reader("scripted-small", SMOKE).backend == "scripted"
    with pytest.raises(ValueError, match="no reader; there are rational"):
        decision_models.reader("nobody", SMOKE)


def test_a_reader_of_the_lab_is_made_of_what_a_job_holds_of_it(lab):
    described = json.loads(
        artifacts.to_json(decision_models.describe_reader("lab-orchestrator", SMOKE.lab, SMOKE.llm))
    )
    of_job = decision_models.make_reader("lab-orchestrator", described, SMOKE.llm)
    assert of_job.choose(BRIEFS[:5]) == lab.choose(BRIEFS[:5])


def test_released_weights_of_another_recipe_are_no_reader():
    models = dict(SMOKE.lab.models)
    models["lab-orchestrator"] = models["lab-orchestrator"].model_copy(update={"steps": 7})
    with pytest.raises(ModelError, match="not shipped with the recipe"):
        lab_model_reader.Taught(SMOKE.lab.model_copy(update={"models": models}))


# An endpoint ----------------------------------------------------------------------------------------


def asked_of(*answers, briefs=(KO, TO)) -> tuple[list[str], Server]:
    """What an endpoint with these answers chooses, and the server that was asked."""

    async def play():
        async with Server(*answers) as server:
            reader = ChatModelReader(
                "mine",
                "endpoint",
                lambda: ChatModels({"mine": Endpoint("mine", settings_of(server.url))}),
            )
            return await asyncio.to_thread(reader.choose, list(briefs)), server

    return asyncio.run(play())


def named(policy: str) -> Answer:
    return Answer(completion(json.dumps({"reasoning": "I add up.", "policy": policy})))


def test_an_endpoint_is_asked_by_a_schema_that_allows_the_menu_and_nothing_else():
    chosen, server = asked_of(named("SO-d2"))
    assert chosen == ["SO-d2", "SO-d2"]
    for request in server.asked:
        shape = request.body["response_format"]["json_schema"]["schema"]
        assert (
            shape["properties"]["policy"]["enum"] == ["SO-d1", "SO-d2"]
            and shape["additionalProperties"] is False
        )


def test_an_endpoint_that_takes_no_schema_is_asked_for_free_json_from_then_on():
    def grumpy(asked) -> Answer:
        if "response_format" in asked.body:
            return Answer(
                {"error": {"message": "response_format json_schema is not supported"}}, status=400
            )
        return named("SO-d1")

    chosen, server = asked_of(grumpy, briefs=[TO] * 9)
    assert chosen == ["SO-d1"] * 9
    with_schema = ["response_format" in request.body for request in server.asked]
    assert with_schema == [True] + [False] * 9


@pytest.mark.parametrize(
    "answer",
    [
        named("SO-d3"),
        Answer(completion("the second one, I think")),
        Answer(completion("")),
        Answer({"error": {"message": "maximum context length is 512"}}, status=400),
    ],
)
def test_what_an_endpoint_says_that_is_no_choice_is_nobody(answer):
    assert asked_of(answer, briefs=[TO])[0] == [""]


def test_a_prompt_that_a_filter_stops_is_lost_and_no_choice_of_the_model():
    stopped = Answer({"error": {"message": "flagged by moderation"}}, status=403)
    chosen, server = asked_of(named("SO-d2"), stopped, named("SO-d1"), briefs=[TO] * 3)
    assert len(server.asked) == 3 and sorted(map(str, chosen)) == ["None", "SO-d1", "SO-d2"]


@pytest.mark.parametrize("name", ["scripted-large", "lab-orchestrator", "rational"])
def test_a_reader_has_the_backend_of_what_decides(name):
    backends = {"scripted-large": "scripted", "lab-orchestrator": "lab", "rational": "scripted"}
    assert decision_models.reader(name, SMOKE).backend == backends[name]


def test_a_server_that_fails_is_no_choice_of_the_model():
    with pytest.raises(InfrastructureError, match="mine: a choice could not be asked for"):
        asked_of(Answer({"error": {"message": "odd"}}, status=400), briefs=[TO])


def test_a_brief_in_english_holds_every_number_that_decides():
    told = messages(KO, letter=False)[-1]["content"]
    for number in ("0.75", "0.25", "State: dark", "B) SO-d2: speed 0.90, care 0.00"):
        assert number in told
    assert schema(["a"])["json_schema"]["strict"] is True


# The fixed situations -------------------------------------------------------------------------------


def test_the_fixed_situations_are_few_rounded_and_there_is_something_to_decide():
    assert len(POSED) <= 2000 and {brief.kind for brief in BRIEFS} == {"KO", "TO", "RO"}
    assert {len(brief.names) for brief in BRIEFS} >= {2, 3, 4, 5, 6}
    for brief in BRIEFS:
        told = [
            *brief.looks.values(),
            *(page for card in brief.cards.values() for page in card.values()),
        ]
        assert np.allclose(np.round(told, 2), told) and np.ptp(brief.worth()) > 0.01
    assert [str(p.brief) for p in decision_benchmark.made_up(30)] == [
        str(brief) for brief in BRIEFS[:30]
    ]  # made, not edited


def test_situations_are_read_as_they_were_written(tmp_path):
    decision_benchmark.write(POSED[:5], tmp_path / "briefs.jsonl")
    assert decision_benchmark.load(tmp_path / "briefs.jsonl") == POSED[:5]


def test_the_recorded_model_was_asked_these_situations_and_says_who_it_is():
    held, spoken = (
        artifacts.read_json(decision_benchmark.REPLIES),
        decision_benchmark.Recorded(POSED),
    )
    assert held["licence"] == "Apache-2.0" and len(held["sha256"]) == 64
    assert decision_benchmark.REPLIES.stat().st_size < 1.5e6
    chosen = spoken.choose(BRIEFS)
    assert all(name in brief.names for name, brief in zip(chosen, BRIEFS, strict=True))
    with pytest.raises(ValueError, match="other situations"):
        decision_benchmark.Recorded(POSED[:-1])


def test_answers_count_what_is_given_away_and_what_is_no_policy():
    class Wrong:
        name, backend = "wrong", "scripted"

        def choose(self, briefs):
            return ["nobody"] * len(briefs)

    rows = decision_benchmark.answers([Rational(), Wrong()], POSED).groupby("method")
    assert rows["correct"].mean().to_dict() == {"rational": 1.0, "wrong": 0.0}
    assert rows["reward"].mean()["rational"] == 0.0 and rows["reward"].mean()["wrong"] < -0.05
    assert rows["malformed"].mean().to_dict() == {"rational": 0.0, "wrong": 1.0}


def test_a_situation_of_which_a_reply_was_lost_compares_no_readers():
    class Filtered:
        name, backend = "filtered", "endpoint"

        def choose(self, briefs):
            return [None, *Rational().choose(briefs[1:])]

    rows = decision_benchmark.answers([Rational(), Filtered()], POSED[:4])
    assert rows.groupby("method")["item"].agg(list).to_dict() == {
        "filtered": ["1", "2", "3"],
        "rational": ["1", "2", "3"],
    }
    assert rows["correct"].eq(1.0).all() and not rows["malformed"].any()
