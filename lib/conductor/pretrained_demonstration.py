"""Equal weights and the Conductor on a pretrained model: `python -m lib demonstrate maestro`.

SmolLM2-135M-Instruct (`make pretrained`) answers sums of reasoning-gym after a few examples in the prompt, at times
right and at times wrong, so that rewards differ inside groups. A reward model is trained on its replies to prompts of
their own; then each method trains low-rank adapters for 40 steps, and start and policies answer held-out prompts. There
is one seed of each method: this shows that the commands work on a model that was not trained for them, and decides
nothing between the methods.

Kept are the table of facts data/results/04_pretrained.parquet, which the appendix of lesson 04 shows, and everything
else under --out. Whatever is there already is read again, and a training continues from its last checkpoint.
"""

import argparse
import hashlib
import json
import platform
import re
import shutil
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import pandas as pd
import torch
from datasets import Dataset
from transformers import PrinterCallback

from lib import tasks
from lib.conductor import data, evaluate_command, train_command
from lib.conductor.reward_scale import sample_plain_replies
from lib.conductor.silence_libraries import silence_libraries
from lib.conductor.training_presets import read_prompts
from lib.config import ROOT
from lib.experiment import artifacts, seeds
from lib.rl.user_training.training import run_command
from lib.tasks import Item
from lib.tasks.item import answers_match, extract_answer

MODEL = ROOT / "data/pretrained/SmolLM2-135M-Instruct"
TABLE = ROOT / "data/results/04_pretrained.parquet"
COMMAND = "python -m lib demonstrate maestro"
VARIANTS = ("equal", "conductor")

TASK = "reasoning_gym:chain_sum?size=2000&min_terms=2&max_terms=2&min_digits=1&max_digits=1"
INSTRUCTION = (
    "You think briefly and then answer. Every reply has exactly this form: "
    "<think> your thought </think> <answer> your answer </answer>"
)
NUM_EXAMPLES = 4  # in every prompt
NUM_PROMPTS = {"reward": 40, "train": 80, "test": 60}
MAX_TOKENS = 48
NUM_REPLIES = 4  # to each prompt of the reward model
NUM_SAMPLES = 5  # of each test prompt

PROMPTS_PER_STEP, GENERATIONS = 4, 6
CHANGES = {
    "grpo.epochs": 2,
    "grpo.prompts_per_step": PROMPTS_PER_STEP,
    "grpo.generations": GENERATIONS,
    "grpo.max_tokens": MAX_TOKENS,
    "grpo.learning_rate": 1e-4,
    "grpo.save_every": 5,
    "rewards.min_length": 16,
    "rewards.max_length": MAX_TOKENS,
    "head.update_interval": 1,
}
LORA_RANK = 16
REWARD_EPOCHS, REWARD_BATCH, REWARD_LEARNING_RATE = 1, 8, 2e-5


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The options.
    """
    parser = argparse.ArgumentParser(
        prog=COMMAND,
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--model", default=str(MODEL), help="folder; default: %(default)s")
    parser.add_argument(
        "--out",
        default=str(ROOT / "data/runs/maestro_pretrained"),
        help="where models, replies and checkpoints go; default: %(default)s",
    )
    parser.add_argument(
        "--table", default=str(TABLE), help="the table of facts; default: %(default)s"
    )
    parser.add_argument(
        "--prompts-only", action="store_true", help="write the prompts under --out, and no more"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m lib demonstrate maestro`.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The exit code: 0, 2 for a mistake in the input (one line on the terminal), 130 for Ctrl-C.
    """
    return run_command(read_options(argv), run_and_report)


def run_and_report(options: argparse.Namespace) -> None:
    """Run every stage that is not finished, write the table of results, and print its means.

    Args:
        options: Options of the command line.
    """
    out = Path(options.out)
    write_prompts(out)
    if options.prompts_only:
        return
    train_reward_model(options.model, out)
    for variant in VARIANTS:
        train_variant(options.model, variant, out)
    table = make_table(options.model, out)
    artifacts.write_parquet(Path(options.table), table)
    artifacts.write_json(Path(options.table).with_suffix(".json"), describe_run(options.model, out))
    print(summarize(table).round(3).to_string())
    print(f"table of facts: {options.table}")


# Prompts --------------------------------------------------------------------------------------------


def write_prompts(out: Path) -> None:
    """Write the prompts of the reward model, the training and the test as three files without a common question.

    Args:
        out: Folder of the files.
    """
    if all((out / f"{part}.jsonl").exists() for part in NUM_PROMPTS):
        return
    out.mkdir(parents=True, exist_ok=True)
    items = list(tasks.load(TASK))
    examples = items[:NUM_EXAMPLES]
    remaining = items[NUM_EXAMPLES:]
    needed = sum(NUM_PROMPTS.values())
    if len(remaining) < needed:
        raise ValueError(f"{TASK} has {len(remaining)} different questions; {needed} are needed")
    first = 0
    for part, count in NUM_PROMPTS.items():
        rows = []
        for item in remaining[first : first + count]:
            row = {"prompt": write_messages(examples, item), "reference": item.reference}
            rows.append(json.dumps(row))
        artifacts.write_bytes(out / f"{part}.jsonl", ("\n".join(rows) + "\n").encode())
        first += count


