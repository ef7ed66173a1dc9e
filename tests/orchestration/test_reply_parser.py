"""Replies as models write them: what is a choice, what is a complaint, and that nothing is made up."""

import json
import re
import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib.llm.json_replies import LONGEST, InvalidReply
from lib.orchestration.reply_parser import KINDS, Choice, parse

NAMES = ("SO-d1", "SO-d2", "SO-d3")
GOOD = '{"reasoning": "gaps are open", "policy": "SO-d2"}'
SECONDS = 1.5  # that no reply may take; the longest that was found takes a fifth of it


def read(text: str, untried=NAMES, limit: int = 3) -> Choice:
    return parse(text, NAMES, untried, limit)


def complaint(text: str, untried=NAMES, limit: int = 3, names=NAMES) -> tuple[str, str]:
    """Kind and message of the refusal."""
    with pytest.raises(InvalidReply) as caught:
        parse(text, names, untried, limit)
    return caught.value.kind, str(caught.value)


# What is a choice --------------------------------------------------------------------------------

CLEAN = {
    "plain JSON": GOOD,
    "white space around it": f"\n\n  {GOOD}\t\n",
    "a fence": f"```\n{GOOD}\n```",
    "a fence with its language": f"```json\n{GOOD}\n```",
    "a fence on one line": f"```json {GOOD}```",
    "prose around a fence": f"My choice:\n```json\n{GOOD}\n```\nThat is all.",
    "a fence that was never closed": f"```json\n{GOOD}",
    "think-tags": f'<think>SO-d1? no: {{"policy": "SO-d1"}}</think>{GOOD}',
    "thinking-tags in capitals": f"<THINKING>hm</THINKING>\n{GOOD}",
    "several thoughts": f"<think>one</think><think>two</think>{GOOD}",
    "a thought that the prompt had opened": f'{{"policy": "SO-d1"}} or rather</think>\n{GOOD}',
    "thoughts and a fence": f"<think>```json\n{{}}\n```</think>```json\n{GOOD}\n```",
    "a thought that never ends": f"{GOOD}<think>was that right? SO-d1",
    "call beside it, null": '{"reasoning": "gaps are open", "policy": "SO-d2", "call": null}',
    "further fields": '{"reasoning": "gaps are open", "policy": "SO-d2", "confidence": 0.9, "rank": ["SO-d3"]}',
    "further fields, not numbers": '{"reasoning": "gaps are open", "policy": "SO-d2", "a": NaN, "b": -Infinity}',
    "a number of 6,000 digits": '{"reasoning": "gaps are open", "policy": "SO-d2", "n": '
    + "1" * 6000
    + "}",
    "escapes of JSON": r'{"reasoning": "gaps \u0061re open", "policy": "SO\u002dd2"}',  # the same strings
}
MENDED = {
    "prose before": f"I would say: {GOOD}",
    "prose after": f'{GOOD} Hope [this] "helps"!',
    "a list around it": f"[{GOOD},]",
    "a trailing comma": '{"reasoning": "gaps are open", "policy": "SO-d2",}',
    "single quotes": "{'reasoning': 'gaps are open', 'policy': 'SO-d2'}",
    "Python's None": "{'reasoning': 'gaps are open', 'policy': 'SO-d2', 'call': None}",
    "names without quotes": "{reasoning: 'gaps are open', policy: SO-d2}",
    "no comma between the fields": '{"reasoning": "gaps are open" "policy": "SO-d2"}',
    "typographic quotes": "{“reasoning”: “gaps are open”, “policy”: “SO-d2”}",
    "a byte order mark": "\ufeff" + GOOD,
    "a fence and a comma": '```json\n{"reasoning": "gaps are open", "policy": "SO-d2",}\n```',
}


@pytest.mark.parametrize("text", CLEAN.values(), ids=CLEAN)
def test_a_clean_reply_is_read_as_it_is(text):
    assert read(text) == Choice(reasoning="gaps are open", policy="SO-d2", repaired=False)


@pytest.mark.parametrize("text", MENDED.values(), ids=MENDED)
def test_a_slip_is_mended_and_counted(text):
    assert read(text) == Choice(reasoning="gaps are open", policy="SO-d2", repaired=True)


@pytest.mark.parametrize(
    "said",
    [
        "tags like <think> or </think> are no thoughts here",
        "```SO-d1``` and ```SO-d3``` are code",
        'braces } { in "quotes"',
        "policy: SO-d1, policy: SO-d3",
        "a\nb\\c\u2028d",
        "é中😀",
    ],
)
def test_the_strings_of_a_clean_reply_may_hold_anything(said):
    assert read(json.dumps({"reasoning": said, "policy": "SO-d2"})) == Choice(
        reasoning=said, policy="SO-d2"
    )


