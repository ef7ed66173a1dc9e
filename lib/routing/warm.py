"""The controller before it learns what anything costs: supervised on traces of the protocol.

Traces are drawn by lot: answer at once, or give the next operations (two, four or all that are left) to an
expert and go on with what it said. Soft prompts and numbers only lean (a low budget a little towards solving
it oneself and cheap experts, a high one the other way), as an instructed model would; under hard prompts
traces obey the rule that the prompt states. Nothing here knows a price or which expert is able to do what.
Some responses in the traces are wrong or missing: the controller learns to read what is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from lib import seeds, tasks
from lib.models import checkpoints
from lib.models.corpus import IGNORED, Dialogue
from lib.models.dialogue import conversation, token
from lib.models.tokenizer import EOS, encode
from lib.models.training import Training
from lib.params import LabModel, RoutingSettings
from lib.routing import protocol
from lib.tasks import Item
from lib.tasks.chain import OPERATIONS

PIECES = (2, 4)  # operations of a part of a question; the third choice is all that are left
SKILL = 2  # operations that the controller works out itself; with more it guesses
EASY = 0.5  # chance that it works out itself what it can, less 0.1 of the lean
GUESS = 0.06  # and that it guesses at what it cannot
LEANS = {"low": -1.0, "medium": 0.0, "high": 1.0}  # which way, in units of `lean`
LEAN = 0.6  # chances of experts, cheap to dear, go as 1 - lean ... 1 + lean
WRONG, MISSING = 0.08, 0.03  # shares of responses in the traces
STYLES = {"soft": 0.4, "hard": 0.25, "number": 0.35}  # shares
NUMBERS = (1.0, 200.0)  # budgets in numbers, in units, drawn evenly on a logarithmic scale


def train(base: Path, shape: LabModel, settings: RoutingSettings, folder: Path, progress) -> Path:
    """Train a controller from a lab model into `folder`; shape: the base's settings, for its optimisers."""
    told = settings.warm
    shape = shape.model_copy(update={"steps": told.steps, "batch": told.batch, "warmup": min(shape.warmup, told.steps)})
    training = Training(shape, 0, checkpoints.load(base))
    items = tasks.draw("chain", "train", told.items, _mostly_short(settings.difficulties), seed=told.seed)
    dialogues = corpus(items, tuple(settings.experts), settings.rounds, told.seed, told.lean)
    for step in range(told.steps):
        training.update(dialogues)
        progress((step + 1) / told.steps)
    return checkpoints.save(training.model.eval(), folder)


def _mostly_short(difficulties: Sequence[int]) -> list[int]:
    """Short questions twice: what the controller can work out itself has to be learned too."""
    return sorted([*difficulties, *(d for d in difficulties if d <= SKILL)])


def corpus(items: Sequence[Item], experts: Sequence[str], rounds: int, seed: int, most: float = LEAN) -> list[Dialogue]:
    """A trace of every item, in a style and under a budget by lot; most: the lean of `high`."""
    rng = seeds.rng("routing", "traces", seed=seed)
    names, shares = list(STYLES), np.array(list(STYLES.values()))
    out = []
    for item in items:
        style = names[int(rng.choice(len(names), p=shares / shares.sum()))]
        out.append(trace(item, style, drawn_budget(style, rng), experts, rounds, rng, most))
    return out


def drawn_budget(style: str, rng: np.random.Generator) -> str:
    """A budget as the prompt names it: one of three words, or a number."""
    if style != "number":
        return protocol.WORDS[int(rng.integers(3))]
    return protocol.digits(np.exp(rng.uniform(*np.log(NUMBERS))))


def trace(
    item: Item,
    style: str,
    budget: str,
    experts: Sequence[str],
    rounds: int,
    rng: np.random.Generator,
    most: float = LEAN,
) -> Dialogue:
    """One episode as a dialogue: the controller's tokens are learned, everything else is given."""
    tilt = lean(budget, most)
    ids = conversation(protocol.messages(style, budget, item.prompt))
    targets = [IGNORED] * len(ids)

    def write(text: str, learned: bool) -> None:
        new = encode(text)
        ids.extend(new)
        targets.extend(new if learned else [IGNORED] * len(new))

    chain = item.prompt.removesuffix(" = ?").split()
    for turn in range(rounds):
        left = len(chain) // 2
        if turn == rounds - 1 or left == 0 or _itself(style, budget, left, tilt, rng):
            worked = steps(chain) if left <= SKILL else []
            write(f"{protocol.thought(budget, left, worked)} {tasks.reply(result(chain))}", True)
            break
        length = _length(left, rng)
        part, rest = chain[: 2 * length + 1], chain[2 * length + 1 :]
        call = protocol.call(_expert(experts, tilt, rng), " ".join(part) + " = ?")
        write(f"{protocol.thought(budget, left)} {call}", True)
        said = _said(part, rng)
        write(" ".join([protocol.RESPONSE[0], said, protocol.RESPONSE[1]]), False)
        if said != protocol.ERROR:
            chain = [said, *rest]
    return Dialogue((*ids, token(EOS)), (*targets, IGNORED))


def steps(chain: Sequence[str]) -> list[str]:
    """A chain worked out, one operation after another."""
    total, out = chain[0], []
    for sign, digit in zip(chain[1::2], chain[2::2], strict=True):
        value = str(OPERATIONS[sign](int(total), int(digit)))
        out.append(f"{total} {sign} {digit} = {value}")
        total = value
    return out


def result(chain: Sequence[str]) -> str:
    """The value of a chain of digits and signs."""
    worked = steps(chain)
    return worked[-1].split()[-1] if worked else chain[0]


def _itself(style: str, budget: str, left: int, tilt: float, rng: np.random.Generator) -> bool:
    """Whether the controller answers now. Hard prompts say so: never call, call if needed, always call."""
    if style == "hard":
        return budget == "low" or (budget == "medium" and left <= SKILL)
    return bool(rng.random() < (EASY - 0.1 * tilt if left <= SKILL else GUESS))


def lean(budget: str, most: float = LEAN) -> float:
    """Which way traces lean under a budget: to oneself and cheap experts (below 0), to dear ones (above 0); of a
    number by its logarithm, from the lean of `low` (-most) to that of `high` (most)."""
    if budget in LEANS:
        return most * LEANS[budget]
    low, high = np.log(NUMBERS)
    place = np.clip((np.log(max(int(budget), 1)) - low) / (high - low), 0, 1)
    return float(most * (2 * place - 1))


def _expert(experts: Sequence[str], tilt: float, rng: np.random.Generator) -> str:
    chances = np.linspace(1 - tilt, 1 + tilt, len(experts))
    return experts[int(rng.choice(len(experts), p=chances / chances.sum()))]


def _length(left: int, rng: np.random.Generator) -> int:
    """Operations of the next part. Short ones more often: batches hold traces of like length and count alike, so
    short traces, which ask for whole questions, weigh more than their share."""
    choices = np.array(sorted({min(piece, left) for piece in (*PIECES, left)}))
    return int(rng.choice(choices, p=(1 / choices) / (1 / choices).sum()))


def _said(part: Sequence[str], rng: np.random.Generator) -> str:
    """A response: mostly right, sometimes another digit, sometimes none."""
    lot = rng.random()
    if lot < MISSING:
        return protocol.ERROR
    return str(rng.integers(10)) if lot < MISSING + WRONG else result(part)


def quiet() -> None:
    """One thread, and numbers near zero count as zero: as fast and the same in every process."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
