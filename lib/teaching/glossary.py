"""The glossary: `data/glossary.yaml` as one page beside the reports, with links to the lessons.

`python -m lib.teaching.glossary` is the pipeline's stage `glossary`. Every page of a lesson links to it.
"""

import argparse
import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

import nbformat

from lib.config import ROOT, from_yaml
from lib.experiment import artifacts
from lib.reports import html

SOURCE, TARGET = "data/glossary.yaml", "reports/glossary.html"


@dataclass(frozen=True)
class Term:
    """A term of the glossary.

    Attributes:
        term: The term.
        means: Its meaning, in a sentence or three.
        lessons: Names of the lessons that use it.
        words: How the lessons spell it; the term itself if empty.
    """

    term: str
    means: str
    lessons: tuple[str, ...]
    words: tuple[str, ...] = ()

    @property
    def slug(self) -> str:
        """Its anchor on the page."""
        return re.sub(r"[^a-z0-9]+", "-", self.term.lower()).strip("-")


def read(path: str | Path = ROOT / SOURCE) -> list[Term]:
    """Reads all terms.

    Args:
        path: The YAML file.

    Returns:
        The terms, in the order of the alphabet.

    Raises:
        ValueError: If an entry lacks a field or has an unknown one, or a term stands there twice.
    """
    # A misspelled field would be lost without a word, so unknown ones are refused.
    terms = []
    for entry in from_yaml(Path(path).read_text(encoding="utf-8")):
        unknown = set(entry) - {"term", "means", "lessons", "words"}
        if unknown or not all(entry.get(key) for key in ("term", "means", "lessons")):
            raise ValueError(
                f"{path}: {entry.get('term')!r} needs term, means and lessons, and has {sorted(entry)}"
            )
        lessons = tuple(entry["lessons"])
        words = tuple(entry.get("words", ()))
        terms.append(Term(entry["term"], entry["means"], lessons, words))
    if len({term.slug for term in terms}) < len(terms):
        raise ValueError(f"{path}: a term stands there twice")
    return sorted(terms, key=lambda term: term.term.lower())


def render_page(terms: list[Term]) -> str:
    """Renders the glossary as an HTML page, with links to the pages of lessons.

    Args:
        terms: All terms in order.
    """
    first_slugs: dict[str, str] = {}  # by initial letter, in the order of the terms
    for term in terms:
        first_slugs.setdefault(term.term[0].upper(), term.slug)
    letter_links = " ".join(
        f'<a href="#term-{slug}">{letter}</a>' for letter, slug in first_slugs.items()
    )
    entries = "\n".join(_render_entry(term) for term in terms)

    # The page is rendered like a lesson, so that it has the same style and checks.
    text = (
        "# Glossary\n\nTerms as this bench uses them, and the lessons that do.\n\n"
        f"{letter_links}\n\n<dl>\n{entries}\n</dl>"
    )
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text)])
    return html.page(notebook, title="Glossary")


def _render_entry(term: Term) -> str:
    links = ", ".join(f'<a href="{name}.html">{name[:2]}</a>' for name in term.lessons)
    lessons = "lesson" if len(term.lessons) == 1 else "lessons"
    return (
        f'<dt id="term-{term.slug}" style="margin-top:0.9rem"><strong>{escape(term.term)}</strong></dt>\n'
        f"<dd>{escape(term.means, quote=False)} <small>({lessons} {links})</small></dd>"
    )


def main(arguments: list[str] | None = None) -> None:
    """Write the glossary's page, reports/glossary.html."""
    argparse.ArgumentParser(
        prog="python -m lib.teaching.glossary", description=main.__doc__
    ).parse_args(arguments)
    artifacts.write_text(ROOT / TARGET, render_page(read()))


if __name__ == "__main__":
    main()
