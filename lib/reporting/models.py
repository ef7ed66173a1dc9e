"""Figures and tables of lesson 03: what the lab models were asked, how they learned, what they can do.

Every title and alt text is made from the numbers that it is about.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from html import escape

import numpy as np
import pandas as pd
from IPython.display import display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib import tasks
from lib.draw import figures
from lib.draw.play import live
from lib.models.build import Lab
from lib.models.cards import Measured, Price, accuracies
from lib.models.generation import Generation
from lib.models.tokenizer import tokenizer
from lib.stats import Interval

EXPERTS = ("lab-nano", "lab-mini", "lab-large")
CONTROL = "lab-control"  # the size of lab-mini, the chains of lab-large
_SURE, _LOST = 0.75, 0.4  # what the ladder asks for: at least, at most


def family_table() -> pd.DataFrame:
    """One easy item of every family and skin, with its whole solution."""
    rows = []
    for name, family in tasks.FAMILIES.items():
        for skin in family.skins:
            (item,) = tasks.draw(name, "train", 1, family.difficulties[1], skin)
            rows.append({"family": name, "skin": skin, "prompt": item.prompt, "solution": item.solution})
    return pd.DataFrame(rows)


def sizes(parameters: dict[str, int], prices: dict[str, Price], trained: Lab) -> pd.DataFrame:
    """Parameters, attempts and updates until the target, operations and price per token, of every model."""
    updates = trained.curves.groupby("model")["step"].max()
    return pd.DataFrame(
        [
            {
                "model": name,
                "parameters": parameters[name],
                "attempts": trained.attempts[name],
                "updates": int(updates[name]),
                "operations/token": round(price.flops),
                "$/1,000 tokens": price.dollars * 1000,
                "tokens/s by the clock": round(1 / price.seconds),
            }
            for name, price in prices.items()
        ]
    )


# How they learned


def transitions(curves: pd.DataFrame) -> Figure:
    """Loss and dev accuracy against updates, one panel per model."""
    names = list(dict.fromkeys(curves["model"]))
    note = (
        "Grey: loss on the training corpus, nats per token (left, logarithmic). Colour: accuracy on dev items (right)."
    )
    with figures.theme():
        figure = figures.sheet(_transition_title(curves), figures.WIDTH + 2.4, 2.6 * -(-len(names) // 3) + 0.6, note)
        for axes, name in zip(figures.tiles(figure, len(names)), names, strict=True):
            rows = curves[curves["model"] == name]
            axes.semilogy(rows["step"], rows["loss"], color=figures.FAINT)
            axes.set_title(name, color=figures.ink(figures.colour(name)))
            axes.set_xlabel("updates")
            right = axes.twinx()
            right.plot(rows["step"], rows["accuracy"], color=figures.colour(name), marker=figures.marker(name), ms=4)
            right.set_ylim(-0.02, 1.02)
            right.grid(False)
    return figure


def jump(rows: pd.DataFrame) -> tuple[float, float, int, int]:
    """Where accuracy rises most between two looks that are at most a tenth of the training apart:
    accuracy before and after, and the updates of either."""
    steps, accuracy = rows["step"].to_numpy(), rows["accuracy"].to_numpy()
    reach = max(1, round(len(rows) / 10))
    gains = [accuracy[min(i + reach, len(rows) - 1)] - accuracy[i] for i in range(len(rows))]
    at = int(np.argmax(gains))
    after = min(at + reach, len(rows) - 1)
    return float(accuracy[at]), float(accuracy[after]), int(steps[at]), int(steps[after])


def _transition_title(curves: pd.DataFrame) -> str:
    name = "lab-large" if "lab-large" in set(curves["model"]) else str(curves["model"].iloc[0])
    before, after, start, end = jump(curves[curves["model"] == name])
    if after - before < 0.2:
        return f"{name}: no jump in this run, accuracy moved from {before:.0%} to {after:.0%}"
    return (
        f"{name} goes from {before:.0%} to {after:.0%} between updates {start} and {end}; its loss shows no such step"
    )


def transitions_alt(curves: pd.DataFrame) -> str:
    """The transitions in words."""
    told = []
    for name, rows in curves.groupby("model", sort=False):
        before, after, start, end = jump(rows)
        told.append(
            f"{name}: loss {rows['loss'].iloc[0]:.2f} to {rows['loss'].iloc[-1]:.2f} in {rows['step'].iloc[-1]:.0f} "
            f"updates, steepest rise of accuracy {before:.2f} to {after:.2f} at updates {start} to {end}"
        )
    return "Loss and dev accuracy during training. " + "; ".join(told) + "."


@contextmanager
def watching(curves: Callable[[], pd.DataFrame], every: float = 3.0) -> Iterator[None]:
    """In a live session, draw the curves anew every few seconds while the block runs; nothing in a report."""
    if not live():
        yield
        return
    from ipywidgets import Image  # imported here: a report needs none

    picture, done = Image(format="png"), threading.Event()
    display(picture)

    def look() -> None:
        while not done.wait(every):
            table = curves()
            if len(table):
                picture.value = figures.png(transitions(table))

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()
        picture.close()


# What they can do


def ladder(answers: pd.DataFrame, skin: str = "plain") -> Figure:
    """Accuracy on chains by number of operations, the three experts and the control, with intervals over items."""
    table = _chain(answers, skin)
    note = "Bars: 95% Wilson intervals over test items, one trained model each. Dotted: the best constant answer."
    with figures.theme():
        figure = figures.sheet(ladder_claim(answers, skin), figures.WIDTH, 4.2, note)
        axes = figure.subplots()
        for shift, name in zip((-0.09, 0, 0.09, 0.15), (*EXPERTS, CONTROL), strict=True):
            rows = table[table["model"] == name]
            style = {"linestyle": "--" if name == CONTROL else "-", "lw": 1.7, "elinewidth": 1}
            _line(axes, rows["difficulty"] + shift, rows["accuracy"], name, **style)
        guess = constant(answers, skin)
        axes.plot(guess.index, guess.to_numpy(), ":", color=figures.GREY)
        axes.set(xlabel="operations in the chain", ylabel="accuracy", ylim=(-0.02, 1.04))
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def _line(axes: Axes, x: pd.Series, found: Iterable[Interval], name: str, **style) -> None:
    """A model's accuracies as a line with their intervals, in its colour and with its marker."""
    values = np.array([[i.value, i.lo, i.hi] for i in found])
    spread = np.maximum([values[:, 0] - values[:, 1], values[:, 2] - values[:, 0]], 0)
    own = {"color": figures.colour(name), "marker": figures.marker(name), "label": name, "capsize": 2}
    axes.errorbar(x, values[:, 0], spread, **own | style)


