"""Train one variant on a model and a dataset of one's own: `python -m lib train maestro MODEL --data FILE --out
FOLDER`.

The settings are those of params.yaml at `paper` (MAESTRO, Tables 7 and 8) unless --profile or --set say
otherwise. Started again with the same --out, it goes on from the last checkpoint. Nothing is downloaded: model,
tokenizer and reward model are folders.

FILE is .jsonl, .csv, .parquet or a saved dataset with the columns prompt and reference (category is optional). Prompts
must ask for the form <think> ... </think> <answer> ... </answer>; a prompt that is text becomes one user message where
the tokenizer has a chat template. The reward model is a sequence classification model with one output; its scores
become sigmoid((s - centre) / spread), so put {"centre": ..., "spread": ...} beside it as scale.json, or large scores
all look alike. --variant anchored pays the head by exact agreement with the reference, on head.verified of the prompts.

On several GPUs, with generation on a vLLM server (pip install vllm there; six and two as in the paper):

    CUDA_VISIBLE_DEVICES=6,7 trl vllm-serve --model MODEL --tensor-parallel-size 2
    CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 accelerate launch --num_processes 6 --mixed_precision bf16 \\
        -m lib.conductor MODEL --data FILE --reward-model FOLDER --out FOLDER --vllm --set grpo.prompts_per_step=18

Rollouts per step (prompts times generations, 15 x 5 in the paper) must divide among the processes, hence 18. Every
process holds policy, reference and reward model whole, so one GPU limits their size.
"""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

import pandas as pd
import torch

from lib import config as params
from lib.conductor import data
from lib.conductor.judge_costs import announce_grades
from lib.conductor.llm_judge import JudgeReward
from lib.conductor.meta_policy_training import chosen, lots
from lib.conductor.reward_model import PreferenceReward
from lib.conductor.rewards import COMPONENTS, Measure, said
from lib.conductor.silence_libraries import quiet
from lib.conductor.variants import VARIANTS, weighting
from lib.config import ConductorSettings, HeadSettings, Params, ParamsError
from lib.experiment import artifacts
from lib.language_models.local_models import open_local
from lib.llm.cost_ledger import BudgetExceeded
from lib.llm.errors import LLMError
from lib.llm.failure_policy import FailureWatch
from lib.llm.open_models import export_recording, open_models
from lib.llm.token_counts import count_bytes, estimate_tokens
from lib.tasks.item import answers_match, extract_answer

RECORDING = "conductor"  # name of the judge's recording and spending limit under --out
SHORTEST = 5  # tokens; replies that are shorter on average mean that the model is not asked as it should be
KNOWN = {
    variant.name: variant
    for variant in VARIANTS
    if variant.kind == "grpo" and variant.name != "oracle"
}


