"""Where every random number comes from.

Two sources, both derived from a run's *name*, so that no generator is shared and no order of
calls can change a result:

- `rng` and `torch_generator` give a stateful generator to code that draws in sequence;
- `uniform` is counter-based: the n-th number of a stream is a pure function of (key, n). A batch
  of environments draws all its numbers in one array operation, one environment of the batch draws
  the same numbers as it would alone, and a copy gets fresh ones by being given another key.

Both turn on the root seed, the environment variable BENCH_ROOT_SEED: 0 in every ordinary run, another number draws all
of the bench anew (`make replicate`). `world` alone does not: what shipped models know by heart stays true.

The counter-based stream is the SplitMix64 finaliser (Steele, Lea and Flood 2014, variant 13 of
Stafford) applied twice, in the spirit of Salmon et al. 2011. Not for cryptography.
"""

import hashlib
import os

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_TO_UNIT = 2.0**-53
ROOT_SEED = "BENCH_ROOT_SEED"
VERSION = 1  # of what a named stream draws; raise it when one of these numbers changes


def _root() -> int:
    said = os.environ.get(ROOT_SEED, "0")
    if not said.isdecimal():
        raise ValueError(f"{ROOT_SEED} must be a whole number from 0 on, got {said!r}")
    return int(said)


_ROOT = _root()  # once: a process that changed it half way would be two runs


def _digest(name: tuple[str | int, ...], seed: int, root: int | None = None) -> int:
    if not name:
        raise ValueError("a random stream needs a name, such as rng('education', 'RO', seed=3)")
    root = _ROOT if root is None else root
    text = "/".join(str(part) for part in name) + f"#{int(seed)}" + (f"@{root}" if root else "")
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "little")


def rng(*name: str | int, seed: int = 0) -> np.random.Generator:
    """An independent NumPy generator for the run called `name`, e.g. rng("zoo", "SO-d1", seed=3).

    Raises ValueError without a name.
    """
    return np.random.Generator(np.random.PCG64(_digest(name, seed)))


def world(*name: str | int) -> np.random.Generator:
    """The generator of a world that shipped models were trained on: the same under every root seed."""
    return np.random.Generator(np.random.PCG64(_digest(name, 0, root=0)))


def torch_generator(*name: str | int, seed: int = 0):
    """A CPU `torch.Generator` for the run called `name`."""
    import torch  # imported here: environments and statistics need no torch

    return torch.Generator().manual_seed(_digest(name, seed) % 2**63)


def key(*name: str | int, seed: int = 0) -> np.uint64:
    """The 64-bit key of the counter-based stream of the run called `name`."""
    return np.uint64(_digest(name, seed) % 2**64)


def keys(*name: str | int, seed: int = 0, n: int) -> np.ndarray:
    """Keys of n streams, (n,) uint64; the i-th is `key(*name, seed=seed + i)`."""
    return np.array([key(*name, seed=seed + i) for i in range(n)], dtype=np.uint64)


def _mix(z: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):  # arithmetic modulo 2^64 is the point
        z = (z ^ (z >> np.uint64(30))) * _MIX_1
        z = (z ^ (z >> np.uint64(27))) * _MIX_2
        return z ^ (z >> np.uint64(31))


def next_key(stream: np.ndarray) -> np.ndarray:
    """The keys of the streams that follow: what an environment uses in its next episode."""
    with np.errstate(over="ignore"):
        return _mix(np.asarray(stream, dtype=np.uint64) * _MIX_1 + _GOLDEN)


def uniform(stream: np.ndarray, counter: np.ndarray) -> np.ndarray:
    """The counter-th uniform numbers in [0, 1) of each stream.

    stream: uint64 keys; counter: integers >= 0; the two broadcast. Returns float64.
    """
    counter = np.asarray(counter).astype(np.uint64)
    with np.errstate(over="ignore"):
        z = _mix(np.asarray(stream, dtype=np.uint64) + (counter + np.uint64(1)) * _GOLDEN)
        z = _mix(z ^ np.asarray(stream, dtype=np.uint64))
    return (z >> np.uint64(11)) * _TO_UNIT
