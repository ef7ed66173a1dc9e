"""TRL's GRPO trainer with three overrides, which put a weighting between the rewards and the advantages.

    _generate                        keeps the tokens of prompts and completions
    _calculate_rewards               has the policy read its rollouts, measures, normalises, weighs
    _generate_and_score_completions  tells the weighting what advantages came of its weights

Everything else is TRL's: generation (vLLM too), the loss, the reference model, accelerate, checkpoints.
A checkpoint also holds what TRL leaves out: the weighting, the reference model, which moves, and the log
of rollouts. So resuming equals never having stopped. tests/conductor/test_contract.py holds the private
signatures that this module relies on.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from transformers import PreTrainedTokenizerBase, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from lib.conductor.rewards import (
    COMPONENTS,
    Measure,
    Reading,
    after_answer,
    centred,
    measures,
    normalised,
    read,
    said,
    until_answer,
)
from lib.conductor.weighting import Weighting
from lib.config import GRPOSettings, RewardSettings
from lib.experiment import artifacts, seeds

VERSION = 1  # of GRPO under weighted rewards
EXTRA = "conductor.safetensors"  # in a checkpoint: the weighting and the reference model
ROLLOUTS = "rollouts.parquet"
VERIFIER = "quality"  # the extra reward that only measures: what the verifier says of a reply
ANCHOR = "anchor"  # the extra reward that pays an anchored head and nobody else


def configuration(
    settings: GRPOSettings, out: str | Path, seed: int, aggregation: str, **other
) -> GRPOConfig:
    """Table 7 as TRL's configuration.

    aggregation: `sum_then_normalize`, or `normalize_then_sum` (GDPO); other: further fields of GRPOConfig,
    such as use_vllm=True.
    """
    cuda = torch.cuda.is_available()
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
        bf16=cuda,
        gradient_checkpointing=False,
        use_cpu=not cuda,
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
    )
    return GRPOConfig(**(fields | other))


class ConductorTrainer(GRPOTrainer):
    """GRPO under weighted rewards.

    After `train`, `rollouts` has one row per rollout: step, category, prompt (number), asked and tokens (of
    prompt and completion), truncated, advantage, action (-1: none), what was measured by name, the
    normalised rewards as `r_...`, the settled weights as `w_...`.
    """

    def __init__(
        self,
        model: str,
        args: GRPOConfig,
        dataset: Dataset,
        tokenizer: PreTrainedTokenizerBase,
        weighting: Weighting,
        preference: Measure,
        rewards: RewardSettings,
        layer: str = "last",
        sees: str = "both",
        extra: Mapping[str, Measure] | None = None,
        generate: Callable | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        """model: a folder; dataset: prompt, reference, category; layer, sees: what the weighting reads, as in
        `rewards.read`; extra: further rewards by name, which count only if the weighting says so; generate: TRL's
        rollout_func."""
        named = measures(rewards, preference, lambda: self.reading) | dict(extra or {})
        unknown = sorted(set(weighting.names) - set(named))
        if unknown:
            raise ValueError(f"the rewards are {', '.join(named)}; there are weights for {unknown}")
        self.weighting, self.reads, self.names = weighting, (layer, sees), tuple(named)
        self.reading, self.weighing, self.trained, self.began = None, 0.0, 0.0, 0
        self.tokens: tuple[list[list[int]], list[list[int]]] = ([], [])
        self.log_of: list[pd.DataFrame] = []
        self.pending: dict[str, np.ndarray] = {}
        self.told: dict[str, torch.Tensor] = {}
        super().__init__(
            model=model,
            reward_funcs=list(named.values()),
            args=args,
            train_dataset=dataset,
            processing_class=tokenizer,
            rollout_func=generate,
            callbacks=[*callbacks, _Keeper(self)],
        )

    @property
    def rollouts(self) -> pd.DataFrame:
        """The log so far."""
        return pd.concat(self.log_of, ignore_index=True) if self.log_of else pd.DataFrame()

    @property
    def clock(self) -> dict[str, float]:
        """Wall time: seconds of training since it was (re)started, its steps, and seconds of the weighting in them."""
        return {
            "training": self.trained,
            "steps": self.state.global_step - self.began,
            "weighing": self.weighing,
        }

    def _generate(self, prompts: list):
        out = super()._generate(prompts)
        self.tokens = out[0], out[1]
        return out

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        self.reading = self._read([row["reference"] for row in inputs], completions)
        measured = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        group = self.num_generations if self.model.training else self.num_generations_eval
        rewards = normalised(measured, self.names, group)
        h = self.accelerator.gather(self.reading.h)
        started = time.perf_counter()
        settled = self.weighting.settled(h)
        weights, action = (
            self.weighting(h, self.state.global_step) if self.model.training else (settled, None)
        )
        self.weighing += time.perf_counter() - started
        self._note(inputs, measured, rewards, self._by_name(settled), action)
        self.told = {"prompt": torch.as_tensor(self.pending["item"])}
        self.told["rewards"] = rewards[:, [self.names.index(name) for name in self.weighting.names]]
        if ANCHOR in self.names:
            self.told["quality"] = measured[:, self.names.index(ANCHOR)]
        paid = centred(rewards, group) if self.weighting.centred else rewards
        return paid * self._by_name(weights)

    def _by_name(self, weights: torch.Tensor) -> torch.Tensor:
        """Weights (B, K) of the weighting's rewards as columns of all rewards; those that it does not name get 0."""
        columns = weights.new_zeros(len(weights), len(self.names))
        columns[:, [self.names.index(name) for name in self.weighting.names]] = weights
        return columns

    def _generate_and_score_completions(self, inputs):
        out = super()._generate_and_score_completions(inputs)
        if self.model.training:
            advantage = self.accelerator.gather(out["advantages"].detach())
            started = time.perf_counter()
            self.weighting.learn(advantage, **self.told)
            self.weighing += time.perf_counter() - started
            self.log_of.append(pd.DataFrame(self.pending | {"advantage": advantage.cpu().numpy()}))
        return out

    def _read(self, references: Sequence[str], completions: Sequence) -> Reading:
        """What the policy says of the rollouts that it has just made."""
        prompts, written = self.tokens
        told = self._encoded([until_answer(said(each)) for each in completions])
        wanted = self._encoded([after_answer(reference) for reference in references])
        return read(
            self.accelerator.unwrap_model(self.model), prompts, written, told, wanted, *self.reads
        )

    def _encoded(self, texts: Sequence[str]) -> list[list[int]]:
        return self.processing_class(list(texts), add_special_tokens=False)["input_ids"]

    def _note(self, inputs, measured, rewards, settled, action) -> None:
        """Remember this step's rollouts, all processes' together."""
        from accelerate.utils import gather_object

        ends = {*self.eos_token_ids, self._tokenizer.pad_token_id}
        tokens = self.tokens[1]
        columns = {
            "step": np.full(len(measured), self.state.global_step),
            "group": gather_object([row["category"] for row in inputs]),
            "item": gather_object([row.get("row", -1) for row in inputs]),
            "tokens_in": gather_object([len(ids) for ids in self.tokens[0]]),
            "tokens_out": gather_object([len(ids) for ids in tokens]),
            "truncated": gather_object([ids[-1] not in ends for ids in tokens]),
            "action": _name_actions(action, len(measured)),
        }
        for i, name in enumerate(self.names):  # what the verifier says is the schema's column
            columns["correct" if name == VERIFIER else name] = measured[:, i].cpu().numpy()
        columns |= {f"r_{name}": rewards[:, i].cpu().numpy() for i, name in enumerate(self.names)}
        columns |= {
            f"w_{name}": settled[:, i].cpu().numpy() for i, name in enumerate(COMPONENTS)
        }  # the first five
        self.pending = columns
        for i, name in enumerate(self.names):  # TRL's own means are of weighted rewards
            self._metrics["train" if self.model.training else "eval"][f"raw/{name}"].append(
                float(measured[:, i].mean())
            )

    # Checkpoints ----------------------------------------------------------------------------------

    def keep(self, checkpoint: Path) -> None:
        """Write what TRL's checkpoint lacks; last, so that a checkpoint that has it is whole."""
        arrays = {f"weighting.{name}": array for name, array in self.weighting.state().items()}
        if self.ref_model is not None:
            reference = self.accelerator.unwrap_model(self.ref_model).state_dict()
            arrays |= {
                f"reference.{name}": t.detach().float().cpu().numpy()
                for name, t in reference.items()
            }
        artifacts.write_parquet(checkpoint / ROLLOUTS, self.rollouts)
        artifacts.write_tensors(
            checkpoint / EXTRA, arrays | {"step": np.array(self.state.global_step)}
        )

    def resume(self) -> None:
        """Train, going on from the last whole checkpoint under the output folder, if there is one."""
        last = last_checkpoint(self.args.output_dir)
        if last is not None:
            self._restore(last)
        started = time.perf_counter()
        self.train(resume_from_checkpoint=str(last) if last else None)
        self.trained = time.perf_counter() - started

    def _restore(self, checkpoint: Path) -> None:
        arrays = artifacts.read_tensors(checkpoint / EXTRA)

        def part(name: str) -> dict[str, np.ndarray]:
            return {
                key.partition(".")[2]: array
                for key, array in arrays.items()
                if key.startswith(f"{name}.")
            }

        self.weighting.restore(part("weighting"))
        if self.ref_model is not None:
            tensors = {
                name: torch.from_numpy(array.copy()) for name, array in part("reference").items()
            }
            self.accelerator.unwrap_model(self.ref_model).load_state_dict(tensors)
        self.log_of = [artifacts.read_parquet(checkpoint / ROLLOUTS)]
        self.began = int(arrays["step"])


def last_checkpoint(folder: str | Path) -> Path | None:
    """The newest checkpoint that is whole."""
    found = [place.parent for place in Path(folder).glob(f"checkpoint-*/{EXTRA}")]
    return max(found, key=lambda place: int(place.name.rpartition("-")[2]), default=None)


class _Keeper(TrainerCallback):
    """Tells the trainer's weighting about finished steps, and completes checkpoints."""

    def __init__(self, trainer: ConductorTrainer) -> None:
        self.trainer = trainer

    def on_step_end(self, args, state, control, **_):
        started = time.perf_counter()
        self.trainer.weighting.after_step()
        self.trainer.weighing += time.perf_counter() - started

    def on_save(self, args, state, control, **_):
        if state.is_world_process_zero:
            self.trainer.keep(Path(args.output_dir) / f"checkpoint-{state.global_step}")


def _name_actions(action: torch.Tensor | None, count: int) -> list[str]:
    """Which reward was emphasised in each of `count` rollouts; empty where no head draws one."""
    if action is None:
        return [""] * count
    return [COMPONENTS[index] for index in action.tolist()]
