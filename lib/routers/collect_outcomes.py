"""Asks models the questions of a data set, scores their replies, and keeps a row for every call.

Rows are written as batches end, so that a run that was stopped goes on where it was; what servers replied is recorded
beside the table, so that no call is paid twice. A call that the infrastructure failed is a row without an outcome, with
its reason in the column failure, and is asked again by the next run. A failure of the model (a refusal, a reply that
was cut off) is a result and is scored. Left out: the command line (`collect_command`).
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from lib.config import LLMSettings
from lib.experiment import artifacts
from lib.llm.chat_model import ChatModel, ChatRequest, Reply
from lib.llm.cost_estimate import PAID, PlannedCalls, estimate_costs, plan_requests
from lib.recorded_outcomes.tables import TableError
from lib.recorded_outcomes.user_tables import get_prompts_path
from lib.tasks.dataset import Dataset
from lib.tasks.item import Item
from lib.tasks.scorers.scorer import Score, Scorer

VERSION = 1  # of the table's columns
BATCH = 256  # calls between two writings of the table
COLUMNS = (
    "item", "group", "model", "sample", "correct", "score", "cost_usd", "seconds", "tokens_in", "tokens_out",
    "prompt_hash", "failure",
)  # fmt: skip
CALLER = "router collect"
RESAMPLED_TEMPERATURE = (
    1.0  # where several samples are drawn and no temperature is set: greedy ones would be equal
)


@dataclass(frozen=True)
class CollectSettings:
    """Settings of a collection, the same for all rows of a table.

    Attributes:
        scorer: Name of the scorer, as `lib.tasks.scorers.make_scorer` takes it.
        temperature: Sampling temperature; None for that of each model's settings.
        max_tokens: Largest number of tokens of a reply; None for that of each model's settings.
        seed: Seed of the first sample of a question; sample k has the seed plus k.
    """

    scorer: str
    temperature: float | None = None
    max_tokens: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class OutcomeCall:
    """A call of a model with a question; a table of outcomes has a row for each.

    Attributes:
        item: The question.
        item_id: Its id in the table.
        model: The model that is asked, a name of llm.models.
        sample: Index of the sample, from 0.
        prompt_hash: Hash of the messages.
    """

    item: Item
    item_id: str
    model: str
    sample: int
    prompt_hash: str

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What identifies the row of the call."""
        return self.item_id, self.model, self.sample, self.prompt_hash


def hash_messages(messages: Sequence[Mapping[str, Any]]) -> str:
    """Computes the SHA-256 of a conversation."""
    return artifacts.sha256_json([dict(message) for message in messages])


def list_calls(dataset: Dataset, models: Sequence[str], num_samples: int) -> list[OutcomeCall]:
    """Lists all calls of models, item after item, so that an unfinished table has complete items.

    Args:
        dataset: The questions. Where two of them share an id, the second gets another one, such as "7 (2)".
        models: Names in llm.models.
        num_samples: Number of samples for each question and model.

    Returns:
        A call for each question, model and sample; a question that occurs twice is asked once.
    """
    calls = []
    hashes_by_id: dict[str, list[str]] = {}
    for item in dataset:
        prompt_hash = hash_messages(item.messages)
        hashes = hashes_by_id.setdefault(item.id, [])
        if prompt_hash in hashes:
            continue  # the same question once more
        hashes.append(prompt_hash)
        item_id = item.id if len(hashes) == 1 else f"{item.id} ({len(hashes)})"
        for model in models:
            for sample in range(num_samples):
                calls.append(OutcomeCall(item, item_id, model, sample, prompt_hash))
    return calls


def make_request(call: OutcomeCall, settings: CollectSettings) -> ChatRequest:
    """Makes the request of a call."""
    return ChatRequest(
        call.item.messages,
        temperature=settings.temperature,
        max_tokens=settings.max_tokens,
        seed=settings.seed + call.sample,
        sample=call.sample,
        caller=CALLER,
    )


# The table so far ----------------------------------------------------------------------------------


def get_settings_path(table: Path) -> Path:
    """The path of the settings of a table: outcomes.settings.json beside outcomes.parquet."""
    return table.with_name(f"{table.stem}.settings.json")


def read_rows(table: Path, settings: CollectSettings) -> pd.DataFrame:
    """Reads the rows that earlier runs wrote.

    Args:
        table: The Parquet file; it need not exist.
        settings: Settings of this run.

    Returns:
        The rows, none where there is no file.

    Raises:
        TableError: The file is no table of this command, or was made with other settings.
    """
    if not table.exists():
        return pd.DataFrame(columns=list(COLUMNS))
    settings_path = get_settings_path(table)
    if not settings_path.is_file():
        raise TableError(
            f"--out {table} exists and has no {settings_path.name} beside it, so it was not collected here; name "
            "another file"
        )
    # Rows under different settings must not be mixed in one table.
    earlier = artifacts.read_json(settings_path)
    for name, value in asdict(settings).items():
        if earlier.get(name) != value:
            raise TableError(
                f"--out {table} was collected with {name} {earlier.get(name)!r}, and this run has {value!r}; give the "
                "same, or name another file"
            )
    rows = artifacts.read_parquet(table)
    # Columns that a user added are no obstacle; those that are read must be there.
    missing = [column for column in COLUMNS if column not in rows]
    if missing:
        raise TableError(f"--out {table} lacks the column {missing[0]}; name another file")
    return rows


