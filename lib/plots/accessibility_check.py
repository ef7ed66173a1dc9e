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
IMAGES = (
    "image/svg+xml",
    "image/png",
    "image/gif",
    "image/jpeg",
    "image/webp",
)  # of a cell's output
GENERATED_ALT = (
    "alt_is_generated"  # in the metadata of an output, by media type: nobody wrote its alt text
)
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
    return reader.problems


def check(fragment: str, location: str) -> None:
    """Checks that a piece of HTML loads nothing and has its texts for screen readers.

    Raises:
        ReportError: If it does not; the message begins with `location`.
    """
    sentences = problems(fragment)
    if sentences:
        raise ReportError(f"{location}: " + "; ".join(sentences))


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.problems: list[str] = []
        self._inside = ""  # "style" or "script" while its text is read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Checks one opening tag: alternative texts, frames, and addresses that would be loaded.

        Args:
            tag: Name of the element.
            attrs: Its attributes as (name, value); called by `HTMLParser`.
        """
        attributes = {name: value or "" for name, value in attrs}
        self._inside = tag if tag in ("style", "script") else ""
        self._check_picture(tag, attributes)
        self._check_frame(tag, attributes)
        if tag == "script" and "src" in attributes:
            self.problems.append(
                f"<script src={_shorten(attributes['src'])}> loads a script; reports have none"
            )
        for name, value in attributes.items():
            self._check_attribute(tag, name, value)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self._inside = ""

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "style":
            self._check_css(data)
        elif self._inside == "script" and (hit := _IN_SCRIPT.search(data)):
            self.problems.append(f"a script names {_shorten(hit.group())} on the network")

    def _check_picture(self, tag: str, attributes: dict[str, str]) -> None:
        """Reports an image without an alternative text, and an SVG without a label.

        Args:
            tag: Name of the element.
            attributes: Its attributes by name.
        """
        if tag == "img" and not attributes.get("alt", "").strip():
            self.problems.append(
                "an image has no alt text: show it with lesson.figure(fig, name, alt=...) or give it an alt"
            )
        elif tag == "svg":
            has_label = attributes.get("role") == "img" and attributes.get("aria-label", "").strip()
            if not has_label:
                self.problems.append(
                    "an <svg> has no role='img' with an aria-label that says what it shows"
                )

    def _check_frame(self, tag: str, attributes: dict[str, str]) -> None:
        if tag not in ("iframe", "frame", "embed", "object"):
            return
        if not attributes.get("title", "").strip():
            self.problems.append(f"a <{tag}> has no title that says what it shows")
        if "srcdoc" in attributes:
            self.problems += problems(attributes["srcdoc"])

    def _check_attribute(self, tag: str, name: str, value: str) -> None:
        """Reports an attribute that loads something from the network or from a file beside the page.

        Args:
            tag: Name of the element.
            name: Name of the attribute.
            value: Value of the attribute.
        """
        if name == "style":
            self._check_css(value)
        if tag == "meta" and name == "content" and re.search(r"url\s*=", value, re.IGNORECASE):
            self.problems.append(f"a <meta> sends the reader to {_shorten(value)}")
        if name not in LOADING or (name == "href" and tag in LINKS):
            return
        for address in _split_addresses(name, value):
            if _SCHEME.match(address):
                self.problems.append(
                    f"<{tag} {name}> loads {_shorten(address)} over the network; put it into the page"
                )
            elif not _is_inside_page(tag, address):
                self.problems.append(
                    f"<{tag} {name}> needs the file {_shorten(address)} beside the page; put it into the page"
                )

    def _check_css(self, text: str) -> None:
        for hit in _IN_CSS.finditer(text):
            self.problems.append(f"a style loads {_shorten(hit.group())}; put it into the page")


def _split_addresses(name: str, value: str) -> list[str]:
    """The addresses in an attribute: one, or the candidates of a srcset (separated by blanks)."""
    if "srcset" not in name:
        return [value.strip()] if value.strip() else []
    is_size = re.compile(r"[\d.]+[wx],?")  # such as 2x or 400w, behind each candidate
    return [word.strip(",") for word in value.split() if not is_size.fullmatch(word)]


def _is_inside_page(tag: str, address: str) -> bool:
    is_side_page = tag == "iframe" and SIDE_PAGES.fullmatch(address)
    return address.startswith(("data:", "#")) or address == "about:blank" or bool(is_side_page)


def _shorten(text: str) -> str:
    text = " ".join(text.split())
    return repr(text if len(text) <= 60 else text[:57] + "...")
