"""The lab models in this process, as a transport: what a server would answer, byte for byte, without a socket."""

from collections.abc import Mapping
from pathlib import Path

import httpx2

from lib.config import LLMSettings
from lib.language_models import checkpoints
from lib.language_models.serving.chat_completions import ServedModel
from lib.language_models.serving.server import app

_WAITING = 2**16  # callers in this process have limits of their own


class LabTransport(httpx2.ASGITransport):
    """The server's application, called directly by an `httpx2.AsyncClient`, and so by `lib.llm.Client`.

    Serves any number of event loops, one after another or at once.

    A client that closes it closes nothing: the next one may be on another event loop. `close` ends the workers.
    """

    def __init__(self, models: Mapping[str, ServedModel]) -> None:
        self.application = app(models, waiting=_WAITING)
        super().__init__(self.application, raise_app_exceptions=False)

    def close(self) -> None:
        """End the workers. Without it they end with the process."""
        for batcher in self.application.state.answering.batchers.values():
            batcher.close()


def lab(
    settings: LLMSettings, root: str | Path = checkpoints.MODELS
) -> tuple[LLMSettings, dict[str, LabTransport]]:
    """What `lib.llm.Client` needs to ask the lab models under `root`: settings with prices, and the transport.

    A lab model without prices in `params.yaml` is charged what its card measured. Raises ModelError for a
    name that is not under `root`, and for one that was never measured.
    """
    models, filled = checkpoints.load_all(root), {}
    for name, about in settings.models.items():
        if about.backend == "lab":
            wanted = about.model or name
            if wanted not in models:
                raise checkpoints.ModelError(
                    f"llm.models.{name}: there is no {wanted!r} in {root}; it has {sorted(models)}"
                )
            filled[name] = about.model_copy(
                update=_prices(models[wanted], about.price_in, about.price_out)
            )
    return settings.model_copy(update={"models": settings.models | filled}), {
        "lab": LabTransport(models)
    }


def _prices(
    model: ServedModel, price_in: float | None, price_out: float | None
) -> dict[str, float]:
    if price_in is not None and price_out is not None:
        return {}
    if "dollars_per_1k_tokens" not in model.card:
        raise checkpoints.ModelError(
            f"{model.name} has no card, hence no price; measure it with `make repro`"
        )
    measured = model.card["dollars_per_1k_tokens"] / 1000
    return {
        "price_in": measured if price_in is None else price_in,
        "price_out": measured if price_out is None else price_out,
    }
