"""Where the server's models come from: the folder of lab models, released weights, and Hugging Face folders."""

from collections.abc import Sequence
from pathlib import Path

from lib.config import LabModelSettings
from lib.language_models import checkpoints
from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.serving.chat_completions.completion import CompletionModel
from lib.language_models.serving.chat_completions.folder_completion import FolderCompletionModel
from lib.language_models.serving.chat_completions.lab_completion import (
    LabCompletionModel,
    ServedModel,
)
from lib.language_models.training import released_weights


def load_models(
    lab_folder: Path | None, model_folders: Sequence[Path], max_queue_length: int
) -> list[CompletionModel]:
    """Load everything that is to be served.

    Args:
        lab_folder: Of the lab models; None to serve none.
        model_folders: Hugging Face folders.
        max_queue_length: Requests that may wait for a model.

    Returns:
        The models, folders first, for that is what was asked for by name.

    Raises:
        ModelError: Where a model is not there or cannot be read.
        ValueError: Where two have the same name.
    """
    models: list[CompletionModel] = []
    for folder in model_folders:
        model = HuggingFaceModel(folder.expanduser().resolve())
        models.append(FolderCompletionModel(model, max_queue_length))
    if lab_folder is not None:
        for served in load_lab_models(lab_folder).values():
            models.append(LabCompletionModel(served, max_queue_length))

    names = [model.name for model in models]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"two models are called {name}; rename a folder, or leave the lab models out with --no-lab"
            )
    return models


def load_lab_models(
    folder: Path, released_folder: Path = released_weights.LAB
) -> dict[str, ServedModel]:
    """Load lab models, in a fresh clone from the weights that come with the project.

    Args:
        folder: Of the lab models. In the project's own one, those that are absent are taken from the released
            weights; any other folder is served as it is.
        released_folder: Of the released weights.

    Returns:
        The models by name.

    Raises:
        ModelError: Where a model is not there or cannot be read.
    """
    if folder.resolve() != checkpoints.MODELS.resolve():
        return checkpoints.load_all(folder)
    models = {}
    if any(folder.glob("*/config.json")):
        models = checkpoints.load_all(folder)
    for path in sorted(released_folder.glob("*.safetensors")):
        if path.stem not in models:
            models[path.stem] = load_released_model(path.stem, released_folder)
    if not models:
        return checkpoints.load_all(folder)  # which says what to do
    return models


def load_released_model(name: str, released_folder: Path = released_weights.LAB) -> ServedModel:
    """Load one model from the weights that come with the project.

    Args:
        name: Of the model.
        released_folder: With NAME.safetensors and NAME.json.

    Returns:
        The model; its card holds the number of parameters and the settings of its training.

    Raises:
        ModelError: Where the weights or their card are absent or broken.
    """
    card = released_weights.card(name, released_folder)
    if card is None:
        raise checkpoints.ModelError(
            f"{released_folder}/{name}.json is missing; {released_weights.REMEDY}"
        )
    training_settings = card["recipe"]["model"]
    network = released_weights.unpack(name, LabModelSettings(**training_settings), released_folder)
    facts = {
        "name": name,
        "parameters": sum(weight.numel() for weight in network.parameters()),
        "training": training_settings,
        "weights_sha256": card["sha256"],
    }
    return ServedModel(name, Forward(network), facts, checkpoints.LIMIT)
