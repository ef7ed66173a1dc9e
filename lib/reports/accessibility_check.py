"""What no page of this project may contain, found by reading its HTML.

A report must open on a train and be readable by someone who does not see the figures. So a page is
refused if it loads anything (script, style, font, image, frame) from elsewhere, or if a picture, a
frame or an svg says nothing to a screen reader. Ordinary links are fine: they load nothing until
someone follows them. Left out: contrast and reading order, which the template answers for.
"""

import re
from html.parser import HTMLParser

LINKS = {"a", "area"}  # the elements whose href is followed by a reader, not by the browser
LOADING = {
    "src",
    "srcset",
    "href",
    "xlink:href",
    "poster",
    "data",
    "background",
    "imagesrcset",
    "manifest",
}
SIDE_PAGES = re.compile(r"timings/[\w.-]+\.html")  # the only files that a page may frame

_SCHEME = re.compile(r"\s*(?:(?:https?|ftp|wss?|file):|//|\\\\)", re.IGNORECASE)
_IN_CSS = re.compile(
    r"@import\b[^;]*|url\(\s*[\"']?\s*(?:(?:https?|ftp|file):|//)[^)]*", re.IGNORECASE
)
_IN_SCRIPT = re.compile(r"(?:https?:|wss?:|[\"'`])//[^\s\"'`]*", re.IGNORECASE)


class ReportError(ValueError):
    """A report that cannot be built as it is; the message names the cell and what to change."""


def problems(fragment: str) -> list[str]:
    """What is wrong with a piece of HTML, one sentence each; an empty list if nothing is."""
    reader = _Reader()
    reader.feed(fragment)
    reader.close()
    return reader.found


def check(fragment: str, where: str) -> None:
    """Raise ReportError, naming `where`, unless `fragment` is self-contained and says what it shows."""
    found = problems(fragment)
    if found:
        raise ReportError(f"{where}: " + "; ".join(found))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._inside = ""  # "style" or "script" while its text is read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        self._inside = tag if tag in ("style", "script") else ""
        self._pictures(tag, attributes)
        self._frames(tag, attributes)
        if tag == "script" and "src" in attributes:
            self.found.append(
                f"<script src={_short(attributes['src'])}> loads a script; reports have none"
            )
        for name, value in attributes.items():
            self._attribute(tag, name, value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._inside = ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self._css(data)
        elif self._inside == "script" and (hit := _IN_SCRIPT.search(data)):
            self.found.append(f"a script names {_short(hit.group())} on the network")

    def _pictures(self, tag: str, attributes: dict[str, str]) -> None:
        if tag == "img" and not attributes.get("alt", "").strip():
            self.found.append(
                "an image has no alt text: show it with lesson.figure(fig, name, alt=...) or give it an alt"
            )
        elif tag == "svg":
            spoken = attributes.get("role") == "img" and attributes.get("aria-label", "").strip()
            if not spoken:
                self.found.append(
                    "an <svg> has no role='img' with an aria-label that says what it shows"
                )

    def _frames(self, tag: str, attributes: dict[str, str]) -> None:
        if tag not in ("iframe", "frame", "embed", "object"):
            return
        if not attributes.get("title", "").strip():
            self.found.append(f"a <{tag}> has no title that says what it shows")
        if "srcdoc" in attributes:
            self.found += problems(attributes["srcdoc"])

    def _attribute(self, tag: str, name: str, value: str) -> None:
        if name == "style":
            self._css(value)
        if tag == "meta" and name == "content" and re.search(r"url\s*=", value, re.IGNORECASE):
            self.found.append(f"a <meta> sends the reader to {_short(value)}")
        if name not in LOADING or (name == "href" and tag in LINKS):
            return
        for address in _addresses(name, value):
            if _SCHEME.match(address):
                self.found.append(
                    f"<{tag} {name}> loads {_short(address)} over the network; put it into the page"
                )
            elif not _inside_page(tag, address):
                self.found.append(
                    f"<{tag} {name}> needs the file {_short(address)} beside the page; put it into the page"
                )

    def _css(self, text: str) -> None:
        for hit in _IN_CSS.finditer(text):
            self.found.append(f"a style loads {_short(hit.group())}; put it into the page")


def _addresses(name: str, value: str) -> list[str]:
    """The addresses in an attribute: one, or the candidates of a srcset (separated by blanks)."""
    if "srcset" not in name:
        return [value.strip()] if value.strip() else []
    return [part.strip(",") for part in value.split() if not re.fullmatch(r"[\d.]+[wx],?", part)]


def _inside_page(tag: str, address: str) -> bool:
    framed = tag == "iframe" and SIDE_PAGES.fullmatch(address)
    return address.startswith(("data:", "#")) or address == "about:blank" or bool(framed)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else text[:57] + "...")
