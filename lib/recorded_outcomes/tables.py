"""One table: n items, m models, who was right, what it cost; the shipped ones, and anybody's.

Dollars are *recorded* for agents only (tokens x list price, by the source); elsewhere they are *listed* (a published
price, an assumed length of replies) or *assumed* (a price by size, recorded lengths), and every table says which.
Left out: the prompts. `data/outcomes/PROVENANCE.md` names sources, licences and traps; what it says to doubt is left
out here by rule, never by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.config import ROOT
from lib.experiment import artifacts, seeds

VERSION = 1  # of tables of outcomes
PLACE = ROOT / "data/outcomes"
RECORDED, LISTED, ASSUMED = "recorded", "listed", "assumed"
AGENTS = {
    "swe-bench": "swe-bench",
    "swt-bench": "swt-bench",
    "gaia": "gaia",
    "swe-multimodal": "swe-bench-multimodal",
    "commit0": "commit0",
}
VARIANTS = ("measured", "rebuilt", "all")  # of the agents; see `agents`
CHARACTERS = 4  # of a token, about
_COMPLETE, _PRICED = (
    0.97,
    0.8,
)  # shares of items that a run must have met, and whose dollars must be known
_AWAY = "not available"  # says the source's own list of a model that stands far above its other benchmarks
_BROKEN = "looks broken|resolved unknown"  # what PROVENANCE says of outcomes that are none
_UNPRICED = "all 0|constant|x the published"  # and of dollars that are none
_READ = {
    "item": str,
    "group": str,
    "model": str,
    "correct": str,
    "prompt": str,
}  # an id 007 is no number
_SIZE = re.compile(
    r"-(\d+(?:\.\d+)?)[Bb](?![A-Za-z0-9])"
)  # billions of parameters, where a name tells them
_HOSTS = ("fp8@together", "@sambanova")  # of a model that a third host serves in full precision


class TableError(ValueError):
    """A table that cannot be used; the message names what is wrong and what would be right."""


@dataclass(frozen=True)
class Table:
    """right (n, m) in [0, 1]; dollars (n, m); seen (n, d): what a router may look at before it asks; more (n, k): what
    nobody could look at, for the gate alone; spent: whether dollars tell how long a model worked on the item."""

    name: str
    items: np.ndarray
    groups: np.ndarray
    models: tuple[str, ...]
    correct: np.ndarray
    cost_usd: np.ndarray
    seen: np.ndarray
    money: str = RECORDED
    spent: bool = False
    more: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))

    def __len__(self) -> int:
        return len(self.items)

    def take(self, rows: np.ndarray) -> Table:
        """The items at `rows` (k,), indices or truths."""
        arrays = ("items", "groups", "correct", "cost_usd", "seen")
        more = self.more[rows] if len(self.more) else self.more
        return replace(self, more=more, **{name: getattr(self, name)[rows] for name in arrays})

    def among(self, models: Sequence[str]) -> Table:
        """The same items with these models only, in this order."""
        at = [self.models.index(name) for name in models]
        return replace(
            self, models=tuple(models), correct=self.correct[:, at], cost_usd=self.cost_usd[:, at]
        )

    def repriced(self, factors: dict[str, float]) -> Table:
        """The same outcomes with some models' dollars multiplied."""
        times = np.array([factors.get(name, 1.0) for name in self.models])
        return replace(self, cost_usd=self.cost_usd * times)


# The shipped tables --------------------------------------------------------------------------------


