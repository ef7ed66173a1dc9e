import json
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib.tasks.items import Item, TaskError
from lib.tasks.readers import (
    boxed,
    read_gsm8k,
    read_math500,
    same_math,
    same_number,
)

DATA = Path(__file__).resolve().parents[2].parent / "shared/data"
GSM8K, MATH = DATA / "gsm8k", DATA / "math500/test.jsonl"
needs_gsm8k = pytest.mark.skipif(not GSM8K.is_dir(), reason="GSM8K is not beside the repository")
needs_math = pytest.mark.skipif(not MATH.is_file(), reason="MATH-500 is not beside the repository")

SUM = {"question": "Two pens  and\nthree?", "answer": "It is 2+3=<<2+3=5>>5.\nAnd <<5*300=1500>>1,500.\n#### 1,500"}
ROOT = {
    "problem": "What is $1+1$?",
    "solution": r"It is $\boxed{2}$.",
    "answer": "2",
    "subject": "Algebra",
    "level": 3,
    "unique_id": "made/up/1.json",
}
READERS = {"gsm8k": (read_gsm8k, SUM), "math500": (read_math500, ROOT)}


def written(folder: Path, content: str | bytes, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def without(row: dict, name: str) -> dict:
    return {key: value for key, value in row.items() if key != name}


def refused(read, path: Path, *parts: str) -> None:
    """The reader refuses the file, naming it, the parts, and something to do."""
    with pytest.raises(TaskError) as error:
        read(path)
    message = str(error.value)
    for part in (str(path), *parts):
        assert part in message
    assert ";" in message, "no remedy"
    assert len(message.replace(str(path), "")) < 400, "a long value belongs in the file"


# Items ---------------------------------------------------------------------------------------------


def test_an_item_of_gsm8k_by_hand(tmp_path):
    assert read_gsm8k(written(tmp_path, lines(SUM))) == [
        Item(SUM["question"], "1500", "It is 2+3=5.\nAnd 1,500.", "gsm8k", 2, "gsm8k/Two pens and three?")
    ]


@pytest.mark.parametrize("number", ["-3", "0.25", "$7"])
def test_numbers_that_gsm8k_may_end_in(tmp_path, number):
    (item,) = read_gsm8k(written(tmp_path, lines(SUM | {"answer": f"Plain words.\n#### {number} \n"})))
    assert (item.answer, item.reference, item.difficulty) == (number.strip("$"), "Plain words.", 1)


def test_an_item_of_math_by_hand(tmp_path):
    assert read_math500(written(tmp_path, lines(ROOT))) == [
        Item(ROOT["problem"], "2", ROOT["solution"], "Algebra", 3, "math500/made/up/1.json")
    ]


@pytest.mark.parametrize("kind", READERS)
def test_byte_order_mark_line_ends_blank_lines_and_other_keys_do_not_matter(tmp_path, kind):
    read, row = READERS[kind]
    plain = written(tmp_path, lines(row, row))
    again = written(tmp_path, "\ufeff\r\n" + lines(row | {"x": 1}).replace("\n", "\r\n\r\n  \r\n") + json.dumps(row))
    assert read(again) == read(plain) and len(read(plain)) == 2


def test_a_line_separator_inside_a_text_ends_no_line(tmp_path):
    row = SUM | {"question": "one\u2028two\x0bthree\x85"}
    (item,) = read_gsm8k(written(tmp_path, json.dumps(row, ensure_ascii=False)))
    assert item.prompt == row["question"]


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    "content, parts",
    [
        ("", ["empty"]),
        ("\ufeff \r\n\n", ["empty"]),
        ('GOOD\n\n{"broken": \n', ["line 3", "column", "broken"]),
        ("GOOD{}", ["line 1", "Extra data"]),
        ("GOOD\n[1, 2]", ["line 2", "'[1, 2]'", "not a JSON object"]),
        ("GOOD\nnull", ["line 2", "'null'"]),
        ("[" * 200_000, ["line 1", "broken JSON", "'[[["]),
        ('{"n": ' + "9" * 5_000 + "}", ["line 1", "broken JSON", "limit"]),
        (b"GOOD\n\n\xff{}", ["line 3", "not UTF-8", "0xff"]),
        (b"\xef\xbb\xbfGOOD\n\xe9", ["line 2", "not UTF-8", "0xe9"]),
        ("GOOD\n{\0}", ["line 2", "NUL"]),
        ("\ufeffGOOD", None),
    ],
)
def test_a_broken_file_of_lines_is_refused_with_its_place_and_value(tmp_path, kind, content, parts):
    read, row = READERS[kind]
    good = json.dumps(row)
    content = content.replace(b"GOOD", good.encode()) if isinstance(content, bytes) else content.replace("GOOD", good)
    path = written(tmp_path, content)
    if parts is None:  # the good row is one, so that the refusals are of what stands beside it
        assert len(read(path)) == 1
    else:
        refused(read, path, *parts)


