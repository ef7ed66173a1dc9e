"""The final answer of a reply, and a judge's grade."""

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lib.tasks.scorers.extraction import (
    FinalAnswer,
    clean_answer,
    extract_final_answer,
    extract_number,
    find_final_answers,
    read_score,
    strip_reasoning,
)

# From the strongest rule to the weakest, each with its own answer.
LADDER = [
    ("<answer>tags</answer>", "tags", "answer tags"),
    (r"$\boxed{box}$", "box", "boxed"),
    ("#### 4", "4", "####"),
    ("The answer is phrase.", "phrase", "phrase"),
]


@pytest.mark.parametrize("strong", range(len(LADDER)))
@pytest.mark.parametrize("weak", range(len(LADDER)))
def test_a_stronger_rule_wins_wherever_it_stands(strong, weak):
    if strong >= weak:
        return
    text, answer, rule = LADDER[strong]
    for reply in (f"{text}\n{LADDER[weak][0]}", f"{LADDER[weak][0]}\n{text}"):
        assert extract_final_answer(reply) == FinalAnswer(answer, rule)


@pytest.mark.parametrize(
    "reply, answer",
    [
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\frac{\sqrt{3}}{2}} and more {", r"\frac{\sqrt{3}}{2}"),
        (r"\boxed{\left\{1, 2\right\}}", r"\left\{1, 2\right\}"),
        (r"\boxed{\text{even}}", "even"),
        (r"\fbox{7}", "7"),
        (r"\boxed {7}", "7"),
        (r"\boxed{\boxed{7}}", "7"),
        (r"\boxed{\begin{pmatrix} 1 \\ 2 \end{pmatrix}}", r"\begin{pmatrix} 1 \\ 2 \end{pmatrix}"),
        (r"\boxed{a}b\boxed{c}", "c"),
        (r"I put it in \boxed{}: \boxed{3}. See \boxed{}", "3"),
    ],
)
def test_a_box_is_read_up_to_the_brace_that_closes_it(reply, answer):
    assert extract_final_answer(reply) == FinalAnswer(answer, "boxed")


@pytest.mark.parametrize(
    "reply, answer, rule",
    [
        (r"The answer is 4." + "\n" + r"So \boxed{\frac{1}{2", "4", "phrase"),
        (r"\boxed{3} and then \boxed{4", "3", "boxed"),
        ("\\boxed{5$\nThe answer is 6.", "6", "phrase"),
        ("The answer is 4.\n<answer>5", "4", "phrase"),
        ("<answer>4</answer> or <answer>5", "4", "answer tags"),
    ],
)
def test_an_answer_that_was_cut_off_falls_through(reply, answer, rule):
    assert extract_final_answer(reply) == FinalAnswer(answer, rule)


@pytest.mark.parametrize(
    "reply, answer",
    [
        ("<answer>The answer is 5.</answer>", "5"),
        (r"<answer> \boxed{5} </answer>", "5"),
        ("<ANSWER>5</ANSWER>", "5"),
        ("<answer>4</answer><answer>5</answer>", "5"),
        ("<answer></answer><answer>5</answer><answer> </answer>", "5"),
        ("<answer><answer>5</answer>", "5"),
    ],
)
def test_the_last_tags_that_hold_something_count(reply, answer):
    assert extract_final_answer(reply) == FinalAnswer(answer, "answer tags")


@pytest.mark.parametrize(
    "reply, answer",
    [
        ("The answer is 42.", "42"),
        ("The final answer is: **42**.", "42"),
        ("the answer is therefore 42", "42"),
        ("**Answer:** 42", "42"),
        ("**Answer**: 42", "42"),
        ("**Answer: 42**", "42"),
        ("Final Answer: $42$", "42"),
        (r"The answer is \(42\).", "42"),
        ("Answer: `42`", "42"),
        ("ANSWER: 42", "42"),
        ("> Answer: 42", "42"),
        ("So the answer would be 42.", "42"),
        ("The answer to the question of life is 42.", "42"),
        ("The answer (in km) is 42.", "42"),
        ("### Final Answer\n\n42\n", "42"),
        ("**Final Answer**\n\n$$\n42\n$$", "42"),
        ("Answer:\n42", "42"),
        ("The answer is:\n\n\\[ 42 \\]\n", "42"),
        ("The answer is 41. No, wait.\nThe answer is 42.", "42"),
        ("The answer is 42. I hope this answer is helpful!", "42"),
        ("The answer is Dr. Smith. He wrote it.", "Dr. Smith"),
        ("The answer is J. K. Rowling. She did.", "J. K. Rowling"),
        ("The answer is 3.14. That is rounded.", "3.14"),
        ('The answer is "Yes".', "Yes"),
        ("The correct option is (C).", "(C)"),
        ("The answer isn't 41. The answer is 42.", "42"),
    ],
)
def test_a_phrase_announces_the_answer(reply, answer):
    assert extract_final_answer(reply) == FinalAnswer(answer, "phrase")


