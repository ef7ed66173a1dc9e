"""The cassette: a reply is asked for once, kept whole or not at all, and given again byte for byte."""

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
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lib.config import ROOT
from lib.llm import replay_cache as tape
from lib.llm.client import Reply
from lib.llm.errors import CassetteMiss, LLMError, ReplyError
from lib.llm.replay_cache import Cassette
from lib.llm.spending_limit import SpendingLimit
from tests.llm.server import (
    KEY_VARIABLE,
    QUESTION,
    Answer,
    Asked,
    Outcome,
    Server,
    at_once,
    call,
    completion,
)

REPLY = {
    "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "SO-d2"}}],
    "model": "m",
}
BODY = {
    "model": "m", "messages": [{"role": "system", "content": "a"}, {"role": "user", "content": "b"}],
    "temperature": 0.5, "max_tokens": 100, "seed": 1, "tools": [{"type": "function", "function": {"name": "look"}}],
    "response_format": {"type": "json_object"},
}  # fmt: skip


def asked(text: str, seed: int, sample: int = 0) -> dict:
    return {"messages": [{"role": "user", "content": text}], "seed": seed, "sample": sample}


def recorded(folder: Path, script, chats, mode: str = "record", **changes) -> Outcome:
    """Ask a server, all at once, with the cassette in a folder."""
    return at_once(
        script, chats=chats, parts={"cassette": Cassette(folder, "tape", mode)}, **changes
    )


def exported(folder: Path) -> Path:
    return Cassette(folder, "tape", "record").export()


def counted(request: Asked) -> Answer:
    """A reply that depends on all that was asked, in length too."""
    text = f"{request.body['messages'][-1]['content']} with {request.body['seed']}"
    return Answer(completion(text, tokens_in=100 + request.body["seed"], tokens_out=len(text)))


CHATS = [
    asked(text, seed, n)
    for text in ("where", "who", "ünï \u2028 code")
    for seed in (0, 7)
    for n in (0, 1)
]


def plain(replies: list[Reply]) -> list[tuple]:
    """All of the replies but whether they came from the cassette."""
    return [
        (r.text, r.tokens_in, r.tokens_out, r.cost_usd, r.kwh, r.finish_reason, r.model, r.backend)
        for r in replies
    ]


# Record and replay --------------------------------------------------------------------------------


def test_a_replay_without_a_key_gives_equal_replies_at_equal_prices_and_asks_and_writes_nothing(
    tmp_path, monkeypatch
):
    first = recorded(tmp_path, counted, CHATS).results
    exported(tmp_path)
    (tmp_path / "tape.sqlite").unlink()
    monkeypatch.delenv(KEY_VARIABLE)
    again = recorded(tmp_path, counted, CHATS, "replay")
    assert plain(again.results) == plain(first) and len({reply.cost_usd for reply in first}) > 2
    assert not any(reply.cached for reply in first) and all(reply.cached for reply in again.results)
    assert again.server.asked == [] and [path.name for path in tmp_path.iterdir()] == ["tape.jsonl"]


def test_a_miss_in_replay_names_the_request_sends_nothing_and_writes_nothing(tmp_path, waits):
    parts = {
        "cassette": Cassette(tmp_path / "tapes", "tape", "replay"),
        "purse": SpendingLimit(tmp_path / "spent.sqlite", 0.0),
    }
    outcome = call(chat={"seed": 3}, parts=parts, retries=5)
    assert isinstance(outcome.only, CassetteMiss)
    sent = {
        "model": "served",
        "messages": QUESTION,
        "temperature": 0.5,
        "max_tokens": 100,
        "seed": 3,
    }
    for part in ("mine", "Which policy acts next?", tape.key(sent)[:16], "tape.jsonl"):
        assert part in str(outcome.only)
    assert outcome.server.asked == [] and waits == [] and outcome.client.ledger.entries == []
    assert not (tmp_path / "tapes").exists()


