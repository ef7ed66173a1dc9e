"""The section `routing` of params.yaml: what cannot be is refused by name."""

import pytest

from lib import config
from lib.config import ParamsError
from tests.budgeted_routing.small_systems import SMOKE_PARAMS, change_params


@pytest.mark.parametrize("profile", config.PROFILES)
def test_the_section_is_there_in_every_profile(profile):
    section = config.load(profile).routing
    assert list(section.experts) == ["lab-facts", "lab-passage", "lab-big", "lab-large"]
    assert section.seeds >= 2 and section.rounds >= 3
    assert (section.learn.advantages, section.learn.average, section.temperature) == (
        "gae",
        "sequence",
        1.0,
    )
    if profile == "paper":  # CoRL, 4.2 and appendix A
        learn = section.learn
        assert section.response_tokens == 500
        assert (learn.learning_rate, learn.value_learning_rate, learn.kl, learn.clip) == (
            1e-6,
            1e-5,
            1e-3,
            0.2,
        )
        assert (learn.gamma, learn.lam, learn.value, section.batch, learn.minibatch) == (
            1.0,
            1.0,
            "apart",
            512,
            256,
        )


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (
            {"experts": {"lab-mini": "nobody", "lab-large": "large"}},
            ["routing", "nobody", "llm.models"],
        ),
        ({"base": "lab-none"}, ["routing.base", "lab-none", "lab.models"]),
        ({"updates": {"loud": 3}}, ["routing.updates", "loud"]),
        ({"rounds": 1}, ["routing.rounds", "greater than or equal to 2"]),
        ({"colour": 1}, ["routing.colour", "unknown key"]),
        ({"learn": {"advantages": "none"}}, ["routing.learn.advantages", "gae"]),
        ({"learn": {"gamma": 1.1}}, ["routing.learn.gamma", "1.1"]),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_name(change, named):
    with pytest.raises(ParamsError) as caught:
        change_params(routing=change)
    for part in named:
        assert part in str(caught.value)


@pytest.mark.parametrize("word", ["smol", "lab-huge", "reasoner"])
def test_an_expert_that_a_lab_controller_has_no_word_for_is_refused_with_the_remedy(word):
    remedy = r"such as \{lab-large: large\}"
    with pytest.raises(ParamsError, match=f"'large' by the word '{word}'.*lab-nano.*{remedy}"):
        change_params(routing={"experts": {word: "large", "lab-mini": "mini"}})


def test_a_model_that_is_a_tool_may_have_any_name_and_must_be_one_of_llm_models():
    params = change_tools({"smol": "large", "lab-nano": "nano"})
    assert params.tools.models == {"smol": "large", "lab-nano": "nano"}
    with pytest.raises(ParamsError, match=r"tools names the models \['nobody'\]"):
        change_tools({"smol": "nobody", "lab-nano": "nano"})
    with pytest.raises(ParamsError, match="tools.models"):
        change_tools({"lab-nano": "nano"})


def change_tools(models: dict[str, str]) -> config.Params:
    """Validate the parameters with other models as tools."""
    content = SMOKE_PARAMS.model_dump()
    return config.validate_settings(content | {"tools": content["tools"] | {"models": models}})


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"experts": {"lab-nano": "nano"}}, r"routing: .*two experts or more, got \['lab-nano'\]"),
        ({"updates": {"soft": 1}}, "routing: .*updates must be given for soft, hard and number"),
    ],
)
def test_a_choice_needs_two_experts_and_every_kind_its_updates(change, named):
    content = SMOKE_PARAMS.model_dump()
    with pytest.raises(ParamsError, match=named):
        config.validate_settings(content | {"routing": content["routing"] | change})
