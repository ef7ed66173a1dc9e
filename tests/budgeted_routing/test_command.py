"""`python -m lib train corl`: a controller of one's own, with a tiny model folder and experts without a model."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from lib import config
from lib.budgeted_routing import train_command as command
from lib.config import ParamsError
from lib.experiment import artifacts
from lib.language_models import checkpoints
from lib.llm.client import Client
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.transport import InProcess
from lib.tasks import Item
from tests.budgeted_routing import small
from tests.language_models import tiny
from tests.studies import Killed, dying, refuse

SMALL = [
    "--profile",
    "smoke",
    "--set",
    "batch=4",
    "--set",
    "updates.soft=2",
    "--set",
    "turn_tokens=6",
    "--set",
    "rounds=2",
    "--set",
    "learn.minibatch=4",
]
EXPERTS = {"lab-nano": "scripted-small", "lab-large": "scripted-large"}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a model and questions."""
    root = tmp_path_factory.mktemp("own")
    checkpoints.save(tiny.model(hidden=16, layers=1, heads=2, intermediate=16), root / "model")
    rows = [
        {"prompt": item.prompt, "reference": f"{i % 3}"} for i, item in enumerate(small.items(6))
    ]
    (root / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return root


@pytest.fixture
def four(monkeypatch):
    """The parameters with scripted experts, and programs in this process that answer for them: always 4."""
    told = config.settings(profile="smoke").model_dump()
    told["routing"]["experts"] = EXPERTS
    everything, load = config.validate_settings(told), config.load
    monkeypatch.setattr(
        config,
        "load",
        lambda profile=None, **_: everything if profile == "smoke" else load(profile),
    )

    def answer(body):
        return {
            "choices": [{"message": {"content": "<answer> 4 </answer>"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "completion_tokens": 3},
        }

    monkeypatch.setattr(
        command, "opened", lambda llm, *_, **__: Client(llm, {"scripted": InProcess(answer)})
    )


@pytest.fixture
def lucky(monkeypatch):
    """Controllers that answer 0, 1 or 2 by lot, whatever the model would have written: some of them are paid."""
    monkeypatch.setattr(
        command.Hub,
        "write",
        lambda hub, _, keys, __: [hub.encode(small.answer(k % 3)) for k in keys],
    )


@pytest.fixture
def talkative(monkeypatch):
    """Controllers that call the large expert in their first turn."""

    def write(hub, contexts, keys, temperature):
        heard = [
            hub.decode(ids).count("</response>") > 1 for ids in contexts
        ]  # the prompt explains the tag once
        return [hub.encode("so" if late else small.call("lab-large")) for late in heard]

    monkeypatch.setattr(command.Hub, "write", write)


def run(place: Path, out: str, *more: str) -> int:
    return command.main(
        [
            str(place / "model"),
            "--data",
            str(place / "own.jsonl"),
            "--out",
            str(place / out),
            *SMALL,
            *more,
        ]
    )


@pytest.fixture
def trained(place, four, lucky, silence, capsys):
    """A first training of two updates, done once for every test that looks at it."""
    if not (place / "out").exists():
        assert run(place, "out") == 0
        (place / "said").write_text(capsys.readouterr().out)
    return place / "out"


def test_it_trains_and_leaves_controller_rollouts_and_checkpoint(trained, place):
    rollouts = artifacts.read_parquet(trained / "rollouts.parquet")
    assert rollouts["step"].tolist() == [0] * 4 + [1] * 4 and set(rollouts["condition"]) <= set(
        command.BUDGETS
    )
    assert (rollouts["budget"] == rollouts["condition"].map(command.BUDGETS)).all()
    assert (trained / "controller/tokenizer_config.json").is_file()
    assert int(artifacts.read_tensors(trained / "checkpoint.safetensors")["step"]) == 2
    kept, held, start = (
        artifacts.read_tensors(path)
        for path in (
            trained / "controller/model.safetensors",
            trained / "checkpoint.safetensors",
            place / "model/model.safetensors",
        )
    )
    assert set(kept) == set(start) and any((kept[name] != start[name]).any() for name in kept)
    assert all((held[f"policy.{name}"] == kept[name]).all() for name in kept)
    said = (place / "said").read_text()
    assert (
        "update 1/2: reward" in said
        and "update 2/2: reward" in said
        and str(trained / "controller") in said
    )


def test_the_same_call_again_trains_nothing_and_one_with_more_updates_goes_on(
    trained, place, capsys
):
    before = {
        path.relative_to(trained): path.read_bytes()
        for path in trained.rglob("*")
        if path.is_file()
    }
    shutil.copytree(trained, place / "again")
    assert run(place, "again") == 0 and "update " not in capsys.readouterr().out
    assert {path: (place / "again" / path).read_bytes() for path in before} == before
    assert run(place, "again", "--set", "updates.soft=3") == 0
    first, rollouts = (
        artifacts.read_parquet(folder / "rollouts.parquet") for folder in (trained, place / "again")
    )
    assert rollouts["step"].tolist() == [0] * 4 + [1] * 4 + [2] * 4
    pd.testing.assert_frame_equal(rollouts.iloc[:8], first)
    said = capsys.readouterr().out
    assert "update 3/3" in said and "update 1/" not in said and "update 2/" not in said
    done, after = (
        artifacts.read_tensors(folder / "checkpoint.safetensors")
        for folder in (trained, place / "again")
    )
    assert int(after["step"]) == 3
    assert all((after[n] == done[n]).all() for n in done if n.startswith("reference."))
    assert any((after[n] != done[n]).any() for n in done if n.startswith("policy."))


def test_calls_reach_the_experts_and_are_charged(place, four, talkative, silence):
    assert run(place, "calls", "--budget", "low=0", "--style", "hard") == 0
    rollouts = artifacts.read_parquet(place / "calls/rollouts.parquet")
    assert set(rollouts["chosen"]) == {"lab-large"} and rollouts["failures"].eq(0).all()
    model = config.load("smoke").llm.models["scripted-large"]
    assert rollouts["cost_usd"].to_numpy() == pytest.approx(
        9 * model.price_in + 3 * model.price_out
    )
    low = rollouts["condition"] == "low"
    assert low.any() and rollouts[low]["within"].eq(0).all() and rollouts[low]["budget"].eq(0).all()
    assert rollouts[rollouts["condition"] == "high"]["within"].eq(1).all()


def test_a_training_killed_between_rollouts_and_checkpoint_repeats_no_rollout(
    trained, place, monkeypatch
):
    """The table is written first, so it may know more than the checkpoint: those rows are to be left out."""
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(command.TokenPPO, "save", dying(command.TokenPPO.save, 2))
        run(place, "killed")
    assert run(place, "killed") == 0
    whole, broken = (
        artifacts.read_parquet(folder / "rollouts.parquet")
        for folder in (trained, place / "killed")
    )
    assert broken["step"].tolist() == whole["step"].tolist()


def test_experts_may_be_changed_on_the_command_line(place, monkeypatch, silence):
    """params.yaml names lab models; where --set names others, the lab's need not be there."""
    monkeypatch.setattr("lib.language_models.serving.transport.lab", refuse)
    assert (
        run(place, "changed", "--set", f"experts={json.dumps(EXPERTS)}", "--set", "updates.soft=1")
        == 0
    )


@pytest.mark.parametrize(
    ("option", "given", "says"),
    [
        ("--data", "poor.csv", "poor.csv lacks the column 'reference'; it has prompt, answer"),
        ("--data", "talk.jsonl", "talk.jsonl, row 0: the prompt is to be text here"),
        *(
            (
                "--set",
                change,
                f"--set {re.escape(change.partition('=')[0])}",
            )  # the value may be a secret
            for change in ("learn.klo=1", "learn.kl", "nothing.at.all=1", "=1", "batch.x=1")
        ),
        ("--set", "batch=-1", "with --set.*routing.batch: .*greater than or equal to 2, got -1"),
        *(
            ("--budget", one, f"--budget {one}")
            for one in ("huge=1", "low", "low=much", "low=-1", "low=nan", "=1")
        ),
        ("--budget", "low=2000", "low, medium and high must rise"),
    ],
)
def test_a_mistake_ends_in_one_line_that_names_it(option, given, says, place, tmp_path, capsys):
    (tmp_path / "poor.csv").write_text("prompt,answer\n1 + 1 = ?,2\n")
    (tmp_path / "talk.jsonl").write_text(
        '{"prompt": [{"role": "user", "content": "a"}], "reference": "b"}\n'
    )
    assert run(place, "o", option, str(tmp_path / given) if option == "--data" else given) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and "\n" not in error and re.search(says, error)


def test_a_folder_without_a_model_is_named(place, capsys):
    assert (
        command.main(
            [str(place), "--data", str(place / "own.jsonl"), "--out", str(place / "o"), *SMALL]
        )
        == 2
    )
    assert re.search(f"error: {place} .*config.json", capsys.readouterr().err)


def test_a_batch_that_processes_cannot_share_is_refused(place, capsys, monkeypatch):
    monkeypatch.setattr(
        "accelerate.Accelerator", lambda: SimpleNamespace(num_processes=3, process_index=0)
    )
    assert run(place, "o") == 2
    assert "4 episodes cannot be shared by 3" in capsys.readouterr().err


def test_a_broken_checkpoint_is_named_with_a_remedy(place, four, silence, capsys):
    artifacts.write_tensors(place / "odd/checkpoint.safetensors", {"step": np.array(1)})
    assert run(place, "odd") == 2
    assert re.search("error: .*checkpoint.safetensors.*delete it", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (KeyboardInterrupt(), 130, "run the same command to go on"),
        (
            BudgetExceeded("lab-large", 1.0, 0.99, 0.02),
            2,
            "budget $1",
        ),  # how a long training usually ends
    ],
)
def test_a_training_that_stops_says_why_and_how_to_go_on(
    error, code, says, place, four, silence, capsys, monkeypatch
):
    def stopped(*_, **__):
        raise error

    monkeypatch.setattr(command, "roll", stopped)
    assert run(place, "stopped") == code
    assert says in capsys.readouterr().err


def test_the_first_line_stands_there_before_anything_large_is_read(tmp_path):
    """A library that is slow to read, as all are on a cold disk: what asks for it finds a line on the terminal."""
    (tmp_path / "torch.py").write_text("import sys\nsys.exit('torch is asked for')")
    asked = [
        sys.executable,
        "-m",
        "lib",
        "train",
        "corl",
        "model",
        "--data",
        "none.jsonl",
        "--out",
        "out",
    ]
    done = subprocess.run(
        asked,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": f"{tmp_path}:{config.ROOT}", "PATH": "/usr/bin:/bin"},
    )
    assert "torch is asked for" in done.stderr and done.stdout == "reading programs ...\n"


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
    assert command.exact(Item("?", "4", "", "data", 1, "?"), reply) == expected


def test_budgets_are_the_paper_s_unless_told_otherwise():
    assert command.budgets([]) == {"low": 0.001, "medium": 0.006, "high": 1000.0}
    assert command.budgets(["low=0", "high=2.5", "low=1e-6"]) == {
        "low": 1e-6,
        "medium": 0.006,
        "high": 2.5,
    }
    assert command.BUDGETS["low"] == 0.001  # unchanged


def test_it_trains_on_what_the_model_itself_writes(place, four, silence):
    assert run(place, "itself") == 0
    rollouts = artifacts.read_parquet(place / "itself/rollouts.parquet")
    assert (
        len(rollouts) == 8 and rollouts["written"].between(1, 2 * 6).all()
    )  # rounds and tokens of a turn
    assert rollouts["written"].nunique() + rollouts["tokens"].nunique() > 2


def test_changes_are_read_as_yaml_and_change_nothing_else():
    everything = config.load("smoke")
    settings = everything.routing
    changes = ["learn.kl=0.5", "updates.soft=7", "learn.whiten=false", "learn.kl=0.25"]
    made = command.changed(everything, changes)
    told = made.routing
    assert (told.learn.kl, told.updates["soft"], told.learn.whiten) == (0.25, 7, False)
    assert settings.learn.kl != 0.25 and settings.updates["soft"] != 7
    back = command.changed(
        made,
        [
            f"learn.kl={settings.learn.kl}",
            f"updates.soft={settings.updates['soft']}",
            f"learn.whiten={str(settings.learn.whiten).lower()}",
        ],
    )
    assert back == everything
    assert command.changed(everything, []) == everything
    with pytest.raises(
        ParamsError, match=r"routing.experts names the models \['nobody'\]"
    ):  # of another section
        command.changed(
            everything, ['experts={"lab-nano": "nobody", "lab-large": "scripted-large"}']
        )
