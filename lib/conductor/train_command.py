"""Train one variant on a model and data of one's own: `python -m lib train maestro MODEL --data DATA --out FOLDER`.

The settings are those of params.yaml at `paper` (MAESTRO, Tables 7 and 8) with replies of up to 1,024 tokens, unless
--profile or --set say otherwise. Started again with the same --out, it continues from the last checkpoint. Nothing is
downloaded: model, tokenizer and reward model are folders. What memory it takes is printed before anything is read.

DATA is .jsonl, .csv, .parquet or a saved dataset with the columns prompt and reference (category is optional), or one
of the paper's data sets as NAME:PATH, such as webinstruct:FOLDER (--list-data names them, with their lengths and
intervals). Prompts of a file must ask for the form <think> ... </think> <answer> ... </answer>; a preset adds the
paper's instruction. A prompt that is text becomes one user message where the tokenizer has a chat template.

The reward model is a sequence classification model with one output; its scores become sigmoid((s - centre) / spread).
Both are in scale.json beside it. Where there is none they are measured on replies of MODEL to 200 prompts, and written
there (--calibrate does only that). --variant anchored rewards the head by exact agreement with the reference, on
head.verified_fraction of the prompts.

On several GPUs, with generation on a vLLM server (pip install vllm there; six and two as in the paper):

    CUDA_VISIBLE_DEVICES=6,7 trl vllm-serve --model MODEL --tensor-parallel-size 2
    CUDA_VISIBLE_DEVICES=0,1,2,3,4,5 accelerate launch --num_processes 6 --mixed_precision bf16 \\
        -m lib train maestro MODEL --data DATA --reward-model FOLDER --out FOLDER --vllm --set grpo.prompts_per_step=18

Rollouts per step (prompts times generations, 15 x 5 in the paper) must divide among processes and --accumulate, hence
18. Every process holds the reward model whole. For models that one GPU cannot learn, `accelerate launch --config_file
data/accelerate/fsdp.yaml` or `data/accelerate/deepspeed.yaml` divides weights, gradients and optimiser.

`python -m lib evaluate maestro --help` compares the trained policy with its start.
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
from transformers import AutoConfig, PreTrainedTokenizerBase

from lib import config
from lib.conductor import data
from lib.conductor.judge_costs import announce_grades
from lib.conductor.llm_judge import JudgeReward
from lib.conductor.meta_policy_training import score_verified_replies
from lib.conductor.reply_format import get_completion_text
from lib.conductor.reward_model import SCALE_FILE, PreferenceReward
from lib.conductor.reward_scale import calibrate
from lib.conductor.rewards import COMPONENTS, RewardFunction
from lib.conductor.silence_libraries import silence_libraries
from lib.conductor.training_presets import PRESETS, find_preset, read_prompts
from lib.conductor.variants import VARIANTS, make_weighting
from lib.config import ConductorSettings, HeadSettings, Params, ParamsError
from lib.experiment import artifacts
from lib.language_models.local_models import open_local
from lib.llm.failure_policy import FailureWatch
from lib.llm.open_models import export_recording, open_models
from lib.llm.token_counts import count_bytes, estimate_tokens
from lib.rl.memory_plan import GIB, MemoryPlan, plan_memory
from lib.rl.policy_model import PolicyModelSettings
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
    """Parse the command line.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The options.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lib train maestro",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "model", help="folder of a Hugging Face causal language model with its tokenizer"
    )
    parser.add_argument(
        "--data", required=True, help="file, saved dataset, or NAME:PATH with a name of --list-data"
    )
    parser.add_argument("--prompt-column", metavar="NAME", help="of a file, with the question")
    parser.add_argument("--reference-column", metavar="NAME", help="of a file, with the answer")
    parser.add_argument(
        "--list-data",
        action=_ListData,
        help="the paper's data sets and their settings, and no more",
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
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="measure and write the reward model's scale, no more",
    )
    memory = parser.add_argument_group("memory")
    memory.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16"),
        default="auto",
        help="of the computation; auto is bfloat16 on a GPU; default: %(default)s",
    )
    memory.add_argument(
        "--lora",
        type=int,
        default=0,
        metavar="RANK",
        help="train low-rank adapters instead of all weights; the reference model is then the start, for good",
    )
    memory.add_argument(
        "--gradient-checkpointing",
        action="store_true",
        help="compute activations twice instead of keeping them: slower, less memory",
    )
    memory.add_argument(
        "--accumulate",
        type=int,
        default=1,
        metavar="N",
        help="passes that a step's rollouts are learned from in turn; the same update with less memory",
    )
    return parser.parse_args(argv)


