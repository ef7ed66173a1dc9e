"""Outcomes in the form in which others publish them, as rows in long form.

    rows = convert_published(read_files([Path("gsm8k_responses.csv")]))

RouterBench (its wide CSV), RouteLLM (responses of two models), LLMRouter (routing data), RouterArena (cached results)
and logs of samples of lm-evaluation-harness are recognized by their columns. What comes out has item, group, model,
correct and prompt, and either cost_usd or tokens_in and tokens_out, to be priced by `token_prices`. Rows that stand for
a failed or unscored call keep their place with a failure, so that they are counted and left out by `user_tables`. Left
out: embeddings in pickled or PyTorch files, which can run code when they are loaded; the words of prompts stand in.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from lib.recorded_outcomes.outcome_files import FileRows, join_files
from lib.recorded_outcomes.tables import TableError
from lib.recorded_outcomes.token_prices import count_tokens

_COST_SUFFIX = "|total_cost"
_RESPONSE_SUFFIX = "_response"
_TRUTH_VALUES = ("true", "false")
# Metrics of lm-evaluation-harness, the preferred one first.
LM_EVAL_METRICS = ("exact_match", "acc", "acc_norm", "pass@1", "pass_at_1", "f1", "em")
# Reads the answer anywhere in a reply, where others want an exact form.
_LENIENT_FILTER = "flexible-extract"
# Where the documents of lm-evaluation-harness keep the question.
_QUESTION_FIELDS = ("question", "query", "problem", "prompt", "input", "text", "ctx", "goal")
_SAMPLES_NAME = re.compile(
    r"samples_(?P<task>.+?)(?:_(?P<date>\d{4}-\d{2}-\d{2}T[\d\-.]+))?\.jsonl"
)


@dataclass(frozen=True)
class PublishedFormat:
    """A form in which outcomes are published.

    Attributes:
        name: Name of the project that publishes in it.
        description: Which files are read, for help texts.
        recognize: Tells from the column names whether a table has this format.
        convert: Converts the rows of all files to long form, a row for each item and model.
    """

    name: str
    description: str
    recognize: Callable[[Sequence[str]], bool]
    convert: Callable[[Sequence[FileRows]], FileRows]


def recognize_format(columns: Sequence[Any]) -> PublishedFormat | None:
    """Finds the published format that has these columns; None for any other table."""
    names = [str(column).strip() for column in columns]
    for published_format in PUBLISHED_FORMATS:
        if published_format.recognize(names):
            return published_format
    return None


def convert_published(files: Sequence[FileRows]) -> FileRows:
    """Converts files in a published format to long form; the rows of other tables are joined and not changed.

    Args:
        files: At least one, all of one format.

    Returns:
        All rows, with a note that names the format.

    Raises:
        TableError: Files are of different formats, or a file lacks what its format has.
    """
    formats = [recognize_format(rows.frame.columns) for rows in files]
    for rows, published_format in zip(files[1:], formats[1:], strict=True):
        if published_format is not formats[0]:
            raise TableError(
                f"{files[0].path.name} and {rows.path.name} are of different formats; evaluate files of one kind "
                "together"
            )
    if formats[0] is None:
        return join_files(files)
    converted = formats[0].convert(files)
    note = f"Read in the format of {formats[0].name}."
    return FileRows(converted.path, converted.frame, converted.labels, (note, *converted.notes))


# RouterBench ---------------------------------------------------------------------------------------


def _is_routerbench(columns: Sequence[str]) -> bool:
    """Whether columns are those of RouterBench's wide table."""
    return any(column.endswith(_COST_SUFFIX) for column in columns) and "sample_id" in columns


def convert_routerbench(files: Sequence[FileRows]) -> FileRows:
    """Converts RouterBench's wide table to long form.

    The wide table has a row for each prompt, and for each model a column MODEL of outcomes and a column
    "MODEL|total_cost" of costs.

    Args:
        files: The rows of each file.

    Returns:
        A row for each prompt and model.
    """
    rows = join_files(files)
    frame = rows.frame.rename(columns=lambda column: str(column).strip())
    cost_columns = [column for column in frame if column.endswith(_COST_SUFFIX)]
    models = [column.removesuffix(_COST_SUFFIX) for column in cost_columns]
    # The column "oracle" is computed from the models and is no model itself.
    models = [model for model in models if model in frame and model != "oracle"]
    if "eval_name" not in frame or not models:
        raise TableError(
            "columns as in RouterBench, but no eval_name, or no model has both its outcomes and its costs; give the "
            "wide table of RouterBench (sample_id, prompt, eval_name, MODEL, MODEL|total_cost)"
        )
    frames = []
    for model in models:
        columns = {
            "item": frame["sample_id"],
            "group": frame["eval_name"],
            "model": model,
            "correct": frame[model],
            "cost_usd": frame[f"{model}{_COST_SUFFIX}"],
        }
        if "prompt" in frame:
            columns["prompt"] = frame["prompt"]
        frames.append(pd.DataFrame(columns))
    long_frame = pd.concat(frames, ignore_index=True)
    labels = [f"{label}, model {model}" for model in models for label in rows.labels]
    return FileRows(rows.path, _mark_unscored(long_frame), labels, rows.notes)


