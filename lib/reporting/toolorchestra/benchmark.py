"""The preference benchmark: its sums, what its units do to them, and how often users get the tools they like.

R^e = M_norm . P if right, else 0;    M_norm[k] = M_s[k] / max(1, M_0[k]), of cost and latency M_0[k] / max(1, M_s[k])
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.reporting.estimates import Rows, gap, mean, ratio, ratio_gap
from lib.reporting.toolorchestra.common import BOTH, GAP, PAPER, exam, label, trained
from lib.routing.toolorchestra import benchmark, rewards
from lib.routing.toolorchestra.benchmark import ALWAYS, RANDOM
from lib.routing.toolorchestra.study import START, Results
from lib.stats import Interval

OURS, WHOLE, LITERAL = "micro-dollars and ms", "dollars and seconds", "as printed, amounts negative"
READINGS = (OURS, WHOLE, LITERAL)


def _examples(results: Results, arm: str, office: bool | None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """M (seeds, n, k), M_0 (n, k) and P (n, k) of the exam `test`, in the order of items."""
    mine, base = (exam(results, who, office=office) for who in (arm, START))
    if mine.empty or base.empty:
        return np.zeros((0, 0, 3)), np.zeros((0, 3)), np.zeros((0, 3))
    m = np.stack([benchmark.vectors(part) for _, part in mine.groupby("seed")])
    return m, benchmark.vectors(base), benchmark.vectors(base, "p")


def scores(
    results: Results, arm: str, office: bool | None = False, reading: str = OURS, dearer: float = 1.0
) -> np.ndarray:
    """R^e, (seeds, items), by one reading of the formula; dearer: what the orchestrator spends, times so much."""
    m, start, wanted = _examples(results, arm, office)
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
    start = exam(results, START)
    if name != RANDOM:
        return benchmark.baseline_scores(others[name], start, results.tools)[None]
    tools = [tool for tool in results.tools if ALWAYS + tool in others]  # one of those that can be asked, by lot
    found = np.column_stack([rival_scores(results, others, ALWAYS + tool)[0] for tool in tools])
    held = set(zip(results.tried.item, results.tried.tool, results.tried.split, strict=True))
    menus = zip(start["item"], start["menu"].str.split(), strict=True)
    asked = np.array([[tool in menu and (item, tool, "test") in held for tool in tools] for item, menu in menus])
    return ((found * asked).sum(1) / np.maximum(1, asked.sum(1)))[None]


def _scored(results: Results, arm: str) -> pd.DataFrame:
    """All examples of the exam with their score."""
    part = exam(results, arm, office=None)
    return part.assign(score=scores(results, arm, None).ravel())


def table(results: Results, every: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Mean and sum of R^e over questions for everybody, and over all examples for orchestrators; sums over seeds are
    means."""
    whole = {label(arm): _scored(results, arm) for arm in (START, *trained(results))}
    out = {}
    for name, part in every.items():
        row = {}
        for what, some in (("questions", part), ("all", whole.get(name))):
            if some is not None:
                row |= {
                    f"mean, {what}": mean(some, "score"),
                    f"sum, {what}": some.groupby("seed")["score"].sum().mean(),
                }
        out[name] = row
    found = pd.DataFrame.from_dict(out, orient="index").rename_axis("who")
    found.loc[GAP, "mean, all"] = gains(results)
    return found.astype({"sum, questions": float, "sum, all": float})


def gains(results: Results, arm: str = PAPER) -> Interval:
    """Mean R^e of an arm minus the start's, on the same examples."""
    return gap(_scored(results, arm), _scored(results, START), "score")


def spending_share(results: Results) -> float:
    """Which part of ToolOrchestra's score comes from cost and latency; nan where there is none."""
    m, start, wanted = _examples(results, PAPER, None)
    whole = scores(results, PAPER, None).sum()
    blind = wanted * np.array([*[1.0] * (wanted.shape[1] - 2), 0.0, 0.0])
    return 1 - float(sum(_score(OURS, each, start, blind).sum() for each in m) / whole) if whole else float("nan")


def units_table(results: Results) -> pd.DataFrame:
    """Mean score of orchestrators by reading of the formula, and what it would be had ToolOrchestra spent double."""
    who = [(label(arm), arm, 1.0) for arm in (START, *trained(results))]
    out = []
    for name, arm, dearer in (*who, (f"{label(PAPER)}, had it spent double", PAPER, 2.0)):
        found = {reading: scores(results, arm, None, reading, dearer) for reading in READINGS}
        out.append({"who": name} | {reading: float(x.mean()) if x.size else np.nan for reading, x in found.items()})
    return pd.DataFrame(out)


# Tools that users like ----------------------------------------------------------------------------

LIKED = {False: "calls to liked tools", True: "confidential: calls to models"}


def liking(results: Results, arm: str, confidential: bool) -> pd.DataFrame:
    """Questions of users who like tools on their menu, by name or for their data's sake: `wanted` calls (to liked
    tools; of confidential users to models, which they want to avoid), `whole` calls, and what an even choice would
    give."""
    part = exam(results, arm)
    part = part[(part["liked"] != "") & (part["confidential"].astype(bool) == confidential)]
    models = {name for name, offer in results.offers.items() if not offer.local}
    aims = [models if confidential else set(names.split()) for names in part["liked"]]
    calls, menus = part["called"].str.split(), part["menu"].str.split()
    return part.assign(
        wanted=[float(sum(n in aim for n in names)) for names, aim in zip(calls, aims, strict=True)],
        whole=calls.str.len().astype(float),
        even=[float(np.mean([n in aim for n in menu])) for menu, aim in zip(menus, aims, strict=True)],
    )


def liked_rows(results: Results) -> Rows:
    """Share of calls that users like, and of calls that confidential users do not, by orchestrator."""
    out: Rows = {}
    for arm in (START, *trained(results)):
        out[label(arm)] = {name: ratio(liking(results, arm, secret), "wanted", "whole")
                           for secret, name in LIKED.items()}  # fmt: skip
    ends = {secret: [liking(results, arm, secret) for arm in BOTH] for secret in LIKED}
    out[GAP] = {LIKED[secret]: ratio_gap(b, a, "wanted", "whole") for secret, (a, b) in ends.items()}
    even = {LIKED[secret]: a["even"].mean() for secret, (a, _) in ends.items()}
    return out | {"an even choice": {name: Interval(float(x), np.nan, np.nan) for name, x in even.items()}}
