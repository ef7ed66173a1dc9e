"""The orchestrator before it learns what anything is worth: supervised on traces of the protocol.

A trace uses a tool of the menu by lot, whether it is good at the question or not, and its replies are made up: mostly
right, sometimes wrong or missing. So nothing here knows what a tool can do. Chances lean towards what the user likes
(`tools.warm.preference_bias`), as an instructed model would. On the menus of traces names of models stand beside each
other's descriptions, by lot: a name is a word, not an ability.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lib import tasks
from lib.experiment import seeds
from lib.language_models.chat_template import encode_conversation, encode_special, format_tool_call
from lib.language_models.tokenizer import EOS, encode
from lib.language_models.training.training_data import IGNORE_INDEX, Dialogue
from lib.rl import call_protocol
from lib.rl.sft_warmup import evaluate_chain, solve_chain
from lib.tasks import Item, multi_hop_facts
from lib.tasks.synthesis import Task
from lib.tool_orchestration.episode_specs import Assignment, draw_assignments, draw_mixed_tasks
from lib.tool_orchestration.single_tool_baselines import list_golden_calls, make_strategy
from lib.tool_orchestration.tool_menu import KIND_SIGNS, Offer

VERSION = 1  # of the traces of the protocol
SKILL = 2  # operations of a chain that the orchestrator works out itself
EASY = 0.25  # chance that it does
WRONG, MISSING = 0.06, 0.1  # shares of replies
OFFICE_SIGN = "!"  # of office tasks in a thought


def make_traces(
    n: int,
    offers: Mapping[str, Offer],
    spread: float,
    preference_bias: float,
    offices: Sequence[Task],
    seed: int,
) -> list[Dialogue]:
    """n traces."""
    rng = seeds.rng("toolorchestra", "traces", seed=seed)
    works = draw_mixed_tasks(n, "train", seed, offices)
    names = [name for name in offers if name != "office"]
    return [
        make_trace(shuffle_descriptions(a, rng), preference_bias, rng)
        for a in draw_assignments(works, offers, names, spread, rng)
    ]


def shuffle_descriptions(assignment: Assignment, rng: np.random.Generator) -> Assignment:
    """The same menu with the descriptions of its models dealt out anew."""
    menu = assignment.menu
    models = [i for i, offer in enumerate(menu.offers) if offer.model]
    dealt = list(menu.offers)
    for i, j in zip(models, rng.permutation(models).tolist(), strict=True):
        dealt[i] = replace(menu.offers[i], skills=menu.offers[j].skills)
    return replace(assignment, menu=replace(menu, offers=tuple(dealt)))


def write_thought(kind: str, left: int, worked: Sequence[str] = ()) -> str:
    """What stands before a turn: what the work is, how much of it is left, and what is worked out by itself."""
    return " ".join(
        [
            "<think>",
            KIND_SIGNS.get(kind, OFFICE_SIGN),
            str(left),
            *(f"; {step}" for step in worked),
            "</think>",
        ]
    )


class _Trace:
    """A dialogue under construction: what the orchestrator writes is learned, the rest is given."""

    def __init__(self, assignment: Assignment) -> None:
        self.kind = assignment.kind
        self.ids = encode_conversation(assignment.messages)
        self.targets = [IGNORE_INDEX] * len(self.ids)

    def write(self, text: str, learned: bool = True) -> None:
        new = encode(text)
        self.ids += new
        self.targets += new if learned else [IGNORE_INDEX] * len(new)

    def call(self, left: int, tool: str, argument: str, reply: str) -> None:
        self.write(f"{write_thought(self.kind, left)} {format_tool_call(tool, argument)}")
        self.write(
            " ".join([call_protocol.RESPONSE_TAGS[0], reply, call_protocol.RESPONSE_TAGS[1]]), False
        )

    def answer(self, text: str, worked: Sequence[str] = (), left: int = 0) -> Dialogue:
        self.write(f"{write_thought(self.kind, left, worked)} {tasks.format_reply(text)}")
        return Dialogue((*self.ids, encode_special(EOS)), (*self.targets, IGNORE_INDEX))


def make_trace(
    assignment: Assignment, preference_bias: float, rng: np.random.Generator
) -> Dialogue:
    """One episode as a dialogue."""
    told, work = _Trace(assignment), assignment.work
    if isinstance(work, Task):
        return _office(told, work, rng)
    if assignment.kind == "chain" and assignment.difficulty <= SKILL and rng.random() < EASY:
        chain = work.prompt.removesuffix(" = ?").split()
        return told.answer(evaluate_chain(chain), solve_chain(chain), work.difficulty)
    left = assignment.usable
    if not left:  # nobody to ask: it says what it thinks
        return told.answer(work.reference, (), work.difficulty)
    while True:
        p = compute_tool_probabilities(assignment, left, preference_bias)
        tool = left[int(rng.choice(len(left), p=p))].name
        answer = _used(told, tool, work, rng)
        if answer is not None:
            return told.answer(answer)
        left = [
            offer for offer in left if offer.name != tool
        ] or left  # it failed: another one, if there is one


def compute_tool_probabilities(
    assignment: Assignment, left: Sequence[Offer], preference_bias: float
) -> np.ndarray:
    """Of each tool: even, but for a bias towards what the user likes, what is cheap and what is fast."""
    who = assignment.preference

    def rank(values: list[float]) -> np.ndarray:
        order = np.argsort(np.argsort(values))
        return 1 - 2 * order / max(1, len(values) - 1)  # the least has 1, the most -1

    cheap, fast = rank([o.typical_cost_usd for o in left]), rank([o.typical_seconds for o in left])
    liked = np.array([float(o.name in who.tools) for o in left])
    weights = np.exp(2 * preference_bias * (who.cost * cheap + who.latency * fast + liked))
    return weights / weights.sum()


def _used(told: _Trace, tool: str, item: Item, rng: np.random.Generator) -> str | None:
    """A strategy against made-up replies; None where the last one was missing."""
    plan = make_strategy(tool, item)
    argument, left = next(plan)
    while True:
        reply = _made_up(tool, argument, left, item, rng)
        told.call(
            item.difficulty if left == 1 and tool not in ("lookup", "search") else left,
            tool,
            argument,
            reply,
        )
        if reply == call_protocol.ERROR_REPLY:
            return None
        try:
            argument, left = plan.send(reply)
        except StopIteration as ended:
            return ended.value


def _made_up(tool: str, argument: str, left: int, item: Item, rng: np.random.Generator) -> str:
    if rng.random() < MISSING:
        return call_protocol.ERROR_REPLY
    if tool in ("lookup", "search"):
        relation, place = argument.replace(" of ", " ").split()
        value = multi_hop_facts.build_records()[relation][place]
        return (
            value
            if tool == "lookup"
            else multi_hop_facts.RELATIONS[relation][2].format(place, value)
        )
    if rng.random() >= WRONG:
        return item.reference
    if item.reference.isdigit():
        return "".join(str(rng.integers(10)) for _ in item.reference)
    return str(
        rng.choice(
            next(values for values in multi_hop_facts.VALUES.values() if item.reference in values)
        )
    )


def _office(told: _Trace, task: Task, rng: np.random.Generator) -> Dialogue:
    """The golden calls; one that fails is made again."""
    calls = list_golden_calls(task)
    for i, (function, argument, reply) in enumerate(calls):
        while rng.random() < MISSING:
            told.call(len(calls) - i, function, argument, call_protocol.ERROR_REPLY)
        told.call(len(calls) - i, function, argument, reply)
    return told.answer(task.answer)