# RouteLLM ------------------------------------------------------------------------------------------


def _is_routellm(columns: Sequence[str]) -> bool:
    """Whether columns are those of RouteLLM: a prompt and two models."""
    models = _list_routellm_models(columns)
    # What tables in long form have beside a prompt.
    long_form_columns = {"item", "model", "correct", "score", "group"}
    return len(models) == 2 and columns[0] == "prompt" and not long_form_columns & set(columns)


def _list_routellm_models(columns: Sequence[str]) -> list[str]:
    """The columns that are named after models."""
    return [name for name in columns if name != "prompt" and not name.endswith(_RESPONSE_SUFFIX)]


def convert_routellm(files: Sequence[FileRows]) -> FileRows:
    """Converts RouteLLM's tables to long form.

    They have a row for each prompt, for each of two models a column MODEL (True where it is right), and perhaps a
    column "MODEL_response" with its reply, from which tokens are estimated.

    Args:
        files: The rows of each file.

    Returns:
        A row for each prompt and model.
    """
    outcomes_by_model = []
    for rows in files:
        models = _list_routellm_models([str(column) for column in rows.frame.columns])
        # mmlu_anatomy.csv holds the subject anatomy.
        subject = rows.path.stem.removeprefix("mmlu_")
        for model in models:
            _check_truth_values(rows, model)
            response = rows.frame.get(f"{model}{_RESPONSE_SUFFIX}")
            outcomes = pd.DataFrame(
                {
                    "prompt": rows.frame["prompt"],
                    "group": subject,
                    "model": model,
                    "correct": rows.frame[model],
                    "tokens_in": rows.frame["prompt"].map(count_tokens),
                    "tokens_out": float("nan") if response is None else response.map(count_tokens),
                }
            )
            labels = [f"{label}, model {model}" for label in rows.labels]
            outcomes_by_model.append(FileRows(rows.path, outcomes, labels, rows.notes))
    joined = join_files(outcomes_by_model)
    frame = joined.frame.assign(item=joined.frame["prompt"].map(_hash_text))
    return _drop_repeats(joined, frame)


def _check_truth_values(rows: FileRows, model: str) -> None:
    """Checks that the outcomes of a model are True or False.

    Args:
        rows: A file of RouteLLM.
        model: Name of the column.

    Raises:
        TableError: One is neither.
    """
    values = rows.frame[model].map(lambda value: str(value).strip().lower())
    is_no_truth_value = ~values.isin(_TRUTH_VALUES)
    if is_no_truth_value.any():
        index = int(is_no_truth_value.to_numpy().argmax())
        raise TableError(
            f"{model!r} of {rows.labels[index]} is {rows.frame[model].iloc[index]!r}; RouteLLM's files have True or "
            "False there, and other tables have the columns item, model, correct and cost_usd"
        )


def _drop_repeats(rows: FileRows, frame: pd.DataFrame) -> FileRows:
    """Drops repeated rows of an item and model, because prompts occur more than once within and between files.

    Args:
        rows: Positions of the rows, and notes.
        frame: The rows.

    Returns:
        The first row of each item and model, with a note on how many were dropped.
    """
    is_repeat = frame.duplicated(["item", "model"]).to_numpy()
    notes = list(rows.notes)
    if is_repeat.any():
        num_prompts = frame.loc[is_repeat, "item"].nunique()
        notes.append(
            f"{num_prompts} prompts stand there more than once; the first of each was read."
        )
    labels = [label for label, repeat in zip(rows.labels, is_repeat, strict=True) if not repeat]
    return FileRows(rows.path, frame[~is_repeat].reset_index(drop=True), labels, tuple(notes))


# LLMRouter -----------------------------------------------------------------------------------------


def _is_llmrouter(columns: Sequence[str]) -> bool:
    return {"query", "model_name", "performance", "task_name"} <= set(columns)


