"""What a job of the experiment does: train one variant under one seed, test it, write its tables."""

import shutil
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import PreTrainedModel, PrinterCallback

from lib import tasks
from lib.conductor import data, evaluation, variants
from lib.conductor.evaluation import SamplingSettings
from lib.conductor.llm_judge import JudgeReward
from lib.conductor.meta_policy_training import make_verified_mask_stream, select_verified
from lib.conductor.progress_callback import ProgressCallback
from lib.conductor.reply_format import get_completion_text
from lib.conductor.reward_model import PreferenceReward
from lib.conductor.rewards import RewardFunction
from lib.conductor.rollouts import RolloutFunction
from lib.conductor.silence_libraries import silence_libraries
from lib.conductor.variants import ConductorVariant
from lib.conductor.weighting import Weighting
from lib.config import ConductorSettings, GRPOSettings, HeadSettings
from lib.experiment import seeds, sweep
from lib.experiment.harness import JobRun, use_one_thread
from lib.language_models import checkpoints
from lib.language_models.local_models import open_local
from lib.language_models.training.training_data import write_question
from lib.llm.failure_policy import FailureWatch
from lib.llm.open_models import open_models
from lib.tasks import Item

RECORDING = "conductor"  # name of the judge's recording and of its spending limit
Trained = tuple[PreTrainedModel, Weighting | None, dict[str, float]]  # and the timings


def run_job(run: JobRun) -> dict[str, float]:
    """Train one variant under one seed and test it; leaves the tables items, components and rollouts.

    Returns:
        Timings of the training.
    """
    use_one_thread()
    with silence_libraries():
        return TrainingJob(run).train_and_test()


