"""TRL's GRPO trainer with three overrides, which put a weighting between the rewards and the advantages.

    _generate                        keeps the tokens of prompts and completions
    _calculate_rewards               measures, normalises and weighs the rewards
    _generate_and_score_completions  hands the weighting the advantages that followed from its weights

Everything else is TRL's: generation (vLLM too), the loss, the reference model, accelerate, checkpoints. A checkpoint
also holds what TRL leaves out: the weighting, the reference model, which moves, and the log of rollouts. So resuming
equals never having stopped. tests/conductor/test_contract.py checks the private signatures that this module relies on.

Letters of shapes: B rollouts of a step of all processes, K weighted rewards, d width of a hidden state.
"""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from lib.conductor.policy_readout import (
    PolicyReadout,
    read_rollouts,
    write_likelihood_prefix,
    write_likelihood_target,
)
from lib.conductor.reply_format import get_completion_text
from lib.conductor.rewards import (
    COMPONENTS,
    RewardFunction,
    make_reward_functions,
    normalize_rewards,
    subtract_group_means,
)
from lib.conductor.weighting import RolloutOutcomes, Weighting
from lib.config import GRPOSettings, RewardSettings
from lib.experiment import artifacts, seeds
from lib.rl.sharding import call_gathered, load_whole_weights

VERSION = 1  # of GRPO under weighted rewards
EXTRA_STATE = "conductor.safetensors"  # in a checkpoint: the weighting and the reference model
ROLLOUTS = "rollouts.parquet"
VERIFIER = "quality"  # the extra reward that only measures: the verifier's score of a reply
ANCHOR = "anchor"  # the extra reward that only an anchored head is rewarded with


def make_grpo_config(
    settings: GRPOSettings, out: str | Path, seed: int, aggregation: str, **other_fields
) -> GRPOConfig:
    """Translate the settings of GRPO (MAESTRO, Table 7) into TRL's configuration.

    Args:
        settings: Settings of the training.
        out: Folder of checkpoints.
        seed: Seed of the training.
        aggregation: How several rewards become one advantage: `sum_then_normalize` adds the weighted rewards first,
            `normalize_then_sum` standardises each in its group first (GDPO).
        other_fields: Further fields of GRPOConfig, such as use_vllm=True; they win over the settings.

    Returns:
        The configuration.
    """
    has_cuda = torch.cuda.is_available()
    fields = dict(
        output_dir=str(out),
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.prompts_per_step * settings.generations,
        num_generations=settings.generations,
        max_completion_length=settings.max_tokens,
        learning_rate=settings.learning_rate,
        temperature=settings.temperature,
        beta=settings.kl,
        sync_ref_model=settings.kl > 0,
        ref_model_sync_steps=settings.sync_every,
        ref_model_mixup_alpha=settings.sync_mixup,
        loss_type="dr_grpo",
        scale_rewards=settings.scale,
        top_entropy_quantile=settings.top_entropy,
        importance_sampling_level=settings.importance,
        mask_truncated_completions=True,
        multi_objective_aggregation=aggregation,
        save_steps=settings.save_every,
        save_total_limit=2,  # one may be half written
        seed=int(seeds.key("conductor", "grpo", seed=seed) % 2**31),
        bf16=has_cuda,
        gradient_checkpointing=False,
        use_cpu=not has_cuda,
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
    )
    return GRPOConfig(**(fields | other_fields))


