"""A trained policy: its network and parameters, in memory and on disk.

A policy is two files: `<name>.safetensors` with the parameters under stable-baselines3's names, and `<name>.json` with
the network that they belong to. Neither can run code when it is read; anything else, above all a pickle, is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lib.experiment import artifacts
from lib.policy_zoo.networks import (
    NETWORK_TYPES,
    Network,
    describe_component,
    restore_component,
    sample_actions,
)

VERSION = 1  # of how a policy is stored and what it does
FORMAT = 1
MAX_SIZE = 2**16  # of a layer that a file may ask for

# Entries of the JSON file and the types of their values; `format` is checked against FORMAT.
ENTRY_TYPES = {"name": str, "domain": str, "network": dict, "about": dict, "sha256": str}


class PolicyError(ValueError):
    """A policy file that cannot be trusted or does not fit; the message names file and remedy."""


@dataclass(frozen=True)
class Policy:
    """A trained policy.

    Attributes:
        name: Name of the policy in the paper's tables.
        domain: education or minigrid.
        network: Architecture of the policy's network.
        params: float32 arrays by parameter, under stable-baselines3's names.
        about: Facts as JSON, such as the seed and the settings of the training.
    """

    name: str
    domain: str
    network: Network
    params: dict[str, np.ndarray]
    about: dict[str, Any]

    @cached_property
    def _tensors(self) -> dict[str, torch.Tensor]:
        """Parameters with the axis of one policy in front."""
        return {name: torch.from_numpy(array).unsqueeze(0) for name, array in self.params.items()}

    @cached_property
    def _logits_by_view(self) -> dict[bytes, torch.Tensor]:
        return {}

    def act(self, observation: np.ndarray, draws: np.ndarray | None = None) -> np.ndarray:
        """Choose an action for each observation, sampled or most probable.

        Args:
            observation: (N, ...).
            draws: (N,) uniform numbers in [0, 1), to sample actions with; None takes the most probable ones.

        Returns:
            (N,) actions.
        """
        logprobs = self.compute_logits(observation).log_softmax(-1)
        if draws is None:
            return logprobs.argmax(-1).numpy()
        return sample_actions(logprobs, torch.from_numpy(np.asarray(draws))).numpy()

    def compute_logits(self, observation: np.ndarray) -> torch.Tensor:
        """Compute the logits of the actions, from which log-probabilities follow by a softmax.

        Where the network is expensive, each distinct view is computed once and kept: rooms have few views.

        Args:
            observation: (N, ...).

        Returns:
            (N, A) logits.
        """
        observation = np.asarray(observation)
        if not self.network.has_expensive_forward:
            return self._run_network(observation)

        # The distinct views among the observations, as bytes.
        rows = np.ascontiguousarray(observation).reshape(len(observation), -1)
        bytes_of_row = np.dtype((np.void, rows.itemsize * rows.shape[1]))
        distinct_rows, first_row, view_number = np.unique(
            rows.view(bytes_of_row).ravel(), return_index=True, return_inverse=True
        )
        views = [row.tobytes() for row in distinct_rows]

        # Views that are new to the policy.
        row_by_new_view = {}
        for view, row in zip(views, first_row, strict=True):
            if view not in self._logits_by_view:
                row_by_new_view[view] = row
        if row_by_new_view:
            new_logits = self._run_network(observation[list(row_by_new_view.values())])
            self._logits_by_view.update(zip(row_by_new_view, new_logits, strict=True))

        logits_of_views = torch.stack([self._logits_by_view[view] for view in views])
        return logits_of_views[view_number]

    def _run_network(self, observation: np.ndarray) -> torch.Tensor:
        """Logits (N, A), computed anew."""
        inputs = self.network.prepare_inputs(observation[None])
        return self.network.compute_logits(self._tensors, inputs)[0]


class PolicyGroup:
    """Policies that act in one batch, each in rows of its own.

    Where they share an architecture that is cheap to run, one batched product computes them all: networks as small as
    these wait for the overhead of a call.
    """

    def __init__(self, policies: Sequence[Policy]) -> None:
        """Stack the parameters of the policies' actors, where they have the same shapes.

        Args:
            policies: In the order by which rows name them.
        """
        self.policies = policies
        self.network = policies[0].network
        self._stacked: dict[str, torch.Tensor] = {}
        actors = [_select_actor(policy.params) for policy in policies]
        shapes = [{name: array.shape for name, array in actor.items()} for actor in actors]
        if not self.network.has_expensive_forward and all(shape == shapes[0] for shape in shapes):
            for name in actors[0]:
                arrays = [actor[name] for actor in actors]
                self._stacked[name] = torch.from_numpy(np.stack(arrays))

    def compute_logits(self, policy_of_row: np.ndarray, observation: np.ndarray) -> torch.Tensor:
        """Compute the logits of each row's policy.

        Args:
            policy_of_row: (N,) index of the policy that acts in each row.
            observation: (N, ...).

        Returns:
            (N, A) logits.
        """
        num_rows = np.bincount(policy_of_row, minlength=len(self.policies))  # of each policy
        logits = np.empty((len(policy_of_row), self.network.actions), dtype=np.float32)
        acting = np.flatnonzero(num_rows)
        if not self._stacked or len(acting) < len(self.policies):
            for index in acting:
                rows = np.flatnonzero(policy_of_row == index)
                logits[rows] = self.policies[index].compute_logits(observation[rows]).numpy()
            return torch.from_numpy(logits)

        # Rows in the order of their policies, each policy's from slot 0 on; slots without a row stay 0.
        rows = np.argsort(policy_of_row, kind="stable")
        policy = policy_of_row[rows]
        first_row = num_rows.cumsum() - num_rows  # (K,)
        slot = np.arange(len(rows)) - first_row[policy]
        inputs = np.zeros((len(num_rows), num_rows.max(), *observation.shape[1:]), np.float32)
        inputs[policy, slot] = observation[rows]
        stacked_logits = self.network.compute_logits(self._stacked, torch.from_numpy(inputs))
        logits[rows] = stacked_logits.numpy()[policy, slot]
        return torch.from_numpy(logits)


def _select_actor(params: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The parameters that decide actions: all but the critic's."""
    return {name: array for name, array in params.items() if "value_net" not in name}


