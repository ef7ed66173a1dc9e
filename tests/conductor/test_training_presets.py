"""The paper's data sets as training prompts: columns, references and lengths."""

import json

import pytest

from lib import config
from lib.conductor import train_command as command
from lib.conductor import training_presets as presets
from lib.tasks import TaskError


def write_rows(path, rows):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_there_are_the_papers_seven_with_its_lengths_and_intervals():
    assert len(presets.PRESETS) == 7
    lengths = {name: preset.max_tokens for name, preset in presets.PRESETS.items()}
    assert lengths["natural_reasoning"] == lengths["ss_gen"] == 2_048
    assert lengths["tombench"] == lengths["emobench"] == 512
    assert lengths["webinstruct"] == lengths["opus_books"] == lengths["general_thoughts"] == 1_024
    story = presets.PRESETS["ss_gen"]
    assert (story.sync_every, story.update_interval) == (12, 6)
    others = [preset for preset in presets.PRESETS.values() if preset != story]
    assert {(preset.sync_every, preset.update_interval) for preset in others} == {(6, 3)}


@pytest.mark.parametrize(
    ("reference", "is_trivial"),
    [("Paris", True), ("3.5", True), ("12 %", True), ("", True), ("the larger one", False)],
)
def test_one_word_or_a_number_is_trivial(reference, is_trivial):
    assert presets.is_trivial(reference) == is_trivial


def test_a_preset_names_columns_adds_the_instruction_and_drops_trivial_references(tmp_path):
    rows = [
        {"question": "Why is the sky blue?", "reference_answer": "Rayleigh scattering of light"},
        {"question": "How many?", "reference_answer": "42"},
    ]
    path = write_rows(tmp_path / "thoughts.jsonl", rows)
    (row,) = presets.read_prompts(f"general_thoughts:{path}").to_dict("records")
    assert row["prompt"].startswith("Why is the sky blue?") and "<think>" in row["prompt"]
    assert row["reference"] == "Rayleigh scattering of light"
    assert row["category"] == "general_thoughts"


def test_where_every_reference_is_trivial_it_is_said(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", [{"question": "How many?", "reference_answer": "42"}])
    with pytest.raises(TaskError, match="one word or a number"):
        presets.read_prompts(f"general_thoughts:{path}")


def test_of_options_the_letter_and_the_content_are_the_reference(tmp_path):
    path = write_rows(
        tmp_path / "own.jsonl",
        [{"q": "Which one?", "a": "B", "choices": ["a dog", "a cat"]}],
    )
    (row,) = presets.read_prompts(str(path), "q", "a").to_dict("records")
    assert row["reference"] == "B. a cat"


def test_a_file_of_ones_own_is_taken_as_it_is(tmp_path):
    path = write_rows(tmp_path / "own.jsonl", [{"prompt": "How many?", "reference": "42"}])
    (row,) = presets.read_prompts(str(path)).to_dict("records")
    assert row == {"prompt": "How many?", "reference": "42", "category": "all"}


def read_settings(source, *more):
    needed = ["model", "--data", source, "--out", "o", "--reward-model", "r", *more]
    options = command.read_options(needed)
    return command.read_settings(options, config.load(options.profile))


def test_lengths_and_intervals_follow_the_data_set_at_the_papers_profile():
    own = read_settings("own.jsonl")
    assert own.grpo.max_tokens == own.rewards.max_length == 1_024
    story = read_settings("ss_gen:folder")
    assert story.grpo.max_tokens == 2_048 and story.head.update_interval == 6
    assert read_settings("ss_gen:folder", "--set", "grpo.max_tokens=99").grpo.max_tokens == 99
    smoke = read_settings("ss_gen:folder", "--profile", "smoke")
    assert smoke.grpo.max_tokens == config.load("smoke").conductor.grpo.max_tokens
