"""What trains again: a policy is named by what decides it, and made of the same bytes whoever was trained beside it."""

from dataclasses import replace

import pandas as pd
import pytest

from lib import config, envs
from lib.experiment import seeds, sweep
from lib.policy_zoo import mgda, networks, objectives, policies, ppo, recipes, sb3_baseline, train
from lib.policy_zoo.objectives import Linear
from lib.rl import losses

SMOKE = config.load("smoke")
ALL = recipes.recipes


def changed(**zoo):
    """Smoke with some changes to the zoo."""
    content = SMOKE.model_dump()
    return config.validate_settings(content | {"zoo": config.overlay_settings(content["zoo"], zoo)})


def find_keys(settings, domain):
    """The keys of the policies of a domain's sweep, by domain, name and seed."""
    keys = {}
    for job in train.make_jobs(settings, domain):
        for policy, key in zip(
            job.settings["policies"], train.policy_keys(job.settings), strict=True
        ):
            keys[domain, policy["recipe"]["name"], policy["seed"]] = key
    return keys


def find_all_keys(settings):
    return find_keys(settings, "education") | find_keys(settings, "minigrid")


def add_recipe(settings, domain):
    """The recipes, with one more in the stack of Table 6."""
    shipped = ALL(settings, domain)
    if domain != "education":
        return shipped
    return [*shipped, replace(shipped[0], name="SO-new", objective=Linear((0.5, 0.5, 0.0)))]


def files(out, domain="education"):
    return {
        str(path.relative_to(out)): path.read_bytes() for path in (out / domain).rglob("seed-*")
    }


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
    with pytest.raises(
        ValueError, match="'Wish', and must be one of .'Linear', 'RewardMachine', 'Vector'"
    ):
        recipes.Recipe.of(facts | {"objective": {"type": "Wish"}})


def find_changed_keys(before, after):
    """Policies whose keys differ; there may be more of them after a change."""
    assert set(before) <= set(after)
    return {policy for policy, key in before.items() if after[policy] != key}


def test_a_setting_changes_the_keys_of_the_policies_that_it_decides_and_of_no_others():
    before = find_all_keys(SMOKE)

    def keys_changed_by(settings):
        return find_changed_keys(before, find_all_keys(settings))

    assert keys_changed_by(changed(education={"mgda": {"clip": 0.3}})) == {
        ("education", "MO-MGDA", seed) for seed in (0, 1)
    }
    assert keys_changed_by(changed(minigrid={"gold": {"entropy": 0.5}})) == {
        ("minigrid", "SO-d3", seed) for seed in (0, 1)
    }
    assert not keys_changed_by(changed(seeds=7, jobs=3, episodes=9))
    other_room = config.validate_settings(
        SMOKE.model_dump() | {"minigrid": {"horizon": 30, "lava": 2}}
    )
    assert keys_changed_by(other_room) == {policy for policy in before if policy[0] == "minigrid"}
    by_reference = keys_changed_by(changed(learner="stable-baselines3"))
    assert by_reference == {policy for policy in before if "MO-MGDA" not in policy}


@pytest.mark.parametrize(
    "module",
    [envs, losses, mgda, networks, objectives, policies, ppo, recipes, sb3_baseline, seeds, train],
)
def test_a_version_that_is_raised_changes_the_keys_of_the_policies_that_it_decides(
    module, monkeypatch
):
    by_learner = [SMOKE, changed(learner="stable-baselines3")]
    before = [find_all_keys(settings) for settings in by_learner]
    monkeypatch.setattr(module, "VERSION", 99)
    stacked, by_reference = (
        find_changed_keys(keys, find_all_keys(settings))
        for keys, settings in zip(before, by_learner, strict=True)
    )
    everybody, several_critics = (
        set(before[0]),
        {policy for policy in before[0] if "MO-MGDA" in policy},
    )
    if module is mgda:
        assert stacked == by_reference == several_critics
    elif module is losses:
        assert stacked == everybody and by_reference == several_critics
    elif module is sb3_baseline:
        assert not stacked and by_reference == everybody - several_critics
    else:
        assert stacked == by_reference == everybody


def test_a_question_bank_with_another_content_trains_its_policies_again(tmp_path):
    bank = tmp_path / "bank.csv"
    bank.write_bytes((config.ROOT / SMOKE.education.bank).read_bytes())
    education = SMOKE.education.model_copy(update={"bank": str(bank)})
    settings = SMOKE.model_copy(update={"education": education})
    before = find_keys(settings, "education")
    bank.write_bytes(bank.read_bytes() + b"\n")
    assert find_changed_keys(before, find_keys(settings, "education")) == set(before)


