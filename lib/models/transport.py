"""The lab models in this process, as a transport: what a server would answer, byte for byte, without a socket."""

from __future__ import annotations

from collections.abc import Mapping

import httpx2

from lib.models.answering import Model
from lib.models.server import app

_WAITING = 2**16  # callers in this process have limits of their own


class LabTransport(httpx2.ASGITransport):
    """The server's application, called directly. Serves any number of event loops, one after another or at once.

    A client that closes it closes nothing: the next one may be on another event loop. `close` ends the workers.
    """

    def __init__(self, models: Mapping[str, Model]) -> None:
        self.application = app(models, waiting=_WAITING)
        super().__init__(self.application, raise_app_exceptions=False)

    def close(self) -> None:
        """End the workers. Without it they end with the process."""
        for batcher in self.application.state.answering.batchers.values():
            batcher.close()


def lab_transport(models: Mapping[str, Model]) -> LabTransport:
    """A transport for `httpx2.AsyncClient`, and so for `lib.llm.Client`, that asks these models."""
    return LabTransport(models)
