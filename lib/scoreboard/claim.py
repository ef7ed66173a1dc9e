"""The file of claims: what the papers say, in our words, and the expression that tests it here.

`read_claims` checks everything that can be checked without metrics: keys and kinds, papers, ids, what belongs
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

# Short names of the papers, in the order of the lessons; ids of claims begin with them.
PAPERS = {
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
EVIDENCE_KINDS = {  # what decided a claim
    "models": "trained models",
    "recorded": "recorded outcomes of real models",
    "scripted": "scripts in place of models",
    "arithmetic": "arithmetic",  # on printed numbers, or an identity that is checked
    "none": "nothing here",
}
EVIDENCE_LEVELS = {  # how near to reality the test of a claim is
    "synthetic": "a synthetic environment with a known optimum",
    "lab": "small language models, and tools that run",
    "recorded": "recorded outcomes of real models",
}
CLAIMS_FILE = ROOT / "data/claims/claims.yaml"
END_OF_DOCUMENT = "..."  # YAML's mark; a file without it was cut off
_ALLOWED_COMPARISONS = {  # how a test of each kind may compare
    "formula": ("==", "<", ">", "<=", ">="),
    "direction": ("<", ">"),
    "magnitude": (None,),
}

Text = Annotated[str, Field(min_length=3)]


class Control(BaseModel):
    """Somebody who lacks what a claim is about, such as random choice or a policy before training.

    Attributes:
        who: In words, in the plural.
        test: The same tests as those of the claim, of the control.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    who: Text
    test: Annotated[tuple[str, ...], Field(min_length=1)]


class DiscrepancySource(BaseModel):
    """Why a formula fails: an error of the paper or a bug of ours, and the explanation."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    who: Literal["paper", "ours"]
    why: Text


class Claim(BaseModel):
    """One claim of a paper.

    Attributes:
        id: Unique name, which begins with the paper's short name.
        paper: Short name of the paper, a key of `PAPERS`.
        place: Section, table, figure or equation of the paper.
        kind: Formula, direction or magnitude, see `KINDS`.
        statement: What the paper says, in our words.
        number: What the paper prints, if it prints a number.
        unit: Unit of `number`.
        lesson: Whose metrics a key in braces means when it names no other.
        test: One expression, or several of which `need` must hold.
        need: How many tests must hold, or all.
        judged: Instead of a test: a key under which the lesson keeps a verdict of its own.
        untestable: Instead of a test: why nothing here can test it.
        tolerance: Tolerance of a formula's equality, in its unit.
        quotes: Numbers that the paper prints, by the name under which tests use them.
        stand_in: Scripted models decided, although the metrics do not say so.
        identity: It follows from definitions, and metrics only show that the code agrees.
        discrepancy_source: Source of a formula that fails: whose error it is.
        gate: Metrics of what choosing could win, of `lesson` or as `lesson: key`. Where the lower end of one is below
            `stats.MIN_HEADROOM`, or its word is not open, the question is not open.
        control: Who lacks what the claim is about. Where all of its tests hold too, those of the claim show nothing.
        evidence_level: A key of `EVIDENCE_LEVELS`; a claim that is judged on several has an entry for each.
        note: What a reader should know besides.
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
    discrepancy_source: DiscrepancySource | None = None
    gate: tuple[Text, ...] = ()
    control: Control | None = None
    evidence_level: Literal["synthetic", "lab", "recorded"] = "lab"
    note: str = ""

    @field_validator("test", "gate", mode="before")
    @classmethod
    def _wrap_in_tuple(cls, value: Any) -> Any:
        if isinstance(value, str):
            return (value,)
        if isinstance(value, list):
            return tuple(value)
        return value

    @model_validator(mode="after")
    def _check_consistency(self):
        """Validates the fields of a claim together, after pydantic has validated each alone.

        Raises:
            ValueError: Two fields contradict each other, or one is missing; the message says what to change.
        """
        if not self.id.startswith(f"{self.paper}-"):
            raise ValueError(f"its id must begin with {self.paper}-, the paper's short name")
        # What belongs together, key by key. Each message says what to change.
        num_decided_by = sum(map(bool, (self.test, self.judged, self.untestable)))
        if num_decided_by != 1:
            raise ValueError(
                "give one of these: a test, a verdict under `judged`, or the reason under `untestable`"
            )
        is_direction_of_lesson = self.kind == "direction" and self.lesson
        if self.judged and not is_direction_of_lesson:
            raise ValueError("judged is for a direction, and needs the `lesson` that judged it")
        if self.need != "all" and self.need > len(self.test):
            raise ValueError(f"need is {self.need}, but there are only {len(self.test)} tests")

        for text in self.test:
            self._check_expression(text)

        # A magnitude is shown beside the paper's number, so it needs exactly one of each.
        has_comparable_number = len(self.test) == 1 and self.number is not None
        if self.kind == "magnitude" and self.test and not has_comparable_number:
            raise ValueError("a magnitude has one test, and a number of the paper to stand beside")
        if self.discrepancy_source and self.kind != "formula":
            raise ValueError("discrepancy_source is for formulas; say it in a note")
        if (self.gate or self.control) and not is_direction_of_lesson:
            raise ValueError("gate and control are of a direction, and metrics of its `lesson`")
        if self.control:
            for text in self.control.test:
                self._check_expression(text)

        # Lessons keep what they measured in synthetic environments under keys that begin so.
        prefixes = ("glass.", "synthetic.")
        reads_synthetic = any(key.startswith(prefixes) for _, key in self.list_metric_keys())
        if reads_synthetic and self.evidence_level != "synthetic":
            raise ValueError(
                "it reads metrics of a synthetic environment, so its evidence_level is synthetic"
            )
        return self

    def _check_expression(self, text: str) -> None:
        """Checks that an expression can decide the claim, which is a formula, a direction or a magnitude of a paper.

        A formula is an equation or bound that a paper states, a direction says which of two methods is better, and a
        magnitude is compared without a verdict.

        Args:
            text: An expression over metrics of lessons, such as "{05_some_lesson: reward.gain} > 0".

        Raises:
            ValueError: Its comparison is not one for this kind of claim, a metric has no lesson, or a direction reads
                no metric.
        """
        test = expressions.parse_test(text, set(self.quotes), FUNCTIONS)
        allowed = _ALLOWED_COMPARISONS[self.kind]
        if test.comparison not in allowed:
            if allowed == (None,):
                requirement = "no comparison"
            else:
                requirement = f"a comparison by {', '.join(map(str, allowed))}"
            raise ValueError(f"a {self.kind} needs {requirement}, got {text!r}")

        keys_without_lesson = [key for lesson, key in test.metric_keys if not lesson]
        if keys_without_lesson and not self.lesson:
            key = keys_without_lesson[0]
            raise ValueError(
                f"{{{key}}} names no lesson; write {{05_some_lesson: {key}}} or set `lesson`"
            )

        # A direction without metrics is arithmetic in disguise: it would hold in every run.
        if self.kind == "direction" and not test.metric_keys:
            raise ValueError(
                f"{text!r} measures nothing, so that it cannot fail; as arithmetic it is a formula"
            )

    @property
    def is_arithmetic(self) -> bool:
        """Whether it only computes with what papers print, or checks an identity: no evidence about models."""
        return self.identity or (self.kind == "formula" and not self.list_metric_keys())

    def list_gate_keys(self) -> list[tuple[str, str]]:
        """The (lesson, key) of every metric that says whether its question is open."""
        gate_keys = []
        for text in self.gate:
            lesson, _, key = text.rpartition(": ")
            gate_keys.append((lesson or self.lesson or "", key))
        return gate_keys

    def list_metric_keys(self) -> list[tuple[str, str]]:
        """Lists the metrics that the tests of the claim read.

        Returns:
            (lesson, key) of each metric, in the order of the tests; an empty lesson where none is named.
        """
        if self.judged:
            return [(self.lesson or "", self.judged)]
        metric_keys = []
        for text in self.test:
            test = expressions.parse_test(text, set(self.quotes), FUNCTIONS)
            for lesson, key in test.metric_keys:
                metric_keys.append((lesson or self.lesson or "", key))
        return metric_keys


