"""Supervised training in the protocol before reinforcement learning: a controller learns the form of its turns alone.

Whether a trace answers at once or calls, which expert it calls and what it does after a reply is random, and equally
likely under every budget and every prompt: what a trained controller does about budgets it has learned from rewards.
No price and no expert's ability enters a trace. Some responses in the traces are wrong or missing, so that the
controller learns to read what is there. Where it answers without a call it works out short chains, which its base
model can; anything else it guesses, so that no answer is learned by heart here.

Where `split_share` is above 0, some traces show a query that the controller writes itself (g of CoRL, eq. 2): the first
part of a chain goes to one expert, and its reply with the rest of the chain to another. Where it is cut is random too.

    3 + 4 * 2 - 5 = ?        <call> lab-mini <t> 3 + 4 = ? </t> </call>        <response> 7 </response>
                             <call> lab-mini <t> 7 * 2 - 5 = ? </t> </call>    <response> 9 </response>
"""

from collections.abc import Callable, Mapping, Sequence
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

VERSION = 1  # of the traces of the protocol and the training on them
MAX_SOLVED_OPERATIONS = 2  # the longest chain that a trace works out without a call
ANSWER_AT_ONCE_PROBABILITY = (
    0.3  # of an answer without a call, in the first turn and after an error
)
CALL_AGAIN_PROBABILITY = 0.1  # of another call after a reply
WRONG_RESPONSE_SHARE = 0.08
MISSING_RESPONSE_SHARE = 0.03
STYLE_SHARES = {"soft": 0.4, "hard": 0.25, "number": 0.35}  # of the prompts, by style
BASE_SETTINGS = (
    "muon",
    "adamw",
    "warmup",
)  # fields of the base model's settings that are read here
# All steps are made, without evaluations on the way: no accuracy ends the training early.
_NO_TARGET = Target(family="chain", difficulty=1, accuracy=0.0)

ReportProgress = Callable[[float], object]  # called with the fraction that is done


def train_protocol(
    base: Path,
    base_settings: LabModelSettings,
    settings: RoutingSettings,
    experts: Sequence[str],
    folder: Path,
    report_progress: ReportProgress,
    seed: int = 0,
    split_share: float = 0.0,
) -> Path:
    """Train a controller from a lab model, on traces of the protocol.

    Args:
        base: Folder of the lab model.
        base_settings: Its settings, for the optimisers: BASE_SETTINGS.
        settings: questions, rounds, budget_range and warm are read.
        experts: Names as the controller writes them.
        folder: Where the controller goes.
        report_progress: Called after every update.
        seed: Seed of the traces and their order.
        split_share: Share of the chains that are split into two queries.

    Returns:
        `folder`.
    """
    warmup = settings.warm
    trace_seed = warmup.seed + seed
    items = tasks.draw_evenly(settings.questions, "train", warmup.items, seed=trace_seed)
    traces = make_traces(
        items, tuple(experts), settings.rounds, settings.budget_range, trace_seed, split_share
    )
    return train_on_dialogues(base, base_settings, warmup, traces, folder, report_progress, seed)


def train_on_dialogues(
    base: Path,
    base_settings: LabModelSettings,
    warmup: WarmSettings,
    dialogues: Sequence[Dialogue],
    folder: Path,
    report_progress: ReportProgress,
    seed: int = 0,
) -> Path:
    """Train a lab model on dialogues.

    Args:
        base: Folder of the lab model.
        base_settings: Its settings, for the optimisers: BASE_SETTINGS.
        warmup: steps and batch are read.
        dialogues: With the targets that are learned.
        folder: Where the trained model goes.
        report_progress: Called after every update.
        seed: Seed of the order of the dialogues.

    Returns:
        `folder`.
    """
    changes = {
        "steps": warmup.steps,
        "batch": warmup.batch,
        "warmup": min(base_settings.warmup, warmup.steps),
        "target": _NO_TARGET,
        "items": 1,
    }
    training_settings = base_settings.model_copy(update=changes)
    training = Pretraining(training_settings, seed, checkpoints.load(base))
    for step in range(warmup.steps):
        training.update(dialogues)
        report_progress((step + 1) / warmup.steps)
    return checkpoints.save(training.model.eval(), folder)


