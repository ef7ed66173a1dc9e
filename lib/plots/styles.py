"""What a name looks like: one colour and one marker for each method, by its role and by its name inside the role.

Colours are those of Okabe and Ito (2008) and of Paul Tol's muted scheme; the specialist of an objective has
the colour of its objective. A marker stands beside each colour, so that no figure depends on colour alone.
Names that are in no table take a colour of their role, or one that their letters pick. Left out: how marks are drawn.
"""

import hashlib
from collections.abc import Iterable, Mapping

import numpy as np
from matplotlib.colors import to_hex, to_rgb

GREY = "#595959"  # notes, and marks of no method
FAINT = "#b5b5b5"
EMPHASIS = "#D55E00"  # a single thing that stands out of a text
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

# One table for the whole project: a name has one colour and one marker in every lesson. Methods of papers have colours
# of their own, because lesson 10 draws all of them. Methods that one lesson compares never share colour and marker; a
# tool or model that is a method of its own ("always search") looks like the tool.
SHARED_METHODS: dict[str, Style] = {
    "random": ("#8A8A8A", "X"), "round-robin": ("#C2A878", "X"), "best constant": ("#C2A878", "p"),
    "oracle": ("#000000", "*"), "start": ("#66657A", "X"), "nearest neighbours": ("#117733", "<"),
    "logistic": ("#009E73", ">"), "cascade": ("#5D4037", "d"),
}  # fmt: skip
PAPERS: dict[str, Style] = {
    "KO": ("#4477AA", "<"), "TO": ("#999933", ">"), "RO": ("#AA2255", "h"), "Conductor": ("#CC3311", "P"),
    "CoRL": ("#332288", "P"), "ToolOrchestra": ("#882E72", "P"), "ARC": ("#004D66", "v"),
}  # fmt: skip
LESSON_METHODS: dict[str, dict[str, Style]] = {
    "01_policy_zoo": {
        "SO-d1": ("#0072B2", "o"), "SO-d2": ("#E69F00", "s"), "SO-d3": ("#009E73", "^"), "MO-S": ("#56B4E9", "D"),
        "MO-RM": ("#D55E00", "v"), "MO-MGDA": ("#CC79A7", "P"), "MO-pseudoS": ("#8C6239", "p"),
    },
    "02_orchestration": {
        "SO-d1": ("#0072B2", "o"), "SO-d2": ("#E69F00", "s"), "SO-d3": ("#009E73", "^"), "MO-S": ("#56B4E9", "D"),
        "MO-RM": ("#D55E00", "v"), "MO-MGDA": ("#CC79A7", "P"), "MO-pseudoS": ("#8C6239", "p"),
        "greedy": ("#117733", "d"), "LinUCB": ("#B997E5", "H"), "plan ahead": ("#000000", "D"),
        "best policy": ("#66C2A5", "p"), "lab-orchestrator": ("#E69F00", "8"),
        "SmolLM2-135M-Instruct": ("#0072B2", "8"),
        "scripted-small": ("#56B4E9", "8"), "scripted-medium": ("#CC79A7", "8"), "scripted-large": ("#8C6239", "8"),
    },
    "03_model_zoo": {
        "lab-nano": ("#56B4E9", "o"), "lab-mini": ("#E69F00", "s"), "lab-large": ("#AA2255", "^"),
        "lab-control": ("#8C6239", "v"), "lab-facts": ("#CC79A7", "p"), "lab-caller": ("#44AA99", "X"),
        "lab-policy": ("#009E73", "D"), "lab-agent": ("#5B3A8E", "P"),
    },
    "04_conductor": {
        "Equal": ("#56B4E9", "v"), "Anchored": ("#117733", "s"), "Anchored 100%": ("#44AA99", "s"),
        "Anchored 10%": ("#A3B92B", "s"), "Anchored 2%": ("#B997E5", "s"), "Conductor's mean weights": ("#8C6239", "p"),
        "rewarded with the truth": ("#595959", "*"), "best proxy per category": ("#8C6239", "*"),
        "h: prompt": ("#0072B2", "s"), "h: reply": ("#E69F00", "D"), "h: shuffled": ("#D55E00", "v"),
        "no entropy": ("#CC79A7", "p"), "pairwise": ("#009E73", "^"), "joint": ("#004D66", "d"),
    },
    "05_budgeted_routing": {
        "low": ("#56B4E9", "o"), "medium": ("#E69F00", "s"), "high": ("#AA2255", "^"),
        "controller alone": ("#8C6239", "X"), "whitened over all budgets": ("#44AA99", "s"),
        "budget not in the prompt": ("#CC79A7", "v"), "budget not in the reward": ("#D55E00", "D"),
    },
    "06_tool_orchestration": {
        "sign error": ("#D55E00", "v"), "failures kept": ("#EE6677", ">"),
        "best single tool": ("#E69F00", "p"), "best by kind": ("#44AA99", "H"), "names only": ("#A3B92B", "s"),
        "list prices only": ("#5B3A8E", "^"),
    },
    "07_agent_configuration": {
        "ARC without SFT": ("#0072B2", "o"), "ARC with DPO": ("#56B4E9", "D"), "ARC by GRPO": ("#AA2255", "8"),
        "ARC, no discount": ("#EE6677", "o"), "ARC without masks": ("#5B3A8E", "s"), "RL bandit": ("#E69F00", "s"),
        "RL episodes": ("#009E73", "^"), "all tools, one call": ("#D55E00", "v"), "grid search": ("#A3B92B", ">"),
        "greedy search": ("#117733", "d"), "best constant per kind": ("#44AA99", "H"),
        "prompted, zero-shot": ("#CC79A7", "X"), "prompted, few-shot": ("#8C6239", "8"),
    },
    "08_recorded_outcomes": {
        "CoRL's reward": ("#332288", "D"), "ToolOrchestra's reward": ("#882E72", "D"), "ARC's reward": ("#004D66", "D"),
        "stop or escalate": ("#44AA99", "s"), "poor check": ("#B997E5", "s"), "perfect check": ("#A3B92B", "s"),
    },
}  # fmt: skip
_METHODS: dict[str, Style] = SHARED_METHODS | PAPERS
for _styles in LESSON_METHODS.values():
    _METHODS |= _styles

