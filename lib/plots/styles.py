"""What a name looks like: one colour and one marker for each method, by its role and by its name inside the role.

Colours are those of Okabe and Ito (2008) and of Paul Tol's muted scheme; the specialist of an objective has
the colour of its objective. A marker stands beside each colour, so that no figure depends on colour alone.
A lesson names what only it draws with `register_styles`. Left out: names of single lessons.
"""

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
from matplotlib.colors import to_hex, to_rgb

GREY = "#595959"  # notes, and marks of no method
FAINT = "#b5b5b5"
Style = tuple[str, str]  # colour "#rrggbb", marker

# By role: its marker, and colours for names that have no style of their own.
ROLES: dict[str, tuple[str, tuple[str, ...]]] = {
    "paper": ("o", ("#332288", "#AA2255", "#0072B2", "#882E72", "#4477AA")),
    "router": ("s", ("#117733", "#44AA99", "#B997E5", "#A3B92B", "#004D66")),
    "expert": ("D", ("#E69F00", "#56B4E9", "#CC79A7", "#D55E00", "#009E73")),
    "constant": ("p", ("#C2A878", "#8C6239", "#EE6677", "#8A8A8A")),
    "start": ("X", ("#66657A",)),
    "oracle": ("*", ("#000000",)),
    "reference": ("X", (GREY,)),
}
# For names without a role and without a style.
_DEFAULT_COLOURS = (
    "#117733",
    "#EE6677",
    "#66657A",
    "#B997E5",
    "#A3B92B",
    "#004D66",
    "#44AA99",
)
_DEFAULT_MARKERS = ("d", "H", "8", "X", "o", "s", "^", "v")

_STYLES: dict[str, Style] = {
    **{role: (colours[0], mark) for role, (mark, colours) in ROLES.items()},
    # papers
    "KO": ("#332288", "<"),
    "TO": ("#999933", ">"),
    "RO": ("#AA2255", "h"),
    "Conductor": ("#332288", "P"),
    "CoRL": ("#332288", "P"),
    "ToolOrchestra": ("#332288", "P"),
    "ARC": ("#332288", "P"),
    # experts: policies and language models
    "SO-d1": ("#0072B2", "o"),
    "SO-d2": ("#E69F00", "s"),
    "SO-d3": ("#009E73", "^"),
    "MO-S": ("#56B4E9", "D"),
    "MO-RM": ("#D55E00", "v"),
    "MO-MGDA": ("#CC79A7", "P"),
    "MO-pseudoS": ("#8C6239", "p"),
    "lab-nano": ("#56B4E9", "o"),
    "lab-mini": ("#E69F00", "s"),
    "lab-large": ("#AA2255", "^"),
    "lab-control": ("#8C6239", "v"),
    "lab-facts": ("#CC79A7", "p"),
    "lab-caller": ("#44AA99", "X"),
    "lab-policy": ("#009E73", "D"),
    "lab-agent": ("#332288", "P"),
    # routers and constants
    "greedy look-ahead": ("#117733", "d"),
    "LinUCB": ("#B997E5", "H"),
    "round-robin": ("#C2A878", "X"),
    "nearest neighbours": ("#117733", "<"),
    "logistic": ("#009E73", ">"),
    "cascade": ("#999933", "h"),
    "best constant": ("#C2A878", "p"),
    "random": ("#8A8A8A", "X"),
    "oracle look-ahead": ("#000000", "*"),
    # objectives, and actions that serve one
    "aptitude": ("#0072B2", "o"),
    "gap": ("#E69F00", "s"),
    "performance": ("#009E73", "^"),
    "goal": ("#0072B2", "o"),
    "no-lava": ("#E69F00", "s"),
    "gold": ("#009E73", "^"),
    "failed": ("#8C6239", "X"),
    "easy": ("#44AA99", "8"),
    "challenge": ("#5B3A8E", "d"),
}


def register_styles(styles: Mapping[str, Style]) -> None:
    """Gives names a colour and a marker, for the whole process.

    Raises:
        ValueError: A name has another style already, or a colour does not exist.
    """
    for name, (shade, mark) in styles.items():
        style = to_hex(shade).upper(), mark
        if _STYLES.get(name, style) != style:
            raise ValueError(f"{name!r} is {_STYLES[name]} already and cannot be {style} too")
        _STYLES[name] = style


def colour(name: str) -> str:
    """The colour of a name, "#rrggbb"; the same in every figure and process."""
    return _default_style(name, None)[0]


def marker(name: str) -> str:
    """The marker of a name; all are filled shapes."""
    return _default_style(name, None)[1]


def assign_styles(
    names: Iterable[str],
    like: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
) -> dict[str, Style]:
    """Finds a style for every name of one figure.

    A name without a style of its own takes the next colour of its role where another name of the figure has its first
    choice.

    Args:
        names: What is drawn.
        like: {name: the name whose style it takes}.
        roles: {name: role}, one of `ROLES`.

    Returns:
        {name: (colour, marker)}, in the order of the names.
    """
    like = like or {}
    roles = roles or {}
    names = list(dict.fromkeys(names))

    # Registered styles come first, so that the others can avoid them.
    styles = {}
    for name in names:
        styled_name = like.get(name, name)
        if styled_name in _STYLES:
            styles[name] = _STYLES[styled_name]

    # The others in alphabetical order, so that the order of drawing does not matter.
    for name in sorted(set(names) - set(styles), key=str):
        shade, mark = _default_style(like.get(name, name), roles.get(name))
        palette = ROLES[roles[name]][1] if name in roles else _DEFAULT_COLOURS
        start = palette.index(shade)
        used_colours = {used_colour for used_colour, _ in styles.values()}
        candidates = [*palette[start:], *palette[:start]]
        free_colours = [candidate for candidate in candidates if candidate not in used_colours]
        styles[name] = free_colours[0] if free_colours else shade, mark
    return {name: styles[name] for name in names}


def _default_style(name: str, role: str | None) -> Style:
    """The style of a name alone: its registered one, or one that its hash picks."""
    if name in _STYLES:
        return _STYLES[name]
    if role is not None and role not in ROLES:
        raise ValueError(f"{role!r} is no role; roles are {', '.join(ROLES)}")
    # hash() of a string differs between processes
    digest = hashlib.sha256(str(name).encode()).digest()
    if role is None:
        shade = _DEFAULT_COLOURS[digest[0] % len(_DEFAULT_COLOURS)]
        return shade, _DEFAULT_MARKERS[digest[1] % len(_DEFAULT_MARKERS)]
    mark, colours = ROLES[role]
    return colours[digest[0] % len(colours)], mark


def text_colour(shade: str) -> str:
    """`shade` darkened until text in it has the contrast of 4.5 on white that WCAG asks for."""
    rgb = np.array(to_rgb(shade))
    while contrast_with_white(rgb) < 4.5:
        rgb = rgb * 0.95
    return to_hex(rgb)


def contrast_with_white(rgb: np.ndarray) -> float:
    """Contrast of a colour (3,) in [0, 1] with white, from 1 to 21, as WCAG 2 has it."""
    linear = np.where(rgb <= 0.03928, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    # Relative luminance: the eye is most sensitive to green.
    luminance = float(linear @ [0.2126, 0.7152, 0.0722])
    return 1.05 / (luminance + 0.05)
