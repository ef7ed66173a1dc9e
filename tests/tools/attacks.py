"""Programs that try to get out of the sandbox, to stop it or to fool it, each with the ways in which it may end."""

from typing import NamedTuple


class Attack(NamedTuple):
    """code: what is tried; kinds: how it may end; text: what may be seen, where it ends well."""

    code: str
    kinds: tuple[str, ...]
    text: str | None = None


def tried(attempt: str) -> str:
    """An attempt that prints what it got, or that it got nothing."""
    *setup, last = attempt.split("; ")
    body = "\n".join(f"    {line}" for line in [*setup, f"print('GOT', {last})"])
    return f"try:\n{body}\nexcept Exception as error:\n    print('nothing')"


def refused(*attempts: str) -> tuple[Attack, ...]:
    """Attempts that get nothing, an attack each."""
    return tuple(Attack(tried(attempt), ("",), "nothing") for attempt in attempts)


def ending(kind: str, *codes: str) -> tuple[Attack, ...]:
    """Attempts that end alike, an attack each."""
    return tuple(Attack(code, (kind,)) for code in codes)


PATHS = ("/etc/passwd", "/proc/self/environ", "/proc/1/environ", "/proc/self/maps", "/dev/zero", "~/.ssh/id_rsa")
FRAMES = """
try:
    1 / 0
except Exception as error:
    caught = error
print(caught.__traceback__.tb_frame.f_back.f_globals)
"""
DOUBLED = "x = ()\nfor i in range(40):\n    x = (x, x)\n"
_KNOWN: dict[str, Attack | tuple[Attack, ...]] = {
    "endless loop": Attack("while True:\n    pass", ("timeout",)),
    "endless loop that catches everything": Attack(
        "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
        ("timeout",),
    ),
    "sleep": Attack("import time\ntime.sleep(10 ** 6)\n'awake'", ("",), "'awake'"),
    "sleep in a loop": Attack("import time\nwhile True:\n    time.sleep(1)", ("timeout",)),
    "memory by a list": Attack("x = []\nwhile True:\n    x.append([0] * 1000)", ("memory",)),
    "memory by doubling a text": Attack("x = 'a'\nwhile True:\n    x += x", ("memory",)),
    "memory at once": Attack("x = 'a' * 10 ** 11", ("memory",)),
    "memory by formatting": Attack("f'{1:10000000000d}'", ("memory", "exception")),
    "huge integer": Attack("10 ** 10 ** 8", ("memory",)),
    "huge power": Attack("pow(7, 10 ** 9)", ("memory",)),
    "integers that grow in one step": Attack("x = 10 ** 4000\nwhile True:\n    x = x * x", ("timeout", "memory")),
    "deep recursion": Attack("def f(n):\n    return f(n + 1)\nf(0)", ("recursion",)),
    "recursion that never gives up": Attack(
        "def f():\n    try:\n        f()\n    finally:\n        f()\nf()", ("timeout", "recursion")
    ),
    "deep parentheses": Attack("(" * 100_000 + ")" * 100_000, ("refused",)),
    "deep parentheses within the limit": Attack("(" * 8_000 + ")" * 8_000, ("syntax",)),
    "deep brackets": Attack("[" * 8_000 + "]" * 8_000, ("syntax",)),
    "deep signs": Attack("-" * 16_000 + "1", ("syntax", "recursion")),
    "deep attributes and calls": Attack("a" + ".b()" * 4_000, ("syntax", "exception", "recursion")),
    "deep text of eval": Attack("eval('(' * 10 ** 6)", ("syntax", "exception", "recursion")),
    "regular expression that backtracks": Attack(
        "import re\nprint(re.match('(a+)+$', 'a' * 40 + 'b'))", ("", "timeout")
    ),
    "regular expression that refers back": Attack(
        r"import re" "\n" r"print(re.match(r'(a|aa)+\1$', 'a' * 60 + 'b'))", ("", "timeout", "exception")
    ),
    "flood of output": Attack("while True:\n    print('x' * 1000)", ("flood",)),
    "flood in one line": Attack("print('x' * (20 << 20))", ("flood", "memory")),
    "flood without an end of line": Attack("while True:\n    print('x', end='')", ("flood", "timeout")),
    "value that shows itself for ever": Attack(DOUBLED + "x", ("memory", "timeout")),
    "value with a slow hash": Attack(DOUBLED + "{x}", ("memory", "timeout")),
    "early return of a value with a slow hash": Attack(DOUBLED + "return {x: 1}", ("", "syntax"), ""),
    "error with a value that shows itself for ever": Attack(
        DOUBLED + "raise ValueError(x)", ("memory", "timeout", "exception")
    ),
    "fork bomb": refused("import os; os.fork()", "import multiprocessing; multiprocessing.Process()"),
    "orphan by a double fork": Attack(
        "import os\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        while True:\n            pass",
        ("exception",),
    ),
    "threads": refused("import threading; threading.Thread()", "import _thread; _thread.start_new_thread(print, ())"),
    "subprocess": refused(
        "import subprocess; subprocess.run(['id'])",
        "import os; os.system('id')",
        "import os; os.popen('id').read()",
        "import os; os.execv('/bin/sh', ['sh'])",
        "import os; os.posix_spawn('/bin/sh', ['sh'], {})",
        "import pty; pty.spawn('/bin/sh')",
    ),
    "sockets": refused(
        "import socket; socket.create_connection(('127.0.0.1', 22))",
        "import urllib.request; urllib.request.urlopen('http://localhost')",
        "import http.client; http.client.HTTPConnection('localhost')",
        "import asyncio; asyncio.open_connection('localhost', 22)",
    ),
    "names of the network": refused(
        "import socket; socket.getaddrinfo('example.org', 80)", "import ssl; ssl.SSLContext()"
    ),
    "system files": refused(
        *(f"open({path!r}).read()" for path in PATHS), "import os; os.listdir('/')", "import os; os.stat('/')"
    ),
    "files by path": refused(
        "from pathlib import Path; Path('/etc/passwd').read_text()",
        "from pathlib import Path; list(Path('.').iterdir())",
        "from pathlib import Path; Path('.env').read_bytes()",
        "import glob; glob.glob('/*')",
    ),
    "secrets in the folder": refused("open('.env').read()", "open('./secret.txt').read()", "open('../.env').read()"),
    "symbolic link to the outside": refused(
        "import os; os.symlink('/etc/passwd', 'x')",
        "from pathlib import Path; Path('x').symlink_to('/etc/passwd')",
        "open('link').read()",
        "import os; os.readlink('link')",
    ),
    "environment": refused(
        "import os; os.environ['SANDBOX_CANARY']",
        "import os; dict(os.environ)",
        "import os; os.getenv('SANDBOX_CANARY')",
        "import os; os.environb",
        "import posix; posix.environ",
    ),
    "environment by /proc": refused(
        "open('/proc/self/environ', 'rb').read()",
        "open(f'/proc/{__import__(\"os\").getppid()}/environ').read()",
        "open('/proc/self/fd/0').read()",
        "open('/proc/self/cmdline').read()",
    ),
    "disk": refused(
        "open('big', 'w').write('x' * 10 ** 6)",
        "open('/tmp/big', 'wb').write(b'x')",
        "import os; os.mkdir('d')",
        "from pathlib import Path; Path('big').write_text('x')",
        "import tempfile; tempfile.mkstemp()",
    ),
    "ctypes": refused("import ctypes; ctypes.CDLL(None)", "import cffi; cffi.FFI()", "import mmap; mmap.mmap(-1, 9)"),
    "dunder chains": refused(
        "().__class__.__mro__[-1].__subclasses__()",
        "''.__class__.__base__",
        "type(()).__bases__",
        "type.mro(int)",
        "(lambda: 0).__globals__",
        "print.__self__",
        "[].__reduce_ex__(2)",
        "(lambda: 0).__code__.co_consts",
        "'{0.__class__.__mro__}'.format(1)",
        "getattr((), '__cla' + 'ss__').__mro__",
    ),
    "frames of a traceback": Attack(FRAMES, ("exception",)),
    "frames": refused(
        "import sys; sys._getframe()", "import inspect; inspect.stack()", "(i for i in ()).gi_frame.f_back"
    ),
    "import chains": refused(
        "__import__('os').environ",
        "__builtins__['open']",
        "import builtins; builtins.open",
        "import importlib; importlib.import_module('os')",
        "eval('__import__(\"os\").environ')",
        "eval('open(\"/etc/passwd\").read()')",
        "exec('import socket')",
        "compile('1', '', 'eval').co_code",
        "globals()['__builtins__']",
        "vars()",
        "breakpoint()",
        "input()",
        "help(1)",
    ),
    "unpickling": refused(
        "import pickle; pickle.loads(b'cos\\nsystem\\n(S\"id\"\\ntR.')", "import marshal; marshal.loads(b'')"
    ),
    "killing the parent": refused(
        "import os; os.kill(os.getppid(), 9)",
        "import signal; signal.raise_signal(9)",
        "import os; os.abort()",
        "import os; os._exit(0)",
    ),
    "leaving": Attack("import sys\nsys.exit(0)", ("exception",)),
    "signals of exit": Attack("raise SystemExit(0)", ("exception",)),
    "interrupt": Attack("raise KeyboardInterrupt('x')", ("exception",)),
    "other ways to the host": refused(
        "import sys; sys.modules['os'].system('id')",
        "import sys; sys.path[0] + sys.executable",
        "import gc; gc.get_objects()",
        "import atexit; atexit.register(print)",
        "import code; code.interact()",
        "import shutil; shutil.rmtree('/')",
        "import zipfile; zipfile.ZipFile('/etc/passwd')",
        "import sqlite3; sqlite3.connect('x')",
        "import platform; platform.uname()",
        "import getpass; getpass.getuser()",
        "import resource; resource.getrlimit(7)",
        "import fcntl; fcntl.flock(0, 2)",
        "import select; select.select([0], [], [], 0)",
        "import webbrowser; webbrowser.open('x')",
        "import smtplib; smtplib.SMTP('localhost')",
        "import ftplib; ftplib.FTP('localhost')",
        "import runpy; runpy.run_path('x')",
        "import pdb; pdb.set_trace()",
        "import faulthandler; faulthandler.dump_traceback()",
        "import tracemalloc; tracemalloc.start()",
        "import ast; ast.parse('1')",
        "import types; types.FunctionType(compile('1', '', 'eval'), {})",
        "import site; site.getsitepackages()",
        "import sysconfig; sysconfig.get_paths()",
        "import pydantic_monty; pydantic_monty.Monty()",
        "import lib.tools; lib.tools.Sandbox()",
        "import numpy; numpy.fromfile('/etc/passwd')",
        "import torch; torch.load('x')",
        "import concurrent.futures; concurrent.futures.ThreadPoolExecutor()",
    ),
    "names that lead out": refused(
        "(lambda: 0).__builtins__",
        "print.__init__.__globals__",
        "str.format('{0.__class__.__base__.__subclasses__}', 1)",
        "f'{().__class__.__bases__[0].__subclasses__()}'",
        "object().__class__.__subclasses__()",
        "setattr(int, 'x', 1)",
        "delattr(int, 'real')",
        "int.__dict__",
        "(1).__class__.__init_subclass__",
        "[].append.__self__.__class__.__base__",
        "Exception().__traceback__.tb_frame",
        "object.__getattribute__((), '__class__').__base__",
        "getattr(int, 'mro')()",
        "super().__init__",
        "__loader__.load_module('os')",
        "__spec__.loader",
        "__file__ + open(__file__).read()",
        "copyright.__class__.__init__.__globals__",
        "memoryview(b'x').obj.__class__.__base__.__subclasses__()",
        "(i for i in ()).gi_code",
        "license._Printer__setup()",
    ),
    "paths of another kind": refused(
        "open(b'/etc/passwd').read()",
        "open(0).read()",
        "open(1, 'w').write('x')",
        "open('/dev/tcp/127.0.0.1/22')",
        "open('\\x00/etc/passwd')",
        "open('/proc/self/mem', 'rb').read(9)",
        "open('/proc/self/root/etc/passwd').read()",
        "open('file:///etc/passwd').read()",
        "open('//etc//passwd').read()",
        "open('/etc/./passwd', opener=print)",
        "from pathlib import Path; Path('/').resolve(strict=True)",
        "from pathlib import Path; Path.home()",
        "from pathlib import Path; Path('x').touch()",
        "from pathlib import Path; Path('.env').unlink()",
        "from pathlib import Path; Path('.env').rename('x')",
        "import os; os.path.getsize('/etc/passwd')",
        "import os; os.remove('.env')",
        "import os; os.chmod('.env', 0)",
    ),
    "memory by a text of zeros": Attack("'0'.zfill(10 ** 11)", ("memory", "exception")),
    "memory by bytes": Attack("bytes(10 ** 11)", ("memory", "exception")),
    "memory by a join": Attack("','.join(['x' * 10 ** 6] * 10 ** 5)", ("memory", "timeout")),
    "memory by replacing": Attack("('a' * 10 ** 6).replace('a', 'b' * 10 ** 6)", ("memory", "timeout")),
    "memory by a range": Attack("list(range(10 ** 10))", ("memory", "timeout")),
    "memory by a dictionary": Attack(
        "d = {}\ni = 0\nwhile True:\n    d[i] = [i] * 100\n    i += 1", ("memory", "timeout")
    ),
    "memory by a set": Attack("set(range(10 ** 10))", ("memory", "timeout")),
    "memory by shifting": Attack("1 << 10 ** 12", ("memory", "exception")),
    "memory by repeating a tuple": Attack("(0,) * 10 ** 11", ("memory", "exception")),
    "memory by text made wide": Attack("'x'.center(10 ** 11)", ("memory", "exception")),
    "memory by encoding": Attack("('x' * 10 ** 7).encode().hex() * 100", ("memory",)),
    "memory by JSON": Attack("import json\njson.dumps(['x' * 10 ** 6] * 10 ** 4)", ("memory", "timeout", "exception")),
    "deep JSON": Attack(
        "import json\njson.loads('[' * 10 ** 6)", ("memory", "timeout", "exception", "recursion", "crash")
    ),
    "an iterator without end": Attack("sum(iter(int, 1))", ("timeout", "exception")),
    "a generator without end": Attack("def f():\n    while True:\n        yield 1\nsum(f())", ("timeout", "exception")),
    "a list that holds itself": Attack("x = []\nx.append(x)\nprint(len(repr(x)) < 99)", ("",), "True"),
    "a comparison without end": Attack(
        "x = []\nx.append(x)\ny = []\ny.append(y)\nx == y", ("", "recursion", "timeout", "exception")
    ),
    "sorting for ever": Attack("sorted(range(10 ** 9), key=lambda x: -x)", ("memory", "timeout")),
    "digits of a huge number": Attack("str(7 ** 10 ** 6)", ("memory", "timeout", "exception")),
    "a number of many digits": Attack("int('9' * 10 ** 6)", ("memory", "timeout", "exception", "")),
    "a division of huge numbers": Attack("(10 ** 10 ** 6) // (3 ** 10 ** 5)", ("memory", "timeout", "exception", "")),
    "mutual recursion": Attack("def f():\n    return g()\ndef g():\n    return f()\nf()", ("recursion",)),
    "recursion by repr": Attack(
        "x = []\nfor i in range(10 ** 5):\n    x = [x]\nrepr(x)",
        ("recursion", "exception", "memory", "timeout", "crash", ""),
    ),
    "recursion by a lambda": Attack("f = lambda: f()\nf()", ("recursion",)),
    "a flood of errors": Attack(
        "import sys\nwhile True:\n    print('x' * 999, file=sys.stderr)", ("flood", "exception", "timeout")
    ),
    "a flood of short lines": Attack("while True:\n    print()", ("flood", "timeout")),
    "control characters": Attack("print('\\x1b]0;owned\\x07\\x1b[2J\\x00')", ("",)),
    "the working folder": Attack("import os\nos.getcwd()", ("",), "'/'"),  # of a file system that is not there
    "the working folder as a path": Attack("from pathlib import Path\nstr(Path.cwd())", ("",), "'/'"),
    "a limit that is forged": ending(
        "exception",
        "raise MemoryError('memory limit exceeded: 1 bytes > 1 bytes')",
        "raise MemoryError('memory limit exceeded: 100000000049 bytes > 33554432 bytes')",
        "raise MemoryError('memory limit exceeded: 1 bytes > 1 bytes\\n~~~~\\n')",
        "e = MemoryError('memory limit exceeded: 1 bytes > 1 bytes')\nraise e",
        "raise RecursionError('maximum recursion depth exceeded')",
        "raise TimeoutError('feed time limit exceeded: 2s > 1s')",
    ),
    "brackets closed too early": ending(
        "syntax", "1); print('x'); (2", "1); x = (5", "1)+(2", "1] + [2", "print(1)) + (2", "x = 1\n1), (2", "1)\n(2"
    ),
    "code behind a byte order mark": Attack("\ufeffimport os\nos.environ['SANDBOX_CANARY']", ("exception",)),
    "code of many lines": Attack("\n" * 16_000 + "1", ("",), "1"),
    "a name of many letters": Attack("x" * 16_000, ("exception", "syntax")),
    "many nested functions": Attack(
        "".join(f"{' ' * i}def f{i}():\n" for i in range(150)) + " " * 150 + "pass", ("", "syntax", "timeout")
    ),
    "many nested blocks": Attack(
        "".join(f"{' ' * i}if 1:\n" for i in range(170)) + " " * 170 + "pass", ("", "syntax", "timeout")
    ),
    "many comparisons": Attack("1" + "<1" * 8_000, ("", "syntax", "recursion"), None),
    "many texts side by side": Attack("'a'" * 5_000, ("", "syntax", "recursion")),
    "a text in a text in a text": Attack("f'{" * 2_000, ("syntax",)),
    "a carriage return in a text": Attack("'a\r'", ("", "syntax")),
    "an interrupt that is caught": Attack(
        "try:\n    raise KeyboardInterrupt\nexcept BaseException:\n    print('on')", ("",), "on"
    ),
    "an exit in a loop": Attack(
        "while True:\n    try:\n        raise SystemExit\n    except BaseException:\n        pass", ("timeout",)
    ),
    "an async loop": Attack(
        "async def f():\n    while True:\n        pass\nawait f()", ("timeout", "syntax", "exception")
    ),
    "a host function that is not there": Attack("call_host('id')", ("exception",)),
    "asking the host for ever": Attack(
        "import os\nwhile True:\n    try:\n        os.getenv('X')\n    except BaseException:\n        pass",
        ("timeout", "exception"),
    ),
}
ATTACKS = {
    f"{name} {number}" if isinstance(attacks, tuple) and not isinstance(attacks, Attack) else name: attack
    for name, attacks in _KNOWN.items()
    for number, attack in enumerate([attacks] if isinstance(attacks, Attack) else attacks)
}
