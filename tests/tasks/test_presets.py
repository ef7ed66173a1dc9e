"""Published data sets: ten rows of one's own in every layout, and the original files where they are at hand."""

import json
import os
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

from lib.tasks import TaskError, load
from lib.tasks.presets import NOT_CHECKED, PRESETS
from lib.tasks.presets.mathematics import find_boxed
from lib.tasks.scorers import make_scorer

FIXTURES = Path(__file__).parent / "fixtures"
DATA = Path(os.environ.get("BENCH_DATA", Path(__file__).parents[3] / "shared" / "data"))
needs_originals = pytest.mark.skipif(not DATA.is_dir(), reason=f"no published files in {DATA}")

# Per preset the fixtures in its layouts, with the number of items that ten rows make.
LAYOUTS = [
    ("gsm8k", "gsm8k/test.jsonl", 10),
    ("math", "math500.jsonl", 10),
    ("math", "math.jsonl", 10),
    ("deepscaler", "deepscaler.json", 10),
    ("aime", "aime.jsonl", 10),
    ("amc", "amc.jsonl", 10),
    ("mmlu", "mmlu/test", 10),
    ("mmlu", "mmlu.parquet", 10),
    ("medqa", "medqa.jsonl", 10),
    ("gpqa", "gpqa.csv", 10),
    ("tombench", "tombench", 20),
    ("tombench_zh", "tombench", 20),
    ("emobench", "emobench", 15),
    ("hotpotqa", "hotpotqa.json", 10),
    ("hotpotqa", "hotpotqa_hf.jsonl", 10),
    ("hotpotqa_questions", "hotpotqa.json", 10),
    ("drop", "drop_dataset_dev.json", 10),
    ("drop", "drop_hf.jsonl", 10),
    ("nq", "nq.jsonl", 10),
    ("popqa", "popqa.tsv", 10),
    ("gaia", "gaia", 9),
    ("frames", "frames.tsv", 10),
    ("hle", "hle.jsonl", 9),
    ("natural_reasoning", "natural_reasoning.jsonl", 9),
    ("webinstruct", "webinstruct.parquet", 10),
    ("humaneval", "HumanEval.jsonl.gz", 10),
    ("opus", "opus", 8),
    ("opus", "own.en-fr.tsv", 8),
    ("opus", "opus_hf.jsonl", 8),
    ("routellm", "routellm", 20),
    ("lm_eval", "samples_gsm8k_2025-01-31T10-00-00.000000.jsonl", 5),
    ("lm_eval", "samples_mmlu.jsonl", 10),
]


def load_fixture(preset: str, name: str, **options):
    return load(f"{preset}:{FIXTURES / name}", **options)


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_jsonl(name: str) -> list[dict]:
    return [json.loads(line) for line in (FIXTURES / name).read_text(encoding="utf-8").splitlines()]


# All presets


def test_every_preset_has_a_fixture():
    assert {preset for preset, _, _ in LAYOUTS} == set(PRESETS)


@pytest.mark.parametrize(("preset", "name", "num_items"), LAYOUTS)
def test_ten_rows_in_a_published_layout_are_read(preset, name, num_items):
    dataset = load_fixture(preset, name)
    assert (len(dataset), dataset.name) == (num_items, preset)
    assert all(item.prompt.strip() and item.group and item.id for item in dataset)
    assert all(item.reference for item in dataset) == PRESETS[preset].has_references
    assert dataset.summarize()["items"].sum() == num_items


@pytest.mark.parametrize(("preset", "name", "num_items"), LAYOUTS)
def test_notes_say_whether_the_layout_was_checked(preset, name, num_items):
    checked = PRESETS[preset].layout_checked
    assert any(NOT_CHECKED in note for note in load_fixture(preset, name).notes) != checked
    assert (NOT_CHECKED in PRESETS[preset].description) != checked


