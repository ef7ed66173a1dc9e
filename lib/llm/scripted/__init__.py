"""Scripted stand-ins: programs that read a prompt and reply as a language model would.

`scripted-small`, `-medium` and `-large` answer every prompt of the policy orchestrators (KO, TO, RO,
their summaries), of the judge, and of whoever has answers graded. They know the *text* of the request
and nothing else: no simulator, no policy, no setting of the bench. They differ in how much of the
context they can use (a window at its end), how noisily they compare numbers, how far they look, and how
often they spoil a reply; `STRENGTHS` is the whole difference. All chance comes from the request (model,
text, seed), so the same request has the same reply everywhere.

Left out: any claim about language models. The heuristics are plain averages of the numbers in the
prompt, they were not fitted to any result, and nothing here knows a policy by name. The temperature is
ignored. How a prompt's lines look is repeated here as patterns, because this room may not import the
one that writes them; tests hold the two together.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from lib.experiment import seeds
from lib.llm.scripted.configuring import CONFIGURATION_ASKED, configure
from lib.llm.scripted.deciding import decide
from lib.llm.scripted.grading import GRADE_ASKED, PAIR_ASKED, VERDICT_ASKED, better, grade, verdict
from lib.llm.scripted.judging import judge
from lib.llm.scripted.malformed_replies import BREAKS, JUDGE_BREAKS, Options
from lib.llm.scripted.model_strength import STRENGTHS, Draw, Strength
from lib.llm.scripted.reading import JUDGE_ASKED, SUMMARY_ASKED, read
from lib.llm.scripted.summarising import summarise
from lib.llm.transport import InProcess, completion

VERSION = 1  # of what scripted models reply


def answer(body: Mapping[str, Any]) -> dict[str, Any]:
    """The chat completion for an OpenAI-compatible request body.

    Read are model, messages, seed and max_completion_tokens or max_tokens; tokens are words and
    punctuation marks, our own count. Raises ValueError for a model that is not in STRENGTHS and for
    messages that are not text.
    """
    model = body.get("model")
    if model not in STRENGTHS:
        raise ValueError(f"there is no scripted model {model!r}; there are {', '.join(STRENGTHS)}")
    messages = _checked(body.get("messages"))
    whole = "\n\n".join(f"<{role}>\n{content}" for role, content in messages)
    digest = hashlib.sha256(whole.encode("utf-8", "surrogatepass")).hexdigest()
    draw = seeds.rng("scripted", model, digest, seed=int(body.get("seed") or 0))
    complaints = sum(role == "assistant" for role, _ in messages)
    text, finish = respond(
        "\n\n".join(content for _, content in messages), STRENGTHS[model], draw, complaints
    )
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    text, used, cut = _limited(text, limit)
    asked = sum(count_tokens(content) for _, content in messages)
    return completion(model, text, asked, used, "length" if cut else finish)


def transport() -> InProcess:
    """The stand-ins behind the same client as endpoints."""
    return InProcess(answer)


def respond(context: str, strength: Strength, draw: Draw, complaints: int = 0) -> tuple[str, str]:
    """The text of a reply and its finish reason.

    context: all messages in order, joined; complaints: how often the reply was sent back already.
    """
    text = context if strength.window is None else context[-strength.window :]
    if SUMMARY_ASKED in text:
        return summarise(read(text), strength), "stop"
    if CONFIGURATION_ASKED in context:
        return configure(text, strength, draw), "stop"
    if GRADE_ASKED in text:
        return grade(text, strength, draw), "stop"
    if VERDICT_ASKED in text:
        return verdict(text, strength, draw), "stop"
    if PAIR_ASKED in text:
        return better(text, strength, draw), "stop"
    spoil = draw.random() < strength.breaks * 0.5**complaints
    if JUDGE_ASKED in text:
        reply, breaks, options = judge(text, strength, draw), JUDGE_BREAKS, Options()
    else:
        view = read(text)
        reply, breaks = decide(view, strength, draw), BREAKS
        options = Options(view.names, tuple(trial.name for trial in view.results))
    if not spoil:
        return json.dumps(reply, ensure_ascii=False), "stop"
    return breaks[int(draw.integers(len(breaks)))](reply, options, draw)


_TOKEN = re.compile(r"\w+|[^\w\s]")


@lru_cache(maxsize=1_024)  # a system message comes again and again
def count_tokens(text: str) -> int:
    """Words and punctuation marks: the stand-ins' own count, close to but not any tokeniser's."""
    return len(_TOKEN.findall(text))


def _limited(text: str, limit: int | None) -> tuple[str, int, bool]:
    """The text up to its limit-th token, its tokens, and whether anything was cut off."""
    ends = [match.end() for match in _TOKEN.finditer(text)]
    if limit is None or len(ends) <= limit:
        return text, len(ends), False
    return text[: ends[limit - 1]], limit, True


def _checked(messages: Any) -> list[tuple[str, str]]:
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise ValueError(f"messages must be a list of at least one message, got {messages!r}")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("content"), str):
            raise ValueError(f"a message must be a role and a content of text, got {message!r}")
    return [(str(message.get("role")), message["content"]) for message in messages]
