"""Opening the client for a piece of work that has a name: in-process transports, cassette and purse where paid."""

import asyncio
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import httpx2

from lib.config import LLMSettings
from lib.llm import scripted
from lib.llm.client import Client
from lib.llm.replay_cache import Cassette
from lib.llm.spending_limit import SpendingLimit

Result = TypeVar("Result")


def opened(
    settings: LLMSettings,
    name: str,
    runs: str | Path,
    cassettes: str | Path,
    share: int = 1,
    transports: Mapping[str, httpx2.AsyncBaseTransport] | None = None,
) -> Client:
    """The client with the scripted models; where an endpoint is named, with cassette and purse too.

    name: of the cassette and of the purse, which lie under `cassettes` and `runs`; share: processes that
    ask at once and divide the limits among them; transports: other models in this process, by backend.
    """
    paid = any(model.backend == "endpoint" for model in settings.models.values())
    purse = SpendingLimit(Path(runs) / f"{name}-spent.sqlite", settings.max_usd) if paid else None
    tape = (
        Cassette(Path(cassettes), name, settings.cassette)
        if paid and settings.cassette != "off"
        else None
    )
    return Client(
        settings, {"scripted": scripted.transport(), **(transports or {})}, purse, tape, share
    )


def export(settings: LLMSettings, name: str, cassettes: str | Path) -> None:
    """Write what was recorded as a file that can be handed on."""
    if settings.cassette == "record" and any(
        m.backend == "endpoint" for m in settings.models.values()
    ):
        Cassette(Path(cassettes), name, "record").export()


def finish(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of a coroutine, also where an event loop runs already, as it does in a notebook."""
    if not _in_event_loop():
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, work).result()


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