def _chain(answers: pd.DataFrame, skin: str) -> pd.DataFrame:
    return accuracies(answers[(answers["category"] == "chain") & (answers["skin"] == skin)])


def constant(answers: pd.DataFrame, skin: str = "plain") -> pd.Series:
    """Accuracy of always giving the commonest answer, by difficulty."""
    rows = answers[(answers["category"] == "chain") & (answers["skin"] == skin) & (answers["model"] == EXPERTS[0])]
    return rows.groupby("difficulty")["answer"].agg(lambda given: given.value_counts(normalize=True).iloc[0])


def rungs(answers: pd.DataFrame) -> pd.DataFrame:
    """What the ladder asks for, what was found, and whether it holds (the value, not its interval)."""
    asked = (
        ("lab-nano", 2, ">=", _SURE), ("lab-nano", 4, "<=", _LOST), ("lab-mini", 4, ">=", _SURE),
        ("lab-mini", 6, "<=", _LOST), ("lab-large", 8, ">=", 0.9),
    )  # fmt: skip
    table = _chain(answers, "plain").set_index(["model", "difficulty"])["accuracy"]
    rows = []
    for name, difficulty, sign, bound in asked:
        found = table[name, difficulty]
        holds = found.value >= bound if sign == ">=" else found.value <= bound
        rows.append(
            {"model": name, "operations": difficulty, "asked": f"{sign} {bound}", "found": str(found), "holds": holds}
        )
    return pd.DataFrame(rows)


