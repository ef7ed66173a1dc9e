"""The experiment at its smallest: every training, jobs that are done once, tables with what was promised."""

import dataclasses
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import LlamaForCausalLM

from lib import config
from lib.agent_configuration import (
    baselines,
    cost_plan,
    error_taxonomy,
    estimates,
    experiment,
    full_run,
)
from lib.agent_configuration import results as recorded
from lib.agent_configuration.agent_system import ConfiguredQuestion, System
from lib.agent_configuration.atoms import LIBRARY, read_library
from lib.agent_configuration.encoders import EncoderError
from lib.agent_configuration.jobs import NUM_PARTS, make_choices_job, make_constants_job
from lib.agent_configuration.questions import KINDS, questions
from lib.agent_configuration.variants import ABLATIONS, BASELINES, NAMED, UNTRAINED, VARIANTS
from lib.config import ConfigurationSettings, ParamsError
from lib.experiment import artifacts, results_table, seeds
from lib.experiment.full_results import read_full_results, write_full_results
from lib.language_models import checkpoints
from lib.language_models.checkpoints import ModelError
from lib.language_models.training import team_traces
from lib.language_models.training.training_data import tokenize_dialogue
from tests.budgeted_routing import small_systems
from tests.language_models import tiny
from tests.studies import Killed, dying, refuse, same

ARC = NAMED["arc"]
COMPARED = (ARC, NAMED["mdp"])
NAMES = [kind.name for kind in KINDS]
UPDATES, BATCH, GROUP, ITEMS, SAVE = 4, 8, 4, 2, 2
ASKED = ITEMS * len(KINDS)  # questions of a test
SEARCHES = (experiment.DECLARED_SET, experiment.GREEDY_SEARCH)
DECLARED = 9 + 1 + 9  # the grid, everything switched on, and the sampled ones
pytestmark = pytest.mark.usefixtures("isolated_files")


def settings(llm=None, **changes) -> config.Params:
    """Four updates of eight episodes, two questions of each kind, one process; rates at which little is enough."""
    fast = {"structure_rate": 1e-2, "prompt_rate": 1e-2}
    base = {
        "seeds": 1,
        "ablation_seeds": 1,
        "jobs": 1,
        "train_items": 3,
        "search_items": 2,
        "dev_items": 2,
        "test_items": ITEMS,
        "grid": 9,
        "sampled": 9,
        "episodes": UPDATES * BATCH,
        "save_every": SAVE,
        "tiers": [5, 9, 18],
        "ppo": fast | {"batch": BATCH, "epochs": 2},
        "grpo": fast | {"batch": BATCH, "group": GROUP, "epochs": 2},
        "sft": fast | {"batch": 4},
        "dpo": fast | {"batch": 4, "good": 0.0, "bad": 2.0},
    }
    return small_systems.change_params(
        llm=llm or {}, configuration=config.overlay_settings(base, changes)
    )


@cache
def schooled(seed: int = 0) -> LlamaForCausalLM:
    """A few seconds of lessons in teamwork on the very questions that are asked here, so that agents call tools and are
    right now and then. Do not change it."""
    model = tiny.model(seed, spread=3.0, hidden=16, layers=1, intermediate=32, window=512)
    rng = seeds.rng("tests", "teamwork")
    requests = [
        item for split in ("train", "test") for kind in NAMES for item in questions(kind, split, 3)
    ]
    traces = [
        tokenize_dialogue(*team_traces.write_trace(item, rng))
        for _ in range(20)
        for item in requests
    ]
    small_systems.fit_traces(model, [traces[i] for i in rng.permutation(len(traces))], 110)
    return model.eval()


def lab_models(root: Path) -> Path:
    """A folder with every lab model of the parameters: the team's has had its lessons, others write at random."""
    lab = {
        about.model or name
        for name, about in small_systems.SMOKE_PARAMS.llm.models.items()
        if about.backend == "lab"
    }
    for i, name in enumerate(sorted(lab)):
        own_settings = (
            schooled()
            if name == "lab-team"
            else tiny.model(i, hidden=16, layers=1, intermediate=16, window=512)
        )
        bench = checkpoints.save(own_settings, root / name)
        card = {"dollars_per_1k_tokens": 0.001 * (i + 1), "tokens_per_second": 100.0 * (i + 1)}
        artifacts.write_json(bench / "card.json", card)
    return root


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return lab_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def elsewhere(models, tmp_path_factory):
    """The same models under another name: their engines remember nothing of the study."""
    bench = tmp_path_factory.mktemp("elsewhere") / "models"
    bench.symlink_to(models)
    return bench


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def listened(jobs: list[ConfiguredQuestion]):
    """`System.run`, with all jobs kept."""
    run = System.run

    def wrapped(system, requests):
        jobs.extend(requests)
        return run(system, requests)

    return wrapped


