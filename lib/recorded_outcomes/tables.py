"""Tables of recorded outcomes (which model was correct on which item, at what cost) and loaders of the shipped ones.

Costs in USD have three sources, and every table names its own. They are *recorded* for agents and RouterArena (tokens x
list price, computed by the source). Elsewhere they are from *listed* prices (a published price x an assumed length of
replies) or *assumed* prices (a price by the model's size x the recorded length of replies).
Left out: a user's tables (`user_tables`), and the prompts. `data/outcomes/PROVENANCE.md` names sources, licences and
traps; what it says to doubt is left out here by rule, never by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from lib.config import ROOT
from lib.config.recorded_outcomes import PriceSettings
from lib.experiment import artifacts, seeds

VERSION = 1  # of tables of outcomes
HoldOut = Literal[
    "groups", "items"
]  # what cross-validation holds out: whole groups, or items one by one
OUTCOMES_FOLDER = ROOT / "data/outcomes"
# Where the costs of a table come from; see above.
RECORDED_COSTS, LISTED_PRICES, ASSUMED_PRICES = "recorded", "listed", "assumed"
# By name of a table, its benchmark in the file of agents.
AGENTS = {
    "swe-bench": "swe-bench",
    "swt-bench": "swt-bench",
    "gaia": "gaia",
    "swe-multimodal": "swe-bench-multimodal",
    "commit0": "commit0",
}
VARIANTS = ("measured", "rebuilt", "all")  # of the agents; see `load_agents`
CHARACTERS_PER_TOKEN = 4  # about, in English; where a source gives lengths of texts and no tokens
_MIN_COMPLETE = 0.97  # fraction of items that a run must have attempted
_MIN_PRICED = 0.8  # fraction of items whose cost must be known
# What PROVENANCE.md says of outcomes and costs that cannot be trusted:
_UNAVAILABLE = "not available"  # of a model that stands far above its other benchmarks
_BROKEN = "looks broken|resolved unknown"
_UNPRICED = "all 0|constant|x the published"
_SIZE = re.compile(
    r"-(\d+(?:\.\d+)?)[Bb](?![A-Za-z0-9])"
)  # billions of parameters, where a name has them
_DUPLICATE_HOSTS = ("fp8@together", "@sambanova")  # a third host serves the model in full precision


class TableError(ValueError):
    """A table that cannot be used; the message names what is wrong and what would be right."""


@dataclass(frozen=True)
class OutcomeTable:
    """Outcomes of every model on every item.

    Attributes:
        name: Name of the table.
        items: (items,), ids.
        groups: (items,), the group of each item, such as its repository; groups are held out whole.
        models: Names of the models.
        correct: (items, models), correctness in [0, 1].
        cost_usd: (items, models), the cost of each reply in USD.
        features: (items, d), what a router may look at before it asks a model.
        money: Where the costs come from: recorded, listed, assumed or as given.
        cost_measures_work: Whether the cost tells how long a model worked on the item.
        privileged_features: (items, k), what no real router could look at; only the informed router that estimates the
            headroom does. (0, 0) where there is nothing.
        notes: What was decided while a user's file was read, in sentences.
        prompts: (items,), texts of the prompts, where a user's file has them; () elsewhere.
    """

    name: str
    items: np.ndarray
    groups: np.ndarray
    models: tuple[str, ...]
    correct: np.ndarray
    cost_usd: np.ndarray
    features: np.ndarray
    money: str = RECORDED_COSTS
    cost_measures_work: bool = False
    privileged_features: np.ndarray = field(default_factory=lambda: np.zeros((0, 0)))
    notes: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.items)

    def take(self, rows: np.ndarray) -> OutcomeTable:
        """Selects some items.

        Args:
            rows: (k,) indices, or a mask (items,).

        Returns:
            The table of these items.
        """
        has_privileged_features = len(self.privileged_features) > 0
        indices = np.arange(len(self))[rows]
        return replace(
            self,
            items=self.items[rows],
            groups=self.groups[rows],
            correct=self.correct[rows],
            cost_usd=self.cost_usd[rows],
            features=self.features[rows],
            privileged_features=self.privileged_features[rows]
            if has_privileged_features
            else self.privileged_features,
            prompts=tuple(self.prompts[index] for index in indices) if self.prompts else (),
        )

    def select_models(self, models: Sequence[str]) -> OutcomeTable:
        """Selects models by name.

        Args:
            models: Names, in the order of the new table.

        Returns:
            The table with these models on all items.
        """
        columns = [self.models.index(name) for name in models]
        return replace(
            self,
            models=tuple(models),
            correct=self.correct[:, columns],
            cost_usd=self.cost_usd[:, columns],
        )

    def scale_costs(self, factors: dict[str, float]) -> OutcomeTable:
        """Multiplies the costs of some models; outcomes stay the same.

        Args:
            factors: By model name; a model that is not named keeps its costs.
        """
        factor_by_model = np.array([factors.get(name, 1.0) for name in self.models])
        return replace(self, cost_usd=self.cost_usd * factor_by_model)


# The shipped tables --------------------------------------------------------------------------------


def load_agents(
    benchmark: str, variant: str = "measured", root: Path = OUTCOMES_FOLDER
) -> OutcomeTable:
    """Loads coding agents (a harness with a model) on the issues of one benchmark, with the cost of each issue.

    A run is one agent on the whole benchmark. An issue that a run did not attempt counts as not resolved, as in the
    source. An unknown cost is replaced by the mean of its run. The only feature is the number of the issue, because
    repositories are held out whole.

    Args:
        benchmark: One of `AGENTS`.
        variant: "measured": only runs whose costs were recorded while they ran, without the model that the source
            marks as not available. "rebuilt": also runs whose costs were computed afterwards. "all": that model, too.
        root: Folder of the shipped tables.

    Returns:
        The table, (issues, runs).
    """
    rows = artifacts.read_parquet(root / "openhands.parquet")
    is_unavailable = rows["suspect"].astype(str).str.contains(_UNAVAILABLE)
    unavailable_models = rows["model"][is_unavailable].unique()
    is_usable = (variant == "all") | ~rows["model"].isin(unavailable_models)
    is_of_benchmark = rows["benchmark"] == AGENTS[benchmark]
    rows = rows[is_of_benchmark & is_usable]
    run = rows["harness"].astype(str) + " / " + rows["model"].astype(str)
    rows = rows.assign(run=run)
    correct = rows.pivot(index="item", columns="run", values="resolved")
    cost_usd = rows.pivot(index="item", columns="run", values="usd")

    # Runs that are complete and priced, and whose outcomes and costs the source does not doubt.
    cost_sources = _join_by_run(rows, "usd_state")
    doubts = _join_by_run(rows, "suspect")
    is_good_run = correct.notna().mean() >= _MIN_COMPLETE
    is_good_run &= cost_usd.notna().mean() >= _MIN_PRICED
    is_good_run &= ~doubts.str.contains(_BROKEN)
    is_good_run &= ~doubts.str.contains(_UNPRICED)
    if variant == "measured":
        is_good_run &= ~cost_sources.str.contains("rebuilt")
    correct = correct.loc[:, is_good_run].fillna(0.0)
    cost_usd = cost_usd.loc[:, is_good_run]

    items = correct.index.to_numpy(dtype=str)
    number_texts = pd.Series(items).str.extract(r"-(\d+)$")[0]
    issue_numbers = number_texts.astype(float).fillna(0.0).to_numpy()
    repositories = np.array([item.split("__")[0] for item in items])
    return OutcomeTable(
        name=benchmark,
        items=items,
        groups=repositories,
        models=tuple(correct.columns),
        correct=correct.to_numpy(float),
        cost_usd=cost_usd.fillna(cost_usd.mean()).to_numpy(float),
        features=np.log1p(issue_numbers)[:, None],
        cost_measures_work=True,
    )


def _join_by_run(rows: pd.DataFrame, column: str) -> pd.Series:
    """Joins the different values of a column to one text for each run."""

    def join_values(values: pd.Series) -> str:
        return " ".join(sorted(set(values.astype(str))))

    return rows.groupby("run")[column].agg(join_values)


def load_llmrouter(
    prices: PriceSettings, hold_out: HoldOut = "items", root: Path = OUTCOMES_FOLDER
) -> OutcomeTable:
    """Loads nine models on queries of 14 tasks (LLMRouter), at listed prices and an assumed length of replies.

        cost_usd = (prompt characters / 4 + prices.reply_tokens) x the model's listed price per token

    Args:
        prices: Assumptions about costs; the number reply_tokens of tokens in every reply is read.
        hold_out: "items": items are held out one by one, and a router sees the task of an item, as one-hot features.
            "groups": whole tasks are held out, and it does not.
        root: Folder of the shipped tables.

    Returns:
        The table, (queries, models).
    """
    rows = artifacts.read_parquet(root / "llmrouter.parquet")
    price_list = pd.read_csv(root / "prices.csv").set_index("model")
    usd_per_token = price_list["usd_per_million_out"] / 1e6
    correct = rows.pivot(index="item", columns="model", values="score")
    item_rows = rows.drop_duplicates("item").set_index("item").reindex(correct.index)
    tokens = item_rows["prompt_chars"].to_numpy() / CHARACTERS_PER_TOKEN + prices.reply_tokens
    tasks = item_rows["task"].to_numpy(dtype=str)
    features = load_embeddings("llmrouter", correct.index, root)
    items = correct.index.to_numpy(dtype=str)
    name = "llmrouter-new"
    groups = tasks
    if hold_out == "items":
        name = "llmrouter"
        groups = items
        features = np.column_stack([features, pd.get_dummies(tasks)])
    return OutcomeTable(
        name=name,
        items=items,
        groups=groups,
        models=tuple(correct.columns),
        correct=correct.to_numpy(float),
        cost_usd=tokens[:, None] * usd_per_token[list(correct.columns)].to_numpy(),
        features=features.astype(float),
        money=LISTED_PRICES,
    )


def load_zeroeval(name: str, prices: PriceSettings, root: Path = OUTCOMES_FOLDER) -> OutcomeTable:
    """Loads open models on GSM8K or CRUX (ZeroEval): recorded lengths of replies, at a price assumed by size.

        cost_usd = reply characters / 4 x per_billion x (billions of parameters) ** exponent

    A model whose name does not tell its size has no price, so that no router may choose it. Its outcomes are privileged
    features: only the informed router that estimates the headroom sees them.

    Args:
        name: "gsm" or "crux".
        prices: Assumptions about costs; per_billion and exponent are read.
        root: Folder of the shipped tables.

    Returns:
        The table, (questions, models).
    """
    rows = artifacts.read_parquet(root / f"{name}.parquet")
    correct = rows.pivot(index="item", columns="model", values="correct")
    reply_chars = rows.pivot(index="item", columns="model", values="reply_chars")
    billions = {}
    for model in correct:
        match = _SIZE.search(model)
        if match:
            billions[model] = float(match[1])
    models = [model for model in billions if not any(host in model for host in _DUPLICATE_HOSTS)]
    price = np.array([prices.per_billion * billions[model] ** prices.exponent for model in models])
    items = correct.index.to_numpy(dtype=str)
    without_size = correct.drop(columns=list(billions))
    return OutcomeTable(
        name=name,
        items=items,
        groups=items,
        models=tuple(models),
        correct=correct[models].to_numpy(float),
        cost_usd=reply_chars[models].to_numpy(float) / CHARACTERS_PER_TOKEN * price,
        features=load_embeddings(name, correct.index, root),
        money=ASSUMED_PRICES,
        cost_measures_work=True,
        privileged_features=without_size.to_numpy(float),
    )


def load_routellm(name: str, prices: PriceSettings, root: Path = OUTCOMES_FOLDER) -> OutcomeTable:
    """Loads Mixtral and GPT-4 (RouteLLM) on MMLU or GSM8K, at listed prices and an assumed length of replies.

    On MMLU whole subjects (45) are held out. Privileged features, which only the informed router that estimates the
    headroom sees, are the subject on MMLU and the outcomes of 43 other models on GSM8K.

    Args:
        name: "mmlu" or "gsm8k".
        prices: Assumptions about costs; reply_tokens and routellm (USD per token, by model) are read.
        root: Folder of the shipped tables.

    Returns:
        The table, (questions, models).
    """
    rows = artifacts.read_parquet(root / "routellm.parquet")
    rows = rows[rows["table"] == name]
    correct = rows.pivot(index="item", columns="model", values="right")
    item_rows = rows.drop_duplicates("item").set_index("item").reindex(correct.index)
    tokens = item_rows["prompt_chars"].to_numpy() / CHARACTERS_PER_TOKEN + prices.reply_tokens
    price = np.array([prices.routellm[model] for model in correct.columns])
    items = correct.index.to_numpy(dtype=str)
    subjects = item_rows["group"].to_numpy(dtype=str)
    if name == "gsm8k":
        gsm_rows = artifacts.read_parquet(root / "gsm.parquet")
        other_models = gsm_rows.pivot(index="item", columns="model", values="correct")
        groups = items
        privileged_features = other_models.reindex(items).to_numpy(float)
    else:
        groups = subjects
        privileged_features = pd.get_dummies(subjects).to_numpy(float)
    return OutcomeTable(
        name=name,
        items=items,
        groups=groups,
        models=tuple(correct.columns),
        correct=correct.to_numpy(float),
        cost_usd=tokens[:, None] * price,
        features=load_embeddings("routellm", correct.index, root),
        money=LISTED_PRICES,
        privileged_features=privileged_features,
    )


def load_routerarena(root: Path = OUTCOMES_FOLDER) -> OutcomeTable:
    """Loads Claude 3 Haiku and Gemini 2.0 Flash on questions of 78 data sets (RouterArena), with recorded costs.

    One of the two is more accurate and cheaper, so that the table is a control: no router can save money here. Features
    are the data set and the logarithm of the prompt's length; items are held out one by one. A score is
    correctness, or the overlap with a reference text (METEOR), see `clip_meteor_scores`.

    Args:
        root: Folder of the shipped tables.

    Returns:
        The table, (questions, models).
    """
    rows = artifacts.read_parquet(root / "routerarena.parquet")
    rows = rows.assign(score=clip_meteor_scores(rows["score"], rows["metric"]))
    correct = rows.pivot(index="item", columns="model", values="score")
    cost_usd = rows.pivot(index="item", columns="model", values="cost_usd")
    prompt_tokens = rows.pivot(index="item", columns="model", values="tokens_in").mean(axis=1)
    items = correct.index.to_numpy(dtype=str)
    item_rows = rows.drop_duplicates("item").set_index("item").reindex(correct.index)
    data_sets = item_rows["group"].to_numpy(dtype=str)
    return OutcomeTable(
        name="routerarena",
        items=items,
        groups=items,
        models=tuple(map(str, correct.columns)),
        correct=correct.to_numpy(float),
        cost_usd=cost_usd.to_numpy(float),
        features=np.column_stack([np.log(prompt_tokens), pd.get_dummies(data_sets)]).astype(float),
    )


def clip_meteor_scores(scores: pd.Series, metrics: pd.Series) -> pd.Series:
    """Replaces negative METEOR scores, which RouterArena's variant of the metric allows, by 0.

    RouterArena computes F1 (1 - penalty), penalty = (chunks / words)^2 / 2, with the number of *different* matched
    words. Where matched words repeat there can be more chunks than different words, and the penalty exceeds 1. METEOR
    itself (Banerjee and Lavie 2005) counts every match, so that its penalty is at most 1/2 and its score at least 0.

    Args:
        scores: (rows,) numbers.
        metrics: (rows,) name of the metric of each score; only those of "meteor_score" are changed.
    """
    is_meteor = metrics.astype(str) == "meteor_score"
    return scores.mask(is_meteor & (scores < 0), 0.0)


def load_embeddings(table: str, items: Sequence[str], root: Path = OUTCOMES_FOLDER) -> np.ndarray:
    """Loads the sentence embeddings of the prompts of some items, reduced to 64 principal axes: (items, 64)."""
    embeddings = artifacts.read_parquet(root / f"{table}_embeddings.parquet").set_index("item")
    return embeddings.loc[[str(item) for item in items]].to_numpy(float)


# By name of a shipped table, the function that loads it at given prices.
SHIPPED: dict[str, Callable[[PriceSettings], OutcomeTable]] = {
    **{name: (lambda _, name=name: load_agents(name)) for name in AGENTS},
    "llmrouter": lambda prices: load_llmrouter(prices),
    "llmrouter-new": lambda prices: load_llmrouter(prices, hold_out="groups"),
    **{name: (lambda prices, name=name: load_zeroeval(name, prices)) for name in ("gsm", "crux")},
    **{name: (lambda prices, name=name: load_routellm(name, prices)) for name in ("mmlu", "gsm8k")},
    "routerarena": lambda _: load_routerarena(),
}


# By name of a shipped table, the files that it is read from; below, the fields of PriceSettings that it depends on.
FILES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(AGENTS, ("openhands.parquet",)),
    **dict.fromkeys(
        ("llmrouter", "llmrouter-new"),
        ("llmrouter.parquet", "llmrouter_embeddings.parquet", "prices.csv"),
    ),
    **{name: (f"{name}.parquet", f"{name}_embeddings.parquet") for name in ("gsm", "crux")},
    "mmlu": ("routellm.parquet", "routellm_embeddings.parquet"),
    "gsm8k": ("routellm.parquet", "routellm_embeddings.parquet", "gsm.parquet"),
    "routerarena": ("routerarena.parquet",),
}
PRICED_BY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(AGENTS, ()),
    **dict.fromkeys(("llmrouter", "llmrouter-new"), ("reply_tokens",)),
    **dict.fromkeys(("gsm", "crux"), ("per_billion", "exponent")),
    **dict.fromkeys(("mmlu", "gsm8k"), ("reply_tokens", "routellm")),
    "routerarena": (),
}


def subsample(table: OutcomeTable, most: int) -> OutcomeTable:
    """Samples some items of a table, the same fraction of each group, but at least two items of a group.

    Args:
        table: The recorded outcomes.
        most: Approximate number of items; a smaller table is returned as it is.

    Returns:
        The smaller table.
    """
    if len(table) <= most:
        return table
    order = seeds.rng("outcomes", "thinned", table.name).permutation(len(table))
    groups = pd.Series(table.groups[order])
    if groups.nunique() == len(table):  # every item is a group of its own
        return table.take(np.sort(order[:most]))
    rank_in_group = groups.groupby(groups).cumcount()
    group_size = groups.groupby(groups).transform("size")
    equal_fraction = np.floor(group_size * most / len(table))
    items_per_group = np.maximum(2, equal_fraction)
    is_selected = (rank_in_group < items_per_group).to_numpy()
    selected = np.sort(order[is_selected])
    return table.take(selected)


def load_shipped(name: str, prices: PriceSettings, most: int) -> OutcomeTable:
    """Loads a shipped table, or a sample of it where it has many items.

    Args:
        name: A key of `SHIPPED`.
        prices: Prices of the models, from which costs are computed where the source recorded none.
        most: Number of items, about; see `subsample`.
    """
    return subsample(SHIPPED[name](prices), most)
