"""The experiment at its smallest: jobs that are done once, tables with what was promised, keys that differ."""

import dataclasses
import os
import re

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from lib import config, tasks
from lib.conductor import (
    data,
    evaluation,
    experiment,
    initial_policy,
    jobs,
    meta_policy_training,
    policy_readout,
    reply_format,
    reward_model,
    rollouts,
    trainer,
    training_job,
    variants,
)
from lib.conductor import llm_judge as conductor_judge
from lib.conductor import meta_policy as conductor_head
from lib.conductor import rewards as five_rewards
from lib.conductor import weighting as weightings
from lib.conductor.evaluation import SamplingSettings
from lib.conductor.meta_policy_training import make_verified_mask_stream, select_verified
from lib.conductor.results import make_results_table
from lib.conductor.rewards import COMPONENTS
from lib.conductor.training_job import TrainingJob
from lib.conductor.variants import VARIANTS, VARIANTS_BY_NAME, make_variant
from lib.experiment import results_table, seeds
from lib.experiment.harness import JobRun
from lib.experiment.run_context import RunContext
from lib.language_models import chat_template, checkpoints, generation, kv_cache_forward, tokenizer
from lib.language_models.checkpoints import ModelError
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.training import training_data
from lib.llm import scripted
from lib.reports.lesson import METRIC_KEY
from lib.rl import losses
from tests.conductor import small
from tests.studies import of, refuse, same

TRAINED = [variant for variant in VARIANTS if variant.kind == "grpo"]
ITEMS, SAMPLES, GROUP, PROMPTS = 4, 2, 3, 8
ALL = ITEMS * len(data.CATEGORIES)


def settings(**conductor) -> config.Params:
    """One seed, eight prompts, four steps; `conductor`: changes, of a section those fields that are named."""
    grpo = {
        "prompts_per_step": 2,
        "generations": GROUP,
        "max_tokens": 11,
        "epochs": 1,
        "save_every": 2,
    }
    base = {
        "seeds": 1,
        "jobs": 1,
        "prompts": PROMPTS,
        "test_items": ITEMS,
        "samples": SAMPLES,
        "grpo": grpo,
        "initial_policy": {
            "items": 240,
            "thought_rate": 0.3,
            "repetition_rate": 0.0,
            "malformed_rate": 0.1,
            "error_rates": {
                key: {"with_thought": 0.1, "without_thought": 0.1} for key in data.CATEGORIES
            },
            "learning_rate": 1e-2,
        },
        "preference": {"prompts": 16, "replies": 2, "batch": 16},
        "rewards": {"min_length": 4, "max_length": 10},
    }
    for name, change in conductor.items():
        base[name] = base.get(name, {}) | change if isinstance(change, dict) else change
    return config.settings(profile="smoke", conductor=base)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def results(models, runs):
    """All arms."""
    threads = torch.get_num_threads()
    made = experiment.run(settings(), VARIANTS, models, runs)
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)
    return made


def run_of(job, folder, place, taught, workers: int | None = 1) -> JobRun:
    """A job at work as after the first jobs: with a start and the reward model."""
    inputs = {}
    for name, model_folder in {"start": place, "reward_model": taught[0]}.items():
        input_folder = folder / "inputs" / name
        input_folder.mkdir(parents=True, exist_ok=True)
        if not (input_folder / "model").exists():
            (input_folder / "model").symlink_to(model_folder)
        inputs[job.settings[name]] = str(input_folder)
    context = RunContext.of(settings(), place, place, place, workers)
    return JobRun(job, folder, lambda fraction: None, dataclasses.replace(context, inputs=inputs))


def keys(
    place, compared=VARIANTS, own: config.Params | None = None, trainings=None
) -> dict[tuple[str, int], str]:
    """Keys of the jobs of arms, by arm and seed."""
    every_job = jobs.make_jobs(own or settings(), compared, place, trainings)
    return {(job.settings["variant"]["name"], job.settings["seed"]): job.key for job in every_job}


def changed(place, **conductor) -> set[str]:
    """Names of the arms whose jobs have other keys with other settings."""
    before, after = keys(place), keys(place, own=settings(**conductor))
    return {variant for variant, seed in before if before[variant, seed] != after[variant, seed]}


