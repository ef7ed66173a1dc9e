"""JSON schemas: which are supported, and what fits them; held against the package jsonschema where it is installed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.language_models.serving.chat_completions.json_schema import (
    Mismatch,
    SchemaValidator,
    UnsupportedSchema,
)

PERSON = {
    "$defs": {
        "Address": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "Tree": {
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$ref": "#/$defs/Tree"}}},
        },
    },
    "title": "Person",
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}]},
        "colour": {"enum": ["red", "blue"]},
        "address": {"$ref": "#/$defs/Address"},
        "tree": {"$ref": "#/$defs/Tree"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
ANA = {"name": "Ana", "age": 3}
MISFITS = {
    "a list": ([], "reply: must be of type object"),
    "no age": ({"name": "Ana"}, "reply: lacks 'age'"),
    "a text for the age": (ANA | {"age": "3"}, "reply.age: fits no alternative"),
    "truth for the age": (ANA | {"age": True}, "reply.age: fits no alternative"),
    "half a year": (ANA | {"age": 3.5}, "reply.age: fits no alternative"),
    "a negative age": (ANA | {"age": -1}, "minimum 0"),
    "no letters": (ANA | {"name": ""}, "reply.name: 0 breaks minLength 1"),
    "a third colour": (ANA | {"colour": "green"}, "must be one of 'red', 'blue', not 'green'"),
    "another field": (ANA | {"shoe": 1}, "reply.shoe: must not be there"),
    "a part without its own": (ANA | {"address": {}}, "reply.address: lacks 'city'"),
    "a branch that is none": (ANA | {"tree": {"children": [{"children": 1}]}}, "children[0]"),
    "too many": (ANA | {"tags": ["a", "b", "c"]}, "3 breaks maxItems 2"),
    "twins": (ANA | {"tags": ["a", "a"]}, "reply.tags[1]: stands in it twice"),
}
UNSUPPORTED = {
    "a pattern": ({"properties": {"a": {"pattern": "(a+)+$"}}}, "#/properties/a/pattern"),
    "another document": ({"properties": {"a": {"$ref": "http://x/y"}}}, "not in this schema"),
    "a reference to nothing": ({"properties": {"a": {"$ref": "#/$defs/b"}}}, "leads nowhere"),
    "a circle": (
        {
            "properties": {"a": {"$ref": "#/$defs/b"}},
            "$defs": {"b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/b"}},
        },
        "leads back to itself",
    ),
    "not": ({"not": {}}, "#/not"),
    "an unknown type": ({"properties": {"a": {"type": "tuple"}}}, "#/properties/a/type"),
    "no list of names": ({"required": "a"}, "#/required"),
    "no schema": ({"properties": {"a": 7}}, "#/properties/a"),
    "a strange bound": ({"properties": {"a": {"minimum": "b"}}}, "#/properties/a/minimum"),
    "no alternatives": ({"anyOf": []}, "#/anyOf"),
}


def test_a_value_that_fits_passes():
    validator = SchemaValidator(PERSON)
    validator.check(ANA)
    validator.check({"name": "Ana", "age": None, "colour": "red", "tags": ["a", "b"]})
    validator.check(ANA | {"address": {"city": "Rome"}, "tree": {"children": [{"children": []}]}})


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_named_with_its_place(name):
    value, message = MISFITS[name]
    with pytest.raises(Mismatch) as caught:
        SchemaValidator(PERSON).check(value)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_a_schema_that_cannot_be_checked_is_refused_with_the_reason(name):
    schema, message = UNSUPPORTED[name]
    with pytest.raises(UnsupportedSchema) as caught:
        SchemaValidator({"type": "object"} | schema)
    assert message in str(caught.value)


def test_a_reply_that_is_no_object_is_refused():
    with pytest.raises(UnsupportedSchema, match='must be "object"'):
        SchemaValidator({"type": "array"})


def test_alternatives_inside_of_alternatives_take_no_longer_than_the_limit():
    """Each level doubles the work: 2^40 steps, were they not counted."""
    definitions = {
        f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}, {"$ref": f"#/$defs/d{n + 1}"}]}
        for n in range(40)
    }
    definitions["d40"] = {"type": "string"}
    schema = {"type": "object", "properties": {"a": {"$ref": "#/$defs/d0"}}, "$defs": definitions}
    with pytest.raises(Mismatch):
        SchemaValidator(schema).check({"a": 1})


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([0.5, 1.0, "", "a", "red"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "b", "name", "age"]), inner, max_size=3)
    ),
    max_leaves=6,
)
_SCHEMAS = st.recursive(
    st.sampled_from(
        [
            True,
            False,
            {},
            {"type": "integer"},
            {"type": ["string", "null"]},
            {"type": "number", "minimum": 0},
            {"enum": [1, "a", None, [True]]},
            {"const": 1},
            {"type": "string", "minLength": 1},
            {"type": "array", "maxItems": 1, "uniqueItems": True},
            {"multipleOf": 2},
        ]
    ),
    lambda inner: st.one_of(
        st.builds(
            lambda a, b, more: {
                "type": "object",
                "properties": {"a": a, "b": b},
                "required": ["a"],
                "additionalProperties": more,
            },
            inner,
            inner,
            inner,
        ),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(lambda first, items: {"prefixItems": [first], "items": items}, inner, inner),
        st.builds(lambda many: {"anyOf": many}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda many: {"oneOf": many}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda many: {"allOf": many}, st.lists(inner, min_size=1, max_size=3)),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=None)
@given(schema=_SCHEMAS, value=_VALUES)
def test_the_verdict_is_that_of_the_package_jsonschema(schema, value):
    jsonschema = pytest.importorskip("jsonschema", reason="jsonschema is not installed")
    whole = {"type": "object", "properties": {"value": schema}}
    expected = jsonschema.Draft202012Validator(whole).is_valid({"value": value})
    try:
        SchemaValidator(whole).check({"value": value})
        fits = True
    except Mismatch:
        fits = False
    assert fits == expected
