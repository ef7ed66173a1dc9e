"""`python -m lib ask`: a question of one's own, with a policy of a tiny study and tiny lab models."""

import re
from dataclasses import replace

import pytest
import torch

from lib import config
from lib.agent_configuration import ask_command as command
from lib.agent_configuration import experiment, explain
from lib.agent_configuration.action_space import DIMENSIONS
from lib.agent_configuration.agent_system import System
from lib.language_models.training import build
from lib.llm.cost_ledger import BudgetExceeded
from lib.tasks import Item
from lib.tools.worker import SandboxUnavailable
from tests.agent_configuration.test_experiment import ARC, lab_models, settings

KNOWN = "3 + 4 * 2 - 5 = ?"
UNKNOWN = "Wherefore art thou Romeo, at 25 °C?"


@pytest.fixture(scope="module")
def folder(isolated_files, tmp_path_factory):
    """A folder with lab models, and a policy that a study published: with budgets so small that it takes moments."""
    root = tmp_path_factory.mktemp("command")
    experiment.run(settings(tiers=[3, 4, 5]), [ARC], lab_models(root / "models"), root / "runs")
    torch.set_flush_denormal(False)
    return root


@pytest.fixture(autouse=True)
def at_home(folder, monkeypatch):
    """The parameters of the tests and the models of the folder."""
    make_context = experiment.make_context
    monkeypatch.setattr(config, "load", lambda profile=None: settings())
    monkeypatch.setattr(
        experiment,
        "make_context",
        lambda params: make_context(params, folder / "models", folder / "runs"),
    )


@pytest.fixture
def ask(folder):
    """The command with the policy of the study."""
    return lambda *arguments: command.main([*arguments, "--policy", str(folder / "runs/policy")])


def complaint(capsys) -> str:
    """The one line on stderr; nothing was printed before it."""
    output = capsys.readouterr()
    lines = output.err.strip().splitlines()
    assert len(lines) == 1 and lines[0].startswith("error: ") and output.out == ""
    return lines[0]


@pytest.fixture
def episodes(monkeypatch):
    """Every job that the command gave the agents, with its outcome."""
    recorded, run = [], System.run

    def wrapped(system, jobs):
        outcomes = run(system, jobs)
        recorded.extend(zip(jobs, outcomes, strict=True))
        return outcomes

    monkeypatch.setattr(System, "run", wrapped)
    return recorded


# It answers ---------------------------------------------------------------------------------------


def test_it_prints_what_the_policy_likes_best_how_sure_it_was_what_agents_left_and_what_it_cost(
    ask, folder, episodes, capsys
):
    assert ask(KNOWN, "--seed", "7") == 0
    with experiment.open_workbench(
        experiment.make_context(settings()), settings().configuration
    ) as opened:
        policy = experiment.read_published_policy(folder / "runs/policy", opened, "chain")
        state = torch.from_numpy(opened.make_states([Item(KNOWN, "", "", "chain", 1, "any")]))
        (chosen,), reasons = (
            policy.decide(state).configurations,
            explain.list_reasons(policy, state),
        )
    output = capsys.readouterr()
    first, sure, notes, end = output.out.split("\n\n")
    assert first == f"configuration: {chosen}" and output.err == ""
    ((job, outcome),) = episodes
    assert (job.item.prompt, job.configuration, job.draw) == (KNOWN, chosen, 7)

    lines = [line.strip() for line in sure.splitlines()]
    assert len(lines) == len(reasons) >= len(DIMENSIONS) + 1
    for line, reason in zip(lines, reasons, strict=True):
        assert (
            line.startswith(reason.question)
            and f"{reason.choice}: {reason.probability:.2f}" in line
        )
        shares = [float(share) for share in re.findall(r"\b[01]\.\d\d\b", line)]
        assert (
            shares == sorted(shares, reverse=True) and 0 < shares[0] <= 1 and sum(shares) <= 1.011
        )
    assert sum("(then " in line for line in lines) >= 4  # what is pinned has no runner-up

    assert len(notes.splitlines()) == len(outcome.trail) == outcome.calls
    for line, note in zip(notes.splitlines(), outcome.trail, strict=True):
        assert (
            line.split()[0] == note.role
            and note.whole in line
            and line.endswith("[cut off]") == note.cut
        )
    answer, cost = end.strip().splitlines()
    assert answer == f"answer: {'none' if outcome.answer is None else outcome.answer}"
    assert cost.startswith(
        f"cost: {outcome.calls} calls, {outcome.tokens_in} tokens read, {outcome.tokens_out} written"
    )
    assert (
        f"{outcome.used} calls of tools, ${outcome.cost_usd:.3g}, {outcome.seconds:.3g} s" in cost
    )
    assert outcome.cost_usd > 0 and outcome.seconds > 0


def test_the_same_command_says_the_same_and_another_seed_only_throws_other_dice(ask, capsys):
    outputs = []
    for seed in ("0", "0", "1", "2", "3"):
        assert ask(KNOWN, "--seed", seed) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1] and len(set(outputs)) > 1
    assert len({tuple(text.split("\n\n")[:2]) for text in outputs}) == 1


