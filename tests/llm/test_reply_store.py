"""The store of replies: kept whole or not at all, by any number of processes, and given again byte for byte."""

import asyncio
import json
import multiprocessing
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.config import ROOT
from lib.llm.reply_store import Recording, ReplyStore
from tests.llm.server import Answer, Asked, Server, completion

RESPONSE = {
    "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "SO-d2"}}],
    "model": "m",
}
REQUEST = {"model": "m", "messages": [{"role": "user", "content": "b"}], "seed": 1}


def fill(folder: Path, keys) -> Recording:
    recording = Recording(folder, "tape", "record")
    for key in keys:
        recording.put(key, REQUEST | {"model": key}, RESPONSE | {"model": key})
    return recording


def export(folder: Path) -> Path:
    return Recording(folder, "tape", "record").export()


# The store ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("write_every", [1, 3])
def test_what_was_kept_is_there_after_reopening(write_every, tmp_path):
    store = ReplyStore(tmp_path / "replies.sqlite", write_every)
    for number in range(7):
        store.put(f"{number}".encode(), f"reply {number}".encode())
    store.close()
    again = ReplyStore(tmp_path / "replies.sqlite")
    assert again.get_all([b"0", b"6", b"9"]) == {b"0": b"reply 0", b"6": b"reply 6"}


def test_the_first_reply_stays_and_is_what_everybody_gets(tmp_path):
    one, two = (ReplyStore(tmp_path / "replies.sqlite") for _ in range(2))
    assert one.put(b"k", b"first") == b"first"
    assert two.put(b"k", b"second") == b"first" == two.get(b"k")


def test_a_broken_file_that_is_not_required_is_set_aside_and_said(tmp_path, capsys):
    path = tmp_path / "replies.sqlite"
    path.write_bytes(b"no database, " * 100)
    store = ReplyStore(path, required=False)
    assert store.put(b"k", b"v") == b"v" and (tmp_path / "replies.sqlite.broken").exists()
    assert "set aside" in capsys.readouterr().err
    assert ReplyStore(path).get(b"k") == b"v"


def test_without_a_file_replies_live_as_long_as_the_object():
    store = ReplyStore(None)
    store.put(b"k", b"v")
    store.close()
    assert store.get(b"k") == b"v"


def test_replies_that_are_written_together_are_seen_by_others_when_enough_came_or_after_a_flush(
    tmp_path,
):
    store = ReplyStore(tmp_path / "replies.sqlite", write_every=3)
    other = ReplyStore(tmp_path / "replies.sqlite", write_every=3)
    store.put(b"0", b"v")
    assert store.get(b"0") == b"v" and other.get(b"0") is None
    store.put(b"1", b"v")
    store.put(b"2", b"v")
    assert other.get_all([b"0", b"1", b"2"]) == {b"0": b"v", b"1": b"v", b"2": b"v"}
    store.put(b"3", b"v")
    store.flush()
    assert other.get(b"3") == b"v" and len(other) == 4


def test_a_database_of_another_kind_is_left_alone_and_said(tmp_path, capsys):
    path = tmp_path / "replies.sqlite"
    with closing(sqlite3.connect(path)) as foreign:
        foreign.execute("CREATE TABLE replies (name TEXT)")
        foreign.commit()
    before = path.read_bytes()
    store = ReplyStore(path, required=False)
    assert store.put(b"k", b"v") == b"v" == store.get(b"k")
    store.close()
    assert "replies are not kept from here on" in capsys.readouterr().err
    assert path.read_bytes() == before


def test_where_nothing_can_be_written_nothing_is_kept_and_nothing_fails(tmp_path, capsys):
    (tmp_path / "a file").write_text("")
    store = ReplyStore(tmp_path / "a file/replies.sqlite", required=False)
    assert store.put(b"k", b"v") == b"v" == store.get(b"k")
    store.close()
    assert "replies are not kept from here on" in capsys.readouterr().err


def test_a_broken_file_that_is_required_is_named(tmp_path):
    (tmp_path / "tape.sqlite").write_bytes(b"no database, " * 100)
    with pytest.raises(ValueError, match="tape.sqlite is no store of replies that can be used"):
        Recording(tmp_path, "tape", "record")


def damage_pages(path: Path) -> None:
    """Overwrites what lies behind the first page, as a disk may do: the file still opens."""
    content = bytearray(path.read_bytes())
    content[4_096:] = b"\xff" * (len(content) - 4_096)
    path.write_bytes(content)


def damage_entry(path: Path) -> None:
    change_row(path, "UPDATE replies SET reply = CAST('{\"key\": ' AS BLOB)")


def damage_type(path: Path) -> None:
    change_row(path, "UPDATE replies SET reply = 7")