@pytest.mark.parametrize(
    "reply",
    [
        "The answer is not 42.",
        "I hope the answer is 42.",
        "This answer is wrong.",
        "We have to answer questions.",
        "No answer is needed.",
        "Which answer is 42?",
    ],
)
def test_other_uses_of_the_word_announce_nothing(reply):
    assert find_final_answers(reply) == []


@pytest.mark.parametrize(
    "reply, rule",
    [
        ("5 + 5 = 10\n#### 10", "####"),
        ("#### 10\nThat is all.", "####"),
        ("#### Paris", "####"),
        ("#### Step 1: add\n5 + 5 = 10", "whole reply"),
        ("#### Step 1\nThe answer is 10.", "phrase"),
    ],
)
def test_four_hashes_are_an_answer_only_at_the_end_or_before_a_number(reply, rule):
    assert extract_final_answer(reply).rule == rule


@pytest.mark.parametrize(
    "reply, visible",
    [
        ("<think>a</think>b", "b"),
        ("a</think>b", "b"),
        ("<think>a</think>b</think>c", "c"),
        ("<think>a", ""),
        ("b <think>a", "b"),
        ("<thinking>a</thinking> b", "b"),
        ("a", "a"),
    ],
)
def test_only_what_stands_behind_the_thought_is_read(reply, visible):
    assert strip_reasoning(reply) == visible


def test_thought_holds_no_answer():
    assert extract_final_answer("<think>The answer is 5. <answer>5</answer>").text == ""
    assert extract_number("<think>5</think>") is None


@pytest.mark.parametrize(
    "text, clean",
    [
        ("**a**", "a"),
        ("a.", "a"),
        ("**a.**", "a"),
        ("`$a$`.", "a"),
        (r"\text{a}", "a"),
        (r"\text{a} \text{b}", r"\text{a} \text{b}"),
        ("$a$ or $b$", "$a$ or $b$"),
        ("3.5", "3.5"),
        ("wait...", "wait..."),
        ("", ""),
    ],
)
def test_what_surrounds_an_answer_is_removed(text, clean):
    assert clean_answer(text) == clean


@pytest.mark.parametrize(
    "reply, value",
    [
        ("The answer is below.\n\n3 + 4 = 7", 7),
        ("Let me check that the answer is right. 5 * 8 = 40. So 40 dollars.", 40),
        ("She has 3 apples and buys 4, which makes 7.", 7),
        ("The answer is 5 because 3 + 2 is 5 and not 6.", 5),
        ("The answer is $12 for 3 items.", 12),
        ("The answer is 3 + 4 = 7.", 7),
    ],
)
def test_the_number_is_that_of_the_answer(reply, value):
    assert extract_number(reply).value == value


def test_a_word_in_tags_is_no_number_even_where_numbers_stand_outside():
    assert extract_number("10 + 2 is 12. <answer>twelve</answer>") is None


@pytest.mark.parametrize(
    "text, score",
    [
        ("Score: 0.8", 0.8),
        ("**0.8**", 0.8),
        ("0.8/1", 0.8),
        ("8/10", 0.8),
        ("80%", 0.8),
        ("80 %", 0.8),
        ("<think>Score: 0.1</think>\n0.8", 0.8),
        ('{"score": 0.8}', 0.8),
        ('```json\n{"reason": "2 of 3", "score": "0.8"}\n```', 0.8),
        ("0,8", 0.8),
        (".8", 0.8),
        ("0", 0.0),
        ("1", 1.0),
        ("1.0", 1.0),
        ("Score: 1.", 1.0),
        ("It names 2 of 3 facts.\nScore: 0.66", 0.66),
        ("**Score:** 0.8/1.0", 0.8),
        ("**Score**: **0.8**", 0.8),
        ("Score (0-1): 0.8", 0.8),
        ("Score: 8 out of 10", 0.8),
        ("Score: 8 (out of 10)", 0.8),
        ("Score: 0.8 (out of 1)", 0.8),
        ("Score: 0.8, because 2 of 3 facts are right", 0.8),
        ("Rating: [[0.8]]", 0.8),
        ("Score: <0.8>", 0.8),
        (r"Score: $\boxed{0.8}$", 0.8),
        ("<answer>0.8</answer>", 0.8),
        ("On a scale from 0 to 1, I give 0.8.", 0.8),
        ("I would give it 0.8.", 0.8),
        ("Accuracy score: 0.9\nOverall score: 0.8", 0.8),
        ("Score: 4/5", 0.8),
        ("Verdict: correct", 1.0),
        ("Verdict: **Incorrect**", 0.0),
        ("So the result is True.", 1.0),
        ("So the result is False", 0.0),
        ("Yes", 1.0),
        ("wrong", 0.0),
    ],
)
def test_a_grade_is_read_as_people_write_it(text, score):
    assert read_score(text) == pytest.approx(score)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot grade this.",
        "8",
        "Score: 8",
        "Score: 11/10",
        "5/0",
        "-0.5",
        "Score: -0.5",
        "1.2",
        "120%",
        "0.5 or 0.7",
        "Score: between 0.5 and 0.7",
        "Score: 0.5-0.7",
        "Score: 0.5 to 0.7",
        "<think>0.8",
        "Score: high",
        "The maximum score is 1",
        "It is not clear whether this is correct.",
        '{"score": null}',
        "2 of 3 facts are right",
        "v0.8",
    ],
)
def test_what_is_no_grade_is_not_guessed(text):
    assert read_score(text) is None