def test_another_sample_of_an_equal_request_is_another_reply(tmp_path):
    replies = iter(["SO-d1", "SO-d2", "SO-d3"])
    chats = [asked("who", 0, sample) for sample in range(3)]
    first = recorded(
        tmp_path, lambda request: Answer(completion(next(replies))), chats, concurrency=1
    )
    assert [reply.text for reply in first.results] == ["SO-d1", "SO-d2", "SO-d3"] and len(
        first.server.asked
    ) == 3
    again = recorded(tmp_path, counted, chats[::-1])
    assert [reply.text for reply in again.results] == [
        "SO-d3",
        "SO-d2",
        "SO-d1",
    ] and again.server.asked == []


def test_equal_requests_under_way_at_once_get_the_one_reply_that_a_replay_gives(tmp_path):
    numbers = iter(range(1, 100))
    script = lambda request: Answer(completion(f"reply {next(numbers)}"), delay=0.02)  # noqa: E731
    first = recorded(tmp_path, script, [asked("who", 0)] * 4)
    assert len(first.server.asked) == 4  # none was there when the last one was sent
    exported(tmp_path)
    again = recorded(tmp_path, script, [asked("who", 0)] * 4, "replay")
    assert plain(again.results) == plain(first.results)


def test_a_mode_that_there_is_not_is_refused(tmp_path):
    with pytest.raises(ValueError, match="'rewind'"):
        Cassette(tmp_path, "tape", "rewind")


# What is kept -------------------------------------------------------------------------------------

INCOMPLETE = {
    "no choices": Answer(completion() | {"choices": []}),
    "an error beside a reply": Answer(completion() | {"error": "overloaded"}),
    "html": Answer("<html></html>"),
    "an empty body": Answer(""),
    "half a body": Answer(Answer().raw()[:90]),
    "a cut connection": Answer(cut=90),
    "nested beyond reason": Answer("[" * 100_000),
    "a list": Answer([completion()]),
    "204": Answer("", 204),
    **{str(status): Answer(status=status) for status in (201, 400, 401, 404, 429, 500)},
}


@pytest.mark.parametrize("odd", INCOMPLETE)
def test_what_is_no_whole_reply_is_not_kept(odd, tmp_path, waits):
    box = Cassette(tmp_path, "tape", "record")
    outcome = call(INCOMPLETE[odd], parts={"cassette": box})
    assert outcome.server.asked and (isinstance(outcome.only, LLMError) or odd == "201")
    assert count(tmp_path) == 0 and not box.export().exists()
    assert call(Answer(), parts={"cassette": box}).server.asked  # asked again, with better luck


COMPLETE = {
    "text": completion(),
    "without finish_reason": completion(finish_reason=None),
    "another finish_reason": completion(finish_reason="eos"),
    "parts": completion([{"type": "text", "text": "SO-d2"}]),
    "a tool call": completion(
        message={"content": None, "tool_calls": [{"id": "1"}]}, finish_reason="tool_calls"
    ),
    "without usage": {"choices": completion()["choices"]},
    "numbers that are none": completion(logprobs=[float("nan"), float("inf"), float("-inf")]),
    "lines that are none": completion("a\u2028b\u2029c\x85d\x1ce\x0bf\r\ng"),
    "half a character": completion("SO\ud83d-d2"),
    "nested deeply": completion(logprobs=json.loads("[" * 300 + "]" * 300)),
}


@pytest.mark.parametrize("kind", COMPLETE)
def test_every_usable_reply_is_kept_and_given_again(kind, tmp_path):
    box = Cassette(tmp_path, "tape", "record")
    outcome = call(Answer(COMPLETE[kind]), times=2, parts={"cassette": box})
    box.export()
    replay = call(Answer(), parts={"cassette": Cassette(tmp_path, "tape", "replay")})
    assert len(outcome.server.asked) == 1 and replay.server.asked == []
    assert plain([*outcome.results, replay.only]) == plain([outcome.results[0]] * 3)


