"""What is trained and what is tested, by name."""

from dataclasses import replace

from lib.agent_configuration.variants import (
    ALONE,
    NAMED,
    TESTED,
    UNMASKED,
    VARIANTS,
    ConfigurationVariant,
)


def test_arc_without_masks_is_arc_but_for_its_masks_and_is_refined_as_well():
    assert replace(UNMASKED, name="arc", label="ARC", masked=True) == NAMED["arc"]
    assert not UNMASKED.masked and UNMASKED.refined and UNMASKED.name not in NAMED


def test_all_baselines_of_the_paper_are_tested():
    trained = {variant.name for variant in VARIANTS}
    assert trained | {"arc_no_sft", "arc_dpo"} <= set(TESTED)
    assert {"base", "grid", "greedy", "zero_shot", "few_shot", "best_constant", "oracle"} <= set(
        TESTED
    )
    assert len(set(TESTED.values())) == len(TESTED)


def test_a_job_gets_all_of_an_arm_but_the_label():
    for variant in (*VARIANTS, *ALONE, UNMASKED):
        assert ConfigurationVariant.from_job_settings(variant.to_job_settings()) == replace(
            variant, label=""
        )


def test_only_arc_is_tested_with_the_larger_model():
    assert [
        variant.name
        for variant in (*VARIANTS, *ALONE, UNMASKED)
        if variant.tested_with_larger_model
    ] == ["arc"]
