"""Programs that try to get out of the sandbox, to stop it or to fool it, each with the ways in which it may end."""

from typing import NamedTuple


class Attack(NamedTuple):
    """code: what is tried; kinds: how it may end; text: what may be seen, where it ends well."""

    code: str
    kinds: tuple[str, ...]
    text: str | None = None


def ending(
    kinds: str | tuple[str, ...], *codes: str, text: str | None = None
) -> tuple[Attack, ...]:
    """Programs that may end alike, an attack each."""
    return tuple(
        Attack(code, (kinds,) if isinstance(kinds, str) else kinds, text) for code in codes
    )


def refused(*attempts: str) -> tuple[Attack, ...]:
    """Attempts that get nothing, an attack each."""
    return ending("", *map(tried, attempts), text="nothing")


def tried(attempt: str) -> str:
    """An attempt that prints what it got, or that it got nothing."""
    *setup, last = attempt.split("; ")
    body = "\n".join(f"    {line}" for line in [*setup, f"print('GOT', {last})"])
    return f"try:\n{body}\nexcept Exception as error:\n    print('nothing')"


def called(*calls: str) -> tuple[Attack, ...]:
    """Uses of Python's modules that get nothing."""
    return refused(*(f"import {call.partition('.')[0]}; {call}" for call in calls))


def opened(*paths: str) -> tuple[Attack, ...]:
    """Files that cannot be read."""
    return refused(*(f"open({path!r}).read()" for path in paths))


def on_path(*calls: str) -> tuple[Attack, ...]:
    """Uses of paths that get nothing."""
    return refused(*(f"from pathlib import Path; {call}" for call in calls))


