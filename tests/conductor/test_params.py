"""The section `conductor` of params.yaml: what cannot be is refused by name."""

import pytest

from lib import config
from lib.config import ParamsError


def changed(**conductor):
    return config.settings(profile="smoke", conductor=conductor).conductor


@pytest.mark.parametrize("profile", config.PROFILES)
def test_the_section_is_there_in_every_profile(profile):
    section = config.load(profile).conductor
    assert section.policy == "lab-policy" and section.seeds >= 2
    if profile == "paper":  # MAESTRO, Tables 7 and 8
        grpo, head = section.grpo, section.head
        assert (grpo.generations, grpo.prompts_per_step, grpo.learning_rate) == (5, 15, 1e-5)
        assert (grpo.kl, grpo.sync_every, grpo.sync_mixup, grpo.top_entropy) == (0.1, 6, 0.6, 0.2)
        assert (
            head.update_interval,
            head.entropy,
            head.learning_rate,
            head.floor,
            head.temperature,
        ) == (
            3,
            1e-3,
            5e-5,
            1e-4,
            1,
        )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"judge": "nobody"}, ["conductor names the models ['nobody']", "scripted-medium"]),
        ({"policy": "lab-none"}, ["conductor.policy", "lab-none", "lab-policy"]),
        (
            {"rewards": {"min_length": 9, "max_length": 9}},
            ["conductor.rewards", "min_length (9) must be below max_length (9)"],
        ),
        (
            {"rewards": {"min_length": 10, "max_length": 9}},
            ["conductor.rewards", "below max_length (9)"],
        ),
        (
            {"grpo": {"generations": 1}},
            ["conductor.grpo.generations", "greater than or equal to 2"],
        ),
        ({"grpo": {"importance": "word"}}, ["conductor.grpo.importance", "sequence"]),
        ({"grpo": {"top_entropy": 0}}, ["conductor.grpo.top_entropy"]),
        ({"grpo": {"sync_mixup": 1.1}}, ["conductor.grpo.sync_mixup"]),
        ({"head": {"kappa": 1.5}}, ["conductor.head.kappa", "1.5"]),
        ({"head": {"floor": 0.2}}, ["conductor.head.floor"]),
        ({"head": {"layer": "second"}}, ["conductor.head.layer", "middle"]),
        ({"head": {"update_interval": 0}}, ["conductor.head.update_interval"]),
        ({"head": {"colour": 1}}, ["conductor.head.colour", "unknown key"]),
        (
            {"preference": {"annotator_error_rate": 0.5}},
            ["conductor.preference.annotator_error_rate"],
        ),
        ({"samples": 1}, ["conductor.samples"]),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name(change, named):
    with pytest.raises(ParamsError) as caught:
        changed(**change)
    for part in named:
        assert part in str(caught.value)


def test_what_is_not_changed_stays():
    section = changed(head={"kappa": 1.0}, rewards={"min_length": 0, "max_length": 1})
    before = config.load("smoke").conductor
    assert section.head == before.head.model_copy(update={"kappa": 1.0})
    assert (section.rewards.min_length, section.rewards.max_length) == (
        0,
        1,
    ) and section.grpo == before.grpo
