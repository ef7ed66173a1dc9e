"""Documents of a user become passages that fit beside a question, and what cannot be read is named."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.agent_configuration.document_files import (
    LONGEST_PASSAGE,
    read_passages,
    split_passages,
)
from lib.tasks import TaskError


@given(st.text(alphabet="ab.\n ", max_size=3_000))
def test_no_word_is_lost_and_no_passage_is_too_long(text):
    passages = split_passages(text)
    assert all(0 < len(passage) <= LONGEST_PASSAGE for passage in passages)
    assert "".join(passages).replace(" ", "") == "".join(text.split())


def test_a_long_paragraph_is_split_between_sentences():
    sentence = "x" * 300 + "."
    assert split_passages(" ".join([sentence] * 3)) == [f"{sentence} {sentence}", sentence]


def test_a_folder_is_read_file_by_file_and_equal_passages_stand_once(tmp_path):
    (tmp_path / "b.md").write_text("Second.\n\nFirst.")
    (tmp_path / "a").mkdir()
    (tmp_path / "a/one.txt").write_text("First.")
    (tmp_path / "table.jsonl").write_text(json.dumps({"text": "Third.", "number": 1}))
    (tmp_path / "picture.png").write_bytes(b"\x89PNG")
    assert read_passages(tmp_path) == ["First.", "Second.", "Third."]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("empty.txt", b" \n ", "holds no text; give files of .txt"),
        ("table.csv", b"a,b\n1,2\n", "has the columns a, b; one of text, content"),
        ("latin.txt", "caf\u00e9".encode("latin-1"), "is no UTF-8 text"),
    ],
)
def test_what_cannot_be_read_is_named(name, content, message, tmp_path):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TaskError, match=name) as refused:
        read_passages(tmp_path / name)
    assert message in str(refused.value)