def write_messages(examples: Sequence[Item], item: Item) -> list[dict[str, str]]:
    """Write the few-shot prompt of a question: an instruction, and examples as earlier turns of the dialogue.

    Args:
        examples: Questions whose replies are shown.
        item: The question.

    Returns:
        The messages.
    """
    messages = [{"role": "system", "content": INSTRUCTION}]
    for example in examples:
        reply = f"<think> {work_out(example)} </think> <answer> {example.reference} </answer>"
        messages.append({"role": "user", "content": example.prompt})
        messages.append({"role": "assistant", "content": reply})
    messages.append({"role": "user", "content": item.prompt})
    return messages


def work_out(item: Item) -> str:
    """Write the reasoning of an example: a sum, one operation after the other.

    Args:
        item: A sum, such as 4 + 5 - 2.

    Returns:
        The operations with their results.

    Example:
        >>> work_out(make_item("... the following arithmetic problem: 4 + 5 - 2 =", "7", "chain_sum"))
        '4 + 5 = 9, 9 - 2 = 7'
    """
    terms = re.findall(r"[+-]|\d+", item.prompt)
    value = int(terms[0])
    steps = []
    for operator, number in zip(terms[1::2], terms[2::2], strict=True):
        result = value + int(number) if operator == "+" else value - int(number)
        steps.append(f"{value} {operator} {number} = {result}")
        value = result
    return ", ".join(steps)


# The reward model -----------------------------------------------------------------------------------


