"""Scorers of texts, beside the published evaluators."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torchmetrics.functional.text import squad

from lib.tasks.scorers import ScorerError, make_scorer
from lib.tasks.scorers.text_scorers import compute_drop_f1, compute_squad_f1, normalize_squad_text
from tests.tasks.scorers.items import make_item

DROP_TABLE = json.loads((Path(__file__).parent / "drop_pairs.json").read_text(encoding="utf-8"))
WORDS = st.lists(
    st.sampled_from(
        [
            "the",
            "A",
            "an",
            "cat",
            "Cat",
            "cats",
            "dog's",
            "dog",
            "3.5",
            "35",
            "1,000",
            "-7",
            "U.S.",
            "U.S",
            "!",
            "…",
            "north-east",
            "é",
        ]
    ),
    max_size=8,
).map(" ".join)


def compute_with_torchmetrics(answer: str, references: list[str]) -> dict[str, float]:
    """F1 and exact match, in percent, as torchmetrics computes them."""
    prediction = {"prediction_text": answer, "id": "1"}
    target = {"answers": {"answer_start": [0] * len(references), "text": references}, "id": "1"}
    return {name: float(value) for name, value in squad([prediction], [target]).items()}


@given(WORDS, st.lists(WORDS.filter(bool), min_size=1, max_size=3))
def test_f1_is_that_of_torchmetrics(answer, references):
    ours = max(compute_squad_f1(answer, reference) for reference in references)
    assert 100 * ours == pytest.approx(
        compute_with_torchmetrics(answer, references)["f1"], abs=1e-3
    )


@given(WORDS, WORDS.filter(bool))
def test_normalized_texts_are_equal_where_torchmetrics_has_them_equal(answer, reference):
    equal = normalize_squad_text(answer) == normalize_squad_text(reference)
    assert 100 * equal == compute_with_torchmetrics(answer, [reference])["exact_match"]


def test_f1_of_many_pairs_is_that_of_torchmetrics():
    texts = [
        text
        for pair in DROP_TABLE["pairs"]
        for text in (pair["answer"], pair["reference"])
        if isinstance(text, str)
    ]
    for answer, reference in zip(texts, texts[7:], strict=False):
        expected = compute_with_torchmetrics(answer, [reference])["f1"]
        assert 100 * compute_squad_f1(answer, reference) == pytest.approx(expected, abs=1e-3)


def test_drop_f1_is_that_of_lm_eval():
    # The table says which version of lm-eval computed it; the package is too large to be a test's dependency.
    assert len(DROP_TABLE["pairs"]) > 800
    for pair in DROP_TABLE["pairs"]:
        assert compute_drop_f1(pair["answer"], pair["reference"]) == pair["f1"], pair


def test_drop_takes_the_best_of_the_accepted_spans():
    spans = {"accepted_spans": [["Tom Brady", "Eli Manning"], ["Brady", "Manning"]]}
    item = make_item("Tom Brady, Eli Manning", metadata=spans)
    [score, swapped, half] = make_scorer("f1:drop").score(
        [item] * 3, ["Tom Brady and Eli Manning", "Manning, Brady", "The answer is Brady."]
    )
    assert (score.value, swapped.value, half.value) == (1, 1, 0.5)


@given(st.text(), st.text())
def test_f1_is_a_symmetric_number_between_0_and_1(answer, reference):
    assert 0 <= compute_squad_f1(answer, reference) <= 1
    assert compute_squad_f1(answer, reference) == compute_squad_f1(reference, answer)
    assert 0 <= compute_drop_f1(answer, reference) <= 1


# Without tags: what stands in <think> is a thought, and no answer.
PLAIN_TEXTS = st.text(
    st.characters(categories=["L", "Nd", "Zs", "Po", "Sm"], exclude_characters="<>"), min_size=1
).filter(str.strip)


@given(PLAIN_TEXTS)
def test_the_reference_itself_is_right(reference):
    item = make_item(reference)
    for name in ("exact", "f1"):
        assert make_scorer(name).score_reply(item, reference).value == 1
        assert make_scorer(name).score_reply(item, f"<answer>{reference}</answer>").value == 1


@given(st.text(), st.text())
def test_every_score_is_0_or_1_where_texts_are_compared(reference, reply):
    assert make_scorer("exact").score_reply(make_item(reference), reply).value in (0, 1)


def test_exact_tells_numbers_apart_that_squad_takes_for_equal():
    assert normalize_squad_text("3.5") == normalize_squad_text("35")
    scorer = make_scorer("exact")
    assert scorer.score_reply(make_item("3.5"), "35").value == 0
    assert scorer.score_reply(make_item("-7"), "7").value == 0
    assert scorer.score_reply(make_item("1,000"), "1000").value == 1


@given(
    st.lists(st.text("abcdefg", min_size=3, max_size=6), min_size=2, max_size=8, unique=True),
    st.data(),
)
def test_an_option_is_right_by_letter_and_by_text(options, data):
    index = data.draw(st.integers(0, len(options) - 1))
    letter = "ABCDEFGH"[index]
    scorer = make_scorer("choice")
    for reference in (letter, options[index]):
        item = make_item(reference, choices=tuple(options))
        for reply in (
            letter,
            f"The answer is ({letter}).",
            options[index],
            f"\\boxed{{{options[index]}}}",
        ):
            assert scorer.score_reply(item, reply).value == 1
        wrong = "ABCDEFGH"[(index + 1) % len(options)]
        assert scorer.score_reply(item, f"({wrong})").value == 0


def test_any_of_several_right_options_is_right():
    item = make_item("A", choices=("red", "blue", "green"), alternatives=("C",))
    values = [score.value for score in make_scorer("choice").score([item] * 3, ["A", "B", "C"])]
    assert values == [1, 0, 1]


@pytest.mark.parametrize("reference", ["E", "purple", "", "red or blue"])
def test_a_reference_that_is_no_option_is_refused(reference):
    item = make_item(reference, choices=("red", "blue"), id="colour-7")
    with pytest.raises(ScorerError, match="colour-7.*give a letter"):
        make_scorer("choice").score_reply(item, "A")
