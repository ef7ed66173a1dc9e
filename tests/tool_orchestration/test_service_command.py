"""`python -m lib evaluate toolorchestra --tasks tau2:...` on models that are programs in this process."""

import pandas as pd
import pytest

from lib.experiment import artifacts
from lib.llm.chat_model import Failure, Reply
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.open_models import ChatModels
from lib.routers import evaluate_command as router_command
from lib.tasks.tau2_bench import explain_absence
from lib.tool_orchestration import evaluate_command, service_options
from tests.budgeted_routing.small_systems import FunctionModel
from tests.tasks.tau2_bench import gold_team

needs_package = pytest.mark.skipif(bool(explain_absence()), reason=explain_absence() or "installed")
HOSTED = (
    "{backend: endpoint, base_url: 'http://localhost:1/v1', model: maker/%s, price_in: 1.0e-6, "
    "price_out: 2.0e-6, max_tokens: 100, temperature: 0}"
)
MODELS = [
    argument
    for name in ("small", "large", "customer")
    for argument in ("--set", f"llm.models.{name}={HOSTED % name}")
]
TEAM = ("--model", "small", "--experts", "large", "--user", "customer", "--max-usd", "5")
ASKED: list[str] = []
LOST: list[str] = []  # tasks whose user is lost, once


def answer(name: str, request) -> Reply:
    ASKED.append(name)
    reply = gold_team.answer(name, request)
    if name == "customer" and LOST and reply.text.startswith(LOST[0]):
        LOST.pop()
        return Reply("", name, "endpoint", failure=Failure("timeout"))
    # With a model to ask, the agent gives every second task up.
    can_ask = any(schema["function"]["name"] == "ask_large" for schema in request.tools)
    if can_ask and gold_team.find_task(request.messages[2]["content"]).id in "13579":
        return gold_team.make_text(name, "Done.")
    return reply


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    """Models that are programs."""
    ASKED.clear()
    LOST.clear()

    def open_models(llm, names, *_, **__):
        return ChatModels({name: FunctionModel(name, answer, "endpoint") for name in names})

    monkeypatch.setattr(service_options, "open_models", open_models)


def run(out, *options: str, tasks: str = "tau2:retail", team=TEAM) -> int:
    arguments = ["--tasks", tasks, *team, *MODELS, "--out", str(out), *options]
    return evaluate_command.main(arguments)


@needs_package
def test_both_settings_are_tried_and_the_table_is_one_that_routers_read(tmp_path, capsys):
    assert run(tmp_path, "--limit", "8") == 0
    rows = pd.read_parquet(tmp_path / "outcomes.parquet")
    assert list(rows["model"].unique()) == ["small", "small + large"]
    assert set(rows["setting"]) == {"functions", "functions and models"}
    accuracy = rows.groupby("model")["correct"].mean()
    assert accuracy["small"] == 1.0 and accuracy["small + large"] < 1.0
    printed = capsys.readouterr().out
    assert "8 tasks x 1 samples x 2 teams: 16 trials, 16 of them to do." in printed
    assert "At most 2,000 calls" in printed and "--max-usd = $5" in printed
    assert "1.00 [0.63, 1.00]" in printed  # Clopper and Pearson, 8 of 8

    out = tmp_path / "report"
    assert router_command.main([str(tmp_path / "outcomes.parquet"), "--out", str(out)]) == 0, (
        capsys.readouterr().err
    )


@needs_package
def test_a_plan_asks_nobody_and_leaves_nothing(tmp_path, capsys):
    out = tmp_path / "out"
    assert run(out, "--plan-only", tasks="tau2:retail,tau2:airline,tau2:telecom") == 0
    assert "278 tasks x 1 samples x 2 teams" in capsys.readouterr().out
    assert not ASKED and not out.exists()


