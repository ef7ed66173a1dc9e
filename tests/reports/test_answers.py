"""The three sentences at the top of every lesson: true of the committed metrics, and never false on a page."""

import json
import math
import re
from pathlib import Path

import pytest

from lib.config import ROOT
from lib.plots import accessibility_check
from lib.reports import answers
from lib.reports.answers import AnswerError, AnswerSentence, check_sentence, fill_sentence
from lib.stats import Interval

LESSONS = [path.stem for path in sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))]
OPPOSITE = {">": "<", "<": ">", ">=": "<", "<=": ">"}
# Words of the project's earlier texts that no reader from the field knows in this meaning.
PRIVATE_WORDS = r"dice|die|lots?|lottery|told|tells?|dear|dearer|dearest|glass|schooled|abroad|brief|coin|purse|desk"
OPENING_LINES = 12  # at most, of a lesson's first cell


def read_metrics(lesson: str) -> dict:
    return json.loads((ROOT / f"reports/metrics/{lesson}.json").read_text(encoding="utf-8"))


def read_opening(lesson: str) -> str:
    notebook = json.loads((ROOT / f"notebooks/{lesson}.ipynb").read_text(encoding="utf-8"))
    return "".join(notebook["cells"][0]["source"])


def write_answers(folder: Path, *sentences: dict, lesson: str = "05_budgeted_routing") -> Path:
    path = folder / "answers.yaml"
    path.write_text(json.dumps({lesson: sentences}), encoding="utf-8")  # JSON is YAML
    return path


@pytest.fixture(params=LESSONS)
def lesson(request) -> str:
    return request.param


# The committed sentences -------------------------------------------------------------------------


def test_every_lesson_has_an_answer_of_three_sentences():
    loaded = answers.load_answers()
    assert list(loaded) == LESSONS
    assert {len(sentences) for sentences in loaded.values()} == {3}


def test_no_sentence_is_contradicted_by_the_committed_metrics(lesson):
    metrics = read_metrics(lesson)
    contradictions = [
        f"lesson {lesson}, sentence {number} ({sentence.text[:60]}...): {unmet}"
        for number, sentence in enumerate(answers.load_answers()[lesson], start=1)
        for unmet in check_sentence(sentence, lesson, metrics)
    ]
    assert not contradictions, "\n".join(contradictions)


def test_every_key_is_a_committed_metric(lesson):
    metrics = read_metrics(lesson)
    missing = [
        f"lesson {lesson}, sentence {number}: no metric {key}"
        for number, sentence in enumerate(answers.load_answers()[lesson], start=1)
        for key in sentence.list_metric_keys()
        if key not in metrics
    ]
    assert not missing, "\n".join(missing)


def test_no_requirement_is_met_together_with_its_opposite(lesson):
    metrics = read_metrics(lesson)
    num_comparisons = 0
    for sentence in answers.load_answers()[lesson]:
        for requirement in sentence.requires:
            comparison = re.search(r" (>=|<=|>|<) ", requirement)
            if comparison:
                num_comparisons += 1
                opposite = requirement.replace(comparison[0], f" {OPPOSITE[comparison[1]]} ")
                altered = sentence.model_copy(update={"requires": (opposite,)})
                assert check_sentence(altered, lesson, metrics), opposite
    assert num_comparisons


def test_a_sentence_is_one_sentence_in_words_of_the_field(lesson):
    for sentence in answers.load_answers()[lesson]:
        assert sentence.text.endswith(".")
        assert not re.search(r"[.!?] [A-Z]", sentence.text), sentence.text
        assert not re.findall(rf"\b(?:{PRIVATE_WORDS})\b", _remove_keys(sentence.text), re.I)


def _remove_keys(text: str) -> str:
    return re.sub(r"\{[^}]*\}", "", text)


def test_a_percentage_and_its_interval_lie_within_their_range(lesson):
    metrics = read_metrics(lesson)
    for sentence in answers.load_answers()[lesson]:
        for key in re.findall(r"\{([\w.+-]+):(?:fine_)?percent\}", sentence.text):
            ends = [metrics[key + end] for end in ("", "_ci_low", "_ci_high")]
            assert all(-1 <= end <= 1 for end in ends), key
            assert ends[1] < ends[2], key