def read_claims(path: str | Path = CLAIMS_FILE) -> list[Claim]:
    """Reads and checks a file of claims.

    Args:
        path: A YAML file with one list under the key `claims`, which ends with `END_OF_DOCUMENT`.

    Returns:
        The claims in the order of the file.

    Raises:
        ClaimError: The file is broken; the message names each claim at fault and what to change.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
        content = from_yaml(text)
    except (OSError, ValueError) as error:
        raise ClaimError(f"{path} cannot be read: {error}") from error
    # Half a list of claims may be valid YAML, only shorter, so the file says where it ends.
    if not text.rstrip().endswith(f"\n{END_OF_DOCUMENT}"):
        raise ClaimError(
            f"{path} was cut off, its last line is not `{END_OF_DOCUMENT}`; "
            "get it back with `git checkout` of it"
        )
    has_only_claims = isinstance(content, dict) and set(content) == {"claims"}
    if not has_only_claims or not isinstance(content["claims"], list):
        raise ClaimError(f"{path} must hold one list under the key `claims`, and nothing else")

    # All mistakes are collected, so that one run shows all that has to be mended.
    claims, mistakes = [], []
    for position, entry in enumerate(content["claims"], start=1):
        name = f"number {position}"
        if isinstance(entry, dict):
            name = entry.get("id", name)
        try:
            claims.append(Claim.model_validate(entry))
        except ValidationError as error:
            mistakes += [
                f"claim {name}: {_describe_mistake(mistake)}" for mistake in error.errors()
            ]

    num_by_id = Counter(claim.id for claim in claims)
    for claim_id, count in num_by_id.items():
        if count > 1:
            mistakes.append(f"claim {claim_id}: there are several with this id; give each its own")
    if mistakes:
        raise ClaimError("\n".join([f"{path} is not in order:", *mistakes]))
    return claims


def _describe_mistake(error: Any) -> str:
    """Describes one validation error of pydantic in a sentence.

    Args:
        error: An entry of `ValidationError.errors()`, with its type, location, message and input.
    """
    # Inner fields are named by their path, such as discrepancy_source.who.
    field_path = ".".join(str(step) for step in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"unknown key {field_path!r}; there are {', '.join(Claim.model_fields)}"
    if error["type"] == "missing":
        return f"{field_path} is missing; every claim has one"
    message = error["msg"].removeprefix("Value error, ")
    return f"{field_path}: {message}, got {error['input']!r}" if field_path else message