@pytest.fixture(scope="module")
def jobs() -> list[ConfiguredQuestion]:
    """Every job that the agents of the whole study were given."""
    return []


@pytest.fixture(scope="module")
def results(isolated_files, models, runs, jobs):
    """The whole study."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(System, "run", listened(jobs))
        results_ = experiment.run(settings(), COMPARED, models, runs)
    torch.set_flush_denormal(False)
    return results_


@pytest.fixture
def bench(elsewhere, runs):
    """Agents at work, with engines that remember nothing of the study."""
    context = experiment.make_context(settings(), elsewhere, runs)
    with experiment.open_workbench(context, settings().configuration) as opened:
        yield opened


def folders(root: Path) -> dict[str, Path]:
    """The folder of each job under `root`, by the job's label."""
    return {artifacts.read_json(path)["label"]: path.parent for path in root.glob("*/job.json")}


def paths(root: Path) -> list[Path]:
    """What jobs and the published policy left, receipts aside: those hold the seconds."""
    results_ = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return [path for path in results_ if path.name not in ("done.json", "progress.json")]


# Results ------------------------------------------------------------------------------------------


def test_every_method_is_tested_on_the_same_questions(results):
    tests = results.tests[results.tests["model"] == "team"]
    own_kind = tests[tests["only"].isna() | (tests["only"] == tests["group"])]
    expected = {item.prompt for kind in NAMES for item in questions(kind, "test", ITEMS)}
    for (method, seed), rows in own_kind.groupby(["method", "seed"]):
        assert set(rows["prompt"]) == expected and len(rows) == ASKED, (method, seed)
    trained = {"arc", "arc_no_sft", "arc_dpo", "mdp", "mdp_no_sft"}
    # Only the oracle is not tested: it takes the best of what all others did.
    assert set(own_kind["method"]) == trained | set(UNTRAINED) - {"oracle"}


def test_only_arc_is_tested_on_other_kinds_and_with_the_larger_model(results):
    tests = results.tests
    away = tests[tests["only"].notna() & (tests["only"] != tests["group"])]
    assert set(away["method"]) == {"arc"} and len(away) == (len(KINDS) - 1) * ASKED
    assert set(tests.loc[tests["model"] == "team-large", "method"]) == {"arc"}


def test_declared_configurations_and_greedy_ends_were_tried_on_all_questions(results):
    declared = results.tried[results.tried["set"].isin(["grid", "sampled"])]
    assert declared["number"].nunique() == DECLARED
    ends = results.tried[results.tried["set"] == "greedy"]
    assert ends["number"].nunique() == len(KINDS)
    for rows in (declared, ends):
        counts = rows.groupby(["number", "split"]).size().unstack()
        assert set(counts) == {"train", "dev", "dev_again", "test", "again"}
        assert (counts == 2 * len(KINDS)).all(axis=None)


def test_constants_do_in_their_test_as_they_did_when_they_were_tried(results):
    tests = results.tests.set_index("prompt")
    for method, rows in baselines.select_constants(results.tried).items():
        tested = tests[tests["method"] == method].loc[rows["prompt"]]
        assert tested["digest"].tolist() == rows["digest"].tolist(), method
        assert tested["reward"].tolist() == rows["reward"].tolist(), method


def test_a_greedy_search_of_a_kind_never_goes_down(results):
    assert set(results.greedy["group"]) == set(NAMES)
    for _, path in results.greedy.groupby("group"):
        assert (path["reward"].diff().dropna() >= 0).all() and path["tried"].is_monotonic_increasing


def test_every_choice_of_every_policy_was_tried_on_all_test_questions_of_its_kind(results):
    """In both samples, so that nobody is above the oracle."""
    tests = results.tests
    chosen = tests[(tests["only"] == tests["group"]) & (tests["model"] == "team")]
    tried_rows = results.tried[results.tried["set"] == "policies"]
    for kind, rows in chosen.groupby("group"):
        of_kind = tried_rows[tried_rows["group"] == kind]
        assert set(of_kind["digest"]) == set(rows["digest"])
        counts = of_kind.groupby(["digest", "split"]).size().unstack()
        assert set(counts) == {"test", "again"} and (counts == ITEMS).all(axis=None)


