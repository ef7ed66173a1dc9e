"""Anybody's table of outcomes is read where it can be meant in one way, and refused with column, row and remedy."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib.recorded_outcomes.tables import TableError
from lib.recorded_outcomes.user_tables import (
    get_prompts_path,
    make_outcome_table,
    read_outcome_table,
)
from tests.recorded_outcomes.small import long, made

ROWS = long(made(12))
BLANK = long(made(12), numbers=False)
SHARED_TABLES = Path(__file__).parents[3] / "shared/inputs/tables"


def check_refused(rows: pd.DataFrame, *parts: str) -> None:
    with pytest.raises(TableError) as error:
        make_outcome_table(rows, "mine")
    for part in parts:
        assert part in str(error.value), str(error.value)
    assert "\n" not in str(error.value)


def check_equal(table, expected) -> None:
    assert table.models == expected.models and table.items.tolist() == expected.items.tolist()
    assert table.groups.tolist() == expected.groups.tolist()
    for name in ("correct", "cost_usd", "features"):
        np.testing.assert_allclose(getattr(table, name), getattr(expected, name), rtol=1e-12)


def write_csv(path: Path, rows: pd.DataFrame, separator=",", decimal=".", encoding="utf-8"):
    path.write_bytes(rows.to_csv(index=False, sep=separator, decimal=decimal).encode(encoding))
    return path


# Read ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".jsonl"])
def test_a_table_in_long_form_comes_back_as_it_was(tmp_path, suffix):
    table, path = made(30), tmp_path / f"mine{suffix}"
    rows = long(table).sample(frac=1, random_state=0)
    if suffix == ".csv":
        rows.to_csv(path, index=False)
    elif suffix == ".parquet":
        rows.to_parquet(path)
    else:
        rows.to_json(path, orient="records", lines=True, double_precision=15)
    again = read_outcome_table(path)
    order = [again.models.index(name) for name in table.models]
    assert again.items.tolist() == table.items.tolist() and again.cost_measures_work
    np.testing.assert_allclose(again.correct[:, order], table.correct)
    np.testing.assert_allclose(again.cost_usd[:, order], table.cost_usd)
    np.testing.assert_allclose(again.features, table.features)


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "latin-1"])
def test_separators_and_encodings_are_told_from_the_file(tmp_path, separator, encoding):
    rows = ROWS.assign(group=ROWS["group"] + "ü")
    decimal = "," if separator == ";" else "."
    path = write_csv(tmp_path / "t.csv", rows, separator, decimal, encoding)
    check_equal(read_outcome_table(path), make_outcome_table(rows, "t"))


def add_percent_signs(rows):
    return rows.assign(correct=[f"{100 * value:g}%" for value in rows["correct"]])


SAME_TABLES = {
    "capitals and blanks in the header": lambda rows: rows.set_axis(
        [f" {name.upper()} " for name in rows], axis=1
    ),
    "costs called dollars": lambda rows: rows.rename(columns={"cost_usd": "dollars"}),
    "costs with a unit": lambda rows: rows.rename(columns={"cost_usd": "Cost (USD)"}),
    "other usual names": lambda rows: rows.rename(
        columns={"item": "question_id", "group": "subject", "model": "model_name", "correct": "score"}
    ),
    "truth values": lambda rows: rows.assign(correct=rows["correct"] > 0),
    "truth words": lambda rows: rows.assign(correct=np.where(rows["correct"] > 0, "TRUE", "FALSE")),
    "yes and no": lambda rows: rows.assign(correct=np.where(rows["correct"] > 0, "Yes", "no")),
    "percentages": add_percent_signs,
    "dollar signs": lambda rows: rows.assign(cost_usd="$" + rows["cost_usd"].map(repr)),
    "an index": lambda rows: rows.reset_index().rename(columns={"index": "Unnamed: 0"}),
    "categories": lambda rows: rows.astype({"item": "category", "group": "category", "model": "category"}),
    "nullable types": lambda rows: rows.convert_dtypes(),
    "an embedding of lists": lambda rows: rows.drop(columns=["e0", "e1"]).assign(
        embedding=rows[["e0", "e1"]].to_numpy().tolist()
    ),
    "an embedding as JSON": lambda rows: rows.drop(columns=["e0", "e1"]).assign(
        embedding=[str(pair) for pair in rows[["e0", "e1"]].to_numpy().tolist()]
    ),
    "columns that nobody knows": lambda rows: rows.assign(comment="x", latency=1.0),
}  # fmt: skip


@pytest.mark.parametrize("change", SAME_TABLES.values(), ids=SAME_TABLES)
def test_a_table_means_the_same_however_it_is_written(change):
    check_equal(make_outcome_table(change(ROWS), "mine"), make_outcome_table(ROWS, "mine"))


@pytest.mark.parametrize("name", ["NA", "None", "null", "nan", "007", "1e3"])
@pytest.mark.parametrize("column", ["item", "group", "model"])
def test_any_text_may_be_a_name(tmp_path, name, column):
    rows = ROWS.assign(**{column: ROWS[column].replace(ROWS[column].iloc[0], name)})
    path = write_csv(tmp_path / "t.csv", rows)
    table = read_outcome_table(path)
    assert name in {"item": table.items, "group": table.groups, "model": table.models}[column]


def test_without_groups_every_item_is_one_and_a_note_says_so():
    table = make_outcome_table(ROWS.drop(columns="group"), "mine")
    assert table.groups.tolist() == table.items.tolist()
    assert any("every item is a group" in note for note in table.notes)


def test_prompts_become_numbers_without_a_look_at_outcomes():
    table = made(40)
    words = np.where(table.features[:, 0] > 0, "prove", "add")
    prompts = [f"{word} {index}" for index, word in enumerate(words)]
    rows = long(table, numbers=False).assign(prompt=np.repeat(prompts, 3))
    one = make_outcome_table(rows, "a")
    other = make_outcome_table(rows.assign(correct=1 - rows["correct"]), "a")
    assert (one.features == other.features).all() and np.isfinite(one.features).all()
    as_messages = [[{"role": "user", "content": prompt}] for prompt in rows["prompt"]]
    check_equal(make_outcome_table(rows.assign(prompt=as_messages), "a"), one)


def test_a_prompt_may_say_none():
    prompts = [f"question {index}" for index in range(12)]
    prompts[3] = "None"
    rows = long(made(12), numbers=False).assign(prompt=np.repeat(prompts, 3))
    assert len(make_outcome_table(rows, "mine")) == 12


@pytest.mark.skipif(not SHARED_TABLES.is_dir(), reason="the awkward tables are not at hand")
@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("03-semicolon-decimal-comma", ""),
        ("06-TRUE-FALSE", ""),
        ("08-percent", ""),
        ("09-group-NA", ""),
        ("11-header-blanks", ""),
        ("13-dollar-sign", ""),
        ("14-all-free", "free"),
        ("17-duplicate-row", "twice"),
        ("23-latin1", ""),
        ("26-two-items", "2 items"),
        ("29-prompt-None", ""),
    ],
)
def test_tables_that_users_reported_are_read_or_refused(name, reason):
    path = SHARED_TABLES / f"{name}.csv"
    if reason:
        with pytest.raises(TableError, match=reason):
            read_outcome_table(path)
        return
    table = read_outcome_table(path)
    assert table.correct.shape == (60, 3) and table.correct.mean() == pytest.approx(2 / 3)
    assert table.cost_usd.mean() == pytest.approx(0.003546, abs=1e-6)


def write_awkward_file(path, **changes):
    """A small CSV of 7 items and 2 models; changes: separator, decimal, encoding, and columns by name."""
    separator = changes.pop("separator", ",")
    decimal = changes.pop("decimal", ".")
    encoding = changes.pop("encoding", "utf-8")
    items = [f"q{index}" for index in range(7) for _ in range(2)]
    rows = pd.DataFrame(
        {
            "item": items,
            "group": [f"g{index % 4}" for index in range(7) for _ in range(2)],
            "model": ["small", "large"] * 7,
            "correct": [0.0, 1.0] * 3 + [1.0, 0.0] + [1.0, 1.0] * 3,
            "cost_usd": [0.25, 1.5] * 7,
            "prompt": [f"question {item}" for item in items],
        }
    )
    return write_csv(path, rows.assign(**changes), separator, decimal, encoding)


AWKWARD_FILES = {
    "semicolons and decimal commas": {"separator": ";", "decimal": ","},
    "a byte order mark": {"encoding": "utf-8-sig", "separator": ";"},
    "truth words in capitals": {"correct": ["FALSE", "TRUE"] * 3 + ["TRUE", "FALSE"] + ["TRUE", "TRUE"] * 3},
    "percent signs": {"correct": ["0 %", "100 %"] * 3 + ["100 %", "0 %"] + ["100 %", "100 %"] * 3},
    "dollar signs": {"cost_usd": ["$0.25", "$1.50"] * 7},
    "a group called NA": {"group": np.repeat(["NA", "g1", "g2", "g3", "NA", "g1", "g2"], 2)},
    "latin-1": {"encoding": "latin-1", "group": np.repeat(["Zürich", "g1", "g2", "g3", "g1", "g2", "g3"], 2)},
    "a prompt that says None": {"prompt": np.repeat(["None", *(f"question {index}" for index in range(6))], 2)},
}  # fmt: skip


@pytest.mark.parametrize("changes", AWKWARD_FILES.values(), ids=AWKWARD_FILES)
def test_a_file_that_can_be_meant_in_one_way_is_read(tmp_path, changes):
    table = read_outcome_table(write_awkward_file(tmp_path / "t.csv", **changes))
    assert table.models == ("large", "small") and len(table) == 7
    assert table.correct.mean(0) == pytest.approx([6 / 7, 4 / 7])
    assert table.cost_usd.mean(0) == pytest.approx([1.5, 0.25])


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"cost_usd": ["cheap", "1.5"] * 7}, ["cost_usd of line 2 is 'cheap'", "write a number"]),
        ({"cost_usd": ["0.25 €", "1.5"] * 7}, ["cost_usd of line 2", "convert it to US dollars"]),
        ({"cost_usd": 0.0}, ["all models are free", "write what a call costs"]),
        ({"correct": [np.nan, *[1.0] * 13]}, ["correct of line 2 is empty", "leave the row out"]),
        ({"correct": ["NaN", *["1"] * 13]}, ["correct of line 2", "'NaN'", "write a number"]),
        ({"correct": ["80%", *["1"] * 13]}, ["correct of line 3", "write all in one way"]),
        ({"model": "small"}, ["'q0', model 'small' stands there twice", "line 3", "drop the row"]),
        ({"item": [f"q{index}" for index in range(14)], "model": "small", "group": "g"}, ["one model, 'small'"]),
        ({"item": ["q0", "q0", "q1", "q1"] + ["q2"] * 10, "sample": range(14), "group": "g", "prompt": "p"}, ["3 it"]),
    ],
    ids=["text", "euros", "free", "empty", "NaN", "some percent", "twice", "one model", "few items"],
)  # fmt: skip
def test_a_file_that_cannot_be_used_is_refused_with_column_row_and_remedy(tmp_path, changes, parts):
    with pytest.raises(TableError) as error:
        read_outcome_table(write_awkward_file(tmp_path / "t.csv", **changes))
    for part in parts:
        assert part in str(error.value), str(error.value)


@pytest.mark.skipif(not SHARED_TABLES.is_dir(), reason="the awkward tables are not at hand")
def test_a_reported_table_that_lacks_one_outcome_is_read_without_its_item():
    table = read_outcome_table(SHARED_TABLES / "18-missing-model.csv")
    assert table.correct.shape == (59, 3)
    assert any("Of 60 items, 1 were left out" in note for note in table.notes)


def test_equal_prompts_share_a_group_where_there_are_no_groups():
    prompts = np.repeat([f"question {index // 2}" for index in range(12)], 3)
    table = make_outcome_table(BLANK.drop(columns="group").assign(prompt=prompts), "mine")
    assert len(set(table.groups)) == 6
    assert any("equal prompts share one" in note for note in table.notes)


def test_items_may_be_held_out_instead_of_groups(tmp_path):
    path = write_awkward_file(tmp_path / "t.csv")
    assert len(set(read_outcome_table(path).groups)) == 4
    table = read_outcome_table(path, hold_out="items")
    assert table.groups.tolist() == table.items.tolist()


def test_items_that_a_model_has_not_met_are_left_out_with_a_note():
    table = make_outcome_table(ROWS.iloc[1:], "mine")
    complete = make_outcome_table(ROWS.iloc[3:], "mine")
    assert any("Of 12 items, 1 were left out" in note for note in table.notes)
    check_equal(table, complete)


def test_samples_are_averaged_and_failed_calls_are_left_out():
    again = ROWS.assign(correct=1 - ROWS["correct"], sample=1)
    failed = ROWS.iloc[:5].assign(sample=2, correct=None, failure="timeout: none within 5 s")
    table = make_outcome_table(pd.concat([ROWS.assign(sample=0), again, failed]), "mine")
    assert (table.correct == 0.5).all()
    assert any("5 of 77 calls failed" in note for note in table.notes)
    assert any("averaged, 2 to 2 of each" in note for note in table.notes)
    unscored = pd.concat([ROWS.assign(sample=0), failed.assign(failure="")])
    check_refused(unscored, "correct of row 37", "empty")
    check_refused(failed, "all 5 calls failed")
    check_refused(pd.concat([again, again.iloc[:1]]), "stands there twice", "row 37")


def test_too_few_groups_become_items_and_equal_prompts_stay_together():
    table = make_outcome_table(ROWS.assign(group="all"), "mine")
    assert table.groups.tolist() == table.items.tolist()
    assert any("There are 1 groups" in note for note in table.notes)
    prompts = np.repeat([f"question {index // 2}" for index in range(12)], 3)
    shared = make_outcome_table(BLANK.assign(prompt=prompts, group="all"), "mine")
    assert len(set(shared.groups)) == 6 and shared.prompts[:3] == tuple(prompts[[0, 3, 6]])


def test_groups_describe_items_where_nothing_else_does():
    rows = long(made(40, groups=4), numbers=False)
    table = make_outcome_table(rows, "mine")
    assert table.features.shape == (40, 4) and (table.features.sum(1) == 1).all()
    assert table.groups.tolist() == table.items.tolist()
    assert any("There are no prompts" in note for note in table.notes)


def test_prompts_may_lie_beside_a_table(tmp_path):
    rows = BLANK.assign(prompt_hash=np.repeat([f"h{index}" for index in range(12)], 3))
    path = tmp_path / "outcomes.parquet"
    rows.to_parquet(path)
    with pytest.raises(TableError, match="nothing describes the items"):
        read_outcome_table(path)
    lines = []
    for index in range(12):
        messages = [{"role": "user", "content": f"question {index}"}]
        lines.append(json.dumps({"prompt_hash": f"h{index}", "messages": messages}))
    beside = get_prompts_path(path)
    beside.write_text("\n".join(lines))
    assert read_outcome_table(path).prompts[3] == "question 3"
    beside.write_text("\n".join(lines[1:]))
    with pytest.raises(TableError, match="lacks 1 prompts of the table, 'h0'"):
        read_outcome_table(path)


# Refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "parts"),
    [
        (ROWS.drop(columns="cost_usd"), ["no column cost_usd", "item, model, correct, cost_usd"]),
        (ROWS.assign(cost_usd=-1.0), ["cost_usd of row 1", "-1", "0 or more"]),
        (ROWS.assign(correct=np.nan), ["correct of row 1", "empty"]),
        (ROWS.assign(cost_usd=np.inf), ["cost_usd of row 1"]),
        (ROWS.assign(correct=2.0), ["correct of row 1", "0 to 1"]),
        (ROWS.assign(correct="maybe"), ["correct of row 1", "'maybe'"]),
        (ROWS.assign(cost_usd="€1"), ["cost_usd of row 1", "US dollars"]),
        (ROWS.assign(cost_usd="1,234"), ["cost_usd of row 1", "decimal comma"]),
        (ROWS[ROWS["model"] == "dear"], ["one model, 'dear'", "two"]),
        (ROWS.drop(index=range(0, 21, 3)), ["7 of 36 outcomes", "'cheap'", "'i0000'", "5 of 12 items"]),
        (pd.concat([ROWS, ROWS.iloc[:1]]), ["stands there twice", "'i0000'", "row 37"]),
        (ROWS.assign(group=[f"g{index}" for index in range(36)]), ["groups leak", "row 2"]),
        (ROWS.assign(prompt="the same"), ["groups leak", "prompt"]),
        (ROWS.assign(e0=np.nan), ["e0 of row 1", "empty"]),
        (ROWS.assign(e0="word"), ["e0 of row 1", "'word'"]),
        (ROWS.assign(e0=range(36)), ["e0 of row 2 differs", "'i0000'"]),
        (BLANK.assign(prompt=range(36)), ["prompt of row 2 differs", "'i0000'"]),
        (BLANK, ["nothing describes the items", "prompt"]),
        (BLANK.assign(prompt="  "), ["prompt is empty for 12 of 12"]),
        (BLANK.assign(prompt="same", group="g"), ["all 12 prompts"]),
        (BLANK.assign(embedding="x"), ["embedding of row 1", "list of numbers"]),
        (BLANK.assign(embedding=[[1.0], [1.0, 2.0]] * 18), ["embedding of row 2", "equally long"]),
        (ROWS.iloc[:0], ["no rows"]),
        (ROWS.assign(item=None), ["item of row 1 is empty"]),
        (ROWS.assign(item=[["a"]] * 36), ["item of row 1 is a list"]),
        (ROWS.assign(cost_usd=0), ["all models are free"]),
        (ROWS.assign(Score=1.0, SCORE=1.0).drop(columns="correct"), ["could each be correct"]),
        (long(made(1)), ["1 items"]),
        (long(made(3)), ["3 items"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "table",
)  # fmt: skip
def test_a_table_that_cannot_be_used_is_refused_with_its_reason(rows, parts):
    check_refused(rows, *parts)


def test_a_missing_file_and_a_file_of_another_kind_are_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no table")
    (tmp_path / "a.xlsx").write_bytes(b"no table")
    for name in ("nowhere.csv", "a.parquet", "a.xlsx"):
        with pytest.raises(TableError, match=re.escape(str(tmp_path / name))):
            read_outcome_table(tmp_path / name)


def test_a_message_names_the_line_of_the_file(tmp_path):
    path = write_csv(tmp_path / "t.csv", ROWS.assign(correct=[*["1"] * 9, "x", *["1"] * 26]))
    with pytest.raises(TableError, match="correct of line 11"):
        read_outcome_table(path)


@given(
    content=st.binary(max_size=200)
    | st.text('item,groupmdelcsa01.\n"-', max_size=200).map(str.encode)
)
@example(content=b"item,group,model,correct,dollars\na,b,c,1,1\n")
@example(content=b"item,group,model,correct,dollars\na,b,c,1,1\na,b,d,1,1\n")
@example(content=b'"')
@settings(max_examples=150, deadline=None)
def test_any_file_gives_a_table_or_a_refusal(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "t.csv"
    path.write_bytes(content)
    try:
        table = read_outcome_table(path)
    except TableError as error:
        assert str(path) in str(error) and len(str(error)) < 900
        return
    assert np.isfinite(table.correct).all() and len(table.models) > 1
    assert table.correct.shape == table.cost_usd.shape
