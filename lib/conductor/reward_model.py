"""The reward model behind `pref`: trained on pairs of replies, of which one was preferred.

A pair's probability is sigmoid(s(better) - s(worse)), Bradley and Terry (1952). At lab scale a stand-in
for annotators compares replies that the policy sampled, and its references: it prefers what the verifier
scores higher, and is wrong in a declared share of pairs. Any Hugging Face sequence classification model
with one output can take this one's place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import torch
import transformers
from datasets import Dataset
from transformers import AutoModelForSequenceClassification, AutoTokenizer, PrinterCallback

from lib import tasks
from lib.conductor import data, initial_policy
from lib.conductor.rewards import said
from lib.conductor.silence_libraries import quiet
from lib.config import ConductorSettings, PreferenceSettings
from lib.experiment import artifacts, seeds, sweep
from lib.experiment.harness import JobRun, use_one_thread
from lib.language_models import chat_template, checkpoints, generation, kv_cache_forward, tokenizer
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.generation import Prompt, generate
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.tokenizer import EOS, decode
from lib.language_models.training import training_data
from lib.language_models.training.training_data import write_question
from lib.tasks import Item

VERSION = 1  # of the pairs, training and scores of the reward model


@dataclass(frozen=True)
class Pair:
    """Two replies to an item, and which the stand-in preferred."""

    item: Item
    better: str
    worse: str


class PreferenceReward:
    """A reward model as a reward function: scores of replies in [0, 1]."""

    __name__ = "pref"

    def __init__(self, folder: str | Path, device: str | torch.device = "cpu") -> None:
        """folder: of a sequence classification model; `scale.json` in it says where its scores lie ({"centre",
        "spread"}; without it 0 and 1).

        Raises OSError or ValueError where there is no such model.
        """
        self.model = (
            AutoModelForSequenceClassification.from_pretrained(
                str(folder), num_labels=1, local_files_only=True, use_safetensors=True
            )
            .eval()
            .to(device)
        )
        self.tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        scale = Path(folder) / "scale.json"
        self.scale = (
            artifacts.read_json(scale) if scale.exists() else {"centre": 0.0, "spread": 1.0}
        )

    def __call__(self, prompts: Sequence, completions: Sequence, **_) -> list[float]:
        """sigmoid((s - centre) / spread), one per completion."""
        s = self.raw(prompts, [said(each) for each in completions])
        return torch.sigmoid((s - self.scale["centre"]) / self.scale["spread"]).tolist()

    @torch.no_grad()
    def raw(self, prompts: Sequence, replies: Sequence[str]) -> torch.Tensor:
        """The model's own scores s, (B,)."""
        texts = [self._whole(prompt, reply) for prompt, reply in zip(prompts, replies, strict=True)]
        inputs = self.tokenizer(
            texts, return_tensors="pt", padding=True, padding_side="right", add_special_tokens=False
        )
        inputs.pop("token_type_ids", None)
        return self.model(**inputs.to(self.model.device)).logits[:, 0].float().cpu()

    def _whole(self, prompt, reply: str) -> str:
        if isinstance(prompt, str):
            return prompt + reply
        if self.tokenizer.chat_template is None:
            return "\n".join([*(message["content"] for message in prompt), reply])
        messages = [*prompt, {"role": "assistant", "content": reply}]
        return self.tokenizer.apply_chat_template(messages, tokenize=False)


def pairs(
    policy: Forward,
    split: str,
    prompts: int,
    replies: int,
    temperature: float,
    mistakes: float,
    seed: int,
    part: str = "judge",
) -> list[Pair]:
    """Every two replies to a prompt that the verifier tells apart, among `replies` sampled ones and the reference."""
    items = data.draw(split, prompts, seed=seed, part=part)
    asked = [tuple(encode_conversation(write_question(item))) for item in items]
    wanted = [
        Prompt(ids, checkpoints.LIMIT, temperature, i * replies + j)
        for i, ids in enumerate(asked)
        for j in range(replies)
    ]
    written = [decode(made.reply_ids) for made in generate(policy, wanted, encode_special(EOS))]
    rng = seeds.rng("conductor", "preferences", split, seed=seed)
    out = []
    for i, item in enumerate(items):
        known = dict.fromkeys([*written[i * replies : (i + 1) * replies], item.solution])
        for a, b in combinations([(text, tasks.score_reply(item, text)) for text in known], 2):
            if a[1] != b[1]:
                better, worse = (a, b) if (a[1] > b[1]) != (rng.random() < mistakes) else (b, a)
                out.append(Pair(item, better[0], worse[0]))
    return out


