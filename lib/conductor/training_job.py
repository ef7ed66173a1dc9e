"""What a job of the experiment does: train one variant under one seed, test it, write its tables.

A variant is one method of the comparison (`lib.conductor.variants`): a policy that is only prompted, one that is
fine-tuned on the references, or one trained by GRPO under some weighting of the rewards. Which settings a job is handed
is decided in `lib.conductor.jobs`.
"""

import shutil
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd
from transformers import PreTrainedModel, PrinterCallback

from lib import tasks
from lib.conductor import data, evaluation, variants
from lib.conductor.evaluation import SamplingSettings
from lib.conductor.llm_judge import JudgeReward
from lib.conductor.meta_policy_training import score_verified_replies
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
# The policy, what weighed its rewards (None where nothing did), and the timings of its training.
Trained = tuple[PreTrainedModel, Weighting | None, dict[str, float]]


def run_job(run: JobRun) -> dict[str, float]:
    """Train one variant under one seed and test it.

    The job's folder then has the tables `items` (scores of test items), `components` (what the rewards measure on the
    first reply to each) and, after GRPO, `rollouts` (of the training).

    Args:
        run: Run of a job of `jobs.make_jobs`.

    Returns:
        Timings of the training by name; empty where there was no GRPO.
    """
    use_one_thread()
    with silence_libraries():
        return TrainingJob(run).train_and_test()


