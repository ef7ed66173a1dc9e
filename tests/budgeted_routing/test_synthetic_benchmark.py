"""CoRL's glass box: what is counted out is right, nothing beats the optimum, and training is the lab's and learns."""

from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from lib import config, stats
from lib.budgeted_routing import synthetic_benchmark
from lib.budgeted_routing.synthetic_benchmark import BUDGETS, CORL, RoutingWorlds, Strategy
from lib.config import ParamsError
from lib.experiment import results_table, seeds
from lib.rl import losses
from tests.budgeted_routing.small import SMOKE, changed

CENTRAL = SMOKE.glass.central


def glass(**changes):
    """The settings at laptop with few controllers, and some changes."""
    told = config.load("laptop").routing.glass.model_dump() | {"seeds": 3, "queries": 40} | changes
    return config.validate_settings(told, config.RoutingGlassSettings, "a test")


def queries(world: RoutingWorlds, own, name="test", n=40):
    """What is seen of n queries for each controller, and what follows for their kinds."""
    drawn = synthetic_benchmark.draws(own, name, n)[..., : own.kinds + 1].repeat(
        len(world.correct) // own.seeds, 1, 1
    )
    kind, seen = synthetic_benchmark.queries(world, own.kinds, drawn)
    return kind, seen, world.belief(seen)


def anything(world: RoutingWorlds, n: int, seed: int) -> Strategy:
    """Some strategy that draws all its choices, each query's anew."""
    groups, options = world.price.shape
    shape, rng = (groups, len(world.limit), n), seeds.rng("test", "glass", "strategy", seed=seed)
    first, second = (
        torch.tensor(rng.dirichlet(np.full(options, 0.3), size), dtype=torch.float32)
        for size in (shape, (*shape, options, 2))
    )
    second[:, :, :, 0] = torch.eye(options)[0]
    return Strategy(first, second)


def tiny(reply_signal_accuracy=0.8) -> RoutingWorlds:
    """One kind of two seldom helps: itself .3, a cheap expert .6 and a dear one .9, whatever the kind."""
    correct = torch.tensor([[[0.3, 0.6, 0.9], [0.3, 0.6, 0.9]]])
    limit = torch.tensor([1.0, 5.0, 100.0])
    price = torch.tensor([[0.0, 1.0, 4.0]])
    return RoutingWorlds(correct, price, limit, torch.ones(1, 1, 1), reply_signal_accuracy)


BELIEF = torch.tensor([[[0.5, 0.5]]])  # in its two kinds


def test_a_strategy_is_worth_what_it_is_by_hand():
    """The cheap one; the dear one too where the reply looks wrong: .6 * .8 are handed on right; the reply looks wrong
    in .6 * .2 + .4 * .8 = .44 of the cases, of which the dear one gets .9 right."""
    second = torch.zeros(1, 3, 1, 3, 2, 3)
    second[..., 0] = 1.0
    second[:, :, :, 1, 0] = torch.eye(3)[2]
    found = synthetic_benchmark.value(
        tiny(), BELIEF, Strategy(torch.eye(3)[1].expand(1, 3, 1, 3), second)
    )
    assert found["correct"].flatten().tolist() == pytest.approx([0.48 + 0.44 * 0.9] * 3)
    assert found["reward"].flatten().tolist() == pytest.approx(
        [0.48, 0.48 + 0.44 * 0.9, 0.48 + 0.44 * 0.9]
    )
    assert found["cost_usd"].flatten().tolist() == pytest.approx([1 + 0.44 * 4] * 3)
    assert found["asked"].flatten().tolist() == pytest.approx([1.44] * 3)


@pytest.mark.parametrize("reply_signal_accuracy", [0.5, 0.65, 1.0])
def test_the_optimum_is_the_best_of_all_strategies_there_are(reply_signal_accuracy):
    """All 19 of them, counted here: answer, or one of two experts and then, for either look, one of three ways on."""
    world, best = tiny(reply_signal_accuracy), torch.zeros(3)
    for first, wrong, fine in product(range(3), repeat=3):
        second = torch.zeros(1, 3, 1, 3, 2, 3)
        second[:, :, :, 0, :, 0] = 1.0
        second[:, :, :, 1:, 0, wrong], second[:, :, :, 1:, 1, fine] = 1.0, 1.0
        strategy = Strategy(torch.eye(3)[first].expand(1, 3, 1, 3), second)
        best = torch.maximum(
            best, synthetic_benchmark.value(world, BELIEF, strategy)["reward"].flatten()
        )
    found = synthetic_benchmark.value(world, BELIEF, synthetic_benchmark.optimum(world, BELIEF))[
        "reward"
    ]
    torch.testing.assert_close(found.flatten(), best)