@pytest.mark.parametrize(("preset", "name", "num_items"), LAYOUTS)
def test_the_reference_of_an_item_is_right_and_a_wrong_answer_is_not(preset, name, num_items):
    dataset = load_fixture(preset, name)
    if not PRESETS[preset].has_references or dataset.scorer == "code":
        pytest.skip("no reference, or a program: see the test of its own")
    scorer = make_scorer(dataset.scorer)
    right = [f"I think so. <answer> {item.reference} </answer>" for item in dataset]
    assert [score.value for score in scorer.score(dataset.items, right)] == [1.0] * num_items
    wrong = ["<answer> Z </answer>"] * num_items
    assert max(score.value for score in scorer.score(dataset.items, wrong)) == 0


@pytest.mark.parametrize(("preset", "name", "num_items"), LAYOUTS)
def test_a_file_in_another_layout_is_refused_with_its_row(preset, name, num_items, tmp_path):
    path = write_jsonl(tmp_path / "other.jsonl", [{"text": "something else", "number": 3}])
    with pytest.raises(TaskError, match=rf"{re.escape(str(path))}.*{preset}") as caught:
        load(f"{preset}:{path}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("preset", "name", "column", "value"),
    [
        ("hotpotqa", "hotpotqa_hf.jsonl", "context", "a text"),
        ("hotpotqa", "hotpotqa_hf.jsonl", "context", [1, 2]),
        ("hotpotqa", "hotpotqa_hf.jsonl", "question", None),
        ("drop", "drop_hf.jsonl", "answers_spans", "12"),
        ("drop", "drop_hf.jsonl", "passage", ""),
        ("gsm8k", "gsm8k/test.jsonl", "answer", "just 5"),
        ("gsm8k", "gsm8k/test.jsonl", "question", {"a": 1}),
        ("math", "math.jsonl", "solution", "no box here"),
        ("medqa", "medqa.jsonl", "options", {"A": "x", "C": "y"}),
        ("medqa", "medqa.jsonl", "answer_idx", "E"),
        ("tombench", "tombench/False Belief Task.jsonl", "答案\nANSWER", "E"),
        ("emobench", "emobench/EA.jsonl", "label", "Say something else"),
        ("nq", "nq.jsonl", "answer", []),
        ("nq", "nq.jsonl", "answer", True),
        ("opus", "opus_hf.jsonl", "translation", {"en": "a"}),
        ("lm_eval", "samples_mmlu.jsonl", "target", 7),
        ("lm_eval", "samples_mmlu.jsonl", "arguments", []),
        ("lm_eval", "samples_mmlu.jsonl", "filtered_resps", ["x"]),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_with_its_line(
    preset, name, column, value, tmp_path
):
    rows = read_jsonl(name)
    rows[1][column] = value
    path = write_jsonl(tmp_path / "broken.jsonl", rows)
    with pytest.raises(TaskError, match=f"{re.escape(str(path))}, line 2") as caught:
        load(f"{preset}:{path}")
    assert "\n" not in str(caught.value)


# Folders


def test_a_folder_needs_a_split_where_it_has_several():
    with pytest.raises(TaskError, match="the splits test, train; say split="):
        load_fixture("gsm8k", "gsm8k")
    assert load_fixture("gsm8k", "gsm8k", split="test").items[0].reference == "7"
    assert load_fixture("gsm8k", "gsm8k", split="train").items[0].reference == "8"
    with pytest.raises(TaskError, match="no file of the split 'dev'"):
        load_fixture("gsm8k", "gsm8k", split="dev")
    assert len(load_fixture("mmlu", "mmlu", split="dev")) == 10


def test_a_folder_with_the_name_of_a_preset_is_read_as_that():
    dataset = load(FIXTURES / "gsm8k", split="test")
    assert dataset.name == "gsm8k" and "folder has this name" in dataset.notes[0]


def test_several_files_where_one_is_due_are_listed(tmp_path):
    for name in ("one.jsonl", "two.jsonl"):
        shutil.copy(FIXTURES / "nq.jsonl", tmp_path / name)
    with pytest.raises(TaskError, match="one.jsonl, two.jsonl.*give one"):
        load(f"nq:{tmp_path}")
    shards = tmp_path / "shards"
    shards.mkdir()
    for number in range(2):
        shutil.copy(FIXTURES / "nq.jsonl", shards / f"train-0000{number}-of-00002.jsonl")
    dataset = load(f"nq:{shards}")
    assert len(dataset) == 10 and any("Dropped" in note for note in dataset.notes)


def test_a_file_without_any_usable_row_says_why(tmp_path):
    rows = [row | {"Final answer": "?"} for row in read_jsonl("gaia/metadata.jsonl")]
    with pytest.raises(TaskError, match="no usable row for gaia.*not public"):
        load(f"gaia:{write_jsonl(tmp_path / 'metadata.jsonl', rows)}")


# Mathematics


def test_gsm8k_keeps_the_solution_and_the_number_as_it_is_written():
    items = load_fixture("gsm8k", "gsm8k/test.jsonl").items
    assert items[7].reference == "1,234"
    assert items[7].worked_solution == "She has 1000 + 234 = <<1000+234=1234>>1234 pears."


def test_math_has_subject_level_and_the_answer_in_the_box():
    published, distilled = (load_fixture("math", name) for name in ("math.jsonl", "math500.jsonl"))
    assert [item.reference for item in published] == [item.reference for item in distilled]
    item = distilled.items[9]
    assert (item.group, item.difficulty) == ("Counting & Probability", 5)
    assert published.items[0].difficulty == 1  # its level is "?"


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"so \boxed{3}", "3"),
        (r"\boxed{1} or rather \boxed{\frac{1}{2}}.", r"\frac{1}{2}"),
        (r"\fbox{x^{2}}", "x^{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{1", ""),
        ("none", ""),
    ],
)
def test_the_last_box_is_read_with_its_braces(solution, answer):
    assert find_boxed(solution) == answer