def ladder_claim(answers: pd.DataFrame, skin: str = "plain") -> str:
    """How far each expert is reliable, as a sentence."""
    table, told = _chain(answers, skin), []
    for name in EXPERTS:
        rows = table[table["model"] == name].sort_values("difficulty")
        held = [d for d, i in zip(rows["difficulty"], rows["accuracy"], strict=True) if i.value >= _SURE]
        reach = max((d for d in held if set(range(1, d + 1)) <= set(held)), default=0)
        told.append(f"{name} up to {reach}" if reach else f"{name} nowhere")
    return f"Right at least {_SURE:.0%} of the time: {', '.join(told)} operations"


def schooling(answers: pd.DataFrame) -> str:
    """What the control says about size and schooling, as a sentence."""
    table = _chain(answers, "plain").set_index(["model", "difficulty"])["accuracy"]
    top = max(d for name, d in table.index if name == CONTROL)
    taught, short, large = (table[name, top] for name in (CONTROL, "lab-mini", "lab-large"))
    gap = "schooling, not size, set the limit of lab-mini"
    if taught.lo <= short.hi:
        gap = "more schooling alone did not lift it clearly"
    return (
        f"At {top} operations {CONTROL}, as small as lab-mini and taught chains of all lengths, is right "
        f"{taught} of the time; lab-mini {short}, lab-large {large}: {gap}."
    )


def ladder_alt(answers: pd.DataFrame, skin: str = "plain") -> str:
    """The ladder in words."""
    table = _chain(answers, skin)
    told = [
        f"{name} " + ", ".join(f"{d}: {i.value:.2f}" for d, i in zip(r["difficulty"], r["accuracy"], strict=True))
        for name, r in table[table["model"].isin((*EXPERTS, CONTROL))].groupby("model", sort=False)
    ]
    return "Accuracy on chains by number of operations. " + "; ".join(told) + "."


def by_family(answers: pd.DataFrame) -> pd.DataFrame:
    """Accuracy by model and family, mean over skins and difficulties."""
    return answers.pivot_table(index="model", columns="category", values="right", sort=False).astype(float)


def family_claim(answers: pd.DataFrame) -> str:
    """Whether one model is best everywhere, as a sentence."""
    table = by_family(answers)
    best = table.idxmax().where(table.max() > 0, "nobody")
    if best.nunique() == 1:
        return f"{best.iloc[0]} is best in every family"
    told = [f"{name} in {', '.join(best.index[best == name])}" for name in dict.fromkeys(best)]
    return f"No model is best everywhere: {'; '.join(told)}"


def family_alt(answers: pd.DataFrame) -> str:
    """The matrix in words."""
    rows = by_family(answers).iterrows()
    told = "; ".join(f"{name} " + ", ".join(f"{f} {v:.2f}" for f, v in row.items()) for name, row in rows)
    return f"Accuracy by model and family. {told}."


def price_claim(points: dict[str, tuple[Interval, Interval]]) -> str:
    """What the dearest step buys, as a sentence."""
    cheap, dear = (min(points, key=lambda n: points[n][0].value), max(points, key=lambda n: points[n][1].value))
    factor = points[dear][0].value / points[cheap][0].value
    gain = points[dear][1].value - points[cheap][1].value
    return f"{dear} costs {factor:.0f} times as much as {cheap} and is right {100 * gain:.0f} points more often"


def price_alt(points: dict[str, tuple[Interval, Interval]]) -> str:
    """Price against accuracy in words."""
    told = ", ".join(f"{n} ${c.value:.2g} and {q.value:.2f}" for n, (c, q) in points.items())
    return f"Mean dollars per 1,000 questions against accuracy on chains: {told}; dashed the hull of mixtures."


def failures(answers: pd.DataFrame) -> pd.DataFrame:
    """For every model its first wrong reply to an item of what it is mostly right at, and to one it is lost at."""
    rows = []
    for name, mine in answers.groupby("model", sort=False):
        rate = mine.groupby(["category", "skin", "difficulty"])["right"].transform("mean")
        cases = {"mostly right": mine[~mine["right"] & (rate >= 0.5)], "lost": mine[~mine["right"] & (rate < 0.25)]}
        for label, wrong in cases.items():
            if len(wrong):
                case = wrong.iloc[0]
                told = {"prompt": case.prompt, "reply": case.reply[:160], "a right answer": case.answer}
                rows.append({"model": name, "where": label, **told})
    return pd.DataFrame(rows)


