"""A copy whose `make repro` is killed again and again, with all that it started."""

import os
import random
import re
import signal
import subprocess
import time
from pathlib import Path

from .checkout import Checkout, Say, repro_command

PROC = Path("/proc/self/cwd")
# The copy that is killed rebuilds these alone, because ten kills cost several times what is rebuilt: a lesson
# that is all kernel, and one whose sweeps run in processes and leave training, policies and a cache of DVC.
INTERRUPTED = ("00_tour", "01_policy_zoo")
SIGNS = {  # what is killed, and what shows that it is under way: a process, or what was printed
    "make": "make repro",
    "the pipeline": "dvc repro",
    "a kernel": "lib.reports.execute.kernel",
    "a sweep's process": "popen_loky",
    "a stage's end": "] done in",
}
EACH = 2  # kills
WITHIN = 5.0  # seconds of the sign; what kills leave adds up, so all phases are hit
POLL = 0.1  # seconds between looks for a sign
PATIENCE = 10.0  # seconds that processes have to notice that they are orphans, beside two other copies at work


def at_work(folder: Path) -> list[str]:
    """Command lines of living processes that work in `folder`."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if state != "Z" and Path(os.readlink(entry / "cwd")).is_relative_to(folder):
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue
    return found


def orphans(folder: Path) -> list[str]:
    """Processes that still work in `folder` when they have had time to notice that they should not."""
    limit = time.monotonic() + PATIENCE
    while (left := at_work(folder)) and time.monotonic() < limit:
        time.sleep(0.1)
    return left


def ended(process: subprocess.Popen, seconds: float) -> bool:
    """Whether a process comes to its end within some seconds."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


def interrupt(checkout: Checkout, sign: str, seconds: float, log: Path) -> bool:
    """`make repro`, killed with all of its group some seconds after a sign; False if it was done before."""
    with log.open("w") as printed:
        process = checkout.start(*repro_command(*INTERRUPTED), stdout=printed)
    while not ended(process, POLL):
        if sign in log.read_text() or any(sign in line for line in at_work(checkout.folder)):
            if ended(process, seconds):
                break
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return True
    assert process.returncode == 0, log.read_text()[-6000:]
    return False


def kills() -> list[tuple[str, str, float]]:
    """What each kill hits, the sign of it, and a random time after that sign; in random order.

    The times of a kind lie in different parts of the time that kills are spread over.
    """
    draw = random.Random("ten random moments")
    found = [
        (kind, sign, WITHIN * (part + draw.random()) / EACH)
        for kind, sign in SIGNS.items()
        for part in range(EACH)
    ]
    return draw.sample(found, len(found))


def kill_again_and_again(checkout: Checkout, log: Path, say: Say) -> Checkout:
    """Ten kills, none of which may leave a process that works on; then the copy, left undisturbed to the end."""
    planned = kills()
    for number, (kind, sign, seconds) in enumerate(planned, 1):
        while not interrupt(
            checkout, sign, seconds, log
        ):  # machines differ: a run may be over before the moment
            say(f"over before {kind} could be killed; starting from nothing, to be killed sooner")
            checkout.run("make", "clean")
            assert seconds > POLL, f"not even a rebuild has {kind}"
            seconds /= 2
        left = orphans(checkout.folder)
        said = re.findall(r"^(?:\[|> |Stage|make).*", log.read_text(), re.M)
        told = said[-1][:80] if said else "before the first word"
        say(f"kill {number} of {len(planned)}, {seconds:4.1f} s into {kind}: {told}")
        assert left == [], f"kill {number}: still at work: {left}"
    checkout.repro(*INTERRUPTED)
    say("the copy that was killed is done")
    return checkout
