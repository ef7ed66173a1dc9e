"""What ends a run that asks language models, as types.

A call that fails is no exception but a `Reply` with a `Failure` (`lib.llm.chat_model`). What stands here no other
call would mend: the run ends, says what to change, and can be resumed.
"""


class LLMError(RuntimeError):
    """Anything that ends a run that asks language models."""


class ConfigurationError(LLMError):
    """What no retry helps against: an unknown model, a missing key, an address where nobody speaks OpenAI's API."""


class InfrastructureError(LLMError):
    """So many calls failed for reasons that say nothing about the model that the run would measure its server."""


class RecordingMiss(LLMError):
    """A request whose reply is not in the recording, in replay."""
