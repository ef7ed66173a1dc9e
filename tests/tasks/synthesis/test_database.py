"""Databases: what the schema lets in, what calls reply, read and write."""

from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from lib.tasks.synthesis import DOMAINS, CallError, Database, TaskDomain, find_problems
from tests.tasks.synthesis.handmade import GUILD, HARBOUR, PEOPLE, SHELF, SOURCE, TOWN

BASE = {
    "name": "shop",
    "tables": [
        {
            "name": "boxes",
            "keys": ["a1", "b2"],
            "columns": [
                {"name": "label", "kind": "name"},
                {"name": "colour", "kind": "choice", "choices": ["red", "blue"]},
                {"name": "weight", "kind": "digit"},
            ],
        },
        {"name": "carts", "keys": ["x"], "columns": [{"name": "box", "kind": "reference", "of": "boxes"}]},
    ],
    "functions": [
        {"name": "lookup", "about": "", "effect": "get", "tables": ["boxes", "carts"],
         "columns": ["colour", "weight", "box"], "parameters": ["field", "name"]},
        {"name": "which", "about": "", "effect": "find", "tables": ["boxes"], "columns": ["colour", "weight"],
         "parameters": ["field", "value"]},
        {"name": "paint", "about": "", "effect": "set", "tables": ["boxes"], "columns": ["colour"],
         "parameters": ["box", "colour"]},
        {"name": "weigh", "about": "", "effect": "set", "tables": ["boxes"], "columns": ["weight"],
         "parameters": ["box", "weight"]},
        {"name": "load", "about": "", "effect": "set", "tables": ["carts"], "columns": ["box"],
         "parameters": ["cart", "box"]},
        {"name": "drop", "about": "", "effect": "remove", "tables": ["boxes"], "parameters": ["box"]},
    ],
}  # fmt: skip
SHOP = TaskDomain.model_validate(BASE)
BOXES = {
    "a1": {"label": "a1", "colour": "red", "weight": "3"},
    "b2": {"label": "b2", "colour": "red", "weight": "4"},
}
SHOP_RECORDS = {"boxes": BOXES, "carts": {"x": {"box": "a1"}}}


def shop() -> Database:
    return Database(SHOP, SHOP_RECORDS)


def test_functions_reply_and_note_what_they_operate_on():
    database = shop()
    assert database.call("lookup", ["weight", "a1"]) == "3"
    assert database.operated_entries == {("boxes", "a1")}
    assert database.call("which", ["colour", "red"]) == "a1 b2"
    assert database.operated_entries == {("boxes", "a1"), ("boxes", "b2")}
    assert database.call("paint", ["b2", "blue"]) == "done"
    assert database.call("load", ["x", "b2"]) == "done"
    assert database.call("drop", ["a1"]) == "done"
    assert database.read_records() == {
        "boxes": {"b2": BOXES["b2"] | {"colour": "blue"}},
        "carts": {"x": {"box": "b2"}},
    }
    assert ("carts", "x") in database.operated_entries


IMPOSSIBLE = {
    "wrong name": ["fly a1"],
    "wrong words": [
        "lookup weight",
        "lookup secret a1",
        "paint a1 green",
        "weigh a1 10",
        "weigh a1 3.0",
        "load x zz",
    ],
    "nothing found": ["lookup weight zz", "which colour green", "paint zz red", "paint a1' red"],
    "it is needed": ["drop a1"],
}


@pytest.mark.parametrize(
    "reply, line", [(reply, line) for reply, lines in IMPOSSIBLE.items() for line in lines]
)
def test_an_impossible_call_is_an_error_that_changes_nothing(reply, line):
    database = shop()
    before = database.serialize()
    with pytest.raises(CallError, match=f"^error {reply}$"):
        name, *arguments = line.split()
        database.call(name, arguments)
    assert database.serialize() == before and database.operated_entries == set()


def test_counting_ends_at_nought_and_nine():
    database = SHELF.open()
    assert database.call("took", ["Ana", "pens"]) == "done"
    with pytest.raises(CallError, match="number low"):
        database.call("took", ["Ana", "coins"])
    with pytest.raises(CallError, match="wrong words"):
        database.call("took", ["Ana", "friend"])
    home = {"home": "Loro", "friend": "Bo", "votes": "9"}
    people = {"Ana": home, "Bo": home | {"friend": "Ana", "votes": "8"}}
    town = Database(TOWN, {"people": people, "towns": {"Loro": {"river": "Belt", "mayor": "Bo"}}})
    assert town.call("vote", ["Bo"]) == "done"
    with pytest.raises(CallError, match="number high"):
        town.call("vote", ["Ana"])
    with pytest.raises(
        CallError, match="nothing found"
    ):  # a town of the domain that has no record here
        town.call("moves", ["Ana", "Mira"])


@given(st.lists(st.text(), max_size=4))
def test_no_call_whatever_it_says_does_more_than_reply(words):
    database = shop()
    before = database.serialize()
    for function in SHOP.functions:
        if function.writes and words and words[0] in BOXES:
            continue
        with pytest.raises(CallError):
            database.call(function.name, ["a1'; DROP TABLE boxes; --", *words])
    assert database.serialize() == before


