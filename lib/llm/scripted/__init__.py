"""Scripted models: programs that read a prompt and reply as a language model would.

`scripted-small`, `-medium` and `-large` answer every prompt of the policy orchestrators (KO, TO, RO and their
summaries), of the judge, of the graders and of the prompted configuration policy. They know the *text* of the request
and nothing else: no simulator, no policy, no setting. They differ in how much of the context they can use (a window at
its end), how noisily they compare numbers, how far they look, and how often they spoil a reply; `STRENGTHS` is the
whole difference. All random numbers come from the request (model, text, seed), so the same request has the same reply
everywhere.

Left out: any claim about language models. The heuristics are plain averages of the numbers in the
prompt, they were not fitted to any result, and nothing here knows a policy by name. The temperature is
ignored. How a prompt's lines look is repeated here as patterns, because this package may not import the
one that writes them; tests hold the two together.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from lib.experiment import seeds
from lib.llm.chat_completion import make_completion
from lib.llm.scripted.configuring import CONFIGURATION_ASKED, choose_configuration
from lib.llm.scripted.deciding import decide
from lib.llm.scripted.grading import (
    GRADE_ASKED,
    PAIR_ASKED,
    VERDICT_ASKED,
    give_verdict,
    grade_answer,
    name_better_answer,
)
from lib.llm.scripted.judging import judge_trajectory
from lib.llm.scripted.malformed_replies import BREAKS, JUDGE_BREAKS, DecisionState
from lib.llm.scripted.model_strength import STRENGTHS, Strength
from lib.llm.scripted.reading import JUDGE_ASKED, SUMMARY_ASKED, read_prompt
from lib.llm.scripted.summarising import write_summary

VERSION = 2  # of what scripted models reply
_TOKEN = re.compile(r"\w+|[^\w\s]")


def complete_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Answer an OpenAI-compatible request.

    Args:
        body: Of it, model, messages, seed and max_completion_tokens or max_tokens are read.

    Returns:
        A chat completion. Tokens are words and punctuation marks, a count of our own.

    Raises:
        ValueError: For a model that is not in STRENGTHS, and for messages that are not text.
    """
    model = body.get("model")
    if model not in STRENGTHS:
        raise ValueError(f"there is no scripted model {model!r}; there are {', '.join(STRENGTHS)}")
    messages = _read_messages(body.get("messages"))

    # The random numbers depend on the whole request, roles included.
    conversation = "\n\n".join(f"<{role}>\n{content}" for role, content in messages)
    digest = hashlib.sha256(conversation.encode("utf-8", "surrogatepass")).hexdigest()
    rng = seeds.rng("scripted", model, digest, seed=int(body.get("seed") or 0))

    # Every earlier reply in the conversation was sent back.
    num_complaints = sum(role == "assistant" for role, _ in messages)
    context = "\n\n".join(content for _, content in messages)
    text, finish_reason = respond(context, STRENGTHS[model], rng, num_complaints)

    # A limit on tokens cuts the reply as a server would.
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    token_ends = [match.end() for match in _TOKEN.finditer(text)]
    if limit is not None and len(token_ends) > limit:
        text = text[: token_ends[limit - 1]]
        finish_reason = "length"
        del token_ends[limit:]
    tokens_in = sum(count_tokens(content) for _, content in messages)
    return make_completion(model, text, tokens_in, len(token_ends), finish_reason)


def _read_messages(messages: Any) -> list[tuple[str, str]]:
    """Reads the messages of a chat request.

    Args:
        messages: {"role", "content"} each.

    Returns:
        (role, content) of each.

    Raises:
        ValueError: They are malformed.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise ValueError(f"messages must be a list of at least one message, got {messages!r}")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
            raise ValueError(f"a message must be a role and a content of text, got {message!r}")
    return [(str(message.get("role")), message["content"]) for message in messages]


@lru_cache(maxsize=1_024)  # a system message comes again and again
def count_tokens(text: str) -> int:
    """Words and punctuation marks: close to but not any tokeniser's count."""
    return len(_TOKEN.findall(text))


def respond(
    context: str, strength: Strength, rng: np.random.Generator, num_complaints: int = 0
) -> tuple[str, str]:
    """Reply to a conversation.

    Args:
        context: All messages in order, joined.
        strength: Strength of the model.
        rng: Random numbers.
        num_complaints: How often the reply was sent back already.

    Returns:
        The text and its finish reason.
    """
    # A small model has forgotten the beginning of a long context.
    text = context if strength.window is None else context[-strength.window :]

    # Texts and grades, which are never spoiled: their readers ask for no JSON.
    if SUMMARY_ASKED in text:
        return write_summary(read_prompt(text), strength), "stop"
    if CONFIGURATION_ASKED in context:
        return choose_configuration(text, strength, rng), "stop"
    if GRADE_ASKED in text:
        return grade_answer(text, strength, rng), "stop"
    if VERDICT_ASKED in text:
        return give_verdict(text, strength, rng), "stop"
    if PAIR_ASKED in text:
        return name_better_answer(text, strength, rng), "stop"

    # JSON: judgements and decisions. Whether it is spoiled is drawn before the reply, and how, behind it.
    is_spoiled = rng.random() < strength.malformed_rate * 0.5**num_complaints
    if JUDGE_ASKED in text:
        reply = judge_trajectory(text, strength, rng)
        state = DecisionState()
        breaks = JUDGE_BREAKS
    else:
        view = read_prompt(text)
        reply = decide(view, strength, rng)
        state = DecisionState(view.names, tuple(trial.name for trial in view.results))
        breaks = BREAKS
    if not is_spoiled:
        return json.dumps(reply, ensure_ascii=False), "stop"
    spoil = breaks[int(rng.integers(len(breaks)))]
    return spoil(reply, state, rng)
