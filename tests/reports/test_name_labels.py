"""Names in a lesson: marked where a model gave too few answers, scripted where a program decides, never an alias."""

import asyncio
import json

import numpy as np
import pandas as pd
import pytest

from lib import config, plots, stats
from lib.llm.chat_model import ChatRequest, Failure
from lib.llm.failure_policy import ReplyCounts
from lib.llm.reply_shares import SEVERAL, count_replies
from lib.reports.lesson import Lesson
from lib.reports.name_labels import list_suffixes
from lib.reports.reply_shares import FOOTNOTE
from tests.llm.stub_model import StubModel

NAME = "05_budgeted_routing"
LAB_LLM = config.load("smoke").llm
SMOL = LAB_LLM.models["big"].model_copy(update={"backend": "hugging_face", "model": "SmolLM2"})
LLM = LAB_LLM.model_copy(update={"models": LAB_LLM.models | {"smol": SMOL}})


@pytest.fixture
def lesson(tmp_path):
    return Lesson(NAME, "Routing", "smoke", {}, tmp_path)


def count_calls(model: StubModel, method: str, num_calls: int = 20) -> pd.DataFrame:
    """What becomes of a method whose model is asked so often."""
    requests = [ChatRequest([{"role": "user", "content": str(n)}]) for n in range(num_calls)]
    counts = ReplyCounts()
    for reply in asyncio.run(model.reply_to_all(requests)):
        counts.add(reply)
    row = {"method": method, "model": model.name, "backend": model.backend, **vars(counts)}
    return count_replies(pd.DataFrame([row]))


def make_rows(*methods: str) -> pd.DataFrame:
    """Results of ten questions, of which each method answers more than the one before it."""
    return pd.DataFrame(
        {
            "method": method,
            "seed": 0,
            "item": str(item),
            "correct": float(item < 3 + 4 * number),
            "cost_usd": 1e-3 * (1 + item % 3),
        }
        for number, method in enumerate(methods)
        for item in range(10)
    )


CUT_OFF = StubModel(Failure("truncated"), "7", "7", "7", name="smol")  # a quarter of its replies


def test_a_model_that_is_cut_off_is_marked_under_its_own_name_in_tables_and_figures(lesson, capsys):
    """The lesson's word for it is lab-big, which is another model elsewhere."""
    lesson.name_models(LLM, {"lab-big": "smol", "lab-facts": "facts"})
    rows = lesson.check_replies(count_calls(CUT_OFF, "lab-big"), make_rows("lab-big", "lab-facts"))
    estimates = stats.mean(rows, "correct", "method")
    lesson.table(estimates, "Accuracy of experts")
    figure = plots.forest_plot(estimates, "Accuracy of experts", "accuracy")
    assert plots.has_narrow(figure)
    lesson.figure(figure, "experts")
    page = capsys.readouterr().out
    table = page.split("table: Accuracy of experts")[1].split("figure experts")[0]
    assert "lab-big (smol) †" in table and FOOTNOTE in table and "lab-facts (" not in table
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["lab-big (smol) †", "lab-facts"]
    alt = page.split("figure experts: ")[1]
    assert "Left out of verdicts, for want of usable replies: lab-big." in alt


def test_nothing_is_computed_from_a_marked_row_and_the_reason_stands_in_its_place(lesson, tmp_path):
    rows = lesson.check_replies(count_calls(CUT_OFF, "smol"), make_rows("smol", "random"))
    for column in ("correct", "cost_usd"):
        for method, row in stats.mean(rows, column, "method").iterrows():
            lesson.metric(f"{method}.{column}", row)
    for method in ("smol", "random"):
        part = rows[rows["method"] == method]
        lesson.metric(f"{method}.usd_per_million", 1e6 * part["cost_usd"].mean(), rows=part)
    gap = stats.paired_difference(rows, "cost_usd", {"method": "smol"}, {"method": "random"})
    lesson.metric("smol.minus_random", gap.iloc[0])
    lesson.figure(plots.forest_plot(stats.mean(rows, "correct", "method"), "Accuracy"), "front")
    lesson.conclusion("Nothing can be said of smol.")
    lesson.save("front", ["smol.correct", "random.correct"])
    metrics = json.loads((tmp_path / "metrics" / f"{NAME}.json").read_text())
    names = ["correct", "cost_usd", "usd_per_million", "minus_random"]
    assert {key: value for key, value in metrics.items() if key.startswith("smol")} == {
        f"smol.{name}_unusable_share": 0.25 for name in names
    }
    assert metrics["random.usd_per_million"] == pytest.approx(1900.0)
    card = json.loads((tmp_path / "lessons" / f"{NAME}.json").read_text())
    assert card["key_metrics"] == ["random.correct"]