@needs_package
def test_a_lost_trial_is_counted_and_repeated_by_the_same_command(tmp_path, capsys):
    LOST.append("task retail")
    options = ("--limit", "4", "--setting", "functions", "--parallel", "2")
    assert run(tmp_path, *options) == 0
    rows = pd.read_parquet(tmp_path / "outcomes.parquet")
    assert rows["correct"].isna().sum() == 1 and (rows["failure"] == "customer: timeout").sum() == 0
    assert (rows["failure"] == "user: timeout").sum() == 1
    printed = capsys.readouterr().out
    assert "1 of 4 trials are not scored; the same command repeats them" in printed

    assert run(tmp_path, *options) == 0
    assert "4 trials, 1 of them to do" in capsys.readouterr().out
    rows = pd.read_parquet(tmp_path / "outcomes.parquet")
    assert list(rows["correct"]) == [1.0] * 4
    ASKED.clear()
    assert run(tmp_path, *options) == 0
    assert not ASKED


@needs_package
def test_several_trials_of_two_domains_have_both_measures(tmp_path, capsys):
    team = ("--model", "small", "--user", "customer", "--max-usd", "5")
    options = ("--limit", "2", "--samples", "2")
    assert run(tmp_path, *options, tasks="tau2:retail,tau2:airline", team=team) == 0
    passes = artifacts.read_parquet(tmp_path / "passes.parquet")
    assert set(passes["measure"]) == {"pass^1", "pass^2", "pass@2"}
    assert set(passes["group"]) == {"retail", "airline"} and (passes["value"] == 1.0).all()
    assert "greedy, so that trials of a task may be alike" in capsys.readouterr().out


@needs_package
def test_where_the_money_is_spent_what_was_finished_is_kept(tmp_path, capsys, monkeypatch):
    def spend(name: str, request) -> Reply:
        ASKED.append(name)
        if ASKED.count("customer") > 2:  # two replies of the user are one conversation
            raise BudgetExceeded("small (llm.max_usd)", 5.0, 4.99, 0.02)
        return gold_team.answer(name, request)

    monkeypatch.setattr(
        service_options,
        "open_models",
        lambda llm, names, *_, **__: ChatModels(
            {name: FunctionModel(name, spend, "endpoint") for name in names}
        ),
    )
    options = ("--limit", "2", "--setting", "functions", "--parallel", "1")
    assert run(tmp_path, *options) == 2
    assert "--max-usd" in capsys.readouterr().err
    assert len(pd.read_parquet(tmp_path / "outcomes.parquet")) == 1


@needs_package
def test_a_table_of_other_settings_is_not_continued(tmp_path, capsys):
    assert run(tmp_path, "--limit", "1", "--setting", "functions") == 0
    assert run(tmp_path, "--limit", "1", "--setting", "functions", "--turns", "20") == 2
    assert "was made with turns 50, and this run has 20" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options, message",
    [
        (("--samples", "0"), "--samples 0"),
        (("--max-usd", "-1"), "--max-usd -1"),
        (("--temperature", "3"), "--temperature 3"),
        (("--user", "nobody"), "there is no model 'nobody'"),
    ],
)
def test_wrong_options_end_in_one_line(tmp_path, capsys, options, message):
    assert run(tmp_path / "out", *options) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_tasks_of_another_kind_are_refused(tmp_path, capsys):
    assert run(tmp_path / "out", tasks="gsm8k") == 2
    assert "name a domain as tau2:retail" in capsys.readouterr().err


@needs_package
def test_questions_cannot_be_made_of_tasks_and_the_other_option_is_named(tmp_path, capsys):
    command = ["--data", "tau2:retail", "--experts", "small,large", "--orchestrators", "small"]
    assert evaluate_command.main([*command, *MODELS, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    for verb in ("train", "evaluate"):
        assert f"`python -m lib {verb} toolorchestra --tasks tau2:retail`" in error


def test_help_shows_examples(capsys):
    with pytest.raises(SystemExit):
        evaluate_command.main(["--tasks", "tau2:retail", "--help"])
    printed = capsys.readouterr().out
    assert "examples:" in printed and "--user large" in printed and "router evaluate" in printed
    with pytest.raises(SystemExit):
        evaluate_command.main(["--help"])
    assert "--tasks tau2:retail" in capsys.readouterr().out
