"""What is learned from: three categories in turn, or a file of one's own, whose mistakes are named."""

import re
from pathlib import Path

import pandas as pd
import pytest
from datasets import Dataset, DatasetDict

from lib.conductor import data
from lib.conductor.data import CATEGORIES, DataError, load
from lib.conductor.quiet import quiet
from lib.models.corpus import question

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
    with pytest.raises(DataError, match=re.escape(str(place))) as caught:
        load(place)
    for name in named:
        assert name in str(caught.value)


# Lab tasks ----------------------------------------------------------------------------------------


def test_the_categories_take_turns():
    items = data.draw("train", 10)
    assert [data.category(item) for item in items] == (list(CATEGORIES) * 4)[:10]
    for name, (family, skin, levels) in CATEGORIES.items():
        mine = [item for item in data.draw("dev", 40) if data.category(item) == name]
        assert {item.category for item in mine} == {family} and {item.skin for item in mine} == {skin}
        assert {item.difficulty for item in mine} == set(levels)


def test_splits_share_nothing():
    drawn = {split: data.draw(split, 200) for split in ("train", "dev", "test")}
    for split, items in drawn.items():
        assert {item.split for item in items} == {split} and len(items) == 200
    prompts = {split: {item.prompt for item in items} for split, items in drawn.items()}
    assert not (
        prompts["train"] & prompts["dev"] or prompts["train"] & prompts["test"] or prompts["dev"] & prompts["test"]
    )


def test_items_are_those_of_the_seed():
    assert data.draw("train", 12, seed=1) == data.draw("train", 12, seed=1) != data.draw("train", 12, seed=2)


def test_a_dataset_has_questions_references_and_the_number_of_the_item():
    items = data.draw("train", 8)
    made = data.dataset(items)
    assert made.column_names == ["prompt", "reference", "category", "row"] and made["row"][:] == list(range(8))
    for item, row in zip(items, made, strict=True):
        assert row["prompt"] == question(item) and row["reference"] == item.answer
        assert row["category"] == data.category(item)


# One's own ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.parquet", "saved"])
def test_a_file_of_each_kind_is_read(name, tmp_path):
    found = load(written(tmp_path / name))
    assert found.column_names == ["prompt", "reference", "category"]
    assert found.to_list() == [{k: row[k] for k in ("prompt", "reference", "category")} for row in ROWS]
    assert load(str(tmp_path / name)).to_list() == found.to_list()


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "saved"])
def test_prompts_may_be_messages(name, tmp_path):
    prompt = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What?"}]
    assert load(written(tmp_path / name, [{"prompt": prompt, "reference": "b"}]))["prompt"][0] == prompt


def test_a_file_that_was_changed_is_read_again(tmp_path):
    assert load(written(tmp_path / "a.csv"))["reference"][0] == "un chat ."
    assert load(written(tmp_path / "a.csv", [{"prompt": "c", "reference": "d"}]))["reference"][:] == ["d"]


@pytest.mark.parametrize("name", ["nothing.csv", "nothing"])
def test_a_file_that_is_not_there_is_named(name, tmp_path):
    refused(tmp_path / name, "does not exist", ".jsonl")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet", "saved"])
@pytest.mark.parametrize("column", ["prompt", "reference"])
def test_a_missing_column_is_named_and_so_are_those_there_are(name, column, tmp_path):
    rows = [{("question" if key == column else key): value for key, value in row.items()} for row in ROWS]
    refused(written(tmp_path / name, rows), f"lacks the column {column!r}", "question", "category")


@pytest.mark.parametrize("column", ["prompt", "reference"])
@pytest.mark.parametrize("value", ["", "  ", None])
def test_an_empty_row_is_named(column, value, tmp_path):
    rows = [*ROWS, ROWS[0] | {column: value}]
    refused(written(tmp_path / "a.jsonl", rows), "row 2", "empty")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", "{"), ("a.jsonl", GOOD + '{"prompt":'), ("a.parquet", "abc"), ("a.parquet", ""),
        ("a.csv", b"\xff\xfe\x00prompt,reference\n"), ("a.csv", 'prompt,reference\n"a,b\n'),
        ("a.csv", "prompt,reference\na,b\nc,d,e\n"), ("a.csv", ""), ("a.json", ""), ("a.jsonl", ""), ("a.jsonl", "\n"),
    ],
)  # fmt: skip
def test_a_broken_or_empty_file_is_named(name, content, tmp_path):
    refused(text(tmp_path / name, content))


def test_without_categories_all_is_one(tmp_path):
    rows = [{"prompt": row["prompt"], "reference": row["reference"]} for row in ROWS]
    assert load(written(tmp_path / "a.csv", rows))["category"][:] == ["all", "all"]


@pytest.mark.parametrize("name", ["a.txt", "a.xlsx", "a"])
def test_a_kind_that_is_not_known_is_named(name, tmp_path):
    refused(text(tmp_path / name, GOOD), repr((tmp_path / name).suffix), ".parquet")


def test_a_file_without_rows_is_refused(tmp_path):
    refused(text(tmp_path / "a.csv", "prompt,reference\n"))
    Dataset.from_dict({"prompt": [], "reference": []}).save_to_disk(tmp_path / "saved")
    refused(tmp_path / "saved")


def test_a_folder_that_is_no_dataset_or_holds_several_is_named(tmp_path):
    (tmp_path / "empty").mkdir()
    refused(tmp_path / "empty")
    DatasetDict(train=Dataset.from_list(ROWS), test=Dataset.from_list(ROWS)).save_to_disk(tmp_path / "both")
    refused(tmp_path / "both", "several splits", "train", "test")


@pytest.mark.parametrize(
    "prompt", [3, ["a"], [{"content": "a"}], [{"role": "user"}], [{"role": "user", "content": ""}]]
)
def test_a_prompt_that_is_neither_text_nor_messages_is_named(prompt, tmp_path):
    """Else it is found by TRL, with words that help nobody."""
    refused(written(tmp_path / "a.jsonl", [{"prompt": prompt, "reference": "b"}]), "row 0", "prompt")


def test_a_number_as_reference_is_not_called_empty(tmp_path):
    """A table of sums is read as numbers."""
    place = written(tmp_path / "a.csv", [{"prompt": "2 + 2", "reference": 4}])
    try:
        assert load(place)["reference"][:] == ["4"]
    except DataError as error:
        assert "empty" not in str(error)