class TrainingJob:
    """The training and the test of one policy.

    All settings are read from the job, because only what stands there is part of its key.

    Attributes:
        run: The job with its folders.
        seed: Seed of the training.
        settings: The section `conductor`, as far as the job reads it.
        grpo: Settings of GRPO, as far as the job reads them.
        variant: The method.
        judge_settings: Name and description of the judge; None where no judge is asked.
        head: Settings of the Conductor; None for variants without one.
        layer: Layer of the policy's hidden states that the Conductor reads.
        head_input: What those states hold, as of `policy_readout.read_rollouts`.
        initial_policy: Folder of the policy that the training starts from.
        preference: The reward model.
    """

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
        """The items whose prompts and references the policy is trained on."""
        settings = self.settings
        return data.draw_items(
            "train", settings.prompts, self.seed, settings.categories, learner="policy"
        )

    def train_and_test(self) -> dict[str, float]:
        """Train, test, and write the tables.

        Returns:
            Timings of the training by name.
        """
        train_functions = {
            "prompt": self._load_initial_policy,
            "sft": self._train_sft,
            "grpo": self._train_grpo,
        }
        train = train_functions[self.variant.kind]
        model, weighting, timings = train()
        self._test(model.eval(), weighting)

        # The Conductor's policy answers a reader's own items; of the others only the tables are kept.
        if self.variant.name == variants.CONDUCTOR.name:
            checkpoints.save(model, self.run.folder / "model")
        shutil.rmtree(self.run.folder / "training", ignore_errors=True)
        return timings

    # Training -------------------------------------------------------------------------------------

    def _load_initial_policy(self) -> Trained:
        """Train nothing: the initial policy itself is tested."""
        return checkpoints.load(self.initial_policy), None, {}

    def _train_sft(self) -> Trained:
        """Fine-tune the initial policy on the reference solutions, with as many examples and updates as GRPO has.

        Returns:
            The policy; no weighting, no timings.
        """
        # Imported here: TRL takes seconds.
        from transformers import AutoTokenizer
        from trl import SFTConfig, SFTTrainer

        # One example per item. GRPO samples G replies per item and epoch, so here are G times as many epochs.
        grpo = self.grpo
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

        # The job's progress line replaces that of transformers.
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
        """Train the initial policy by GRPO under the variant's weighting, and write the table `rollouts`.

        Returns:
            The policy; what weighed its rewards; timings, and in how many replies of the judge no grade could be read.
        """
        # Imported here: TRL takes seconds.
        from transformers import AutoTokenizer

        from lib.conductor.trainer import ConductorTrainer, make_grpo_config

        # What weighs the rewards, and the judge where the variant asks one.
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
        """List the reward functions that are measured on every rollout in addition to the five rewards.

        Args:
            judge: None where no judge is asked.

        Returns:
            Reward functions by name. quality: the verifier's score, which only the oracle is trained with; anchor: what
            an anchored Conductor learns from; judge: the judge's grade, where it rewards the policy.
        """
        extra: dict[str, RewardFunction] = {"quality": self._score_with_verifier}
        if self.head is not None and self.head.anchor != "none":
            anchor = partial(self._score_anchor, judge)
            anchor.__name__ = "anchor"  # what TRL's logs call it
            extra["anchor"] = anchor
        elif judge is not None:
            extra["judge"] = judge
        return extra

    def _score_with_verifier(self, completions, row, **_) -> list[float]:
        """Score replies with the verifier; called by TRL, where `row` has the number of each reply's training item."""
        replies = map(get_completion_text, completions)
        return [
            tasks.score_reply(self.training_items[i], reply)
            for i, reply in zip(row, replies, strict=True)
        ]

    def _open_judge(self) -> JudgeReward:
        """Make the judge a reward function; its model is opened anew for every batch of replies.

        Returns:
            The reward function.
        """
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
            watches={
                name: FailureWatch(name)
            },  # one for all batches: it counts failures of the whole training
        )
        return JudgeReward(open_judge, name, self.settings.rewards.require_thought, self.seed)

    def _score_anchor(
        self,
        judge: JudgeReward | None,
        prompts: list,
        completions: list,
        reference: list[str],
        row: list[int],
        **_,
    ) -> list[float]:
        """Measure the quality that an anchored Conductor learns from; called by TRL.

        Args:
            judge: Who scores the replies; None for the verifier, with the errors of `head.verifier_error_rate`.
            prompts: Prompts of the replies.
            completions: The replies, B of them.
            reference: The right answer to each prompt.
            row: Number of each prompt's training item.

        Returns:
            B scores; 0 for replies to prompts that are not verified, which nobody is asked about.
        """

        def score_replies(positions: list[int]) -> list[float]:
            """Score some of the replies, by the judge or by a verifier with errors.

            Args:
                positions: Numbers of the replies.

            Returns:
                Their scores.
            """
            if judge is not None:
                return judge(
                    [prompts[i] for i in positions],
                    [completions[i] for i in positions],
                    [reference[i] for i in positions],
                )
            replies = [get_completion_text(completions[i]) for i in positions]
            return [
                self._verify_with_errors(row[i], reply)
                for i, reply in zip(positions, replies, strict=True)
            ]

        return score_verified_replies(row, self.seed, self.head.verified_fraction, score_replies)

    def _verify_with_errors(self, row: int, reply: str) -> float:
        """Score a reply with a verifier that is wrong about some replies, whenever it sees them.

        Args:
            row: Number of the training item.
            reply: The text.

        Returns:
            The verifier's score; 1 minus it for a fraction `head.verifier_error_rate` of the replies.
        """
        score = tasks.score_reply(self.training_items[row], reply)
        # The random number depends on item and text alone, so that the same reply gets the same score again.
        key = seeds.key("conductor", "errs", row, reply, seed=self.seed)
        is_wrong = seeds.uniform(key, 0) < self.head.verifier_error_rate
        if is_wrong:
            return 1 - score
        return score

    # Tests ----------------------------------------------------------------------------------------

    def _test(self, model: PreTrainedModel, weighting: Weighting | None) -> None:
        """Test the policy on every split of the job, and write the tables `items` and `components`.

        Args:
            model: The policy.
            weighting: Weighting of its training, whose weights are measured on test replies too; None where there was
                none.
        """
        settings, grpo = self.settings, self.grpo
        sampling = SamplingSettings(
            settings.samples, grpo.temperature, grpo.max_tokens, self.variant.prefix
        )
        item_tables, reply_tables = [], []
        for split in self.run.settings["splits"]:
            # Several replies to every item, scored by the verifier.
            num_items = len(settings.categories) * settings.test_items
            items = data.draw_items(split, num_items, categories=settings.categories)
            replies = evaluation.sample_replies(model, items, sampling, self.seed)
            scores = evaluation.score_items(replies, settings.samples)
            item_tables.append(scores.assign(split=split))

            # What the rewards measure, on the first reply to each item.
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
    """Name the method and the seed of a job, for tables."""
    return {"method": job.settings["variant"]["name"], "seed": job.settings["seed"]}
