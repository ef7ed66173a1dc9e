"""Two sources of facts: what each knows, and which questions need which."""

import pytest

from lib.agent_configuration import sources
from lib.agent_configuration.questions import KINDS, questions
from lib.tasks import mixed
from lib.tools import Index, Sandbox

TRUTH = mixed.build_records()


def test_each_source_is_right_on_its_own_relations_and_wrong_on_every_entry_of_the_other_s():
    records = sources.build_records()
    documents = set(sources.build_documents())
    for relation, values in TRUTH.items():
        for subject, value in values.items():
            is_right = records[relation][subject] == value
            assert is_right == (relation not in sources.KNOWN_TO_DOCUMENTS)
            sentence = f"The {relation} of {subject} is {value} ."
            assert (sentence in documents) == (relation not in sources.KNOWN_TO_RECORDS)


def test_an_old_entry_is_of_the_same_kind_as_the_right_one():
    records = sources.build_records()
    for relation in sources.KNOWN_TO_DOCUMENTS:
        assert set(records[relation].values()) <= set(TRUTH[relation].values())


def test_every_question_has_a_source_and_both_sources_are_needed():
    needed = {}
    for kind in KINDS:
        needed[kind.name] = {
            sources.select_source(item) for item in questions(kind.name, "train", 60)
        }
    assert needed["chain"] == needed["passage"] == {"none"}
    assert needed["mixed"] == {"lookup"}
    for name in ("choice", "hops"):
        assert {"lookup", "search"} <= needed[name] <= {"lookup", "search", "either"}


@pytest.mark.parametrize("kind", ["choice", "hops"])
@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_half_of_the_questions_of_facts_want_the_documents(kind, split):
    needed = [sources.select_source(item) for item in questions(kind, split, 24)]
    assert needed.count("search") == 12


@pytest.mark.parametrize("kind", ["choice", "hops", "mixed"])
def test_the_source_of_a_question_leads_to_its_answer(kind):
    """Followed hop by hop through the records, or the documents, the answer comes out."""
    documents = Index(sources.build_documents())
    for item in questions(kind, "dev", 20):
        subject = item.id.split("/")[len(sources.list_relations(item)) + 1]
        for relation in reversed(sources.list_relations(item)):
            if sources.select_source(item) == "search":
                (sentence,) = documents.find_best(f"{relation} of {subject}")
                subject = sentence.split()[-2]
            else:
                subject = sources.build_records()[relation][subject]
        assert f"is {subject}" in item.worked_solution


def test_the_tools_of_the_agents_ask_these_sources():
    from lib.agent_configuration.experiment import make_toolbox

    with Sandbox() as sandbox:
        tools = make_toolbox(sandbox)
        assert tools["lookup"]({"relation": "job", "subject": "Ana"}) != TRUTH["job"]["Ana"]
        assert tools["search"]({"query": "job Ana"}) == f"The job of Ana is {TRUTH['job']['Ana']} ."