# Options


def test_both_layouts_of_mmlu_give_the_same_questions():
    csv_items, parquet_items = (
        load_fixture("mmlu", name) for name in ("mmlu/test", "mmlu.parquet")
    )
    for csv_item, parquet_item in zip(csv_items, parquet_items, strict=True):
        assert csv_item.prompt == parquet_item.prompt
        assert (csv_item.reference, csv_item.id) == (parquet_item.reference, parquet_item.id)
    assert csv_items.items[0].group == "high_school_biology"
    assert parquet_items.items[1].group == "astronomy"


def test_options_of_gpqa_are_shuffled_by_the_seed_and_the_letter_follows():
    dataset = load_fixture("gpqa", "gpqa.csv")
    letters = [item.reference for item in dataset]
    assert len(set(letters)) > 1
    for item in dataset:
        right_text = item.worked_solution.removeprefix("Because\nit is ").removesuffix(".")
        assert item.choices["ABCD".index(item.reference)] == right_text
    assert load_fixture("gpqa", "gpqa.csv") == dataset
    reseeded = load_fixture("gpqa", "gpqa.csv", seed=1)
    assert [item.reference for item in reseeded] != letters
    assert [item.id for item in reseeded] == [item.id for item in dataset]
    # The order of an item's options does not change with what else is loaded.
    few = load_fixture("gpqa", "gpqa.csv", limit=3)
    assert set(few.items) <= set(dataset.items)


def test_tombench_has_two_languages_and_questions_with_two_options():
    english, chinese = (
        load_fixture(name, "tombench").items for name in ("tombench", "tombench_zh")
    )
    assert english[1].choices == ("box", "bag", "drawer", "basket")
    assert chinese[1].choices == ("盒子", "包", "抽屉", "篮子")
    assert english[9].choices == ("box", "bag") and english[3].reference == "A"
    assert {item.group for item in english} == {"False Belief Task", "Hinting Task Test"}
    assert english[0].metadata["ability"] == "Belief: Location false beliefs"


