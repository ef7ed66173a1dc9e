"""Supervised training before any reward in the lab world: to read a menu, and then the form of turns, but no choice.

*Reading* is taught once, to the model that all orchestrators begin with. An exercise repeats the heaviest wish and
lists all tools of a menu in random order, each by a fact and its name: "needed cheap ; + 9 worker4 ; $ 0 judge0 ; ...".
A first course has menus of two tools only: to find the name behind a sign and a level is learned in half the time if
there is less to look through.

*Form* is taught to each orchestrator by traces of its own. A trace calls a tool of the menu that is drawn with equal
probabilities, whatever its ability, its price, and what the user cares for. Its thought says what the user weighs most
and quotes the fact of that kind of the tool: a price for `cheap`, whatever the price. The reply is made up: as often
correct for one tool as for any other. So no trace tells who is good at what, or which prices, latencies and abilities
are wanted. Some exercises in reading are mixed in. Tools that are held out of training are on no menu here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from lib import tasks
from lib.config.budgeted_routing import LabWarmSettings
from lib.experiment import seeds
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.tokenizer import EOS, encode
from lib.language_models.training.training_data import IGNORE_INDEX, Dialogue, tokenize_dialogue
from lib.rl import call_protocol
from lib.tasks import Item
from lib.tool_orchestration.lab_episodes import write_answer_turn, write_call_turn
from lib.tool_orchestration.lab_menus import (
    KIND_SIGNS,
    MENU_SIZE,
    NAME_WORDS,
    NUM_FACTS,
    QUESTIONS,
    WISH_SIGN,
    LabAssignment,
    LabTool,
    draw_assignment,
    draw_user,
    list_wishes,
    name_heaviest_wish,
    write_wishes,
)
from lib.tool_orchestration.tool_menu import OBJECTIVE_WORDS

VERSION = 3  # of the exercises in reading
TRACE_VERSION = 1  # of the traces of form
WRONG_REPLY_SHARE = 0.3
SHORT_MENU_SIZE = 2  # of the first course
FACT_OBJECTIVES = ("accuracy", "cost", "latency")  # in the order of MenuEntry.list_facts
LISTING_SEED = 1_000  # apart from the seeds of traces, so that their questions are others


def make_course(settings: LabWarmSettings, tools: Sequence[LabTool], seed: int) -> list[Dialogue]:
    """Make the data of the supervised training on the form of turns: traces of episodes, and exercises in reading.

    Args:
        settings: `items`, the number of traces, and `listings`, the number of exercises.
        tools: Tools that may be on menus, without those that are held out of training.
        seed: Seed of questions, menus, users and choices.

    Returns:
        Tokenized dialogues with their targets.
    """
    traces = make_format_traces(settings.items, tools, seed)
    return [*traces, *make_listings(settings.listings, tools, seed)]


def make_listings(
    num_listings: int,
    tools: Sequence[LabTool],
    seed: int,
    menu_size: int = MENU_SIZE,
    split: str = "train",
) -> list[Dialogue]:
    """Make exercises in reading a menu: list its tools, each by a fact and its name (`make_listing`).

    Args:
        num_listings: Number of exercises.
        tools: Tools that may be on menus.
        seed: Seed of menus and their order.
        menu_size: Number of tools on every menu.
        split: "train" or "dev".

    Returns:
        Tokenized dialogues with their targets.
    """
    items = tasks.draw_evenly(QUESTIONS, split, num_listings, seed=seed + LISTING_SEED)
    rng = seeds.rng("toolorchestra", "listings", seed=seed)
    return [make_listing(draw_short_menu(item, tools, menu_size, rng), rng) for item in items]


def draw_short_menu(
    item: Item, tools: Sequence[LabTool], menu_size: int, rng: np.random.Generator
) -> LabAssignment:
    """Draw a user and a menu for a question, and shorten the menu to its first `menu_size` tools."""
    assignment = draw_assignment(item, tools, draw_user(rng), rng)
    return replace(assignment, entries=assignment.entries[:menu_size])


def make_format_traces(num_traces: int, tools: Sequence[LabTool], seed: int) -> list[Dialogue]:
    """Make traces of episodes that teach the form of turns, for questions of all kinds in equal numbers.

    Args:
        num_traces: Number of traces.
        tools: Tools that may be on menus, without those that are held out of training.
        seed: Seed of questions, menus, users and choices.

    Returns:
        Tokenized dialogues; only the orchestrator's turns are targets.
    """
    items = tasks.draw_evenly(QUESTIONS, "train", num_traces, seed=seed)
    rng = seeds.rng("toolorchestra", "format traces", seed=seed)
    references_by_kind: dict[str, list[str]] = {}
    for item in items:
        references_by_kind.setdefault(item.group, []).append(item.reference)

    traces = []
    for item in items:
        assignment = draw_assignment(item, tools, draw_user(rng), rng)
        reply = draw_reply(item, references_by_kind[item.group], rng)
        traces.append(make_format_trace(assignment, reply, rng))
    return traces


def draw_reply(item: Item, other_replies: Sequence[str], rng: np.random.Generator) -> str:
    """Draw the made-up reply of a tool.

    Args:
        item: The question.
        other_replies: Answers to questions of the same kind.
        rng: Random number generator.

    Returns:
        One of the other replies with probability WRONG_REPLY_SHARE, else the correct answer.
    """
    if rng.random() < WRONG_REPLY_SHARE:
        return other_replies[int(rng.integers(len(other_replies)))]
    return item.reference


def make_format_trace(assignment: LabAssignment, reply: str, rng: np.random.Generator) -> Dialogue:
    """Make one trace: a call to a tool that is drawn with equal probabilities, the reply, and the answer.

    Args:
        assignment: A question with its menu and user.
        reply: What the tool replies.
        rng: Random number generator.

    Returns:
        The tokenized dialogue; prompt and reply are read, and are no targets.
    """
    # Any tool, so that the form is learned and no preference for a tool.
    entry = assignment.entries[int(rng.integers(len(assignment.entries)))]
    fact_index = FACT_OBJECTIVES.index(list_wishes(assignment.user)[0])
    opening, closing = call_protocol.RESPONSE_TAGS
    segments = [
        (write_call_turn(assignment, entry, fact_index), True),
        (f"{opening} {reply} {closing}", False),
        (write_answer_turn(assignment), True),
    ]
    ids = list(encode_conversation(assignment.messages))
    # Only the orchestrator's own turns are learned: the prompt and the reply of the tool are given.
    targets = [IGNORE_INDEX] * len(ids)
    for text, is_learned in segments:
        segment_ids = encode(text)
        ids += segment_ids
        targets += segment_ids if is_learned else [IGNORE_INDEX] * len(segment_ids)
    return Dialogue((*ids, encode_special(EOS)), (*targets, IGNORE_INDEX))


def make_listing(assignment: LabAssignment, rng: np.random.Generator) -> Dialogue:
    """Make an exercise in reading a menu: repeat the user's heaviest wish, and list one fact of each tool.

    The model reads the menu and the user's wishes, and has to write, for example,

        needed cheap ; + 9 worker4 ; $ 0 judge0

    Args:
        assignment: Its menu, user and kind of question are used, not the question itself.
        rng: Random number generator.

    Returns:
        The tokenized dialogue; the reply is the target.
    """
    kind = assignment.item.group
    entries = [assignment.entries[index] for index in rng.permutation(len(assignment.entries))]
    facts = [entry.list_facts(kind)[int(rng.integers(NUM_FACTS))] for entry in entries]
    wishes = write_wishes(assignment.user)
    menu = assignment.messages[0]
    question = {"role": "user", "content": f"show tools {KIND_SIGNS[kind]} {WISH_SIGN} {wishes}"}
    heaviest = f"{WISH_SIGN} {name_heaviest_wish(assignment.user)}"
    reply = {"role": "assistant", "content": " ; ".join([heaviest, *facts])}
    return tokenize_dialogue([menu, question, reply])


@torch.no_grad()
def measure_reading(model: torch.nn.Module, listings: Sequence[Dialogue]) -> float:
    """Measure how well a model reads menus: its accuracy at the names and wishes in exercises, given all text before.

    A name counts as correct if its first token, the word, is the likeliest next token. A model that only knows which
    names are left to list would have about half of them correct.

    Args:
        model: A lab model.
        listings: Exercises from `make_listings`.

    Returns:
        The fraction of words that are correct.
    """
    words = [*NAME_WORDS, *OBJECTIVE_WORDS.values()]
    word_ids = torch.tensor([encode(word)[0] for word in words])
    num_correct = 0
    num_words = 0
    for listing in listings:
        ids = torch.tensor([listing.ids])  # (1, tokens)
        predicted = model(input_ids=ids).logits[0, :-1].argmax(-1)
        targets = torch.tensor(listing.targets)[1:]  # IGNORE_INDEX where nothing is learned
        is_word = torch.isin(targets, word_ids)
        num_correct += int((predicted == targets)[is_word].sum())
        num_words += int(is_word.sum())
    return num_correct / num_words
