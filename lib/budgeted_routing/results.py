"""The results table of CoRL: controllers before, during and after training, and the baselines, under every budget.

Rows are those of `lib.experiment.results_table`: one per method, seed, budget and question. All methods answer the same
test questions and meet the same replies of the experts. Some columns have a meaning of their own here:

- condition is the budget's name, group the family of the question, chosen the experts that were called;
- cost_usd is what the calls of experts cost, which the budget limits; own_cost_usd is what the controller's own tokens
  cost, which no budget counts.
"""

from collections.abc import Mapping

import pandas as pd

from lib.budgeted_routing import baselines, expert_outcomes
from lib.budgeted_routing.baselines import ROUTERS
from lib.budgeted_routing.experiment import BudgetedRoutingResults
from lib.budgeted_routing.expert_outcomes import CONTROLLER_ALONE
from lib.budgeted_routing.jobs import START
from lib.budgeted_routing.variants import VARIANTS_BY_NAME
from lib.budgeted_routing.worlds import select_world
from lib.config import Params
from lib.experiment import results_table
from lib.llm import reply_shares

SYSTEM = "corl"
METHOD_LABELS = {name: variant.label for name, variant in VARIANTS_BY_NAME.items()}
NUMERIC_BASELINES = ("best constant", "logistic", "oracle")

_OUTCOME_COLUMNS = [
    "seed", "correct", "within", "reward", "cost_usd", "calls", "malformed", "failures",
]  # fmt: skip
# What became of the experts' replies; jobs that were finished before these were counted have none of them.
_REPLY_COUNTS = ["failed", "truncated", "shortened"]


# The table ----------------------------------------------------------------------------------------


def make_rows(results_by_world: Mapping[str, BudgetedRoutingResults]) -> pd.DataFrame:
    """Make the rows of the results table from an experiment: tests, training episodes, and baselines.

    Args:
        results_by_world: Of `lib.budgeted_routing.experiment.run_worlds`.

    Returns:
        Rows of `lib.experiment.results_table`, with the further columns world (`lib.budgeted_routing.worlds`), within
        (1 where the cost is within the budget), budget (US dollars), difficulty, failed, truncated and shortened (see
        `lib.budgeted_routing.budget_episodes.make_episode_rows`).
    """
    rows = [make_world_rows(results, world) for world, results in results_by_world.items()]
    return pd.concat(rows, ignore_index=True)


def make_world_rows(results: BudgetedRoutingResults, world: str) -> pd.DataFrame:
    """The rows of one world.

    Args:
        results: Of `lib.budgeted_routing.experiment.run`.
        world: What the column of that name says.
    """
    tables = [_make_test_rows(results), _make_training_rows(results), _make_baseline_rows(results)]
    rows = [results_table.make_results(SYSTEM, table.assign(world=world)) for table in tables]
    return pd.concat(rows, ignore_index=True)


def write_results(results_by_world: Mapping[str, BudgetedRoutingResults]) -> pd.DataFrame:
    """Write the results table of an experiment to its file.

    Args:
        results_by_world: Of `lib.budgeted_routing.experiment.run_worlds`.

    Returns:
        The rows, as read back from the file.
    """
    return results_table.write_results(SYSTEM, make_rows(results_by_world))


def _make_test_rows(results: BudgetedRoutingResults) -> pd.DataFrame:
    """Test episodes of controllers, before and after training."""
    episodes = results.episodes
    return _make_controller_rows(episodes, results).assign(
        split="test", style=episodes["style"], temperature=episodes["temperature"]
    )


def _make_training_rows(results: BudgetedRoutingResults) -> pd.DataFrame:
    """Training episodes of controllers, by update."""
    rollouts = results.rollouts
    styles = [
        VARIANTS_BY_NAME[method].style if method in VARIANTS_BY_NAME else ""
        for method in rollouts["method"]
    ]
    return _make_controller_rows(rollouts, results).assign(
        split="train", style=styles, step=rollouts["step"]
    )


