"""Policies on disk: a round trip, and files that must be refused."""

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest

from lib.experiment import artifacts
from lib.policy_zoo.networks import Cnn, Mlp, draw_initial_parameters
from lib.policy_zoo.policies import Policy, PolicyError, PolicyGroup, load, save


def make_policy(network=None):
    network = network or Mlp(13, 3)
    params = draw_initial_parameters(network, "test", seed=1)
    return Policy("SO-d1", "education", network, params, {"seed": 1})


@pytest.mark.parametrize("network", [Mlp(13, 3), Mlp(13, 3, values=3), Cnn(6)])
def test_a_saved_policy_comes_back_with_the_same_decisions(network, tmp_path):
    before = make_policy(network)
    after = load(save(before, tmp_path))
    shape = (50, 13) if isinstance(network, Mlp) else (50, 7, 7, 3)
    observation = np.random.default_rng(0).integers(0, 6, shape).astype(np.uint8)
    assert (before.act(observation) == after.act(observation)).all()
    assert after.network == before.network and after.about == before.about


def test_an_expensive_network_computes_each_view_once_and_gives_the_same_numbers(monkeypatch):
    policy = make_policy(Cnn(6))
    views = np.random.default_rng(1).integers(0, 6, (8, 7, 7, 3)).astype(np.uint8)
    first_views = views[[3, 1, 3, 0, 7, 1]]
    run_network = Policy._run_network
    num_computed = []

    def count_and_run(self, observation):
        num_computed.append(len(observation))
        return run_network(self, observation)

    monkeypatch.setattr(Policy, "_run_network", count_and_run)
    logits_of_first_views = policy.compute_logits(first_views)
    logits_of_all_views = policy.compute_logits(views)
    assert num_computed == [4, 4]  # four different views, then the four that were not among them
    np.testing.assert_allclose(logits_of_first_views, run_network(policy, first_views), atol=1e-5)
    np.testing.assert_allclose(logits_of_all_views, run_network(policy, views), atol=1e-5)


@pytest.mark.parametrize(
    "networks", [[Mlp(13, 3)] * 3, [Mlp(13, 3), Mlp(13, 3, hidden=(32,))], [Cnn(6)] * 3]
)
@pytest.mark.parametrize("acting", [[0, 1, 2], [0, 2], [1]])
def test_each_row_of_a_group_gets_the_logits_of_its_own_policy(networks, acting):
    policies = []
    for seed, network in enumerate(networks):
        params = draw_initial_parameters(network, "group", seed=seed)
        policies.append(Policy(f"policy {seed}", "education", network, params, {}))
    rng = np.random.default_rng(2)
    available = [index for index in acting if index < len(policies)] or [0]
    policy_of_row = rng.choice(available, size=17)
    shape = (17, 13) if isinstance(networks[0], Mlp) else (17, 7, 7, 3)
    observation = rng.integers(0, 6, shape).astype(np.uint8)

    group = PolicyGroup(policies)
    assert bool(group._stacked) == (networks == [Mlp(13, 3)] * 3)  # equal and cheap to run
    assert set(policy_of_row) == set(available)
    logits = group.compute_logits(policy_of_row, observation)
    for row, index in enumerate(policy_of_row):
        alone = policies[index].compute_logits(observation[[row]])[0]
        np.testing.assert_allclose(logits[row], alone, atol=1e-5)


def test_a_pickle_in_the_place_of_a_policy_is_refused_and_never_run(tmp_path):
    ran = tmp_path / "ran"

    class Attack:
        def __reduce__(self):
            return (ran.touch, ())

    description = save(make_policy(), tmp_path)
    tensors = description.with_suffix(".safetensors")
    tensors.write_bytes(pickle.dumps(Attack()))
    content = json.loads(description.read_text())
    content["sha256"] = artifacts.sha256_file(tensors)  # refused even with the right hash
    description.write_text(json.dumps(content))
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
    description = save(make_policy(), tmp_path)
    other_parameters = draw_initial_parameters(Mlp(13, 3), "other", seed=2)
    artifacts.write_tensors(description.with_suffix(".safetensors"), other_parameters)
    with pytest.raises(PolicyError, match="is not the file"):
        load(description)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"action_net.bias": np.zeros(4, np.float32)}, "must have shape"),
        ({"action_net.bias": np.full(3, np.nan, np.float32)}, "not finite"),
        ({"action_net.bias": np.zeros(3)}, "must be float32"),
        ({"extra": np.zeros(1, np.float32)}, "unexpected parameters"),
    ],
)
def test_parameters_that_do_not_fit_the_network_are_reported_by_name(change, message, tmp_path):
    policy = make_policy()
    unfit = replace(policy, params=policy.params | change)
    with pytest.raises(PolicyError, match=message):
        load(save(unfit, tmp_path))


def test_a_parameter_that_is_missing_is_reported_by_name(tmp_path):
    policy = make_policy()
    del policy.params["value_net.bias"]
    with pytest.raises(PolicyError, match="value_net.bias must have shape .* found None"):
        load(save(policy, tmp_path))


def test_a_missing_policy_says_how_to_train_it(tmp_path):
    with pytest.raises(PolicyError, match="make repro"):
        load(tmp_path / "SO-d1.json")


def test_an_unknown_network_is_reported_by_its_type(tmp_path):
    description = save(make_policy(), tmp_path)
    content = json.loads(description.read_text())
    content["network"] = {"type": "Transformer"}
    description.write_text(json.dumps(content))
    with pytest.raises(PolicyError, match="Transformer"):
        load(description)
