"""The synthetic environment runs the lesson's own code: heads side by side learn as alone."""

import numpy as np
import pandas as pd
import pytest
import torch

from lib import config
from lib.conductor import meta_policy as conductor_head
from lib.conductor import meta_policy_training, synthetic_benchmark, variants
from lib.conductor import rewards as five_rewards
from lib.conductor import weighting as weightings
from lib.conductor.meta_policy_training import (
    AnchoredWeighting,
    ConductorWeighting,
    batch_over_seeds,
    make_verified_mask_stream,
    select_verified,
)
from lib.conductor.rewards import COMPONENTS, subtract_group_means
from lib.conductor.synthetic_environment import (
    JUDGE_AGREEMENT,
    BatchedEnvironments,
    RewardSetting,
    _list_agreements,
    make_states,
)
from lib.conductor.synthetic_methods import (
    BEST_PROXIES,
    BEST_STATIC,
    INITIAL_POLICY,
    MAPPED,
    MEAN_WEIGHTS,
    NO_WEIGHT,
    OPTIMUM,
    ORACLE,
    SyntheticMethod,
    fix_weights,
    list_heads,
    list_methods,
)
from lib.conductor.synthetic_training import train_and_evaluate
from lib.conductor.weighting import RolloutOutcomes
from lib.experiment import seeds
from lib.rl import losses
from tests.conductor import small

pytestmark = pytest.mark.usefixtures("one_thread")
SYNTHETIC = config.load("laptop").conductor.synthetic.model_copy(
    update={"seeds": 3, "steps": 40, "map_seeds": 2}
)
HEAD = config.load("laptop").conductor.head
SETTING = RewardSetting(0.9, 0.3)


def learned(kind, head, draws, names):
    """Heads after some steps on given states and rewards, one alone or several side by side."""
    one = kind(3, head, 4, names[0])
    weighting = batch_over_seeds(one, names) if len(names) > 1 else one
    for step, (h, rewards, quality, prompt) in enumerate(draws):
        weights, _ = weighting.weigh_rollouts(h, step)
        paid = (weights.detach() * rewards).sum(-1)
        advantage = losses.compute_group_advantages(paid.flatten(), 4).view_as(paid)
        weighting.learn(RolloutOutcomes(advantage, rewards, quality, prompt))
    return weighting


@pytest.mark.parametrize("kind", [ConductorWeighting, AnchoredWeighting])
@pytest.mark.parametrize("changes", [{}, {"pairwise": 0.5}, {"homogeneous": True}])
def test_heads_side_by_side_learn_what_each_would_learn_alone(kind, changes):
    head = small.head(update_interval=2, learning_rate=0.05, **changes)
    rng = torch.Generator().manual_seed(0)
    draws = [
        (
            torch.randn(3, 8, 3, generator=rng),
            torch.rand(3, 8, 5, generator=rng),
            torch.randn(3, 8, generator=rng),
            (step * 2 + torch.arange(2)).repeat_interleave(4).expand(3, -1),
        )
        for step in range(6)
    ]
    together = learned(kind, head, draws, [5, 6, 7])
    probe = torch.randn(3, 10, 3, generator=rng)
    told = together.compute_mean_weights(probe)
    assert together.num_updates == 3 and (told - 0.2).abs().max() > (
        1e-6 if changes.get("homogeneous") else 1e-3
    )
    if changes.get("homogeneous"):
        return  # what is left of the gradient is rounding, which differs
    for place, seed in enumerate([5, 6, 7]):
        alone = learned(kind, head, [[part[place] for part in draw] for draw in draws], [seed])
        assert torch.allclose(alone.compute_mean_weights(probe[place]), told[place], atol=1e-5)


