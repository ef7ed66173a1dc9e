"""The warm start of a user's controller: examples show the form of turns, and the model learns it."""

import json

import pytest
from transformers import AutoTokenizer

from lib.budgeted_routing import train_command as command
from lib.budgeted_routing import warm_start
from lib.budgeted_routing.variants import Budgets
from lib.llm.open_models import ChatModels
from lib.rl.call_protocol import BUDGET_WORDS, Answer, Call, parse_turn
from lib.rl.expert_pool import ExpertPool
from lib.rl.generators import HFGenerator
from lib.rl.policy_model import PolicyModel, PolicyModelSettings
from lib.rl.user_training import inputs
from lib.tasks import Item
from tests.budgeted_routing.small_systems import FunctionModel
from tests.rl.user_training import small

EXPERTS = ["scripted-small", "scripted-large"]
ITEMS = [
    Item(f"{number} + 0 = ?", str(number), "", "sums", 1, id=str(number)) for number in range(3)
]
BUDGETS = Budgets({"low": 1e-5, "medium": 1e-3, "high": 1.0}, dict(small.PRICES), None)


def draw_examples(num_examples: int, seed: int = 0) -> list[warm_start.WarmExample]:
    own_replies = [f"It is <answer> {number + 7} </answer>" for number in range(3)]
    return warm_start.draw_examples(
        ITEMS, own_replies, EXPERTS, BUDGETS, "soft", num_examples, seed
    )


def test_examples_draw_budgets_and_answerers_at_random_and_questions_in_turn():
    examples = draw_examples(60)
    assert [example.task.item.id for example in examples] == ["0", "1", "2"] * 20
    assert {example.task.budget_label for example in examples} == set(BUDGET_WORDS)
    assert draw_examples(60) == examples != draw_examples(60, seed=1)

    called = set()
    for example in examples:
        first_turn = parse_turn(example.turns[0], EXPERTS)
        if isinstance(first_turn, Call):
            called.add(first_turn.expert)
            assert isinstance(parse_turn(example.turns[1], EXPERTS), Answer)
        else:
            # Its own answer, which is not the reference.
            own_answer = int(example.task.item.id) + 7
            assert f"<answer> {own_answer} </answer>" in example.turns[0]
            assert len(example.turns) == 1
            called.add("the controller")
    assert called == {*EXPERTS, "the controller"}


# Adapters of a random model of 16 dimensions can change little.
@pytest.mark.parametrize(
    ("lora_rank", "most_left"), [(0, 0.5), (4, 0.98)], ids=["all weights", "LoRA"]
)
def test_the_loss_of_the_turns_falls_and_nothing_else_is_learned_from(
    tmp_path, monkeypatch, lora_rank, most_left
):
    monkeypatch.setattr(warm_start, "NUM_EPOCHS", 20)
    for name in ("LEARNING_RATE", "LORA_LEARNING_RATE"):
        monkeypatch.setattr(warm_start, name, 1e-2)
    folder = small.make_qwen_folder(tmp_path / "model")
    policy = PolicyModel.from_folder(folder, PolicyModelSettings(lora_rank=lora_rank), "cpu")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    generator = HFGenerator(policy.network, tokenizer, 40, 20)
    models = ChatModels({name: FunctionModel(name, small.answer_sums) for name in EXPERTS})
    with ExpertPool(models, {name: name for name in EXPERTS}, 1.0, tells_rules=False) as pool:
        samples = warm_start.make_warm_samples(generator, pool, draw_examples(16), 2, 0)
    assert len(samples) == 16
    written = tokenizer.decode(
        [token for token, is_own in zip(samples[0].ids, samples[0].mask, strict=True) if is_own]
    )
    assert "<response>" not in written and "</answer>" in written

    steps = []
    losses = warm_start.train_on_samples(
        policy, samples, generator.pad_id, 0, lambda *step: steps.append(step)
    )["loss"]
    assert steps == [(index, len(losses)) for index in range(len(losses))]
    assert losses.iloc[-2:].mean() < most_left * losses.iloc[:2].mean()


# The command -------------------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path, monkeypatch):
    """The command on a tiny model whose turns are scripted after the warm start."""
    monkeypatch.setattr(inputs, "open_models", small.open_functions())
    monkeypatch.setattr(HFGenerator, "write_turns", small.script_turns(small.answer_by_seed))
    small.make_qwen_folder(tmp_path / "model")
    small.write_questions(tmp_path / "questions.jsonl")

    def run_command(*more: str) -> int:
        paths = ["--model", str(tmp_path / "model"), "--data", str(tmp_path / "questions.jsonl")]
        paths += ["--out", str(tmp_path / "out"), "--experts", small.EXPERTS]
        return command.main([*paths, *small.SMALL, *more])

    return run_command


def test_a_run_starts_from_the_warm_model_and_goes_on_from_it(run, tmp_path, capsys):
    assert run("--warm-start", "8") == 0
    out = tmp_path / "out"
    assert "Warm start: 8 of 8 examples fit the window" in capsys.readouterr().out
    weights = out / warm_start.FOLDER / "model.safetensors"
    assert weights.read_bytes() != (tmp_path / "model/model.safetensors").read_bytes()
    assert json.loads((out / "settings.json").read_text())["warm start examples"] == 8

    # The same call again trains nothing.
    written = weights.stat().st_mtime_ns
    assert run("--warm-start", "8") == 0
    assert weights.stat().st_mtime_ns == written
    assert "Warm start" not in capsys.readouterr().out


def test_another_warm_start_needs_another_folder(run, capsys):
    assert run("--warm-start", "8") == 0
    assert run() == 2
    assert "warm start examples" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--warm-start", "-1"), "give a number of examples from 0 on"),
        (("--warm-start", "4", "--sharded"), "holds the whole model in one process"),
    ],
)
def test_what_a_warm_start_cannot_do_is_said_in_one_line(run, options, message, capsys):
    assert run(*options) == 2
    assert message in capsys.readouterr().err
