"""Prompts as HTML: every component named, nothing executed, changes marked."""

import pytest

from lib.orchestration.decisions import Exchange
from lib.orchestration.prompt_components import Part
from lib.reports import accessibility_check
from lib.reports.lesson_figures import dialogue

QUERY = Part("query", "user", "# Query\nPick one.")
STATE = Part("state", "user", "# State\n- mastery: <script>alert(1)</script> 0.40")


def memory(*steps: str) -> Part:
    return Part("mem_s", "user", "\n".join(["# Recent steps", *steps]))


@pytest.fixture
def report(monkeypatch):
    monkeypatch.setenv("BENCH_RUN", "1")


def test_text_of_a_prompt_stays_text():
    pages = [
        dialogue.prompt_html([STATE], "<b>caption</b>"),
        dialogue.exchange_html(
            [Exchange((STATE,), "<script>2</script>", "<script>3</script>")], "said"
        ),
    ]
    assert all("<script>" not in page and "<b>" not in page for page in pages)
    assert "&lt;script&gt;" in pages[0]


def test_the_report_shows_one_component_with_its_changes_and_no_widget(report, monkeypatch):
    import IPython.display

    monkeypatch.setattr(
        IPython.display, "display", lambda *_: pytest.fail("a widget in the report")
    )
    steps = [[QUERY, memory(*(f"step {i}: fine" for i in range(1, n)))] for n in range(1, 8)]
    page = dialogue.explorer({"RO": steps}, "prompts")
    assert page.count("<strong>RO, step") == 4
    assert page.count("<ins") >= 3 and "step 1: fine" in page


def test_pages_load_nothing_and_run_nothing(report):
    pages = [
        dialogue.prompt_html([QUERY, STATE], "asked"),
        dialogue.exchange_html([Exchange((STATE,), "{}", "picked")], "said"),
        dialogue.explorer({"RO": [[QUERY, memory("a")], [QUERY, memory("b")]]}, "prompts"),
    ]
    assert not [problem for page in pages for problem in accessibility_check.problems(page)]
    assert not any("<script" in page or " onclick" in page for page in pages)


def test_a_live_session_gets_controls_that_choose(monkeypatch):
    monkeypatch.delenv("BENCH_RUN", raising=False)
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    steps = [[QUERY, memory(*(f"step {i}: fine" for i in range(1, n)))] for n in range(1, 5)]
    dialogue.explorer({"KO": steps[:2], "RO": steps}, "prompts")
    (box,) = shown
    (kind, component), step, text = box.children[0].children, box.children[1], box.children[2]
    kind.value = "RO"
    component.value = "mem_s"
    step.value = 4
    assert (
        "step 3: fine" in text.value.replace("</ins>", "").replace("\n", " ")
        or "<ins" in text.value
    )
    assert step.max == 4 and "<strong>mem_s</strong>" in text.value
    kind.value = "KO"  # shorter: the step moves into it, the component stays
    assert (
        component.value == "mem_s"
        and step.max == step.value == 2
        and "<strong>mem_s</strong>" in text.value
    )


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