def make_traces(
    items: Sequence[Item],
    experts: Sequence[str],
    max_turns: int,
    budget_range: Sequence[float],
    seed: int,
    split_share: float = 0.0,
) -> list[Dialogue]:
    """Make a trace of every item, in a random style and under a random budget.

    Args:
        items: Questions.
        experts: Names as the controller writes them.
        max_turns: Largest number of turns of the controller.
        budget_range: Smallest and largest budget in numbers, in units.
        seed: Seed of all that is random.
        split_share: Probability that a chain of two or more operations is split into two queries.

    Returns:
        Traces, in random order.
    """
    rng = seeds.rng("routing", "traces", seed=seed)
    styles = list(STYLE_SHARES)
    shares = np.array(list(STYLE_SHARES.values()))
    answers_by_group: dict[str, list[str]] = {}
    for item in items:
        answers_by_group.setdefault(item.group, []).append(item.reference)

    traces = []
    for index in rng.permutation(len(items)):
        style = styles[int(rng.choice(len(styles), p=shares / shares.sum()))]
        budget = call_protocol.draw_budget(style, rng, budget_range)
        item = items[index]
        can_split = split_share > 0 and item.group == "chain" and item.difficulty >= 2
        if can_split and rng.random() < split_share:
            traces.append(make_split_trace(item, style, budget, experts, rng))
        else:
            traces.append(
                make_trace(item, style, budget, experts, max_turns, rng, answers_by_group)
            )
    return traces


def make_trace(
    item: Item,
    style: str,
    budget: str,
    experts: Sequence[str],
    max_turns: int,
    rng: np.random.Generator,
    answers_by_group: Mapping[str, Sequence[str]],
) -> Dialogue:
    """Make one episode as a dialogue, of which the controller's tokens are learned.

    Args:
        item: The question.
        style: Style of the prompt.
        budget: As the prompt names it.
        experts: Names as the controller writes them.
        max_turns: Largest number of turns of the controller.
        rng: Decides what the trace does.
        answers_by_group: Reference answers by the items' group, from which a guess is drawn.

    Returns:
        The dialogue.
    """
    trace = _TraceWriter(style, budget, item.prompt)
    has_reply = False  # the last response was one, and no error
    for turn in range(max_turns):
        answer_probability = ANSWER_AT_ONCE_PROBABILITY
        if has_reply:
            answer_probability = 1 - CALL_AGAIN_PROBABILITY
        if turn == max_turns - 1 or rng.random() < answer_probability:
            steps: list[str] = []
            answer = call_protocol.LAST_REPLY
            if not has_reply:
                steps, answer = _answer_without_experts(item, answers_by_group, rng)
            trace.write_answer(answer, steps)
            break

        expert = experts[int(rng.integers(len(experts)))]
        response = _draw_response(item, answers_by_group, rng)
        trace.write_call(expert, call_protocol.USER_QUESTION, response)
        has_reply = response != call_protocol.ERROR_REPLY
    return trace.finish()


def make_split_trace(
    item: Item, style: str, budget: str, experts: Sequence[str], rng: np.random.Generator
) -> Dialogue:
    """Make one episode in which the controller splits a chain into two queries and hands the second reply on.

    Args:
        item: A chain of two operations or more.
        style: Style of the prompt.
        budget: As the prompt names it.
        experts: Names as the controller writes them.
        rng: Decides where the chain is cut, which experts are called, and whether the first reply is wrong.

    Returns:
        The dialogue. Where the first reply is wrong the second query goes on with it, as a controller would.
    """
    chain = _read_chain(item)
    num_first = int(rng.integers(1, item.difficulty))  # operations of the first query
    first_part = chain[: 2 * num_first + 1]
    subtotal = evaluate_chain(first_part)
    if rng.random() < WRONG_RESPONSE_SHARE:
        subtotal = str(rng.integers(10))
    second_part = [subtotal, *chain[2 * num_first + 1 :]]

    trace = _TraceWriter(style, budget, item.prompt)
    for part, response in ((first_part, subtotal), (second_part, evaluate_chain(second_part))):
        expert = experts[int(rng.integers(len(experts)))]
        trace.write_call(expert, f"{' '.join(part)} = ?", response)
    trace.write_answer(call_protocol.LAST_REPLY)
    return trace.finish()


