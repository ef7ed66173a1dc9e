"""Figures, tables and costs of the orchestration lesson say what the decision record says."""

import numpy as np
import pandas as pd
import pytest

from lib import ledger
from lib.orchestration import methods, results, study
from lib.orchestration.replay import film
from lib.reporting import costs
from lib.reporting import orchestration as draw
from lib.seeds import rng
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
