"""The text of a reply while its tokens come: whole characters, stop strings, reasoning, and what may be shown already.

    text = ReplyText(tokenizer, stop=["\\n\\n"])
    for token in tokens:
        text.add_token(token)
        print(text.read_new_visible(), end="")

Left out: what the text means, and tool calls but for holding them back (`lib.language_models.tool_call_formats`).
"""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from lib.language_models import tool_call_formats

THINK_OPEN, THINK_CLOSE = "<think>", "</think>"
_SHOWN_SPECIAL_TOKENS = (THINK_OPEN, THINK_CLOSE, *tool_call_formats.SPECIAL_TOKENS)
_INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what the bytes of half a character decode to


class TextDecoder:
    """Turns tokens into text, one at a time, and never splits a character."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        """
        Args:
            tokenizer: Its special tokens are left out of the text, but for those that mark reasoning and tool calls.
        """
        self._tokenizer = tokenizer
        self._hidden_ids = {
            token_id
            for token_id, token in tokenizer.added_tokens_decoder.items()
            if token.special and token.content not in _SHOWN_SPECIAL_TOKENS
        }
        self._ids: list[int] = []
        # Many tokenizers join words by what stands before them, so the tokens from `_context` on are decoded twice:
        # those up to `_decoded`, whose text is out already, and all of them. The difference is new.
        self._context = 0
        self._decoded = 0

    def add_token(self, token_id: int) -> str:
        """Decode one more token.

        Args:
            token_id: The token.

        Returns:
            The text that is certain now; "" while a character lacks bytes.
        """
        if token_id in self._hidden_ids:
            return ""
        self._ids.append(token_id)
        text = self._decode_new()
        if text.endswith(_INCOMPLETE):
            return ""
        self._context = self._decoded
        self._decoded = len(self._ids)
        return text

    def flush(self) -> str:
        """Give up waiting for the bytes of a character.

        Returns:
            What the remaining bytes decode to.
        """
        text = self._decode_new()
        self._context = self._decoded = len(self._ids)
        return text

    def _decode_new(self) -> str:
        """Decode the tokens whose text is not out yet, with some before them as context."""
        old_text = self._decode(self._ids[self._context : self._decoded])
        return self._decode(self._ids[self._context :])[len(old_text) :]

    def _decode(self, ids: list[int]) -> str:
        if not ids:
            return ""
        return self._tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )


class ReplyText:
    """A reply's text, token by token.

    Attributes:
        raw: All of it, with reasoning and markers of tool calls, up to the first stop string.
        stopped: Whether a stop string ended it.
        num_shown: Characters of the visible text that were read.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase,
        stop: Sequence[str] = (),
        has_tools: bool = False,
        opens_in_reasoning: bool = False,
    ) -> None:
        """
        Args:
            tokenizer: The model's.
            stop: Texts that end the reply; looked for in the visible text only.
            has_tools: Whether tools are on offer, so that a tool call is not visible text.
            opens_in_reasoning: Whether the prompt ends with an open <think>.
        """
        self.raw = ""
        self.stopped = False
        self.num_shown = 0
        self._decoder = TextDecoder(tokenizer)
        # A single text is a sequence of texts too, of its letters.
        stop_texts = [stop] if isinstance(stop, str) else stop
        self._stop = [text for text in stop_texts if text]
        self._has_tools = has_tools
        self._opens_in_reasoning = opens_in_reasoning
        self._num_tokens = 0
        self._num_reasoning_tokens: int | None = None  # None until the reasoning is closed

    def add_token(self, token_id: int) -> None:
        """Append the text of one more token; sets `stopped` where it completes a stop string.

        Args:
            token_id: The token, no end token.
        """
        self._num_tokens += 1
        self._append(self._decoder.add_token(token_id))
        if self._num_reasoning_tokens is None and self._has_reasoning and self._visible_start:
            self._num_reasoning_tokens = self._num_tokens

    def finish(self) -> None:
        """Append what the remaining bytes of an incomplete last character decode to."""
        if not self.stopped:
            self._append(self._decoder.flush())

    def read_new_visible(self) -> str:
        """Return what is new in the text for the reader since the last call, as far as no later token can change it.

        Returns:
            The new text, perhaps ""; reasoning, a tool call, and what may become a stop string are held back.
        """
        visible = self.visible
        end = len(visible)
        if not self.stopped:
            # The first letters may yet become <think>.
            is_undecided = THINK_OPEN.startswith(self.raw.lstrip())
            if is_undecided and not self._opens_in_reasoning:
                return ""
            end -= tool_call_formats.measure_overlap(visible, self._stop)
        if self._has_tools:
            end = min(end, len(tool_call_formats.cut_before_tool_call(visible)))
        new = visible[self.num_shown : end]
        self.num_shown += len(new)
        return new

    @property
    def visible(self) -> str:
        """The text without its reasoning."""
        start = self._visible_start
        return "" if start is None else self.raw[start:]

    @property
    def reasoning(self) -> str:
        """The text between <think> and </think>, without blanks around it; "" where there is none."""
        if not self._has_reasoning:
            return ""
        text = self.raw.partition(THINK_CLOSE)[0]
        return text.strip().removeprefix(THINK_OPEN).strip()

    @property
    def num_reasoning_tokens(self) -> int:
        """Tokens of the reasoning, markers included."""
        if not self._has_reasoning:
            return 0
        is_open = self._num_reasoning_tokens is None
        return self._num_tokens if is_open else self._num_reasoning_tokens

    @property
    def _has_reasoning(self) -> bool:
        return self._opens_in_reasoning or self.raw.lstrip().startswith(THINK_OPEN)

    @property
    def _visible_start(self) -> int | None:
        """Finds where the visible text starts in `raw`; None inside of the reasoning."""
        if not self._has_reasoning:
            return 0
        close = self.raw.find(THINK_CLOSE)
        if close < 0:
            return None
        end = close + len(THINK_CLOSE)
        remaining = self.raw[end:]
        return end + len(remaining) - len(remaining.lstrip())

    def _append(self, piece: str) -> None:
        """Append text to the reply, and cut it off at the first stop string in what the reader sees."""
        if not piece:
            return
        self.raw += piece
        start = self._visible_start
        if start is None:
            return
        ends = []
        for text in self._stop:
            # A stop string that is new ends within the piece, and may begin before it.
            end = self.raw.find(text, max(start, len(self.raw) - len(piece) - len(text) + 1))
            if end >= 0:
                ends.append(end)
        if ends:
            self.raw = self.raw[: min(ends)]
            self.stopped = True
