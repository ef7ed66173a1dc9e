"""Checkpoints of a training as safetensors: what is trained, the optimiser's state and the step.

Every tensor keeps its dtype, and a file appears only when it is whole. Frozen weights are not saved: they are read
again from the folder that the training started from, and a fingerprint says whether they are the same. A training
whose weights are divided among processes writes one file for each process, each first under a name of its own
(`make_next_path`): all of them become the checkpoint only when all are written. Nothing here knows the trainer.
"""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from lib.rl.sharding import get_local_tensor

OPTIMISER_STATE = ("step", "exp_avg", "exp_avg_sq")  # of AdamW, for every parameter
_METADATA_KEY = "training"  # one key only: safetensors writes several in any order
_RANK_SUFFIX = re.compile(r"-rank-(\d+)-of-(\d+)$")


@dataclass(frozen=True)
class CheckpointHeader:
    """What a checkpoint says about itself.

    Attributes:
        step: Updates that were done.
        num_tensors: In the file.
        fingerprint: Fingerprint of the frozen weights that are not in the file; empty where everything is.
        rank: Rank of the process that wrote it.
        num_ranks: Processes among which the weights are divided.
    """

    step: int
    num_tensors: int
    fingerprint: str = ""
    rank: int = 0
    num_ranks: int = 1


def make_rank_path(path: str | Path, rank: int, num_ranks: int) -> Path:
    """The file of one process: `checkpoint.safetensors` becomes `checkpoint-rank-0-of-2.safetensors`."""
    path = Path(path)
    return path.with_name(f"{path.stem}-rank-{rank}-of-{num_ranks}{path.suffix}")


def make_next_path(path: str | Path) -> Path:
    """Where a process's file lies until those of all processes are written."""
    path = Path(path)
    return path.with_name(f"{path.name}.next")


def read_step(path: str | Path) -> int | None:
    """The updates that a file was written after; None where there is no file, or none that can be read."""
    try:
        with safe_open(path, framework="pt") as file:
            return json.loads(file.metadata()[_METADATA_KEY])["step"]
    except (SafetensorError, OSError, KeyError, TypeError, ValueError):
        return None


def list_rank_paths(path: str | Path) -> list[Path]:
    """All files that processes have written for a checkpoint, whatever their number."""
    path = Path(path)
    candidates = sorted(path.parent.glob(f"{path.stem}-rank-*{path.suffix}"))
    return [candidate for candidate in candidates if _RANK_SUFFIX.search(candidate.stem)]


def check_number_of_ranks(path: str | Path, num_ranks: int) -> None:
    """Checks that a checkpoint was written by as many processes as now train.

    Args:
        path: Path of the checkpoint, without the suffix of a process.
        num_ranks: Number of processes.

    Raises:
        ValueError: It was written by another number.
    """
    for rank_path in list_rank_paths(path):
        written_by = int(_RANK_SUFFIX.search(rank_path.stem)[2])
        if written_by != num_ranks:
            raise ValueError(
                f"{rank_path} was written by {written_by} processes and this training has "
                f"{num_ranks}; start it with {written_by} processes, or delete the file"
            )


def collect_optimiser_state(
    optimiser: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]
) -> dict[str, torch.Tensor]:
    """Collects the tensors of an optimizer's state, by the names of the parameters.

    Args:
        optimiser: The optimizer.
        parameters: Trained parameters by name.

    Returns:
        Tensors under "optimiser.KEY.NAME"; none before the first step.
    """
    tensors = {}
    for name, parameter in parameters.items():
        for key, value in optimiser.state.get(parameter, {}).items():
            tensors[f"optimiser.{key}.{name}"] = value
    return tensors