# Results ------------------------------------------------------------------------------------------


def test_every_arm_answers_every_test_item(results):
    frame = results.items
    columns = {
        "group",
        "item",
        "correct",
        "verified",
        "novel",
        "tokens_out",
        "well_formed",
        "split",
        "method",
        "seed",
    }
    assert columns == set(frame)
    both = {name: set(part["split"]) for name, part in frame.groupby("method")}
    assert {name for name, splits in both.items() if splits == {"dev", "test"}} == set(
        jobs.TESTED_ON_DEV_TOO
    )
    for variant in VARIANTS:
        mine = of(frame, variant.name).query("split == 'test'")
        assert len(mine) == ALL and set(mine["seed"]) == {0}
        assert mine["group"].value_counts().to_dict() == dict.fromkeys(data.CATEGORIES, ITEMS)
    assert (
        frame["correct"].between(0, 1).all()
        and (frame["correct"] <= frame["verified"] + 1e-9).all()
    )


def test_the_first_reply_to_every_item_is_taken_apart(results):
    frame = results.components
    assert {
        "group",
        *COMPONENTS,
        "prompt",
        "reference",
        "reply",
        "verified",
        "has_thought",
        "method",
        "seed",
    } <= set(frame)
    weights = [f"w_{name}" for name in COMPONENTS]
    frame = frame[frame["split"] == "test"]
    for variant in VARIANTS:
        mine = of(frame, variant.name)
        assert len(mine) == ALL and mine["prompt"].tolist() == frame["prompt"][:ALL].tolist()
        assert mine[weights].notna().all().all() == (variant.kind == "grpo")
    assert np.allclose(of(frame, "conductor")[weights].sum(axis=1), 1, atol=1e-5)
    assert of(frame, "equal")[weights].to_numpy() == pytest.approx(1 / 5)
    assert of(frame, "em")["w_ent"].eq(-1).all() and not of(frame, "oracle")[weights].any().any()


def test_the_rollouts_of_trained_arms_are_kept_with_their_quality(results):
    frame = results.rollouts
    assert set(frame["method"]) == {variant.name for variant in TRAINED}
    for variant in TRAINED:
        mine = of(frame, variant.name)
        assert (
            len(mine) == PROMPTS * GROUP
            and mine["step"].max() == 3
            and mine["correct"].between(0, 1).all()
        )
        assert (mine["action"] != "").all() == variant.has_conductor
    assert (
        frame["judge"].notna().eq(frame["method"] == "judge").all()
        and of(frame, "judge")["judge"].between(0, 1).all()
    )


@pytest.mark.parametrize(
    ("variant", "paid"),
    [("oracle", "r_quality"), ("judge", "r_judge"), ("nover", "r_ppl"), ("em", "r_ent")],
)
def test_an_arm_pays_what_its_name_says(results, variant, paid):
    """Within a group the advantage has the order of the reward; for EM, the opposite one."""
    mine = of(results.rollouts, variant)
    advantage, reward = (
        mine[name].to_numpy(dtype=float).reshape(-1, GROUP) for name in ("advantage", paid)
    )
    sign = -1 if variant == "em" else 1
    better = np.sign(reward[:, :, None] - reward[:, None, :])
    assert (
        np.sign(np.round(advantage[:, :, None] - advantage[:, None, :], 5)) == sign * better
    ).all() and better.any()


def test_all_arms_start_from_the_same_rollouts(results):
    """The first step's: same prompts, same seeds, same policy."""
    first = {
        variant.name: of(results.rollouts, variant.name).query("step == 0")[
            ["item", "tokens_out", "ent"]
        ]
        for variant in TRAINED
    }
    for frame in first.values():
        assert_frame_equal(frame, first["equal"])


# Again --------------------------------------------------------------------------------------------


@pytest.fixture
def all_is_done(monkeypatch):
    for module in (training_job, reward_model, initial_policy):
        monkeypatch.setattr(module, "run_job", refuse)


def test_what_was_made_is_not_made_again(results, models, runs, all_is_done):
    same(experiment.run(settings(), VARIANTS, models, runs), results)
    part = experiment.run(settings(), [variants.BASE, variants.CONDUCTOR], models, runs)
    assert_frame_equal(of(part.items, "conductor"), of(results.items, "conductor"))
    assert set(part.items["method"]) == {"base", "conductor"}


