"""The experiment at its smallest: every training, jobs that are done once, tables with what was promised."""

import dataclasses
import shutil
from collections import Counter
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal
from transformers import LlamaForCausalLM

from lib import config, stats
from lib.agent_configuration import cost_plan, error_taxonomy, experiment
from lib.agent_configuration.action_space import SINGLE, WORKFLOWS, Configuration
from lib.agent_configuration.agent_system import ConfiguredAnswer, ConfiguredQuestion, System
from lib.agent_configuration.atoms import LIBRARY, library
from lib.agent_configuration.encoders import EncoderError
from lib.agent_configuration.questions import KINDS, questions
from lib.agent_configuration.variants import ALONE, NAMED, TESTED, VARIANTS
from lib.config import ConfigurationSettings, ParamsError
from lib.experiment import artifacts, seeds, sweep
from lib.language_models import checkpoints
from lib.language_models.checkpoints import ModelError
from lib.language_models.training import team_traces
from lib.language_models.training.training_data import tokenize_dialogue
from lib.llm.chat_model import Reply
from tests.agent_configuration import small as common
from tests.budgeted_routing import small_systems
from tests.language_models import tiny
from tests.studies import Killed, dying, of, refuse, same

ARC = NAMED["arc"]
EVERYBODY = (*VARIANTS, *ALONE)
NAMES = [kind.name for kind in KINDS]
UPDATES, BATCH, GROUP, ITEMS, SAVE = 4, 8, 4, 2, 2
ASKED = ITEMS * len(KINDS)  # questions of a test
CANDIDATES = 9 + 1 + 9  # the grid, everything switched on, and the sampled ones
DERIVED = {"base", "grid", "best_constant", "by_kind", "oracle"}  # read off what was searched
pytestmark = pytest.mark.usefixtures("apart")


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
    asked = [
        item for split in ("train", "test") for kind in NAMES for item in questions(kind, split, 3)
    ]
    traces = [
        tokenize_dialogue(*team_traces.write_trace(item, rng)) for _ in range(20) for item in asked
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
        own = (
            schooled()
            if name == "lab-team"
            else tiny.model(i, hidden=16, layers=1, intermediate=16, window=512)
        )
        place = checkpoints.save(own, root / name)
        card = {"dollars_per_1k_tokens": 0.001 * (i + 1), "tokens_per_second": 100.0 * (i + 1)}
        artifacts.write_json(place / "card.json", card)
    return root


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    return lab_models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def elsewhere(models, tmp_path_factory):
    """The same models under another name: their engines remember nothing of the study."""
    place = tmp_path_factory.mktemp("elsewhere") / "models"
    place.symlink_to(models)
    return place


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


def listened(jobs: list[ConfiguredQuestion]):
    """`System.run`, with all jobs kept."""
    run = System.run

    def wrapped(system, asked):
        jobs.extend(asked)
        return run(system, asked)

    return wrapped


@pytest.fixture(scope="module")
def jobs() -> list[ConfiguredQuestion]:
    """Every job that the agents of the whole study were given."""
    return []


@pytest.fixture(scope="module")
def results(apart, models, runs, jobs):
    """The whole study."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(System, "run", listened(jobs))
        found = experiment.run(settings(), models=models, runs=runs)
    torch.set_flush_denormal(False)
    return found


@pytest.fixture
def place(elsewhere, runs):
    """Agents at work, with engines that remember nothing of the study."""
    context = experiment.make_context(settings(), elsewhere, runs)
    with experiment.opened_place(context, settings().configuration) as opened:
        yield opened


def folders(root: Path) -> dict[str, Path]:
    """The folder of each job under `root`, by the job's label."""
    return {artifacts.read_json(path)["label"]: path.parent for path in root.glob("*/job.json")}


def paths(root: Path) -> list[Path]:
    """What jobs and the published policy left, receipts aside: those hold the seconds."""
    found = sorted(path.relative_to(root) for path in root.rglob("*") if path.is_file())
    return [path for path in found if path.name not in ("done.json", "progress.json")]


# Results ------------------------------------------------------------------------------------------


def test_every_arm_is_tested_on_the_same_questions_under_one_name_each(results):
    frame = results.tests[results.tests["model"] == "team"]
    alone = {f"{variant.name}{end}" for variant in ALONE for end in ("", "_no_sft")}
    assert set(frame["method"]) == (set(TESTED) - DERIVED) | alone
    items = [item.prompt for kind in NAMES for item in questions(kind, "test", ITEMS)]
    assert len(items) == ASKED
    for _, rows in frame.groupby(["method", "seed"]):
        assert rows["prompt"].tolist() == items
    larger = results.tests[results.tests["model"] == "team-large"]
    assert set(larger["method"]) == {"arc"} and larger["prompt"].tolist() == items
    assert of(larger, "arc")["digest"].tolist() == of(frame, "arc")["digest"].tolist()
    assert of(larger, "arc")["text"].tolist() != of(frame, "arc")["text"].tolist()


@pytest.mark.parametrize("name", ["searched", "tests", "rollouts"])
def test_rewards_are_those_of_equation_3_from_the_columns_beside_them(results, name):
    frame, largest = getattr(results, name), settings().configuration.tiers[-1]
    used = 0.1 * frame["used"] + 0.2 * frame["correct"]
    tools = used.where(frame["used"] > 0, -0.3 * frame["allocated"])
    told = (
        5 * frame["correct"]
        - 0.02 * frame["calls"]
        - 0.03 * frame["tokens_out"] / (3 * largest)
        + tools
    )
    assert frame["reward"].to_numpy() == pytest.approx(told.to_numpy(), abs=1e-9)
    assert (tools < 0).any() and (tools > 0).any()


def test_all_candidates_were_tried_on_training_questions_and_with_other_dice_twice_on_test_questions(
    results,
):
    frame = results.searched
    assert set(frame["number"]) == set(range(CANDIDATES))
    assert frame.groupby("set")["number"].nunique().to_dict() == {"grid": 9, "sampled": 10}
    assert (
        frame.groupby("number")["digest"].nunique().eq(1).all()
        and frame["digest"].nunique() == CANDIDATES
    )
    counts = frame.groupby(["number", "split"]).size().unstack()
    assert (counts["train"] == len(KINDS)).all() and (counts[["test", "again"]] == ASKED).all(None)
    assert set(frame["group"]) == set(NAMES) and set(frame["workflow"]) == set(WORKFLOWS)
    test, again = (
        frame[frame["split"] == split].reset_index(drop=True) for split in ("test", "again")
    )
    alike = ["prompt", "number", "digest", "set"]
    assert_frame_equal(test[alike], again[alike])
    assert (test["tokens_out"] != again["tokens_out"]).mean() > 0.1


def test_the_greedy_climb_never_goes_down_and_its_end_is_paid_what_it_says_and_tested(
    results, place
):
    path = results.greedy
    assert (
        list(path.columns) == ["tried", "reward"] and path["tried"].iloc[0] == 1 and len(path) > 3
    )
    assert (path["tried"].diff().dropna() > 0).all() and (path["reward"].diff().dropna() >= 0).all()
    told = place.play(
        "team", [ConfiguredQuestion(item, results.climbed) for item in place.items("train", 1)]
    )
    assert told["reward"].mean() == pytest.approx(path["reward"].iloc[-1], abs=1e-12)
    tested = of(results.tests, "greedy")
    assert set(tested["digest"]) == {results.climbed.digest} and set(tested["model"]) == {"team"}


def test_rollouts_and_losses_are_kept_for_every_update_of_every_training(results):
    """Only lone trainings keep to one kind of question, and only GRPO asks one several times in a row."""
    for variant in EVERYBODY:
        rows, log = of(results.rollouts, variant.name), of(results.learning, variant.name)
        updates = 1 if variant.only else UPDATES
        assert rows["step"].tolist() == [n for n in range(updates) for _ in range(BATCH)]
        assert log["step"].tolist() == list(range(updates))
        assert set(rows["only"]) == set(log["only"]) == {variant.only}
        assert np.isfinite(log[["structure_loss", "structure_entropy"]]).all(None)
        assert log["prompt_loss"].notna().all() == (variant.kind == "hierarchy")
        kinds = set(rows["group"])
        assert kinds == {variant.only} if variant.only else len(kinds) >= 4
        asked = {rows["prompt"][at : at + GROUP].nunique() for at in range(0, len(rows), GROUP)}
        assert asked == {1} if variant.grouped else max(asked) > (1 if variant.only else 2)
    assert len(results.rollouts) == (UPDATES * len(VARIANTS) + len(ALONE)) * BATCH


def test_refinements_tell_what_they_started_from_and_change_it_where_there_was_something_to_learn(
    results, runs
):
    told = results.refined.set_index(["method", "how"])
    assert set(told.index) == {
        ("arc", "sft"),
        ("arc", "dpo"),
        *((variant.name, "sft") for variant in ALONE),
    }
    for variant in (ARC, *ALONE):
        rows, about = of(results.rollouts, variant.name), told.loc[(variant.name, "sft")]
        paid = rows["reward"].astype(np.float32)
        elite = rows[rows["correct"].eq(1) & (paid >= paid.quantile(0.7))]
        assert about["elite"] == len(elite)
        assert about["reward"] == pytest.approx(
            elite["reward"].mean() if len(elite) else 0.0, abs=1e-5
        )
        ends = ("_no_sft", "", "_dpo") if variant is ARC else ("_no_sft", "")
        folder = folders(runs)[f"{variant.name}/seed-0"]
        policies = {
            artifacts.sha256_file(folder / f"{variant.name}{end}.safetensors") for end in ends
        }
        assert len(policies) == (len(ends) if len(elite) else 1)
    assert told.loc[("arc", "sft"), "elite"] > 0 and told.loc[("arc", "dpo"), "pairs"] > 0


# Parts of it -------------------------------------------------------------------------------------------


def test_the_questions_of_the_test_asked_once_more_are_answered_as_in_the_test(
    results, elsewhere, runs, monkeypatch
):
    """By ARC's policies after SFT, which are not trained again, and agents that remember nothing."""
    monkeypatch.setattr(experiment, "work", refuse)
    items = [item for kind in NAMES for item in questions(kind, "test", ITEMS)]
    found = experiment.asked(settings(), items, elsewhere, runs)
    assert found["number"].tolist() == list(range(ASKED)) and set(found["seed"]) == {0}
    tested = of(results.tests[results.tests["model"] == "team"], "arc")
    told = [name for name in found if name not in ("number", "seed")]
    assert_frame_equal(found[told], tested[told])
    some = experiment.asked(settings(), items[3:5], elsewhere, runs)
    assert some["digest"].tolist() == found["digest"].tolist()[3:5] and some["number"].tolist() == [
        0,
        1,
    ]


# Fair play ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["searched", "tests", "rollouts"])
def test_masked_parts_appear_nowhere(results, name):
    """Workflows 0, 1 and 5 have no second agent, hence neither its tools nor its budget nor its prompt."""
    frame = getattr(results, name)
    single = frame["w"].isin([0, 1, 5])
    assert (single == frame["workflow"].isin(SINGLE)).all() and single.sum() > 20
    for column in ("tools2", "budget2"):
        assert frame.loc[single, column].eq(0).all() and frame.loc[~single, column].nunique() > 2
    second = frame["atoms"].str.split("|").str[1].str.strip()
    assert second[single].eq("").all() and (second[~single] != "").any()


def test_no_question_of_a_test_was_ever_learned_from_or_searched_on(results, jobs):
    assert {job.item.split for job in jobs} == {"train", "test"}
    told = {
        split: {job.item.id for job in jobs if job.item.split == split}
        for split in ("train", "test")
    }
    assert not told["train"] & told["test"]
    assert (
        set(results.tests["key"]) <= told["test"] and set(results.rollouts["key"]) <= told["train"]
    )
    searched = results.searched.groupby("split")["key"].agg(set)
    assert (
        searched["test"] == searched["again"] == told["test"] and searched["train"] <= told["train"]
    )


def test_questions_of_no_kind_are_taught_under_the_name_of_another():
    """Kinds share families: what is asked in one kind's test must be in no kind's training."""
    tested, learned = (
        [item for name in NAMES for item in questions(name, split, n)]
        for split, n in (("test", 8), ("train", 12))
    )
    assert len(tested) > 5 * len(KINDS) and not {item.id for item in tested} & {
        item.id for item in learned
    }
    assert not {item.prompt for item in tested} & {item.prompt for item in learned}


def test_tables_can_be_played_again_one_episode_at_a_time(results, runs, place):
    """What stands in them hangs on question, configuration and draw, and not on who else was playing."""
    policy = experiment.published(runs / "policy", place)
    items = place.items("test", ITEMS)
    chosen = policy.decide(torch.from_numpy(place.states(items))).configurations
    jobs = [
        ConfiguredQuestion(item, one, experiment.TEST_DRAW)
        for item, one in zip(items, chosen, strict=True)
    ]
    again = pd.concat([place.play("team", [job]) for job in jobs], ignore_index=True)
    told = results.tests[results.tests["model"] == "team"]
    assert_frame_equal(of(told, "arc")[list(again)], again, check_exact=True, check_dtype=False)


def answered(asked: common.Asked) -> Reply:
    """Attempts differ in what they say and cost; in this order 0.1 + 0.2 + 0.3 is more than in the other."""
    text = f"<think> {asked.key % 3} </think> <answer> {asked.key % 3} </answer>"
    return common.make_turn(text, 1, 1 + asked.key % 3)


@pytest.mark.parametrize("workflow", ["voting", "sectioning"])
def test_who_of_several_is_ready_first_changes_no_outcome(workflow, loop):
    """What a lab model said before it says at once, so that in a training that goes on others are ready first than in
    one that nobody stopped: sums of dollars, and what one agent left behind another, are to be the same."""
    job = ConfiguredQuestion(
        common.CHAIN, Configuration((WORKFLOWS.index(workflow), 1, 0, 2, 0, 2))
    )

    def outcome(first: int) -> ConfiguredAnswer:
        def wait(asked: common.Asked) -> float:
            return 0.001 + 0.02 * ((asked.key + 2 * len(asked.tools) - first) % 3)

        speaker = common.Voice(answered, prices=(0.0, 0.1), wait=wait)
        return System(speaker, common.toolbox(), (90, 95, 99), {}, loop).run([job])[0]

    assert outcome(0) == outcome(1) == outcome(2)


# Again --------------------------------------------------------------------------------------------


def test_what_choosing_could_win_is_asked_in_two_tries_of_the_same_questions(models, tmp_path):
    told = experiment.choices(settings(), 1, models, tmp_path)
    assert (
        set(told["split"]) == {"dev", "test"}
        and set(told["sample"]) == {0, 1}
        and told["method"].nunique() == 12
    )
    dev, test = (told[told["split"] == split] for split in ("dev", "test"))
    assert (
        stats.headroom(dev, test, "correct")["num_items"][0] == test["item"].nunique() == len(KINDS)
    )


def test_what_was_done_is_not_done_again(results, models, runs, monkeypatch):
    monkeypatch.setattr(experiment, "work", refuse)
    monkeypatch.setattr(System, "run", refuse)
    before = {path: (runs / path).read_bytes() for path in paths(runs)}
    same(experiment.run(settings(), models=models, runs=runs), results)
    assert {path: (runs / path).read_bytes() for path in paths(runs)} == before


def test_everything_done_again_elsewhere_is_the_same_to_the_byte(
    results, elsewhere, runs, tmp_path
):
    """With all that is searched and two trainings; of others it is seen below, where they are killed."""
    torch.rand(3), np.random.rand(3)  # whatever was drawn before
    compared = [ARC, ALONE[0]]
    experiment.run(settings(), compared, elsewhere, tmp_path)
    keys = [job.key for job in experiment.make_jobs(settings(), compared, elsewhere)]
    kept = [path for path in paths(runs) if path.parts[0] in (*keys, "policy")]
    assert paths(tmp_path) == kept
    ends = Counter(path.suffix for path in kept)
    assert (
        ends[".parquet"] == experiment.PARTS + 3 * len(compared) + 4
        and ends[".safetensors"] == 3 + 2 + 1
    )
    assert Path("policy/arc.safetensors") in kept and Path("policy/policy.json") in kept
    for path in kept:
        assert artifacts.sha256_file(tmp_path / path) == artifacts.sha256_file(runs / path), path


def beginning(runs: Path, other: Path) -> None:
    """Everything but the trainings, so that only they are done again."""
    for folder in folders(runs).values():
        if artifacts.read_json(folder / "job.json")["settings"]["job"] != experiment.TRAINING:
            (other / folder.name).symlink_to(folder)


@contextmanager
def killed(what: str):
    """A training's end: while a batch of its third update is played, behind that before its rollouts are saved, after
    the first one, or when it comes to its tests."""
    where, name, when = {
        "in an update": (System, "run", lambda number, jobs: number == 3),
        "between savings": (sweep.JobProgress, "__call__", lambda number, done: number == 3),
        "before any saving": (sweep.JobProgress, "__call__", lambda number, done: number == 1),
        "in its tests": (System, "run", lambda number, jobs: jobs[0].item.split == "test"),
    }[what]
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(where, name, dying(getattr(where, name), when))
        yield


@pytest.mark.parametrize(
    ("variant", "what", "saved"),
    [
        ("arc", "in an update", SAVE),
        ("arc", "in its tests", UPDATES),
        ("bandit", "before any saving", 0),
    ],
)
def test_a_training_that_was_killed_goes_on_to_the_same_bytes_and_asks_nothing_twice(
    variant, what, saved, results, elsewhere, runs, tmp_path, monkeypatch
):
    beginning(runs, tmp_path)
    with killed(what):
        experiment.run(settings(), [NAMED[variant]], elsewhere, tmp_path)
    jobs_by_label = {
        job.label: job for job in experiment.make_jobs(settings(), [NAMED[variant]], elsewhere)
    }
    training_job = jobs_by_label[f"{variant}/seed-0"]
    folder, whole = training_job.folder(tmp_path), training_job.folder(runs)
    assert not (folder / "done.json").exists() and (folder / "rollouts.parquet").exists() == (
        saved > 0
    )
    jobs: list[ConfiguredQuestion] = []
    monkeypatch.setattr(System, "run", listened(jobs))
    experiment.run(settings(), [NAMED[variant]], elsewhere, tmp_path)
    assert sum(job.item.split == "train" for job in jobs) == (UPDATES - saved) * BATCH
    assert paths(folder) == paths(whole)
    for path in paths(folder):
        assert (folder / path).read_bytes() == (whole / path).read_bytes(), path


def test_broken_rollouts_of_a_killed_training_are_named_with_a_remedy(
    results, models, runs, tmp_path
):
    beginning(runs, tmp_path)
    with killed("between savings"):
        experiment.run(settings(), [ARC], models, tmp_path)
    path = folders(tmp_path)["arc/seed-0"] / "rollouts.parquet"
    path.write_bytes(path.read_bytes()[:-50])
    with pytest.raises(ValueError, match="rollouts.parquet .*; delete it and run again"):
        experiment.run(settings(), [ARC], models, tmp_path)


def test_another_seed_trains_and_draws_differently_and_leaves_the_first_alone(
    results, models, runs
):
    both = experiment.run(settings(seeds=2), [NAMED["bandit"]], models, runs)
    assert_frame_equal(
        of(both.rollouts, "bandit"), of(results.rollouts, "bandit"), check_exact=True
    )
    assert (
        of(both.tests, "random")["digest"].tolist()
        == of(results.tests, "random")["digest"].tolist()
    )
    for frame, variant, n in (
        (both.rollouts, "bandit", UPDATES * BATCH),
        (both.tests, "random", ASKED),
    ):
        one, two = (of(frame, variant, seed) for seed in range(2))
        assert len(one) == len(two) == n and one["digest"].tolist() != two["digest"].tolist()
    assert (
        of(both.rollouts, "bandit")["prompt"].tolist()
        != of(both.rollouts, "bandit", 1)["prompt"].tolist()
    )


# Keys ---------------------------------------------------------------------------------------------


@pytest.fixture
def keys(models):
    """Keys of all jobs by label, under changed parameters."""

    def keys_by_label(compared=EVERYBODY, where=models, **changes) -> dict[str, str]:
        return {
            job.label: job.key for job in experiment.make_jobs(settings(**changes), compared, where)
        }

    return keys_by_label


def changed(before: dict[str, str], after: dict[str, str]) -> set[str]:
    """Labels of the jobs that have another key."""
    return {label for label in before if before[label] != after[label]}


def test_what_changes_no_result_makes_no_new_jobs(keys, tmp_path):
    same_atoms = tmp_path / "moved.yaml"
    shutil.copy(LIBRARY, same_atoms)
    before = keys()
    assert len(before) == experiment.PARTS + len(EVERYBODY) + 3
    for change in (
        {"jobs": 3},
        {"jobs": None},
        {"save_every": 5},
        {"atoms": str(same_atoms)},
        {"encoders": ["hashing"]},  # of a table that is made afterwards
        {"llm": {"models": {"team": {"timeout": 5.0, "retries": 1, "concurrency": 3}}}},
        {"llm": {"max_usd": 1.0, "cassette": "replay"}},
        {"llm": {"models": {"nano": {"max_tokens": 5}}}},  # no agent here
    ):
        assert keys(**change) == before, change
    assert before.items() >= keys([ARC]).items()


def test_other_atoms_make_new_jobs(keys, tmp_path):
    other_atoms = tmp_path / "atoms.yaml"
    other_atoms.write_text(LIBRARY.read_text() + "# one remark more\n")
    before = keys(SOME)
    assert changed(before, keys(SOME, atoms=str(other_atoms))) == set(before)


OTHERWISE = {
    "model": "control",
    "larger": "large",
    "prompted": "scripted-small",
    "encoder": "lab:lab-team",
}
PARTS = {f"searched/{part}" for part in range(experiment.PARTS)}
SOME = [ARC, NAMED["bandit"], NAMED["grpo"], NAMED["only-hops"]]
TRAINED = {f"{variant.name}/seed-0" for variant in SOME}
WHERE = {  # jobs that depend on a setting; all on every other
    "hosted_tiers": set(),  # of other agents than these, which are lab models
    "larger": {"arc/seed-0"},
    "prompted": {"prompted"},
    "encoder": TRAINED,
    "train_items": TRAINED,
    "draws": TRAINED,
    "search_items": {*PARTS, "greedy"},
    "grid": {*PARTS, "prompted"},
    "sampled": PARTS,
    "ppo": TRAINED - {"grpo/seed-0"},
    "grpo": {"grpo/seed-0"},
    "episodes": TRAINED - {"only-hops/seed-0"},
    "alone_episodes": {"only-hops/seed-0"},
    "sft": {"arc/seed-0", "only-hops/seed-0"},
    "dpo": {"arc/seed-0"},
}
ELSEWHERE = ("atoms", "jobs", "seeds", "save_every", "encoders", "glass")


def otherwise(name: str, value) -> list:
    """Other values of a setting; of a section those with one leaf changed each."""
    if isinstance(value, dict):
        return [{leaf: other} for leaf, old in value.items() for other in otherwise(leaf, old)]
    if isinstance(value, list):
        return [[*value[:-1], value[-1] + 1]]
    if isinstance(value, str):
        return [OTHERWISE[name]]
    return [
        2 * value if isinstance(value, int) else 0.75 * value + 0.001
    ]  # a batch holds whole groups


@pytest.mark.parametrize(
    "name", [name for name in ConfigurationSettings.model_fields if name not in ELSEWHERE]
)
def test_a_setting_makes_new_jobs_where_it_changes_a_result(name, keys):
    before = keys(SOME)
    for value in otherwise(name, settings().configuration.model_dump()[name]):
        after = keys(SOME, **{name: value})
        assert changed(before, after) == WHERE.get(name, set(before)), value


def test_an_arm_more_changes_no_other_nor_does_what_tables_call_it(keys):
    assert keys([ARC]).items() <= keys(SOME).items()
    assert keys([dataclasses.replace(ARC, label="otherwise")]) == keys([ARC])


EPISODES = (
    "lib.experiment.seeds",
    "lib.tasks",
    "lib.tools",
    "lib.language_models.tokenizer",
    "lib.language_models.chat_template",
    "lib.language_models.kv_cache_forward",
    "lib.language_models.generation",
    "lib.language_models.lab_model",
    "lib.language_models.serving.chat_completions",
    "lib.language_models.training.agent_traces",
    "lib.language_models.training.team_traces",
    "lib.agent_configuration.action_space",
    "lib.agent_configuration.questions",
    "lib.agent_configuration.atoms",
    "lib.agent_configuration.agent_models",
    "lib.agent_configuration.agent_team",
    "lib.agent_configuration.workflows",
    "lib.agent_configuration.agent_system",
    "lib.agent_configuration.rewards",
    "lib.agent_configuration.experiment",
)
LEARNING = (
    "lib.rl.losses",
    "lib.agent_configuration.variants",
    "lib.agent_configuration.encoders",
    "lib.agent_configuration.policies",
    "lib.agent_configuration.policy_updates",
    "lib.agent_configuration.training",
)
JOBS_BY_MODULE = dict.fromkeys(EPISODES) | dict.fromkeys(LEARNING, TRAINED)  # None is all jobs
JOBS_BY_MODULE |= {
    "lib.agent_configuration.search": {*PARTS, "greedy", "prompted"},
    "lib.agent_configuration.error_taxonomy": {*TRAINED, "random/seed-0", "greedy", "prompted"},
    "lib.agent_configuration.prompted_baseline": {"prompted"},
    "lib.llm.scripted": {"prompted"},
    "lib.agent_configuration.synthetic_benchmark": set(),
    "lib.agent_configuration.batched_policies": set(),
}


@pytest.mark.parametrize("module", JOBS_BY_MODULE)
def test_another_version_of_the_code_makes_new_jobs_where_it_decides_a_result(
    module, keys, monkeypatch
):
    before = keys(SOME)
    monkeypatch.setattr(f"{module}.VERSION", 99)
    jobs = JOBS_BY_MODULE[module]
    assert changed(before, keys(SOME)) == (set(before) if jobs is None else jobs)


@pytest.mark.parametrize(
    "change",
    [{"max_tokens": 50}, {"price_in": 1.0, "price_out": 1.0}],
    ids=lambda told: next(iter(told)),
)
@pytest.mark.parametrize(
    ("name", "where"),
    [("team", None), ("team-large", {"arc/seed-0"}), ("scripted-large", {"prompted"})],
)
def test_another_model_behind_the_same_name_makes_new_jobs(name, where, change, keys):
    before = keys()
    assert changed(before, keys(llm={"models": {name: change}})) == (where or set(before))


@pytest.mark.parametrize(
    ("name", "stale"), [("lab-team", None), ("lab-team-large", {"arc/seed-0"}), ("lab-nano", set())]
)
@pytest.mark.parametrize("file", ["model.safetensors", "card.json"])
def test_other_weights_or_cards_of_agents_make_new_jobs(name, stale, file, keys, models, tmp_path):
    shutil.copytree(models, tmp_path, dirs_exist_ok=True)
    before = keys()
    assert keys(where=tmp_path) == before
    path = tmp_path / name / file
    path.write_bytes(path.read_bytes() + b" ")
    assert changed(before, keys(where=tmp_path)) == (set(before) if stale is None else stale)


# Before anything starts ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        ({"atoms": "data/atoms/none.yaml"}, ParamsError, "none.yaml"),
        ({"encoder": "magic"}, EncoderError, "magic"),
        ({"encoder": "lab:lab-nobody"}, ModelError, "lab-nobody"),
        ({}, ModelError, "make repro"),
    ],
    ids=["atoms", "encoder", "its model", "all models"],
)
def test_what_cannot_be_read_is_named(change, error, told, models, tmp_path):
    with pytest.raises(error, match=told):
        experiment.run(
            settings(**change), models=models if change else tmp_path, runs=tmp_path / "runs"
        )
    assert not (tmp_path / "runs").exists()


