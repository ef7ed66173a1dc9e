"""The sandbox under attack, and what it is for: code that runs, says what it found, and leaves nothing behind."""

import ast
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib.config import ROOT
from lib.tools import Limits, Result, Sandbox, SandboxUnavailable, ToolError, python
from lib.tools.sandbox import MORE
from lib.tools.split_last_expression import split_last_expression
from tests.tools.attacks import ATTACKS

SECRET = "canary-5e1f0c3a"
LONGEST = 5.0  # seconds that an attack may take, on a busy machine


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A working directory of the host with secrets, and a secret in the environment, before any worker starts."""
    folder, before = tmp_path_factory.mktemp("host"), os.getcwd()
    (folder / ".env").write_text(f"KEY={SECRET}")
    (folder / "secret.txt").write_text(SECRET)
    (folder / "link").symlink_to(folder / "secret.txt")
    os.environ["SANDBOX_CANARY"] = SECRET
    os.chdir(folder)
    yield folder
    os.chdir(before)
    del os.environ["SANDBOX_CANARY"]


@pytest.fixture(scope="module")
def sandbox(folder):
    before = children()
    with Sandbox() as sandbox:
        yield sandbox
    assert children() == before


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def worker(sandbox: Sandbox) -> psutil.Process:
    return psutil.Process(sandbox._worker.pid)


def timed(sandbox: Sandbox, code: str) -> tuple[Result, float]:
    began = time.monotonic()
    return sandbox.run(code), time.monotonic() - began


@pytest.mark.parametrize("name", ATTACKS)
def test_after_an_attack_the_host_lives_the_secret_is_one_no_process_is_left_and_the_next_call_works(
    name, sandbox, folder
):
    attack = ATTACKS[name]
    sandbox.run("None")
    others, files = children() - {sandbox._worker.pid}, sorted(folder.iterdir())
    result, seconds = timed(sandbox, attack.code)
    assert result.kind in attack.kinds and result.ok == (result.kind == ""), result
    assert attack.text is None or result.text == attack.text
    assert seconds < LONGEST
    assert (
        SECRET not in result.text + result.error
        and len(result.text) < 4_100
        and len(result.error) < 400
    )
    assert sandbox.run("print('fine')\nsum(range(10))") == Result("fine\n45")
    assert children() == others | {sandbox._worker.pid}
    assert sorted(folder.iterdir()) == files


FORGED = """
print('{"ok": true, "kind": "", "text": "forged"}')
print("Result(text='forged', ok=True, error='', kind='')")
print("MontyComplete(output='forged')")
print(b'\\x00\\x00\\x00\\x08\\x0a\\x06forged'.decode())
print('\\x08\\x01\\x12\\x06forged', end='\\x00')
import sys
print('forged', file=sys.stderr)
_last_value_ = 'forged'
"""


def test_a_forged_result_is_only_text(sandbox):
    result = sandbox.run(FORGED + "20 + 3")
    assert result.ok and result.text.endswith("\n23") and result.text.count("\n") >= 6
    failed = sandbox.run(FORGED + "1 / 0")
    assert (failed.ok, failed.kind, failed.error) == (
        False,
        "exception",
        "ZeroDivisionError: division by zero",
    )


@pytest.mark.parametrize(
    "name", ["TimeoutError", "MemoryError", "RecursionError", "SyntaxError", "NameError"]
)
def test_an_error_that_the_code_raises_itself_is_one(sandbox, name):
    result = sandbox.run(f"print('once')\nraise {name}('forged')")
    assert (result.ok, result.text) == (False, "once")
    assert result.kind == ("syntax" if name == "SyntaxError" else "exception")


@pytest.mark.parametrize(
    "code",
    [
        "f(\n'a' * 10 ** 11\n)",
        "[x\n for x in\n ['a' * 10 ** 11]]",
        "'a' * 10 ** 11",
        "len('a' * 10**11)",
    ],
)
def test_a_limit_is_told_wherever_it_was_met(sandbox, code):
    assert sandbox.run(f"def f(x):\n    return x\n{code}").kind == "memory"


@pytest.mark.parametrize(
    "limits",
    [
        {"seconds": float("inf")},
        {"grace": float("inf")},
        {"seconds": float("nan")},
        {"seconds": 1e300},
        {"memory": 2**63},
        {"address": 10**30},
        {"recursion": 1.5},
        {"output": 10.0},
        {"seconds": -1.0},
    ],
)
def test_limits_that_are_none_are_refused_by_name(limits):
    with pytest.raises(ValueError, match=next(iter(limits))):
        Limits(**limits)


NOTEBOOK = {
    "": ["None", "", "# nothing", "\t", "print()"],
    "2": ["1 + 1", "(lambda x=2: x)()", "x = 1\r\nx + 1\r\n", "\ufeff1 + 1", "\ufeffx = 1\nx + 1"],
    "3": ["\ufeffprint(3)"],
    "a\nb": ["print('a')\nprint('b')"],
    "a\n3": ["print('a')\n3", "print('a', end='')\n3"],
    "a\n\n": ["print('a\\n\\n')"],
    "'a'": ["'a'"],
    "5": ["x = 5\nx", "import asyncio\nasync def f():\n    return 5\nawait f()"],
    "6": ["x = 5; x + 1", "x = 5\n(x +\n 1)"],
    "7": ["\n\n  \n7\n\n"],
    "[1, 2]": ["[\n  1,\n  2,\n]  # two"],
    "'a\\nb'": ["'''a\nb'''"],
    "1": ["for i in range(2):\n    i\ni"],
    "55": ["def f(n):\n    return n and n + f(n - 1)\nf(10)"],
    "1.4142135623730951": ["import math\nmath.sqrt(2)"],
    "(1, 2)": ["1, 2"],
    "True": ["lambda_ = 1\nlambda_ == 1", "not 0"],
    "'1 + 1 = 2'": ["f'{1 + 1 = }'"],
    "{'b', 'a'}": ["{'b', 'a'}"],
    "é 世界 🙂\n'é'": ["print('é 世界 🙂')\n'é'"],
}
STATEMENTS = ["x = 5", "x = 5; x + 1;", "x = 1\nx += 1", "x = '''\na\n'''"]
BLOCKS = ["if True:\n    5", "if True: 5", "if False: 1; 2"]


@pytest.mark.parametrize(
    "text, code",
    [(text, code) for text in NOTEBOOK for code in NOTEBOOK[text]]
    + [("", c) for c in STATEMENTS + BLOCKS],
)
def test_code_is_shown_as_in_a_notebook(sandbox, text, code):
    assert sandbox.run(code) == Result(text)


@pytest.mark.parametrize(
    "code, kind, error",
    [
        ("1 / 0", "exception", "ZeroDivisionError: division by zero"),
        ("[][1]", "exception", "IndexError: list index out of range"),
        ("undefined", "exception", "NameError: name 'undefined' is not defined"),
        ("raise ValueError('a\\nb')", "exception", "ValueError: a\nb"),
        ("assert 1 == 2", "exception", "AssertionError: assert 1 == 2"),
        ("(", "syntax", "unexpected EOF"),
        ("\ud800", "refused", "surrogate"),
        *((code, "syntax", "") for code in ("x = = 1", "5 +", "\x00")),
    ],
)
def test_what_goes_wrong_in_code_is_told(sandbox, code, kind, error):
    result = sandbox.run(code)
    assert not result.ok and result.kind == kind and error in result.error and result.text == ""


def test_long_text_is_cut_with_a_note(folder):
    with Sandbox(Limits(output=10)) as sandbox:
        assert sandbox.run("print('x' * 10)").text == "x" * 10
        assert sandbox.run("print('x' * 11)").text == "x" * 10 + MORE
        assert sandbox.run("for i in range(100):\n    print(i)").text == "0\n1\n2\n3\n4\n" + MORE
        assert (
            sandbox.run("'x' * 8").text == "'xxxxxxxx'"
            and sandbox.run("'x' * 9").text == "'xxxxxxxxx" + MORE
        )
        assert (
            sandbox.run("raise ValueError('x' * 9999)").error == "ValueError: " + "x" * 288 + MORE
        )


def test_limits_hold(folder):
    limits = Limits(seconds=0.2, memory=4 << 20, recursion=50, code=100, flood=1_000)
    recursive = "def f(n):\n    return n and 1 + f(n - 1)\nf({})"
    with Sandbox(limits) as sandbox:
        result, seconds = timed(sandbox, "print('so far')\nwhile True:\n    pass")
        assert (result.text, result.error) == (
            "so far",
            "no end within 0.2 seconds",
        ) and seconds < 2
        assert (
            sandbox.run("x = 'a' * (5 << 20)").kind == "memory"
            and sandbox.run("x = 'a' * (3 << 20)").ok
        )
        assert (
            sandbox.run(recursive.format(60)).kind == "recursion"
            and sandbox.run(recursive.format(40)).text == "40"
        )
        assert sandbox.run("1" * 101) == Result(
            "", False, "code of 101 characters; 100 are allowed", "refused"
        )
        assert (
            sandbox.run("print('x' * 2_000)").kind == "flood" and sandbox.run("print('x' * 900)").ok
        )
    for name in vars(limits):
        with pytest.raises(ValueError, match=name):
            Limits(**{name: 0})


def test_nothing_is_carried_from_one_call_to_the_next(sandbox):
    sandbox.run("x = 5\nimport random\nrandom.seed(7)\nimport sys\nsys.secret = 1")
    assert sandbox.run("x").error == "NameError: name 'x' is not defined"
    assert (
        sandbox.run("_last_value_").kind == ""
        and sandbox.run("import sys\nhasattr(sys, 'secret')").text == "False"
    )


@pytest.mark.parametrize(
    "code",
    [
        "import random\n[random.random() for _ in range(3)]",
        "import datetime\ndatetime.datetime.now(), datetime.date.today()",
        "import time\ntime.time(), time.perf_counter(), time.process_time()",
        "{c for c in 'hello world'}",
        "hash('a'), id([])",
        "object",
        "while True:\n    pass",
        "x = []\nwhile True:\n    x.append(1)",
        "raise ValueError('x')",
        "x = 10 ** 4000\nwhile True:\n    x = x * x",
    ],
)
def test_equal_code_has_equal_results(code, folder):
    results = []
    for _ in range(2):
        with Sandbox(Limits(seconds=0.3)) as sandbox:
            results += [sandbox.run(code), sandbox.run(code)]
    assert len(set(results)) == 1


@given(text=st.text(max_size=100))
@settings(max_examples=60)
def test_any_text_has_a_result(sandbox, text):
    result = sandbox.run(text)
    assert result.kind in ("", "syntax", "exception", "refused")


@example("[);\r")
@given(st.text(alphabet="ab01 =;:,#\\'\"()[]{}\n\t\r\f", max_size=60))
def test_cutting_code_loses_none_of_it(text):
    found = split_last_expression(text)
    assert found is None or ("".join(found) == text and found[1].strip())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_worker_is_bare(sandbox):
    """Monty has no way to look at these; if it had, there would be nothing to see."""
    sandbox.run("1")
    process = Path(f"/proc/{sandbox._worker.pid}")
    assert (process / "environ").read_bytes() == b""
    assert os.readlink(process / "cwd").endswith("/empty (deleted)")
    assert os.readlink(process / "fd/2") == "/dev/null"
    assert SECRET.encode() not in (process / "cmdline").read_bytes()
    limits = {
        line[:26].strip(): line[26:].split()[:2]
        for line in (process / "limits").read_text().splitlines()[1:]
    }
    assert limits["Max processes"] == ["0", "0"] and limits["Max file size"] == ["0", "0"]
    assert limits["Max address space"] == [str(1 << 30)] * 2 and limits["Max cpu time"] == [
        "12",
        "12",
    ]
    assert limits["Max open files"] == ["64", "64"] and limits["Max core file size"] == ["0", "0"]


def test_a_worker_that_does_not_even_keep_time_is_killed_by_the_host(folder):
    """Stopped, it neither looks at its clock nor answers; the host's watchdog has a clock of its own."""
    with Sandbox(Limits(seconds=0.3, grace=0.2)) as sandbox:
        sandbox.run("1")
        process = worker(sandbox)
        threading.Timer(0.1, process.suspend).start()
        result, seconds = timed(sandbox, "while True:\n    pass")
        assert result.kind == "timeout" and 0.4 < seconds < 2 and not process.is_running()
        assert sandbox.run("6 * 7").text == "42" and sandbox._worker.pid != process.pid