def test_half_a_surrogate_pair_does_not_get_into_the_record():
    reasoning = read(r'{"reasoning": "a\ud800b", "policy": "SO-d1"}').reasoning
    assert reasoning.encode() == b"a?b"


# What is a call ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ('"SO-d3"', ("SO-d3",)),
        ('["SO-d3"]', ("SO-d3",)),
        ('["SO-d3", "SO-d1", "SO-d2"]', ("SO-d3", "SO-d1", "SO-d2")),
        ('["SO-d3", "SO-d1",]', ("SO-d3", "SO-d1")),
    ],
)
def test_a_call_names_what_to_try_in_its_order(call, expected):
    choice = read(f'{{"reasoning": "unsure", "call": {call}, "policy": null}}')
    assert (choice.calls, choice.policy, choice.reasoning) == (expected, None, "unsure")


@pytest.mark.parametrize(
    ("call", "untried", "limit", "kind", "says"),
    [
        ('["SO-d1", "SO-d9"]', NAMES, 3, "unknown_policy", "'SO-d9'"),
        ('""', NAMES, 3, "unknown_policy", "''"),
        ('["SO-d1", "SO-d1"]', NAMES, 3, "already_tried", "SO-d1"),
        ('"SO-d2"', ("SO-d1", "SO-d3"), 2, "already_tried", "SO-d2"),
        ('["SO-d1", "SO-d2"]', ("SO-d1", "SO-d3"), 2, "already_tried", "SO-d2"),
        ('["SO-d1", "SO-d2"]', NAMES, 1, "wrong_fields", "1 to 1 names, got 2"),
        ('["SO-d1", "SO-d2", "SO-d3", "SO-d1"]', NAMES, 3, "wrong_fields", "got 4"),
        ("[]", NAMES, 3, "wrong_fields", "got 0"),
        ('"SO-d1"', NAMES, 0, "must_decide", "decide"),
        ('"SO-d9"', (), 0, "must_decide", "decide"),
        ("7", NAMES, 3, "wrong_fields", "call"),
        ('["SO-d1", null]', NAMES, 3, "wrong_fields", "call"),
        ('{"name": "SO-d1"}', NAMES, 3, "wrong_fields", "call"),
        ("false", NAMES, 3, "wrong_fields", "call"),
    ],
)
def test_a_call_that_cannot_be_carried_out_is_refused_by_name(call, untried, limit, kind, says):
    found, message = complaint(f'{{"reasoning": "unsure", "call": {call}}}', untried, limit)
    assert found == kind and says in message


# What is a complaint -----------------------------------------------------------------------------

