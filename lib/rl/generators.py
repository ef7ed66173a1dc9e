"""What a controller is to a rollout: it turns messages into tokens and tokens into text, and writes turns.

    generator = HFGenerator(network, tokenizer, max_turn_tokens=200, max_response_tokens=500)
    context = generator.encode_prompt([{"role": "user", "content": "3 + 4 = ?"}])
    (turn,) = generator.write_turns([context], turn_seeds=[7], temperature=1.0)

`LabGenerator` runs the lab's own models, `HFGenerator` any causal language model of transformers. Both sample from
softmax(logits / temperature) and from nothing else, since that is the distribution under which a trainer scores the
tokens, and both end a turn at the first end token or stop string, so that no padding is ever learned from.

Left out: what a turn means (`lib.rl.call_protocol`), and networks that are spread over several devices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from lib.experiment import seeds
from lib.language_models import tokenizer as lab
from lib.language_models.batched_sampling import SampledSequence, sample_batch
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.hugging_face_folder import find_end_token_ids, read_window
from lib.language_models.hugging_face_prompts import PromptRenderer
from lib.language_models.kv_cache_forward import Forward
from lib.llm.chat_model import ChatRequest
from lib.rl.call_protocol import STOP_STRINGS

VERSION = 1  # of the turns that controllers write
LONGEST_LAB_TURN = 64  # tokens of a turn of a lab model
BATCH_SIZE = 32  # contexts that an HFGenerator samples side by side, which is a matter of memory


class Generator(Protocol):
    """What a rollout needs of a controller.

    Attributes:
        max_response_tokens: Tokens of an expert's reply that the controller reads at the most.
        marks_cuts: Whether it can read a mark where a part of a reply is missing.
    """

    max_response_tokens: int
    marks_cuts: bool

    def has_room(self, ids: Sequence[int]) -> bool:
        """Whether the context window has room for another turn after these tokens."""

    def encode_prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Encode a conversation up to where the controller is to write."""

    def encode(self, text: str) -> list[int]:
        """Encode a text that is inserted into a context, such as a response."""

    def decode(self, ids: Sequence[int]) -> str:
        """Decode tokens."""

    def write_turns(
        self, contexts: Sequence[Sequence[int]], turn_seeds: Sequence[int], temperature: float
    ) -> list[list[int]]:
        """Write the next turn in every context.

        Args:
            contexts: Tokens so far; each leaves room for a turn (`has_room`).
            turn_seeds: One per context.
            temperature: 0 is greedy.

        Returns:
            New tokens of each context, up to and with those that end the turn.
        """


class LabGenerator:
    """A lab model. Its weights are read anew by `refresh`, which a trainer calls after an update."""

    marks_cuts = False  # the lab's vocabulary has no words for such a mark

    def __init__(
        self, model: PreTrainedModel, max_turn_tokens: int, max_response_tokens: int
    ) -> None:
        """
        Args:
            model: With the lab's tokenizer.
            max_turn_tokens: Tokens of a turn at the most; a lab model gets LONGEST_LAB_TURN or less.
            max_response_tokens: Tokens of an expert's reply that it reads at the most.
        """
        self.model = model
        # Its window holds a few turns of this length, and it was trained on shorter ones.
        self.max_turn_tokens = min(max_turn_tokens, LONGEST_LAB_TURN)
        self.max_response_tokens = max_response_tokens
        self.stop_sequences = tuple(tuple(lab.encode(text)) for text in STOP_STRINGS)
        self.refresh()

    def refresh(self) -> None:
        """Take the weights as they are now."""
        self.forward = Forward(self.model)

    def has_room(self, ids: Sequence[int]) -> bool:
        return len(ids) + self.max_turn_tokens <= self.forward.window

    def encode_prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return encode_conversation(messages)

    def encode(self, text: str) -> list[int]:
        return lab.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return lab.decode(ids)

    def write_turns(
        self, contexts: Sequence[Sequence[int]], turn_seeds: Sequence[int], temperature: float
    ) -> list[list[int]]:
        """Writes the next turn in every context, see `Generator.write_turns`."""
        prompts = [
            Prompt(tuple(ids), self.max_turn_tokens, temperature, seed, self.stop_sequences)
            for ids, seed in zip(contexts, turn_seeds, strict=True)
        ]
        generations = generate(self.forward, prompts, encode_special(lab.EOS))
        return [generation.ids for generation in generations]