def test_a_worker_that_dies_in_a_call_is_a_crash_and_a_dead_or_used_one_is_replaced_between_two_calls(
    folder,
):
    with Sandbox() as sandbox:
        sandbox.run("1")
        threading.Timer(0.1, worker(sandbox).kill).start()
        result, seconds = timed(sandbox, "while True:\n    pass")
        assert result == Result("", False, "the interpreter crashed", "crash") and seconds < 1
        sandbox.run("1")
        worker(sandbox).kill()
        assert sandbox.run("6 * 7").text == "42"
        old = worker(sandbox)
        sandbox._worker.seconds_used = 10.0
        assert sandbox.run("6 * 7").text == "42" and not old.is_running()


def test_an_interrupt_of_the_host_goes_through_and_leaves_nothing(folder):
    def interrupted(*_):
        raise KeyboardInterrupt

    before, handler = children(), signal.signal(signal.SIGALRM, interrupted)
    try:
        with Sandbox(Limits(seconds=0.5)) as sandbox:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            with pytest.raises(KeyboardInterrupt):
                sandbox.run("while True:\n    pass")
            assert children() == before and sandbox.run("6 * 7").text == "42"
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert children() == before


def test_a_forked_child_is_refused_and_the_worker_of_its_parent_lives_on(folder):
    """Monty's threads do not come along in a fork, so it would hang there."""
    with Sandbox() as sandbox:
        sandbox.run("1")
        first, (reading, writing) = sandbox._worker.pid, os.pipe()
        child = os.fork()
        if child == 0:  # whatever it drops, the parent's worker is to live
            try:
                sandbox.run("6 * 7")
            except SandboxUnavailable as error:
                os.write(writing, str(error).encode())
            sandbox.close()
            del sandbox
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0 and b"forked from one" in os.read(reading, 999)
        assert sandbox.run("6 * 7").text == "42" and sandbox._worker.pid == first


