"""What a lab model is taught: dialogues drawn from the training split, and which tokens it learns from.

A data mixture is a list of components: a family, its difficulties and surface forms, in a style, with a share of the
corpus. Style `plain` is a question and its worked solution, `brief` the answer alone, `agent` and `team` the traces
of those modules. The loss falls on what the assistant says and on nothing else.

Left out: the update itself (`lib.language_models.training.pretraining`).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from lib import tasks
from lib.config import MixtureComponent
from lib.experiment import seeds
from lib.language_models.chat_template import (
    add_tools_to_system_message,
    encode_message,
    encode_special,
)
from lib.language_models.tokenizer import BOS, PAD
from lib.language_models.training import agent_traces, team_traces
from lib.tasks import Item

VERSION = 1  # of the batches that a training sees
TRACE_WRITERS = {"agent": agent_traces.write_trace, "team": team_traces.write_trace}  # by style
IGNORE_INDEX = -100  # a target that costs nothing, as in torch
_BATCHES_PER_STRETCH = 8  # within which dialogues are sorted by length


@dataclass(frozen=True)
class Dialogue:
    """A conversation in tokens.

    Attributes:
        ids: The tokens.
        targets: The same where the assistant speaks, else IGNORE_INDEX.
    """

    ids: tuple[int, ...]
    targets: tuple[int, ...]


def tokenize_dialogue(messages: Sequence[dict[str, str]], tools: Sequence[str] = ()) -> Dialogue:
    """Tokenize a conversation for supervised training; the targets are the tokens of the assistant's messages.

    Args:
        messages: {"role", "content"} each.
        tools: Names of the tools on offer.

    Returns:
        Token ids and targets. The assistant's role token is no target, for it belongs to the prompt.
    """
    ids = [encode_special(BOS)]
    targets = [IGNORE_INDEX]
    for message in add_tools_to_system_message(messages, tools):
        # The first token of a message is its role.
        role, content = message["role"], message["content"]
        message_ids = encode_message(role, content)
        ids += message_ids
        if role == "assistant":
            targets += [IGNORE_INDEX, *message_ids[1:]]
        else:
            targets += [IGNORE_INDEX] * len(message_ids)
    return Dialogue(tuple(ids), tuple(targets))


def write_question(item: Item) -> list[dict[str, str]]:
    """The messages that put an item to a model: its prompt and nothing else."""
    return [{"role": "user", "content": item.prompt}]


def build_corpus(data_mixture: Sequence[MixtureComponent], n: int, seed: int) -> list[Dialogue]:
    """Draw the tokenized dialogues that a lab model is trained on.

    Args:
        data_mixture: Components with their shares: task family, difficulties and style each.
        n: About how many dialogues; shares are rounded.
        seed: Seed of items, traces and order.

    Returns:
        The dialogues, in random order.
    """
    total_share = sum(component.share for component in data_mixture)
    dialogues: list[Dialogue] = []
    for i, component in enumerate(data_mixture):
        # Two components of one family draw different items.
        component_seed = seed * 100 + i
        rng = seeds.rng("corpus", component.family, component.style, seed=component_seed)
        items = tasks.draw_items(
            component.family,
            "train",
            round(n * component.share / total_share),
            component.difficulties,
            component.skin,
            component_seed,
        )
        for item in items:
            if component.style in TRACE_WRITERS:
                messages, tools = TRACE_WRITERS[component.style](item, rng)
                dialogues.append(tokenize_dialogue(messages, tools))
                continue
            is_plain = component.style == "plain"
            reply = item.solution if is_plain else tasks.format_reply(item.reference)
            messages = [*write_question(item), {"role": "assistant", "content": reply}]
            dialogues.append(tokenize_dialogue(messages))
    # Every batch is to mix the components.
    order = seeds.rng("corpus", "order", seed=seed).permutation(len(dialogues))
    return [dialogues[i] for i in order]


def make_batches(
    dialogues: Sequence[Dialogue], batch_size: int, seed: int, epoch: int
) -> list[np.ndarray]:
    """Divide dialogues into the batches of one epoch.

    Dialogues of similar lengths share a batch, so that little is padded: a random stretch of several batches is sorted
    by length and cut. The batches come in random order.

    Args:
        dialogues: The corpus.
        batch_size: Dialogues in a batch; the last one of a stretch may have fewer.
        seed: Seed of the order.
        epoch: Every epoch has another order.

    Returns:
        Indices of dialogues, (batch_size,) each.
    """
    rng = seeds.rng("corpus", "batches", seed=seed * 1_000 + epoch)
    lengths = np.array([len(dialogue.ids) for dialogue in dialogues])
    order = rng.permutation(len(dialogues))
    stretch_size = _BATCHES_PER_STRETCH * batch_size
    batches = []
    for begin in range(0, len(order), stretch_size):
        stretch = order[begin : begin + stretch_size]
        by_length = np.argsort(lengths[stretch], kind="stable")
        stretch = stretch[by_length]
        for first in range(0, len(stretch), batch_size):
            batches.append(stretch[first : first + batch_size])
    return [batches[i] for i in rng.permutation(len(batches))]


def collate(dialogues: Sequence[Dialogue]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pad the dialogues of a batch on the right to the longest of them.

    Args:
        dialogues: The batch, B of them.

    Returns:
        Token ids and targets, (B, T) each; padding is no target.
    """
    # Both start as padding alone; each dialogue overwrites the beginning of its row.
    width = max(len(dialogue.ids) for dialogue in dialogues)
    shape = (len(dialogues), width)
    ids = torch.full(shape, encode_special(PAD))
    targets = torch.full(shape, IGNORE_INDEX)
    for row, dialogue in enumerate(dialogues):
        length = len(dialogue.ids)
        row_ids = torch.tensor(dialogue.ids)
        row_targets = torch.tensor(dialogue.targets)
        ids[row, :length] = row_ids
        targets[row, :length] = row_targets
    return ids, targets