REFUSED = {
    "an empty string": ("", "not_json"),
    "white space": (" \n\t ", "not_json"),
    "a refusal": ("I'm sorry, but I can't help with choosing SO-d1.", "not_json"),
    "a name without an object": ("SO-d1", "not_json"),
    "null": ("null", "not_json"),
    "a string": ('"SO-d1"', "not_json"),
    "only a thought": ('<think>{"policy": "SO-d1"}</think>', "not_json"),
    "a thought that never ends": ('<think>{"policy": "SO-d1"}', "not_json"),
    "a list": ('["SO-d1"]', "not_one_object"),
    "an object in a list": (f"[{GOOD}]", "not_one_object"),
    "two objects": (GOOD + GOOD.replace("d2", "d1"), "not_one_object"),
    "the same object twice": (f"{GOOD}\n{GOOD}", "not_one_object"),
    "two objects in prose": (f"Either {GOOD} or {GOOD}.", "not_one_object"),
    "two fenced blocks": (f"```json\n{GOOD}\n```\nor\n```json\n{GOOD}\n```", "not_one_object"),
    "an object and a placeholder in prose": (f"With {{x}} known: {GOOD}", "not_one_object"),
    "no field that counts": ('{"reasoning": "hm"}', "wrong_fields"),
    "an empty object": ("{}", "wrong_fields"),
    "a policy that is null": ('{"policy": null}', "wrong_fields"),
    "both null": ('{"policy": null, "call": null}', "wrong_fields"),
    "policy and call": ('{"policy": "SO-d1", "call": "SO-d2"}', "wrong_fields"),
    "a number for policy": ('{"policy": 1}', "wrong_fields"),
    "a policy one level down": ('{"answer": {"policy": "SO-d1"}}', "wrong_fields"),
    "a field in another case": ('{"Policy": "SO-d1"}', "wrong_fields"),
    "a list for reasoning": ('{"reasoning": ["a"], "policy": "SO-d1"}', "wrong_fields"),
    "a policy given twice": ('{"policy": "SO-d1", "policy": "SO-d2"}', "wrong_fields"),
    "a policy given twice and a comma": ('{"policy": "SO-d1", "policy": "SO-d2",}', "wrong_fields"),
    "a policy given twice without quotes": ("{policy: SO-d1, 'policy': SO-d2}", "wrong_fields"),
    "another field twice": (
        '{"reasoning": "a", "reasoning": "b", "policy": "SO-d1"}',
        "wrong_fields",
    ),
    "an unknown name": ('{"policy": "SO-d4"}', "unknown_policy"),
    "an empty name": ('{"policy": ""}', "unknown_policy"),
    "a name in another case": ('{"policy": "so-d1"}', "unknown_policy"),
    "a name with a blank": ('{"policy": "SO-d1 "}', "unknown_policy"),
    "a name in full-width letters": ('{"policy": "ＳＯ-ｄ１"}', "unknown_policy"),
    "a name with a typographic hyphen": ('{"policy": "SO‑d1"}', "unknown_policy"),
    "a part of a name": ('{"policy": "SO-d"}', "unknown_policy"),
    "two names": ('{"policy": "SO-d1 or SO-d2"}', "unknown_policy"),
    "a name in pieces": ('{"policy": "SO" "-d1"}', "unknown_policy"),
    "a name with a thought in it": ('{"policy": "SO<think>?</think>-d1"}', "unknown_policy"),
    "a name as escapes in broken JSON": (r"{'policy': 'SO\u002dd1'}", "unknown_policy"),
    "a name as Python's escapes": (r"{'policy': 'SO\x2dd1'}", "unknown_policy"),
    "half a surrogate pair": (r'{"policy": "\ud800"}', "unknown_policy"),
    "brackets that do not match": (GOOD + "}", "not_json"),
    "an object too long to mend": ('{"policy": "SO-d1", "a": "' + "b" * 5000 + '",}', "not_json"),
    "a huge reply": ('{"policy": "SO-d1"}' + " " * LONGEST, "too_long"),
}


@pytest.mark.parametrize(("text", "kind"), REFUSED.values(), ids=REFUSED)
def test_a_reply_without_a_clear_choice_is_refused(text, kind):
    assert complaint(text)[0] == kind


@pytest.mark.parametrize("end", range(1, len(GOOD)))
def test_a_reply_that_breaks_off_is_refused_wherever_it_does(end):
    kind, _ = complaint(
        GOOD[:end], names=(*NAMES, "SO-d")
    )  # also where what is left happens to be a name
    assert kind == "not_json"


# Anything at all ---------------------------------------------------------------------------------


def spelled_out(text: str) -> str:
    """A text with its JSON escapes as the characters they mean."""
    return re.sub(r"\\u([0-9a-fA-F]{4})", lambda found: chr(int(found[1], 16)), text)


def holds(text: str) -> None:
    """The promise of `parse`: a choice among the names, written in the reply, or a refusal of a known kind."""
    began = time.perf_counter()
    try:
        choice = read(text)
    except InvalidReply as refusal:
        assert refusal.kind in KINDS and str(refusal)
    else:
        picked = choice.calls or (choice.policy,)
        assert bool(choice.calls) != (choice.policy is not None)
        assert set(picked) <= set(NAMES) and len(set(picked)) == len(picked)
        assert all(name in spelled_out(text) for name in picked)
        choice.reasoning.encode()
    assert time.perf_counter() - began < SECONDS


signs = st.sampled_from(
    [
        *"{}[]\"':,\\ \n`<>/#-\ud800",
        *NAMES,
        '"policy"',
        '"call"',
        "policy",
        "call",
        "null",
        "NaN",
        "```",
        "```json",
        "<think>",
        "</think>",
        "\\u002d",
        "\\",
        "//",
        "/*",
        "1e999",
    ]
)
names = st.sampled_from([*NAMES, "so-d1", "SO-d9", "ＳＯ-d1", ""])
values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8) | names,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=6) | names, inner, max_size=4)
    ),
    max_leaves=12,
)
fields = st.dictionaries(
    st.sampled_from(["reasoning", "policy", "call", "x", "Policy"]), values, max_size=4
)
valid = st.one_of(
    st.builds(
        lambda said, name: json.dumps({"reasoning": said, "policy": name}),
        st.text(max_size=30),
        names,
    ),
    st.builds(
        lambda said, some: json.dumps({"reasoning": said, "call": some}),
        st.text(),
        st.lists(names, max_size=4),
    ),
    st.builds(lambda name: f"<think>hm</think>\n```json\n{{'policy': '{name}',}}\n```", names),
)