def train_reward_model(model: str, out: Path) -> None:
    """Train a reward model on pairs of the model's own replies, of which one is right and one wrong.

    Bradley and Terry (1952): minimise -log sigmoid(s(right) - s(wrong)).

    Args:
        model: Folder of the language model.
        out: Folder of the prompts; the reward model is written to its folder `reward_model`.
    """
    from trl import RewardConfig, RewardTrainer  # takes seconds

    folder = out / "reward_model"
    if (folder / "config.json").exists():
        return
    pairs = make_pairs(model, out)
    if not pairs:
        raise ValueError(
            f"{model} gave no prompt of {out / 'reward.jsonl'} both a right and a wrong reply; there is nothing to "
            "learn a preference from"
        )
    print(f"training a reward model on {len(pairs)} pairs of replies")
    has_cuda = torch.cuda.is_available()
    arguments = RewardConfig(
        output_dir=str(out / "reward_training"),
        per_device_train_batch_size=REWARD_BATCH,
        num_train_epochs=REWARD_EPOCHS,
        learning_rate=REWARD_LEARNING_RATE,
        seed=int(seeds.key("conductor", "pretrained", "reward model") % 2**31),
        bf16=has_cuda,
        use_cpu=not has_cuda,
        gradient_checkpointing=False,
        save_strategy="no",
        report_to="none",
        logging_steps=10,
        max_length=None,
    )
    tokenizer = data.read_tokenizer(model)
    with silence_libraries():
        trainer = RewardTrainer(
            model, arguments, train_dataset=Dataset.from_list(pairs), processing_class=tokenizer
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        trainer.save_model(str(folder))
    shutil.rmtree(out / "reward_training", ignore_errors=True)


def make_pairs(model: str, out: Path) -> list[dict]:
    """Sample replies, and pair every right reply with every wrong one to the same prompt.

    Args:
        model: Folder of the language model.
        out: Folder of the prompts.

    Returns:
        Pairs as TRL's columns chosen and rejected, which are conversations.
    """
    prompts = read_prompts(str(out / "reward.jsonl"))
    replies_by_sample = [
        sample_plain_replies(
            model,
            data.read_tokenizer(model),
            prompts["prompt"].tolist(),
            MAX_TOKENS,
            temperature=1.0,
            seed=sample,
            device=train_command.choose_device(),
        )
        for sample in range(NUM_REPLIES)
    ]
    pairs = []
    rows = zip(
        prompts["prompt"], prompts["reference"], zip(*replies_by_sample, strict=True), strict=True
    )
    for prompt, reference, replies in rows:
        for first, second in combinations(dict.fromkeys(replies), 2):
            is_first_right = is_right(reference, first)
            if is_first_right == is_right(reference, second):
                continue
            right = first if is_first_right else second
            wrong = second if is_first_right else first
            pairs.append(
                {
                    "chosen": [*prompt, {"role": "assistant", "content": right}],
                    "rejected": [*prompt, {"role": "assistant", "content": wrong}],
                }
            )
    return pairs


def is_right(reference: str, reply: str) -> bool:
    """Whether the answer of a reply, in its tags, is the reference."""
    return answers_match(reference, extract_answer(reply) or "")


# Training and test ----------------------------------------------------------------------------------


def train_variant(model: str, variant: str, out: Path) -> None:
    """Train one method with `python -m lib train maestro`, and write down the time and memory that it took.

    A training that was stopped continues from its last checkpoint.

    Args:
        model: Folder of the language model.
        variant: Name of the method.
        out: Folder of prompts and results.
    """
    folder = out / variant
    if (folder / "cost.json").exists():
        return
    arguments = [model, "--data", str(out / "train.jsonl"), "--variant", variant]
    arguments += ["--reward-model", str(out / "reward_model"), "--out", str(folder)]
    arguments += ["--lora", str(LORA_RANK), "--accumulate", "2"]
    for name, value in CHANGES.items():
        arguments += ["--set", f"{name}={value}"]
    num_steps = CHANGES["grpo.epochs"] * NUM_PROMPTS["train"] // PROMPTS_PER_STEP
    print(f"{variant}: {num_steps} steps")
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    first_step = find_last_checkpoint(folder)
    started = time.monotonic()
    with silence_libraries():
        train_command.train(train_command.read_options(arguments))
    cost = {
        "steps": num_steps - first_step,
        "seconds": round(time.monotonic() - started, 1),
        "device": describe_device(),
    }
    if torch.cuda.is_available():
        cost["gibibytes"] = round(torch.cuda.max_memory_allocated() / 2**30, 2)
    artifacts.write_json(folder / "cost.json", cost)


def find_last_checkpoint(folder: Path) -> int:
    """The step of the last checkpoint in a folder; 0 where there is none."""
    steps = [int(path.name.removeprefix("checkpoint-")) for path in folder.glob("checkpoint-*")]
    return max(steps, default=0)


def describe_device() -> str:
    """What it ran on, in a few words."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{platform.machine()} processor, {torch.get_num_threads()} threads"


def make_table(model: str, out: Path) -> pd.DataFrame:
    """Collect the rollouts of both trainings, and the test replies of all models, in one table.

    Args:
        model: Folder of the language model before training.
        out: Folder of prompts and results.

    Returns:
        Columns: split (train or test), method (start, equal, conductor), step, item, sample, correct, in_form,
        tokens_out, truncated; of rollouts the five rewards as measured, and the weights w_NAME.
    """
    tables = []
    for variant in VARIANTS:
        rollouts = artifacts.read_parquet(out / variant / "rollouts.parquet")
        tables.append(rollouts.assign(split="train", method=variant))

        folder = out / f"test_{variant}"
        start_file = out / f"test_{VARIANTS[0]}/replies_start.parquet"
        if variant != VARIANTS[0] and not (folder / start_file.name).exists():
            # The start's replies are the same for both.
            folder.mkdir(parents=True, exist_ok=True)
            shutil.copy(start_file, folder)
        arguments = [model, str(out / variant / "policy"), "--data", str(out / "test.jsonl")]
        arguments += ["--out", str(folder), "--max-tokens", str(MAX_TOKENS)]
        arguments += ["--samples", str(NUM_SAMPLES)]
        with silence_libraries():
            replies = evaluate_command.collect_replies(evaluate_command.read_options(arguments))
        scores = evaluate_command.score_replies(replies)
        scores["method"] = scores["method"].replace(evaluate_command.TRAINED, variant)
        if variant != VARIANTS[0]:
            scores = scores[scores["method"] == variant]
        tables.append(scores.drop(columns=["seed", "role"]).assign(split="test"))
    table = pd.concat(tables, ignore_index=True)
    dropped = [name for name in table if name.startswith("r_") or name in ("group", "tokens_in")]
    table = table.drop(columns=dropped)
    floats = table.columns[table.dtypes == "float64"]
    return table.assign(**table[floats].round(4))


def describe_run(model: str, out: Path) -> dict:
    """Describe how the table of results was made.

    Args:
        model: Folder of the language model.
        out: Folder of prompts and results.

    Returns:
        Command, model, settings, and the cost and device of each training.
    """
    weights = Path(model) / "model.safetensors"
    return {
        "command": COMMAND,
        "model": Path(model).name,
        "weights_sha256": hashlib.sha256(weights.read_bytes()).hexdigest(),
        "task": TASK,
        "lora_rank": LORA_RANK,
        "changes": CHANGES,
        "cost": {variant: artifacts.read_json(out / variant / "cost.json") for variant in VARIANTS},
    }


def summarize(table: pd.DataFrame) -> pd.DataFrame:
    """Means over the test replies, by method."""
    test = table[table["split"] == "test"]
    return test.groupby("method", sort=False)[["correct", "in_form", "tokens_out"]].mean()