def test_both_questions_about_a_scenario_of_emobench_are_on_one_side_of_a_split():
    dataset = load_fixture("emobench", "emobench")
    assert {item.group for item in dataset} == {"EA", "EU-emotion", "EU-cause"}
    train, test = dataset.split_by_id(0.5)
    for subset in (train, test):
        emotions = [item.id for item in subset if item.group == "EU-emotion"]
        assert emotions == [item.id for item in subset if item.group == "EU-cause"]


# Short answers


def test_both_layouts_of_hotpotqa_give_the_same_items():
    items, items_of_hugging_face = (
        load_fixture("hotpotqa", name) for name in ("hotpotqa.json", "hotpotqa_hf.jsonl")
    )
    assert items.items == items_of_hugging_face.items
    item = items.items[0]
    assert item.prompt.startswith("Ada\nAda is a poet. Ada was born in Ruvo.\n\nRuvo\n")
    assert (item.group, item.difficulty, item.id) == ("bridge", 1, "hp0")
    assert item.metadata["supporting_titles"] == ["Ada", "Ruvo"]
    question_only = load_fixture("hotpotqa_questions", "hotpotqa.json").items[0]
    assert item.prompt.endswith(question_only.prompt) and "poet." not in question_only.prompt


def test_answers_of_drop_are_numbers_dates_or_several_spans():
    items = {item.id: item for item in load_fixture("drop", "drop_dataset_dev.json")}
    assert (items["q1a"].reference, items["q1a"].alternatives) == ("9", ("3 and 6",))
    assert items["q1b"].metadata["accepted_spans"] == [["Ada", "Ben"]]
    assert items["q0b"].reference == "3 May 1900"
    assert items["q0b"].group == "nfl" and items["q4b"].group == "history"
    items = load_fixture("drop", "drop_hf.jsonl").items
    assert items[0].metadata["accepted_spans"] == [["Ruvo", "Lake Ela"]]
    assert items[1].metadata["accepted_spans"] == [["3"]]


def test_accepted_answers_of_question_lists_are_alternatives():
    assert load_fixture("nq", "nq.jsonl").items[1].alternatives == ("Mercury indeed",)
    item = load_fixture("popqa", "popqa.tsv").items[0]
    assert (item.reference, item.alternatives, item.id) == ("Lake Ela", ("Ela",), "100")


def test_what_the_test_cannot_use_is_left_out_with_a_note():
    assert any("not public" in note for note in load_fixture("gaia", "gaia").notes)
    assert any("an image: 1 of 10" in note for note in load_fixture("hle", "hle.jsonl").notes)
    notes = load_fixture("natural_reasoning", "natural_reasoning.jsonl").notes
    assert any("no reference answer: 1 of 10" in note for note in notes)


# Programs and translation


def test_programs_of_humaneval_pass_their_own_tests():
    dataset = load_fixture("humaneval", "HumanEval.jsonl.gz", limit=2)
    replies = [f"```python\n{item.metadata['prompt']}{item.reference}```" for item in dataset]
    scores = make_scorer("code").score(dataset.items, replies)
    assert [score.value for score in scores] == [1, 1], scores


def test_humaneval_comes_with_its_package():
    dataset = load("humaneval")
    assert (len(dataset), dataset.scorer, dataset.notes) == (164, "code", ())
    assert dataset.items[0].metadata["entry_point"] == "has_close_elements"
    assert "def check(candidate)" in dataset.items[0].metadata["test"]


def test_all_layouts_of_parallel_text_give_the_same_items():
    datasets = [load_fixture("opus", name) for name in ("opus", "own.en-fr.tsv", "opus_hf.jsonl")]
    assert datasets[0].items == datasets[1].items == datasets[2].items
    item = datasets[0].items[0]
    assert item.prompt == "Translate from English to French.\n\nGood morning ."
    assert (item.reference, item.alternatives) == ("Bonjour .", ("Salut .",))
    # Either of two line-aligned files will do.
    other_half = load_fixture("opus", "opus/Own.en-fr.fr")
    assert other_half.items == datasets[0].items


