"""A start that errs, so that there is something to learn: the shipped policy, taught typical mistakes.

The shipped policy is right so often that even the verifier has little to pay it for. So every seed has a start of its
own: supervised updates on training items, a declared share of whose replies makes a mistake of its kind.

    reasoning     one turn of the dial is taken for another, and the rest follows from it
    story         it begins with its end, or has none
    translation   word for word, in the order of English

A start knows both, the right way and the wrong one, and takes either by lot: a reward can tell it which. Its items
belong to the policy's part of the training split, which neither the reward model nor an exam sees.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from lib import tasks
from lib.conductor import data
from lib.config import Params, StartSettings
from lib.experiment import artifacts, seeds, sweep
from lib.experiment.harness import JobRun, use_one_thread
from lib.language_models import chat_template as chat_template
from lib.language_models import checkpoints, tokenizer
from lib.language_models.training import training_data
from lib.language_models.training.training_data import collate, tokenize_dialogue, write_question
from lib.tasks import Item, arithmetic_chain, story, translation

VERSION = 1  # of the mistakes that a start is taught, and how


def versions() -> dict[str, int]:
    """The VERSIONs of the code that decides a start's weights."""
    return {
        "random streams": seeds.VERSION,
        "tasks": tasks.VERSION,
        "tokenizer": tokenizer.VERSION,
        "chat template": chat_template.VERSION,
        "initial weights": checkpoints.VERSION,
        "training batches": training_data.VERSION,
        "categories": data.VERSION,
        "starts": VERSION,
    }


def list_lab_models(params: Params) -> list[str]:
    """The lab models that are needed: the policy to start from, and the judge where it is one."""
    settings = params.conductor
    judge = params.llm.models[settings.judge]
    names = [settings.policy]
    if judge.backend == "lab":
        names.append(judge.model or settings.judge)
    return names


def make_job(settings: StartSettings, policy: Path, seed: int) -> sweep.Job:
    """The job that makes the start of a seed from the policy in the folder `policy`."""
    decided_by = {
        "job": "start",
        "start": settings.model_dump(),
        "seed": seed,
        "policy": artifacts.sha256_file(policy / "model.safetensors"),
        "versions": versions(),
        "libraries": {module.__name__: module.__version__ for module in (torch, transformers)},
    }
    return sweep.Job(f"start/seed-{seed}", decided_by)


def work(run: JobRun, policy: str) -> dict[str, float]:
    """Teaches the policy and leaves it in the job's folder `model`.

    Args:
        run: A job of `make_job`.
        policy: Folder of the model that the start is made from.

    Returns:
        The loss of the last update, nats per token.
    """
    use_one_thread()
    settings = run.read_section("start", StartSettings)
    model = checkpoints.load(policy)
    loss = teach(model, lessons(settings, run.seed), settings)
    checkpoints.save(model, run.folder / "model")
    return {"loss": loss}


def lessons(settings: StartSettings, seed: int) -> list[tuple[Item, str]]:
    """Items and what is taught as a reply to each: with the declared share a mistake, else right; a thought by lot
    where thoughts were ever taught."""
    rng = seeds.rng("conductor", "start", seed=seed)
    taught = []
    for item in data.draw("train", settings.items, seed, part="policy"):
        wrong = rng.random() < settings.mistakes
        thought, answer = mistake(item, rng) if wrong else (item.worked_solution, item.reference)
        taught.append((item, tasks.format_reply(answer, thought if rng.random() < 0.5 else "")))
    return taught


def teach(
    model: LlamaForCausalLM, taught: list[tuple[Item, str]], settings: StartSettings
) -> float:
    """One pass of supervised updates, at a rate that falls to 0; changes the model and returns its last loss."""
    rows = [
        tokenize_dialogue([*write_question(item), {"role": "assistant", "content": text}])
        for item, text in taught
    ]
    optimiser = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    for first in range(0, len(rows), settings.batch):
        ids, targets = collate(rows[first : first + settings.batch])
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
        wanted = targets[:, 1:]
        loss = cross_entropy(
            model.lm_head(hidden[wanted >= 0]), wanted[wanted >= 0]
        )  # what the assistant says
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.param_groups[0]["lr"] = settings.learning_rate * (1 - first / len(rows))
        optimiser.step()
        optimiser.zero_grad()
    return float(loss.detach())


def mistake(item: Item, rng: np.random.Generator) -> tuple[str, str]:
    """Thought and answer of a typical mistake; the thought of a story is empty."""
    return _MISTAKES[data.category(item)](item, rng)


def _misread(item: Item, rng: np.random.Generator) -> tuple[str, str]:
    """One operation is taken for another, wherever that changes the answer (+ 0 and - 0 are the same)."""
    first, *rest = item.id.removeprefix("chain/").split()
    signs, digits = rest[::2], [int(digit) for digit in rest[1::2]]
    others = [
        [*signs[:i], other, *signs[i + 1 :]]
        for i in range(len(signs))
        for other in arithmetic_chain.OPERATIONS
    ]
    followed = [_followed(int(first), told, digits) for told in others]
    wrong = [each for each in followed if each[1] != item.reference]
    return _one(rng, wrong or followed[:1])


def _followed(total: int, signs: Iterable[str], digits: Iterable[int]) -> tuple[str, str]:
    steps = []
    for sign, digit in zip(signs, digits, strict=True):
        result = arithmetic_chain.OPERATIONS[sign](total, digit)
        steps.append(f"{total} {sign} {digit} = {result}")
        total = result
    return " ; ".join(steps), str(total)


def _end_first(item: Item, rng: np.random.Generator) -> tuple[str, str]:
    """Its sentences in the wrong order; one that is alone is no end."""
    hero, sentences = (
        item.prompt.split()[2],
        [f"{each.strip()} ." for each in item.reference.split(" .") if each],
    )
    return "", " ".join(sentences[::-1]) if len(sentences) > 1 else story.ATTEMPT[-1].format(
        hero=hero
    )


def _word_for_word(item: Item, rng: np.random.Generator) -> tuple[str, str]:
    english = item.prompt.removeprefix("Translate : ").split()
    return " ".join(english), " ".join(translation.LEXICON[word] for word in english)


def _one(rng: np.random.Generator, choices: list) -> tuple[str, str]:
    return choices[int(rng.integers(len(choices)))]


_MISTAKES = {"reasoning": _misread, "story": _end_first, "translation": _word_for_word}
