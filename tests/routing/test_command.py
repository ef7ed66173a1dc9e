"""`python -m lib.routing`: a controller of one's own, with a tiny model folder and experts without a model."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib import params, store
from lib.ledger import BudgetExceeded
from lib.llm.client import Client
from lib.llm.transport import InProcess
from lib.models import checkpoints
from lib.params import ParamsError
from lib.routing import own as command
from lib.tasks import Item
from tests.models import tiny
from tests.routing import small
from tests.studies import Killed, dying

SMALL = ["--profile", "smoke", "--set", "batch=4", "--set", "updates.soft=2", "--set", "turn_tokens=6", "--set",
         "rounds=2", "--set", "learn.minibatch=4"]  # fmt: skip
EXPERTS = {"lab-nano": "scripted-small", "lab-large": "scripted-large"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a model and questions."""
    root = tmp_path_factory.mktemp("own")
    checkpoints.save(tiny.model(hidden=16, layers=1, heads=2, intermediate=16), root / "model")
    rows = [{"prompt": item.prompt, "reference": f"{i % 3}"} for i, item in enumerate(small.items(6))]
    (root / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return root


@pytest.fixture
def four(monkeypatch):
    """The parameters with scripted experts, and programs in this process that answer for them: always 4."""
    told = params.settings(profile="smoke").model_dump()
    told["routing"]["experts"] = EXPERTS
    everything, load = params.validate(told), params.load
    monkeypatch.setattr(params, "load", lambda profile=None, **_: everything if profile == "smoke" else load(profile))

    def answer(body):
        return {"choices": [{"message": {"content": "<answer> 4 </answer>"}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 9, "completion_tokens": 3}}  # fmt: skip

    monkeypatch.setattr(command, "opened", lambda llm, *_, **__: Client(llm, {"scripted": InProcess(answer)}))


@pytest.fixture
def lucky(monkeypatch):
    """Controllers that answer 0, 1 or 2 by lot, whatever the model would have written: some of them are paid."""
    monkeypatch.setattr(
        command.Hub,
        "write",
        lambda hub, contexts, keys, temperature: [hub.encode(small.answer(key % 3)) for key in keys],
    )


@pytest.fixture
def talkative(monkeypatch):
    """Controllers that call the large expert in their first turn."""

    def write(hub, contexts, keys, temperature):
        heard = [hub.decode(ids).count("</response>") > 1 for ids in contexts]  # the prompt explains the tag once
        return [hub.encode("so" if late else small.call("lab-large")) for late in heard]

    monkeypatch.setattr(command.Hub, "write", write)


def run(place: Path, out: str, *more: str) -> int:
    return command.main([str(place / "model"), "--data", str(place / "own.jsonl"), "--out", str(place / out),
                         *SMALL, *more])  # fmt: skip


def complaint(capsys) -> str:
    """The one line on stderr."""
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ")
    return lines[0]


# It trains ----------------------------------------------------------------------------------------


@pytest.fixture
def trained(place, four, lucky, silence, capsys):
    """A first training of two updates, done once for every test that looks at it."""
    if not (place / "out").exists():
        assert run(place, "out") == 0
        (place / "said").write_text(capsys.readouterr().out)
    return place / "out"


def test_it_trains_and_leaves_controller_rollouts_and_checkpoint(trained, place):
    rollouts = store.read_parquet(trained / "rollouts.parquet")
    assert rollouts["update"].tolist() == [0] * 4 + [1] * 4 and set(rollouts["label"]) <= set(command.BUDGETS)
    assert (rollouts["budget"] == rollouts["label"].map(command.BUDGETS)).all()
    assert (trained / "controller/tokenizer_config.json").is_file()
    assert int(store.read_tensors(trained / "checkpoint.safetensors")["step"]) == 2
    kept = store.read_tensors(trained / "controller/model.safetensors")
    start = store.read_tensors(place / "model/model.safetensors")
    assert set(kept) == set(start) and any((kept[name] != start[name]).any() for name in kept)
    said = (place / "said").read_text()
    assert "update 1/2: reward" in said and "update 2/2: reward" in said and str(trained / "controller") in said


def test_a_second_call_with_more_updates_goes_on_and_repeats_nothing(trained, place, capsys):
    first = store.read_parquet(trained / "rollouts.parquet")
    done = store.read_tensors(trained / "checkpoint.safetensors")
    before = {path: path.read_bytes() for path in trained.rglob("*") if path.is_file()}
    try:
        assert run(place, "out", "--set", "updates.soft=3") == 0
        rollouts = store.read_parquet(trained / "rollouts.parquet")
        assert rollouts["update"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
        pd.testing.assert_frame_equal(rollouts.iloc[:8], first)
        said = capsys.readouterr().out
        assert "update 3/3" in said and "update 1/" not in said and "update 2/" not in said
        after = store.read_tensors(trained / "checkpoint.safetensors")
        assert int(after["step"]) == 3
        assert all((after[n] == done[n]).all() for n in done if n.startswith("reference."))
        assert any((after[n] != done[n]).any() for n in done if n.startswith("policy."))
    finally:
        for path, content in before.items():
            path.write_bytes(content)


def test_calls_reach_the_experts_and_are_charged(place, four, talkative, silence):
    assert run(place, "calls", "--budget", "low=0", "--style", "hard") == 0
    rollouts = store.read_parquet(place / "calls/rollouts.parquet")
    assert set(rollouts["called"]) == {"lab-large"} and rollouts["failures"].eq(0).all()
    model = params.load("smoke").llm.models["scripted-large"]
    assert rollouts["dollars"].to_numpy() == pytest.approx(9 * model.price_in + 3 * model.price_out)
    low = rollouts["label"] == "low"
    assert low.any() and rollouts[low]["within"].eq(0).all() and rollouts[low]["budget"].eq(0).all()
    assert rollouts[rollouts["label"] == "high"]["within"].eq(1).all()


def test_a_training_killed_between_rollouts_and_checkpoint_repeats_no_rollout(trained, place, monkeypatch):
    """The table is written first, so it may know more than the checkpoint: those rows are to be left out."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(command.Learner, "save", dying(command.Learner.save, 2))
        run(place, "killed")
    assert run(place, "killed") == 0
    whole, broken = (store.read_parquet(folder / "rollouts.parquet") for folder in (trained, place / "killed"))
    assert broken["update"].tolist() == whole["update"].tolist()


def test_experts_may_be_changed_on_the_command_line(place, monkeypatch, silence):
    """params.yaml names lab models; where --set names others, the lab's need not be there."""

    def never(*_):
        raise checkpoints.ModelError("no lab models here")

    monkeypatch.setattr("lib.models.transport.lab", never)
    assert run(place, "changed", "--set", f"experts={json.dumps(EXPERTS)}", "--set", "updates.soft=1") == 0


# Mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("poor.csv", "prompt,answer\n1 + 1 = ?,2\n", r"reference.*\['prompt', 'answer'\]"),
        ("own.txt", "prompt,reference\n1,2\n", ".jsonl, .csv or .parquet"),
        ("folder.jsonl", None, ".jsonl, .csv or .parquet"),
        ("empty.csv", "prompt,reference\n", "empty.csv"),
        ("broken.jsonl", '{"prompt": \n', "broken.jsonl cannot be read"),
        ("hole.csv", "prompt,reference\na?,b\nc?,\n", "row 2 lacks its prompt or its reference"),
    ],
)
def test_what_is_no_table_of_questions_is_named(place, capsys, name, text, says):
    path = place / name
    path.mkdir() if text is None else path.write_text(text)
    assert run(place, "o", "--data", str(path)) == 2
    assert re.search(says, complaint(capsys))


@pytest.mark.parametrize("change", ["learn.klo=1", "learn.kl", "nothing.at.all=1", "=1", "batch.x=1"])
def test_a_change_of_nothing_is_named(place, capsys, change):
    assert run(place, "o", "--set", change) == 2
    assert f"--set {change.partition('=')[0]}" in complaint(capsys)  # the value may be a secret and is not told


def test_a_batch_that_processes_cannot_share_is_refused(place, capsys, monkeypatch):
    class Three:
        num_processes, process_index = 3, 0

    monkeypatch.setattr("accelerate.Accelerator", Three)
    assert run(place, "o") == 2
    assert "4 episodes cannot be shared by 3" in complaint(capsys)


def test_a_broken_checkpoint_is_named_with_a_remedy(place, four, silence, capsys):
    store.write_tensors(place / "odd/checkpoint.safetensors", {"step": np.array(1)})
    assert run(place, "odd") == 2
    assert "delete it" in complaint(capsys)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyboardInterrupt(), 130, "run the same command to go on"),
        (BudgetExceeded("lab-large", 1.0, 0.99, 0.02), 2, "budget $1"),  # how a long training usually ends
    ],
)
def test_a_training_that_stops_says_why_and_how_to_go_on(error, code, says, place, four, silence, capsys, monkeypatch):
    def stopped(*_, **__):
        raise error

    monkeypatch.setattr(command, "roll", stopped)
    assert run(place, "stopped") == code
    assert says in capsys.readouterr().err


