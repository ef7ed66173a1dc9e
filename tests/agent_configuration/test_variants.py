"""What is trained and what is tested, by name."""

from dataclasses import fields, replace

import pytest

from lib import config
from lib.agent_configuration.variants import (
    ABLATIONS,
    ARC,
    BASELINES,
    FLAT_AUTOREGRESSIVE,
    FLAT_BANDIT,
    FLAT_MDP,
    MDP,
    NAMED,
    UNTRAINED,
    VARIANTS,
    ConfigurationVariant,
    count_seeds,
    label_method,
)


@pytest.mark.parametrize("variant", VARIANTS[1:], ids=lambda variant: variant.name)
def test_a_control_differs_from_arc_in_one_thing(variant):
    names = [field.name for field in fields(ARC) if field.name not in ("name", "label")]
    assert sum(getattr(variant, name) != getattr(ARC, name) for name in names) == 1


def test_flat_policies_differ_from_each_other_in_their_kind_alone():
    assert len({variant.kind for variant in (FLAT_BANDIT, FLAT_AUTOREGRESSIVE, FLAT_MDP)}) == 3
    assert replace(FLAT_MDP, name="bandit", label="flat bandit", kind="bandit") == FLAT_BANDIT
    assert FLAT_MDP.kind == MDP


def test_all_baselines_of_the_paper_have_a_label_of_their_own():
    paper = {"base", "grid", "greedy", "zero_shot", "few_shot", "gepa", "bootstrap", "conversation"}
    assert paper | {"random", "best_constant", "by_kind", "oracle"} == set(UNTRAINED)
    methods = [*UNTRAINED, *NAMED, *(f"{name}_no_sft" for name in NAMED), "arc_dpo"]
    assert len({label_method(method) for method in methods}) == len(methods)
    assert label_method("mdp_no_sft") == "flat MDP, before SFT"


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_a_job_gets_all_of_a_variant_but_the_label(variant):
    read = ConfigurationVariant.from_job_settings(variant.to_job_settings())
    assert read == replace(variant, label="")


def test_ablations_have_fewer_trainings_than_what_is_compared_first():
    params = config.load("full")
    numbers = {variant.name: count_seeds(params, variant) for variant in VARIANTS}
    assert {numbers[variant.name] for variant in (ARC, *BASELINES)} == {params.configuration.seeds}
    assert params.configuration.seeds >= 5 and params.configuration.episodes >= 4_000
    assert {numbers[variant.name] for variant in ABLATIONS} == {params.configuration.ablation_seeds}
