"""Figures and tables of the model zoo: every claim is made from the numbers, and changes with them."""

import threading

import numpy as np
import pandas as pd
import pytest

from lib.models.cards import Measured, Price
from lib.models.generation import Generation
from lib.models.tokenizer import encode
from lib.reporting import models as draw
from lib.stats import Interval, share_interval

REACH = {"lab-nano": 2, "lab-mini": 4, "lab-large": 8, "lab-control": 8}


def answers(reach=REACH, n=20) -> pd.DataFrame:
    rows = []
    for name, top in reach.items():
        for difficulty in range(1, 9):
            for i in range(n):
                right = difficulty <= top
                cost = {"lab-nano": 1.0, "lab-mini": 3.0, "lab-large": 20.0, "lab-control": 3.0}[name]
                rows.append(
                    {"model": name, "category": "chain", "skin": "plain", "difficulty": difficulty, "right": right,
                     "confidence": 0.9 if right else 0.6, "dollars": cost + i / n, "answer": str(i % 4),
                     "prompt": f"{name} {difficulty} {i}", "reply": "<answer> 0 </answer>"}
                )  # fmt: skip
    return pd.DataFrame(rows)


def curve(name, accuracy) -> pd.DataFrame:
    steps = 25 * np.arange(1, len(accuracy) + 1)
    return pd.DataFrame({"model": name, "step": steps, "loss": np.geomspace(4, 0.05, len(steps)), "accuracy": accuracy})


def test_the_ladder_says_how_far_each_expert_is_reliable():
    said = draw.ladder_claim(answers())
    assert said.endswith("lab-nano up to 2, lab-mini up to 4, lab-large up to 8 operations")
    assert "lab-mini nowhere" in draw.ladder_claim(answers(REACH | {"lab-mini": 0}))
    assert draw.ladder(answers()).get_suptitle().replace("\n", " ") == said


def test_the_rungs_hold_or_not():
    assert draw.rungs(answers())["holds"].all()
    too_good = draw.rungs(answers(REACH | {"lab-nano": 4}))
    assert too_good["holds"].tolist() == [True, False, True, True, True]


def test_the_jump_is_found_where_it_is():
    accuracy = [0.1] * 10 + [0.9] * 10
    before, after, start, end = draw.jump(curve("lab-large", accuracy))
    assert (before, after) == (0.1, 0.9) and start <= 250 < end
    assert "from 10% to 90%" in draw.transitions(curve("lab-large", accuracy)).get_suptitle().replace("\n", " ")
    assert "no jump" in draw.transitions(curve("lab-large", [0.1] * 20)).get_suptitle()


def test_the_best_constant_is_the_share_of_the_commonest_answer():
    assert draw.constant(answers()).tolist() == [0.25] * 8


def test_families_name_who_is_best_where():
    table = answers()
    more = table.assign(category="story", right=table["model"] == "lab-nano")
    assert draw.family_claim(table).startswith("lab-large is best in every family")
    said = draw.family_claim(pd.concat([table, more]))
    assert "lab-large in chain" in said and "lab-nano in story" in said


def test_nobody_is_best_where_nobody_is_ever_right():
    table = answers()
    more = table.assign(category="big", right=False)
    assert "nobody in big" in draw.family_claim(pd.concat([table, more]))


def test_the_control_tells_size_from_schooling():
    assert "schooling, not size" in draw.schooling(answers())
    assert "did not lift it" in draw.schooling(answers(REACH | {"lab-control": 4}))


def test_failures_show_a_wrong_reply_where_a_model_is_lost():
    found = draw.failures(answers())
    assert set(found["model"]) == {"lab-nano", "lab-mini"}
    assert (found["where"] == "lost").all() and found["prompt"].iloc[0] == "lab-nano 3 0"


def test_overconfidence_is_confidence_minus_accuracy():
    gap = draw.overconfidence(answers())
    assert gap["lab-large"] == pytest.approx(-0.1) and gap["lab-nano"] == pytest.approx(0.675 - 0.25)
    assert "lab-nano" in draw.reliability(answers()).get_suptitle()


def test_probes_say_what_training_added():
    def rows(values):
        return pd.DataFrame(
            [{"what": w, "layer": i, "accuracy": share_interval(round(100 * v), 100), "constant": 0.3}
             for w, v in values.items() for i in range(3)]
        )  # fmt: skip

    trained = rows({"category": 1.0, "chain": 0.9, "story": 0.8})
    said = draw.probe_claim(trained, rows({"category": 0.9, "chain": 0.4, "story": 0.7}))
    assert "difficulty of chain (+50%)" in said
    figure = draw.probes(trained, trained, "lab-policy")
    assert len([axes for axes in figure.axes if axes.get_visible()]) == 3


def test_metrics_have_the_names_that_are_promised():
    prices = {name: Price(1e6, 1e-6, 2e-3) for name in REACH}
    keys = draw.metrics(Measured(answers(), prices, dict.fromkeys(REACH, 1000)))
    assert keys["nano.chain.2.accuracy"] == share_interval(20, 20)
    assert keys["large.dollars_per_1k_tokens"] == pytest.approx(1e-3)
    assert keys["large.tokens_per_second"] == pytest.approx(500)
    assert keys["backend"] == "lab"


def test_a_reply_is_shown_token_by_token_and_escaped():
    ids = encode("<think> 3 </think>")
    html, plain = draw.reply_html("a < b", Generation(ids, [np.log(0.5)] * len(ids), [0.7] * len(ids)))
    assert html.count("0.50") == len(ids) and "&lt;think&gt;" in html and "a &lt; b" in html
    assert plain == "a < b -> <think> (0.50) 3 (0.50) </think> (0.50)"


def test_every_family_and_skin_is_shown_with_a_solution():
    table = draw.family_table()
    assert len(table) == 10 and table["solution"].str.endswith("</answer>").all()


def test_temperature_is_told_from_first_to_last():
    table = pd.DataFrame(
        {"model": "lab-mini", "temperature": [0.0, 2.0], "accuracy": [Interval(0.9, 0.8, 1.0), Interval(0.2, 0.1, 0.3)]}
    )
    assert draw.temperature_claim(table) == "From temperature 0 to 2: lab-mini 90% to 20%"
    assert draw.temperatures(table, [2.0]).get_suptitle()


def test_curves_are_drawn_while_a_reader_waits_and_not_in_a_report(monkeypatch):
    seen, shown = threading.Event(), []

    def curves():
        seen.set()
        return curve("lab-mini", [0.1, 0.2])

    monkeypatch.setattr(draw, "display", shown.append)
    monkeypatch.setenv("BENCH_RUN", "1")
    with draw.watching(curves, every=0.01):
        assert not seen.wait(0.1) and not shown
    monkeypatch.delenv("BENCH_RUN")
    with draw.watching(curves, every=0.01):
        assert seen.wait(10)
    assert len(shown) == 1
