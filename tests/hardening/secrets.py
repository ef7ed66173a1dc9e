"""A planted key in the environment, an address, headers, settings and error texts: where it can be found afterwards.

An endpoint echoes the key that it was sent in every place of its answers. Other programs' keys lie in the variables
that the openai client reads. Settings hold keys where none belong. Afterwards every file, page, log line, exception
(with all that is chained to it) and request is searched for the key and for its halves.
"""

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from html import escape
from pathlib import Path
from unittest import mock

import httpx2
import pandas as pd

from lib import config
from lib.config import ROOT, ParamsError
from lib.experiment import artifacts
from lib.llm.chat_model import ChatRequest
from lib.llm.endpoint import Endpoint
from lib.llm.reply_store import Recording
from lib.llm.spending_limit import SpendingLimit
from lib.reports.lesson import Lesson
from tests.hardening.endpoint import answer, served
from tests.llm.server import KEY, KEY_VARIABLE, completion, settings, settings_of
from tests.llm.test_endpoint import ECHOES, everything_held_by

FOREIGN = "sk-foreign-0d1c2b3a4f5e6d7c"
AMBIENT = {
    "OPENAI_API_KEY": FOREIGN,
    "OPENAI_ADMIN_KEY": FOREIGN,
    "OPENAI_ORG_ID": FOREIGN,
    "OPENAI_PROJECT_ID": FOREIGN,
    "OPENAI_CUSTOM_HEADERS": f"x-api-key: {FOREIGN}\nauthorization: Bearer {FOREIGN}\ncookie: {FOREIGN}",
    "OPENAI_WEBHOOK_SECRET": FOREIGN,
    "HTTPS_PROXY": f"http://u:{FOREIGN}@127.0.0.1:9",
}
PARTS = (KEY, KEY[:12], KEY[-12:], FOREIGN, FOREIGN[:12], FOREIGN[-12:])
Held = dict[str, str]  # what was found, by where it was


def misplaced() -> list[dict[str, object]]:
    """Settings of an endpoint that hold the key where it does not belong."""
    urls = [
        f"https://u:{KEY}@h/v1",
        f"https://{KEY}@h/v1",
        f"https://h/v1?api-key={KEY}",
        f"https://h/v1#{KEY}",
        KEY,
        f"http://h:99999/{KEY}",
        f"http://h:{KEY}/v1",
        f"ftp://h/{KEY}",
        f"http://[::1/{KEY}",
        f"http://h/ {KEY}",
    ]
    wrong = [{"base_url": url} for url in urls] + [
        {"api_key_env": KEY},
        {"api_key_env": KEY.lower()},
    ]
    return [
        *wrong,
        {"api_key": KEY},
        {"price_in": KEY},
        {"omit": [KEY]},
        {"timeout": {"x": KEY}},
        {"concurrency": [KEY]},
    ]


def refused() -> Iterator[tuple[str, str]]:
    """What is said of such settings, in a file, in a notebook and on a command line."""
    for number, change in enumerate(misplaced()):
        try:
            settings(**change)
            yield f"settings {number} were taken", KEY
        except ParamsError as error:
            yield f"settings {number}", everything_held_by(error)
    for number, text in enumerate(
        (f"a: http://u:{KEY}@h: x", f"a: [{KEY}", f"{KEY}: 1\n{KEY}x", f"a: &k {KEY}\nb: *k")
    ):
        try:
            config.from_yaml(text)
        except ValueError as error:
            yield f"yaml {number}", everything_held_by(error)
    try:
        config.apply_changes("llm", {}, [f"claude.key={KEY}"])
    except ParamsError as error:
        yield "--set", everything_held_by(error)


def commanded(folder: Path) -> Iterator[tuple[str, str]]:
    """What `python -m lib.experiment.write_settings` says and writes of a file with the key in an address."""
    text = (ROOT / "params.yaml").read_text(encoding="utf-8")
    mine = f'    mine: {{backend: endpoint, base_url: "https://u:{KEY}@h/v1", model: m, price_in: 0, price_out: 0}}\n'
    (folder / "broken").mkdir()
    place = artifacts.write_text(
        folder / "broken/params.yaml",
        text.replace("  models:\n    # Programs", f"  models:\n{mine}    # Programs"),
    )
    code = f"from lib import config as params; params.load('smoke', {str(place)!r})"
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    place.unlink()  # the one file in which somebody wrote the key
    yield "a run with broken settings", ran.stdout + ran.stderr + ("" if ran.returncode else KEY)


