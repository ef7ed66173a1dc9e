"""An episode as a transcript: segments of text, each with its writer and its cost."""

from collections.abc import Callable, Sequence
from itertools import groupby

from lib.rl.rollout import Episode

VERSION = 1  # of the tables of a training and the segments of an episode


def split_by_writer(
    episode: Episode, decode: Callable[[Sequence[int]], str]
) -> list[tuple[str, str, float]]:
    """Split an episode into segments by who wrote the tokens, which the mask says.

    Args:
        episode: What was rolled out.
        decode: Token ids to text.

    Returns:
        (writer, text, cost in US dollars) of each segment. The writer is "prompt", "controller", the name of an
        expert, or "nobody" for the response to a malformed turn.
    """
    answered_turns = iter([turn for turn in episode.turns if turn.reply or turn.malformed])
    start = episode.prompt_length
    segments = [("prompt", decode(episode.ids[:start]), 0.0)]
    for by_controller, run in groupby(episode.mask[start:]):
        end = start + len(list(run))
        text = decode(episode.ids[start:end])
        writer = "controller"
        cost_usd = 0.0
        if not by_controller:
            turn = next(answered_turns)
            writer = turn.call.expert if turn.reply else "nobody"
            cost_usd = turn.reply.cost_usd if turn.reply else 0.0
        segments.append((writer, text, cost_usd))
        start = end
    return segments