FRAMES = """
try:
    1 / 0
except Exception as error:
    caught = error
print(caught.__traceback__.tb_frame.f_back.f_globals)
"""
ORPHAN = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            pass"""
DOUBLED = "x = ()\nfor i in range(40):\n    x = (x, x)\n"
OWN = "x = []\nx.append(x)\n"
NESTED = [f"{' ' * i}{{}}:\n" for i in range(170)]
CAUGHT = "while True:\n    try:\n        {}\n    except BaseException:\n        pass"
_KNOWN: dict[str, tuple[Attack, ...]] = {
    # Time
    "endless loop": ending(
        "timeout", "while True:\n    pass", "import time\nwhile True:\n    time.sleep(1)"
    ),
    "endless loop that catches everything": ending(
        "timeout", CAUGHT.format("while True:\n            pass"), CAUGHT.format("raise SystemExit")
    ),
    "sleep": ending("", "import time\ntime.sleep(10 ** 6)\n'awake'", text="'awake'"),
    "iterator without end": ending(
        ("timeout", "exception"),
        "sum(iter(int, 1))",
        "def f():\n    while True:\n        yield 1\nsum(f())",
    ),
    "async loop": ending(
        ("timeout", "syntax", "exception"),
        "async def f():\n    while True:\n        pass\nawait f()",
    ),
    "regular expression that backtracks": ending(
        ("", "timeout"), "import re\nprint(re.match('(a+)+$', 'a' * 40 + 'b'))"
    ),
    "regular expression that refers back": ending(
        ("", "timeout", "exception"), "import re\nprint(re.match(r'(a|aa)+\\1$', 'a' * 60 + 'b'))"
    ),
    # Memory
    "memory at once": ending(
        "memory", "x = 'a' * 10 ** 11", "('x' * 10 ** 7).encode().hex() * 100"
    ),
    "memory of a huge integer": ending("memory", "10 ** 10 ** 8", "pow(7, 10 ** 9)"),
    "memory in a loop": ending(
        "memory",
        "x = []\nwhile True:\n    x.append([0] * 1000)",
        "x = 'a'\nwhile True:\n    x += x",
    ),
    "memory of texts made wide": ending(
        ("memory", "exception"),
        "f'{1:10000000000d}'",
        "'0'.zfill(10 ** 11)",
        "'x'.center(10 ** 11)",
    ),
    "memory of values made long": ending(
        ("memory", "exception"), "bytes(10 ** 11)", "1 << 10 ** 12", "(0,) * 10 ** 11"
    ),
    "memory bit by bit": ending(
        ("memory", "timeout"),
        "','.join(['x' * 10 ** 6] * 10 ** 5)",
        "('a' * 10 ** 6).replace('a', 'b' * 10 ** 6)",
        "d = {}\ni = 0\nwhile True:\n    d[i] = [i] * 100\n    i += 1",
    ),
    "memory of a range": ending(
        ("memory", "timeout"),
        "list(range(10 ** 10))",
        "set(range(10 ** 10))",
        "sorted(range(10 ** 9), key=lambda x: -x)",
    ),
    "integers that grow in one step": ending(
        ("timeout", "memory"), "x = 10 ** 4000\nwhile True:\n    x = x * x"
    ),
    "digits of a huge number": ending(("memory", "timeout", "exception"), "str(7 ** 10 ** 6)"),
    "huge numbers": ending(
        ("memory", "timeout", "exception", ""),
        "int('9' * 10 ** 6)",
        "(10 ** 10 ** 6) // (3 ** 10 ** 5)",
    ),
    "JSON": ending(
        ("memory", "timeout", "exception"), "import json\njson.dumps(['x' * 10 ** 6] * 10 ** 4)"
    ),
    "deep JSON": ending(
        ("memory", "timeout", "exception", "recursion", "crash"),
        "import json\njson.loads('[' * 10 ** 6)",
    ),
    "value that shows itself or hashes for ever": ending(
        ("memory", "timeout"), DOUBLED + "x", DOUBLED + "{x}"
    ),
    "early return of a value with a slow hash": ending(
        ("", "syntax"), DOUBLED + "return {x: 1}", text=""
    ),
    "error with a value that shows itself for ever": ending(
        ("memory", "timeout", "exception"), DOUBLED + "raise ValueError(x)"
    ),
    # Depth
    "deep recursion": ending(
        "recursion",
        "def f(n):\n    return f(n + 1)\nf(0)",
        "def f():\n    return g()\ndef g():\n    return f()\nf()",
        "f = lambda: f()\nf()",
    ),
    "recursion that never gives up": ending(
        ("timeout", "recursion"), "def f():\n    try:\n        f()\n    finally:\n        f()\nf()"
    ),
    "recursion by repr": ending(
        ("recursion", "exception", "memory", "timeout", "crash", ""),
        "x = []\nfor i in range(10 ** 5):\n    x = [x]\nrepr(x)",
    ),
    "list that holds itself": ending("", f"{OWN}print(len(repr(x)) < 99)", text="True"),
    "comparison without end": ending(
        ("", "recursion", "timeout", "exception"), f"{OWN}y = []\ny.append(y)\nx == y"
    ),
    "deep parentheses": ending("refused", "(" * 100_000 + ")" * 100_000),
    "deep parentheses within the limit": ending(
        "syntax", "(" * 8_000 + ")" * 8_000, "[" * 8_000 + "]" * 8_000, "f'{" * 2_000
    ),
    "deep signs": ending(("syntax", "recursion"), "-" * 16_000 + "1"),
    "deep attributes and calls": ending(
        ("syntax", "exception", "recursion"), "a" + ".b()" * 4_000, "eval('(' * 10 ** 6)"
    ),
    "many nested functions": ending(
        ("", "syntax", "timeout"),
        "".join(line.format(f"def f{i}()") for i, line in enumerate(NESTED[:150]))
        + " " * 150
        + "pass",
        "".join(line.format("if 1") for line in NESTED) + " " * 170 + "pass",
    ),
    "many parts side by side": ending(
        ("", "syntax", "recursion"), "1" + "<1" * 8_000, "'a'" * 5_000
    ),
    # Output
    "flood of output": ending("flood", "while True:\n    print('x' * 1000)"),
    "flood in one line": ending(("flood", "memory"), "print('x' * (20 << 20))"),
    "flood of little": ending(
        ("flood", "timeout"), "while True:\n    print('x', end='')", "while True:\n    print()"
    ),
    "flood of errors": ending(
        ("flood", "exception", "timeout"),
        "import sys\nwhile True:\n    print('x' * 999, file=sys.stderr)",
    ),
    "control characters": ending("", "print('\\x1b]0;owned\\x07\\x1b[2J\\x00')"),
    # Processes
    "processes": (
        *called(
            "os.fork()",
            "multiprocessing.Process()",
            "subprocess.run(['id'])",
            "pty.spawn('/bin/sh')",
        ),
        *called("os.system('id')", "os.popen('id').read()", "os.execv('/bin/sh', ['sh'])"),
        *called("os.posix_spawn('/bin/sh', ['sh'], {})", "sys.modules['os'].system('id')"),
        *called("threading.Thread()", "_thread.start_new_thread(print, ())"),
        *refused("import concurrent.futures; concurrent.futures.ThreadPoolExecutor()"),
    ),
    "orphan by a double fork": ending("exception", ORPHAN.removeprefix("\n")),
    "killing the parent": called(
        "os.kill(os.getppid(), 9)", "os.abort()", "os._exit(0)", "signal.raise_signal(9)"
    ),
    "leaving": ending(
        "exception",
        "import sys\nsys.exit(0)",
        "raise SystemExit(0)",
        "raise KeyboardInterrupt('x')",
    ),
    "interrupt that is caught": ending(
        "", "try:\n    raise KeyboardInterrupt\nexcept BaseException:\n    print('on')", text="on"
    ),
    # The network
    "network": (
        *called(
            "socket.create_connection(('127.0.0.1', 22))", "socket.getaddrinfo('example.org', 80)"
        ),
        *called(
            "asyncio.open_connection('localhost', 22)",
            "smtplib.SMTP('localhost')",
            "ftplib.FTP('localhost')",
        ),
        *called("ssl.SSLContext()", "select.select([0], [], [], 0)", "webbrowser.open('x')"),
        *refused("import urllib.request; urllib.request.urlopen('http://localhost')"),
        *refused("import http.client; http.client.HTTPConnection('localhost')"),
    ),
    # Files
    "files": (
        *opened(
            "/etc/passwd", "/dev/zero", "~/.ssh/id_rsa", ".env", "./secret.txt", "../.env", "link"
        ),
        *opened(
            "/proc/self/environ",
            "/proc/1/environ",
            "/proc/self/maps",
            "/proc/self/fd/0",
            "/proc/self/cmdline",
        ),
        *opened("/proc/self/root/etc/passwd", "file:///etc/passwd", "//etc//passwd"),
        *refused("open('/proc/self/environ', 'rb').read()", "open('/proc/self/mem', 'rb').read(9)"),
        *refused("open(f'/proc/{__import__(\"os\").getppid()}/environ').read()"),
        *refused(
            "open(b'/etc/passwd').read()", "open(0).read()", "open('/etc/./passwd', opener=print)"
        ),
        *refused(
            "open(1, 'w').write('x')", "open('/dev/tcp/127.0.0.1/22')", "open('\\x00/etc/passwd')"
        ),
        *refused("open('big', 'w').write('x' * 10 ** 6)", "open('/tmp/big', 'wb').write(b'x')"),
    ),
    "paths": (
        *on_path(
            "Path('/etc/passwd').read_text()",
            "Path('.env').read_bytes()",
            "list(Path('.').iterdir())",
        ),
        *on_path(
            "Path('/').resolve(strict=True)", "Path.home()", "Path('x').symlink_to('/etc/passwd')"
        ),
        *on_path("Path('x').touch()", "Path('.env').unlink()", "Path('.env').rename('x')"),
        *on_path("Path('big').write_text('x')"),
    ),
    "file system": (
        *called(
            "os.listdir('/')",
            "os.stat('/')",
            "os.path.getsize('/etc/passwd')",
            "os.readlink('link')",
        ),
        *called(
            "os.symlink('/etc/passwd', 'x')",
            "os.remove('.env')",
            "os.chmod('.env', 0)",
            "os.mkdir('d')",
        ),
        *called(
            "glob.glob('/*')",
            "tempfile.mkstemp()",
            "shutil.rmtree('/')",
            "zipfile.ZipFile('/etc/passwd')",
        ),
        *called(
            "sqlite3.connect('x')",
            "numpy.fromfile('/etc/passwd')",
            "torch.load('x')",
            "fcntl.flock(0, 2)",
        ),
    ),
    "working folder": ending(  # of a file system that is not there
        "", "import os\nos.getcwd()", "from pathlib import Path\nstr(Path.cwd())", text="'/'"
    ),
    # The host
    "environment": (
        *called(
            "os.environ['SANDBOX_CANARY']",
            "os.getenv('SANDBOX_CANARY')",
            "os.environb",
            "posix.environ",
        ),
        *refused("import os; dict(os.environ)"),
        *ending(
            "exception", "\ufeffimport os\nos.environ['SANDBOX_CANARY']"
        ),  # behind a byte order mark
    ),
    "asking the host": (
        *ending("exception", "call_host('id')"),
        *ending(("timeout", "exception"), "import os\n" + CAUGHT.format("os.getenv('X')")),
    ),
    "modules that lead out": (
        *called("ctypes.CDLL(None)", "cffi.FFI()", "mmap.mmap(-1, 9)", "marshal.loads(b'')"),
        *called(
            "pickle.loads(b'cos\\nsystem\\n(S\"id\"\\ntR.')",
            "sys.path[0] + sys.executable",
            "gc.get_objects()",
        ),
        *called(
            "atexit.register(print)", "code.interact()", "runpy.run_path('x')", "pdb.set_trace()"
        ),
        *called("platform.uname()", "getpass.getuser()", "resource.getrlimit(7)", "ast.parse('1')"),
        *called("faulthandler.dump_traceback()", "tracemalloc.start()", "site.getsitepackages()"),
        *called("types.FunctionType(compile('1', '', 'eval'), {})", "sysconfig.get_paths()"),
        *called("pydantic_monty.Monty()"),
        *refused("import lib.tools; lib.tools.Sandbox()"),
    ),
    # The interpreter
    "dunder chains": (
        *refused(
            "().__class__.__mro__[-1].__subclasses__()",
            "''.__class__.__base__",
            "type(()).__bases__",
        ),
        *refused(
            "'{0.__class__.__mro__}'.format(1)",
            "getattr((), '__cla' + 'ss__').__mro__",
            "type.mro(int)",
        ),
        *refused(
            "(lambda: 0).__globals__", "(lambda: 0).__code__.co_consts", "(lambda: 0).__builtins__"
        ),
        *refused(
            "print.__self__",
            "print.__init__.__globals__",
            "[].__reduce_ex__(2)",
            "super().__init__",
        ),
        *refused(
            "str.format('{0.__class__.__base__.__subclasses__}', 1)",
            "int.__dict__",
            "getattr(int, 'mro')()",
        ),
        *refused(
            "f'{().__class__.__bases__[0].__subclasses__()}'", "object().__class__.__subclasses__()"
        ),
        *refused("(1).__class__.__init_subclass__", "[].append.__self__.__class__.__base__"),
        *refused(
            "object.__getattribute__((), '__class__').__base__",
            "copyright.__class__.__init__.__globals__",
        ),
        *refused(
            "memoryview(b'x').obj.__class__.__base__.__subclasses__()", "license._Printer__setup()"
        ),
        *refused("setattr(int, 'x', 1)", "delattr(int, 'real')"),
    ),
    "frames": (
        *ending("exception", FRAMES),
        *called("sys._getframe()", "inspect.stack()"),
        *refused(
            "(i for i in ()).gi_frame.f_back",
            "(i for i in ()).gi_code",
            "Exception().__traceback__.tb_frame",
        ),
    ),
    "import chains": (
        *refused(
            "__import__('os').environ",
            "__builtins__['open']",
            "globals()['__builtins__']",
            "vars()",
        ),
        *called("builtins.open", "importlib.import_module('os')"),
        *refused(
            "eval('__import__(\"os\").environ')",
            "eval('open(\"/etc/passwd\").read()')",
            "exec('import socket')",
        ),
        *refused(
            "__loader__.load_module('os')", "__spec__.loader", "__file__ + open(__file__).read()"
        ),
        *refused("compile('1', '', 'eval').co_code", "breakpoint()", "input()", "help(1)"),
    ),
    # What the sandbox makes of code and of errors
    "limit that is forged": ending(
        "exception",
        "raise MemoryError('memory limit exceeded: 1 bytes > 1 bytes')",
        "raise MemoryError('memory limit exceeded: 100000000049 bytes > 33554432 bytes')",
        "raise MemoryError('memory limit exceeded: 1 bytes > 1 bytes\\n~~~~\\n')",
        "e = MemoryError('memory limit exceeded: 1 bytes > 1 bytes')\nraise e",
        "raise RecursionError('maximum recursion depth exceeded')",
        "raise TimeoutError('feed time limit exceeded: 2s > 1s')",
    ),
    "brackets closed too early": ending(
        "syntax",
        "1); print('x'); (2",
        "1); x = (5",
        "1)+(2",
        "1] + [2",
        "print(1)) + (2",
        "x = 1\n1), (2",
        "1)\n(2",
    ),
    "code of many lines": ending("", "\n" * 16_000 + "1", text="1"),
    "name of many letters": ending(("exception", "syntax"), "x" * 16_000),
    "carriage return in a text": ending(("", "syntax"), "'a\r'"),
}
ATTACKS = {
    f"{name} {number}": attack
    for name, attacks in _KNOWN.items()
    for number, attack in enumerate(attacks)
}
