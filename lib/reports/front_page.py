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
from lib.plots import accessibility_check
from lib.plots.accessibility_check import ReportError
from lib.plots.pages import fill_template
from lib.plots.tables import listed, number
from lib.reports import answers
from lib.scoreboard import lesson_metrics, summary_figure

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
    "00_tour": "KO/TO/RO",
    "01_policy_zoo": "KO/TO/RO",
    "01a_policy_zoo_details": "KO/TO/RO",
    "02_orchestration": "KO/TO/RO",
    "02a_orchestration_details": "KO/TO/RO",
    "04_conductor": "MAESTRO",
    "04a_conductor_details": "MAESTRO",
    "05_budgeted_routing": "CoRL",
    "05a_budgeted_routing_details": "CoRL",
    "06_tool_orchestration": "ToolOrchestra",
    "06a_tool_orchestration_details": "ToolOrchestra",
    "07_agent_configuration": "ARC",
    "07a_agent_configuration_details": "ARC",
}
SCOREBOARD = "10_scoreboard"
STANDING_LABELS = {  # how a decision maker did, by the word in the scoreboard's metrics
    "above": "Beats the best single choice",
    "level": "Not clearly different from the best single choice",
    "below": "Loses to the best single choice",
    "above_router": "Beats a simple router",
    "level_router": "Not clearly different from a simple router",
    "below_router": "Loses to a simple router",
    "not_open": "Not open: too little to gain for any method",
    "missing": "Not in this run",
}
PAPERS_OF_CLAIMS = {  # by the short name in the scoreboard's metrics
    "po": "policy orchestration",
    "maestro": "MAESTRO",
    "corl": "CoRL",
    "toolorchestra": "ToolOrchestra",
    "arc": "ARC",
}
DECIDERS = {  # what decides a claim, by the word in the scoreboard's metrics
    "models": "trained models",
    "recorded": "recorded outcomes",
    "scripted": "scripts in place of models",
    "arithmetic": "arithmetic",
    "none": "nothing here",
}
VERDICTS = {  # what became of a claim: key in the scoreboard's metrics, words for it
    "holds": "hold",
    "does_not_hold": "do not hold",
    "equivalent": "equivalent",
    "undecided": "undecided",
    "not_open": "not open",
    "untestable": "not testable",
}
EVIDENCE_LEVELS = {  # how near to reality a claim was tested: its title, and what it is
    "synthetic": (
        "In the synthetic environment with a known optimum",
        "so small that it can be computed",
    ),
    "lab": ("Among small models", "language models and policies that are trained here"),
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
COURSE = "course.html"
CUT = "smoke"  # the profile that only shows that everything runs
LONGEST = 200  # characters of a finding that the overview quotes whole


@dataclass(frozen=True)
class Entry:
    """What the front page shows of a lesson."""

    name: str
    title: str
    paper: str
    finding: str
    answer: tuple[str, ...]  # the sentences that a person wrote, as far as this run supports them
    # the key figure as part of the page: file, alt, is_wide; drawing, or uri, width, height
    figure: dict[str, Any]
    metrics: list[tuple[str, str]]
    profile: str
    parameters: str
    scripted: list[str]  # metrics that say that a scripted stand-in decided

    @property
    def number(self) -> str:
        """What a lesson is called in a sentence."""
        return self.name.split("_")[0]

    @property
    def is_appendix(self) -> bool:
        """Whether it has the number of a lesson and a letter, such as 05a."""
        return self.number[-1].isalpha()

    @property
    def short(self) -> str:
        """The title without what follows its colon."""
        return self.title.split(":")[0]

    @property
    def headline(self) -> str:
        """Chooses the headline: the first sentence of the answer, or else of the finding."""
        if self.answer:
            return self.answer[0]
        if len(self.finding) <= LONGEST:
            return self.finding
        statements = re.split(r"(?<=[.;])\s", self.finding, maxsplit=1)
        first = statements[0]
        return f"{first.rstrip('.;')} …" if len(statements) > 1 else first

    @property
    def cut(self) -> bool:
        """Whether its numbers come from a run that was cut down to a test."""
        return self.profile == CUT


def front_page(reports: str | Path, repository: str | Path = ROOT) -> str:
    """Renders the front page.

    Args:
        reports: Folder of the lessons' output.
        repository: The checkout whose commit the page names.

    Returns:
        HTML, with the lessons in the order of their numbers.

    Raises:
        ReportError: If there is no lesson, or a lesson's files do not fit together.
    """
    # A lesson writes its card last, so that a lesson with a card has its metrics and figures, too.
    reports = Path(reports)
    cards = sorted((reports / "lessons").glob("*.json"))
    if not cards:
        raise ReportError(f"no lesson in {reports / 'lessons'}; run one first: `make repro`")
    lessons = [_read_lesson(card, reports) for card in cards]
    by_name = {lesson.name: lesson for lesson in lessons}
    counts = _read_json(reports / "metrics" / f"{SCOREBOARD}.json") if SCOREBOARD in by_name else {}

    # The scoreboard's figure shows the whole bench; without it the last lesson's stands at the top.
    page = fill_template(
        "front.html.j2",
        lessons=lessons,
        hero=by_name.get(SCOREBOARD, lessons[-1]),
        minute=summarize_lessons(lessons),
        finding=state_finding(counts),
        claims=count_claims(counts),
        losses=list_losses(counts),
        evidence_levels=summarize_evidence_levels(counts),
        replicated=lesson_metrics.describe_replication(reports / "metrics").replace("`", ""),
        profiles=group_by_profile(lessons),
        first=[
            (reader, _first_existing(names, by_name, lessons), reason)
            for reader, (names, reason) in READERS.items()
        ],
        glossary=GLOSSARY if (reports / GLOSSARY).is_file() else None,
        course=COURSE if (reports / COURSE).is_file() else None,
        commit=describe_commit(repository),
    )
    accessibility_check.check(page, "the front page")
    return page


def summarize_lessons(lessons: list[Entry]) -> list[str]:
    """Summarizes all lessons in sentences: number, papers, comparisons, and which used scripts in place of models.

    Args:
        lessons: Every lesson that was run.
    """
    papers = list(dict.fromkeys(lesson.paper for lesson in lessons if lesson.paper))
    num_appendices = sum(lesson.is_appendix for lesson in lessons)
    number = _count(len(lessons) - num_appendices, "lesson")
    if num_appendices:
        number += f" and {num_appendices} appendi{'x' if num_appendices == 1 else 'ces'}"
    origin = (
        f" rebuild the decision makers of {_count(len(papers), 'paper')} ({listed(papers)})"
        if papers
        else ""
    )
    sentences = [
        f"{number}{origin}. Each trains or runs them here, compares them with random choice, "
        "fixed choices and oracles, and counts all costs in the same way.",
        "Numbers in brackets are intervals. Numbers from the papers are never printed as ours.",
    ]
    # Stand-ins are named where the results are summarized, not only in their lessons.
    scripted_lessons = [lesson.number for lesson in lessons if lesson.scripted]
    if scripted_lessons:
        sentences.append(
            f"In {_name_lessons(scripted_lessons)} scripted stand-ins made some or all of the decisions. These are "
            "programs in place of a model, so that the numbers say nothing about language models."
        )
    return sentences


def state_finding(metrics: dict[str, Any]) -> str:
    """How many methods beat the best single choice and a simple router, as the scoreboard counted; empty without it."""
    counts = {
        key.removeprefix("shares."): metrics[key] for key in metrics if key.startswith("shares.")
    }
    return summary_figure.state_finding(counts) if counts else ""


def count_claims(metrics: dict[str, Any]) -> dict[str, Any] | None:
    """Collects the number of claims by verdict and paper.

    Args:
        metrics: Metrics of the scoreboard.

    Returns:
        Total, counts by verdict, counts by paper, and notes; None where the scoreboard was not run.
    """
    keys = {verdict: f"claims.{verdict}" for verdict in ("total", *VERDICTS)}
    if any(key not in metrics for key in keys.values()):
        return None
    return {
        "total": metrics[keys["total"]],
        "verdicts": [
            (verdict, words, metrics[keys[verdict]]) for verdict, words in VERDICTS.items()
        ],
        "by_paper": _count_by_paper(metrics),
        "notes": _note_evidence(metrics),
    }


def _count_by_paper(metrics: dict[str, Any]) -> list[tuple[str, str, list[int]]]:
    """Counts claims by paper, kind of evidence and verdict.

    Args:
        metrics: Metrics of the scoreboard.

    Returns:
        (paper, kind of evidence, number of claims by verdict) for every pair that has claims.
    """
    rows = []
    for paper, paper_name in PAPERS_OF_CLAIMS.items():
        for decider, decider_name in DECIDERS.items():
            prefix = f"claims.{paper}.{decider}"
            verdict_counts = [metrics.get(f"{prefix}.{verdict}", 0) for verdict in VERDICTS]
            if any(verdict_counts):
                rows.append((paper_name, decider_name, verdict_counts))
    return rows


def list_losses(metrics: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """Lists the statements that did not hold, by paper.

    Args:
        metrics: Metrics of the scoreboard.

    Returns:
        (paper, its statements) where there are any.
    """
    losses = []
    for paper, paper_name in PAPERS_OF_CLAIMS.items():
        statements = metrics.get(f"losses.{paper}")
        if statements:
            losses.append((paper_name, statements.split("\n")))
    return losses


def summarize_evidence_levels(metrics: dict[str, Any]) -> list[dict[str, Any]]:
    """Summarizes the results at each level of evidence.

    Args:
        metrics: Metrics of the scoreboard.

    Returns:
        For each level that was run: title, explanation, which methods beat the best fixed choice and which do not,
        and the number of directions by verdict.
    """
    summaries = []
    for level, (title, explanation) in EVIDENCE_LEVELS.items():
        # Who beats the best fixed choice, who does not.
        standings = []
        for word, label in STANDING_LABELS.items():
            methods = metrics.get(f"known.{level}.{word}")
            if methods is not None:
                standings.append((label, methods))
        if not standings:
            continue  # the lessons of this level were not run

        # Verdicts that no claim has are left out.
        verdict_counts = []
        for key, words in VERDICTS.items():
            count = metrics.get(f"claims.evidence_level.{level}.{key}", 0)
            if count:
                verdict_counts.append(f"{count} {words}")
        summaries.append(
            {
                "title": title,
                "explanation": explanation,
                "standings": standings,
                "verdict_counts": ", ".join(verdict_counts),
            }
        )
    return summaries


def _note_evidence(metrics: dict[str, Any]) -> list[str]:
    """Writes notes on the evidence behind the counts of claims.

    Args:
        metrics: Metrics of the scoreboard.

    Returns:
        A phrase for each kind of claim that occurs: scripted, arithmetic, inconsistent, only compared.
    """
    # A count of 0 needs no note.
    notes = []
    scripted = metrics.get("claims.evidence.scripted.untestable")
    if scripted:
        notes.append(
            f"{scripted} that scripts would decide in place of language models count as not testable"
        )
    arithmetic = metrics.get("claims.evidence.arithmetic")
    if arithmetic:
        notes.append(
            f"{arithmetic} are arithmetic on printed numbers, which says nothing about models"
        )
    inconsistent = metrics.get("claims.formula.discrepancy_source_paper")
    if inconsistent:
        notes.append(
            f"{inconsistent} of those that do not hold are numbers in which a paper contradicts itself"
        )
    compared = metrics.get("claims.compared")
    if compared:
        notes.append(f"the other {compared} are magnitudes, which are only compared with ours")
    return notes


def group_by_profile(lessons: list[Entry]) -> list[tuple[str, str]]:
    """Groups lessons by the profile (scale) that they were run at.

    Args:
        lessons: Every lesson that was run.

    Returns:
        (profile, its lessons as text) each.
    """
    numbers: dict[str, list[str]] = {}
    for lesson in lessons:
        numbers.setdefault(lesson.profile, []).append(lesson.number)
    return [
        (profile, _name_lessons(profile_numbers)) for profile, profile_numbers in numbers.items()
    ]


def describe_commit(repository: str | Path) -> str:
    """Describes the version of the code: short commit hash, with "+ changes" where files differ from it.

    Args:
        repository: The project's folder.

    Returns:
        The text; "unknown" without git.
    """
    # Files that the pipeline itself writes say nothing about the code that made the page.
    written_by_pipeline = (":(exclude)dvc.lock", ":(exclude)reports")
    status = ("status", "--porcelain", "--untracked-files=no", "--", ".", *written_by_pipeline)
    try:
        short_hash = _git(repository, "rev-parse", "--short", "HEAD")
        changed_files = _git(repository, *status)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{short_hash} + changes" if changed_files else short_hash


def format_metric(key: str, metrics: dict[str, Any]) -> str:
    """Formats a metric with its interval where it has one, such as "0.64 [0.61, 0.66]".

    Args:
        key: Key of the metric.
        metrics: Values by key; interval ends under KEY_ci_low and KEY_ci_high.
    """
    value = number(metrics[key])
    ci_low = metrics.get(f"{key}_ci_low")
    ci_high = metrics.get(f"{key}_ci_high")
    if ci_low is None or ci_high is None:
        return value
    return f"{value} [{number(ci_low)}, {number(ci_high)}]"


def _first_existing(
    names: tuple[str, ...], by_name: dict[str, Entry], lessons: list[Entry]
) -> Entry:
    """The first of the named lessons that was run, or else the first of all."""
    return next((by_name[name] for name in names if name in by_name), lessons[0])


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _name_lessons(numbers: list[str]) -> str:
    return f"lesson{'' if len(numbers) == 1 else 's'} {listed(numbers)}"


def _read_lesson(path: Path, reports: Path) -> Entry:
    """Reads what the front page shows of a lesson: title, finding, key metrics and figure.

    Args:
        path: Path of the lesson's card, JSON.
        reports: Folder of all reports.

    Raises:
        ReportError: The card, the metrics and the figure do not fit together.
    """
    card = _read_json(path)
    missing = sorted(CARD - set(card))
    if missing:
        raise ReportError(f"{path} lacks {', '.join(missing)}; run the lesson again")

    # Every metric and figure that the card names must be there.
    metrics = _read_json(reports / "metrics" / f"{card['lesson']}.json")
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
        answer=_select_supported(card["lesson"], metrics, card["profile"]),
        figure=_embed_figure(card, reports)
        | {"file": card["key_figure"], "alt": card["key_figure_alt"]},
        metrics=[(key, format_metric(key, metrics)) for key in card["key_metrics"]],
        profile=card["profile"],
        parameters=card["parameters"],
        scripted=[
            key.removesuffix("backend").rstrip(".") or "everything"
            for key, value in metrics.items()
            if key.split(".")[-1] == "backend" and value == "scripted"
        ],
    )


def _select_supported(lesson: str, metrics: dict[str, Any], profile: str) -> tuple[str, ...]:
    """Selects the sentences of a lesson's answer that the metrics of this run support.

    Args:
        lesson: Name of the lesson.
        metrics: What the run measured.
        profile: Scale of the run; one that is only a test supports no sentence.

    Returns:
        The sentences, with numbers filled in.
    """
    if profile == CUT:
        return ()
    return tuple(
        answers.fill_sentence(sentence, lesson, metrics)
        for sentence in answers.load_answers().get(lesson, ())
        if not answers.check_sentence(sentence, lesson, metrics)
    )


def _embed_figure(card: dict[str, Any], reports: Path) -> dict[str, Any]:
    """Prepares the key figure of a lesson for the front page.

    Args:
        card: Card of the lesson, with the drawing of the figure as HTML, or with the path of its PNG alone.
        reports: Folder of all reports.

    Returns:
        The drawing as HTML; or a PNG as data URI with its size, so that the page does not jump while it loads.
    """
    if "key_drawing" in card:
        drawing = card["key_drawing"]
        return {"drawing": drawing, "is_wide": not drawing.startswith("<picture>")}
    return _embed_png(reports / card["key_figure"]) | {"is_wide": True}


def _embed_png(path: Path) -> dict[str, Any]:
    """A PNG as a data URI with its size."""
    with Image.open(path) as image:
        width, height = image.size
    uri = f"data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}"
    return {"uri": uri, "width": width, "height": height}


def _read_json(path: Path) -> dict[str, Any]:
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
