"""Prompts as HTML: every component named, nothing executed, changes marked."""

import pytest

from lib.orchestration.components import Part
from lib.orchestration.decisions import Exchange
from lib.page import audit
from lib.scenes import dialogue

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


def test_what_came_is_underlined_and_what_went_is_struck_out_line_by_line():
    page = dialogue._marked("# Recent\nstep 1: SO-d1, all wrong\nstep 2: fine", "# Recent\nstep 2: fine\nstep 3: <new>")
    body = page.split(">", 1)[1].removesuffix("</pre>").split("\n")
    assert body[0] == "# Recent" and body[2] == "step 2: fine"
    assert body[1].startswith("<del") and "step 1: SO-d1, all wrong</del>" in body[1]
    assert body[3].startswith("<ins") and "step 3: &lt;new&gt;</ins>" in body[3]


def test_a_line_that_changed_in_part_is_compared_by_words():
    page = dialogue._marked("- mastery: 0.40 of 1.00, as before", "- mastery: 0.60 of 1.00, as before")
    assert page.count("<del") == page.count("<ins") == 1
    assert ">0.40</del>" in page and ">0.60</ins>" in page and "- mastery: " in page


def test_an_unchanged_text_has_no_marks():
    page = dialogue._marked("a\nb", "a\nb")
    assert "<ins" not in page and "<del" not in page and ">a\nb</pre>" in page


def test_pages_load_nothing_and_run_nothing(report):
    pages = [
        dialogue.prompt_html([QUERY, STATE], "asked"),
        dialogue.exchange_html([Exchange((STATE,), "{}", "picked")], "said"),
        dialogue.explorer({"RO": [[QUERY, memory("a")], [QUERY, memory("b")]]}, "prompts"),
    ]
    assert not [problem for page in pages for problem in audit.problems(page)]
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
    assert "step 3: fine" in text.value.replace("</ins>", "").replace("\n", " ") or "<ins" in text.value
    assert step.max == 4 and "<strong>mem_s</strong>" in text.value
    kind.value = "KO"  # shorter: the step moves into it, the component stays
    assert component.value == "mem_s" and step.max == step.value == 2 and "<strong>mem_s</strong>" in text.value


def test_a_component_that_is_not_in_a_step_is_called_absent(monkeypatch):
    monkeypatch.delenv("BENCH_RUN", raising=False)
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    dialogue.explorer({"RO": [[QUERY], [QUERY, memory("step 1: fine")]]}, "prompts", component="query")
    (kind, component), text = shown[0].children[0].children, shown[0].children[2]
    assert component.options == ("query", "mem_s") and kind.value == "RO"
    component.value = "mem_s"
    assert "Not part of this step" in text.value


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


def test_a_component_that_is_never_shown_is_named(report):
    with pytest.raises(ValueError, match="KO shows no component 'tools'"):
        dialogue.explorer({"KO": [[QUERY]]}, "prompts", component="tools")