def test_a_job_that_was_killed_goes_on_to_the_same_result(results, models, tmp_path, monkeypatch):
    """After the training, before the numbers were kept."""

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(evaluation, "score_items", killed)
        experiment.run(settings(), [variants.CONDUCTOR], models, tmp_path)
    made = experiment.run(settings(), [variants.CONDUCTOR], models, tmp_path)
    for name in ("items", "components"):
        assert_frame_equal(
            getattr(made, name), of(getattr(results, name), "conductor")[list(getattr(made, name))]
        )
    assert made.timings["steps"].tolist() == [0]


def test_more_seeds_and_other_arms_beside_it_leave_a_job_alone(place):
    one = keys(place)
    two = keys(place, own=settings(seeds=2, jobs=2))
    assert len(two) == 2 * len(one) and one.items() <= two.items()
    some = keys(place, VARIANTS[:3])
    assert len(some) == 3 and some.items() <= one.items()


def test_labels_and_keys_are_unique_and_an_arm_may_be_called_otherwise_in_tables(place):
    every_job = jobs.make_jobs(settings(seeds=2), VARIANTS, place)
    assert (
        len({job.label for job in every_job})
        == len({job.key for job in every_job})
        == len(every_job)
        == 2 * len(VARIANTS)
    )
    renamed = [dataclasses.replace(variant, label="otherwise") for variant in VARIANTS]
    assert keys(place, renamed) == keys(place)


def test_a_setting_changes_the_jobs_of_the_arms_that_read_it_and_no_others(place):
    everybody = {variant.name for variant in VARIANTS}
    trained = {variant.name for variant in VARIANTS if variant.kind != "prompt"}
    by_grpo = {variant.name for variant in VARIANTS if variant.kind == "grpo"}
    assert changed(place, samples=3) == changed(place, categories=["story"]) == everybody
    assert (
        changed(place, initial_policy={"malformed_rate": 0.5})
        == changed(place, preference={"epochs": 1})
        == everybody
    )
    assert (
        changed(place, grpo={"temperature": 0.5})
        == changed(place, rewards={"max_length": 11})
        == everybody
    )
    assert changed(place, prompts=9) == changed(place, grpo={"learning_rate": 0.5}) == trained
    assert changed(place, grpo={"kl": 0.5}) == changed(place, grpo={"scale": "none"}) == by_grpo
    assert (
        changed(place, head={"kappa": 1.0})
        == changed(place, head={"update_interval": 7})
        == {"conductor", "anchored"}
    )
    assert (
        changed(place, head={"verified_fraction": 0.7})
        == changed(place, head={"verifier_error_rate": 0.7})
        == {"anchored"}
    )
    assert changed(place, judge="scripted-large") == {"judge"}


@pytest.mark.parametrize(
    "change",
    [
        {"jobs": 2},
        {"ablation_seeds": 2},
        {"layer_seeds": 2},
        {"gate": 0.5},
        {"equivalence_margin": 0.5},
        {"synthetic": {"seeds": 9, "steps": 9, "matching_agreement": 0.5}},
    ],
    ids=str,
)
def test_a_setting_that_no_arm_reads_changes_no_job(place, change):
    assert changed(place, **change) == set()


def versions_read(place, monkeypatch, variant: variants.ConductorVariant) -> set[str]:
    """Names of the modules whose VERSION is in the key of an arm's job."""
    before = keys(place, [variant])
    modules = (
        seeds,
        tasks,
        tokenizer,
        chat_template,
        training_data,
        kv_cache_forward,
        generation,
        scripted,
        losses,
        initial_policy,
        data,
        reward_model,
        five_rewards,
        reply_format,
        policy_readout,
        evaluation,
        jobs,
        variants,
        weightings,
        rollouts,
        trainer,
        conductor_head,
        meta_policy_training,
        conductor_judge,
    )
    read = set()
    for module in modules:
        with monkeypatch.context() as patch:
            patch.setattr(module, "VERSION", module.VERSION + 1)
            if keys(place, [variant]) != before:
                read.add(module.__name__.removeprefix("lib."))
    return read