# The published policy -----------------------------------------------------------------------------


def test_the_published_policy_is_arc_of_the_first_seed(results, runs, place):
    folder = folders(runs)["arc/seed-0"]
    kept, own = (
        artifacts.read_tensors(path / "arc.safetensors") for path in (folder, runs / "policy")
    )
    assert kept.keys() == own.keys() and all(np.array_equal(kept[name], own[name]) for name in own)
    arrays = experiment.published(runs / "policy", place).arrays()
    assert arrays.keys() == own.keys() and all(
        np.array_equal(arrays[name], own[name]) for name in own
    )


@pytest.mark.parametrize("name", ["encoder", "atoms"])
def test_a_policy_of_another_encoder_or_another_library_of_atoms_is_refused_with_the_remedy(
    name, results, models, runs, tmp_path
):
    path = tmp_path / "atoms.yaml"
    path.write_text(LIBRARY.read_text() + "# one remark more\n")
    change = {"encoder": "lab:lab-team"} if name == "encoder" else {"atoms": str(path)}
    other_settings = settings(**change)
    context = experiment.make_context(other_settings, models, runs)
    with (
        experiment.opened_place(context, other_settings.configuration) as other,
        pytest.raises(ParamsError, match=f"another {name}; run `make repro`"),
    ):
        experiment.published(runs / "policy", other)


