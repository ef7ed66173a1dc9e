"""Too much output keeps its head and its tail, whenever it arrives, and says how much was between."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nbformat.v4 import new_output

from lib.reports.execute import output_limits
from lib.reports.execute.output_limits import CellOutputLimits, cut_table, cut_text, limit_data


def collect(pieces: list[str]) -> str:
    """What a cell that prints these pieces leaves of them."""
    limits, outputs = CellOutputLimits(), []
    for piece in pieces:
        head = limits.take_text("stdout", piece)
        if head:
            outputs.append(new_output("stream", name="stdout", text=head))
    outputs = [new_output("stream", name="stdout", text="".join(o.text for o in outputs))]
    limits.finish(outputs)
    return outputs[0].text


@given(st.lists(st.integers(0, 90_000), max_size=8))
def test_the_cut_of_a_stream_depends_on_its_text_alone_and_not_on_when_it_arrived(lengths):
    text = "".join(f"{n:,} " for n in range(sum(lengths) // 5))
    pieces, position = [], 0
    for length in lengths:
        pieces.append(text[position : position + length])
        position += length
    pieces.append(text[position:])
    assert collect(pieces) == collect([text]) == cut_text(text)


def test_fifty_megabytes_leave_the_head_the_tail_and_their_number():
    text = collect(["first\n", *["x" * 1_000_000] * 50, "\nlast"])
    assert text.startswith("first\n") and text.endswith("\nlast")
    assert len(text) < 81_000 and "[... 49,920,011 characters left out ...]" in text


def test_a_text_at_the_limit_is_whole():
    text = "x" * (output_limits.HEAD_CHARACTERS + output_limits.TAIL_CHARACTERS)
    assert collect([text]) == text and collect([text, "y"]) != text + "y"


def show(n: int, size: int = 1) -> object:
    return new_output("display_data", data={"text/plain": f"{n}".ljust(size)})


def take_all(outputs: list) -> list:
    limits = CellOutputLimits()
    taken = [output for output in outputs if limits.take_output(output)]
    limits.finish(taken)
    return taken


def test_of_many_outputs_the_first_and_the_last_stay():
    texts = [output.data["text/plain"] for output in take_all([show(n) for n in range(10_000)])]
    assert texts[:100] == [f"{n}" for n in range(100)]
    assert texts[100:] == ["[... 9,890 outputs left out ...]", *map(str, range(9_990, 10_000))]


def test_outputs_that_are_large_together_are_cut_before_they_are_many():
    taken = take_all([show(n, 10_000_000) for n in range(20)])
    assert len(taken) == 7 and "14 outputs left out" in taken[-1].data["text/plain"]


def test_an_error_stays_the_last_output():
    limits = CellOutputLimits()
    outputs = [output for output in map(show, range(200)) if limits.take_output(output)]
    outputs.append(new_output("error", ename="E", evalue="", traceback=[]))
    limits.finish(outputs)
    assert outputs[-1].output_type == "error" and outputs[-2].data["text/plain"] == "199"


def test_output_that_the_cell_clears_does_not_count():
    limits = CellOutputLimits()
    limits.take_text("stdout", "x" * 1_000_000)
    limits.clear()
    assert limits.take_text("stdout", "y") == "y"


def test_the_middle_rows_of_a_huge_data_frame_are_left_out():
    frame = pd.DataFrame({"n": range(100_000)})
    with pd.option_context("display.max_rows", None):
        markup = frame.to_html()
    (cut,) = limit_data({"text/html": markup}).values()
    assert len(cut) < 10_000 and "[... 99,941 rows left out ...]" in cut
    assert "<td>99999</td>" in cut and "<td>0</td>" in cut and cut.endswith("</table>")


def test_a_table_of_few_rows_and_a_figure_of_a_lesson_are_left_alone():
    few = "<table>" + "<tr><td>a</td></tr>" * 60 + "</table>"
    assert cut_table(few) == few
    figure = {"text/html": "<figure>" + "x" * 1_000_000 + "</figure>", "text/plain": "figure a: b"}
    assert limit_data(figure) == figure


@pytest.mark.parametrize("media_type", ["image/png", "text/html", "application/json"])
def test_a_form_that_no_page_can_take_is_replaced_by_a_line(media_type):
    limited = limit_data({media_type: "x" * 20_000_000, "text/plain": "a picture"})
    assert list(limited) == ["text/plain"]
    assert limited["text/plain"].startswith(
        f"a picture\n[... left out, too large for a page: {media_type}"
    )