def versions() -> dict[str, int]:
    """The VERSIONs of the code that decides the reward model: items, replies to them, and what is learned of those."""
    return {
        "random streams": seeds.VERSION,
        "tasks": tasks.VERSION,
        "tokenizer": tokenizer.VERSION,
        "chat template": chat_template.VERSION,
        "initial weights": checkpoints.VERSION,
        "training batches": training_data.VERSION,
        "forward pass": kv_cache_forward.VERSION,
        "generation": generation.VERSION,
        "categories": data.VERSION,
        "reward model": VERSION,
    }


def library_versions() -> dict[str, str]:
    """Versions of the libraries that decide what a training with TRL results in."""
    import trl  # imported here: it takes seconds

    return {module.__name__: module.__version__ for module in (torch, transformers, trl)}


def make_job(settings: ConductorSettings, policy: Path, seed: int) -> sweep.Job:
    """The job of the reward model that judges, and is made from, a seed's start.

    policy: folder of the model that the start is made from.
    """
    decided_by = {
        "job": "reward model",
        "preference": settings.preference.model_dump(),
        "temperature": settings.grpo.temperature,
        "seed": seed,
        "start": initial_policy.make_job(settings.start, policy, seed).key,
        "versions": versions(),
        "libraries": library_versions(),
    }
    return sweep.Job("reward-model", decided_by)


def work(run: JobRun) -> dict[str, int]:
    """Trains the reward model from a start, and leaves its agreement with held-out pairs beside it.

    Returns:
        How many pairs it was tested on.
    """
    use_one_thread()
    settings = run.read_section("preference", PreferenceSettings)
    start = run.input_folder("start") / "model"
    table = train(start, settings, run.settings["temperature"], run.seed, run.folder / "model")
    run.write_table("agreement", table)
    return {"pairs": int(table["pairs"].sum())}


def train(
    policy: str | Path, settings: PreferenceSettings, temperature: float, seed: int, out: Path
) -> pd.DataFrame:
    """Train a reward model from the policy's own trunk into `out`; returns its held-out `agreement`."""
    with quiet():
        start_model = Forward(checkpoints.load(policy))
        taught = pairs(
            start_model,
            "train",
            settings.prompts,
            settings.replies,
            temperature,
            settings.mistakes,
            seed,
        )
        _fit(policy, taught, settings, seed, out)
        held = pairs(
            start_model, "dev", settings.prompts, settings.replies, temperature, 0.0, seed, "all"
        )
        return agreement(PreferenceReward(out), held, out / "scale.json")


def _fit(
    policy: str | Path, taught: Sequence[Pair], settings: PreferenceSettings, seed: int, out: Path
) -> None:
    from trl import (
        RewardConfig,
        RewardTrainer,
    )  # imported here: seconds, and only a training needs it

    arguments = RewardConfig(
        output_dir=str(out / "training"),
        per_device_train_batch_size=settings.batch,
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        seed=int(seeds.key("conductor", "reward model", seed=seed) % np.uint64(2**31)),
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=True,
        max_length=None,
    )
    tokenizer = AutoTokenizer.from_pretrained(str(policy), local_files_only=True)
    trainer = RewardTrainer(
        str(policy), arguments, train_dataset=_rows(taught), processing_class=tokenizer
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_model(str(out))


def agreement(model: PreferenceReward, held: Sequence[Pair], scale: Path) -> pd.DataFrame:
    """How often a model prefers the better reply, by category: right, pairs. One pair per prompt, as pairs of a
    prompt are not independent. Writes centre and spread of all scores to `scale`."""
    if not held:  # so few prompts may hold no pair that the verifier tells apart
        artifacts.write_json(scale, {"centre": 0.0, "spread": 1.0})
        return pd.DataFrame({"group": [], "correct": [], "pairs": []}).astype(
            {"correct": int, "pairs": int}
        )
    held = list({pair.item.id: pair for pair in reversed(held)}.values())
    prompts = [write_question(pair.item) for pair in held]
    better, worse = (
        model.raw(prompts, [getattr(p, side) for p in held]) for side in ("better", "worse")
    )
    every = torch.cat([better, worse])
    artifacts.write_json(
        scale, {"centre": float(every.mean()), "spread": max(float(every.std()), 1e-3)}
    )
    found = pd.DataFrame(
        {"group": [data.category(p.item) for p in held], "correct": (better > worse).numpy()}
    )
    counts = found.groupby("group")["correct"].agg(correct="sum", pairs="size").reset_index()
    return counts.sort_values(
        "group", key=lambda c: c.map(list(data.CATEGORIES).index), ignore_index=True
    )


def _rows(taught: Sequence[Pair]) -> Dataset:
    def messages(pair: Pair, reply: str) -> list[dict[str, str]]:
        return [*write_question(pair.item), {"role": "assistant", "content": reply}]

    rows = [{"chosen": messages(p, p.better), "rejected": messages(p, p.worse)} for p in taught]
    return Dataset.from_list(rows)
