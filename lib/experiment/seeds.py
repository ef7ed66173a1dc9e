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
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)
_TO_UNIT = 2.0**-53
ROOT_SEED = "BENCH_ROOT_SEED"
VERSION = 1  # of what a named stream draws; raise it when one of these numbers changes


def _read_root_seed() -> int:
    root_seed = os.environ.get(ROOT_SEED, "0")
    if not root_seed.isdecimal():
        raise ValueError(f"{ROOT_SEED} must be a whole number from 0 on, got {root_seed!r}")
    return int(root_seed)


_ROOT = _read_root_seed()  # once: a process that changed it half way would be two runs


def _hash_name(name: tuple[str | int, ...], seed: int, root: int | None = None) -> int:
    """Hashes the name of a random stream to 128 bits: SHA-256 of "name/name#seed@root".

    Args:
        name: Components of the stream's name.
        seed: Which of the streams of this name.
        root: Root seed of all streams, by default that of the process; 0 leaves "@root" out.

    Raises:
        ValueError: The name is empty.
    """
    if not name:
        raise ValueError("a random stream needs a name, such as rng('education', 'RO', seed=3)")
    root = _ROOT if root is None else root
    path = "/".join(str(component) for component in name)
    suffix = f"@{root}" if root else ""
    text = f"{path}#{int(seed)}{suffix}"
    digest = hashlib.sha256(text.encode()).digest()
    return int.from_bytes(digest[:16], "little")


def rng(*name: str | int, seed: int = 0) -> np.random.Generator:
    """Makes an independent NumPy generator, such as rng("zoo", "SO-d1", seed=3).

    Args:
        name: Names the run; equal names and seeds give equal numbers.
        seed: Number of the repetition.

    Raises:
        ValueError: There is no name.
    """
    return np.random.Generator(np.random.PCG64(_hash_name(name, seed)))


def world(*name: str | int) -> np.random.Generator:
    """Makes the generator of facts that released models were trained on: the same under every root seed."""
    return np.random.Generator(np.random.PCG64(_hash_name(name, 0, root=0)))


def torch_generator(*name: str | int, seed: int = 0):
    """A CPU `torch.Generator` for the run called `name`."""
    import torch  # imported here: environments and statistics need no torch

    return torch.Generator().manual_seed(_hash_name(name, seed) % 2**63)


def key(*name: str | int, seed: int = 0) -> np.uint64:
    """The 64-bit key of the counter-based stream of the run called `name`."""
    return np.uint64(_hash_name(name, seed) % 2**64)


def keys(*name: str | int, seed: int = 0, n: int) -> np.ndarray:
    """Keys of n streams, (n,) uint64; the i-th is `key(*name, seed=seed + i)`."""
    return np.array([key(*name, seed=seed + i) for i in range(n)], dtype=np.uint64)


def _mix_bits(z: np.ndarray) -> np.ndarray:
    """The SplitMix64 finaliser: every bit of the result depends on every bit of z, uint64.

    Callers ignore overflow: arithmetic modulo 2^64 is the point.
    """
    z = (z ^ (z >> _SHIFT_1)) * _MIX_1
    z = (z ^ (z >> _SHIFT_2)) * _MIX_2
    return z ^ (z >> _SHIFT_3)


def next_key(stream: np.ndarray) -> np.ndarray:
    """The keys of the streams that follow: what an environment uses in its next episode."""
    with np.errstate(over="ignore"):  # modulo 2^64
        return _mix_bits(np.asarray(stream, dtype=np.uint64) * _MIX_1 + _GOLDEN)


def uniform(stream: np.ndarray, counter: np.ndarray) -> np.ndarray:
    """Draws the counter-th uniform numbers in [0, 1) of each stream.

    Args:
        stream: uint64 keys.
        counter: Integers >= 0; broadcasts with `stream`.

    Returns:
        float64, of the broadcast shape.
    """
    stream = np.asarray(stream, dtype=np.uint64)
    counter = np.asarray(counter).astype(np.uint64)
    with np.errstate(over="ignore"):  # modulo 2^64
        # The first round is SplitMix64 started at the key; the second one, with the key once more, keeps apart
        # streams whose keys differ by a multiple of the step.
        z = _mix_bits(stream + (counter + np.uint64(1)) * _GOLDEN)
        z = _mix_bits(z ^ stream)
    # The upper 53 bits, as many as a float64 holds.
    return (z >> np.uint64(11)) * _TO_UNIT