def test_errors_have_a_kind_and_right_answers_none(results):
    frame = results.tests
    assert (frame["correct"].eq(1) == frame["error"].eq("")).all()
    assert set(frame["error"]) <= {"", *error_taxonomy.KINDS} and frame["error"].nunique() > 2


def test_trainings_alone_have_the_tests_of_the_whole_study(results, models, runs, monkeypatch):
    monkeypatch.setattr(experiment, "work", refuse)
    found = experiment.trained(settings(), [ARC, NAMED["grpo"]], models, runs)
    assert set(found["method"]) == {"arc_no_sft", "arc", "arc_dpo", "grpo"}
    for variant in set(found["method"]):
        assert_frame_equal(of(found, variant), of(results.tests, variant)[list(found)])


def test_everybody_is_tested_under_the_same_dice_which_no_training_threw(results, jobs):
    """But for what was searched: that has a second try."""
    trained, tested = (
        Counter(job.draw for job in jobs if job.item.split == split) for split in ("train", "test")
    )
    assert set(trained) == set(range(settings().configuration.draws)) and not set(trained) & set(
        tested
    )
    assert sorted(tested.values()) == [CANDIDATES * ASKED, CANDIDATES * ASKED + len(results.tests)]


def test_a_study_without_arc_publishes_nothing(results, models, runs, tmp_path):
    beginning(runs, tmp_path)
    folder = folders(runs)["only-chain/seed-0"]
    (tmp_path / folder.name).symlink_to(folder)
    experiment.run(settings(), [NAMED["only-chain"]], models, tmp_path)
    assert not (tmp_path / "policy").exists()


def test_the_plan_of_costs_bounds_the_questions_that_were_worked_on(results, jobs):
    configuration = settings().configuration
    num_atoms = len(library(config.ROOT / configuration.atoms))
    planned = sum(cost_plan.count_training_questions(configuration, EVERYBODY))
    planned += cost_plan.count_searched_questions(configuration, num_atoms)
    assert len(jobs) <= planned < 3 * len(jobs)
