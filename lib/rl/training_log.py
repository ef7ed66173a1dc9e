"""An episode in parts, by who wrote them."""

from collections.abc import Callable, Sequence
from itertools import groupby

from lib.rl.rollout import Episode

VERSION = 1  # of the tables of a training and the parts of an episode


def spoken(
    episode: Episode, decode: Callable[[Sequence[int]], str]
) -> list[tuple[str, str, float]]:
    """An episode in parts, by who wrote the tokens (the mask says it): prompt, controller, an expert, or nobody (the
    response to a malformed turn); the part's text; and what it cost in dollars."""
    responses = iter([x for x in episode.exchanges if x.reply or x.malformed])
    parts = [("prompt", decode(episode.ids[: episode.prompt]), 0.0)]
    at = episode.prompt
    for own, run in groupby(episode.mask[episode.prompt :]):
        end = at + len(list(run))
        text = decode(episode.ids[at:end])
        writer = "controller"
        cost_usd = 0.0
        if not own:
            exchange = next(responses)
            writer = exchange.call.expert if exchange.reply else "nobody"
            cost_usd = exchange.reply.cost_usd if exchange.reply else 0.0
        parts.append((writer, text, cost_usd))
        at = end
    return parts
