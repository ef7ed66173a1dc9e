"""Prompts as HTML: every component named, nothing executed, changes marked."""

import pytest

from lib.orchestration.components import Part
from lib.orchestration.decisions import Exchange
from lib.reporting import dialogue

QUERY = Part("query", "user", "# Query\nPick one.")
STATE = Part("state", "user", "# State\n- mastery: <script>alert(1)</script> 0.40")


def memory(*steps: str) -> Part:
    return Part("mem_s", "user", "\n".join(["# Recent steps", *steps]))


@pytest.fixture
def report(monkeypatch):
    monkeypatch.setenv("BENCH_RUN", "1")


def test_every_component_is_named_with_its_meaning_and_its_message():
    page = dialogue.prompt_html([QUERY, STATE], "What is asked")
    assert "<strong>query</strong> the request of this step (user message)" in page
    assert "<strong>state</strong> how things stand (user message)" in page
    assert "<figcaption>What is asked</figcaption>" in page


def test_text_of_a_prompt_stays_text():
    pages = [
        dialogue.prompt_html([STATE], "<b>caption</b>"),
        dialogue.exchange_html([Exchange((STATE,), "<script>2</script>", "<script>3</script>")], "said"),
    ]
    assert all("<script>" not in page and "<b>" not in page for page in pages)
    assert "&lt;script&gt;" in pages[0]


def test_long_parts_are_folded_and_short_ones_are_not():
    long = Part("know", "user", "\n".join(f"line {i}" for i in range(40)))
    page = dialogue.prompt_html([QUERY, long], "folded")
    assert page.count("<details>") == 1 and "line 0 … (40 lines)" in page and "line 39" in page


def test_an_exchange_says_what_is_new_in_the_prompt():
    second = Exchange((QUERY, memory("step 1")), '{"policy": "SO-d1"}', "picked SO-d1")
    page = dialogue.exchange_html([Exchange((QUERY, memory()), "{}", "cannot be used"), second], "said")
    assert "new in the prompt: everything" in page and "new in the prompt: mem_s" in page
    assert "picked SO-d1" in page and "cannot be used" in page


def test_the_report_shows_one_component_with_its_changes_and_no_widget(report, monkeypatch):
    import IPython.display

    monkeypatch.setattr(IPython.display, "display", lambda *_: pytest.fail("a widget in the report"))
    steps = [[QUERY, memory(*(f"step {i}: fine" for i in range(1, n)))] for n in range(1, 8)]
    page = dialogue.explorer({"RO": steps}, "prompts")
    assert page.count("<strong>RO, step") == 4
    assert page.count("<ins") >= 3 and "step 1: fine" in page


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
    assert "step 3: fine" in text.value.replace("</ins>", "").replace("\n", " ") or "<ins" in text.value
    assert step.max == 4 and "<strong>mem_s</strong>" in text.value


@pytest.mark.parametrize("call", [lambda: dialogue.prompt_html([], "x"), lambda: dialogue.exchange_html([], "x")])
def test_nothing_to_show_is_an_error(call):
    with pytest.raises(ValueError, match="there is no"):
        call()


def test_a_component_that_is_never_shown_is_named(report):
    with pytest.raises(ValueError, match="KO shows no component 'tools'"):
        dialogue.explorer({"KO": [[QUERY]]}, "prompts", component="tools")
