"""What trains again: a policy is named by what decides it, and made of the same bytes whoever was trained beside it."""

from dataclasses import replace

import pandas as pd
import pytest

from lib import params, store, sweep
from lib.zoo import policies, recipes, train
from lib.zoo.objectives import Linear

SMOKE = params.load("smoke")
ALL = recipes.recipes


def changed(**zoo):
    """Smoke with some changes to the zoo."""
    content = SMOKE.model_dump()
    return params.validate(content | {"zoo": params.overlay(content["zoo"], zoo)})


def named(settings, domain):
    """The policies of a domain's sweep by name and seed: the hashes that name them."""
    return {
        (facts["recipe"]["name"], facts["seed"]): store.sha256_json(facts)
        for cell in train.cells(settings, domain)
        for facts in cell.settings["policies"]
    }


def added(settings, domain):
    """The recipes, with one more in the stack of Table 6."""
    told = ALL(settings, domain)
    return (
        [*told, replace(told[0], name="SO-new", objective=Linear((0.5, 0.5, 0.0)))] if domain == "education" else told
    )


def files(out, domain="education"):
    return {str(path.relative_to(out)): path.read_bytes() for path in (out / domain).rglob("seed-*")}


@pytest.fixture(scope="module")
def short():
    """Two updates of each, one process: a sweep's own workers take longer to start."""
    single = {"timesteps": 512, "rollout": 256}
    return changed(jobs=1, education={"single": single, "mgda": single})


@pytest.fixture(scope="module")
def built(short, tmp_path_factory):
    out = tmp_path_factory.mktemp("zoo")
    return train.build(short, "education", out / "zoo", out / "runs"), out


def test_a_recipe_comes_back_from_its_facts():
    for domain in recipes.DOMAINS:
        for recipe in ALL(SMOKE, domain):
            assert recipes.Recipe.of(recipe.facts(), recipe.stack) == recipe
    facts = ALL(SMOKE, "education")[0].facts()
    with pytest.raises(ValueError, match="'Wish', and must be one of .'Linear', 'RewardMachine', 'Vector'"):
        recipes.Recipe.of(facts | {"objective": {"type": "Wish"}})


def test_settings_name_only_the_policies_that_they_decide():
    before = named(SMOKE, "education") | {("minigrid", *key): name for key, name in named(SMOKE, "minigrid").items()}

    def moved(settings):
        after = named(settings, "education") | {
            ("minigrid", *k): name for k, name in named(settings, "minigrid").items()
        }
        assert set(before) <= set(after)
        return {key for key in before if before[key] != after[key]}

    assert moved(changed(education={"mgda": {"clip": 0.3}})) == {("MO-MGDA", 0), ("MO-MGDA", 1)}
    assert moved(changed(minigrid={"gold": {"entropy": 0.5}})) == {("minigrid", "SO-d3", seed) for seed in (0, 1)}
    assert not moved(changed(seeds=7, jobs=3, episodes=9))
    world = params.validate(SMOKE.model_dump() | {"minigrid": {"horizon": 30, "lava": 2}})
    assert moved(world) == {key for key in before if key[0] == "minigrid"}
    reference = moved(changed(learner="stable-baselines3"))
    assert reference == {key for key in before if "MO-MGDA" not in key}


def test_a_recipe_that_is_added_is_trained_alone_and_to_the_bytes_of_a_full_training(
    built, short, tmp_path, monkeypatch
):
    zoo, out = built
    before, receipts = files(out / "zoo"), set((out / "runs").glob("*/done.json"))
    assert len(before) == 24 and len(receipts) == 2
    monkeypatch.setattr(train, "recipes", added)
    grown = train.build(short, "education", out / "zoo", out / "runs")
    (new,) = set((out / "runs").glob("*/done.json")) - receipts
    assert sorted(path.name for path in new.parent.glob("seed-*/*.json")) == ["SO-new.json"] * 2
    after = files(out / "zoo")
    assert {name: after[name] for name in before} == before and len(after) == 28
    afresh = train.build(short, "education", tmp_path / "zoo", tmp_path / "runs")
    assert files(tmp_path / "zoo") == after
    order = ["arm", "seed", "update", "length"]
    pd.testing.assert_frame_equal(*(z.curves.sort_values(order, ignore_index=True) for z in (grown, afresh)))
    assert grown.seconds["seeds"].tolist() == zoo.seconds["seeds"].tolist() == [2, 2]
    assert grown.seconds["seconds"].sum() > zoo.seconds["seconds"].sum()


def test_a_policy_that_is_alone_has_the_bytes_that_it_has_in_company(built, short, tmp_path):
    _, out = built
    whole = next(c for c in train.cells(short, "education") if "table-6" in c.name)
    for facts in whole.settings["policies"][3:5]:
        cell = sweep.Cell("alone", {"policies": [facts]})
        train.train_cell(cell, tmp_path, lambda fraction: None)
        name, seed = facts["recipe"]["name"], facts["seed"]
        mine = policies.load(tmp_path / f"seed-{seed}" / f"{name}.json").params
        theirs = policies.load(out / "zoo/education" / name / f"seed-{seed}.json").params
        assert all((mine[key] == theirs[key]).all() for key in theirs)


def test_what_is_trained_is_not_trained_again(built, short, monkeypatch):
    zoo, out = built
    monkeypatch.setattr(train, "train_cell", None)
    again = train.build(short, "education", out / "zoo", out / "runs")
    pd.testing.assert_frame_equal(again.curves, zoo.curves)
    pd.testing.assert_frame_equal(again.seconds, zoo.seconds)


@pytest.mark.parametrize(("domain", "timesteps"), [("education", 512), ("minigrid", 1_024)])
def test_stable_baselines3_trains_a_zoo_that_is_the_stacked_one_after_few_updates(domain, timesteps, tmp_path):
    every = {"education": ("single", "mgda"), "minigrid": ("navigate", "lava", "gold", "pseudo")}[domain]
    part = {"timesteps": timesteps, "rollout": 256, "epochs": 1, "learning_rate": 1e-4}
    settings = {"jobs": 1, "seeds": 1, domain: {name: part for name in every}}
    ours, theirs = (
        train.build(changed(learner=learner, **settings), domain, tmp_path / learner, tmp_path / "runs")
        for learner in ("stacked", "stable-baselines3")
    )
    assert list(ours.policies) == list(theirs.policies)
    for name, (policy,) in theirs.policies.items():
        (mine,) = ours.policies[name]
        assert policy.network == mine.network and policy.about == mine.about
        for key, value in mine.params.items():
            assert value == pytest.approx(policy.params[key], abs=5e-6), (name, key)
    order = ["arm", "update", "length"]
    one, other = (zoo.curves.sort_values(order, ignore_index=True)[list(ours.curves)] for zoo in (ours, theirs))
    pd.testing.assert_frame_equal(one, other)
    alone = [[name] for name in theirs.policies]
    assert sorted(theirs.stacks.values()) == sorted(alone)
