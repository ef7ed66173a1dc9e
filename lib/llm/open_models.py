"""From the names of `llm.models` in params.yaml to models that can be asked.

    async with open_models(params.llm, names, "lesson", runs, cassettes) as models:
        reply = await models["claude"].reply_to(request)

Only the models that are named are opened, so a model that nobody asks needs neither weights nor key. Lab models and
Hugging Face folders are opened by functions that are handed in, since this package stands below theirs
(`lib.language_models.open_local_models`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

from lib.config import LLMSettings, ModelSettings
from lib.llm.chat_model import ChatModel
from lib.llm.endpoint import Endpoint
from lib.llm.errors import ConfigurationError
from lib.llm.failure_policy import FailureWatch, ReplyCounts
from lib.llm.reply_store import Recording
from lib.llm.scripted_model import ScriptedModel
from lib.llm.spending_limit import SpendingLimit

OpenLocal = Callable[[str, ModelSettings], ChatModel]


class ChatModels(Mapping[str, ChatModel]):
    """Opened models by name; an async context manager that closes them."""

    def __init__(self, models: Mapping[str, ChatModel]) -> None:
        self._models = dict(models)

    def __getitem__(self, name: str) -> ChatModel:
        if name not in self._models:
            raise ConfigurationError(
                f"there is no model {name!r} here; there are {sorted(self._models)}"
            )
        return self._models[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._models)

    def __len__(self) -> int:
        return len(self._models)

    @property
    def reply_counts(self) -> dict[str, ReplyCounts]:
        """Counts of replies by model, of those that a server answered."""
        return {
            name: model.watch.counts
            for name, model in self._models.items()
            if isinstance(model, Endpoint)
        }

    async def aclose(self) -> None:
        """Close all models; `export_recording` writes what was recorded as a file for keeps."""
        for model in self._models.values():
            await model.aclose()

    async def __aenter__(self) -> ChatModels:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()


def open_models(
    settings: LLMSettings,
    names: Iterable[str],
    work: str,
    runs: str | Path,
    cassettes: str | Path,
    processes: int = 1,
    open_local: Mapping[str, OpenLocal] | None = None,
    watches: Mapping[str, FailureWatch] | None = None,
) -> ChatModels:
    """Open models of `llm.models`.

    Args:
        settings: The section llm of params.yaml.
        names: The models that will be asked.
        work: Name of the piece of work; recording and spending limit bear it.
        runs: Folder of the spending limit.
        cassettes: Folder of the recording.
        processes: Those that ask at once and divide each model's concurrency.
        open_local: By backend, a function from name and settings to a model in this process.
        watches: By name, counts of replies that outlive this opening.

    Returns:
        The models, by name.

    Raises:
        ConfigurationError: For a name that is not in llm.models, and for a backend that nobody can open.
    """
    names = list(dict.fromkeys(names))
    unknown = [name for name in names if name not in settings.models]
    if unknown:
        raise ConfigurationError(
            f"there is no model {unknown[0]!r} in llm.models; there are {sorted(settings.models)}"
        )
    # One recording and one limit for all endpoints: what they cost counts together.
    endpoints = [name for name in names if settings.models[name].backend == "endpoint"]
    recording = None
    limit = None
    if endpoints:
        limit = SpendingLimit(Path(runs) / f"{work}-spent.sqlite", settings.max_usd)
        if settings.cassette != "off":
            recording = Recording(cassettes, work, settings.cassette)

    models: dict[str, ChatModel] = {}
    for name in names:
        about = settings.models[name]
        if about.backend == "endpoint":
            watch = (watches or {}).get(name)
            models[name] = Endpoint(name, about, recording, limit, processes, watch)
        elif about.backend == "scripted":
            models[name] = ScriptedModel(name, about)
        elif about.backend in (open_local or {}):
            models[name] = open_local[about.backend](name, about)
        else:
            raise ConfigurationError(
                f"{name}: nothing here opens models of backend {about.backend!r}; there is "
                f"{sorted(open_local or {}) or 'none'}"
            )
    return ChatModels(models)


def export_recording(settings: LLMSettings, work: str, cassettes: str | Path) -> None:
    """Write what was recorded as a file that can be handed on; nothing where nothing was."""
    if settings.cassette != "record" or not (Path(cassettes) / f"{work}.sqlite").exists():
        return
    recording = Recording(cassettes, work, "record")
    recording.export()
    recording.close()
