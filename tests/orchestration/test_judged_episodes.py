"""Every episode is scored once, and what a judge costs is announced before it is asked."""

import pytest

from lib.experiment import sweep
from lib.llm.chat_model import Reply
from lib.llm.open_models import ChatModels
from lib.orchestration import experiment, judged_episodes
from lib.orchestration.llm_judge import CRITERIA
from tests.llm.stub_model import StubModel
from tests.orchestration import small
from tests.orchestration.small import ENDPOINT, SCRIPTED, trained

__all__ = ["trained"]

PARAMS = small.make_params()


@pytest.fixture(scope="module")
def steps(trained, tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    _, steps = experiment.run_prompted(PARAMS, ["education"], [SCRIPTED], zoo=trained, runs=runs)
    return steps


def test_a_scripted_judge_scores_every_episode_from_one_to_five(steps, tmp_path):
    scores = judged_episodes.score_episodes(PARAMS, steps, tmp_path, tmp_path)
    assert len(scores) == 3 * 2 * 2  # systems, seeds, episodes
    assert not scores.duplicated(["method", "seed", "item"]).any()
    assert set(scores["backend"]) == {"scripted"}
    assert scores[list(CRITERIA)].isin([1, 2, 3, 4, 5]).all(axis=None)


def test_only_the_first_episodes_are_selected(steps):
    selected = judged_episodes.select_first_episodes(steps, 1)
    assert set(selected["item"]) == {"0-0", "1-0"}


def test_an_endpoint_is_announced_with_what_it_may_cost(steps, monkeypatch, tmp_path):
    endpoint = PARAMS.llm.models[SCRIPTED].model_dump() | ENDPOINT
    params = small.make_params(
        orchestration={"judge": "claude"}, llm={"models": {"claude": endpoint}}
    )
    reply = "{" + ", ".join(f'"{name}": 3' for name in CRITERIA) + "}"
    model = StubModel(*[Reply(reply, "claude", "endpoint")] * 12, name="claude")
    lines = []
    monkeypatch.setattr(sweep, "print_to_terminal", lines.append)
    monkeypatch.setattr(
        judged_episodes, "open_models", lambda *_, **__: ChatModels({"claude": model})
    )
    scores = judged_episodes.score_episodes(params, steps, tmp_path, tmp_path)
    assert scores[list(CRITERIA)].eq(3).all(axis=None)
    (line,) = lines
    assert line.startswith("judging 12 episodes: At most 24 calls")
