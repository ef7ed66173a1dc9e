"""Chains of digits with prices: CoRL's controllers, ToolOrchestra's orchestrators, ARC's configured agents, the policy
that a Conductor trained, each expert alone, routers, random and the oracle, on the test questions of lesson 05.

Dollars are those of every token by the measured cards: of experts, of tools, and of the decision maker itself where it
is a language model. ARC's two policies and the routers are a few thousand numbers and cost nothing here.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib.conductor import study as maestro
from lib.configuration import study as arc
from lib.models import cards, checkpoints
from lib.params import Params
from lib.routing import baselines
from lib.routing import study as corl
from lib.routing.arms import NAMED
from lib.routing.baselines import ITSELF, ROUTERS, Tried
from lib.routing.toolorchestra import study as orchestra
from lib.routing.toolorchestra.assignments import Assignment
from lib.routing.toolorchestra.menu import Menu, Preference
from lib.tasks import Item, chain

MILLION = 1e6
COLUMNS = ["maker", "point", "kind", "seed", "unit", "quality", "dollars"]
USERS = {"accuracy": (1.0, 0.0), "rather accuracy": (2 / 3, 1 / 3), "rather cost": (1 / 3, 2 / 3)}  # (accuracy, cost)
EXPERT, ROUTER, PAPER, ORACLE = "expert", "router", "paper", "oracle"  # kinds of maker


def play(params: Params) -> pd.DataFrame:
    """One row per maker, point (a budget or a user; empty where there is one), seed and question: kind, quality (0 or
    1), dollars per million questions."""
    numbers = {i: n for n, i in enumerate(_chains(corl.test_items(params.routing)))}
    items = [corl.test_items(params.routing)[i] for i in numbers]
    results = corl.run(params, [NAMED["corl"]], label="training controllers to meet")
    own = [_routers(results), _corl(results)]
    own = [part[part["unit"].isin(numbers)].assign(unit=lambda rows: rows["unit"].map(numbers)) for part in own]
    parts = [*own, _orchestra(params, items), _arc(params, items), _maestro(params, items)]
    return pd.concat([part[COLUMNS] for part in parts], ignore_index=True)


def _chains(items: Sequence[Item]) -> list[int]:
    """Numbers of the test questions that every maker knows how to read."""
    return [i for i, item in enumerate(items) if item.category == "chain"]


def _corl(results: corl.Results) -> pd.DataFrame:
    """Controllers of every seed under every budget, without dice."""
    part = results.episodes[(results.episodes["arm"] == "corl") & (results.episodes["style"] == "soft")]
    part = part[part["temperature"] == part["temperature"].min()]
    dollars = (part["dollars"] + part["tokens"] * results.token_price) * MILLION
    return part.assign(maker="CoRL", point=part["label"], kind=PAPER, unit=part["item"], quality=part["right"],
                       dollars=dollars)  # fmt: skip


def _routers(results: corl.Results) -> pd.DataFrame:
    """Experts with whole questions, and who is trained on what they made of training questions."""
    experts = list(results.budgets.calls)
    known = {split: baselines.tried_on(results.experts, results.alone, split, experts) for split in ("train", "test")}
    table = baselines.compare(known["train"], known["test"], results.budgets.words)
    table = table[table["router"].isin([*experts, *ROUTERS])]
    once = table["router"].isin([*experts, "random"]) & (table["label"] != list(results.budgets.words)[-1])
    table = table[~once]  # who does not look at the budget is shown once
    kinds = dict.fromkeys(experts, EXPERT) | {"oracle": ORACLE}
    constant = table["router"].isin([*experts, "random"])
    return table.assign(
        maker=table["router"].replace({"random": "random expert"}), point=table["label"].where(~constant, ""),
        kind=table["router"].map(kinds).fillna(ROUTER), seed=0, unit=table["item"], quality=table["right"],
        dollars=(table["dollars"] + _own(table, results, known["test"])) * MILLION,
    )  # fmt: skip


def _own(table: pd.DataFrame, results: corl.Results, tests: Tried) -> pd.Series:
    """What the controller's own tokens cost where a router lets it work: as many as it needs for the whole question.
    Of the cascade only the last that it asks is on record, so it is charged always: whoever costs nothing comes first.
    """
    alone = results.alone[results.alone["split"] == "test"].sort_values("item")
    price = pd.Series(alone["tokens"].to_numpy() * results.token_price, index=range(len(tests.prompts)))
    works = (table["chosen"] == ITSELF) | (table["router"] == "cascade")
    return table["item"].map(price) * works


def _orchestra(params: Params, items: Sequence[Item]) -> pd.DataFrame:
    """Orchestrators with a menu of the lab's models that do chains, at list prices, for users who weigh cost."""
    experts = [name for name in params.tools.models if name.startswith("lab-")]

    def assigned(offers) -> list[Assignment]:
        menu = Menu(tuple(offers[name] for name in experts))
        return [Assignment(item, menu, Preference(a, c, 0.0)) for a, c in USERS.values() for item in items]

    found = orchestra.asked(params, assigned)
    users = [name for name in USERS for _ in items]
    return found.assign(maker="ToolOrchestra", point=found["item"].map(dict(enumerate(users))), kind=PAPER,
                        unit=found["item"] % len(items), quality=found["right"].astype(float),
                        dollars=found["dollars"] * MILLION)  # fmt: skip


def _arc(params: Params, items: Sequence[Item]) -> pd.DataFrame:
    """Agents of one model of their own, configured for each question."""
    found = arc.asked(params, items)
    return found.assign(maker="ARC", point="", kind=PAPER, unit=found["number"], quality=found["right"],
                        dollars=found["dollars"] * MILLION)  # fmt: skip


def _maestro(params: Params, items: Sequence[Item]) -> pd.DataFrame:
    """The policy that a Conductor trained answers by itself, in the skin that it knows: a Conductor weighs rewards in
    training, and chooses nobody afterwards."""
    found = maestro.asked(params, [chain.told(item, "words") for item in items])
    price = cards.read(params.conductor.policy, checkpoints.MODELS)["dollars_per_1k_tokens"] / 1000
    return found.assign(maker="MAESTRO's policy", point="", kind=PAPER, unit=found["number"], quality=found["right"],
                        dollars=found["tokens"] * price * MILLION)  # fmt: skip
