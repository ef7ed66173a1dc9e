"""`python -m lib train corl`: a controller of one's own, with a tiny model folder and experts without a model."""

import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from lib import config
from lib.budgeted_routing import train_command as command
from lib.experiment import artifacts
from lib.experiment.file_lock import hold_lock_alone
from lib.llm.chat_model import Failure, Reply
from lib.llm.cost_ledger import BudgetExceeded
from lib.plots import accessibility_check
from lib.rl.generators import HFGenerator
from lib.rl.token_ppo import TokenPPO
from lib.rl.user_training import inputs
from lib.rl.user_training.evaluation import START, TRAINED
from tests.budgeted_routing import small_systems as routing
from tests.llm import server
from tests.rl.user_training import small
from tests.studies import Killed, dying

TABLES = ("rollouts", "learning", "evaluation", "baselines", "experts")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a model and questions."""
    root = tmp_path_factory.mktemp("corl")
    small.make_qwen_folder(root / "model")
    small.write_questions(root / "questions.jsonl")
    return root


@pytest.fixture(autouse=True)
def sums(monkeypatch):
    """Experts that are programs in this process."""
    monkeypatch.setattr(inputs, "open_models", small.open_functions())


@pytest.fixture
def answering(monkeypatch):
    """Controllers that answer 0, 1 or 2, whatever the model would have written."""
    write_turns = small.script_turns(small.answer_by_seed)
    monkeypatch.setattr(HFGenerator, "write_turns", write_turns)


@pytest.fixture
def calling(monkeypatch):
    """Controllers that call the large expert in their first turn."""
    monkeypatch.setattr(HFGenerator, "write_turns", small.script_turns(small.call_large_first))


def run(place: Path, out: str, *more: str) -> int:
    arguments = ["--model", str(place / "model"), "--data", str(place / "questions.jsonl")]
    arguments += ["--out", str(place / out), "--experts", small.EXPERTS]
    return command.main([*arguments, *small.SMALL, *more])


@pytest.fixture
def trained(place, answering, capsys) -> Path:
    """A first training of two updates, done once for every test that looks at it."""
    if not (place / "out").exists():
        assert run(place, "out") == 0
        (place / "printed.txt").write_text(capsys.readouterr().out)
    return place / "out"


def read(folder: Path, name: str) -> pd.DataFrame:
    return artifacts.read_parquet(folder / f"{name}.parquet")


# What a run leaves -------------------------------------------------------------------------------


def test_a_run_leaves_controller_tables_summary_and_report(trained, place):
    rollouts = read(trained, "rollouts")
    assert rollouts["step"].tolist() == [0] * 4 + [1] * 4
    assert set(rollouts["condition"]) <= {"low", "medium", "high"}
    assert read(trained, "learning")["step"].tolist() == [1, 2]
    assert (trained / "controller/tokenizer_config.json").is_file()

    start = artifacts.read_tensors(place / "model/model.safetensors")
    after = artifacts.read_tensors(trained / "controller/model.safetensors")
    assert any((after[name] != start[name]).any() for name in start)

    summary = artifacts.read_json(trained / "summary.json")
    printed = (place / "printed.txt").read_text()
    assert summary["outcome"] in printed and "over the start" in summary["outcome"]
    assert "update 1/2: reward" in printed and str(trained / "report.html") in printed
    assert "at the peak" in printed  # of memory, before anything is read


def test_the_report_can_be_read_offline_and_without_seeing_its_figures(trained):
    page = (trained / "report.html").read_text()
    assert accessibility_check.problems(page) == []
    assert page.count("<img") >= 3 and "Episodes in words" in page
    assert artifacts.read_json(trained / "summary.json")["outcome"] in page.replace("&#x27;", "'")


def test_nothing_is_learned_from_a_held_out_question(trained):
    held_out = set(read(trained, "evaluation")["item"])
    assert len(held_out) == 2  # a fifth of ten
    assert not held_out & set(read(trained, "rollouts")["item"])


def test_every_method_answers_the_same_held_out_questions_under_every_budget(trained):
    rows = read(trained, "evaluation")
    assert {START, TRAINED, "always scripted-small", "always scripted-large"} <= set(rows["method"])
    assert {"controller alone", "random", "best constant", "oracle"} <= set(rows["method"])
    questions = rows.groupby("method").apply(
        lambda table: sorted(zip(table["item"], table["condition"], strict=True)),
        include_groups=False,
    )
    assert all(listed == questions[START] for listed in questions)
    assert len(questions[START]) == 2 * 3


def test_the_oracle_is_rewarded_as_much_as_any_baseline_on_every_question(trained):
    rows = read(trained, "evaluation")
    baselines = rows[~rows["role"].isin(["start", "paper"])]
    table = baselines.pivot(index=["item", "condition"], columns="method", values="reward")
    assert (table["oracle"] >= table.max(axis=1)).all()


def test_budgets_are_measured_so_that_low_affords_the_cheapest_expert_alone(trained):
    rollouts = read(trained, "rollouts")
    budgets = rollouts.groupby("condition")["budget"].first().to_dict()
    expected = {"low": 1e-5, "medium": 1e-3, "high": 1000.0}
    assert budgets == {word: pytest.approx(expected[word]) for word in budgets}


def test_a_budget_of_the_command_line_stands_and_calls_are_charged(place, calling):
    assert run(place, "calls", "--budget", "low=0", "--style", "hard", "--updates", "1") == 0
    rollouts = read(place / "calls", "rollouts")
    assert {name for names in rollouts["chosen"] for name in [names]} == {"scripted-large"}
    assert rollouts["cost_usd"].to_numpy() == pytest.approx(1e-3)
    rows = read(place / "calls", "evaluation")
    low = rows[(rows["method"] == TRAINED) & (rows["condition"] == "low")]
    high = rows[(rows["method"] == TRAINED) & (rows["condition"] == "high")]
    # The large expert is always right, which counts within the budget only.
    assert low["correct"].eq(1).all() and low["reward"].eq(0).all() and high["reward"].eq(1).all()


# Stopping and going on ---------------------------------------------------------------------------


def test_the_same_call_again_trains_nothing_and_changes_no_table(trained, place, capsys):
    shutil.copytree(trained, place / "again")
    assert run(place, "again") == 0
    assert "update " not in capsys.readouterr().out
    for name in TABLES:
        assert_frame_equal(read(trained, name), read(place / "again", name))


@pytest.mark.parametrize("stop", ["killed", "interrupted"])
def test_a_run_that_stops_and_goes_on_equals_one_that_never_stopped(
    trained, place, monkeypatch, stop, capsys
):
    with monkeypatch.context() as patch:
        if stop == "killed":
            patch.setattr(command.BudgetTraining, "collect_episodes", dying_at_second_update())
            with pytest.raises(Killed):
                run(place, stop)
        else:
            patch.setattr(
                command.BudgetTraining,
                "collect_episodes",
                dying_at_second_update(KeyboardInterrupt),
            )
            assert run(place, stop) == 130
            assert "run the same command to go on" in capsys.readouterr().err
    assert not (place / stop / "report.html").exists()
    assert run(place, stop) == 0
    for name in TABLES:
        assert_frame_equal(read(trained, name), read(place / stop, name))
    whole, resumed = (
        artifacts.read_tensors(folder / "controller/model.safetensors")
        for folder in (trained, place / stop)
    )
    assert all((whole[name] == resumed[name]).all() for name in whole)


def dying_at_second_update(error: type[BaseException] = Killed):
    """`collect_episodes` that raises an error when the second update begins."""
    collect_episodes = command.BudgetTraining.collect_episodes

    def collect(training, step):
        if step == 1:
            raise error
        return collect_episodes(training, step)

    return collect


def test_ctrl_c_in_a_rollout_keeps_updates_between_two_checkpoints(
    place, answering, monkeypatch, capsys
):
    with monkeypatch.context() as patch:
        patch.setattr(
            command.BudgetTraining, "collect_episodes", dying_at_second_update(KeyboardInterrupt)
        )
        assert run(place, "kept", "--set", "save_every=100") == 130
    capsys.readouterr()
    assert run(place, "kept", "--set", "save_every=100") == 0
    assert "update 1/2" not in capsys.readouterr().out


def test_a_training_killed_between_rollouts_and_checkpoint_repeats_no_rollout(
    trained, place, monkeypatch
):
    """The table is written first, so it may know more than the checkpoint: those rows are to be left out."""

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(TokenPPO, "save", dying(TokenPPO.save, 2))
        run(place, "torn")
    assert run(place, "torn") == 0
    assert_frame_equal(read(trained, "rollouts"), read(place / "torn", "rollouts"))


def test_a_limit_that_ends_a_run_says_so_in_one_line(place, answering, monkeypatch, capsys):
    def collect(*_):
        raise BudgetExceeded("scripted-large", 1.0, 0.99, 0.02)

    monkeypatch.setattr(command.BudgetTraining, "collect_episodes", collect)
    assert run(place, "limit") == 2
    error = capsys.readouterr().err.strip()
    assert "budget $1" in error and "\n" not in error


def test_a_folder_that_another_process_works_in_is_refused(place, answering, capsys):
    with hold_lock_alone(place / "locked/run.lock"):
        assert run(place, "locked") == 2
    assert "another process works in" in capsys.readouterr().err


def test_a_folder_of_other_settings_is_refused_with_what_differs(trained, place, capsys):
    assert run(place, "out", "--seed", "1", "--set", "learn.kl=0.5") == 2
    error = capsys.readouterr().err
    assert "was begun with" in error and "another --out" in error


def test_a_broken_checkpoint_is_named_with_a_remedy(trained, place, capsys):
    shutil.copytree(trained, place / "odd")
    artifacts.write_tensors(place / "odd/checkpoint.safetensors", {"step": np.array(1)})
    assert run(place, "odd") == 2
    assert re.search("error: .*checkpoint.safetensors.*delete it", capsys.readouterr().err)


# What goes wrong ---------------------------------------------------------------------------------


def test_lost_replies_are_in_no_score_and_said(place, calling, monkeypatch, capsys):
    num_answered = []

    def answer(name, request):
        # The trial and the baselines are answered: 8 and 8 + 2 questions for each of two experts.
        num_answered.append(name)
        if len(num_answered) <= 2 * (8 + 8 + 2):
            return small.answer_sums(name, request)
        return Reply("", name, "scripted", cost_usd=0.01, failure=Failure("timeout"))

    monkeypatch.setattr(inputs, "open_models", small.open_functions(answer))
    assert run(place, "lost", "--updates", "1") == 2  # nothing is left to compare
    printed = capsys.readouterr()
    rollouts = read(place / "lost", "rollouts")
    assert rollouts["failed"].all() and rollouts["reward"].isna().all()
    assert "4 lost" in printed.out
    assert "none of 2 held-out questions has a score" in printed.err


def test_a_prompt_over_the_window_is_counted_and_said(place, answering, capsys):
    rows = [{"prompt": f"{'word ' * 900}{number}", "reference": "1"} for number in range(5)]
    (place / "long.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert run(place, "long", "--updates", "1", "--data", str(place / "long.jsonl")) == 0
    printed = capsys.readouterr().out
    assert "4 prompts over the window" in printed
    assert "Training: 4 prompts were longer than the model's window." in printed


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--data", "poor.csv", "poor.csv has no column named reference, .*; it has prompt, reply"),
        ("--data", "gone.jsonl", "gone.jsonl does not exist"),
        ("--data", "two.csv", "2 id.*too few to hold one out"),
        (
            "--reference-column",
            "gold",
            "questions.jsonl has no column 'gold'; it has prompt, refer",
        ),
        ("--scorer", "nonsense", "unknown scorer 'nonsense'; there are: exact"),
        ("--scorer", "judge:nobody", "there is no model 'nobody'; llm.models has"),
        ("--experts", "scripted-small", "a choice needs two experts"),
        ("--experts", "scripted-small,nobody", "there is no model 'nobody'"),
        *(
            ("--set", change, f"--set {re.escape(change.partition('=')[0])}")
            for change in ("learn.klo=1", "learn.kl", "nothing.at.all=1", "=1", "batch.x=1")
        ),
        ("--set", "batch=-1", "with --set.*routing.batch: .*greater than or equal to 2, got -1"),
        ("--set", "llm.models.new=word", "--set llm.models.new: write {backend"),
        *(
            ("--budget", text, f"--budget {text}")
            for text in ("huge=1", "low", "low=much", "low=-1", "low=nan", "=1")
        ),
    ],
)
def test_a_mistake_ends_in_one_line_that_names_it(option, value, message, place, tmp_path, capsys):
    (tmp_path / "poor.csv").write_text("prompt,reply\n1 + 1 = ?,2\n")
    (tmp_path / "two.csv").write_text("prompt,reference\n1 + 1 = ?,2\n2 + 2 = ?,4\n")
    is_file = option == "--data"
    assert run(place, "mistake", option, str(tmp_path / value) if is_file else value) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and "\n" not in error and re.search(message, error)


def test_budgets_that_fall_are_refused(place, capsys):
    assert run(place, "mistake", "--budget", "low=2", "--budget", "high=1") == 2
    assert "must rise" in capsys.readouterr().err


def test_a_folder_without_a_model_is_named(place, capsys):
    assert run(place, "mistake", "--model", str(place)) == 2
    assert re.search(f"error: {place} .*config.json", capsys.readouterr().err)


def test_a_batch_that_processes_cannot_share_is_refused(place, capsys, monkeypatch):
    processes = SimpleNamespace(num_processes=3, process_index=0)
    monkeypatch.setattr("accelerate.Accelerator", lambda **_: processes)
    assert run(place, "mistake") == 2
    assert "4 episodes cannot be shared by 3" in capsys.readouterr().err


def test_without_arguments_the_command_shows_its_options(capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main([])
    assert stopped.value.code == 2
    assert "usage: python -m lib train corl" in capsys.readouterr().out


# Where replies lie -------------------------------------------------------------------------------


def test_everything_of_a_run_with_an_endpoint_lies_under_its_folder(
    place, calling, monkeypatch, capsys
):
    """Prompts and replies are the user's: no other folder gets a file, and a second run pays for nothing."""
    monkeypatch.undo()
    monkeypatch.setattr(HFGenerator, "write_turns", small.script_turns(small.call_large_first))
    answers = server.Answer(server.completion("It is <answer> 1 </answer>"))
    with routing.serve_answers(answers) as fake_server:
        about = server.settings(fake_server.url, api_key_env=None, reasoning_tokens=0).models[
            "mine"
        ]
        model = json.dumps(about.model_dump(exclude_none=True))
        more = ["--set", f"llm.models.scripted-small={model}", "--updates", "1"]
        more += ["--set", f"llm.models.scripted-large={model}"]
        before = {path: path.stat().st_mtime_ns for path in list_repository_files()}
        assert run(place, "paid", *more) == 0
        num_calls = len(fake_server.asked)
        shutil.copytree(place / "paid", place / "paid-again")
        for name in ("checkpoint.safetensors", "experts.parquet", "start.parquet"):
            (place / "paid-again" / name).unlink()
        assert run(place, "paid-again", *more) == 0
        assert len(fake_server.asked) == num_calls > 0
    assert {path: path.stat().st_mtime_ns for path in list_repository_files()} == before
    assert "It is <answer> 1 </answer>" in (place / "paid/routing.jsonl").read_text()
    assert "At most" in capsys.readouterr().out


def list_repository_files() -> list[Path]:
    """Where earlier versions wrote what a run had asked and paid."""
    folders = [config.ROOT / "data/cassettes", config.ROOT / "data/runs/routing"]
    return [path for folder in folders if folder.exists() for path in folder.glob("routing*")]
