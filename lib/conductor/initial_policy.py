"""The initial policy of every seed, which all variants of that seed are trained from.

It is the released policy, a language model of the lab, fine-tuned on typical replies.

The released policy is right and well-formed so often that even the verifier has little to reward. So every seed starts
from a policy of its own: supervised updates on training items with the replies of `lib.conductor.typical_replies`, of
which many are wrong, some break the required form and some never end. It knows the right way and the wrong ones, and
takes any of them at random: rewards can tell it which.

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
    """List the VERSIONs of the code that decides the weights of an initial policy.

    They are part of the key of its job: where one is raised, the policy is trained anew.
    """
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
    """List the small models that the experiment needs: the initial policy, and the judge where it is one of them.

    Args:
        params: All settings.

    Returns:
        Their names.
    """
    settings = params.conductor
    judge = params.llm.models[settings.judge]
    names = [settings.policy]
    if judge.backend == "lab":
        names.append(judge.model or settings.judge)
    return names


def make_job(settings: InitialPolicySettings, policy: Path, seed: int) -> sweep.Job:
    """Describe the job that fine-tunes the initial policy of a seed; `run_job` does it.

    Args:
        settings: Settings of the fine-tuning.
        policy: Folder of the released policy.
        seed: Selects the training items and the replies to them.

    Returns:
        The job. Its key is a hash of everything that decides the trained weights, so that it runs once, and again only
        where one of these changes.
    """
    released_weights = policy / "model.safetensors"
    decided_by = {
        "job": "initial policy",
        "initial_policy": settings.model_dump(),
        "seed": seed,
        # The content of the file: another policy in the same folder makes another job.
        "policy": artifacts.sha256_file(released_weights),
        "versions": list_versions(),
        "libraries": {
            "torch": torch.__version__,
            "transformers": transformers.__version__,
        },
    }
    return sweep.Job(f"initial-policy/seed-{seed}", decided_by)


def run_job(run: JobRun, policy: str) -> dict[str, float]:
    """Fine-tune the released policy, and write the result to the folder `model` of the job.

    Args:
        run: Run of a job of `make_job`.
        policy: Folder of the released policy.

    Returns:
        loss: Loss of the last update, in nats per token.
    """
    use_one_thread()
    settings = run.read_section("initial_policy", InitialPolicySettings)
    model = checkpoints.load(policy)
    loss = fine_tune(model, write_examples(settings, run.seed), settings)
    checkpoints.save(model, run.folder / "model")
    return {"loss": loss}


def write_examples(settings: InitialPolicySettings, seed: int) -> list[tuple[Item, str]]:
    """Draw training items, and write a typical reply to each of them.

    Args:
        settings: How many items, and with which probabilities a reply is wrong, long or malformed.
        seed: Seed of items and replies.

    Returns:
        Pairs of an item and the reply that the policy learns to give.
    """
    # One stream for all replies of a seed, so that two seeds make different errors.
    rng = seeds.rng("conductor", "start", seed=seed)
    items = data.draw_items("train", settings.items, seed, learner="policy")
    return [(item, write_typical_reply(item, settings, rng)) for item in items]


def fine_tune(
    model: LlamaForCausalLM, examples: list[tuple[Item, str]], settings: InitialPolicySettings
) -> float:
    """Train a policy on example replies: one supervised pass, at a learning rate that falls linearly to 0.

    Args:
        model: The policy; changed in place.
        examples: Items and replies, of `write_examples`.
        settings: Batch size and first learning rate.

    Returns:
        The loss of the last batch, in nats per token of its replies.
    """
    # Question and reply of every example as one dialogue.
    dialogues = []
    for item, reply in examples:
        messages = [*write_question(item), {"role": "assistant", "content": reply}]
        dialogues.append(tokenize_dialogue(messages))

    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.learning_rate)
    for first in range(0, len(dialogues), settings.batch):
        # Cross-entropy of the tokens of the replies. The state at token t predicts token t + 1.
        ids, targets = collate(dialogues[first : first + settings.batch])  # (batch, tokens)
        hidden = model.model(input_ids=ids).last_hidden_state[:, :-1]  # (batch, tokens - 1, width)
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
