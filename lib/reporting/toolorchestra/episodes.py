"""One test question taken apart, before and after training: who wrote what, at what price, in what time."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import pandas as pd

from lib import draw
from lib.models.tokenizer import encode
from lib.reporting.toolorchestra.common import MILLI, MILLION, PAPER, exam, label
from lib.routing.toolorchestra.assignments import Assignment
from lib.routing.toolorchestra.study import START, Results
from lib.scenes import spoken

Part = tuple[str, str, float]  # who, text, dollars of the call


def telling(results: Results, arm: str = PAPER, seed: int = 0) -> pd.DataFrame:
    """Episodes of start and trained (one seed) on one question: one that ends right after training, with as many calls
    as any, and otherwise than before; without a malformed turn, if there is such a one."""
    both = {who: exam(results, who, office=None) for who in (START, arm)}
    mine = both[arm][both[arm]["seed"] == seed].set_index("item")
    first = both[START].drop_duplicates("item").set_index("item")
    if mine.empty:
        return mine.reset_index()

    def rank(item: int) -> tuple:
        done, before = mine.loc[item], first.loc[item]
        other = before["called"] != done["called"] or before["right"] != done["right"]
        return done["right"], not done["malformed"], other, min(done["calls"], 3), before["right"] < 1, -item

    item = max((i for i in mine.index if i in first.index), key=rank)
    return pd.DataFrame(
        [row.to_dict() | {"item": item, "arm": who} for who, row in ((START, first.loc[item]), (arm, mine.loc[item]))]
    )


def parts(row: Mapping, results: Results, asked: Assignment) -> list[tuple[str, str, float, float, bool]]:
    """Who, text, dollars and seconds of every part, and whether its time is exact.

    Every token is charged to the orchestrator once; those that separate speakers are charged to the prompt. A call
    takes as long as its tool, what the orchestrator writes as long as its tokens; calls to several models share
    what is left evenly.
    """
    told: Sequence[Part] = json.loads(row["spoken"])
    lengths = [len(encode(text)) for _, text, _ in told]
    lengths[0] += round(row["own"] / results.own.dollars) - sum(lengths) if results.own.dollars else 0
    times = [_time(who, n, results, asked) for (who, _, _), n in zip(told, lengths, strict=True)]
    open_ = [i for i, time in enumerate(times) if time is None]
    left = max(0.0, row["seconds"] - sum(time for time in times if time is not None))
    out = []
    for (who, text, paid), n, time in zip(told, lengths, times, strict=True):
        exact = time is not None or len(open_) == 1
        out.append((who, text, paid + n * results.own.dollars, left / len(open_) if time is None else time, exact))
    return out


def _time(who: str, tokens: int, results: Results, asked: Assignment) -> float | None:
    """Seconds of a part; None for a model's reply, which only the whole tells."""
    if who == "controller":
        return tokens * results.own.seconds
    if who in ("prompt", "nobody"):
        return 0.0
    if who not in asked.menu.names:
        return None
    offer = asked.menu.offer(who)
    return None if offer.model else offer.seconds


def episode_html(episodes: pd.DataFrame, results: Results, asked: Assignment, caption: str) -> tuple[str, str]:
    """Episodes one below the other: every part in the colour of who wrote it, mask, price and time beside it; and as
    plain text."""
    blocks, plain = [], []
    for row in episodes.to_dict("records"):
        lines = [_part_html(*part) for part in parts(row, results, asked)]
        verdict = verdict_words(row)
        heading = f"{label(row['arm'])}" + ("" if row["arm"] == START else f", seed {row['seed']}")
        blocks.append(spoken.episode(heading, [html for html, _ in lines], verdict))
        plain += [heading, *(text for _, text in lines), verdict]
    return spoken.together(caption, blocks), "\n".join(plain)


def _part_html(who: str, text: str, dollars: float, seconds: float, exact: bool) -> tuple[str, str]:
    own = who == "controller"
    time = f", {'' if exact else 'about '}{seconds * MILLI:.1f} ms" if seconds else ""
    shade = draw.ink(draw.colour(label(PAPER) if own else who)) if who != "prompt" else draw.GREY
    note = f"; ${dollars * MILLION:.1f} per million{time}"
    return spoken.part("orchestrator" if own else who, text, own, shade, note)


def verdict_words(row: Mapping) -> str:
    """How it ended."""
    right = "right" if row["right"] else "wrong"
    return (
        f"{right}; ${row['dollars'] * MILLION:.1f} per million, of it ${row['own'] * MILLION:.1f} for the "
        f"orchestrator's own tokens; {row['seconds'] * MILLI:.1f} ms; {row['calls']} calls, {row['malformed']} "
        "malformed turns"
    )
