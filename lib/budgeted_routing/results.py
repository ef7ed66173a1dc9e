"""The results table of CoRL: controllers before, during and after training, and the baselines, under every budget.

A controller is a small language model that answers a question itself or calls experts, models that cost money. Its
prompt names the budget, the most that the calls for the question may cost, in one of three styles: "soft" names it as a
word (low, medium, high), "hard" also says what to do under it, "number" gives it in digits.

Rows are those of `lib.experiment.results_table`: one per method, seed, budget and question. All methods answer the same
test questions and meet the same replies of the experts. Some columns have a meaning of their own here:

- condition is the budget as the prompt names it, group the family of the question, chosen the experts that were called;
- cost_usd is what the calls of experts cost, which the budget limits; own_cost_usd is what the controller's own tokens
  cost, which no budget counts.
"""

from collections.abc import Mapping

import pandas as pd

from lib.budgeted_routing import baselines, expert_outcomes
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

# Counts of experts' replies that were lost, cut off or read in part, of queries that a controller wrote itself, and the
# number of the sample where a question is answered several times; tables of earlier runs have none of them.
_OPTIONAL_COUNTS = ["failed", "truncated", "shortened", "written_queries", "sample"]


# The table ----------------------------------------------------------------------------------------


def make_rows(results_by_world: Mapping[str, BudgetedRoutingResults]) -> pd.DataFrame:
    """Make the rows of the results table from an experiment: tests and training episodes of controllers, and baselines.

    Args:
        results_by_world: For each world, a set of experts and questions (`lib.budgeted_routing.worlds`), the tables
            that `lib.budgeted_routing.experiment.run_worlds` returns.

    Returns:
        A row for each world, method, seed, budget and question, with the columns of `lib.experiment.results_table` and
        these: world, within (1 where the cost is within the budget), budget (US dollars), difficulty (of the question),
        written_queries (calls whose query is not the user's question) and three counts of experts' replies: failed
        (lost by the infrastructure), truncated (cut off at the expert's limit of tokens) and shortened (read in part by
        the controller).
    """
    tables = [make_world_rows(results, world) for world, results in results_by_world.items()]
    return pd.concat(tables, ignore_index=True)


def make_world_rows(results: BudgetedRoutingResults, world: str) -> pd.DataFrame:
    """Make the rows of the results table from the experiment in one world, one set of experts and questions.

    Args:
        results: Tables of the experiment, from `lib.budgeted_routing.experiment.run`.
        world: Name of the world: complementary (each expert is best on its own kind of question), ladder (the more
            expensive expert is better everywhere) or two experts.

    Returns:
        Rows with the columns of `make_rows`: test episodes, then training episodes, then baselines.
    """
    tables = [_make_test_rows(results), _make_training_rows(results), _make_baseline_rows(results)]
    rows = [results_table.make_results(SYSTEM, table.assign(world=world)) for table in tables]
    return pd.concat(rows, ignore_index=True)


def write_results(results_by_world: Mapping[str, BudgetedRoutingResults]) -> pd.DataFrame:
    """Write the results table of an experiment to its file.

    Args:
        results_by_world: For each world, a set of experts and questions, the tables that
            `lib.budgeted_routing.experiment.run_worlds` returns.

    Returns:
        The rows of `make_rows`, as read back from the file.
    """
    return results_table.write_results(SYSTEM, make_rows(results_by_world))


def _make_test_rows(results: BudgetedRoutingResults) -> pd.DataFrame:
    """Make rows of the test episodes of controllers, before and after training.

    Args:
        results: Tables of the experiment in one world; `episodes` are the tests.

    Returns:
        A row per episode: the columns of `_make_controller_rows`, split ("test"), style (how the prompt names the
        budget: soft, hard or number) and temperature (of sampling).
    """
    episodes = results.episodes
    rows = _make_controller_rows(episodes, results)
    return rows.assign(split="test", style=episodes["style"], temperature=episodes["temperature"])


def _make_training_rows(results: BudgetedRoutingResults) -> pd.DataFrame:
    """Make rows of the episodes on which controllers were trained.

    Args:
        results: Tables of the experiment in one world; `rollouts` are the training episodes.

    Returns:
        A row per episode: the columns of `_make_controller_rows`, split ("train"), style (how the prompt names the
        budget: soft, hard or number; empty for a method that is no variant of CoRL) and step (number of the update).
    """
    rollouts = results.rollouts
    style_by_method = {name: variant.style for name, variant in VARIANTS_BY_NAME.items()}
    styles = [style_by_method.get(method, "") for method in rollouts["method"]]
    rows = _make_controller_rows(rollouts, results)
    return rows.assign(split="train", style=styles, step=rollouts["step"])