def test_an_anchored_emphasis_is_paid_what_its_reward_has_to_do_with_quality():
    """By hand: one group of three; the reward that was drawn, less its mean, times standardised quality."""
    weighting = AnchoredWeighting(2, small.head(verified_fraction=1.0), 3, 0)
    rewards = torch.tensor([[0.0, 0, 0, 0, 1.0], [0, 0, 0, 0, 0.0], [0, 0, 0, 0, 0.5]])
    quality = torch.tensor([3.0, 1.0, 2.0])
    paid = weighting._compute_meta_rewards(
        RolloutOutcomes(torch.zeros(3), rewards, quality, torch.zeros(3, dtype=torch.long)),
        torch.tensor([4, 4, 0]),
    )
    assert paid.tolist() == pytest.approx(
        [0.5, 0.5, 0.0], abs=1e-3
    )  # .5 * 1, -.5 * -1, and fmt tells nobody apart
    unknown = AnchoredWeighting(2, small.head(verified_fraction=0.0), 3, 0)
    told = unknown._compute_meta_rewards(
        RolloutOutcomes(torch.ones(3), rewards, quality, torch.zeros(3, dtype=torch.long)),
        torch.tensor([4, 4, 0]),
    )
    assert not told.any()
    with pytest.raises(ValueError, match="needs the rewards"):
        weighting._compute_meta_rewards(RolloutOutcomes(torch.zeros(3)), torch.tensor([4, 4, 0]))


def test_its_mean_pay_is_the_covariance_with_quality():
    rng = torch.Generator().manual_seed(1)
    rewards, quality = torch.rand(50_000, 5, generator=rng), torch.randn(50_000, generator=rng)
    rewards[:, 2] += quality
    weighting, action = (
        AnchoredWeighting(2, small.head(verified_fraction=1.0), 5, 0),
        torch.randint(5, (50_000,), generator=rng),
    )
    prompt = torch.arange(10_000).repeat_interleave(5)
    paid = weighting._compute_meta_rewards(
        RolloutOutcomes(quality, rewards, quality, prompt), action
    )
    z = losses.compute_group_advantages(quality, 5)
    for k in range(5):
        expected = float((subtract_group_means(rewards, 5)[:, k] * z).mean())
        assert float(paid[action == k].mean()) == pytest.approx(expected, abs=0.05)


def test_the_same_share_of_prompts_is_verified_for_all_rollouts_of_a_prompt():
    prompt = torch.arange(4000).repeat_interleave(2).expand(3, -1)
    known = select_verified(make_verified_mask_stream([0, 1, 2]), prompt, 0.1)
    assert known.float().mean() == pytest.approx(0.1, abs=0.01)
    assert (known[:, ::2] == known[:, 1::2]).all() and not torch.equal(known[0], known[1])


# The world ----------------------------------------------------------------------------------------


def test_proxies_agree_with_quality_as_the_knobs_say():
    stack = BatchedEnvironments(SYNTHETIC, [SETTING, RewardSetting(0.5, -0.2)], 2)
    assert stack.quality_directions.norm(dim=-1) == pytest.approx(1, abs=1e-5)
    told = torch.einsum("sckd,scd->sck", stack.proxy_directions, stack.quality_directions)
    expected = torch.stack(
        [_list_agreements(setting, 4) for setting in stack.reward_settings]
    ).repeat_interleave(2, 0)
    assert torch.allclose(told, expected, atol=1e-5)
    judge = (stack.judge_directions * stack.quality_directions).sum(-1)
    assert judge == pytest.approx(JUDGE_AGREEMENT, abs=1e-5)


def test_a_seed_has_the_same_draws_in_every_world_and_among_any_number_of_seeds():
    few, many = (
        BatchedEnvironments(SYNTHETIC, [SETTING], 2),
        BatchedEnvironments(SYNTHETIC, [SETTING, RewardSetting(0.9, -0.3)], 4),
    )
    for name, drawn in few._draw_step(3).items():
        other = many._draw_step(3)[name]
        assert torch.equal(drawn, other[:2]) and torch.equal(other[:4], other[4:]), name
    assert torch.equal(few.quality_directions, many.quality_directions[:2]) and not torch.equal(
        many.proxy_directions[0], many.proxy_directions[4]
    )