def test_a_key_holds_no_name_of_a_class_or_a_module(monkeypatch):
    class Renamed(Linear):
        pass

    before = find_keys(SMOKE, "education")
    monkeypatch.setitem(objectives.KINDS, "Linear", Renamed)
    renamed = [
        replace(recipe, objective=Renamed(recipe.objective.weights))
        if type(recipe.objective) is Linear
        else recipe
        for recipe in ALL(SMOKE, "education")
    ]
    monkeypatch.setattr(recipes, "recipes", lambda settings, domain: renamed)
    assert find_keys(SMOKE, "education") == before


def test_a_recipe_that_is_added_is_trained_alone_and_to_the_bytes_of_a_full_training(
    built, short, tmp_path, monkeypatch
):
    zoo, out = built
    before, receipts = files(out / "zoo"), set((out / "runs").glob("*/done.json"))
    assert len(before) == 24 and len(receipts) == 2
    monkeypatch.setattr(recipes, "recipes", add_recipe)
    grown = train.build(short, "education", out / "zoo", out / "runs")
    (new,) = set((out / "runs").glob("*/done.json")) - receipts
    assert sorted(path.name for path in new.parent.glob("seed-*/*.json")) == ["SO-new.json"] * 2
    after = files(out / "zoo")
    assert {name: after[name] for name in before} == before and len(after) == 28
    afresh = train.build(short, "education", tmp_path / "zoo", tmp_path / "runs")
    assert files(tmp_path / "zoo") == after
    order = ["method", "seed", "update", "length"]
    pd.testing.assert_frame_equal(
        *(z.curves.sort_values(order, ignore_index=True) for z in (grown, afresh))
    )
    assert grown.seconds["seeds"].tolist() == zoo.seconds["seeds"].tolist() == [2, 2]
    assert grown.seconds["seconds"].sum() > zoo.seconds["seconds"].sum()


def test_a_policy_that_is_alone_has_the_bytes_that_it_has_in_company(built, short, tmp_path):
    _, out = built
    stack_job = next(
        job for job in train.make_jobs(short, "education") if len(job.settings["policies"]) > 3
    )
    for policy in stack_job.settings["policies"][3:5]:
        job = sweep.Job("alone", stack_job.settings | {"policies": [policy]})
        train.train_policies(job, tmp_path, lambda fraction: None)
        name, seed = policy["recipe"]["name"], policy["seed"]
        mine = policies.load(tmp_path / f"seed-{seed}" / f"{name}.json").params
        theirs = policies.load(out / "zoo/education" / name / f"seed-{seed}.json").params
        assert all((mine[key] == theirs[key]).all() for key in theirs)


def test_what_is_trained_is_not_trained_again(built, short, monkeypatch):
    zoo, out = built
    monkeypatch.setattr(train, "train_policies", None)
    again = train.build(short, "education", out / "zoo", out / "runs")
    pd.testing.assert_frame_equal(again.curves, zoo.curves)
    pd.testing.assert_frame_equal(again.seconds, zoo.seconds)


@pytest.mark.parametrize(("domain", "timesteps"), [("education", 512), ("minigrid", 1_024)])
def test_stable_baselines3_trains_a_zoo_that_is_the_stacked_one_after_few_updates(
    domain, timesteps, tmp_path
):
    every = {"education": ("single", "mgda"), "minigrid": ("navigate", "lava", "gold", "pseudo")}[
        domain
    ]
    part = {"timesteps": timesteps, "rollout": 256, "epochs": 1, "learning_rate": 1e-4}
    settings = {"jobs": 1, "seeds": 1, domain: {name: part for name in every}}
    ours, theirs = (
        train.build(
            changed(learner=learner, **settings), domain, tmp_path / learner, tmp_path / "runs"
        )
        for learner in ("stacked", "stable-baselines3")
    )
    assert list(ours.policies) == list(theirs.policies)
    for name, (policy,) in theirs.policies.items():
        (mine,) = ours.policies[name]
        assert policy.network == mine.network and policy.about == mine.about
        for key, value in mine.params.items():
            assert value == pytest.approx(policy.params[key], abs=5e-6), (name, key)
    order = ["method", "update", "length"]
    one, other = (
        zoo.curves.sort_values(order, ignore_index=True)[list(ours.curves)]
        for zoo in (ours, theirs)
    )
    pd.testing.assert_frame_equal(one, other)
    alone = [[name] for name in theirs.policies]
    assert sorted(theirs.stacks.values()) == sorted(alone)