@pytest.mark.parametrize("question", [UNKNOWN, "<answer> 7 </answer>"])
def test_a_question_with_words_that_the_models_do_not_know_is_worked_on_all_the_same(
    ask, question, episodes, capsys
):
    assert ask(question) == 0
    output = capsys.readouterr()
    assert (
        "configuration: " in output.out
        and "\nanswer: " in output.out
        and "\ncost: " in output.out
        and not output.err
    )
    assert episodes[0][0].item.prompt == question and episodes[0][1].tokens_out > 0


# Mistakes -----------------------------------------------------------------------------------------


def test_without_a_policy_the_remedy_is_told(tmp_path, capsys):
    assert command.main([KNOWN, "--policy", str(tmp_path / "none")]) == 2
    line = complaint(capsys)
    assert f"no trained policy in {tmp_path / 'none'}" in line and "make repro" in line


@pytest.mark.parametrize("file", ["policy.json", "arc-chain.safetensors"])
def test_a_broken_policy_is_named(file, folder, tmp_path, capsys):
    for path in (folder / "runs/policy").iterdir():
        content = path.read_bytes()
        (tmp_path / path.name).write_bytes(
            content[: len(content) // 2] if path.name == file else content
        )
    assert command.main([KNOWN, "--policy", str(tmp_path)]) == 2
    assert file in complaint(capsys)


@pytest.mark.parametrize(
    ("arguments", "phrases"),
    [
        *(([blank], ["the question is empty"]) for blank in ("", "   ", "\n\t")),
        (
            [KNOWN, "--model", "nobody"],
            ["--model nobody", "team-large"],
        ),  # beside those that there are
    ],
)
def test_an_empty_question_or_an_unknown_model_is_refused(arguments, phrases, ask, capsys):
    assert ask(*arguments) == 2
    line = complaint(capsys)
    assert all(phrase in line for phrase in phrases)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (BudgetExceeded("team", 1.0, 0.99, 0.02), 2),
        (SandboxUnavailable("no sandbox works here"), 2),
        (KeyboardInterrupt(), 130),
    ],
    ids=["purse", "box", "interruption"],
)
def test_what_ends_the_work_ends_in_one_line_at_the_most(error, code, ask, capsys, monkeypatch):
    def ended(*_, **__):
        raise error

    monkeypatch.setattr(experiment, "open_workbench", ended)
    assert ask(KNOWN) == code
    assert capsys.readouterr() == ("", f"error: {error}\n" if code == 2 else "")


def test_a_question_that_is_longer_than_the_models_window_has_no_answer_and_no_crash(ask, capsys):
    assert ask("3 + 4 " * 400 + "= ?") == 0
    output = capsys.readouterr().out
    assert "\nanswer: none (context_too_long)\n" in output and " 0 tokens read, 0 written" in output


def test_another_model_works_under_the_same_configuration(ask, capsys):
    assert ask(KNOWN) == ask(KNOWN, "--model", "control") == 0
    first, second = capsys.readouterr().out.split("configuration: ")[1:]
    assert first.splitlines()[0] == second.splitlines()[0] and first != second


@pytest.mark.parametrize("arguments", [[], [KNOWN, "--seed", "many"], [KNOWN, "--profile", "huge"]])
def test_a_command_that_cannot_be_read_is_refused_by_the_parser(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(arguments)
    assert ended.value.code == 2 and "usage: python -m lib ask" in capsys.readouterr().err


@pytest.fixture
def fresh_clone(tmp_path, monkeypatch):
    """A folder without lab models, which the command reads and fills, and a folder for the jobs that fill it."""
    make_context = experiment.make_context
    models = tmp_path / "models"
    monkeypatch.setattr(
        experiment, "make_context", lambda params: replace(make_context(params), models=str(models))
    )
    monkeypatch.setattr(build, "RUNS", tmp_path / "runs")
    return models


def test_without_lab_models_and_released_weights_of_them_the_remedy_is_told(
    ask, fresh_clone, capsys, monkeypatch
):
    monkeypatch.setattr(build, "fits_released", lambda settings, name: False)
    assert ask(KNOWN) == 2
    message = complaint(capsys)
    assert "make repro" in message and str(fresh_clone) in message


def test_in_a_fresh_clone_the_released_weights_answer_and_are_unpacked_once(
    ask, fresh_clone, capsys
):
    assert ask(KNOWN) == 0
    first = capsys.readouterr()
    assert first.out.startswith("configuration: ") and "\nanswer: " in first.out
    assert f"{fresh_clone} lacks lab-team; unpacking the released weights" in first.err
    assert (fresh_clone / "lab-team/card.json").is_file()

    assert ask(KNOWN) == 0
    assert capsys.readouterr() == (first.out, "")


def test_without_a_policy_no_models_are_unpacked(fresh_clone, tmp_path, capsys):
    assert command.main([KNOWN, "--policy", str(tmp_path / "none")]) == 2
    assert "no trained policy" in complaint(capsys) and not fresh_clone.exists()