@hypothesis_settings(max_examples=25, deadline=None)
@given(
    st.floats(0, 1), st.floats(0, 2), st.floats(0.05, 2), st.floats(0.5, 1), st.integers(0, 10**6)
)
def test_nothing_beats_the_optimum_on_any_query(
    complementarity, spread, noise, reply_signal_accuracy, seed
):
    """Neither strategies by lot, nor constants, nor who never looks; and who is told the kind is never below it."""
    own = glass(seeds=2, reply_signal_accuracy=reply_signal_accuracy)
    world = synthetic_benchmark.worlds(
        own, [{"complementarity": complementarity, "spread": spread, "noise": noise}]
    )
    _, seen, belief = queries(world, own)
    rivals = synthetic_benchmark.rivals(world, belief)
    best = synthetic_benchmark.value(world, belief, rivals["optimum"])["reward"]
    controller = synthetic_benchmark.Controllers(own, 1)
    with torch.no_grad():
        controller.actor.normal_(generator=seeds.torch_generator("test", "glass", seed=seed))
    own = controller.strategy(seen)
    for strategy in (*rivals.values(), anything(world, belief.shape[1], seed), own, own.likeliest):
        assert (synthetic_benchmark.value(world, belief, strategy)["reward"] <= best + 1e-5).all()
    assert (synthetic_benchmark.clairvoyant(world, belief)["reward"] >= best - 1e-5).all()


def test_the_best_without_a_look_is_above_every_constant_by_the_known_chances():
    own = glass()
    world = synthetic_benchmark.worlds(own, [CENTRAL])
    blind = torch.full((own.seeds, 1, own.kinds), 1 / own.kinds)
    found = {
        n: synthetic_benchmark.value(world, blind, s)["reward"]
        for n, s in synthetic_benchmark.rivals(world, blind).items()
    }
    constants = torch.stack(
        [found[name] for name in ("itself", "specialist 1", "specialist 2", "specialist 3")]
    )
    constants = torch.maximum(constants.amax(0), found["generalist"])
    torch.testing.assert_close(found["best constant"], constants)
    assert (found["best without a look"] >= constants - 1e-6).all()
    assert (
        found["best without a look"] > constants + 0.01
    ).any()  # a second call is worth something


def test_beliefs_follow_from_the_density_of_what_is_seen():
    own = glass()
    world = synthetic_benchmark.worlds(own, [CENTRAL | {"noise": 0.7}])
    kind, seen, belief = queries(world, own)
    density = np.stack(
        [
            scipy_stats.norm.pdf(seen.numpy(), np.eye(own.kinds)[k], 0.7).prod(-1)
            for k in range(own.kinds)
        ],
        -1,
    )
    np.testing.assert_allclose(belief.numpy(), density / density.sum(-1, keepdims=True), atol=1e-5)
    apart = seen - torch.nn.functional.one_hot(kind, own.kinds)
    assert apart.std().item() == pytest.approx(0.7, abs=0.06) and abs(apart.mean().item()) < 0.1


def test_what_cannot_be_a_world_is_refused():
    world = tiny()
    for change in (
        {"reply_signal_accuracy": 0.4},
        {"correct": world.correct + 1},
        {"price": -world.price},
    ):
        with pytest.raises(ValueError, match="chances must lie"):
            RoutingWorlds(**(vars(world) | change))
    with pytest.raises(ValueError, match="noise must be above 0"):
        RoutingWorlds(**(vars(world) | {"noise": torch.zeros(1, 1, 1)}))


def played(own, variant=CORL, rows=6_000):
    """A stack of controllers with weights of some kind, and many of their episodes."""
    world = synthetic_benchmark.worlds(own, [CENTRAL])
    controllers = synthetic_benchmark.Controllers(own, 1)
    with torch.no_grad():
        controllers.actor.normal_(generator=seeds.torch_generator("test", "glass", "actor"))
    drawn = synthetic_benchmark.draws(own, "rows", rows)
    return world, controllers, drawn, synthetic_benchmark.play(world, controllers, variant, drawn)


