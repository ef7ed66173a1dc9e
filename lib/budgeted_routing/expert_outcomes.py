"""What every expert scores and costs on questions by itself, and what follows from it: prices, budgets, headroom.

CoRL trains a small language model, the controller, which answers a question itself or pays larger models, the experts.
Before any training, every expert and the controller's base model answer all questions without a protocol. From these
outcomes follow

- the price of a call to each expert, and from prices the budgets low, medium and high (`derive_budgets`);
- what the baselines learn from and are scored on (`lib.budgeted_routing.baselines`);
- whether choosing per question can win anything at all (`estimate_headroom`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from lib import stats, tasks
from lib.config import ROOT, Params, RoutingSettings
from lib.experiment import sweep
from lib.language_models.checkpoints import LIMIT
from lib.language_models.lab_model import open_lab_model
from lib.language_models.local_models import open_local
from lib.language_models.training.model_folders import ensure_models
from lib.llm.chat_model import ChatModel, ChatRequest
from lib.llm.cost_estimate import PlannedCalls, announce_costs, asks_endpoint
from lib.llm.open_models import open_models
from lib.llm.reply_shares import count_replies, mark_rows
from lib.rl import call_protocol
from lib.rl.budget_reward import compute_budget_reward
from lib.rl.expert_pool import (
    NUM_SAMPLES,
    ExpertPool,
    ExpertQuery,
    derive_reply_seed,
)
from lib.tasks import Item

VERSION = 1  # of the outcomes of experts and the budgets that follow
RUNS = ROOT / "data/runs/routing"
CASSETTES = ROOT / "data/cassettes/05_budgeted_routing"
RECORDING_NAME = "routing"  # of the recorded replies and of the spending limit
MAX_QUESTION_TOKENS = 64  # no question of the lab has more
NO_LIMIT = "no limit"  # instead of a budget's name
CONTROLLER_ALONE = "controller alone"  # the method: the base model answers, before any training
_HEADROOM_SEED = 17  # of the questions that `measure_choices` draws

# From questions and replies to scores in [0, 1].
ScoreReplies = Callable[[Sequence[Item], Sequence[str]], Sequence[float]]


def score_family_replies(items: Sequence[Item], replies: Sequence[str]) -> list[float]:
    """Score replies to items of procedural families, each by the strict rule of its family.

    Args:
        items: Questions, each of a family of `lib.tasks`.
        replies: Texts, one per question.

    Returns:
        Scores in [0, 1], one per question.
    """
    return [tasks.score_reply(item, reply) for item, reply in zip(items, replies, strict=True)]


# Outcomes -----------------------------------------------------------------------------------------


def measure_experts(
    pool: ExpertPool,
    items: Sequence[Item],
    split: str,
    num_samples: int = 1,
    score_replies: ScoreReplies = score_family_replies,
) -> pd.DataFrame:
    """Ask every expert every question, and record scores and costs.

    Args:
        pool: The experts.
        items: Questions of one procedural family or several, or a user's.
        split: Name of the set of questions, such as train or test.
        num_samples: Independent replies to each question.
        score_replies: From questions and replies to scores; by default the strict rule of the procedural families.

    Returns:
        A row per expert, sample and question: split, item (number of the question), group (its family), difficulty,
        prompt, method (the expert), sample, correct (score in [0, 1]; nan where the reply was lost), cost_usd, calls,
        reply, failures (0 or 1), failed (whether the infrastructure lost the reply), truncated (whether the expert's
        limit of tokens cut it off).
    """
    keys = []  # (expert, sample, number of the question)
    queries = []
    for expert in pool.experts:
        for sample in range(num_samples):
            for number, item in enumerate(items):
                seed = derive_reply_seed(item.prompt, sample)
                keys.append((expert, sample, number))
                queries.append(ExpertQuery(expert, item.prompt, seed, item.history))

    replies = pool.ask(queries)
    scores = score_replies(
        [items[number] for _, _, number in keys], [reply.text for reply in replies]
    )

    rows = []
    for (expert, sample, number), reply, score in zip(keys, replies, scores, strict=True):
        outcome = {
            "method": expert,
            "sample": sample,
            "correct": math.nan if reply.lost else score,
            "cost_usd": reply.cost_usd,
            "calls": 1,
            "reply": reply.text,
            "failures": int(reply.failure is not None),
            "failed": reply.lost,
            "truncated": reply.truncated,
        }
        rows.append(_describe_item(items[number], number, split) | outcome)
    return pd.DataFrame(rows)


def measure_controller_alone(
    model: ChatModel,
    items: Sequence[Item],
    split: str,
    num_samples: int = 1,
    score_replies: ScoreReplies = score_family_replies,
) -> pd.DataFrame:
    """Let the controller's base model answer every question by itself: no protocol, no experts, greedy decoding.

    Args:
        model: The base model.
        items: The questions.
        split: Name of the set of questions, such as train or test.
        num_samples: How often each row is repeated; greedy replies are equal.
        score_replies: From questions and replies to scores; by default the strict rule of the procedural families.

    Returns:
        The columns of `measure_experts` up to reply, with CONTROLLER_ALONE as method, and tokens (read and written).
        The cost is 0: a budget limits what experts cost, and no expert is called.
    """
    requests = []
    for item in items:
        request = ChatRequest(
            item.messages, temperature=0.0, max_tokens=LIMIT, caller=CONTROLLER_ALONE
        )
        requests.append(request)
    replies = model.generate(requests)
    scores = score_replies(items, [reply.text for reply in replies])

    rows = []
    for number, (item, reply, score) in enumerate(zip(items, replies, scores, strict=True)):
        outcome = {
            "method": CONTROLLER_ALONE,
            "correct": score,
            "cost_usd": 0.0,
            "calls": 0,
            "reply": reply.text,
            "tokens": reply.tokens_in + reply.tokens_out,
        }
        row = _describe_item(item, number, split) | outcome
        rows += [row | {"sample": sample} for sample in range(num_samples)]
    return pd.DataFrame(rows)


def _describe_item(item: Item, number: int, split: str) -> dict[str, object]:
    """The columns that say which question a row is about."""
    return {
        "split": split,
        "item": number,
        "group": item.group,
        "difficulty": item.difficulty,
        "prompt": item.prompt,
    }


def add_reply_counts(outcomes: pd.DataFrame, params: Params) -> pd.DataFrame:
    """Add the columns that `lib.llm.reply_shares.count_replies` reads: which model replied, and which replies failed.

    Args:
        outcomes: Of `measure_experts`. Tables of earlier runs may lack the counts of failures; they lost no reply.
        params: Says which model stands behind each expert.

    Returns:
        The outcomes with the columns model, backend, failed, truncated and unusable (the reply came whole and is of
        no use), numbers 0 or 1.
    """
    counts = {}
    for name in ("failures", "failed", "truncated"):
        values = outcomes[name] if name in outcomes else pd.Series(0, index=outcomes.index)
        # The controller's rows have none of these columns.
        counts[name] = values.astype(float).fillna(0.0).astype(int)

    model_by_expert = params.routing.experts
    backend_by_expert = {
        expert: params.llm.models[model].backend for expert, model in model_by_expert.items()
    }
    # Methods that are no expert are the controller alone, which is a model of the lab.
    return outcomes.assign(
        model=[model_by_expert.get(method, method) for method in outcomes["method"]],
        backend=outcomes["method"].map(backend_by_expert).fillna("lab"),
        failed=counts["failed"],
        truncated=counts["truncated"],
        unusable=counts["failures"] - counts["failed"] - counts["truncated"],
    )


# Prices and budgets -------------------------------------------------------------------------------


def measure_call_prices(
    outcomes: pd.DataFrame, experts: Sequence[str], settings: RoutingSettings
) -> dict[str, float]:
    """Measure what a useful call to each expert costs, for all but the most expensive questions.

    The price is a quantile of the costs of the questions that the expert answers correctly, or of all questions that it
    answers if none is correct.

    Args:
        outcomes: Of `measure_experts`, on training questions.
        experts: Names of the experts.
        settings: Its `quantile` is used.

    Returns:
        US dollars a call, by expert.
    """
    prices = {}
    for expert in experts:
        rows = outcomes[(outcomes["method"] == expert) & outcomes["correct"].notna()]
        correct_rows = rows[rows["correct"] == 1]
        costs = rows["cost_usd"] if correct_rows.empty else correct_rows["cost_usd"]
        prices[expert] = float(np.quantile(costs, settings.quantile))
    return prices


def derive_budgets(prices: Mapping[str, float], settings: RoutingSettings) -> dict[str, float]:
    """Derive the budgets low, medium and high from the experts' prices.

    Low affords one call to the cheapest expert, medium one to the expert in the middle, high is in practice no limit.

    Args:
        prices: US dollars a call, by expert, of `measure_call_prices`.
        settings: Its `high_budget_usd` is used.

    Returns:
        B in US dollars a question, by the budget's name.
    """
    low, medium, high = call_protocol.BUDGET_WORDS
    affordable_experts = find_affordable_experts(prices)
    return {
        low: prices[affordable_experts[low]],
        medium: prices[affordable_experts[medium]],
        high: settings.high_budget_usd,
    }


def find_affordable_experts(prices: Mapping[str, float]) -> dict[str, str]:
    """The expert whose price is the budget, for low (the cheapest expert) and medium (the one in the middle).

    Args:
        prices: US dollars a call, by expert.
    """
    low, medium, _ = call_protocol.BUDGET_WORDS
    experts = sorted(prices, key=prices.__getitem__)
    return {low: experts[0], medium: experts[len(experts) // 2]}


def tabulate_budgets(
    budgets: Mapping[str, float], prices: Mapping[str, float], settings: RoutingSettings
) -> pd.DataFrame:
    """Tabulate what each budget means: dollars per million questions, and the expert that it affords a call to.

    Args:
        budgets: US dollars a question, by the budget's name.
        prices: US dollars a call, by expert, of `measure_call_prices`.
        settings: From its `high_budget_usd` on a budget is no limit.

    Returns:
        A row per budget.
    """
    affordable_experts = find_affordable_experts(prices)
    rows = []
    for name, budget in budgets.items():
        has_limit = budget < settings.high_budget_usd
        rows.append(
            {
                "budget": name,
                "$ per million questions": f"{1e6 * budget:.1f}" if has_limit else NO_LIMIT,
                "affords one call to": affordable_experts.get(name, "any expert"),
            }
        )
    return pd.DataFrame(rows)


# What choosing could win --------------------------------------------------------------------------


def measure_choices(
    params: Params,
    num_items: int,
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    cassettes: str | Path = CASSETTES,
) -> pd.DataFrame:
    """Measure every expert and the controller's base model on questions that no method learns from.

    Args:
        params: All settings.
        num_items: Questions of each of the splits dev and test; each is answered in NUM_SAMPLES independent samples.
        models: Folder of the lab models; None for those of lesson 03, which are trained where they are missing.
        runs: Folder of the spending limit.
        cassettes: Folder of recorded replies.

    Returns:
        The columns of `measure_experts`, for `estimate_headroom`. Experts whose models gave too few answers are marked
        (`lib.llm.reply_shares.mark_rows`).
    """
    settings = params.routing
    models = ensure_models(params.lab, models)
    model_names = list(settings.experts.values())

    if asks_endpoint(params.llm, model_names):
        num_calls = 2 * NUM_SAMPLES * num_items
        planned_calls = []
        for name in dict.fromkeys(model_names):
            tokens_in = MAX_QUESTION_TOKENS * num_calls
            tokens_out = params.llm.models[name].max_tokens * num_calls
            planned_calls.append(PlannedCalls(name, num_calls, tokens_in, tokens_out))
        costs = announce_costs(params.llm, planned_calls)
        sweep.print_to_terminal(f"asking every expert: {costs}")

    chat_models = open_models(
        params.llm, model_names, RECORDING_NAME, runs, cassettes, 1, open_local(models)
    )
    base_model = open_lab_model(settings.base, models)
    tables = []
    with ExpertPool(chat_models, settings.experts, settings.expert_temperature) as pool:
        for split in ("dev", "test"):
            items = tasks.draw_evenly(settings.questions, split, num_items, seed=_HEADROOM_SEED)
            tables.append(measure_experts(pool, items, split, NUM_SAMPLES))
            tables.append(measure_controller_alone(base_model, items, split, NUM_SAMPLES))
    outcomes = pd.concat(tables, ignore_index=True)
    return mark_rows(outcomes, count_replies(add_reply_counts(outcomes, params)))


def estimate_headroom(outcomes: pd.DataFrame, budgets: Mapping[str, float]) -> pd.DataFrame:
    """Estimate how much reward choosing per question could win over the best constant strategy.

    Where the headroom is small, one strategy is about as good as any choice, and a comparison of routers says little
    (`lib.stats.headroom`).

    Args:
        outcomes: Of `measure_choices`: the splits dev and test, every question in two independent samples.
        budgets: US dollars a question, by the budget's name.

    Returns:
        An estimate per budget, indexed by "question": NO_LIMIT first, where reward is the score whatever the cost, then
        the budgets. Its column constant names the strategy of the highest mean reward on dev, which choosing has to
        beat.
    """
    estimates = {}
    for name, budget in {NO_LIMIT: np.inf, **budgets}.items():
        rewards = compute_budget_reward(outcomes["correct"], outcomes["cost_usd"], budget)
        rows = outcomes.assign(reward=rewards)
        dev = rows[rows["split"] == "dev"]
        test = rows[rows["split"] == "test"]

        estimate = stats.headroom(dev, test, "reward")  # one row
        mean_rewards = dev.groupby("method")["reward"].mean()
        estimates[name] = estimate.assign(constant=mean_rewards.idxmax())
    return pd.concat(estimates, names=["question"]).droplevel(1)
