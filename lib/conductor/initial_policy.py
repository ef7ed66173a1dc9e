"""The initial policy of every seed: the released policy, fine-tuned on replies with typical errors.

The released policy is right so often that even the verifier has little to reward. So every seed starts from a policy of
its own: supervised updates on training items, where a stated fraction of the replies makes an error of its kind.

    reasoning     one turn of the dial is taken for another, and the rest follows from it
    story         it begins with its end, or has none
    translation   word for word, in the order of English

An initial policy knows both the right way and the wrong one, and takes either at random: rewards can tell it which. Its
items belong to the policy's part of the training split, which neither the reward model nor a test uses.
"""

from pathlib import Path

import numpy as np
import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from lib import tasks
from lib.conductor import data
from lib.config import InitialPolicySettings, Params
from lib.experiment import artifacts, seeds, sweep
from lib.experiment.harness import JobRun, use_one_thread
from lib.language_models import chat_template, checkpoints, tokenizer
from lib.language_models.training import training_data
from lib.language_models.training.training_data import collate, tokenize_dialogue, write_question
from lib.tasks import Item, arithmetic_chain, story, translation

VERSION = 1  # of the errors that an initial policy learns, and how
_THOUGHT_PROBABILITY = 0.5  # of a reply that could have a thought


def list_versions() -> dict[str, int]:
    """The VERSIONs of the code that decides the weights of an initial policy."""
    return {
        "random streams": seeds.VERSION,
        "tasks": tasks.VERSION,
        "tokenizer": tokenizer.VERSION,
        "chat template": chat_template.VERSION,
        "initial weights": checkpoints.VERSION,
        "training batches": training_data.VERSION,
        "categories": data.VERSION,
        "initial policies": VERSION,
    }


def list_lab_models(params: Params) -> list[str]:
    """The lab models that are needed: the released policy, and the judge where it is one."""
    settings = params.conductor
    judge = params.llm.models[settings.judge]
    names = [settings.policy]
    if judge.backend == "lab":
        names.append(judge.model or settings.judge)
    return names


def make_job(settings: InitialPolicySettings, policy: Path, seed: int) -> sweep.Job:
    """The job that makes the initial policy of a seed.

    Args:
        settings: Of the fine-tuning.
        policy: Folder of the released policy.
        seed: Of its items and their replies.
    """
    decided_by = {
        "job": "initial policy",
        "initial_policy": settings.model_dump(),
        "seed": seed,
        "policy": artifacts.sha256_file(policy / "model.safetensors"),
        "versions": list_versions(),
        "libraries": {module.__name__: module.__version__ for module in (torch, transformers)},
    }
    return sweep.Job(f"initial-policy/seed-{seed}", decided_by)


def run_job(run: JobRun, policy: str) -> dict[str, float]:
    """Fine-tune the policy, and leave it in the job's folder `model`.

    Args:
        run: A job of `make_job`.
        policy: Folder of the released policy.

    Returns:
        The loss of the last update, nats per token.
    """
    use_one_thread()
    settings = run.read_section("initial_policy", InitialPolicySettings)
    model = checkpoints.load(policy)
    loss = fine_tune(model, write_examples(settings, run.seed), settings)
    checkpoints.save(model, run.folder / "model")
    return {"loss": loss}


def write_examples(settings: InitialPolicySettings, seed: int) -> list[tuple[Item, str]]:
    """Write the replies that an initial policy learns.

    Args:
        settings: How many, and what fraction makes an error.
        seed: Of items and errors.

    Returns:
        Items with a reply each.
    """
    rng = seeds.rng("conductor", "start", seed=seed)
    examples = []
    for item in data.draw_items("train", settings.items, seed, learner="policy"):
        has_error = rng.random() < settings.error_rate
        if has_error:
            thought, answer = write_error(item, rng)
        else:
            thought, answer = item.worked_solution, item.reference
        if rng.random() >= _THOUGHT_PROBABILITY:
            thought = ""
        examples.append((item, tasks.format_reply(answer, thought)))
    return examples


def fine_tune(
    model: LlamaForCausalLM, examples: list[tuple[Item, str]], settings: InitialPolicySettings
) -> float:
    """One pass of supervised updates, at a learning rate that falls to 0.

    Args:
        model: Changed in place.
        examples: Of `write_examples`.
        settings: Batch size and first learning rate.

    Returns:
        The last loss, nats per token of the replies.
    """
    dialogues = []
    for item, reply in examples:
        messages = [*write_question(item), {"role": "assistant", "content": reply}]
        dialogues.append(tokenize_dialogue(messages))
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    for first in range(0, len(dialogues), settings.batch):
        ids, targets = collate(dialogues[first : first + settings.batch])
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
        next_tokens = targets[:, 1:]
        is_reply = next_tokens >= 0  # the logits of other tokens are not needed
        loss = cross_entropy(model.lm_head(hidden[is_reply]), next_tokens[is_reply])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - first / len(dialogues))
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())


def write_error(item: Item, rng: np.random.Generator) -> tuple[str, str]:
    """Thought and answer of a typical error; the thought of a story is empty."""
    write = {
        "reasoning": _confuse_operation,
        "story": _reverse_sentences,
        "translation": _translate_word_for_word,
    }[data.get_category(item)]
    return write(item, rng)


def _confuse_operation(item: Item, rng: np.random.Generator) -> tuple[str, str]:
    """One operation is taken for another, wherever that changes the answer (+ 0 and - 0 are the same)."""
    first, *symbols = item.id.removeprefix("chain/").split()
    signs = symbols[::2]
    digits = [int(digit) for digit in symbols[1::2]]
    candidates = []
    for i in range(len(signs)):
        for other_sign in arithmetic_chain.OPERATIONS:
            changed_signs = [*signs[:i], other_sign, *signs[i + 1 :]]
            candidates.append(_work_out(int(first), changed_signs, digits))
    wrong = [candidate for candidate in candidates if candidate[1] != item.reference]
    choices = wrong or candidates[:1]
    return choices[int(rng.integers(len(choices)))]


def _work_out(total: int, signs: list[str], digits: list[int]) -> tuple[str, str]:
    """The steps of a chain of operations, and its result."""
    steps = []
    for sign, digit in zip(signs, digits, strict=True):
        result = arithmetic_chain.OPERATIONS[sign](total, digit)
        steps.append(f"{total} {sign} {digit} = {result}")
        total = result
    return " ; ".join(steps), str(total)


def _reverse_sentences(item: Item, rng: np.random.Generator) -> tuple[str, str]:
    """The reference's sentences in the wrong order; instead of a single one, a sentence that is no ending."""
    hero = item.prompt.split()[2]
    sentences = [f"{clause.strip()} ." for clause in item.reference.split(" .") if clause]
    if len(sentences) == 1:
        return "", story.ATTEMPT[-1].format(hero=hero)
    return "", " ".join(reversed(sentences))


def _translate_word_for_word(item: Item, rng: np.random.Generator) -> tuple[str, str]:
    english = item.prompt.removeprefix("Translate : ").split()
    return " ".join(english), " ".join(translation.LEXICON[word] for word in english)