def agents(benchmark: str, variant: str = "measured", root: Path = PLACE) -> Table:
    """Agents (harness and model) on issues of one benchmark, in dollars by issue.

    variant: "measured", dollars that were recorded while agents ran, without the model that its source's own list calls
    not available; "rebuilt", with runs whose dollars were computed afterwards; "all". An issue that a run left out
    counts as not resolved, as in the source; unknown dollars of an issue are its run's mean. A router sees the number
    of the issue, where there is one: repositories are held out whole.
    """
    rows = artifacts.read_parquet(root / "openhands.parquet")
    away = rows["model"][rows["suspect"].astype(str).str.contains(_AWAY)].unique()
    rows = rows[
        (rows["benchmark"] == AGENTS[benchmark]) & ((variant == "all") | ~rows["model"].isin(away))
    ]
    rows = rows.assign(run=rows["harness"].astype(str) + " / " + rows["model"].astype(str))
    correct, cost_usd = (
        rows.pivot(index="item", columns="run", values=name) for name in ("resolved", "usd")
    )
    state, doubt = (
        rows.groupby("run")[name].agg(lambda x: " ".join(sorted(set(x.astype(str)))))
        for name in ("usd_state", "suspect")
    )
    fine = (correct.notna().mean() >= _COMPLETE) & ~doubt.str.contains(_BROKEN)
    fine &= (cost_usd.notna().mean() >= _PRICED) & ~doubt.str.contains(_UNPRICED)
    if variant == "measured":
        fine &= ~state.str.contains("rebuilt")
    correct, cost_usd = correct.loc[:, fine].fillna(0.0), cost_usd.loc[:, fine]
    items = correct.index.to_numpy(dtype=str)
    number = pd.Series(items).str.extract(r"-(\d+)$")[0].astype(float).fillna(0.0).to_numpy()
    groups = np.array([item.split("__")[0] for item in items])
    return Table(
        benchmark,
        items,
        groups,
        tuple(correct.columns),
        correct.to_numpy(float),
        cost_usd.fillna(cost_usd.mean()).to_numpy(float),
        np.log1p(number)[:, None],
        spent=True,
    )


def llmrouter(prices: Any, known: bool = True, root: Path = PLACE) -> Table:
    """Nine models on queries of 14 tasks (LLMRouter), at listed prices and an assumed length of replies.

    known: items are parted, so that a router has met every task and sees which; otherwise whole tasks are.
    """
    rows = artifacts.read_parquet(root / "llmrouter.parquet")
    listed = pd.read_csv(root / "prices.csv").set_index("model")["usd_per_million_out"] / 1e6
    correct = rows.pivot(index="item", columns="model", values="score")
    about = rows.drop_duplicates("item").set_index("item").reindex(correct.index)
    tokens = about["prompt_chars"].to_numpy() / CHARACTERS + prices.reply_tokens
    tasks, seen = about["task"].to_numpy(dtype=str), embedded("llmrouter", correct.index, root)
    seen = np.column_stack([seen, pd.get_dummies(tasks)]) if known else seen
    items = correct.index.to_numpy(dtype=str)
    return Table(
        "llmrouter" if known else "llmrouter-new",
        items,
        items if known else tasks,
        tuple(correct.columns),
        correct.to_numpy(float),
        tokens[:, None] * listed[list(correct.columns)].to_numpy(),
        seen.astype(float),
        LISTED,
    )


def zeroeval(name: str, prices: Any, root: Path = PLACE) -> Table:
    """Open models on GSM8K or CRUX (ZeroEval): recorded lengths of replies, at a price assumed by size,

        dollars = characters / 4 x per_billion x billions ** exponent.

    Models whose name tells no size are no choice; their outcomes are what the gate alone sees.
    """
    rows = artifacts.read_parquet(root / f"{name}.parquet")
    correct, length = (
        rows.pivot(index="item", columns="model", values=column)
        for column in ("correct", "reply_chars")
    )
    sizes = {model: float(found[1]) for model in correct if (found := _SIZE.search(model))}
    menu = [model for model in sizes if not any(host in model for host in _HOSTS)]
    price = np.array([prices.per_billion * sizes[model] ** prices.exponent for model in menu])
    items, others = correct.index.to_numpy(dtype=str), correct.drop(columns=list(sizes))
    return Table(
        name,
        items,
        items,
        tuple(menu),
        correct[menu].to_numpy(float),
        length[menu].to_numpy(float) / CHARACTERS * price,
        embedded(name, correct.index, root),
        ASSUMED,
        True,
        others.to_numpy(float),
    )


def routellm(name: str, prices: Any, root: Path = PLACE) -> Table:
    """Mixtral and GPT-4 on 45 subjects of MMLU, or on GSM8K (RouteLLM), at listed prices and an assumed length of
    replies. Whole subjects are held out; the gate sees the subject, and on GSM8K what 43 other models made of it."""
    rows = artifacts.read_parquet(root / "routellm.parquet").query(f"table == '{name}'")
    correct = rows.pivot(index="item", columns="model", values="right")
    about = rows.drop_duplicates("item").set_index("item").reindex(correct.index)
    tokens = about["prompt_chars"].to_numpy() / CHARACTERS + prices.reply_tokens
    price = np.array([prices.routellm[model] for model in correct.columns])
    items, groups = correct.index.to_numpy(dtype=str), about["group"].to_numpy(dtype=str)
    if name == "gsm8k":
        others = artifacts.read_parquet(root / "gsm.parquet").pivot(
            index="item", columns="model", values="correct"
        )
        groups, more = items, others.reindex(items).to_numpy(float)
    else:
        more = pd.get_dummies(groups).to_numpy(float)
    return Table(
        name,
        items,
        groups,
        tuple(correct.columns),
        correct.to_numpy(float),
        tokens[:, None] * price,
        embedded("routellm", correct.index, root),
        LISTED,
        more=more,
    )


