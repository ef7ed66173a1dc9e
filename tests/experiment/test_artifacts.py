"""Files: whole or not at all, equal contents in equal bytes, broken ones named, never a pickle."""

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.config import ROOT
from lib.experiment import artifacts

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)

WRITER = """
import sys
from lib.experiment import artifacts as store
print("ready", flush=True)
for n in range(10**6):
    store.write_bytes(sys.argv[1], bytes([65 + n % 26]) * 3_000_000)
"""


def test_a_killed_writer_leaves_a_whole_file(tmp_path):
    target = tmp_path / "file.bin"
    for delay in (0.01, 0.04, 0.09):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(target)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
        )
        writer.stdout.readline()
        while not target.exists():
            time.sleep(0.005)
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        content = target.read_bytes()
        assert len(content) == 3_000_000 and len(set(content)) == 1


def test_a_failed_write_keeps_the_old_file_and_leaves_no_rubbish(tmp_path, monkeypatch):
    path = artifacts.write_text(tmp_path / "a/b.txt", "old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space"):
        artifacts.write_text(path, "new")
    assert path.read_text() == "old" and os.listdir(path.parent) == ["b.txt"]


def test_files_can_be_read_by_others(tmp_path):
    assert artifacts.write_text(tmp_path / "a.txt", "x").stat().st_mode & 0o777 == 0o644


@given(plain)
def test_json_comes_back_as_it_was(value):
    assert json.loads(artifacts.to_json(value)) == value


@given(st.dictionaries(st.text(), st.integers(), min_size=2))
def test_equal_contents_are_equal_bytes(content):
    backwards = dict(reversed(content.items()))
    assert artifacts.to_json(content) == artifacts.to_json(backwards)
    assert artifacts.sha256_json(content) == artifacts.sha256_json(backwards)


def test_numpy_and_paths_become_plain_json():
    value = {
        "n": np.int64(3),
        "x": np.float32(0.5),
        "a": np.eye(2),
        "p": Path("a") / "b",
        "b": np.bool_(True),
    }
    assert json.loads(artifacts.to_json(value)) == {
        "n": 3,
        "x": 0.5,
        "a": [[1.0, 0.0], [0.0, 1.0]],
        "p": "a/b",
        "b": True,
    }


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), np.float64("nan"), np.array([np.inf]), [1, {"a": -np.inf}]],
)
def test_numbers_that_json_does_not_have_are_refused(value):
    with pytest.raises(ValueError):
        artifacts.to_json(value)


def test_what_json_cannot_hold_is_named():
    with pytest.raises(TypeError, match="set does not go into JSON"):
        artifacts.to_json({"a": {1, 2}})


def test_a_table_and_tensors_come_back_as_they_were(tmp_path):
    frame = pd.DataFrame({"policy": ["a", "b"], "x": [1.5, 2.5], "n": [1, 2]})
    pd.testing.assert_frame_equal(
        artifacts.read_parquet(artifacts.write_parquet(tmp_path / "t.parquet", frame)), frame
    )
    tensors = {"w": np.arange(6, dtype=np.float32).reshape(2, 3).T, "b": np.zeros(0)}
    back = artifacts.read_tensors(artifacts.write_tensors(tmp_path / "t.safetensors", tensors))
    assert (
        set(back) == {"w", "b"}
        and (back["w"] == tensors["w"]).all()
        and back["w"].dtype == np.float32
    )


def test_equal_tensors_are_equal_bytes_in_whatever_order_they_are_given(tmp_path):
    a, b = np.ones(3), np.zeros((2, 2))
    one = artifacts.write_tensors(tmp_path / "1", {"a": a, "b": b}).read_bytes()
    assert artifacts.write_tensors(tmp_path / "2", {"b": b, "a": a}).read_bytes() == one


READERS = {
    "json": artifacts.read_json,
    "parquet": artifacts.read_parquet,
    "safetensors": artifacts.read_tensors,
}


def broken_files(tmp_path):
    frame, tensors = pd.DataFrame({"x": range(100)}), {"w": np.ones(100)}
    whole = {
        "json": artifacts.write_json(tmp_path / "w.json", {"a": [1, 2]}).read_bytes(),
        "parquet": artifacts.write_parquet(tmp_path / "w.parquet", frame).read_bytes(),
        "safetensors": artifacts.write_tensors(tmp_path / "w.safetensors", tensors).read_bytes(),
    }
    rubbish = {"empty": b"", "noise": bytes(range(256)), "a pickle": pickle.dumps({"w": [1.0]})}
    for kind, content in whole.items():
        for label, wrong in {**rubbish, "truncated": content[: len(content) // 2]}.items():
            yield kind, label, wrong


def test_a_broken_file_is_named_whatever_is_wrong_with_it(tmp_path):
    for kind, label, content in broken_files(tmp_path):
        path = tmp_path / f"{label}.{kind}"
        path.write_bytes(content)
        with pytest.raises(ValueError) as caught:
            READERS[kind](path)
        assert path.name in str(caught.value), f"{kind}, {label}: {caught.value}"


class Burglar:
    """Leaves a file behind when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("kind", READERS)
def test_a_malicious_pickle_is_refused_and_nothing_in_it_runs(tmp_path, kind):
    trace, path = tmp_path / "trace", tmp_path / f"policy.{kind}"
    path.write_bytes(pickle.dumps(Burglar(trace)))
    with pytest.raises(ValueError, match="policy"):
        READERS[kind](path)
    assert not trace.exists()
    pickle.loads(path.read_bytes())
    assert trace.exists()  # it would have
