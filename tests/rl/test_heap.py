"""Memory of large tensors is the system's again when they are freed, even between tensors that are kept."""

import subprocess
import sys

import pytest

SCRIPT = """
import re, torch
from pathlib import Path
from lib.rl.heap import return_freed_tensors

assert return_freed_tensors()

def measure_resident_mib():
    return int(re.search(r"VmRSS:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

before = measure_resident_mib()
# Tensors of one MiB: every second one is freed, so that a heap would be full of holes.
tensors = [torch.ones(2**18) for _ in range(400)]
kept = tensors[::2]
del tensors
print(measure_resident_mib() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc is Linux's")
def test_what_is_freed_between_tensors_that_stay_is_given_back():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(200, abs=30)