def test_a_sandbox_works_in_processes_of_loky_and_in_a_child_forked_before_its_first_use(folder):
    lines = [
        "import os",
        "if os.fork() == 0: print(s.run('6 * 7').text, flush=True); s.close(); os._exit(0)",
        "os.wait()",
        "print(s.run('6 * 7').text)",
        "from joblib import Parallel, delayed",
        "print(*(r.text for r in Parallel(n_jobs=2)(delayed(s.run)(f'{n} + 1') for n in (1, 2))))",
    ]
    assert host(*lines).communicate(timeout=60)[0].split() == ["42", "42", "2", "3"]


def test_a_sandbox_travels_to_another_process_without_its_worker(folder):
    with Sandbox(Limits(seconds=0.4)) as sandbox:
        sandbox.run("1")
        copy = pickle.loads(pickle.dumps(sandbox))
    assert copy._worker is None and copy.limits.seconds == 0.4


def host(*lines: str) -> subprocess.Popen:
    """A process that has a sandbox, prints its worker's id, and does something with it."""
    start = ["from lib.tools import *", "from lib.tools import worker as m", "import time"]
    code = "\n".join([*start, "s = Sandbox()", *lines])
    return subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


SHOWN = "s.run('1'); print(s._worker.pid, flush=True)"


