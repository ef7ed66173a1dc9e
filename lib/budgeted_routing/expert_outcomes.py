"""What every expert makes of questions on its own: its price, the budgets that follow, what routers learn from, and
whether there is anything to choose.

A strategy is a constant way to answer: give the question to one expert, or answer it oneself.
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
from lib.rl.expert_pool import (
    NUM_SAMPLES,
    ExpertPool,
    ExpertQuery,
    derive_reply_seed,
)
from lib.tasks import Item

VERSION = 1  # of the trials of experts and the budgets that follow
RUNS = ROOT / "data/runs/routing"
CASSETTES = ROOT / "data/cassettes/05_budgeted_routing"
QUESTION_TOKENS = 64  # of a question of the lab, more than any has
NAME = "routing"  # of the recording and of the spending limit
FREE = "money is no object"
ITSELF = "controller alone"  # as it comes from the lab, before any protocol

ScoreReplies = Callable[[Sequence[Item], Sequence[str]], Sequence[float]]


def score_family_replies(items: Sequence[Item], replies: Sequence[str]) -> list[float]:
    """Score replies to items of procedural families, each by the strict rule of its family."""
    return [tasks.score_reply(item, reply) for item, reply in zip(items, replies, strict=True)]


def try_experts(
    pool: ExpertPool,
    items: Sequence[Item],
    split: str,
    num_samples: int = 1,
    score_replies: ScoreReplies = score_family_replies,
) -> pd.DataFrame:
    """Ask every expert every question.

    Args:
        pool: The experts.
        items: Of one procedural family or several, or a user's.
        split: What the column of that name says.
        num_samples: Independent replies to each question.
        score_replies: From items and replies to scores; by default the strict rule of the procedural families.

    Returns:
        Columns split, item (number), group (family), difficulty, prompt, method (the expert), sample, correct (0 or 1;
        nan where the reply was lost), cost_usd, calls, reply, failures (0 or 1), failed (whether the infrastructure
        lost the reply) and truncated (whether the expert's limit cut it off).
    """
    asked = [
        (expert, number, sample)
        for expert in pool.experts
        for sample in range(num_samples)
        for number in range(len(items))
    ]
    queries = []
    for expert, number, sample in asked:
        item = items[number]
        seed = derive_reply_seed(item.prompt, sample)
        queries.append(ExpertQuery(expert, item.prompt, seed, item.history))
    replies = pool.ask(queries)
    texts = [reply.text for reply in replies]
    scores = score_replies([items[number] for _, number, _ in asked], texts)
    rows = []
    for (expert, number, sample), reply, correct in zip(asked, replies, scores, strict=True):
        item = items[number]
        outcome = {
            "method": expert,
            "sample": sample,
            "correct": math.nan if reply.lost else correct,
            "cost_usd": reply.cost_usd,
            "calls": 1,
            "reply": reply.text,
            "failures": int(reply.failure is not None),
            "failed": reply.lost,
            "truncated": reply.truncated,
        }
        rows.append(_about(item, number, split) | outcome)
    return pd.DataFrame(rows)


def _about(item: Item, number: int, split: str) -> dict[str, object]:
    return {
        "split": split,
        "item": number,
        "group": item.group,
        "difficulty": item.difficulty,
        "prompt": item.prompt,
    }


def prices(
    table: pd.DataFrame, experts: Sequence[str], settings: RoutingSettings
) -> dict[str, float]:
    """What one call costs at most where it helps.

    Args:
        table: Of `try_experts`, on the questions that are learned from.
        experts: The controller's words for them.
        settings: Its quantile is taken.

    Returns:
        By expert, US dollars: the quantile of its price over the questions that it answers right, or over all that it
        answers where there are none.
    """
    price = {}
    for expert in experts:
        rows = table[(table["method"] == expert) & table["correct"].notna()]
        useful = rows[rows["correct"] == 1]
        costs = (useful if len(useful) else rows)["cost_usd"]
        price[expert] = float(np.quantile(costs, settings.quantile))
    return price


def budgets(price: Mapping[str, float], settings: RoutingSettings) -> dict[str, float]:
    """B in dollars for each word: low affords one call to the cheapest expert, medium one to the middle one,
    high anything."""
    low, medium, high = call_protocol.BUDGET_WORDS
    expert_by_word = find_affordable_experts(price)
    return {
        low: price[expert_by_word[low]],
        medium: price[expert_by_word[medium]],
        high: settings.high_budget_usd,
    }


def find_affordable_experts(price: Mapping[str, float]) -> dict[str, str]:
    """The experts whose prices are the budgets low and medium: the cheapest one, and the middle one."""
    experts = sorted(price, key=price.__getitem__)
    low, medium, _ = call_protocol.BUDGET_WORDS
    return {low: experts[0], medium: experts[len(experts) // 2]}


def tabulate_budgets(
    words: Mapping[str, float], price: Mapping[str, float], settings: RoutingSettings
) -> pd.DataFrame:
    """What each word means: dollars per million questions, and the expert whose price that is.

    Args:
        words: Dollars of a question by word.
        price: Of `prices`.
        settings: Says which budget is no limit.
    """
    expert_by_word = find_affordable_experts(price)
    rows = []
    for word, budget in words.items():
        has_limit = budget < settings.high_budget_usd
        rows.append(
            {
                "budget": word,
                "$ per million questions": f"{1e6 * budget:.1f}" if has_limit else "no limit",
                "affords one call to": expert_by_word.get(word, "anybody"),
            }
        )
    return pd.DataFrame(rows)


# What there is to choose ---------------------------------------------------------------------------


def choices(
    params: Params,
    n: int,
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    cassettes: str | Path = CASSETTES,
) -> pd.DataFrame:
    """What there is to choose among: every expert, and the controller's base as it is. Nothing learns from these.

    Args:
        params: All settings.
        n: Questions of each of the splits dev and test, in independent samples.
        models: Folder of the lab models; None for those of lesson 03, which are made where they are missing.
        runs: Folder of the spending limit.
        cassettes: Folder of recorded replies.

    Returns:
        The columns of `try_experts`; `stats.headroom` says what choosing per question could win. Experts whose models
        gave too few answers are marked (`lib.llm.reply_shares.mark_rows`).
    """
    settings = params.routing
    models = ensure_models(params.lab, models)
    names = list(settings.experts.values())
    if asks_endpoint(params.llm, names):
        num_calls = 2 * NUM_SAMPLES * n
        planned_calls = []
        for name in dict.fromkeys(names):
            tokens_out = params.llm.models[name].max_tokens * num_calls
            planned_calls.append(
                PlannedCalls(name, num_calls, QUESTION_TOKENS * num_calls, tokens_out)
            )
        costs = announce_costs(params.llm, planned_calls)
        sweep.print_to_terminal(f"trying every expert: {costs}")
    opened = open_models(params.llm, names, NAME, runs, cassettes, 1, open_local(models))
    base = open_lab_model(settings.base, models)
    tables = []
    with ExpertPool(opened, settings.experts, settings.expert_temperature) as pool:
        for split in ("dev", "test"):
            items = tasks.draw_evenly(settings.questions, split, n, seed=17)
            tables.append(try_experts(pool, items, split, NUM_SAMPLES))
            tables.append(try_alone(base, items, split, NUM_SAMPLES))
    outcomes = pd.concat(tables, ignore_index=True)
    return mark_rows(outcomes, count_replies(count_trial_calls(outcomes, params)))


def count_trial_calls(outcomes: pd.DataFrame, params: Params) -> pd.DataFrame:
    """What `lib.llm.reply_shares.count_replies` has to know of a trial of experts.

    Args:
        outcomes: Of `try_experts`; a trial that did not count lost replies lost none.
        params: Says which model stands behind an expert.

    Returns:
        The outcomes with the columns model, backend, failed, truncated and unusable.
    """
    lost = {}
    for name in ("failures", "failed", "truncated"):
        counts = outcomes[name] if name in outcomes else pd.Series(0, index=outcomes.index)
        lost[name] = counts.astype(float).fillna(0.0).astype(int)
    model_names = params.routing.experts
    backends = {word: params.llm.models[name].backend for word, name in model_names.items()}
    return outcomes.assign(
        model=[model_names.get(word, word) for word in outcomes["method"]],
        backend=outcomes["method"].map(backends).fillna("lab"),  # who asks itself in pieces
        failed=lost["failed"],
        truncated=lost["truncated"],
        unusable=lost["failures"] - lost["failed"] - lost["truncated"],
    )


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


def try_alone(
    model: ChatModel,
    items: Sequence[Item],
    split: str,
    num_samples: int = 1,
    score_replies: ScoreReplies = score_family_replies,
) -> pd.DataFrame:
    """Let a model answer by itself: no protocol, greedy decoding, so that all samples are the same.

    Args:
        model: The controller's base.
        items: What it is asked.
        split: What the column of that name says.
        num_samples: How often each row is repeated.
        score_replies: From items and replies to scores; by default the strict rule of the procedural families.

    Returns:
        The columns of `try_experts` up to reply, and tokens (read and written). It costs nothing that a budget counts.
    """
    requests = [
        ChatRequest(
            item.messages,
            temperature=0.0,
            max_tokens=LIMIT,
            caller=ITSELF,
        )
        for item in items
    ]
    replies = model.generate(requests)
    scores = score_replies(items, [reply.text for reply in replies])
    rows = []
    for number, (item, reply, correct) in enumerate(zip(items, replies, scores, strict=True)):
        outcome = {
            "method": ITSELF,
            "correct": correct,
            "cost_usd": 0.0,
            "calls": 0,
            "reply": reply.text,
            "tokens": reply.tokens_in + reply.tokens_out,
        }
        for sample in range(num_samples):
            rows.append(_about(item, number, split) | outcome | {"sample": sample})
    return pd.DataFrame(rows)