def select_remaining(calls: Sequence[OutcomeCall], rows: pd.DataFrame) -> list[OutcomeCall]:
    """Selects the calls that have no outcome yet.

    Failed calls are repeated, except those that a content filter refused.

    Args:
        calls: All calls of the table.
        rows: The rows of the table so far.

    Returns:
        The calls to make.
    """
    is_refused = rows["failure"].astype(str).str.startswith("moderation")
    finished = rows[rows["correct"].notna() | is_refused]
    finished_keys = set(
        finished[["item", "model", "sample", "prompt_hash"]].itertuples(index=False, name=None)
    )
    return [call for call in calls if call.key not in finished_keys]


def write_rows(
    table: Path, rows: pd.DataFrame, new_rows: Sequence[Mapping[str, Any]]
) -> pd.DataFrame:
    """Writes the table with new rows, which replace earlier rows of the same call.

    Args:
        table: Path of the Parquet file.
        rows: The rows that it has.
        new_rows: Values by column.

    Returns:
        All rows, sorted.
    """
    added = pd.DataFrame(list(new_rows), columns=list(COLUMNS))
    combined = added if rows.empty else pd.concat([rows, added], ignore_index=True)
    combined = combined.drop_duplicates(["item", "model", "sample"], keep="last")
    combined = combined.sort_values(["item", "model", "sample"], kind="stable")
    combined = combined.reset_index(drop=True)
    artifacts.write_parquet(table, combined)
    return combined


def write_prompts(table: Path, calls: Sequence[OutcomeCall]) -> None:
    """Writes the prompts to a file beside the table; prompts of earlier runs are kept.

    Args:
        table: Path of the table.
        calls: Calls with their prompts.
    """
    path = get_prompts_path(table)
    lines = {}
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            lines[json.loads(line)["prompt_hash"]] = line
    for call in calls:
        if call.prompt_hash not in lines:
            described = {
                "prompt_hash": call.prompt_hash,
                "item": call.item_id,
                "messages": call.item.messages,
            }
            lines[call.prompt_hash] = json.dumps(described)
    artifacts.write_text(path, "".join(f"{line}\n" for line in lines.values()))


# Costs ---------------------------------------------------------------------------------------------


def plan_calls(
    models: Mapping[str, ChatModel], calls: Sequence[OutcomeCall], settings: CollectSettings
) -> list[PlannedCalls]:
    """Estimates the calls and tokens of each model at the most.

    Args:
        models: The chat models by name.
        calls: The calls to make.
        settings: Temperature, tokens and seed of a request.

    Returns:
        A plan for each model, whose cost can be announced.
    """
    planned = []
    for name in dict.fromkeys(call.model for call in calls):
        requests = [make_request(call, settings) for call in calls if call.model == name]
        planned.append(plan_requests(models[name], requests))
    return planned


def plan_judgements(
    judge: ChatModel, calls: Sequence[OutcomeCall], settings: CollectSettings
) -> PlannedCalls:
    """Estimates the calls and tokens of a judge at the most, who reads each question with the longest possible reply.

    Args:
        judge: The chat model that judges.
        calls: The calls whose replies are judged.
        settings: Temperature, tokens and seed of a request.

    Returns:
        The plan, whose cost can be announced.
    """
    requests = [make_request(call, settings) for call in calls]
    questions = plan_requests(judge, requests)
    tokens_in = questions.tokens_in + questions.tokens_out
    return PlannedCalls(judge.name, len(calls), tokens_in, questions.tokens_out)


def announce_collection(
    llm: LLMSettings, planned: Sequence[PlannedCalls], num_finished: int, max_usd: float
) -> str:
    """Says what the run may cost, before its first call.

    Args:
        llm: The models and their prices.
        planned: The calls that remain.
        num_finished: Calls that earlier runs finished.
        max_usd: The spending limit.

    Returns:
        Lines for the terminal.
    """
    costs = estimate_costs(llm, planned)
    # The last row of the costs is the sum over endpoints.
    by_model = costs[costs["model"] != PAID]
    lines = [f"{num_finished:,} calls are there, {int(by_model['calls'].sum()):,} remain"]
    for row in by_model.itertuples():
        lines.append(
            f"  {row.model} ({row.backend}): {row.calls:,} calls, at most ${row.cost_usd:.4g}"
        )
    paid_usd = float(costs["cost_usd"].iloc[-1])
    if not costs["calls"].iloc[-1]:
        lines.append("No endpoint is asked; nothing is paid.")
    elif paid_usd <= max_usd:
        lines.append(
            f"At most ${paid_usd:.4g} to endpoints, hidden reasoning not counted; --max-usd {max_usd:g} allows it."
        )
    else:
        lines.append(
            f"At most ${paid_usd:.4g} to endpoints, hidden reasoning not counted; the run stops at --max-usd "
            f"{max_usd:g} and can be resumed."
        )
    return "\n".join(lines)