def test_a_model_that_answers_is_marked_nowhere(lesson):
    rows = make_rows("smol", "random")
    assert lesson.check_replies(count_calls(StubModel("7", name="smol"), "smol"), rows) is rows
    assert lesson.label("smol") == "smol"


def test_a_mark_stays_though_later_counts_of_the_method_are_good(lesson):
    rows = make_rows("smol")
    lesson.check_replies(count_calls(CUT_OFF, "smol"), rows)
    lesson.check_replies(count_calls(StubModel("7", name="smol"), "smol"), rows)
    assert lesson.label("smol") == "smol †"


def test_scripted_is_said_where_a_program_decides_and_the_name_does_not_say_so():
    def make_calls(method: str, model: str, backend: str = "scripted") -> dict:
        return {"method": method, "model": model, "backend": backend, "calls": 9, "unusable": 1}

    calls = [
        make_calls("KO judge", "judge"),
        make_calls("KO scripted-large", "scripted-large"),
        make_calls("CoRL", SEVERAL),
        make_calls("KO lab-nano", "lab-nano", "lab"),
    ]
    assert list_suffixes(count_replies(pd.DataFrame(calls))) == {
        "judge": " (scripted)",
        "KO judge": " (scripted)",
        "scripted-large": "",
        "KO scripted-large": "",
        "CoRL": "",
        "lab-nano": "",
        "KO lab-nano": "",
    }


def test_tables_with_several_levels_of_names_are_labelled_too(lesson):
    lesson.check_replies(count_calls(CUT_OFF, "smol"), make_rows("smol"))
    wide = pd.DataFrame(
        np.eye(2),
        index=pd.MultiIndex.from_product([["low"], ["smol", "random"]]),
        columns=pd.MultiIndex.from_product([["method"], ["a", "b"]]),
    )
    labelled, caption = lesson._name_labels.label_table(wide, "By budget")
    assert list(labelled.index) == [("low", "smol †"), ("low", "random")] and FOOTNOTE in caption


def test_a_marked_name_is_marked_in_headers_cells_captions_and_the_conclusion(lesson, capsys):
    lesson.name_models(LLM, {"lab-big": "smol"})
    lesson.check_replies(count_calls(CUT_OFF, "lab-big"), make_rows("lab-big"))
    table = pd.DataFrame({"budget": ["low"], "expert": ["lab-big"], "lab-big": [0.5]})
    labelled, caption = lesson._name_labels.label_table(table, "Budgets")
    assert list(labelled) == ["budget", "expert", "lab-big (smol) †"] and FOOTNOTE in caption
    assert labelled["expert"].tolist() == ["lab-big (smol) †"]
    assert isinstance(labelled.index, pd.RangeIndex)  # which no table shows

    plain = pd.DataFrame({"system": ["KO"]})
    _, caption = lesson._name_labels.label_table(plain, f"By {lesson.label('lab-big')}")
    assert caption == f"By lab-big (smol) † ({FOOTNOTE})"

    lesson.conclusion("lab-big is cheaper than lab-bigger.")
    finding = f"lab-big (smol) † is cheaper than lab-bigger. ({FOOTNOTE})"
    assert finding in capsys.readouterr().out


def test_a_header_that_is_also_the_name_of_a_scripted_method_stays(lesson):
    calls = {"method": "judge", "model": "judge", "backend": "scripted", "calls": 9}
    lesson.check_replies(count_replies(pd.DataFrame([calls])), make_rows("judge"))
    table = pd.DataFrame({"method": ["judge"], "judge": [0.5]})
    labelled, _ = lesson._name_labels.label_table(table, "Rewards")
    assert list(labelled) == ["method", "judge"] and labelled["method"].item() == "judge (scripted)"


def test_the_detectable_effect_of_an_estimate_that_is_left_out_is_left_out_too(lesson):
    rows = lesson.check_replies(count_calls(CUT_OFF, "smol"), make_rows("smol", "random"))
    gap = stats.paired_difference(rows, "correct", {"method": "smol"}, {"method": "random"}).iloc[0]
    lesson.metrics({"gap": gap, "gap_mde": gap["mde"]})
    assert list(lesson._metrics) == ["gap_unusable_share"]
