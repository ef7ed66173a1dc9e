"""What a lesson shows of calls without an answer: a table, marks on rows, and lines for the terminal."""

import pandas as pd
import pytest

from lib.llm.reply_shares import count_replies
from lib.reports import reply_shares
from lib.reports.lesson import Lesson


def make_counts(**truncated_by_method: int) -> pd.DataFrame:
    """A hundred calls of each method, so many of them cut off."""
    return count_replies(
        pd.DataFrame(
            {
                "method": method,
                "model": "claude",
                "backend": "endpoint",
                "calls": 100,
                "truncated": count,
            }
            for method, count in truncated_by_method.items()
        )
    )


@pytest.fixture
def lesson(tmp_path):
    return Lesson("02_orchestration", "Orchestration", "smoke", {}, tmp_path)


def test_the_table_marks_a_method_above_the_limit_and_merges_those_that_lost_nothing():
    table = reply_shares.tabulate_reply_shares(make_counts(KO=20, TO=0, RO=0)).set_index("method")
    assert list(table.index) == ["KO †", "2 methods"]
    assert table.loc["KO †", "without an answer"] == "20.0%"
    assert (
        "left out of verdicts" in table.loc["KO †", "note"] and not table.loc["2 methods", "note"]
    )
    assert table.loc["2 methods", "calls"] == 200


def test_errors_of_a_stand_in_are_shown_as_what_they_are():
    counts = make_counts(KO=20).assign(backend="scripted", too_many=False)
    (row,) = reply_shares.tabulate_reply_shares(counts).to_dict("records")
    assert row["method"] == "KO" and row["note"] == "stand-in, errs on purpose"
    assert reply_shares.describe_reply_shares(counts) == []


def test_the_terminal_has_a_line_for_each_model_and_names_the_methods_that_are_left_out():
    (line,) = reply_shares.describe_reply_shares(make_counts(KO=20, RO=0))
    assert line == "claude: 200 calls, 20 cut off (10.0%): above 5%, left out of verdicts (KO)"
    (line,) = reply_shares.describe_reply_shares(make_counts(KO=20))
    assert line == "claude: 100 calls, 20 cut off (20.0%): above 5%, left out of verdicts"
    (line,) = reply_shares.describe_reply_shares(make_counts(KO=5))
    assert line == "claude: 100 calls, 5 cut off (5.0%)"


def test_later_tables_of_a_lesson_bear_the_mark_at_the_methods_that_are_left_out(lesson, capsys):
    rows = pd.DataFrame({"method": ["KO", "RO"], "correct": [0.0, 1.0]})
    lesson.check_replies(make_counts(KO=20, RO=0), rows)
    lesson.table(rows.set_index("method"), "Accuracy")
    lesson.table(rows, "The same")
    lesson.table(rows[rows["method"] == "RO"], "Another")
    first, second, third = capsys.readouterr().out.split("table: ")[2:]
    assert "KO †" in first and "RO †" not in first and reply_shares.FOOTNOTE in first
    assert "KO †" in second and reply_shares.FOOTNOTE in second
    assert "†" not in third


def test_a_lesson_that_asks_no_model_says_so_and_leaves_its_rows_alone(lesson, capsys):
    rows = pd.DataFrame({"method": ["KO"], "correct": [0.0]})
    assert lesson.check_replies(make_counts(KO=0).iloc[:0], rows) is rows
    assert "no language model was asked" in capsys.readouterr().out
