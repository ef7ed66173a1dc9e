"""The hard stop under random situations: what an endpoint really charged, against llm.max_usd and the books.

An endpoint that keeps books of its own charges for every reply that it begins to write. It counts in tokens of its
own, says the right count, a wrong one or none, keeps to max_tokens or does not, fails, is late, breaks off. Requests
hold tools and any script; up to 64 are under way; processes share the purse, and are killed.

    overspend   an endpoint that keeps to max_tokens charged more than the limit; one that does not passed it by more
                than one call of each lane; a call came in although it might not fit beside those under way; more was
                charged than is booked
    unspent     more is booked than was charged, where nothing was left untold
"""

import asyncio
import json
import math
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np

from lib.experiment import seeds
from lib.llm.chat_model import ChatRequest, Reply
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.endpoint import Endpoint
from lib.llm.spending_limit import SpendingLimit
from tests.hardening.endpoint import PatientWatch, answer, served
from tests.llm.server import completion, settings_of

SITUATIONS = 2_000  # of one process
SHARED = 100  # of two processes, every second one with a kill
SCRIPTS = ("which policy acts next? ", "选择哪一个策略？", "أي سياسة؟ ", "🧭🎓", '"\\\n', "Ω")
USAGES = (
    "correct",
    "correct",
    "correct",
    "missing",
    "zero",
    "one",
    "words",
    "below",
    "huge",
    "half",
    "odd",
)
TROUBLES = ("500", "429", "refused", "mute", "half a reply", "late", "html", "error", "cancelled")
SURE = {"500", "429", "refused", "html", "error"}  # nothing is charged, and nobody could think so
_EPS = 1e-9


@dataclass(frozen=True)
class Situation:
    """One run against one purse.

    room: the limit, in calls; coarse, dense: bytes of a token that was read, written; hidden: tokens of reasoning that
    a reply may be billed beyond max_tokens, as the settings say.
    """

    number: int
    lanes: int
    calls: int
    max_tokens: int
    price_in: float
    price_out: float
    room: float
    keeps: bool
    usage: str
    troubles: tuple[str, ...]
    tools: bool
    script: str
    coarse: float
    dense: float
    hidden: int

    @property
    def exact(self) -> bool:
        """Whether the books must be right to the cent."""
        return self.usage == "correct" and set(self.troubles) <= SURE

    def messages(self, call: int) -> list[dict[str, str]]:
        """What call number `call` says."""
        return [{"role": "user", "content": self.script * (8 + 7 * (call % 5))}]

    def offered(self) -> list[dict] | None:
        """Tools with long schemas, or none."""
        if not self.tools:
            return None
        return [
            {"type": "function", "function": {"name": f"t{i}", "description": self.script * 20}}
            for i in range(3)
        ]

    @property
    def limit(self) -> float:
        """Dollars."""
        size = (
            len(json.dumps([self.messages(2), self.offered()], ensure_ascii=False).encode()) + 100
        )
        most_tokens = self.max_tokens + self.hidden
        return self.room * (size * self.price_in + most_tokens * self.price_out)


def drawn(number: int) -> Situation:
    """Situation number `number`."""
    rng = seeds.rng("hardening", "purse", seed=number)
    keeps, lanes = (
        bool(rng.random() < 0.75),
        int(rng.choice([1, 2, 3, 8, 64], p=[0.35, 0.25, 0.2, 0.15, 0.05])),
    )
    troubles = (
        TROUBLES if keeps else sorted(SURE)
    )  # what is charged beyond the limit and never told, nobody can know
    troubled = rng.random() < 0.4
    situation = Situation(
        number=number,
        lanes=lanes,
        calls=int(rng.integers(3, 8)) if lanes < 8 else lanes + 6,
        max_tokens=int(rng.integers(64, 2_000)),
        price_in=float(10 ** rng.uniform(-7, -4)),
        price_out=float(10 ** rng.uniform(-7, -4)),
        room=float(rng.uniform(0.3, 8 if lanes < 8 else 30)),
        keeps=keeps,
        usage=str(rng.choice(USAGES)),
        troubles=tuple(rng.choice(troubles, 3).tolist()) if troubled else (),
        tools=bool(rng.random() < 0.4),
        script=str(rng.choice(SCRIPTS)),
        coarse=float(rng.uniform(1, 5)),
        dense=float(rng.uniform(1, 6)),
        hidden=0,
    )
    if (
        situation.usage == "correct" and rng.random() < 0.3
    ):  # nobody knows of tokens that are not told
        return replace(situation, hidden=int(rng.integers(1, 5_000)))
    return situation