# Files --------------------------------------------------------------------------------------------


def save(policy: Policy, folder: str | Path, file: str | None = None) -> Path:
    """Write a policy to two files, its parameters (safetensors) and its description (JSON).

    The parameters go first, so that the JSON file never stands alone.

    Args:
        policy: The policy.
        folder: Folder for the files.
        file: Name of the files without suffix; None for the policy's name.

    Returns:
        Path of the description.
    """
    stem = Path(folder) / (file or policy.name)
    tensors_path = stem.with_name(stem.name + ".safetensors")
    artifacts.write_tensors(tensors_path, policy.params)
    description = {
        "format": FORMAT,
        "name": policy.name,
        "domain": policy.domain,
        "network": describe_component(policy.network, NETWORK_TYPES),
        "about": policy.about,
        "sha256": artifacts.sha256_file(tensors_path),
    }
    return artifacts.write_json(stem.with_name(stem.name + ".json"), description)


def load(path: str | Path) -> Policy:
    """Read a policy from its two files, and check that they belong together.

    Args:
        path: Path of its JSON file; the parameters lie beside it.

    Returns:
        The policy.

    Raises:
        PolicyError: A file is missing, is not what it should be, was changed since it was written, or has parameters
            of another shape or that are not finite.
    """
    path = Path(path)
    description = _read_description(path)
    network = _restore_network(path, description["network"])

    tensors_path = path.with_suffix(".safetensors")
    if not tensors_path.exists():
        raise PolicyError(f"{tensors_path} is missing; train the zoo again with `make repro`")
    try:
        params = artifacts.read_tensors(tensors_path)
    except (ValueError, OSError) as error:
        raise PolicyError(f"{error}: a policy is never unpickled") from error
    if artifacts.sha256_file(tensors_path) != description["sha256"]:
        raise PolicyError(
            f"{tensors_path} is not the file that {path.name} describes; train the zoo again"
        )
    _check_parameters(tensors_path, network, params)
    return Policy(description["name"], description["domain"], network, params, description["about"])


