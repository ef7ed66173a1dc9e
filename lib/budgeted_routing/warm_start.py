"""A warm start for a user's controller: it learns the form of turns from examples, before any reward.

PPO can only reward what a controller writes. One that never writes a well-formed call or answer gets the same reward
under every budget, and learns nothing. So the examples show the protocol (`lib.rl.call_protocol`) and nothing else: in
each one, who answers is drawn at random from the experts and the controller itself, and so is the budget. Answers are
those that the experts, or the controller by itself, gave to the training question; no reference is read.

    examples = draw_examples(questions, own_replies, experts, budgets, "soft", 64, seed=0)
    samples = make_warm_samples(generator, pool, examples, max_turns=4, seed=0)
    losses = train_on_samples(policy, samples, generator.pad_id, seed=0)

Left out: whether a choice is good, which is what the training by rewards is for. What a warm start changes is part of
the controller's start, which every result subtracts.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import torch

from lib.budgeted_routing.budget_episodes import BudgetTask, make_samples, play_episodes
from lib.budgeted_routing.variants import Budgets
from lib.experiment import seeds
from lib.rl import call_protocol
from lib.rl.call_protocol import BUDGET_WORDS
from lib.rl.expert_pool import ExpertPool
from lib.rl.generators import Generator
from lib.rl.policy_model import PolicyModel
from lib.rl.rollout import derive_turn_seed
from lib.rl.token_batch import Sample, collate_samples
from lib.tasks import Item
from lib.tasks.scorers import extract_final_answer

FOLDER = "warm_start"  # of the model, in the folder of a run
NUM_EPOCHS = 2  # passes over the examples
BATCH_SIZE = 8  # examples of a gradient step
# Of AdamW; adapters (LoRA) need larger steps than whole weights.
LEARNING_RATE = 2e-5
LORA_LEARNING_RATE = 2e-4


@dataclass(frozen=True)
class WarmExample:
    """One episode that shows the form of turns.

    Attributes:
        task: The question, and the budget that the prompt names.
        turns: What the controller writes, a text per turn.
    """

    task: BudgetTask
    turns: tuple[str, ...]


class ScriptedGenerator:
    """A controller's generator whose turns are given texts: prompts, tokens and limits are the controller's own."""

    def __init__(self, generator: Generator, text_by_seed: Mapping[int, str]) -> None:
        """
        Args:
            generator: Generator of the controller.
            text_by_seed: The turn to write, by the seed of the turn (`derive_turn_seed`).
        """
        self.generator = generator
        self.text_by_seed = text_by_seed
        self.max_response_tokens = generator.max_response_tokens
        self.marks_cuts = generator.marks_cuts

    def has_room(self, ids: Sequence[int]) -> bool:
        return self.generator.has_room(ids)

    def encode_prompt(self, messages: Sequence[dict[str, str]]) -> list[int]:
        return self.generator.encode_prompt(messages)

    def encode(self, text: str) -> list[int]:
        return self.generator.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        return self.generator.decode(ids)

    def write_turns(
        self, contexts: Sequence[Sequence[int]], turn_seeds: Sequence[int], temperature: float
    ) -> list[list[int]]:
        return [self.generator.encode(self.text_by_seed[seed]) for seed in turn_seeds]


def draw_examples(
    items: Sequence[Item],
    own_replies: Sequence[str],
    experts: Sequence[str],
    budgets: Budgets,
    style: str,
    num_examples: int,
    seed: int,
) -> list[WarmExample]:
    """Draw examples of episodes: questions in turn, budgets and who answers at random.

    Args:
        items: Training questions.
        own_replies: What the controller replies to each of them by itself.
        experts: Names of the experts that may be called.
        budgets: US dollars a question by budget word.
        style: Style of the prompts, soft or hard.
        num_examples: How many.
        seed: Seed of the draws.

    Returns:
        The examples. A call passes the question on, and the answer after it hands on the expert's reply.
    """
    rng = seeds.rng("rl", "warm start", seed=seed)
    examples = []
    for index in range(num_examples):
        number = index % len(items)
        word = BUDGET_WORDS[int(rng.integers(len(BUDGET_WORDS)))]
        task = BudgetTask(items[number], style, word, budgets.usd_by_word[word])
        reasoning = f"<think> The budget is {word}. </think>"

        choice = int(rng.integers(len(experts) + 1))
        if choice == len(experts):  # the controller itself
            own_answer = extract_final_answer(own_replies[number]).text
            turns = (f"{reasoning} <answer> {own_answer} </answer>",)
        else:
            call = call_protocol.format_call(experts[choice])
            turns = (f"{reasoning} {call}", f"{reasoning} <answer> it </answer>")
        examples.append(WarmExample(task, turns))
    return examples


def make_warm_samples(
    generator: Generator,
    pool: ExpertPool,
    examples: Sequence[WarmExample],
    max_turns: int,
    seed: int,
) -> list[Sample]:
    """Play the examples, with the experts' replies in between, and collect their tokens.

    Args:
        generator: Generator of the controller.
        pool: The experts. They were asked these questions before, so that recorded replies cost nothing.
        examples: What `draw_examples` returned.
        max_turns: Largest number of turns of an episode.
        seed: Seed of the batch.

    Returns:
        A sample per example that fits the controller's window; only what the controller writes is learned from.
    """
    text_by_seed = {}
    for index, example in enumerate(examples):
        for turn, text in enumerate(example.turns):
            text_by_seed[derive_turn_seed(seed, index, turn)] = text
    scripted_generator = ScriptedGenerator(generator, text_by_seed)
    tasks = [example.task for example in examples]
    episodes = play_episodes(scripted_generator, pool, tasks, max_turns, seed)
    # Episodes whose reply was lost show no form.
    return make_samples([episode for episode in episodes if not episode.failed])


def train_on_samples(
    policy: PolicyModel,
    samples: Sequence[Sample],
    pad_id: int,
    seed: int,
    report_step: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Raise the probability of the examples' turns: supervised fine-tuning on the controller's tokens.

    Args:
        policy: The controller; its weights change.
        samples: What `make_warm_samples` returned.
        pad_id: A token for padding.
        seed: Seed of the order of the samples.
        report_step: Called before every gradient step with its number and how many there are.

    Returns:
        A row per gradient step: step, loss (mean negative log-probability of a token).

    Raises:
        ValueError: There are no samples.
    """
    if not samples:
        raise ValueError("no example of the warm start fits the model's window; shorten --prompt")
    rng = seeds.rng("rl", "warm start order", seed=seed)
    learning_rate = LORA_LEARNING_RATE if policy.uses_lora else LEARNING_RATE
    optimizer = torch.optim.AdamW(
        policy.list_trained_parameters(), lr=learning_rate, weight_decay=0.0
    )

    rows = []
    num_steps = NUM_EPOCHS * math.ceil(len(samples) / BATCH_SIZE)
    for _ in range(NUM_EPOCHS):
        order = rng.permutation(len(samples))
        for start in range(0, len(order), BATCH_SIZE):
            batch_samples = [samples[index] for index in order[start : start + BATCH_SIZE]]
            if report_step is not None:
                report_step(len(rows), num_steps)
            batch = collate_samples(batch_samples, pad_id, policy.device)
            logprobs = policy.compute_logprobs(batch)  # (B, T - 1), 0 where others wrote
            loss = -logprobs.sum() / batch.mask.sum()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(policy.list_trained_parameters(), 1.0)
            optimizer.step()
            rows.append({"step": len(rows), "loss": float(loss.detach())})
    return pd.DataFrame(rows)
