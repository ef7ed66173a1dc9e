"""Search and lookup: what fits best, in an order that does not change, whatever a query contains."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tools import Index, ToolError, lookup, search
from lib.tools.search import NOTHING

DOCUMENTS = (
    "The home of Ana is Loro .",
    "The friend of Ana is Cy .",
    "The home of Cy is Mira .",
    "The river of Loro is Abra .",
    "near and or not",
)
INDEX = Index(DOCUMENTS)
RECORDS = {"home": {"Ana": "Loro", "Cy": "Mira"}, "friend": {"Ana": "Cy"}}


def found(query: str, top: int = 1) -> str:
    return search(INDEX, top)({"query": query})


FITTING = {
    0: ["home Ana", "HOME ana", "What is the home of Ana ?", "the river of the home of Ana"],
    1: ["friend of Ana"],
    2: ["Cy home"],
    3: ["river", "Loro river"],
    4: ["NOT", "AND or NEAR"],  # operators of the index are found as words
}


@pytest.mark.parametrize(
    "document, query", [(number, query) for number in FITTING for query in FITTING[number]]
)
def test_the_document_with_most_of_the_words_is_found(document, query):
    assert found(query) == DOCUMENTS[document]


def test_a_document_with_all_words_comes_before_a_shorter_one_with_a_rare_word():
    index = Index(["a common long tale of the red fox and the dog", "fox", "red red red red"])
    assert index.find_best("red fox", top=3)[0].startswith("a common")


def test_among_documents_with_the_same_words_the_one_with_the_phrase_comes_first():
    index = Index(["Ana of home", "the home of Ana is near Cy", "of home Ana"])
    assert index.find_best("home of Ana") == ["the home of Ana is near Cy"]
    assert index.find_best("home Ana of") == ["Ana of home"]  # none has this phrase


def test_equal_documents_come_in_their_order_and_as_many_as_wanted():
    index = Index([f"same words {'x' if i == 7 else 'y'}" for i in range(20)])
    assert index.find_best("same words", top=3) == list(index.documents[:3])
    assert (
        index.find_best("same x", top=1) == ["same words x"]
        and len(index.find_best("words", top=50)) == 20
    )


@pytest.mark.parametrize("query", ["", "  ", "?", "zebra", "...", '"', "*", "^", "é", "\x00"])
def test_nothing_found_is_a_reply(query):
    assert found(query) == NOTHING


OPERATORS = [
    'home" OR "friend',
    "AND OR NOT",
    "NEAR(home Ana, 2)",
    "- home",
    "{text} : home",
    'rank MATCH "bm25(10)"',
]
ODD = ['"""', "'; DROP TABLE documents; --", "home\x00Ana", "a" * 10_000, "or " * 3_000]


@pytest.mark.parametrize("query", OPERATORS + ODD)
def test_operators_of_the_index_are_only_words(query):
    found(query, top=5)
    assert found("home Ana") == DOCUMENTS[0] and len(INDEX.find_best("of", top=9)) == 4


@given(st.text(max_size=80))
def test_any_query_has_a_reply_and_always_the_same(query):
    assert found(query, top=3) == found(query, top=3)


@given(st.lists(st.sampled_from(["red", "fox", "dog", "AND", "blue"]), min_size=1, max_size=5))
def test_no_document_found_holds_fewer_of_the_words_than_one_left_out(words):
    documents = ["red fox", "red dog blue", "and fox dog", "blue", "cat"]
    wanted = {word.lower() for word in words}
    held = [len(wanted & set(document.split())) for document in documents]
    best = Index(documents).find_best(" ".join(words))
    assert held[documents.index(best[0])] == max(held) if max(held) else best == []


def test_an_index_travels_to_another_process_by_its_documents():
    assert pickle.loads(pickle.dumps(INDEX)).find_best("river") == [DOCUMENTS[3]]


def test_lookup_gives_the_value_of_a_record():
    tool = lookup(RECORDS)
    assert (
        tool(tool.parse_line("home Ana")) == "Loro"
        and tool({"relation": " friend ", "subject": "Ana "}) == "Cy"
    )


@pytest.mark.parametrize(
    "line, message",
    [
        ("job Ana", "knows no relation 'job'; there are home, friend"),
        ("home Bo", "knows no subject of 'home' 'Bo'; there are Ana, Cy"),
        ("home Ana Cy", "'Ana Cy'"),
        ("__class__ Ana", "no relation"),
        ("x" * 5_000 + " Ana", "no relation"),
    ],
)
def test_lookup_names_what_there_is(line, message):
    tool = lookup(RECORDS)
    with pytest.raises(ToolError, match="^lookup ") as caught:
        tool(tool.parse_line(line))
    assert message in str(caught.value) and len(str(caught.value)) < 250


def test_lookup_lists_only_some_of_many():
    tool = lookup({"home": {f"person{i}": "Loro" for i in range(500)}})
    with pytest.raises(ToolError, match="person7 and 492 more$"):
        tool(tool.parse_line("home nobody"))
