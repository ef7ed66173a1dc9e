"""A name of llm.models stands wherever the parameters name a model: one behind HTTP decides there, and is shown."""

import pandas as pd
import pytest
import torch

from lib.config import ROOT
from tests.budgeted_routing.small_systems import SMOKE_PARAMS, serve_answers
from tests.llm.server import certificate, key
from tests.slots import lessons
from tests.slots.able_model import answer_request
from tests.slots.models import NAME

__all__ = ["certificate", "key"]


@pytest.fixture
def play(tmp_path):
    """Fills a slot with the able model: the rows of the lesson, and the server that was asked."""

    def fill(slot: str) -> tuple[pd.DataFrame, list]:
        with serve_answers(answer_request) as server:
            rows = lessons.SLOTS[slot](server.url, tmp_path)
        assert server.asked, f"nobody asked the model in {slot}"
        return rows, server.asked

    yield fill
    torch.set_flush_denormal(False)


def test_every_section_that_names_a_model_has_a_slot_that_is_tried():
    tried = {slot.partition(".")[0] for slot in lessons.SLOTS}
    assert set(SMOKE_PARAMS.models_by_section) <= tried
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for slot in ("routing.experts", "configuration.model"):
        assert f"`{slot}`" in readme and slot in lessons.SLOTS


def test_the_deciding_model_of_lesson_02_decides_in_every_context(play):
    episodes, _ = play("orchestration.model")
    assert set(episodes["orchestrator"]) == {"KO", "TO", "RO"}
    assert set(episodes["backend"]) == {"endpoint"} and (episodes["cost_usd"] > 0).all()
    assert not episodes["malformed"].any() and not episodes["failures"].any()
    assert {name for names in episodes["chosen"] for name in names} == {"SO-d2"}


def test_prompted_models_of_lesson_02_choose_every_policy(play):
    episodes, _ = play("orchestration.prompted")
    assert set(episodes["method"]) == {f"{system} {NAME}" for system in ("KO", "TO", "RO")}
    assert set(episodes["backend"]) == {"endpoint"} and not episodes["malformed"].any()
    assert {name for names in episodes["chosen"] for name in names} == {"SO-d2"}
    assert (episodes["cost_usd"] > 0).all()


def test_the_judge_of_lesson_02_scores_every_episode(play):
    scores, _ = play("orchestration.judge")
    assert len(scores) == 2 and (scores[["adaptivity", "frustration"]] == 3).all(axis=None)
    assert (scores["malformed"] == 0).all()


def test_the_judge_of_lesson_04_pays_rollouts(play):
    rollouts, asked = play("conductor.judge")
    assert len(asked) <= len(rollouts)
    ranks = rollouts["r_judge"]
    assert ranks.between(0, 1).all() and ranks.nunique() > 1


def test_a_judge_as_scorer_tells_right_from_wrong(play):
    rows, _ = play("--scorer judge:MODEL")
    assert rows["score"].tolist() == [1.0, 0.0]


def test_an_expert_of_lesson_05_is_tried_and_right(play):
    rows, _ = play("routing.experts")
    assert set(rows["group"]) == {"chain"} and (rows["correct"] == 1).all()
    assert (rows["cost_usd"] > 0).all() and not rows["truncated"].any()


def test_a_tool_of_lesson_06_is_tried_and_right_about_numbers(play):
    rows, _ = play("tools.models")
    numbers = rows[rows["group"].isin(["chain", "big"])]
    assert set(numbers["group"]) == {"chain", "big"} and (numbers["correct"] == 1).all()


def test_the_prompted_orchestrator_of_lesson_06_is_right_about_numbers(play):
    rows, _ = play("tools.agent")
    numbers = rows[rows["group"].isin(["chain", "big"])]
    assert len(numbers) and (numbers["correct"] == 1).all()


def test_the_agents_of_lesson_07_and_its_prompted_policy_are_one_model(play):
    tests, _ = play("configuration.model")
    assert set(tests["model"]) == {NAME} and (tests["failures"] == 0).all()
    prompted = tests[tests["method"].isin(["zero_shot", "few_shot"])]
    assert len(prompted) and (prompted["failed"] == 0).all()
    right = prompted[prompted["group"] == "chain"]["correct"]
    assert len(right) and right.mean() == 1.0


def test_who_remembers_less_in_lesson_09_is_the_model_of_its_section(play):
    rows, _ = play("ablations.model")
    assert set(rows["backend"]) == {"endpoint"} and rows["cost_usd"].gt(0).all()