def test_a_copy_is_independent():
    database = SOURCE.open()
    database.call("draft", ["Ana", "pilot"])
    copy = database.copy()
    assert (copy.serialize(), copy.operated_entries) == (
        database.serialize(),
        database.operated_entries,
    )
    copy.call("draft", ["Bo", "pilot"])
    assert (
        copy.serialize() != database.serialize()
        and ("people", "Bo") not in database.operated_entries
    )
    broken = shop().copy()
    with pytest.raises(CallError, match="needed"):  # references hold in a copy too
        broken.call("drop", ["a1"])


@pytest.mark.parametrize(
    "records, problem",
    [
        ({"boxes": BOXES}, "carts is empty"),
        (SHOP_RECORDS | {"planes": {}}, "no table 'planes'"),
        (SHOP_RECORDS | {"boxes": {"c3": BOXES["a1"]}}, "c3: no key"),
        (SHOP_RECORDS | {"boxes": BOXES | {"b2": {"label": "b2"}}}, "not those of the schema"),
        (SHOP_RECORDS | {"boxes": BOXES | {"b2": BOXES["a1"]}}, "label is 'a1', not the key"),
        (
            SHOP_RECORDS | {"boxes": BOXES | {"b2": BOXES["b2"] | {"weight": "12"}}},
            "weight cannot be '12'",
        ),
        (
            SHOP_RECORDS | {"boxes": BOXES | {"b2": BOXES["b2"] | {"colour": ["red"]}}},
            "colour cannot be",
        ),
        (SHOP_RECORDS | {"boxes": {"b2": BOXES["b2"]}}, "leads to no record: 'a1'"),
    ],
)
def test_records_that_break_a_rule_are_named_and_refused(records, problem):
    assert any(problem in each for each in find_problems(SHOP, records))
    with pytest.raises(ValueError, match="records of shop"):
        Database(SHOP, records)


def changed(path: list, value: object) -> dict:
    domain = deepcopy(BASE)
    place = domain
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return domain


@pytest.mark.parametrize(
    "path, value, message",
    [
        (["name"], 'shop"; DROP TABLE x', "pattern"),
        (["tables", 0, "name"], "carts", "carts is there twice"),
        (["tables", 0, "name"], "sqlite_master", "SQLite keeps"),
        (["tables", 0, "keys"], ["a1", "a1"], "a1 is there twice"),
        (["tables", 0, "keys"], ["a1\n"], "pattern"),
        (["tables", 0, "columns", 0, "name"], "key", "key is there twice"),
        (["tables", 0, "columns", 2, "choices"], ["9"], "choices are for a choice"),
        (["tables", 0, "columns", 1, "kind"], "date", "Input should be"),
        (["tables", 1, "columns", 0, "of"], "planes", "planes"),
        (["tables", 1, "columns", 0, "of"], None, "`of` is for a reference"),
        (["functions", 0, "tables"], ["planes"], "planes"),
        (["functions", 0, "columns"], ["size"], "in 0 of its tables"),
        (["functions", 0, "parameters"], ["field"], "takes 2 parameters"),
        (["functions", 1, "name"], "lookup", "lookup is there twice"),
        (["functions", 2, "columns"], ["colour", "weight"], "set has one column"),
        (["functions", 2, "columns"], ["label"], "repeats the key"),
        (
            ["functions", 2],
            BASE["functions"][2] | {"effect": "add", "parameters": ["box"]},
            "no digit column",
        ),
        (["functions", 2, "phrase"], "paint {box.__class__}", "no parameter"),
        (["functions", 4, "tables"], ["boxes", "carts"], "about one table"),
    ],
)
def test_a_domain_that_is_not_closed_is_refused(path, value, message):
    with pytest.raises(ValidationError, match=message):
        TaskDomain.model_validate(changed(path, value))


@pytest.mark.parametrize("domain", [*DOMAINS, SHOP], ids=lambda domain: domain.name)
def test_a_function_is_an_openai_schema_with_closed_lists(domain):
    for function, schema in zip(domain.functions, domain.build_tool_schemas(), strict=True):
        inner = schema["function"]
        assert schema["type"] == "function" and inner["name"] == function.name
        assert (
            inner["parameters"]["required"]
            == list(function.parameters)
            == list(inner["parameters"]["properties"])
        )
        assert all(each["enum"] for each in inner["parameters"]["properties"].values())
    fields, names = HARBOUR.build_tool_schemas()[0]["function"]["parameters"][
        "properties"
    ].values()  # of a lookup
    assert fields["enum"] == ["river", "keys", "judge", "fish"] and {"fox", "Dorn"} <= set(
        names["enum"]
    )


def test_equal_contents_are_equal_texts():
    back = SOURCE.open()
    back.call("draft", ["Ana", "pilot"])
    assert back.serialize() != SOURCE.open().serialize()
    back.call("draft", ["Ana", "baker"])
    assert back.serialize() == SOURCE.open().serialize()
    assert (
        Database(GUILD, {"people": dict(reversed(PEOPLE.items()))}).serialize()
        == SOURCE.open().serialize()
    )
