"""Which policies are trained again, and that a policy does not depend on those that are trained beside it."""

from dataclasses import replace

import pandas as pd
import pytest

from lib import config, envs
from lib.experiment import seeds, sweep
from lib.policy_zoo import mgda, networks, objectives, policies, ppo, recipes, sb3_baseline, train
from lib.policy_zoo.objectives import LinearScalarization
from lib.rl import losses

SMOKE = config.load("smoke")
list_shipped_recipes = recipes.list_recipes  # without what a test adds


def change_zoo(**zoo):
    """Settings of smoke with some changes to the zoo."""
    content = SMOKE.model_dump()
    return config.validate_settings(content | {"zoo": config.overlay_settings(content["zoo"], zoo)})


def find_keys(settings, domain):
    """The keys of the policies of a domain's sweep, by domain, name and seed."""
    key_by_policy = {}
    for job in train.make_jobs(settings, domain):
        keys = train.compute_policy_keys(job.settings)
        for policy, key in zip(job.settings["policies"], keys, strict=True):
            key_by_policy[domain, policy["recipe"]["name"], policy["seed"]] = key
    return key_by_policy


def find_all_keys(settings):
    return find_keys(settings, "education") | find_keys(settings, "minigrid")


def list_recipes_and_a_new_one(settings, domain):
    """The recipes, with one more in the stack of Table 6."""
    shipped = list_shipped_recipes(settings, domain)
    if domain != "education":
        return shipped
    objective = LinearScalarization((0.5, 0.5, 0.0))
    return [*shipped, replace(shipped[0], name="SO-new", objective=objective)]


def read_policy_files(out, domain="education"):
    """Bytes of the policies by path."""
    return {
        str(path.relative_to(out)): path.read_bytes() for path in (out / domain).rglob("seed-*")
    }


@pytest.fixture(scope="module")
def short_settings():
    """Two updates of each policy, in one process: the workers of a sweep take longer to start."""
    training = {"timesteps": 512, "rollout": 256}
    return change_zoo(jobs=1, education={"single": training, "mgda": training})


@pytest.fixture(scope="module")
def zoo_and_folder(short_settings, tmp_path_factory):
    folder = tmp_path_factory.mktemp("zoo")
    zoo = train.build_zoo(short_settings, "education", folder / "zoo", folder / "runs")
    return zoo, folder


def test_a_recipe_comes_back_from_its_json():
    for domain in recipes.DOMAINS:
        for recipe in recipes.list_recipes(SMOKE, domain):
            assert recipes.Recipe.from_json(recipe.to_json(), recipe.stack) == recipe
    description = recipes.list_recipes(SMOKE, "education")[0].to_json()
    with pytest.raises(
        ValueError, match="'Wish', and must be one of .'Linear', 'RewardMachine', 'Vector'"
    ):
        recipes.Recipe.from_json(description | {"objective": {"type": "Wish"}})


def find_changed_keys(before, after):
    """Policies whose keys differ; there may be more of them after a change."""
    assert set(before) <= set(after)
    return {policy for policy, key in before.items() if after[policy] != key}


def test_a_setting_changes_only_the_keys_of_the_policies_that_it_decides():
    before = find_all_keys(SMOKE)

    def keys_changed_by(settings):
        return find_changed_keys(before, find_all_keys(settings))

    assert keys_changed_by(change_zoo(education={"mgda": {"clip": 0.3}})) == {
        ("education", "MO-MGDA", seed) for seed in (0, 1)
    }
    assert keys_changed_by(change_zoo(minigrid={"gold": {"entropy": 0.5}})) == {
        ("minigrid", "SO-d3", seed) for seed in (0, 1)
    }
    assert not keys_changed_by(change_zoo(seeds=7, jobs=3, episodes=9))
    other_room = config.validate_settings(
        SMOKE.model_dump() | {"minigrid": {"horizon": 30, "lava": 2}}
    )
    assert keys_changed_by(other_room) == {policy for policy in before if policy[0] == "minigrid"}
    keys_changed_by_learner = keys_changed_by(change_zoo(learner="stable-baselines3"))
    assert keys_changed_by_learner == {policy for policy in before if "MO-MGDA" not in policy}


@pytest.mark.parametrize(
    "module",
    [envs, losses, mgda, networks, objectives, policies, ppo, recipes, sb3_baseline, seeds, train],
)
def test_a_version_that_is_raised_changes_the_keys_of_the_policies_that_it_decides(
    module, monkeypatch
):
    settings_of_sb3 = change_zoo(learner="stable-baselines3")
    stacked_before = find_all_keys(SMOKE)
    sb3_before = find_all_keys(settings_of_sb3)
    monkeypatch.setattr(module, "VERSION", 99)
    changed_of_stacked = find_changed_keys(stacked_before, find_all_keys(SMOKE))
    changed_of_sb3 = find_changed_keys(sb3_before, find_all_keys(settings_of_sb3))

    all_policies = set(stacked_before)
    several_critics = {policy for policy in all_policies if "MO-MGDA" in policy}
    if module is mgda:
        assert changed_of_stacked == changed_of_sb3 == several_critics
    elif module is losses:
        assert changed_of_stacked == all_policies
        assert changed_of_sb3 == several_critics
    elif module is sb3_baseline:
        assert not changed_of_stacked
        assert changed_of_sb3 == all_policies - several_critics
    else:
        assert changed_of_stacked == changed_of_sb3 == all_policies


