"""`python -m lib`: one command, whose help names everything that it can do."""

import subprocess
import sys
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from lib import EARLIER_COMMANDS
from lib.__main__ import COMMANDS, EARLIER_OPTIONS, GROUPS, make_app
from lib.config import ROOT


def run(*arguments: str):
    return CliRunner().invoke(make_app(), list(arguments), prog_name="python -m lib")


def test_without_a_command_it_lists_all_commands_and_groups():
    shown = run("--help").output
    assert all(words.partition(" ")[0] in shown for words in COMMANDS)
    for group in GROUPS:
        names = [words.split()[1] for words in COMMANDS if words.startswith(f"{group} ")]
        assert names and all(name in run(group, "--help").output for name in names)


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_a_help_under_its_own_name(words):
    result = run(*words.split(), "--help")
    assert result.exit_code == 0, result.output
    assert f"usage: python -m lib {words}" in " ".join(result.output.split())


def test_a_command_runs_from_the_shell():
    result = subprocess.run(
        [sys.executable, "-m", "lib", "metrics", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert result.returncode == 0, result.stderr
    assert "usage: python -m lib metrics" in " ".join(result.stdout.split())


def test_a_command_that_is_none_is_named():
    done = run("route")
    assert done.exit_code == 2 and "route" in done.output


@pytest.mark.parametrize("module", EARLIER_COMMANDS)
def test_an_earlier_command_names_the_new_one(module):
    done = subprocess.run(
        [sys.executable, "-m", f"lib.{module}", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    new = EARLIER_COMMANDS[module]
    assert done.returncode == 1 and f"python -m lib.{module} is now: {new} (" in done.stderr
    target = new.removeprefix("python -m ")
    assert target.removeprefix("lib ") in COMMANDS or find_spec(target)


COMMAND_WITH_OPTION = {"--arm": ["train", "maestro"], "--partings": ["router", "evaluate"]}


@pytest.mark.parametrize("option", EARLIER_OPTIONS)
@pytest.mark.parametrize("form", ["{} 2", "{}=2"])
def test_an_earlier_option_names_the_new_one(option, form):
    command = COMMAND_WITH_OPTION[option]
    done = run(*command, "folder", *form.format(option).split())
    new = EARLIER_OPTIONS[option]
    assert done.exit_code == 2 and f"{option} is now called {new}" in done.output
    assert new in run(*command, "--help").output


def test_a_library_that_has_an_option_m_of_its_own_is_left_alone():
    code = "import lib; print('fine')"
    done = subprocess.run(
        [sys.executable, "-c", code, "-m", "x"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout == "fine\n"
