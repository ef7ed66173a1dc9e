"""What every expert scores and costs on questions by itself, and what follows from it: prices, budgets, headroom.

Headroom is how much reward the best choice of an expert for each question could win over the best single one for all.

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
_HEADROOM_SEED = 17  # of the questions that `measure_dev_and_test_outcomes` draws

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
    """Ask every expert every question, without a controller, and record scores and costs.

    Experts are the models that a controller, the model that CoRL trains, may call for money.

    Args:
        pool: The experts.
        items: Questions of one procedural family or several, or a user's.
        split: Name of the set of questions, such as train or test; it becomes a column.
        num_samples: Independent replies to each question.
        score_replies: From questions and replies to scores; by default the strict rule of the procedural families.

    Returns:
        A row per expert, sample and question: split, item (number of the question), group (its family), difficulty,
        prompt, method (the expert), sample, correct (score in [0, 1]; nan where the reply was lost), cost_usd, calls,
        reply, failures (0 or 1), failed (whether the infrastructure lost the reply), truncated (whether the expert's
        limit of tokens cut it off).
    """
    # Rows, queries and asked items are in the same order.
    rows = []
    queries = []
    asked_items = []
    for expert in pool.experts:
        for sample in range(num_samples):
            for number, item in enumerate(items):
                question_columns = _describe_item(item, number, split)
                rows.append(question_columns | {"method": expert, "sample": sample})
                seed = derive_reply_seed(item.prompt, sample)
                queries.append(ExpertQuery(expert, item.prompt, seed, item.history))
                asked_items.append(item)

    replies = pool.ask(queries)
    scores = score_replies(asked_items, [reply.text for reply in replies])

    for row, reply, score in zip(rows, replies, scores, strict=True):
        row["correct"] = math.nan if reply.lost else score
        row["cost_usd"] = reply.cost_usd
        row["calls"] = 1
        row["reply"] = reply.text
        row["failures"] = int(reply.failure is not None)
        row["failed"] = reply.lost
        row["truncated"] = reply.truncated
    return pd.DataFrame(rows)


def measure_controller_alone(
    model: ChatModel,
    items: Sequence[Item],
    split: str,
    num_samples: int = 1,
    score_replies: ScoreReplies = score_family_replies,
) -> pd.DataFrame:
    """Let the model that a controller is trained from answer every question by itself, by greedy decoding.

    It reads the question alone, without instructions about budgets and experts, and calls no expert.

    Args:
        model: The controller's base model.
        items: The questions.
        split: Name of the set of questions, such as train or test; it becomes a column.
        num_samples: How often each row is repeated; greedy replies are equal.
        score_replies: From questions and replies to scores; by default the strict rule of the procedural families.

    Returns:
        A row per question and sample: split, item (number of the question), group (its family), difficulty, prompt,
        method (CONTROLLER_ALONE), correct (score in [0, 1]), cost_usd (0, since budgets limit what experts cost), calls
        (0), reply, tokens (read and written), sample.
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
    """Collect the columns that say which question a row is about.

    Args:
        item: The question.
        number: Its index in its set of questions.
        split: Name of that set, such as train or test.

    Returns:
        split, item (the number), group (family of the question), difficulty and prompt.
    """
    return {
        "split": split,
        "item": number,
        "group": item.group,
        "difficulty": item.difficulty,
        "prompt": item.prompt,
    }


def add_reply_counts(outcomes: pd.DataFrame, params: Params) -> pd.DataFrame:
    """Add which model replied and whether its reply failed, the columns by which failed replies are counted.

    An expert's results say nothing about its model where too many replies failed (`lib.llm.reply_shares`).

    Args:
        outcomes: A row per reply of an expert (`measure_experts`) or of the controller's base model, with the column
            method. Without the columns failures, failed and truncated (earlier runs) no reply failed.
        params: All settings; they say which model stands behind each expert.

    Returns:
        The outcomes with the columns model, backend (such as lab), and as numbers 0 or 1 failed (the reply was lost),
        truncated (the token limit cut it off) and unusable (it came whole and is of no use).
    """
    # Rows of the controller's base model have no such counts: 0.
    counts = {}
    for name in ("failures", "failed", "truncated"):
        values = outcomes[name] if name in outcomes else pd.Series(0, index=outcomes.index)
        counts[name] = values.astype(float).fillna(0.0).astype(int)

    model_by_expert = params.routing.experts
    backend_by_expert = {
        expert: params.llm.models[model].backend for expert, model in model_by_expert.items()
    }
    # The only method that is no expert is the controller's base model, which is one of the project's (lab).
    methods = outcomes["method"]
    return outcomes.assign(
        model=[model_by_expert.get(method, method) for method in methods],
        backend=methods.map(backend_by_expert).fillna("lab"),
        failed=counts["failed"],
        truncated=counts["truncated"],
        unusable=counts["failures"] - counts["failed"] - counts["truncated"],
    )


# Prices and budgets -------------------------------------------------------------------------------


