"""Readers of briefs by the names that `orchestration.readers` uses, and any model of `llm.models` beside them."""

from collections.abc import Callable
from functools import partial
from typing import Any

from lib.llm.opening import opened
from lib.models import shipped
from lib.orchestration import spoken, taught
from lib.orchestration.briefs import Rational, Reader
from lib.params import ROOT, Params

READERS: dict[str, Callable[[Params], Reader]] = {
    "rational": lambda params: Rational(),
    taught.NAME: lambda params: taught.Taught(params.lab),
}
_NAME = "readers"  # of the cassette and of the purse of endpoints


def reader(name: str, params: Params) -> Reader:
    """A reader by its name. Raises ValueError for a name that is none."""
    if name in READERS:
        return READERS[name](params)
    if name not in params.llm.models:
        known = ", ".join((*READERS, *params.llm.models))
        raise ValueError(f"{name!r} in orchestration.readers is no reader; there are {known}")
    places = (ROOT / "data/runs/orchestration", ROOT / "data/cassettes")
    return spoken.Endpoint(name, partial(opened, params.llm, _NAME, *places))


def identity(name: str, params: Params) -> Any:
    """What a reader's choices follow from beside code, to stand in the name of what is kept of them."""
    if name in params.lab.models:
        return (shipped.card(name) or {}).get("sha256")
    return params.llm.models[name].model_dump() if name in params.llm.models else None
