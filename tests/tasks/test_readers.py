"""Files are read as they are written, and what cannot be read is named with its line and a remedy."""

import codecs
import gzip
import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset, DatasetDict
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lib.conductor.silence_libraries import silence_libraries
from lib.tasks import TaskError
from lib.tasks.readers import NumberText, read_csv_records, read_table, read_training_prompts

DATA = Path(os.environ.get("BENCH_DATA", Path(__file__).parents[3] / "shared" / "data"))
ROWS = [
    {"prompt": "a cat .", "reference": "un chat .", "category": "animals", "more": 1},
    {"prompt": "a house .", "reference": "une maison .", "category": "things", "more": 2},
]
KINDS = ["a.jsonl", "a.json", "a.csv", "a.tsv", "a.parquet", "a.jsonl.gz", "a.csv.gz", "saved"]
LATIN = "prompt,reference\nOù est l’été ?,là\nNewton’s law,x\n"


@pytest.fixture(autouse=True)
def no_bars():
    with silence_libraries():
        yield


def write_rows(path: Path, rows=ROWS) -> Path:
    """Rows in the form that the name asks for."""
    frame = pd.DataFrame(rows)
    if ".csv" in path.name or ".tsv" in path.name:
        frame.to_csv(path, index=False, sep="\t" if ".tsv" in path.name else ",")
    elif path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix:
        frame.to_json(path, orient="records", lines=".jsonl" in path.name)
    else:
        Dataset.from_list(rows).save_to_disk(path)
    return path


