"""The front page: what was done, what was found, what to read first; then a card for every lesson.

`python -m lib.reports.front_page` reads what the lessons left (`reports/lessons`, `reports/metrics`,
`reports/figures`) and writes one file that opens from disk and loads nothing. It computes nothing:
a number on it is a number in a lesson's metrics file, or counts lessons. What was not made, such as the
scoreboard, has no place on it. Left out: the parameters' values, which stand in the reports.
"""

import argparse
import base64
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from lib.config import ROOT
from lib.experiment import artifacts
from lib.plots.tables import listed, number
from lib.reports import accessibility_check
from lib.reports.accessibility_check import ReportError
from lib.reports.html import fill
from lib.scoreboard import lesson_metrics as measured

CARD = {
    "lesson",
    "title",
    "finding",
    "key_figure",
    "key_figure_alt",
    "key_metrics",
    "profile",
    "parameters",
}
PAPERS = {  # whose idea a lesson rebuilds; as in the README
    "00_tour": "policy orchestration",
    "01_policy_zoo": "policy orchestration",
    "02_orchestration": "policy orchestration",
    "04_conductor": "MAESTRO",
    "05_budgeted_routing": "CoRL",
    "06_tool_orchestration": "ToolOrchestra",
    "07_agent_configuration": "ARC",
}
SCOREBOARD = "10_scoreboard"
KNOWN = {  # what is known of a decision maker, by the word of the scoreboard's metrics
    "above": "Beats the best fixed choice",
    "level": "Not told apart from it",
    "below": "Below it",
    "not_open": "Too little to win for anybody",
}
VERDICTS = {  # what became of a claim: key in the scoreboard's metrics, words for it
    "holds": "hold",
    "does_not_hold": "do not hold",
    "equivalent": "equivalent",
    "undecided": "undecided",
    "not_open": "not open",
    "untestable": "not testable",
}
RUNGS = {  # how near to reality a claim was tested: its title, and what it is
    "glass": ("In the glass box", "worlds so small that the optimum is known"),
    "lab": ("In the lab", "small models and policies that are trained here"),
    "recorded": ("On recorded outcomes", "real models and agents, replayed"),
}
READERS = {  # who reads: lessons to begin with, the first that is there; and why
    "Researcher": ((SCOREBOARD, "07_agent_configuration"), "for verdicts, baselines and intervals"),
    "Student": (("00_tour",), "from nothing, with exercises that check themselves"),
    "Teacher": (
        ("02_orchestration", "05_budgeted_routing", "01_policy_zoo"),
        "for a class without keys or network",
    ),
}
GLOSSARY = "glossary.html"
CUT = "smoke"  # the profile that only shows that everything runs
LONGEST = 200  # characters of a finding that the overview quotes whole


@dataclass(frozen=True)
class Entry:
    """What the front page shows of a lesson."""

    name: str
    title: str
    paper: str
    finding: str
    figure: dict[str, Any]  # the key figure as part of the page: file, uri, alt, width, height
    metrics: list[tuple[str, str]]
    profile: str
    parameters: str
    scripted: list[str]  # metrics that say that a scripted stand-in decided

    @property
    def number(self) -> str:
        """What a lesson is called in a sentence."""
        return self.name.split("_")[0]

    @property
    def short(self) -> str:
        """The title without what follows its colon."""
        return self.title.split(":")[0]

    @property
    def headline(self) -> str:
        """The finding, or its first statement where it is long; an ellipsis says that there is more."""
        if len(self.finding) <= LONGEST:
            return self.finding
        first, *more = re.split(r"(?<=[.;])\s", self.finding, maxsplit=1)
        return f"{first.rstrip('.;')} …" if more else first

    @property
    def cut(self) -> bool:
        """Whether its numbers come from a run that was cut down to a test."""
        return self.profile == CUT