def change_row(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


@pytest.mark.parametrize("damage", [damage_pages, damage_entry, damage_type])
@pytest.mark.parametrize("use", ["get", "put", "export"])
def test_a_damaged_recording_is_named_with_its_remedy_and_loses_nothing(tmp_path, damage, use):
    fill(tmp_path, (f"{n:03d}" for n in range(200))).close()
    exported = b'{"key":"kept","request":{},"response":{}}\n'
    (tmp_path / "tape.jsonl").write_bytes(exported)
    damage(tmp_path / "tape.sqlite")
    before = (tmp_path / "tape.sqlite").read_bytes()
    with pytest.raises(
        ValueError, match=r"tape.sqlite is no store of replies.*asked again"
    ) as caught:
        recording = Recording(tmp_path, "tape", "record")
        assert recording.get("kept")["key"] == "kept"
        if use == "get":
            recording.get("100")
        elif use == "put":
            recording.put("100", REQUEST, RESPONSE)
        else:
            recording.export()
    assert "\n" not in str(caught.value)
    if use == "put" and "readable" in str(caught.value):
        # The reply that was in hand, and paid for, is saved too.
        saved = ReplyStore(tmp_path / "tape.sqlite.readable")
        assert b"100" in saved.items()
    assert (tmp_path / "tape.jsonl").read_bytes() == exported
    assert (tmp_path / "tape.sqlite").read_bytes()[:4_096] == before[:4_096]


def test_readable_replies_of_a_damaged_recording_are_saved_and_the_remedy_works(tmp_path):
    keys = [f"{n:03d}" for n in range(200)]
    fill(tmp_path, keys).close()
    path = tmp_path / "tape.sqlite"
    content = bytearray(path.read_bytes())
    middle = len(content) // 2 // 4_096 * 4_096
    content[middle : middle + 4_096] = b"\xff" * 4_096
    path.write_bytes(content)
    with pytest.raises(ValueError) as caught:
        Recording(tmp_path, "tape", "record").export()
    command = str(caught.value).split("`")[1]
    subprocess.run(["sh", "-c", command], check=True)
    recording = Recording(tmp_path, "tape", "record")
    replies = [recording.get(key) for key in keys]
    readable = [reply for reply in replies if reply is not None]
    assert 100 < len(readable) < 200
    assert f"its {len(readable)} readable replies are saved" in str(caught.value)
    assert {reply["request"]["model"] for reply in readable} < set(keys)
    fill(tmp_path, keys).export()
    assert len((tmp_path / "tape.jsonl").read_bytes().splitlines()) == 200


def test_a_cache_that_is_damaged_later_is_said_and_the_run_goes_on(tmp_path, capsys):
    path = tmp_path / "replies.sqlite"
    store = ReplyStore(path)
    for number in range(200):
        store.put(f"{number}".encode(), b"reply" * 50)
    store.close()
    damage_pages(path)
    store = ReplyStore(path, required=False)
    assert store.get(b"7") is None and store.put(b"7", b"again") == b"again" == store.get(b"7")
    assert store.items() == {b"7": b"again"}
    assert "replies.sqlite" in capsys.readouterr().err


# Recordings ---------------------------------------------------------------------------------------


def test_a_mode_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'rewind'"):
        Recording(tmp_path, "tape", "rewind")


def test_exports_are_sorted_and_equal_whatever_was_recorded_first(tmp_path):
    one = fill(tmp_path / "one", "abcdef").export().read_bytes()
    two = fill(tmp_path / "two", "fbdaec").export()
    keys = [json.loads(line)["key"] for line in one.splitlines()]
    assert one == two.read_bytes() and keys == sorted(keys) and len(keys) == 6
    before = two.stat()
    assert fill(tmp_path / "two", "a").export().read_bytes() == one
    # Not even touched.
    assert (two.stat().st_mtime_ns, two.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_an_export_keeps_what_another_machine_exported(tmp_path):
    theirs = fill(tmp_path / "theirs", "abc").export()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/tape.jsonl").write_bytes(theirs.read_bytes())
    merged = fill(tmp_path / "mine", "cde").export().read_bytes()
    assert merged == fill(tmp_path / "all", "abcde").export().read_bytes()


def test_where_two_machines_recorded_one_request_the_exported_reply_is_used_and_kept(tmp_path):
    fill(tmp_path, "k")
    entry = {"key": "k", "request": REQUEST, "response": RESPONSE | {"model": "theirs"}}
    (tmp_path / "tape.jsonl").write_text(json.dumps(entry) + "\n")
    before_export = Recording(tmp_path, "tape", "record").get("k")["response"]["model"]
    export(tmp_path)
    after_export = Recording(tmp_path, "tape", "replay").get("k")["response"]["model"]
    assert before_export == after_export == "theirs"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=25)
@given(st.dictionaries(st.text(st.characters()), JSON, max_size=3), st.text(st.characters()))
def test_any_reply_survives_recording_and_export(tmp_path_factory, fields, text):
    folder = tmp_path_factory.mktemp("any")
    message = {"role": "assistant", "content": text} | fields
    response = {"choices": [{"message": message}]}
    entry = Recording(folder, "tape", "record").put("k", REQUEST, response)
    export(folder)
    assert Recording(folder, "tape", "replay").get("k") == entry
    writable = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace").decode()
    assert entry["response"]["choices"][0]["message"] == json.loads(writable)


BROKEN = {
    "half a line": b'{"key": "k", "request": {}, "resp',
    "a merge conflict": b"<<<<<<< HEAD",
    "another object": b'{"key": "k"}',
    "a list": b"[]",
    "an empty line": b"",
    "bytes that are no text": b'{"key": "\xff"}',
    "a line too deep": b'{"key": "k", "request": {}, "response": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("mode", ["record", "replay"])
@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_line_is_named_with_its_file_and_number(broken, mode, tmp_path):
    exported = fill(tmp_path, "ab").export()
    one, two = exported.read_bytes().splitlines()
    exported.write_bytes(b"\n".join([one, BROKEN[broken], two]) + b"\n")
    with pytest.raises(ValueError, match="tape.jsonl, line 2: .*remove the line"):
        Recording(tmp_path, "tape", mode)


def test_half_a_character_in_an_export_does_not_stop_the_next_one(tmp_path):
    exported = fill(tmp_path, "ab").export()
    one, two = exported.read_bytes().splitlines()
    exported.write_bytes(one.replace(b'"role"', b'"odd":"\\ud800","role"') + b"\n" + two + b"\n")
    assert b"ud800" in exported.read_bytes() and b'"odd":"?"' in export(tmp_path).read_bytes()


def test_an_export_without_a_last_line_end_is_whole(tmp_path):
    exported = fill(tmp_path, "ab").export()
    whole = exported.read_bytes()
    exported.write_bytes(whole.rstrip(b"\n"))
    assert export(tmp_path).read_bytes() == whole


# Processes ----------------------------------------------------------------------------------------

RECORDER = """
import asyncio, sys
from lib.llm.endpoint import Endpoint
from lib.llm.reply_store import Recording
from tests.llm import server
folder, url, first, last = sys.argv[1:]
numbers = range(int(first), int(last))
requests = [{"messages": [{"role": "user", "content": f"question {n}"}], "seed": n} for n in numbers]
model = Endpoint("mine", server.settings_of(url), Recording(folder, "tape", "record"))
replies = asyncio.run(server.ask_all(model, requests))
print(sum(reply.text == f"question {n} with {n}" for n, reply in zip(numbers, replies)))
"""

WRITER = """
import sys
from lib.llm.reply_store import Recording
from tests.llm.test_reply_store import make_entry
recording = Recording(sys.argv[1], "tape", "record")
print("ready", flush=True)
for number in range(100_000):
    recording.put(*make_entry(number))
"""


def make_entry(number: int):
    """A key, a request and a reply of some length that belong together."""
    content = f"{number} " * 2_000
    return str(number), REQUEST | {"seed": number}, {"choices": [{"message": {"content": content}}]}


def count_by_request(asked: Asked) -> Answer:
    return Answer(completion(f"{asked.body['messages'][-1]['content']} with {asked.body['seed']}"))


def test_processes_that_record_at_once_lose_nothing(tmp_path):
    async def play():
        async with Server(count_by_request) as server:
            # A third of the questions is asked by both.
            processes = [
                await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-c",
                    RECORDER,
                    str(tmp_path),
                    server.url,
                    *span,
                    cwd=ROOT,
                    stdout=subprocess.PIPE,
                )
                for span in [("0", "40"), ("20", "60")]
            ]
            counts = [int((await process.communicate())[0]) for process in processes]
            return counts, server.asked

    correct, requests = asyncio.run(play())
    assert correct == [40, 40] and 60 <= len(requests) <= 80
    lines = export(tmp_path).read_text().splitlines()
    assert sorted(json.loads(line)["request"]["seed"] for line in lines) == list(range(60))


NUM_STARTED, NUM_FOLDERS = 4, 40


def start_recording(root: Path, number: int, barrier) -> None:
    for folder in range(NUM_FOLDERS):
        barrier.wait(60)
        fill(root / str(folder), [str(number)])


def test_processes_that_start_a_recording_at_once_all_get_one(tmp_path):
    context = multiprocessing.get_context("fork")  # at once: others take seconds to start
    barrier = context.Barrier(NUM_STARTED)
    processes = [
        context.Process(target=start_recording, args=(tmp_path, number, barrier))
        for number in range(NUM_STARTED)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * NUM_STARTED
    for folder in range(NUM_FOLDERS):
        assert len(export(tmp_path / str(folder)).read_text().splitlines()) == NUM_STARTED


def count_rows(folder: Path) -> int:
    if not (folder / "tape.sqlite").exists():
        return 0
    with closing(sqlite3.connect(folder / "tape.sqlite", timeout=30)) as connection:
        return connection.execute("SELECT COUNT(*) FROM replies").fetchone()[0]


def test_a_recording_that_is_killed_leaves_whole_replies_only(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        process.stdout.readline()
        while count_rows(tmp_path) < 20:
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    recording = Recording(tmp_path, "tape", "record")
    lines = recording.export().read_text().splitlines()
    assert len(lines) >= 20
    for line in lines:
        entry = json.loads(line)
        assert (entry["key"], entry["request"], entry["response"]) == make_entry(int(entry["key"]))