@pytest.mark.parametrize("kind, name", [(kind, name) for kind, (_, row) in READERS.items() for name in row])
def test_each_key_is_needed_and_of_one_type(tmp_path, kind, name):
    read, row = READERS[kind]
    refused(read, written(tmp_path, lines(row, without(row, name))), "line 2", f"no key '{name}'")
    for wrong in (None, True, 1.5, ["x"], {"x": 1}):
        path = written(tmp_path, lines(row, row | {name: wrong}))
        refused(read, path, "line 2", name, str(wrong))
    if isinstance(row[name], str):
        refused(read, written(tmp_path, lines(row | {name: " \n"})), "line 1", name, "empty")
        refused(read, written(tmp_path, lines(row | {name: "a\ud800"})), "line 1", name, "half a character", "\\ud800")
        refused(read, written(tmp_path, lines(row | {name: 7})), "line 1", name, "a text", "7")


@pytest.mark.parametrize("level", [0, 6, -1, 10**4000, "3"])
def test_a_level_outside_one_to_five_is_refused(tmp_path, level):
    refused(read_math500, written(tmp_path, lines(ROOT | {"level": level})), "line 1", "level", str(level)[:5])


@pytest.mark.parametrize("depth", range(700, 1_000, 7))
def test_a_deep_value_is_refused_whether_json_reads_it_or_not(tmp_path, depth):
    text = f'{{"answer": "#### 1", "question": {"[" * depth}{"]" * depth}}}'
    refused(read_gsm8k, written(tmp_path, text), "line 1")


@pytest.mark.parametrize(
    "answer, part",
    [
        ("It is 5.", "no line `#### number`"),
        ("It is #### 5", "no line `#### number`"),
        ("Sum\n#### 5\nmore", "'5\\nmore'"),
        ("Sum\n#### five", "'five'"),
        ("Sum\n####", "''"),
        ("Sum\n#### 1,00", "'1,00'"),
        ("Sum\n#### 5 apples", "'5 apples'"),
    ],
)
def test_a_solution_without_its_number_is_refused(tmp_path, answer, part):
    refused(read_gsm8k, written(tmp_path, lines(SUM, SUM | {"answer": answer})), "line 2", part)


@pytest.mark.parametrize("read", [read_gsm8k, read_math500])
def test_a_missing_file_is_named(tmp_path, read):
    refused(read, tmp_path / "nowhere", "no such file")
    refused(read, tmp_path / ("x" * 5_000), "no such file")


@pytest.mark.parametrize("read", [read_gsm8k, read_math500])
def test_a_folder_is_no_file(tmp_path, read):
    refused(read, tmp_path, "no such file")


@needs_gsm8k
@pytest.mark.parametrize("name, count, annotations, negative", [("train", 7_473, 23_811, 3), ("test", 1_319, 4_300, 2)])
def test_gsm8k_is_what_it_is_known_to_be(name, count, annotations, negative):
    items = read_gsm8k(GSM8K / f"{name}.jsonl")
    assert len(items) == len({item.key for item in items}) == count
    assert sum(item.difficulty for item in items) == annotations  # counted by `<<`, 1 where there is none
    assert min(item.difficulty for item in items) == 1
    assert sum(item.answer.startswith("-") for item in items) == negative
    assert all(item.answer.lstrip("-").isdecimal() for item in items)
    assert not any(mark in item.reference for item in items for mark in ("<<", ">>", "####"))
    with open(GSM8K / f"{name}.jsonl", encoding="utf-8") as file:
        raw = [json.loads(line)["answer"].split("#### ")[1] for line in file]
    assert all(same_number(number, item.answer) for number, item in zip(raw, items, strict=True))


@needs_gsm8k
def test_no_question_of_gsm8k_is_in_both_files():
    train, test = (read_gsm8k(GSM8K / f"{name}.jsonl") for name in ("train", "test"))
    assert not {item.key for item in train} & {item.key for item in test}


@needs_math
def test_math500_is_what_it_is_known_to_be():
    items = read_math500(MATH)
    assert len(items) == len({item.key for item in items}) == 500
    assert Counter(item.difficulty for item in items) == {1: 43, 2: 90, 3: 105, 4: 128, 5: 134}
    assert Counter(item.category for item in items) == {
        "Algebra": 124,
        "Counting & Probability": 38,
        "Geometry": 41,
        "Intermediate Algebra": 97,
        "Number Theory": 62,
        "Prealgebra": 82,
        "Precalculus": 56,
    }


