"""The demonstration on a pretrained model, with a lab policy of some thousand weights in the place of SmolLM2."""

import json

import pytest

from lib.conductor import data
from lib.conductor import pretrained_demonstration as demonstration
from lib.experiment import artifacts
from lib.tasks.presets.preset import make_item

SHRUNK = {
    "grpo.epochs": 1,
    "grpo.prompts_per_step": 2,
    "grpo.generations": 2,
    "grpo.max_tokens": 8,
    "rewards.min_length": 2,
    "rewards.max_length": 8,
}


@pytest.fixture
def out(tmp_path, monkeypatch):
    """A folder with prompts of the lab, and settings of a few seconds."""
    monkeypatch.setattr(demonstration, "CHANGES", demonstration.CHANGES | SHRUNK)
    monkeypatch.setattr(demonstration, "LORA_RANK", 2)
    monkeypatch.setattr(demonstration, "MAX_TOKENS", 8)
    monkeypatch.setattr(demonstration, "NUM_SAMPLES", 2)
    monkeypatch.setattr(demonstration, "NUM_PROMPTS", {"reward": 24, "train": 4, "test": 3})
    items = iter(data.draw_items("train", 31))
    for part, count in demonstration.NUM_PROMPTS.items():
        rows = []
        for _ in range(count):
            item = next(items)
            message = {"role": "user", "content": item.prompt}
            rows.append(json.dumps({"prompt": [message], "reference": item.reference}))
        (tmp_path / f"{part}.jsonl").write_text("\n".join(rows))
    return tmp_path


def run(place, out):
    arguments = ["--model", str(place), "--out", str(out), "--table", str(out / "table.parquet")]
    return demonstration.main(arguments)


def test_it_trains_both_methods_and_keeps_a_table_of_facts(place, out, capsys):
    assert run(place, out) == 0
    assert "table of facts" in capsys.readouterr().out
    table = artifacts.read_parquet(out / "table.parquet")
    counts = table.groupby(["split", "method"]).size().to_dict()
    assert counts == {
        ("test", "start"): 6,
        ("test", "equal"): 6,
        ("test", "conductor"): 6,
        ("train", "equal"): 8,
        ("train", "conductor"): 8,
    }
    rollouts = table[table["split"] == "train"]
    assert rollouts["correct"].isin([0.0, 1.0]).all()
    assert (
        rollouts[[f"w_{name}" for name in ("fmt", "ppl", "ent", "len", "pref")]].notna().all(None)
    )

    # A second run reads everything again, and gives the same bytes.
    first = (out / "table.parquet").read_bytes()
    assert run(place, out) == 0
    assert (out / "table.parquet").read_bytes() == first
    assert "training a reward model" not in capsys.readouterr().out


def test_a_model_whose_replies_are_never_right_is_an_error_that_says_so(place, out, capsys):
    rows = [json.loads(line) for line in (out / "reward.jsonl").read_text().splitlines()]
    unreachable = [json.dumps(row | {"reference": "no such answer"}) for row in rows]
    (out / "reward.jsonl").write_text("\n".join(unreachable))
    assert run(place, out) == 2
    assert "both a right and a wrong reply" in capsys.readouterr().err


def test_prompts_of_the_three_parts_share_no_question(tmp_path):
    pytest.importorskip("reasoning_gym", reason="`make test-extras` installs it")
    demonstration.write_prompts(tmp_path)
    questions = []
    for part, count in demonstration.NUM_PROMPTS.items():
        rows = [json.loads(line) for line in (tmp_path / f"{part}.jsonl").open()]
        assert len(rows) == count
        questions += [row["prompt"][-1]["content"] for row in rows]
        examples = rows[0]["prompt"][1:-1]
    shown = [message["content"] for message in examples if message["role"] == "user"]
    assert len(shown) == demonstration.NUM_EXAMPLES
    assert len({*questions, *shown}) == len(questions) + len(shown)


def test_an_example_is_worked_out_step_by_step():
    question = "State the final answer to the following arithmetic problem: 4 + 5 - 12 ="
    item = make_item(question, "-3", "chain_sum")
    assert demonstration.work_out(item) == "4 + 5 = 9, 9 - 12 = -3"
