"""Pages: formulas, money, alt text, nothing from the network, the same bytes every time."""

import re
from html.parser import HTMLParser

import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from pygments.styles import get_style_by_name

from lib.plots import pages, styles
from lib.plots.accessibility_check import ReportError, problems
from lib.reports import html
from lib.reports.lesson import Lesson
from lib.reports.markdown import Document, FormulaError, mathml, to_html

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
VOID = {"meta", "img", "source", "br", "hr", "link", "input", "wbr", "area", "base", "col", "embed"}
text = nbformat.v4.new_markdown_cell
code = nbformat.v4.new_code_cell


def shown(data: dict, metadata: dict | None = None):
    return nbformat.v4.new_output("display_data", data, metadata=metadata or {})


def notebook(*cells):
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"
    return nbformat.v4.new_notebook(cells=list(cells))


def page(*cells) -> str:
    return html.page(notebook(*cells))


def prose(source: str) -> str:
    return to_html(source, Document("."))


def formulas(source: str) -> list[str]:
    return re.findall(r'alttext="([^"]*)"', prose(source))


class Nesting(HTMLParser):
    """The elements that are open; complains about one that is closed out of order."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag, attrs):
        self.open += [] if tag in VOID else [tag]

    def handle_endtag(self, tag):
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()


def elements(markup: str, wanted: str) -> list[dict]:
    """The attributes of all elements that a CSS selector finds."""
    return [element.attrs for element in BeautifulSoup(markup, "html.parser").select(wanted)]


NO_FORMULAS = {
    "two amounts": [
        "$9,700 and $3",
        "It cost $9,700 and $3.",
        "US$5 and US$6",
        "about ~$0.03 and ~$0.4",
    ],
    "a range": [
        "from $5 to $7",
        "$3/M-$15/M",
        "costs $5 (or $7)",
        "between $1.50 and $2.00 per run",
    ],
    "words between": ["$12 million, then $3 million", "$ x $", r"\$5 and \$6"],
    "code": [
        "`$x$` is code",
        "costs $5 `a$b` more",
        "```\n$x$ and $$y$$\n```",
        "    $x$ in an indented block",
    ],
}


@pytest.mark.parametrize(
    "source", [source for sources in NO_FORMULAS.values() for source in sources]
)
def test_money_and_code_are_no_formulas(source):
    made = prose(source)
    assert "<math" not in made
    assert made.count("$") == source.count("$")


@pytest.mark.parametrize(
    "source, expected",
    [
        ("the weight $w$", ["w"]),
        ("the $k$th of $n$-many", ["k", "n"]),
        ("$2^n$ and $10$ and $0.5$", ["2^n", "10", "0.5"]),
        (r"$1 - \epsilon$", [r"1 - \epsilon"]),
        ("$5 is money, $x$ is not", ["x"]),
        (r"\$9.7 + $x$", ["x"]),
        (r"$\beta$-$\gamma$", [r"\beta", r"\gamma"]),
        ("$r = 1[c]$ costs $3", ["r = 1[c]"]),
        ("- item\n\n  $$\n  x = 1\n  - y\n  $$", ["x = 1 - y"]),
        ("> $$ q $$", ["q"]),
        ("before\n$$\nz\n$$\nafter", ["z"]),
        ("a | b\n--|--\n$x$ | 1", ["x"]),
        ("# Title of $k$", ["k"]),
    ],
)
def test_formulas_become_mathml(source, expected):
    assert formulas(source) == expected
    left = re.sub(r'alttext="[^"]*"|\$\d', "", prose(source))
    assert "$" not in left, "every other dollar sign is gone"


@given(
    st.decimals(0, 99_999, places=2),
    st.sampled_from([" and ", " to ", ", then ", " or about ", "-", "/"]),
)
def test_two_amounts_are_never_a_formula(amount, between):
    source = f"It costs ${amount}{between}${amount:,} a month"
    assert "<math" not in prose(source)


def test_letters_of_an_alphabet_are_the_letters_of_unicode():
    made = mathml(r"\mathbb{R} \mathbb{1} \mathbf{w} \mathbf{1} \mathcal{L} \boldsymbol{\alpha}")
    assert all(letter in made for letter in "ℝ𝟙𝐰𝟏ℒ𝜶")
    assert "mathvariant" not in made


def test_the_conditions_of_a_maximum_stand_below_it():
    assert re.search(
        r"<munder><mo[^>]*>max</mo><mi>a</mi></munder>", mathml(r"\max_a Q", display=True)
    )
    assert "argmax" in mathml(r"\operatorname*{argmax}_a Q") and "argmax" in mathml(r"\argmax_a Q")


def test_aligned_equations_become_a_table():
    made = mathml(r"\begin{aligned} a &= b < c \\ d &= e \end{aligned}", display=True)
    assert made.count("<mtr>") == 2 and "&lt;" in made


@pytest.mark.parametrize(
    "source",
    [
        r"$\frac{a$",
        "$x_{$",
        r"$\foo{x}$",
        "$a & b$",
        r"$a \left( b$",
        "$$ a and no end",
        r"\begin{align}x\end{align}",
    ],
)
def test_a_formula_that_cannot_be_shown_is_refused(source):
    with pytest.raises(FormulaError):
        prose(source)


@pytest.mark.parametrize(
    "output, complaint",
    [
        (shown({"image/png": PIXEL}), "alt text"),
        (shown({"image/gif": PIXEL}, {"alt": "  "}), "alt text"),
        (shown({"image/svg+xml": "<svg xmlns='http://www.w3.org/2000/svg'></svg>"}), "alt text"),
        (shown({"text/html": "<img src='data:image/png;base64,AA'>"}), "alt text"),
        (shown({"text/html": "<svg><path d='M0 0'/></svg>"}), "<svg>"),
        (shown({"text/html": "<svg role='img'></svg>"}), "<svg>"),
        (shown({"text/html": "<img alt='a' src='https://example.org/a.png'>"}), "network"),
        (shown({"text/html": "<img alt='a' src='//example.org/a.png'>"}), "network"),
        (
            shown(
                {"text/html": "<img alt='a' srcset='https://example.org/a.png 2x' src='data:,'>"}
            ),
            "network",
        ),
        (shown({"text/html": "<img alt='a' src='figures/a.png'>"}), "beside the page"),
        (shown({"text/html": "<SCRIPT SRC='https://example.org/a.js'></SCRIPT>"}), "script"),
        (shown({"text/html": "<script src='a.js'></script>"}), "script"),
        (shown({"text/html": "<script>fetch('https://example.org')</script>"}), "script"),
        (shown({"text/html": "<link rel='stylesheet' href='//example.org/a.css'>"}), "network"),
        (shown({"text/html": "<style>@import 'a.css';</style>"}), "style"),
        (
            shown(
                {"text/html": "<style>p { background: url( 'https://example.org/a.png') }</style>"}
            ),
            "style",
        ),
        (shown({"text/html": "<p style='background:url(//example.org/a.png)'>a</p>"}), "style"),
        (shown({"text/html": "<iframe title='a' src='https://example.org'></iframe>"}), "network"),
        (shown({"text/html": "<iframe src='timings/a.html'></iframe>"}), "title"),
        (
            shown({"text/html": "<iframe title='a' src='../timings/a.html'></iframe>"}),
            "beside the page",
        ),
        (
            shown({"text/html": "<iframe title='a' srcdoc='&lt;img src=x&gt;'></iframe>"}),
            "alt text",
        ),
        (
            shown(
                {"text/html": "<meta http-equiv='refresh' content='0; url=https://example.org'>"}
            ),
            "meta",
        ),
        (shown({"text/markdown": "![](data:image/png;base64,AA)"}), "alt text"),
    ],
)
def test_what_no_page_may_contain_stops_the_build_and_names_the_cell(output, complaint):
    with pytest.raises(ReportError) as caught:
        page(text("# Title"), code("draw()", outputs=[output]))
    assert "cell 2 ('draw()')" in str(caught.value) and complaint in str(caught.value)


def test_all_cells_at_fault_are_named_at_once():
    bad = [code(f"draw({n})", outputs=[shown({"image/png": PIXEL})]) for n in (1, 2)]
    with pytest.raises(
        ReportError,
        match=r"(?s)cell 1 \('## Reward'\).*\\foo.*cell 2 .*draw\(1\).*cell 3 .*draw\(2\)",
    ):
        page(text("## Reward\n\n$\\foo{x}$"), *bad)


@pytest.mark.parametrize(
    "markup",
    [
        '<a href="https://example.org">a link</a>',
        '<svg role="img" aria-label="A line that rises"><use href="#a"/></svg>',
        '<iframe src="timings/01_policy_zoo-training.html" title="Seconds"></iframe>',
        '<picture><source srcset="data:image/png;base64,AA==" media="print"><img alt="a"></picture>',
        "<style>p { background: url(data:image/png;base64,AA) }</style>",
        "<p>see https://example.org</p>",
    ],
)
def test_what_loads_nothing_is_allowed(markup):
    assert problems(markup) == []
    assert markup in page(code("x", outputs=[shown({"text/html": markup})]))


def test_alt_text_comes_from_the_metadata_of_the_output():
    kinds = ["image/png", "image/gif", "image/jpeg"]
    outputs = [shown({kind: PIXEL + "\n"}, {kind: {"alt": 'A "line" & more'}}) for kind in kinds]
    images = elements(page(code("draw()", outputs=outputs)), "img")
    assert [image["alt"] for image in images] == ['A "line" & more'] * 3
    assert [image["src"] for image in images] == [f"data:{kind};base64,{PIXEL}" for kind in kinds]
    svg = "<svg role='img' aria-label=\"A rising line\"></svg>"
    (image,) = elements(page(code("draw()", outputs=[shown({"image/svg+xml": svg})])), "img")
    assert image["alt"] == "A rising line"


def test_images_of_markdown_cells_become_part_of_the_page(tmp_path):
    (tmp_path / "dot.svg").write_text("<svg/>")
    cell = text(
        "![A dot](dot.svg) ![Another dot](attachment:b.png)",
        attachments={"b.png": {"image/png": PIXEL}},
    )
    images = elements(html.page(notebook(cell), tmp_path), "img")
    assert [image["src"][:15] for image in images] == ["data:image/svg+", "data:image/png;"]
    with pytest.raises(ReportError, match=r"cell 1 .*missing\.png"):
        html.page(notebook(text("![A dot](missing.png)")), tmp_path)


def test_the_page_is_well_formed_and_its_parts_can_be_reached():
    made = page(
        text("# What $k$ *costs*\n\n[link](https://example.org)\n\n- a\n- b"),
        text("## Results\n\n| a | b |\n|---|--:|\n| 1 | 2 |"),
        text("## Results\n\n### Part $\\alpha$\n\n$$ \\frac{a}{b} $$"),
        code(
            "print('<b>')",
            outputs=[nbformat.v4.new_output("stream", text="\x1b[31m<b>\x1b[0m & co\n")],
        ),
    )
    assert Nesting(made).open == []
    assert elements(made, "html") == [{"lang": "en"}] and "<title>What k costs</title>" in made
    assert all(len(elements(made, tag)) == 1 for tag in ("main", "h1"))
    labels = [nav["aria-label"] for nav in elements(made, "nav")]
    assert len(labels) == len(set(labels)) == 3  # of a screen reader: head, contents, foot
    ids = [element["id"] for element in elements(made, "[id]")]
    assert len(ids) == len(set(ids)) and {"results", "results-2", "part-α", "content"} <= set(ids)
    assert {element["href"][1:] for element in elements(made, "[href^='#']")} <= set(ids)
    assert all(cell["scope"] == "col" for cell in elements(made, "th"))
    assert "&lt;b&gt; &amp; co</pre>" in made and "\x1b" not in made
    assert made.index('href="#content"') < made.index("<main")


def test_a_notebook_without_a_heading_gets_its_name_as_title():
    made = html.page(notebook(text("words")), name="01_zoo")
    assert "<title>01_zoo</title>" in made and "<h1>01_zoo</h1>" in made
    assert "<title>A &amp; B</title>" in html.page(notebook(text("words")), title="A & B")


def test_the_contents_are_the_sections_folded_on_a_phone_and_open_beside_wide_text():
    made = page(text("# A\n\n## First\n\n### Part"), text("## Second"))
    addresses = ["#first", "#second"]
    assert [link["href"] for link in elements(made, ".contents .narrow a")] == addresses
    assert [link["href"] for link in elements(made, ".contents .wide a")] == addresses
    (folded,) = elements(made, ".contents details")
    assert "open" not in folded


@pytest.fixture
def report_folder(tmp_path):
    """What lesson 00 leaves beside its notebook: metrics, a card, and its key figure."""
    lesson = Lesson("00_tour", "The tour", "laptop", {}, tmp_path)
    figure = Figure(figsize=(2, 2))
    figure.subplots().plot([0, 1], [0, 1])
    lesson.figure(figure, "front", alt="A line that rises from nothing to one")
    lesson.metric("front.strategies", 39)
    lesson.conclusion("A finding.")
    lesson.save("front", ["front.strategies"])
    return tmp_path


def test_the_answer_stands_open_under_the_title_with_the_key_figure(report_folder):
    drawing = {
        "text/html": '<figure><img src="data:," alt="The drawing"></figure>',
        "text/plain": "figure front: The drawing",
    }
    cells = [text("# The tour\n\nWords."), code("draw()", outputs=[shown(drawing)])]
    made = html.page(notebook(*cells), name="00_tour", reports=report_folder)
    assert made.index("</h1>") < made.index("The answer</h2>") < made.index("<p>Words.")
    assert "open" in elements(made, ".answer-box")[0]
    assert elements(made, ".answer-box .answer li")
    assert [image["alt"] for image in elements(made, ".answer-box img")] == ["The drawing"]
    # A key figure of another kind is shown from its file.
    made = html.page(notebook(text("Words.")), name="00_tour", reports=report_folder)
    (image,) = elements(made, ".answer-box img")
    assert image["alt"].startswith("A line") and image["src"].startswith("data:image/png")
    assert made.index("<h1>00_tour</h1>") < made.index("The answer</h2>") < made.index("<p>Words.")


def test_the_answer_is_folded_in_a_students_copy(report_folder):
    copy = notebook(text("# The tour"), text("*Notes:*", metadata={"tags": ["notes"]}))
    made = html.page(copy, name="00_tour", reports=report_folder)
    assert "open" not in elements(made, ".answer-box")[0]


def test_a_page_without_an_answer_has_no_box(report_folder):
    for name in ("99_nowhere", ""):
        made = html.page(notebook(text("# A")), name=name, reports=report_folder)
        assert "answer-box" not in made.split("</style>")[1]


def test_code_is_open_unless_its_cell_is_tagged_hide():
    cells = [code("a = 1"), code("b = 2", metadata={"tags": ["hide"]}), code("  ")]
    assert [("open" in element) for element in elements(page(*cells), ".source")] == [True, False]


def test_tables_of_pandas_get_headers_that_say_what_they_head():
    head, body = "<tr><th></th><th>x</th></tr>", "<tr><th>0</th><td>1</td></tr>"
    markup = f"<table><thead>{head}</thead><tbody>{body}</tbody></table>"
    headers = elements(page(code("frame", outputs=[shown({"text/html": markup})])), "th")
    assert [header["scope"] for header in headers] == ["col", "row"]


def test_a_widget_leaves_a_note_and_nothing_that_needs_a_kernel():
    widget = {
        "application/vnd.jupyter.widget-view+json": {"model_id": "ab"},
        "text/plain": "IntSlider(value=0)",
    }
    made = page(code("play()", outputs=[shown(widget)]))
    assert "JupyterLab" in made and "IntSlider" not in made and "<script" not in made


def test_the_same_notebook_gives_the_same_bytes_and_names_no_place(tmp_path):
    first, second = (
        html.page(notebook(text("# A\n\n$x$"), code("f(1)")), tmp_path / name, "a") for name in "ab"
    )
    assert first == second and str(tmp_path) not in first and "://" not in first


def contrast(one: str, other: str) -> float:
    against_white = [
        styles.contrast_with_white(np.array(to_rgb(f"#{colour}"))) for colour in (one, other)
    ]
    return max(against_white) / min(against_white)


@pytest.mark.parametrize("which, style", [(0, pages.LIGHT), (1, pages.DARK)])
def test_words_and_code_have_the_contrast_that_wcag_asks_for(which, style):
    assert contrast("767676", "ffffff") == pytest.approx(
        4.54, abs=0.01
    )  # the grey that just passes
    palette = re.findall(r":root \{(.*?)\}", pages.stylesheet(), re.DOTALL)[
        which
    ]  # light, then dark
    ours = dict(re.findall(r"--(\w+): #(\w{6})", palette))
    for ink in ("ink", "quiet", "link", "mark"):
        for ground in ("paper", "shade"):
            assert contrast(ours[ink], ours[ground]) >= 4.5, f"{ink} on {ground}"
    assert contrast(ours["ink"], ours["warn"]) >= 4.5
    for token, look in get_style_by_name(style):
        if look["color"] and "Error" not in str(token):
            assert contrast(look["color"], ours["shade"]) >= 4.5, f"{token} is too faint in {style}"