def write_text(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def check_refused(path: Path, *details: str, reader=read_table) -> None:
    """With a message in one line that names the path and more."""
    with pytest.raises(TaskError, match=re.escape(str(path))) as caught:
        reader(path)
    for detail in details:
        assert detail in str(caught.value)
    assert "\n" not in str(caught.value)


# Formats


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_each_kind_is_read(name, tmp_path):
    table = read_table(write_rows(tmp_path / name))
    assert table.columns == ("prompt", "reference", "category", "more")
    assert [{k: str(v) for k, v in row.items()} for row in table.rows] == [
        {k: str(v) for k, v in row.items()} for row in ROWS
    ]
    assert read_table(str(tmp_path / name)) == table and table.notes == ()


@pytest.mark.parametrize(
    ("name", "label"),
    [("a.jsonl", "line 2"), ("a.csv", "line 3"), ("a.json", "row 2"), ("a.parquet", "row 2")],
)
def test_a_row_is_located_by_its_line_in_text_and_by_its_number_elsewhere(name, label, tmp_path):
    table = read_table(write_rows(tmp_path / name))
    assert table.locate(1) == f"{tmp_path / name}, {label}"


@pytest.mark.parametrize(
    "content",
    [
        [{"a": "x", "b": "y"}, {"a": "z", "b": "w"}],
        {"data": [{"a": "x", "b": "y"}, {"a": "z", "b": "w"}]},
        {"a": ["x", "z"], "b": ["y", "w"]},
        {"a": {"0": "x", "1": "z"}, "b": {"0": "y", "1": "w"}},
    ],
)
def test_a_json_file_may_hold_rows_or_columns(content, tmp_path):
    table = read_table(write_text(tmp_path / "a.json", json.dumps(content)))
    assert table.rows == ({"a": "x", "b": "y"}, {"a": "z", "b": "w"})


@pytest.mark.parametrize("content", ["3", '"a"', "[1, 2]", '{"a": 1, "b": [2]}', "{}"])
def test_a_json_file_without_rows_is_refused(content, tmp_path):
    check_refused(write_text(tmp_path / "a.json", content), "{...}")


def test_one_split_of_a_saved_dataset_can_be_chosen(tmp_path):
    both = DatasetDict(train=Dataset.from_list(ROWS), test=Dataset.from_list(ROWS[:1]))
    both.save_to_disk(tmp_path / "both")
    check_refused(tmp_path / "both", "several splits", "train", "test")
    assert len(read_table(tmp_path / "both", split="test").rows) == 1


@pytest.mark.parametrize("name", ["a.txt", "a.xlsx", "a", "a.parquet.gz", "a.gz"])
def test_a_kind_that_is_not_known_and_a_file_that_is_not_there_are_named(name, tmp_path):
    check_refused(write_text(tmp_path / name, "x"), repr((tmp_path / name).suffix), ".parquet")
    check_refused(tmp_path / "nothing" / name, "does not exist", ".jsonl")


def test_a_file_or_folder_without_rows_is_named(tmp_path):
    check_refused(write_text(tmp_path / "a.csv", "prompt,reference\n"), "no rows")
    check_refused(write_text(tmp_path / "a.json", "[]"), "no rows")
    (tmp_path / "empty").mkdir()
    check_refused(tmp_path / "empty", "save_to_disk")
    Dataset.from_dict({"prompt": [], "reference": []}).save_to_disk(tmp_path / "saved")
    check_refused(tmp_path / "saved")


@pytest.mark.parametrize(
    ("name", "content", "detail"),
    [
        ("a.json", "{", "line 1"),
        ("a.json", '[{"a": 1},\n{"a": }]', "line 2"),
        ("a.json", '{"a": 1}\n{"a": 2}\n', ".jsonl"),
        ("a.jsonl", '{"a": 1}\n\n{"a":', "line 3"),
        ("a.jsonl", '{"a": 1}\n[1]\n', "line 2"),
        ("a.jsonl", '[\n{"a": 1}]', "line 1"),
        ("a.parquet", "abc", "Parquet"),
        ("a.parquet", "", "Parquet"),
        ("a.csv", 'p,r\n"a,b\n', "line 2"),
        ("a.csv", 'p,r\nc,d\n"a" b,c\n', "line 3"),
        ("a.csv", "p,r\na,b\nc,d,e\n", "line 3"),
        ("a.csv", "p,p\na,b\n", "twice"),
        ("a.csv", "", "empty"),
        ("a.csv", "\n \n", "empty"),
        ("a.json", "", "empty"),
        ("a.jsonl", "\n", "empty"),
        ("a.jsonl.gz", "plain text", "gzip"),
        ("a.csv", "a\0b,c\n1,2\n", "NUL"),
        ("a.csv", gzip.compress(b"a,b\n1,2\n", mtime=0), ".gz"),
    ],
)
def test_a_broken_or_empty_file_is_named_with_its_line(name, content, detail, tmp_path):
    check_refused(write_text(tmp_path / name, content), detail)


def test_a_truncated_gzip_file_is_named(tmp_path):
    whole = gzip.compress(b'{"a": "b"}\n' * 100, mtime=0)
    check_refused(write_text(tmp_path / "a.jsonl.gz", whole[:-10]), "gzip")


# Text as it stands


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.parquet", "saved"])
def test_texts_that_look_like_something_else_are_kept(name, tmp_path):
    texts = ["007", "4.50", "2024-05-01", "1e3", "true", " padded "]
    table = read_table(write_rows(tmp_path / name, [{"reference": text} for text in texts]))
    assert [row["reference"] for row in table.rows] == texts


def test_words_for_missing_values_are_text_in_csv(tmp_path):
    words = ["NA", "None", "null", "nan", "N/A", "NULL", "-"]
    content = "reference,more\n" + "".join(f"{word},x\n" for word in words)
    table = read_table(write_text(tmp_path / "a.csv", content))
    assert [row["reference"] for row in table.rows] == words


def test_numbers_of_json_are_kept_as_they_are_written_and_nan_is_a_null(tmp_path):
    content = '{"a": 1e3, "b": 1.50, "c": 12345678901234567890, "d": NaN, "e": -0, "f": true}\n'
    row = read_table(write_text(tmp_path / "a.jsonl", content)).rows[0]
    assert row == {
        "a": "1e3",
        "b": "1.50",
        "c": "12345678901234567890",
        "d": None,
        "e": "-0",
        "f": True,
    }
    assert isinstance(row["a"], NumberText)


def test_a_short_row_of_csv_has_nulls_and_a_trailing_separator_does_not_matter(tmp_path):
    table = read_table(write_text(tmp_path / "a.csv", "a,b\n1\n2,3,\n"))
    assert table.rows == ({"a": "1", "b": None}, {"a": "2", "b": "3"})


def test_quoted_line_ends_and_separators_belong_to_a_field_and_lines_are_still_counted(tmp_path):
    content = 'prompt,reference\n"one,\ntwo ""x""",1\n\nplain,2\n'
    table = read_table(write_text(tmp_path / "a.csv", content))
    assert [row["prompt"] for row in table.rows] == ['one,\ntwo "x"', "plain"]
    assert table.labels == ("line 2", "line 5")


@pytest.mark.parametrize("line_end", ["\r\n", "\r", "\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.jsonl"])
def test_line_ends_of_any_system_are_read(name, line_end, tmp_path):
    content = {"a.csv": 'a,b\n"1\n2",3\n', "a.jsonl": '{"a": "1\\n2", "b": "3"}\n\n'}[name]
    table = read_table(write_text(tmp_path / name, content.replace("\n", line_end)))
    assert table.rows == ({"a": "1\n2", "b": "3"},)


def test_other_line_separators_do_not_end_a_row_of_jsonl(tmp_path):
    content = '{"a": "x\u2028y\x85z"}\n'
    assert read_table(write_text(tmp_path / "a.jsonl", content)).rows == ({"a": "x\u2028y\x85z"},)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_the_separator_of_a_csv_file_is_found(separator, tmp_path):
    rows = [["prompt", "reference"], ["one, or; two", "1"], ["a|b, c", "2;3"], ["x\ty", "4"]]
    lines = [separator.join(f'"{field}"' for field in row) for row in rows]
    table = read_table(write_text(tmp_path / "a.csv", "\n".join(lines)))
    assert [list(row.values()) for row in table.rows] == rows[1:]


def test_unquoted_commas_in_texts_do_not_hide_a_semicolon(tmp_path):
    content = "question, if any;answer\nOne, two, or three?;3\nWho?;Ada, Ben\n"
    table = read_table(write_text(tmp_path / "a.csv", content))
    assert table.rows[0] == {"question, if any": "One, two, or three?", "answer": "3"}
    assert table.rows[1]["answer"] == "Ada, Ben"


def test_a_field_may_be_longer_than_the_limit_of_the_csv_module(tmp_path):
    long_text = "word " * 40_000
    records, _ = read_csv_records(write_text(tmp_path / "a.csv", f"a,b\n{long_text},1\n"))
    assert records[1][1][0] == long_text


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(
    texts=st.lists(
        st.tuples(st.text(min_size=1), st.text(min_size=1)).filter(lambda row: row[0].strip()),
        min_size=1,
        max_size=5,
    )
)
def test_whatever_json_can_write_is_read_back(texts, tmp_path):
    lines = [json.dumps({"prompt": prompt, "reference": ref}) for prompt, ref in texts]
    path = write_text(tmp_path / "any.jsonl", "\n".join(lines))
    assert [(row["prompt"], row["reference"]) for row in read_table(path).rows] == texts


# Encodings


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "cp1252"]
)
def test_an_encoding_that_can_be_told_is_read(encoding, tmp_path):
    table = read_table(write_text(tmp_path / "a.csv", LATIN.encode(encoding)))
    assert table.columns == ("prompt", "reference")
    assert table.rows[0] == {"prompt": "Où est l’été ?", "reference": "là"}
    assert bool(table.notes) == (encoding == "cp1252")


