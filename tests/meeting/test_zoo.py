"""Students with a zoo: who is who, and what an episode costs, from a made-up record."""

import pandas as pd
import pytest

from lib import params
from lib.meeting import zoo
from lib.meeting.chains import COLUMNS, EXPERT, ORACLE, PAPER, ROUTER
from lib.orchestration import methods
from lib.zoo.recipes import REFERENCES, SINGLE

MODEL = "scripted-medium"
SETTINGS = params.settings(
    profile="smoke", orchestration={"models": [MODEL], "budgets": [0.05, 0.5]}, ablations={"model": MODEL}
)
SEEDS, EPISODES, STEPS = 2, 3, 4


@pytest.fixture
def table(monkeypatch):
    """Everybody plays four steps; who has a model pays a cent for each; the reward of a step is a tenth of its number,
    for all objectives."""

    def run(params, domain, compared, label):
        assert domain == "education"
        return pd.DataFrame(
            [
                {"method": method.name, "seed": seed, "episode": episode, "step": step, "done": step == STEPS - 1,
                 "dollars": 0.01 * bool(method.model)} | {f"reward_{i}": 0.1 * step for i in range(3)}
                for method in compared
                for seed in range(SEEDS)
                for episode in range(EPISODES)
                for step in range(STEPS)
            ]
        )  # fmt: skip

    monkeypatch.setattr(zoo.study, "run", run)
    return zoo.play(SETTINGS)


def test_everybody_plays_the_same_episodes_once_per_point_and_seed(table):
    assert list(table.columns) == COLUMNS and not table.isna().any(axis=None)
    for _, rows in table.groupby(["maker", "point", "seed"]):
        assert sorted(rows["unit"]) == list(range(EPISODES))
    assert len(table) == SEEDS * EPISODES * (3 + len(methods.controls("education")) + 2)


def test_quality_is_the_mean_of_the_objectives_per_step_and_dollars_are_those_of_an_episode(table):
    assert table["quality"].to_numpy() == pytest.approx(0.15)  # 0, 0.1, 0.2 and 0.3
    paying = table["kind"] == PAPER
    assert table.loc[paying, "dollars"].to_numpy() == pytest.approx(0.04) and not table.loc[~paying, "dollars"].any()


def test_orchestrators_are_of_the_papers_and_policies_are_experts_and_the_oracle_is_alone(table):
    kinds = table.drop_duplicates("maker").set_index("maker")["kind"].to_dict()
    told = {kind: {name for name, each in kinds.items() if each == kind} for kind in set(kinds.values())}
    assert told[PAPER] == {*(f"{kind} {MODEL}" for kind in methods.KINDS), f"RO {MODEL}, with a budget"}
    assert told[EXPERT] == {*SINGLE, *REFERENCES["education"]} and told[ORACLE] == {"oracle look-ahead"}
    assert told[ROUTER] == {"LinUCB", "greedy look-ahead", "random", "round-robin"}


def test_budgets_are_points_of_one_maker_and_everybody_else_has_one_point(table):
    points = table.groupby("maker")["point"].unique().map(list).to_dict()
    assert points.pop(f"RO {MODEL}, with a budget") == ["$0.05", "$0.5"]
    assert all(told == [""] for told in points.values())