def test_the_first_line_stands_there_before_anything_large_is_read(tmp_path):
    """A library that is slow to read, as all are on a cold disk: what asks for it finds a line on the terminal."""
    (tmp_path / "torch.py").write_text("import sys\nsys.exit('torch is asked for')")
    asked = [sys.executable, "-m", "lib.routing", "model", "--data", "none.jsonl", "--out", "out"]
    done = subprocess.run(asked, cwd=tmp_path, capture_output=True, text=True,
                          env={"PYTHONPATH": f"{tmp_path}:{params.ROOT}", "PATH": "/usr/bin:/bin"})  # fmt: skip
    assert "torch is asked for" in done.stderr and done.stdout == "reading programs ...\n"


# By hand ------------------------------------------------------------------------------------------


def item(answer: str) -> Item:
    return Item("?", answer, "", "data", 1, "?")


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ("<answer> 4 </answer>", 1.0),
        ("so <answer>\n4\t</answer>", 1.0),
        ("<answer> 5 </answer>", 0.0),
        ("<answer> 4 5 </answer>", 0.0),
        ("4", 0.0),
        ("", 0.0),
    ],
)
def test_an_answer_is_right_if_it_is_the_reference(reply, expected):
    assert command.exact(item("4"), reply) == expected


def test_budgets_are_the_paper_s_unless_told_otherwise():
    assert command.budgets([]) == {"low": 0.001, "medium": 0.006, "high": 1000.0}
    assert command.budgets(["low=0", "high=2.5", "low=1e-6"]) == {"low": 1e-6, "medium": 0.006, "high": 2.5}
    assert command.BUDGETS["low"] == 0.001  # unchanged
    for wrong in ("lowest=1", "low=", "=1"):
        with pytest.raises(ParamsError, match="low, medium or high"):
            command.budgets([wrong])


