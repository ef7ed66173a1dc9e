"""Figures, tables and costs of the orchestration lesson say what the decision record says."""

import numpy as np
import pandas as pd
import pytest

from lib import ledger
from lib.orchestration import methods, results, study
from lib.orchestration.replay import Film, film
from lib.reporting import costs, figures
from lib.reporting import orchestration as draw
from tests.orchestration.test_study import SCRIPTED, small, trained

__all__ = ["trained"]

KO, TO, RO = (f"{kind} {SCRIPTED}" for kind in methods.KINDS)


@pytest.fixture(scope="module")
def records(trained, tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    chosen = {d: methods.orchestrators(small()) + methods.controls(d) for d in ("education", "minigrid")}
    return {domain: study.run(small(), domain, todo, runs, trained) for domain, todo in chosen.items()}


@pytest.fixture(scope="module")
def rows(records):
    return {domain: results.results(record, domain) for domain, record in records.items()}


def texts(figure) -> str:
    """All words of a figure."""
    found = [figure._suptitle, figure._supxlabel] if figure._suptitle else []
    for axes in figure.axes:
        found += [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts, getattr(axes, "_left_title", None)]
    return " ".join(text.get_text() for text in found if text is not None)


def test_figures_with_stand_ins_say_that_they_are_scripted(records):
    record = records["education"]
    for figure in (
        draw.mastery_progression(record, [KO, TO, RO], ["random"]),
        draw.flow_plane(record, [RO, "MO-MGDA"], 0.2),
        draw.usage(record, [KO, TO, RO]),
    ):
        assert "not language models" in " ".join(texts(figure).split())
        assert figures.png(figure).startswith(b"\x89PNG")


def test_a_student_who_is_done_keeps_the_last_mastery():
    lines = [
        {"method": "random", "seed": 0, "episode": 0, "step": 0, "mastery": 0.4, "mastery_after": 0.8},
        {"method": "random", "seed": 0, "episode": 1, "step": 0, "mastery": 0.4, "mastery_after": 0.4},
        {"method": "random", "seed": 0, "episode": 1, "step": 1, "mastery": 0.4, "mastery_after": 0.5},
    ]
    course = draw._progress(pd.DataFrame(lines), ["random"]).set_index("step")["mastery"]
    assert course.to_list() == pytest.approx([0.4, 0.6, 0.65])


def test_the_flow_zone_counts_its_edges_as_inside():
    # mastery 0.4: level 1 (0.0) lies below, 2 (0.2) to 4 (0.6) inside, 5 (0.8) above
    frame = pd.DataFrame({"method": "m", "seed": [0, 1], "mastery": 0.4, "levels": ["12345", "22345"]})
    shares = draw.flow_shares(frame, ["m"], 0.2)["m"]
    assert {name: round(share.value, 6) for name, share in shares.items()} == {
        "below": 0.1,
        "in flow": 0.7,
        "above": 0.2,
    }


def test_results_come_in_the_order_of_the_methods_with_the_oracle_last(rows):
    assert list(rows["education"])[:4] == [KO, TO, RO, "SO-d1"]
    assert list(rows["education"])[-1] == "oracle (hindsight)"


def test_tables_carry_the_backend_and_leave_out_replies_where_nobody_is_asked(records, rows):
    table = draw.outcome_table(rows["education"], records["education"], "education")
    assert table.loc[RO, "backend"] == "scripted" and table.loc["random", "backend"] == "policy"
    assert table.loc["random", "invalid"] == "–" and table.loc[RO, "invalid"] != "–"


def test_verdicts_follow_the_interval(records):
    table = draw.verdict_table(records["education"], "education", [RO], ["random", "SO-d3"])
    for row in table.itertuples():
        low, high = (float(part) for part in row.utility.split("[")[1].rstrip("]").split(","))
        expected = "undecided" if low <= 0 <= high else "better" if low > 0 else "worse"
        assert table.loc[row.Index, "more useful"] == expected or min(abs(low), abs(high)) < 0.001  # rounding


def test_trouble_adds_up(records):
    table = draw.trouble_table(records["education"]).set_index("method")
    for method in (KO, TO, RO):
        counted = sum(int(part.split()[-1]) for part in table.loc[method, "kinds"].split(", ") if part != "none")
        assert counted == table.loc[method, "unusable replies"]


def test_rooms_side_by_side_are_as_wide_as_all_and_as_long_as_the_longest(records):
    films = {name: film(small(), records["minigrid"], name, 0, 0) for name in (RO, "random")}
    frames = draw.side_by_side(films)
    assert frames.dtype == np.uint8 and len(frames) == max(len(each.frames) for each in films.values())
    assert frames.shape[2] == sum(each.frames.shape[2] for each in films.values()) + 8
    assert RO in draw.rooms_alt(records["minigrid"], [RO, "random"], 0, 0)


def test_an_episode_that_has_ended_turns_pale():
    dark = np.zeros((2, 30, 60, 3), dtype=np.uint8)
    long = Film(np.zeros((5, 30, 60, 3), dtype=np.uint8), ("a",) * 4)
    frames = draw.side_by_side({"short": Film(dark, ("a",)), "long": long})
    assert frames[4, -1, 0].min() > 100 and frames[1, -1, 0].max() == 0


def test_a_film_refuses_a_record_that_the_room_does_not_play(records):
    false = records["minigrid"].assign(reward_2=0.5)
    with pytest.raises(ValueError, match="not what was recorded"):
        film(small(), false, RO, 0, 0)


def test_every_cell_of_table_10_agrees_and_a_planted_one_does_not():
    assert costs.table_10()["agrees"].all() and len(costs.table_10()) == 9
    planted = costs._TABLE_10 | {("Mistral 24B", "M"): ("0.00385", "0.0466")}
    wrong = costs.table_10(planted)
    assert wrong.loc[~wrong["agrees"], ["backbone", "regime"]].to_numpy().tolist() == [["Mistral 24B", "M"]]


def test_table_10_metrics_are_the_worked_example_of_the_paper():
    found = costs.table_10_metrics()
    assert found["costs.table10.claude.S.dollars"] == pytest.approx(0.1875)
    assert found["costs.table10.claude.S.kg_co2e"] == pytest.approx(0.0159, abs=5e-5)


def test_the_regimes_of_claude_are_medium_by_the_papers_own_formula():
    table = costs.table_11().set_index("method")
    assert (
        table.loc["RO Claude 3.7 Sonnet", "nearest regime"] == "M" and not table.loc["RO Claude 3.7 Sonnet", "agrees"]
    )


@pytest.mark.parametrize(
    ("dollars", "zoo", "said"),
    [
        (0.001, 0.0, "never"),  # asking costs less than serving
        (0.102, 0.0, "from 97,000 runs on"),  # 9,700 / 0.1
        (0.102, 29_100.0, "always"),
        (0.001, 29_100.0, "up to 19,400,000 runs"),  # 19,400 / 0.001
    ],
)
def test_the_break_even_is_the_one_of_the_formula(dollars, zoo, said):
    assert costs._when(dollars, zoo) == said
    if said.startswith("from"):
        assert ledger.break_even_runs(dollars, zoo) == pytest.approx(97_000)


def test_costs_by_the_papers_assumptions_charge_fifty_decisions(records):
    record = records["education"]
    row = costs.assumed(record).set_index("method").loc[RO]
    per_decision = record.loc[record["method"] == RO, "dollars"].mean()
    assert float(row["infer $"]) == pytest.approx(50 * per_decision, rel=0.01)
    assert float(row["total $"]) == pytest.approx(0.972 + 50 * per_decision, abs=0.002)


def test_words_follow_the_numbers(records, rows):
    sentence = draw.finding(records, SCRIPTED)
    against = results.versus(records["minigrid"], "minigrid", RO, ["random"], ["utility"])["random"]["utility"]
    words = {"better": "more useful than random", "worse": "less useful than random"}
    expected = words.get(results.verdict(against), "not told apart from random")
    assert expected in sentence.split("minigrid")[1]
    assert any("oracle look-ahead" in line for line in draw.shortfalls(records, rows, SCRIPTED))
