"""The file of claims: what the papers say, in our words, and the expression that tests it here.

`read` checks everything that can be checked without metrics: keys and kinds, papers, ids, what belongs
together, and whether every test can be parsed. Mistakes name the claim and the remedy, all of them at once.
"""

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from lib.config import ROOT, from_yaml
from lib.scoreboard import expressions
from lib.scoreboard.errors import ClaimError
from lib.scoreboard.paper_formulas import FUNCTIONS
from lib.scoreboard.result_queries import FUNCTIONS as ASKS

PAPERS = {  # in the order of the lessons
    "po": "policy orchestration",
    "maestro": "MAESTRO",
    "corl": "CoRL",
    "toolorchestra": "ToolOrchestra",
    "arc": "ARC",
}
KINDS = {
    "formula": "must come out exactly, within a stated tolerance",
    "direction": "must come out in sign, with the interval clear of zero",
    "magnitude": "for information: ours beside the paper's, never a success",
}
EVIDENCE = {  # what decided a claim
    "models": "trained policies and language models, small ones included",
    "recorded": "recorded outcomes of real models",
    "scripted": "programs that stand in for language models",
    "arithmetic": "arithmetic on printed numbers, or an identity that is checked",
}
RUNGS = {  # how near to reality the test of a claim is
    "glass": "a glass box, whose optimum is known",
    "lab": "small language models, and tools that run",
    "recorded": "recorded outcomes of real models",
}
FILE = ROOT / "data/claims/claims.yaml"
END = "..."  # how YAML says that a document is over
_COMPARED = {  # how a test of each kind may compare
    "formula": ("==", "<", ">", "<=", ">="),
    "direction": ("<", ">"),
    "magnitude": (None,),
}

Text = Annotated[str, Field(min_length=3)]