def measure_call_prices(
    outcomes: pd.DataFrame, experts: Sequence[str], settings: RoutingSettings
) -> dict[str, float]:
    """Measure the price of a call to each expert: what it costs at most, but for the most expensive questions.

    It is a quantile of the costs of the questions that the expert answers correctly, or of all questions that it
    answers if none is correct.

    Args:
        outcomes: What every expert scored and cost on training questions, a row per reply, with the columns method (the
            expert), correct (nan where the reply was lost) and cost_usd.
        experts: Names of the experts.
        settings: CoRL's settings; `quantile` is read, such as .95.

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


def derive_budgets(
    prices: Mapping[str, float],
    settings: RoutingSettings,
    calls_by_budget: Mapping[str, int] | None = None,
) -> dict[str, float]:
    """Derive the budgets low, medium and high, limits on what the calls of one question may cost, from prices.

    Low affords one call to the cheapest expert, medium one to the expert in the middle, high is in practice no limit.

    Args:
        prices: US dollars a call, by expert (`measure_call_prices`).
        settings: CoRL's settings; `high_budget_usd` is read.
        calls_by_budget: Calls to the cheapest expert that low and medium afford, in place of these.

    Returns:
        B of CoRL's reward in US dollars a question, by budget word.
    """
    low, medium, high = call_protocol.BUDGET_WORDS
    if calls_by_budget is not None:
        cheapest_price = min(prices.values())
        return {
            low: calls_by_budget[low] * cheapest_price,
            medium: calls_by_budget[medium] * cheapest_price,
            high: settings.high_budget_usd,
        }
    affordable_experts = find_affordable_experts(prices)
    return {
        low: prices[affordable_experts[low]],
        medium: prices[affordable_experts[medium]],
        high: settings.high_budget_usd,
    }


def find_affordable_experts(prices: Mapping[str, float]) -> dict[str, str]:
    """Find the experts to which the budgets low and medium afford one call: the cheapest, and the one in the middle.

    A budget limits what the calls of one question may cost; these two are the prices of a call to these experts.

    Args:
        prices: US dollars a call, by expert.

    Returns:
        An expert for low and one for medium. High affords any expert and is left out.
    """
    low, medium, _ = call_protocol.BUDGET_WORDS
    cheapest_first = sorted(prices, key=lambda expert: prices[expert])
    return {low: cheapest_first[0], medium: cheapest_first[len(prices) // 2]}


def tabulate_budgets(
    budgets: Mapping[str, float], prices: Mapping[str, float], settings: RoutingSettings
) -> pd.DataFrame:
    """Tabulate what each budget, a limit on the cost of one question's calls to experts, allows.

    Args:
        budgets: US dollars a question, by budget word (low, medium, high).
        prices: US dollars a call, by expert (`measure_call_prices`).
        settings: CoRL's settings; from `high_budget_usd` on a budget is no limit.

    Returns:
        A row per budget: "budget", "$ per million questions" (a text) and "affords one call to" (an expert).
    """
    affordable_experts = find_affordable_experts(prices)
    rows = []
    for word, budget in budgets.items():
        has_limit = budget < settings.high_budget_usd
        rows.append(
            {
                "budget": word,
                "$ per million questions": f"{1e6 * budget:.1f}" if has_limit else NO_LIMIT,
                "affords one call to": affordable_experts.get(word, "any expert"),
            }
        )
    return pd.DataFrame(rows)


# What choosing could win --------------------------------------------------------------------------


def measure_dev_and_test_outcomes(
    params: Params,
    num_items: int,
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    cassettes: str | Path = CASSETTES,
) -> pd.DataFrame:
    """Let every expert, and the controller's base model, answer dev and test questions, from which no method learns.

    A controller is a model that answers a question or calls an expert for money. From these outcomes
    `estimate_headroom` estimates what choosing among them for each question could win at all.

    Args:
        params: All settings.
        num_items: Questions of each of the splits dev and test; each is answered in NUM_SAMPLES independent samples.
        models: Folder of the language models; None for the models of lesson 03, which are trained where missing.
        runs: Folder of the file that counts spending.
        cassettes: Folder of recorded replies.

    Returns:
        A row per question, sample and method (an expert or CONTROLLER_ALONE): split, item (number of the question),
        sample, method, correct, cost_usd and the other columns of `measure_experts`. Experts whose models gave too few
        answers are marked (`lib.llm.reply_shares.mark_rows`).
    """
    settings = params.routing
    models = ensure_models(params.lab, models)
    model_names = list(settings.experts.values())

    # Endpoints cost money: say how much at most.
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
    reply_counts = count_replies(add_reply_counts(outcomes, params))
    return mark_rows(outcomes, reply_counts)


def estimate_headroom(outcomes: pd.DataFrame, budgets: Mapping[str, float]) -> pd.DataFrame:
    """Estimate how much reward the best choice for each question could win over the best strategy for all questions.

    A strategy is an expert, or the controller's base model, which answers by itself. This headroom is what a router or
    a trained controller can gain at most by choosing. Where it is small, one strategy is about as good as any choice,
    and a comparison of routers says little (`lib.stats.headroom`). The reward of an answer is its score if its cost is
    within the budget, else 0.

    Args:
        outcomes: What every strategy scored and cost, a row per question, strategy and sample, with the columns split
            (dev and test), item, sample (two independent ones), method (the strategy), correct and cost_usd.
        budgets: US dollars a question, by budget word.

    Returns:
        A row per budget, indexed by "question": first NO_LIMIT, where the reward is the score whatever the cost, then
        the budgets. The columns are those of `lib.stats.paired_difference` (value, ci_low, ci_high, ...), and constant:
        the strategy of the highest mean reward on dev, which choosing has to beat on test.
    """
    budgets_and_no_limit = {NO_LIMIT: np.inf, **budgets}
    estimates = {}
    for word, budget in budgets_and_no_limit.items():
        rewards = compute_budget_reward(outcomes["correct"], outcomes["cost_usd"], budget)
        rows = outcomes.assign(reward=rewards)
        dev = rows[rows["split"] == "dev"]
        test = rows[rows["split"] == "test"]

        estimate = stats.headroom(dev, test, "reward")  # one row
        mean_rewards = dev.groupby("method")["reward"].mean()
        estimates[word] = estimate.assign(constant=mean_rewards.idxmax())
    # The budget becomes the index, in place of the row numbers of the estimates.
    return pd.concat(estimates, names=["question"]).droplevel(1)
