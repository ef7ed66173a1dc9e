"""Runs the small jobs of a system, compares them with the recorded ones, and says which functions to look at."""

import gc
import hashlib
import importlib
import json
import os
import platform
import re
import sys
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import CodeType
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from lib.config import ROOT
from lib.experiment import artifacts
from lib.language_models import lab_model
from tests.golden import SmallJob

FOLDER = Path(__file__).parent
SIGNIFICANT_DIGITS = 4
MAX_FUNCTIONS = 20  # named in a message
LIB = str(ROOT / "lib")


def processor() -> str:
    """The class of processors, on which the last digits of a training depend: instructions, and whose they are.

    Intel's and AMD's AVX-512 sum in another order, since MKL takes another path on each.
    """
    vendor = _read_cpu_field("vendor_id") or platform.machine()
    return f"{torch.backends.cpu.get_cpu_capability()} {vendor}"


def processor_model() -> str:
    """The class with family and model: few jobs hang on the very last digit, and differ between models of a class."""
    return f"{processor()} {_read_cpu_field('cpu family')}.{_read_cpu_field('model')}"


def select_results(results: dict[str, Any]) -> dict[str, Any] | None:
    """What was recorded on this model of processors, else on its class; None where nothing was."""
    return results.get(processor_model(), results.get(processor()))


def _read_cpu_field(name: str) -> str:
    cpu_info = Path("/proc/cpuinfo")
    if not cpu_info.exists():
        return ""
    match = re.search(rf"^{name}\s*:\s*(\S+)", cpu_info.read_text(), re.MULTILINE)
    return match[1] if match else ""


def make_small_jobs(system: str, folder: Path) -> list[SmallJob]:
    """The small jobs of a system; `folder` is for their inputs."""
    return importlib.import_module(f"tests.golden.{system}").small_jobs(folder)


def run_system(system: str, folder: Path) -> list[tuple[dict[str, Any], set[CodeType]]]:
    """Run every small job of a system.

    Returns:
        For each job what is recorded of it (label, settings, versions, results), and the code of lib that it ran.
    """
    (folder / "inputs").mkdir()
    jobs = make_small_jobs(system, folder / "inputs")
    return [
        run_small_job(small_job, folder / f"job-{number}") for number, small_job in enumerate(jobs)
    ]


def run_small_job(small_job: SmallJob, folder: Path) -> tuple[dict[str, Any], set[CodeType]]:
    """One of `run_system`; the job writes into `folder`."""
    folder.mkdir()
    executed: set[CodeType] = set()

    def note_call(frame, event: str, _) -> None:
        path = frame.f_code.co_filename
        if (
            event == "call" and path.startswith(LIB) and path.endswith(".py")
        ):  # templates are compiled too
            executed.add(frame.f_code)

    threads = torch.get_num_threads()
    forget_replies()
    gc.collect()  # what other tests left runs its last lines now, and is not taken for the job's
    sys.setprofile(note_call)
    threading.setprofile(note_call)
    try:
        with threadpool_limits(
            1
        ):  # as in a sweep's processes: sums depend on the number of threads
            result = small_job.work(small_job.job, folder, lambda done: None)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)  # jobs switch it on
    settings = dict(small_job.job.settings)
    measured = {
        "label": small_job.job.label,
        "versions": settings.pop("versions"),
        "settings": hide_hashes(settings),
        "results": round_numbers(small_job.summarize(folder, result)),
        "functions": sorted({fingerprint(code) for code in executed}),
    }
    return measured, executed


def forget_replies() -> None:
    """Have every reply of a language model computed: a remembered one would hide a changed number."""
    os.environ[lab_model.SWITCH] = "off"
    lab_model.open_shared_store.cache_clear()
    lab_model.load_lab_models.cache_clear()


