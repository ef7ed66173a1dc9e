"""Copies in which the pipeline runs, for all tests of a session."""

import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from .checkout import Built, Checkout, Say, build, snapshot
from .kills import PROC, kill_again_and_again


@pytest.fixture(scope="session")
def say(request) -> Say:
    """Print at once, past pytest's capture: minutes of silence look like a hang."""
    capture = request.config.pluginmanager.getplugin("capturemanager")
    started = time.monotonic()

    def write(text: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"[pipeline {time.monotonic() - started:4.0f} s] {text}", flush=True)

    return write


@pytest.fixture(scope="session")
def place(tmp_path_factory) -> Iterator[Path]:
    """Where the copies lie; removed at once afterwards, since each holds a whole run."""
    folder = tmp_path_factory.mktemp("copies")
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def copy(place) -> Callable[..., Checkout]:
    """Makes copies by name, all of the same moment: the working tree may be edited meanwhile."""
    snapshot(place / "sources")

    def make(name: str, with_git: bool = True) -> Checkout:
        ignore = None if with_git else shutil.ignore_patterns(".git")
        shutil.copytree(place / "sources", place / name, ignore=ignore, symlinks=True)
        return Checkout(place / name)

    return make


@pytest.fixture(scope="session")
def under_way(copy, place, say) -> Iterator[dict[str, Future]]:
    """Three copies at once, none of which may know of the others: much of a run keeps one core busy at most, and who
    is killed again and again waits most of the time."""
    names = ("first", "second", *(["interrupted"] if PROC.exists() else []))
    copies = {name: copy(name) for name in names}
    with ThreadPoolExecutor(len(copies)) as threads:
        found = {name: threads.submit(build, copies[name], say) for name in names[:2]}
        if PROC.exists():
            log = place / "interrupted.log"
            found["interrupted"] = threads.submit(
                kill_again_and_again, copies["interrupted"], log, say
            )
        yield found


@pytest.fixture(scope="session")
def first(under_way) -> Built:
    return under_way["first"].result()


@pytest.fixture(scope="session")
def second(under_way) -> Built:
    return under_way["second"].result()


@pytest.fixture(scope="session")
def interrupted(under_way) -> Checkout:
    return under_way["interrupted"].result()