def test_an_opening_cell_is_short_asks_for_a_prediction_and_has_no_private_word(lesson):
    opening = read_opening(lesson)
    assert opening.startswith("# ")
    assert opening.count("\n") + 1 <= OPENING_LINES
    assert "**Prediction.**" in opening
    assert len(re.findall(r"\([a-d]\)", opening)) in (3, 4)
    assert not re.findall(rf"\b(?:{PRIVATE_WORDS})\b", opening, re.I)


# The page ----------------------------------------------------------------------------------------


def test_the_page_shows_three_sentences_with_numbers_and_loads_nothing(lesson):
    html = answers.render_answer(lesson, read_metrics(lesson), "laptop")
    assert html.count('<li class="supported">') == 3
    assert "profile laptop" in html
    assert not re.search(r"[{}]|\bnan\b|None", html)
    assert accessibility_check.problems(html) == []


@pytest.mark.parametrize("profile", ["smoke", "laptop"])
def test_a_run_that_contradicts_a_sentence_strikes_it_out_with_the_reason(profile):
    lesson = "05_budgeted_routing"
    metrics = read_metrics(lesson) | {
        "full.corl.low.minus_best_expert": -0.1,
        "full.corl.low.minus_best_expert_ci_low": -0.2,
        "full.corl.low.minus_best_expert_ci_high": 0.1,
    }
    html = answers.render_answer(lesson, metrics, profile)
    contradicted = re.findall(r'<li class="contradicted">(.*)</li>', html)
    assert len(contradicted) == 1
    assert "This run does not show this:" in contradicted[0]
    assert (
        "full.corl.low.minus_best_expert &gt; 0, but it is -0.100 [-0.200, 0.100]"
        in contradicted[0]
    )
    assert re.search(r"<s>Logistic.*</s>$", contradicted[0])
    assert ("too small to show anything" in html) == (profile == "smoke")


@pytest.mark.parametrize("value", [None, math.nan, "nothing", "left out"])
def test_a_number_that_a_run_did_not_measure_is_named_and_never_printed(lesson, value):
    sentences = answers.load_answers()[lesson]
    metrics = read_metrics(lesson)
    key = next(key for sentence in sentences for key in sentence.list_metric_keys())
    if value == "left out":
        del metrics[key]
    else:
        metrics[key] = value
    html = answers.render_answer(lesson, metrics, "laptop")
    assert '<li class="contradicted">' in html
    assert key in html
    assert not re.search(r"\bnan\b|None", html)


def test_a_lesson_without_metrics_is_rendered_all_the_same(lesson):
    html = answers.render_answer(lesson, {}, "laptop")
    assert html.count('<li class="contradicted">') == 3


def test_a_notebook_without_an_answer_gets_none():
    assert answers.render_answer("05a_appendix", {}, "laptop") == ""


# One sentence ------------------------------------------------------------------------------------

GAIN = {"gain": 0.123, "gain_ci_low": 0.05, "gain_ci_high": 0.2, "seeds": 20, "word": "not open"}


@pytest.mark.parametrize(
    "placeholder, text",
    [
        ("{gain}", "0.12 [0.05, 0.20]"),
        ("{gain:difference}", "+0.12 [0.05, 0.20]"),
        ("{gain:fine_difference}", "+0.123 [0.050, 0.200]"),
        ("{gain:percent}", "12% [5, 20]"),
        ("{gain:points}", "+12 points [5, 20]"),
        ("{gain:fine_points}", "+12.3 points [5.0, 20.0]"),
        ("{gain:dollars}", "$0.12 [$0.05, $0.20]"),
        ("{seeds:count}", "20"),
        ("{nothing}", answers.NOT_MEASURED),
    ],
)
def test_a_placeholder_becomes_a_number_with_its_interval(placeholder, text):
    sentence = AnswerSentence(text=f"It is {placeholder}.", requires=("{gain} > 0",))
    assert fill_sentence(sentence, "05_budgeted_routing", GAIN) == f"It is {text}."


def test_a_minus_stands_before_the_currency_and_zero_has_none():
    dollars = answers.FORMATS["dollars"]
    assert dollars.format_estimate(Interval(-0.001, -1234.5, 2.0)) == "$0.00 [-$1,234.50, $2.00]"
    points = answers.FORMATS["points"]
    assert points.format_estimate(Interval(0.001, math.nan, math.nan)) == "0 points"


