"""The glass box of tools: what a choice is worth by hand, the lesson's reward in it, and what training makes of it."""

import numpy as np
import pandas as pd
import pytest
import torch

from lib import config
from lib.config import ToolGlassSettings
from lib.experiment import seeds
from lib.rl import losses
from lib.tool_orchestration import rewards, tool_environment, tool_menu
from lib.tool_orchestration import synthetic_benchmark as glass
from lib.tool_orchestration.synthetic_benchmark import Menus, SyntheticToolVariant, ToolWorlds

TOOLS = config.settings(profile="smoke").tools
SMALL = TOOLS.glass
LARGER = SMALL.model_copy(update={"seeds": 6, "groups": 16, "menus": 40})
NOBODY = np.zeros(len(glass.TOOLS) + 3)


def by_hand(
    prices=((1.0, 4.0), (2.0, 4.0), (5.0, 8.0)), success=(0.5, 0.8, 1.0)
) -> tuple[ToolWorlds, Menus]:
    """One world, one question of kind 0, a menu of the first three tools."""
    table = np.zeros((1, glass.KINDS, len(glass.TOOLS)))
    table[0, 0, :3] = success
    worlds = ToolWorlds(table, table, np.ones((1, len(glass.TOOLS), 2)))
    return worlds, Menus(np.array([[0]]), np.array([[[0, 1, 2]]]), np.array([[prices]]))


def user(accuracy=0.0, cost=0.0, latency=0.0, **liked) -> np.ndarray:
    who = NOBODY.copy()
    who[-3:] = accuracy, cost, latency
    for name, weight in liked.items():
        who[glass.TOOLS.index(name)] = weight
    return who[None, None]


def test_the_worth_of_a_call_by_hand():
    worlds, menus = by_hand()
    assert glass.worth(worlds, menus, user(accuracy=1.0)).ravel() == pytest.approx([0.5, 0.8, 1.0])
    assert glass.worth(worlds, menus, user(cost=1.0)).ravel() == pytest.approx(
        [0.5, 0.8 * 3 / 4, 0.0]
    )
    assert glass.worth(worlds, menus, user(latency=0.5)).ravel() == pytest.approx([0.25, 0.4, 0.0])
    assert glass.worth(worlds, menus, user(accuracy=1.0, facts=1.0)).ravel() == pytest.approx(
        [0.5, 0.8, 2.0]
    )


def test_the_worth_is_the_lessons_reward_in_a_group_that_tries_the_whole_menu():
    """Where everything is right for certain; the outcome's own entry is then 0 for all, so that it weighs nothing."""
    worlds, menus = by_hand(success=(1.0, 1.0, 1.0))
    who = user(cost=0.7, latency=0.3, sums=1.0)
    calls = np.eye(len(glass.TOOLS))[:3]
    m = rewards.vectors(calls, np.ones(3), menus.prices[0, 0, :, 0], menus.prices[0, 0, :, 1])
    told = rewards.reward(rewards.normalised(m, [0] * 3), np.repeat(who[0], 3, axis=0), m[:, -3])
    assert glass.worth(worlds, menus, who).ravel() == pytest.approx(told)


def test_menus_of_training_have_no_newcomer_and_its_tests_have_one():
    worlds = ToolWorlds.drawn(LARGER)
    usual = Menus.drawn(worlds, LARGER, 50, "a test")
    assert usual.tools.max() < len(glass.KNOWN)
    assert all(
        len(set(menu)) == LARGER.menu for menu in usual.tools.reshape(-1, LARGER.menu).tolist()
    )
    fresh = Menus.drawn(worlds, LARGER, 50, "a test", condition=glass.NEWCOMER)
    assert ((fresh.tools >= len(glass.KNOWN)).sum(-1) == 1).all()


def group(correct, cost_usd) -> np.ndarray:
    n = len(correct)
    return rewards.vectors(
        np.zeros((n, len(glass.TOOLS))), np.array(correct), np.array(cost_usd), np.ones(n)
    )


def test_of_two_right_rollouts_the_cheaper_is_paid_more_and_with_the_sign_error_the_dearer():
    m, who = group([1, 1, 0, 1], [1.0, 3.0, 0.5, 2.0]), user(cost=1.0)
    told = glass.paid(glass.PAPER, m, who, 1, 4)
    assert told[2] == 0.0 and told[0] > told[3] > told[1]
    wrong = glass.paid(SyntheticToolVariant("sign error", normalise="published"), m, who, 1, 4)
    assert wrong[2] == 0.0 and wrong[0] < wrong[3] < wrong[1]


def test_over_the_whole_batch_a_question_that_is_cheap_for_all_pays_all_of_them():
    m, who = group([1, 1, 1, 1], [1.0, 2.0, 9.0, 10.0]), np.repeat(user(cost=1.0), 2, axis=1)
    assert glass.paid(glass.PAPER, m, who, 1, 2).tolist() == [1.0, 0.0, 1.0, 0.0]
    whole = glass.paid(SyntheticToolVariant("whole batch", normalise="batch"), m, who, 1, 2)
    assert whole.tolist() == pytest.approx([1.0, 8 / 9, 1 / 9, 0.0])