def _make_controller_rows(episodes: pd.DataFrame, results: BudgetedRoutingResults) -> pd.DataFrame:
    """Make the columns that test and training episodes of controllers have in common.

    Args:
        episodes: A row per episode, with the columns of `lib.budgeted_routing.budget_episodes.make_episode_rows`,
            method and seed.
        results: `token_price` is the price of a token that the controller reads or writes, in US dollars.

    Returns:
        A row per episode. As in `episodes`: seed, group (family of the question), difficulty, condition (the budget as
        the prompt names it), budget (US dollars), correct, within, reward, cost_usd (of calls), calls, malformed,
        failures. Added or converted: method (its label), role ("start" for the controller before training, "paper" for
        a trained one), item (the question, as text), own_cost_usd (price of the controller's own tokens), chosen (list
        of the experts that were called), and the counts failed, truncated, shortened and written_queries (0 in tables
        of earlier runs, which did not count them).
    """
    optional_counts = {}
    for name in _OPTIONAL_COUNTS:
        optional_counts[name] = episodes[name].fillna(0).astype(int) if name in episodes else 0

    methods = episodes["method"]
    labels = methods.map(METHOD_LABELS).fillna(methods)
    roles = ["start" if method == START else "paper" for method in methods]

    question_columns = ["group", "condition", "difficulty", "budget"]
    outcome_columns = ["correct", "within", "reward", "cost_usd", "calls", "malformed", "failures"]
    rows = episodes[["seed", *outcome_columns, *question_columns]]
    return rows.assign(
        **optional_counts,
        method=labels,
        role=roles,
        item=episodes["item"].astype(str),
        own_cost_usd=episodes["tokens"] * results.token_price,
        chosen=episodes["chosen"].str.split(),
    )


def _make_baseline_rows(results: BudgetedRoutingResults) -> pd.DataFrame:
    """Make rows of every constant strategy, every router and the oracle on the test questions, under every budget.

    A strategy is one expert, or the controller's base model alone; a constant uses one strategy for all questions, a
    router predicts from the question which one will be rewarded, the oracle chooses in hindsight. Where budgets are
    numbers only NUMERIC_BASELINES are run, since a router is trained for every budget by itself.

    Args:
        results: Tables of the experiment in one world: outcomes of the experts and of the controller alone on training
            and test questions, and the budgets.

    Returns:
        A row per method, budget and test question, with the columns of `_make_test_rows`.
    """
    # Run all baselines: under budget words, and under budgets that are numbers.
    prices = results.budgets.price_by_expert
    experts = sorted(prices, key=prices.get)  # cheapest first: a cascade calls them in this order
    train = baselines.make_outcome_matrix(results.experts, results.alone, "train", experts)
    test = baselines.make_outcome_matrix(results.experts, results.alone, "test", experts)
    budget_by_word = results.budgets.usd_by_word
    budget_by_number = _list_numeric_budgets(results)
    word_table = baselines.compare_baselines(train, test, budget_by_word)
    numeric_table = baselines.compare_baselines(train, test, budget_by_number, NUMERIC_BASELINES)
    table = pd.concat(
        [word_table.assign(style="soft"), numeric_table.assign(style="number")], ignore_index=True
    )

    # The column item of `table` numbers the compared questions from 0: those of which no expert's reply was lost.
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

    # The role of a method says what kind of baseline it is; all that are not named here are routers.
    role_by_method = dict.fromkeys(experts, "expert")
    for method in (CONTROLLER_ALONE, "best constant", "best expert"):
        role_by_method[method] = "constant"
    role_by_method["oracle"] = "oracle"
    roles = table["method"].map(role_by_method).fillna("router")

    called_experts = [[] if name == CONTROLLER_ALONE else [name] for name in table["chosen"]]
    budget_by_condition = {**budget_by_word, **budget_by_number}
    outcome_columns = [
        "method", "condition", "style", "correct", "within", "reward", "cost_usd", "calls",
    ]  # fmt: skip
    return table[outcome_columns].assign(
        role=roles,
        seed=0,
        split="test",
        item=items.astype(str),
        group=items.map(questions["group"]),
        difficulty=items.map(questions["difficulty"]),
        budget=table["condition"].map(budget_by_condition),
        temperature=0.0,
        own_cost_usd=items.map(controller_cost_usd) * uses_controller,
        malformed=0,
        failures=0,
        **dict.fromkeys(_OPTIONAL_COUNTS, 0),
        chosen=called_experts,
    )