def arguments(given: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
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
        "--variant", choices=KNOWN, default="conductor", help="default: %(default)s"
    )
    parser.add_argument("--judge", help="name of llm.models in params.yaml; for --variant judge")
    parser.add_argument(
        "--profile", choices=params.PROFILES, default="paper", help="default: %(default)s"
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
    return parser.parse_args(given)


def train(options: argparse.Namespace) -> pd.DataFrame:
    """Train, save, and return the rollouts. Raises what is wrong with the input by name."""
    from transformers import AutoConfig, AutoTokenizer

    from lib.conductor.trainer import ConductorTrainer, configuration

    all_of = params.load(options.profile)
    content = params.apply_changes("conductor", all_of.conductor.model_dump(), options.changes)
    settings = params.validate_settings(content, ConductorSettings, "with --set")
    variant, out = KNOWN[options.variant], Path(options.out)
    if not (Path(options.model) / "config.json").is_file():
        raise ParamsError(f"{options.model} holds no model: there is no config.json in it")
    dataset = data.load(options.data)
    rollouts = settings.grpo.prompts_per_step * settings.grpo.generations
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if rollouts % processes:
        raise ParamsError(
            f"{rollouts} rollouts a step cannot be shared by {processes} processes; --set grpo.prompts_per_step"
        )
    head = settings.head.model_copy(update=dict(variant.changes))
    if head.joint and processes > 1:
        raise ParamsError("head.joint learns in one process only; --set head.joint=false")
    tokenizer = AutoTokenizer.from_pretrained(options.model, local_files_only=True)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    chats = tokenizer.chat_template is not None
    if chats and any(isinstance(prompt, str) for prompt in dataset["prompt"]):
        print(
            "prompts are text: each becomes one user message of the model's chat template",
            file=sys.stderr,
        )
    dataset = data.asked(dataset, chats)
    config = AutoConfig.from_pretrained(options.model, local_files_only=True)
    other = {"per_device_train_batch_size": rollouts // processes}
    other |= {
        "logging_strategy": "steps",
        "logging_steps": 5,
        "disable_tqdm": False,
    }  # somebody is waiting
    if options.vllm:
        other |= {"use_vllm": True, "vllm_mode": "server"}
    trainer = ConductorTrainer(
        options.model,
        configuration(settings.grpo, out, options.seed, variant.aggregation, **other),
        dataset,
        tokenizer,
        weighting(
            variant,
            head,
            config.get_text_config().hidden_size,
            settings.grpo.generations,
            options.seed,
        ),
        PreferenceReward(options.reward_model, _device()),
        settings.rewards,
        settings.head.layer,
        settings.head.sees,
        _extra(options, all_of, settings, head, out),
    )
    if "judge" in (variant.name, head.anchor) and trainer.accelerator.is_main_process:
        num_bytes = [
            count_bytes(prompt if isinstance(prompt, str) else prompt[-1]["content"])
            for prompt in dataset["prompt"]
        ]
        question_tokens = estimate_tokens(sum(num_bytes) // len(num_bytes))
        costs = announce_grades(all_of.llm, settings, options.judge, len(dataset), question_tokens)
        print(costs or "no endpoint is asked; nothing is paid")
    try:
        trainer.resume()
    finally:
        if trainer.accelerator.is_main_process:
            export_recording(all_of.llm, RECORDING, out)
    trainer.save_model(str(out / "policy"))
    if trainer.accelerator.is_main_process:
        artifacts.write_parquet(out / "rollouts.parquet", trainer.rollouts)
        if trainer.weighting.state():
            artifacts.write_tensors(out / "conductor.safetensors", trainer.weighting.state())
    return trainer.rollouts


def _device() -> str:
    """Where this process computes."""
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"


def _extra(
    options, all_of: Params, settings: ConductorSettings, head: HeadSettings, out: Path
) -> dict[str, Measure]:
    """The reward that a variant has beside the five: a judge's, or what an anchored head is paid by."""
    judge = (
        _judge(options, all_of, settings, out)
        if "judge" in (options.variant, head.anchor)
        else None
    )
    if options.variant == "judge":
        return {"judge": judge}
    if head.anchor == "none":
        return {}

    def anchor(prompts, completions, reference, row, **_) -> list[float]:
        known = chosen(lots([options.seed]), torch.tensor(row), head.verified).tolist()
        told, rows = [0.0] * len(row), [i for i, each in enumerate(known) if each]
        if judge is None:
            found = [
                float(answers_match(reference[i], extract_answer(said(completions[i])) or ""))
                for i in rows
            ]
        else:
            found = (
                judge(*([part[i] for i in rows] for part in (prompts, completions, reference)))
                if rows
                else []
            )
        for i, score in zip(rows, found, strict=True):
            told[i] = score
        return told

    return {"anchor": anchor}


def _judge(
    options: argparse.Namespace, all_of: Params, settings: ConductorSettings, out: Path
) -> JudgeReward:
    if options.judge not in all_of.llm.models:
        raise ParamsError(
            f"--judge {options.judge}: llm.models in params.yaml has {sorted(all_of.llm.models)}"
        )
    open_judge = partial(
        open_models,
        all_of.llm,
        [options.judge],
        RECORDING,
        out,
        out,
        open_local=open_local(),
        watches={options.judge: FailureWatch(options.judge)},  # it is opened anew for every batch
    )
    return JudgeReward(open_judge, options.judge, settings.rewards.think, options.seed)


def summary(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Means of what was measured, and of the weights, over the first and the last fifth of the steps, by category."""
    steps = rollouts["step"].max() + 1
    ends = {
        "first fifth": rollouts["step"] < max(1, steps / 5),
        "last fifth": rollouts["step"] >= steps * 4 / 5,
    }
    columns = ["tokens_out", *COMPONENTS, *(f"w_{name}" for name in COMPONENTS)]
    parts = {name: rollouts[where].groupby("group")[columns].mean() for name, where in ends.items()}
    return pd.concat(parts, names=["steps"])


def main(given: list[str] | None = None) -> int:
    """Run; mistakes in the input end in one line and the code 2."""
    options = arguments(given)
    try:
        with quiet():
            rollouts = train(options)
    except (BudgetExceeded, LLMError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(
            f"stopped; run the same command to go on from the last checkpoint in {options.out}",
            file=sys.stderr,
        )
        return 130
    if int(os.environ.get("RANK", "0")) == 0:
        print(summary(rollouts).round(3).to_string())
        length = rollouts["tokens_out"].mean()
        if length < SHORTEST:
            print(
                f"warning: replies have {length:.1f} tokens on average; is this model asked in the form that it knows "
                "(a chat template, an instruction), and may it write as much (grpo.max_tokens)?",
                file=sys.stderr,
            )
        print(f"policy: {Path(options.out) / 'policy'}")
    return 0
