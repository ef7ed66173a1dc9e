"""Who can read briefs, by the name that `orchestration.readers` gives them."""

from __future__ import annotations

from collections.abc import Callable

from lib.orchestration.briefs import Rational, Reader
from lib.params import Params

READERS: dict[str, Callable[[Params], Reader]] = {"rational": lambda params: Rational()}
