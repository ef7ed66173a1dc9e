"""The experiment at its smallest: jobs that are done once, trainings that go on, tables with what was promised."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from lib import config, stats, tools
from lib.config import ParamsError
from lib.experiment import artifacts, seeds
from lib.language_models import checkpoints
from lib.language_models import tokenizer as lab
from lib.language_models.training import muon, pretraining, training_data
from lib.rl import (
    budget_reward,
    call_protocol,
    expert_pool,
    generators,
    losses,
    token_ppo,
    transcript,
)
from lib.rl import rollout as interleaved_episodes
from lib.rl import sft_warmup as corl_warm
from lib.tasks import synthesis
from lib.tool_orchestration import (
    episode_specs,
    experiment,
    price_configurations,
    prompted_baseline,
    rewards,
    rule_baselines,
    single_tool_baselines,
    synthetic_benchmark,
    task_solvers,
    test_sets,
    tool_environment,
    tool_menu,
    variants,
)
from lib.tool_orchestration import sft_warmup as warm
from lib.tool_orchestration.tool_environment import OwnTokenPrice
from lib.tool_orchestration.tool_menu import list_tools
from lib.tool_orchestration.variants import LIST_PRICES, NAMED
from tests.budgeted_routing import small_systems
from tests.budgeted_routing.job_helpers import (
    copy_one_model,
    find_job_folders,
    list_keys_by_label,
    resume_killed_training,
)
from tests.language_models import tiny
from tests.studies import of, refuse, same
from tests.tool_orchestration import common
from tests.tool_orchestration.common import (
    NAMES,
    REACHES,
    TOOLS,
    answer,
    at_work,
    call,
    given,
    item,
    offers,
)

PAPER, CORL = NAMED["paper"], NAMED["corl"]
COMPARED = [PAPER, CORL]
UPDATES, GROUPS, ROLLOUTS, ITEMS = 3, 6, 6, 12
SAME = ["group", "difficulty", "offered", "liked", "p_cost"]  # for all who are asked the same
NOBODY = ("lab-passage", "lab-big")  # asked by no tool here
WORDS = {
    "lab-control": "reasoner",
    "lab-facts": "answerer",
}  # the orchestrator's, where it is not the model's name


def settings(llm=None, **changes) -> config.Params:
    """Three updates, steps that are long enough to matter, one process, models that are brief."""
    told = (llm or {}).get("models", {})
    brief = {
        name: {"max_tokens": 8} | told.get(name, {})
        for name in (*TOOLS.models.values(), TOOLS.agent)
    }
    base = {
        "seeds": 1,
        "jobs": 1,
        "groups": GROUPS,
        "rollouts": ROLLOUTS,
        "updates": UPDATES,
        "test_items": ITEMS,
        "outcome_items": 12,
        "save_every": 2,
        "side": 2,
        "turn_tokens": 24,
        "rounds": 3,
        "tries": 2,
        "offices": 8,
        "least_deviation": 0.01,
        "learn": {"learning_rate": 5e-3, "minibatch": 8, "warmup": 1, "epochs": 1},
        "warm": {"items": 64, "steps": 1, "batch": 16},
    }
    return small_systems.change_params(
        llm=(llm or {}) | {"models": told | brief}, tools=base | changes
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of lab models: tools that write at random, and a base that has half learned the protocol."""
    root = tmp_path_factory.mktemp("models")
    asked = ("lab-nano", "lab-mini", "lab-large", "lab-control", "lab-facts", "lab-agent", *NOBODY)
    for i, name in enumerate((*asked, "lab-team", "lab-team-large")):  # the last two by no one here
        place = checkpoints.save(tiny.model(i, hidden=16, intermediate=16), root / name)
        told = common.card(REACHES.get(WORDS.get(name, name), {}), 0.0002 * 2**i, 4000.0 / (i + 1))
        artifacts.write_json(place / "card.json", told)
    place = checkpoints.save(common.schooled(), root / TOOLS.base)
    artifacts.write_json(place / "card.json", common.card({}, 0.0002, 4000.0))
    return root


