# ruff: noqa: E501 - tables of contents
"""Broken, truncated and hostile files for every reader: is each refused with an error that names it, and left alone?"""

import contextlib
import gzip
import json
import pickle
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from transformers.utils import logging

from lib import config, tasks
from lib.config import ROOT
from lib.envs import question_bank
from lib.experiment import artifacts
from lib.language_models import checkpoints
from lib.language_models.tokenizer import get_tokenizer
from lib.llm.reply_store import Recording
from lib.policy_zoo import policies
from lib.policy_zoo.networks import Mlp, draw_initial_parameters
from lib.recorded_outcomes.user_tables import read_outcome_table
from lib.reports.execute import dvc_stage, strip_outputs
from lib.scoreboard import claim
from scripts import doctor
from tests.language_models.tiny import model
from tests.test_doctor import LOCK

LONGEST = 20  # seconds for a file, on a busy machine
_ERRORS = (
    ValueError,
    OSError,
    dvc_stage.RunError,
    tasks.TaskError,
)  # BankError, PolicyError and their like are ValueErrors


@dataclass(frozen=True)
class Reader:
    """place: the file in a folder that `make` fills with what is right; read: takes the folder; takes: broken contents
    that are right for this reader all the same."""

    place: str
    make: Callable[[Path], Any]
    read: Callable[[Path], Any]
    takes: tuple[str, ...] = ()
    own: dict[str, bytes] | None = None  # more contents for this reader alone


def _text(name: str, content: str) -> Callable[[Path], Any]:
    return lambda folder: artifacts.write_text(folder / name, content)


def _policy(folder: Path) -> None:
    network = Mlp(4, 3)
    policies.save(
        policies.Policy(
            "p", "education", network, draw_initial_parameters(network, "t", seed=1), {}
        ),
        folder,
    )


def _model(folder: Path) -> None:
    checkpoints.save(model(), folder / "lab")
    artifacts.write_json(folder / "lab/card.json", {"parameters": 1})


def _healthy(name: str) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        """The doctor's finding about a file, raised."""
        checks = (*doctor.locks(folder), *doctor.pipeline_files(folder))
        for finding in checks:
            if name in finding.problem:
                raise ValueError(finding.problem)

    return read


