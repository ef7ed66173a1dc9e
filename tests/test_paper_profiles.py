"""The settings of `PROFILE=paper` run in lessons 01, 02 and 05 to 08; what they count is shrunk to `smoke`.

Models, lengths, rewards, losses and learning rates are the paper profile's. Lesson 04 has a test of its own
(tests/conductor/test_paper_profile.py). What comes out means nothing.
"""

from pathlib import Path
from typing import Any

import pytest

from lib import config
from lib.agent_configuration import experiment as configuration_experiment
from lib.agent_configuration.variants import NAMED as CONFIGURATION_VARIANTS
from lib.budgeted_routing import experiment as routing_experiment
from lib.budgeted_routing.variants import VARIANTS_BY_NAME as ROUTING_VARIANTS
from lib.experiment import artifacts
from lib.language_models import checkpoints
from lib.language_models.training import released_weights
from lib.orchestration import experiment as orchestration_experiment
from lib.policy_zoo import train
from lib.policy_zoo.zoo_folder import ensure_zoo
from lib.routers import experiment as recorded_experiment
from lib.tool_orchestration import lab_experiment
from lib.tool_orchestration.lab_menus import QUESTIONS
from lib.tool_orchestration.lab_training import PREFERENCES

pytestmark = pytest.mark.usefixtures("one_thread")
# Names of settings that count something; everything else stays as the profile `paper` says. Sizes of
# batches count episodes, and are shrunk with them.
COUNTS = {
    "ablation_seeds", "alone_episodes", "batch", "dev_items", "draws", "episodes", "eval_every",
    "fixed_budget_seeds", "gate_seeds", "grid", "groups", "items", "jobs", "listings", "menus",
    "microbatch", "minibatch", "numeric_budgets", "offices", "outcome_items", "sampled",
    "save_every", "search_items", "seeds", "side", "splitting_seeds", "steering_menus", "steps",
    "students", "test_items", "test_samples", "timesteps", "train_items", "training", "tries",
    "updates",
}  # fmt: skip


def shrink(paper: Any, smoke: Any, name: str = "") -> Any:
    """The settings of `paper`, with the values of `smoke` for COUNTS."""
    if isinstance(paper, dict):
        return {key: shrink(value, smoke[key], key) for key, value in paper.items()}
    return smoke if name in COUNTS else paper


def load_shrunk(*sections: str) -> config.Params:
    """All settings of the profile `paper`; those of some sections are shrunk."""
    shrunk = {}
    for section in sections:
        paper = getattr(config.load("paper"), section).model_dump()
        smoke = getattr(config.load("smoke"), section).model_dump()
        once = {name: 1 for name in ("seeds", "jobs") if name in paper}
        shrunk[section] = shrink(paper, smoke) | once
    return config.settings(profile="paper", **shrunk)


@pytest.fixture(autouse=True)
def no_cassettes_of_the_checkout(tmp_path, monkeypatch):
    """Recorded replies are neither read from the checkout nor written into it."""
    for experiment in (configuration_experiment, routing_experiment):
        monkeypatch.setattr(experiment, "CASSETTES", tmp_path / "cassettes")


def list_made_up_accuracies() -> list[dict[str, Any]]:
    """Rows of a card: every model answers nine of ten questions of every kind. Nobody was measured."""
    rows = []
    for kind, difficulties in QUESTIONS.items():
        for difficulty in difficulties:
            row = {"skin": "plain", "category": kind, "difficulty": difficulty, "accuracy": 0.9}
            rows.append(row)
    return rows


@pytest.fixture(scope="module")
def lab_models(tmp_path_factory) -> Path:
    """The released lab models, with cards that give prices and speeds."""
    folder = tmp_path_factory.mktemp("models")
    for number, (name, settings) in enumerate(config.load("paper").lab.models.items()):
        model_folder = checkpoints.save(released_weights.unpack(name, settings), folder / name)
        card = {"dollars_per_1k_tokens": 0.001 * (number + 1), "tokens_per_second": 100.0}
        card["accuracy"] = list_made_up_accuracies()
        artifacts.write_json(model_folder / "card.json", card)
    return folder


def test_lesson_01_trains_policies(tmp_path):
    params = load_shrunk("zoo")
    zoo = tmp_path / "zoo"
    train.build_zoo(params, "education", zoo, tmp_path / "runs")
    policies = sorted(path.parent.name for path in zoo.glob("education/*/seed-0.safetensors"))
    assert len(policies) > 4


def test_lesson_02_lets_ko_to_and_ro_decide(tmp_path):
    params = load_shrunk("zoo", "orchestration")
    zoo = ensure_zoo(params, ["education"], out=tmp_path / "zoo", runs=tmp_path / "zoo runs")
    rows = orchestration_experiment.run(
        params, [("education", "paper")], zoo, tmp_path / "runs", tmp_path
    )
    assert {"KO", "TO", "RO"} <= set(rows["orchestrator"])


def test_lesson_05_trains_a_controller(lab_models, tmp_path):
    params = load_shrunk("routing")
    assert params.routing.turn_tokens == 500
    variant = ROUTING_VARIANTS["corl"]
    results = routing_experiment.run(params, [variant], lab_models, tmp_path / "runs")
    assert set(results.episodes["method"]) == {"start", variant.name}  # before and after training
    assert set(results.learning["method"]) == {variant.name}
    assert results.episodes["correct"].isin([0, 1]).all()


def test_lesson_06_trains_an_orchestrator(lab_models, tmp_path):
    params = load_shrunk("tools")
    results = lab_experiment.run(params, [PREFERENCES], lab_models, tmp_path / "runs")
    assert set(results.episodes["method"]) == {"start", PREFERENCES.name}
    assert results.episodes["correct"].isin([0, 1]).all()


def test_lesson_07_trains_a_policy(lab_models, tmp_path):
    params = load_shrunk("configuration")
    paper = config.load("paper").configuration
    assert params.configuration.ppo.structure_rate == paper.ppo.structure_rate
    tests = configuration_experiment.train_policies(
        params, [CONFIGURATION_VARIANTS["arc"]], lab_models, tmp_path / "runs"
    )
    assert set(tests["method"]) == {"arc", "arc_no_sft", "arc_dpo"}  # before and after the elite
    assert tests["correct"].isin([0, 1]).all()


def test_lesson_08_trains_routers(tmp_path):
    settings = load_shrunk("recorded").recorded
    results = recorded_experiment.run(settings, ["gsm"], tmp_path / "runs")
    assert len(results.descriptions) == 1