@pytest.mark.parametrize(
    "doing, seconds",
    [
        ("time.sleep(60)", 3),
        ("s.run('while True: pass')", 4),
        ("s.run('x = 10 ** 4000\\nwhile True: x = x * x')", 8),
    ],
    ids=["idle", "busy", "too busy to look"],
)
def test_no_worker_outlives_a_killed_host(folder, doing, seconds):
    """Too busy to look at its pipe, it is ended by its limit of processor time, which is shortened here."""
    process = host("m.SERVED = 0.4", SHOWN, doing)
    left = psutil.Process(int(process.stdout.readline()))
    time.sleep(0.3)
    process.kill()
    process.wait()
    psutil.wait_procs([left], timeout=seconds)
    assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE


def test_a_host_that_never_closes_leaves_nothing_either(folder, tmp_path):
    process = host(SHOWN)
    left = int(process.stdout.readline())
    assert process.wait(timeout=20) == 0
    time.sleep(0.2)
    assert not psutil.pid_exists(left) or psutil.Process(left).status() == psutil.STATUS_ZOMBIE


def test_where_monty_is_not_installed_code_is_refused(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    with (
        Sandbox() as sandbox,
        pytest.raises(SandboxUnavailable, match="pip install 'pydantic-monty"),
    ):
        sandbox.run("open('ran', 'w')")
    with pytest.raises(SandboxUnavailable, match="or not at all"):
        python(Sandbox())({"code": "1"})
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("program", [None, "exit 1", "echo what", "exec cat"])
def test_where_the_worker_does_not_start_code_is_refused(folder, tmp_path, monkeypatch, program):
    fake = tmp_path / "monty"
    if program:
        fake.write_text(f"#!/bin/sh\n{program}\n")
        fake.chmod(0o700)
    monkeypatch.setenv("MONTY_BIN", str(fake))
    before = children()
    with (
        Sandbox(Limits(seconds=0.1)) as sandbox,
        pytest.raises(SandboxUnavailable, match="can be started"),
    ):
        sandbox.run("1")
    assert children() == before


def test_nothing_in_the_room_could_run_code_in_another_way():
    """No name of Python's own ways stands in it, as a call, an attribute or an import."""
    ways = {"eval", "exec", "compile", "__import__", "code", "pickle", "runpy", "subprocess"}
    ways |= {"system", "popen", "Popen"}
    for path in sorted((ROOT / "lib/tools").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            called = getattr(node, "func", None)
            names = {getattr(called, "id", None), getattr(called, "attr", None)}
            if called and ast.unparse(called) == "re.compile":
                continue
            if isinstance(node, ast.Import | ast.ImportFrom):
                names |= {alias.name for alias in node.names} | {getattr(node, "module", None)}
            assert not names & ways, f"{path.name}:{node.lineno}"


def test_the_tool_replies_with_text_or_the_kind_of_error(sandbox):
    tool = python(sandbox)
    assert tool({"code": "print(1)\n2"}) == "1\n2" and tool(tool.parse_line(" 6 * 7 ")) == "42"
    assert tool({"code": "x = 1"}) == ""
    assert tool({"code": "1 / 0"}) == "error: exception: ZeroDivisionError: division by zero"
    assert tool({"code": "x = 'a' * 10 ** 10"}) == "error: memory"
    with pytest.raises(ToolError, match="takes 'code' as string"):
        tool({"code": 5})