def embedded(table: str, items: Sequence[str], root: Path = PLACE) -> np.ndarray:
    """Reduced sentence embeddings of the prompts of `items`, (n, 64)."""
    found = artifacts.read_parquet(root / f"{table}_embeddings.parquet").set_index("item")
    return found.loc[[str(item) for item in items]].to_numpy(float)


SHIPPED: dict[str, Callable[[Any], Table]] = {
    **{name: (lambda _, name=name: agents(name)) for name in AGENTS},
    "llmrouter": lambda prices: llmrouter(prices),
    "llmrouter-new": lambda prices: llmrouter(prices, known=False),
    **{name: (lambda prices, name=name: zeroeval(name, prices)) for name in ("gsm", "crux")},
    **{name: (lambda prices, name=name: routellm(name, prices)) for name in ("mmlu", "gsm8k")},
}


# What a shipped table is read from, and the fields of `recorded.prices` that it is priced by.
FILES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(AGENTS, ("openhands.parquet",)),
    **dict.fromkeys(
        ("llmrouter", "llmrouter-new"),
        ("llmrouter.parquet", "llmrouter_embeddings.parquet", "prices.csv"),
    ),
    **{name: (f"{name}.parquet", f"{name}_embeddings.parquet") for name in ("gsm", "crux")},
    "mmlu": ("routellm.parquet", "routellm_embeddings.parquet"),
    "gsm8k": ("routellm.parquet", "routellm_embeddings.parquet", "gsm.parquet"),
}
PRICED_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(AGENTS, ()),
    **dict.fromkeys(("llmrouter", "llmrouter-new"), ("reply_tokens",)),
    **dict.fromkeys(("gsm", "crux"), ("per_billion", "exponent")),
    **dict.fromkeys(("mmlu", "gsm8k"), ("reply_tokens", "routellm")),
}


def thinned(table: Table, most: int) -> Table:
    """At most `most` items of every table, the same share of each group; a group keeps at least two."""
    if len(table) <= most:
        return table
    order = seeds.rng("outcomes", "thinned", table.name).permutation(len(table))
    groups, size = pd.Series(table.groups[order]), len(table)
    if groups.nunique() == size:
        return table.take(np.sort(order[:most]))
    place, total = groups.groupby(groups).cumcount(), groups.groupby(groups).transform("size")
    return table.take(
        np.sort(order[(place < np.maximum(2, np.floor(total * most / size))).to_numpy()])
    )


# Anybody's table -----------------------------------------------------------------------------------


def read(path: str | Path) -> Table:
    """A table in long form, .csv or .parquet: a row for each item and model, with the columns item, group, model,
    correct (0 to 1) and dollars, and either numbers e0, e1, ... (an embedding of the item) or its prompt.

    A prompt is turned into 32 numbers by tf-idf and truncated SVD, without a look at outcomes. Raises TableError,
    naming what is wrong, for columns that are missing, cells that are no numbers or missing, negative dollars, an item
    that a model has met twice or never, fewer than two models, and groups that leak: an item, or a prompt, in two.
    """
    path = Path(path)
    try:
        rows = (
            artifacts.read_parquet(path)
            if path.suffix == ".parquet"
            else pd.read_csv(path, dtype=_READ, encoding_errors="strict")
        )
    except (
        ValueError,
        OSError,
    ) as error:  # what pandas raises of an empty, ragged or undecodable file is a ValueError
        raise TableError(f"{path} cannot be read as a table: {_short(error)}") from error
    try:
        return of(rows, path.stem)
    except TableError as error:
        raise TableError(f"{path}: {error}") from error


