"""Items: what counts as an answer, which split an item is in, and what may be asked of `draw`."""

import hashlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import tasks
from lib.tasks import SPLITS, TaskError, answered, reply, score, verify
from tests.tasks.own import FAMILIES

KINDS = [(f.name, skin, d) for f in FAMILIES.values() for skin in f.skins for d in f.difficulties]
SOME = [tasks.draw(name, "train", 1, d, skin)[0] for name, skin, d in KINDS]


def called(item) -> str:
    return f"{item.category}-{item.skin}-{item.difficulty}"


# Answers ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "skin", "difficulty"), KINDS)
def test_the_solution_of_every_item_verifies(name, skin, difficulty):
    for split in SPLITS:
        for item in tasks.draw(name, split, 20, difficulty, skin, seed=3):
            assert verify(item, item.solution), item
            assert verify(item, reply(item.answer)), item
            assert (item.category, item.skin, item.difficulty, item.split) == (
                name,
                skin,
                difficulty,
                split,
            )


@pytest.mark.parametrize("item", SOME, ids=called)
def test_the_answer_to_another_question_does_not_verify(item):
    others = tasks.draw(item.category, "train", 50, item.difficulty, item.skin, seed=1)
    wrong = [other for other in others if other.answer.split() != item.answer.split()]
    assert wrong
    if (
        item.category == "story"
    ):  # many continuations are good; those about another hero and wish are not
        wrong = [
            o
            for o in wrong
            if not set(o.prompt.split()) & {w for w in item.prompt.split() if len(w) > 3} - ALIKE
        ]
    for other in wrong:
        assert not verify(item, other.solution), (item, other.answer)


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


@pytest.mark.parametrize("item", SOME, ids=called)
@pytest.mark.parametrize("spoiled", HALF + MORE + WRONG)
def test_a_right_answer_in_the_wrong_place_is_no_answer(item, spoiled):
    assert not verify(item, spoiled.format(answer=item.answer))


@pytest.mark.parametrize("item", SOME, ids=called)
def test_of_several_answers_the_last_one_counts(item):
    assert verify(item, f"<answer> zzz </answer> no , {item.solution}")
    assert verify(item, f"<answer> <answer> {item.answer} </answer>")


@settings(max_examples=200)
@given(st.text(max_size=40), st.text(max_size=40), st.text(" \n\t", max_size=3))
def test_what_is_in_the_last_tags_is_read_whatever_stands_before_them(before, inside, behind):
    inside = inside.replace("<answer>", "")
    expected = " ".join(inside.split())
    assert answered(f"{before}<answer>{inside}</answer>{behind}") == expected
    assert answered(f"{before}<answer>{inside}</answer>{behind}x") is None


@settings(max_examples=200)
@given(
    st.lists(
        st.sampled_from(["<answer>", "</answer>", "<think>", "</think>", " ", "7", "a ", "\n"]),
        max_size=12,
    )
)
def test_no_jumble_of_tags_breaks_a_verifier(pieces):
    text = "".join(pieces)
    for item in SOME:
        assert 0.0 <= score(item, text) <= 1.0
        assert verify(item, text) == (score(item, text) == 1.0)
        if not text.rstrip().endswith("</answer>"):
            assert score(item, text) == 0.0


# Splits -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_splits_share_no_key_and_no_prompt(name):
    drawn = {split: tasks.draw(name, split, 300, skin="any") for split in SPLITS}
    for what in ("key", "prompt"):
        held = [{getattr(item, what) for item in items} for items in drawn.values()]
        assert (
            all(held) and not held[0] & held[1] and not held[0] & held[2] and not held[1] & held[2]
        )


@pytest.mark.parametrize("item", SOME, ids=called)
def test_the_split_is_the_hash_of_the_key_and_of_nothing_else(item):
    tenth = int.from_bytes(hashlib.sha256(item.key.encode()).digest()[:8], "little") % 10
    assert item.split == (["train"] * 8 + ["dev", "test"])[tenth]


