"""The reward model behind `pref`: trained on pairs of replies, of which one was preferred.

A pair's probability is sigmoid(s(better) - s(worse)), Bradley and Terry (1952). A scripted annotator compares replies
that the policy sampled, and references: it prefers what the verifier scores higher, and is wrong in a stated fraction
of the pairs. Any Hugging Face sequence classification model with one output can take this one's place.
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
from lib.conductor.data import Learner
from lib.conductor.reply_format import get_completion_text
from lib.conductor.silence_libraries import silence_libraries
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
SCALE_FILE = "scale.json"  # beside a reward model: centre and spread of its scores
_SMALLEST_SPREAD = 1e-3


@dataclass(frozen=True)
class PreferencePair:
    """Two replies to an item, and which was preferred."""

    item: Item
    better: str
    worse: str


class PreferenceReward:
    """A reward model as a reward function: scores of replies in [0, 1]."""

    __name__ = "pref"

    def __init__(self, folder: str | Path, device: str | torch.device = "cpu") -> None:
        """Load the model.

        Args:
            folder: Of a sequence classification model. `scale.json` in it says where its scores lie: {"centre",
                "spread"}; without it 0 and 1.
            device: Where it computes.

        Raises:
            OSError, ValueError: There is no such model.
        """
        model = AutoModelForSequenceClassification.from_pretrained(
            str(folder), num_labels=1, local_files_only=True, use_safetensors=True
        )
        self.model = model.eval().to(device)
        self.tokenizer = AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
        scale_file = Path(folder) / SCALE_FILE
        self.centre, self.spread = 0.0, 1.0
        if scale_file.exists():
            scale = artifacts.read_json(scale_file)
            self.centre, self.spread = scale["centre"], scale["spread"]

    def __call__(self, prompts: Sequence, completions: Sequence, **_) -> list[float]:
        """sigmoid((s - centre) / spread), one per completion."""
        scores = self.compute_scores(prompts, [get_completion_text(c) for c in completions])
        return torch.sigmoid((scores - self.centre) / self.spread).tolist()

    @torch.no_grad()
    def compute_scores(self, prompts: Sequence, replies: Sequence[str]) -> torch.Tensor:
        """Compute the reward model's unscaled scores.

        Args:
            prompts: B prompts.
            replies: A reply to each.

        Returns:
            (B,) scores.
        """
        texts = [
            self._format_dialogue(prompt, reply)
            for prompt, reply in zip(prompts, replies, strict=True)
        ]
        inputs = self.tokenizer(
            texts, return_tensors="pt", padding=True, padding_side="right", add_special_tokens=False
        )
        inputs.pop("token_type_ids", None)
        logits = self.model(**inputs.to(self.model.device)).logits  # (B, 1)
        return logits[:, 0].float().cpu()

    def _format_dialogue(self, prompt, reply: str) -> str:
        if isinstance(prompt, str):
            return prompt + reply
        if self.tokenizer.chat_template is None:
            return "\n".join([*(message["content"] for message in prompt), reply])
        messages = [*prompt, {"role": "assistant", "content": reply}]
        return self.tokenizer.apply_chat_template(messages, tokenize=False)


def make_pairs(
    policy: Forward,
    split: str,
    settings: PreferenceSettings,
    temperature: float,
    annotator_error_rate: float,
    seed: int,
    learner: Learner = "reward model",
) -> list[PreferencePair]:
    """Compare every two replies to a prompt that the verifier scores differently.

    Args:
        policy: Samples the replies; the item's reference is compared too.
        split: Split of the prompts.
        settings: Number of prompts, and of sampled replies to each.
        temperature: Temperature of the sampling.
        annotator_error_rate: Fraction of the pairs that are judged the wrong way round.
        seed: Seed of prompts and errors.
        learner: Whose part of the split the prompts belong to.

    Returns:
        The pairs, those of one prompt side by side.
    """
    num_replies = settings.replies
    items = data.draw_items(split, settings.prompts, seed=seed, learner=learner)
    requests = []
    for i, item in enumerate(items):
        ids = tuple(encode_conversation(write_question(item)))
        for j in range(num_replies):
            requests.append(Prompt(ids, checkpoints.LIMIT, temperature, i * num_replies + j))
    generations = generate(policy, requests, encode_special(EOS))
    texts = [decode(generation.reply_ids) for generation in generations]

    # Pairs of which both replies are right, or both wrong, say nothing and are left out.
    rng = seeds.rng("conductor", "preferences", split, seed=seed)
    pairs = []
    for i, item in enumerate(items):
        sampled = texts[i * num_replies : (i + 1) * num_replies]
        replies = list(dict.fromkeys([*sampled, item.solution]))  # each text once
        for first, second in combinations(replies, 2):
            first_score = tasks.score_reply(item, first)
            second_score = tasks.score_reply(item, second)
            if first_score == second_score:
                continue
            prefers_first = first_score > second_score
            if rng.random() < annotator_error_rate:
                prefers_first = not prefers_first
            better, worse = (first, second) if prefers_first else (second, first)
            pairs.append(PreferencePair(item, better, worse))
    return pairs


def list_versions() -> dict[str, int]:
    """List the VERSION constants of the code that decides the reward model.

    Returns:
        Version numbers by the name of the code.
    """
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


def list_library_versions() -> dict[str, str]:
    """Versions of the libraries that decide what a training with TRL results in."""
    import trl  # imported here: it takes seconds

    return {module.__name__: module.__version__ for module in (torch, transformers, trl)}


def make_job(settings: ConductorSettings, policy: Path, seed: int) -> sweep.Job:
    """Make the job that trains the reward model on replies of an initial policy.

    Args:
        settings: Settings of the lesson.
        policy: Folder of the released policy.
        seed: Seed of the initial policy.

    Returns:
        The job.
    """
    decided_by = {
        "job": "reward model",
        "preference": settings.preference.model_dump(),
        "temperature": settings.grpo.temperature,
        "seed": seed,
        "start": initial_policy.make_job(settings.initial_policy, policy, seed).key,
        "versions": list_versions(),
        "libraries": list_library_versions(),
    }
    return sweep.Job("reward-model", decided_by)


def run_job(run: JobRun) -> dict[str, int]:
    """Train the reward model, and write its agreement with held-out pairs as a table.

    Args:
        run: The job in progress.

    Returns:
        Number of pairs that it was tested on.
    """
    use_one_thread()
    settings = run.read_section("preference", PreferenceSettings)
    start = run.input_folder("start") / "model"
    temperature = run.settings["temperature"]
    agreement = train(start, settings, temperature, run.seed, run.folder / "model")
    run.write_table("agreement", agreement)
    return {"pairs": int(agreement["pairs"].sum())}


def train(
    policy: str | Path, settings: PreferenceSettings, temperature: float, seed: int, out: Path
) -> pd.DataFrame:
    """Train a reward model from the policy's own weights.

    Args:
        policy: Folder of the initial policy.
        settings: Pairs and training.
        temperature: At which replies are sampled.
        seed: Seed of prompts, errors and order.
        out: Folder of the reward model.

    Returns:
        Its `measure_agreement` with held-out pairs.
    """
    with silence_libraries():
        sampler = Forward(checkpoints.load(policy))
        error_rate = settings.annotator_error_rate
        pairs = make_pairs(sampler, "train", settings, temperature, error_rate, seed)
        _fit(policy, pairs, settings, seed, out)
        # Without errors of the annotator: agreement is measured with the truth.
        held_out = make_pairs(sampler, "dev", settings, temperature, 0.0, seed, "any")
        return measure_agreement(PreferenceReward(out), held_out, out / SCALE_FILE)


def _fit(
    policy: str | Path,
    pairs: Sequence[PreferencePair],
    settings: PreferenceSettings,
    seed: int,
    out: Path,
) -> None:
    """Train a reward model on preference pairs with TRL (Bradley and Terry).

    Args:
        policy: Folder of the policy whose weights it starts from.
        pairs: A better and a worse reply to each question.
        settings: Batch size, epochs and learning rate.
        seed: Seed of the training.
        out: Folder of the trained model.
    """
    from trl import RewardConfig, RewardTrainer  # imported here: it takes seconds

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
        str(policy), arguments, train_dataset=_make_dataset(pairs), processing_class=tokenizer
    )
    trainer.remove_callback(PrinterCallback)
    # Bradley-Terry: minimise -log sigmoid(s(better) - s(worse)).
    trainer.train()
    trainer.save_model(str(out))


def measure_agreement(
    model: PreferenceReward, pairs: Sequence[PreferencePair], scale_file: Path
) -> pd.DataFrame:
    """Count how often a reward model prefers the better reply, by category.

    Args:
        model: The reward model.
        pairs: Held-out pairs. One per prompt is used, as pairs of a prompt are not independent.
        scale_file: Where centre and spread of all scores are written.

    Returns:
        Columns: group (category), correct, pairs (numbers).
    """
    if (
        not pairs
    ):  # among few prompts there may be none whose replies the verifier scores differently
        artifacts.write_json(scale_file, {"centre": 0.0, "spread": 1.0})
        empty = pd.DataFrame({"group": [], "correct": [], "pairs": []})
        return empty.astype({"correct": int, "pairs": int})
    first_pair_by_item = {pair.item.id: pair for pair in reversed(pairs)}
    pairs = list(first_pair_by_item.values())
    prompts = [write_question(pair.item) for pair in pairs]
    better = model.compute_scores(prompts, [pair.better for pair in pairs])
    worse = model.compute_scores(prompts, [pair.worse for pair in pairs])

    # Of all scores together, so that sigmoid((s - centre) / spread) is one half for an average reply.
    scores = torch.cat([better, worse])
    spread = max(float(scores.std()), _SMALLEST_SPREAD)
    artifacts.write_json(scale_file, {"centre": float(scores.mean()), "spread": spread})

    categories = [data.get_category(pair.item) for pair in pairs]
    table = pd.DataFrame({"group": categories, "correct": (better > worse).numpy()})
    counts = table.groupby("group")["correct"].agg(correct="sum", pairs="size").reset_index()
    order = list(data.CATEGORIES)
    return counts.sort_values("group", key=lambda names: names.map(order.index), ignore_index=True)


def _make_dataset(pairs: Sequence[PreferencePair]) -> Dataset:
    """Convert preference pairs to a dataset for TRL.

    Args:
        pairs: A better and a worse reply to each question.

    Returns:
        Columns chosen and rejected, which are conversations.
    """
    rows = []
    for pair in pairs:
        question = write_question(pair.item)
        rows.append(
            {
                "chosen": [*question, {"role": "assistant", "content": pair.better}],
                "rejected": [*question, {"role": "assistant", "content": pair.worse}],
            }
        )
    return Dataset.from_list(rows)
