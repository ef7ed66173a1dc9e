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
from lib.llm.chat_model import Failure, Reply
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.open_models import ChatModels
from lib.rl import call_protocol
from lib.rl.expert_pool import ExpertPool
from lib.tasks import Dataset, Item
from tests.budgeted_routing import small
from tests.language_models import tiny
from tests.llm import server
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


def open_fours(llm, names, *_) -> ChatModels:
    """Models that always answer 4, for nine tokens read and three written, at the price of the settings."""

    def answer(name, request):
        about = llm.models[name]
        cost_usd = 9 * about.price_in + 3 * about.price_out
        text = "<answer> 4 </answer>"
        return Reply(text, name, "scripted", tokens_in=9, tokens_out=3, cost_usd=cost_usd)

    return ChatModels({name: small.FunctionModel(name, answer) for name in names})


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

    monkeypatch.setattr(command, "open_models", open_fours)


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
    monkeypatch.setattr("lib.language_models.local_models.open_lab_model", refuse)
    assert (
        run(place, "changed", "--set", f"experts={json.dumps(EXPERTS)}", "--set", "updates.soft=1")
        == 0
    )


@pytest.mark.parametrize(
    ("option", "given", "says"),
    [
        ("--data", "poor.csv", "poor.csv has no column named reference, .*; it has prompt, reply"),
        ("--data", "gone.jsonl", "gone.jsonl does not exist"),
        ("--reference-column", "gold", "own.jsonl has no column 'gold'; it has prompt, reference"),
        ("--scorer", "nonsense", "unknown scorer 'nonsense'; there are: exact"),
        ("--scorer", "judge:nobody", "there is no model 'nobody'; llm.models has"),
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
    (tmp_path / "poor.csv").write_text("prompt,reply\n1 + 1 = ?,2\n")
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
        ParamsError, match=r"routing.* names the models \['nobody'\]"
    ):  # of another section
        command.changed(
            everything, ['experts={"lab-nano": "nobody", "lab-large": "scripted-large"}']
        )


def test_columns_and_scorer_of_one_s_own_decide_what_is_right(
    place, four, silence, monkeypatch, capsys
):
    """As a file that nobody wrote for this command: other names, numbers in many forms."""
    rows = [{"frage": item.prompt, "loesung": "1,000"} for item in small.items(6)]
    (place / "german.jsonl").write_text("\n".join(map(json.dumps, rows)))
    # The lab's tokenizer has no comma in numbers, so the controller answers with digits.
    written = f"{call_protocol.thought('low')} <answer> 1 0 0 0 </answer>"
    monkeypatch.setattr(
        command.Hub, "write", lambda hub, contexts, *_: [hub.encode(written) for _ in contexts]
    )
    monkeypatch.setattr(command.Hub, "decode", lambda hub, ids: "so <answer> 1000.0 </answer>")
    asks = ["--data", str(place / "german.jsonl"), "--prompt-column", "frage"]
    asks += ["--reference-column", "loesung", "--scorer", "numeric"]
    assert run(place, "german", *asks) == 0
    rollouts = artifacts.read_parquet(place / "german/rollouts.parquet")
    assert rollouts["correct"].eq(1.0).all()
    assert "6 questions, scored by numeric" in capsys.readouterr().out


@pytest.mark.parametrize(("style", "updates"), [("soft", 1), ("hard", 3)])
def test_each_style_of_prompt_has_its_own_number_of_updates(
    place, four, lucky, silence, style, updates
):
    changes = ["--set", "updates.soft=1", "--set", "updates.hard=3"]
    assert run(place, f"style-{style}", "--style", style, *changes) == 0
    rollouts = artifacts.read_parquet(place / f"style-{style}/rollouts.parquet")
    assert rollouts["step"].nunique() == updates


def test_a_lost_reply_is_in_no_reward_and_said_in_the_line_of_its_update(
    place, four, talkative, silence, monkeypatch, capsys
):
    num_trial_calls = 2 * 6  # each of two experts is asked the six questions first

    def open_lost(llm, names, *_):
        requests = []

        def answer(name, request):
            requests.append(request)
            is_trial = len(requests) <= num_trial_calls
            failure = None if is_trial else Failure("timeout")
            return Reply("It is 4.", name, "scripted", cost_usd=0.01, failure=failure)

        return ChatModels({name: small.FunctionModel(name, answer) for name in names})

    monkeypatch.setattr(command, "open_models", open_lost)
    assert run(place, "lost", "--set", "updates.soft=1") == 0
    rollouts = artifacts.read_parquet(place / "lost/rollouts.parquet")
    assert rollouts["failed"].all() and rollouts["reward"].isna().all()
    said = capsys.readouterr().out
    assert "4 lost" in said and "lab-large: 10 calls, 4 failed (40.0%)" in said


def test_questions_that_a_lab_expert_would_read_with_holes_are_refused(place, capsys):
    (place / "eggs.jsonl").write_text('{"prompt": "Natalia sold 48 clips .", "reference": "48"}\n')
    assert run(place, "eggs", "--data", str(place / "eggs.jsonl")) == 2
    error = capsys.readouterr().err
    assert "are lab models" in error and "question 1 has 'Natalia'" in error


def test_the_plan_counts_the_questions_as_long_as_they_are_and_one_expert_a_call():
    """4 of 4 episodes with one call each, to the more expensive of two endpoints, after 3 trial calls to each."""
    about = {"backend": "endpoint", "base_url": "http://localhost:1/v1", "model": "m"}
    common = {"kwh_per_token": 0.0, "temperature": 1.0, "max_tokens": 100, "timeout": 1.0}
    common |= {"retries": 0, "concurrency": 1}
    prices = {"cheap": 1e-6, "costly": 1e-5}
    models = {
        name: about | common | {"price_in": price, "price_out": 2 * price}
        for name, price in prices.items()
    }
    llm = config.validate_settings(
        {"cassette": "off", "max_usd": 5.0, "models": models}, config.LLMSettings, "a test"
    )
    changes = {"experts": {"a": "cheap", "b": "costly"}, "batch": 4, "rounds": 2, "turn_tokens": 8}
    settings = small.SMOKE.model_copy(update=changes)
    items = tuple(Item("word " * 800, "4", "", "own", 1, str(i)) for i in range(3))
    dataset = Dataset("own", items, "exact")
    sentence = command.plan_calls(llm, settings, dataset, num_updates=1)
    # 1,000 tokens in and 100 out: 7 * (1000 * 1e-5 + 100 * 2e-5) + 3 * (1000 * 1e-6 + 100 * 2e-6) = .0876
    assert sentence.startswith("At most 10 calls and $0.09 to endpoints")
    judged = command.plan_calls(llm, settings, dataset, 1, judges=["cheap"])
    assert judged.startswith("At most 14 calls")


def test_everything_of_a_run_with_an_endpoint_lies_under_its_folder(
    place, silence, talkative, monkeypatch, capsys
):
    """Prompts and replies are the user's: no other folder gets a file, and a second run pays for nothing."""
    expert = {"temperature": 1.0, "max_tokens": 50, "api_key_env": None, "reasoning_tokens": 0}
    answers = server.Answer(server.completion("It is <answer> 4 </answer>"))
    with small.serving(answers) as fake_server:
        llm = server.settings(fake_server.url, **expert).models["mine"]
        content = config.settings(profile="smoke").model_dump()
        content["llm"]["models"]["mine"] = llm.model_dump()
        content["llm"]["cassette"] = "record"
        content["routing"]["experts"] = {"lab-nano": "mine", "lab-large": "mine"}
        params = config.validate_settings(content)
        monkeypatch.setattr(config, "load", lambda profile=None, **_: params)
        before = {path: path.stat().st_mtime_ns for path in list_repository_files()}
        assert run(place, "paid", "--set", "updates.soft=1") == 0
        first_calls = len(fake_server.asked)
        shutil.copytree(place / "paid", place / "paid-again")
        (place / "paid-again/checkpoint.safetensors").unlink()
        assert run(place, "paid-again", "--set", "updates.soft=1") == 0
        assert len(fake_server.asked) == first_calls > 0
    assert {path: path.stat().st_mtime_ns for path in list_repository_files()} == before
    recorded = (place / "paid/routing.jsonl").read_text()
    assert "It is <answer> 4 </answer>" in recorded
    assert "At most 16 calls" in capsys.readouterr().out


def list_repository_files() -> list[Path]:
    """Where earlier versions wrote what a run had asked and paid."""
    folders = [config.ROOT / "data/cassettes", config.ROOT / "data/runs/routing"]
    return [path for folder in folders if folder.exists() for path in folder.glob("routing*")]


def test_the_controller_is_told_what_calls_cost_and_not_the_list_price():
    def answer(name, request):
        num_words = {"nano": 10, "large": 400}[name]
        return Reply("word", name, "endpoint", tokens_out=num_words, cost_usd=1e-5 * num_words)

    models = ChatModels({name: small.FunctionModel(name, answer) for name in ("nano", "large")})
    items = [Item(f"question {n}", "4", "", "own", 1, str(n)) for n in range(20)]
    experts = {"lab-nano": "nano", "lab-large": "large"}
    with ExpertPool(models, experts, 1.0, tells_rules=False) as pool:
        costs = command.measure_call_costs(pool, items)
        assert pool.counts["lab-nano"].calls == command.TRIAL_QUESTIONS
    assert costs == {"lab-nano": pytest.approx(1e-4), "lab-large": pytest.approx(4e-3)}