class TrainingJob:
    """One policy in training and in tests, from no more settings than its job was handed."""

    def __init__(self, run: JobRun) -> None:
        """Read the settings, and load the reward model.

        Args:
            run: The job, which builds on the initial policy of its seed and on the reward model.
        """
        self.run = run
        self.seed = run.seed
        self.settings = run.read_section("conductor", ConductorSettings)
        self.grpo = run.read_section("grpo", GRPOSettings)
        self.variant = ConductorVariant.from_job_settings(run.settings["variant"])
        self.judge_settings = run.settings.get("judge")
        self.head: HeadSettings | None = None
        self.layer = "last"  # weights without a head read no state
        self.head_input = "both"
        if "head" in run.settings:
            self.head = run.read_section("head", HeadSettings)
            self.layer = self.head.layer
            self.head_input = self.head.head_input
        self.initial_policy = str(run.input_folder("start") / "model")
        self.preference = PreferenceReward(str(run.input_folder("reward_model") / "model"))

    @cached_property
    def training_items(self) -> list[Item]:
        """The items that are learned from."""
        settings = self.settings
        return data.draw_items(
            "train", settings.prompts, self.seed, settings.categories, learner="policy"
        )

    def train_and_test(self) -> dict[str, float]:
        """Train, test, and write the tables."""
        train = {
            "prompt": self._load_initial_policy,
            "sft": self._train_sft,
            "grpo": self._train_grpo,
        }[self.variant.kind]
        model, weighting, timings = train()
        self._test(model.eval(), weighting)
        if self.variant.name == variants.CONDUCTOR.name:
            checkpoints.save(model, self.run.folder / "model")
        shutil.rmtree(self.run.folder / "training", ignore_errors=True)
        return timings

    # Training -------------------------------------------------------------------------------------

    def _load_initial_policy(self) -> Trained:
        return checkpoints.load(self.initial_policy), None, {}

    def _train_sft(self) -> Trained:
        """Supervised on the references, with as many updates and examples as GRPO has rollouts."""
        from transformers import AutoTokenizer
        from trl import SFTConfig, SFTTrainer

        grpo = self.grpo
        # As many examples as GRPO has rollouts: every item comes G times in the epochs below.
        rows = []
        for item in self.training_items:
            completion = [{"role": "assistant", "content": item.solution}]
            rows.append({"prompt": write_question(item), "completion": completion})
        arguments = SFTConfig(
            output_dir=str(self.run.folder / "training"),
            num_train_epochs=grpo.epochs * grpo.generations,
            per_device_train_batch_size=grpo.prompts_per_step * grpo.generations,
            learning_rate=grpo.learning_rate,
            seed=int(seeds.key("conductor", "sft", seed=self.seed) % np.uint64(2**31)),
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            bf16=False,
            gradient_checkpointing=False,
            use_cpu=True,
            logging_strategy="no",
            max_length=None,
        )
        trainer = SFTTrainer(
            self.initial_policy,
            arguments,
            train_dataset=data.Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(
                self.initial_policy, local_files_only=True
            ),
            callbacks=[ProgressCallback(self.run.report_progress)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return trainer.model, None, {}

    def _train_grpo(self) -> Trained:
        """GRPO under the variant's weighting."""
        from transformers import AutoTokenizer

        from lib.conductor.trainer import ConductorTrainer, make_grpo_config

        grpo = self.grpo
        width = checkpoints.load(self.initial_policy).config.hidden_size
        weighting = variants.make_weighting(
            self.variant, self.head, width, grpo.generations, self.seed
        )
        judge = self._open_judge() if self.judge_settings else None
        trainer = ConductorTrainer(
            self.initial_policy,
            # On the processor: there the generation engine of the lab models runs.
            make_grpo_config(
                grpo,
                self.run.folder / "training",
                self.seed,
                self.variant.aggregation,
                use_cpu=True,
                bf16=False,
            ),
            data.make_dataset(self.training_items),
            AutoTokenizer.from_pretrained(self.initial_policy, local_files_only=True),
            weighting,
            self.preference,
            self.settings.rewards,
            self.layer,
            self.head_input,
            self._list_extra_rewards(judge),
            RolloutFunction(self.seed, grpo.temperature, grpo.max_tokens),
            [ProgressCallback(self.run.report_progress)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train_or_resume()
        self.run.write_table("rollouts", trainer.rollouts)
        num_unparsed = judge.num_unparsed if judge is not None else 0
        return trainer.model, weighting, trainer.timings | {"num_unparsed": num_unparsed}

    def _list_extra_rewards(self, judge: JudgeReward | None) -> dict[str, RewardFunction]:
        """Rewards beside the five: the verifier's score, which only the oracle is rewarded with, and the variant's."""
        extra: dict[str, RewardFunction] = {"quality": self._score_with_verifier}
        if self.head is not None and self.head.anchor != "none":
            anchor = partial(self._score_anchor, judge)
            anchor.__name__ = "anchor"  # what TRL's logs call it
            extra["anchor"] = anchor
        elif judge is not None:
            extra["judge"] = judge
        return extra

    def _score_with_verifier(self, completions, row, **_) -> list[float]:
        """The verifier's scores; `row` numbers the training items."""
        replies = map(get_completion_text, completions)
        return [
            tasks.score_reply(self.training_items[i], reply)
            for i, reply in zip(row, replies, strict=True)
        ]

    def _open_judge(self) -> JudgeReward:
        context = self.run.context
        name = self.judge_settings["name"]
        open_judge = partial(
            open_models,
            context.llm,
            [name],
            RECORDING,
            context.runs,
            context.cassettes,
            sweep.count_workers(context.workers),
            open_local(context.models),
            watches={name: FailureWatch(name)},  # shared by the batches, each of which opens it
        )
        return JudgeReward(open_judge, name, self.settings.rewards.require_thought, self.seed)

    def _score_anchor(
        self, judge: JudgeReward | None, prompts, completions, reference, row, **_
    ) -> list[float]:
        """Scores of the replies to verified prompts, by the judge or a verifier with errors; 0 for all others."""
        stream = make_verified_mask_stream([self.seed])
        fraction = self.head.verified_fraction
        is_verified = select_verified(stream, torch.tensor(row), fraction).tolist()
        verified = [i for i, verified in enumerate(is_verified) if verified]
        if judge is None:
            replies = [get_completion_text(completions[i]) for i in verified]
            verified_scores = [
                self._verify_with_errors(row[i], reply)
                for i, reply in zip(verified, replies, strict=True)
            ]
        elif verified:
            verified_scores = judge(
                [prompts[i] for i in verified],
                [completions[i] for i in verified],
                [reference[i] for i in verified],
            )
        else:
            verified_scores = []
        # Replies to other prompts get 0 and are masked out in the head's reward.
        scores = [0.0] * len(row)
        for i, score in zip(verified, verified_scores, strict=True):
            scores[i] = score
        return scores

    def _verify_with_errors(self, row: int, reply: str) -> float:
        """The verifier's score, reversed for a fraction of the replies, always the same ones."""
        score = tasks.score_reply(self.training_items[row], reply)
        key = seeds.key("conductor", "errs", row, reply, seed=self.seed)
        errs = seeds.uniform(key, 0) < self.head.verifier_error_rate
        return 1 - score if errs else score

    # Tests ----------------------------------------------------------------------------------------

    def _test(self, model: PreTrainedModel, weighting: Weighting | None) -> None:
        """Sample and score replies to the items of every split, and write the tables items and components."""
        settings, grpo = self.settings, self.grpo
        sampling = SamplingSettings(
            settings.samples, grpo.temperature, grpo.max_tokens, self.variant.prefix
        )
        item_tables, reply_tables = [], []
        for split in self.run.settings["splits"]:
            num_items = len(settings.categories) * settings.test_items
            items = data.draw_items(split, num_items, categories=settings.categories)
            replies = evaluation.sample_replies(model, items, sampling, self.seed)
            scores = evaluation.score_items(replies, settings.samples)
            item_tables.append(scores.assign(split=split))

            first_replies = replies[:: settings.samples]
            measured = evaluation.measure_rewards(
                model,
                first_replies,
                self.preference,
                settings.rewards,
                weighting,
                self.layer,
                self.head_input,
            )
            reply_tables.append(measured.assign(split=split, item=range(len(measured))))
        self.run.write_table("items", pd.concat(item_tables, ignore_index=True))
        self.run.write_table("components", pd.concat(reply_tables, ignore_index=True))


def describe_job(job: sweep.Job) -> dict[str, Any]:
    """Method and seed of a job, for tables."""
    return {"method": job.settings["variant"]["name"], "seed": job.settings["seed"]}
