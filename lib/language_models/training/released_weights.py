"""Lab models that come with the project: weights in half precision, each with a card of how it was made.

`data/lab/NAME.safetensors` holds the weights; `NAME.json` the recipe (settings, seed, VERSIONs of the code, the hash of
the base's recipe) that they were trained by, the hash of the weights, and the curve of that training. A model whose
recipe is still the same is unpacked instead of trained, see `lib.language_models.training.build.make_recipe`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import LlamaForCausalLM

from lib.config import ROOT, LabModelSettings
from lib.experiment import artifacts
from lib.language_models import checkpoints
from lib.language_models.checkpoints import ModelError

LAB = ROOT / "data/lab"
REMEDY = "get the file back with `git checkout data/lab`, or train the lab models anew with `make lab-zoo SHIP=1`"
_CARD_FIELDS = {"recipe": dict, "sha256": str, "attempt": int, "curve": list}


def round_weights(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """Round the weights of a model to half precision, in place: they equal those of its released file afterwards.

    Args:
        model: In single precision, and it stays so.

    Returns:
        The same model.
    """
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(weight.half().float())
    return model


def ship(
    model: LlamaForCausalLM,
    name: str,
    recipe: dict[str, Any],
    attempt: int,
    curve: pd.DataFrame,
    root: str | Path = LAB,
) -> Path:
    """Release a trained lab model: write NAME.safetensors in half precision, and NAME.json on how it was trained.

    Args:
        model: The trained model.
        name: Name of both files.
        recipe: Settings, seed and code versions of the training, see `lib.language_models.training.build.make_recipe`.
        attempt: Number of the training run that met the target.
        curve: Columns step, loss (nats per token) and accuracy, one row per evaluation.
        root: Folder for both files.

    Returns:
        The file of the weights.

    Raises:
        ValueError: Where half precision cannot hold a weight.
    """
    weights = {key: tensor.detach().half().numpy() for key, tensor in model.named_parameters()}
    overflown = [key for key, array in weights.items() if not np.isfinite(array).all()]
    if overflown:
        raise ValueError(
            f"{name} cannot be shipped: {overflown[0]} holds weights beyond half precision"
        )
    path = artifacts.write_tensors(Path(root) / f"{name}.safetensors", weights)
    curve_rows = [
        [int(step), round(float(loss), 4), float(accuracy)]
        for step, loss, accuracy in _list_curve_rows(curve)
    ]
    card_fields = {
        "recipe": recipe,
        "sha256": artifacts.sha256_file(path),
        "attempt": attempt,
        "curve": curve_rows,
    }
    artifacts.write_json(path.with_suffix(".json"), card_fields)
    return path


def card(name: str, root: str | Path = LAB) -> dict[str, Any] | None:
    """Read the training card of a released lab model, NAME.json beside its weights.

    Args:
        name: Name of the model, such as "lab-nano".
        root: Folder of the released models.

    Returns:
        JSON: recipe (settings, seed and code versions of the training), sha256 (of the weights), attempt (number of
        the training run that met its target) and curve (step, loss, accuracy); None for a model that is not released.

    Raises:
        ModelError: For a card that cannot be read.
    """
    path = Path(root) / f"{name}.json"
    if not path.is_file():
        return None
    try:
        card_fields = artifacts.read_json(path)
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is no card of a shipped model ({error}); {REMEDY}") from error
    for key, kind in _CARD_FIELDS.items():
        if not isinstance(card_fields, dict) or type(card_fields.get(key)) is not kind:
            raise ModelError(f"{path} is no card of a shipped model: it has no {key}; {REMEDY}")
    return card_fields


def curve(card_fields: dict[str, Any]) -> pd.DataFrame:
    """Read the learning curve of a released model from its training card.

    Args:
        card_fields: As `card` returns them.

    Returns:
        A row per evaluation, with the columns step, loss (nats per token) and accuracy on dev items.

    Raises:
        ModelError: Where the card holds no such rows.
    """
    columns = ["step", "loss", "accuracy"]
    try:
        return pd.DataFrame(card_fields["curve"], columns=columns).astype({"step": int})
    except (ValueError, TypeError) as error:
        raise ModelError(f"a shipped model's card holds no curve ({error}); {REMEDY}") from error


def unpack(name: str, settings: LabModelSettings, root: str | Path = LAB) -> LlamaForCausalLM:
    """Load a released lab model (a small transformer that was trained here), in single precision.

    Args:
        name: Name of the model, such as "lab-nano".
        settings: The size that it must have.
        root: Folder of the released models.

    Returns:
        The model in evaluation mode.

    Raises:
        ModelError: Where the file is missing, cut off, not the one that its card describes, or of another size than
            `settings` say; the message names the file.
    """
    card_fields = card(name, root)
    path = Path(root) / f"{name}.safetensors"
    if card_fields is None or not path.is_file():
        raise ModelError(f"{path} or its card is missing; {REMEDY}")
    if artifacts.sha256_file(path) != card_fields["sha256"]:
        raise ModelError(
            f"{path} is cut off or foreign: its bytes are not those that {name}.json names; {REMEDY}"
        )
    try:
        weights = artifacts.read_tensors(path)
    except ValueError as error:
        raise ModelError(f"{error}; {REMEDY}") from error

    # A new model of the required size gets the weights, if all shapes agree.
    model = checkpoints.fresh(settings, 0)
    model_shapes = {key: tuple(tensor.shape) for key, tensor in model.named_parameters()}
    file_shapes = {key: array.shape for key, array in weights.items()}
    if file_shapes != model_shapes:
        key = sorted(set(file_shapes.items()) ^ set(model_shapes.items()))[0][0]
        raise ModelError(
            f"{path} does not fit {name} in params.yaml: {key} is {file_shapes.get(key)}, "
            f"not {model_shapes.get(key)}; {REMEDY}"
        )
    with torch.no_grad():
        for key, weight in model.named_parameters():
            weight.copy_(torch.from_numpy(weights[key].astype(np.float32)))
    return model.eval()


def size(root: str | Path = LAB) -> int:
    """Bytes of all shipped weights."""
    return sum(path.stat().st_size for path in Path(root).glob("*.safetensors"))


def _list_curve_rows(curve: pd.DataFrame) -> Sequence[Sequence[float]]:
    return curve[["step", "loss", "accuracy"]].to_numpy().tolist()