# {another name of the same thing: its name in the table}; lessons say what differs, such as who stands in.
_ALIASES = {
    "Random": "random", "Base": "start", "untrained": "start", "Best static": "best constant",
    "Oracle (verifier)": "oracle", "optimum": "oracle", "oracle of those tried": "oracle",
    "GRPO": "ARC by GRPO", "PPO, then DPO": "ARC with DPO",
    "no masks": "ARC without masks", "homogeneous": "Equal",
    "prompted, zero-shot (scripted stand-in)": "prompted, zero-shot",
    "prompted, few-shot (scripted stand-in)": "prompted, few-shot",
    "low budget only": "low", "high budget only": "high", "high budget": "high",
    **{f"{method} {decider}": method
       for method in ("KO", "TO", "RO") for decider in ("lab-orchestrator", "scripted-large")},
    **{f"always {model}": model for model in ("lab-nano", "lab-mini", "lab-large")},
}  # fmt: skip

# What is no method: objectives, actions, categories, verdicts. They stand in figures of their own.
_OTHER_STYLES: dict[str, Style] = {
    # objectives and actions that serve one have the colour of the specialist
    "aptitude": ("#0072B2", "o"), "gap": ("#E69F00", "s"), "performance": ("#009E73", "^"),
    "goal": ("#0072B2", "o"), "no-lava": ("#E69F00", "s"), "gold": ("#009E73", "^"),
    "failed": ("#8C6239", "X"), "easy": ("#44AA99", "8"), "challenge": ("#5B3A8E", "d"),
    # kinds of questions
    "reasoning": ("#0072B2", "o"), "translation": ("#E69F00", "s"), "story": ("#009E73", "^"),
    "chain": ("#0072B2", "o"), "passage": ("#E69F00", "s"), "choice": ("#AA2255", "^"), "hops": ("#44AA99", "D"),
    "mixed": ("#8C6239", "v"),
    # workflows
    "direct": ("#8A8A8A", "X"), "reason": ("#56B4E9", "o"), "verify": ("#0072B2", "s"), "routing": ("#D4C420", "^"),
    "sectioning": ("#C2A878", "D"), "voting": ("#8C6239", "v"), "orchestrator": ("#004D66", "P"),
    "evaluator": ("#D55E00", "d"), "autonomous": ("#332288", "H"),
    # agents of a team
    "first agent": ("#0072B2", "o"), "second agent": ("#D55E00", "s"), "third agent": ("#009E73", "^"),
    # errors
    "policy configuration": ("#D55E00", "v"), "execution": ("#56B4E9", "s"), "knowledge gap": ("#D4C420", "D"),
    "unclassified": ("#B5B5B5", "X"),
    # the theorem of lesson 07
    "threshold tau": ("#000000", "*"), "elite, as it was paid": ("#E69F00", "s"),
    "refined, paid once more": ("#332288", "P"), "buffer": ("#8A8A8A", "X"),
    # components of a prompt
    "instr": ("#0072B2", "o"), "mem_l": ("#CC79A7", "p"), "query": ("#D55E00", "v"), "know": ("#009E73", "^"),
    "tools": ("#009E73", "s"), "state": ("#E69F00", "D"), "reflect": ("#56B4E9", "o"), "mem_s": ("#CC79A7", "h"),
    # what an ablation does
    "clearly better": ("#0072B2", "^"), "clearly worse": ("#D55E00", "v"), "clear, and neither": ("#444444", "s"),
    "not clear": ("#8A8A8A", "o"),
    # verdicts; pale where nothing is decided
    "holds": ("#0072B2", "o"), "does not hold": ("#D55E00", "o"), "equivalent": ("#009E73", "o"),
    "undecided": ("#E8D9A0", "o"), "not open": ("#AAAAAA", "o"), "untestable": ("#DDDDDD", "o"),
}  # fmt: skip

_STYLES: dict[str, Style] = {
    **{role: (colours[0], mark) for role, (mark, colours) in ROLES.items()},
    **_METHODS,
    **_OTHER_STYLES,
    **{alias: _METHODS[name] for alias, name in _ALIASES.items()},
}


def label_like(label: str, name: str) -> None:
    """Gives a label the same style as a registered name, for the whole process.

    Args:
        label: The label, such as "clearly better".
        name: A name in the table of styles, such as "holds".

    Raises:
        ValueError: The table lacks the name, or the label has another style already.
    """
    if name not in _STYLES:
        raise ValueError(f"{name!r} has no style in lib/plots/styles.py; add it to the table there")
    if _STYLES.get(label, _STYLES[name]) != _STYLES[name]:
        raise ValueError(f"{label!r} is {_STYLES[label]} already and cannot look like {name!r}")
    _STYLES[label] = _STYLES[name]


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
    """Chooses the colour and marker of a name: the registered style, or one by the hash of the name.

    Args:
        name: Name of a method or another category.
        role: One of ROLES, which has colours and a marker of its own; None for any.

    Raises:
        ValueError: There is no such role.
    """
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
