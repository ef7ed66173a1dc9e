"""`python -m lib train arc`: agents of one's own that are programs, or a server on loopback, and a few sums."""

import asyncio
import json
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from lib.agent_configuration import train_command as command
from lib.agent_configuration import user_agents, user_training
from lib.agent_configuration.action_space import TOOLS, WORKFLOWS, make_masks
from lib.agent_configuration.agent_system import read_configurations
from lib.agent_configuration.atoms import read_library
from lib.agent_configuration.saved_policy import SavedPolicies
from lib.agent_configuration.user_training import (
    BANDIT,
    BASE,
    BEST_CONSTANT,
    BEST_CONSTANT_PER_GROUP,
    ORACLE,
)
from lib.experiment import artifacts
from lib.llm.chat_model import ChatRequest, Failure, Reply, ToolCall
from lib.llm.open_models import ChatModels
from lib.plots import accessibility_check
from lib.rl.user_training.evaluation import START, TRAINED
from tests.budgeted_routing.small_systems import FunctionModel
from tests.llm.server import Answer, Asked, Server, certificate, completion, key

__all__ = ["certificate", "key"]
TABLES = ("rollouts", "learning", "evaluation", "played")
SMALL = (
    "--profile", "smoke", "--updates", "2", "--batch", "8", "--max-test", "4", "--set", "draws=1", "--held-out", "0.3",
)  # fmt: skip
_SUM = re.compile(r"(\d+) \+ (\d+)")


def solve_as_reasoner(name: str, request: ChatRequest) -> Reply:
    """Adds up as a reasoner, copies what a reasoner found as an answerer, and says 0 in every other role."""
    role = request.messages[0]["content"]
    question = request.messages[1]["content"]
    match = _SUM.search(question)
    answer = "0"
    if "You work out" in role and match:
        answer = str(int(match[1]) + int(match[2]))
    elif "answer is the word right" in role:
        answer = "right"
    elif "Your answer: first" in role:
        answer = "first this then that"
    elif "answer: 77" in question or "votes" in question or "evidence" in question:
        answer = question.split()[-1]
    text = f"Well. <answer> {answer} </answer>"
    return Reply(text, name, "scripted", tokens_in=20, tokens_out=5)


def open_functions(answer=solve_as_reasoner):
    """In place of `open_models`: models that are functions in this process."""

    def open_models(llm, names, *_) -> ChatModels:
        models = {}
        for name in names:
            model = FunctionModel(name, answer)
            model.price_in, model.price_out, model.max_tokens = 1e-6, 2e-6, 1_000
            models[name] = model
        return ChatModels(models)

    return open_models