@needs_math
def test_every_solution_of_math500_boxes_its_answer():
    items = read_math500(MATH)
    assert [boxed(item.reference) == item.answer for item in items].count(True) == 500
    assert [item.key for item in items if not same_math(item.answer, boxed(item.reference) or "")] == []


@needs_math
def test_only_answers_that_mean_the_same_are_the_same_in_math500():
    answers = sorted({item.answer for item in read_math500(MATH)})
    pairs = [(a, b) for i, a in enumerate(answers) for b in answers[i + 1 :] if same_math(a, b)]
    assert pairs == [
        ("10,\\!080", "10080"),
        ("120", "120^\\circ"),
        ("15", "15\\mbox{ cm}^2"),
        ("2 \\sqrt{5}", "2\\sqrt{5}"),
        ("30", "30^\\circ"),
        ("36", "36^\\circ"),
        ("36", "\\$36"),
        ("90", "90^\\circ"),
        ("\\frac14", "\\frac{1}{4}"),
    ]


# Answers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_", ["1000", "1,000", "1000.0", "$1000", "$1,000.00", " 1000\n", "01000"])
def test_one_number_in_many_forms(given_):
    assert same_number("1,000", given_) and same_number(given_, "1000")


@pytest.mark.parametrize(
    "expected, given_",
    [
        ("12", "12 apples"),
        ("12", "12."),
        ("12", "= 12"),
        ("12", "1 2"),
        ("12", ""),
        ("12", "-12"),
        ("12", "12%"),
        ("12", "12\n12"),
        ("12", "12.0000000000000000000000001"),
        ("1000", "1,00,0"),
        ("1000", "10,00"),
        ("1000", "1e3"),
        ("1000", "1_000"),
        ("1000", "$$1000"),
        ("12", "١٢"),
        ("x", "x"),
        ("", ""),
        ("nan", "nan"),
    ],
)
def test_other_texts_are_other_numbers_or_none(expected, given_):
    assert not same_number(expected, given_) and not same_number(given_, expected)


def test_numbers_below_zero_and_below_one():
    assert same_number("-5", "-$5.0") and same_number("0.5", ".50") and same_number("-0", "0")


@pytest.mark.parametrize(
    "expected, given_",
    [
        (r"\left( 3, \frac{\pi}{2} \right)", r"(3,\dfrac{\pi}{2})"),
        (r"\frac12", r"\frac{1}{2}"),
        (r"\frac 34", r"\tfrac{3}{4}"),
        (r"\frac9{19}", r"\frac{9}{19}"),
        (r"\frac{270}7\text{ degrees}", r"\frac{270}{7}^\circ"),
        (r"\frac\pi2", r"\frac{\pi}{2}"),
        (r"\frac{\sqrt3}2", r"\frac{\sqrt{3}}{2}"),
        (r"\frac{1}{\frac23}", r"\frac{1}{\frac{2}{3}}"),
        (r"11\sqrt2", r"11 \sqrt{2}"),
        (r"4210_{5}", "4210_5"),
        (r"x^{2} + 1", "x^2+1"),
        ("12", "12."),
        ("12", "$12.$"),
        ("12", "$12$."),
        (r"10,\!080", "10080"),
        (r"11,\! 111,\! 100", "11,111,100"),
        ("58,500", "58500"),
        (r"10\,080", "10080"),
        (r"\$32,\!348", "32348"),
        (r"\$18.90", "18.90"),
        (r"\$36", r"36 \text{ dollars}"),
        (r"\$36.", "$\\$36$"),
        (r"106^\circ", "106"),
        (r"106^{\circ}", r"106 ^\circ"),
        (r"15\mbox{ cm}^2", r"15\text{ cm}^{2}"),
        (r"15\mbox{ cm}^2", "15"),
        (r"864 \mbox{ inches}^2", r"864"),
        (r"5.4 \text{ cents}", "5.4"),
        (r"60\text{ miles per hour}.", "60"),
        (r"\text{Evelyn}", "Evelyn"),
        (r"\text{(B)}", "(B)"),
        (r"\text{east}", r"\text{ east }."),
        (r"\begin{pmatrix} 1 \\ -2 \end{pmatrix}", r"\begin{pmatrix}1\\-2\end{pmatrix}"),
    ],
)
def test_one_answer_in_many_forms(expected, given_):
    assert same_math(expected, given_) and same_math(given_, expected)


