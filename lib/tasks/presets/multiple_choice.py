"""Questions with options: MMLU, MedQA, GPQA, ToMBench and EmoBench. The reference is the letter of the right option.

The layouts of `mmlu`, `medqa` and `gpqa` are not checked against the original.
"""

from pathlib import Path

from lib.experiment import seeds
from lib.tasks.column_map import LETTERS, find_letter, hash_prompt, read_choices
from lib.tasks.item import Item, TaskError
from lib.tasks.presets.preset import Preset, Record, RowSkipped, check_letter, make_item
from lib.tasks.readers import Table, get_format, read_csv_records, read_table

_MMLU_FIELDS = ("question", "A", "B", "C", "D", "answer")


def read_mmlu_file(path: Path) -> Table:
    """Reads a file of MMLU: the authors' CSV files have no header, those of Hugging Face are Parquet.

    Args:
        path: A file such as abstract_algebra_test.csv, whose name says the subject.

    Returns:
        The table, with the columns question, A, B, C, D, answer and subject for a CSV file.

    Raises:
        TaskError: A line has not six fields.
    """
    if get_format(path) != ".csv":
        return read_table(path)
    # The rows do not say their subject; the file's name does.
    subject = path.name.split(".")[0]
    for suffix in ("_test", "_val", "_dev"):
        subject = subject.removesuffix(suffix)
    records, notes = read_csv_records(path)
    rows = []
    labels = []
    for line, fields in records:
        if len(fields) != len(_MMLU_FIELDS):
            raise TaskError(
                f"{path}, line {line} (mmlu): {len(fields)} fields, expected question, four options and the letter"
            )
        rows.append(dict(zip(_MMLU_FIELDS, fields, strict=True)) | {"subject": subject})
        labels.append(f"line {line}")
    return Table(path, (*_MMLU_FIELDS, "subject"), tuple(rows), tuple(labels), notes)


def _make_mmlu_item(record: Record) -> Item:
    """Make an item (a question with four options and the right letter) of a row of MMLU, in either layout."""
    if "choices" in record.values:
        choices = read_choices(record.get_value("choices"), record.location, "choices")
        index = record.get_text("answer")
        # Hugging Face counts options from 0.
        letter = LETTERS[int(index)] if index.isdecimal() else index
    else:
        choices = tuple(record.get_text(option) for option in "ABCD")
        letter = record.get_text("answer")
    return make_item(
        record.get_text("question"),
        check_letter(letter, choices, record),
        record.get_text("subject"),
        choices=choices,
    )


def _make_medqa_item(record: Record) -> Item:
    """Make an item (a question with options and the right letter) of a row of MedQA."""
    choices = read_choices(record.get_value("options"), record.location, "options")
    return make_item(
        record.get_text("question"),
        check_letter(record.get_text("answer_idx"), choices, record),
        record.get_optional_text("meta_info") or "medqa",
        choices=choices,
    )


def _make_gpqa_item(record: Record) -> Item:
    """Make an item (a question with four options and the right letter) of a row of GPQA.

    Args:
        record: The row, with the right option and three wrong ones, and the seed of their order.

    Returns:
        The item, with its options in a random order.
    """
    question = record.get_text("Question")
    correct = record.get_text("Correct Answer")
    incorrect = [record.get_text(f"Incorrect Answer {number}") for number in (1, 2, 3)]
    item_id = record.get_optional_text("Record ID") or hash_prompt((), question)

    # The right option stands first in the file. The stream has the item's name, so that neither the order of the
    # rows nor a limit changes where it goes.
    options = [correct, *incorrect]
    order = seeds.rng("tasks", "gpqa", item_id, seed=record.seed).permutation(len(options))
    return make_item(
        question,
        LETTERS[order.tolist().index(0)],
        record.get_optional_text("High-level domain") or "gpqa",
        id=item_id,
        worked_solution=record.get_optional_text("Explanation"),
        choices=tuple(options[index] for index in order),
        metadata={"subdomain": record.get_optional_text("Subdomain")},
    )


def _make_tombench_item(record: Record, language: str) -> Item:
    """Make an item (a story, a question with two to four options, the right letter) of a row of ToMBench.

    Args:
        record: The row, which has everything in English and in Chinese.
        language: "en" or "zh".

    Returns:
        The item; its group is the task of the benchmark, which the file's name says.

    Raises:
        RowSkipped: Where an option before the last one is empty.
    """
    if language == "en":
        story, question, option = "STORY", "QUESTION", "OPTION-"
    else:
        story, question, option = "故事", "问题", "选项"
    # Many questions have two options; the other columns are empty then.
    option_texts = [record.get_optional_text(f"{option}{letter}") for letter in "ABCD"]
    while option_texts and not option_texts[-1]:
        option_texts.pop()
    if len(option_texts) < 2 or not all(option_texts):
        raise RowSkipped("an option before the last is empty")
    choices = tuple(
        text.removeprefix(f"{letter}. ") for letter, text in zip("ABCD", option_texts, strict=False)
    )
    return make_item(
        f"{record.get_text(story)}\n\n{record.get_text(question)}",
        check_letter(record.get_text("答案\nANSWER"), choices, record),
        record.path.name.split(".")[0],
        choices=choices,
        metadata={"ability": record.get_optional_text("能力\nABILITY"), "language": language},
    )


