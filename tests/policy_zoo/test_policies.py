"""Policies on disk: a round trip, and files that must be refused."""

import json
import pickle

import numpy as np
import pytest

from lib.experiment import artifacts
from lib.policy_zoo.networks import Cnn, Mlp, initial
from lib.policy_zoo.policies import Policy, PolicyError, load, save


def policy(network=None):
    network = network or Mlp(13, 3)
    return Policy("SO-d1", "education", network, initial(network, "test", seed=1), {"seed": 1})


@pytest.mark.parametrize("network", [Mlp(13, 3), Mlp(13, 3, values=3), Cnn(6)])
def test_a_saved_policy_comes_back_with_the_same_decisions(network, tmp_path):
    before = policy(network)
    after = load(save(before, tmp_path))
    shape = (50, 13) if isinstance(network, Mlp) else (50, 7, 7, 3)
    observation = np.random.default_rng(0).integers(0, 6, shape).astype(np.uint8)
    assert (before.act(observation) == after.act(observation)).all()
    assert after.network == before.network and after.about == before.about


def test_a_costly_network_is_asked_once_for_each_view_and_says_the_same(monkeypatch):
    mine, views = (
        policy(Cnn(6)),
        np.random.default_rng(1).integers(0, 6, (8, 7, 7, 3)).astype(np.uint8),
    )
    seen, asked, compute = views[[3, 1, 3, 0, 7, 1]], [], Policy._computed
    monkeypatch.setattr(
        Policy, "_computed", lambda self, rows: asked.append(len(rows)) or compute(self, rows)
    )
    first, again = mine.log_probs(seen), mine.log_probs(views)
    assert asked == [4, 4]  # four different views, then the four that were not among them
    np.testing.assert_allclose(first, compute(mine, seen), atol=1e-5)
    np.testing.assert_allclose(again, compute(mine, views), atol=1e-5)


def test_a_pickle_in_the_place_of_a_policy_is_refused_and_never_run(tmp_path):
    ran = tmp_path / "ran"

    class Attack:
        def __reduce__(self):
            return (ran.touch, ())

    description = save(policy(), tmp_path)
    tensors = description.with_suffix(".safetensors")
    tensors.write_bytes(pickle.dumps(Attack()))
    facts = json.loads(description.read_text())
    description.write_text(
        json.dumps(facts | {"sha256": artifacts.sha256_file(tensors)})
    )  # even with a right hash
    with pytest.raises(PolicyError, match="never unpickled"):
        load(description)
    description.write_bytes(pickle.dumps(Attack()))
    with pytest.raises(PolicyError, match="not a policy description"):
        load(description)
    (tmp_path / "policy.pkl").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(PolicyError, match="refused"):
        load(tmp_path / "policy.pkl")
    assert not ran.exists()


def test_a_policy_changed_after_it_was_written_is_refused(tmp_path):
    description = save(policy(), tmp_path)
    other = initial(Mlp(13, 3), "other", seed=2)
    artifacts.write_tensors(description.with_suffix(".safetensors"), other)
    with pytest.raises(PolicyError, match="is not the file"):
        load(description)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda p: p | {"action_net.bias": np.zeros(4, np.float32)}, "must have shape"),
        (lambda p: p | {"action_net.bias": np.full(3, np.nan, np.float32)}, "not finite"),
        (lambda p: p | {"extra": np.zeros(1, np.float32)}, "unexpected parameters"),
        (lambda p: {n: v for n, v in p.items() if n != "value_net.bias"}, "found None"),
    ],
)
def test_parameters_that_do_not_fit_the_network_are_named(change, message, tmp_path):
    good = policy()
    bad = Policy(good.name, good.domain, good.network, change(good.params), good.about)
    with pytest.raises(PolicyError, match=message):
        load(save(bad, tmp_path))


def test_a_missing_policy_says_how_to_get_one(tmp_path):
    with pytest.raises(PolicyError, match="make repro"):
        load(tmp_path / "SO-d1.json")


def test_an_unknown_network_is_named(tmp_path):
    description = save(policy(), tmp_path)
    facts = json.loads(description.read_text())
    facts["network"] = {"type": "Transformer"}
    description.write_text(json.dumps(facts))
    with pytest.raises(PolicyError, match="Transformer"):
        load(description)
