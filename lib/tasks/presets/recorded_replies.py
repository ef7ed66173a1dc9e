"""Files that hold replies of models to questions: RouteLLM's tables and the sample logs of lm-evaluation-harness.

Replies and what they were scored are in an item's metadata, under "recorded_replies" and "recorded_scores".
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lib.tasks.column_map import (
    LETTERS,
    append_choices,
    find_letter,
    hash_prompt,
    read_answers,
    read_prompt,
)
from lib.tasks.item import Item, TaskError
from lib.tasks.presets.mathematics import split_gsm8k_answer
from lib.tasks.presets.preset import Preset, Record, RowSkipped, make_item
from lib.tasks.readers import Table, read_table


def _make_routellm_item(record: Record) -> Item:
    """Make an item (a question, without a reference answer) of a row of RouteLLM's files.

    Args:
        record: The row: a prompt, and for each of two models "True" or "False" (whether it was right) and its reply.

    Returns:
        The item; its metadata holds scores (0 or 1) and replies by model.

    Raises:
        TaskError: Where a column is no reply and neither "True" nor "False".
    """
    prompt = record.get_text("prompt")
    scores = {}
    replies = {}
    for column, value in record.values.items():
        if column.endswith("_response"):
            replies[column.removesuffix("_response")] = value
        elif column != "prompt":
            if value not in ("True", "False"):
                raise TaskError(
                    f"{record.location}: {column!r} is {value!r}, expected True or False; give a file of RouteLLM"
                )
            scores[column] = float(value == "True")
    return make_item(
        prompt,
        "",
        record.path.name.split(".")[0].removesuffix("_responses"),
        metadata={"recorded_scores": scores, "recorded_replies": replies},
    )


def is_sample_log(columns: Sequence[str]) -> bool:
    """Whether a table is a sample log of lm-evaluation-harness, by its columns."""
    return {"doc", "target", "arguments", "resps"} <= set(columns)


_USUAL_METRICS = ("exact_match", "acc", "f1", "pass@1")  # of logs that do not list them


def read_sample_log(path: Path) -> Table:
    """Reads a log of replies that lm-evaluation-harness wrote (--log_samples), and merges its rows by document.

    A document is a question. The log has a row for each of its answer filters: ways to extract the answer from replies.

    Args:
        path: The log's path.

    Returns:
        One row per document, with two more columns: "recorded_answers", extracted answers by filter, and
        "recorded_scores", numbers by metric and filter, such as "exact_match,strict-match".

    Raises:
        TaskError: The file is broken, or no sample log.
    """
    table = read_table(path)
    if not is_sample_log(table.columns):
        raise TaskError(
            f"{path} (lm_eval): the columns are {', '.join(table.columns)}; give a log that lm_eval wrote with "
            "--log_samples"
        )
    rows: dict[str, dict[str, Any]] = {}
    labels = []
    for number, (row, label) in enumerate(zip(table.rows, table.labels, strict=True)):
        # A document comes once per filter, with the same replies; its first row is kept.
        document = str(row.get("doc_id", number))
        if document not in rows:
            rows[document] = row | {"recorded_answers": {}, "recorded_scores": {}}
            labels.append(label)
        filter_name = str(row.get("filter") or "none")
        rows[document]["recorded_answers"][filter_name] = row.get("filtered_resps")
        for metric in row.get("metrics") or _USUAL_METRICS:
            if _is_number(row.get(metric)):
                score_name = f"{metric},{filter_name}"
                rows[document]["recorded_scores"][score_name] = float(row[metric])
    return Table(path, table.columns, tuple(rows.values()), tuple(labels), table.notes)


def _make_sample_log_item(record: Record) -> Item:
    """Make an item (a question with its reference answer) of a document in a log of lm-evaluation-harness.

    Args:
        record: A row of `read_sample_log`.

    Returns:
        The item; replies, extracted answers and scores of the logged model are in its metadata.

    Raises:
        RowSkipped: For a document with several prompts, or without a target.
        TaskError: For a row in another layout.
    """
    requests = _read_requests(record)
    contexts = [context for context, _ in requests]
    continuations = [continuation for _, continuation in requests]
    doc = record.get_value("doc")
    task = record.path.name.split(".")[0].removeprefix("samples_")
    group = str(doc.get("subject") or doc.get("category") or _drop_date(task))

    history, prompt = read_prompt(contexts[0], record.location, "arguments")
    worked_solution = ""
    choices: tuple[str, ...] = ()
    if all(isinstance(text, str) for text in continuations) and len(requests) > 1:
        # A multiple-choice task: one request per option, scored by its log-likelihood.
        choices = _read_options(doc, continuations)
        answers = [_find_target_letter(record, choices)]
        prompt = append_choices(prompt, choices)
        log_likelihoods = [float(pair[0]) for pair in record.get_value("filtered_resps")]
        best = max(range(len(log_likelihoods)), key=log_likelihoods.__getitem__)
        replies = [LETTERS[best]]
    elif len(requests) > 1 or record.get_value("target") is None:
        raise RowSkipped("they have no single prompt with a target")
    else:
        answers = read_answers(record.get_value("target"), record.location, "target")
        # The target of a GSM8K log is the whole answer of the file.
        worked_solution, final_answer = split_gsm8k_answer(answers[0])
        if final_answer:
            answers = [final_answer]
        else:
            worked_solution = ""
        replies = _flatten(record.get_value("resps"))

    return Item(
        prompt=prompt,
        reference=answers[0],
        worked_solution=worked_solution,
        group=group,
        difficulty=1,
        id=str(record.values.get("doc_hash") or hash_prompt(history, prompt)),
        choices=choices,
        alternatives=tuple(answers[1:]),
        history=history,
        metadata={
            "recorded_replies": replies,
            "recorded_answers": record.get_value("recorded_answers"),
            "recorded_scores": record.get_value("recorded_scores"),
            "doc": dict(doc),
        },
    )


def _read_requests(record: Record) -> list[tuple[Any, Any]]:
    """Read the requests that lm-evaluation-harness sent to the model for one document.

    Args:
        record: A row of a log. Newer versions write requests as an object of objects, older ones as a list of lists.

    Returns:
        (context, continuation) of each: the prompt, and the option whose likelihood was computed; in tasks that
        generate text, the continuation is a dictionary of settings.

    Raises:
        TaskError: Where there are no requests or no document.
    """
    arguments = record.get_value("arguments")
    if isinstance(arguments, Mapping):
        pairs = [(request.get("arg_0"), request.get("arg_1")) for request in arguments.values()]
    elif isinstance(arguments, list):
        pairs = [(request[0], request[1] if len(request) > 1 else None) for request in arguments]
    else:
        pairs = []
    if not pairs or not isinstance(record.get_value("doc"), Mapping):
        raise TaskError(
            f"{record.location}: 'doc' or 'arguments' is empty; give a log that lm_eval wrote with --log_samples"
        )
    return [(_unpack_chat(context), continuation) for context, continuation in pairs]


def _unpack_chat(context: Any) -> Any:
    """Take the prompt to a chat model, a JSON text of messages, out of the list that some versions put around it."""
    if isinstance(context, list) and len(context) == 1 and isinstance(context[0], str):
        return context[0]
    return context


def _read_options(doc: Mapping[str, Any], continuations: Sequence[str]) -> tuple[str, ...]:
    """Read the options of a multiple-choice question in a log of lm-evaluation-harness.

    Args:
        doc: The question as the data set has it.
        continuations: What the model could continue the prompt with: texts of options, or their letters.

    Returns:
        The options' texts; for letters they are those of the document, if it has as many.
    """
    stripped = [text.strip() for text in continuations]
    listed = doc.get("choices") or doc.get("options")
    if isinstance(listed, Mapping):
        listed = listed.get("text")
    are_letters = stripped == list(LETTERS[: len(stripped)])
    if are_letters and isinstance(listed, list) and len(listed) == len(stripped):
        return tuple(str(text).strip() for text in listed)
    return tuple(stripped)


def _find_target_letter(record: Record, choices: Sequence[str]) -> str:
    """Find the letter of the right option in a log, where the target is its index from 0, its text or its letter.

    Args:
        record: The row of the log, with its target.
        choices: The options in the order of their letters.

    Returns:
        The letter.

    Raises:
        TaskError: Where the target is no option.
    """
    target = record.get_text("target")
    if target.isdecimal() and target not in choices:
        index = int(target)
        if index >= len(choices):
            raise TaskError(
                f"{record.location}: the target {target} is none of {len(choices)} options; mend the row"
            )
        return LETTERS[index]
    return find_letter(target, choices, record.location)


def _flatten(replies: Any) -> list[str]:
    """List the texts of replies, which a log may nest in lists of lists."""
    if isinstance(replies, list):
        return [text for reply in replies for text in _flatten(reply)]
    return [str(replies)]


def _is_number(value: Any) -> bool:
    """Whether a value is a number or the text of one; True and False are none."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)


def _drop_date(task: str) -> str:
    """Cut the time of the run from the name of a log: "gsm8k" for "gsm8k_2025-01-31T10-00-00"."""
    name, _, date = task.rpartition("_")
    return name if name and date[:4].isdecimal() and "-" in date else task


PRESETS = (
    Preset(
        name="routellm",
        description="RouteLLM (Ong et al., 2024): GSM8K and MMLU with the correctness of two models",
        scorer="",
        layout_checked=True,
        make_item=_make_routellm_item,
        file_names=("mmlu_*.csv", "gsm8k_responses.csv"),
        reads_many_files=True,
        notes=(
            "RouteLLM's files hold no reference answers; metadata['recorded_scores'] says which model was right.",
        ),
        has_references=False,
    ),
    Preset(
        name="lm_eval",
        description="A sample log of lm-evaluation-harness; layout not checked against the original",
        scorer="exact",
        layout_checked=False,
        make_item=_make_sample_log_item,
        file_names=("samples_*.jsonl",),
        read_file=read_sample_log,
        notes=(
            "Replies of the log are in metadata['recorded_replies'], their scores in metadata['recorded_scores'].",
        ),
    ),
)
