"""What continuous integration runs: a browser and other projects' servers are fetched, and tests run whatever comes."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
GOALS = "make test-extras\nmake test\n"
TOOLS = ("bash", "dirname", "timeout", "sh", "env")  # what the script may use of this machine


@pytest.fixture
def ci(tmp_path):
    """Runs the script on a machine that has only these programs, by name and what they do; returns its output."""

    def run(**programs: str) -> str:
        tools = tmp_path / "tools"
        tools.mkdir()
        for name in TOOLS:
            (tools / name).symlink_to(shutil.which(name))
        programs = {"id": "echo 0", "make": 'echo "make $*"'} | programs
        for name, body in programs.items():
            (tools / name.replace("_", "-")).write_text(f"#!{shutil.which('bash')}\n{body}\n")
            (tools / name.replace("_", "-")).chmod(0o755)
        (tmp_path / ".ci").mkdir()
        shutil.copy(ROOT / ".ci/run", tmp_path / ".ci/run")
        environment = {key: value for key, value in os.environ.items() if key != "CHROMIUM"} | {
            "PATH": str(tools)
        }
        command = [str(tmp_path / ".ci/run")]
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=60, check=True
        )
        log = tmp_path / "log"
        return done.stdout + done.stderr + (log.read_text() if log.exists() else "")

    return run


def test_a_browser_that_is_there_is_not_installed_again(ci, tmp_path):
    assert ci(google_chrome="", apt_get=f"echo apt $* >> {tmp_path}/log") == GOALS


def test_a_missing_browser_is_installed_before_the_tests(ci, tmp_path):
    said = ci(apt_get=f"echo apt $* >> {tmp_path}/log")
    assert said.startswith(GOALS) and "apt install -y -qq --no-install-recommends chromium" in said


@pytest.mark.parametrize(
    "programs", [{"apt_get": "exit 100"}, {"apt_get": "exit 0", "id": "echo 1000"}]
)
def test_a_browser_that_cannot_be_installed_fails_nothing_and_is_reported(ci, programs):
    said = ci(**programs)  # the second is no root and has no sudo
    assert "make test" in said and "Chromium could not be installed" in said


def test_a_machine_without_apt_runs_the_tests_as_it_is(ci):
    assert ci() == GOALS


def test_other_servers_and_clients_that_cannot_be_installed_fail_nothing_and_are_reported(ci):
    said = ci(make='[ "$1" = test ] && echo "make $*"')
    assert said.startswith("make test\n") and "tests that need them will be skipped" in said
