"""The experiment: every variant under every seed, from that seed's start, as jobs of a sweep that resumes.

First jobs make the starts (`lib.conductor.initial_policy`) and the reward model. Then one job per variant and seed
trains a policy, lets it answer the test items and keeps the numbers; of the Conductor itself the policy too. Working
files lie under data/runs/conductor.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from transformers import PrinterCallback

from lib import config as parameters
from lib import tasks
from lib.conductor import (
    data,
    evaluation,
    initial_policy,
    meta_policy_training,
    reward_model,
    variants,
)
from lib.conductor import llm_judge as conductor_judge
from lib.conductor import meta_policy as conductor_head
from lib.conductor import rewards as five_rewards
from lib.conductor import rollouts as lab_rollouts
from lib.conductor import weighting as weightings
from lib.conductor.judge_costs import announce_grades, announce_votes
from lib.conductor.llm_judge import JudgeReward, majority
from lib.conductor.meta_policy_training import chosen, lots
from lib.conductor.progress_callback import ProgressCallback
from lib.conductor.reward_model import PreferenceReward
from lib.conductor.rewards import COMPONENTS, said
from lib.conductor.rollouts import RolloutFunction
from lib.conductor.silence_libraries import quiet
from lib.conductor.variants import ROLES, SIDE, STATIC, VARIANTS, ConductorVariant
from lib.conductor.weighting import Weighting
from lib.config import ROOT, ConductorSettings, GRPOSettings, HeadSettings, LLMSettings, Params
from lib.experiment import artifacts, seeds, sweep
from lib.experiment.harness import JobRun, Stage, run_stages, use_one_thread
from lib.experiment.run_context import RunContext
from lib.language_models import checkpoints
from lib.language_models.cache_key import describe_model
from lib.language_models.local_models import open_local
from lib.language_models.training.model_folders import ensure_models
from lib.language_models.training.training_data import write_question
from lib.llm import scripted
from lib.llm.failure_policy import FailureWatch
from lib.llm.open_models import export_recording, open_models
from lib.rl import losses
from lib.tasks import Item

VERSION = 1  # of how a variant is trained and tested
RUNS = ROOT / "data/runs/conductor"
CASSETTES = ROOT / "data/cassettes/04_conductor"
NAME = "conductor"  # of the cassette and of the purse
GATE = ("base", "oracle")  # judged on dev too
REWARD = 0  # whose start the reward model judges, and is made from
DEV = 1_000  # the first seed of trainings that only choose among static mixes: prompts and dice of their own

# Fields of the settings that jobs are handed: for every exam; of the GRPO settings, by the kind of the variant; of the
# head, where there is one, and where somebody verifies what it emphasised.
_READ_FOR_EXAMS = ("categories", "test_items", "samples", "rewards")
_READ_OF_GRPO = {
    "prompt": ("max_tokens", "temperature"),
    "sft": (
        "max_tokens",
        "temperature",
        "epochs",
        "prompts_per_step",
        "generations",
        "learning_rate",
    ),
    "grpo": tuple(GRPOSettings.model_fields),
}
_READ_OF_THE_HEAD = (
    "layer", "sees", "kappa", "floor", "temperature", "learning_rate", "every", "entropy", "pairwise", "joint",
    "homogeneous", "centred", "anchor",
)  # fmt: skip
_READ_OF_AN_ANCHOR = ("verified", "errs")


@dataclass(frozen=True)
class ConductorResults:
    """What a study left, with columns method and seed in every table.

    items: one row per test item (`evaluation.scores`); components: per reply (`evaluation.components`);
    rollouts: per training rollout (`ConductorTrainer.rollouts`); agreement: of the reward model with
    held-out pairs; clock: seconds per job, wall time, so not for a report's bytes.
    """

    items: pd.DataFrame
    components: pd.DataFrame
    rollouts: pd.DataFrame
    agreement: pd.DataFrame
    clock: pd.DataFrame


def run(
    params: Params,
    compared: Sequence[ConductorVariant] = VARIANTS,
    models: str | Path | None = None,
    runs: str | Path = RUNS,
    label: str = "training policies",
    trainings: Sequence[int] | None = None,
    exam: str = "test",
) -> ConductorResults:
    """Train and judge what is not there yet. Raises ModelError for a folder without the policy to start from.

    models: folder of the lab models; None for those of lesson 03, which are made where they are missing;
    trainings: seeds, the first `conductor.seeds` by default; exam: the split whose items policies are judged on. Start
    and oracle are judged on dev too: there it is decided which categories can be learned at all.
    """
    settings, runs = params.conductor, Path(runs)
    models = ensure_models(params.lab, models, initial_policy.list_lab_models(params))
    policy = models / settings.policy
    checkpoints.load(policy)  # says what is wrong before any process starts
    trainings = range(settings.seeds) if trainings is None else trainings

    # The variants build on a start for each seed, and on one reward model for all.
    start_jobs = [
        initial_policy.make_job(settings.start, policy, seed)
        for seed in sorted({REWARD, *trainings})
    ]
    reward_job = reward_model.make_job(settings, policy, REWARD)
    jobs = make_jobs(params, compared, policy, trainings, exam)
    teach = partial(initial_policy.work, policy=str(policy))
    stages = [
        Stage("teaching the starts", start_jobs, teach),
        Stage("training the reward model", [reward_job], reward_model.work, workers=1),
        Stage(label, jobs, train_and_test),
    ]
    context = RunContext.of(params, models, runs, CASSETTES, settings.jobs)
    keep_replies = partial(export_recording, params.llm, NAME, CASSETTES)
    num_judged = len(trainings) * sum(map(_asks_judge, compared))
    num_prompts = num_judged * settings.prompts
    announcement = announce_grades(params.llm, settings, settings.judge, num_prompts)
    finished = run_stages(stages, context, keep_replies, announcement)

    # Seconds of the variants, the last stage.
    clock = []
    for job, receipt in finished.list_results()[-len(jobs) :]:
        identity = {"method": job.settings["variant"]["name"], "seed": job.settings["seed"]}
        clock.append(identity | {"seconds": receipt["seconds"]} | receipt["result"])
    return ConductorResults(
        items=finished.read_tables("items"),
        components=finished.read_tables("components"),
        rollouts=finished.read_tables("rollouts"),
        agreement=artifacts.read_parquet(reward_job.folder(runs) / "agreement.parquet"),
        clock=pd.DataFrame(clock),
    )


def best_static(params: Params, **where) -> tuple[ConductorVariant, pd.DataFrame]:
    """The best fixed reward, chosen on dev items by trainings of their own seeds, as a variant; and their scores:
    variant, seed, item, group, right. Equal weights stand in the comparison anyway. where: of `run`."""
    seeds_ = range(DEV, DEV + params.conductor.static_seeds)
    tried = run(
        params, STATIC, label="choosing a static mix", trainings=seeds_, exam="dev", **where
    )
    rows = recorded(tried)
    best = rows[rows["split"] == "dev"].groupby("method", sort=False)["correct"].mean().idxmax()
    won = next(variant for variant in STATIC if variant.label == best)
    return replace(won, name="static", label="Best static"), rows


def recorded(results: ConductorResults, style: str = "mixed") -> pd.DataFrame:
    """Rows of the record `conductor`: what every variant replied to exam items, and every rollout of its training.

    On the test set (step -1) one row per variant, seed and item: correct, the mean score of its replies; tokens_out;
    besides novel, verified (by the verifier alone, a repeated story counted each time), and of the first reply the five
    rewards as measured, thinks, and the mean weights w_.... In training (split `train`) one per rollout: correct, what
    the verifier says; advantage, the policy's; r_..., normalised rewards; action, the reward that was emphasised.
    reward is correct in both: the task's reward, not the weighted one that a policy is trained with.
    """
    named = {variant.name: variant.label for variant in (*VARIANTS, *SIDE)} | {
        "static": "Best static",
        "means": "Conductor's mean weights",
    }
    held = [*COMPONENTS, "thinks", *(f"w_{name}" for name in COMPONENTS)]
    key = ["method", "seed", "split", "item"]
    shown = results.components[[*key, *(name for name in held if name in results.components)]]
    exam = results.items.merge(shown, on=key, validate="one_to_one")
    exam = exam.assign(calls=1, reward=exam["correct"])
    trained = results.rollouts
    if len(trained):
        trained = trained.assign(
            split="train",
            calls=1,
            reward=trained["correct"],
            sample=trained.groupby(["method", "seed", "step"]).cumcount(),
        )
    both = pd.concat(
        [exam.assign(step=-1, tokens_in=0, action="", sample=0), trained], ignore_index=True
    )
    both["role"] = both["method"].map(ROLES).fillna("constant")
    both["malformed"] = 0 if "well_formed" not in both else (both["well_formed"] < 1).astype(int)
    counts = ["tokens_in", "tokens_out", "step", "sample", "calls"]
    both[counts] = both[counts].fillna(0).round().astype(int)
    own = both["method"].map(named).fillna(both["method"])
    words = {"method": own, "item": both["item"].astype(str), "style": style, "backend": "lab"}
    return both.assign(**words).drop(columns=["well_formed"])


# Jobs ---------------------------------------------------------------------------------------------


def versions(
    variant: ConductorVariant, head: HeadSettings | None, llm: LLMSettings, judge: str
) -> dict[str, int]:
    """The VERSIONs of the code that decides the numbers of a variant.

    head: with the variant's changes, None where nothing is conducted; judge: its name in llm.models.
    """
    numbers = reward_model.versions() | {
        "rewards": five_rewards.VERSION,
        "exams": evaluation.VERSION,
        "training of variants": VERSION,
    }
    if variant.kind == "grpo":
        from lib.conductor import trainer  # imported here: TRL takes seconds

        numbers["variants"] = variants.VERSION
        numbers["weightings"] = weightings.VERSION
        numbers["rollouts"] = lab_rollouts.VERSION
        numbers["GRPO under weighted rewards"] = trainer.VERSION
    if head is not None:
        numbers["head"] = conductor_head.VERSION
        numbers["learning of the head"] = meta_policy_training.VERSION
    if head is not None and head.anchor != "none":
        numbers["losses"] = losses.VERSION
    if _asks_judge(variant):
        numbers["judge"] = conductor_judge.VERSION
        if llm.models[judge].backend == "scripted":
            numbers["scripted models"] = scripted.VERSION
    return numbers


def make_jobs(
    params: Params,
    compared: Sequence[ConductorVariant],
    policy: Path,
    trainings: Sequence[int] | None = None,
    exam: str = "test",
) -> list[sweep.Job]:
    """One job per variant and seed, the longest first.

    Args:
        params: All settings; a job is handed those that it reads.
        compared: The variants.
        policy: Folder of the model that the starts are made from.
        trainings: Seeds, the first `conductor.seeds` by default.
        exam: The split whose items policies are judged on.

    Raises:
        ParamsError: A variant changes the head to something that cannot be.
    """
    settings = params.conductor
    training_seeds = range(settings.seeds) if trainings is None else trainings
    order = sorted(compared, key=lambda variant: ("grpo", "sft", "prompt").index(variant.kind))
    start_keys = {
        seed: initial_policy.make_job(settings.start, policy, seed).key for seed in training_seeds
    }
    reward_key = reward_model.make_job(settings, policy, REWARD).key
    shared = {"reward_model": reward_key, "libraries": reward_model.library_versions()}
    jobs = []
    for variant in order:
        of_arm = shared | _arm_settings(params, variant)
        of_arm["exams"] = ["dev", "test"] if exam == "test" and variant.name in GATE else [exam]
        for seed in training_seeds:
            label = f"{'+'.join(settings.categories)}/{variant.name}/seed-{seed}"
            jobs.append(sweep.Job(label, of_arm | {"seed": seed, "start": start_keys[seed]}))
    return jobs


def _arm_settings(params: Params, variant: ConductorVariant) -> dict[str, Any]:
    """What a job is handed of a variant: its own settings, and of the parameters those that it reads."""
    settings = params.conductor
    fields = [*_READ_FOR_EXAMS]
    if variant.kind != "prompt":
        fields.append("prompts")
    head = _change_head(settings.head, variant) if variant.conducted else None
    decided_by = {
        "job": "variant",
        "variant": variant.decided_by,
        "conductor": settings.to_job_settings(*fields),
        "grpo": settings.grpo.to_job_settings(*_READ_OF_GRPO[variant.kind]),
        "versions": versions(variant, head, params.llm, settings.judge),
    }
    if head is not None:
        head_fields = [*_READ_OF_THE_HEAD]
        if head.anchor != "none":
            head_fields += _READ_OF_AN_ANCHOR
        decided_by["head"] = head.to_job_settings(*head_fields)
    if _asks_judge(variant):
        decided_by["judge"] = {
            "name": settings.judge,
            "model": describe_model(params.llm, settings.judge),
        }
    return decided_by


def _change_head(head: HeadSettings, variant: ConductorVariant) -> HeadSettings:
    """The settings of the head with the variant's changes. Raises ParamsError for one that cannot be."""
    return parameters.validate_settings(
        head.model_dump() | variant.changes, HeadSettings, f"the variant {variant.name}"
    )