def write_checkpoint(
    path: str | Path, tensors: Mapping[str, torch.Tensor], header: CheckpointHeader
) -> None:
    """Write tensors, each in its own dtype, in one atomic move.

    Args:
        path: The file.
        tensors: By name; of sharded tensors, the share of this process is written.
        header: Its `num_tensors` is counted here.
    """
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    local_tensors = {
        name: get_local_tensor(tensors[name]).detach().contiguous() for name in sorted(tensors)
    }
    fields = asdict(header) | {"num_tensors": len(local_tensors)}
    metadata = {_METADATA_KEY: json.dumps(fields, sort_keys=True)}

    # In the same folder, so on the same file system: only there a move is atomic.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    try:
        # Straight into the file: a checkpoint may be as large as the memory that is left.
        save_file(local_tensors, temporary, metadata=metadata)
        os.chmod(temporary, 0o644)  # mkstemp makes private files
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def read_checkpoint(
    path: str | Path,
    weights: Mapping[str, torch.Tensor],
    optimised: Mapping[str, nn.Parameter],
    expected: CheckpointHeader,
) -> tuple[CheckpointHeader, dict[str, torch.Tensor]]:
    """Read a checkpoint and check all of it against the training that is to go on.

    Args:
        path: The file.
        weights: What the training saves, by name; shapes and dtypes are compared.
        optimised: Parameters by name, each of which may have an optimiser's state in the file.
        expected: Fingerprint, rank and number of ranks that the file must have.

    Returns:
        The header, and the tensors by name.

    Raises:
        ValueError: The file is broken, cut off or of another training. The message names it and what to do.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = CheckpointHeader(**json.loads((file.metadata() or {})[_METADATA_KEY]))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        _check_header(header, expected, len(tensors))
        _check_tensors(tensors, weights, optimised)
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, KeyError):
            reason = f"it lacks {error}"
        else:
            reason = str(error).strip()
        raise ValueError(
            f"{path} is no checkpoint of this training ({reason}); delete it and run again"
        ) from error
    return header, tensors


def _check_header(header: CheckpointHeader, expected: CheckpointHeader, num_tensors: int) -> None:
    """Checks that a checkpoint is complete and belongs to this training.

    Args:
        header: Header of the checkpoint.
        expected: Header of this training.
        num_tensors: Tensors in the file.

    Raises:
        ValueError: A tensor is missing, it started from other weights, or it is of another process.
    """
    if header.num_tensors != num_tensors:
        raise ValueError(f"{num_tensors} tensors instead of {header.num_tensors}")
    if header.fingerprint != expected.fingerprint:
        raise ValueError("it was trained from other weights")
    if (header.rank, header.num_ranks) != (expected.rank, expected.num_ranks):
        raise ValueError(
            f"it is of process {header.rank} of {header.num_ranks}, "
            f"not {expected.rank} of {expected.num_ranks}"
        )


def _check_tensors(
    tensors: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    optimised: Mapping[str, nn.Parameter],
) -> None:
    """Checks that a checkpoint has the right tensors, with the right shapes and dtypes.

    Args:
        tensors: Tensors of the checkpoint, by name.
        weights: Weights of this training, by name.
        optimised: Parameters with an optimizer state, by name.

    Raises:
        ValueError: A tensor is unknown, or has another shape or dtype.
        KeyError: One is missing.
    """
    known = dict(weights)
    for name, parameter in optimised.items():
        state_names = {key: f"optimiser.{key}.{name}" for key in OPTIMISER_STATE}
        present = [key for key in OPTIMISER_STATE if state_names[key] in tensors]
        if not present:
            continue  # nothing was learned yet, or the parameter never had a gradient
        known[state_names["step"]] = torch.zeros(())
        known[state_names["exp_avg"]] = parameter
        known[state_names["exp_avg_sq"]] = parameter

    unknown = sorted(set(tensors) - set(known))
    if unknown:
        raise ValueError(f"it holds {unknown[0]}, which this training does not have")
    for name, expected_tensor in known.items():
        tensor = tensors[name]
        local = get_local_tensor(expected_tensor)
        if tensor.shape != local.shape or tensor.dtype != local.dtype:
            raise ValueError(
                f"{name} is {tensor.dtype} {tuple(tensor.shape)} instead of "
                f"{local.dtype} {tuple(local.shape)}"
            )


@torch.no_grad()
def load_tensors(
    tensors: Mapping[str, torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    optimiser: torch.optim.Optimizer,
    optimised: Mapping[str, nn.Parameter],
) -> None:
    """Copies the tensors of a checkpoint into weights and optimizer.

    Args:
        tensors: Tensors of a checkpoint that `read_checkpoint` has checked.
        weights: Get the values, by name.
        optimiser: Gets its state.
        optimised: Parameters with an optimizer state, by name.
    """
    for name, weight in weights.items():
        get_local_tensor(weight).copy_(tensors[name])
    # Of parameters without a gradient so far, AdamW has no state, and may not get one of zeros.
    optimiser.state.clear()
    for name, parameter in optimised.items():
        if f"optimiser.step.{name}" not in tensors:
            continue
        # AdamW keeps its step on the CPU, and the rest beside the parameter.
        state = {"step": tensors[f"optimiser.step.{name}"].clone()}
        for key in ("exp_avg", "exp_avg_sq"):
            state[key] = torch.zeros_like(parameter)
            get_local_tensor(state[key]).copy_(tensors[f"optimiser.{key}.{name}"])
        optimiser.state[parameter] = state
