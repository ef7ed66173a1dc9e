"""A file of one's own: texts are read as they stand there, and mistakes are named."""

import re
from pathlib import Path

import pandas as pd
import pytest
from datasets import Dataset, DatasetDict

from lib.conductor.silence_libraries import quiet
from lib.tasks import TaskError
from lib.tasks.user_data import rows

ROWS = [
    {"prompt": "a cat .", "reference": "un chat .", "category": "animals", "more": 1},
    {"prompt": "a house .", "reference": "une maison .", "category": "things", "more": 2},
]
GOOD = '{"prompt": "a", "reference": "b"}\n'


@pytest.fixture(autouse=True)
def no_bars():
    with quiet():
        yield


def written(place: Path, rows=ROWS) -> Path:
    """Rows in the form that the name asks for."""
    frame = pd.DataFrame(rows)
    if place.suffix == ".csv":
        frame.to_csv(place, index=False)
    elif place.suffix == ".parquet":
        frame.to_parquet(place)
    elif place.suffix:
        frame.to_json(place, orient="records", lines=place.suffix == ".jsonl")
    else:
        Dataset.from_list(rows).save_to_disk(place)
    return place


def text(place: Path, content: str | bytes) -> Path:
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return place


def refused(place: Path, *named: str) -> None:
    """With a message that names the place and more."""
    with pytest.raises(TaskError, match=re.escape(str(place))) as caught:
        rows(place)
    for name in named:
        assert name in str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.parquet", "saved"])
def test_a_file_of_each_kind_is_read(name, tmp_path):
    found = rows(written(tmp_path / name))
    assert found.to_dict("records") == [
        {k: row[k] for k in ("prompt", "reference", "category")} for row in ROWS
    ]
    assert rows(str(tmp_path / name)).equals(found)


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "saved"])
def test_prompts_may_be_messages(name, tmp_path):
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What?"}]
    assert (
        rows(written(tmp_path / name, [{"prompt": prompt, "reference": "b"}]))["prompt"][0]
        == prompt
    )


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "saved"])
@pytest.mark.parametrize("column", ["prompt", "reference"])
def test_a_missing_column_is_named_and_so_are_those_there_are(name, column, tmp_path):
    other = [
        {("question" if key == column else key): value for key, value in row.items()}
        for row in ROWS
    ]
    refused(written(tmp_path / name, other), f"lacks the column {column!r}", "question", "category")


NO_PROMPTS = [
    "",
    "  ",
    None,
    3,
    ["a"],
    [{"content": "a"}],
    [{"role": "user"}],
    [{"role": "user", "content": ""}],
]


@pytest.mark.parametrize(
    "wrong", [{"prompt": p} for p in NO_PROMPTS] + [{"reference": r} for r in ("", "  ", None)]
)
def test_a_row_without_a_prompt_or_a_reference_is_named(wrong, tmp_path):
    """Else it is found by TRL, with words that help nobody."""
    refused(written(tmp_path / "a.jsonl", [*ROWS, ROWS[0] | wrong]), "row 2", *wrong, "empty")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", "{"),
        ("a.jsonl", GOOD + '{"prompt":'),
        ("a.parquet", "abc"),
        ("a.parquet", ""),
        ("a.csv", b"\xff\xfe\x00prompt,reference\n"),
        ("a.csv", 'prompt,reference\n"a,b\n'),
        ("a.csv", "prompt,reference\na,b\nc,d,e\n"),
        ("a.csv", ""),
        ("a.json", ""),
        ("a.jsonl", ""),
        ("a.jsonl", "\n"),
    ],
)
def test_a_broken_or_empty_file_is_named(name, content, tmp_path):
    refused(text(tmp_path / name, content))


def test_without_categories_all_is_one(tmp_path):
    plain = [{"prompt": row["prompt"], "reference": row["reference"]} for row in ROWS]
    assert rows(written(tmp_path / "a.csv", plain))["category"].tolist() == ["all", "all"]


@pytest.mark.parametrize("name", ["a.txt", "a.xlsx", "a"])
def test_a_kind_that_is_not_known_and_a_file_that_is_not_there_are_named(name, tmp_path):
    refused(text(tmp_path / name, GOOD), repr((tmp_path / name).suffix), ".parquet")
    refused(tmp_path / "nothing" / name, "does not exist", ".jsonl")


def test_a_file_or_folder_without_rows_or_with_several_datasets_is_named(tmp_path):
    refused(text(tmp_path / "a.csv", "prompt,reference\n"))
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty")
    Dataset.from_dict({"prompt": [], "reference": []}).save_to_disk(tmp_path / "saved")
    refused(tmp_path / "saved")
    DatasetDict(train=Dataset.from_list(ROWS), test=Dataset.from_list(ROWS)).save_to_disk(
        tmp_path / "both"
    )
    refused(tmp_path / "both", "several splits", "train", "test")


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.parquet", "saved"])
def test_references_are_read_as_they_stand_there(name, tmp_path):
    """007 must not become 7, nor a date a point in time; a number is no empty reference."""
    told = ["007", "4.50", "2024-05-01", "NA"]
    place = written(tmp_path / name, [{"prompt": "2 + 2", "reference": each} for each in told])
    assert rows(place)["reference"].tolist() == told
    assert rows(written(tmp_path / "sums.jsonl", [{"prompt": "2 + 2", "reference": 4}]))[
        "reference"
    ].tolist() == ["4"]