def test_rollouts_and_losses_are_kept_for_every_update_of_every_kind(results):
    for variant in COMPARED:
        rollouts = results.rollouts[results.rollouts["method"] == variant.name]
        counts = rollouts.groupby(["only", "step"]).size()
        assert len(counts) == len(KINDS) * UPDATES and (counts == BATCH).all()
        assert (rollouts["only"] == rollouts["group"]).all()
        learned = results.learning[results.learning["method"] == variant.name]
        assert len(learned) == len(KINDS) * UPDATES and learned["structure_value"].notna().all()


def test_a_policy_meets_no_question_of_dev_or_test_while_it_learns(results):
    learned_from = set(results.rollouts["prompt"])
    tried_rows = results.tried
    other_prompts = set(tried_rows.loc[tried_rows["split"] != "train", "prompt"]) | set(
        results.tests["prompt"]
    )
    assert not learned_from & other_prompts


def test_rewards_are_those_of_equation_3_from_the_columns_beside_them(results):
    rows = results.tests
    expected = (
        5 * rows["correct"]
        - 0.02 * rows["calls"]
        - 0.03 * rows["tokens_out"] / (3 * 18)
        + np.where(
            rows["used"] > 0, 0.1 * rows["used"] + 0.2 * rows["correct"], -0.3 * rows["allocated"]
        )
    )
    assert np.allclose(rows["reward"], expected)


def test_errors_have_a_kind_and_right_answers_none(results):
    rows = results.tests
    assert (rows["correct"].eq(1) == rows["error"].eq("")).all()
    assert set(rows["error"]) <= {"", *error_taxonomy.KINDS} and rows["error"].nunique() > 2


def test_the_rows_of_the_results_table_hold_everybody_and_an_oracle_that_dominates(results):
    rows = recorded.make_rows(results, settings())
    metrics = estimates.estimate_metrics(results_table.make_results(recorded.SYSTEM, rows))
    assert metrics["oracle.dominates"] is True
    assert metrics["arc.episodes"] == UPDATES * BATCH and metrics["arc.seeds"] == 1
    for baseline in ("by_kind", "best_constant", "mdp", "random", "gepa", "oracle"):
        assert f"contrast.arc_{baseline}.accuracy" in metrics
        assert f"regret.{baseline}" in metrics or baseline == "oracle"
    assert {f"gate.configuration.{name}" for name in ("headroom", "signal")} <= set(metrics)


# Done once ----------------------------------------------------------------------------------------


def test_what_was_done_is_not_done_again(results, models, runs, monkeypatch):
    monkeypatch.setattr(experiment, "work", refuse)
    monkeypatch.setattr(System, "run", refuse)
    before = {path: (runs / path).read_bytes() for path in paths(runs)}
    same(experiment.run(settings(), COMPARED, models, runs), results)
    assert {path: (runs / path).read_bytes() for path in paths(runs)} == before


def test_a_training_that_was_killed_goes_on_to_the_same_bytes_and_asks_nothing_twice(
    results, elsewhere, runs, tmp_path, monkeypatch
):
    """Killed in its third update, behind the two whose rollouts were saved."""
    for folder in folders(runs).values():  # everything but the trainings is done
        if artifacts.read_json(folder / "job.json")["settings"]["job"] != experiment.TRAINING:
            (tmp_path / folder.name).symlink_to(folder)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(System, "run", dying(System.run, lambda number, jobs: number == 3))
        experiment.train_policies(settings(), [ARC], elsewhere, tmp_path)
    folder = folders(tmp_path)["arc/seed-0"]
    assert not (folder / "done.json").exists() and (folder / "rollouts.parquet").exists()

    jobs: list[ConfiguredQuestion] = []
    monkeypatch.setattr(System, "run", listened(jobs))
    experiment.train_policies(settings(), [ARC], elsewhere, tmp_path)
    num_episodes = sum(job.item.split == "train" for job in jobs)
    assert num_episodes == len(KINDS) * (UPDATES - SAVE) * BATCH
    whole = folders(runs)["arc/seed-0"]
    assert paths(folder) == paths(whole)
    for path in paths(folder):
        assert (folder / path).read_bytes() == (whole / path).read_bytes(), path


# Keys ---------------------------------------------------------------------------------------------


