"""Office tasks from the command line."""

import json

import pytest

from lib import config
from lib.llm.chat_model import Reply, ToolCall
from lib.llm.open_models import ChatModels
from lib.tasks.synthesis import load_corpus
from lib.tool_orchestration import make_tasks_command as command
from lib.tool_orchestration import task_solvers
from tests.budgeted_routing.small_systems import FunctionModel
from tests.llm.stub_model import StubModel
from tests.tasks.synthesis.test_llm_writer import fake


def test_a_procedure_writes_a_corpus_that_can_be_opened(tmp_path, capsys):
    out = tmp_path / "offices.json"
    assert command.main(["--out", str(out), "--databases", "4", "--tasks", "3"]) == 0
    corpus = load_corpus(out)
    assert f"{len(corpus.tasks)} tasks" in capsys.readouterr().out and len(corpus.sources) == 4


def test_equal_arguments_write_equal_bytes(tmp_path):
    for name in ("one", "two"):
        command.main(["--out", str(tmp_path / name), "--databases", "4"])
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--writer", "nobody", "--topic", "x"], "--writer nobody: llm.models has"),
        (["--writer", "scripted-small"], "at least one --topic"),
        (["--databases", "0"], "0"),
    ],
)
def test_a_mistake_ends_in_one_line_that_names_it_and_writes_nothing(tmp_path, capsys, given, said):
    assert command.main(["--out", str(tmp_path / "o.json"), *given]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1 and not (tmp_path / "o.json").exists()


def test_a_model_that_writes_nonsense_leaves_an_empty_corpus_and_no_crash(tmp_path, capsys):
    out = tmp_path / "offices.json"
    assert (
        command.main(["--out", str(out), "--writer", "scripted-small", "--topic", "library"]) == 0
    )
    assert "0 tasks" in capsys.readouterr().out and load_corpus(out).tasks == ()


def test_costs_are_printed_before_a_writer_is_asked_and_bound_what_it_is_asked(
    tmp_path, monkeypatch, capsys
):
    write = fake(intents=[f"move film {number}" for number in range(12)])
    printed = []

    def answer(request):
        printed.append(capsys.readouterr().out)
        return write(request.messages[-1]["content"])

    model = StubModel(name="scripted-small", answer=answer)
    monkeypatch.setattr(command, "open_models", lambda *_, **__: ChatModels({model.name: model}))
    line = ["--out", str(tmp_path / "o.json"), "--writer", "scripted-small", "--topic", "cinema"]
    assert command.main([*line, "--databases", "2", "--tasks", "6"]) == 0
    assert "nothing is paid" in printed[0]

    llm = config.load("laptop").llm
    options = command.arguments([*line, "--databases", "2", "--tasks", "6"])
    planned = command.plan_writing(options, llm)
    num_bytes = sum(len(request.messages[-1]["content"]) for request in model.requests)
    assert 10 < len(model.requests) <= planned.calls and num_bytes / 4 <= planned.tokens_in


# Solvers ------------------------------------------------------------------------------------------


def call_golden(request) -> Reply:
    """Makes the golden calls of towns one by one, and gives up on every other office."""
    names = {schema["function"]["name"] for schema in request.tools}
    task = TASKS.get(request.messages[1]["content"])
    num_calls = sum(message["role"] == "tool" for message in request.messages)
    if task is None or "moves" not in names:
        return Reply("<answer> nothing </answer>", "able", "endpoint")
    if num_calls == len(task.calls):
        return Reply(f"<answer> {task.answer} </answer>", "able", "endpoint")
    name, *arguments = task.calls[num_calls]
    parameters = task.domain.find_function(name).parameters
    values = json.dumps(dict(zip(parameters, arguments, strict=True)))
    return Reply("", "able", "endpoint", (ToolCall("id", name, values),))


TASKS = {}


@pytest.fixture
def solvers(monkeypatch):
    """Two models: one that knows the golden calls of one kind of office, and one that knows nothing."""
    asked = []

    def answer(name, request):
        asked.append(name)
        if name == "scripted-large":
            return call_golden(request)
        return Reply("<answer> nothing </answer>", name, "endpoint")

    def open_models(llm, names, *_, **__):
        return ChatModels({name: FunctionModel(name, answer, "endpoint") for name in names})

    monkeypatch.setattr(command, "open_models", open_models)
    return asked


def test_tasks_that_the_strongest_solver_does_not_solve_in_eight_tries_are_dropped(
    tmp_path, capsys, solvers
):
    line = ["--databases", "8", "--tasks", "4", "--profile", "paper"]
    whole = tmp_path / "whole.json"
    assert command.main([*line, "--out", str(whole)]) == 0
    tasks = load_corpus(whole).tasks
    TASKS.update({task.instruction: task for task in tasks})
    capsys.readouterr()

    out = tmp_path / "solved.json"
    names = ["--solvers", "scripted-small,scripted-large"]
    assert command.main([*line, *names, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "nothing is paid" in printed.splitlines()[0] and "scripted-large decides" in printed
    solved = load_corpus(out)
    names_of_solved = {task.domain.name for task in solved.tasks}
    assert len(names_of_solved) == 1 and 0 < len(solved.tasks) < len(tasks)
    reasons = [drop.detail for drop in solved.dropped if drop.task and "tries" in drop.detail]
    assert len(solved.tasks) + len(reasons) == len(tasks)
    # The weaker model tries the probe alone.
    num_probes = min(len(tasks), task_solvers.PROBE_TASKS)
    assert solvers.count("scripted-small") == num_probes < solvers.count("scripted-large")


def test_a_solver_that_there_is_not_is_refused_before_anything_is_written(tmp_path, capsys):
    assert command.main(["--out", str(tmp_path / "o.json"), "--solvers", "nobody"]) == 2
    assert "--solvers nobody: llm.models has" in capsys.readouterr().err
    assert not (tmp_path / "o.json").exists()
