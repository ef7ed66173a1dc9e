"""The controller's voice: how messages become tokens, tokens text, and a context its next turn.

`LabGenerator` speaks with the lab's own engine (batched, every row the same alone or beside others); `Hub` with
any causal language model in a Hugging Face folder, through transformers.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase, StoppingCriteria

from lib.experiment import seeds
from lib.language_models import tokenizer as lab
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.rl.call_protocol import STOPS

VERSION = 1  # of the turns that controllers write
AT_ONCE = 128  # contexts of a Hub side by side, which is a matter of memory
_TAIL = 16  # tokens that any of STOPS fits in


class Voice(Protocol):
    """What a rollout needs of a controller.

    Attributes:
        response: Tokens of an expert's reply that the controller reads at the most.
        marks_cuts: Whether it can read a mark where a part of a reply is missing.
    """

    response: int
    marks_cuts: bool

    def fits(self, ids: Sequence[int]) -> bool:
        """Whether the window has room for another turn."""

    def prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Tokens of a conversation, up to where the controller is to speak."""

    def encode(self, text: str) -> list[int]:
        """Tokens of a text that is inserted: a response."""

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens."""

    def write(
        self, contexts: Sequence[Sequence[int]], keys: Sequence[int], temperature: float
    ) -> list[list[int]]:
        """The next turn in each context, up to and with what ends it; keys: one seed per context."""


class LabGenerator:
    """A lab model. Its weights are read anew by `refresh`, which a trainer calls after an update."""

    marks_cuts = False  # the lab's words have none for it

    def __init__(self, model: PreTrainedModel, limit: int, response: int) -> None:
        """limit: tokens of a turn; response: of an expert's reply that are handed on."""
        self.model, self.limit, self.response = model, limit, response
        self.stops = tuple(tuple(lab.encode(stop)) for stop in STOPS)
        self.refresh()

    def refresh(self) -> None:
        """Take the weights as they are now."""
        self.forward = Forward(self.model)

    def fits(self, ids: Sequence[int]) -> bool:
        return len(ids) + self.limit <= self.forward.window

    def prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return encode_conversation(messages)

    def encode(self, text: str) -> list[int]:
        return lab.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return lab.decode(ids)

    def write(
        self, contexts: Sequence[Sequence[int]], keys: Sequence[int], temperature: float
    ) -> list[list[int]]:
        prompts = [
            Prompt(tuple(ids), self.limit, temperature, key, self.stops)
            for ids, key in zip(contexts, keys, strict=True)
        ]
        return [one.ids for one in generate(self.forward, prompts, encode_special(lab.EOS))]


class Hub:
    """Any causal language model of transformers, with its own tokenizer and chat template."""

    marks_cuts = True

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        limit: int,
        response: int,
        preface: str = "",
    ) -> None:
        """limit, response: as for `LabGenerator`; preface: what the system message says before it names the budget."""
        self.model, self.tokenizer, self.preface = model, tokenizer, preface
        self.limit, self.response = limit, response
        self.watch: Callable[[int, int], None] = lambda done, total: (
            None
        )  # told how many turns of a batch are written
        self.tokenizer.padding_side = "left"
        if self.tokenizer.pad_token is None:
            self.tokenizer.pad_token = self.tokenizer.eos_token

    def fits(self, ids: Sequence[int]) -> bool:
        return len(ids) + self.limit <= getattr(self.model.config, "max_position_embeddings", 2**31)

    def prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        first, *rest = messages
        told = [{**first, "content": f"{self.preface}\n{first['content']}".strip()}, *rest]
        text = self.tokenizer.apply_chat_template(told, add_generation_prompt=True, tokenize=False)
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def write(
        self, contexts: Sequence[Sequence[int]], keys: Sequence[int], temperature: float
    ) -> list[list[int]]:
        written: list[list[int]] = []
        while len(written) < len(contexts):
            self.watch(len(written), len(contexts))
            part = slice(len(written), len(written) + AT_ONCE)
            written += self._write(contexts[part], keys[part], temperature)
        return written

    @torch.inference_mode()
    def _write(
        self, contexts: Sequence[Sequence[int]], keys: Sequence[int], temperature: float
    ) -> list[list[int]]:
        batch = self.tokenizer.pad({"input_ids": [list(c) for c in contexts]}, return_tensors="pt")
        batch = batch.to(self.model.device)
        width = batch["input_ids"].shape[1]
        sampling = (
            {"do_sample": True, "temperature": temperature} if temperature else {"do_sample": False}
        )
        with torch.random.fork_rng():  # transformers draws from torch's own generator
            torch.manual_seed(int(seeds.key("routing", "hub", seed=int(sum(keys) % 2**31)) >> 1))
            out = self.model.generate(
                **batch,
                max_new_tokens=self.limit,
                top_p=1.0,
                top_k=0,
                **sampling,
                pad_token_id=self.tokenizer.pad_token_id,
                stopping_criteria=[_Stops(self.tokenizer, width)],
            )
        return [self._ended(row[width:].tolist()) for row in out]

    def _ended(self, ids: list[int]) -> list[int]:
        """A row up to what ended it; the rest is padding."""
        for n in range(1, len(ids) + 1):
            tail = self.tokenizer.decode(ids[max(0, n - _TAIL) : n]).rstrip()
            if ids[n - 1] == self.tokenizer.eos_token_id or tail.endswith(STOPS):
                return ids[:n]
        return ids


class _Stops(StoppingCriteria):
    """A turn is over where one of STOPS stands at its end."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, width: int) -> None:
        self.tokenizer, self.width = tokenizer, width

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor, **_) -> torch.Tensor:
        tails = self.tokenizer.batch_decode(input_ids[:, self.width :][:, -_TAIL:])
        return torch.tensor(
            [tail.rstrip().endswith(STOPS) for tail in tails], device=input_ids.device
        )
