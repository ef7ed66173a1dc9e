from pathlib import Path

import numpy as np
import pytest

from lib.envs import question_bank as bank_module
from lib.envs.question_bank import (
    TOPICS,
    BankError,
    calibrate_levels,
    estimate_difficulty,
    load_bank,
)

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "data/bank/mathe_items.csv"

COUNTS = {  # facts of the real bank, levels 1..6
    "Analytic Geometry": [31, 11, 17, 0, 0, 0],
    "Complex Numbers": [15, 17, 13, 19, 10, 16],
    "Differential Equations": [28, 20, 13, 0, 0, 0],
    "Differentiation": [38, 48, 43, 41, 26, 0],
    "Discrete Mathematics": [44, 25, 24, 33, 0, 0],
    "Fundamental Mathematics": [25, 48, 37, 41, 15, 26],
    "Graph Theory": [19, 15, 16, 29, 2, 0],
    "Integration": [98, 79, 66, 83, 12, 0],
    "Linear Algebra": [74, 67, 72, 81, 17, 0],
    "Numerical Methods": [10, 12, 10, 10, 0, 0],
    "Optimization": [26, 45, 31, 12, 18, 0],
    "Probability": [12, 14, 11, 11, 25, 0],
    "Real Functions of Several Variables": [22, 16, 16, 14, 13, 0],
    "Real Functions of a Single Variable": [26, 25, 20, 0, 0, 0],
    "Statistics": [9, 19, 10, 13, 9, 0],
}


def written(tmp_path: Path, text: str, name: str = "bank.csv", encoding: str = "utf-8") -> Path:
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def small_bank(tmp_path: Path, rows: str) -> bank_module.Bank:
    return load_bank(written(tmp_path, "id;difficulty_level;topic_name\n" + rows))


def answers_file(tmp_path: Path, rows: list[tuple[int, int, int]]) -> Path:
    """Rows of (student, question, right) in the columns of the UCI file."""
    head = "Student ID;Student Country;Question ID;Type of Answer;Question Level;Topic;Subtopic;Keywords\n"
    lines = [
        f"{student};España;{question};{correct};Basic;x;y;z" for student, question, correct in rows
    ]
    return written(tmp_path, head + "\n".join(lines), "answers.csv", "latin-1")


def test_counts_per_topic_and_level_are_those_of_the_real_bank():
    bank = load_bank(SHIPPED)
    assert len(bank) == 1_913
    assert {topic: row.tolist() for topic, row in bank.count_questions().iterrows()} == COUNTS


def test_shipped_file_holds_no_texts():
    assert SHIPPED.read_text().splitlines()[0] == "id;difficulty_level;topic_name"


def test_a_topic_is_a_bank_of_its_own():
    algebra = load_bank(SHIPPED).select_topic("Linear Algebra")
    assert len(algebra) == 311 and set(algebra.topics) == {"Linear Algebra"}
    assert np.bincount(algebra.levels, minlength=7)[1:].tolist() == COUNTS["Linear Algebra"]
    assert algebra.count_questions().to_numpy().sum() == 311


def test_order_of_lines_other_columns_quotes_and_byte_order_mark_do_not_matter(tmp_path):
    text = '\ufefftopic_name;question;difficulty_level;id\r\n"Statistics ";"a;\r\nb";2;9\r\nOptimization;;1;3\r\n'
    bank = load_bank(written(tmp_path, text))
    assert bank.ids.tolist() == [3, 9] and bank.levels.tolist() == [1, 2]
    assert bank.topics.tolist() == ["Optimization", "Statistics"]


