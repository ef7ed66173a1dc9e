"""Office tasks from the command line."""

import pytest

from lib import config
from lib.llm.open_models import ChatModels
from lib.tasks.synthesis import load_corpus
from lib.tool_orchestration import make_tasks_command as command
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