def _make_english_tombench_item(record: Record) -> Item:
    return _make_tombench_item(record, "en")


def _make_chinese_tombench_item(record: Record) -> Item:
    return _make_tombench_item(record, "zh")


def _make_emobench_items(record: Record, language: str) -> list[Item]:
    """Make the items of a row of EmoBench: one question on an action (EA), or two on an emotion and its cause (EU).

    Args:
        record: The row: a scenario with the options of each question.
        language: "en" or "zh"; rows of the other language are skipped.

    Returns:
        The items, each a question with its options and the right letter.

    Raises:
        RowSkipped: For a row of another language.
    """
    if record.get_text("language") != language:
        raise RowSkipped(f"their language is not {language!r}")
    scenario = record.get_text("scenario")
    subject = record.get_text("subject")
    number = record.get_text("qid")
    # (task, question, column of the options, column of the right one, category) of each question
    if "choices" in record.values:
        kind = (record.get_optional_text("question type") or "action").lower()
        question = f"In this scenario, what is the most effective {kind} for {subject}?"
        category = record.get_text("category")
        questions = [("EA", question, "choices", "label", category)]
    else:
        category = record.get_text("coarse_category")
        emotion = f"What emotion would {subject} ultimately feel in this situation?"
        cause = f"Why would {subject} feel that way in this situation?"
        questions = [
            ("EU-emotion", emotion, "emotion_choices", "emotion_label", category),
            ("EU-cause", cause, "cause_choices", "cause_label", category),
        ]
    items = []
    for task, question, choices_column, label_column, category in questions:
        choices = read_choices(record.get_value(choices_column), record.location, choices_column)
        letter = find_letter(record.get_text(label_column), choices, record.location)
        # Both questions about a scenario have one id, so that they fall into one split.
        item_id = f"emobench/{language}/{task.partition('-')[0]}/{number}"
        item = make_item(
            f"{scenario}\n\n{question}",
            letter,
            task,
            id=item_id,
            choices=choices,
            metadata={"category": category, "language": language},
        )
        items.append(item)
    return items


def _make_english_emobench_items(record: Record) -> list[Item]:
    return _make_emobench_items(record, "en")


_JSONL = ("*.jsonl",)
PRESETS = (
    Preset(
        name="mmlu",
        description="MMLU (Hendrycks et al., 2021), CSV or Parquet; layout not checked against the original",
        scorer="choice",
        layout_checked=False,
        make_item=_make_mmlu_item,
        file_names=("*.csv", "*.parquet"),
        reads_many_files=True,
        read_file=read_mmlu_file,
    ),
    Preset(
        name="medqa",
        description="MedQA (Jin et al., 2021), four or five options; layout not checked against the original",
        scorer="choice",
        layout_checked=False,
        make_item=_make_medqa_item,
        file_names=_JSONL,
    ),
    Preset(
        name="gpqa",
        description="GPQA (Rein et al., 2023), options in random order; layout not checked against the original",
        scorer="choice",
        layout_checked=False,
        make_item=_make_gpqa_item,
        file_names=("*.csv",),
        notes=("The four options stand in an order that the seed draws.",),
    ),
    Preset(
        name="tombench",
        description="ToMBench (Chen et al., 2024) in English; one file per task",
        scorer="choice",
        layout_checked=True,
        make_item=_make_english_tombench_item,
        file_names=_JSONL,
        reads_many_files=True,
    ),
    Preset(
        name="tombench_zh",
        description="ToMBench (Chen et al., 2024) in Chinese; one file per task",
        scorer="choice",
        layout_checked=True,
        make_item=_make_chinese_tombench_item,
        file_names=_JSONL,
        reads_many_files=True,
    ),
    Preset(
        name="emobench",
        description="EmoBench (Sabour et al., 2024) in English; EA.jsonl and EU.jsonl",
        scorer="choice",
        layout_checked=True,
        make_item=_make_english_emobench_items,
        file_names=_JSONL,
        reads_many_files=True,
        notes=(
            "The wording of EmoBench's questions is this package's, the scenarios and options are the authors'.",
        ),
    ),
)