def of(rows: pd.DataFrame, name: str) -> Table:
    """The table of rows in long form; see `read`."""
    rows = _checked(rows)
    one = rows.drop_duplicates("item").set_index("item").sort_index()
    correct, cost_usd = (
        rows.pivot(index="item", columns="model", values=column)
        for column in ("correct", "cost_usd")
    )
    if correct.shape[1] < 2:
        raise TableError(f"there is one model, {correct.columns[0]!r}; a choice needs two")
    if (missing := int(correct.isna().to_numpy().sum())) or cost_usd.isna().to_numpy().any():
        least = correct.isna().sum().idxmax()
        raise TableError(
            f"{missing} of {correct.size} outcomes are missing, most of {least!r}: every model must have "
            "met every item; drop the items or the models that lack them"
        )
    seen, prompts = [each for each in rows if re.fullmatch(r"e\d+", str(each))], "prompt" in rows
    numbers = _words(one["prompt"]) if prompts and not seen else one[seen].to_numpy(float)
    if not np.isfinite(numbers).all():
        raise TableError(
            "embeddings e0, e1, ... must be finite numbers, the same in every row of an item"
        )
    spent = bool((cost_usd.std() > 0).any())
    items, groups = correct.index.to_numpy(dtype=str), one["group"].to_numpy(dtype=str)
    return Table(
        name,
        items,
        groups,
        tuple(map(str, correct.columns)),
        correct.to_numpy(float),
        cost_usd.to_numpy(float),
        numbers.reshape(len(correct), -1),
        "as given",
        spent,
    )


def _checked(rows: pd.DataFrame) -> pd.DataFrame:
    if "cost_usd" not in rows:
        rows = rows.rename(columns={"dollars": "cost_usd"})  # as a user may call it
    wanted = ["item", "group", "model", "correct", "cost_usd"]
    if missing := [name for name in wanted if name not in rows]:
        raise TableError(
            f"no column {', '.join(missing)}; a table needs {', '.join(wanted)}, this one has "
            f"{_short(', '.join(map(str, rows.columns)))}"
        )
    if rows.empty:
        raise TableError("the table has no rows")
    rows = rows.copy()
    for name in ("correct", "cost_usd"):
        numbers = pd.to_numeric(
            rows[name].replace({"True": 1, "False": 0, "true": 1, "false": 0}), errors="coerce"
        )
        if bad := np.flatnonzero(~np.isfinite(numbers.to_numpy(float))).tolist():
            raise TableError(
                f"{name} of row {bad[0] + 1} is {rows[name].iloc[bad[0]]!r}, of {len(bad)} rows in all; "
                "it must be a number in every row"
            )
        rows[name] = numbers.astype(float)
    for name in ("item", "group", "model"):
        if rows[name].isna().any():
            raise TableError(f"{name} is missing in {int(rows[name].isna().sum())} rows")
        rows[name] = rows[name].astype(str)
    if (rows["cost_usd"] < 0).any():
        raise TableError(
            f"dollars must be 0 or more, got {rows['cost_usd'].min():g} of {_where(rows, rows['cost_usd'] < 0)}"
        )
    if (outside := ~rows["correct"].between(0, 1)).any():
        raise TableError(
            f"correct must lie in 0 to 1, got {rows['correct'][outside].iloc[0]:g} of {_where(rows, outside)}"
        )
    if (twice := rows.duplicated(["item", "model"])).any():
        raise TableError(
            f"{_where(rows, twice)} stands there twice; average the tries, or name them apart"
        )
    for name in ("item", "prompt") if "prompt" in rows else ("item",):
        if (leaks := rows.groupby(name)["group"].nunique() > 1).any():
            raise TableError(
                f"groups leak: the {name} {str(leaks.idxmax())[:60]!r} and {int(leaks.sum()) - 1} more "
                "stand in two groups: a split would train and test on one; mend the groups"
            )
    return rows


def _short(told: object) -> str:
    """What a message shows of a long value."""
    said = " ".join(str(told).split())
    return said if len(said) <= 160 else f"{said[:160]} ..."


def _where(rows: pd.DataFrame, bad: pd.Series) -> str:
    first = rows[bad].iloc[0]
    return f"item {first['item']!r}, model {first['model']!r}"


def _words(prompts: pd.Series, dims: int = 32) -> np.ndarray:
    """Prompts as numbers (n, dims): tf-idf of words and signs, truncated SVD."""
    from sklearn.decomposition import (
        TruncatedSVD,
    )  # imported here: tables with numbers need neither
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = TfidfVectorizer(sublinear_tf=True, max_features=20_000, token_pattern=r"\w+|[^\w\s]")
    matrix = words.fit_transform(prompts.astype(str))
    draw = int(seeds.rng("outcomes", "words").integers(2**31))
    return TruncatedSVD(
        min(dims, *(size - 1 for size in matrix.shape)) or 1, random_state=draw
    ).fit_transform(matrix)