# Calls ---------------------------------------------------------------------------------------------


async def collect_outcomes(
    models: Mapping[str, ChatModel],
    scorer: Scorer,
    calls: Sequence[OutcomeCall],
    settings: CollectSettings,
    table: Path,
    rows: pd.DataFrame,
    report: Callable[[str], None] = print,
) -> pd.DataFrame:
    """Makes calls in batches, and writes the table after each.

    Args:
        models: Models by name.
        scorer: Scorer of the replies.
        calls: Those that remain.
        settings: Settings of the requests.
        table: The Parquet file.
        rows: Those that it has.
        report: Gets a line after each batch.

    Returns:
        All rows of the table.

    Raises:
        Whatever ends a run (`BudgetExceeded`, `LLMError`, `ScorerError`), after what was finished is written.
    """
    artifacts.write_json(get_settings_path(table), asdict(settings))
    write_prompts(table, calls)
    for start in range(0, len(calls), BATCH):
        batch = calls[start : start + BATCH]
        outcomes = await asyncio.gather(
            *(models[call.model].reply_to(make_request(call, settings)) for call in batch),
            return_exceptions=True,
        )
        answered = [
            (call, reply)
            for call, reply in zip(batch, outcomes, strict=True)
            if isinstance(reply, Reply)
        ]
        rows = write_rows(table, rows, await score_replies(scorer, answered))
        # What ended a call ends the run, but the other calls of its batch were paid for and are kept.
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        report(f"{start + len(batch):,} of {len(calls):,} calls")
    return rows


async def score_replies(
    scorer: Scorer, answered: Sequence[tuple[OutcomeCall, Reply]]
) -> list[dict[str, Any]]:
    """Scores replies and makes their rows of the table.

    Args:
        scorer: Scorer of the replies that the infrastructure did not fail.
        answered: Calls and replies.

    Returns:
        A row for each, by column. Without an outcome are calls that the infrastructure failed, and replies whose
        judgement was lost.
    """
    is_scored = [
        reply.failure is None or not reply.failure.of_infrastructure for _, reply in answered
    ]
    scored_pairs = [pair for pair, scored in zip(answered, is_scored, strict=True) if scored]
    scores = iter(
        await scorer.score_all(
            [call.item for call, _ in scored_pairs], [reply.text for _, reply in scored_pairs]
        )
    )
    rows = []
    for (call, reply), scored in zip(answered, is_scored, strict=True):
        rows.append(make_row(call, reply, next(scores) if scored else None))
    return rows


def make_row(call: OutcomeCall, reply: Reply, score: Score | None) -> dict[str, Any]:
    """Makes the row of the outcome table for one call.

    Args:
        call: Question, model and sample.
        reply: The model's reply.
        score: Score of the reply; None where the infrastructure failed.

    Returns:
        The columns of the row by name.
    """
    failure = ""
    if reply.failure is not None:
        failure = f"{reply.failure.kind}: {reply.failure.detail}"
    value = math.nan if score is None else score.value
    # A judge that failed says nothing of the reply: the row keeps what the call cost, and has no score.
    if score is not None and score.failure is not None:
        failure = f"judgement: {score.failure}"
    return {
        "item": call.item_id,
        "group": call.item.group,
        "model": call.model,
        "sample": call.sample,
        "correct": np.nan if math.isnan(value) else float(value == 1.0),
        "score": value,
        "cost_usd": reply.cost_usd,
        "seconds": reply.seconds,
        "tokens_in": reply.tokens_in,
        "tokens_out": reply.tokens_out,
        "prompt_hash": call.prompt_hash,
        "failure": failure,
    }


def summarize(rows: pd.DataFrame) -> pd.DataFrame:
    """Summarizes an outcome table by model.

    Args:
        rows: A row per call.

    Returns:
        A row per model: calls, failed (calls without an outcome), accuracy, and mean cost_usd and seconds of a call.
    """
    by_model = rows.groupby("model", sort=False)
    return pd.DataFrame(
        {
            "calls": by_model.size(),
            "failed": by_model["correct"].agg(lambda values: int(values.isna().sum())),
            "accuracy": by_model["correct"].mean(),
            "cost_usd": by_model["cost_usd"].mean(),
            "seconds": by_model["seconds"].mean(),
        }
    )