def hash_policy(path: str | Path) -> str:
    """A hash of what decides the actions of a policy on disk: its network and its parameters.

    Args:
        path: Path of its JSON file, which holds the hash of the file of the parameters.

    Raises:
        PolicyError: The file is missing or none of a policy.
    """
    description = _read_description(Path(path))
    return artifacts.sha256_json([description["network"], description["sha256"]])


def _read_description(path: Path) -> dict[str, Any]:
    """Read a policy's JSON file, and check its entries and their types.

    Args:
        path: Path of the JSON file.

    Returns:
        The content.

    Raises:
        PolicyError: The file is missing, is no JSON, or lacks an entry.
    """
    if path.suffix != ".json":
        raise PolicyError(
            f"{path}: a policy is loaded from its .json file; pickles and zips are refused"
        )
    if not path.exists():
        raise PolicyError(f"{path} is missing; train the zoo with `make repro`")
    try:
        description = artifacts.read_json(path)
    except (ValueError, OSError) as error:
        raise PolicyError(f"{path} is not a policy description: {error}") from error

    required = {"format", *ENTRY_TYPES}
    has_entries = isinstance(description, dict) and required <= set(description)
    if not has_entries or description["format"] != FORMAT:
        raise PolicyError(
            f"{path} is not a policy description of format {FORMAT} with {sorted(required)}"
        )
    for name, entry_type in ENTRY_TYPES.items():
        if not isinstance(description[name], entry_type):
            raise PolicyError(f"{path}: {name} must be of type {entry_type.__name__}")
    return description


def _restore_network(path: Path, description: dict[str, Any]) -> Network:
    """Restore the network that a policy's JSON file describes; sizes are checked before memory is allocated.

    Args:
        path: Path of the file, for error messages.
        description: The network as JSON.

    Returns:
        The network, without parameters.

    Raises:
        PolicyError: The description is none of a network, or asks for too large layers.
    """
    try:
        network = restore_component(description, NETWORK_TYPES)
        sizes: list[Any] = []
        for value in vars(network).values():
            sizes.extend(value if isinstance(value, tuple) else [value])
        if not all(type(size) is int and 1 <= size <= MAX_SIZE for size in sizes):
            raise ValueError(f"of other sizes than whole numbers from 1 to {MAX_SIZE}")
        _ = network.parameter_shapes  # fails where sizes do not make a network
    except (ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise PolicyError(f"{path}: its network is {error}") from error
    return network


def _check_parameters(path: Path, network: Network, params: dict[str, np.ndarray]) -> None:
    """Check that parameters have the names and shapes of a network, are float32 and finite.

    Args:
        path: Path of their file, for error messages.
        network: Gives names and shapes.
        params: Arrays by name.

    Raises:
        PolicyError: They do not fit.
    """
    shapes = network.parameter_shapes
    for name, shape in shapes.items():
        actual_shape = params[name].shape if name in params else None
        if actual_shape != shape:
            raise PolicyError(f"{path}: {name} must have shape {shape}, found {actual_shape}")
        if params[name].dtype != np.float32:
            raise PolicyError(f"{path}: {name} must be float32, found {params[name].dtype}")
        if not np.isfinite(params[name]).all():
            raise PolicyError(f"{path}: {name} holds values that are not finite")
    if len(params) > len(shapes):
        raise PolicyError(f"{path}: unexpected parameters {sorted(set(params) - set(shapes))}")