def reliability(answers: pd.DataFrame) -> Figure:
    """Confidence against accuracy in ten bins, one panel per model."""
    names = list(dict.fromkeys(answers["model"]))
    note = "Confidence: probability of the whole reply. Dots grow with their share of replies. Dotted: calibrated."
    with figures.theme():
        figure = figures.sheet(reliability_claim(answers), figures.WIDTH + 1.4, 2.5 * -(-len(names) // 3) + 0.6, note)
        for axes, name in zip(figures.tiles(figure, len(names), sharex=True, sharey=True), names, strict=True):
            rows = answers[answers["model"] == name]
            bins = np.minimum((rows["confidence"] * 10).astype(int), 9)
            means = rows.groupby(bins)[["confidence", "right"]].mean()
            axes.plot([0, 1], [0, 1], ":", color=figures.GREY)
            shares = rows.groupby(bins).size() / len(rows)
            axes.scatter(
                means["confidence"], means["right"], s=20 + 400 * shares, color=figures.colour(name), alpha=0.75
            )
            axes.set_title(name, color=figures.ink(figures.colour(name)))
            axes.set(xlim=(-0.05, 1.05), ylim=(-0.05, 1.05), xlabel="confidence", ylabel="accuracy")
    return figure


def overconfidence(answers: pd.DataFrame) -> pd.Series:
    """Mean confidence minus accuracy, by model."""
    means = answers.groupby("model", sort=False)[["confidence", "right"]].mean()
    return means["confidence"] - means["right"].astype(float)


def reliability_claim(answers: pd.DataFrame) -> str:
    """Who is surest of what is wrong, as a sentence."""
    gap = overconfidence(answers)
    worst = gap.idxmax()
    if gap[worst] < 0.05:
        return f"No model is surer than it should be by 5 points; closest is {worst} with {gap[worst]:+.2f}"
    return f"{worst} is surer of its replies than it should be, by {100 * gap[worst]:.0f} points on average"


def reliability_alt(answers: pd.DataFrame) -> str:
    """Calibration in words."""
    told = ", ".join(f"{name} {gap:+.2f}" for name, gap in overconfidence(answers).items())
    return f"Accuracy against confidence in ten bins for each model; mean confidence minus accuracy: {told}."


# What a hidden state knows


def probes(trained: pd.DataFrame, untrained: pd.DataFrame, model: str) -> Figure:
    """Probe accuracy by layer, trained against untrained, one panel per question."""
    whats = list(dict.fromkeys(trained["what"]))
    note = "Bars: 95% Wilson intervals. Grey: the same network before training. Dotted: the best constant guess."
    with figures.theme():
        figure = figures.sheet(
            probe_claim(trained, untrained), figures.WIDTH + 1.4, 2.5 * -(-len(whats) // 3) + 0.6, note
        )
        for axes, what in zip(figures.tiles(figure, len(whats), sharex=True, sharey=True), whats, strict=True):
            for rows, shade in ((untrained, figures.FAINT), (trained, figures.colour(model))):
                part = rows[rows["what"] == what]
                _line(axes, part["layer"], part["accuracy"], model, color=shade, marker="o", ms=4)
            axes.axhline(part["constant"].iloc[0], linestyle=":", color=figures.GREY)
            axes.set_title("category" if what == "category" else f"difficulty of {what}")
            axes.set(xlabel="layer (0: embedding)", ylabel="accuracy", ylim=(0, 1.05))
            axes.set_xticks(sorted(set(part["layer"])))
    return figure


def _best(rows: pd.DataFrame, what: str) -> tuple[int, Interval]:
    part = rows[rows["what"] == what]
    at = int(np.argmax([i.value for i in part["accuracy"]]))
    return int(part["layer"].iloc[at]), part["accuracy"].iloc[at]


def probe_claim(trained: pd.DataFrame, untrained: pd.DataFrame) -> str:
    """What training added to what the state tells, as a sentence."""
    whats = [w for w in dict.fromkeys(trained["what"]) if w != "category"]
    gains = {w: _best(trained, w)[1].value - _best(untrained, w)[1].value for w in whats}
    most = max(gains, key=gains.get)
    layer, category = _best(trained, "category")
    return (
        f"Layer {layer} tells the category in {category.value:.0%} of prompts; "
        f"training adds most for the difficulty of {most} ({gains[most]:+.0%})"
    )


def probe_alt(trained: pd.DataFrame, untrained: pd.DataFrame) -> str:
    """The probes in words."""
    told = []
    for what in dict.fromkeys(trained["what"]):
        layer, best = _best(trained, what)
        told.append(f"{what}: {best.value:.2f} at layer {layer}, untrained {_best(untrained, what)[1].value:.2f}")
    return "Accuracy of linear probes by layer, trained and untrained. " + "; ".join(told) + "."


# One reply, and temperature


def reply_html(prompt: str, reply: Generation) -> tuple[str, str]:
    """A reply token by token, as HTML and as plain text: the less sure a token was, the heavier its line."""
    tokens = tokenizer().convert_ids_to_tokens(reply.ids)
    spans, plain = [], []
    for token, logprob, entropy in zip(tokens, reply.logprobs, reply.entropies, strict=True):
        chance = float(np.exp(logprob))
        width = 1 + round(5 * (1 - chance))
        style = (
            f"display:inline-block;margin:0 0.35rem 0.5rem 0;border-bottom:{width}px solid #D55E00;text-align:center"
        )
        below = f'<br><small style="opacity:0.75">{chance:.2f}</small>'
        spans.append(f'<span style="{style}" title="entropy {entropy:.2f} nats">{escape(token.strip())}{below}</span>')
        plain.append(f"{token.strip()} ({chance:.2f})")
    asked = f"<p><strong>Asked:</strong> {escape(prompt)}</p>"
    return f"<div>{asked}<p>{''.join(spans)}</p></div>\n", f"{prompt} -> {' '.join(plain)}"


def temperatures(table: pd.DataFrame, shown: Sequence[float]) -> Figure:
    """Accuracy against sampling temperature; the given temperatures are marked."""
    with figures.theme():
        note = "Bars: 95% Wilson intervals over test items, one sample each."
        figure = figures.sheet(temperature_claim(table), figures.WIDTH, 3.6, note)
        axes = figure.subplots()
        for name, rows in table.groupby("model", sort=False):
            _line(axes, rows["temperature"], rows["accuracy"], name)
        for temperature in shown:
            axes.axvline(temperature, color=figures.FAINT, zorder=0)
        axes.set(xlabel="temperature", ylabel="accuracy", ylim=(-0.02, 1.04))
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure


def temperature_claim(table: pd.DataFrame) -> str:
    """What heat does, as a sentence."""
    told = []
    for name, rows in table.groupby("model", sort=False):
        first, last = rows.iloc[0], rows.iloc[-1]
        told.append(f"{name} {first.accuracy.value:.0%} to {last.accuracy.value:.0%}")
    return f"From temperature {table['temperature'].min():g} to {table['temperature'].max():g}: {', '.join(told)}"


def metrics(measured: Measured) -> dict[str, object]:
    """Keys of the metrics file: `nano.chain.2.accuracy`, `large.dollars_per_1k_tokens`, and so on."""
    out: dict[str, object] = {"backend": "lab"}
    for row in accuracies(measured.answers).itertuples():
        skin = "" if row.skin == "plain" else f".{row.skin}"
        out[f"{row.model.removeprefix('lab-')}.{row.category}{skin}.{row.difficulty}.accuracy"] = row.accuracy
    for name, price in measured.prices.items():
        short = name.removeprefix("lab-")
        out[f"{short}.parameters"] = measured.parameters[name]
        out[f"{short}.flops_per_token"] = price.flops
        out[f"{short}.dollars_per_1k_tokens"] = 1000 * price.dollars
        out[f"{short}.tokens_per_second"] = 1 / price.seconds
    return out