def convert_llmrouter(files: Sequence[FileRows]) -> FileRows:
    """Converts LLMRouter's routing data to the columns of this module.

    Args:
        files: The rows of each file, one for each query and model.

    Returns:
        A row for each query and model.
    """
    rows = join_files(files)
    frame = rows.frame
    # What identifies a query there: task, query, answer and metric.
    identity = [
        column for column in ("task_name", "query", "ground_truth", "metric") if column in frame
    ]
    texts = frame[identity].astype(str).agg("\n".join, axis=1)
    columns = {
        "item": frame["task_name"].astype(str) + "-" + texts.map(_hash_text),
        "group": frame["task_name"],
        "model": frame["model_name"],
        "correct": frame["performance"],
        "prompt": frame["query"],
        "tokens_in": frame["query"].map(count_tokens),
        "tokens_out": float("nan"),
    }
    for column, source in (("tokens_in", "input_tokens"), ("tokens_out", "output_tokens")):
        if source in frame:
            columns[column] = pd.to_numeric(frame[source], errors="coerce")
    # Prices by query, where somebody has added them.
    if "cost" in frame:
        columns["cost_usd"] = frame["cost"]
    converted = pd.DataFrame(columns)
    return _drop_repeats(rows, _mark_unscored(converted))


# RouterArena ---------------------------------------------------------------------------------------


def _is_routerarena(columns: Sequence[str]) -> bool:
    return {"global_index", "llm_selected", "evaluation_result"} <= set(columns)


def convert_routerarena(files: Sequence[FileRows]) -> FileRows:
    """Converts RouterArena's cached results to the columns of this module.

    They have a row for each question and model, with the score and the recorded cost in evaluation_result.

    Args:
        files: The rows of each file.

    Returns:
        A row for each question and model.
    """
    rows = join_files(files)
    frame = rows.frame
    results = [_as_mapping(result) for result in frame["evaluation_result"]]
    columns = {
        "item": frame["global_index"],
        # "NarrativeQA_4102" is question 4102 of NarrativeQA.
        "group": frame["global_index"].astype(str).str.replace(r"_\d+$", "", regex=True),
        "model": frame["llm_selected"],
        "correct": [result.get("score") for result in results],
        "metric": [result.get("metric") for result in results],
        "cost_usd": [result.get("inference_cost") for result in results],
    }
    if "question" in frame:
        columns["prompt"] = frame["question"]
    return FileRows(rows.path, _mark_unscored(pd.DataFrame(columns)), rows.labels, rows.notes)


# lm-evaluation-harness -----------------------------------------------------------------------------


def _is_lm_eval(columns: Sequence[str]) -> bool:
    return {"doc_id", "arguments", "filtered_resps"} <= set(columns)


def convert_lm_eval(files: Sequence[FileRows]) -> FileRows:
    """Converts sample logs of lm-evaluation-harness to long form.

    Its option --log_samples writes a file for each model and task: MODEL/samples_TASK_DATE.jsonl.

    Args:
        files: The rows of each file.

    Returns:
        A row for each question and model.
    """
    newest_logs, notes = _select_newest_logs(files)
    converted_logs = [_convert_samples(rows, notes) for rows in newest_logs]
    joined = join_files(converted_logs)

    # Chat templates differ between models; a router sees the question as the first model got it.
    prompts = joined.frame.groupby("item")["prompt"].transform("first")
    all_notes = tuple(dict.fromkeys([*joined.notes, *notes]))
    return FileRows(joined.path, joined.frame.assign(prompt=prompts), joined.labels, all_notes)


def _select_newest_logs(files: Sequence[FileRows]) -> tuple[list[FileRows], list[str]]:
    """Selects the newest log of each model and task, by the date in its name.

    Args:
        files: The rows of each log.

    Returns:
        The newest logs, and notes on what was left out.
    """
    newest_logs: dict[tuple[str, str], FileRows] = {}
    # Sorted by name, so that a later date replaces an earlier one.
    for rows in sorted(files, key=lambda rows: rows.path.name):
        model_and_task = (_name_model(rows), _name_task(rows))
        newest_logs[model_and_task] = rows
    num_older = len(files) - len(newest_logs)
    notes = (
        [f"{num_older} older logs of the same model and task were left out."] if num_older else []
    )
    return list(newest_logs.values()), notes


def _name_model(rows: FileRows) -> str:
    """Reads the name of the model from the folder of a log, in which "/" is written as "__"."""
    return rows.path.resolve().parent.name.replace("__", "/")


def _name_task(rows: FileRows) -> str:
    """Reads the name of the task from the file name of a log."""
    match = _SAMPLES_NAME.fullmatch(rows.path.name)
    return match["task"] if match else rows.path.stem


