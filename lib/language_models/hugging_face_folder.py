"""What stands in a Hugging Face folder of a causal language model: tokenizer, network, end tokens, window.

Weights are read, never code: safetensors only, from this machine only. Left out: encoder-decoders, adapters, and
networks that are spread over several devices.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# Chat models end their turns with these; some folders name only the end of a text as their end token.
END_OF_TURN_TOKENS = ("<end_of_turn>", "<|im_end|>", "<|eot_id|>")
_WINDOW_KEYS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_BLOCK_BYTES = 2**24
# What replies depend on: a fingerprint that left the chat template out would call two different models equal.
_FINGERPRINT_PATTERNS = (
    "*.safetensors",
    "config.json",
    "tokenizer*",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "chat_template*",
)


class ModelFolderError(ValueError):
    """A folder, or a machine, that a model cannot be loaded from; the message names it and the remedy."""


def choose_device(device: str) -> torch.device:
    """Choose the torch device for a network, by name or automatically, and check that this machine has it.

    Args:
        device: "auto", "cpu", "cuda", "cuda:1" or "mps"; "auto" is the first accelerator, else the CPU.

    Returns:
        The device.

    Raises:
        ModelFolderError: It is not there, or the name is none.
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        raise ModelFolderError(
            f"device must be 'auto', 'cpu', 'cuda', 'cuda:1' or 'mps', got {device!r}"
        ) from None
    # torch accepts names of devices that are not there, and complains only when the weights arrive.
    num_devices = {
        "cpu": 1,
        "cuda": torch.cuda.device_count(),
        "mps": int(torch.backends.mps.is_available()),
    }
    if (chosen.index or 0) >= num_devices.get(chosen.type, 0):
        raise ModelFolderError(
            f"device {device!r} is not on this machine; use device='auto' or 'cpu'"
        )
    return chosen


def choose_dtype(dtype: str, device: torch.device) -> torch.dtype:
    """Choose the number format of a network's weights, by name or automatically.

    Args:
        dtype: "auto", "float32", "bfloat16" or "float16"; "auto" is float32 on a CPU and bfloat16 elsewhere.
        device: Where the network is.

    Returns:
        The number format.

    Raises:
        ModelFolderError: The name is none.
    """
    if dtype == "auto":
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype not in DTYPES:
        raise ModelFolderError(f"dtype must be 'auto' or one of {', '.join(DTYPES)}, got {dtype!r}")
    return DTYPES[dtype]


def load_folder(
    folder: Path, device: torch.device, dtype: torch.dtype
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Load tokenizer and network from a Hugging Face folder on this machine.

    Args:
        folder: Holds config.json, safetensors and the tokenizer's files.
        device: Where the network goes.
        dtype: Dtype of its weights.

    Returns:
        Both; the network is ready for inference.

    Raises:
        ModelFolderError: The folder is no Hugging Face folder of a causal language model.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        network = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, use_safetensors=True, dtype=dtype
        )
    except (
        Exception
    ) as error:  # transformers raises a dozen unrelated types for a folder that is none
        reason = " ".join(str(error).split())
        raise ModelFolderError(
            f"{folder} is no Hugging Face folder of a language model, with safetensors and a tokenizer: {reason}"
        ) from error
    return tokenizer, network.to(device).eval()


def find_end_token_ids(
    tokenizer: PreTrainedTokenizerBase, network: PreTrainedModel
) -> frozenset[int]:
    """Collect the ids of all tokens that end a chat model's reply, from its configs and its chat template.

    Args:
        tokenizer: Its end token counts, and the end of a turn in its chat template if that is a special token.
        network: The end tokens of its config.json and generation_config.json count.

    Returns:
        Token ids.

    Raises:
        ModelFolderError: There is none, so that no reply would ever end.
    """
    config = network.config
    end_ids = {
        *_list_ids(getattr(network.generation_config, "eos_token_id", None)),
        *_list_ids(getattr(config, "eos_token_id", None)),
        *_list_ids(getattr(config.get_text_config(decoder=True), "eos_token_id", None)),
        *_list_ids(tokenizer.eos_token_id),
    }
    template = str(tokenizer.chat_template)
    for token_id, token in tokenizer.added_tokens_decoder.items():
        if token.special and token.content in END_OF_TURN_TOKENS and token.content in template:
            end_ids.add(token_id)
    if not end_ids:
        raise ModelFolderError(
            f"{config.name_or_path} names no end token; set eos_token_id in its generation_config.json"
        )
    return frozenset(end_ids)


def _list_ids(value: int | Iterable[int] | None) -> list[int]:
    """Return the end tokens of a config, which has one id, several or none, as a list."""
    if value is None:
        return []
    return [value] if isinstance(value, int) else list(value)


def read_window(network: PreTrainedModel) -> int:
    """Read a network's context length: how many tokens prompt and reply may have together.

    Args:
        network: Its config names the number.

    Returns:
        Tokens.

    Raises:
        ModelFolderError: The config names none.
    """
    config = network.config.get_text_config(decoder=True)
    for key in _WINDOW_KEYS:
        window = getattr(config, key, None)
        if isinstance(window, int) and window > 0:
            return window
    raise ModelFolderError(
        f"{network.config.name_or_path} names no window; set max_position_embeddings in its config.json"
    )


def hash_folder(folder: Path) -> str:
    """Hash all files of a Hugging Face folder that replies depend on: weights, config, tokenizer, chat template.

    Args:
        folder: Folder of a model.

    Returns:
        SHA-256 in hexadecimal, the same wherever the folder lies.
    """
    paths = {path for pattern in _FINGERPRINT_PATTERNS for path in folder.glob(pattern)}
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(f"{path.name} {path.stat().st_size}\n".encode())
        with path.open("rb") as file:
            # In blocks: the weights of a large model do not fit into memory twice.
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
    return digest.hexdigest()