def front_page(reports: str | Path, repository: str | Path = ROOT) -> str:
    """The front page of the lessons under `reports`, in the order of their numbers.

    Raises ReportError if there is no lesson, or naming the lesson whose files do not fit together.
    """
    reports = Path(reports)
    cards = sorted((reports / "lessons").glob("*.json"))
    if not cards:
        raise ReportError(f"no lesson in {reports / 'lessons'}; run one first: `make repro`")
    lessons = [_lesson(card, reports) for card in cards]
    by_name = {lesson.name: lesson for lesson in lessons}
    counted = _read(reports / "metrics" / f"{SCOREBOARD}.json") if SCOREBOARD in by_name else {}
    made = fill(
        "front.html.j2",
        lessons=lessons,
        hero=by_name.get(SCOREBOARD, lessons[-1]),
        minute=minute(lessons),
        claims=claims(counted),
        rungs=rungs(counted),
        replicated=measured.replicated(reports / "metrics").replace("`", ""),
        profiles=profiles(lessons),
        first=[
            (reader, _first(names, by_name, lessons), why)
            for reader, (names, why) in READERS.items()
        ],
        glossary=GLOSSARY if (reports / GLOSSARY).is_file() else None,
        commit=commit(repository),
    )
    accessibility_check.check(made, "the front page")
    return made


def minute(lessons: list[Entry]) -> list[str]:
    """What was done, in a few sentences; what became of the claims stands beside them."""
    papers = list(dict.fromkeys(lesson.paper for lesson in lessons if lesson.paper))
    whose = (
        f" rebuild the decision makers of {_count(len(papers), 'paper')} ({listed(papers)})"
        if papers
        else ""
    )
    told = [
        f"{_count(len(lessons), 'lesson')}{whose}. Each trains or runs them here, beside chance, fixed choices and "
        "oracles, and keeps one ledger of what they cost.",
        "Brackets hold intervals. The papers' own numbers are never printed as ours.",
    ]
    if scripted := [lesson.number for lesson in lessons if lesson.scripted]:
        told.append(
            f"In {_lessons(scripted)} scripted stand-ins decided some or all of what is shown: programs that reply "
            "as a model would, and say nothing about language models."
        )
    return told


def claims(metrics: dict[str, Any]) -> dict[str, Any] | None:
    """How many claims were tested and what became of them, as the scoreboard counted; None if it did not."""
    wanted = {key: f"claims.{key}" for key in ("total", *VERDICTS)}
    if any(key not in metrics for key in wanted.values()):
        return None
    return {
        "total": metrics[wanted["total"]],
        "verdicts": [(key, words, metrics[wanted[key]]) for key, words in VERDICTS.items()],
        "notes": _notes(metrics),
    }