def _convert_samples(rows: FileRows, notes: list[str]) -> FileRows:
    """Converts one sample log of lm-evaluation-harness to long form.

    Args:
        rows: The log, a row for each sample and filter.
        notes: Sentences on which metric and filter were read are appended.

    Returns:
        A row for each sample.
    """
    frame = rows.frame
    labels = list(rows.labels)
    task = _name_task(rows)
    metric = next((name for name in LM_EVAL_METRICS if name in frame), None)
    if metric is None:
        raise TableError(
            f"{rows.path.name} has none of the metrics {', '.join(LM_EVAL_METRICS)}; log a task that has one of them"
        )
    notes.append(f"Of task {task}, {metric} was read.")

    # A reply may be read by several filters, each of which gives a row.
    filters = sorted(set(frame["filter"])) if "filter" in frame else []
    if len(filters) > 1:
        chosen = _LENIENT_FILTER if _LENIENT_FILTER in filters else filters[0]
        notes.append(f"Of the filters {' and '.join(filters)} of task {task}, {chosen} was read.")
        is_chosen = (frame["filter"] == chosen).to_numpy()
        labels = [label for label, keep in zip(labels, is_chosen, strict=True) if keep]
        frame = frame[is_chosen].reset_index(drop=True)

    requests = frame["arguments"].map(_read_first_request)
    questions = [
        _find_question(document) or request
        for document, request in zip(frame.get("doc", requests), requests, strict=True)
    ]
    converted = pd.DataFrame(
        {
            "item": [f"{task}-{doc_id}" for doc_id in frame["doc_id"]],
            "group": task,
            "model": _name_model(rows),
            "correct": frame[metric],
            "prompt": questions,
            "tokens_in": requests.map(count_tokens),
            "tokens_out": frame["resps" if "resps" in frame else "filtered_resps"].map(
                _count_reply_tokens
            ),
        }
    )
    return FileRows(rows.path, converted, labels, rows.notes)


def _read_first_request(arguments: Any) -> str:
    """Reads the prompt of the first request of a sample.

    Args:
        arguments: {"gen_args_0": {"arg_0": PROMPT, ...}}, or [[PROMPT, ...]] in older files.

    Returns:
        The prompt; "" where there is none.
    """
    value = arguments
    while isinstance(value, (Mapping, list, tuple)) and len(value):
        # The first entry of each level.
        value = next(iter(value.values())) if isinstance(value, Mapping) else value[0]
    return value if isinstance(value, str) else ""


def _find_question(document: Any) -> str:
    """Finds the question in a document of a benchmark; "" where it has none of the usual fields."""
    for field in _QUESTION_FIELDS:
        text = _as_mapping(document).get(field)
        if isinstance(text, str) and text.strip():
            return text
    return ""


def _count_reply_tokens(responses: Any) -> float:
    """Estimates the tokens of a generated reply; 1 where the model only rated given answers by their likelihood."""
    first = responses
    while isinstance(first, (list, tuple)) and len(first):
        first = first[0]
    is_rating = not isinstance(first, str) or _is_number(first)
    return 1.0 if is_rating else count_tokens(first)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# Shared --------------------------------------------------------------------------------------------


def _mark_unscored(frame: pd.DataFrame) -> pd.DataFrame:
    """Marks rows without an outcome in a column failure, so that they are counted and left out later.

    Args:
        frame: The rows.

    Returns:
        The rows, with the column where some outcome is missing.
    """
    # An empty field of a CSV is an empty text.
    is_blank = frame["correct"].astype(str).str.strip() == ""
    is_unscored = frame["correct"].isna() | is_blank
    if not is_unscored.any():
        return frame
    return frame.assign(failure=is_unscored.map({True: "no score in the file", False: ""}))


def _as_mapping(value: Any) -> Mapping:
    return value if isinstance(value, Mapping) else {}


def _hash_text(text: str) -> str:
    """Computes a short identifier of a text, the first 12 digits of its SHA-1."""
    return hashlib.sha1(str(text).encode()).hexdigest()[:12]


PUBLISHED_FORMATS = (
    PublishedFormat(
        "RouterBench",
        "the wide CSV, MODEL and MODEL|total_cost (its pickle is refused, with the line that converts it)",
        _is_routerbench,
        convert_routerbench,
    ),
    PublishedFormat(
        "LLMRouter",
        "routing data, *.jsonl with query, model_name and performance; needs --prices",
        _is_llmrouter,
        convert_llmrouter,
    ),
    PublishedFormat(
        "RouterArena",
        "cached results, *.jsonl with evaluation_result, a file for each model",
        _is_routerarena,
        convert_routerarena,
    ),
    PublishedFormat(
        "lm-evaluation-harness",
        "logs of samples, MODEL/samples_*.jsonl of two models or more; needs --prices",
        _is_lm_eval,
        convert_lm_eval,
    ),
    PublishedFormat(
        "RouteLLM",
        "gsm8k_responses.csv, or the folder of mmlu_*.csv; --prices for other models than its two",
        _is_routellm,
        convert_routellm,
    ),
)
