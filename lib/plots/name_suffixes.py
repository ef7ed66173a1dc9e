"""Suffixes behind names in a figure that is drawn already: what a reader must know of a method wherever it is named.

A title is a sentence: only those names get their suffix there that no sentence may use without it. Left out: which
names have a suffix, which a lesson knows (`lib.reports.name_labels`).
"""

import re
from collections.abc import Callable, Mapping

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator

from lib.plots.theme import has_narrow, rewrite_title


def append_suffixes(
    figure: Figure, suffixes: Mapping[str, str], title_suffixes: Mapping[str, str] | None = None
) -> set[str]:
    """Write suffixes behind names in tick labels, legends, titles of panels and labels beside marks.

    A label counts as a name where it is the name, or the name and a comma with more behind it.

    Args:
        figure: Any figure; its drawing for phones gets the same suffixes.
        suffixes: By name, what to append; "" for a name that is to stay although a shorter one is its beginning.
        title_suffixes: The same for names in the title; none by default.

    Returns:
        The names whose labels have changed.
    """
    # The longest name first, since "KO claude, every 5" begins with "KO claude".
    patterns = {}
    for name in sorted(suffixes, key=len, reverse=True):
        words = r"\s+".join(map(re.escape, name.split()))  # long names are broken into lines
        patterns[name] = re.compile(rf"\A{words}(?=,|\Z)")
    changed_names = set()

    def append_to(label: str) -> str:
        """Appends its suffix to a name with which a label begins; other labels are returned as they are."""
        for name, pattern in patterns.items():
            match = pattern.match(label)
            if match:
                if suffixes[name]:
                    changed_names.add(name)
                return label[: match.end()] + suffixes[name] + label[match.end() :]
        return label

    def append_in_title(title: str) -> str:
        changed_names.update(name for name in title_suffixes or {} if _find_name(title, name))
        return append_within(title, title_suffixes or {})

    can_draw_narrow = has_narrow(figure)
    was_stale = figure.stale
    _replace_labels(figure, append_to)
    rewrite_title(figure, append_in_title)
    if not changed_names:
        figure.stale = was_stale  # asking for tick labels sets it
        return changed_names
    if can_draw_narrow:
        draw_narrow = figure.draw_narrow

        def draw_narrow_with_suffixes() -> Figure:
            narrow_figure = draw_narrow()
            _replace_labels(narrow_figure, append_to)
            rewrite_title(narrow_figure, append_in_title)
            return narrow_figure

        figure.draw_narrow = draw_narrow_with_suffixes
        figure.stale = False  # the drawing for phones shows the same
    return changed_names


def append_within(sentence: str, suffixes: Mapping[str, str]) -> str:
    """Write suffixes behind names wherever they stand in a sentence as words of their own.

    Args:
        sentence: Any text.
        suffixes: By name, what to append; a name that has its suffix already stays as it is.

    Returns:
        The sentence with the suffixes.
    """
    if not suffixes:
        return sentence
    # The longest first, since "always lab-big" ends with "lab-big"; what has its suffix already is passed over whole.
    labels = [name + suffix for name, suffix in suffixes.items()]
    words = "|".join(map(re.escape, sorted([*suffixes, *labels], key=len, reverse=True)))
    pattern = rf"(?<![\w-])(?:{words})(?![\w-])"
    return re.sub(pattern, lambda match: match[0] + suffixes.get(match[0], ""), sentence)


def _find_name(sentence: str, name: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", sentence) is not None


def _replace_labels(figure: Figure, replace: Callable[[str], str]) -> None:
    """Replaces the text of every label of a figure except its title.

    Args:
        figure: The figure, which is changed.
        replace: From the old text to the new one.
    """
    # Tick labels are written anew at every drawing, so the axis has to learn the new ones.
    tick_labels = set()  # compared by identity
    for axes in figure.axes:
        for axis in (axes.xaxis, axes.yaxis):
            texts = axis.get_ticklabels()
            tick_labels.update(texts)
            labels = [text.get_text() for text in texts]
            new_labels = list(map(replace, labels))
            if new_labels != labels and isinstance(axis.get_major_locator(), FixedLocator):
                axis.set_ticklabels(new_labels)

    for text in figure.findobj(Text):
        if text not in tick_labels and text is not figure._suptitle:
            text.set_text(replace(text.get_text()))
