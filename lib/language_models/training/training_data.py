"""What a lab model is taught: dialogues drawn from the training split, and which tokens it learns from.

A data mixture is a list of courses: a family, its difficulties and skins, in a style, with a share. Style
`plain` is a question and its worked solution, `brief` the answer alone, `agent` and `team` the traces of
those modules.
Loss falls on what the assistant says and on nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lib import tasks
from lib.config import Course
from lib.experiment import seeds
from lib.language_models.chat_template import token, turn, with_tools
from lib.language_models.tokenizer import BOS, PAD
from lib.language_models.training import agent_traces, team_traces
from lib.tasks import Item

VERSION = 1  # of the batches that a training sees
TRACES = {"agent": agent_traces.trace, "team": team_traces.trace}  # by style
IGNORED = -100  # a target that costs nothing, as in torch


@dataclass(frozen=True)
class Dialogue:
    """ids: tokens; targets: the same where the assistant speaks, else IGNORED."""

    ids: tuple[int, ...]
    targets: tuple[int, ...]


def dialogue(messages: Sequence[dict[str, str]], tools: Sequence[str] = ()) -> Dialogue:
    """A conversation with its targets. The role token itself is given, not learned."""
    ids, targets = [token(BOS)], [IGNORED]
    for message in with_tools(messages, tools):
        said = turn(message["role"], message["content"])
        ids += said
        targets += [IGNORED, *said[1:]] if message["role"] == "assistant" else [IGNORED] * len(said)
    return Dialogue(tuple(ids), tuple(targets))


def question(item: Item) -> list[dict[str, str]]:
    """What is asked of a model that is shown an item."""
    return [{"role": "user", "content": item.prompt}]


def corpus(data_mixture: Sequence[Course], n: int, seed: int) -> list[Dialogue]:
    """About n dialogues, shares as the data mixture says, in random order."""
    total = sum(course.share for course in data_mixture)
    out: list[Dialogue] = []
    for i, course in enumerate(data_mixture):
        rng = seeds.rng("corpus", course.family, course.style, seed=seed * 100 + i)
        for item in tasks.draw(
            course.family,
            "train",
            round(n * course.share / total),
            course.difficulties,
            course.skin,
            seed * 100 + i,
        ):
            out.append(_taught(item, course.style, rng))
    return [out[i] for i in seeds.rng("corpus", "order", seed=seed).permutation(len(out))]


def _taught(item: Item, style: str, rng: np.random.Generator) -> Dialogue:
    if style in TRACES:
        return dialogue(*TRACES[style](item, rng))
    said = item.solution if style == "plain" else tasks.reply(item.answer)
    return dialogue([*question(item), {"role": "assistant", "content": said}])


def batches(dialogues: Sequence[Dialogue], size: int, seed: int, epoch: int) -> list[np.ndarray]:
    """Indices of one epoch's batches: like lengths together, batches in random order."""
    rng = seeds.rng("corpus", "batches", seed=seed * 1_000 + epoch)
    lengths = np.array([len(d.ids) for d in dialogues])
    order = rng.permutation(len(dialogues))
    stretches = [order[i : i + 8 * size] for i in range(0, len(order), 8 * size)]
    sorted_stretches = [s[np.argsort(lengths[s], kind="stable")] for s in stretches]
    out = [s[i : i + size] for s in sorted_stretches for i in range(0, len(s), size)]
    return [out[i] for i in rng.permutation(len(out))]


def tensors(dialogues: Sequence[Dialogue]) -> tuple[torch.Tensor, torch.Tensor]:
    """ids and targets, (B, T) each, padded on the right."""
    width = max(len(d.ids) for d in dialogues)
    pad = token(PAD)
    ids = torch.tensor([[*d.ids, *[pad] * (width - len(d.ids))] for d in dialogues])
    targets = torch.tensor([[*d.targets, *[IGNORED] * (width - len(d.targets))] for d in dialogues])
    return ids, targets
