"""A process that is told to stop clears up first, once."""

import signal
import subprocess
import sys
import time

import pytest

CLEARS_UP = """
import signal, sys, time
from lib.experiment.process_group import clear_up_at_signals
clear_up_at_signals([signal.SIGTERM, signal.SIGINT], int(sys.argv[1]))
try:
    print("at work", flush=True)
    time.sleep(60)
finally:
    time.sleep(float(sys.argv[2]))
    print("cleared up", flush=True)
"""


def start(*arguments: str) -> subprocess.Popen:
    command = [sys.executable, "-c", CLEARS_UP, *arguments]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
    process = subprocess.Popen(command, **pipes)
    assert process.stdout.readline() == "at work\n"
    return process


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, -2)])
def test_a_signal_ends_a_process_through_its_finally_blocks_however_often_it_comes(number, status):
    process = start("0", "0.5")
    for later in (number, signal.SIGTERM, signal.SIGINT):
        process.send_signal(later)
        time.sleep(0.1)
    assert process.communicate(timeout=20)[0] == "cleared up\n" and process.returncode == status


def test_clearing_up_that_hangs_is_cut_off():
    process = start("1", "60")
    process.terminate()
    assert process.wait(20) == -signal.SIGALRM


def test_a_signal_that_nohup_ignores_stays_ignored():
    script = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)" + CLEARS_UP
    process = subprocess.Popen(
        [sys.executable, "-c", script.replace("sleep(60)", "sleep(1)"), "0", "0"],
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    process.terminate()
    assert process.communicate(timeout=20)[0] == "cleared up\n" and process.returncode == 0
