"""`python -m lib train maestro`: the code path of the paper's scale, with a tiny model folder."""

import json

import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from lib import config
from lib.conductor import data
from lib.conductor import train_command as command
from lib.experiment import artifacts
from lib.language_models import checkpoints
from tests.conductor import small
from tests.language_models import tiny

pytestmark = pytest.mark.usefixtures("one_thread")
SMALL = [
    "--profile",
    "smoke",
    "--set",
    "grpo.prompts_per_step=2",
    "--set",
    "grpo.generations=2",
    "--set",
    "grpo.max_tokens=6",
    "--set",
    "grpo.save_every=1",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a policy, a reward model and a dataset."""
    root = tmp_path_factory.mktemp("own")
    policy = checkpoints.save(
        tiny.model(hidden=16, layers=1, heads=2, intermediate=16), root / "policy"
    )
    torch.manual_seed(0)
    reward = AutoModelForSequenceClassification.from_pretrained(policy, num_labels=1)
    reward.save_pretrained(root / "reward")
    AutoTokenizer.from_pretrained(policy).save_pretrained(root / "reward")
    rows = [
        {"prompt": [{"role": "user", "content": i.prompt}], "reference": i.reference}
        for i in data.draw_items("train", 6)
    ]
    (root / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return root


def run(place, out, *more):
    given = [
        str(place / "policy"),
        "--data",
        str(place / "own.jsonl"),
        "--reward-model",
        str(place / "reward"),
    ]
    return command.main([*given, "--out", str(place / out), *SMALL, *more])


def test_it_trains_and_says_what_came_of_it(place, capsys):
    assert run(place, "out") == 0
    said = capsys.readouterr().out
    assert "first fifth" in said and "w_ppl" in said
    rollouts = artifacts.read_parquet(place / "out/rollouts.parquet")
    assert len(rollouts) == 12 and set(rollouts["group"]) == {"all"}
    assert (place / "out/policy/model.safetensors").is_file()
    assert "conductor.linear.weight" in artifacts.read_tensors(place / "out/conductor.safetensors")


def test_the_same_command_again_trains_nothing_more(place, capsys):
    assert run(place, "again") == 0
    first = artifacts.read_parquet(place / "again/rollouts.parquet")
    assert run(place, "again") == 0
    assert first.equals(artifacts.read_parquet(place / "again/rollouts.parquet"))


def test_text_becomes_a_user_message_where_the_tokenizer_has_a_template(place, capsys):
    rows = [{"prompt": i.prompt, "reference": i.reference} for i in data.draw_items("train", 6)]
    (place / "text.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run(place, "chat") == 0 and "user message" not in capsys.readouterr().err
    assert run(place, "text", "--data", str(place / "text.jsonl")) == 0
    assert "one user message" in capsys.readouterr().err
    told, chat = (
        artifacts.read_parquet(place / name / "rollouts.parquet") for name in ("text", "chat")
    )
    assert told["tokens_in"].tolist() == chat["tokens_in"].tolist()  # as if they had been messages


def test_plain_text_stays_text_without_a_template():
    found = data.Dataset.from_dict(
        {"prompt": ["one", "two"], "reference": ["1", "2"], "category": ["all", "all"]}
    )
    assert list(data.prepare_prompts(found, False)["prompt"]) == ["one", "two"] and list(
        data.prepare_prompts(found, False)["row"]
    ) == [
        0,
        1,
    ]
    assert data.prepare_prompts(found, True)["prompt"][1] == [{"role": "user", "content": "two"}]


def test_replies_that_are_far_too_short_are_warned_of(place, capsys):
    assert run(place, "short", "--set", "grpo.max_tokens=2") == 0
    assert "warning: replies have" in capsys.readouterr().err


def test_an_anchored_head_is_paid_by_references(place):
    assert (
        run(place, "anchored", "--variant", "anchored", "--set", "head.verified_fraction=1.0") == 0
    )
    rollouts = artifacts.read_parquet(place / "anchored/rollouts.parquet")
    assert rollouts["anchor"].isin([0.0, 1.0]).all() and rollouts["item"].nunique() == 6


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("grpo.epoch=2", "--set grpo.epoch:"),
        ("grpo.epochs", "KEY=VALUE"),
        ("grpo.epochs=-1", "grpo.epochs"),
        ("x.y=1", "x.y"),
    ],
)
def test_a_wrong_change_is_named(place, capsys, change, says):
    assert run(place, "wrong", "--set", change) == 2
    assert says in capsys.readouterr().err


def test_what_is_missing_is_named(place, capsys):
    given = [
        "--data",
        str(place / "own.jsonl"),
        "--out",
        str(place / "o"),
        "--reward-model",
        str(place / "reward"),
    ]
    assert command.main([str(place), *given]) == 2
    assert "config.json" in capsys.readouterr().err
    assert (
        command.main([str(place / "policy"), *given[2:], "--data", str(place / "none.jsonl")]) == 2
    )
    assert "none.jsonl" in capsys.readouterr().err


def test_the_paper_s_values_are_those_of_tables_7_and_8():
    paper = config.load("paper").conductor
    grpo, head = paper.grpo, paper.head
    assert (grpo.learning_rate, grpo.epochs, grpo.prompts_per_step, grpo.generations) == (
        1e-5,
        2,
        15,
        5,
    )
    assert (grpo.temperature, grpo.kl, grpo.sync_every, grpo.sync_mixup, grpo.top_entropy) == (
        0.8,
        0.1,
        6,
        0.6,
        0.2,
    )
    assert (head.layer, head.learning_rate, head.update_interval, head.entropy, head.floor) == (
        "last",
        5e-5,
        3,
        1e-3,
        1e-4,
    )
    assert head.temperature == 1.0


def test_the_judge_is_one_of_the_parameters(place, capsys):
    assert run(place, "judged", "--variant", "judge", "--judge", "scripted-small") == 0
    assert "judge" in artifacts.read_parquet(place / "judged/rollouts.parquet")
    assert run(place, "judged2", "--variant", "judge", "--judge", "nobody") == 2
    assert "nobody" in capsys.readouterr().err


def test_rollouts_that_do_not_divide_among_processes_are_refused(place, capsys, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert run(place, "many") == 2
    assert "3 processes" in capsys.readouterr().err


def test_memory_is_said_first_and_the_reward_model_s_scale_is_measured_once(place, capsys):
    scale = place / "reward/scale.json"
    scale.unlink(missing_ok=True)
    assert run(place, "calibrated", "--calibrate") == 0
    said = capsys.readouterr().out
    assert said.index("at the peak") < said.index("scale.json") and "reward model" in said
    assert not (place / "calibrated/policy").exists()
    measured = artifacts.read_json(scale)
    assert measured["spread"] > 0 and measured["prompts"] == 6
    assert run(place, "after") == 0
    assert artifacts.read_json(scale) == measured and "scale.json" not in capsys.readouterr().out


def test_several_processes_do_not_measure_the_scale_at_once(place, capsys, monkeypatch):
    (place / "reward/scale.json").unlink(missing_ok=True)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert run(place, "two") == 2
    assert "--calibrate" in capsys.readouterr().err


def test_passes_change_memory_and_not_the_rollouts(place):
    assert run(place, "whole") == 0
    assert run(place, "passes", "--accumulate", "2") == 0
    whole, passes = (
        artifacts.read_parquet(place / name / "rollouts.parquet") for name in ("whole", "passes")
    )
    first = whole["step"] == 0
    columns = ["step", "item", "tokens_out", "action"]
    assert whole.loc[first, columns].equals(passes.loc[first, columns])
    assert len(whole) == len(passes) and whole["step"].equals(passes["step"])


def test_passes_that_do_not_divide_a_step_are_refused(place, capsys):
    assert run(place, "three", "--accumulate", "3") == 2
    assert "3 passes" in capsys.readouterr().err


def test_adapters_are_trained_on_frozen_weights(place, models):
    """A policy that ends its replies: those that are cut off teach nothing."""
    schooled = models / small.SMOKE.policy
    options = ["--data", str(place / "own.jsonl"), "--reward-model", str(place / "reward")]
    options += [*SMALL, "--set", "grpo.max_tokens=11", "--set", "grpo.generations=4"]
    out = place / "lora"
    more = ["--lora", "2", "--gradient-checkpointing", "--out", str(out)]
    assert command.main([str(schooled), *options, *more]) == 0
    rollouts = artifacts.read_parquet(out / "rollouts.parquet")
    assert len(rollouts) == 24 and rollouts["ent"].gt(0).all()
    arrays = artifacts.read_tensors(out / "policy/adapter_model.safetensors")
    trained = [array for name, array in arrays.items() if "lora_B" in name]
    assert any(abs(array).max() > 0 for array in trained)  # they start at 0
