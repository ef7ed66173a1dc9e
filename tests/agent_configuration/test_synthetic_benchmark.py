"""The glass box of configurations: exact bounds, stacked networks that equal each alone, elites, and a whole study."""

import copy
from dataclasses import replace
from itertools import product

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from lib import config
from lib.agent_configuration import action_space, policies, policy_updates, workflows
from lib.agent_configuration import synthetic_benchmark as glass
from lib.agent_configuration.action_space import WORKFLOWS
from lib.agent_configuration.batched_policies import (
    BatchedPolicyTrainer,
    StackedMultiDiscretePolicy,
    stack_prompt_policies,
)
from lib.agent_configuration.policies import PromptPolicy, PromptSteps
from lib.agent_configuration.policy_updates import EpisodeBatch, PolicyTrainer
from lib.agent_configuration.questions import KINDS
from lib.agent_configuration.synthetic_environment import (
    AGENT_IS_PRESENT,
    AGENT_MAY_HAVE_ATOM,
    ATOMS_PER_AGENT,
    BASE_LOGIT,
    CALLS,
    StructureTable,
    compute_bounds,
    make_world,
    stack_worlds,
)
from lib.agent_configuration.synthetic_evaluation import ConfigurationEvaluation
from lib.agent_configuration.synthetic_training import (
    encode_configurations,
    read_flat_atoms,
    repair_structures,
    select_elites,
    train,
)

SETTINGS = config.settings(profile="smoke").configuration
K = len(KINDS)
WORLDS = stack_worlds(
    [make_world(SETTINGS, seed, interaction, 1.0) for seed, interaction in enumerate((0.0, 1.5))]
)


def paid(run: int, structures: np.ndarray, has_atom: np.ndarray) -> np.ndarray:
    """What is expected of configurations in one world, (K, n)."""
    shape = WORLDS.describe(structures)
    return np.stack(
        [
            WORLDS.compute_reward(
                WORLDS.compute_success_probability(run, k, shape, has_atom), run, k, shape
            )
            for k in range(K)
        ]
    )


