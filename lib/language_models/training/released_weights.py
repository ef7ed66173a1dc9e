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
_HELD = {"recipe": dict, "sha256": str, "attempt": int, "curve": list}


def rounded(model: LlamaForCausalLM) -> LlamaForCausalLM:
    """The model with weights that half precision can hold, as they would come back from a shipped file."""
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
    """Keep a trained model and its card under `root`; returns the place of the weights.

    recipe: see `lib.language_models.training.build.make_recipe`; attempt: which training met the target; curve: step,
    loss (nats per token), accuracy, one row per evaluation. Raises ValueError where half precision cannot hold a
    weight.
    """
    weights = {key: held.detach().half().numpy() for key, held in model.named_parameters()}
    broken = [key for key, held in weights.items() if not np.isfinite(held).all()]
    if broken:
        raise ValueError(
            f"{name} cannot be shipped: {broken[0]} holds weights beyond half precision"
        )
    place = artifacts.write_tensors(Path(root) / f"{name}.safetensors", weights)
    looks = [
        [int(step), round(float(loss), 4), float(correct)] for step, loss, correct in _looks(curve)
    ]
    held = {
        "recipe": recipe,
        "sha256": artifacts.sha256_file(place),
        "attempt": attempt,
        "curve": looks,
    }
    artifacts.write_json(place.with_suffix(".json"), held)
    return place


def card(name: str, root: str | Path = LAB) -> dict[str, Any] | None:
    """What is known of a shipped model: recipe, sha256, attempt and curve; None where it is not shipped.

    Raises ModelError for a card that cannot be read.
    """
    place = Path(root) / f"{name}.json"
    if not place.is_file():
        return None
    try:
        held = artifacts.read_json(place)
    except (OSError, ValueError) as error:
        raise ModelError(f"{place} is no card of a shipped model ({error}); {REMEDY}") from error
    for key, kind in _HELD.items():
        if not isinstance(held, dict) or type(held.get(key)) is not kind:
            raise ModelError(f"{place} is no card of a shipped model: it has no {key}; {REMEDY}")
    return held


def curve(held: dict[str, Any]) -> pd.DataFrame:
    """The curve on a card: step, loss, accuracy; one row per look. Raises ModelError for rows that are none."""
    try:
        return pd.DataFrame(held["curve"], columns=["step", "loss", "accuracy"]).astype(
            {"step": int}
        )
    except (ValueError, TypeError) as error:
        raise ModelError(f"a shipped model's card holds no curve ({error}); {REMEDY}") from error


def unpack(name: str, settings: LabModelSettings, root: str | Path = LAB) -> LlamaForCausalLM:
    """The shipped model, in single precision.

    Raises ModelError, by the name of the file, where it is missing, cut off, not the one that its card describes, or
    of another size than `settings` say.
    """
    held, place = card(name, root), Path(root) / f"{name}.safetensors"
    if held is None or not place.is_file():
        raise ModelError(f"{place} or its card is missing; {REMEDY}")
    if artifacts.sha256_file(place) != held["sha256"]:
        raise ModelError(
            f"{place} is cut off or foreign: its bytes are not those that {name}.json names; {REMEDY}"
        )
    try:
        weights = artifacts.read_tensors(place)
    except ValueError as error:
        raise ModelError(f"{error}; {REMEDY}") from error
    model = checkpoints.fresh(settings, 0)
    wanted = {key: tuple(held.shape) for key, held in model.named_parameters()}
    found = {key: held.shape for key, held in weights.items()}
    if found != wanted:
        key = sorted(set(found.items()) ^ set(wanted.items()))[0][0]
        raise ModelError(
            f"{place} does not fit {name} in params.yaml: {key} is {found.get(key)}, not {wanted.get(key)}; {REMEDY}"
        )
    with torch.no_grad():
        for key, weight in model.named_parameters():
            weight.copy_(torch.from_numpy(weights[key].astype(np.float32)))
    return model.eval()


def size(root: str | Path = LAB) -> int:
    """Bytes of all shipped weights."""
    return sum(place.stat().st_size for place in Path(root).glob("*.safetensors"))


def _looks(curve: pd.DataFrame) -> Sequence[Sequence[float]]:
    return curve[["step", "loss", "accuracy"]].to_numpy().tolist()