def rungs(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """What is known on each rung, as the scoreboard says it, and what became of the directions claimed there."""
    out = []
    for rung, (title, what) in RUNGS.items():
        known = [
            (words, metrics[key])
            for word, words in KNOWN.items()
            if (key := f"known.{rung}.{word}") in metrics
        ]
        counts = [
            (words, metrics.get(f"claims.rung.{rung}.{key}", 0)) for key, words in VERDICTS.items()
        ]
        claimed = ", ".join(f"{n} {words}" for words, n in counts if n)
        out += [{"title": title, "what": what, "known": known, "claimed": claimed}] if known else []
    return out


def _notes(metrics: dict[str, Any]) -> list[str]:
    """What a reader of the four counts should know."""
    told = []
    scripted, arithmetic = (
        metrics.get(f"claims.evidence.{kind}") for kind in ("scripted", "arithmetic")
    )
    if scripted:
        told.append(f"{scripted} were decided by scripts that stand in for language models")
    if arithmetic:
        told.append(
            f"{arithmetic} are arithmetic on printed numbers, which says nothing about models"
        )
    if own := metrics.get("claims.formula.blame_paper"):
        told.append(
            f"{own} of those that do not hold are numbers in which a paper parts from itself"
        )
    if compared := metrics.get("claims.compared"):
        told.append(f"{compared} more are magnitudes, only set beside ours")
    return told


def profiles(lessons: list[Entry]) -> list[tuple[str, str]]:
    """Each profile that a lesson was run at, with the lessons."""
    found = dict.fromkeys(lesson.profile for lesson in lessons)
    return [
        (name, _lessons([each.number for each in lessons if each.profile == name]))
        for name in found
    ]


def commit(repository: str | Path) -> str:
    """The short commit, `+ changes` where tracked files differ from it, `unknown` without git."""
    try:
        short = _git(repository, "rev-parse", "--short", "HEAD")
        # what the pipeline itself writes says nothing about the code that made the page
        made = (":(exclude)dvc.lock", ":(exclude)reports")
        changed = _git(
            repository, "status", "--porcelain", "--untracked-files=no", "--", ".", *made
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{short} + changes" if changed else short


def shown(key: str, metrics: dict[str, Any]) -> str:
    """A metric as text, with its interval where the file has one: `0.64 [0.61, 0.66]`."""
    value, bounds = metrics[key], [metrics.get(f"{key}_ci_low"), metrics.get(f"{key}_ci_high")]
    if None in bounds:
        return number(value)
    return f"{number(value)} [{number(bounds[0])}, {number(bounds[1])}]"


def _first(names: tuple[str, ...], by_name: dict[str, Entry], lessons: list[Entry]) -> Entry:
    """The first of these lessons that is there, or else the first of all."""
    return next((by_name[name] for name in names if name in by_name), lessons[0])


def _count(n: int, what: str) -> str:
    return f"{n} {what}{'' if n == 1 else 's'}"


def _lessons(numbers: list[str]) -> str:
    return f"lesson{'' if len(numbers) == 1 else 's'} {listed(numbers)}"


def _lesson(path: Path, reports: Path) -> Entry:
    """What a lesson left, checked for what its card promises."""
    card = _read(path)
    missing = sorted(CARD - set(card))
    if missing:
        raise ReportError(f"{path} lacks {', '.join(missing)}; run the lesson again")
    metrics = _read(reports / "metrics" / f"{card['lesson']}.json")
    unknown = [key for key in card["key_metrics"] if key not in metrics]
    if unknown:
        raise ReportError(
            f"{path} names the metrics {unknown}, which its metrics file does not have"
        )
    figure = reports / card["key_figure"]
    if not figure.is_file():
        raise ReportError(
            f"{path} names the figure {card['key_figure']}, which is missing; run the lesson again"
        )
    return Entry(
        name=card["lesson"],
        title=card["title"],
        paper=PAPERS.get(card["lesson"], ""),
        finding=card["finding"],
        figure=_picture(figure) | {"file": card["key_figure"], "alt": card["key_figure_alt"]},
        metrics=[(key, shown(key, metrics)) for key in card["key_metrics"]],
        profile=card["profile"],
        parameters=card["parameters"],
        scripted=[
            key.removesuffix("backend").rstrip(".") or "everything"
            for key, value in metrics.items()
            if key.split(".")[-1] == "backend" and value == "scripted"
        ],
    )


def _picture(path: Path) -> dict[str, Any]:
    """A figure with its size, so that the page does not jump while it is laid out."""
    with Image.open(path) as image:
        width, height = image.size
    uri = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    return {"uri": uri, "width": width, "height": height}


def _read(path: Path) -> dict[str, Any]:
    try:
        return artifacts.read_json(path)
    except (OSError, ValueError) as error:
        raise ReportError(f"{path} cannot be read ({error}); run the lesson again") from error


def _git(repository: str | Path, *arguments: str) -> str:
    command = ["git", "-C", str(repository), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main(arguments: list[str] | None = None) -> int:
    """Write the front page; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.reports.front_page", description="Write the front page."
    )
    parser.add_argument(
        "--out", type=Path, default=ROOT / "reports/index.html", help="where it goes"
    )
    out = parser.parse_args(arguments).out
    try:
        artifacts.write_text(out, front_page(out.parent))
    except ReportError as error:
        print(f"no front page: {error}", file=sys.stderr)
        return 1
    print(f"wrote {out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
