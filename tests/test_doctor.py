"""The doctor: each way in which a checkout can be stuck is found, explained, and mended where that is safe."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scripts import doctor

ROOT = Path(__file__).resolve().parents[1]
LOCK = """\
schema: '2.0'
stages:
  settings:
    cmd: python -m lib.experiment.write_settings
    outs:
    - path: data/settings.json
      hash: md5
      md5: 2f3bc9c6e4ad5ee5cd0ad1b0c6ad9c6e
      size: 12
"""


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A healthy checkout with a .venv of one package."""
    for folder in (".git", ".dvc/tmp", ".venv/bin", ".venv/share/jupyter/kernels/python3"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / ".venv/bin/python").symlink_to(sys.executable)
    (tmp_path / ".venv/pyvenv.cfg").write_text("home = /usr/bin\nversion = 3.11.7\n")
    (tmp_path / ".venv/share/jupyter/kernels/python3/kernel.json").write_text("{}")
    install(tmp_path, "dvc", "3.67.1")
    (tmp_path / "requirements.lock").write_text(
        "dvc==3.67.1\nappnope==1.0.0 ; sys_platform == 'darwin'\n"
    )
    (tmp_path / "dvc.lock").write_text(LOCK)
    for name in ("dvc.yaml", "params.yaml"):
        (tmp_path / name).write_text("stages: {}\n")
    return tmp_path


def install(root: Path, name: str, version: str) -> None:
    place = root / f".venv/lib/python3.11/site-packages/{name}-{version}.dist-info"
    place.mkdir(parents=True)
    (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def found(root: Path) -> str:
    """All findings as text; one a line."""
    return "\n".join(f"{finding.problem} -> {finding.remedy}" for finding in doctor.examine(root))


def dead_pid() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def hold(root: Path, pid: int) -> Path:
    """A rwlock as DVC writes it."""
    holder = {"pid": pid, "cmd": "dvc repro"}
    path = root / ".dvc/tmp/rwlock"
    path.write_text(json.dumps({"write": {"/x/data": holder}, "read": {"/x/lib": [holder]}}))
    return path


def test_a_healthy_checkout_has_nothing_to_mend(checkout, capsys):
    (checkout / ".dvc/tmp/rwlock").write_text('{"write": {}, "read": {}}')  # nobody holds anything
    assert doctor.main([], checkout) == 0
    assert capsys.readouterr().out == "nothing wrong was found\n"


def gone_python(root: Path) -> None:
    (root / ".venv/bin/python").unlink()
    (root / ".venv/bin/python").symlink_to(root / "no/such/python")


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda root: shutil.rmtree(root / ".venv"), "there is no .venv -> make repro"),
        (gone_python, "the Python that .venv was made with is gone -> rm -rf .venv"),
        (
            lambda root: (root / ".venv/pyvenv.cfg").write_text("version_info = 3.9.18.final.0\n"),
            ".venv is Python 3.9, 3.11 or newer is needed",
        ),
        (
            lambda root: shutil.rmtree(root / ".venv/share"),
            "JupyterLab's kernel is missing in .venv -> .venv/bin/python -m ipykernel install",
        ),
        (
            lambda root: hold(root, os.getppid()),
            "held by processes that are gone",
        ),  # its number is another program's
    ],
)
def test_what_is_missing_or_too_old_is_named_with_its_remedy(checkout, spoil, told):
    spoil(checkout)
    assert told in found(checkout)


def test_packages_that_are_missing_or_of_another_version_are_named_and_what_needs_no_mending_is_not(
    checkout,
):
    """A package of another platform, another spelling of a name, a build tag."""
    install(checkout, "torch", "2.13.0+cpu")
    install(checkout, "numpy", "1.0")
    pins = "DVC==3.67.1\nDVC_data==1.0\nappnope==1 ; sys_platform == 'darwin'\ntorch==2.13.0\nnumpy==2.0\n"
    (checkout / "requirements.lock").write_text(pins)
    again = "touch requirements.lock && make repro"
    other = f".venv has other versions than the lock: numpy 1.0 instead of 2.0 -> {again}"
    assert found(checkout) == f".venv lacks DVC_data -> {again}\n{other}"


def test_a_lock_whose_owner_is_dead_is_explained_and_mended(checkout, capsys):
    path = hold(checkout, dead_pid())
    assert "held by processes that are gone" in found(checkout) and "rm .dvc/tmp/rwlock" in found(
        checkout
    )
    assert doctor.main(["--fix"], checkout) == 0
    assert not path.exists() and "mended: .dvc/tmp/rwlock" in capsys.readouterr().out


def test_a_lock_whose_owner_works_is_left_alone(checkout):
    owner = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)  # dvc repro"])
    try:
        path = hold(checkout, owner.pid)
        assert f"process {owner.pid} is running the pipeline" in found(checkout)
        assert doctor.main(["--fix"], checkout) == 1 and path.exists()
    finally:
        owner.kill()
        owner.wait()


@pytest.mark.parametrize(
    "content", ["", '{"write": {', "[]", '{"write": {"x": 3}}', '{"write": {"x": {"pid": "?"}}}']
)
def test_a_rwlock_that_was_half_written_is_explained_and_mended(checkout, content):
    path = checkout / ".dvc/tmp/rwlock"
    path.write_text(content)
    assert ".dvc/tmp/rwlock is not readable" in found(checkout)
    doctor.main(["--fix", "--quiet"], checkout)
    assert not path.exists()