def test_what_is_kept_has_neither_ids_nor_times(tmp_path):
    for folder in ("one", "two"):  # the server stamps each of its replies
        recorded(tmp_path / folder, counted, CHATS)
    one, two = (exported(tmp_path / folder).read_bytes() for folder in ("one", "two"))
    assert one == two and len(one.splitlines()) >= len(CHATS)


USELESS = {
    "truncated": completion("half", finish_reason="length"),
    "content_filter": completion("half", finish_reason="content_filter"),
    "null_content": completion(" \n"),
    "refusal": completion(message={"content": "no", "refusal": "no"}),
}


@pytest.mark.parametrize("kind", USELESS)
def test_a_reply_that_was_paid_for_and_is_of_no_use_is_replayed_as_what_it_was(kind, tmp_path):
    first = call(
        Answer(USELESS[kind]), parts={"cassette": Cassette(tmp_path, "tape", "record")}
    ).only
    exported(tmp_path)
    again = call(parts={"cassette": Cassette(tmp_path, "tape", "replay")}).only
    assert isinstance(first, ReplyError) and first.kind == kind and again.args == first.args


# The key of a request -----------------------------------------------------------------------------

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-99, 99)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
CHANGES = {
    "model": st.text(),
    "seed": st.integers(),
    "temperature": st.floats(0, 2),
    "max_tokens": st.integers(1),
    "top_p": st.floats(0, 1),
    "stop": st.lists(st.text(), min_size=1),
    "tools": st.lists(JSON),
    "response_format": JSON,
    "messages": st.lists(
        st.fixed_dictionaries({"role": st.sampled_from(["system", "user"]), "content": st.text()})
    ),
}


@given(
    st.sampled_from(sorted(CHANGES)).flatmap(
        lambda name: CHANGES[name].map(lambda value: (name, value))
    )
)
def test_a_request_that_differs_in_anything_that_counts_has_another_key(change):
    name, value = change
    assume(BODY.get(name) != value)
    assert tape.key(BODY | {name: value}) != tape.key(BODY)


@given(st.lists(st.text(), min_size=2, max_size=4), st.integers(0, 9), st.integers(0, 9), st.data())
def test_text_and_order_of_messages_and_the_sample_are_part_of_the_key(
    texts, sample, another, data
):
    other = data.draw(st.permutations(texts) | st.lists(st.text(), min_size=1, max_size=4))
    one, two = ([{"role": "user", "content": text} for text in each] for each in (texts, other))
    keys = {tape.key(BODY | {"messages": one}, sample), tape.key(BODY | {"messages": two}, another)}
    assert (len(keys) == 1) == ((texts, sample) == (other, another))


def shuffled(value, data):
    """The same JSON with fields in another order and whole numbers as floats."""
    if isinstance(value, dict):
        return {
            name: shuffled(value[name], data) for name in data.draw(st.permutations(sorted(value)))
        }
    if isinstance(value, list):
        return [shuffled(each, data) for each in value]
    return float(value) if type(value) is int and data.draw(st.booleans()) else value


@given(st.dictionaries(st.text(max_size=4), JSON, max_size=4), st.data())
def test_order_of_fields_and_spelling_of_numbers_are_not_part_of_the_key(extra, data):
    body = BODY | {"extra": extra}
    assert tape.key(shuffled(body, data)) == tape.key(body)


def test_headers_keys_addresses_and_patience_are_not_part_of_the_key(tmp_path, monkeypatch):
    first = recorded(tmp_path, counted, CHATS)
    assert len(first.server.asked) == len(CHATS)
    monkeypatch.setenv(KEY_VARIABLE, "sk-another-key")
    monkeypatch.setenv("OPENAI_ORG_ID", "another-header")
    again = recorded(tmp_path, counted, CHATS, timeout=9.0, retries=7)  # on another port
    assert again.server.asked == [] and plain(again.results) == plain(first.results)