def _make_controller_rows(episodes: pd.DataFrame, results: BudgetedRoutingResults) -> pd.DataFrame:
    """The columns that test and training episodes of controllers have in common."""
    reply_counts = {}
    for name in _REPLY_COUNTS:
        reply_counts[name] = episodes[name].astype(int) if name in episodes else 0

    methods = episodes["method"]
    columns = [*_OUTCOME_COLUMNS, "group", "condition", "difficulty", "budget"]
    return episodes[columns].assign(
        **reply_counts,
        method=methods.map(METHOD_LABELS).fillna(methods),
        role=["start" if method == START else "paper" for method in methods],
        item=episodes["item"].astype(str),
        own_cost_usd=episodes["tokens"] * results.token_price,
        chosen=episodes["chosen"].str.split(),
    )


def _make_baseline_rows(results: BudgetedRoutingResults) -> pd.DataFrame:
    """Every constant strategy, every router and the oracle on the test questions, under every budget.

    Where budgets are numbers only NUMERIC_BASELINES are run, since a router is trained for every budget by itself.
    """
    experts = list(results.budgets.calls)  # in the order in which a cascade may ask them
    train, test = (
        baselines.make_outcome_matrix(results.experts, results.alone, split, experts)
        for split in ("train", "test")
    )
    numeric_budgets = _list_numeric_budgets(results)
    numeric_table = baselines.compare(train, test, numeric_budgets, NUMERIC_BASELINES)
    table = pd.concat(
        [
            baselines.compare(train, test, results.budgets.words).assign(style="soft"),
            numeric_table.assign(style="number"),
        ],
        ignore_index=True,
    )

    # Baselines number the questions that they are compared on; those of which a reply was lost are left out.
    outcomes = results.experts[results.experts["split"] == "test"]
    questions = outcomes.drop_duplicates("item").set_index("item")
    lost_items = outcomes.loc[outcomes["correct"].isna(), "item"]
    compared_items = questions.index.difference(lost_items).sort_values().to_numpy()
    items = pd.Series(compared_items[table["item"]], index=table.index)

    # The controller's own tokens cost something only where it answers; a cascade lets it answer first.
    controller_rows = results.alone[results.alone["split"] == "test"].set_index("item")
    controller_cost_usd = controller_rows["tokens"] * results.token_price
    is_controller = table["chosen"] == CONTROLLER_ALONE
    uses_controller = is_controller | (table["method"] == "cascade")

    roles = dict.fromkeys(experts, "expert") | dict.fromkeys(ROUTERS, "router")
    roles |= dict.fromkeys([CONTROLLER_ALONE, "best constant", "best expert"], "constant")
    roles["oracle"] = "oracle"
    columns = ["method", "condition", "style", "correct", "within", "reward", "cost_usd"]
    return table[columns].assign(
        role=table["method"].map(roles).fillna("router"),
        seed=0,
        split="test",
        item=items.astype(str),
        group=items.map(questions["group"]),
        difficulty=items.map(questions["difficulty"]),
        budget=table["condition"].map({**results.budgets.words, **numeric_budgets}),
        temperature=0.0,
        own_cost_usd=items.map(controller_cost_usd) * uses_controller,
        calls=(~is_controller).astype(int),
        malformed=0,
        failures=0,
        **dict.fromkeys(_REPLY_COUNTS, 0),
        chosen=[[] if name == CONTROLLER_ALONE else [name] for name in table["chosen"]],
    )


def _list_numeric_budgets(results: BudgetedRoutingResults) -> dict[str, float]:
    """US dollars by number, of the numeric budgets that controllers were tested with."""
    episodes = results.episodes
    labels = episodes.loc[episodes["style"] == "number", "condition"].unique()
    return {label: int(label) * results.budgets.unit_usd for label in labels}


# What tables and lessons ask of it ----------------------------------------------------------------


