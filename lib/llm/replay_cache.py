"""Record and replay what endpoints answered, at the transport.

A request is known by what decides its reply: model, messages, tools, response format, every sampling
parameter, seed, and the sample index (the same question asked again on purpose). Headers, keys,
addresses and patience never enter. Only complete 200 replies are kept, without ids and times, so that
two recordings of one reply are the same bytes. Recording goes to SQLite, which any number of processes
may share; what is kept under version control and what a replay reads is the export, sorted JSON lines.
"""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import httpx2

from lib.experiment import artifacts
from lib.llm.transport import whole

SAMPLE: ContextVar[int] = ContextVar(
    "sample", default=0
)  # which asking of an equal request this is
HIT = "x-cassette-hit"
MISS = "x-cassette-miss"
_LEFT_OUT = (
    "user",
    "stream",
    "stream_options",
    "metadata",
    "service_tier",
    "store",
)  # change no reply
_PATIENCE = 30.0  # seconds to wait for another process's write
_SECRET = 6  # characters; shorter keys are placeholders such as `none`, and words of any reply


def key(body: dict[str, Any], sample: int = 0, path: str = "chat/completions") -> str:
    """The sha256 of the canonical request. Order of fields and 1 against 1.0 make no difference."""
    asked = {
        name: value for name, value in body.items() if name not in _LEFT_OUT and value is not None
    }
    return artifacts.sha256_json({"path": path, "sample": sample, "request": _canonical(asked)})


def _canonical(value: Any) -> Any:
    """Whole numbers as integers, everything else as it is; dicts are sorted when they are written."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _canonical(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(each) for each in value]
    return value


def clean(text: str, secret: str) -> str:
    """A server's words as any file can hold them: without a key that it echoed, without half characters."""
    text = text.encode("utf-8", "replace").decode()
    return text.replace(secret, "[removed]") if len(secret) >= _SECRET else text


class Cassette:
    """Recorded replies under `folder`: `name.sqlite` while recording, `name.jsonl` for keeps.

    mode: record asks for what is not there and keeps it, replay never asks. Raises ValueError for another
    mode, for an export with a broken line, and for a recording that is none.
    """

    def __init__(self, folder: str | Path, name: str, mode: str) -> None:
        if mode not in ("record", "replay"):
            raise ValueError(f"a cassette is for record or replay, got {mode!r}; `off` needs none")
        self.mode = mode
        self.export_path = Path(folder) / f"{name}.jsonl"
        self.path = Path(folder) / f"{name}.sqlite"
        self._exported = _read_lines(self.export_path)
        if mode == "record":
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._rows() as rows:
                rows.execute(
                    "CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, line TEXT NOT NULL)"
                )

    def get(self, digest: str) -> dict[str, Any] | None:
        """The recorded reply to a request, or None."""
        if digest in self._exported:
            return self._exported[digest]["response"]
        if self.mode == "replay":
            return None
        with self._rows() as rows:
            found = rows.execute("SELECT line FROM replies WHERE key = ?", (digest,)).fetchone()
        return json.loads(found[0])["response"] if found else None

    def put(
        self, digest: str, body: dict[str, Any], response: dict[str, Any], secret: str = ""
    ) -> dict[str, Any]:
        """Keep a reply; returns what is kept, which is another's where one was there before.

        secret: a key that must not be in it, whatever the server echoes.
        """
        request = {
            name: value
            for name, value in body.items()
            if name not in _LEFT_OUT and value is not None
        }
        entry = {"key": digest, "request": _canonical(request), "response": response}
        line = clean(_line(entry), json.dumps(secret)[1:-1])
        with self._rows() as rows:
            rows.execute("INSERT OR IGNORE INTO replies VALUES (?, ?)", (digest, line))
        return self.get(digest)

    def export(self) -> Path:
        """Write everything recorded, by any process, as sorted JSON lines; equal contents are equal bytes."""
        lines = {}
        if self.path.exists():
            with self._rows() as rows:
                lines = dict(rows.execute("SELECT key, line FROM replies"))
        told = _read_lines(self.export_path)
        lines |= {
            digest: clean(_line(entry), "") for digest, entry in told.items()
        }  # as `get` does
        text = "".join(f"{lines[digest]}\n" for digest in sorted(lines))
        if lines and (
            not self.export_path.exists() or self.export_path.read_text(encoding="utf-8") != text
        ):
            artifacts.write_text(self.export_path, text)
        return self.export_path

    @contextmanager
    def _rows(self) -> Iterator[sqlite3.Connection]:
        """The recording. Raises ValueError, naming the file, where it cannot be used."""
        try:
            with closing(
                sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
            ) as connection:
                connection.execute(
                    "PRAGMA synchronous=OFF"
                )  # a kill loses nothing; the disk would hold up all calls
                yield connection
        except sqlite3.Error as error:
            raise ValueError(f"{self.path} is no recording that can be used: {error}") from None


def _line(entry: dict[str, Any]) -> str:
    return json.dumps(entry, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _read_lines(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    out = {}
    lines = (
        path.read_bytes().removesuffix(b"\n").split(b"\n")
    )  # str.splitlines also cuts inside of replies
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            out[entry["key"]] = {
                "key": entry["key"],
                "request": entry["request"],
                "response": entry["response"],
            }
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(
                f"{path}, line {number}: not a recorded reply ({error}); remove the line"
            ) from None
    return out


def complete(response: httpx2.Response) -> dict[str, Any] | None:
    """What of a response is worth keeping: choices, token counts and model of a whole 200 reply; else None.

    A reply that reached its limit of tokens, a refusal or an empty one was given and paid for like any
    other: it is kept, or a replay would end where the recording went on.
    """
    if response.status_code != 200:
        return None
    try:
        body = json.loads(response.content)
        whole_reply = isinstance(body["choices"][0]["message"], dict) and not body.get("error")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError):
        return None
    if not whole_reply:
        return None
    kept = {name: body[name] for name in ("choices", "model") if name in body}
    usage = body.get("usage")
    if isinstance(usage, dict):  # some servers put their timings beside the counts
        kept["usage"] = {
            name: usage[name] for name in ("prompt_tokens", "completion_tokens") if name in usage
        }
    return kept


class CassetteTransport(httpx2.AsyncBaseTransport):
    """Answers from the cassette where it can; asks `inner` and records where it may.

    A miss in replay is a response that the openai client does not retry; `lib.llm.client` makes an error
    of it that names the request.
    """

    def __init__(
        self, inner: httpx2.AsyncBaseTransport, cassette: Cassette, secret: str = ""
    ) -> None:
        self.inner, self.cassette, self.secret = inner, cassette, secret

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        body = json.loads(await request.aread())
        digest = key(body, SAMPLE.get(), "/".join(request.url.path.strip("/").split("/")[-2:]))
        known = self.cassette.get(digest)
        if known is not None:
            return httpx2.Response(200, content=json.dumps(known), headers={HIT: digest})
        if self.cassette.mode == "replay":
            return httpx2.Response(404, json={}, headers={MISS: digest, "x-should-retry": "false"})
        response = await self.inner.handle_async_request(request)
        content = await response.aread()  # a reply that breaks off raises here, and is not kept
        if (reply := complete(response)) is not None:
            content = json.dumps(
                self.cassette.put(digest, body, reply, self.secret)
            )  # a replay gives no other
        return whole(response, content)

    async def aclose(self) -> None:
        await self.inner.aclose()