def _list_numeric_budgets(results: BudgetedRoutingResults) -> dict[str, float]:
    """List the budgets in digits that controllers were tested with, and what they are in US dollars.

    Args:
        results: Tables of the experiment: test episodes, and `budgets.unit_usd`, the dollars that a 1 stands for.

    Returns:
        US dollars a question, by the digits that stand in the prompt.
    """
    episodes = results.episodes
    digits = episodes.loc[episodes["style"] == "number", "condition"].unique()
    return {number: int(number) * results.budgets.unit_usd for number in digits}


# What tables and lessons ask of it ----------------------------------------------------------------


def count_replies_by_world(
    rows: pd.DataFrame, results_by_world: Mapping[str, BudgetedRoutingResults], params: Params
) -> pd.DataFrame:
    """Count the experts' replies without an answer, by method, and report each method's worst world.

    Args:
        rows: Rows of `make_rows`.
        results_by_world: For each world, a set of experts and questions, the tables that the rows come from.
        params: All settings, as params.yaml has them.

    Returns:
        A row per method and model, with the columns of `lib.llm.reply_shares.count_replies` (calls, failed, truncated,
        unusable, share_without_answer, too_many, ...); of a method in several worlds, the row with the largest
        share_without_answer.
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
    """Count the experts' replies without an answer, by method, in one world.

    A method that rests on too many of them says little about the experts (`lib.llm.reply_shares`).

    Args:
        rows: Rows of `make_world_rows`.
        results: Tables of the experiment that the rows come from; in `experts` each expert answered every question.
        params: `routing.experts` and `llm.models` say which model stands behind each expert.

    Returns:
        A row per method and model, with the columns of `lib.llm.reply_shares.count_replies`: calls, failed, truncated,
        unusable, share_without_answer, too_many and others. A method that calls several experts has the model
        "several".
    """
    # Experts by themselves.
    expert_rows = expert_outcomes.add_reply_counts(results.experts, params)

    # Controllers: their episodes counted all failures, and of these the lost and the cut off replies.
    backends = [params.llm.models[name].backend for name in params.routing.experts.values()]
    several_models = {
        "model": reply_shares.SEVERAL,
        "backend": reply_shares.pick_backend(backends),
    }
    test_rows = rows[rows["split"] == "test"]
    is_controller = test_rows["role"].isin(["paper", "start"])
    controller_rows = test_rows[is_controller]
    lost_or_cut_off = controller_rows["failed"] + controller_rows["truncated"]
    controller_rows = controller_rows.assign(
        unusable=controller_rows["failures"] - lost_or_cut_off, **several_models
    )

    # Routers: each choice takes the reply that the chosen expert gave to the question.
    is_router = ~is_controller & ~test_rows["method"].isin(expert_rows["method"])
    choices = test_rows.loc[is_router, ["method", "item", "chosen"]].explode("chosen")
    replies = expert_rows[(expert_rows["split"] == "test") & (expert_rows["sample"] == 0)]
    replies = replies.assign(item=replies["item"].astype(str), chosen=replies["method"])
    reply_columns = ["item", "chosen", "calls", "failed", "truncated", "unusable"]
    router_rows = choices.merge(replies[reply_columns], on=["item", "chosen"])
    router_rows = router_rows.assign(**several_models)

    all_calls = pd.concat([expert_rows, controller_rows, router_rows], ignore_index=True)
    return reply_shares.count_replies(all_calls)


def describe_setup(rows: pd.DataFrame, params: Params) -> dict[str, bool | int | str]:
    """Describes the run for the scoreboard: what answered, how long was trained, and whether the oracle is a bound.

    Args:
        rows: Rows of `make_rows`.
        params: All settings.

    Returns:
        Values by metric key.
    """
    routing = params.routing
    return {
        "oracle.dominates": oracle_dominates(rows),
        "backend": params.llm.describe_backend(routing.experts.values()),
        "corl.seeds": routing.seeds,
        "corl.updates": routing.updates["soft"],
    }


def oracle_dominates(rows: pd.DataFrame) -> bool:
    """Check that no single strategy and no router gets more reward than the oracle, on any test question and budget.

    The oracle chooses, in hindsight, the single expert (or the controller alone) with the highest reward. Left out are
    the methods that may call several experts, the cascade and the controllers: a later call may bring the correct
    answer that no single call brings.

    Args:
        rows: Rows of `make_rows`.

    Returns:
        True where the oracle is nowhere surpassed.
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