def count_replies_by_world(
    rows: pd.DataFrame, results_by_world: Mapping[str, BudgetedRoutingResults], params: Params
) -> pd.DataFrame:
    """Count how many replies of experts held no answer, by method, over all worlds.

    Args:
        rows: Of `make_rows`.
        results_by_world: The experiment that the rows come from.
        params: All settings, as params.yaml has them.

    Returns:
        See `count_replies`; of a method that has rows in several worlds, those of the world with the largest share of
        replies without an answer.
    """
    tables = []
    for world, results in results_by_world.items():
        world_rows = results_table.select(rows, world=world)
        tables.append(count_replies(world_rows, results, select_world(params, world)))
    counts = pd.concat(tables, ignore_index=True)
    worst_first = counts.sort_values("share_without_answer", ascending=False, kind="stable")
    return worst_first.drop_duplicates("method").sort_index().reset_index(drop=True)


def count_replies(
    rows: pd.DataFrame, results: BudgetedRoutingResults, params: Params
) -> pd.DataFrame:
    """Count how many replies of experts held no answer, by method.

    A method that rests on too many of them says little about the experts (`lib.llm.reply_shares`).

    Args:
        rows: Of `make_world_rows`.
        results: The experiment that the rows come from; experts are counted where each answered every question.
        params: Says which model stands behind each expert.

    Returns:
        See `lib.llm.reply_shares.count_replies`. A method that calls several experts has the model "several".
    """
    expert_rows = expert_outcomes.add_reply_counts(results.experts, params)
    backends = [params.llm.models[name].backend for name in params.routing.experts.values()]
    several_models = {
        "model": reply_shares.SEVERAL,
        "backend": reply_shares.pick_backend(backends),
    }

    # Controllers counted the replies in their episodes.
    test_rows = rows[rows["split"] == "test"]
    is_controller = test_rows["role"].isin(["paper", "start"])
    controller_rows = test_rows[is_controller]
    lost_or_cut_off = controller_rows["failed"] + controller_rows["truncated"]
    controller_rows = controller_rows.assign(
        unusable=controller_rows["failures"] - lost_or_cut_off, **several_models
    )

    # Routers take a reply that was measured before.
    is_router = ~is_controller & ~test_rows["method"].isin(expert_rows["method"])
    choices = test_rows.loc[is_router, ["method", "item", "chosen"]].explode("chosen")
    replies = expert_rows[(expert_rows["split"] == "test") & (expert_rows["sample"] == 0)]
    replies = replies.assign(item=replies["item"].astype(str), chosen=replies["method"])
    reply_columns = ["item", "chosen", "calls", "failed", "truncated", "unusable"]
    router_rows = choices.merge(replies[reply_columns], on=["item", "chosen"])
    router_rows = router_rows.assign(**several_models)

    return reply_shares.count_replies(
        pd.concat([expert_rows, controller_rows, router_rows], ignore_index=True)
    )


def oracle_dominates(rows: pd.DataFrame) -> bool:
    """Check that no single strategy and no router gets more reward than the oracle, on any test question and budget.

    Left out are the methods that may call several experts, the cascade and the controllers: a later call may bring the
    correct answer that no single call brings.

    Args:
        rows: Of `make_rows`.
    """
    key = ["world", "item", "condition"]
    rows = results_table.select(rows, split="test", temperature=0.0)
    oracle_rows = rows[rows["role"] == "oracle"]
    oracle_rewards = oracle_rows.set_index(key)["reward"]

    makes_one_choice = rows["role"].isin(["expert", "constant", "router"])
    makes_one_choice &= rows["method"] != "cascade"
    highest_rewards = rows[makes_one_choice].groupby(key)["reward"].max()

    # Both are aligned by question and budget.
    is_at_most_oracle = highest_rewards <= oracle_rewards.reindex(highest_rewards.index)
    return bool(is_at_most_oracle.all())
