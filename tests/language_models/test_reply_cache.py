"""The store of replies: nothing is lost that was written, nothing is trusted that is broken, and off means off."""

import multiprocessing
import os
import signal
import sqlite3
import time

import pytest

from lib.language_models import reply_cache
from lib.language_models.reply_cache import Memory

KEYS = [bytes([i]) * 20 for i in range(40)]
TOLD = {key: b"[%d]" % i for i, key in enumerate(KEYS)}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "replies/lab.sqlite"


def kept(file, told=TOLD) -> None:
    made = Memory(file)
    made.put(told)
    made.close()


def test_what_was_kept_is_known_to_the_next(file):
    kept(file)
    again = Memory(file)
    assert again.get(KEYS) == TOLD and again.get([b"x" * 20]) == {}
    again.close()


def test_a_reply_is_known_at_once_and_written_by_flush(file):
    first, second = Memory(file), Memory(file)
    first.put(TOLD)
    assert first.get(KEYS[:1]) == {KEYS[0]: TOLD[KEYS[0]]} and second.get(KEYS) == {}
    first.flush()
    assert second.get(KEYS) == TOLD and len(second) == len(TOLD)
    first.close()
    second.close()


def test_many_are_written_before_anybody_asks_for_it(file):
    first, second = Memory(file), Memory(file)
    many = {i.to_bytes(20, "big"): b"1" for i in range(reply_cache._HELD)}
    first.put(many)
    assert len(second.get(many)) == len(many)
    first.close()
    second.close()


def test_without_a_file_replies_live_as_long_as_the_object():
    made = Memory(None)
    made.put(TOLD)
    assert made.get(KEYS) == TOLD
    made.close()


def _writer(file, number: int) -> None:
    made = Memory(file)
    for i in range(50):
        made.put({number.to_bytes(4, "big") + i.to_bytes(16, "big"): b"x" * 200})
        made.flush()
    made.close()


def test_processes_write_side_by_side(file):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_writer, args=(file, n)) for n in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    made = Memory(file)
    wanted = [n.to_bytes(4, "big") + i.to_bytes(16, "big") for n in range(3) for i in range(50)]
    assert [worker.exitcode for worker in workers] == [0, 0, 0] and len(made.get(wanted)) == 150
    made.close()


def _endless(file, ready) -> None:
    made, i = Memory(file), 0
    while True:
        made.put({i.to_bytes(20, "big"): b"y" * 500})
        made.flush()
        ready.set()
        i += 1


def test_a_kill_leaves_a_store_that_is_whole(file):
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    worker = context.Process(target=_endless, args=(file, ready))
    worker.start()
    assert ready.wait(60)
    time.sleep(0.1)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join(30)
    made = Memory(file)
    found = made.get(i.to_bytes(20, "big") for i in range(100_000))
    assert found and set(found.values()) == {b"y" * 500}
    assert sorted(found) == [i.to_bytes(20, "big") for i in range(len(found))]
    made.put(TOLD)
    made.close()


@pytest.mark.parametrize("content", [b"no database " * 200, b"SQLite format 3\0" + b"\xff" * 5_000])
def test_a_broken_file_is_set_aside_and_told(file, content, capsys):
    file.parent.mkdir()
    file.write_bytes(content)
    kept(file)
    assert "set aside as lab.sqlite.broken" in capsys.readouterr().err
    assert file.with_suffix(".sqlite.broken").read_bytes() == content
    made = Memory(file)
    assert made.get(KEYS) == TOLD
    made.close()


def test_a_database_of_another_kind_is_told_and_left_alone(file, capsys):
    file.parent.mkdir()
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE replies (name TEXT)")
    other.close()
    before = file.read_bytes()
    kept(file)
    assert "not remembered" in capsys.readouterr().err and file.read_bytes() == before


def test_where_nothing_can_be_written_nothing_is_remembered_and_nothing_fails(tmp_path, capsys):
    (tmp_path / "a file").write_text("")
    made = Memory(tmp_path / "a file/lab.sqlite")
    made.put(TOLD)
    assert made.get(KEYS) == TOLD and "not remembered" in capsys.readouterr().err
    made.close()


@pytest.mark.parametrize(
    ("told", "where"), [("off", None), ("OFF", None), ("0", None), ("", reply_cache.REPLIES)]
)
def test_the_environment_says_where_or_off(told, where, monkeypatch):
    monkeypatch.setenv(reply_cache.SWITCH, told)
    assert reply_cache.place() == where


def test_every_part_of_a_request_is_in_its_key(monkeypatch):
    usual = {
        "fingerprint": "a",
        "ids": [1, 2],
        "limit": 8,
        "temperature": 0.5,
        "seed": 1,
        "stops": (),
    }
    others = [
        {"fingerprint": "b"},
        {"ids": [1, 2, 3]},
        {"limit": 9},
        {"temperature": 0.6},
        {"seed": 2},
        {"stops": ((3,),)},
    ]
    keys = [reply_cache.key(**usual | change) for change in ({}, *others)]
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "another processor")
    assert len({*keys, reply_cache.key(**usual)}) == len(keys) + 1 and {
        len(key) for key in keys
    } == {20}