@pytest.mark.parametrize("name", ["chain", "big", "passage", "belief", "story", "translation"])
def test_of_all_contents_eight_tenths_are_for_training(name):
    """`draw` of a family knows no splits."""
    family, rng = FAMILIES[name], tasks.seeds.rng("test", "shares")
    hardest = family.difficulties[-1]
    splits = {
        item.key: item.split
        for item in (family.draw(rng, hardest, family.skins[0]) for _ in range(1_500))
    }
    shares = Counter(splits.values())
    assert abs(shares["train"] / len(splits) - 0.8) < 0.05
    assert (
        abs(shares["dev"] / len(splits) - 0.1) < 0.04
        and abs(shares["test"] / len(splits) - 0.1) < 0.04
    )


@pytest.mark.parametrize("name", ["chain", "facts"])
def test_two_skins_of_one_content_have_one_key_and_different_prompts(name):
    family = FAMILIES[name]
    for seed in range(50):
        for difficulty in family.difficulties:
            plain, other = (
                family.draw(tasks.seeds.rng("test", "skins", seed=seed), difficulty, skin)
                for skin in family.skins
            )
            assert (
                plain.key == other.key
                and plain.split == other.split
                and plain.prompt != other.prompt
            )


# Draws --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FAMILIES)
def test_equal_arguments_give_equal_items_and_another_seed_others(name):
    once, again = (tasks.draw(name, "train", 30, skin="any", seed=5) for _ in range(2))
    assert once == again
    assert once != tasks.draw(name, "train", 30, skin="any", seed=6)
    assert once[:10] == tasks.draw(name, "train", 10, skin="any", seed=5)


@pytest.mark.parametrize("name", FAMILIES)
def test_without_a_wish_all_difficulties_and_the_first_skin_are_drawn(name):
    family = FAMILIES[name]
    items = tasks.draw(name, "train", 200)
    assert {item.difficulty for item in items} == set(family.difficulties)
    assert {item.skin for item in items} == {family.skins[0]}
    assert {item.skin for item in tasks.draw(name, "train", 100, skin="any")} == set(family.skins)
    assert tasks.draw(name, "train", 0) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"name": "chains"}, "'chains'.*chain, big"),
        ({"split": "validation"}, "'validation'.*train, dev, test"),
        ({"difficulty": 9}, r"chain.*\(1, 2.*\[9\]"),
        ({"difficulty": [1, 0]}, r"\[0\]"),
        ({"difficulty": []}, "chain has difficulties"),
        ({"skin": "choice"}, "plain, words.*'choice'"),
    ],
    ids=str,
)
def test_what_there_is_not_is_named_beside_what_there_is(arguments, said):
    with pytest.raises(TaskError, match=said):
        tasks.draw(**{"name": "chain", "split": "train", "n": 1} | arguments)


@pytest.mark.parametrize("item", SOME, ids=called)
@pytest.mark.parametrize("blank", ["  ", "\n", "\t", "\r\n", " \u00a0"])
def test_white_space_between_words_does_not_matter(item, blank):
    spaced = blank + item.answer.replace(" ", blank) + blank
    assert verify(item, f"<answer>{spaced}</answer>{blank}")
    assert verify(
        item, f"<think>\n{item.reference}</think>{blank}<answer>{item.answer}</answer>\n\n"
    )


def test_blanks_inside_a_number_count():
    item = next(i for i in tasks.draw("big", "train", 50) if len(i.answer) > 2)
    assert verify(item, reply(item.answer))
    for at in range(1, len(item.answer)):
        assert not verify(item, reply(f"{item.answer[:at]} {item.answer[at:]}"))
    for wrong in (
        f"0{item.answer}",
        f"{item.answer}.0",
        f"+{item.answer}",
        item.answer[:-1],
        item.answer + "0",
    ):
        assert not verify(item, reply(wrong)), wrong


def test_difficulties_that_were_asked_for_are_drawn_evenly():
    drawn = Counter(item.difficulty for item in tasks.draw("chain", "train", 3_000, [2, 5, 7]))
    assert set(drawn) == {2, 5, 7} and all(abs(count - 1_000) < 120 for count in drawn.values())


def test_unique_items_have_different_keys():
    many = tasks.draw("chain", "dev", 60, 1)
    assert len({item.key for item in many}) < 60  # otherwise the next line says nothing
    few = tasks.draw("chain", "dev", 20, 1, unique=True)
    assert len({item.key for item in few}) == 20


def test_an_unknown_family_of_an_item_is_named_too():
    item = tasks.Item("?", "1", "", "riddles", 1, "riddles/1")
    with pytest.raises(TaskError, match="riddles"):
        score(item, "<answer> 1 </answer>")