def test_the_version_of_code_is_in_the_keys_of_the_jobs_that_run_it_and_of_no_others(
    place, monkeypatch
):
    start_and_exam = {
        "experiment.seeds",
        "tasks",
        "language_models.tokenizer",
        "language_models.chat_template",
        "language_models.training.training_data",
        "language_models.kv_cache_forward",
    }
    start_and_exam |= {
        "language_models.generation",
        "conductor.initial_policy",
        "conductor.data",
        "conductor.reward_model",
    }
    start_and_exam |= {
        "conductor.rewards",
        "conductor.reply_format",
        "conductor.policy_readout",
        "conductor.evaluation",
        "conductor.jobs",
    }
    grpo = {"conductor.variants", "conductor.weighting", "conductor.rollouts", "conductor.trainer"}
    conducted = {"conductor.meta_policy", "conductor.meta_policy_training"}
    assert versions_read(place, monkeypatch, variants.BASE) == start_and_exam
    assert versions_read(place, monkeypatch, VARIANTS_BY_NAME["sft"]) == start_and_exam
    assert versions_read(place, monkeypatch, VARIANTS_BY_NAME["equal"]) == start_and_exam | grpo
    assert (
        versions_read(place, monkeypatch, variants.CONDUCTOR) == start_and_exam | grpo | conducted
    )
    assert versions_read(
        place, monkeypatch, variants.ANCHORED
    ) == start_and_exam | grpo | conducted | {"rl.losses"}
    judged = start_and_exam | grpo | {"conductor.llm_judge", "llm.scripted"}
    assert versions_read(place, monkeypatch, VARIANTS_BY_NAME["judge"]) == judged


def test_the_scripted_models_are_in_the_key_only_where_the_judge_is_one(place, monkeypatch):
    endpoint = {"backend": "endpoint", "base_url": "http://localhost:1/v1", "model": "m"}
    own = config.settings(profile="smoke", llm={"models": {"scripted-medium": endpoint}})
    assert own.llm.models["scripted-medium"].backend == "endpoint"
    before = keys(place, [VARIANTS_BY_NAME["judge"]], own)
    monkeypatch.setattr(scripted, "VERSION", scripted.VERSION + 1)
    assert keys(place, [VARIANTS_BY_NAME["judge"]], own) == before
    assert keys(place, [VARIANTS_BY_NAME["judge"]]) != before


def test_how_a_judge_is_reached_is_in_no_key_and_what_it_says_depends_on_is(place):
    def keys_with(**changes) -> dict[tuple[str, int], str]:
        return keys(
            place,
            own=config.settings(profile="smoke", llm={"models": {"scripted-medium": changes}}),
        )

    usual = keys_with()
    assert keys_with(timeout=77.0) == usual
    other = keys_with(price_in=0.5)
    assert {variant for variant, seed in usual if usual[variant, seed] != other[variant, seed]} == {
        "judge"
    }


def test_processes_share_the_limits_of_an_endpoint(place, taught, tmp_path, monkeypatch):
    """As many as there are: all cores where nobody says how many."""
    monkeypatch.setattr(os, "cpu_count", lambda: 7)
    (job,) = jobs.make_jobs(settings(), [VARIANTS_BY_NAME["judge"]], place)
    for workers, share in ((3, 3), (None, 7)):
        at_work = TrainingJob(run_of(job, tmp_path, place, taught, workers))
        assert at_work._open_judge()._open_models.args[5] == share


def test_policies_learn_where_the_labs_engine_writes(place, taught, tmp_path, monkeypatch):
    """`Forward` computes on the CPU, so a policy that TRL moved to a GPU could not be generated from."""

    class Asked(Exception):
        pass

    def configured(**fields):
        raise Asked(fields)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(trainer, "GRPOConfig", configured)
    (job,) = jobs.make_jobs(settings(), [variants.CONDUCTOR], place)
    with pytest.raises(Asked) as asked:
        training_job.run_job(run_of(job, tmp_path, place, taught))
    fields = asked.value.args[0]
    assert fields["use_cpu"] and not fields["bf16"]