def _asks_judge(variant: ConductorVariant) -> bool:
    """Whether a judge pays its policy or its head."""
    paid = isinstance(variant.weights, Mapping) and "judge" in variant.weights
    return paid or variant.changes.get("anchor") == "judge"


def train_and_test(run: JobRun) -> dict[str, float]:
    """Trains one variant under one seed and tests it; leaves the tables items, components and rollouts."""
    use_one_thread()
    with quiet():
        return PolicyRun(run).train_and_test()


# Afterwards ---------------------------------------------------------------------------------------


def judged(params: Params, components: pd.DataFrame, variant: str, rival: str) -> pd.DataFrame:
    """What the judge of the parameters makes of the first test replies of two variants, by majority of three votes:
    points (1 for a good reply), and votes between the two replies to an item, of which both or neither get 1/2.

    components: of `ConductorResults`; variant, rival: names. Returns variant, seed, group, item, points, votes.
    """
    rows = components[components["split"] == "test"]
    keys = ["seed", "group", "item", "prompt", "reference"]
    both = rows[rows["method"] == variant].merge(
        rows[rows["method"] == rival], on=keys, suffixes=("", "_rival")
    )
    judge_name = params.conductor.judge
    open_judge = partial(
        open_models, params.llm, [judge_name], NAME, RUNS, CASSETTES, open_local=open_local()
    )
    questions, references = both["prompt"].tolist(), both["reference"].tolist()
    ask = partial(majority, open_judge, judge_name, questions, references)
    ours, theirs = both["reply"].tolist(), both["reply_rival"].tolist()
    costs = announce_votes(params.llm, judge_name, open_judge, questions, references, ours, theirs)
    sweep.print_to_terminal(costs)
    try:
        points, against, votes = ask(ours), ask(theirs), ask(ours, theirs)
    finally:
        export_recording(params.llm, NAME, CASSETTES)
    # A lost verdict says nothing of the reply: the item leaves the comparison, for both variants.
    is_judged = np.array([None not in pair for pair in zip(points, against, strict=True)])
    if not is_judged.all():
        sweep.print_to_terminal(
            f"{judge_name}: {(~is_judged).sum()} of {len(both)} items have no verdict"
        )
    won = np.array([0.5 if vote is None else float(vote) for vote in votes])
    seen = both[["seed", "group", "item"]]
    sides = ((variant, points, won), (rival, against, 1 - won))
    told = [
        seen.assign(method=name, points=[float(p is True) for p in good], votes=v)[is_judged]
        for name, good, v in sides
    ]
    return pd.concat(told, ignore_index=True)