def test_advantages_are_those_of_the_trainer_and_nothing_for_what_is_left_out():
    told = np.random.default_rng(0).random(24)
    all_ = glass.compute_advantages(told, np.ones(24, bool), 8)
    assert all_.flatten() == pytest.approx(
        losses.compute_group_advantages(torch.as_tensor(told), 8), abs=2e-3
    )
    left = np.ones(24, bool)
    left[[3, 8, 9, 10, 11, 12, 13, 14, 15]] = False
    some = glass.compute_advantages(told, left, 8)
    assert (some.flatten()[~torch.as_tensor(left)] == 0).all()
    rest = [i for i in range(8) if i != 3]
    assert some[0, rest] == pytest.approx(
        losses.compute_group_advantages(torch.as_tensor(told[rest]), 7)
    )


def test_dice_fall_as_the_chances_say_and_a_malformed_call_costs_nothing():
    worlds, menus = by_hand()
    chosen, m = glass.play(worlds, menus, np.log([[[0.1, 0.2, 0.3, 0.4]]]), 20_000, 0)
    chosen = chosen.ravel()
    assert np.bincount(chosen) / 20_000 == pytest.approx([0.1, 0.2, 0.3, 0.4], abs=0.02)
    assert (m[chosen == 3] == 0).all() and (m[chosen < 3, : len(glass.TOOLS)].sum(1) == 1).all()
    correct = [m[chosen == i, -3].mean() for i in range(3)]
    assert correct == pytest.approx([0.5, 0.8, 1.0], abs=0.03)


@pytest.mark.parametrize("reads", ["descriptions", "names"])
def test_the_start_knows_nothing_and_every_policy_spreads_one_chance(reads):
    worlds = ToolWorlds.drawn(SMALL)
    menus = Menus.drawn(worlds, SMALL, 5, "a test")
    who = np.broadcast_to(user(accuracy=1.0, cost=0.5), (*menus.kind.shape, len(NOBODY)))
    plain, careless = (
        glass.ToolChoicePolicy(
            SyntheticToolVariant("one", reads=reads, careless=c), len(worlds.success), 0.1
        ).log_chances(worlds, menus, who)
        for c in (False, True)
    )
    assert (
        plain[..., :-1].exp().detach().numpy() == pytest.approx(1 / SMALL.menu)
        and plain[..., -1].exp().eq(0).all()
    )
    chances = careless.exp().detach().numpy()
    assert chances[..., -1] == pytest.approx(0.1) and chances.sum(-1) == pytest.approx(1.0)


def test_the_reward_teaches_to_save_what_a_user_cares_for_and_its_sign_error_to_spend_it():
    worlds = ToolWorlds.drawn(LARGER)
    judge, found = glass.ToolChoiceEvaluation(worlds, LARGER), {}
    for variant in glass.VARIANTS[:2]:
        *_, (_, policy) = glass.trained(variant, worlds, LARGER, 25)
        rows = judge.rows(variant.name, policy, 25, (glass.USUAL,)).set_index(["item", "seed"])[
            "cost_usd"
        ]
        found[variant.name] = rows["cost 1"] - rows["cost 0"]
    assert (found["ToolOrchestra"] < 0).all() and (found["sign error"] > 0).all()


def test_nobody_is_above_the_optimum_which_is_found_by_enumeration():
    worlds = ToolWorlds.drawn(SMALL)
    judge = glass.ToolChoiceEvaluation(worlds, SMALL)
    rows = pd.concat(
        [
            judge.constants(),
            judge.rows("one", glass.ToolChoicePolicy(glass.PAPER, SMALL.seeds, 0.1), 0),
        ]
    )
    assert rows["regret"].min() >= -1e-9
    assert rows.query("method == 'optimum'")["regret"].abs().max() < 1e-12
    assert rows.query("method == 'optimum'")["best"].min() == 1.0


def test_the_same_world_is_met_by_all_arms_and_gives_the_same_record_twice(tmp_path):
    one, two = (
        glass.run(TOOLS, tmp_path / name).drop(columns=["chosen", "offered", "outcomes"])
        for name in "ab"
    )
    assert one.equals(two)
    assert set(one["method"]) >= {variant.name for variant in (*glass.VARIANTS, *glass.CARELESS)}
    assert set(one["split"]) == {"test", "atlas"} and set(one["seed"]) == set(range(SMALL.seeds))


def keys(settings: ToolGlassSettings = SMALL) -> dict[str, str]:
    return {job.label: job.key for job in glass.make_jobs(settings)}


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"spreads": [3.0]}, {"test"}),
        ({"prices": 9.0}, {"atlas"}),
        ({"test_users": 5}, {"atlas"}),
        ({"careless_updates": 7}, {"atlas"}),
        ({"seeds": 5}, set()),
        ({"careless": 0.3}, set()),
        ({"least_deviation": 0.3}, set()),
    ],
    ids=str,
)
def test_a_setting_changes_the_keys_of_the_jobs_that_read_it_and_of_no_others(change, kept):
    before, after = keys(), keys(SMALL.model_copy(update=change))
    assert {label for label in before if before[label] == after[label]} == kept


@pytest.mark.parametrize("module", [seeds, losses, tool_menu, rewards, glass])
def test_a_raised_version_makes_both_jobs_new(module, monkeypatch):
    before = keys()
    monkeypatch.setattr(
        tool_environment, "VERSION", tool_environment.VERSION + 1
    )  # which nothing here uses
    assert keys() == before
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    assert not keys().items() & before.items()
