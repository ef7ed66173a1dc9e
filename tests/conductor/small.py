"""A policy that has half learned to reply, settings that train in a second, and a trainer of both."""

import hashlib
from functools import cache
from pathlib import Path

import torch
from transformers import LlamaForCausalLM, PrinterCallback

from lib import config
from lib.conductor import data
from lib.conductor.reply_format import get_completion_text
from lib.conductor.rewards import COMPONENTS
from lib.conductor.rollouts import RolloutFunction
from lib.conductor.silence_libraries import silence_libraries
from lib.conductor.trainer import ConductorTrainer, make_grpo_config
from lib.conductor.weighting import Weighting
from lib.config import (
    GRPOSettings,
    HeadSettings,
    MixtureComponent,
    PreferenceSettings,
    RewardSettings,
)
from lib.language_models.tokenizer import get_tokenizer
from lib.language_models.training.training_data import build_corpus, collate
from tests.language_models import tiny

HIDDEN, K = 16, len(COMPONENTS)
SMOKE = config.load("smoke").conductor
GRPO = GRPOSettings(
    epochs=1,
    prompts_per_step=2,
    generations=3,
    max_tokens=11,
    learning_rate=1e-2,
    temperature=1.0,
    kl=0.1,
    sync_every=2,
    sync_mixup=0.6,
    top_entropy=0.5,
    importance="sequence",
    scale="group",
    save_every=2,
)
HEAD = HeadSettings(
    layer="last",
    head_input="both",
    kappa=0.5,
    floor=1e-4,
    temperature=1.0,
    learning_rate=3e-3,
    update_interval=3,
    entropy=1e-3,
    pairwise=0.0,
    joint=False,
    homogeneous=False,
    centred=False,
    anchor="none",
    verified_fraction=0.5,
    verifier_error_rate=0.0,
)
PREFERENCE = PreferenceSettings(
    prompts=24, replies=2, annotator_error_rate=0.1, epochs=1, batch=16, learning_rate=1e-3
)
REWARDS = RewardSettings(require_thought=False, min_length=4, max_length=10)
ITEMS = data.draw_items("train", 12)


def grpo(**changes) -> GRPOSettings:
    return GRPO.model_copy(update=changes)


def head(**changes) -> HeadSettings:
    return HEAD.model_copy(update=changes)


def preference(**changes) -> PreferenceSettings:
    return PREFERENCE.model_copy(update=changes)


@cache
def schooled() -> LlamaForCausalLM:
    """A second of lessons: it writes answers in tags, some after a thought, most of which end, and breaks the form
    now and then."""
    model = tiny.model(0, spread=3.0, hidden=HIDDEN, layers=2, intermediate=16)
    thinking = [
        MixtureComponent(family="chain", skin="words", difficulties=[1]),
        MixtureComponent(family="belief", difficulties=[2]),
    ]
    brief = [
        MixtureComponent(family=f, difficulties=[1], style="brief")
        for f in ("chain", "belief", "story", "translation")
    ]
    data_mixture = [*thinking, *brief]
    lessons = build_corpus(data_mixture, 400, 0)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-2)
    for step in range(60):
        ids, targets = collate([lessons[(step * 16 + i) % len(lessons)] for i in range(16)])
        logits = model(ids).logits[:, :-1]
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten()).backward()
        optimiser.step()
        optimiser.zero_grad()
    return model.eval()


class Recorder:
    """A reward function in the place of the reward model: likes different words; remembers what it was shown."""

    __name__ = "pref"

    def __init__(self) -> None:
        self.prompts, self.texts, self.ids = [], [], []

    def __call__(self, prompts, completions, completion_ids, **_) -> list[float]:
        texts = [get_completion_text(each) for each in completions]
        self.prompts += prompts
        self.texts += texts
        self.ids += completion_ids
        return [len(set(text.split())) / 10 for text in texts]


def trainer(
    place: Path,
    out: Path,
    weighting: Weighting,
    seed: int = 0,
    engine: bool = True,
    aggregation="sum_then_normalize",
    preference=None,
    callbacks=(),
    extra=None,
    layer: str = "last",
    head_input: str = "both",
    items=ITEMS,
    **changes,
) -> ConductorTrainer:
    """engine: the lab's, or TRL's own generation."""
    settings = grpo(**changes)
    with silence_libraries():
        made = ConductorTrainer(
            str(place),
            make_grpo_config(settings, out, seed, aggregation),
            data.make_dataset(items),
            get_tokenizer(),
            weighting,
            preference or Recorder(),
            REWARDS,
            layer,
            head_input,
            extra,
            RolloutFunction(seed, settings.temperature, settings.max_tokens) if engine else None,
            callbacks,
        )
        made.remove_callback(PrinterCallback)
    return made


def run(*arguments, **options) -> ConductorTrainer:
    """A trainer that has trained."""
    made = trainer(*arguments, **options)
    with silence_libraries():
        made.train_or_resume()
    return made


def weights(model: torch.nn.Module) -> str:
    """A hash of all weights."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode() + tensor.detach().cpu().numpy().tobytes())
    return digest.hexdigest()
