"""The controller before it learns what anything costs: supervised on traces of the protocol, of its form alone.

Whether a trace answers at once or calls, whom it calls and what it does after a reply are drawn by lot, the same lot
under every budget and every prompt: what a trained controller does about budgets it has learned from rewards. Nothing
here knows a price or which expert is able to do what. Some responses in the traces are wrong or missing: the
controller learns to read what is there. Where it answers by itself it works out short chains, which its base can;
anything else it guesses, so that no answer is learned by heart here.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from lib import tasks
from lib.config import LabModelSettings, RoutingSettings, Target, WarmSettings
from lib.experiment import seeds
from lib.language_models import checkpoints
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.tokenizer import EOS, encode
from lib.language_models.training.pretraining import Pretraining
from lib.language_models.training.training_data import IGNORE_INDEX, Dialogue
from lib.rl import call_protocol
from lib.tasks import Item
from lib.tasks.arithmetic_chain import OPERATIONS

VERSION = 1  # of the traces of the protocol and the lessons from them
SKILL = 2  # operations of a chain that the controller works out itself
ITSELF = 0.3  # chance that it answers without a call
AGAIN = 0.1  # and that it asks once more after a reply
WRONG, MISSING = 0.08, 0.03  # shares of responses in the traces
STYLES = {"soft": 0.4, "hard": 0.25, "number": 0.35}  # shares
NUMBERS = (5.0, 160.0)  # budgets in numbers, in units, drawn evenly on a logarithmic scale
READ_OF_BASE = ("muon", "adamw", "warmup")  # fields of the base's settings that its lessons read
_NO_TARGET = Target(
    family="chain", difficulty=1, accuracy=0.0
)  # traces are taught to the end, without looks at dev


def train(
    base: Path,
    shape: LabModelSettings,
    settings: RoutingSettings,
    experts: Sequence[str],
    folder: Path,
    progress,
    seed: int = 0,
) -> Path:
    """Train a controller from a lab model.

    Args:
        base: Folder of the lab model.
        shape: Its settings, for its optimisers: READ_OF_BASE.
        settings: questions, rounds and warm.
        experts: The controller's words for them.
        folder: Where the controller goes.
        progress: progress(fraction) is called after every update.
        seed: Of the traces and their order.

    Returns:
        `folder`.
    """
    lessons = settings.warm
    items = tasks.draw_evenly(settings.questions, "train", lessons.items, seed=lessons.seed + seed)
    dialogues = corpus(items, tuple(experts), settings.rounds, lessons.seed + seed)
    return taught(base, shape, lessons, dialogues, folder, progress, seed)


def taught(
    base: Path,
    shape: LabModelSettings,
    lessons: WarmSettings,
    dialogues: Sequence[Dialogue],
    folder: Path,
    progress,
    seed: int = 0,
) -> Path:
    """Train a lab model on dialogues into `folder`; shape: its settings, for its optimisers: READ_OF_BASE."""
    changes = {
        "steps": lessons.steps,
        "batch": lessons.batch,
        "warmup": min(shape.warmup, lessons.steps),
        "target": _NO_TARGET,
        "items": 1,
    }
    training = Pretraining(shape.model_copy(update=changes), seed, checkpoints.load(base))
    for step in range(lessons.steps):
        training.update(dialogues)
        progress((step + 1) / lessons.steps)
    return checkpoints.save(training.model.eval(), folder)


def corpus(items: Sequence[Item], experts: Sequence[str], rounds: int, seed: int) -> list[Dialogue]:
    """A trace of every item, in a style and under a budget by lot, in random order."""
    rng = seeds.rng("routing", "traces", seed=seed)
    names, shares = list(STYLES), np.array(list(STYLES.values()))
    answers: dict[str, list[str]] = {}
    for item in items:
        answers.setdefault(item.group, []).append(item.reference)
    out = []
    for item in (items[i] for i in rng.permutation(len(items))):
        style = names[int(rng.choice(len(names), p=shares / shares.sum()))]
        out.append(trace(item, style, drawn_budget(style, rng), experts, rounds, rng, answers))
    return out


def drawn_budget(style: str, rng: np.random.Generator) -> str:
    """A budget as the prompt names it: one of three words, or a number."""
    if style != "number":
        return call_protocol.WORDS[int(rng.integers(3))]
    return call_protocol.digits(np.exp(rng.uniform(*np.log(NUMBERS))))


def trace(
    item: Item,
    style: str,
    budget: str,
    experts: Sequence[str],
    rounds: int,
    rng: np.random.Generator,
    answers: Mapping[str, Sequence[str]],
) -> Dialogue:
    """One episode as a dialogue: the controller's tokens are learned, everything else is given. answers: by category,
    what a guess is drawn from."""
    ids = encode_conversation(call_protocol.messages(style, budget, item.prompt))
    targets = [IGNORE_INDEX] * len(ids)

    def write(text: str, learned: bool) -> None:
        new = encode(text)
        ids.extend(new)
        targets.extend(new if learned else [IGNORE_INDEX] * len(new))

    told = False  # by the last response
    for turn in range(rounds):
        if turn == rounds - 1 or rng.random() < (1 - AGAIN if told else ITSELF):
            steps, given = ([], call_protocol.AS_HEARD) if told else _itself(item, answers, rng)
            write(f"{call_protocol.thought(budget, steps)} {tasks.format_reply(given)}", True)
            break
        expert = experts[int(rng.integers(len(experts)))]
        write(f"{call_protocol.thought(budget)} {call_protocol.call(expert)}", True)
        said = _said(item, answers, rng)
        write(" ".join([call_protocol.RESPONSE[0], said, call_protocol.RESPONSE[1]]), False)
        told = said != call_protocol.ERROR
    return Dialogue((*ids, encode_special(EOS)), (*targets, IGNORE_INDEX))


def _itself(
    item: Item, answers: Mapping[str, Sequence[str]], rng: np.random.Generator
) -> tuple[list[str], str]:
    """The steps and the answer of a controller that asks nobody."""
    if item.group != "chain" or item.difficulty > SKILL:
        return [], _guess(item, answers, rng)
    return steps(item.prompt.removesuffix(" = ?").split()), item.reference


def _guess(item: Item, answers: Mapping[str, Sequence[str]], rng: np.random.Generator) -> str:
    """An answer to some other question of the kind."""
    others = answers[item.group]
    return others[int(rng.integers(len(others)))]


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


def _said(item: Item, answers: Mapping[str, Sequence[str]], rng: np.random.Generator) -> str:
    """A response: mostly right, sometimes another answer, sometimes none."""
    lot = rng.random()
    if lot < MISSING:
        return call_protocol.ERROR
    return _guess(item, answers, rng) if lot < MISSING + WRONG else item.reference