@pytest.fixture(scope="module")
def results(models, runs):
    return experiment.run(settings(), COMPARED, models, runs)


def test_the_start_and_the_papers_arm_sit_all_exams_and_every_arm_the_main_ones(results):
    frame = results.episodes
    for method in (experiment.START, "paper"):
        assert set(of(frame, method)["style"]) == set(test_sets.ALL)
    assert set(of(frame, "corl")["style"]) == set(test_sets.MAIN)
    for _, part in frame.groupby(["method", "seed", "style"]):
        assert part["item"].tolist() == list(range(len(part)))
    own = frame[
        frame["method"].isin(["paper", "corl", experiment.START]) & (frame["style"] == "test")
    ]
    assert own.groupby("method").size().nunique() == 1 and (
        own.groupby("item")[SAME].nunique() == 1
    ).all(None)


def test_rollouts_of_every_update_stand_in_groups_of_one_assignment_each(results):
    for method in COMPARED:
        rows, log = of(results.rollouts, method.name), of(results.learning, method.name)
        assert rows["step"].tolist() == [
            n for n in range(UPDATES) for _ in range(GROUPS * ROLLOUTS)
        ]
        assert rows["rollout_group"].tolist() == [
            g for _ in range(UPDATES) for g in range(GROUPS) for _ in range(ROLLOUTS)
        ]
        assert (rows.groupby(["step", "rollout_group"])[SAME].nunique() == 1).all(None)
        assert log["step"].tolist() == [1, 2, 3]
        left = (
            log["kept"]
            if method is CORL
            else log[["kept", "malformed", "unanswered", "agreeing"]].sum(axis=1)
        )
        assert left.eq(GROUPS * ROLLOUTS).all()
    both = [of(results.rollouts, a.name).query("step == 0") for a in COMPARED]
    assert (
        both[0]["offered"].tolist() == both[1]["offered"].tolist()
    )  # the same start on the same assignments
    assert both[0]["chosen"].tolist() == both[1]["chosen"].tolist()


def test_rewards_in_the_tables_are_those_of_their_arm(results):
    rows = of(results.rollouts, "paper")
    for _, part in rows.groupby("step"):
        m, p = (np.stack(part[column]) for column in ("m", "p"))
        told = rewards.compute_preference_rewards(
            rewards.normalize_within_groups(m, part["rollout_group"].tolist()), p, m[:, -3]
        )
        assert part["reward"].tolist() == pytest.approx(told.tolist())
    rows = of(results.rollouts, "corl")
    assert (
        rows["reward"].tolist() == (rows["correct"] * (rows["cost_usd"] <= results.budget)).tolist()
    )


def test_no_unseen_tool_is_called_before_its_exam(results):
    unseen = set(TOOLS.unseen)
    assert not any(unseen & set(menu.split()) for menu in results.rollouts["offered"])
    assert not set(results.tried["tool"]) & unseen
    met = results.episodes.groupby("style")["offered"].apply(
        lambda menus: any(unseen & set(m.split()) for m in menus)
    )
    assert {name for name, found in met.items() if found} == {"unseen_tools"}


def test_every_seen_tool_was_tried_on_questions_that_it_can_be_asked(results):
    table = results.tried
    assert set(table["split"]) == {"train", "test"} and "office" not in set(table["group"])
    for row in table.itertuples():
        assert (
            row.tool in row.offered.split()
            and row.cost_usd > 0
            and row.seconds > 0
            and row.calls >= 1
        )
    functions = table[table["tool"].isin(["calculator", "python", "lookup"])]
    assert functions["correct"].eq(1).all()
    test = of(results.episodes, "paper").query("style == 'test'").set_index("item")
    for row in table[table["split"] == "test"].itertuples():
        assert (test.loc[row.item, "group"], test.loc[row.item, "offered"]) == (
            row.group,
            row.offered,
        )