def test_a_big_endian_mark_is_understood(tmp_path):
    raw = codecs.BOM_UTF16_BE + '{"a": "é"}\n'.encode("utf-16-be")
    assert read_table(write_text(tmp_path / "a.jsonl", raw)).rows == ({"a": "é"},)


def test_latin_1_is_read_with_a_note(tmp_path):
    raw = "frage;antwort\nGrößte Stadt?;Köln\n".encode("latin-1")
    table = read_table(write_text(tmp_path / "a.csv", raw))
    assert table.rows[0] == {"frage": "Größte Stadt?", "antwort": "Köln"}
    assert "not UTF-8" in table.notes[0]


@pytest.mark.parametrize("encoding", ["cp1251", "koi8-r", "gbk", "shift_jis", "big5", "euc_kr"])
def test_an_encoding_that_cannot_be_told_is_refused_with_line_and_remedy(encoding, tmp_path):
    words = {
        "gbk": "首都是哪里",
        "big5": "首都",
        "shift_jis": "日本の首都",
        "euc_kr": "수도는 어디",
    }
    text = words.get(encoding, "Какая столица")
    raw = f"prompt,reference\nfirst,1\n{text},2\n".encode(encoding)
    check_refused(write_text(tmp_path / "a.csv", raw), "line 3", "save it as UTF-8")


