"""The sandbox under all attacks of tests/tools: does each end as it may, in time, and leave nothing behind?"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from lib.tools import Result, Sandbox
from tests.tools.attacks import ATTACKS, Attack

LONGEST = 10.0  # seconds that an attack may take, on a busy machine
SECRET = "canary-5e1f0c3a"


def measure(say: Callable[[str], None], scale: float = 1.0) -> dict[str, int | float]:
    """sandbox.attacks: programs run; sandbox.escapes: those that got, left, outlived or misreported something."""
    escapes, before, variable = 0, os.getcwd(), "SANDBOX_CANARY"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / ".env").write_text(SECRET)
        os.environ[variable] = SECRET
        os.chdir(folder)
        try:
            with Sandbox() as sandbox:
                for name, attack in ATTACKS.items():
                    wrong = _escaped(sandbox, attack, Path(folder))
                    escapes += bool(wrong)
                    if wrong:
                        say(f"{name}: {wrong}")
        finally:
            os.chdir(before)
            del os.environ[variable]
    return {"sandbox.attacks": len(ATTACKS), "sandbox.escapes": escapes}


def _escaped(sandbox: Sandbox, attack: Attack, folder: Path) -> str:
    """What went wrong, "" if nothing did."""
    sandbox.run("None")
    others, began = _children() - {sandbox._worker.pid}, time.monotonic()
    result = sandbox.run(attack.code)
    seconds = time.monotonic() - began
    fine = sandbox.run("print('fine')\n6 * 7") == Result("fine\n42")
    checks = {
        f"ended as {result.kind!r}, {result.error[:80]}": result.kind in attack.kinds
        and result.ok == (result.kind == ""),
        f"printed {result.text[:80]!r}": attack.text is None or result.text == attack.text,
        f"took {seconds:.1f} s": seconds < LONGEST,
        "got the secret": SECRET not in result.text + result.error,
        "gave too much back": len(result.text) < 4_100 and len(result.error) < 400,
        "left a process": _children() == others | {sandbox._worker.pid},
        "left or took a file": [path.name for path in folder.iterdir()] == [".env"]
        and (folder / ".env").read_text() == SECRET,
        "broke the next call": fine,
    }
    return "; ".join(wrong for wrong, right in checks.items() if not right)


def _children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}
