"""Training without a language model: which workflow solves what is learnt, resumed and refined, and asked for once."""

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from lib.agent_configuration import action_space
from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_system import ConfiguredAnswer
from lib.agent_configuration.policy_updates import Rules, concatenate_batches
from lib.agent_configuration.rewards import Weights
from lib.agent_configuration.training import (
    ConfigurationPolicy,
    ConfigurationTraining,
    Refining,
    TrainingPlan,
    find_pairs,
    prefer_better,
    refine,
    train_side_by_side,
)
from lib.agent_configuration.variants import MDP, POLICY_KINDS
from lib.experiment import artifacts
from lib.tasks import Item
from tests.agent_configuration.small import ATOMS, CHAIN, LONG, NAMES

WANTED = {CHAIN.prompt: "direct", LONG.prompt: "verify"}  # the workflow that solves each question
ITEMS, STATES = [CHAIN, LONG], np.eye(2, 3, dtype=np.float32)
BATCH, UPDATES = 8, 3


class Fake:
    """A system without agents: a question is solved by its own workflow, and a step costs. Counts what it is asked."""

    def __init__(self) -> None:
        self.asked: list = []

    def run(self, jobs):
        self.asked += jobs
        return [self.outcome(job) for job in jobs]

    def outcome(self, job) -> ConfiguredAnswer:
        correct = WANTED[job.item.prompt] == job.configuration.workflow
        return ConfiguredAnswer(
            correct, "7", "text", 1 + job.draw, 1, 1, 1, 0.0, 0.0, 0, (), 0, (), ()
        )

    def compute_rewards(self, jobs, outcomes, weights) -> np.ndarray:
        return np.array([weights.alpha * o.correct - weights.beta_s * o.calls for o in outcomes])


def training(
    seed: int = 0,
    kind: str = "hierarchy",
    system: Fake | None = None,
    recorded: pd.DataFrame | None = None,
    items: list[Item] = ITEMS,
    updates: int = UPDATES,
    batch: int = BATCH,
    rate: float = 3e-3,
    grouped: bool = False,
) -> ConfigurationTraining:
    policy = ConfigurationPolicy(kind, STATES.shape[1], ATOMS, seed=seed)
    rules = Rules(grouped=grouped, stepwise=kind == MDP)
    plan = TrainingPlan(updates * batch, batch, (rate, rate), rules, Weights(), 4 if grouped else 1)
    return ConfigurationTraining(policy, system or Fake(), items, STATES, plan, seed, recorded)


def done(**options) -> ConfigurationTraining:
    trained = training(**options)
    trained.run()
    return trained


def weights(policy: ConfigurationPolicy) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in policy.to_arrays().items()}


@cache
def learnt() -> ConfigurationTraining:
    """Long enough to know what solves what. Change nothing about it."""
    return done(updates=8, batch=40, rate=1e-2)


# Learning ------------------------------------------------------------------------------------------


def chances(policy: ConfigurationPolicy) -> np.ndarray:
    """Of the workflow that solves each question."""
    with torch.no_grad():
        hidden = policy.structure.trunk(torch.from_numpy(STATES))
        over = policy.structure.compute_logits(
            hidden, 0, torch.zeros(2, 0, dtype=torch.int64)
        ).softmax(-1)
    return np.array(
        [over[i, action_space.WORKFLOWS.index(WANTED[item.prompt])] for i, item in enumerate(ITEMS)]
    )


def test_arc_learns_which_workflow_solves_which_question():
    policy = learnt().policy
    assert [
        configuration.workflow
        for configuration in policy.decide(torch.from_numpy(STATES)).configurations
    ] == [
        "direct",
        "verify",
    ]
    assert (
        chances(ConfigurationPolicy("hierarchy", 3, ATOMS)).max() < 0.2
        and chances(policy).min() > 0.5
    )


@pytest.mark.parametrize(
    "kind, grouped",
    [("bandit", False), ("autoregressive", False), ("mdp", False), ("hierarchy", True)],
)
def test_rivals_learn_as_well(kind, grouped):
    trained = done(kind=kind, updates=7, batch=40, rate=1e-2, grouped=grouped)
    assert (
        chances(trained.policy).min() > 0.2 and (trained.structure_trainer.value is None) == grouped
    )


