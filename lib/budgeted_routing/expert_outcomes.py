"""What every expert makes of questions on its own: its price, the budgets that follow, what routers learn from, and
whether there is anything to choose.

A strategy is a constant way to answer: give the question to one expert, or answer it oneself.
"""

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from lib import stats, tasks
from lib.config import ROOT, Params, RoutingSettings
from lib.language_models.checkpoints import LIMIT, MODELS
from lib.language_models.in_process_client import Asker, asker
from lib.language_models.serving.transport import lab
from lib.llm.client_factory import finish, opened
from lib.rl import call_protocol
from lib.rl.expert_pool import TRIES, Pool, Query, askers, drawn
from lib.tasks import Item

VERSION = 1  # of the trials of experts and the budgets that follow
RUNS = ROOT / "data/runs/routing"
CASSETTES = ROOT / "data/cassettes"
NAME = "routing"  # of the cassette and of the purse
FREE = "money is no object"
ITSELF = "controller alone"  # as it comes from the lab, before any protocol


def tried(pool: Pool, items: Sequence[Item], split: str, tries: int = 1) -> pd.DataFrame:
    """Every expert on every item: columns split, item (number), group (family), difficulty, prompt, method, sample,
    correct (0 or 1), cost_usd, calls, reply."""
    asked = [
        (expert, i, t) for expert in pool.experts for t in range(tries) for i in range(len(items))
    ]
    replies = pool.ask(
        [Query(expert, items[i].prompt, drawn(items[i].prompt, t)) for expert, i, t in asked]
    )
    told = [
        {
            "method": expert,
            "sample": t,
            "correct": tasks.score(items[i], heard.text),
            "cost_usd": heard.cost_usd,
            "calls": 1,
            "reply": heard.text,
        }
        for (expert, i, t), heard in zip(asked, replies, strict=True)
    ]
    return pd.DataFrame(
        [_about(items[i], i, split) | row for (_, i, _), row in zip(asked, told, strict=True)]
    )


def _about(item: Item, number: int, split: str) -> dict[str, object]:
    return {
        "split": split,
        "item": number,
        "group": item.category,
        "difficulty": item.difficulty,
        "prompt": item.prompt,
    }


def prices(
    table: pd.DataFrame, experts: Sequence[str], settings: RoutingSettings
) -> dict[str, float]:
    """Dollars that one call costs at most where it helps, by expert: `settings.quantile` of its price over the
    questions that it answers right (over all, where there are none). table: of the questions that are learned from."""
    found = {}
    for expert in experts:
        rows = table[table["method"] == expert]
        useful = rows[rows["correct"] == 1]
        found[expert] = float(
            np.quantile((useful if len(useful) else rows)["cost_usd"], settings.quantile)
        )
    return found


def budgets(price: Mapping[str, float], settings: RoutingSettings) -> dict[str, float]:
    """B in dollars for each word: low affords one call to the cheapest expert, medium one to the middle one,
    high anything."""
    experts = sorted(price, key=price.__getitem__)
    middle = experts[len(experts) // 2]
    return dict(
        zip(
            call_protocol.WORDS,
            (price[experts[0]], price[middle], settings.high_budget_usd),
            strict=True,
        )
    )


# What there is to choose ---------------------------------------------------------------------------


def choices(
    params: Params,
    n: int,
    models: str | Path = MODELS,
    runs: str | Path = RUNS,
    cassettes: str | Path = CASSETTES,
) -> pd.DataFrame:
    """Every expert, and the controller's base as it is, on n dev and n test questions in independent tries: the columns
    of `tried`. Nothing learns from these; `stats.headroom` says what choosing per question could win."""
    settings = params.routing
    llm, transports = lab(params.llm, models)
    client = partial(opened, llm, NAME, runs, cassettes, 1, transports)
    known = askers(llm, settings.experts.values(), models)
    parts = []
    with Pool(client, settings.experts, settings.expert_temperature, askers=known) as pool:
        for split in ("dev", "test"):
            items = tasks.spread(settings.questions, split, n, seed=17)
            parts += [
                tried(pool, items, split, TRIES),
                alone(asker(settings.base, models), items, split, TRIES),
            ]
    return pd.concat(parts, ignore_index=True)


def headrooms(rows: pd.DataFrame, worth: Mapping[str, float]) -> pd.DataFrame:
    """What choosing per question could win over the best constant, `stats.headroom` with money no object and under
    each budget, where an answer counts if it was paid for within it. rows: of `choices`; worth: dollars by word.
    Indexed by question (FREE, then the words); besides constant, the best one on dev."""
    found = {}
    for word, budget in {FREE: np.inf, **worth}.items():
        paid = rows.assign(paid=rows["correct"] * (rows["cost_usd"] <= budget))
        dev, test = (paid[paid["split"] == split] for split in ("dev", "test"))
        found[word] = stats.headroom(dev, test, "paid").assign(
            constant=dev.groupby("method")["paid"].mean().idxmax()
        )
    return pd.concat(found, names=["question"]).droplevel(1)


def alone(model: Asker, items: Sequence[Item], split: str, tries: int = 1) -> pd.DataFrame:
    """A model that answers by itself, without a protocol and without dice, which is the same in every try; the columns
    of `tried`, and tokens, read and written. It costs nothing that a budget counts."""

    async def together():
        asked = ([{"role": "user", "content": item.prompt}] for item in items)
        return await asyncio.gather(*(model.say(messages, LIMIT, 0.0, 0) for messages in asked))

    rows = []
    for i, (item, said) in enumerate(zip(items, finish(together()), strict=True)):
        row = {
            "method": ITSELF,
            "correct": tasks.score(item, said.text),
            "cost_usd": 0.0,
            "calls": 0,
            "reply": said.text,
        }
        row["tokens"] = said.tokens_in + said.tokens_out
        rows += [_about(item, i, split) | row | {"sample": t} for t in range(tries)]
    return pd.DataFrame(rows)
