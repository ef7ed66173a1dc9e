"""What a stranger installs: pyproject, lock, environment.yml, citation and the size of the repository."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

ROOT = Path(__file__).resolve().parents[1]
LARGEST = 1_500_000  # bytes of one file


def yaml(name: str):
    return YAML(typ="safe").load((ROOT / name).read_text(encoding="utf-8"))


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def lock_lines() -> list[str]:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


def pins() -> dict[str, str]:
    """Version by canonical name. A pin for another platform counts as well."""
    requirements = map(Requirement, lock_lines())
    return {canonicalize_name(r.name): str(r.specifier).removeprefix("==") for r in requirements}


def asked_for() -> list[str]:
    extras = project().get("optional-dependencies", {}).values()
    return [*project()["dependencies"], *(line for extra in extras for line in extra)]


@pytest.mark.parametrize("line", asked_for())
def test_every_dependency_is_pinned_to_a_version_that_satisfies_it(line):
    wanted = Requirement(line)
    pinned = pins().get(canonicalize_name(wanted.name))
    assert pinned, f"{wanted.name} is in pyproject.toml and not in requirements.lock"
    assert wanted.specifier.contains(pinned, prereleases=True), f"{wanted} is pinned to {pinned}"


@pytest.mark.parametrize("line", lock_lines())
def test_every_line_of_the_lock_is_one_exact_public_version(line):
    requirement = Requirement(line)
    assert requirement.url is None and not requirement.extras
    assert re.fullmatch(r"==[0-9][0-9A-Za-z.]*", str(requirement.specifier)), (
        "one ==, no local version such as +cpu"
    )


def test_the_lock_pulls_nothing_from_elsewhere_and_no_gpu_stack():
    text = (ROOT / "requirements.lock").read_text(encoding="utf-8").lower()
    for word in ("://", " @ ", "--", "nvidia", "cuda", "triton", "+cpu"):
        assert word not in text, f"{word!r} has no place in requirements.lock"


def test_the_lock_names_nothing_twice():
    assert len(pins()) == len(lock_lines())


def test_no_file_of_the_repository_is_large():
    # a virtual environment in the checkout is nobody's commit, ignored or not
    command = [
        "git",
        "ls-files",
        "-z",
        "--cached",
        "--others",
        "--exclude-standard",
        "--exclude=.venv/",
    ]
    try:
        listed = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.split("\0") if name]
    sizes = {str(path.relative_to(ROOT)): path.stat().st_size for path in paths if path.is_file()}
    assert not {name: size for name, size in sizes.items() if size > LARGEST}


def test_hugging_face_libraries_fetch_nothing_and_report_nothing():
    """They read their environment once, when they are imported: whoever comes by way of `lib` finds it set."""
    told = (
        "HF_HUB_OFFLINE",
        "TRANSFORMERS_OFFLINE",
        "HF_HUB_DISABLE_TELEMETRY",
        "DISABLE_TELEMETRY",
        "DO_NOT_TRACK",
    )
    clean = {name: value for name, value in os.environ.items() if name not in told}
    ask = "from lib.conductor import trainer\nfrom huggingface_hub import constants as c\n"
    ask += "print(c.HF_HUB_OFFLINE, c.HF_HUB_DISABLE_TELEMETRY)"
    done = subprocess.run(
        [sys.executable, "-c", ask], cwd=ROOT, env=clean, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["True", "True"]


def test_conda_installs_the_same_lock_on_the_same_python():
    environment = yaml("environment.yml")
    assert environment["name"] == project()["name"]
    assert environment["channels"] == ["conda-forge"]
    python, pip, from_pip = environment["dependencies"]
    assert pip == "pip" and from_pip == {"pip": ["-r requirements.lock"]}
    conda, declared = (
        Requirement(python).specifier,
        Requirement("python" + project()["requires-python"]).specifier,
    )
    for minor in range(8, 20):
        version = f"3.{minor}"
        assert not conda.contains(version) or declared.contains(version)
    assert all(conda.contains(f"3.{minor}") for minor in (11, 12, 13))


def test_the_citation_file_names_the_project_and_the_five_papers():
    citation = yaml("CITATION.cff")
    assert citation["cff-version"] == "1.2.0" and citation["type"] == "software"
    assert citation["title"] == project()["name"] and citation["version"] == project()["version"]
    assert citation["license"] == project()["license"] == "MIT"
    assert citation["message"] and citation["authors"]
    assert len(citation["references"]) == 5
    titles = " ".join(reference["title"] for reference in citation["references"])
    for word in (
        "KO, TO, RO",
        "MAESTRO",
        "Configure Agentic",
        "ToolOrchestra",
        "Performance and Budget",
    ):
        assert word in titles


def test_the_licence_is_the_one_that_is_declared():
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith("MIT License") and "the orchestration-bench authors" in text
