"""What can go wrong with a language model, as types.

A `ReplyError` is one call that gave nothing usable: the episode goes on with its fallback and counts
it. A `ConfigurationError` is a mistake that no second try mends: the run ends and says what to change.
`CassetteMiss` is a request that a replay does not know.
"""

KINDS = (
    "timeout", "connection", "rate_limit", "server_error", "bad_request",
    "empty_body", "not_json", "error_in_reply", "no_choices", "null_content",
    "truncated", "refusal", "content_filter", "too_large",
)  # fmt: skip


class LLMError(RuntimeError):
    """Anything about a language model."""


class ReplyError(LLMError):
    """One call whose reply cannot be used. kind: one of `KINDS`; text, tokens and dollars: what came, and
    was billed, all the same."""

    def __init__(
        self,
        kind: str,
        message: str,
        text: str = "",
        tokens_in: int = 0,
        tokens_out: int = 0,
        cost_usd: float = 0.0,
        kwh: float = 0.0,
    ) -> None:
        if kind not in KINDS:
            raise ValueError(f"unknown kind of reply error {kind!r}; there are {', '.join(KINDS)}")
        super().__init__(
            kind, message, text, tokens_in, tokens_out, cost_usd, kwh
        )  # so it travels between processes
        self.kind, self.text = kind, text
        self.tokens_in, self.tokens_out, self.cost_usd, self.kwh = (
            tokens_in,
            tokens_out,
            cost_usd,
            kwh,
        )

    def __str__(self) -> str:
        return self.args[1]


class ConfigurationError(LLMError):
    """What no retry helps against: an unknown model, a missing key, a refused one."""


class CassetteMiss(LLMError):
    """A request that the cassette does not hold, in replay."""
