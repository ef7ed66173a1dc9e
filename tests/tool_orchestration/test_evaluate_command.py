"""`python -m lib evaluate toolorchestra`: prompted orchestrators on models that are programs in this process."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib import config
from lib.experiment import artifacts
from lib.llm.chat_model import Reply, ToolCall
from lib.llm.open_models import ChatModels
from lib.tool_orchestration import evaluate_command as command
from lib.tool_orchestration import pilot_study
from tests.budgeted_routing.small_systems import FunctionModel
from tests.rl.user_training import small
from tests.tasks.test_presets import write_frames, write_hle
from tests.tool_orchestration import common

HOSTED = (
    "{backend: endpoint, base_url: 'http://localhost:1/v1', model: maker/%s, "
    "price_in: 1.0e-6, price_out: 2.0e-6, max_tokens: 100}"
)
_BRACKETS = re.compile(r"\[([a-z]+ \d)\]")
ASKED: list[str] = []


def orchestrate(name: str, request) -> Reply:
    """`mine` calls its sibling where it is on the menu, `yours` the first model there is; both pass the reply on."""
    results = [m["content"] for m in request.messages if m["role"] == "tool"]
    if results:
        return Reply(
            f"<answer> {results[-1].split()[0]} </answer>", name, "endpoint", cost_usd=1e-4
        )
    tools = [schema["function"]["name"] for schema in request.tools]
    models = [tool for tool in tools if tool in ("scripted-small", "scripted-large", "mine-mini")]
    if not models:  # some menus have functions alone
        return Reply("<answer> 1 </answer>", name, "endpoint", cost_usd=1e-4)
    liked = "mine-mini" if name == "mine" and "mine-mini" in models else models[0]
    call = ToolCall("id", liked, json.dumps({"question": request.messages[1]["content"]}))
    message = {"role": "assistant", "content": ""}
    return Reply("", name, "endpoint", (call,), message=message, cost_usd=1e-4)


def ask_user(name: str, request) -> Reply:
    """An orchestrator of office tasks that asks its user everything, and then gives up."""
    placeholders = list(dict.fromkeys(_BRACKETS.findall(request.messages[1]["content"])))
    results = [m["content"] for m in request.messages if m["role"] == "tool"]
    if len(results) == len(placeholders):
        return Reply("<answer> done </answer>", name, "endpoint")
    question = {"question": f"What is {placeholders[len(results)]} ?"}
    call = ToolCall("id", "ask_user", json.dumps(question))
    message = {"role": "assistant", "content": ""}
    return Reply("", name, "endpoint", (call,), message=message)


def answer(name: str, request) -> Reply:
    ASKED.append(name)
    if request.caller == "descriptions":
        return Reply("Adds well.", name, "endpoint")
    if not request.tools:
        if name in ("mine-mini", "newcomer"):
            return Reply("<answer> 1 </answer>", name, "endpoint", tokens_out=3, cost_usd=5e-4)
        return small.answer_sums(name, request)
    is_office = any(schema["function"]["name"] == "ask_user" for schema in request.tools)
    return ask_user(name, request) if is_office else orchestrate(name, request)


@pytest.fixture(autouse=True)
def programs(monkeypatch):
    """Models that are programs."""
    ASKED.clear()

    def open_models(llm, names, *_, **__):
        return ChatModels({name: FunctionModel(name, answer, "endpoint") for name in names})

    monkeypatch.setattr(command, "open_models", open_models)


def run(folder: Path, *more: str) -> int:
    questions = folder / "questions.jsonl"
    if not questions.exists():
        small.write_questions(questions, 24)
    arguments = ["--data", str(questions), "--out", str(folder / "out"), "--profile", "smoke"]
    for name in ("mine", "mine-mini", "yours"):
        arguments += ["--set", f"llm.models.{name}={HOSTED % name}"]
    arguments += ["--experts", "scripted-small,scripted-large,mine-mini"]
    arguments += ["--orchestrators", "mine,yours", "--questions", "12"]
    return command.main([*arguments, *more])


def test_the_plan_stands_first_and_with_plan_only_nothing_is_asked(tmp_path, capsys):
    assert run(tmp_path, "--plan-only") == 0
    assert "At most" in capsys.readouterr().out and ASKED == []
    assert run(tmp_path) == 0
    printed = capsys.readouterr().out
    assert printed.index("At most") < printed.index("A call takes about")


def test_a_plan_bounds_the_calls_of_the_run(tmp_path, capsys):
    run(tmp_path, "--price-configurations", "--office", "3")
    printed = capsys.readouterr().out
    limit = int(re.search(r"At most ([\d,]+) calls", printed)[1].replace(",", ""))
    paid = [name for name in ASKED if name in ("mine", "mine-mini", "yours")]
    assert 0 < len(paid) <= limit


def test_the_pilot_study_shows_whom_each_orchestrator_prefers(tmp_path, capsys):
    assert run(tmp_path) == 0
    rows = artifacts.read_parquet(tmp_path / "out/pilot.parquet")
    assert (rows[rows["method"] == "mine"]["chosen"] == "mine-mini").all()
    assert rows[rows["method"] == "yours"]["chosen"].nunique() > 1
    printed = capsys.readouterr().out
    assert (tmp_path / "out/summary.txt").read_text() in printed
    (line,) = [s for s in printed.splitlines() if "self-enhancement" in s and s.startswith("mine")]
    assert "mine-mini" in line and "0.67 [0.67, 0.67]" in line
    assert "query_writer is not on the menu" in printed


def test_own_tokens_of_orchestrators_are_in_a_column_of_their_own(tmp_path):
    run(tmp_path)
    rows = artifacts.read_parquet(tmp_path / "out/pilot.parquet")
    mine = rows[rows["method"] == "mine"]
    assert mine["cost_usd"].to_numpy() == pytest.approx(5e-4)
    assert mine["own_cost_usd"].to_numpy() == pytest.approx(2e-4)


def test_the_benchmark_has_every_orchestrator_and_every_model_alone_on_the_same_questions(tmp_path):
    run(tmp_path)
    rows = artifacts.read_parquet(tmp_path / "out/benchmark.parquet")
    assert {"mine", "yours", "always scripted-small", "always scripted-large"} <= set(
        rows["method"]
    )
    scored = pilot_study.score_benchmark(rows, "mine")
    mine = scored[scored["method"] == "mine"]
    # Against itself an answer that is right is worth what the user cares for, with a half for cost and latency.
    assert mine["bounded"].between(0, 1).all()
    large = scored[scored["method"] == "always scripted-large"]
    assert large["correct"].mean() == 1.0 and large["bounded"].mean() > mine["bounded"].mean()
    with pytest.raises(ValueError, match="none of the methods"):
        pilot_study.score_benchmark(rows, "nobody")


def test_ten_price_lists_repeat_the_benchmark_at_other_prices(tmp_path, capsys):
    number = "price_configurations={number: 10, spread: 4.0, seed: 0}"
    assert run(tmp_path, "--price-configurations", "--set", number) == 0
    rows = artifacts.read_parquet(tmp_path / "out/benchmark.parquet")
    assert rows["condition"].nunique() == 11
    large = rows[rows["method"] == "always scripted-large"]
    costs = large.pivot(index="item", columns="condition", values="cost_usd")
    ratios = costs.div(costs["usual prices"], axis=0)
    # One factor a list, the same for all questions.
    assert ratios.std().max() == pytest.approx(0.0, abs=1e-9)
    assert ratios.iloc[0].nunique() == 11
    assert "Preference benchmark by price list" in capsys.readouterr().out


def test_office_tasks_are_dialogues_with_a_user_who_is_labelled(tmp_path, capsys):
    assert run(tmp_path, "--office", "4") == 0
    rows = artifacts.read_parquet(tmp_path / "out/office.parquet")
    assert len(rows) == 8 and rows["chosen"].str.contains("ask_user").all()
    assert "Office tasks, scripted user" in capsys.readouterr().out


def test_descriptions_are_scripted_and_labelled_or_by_the_model_that_is_set(tmp_path, capsys):
    run(tmp_path)
    assert "scripted (no model wrote it)" in capsys.readouterr().out
    assert run(tmp_path, "--set", "description_writer=yours") == 0
    printed = capsys.readouterr().out
    assert "Adds well." in printed and "scripted (no model" not in printed


def test_one_line_adds_a_model_to_menus_names_and_prompts(tmp_path, monkeypatch):
    """Nothing but `--set llm.models.NAME=...` and its name among the experts."""
    prompts = []
    roll = command.prompted_baseline.roll_out_assignments

    def record(environment, model, assignments, *more):
        for assignment in assignments:
            schemas = command.prompted_baseline.write_schemas(assignment, environment, False)
            prompts.append([schema["function"]["name"] for schema in schemas])
        return roll(environment, model, assignments, *more)

    monkeypatch.setattr(command.prompted_baseline, "roll_out_assignments", record)
    assert run(tmp_path, "--experts", "scripted-large,mine-mini,newcomer", "--set",
               f"llm.models.newcomer={HOSTED % 'newcomer'}") == 0  # fmt: skip
    assert any("newcomer" in names for names in prompts)
    rows = artifacts.read_parquet(tmp_path / "out/benchmark.parquet")
    assert "always newcomer" in set(rows["method"])


@pytest.mark.parametrize(("preset", "write"), [("hle", write_hle), ("frames", write_frames)])
def test_a_run_can_name_hle_and_frames(tmp_path, capsys, preset, write):
    suffix = {"hle": "parquet", "frames": "tsv"}[preset]
    path = write(tmp_path / f"test.{suffix}")
    assert run(tmp_path, "--data", f"{preset}:{path}") == 0
    printed = capsys.readouterr().out
    assert "others to test on" in printed and "search" not in printed.split("Pilot study")[1]
    rows = artifacts.read_parquet(tmp_path / "out/pilot.parquet")
    assert rows["correct"].notna().all() and len(rows) > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--experts", "mine"], "two models or more"),
        (["--orchestrators", "nobody"], "no model 'nobody'"),
        (["--set", "rounds=1"], "rounds"),
        (["--description-prompt", "missing.md"], "cannot be read"),
        (["--reference", "nobody"], "none of the methods"),
    ],
)
def test_a_mistake_ends_in_one_line(tmp_path, capsys, arguments, message):
    assert run(tmp_path, *arguments) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


# Tables -------------------------------------------------------------------------------------------


def test_a_random_choice_has_no_bias_and_a_one_sided_one_has():
    models = ["gpt-a", "gpt-b", "claude"]
    rng = np.random.default_rng(0)
    chosen = [*rng.choice(models, size=300), *["gpt-a"] * 300]
    rows = pd.DataFrame(
        {
            "method": ["even"] * 300 + ["one-sided"] * 300,
            "item": [*range(300)] * 2,
            "chosen": chosen,
        }
    )
    shares = pilot_study.compute_call_shares(rows, models)
    families = {name: pilot_study.find_family(name) for name in models}
    table = pilot_study.tabulate_biases(
        shares, families, {"even": "gpt", "one-sided": "claude"}, {"gpt-a": 0.9, "gpt-b": 0.5}
    )
    even = table.loc["even"].set_index("bias")["difference"]
    assert all(float(text.split("[")[1].split(",")[0]) < 0.05 for text in even)
    one_sided = table.loc["one-sided"].set_index("bias")["difference"]
    assert one_sided["other-enhancement"].startswith("0.67")
    assert one_sided["self-enhancement"].startswith("-0.33")


def test_calls_to_functions_are_in_no_share_and_shares_add_up_to_one():
    rows = pd.DataFrame(
        {"method": "m", "item": [0, 1, 2], "chosen": ["a calculator b b", "calculator", ""]}
    )
    shares = pilot_study.compute_call_shares(rows, ["a", "b"])
    assert shares.to_numpy().tolist() == [[1 / 3, 2 / 3]]


@pytest.mark.parametrize("profile", ["laptop", "paper"])
def test_defaults_name_models_that_there_are(profile):
    params = config.load(profile)
    assert {params.tools.agent, *params.tools.models.values()} <= set(params.llm.models)
    assert set(common.MODELS) == set(params.tools.models)
