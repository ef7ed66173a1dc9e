"""`python -m lib train toolorchestra`: an orchestrator of one's own, with a tiny model folder and scripted models."""

import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from lib.experiment import artifacts
from lib.llm.chat_model import Failure, Reply
from lib.plots import accessibility_check
from lib.rl.generators import HFGenerator
from lib.rl.user_training import inputs
from lib.rl.user_training.evaluation import START, TRAINED
from lib.tasks import draw_items
from lib.tool_orchestration import rewards
from lib.tool_orchestration import train_command as command
from tests.rl.user_training import small

TABLES = ("rollouts", "learning", "evaluation", "baselines", "start")


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder with a model and questions."""
    root = tmp_path_factory.mktemp("tools")
    small.make_qwen_folder(root / "model")
    small.write_questions(root / "questions.jsonl")
    return root


@pytest.fixture(autouse=True)
def sums(monkeypatch):
    """Models that are programs in this process."""
    monkeypatch.setattr(inputs, "open_models", small.open_functions())


def orchestrate(context: str, seed: int) -> str:
    """Answers 1 or calls a tool of the menu, by the seed; and passes the reply on."""
    if context.count("</response>") > 1:
        return "<answer> it </answer>"
    if seed % 3 == 0:
        return "<answer> 1 </answer>"
    tools = re.findall(r"^- (\S+) \(", context, re.MULTILINE)
    tool = tools[seed % len(tools)]
    argument = "question" if tool.startswith("scripted") else "1 + 0"
    return f"<call> {tool} {argument} </call>"


def heed_price(context: str, seed: int) -> str:
    """Calls the large model for users who care for accuracy, and answers 1 for others; all menus may lack it."""
    if context.count("</response>") > 1:
        return "<answer> it </answer>"
    cares_for_accuracy = "accuracy 1.0" in context
    if cares_for_accuracy and "- scripted-large" in context:
        return "<call> scripted-large question </call>"
    return "<answer> 1 </answer>"


@pytest.fixture
def orchestrating(monkeypatch):
    monkeypatch.setattr(HFGenerator, "write_turns", small.script_turns(orchestrate))


def run(place: Path, out: str, *more: str) -> int:
    arguments = ["--model", str(place / "model"), "--data", str(place / "questions.jsonl")]
    arguments += ["--out", str(place / out), "--experts", small.EXPERTS]
    arguments += ["--set", "rollouts=4", "--set", "learn.microbatch=8", "--batch", "8"]
    return command.main([*arguments, *small.SMALL[:4], *small.SMALL[6:], "--batch", "8", *more])


@pytest.fixture
def trained(place, orchestrating, capsys) -> Path:
    """A first training of two updates, done once for every test that looks at it."""
    if not (place / "out").exists():
        assert run(place, "out") == 0
        (place / "printed.txt").write_text(capsys.readouterr().out)
    return place / "out"


def read(folder: Path, name: str) -> pd.DataFrame:
    return artifacts.read_parquet(folder / f"{name}.parquet")


def test_a_run_leaves_orchestrator_tables_summary_and_report(trained, place):
    rollouts = read(trained, "rollouts")
    assert len(rollouts) == 16 and rollouts["reward"].notna().all()
    assert rollouts.groupby(["step", "rollout_group"])["item"].nunique().eq(1).all()
    assert (
        artifacts.read_json(trained / "summary.json")["outcome"]
        in (place / "printed.txt").read_text()
    )
    assert accessibility_check.problems((trained / "report.html").read_text()) == []
    assert (trained / "controller/config.json").is_file()
    learning = read(trained, "learning")
    assert {"learned_from", "left_out_malformed", "left_out_agreeing", "reward"} <= set(learning)


def test_a_training_learns_from_groups_whose_rewards_differ(trained, place):
    learning = read(trained, "learning")
    assert learning["learned_from"].sum() > 0
    before = artifacts.read_tensors(place / "model/model.safetensors")
    after = artifacts.read_tensors(trained / "controller/model.safetensors")
    assert any((after[name] != before[name]).any() for name in before)


def test_nothing_is_learned_from_a_held_out_question(trained):
    held_out = set(read(trained, "evaluation")["item"])
    assert held_out and not held_out & set(read(trained, "rollouts")["item"])


def test_every_rule_of_the_lesson_answers_the_same_held_out_questions(trained):
    rows = read(trained, "evaluation")
    methods = {START, TRAINED, "best single tool", "random", "oracle", "best by kind"}
    assert methods <= set(rows["method"])
    assert any(method.startswith("prefer scripted") for method in rows["method"])
    questions = rows.groupby("method")["item"].agg(lambda items: sorted(items))
    assert all(listed == questions[START] for listed in questions)
    assert not set(rows["method"]) & {"prefer calculator", "prefer python"}


def test_the_oracle_is_rewarded_as_much_as_any_single_model_on_every_question(trained):
    rows = read(trained, "evaluation")
    baselines = rows[~rows["role"].isin(["start", "paper", "router"])]
    table = baselines.pivot(index=["item", "sample"], columns="method", values="reward")
    assert (table["oracle"] >= table.max(axis=1) - 1e-12).all()


def test_rewards_of_the_evaluation_are_those_of_the_training_over_all_answers_to_a_question(
    trained,
):
    """By hand, for one question: minimum and maximum over start, trained, and the models that were on its menu."""
    start, rows = read(trained, "start"), read(trained, "evaluation")
    tries = read(trained, "baselines")
    question = start[start["condition"] == command.DRAWN_USERS].iloc[0]
    answers = rows[(rows["item"] == question["item"]) & rows["method"].isin([START, TRAINED])]
    vectors = list(np.stack(answers["m"]))
    names = [*command.GENERAL_FUNCTIONS, "scripted-small", "scripted-large"]
    for row in tries[
        (tries["split"] == "test") & (tries["item"] == question["number"])
    ].itertuples():
        calls = [float(row.calls) if name == row.tool else 0.0 for name in names]
        vectors.append(np.array([*calls, row.correct, -row.cost_usd, -row.seconds]))
    m = np.stack(vectors)
    normalised = rewards.normalize_within_groups(m, [0] * len(m))
    weights = np.tile(np.array(question["p"]), (len(m), 1))
    expected = rewards.compute_preference_rewards(normalised, weights, m[:, -3])
    assert answers["reward"].to_numpy() == pytest.approx(expected[: len(answers)])


def test_the_prompt_says_prices_times_wishes_and_the_form_of_a_call(trained):
    prompt = read(trained, "episodes")["spoken"].iloc[0]
    assert "<call> TOOL argument </call>" in prompt and "What matters to me" in prompt
    assert re.search(r"about \$[\d.e-]+ and [\d.e+-]+ seconds", prompt)


def test_users_steer_an_orchestrator_that_heeds_them(place, monkeypatch, capsys):
    monkeypatch.setattr(HFGenerator, "write_turns", small.script_turns(heed_price))
    assert run(place, "steered", "--updates", "1", "--held-out", "0.6") == 0
    printed = capsys.readouterr().out
    found = re.search(
        r"Steering after training: .* cost \$([\d.e-]+) \[.*\] a question more", printed
    )
    assert float(found[1]) > 0


def test_a_run_that_was_interrupted_and_goes_on_equals_one_that_never_stopped(
    trained, place, monkeypatch
):
    collect_episodes = command.ToolTraining.collect_episodes

    def collect(training, step):
        if step == 1:
            raise KeyboardInterrupt
        return collect_episodes(training, step)

    with monkeypatch.context() as patch:
        patch.setattr(command.ToolTraining, "collect_episodes", collect)
        assert run(place, "interrupted") == 130
    assert run(place, "interrupted") == 0
    for name in TABLES:
        assert_frame_equal(read(trained, name), read(place / "interrupted", name))
    whole, resumed = (
        artifacts.read_tensors(folder / "controller/model.safetensors")
        for folder in (trained, place / "interrupted")
    )
    assert all((whole[name] == resumed[name]).all() for name in whole)


def test_the_same_call_again_trains_nothing(trained, place, capsys):
    shutil.copytree(trained, place / "again")
    assert run(place, "again") == 0
    assert "update " not in capsys.readouterr().out
    for name in TABLES:
        assert_frame_equal(read(trained, name), read(place / "again", name))


def test_lost_replies_are_in_no_score_and_said(place, orchestrating, monkeypatch, capsys):
    num_answered = []

    def answer(name, request):
        num_answered.append(name)
        # The trial is answered, and nothing afterwards.
        if len(num_answered) <= 2 * 8:
            return small.answer_sums(name, request)
        return Reply("", name, "scripted", failure=Failure("timeout"))

    monkeypatch.setattr(inputs, "open_models", small.open_functions(answer))
    run(place, "lost", "--updates", "1")
    rollouts = read(place / "lost", "rollouts")
    assert rollouts["failed"].any()
    assert rollouts.loc[rollouts["failed"], "reward"].isna().all()
    assert f"{rollouts['failed'].sum()} lost" in capsys.readouterr().out


def test_search_and_lookup_are_offered_for_the_lab_s_world_only():
    assert (
        command.choose_functions(draw_items("facts", "train", 2, 1), ["mine"]) == command.FUNCTIONS
    )
    from lib.tasks import load

    own = load("reasoning_gym:chain_sum?size=3").items
    assert command.choose_functions(own, ["mine"]) == ("calculator", "python")


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--batch", "6", "6 episodes are no whole number of groups of 4 rollouts"),
        ("--experts", "scripted-small,nobody", "there is no model 'nobody'"),
        ("--set", "learn.klo=1", "--set learn.klo"),
        ("--scorer", "nonsense", "unknown scorer 'nonsense'"),
    ],
)
def test_a_mistake_ends_in_one_line_that_names_it(option, value, message, place, capsys):
    assert run(place, "mistake", option, value) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and "\n" not in error and message in error


def test_without_arguments_the_command_shows_its_options(capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main([])
    assert stopped.value.code == 2
    assert "usage: python -m lib train toolorchestra" in capsys.readouterr().out