@dataclass
class Books:
    """An endpoint's own books. charge: where a bill is written down; most: what calls under way could cost."""

    situation: Situation
    charge: Callable[[float], Any]
    rng: np.random.Generator
    bills: list[float] = field(default_factory=list)
    most: dict[int, float] = field(default_factory=dict)
    refused: int = 0  # calls that came in although they might not fit

    async def act(self, request: httpx2.Request) -> httpx2.Response:
        """Answer, fail or break off, and write down what it costs."""
        s, sent = self.situation, len(await request.aread())
        told = json.loads(request.content)
        ticket = len(self.most) + len(self.bills) + int(self.rng.integers(2**40))
        self.most[ticket] = sent * s.price_in + (told["max_tokens"] + s.hidden) * s.price_out
        try:
            if s.keeps and sum(self.bills) + sum(self.most.values()) > s.limit + _EPS:
                self.refused += 1
            await asyncio.sleep(float(self.rng.uniform(0, 0.002)))
            trouble = (
                str(self.rng.choice(s.troubles)) if s.troubles and self.rng.random() < 0.5 else ""
            )
            if trouble in SURE:
                return _failure(trouble, request)
            read, wrote = self._tokens(sent, told["max_tokens"] + s.hidden)
            bill = read * s.price_in + wrote * s.price_out
            self.bills.append(bill)
            self.most[ticket] = 0.0
            self.charge(bill)
            return await self._reply(trouble, read, wrote, request)
        finally:
            del self.most[ticket]

    def _tokens(self, sent: int, limit: int) -> tuple[int, int]:
        s = self.situation
        least = (
            1 if s.keeps else limit * (1 if s.usage == "correct" else 8)
        )  # who neither keeps nor counts, visibly so
        most = limit if s.keeps else 20 * limit
        wrote = int(self.rng.integers(max(least, 40 if s.usage == "one" else 1), most + 1))
        return math.ceil(sent / s.coarse), wrote

    async def _reply(
        self, trouble: str, read: int, wrote: int, request: httpx2.Request
    ) -> httpx2.Response:
        s, unit = self.situation, self.situation.script
        visible = wrote if not s.hidden else min(wrote, s.max_tokens)
        text = unit * math.ceil(visible * s.dense / len(unit.encode()))
        usage = {
            "correct": {"prompt_tokens": read, "completion_tokens": wrote},
            "missing": None,
            "zero": {"prompt_tokens": 0, "completion_tokens": 0},
            "one": {"prompt_tokens": 1, "completion_tokens": 1},
            "words": {"prompt_tokens": "many", "completion_tokens": "9"},
            "half": {"prompt_tokens": read},
            "odd": {"prompt_tokens": 1.5, "completion_tokens": True},
            "below": {"prompt_tokens": -5, "completion_tokens": -1},
            "huge": {"prompt_tokens": 999_999_999, "completion_tokens": 10**40},
        }[s.usage]
        raw = json.dumps(completion(text) | {"usage": usage}, ensure_ascii=bool(wrote % 2)).encode()
        if trouble == "mute":
            raise httpx2.RemoteProtocolError("closed without a word", request=request)
        if trouble in ("late", "cancelled"):
            await asyncio.sleep(0.6)
        return answer(raw[: len(raw) // 2] if trouble == "half a reply" else raw)


def _failure(trouble: str, request: httpx2.Request) -> httpx2.Response:
    if trouble == "refused":
        raise httpx2.ConnectError("refused", request=request)
    if trouble == "html":
        return answer(b"<html>Bad gateway</html>")
    return answer(
        b'{"error": {"message": "overloaded"}}', 200 if trouble == "error" else int(trouble)
    )


def play(s: Situation, limit: SpendingLimit, books: Books) -> int:
    """Make all calls of a situation.

    Returns:
        How many ended in anything but a reply, the hard stop or the caller's own end of patience.
    """
    is_late = bool({"late", "cancelled"} & set(s.troubles))
    changes = {
        "price_in": s.price_in,
        "price_out": s.price_out,
        "max_tokens": s.max_tokens,
        "reasoning_tokens": s.hidden,
        "concurrency": s.lanes,
        "api_key_env": None,
        "timeout": 0.4 if is_late else 60.0,
        "retries": 1,
    }

    async def call_model(model: Endpoint, number: int) -> Reply:
        request = ChatRequest(s.messages(number), tools=s.offered() or (), seed=number)
        is_cancelled = "cancelled" in s.troubles and number % 3 == 0
        return await asyncio.wait_for(model.reply_to(request), 0.2 if is_cancelled else None)

    async def call_together() -> list:
        settings = settings_of(**changes)
        watch = PatientWatch("mine")
        async with Endpoint("mine", settings, spending_limit=limit, watch=watch) as model:
            calls = [call_model(model, number) for number in range(s.calls)]
            return await asyncio.gather(*calls, return_exceptions=True)

    with served(books.act):
        results = asyncio.run(call_together())
    expected = (Reply, BudgetExceeded, TimeoutError)
    return sum(not isinstance(result, expected) for result in results)


def judged(s: Situation, spent: float, largest: float, booked: float, lanes: int) -> Counter:
    """What went wrong. spent: dollars that were charged; largest: of one call."""
    allowed = s.limit if s.keeps else s.limit + lanes * largest
    over = spent > allowed + _EPS or (s.keeps and spent > booked + _EPS)
    return Counter(overspend=int(over), unspent=int(s.exact and booked > spent + _EPS))


def alone(folder: Path, number: int) -> Counter:
    """One process, one purse."""
    s = drawn(number)
    purse = SpendingLimit(folder / f"{number}.sqlite", s.limit)
    books = Books(s, lambda cost_usd: None, seeds.rng("hardening", "endpoint", seed=number))
    odd = play(s, purse, books)
    found = judged(s, sum(books.bills), max(books.bills, default=0.0), purse.spent, s.lanes)
    found += Counter(calls=len(books.bills), uncaught=odd, overspend=int(books.refused > 0))
    return found


def _child(s: Situation, path: Path, charged: Path, which: int) -> None:
    with os.fdopen(
        os.open(charged, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "wb", buffering=0
    ) as file:
        rng = seeds.rng("hardening", "endpoint", which, seed=s.number)
        play(
            s,
            SpendingLimit(path, s.limit),
            Books(s, lambda cost_usd: file.write(f"{cost_usd!r}\n".encode()), rng),
        )


def together(folder: Path, number: int) -> Counter:
    """Two processes on one purse; in every second situation one of them is killed, and another takes its place."""
    s = replace(drawn(number), lanes=4, calls=12)
    path, charged = folder / f"{number}.sqlite", folder / f"{number}.charged"
    fork, rng = multiprocessing.get_context("fork"), seeds.rng("hardening", "kill", seed=number)
    children = [fork.Process(target=_child, args=(s, path, charged, which)) for which in range(3)]
    for child in children[:2]:
        child.start()
    if number % 2:
        time.sleep(float(rng.uniform(0.005, 0.08)))
        children[0].kill()
        children[0].join()
        children[2].start()
    for child in children[1 : 3 if number % 2 else 2]:
        child.join()
    children[0].join()
    bills = [float(line) for line in charged.read_text().split()] if charged.exists() else []
    with suppress(FileNotFoundError):
        booked = SpendingLimit(path, s.limit).spent
        killed = (
            replace(s, troubles=("mute",)) if number % 2 else s
        )  # what a killed process booked may be unspent
        return judged(killed, sum(bills), max(bills, default=0.0), booked, 3 * s.lanes) + Counter(
            calls=len(bills)
        )
    return Counter(uncaught=1)


def measure(say: Callable[[str], None], scale: float = 1.0) -> dict[str, int | float]:
    """Situations tried, and what went wrong in them."""
    found, one, two = Counter(), math.ceil(SITUATIONS * scale), math.ceil(SHARED * scale)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(one):
            found += alone(Path(folder), number)
            if number % 500 == 499:
                say(
                    f"{number + 1:,} situations, {found['calls']:,} replies charged, {found['overspend']} overspent"
                )
        for number in range(one, one + two):
            found += together(Path(folder), number)
    say(f"{one + two:,} situations, {two} of several processes; {found['calls']:,} replies charged")
    keys = ("overspend", "unspent", "uncaught")
    return {"purse.situations": one + two} | {f"purse.{key}": found[key] for key in keys}
