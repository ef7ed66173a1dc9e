"""Pre-training of one lab model, past the transition of every skill that it is taught.

Matrices learn by Muon (Jordan et al. 2024), which brings the sharp transition several times sooner
than AdamW here; embeddings and norms by AdamW. Learning rates rise over `warmup` updates and fall to 0
at the last of `steps`, and every training goes that far: one that stops as soon as it is good enough is
caught in the middle of a transition, and another processor trains another model. A look at dev accuracy
every `check_every` updates draws the curve; a target that is missed at the end is an error. A training
that was killed goes on from its last look, with the same result.
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
from lib.config import LabModel, Target
from lib.experiment import artifacts, seeds
from lib.language_models import checkpoints
from lib.language_models.chat_template import conversation, token
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS, decode
from lib.language_models.training import agent_traces
from lib.language_models.training.muon import Muon
from lib.language_models.training.training_data import (
    TRACES,
    Dialogue,
    batches,
    corpus,
    question,
    tensors,
)

VERSION = 1  # of trained weights
DEV_ITEMS = 100  # per look
Verdict = Callable[[str], bool]


class NotLearned(RuntimeError):
    """The target accuracy was not reached; the message says how far it came and what may help."""


def solved(forward: Forward, items: Sequence[tasks.Item], temperature: float = 0.0) -> np.ndarray:
    """Which items the model solves, (n,) bool; greedily, or sampled with the item's number as seed."""
    asked = [conversation(question(item)) for item in items]
    return verify_replies(
        forward, asked, [partial(tasks.verify, item) for item in items], temperature
    )


def exam(target: Target, seed: int, n: int = DEV_ITEMS) -> list[tuple[list[int], Verdict]]:
    """The n dialogues that are asked for at a look, as tokens, and who says whether a reply is right."""
    items = tasks.draw(target.family, "dev", n, target.difficulty, seed=seed)
    if target.style == "plain":
        return [(conversation(question(item)), partial(tasks.verify, item)) for item in items]
    rng = seeds.rng("training", "exam", seed=seed)
    turns = [agent_traces.first_turn(*TRACES[target.style](item, rng)) for item in items]
    return [
        (conversation(t.messages, t.tools), partial(agent_traces.agrees, wanted=t.wanted))
        for t in turns
    ]


def verify_replies(
    forward: Forward,
    asked: Sequence[list[int]],
    verdicts: Sequence[Verdict],
    temperature: float = 0.0,
) -> np.ndarray:
    """Which replies to conversations (tokens) their verdicts accept, (n,) bool."""
    prompts = [
        Prompt(tuple(ids), checkpoints.LIMIT, temperature, seed) for seed, ids in enumerate(asked)
    ]
    replies = generate(forward, prompts, token(EOS))
    return np.array(
        [verdict(decode(reply.written)) for verdict, reply in zip(verdicts, replies, strict=True)]
    )