@contextmanager
def logged() -> Iterator[io.StringIO]:
    """All that is logged, at every level."""
    stream = io.StringIO()
    handler, root = logging.StreamHandler(stream), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield stream
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


def echoed(folder: Path, name: str, is_recorded: bool) -> Iterator[tuple[str, str]]:
    """What is left after an endpoint echoed the key in one place of its answers."""
    requests: list[str] = []

    async def act(request: httpx2.Request) -> httpx2.Response:
        echo = request.headers.get("authorization", "")
        requests.append(str(dict(request.headers)).replace(f"Bearer {KEY}", "") + str(request.url))
        scripted = ECHOES[name](echo)
        return answer(
            scripted.raw()[: scripted.cut],
            scripted.status,
            set_cookie=echo,
            x_request_id=echo,
            location=echo,
        )

    async def ask_twice(recording: Recording | None) -> tuple[list, Endpoint]:
        limit = SpendingLimit(folder / f"{name}.sqlite", 1_000.0)
        about = settings_of("https://h.example/v1", retries=1)
        chats = [ChatRequest([{"role": "user", "content": "Who?"}], seed=seed) for seed in range(2)]
        async with Endpoint("mine", about, recording, limit) as model:
            calls = map(model.reply_to, chats)
            return await asyncio.gather(*calls, return_exceptions=True), model

    with served(act):
        recording = Recording(folder, name, "record") if is_recorded else None
        results, model = asyncio.run(ask_twice(recording))
    if is_recorded:
        Recording(folder, name, "record").export()
    lesson = Lesson(
        "00_secrets", "Secrets", "smoke", model.settings.model_dump(), folder / "reports"
    )
    for number, result in enumerate(results):
        words = everything_held_by(result) if isinstance(result, Exception) else repr(result)
        lesson.show_html(f"<p>{escape(words)}</p>", words)
        lesson.side_table(
            pd.DataFrame({"said": [words]}), f"{number}-{len(os.listdir(folder))}", "What was said"
        )
        yield f"{name}: result {number}", words
    yield f"{name}: requests", "".join(requests)
    yield f"{name}: model", repr(vars(model)) + repr(model.watch.counts)


def gathered(folder: Path) -> Held:
    """Everything that may hold a key afterwards."""
    held: Held = dict(refused()) | dict(commanded(folder))
    environment = {**AMBIENT, KEY_VARIABLE: KEY}
    with (
        mock.patch.dict(os.environ, environment),
        logged() as log,
        redirect_stdout(log),
        redirect_stderr(log),
    ):
        for name in ECHOES:
            for recorded in (False, True):
                held |= {
                    f"{where} {recorded}": what for where, what in echoed(folder, name, recorded)
                }
        with served(_open):
            asyncio.run(_keyless(held))
    held["logs and pages shown"] = log.getvalue()
    files = [path for path in folder.rglob("*") if path.is_file()]
    return held | {
        path.relative_to(folder).as_posix(): path.read_bytes().decode("latin-1") for path in files
    }


async def _open(request: httpx2.Request) -> httpx2.Response:
    return answer(json.dumps(completion(str(dict(request.headers)))).encode())


async def _keyless(held: Held) -> None:
    """An endpoint that needs no key and says which headers it was sent."""
    about = settings_of("http://h.example/v1", api_key_env=None)
    async with Endpoint("mine", about) as model:
        reply = await model.reply_to(ChatRequest([{"role": "user", "content": "?"}]))
        held["headers to a server that needs no key"] = reply.text


def measure(say: Callable[[str], None], scale: float = 1.0) -> dict[str, int | float]:
    """Places that were searched, and those that hold a key. scale changes nothing."""
    with tempfile.TemporaryDirectory() as folder:
        held = gathered(Path(folder))
    leaks = [where for where, what in held.items() if any(part in what for part in PARTS)]
    say(
        f"{len(held)} places searched, {sum(map(len, held.values())):,} characters; leaks: {', '.join(leaks) or 'none'}"
    )
    return {"secrets.places": len(held), "secrets.leaks": len(leaks)}