@pytest.mark.parametrize(
    "expected, given_",
    [
        (r"\frac{1}{2}", "0.5"),
        (r"\frac{1}{2}", "1/2"),
        (r"\frac{1}{2}", r"\frac{2}{4}"),
        (r"\frac{1}{23}", r"\frac123"),
        (r"\frac{12}{3}", r"\frac1{23}"),
        ("x=5", "5"),
        ("1,-2", "-2,1"),
        ("12", "1 2"),
        ("12", "12 apples"),
        (r"12\text{ or more}", "12"),
        (r"12\text{ is no solution}", "12"),
        (r"15\text{ cm}", r"15\text{ cm}^2"),
        (r"15\text{ cm}", r"15\text{ m}"),
        (r"30^\circ", r"30\text{ cm}"),
        (r"\$5", r"5\text{ cents}"),
        (r"\text{even}", r"\text{odd}"),
        (r"\text{even}", ""),
        (r"x\text{ even}", "x"),
        ("(1,200)", "(1200)"),
        ("1, 200", "1200"),
        ("1,2000", "12000"),
        ("x^{10}", "x^10"),
        (r"\sqrt{12}", r"\sqrt12"),
        (r"a \leftarrow b", "aarrow b"),
        ("", ""),
        ("$$", "."),
        ("(0,1)", "[0,1]"),
        ("-5", "5"),
    ],
)
def test_other_answers_are_different(expected, given_):
    assert not same_math(expected, given_) and not same_math(given_, expected)


@pytest.mark.parametrize(
    "text, inside",
    [
        (r"so \boxed{5}.", "5"),
        (r"\boxed{1} and then \boxed{2}", "2"),
        (r"\boxed{\frac{1}{2}} }", r"\frac{1}{2}"),
        (r"\boxed{\{1,2\}}", r"\{1,2\}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{1 \\{2}}", r"1 \\{2}"),
        (r"\boxed {5}", "5"),
        (r"\boxed{}", ""),
        ("\\boxed{a\nb}", "a\nb"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{1} and \boxed{2", None),
        (r"\boxed{1\}", None),
        (r"boxed{5}", None),
        ("", None),
    ],
)
def test_the_content_of_the_last_box(text, inside):
    assert boxed(text) == inside


# Fuzz ----------------------------------------------------------------------------------------------

BYTES = st.one_of(
    st.binary(max_size=60),
    st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
    st.sampled_from(
        [b"\n", b"\r\n", b'"', b",", b"\\", b"\0", b"{", b"}", b"\xef\xbb\xbf", b"\\ud800", b"####", b"<<"]
    ),
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def damaged(draw, good: bytes) -> bytes:
    """A good file with up to four stretches of it replaced by something else."""
    for _ in range(draw(st.integers(0, 4))):
        start = draw(st.integers(0, len(good)))
        end = draw(st.integers(start, min(len(good), start + 20)))
        good = good[:start] + draw(BYTES) + good[end:]
    return good


def survives(read, folder: Path, content: bytes):
    """What the reader makes of a file, None where it refuses; it raises nothing but TaskError."""
    path = written(folder, content, "fuzz.csv")
    try:
        return read(path)
    except TaskError as error:
        assert str(path) in str(error)
        return None


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@pytest.mark.parametrize("kind", READERS)
@given(st.data())
@settings(max_examples=200, deadline=None)
def test_any_file_of_lines_gives_items_or_a_refusal(folder, kind, data):
    read, row = READERS[kind]
    items = survives(read, folder, data.draw(damaged(lines(row, row).encode()) | BYTES))
    assert items is None or (items and all(item.answer and item.split and item.difficulty >= 1 for item in items))


@pytest.mark.parametrize("kind", READERS)
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_any_json_object_gives_an_item_or_a_refusal(folder, kind, data):
    read, row = READERS[kind]
    changed = data.draw(st.dictionaries(st.sampled_from(sorted(row)), VALUES, min_size=1, max_size=2))
    items = survives(read, folder, lines(row | changed).encode())
    assert items is None or len(items) == 1


@given(st.text(max_size=60) | st.text(r"\frac{}sqtex0123,.!$^_ boxd", max_size=60), st.text(max_size=20))
@example(r"\frac" * 3_000, "1")
@example("{" * 5_000, "}" * 5_000)
@example(r"\frac{" * 3_000, r"\text{" * 3_000)
@example(" " * 50_000 + "1", "9" * 50_000)
@settings(max_examples=300, deadline=1_000)
def test_any_answers_can_be_compared(expected, given_):
    assert same_math(expected, given_) == same_math(given_, expected)
    assert same_number(expected, given_) == same_number(given_, expected)
    inside = boxed(expected)
    assert inside is None or "{" + inside + "}" in expected
