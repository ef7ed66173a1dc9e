"""Random numbers: pure functions of a name, with no order of calls, process or batch in them."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lib.config import ROOT
from lib.experiment import seeds

names = st.lists(
    st.one_of(st.text(min_size=1, max_size=8), st.integers(-5, 5)), min_size=1, max_size=3
)
MANY = 100_000


def drawn(code: str, **environment: str) -> list[str]:
    """What a process prints with these variables; nothing where it fails."""
    told = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        [sys.executable, "-c", code], env=told, capture_output=True, text=True
    ).stdout.split()


def sample(*name, n: int = MANY) -> np.ndarray:
    return seeds.uniform(seeds.key(*name), np.arange(n))


def test_a_generator_does_not_depend_on_what_was_drawn_elsewhere():
    alone = seeds.rng("zoo", "SO-d1", seed=3).random(5)
    seeds.rng("zoo", "SO-d2", seed=3).random(1_000)
    np.random.default_rng(0).random(10)
    assert (seeds.rng("zoo", "SO-d1", seed=3).random(5) == alone).all()


def test_the_order_of_counters_does_not_change_a_number():
    forwards = sample("a", n=100)
    order = np.random.default_rng(0).permutation(100)
    assert (seeds.uniform(seeds.key("a"), order) == forwards[order]).all()


def test_a_batch_draws_what_each_of_its_streams_draws_alone():
    streams, counters = seeds.keys("batch", n=4), np.array([0, 7, 7, 10**6])
    together = seeds.uniform(streams[:, None], counters)
    alone = [[seeds.uniform(stream, counter) for counter in counters] for stream in streams]
    assert (together == np.array(alone)).all()


@given(names, names)
def test_different_names_have_different_streams(one, other):
    if "/".join(map(str, one)) != "/".join(map(str, other)):
        assert seeds.key(*one) != seeds.key(*other)
        assert (seeds.rng(*one).random(4) != seeds.rng(*other).random(4)).any()


@pytest.mark.parametrize("name", ["a", "b", "education"])
def test_a_stream_looks_uniform(name):
    """Five standard errors each: a sound generator fails once in a million runs, and these are fixed."""
    numbers = sample(name)
    assert numbers.mean() == pytest.approx(1 / 2, abs=5 * np.sqrt(1 / 12 / MANY))
    assert numbers.var() == pytest.approx(1 / 12, abs=5 * np.sqrt(1 / 180 / MANY))
    assert stats.kstest(numbers, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("lag", [1, 2, 17, 1_000])
def test_numbers_of_one_stream_are_not_correlated(lag):
    numbers = sample("serial")
    assert abs(np.corrcoef(numbers[:-lag], numbers[lag:])[0, 1]) < 5 / np.sqrt(MANY)


def test_streams_of_neighbouring_seeds_are_not_correlated():
    numbers = seeds.uniform(seeds.keys("env", n=20)[:, None], np.arange(10_000))
    correlations = np.corrcoef(numbers)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(10_000)


def test_the_stream_of_the_next_episode_is_another_one():
    stream = seeds.keys("episodes", n=1_000)
    following = seeds.next_key(stream)
    assert len(set(stream) | set(following) | set(seeds.next_key(following))) == 3_000
    numbers = seeds.uniform(np.stack([stream, following]), 0)
    assert abs(np.corrcoef(numbers)[0, 1]) < 5 / np.sqrt(1_000)


def test_other_processes_draw_the_same_numbers_whatever_their_hash_seed():
    code = (
        "from lib.experiment import seeds; "
        "print(seeds.key('a', 1), seeds.rng('a', 1, seed=2).random(), seeds.torch_generator('a').initial_seed(), "
        "float(seeds.uniform(seeds.key('a'), 5)).hex())"
    )
    here = (
        f"{seeds.key('a', 1)} {seeds.rng('a', 1, seed=2).random()} {seeds.torch_generator('a').initial_seed()} "
        f"{float(seeds.uniform(seeds.key('a'), 5)).hex()}"
    )
    assert drawn(code, PYTHONHASHSEED="1") == drawn(code, PYTHONHASHSEED="random") == here.split()


def test_streams_are_what_the_documentation_says():
    """The same in plain integers: SHA-256 of name and seed, then the finaliser twice."""

    def mix(z: int) -> int:
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        return z ^ z >> 31

    key = int.from_bytes(hashlib.sha256(b"zoo/SO-d1#3").digest()[:8], "little")
    assert seeds.key("zoo", "SO-d1", seed=3) == key
    for counter in (0, 1, 10**9):
        bits = mix(mix((key + (counter + 1) * 0x9E3779B97F4A7C15) % 2**64) ^ key)
        assert seeds.uniform(np.uint64(key), counter) == (bits >> 11) / 2**53


@pytest.mark.parametrize("make", [seeds.rng, seeds.key, seeds.torch_generator])
def test_a_stream_without_a_name_is_refused(make):
    with pytest.raises(ValueError, match="needs a name"):
        make()


@given(names, st.integers(0, 2**31), st.integers(1, 5))
def test_the_i_th_key_is_the_key_of_the_i_th_seed(name, seed, n):
    assert list(seeds.keys(*name, seed=seed, n=n)) == [
        seeds.key(*name, seed=seed + i) for i in range(n)
    ]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**62))
def test_a_uniform_number_lies_in_the_half_open_unit_interval(key, counter):
    assert 0 <= seeds.uniform(np.uint64(key), counter) < 1


def test_another_root_seed_draws_everything_anew_but_the_world_that_models_know():
    code = "from lib.experiment import seeds; print(seeds.rng('a').random(), seeds.key('a'), seeds.world('a').random())"
    first, second = (drawn(code, BENCH_ROOT_SEED=root) for root in "01")
    assert first == [
        str(seeds.rng("a").random()),
        str(seeds.key("a")),
        str(seeds.rng("a").random()),
    ]
    assert first[0] != second[0] and first[1] != second[1] and first[2] == second[2]
    assert drawn(code, BENCH_ROOT_SEED="x") == []