@pytest.mark.parametrize("raw", [b"\xff\xfe\x00prompt,reference\n", b"\xff\xfea"])
def test_a_broken_utf_16_file_is_refused(raw, tmp_path):
    check_refused(write_text(tmp_path / "a.csv", raw))


@pytest.mark.skipif(not (DATA / "mathe").is_dir(), reason=f"no published files in {DATA}")
def test_published_semicolon_files_are_read_whole():
    answers = read_table(DATA / "mathe" / "MathE dataset.csv")
    assert len(answers.rows) == 9546 and "cp1252" in answers.notes[0]
    assert any("Newton’s method" in row["Keywords"] for row in answers.rows)
    bank = read_table(DATA / "mathe_bank" / "math.csv")
    assert len(bank.rows) == 1913 and bank.columns[0] == "id" and bank.notes == ()


# What the training commands read


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.parquet", "saved"])
def test_training_prompts_have_a_reference_and_a_category(name, tmp_path):
    rows = read_training_prompts(write_rows(tmp_path / name))
    assert rows.drop(columns="row").to_dict("records") == [
        {k: row[k] for k in ("prompt", "reference", "category")} for row in ROWS
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "saved"])
def test_training_prompts_may_be_messages(name, tmp_path):
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What?"}]
    path = write_rows(tmp_path / name, [{"prompt": prompt, "reference": "b"}])
    assert read_training_prompts(path)["prompt"][0] == prompt


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "saved"])
@pytest.mark.parametrize("column", ["prompt", "reference"])
def test_a_missing_training_column_is_named_and_so_are_those_there_are(name, column, tmp_path):
    renamed = [
        {("question" if key == column else key): value for key, value in row.items()}
        for row in ROWS
    ]
    check_refused(
        write_rows(tmp_path / name, renamed),
        f"lacks the column {column!r}",
        "question",
        "category",
        reader=read_training_prompts,
    )


NO_PROMPTS = [
    "",
    "  ",
    None,
    3,
    [],
    ["a"],
    [{"content": "a"}],
    [{"role": "user"}],
    [{"role": "user", "content": ""}],
]


@pytest.mark.parametrize(
    "mistake",
    [{"prompt": prompt} for prompt in NO_PROMPTS] + [{"reference": r} for r in ("", "  ", None)],
)
def test_a_training_row_without_a_prompt_or_a_reference_is_named(mistake, tmp_path):
    """Else it is found by TRL, with words that help nobody."""
    path = write_rows(tmp_path / "a.jsonl", [*ROWS, ROWS[0] | mistake])
    check_refused(path, "line 3", *mistake, "empty", reader=read_training_prompts)


def test_training_references_are_text_and_categories_may_be_missing(tmp_path):
    rows = [{"prompt": "2 + 2", "reference": 4}, {"prompt": "2 + 2", "reference": 4}]
    table = read_training_prompts(write_rows(tmp_path / "a.jsonl", rows))
    assert table["reference"].tolist() == ["4", "4"] and set(table["category"]) == {"all"}
    table = read_training_prompts(write_rows(tmp_path / "a.parquet", rows))
    assert table["reference"].tolist() == ["4", "4"]
    null = write_rows(tmp_path / "b.parquet", [{"prompt": "a", "reference": np.nan}])
    check_refused(null, "row 1", "reference is empty", reader=read_training_prompts)