def test_what_choosing_could_win_is_asked_of_every_tool_in_two_tries(models, tmp_path):
    told = experiment.try_all_tools(settings(), 12, models, tmp_path)
    assert set(told["split"]) == {"dev", "test"} and set(told["sample"]) == {0, 1}
    assert list(told["method"].unique()) == list(list_tools(settings().tools))
    dev, test = (told[told["split"] == split] for split in ("dev", "test"))
    assert stats.headroom(dev, test, "correct")["num_items"][0] == test["item"].nunique()
    hops = test.query("method == 'lookup'").groupby("item")["correct"].mean()
    assert set(hops) == {0.0, 1.0}, "a lookup has facts by heart and does no chains"


def test_what_was_done_is_not_done_again(results, models, runs, monkeypatch):
    monkeypatch.setattr(experiment, "train_and_test", refuse)
    monkeypatch.setattr(experiment, "prepare", refuse)
    same(experiment.run(settings(), COMPARED, models, runs), results)


def test_everything_done_again_elsewhere_is_the_same_to_the_byte(results, models, runs, tmp_path):
    same(experiment.run(settings(), COMPARED, models, tmp_path), results)
    kept = [
        path.relative_to(runs)
        for path in runs.rglob("*")
        if path.suffix in (".parquet", ".safetensors")
    ]
    kept += [path.relative_to(runs) for path in runs.rglob("offices.json")]
    assert len(kept) > 10
    for path in kept:
        assert (tmp_path / path).read_bytes() == (runs / path).read_bytes(), path


@pytest.mark.parametrize(
    ("method", "killed"),
    [
        (
            PAPER,
            (experiment.ToolWorkbench, "roll", 3),
        ),  # the last checkpoint is of the second update
        (CORL, (experiment.TokenPPO, "save", 2)),  # between the tables and the checkpoint
    ],
    ids=["roll", "save"],
)
def test_a_training_that_was_killed_goes_on_from_its_checkpoint_to_the_same_tables(
    method, killed, results, models, runs, tmp_path, monkeypatch
):
    assert resume_killed_training(
        experiment, settings(), method, models, (results, runs), killed, tmp_path, monkeypatch
    ) == [2]


FIRST = {experiment.START, "tools"}
START, ALL = FIRST | {"tests"}, FIRST | {"tests", "paper/seed-0", "corl/seed-0"}


def named(where, compared=COMPARED, own=None, **changes) -> dict[str, str]:
    return list_keys_by_label(experiment, own or settings(**changes), compared, where)


def unchanged(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys()
    return {label for label in before if before[label] == after[label]}


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"jobs": 3}, ALL),
        ({"jobs": None}, ALL),
        ({"save_every": 1}, ALL),
        ({"llm": {"models": {"nano": {"timeout": 5.0, "retries": 1, "concurrency": 3}}}}, ALL),
        ({"llm": {"max_usd": 1.0, "cassette": "replay"}}, ALL),
        ({"synthetic": TOOLS.synthetic.model_dump() | {"seeds": 9}}, ALL),
        ({"llm": {"models": {"big": {"max_tokens": 5}}}}, ALL),  # no tool
        ({"price_configurations": {"number": 3, "spread": 2.0, "seed": 1}}, ALL),
        ({"dialogue": {"user": "scripted", "turns": 3}}, ALL),
        ({"description_writer": "large", "query_writer": "large", "code_writer": "large"}, ALL),
        ({"solvers": ["agent", "mini"]}, {"tools"}),
        ({"side": 3}, ALL - {"tests", "paper/seed-0"}),  # who sit the exam of the simplex
        (
            {"unseen_prices": common.TRAINING},
            ALL - {"tests", "paper/seed-0"},
        ),  # and that at unseen prices
        ({"agent": "mini"}, ALL - {"tools"}),  # who alone asks it
        ({"outcome_items": 13}, ALL - {"tools"}),
        ({"updates": 4}, START),
        ({"groups": 5}, START),
        ({"outages": 0.5}, START),
        ({"least_deviation": 0.2}, START),
        ({"learn": TOOLS.learn.model_dump() | {"kl": 0.5}}, START),
        ({"test_items": 13}, {experiment.START}),
        ({"test_temperature": 0.5}, {experiment.START}),
        (
            {"warm": {"items": 64, "steps": 2, "batch": 16, "preference_bias": 0.5, "seed": 0}},
            {"tools"},
        ),
        ({"turn_tokens": 23}, {"tools"}),
        ({"temperature": 0.5}, {"tools"}),
        ({"offices": 9}, {"tools"}),
        ({"tries": 3}, {"tools"}),
        ({"budget": 0.4}, {"tools"}),
        ({"spread": 2.0}, set()),
        ({"rounds": 4}, set()),
        ({"model_temperature": 0.5}, set()),
        ({"prices": common.UNSEEN}, set()),
        ({"llm": {"models": {"nano": {"max_tokens": 9}}}}, set()),
    ],
    ids=lambda told: "-".join(told) if isinstance(told, dict) else "",
)
def test_a_setting_changes_the_keys_of_the_jobs_that_read_it_and_of_no_others(change, kept, models):
    before, after = named(models), named(models, **change)
    assert before.keys() == ALL
    assert unchanged(before, after) == kept


