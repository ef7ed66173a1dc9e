"""A trained policy: its network, its parameters, and how it is kept on disk.

A policy is two files: `<name>.safetensors` with the parameters under stable-baselines3's names, and
`<name>.json` saying which network they belong to. Neither can run code when it is read; anything
else, a pickle above all, is refused.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lib.experiment import artifacts
from lib.policy_zoo.networks import KINDS, Network, describe, restore, sample

VERSION = 1  # of how a policy is kept and what it does
FORMAT = 1
_LARGEST = 2**16  # units of a layer


class PolicyError(ValueError):
    """A policy file that cannot be trusted or does not fit; the message names file and remedy."""


@dataclass(frozen=True)
class Policy:
    """name: as in the paper's tables; params: parameter name -> array; about: JSON facts (seed, ...)."""

    name: str
    domain: str
    network: Network
    params: dict[str, np.ndarray]
    about: dict[str, Any]

    @cached_property
    def _tensors(self) -> dict[str, torch.Tensor]:
        return {name: torch.from_numpy(array).unsqueeze(0) for name, array in self.params.items()}

    @cached_property
    def _known(self) -> dict[bytes, torch.Tensor]:
        return {}

    def log_probs(self, observation: np.ndarray) -> torch.Tensor:
        """Log-probabilities of the actions, (N, A), for observations (N, ...). Where the network is costly, what was
        seen once is remembered: rooms have few views."""
        observation = np.asarray(observation)
        if not self.network.costly:
            return self._computed(observation)
        rows = np.ascontiguousarray(observation).reshape(len(observation), -1)
        packed = rows.view(np.dtype((np.void, rows.itemsize * rows.shape[1]))).ravel()
        views, first, place = np.unique(packed, return_index=True, return_inverse=True)
        names = [view.tobytes() for view in views]
        new = {name: at for name, at in zip(names, first, strict=True) if name not in self._known}
        if new:
            self._known.update(
                zip(new, self._computed(observation[list(new.values())]), strict=True)
            )
        return torch.stack([self._known[name] for name in names])[place]

    @torch.no_grad()
    def _computed(self, observation: np.ndarray) -> torch.Tensor:
        inputs = self.network.prepare(observation[None])
        return self.network.forward(self._tensors, inputs)[0][0].log_softmax(-1)

    def act(self, observation: np.ndarray, draws: np.ndarray | None = None) -> np.ndarray:
        """Actions (N,) for observations (N, ...): sampled with `draws` (N,) in [0, 1), greedy without."""
        log_probs = self.log_probs(observation)
        if draws is None:
            return log_probs.argmax(-1).numpy()
        return sample(log_probs, torch.from_numpy(np.asarray(draws))).numpy()


def save(policy: Policy, folder: str | Path, file: str | None = None) -> Path:
    """Write the policy's two files; returns the JSON's path. The tensors go first."""
    stem = Path(folder) / (file or policy.name)
    tensors = artifacts.write_tensors(stem.with_name(stem.name + ".safetensors"), policy.params)
    facts = {
        "format": FORMAT,
        "name": policy.name,
        "domain": policy.domain,
        "network": describe(policy.network, KINDS),
    }
    facts |= {"about": policy.about, "sha256": artifacts.sha256_file(tensors)}
    return artifacts.write_json(stem.with_name(stem.name + ".json"), facts)


def load(path: str | Path) -> Policy:
    """Read a policy from its JSON file (the tensors lie beside it).

    Raises PolicyError if a file is missing, is not what it should be, has been changed since it was
    written, or holds parameters of another shape or that are not finite.
    """
    path = Path(path)
    facts = _facts(path)
    network = _network(path, facts["network"])
    tensors_path = path.with_suffix(".safetensors")
    if not tensors_path.exists():
        raise PolicyError(f"{tensors_path} is missing; train the zoo again with `make repro`")
    try:
        params = artifacts.read_tensors(tensors_path)
    except (ValueError, OSError) as error:
        raise PolicyError(f"{error}: a policy is never unpickled") from error
    if artifacts.sha256_file(tensors_path) != facts["sha256"]:
        raise PolicyError(
            f"{tensors_path} is not the file that {path.name} describes; train the zoo again"
        )
    _check(tensors_path, network, params)
    return Policy(facts["name"], facts["domain"], network, params, facts["about"])


def hash_policy(path: str | Path) -> str:
    """The hash of what decides the actions of a policy on disk: its network and its parameters.

    path: as of `load`, which checks that the parameters are those that the JSON file describes. Raises PolicyError
    where that file is missing or none of a policy.
    """
    facts = _facts(Path(path))
    return artifacts.sha256_json([facts["network"], facts["sha256"]])


def _facts(path: Path) -> dict[str, Any]:
    if path.suffix != ".json":
        raise PolicyError(
            f"{path}: a policy is loaded from its .json file; pickles and zips are refused"
        )
    if not path.exists():
        raise PolicyError(f"{path} is missing; train the zoo with `make repro`")
    try:
        facts = artifacts.read_json(path)
    except (ValueError, OSError) as error:
        raise PolicyError(f"{path} is not a policy description: {error}") from error
    needed = {"format", "name", "domain", "network", "about", "sha256"}
    if not isinstance(facts, dict) or not needed <= set(facts) or facts["format"] != FORMAT:
        raise PolicyError(
            f"{path} is not a policy description of format {FORMAT} with {sorted(needed)}"
        )
    kinds = {"name": str, "domain": str, "network": dict, "about": dict, "sha256": str}
    wrong = [name for name, kind in kinds.items() if not isinstance(facts[name], kind)]
    if wrong:
        raise PolicyError(f"{path}: {wrong[0]} must be of type {kinds[wrong[0]].__name__}")
    return facts


def _network(path: Path, about: dict[str, Any]) -> Network:
    try:
        network = restore(about, KINDS)
        sizes = [
            size
            for value in vars(network).values()
            for size in (value if isinstance(value, tuple) else (value,))
        ]
        if not all(type(size) is int and 1 <= size <= _LARGEST for size in sizes):
            raise ValueError(f"of other sizes than whole numbers from 1 to {_LARGEST}")
        _ = network.shapes  # not every list of sizes makes one
        return network
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise PolicyError(f"{path}: its network is {error}") from error


def _check(path: Path, network: Network, params: dict[str, np.ndarray]) -> None:
    for name, shape in network.shapes.items():
        found = params[name].shape if name in params else None
        if found != shape:
            raise PolicyError(f"{path}: {name} must have shape {shape}, found {found}")
        if params[name].dtype != np.float32:
            raise PolicyError(f"{path}: {name} must be float32, found {params[name].dtype}")
        if not np.isfinite(params[name]).all():
            raise PolicyError(f"{path}: {name} holds values that are not finite")
    if len(params) > len(network.shapes):
        raise PolicyError(
            f"{path}: unexpected parameters {sorted(set(params) - set(network.shapes))}"
        )