def test_a_merge_conflict_is_explained_and_never_mended_by_itself(checkout):
    text = "<<<<<<< HEAD\n" + LOCK + "=======\n" + LOCK + ">>>>>>> other\n"
    (checkout / "dvc.lock").write_text(text)
    assert (
        "dvc.lock holds marks of a merge conflict -> settle the conflict, or git checkout dvc.lock"
        in found(checkout)
    )
    assert doctor.main(["--fix"], checkout) == 1
    assert (checkout / "dvc.lock").read_text() == text


@pytest.mark.parametrize(
    "content", [b"", b"stages: [", b"\0\0\0", b"stages:\n  a:\n    cmd: 'x\n", b"- 1\n"]
)
def test_a_broken_dvc_lock_is_set_aside(checkout, content):
    (checkout / "dvc.lock").write_bytes(content)
    assert "dvc.lock is not valid YAML" in found(checkout)
    assert doctor.main(["--fix"], checkout) == 0
    assert (
        not (checkout / "dvc.lock").exists()
        and (checkout / "dvc.lock.broken").read_bytes() == content
    )


@pytest.mark.parametrize("last", ["stages:", "  settings:", "    cmd:", "    - path:"])
def test_a_dvc_lock_that_was_cut_off_between_two_words_is_set_aside(checkout, last):
    kept = LOCK[: LOCK.index(last) + len(last)] + "\n"
    (checkout / "dvc.lock").write_text(kept)
    assert "dvc.lock is cut off" in found(checkout)
    assert doctor.main(["--fix"], checkout) == 0
    assert (
        not (checkout / "dvc.lock").exists() and (checkout / "dvc.lock.broken").read_text() == kept
    )


def test_broken_parameters_are_never_touched(checkout):
    (checkout / "params.yaml").write_text("zoo: [")
    assert doctor.main(["--fix"], checkout) == 1
    assert (checkout / "params.yaml").read_text() == "zoo: ["


def test_a_missing_pipeline_is_restored_from_git_and_a_missing_lock_is_normal(checkout):
    (checkout / "dvc.lock").unlink()
    assert found(checkout) == ""
    (checkout / "dvc.yaml").unlink()
    assert found(checkout) == "dvc.yaml is missing -> git checkout dvc.yaml"


def test_a_downloaded_archive_is_told_that_there_is_no_git(checkout):
    (checkout / ".git").rmdir()
    assert "no git checkout" in found(checkout)
    assert doctor.main(["--fix"], checkout) == 0
    assert (checkout / ".dvc/config.local").read_text() == "[core]\n    no_scm = true\n"
    assert found(checkout) == ""
    (checkout / ".git").mkdir()
    assert "told that there is no git, but there is" in found(checkout)


@pytest.mark.skipif(
    not Path("/proc/self/cwd").exists(), reason="tells checkouts apart through /proc"
)
def test_a_kernel_without_a_runner_is_named(checkout):
    script = "import time; time.sleep(60)  # python -m lib.reports.execute.kernel -f x"
    kernel = subprocess.Popen([sys.executable, "-c", script], cwd=checkout)
    try:
        time.sleep(0.2)
        assert f"kernel {kernel.pid} has lost its runner -> kill -9 {kernel.pid}" in found(checkout)
        assert "lost its runner" not in found(ROOT / "tests")
    finally:
        kernel.kill()
        kernel.wait()


def test_a_full_disk_is_named(checkout, monkeypatch):
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1_200_000_000})()
    )
    assert "only 1.2 GB are free" in found(checkout)


def keep_job(root: Path, folder: str, *files: str) -> None:
    """Files of 500 kB under data/runs."""
    place = root / "data/runs" / folder
    place.mkdir(parents=True)
    for name in files:
        (place / name).write_bytes(bytes(500_000))


def test_jobs_under_names_of_an_earlier_version_are_counted_and_left_alone(checkout, capsys):
    keep_job(
        checkout, "zoo/education/PPO x seed-0-0123456789abcdef", "done.json", "weights.safetensors"
    )
    keep_job(checkout, "zoo/education/PPO x seed-1-fedcba9876543210", "done.json")
    keep_job(checkout, "routing/CoRL-0123456789abcdef", "done.json")
    keep_job(checkout, "routing/0123456789abcdef", "done.json", "job.json")
    keep_job(checkout, "conductor/fedcba9876543210", "done.json", "job.json")
    assert doctor.main(["--fix", "--quiet"], checkout) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "data/runs/routing has jobs under names of an earlier version: 1 (0.5 MB);"
    )
    assert second.startswith(
        "data/runs/zoo has jobs under names of an earlier version: 2 (1.5 MB);"
    )
    assert all("are made again" in line and "make clean" in line for line in (first, second))
    assert len(list((checkout / "data/runs").rglob("done.json"))) == 5
    assert doctor.main([], checkout) == 0 and "nothing wrong was found" in capsys.readouterr().out


def test_it_needs_nothing_but_the_standard_library():
    program = (
        "import sys; sys.path.insert(0, 'scripts'); import doctor; "
        "print(sorted(m for m in sys.modules if m == 'lib'))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0 and done.stdout == "[]\n", done.stderr


def test_a_broken_dvc_lock_is_noticed_without_a_yaml_parser_too(checkout, monkeypatch):
    monkeypatch.setitem(sys.modules, "ruamel.yaml", None)
    assert found(checkout) == ""
    (checkout / "dvc.lock").write_text("stages:\n  a:\n    md5: 0a4f")  # cut off
    assert "dvc.lock is not valid YAML" in found(checkout)