def test_parallel_text_that_does_not_fit_is_refused(tmp_path):
    english = tmp_path / "a.en-de.en"
    english.write_text("one\ntwo\n")
    with pytest.raises(TaskError, match="a.en-de.de does not exist"):
        load(f"opus:{english}")
    (tmp_path / "a.en-de.de").write_text("eins\n")
    with pytest.raises(TaskError, match="2 lines of en and 1 of de"):
        load(f"opus:{english}")
    (tmp_path / "nameless.tsv").write_text("one\teins\n")
    with pytest.raises(TaskError, match="no pair of languages"):
        load(f"opus:{tmp_path / 'nameless.tsv'}")
    (tmp_path / "b.en-de.tsv").write_text("one\teins\ntwo zwei\n")
    with pytest.raises(TaskError, match="line 2.*1 fields"):
        load(f"opus:{tmp_path / 'b.en-de.tsv'}")


# Recorded replies


def test_a_sample_log_is_recognised_and_its_replies_are_kept():
    path = FIXTURES / "samples_gsm8k_2025-01-31T10-00-00.000000.jsonl"
    dataset = load(path)
    assert dataset == load(f"lm_eval:{path}") and dataset.scorer == "exact"
    item = dataset.items[1]
    assert (item.reference, item.worked_solution, item.group) == ("15", "Add.", "gsm8k")
    assert item.metadata["recorded_replies"] == [" The answer is 15."]
    assert item.metadata["recorded_answers"] == {
        "strict-match": ["[invalid]"],
        "flexible-extract": ["15"],
    }
    assert item.metadata["recorded_scores"] == {
        "exact_match,strict-match": 0.0,
        "exact_match,flexible-extract": 1.0,
    }


def test_a_multiple_choice_log_has_the_option_of_the_largest_likelihood():
    dataset = load(FIXTURES / "samples_mmlu.jsonl")
    item = dataset.items[0]
    assert dataset.scorer == "choice" and item.choices == ("8", "6", "10", "4")
    assert item.reference == "A" and item.metadata["recorded_replies"] == ["A"]
    assert item.prompt.count("A. 8") == 1


def test_a_log_of_a_chat_model_has_messages(tmp_path):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 2?"}]
    row = read_jsonl("samples_gsm8k_2025-01-31T10-00-00.000000.jsonl")[0]
    for context in (json.dumps(messages), [json.dumps(messages)]):
        row["arguments"] = {"gen_args_0": {"arg_0": context, "arg_1": {"until": []}}}
        item = load(write_jsonl(tmp_path / "samples_a.jsonl", [row])).items[0]
        assert item.messages == messages


def test_routellm_says_which_model_was_right():
    dataset = load_fixture("routellm", "routellm")
    assert dataset.scorer == "" and any("no reference answers" in note for note in dataset.notes)
    item = next(item for item in dataset if item.group == "gsm8k")
    assert item.metadata["recorded_scores"]["gpt-4-1106-preview"] == 1.0
    assert item.metadata["recorded_replies"]["gpt-4-1106-preview"] == 'She says "7".'


# The originals


@needs_originals
@pytest.mark.parametrize(
    ("source", "options", "num_items"),
    [
        ("gsm8k:gsm8k", {"split": "train"}, 7473),
        ("gsm8k:gsm8k", {"split": "test"}, 1319),
        ("math:math500/test.jsonl", {}, 500),
        ("routellm:routellm/gsm8k_responses.csv", {}, 1319),
        ("routellm:routellm", {}, 1319 + 11357 - 27),
    ],
)
def test_published_files_are_read_whole(source, options, num_items):
    """The numbers are the publishers'; 27 prompts of RouteLLM's MMLU repeat another one."""
    preset, _, path = source.partition(":")
    dataset = load(f"{preset}:{DATA / path}", **options)
    assert len(dataset) == num_items


