"""The rows of the results tables: orchestrators with their models, what they are priced beside, variations."""

from collections.abc import Sequence
from dataclasses import dataclass

from lib.config import Params

VERSION = 1  # of what a method is
KINDS = ("KO", "TO", "RO")


@dataclass(frozen=True)
class Method:
    """A row of the results table. without: context components left out; budget: dollars per episode."""

    name: str
    kind: str
    model: str = ""
    without: Sequence[str] = ()
    budget: float | None = None

    def __post_init__(self) -> None:
        if (self.kind in KINDS) != bool(self.model):
            raise ValueError(
                f"{self.name}: {', '.join(KINDS)} need a model, and nothing else has one; got {self.model!r}"
            )


def orchestrators(params: Params) -> list[Method]:
    """KO, TO and RO with each of the models named in the parameters."""
    return [
        Method(f"{kind} {model}", kind, model)
        for kind in KINDS
        for model in params.orchestration.models
    ]


def rivals() -> list[Method]:
    """What prompts are judged beside: the policy that steers most steadily in the paper, and chance."""
    return [Method("MO-MGDA", "reference"), Method("random", "control")]


def forgetful(model: str) -> dict[str, list[Method]]:
    """Each orchestrator whole, without short-term memory, without long-term memory, and without both (PO, Table 5)."""
    without = {
        "": (),
        ", no short-term": ("mem_s",),
        ", no long-term": ("mem_l",),
        ", no memory": ("mem_s", "mem_l"),
    }
    return {
        kind: [
            Method(f"{kind} {model}{what}", kind, model, without=parts)
            for what, parts in without.items()
        ]
        for kind in KINDS
    }
