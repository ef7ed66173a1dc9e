"""The two sources of facts that agents may ask, each of which is out of date on what the other one knows.

A question about a home needs the records (the tool `lookup`), one about a job needs the documents (the tool `search`):
an agent with both cannot see which entry is old, so tools and instructions have to fit the question. Both sources
agree on who is whose friend. A question whose facts no single source has is none of this lesson.

Left out: the facts themselves, which are those of `lib.tasks.mixed`.
"""

from collections.abc import Sequence
from functools import cache

from lib.experiment import seeds
from lib.tasks import mixed, multi_hop_facts
from lib.tasks.item import Item

VERSION = 1  # of which source knows what, and of the old entries
AGREED = ("friend",)
KNOWN_TO_RECORDS = ("home", "river", "mayor", mixed.RELATION)
KNOWN_TO_DOCUMENTS = ("job", "pet")
_FACT_GROUPS = ("facts", "mixed")  # families of `lib.tasks` whose questions need a source


@cache
def build_records() -> dict[str, dict[str, str]]:
    """Build the table behind the tool `lookup`: value by relation and subject; jobs and pets are out of date."""
    return _make_source(KNOWN_TO_DOCUMENTS)


@cache
def build_documents() -> tuple[str, ...]:
    """Write the sentences that the tool `search` finds; some of their facts are out of date.

    Returns:
        The sentences.
    """
    sentences = []
    for relation, values in _make_source(KNOWN_TO_RECORDS).items():
        if relation == mixed.RELATION:
            sentence = mixed.SENTENCE
        else:
            sentence = multi_hop_facts.RELATIONS[relation][2]
        sentences += [sentence.format(subject, value) for subject, value in values.items()]
    return tuple(sentences)


def _make_source(old_relations: Sequence[str]) -> dict[str, dict[str, str]]:
    """Make all facts, of which some are out of date.

    Args:
        old_relations: Relations in which each value is replaced by another one of the same relation.

    Returns:
        The value by relation and subject.
    """
    records = {}
    for relation, values in mixed.build_records().items():
        records[relation] = dict(values)
        if relation not in old_relations:
            continue
        rng = seeds.world("configuration", "old entries", relation)
        all_values = sorted(set(values.values()))
        for subject, value in values.items():
            wrong_values = [candidate for candidate in all_values if candidate != value]
            records[relation][subject] = str(rng.choice(wrong_values))
    return records


def list_relations(item: Item) -> tuple[str, ...]:
    """List the relations that a question asks for, such as home or friend, the last one first.

    Args:
        item: The question.

    Returns:
        Names of relations; none where it needs no source.
    """
    if item.group not in _FACT_GROUPS:
        return ()
    relations = (*AGREED, *KNOWN_TO_RECORDS, *KNOWN_TO_DOCUMENTS)
    # An id is "facts/home/friend/Ana" or "mixed/number/Ana/+38".
    words = item.id.split("/")[1:]
    return tuple(word for word in words if word in relations)


def select_source(item: Item) -> str | None:
    """Select the tool that has all facts of a question up to date.

    Args:
        item: The question.

    Returns:
        "lookup" or "search"; "either" where both do, "none" where no facts are needed, and None where neither has all.
    """
    relations = set(list_relations(item))
    if not relations:
        return "none"
    needs_records = bool(relations & set(KNOWN_TO_RECORDS))
    needs_documents = bool(relations & set(KNOWN_TO_DOCUMENTS))
    if needs_records and needs_documents:
        return None
    if needs_records:
        return "lookup"
    return "search" if needs_documents else "either"