def test_what_is_played_agrees_with_what_is_counted_out():
    """Mean rewards of drawn episodes, with the beliefs of the queries that they met, within four standard errors."""
    own = glass(seeds=2)
    world, controllers, drawn, episodes = played(own)
    seen = synthetic_benchmark.queries(world, own.kinds, drawn[..., : own.kinds + 1])[1]
    expected = synthetic_benchmark.value(world, world.belief(seen), controllers.strategy(seen))
    for number in range(len(BUDGETS)):
        rows = slice(number, None, len(BUDGETS))
        found, wanted = episodes.reward[:, rows], expected["reward"][:, number, rows]
        error = 4 * ((found - wanted).var(1) / found.shape[1]).sqrt()
        assert ((found.mean(1) - wanted.mean(1)).abs() < error).all() and found.mean() > 0.02
        calls = episodes.did[:, rows].sign().sum(-1).float()
        assert ((calls - expected["asked"][:, number, rows]).mean(1).abs() < 0.06).all()


def test_the_reply_is_no_token_of_the_controllers_own():
    _, _, _, episodes = played(glass(seeds=2), rows=300)
    called = episodes.did[..., 0] > 0
    assert episodes.mask[..., 0].all() and not episodes.mask[..., 1].any()
    assert torch.equal(episodes.mask[..., 2], called) and 0 < called.float().mean() < 1
    for told in (episodes.old, episodes.values):
        assert not told[~episodes.mask].any()
    assert not episodes.did[..., 1][~called].any()  # who has answered calls nobody


def test_right_is_paid_within_the_budget_only_unless_the_reward_knows_none():
    own = glass(seeds=2)
    world, _, _, bound = played(own, rows=600)
    loose = played(
        own, synthetic_benchmark.SyntheticRoutingVariant("loose", bound=False), rows=600
    )[3]
    cost_usd = torch.gather(world.price, 1, bound.did.flatten(1)).view_as(bound.did).sum(-1)
    beyond = cost_usd > world.limit[torch.arange(600) % 3]
    assert beyond.any() and not bound.reward[beyond].any()
    assert torch.equal(bound.reward[~beyond], loose.reward[~beyond]) and loose.reward[beyond].any()


def test_a_controller_that_is_not_told_the_budget_does_the_same_under_all():
    own = glass(seeds=2)
    world, controllers, _, _ = played(own, rows=30)
    with torch.no_grad():
        controllers.trunk.mul_(2)
    seen = queries(world, own)[1]
    blind, told = (controllers.strategy(seen, told) for told in (False, True))
    assert all(
        torch.equal(part[:, :1].expand_as(part), part) for part in (blind.first, blind.second)
    )
    assert not torch.allclose(told.first[:, 0], told.first[:, 2])


@given(st.integers(1, 3), st.integers(0, 10**6))
def test_a_stack_is_whitened_as_the_lab_whitens_each_part_of_it(parts, seed):
    rng = seeds.rng("test", "whitened", seed=seed)
    values = torch.tensor(rng.standard_normal((2, 6 * parts, 3)))
    mask = torch.tensor(rng.random((2, 6 * parts, 3)) < 0.7)
    mask[:, :, 0] = True
    found = synthetic_benchmark.whitened(values, mask, parts)
    assert not found[~mask].any()
    for group, part in product(range(2), range(parts)):
        own = mask[group, part::parts]
        torch.testing.assert_close(
            found[group, part::parts][own], losses.whiten(values[group, part::parts][own])
        )


def test_gradients_are_bounded_for_every_controller_by_itself():
    own = glass()
    controllers = synthetic_benchmark.Controllers(own, 1)
    for each in controllers.parameters():
        each.grad = torch.ones_like(each)
        each.grad[0] *= 1e-4
    before = [each.grad.clone() for each in controllers.parameters()]
    synthetic_benchmark.bounded(controllers, 1.0)
    after = [each.grad for each in controllers.parameters()]
    lengths = sum(each.flatten(1).square().sum(1) for each in after).sqrt()
    torch.testing.assert_close(lengths[1:], torch.ones(own.seeds - 1))
    assert (
        all(torch.equal(a[0], b[0]) for a, b in zip(after, before, strict=True))
        and lengths[0] < 0.1
    )


def test_at_the_start_all_choices_are_equally_likely_and_nothing_is_expected():
    own = glass()
    read = torch.randn(
        own.seeds, 5, own.kinds + 3 + 5, generator=seeds.torch_generator("test", "glass", "read")
    )
    logs, values = synthetic_benchmark.Controllers(own, 1)(read)
    torch.testing.assert_close(logs.exp(), torch.full_like(logs, 0.2))
    assert not values.any()