@pytest.fixture
def keys(models):
    """Keys of all jobs by label, under changed parameters."""

    def keys_by_label(compared=VARIANTS, folder=models, **changes) -> dict[str, str]:
        jobs = experiment.make_jobs(settings(**changes), compared, folder)
        return {job.label: job.key for job in jobs}

    return keys_by_label


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Labels of the jobs that have another key."""
    return {label for label in before if before[label] != after[label]}


def test_what_changes_no_result_makes_no_new_jobs(keys, tmp_path):
    same_atoms = tmp_path / "moved.yaml"
    shutil.copy(LIBRARY, same_atoms)
    before = keys()
    for change in (
        {"jobs": 3},
        {"save_every": 5},
        {"atoms": str(same_atoms)},
        {"encoders": ["hashing"]},  # of a table that is made afterwards
        {"llm": {"max_usd": 1.0, "cassette": "replay"}},
    ):
        assert keys(**change) == before, change
    assert before.items() >= keys([ARC]).items()


DECLARED_JOBS = {f"declared/{number}" for number in range(NUM_PARTS)}
TRAININGS = {f"{variant.name}/seed-0" for variant in VARIANTS}
WHERE = {  # jobs that depend on a setting; all on every other
    "hosted_tiers": set(),  # of other agents than these, which are lab models
    "larger": {"arc/seed-0"},
    "prompted": {"prompted", "optimized"},
    "encoder": TRAININGS,
    "train_items": TRAININGS,
    "draws": TRAININGS,
    "search_items": {*DECLARED_JOBS, "greedy", "optimized"},
    "dev_items": {*DECLARED_JOBS, "greedy", "atoms"},
    "grid": {*DECLARED_JOBS, "prompted"},
    "sampled": DECLARED_JOBS,
    "ppo": TRAININGS - {"grpo/seed-0"},
    "grpo": {"grpo/seed-0"},
    "episodes": TRAININGS | {"optimized"},
    "sft": TRAININGS,
    "dpo": {"arc/seed-0"},
}
OTHER_VALUES = {
    "model": "control", "larger": "large", "prompted": "scripted-small", "encoder": "lab:lab-team",
    "hosted_tiers": [256, 512, 2048], "train_items": 7, "draws": 3, "search_items": 5, "dev_items": 5, "grid": 12,
    "sampled": 12, "ppo": {"clip": 0.3}, "grpo": {"clip": 0.3}, "episodes": 64, "sft": {"epochs": 9},
    "dpo": {"epochs": 9}, "tiers": [5, 9, 20], "temperature": 0.5, "test_items": 5, "reward": {"alpha": 4.0},
}  # fmt: skip
WITHOUT_RESULT = ("atoms", "jobs", "seeds", "ablation_seeds", "save_every", "encoders", "glass")


@pytest.mark.parametrize(
    "name", [name for name in ConfigurationSettings.model_fields if name not in WITHOUT_RESULT]
)
def test_a_setting_makes_new_jobs_where_it_changes_a_result(name, keys):
    before = keys()
    assert changed(before, keys(**{name: OTHER_VALUES[name]})) == WHERE.get(name, set(before))


def test_another_label_makes_no_new_job(keys):
    assert keys([dataclasses.replace(ARC, label="otherwise")]) == keys([ARC])


def test_the_last_jobs_build_on_every_training_and_every_search(models):
    jobs = experiment.make_jobs(settings(), COMPARED, models)
    trainings = [job for job in jobs if job.settings["job"] == experiment.TRAINING]
    choices = make_choices_job(settings(), models, trainings)
    assert choices.settings["inputs"] == {job.label: job.key for job in trainings}
    searches = {job.label: job.key for job in jobs if job.settings["job"] in SEARCHES}
    assert make_constants_job(settings(), models, jobs).settings["inputs"] == searches


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"atoms": "data/atoms/none.yaml"}, ParamsError, "none.yaml"),
        ({"encoder": "magic"}, EncoderError, "magic"),
        ({"encoder": "lab:lab-nobody"}, ModelError, "lab-nobody"),
        ({}, ModelError, "make repro"),
    ],
    ids=["atoms", "encoder", "its model", "all models"],
)
def test_what_cannot_be_read_is_named(change, error, message, models, tmp_path):
    folder = models if change else tmp_path
    with pytest.raises(error, match=message):
        experiment.run(settings(**change), models=folder, runs=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


# The published policies ---------------------------------------------------------------------------


def test_the_published_policies_are_those_of_arc_and_the_first_seed(results, runs, bench):
    folder = folders(runs)["arc/seed-0"]
    for kind in NAMES:
        arrays = artifacts.read_tensors(folder / f"arc-{kind}.safetensors")
        policy = experiment.read_published_policy(runs / "policy", bench, kind)
        assert all(np.array_equal(policy.to_arrays()[name], arrays[name]) for name in arrays)


def test_a_question_is_configured_by_the_policy_of_the_kind_that_it_is_like(bench):
    for kind in NAMES:
        (item,) = questions(kind, "test", 1)
        assert experiment.guess_kind(bench, item) == kind


@pytest.mark.parametrize("name", ["encoder", "atoms"])
def test_a_policy_of_another_encoder_or_library_is_refused_with_the_remedy(
    name, results, models, runs, tmp_path
):
    path = tmp_path / "atoms.yaml"
    path.write_text(LIBRARY.read_text() + "# one remark more\n")
    change = {"encoder": "lab:lab-team"} if name == "encoder" else {"atoms": str(path)}
    other_settings = settings(**change)
    context = experiment.make_context(other_settings, models, runs)
    with (
        experiment.open_workbench(context, other_settings.configuration) as other_bench,
        pytest.raises(ParamsError, match=f"another {name}; run `make repro`"),
    ):
        experiment.read_published_policy(runs / "policy", other_bench, "chain")


def test_the_plan_of_costs_bounds_the_questions_that_were_worked_on(results, jobs):
    params = settings()
    num_atoms = len(read_library(config.ROOT / params.configuration.atoms))
    planned = sum(cost_plan.count_training_questions(params, COMPARED))
    planned += cost_plan.count_searched_questions(params.configuration, num_atoms)
    assert len(jobs) <= planned < 4 * len(jobs)


# The full run -------------------------------------------------------------------------------------


@pytest.fixture
def full_jobs(models, monkeypatch):
    """The jobs of the full run on the small models, under changed parameters."""
    monkeypatch.setattr(checkpoints, "MODELS", models)
    return lambda **changes: full_run.list_jobs(settings(**changes))


def test_the_full_run_has_the_seeds_that_it_promises_and_fewer_of_ablations(full_jobs):
    jobs = full_jobs(seeds=3, ablation_seeds=2)
    labels = [job.label for job in jobs]
    assert len(set(labels)) == len({job.key for job in jobs}) == len(jobs)
    for variants, num_seeds in (((ARC, *BASELINES), 3), (ABLATIONS, 2)):
        for variant in variants:
            trainings = [label for label in labels if label.startswith(f"{variant.name}/")]
            assert trainings == [f"{variant.name}/seed-{seed}" for seed in range(num_seeds)]
    assert config.load("full").configuration.seeds >= 5
    assert config.load("full").configuration.episodes == 4_000  # as in the paper


def test_the_recorded_table_gives_the_estimates_of_the_rows_that_it_was_made_from(
    results, full_jobs, tmp_path
):
    """Its questions have short names, its numbers are rounded, and some columns are left out."""
    rows = recorded.make_rows(results, settings())
    recorded_rows = full_run.round_measurements(full_run.number_items(rows))
    path = tmp_path / "table.parquet"
    table = results_table.make_results(recorded.SYSTEM, recorded_rows)
    write_full_results(full_run.FULL_RUN, table, full_jobs(), 1.0, path)
    full = read_full_results(full_run.FULL_RUN, settings(), path)
    assert full.is_current and len(full.rows) == len(rows)

    before = estimates.estimate_metrics(results_table.make_results(recorded.SYSTEM, rows))
    after = estimates.estimate_metrics(full.rows)
    assert after.keys() == before.keys()
    for name, estimate in before.items():
        value = estimate["value"] if isinstance(estimate, pd.Series) else estimate
        value_after = after[name]["value"] if isinstance(estimate, pd.Series) else after[name]
        if isinstance(value, str):
            assert value_after == value, name
        else:
            assert value_after == pytest.approx(value, abs=1e-4), name


@pytest.mark.parametrize(
    ("field", "is_current"), [("tokens_per_second", True), ("dollars_per_1k_tokens", False)]
)
def test_a_recorded_table_is_outdated_by_another_price_and_not_by_another_speed(
    field, is_current, results, full_jobs, models, tmp_path, monkeypatch
):
    """A card holds both; rewards read neither, costs the price."""
    recorded_rows = full_run.number_items(recorded.make_rows(results, settings()))
    path = tmp_path / "table.parquet"
    write_full_results(full_run.FULL_RUN, recorded_rows, full_jobs(), 1.0, path)
    other_models = tmp_path / "models"
    shutil.copytree(models, other_models)
    card_path = other_models / "lab-team" / "card.json"
    artifacts.write_json(card_path, artifacts.read_json(card_path) | {field: 7.0})
    monkeypatch.setattr(checkpoints, "MODELS", other_models)
    full = read_full_results(full_run.FULL_RUN, settings(), path)
    assert full.is_current == is_current
