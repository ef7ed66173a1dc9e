"""OpenAI's client with options by lot that change nothing: does the server answer as it does without them?

requests    sent, with some options that every server of this interface takes
refused     answered with an error
changed     answered with another text than the same request without those options
"""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from lib.experiment import seeds
from lib.language_models.serving.server import app
from tests.language_models.conftest import tiny
from tests.language_models.serving.test_server import make_client, serve_in_thread

REQUESTS = 400
NEUTRAL_OPTIONS: dict[str, Any] = {
    "top_p": 1,
    "frequency_penalty": 0,
    "presence_penalty": 0.0,
    "stop": [],
    "n": 1,
    "logit_bias": {},
    "metadata": {"run": "7"},
    "user": "somebody",
    "store": False,
    "response_format": {"type": "text"},
    "stream": False,
    "parallel_tool_calls": True,
    "tools": [],
    "tool_choice": "none",
}


def draw_request(rng: np.random.Generator) -> dict[str, Any]:
    """A request without options: to a model by lot, with a seed, at some temperature."""
    question = f"{rng.integers(10)} + {rng.integers(10)} = ?"
    return {
        "model": ("lab-nano", "lab-mini")[int(rng.integers(2))],
        "messages": [{"role": "user", "content": question}],
        "temperature": float(rng.integers(3)) / 2,
        "seed": int(rng.integers(2**31)),
        "max_tokens": int(rng.integers(4, 12)),
    }


def measure(say: Callable[[str], None], scale: float = 1.0) -> dict[str, int | float]:
    """Requests sent, and those that options which change nothing changed."""
    rng = seeds.rng("hardening", "clients")
    num_requests = math.ceil(REQUESTS * scale)
    counts: Counter[str] = Counter()
    with serve_in_thread(app(tiny())) as url, make_client(url) as client:
        for _ in range(num_requests):
            request = draw_request(rng)
            names = [name for name in NEUTRAL_OPTIONS if rng.random() < 0.4]
            options = {name: NEUTRAL_OPTIONS[name] for name in names}
            if "tools" not in options:
                options.pop("tool_choice", None)
                options.pop("parallel_tool_calls", None)
            plain = client.chat.completions.create(**request).choices[0].message.content
            try:
                reply = client.chat.completions.create(**request | options)
            except Exception as error:
                say(f"refused: {names}: {error}")
                counts["refused"] += 1
                continue
            counts["changed"] += reply.choices[0].message.content != plain
    say(f"{num_requests:,} requests, {counts['refused']} refused, {counts['changed']} changed")
    return {"clients.requests": num_requests} | {
        f"clients.{word}": counts[word] for word in ("refused", "changed")
    }
