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
    """transformers draws a progress bar for every file; these files are small."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def fresh(settings: LabModelSettings, seed: int) -> LlamaForCausalLM:
    """An untrained model of the given size. Draws its first weights from a generator of its own."""
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
    """Write model and tokenizer as a Hugging Face folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with _no_bars():
        model.save_pretrained(folder)
    get_tokenizer().save_pretrained(folder)
    return folder


def load(folder: str | Path) -> LlamaForCausalLM:
    """Read a model. Raises ModelError where there is none, or where its weights are broken."""
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise ModelError(f"{folder} holds no model; train the lab models with `make repro`")
    try:
        _check_sizes(folder)
        with _no_bars():
            model, found = LlamaForCausalLM.from_pretrained(
                folder,
                use_safetensors=True,
                local_files_only=True,
                dtype=torch.float32,
                output_loading_info=True,
                attn_implementation="sdpa",
            )
        wrong = sorted({*found["missing_keys"], *found["unexpected_keys"]})
        if wrong:  # transformers would fill them with random numbers, or leave them out
            raise ValueError(f"config.json does not fit the weights, see {wrong[0]}")
    except (
        Exception
    ) as error:  # transformers raises a dozen unrelated types for a wrong config.json
        raise ModelError(
            f"{folder} cannot be read ({error}); delete it and run `make repro` again"
        ) from error
    return model.eval()


def load_all(root: str | Path = MODELS) -> dict[str, ServedModel]:
    """Every model under a folder, ready to be asked, with its card where it has one.

    Raises ModelError where there is none or one cannot be read.
    """
    places = sorted(place.parent for place in Path(root).glob("*/config.json"))
    if not places:
        raise ModelError(f"{root} holds no models; train the lab models with `make repro`")
    return {
        place.name: ServedModel(place.name, _forward(place), _card(place), LIMIT)
        for place in places
    }


def _forward(place: Path) -> Forward:
    model = load(place)
    try:
        return Forward(model)
    except (ValueError, KeyError, AttributeError, RuntimeError) as error:
        raise ModelError(
            f"{place} cannot be asked ({error}); delete it and run `make repro` again"
        ) from error


def _card(place: Path) -> dict[str, Any]:
    """What is known about a model, {} where nothing is. Raises ModelError for a card that cannot be read."""
    path = place / "card.json"
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
    """Refuse a config.json that describes more weights than there are, before room is made for them."""
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
    width, inner, _, layers, words = (config[name] for name in names)
    wanted, found = (
        width * (words + layers * (width + 3 * inner)),
        sum(f.stat().st_size for f in folder.glob("*.safetensors")),
    )
    if wanted > found:
        raise ValueError(
            f"config.json describes at least {wanted:_} weights, its files have {found:_} bytes"
        )