def test_a_controller_learns_the_same_alone_and_in_any_stack():
    """Draws and weights are a seed's own: neither more seeds nor other cells change them, but for rounding."""
    cells = [CENTRAL, CENTRAL | {"noise": 1.0}]
    made = []
    for count, together in ((2, cells[:1]), (3, cells)):
        own = glass(seeds=count, updates=2)
        made.append(
            synthetic_benchmark.train(synthetic_benchmark.worlds(own, together), own, SMOKE.learn)
        )
    for alone, stacked in zip(made[0].parameters(), made[1].parameters(), strict=True):
        torch.testing.assert_close(alone, stacked[:2], rtol=1e-3, atol=1e-4)
    assert any(not torch.allclose(each[:3], each[3:]) for each in made[1].parameters())


@pytest.fixture(scope="module")
def studied() -> pd.DataFrame:
    """Eight controllers, trained as at laptop at the central setting."""
    own = changed(
        routing={"glass": config.load("laptop").routing.glass.model_dump() | {"seeds": 8}}
    ).routing
    return results_table.make_results(
        synthetic_benchmark.SYSTEM, synthetic_benchmark.study(own, [CENTRAL], looks=[0, 10])
    )


def test_training_comes_near_the_optimum_and_passes_whoever_does_not_look(studied):
    cold = results_table.select(studied, temperature=0.0, step=results_table.AFTER)
    means = cold.groupby(["method", "seed"])["reward"].mean()
    assert (
        means["optimum"] - means["CoRL"]
    ).mean() < 0.03  # the lesson wants .02 of 32 controllers
    gap = stats.paired_difference(
        results_table.select(cold, condition="medium"),
        "reward",
        {"method": "CoRL"},
        {"method": "best without a look"},
    )
    assert gap["ci_low"].item() > 0.1
    steps = (
        results_table.select(studied, method="CoRL", temperature=0.0)
        .groupby("step")["reward"]
        .mean()
    )
    assert steps[0] < steps[10] < steps[results_table.AFTER]


def test_the_rows_hold_every_arm_once_under_every_budget_in_every_world(studied):
    after = studied[studied["step"] == results_table.AFTER]
    counts = after.groupby(["method", "temperature"]).size()
    assert set(counts) == {8 * 3} and len(
        after.drop_duplicates(["method", "temperature", "seed", "condition"])
    ) == len(after)
    assert counts.index.to_list().count(("CoRL", 0.0)) == 1 and ("start", 1.0) in counts.index
    assert dict(after[["method", "role"]].drop_duplicates().to_numpy()) == {
        "start": "start",
        "itself": "constant",
        "specialist 1": "expert",
        "specialist 2": "expert",
        "specialist 3": "expert",
        "generalist": "expert",
        "best constant": "constant",
        "best without a look": "constant",
        "optimum": "oracle",
        "told the kind": "oracle",
        "CoRL": "paper",
    }
    assert (
        after["reward"].between(0, 1).all() and (after["reward"] <= after["correct"] + 1e-6).all()
    )


def test_a_run_holds_the_map_and_all_parts_and_is_the_same_again():
    own, knobs = changed(routing={"glass": {"updates": 1}}).routing, list(synthetic_benchmark.KNOBS)
    runs = [
        results_table.make_results(synthetic_benchmark.SYSTEM, synthetic_benchmark.run(own))
        for _ in "ab"
    ]
    pd.testing.assert_frame_equal(*runs)
    cells = set(runs[0][knobs].drop_duplicates().itertuples(index=False, name=None))
    assert cells == {
        *product(*(SMOKE.glass.map[knob] for knob in knobs)),
        tuple(CENTRAL[knob] for knob in knobs),
    }
    central = results_table.select(runs[0], **CENTRAL)
    assert {variant.name for variant in synthetic_benchmark.PARTS} <= set(central["method"])
    others = runs[0].drop(central.index)
    assert not {variant.name for variant in synthetic_benchmark.PARTS[1:]} & set(
        others["method"]
    ) and set(others["step"]) == {results_table.AFTER}


@pytest.mark.parametrize(
    ("central", "named"),
    [
        (CENTRAL | {"noise": 0.0}, "noise must be above 0"),
        (CENTRAL | {"complementarity": 1.2}, "complementarity must be at most 1"),
        ({"noise": 0.3, "spread": 1.0}, "complementarity"),
    ],
    ids=lambda told: told if isinstance(told, str) else "",
)
def test_what_cannot_be_is_refused_by_name(central, named):
    with pytest.raises(ParamsError, match=named):
        glass(central=central)
