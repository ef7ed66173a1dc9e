"""Columns of a file of one's own: what is taken for what, and what is refused with its row."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lib.tasks import TaskError, load
from lib.tasks.column_map import PROMPT_ALIASES, REFERENCE_ALIASES, append_choices, find_letter

USER = {"role": "user", "content": "What?"}
SYSTEM = {"role": "system", "content": "Be brief."}
ASSISTANT = {"role": "assistant", "content": "That."}


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def check_refused(path: Path, *details: str, **options: str) -> None:
    """With a message in one line that names the path and more."""
    with pytest.raises(TaskError, match=re.escape(str(path))) as caught:
        load(path, **options)
    for detail in details:
        assert detail in str(caught.value)
    assert "\n" not in str(caught.value)


# Which column is which


@pytest.mark.parametrize("prompt", PROMPT_ALIASES)
@pytest.mark.parametrize("reference", REFERENCE_ALIASES)
def test_usual_names_are_understood(prompt, reference, tmp_path):
    value = [USER] if prompt == "messages" else "What?"
    item = load(write_jsonl(tmp_path / "a.jsonl", [{prompt: value, reference: "that"}])).items[0]
    assert (item.prompt, item.reference) == ("What?", "that")


def test_several_columns_that_fit_are_listed_with_the_option(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"question": "q", "input": "i", "answer": "a"}])
    check_refused(path, "question and input", "prompt_column='question'")
    assert load(path, prompt_column="input").items[0].prompt == "i"
    path = write_jsonl(tmp_path / "b.jsonl", [{"problem": "p", "solution": "s", "answer": "a"}])
    check_refused(path, "answer and solution", "reference_column=")
    assert load(path, reference_column="answer").items[0].metadata == {"solution": "s"}


def test_a_missing_column_is_named_with_those_there_are_and_the_option(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", [{"frage": "q", "answer": "a"}])
    check_refused(path, "frage, answer", "prompt_column=...")
    check_refused(path, "no column 'Frage'", "frage, answer", prompt_column="Frage")
    check_refused(path, "group_column", prompt_column="frage", group_column="topic")
    assert load(path, prompt_column="frage").items[0].prompt == "q"


def test_group_and_id_are_taken_from_usual_names_or_options(tmp_path):
    row = {"prompt": "q", "reference": "r", "category": "c", "id": 7, "topic": "t"}
    path = write_jsonl(tmp_path / "a.jsonl", [row])
    item = load(path).items[0]
    assert (item.group, item.id, item.metadata) == ("c", "7", {"topic": "t"})
    assert load(path, group_column="topic", id_column="topic").items[0].group == "t"


def test_several_columns_for_an_option_that_may_be_left_out_are_a_note(tmp_path):
    row = {"prompt": "q", "reference": "r", "category": "c", "subject": "s"}
    dataset = load(write_jsonl(tmp_path / "own.jsonl", [row]))
    assert dataset.items[0].group == "own"
    assert any("category and subject" in note and "group_column" in note for note in dataset.notes)


def test_without_an_id_column_equal_prompts_have_equal_ids_and_others_do_not(tmp_path):
    rows = [{"prompt": f"q{i % 3}", "reference": "r"} for i in range(3)]
    first = load(write_jsonl(tmp_path / "a.jsonl", rows))
    second = load(write_jsonl(tmp_path / "b.jsonl", rows[::-1]))
    assert len({item.id for item in first}) == 3
    assert {item.prompt: item.id for item in first} == {item.prompt: item.id for item in second}


# Prompts


def test_messages_give_history_and_prompt(tmp_path):
    messages = [SYSTEM, {"role": "user", "content": "Who?"}, ASSISTANT, USER]
    item = load(write_jsonl(tmp_path / "a.jsonl", [{"messages": messages, "answer": "x"}])).items[0]
    assert item.messages == messages and item.prompt == "What?" and len(item.history) == 3


def test_messages_may_be_json_in_a_cell_of_csv(tmp_path):
    cell = json.dumps([SYSTEM, USER]).replace('"', '""')
    (tmp_path / "a.csv").write_text(f'prompt,reference\n"{cell}",x\n[1] and "role",y\n')
    items = load(tmp_path / "a.csv").items
    assert items[0].messages == [SYSTEM, USER]
    assert items[1].messages == [{"role": "user", "content": '[1] and "role"'}]


def test_parts_of_text_are_joined(tmp_path):
    message = {
        "role": "user",
        "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
    }
    path = write_jsonl(tmp_path / "a.jsonl", [{"prompt": [message], "reference": "x"}])
    assert load(path).items[0].prompt == "a\nb"


@pytest.mark.parametrize(
    ("prompt", "detail"),
    [
        ("", "blank"),
        (" \n", "blank"),
        (None, "null"),
        (3, "number 3"),
        (True, "true"),
        ({"role": "user"}, "nested object"),
        ([], "empty list"),
        (["a"], "role or content"),
        ([{"role": "user"}], "role or content"),
        ([{"role": "user", "content": " "}], "blank"),
        ([{"role": "user", "content": None}], "null"),
        ([{"role": "tool", "content": "x"}], "'tool'"),
        ([USER, ASSISTANT], "reference column"),
        ([USER, SYSTEM], "end with the user's"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "only text"),
    ],
)
def test_what_is_no_prompt_is_refused_with_its_row(prompt, detail, tmp_path):
    rows = [{"prompt": "fine", "reference": "x"}, {"prompt": prompt, "reference": "y"}]
    check_refused(write_jsonl(tmp_path / "a.jsonl", rows), "line 2", detail)


# References


def test_a_list_of_accepted_answers_gives_alternatives(tmp_path):
    rows = [{"prompt": "q", "answer": ["two", 2, "two"]}]
    item = load(write_jsonl(tmp_path / "a.jsonl", rows)).items[0]
    assert (item.reference, item.alternatives) == ("two", ("2",))


@pytest.mark.parametrize(
    ("written", "reference"),
    [
        ("7", "7"),
        ("1e3", "1e3"),
        ("1.50", "1.50"),
        ('"007"', "007"),
        ('"NA"', "NA"),
        ("-0.0", "-0.0"),
    ],
)
def test_numbers_and_texts_mixed_in_one_column_stay_as_they_are_written(
    written, reference, tmp_path
):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"prompt": "q", "answer": {written}}}\n{{"prompt": "p", "answer": "x"}}\n')
    assert load(path).items[0].reference == reference


@pytest.mark.parametrize(
    ("reference", "detail"),
    [
        ("", "empty"),
        ("  ", "empty"),
        (None, "null"),
        (float("nan"), "null"),
        (True, "true"),
        (False, "false"),
        ({"a": 1}, "nested object"),
        ([], "empty list"),
        (["a", None], "null"),
        (["a", ["b"]], "a list"),
        (["a", {"b": 1}], "nested object"),
    ],
)
def test_what_is_no_reference_is_refused_with_its_row(reference, detail, tmp_path):
    rows = [{"prompt": "fine", "reference": "x"}, {"prompt": "q", "reference": reference}]
    check_refused(write_jsonl(tmp_path / "a.jsonl", rows), "line 2", detail)


def test_a_row_without_the_column_is_a_null(tmp_path):
    rows = [{"prompt": "fine", "reference": "x"}, {"prompt": "q"}]
    check_refused(write_jsonl(tmp_path / "a.jsonl", rows), "line 2", "null")


def test_nulls_of_parquet_are_refused_with_their_row_and_numbers_are_kept(tmp_path):
    table = pa.table({"prompt": ["p", "q"], "reference": pa.array([3, None])})
    pq.write_table(table, tmp_path / "a.parquet")
    check_refused(tmp_path / "a.parquet", "row 2", "null")
    table = pa.table({"prompt": ["p", "q"], "reference": pa.array([3, 4])})
    pq.write_table(table, tmp_path / "b.parquet")
    assert [item.reference for item in load(tmp_path / "b.parquet")] == ["3", "4"]


# Options


@pytest.mark.parametrize(
    "choices",
    [
        ["red", "blue"],
        {"A": "red", "B": "blue"},
        {"text": ["red", "blue"], "label": ["A", "B"]},
        '["red", "blue"]',
    ],
)
@pytest.mark.parametrize("answer", ["B", "b", "(B)", "blue"])
def test_options_are_written_under_the_question_and_the_reference_is_a_letter(
    choices, answer, tmp_path
):
    rows = [{"question": "Which?", "choices": choices, "answer": answer}]
    dataset = load(write_jsonl(tmp_path / "a.jsonl", rows))
    item = dataset.items[0]
    assert item.prompt == "Which?\n\nA. red\nB. blue"
    assert (item.reference, item.choices, dataset.scorer) == ("B", ("red", "blue"), "choice")


@pytest.mark.parametrize(
    ("choices", "answer", "detail"),
    [
        (["red"], "A", "2 to 26"),
        ("red or blue", "A", "JSON list"),
        (["red", None], "A", "empty option"),
        ({"A": "red", "C": "blue"}, "A", "A, C"),
        (["red", "blue"], "1", "'1'"),
        (["red", "blue"], "C", "'C'"),
        (["red", "red"], "red", "several options"),
    ],
)
def test_options_that_cannot_be_meant_are_refused_with_their_row(choices, answer, detail, tmp_path):
    rows = [{"question": "Which?", "choices": choices, "answer": answer}]
    check_refused(write_jsonl(tmp_path / "a.jsonl", rows), "line 1", detail)


def test_options_that_a_question_holds_already_are_not_written_twice():
    question = "Which?\n(A) red\n(B) blue"
    assert append_choices(question, ("red", "blue")) == question
    # Numbers that occur in a question are not its options.
    assert append_choices("2 + 4 = ?", ("2", "4")).endswith("A. 2\nB. 4")


def test_an_option_that_is_a_letter_itself_is_found_by_its_text():
    assert find_letter("A", ["B", "A"], "row 1") == "B"
