"""Questions with a short or free answer: HotpotQA, DROP, Natural Questions, PopQA, GAIA, FRAMES, HLE and more.

The layouts of all but `nq` are not checked against the original. Several of these sets are judged by a language model
in their papers; their usual scorer here compares words, and the notes say how to name a judge.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lib.tasks.column_map import read_answers
from lib.tasks.item import Item, TaskError
from lib.tasks.presets.preset import Preset, Record, RowSkipped, make_item
from lib.tasks.readers import Table, get_format, parse_json, read_json, read_table

_JUDGE_NOTE = "The paper judges with a language model, which scorer='judge:MODEL' names; else words are compared."
_HOTPOTQA_LEVELS = {"easy": 1, "medium": 2, "hard": 3}


def _make_hotpotqa_item(record: Record, with_paragraphs: bool) -> Item:
    """Make an item (a question with its reference answer) of a row of HotpotQA.

    Args:
        record: The row.
        with_paragraphs: Whether the prompt holds the paragraphs of Wikipedia that come with the question.

    Returns:
        The item; paragraphs and titles of those that support the answer are in its metadata.

    Raises:
        RowSkipped: For a row without an answer.
    """
    if "answer" not in record.values:
        raise RowSkipped("they have no answer, as in the test set")
    question = record.get_text("question")
    paragraphs = _read_hotpotqa_paragraphs(record)
    prompt = question
    if with_paragraphs:
        texts = [f"{title}\n{text}" for title, text in paragraphs]
        prompt = "\n\n".join([*texts, f"Question: {question}"])
    return make_item(
        prompt,
        record.get_text("answer"),
        record.get_optional_text("type") or "hotpotqa",
        id=record.get_text("_id", "id"),
        difficulty=_HOTPOTQA_LEVELS.get(record.get_optional_text("level"), 1),
        metadata={
            "paragraphs": paragraphs,
            "supporting_titles": _read_supporting_titles(record.values.get("supporting_facts")),
        },
    )


def _read_hotpotqa_paragraphs(record: Record) -> list[tuple[str, str]]:
    """Read the paragraphs that come with a question of HotpotQA.

    Args:
        record: The row. The authors' file has pairs of title and sentences, Hugging Face's a list of each.

    Returns:
        (title, text) of each paragraph.

    Raises:
        TaskError: Where the row has neither form.
    """
    context = record.get_value("context")
    if isinstance(context, Mapping):
        titles_and_sentences = list(zip(context["title"], context["sentences"], strict=True))
    else:
        titles_and_sentences = context
    try:
        return [(title, "".join(sentences)) for title, sentences in titles_and_sentences]
    except (TypeError, ValueError) as error:
        raise TaskError(
            f"{record.location}: 'context' holds no pairs of a title and sentences; give a file of HotpotQA"
        ) from error


def _read_supporting_titles(facts: Any) -> list[str]:
    """List the titles of paragraphs that support an answer of HotpotQA, from the column supporting_facts.

    Args:
        facts: (title, index of a sentence) of each fact, or, in Hugging Face's files, {"title": [...]}; or None.

    Returns:
        The titles, each once, in alphabetical order.
    """
    if isinstance(facts, Mapping):
        return sorted(set(facts.get("title") or []))
    return sorted({title for title, _ in facts or []})


def _make_hotpotqa_item_with_paragraphs(record: Record) -> Item:
    return _make_hotpotqa_item(record, with_paragraphs=True)


def _make_hotpotqa_item_without_paragraphs(record: Record) -> Item:
    return _make_hotpotqa_item(record, with_paragraphs=False)


def read_drop_file(path: Path) -> Table:
    """Reads a file of DROP: the authors' JSON holds passages with their questions, Hugging Face's one question a row.

    Args:
        path: The file's path.

    Returns:
        The table, one question a row.

    Raises:
        TaskError: The file is broken or in another layout.
    """
    if get_format(path) != ".json":
        return read_table(path)
    content = read_json(path)
    if not isinstance(content, dict) or not all(
        isinstance(passage, dict) and "qa_pairs" in passage for passage in content.values()
    ):
        raise TaskError(
            f"{path} (drop): not one object of passages with 'qa_pairs'; give a file of DROP"
        )
    rows = []
    labels = []
    for passage_id, passage in content.items():
        for number, pair in enumerate(passage["qa_pairs"], start=1):
            rows.append({"passage": passage.get("passage"), "section_id": passage_id} | pair)
            labels.append(f"question {number} of {passage_id}")
    columns = tuple(rows[0]) if rows else ()
    return Table(path, columns, tuple(rows), tuple(labels))


def _make_drop_item(record: Record) -> Item:
    """Make an item (a question on a passage, with its reference answers) of a row of DROP.

    Args:
        record: The row. An accepted answer is a list of spans of text, a number or a date.

    Returns:
        The item; its metadata holds the spans of each accepted answer, which the DROP scorer reads.

    Raises:
        RowSkipped: For a row without an answer.
    """
    if "answers_spans" in record.values:
        accepted = _read_hugging_face_spans(record)
    elif "answer" in record.values:
        validated = record.values.get("validated_answers") or []
        accepted = [_read_drop_answer(answer) for answer in [record.values["answer"], *validated]]
    else:
        raise RowSkipped("they have no answer, as in the test set")
    accepted = [spans for spans in accepted if spans]
    if not accepted:
        raise RowSkipped("their answer is empty")
    # Scorers read the spans in the metadata; the joined text is for people and judges.
    answers = list(dict.fromkeys(", ".join(spans) for spans in accepted))
    return make_item(
        f"{record.get_text('passage')}\n\nQuestion: {record.get_text('question')}",
        answers[0],
        record.get_optional_text("section_id").partition("_")[0] or "drop",
        id=record.get_text("query_id"),
        alternatives=tuple(answers[1:]),
        metadata={
            "accepted_spans": accepted,
            "passage_id": record.get_optional_text("section_id"),
        },
    )


def _read_hugging_face_spans(record: Record) -> list[list[str]]:
    """Read the accepted answers to a question of DROP in Hugging Face's layout.

    Args:
        record: The row, with the texts ("spans") and types of the answers.

    Returns:
        The answers, each a list of spans. Several spans are one answer; several numbers or dates are alternatives.

    Raises:
        TaskError: Where the row has another layout.
    """
    content = record.get_value("answers_spans")
    if not isinstance(content, Mapping):
        raise TaskError(f"{record.location}: 'answers_spans' holds no 'spans'; give a file of DROP")
    # What the types say is this reader's understanding of the layout, which was not checked.
    spans = [str(span).strip() for span in content.get("spans") or []]
    kinds = set(content.get("types") or ["span"])
    if kinds == {"span"}:
        return [list(dict.fromkeys(spans))]
    return [[span] for span in dict.fromkeys(spans)]


def _read_drop_answer(answer: Mapping[str, Any]) -> list[str]:
    """Read an answer to a question of DROP in the authors' layout.

    Args:
        answer: {"number": "3", "date": {"day": ..., "month": ..., "year": ...}, "spans": [...]}, one of them not empty.

    Returns:
        The spans of the answer: the number, the date in words, or the spans themselves.
    """
    number = str(answer.get("number") or "").strip()
    if number:
        return [number]
    date = answer.get("date") or {}
    date_words = [str(date.get(name) or "").strip() for name in ("day", "month", "year")]
    date_text = " ".join(word for word in date_words if word)
    if date_text:
        return [date_text]
    return [str(span).strip() for span in answer.get("spans") or []]


def _make_nq_item(record: Record) -> Item:
    answers = read_answers(record.get_value("answer", "answers"), record.location, "answer")
    return make_item(record.get_text("question"), answers[0], "nq", alternatives=tuple(answers[1:]))


def _make_popqa_item(record: Record) -> Item:
    """Make an item (a question with its accepted answers) of a row of PopQA; a TaskError where these are no list."""
    accepted = record.get_value("possible_answers")
    if isinstance(accepted, str):
        try:
            accepted = parse_json(accepted)
        except ValueError as error:
            raise TaskError(
                f"{record.location}: 'possible_answers' is no JSON list ({error}); mend the row"
            ) from error
    answers = read_answers(accepted, record.location, "possible_answers")
    return make_item(
        record.get_text("question"),
        answers[0],
        record.get_optional_text("prop") or "popqa",
        id=record.get_optional_text("id"),
        alternatives=tuple(answers[1:]),
        metadata={"subject_popularity": record.get_optional_text("s_pop")},
    )


def _make_gaia_item(record: Record) -> Item:
    """Make an item (a question with its reference answer) of a row of GAIA; rows of the test set are skipped."""
    answer = record.get_optional_text("Final answer")
    if answer in ("", "?"):
        raise RowSkipped("their answer is not public, as in the test set")
    level = record.get_text("Level")
    return make_item(
        record.get_text("Question"),
        answer,
        f"level {level}",
        id=record.get_text("task_id"),
        difficulty=int(level) if level.isdecimal() else 1,
        metadata={"file_name": record.get_optional_text("file_name")},
    )


def _make_frames_item(record: Record) -> Item:
    """Make an item (a question with its reference answer) of a row of FRAMES."""
    # A question may need several kinds of reasoning; the first is its group.
    reasoning_types = record.get_optional_text("reasoning_types")
    return make_item(
        record.get_text("Prompt"),
        record.get_text("Answer"),
        reasoning_types.split("|")[0].strip() or "frames",
        metadata={
            "reasoning_types": reasoning_types,
            "links": record.get_optional_text("wiki_links"),
        },
    )


def _make_hle_item(record: Record) -> Item:
    """Make an item (a question with its reference answer) of a row of Humanity's Last Exam; images are skipped."""
    if record.get_optional_text("image"):
        raise RowSkipped("they come with an image")
    return make_item(
        record.get_text("question"),
        record.get_text("answer"),
        record.get_optional_text("category") or "hle",
        id=record.get_text("id"),
        worked_solution=record.get_optional_text("rationale"),
        metadata={"answer_type": record.get_optional_text("answer_type")},
    )


