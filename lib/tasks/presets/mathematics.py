"""Mathematics with a final answer: GSM8K, MATH and MATH-500, DeepScaleR, AIME and AMC.

The layouts of `deepscaler`, `aime` and `amc` are not checked against the original.
"""

from lib.tasks.item import Item, TaskError
from lib.tasks.presets.preset import Preset, Record, make_item


def _make_gsm8k_item(record: Record) -> Item:
    """Make an item (a question with its reference answer) of a row of GSM8K, whose answers end in "#### 42"."""
    solution, final_answer = split_gsm8k_answer(record.get_text("answer"))
    if not final_answer:
        raise TaskError(
            f"{record.location}: 'answer' has no number after '####'; give a file in the layout of GSM8K"
        )
    return make_item(record.get_text("question"), final_answer, "gsm8k", worked_solution=solution)


def split_gsm8k_answer(answer: str) -> tuple[str, str]:
    """Splits an answer of GSM8K into the worked solution and the number behind "####".

    Args:
        answer: A worked solution, "####" and a number.

    Returns:
        (solution, final_answer), both empty where "####", or the solution before it, is missing.
    """
    # The last marker: a solution may hold one itself.
    solution, _, final_answer = answer.rpartition("####")
    return solution.strip(), final_answer.strip() if solution else ""


def _make_math_item(record: Record) -> Item:
    """Make an item (a problem with its reference answer) of a row of MATH or MATH-500.

    Args:
        record: The row. MATH-500 has a column for the answer; in MATH it stands in a box in the solution.

    Returns:
        The item; its group is the subject, its difficulty the level from 1 to 5.

    Raises:
        TaskError: Where there is no answer.
    """
    solution = record.get_text("solution")
    answer = record.get_optional_text("answer") or find_boxed(solution)
    if not answer:
        raise TaskError(
            f"{record.location}: there is no 'answer', and no \\boxed{{...}} in 'solution'; mend the row"
        )
    level = record.get_text("level").removeprefix("Level").strip()
    return make_item(
        record.get_text("problem"),
        answer,
        record.get_text("subject", "type"),
        id=record.get_optional_text("unique_id"),
        worked_solution=solution,
        # Three problems of MATH have the level "?".
        difficulty=int(level) if level.isdecimal() else 1,
    )


def find_boxed(solution: str) -> str:
    r"""Reads the final answer of a solution of MATH.

    Args:
        solution: LaTeX with the answer in \boxed{...}, which may hold braces itself.

    Returns:
        What stands in the last box; empty where there is none.
    """
    start = max(solution.rfind(r"\boxed{"), solution.rfind(r"\fbox{"))
    if start < 0:
        return ""
    # Count braces up to the one that closes the box; they may be nested.
    begin = solution.index("{", start) + 1
    depth = 1
    for position in range(begin, len(solution)):
        if solution[position] == "{":
            depth += 1
        elif solution[position] == "}":
            depth -= 1
        if depth == 0:
            return solution[begin:position].strip()
    return ""


def _make_competition_item(record: Record) -> Item:
    """Make an item (a problem with its reference answer) of a row of DeepScaleR, AIME or AMC."""
    # AMC's file says question, the others problem.
    return make_item(
        record.get_text("problem", "question"),
        record.get_text("answer"),
        record.get_optional_text("year") or record.preset,
        id=record.get_optional_text("id", "ID"),
        worked_solution=record.get_optional_text("solution"),
        metadata={"url": record.get_optional_text("url")},
    )


PRESETS = (
    Preset(
        name="gsm8k",
        description="GSM8K (Cobbe et al., 2021): word problems of primary school",
        scorer="numeric",
        layout_checked=True,
        make_item=_make_gsm8k_item,
    ),
    Preset(
        name="math",
        description="MATH (Hendrycks et al., 2021) and MATH-500 (Lightman et al., 2023)",
        scorer="math",
        layout_checked=True,
        make_item=_make_math_item,
    ),
    Preset(
        name="deepscaler",
        description="DeepScaleR (Luo et al., 2025): competition problems; layout not checked against the original",
        scorer="math",
        layout_checked=False,
        make_item=_make_competition_item,
    ),
    Preset(
        name="aime",
        description="AIME 2024 and 2025, whole numbers from 0 to 999; layout not checked against the original",
        scorer="math",
        layout_checked=False,
        make_item=_make_competition_item,
    ),
    Preset(
        name="amc",
        description="AMC 2023; layout not checked against the original",
        scorer="math",
        layout_checked=False,
        make_item=_make_competition_item,
    ),
)