def test_tries_of_a_group_are_of_one_question_and_of_different_dice():
    trained = done(grouped=True, batch=16, updates=2)
    for batch in trained.batches:
        assert batch.groups.tolist() == [i // 4 for i in range(16)]
    rows = trained.rows[0]
    assert (
        all(rows["key"][i : i + 4].nunique() == 1 for i in range(0, 16, 4))
        and rows["key"].nunique() == 2
    )
    assert rows["calls"].nunique() == 4  # one more than the draw here


class Filtered(Fake):
    """The same, where a provider's filter stops one question."""

    def __init__(self, lost_prompt: str) -> None:
        super().__init__()
        self.lost_prompt = lost_prompt

    def outcome(self, job) -> ConfiguredAnswer:
        failures = ("moderation",) if job.item.prompt == self.lost_prompt else ()
        return replace(super().outcome(job), failures=failures)

    def compute_rewards(self, jobs, outcomes, weights) -> np.ndarray:
        is_lost = [outcome.lost_calls > 0 for outcome in outcomes]
        return np.where(is_lost, np.nan, super().compute_rewards(jobs, outcomes, weights))


@pytest.mark.parametrize(
    "kind, grouped", [("hierarchy", False), ("hierarchy", True), ("bandit", False)]
)
def test_nothing_is_learned_from_an_episode_that_the_infrastructure_lost(kind, grouped):
    trained = done(system=Filtered(LONG.prompt), kind=kind, grouped=grouped, batch=32, updates=4)
    batches = zip(trained.batches, trained.correct_by_batch, trained.rows, strict=True)
    for batch, correct, rows in batches:
        is_scored = (rows["prompt"] == CHAIN.prompt).to_numpy()
        assert 0 < is_scored.sum() < len(rows) and len(batch) == len(correct) == is_scored.sum()
        assert torch.equal(batch.rewards, torch.tensor(rows["reward"][is_scored].to_numpy("f4")))
        if batch.steps is not None:
            assert set(batch.steps.episode.tolist()) <= set(range(len(batch)))
    weights_finite = [np.isfinite(array).all() for array in trained.policy.to_arrays().values()]
    assert all(weights_finite)
    refined, about = refine(trained, Refining(), seed=0)
    assert np.isfinite(about["tau"]) and all(
        np.isfinite(a).all() for a in refined.to_arrays().values()
    )
    matched = find_pairs(trained, Refining(good=0.0, bad=10.0))
    assert len(matched) and matched.max() < sum(len(batch) for batch in trained.batches)


def test_an_update_of_lost_episodes_alone_changes_nothing():
    trained = training(system=Filtered(CHAIN.prompt), items=[CHAIN], updates=1)
    before = weights(trained.policy)
    trained.run()
    assert weights(trained.policy) == before and trained.step == 1


def test_a_training_asks_for_every_episode_once_and_keeps_all_of_it():
    system = Fake()
    steps_seen = []
    trained = training(system=system)
    trained.run(lambda training: steps_seen.append(training.step))
    assert steps_seen == list(range(1, UPDATES + 1)) and len(system.asked) == UPDATES * BATCH
    assert len(trained.rows) == len(trained.batches) == len(trained.losses_by_update) == UPDATES
    rows = pd.concat(trained.rows)
    assert rows["step"].tolist() == [i for i in range(UPDATES) for _ in range(BATCH)]
    assert rows["digest"].tolist() == [job.configuration.digest for job in system.asked]
    rewards = np.concatenate([batch.rewards.numpy() for batch in trained.batches])
    assert rewards == pytest.approx(rows["reward"].to_numpy(), rel=1e-6)
    correct = np.concatenate(trained.correct_by_batch)
    assert correct.tolist() == [
        WANTED[job.item.prompt] == job.configuration.workflow for job in system.asked
    ]
    assert {"structure_loss", "prompt_loss", "step"} < set(trained.losses_by_update[0])


# Policies ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", POLICY_KINDS)
def test_a_policy_chooses_valid_configurations_of_the_right_roles(kind):
    policy = ConfigurationPolicy(kind, 3, ATOMS, seed=1)
    configurations = policy.decide(
        torch.from_numpy(STATES).repeat(150, 1), torch.Generator().manual_seed(0)
    ).configurations
    roles = {atom.name: atom.role for atom in ATOMS}
    for configuration in configurations:
        assert action_space.check_structure(configuration.structure) == configuration.structure
        for agent, atoms in enumerate(configuration.atoms):
            assert (
                all(roles[name] == action_space.AGENTS[agent] for name in atoms)
                and len(set(atoms)) == len(atoms) <= 3
            )
            assert not atoms or agent in action_space.list_agents(configuration.workflow)
    assert (
        len({configuration.workflow for configuration in configurations}) == 9
        and len({configuration.atoms for configuration in configurations}) > 20
    )


def test_what_a_flat_action_means():
    """Choice 0 is no atom, and an atom that is chosen twice counts once."""
    flat = ConfigurationPolicy("bandit", 3, ATOMS)
    read = flat._read_flat_action([2, 1, 2, 0, 1, 2, 2, 1, 2, 5, 0, 0, 7, 0, 6])
    atoms = ((NAMES[1], NAMES[0]), (NAMES[4],), (NAMES[6], NAMES[5]))
    assert read == Configuration((2, 1, 2, 0, 1, 2), atoms)
    assert flat._read_flat_action([2, *[0] * 14]) == Configuration((2, 0, 0, 0, 0, 0))


def test_trainings_side_by_side_learn_what_each_learns_alone():
    trained_alone = [done(seed=seed, kind=kind) for seed, kind in ((0, "hierarchy"), (1, "mdp"))]
    together = [training(seed=seed, kind=kind) for seed, kind in ((0, "hierarchy"), (1, "mdp"))]
    train_side_by_side(together)
    for single, side_by_side_training in zip(trained_alone, together, strict=True):
        assert (
            weights(single.policy) == weights(side_by_side_training.policy)
            and side_by_side_training.is_finished
        )


def test_all_methods_of_a_seed_meet_the_same_questions():
    questions_by_kind = {}
    for kind in POLICY_KINDS:
        system = Fake()
        done(kind=kind, system=system)
        questions_by_kind[kind] = [(job.item.prompt, job.draw) for job in system.asked]
    assert len(set(map(tuple, questions_by_kind.values()))) == 1


def test_a_plan_for_another_kind_of_policy_is_refused():
    policy = ConfigurationPolicy("mdp", STATES.shape[1], ATOMS)
    plan = TrainingPlan(8, 8, (1e-3, 1e-3), Rules(stepwise=False), Weights())
    with pytest.raises(ValueError, match="stepwise is False with a policy of kind 'mdp'"):
        ConfigurationTraining(policy, Fake(), ITEMS, STATES, plan, 0)


# Equal seeds ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", POLICY_KINDS)
def test_a_policys_first_weights_hang_on_its_seed_alone_and_travel_to_another(kind):
    policy = ConfigurationPolicy(kind, 3, ATOMS, seed=3)
    torch.rand(3)
    before = torch.get_rng_state()
    same, other_policy = (ConfigurationPolicy(kind, 3, ATOMS, seed=seed) for seed in (3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert weights(policy) == weights(same) != weights(other_policy)
    assert weights(other_policy.load_arrays(policy.to_arrays())) == weights(policy)
    at = torch.from_numpy(STATES)
    assert policy.decide(at).configurations == other_policy.decide(at).configurations


@cache
def whole(kind: str = "hierarchy", seed: int = 0) -> ConfigurationTraining:
    """A training that nobody interrupted. Change nothing about it."""
    return done(kind=kind, seed=seed)


def test_equal_seeds_give_equal_bytes():
    once, again = whole(), done()
    assert weights(once.policy) == weights(again.policy) != weights(whole(seed=1).policy)
    assert once.losses_by_update == again.losses_by_update and pd.concat(once.rows).equals(
        pd.concat(again.rows)
    )


# Going on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind, num_recorded", [("hierarchy", 1), ("hierarchy", UPDATES), ("bandit", 2), ("mdp", 2)]
)
def test_a_training_that_goes_on_asks_nothing_twice_and_ends_with_the_same_weights(
    kind, num_recorded, tmp_path
):
    rows = whole(kind).rows
    path = artifacts.write_parquet(
        tmp_path / "rollouts.parquet", pd.concat(rows[:num_recorded], ignore_index=True)
    )
    system = Fake()
    resumed = done(kind=kind, system=system, recorded=artifacts.read_parquet(path))
    assert len(system.asked) == (UPDATES - num_recorded) * BATCH
    assert (
        weights(resumed.policy) == weights(whole(kind).policy)
        and resumed.losses_by_update == whole(kind).losses_by_update
    )
    columns = list(rows[0].columns)
    assert pd.concat(resumed.rows)[columns].equals(pd.concat(rows)[columns])


@pytest.mark.parametrize(
    "seed_of_rows, items, num_recorded, num_asked",
    [
        (0, [LONG, CHAIN], UPDATES * BATCH, UPDATES * BATCH),
        (1, ITEMS, UPDATES * BATCH, UPDATES * BATCH),
        (0, ITEMS, BATCH + BATCH // 2, (UPDATES - 1) * BATCH),
    ],
    ids=["other questions", "another seed", "half an update"],
)
def test_rows_that_are_not_of_this_training_are_not_believed(
    seed_of_rows, items, num_recorded, num_asked
):
    """Two trainings of one seed first draw the same configurations where policies still know nothing."""
    system, rows = (
        Fake(),
        pd.concat(whole(seed=seed_of_rows).rows, ignore_index=True)[:num_recorded],
    )
    trained = done(system=system, recorded=rows, items=items)
    assert len(system.asked) == num_asked and weights(trained.policy) == weights(
        done(items=items).policy
    )


# Refinements ---------------------------------------------------------------------------------------


def mean_logp(policy: ConfigurationPolicy, trained: ConfigurationTraining) -> float:
    """Of the structures that were right and in the best three tenths."""
    episodes, correct = (
        concatenate_batches(trained.batches),
        np.concatenate(trained.correct_by_batch),
    )
    elite = torch.from_numpy(correct) & (
        episodes.rewards >= np.quantile(episodes.rewards.numpy(), 0.7)
    )
    with torch.no_grad():
        return float(
            policy.structure.evaluate_actions(episodes.states[elite], episodes.structures[elite])[
                0
            ].mean()
        )


SFT = Refining(epochs=4, batch=256, rates=(3e-3, 3e-3))


def test_refining_changes_a_copy_and_makes_the_elite_likelier():
    trained, num_asked = learnt(), len(learnt().system.asked)
    before = weights(trained.policy)
    policy, about = refine(trained, SFT, 0)
    assert (
        policy is not trained.policy
        and weights(trained.policy) == before
        and len(trained.system.asked) == num_asked
    )
    after = weights(policy)
    assert {name.split(".")[0] for name in after if after[name] != before[name]} == {
        "structure",
        "prompt",
    }
    assert mean_logp(policy, trained) > mean_logp(trained.policy, trained) + 0.1
    rows = pd.concat(trained.rows)
    tau = np.quantile(rows["reward"].astype(np.float32), 0.7)
    elite = rows[(rows["correct"] == 1) & (rows["reward"].astype(np.float32) >= tau)]
    assert about["tau"] == pytest.approx(tau) and about["elite"] == len(elite)
    assert about["reward"] == pytest.approx(elite["reward"].mean(), rel=1e-5)
    again, other_policy = (refine(trained, SFT, seed)[0] for seed in range(2))
    assert weights(again) == after != weights(other_policy)


def buffer(*episodes: tuple[str, bool, float]) -> SimpleNamespace:
    """A training of which only the buffer matters: question, whether right, reward; in two batches."""
    half = len(episodes) // 2
    halves = [list(episodes[:half]), list(episodes[half:])]
    batches = [SimpleNamespace(rewards=torch.tensor([r for *_, r in part])) for part in halves]
    correct_by_batch = [np.array([correct for _, correct, _ in part]) for part in halves]
    rows = [
        pd.DataFrame(
            {
                "key": [k for k, *_ in part],
                "prompt": [f"{k} ?" for k, *_ in part],
                "reward": [reward for *_, reward in part],
            }
        )
        for part in halves
    ]
    return SimpleNamespace(batches=batches, correct_by_batch=correct_by_batch, rows=rows)


def test_pairs_are_of_one_wording_of_a_question_a_good_right_answer_and_a_bad_wrong_one():
    training_with_pairs = buffer(
        ("a", True, 4.5),
        ("a", False, -0.1),
        ("b", True, 4.9),
        ("a", True, 3.9),
        ("c", False, 0.0),
        ("a", False, 2.1),
        ("b", False, 2.0),
        ("a", True, 4.0),
        ("a", False, 1.0),
        ("b", False, -1.0),
    )
    assert find_pairs(training_with_pairs, Refining()).tolist() == [[0, 1], [7, 8], [2, 6]]
    training_with_pairs = buffer(
        ("a", True, 4.5), ("b", False, -1.0), ("a", False, -1.0), ("b", True, 5.0)
    )
    training_with_pairs.rows[0]["prompt"], training_with_pairs.rows[1]["prompt"] = (
        ["a A : x ?", "b ?"],
        ["a A : y ?", "b ?"],
    )
    assert find_pairs(training_with_pairs, Refining()).tolist() == [[3, 1]]


DPO = Refining(epochs=2, batch=16, rates=(1e-3, 1e-3), entropy=0.05, beta=0.05)


def test_preferring_changes_a_copy_and_widens_the_gap_between_pairs():
    trained = learnt()
    before, num_asked = weights(trained.policy), len(trained.system.asked)
    short = SimpleNamespace(
        policy=trained.policy,
        batches=trained.batches[:5],
        correct_by_batch=trained.correct_by_batch[:5],
        rows=trained.rows[:5],
    )
    episodes, (better, worse) = concatenate_batches(short.batches), find_pairs(short, DPO).T
    policy, about = prefer_better(short, DPO, 0)
    assert (
        weights(trained.policy) == before and about == {"pairs": len(better)} and about["pairs"] > 5
    )
    assert len(trained.system.asked) == num_asked

    def gap(judged: ConfigurationPolicy) -> float:
        with torch.no_grad():
            logp, _ = judged.structure.evaluate_actions(episodes.states, episodes.structures)
        return float((logp[better] - logp[worse]).mean())

    assert gap(policy) > gap(trained.policy) + 0.1
    assert weights(prefer_better(short, DPO, 0)[0]) == weights(policy)


def test_a_policy_without_masks_repairs_what_it_draws():
    policy = ConfigurationPolicy("hierarchy", 3, ATOMS, masked=False, seed=1)
    decisions = policy.decide(
        torch.from_numpy(STATES).repeat(200, 1), torch.Generator().manual_seed(0)
    )
    structures = [tuple(row) for row in decisions.structures.tolist()]
    assert [configuration.structure for configuration in decisions.configurations] == [
        action_space.repair_structure(row) for row in structures
    ]
    assert any(
        configuration.structure != row
        for configuration, row in zip(decisions.configurations, structures, strict=True)
    )


def test_without_an_elite_or_pairs_copies_are_as_they_were():
    trained = done(updates=1)
    trained.correct_by_batch = [np.zeros_like(correct) for correct in trained.correct_by_batch]
    (refined, elite), (preferred, matched) = refine(trained, SFT, 0), prefer_better(trained, DPO, 0)
    assert (elite["elite"], elite["reward"]) == (0, 0.0) and matched == {"pairs": 0}
    for policy in (refined, preferred):
        assert policy is not trained.policy and weights(policy) == weights(trained.policy)


def test_a_flat_policy_can_be_refined():
    trained = done(kind="bandit", updates=4, batch=40, rate=1e-2)
    policy, about = refine(trained, SFT, 0)
    assert about["elite"] > 0 and mean_logp(policy, trained) > mean_logp(trained.policy, trained)