class HFGenerator:
    """Any causal language model of transformers, with its own tokenizer and chat template.

    What its folder recommends for sampling (top-p, penalties, forced or suppressed tokens) is not read. Every context
    draws with its own seed, so that a turn is the same alone and in a batch, as far as floating point allows. The
    tokenizer stays as it is and needs no padding token.

    Attributes:
        end_token_ids: A turn ends at the first of them.
        pad_id: A token for padding where a trainer needs one; it is masked everywhere.
        stop_strings: Texts that end a turn too.
        report_progress: Called with the numbers of finished turns and of all turns of a `write_turns`.
    """

    marks_cuts = True

    def __init__(
        self,
        model: torch.nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        max_turn_tokens: int,
        max_response_tokens: int,
        preface: str = "",
        batch_size: int = BATCH_SIZE,
        stop_strings: Sequence[str] = STOP_STRINGS,
    ) -> None:
        """
        Args:
            model: Model of transformers, or wrapped by peft; in training it is switched to evaluation while it samples.
            tokenizer: With a chat template.
            max_turn_tokens: Tokens of a turn at the most.
            max_response_tokens: Tokens of an expert's reply that it reads at the most.
            preface: What the system message says before it names the budget.
            batch_size: Contexts that are sampled side by side, at the most.
            stop_strings: Texts that end a turn, beside the model's end tokens.

        Raises:
            ModelFolderError: The model names no end token or no window, or the tokenizer has no chat template.
            ValueError: batch_size is below 1.
        """
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.model = model
        self.tokenizer = tokenizer
        self.max_turn_tokens = max_turn_tokens
        self.max_response_tokens = max_response_tokens
        self.preface = preface
        self.batch_size = batch_size
        self.stop_strings = tuple(stop_strings)
        self.report_progress: Callable[[int, int], None] = lambda num_finished, num_turns: None

        # peft's wrapper hides which arguments the network takes. Its layers are inside of the network all the same.
        is_wrapped = hasattr(model, "get_base_model")
        self._network: PreTrainedModel = model.get_base_model() if is_wrapped else model
        self._window = read_window(self._network)
        self.end_token_ids = find_end_token_ids(tokenizer, self._network)
        self.pad_id = tokenizer.pad_token_id
        if self.pad_id is None:
            self.pad_id = min(self.end_token_ids)
        name = Path(self._network.config.name_or_path).name or type(self._network).__name__
        self._prompts = PromptRenderer(tokenizer, name)

    def refresh(self) -> None:
        """Do nothing: the network is sampled as it is."""

    def has_room(self, ids: Sequence[int]) -> bool:
        return len(ids) + self.max_turn_tokens <= self._window

    def encode_prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """Encode a conversation up to where the controller is to write.

        Args:
            messages: {"role", "content"} each; the first one gets the preface.

        Returns:
            Token ids. Where the template takes no system role, that text stands before the first user message.

        Raises:
            PromptError: The chat template cannot show the conversation.
        """
        first, *following = messages
        content = f"{self.preface}\n{first['content']}".strip()
        request = ChatRequest([{**first, "content": content}, *following])
        return list(self._prompts.render(request).ids)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer(text, add_special_tokens=False)["input_ids"]

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=True)

    def write_turns(
        self, contexts: Sequence[Sequence[int]], turn_seeds: Sequence[int], temperature: float
    ) -> list[list[int]]:
        """Write the next turn in every context.

        Args:
            contexts: Tokens so far; each leaves room for a turn (`has_room`).
            turn_seeds: One per context.
            temperature: 0 is greedy.

        Returns:
            New tokens of each context, up to and with those that end the turn.

        Raises:
            FloatingPointError: The network's logits are not finite.
            torch.OutOfMemoryError: There is no memory for batch_size contexts; the message names the remedy.
        """
        sequences = [
            SampledSequence(
                list(ids),
                self.max_turn_tokens,
                temperature,
                seeds.key("rl", "turn", seed=turn_seed),
            )
            for ids, turn_seed in zip(contexts, turn_seeds, strict=True)
        ]
        # Like lengths together, so that little is padding. The longest first: memory runs out at once or never.
        by_length = sorted(sequences, key=lambda sequence: -len(sequence.prompt_ids))
        num_finished = 0
        self.report_progress(num_finished, len(sequences))
        with _evaluating(self._network):
            for start in range(0, len(by_length), self.batch_size):
                for sequence in self._sample(by_length[start : start + self.batch_size]):
                    if sequence.finish:
                        num_finished += 1
                        self.report_progress(num_finished, len(sequences))
        return [sequence.ids for sequence in sequences]

    def _sample(self, batch: Sequence[SampledSequence]) -> Iterator[SampledSequence]:
        """Samples one batch of turns, and ends each at the token that completes a stop string.

        Args:
            batch: Sequences with their prompts.

        Yields:
            A sequence after each token that was appended to it; `finish` says whether it is complete.

        Raises:
            torch.OutOfMemoryError: The batch is too large; the message names the remedy.
        """
        try:
            for sequence in sample_batch(self._network, batch, self.end_token_ids):
                if not sequence.finish and self._ends_in_stop_string(sequence.ids):
                    sequence.finish = "stop"
                yield sequence
        except torch.OutOfMemoryError as error:
            raise torch.OutOfMemoryError(
                f"{self._network.device} has no memory to sample {len(batch)} turns side by side; use a smaller "
                "batch_size"
            ) from error

    def _ends_in_stop_string(self, ids: Sequence[int]) -> bool:
        """Whether the last tokens of a turn contain a stop string.

        Args:
            ids: Tokens of the turn so far.
        """
        if not self.stop_strings:
            return False
        # In a byte-level tokenizer each character is a token. The stop string need not be the end of the text: some
        # tokenizers join ">" with what follows.
        num_tail_tokens = 2 * max(map(len, self.stop_strings))
        tail = self.tokenizer.decode(ids[-num_tail_tokens:])
        return any(text in tail for text in self.stop_strings)


@contextmanager
def _evaluating(network: torch.nn.Module) -> Iterator[None]:
    """Switch dropout off, and the cache of keys and values on, which gradient checkpointing forgoes in training."""
    training_modules = [module for module in network.modules() if module.training]
    network.eval()
    try:
        yield
    finally:
        # One by one: parts that are frozen in evaluation mode stay so.
        for module in training_modules:
            module.training = True
