"""Train one variant on a model and a dataset of one's own: `python -m lib train maestro MODEL --data FILE --out
FOLDER`.

The settings are those of params.yaml at `paper` (MAESTRO, Tables 7 and 8) unless --profile or --set say
otherwise. Started again with the same --out, it continues from the last checkpoint. Nothing is downloaded: model,
tokenizer and reward model are folders.

FILE is .jsonl, .csv, .parquet or a saved dataset with the columns prompt and reference (category is optional). Prompts
must ask for the form <think> ... </think> <answer> ... </answer>; a prompt that is text becomes one user message where
the tokenizer has a chat template. The reward model is a sequence classification model with one output; its scores
become sigmoid((s - centre) / spread), so put {"centre": ..., "spread": ...} beside it as scale.json, or large scores
are all close to 1. --variant anchored rewards the head by exact agreement with the reference, on head.verified_fraction
of the prompts.

On several GPUs, with generation on a vLLM server (pip install vllm there; six and two as in the paper):

    CUDA_VISIBLE_DEVICES=6,7 trl vllm-serve --model MODEL --tensor-parallel-size 2
    CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 accelerate launch --num_processes 6 --mixed_precision bf16 \\
        -m lib train maestro MODEL --data FILE --reward-model FOLDER --out FOLDER --vllm --set grpo.prompts_per_step=18

Rollouts per step (prompts times generations, 15 x 5 in the paper) must divide among the processes, hence 18. Every
process holds policy, reference and reward model whole, so one GPU limits their size.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import torch
from datasets import Dataset
from transformers import AutoConfig, AutoTokenizer

from lib import config
from lib.conductor import data
from lib.conductor.judge_costs import announce_grades
from lib.conductor.llm_judge import JudgeReward
from lib.conductor.meta_policy_training import make_verified_mask_stream, select_verified
from lib.conductor.reply_format import get_completion_text
from lib.conductor.reward_model import PreferenceReward
from lib.conductor.rewards import COMPONENTS, RewardFunction
from lib.conductor.silence_libraries import silence_libraries
from lib.conductor.variants import VARIANTS, make_weighting
from lib.config import ConductorSettings, HeadSettings, Params, ParamsError
from lib.experiment import artifacts
from lib.language_models.local_models import open_local
from lib.llm.failure_policy import FailureWatch
from lib.llm.open_models import export_recording, open_models
from lib.llm.token_counts import count_bytes, estimate_tokens
from lib.rl.user_training.training import is_first_process, run_command
from lib.tasks.item import answers_match, extract_answer

RECORDING = "conductor"  # name of the judge's recording and spending limit under --out
# Replies that are shorter on average, in tokens, mean that the model is not prompted as it should be.
MIN_MEAN_TOKENS = 5
TRAINED_VARIANTS = {
    variant.name: variant
    for variant in VARIANTS
    if variant.kind == "grpo" and variant.name != "oracle"
}


def read_options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Parse the command line; None for the arguments of the process."""
    parser = argparse.ArgumentParser(
        prog="python -m lib train maestro",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model", help="folder of a Hugging Face causal language model with its tokenizer"
    )
    parser.add_argument(
        "--data", required=True, help="file or saved dataset with columns prompt and reference"
    )
    parser.add_argument(
        "--out", required=True, help="where the policy, its rollouts and checkpoints go"
    )
    parser.add_argument(
        "--reward-model",
        required=True,
        help="folder of a sequence classification model, one output",
    )
    parser.add_argument(
        "--variant", choices=TRAINED_VARIANTS, default="conductor", help="default: %(default)s"
    )
    parser.add_argument("--judge", help="name of llm.models in params.yaml; for --variant judge")
    parser.add_argument(
        "--profile", choices=config.PROFILES, default="paper", help="default: %(default)s"
    )
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="changes",
        help="change a setting, such as grpo.epochs=1 or head.kappa=1.0; may be repeated",
    )
    parser.add_argument(
        "--vllm", action="store_true", help="generate with a vLLM server (trl vllm-serve)"
    )
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m lib train maestro`.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The exit code: 0, 2 for a mistake in the input or a spending limit (one line on the terminal), 130 for Ctrl-C.
    """
    return run_command(read_options(argv), train_and_report)


def train_and_report(options: argparse.Namespace) -> None:
    """Train, and print what came of it."""
    with silence_libraries():
        rollouts = train(options)
    if not is_first_process():
        return
    print(summarize_rollouts(rollouts).round(3).to_string())
    mean_tokens = rollouts["tokens_out"].mean()
    if mean_tokens < MIN_MEAN_TOKENS:
        print(
            f"warning: replies have {mean_tokens:.1f} tokens on average; is this model prompted in the form that it "
            "knows (a chat template, an instruction), and may it write as much (grpo.max_tokens)?",
            file=sys.stderr,
        )
    print(f"policy: {Path(options.out) / 'policy'}")


def train(options: argparse.Namespace) -> pd.DataFrame:
    """Train, and save the policy.

    Args:
        options: Of the command line.

    Returns:
        The rollouts.

    Raises:
        ParamsError, TaskError, OSError, ValueError: What is wrong with the input, by name.
    """
    from lib.conductor.trainer import ConductorTrainer, make_grpo_config  # TRL takes seconds

    # Settings, and what they have to fit.
    params = config.load(options.profile)
    changed = config.apply_changes("conductor", params.conductor.model_dump(), options.changes)
    settings = config.validate_settings(changed, ConductorSettings, "with --set")
    variant = TRAINED_VARIANTS[options.variant]
    head = settings.head.model_copy(update=dict(variant.head_changes))
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    _check_processes(settings, head, num_processes)
    if not (Path(options.model) / "config.json").is_file():
        raise ParamsError(f"{options.model} holds no model: there is no config.json in it")

    # The model's tokenizer, and the prompts in its form.
    tokenizer = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    dataset = _load_prompts(options, tokenizer)
    model_config = AutoConfig.from_pretrained(options.model, local_files_only=True)
    width = model_config.get_text_config().hidden_size

    # The training.
    out, grpo = Path(options.out), settings.grpo
    rollouts_per_step = grpo.prompts_per_step * grpo.generations
    fields = {
        "per_device_train_batch_size": rollouts_per_step // num_processes,
        # Somebody watches the terminal.
        "logging_strategy": "steps",
        "logging_steps": 5,
        "disable_tqdm": False,
    }
    if options.vllm:
        fields |= {"use_vllm": True, "vllm_mode": "server"}
    trainer = ConductorTrainer(
        options.model,
        make_grpo_config(grpo, out, options.seed, variant.aggregation, **fields),
        dataset,
        tokenizer,
        make_weighting(variant, head, width, grpo.generations, options.seed),
        PreferenceReward(options.reward_model, _choose_device()),
        settings.rewards,
        settings.head.layer,
        settings.head.head_input,
        _list_extra_rewards(options, params, settings, head),
    )
    is_main = trainer.accelerator.is_main_process
    if is_main and "judge" in (variant.name, head.anchor):
        _announce_judge(options, params, settings, dataset)
    try:
        trainer.train_or_resume()
    finally:
        if is_main:
            export_recording(params.llm, RECORDING, out)

    # What it leaves.
    trainer.save_model(str(out / "policy"))
    if is_main:
        artifacts.write_parquet(out / "rollouts.parquet", trainer.rollouts)
        if trainer.weighting.get_state():
            artifacts.write_tensors(out / "conductor.safetensors", trainer.weighting.get_state())
    return trainer.rollouts


def _check_processes(settings: ConductorSettings, head: HeadSettings, num_processes: int) -> None:
    """Raises ParamsError where a step cannot be shared by the processes."""
    rollouts_per_step = settings.grpo.prompts_per_step * settings.grpo.generations
    if rollouts_per_step % num_processes:
        raise ParamsError(
            f"{rollouts_per_step} rollouts a step cannot be shared by {num_processes} processes; "
            "--set grpo.prompts_per_step"
        )
    if head.joint and num_processes > 1:
        raise ParamsError("head.joint learns in one process only; --set head.joint=false")


def _load_prompts(options: argparse.Namespace, tokenizer) -> Dataset:
    """The prompts as the model is asked them; says so where text becomes messages."""
    dataset = data.load_dataset(options.data)
    has_chat_template = tokenizer.chat_template is not None
    if has_chat_template and any(isinstance(prompt, str) for prompt in dataset["prompt"]):
        print(
            "prompts are text: each becomes one user message of the model's chat template",
            file=sys.stderr,
        )
    return data.prepare_prompts(dataset, has_chat_template)


def _choose_device() -> str:
    """Where this process computes."""
    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def _announce_judge(
    options: argparse.Namespace, params: Params, settings: ConductorSettings, dataset: Dataset
) -> None:
    """Print what the judge's scores may cost."""
    texts = [
        prompt if isinstance(prompt, str) else prompt[-1]["content"] for prompt in dataset["prompt"]
    ]
    mean_bytes = sum(map(count_bytes, texts)) // len(texts)
    costs = announce_grades(
        params.llm, settings, options.judge, len(dataset), estimate_tokens(mean_bytes)
    )
    print(costs or "no endpoint is asked; nothing is paid")


def _list_extra_rewards(
    options: argparse.Namespace, params: Params, settings: ConductorSettings, head: HeadSettings
) -> dict[str, RewardFunction]:
    """The reward that a variant has beside the five: a judge's, or what an anchored head is rewarded with."""
    judge = None
    if "judge" in (options.variant, head.anchor):
        judge = _make_judge(options, params, settings)
    if options.variant == "judge":
        return {"judge": judge}
    if head.anchor == "none":
        return {}

    def anchor(prompts, completions, reference, row, **_) -> list[float]:
        """Scores of the replies to verified prompts; 0 for all others."""
        stream = make_verified_mask_stream([options.seed])
        mask = select_verified(stream, torch.tensor(row), head.verified_fraction).tolist()
        verified = [i for i, is_verified in enumerate(mask) if is_verified]
        scores = [0.0] * len(row)
        if judge is None:
            for i in verified:
                answer = extract_answer(get_completion_text(completions[i])) or ""
                scores[i] = float(answers_match(reference[i], answer))
        elif verified:
            judged = judge(
                [prompts[i] for i in verified],
                [completions[i] for i in verified],
                [reference[i] for i in verified],
            )
            for i, score in zip(verified, judged, strict=True):
                scores[i] = score
        return scores

    return {"anchor": anchor}


def _make_judge(
    options: argparse.Namespace, params: Params, settings: ConductorSettings
) -> JudgeReward:
    if options.judge not in params.llm.models:
        raise ParamsError(
            f"--judge {options.judge}: llm.models in params.yaml has {sorted(params.llm.models)}"
        )
    out = Path(options.out)
    open_judge = partial(
        open_models,
        params.llm,
        [options.judge],
        RECORDING,
        out,
        out,
        open_local=open_local(),
        watches={options.judge: FailureWatch(options.judge)},  # shared by batches that each open it
    )
    return JudgeReward(open_judge, options.judge, settings.rewards.require_thought, options.seed)


def summarize_rollouts(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Means of what was measured, and of the weights, over the first and the last fifth of the steps, by category."""
    num_steps = rollouts["step"].max() + 1
    stages = {
        "first fifth": rollouts["step"] < max(1, num_steps / 5),
        "last fifth": rollouts["step"] >= num_steps * 4 / 5,
    }
    columns = ["tokens_out", *COMPONENTS, *(f"w_{name}" for name in COMPONENTS)]
    means = {name: rollouts[mask].groupby("group")[columns].mean() for name, mask in stages.items()}
    return pd.concat(means, names=["steps"])
