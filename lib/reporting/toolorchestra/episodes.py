"""One test question taken apart, before and after training: who wrote what, at what price, in what time."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pandas as pd

from lib.models.tokenizer import encode
from lib.reporting.toolorchestra.common import LABELS, MILLI, MILLION, PAPER, exam
from lib.routing.toolorchestra.assignments import Assignment
from lib.routing.toolorchestra.study import START, Results
from lib.scenes import spoken


def telling(results: Results) -> pd.DataFrame:
    """Episodes of start and trained (seed 0) on one question: one that ends right after training, with as many calls
    as any, and otherwise than before; without a malformed turn, if there is such a one."""
    both = {arm: exam(results, arm, office=None).query("seed == 0").set_index("item") for arm in (START, PAPER)}

    def rank(item: int) -> tuple:
        before, done = (part.loc[item] for part in both.values())
        other = before["called"] != done["called"] or before["right"] != done["right"]
        return done["right"], not done["malformed"], other, min(done["calls"], 3), before["right"] < 1, -item

    item = max(both[PAPER].index, key=rank)
    return pd.DataFrame([part.loc[item].to_dict() | {"item": item} for part in both.values()])


def parts(row: Mapping, results: Results, asked: Assignment) -> list[tuple[str, str, float, float, bool]]:
    """Who, text, dollars and seconds of every part, and whether its time is exact.

    Every token is charged to the orchestrator once; those that separate speakers are charged to the prompt. A call
    takes as long as its tool, what the orchestrator writes as long as its tokens; calls to several models share
    what is left evenly.
    """
    told, own = json.loads(row["spoken"]), results.own
    lengths = [len(encode(text)) for _, text, _ in told]
    lengths[0] += round(row["own"] / own.dollars) - sum(lengths) if own.dollars else 0
    times = [_time(who, n * own.seconds, asked) for (who, _, _), n in zip(told, lengths, strict=True)]
    known = [time for time in times if time is not None]
    open_ = len(times) - len(known)
    rest = max(0.0, row["seconds"] - sum(known)) / max(1, open_)
    return [
        (who, text, paid + n * own.dollars, rest if time is None else time, time is not None or open_ == 1)
        for (who, text, paid), n, time in zip(told, lengths, times, strict=True)
    ]


def _time(who: str, writing: float, asked: Assignment) -> float | None:
    """Seconds of a part; None for a model's reply, which only the whole tells. writing: of the orchestrator, if it is
    its own."""
    if who in ("controller", "prompt", "nobody"):
        return writing if who == "controller" else 0.0
    offer = next((offer for offer in asked.menu.offers if offer.name == who), asked.menu.desk)
    return None if offer is None or offer.model else offer.seconds


def episode_html(episodes: pd.DataFrame, results: Results, asked: Assignment, caption: str) -> spoken.Shown:
    """Episodes one below the other: every part in the colour of who wrote it, mask, price and time beside it; and as
    plain text."""
    shown = []
    for row in episodes.to_dict("records"):
        heading = LABELS[row["arm"]] + ("" if row["arm"] == START else f", seed {row['seed']}")
        shown.append((heading, [_shown(*part) for part in parts(row, results, asked)], verdict_words(row)))
    return spoken.together(caption, shown)


def _shown(who: str, text: str, dollars: float, seconds: float, exact: bool) -> spoken.Shown:
    time = f", {'' if exact else 'about '}{seconds * MILLI:.1f} ms" if seconds else ""
    note = f"; ${dollars * MILLION:.1f} per million{time}"
    own = who == "controller"
    return spoken.part("orchestrator" if own else who, text, LABELS[PAPER] if own else "", note)


def verdict_words(row: Mapping) -> str:
    """How it ended."""
    right = "right" if row["right"] else "wrong"
    return (
        f"{right}; ${row['dollars'] * MILLION:.1f} per million, of it ${row['own'] * MILLION:.1f} for the "
        f"orchestrator's own tokens; {row['seconds'] * MILLI:.1f} ms; {row['calls']} calls, {row['malformed']} "
        "malformed turns"
    )