class Blame(BaseModel):
    """Whose fault it is that a formula fails, and why."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    who: Literal["paper", "ours"]
    why: Text


class Claim(BaseModel):
    """One claim of a paper.

    number, unit: what the paper prints, if it prints a number. lesson: whose metrics a key in braces means when it
    names no other. test: one expression, or several of which `need` must hold (all, or so many). judged: instead of
    it, a key under which the lesson keeps a verdict of its own. untestable: instead of both, why nothing here can
    test it. tolerance: of a formula's equality, in its unit. quotes: numbers that the paper prints, by the name
    under which tests use them. stand_in: the metrics do not say that scripted stand-ins decided, but they did.
    identity: it follows from definitions, and metrics only show that the code agrees. blame: of a formula that fails.
    gate: metrics that say what choosing could win there, of `lesson` or as `lesson: key`; where the lower end of one is
    below `stats.MIN_HEADROOM`, or its word is closed, so is the question. start: the same test of what was there before
    training; where it holds too, training is not shown to have done it. rung: of `RUNGS`; a claim that is judged on
    several has an entry for each. note: what a reader should know besides.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)+$")]
    paper: Literal["po", "maestro", "corl", "toolorchestra", "arc"]
    place: Text
    kind: Literal["formula", "direction", "magnitude"]
    statement: Text
    number: float | None = None
    unit: str = ""
    lesson: str | None = None
    test: tuple[str, ...] = ()
    need: Literal["all"] | Annotated[int, Field(ge=1)] = "all"
    tolerance: Annotated[float, Field(ge=0)] = 0.0
    quotes: dict[str, float] = {}
    judged: Text | None = None
    untestable: Text | None = None
    stand_in: bool = False
    identity: bool = False
    blame: Blame | None = None
    gate: tuple[Text, ...] = ()
    start: Text | None = None
    rung: Literal["glass", "lab", "recorded"] = "lab"
    note: str = ""

    @field_validator("test", "gate", mode="before")
    @classmethod
    def _several(cls, test: Any) -> Any:
        return (test,) if isinstance(test, str) else tuple(test) if isinstance(test, list) else test

    @model_validator(mode="after")
    def _fits_together(self):
        if not self.id.startswith(f"{self.paper}-"):
            raise ValueError(f"its id must begin with {self.paper}-, the paper's short name")
        if sum(map(bool, (self.test, self.judged, self.untestable))) != 1:
            raise ValueError(
                "give one of these: a test, a verdict under `judged`, or the reason under `untestable`"
            )
        if self.judged and (self.kind != "direction" or not self.lesson):
            raise ValueError("judged is for a direction, and needs the `lesson` that judged it")
        if self.need != "all" and self.need > len(self.test):
            raise ValueError(f"need is {self.need}, but there are only {len(self.test)} tests")
        for text in self.test:
            self._check(text)
        if self.kind == "magnitude" and self.test and (len(self.test) > 1 or self.number is None):
            raise ValueError("a magnitude has one test, and a number of the paper to stand beside")
        if self.blame and self.kind != "formula":
            raise ValueError("blame is for formulas; say it in a note")
        if (self.gate or self.start) and (self.kind != "direction" or not self.lesson):
            raise ValueError("gate and start are of a direction, and metrics of its `lesson`")
        if self.start:
            self._check(self.start)
        if self.rung != "glass" and any(key.startswith("glass.") for _, key in self.reads()):
            raise ValueError("it reads metrics of a glass box, so its rung is glass")
        return self

    def _check(self, text: str) -> None:
        parsed = expressions.parse(text, set(self.quotes), FUNCTIONS)
        allowed = _COMPARED[self.kind]
        if parsed.sign not in allowed:
            wanted = (
                "no comparison"
                if allowed == (None,)
                else f"a comparison by {', '.join(map(str, allowed))}"
            )
            raise ValueError(f"a {self.kind} needs {wanted}, got {text!r}")
        loose = [key for lesson, key in parsed.keys if not lesson and not self.lesson]
        if loose:
            raise ValueError(
                f"{{{loose[0]}}} names no lesson; write {{05_some_lesson: {loose[0]}}} or set `lesson`"
            )
        if (
            self.kind == "direction"
            and not parsed.keys
            and not any(f"{name}(" in text for name in ASKS)
        ):
            raise ValueError(
                f"{text!r} measures nothing, so that it cannot fail; as arithmetic it is a formula"
            )

    @property
    def arithmetic(self) -> bool:
        """Whether it only computes with what papers print, or checks an identity: it says who counted right."""
        return self.identity or (self.kind == "formula" and not self.reads())

    def gates(self) -> list[tuple[str, str]]:
        """The (lesson, key) of every metric that says whether its question is open."""
        parts = [text.rpartition(": ") for text in self.gate]
        return [(lesson or self.lesson or "", key) for lesson, _, key in parts]

    def reads(self) -> list[tuple[str, str]]:
        """The (lesson, key) of every metric that its tests read."""
        if self.judged:
            return [(self.lesson or "", self.judged)]
        parsed = [expressions.parse(text, set(self.quotes), FUNCTIONS) for text in self.test]
        return [(lesson or self.lesson or "", key) for each in parsed for lesson, key in each.keys]


def read(path: str | Path = FILE) -> list[Claim]:
    """The claims of a file, in its order. Raises ClaimError naming each claim at fault and what to change."""
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = from_yaml(text)
    except (OSError, ValueError) as error:
        raise ClaimError(f"{path} cannot be read: {error}") from error
    if not text.rstrip().endswith(f"\n{END}"):  # half a list may be a whole one of fewer claims
        raise ClaimError(
            f"{path} was cut off, its last line is not `{END}`; get it back with `git checkout` of it"
        )
    if (
        not isinstance(content, dict)
        or set(content) != {"claims"}
        or not isinstance(content["claims"], list)
    ):
        raise ClaimError(f"{path} must hold one list under the key `claims`, and nothing else")
    claims, wrong = [], []
    for place, entry in enumerate(content["claims"], start=1):
        name = entry.get("id", f"number {place}") if isinstance(entry, dict) else f"number {place}"
        try:
            claims.append(Claim.model_validate(entry))
        except ValidationError as error:
            wrong += [f"claim {name}: {_told(each)}" for each in error.errors()]
    twice = [name for name, count in Counter(claim.id for claim in claims).items() if count > 1]
    wrong += [f"claim {name}: there are several with this id; give each its own" for name in twice]
    if wrong:
        raise ClaimError("\n".join([f"{path} is not in order:", *wrong]))
    return claims


def _told(error: Any) -> str:
    """One mistake that pydantic found, in a sentence."""
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"unknown key {where!r}; there are {', '.join(Claim.model_fields)}"
    if error["type"] == "missing":
        return f"{where} is missing; every claim has one"
    message = error["msg"].removeprefix("Value error, ")
    return f"{where}: {message}, got {error['input']!r}" if where else message