def write_questions(path: Path, num_questions: int = 20) -> Path:
    """Different sums of two groups."""
    rows = []
    for number in range(num_questions):
        group = "odd" if number % 2 else "even"
        rows.append({"prompt": f"{number} + 2 = ?", "reference": str(number + 2), "group": group})
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A folder with questions and documents."""
    root = tmp_path_factory.mktemp("arc")
    write_questions(root / "questions.jsonl")
    (root / "documents").mkdir()
    (root / "documents/sums.txt").write_text("Sums are added up.\n\nThe sum of 3 and 2 is 5.")
    return root


@pytest.fixture(autouse=True)
def team(monkeypatch):
    """Agents that are programs in this process."""
    monkeypatch.setattr(user_agents, "open_models", open_functions())


def run(folder: Path, out: str, *options: str, model: str = "scripted-small") -> int:
    arguments = ["--data", str(folder / "questions.jsonl"), "--model", model]
    return command.main(
        [*arguments, "--out", str(folder / out), "--tools", "calculator", *SMALL, *options]
    )


@pytest.fixture
def trained(folder, capsys) -> Path:
    """A first training, done once for every test that looks at it."""
    if not (folder / "out").exists():
        assert run(folder, "out", "--oracle") == 0
        (folder / "printed.txt").write_text(capsys.readouterr().out)
    return folder / "out"


def read(folder: Path, name: str) -> pd.DataFrame:
    return artifacts.read_parquet(folder / f"{name}.parquet")


# What a run leaves --------------------------------------------------------------------------------


def test_a_run_leaves_policy_tables_summary_and_a_report_that_anybody_can_read(trained, folder):
    printed = (folder / "printed.txt").read_text()
    assert artifacts.read_json(trained / "summary.json")["outcome"] in printed
    assert accessibility_check.problems((trained / "report.html").read_text()) == []
    rollouts = read(trained, "rollouts")
    assert rollouts.groupby("method").size().to_dict() == {"arc": 16, "bandit": 16}
    assert rollouts["reward"].notna().all()
    assert not [path for path in trained.rglob("*") if path.suffix in (".pkl", ".pickle")]


def test_what_the_run_may_take_is_said_before_anything_is_asked_and_measured_then(trained, folder):
    lines = (folder / "printed.txt").read_text().splitlines()
    most, space, estimate, update = (
        next(number for number, line in enumerate(lines) if words in line)
        for words in ("episodes at the most", "Space: ", "trial episodes", "update 1/2")
    )
    assert most < space < estimate < update
    announced = int(re.search(r"([\d,]+) episodes at the most", lines[most])[1].replace(",", ""))
    assert len(read(trained, "rollouts")) + len(read(trained, "played")) <= announced


def test_every_method_answers_the_same_held_out_questions(trained):
    rows = read(trained, "evaluation")
    methods = {START, TRAINED, BASE, BEST_CONSTANT, BEST_CONSTANT_PER_GROUP, BANDIT, ORACLE}
    assert set(rows["method"]) == methods
    questions = rows.groupby("method")["item"].agg(sorted)
    assert all(listed == questions[START] for listed in questions)
    assert rows.loc[rows["method"] == BASE, "workflow"].unique().tolist() == ["direct"]


def test_nothing_is_learned_from_or_chosen_on_a_held_out_question(trained):
    held_out = set(read(trained, "evaluation")["item"])
    rollouts = read(trained, "rollouts")
    assert held_out and not held_out & set(rollouts["key"])
    settings = artifacts.read_json(trained / "settings.json")
    assert settings["questions for constants"] != settings["questions of the evaluation"]


def test_the_oracle_exceeds_everything_on_every_question(trained):
    rows = read(trained, "evaluation").pivot(
        index=["item", "sample"], columns="method", values="reward"
    )
    assert (rows[ORACLE] >= rows.max(axis=1) - 1e-12).all()


def test_tools_that_are_not_named_are_in_no_configuration(trained):
    rows = pd.concat([read(trained, "rollouts"), read(trained, "played")])
    used = {
        tool
        for configuration in read_configurations(rows)
        for agent in (0, 1)
        for tool in configuration.tools(agent)
    }
    assert used == {"calculator"}
    atoms = {name for text in rows["atoms"] for name in re.findall(r"[a-z]+/[a-z]+/\w+", text)}
    assert atoms and not {"base/reasoner/search", "base/verifier/records"} & atoms


def test_masks_leave_the_structures_of_the_named_tools():
    allowed = make_masks(("calculator", "python"))["tools1"][WORKFLOWS.index("verify")]
    assert np.flatnonzero(allowed).tolist() == [0, 1, 8, 9]
    assert make_masks(TOOLS)["tools1"].all()


def test_the_policy_in_the_folder_chooses_as_the_trained_one(trained, folder):
    saved = SavedPolicies.load(trained / "policy")
    rows = read(trained, "evaluation")
    rows = rows[rows["method"] == TRAINED]
    chosen = saved.choose(rows["prompt"].tolist())
    assert [configuration.digest for configuration in chosen] == rows["digest"].tolist()


def test_tf_idf_is_saved_with_the_policy(folder):
    assert run(folder, "words", "--encoder", "tf-idf", "--updates", "1") == 0
    saved = SavedPolicies.load(folder / "words/policy")
    rows = read(folder / "words", "evaluation")
    rows = rows[rows["method"] == TRAINED]
    chosen = saved.choose(rows["prompt"].tolist())
    assert [configuration.digest for configuration in chosen] == rows["digest"].tolist()


def test_a_policy_for_each_group_learns_from_its_own_questions(folder):
    assert run(folder, "groups", "--by-group", "--updates", "1") == 0
    rollouts = read(folder / "groups", "rollouts")
    assert (rollouts["group"] == rollouts["only"]).all() and rollouts["only"].nunique() == 2
    assert set(SavedPolicies.load(folder / "groups/policy").policies) == {"odd", "even"}


def test_a_training_learns_that_one_call_does_not_solve_it(folder):
    """Only workflows with a reasoner are right here, whatever else is chosen."""
    options = (
        "--updates",
        "20",
        "--batch",
        "32",
        "--set",
        "ppo.structure_rate=1e-2",
        "--tools",
        "none",
    )
    assert run(folder, "learned", *options) == 0
    rows = read(folder / "learned", "evaluation")
    mean_correct = rows.groupby("method")["correct"].mean()
    assert mean_correct[TRAINED] == 1.0 and mean_correct[BASE] == 0.0


# Going on -----------------------------------------------------------------------------------------


def test_a_run_that_was_interrupted_and_goes_on_equals_one_that_never_stopped(
    trained, folder, monkeypatch, capsys
):
    num_calls = 0

    def answer(name, request):
        nonlocal num_calls
        num_calls += 1
        return solve_as_reasoner(name, request)

    learn = user_training.ConfigurationTraining.learn

    def stop_at_second_update(training, pending, rows):
        if training.step == 1:
            raise KeyboardInterrupt
        learn(training, pending, rows)

    monkeypatch.setattr(user_agents, "open_models", open_functions(answer))
    with monkeypatch.context() as patch:
        patch.setattr(user_training.ConfigurationTraining, "learn", stop_at_second_update)
        assert run(folder, "interrupted", "--oracle") == 130
    assert "run the same command to go on" in capsys.readouterr().err
    assert run(folder, "interrupted", "--oracle") == 0
    for name in TABLES:
        assert_frame_equal(read(trained, name), read(folder / "interrupted", name))
    num_before = num_calls
    assert run(folder, "interrupted", "--oracle") == 0
    assert num_calls == num_before


def test_the_same_call_again_asks_nothing_and_more_updates_go_on(trained, folder, capsys):
    shutil.copytree(trained, folder / "again")
    assert run(folder, "again", "--oracle") == 0
    assert "update 1/" not in capsys.readouterr().out
    for name in TABLES:
        assert_frame_equal(read(trained, name), read(folder / "again", name))
    assert run(folder, "again", "--updates", "3") == 0
    assert "update 3/3" in capsys.readouterr().out
    rollouts = read(folder / "again", "rollouts")
    assert rollouts.groupby("method")["step"].max().eq(2).all()


def test_a_folder_of_other_settings_is_refused(trained, folder, capsys):
    assert run(folder, "out", "--oracle", "--budget", "reasoner=8,16,32") == 2
    assert "was begun with" in capsys.readouterr().err


# What goes wrong ----------------------------------------------------------------------------------


def test_a_failed_call_is_shown_and_scored_nowhere(folder, monkeypatch, capsys):
    def answer(name, request):
        if "1 + 2" in request.messages[1]["content"]:
            return Reply("", name, "scripted", failure=Failure("timeout"))
        return solve_as_reasoner(name, request)

    monkeypatch.setattr(user_agents, "open_models", open_functions(answer))
    assert run(folder, "lost", "--updates", "3", "--held-out", "0.4") == 0
    episodes, rollouts = read(folder / "lost", "played"), read(folder / "lost", "rollouts")
    lost = pd.concat([episodes, rollouts])
    lost = lost[lost["lost_calls"] > 0]
    assert len(lost) and lost["reward"].isna().all() and lost["correct"].isna().all()
    assert "lost a reply or a judgement and are in no score" in capsys.readouterr().out


def test_a_server_that_refuses_tools_ends_the_run_with_the_remedy(folder, monkeypatch, capsys):
    def answer(name, request):
        if request.tools:
            return Reply("", name, "scripted", failure=Failure("bad_request"))
        return solve_as_reasoner(name, request)

    monkeypatch.setattr(user_agents, "open_models", open_functions(answer))
    assert run(folder, "refused") == 2
    error = capsys.readouterr().err
    assert "lost a call (bad_request)" in error and "--tools none" in error
    assert run(folder, "refused-without", "--tools", "none", "--updates", "1") == 0


def test_a_reply_that_the_model_spoiled_is_counted_by_its_kind(folder, monkeypatch, capsys):
    def answer(name, request):
        return Reply("", name, "scripted", failure=Failure("context_too_long"))

    monkeypatch.setattr(user_agents, "open_models", open_functions(answer))
    assert run(folder, "window", "--updates", "1") == 0
    printed = capsys.readouterr().out
    assert "context_too_long; smaller budgets (--budget)" in printed
    assert "Failed replies of the evaluation by kind" in printed


@contextmanager
def serve(answer) -> Iterator[Server]:
    """A server on loopback in a thread of its own."""
    ready, stop = threading.Event(), threading.Event()
    servers = []

    async def answer_until_stopped() -> None:
        async with Server(answer) as server:
            servers.append(server)
            ready.set()
            await asyncio.to_thread(stop.wait)

    thread = threading.Thread(target=lambda: asyncio.run(answer_until_stopped()))
    thread.start()
    ready.wait(10)
    try:
        yield servers[0]
    finally:
        stop.set()
        thread.join()


def test_the_spending_limit_stops_the_run_and_a_higher_one_goes_on(folder, monkeypatch, capsys):
    monkeypatch.undo()

    def answer(request: Asked) -> Answer:
        text = solve_as_reasoner("mine", ChatRequest(request.body["messages"])).text
        return Answer(completion(text, tokens_in=20, tokens_out=5))

    with pytest.MonkeyPatch.context() as patch, serve(answer) as server:
        patch.setenv("BENCH_TEST_KEY", "sk-planted")
        own_files = (
            f"llm.models.mine={{backend: endpoint, base_url: '{server.url}', model: served, price_in: 1.0e-6, "
            "price_out: 2.0e-6, max_tokens: 64, reasoning_tokens: 0}"
        )
        options = ("--updates", "1", "--set", own_files)
        assert run(folder, "paid", *options, "--max-usd", "0.01", model="mine") == 2
        stopped = capsys.readouterr()
        assert "--max-usd" in stopped.err and "llm.max_usd" not in stopped.err
        num_requests = len(server.asked)
        assert num_requests and (folder / "paid/arc.jsonl").exists()
        assert run(folder, "paid", *options, "--max-usd", "1", model="mine") == 0
        assert "mine: " in capsys.readouterr().out
        bodies = [json.dumps(request.body, sort_keys=True) for request in server.asked]
        assert not set(bodies[:num_requests]) & set(bodies[num_requests:])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--model", "nobody"), "there is no model 'nobody'"),
        (("--tools", "hammer"), "--tools hammer: there is no such tool; there are calculator"),
        (("--tools", "search"), "name a folder or a file by --documents"),
        (("--tools", "lookup"), "it reads the records of the lab's world"),
        (("--documents", "nowhere", "--tools", "search"), "--documents nowhere: there is no such"),
        (("--documents", "."), "add search to --tools"),
        (("--budget", "reasoner=9,8,7"), "three rising numbers"),
        (("--budget", "reasoner=9,10,70000"), "writes at most 1000 tokens (max_tokens)"),
        (("--set", "ppo.bach=1"), "--set ppo.bach"),
        (("--scorer", "nonsense"), "unknown scorer 'nonsense'"),
        (("--encoder", "nonsense"), "there is no encoder 'nonsense'"),
        (("--atoms", "nowhere.yaml"), "nowhere.yaml is no library of atoms"),
        (("--data", "nowhere.csv"), "nowhere.csv"),
    ],
)
def test_a_mistake_ends_in_one_line_that_names_it(options, message, folder, capsys):
    assert run(folder, "mistake", *options) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith("error: ") and "\n" not in error and message in error
    assert not (folder / "mistake/settings.json").exists()


def test_a_plan_asks_nothing(folder, capsys):
    assert run(folder, "plan", "--plan") == 0
    assert "episodes at the most" in capsys.readouterr().out
    assert not (folder / "plan").exists()


def test_without_arguments_the_command_shows_its_options(capsys):
    with pytest.raises(SystemExit) as stopped:
        command.main([])
    assert stopped.value.code == 2
    printed = capsys.readouterr().out
    assert "usage: python -m lib train arc" in printed and "examples:" in printed


# Tools, instructions, scorers ---------------------------------------------------------------------


def test_agents_search_the_documents_of_the_user(folder, monkeypatch):
    passages_found_ = []

    def answer(name, request):
        last = request.messages[-1]
        if last["role"] == "tool":
            passages_found_.append(last["content"])
            return solve_as_reasoner(name, request)
        if request.tools:
            call = ToolCall("", "search", json.dumps({"query": "sum of 3"}))
            return Reply("", name, "scripted", tool_calls=(call,), tokens_in=9, tokens_out=4)
        return solve_as_reasoner(name, request)

    monkeypatch.setattr(user_agents, "open_models", open_functions(answer))
    documents = ("--tools", "search", "--documents", str(folder / "documents"))
    assert run(folder, "searched", *documents, "--updates", "1") == 0
    assert passages_found_ and all(
        text.startswith("The sum of 3 and 2 is 5.") for text in passages_found_
    )


def write_atoms_reply(texts: dict[str, list[str]]) -> str:
    content = {
        role: [{"strategy": "verify", "text": text} for text in of_role]
        for role, of_role in texts.items()
    }
    return json.dumps(content)


def test_instructions_that_a_model_writes_are_checked_kept_and_used_again(folder, monkeypatch):
    good = {
        role: [f"Help the {role} in way number {word}." for word in ("one", "two", "three")]
        for role in ("reasoner", "verifier", "answerer")
    }
    replies = iter(
        [
            "no JSON",
            write_atoms_reply(good | {"reasoner": ["Go."] * 3}),
            write_atoms_reply(good),
        ]
    )
    requests = []

    def answer(name, request):
        if name == "scripted-large":
            requests.append(request)
            return Reply(next(replies), name, "scripted")
        return solve_as_reasoner(name, request)

    monkeypatch.setattr(user_agents, "open_models", open_functions(answer))
    options = ("--write-atoms", "scripted-large", "--updates", "1")
    assert run(folder, "written", *options) == 0
    assert len(requests) == 3 and "has 1 words" in requests[2].messages[-1]["content"]
    written = [
        atom for atom in read_library(folder / "written/atoms.yaml") if atom.family == "written"
    ]
    assert [atom.text for atom in written[:3]] == good["reasoner"]
    assert run(folder, "written", *options) == 0
    assert len(requests) == 3


def test_a_writer_that_keeps_no_rule_ends_the_run_with_its_last_complaint(
    folder, monkeypatch, capsys
):
    monkeypatch.setattr(
        user_agents, "open_models", open_functions(lambda name, request: Reply("{}", name, "x"))
    )
    assert run(folder, "unwritten", "--write-atoms", "scripted-large") == 2
    assert "reasoner must have a list of 3 atoms" in capsys.readouterr().err


def test_a_scorer_that_gives_parts_of_a_point_enters_the_reward(folder):
    assert run(folder, "parts", "--scorer", "f1", "--updates", "1") == 0
    assert read(folder / "parts", "rollouts")["correct"].between(0, 1).all()


def test_sums_of_a_user_follow_no_rule_of_the_lab_s_chains(folder, monkeypatch):
    roles = set()

    def answer(name, request):
        roles.add(request.messages[0]["content"])
        return solve_as_reasoner(name, request)

    monkeypatch.setattr(user_agents, "open_models", open_functions(answer))
    assert run(folder, "rules", "--updates", "1") == 0
    assert roles and not any("left to right" in role for role in roles)