def asked(
    params: Params,
    items: Sequence[Item],
    models: str | Path | None = None,
    runs: str | Path = RUNS,
) -> pd.DataFrame:
    """What the policies that a Conductor trained, one per seed, reply to items of one's own, without dice: seed, number
    (of the item), right, tokens (read and written). Trains what is not trained yet. models: see `run`."""
    models = ensure_models(params.lab, models, initial_policy.list_lab_models(params))
    run(params, [variants.CONDUCTOR], models, runs)
    settings, parts = params.conductor, []
    for job in make_jobs(params, [variants.CONDUCTOR], models / settings.policy):
        model, seed = checkpoints.load(job.folder(runs) / "model"), job.settings["seed"]
        given = evaluation.replies(model, items, 1, 0.0, settings.grpo.max_tokens, seed)
        told = [
            (tasks.score_reply(one.item, said(one.text)), len(one.prompt) + len(one.ids))
            for one in given
        ]
        table = pd.DataFrame(told, columns=["correct", "tokens"])
        parts.append(table.assign(seed=seed, number=range(len(given))))
    return pd.concat(parts, ignore_index=True)


class PolicyRun:
    """One policy in training and in tests, by no more settings than its job was handed."""

    def __init__(self, run: JobRun) -> None:
        """Reads the settings, and loads the reward model.

        Args:
            run: The job, which builds on the start of its seed and on the reward model.
        """
        self.run = run
        self.seed = run.seed
        self.settings = run.read_section("conductor", ConductorSettings)
        self.grpo = run.read_section("grpo", GRPOSettings)
        self.variant = ConductorVariant.from_settings(run.settings["variant"])
        self.judge_settings = run.settings.get("judge")
        self.head: HeadSettings | None = None
        self.layer = "last"  # weights without a head read no state
        self.sees = "both"
        if "head" in run.settings:
            self.head = run.read_section("head", HeadSettings)
            self.layer = self.head.layer
            self.sees = self.head.sees
        self.start = str(run.input_folder("start") / "model")
        self.preference = PreferenceReward(str(run.input_folder("reward_model") / "model"))

    @cached_property
    def taught(self) -> list[Item]:
        """The items that are learned from."""
        return data.draw(
            "train", self.settings.prompts, self.seed, self.settings.categories, "policy"
        )

    def train_and_test(self) -> dict[str, float]:
        """Trains, tests, keeps the numbers."""
        model, weighting, clock = {"prompt": self._start, "sft": self._sft, "grpo": self._grpo}[
            self.variant.kind
        ]()
        self._judge(model.eval(), weighting)
        if self.variant.name == variants.CONDUCTOR.name:
            checkpoints.save(model, self.run.folder / "model")
        shutil.rmtree(self.run.folder / "training", ignore_errors=True)
        return clock

    def _start(self):
        return checkpoints.load(self.start), None, {}

    def _sft(self):
        """Supervised on the references, as many updates and examples as GRPO has rollouts."""
        from transformers import AutoTokenizer
        from trl import SFTConfig, SFTTrainer

        grpo = self.grpo
        rows = [
            {
                "prompt": write_question(item),
                "completion": [{"role": "assistant", "content": item.solution}],
            }
            for item in self.taught
        ]
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
            self.start,
            arguments,
            train_dataset=data.Dataset.from_list(rows),
            processing_class=AutoTokenizer.from_pretrained(self.start, local_files_only=True),
            callbacks=[ProgressCallback(self.run.report_progress)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        return trainer.model, None, {}

    def _grpo(self):
        from transformers import AutoTokenizer

        from lib.conductor.trainer import ConductorTrainer, configuration

        grpo = self.grpo
        width = checkpoints.load(self.start).config.hidden_size
        weighting = variants.weighting(self.variant, self.head, width, grpo.generations, self.seed)
        extra, judge = {"quality": self._quality}, self._judge_of() if self.judge_settings else None
        if self.head is not None and self.head.anchor != "none":
            extra["anchor"] = partial(self._anchor, judge)
            extra["anchor"].__name__ = "anchor"  # what TRL's logs call it
        elif judge is not None:
            extra["judge"] = judge
        trainer = ConductorTrainer(
            self.start,
            configuration(
                grpo,
                self.run.folder / "training",
                self.seed,
                self.variant.aggregation,
                use_cpu=True,
                bf16=False,
            ),  # where the lab's engine writes
            data.dataset(self.taught),
            AutoTokenizer.from_pretrained(self.start, local_files_only=True),
            weighting,
            self.preference,
            self.settings.rewards,
            self.layer,
            self.sees,
            extra,
            RolloutFunction(self.seed, grpo.temperature, grpo.max_tokens),
            [ProgressCallback(self.run.report_progress)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.resume()
        self.run.write_table("rollouts", trainer.rollouts)
        lost = judge.lost if judge is not None else 0
        return trainer.model, weighting, trainer.clock | {"no opinion": lost}

    def _quality(self, completions, row, **_) -> list[float]:
        """What the verifier thinks: logged in every variant, paid in none but the oracle."""
        return [
            tasks.score_reply(self.taught[i], said(each))
            for i, each in zip(row, completions, strict=True)
        ]

    def _judge_of(self) -> JudgeReward:
        context = self.run.context
        share = sweep.count_workers(context.workers)
        judge_name = self.judge_settings["name"]
        open_judge = partial(
            open_models,
            context.llm,
            [judge_name],
            NAME,
            context.runs,
            context.cassettes,
            share,
            open_local(context.models),
            watches={judge_name: FailureWatch(judge_name)},  # it is opened anew for every batch
        )
        return JudgeReward(open_judge, judge_name, self.settings.rewards.think, self.seed)

    def _anchor(
        self, judge: JudgeReward | None, prompts, completions, reference, row, **_
    ) -> list[float]:
        """What a verifier that errs now and then, or a judge, says of replies to verified prompts; 0 of others, about
        which nobody is asked."""
        known = chosen(lots([self.seed]), torch.tensor(row), self.head.verified).tolist()
        asked = [i for i, mine in enumerate(known) if mine]
        told = [0.0] * len(known)
        if judge is not None:
            found = (
                judge(*([part[i] for i in asked] for part in (prompts, completions, reference)))
                if asked
                else []
            )
        else:
            found = [self._erring(row[i], said(completions[i])) for i in asked]
        for i, score in zip(asked, found, strict=True):
            told[i] = score
        return told

    def _erring(self, row: int, reply: str) -> float:
        """The verifier's word, turned round for a share of replies, always the same ones."""
        correct = tasks.score_reply(self.taught[row], reply)
        wrong = (
            seeds.uniform(seeds.key("conductor", "errs", row, reply, seed=self.seed), 0)
            < self.head.errs
        )
        return 1 - correct if wrong else correct

    def _judge(self, model, weighting: Weighting | None) -> None:
        settings, grpo = self.settings, self.grpo
        scored, shown = [], []
        for split in self.run.settings["exams"]:
            items = data.draw(
                split,
                len(settings.categories) * settings.test_items,
                categories=settings.categories,
            )
            given = evaluation.replies(
                model,
                items,
                settings.samples,
                grpo.temperature,
                grpo.max_tokens,
                self.seed,
                self.variant.begin,
            )
            scored.append(evaluation.scores(given, settings.samples).assign(split=split))
            first = evaluation.components(
                model,
                given[:: settings.samples],
                self.preference,
                settings.rewards,
                weighting,
                self.layer,
                self.sees,
            )
            shown.append(first.assign(split=split, item=range(len(first))))
        self.run.write_table("items", pd.concat(scored, ignore_index=True))
        self.run.write_table("components", pd.concat(shown, ignore_index=True))
