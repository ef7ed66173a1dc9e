"""The initial policy of every seed: the released policy, fine-tuned on typical replies.

The released policy is right and in form so often that even the verifier has little to reward. So every seed starts from
a policy of its own: supervised updates on training items with the replies of `lib.conductor.typical_replies`, of which
many are wrong, some break the form and some never end. It knows the right way and the wrong ones, and takes any of them
at random: rewards can tell it which.

Its items belong to the policy's part of the training split, which neither the reward model nor a test uses.
"""

from pathlib import Path

import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from lib import tasks
from lib.conductor import data, typical_replies
from lib.conductor.typical_replies import write_typical_reply
from lib.config import InitialPolicySettings, Params
from lib.experiment import artifacts, seeds, sweep
from lib.experiment.harness import JobRun, use_one_thread
from lib.language_models import chat_template, checkpoints, tokenizer
from lib.language_models.training import training_data
from lib.language_models.training.training_data import collate, tokenize_dialogue, write_question
from lib.tasks import Item

VERSION = 2  # of what an initial policy learns, and how


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
        "typical replies": typical_replies.VERSION,
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
        settings: How many, and with which probabilities they are wrong, long or malformed.
        seed: Of items and replies.

    Returns:
        Items with a reply each.
    """
    # One stream for all replies of a seed, so that two seeds make different errors.
    rng = seeds.rng("conductor", "start", seed=seed)
    items = data.draw_items("train", settings.items, seed, learner="policy")
    return [(item, write_typical_reply(item, settings, rng)) for item in items]


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
        # (batch, T - 1, d): the state at token t predicts token t + 1.
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]
        next_tokens = targets[:, 1:]
        is_reply = next_tokens >= 0  # the logits of other tokens are not needed
        loss = cross_entropy(model.lm_head(hidden[is_reply]), next_tokens[is_reply])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        # Linear decay, so that the last batches do not decide which errors the policy makes.
        optimizer.param_groups[0]["lr"] = settings.learning_rate * (1 - first / len(dialogues))
        optimizer.step()
        optimizer.zero_grad()
    return float(loss.detach())
