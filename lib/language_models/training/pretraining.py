"""Pre-training of one lab model, past the transition of every skill that it is taught.

Matrices learn by Muon (Jordan et al. 2024), which brings the sharp transition several times sooner than AdamW here;
embeddings and norms by AdamW. Learning rates rise over `warmup` updates and fall to 0 at the last of `steps`, and
every training goes that far: one that stops as soon as it is good enough is caught in the middle of a transition, and
another processor trains another model. Dev accuracy every `check_every` updates draws the curve; a target that is
missed at the end is an error. A training that was killed goes on from its last checkpoint, with the same result.

Left out: early stopping, gradient accumulation and mixed precision; the models are small and train on a CPU.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from lib import tasks
from lib.config import LabModelSettings, Target
from lib.experiment import artifacts, seeds
from lib.language_models import checkpoints
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS, decode
from lib.language_models.training import agent_traces
from lib.language_models.training.muon import Muon
from lib.language_models.training.training_data import (
    TRACE_WRITERS,
    Dialogue,
    build_corpus,
    collate,
    make_batches,
    write_question,
)

VERSION = 1  # of trained weights
DEV_ITEMS = 100  # per evaluation
_FALL = 0.4  # fraction of the updates over which learning rates fall
ReplyCheck = Callable[[str], bool]


class NotLearned(RuntimeError):
    """The target accuracy was not reached; the message says how far it came and what may help."""


def find_solved_items(
    forward: Forward, items: Sequence[tasks.Item], temperature: float = 0.0
) -> np.ndarray:
    """Test a model on items: generate an answer to each, and verify it.

    Args:
        forward: The forward pass of a lab model, a small transformer that is trained here.
        items: Questions of task families, whose answers a program verifies.
        temperature: 0 is greedy; else replies are sampled, with the index of the item as seed.

    Returns:
        (n,) bool, whether each item is solved.
    """
    questions = [write_question(item) for item in items]
    conversations = [encode_conversation(question) for question in questions]
    checks = [partial(tasks.is_correct, item) for item in items]
    return verify_replies(forward, conversations, checks, temperature)


def draw_dev_set(
    target: Target, seed: int, n: int = DEV_ITEMS
) -> list[tuple[list[int], ReplyCheck]]:
    """Draw the dev set that a training is evaluated on: conversations, each with a check of the model's reply.

    Args:
        target: Task family, difficulty and style: plain questions, or conversations of agents.
        seed: Seed of items and conversations.
        n: How many.

    Returns:
        (token ids of a conversation, check) each; check(reply text) says whether a reply is right.
    """
    items = tasks.draw_items(target.family, "dev", n, target.difficulty, seed=seed)
    if target.style == "plain":
        return [
            (encode_conversation(write_question(item)), partial(tasks.is_correct, item))
            for item in items
        ]
    rng = seeds.rng("training", "exam", seed=seed)
    dev_set = []
    for item in items:
        messages, tools = TRACE_WRITERS[target.style](item, rng)
        turn = agent_traces.get_first_turn(messages, tools)
        check = partial(agent_traces.agrees_with_trace, target=turn.target)
        dev_set.append((encode_conversation(turn.messages, turn.tools), check))
    return dev_set


def verify_replies(
    forward: Forward,
    conversations: Sequence[list[int]],
    checks: Sequence[ReplyCheck],
    temperature: float = 0.0,
) -> np.ndarray:
    """Generate a model's replies to conversations, and check each.

    Args:
        forward: The forward pass of a lab model.
        conversations: Token ids each, up to where the model replies.
        checks: One a conversation: check(reply) says whether the reply is right.
        temperature: 0 is greedy; else replies are sampled, with the index of the conversation as seed.

    Returns:
        (n,) bool, whether each reply is right.
    """
    prompts = [
        Prompt(tuple(ids), checkpoints.LIMIT, temperature, seed)
        for seed, ids in enumerate(conversations)
    ]
    replies = generate(forward, prompts, encode_special(EOS))
    verdicts = [
        check(decode(reply.reply_ids)) for check, reply in zip(checks, replies, strict=True)
    ]
    return np.array(verdicts)


class Pretraining:
    """One training under way: the model, both optimisers, and the curve so far.

    Attributes:
        model: Is trained in place.
        step: Updates so far.
        curve_rows: step, loss and accuracy of every evaluation.
        dev_set: What an evaluation asks, see `draw_dev_set`.
    """

    def __init__(
        self, settings: LabModelSettings, seed: int, initial_model: LlamaForCausalLM | None = None
    ) -> None:
        """
        Args:
            settings: The model's size, data and training.
            seed: Seed of first weights, corpus and dev set.
            initial_model: A model of the same size to go on from; None draws first weights.
        """
        self.settings = settings
        self.seed = seed
        self.model = (initial_model or checkpoints.fresh(settings, seed)).train()
        # An embedding is a table of rows, for which Muon is not made.
        matrices = []
        embeddings_and_norms = []
        for name, parameter in self.model.named_parameters():
            is_matrix = parameter.ndim == 2 and "embed" not in name
            if is_matrix:
                matrices.append(parameter)
            else:
                embeddings_and_norms.append(parameter)
        self.muon = Muon(matrices, lr=settings.muon)
        self.adamw = torch.optim.AdamW(
            embeddings_and_norms, lr=settings.adamw, betas=(0.9, 0.98), weight_decay=0.01
        )
        self.step = 0
        self.curve_rows: list[dict[str, float]] = []
        self.dev_set = draw_dev_set(settings.target, seed, min(DEV_ITEMS, settings.items))
        self._epoch_batches: list[np.ndarray] = []

    @property
    def curve(self) -> pd.DataFrame:
        """One row per evaluation: step, loss (mean since the last evaluation), accuracy."""
        return pd.DataFrame(self.curve_rows)

    def train(self, folder: Path, progress: Callable[[float], None]) -> LlamaForCausalLM:
        """Train to the last update.

        Args:
            folder: For a checkpoint and curve.parquet, both written at every evaluation; a checkpoint that is there
                is gone on from.
            progress: progress(fraction) is called after every update.

        Returns:
            The model, in evaluation mode.

        Raises:
            NotLearned: Where the target is missed at the end.
            ValueError: For a broken checkpoint.
        """
        checkpoint = folder / "checkpoint.safetensors"
        if checkpoint.exists():
            self.restore_checkpoint(checkpoint)
        dialogues = build_corpus(self.settings.data_mixture, self.settings.items, self.seed)

        losses: list[float] = []
        while self.step < self.settings.steps:
            losses.append(self.update(dialogues))
            progress(self.step / self.settings.steps)
            is_last = self.step == self.settings.steps
            if self.step % self.settings.check_every == 0 or is_last:
                self._evaluate(float(np.mean(losses)))
                losses = []
                self.save_checkpoint(checkpoint)
                # A reader may watch the curve while the model learns.
                artifacts.write_parquet(folder / "curve.parquet", self.curve)

        # A target of 0 asks for nothing.
        target = self.settings.target
        accuracy = self.curve_rows[-1]["accuracy"]
        if target.accuracy > 0 and accuracy < target.accuracy:
            raise NotLearned(
                f"after {self.step} updates the model solves {accuracy:.0%} of {target.family} at "
                f"difficulty {target.difficulty}, not {target.accuracy:.0%}; raise its `steps` in params.yaml, "
                "or change lab.seed"
            )
        checkpoint.unlink(missing_ok=True)
        return self.model.eval()

    def update(self, dialogues: Sequence[Dialogue]) -> float:
        """Make one update, on the batch that is due.

        Args:
            dialogues: The corpus.

        Returns:
            The loss of the batch, in nats per token.
        """
        # The batch of this step; an epoch's batches are drawn when it begins, or after a restart within it.
        batch_size = self.settings.batch
        batches_per_epoch = -(-len(dialogues) // batch_size)
        epoch, batch_index = divmod(self.step, batches_per_epoch)
        if batch_index == 0 or not self._epoch_batches:
            self._epoch_batches = make_batches(dialogues, batch_size, self.seed, epoch)
        batch = [dialogues[i] for i in self._epoch_batches[batch_index]]
        ids, targets = collate(batch)  # (B, T) each

        # The state of a token predicts the next one; the output layer only computes where the assistant speaks.
        states = self.model.model(input_ids=ids).last_hidden_state[:, :-1]  # (B, T - 1, d)
        next_tokens = targets[:, 1:]  # (B, T - 1)
        is_target = next_tokens >= 0
        logits = self.model.lm_head(states[is_target])  # (targets, V)
        loss = cross_entropy(logits, next_tokens[is_target])
        # Clipped, so that an unusual batch does not undo what others have taught.
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)

        schedule = self._compute_schedule()
        for optimiser, rate in ((self.muon, self.settings.muon), (self.adamw, self.settings.adamw)):
            for group in optimiser.param_groups:
                group["lr"] = rate * schedule
            optimiser.step()
            optimiser.zero_grad()
        self.step += 1
        return float(loss.detach())

    def _compute_schedule(self) -> float:
        """Fraction of the full learning rate: a rise, a plateau, and a fall over the last 40 % of the updates."""
        rise = (self.step + 1) / self.settings.warmup
        fall = (self.settings.steps - self.step) / (_FALL * self.settings.steps)
        return min(1.0, rise, fall)

    def _evaluate(self, loss: float) -> None:
        """Evaluate the model on the dev set, and add a row (step, loss, accuracy) to the learning curve.

        Args:
            loss: Mean training loss since the last evaluation, in nats per token.
        """
        self.model.eval()
        conversations, checks = zip(*self.dev_set, strict=True)
        solved = verify_replies(Forward(self.model), conversations, checks)
        accuracy = float(solved.mean())
        self.model.train()
        self.curve_rows.append({"step": self.step, "loss": loss, "accuracy": accuracy})

    def save_checkpoint(self, path: Path) -> None:
        """Write weights, states of both optimisers and the learning curve: all that the next update depends on.

        Args:
            path: A safetensors file.
        """
        # A safetensors file is flat: "model.norm.weight", "muon.3.momentum_buffer".
        tensors = {f"model.{name}": tensor for name, tensor in self.model.named_parameters()}
        for label, optimiser in (("muon", self.muon), ("adamw", self.adamw)):
            states = optimiser.state_dict()["state"]  # by parameter and name
            for i, state in states.items():
                for name, value in state.items():
                    tensors[f"{label}.{i}.{name}"] = torch.as_tensor(value)
        arrays = {}
        for name, tensor in tensors.items():
            arrays[name] = tensor.detach().float().numpy()
        curve = [[row["step"], row["loss"], row["accuracy"]] for row in self.curve_rows]
        arrays["rows"] = np.array(curve)  # (evaluations, 3)
        artifacts.write_tensors(path, arrays)

    def restore_checkpoint(self, path: Path) -> None:
        """Restore weights, states of both optimisers and the learning curve, to go on from a checkpoint.

        Args:
            path: As `save_checkpoint` wrote it.

        Raises:
            ValueError: For a broken file, or one of another model.
        """
        arrays = artifacts.read_tensors(path)
        try:
            self.curve_rows = [
                {"step": int(step), "loss": loss, "accuracy": accuracy}
                for step, loss, accuracy in arrays["rows"].tolist()
            ]
            self.step = int(self.curve_rows[-1]["step"])
            # In place: the optimisers hold these parameters.
            with torch.no_grad():
                for name, parameter in self.model.named_parameters():
                    parameter.copy_(torch.from_numpy(arrays[f"model.{name}"]))
            for label, optimiser in (("muon", self.muon), ("adamw", self.adamw)):
                state_dict = optimiser.state_dict()
                for key in arrays:
                    if key.startswith(f"{label}."):
                        _, i, name = key.split(".")
                        tensor = torch.from_numpy(arrays[key].copy())
                        state_dict["state"].setdefault(int(i), {})[name] = tensor
                optimiser.load_state_dict(state_dict)
        except (KeyError, IndexError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{path} is no checkpoint of this model ({error}); delete it and run again"
            ) from error