@st.composite
def mutated(draw):
    """A good reply after a few cuts, insertions and repetitions."""
    text = draw(valid)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(text)))
        length = draw(st.integers(0, 6))
        change = draw(st.sampled_from(["cut", "insert", "repeat", "end"]))
        if change == "cut":
            text = text[:at] + text[at + length :]
        elif change == "insert":
            text = text[:at] + draw(signs) + text[at:]
        elif change == "repeat":
            text = text[:at] + text[at : at + length] * 2 + text[at + length :]
        else:
            text = text[:at]
    return text


raw = st.binary(max_size=200)
anything = st.one_of(
    st.text(st.characters()),
    st.lists(signs, max_size=40).map("".join),
    mutated(),
    values.map(json.dumps),
    fields.map(json.dumps),
    fields.map(repr),
    raw.map(lambda told: told.decode(errors="replace")),
    raw.map(lambda told: told.decode("latin-1")),
)  # lone surrogates included


@given(anything)
@settings(max_examples=800, deadline=None)
@example(r'{"policy": "SO\u002dd1"}')
@example("}" * 9_000 + "{" * 9_000)
def test_any_text_gives_a_choice_among_the_names_or_a_refusal_of_a_known_kind(text):
    holds(text)


@given(st.text(max_size=200), st.sampled_from(NAMES), st.sampled_from([None, 0, 2]))
@settings(max_examples=200, deadline=None)
def test_whatever_a_model_says_its_well_formed_choice_is_read(said, name, indent):
    reply = json.dumps({"reasoning": said, "policy": name}, indent=indent, ensure_ascii=indent == 2)
    for text in (reply, f"<think>{said.replace('<', '')}</think>{reply}"):
        choice = read(text)
        assert (choice.policy, choice.reasoning, choice.repaired) == (name, said, False)


HEAVY = {
    "brackets": "[" * 10_000,
    "objects": '{"a":' * 3_000 + "1" + "}" * 3_000,
    "closing brackets first": "}" * 9_000 + "{" * 9_000,
    "objects that are short enough to mend": '{"a":' * 650 + "}" * 650,
    "an object of crumbs": "{" + "a:b," * 990 + "}",
    "a fence without an end": "```" + "a" * 19_000,
    "many thoughts": "<think>" * 2_800,
    "many escapes": '{"a": "' + "\\" * 19_000,
    "ten million characters": GOOD * 200_000,
}


@pytest.mark.parametrize("text", HEAVY.values(), ids=HEAVY)
def test_a_reply_that_is_hard_to_read_is_refused_in_bounded_time(text):
    began = time.perf_counter()
    kind, _ = complaint(text)
    assert kind in KINDS and time.perf_counter() - began < SECONDS


@pytest.mark.parametrize("reply", ['{"policy": "SO-d1"}', '{"reasoning": null, "policy": "SO-d1"}'])
def test_reasoning_may_be_missing(reply):
    assert read(reply) == Choice(reasoning="", policy="SO-d1")


@pytest.mark.parametrize("quote", ['"', "'"])
@pytest.mark.parametrize("said", ["a } b", "{ a }", "}}", "{a} } b"])
def test_braces_in_strings_do_not_hide_that_a_reply_breaks_off(quote, said):
    text = '{"reasoning": "%s", "policy": "SO-d12"}'.replace('"', quote) % said
    for end in range(text.index("policy"), len(text) - 1):
        assert complaint(text[:end])[0] in ("not_json", "wrong_fields")


def test_the_message_says_what_was_wrong_in_few_words():
    assert complaint('{"policy": "best one"}')[1] == "there is no policy 'best one'"
    assert complaint('{"policy": 3}')[1] == "field 'policy': Input should be a valid string"
    assert complaint("[1]")[1] == "one JSON object was expected, got a list"
    assert complaint(GOOD[:-4])[1] == "the JSON breaks off"
    assert (
        complaint(GOOD + "}")[1]
        == complaint("}" + GOOD)[1]
        == "the JSON has a closing bracket too many"
    )
    long = "x" * 9000
    for text in (f'{{"policy": "{long}"}}', f'{{"{long}": 1, "{long}": 2}}'):
        assert len(complaint(text)[1]) < 120
