"""The preference benchmark: its sums, what its units do to them, and how often users get the tools they like.

R^e = M_norm . P if right, else 0;    M_norm[k] = M_s[k] / max(1, M_0[k]), of cost and latency M_0[k] / max(1, M_s[k])
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.page.tables import NOTHING as MISSING
from lib.reporting.toolorchestra import common
from lib.reporting.toolorchestra.common import PAPER, Rows, interval, label, ratio_gap, ratio_share, trained
from lib.reporting.words import clearly, number, there
from lib.routing.toolorchestra import benchmark, rewards
from lib.routing.toolorchestra.benchmark import ALWAYS, BEST, RANDOM
from lib.routing.toolorchestra.study import START, Results
from lib.stats import Interval

OURS, WHOLE, LITERAL = "micro-dollars and ms", "dollars and seconds", "as printed, amounts negative"
READINGS = (OURS, WHOLE, LITERAL)


def _examples(results: Results, arm: str, offices: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """M (seeds, n, k), M_0 (n, k) and P (n, k) of the exam `test`, in the order of items."""
    mine, base = (common.exam(results, who, offices=offices) for who in (arm, START))
    if mine.empty or base.empty:
        return np.zeros((0, 0, 3)), np.zeros((0, 3)), np.zeros((0, 3))
    m = np.stack([benchmark.vectors(part.sort_values("item")) for _, part in mine.groupby("seed")])
    base = base.sort_values("item")
    return m, benchmark.vectors(base), benchmark.vectors(base, "p")


def scores(results: Results, arm: str, offices: bool = False, reading: str = OURS, dearer: float = 1.0) -> np.ndarray:
    """R^e, (seeds, items), by one reading of the formula; dearer: what the orchestrator spends, times so much."""
    m, start, wanted = _examples(results, arm, offices)
    m = m * np.array([*[1.0] * (m.shape[-1] - 2), dearer, 1.0])
    return np.array([_score(reading, each, start, wanted) for each in m]).reshape(m.shape[:2])


def _score(reading: str, m: np.ndarray, start: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    if reading == LITERAL:
        counted = m[:, :-2] / np.maximum(1, start[:, :-2])
        told = np.hstack([counted, start[:, -2:] / np.maximum(1, m[:, -2:])])
        return rewards.reward(told, wanted, m[:, -3])
    units = (rewards.MICRO, rewards.MILLI) if reading == OURS else (1.0, 1.0)
    return rewards.score_in(units, m, start, wanted)


def rival_scores(results: Results, others: Mapping[str, pd.DataFrame], name: str) -> np.ndarray:
    """R^e of something without an orchestrator, (1, questions)."""
    start = common.exam(results, START)
    if name != RANDOM:
        return benchmark.baseline_scores(others[name], start, results.tools)[None]
    tools = [tool for tool in results.tools if ALWAYS + tool in others]  # one of those that can be asked, by lot
    found = np.column_stack([rival_scores(results, others, ALWAYS + tool)[0] for tool in tools])
    held = set(zip(results.tried.item, results.tried.tool, results.tried.split, strict=True))
    menus = zip(start["item"], start["menu"].str.split(), strict=True)
    asked = np.array([[tool in menu and (item, tool, "test") in held for tool in tools] for item, menu in menus])
    return ((found * asked).sum(1) / np.maximum(1, asked.sum(1)))[None]


def table(results: Results, others: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Mean and sum of R^e, over questions for everybody and over all examples for orchestrators."""
    out = []
    for arm in (START, *trained(results)):
        row: dict[str, object] = {"who": label(arm)}
        for what, offices in (("questions", False), ("all", True)):
            found = scores(results, arm, offices)
            row |= _mean_and_sum(what, found, "score", arm, *["all"] * offices)
        out.append(row)
    for name in others:
        found = rival_scores(results, others, name)
        alias = ALWAYS + benchmark.best(results.tried[results.tried["split"] == "train"]) if name == BEST else name
        out.append({"who": name} | _mean_and_sum("questions", found, "score", alias) | _mean_and_sum("all", found[:0]))
    return pd.DataFrame(out)


def _mean_and_sum(what: str, found: np.ndarray, *name: str) -> dict[str, str]:
    """As text; the sum is a mean over seeds."""
    told = (str(interval(found, *name)), f"{found.sum(1).mean():.1f}") if found.size else (MISSING, MISSING)
    return dict(zip((f"mean, {what}", f"sum, {what}"), told, strict=True))


def gains(results: Results, arm: str = PAPER, offices: bool = True) -> Interval:
    """Mean R^e of an arm minus the start's, on the same examples."""
    mine, base = scores(results, arm, offices), scores(results, START, offices)
    return interval(mine - base if mine.size else mine, "score gain", arm)


