"""Prompts as HTML: every component named, nothing executed, changes marked."""

import pytest
from bs4 import BeautifulSoup

from lib.orchestration.decision_model import ModelExchange, PromptSection
from lib.plots import accessibility_check
from lib.reports.lesson_figures import dialogue

QUERY = PromptSection("query", "user", "# Query\nPick one.")
STATE = PromptSection("state", "user", "# State\n- mastery: <script>alert(1)</script> 0.40")


def memory(*steps: str) -> PromptSection:
    return PromptSection("mem_s", "user", "\n".join(["# Recent steps", *steps]))


def test_text_of_a_prompt_stays_text():
    pages = [
        dialogue.prompt_html([STATE], "<b>caption</b>"),
        dialogue.exchange_html(
            [ModelExchange((STATE,), "<script>2</script>", "<script>3</script>")], "said"
        ),
    ]
    assert all("<script>" not in page and "<b>" not in page for page in pages)
    assert "&lt;script&gt;" in pages[0]


def find_blocks(page: str) -> tuple[str, list[str]]:
    """The text that is shown first, and the texts of all positions."""
    frames = BeautifulSoup(page, "html.parser").select(".frames > div")
    (first,) = [frame.get_text() for frame in frames if "hidden" not in frame.attrs]
    return first, [frame.get_text() for frame in frames]


def test_knobs_choose_orchestrator_component_and_step():
    steps = [[QUERY, memory(*(f"step {i}: fine" for i in range(1, n)))] for n in range(1, 8)]
    page = dialogue.explorer({"RO": steps, "KO": steps[:1]}, "prompts")
    first, blocks = find_blocks(page)
    assert len(blocks) == 2 * 2 * dialogue.STEPS_SHOWN
    assert "mem_s" in first and "step 1: fine" in first and "step 2: fine" not in first
    assert page.count("<ins") == dialogue.STEPS_SHOWN - 1  # each later step adds a line
    assert sum("Not part of this step" in block for block in blocks) == 2 * (
        dialogue.STEPS_SHOWN - 1
    )


def test_an_explorer_begins_with_a_component_that_there_is():
    with pytest.raises(ValueError, match="RO shows no component 'mem_s'"):
        dialogue.explorer({"RO": [[QUERY], [QUERY]]}, "prompts")


def test_pages_load_nothing_and_run_nothing():
    pages = [
        dialogue.prompt_html([QUERY, STATE], "asked"),
        dialogue.exchange_html([ModelExchange((STATE,), "{}", "picked")], "said"),
        dialogue.explorer({"RO": [[QUERY, memory("a")], [QUERY, memory("b")]]}, "prompts"),
    ]
    assert not [problem for page in pages for problem in accessibility_check.problems(page)]
    assert not any("<script" in page or " onclick" in page for page in pages)


@pytest.mark.parametrize(
    "call",
    [
        lambda: dialogue.prompt_html([], "x"),
        lambda: dialogue.exchange_html([], "x"),
        lambda: dialogue.explorer({}, "x"),
        lambda: dialogue.explorer({"KO": [[QUERY]], "RO": []}, "x"),
    ],
)
def test_nothing_to_show_is_an_error(call):
    with pytest.raises(ValueError, match="there is no"):
        call()
