"""What a judge may cost is announced where it is an endpoint, and nowhere else."""

from functools import partial

from lib import config
from lib.conductor import judge_costs
from lib.conductor.llm_judge import TRIES, VOTES, vote_by_majority
from lib.llm.endpoint import Endpoint
from lib.llm.open_models import ChatModels
from lib.llm.reply_store import Recording
from tests.llm import server
from tests.llm.stub_model import StubModel

SETTINGS = config.load("smoke").conductor
VERDICT = "It fits.\nSo the result is True"
ROWS = (["q", "r"], ["1", "2"], ["one", "two"], ["three", "two"])  # the second pair is alike


def test_grades_are_counted_at_the_most_often_that_a_judge_is_asked():
    llm = server.settings(reasoning_tokens=0)
    line = judge_costs.announce_grades(llm, SETTINGS, "mine", num_prompts=10)
    grpo = SETTINGS.grpo
    calls = TRIES * 10 * grpo.epochs * grpo.generations
    assert f"judge as reward: At most {calls:,} calls and $" in line


def test_nothing_is_announced_where_no_endpoint_judges_or_nothing_is_judged():
    llm = server.settings(models={"inner": server.INNER})
    assert judge_costs.announce_grades(llm, SETTINGS, "inner", 10) == ""
    assert judge_costs.announce_grades(llm, SETTINGS, "mine", 0) == ""
    open_nothing = partial(ChatModels, {})
    assert judge_costs.announce_votes(llm, "inner", open_nothing, *ROWS) == ""


def test_votes_are_as_many_as_are_asked_for():
    model = StubModel(VERDICT, name="mine")
    questions, references, answers, baselines = ROWS
    vote_by_majority(model.open, "mine", questions, references, answers)
    vote_by_majority(model.open, "mine", questions, references, baselines)
    vote_by_majority(model.open, "mine", questions, references, answers, baselines)
    line = judge_costs.announce_votes(server.settings(), "mine", model.open, *ROWS)
    assert len(model.requests) == VOTES * (2 + 2 + 1)
    assert f"votes on 2 pairs of replies: At most {len(model.requests)} calls" in line


def test_recorded_votes_are_deducted(tmp_path):
    """All votes on the first answer of each question were asked for before."""
    outcome = server.call(server.Answer(server.completion(VERDICT)))
    about = outcome.model.settings

    def open_judge():
        recording = Recording(tmp_path, "tape", "record")
        return ChatModels({"mine": Endpoint("mine", about, recording)})

    model = open_judge()["mine"]
    for request in judge_costs.make_vote_requests("q", "1", "one"):
        body = model.build_body(request)
        key = model.compute_key(body, request.sample)
        Recording(tmp_path, "tape", "record").put(key, body, server.completion(VERDICT))
    line = judge_costs.announce_votes(server.settings(), "mine", open_judge, *ROWS)
    assert f"At most {VOTES * 4} calls" in line and f"{VOTES} recorded replies deducted" in line
