"""The grader: a number or a verdict for an answer, from its words and those of the reference.

A stand-in for a judge with a known weakness: it compares words, so it likes answers that resemble the
reference and knows nothing about whether another answer is as good.
"""

import re
from collections import Counter

import numpy as np

from lib.llm.scripted.model_strength import Strength

GRADE_ASKED = "# Grade to give"
VERDICT_ASKED = "# Verdict to give"
PAIR_ASKED = "# Better answer to name"
GOOD_GRADE = 0.5  # from which the verdict is True
_SECTION = re.compile(
    r"^# (Question|Reference|Answer(?: [AB])?)\n(.*?)\s*(?=^# |\Z)", re.DOTALL | re.MULTILINE
)
_FINAL_ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)


def grade_answer(text: str, strength: Strength, rng: np.random.Generator) -> str:
    """Grade an answer by the F1 score of its words and the reference's, plus noise.

    Args:
        text: The prompt, or the end of it.
        strength: Strength of the model.
        rng: Random numbers.

    Returns:
        The grade as a decimal; 0.50 where answer or reference cannot be seen.
    """
    return f"{_compare_with_reference(text, strength, rng):.2f}"


def give_verdict(text: str, strength: Strength, rng: np.random.Generator) -> str:
    """The same grade as a reason and a verdict.

    Args:
        text: The prompt, or the end of it.
        strength: Strength of the model.
        rng: Random numbers.

    Returns:
        Two sentences.
    """
    grade = _compare_with_reference(text, strength, rng)
    return (
        f"The answer's words agree with the reference to {grade:.2f}.\n"
        f"So the result is {grade >= GOOD_GRADE}"
    )


def name_better_answer(text: str, strength: Strength, rng: np.random.Generator) -> str:
    """Name the answer of two whose words are more like the reference's, with noise for each.

    Args:
        text: The prompt, or the end of it.
        strength: Strength of the model.
        rng: Random numbers.

    Returns:
        Two sentences.
    """
    grade_a = _compare_with_reference(text, strength, rng, "Answer A")
    grade_b = _compare_with_reference(text, strength, rng, "Answer B")
    better = "A" if grade_a >= grade_b else "B"
    return f"They agree to {grade_a:.2f} and {grade_b:.2f}.\nSo the better answer is {better}"


def _compare_with_reference(
    text: str, strength: Strength, rng: np.random.Generator, section: str = "Answer"
) -> float:
    """Compute the F1 score of an answer's words against those of the reference, plus noise.

    Args:
        text: The prompt, or the end of it: Markdown with one heading for each section.
        strength: Strength of the scripted model; its noise is the standard deviation of what is added.
        rng: Random numbers.
        section: Heading of the answer.

    Returns:
        The grade in [0, 1]; 0.5 where answer or reference cannot be seen.
    """
    # Of two sections of one name the first counts: an answer may contain anything, headings too.
    sections = dict(reversed(_SECTION.findall(text)))
    if "Reference" not in sections or section not in sections:
        return 0.5
    answer = sections[section]
    final_answer = _FINAL_ANSWER.search(answer)
    if final_answer:
        answer = final_answer.group(1)

    # F1 = 2 |shared| / (|reference| + |answer|), words counted as often as they stand there
    reference_words = Counter(sections["Reference"].split())
    answer_words = Counter(answer.split())
    num_shared = (reference_words & answer_words).total()
    f1 = 2 * num_shared / max(1, reference_words.total() + answer_words.total())
    noise = strength.noise * float(rng.standard_normal())
    return min(1.0, max(0.0, f1 + noise))
