"""Decision models by the names that parameters use: what opens them, and what stands for them in a job's key."""

import json

import numpy as np
import pytest

from lib import config
from lib.experiment import artifacts
from lib.language_models.checkpoints import ModelError
from lib.orchestration import decision_models
from lib.orchestration.decision_model import (
    Decision,
    DecisionUsage,
    NumericModel,
    choose_surely,
)
from lib.orchestration.decision_models import LAB
from tests.language_models.hugging_face_folders import make_random_folder
from tests.orchestration.contests import make_context

SMOKE = config.load("smoke")


def describe(name: str, params=SMOKE) -> dict:
    """A description as a job's folder holds it."""
    described = decision_models.describe_decision_model(name, params.lab, params.llm)
    return json.loads(artifacts.to_json(described))


def open_model(name: str, folder, description: dict | None = None, **changes):
    settings = SMOKE.orchestration.model_copy(update=changes)
    return decision_models.open_decision_model(
        name, description or describe(name), SMOKE.llm, settings, 1, folder, folder
    )


@pytest.mark.parametrize(
    ("name", "backend"), [("scripted-large", "scripted"), ("scripted-small", "scripted")]
)
def test_a_chat_model_has_the_backend_of_its_settings_and_reads_prompts(name, backend, tmp_path):
    model = open_model(name, tmp_path, summary_interval=7)
    assert (model.name, model.backend, model.summary_interval) == (name, backend, 7)
    assert model.reads_words and model.chooses_calls
    (decision,) = model.decide([make_context()])
    assert decision.usage.calls >= 1 and (decision.exchanges == [])


def test_the_lab_model_is_opened_from_what_a_job_holds_of_it_and_decides(tmp_path):
    description = describe(LAB)
    released = artifacts.read_json("data/lab/lab-orchestrator.json")["sha256"]
    assert description["weights"] == released
    model = open_model(LAB, tmp_path, description)
    assert (model.name, model.backend) == ("lab-orchestrator", "lab")
    contexts = [make_context(), make_context("minigrid")]
    for decision in model.decide(contexts):
        assert decision.probabilities.sum() == pytest.approx(1)
        assert decision.usage.calls == 1 and decision.usage.tokens_in > 0


def test_weights_of_another_recipe_decide_nothing():
    models = dict(SMOKE.lab.models)
    models[LAB] = models[LAB].model_copy(update={"steps": 7})
    lab = SMOKE.lab.model_copy(update={"models": models})
    description = decision_models.describe_decision_model(LAB, lab, SMOKE.llm)
    with pytest.raises(ModelError, match="not shipped with the recipe"):
        open_model(LAB, None, json.loads(artifacts.to_json(description)))


def test_what_changes_no_choice_is_in_no_description():
    name = "scripted-medium"
    assert describe(name) == describe(name, config.settings(profile="laptop"))
    slower = config.settings(profile="smoke", llm={"models": {name: {"timeout": 3.0}}})
    warmer = config.settings(profile="smoke", llm={"models": {name: {"temperature": 0.1}}})
    assert describe(name) == describe(name, slower) != describe(name, warmer)
    other_lab = config.settings(profile="smoke", lab={"models": {"lab-nano": {"steps": 3}}})
    assert describe(LAB) == describe(LAB, other_lab)


def test_a_name_that_nobody_has_is_refused_with_those_there_are():
    with pytest.raises(ValueError, match="'nobody' is no decision model; there are lab-orches"):
        describe("nobody")


def test_a_model_of_constrained_replies_costs_what_its_card_says(tmp_path):
    folder = make_random_folder(tmp_path / "model")
    artifacts.write_json(folder / "card.json", {"dollars_per_1k_tokens": 0.5})
    model = decision_models.open_constrained_model(folder, "tiny")
    assert (model.name, model.backend, model.chooses_calls) == ("tiny", "hugging_face", False)
    assert model.model.price_in == model.model.price_out == 0.0005


# Decisions ----------------------------------------------------------------------------------------


def test_a_sure_choice_leaves_no_doubt():
    assert choose_surely(1, 3).probabilities.tolist() == [0, 1, 0]
    assert choose_surely(0, 1).failure == ""


def test_usage_adds_up():
    first = DecisionUsage(1, 10, 5, 0.1, 0.01, 1, 0, ["truncated"])
    first.add(DecisionUsage(2, 20, 6, 0.2, 0.02, 0, 1, ["refused"]))
    assert (first.calls, first.tokens_in, first.tokens_out) == (3, 30, 11)
    assert (first.cost_usd, first.kwh) == (pytest.approx(0.3), pytest.approx(0.03))
    assert (first.invalid_replies, first.repaired_replies) == (1, 1)
    assert first.failure_kinds == ["truncated", "refused"]


def test_decisions_share_no_usage_and_no_exchanges():
    first, second = Decision(), Decision()
    first.usage.add(DecisionUsage(calls=1))
    first.usage.failure_kinds.append("truncated")
    first.exchanges.append("prompt and reply")
    assert second.usage == DecisionUsage() and second.exchanges == []


def test_models_that_read_numbers_write_no_summaries():
    class HalfModel(NumericModel):
        name = "half"

    with pytest.raises(NotImplementedError, match="half keeps no summary"):
        HalfModel().summarize([])
    assert np.isclose(HalfModel.summary_interval, 0)