ROWS = pd.DataFrame({"prompt": ["a, b?", "c?"], "reference": ["007", "4.50"], "more": [1, 2]})


@pytest.mark.parametrize("kind", ["jsonl", "csv", "parquet"])
def test_questions_are_the_rows_of_a_file_with_references_as_they_stand_there(tmp_path, kind):
    """`exact` compares text, so 007 must not become 7, nor 4.50 become 4.5."""
    path = tmp_path / f"own.{kind}"
    if kind == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in ROWS.to_dict("records")))
    elif kind == "csv":
        ROWS.to_csv(path, index=False)
    else:
        ROWS.to_parquet(path)
    items = command.questions(path)
    assert [one.prompt for one in items] == ["a, b?", "c?"]
    assert [one.answer for one in items] == ["007", "4.50"]


def test_it_trains_on_what_the_model_itself_writes(place, four, silence):
    assert run(place, "itself") == 0
    rollouts = store.read_parquet(place / "itself/rollouts.parquet")
    assert len(rollouts) == 8 and rollouts["written"].between(1, 2 * 6).all()  # rounds and tokens of a turn
    assert rollouts["written"].nunique() + rollouts["tokens"].nunique() > 2


def test_the_checkpoint_and_the_controller_hold_the_same_weights(trained):
    kept, held = (store.read_tensors(trained / n) for n in ("controller/model.safetensors", "checkpoint.safetensors"))
    assert all((held[f"policy.{name}"] == kept[name]).all() for name in kept)


def test_the_same_call_again_trains_nothing_more(trained, place, capsys):
    first = store.read_parquet(trained / "rollouts.parquet")
    weights = store.read_tensors(trained / "controller/model.safetensors")
    assert run(place, "out") == 0
    assert "update " not in capsys.readouterr().out
    pd.testing.assert_frame_equal(store.read_parquet(trained / "rollouts.parquet"), first)
    again = store.read_tensors(trained / "controller/model.safetensors")
    assert all((again[name] == weights[name]).all() for name in weights)


def test_a_folder_without_a_model_is_named(place, capsys):
    assert command.main([str(place), "--data", str(place / "own.jsonl"), "--out", str(place / "o"), *SMALL]) == 2
    told = complaint(capsys)
    assert "config.json" in told and str(place) in told


@pytest.mark.parametrize("budget", ["huge=1", "low", "low=much", "low=-1", "low=nan"])
def test_a_bad_budget_is_named(place, capsys, budget):
    assert run(place, "o", "--budget", budget) == 2
    assert f"--budget {budget}" in complaint(capsys)


def test_an_expert_that_is_no_model_is_named(place, capsys):
    experts = {"lab-nano": "nobody", "lab-large": "scripted-large"}
    assert run(place, "o", "--set", f"experts={json.dumps(experts)}") == 2
    assert "routing.experts names the models ['nobody']" in capsys.readouterr().err


def test_changes_are_read_as_yaml_and_change_nothing_else():
    everything = params.load("smoke")
    settings = everything.routing
    changes = ["learn.kl=0.5", "updates.soft=7", "learn.whiten=false", "learn.kl=0.25"]
    made = command.changed(everything, changes)
    told = made.routing
    assert (told.learn.kl, told.updates["soft"], told.learn.whiten) == (0.25, 7, False)
    assert settings.learn.kl != 0.25 and settings.updates["soft"] != 7
    back = command.changed(made, [f"learn.kl={settings.learn.kl}", f"updates.soft={settings.updates['soft']}",
                                  f"learn.whiten={str(settings.learn.whiten).lower()}"])  # fmt: skip
    assert back == everything
    assert command.changed(everything, []) == everything
