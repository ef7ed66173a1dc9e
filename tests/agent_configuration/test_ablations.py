"""Ablations of ARC: which policies are asked for, under which encoder, and what is held against what."""

import pandas as pd
import pytest

from lib import config
from lib.agent_configuration import ablations, experiment

SETTINGS = config.load("smoke")
OWN, OTHER = SETTINGS.configuration.encoder, SETTINGS.ablations.encoder
PAID = {  # reward by policy
    "arc_no_sft": 1.0, "arc": 3.0, "arc_dpo": 2.0, "grpo_no_sft": 0.5, "grpo": 0.7, "unmasked_no_sft": 1.5,
    "unmasked": 4.0, "undiscounted_no_sft": 0.1, "undiscounted": 2.5, "sparse_no_sft": 0.2, "sparse": 3.5,
}  # fmt: skip
LEAVES = {
    "arc": ("arc_no_sft", "arc", "arc_dpo"),
    "grpo": ("grpo_no_sft", "grpo"),
    "unmasked": ("unmasked_no_sft", "unmasked"),
    "undiscounted": ("undiscounted_no_sft", "undiscounted"),
    "sparse": ("sparse_no_sft", "sparse"),
}
SEEDS, ASKED = 2, ("chain", "facts")


@pytest.fixture
def trained_variants(monkeypatch):
    """What was trained under which encoder; each reward is told with the agents' model, and one more with another
    encoder; a larger model is paid 100."""
    trainings = []

    def trained(params, compared, label=""):
        own = params.configuration
        trainings.append((own.encoder, [method.name for method in compared]))
        rows = [
            {
                "method": policy,
                "seed": seed,
                "model": model,
                "group": kind,
                "only": kind,
                "prompt": f"{n} ?",
                "correct": 1.0,
                "tokens_out": 30,
                "reward": 100.0 if model == own.larger else PAID[policy] + (own.encoder != OWN),
            }
            for method in compared
            for policy in LEAVES[method.name]
            for model in (own.model, own.larger)
            for seed in range(SEEDS)
            for kind in ASKED
            for n in range(3)
        ]
        return pd.DataFrame(rows)

    monkeypatch.setattr(experiment, "train_policies", trained)
    return trainings


def rewards(compared) -> dict[str, float]:
    return compared.levels["reward"]["value"].to_dict()


def test_tests_are_those_of_all_trainings_on_the_kind_that_each_learned_from(trained_variants):
    rows = ablations.tests(SETTINGS)
    assert trained_variants == [(OWN, list(LEAVES))]
    assert set(rows["model"]) == {SETTINGS.configuration.model}  # and not the larger one
    units = rows[(rows["method"] == "arc") & (rows["seed"] == 0)]["unit"]
    # Questions of two kinds with the same words are two questions.
    assert units.is_unique and len(units) == 6


def test_arc_is_trained_once_with_each_encoder(trained_variants):
    rows = ablations.test_encoders(SETTINGS)
    assert trained_variants == [(OWN, ["arc"]), (OTHER, ["arc"])] and OWN != OTHER
    assert set(rows[rows["encoder"] == OTHER]["method"]) == set(LEAVES["arc"])


def test_with_one_encoder_nothing_is_trained_twice_and_nothing_compared(trained_variants):
    settings = SETTINGS.model_copy(
        update={"ablations": SETTINGS.ablations.model_copy(update={"encoder": OWN})}
    )
    rows = ablations.test_encoders(settings)
    assert len(trained_variants) == 1 and set(rows["encoder"]) == {OWN}
    assert ablations.encoders(settings, rows).baselines == {}


def test_recorded_trainings_are_compared_like_those_of_a_run(trained_variants):
    """Without the policies that were tested on other kinds, or with larger agents."""
    run = ablations.tests(SETTINGS)
    recorded = run.assign(split="test", style="own kind", item=run["prompt"])
    elsewhere = recorded.assign(style="other kind", reward=9.0)
    rows = ablations.select_recorded_tests(pd.concat([recorded, elsewhere]), SETTINGS)
    assert rewards(ablations.reward(SETTINGS, rows)) == rewards(ablations.reward(SETTINGS, run))


def test_objectives_are_held_against_ppo(trained_variants):
    compared = ablations.table_4(SETTINGS, ablations.tests(SETTINGS))
    assert rewards(compared) == {"PPO": 1, "GRPO": 0.5, "PPO, then SFT": 3, "PPO, then DPO": 2}
    assert compared.baselines == dict.fromkeys(["GRPO", "PPO, then SFT", "PPO, then DPO"], "PPO")
    assert compared.gains["reward"]["value"]["PPO, then DPO"] == 1


def test_imitation_is_held_against_none_with_masks_and_without(trained_variants):
    compared = ablations.sft(SETTINGS, ablations.tests(SETTINGS))
    assert compared.baselines == {"SFT": "no SFT", "no masks, SFT": "no masks, no SFT"}
    assert compared.gains["reward"]["value"].to_dict() == {"SFT": 2, "no masks, SFT": 2.5}


def test_masks_are_compared_after_imitation(trained_variants):
    compared = ablations.masks(SETTINGS, ablations.tests(SETTINGS))
    assert rewards(compared) == {"masks": 3, "no masks": 4} and compared.baselines == {
        "no masks": "masks"
    }


def test_the_discount_and_the_reward_are_compared_after_imitation(trained_variants):
    tests = ablations.tests(SETTINGS)
    assert rewards(ablations.discount(SETTINGS, tests)) == {"discount": 3, "no discount": 2.5}
    assert rewards(ablations.reward(SETTINGS, tests)) == {"shaped reward": 3, "sparse reward": 3.5}


def test_encoders_are_compared_in_arc_itself(trained_variants):
    compared = ablations.encoders(SETTINGS, ablations.test_encoders(SETTINGS))
    assert rewards(compared) == {OWN: 3, OTHER: 4} and compared.baselines == {OTHER: OWN}
    assert compared.backend == SETTINGS.llm.models[SETTINGS.configuration.model].backend == "lab"