@pytest.mark.parametrize(
    "requirement, is_met",
    [
        ("{gain} > 0", True),
        ("{gain} < 0", False),
        ("{gain} > 0.1", False),  # the interval holds 0.1
        ("{gain} contains 0.1", True),
        ("{gain} contains 0", False),
        ("exact({seeds}) >= 20", True),
        ("{seeds} > 0", False),  # no interval, and not called exact
        ("{seeds} contains 20", False),
        ("{constant} > 0", False),  # an interval of no width has tested nothing
        ("{constant} contains 1", False),
        ("{word} is not open", True),
        ("{word} is open or undecided", False),
        ("{gain} / exact({zero}) > 0", False),
    ],
)
def test_a_requirement_tests_the_whole_interval(requirement, is_met):
    sentence = AnswerSentence(text="It gains.", requires=(requirement,))
    metrics = GAIN | {"constant": 1.0, "constant_ci_low": 1.0, "constant_ci_high": 1.0, "zero": 0}
    unmet = check_sentence(sentence, "05_budgeted_routing", metrics)
    assert (not unmet) == is_met, unmet


def test_a_sentence_that_is_altered_to_its_opposite_is_refused():
    lesson = "05_budgeted_routing"
    text = "CoRL beats logistic regression."
    altered = AnswerSentence(text=text, requires=("{corl.medium.minus_logistic} > 0",))
    (unmet,) = check_sentence(altered, lesson, read_metrics(lesson))
    assert str(unmet).startswith("corl.medium.minus_logistic > 0, but it is -0.")


def test_a_misspelled_key_is_reported_with_the_lesson_and_the_nearest_key():
    lesson = "05_budgeted_routing"
    misspelled = AnswerSentence(text="It gains.", requires=("{corl.high.minus_logistik} > 0",))
    (unmet,) = check_sentence(misspelled, lesson, read_metrics(lesson))
    assert lesson in str(unmet)
    assert "corl.high.minus_logistik" in str(unmet)
    assert "'corl.high.minus_logistic'" in str(unmet)


# The file ----------------------------------------------------------------------------------------

TRUE = {"text": "It gains {gain:points}.", "requires": ["{gain} > 0"]}


def test_the_file_is_read_as_it_stands(tmp_path):
    (sentences,) = answers.load_answers(write_answers(tmp_path, TRUE, TRUE, TRUE)).values()
    assert sentences[0].list_metric_keys() == ["gain"]


@pytest.mark.parametrize(
    "broken, reason",
    [
        ({"text": " ".join(["word"] * 46)}, "46 words"),
        ({"text": "It gains {gain:furlongs}."}, "no known format"),
        ({"text": "It gains {gain."}, "no placeholder"),
        ({"requires": []}, "at least 1 item"),
        ({"requires": ["1 > 0"]}, "cannot fail"),
        ({"requires": ["{gain}"]}, "neither a comparison"),
        ({"requires": ["{gain} > 0 contains 0"]}, "neither a comparison"),
        ({"requires": ["{gain} is"]}, "cannot be read"),
        ({"requires": ["{06_tool_orchestration: gain} > 0"]}, "names a lesson"),
        ({"because": "a slip"}, "because"),
    ],
)
def test_a_broken_entry_is_refused_with_its_lesson_and_reason(tmp_path, broken, reason):
    path = write_answers(tmp_path, TRUE, TRUE | broken, TRUE)
    with pytest.raises(AnswerError, match="05_budgeted_routing, 1") as refused:
        answers.load_answers(path)
    assert reason in str(refused.value)


@pytest.mark.parametrize("num_sentences", [2, 4])
def test_an_answer_has_exactly_three_sentences(tmp_path, num_sentences):
    with pytest.raises(AnswerError, match="3 item"):
        answers.load_answers(write_answers(tmp_path, *[TRUE] * num_sentences))


@pytest.mark.parametrize("content", ["- a list", "{", ""])
def test_a_file_of_another_shape_is_refused(tmp_path, content):
    path = tmp_path / "answers.yaml"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(AnswerError, match="answers.yaml"):
        answers.load_answers(path)
