"""What is learned from: three categories in turn, or a file of one's own."""

from lib.conductor import data
from lib.conductor.data import CATEGORIES
from lib.language_models.training.training_data import write_question


def test_the_categories_take_turns():
    items = data.draw_items("train", 10)
    assert [data.get_category(item) for item in items] == (list(CATEGORIES) * 4)[:10]
    for name, (family, skin, levels) in CATEGORIES.items():
        mine = [item for item in data.draw_items("dev", 40) if data.get_category(item) == name]
        assert {item.group for item in mine} == {family} and {
            item.surface_form for item in mine
        } == {skin}
        assert {item.difficulty for item in mine} == set(levels)


def test_splits_share_nothing():
    drawn = {split: data.draw_items(split, 200) for split in ("train", "dev", "test")}
    for split, items in drawn.items():
        assert {item.split for item in items} == {split} and len(items) == 200
    prompts = {split: {item.prompt for item in items} for split, items in drawn.items()}
    assert not (
        prompts["train"] & prompts["dev"]
        or prompts["train"] & prompts["test"]
        or prompts["dev"] & prompts["test"]
    )


def test_items_are_those_of_the_seed():
    assert (
        data.draw_items("train", 12, seed=1)
        == data.draw_items("train", 12, seed=1)
        != data.draw_items("train", 12, seed=2)
    )


def test_a_dataset_has_questions_references_and_the_number_of_the_item():
    items = data.draw_items("train", 8)
    made = data.make_dataset(items)
    assert made.column_names == ["prompt", "reference", "category", "row"] and made["row"][
        :
    ] == list(range(8))
    for item, row in zip(items, made, strict=True):
        assert row["prompt"] == write_question(item) and row["reference"] == item.reference
        assert row["category"] == data.get_category(item)