def _notebook(folder: Path) -> None:
    cell = {
        "cell_type": "code",
        "id": "a",
        "source": "1",
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    artifacts.write_json(
        folder / "00_x.ipynb", {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    )


def _json(value: Any) -> bytes:
    return json.dumps(value).encode()


def _changed(**changes: Any) -> bytes:
    """A policy's description with other facts."""
    network = {"type": "Mlp", "inputs": 4, "actions": 3, "values": 1, "hidden": [64, 64]}
    facts = {
        "format": 1,
        "name": "p",
        "domain": "d",
        "network": network,
        "about": {},
        "sha256": "0",
    }
    return _json(facts | changes)


CONFIG = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 256,
    "vocab_size": len(get_tokenizer()),
    "model_type": "llama",
    "tie_word_embeddings": True,
}
TABLE = "item,group,model,correct,dollars,e0\n" + "".join(
    f"{i},g{i},{m},1,0.5,{i}\n" for i in range(6) for m in "ab"
)
REPLY = '{"key": "k", "request": {}, "response": {}}\n'
STAGES = "stages:\n  00_x:\n    cmd: python -m lib.reports.execute 00_x\n    outs: [a]\n"
BANK = "id;difficulty_level;topic_name\n1;3;Statistics\n2;4;Optimization\n"
ANSWERS = "Student ID;Question ID;Type of Answer\n1;1;0\n2;2;1\n"
HOLDER = '{"write": {}, "read": {}}'
BOMB = "a: &a [1, 1]\n" + "".join(
    f"{b}: &{b} [*{a}, *{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)


def _rows(head: str, *rows: str) -> dict[str, bytes]:
    return {
        f"row {number}: {row[:30]!r}": f"{head}\n{row}\n".encode()
        for number, row in enumerate(rows)
    }


BANK_ROWS = _rows(
    "id;difficulty_level;topic_name",
    "",
    "1",
    "1;9;Statistics",
    "1;0;Statistics",
    "1;-1;Statistics",
    "1;3.0;Statistics",
    "1;;Statistics",
    ";3;Statistics",
    "x;3;Statistics",
    "1e3;3;Statistics",
    "0x1;3;Statistics",
    "1;3;Astrology",
    "1;3;",
    "1;3;Statistics\n1;3;Statistics",
    "9" * 30 + ";3;Statistics",
    "9" * 9_999 + ";3;Statistics",
    '"1;3;Statistics',
    '1;3;"Statistics',
    "1;3;" + "x" * 200_000,
    "1_0;3;Statistics",
    "\u0661;3;Statistics",
    "1;\u0663;Statistics",
) | {
    "columns twice": b"id;id;difficulty_level;topic_name\n1;1;3;Statistics\n",
    "header with an open quote": b'"id;difficulty_level;topic_name\n1;3;Statistics\n',
    "commas": BANK.replace(";", ",").encode(),
    "no level": b"id;topic_name\n1;Statistics\n",
}
ANSWER_ROWS = _rows(
    "Student ID;Question ID;Type of Answer",
    "1;1;2",
    "1;1;",
    "1;1;yes",
    "1;1;1.0",
    ";1;1",
    "1;;1",
    "a;1;1",
    "1;a;1",
    "9" * 25 + ";1;1",
    "1;" + "9" * 25 + ";1",
    '1;1;"1',
    "1;1;" + "1" * 99_999,
)
TABLE_ROWS = (
    _rows(
        "item,group,model,correct,dollars",
        "",
        "x",
        "x,g,a,1",
        "x,g,a,1,1",
        "x,g,a,1,1\nx,g,b,1,-1",
        "x,g,a,yes,1\nx,g,b,1,1",
        "x,g,a,nan,1\nx,g,b,1,1",
        "x,g,a,1,\nx,g,b,1,1",
        "x,g,a,1,inf\nx,g,b,1,1",
        "x,g,a,2,1\nx,g,b,1,1",
        "x,g,a,1,1\nx,g,a,1,1",
        "x,g,a,1,1\nx,h,b,1,1",
        ",g,a,1,1\nx,g,b,1,1",
        "x,g,a,1,1\ny,g,b,1,1",
        "x,g,a,1,1,1\nx,g,b,1,1,1,1",
        "x,g,a,1,1e999\nx,g,b,1,1",
    )
    | _rows("item,group,model,correct", "x,g,a,1")
    | _rows("prompt,a,b", "x,1,0")
    | _rows("item,item,group,model,correct,dollars", "x,x,g,a,1,1")
)
POLICY_OWN = {
    f"{name} is {str(value)[:30]}": _changed(**{name: value})
    for name, values in {
        "network": [
            [],
            {},
            None,
            "Mlp",
            {"type": "Mlp"},
            {"type": "Rnn"},
            {"type": ["Mlp"]},
            {"type": "Mlp", "inputs": "4", "actions": 3},
            {"type": "Mlp", "inputs": -4, "actions": 3},
            {"type": "Mlp", "inputs": 10**9, "actions": 3},
            {"type": "Mlp", "inputs": 4, "actions": 3, "hidden": 64},
            {"type": "Mlp", "inputs": 4, "actions": 3, "hidden": [[64]]},
            {"type": "Mlp", "inputs": 4, "actions": 3, "other": 1},
            {"type": "Cnn", "actions": 3, "channels": []},
            {"type": "Mlp", "inputs": True, "actions": 3},
        ],
        "format": [0, 2, "1", None],
        "name": [1, None, []],
        "domain": [1, None],
        "about": [[], "x", None],
        "sha256": ["", 1, None, []],
    }.items()
    for value in values
}
CONFIG_OWN = {
    f"{name} is {str(value)[:30]}": _json(CONFIG | {name: value})
    for name, values in {
        "num_attention_heads": [0, -1, None, "2", 3, 2.0, 10**30],
        "num_hidden_layers": [0, 10**5, 3, -2, "2", None],
        "hidden_size": [0, 31, 10**9, None, [32]],
        "vocab_size": [0, 10**12, 5],
        "intermediate_size": [0, 64, 10**9],
        "max_position_embeddings": [0, 10**12, -1, None],
        "hidden_act": ["nonsense", 5, []],
        "rope_parameters": ["x", 5],
        "quantization_config": [5],
        "rms_norm_eps": ["x"],
    }.items()
    for value in values
}
NOTEBOOK_OWN = {
    str(value)[:40]: _json(value)
    for value in (
        {"cells": 3, "metadata": {}, "nbformat": 4, "nbformat_minor": 5},
        {"cells": [3], "metadata": {}, "nbformat": 4, "nbformat_minor": 5},
        {"cells": [{}], "metadata": {}, "nbformat": 4, "nbformat_minor": 5},
        {"cells": [], "metadata": {}, "nbformat": 99, "nbformat_minor": 5},
        {
            "cells": [{"cell_type": "code", "source": 3}],
            "metadata": {},
            "nbformat": 4,
            "nbformat_minor": 5,
        },
        {
            "cells": [{"cell_type": "odd", "source": "", "metadata": {}, "id": "a"}],
            "metadata": {},
            "nbformat": 4,
            "nbformat_minor": 5,
        },
        {"cells": [], "metadata": 3, "nbformat": 4, "nbformat_minor": 5},
        {"cells": [], "metadata": {}, "nbformat": "x", "nbformat_minor": 5},
    )
}
RWLOCK_OWN = {
    text: text.encode()
    for text in (
        '{"write": 3}',
        '{"write": {"x": 3}}',
        '{"write": {"x": {"pid": "?"}}}',
        '{"read": {"x": 3}}',
        '{"write": [1]}',
        '{"write": {"x": {"pid": 1e999}}}',
        '{"write": {"x": {}}}',
        '{"write": {"x": {"pid": null}}}',
    )
}
YAML_OWN = {
    "aliases that grow": BOMB.encode(),
    "itself": b"a: &a\n  b: *a\n",
    "a tab": b"a:\n\tb: 1\n",
    "twice": b"a: 1\na: 2\n",
    "a tag": b"!!python/object/apply:os.system ['id']\n",
}
TENSORS_OWN = {
    "a header of gigabytes": (2**40).to_bytes(8, "little") + b"{}",
    "a header that lies": (2).to_bytes(8, "little") + b"{",
    "half a number": (9).to_bytes(8, "little") + b'{"a": 1}x',
    "bfloat16": (57).to_bytes(8, "little")
    + b'{"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}  '
    + b"\0\0",
    "beyond the end": (58).to_bytes(8, "little")
    + b'{"a":{"dtype":"F32","shape":[9],"data_offsets":[0,36]}}   '
    + b"\0\0",
}

READERS = {
    "bank": Reader(
        "bank.csv",
        _text("bank.csv", BANK),
        lambda f: question_bank.load_bank(f / "bank.csv"),
        own=BANK_ROWS,
    ),
    "answers": Reader(
        "answers.csv",
        lambda f: (_text("answers.csv", ANSWERS)(f), _text("bank.csv", BANK)(f)),
        lambda f: question_bank.estimate_difficulty(
            question_bank.load_bank(f / "bank.csv"), f / "answers.csv"
        ),
        own=ANSWER_ROWS,
    ),
    "outcomes": Reader(
        "t.csv",
        _text("t.csv", TABLE),
        lambda f: read_outcome_table(f / "t.csv"),
        takes=("UTF-16",),
        own=TABLE_ROWS,
    ),
    "policy": Reader(
        "p.json", _policy, lambda f: policies.load(f / "p.json"), takes=("UTF-16",), own=POLICY_OWN
    ),
    "policy weights": Reader(
        "p.safetensors", _policy, lambda f: policies.load(f / "p.json"), own=TENSORS_OWN
    ),
    "model": Reader("lab/config.json", _model, checkpoints.load_all, own=CONFIG_OWN),
    "model weights": Reader("lab/model.safetensors", _model, checkpoints.load_all, own=TENSORS_OWN),
    "card": Reader(
        "lab/card.json", _model, checkpoints.load_all, takes=("an empty object", "UTF-16")
    ),
    "cassette": Reader("c.jsonl", _text("c.jsonl", REPLY), lambda f: Recording(f, "c", "replay")),
    "claims": Reader(
        "claims.yaml",
        lambda f: shutil.copy(ROOT / "data/claims/claims.yaml", f),
        lambda f: claim.read_claims(f / "claims.yaml"),
        own=YAML_OWN,
    ),
    "params": Reader(
        "params.yaml",
        lambda f: shutil.copy(ROOT / "params.yaml", f),
        lambda f: config.load("smoke", f / "params.yaml"),
        own=YAML_OWN,
    ),
    "notebook": Reader(
        "00_x.ipynb",
        _notebook,
        lambda f: strip_outputs.clean_folder(f, f.parent / "cleaned"),
        own=NOTEBOOK_OWN,
    ),
    "settings": Reader(
        "data/settings.json",
        _text("data/settings.json", '{"zoo": {}}'),
        lambda f: dvc_stage.parameters(dvc_stage.LessonStage("x", ("zoo",), (), ()), f),
        takes=("UTF-16",),
        own={"no section": b'{"z": 1}'},
    ),
    "dvc.yaml": Reader(
        "dvc.yaml", _text("dvc.yaml", STAGES), lambda f: dvc_stage.find("00_x", f), own=YAML_OWN
    ),
    "dvc.lock": Reader(
        "dvc.lock", _text("dvc.lock", LOCK), _healthy("dvc.lock"), takes=("half",), own=YAML_OWN
    ),
    "rwlock": Reader(
        ".dvc/tmp/rwlock",
        _text(".dvc/tmp/rwlock", HOLDER),
        _healthy("rwlock"),
        takes=("an empty object",),
        own=RWLOCK_OWN,
    ),
    "parquet": Reader(
        "t.parquet",
        lambda f: artifacts.write_parquet(f / "t.parquet", pd.DataFrame({"a": np.arange(99)})),
        lambda f: artifacts.read_parquet(f / "t.parquet"),
    ),
}


def broken(correct: bytes) -> dict[str, bytes]:
    """What may lie in any file's place."""
    return {
        "empty": b"",
        "blanks": b" \n\n",
        "zeros": b"\0" * 512,
        "UTF-16": correct[:400].decode("latin-1").encode("utf-16"),
        "half": correct[: len(correct) // 2].rstrip(b"}]\n \0"),
        "its first byte": correct[:1],
        "NUL inside": correct[:9] + b"\0" + correct[9:],
        "no UTF-8": correct[:5] + b"\xff\xfe\xfd" + correct[5:],
        "deep brackets": b"[" * 100_000,
        "deep objects": b'{"a":' * 60_000,
        "null": b"null",
        "a number": b"3",
        "a text": b'"x"',
        "an empty list": b"[]",
        "an empty object": b"{}",
        "a number of many digits": b"9" * 6_000,
        "not a number": b"NaN",
        "half a character": b'{"a": "\\ud800"',
        "packed": gzip.compress(correct),
        "a pickle": pickle.dumps({"a": 1}),
        "a page": b"<!DOCTYPE html><html><body>404</body></html>",
        "a conflict": b"<<<<<<< HEAD\n"
        + correct[:99]
        + b"\n=======\n"
        + correct[:99]
        + b"\n>>>>>>> other\n",
    }


def cases() -> Iterator[tuple[str, str, bytes | None]]:
    """Reader, what is wrong, and the content; None where a folder lies in the file's place."""
    for name, reader in READERS.items():
        with tempfile.TemporaryDirectory() as folder:
            reader.make(Path(folder))
            correct = (Path(folder) / reader.place).read_bytes()
        contents = broken(correct) | (reader.own or {})
        yield from (
            (name, wrong, content)
            for wrong, content in contents.items()
            if wrong not in reader.takes
        )
        yield name, "a folder", None


def attempt(name: str, content: bytes | None) -> tuple[str, bool]:
    """What a reader makes of a file: "" where it is refused by name, otherwise what happened; and whether it changed it."""
    reader = READERS[name]
    with tempfile.TemporaryDirectory() as outer, _deadline():
        folder = Path(outer) / "here"
        folder.mkdir()
        reader.make(folder)
        path = folder / reader.place
        path.unlink()
        path.mkdir() if content is None else path.write_bytes(content)
        before = _files(folder)
        try:
            reader.read(folder)
            said = "it was taken"
        except _ERRORS as error:
            said = (
                ""
                if _names(path, folder, str(error))
                else f"the file is not named: {str(error)[:200]}"
            )
        except Exception as error:
            said = f"{type(error).__name__}: {str(error)[:200]}"
        return said, _files(folder) != before


def _names(path: Path, folder: Path, message: str) -> bool:
    return (
        path.name in message
        or path.stem in message
        or (path.parent != folder and str(path.parent) in message)
    )


def _files(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@contextlib.contextmanager
def _deadline() -> Iterator[None]:
    def late(*_: object) -> None:
        raise ArithmeticError(
            f"no end within {LONGEST} seconds"
        )  # of no kind that a reader expects

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(LONGEST)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def measure(say: Callable[[str], None], scale: float = 1.0) -> dict[str, int | float]:
    """files.broken: files tried; files.uncaught: those not refused by name; files.overwritten: those changed."""
    tried = uncaught = overwritten = 0
    logging.set_verbosity_error()
    for name, wrong, content in cases():
        said, changed = attempt(name, content)
        tried, uncaught, overwritten = tried + 1, uncaught + bool(said), overwritten + changed
        if said or changed:
            say(f"{name}, {wrong}: {said or 'it was changed'}")
    return {"files.broken": tried, "files.uncaught": uncaught, "files.overwritten": overwritten}