TOKENS = [
    "\\boxed{", "\\fbox{", "\\text{", "\\frac{1}{2}", "\\{", "{", "}", "<answer>", "</answer>", "<think>", "</think>",
    "####", "The ", "answer", " is ", ":", "**Answer:** ", "**", "`", "$", "5", "1,000", "1/2", "-3", "0.8", "/10", "%",
    " km", "x", "^", "=", "A", " B", "(C)", " or ", " not ", "(", ")", "[", "]", ".", ",", ";", "Score: ", "```",
    "def ", "\n", " ", "\n\n",
]  # fmt: skip
TEXTS = st.text() | st.lists(st.sampled_from(TOKENS)).map("".join)


@given(TEXTS)
def test_no_text_crashes_an_extractor(text):
    answer = extract_final_answer(text)
    assert isinstance(answer.text, str)
    assert all(isinstance(phrase.text, str) for phrase in find_final_answers(text))
    extract_number(text)
    score = read_score(text)
    assert score is None or 0 <= score <= 1


@example("*:0")
@given(TEXTS)
def test_cleaning_twice_is_cleaning_once(text):
    # Twenty layers are taken at once; a text of hypothesis may have more only where it is nothing but marks.
    once = clean_answer(text)
    if any(character.isalnum() for character in text) and len(text) < 40:
        assert clean_answer(once) == once


@given(
    st.text(st.characters(categories=["L", "Nd"]), min_size=1),
    TEXTS.filter(lambda t: "answer" not in t.lower()),
)
def test_what_stands_in_the_last_tags_is_the_answer(answer, text):
    if "think" not in text:
        assert extract_final_answer(f"{text}<answer>{answer}</answer>").text == answer


@given(
    st.recursive(
        st.text("ab12 ", min_size=1, max_size=4),
        lambda inner: inner.map("x{{{}}}y".format),
        max_leaves=5,
    )
)
def test_nested_braces_come_back_whole(content):
    if content.strip():
        assert extract_final_answer(rf"So \boxed{{{content}}}.").text == content.strip()


@given(st.integers(0, 100))
def test_every_percentage_is_a_grade(percent):
    for text in (
        f"{percent}%",
        f"Score: {percent}/100",
        f"{percent / 100}",
        f"Score: {percent / 100}",
    ):
        assert read_score(text) == pytest.approx(percent / 100)


HOSTILE = [
    "\\boxed{" * 14_000, "{" * 100_000, "}" * 100_000, "<answer>" * 12_000, "<answer>1" * 11_000, "answer is " * 10_000,
    "the answer: " * 8_000, "#### a\n" * 14_000, "answer\n" * 14_000, "answer to " * 10_000, "1,000" * 20_000,
    "1 " * 50_000, "9" * 100_000, "1/" * 50_000, "$" * 100_000, "\\frac{1}" * 12_000, "**" * 50_000,
    "</think>" * 12_000,
    "<think>" * 14_000, " " * 100_000, "\n" * 100_000, "a" * 100_000, "Score: " * 14_000, "0.5/" * 25_000,
    "." * 100_000, "\\" * 100_000, "x=1 " * 25_000, "\\text{" * 16_000, "-" * 100_000, "\u00a0" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: repr(text[:8]))
def test_long_hostile_text_is_read_in_little_time(text):
    # Quadratic time would be minutes; a busy machine needs well below a second.
    started = time.process_time()
    extract_final_answer(text)
    extract_number(text)
    read_score(text)
    assert time.process_time() - started < 5