def random_choices(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Valid structures (n, 6) and told (n, 3, ATOMS)."""
    rng = np.random.default_rng(seed)
    every = action_space.list_structures()
    return every[rng.integers(len(every), size=n)], rng.random((n, 3, ATOMS_PER_AGENT)) < 0.5


# The world -----------------------------------------------------------------------------------------


def test_calls_are_those_of_the_workflows_and_made_by_agents_that_are_there():
    assert CALLS.sum(1).tolist() == [workflows.CALLS[name][0] for name in WORKFLOWS]
    assert (
        (CALLS > 0) == AGENT_IS_PRESENT
    ).all()  # no agent is silent, and none acts that is not there


def test_a_logit_by_hand():
    structure = np.array([[1, 0b0101, 0, 2, 0, 1]])  # reason: first and third agent, tools 0 and 2
    has_atom = np.zeros((1, 3, ATOMS_PER_AGENT), bool)
    has_atom[0, 0, 1] = has_atom[0, 1, 0] = (
        True  # the second agent is not there, and what it is told counts for nothing
    )
    z = (
        BASE_LOGIT
        + WORLDS.workflow_effects[1, 3, 1]
        + WORLDS.tool_effects[1, 3, 0]
        + WORLDS.tool_effects[1, 3, 2]
        + WORLDS.budget_effects[1, 3, 0, 2]
        + WORLDS.budget_effects[1, 3, 2, 1]
        + WORLDS.atom_effects[1, 3, 0, 1]
    )
    assert WORLDS.compute_success_probability(
        1, 3, WORLDS.describe(structure), has_atom
    ) == pytest.approx([1 / (1 + np.exp(-z))])


def test_without_interaction_all_kinds_are_alike_and_with_it_what_they_change_sums_to_nothing():
    flat, bent = WORLDS.workflow_effects[0], WORLDS.workflow_effects[1]
    assert np.ptp(flat, axis=0).max() == pytest.approx(0.0) and np.ptp(bent, axis=0).min() > 0
    main = make_world(SETTINGS, 1, 0.0, 1.0).workflow_effects[0]
    assert bent.mean(0) == pytest.approx(main.mean(0))


def test_the_reward_of_a_chance_is_its_expectation():
    structures, _ = random_choices(50)
    shape, p = WORLDS.describe(structures), np.linspace(0, 1, 50)
    wrong, correct = (WORLDS.compute_reward(np.full(50, x), 1, 2, shape) for x in (0.0, 1.0))
    assert WORLDS.compute_reward(p, 1, 2, shape) == pytest.approx(p * correct + (1 - p) * wrong)


def test_pinned_parts_and_what_absent_agents_are_told_change_nothing():
    """What a mask saves a policy from choosing, nobody has."""
    valid, odd = (
        StructureTable.from_structures(np.array([[5, 3, *pinned]]), SETTINGS.tiers)
        for pinned in ((0, 1, 0, 2), (9, 1, 2, 2))
    )
    assert (valid.num_tokens, valid.num_allocated, valid.num_calls) == (
        odd.num_tokens,
        odd.num_allocated,
        odd.num_calls,
    )
    zero, has_atom, other_atoms = np.zeros(1, int), *np.zeros((2, 1, 3, ATOMS_PER_AGENT), bool)
    other_atoms[0, 1, 2] = True
    direct, verify = np.zeros((1, 6), int), np.array([[2, 0, 0, 0, 0, 0]])
    assert encode_configurations(zero, zero, direct, has_atom) == encode_configurations(
        zero, zero, direct, other_atoms
    )
    assert encode_configurations(zero, zero, verify, has_atom) != encode_configurations(
        zero, zero, verify, other_atoms
    )


# Bounds --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def limits():
    return compute_bounds(WORLDS)


@pytest.mark.parametrize("run", [0, 1])
def test_nothing_that_anybody_tries_is_above_the_optimum_nor_above_the_constant_on_average(
    run, limits
):
    tried = paid(run, *random_choices(20_000, run))
    assert (tried.max(1) <= limits.optimum[run] + 1e-9).all()
    assert tried.mean(0).max() <= limits.constant[run].mean() + 1e-9


def test_no_structure_is_better_with_the_constants_atoms(limits):
    every = action_space.list_structures()
    tried = paid(
        1, every, np.broadcast_to(limits.constant_has_atom[1], (len(every), 3, ATOMS_PER_AGENT))
    ).mean(0)
    assert tried.max() == pytest.approx(limits.constant[1].mean())
    assert every[tried.argmax()].tolist() == limits.constant_structure[1].tolist()


def test_where_kinds_are_alike_there_is_nothing_to_gain_by_choosing(limits):
    gap = (limits.optimum - limits.constant).mean(1)
    assert (
        gap[0] == pytest.approx(0.0, abs=1e-9)
        and gap[1] > 0.05
        and len(set(limits.optimal_workflow[1])) > 1
    )


# Networks side by side -----------------------------------------------------------------------------


def rows_of(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """States of two trainings in order, (2 n, 1 + K), and the same without the column in front."""
    states = torch.randn(2 * n, K, generator=torch.Generator().manual_seed(1))
    return torch.cat([torch.arange(2).repeat_interleave(n)[:, None].float(), states], 1), states


@pytest.mark.parametrize(
    "make, arguments",
    [
        (policies.make_structure_policy, (K, True, 8)),
        (policies.make_structure_policy, (K, False, 8)),
        (policies.make_bandit_policy, (K, AGENT_MAY_HAVE_ATOM, 8)),
        (policies.make_autoregressive_policy, (K, AGENT_MAY_HAVE_ATOM, 8)),
    ],
    ids=["structure", "unmasked", "bandit", "autoregressive"],
)
def test_policies_side_by_side_are_what_each_is_alone(make, arguments):
    torch.manual_seed(0)
    singles = [make(*arguments) for _ in range(2)]
    for single in singles:
        for head in single.heads:
            nn.init.normal_(head.weight)
    many, (states, bare) = StackedMultiDiscretePolicy.stack(singles), rows_of(7)
    sampled = many.sample(states, None)
    logp, entropy = many.evaluate_actions(states, sampled.actions)
    for i, single in enumerate(singles):
        rows = slice(7 * i, 7 * i + 7)
        assert (single.sample(bare[rows], None).actions == sampled.actions[rows]).all()
        logp_alone, entropy_alone = single.evaluate_actions(bare[rows], sampled.actions[rows])
        assert torch.allclose(logp_alone, logp[rows], atol=1e-5) and torch.allclose(
            entropy_alone, entropy[rows], atol=1e-5
        )


def test_prompt_policies_side_by_side_are_what_each_is_alone_with_unequal_rows():
    torch.manual_seed(0)
    singles = [PromptPolicy(K, AGENT_MAY_HAVE_ATOM, 8) for _ in range(2)]
    for single in singles:
        nn.init.normal_(single.head.weight)
    many = stack_prompt_policies(copy.deepcopy(singles))
    (states, bare), structures = rows_of(9), torch.as_tensor(random_choices(18)[0])
    steps = many.sample(states, structures, None).steps
    assert (
        len(set(torch.bincount(steps.episode // 9).tolist())) == 2
    )  # one has more decisions than the other
    for i, single in enumerate(singles):
        rows = slice(9 * i, 9 * i + 9)
        steps_alone = single.sample(bare[rows], structures[rows], None).steps
        is_of_training = steps.episode // 9 == i
        assert (steps_alone.actions == steps.actions[is_of_training]).all()
        assert torch.allclose(
            single.evaluate_actions(steps_alone)[0],
            many.evaluate_actions(steps.select(is_of_training))[0],
            atol=1e-5,
        )


def test_gradients_are_clipped_for_each_training_as_if_it_were_alone():
    torch.manual_seed(0)
    singles = [policies.make_structure_policy(K, True, 8) for _ in range(2)]
    many = BatchedPolicyTrainer.create_stacked(
        StackedMultiDiscretePolicy.stack(singles), K, 0.1, 2, 8, has_value=False
    )
    (states, bare), actions = rows_of(6), torch.as_tensor(random_choices(12)[0])
    scale = torch.tensor([1.0] * 6 + [50.0] * 6)  # the second one's gradient is far beyond the clip
    many.step(-(scale * many.policy.evaluate_actions(states, actions)[0]).mean(), 0.5)
    for i, single in enumerate(singles):
        rows, trainer = (
            slice(6 * i, 6 * i + 6),
            PolicyTrainer(single, None, torch.optim.Adam(single.parameters(), lr=0.1)),
        )
        trainer.step(
            -(scale[rows] * single.evaluate_actions(bare[rows], actions[rows])[0]).mean(), 0.5
        )
        assert torch.allclose(many.policy.trunk.weights[0][i].T, single.trunk[0].weight, atol=1e-4)
        assert torch.allclose(
            many.policy.heads[2].weights[0][i].T, single.heads[2].weight, atol=1e-4
        )


def test_advantages_are_whitened_within_each_training():
    values, runs = torch.tensor([1.0, 3.0, 10.0, 30.0]), torch.tensor([0, 0, 1, 1])
    assert policy_updates._normalize(values, runs).tolist() == pytest.approx([-1, 1, -1, 1])
    assert policy_updates._normalize(values, None).tolist() != pytest.approx([-1, 1, -1, 1])


# Flat actions, elites ------------------------------------------------------------------------------


def test_flat_actions_mean_what_they_mean_in_the_lesson():
    """0 is none; atoms of other agents are ignored, and who is told the same twice is told it once."""
    has_atom = read_flat_atoms(np.array([[1, 1, 0, 4, 1, 9, 7, 8, 2]]))[0]
    assert has_atom.tolist() == [[True, False, False], [True, False, False], [True, True, False]]
    rows = np.array([[0, 3, 5, 1, 2, 0], [2, 3, 5, 1, 2, 0], [5, 1, 15, 0, 1, 1]])
    assert repair_structures(rows).tolist() == [
        list(action_space.repair_structure(row)) for row in rows.tolist()
    ]


def a_buffer() -> tuple[EpisodeBatch, np.ndarray]:
    """Two kinds in one training: of the first all is paid more than of the second."""
    kinds, paid = (
        torch.tensor([0, 0, 0, 0, 1, 1, 1, 1]),
        torch.tensor([5.0, 5.5, 6.0, 6.5, 1.0, 2.0, 3.0, 4.0]),
    )
    none = torch.zeros(8)
    whole = EpisodeBatch(
        torch.zeros(8, 2),
        torch.zeros(8, 6, dtype=torch.int64),
        none,
        None,
        paid,
        kinds,
        none.long(),
    )
    return whole, np.array([1, 1, 1, 1, 0, 1, 1, 1], bool)


def test_one_threshold_leaves_the_kind_that_is_paid_less_without_an_elite():
    whole, correct = a_buffer()
    one_threshold, threshold_by_kind = (
        select_elites(whole, correct, 0.5, by_kind) for by_kind in (False, True)
    )
    assert (
        one_threshold.is_elite.tolist() == [True] * 4 + [False] * 4
        and len(set(one_threshold.tau[0])) == 1
    )
    assert threshold_by_kind.is_elite.tolist() == [
        False,
        False,
        True,
        True,
        False,
        False,
        True,
        True,
    ]
    assert threshold_by_kind.tau[0, :2] == pytest.approx([5.75, 2.5])


# The study -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    return glass.run(SETTINGS, tmp_path_factory.mktemp("glass"))


def test_every_arm_and_both_imitations_are_held_against_the_optimum(record):
    test = record.query("split == 'test'")
    end = test[test["step"] == SETTINGS.glass.eval_points[-1]]
    methods = {
        *(variant.name for variant in glass.VARIANTS),
        "SFT, one tau",
        "SFT, tau per kind",
        "best constant",
        "optimum",
    }
    assert set(end["method"]) == methods
    assert (
        test["regret"].min() >= -1e-9
        and test.query("method == 'optimum'")["regret"].abs().max() == 0.0
    )
    sft = test[test["method"].str.startswith("SFT")]
    assert sft[["margin", "outside"]].notna().all(axis=None) and sft["outside"].between(0, 1).all()


def test_the_map_says_when_a_policy_stays_above_the_constant(record):
    rows, box = record.query("split == 'atlas'"), SETTINGS.glass
    assert set(zip(rows["interaction"], rows["noise"], strict=True)) == {
        *product(box.interactions, box.noises)
    }
    looks = range(box.map_every, box.map_episodes + 1, box.map_every)
    assert rows["episodes"].isin(looks).all() and (rows["gap"] >= -1e-9).all()
    assert (rows.loc[rows["passed"] == 0, "episodes"] == box.map_episodes).all()


def test_the_same_settings_give_the_same_record(record, tmp_path):
    lists = ["chosen", "offered", "outcomes"]
    assert glass.run(SETTINGS, tmp_path).drop(columns=lists).equals(record.drop(columns=lists))


def test_training_finds_what_is_paid():
    """Two worlds, a few hundred episodes: what is drawn is paid far more than at the start."""
    box = SETTINGS.glass.model_copy(update={"seeds": 2, "hidden": 16, "eval_points": [32, 384]})
    settings = SETTINGS.model_copy(update={"glass": box})
    worlds = stack_worlds([make_world(settings, seed, 1.0, 1.0) for seed in range(2)])
    judge, rows_by_step = ConfigurationEvaluation(worlds), {}
    train(
        glass.UNDISCOUNTED,
        worlds,
        384,
        lambda n, policy: rows_by_step.update({n: judge.make_rows("x", policy, n)}),
    )
    assert (
        rows_by_step[384].groupby("seed")["drawn"].mean()
        > rows_by_step[0].groupby("seed")["drawn"].mean() + 0.5
    ).all()


def test_steps_of_several_batches_stay_with_their_episodes():
    episodes = replace(
        a_buffer()[0],
        steps=PromptSteps(torch.tensor([0, 3]), *(torch.zeros(2, 1) for _ in range(5))),
    )
    both = policy_updates.concatenate_batches([episodes, episodes])
    assert both.steps.episode.tolist() == [0, 3, 8, 11] and len(both) == 16 and len(both.runs) == 16


def test_the_regret_is_what_the_optimum_of_the_same_world_and_kind_has_more():
    rows = pd.DataFrame(
        [
            ("atlas", "ARC", 0, "world 0", np.nan),
            ("test", "ARC", 0, "world 0, hops", 1.0),
            ("test", "optimum", 0, "world 0, hops", 3.0),
            ("test", "ARC", 1, "world 1, hops", 2.0),
            ("test", "optimum", 1, "world 1, hops", 2.5),
        ],
        columns=["split", "method", "seed", "item", "reward"],
    )
    regret = glass.add_regret(rows)["regret"].tolist()
    assert np.isnan(regret[0]) and regret[1:] == [2.0, 0.0, 0.5, 0.0]


# Keys ----------------------------------------------------------------------------------------------

MAP, BOUNDS, IMITATED = {"atlas"}, {"enumerated"}, {"arc-without-sft"}
TRAINED = {*glass.VARIANTS_BY_LABEL}
GLASS_FIELDS = {  # jobs that depend on a setting of the small world
    "seeds": MAP | BOUNDS | TRAINED,
    **dict.fromkeys(("interaction", "noise", "eval_points"), BOUNDS | TRAINED),
    **dict.fromkeys(
        ("batch", "hidden", "observation_noise", "structure_rate", "prompt_rate", "states"),
        MAP | TRAINED,
    ),
    "num_samples": TRAINED,
    **dict.fromkeys(("sft_after", "sft_rate", "sft_prompt_rate", "sft_batch"), IMITATED),
    **dict.fromkeys(("interactions", "noises", "map_seeds", "map_episodes", "map_every"), MAP),
}
LEARNING = (
    "lib.rl.losses",
    "lib.agent_configuration.policies",
    "lib.agent_configuration.policy_updates",
    "lib.agent_configuration.batched_policies",
)
JOBS_BY_MODULE = {
    "lib.experiment.seeds": MAP | BOUNDS | TRAINED,
    "lib.agent_configuration.action_space": MAP | BOUNDS | TRAINED,
    "lib.agent_configuration.questions": MAP | BOUNDS | TRAINED,
    "lib.agent_configuration.rewards": MAP | BOUNDS | TRAINED,
    "lib.agent_configuration.synthetic_benchmark": MAP | BOUNDS | TRAINED,
    **dict.fromkeys(LEARNING, MAP | TRAINED),
    "lib.agent_configuration.training": set(),
}


def changed_jobs(before: dict[str, str], settings=SETTINGS) -> set[str]:
    """Labels of the jobs whose keys differ from those before."""
    after = keys(settings)
    return {label for label in before if before[label] != after[label]}


def keys(settings=SETTINGS) -> dict[str, str]:
    return {job.label: job.key for job in glass.make_jobs(settings)}


def test_every_setting_of_the_small_world_is_read_by_some_job():
    assert set(GLASS_FIELDS) == set(type(SETTINGS.glass).model_fields)


@pytest.mark.parametrize("name", GLASS_FIELDS)
def test_a_setting_of_the_small_world_makes_new_jobs_where_it_is_read(name):
    value = getattr(SETTINGS.glass, name)
    other_value = [*value, 2 * value[-1]] if isinstance(value, list) else 2 * value
    box = SETTINGS.glass.model_copy(update={name: other_value})
    assert changed_jobs(keys(), SETTINGS.model_copy(update={"glass": box})) == GLASS_FIELDS[name]


@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        ("tiers", MAP | BOUNDS | TRAINED),
        ("ppo", MAP | TRAINED),
        ("sft", IMITATED),
        ("grpo", set()),
        ("episodes", set()),
        ("jobs", set()),
    ],
)
def test_a_setting_of_the_lesson_makes_new_jobs_where_it_is_read(name, jobs):
    other_value = {
        "tiers": [1, 2, 3],
        "ppo": SETTINGS.grpo,
        "sft": SETTINGS.dpo,
        "grpo": SETTINGS.ppo,
    }.get(name, 7)
    assert changed_jobs(keys(), SETTINGS.model_copy(update={name: other_value})) == jobs


@pytest.mark.parametrize("module", JOBS_BY_MODULE)
def test_another_version_of_the_code_makes_new_jobs_where_it_decides_a_result(module, monkeypatch):
    before = keys()
    monkeypatch.setattr(f"{module}.VERSION", 99)
    assert changed_jobs(before) == JOBS_BY_MODULE[module]