def test_what_a_state_holds():
    category, x = torch.tensor([[1, 0]]), torch.arange(12.0).view(1, 2, 3, 2)
    order = torch.rand(1, 2, 3, generator=torch.Generator().manual_seed(3))
    told = {
        head_input: make_states(2, head_input, category, x, order)
        for head_input in ("both", "prompt", "reply", "shuffled")
    }
    assert told["both"][0, 0, 0].tolist() == [0, 1, 0, 1] and told["both"].shape == (1, 2, 3, 4)
    assert not told["prompt"][..., 2:].any() and not told["reply"][..., :2].any()
    both, mixed = (told[sees].flatten(0, 2).tolist() for sees in ("both", "shuffled"))
    assert sorted(both) == sorted(mixed) and both != mixed


@pytest.fixture(scope="module")
def reached():
    """Mean quality of some arms, and the weights that heads end with."""
    torch.set_num_threads(1)
    stack = BatchedEnvironments(SYNTHETIC.model_copy(update={"steps": 80}), [SETTING], 6)
    known = list_methods(SYNTHETIC, HEAD)
    names = [
        INITIAL_POLICY,
        "Equal",
        BEST_PROXIES,
        ORACLE,
        OPTIMUM,
        "Conductor",
        "Anchored 100%",
    ]
    return pd.concat([train_and_evaluate(stack, known[name]) for name in names])


def test_arms_stand_in_the_order_that_the_world_is_made_for(reached):
    level = reached.groupby("method")["reward"].mean()
    assert abs(level[INITIAL_POLICY]) < 0.1 < level["Equal"] < level[BEST_PROXIES]
    assert level[BEST_PROXIES] < level[ORACLE] < level[OPTIMUM]
    worse = reached.set_index(["method", "item"])["reward"].unstack("method")
    assert (worse[OPTIMUM] >= worse.max(axis=1)).all()  # enumeration: nobody is above it anywhere


def test_the_anchored_head_finds_the_right_proxy_of_every_category(reached):
    rows = (
        reached[reached["method"] == "Anchored 100%"]
        .groupby("group")[[f"w_{name}" for name in COMPONENTS]]
        .mean()
    )
    assert rows.to_numpy().argmax(1).tolist() == [1, 2, 3, 4]
    assert np.allclose(rows.sum(axis=1), 1, atol=1e-5)


def test_an_arm_does_not_depend_on_the_worlds_beside_it(reached):
    settings = SYNTHETIC.model_copy(update={"steps": 10})
    player = list_methods(SYNTHETIC, HEAD)["Conductor"]
    alone = train_and_evaluate(BatchedEnvironments(settings, [SETTING], 2), player)[
        "reward"
    ].to_numpy()
    beside = train_and_evaluate(
        BatchedEnvironments(settings, [RewardSetting(0.9, -0.3), SETTING], 2), player
    )["reward"].to_numpy()[len(alone) :]
    assert np.allclose(alone, beside, atol=1e-5)


def test_truth_on_no_prompt_leaves_the_policy_where_it_started():
    settings = SYNTHETIC.model_copy(update={"steps": 5})
    nothing = SyntheticMethod("nothing", fix_weights(NO_WEIGHT), direct_fraction=1e-9)
    stack = BatchedEnvironments(settings, [SETTING], 2)
    start = train_and_evaluate(stack, list_methods(SYNTHETIC, HEAD)[INITIAL_POLICY])
    assert np.allclose(train_and_evaluate(stack, nothing)["reward"], start["reward"])


def test_a_study_holds_every_arm_and_is_not_made_twice(tmp_path, monkeypatch):
    settings = SYNTHETIC.model_copy(
        update={
            "steps": 3,
            "map": SYNTHETIC.map.model_copy(update={"other_agreement": [0.3]}),
        }
    )
    lesson = config.load("laptop").conductor.model_copy(
        update={"synthetic": settings, "head": HEAD}
    )
    rows = synthetic_benchmark.run(lesson, 1, tmp_path)
    centre = rows[rows["style"] == "centre"]
    assert set(centre["method"]) == {
        BEST_STATIC,
        MEAN_WEIGHTS,
        *list_methods(SYNTHETIC, HEAD),
    }
    assert set(rows[rows["style"] == "map"]["method"]) == set(MAPPED)
    assert len(centre) == len(set(centre["method"])) * settings.seeds * settings.categories
    monkeypatch.setattr(
        synthetic_benchmark, "run_job", lambda *_: pytest.fail("nothing is to be trained")
    )
    pd.testing.assert_frame_equal(synthetic_benchmark.run(lesson, 1, tmp_path), rows)


