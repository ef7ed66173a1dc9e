"""Figures, tables and costs of the orchestration lesson say what the decision record says."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.text import Text

from lib import draw as drawing
from lib import ledger
from lib.orchestration import methods, results, study
from lib.orchestration.replay import Film, film
from lib.reporting import costs
from lib.reporting import orchestration as draw
from lib.seeds import rng
from lib.stats import Interval
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
    found = figure.findobj(Text)
    return " ".join(" ".join(text.get_text() for text in found).split())


def title(figure) -> str:
    """The message as it was before it was broken into lines."""
    return figure.get_suptitle().replace("-\n", "-").replace("\n", " ").replace("\\", "")


def intervals(axes) -> int:
    return sum(line.get_gid() == "interval" for line in axes.lines)


def cut_off(figure) -> list[str]:
    """Panels and lines of text that reach beyond the page."""
    figure.draw_without_rendering()
    page = figure.bbox.padded(2)
    boxes = [(axes.get_title("left"), axes.get_tightbbox()) for axes in figure.axes]
    boxes += [(text.get_text(), text.get_window_extent()) for text in figure.texts]
    return [name for name, box in boxes if not (page.x0 <= box.x0 and box.x1 <= page.x1 and page.y0 <= box.y0)]


RISES = {"KO scripted-small": 0.01, "RO scripted-large": 0.05, "random": 0.03, "MO-MGDA": 0.02, "RO mine": 0.05}


def made(*names: str, seeds: int = 4, steps: int = 12) -> pd.DataFrame:
    """A record whose mastery rises by RISES a step, and in which everybody picks SO-d1 for five steps."""
    draws, lines = rng("test", "orchestration figures"), []
    for name in names:
        for seed, step in np.ndindex(seeds, steps):
            mastery = 0.2 + 0.01 * seed + RISES[name] * step
            line = {"method": name, "seed": seed, "episode": 0, "step": step, "mastery": mastery}
            line |= {"mastery_after": mastery + RISES[name], "choice": "SO-d1" if step < 5 else "SO-d2"}
            lines.append(line | {"levels": "".join(map(str, draws.integers(1, 7, 5)))})
    return pd.DataFrame(lines)


def preferences(*names: str, heeds: float = 0.3) -> pd.DataFrame:
    """Four seeds under the three corners and the centre; asking for an objective alone adds `heeds` to it."""
    draws, lines = rng("test", "preferences"), []
    corners = [(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0), (1 / 3, 1 / 3, 1 / 3)]
    for name in names:
        for weights, seed in ((weights, seed) for weights in corners for seed in range(4)):
            values = 0.3 + 0.01 * draws.random(3) + heeds * np.array(weights)
            lines.append({"method": name, "weights": weights, "seed": seed, "length": 20.0})
            lines[-1] |= dict(zip(("aptitude", "gap", "performance"), values, strict=True))
    return pd.DataFrame(lines)


def budgets(name: str = "RO scripted-large") -> pd.DataFrame:
    """Three seeds under two budgets: the larger one saves five steps and changes no utility."""
    lines = [
        {"method": f"{name} ${b:g}", "budget": b, "seed": seed, "dollars": 0.9 * b, "quality": 0.3 + 0.01 * seed}
        | {"length": 25.0 + seed - 5 * (b > 0.1), "funded": 0.25 if b < 0.1 else 1.0}
        for b in (0.05, 0.2)
        for seed in range(3)
    ]
    return pd.DataFrame(lines)


LEVEL = {name: Interval(0.3, 0.2, 0.4) for name in ("aptitude", "gap", "performance")}
LINES = {
    "random": {"length": Interval(30.0, 25.0, 35.0), **LEVEL},
    "RO mine": {"length": Interval(18, 15, 21), **LEVEL},
}
ROOM = {name: Film(np.zeros((4, 30, 60, 3), np.uint8), ("SO-d1",) * 3) for name in ("RO scripted-large", "random")}
DRAW = {
    "mastery": lambda name: draw.mastery_progression(made(name, "random"), [name], ["random"]),
    "flow": lambda name: draw.flow_plane(made(name, "MO-MGDA"), [name, "MO-MGDA"], 0.2),
    "usage": lambda name: draw.usage(made(name), [name]),
    "preferences": lambda name: draw.preference_front(preferences(name), {"SO-d1": LEVEL}),
    "budgets": lambda name: draw.budget_curve(budgets(name), {"random": LINES["random"]}),
    "rooms": lambda name: draw.replay_strip({name: ROOM["random"], "random": ROOM["random"]}),
}


@pytest.mark.parametrize("make", DRAW.values(), ids=DRAW)
def test_a_figure_says_scripted_stand_ins_where_there_is_one_and_only_there(make):
    figure = make("RO scripted-large")
    assert "scripted stand-ins, not language models" in texts(figure) and "scripted-large" in texts(figure)
    assert "scripted" not in texts(make("RO mine"))
    assert not cut_off(figure)


@pytest.mark.parametrize("make", DRAW.values(), ids=DRAW)
def test_the_same_record_gives_the_same_bytes(make):
    assert drawing.png(make("RO mine")) == drawing.png(make("RO mine"))


@pytest.mark.parametrize(
    ("make", "column"),
    [
        (lambda gone: draw.mastery_progression(gone(made("RO mine")), ["RO mine"], []), "mastery_after"),
        (lambda gone: draw.mastery_alt(gone(made("RO mine")), ["RO mine"], []), "mastery"),
        (lambda gone: draw.flow_plane(gone(made("RO mine")), ["RO mine"], 0.2), "levels"),
        (lambda gone: draw.usage(gone(made("RO mine")), ["RO mine"]), "choice"),
        (lambda gone: draw.rooms_alt(gone(made("RO mine")), ["RO mine"], 0, 0), "step"),
        (lambda gone: draw.trouble_table(gone(made("RO mine"))), "seed"),
        (lambda gone: draw.preference_front(gone(preferences("RO mine"))), "weights"),
        (lambda gone: draw.preference_alt(gone(preferences("RO mine"))), "gap"),
        (lambda gone: draw.budget_curve(gone(budgets()), {}), "funded"),
        (lambda gone: draw.budget_alt(gone(budgets())), "quality"),
    ],
)
def test_a_missing_column_is_named(make, column):
    with pytest.raises(ValueError, match=rf"has no column \[.*'{column}'"):
        make(lambda frame: frame.drop(columns=column))


@pytest.mark.parametrize(
    "make",
    [
        lambda record: draw.mastery_progression(record, ["KO scripted-small"], ["random"]),
        lambda record: draw.flow_plane(record, ["KO scripted-small"], 0.2),
        lambda record: draw.usage_alt(record, ["KO scripted-small"]),
    ],
)
def test_a_missing_method_is_named(make):
    with pytest.raises(ValueError, match=r"no decisions of \['KO scripted-small'\].*'random'"):
        make(made("random"))


def test_the_mastery_title_counts_who_stands_above_and_below_by_pairs():
    record = made(*RISES)
    asked = ["KO scripted-small", "RO scripted-large"]
    figure = draw.mastery_progression(record, asked, ["random", "MO-MGDA"])
    said = "Mastery after 10 steps, of 2 orchestrators: 1 above and 1 below random, 1 above and 1 below MO-MGDA"
    assert title(figure) == said
    assert [axes.get_title("left") for axes in figure.axes] == ["KO", "RO"]  # no TO, no empty panel
    ko = figure.axes[0]
    assert [text.get_text() for text in ko.texts] == ["scripted-small", "random", "MO-MGDA"]
    assert [line.get_linestyle() for line in ko.lines] == ["-", "--", "--"] and len(ko.collections) == 3
    alt = draw.mastery_alt(record, asked, ["random"])
    assert (
        said.split(", 1 above and 1 below MO-")[0] in alt and "RO scripted-large 0.71;" in alt
    )  # 0.2 + 0.015 + 10 x 0.05


def test_one_seed_ranks_nobody():
    figure = draw.mastery_progression(made("RO mine", "random", seeds=1), ["RO mine"], ["random"])
    assert "above" not in title(figure) and "0.70 (RO mine)" in title(figure)


def test_courses_need_an_orchestrator():
    with pytest.raises(ValueError, match=r"none of \['random'\] is one of KO, TO, RO"):
        draw.mastery_progression(made("random"), ["random"], [])


def test_nine_orchestrators_and_two_controls_fit_on_a_page():
    names = [f"{each} scripted-{size}" for each in methods.KINDS for size in ("small", "medium", "large")]
    record = pd.concat([made("RO mine").assign(method=name) for name in (*names, "random", "MO-MGDA")])
    for figure in (
        draw.mastery_progression(record, names, ["random", "MO-MGDA"]),
        draw.flow_plane(record, [*names, "random", "MO-MGDA"], 0.2),
        draw.usage(record, names),
    ):
        assert not cut_off(figure) and texts(figure).count("scripted-large") == 3


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


def test_the_flow_figure_and_its_words_hold_the_shares():
    frame = pd.DataFrame({"method": "RO mine", "seed": [0, 1], "mastery": 0.4, "levels": ["12345", "22345"]})
    frame = pd.concat([frame, frame.assign(method="MO-MGDA", levels="22222")])
    figure = draw.flow_plane(frame, ["RO mine", "MO-MGDA"], 0.2)
    assert title(figure) == "Above the flow zone: 20% of the orchestrators' questions, 0% of MO-MGDA's"
    assert "in the zone 70% [0%, 100%]" in figure.axes[0].get_title("left")
    assert [axes.get_xlabel() for axes in figure.axes[:2]] == ["mastery"] * 2
    assert len([line for line in figure.axes[1].lines if line.get_linestyle() == "--"]) == 2
    total = figure.axes[1].collections[0].get_array().sum()
    assert total == pytest.approx(1) and "flow zone" in texts(figure)
    assert "RO mine 10% below, 70% in, 20% above" in draw.flow_alt(frame, ["RO mine"], 0.2)


def test_the_usage_title_and_words_are_the_counts():
    record = made("RO mine", "random", steps=50)
    figure = draw.usage(record, ["RO mine", "random"])
    assert title(figure) == "In the first 5 steps 2 of 2 methods pick SO-d1 most, 100% of the time"
    assert figure.axes[0].get_xlabel() == "step, 5 to a bar"
    assert "RO mine SO-d1 10%, SO-d2 90%, SO-d3 0%" in draw.usage_alt(record, ["RO mine", "random"])


def test_a_bar_of_one_episode_is_no_share():
    record = made("RO mine", steps=50)
    alone = record[(record["seed"] == 0) | (record["step"] < 20)]
    figure = draw.usage(alone, ["RO mine"])
    assert len({bar.get_x() for bar in figure.axes[0].patches}) == 4 and "bars of fewer than 3" in texts(figure)
    assert "bars of fewer than 3" not in texts(draw.usage(record, ["RO mine"]))


def test_results_come_in_the_order_of_the_methods_with_the_oracle_last(rows):
    assert list(rows["education"])[:4] == [KO, TO, RO, "SO-d1"]
    assert list(rows["education"])[-1] == "oracle (hindsight)"


def test_tables_carry_the_backend_and_leave_out_replies_where_nobody_is_asked(records, rows):
    table = draw.outcome_table(rows["education"], records["education"], "education")
    assert table.loc[RO, "backend"] == "scripted" and table.loc["random", "backend"] == "policy"
    assert table.loc["random", "met a bad reply"] == "–" and table.loc[RO, "met a bad reply"] != "–"


def test_tables_group_their_methods(records, rows):
    for table in (
        draw.outcome_table(rows["education"], records["education"], "education"),
        draw.front_table(rows["education"], records["education"]),
    ):
        told = table.loc[[RO, "SO-d1", "MO-S", "random", "oracle look-ahead", "oracle (hindsight)"], "group"]
        assert told.to_list() == ["orchestrator", "single policy", "multi-objective", "control", "oracle", "oracle"]
    assert {"HV, union of episodes", "HV, mean", "sparsity", "cardinality"} <= set(table.columns)


def test_one_seed_gives_a_difference_without_an_interval():
    assert draw._signed(Interval(-1.25, np.nan, np.nan), 1) == "-1.2"


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


def test_the_words_above_a_frame_count_its_steps_also_where_the_film_is_cut():
    long = Film(np.zeros((61, 30, 90, 3), dtype=np.uint8), ("SO-d1",) * 60)
    assert len(draw.side_by_side({"random": long}, most=40)) == 40
    assert draw._moment(long, 39)[1] == "step 40 of 60: SO-d1" and draw._moment(long, 60)[1] == "ended after 60 steps"


def test_a_strip_has_a_row_for_each_method_and_the_same_steps_in_it():
    long = Film(np.zeros((9, 30, 60, 3), dtype=np.uint8), ("SO-d2",) * 8)
    figure = draw.replay_strip({"random": ROOM["random"], "MO-pseudoS": long}, columns=3)
    captions = [axes.get_title().replace("\n", " ") for axes in figure.axes]
    assert captions == [
        "random, step 1 of 3: SO-d1", "random, ended after 3 steps", "random, ended after 3 steps",
        "MO-pseudoS, step 1 of 8: SO-d2", "MO-pseudoS, step 5 of 8: SO-d2", "MO-pseudoS, ended after 8 steps",
    ]  # fmt: skip
    assert title(figure) == "Steps in the same room: random 3, MO-pseudoS 8"


@pytest.mark.parametrize("make", [draw.side_by_side, draw.replay_strip])
def test_no_film_is_an_error(make):
    with pytest.raises(ValueError, match="needs at least one film"):
        make({})


def test_a_room_that_was_not_walked_is_named(records):
    with pytest.raises(ValueError, match=r"no episode 99 of 'random' under seed 0"):
        draw.rooms_alt(records["minigrid"], ["random"], 0, 99)


@pytest.mark.parametrize(("heeds", "cases"), [(0.3, "3 of 3"), (0.0, "0 of 3")])
def test_the_preference_title_says_whether_asking_helps(heeds, cases):
    points = preferences("RO mine", heeds=heeds)
    expected = f"Asked for one objective alone, RO mine gets more of it in {cases} cases"
    assert title(draw.preference_front(points)) == expected
    assert expected in draw.preference_alt(points)


def test_preferences_are_drawn_with_intervals_and_the_asked_for_objective_beside():
    points = preferences("RO mine", "greedy look-ahead")
    figure = draw.preference_front(points, {"SO-d1": LEVEL})
    for axes in figure.axes:
        assert intervals(axes) == 2 * (2 * 4 + 1)  # across and up, for two makers' four preferences and SO-d1
        found = sorted(text.get_text() for text in axes.texts)
        assert found == sorted(["aptitude", "gap", "performance"] * 2 + ["SO-d1"])
        assert "mean per step" in axes.get_xlabel() and "mean per step" in axes.get_ylabel()
    key = [text.get_text() for text in figure.legends[0].get_texts()]
    assert key == ["RO mine", "greedy look-ahead"]
    gained = points[points["weights"].map(lambda w: w[1] == 1) & (points["method"] == "RO mine")]["gap"].mean()
    assert f"RO mine asked for gap alone gets {gained:.2f} of it" in draw.preference_alt(points)


def test_the_budget_title_is_the_paired_difference():
    figure = draw.budget_curve(budgets(), LINES)
    told = title(figure)
    assert told.startswith("With $0.2 instead of $0.05 per episode, RO scripted-large: length -5.0 [-5.0, -5.0] steps")
    assert "utility +0.000" in told
    quality, length = figure.axes
    assert quality.get_xlabel() == "dollars spent per episode" and length.get_ylabel().endswith("steps")
    assert intervals(quality) == 2 and intervals(length) == 4  # two budgets; the levels' utility has no interval
    assert {"random", "RO mine", r"\$0.05", r"\$0.2"} <= {text.get_text() for text in length.texts}
    alt = draw.budget_alt(budgets())
    assert "$0.05: 0.310, 26.0 steps, 25% of decisions paid for" in alt and "-5.0 [-5.0, -5.0] steps" in alt


def test_a_single_budget_changes_nothing():
    one = budgets()[budgets()["budget"] == 0.2]
    assert "With $0.2 per episode, RO scripted-large: 21.0 steps" in draw.budget_alt(one)


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