class Pretraining:
    """A model on its way: weights, both optimisers, the curve so far."""

    def __init__(
        self, settings: LabModel, seed: int, start: LlamaForCausalLM | None = None
    ) -> None:
        """start: a model to go on from, of the same size; None draws first weights."""
        self.settings, self.seed = settings, seed
        self.model = (start or checkpoints.fresh(settings, seed)).train()
        matrices = [p for n, p in self.model.named_parameters() if p.ndim == 2 and "embed" not in n]
        others = [p for n, p in self.model.named_parameters() if p.ndim != 2 or "embed" in n]
        self.muon = Muon(matrices, lr=settings.muon)
        self.adamw = torch.optim.AdamW(
            others, lr=settings.adamw, betas=(0.9, 0.98), weight_decay=0.01
        )
        self.step = 0
        self.rows: list[dict[str, float]] = []
        self.dev = exam(settings.target, seed, min(DEV_ITEMS, settings.items))

    def run(self, folder: Path, progress: Callable[[float], None]) -> LlamaForCausalLM:
        """Train to the last update, with a checkpoint in `folder` at every look. Raises NotLearned."""
        checkpoint = folder / "checkpoint.safetensors"
        if checkpoint.exists():
            self.restore(checkpoint)
        dialogues = corpus(self.settings.data_mixture, self.settings.items, self.seed)
        losses: list[float] = []
        while self.step < self.settings.steps:
            losses.append(self.update(dialogues))
            progress(self.step / self.settings.steps)
            if self.step % self.settings.check_every == 0 or self.step == self.settings.steps:
                self._look(float(np.mean(losses)))
                losses = []
                self.save(checkpoint)
                artifacts.write_parquet(folder / "curve.parquet", self.curve)  # for whoever watches
        if self.settings.target.accuracy > 0 and not self._good_enough():
            raise NotLearned(self._excuse())
        checkpoint.unlink(missing_ok=True)
        return self.model.eval()

    def update(self, dialogues: list[Dialogue]) -> float:
        """One update on the batch that is due; returns its loss in nats per token."""
        per_epoch = -(-len(dialogues) // self.settings.batch)
        epoch, place = divmod(self.step, per_epoch)
        if place == 0 or not hasattr(self, "_epoch"):
            self._epoch = batches(dialogues, self.settings.batch, self.seed, epoch)
        ids, targets = tensors([dialogues[i] for i in self._epoch[place]])
        hidden = self.model.model(input_ids=ids).last_hidden_state[:, :-1]
        wanted = targets[:, 1:]
        learned = wanted >= 0
        loss = cross_entropy(
            self.model.lm_head(hidden[learned]), wanted[learned]
        )  # only where the assistant speaks
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser, rate in ((self.muon, self.settings.muon), (self.adamw, self.settings.adamw)):
            for group in optimiser.param_groups:
                group["lr"] = rate * self._schedule()
            optimiser.step()
            optimiser.zero_grad()
        self.step += 1
        return float(loss.detach())

    def _schedule(self) -> float:
        """Share of the full learning rate: a rise, a plateau, and a fall over the last 40 %."""
        rise = (self.step + 1) / self.settings.warmup
        fall = (self.settings.steps - self.step) / (0.4 * self.settings.steps)
        return min(1.0, rise, fall)

    def _look(self, loss: float) -> None:
        self.model.eval()
        score = float(verify_replies(Forward(self.model), *zip(*self.dev, strict=True)).mean())
        self.model.train()
        self.rows.append({"step": self.step, "loss": loss, "accuracy": score})

    def _good_enough(self) -> bool:
        target = self.settings.target.accuracy
        return target > 0 and bool(self.rows) and self.rows[-1]["accuracy"] >= target

    def _excuse(self) -> str:
        target = self.settings.target
        return (
            f"after {self.step} updates the model solves {self.rows[-1]['accuracy']:.0%} of {target.family} at "
            f"difficulty {target.difficulty}, not {target.accuracy:.0%}; raise its `steps` in params.yaml, "
            "or change lab.seed"
        )

    @property
    def curve(self) -> pd.DataFrame:
        """One row per look: step, loss (mean since the last look), accuracy."""
        return pd.DataFrame(self.rows)

    def save(self, path: Path) -> None:
        """Everything that the next update depends on."""
        held = {f"model.{name}": tensor for name, tensor in self.model.named_parameters()}
        for label, optimiser in (("muon", self.muon), ("adamw", self.adamw)):
            for i, state in optimiser.state_dict()["state"].items():
                held |= {
                    f"{label}.{i}.{name}": torch.as_tensor(value) for name, value in state.items()
                }
        arrays = {name: tensor.detach().float().numpy() for name, tensor in held.items()}
        arrays["rows"] = np.array(
            [[row["step"], row["loss"], row["accuracy"]] for row in self.rows]
        )
        artifacts.write_tensors(path, arrays)

    def restore(self, path: Path) -> None:
        """Go on from a checkpoint. Raises ValueError for a broken one."""
        arrays = artifacts.read_tensors(path)
        try:
            self._take(arrays)
        except (KeyError, IndexError, ValueError, RuntimeError) as error:
            raise ValueError(
                f"{path} is no checkpoint of this model ({error}); delete it and run again"
            ) from error

    def _take(self, arrays: dict[str, np.ndarray]) -> None:
        self.rows = [
            {"step": int(step), "loss": loss, "accuracy": score}
            for step, loss, score in arrays["rows"].tolist()
        ]
        self.step = int(self.rows[-1]["step"])
        with torch.no_grad():
            for name, tensor in self.model.named_parameters():
                tensor.copy_(torch.from_numpy(arrays[f"model.{name}"]))
        for label, optimiser in (("muon", self.muon), ("adamw", self.adamw)):
            whole = optimiser.state_dict()
            for key in (key for key in arrays if key.startswith(f"{label}.")):
                _, i, name = key.split(".")
                whole["state"].setdefault(int(i), {})[name] = torch.from_numpy(arrays[key].copy())
            optimiser.load_state_dict(whole)