def test_tools_in_another_order_make_all_keys_new(models):
    """The order is that of preference vectors."""
    own = settings()
    turned = own.tools.model_copy(update={"models": dict(reversed(own.tools.models.items()))})
    assert (
        unchanged(named(models), named(models, own=own.model_copy(update={"tools": turned})))
        == set()
    )


@pytest.mark.parametrize(
    ("change", "kept"), [({"adamw": 0.5}, {"tools"}), ({"steps": 9, "items": 99}, ALL)]
)
def test_of_the_lab_only_the_optimisers_of_the_base_are_in_a_key(change, kept, models):
    own = settings()
    bases = own.lab.models | {TOOLS.base: own.lab.models[TOOLS.base].model_copy(update=change)}
    other = own.model_copy(update={"lab": own.lab.model_copy(update={"models": bases})})
    assert unchanged(named(models), named(models, own=other)) == kept


@pytest.mark.parametrize(
    ("module", "kept"),
    [
        (seeds, set()),
        (tools, set()),
        (synthesis, set()),
        (expert_pool, set()),
        (call_protocol, set()),
        (interleaved_episodes, set()),
        (tool_menu, set()),
        (episode_specs, set()),
        (tool_environment, set()),
        (single_tool_baselines, set()),
        (experiment, set()),
        (generators, {"tools"}),
        (pretraining, {"tools"}),
        (muon, {"tools"}),
        (training_data, {"tools"}),
        (corl_warm, {"tools"}),
        (warm, {"tools"}),
        (test_sets, {experiment.START}),
        (rewards, {experiment.START}),
        (variants, {experiment.START}),
        (prompted_baseline, set()),  # prompts the solvers of office tasks, too
        (task_solvers, {"tools"}),
        (price_configurations, FIRST),
        (transcript, FIRST),
        (token_ppo, START),
        (losses, START),
        (budget_reward, ALL - {"corl/seed-0"}),  # who alone is paid by it
        (synthetic_benchmark, ALL),
        (rule_baselines, ALL),  # which every lesson computes anew
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_raised_version_makes_the_jobs_new_whose_numbers_it_decides(
    module, kept, models, monkeypatch
):
    before = named(models)
    monkeypatch.setattr(module, "VERSION", module.VERSION + 1)
    assert unchanged(before, named(models)) == kept


def test_more_arms_or_seeds_and_what_tables_call_an_arm_change_no_key(models):
    before, more = named(models), named(models, seeds=2)
    assert before.items() <= more.items() and len(more) == len(before) + 2
    assert (
        named(models, [PAPER]).items()
        <= before.items()
        <= named(models, [*COMPARED, LIST_PRICES]).items()
    )
    assert (
        named(models, [dataclasses.replace(method, label="otherwise") for method in COMPARED])
        == before
    )


@pytest.mark.parametrize(
    ("name", "kept"), [("lab-mini", set()), (TOOLS.base, {"tools"}), ("lab-agent", ALL - {"tools"})]
)
def test_other_weights_make_new_keys_where_they_are_used(models, tmp_path, name, kept):
    weights = copy_one_model(models, tmp_path, name) / "model.safetensors"
    assert named(tmp_path) == named(models)
    weights.write_bytes(weights.read_bytes() + b" ")
    assert unchanged(named(models), named(tmp_path)) == kept


def test_an_arm_with_a_spread_of_its_own_is_trained_at_it():
    def asked(method):
        run = SimpleNamespace(settings=settings().tools, workbench=SimpleNamespace(offers=offers()))
        drawn = experiment.OrchestratorRun._draw_assignments(run, method, common.offices(), 7)
        return [offer for assignment in drawn for offer in assignment.menu.offers]

    listed, lot = asked(LIST_PRICES), asked(PAPER)
    assert listed and all(offer == offers()[offer.name] for offer in listed)
    assert not any(offer == offers()[offer.name] for offer in lot)
    assert [offer.name for offer in listed] == [offer.name for offer in lot]  # the same menus


def test_rows_by_hand():
    work, own = item("big", 1), OwnTokenPrice(1e-8, 0.001)
    turns = [
        call("calculator", "1 + 1"),
        "<think>",
        call("lab-mini", "1 = ?"),
        answer(work.reference),
    ]
    assigned = given(
        work,
        "calculator",
        "lab-mini",
        preference=common.UserPreference(1.0, 0.5, 0.25, ("lab-mini",)),
    )
    with at_work() as made:
        episode = common.played(made, assigned, *turns, own=own)
        (row,) = variants.make_episode_rows([episode], NAMES, own, lab.decode).to_dict("records")
    assert (row["item"], row["group"], row["difficulty"], row["correct"], row["answered"]) == (
        0,
        "big",
        1,
        1.0,
        1.0,
    )
    assert (row["calls"], row["chosen"], row["malformed"]) == (2, "calculator lab-mini", 1)
    mine = 1e-8 * len(episode.ids)
    spent = offers()["calculator"].cost_usd + 1e-5 * offers()["lab-mini"].cost_usd
    assert row["own_cost_usd"] == pytest.approx(mine) and row["cost_usd"] == pytest.approx(
        spent + mine
    )
    assert row["seconds"] == episode.seconds and row["offered"] == "calculator lab-mini"
    assert (row["p_accuracy"], row["p_cost"], row["p_latency"]) == (1.0, 0.5, 0.25)
    assert (row["liked"], row["confidential"], row["first"]) == ("lab-mini", False, "calculator")
    m, p = row["m"], row["p"]
    assert m[-3:] == [1.0, -row["cost_usd"], -row["seconds"]] and sum(m[:-3]) == 2
    assert p == assigned.preference.vector(NAMES).tolist()
    parts = json.loads(row["spoken"])
    assert [part[1] for part in parts[1::2]] == turns
    assert [part[0] for part in parts[2::2]] == ["calculator", "nobody", "lab-mini"]
    assert parts[4][1] == f"<response> {call_protocol.ERROR_REPLY} </response>"


def test_the_papers_arm_moves_where_it_kept_rollouts_and_the_start_never(results, runs):
    """Three updates of a random model keep no rollout on some processors: then the arm stays the start.

    CoRL's arm is not asked: it keeps all rollouts, and equal rewards, which are usual here, teach it nothing.
    """
    (start_folder,) = find_job_folders(runs, experiment.START)
    (paper_folder,) = find_job_folders(runs, "paper/seed-0")
    start = small_systems.flatten_weights(checkpoints.load(start_folder / "model"))
    trained = small_systems.flatten_weights(checkpoints.load(paper_folder / "model"))
    assert torch.equal(trained, start) == (of(results.learning, "paper")["kept"].sum() == 0)
    assert not list(runs.glob("*/checkpoint*"))


def test_a_wrong_price_list_is_named_before_anything_starts(models, tmp_path):
    (tmp_path / "wrong.yaml").write_text("calls: {}\nmodels: {}\n")
    with pytest.raises(ParamsError, match="wrong.yaml"):
        experiment.run(
            settings(prices=str(tmp_path / "wrong.yaml")), COMPARED, models, tmp_path / "runs"
        )
    assert not (tmp_path / "runs").exists()