@needs_originals
def test_all_answers_of_gsm8k_are_numbers_and_all_of_math_have_a_subject_and_level():
    gsm8k = load(f"gsm8k:{DATA / 'gsm8k'}", split="test")
    assert all(re.fullmatch(r"-?[\d,]+(\.\d+)?", item.reference) for item in gsm8k)
    math500 = load(f"math:{DATA / 'math500'}")
    assert {item.difficulty for item in math500} == {1, 2, 3, 4, 5}
    assert len(math500.summarize()) == 7
    # The published answer is what stands in the last box of the published solution, but for blanks.
    same = [
        find_boxed(item.worked_solution).replace(" ", "") == item.reference.replace(" ", "")
        for item in math500
    ]
    assert all(same)


@pytest.mark.parametrize("task", ["codeio", "composite"])
def test_a_task_that_runs_code_of_its_package_is_refused(task):
    with pytest.raises(TaskError, match=f"{task} runs code that comes with the package"):
        load(f"reasoning_gym:{task}")


# HLE and FRAMES with every column that their cards list


def write_hle(path: Path) -> Path:
    """Rows as in cais/hle: pictures are texts or nothing, previews are records."""
    rows = []
    for number in range(4):
        has_image = number == 3
        rows.append(
            {
                "id": f"668{number}",
                "question": f"What is {number} + 1?\n\nAnswer Choices:\nA. {number + 1}\nB. 0",
                "image": "data:image/png;base64,AA==" if has_image else "",
                "image_preview": {"bytes": b"x", "path": None} if has_image else None,
                "answer": "A",
                "answer_type": "multipleChoice",
                "author_name": "Ada L.",
                "rationale": "By counting.",
                "rationale_image": None,
                "raw_subject": "Arithmetic",
                "category": "Math",
                "canary": "not for training",
            }
        )
    pd.DataFrame(rows).to_parquet(path)
    return path


def write_frames(path: Path) -> Path:
    """Rows as in test.tsv of google/frames-benchmark: an index without a name, links in columns of their own."""
    links = [f"wikipedia_link_{number}" for number in range(1, 11)] + ["wikipedia_link_11+"]
    rows = []
    for number in range(4):
        row = {
            "Prompt": f"How old was the author of book {number} when it came out?",
            "Answer": str(30 + number),
            **dict.fromkeys(links),
            "wikipedia_link_1": f"https://example.org/{number}",
            "reasoning_types": "Numerical reasoning | Multiple constraints",
            "wiki_links": f"['https://example.org/{number}']",
        }
        rows.append(row)
    pd.DataFrame(rows).to_csv(path, sep="\t")
    return path


def test_hle_is_read_with_all_of_its_columns_and_pictures_are_left_out(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write_hle(folder / "test-00000-of-00001.parquet")
    dataset = load(f"hle:{folder}", split="test")
    assert [item.id for item in dataset] == ["6680", "6681", "6682"]
    item = dataset.items[1]
    assert (item.reference, item.group) == ("A", "Math")
    assert "Answer Choices" in item.prompt and "counting" not in item.prompt
    assert any("an image: 1 of 4" in note for note in dataset.notes)
    scorer = make_scorer(dataset.scorer)
    replies = ["<answer> A </answer>", "<answer> B </answer>", "A is what I think at first"]
    assert [s.value for s in scorer.score(dataset.items, replies)][:2] == [1.0, 0.0]


def test_frames_is_read_with_all_of_its_columns_and_links_are_no_part_of_the_prompt(tmp_path):
    dataset = load(f"frames:{write_frames(tmp_path / 'test.tsv')}")
    assert len(dataset) == 4 and len({item.id for item in dataset}) == 4
    item = dataset.items[2]
    assert (item.reference, item.group) == ("32", "Numerical reasoning")
    assert "example.org" not in item.prompt and "example.org/2" in item.metadata["links"]
    scorer = make_scorer(dataset.scorer)
    replies = [f"<answer> {30 + number} </answer>" for number in range(3)] + [
        "<answer> 7 </answer>"
    ]
    assert [s.value for s in scorer.score(dataset.items, replies)] == [1.0, 1.0, 1.0, 0.0]