# Jobs ---------------------------------------------------------------------------------------------


def keys(settings=SYNTHETIC, head=HEAD) -> dict[str, str]:
    """Keys of all jobs by label."""
    return {job.label: job.key for job in synthetic_benchmark.make_jobs(settings, head)}


def changed(**changes) -> set[str]:
    """Labels of jobs with other keys after changes to the settings."""
    before, after = keys(), keys(SYNTHETIC.model_copy(update=changes))
    return {label for label in before if before[label] != after.get(label)}


def test_labels_and_keys_are_unique_and_a_key_holds_no_label():
    jobs = synthetic_benchmark.make_jobs(SYNTHETIC, HEAD)
    assert len({job.label for job in jobs}) == len({job.key for job in jobs}) == len(jobs)
    central_place = SYNTHETIC.map.model_copy(
        update={
            "other_agreement": [SYNTHETIC.other_agreement],
            "noise": [0.0],
            "easy_fraction": [1.0],
        }
    )
    alike = SYNTHETIC.model_copy(update={"map_seeds": SYNTHETIC.seeds, "map": central_place})
    same_worlds = [
        job
        for job in synthetic_benchmark.make_jobs(alike, HEAD)
        if job.settings["variant"] == "Equal"
    ]
    assert (
        len(same_worlds) == 2 and same_worlds[0].key != same_worlds[1].key
    )  # a map's rows, and the centre's


def test_a_job_is_another_one_where_a_setting_that_it_reads_changes_and_nowhere_else():
    everything = set(keys())
    heads = {f"{style}/{name}" for style in ("map", "centre") for name in head_names()} & everything
    assert changed(steps=41) == changed(learning_rate=0.2) == everything
    assert (
        changed(head_learning_rate=0.5)
        == changed(pairwise=0.9)
        == heads | {f"centre/{MEAN_WEIGHTS}"}
    )
    assert changed(matching_agreement=0.8) == everything
    assert changed(other_agreement=0.2) == {
        label for label in everything if label.startswith("centre/")
    }
    assert changed(map_seeds=3) == {label for label in everything if label.startswith("map/")}
    assert "centre/Equal" not in changed(kappas=[0.0]) and "centre/kappa 1" in changed(kappas=[0.0])


def head_names() -> list[str]:
    return [player.name for player in list_heads(SYNTHETIC, HEAD)]


@pytest.mark.parametrize(
    "field",
    ["layer", "head_input", "learning_rate", "anchor", "verified_fraction", "verifier_error_rate"],
)
def test_what_arms_decide_about_the_head_themselves_changes_no_job(field):
    other = {"layer": "first", "head_input": "prompt", "anchor": "verifier"}.get(field, 0.25)
    assert keys(head=HEAD.model_copy(update={field: other})) == keys()


def test_a_changed_head_changes_the_arms_that_have_one():
    before, after = keys(), keys(head=HEAD.model_copy(update={"entropy": 0.5}))
    different = {label for label in before if before[label] != after[label]}
    assert {label.partition("/")[2] for label in different} == {
        *head_names(),
        MEAN_WEIGHTS,
    }


@pytest.mark.parametrize(
    "method",
    ["Equal", "Conductor", "Anchored 10%, 20% errors", "quality on 10%", BEST_STATIC],
)
def test_a_raised_version_of_the_code_changes_every_job(method, monkeypatch):
    before = keys()[f"centre/{method}"]
    for module in (
        seeds,
        losses,
        variants,
        conductor_head,
        meta_policy_training,
        five_rewards,
        weightings,
        synthetic_benchmark,
    ):
        with monkeypatch.context() as patch:
            patch.setattr(module, "VERSION", module.VERSION + 1)
            assert keys()[f"centre/{method}"] != before, module.__name__