# The export ---------------------------------------------------------------------------------------


def filled(folder: Path, names) -> Cassette:
    box = Cassette(folder, "tape", "record")
    for name in names:
        box.put(tape.key(BODY | {"model": name}), BODY | {"model": name}, REPLY | {"model": name})
    return box


def test_exports_are_sorted_and_equal_whatever_was_recorded_first(tmp_path):
    one = filled(tmp_path / "one", "abcdef").export().read_bytes()
    two = filled(tmp_path / "two", "fbdaec").export()
    keys = [json.loads(line)["key"] for line in one.splitlines()]
    assert one == two.read_bytes() and keys == sorted(keys) and len(keys) == 6
    before = two.stat()
    assert filled(tmp_path / "two", "a").export().read_bytes() == one
    assert (
        two.stat().st_mtime_ns == before.st_mtime_ns and two.stat().st_ino == before.st_ino
    )  # not even touched


def test_an_export_keeps_what_another_machine_exported(tmp_path):
    export = filled(tmp_path / "theirs", "abc").export()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/tape.jsonl").write_bytes(export.read_bytes())
    merged = filled(tmp_path / "mine", "cde").export().read_bytes()
    assert merged == filled(tmp_path / "all", "abcde").export().read_bytes()


def test_where_two_machines_recorded_one_request_the_exported_reply_is_used_and_kept(tmp_path):
    digest = tape.key(BODY)
    Cassette(tmp_path, "tape", "record").put(digest, BODY, REPLY | {"model": "mine"})
    theirs = json.dumps({"key": digest, "request": BODY, "response": REPLY | {"model": "theirs"}})
    (tmp_path / "tape.jsonl").write_text(theirs + "\n")
    used = Cassette(tmp_path, "tape", "record").get(digest)["model"]
    exported(tmp_path)
    assert used == Cassette(tmp_path, "tape", "replay").get(digest)["model"] == "theirs"


@settings(max_examples=25)
@given(st.dictionaries(st.text(st.characters()), JSON, max_size=3), st.text(st.characters()))
def test_any_reply_survives_recording_and_export(tmp_path_factory, more, text):
    folder = tmp_path_factory.mktemp("any")
    message = {"role": "assistant", "content": text} | more
    kept = Cassette(folder, "tape", "record").put("k", BODY, {"choices": [{"message": message}]})
    exported(folder)
    assert Cassette(folder, "tape", "replay").get("k") == kept
    valid = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace").decode()
    assert kept["choices"][0]["message"] == json.loads(valid)


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
    export = filled(tmp_path, "ab").export()
    one, two = export.read_bytes().splitlines()
    export.write_bytes(b"\n".join([one, BROKEN[broken], two]) + b"\n")
    with pytest.raises(ValueError, match="tape.jsonl, line 2: .*remove the line"):
        Cassette(tmp_path, "tape", mode)


def test_a_recording_that_is_no_database_is_named(tmp_path):
    (tmp_path / "tape.sqlite").write_bytes(b"no database, " * 100)
    with pytest.raises(ValueError, match="tape.sqlite is no recording that can be used"):
        Cassette(tmp_path, "tape", "record")


def test_a_recording_that_breaks_after_a_call_was_paid_ends_the_run_and_is_not_paid_again(tmp_path):
    box = Cassette(tmp_path, "tape", "record")

    outcome = at_once(
        lambda request: box.path.write_bytes(b"no database, " * 100) and Answer(),
        chats=[{}],
        parts={"cassette": box},
    )
    assert isinstance(outcome.only, ValueError) and "tape.sqlite" in str(outcome.only)
    assert len(outcome.server.asked) == 1