class _ListData(argparse.Action):
    """The option --list-data: prints the paper's data sets, and ends the process."""

    def __init__(self, option_strings, dest, **options):
        # It takes no value.
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser, *_):
        for preset in PRESETS.values():
            print(
                f"{preset.name:18} {preset.description}; replies of {preset.max_tokens} tokens, reference model "
                f"every {preset.sync_every} steps, M = {preset.update_interval}"
            )
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m lib train maestro`.

    Args:
        argv: The arguments; None for those of the process.

    Returns:
        The exit code: 0, 2 for a mistake in the input or a spending limit (one line on the terminal), 130 for Ctrl-C.
    """
    return run_command(read_options(argv), train_and_report)


def train_and_report(options: argparse.Namespace) -> None:
    """Train, and print the means of what was measured, at the start and at the end.

    Args:
        options: Options of the command line.
    """
    with silence_libraries():
        rollouts = train(options)
    if rollouts is None or not is_first_process():
        return
    print(summarize_rollouts(rollouts).round(3).to_string())

    # A model that hardly writes is not prompted in its own form.
    mean_tokens = rollouts["tokens_out"].mean()
    if mean_tokens < MIN_MEAN_TOKENS:
        print(
            f"warning: replies have {mean_tokens:.1f} tokens on average; is this model prompted in the form that it "
            "knows (a chat template, an instruction), and may it write as much (grpo.max_tokens)?",
            file=sys.stderr,
        )
    print(f"policy: {Path(options.out) / 'policy'}")


def train(options: argparse.Namespace) -> pd.DataFrame | None:
    """Train a policy with TRL's GRPO under weighted rewards, and save it.

    Args:
        options: Options of the command line.

    Returns:
        The rollouts; None where only the reward model's scale was asked for.

    Raises:
        ParamsError, TaskError, OSError, ValueError: What is wrong with the input, by name.
    """
    from lib.conductor.trainer import ConductorTrainer, make_grpo_config  # TRL takes seconds

    # Settings, and what they have to fit.
    params = config.load(options.profile)
    settings = read_settings(options, params)
    variant = TRAINED_VARIANTS[options.variant]
    head = settings.head.model_copy(update=dict(variant.head_changes))
    num_processes = int(os.environ.get("WORLD_SIZE", "1"))
    _check_processes(options, settings, head, num_processes)
    if not (Path(options.model) / "config.json").is_file():
        raise ParamsError(f"{options.model} holds no model: there is no config.json in it")

    # The model's tokenizer, and the prompts in its form.
    tokenizer = data.read_tokenizer(options.model)
    dataset = _load_prompts(options, tokenizer)
    model_config = AutoConfig.from_pretrained(options.model, local_files_only=True)
    width = model_config.get_text_config().hidden_size

    # What it takes, and where the reward model's scores lie.
    if is_first_process():
        plan = plan_training_memory(options, settings, params, dataset, tokenizer, num_processes)
        print(plan.describe())
        print(_describe_reward_model(options.reward_model))
    _calibrate_where_needed(options, settings, dataset, tokenizer, num_processes)
    if options.calibrate:
        return None

    # The training.
    out, grpo = Path(options.out), settings.grpo
    rollouts_per_step = grpo.prompts_per_step * grpo.generations
    fields = {
        "per_device_train_batch_size": rollouts_per_step // (num_processes * options.accumulate),
        "gradient_accumulation_steps": options.accumulate,
        "gradient_checkpointing": options.gradient_checkpointing,
        "bf16": _uses_bfloat16(options),
        # Somebody watches the terminal.
        "logging_strategy": "steps",
        "logging_steps": 5,
        "disable_tqdm": False,
    }
    if options.vllm:
        fields |= {"use_vllm": True, "vllm_mode": "server"}
    if options.lora:
        # Under adapters the reference is the model without them, which cannot follow.
        fields["sync_ref_model"] = False
    trainer = ConductorTrainer(
        options.model,
        make_grpo_config(grpo, out, options.seed, variant.aggregation, **fields),
        dataset,
        tokenizer,
        make_weighting(variant, head, width, grpo.generations, options.seed),
        PreferenceReward(options.reward_model, choose_device()),
        settings.rewards,
        settings.head.layer,
        settings.head.head_input,
        _list_extra_rewards(options, params, settings, head),
        lora_rank=options.lora,
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


def read_settings(options: argparse.Namespace, params: Params) -> ConductorSettings:
    """Read the settings of the training: the profile, then the data set's preset, then --set.

    Args:
        options: Options of the command line.
        params: All settings of the profile.

    Returns:
        The section `conductor` with these changes.

    Raises:
        ParamsError: A change cannot be.
    """
    # The lab's models see 512 tokens, so that the profile itself has shorter replies than the paper.
    section = params.conductor.model_dump()
    if options.profile == "paper":
        preset, _ = find_preset(options.data)
        for name, changes in preset.list_changes().items():
            section[name] = section[name] | changes
    changed = config.apply_changes("conductor", section, options.changes)
    return config.validate_settings(changed, ConductorSettings, "with --set")


def plan_training_memory(
    options: argparse.Namespace,
    settings: ConductorSettings,
    params: Params,
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    num_processes: int,
) -> MemoryPlan:
    """Plan the memory that the training takes in each process, by the longest prompt and the longest reply.

    Left out: the reward model, which every process holds whole; and what a sharded training saves, as the plan does not
    divide weights among processes.

    Args:
        options: Options of the command line.
        settings: The section `conductor`.
        params: All settings of the profile.
        dataset: The prompts.
        tokenizer: Tokenizer of the policy.
        num_processes: Number of processes that share the rollouts of a step.

    Returns:
        The plan.
    """
    rollouts = settings.grpo.prompts_per_step * settings.grpo.generations // num_processes
    # The plan is made for the trainer of lesson 05; GRPO is its `group` mode, without a critic.
    learn = params.routing.learn.model_copy(
        update={
            "advantages": "group",
            "kl": settings.grpo.kl,
            "minibatch": max(2, rollouts),
            "microbatch": max(1, rollouts // options.accumulate),
        }
    )
    model_settings = PolicyModelSettings(
        dtype=options.dtype,
        lora_rank=options.lora,
        gradient_checkpointing=options.gradient_checkpointing,
    )
    longest_prompt = max(len(_tokenize_prompt(tokenizer, prompt)) for prompt in dataset["prompt"])
    max_tokens = settings.grpo.max_tokens
    return plan_memory(
        AutoConfig.from_pretrained(options.model, local_files_only=True),
        model_settings,
        learn,
        longest_prompt + max_tokens,
        max_tokens,
        sampled_at_once=0 if options.vllm else rollouts,
        device=choose_device(),
    )


def _tokenize_prompt(tokenizer, prompt) -> list[int]:
    """Tokenize a prompt: text, or the contents of its messages."""
    if not isinstance(prompt, str):
        prompt = "\n".join(message["content"] for message in prompt)
    return tokenizer(prompt)["input_ids"]


def _describe_reward_model(folder: str) -> str:
    """Say what memory the reward model takes: as much as its files, which are in the precision that it computes in."""
    num_bytes = sum(path.stat().st_size for path in Path(folder).glob("*.safetensors"))
    return f"  reward model (in every process)     {num_bytes / GIB:9.2f} GiB"


def _uses_bfloat16(options: argparse.Namespace) -> bool:
    """Decide whether to compute in bfloat16: as --dtype says, or on a GPU."""
    if options.dtype == "auto":
        return torch.cuda.is_available()
    return options.dtype == "bfloat16"


def _calibrate_where_needed(
    options: argparse.Namespace,
    settings: ConductorSettings,
    dataset: Dataset,
    tokenizer: PreTrainedTokenizerBase,
    num_processes: int,
) -> None:
    """Measure the scale of the reward model's scores where it is not known, or where --calibrate asks for it.

    The scale is their mean and deviation on replies of the policy, by which they become rewards in [0, 1]. It is
    written beside the reward model.

    Args:
        options: Options of the command line.
        settings: The section `conductor`; says how replies are sampled.
        dataset: The prompts.
        tokenizer: Tokenizer of the policy.
        num_processes: Number of processes of the training.

    Raises:
        ParamsError: Several processes would measure it at once.
    """
    scale_file = Path(options.reward_model) / SCALE_FILE
    if scale_file.exists() and not options.calibrate:
        return
    if num_processes > 1:
        raise ParamsError(
            f"{scale_file} is missing; measure it in one process first: the same command without accelerate launch, "
            "with --calibrate"
        )

    grpo = settings.grpo
    scale = calibrate(
        options.model,
        options.reward_model,
        tokenizer,
        dataset["prompt"],
        grpo.max_tokens,
        grpo.temperature,
        options.seed,
        choose_device(),
    )
    print(
        f"{scale_file}: scores of {scale['prompts']} replies have the mean {scale['centre']:.3f} and the deviation "
        f"{scale['spread']:.3f}"
    )


def _check_processes(
    options: argparse.Namespace, settings: ConductorSettings, head: HeadSettings, num_processes: int
) -> None:
    """Check that the rollouts of a step can be shared equally by the processes, and by the passes of each.

    Args:
        options: Options of the command line; --accumulate is the number of passes.
        settings: The section `conductor`; says how many rollouts a step has.
        head: Settings of the Conductor.
        num_processes: Number of processes of the training.

    Raises:
        ParamsError: They cannot, or a number is out of range.
    """
    rollouts_per_step = settings.grpo.prompts_per_step * settings.grpo.generations
    if options.accumulate < 1 or options.lora < 0:
        raise ParamsError(
            f"--accumulate {options.accumulate} must be at least 1, --lora {options.lora} at least 0"
        )
    if rollouts_per_step % (num_processes * options.accumulate):
        raise ParamsError(
            f"{rollouts_per_step} rollouts a step cannot be shared by {num_processes} processes in "
            f"{options.accumulate} passes; --set grpo.prompts_per_step or change --accumulate"
        )
    if head.joint and num_processes > 1:
        raise ParamsError("head.joint learns in one process only; --set head.joint=false")


def _load_prompts(options: argparse.Namespace, tokenizer: PreTrainedTokenizerBase) -> Dataset:
    """Load the prompts as the model reads them; prints a note where plain text becomes chat messages.

    Args:
        options: Name the file and its columns.
        tokenizer: Has a chat template or not.

    Returns:
        Columns prompt and reference.
    """
    prompts = read_prompts(options.data, options.prompt_column, options.reference_column)
    dataset = Dataset.from_dict(prompts.to_dict("list"))
    has_chat_template = tokenizer.chat_template is not None
    if has_chat_template and any(isinstance(prompt, str) for prompt in dataset["prompt"]):
        print(
            "prompts are text: each becomes one user message of the model's chat template",
            file=sys.stderr,
        )
    return data.prepare_prompts(dataset, has_chat_template)


def choose_device() -> str:
    """Choose the device of this process: its own GPU, or the CPU."""
    if not torch.cuda.is_available():
        return "cpu"
    return f"cuda:{os.environ.get('LOCAL_RANK', '0')}"


def _announce_judge(
    options: argparse.Namespace, params: Params, settings: ConductorSettings, dataset: Dataset
) -> None:
    """Print what the judge's grades may cost at most.

    Args:
        options: Name the judge.
        params: Prices and spending limit.
        settings: Settings of the training.
        dataset: The prompts.
    """
    # The question alone: the text of a prompt, or its last message.
    texts = []
    for prompt in dataset["prompt"]:
        texts.append(prompt if isinstance(prompt, str) else prompt[-1]["content"])
    mean_bytes = sum(map(count_bytes, texts)) // len(texts)
    costs = announce_grades(
        params.llm, settings, options.judge, len(dataset), estimate_tokens(mean_bytes)
    )
    print(costs or "no endpoint is asked; nothing is paid")


def _list_extra_rewards(
    options: argparse.Namespace, params: Params, settings: ConductorSettings, head: HeadSettings
) -> dict[str, RewardFunction]:
    """List the reward functions that are measured on every rollout in addition to the five rewards.

    Args:
        options: Options of the command line.
        params: All settings of the profile.
        settings: The section `conductor`.
        head: Settings of the Conductor.

    Returns:
        Reward functions by name. quality: whether the answer is the reference, for the log alone; judge: the judge's
        grade, where it rewards the policy; anchor: what an anchored Conductor learns from.
    """
    from lib.conductor.trainer import VERIFIER  # TRL takes seconds

    judge = None
    if "judge" in (options.variant, head.anchor):
        judge = _make_judge(options, params, settings)
    extra: dict[str, RewardFunction] = {VERIFIER: _compare_with_references}
    if options.variant == "judge":
        return extra | {"judge": judge}
    if head.anchor == "none":
        return extra

    def anchor(
        prompts: list, completions: list, reference: list[str], row: list[int], **_
    ) -> list[float]:
        """Score the replies to a random part of the prompts with the judge or the references; all others get 0.

        Args:
            prompts: The prompts.
            completions: The policy's replies.
            reference: The reference answers.
            row: Number of each prompt, which decides whether it is verified.

        Returns:
            A score for each reply.
        """

        def score_replies(positions: list[int]) -> list[float]:
            verified_completions = [completions[i] for i in positions]
            verified_references = [reference[i] for i in positions]
            if judge is None:
                return _compare_with_references(verified_completions, verified_references)
            return judge([prompts[i] for i in positions], verified_completions, verified_references)

        return score_verified_replies(row, options.seed, head.verified_fraction, score_replies)

    return extra | {"anchor": anchor}


def _compare_with_references(completions, reference, **_) -> list[float]:
    """Score replies by exact agreement: 1 for each completion whose answer is the reference, else 0."""
    scores = []
    for completion, right_answer in zip(completions, reference, strict=True):
        answer = extract_answer(get_completion_text(completion)) or ""
        scores.append(float(answers_match(right_answer, answer)))
    return scores


def _make_judge(
    options: argparse.Namespace, params: Params, settings: ConductorSettings
) -> JudgeReward:
    """Make the model of --judge a reward function; its replies are recorded under --out.

    Args:
        options: Options of the command line.
        params: The chat models.
        settings: Settings of the training.

    Returns:
        The reward function.

    Raises:
        ParamsError: There is no model of this name.
    """
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
        # One for all batches: it counts failures of the whole training.
        watches={options.judge: FailureWatch(options.judge)},
    )
    return JudgeReward(open_judge, options.judge, settings.rewards.require_thought, options.seed)


def summarize_rollouts(rollouts: pd.DataFrame) -> pd.DataFrame:
    """Compare the end of a training with its start: means over the last and the first fifth of its steps.

    Args:
        rollouts: Of `ConductorTrainer.rollouts`.

    Returns:
        One row per fifth and category: correct, tokens_out, the five rewards as measured, and mean weights w_NAME.
    """
    step = rollouts["step"]
    num_steps = step.max() + 1
    is_in_stage = {
        "first fifth": step < max(1, num_steps / 5),
        "last fifth": step >= num_steps * 4 / 5,
    }
    columns = ["correct", "tokens_out", *COMPONENTS, *(f"w_{name}" for name in COMPONENTS)]
    means_by_stage = {}
    for stage, mask in is_in_stage.items():
        means_by_stage[stage] = rollouts[mask].groupby("group")[columns].mean()
    return pd.concat(means_by_stage, names=["steps"])
