"""Items: what counts as an answer, which split an item is in, and what may be asked of `draw_items`."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import tasks
from lib.tasks import SPLITS, TaskError, extract_answer, format_reply, is_correct, score_reply
from tests.tasks.own import FAMILIES

ALL_ARGUMENTS = [
    (f.name, surface_form, d)
    for f in FAMILIES.values()
    for surface_form in f.surface_forms
    for d in f.difficulties
]
ONE_OF_EACH = [
    tasks.draw_items(name, "train", 1, d, surface_form)[0]
    for name, surface_form, d in ALL_ARGUMENTS
]


def name_item(item) -> str:
    return f"{item.group}-{item.surface_form}-{item.difficulty}"


# Answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "surface_form", "difficulty"), ALL_ARGUMENTS)
def test_the_solution_of_every_item_verifies(name, surface_form, difficulty):
    for split in SPLITS:
        for item in tasks.draw_items(name, split, 20, difficulty, surface_form, seed=3):
            assert is_correct(item, item.solution), item
            assert is_correct(item, format_reply(item.reference)), item
            assert (item.group, item.surface_form, item.difficulty, item.split) == (
                name,
                surface_form,
                difficulty,
                split,
            )


@pytest.mark.parametrize("item", ONE_OF_EACH, ids=name_item)
def test_the_answer_to_another_question_does_not_verify(item):
    others = tasks.draw_items(item.group, "train", 50, item.difficulty, item.surface_form, seed=1)
    wrong = [other for other in others if other.reference.split() != item.reference.split()]
    assert wrong
    if (
        item.group == "story"
    ):  # many continuations are good; those about another hero and wish are not
        wrong = [
            o
            for o in wrong
            if not set(o.prompt.split()) & {w for w in item.prompt.split() if len(w) > 3} - ALIKE
        ]
    for other in wrong:
        assert not is_correct(item, other.solution), (item, other.reference)


ALIKE = {"lived", "wanted", "with", "sentences"}


HALF = [
    "",
    "{answer}",
    "<answer> {answer}",
    "{answer} </answer>",
    "<answer> </answer>",
    "<answer></answer>",
]
MORE = [
    f"<answer> {{answer}} </answer> {more}"
    for more in ("and more", ".", "<answer> zzz </answer>", "</answer>")
]
WRONG = [
    "<answer> zzz {answer} </answer>",
    "<think> <answer> {answer} </answer> </think>",
    "<ANSWER> {answer} </ANSWER>",
]


@pytest.mark.parametrize("item", ONE_OF_EACH, ids=name_item)
@pytest.mark.parametrize("spoiled", HALF + MORE + WRONG)
def test_a_right_answer_in_the_wrong_place_is_no_answer(item, spoiled):
    assert not is_correct(item, spoiled.format(answer=item.reference))


@pytest.mark.parametrize("item", ONE_OF_EACH, ids=name_item)
def test_of_several_answers_the_last_one_counts(item):
    assert is_correct(item, f"<answer> zzz </answer> no , {item.solution}")
    assert is_correct(item, f"<answer> <answer> {item.reference} </answer>")


@settings(max_examples=200)
@given(st.text(max_size=40), st.text(max_size=40), st.text(" \n\t", max_size=3))
def test_what_is_in_the_last_tags_is_read_whatever_stands_before_them(before, inside, behind):
    inside = inside.replace("<answer>", "")
    expected = " ".join(inside.split())
    assert extract_answer(f"{before}<answer>{inside}</answer>{behind}") == expected
    assert extract_answer(f"{before}<answer>{inside}</answer>{behind}x") is None


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(["<answer>", "</answer>", "<think>", "</think>", " ", "7", "a ", "\n"]),
        max_size=12,
    )
)
def test_no_jumble_of_tags_breaks_a_verifier(pieces):
    text = "".join(pieces)
    for item in ONE_OF_EACH:
        assert 0.0 <= score_reply(item, text) <= 1.0
        assert is_correct(item, text) == (score_reply(item, text) == 1.0)
        if not text.rstrip().endswith("</answer>"):
            assert score_reply(item, text) == 0.0


# Splits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_splits_share_no_id_and_no_prompt(name):
    drawn = {split: tasks.draw_items(name, split, 300, surface_form="any") for split in SPLITS}
    for what in ("id", "prompt"):
        held = [{getattr(item, what) for item in items} for items in drawn.values()]
        assert (
            all(held) and not held[0] & held[1] and not held[0] & held[2] and not held[1] & held[2]
        )


@pytest.mark.parametrize("item", ONE_OF_EACH, ids=name_item)
def test_the_split_is_the_hash_of_the_id_and_of_nothing_else(item):
    tenth = int.from_bytes(hashlib.sha256(item.id.encode()).digest()[:8], "little") % 10
    assert item.split == (["train"] * 8 + ["dev", "test"])[tenth]


@pytest.mark.parametrize("name", ["chain", "big", "passage", "belief", "story", "translation"])
def test_of_all_contents_eight_tenths_are_for_training(name):
    """`draw_item` of a family knows no splits."""
    family, rng = FAMILIES[name], tasks.seeds.rng("test", "shares")
    hardest = family.difficulties[-1]
    splits = {
        item.id: item.split
        for item in (family.draw_item(rng, hardest, family.surface_forms[0]) for _ in range(1_500))
    }
    shares = Counter(splits.values())
    assert abs(shares["train"] / len(splits) - 0.8) < 0.05
    assert (
        abs(shares["dev"] / len(splits) - 0.1) < 0.04
        and abs(shares["test"] / len(splits) - 0.1) < 0.04
    )


@pytest.mark.parametrize("name", ["chain", "facts"])
def test_two_surface_forms_of_one_content_have_one_id_and_different_prompts(name):
    family = FAMILIES[name]
    for seed in range(50):
        for difficulty in family.difficulties:
            plain, other = (
                family.draw_item(
                    tasks.seeds.rng("test", "surface_forms", seed=seed), difficulty, surface_form
                )
                for surface_form in family.surface_forms
            )
            assert (
                plain.id == other.id and plain.split == other.split and plain.prompt != other.prompt
            )


# Draws --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_equal_arguments_give_equal_items_and_another_seed_others(name):
    once, again = (
        tasks.draw_items(name, "train", 30, surface_form="any", seed=5) for _ in range(2)
    )
    assert once == again
    assert once != tasks.draw_items(name, "train", 30, surface_form="any", seed=6)
    assert once[:10] == tasks.draw_items(name, "train", 10, surface_form="any", seed=5)


@pytest.mark.parametrize("name", FAMILIES)
def test_by_default_all_difficulties_and_the_first_surface_form_are_drawn(name):
    family = FAMILIES[name]
    items = tasks.draw_items(name, "train", 200)
    assert {item.difficulty for item in items} == set(family.difficulties)
    assert {item.surface_form for item in items} == {family.surface_forms[0]}
    assert {
        item.surface_form for item in tasks.draw_items(name, "train", 100, surface_form="any")
    } == set(family.surface_forms)
    assert tasks.draw_items(name, "train", 0) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"family": "chains"}, "'chains'.*chain, big"),
        ({"split": "validation"}, "'validation'.*train, dev, test"),
        ({"difficulty": 9}, r"chain.*\(1, 2.*\[9\]"),
        ({"difficulty": [1, 0]}, r"\[0\]"),
        ({"difficulty": []}, "chain has difficulties"),
        ({"surface_form": "choice"}, "plain, words.*'choice'"),
    ],
    ids=str,
)
def test_what_there_is_not_is_named_beside_what_there_is(arguments, said):
    with pytest.raises(TaskError, match=said):
        tasks.draw_items(**{"family": "chain", "split": "train", "n": 1} | arguments)


@pytest.mark.parametrize("item", ONE_OF_EACH, ids=name_item)
@pytest.mark.parametrize("blank", ["  ", "\n", "\t", "\r\n", " \u00a0"])
def test_white_space_between_words_does_not_matter(item, blank):
    spaced = blank + item.reference.replace(" ", blank) + blank
    assert is_correct(item, f"<answer>{spaced}</answer>{blank}")
    assert is_correct(
        item, f"<think>\n{item.worked_solution}</think>{blank}<answer>{item.reference}</answer>\n\n"
    )


def test_blanks_inside_a_number_count():
    item = next(i for i in tasks.draw_items("big", "train", 50) if len(i.reference) > 2)
    assert is_correct(item, format_reply(item.reference))
    for at in range(1, len(item.reference)):
        assert not is_correct(item, format_reply(f"{item.reference[:at]} {item.reference[at:]}"))
    for wrong in (
        f"0{item.reference}",
        f"{item.reference}.0",
        f"+{item.reference}",
        item.reference[:-1],
        item.reference + "0",
    ):
        assert not is_correct(item, format_reply(wrong)), wrong


def test_difficulties_that_were_asked_for_are_drawn_evenly():
    drawn = Counter(
        item.difficulty for item in tasks.draw_items("chain", "train", 3_000, [2, 5, 7])
    )
    assert set(drawn) == {2, 5, 7} and all(abs(count - 1_000) < 120 for count in drawn.values())


def test_unique_items_have_different_ids():
    many = tasks.draw_items("chain", "dev", 60, 1)
    assert len({item.id for item in many}) < 60  # otherwise the next line says nothing
    few = tasks.draw_items("chain", "dev", 20, 1, unique=True)
    assert len({item.id for item in few}) == 20


def test_an_unknown_family_of_an_item_is_named_too():
    item = tasks.Item("?", "1", "", "riddles", 1, "riddles/1")
    with pytest.raises(TaskError, match="riddles"):
        score_reply(item, "<answer> 1 </answer>")