def test_a_question_bank_with_another_content_trains_its_policies_again(tmp_path):
    bank = tmp_path / "bank.csv"
    bank.write_bytes((config.ROOT / SMOKE.education.bank).read_bytes())
    education = SMOKE.education.model_copy(update={"bank": str(bank)})
    settings = SMOKE.model_copy(update={"education": education})
    before = find_keys(settings, "education")
    bank.write_bytes(bank.read_bytes() + b"\n")
    assert find_changed_keys(before, find_keys(settings, "education")) == set(before)


def test_a_key_has_no_name_of_a_class(monkeypatch):
    class RenamedScalarization(LinearScalarization):
        pass

    before = find_keys(SMOKE, "education")
    monkeypatch.setitem(objectives.OBJECTIVE_TYPES, "Linear", RenamedScalarization)
    renamed_recipes = []
    for recipe in list_shipped_recipes(SMOKE, "education"):
        if type(recipe.objective) is LinearScalarization:
            recipe = replace(recipe, objective=RenamedScalarization(recipe.objective.weights))
        renamed_recipes.append(recipe)
    monkeypatch.setattr(recipes, "list_recipes", lambda settings, domain: renamed_recipes)
    assert find_keys(SMOKE, "education") == before


def test_a_recipe_that_is_added_is_trained_without_the_others_and_to_the_bytes_of_a_full_training(
    zoo_and_folder, short_settings, tmp_path, monkeypatch
):
    zoo, folder = zoo_and_folder
    files_before = read_policy_files(folder / "zoo")
    receipts_before = set((folder / "runs").glob("*/done.json"))
    assert len(files_before) == 24 and len(receipts_before) == 2

    # The new policy alone is trained.
    monkeypatch.setattr(recipes, "list_recipes", list_recipes_and_a_new_one)
    grown = train.build_zoo(short_settings, "education", folder / "zoo", folder / "runs")
    (receipt,) = set((folder / "runs").glob("*/done.json")) - receipts_before
    assert sorted(path.name for path in receipt.parent.glob("seed-*/*.json")) == ["SO-new.json"] * 2
    files_after = read_policy_files(folder / "zoo")
    assert {name: files_after[name] for name in files_before} == files_before
    assert len(files_after) == 28

    # A training of all policies gives the same files and curves.
    full = train.build_zoo(short_settings, "education", tmp_path / "zoo", tmp_path / "runs")
    assert read_policy_files(tmp_path / "zoo") == files_after
    order = ["method", "seed", "update", "length"]
    pd.testing.assert_frame_equal(
        grown.curves.sort_values(order, ignore_index=True),
        full.curves.sort_values(order, ignore_index=True),
    )
    assert grown.seconds["seeds"].tolist() == zoo.seconds["seeds"].tolist() == [2, 2]
    assert grown.seconds["seconds"].sum() > zoo.seconds["seconds"].sum()


def test_a_policy_has_the_same_bytes_with_and_without_others_beside_it(
    zoo_and_folder, short_settings, tmp_path
):
    _, folder = zoo_and_folder
    stack_job = next(
        job
        for job in train.make_jobs(short_settings, "education")
        if len(job.settings["policies"]) > 3
    )
    for policy in stack_job.settings["policies"][3:5]:
        job = sweep.Job("one policy", stack_job.settings | {"policies": [policy]})
        train.train_policies(job, tmp_path, lambda fraction: None)
        name = policy["recipe"]["name"]
        seed = policy["seed"]
        trained_singly = policies.load(tmp_path / f"seed-{seed}" / f"{name}.json").params
        trained_in_stack = policies.load(
            folder / "zoo/education" / name / f"seed-{seed}.json"
        ).params
        for key, array in trained_in_stack.items():
            assert (trained_singly[key] == array).all()


def test_what_is_trained_is_not_trained_again(zoo_and_folder, short_settings, monkeypatch):
    zoo, folder = zoo_and_folder
    monkeypatch.setattr(train, "train_policies", None)
    again = train.build_zoo(short_settings, "education", folder / "zoo", folder / "runs")
    pd.testing.assert_frame_equal(again.curves, zoo.curves)
    pd.testing.assert_frame_equal(again.seconds, zoo.seconds)


@pytest.mark.parametrize(
    ("domain", "sections", "timesteps"),
    [
        ("education", ("single", "mgda"), 512),
        ("minigrid", ("navigate", "lava", "gold", "pseudo"), 1_024),
    ],
)
def test_stable_baselines3_trains_a_zoo_that_is_the_stacked_one_after_few_updates(
    domain, sections, timesteps, tmp_path
):
    training = {"timesteps": timesteps, "rollout": 256, "epochs": 1, "learning_rate": 1e-4}
    changes = {"jobs": 1, "seeds": 1, domain: dict.fromkeys(sections, training)}
    zoos = {}
    for learner in ("stacked", "stable-baselines3"):
        settings = change_zoo(learner=learner, **changes)
        zoos[learner] = train.build_zoo(settings, domain, tmp_path / learner, tmp_path / "runs")
    stacked = zoos["stacked"]
    sb3 = zoos["stable-baselines3"]

    # Policies.
    assert list(stacked.policies) == list(sb3.policies)
    for name, (sb3_policy,) in sb3.policies.items():
        (policy,) = stacked.policies[name]
        assert policy.network == sb3_policy.network and policy.about == sb3_policy.about
        for key, array in policy.params.items():
            assert array == pytest.approx(sb3_policy.params[key], abs=5e-6), (name, key)

    # Curves, and that stable-baselines3 trains one policy at a time.
    order = ["method", "update", "length"]
    columns = list(stacked.curves)
    pd.testing.assert_frame_equal(
        stacked.curves.sort_values(order, ignore_index=True),
        sb3.curves.sort_values(order, ignore_index=True)[columns],
    )
    assert sorted(sb3.stacks.values()) == sorted([name] for name in sb3.policies)
