"""Opening a client, and finishing a coroutine wherever one is."""

import asyncio
import threading

import pytest

from lib import config
from lib.llm.client_factory import export, finish, opened

LLM = config.load("smoke").llm
ENDPOINT = {
    "backend": "endpoint", "base_url": "http://localhost:1/v1", "model": "m", "price_in": 1e-6, "price_out": 1e-6
}  # fmt: skip


def with_endpoint(**changes):
    models = {name: model.model_dump() for name, model in LLM.models.items()}
    base = LLM.model_dump() | {"models": models | {"paid": models["scripted-large"] | ENDPOINT}}
    return config.validate_settings(base | changes, config.LLMSettings, "test")


async def work() -> str:
    await asyncio.sleep(0)
    return threading.current_thread().name


async def broken() -> None:
    raise KeyError("in there")


def test_without_a_loop_it_runs_here():
    assert finish(work()) == threading.current_thread().name


def test_with_a_loop_it_runs_beside_it():
    async def notebook():
        return finish(work()), finish(work())

    one, two = asyncio.run(notebook())
    assert threading.current_thread().name not in (one, two)


def test_what_goes_wrong_inside_comes_out():
    with pytest.raises(KeyError, match="in there"):
        finish(broken())

    async def notebook():
        finish(broken())

    with pytest.raises(KeyError, match="in there"):
        asyncio.run(notebook())


def test_without_endpoints_there_is_neither_purse_nor_cassette(tmp_path):
    client = opened(LLM, "name", tmp_path / "runs", tmp_path / "tapes")
    assert client.purse is None and client.cassette is None and client.share == 1
    export(LLM, "name", tmp_path / "tapes")
    assert not list(tmp_path.rglob("*"))


def test_an_endpoint_brings_both_under_the_name_of_the_work(tmp_path):
    client = opened(with_endpoint(), "name", tmp_path / "runs", tmp_path / "tapes", share=3)
    assert client.share == 3 and client.purse is not None and client.cassette.mode == "record"
    assert client.cassette.export_path.name.startswith("name")
    assert (
        opened(
            with_endpoint(cassette="off"), "name", tmp_path / "runs", tmp_path / "tapes"
        ).cassette
        is None
    )