@pytest.mark.parametrize(
    "text, parts",
    [
        ("", ["column id is wanted once, not 0 times", "found nothing"]),
        ("id;difficulty_level;topic_name\n", ["no rows"]),
        (
            "id;level;topic_name\n1;1;Statistics",
            ["column difficulty_level", "found id, level, topic_name"],
        ),
        ("id,difficulty_level,topic_name\n", ["separator `;`"]),
        (
            "id;difficulty_level;topic_name\n1;1;Statistics\n2;7;Statistics",
            ["line 3", "1 to 6", "'7'"],
        ),
        ("id;difficulty_level;topic_name\n1;0;Statistics", ["line 2", "'0'"]),
        ("id;difficulty_level;topic_name\n1;2.0;Statistics", ["line 2", "'2.0'"]),
        ("id;difficulty_level;topic_name\n1;;Statistics", ["line 2", "''"]),
        ("id;difficulty_level;topic_name\n1;1", ["line 2", "topic ''"]),
        (
            "id;difficulty_level;topic_name\n1;1;Statistic",
            ["line 2", "did you mean 'Statistics'", *TOPICS],
        ),
        (
            "id;difficulty_level;topic_name\n5;1;Statistics\n5;1;Statistics",
            ["line 3", "id 5", "line 2"],
        ),
        ("id;difficulty_level;topic_name\n;1;Statistics", ["line 2", "integer", "''"]),
        ("id;difficulty_level;topic_name\nQ1;1;Statistics", ["line 2", "integer", "'Q1'"]),
        (
            'id;difficulty_level;topic_name\n1;1;"Statistics',
            ["after line 1", "unexpected end of data"],
        ),
    ],
)
def test_a_broken_bank_is_refused_with_its_place_and_value(tmp_path, text, parts):
    path = written(tmp_path, text)
    with pytest.raises(BankError) as error:
        load_bank(path)
    for part in [str(path), *parts]:
        assert part in str(error.value)


def test_another_encoding_is_named(tmp_path):
    text = "id;question;difficulty_level;topic_name\n1;é;1;Statistics"
    with pytest.raises(BankError, match="not UTF-8 at byte 42"):
        load_bank(written(tmp_path, text, encoding="latin-1"))


def test_asking_for_an_unknown_topic_names_the_closest():
    with pytest.raises(BankError, match="did you mean 'Linear Algebra'"):
        load_bank(SHIPPED).select_topic("linear algebra")
    with pytest.raises(BankError, match="Known: Analytic Geometry"):
        load_bank(SHIPPED).select_topic("Alchemy")


def test_calibration_by_hand(tmp_path):
    bank = small_bank(
        tmp_path, "1;1;Statistics\n2;1;Statistics\n3;2;Statistics\n4;1;Optimization\n"
    )
    # question 1 fails 20 of 20, question 2 fails 0 of 20, question 3 fails 5 of 10; 99 is in no bank
    rows = [(7, 1, 0)] * 20 + [(8, 2, 1)] * 20 + [(9, 3, 1), (9, 3, 0)] * 5 + [(7, 99, 1)]
    difficulty, answers = estimate_difficulty(bank, path := answers_file(tmp_path, rows))
    # label means: .5 for questions 1 and 2 together, .5 for 3, and all answers' .5 for the unseen topic
    assert difficulty == pytest.approx([25 / 30, 5 / 30, 10 / 20, 0.5])
    assert answers.tolist() == [20, 20, 10, 0]
    assert calibrate_levels(bank, path).levels.tolist() == [
        5,
        2,
        3,
        1,
    ]  # 1 + 5 x difficulty; no answers, no change


def test_few_answers_hardly_move_a_question(tmp_path):
    bank = small_bank(tmp_path, "1;1;Statistics\n2;1;Statistics\n")
    rows = [(1, 1, 0)] + [(1, 2, 1)] * 9  # one failure in one answer, and none in nine
    assert estimate_difficulty(bank, answers_file(tmp_path, rows))[0] == pytest.approx(
        [2 / 11, 1 / 19]
    )


def test_a_topic_without_answers_keeps_its_labels(tmp_path):
    bank = small_bank(
        tmp_path, "1;3;Statistics\n2;1;Statistics\n3;2;Statistics\n4;1;Optimization\n"
    )
    again = calibrate_levels(bank, answers_file(tmp_path, [(1, 4, 0)]))
    assert again.levels.tolist() == [3, 1, 2, 6]  # the only answer to Optimization is wrong


@pytest.mark.parametrize(
    "text, parts",
    [
        ("Student ID;Question ID\n1;2", ["column Type of Answer"]),
        ("Student ID;Question ID;Type of Answer\n1;2;1\n1;2;right", ["line 3", "'right'"]),
        ("Student ID;Question ID;Type of Answer\n1;;1", ["line 2", "Question ID", "''"]),
        ("Student ID;Question ID;Type of Answer\n", ["no rows"]),
    ],
)
def test_a_broken_answers_file_is_refused_with_its_place_and_value(tmp_path, text, parts):
    with pytest.raises(BankError) as error:
        estimate_difficulty(load_bank(SHIPPED), written(tmp_path, text, "answers.csv"))
    for part in parts:
        assert part in str(error.value)
