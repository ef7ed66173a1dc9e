"""Where the server's models come from: the folder of lab models, released weights, and Hugging Face folders."""

import sys
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
    """Load the models that a server is to serve: Hugging Face folders, and lab models.

    Lab models are small transformers that were trained here.

    Args:
        lab_folder: Folder with a subfolder for each lab model; None to serve none.
        model_folders: Hugging Face folders, each served under its folder's name.
        max_queue_length: Number of requests that may wait for a model.

    Returns:
        The models, Hugging Face folders first.

    Raises:
        ModelError: Where a model is not there or cannot be read.
        ValueError: Where two have the same name.
    """
    models: list[CompletionModel] = []
    for folder in model_folders:
        chat_model = HuggingFaceModel(folder.expanduser().resolve())
        models.append(FolderCompletionModel(chat_model, max_queue_length))
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
    """Load lab models, small transformers that were trained here; a fresh clone has released weights of them.

    Args:
        folder: Folder with a subfolder for each lab model. In data/models, models that are absent are taken from the
            released weights, which is said on stderr; any other folder is served as it is.
        released_folder: Folder of the released weights, NAME.safetensors each.

    Returns:
        The models by name, ready to generate.

    Raises:
        ModelError: Where a model is not there or cannot be read.
    """
    if folder.resolve() != checkpoints.MODELS.resolve():
        return checkpoints.load_all(folder)
    models = {}
    if any(folder.glob("*/config.json")):
        models = checkpoints.load_all(folder)
    released_names = sorted(path.stem for path in released_folder.glob("*.safetensors"))
    absent_names = [name for name in released_names if name not in models]
    if absent_names:
        print(
            f"{folder} lacks {len(absent_names)} lab models; loading their released weights from {released_folder}",
            file=sys.stderr,
            flush=True,
        )
    for name in absent_names:
        models[name] = load_released_model(name, released_folder)
    if not models:
        return checkpoints.load_all(folder)  # raises ModelError with the remedy
    return models


def load_released_model(name: str, released_folder: Path = released_weights.LAB) -> ServedModel:
    """Load one lab model, a small transformer that was trained here, from the weights that come with the project.

    Args:
        name: Name of the model, such as "lab-nano".
        released_folder: Folder with NAME.safetensors (weights) and NAME.json (how they were trained, and their hash).

    Returns:
        The model, ready to generate. Its card has the number of parameters and the settings of its training, but no
        accuracy and no price, which are measured only when the lessons are built.

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