class _TraceWriter:
    """Writes the turns of one trace; only what the controller says is learned."""

    def __init__(self, style: str, budget: str, question: str) -> None:
        """
        Args:
            style: Style of the prompt.
            budget: As the prompt names it.
            question: The user's.
        """
        self.budget = budget
        self.ids = encode_conversation(call_protocol.make_messages(style, budget, question))
        self.targets = [IGNORE_INDEX] * len(self.ids)

    def write_call(self, expert: str, query: str, response: str) -> None:
        """The controller calls an expert, which responds."""
        reasoning = call_protocol.format_reasoning(self.budget)
        self._append(f"{reasoning} {call_protocol.format_call(expert, query)}", is_learned=True)
        opening, closing = call_protocol.RESPONSE_TAGS
        self._append(f"{opening} {response} {closing}", is_learned=False)

    def write_answer(self, answer: str, steps: Sequence[str] = ()) -> None:
        """The controller answers, after the steps of a solution of its own."""
        reasoning = call_protocol.format_reasoning(self.budget, steps)
        self._append(f"{reasoning} {tasks.format_reply(answer)}", is_learned=True)

    def finish(self) -> Dialogue:
        """The trace with its end token."""
        return Dialogue((*self.ids, encode_special(EOS)), (*self.targets, IGNORE_INDEX))

    def _append(self, text: str, is_learned: bool) -> None:
        new_ids = encode(text)
        self.ids.extend(new_ids)
        self.targets.extend(new_ids if is_learned else [IGNORE_INDEX] * len(new_ids))


def _read_chain(item: Item) -> list[str]:
    """The digits and signs of a chain's question, in turn."""
    return item.prompt.removesuffix(" = ?").split()


def solve_chain(chain: Sequence[str]) -> list[str]:
    """Work out a chain, one operation after another.

    Args:
        chain: Digits and signs in turn, such as 3 + 4 * 2.

    Returns:
        Steps, such as "3 + 4 = 7"; none for a single digit.
    """
    total = chain[0]
    steps = []
    for sign, digit in zip(chain[1::2], chain[2::2], strict=True):
        value = str(OPERATIONS[sign](int(total), int(digit)))
        steps.append(f"{total} {sign} {digit} = {value}")
        total = value
    return steps


def evaluate_chain(chain: Sequence[str]) -> str:
    """Compute the value of a chain of digits and signs."""
    steps = solve_chain(chain)
    return steps[-1].split()[-1] if steps else chain[0]


def _answer_without_experts(
    item: Item, answers_by_group: Mapping[str, Sequence[str]], rng: np.random.Generator
) -> tuple[list[str], str]:
    """The steps and the answer of a trace that works a short chain out, or guesses."""
    if item.group != "chain" or item.difficulty > MAX_SOLVED_OPERATIONS:
        return [], _draw_guess(item, answers_by_group, rng)
    return solve_chain(_read_chain(item)), item.reference


def _draw_guess(
    item: Item, answers_by_group: Mapping[str, Sequence[str]], rng: np.random.Generator
) -> str:
    """The answer to some question of the same group."""
    answers = answers_by_group[item.group]
    return answers[int(rng.integers(len(answers)))]


def _draw_response(
    item: Item, answers_by_group: Mapping[str, Sequence[str]], rng: np.random.Generator
) -> str:
    """Draws a simulated response of an expert: mostly correct, sometimes another answer, sometimes an error.

    Args:
        item: The question with its correct answer.
        answers_by_group: Answers to other questions of the same kind, by kind.
        rng: Random numbers.
    """
    uniform = rng.random()
    if uniform < MISSING_RESPONSE_SHARE:
        return call_protocol.ERROR_REPLY
    if uniform < MISSING_RESPONSE_SHARE + WRONG_RESPONSE_SHARE:
        return _draw_guess(item, answers_by_group, rng)
    return item.reference
