"""An endpoint's name may stand for the agents of the whole study, as the README says."""

import asyncio

import pytest

from lib.agent_configuration import experiment, workbench
from lib.agent_configuration.agent_system import ConfiguredQuestion
from lib.agent_configuration.search import BASE
from lib.agent_configuration.variants import NAMED
from tests.agent_configuration.small import CHAIN, LONG
from tests.agent_configuration.test_experiment import lab_models, settings
from tests.llm.server import Answer, Server, certificate, completion, key

__all__ = ["certificate", "key"]
EXPLAINED = "3 + 4 is 7, and nothing follows.\n<answer> 7 </answer>"


def with_agents_at(url: str, **changes):
    """The settings of the study with an endpoint as all agents."""
    endpoint = {
        "backend": "endpoint",
        "base_url": url,
        "model": "m",
        "price_in": 1e-6,
        "price_out": 1e-5,
        "kwh_per_token": 0.0,
        "temperature": 0.0,
        "max_tokens": 500,
        "timeout": 5.0,
        "retries": 0,
        "concurrency": 4,
    }
    llm = {"models": {"claude": endpoint}}
    return settings(llm=llm, model="claude", larger="claude", prompted="claude", **changes)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return lab_models(tmp_path_factory.mktemp("models"))


def test_jobs_of_endpoint_agents_need_no_weights_of_theirs(models):
    params = with_agents_at("http://127.0.0.1:9/v1")
    jobs = experiment.make_jobs(params, [NAMED["arc"]], models)
    models_by_job = [job.settings["models"]["asked"] for job in jobs]
    assert all(set(asked_models) == {"claude"} for asked_models in models_by_job if asked_models)
    assert all(job.settings["models"]["base"] is None for job in jobs)


def test_budgets_of_endpoint_agents_are_their_own_and_decide_their_jobs(models):
    jobs = [
        experiment.make_jobs(
            with_agents_at("http://127.0.0.1:9/v1", **changes), [NAMED["arc"]], models
        )
        for changes in ({}, {"hosted_tiers": [100, 200, 300]})
    ]
    before, after = ({job.key for job in jobs_of_setting} for jobs_of_setting in jobs)
    assert not before & after
    params = with_agents_at("http://127.0.0.1:9/v1")
    assert params.configuration.select_tiers("endpoint") == [256, 512, 1024]
    assert params.configuration.select_tiers("lab") == [5, 9, 18]


def test_endpoint_agents_answer_questions_and_are_charged(models, tmp_path, monkeypatch):
    for module in (experiment, workbench):
        monkeypatch.setattr(module, "CASSETTES", tmp_path)

    def play(url: str):
        params = with_agents_at(url)
        context = experiment.make_context(params, models, tmp_path)
        with experiment.open_workbench(context, params.configuration) as bench:
            questions = [ConfiguredQuestion(item, BASE) for item in (CHAIN, LONG)]
            return bench.play("claude", questions)

    async def serve():
        async with Server(Answer(completion(EXPLAINED, 100, 20))) as server:
            return await asyncio.to_thread(play, server.url), server

    table, server = asyncio.run(serve())
    assert table["correct"].tolist() == [True, False]
    assert (table["failures"] == 0).all() and (table["cost_usd"] > 0).all()
    systems = [request.body["messages"][0]["content"] for request in server.asked]
    assert systems and all("only the last digit" in text for text in systems)
