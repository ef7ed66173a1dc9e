"""What a served router adds to a request, beside calling the model directly in the same run.

The model is a server of its own that waits 30 ms and replies; the router is a third process with the words of 2,000
prompts and three models. Eight clients ask at once, directly and through the router in turns, and the medians of the
best rounds are compared: all three processes share the machine's cores, so that much of what is measured is theirs.
"""

import asyncio
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx2

from tests.benchmarks.clock import MOST_ROUNDS, relax_limit, scale

ROOT = Path(__file__).parents[2]
LIMIT_MS = 6.0  # twice what is promised for tf-idf on two idle cores
CLIENTS, REQUESTS, ROUNDS = 8, 25, 4
MODEL_SECONDS = 0.03
BODY = {
    "messages": [{"role": "user", "content": "What is 17 * 23 + 4 ? Think step by step. " * 10}]
}

MODEL_PROCESS = f"""
import asyncio
from tests.llm.server import Answer, Server
async def run():
    async with Server(lambda asked: Answer(delay={MODEL_SECONDS})) as server:
        print("x serving at", server.url, flush=True)
        await asyncio.sleep(3600)
asyncio.run(run())
"""
ROUTER_PROCESS = """
import sys
import numpy as np
from lib.language_models.serving.server import make_application, serve
from lib.routers.model_backend import EndpointBackend
from lib.routers.prompt_encoder import TfidfEncoder
from lib.routers.router_service import RouterService
from lib.routers.saved_router import OperatingPoint, Router
from lib.routers.success_model import fit_success_model
from tests.llm.server import settings_of
prompts = [f"What is w{i % 97} of w{i % 89} and w{i % 83} ? Think step by step." for i in range(2000)]
encoder = TfidfEncoder.fit(prompts)
features = encoder.encode(prompts)
correct = (np.arange(6000).reshape(2000, 3) % 7 > 2).astype(float)
names = ("a", "b", "c")
router = Router(names, np.array([1.0, 2.0, 3.0]), encoder, fit_success_model("logistic", features, correct),
                (OperatingPoint(1.0, 0.5, rate=0.1),), 1.0)
backends = {name: EndpointBackend(name, settings_of(sys.argv[1], api_key_env=None)) for name in names}
raise SystemExit(serve(make_application(RouterService(router, backends)), port=0))
"""


@contextmanager
def run_process(script: str, *arguments: str):
    """A process that prints "... serving ... at URL" and serves; yields the URL."""
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        greeting = process.stdout.readline()
        yield next(word.rstrip(":") for word in greeting.split() if word.startswith("http"))
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


async def measure_latencies(url: str, model: str, requests: int) -> list[float]:
    """Seconds of each reply, where CLIENTS ask at once and each asks again when it has its reply."""
    latencies = []

    async def ask_again_and_again(client: httpx2.AsyncClient) -> None:
        for _ in range(requests):
            started = time.perf_counter()
            reply = await client.post("/chat/completions", json=BODY | {"model": model})
            latencies.append(time.perf_counter() - started)
            assert reply.status_code == 200, reply.text

    async with httpx2.AsyncClient(
        base_url=url, limits=httpx2.Limits(), timeout=60.0, trust_env=False
    ) as client:
        await asyncio.gather(*(ask_again_and_again(client) for _ in range(CLIENTS)))
    return latencies[CLIENTS:]  # without the first ones, which connect


def test_a_router_adds_a_few_milliseconds_to_a_request():
    requests = scale(REQUESTS, least=8)
    medians = {"directly": [], "through the router": []}  # milliseconds of each round
    with run_process(MODEL_PROCESS) as model_url, run_process(ROUTER_PROCESS, model_url) as url:
        for number in range(MOST_ROUNDS):
            for name, address, model in (
                ("directly", model_url, "served"),
                ("through the router", url, "router"),
            ):
                latencies = asyncio.run(measure_latencies(address, model, requests))
                medians[name].append(1_000 * statistics.median(latencies))
            direct, routed = (min(rounds) for rounds in medians.values())
            if number + 1 >= scale(ROUNDS, least=2) and routed - direct <= relax_limit(LIMIT_MS):
                break
    print(
        f"\n{CLIENTS} clients: directly {direct:.1f} ms, through the router {routed:.1f} ms at the median: "
        f"{routed - direct:.1f} ms more ({routed / direct:.2f}x)"
    )
    assert routed - direct <= relax_limit(LIMIT_MS)