class ConductorTrainer(GRPOTrainer):
    """GRPO under weighted rewards.

    Attributes:
        weighting: Weighs the rewards, and may learn.
        reward_names: Names of all rewards, the five and the extra ones.
        layer: Layer of the policy's hidden states that the weighting reads.
        head_input: What those states hold, as of `policy_readout.read_rollouts`.
        readout: Hidden states, entropies and likelihoods that the policy assigns to the rollouts of the step.
        seconds_weighing: Wall time of the weighting so far.
        seconds_training: Wall time of `train_or_resume`.
    """

    def __init__(
        self,
        model: str,
        args: GRPOConfig,
        dataset: Dataset,
        tokenizer: PreTrainedTokenizerBase,
        weighting: Weighting,
        preference: RewardFunction,
        rewards: RewardSettings,
        layer: str = "last",
        head_input: str = "both",
        extra_rewards: Mapping[str, RewardFunction] | None = None,
        rollout_function: Callable | None = None,
        callbacks: Sequence[TrainerCallback] = (),
        lora_rank: int = 0,
    ) -> None:
        """Set up a training.

        Args:
            model: Folder of the policy.
            args: What `make_grpo_config` returned.
            dataset: Columns prompt, reference, category.
            tokenizer: Tokenizer of the policy.
            weighting: Weighs the rewards.
            preference: The reward model.
            rewards: Settings of the other rewards.
            layer: Layer of the states that the weighting reads, as of `policy_readout.read_rollouts`.
            head_input: What those states hold.
            extra_rewards: Further rewards by name; they count only where the weighting names them.
            rollout_function: TRL's `rollout_func`; None for TRL's own generation.
            callbacks: Callbacks of transformers.
            lora_rank: Rank of adapters on frozen weights; 0 trains all weights.

        Raises:
            ValueError: The weighting has weights for a reward that does not exist.
        """
        functions = make_reward_functions(rewards, preference, lambda: self.readout)
        functions |= extra_rewards or {}
        unknown = sorted(set(weighting.names) - set(functions))
        if unknown:
            known = ", ".join(functions)
            raise ValueError(f"the rewards are {known}; there are weights for {unknown}")
        self.weighting = weighting
        self.reward_names = tuple(functions)
        self.layer = layer
        self.head_input = head_input
        self.readout: PolicyReadout | None = None
        self.seconds_weighing = 0.0
        self.seconds_training = 0.0
        self._first_step = 0  # of this call; later ones were trained before
        self._prompt_ids: list[list[int]] = []
        self._completion_ids: list[list[int]] = []
        self._log: list[pd.DataFrame] = []
        self._log_columns: dict[str, np.ndarray] = {}  # of the step under way
        self._outcomes: dict[str, torch.Tensor] = {}
        super().__init__(
            model=model,
            reward_funcs=list(functions.values()),
            args=args,
            train_dataset=dataset,
            processing_class=tokenizer,
            rollout_func=rollout_function,
            callbacks=[*callbacks, _StepCallback(self)],
            peft_config=_make_lora_config(lora_rank) if lora_rank else None,
        )

    @property
    def rollouts(self) -> pd.DataFrame:
        """The log so far, one row per rollout.

        Columns:
            step: Number of the GRPO step.
            group: Category of the prompt.
            item: Number of the prompt in the training data.
            tokens_in, tokens_out: Of prompt and reply.
            truncated: Whether the reply was cut off at the limit of tokens.
            advantage: Group-relative, which the policy was trained with.
            action: The reward whose weight was raised, "" where none was.
            correct: The verifier's score, where the trainer has one.
            NAME: A reward as measured.
            r_NAME: The reward after its normalisation.
            w_NAME: Its mean weight pi(h), before an emphasis is sampled.
        """
        return pd.concat(self._log, ignore_index=True) if self._log else pd.DataFrame()

    @property
    def timings(self) -> dict[str, float]:
        """Seconds of training since it was started or resumed, its steps, and seconds of the weighting among them."""
        return {
            "training": self.seconds_training,
            "steps": self.state.global_step - self._first_step,
            "weighing": self.seconds_weighing,
        }

    # The three overrides --------------------------------------------------------------------------

    def _generate(self, prompts: list):
        """Sample replies as TRL does, and keep the tokens of prompts and replies."""
        # TRL hands rewards the texts only; the readout needs the tokens that were sampled.
        output = super()._generate(prompts)
        self._prompt_ids, self._completion_ids = output[0], output[1]
        return output

    def _calculate_rewards(
        self, inputs: list[dict], prompts: list, completions: list, completion_ids_list: list
    ) -> torch.Tensor:
        """Compute the rewards of a step's rollouts, normalise them, and weight them.

        Args:
            inputs: Rows of the dataset, one per rollout of this process.
            prompts: Prompts of these rows.
            completions: The replies, as text or messages.
            completion_ids_list: Their tokens.

        Returns:
            (B, all rewards) weighted rewards, which TRL adds up to the reward of each rollout.
        """
        # What the rewards measure, (B, all rewards), and the normalised rewards r_k.
        self.readout = self._read_policy([row["reference"] for row in inputs], completions)
        measured = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        is_training = self.model.training
        group_size = self.num_generations if is_training else self.num_generations_eval
        rewards = normalize_rewards(measured, self.reward_names, group_size)

        # How much each of them counts: weights (B, K) from the hidden states (B, d).
        h = self.accelerator.gather(self.readout.h)
        started = time.perf_counter()
        mean_weights = self.weighting.compute_mean_weights(h)
        # In an evaluation nothing is sampled: pi(h) itself weighs, w = pi(h).
        weights, action = mean_weights, None
        if is_training:
            weights, action = self.weighting.weigh_rollouts(h, self.state.global_step)
        self.seconds_weighing += time.perf_counter() - started

        # The log and the buffer keep all rewards; the sum below only the weighted ones.
        self._log_step(inputs, measured, rewards, self._spread_weights(mean_weights), action)
        self._keep_outcomes(measured, rewards)
        if self.weighting.centred:
            rewards = subtract_group_means(rewards, group_size)
        # TRL sums the columns: its own reward weights are all 1.
        return rewards * self._spread_weights(weights)

    def _generate_and_score_completions(self, inputs: list[dict]) -> dict:
        """Sample and score replies as TRL does; then update the weighting from the advantages, and complete the log.

        Args:
            inputs: Rows of the dataset, one per rollout of this process.

        Returns:
            TRL's batch, with tokens and advantages.
        """
        output = super()._generate_and_score_completions(inputs)
        if self.model.training:
            advantage = self.accelerator.gather(output["advantages"].detach())
            started = time.perf_counter()
            self.weighting.learn(RolloutOutcomes(advantage, **self._outcomes))
            self.seconds_weighing += time.perf_counter() - started
            columns = self._log_columns | {"advantage": advantage.cpu().numpy()}
            self._log.append(pd.DataFrame(columns))
        return output

    # Parts of them --------------------------------------------------------------------------------

    def _read_policy(self, references: Sequence[str], completions: Sequence) -> PolicyReadout:
        """Read hidden states, entropies and likelihoods of the rollouts that the policy has just sampled.

        Args:
            references: The right answer to each prompt.
            completions: The replies of this process.

        Returns:
            What the rewards `ppl` and `ent` and the weighting need.
        """
        replies = [get_completion_text(completion) for completion in completions]
        policy = self.accelerator.unwrap_model(self.model)
        # Not by the policy's `forward`, which would compute logits of all tokens: B x T x V numbers. Where its weights
        # are divided among processes, FSDP gathers them in `forward` only, and has to be asked for them here.
        return call_gathered(
            policy,
            read_rollouts,
            _get_network(policy),
            self._prompt_ids,
            self._completion_ids,
            self._encode_prefixes([write_likelihood_prefix(reply) for reply in replies]),
            self._encode([write_likelihood_target(reference) for reference in references]),
            self.layer,
            self.head_input,
        )

    def _encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts, without special tokens."""
        if not texts:
            return []
        return self.processing_class(list(texts), add_special_tokens=False)["input_ids"]

    def _encode_prefixes(self, prefixes: Sequence[str | None]) -> list[list[int] | None]:
        """Tokenize prefixes; None stays None, where a reply has no readable thought."""
        token_ids = iter(self._encode([prefix for prefix in prefixes if prefix is not None]))
        return [None if prefix is None else next(token_ids) for prefix in prefixes]

    def _spread_weights(self, weights: torch.Tensor) -> torch.Tensor:
        """Spread weights (B, K) of the weighted rewards over the columns of all rewards: (B, all rewards)."""
        # A reward that the weighting does not name gets 0: it is measured and logged, and counts nothing.
        columns = weights.new_zeros(len(weights), len(self.reward_names))
        columns[:, self._list_weighted_columns()] = weights
        return columns

    def _list_weighted_columns(self) -> list[int]:
        """Find the columns, among all rewards, of those that are weighted."""
        return [self.reward_names.index(name) for name in self.weighting.names]

    def _keep_outcomes(self, measured: torch.Tensor, rewards: torch.Tensor) -> None:
        """Store the rewards and qualities of this step for the update of the weighting.

        Args:
            measured: (B, all rewards) as measured.
            rewards: (B, all rewards) normalised.
        """
        self._outcomes = {
            "prompt": torch.as_tensor(self._log_columns["item"]),
            "rewards": rewards[:, self._list_weighted_columns()],
        }
        if ANCHOR in self.reward_names:
            self._outcomes["quality"] = measured[:, self.reward_names.index(ANCHOR)]

    def _log_step(
        self,
        inputs: list[dict],
        measured: torch.Tensor,
        rewards: torch.Tensor,
        mean_weights: torch.Tensor,
        action: torch.Tensor | None,
    ) -> None:
        """Log this step's rollouts of all processes, and add mean rewards to TRL's metrics.

        Args:
            inputs: Rows of the dataset, one per rollout of this process.
            measured: (B, all rewards) as measured.
            rewards: (B, all rewards) normalised.
            mean_weights: (B, all rewards) before an emphasis is sampled.
            action: (B,) sampled emphases; None where none are sampled.
        """
        from accelerate.utils import gather_object

        end_tokens = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        prompt_ids = self._prompt_ids
        completion_ids = self._completion_ids
        columns = {
            "step": np.full(len(measured), self.state.global_step),
            "group": gather_object([row["category"] for row in inputs]),
            "item": gather_object([row.get("row", -1) for row in inputs]),
            "tokens_in": gather_object([len(ids) for ids in prompt_ids]),
            "tokens_out": gather_object([len(ids) for ids in completion_ids]),
            "truncated": gather_object([ids[-1] not in end_tokens for ids in completion_ids]),
            "action": _name_actions(action, len(measured)),
        }

        # Rewards as measured and normalised, and the weights of the five.
        for i, name in enumerate(self.reward_names):
            column = "correct" if name == VERIFIER else name  # as the results table calls it
            columns[column] = measured[:, i].cpu().numpy()
        for i, name in enumerate(self.reward_names):
            columns[f"r_{name}"] = rewards[:, i].cpu().numpy()
        for i, name in enumerate(COMPONENTS):  # the first five
            columns[f"w_{name}"] = mean_weights[:, i].cpu().numpy()
        self._log_columns = columns

        # TRL's own means are of weighted rewards; these are of the rewards as measured.
        metrics = self._metrics["train" if self.model.training else "eval"]
        for i, name in enumerate(self.reward_names):
            mean = float(measured[:, i].nanmean())
            if not math.isnan(mean):  # where nothing could be measured there is no mean
                metrics[f"raw/{name}"].append(mean)

    # Checkpoints ----------------------------------------------------------------------------------

    def save_extra_state(self, checkpoint: Path) -> None:
        """Write what TRL's checkpoint lacks: weighting, reference model, step and log.

        It is written last, so that a checkpoint that has it is complete. Every process calls it: weights that are
        divided among processes are gathered. The first one writes.

        Args:
            checkpoint: Folder that TRL has written.
        """
        reference = {}
        if self.ref_model is not None:
            reference = self.accelerator.get_state_dict(self.ref_model)
        if not self.state.is_world_process_zero:
            return

        # One file; the first part of a name says what an array belongs to.
        arrays = {}
        for name, array in self.weighting.get_state().items():
            arrays[f"weighting.{name}"] = array
        for name, tensor in reference.items():
            arrays[f"reference.{name}"] = tensor.detach().float().cpu().numpy()
        arrays["step"] = np.array(self.state.global_step)
        artifacts.write_parquet(checkpoint / ROLLOUTS, self.rollouts)
        artifacts.write_tensors(checkpoint / EXTRA_STATE, arrays)

    def train_or_resume(self) -> None:
        """Train, continuing from the last complete checkpoint under the output folder, if there is one."""
        checkpoint = find_last_checkpoint(self.args.output_dir)
        if checkpoint is not None:
            self._load_extra_state(checkpoint)
        started = time.perf_counter()
        self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        self.seconds_training = time.perf_counter() - started

    def _load_extra_state(self, checkpoint: Path) -> None:
        """Restore the weighting, the reference model and the log from a checkpoint that `save_extra_state` wrote.

        Args:
            checkpoint: Folder of the checkpoint.
        """
        weighting_state = {}
        reference_state = {}
        arrays = artifacts.read_tensors(checkpoint / EXTRA_STATE)
        for name, array in arrays.items():
            section, _, key = name.partition(".")
            if section == "weighting":
                weighting_state[key] = array
            elif section == "reference":
                reference_state[key] = torch.from_numpy(array.copy())

        self.weighting.load_state(weighting_state)
        if self.ref_model is not None:
            load_whole_weights(self.accelerator.unwrap_model(self.ref_model), reference_state)
        self._log = [artifacts.read_parquet(checkpoint / ROLLOUTS)]
        self._first_step = int(arrays["step"])


def _make_lora_config(rank: int):
    """Configure low-rank adapters of this rank on every linear layer, with the usual scale of two."""
    from peft import LoraConfig  # imported here: few trainings need it

    return LoraConfig(
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )


def _get_network(model):
    """Get the transformers model, out of its wrapper where it is trained by adapters."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def find_last_checkpoint(folder: str | Path) -> Path | None:
    """Find the newest checkpoint in a training's folder that was written to its end; None where there is none."""
    checkpoints = [path.parent for path in Path(folder).glob(f"checkpoint-*/{EXTRA_STATE}")]
    return max(checkpoints, key=lambda path: int(path.name.rpartition("-")[2]), default=None)


class _StepCallback(TrainerCallback):
    """Tells the trainer's weighting about finished steps, and completes checkpoints."""

    def __init__(self, trainer: ConductorTrainer) -> None:
        self.trainer = trainer

    def on_step_end(self, args, state, control, **_):
        started = time.perf_counter()
        self.trainer.weighting.finish_step()
        self.trainer.seconds_weighing += time.perf_counter() - started

    def on_save(self, args, state, control, **_):
        folder = Path(args.output_dir) / f"checkpoint-{state.global_step}"
        self.trainer.save_extra_state(folder)


def _name_actions(action: torch.Tensor | None, count: int) -> list[str]:
    """Name the reward that was emphasised in each of `count` rollouts; "" where no emphasis is sampled."""
    if action is None:
        return [""] * count
    return [COMPONENTS[index] for index in action.tolist()]
