"""Lab models on disk: a folder that any Hugging Face tool opens, weights as safetensors.

Weights are read, never code: `from_pretrained` gets a folder, safetensors only, and no network.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from lib.config import ROOT, LabModelSettings
from lib.experiment import artifacts
from lib.language_models.chat_template import encode_special
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.serving.chat_completions import ServedModel
from lib.language_models.tokenizer import BOS, EOS, PAD, get_tokenizer

VERSION = 1  # of initial weights and the limit of replies
MODELS = ROOT / "data/models"
_LARGEST = 2**20  # units, layers, tokens
LIMIT = 96  # tokens of a reply where nobody says another number; the longest solution has about 60


class ModelError(ValueError):
    """A lab model that is not there or cannot be read; the message names the folder and the remedy."""


@contextmanager
def _no_bars() -> Iterator[None]:
    """A context manager in which transformers draws no progress bar, as it would for every file that it reads."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def fresh(settings: LabModelSettings, seed: int) -> LlamaForCausalLM:
    """Create an untrained lab model, a small Llama, without touching torch's global random state.

    Args:
        settings: Its size: hidden units, layers, heads, context length.
        seed: Seed of the initial weights.

    Returns:
        The model, with a row of the embedding for each word of the lab models' vocabulary.
    """
    config = LlamaConfig(
        vocab_size=len(get_tokenizer()),
        hidden_size=settings.hidden,
        num_hidden_layers=settings.layers,
        num_attention_heads=settings.heads,
        intermediate_size=settings.intermediate,
        max_position_embeddings=settings.window,
        tie_word_embeddings=True,
        bos_token_id=encode_special(BOS),
        eos_token_id=encode_special(EOS),
        pad_token_id=encode_special(PAD),
    )
    with torch.random.fork_rng():  # transformers draws from torch's own generator
        torch.manual_seed(seed)
        return LlamaForCausalLM(config)


def save(model: LlamaForCausalLM, folder: str | Path) -> Path:
    """Write a lab model and its tokenizer as a Hugging Face folder.

    Args:
        model: A small Llama that was trained here.
        folder: Is made where it is missing.

    Returns:
        The folder.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _no_bars():
        model.save_pretrained(folder)
    get_tokenizer().save_pretrained(folder)
    return folder


def load(folder: str | Path) -> LlamaForCausalLM:
    """Load a lab model from its folder.

    Args:
        folder: A Hugging Face folder, as `save` writes it.

    Returns:
        The model in single precision and evaluation mode.

    Raises:
        ModelError: Where there is no model, or it cannot be read.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} holds no model; train the lab models with `make repro`")
    try:
        _check_sizes(folder)
        with _no_bars():
            model, loading_info = LlamaForCausalLM.from_pretrained(
                folder,
                use_safetensors=True,
                local_files_only=True,
                dtype=torch.float32,
                output_loading_info=True,
                attn_implementation="sdpa",
            )
        # transformers would fill missing weights with random numbers, and leave unexpected ones out.
        mismatched = sorted({*loading_info["missing_keys"], *loading_info["unexpected_keys"]})
        if mismatched:
            raise ValueError(f"config.json does not fit the weights, see {mismatched[0]}")
    except (
        Exception
    ) as error:  # transformers raises a dozen unrelated types for a wrong config.json
        raise ModelError(
            f"{folder} cannot be read ({error}); delete it and run `make repro` again"
        ) from error
    return model.eval()


def load_all(root: str | Path = MODELS) -> dict[str, ServedModel]:
    """Load every lab model (small transformers that were trained here) under a folder, ready to generate.

    Args:
        root: A folder with a subfolder for each model.

    Returns:
        Models by name of the subfolder, each with its card (measured accuracy and price), or {} where it has none.

    Raises:
        ModelError: Where there is none, or one cannot be read.
    """
    folders = sorted(path.parent for path in Path(root).glob("*/config.json"))
    if not folders:
        raise ModelError(f"{root} holds no models; train the lab models with `make repro`")
    return {
        folder.name: ServedModel(folder.name, _load_forward(folder), _read_card(folder), LIMIT)
        for folder in folders
    }


def _load_forward(folder: Path) -> Forward:
    """Load a lab model's weights for fast generation with a key-value cache. Raises ModelError where that fails."""
    model = load(folder)
    try:
        return Forward(model)
    except (ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise ModelError(
            f"{folder} cannot be asked ({error}); delete it and run `make repro` again"
        ) from error


def _read_card(folder: Path) -> dict[str, Any]:
    """Read what was measured of a model, its card.json; {} without one. Raises ModelError for a broken one."""
    path = folder / "card.json"
    try:
        card = artifacts.read_json(path) if path.exists() else {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} is no card ({error})") from error
    if not isinstance(card, dict):
        raise ModelError(
            f"{path} is no card, but a {type(card).__name__}; delete it and run `make repro` again"
        )
    return card


def _check_sizes(folder: Path) -> None:
    """Check that config.json does not describe a larger model than the weight files hold, before memory is allocated.

    Args:
        folder: A Hugging Face folder.

    Raises:
        ValueError: For a size that is no whole number in range, or for more weights than the files have bytes.
    """
    config = artifacts.read_json(folder / "config.json")
    names = (
        "hidden_size",
        "intermediate_size",
        "num_attention_heads",
        "num_hidden_layers",
        "vocab_size",
    )
    for name in (*names, "max_position_embeddings"):
        value = config.get(name) if isinstance(config, dict) else None
        if type(value) is not int or not 1 <= value <= _LARGEST:
            raise ValueError(
                f"config.json: {name} must be a whole number from 1 to {_LARGEST}, not {str(value)[:60]}"
            )
    # A lower bound of the number of weights: the embedding, the MLP and one matrix of attention in each layer.
    width, mlp_width, _, num_layers, vocab_size = (config[name] for name in names)
    num_weights = width * (vocab_size + num_layers * (width + 3 * mlp_width))
    num_bytes = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    if num_weights > num_bytes:
        raise ValueError(
            f"config.json describes at least {num_weights:_} weights, its files have {num_bytes:_} bytes"
        )