def test_a_policy_that_is_not_there_is_named_before_anything_starts(tmp_path):
    with pytest.raises(ModelError, match="lab-policy holds no model"):
        experiment.run(settings(), [variants.BASE], tmp_path, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_the_record_holds_exams_and_rollouts_of_every_arm(results):
    rows = results_table.make_results("conductor", make_results_table(results))
    exam, trained = rows[rows["step"] == results_table.AFTER], rows[rows["step"] >= 0]
    assert len(exam) == len(results.items) and len(trained) == len(results.rollouts)
    assert set(exam["method"]) == {variant.label for variant in VARIANTS} and set(
        trained["split"]
    ) == {"train"}
    keys = ["method", "seed", "split", "step", "item", "sample"]
    assert (
        not rows.duplicated(keys).any()
        and exam["correct"].tolist() == results.items["correct"].tolist()
    )
    mine = exam[(exam["method"] == "Conductor") & (exam["split"] == "test")]
    assert mine[[f"w_{name}" for name in COMPONENTS]].sum(axis=1).to_numpy() == pytest.approx(
        1, abs=1e-5
    )
    told = trained[trained["method"] == "Anchored"]
    assert set(told["action"]) <= set(COMPONENTS) and set(told["role"]) == {"router"}


def test_the_best_static_mix_is_chosen_on_dev_items_by_seeds_that_all_candidates_share():
    """On test items, and under a seed that only one of them has, another one is best."""
    nover, entropy = variants.NOVER.label, variants.EM.label
    rows = pd.DataFrame(
        [
            (nover, 0, "dev", 0.6),
            (entropy, 0, "dev", 0.5),
            (entropy, 1, "dev", 1.0),
            (nover, 0, "test", 0.1),
            (entropy, 0, "test", 0.9),
            (variants.ORACLE.label, 0, "dev", 1.0),
        ],
        columns=["method", "seed", "split", "correct"],
    )
    assert experiment.choose_best_static(rows) == nover
    with pytest.raises(ValueError, match="no dev rows"):
        experiment.choose_best_static(rows[rows["split"] == "test"])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_reward_model_never_sees_what_a_policy_is_trained_on(
    place, taught, policy, tmp_path, seed
):
    (job,) = jobs.make_jobs(settings(prompts=96), [VARIANTS_BY_NAME["equal"]], place, [seed])
    at_work = TrainingJob(run_of(job, tmp_path, place, taught))
    compared = reward_model.make_pairs(
        Forward(policy),
        "train",
        small.preference(prompts=200),
        1.0,
        0.0,
        jobs.REWARD_MODEL_SEED,
    )
    assert len(at_work.training_items) == 96 and compared
    assert not {item.id for item in at_work.training_items} & {pair.item.id for pair in compared}
    assert [data.get_category(item) for item in at_work.training_items[:3]] == list(data.CATEGORIES)


def test_every_seed_answers_as_its_own_start_before_training(models, tmp_path):
    told = settings(seeds=2, test_items=4)
    made = experiment.run(told, [variants.BASE], models, tmp_path)
    items = data.draw_items("test", 12)
    for seed in range(2):
        job = initial_policy.make_job(
            told.conductor.initial_policy, models / told.conductor.policy, seed
        )
        model = checkpoints.load(job.folder(tmp_path) / "model")
        limit = told.conductor.grpo.max_tokens
        given = evaluation.sample_replies(
            model,
            items,
            SamplingSettings(SAMPLES, told.conductor.grpo.temperature, limit),
            seed,
        )
        mine = made.components[
            (made.components["seed"] == seed) & (made.components["split"] == "test")
        ]
        assert mine["reply"].tolist() == [one.text for one in given[::SAMPLES]]
    assert made.components.groupby("seed")["reply"].agg(" / ".join).nunique() == 2


@pytest.mark.parametrize("verifier_error_rate", [0.0, 1.0])
def test_an_anchor_hears_the_verifier_on_verified_prompts_only(
    place, taught, tmp_path, verifier_error_rate
):
    told = settings(
        head={"verified_fraction": 0.5, "verifier_error_rate": verifier_error_rate}, prompts=32
    )
    (job,) = jobs.make_jobs(told, [variants.ANCHORED], place)
    at_work = TrainingJob(run_of(job, tmp_path, place, taught))
    rows = list(range(32))
    heard = at_work._score_anchor(
        None, rows, [item.solution for item in at_work.training_items], rows, rows
    )
    known = select_verified(make_verified_mask_stream([0]), torch.arange(32), 0.5)
    assert heard == [float(k and not verifier_error_rate) for k in known] and 0 < known.sum() < 32


# Arms ---------------------------------------------------------------------------------------------


CHANGES = [
    {"kappa": 0.5}, {"kappa": 0.05}, {"kappa": 1.0}, {"kappa": 0.0}, {"layer": "first"}, {"layer": "middle"},
    {"head_input": "prompt"},
    {"joint": True}, {"homogeneous": True}, {"homogeneous": True, "kappa": 1.0}, {"entropy": 0.0}, {"entropy": 1e-5},
    {"pairwise": 1.0}, {"pairwise": 0.1}, {"pairwise": 10}, {"temperature": 1.0}, {"temperature": 10},
    {"temperature": 0.1}, {"learning_rate": 1e-3}, {"learning_rate": 1e-2}, {"update_interval": 1},
    {"update_interval": 10},
    {"centred": True}, {"floor": 1e-3},
]  # fmt: skip


def test_variants_change_the_head_and_nothing_else():
    made = make_variant("Kappa 1", kappa=1.0)
    assert (
        made.has_conductor
        and made.label == "Kappa 1"
        and made.head_changes == {"kappa": 1.0}
        and made.kind == "grpo"
    )
    assert len(VARIANTS_BY_NAME) == len(VARIANTS)


def test_replies_begin_as_the_arm_says(results):
    told = of(results.components, "cot")
    assert told["reply"].str.startswith("<think>").all()
    assert not of(results.components, "base")["reply"].str.startswith("<think>").all()


def test_the_reward_model_says_how_often_it_agrees(results):
    assert list(results.agreement) == ["group", "correct", "pairs"]
    assert (
        set(results.agreement["group"]) <= set(data.CATEGORIES)
        and results.agreement["pairs"].sum() > 0
    )


def test_nothing_but_numbers_is_left(results, runs):
    assert not list(runs.glob("*/training")) and not list(runs.glob("*/*/checkpoint-*"))


def test_the_reward_model_reads_the_start_and_one_temperature_of_the_trainings(place):
    def key(**conductor) -> str:
        return reward_model.make_job(
            settings(**conductor).conductor, place, jobs.REWARD_MODEL_SEED
        ).key

    assert key(head={"kappa": 1.0}) == key(grpo={"kl": 0.5}) == key(samples=3) == key()
    others = {
        key(grpo={"temperature": 0.5}),
        key(initial_policy={"malformed_rate": 0.5}),
        key(preference={"epochs": 1}),
    }
    assert len(others | {key()}) == 4


def test_variants_have_names_of_their_own_which_can_be_names_of_metrics():
    names = [make_variant("a label", **change).name for change in CHANGES]
    assert len({*names, *VARIANTS_BY_NAME}) == len(names) + len(VARIANTS_BY_NAME)
    for name in [*VARIANTS_BY_NAME, *names]:
        assert METRIC_KEY.fullmatch(f"reasoning.{name}.score"), name
        assert re.fullmatch(r"[\w-]+", name), name  # one part of a metric's name, and of a folder's


def test_a_change_that_the_head_does_not_know_is_refused(place):
    with pytest.raises(config.ParamsError, match="kappa"):
        jobs.make_jobs(settings(), [make_variant("Kappa 2", kappa=2.0)], place)


def test_a_job_cannot_read_a_setting_that_it_was_not_handed(place, taught, tmp_path):
    conductor_job, base_job = jobs.make_jobs(settings(), [variants.BASE, variants.CONDUCTOR], place)
    base = TrainingJob(run_of(base_job, tmp_path, place, taught))
    conductor = TrainingJob(run_of(conductor_job, tmp_path, place, taught))
    for owner, name in (
        (base, "training_items"),
        (base.grpo, "kl"),
        (conductor.head, "verified_fraction"),
    ):
        with pytest.raises(AttributeError, match="was not handed"):
            getattr(owner, name)