def _make_natural_reasoning_item(record: Record) -> Item:
    """Make an item (a question with its reference answer) of a row of NaturalReasoning, unless it has no answer."""
    answer = record.get_optional_text("reference_answer")
    if not answer:
        raise RowSkipped("they have no reference answer")
    return make_item(record.get_text("question"), answer, record.preset)


def _make_webinstruct_item(record: Record) -> Item:
    """Make an item (a question with its reference answer) of a row of WebInstruct-verified."""
    return make_item(
        record.get_text("question"),
        record.get_text("answer"),
        record.get_optional_text("category") or "webinstruct",
        id=record.get_optional_text("id"),
        metadata={
            "answer_type": record.get_optional_text("answer_type"),
            "education_level": record.get_optional_text("difficulty"),
        },
    )


_TABLES = ("*.jsonl", "*.parquet", "*.tsv", "*.csv")
PRESETS = (
    Preset(
        name="hotpotqa",
        description="HotpotQA (Yang et al., 2018) with its paragraphs; layout not checked against the original",
        scorer="f1",
        layout_checked=False,
        make_item=_make_hotpotqa_item_with_paragraphs,
    ),
    Preset(
        name="hotpotqa_questions",
        description="HotpotQA without its paragraphs, for systems that search; layout not checked against the original",
        scorer="f1",
        layout_checked=False,
        make_item=_make_hotpotqa_item_without_paragraphs,
    ),
    Preset(
        name="drop",
        description="DROP (Dua et al., 2019): questions on passages; layout not checked against the original",
        scorer="f1:drop",
        layout_checked=False,
        make_item=_make_drop_item,
        read_file=read_drop_file,
        notes=(
            "Several questions share a passage, and split_by_id does not keep them together; DROP comes with splits.",
        ),
    ),
    Preset(
        name="nq",
        description="NQ-open (Lee et al., 2019): questions of Natural Questions with short answers",
        scorer="f1",
        layout_checked=True,
        make_item=_make_nq_item,
    ),
    Preset(
        name="popqa",
        description="PopQA (Mallen et al., 2023); layout not checked against the original",
        scorer="f1",
        layout_checked=False,
        make_item=_make_popqa_item,
        file_names=_TABLES,
    ),
    Preset(
        name="gaia",
        description="GAIA (Mialon et al., 2023), metadata.jsonl; layout not checked against the original",
        scorer="exact",
        layout_checked=False,
        make_item=_make_gaia_item,
        file_names=("metadata.jsonl", "metadata.parquet"),
        notes=("Files that questions come with are not read; metadata['file_name'] names them.",),
    ),
    Preset(
        name="frames",
        description="FRAMES (Krishna et al., 2024); layout not checked against the original",
        scorer="f1",
        layout_checked=False,
        make_item=_make_frames_item,
        file_names=_TABLES,
        notes=(_JUDGE_NOTE,),
    ),
    Preset(
        name="hle",
        description="Humanity's Last Exam (Phan et al., 2025), text only; layout not checked against the original",
        scorer="exact",
        layout_checked=False,
        make_item=_make_hle_item,
        file_names=_TABLES,
        notes=(_JUDGE_NOTE,),
    ),
    Preset(
        name="natural_reasoning",
        description="NaturalReasoning (Yuan et al., 2025); layout not checked against the original",
        scorer="f1",
        layout_checked=False,
        make_item=_make_natural_reasoning_item,
        notes=(_JUDGE_NOTE,),
    ),
    Preset(
        name="webinstruct",
        description="WebInstruct-verified (TIGER-Lab, 2025); layout not checked against the original",
        scorer="f1",
        layout_checked=False,
        make_item=_make_webinstruct_item,
        notes=(_JUDGE_NOTE,),
    ),
)