def words(results: Results, others: Mapping[str, pd.DataFrame]) -> str:
    """Who is above whom on the benchmark, in sentences."""
    found = gains(results)
    if not there(found):
        return "There is no example to score."
    told = [f"Mean score over all examples, after minus before training: {number(found, 3, True)}, {clearly(found)}."]
    mine = scores(results, PAPER)
    for name in (n for n in others if not n.startswith(ALWAYS)):
        less = interval(mine - rival_scores(results, others, name), "score rival", name)
        told.append(f"On questions beside {name}: {number(less, 3, True)}, {clearly(less)}.")
    return "\n".join(told)


def spending_share(results: Results) -> float:
    """Which part of ToolOrchestra's score comes from cost and latency; nan where there is none."""
    m, start, wanted = _examples(results, PAPER, True)
    whole = scores(results, PAPER, True)
    if not whole.sum():
        return float("nan")
    blind = wanted * np.array([*[1.0] * (wanted.shape[1] - 2), 0.0, 0.0])
    return 1 - float(sum(_score(OURS, each, start, blind).sum() for each in m) / whole.sum())


# Units --------------------------------------------------------------------------------------------


def units_table(results: Results) -> pd.DataFrame:
    """Mean score of orchestrators by reading of the formula, and what it would be had ToolOrchestra spent double."""
    who = [(label(arm), arm, 1.0) for arm in (START, *trained(results))]
    out = []
    for name, arm, dearer in (*who, (f"{label(PAPER)}, had it spent double", PAPER, 2.0)):
        found = {reading: scores(results, arm, True, reading, dearer) for reading in READINGS}
        out.append({"who": name} | {reading: float(x.mean()) if x.size else np.nan for reading, x in found.items()})
    return pd.DataFrame(out)


def units_words(results: Results) -> str:
    """What the score says of spending under each reading, computed."""
    told = []
    for reading in READINGS:
        once, twice = (scores(results, PAPER, True, reading, dearer=d) for d in (1.0, 2.0))
        if not once.size:
            return "There is no example to score."
        change = float((twice - once).mean())
        what = f"lowers the score by {-change:.3f}" if change < -1e-9 else "changes nothing"
        told.append(f"in {reading}, twice the money {what}" if reading != LITERAL else f"{reading}, it {what}")
    order = {r: " > ".join(_ranked(results, r)) for r in READINGS}
    same = len(set(order.values())) == 1
    ranks = "The ranking is the same in all three" if same else "The ranking depends on it"
    return f"{'; '.join(told)[0].upper()}{'; '.join(told)[1:]}. {ranks}: " + "; ".join(
        f"{reading}: {names}" for reading, names in order.items()
    ) + "."  # fmt: skip


def _ranked(results: Results, reading: str) -> list[str]:
    means = {label(arm): scores(results, arm, True, reading).mean() for arm in (START, *trained(results))}
    return sorted(means, key=lambda name: -round(means[name], 9))


# Tools that users like ----------------------------------------------------------------------------


def liking(results: Results, arm: str, confidential: bool) -> pd.DataFrame:
    """Questions of users who like tools on their menu, by name or for their data's sake: `wanted` calls (to liked
    tools; of confidential users to models, which they want to avoid), `whole` calls, and what an even choice would
    give."""
    part = common.exam(results, arm)
    part = part[(part["liked"] != "") & (part["confidential"].astype(bool) == confidential)]
    models = {name for name, offer in results.offers.items() if not offer.local}
    aims = [models if confidential else set(names.split()) for names in part["liked"]]
    told = [called_ for called_ in part["called"].str.split()]
    menus = part["menu"].str.split()
    return part.assign(
        wanted=[float(sum(n in aim for n in names)) for names, aim in zip(told, aims, strict=True)],
        whole=[float(len(names)) for names in told],
        even=[float(np.mean([n in aim for n in menu])) for menu, aim in zip(menus, aims, strict=True)],
        one=1.0,
    )


def liked_rows(results: Results) -> Rows:
    """Share of calls that users like, and of calls that confidential users do not, by orchestrator."""
    names = {False: "calls to liked tools", True: "confidential: calls to models"}
    out: Rows = {}
    for arm in (START, *trained(results)):
        parts = {name: liking(results, arm, secret) for secret, name in names.items()}
        out[label(arm)] = {
            name: ratio_share(part, "wanted", "whole", "liked", arm, name) for name, part in parts.items()
        }
    out["an even choice"] = {
        name: Interval(float(part["even"].mean()), np.nan, np.nan)
        for secret, name in names.items()
        for part in [liking(results, START, secret)]
    }
    return out


def liked_gaps(results: Results) -> dict[str, Interval]:
    """The same after minus before training."""
    out = {}
    for name, secret in {"liked": False, "confidential": True}.items():
        after, before = liking(results, PAPER, secret), liking(results, START, secret)
        out[name] = ratio_gap(after, before, "wanted", "whole", "liked", name)
    return out


def liked_words(results: Results) -> str:
    """Whether training learned to please, as a sentence."""
    found = liked_gaps(results)
    return (
        f"After minus before training, the share of calls to tools that users like by name is "
        f"{number(found['liked'], 3, True)}, {clearly(found['liked'])}; of confidential users' calls the share that "
        f"goes to models is {number(found['confidential'], 3, True)}, {clearly(found['confidential'])}."
    )