def test_half_a_character_in_an_export_does_not_stop_the_next_one(tmp_path):
    export = filled(tmp_path, "ab").export()
    one, two = export.read_bytes().splitlines()
    export.write_bytes(one.replace(b'"role"', b'"odd":"\\ud800","role"') + b"\n" + two + b"\n")
    assert b"ud800" in export.read_bytes() and b'"odd":"?"' in exported(tmp_path).read_bytes()


def test_an_export_without_a_last_line_end_is_whole(tmp_path):
    export = filled(tmp_path, "ab").export()
    whole = export.read_bytes()
    export.write_bytes(whole.rstrip(b"\n"))
    assert exported(tmp_path).read_bytes() == whole


# Processes ----------------------------------------------------------------------------------------

RECORDER = """
import asyncio, sys
from lib.llm.replay_cache import Cassette
from tests.llm import server, test_replay_cache
folder, url, first, last = sys.argv[1:]
numbers = range(int(first), int(last))
chats = [test_replay_cache.asked(f"question {n}", n) for n in numbers]
replies, _ = asyncio.run(server.together(url, chats, {"cassette": Cassette(folder, "tape", "record")}))
print(sum(reply.text == f"question {n} with {n}" for n, reply in zip(numbers, replies)))
"""

WRITER = """
import sys
from lib.llm.replay_cache import Cassette
from tests.llm.test_replay_cache import written
box = Cassette(sys.argv[1], "tape", "record")
print("ready", flush=True)
for number in range(100_000):
    box.put(*written(number))
"""


def written(number: int):
    """A request and a reply of some length that belong together."""
    body = BODY | {"seed": number}
    return tape.key(body), body, {"choices": [{"message": {"content": f"{number} " * 2_000}}]}


def test_processes_that_record_at_once_lose_nothing(tmp_path):
    async def play():
        async with Server(counted) as server:
            spans = [("0", "40"), ("20", "60")]  # a third of the questions is asked by both
            started = [
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
                for span in spans
            ]
            return [int((await process.communicate())[0]) for process in started], server.asked

    correct, requests = asyncio.run(play())
    assert correct == [40, 40] and 60 <= len(requests) <= 80
    lines = exported(tmp_path).read_text().splitlines()
    assert sorted(json.loads(line)["request"]["seed"] for line in lines) == list(range(60))
    again = recorded(tmp_path, counted, [asked(f"question {n}", n) for n in range(60)], "replay")
    assert [reply.text for reply in again.results] == [f"question {n} with {n}" for n in range(60)]


STARTED, FOLDERS = 4, 60


def start(root: Path, number: int, together) -> None:
    for folder in range(FOLDERS):
        together.wait(60)
        filled(root / str(folder), [str(number)])


def test_processes_that_start_a_cassette_at_once_all_get_one(tmp_path):
    processes = multiprocessing.get_context("fork")  # at once: others take seconds to start
    together = processes.Barrier(STARTED)
    started = [
        processes.Process(target=start, args=(tmp_path, n, together)) for n in range(STARTED)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join()
    assert [process.exitcode for process in started] == [0] * STARTED
    for folder in range(FOLDERS):
        assert len(exported(tmp_path / str(folder)).read_text().splitlines()) == STARTED


def test_a_recording_that_is_killed_leaves_whole_replies_only(tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
    )
    try:
        process.stdout.readline()
        while count(tmp_path) < 20:
            time.sleep(0.005)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    box = Cassette(tmp_path, "tape", "record")
    kept = count(tmp_path)
    for number in range(kept):  # they were written in order, so none is missing before the last
        digest, _, response = written(number)
        assert box.get(digest) == response
    assert box.get(written(kept)[0]) is None
    digest, body, response = written(kept)
    assert box.put(digest, body, response) == response  # and it goes on
    assert len(box.export().read_text().splitlines()) == kept + 1 >= 21


def count(folder: Path) -> int:
    with closing(sqlite3.connect(folder / "tape.sqlite", timeout=30)) as rows:
        return rows.execute("SELECT COUNT(*) FROM replies").fetchone()[0]