def round_numbers(value: Any) -> Any:
    """Plain values with numbers in four significant digits."""
    if isinstance(value, dict):
        return {str(name): round_numbers(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [round_numbers(inner) for inner in value]
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.{SIGNIFICANT_DIGITS}g}") if value == value else "nan"
    return value


def hide_hashes(value: Any) -> Any:
    """Settings without hashes: those of weights that were trained here differ between classes of processors."""
    if isinstance(value, dict):
        return {name: hide_hashes(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [hide_hashes(inner) for inner in value]
    is_hash = isinstance(value, str) and re.fullmatch(r"[0-9a-f]{12,64}", value)
    return "a hash" if is_hash else value


def record(system: str, measured: Sequence[dict[str, Any]]) -> Path:
    """Keep what the jobs of a system gave on this class of processors, beside what other classes gave.

    Where the settings or VERSIONs of a job are others now, what other classes gave is left out.
    """
    path = FOLDER / f"{system}.json"
    recorded = read(system)["jobs"] if path.exists() else []
    jobs = []
    for now in measured:
        same_jobs = [
            before
            for before in recorded
            if all(
                before[name] == _as_json(now[name]) for name in ("label", "settings", "versions")
            )
        ]
        others = same_jobs[0]["results"] if same_jobs else {}
        # A model that differs from its class is recorded beside it.
        of_class = others.get(processor(), now["results"])
        is_other = of_class != _as_json(now["results"])
        key = processor_model() if is_other and processor() in others else processor()
        jobs.append(now | {"results": others | {key: now["results"]}})
    return artifacts.write_json(path, {"jobs": jobs}).relative_to(ROOT)


def read(system: str) -> dict[str, Any]:
    """What was kept of a system."""
    return artifacts.read_json(FOLDER / f"{system}.json")


def compare(
    system: str, measured: Sequence[dict[str, Any]], executed: Iterable[set[CodeType]] | None = None
) -> list[str]:
    """What differs from the record, in words; empty where nothing does.

    executed: of each job the code that it ran, to name the functions to look at.
    """
    recorded = read(system)["jobs"]
    again = f"then: python -m tests.golden --record {system}"
    if len(recorded) != len(measured):
        return [f"{system} has {len(measured)} small jobs, {len(recorded)} are recorded; {again}"]
    problems = []
    for before, now, code in zip(
        recorded, measured, executed or [set()] * len(measured), strict=True
    ):
        now = {
            "versions": now["versions"],
            "settings": _as_json(now["settings"]),
            "results": _as_json(now["results"]),
        }
        label = f"{system}, {before['label']}"
        # Another class of processors may give other numbers: there only settings and VERSIONs are compared.
        before = before | {"results": select_results(before["results"]) or now["results"]}
        if now["settings"] != before["settings"]:
            names = [
                name
                for name in now["settings"]
                if now["settings"][name] != before["settings"].get(name)
            ]
            problems.append(
                f"{label}: other settings ({', '.join(names) or 'fewer'}) than recorded; {again}"
            )
        elif now["results"] == before["results"] and now["versions"] != before["versions"]:
            problems.append(
                f"{label}: a VERSION was raised and no number of the small job changed; {again}"
            )
        elif now["results"] != before["results"] and now["versions"] != before["versions"]:
            problems.append(f"{label}: numbers changed and a VERSION was raised; {again}")
        elif now["results"] != before["results"]:
            edited = [each for each in code if fingerprint(each) not in before["functions"]]
            suspects = edited or code
            problems.append(
                _explain_forgotten(system, label, before["results"], now["results"], suspects)
            )
    return problems


def _as_json(value: Any) -> Any:
    return json.loads(artifacts.to_json(value))


def _explain_forgotten(
    system: str,
    label: str,
    before: dict[str, Any],
    now: dict[str, Any],
    suspects: Iterable[CodeType],
) -> str:
    changes = [
        f"{name} {before.get(name)} -> {now.get(name)}"
        for name in now
        if now.get(name) != before.get(name)
    ]
    functions = sorted(map(_describe, suspects))
    shown = "".join(f"\n    {function}" for function in functions[:MAX_FUNCTIONS])
    if len(functions) > MAX_FUNCTIONS:
        shown += f"\n    and {len(functions) - MAX_FUNCTIONS} more"
    return (
        f"{label}: numbers changed and no VERSION was raised: {'; '.join(changes[:5])}\n"
        f"  Either undo the change, or raise the VERSION beside the function that changed a number, and record: "
        f"python -m tests.golden --record {system}\n  Functions to look at:{shown}"
    )


def fingerprint(code: CodeType) -> str:
    """Eight hexadecimal digits of what a function does: its bytecode and constants, without its names and docstring.

    Renaming, moving and formatting change none; another version of Python changes all.
    """
    constants = [constant for constant in code.co_consts if not isinstance(constant, CodeType)]
    if constants and isinstance(constants[0], str):  # a docstring stands first
        constants = constants[1:]
    texts = [  # a set of strings has another order in each process
        repr(sorted(map(repr, constant))) if isinstance(constant, frozenset) else repr(constant)
        for constant in constants
    ]
    content = code.co_code + "\n".join(texts).encode()
    return hashlib.sha256(content).hexdigest()[:8]


def _path(code: CodeType) -> str:
    return Path(code.co_filename).relative_to(ROOT).as_posix()


def _describe(code: CodeType) -> str:
    return f"{_path(code)}:{code.co_firstlineno} {code.co_qualname}"


def executed_modules(executed: set[CodeType]) -> list[str]:
    """Dotted names of the modules that the code stands in, but for functions that only open connections."""
    paths = {Path(_path(code)) for code in executed}
    names = {".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths}
    return sorted(names)


def version_holder(module_name: str) -> str | None:
    """The module whose VERSION stands for a module: itself or the nearest package that has one."""
    while module_name != "lib":
        if isinstance(getattr(importlib.import_module(module_name), "VERSION", None), int):
            return module_name
        module_name = module_name.rpartition(".")[0]
    return None
