"""The experiment at its smallest: jobs that are done once, trainings that go on, tables with what was promised."""

import dataclasses
import json

import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from lib import config, tasks
from lib.budgeted_routing import (
    baselines,
    budget_episodes,
    controller_job,
    experiment,
    expert_outcomes,
    synthetic_benchmark,
    variants,
)
from lib.budgeted_routing import jobs as jobs_module
from lib.budgeted_routing.budget_episodes import make_episode_rows, make_samples, roll_out_episodes
from lib.budgeted_routing.variants import VARIANTS_BY_NAME, make_variant
from lib.budgeted_routing.worlds import TWO_EXPERTS, select_world
from lib.config import ParamsError
from lib.experiment import artifacts, seeds, sweep
from lib.experiment.evaluation import TEST_SEED
from lib.experiment.run_context import RunContext
from lib.language_models import checkpoints
from lib.language_models import tokenizer as lab
from lib.language_models.checkpoints import ModelError
from lib.language_models.training import muon, pretraining, training_data
from lib.llm import scripted
from lib.llm.chat_model import Failure
from lib.rl import (
    budget_reward,
    call_protocol,
    expert_pool,
    generators,
    losses,
    sft_warmup,
    token_ppo,
    transcript,
)
from lib.rl import rollout as interleaved_episodes
from lib.rl.expert_pool import NUM_SAMPLES, ExpertReply
from lib.rl.generators import LabGenerator
from lib.tasks import rules
from tests.budgeted_routing import small_systems
from tests.budgeted_routing.job_helpers import (
    ENDPOINT_MODEL,
    copy_one_model,
    find_job_folders,
    list_keys_by_label,
    resume_killed_training,
)
from tests.budgeted_routing.small_systems import (
    EXPERTS,
    PRICES,
    ScriptedController,
    ScriptedExperts,
    draw_chains,
    make_budget_task,
    write_answer,
    write_call,
)
from tests.language_models import tiny
from tests.studies import of, refuse, same

CORL, HARD = VARIANTS_BY_NAME["corl"], VARIANTS_BY_NAME["hard"]
COMPARED = [CORL, HARD]
UPDATES, BATCH, ITEMS, SAVE = 4, 24, 12, 2  # some of so many are right by chance


def settings(llm=None, **routing) -> config.Params:
    """Four updates of a few episodes, steps that are long enough to matter, one process, experts that are brief."""
    told = (llm or {}).get("models", {})
    brief = {name: {"max_tokens": 8} | told.get(name, {}) for name in ("nano", "mini", "large")}
    base = {
        "seeds": 1,
        "jobs": 1,
        "batch": BATCH,
        "test_items": ITEMS,
        "ablation_seeds": 1,
        "save_every": SAVE,
        "updates": dict.fromkeys(("soft", "hard", "number"), UPDATES),
        "turn_tokens": 24,
        "learn": {"learning_rate": 5e-3, "minibatch": 4, "warmup": 1},
        "rounds": 3,
        "test_temperature": 0.0,
        "warm": {"items": 64, "steps": 1, "batch": 16},
        "numeric_budgets": [1, 40],
        "base": "lab-control",
        "train_items": 24,
        "experts": {"lab-nano": "nano", "lab-mini": "mini", "lab-large": "large"},
        "questions": {"chain": [1, 2, 3]},
    }
    return small_systems.change_params(
        llm=(llm or {}) | {"models": told | brief}, routing=base | routing
    )


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of lab models: experts that write at random, and a base that has half learned the protocol."""
    root = tmp_path_factory.mktemp("models")
    asked = ("lab-nano", "lab-mini", "lab-large")
    others = (
        "lab-agent",
        "lab-facts",
        "lab-passage",
        "lab-caller",
        "lab-reader",
        "lab-big",
        "lab-team",
        "lab-team-large",
    )  # by no one here
    for i, name in enumerate((*asked, *others)):
        place = checkpoints.save(tiny.model(i, hidden=16, intermediate=16), root / name)
        artifacts.write_json(place / "card.json", {"dollars_per_1k_tokens": 0.001 * 3**i})
    place = checkpoints.save(small_systems.make_protocol_model(), root / settings().routing.base)
    artifacts.write_json(place / "card.json", {"dollars_per_1k_tokens": 0.002})
    return root


@pytest.fixture(scope="module")
def results(models, runs):
    return experiment.run(settings(), COMPARED, models, runs)


def test_every_arm_is_tested_on_every_question_under_every_budget_of_its(results):
    frame = results.episodes
    assert set(frame["method"]) == {"corl", "hard", "start"}
    cold, warm = (frame[frame["temperature"] == temperature] for temperature in (0.0, 1.0))
    for here in (cold, warm):
        assert of(here, "corl")["condition"].tolist() == [
            word for word in call_protocol.BUDGET_WORDS for _ in range(ITEMS)
        ]
        assert of(here, "corl")["item"].tolist() == [*range(ITEMS)] * 3
    start = of(cold, "start")
    assert start.groupby("style")["condition"].nunique().to_dict() == {
        "soft": 3,
        "hard": 3,
        "number": 2,
    }
    assert len(start) == (3 + 3 + 2) * ITEMS
    assert set(warm["method"] + warm["style"]) == {
        "corlsoft",
        "hardhard",
        "startsoft",
        "starthard",
    }  # study.DRAWN
    assert set(frame["group"]) == {"chain"} and set(frame["difficulty"]) <= {1, 2, 3}
    assert frame["reward"].tolist() == (frame["correct"] * frame["within"]).tolist()
    assert (frame["within"] == (frame["cost_usd"] <= frame["budget"])).all()


def test_rollouts_and_the_trainers_words_are_kept_for_every_update(results):
    for variant in COMPARED:
        rows, log = of(results.rollouts, variant.name), of(results.learning, variant.name)
        assert rows["step"].tolist() == [n for n in range(UPDATES) for _ in range(BATCH)]
        assert log["step"].tolist() == [1, 2, 3, 4] and log["ratio"].eq(0).all()
        assert {"loss", "kl", "clipped", "value_error"} <= set(log)
    assert set(of(results.rollouts, "corl")["condition"]) == set(call_protocol.BUDGET_WORDS)


def test_experts_and_the_start_alone_were_tried_and_prices_of_experts_are_the_budgets(results):
    table, told = results.experts, results.budgets
    assert (
        set(table["split"]) == {"train", "test"}
        and table.groupby("method").size().eq(NUM_SAMPLES * 24 + ITEMS).all()
    )
    assert (
        set(told.usd_by_word) == set(call_protocol.BUDGET_WORDS)
        and told.usd_by_word["high"] == settings().routing.high_budget_usd
    )
    price = expert_outcomes.measure_call_prices(
        table[table["split"] == "train"], EXPERTS, settings().routing
    )
    assert (
        told.price_by_expert == price
        and told.usd_by_word["low"] == price["lab-nano"]
        and told.usd_by_word["medium"] == price["lab-mini"]
    )
    assert results.alone.groupby("split").size().to_dict() == {
        "train": NUM_SAMPLES * 24,
        "test": ITEMS,
    }
    assert (
        set(results.alone["method"]) == {expert_outcomes.CONTROLLER_ALONE}
        and results.alone["cost_usd"].eq(0).all()
    )
    assert results.token_price == pytest.approx(2e-6)  # of its base


def test_the_text_of_every_test_episode_is_kept_by_who_wrote_it(results):
    for row in of(results.episodes, "corl").itertuples():
        parts = json.loads(row.spoken)
        who = [part[0] for part in parts]
        assert who[0] == "prompt" and set(who[1::2]) == {"controller"} and len(parts) >= 2
        assert [name for name in who if name in EXPERTS] == row.chosen.split()
        assert sum(cost_usd for *_, cost_usd in parts) == pytest.approx(row.cost_usd)
        told = who.count("nobody")  # the last turn is told nothing
        assert row.malformed in (told, told + 1)


def test_the_controller_that_was_tested_is_the_one_that_was_kept(results, models, runs):
    """Played again from the folder, it says the same: the engine knew the weights of the last update."""
    (trained,) = find_job_folders(runs, "/corl/seed-0")
    own, model = settings(), checkpoints.load(trained / "model")
    generator = LabGenerator(model, own.routing.turn_tokens, own.routing.response_tokens)
    asked = variants.make_test_tasks(
        CORL.style, controller_job.draw_test_items(own.routing), results.budgets, own.routing
    )
    with controller_job.open_pool(RunContext.of(own, models, runs, runs), own.routing) as pool:
        played = [
            roll_out_episodes(generator, pool, asked, own.routing.rounds, TEST_SEED, temperature)
            for temperature in (0.0, 1.0)
        ]
    again = pd.concat(
        [make_episode_rows(each, lab.decode, ITEMS) for each in played], ignore_index=True
    )
    assert_frame_equal(of(results.episodes, "corl")[list(again)], again, check_exact=True)


def test_questions_of_tests_are_as_many_of_each_kind_and_learned_by_nobody():
    own = small_systems.SMOKE.model_copy(update={"test_items": 14})
    told = controller_job.draw_test_items(own)
    assert [item.group for item in told] == [
        *["chain"] * 4,
        *["facts"] * 4,
        *["passage"] * 3,
        *["big"] * 3,
    ]
    assert {item.split for item in told} == {"test"} and len({item.id for item in told}) == 14
    learned = controller_job.draw_train_items(own)
    assert {item.split for item in learned} == {"train"} and len(learned) == own.train_items
    assert len({item.group for item in learned}) == 4


def test_what_was_done_is_not_done_again(results, models, runs, monkeypatch):
    monkeypatch.setattr(controller_job, "train_and_test", refuse)
    monkeypatch.setattr(controller_job, "run_first_job", refuse)
    same(experiment.run(settings(), COMPARED, models, runs), results)


@pytest.mark.parametrize(
    ("variant", "killed", "left"),
    [
        (
            HARD,
            (controller_job.TokenPPO, "update", 4),
            [2, 3],
        ),  # the last checkpoint is of the second
        (
            CORL,
            (controller_job.TokenPPO, "save", 2),
            [2, 3],
        ),  # between the tables and the checkpoint
        (CORL, (controller_job.ControllerJob, "_run_test", 1), []),
    ],
    ids=["step", "save", "test"],
)
def test_a_run_that_was_killed_goes_on_from_its_checkpoint_to_the_same_tables(
    variant, killed, left, results, models, runs, tmp_path, monkeypatch
):
    """The controller that plays on has to be the one of the checkpoint: the engine has weights of its own."""
    assert (
        resume_killed_training(
            experiment, settings(), variant, models, (results, runs), killed, tmp_path, monkeypatch
        )
        == left
    )


def test_another_seed_trains_and_tests_differently_and_leaves_the_first_alone(
    results, models, runs
):
    both = experiment.run(settings(seeds=2), [CORL], models, runs)
    assert_frame_equal(of(both.rollouts, "corl"), of(results.rollouts, "corl"))
    one, two = (of(both.rollouts, "corl", seed) for seed in range(2))
    assert len(one) == len(two) and one["difficulty"].tolist() != two["difficulty"].tolist()
    assert (
        of(both.learning, "corl", 1)["loss"].tolist() != of(both.learning, "corl")["loss"].tolist()
    )
    warm = [
        of(both.episodes, "corl", seed).query("temperature == 1")["spoken"].tolist()
        for seed in range(2)
    ]
    assert warm[0] != warm[1]


CONTROLLER, TRIAL = {"controller/seed-0"}, {"experts"}
FIRST = CONTROLLER | TRIAL
START, ALL = FIRST | {"start/seed-0"}, FIRST | {"start/seed-0", "corl/seed-0", "hard/seed-0"}
OWN = settings().routing
LEARN, UPDATED = OWN.learn.model_dump(), OWN.updates


def named(where, compared=COMPARED, own=None, **changes) -> dict[str, str]:
    """Keys by label, without the experts that lead it."""
    keys = list_keys_by_label(jobs_module, own or settings(**changes), compared, where)
    return {label.split("/", 1)[1]: key for label, key in keys.items()}


def unchanged(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert before.keys() == after.keys()
    return {label for label in before if before[label] == after[label]}


def experts(**changes) -> dict:
    """Another model behind the name of an expert."""
    return {"llm": {"models": {"large": changes}}}


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"jobs": 3}, ALL),
        ({"jobs": None}, ALL),
        ({"save_every": 1}, ALL),
        ({"equivalence_margin": 0.5}, ALL),
        ({"llm": {"models": {"nano": {"timeout": 5.0, "retries": 1, "concurrency": 3}}}}, ALL),
        ({"llm": {"max_usd": 1.0, "cassette": "replay"}}, ALL),
        ({"llm": {"models": {"agent": {"max_tokens": 5}}}}, ALL),  # no expert
        ({"synthetic": OWN.synthetic.model_dump() | {"updates": 3}}, ALL),
        ({"updates": UPDATED | {"number": 9}}, ALL),  # nobody here is told numbers in training
        ({"updates": UPDATED | {"soft": 9}}, ALL - {"corl/seed-0"}),
        ({"updates": UPDATED | {"hard": 9}}, ALL - {"hard/seed-0"}),
        ({"numeric_budgets": [1, 41]}, ALL - {"start/seed-0"}),  # which alone is asked with numbers
        ({"budget_unit_usd": 2e-6}, ALL - {"start/seed-0"}),
        ({"learn": LEARN | {"kl": 0.5}}, START),
        ({"learn": LEARN | {"advantages": "group"}}, START),
        ({"batch": 16}, START),
        ({"quantile": 0.5}, FIRST),
        ({"high_budget_usd": 5.0}, FIRST),
        ({"temperature": 0.5}, FIRST),
        ({"test_temperature": 0.5}, FIRST),
        ({"turn_tokens": 23}, FIRST),
        ({"warm": {"items": 64, "steps": 2, "batch": 16, "seed": 0}}, TRIAL),
        ({"rounds": 4}, TRIAL),
        ({"expert_temperature": 0.5}, CONTROLLER),
        ({"train_items": 25}, CONTROLLER),
        ({"test_items": 13}, CONTROLLER),
        (experts(max_tokens=50), CONTROLLER),
        (experts(price_in=1.0, price_out=1.0), CONTROLLER),
        (experts(omit=["seed"]), CONTROLLER),
        (experts(**ENDPOINT_MODEL), CONTROLLER),
        ({"questions": {"chain": [1, 2]}}, set()),
        (
            {"experts": {"lab-mini": "mini", "lab-nano": "nano", "lab-large": "large"}},
            set(),
        ),  # another order
    ],
    ids=lambda told: "-".join(told) if isinstance(told, dict) else "",
)
def test_a_setting_changes_the_keys_of_the_jobs_that_read_it_and_of_no_others(change, kept, models):
    before, after = named(models), named(models, **change)
    assert before.keys() == ALL
    assert unchanged(before, after) == kept


@pytest.mark.parametrize(
    ("change", "kept"), [({"muon": 0.5}, TRIAL), ({"steps": 9, "items": 99}, ALL)]
)
def test_of_the_lab_only_the_optimisers_of_the_base_are_in_a_key(change, kept, models):
    own = settings()
    bases = own.lab.models | {OWN.base: own.lab.models[OWN.base].model_copy(update=change)}
    other = own.model_copy(update={"lab": own.lab.model_copy(update={"models": bases})})
    assert unchanged(named(models), named(models, own=other)) == kept


def test_other_weights_or_prices_make_new_keys_where_they_are_used(models, tmp_path):
    place, before = copy_one_model(models, tmp_path, "lab-mini"), named(models)
    assert named(tmp_path) == before
    (place / "card.json").write_text("{}")  # another price
    assert unchanged(before, named(tmp_path)) == CONTROLLER
    hosted, other = (
        named(models, **experts(**ENDPOINT_MODEL | {"model": name})) for name in ("m", "other")
    )
    assert unchanged(hosted, other) == CONTROLLER


def test_another_base_makes_all_keys_new(models, tmp_path):
    weights = copy_one_model(models, tmp_path, OWN.base) / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b" ")
    assert unchanged(named(models), named(tmp_path)) == set()


@pytest.mark.parametrize(
    ("module", "kept"),
    [
        (seeds, set()),
        (tasks, set()),
        (pretraining, TRIAL),
        (muon, TRIAL),
        (training_data, TRIAL),
        (sft_warmup, TRIAL),
        (call_protocol, TRIAL),
        (expert_pool, CONTROLLER),
        (expert_outcomes, CONTROLLER),
        (jobs_module, set()),
        (generators, FIRST),
        (interleaved_episodes, FIRST),
        (budget_episodes, FIRST),
        (budget_reward, FIRST),
        (variants, FIRST),
        (transcript, FIRST),
        (token_ppo, START),
        (losses, START),
        (synthetic_benchmark, ALL),
        (baselines, ALL),  # which every lesson computes anew
        (scripted, ALL),  # no expert here is a script
        (rules, ALL),  # nor anybody who is told them
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
    before, more = named(models), named(models, seeds=3)
    assert (
        before.items() <= more.items() and len(more) == len(before) + 2 * 3
    )  # start, controller and the main arm
    assert (
        named(models, [CORL]).items() <= before.items() <= named(models, variants.VARIANTS).items()
    )
    assert named(models, [dataclasses.replace(CORL, label="otherwise"), HARD]) == before
    assert named(models, ablation_seeds=2) == before


def test_a_start_beyond_the_seeds_of_other_arms_is_tested_as_the_main_arm_alone(models):
    few, many = (named(models, seeds=2, ablation_seeds=n) for n in (1, 2))
    assert {label for label in few if few[label] != many[label]} == {"start/seed-1"}
    own = settings(seeds=2)
    jobs = jobs_module.make_jobs(own, COMPARED, jobs_module.make_first_jobs(own, models))
    styles = {
        job.label.split("/", 1)[1]: [test["style"] for test in job.settings["tests"]]
        for job in jobs
    }
    assert styles["start/seed-0"] == ["soft", "soft", "hard", "hard", "number"]
    assert styles["start/seed-1"] == ["soft", "soft"]


def test_two_experts_are_jobs_of_their_own(models):
    own, two = settings(), select_world(settings(), TWO_EXPERTS)
    assert (
        not list_keys_by_label(jobs_module, own, [CORL], models).keys()
        & list_keys_by_label(jobs_module, two, [CORL], models).keys()
    )


@pytest.mark.parametrize(
    ("held", "lacking"), [([], "lab-control holds no model"), (["lab-control"], "lab-nano")]
)
def test_a_model_that_is_not_there_is_named_before_anything_starts(held, lacking, models, tmp_path):
    for name in held:
        (tmp_path / name).symlink_to(models / name)
    with pytest.raises(ModelError, match=lacking):
        experiment.run(settings(), COMPARED, tmp_path, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_processes_share_the_limits_of_an_endpoint(models, runs, results, monkeypatch):
    """As many as there are: all cores where nobody says how many."""
    told, real = [], controller_job.open_models
    monkeypatch.setattr(controller_job, "open_models", lambda *a: told.append(a[5]) or real(*a))
    monkeypatch.setattr(sweep.os, "cpu_count", lambda: 7)
    for jobs in (3, None):
        own = settings(jobs=jobs)
        context = RunContext.of(own, models, runs, runs, jobs)
        with controller_job.open_pool(context, own.routing) as pool:
            assert pool.experts == EXPERTS
    assert told == [3, 7]


def test_the_plan_says_what_endpoints_may_cost():
    assert (
        experiment.announce_calls(settings(), COMPARED) == "No endpoint is asked; nothing is paid."
    )
    hosted = settings(**experts(**ENDPOINT_MODEL))
    assert "At most" in experiment.announce_calls(hosted, COMPARED)


def test_calls_of_controllers_are_planned_for_one_of_two_endpoints():
    """A second endpoint adds what every expert is tried on, and no call of a controller."""

    def count_calls(*names: str) -> int:
        params = settings(llm={"models": dict.fromkeys(names, ENDPOINT_MODEL)})
        line = experiment.announce_calls(params, COMPARED)
        return int(line.split("At most ")[1].split(" calls")[0].replace(",", ""))

    routing = settings().routing
    tried = NUM_SAMPLES * routing.train_items + routing.test_items
    assert count_calls("large", "mini") - count_calls("large") == tried


def test_rows_by_hand():
    """One that calls twice and is right, one that breaks the form, hears nothing of an expert and is wrong."""
    wanted = draw_chains(2)
    scripts = {
        wanted[0].prompt: [
            write_call("lab-nano"),
            write_call("lab-mini"),
            write_answer(wanted[0].reference),
        ],
        wanted[1].prompt: ["= 3", write_call("lab-large"), "="],
    }

    def reply(query) -> ExpertReply:
        failure = Failure("empty") if query.expert == "lab-large" else None
        return ExpertReply("" if failure else "4", PRICES[query.expert], failure=failure)

    generator = ScriptedController(write=lambda question, turn: scripts[question][turn])
    episodes = roll_out_episodes(
        generator,
        ScriptedExperts(reply),
        [make_budget_task(wanted[0], 5e-5, "medium"), make_budget_task(wanted[1], 1e-4, "low")],
        3,
        0,
    )
    one, two = make_episode_rows(episodes).to_dict("records")
    sizes = [len(e.ids) for e in episodes]
    own = [sum(len(lab.encode(x.text)) for x in e.turns) for e in episodes]
    assert one == {
        "item": 0,
        "group": "chain",
        "difficulty": wanted[0].difficulty,
        "condition": "medium",
        "budget": 5e-5,
        "correct": 1.0,
        "within": 1.0,
        "reward": 1.0,
        "cost_usd": pytest.approx(5e-5),
        "calls": 2,
        "written_queries": 2,
        "chosen": "lab-nano lab-mini",
        "malformed": 0,
        "failures": 0,
        "failed": False,
        "truncated": 0,
        "shortened": 0,
        "turns": 3,
        "written": own[0],
        "tokens": sizes[0],
    }
    assert two == {
        "item": 1,
        "group": "chain",
        "difficulty": wanted[1].difficulty,
        "condition": "low",
        "budget": 1e-4,
        "correct": 0.0,
        "within": 0.0,
        "reward": 0.0,
        "cost_usd": 2e-4,
        "calls": 1,
        "written_queries": 1,
        "chosen": "lab-large",
        "malformed": 2,
        "failures": 1,
        "failed": False,
        "truncated": 0,
        "shortened": 0,
        "turns": 3,
        "written": own[1],
        "tokens": sizes[1],
    }
    assert transcript.split_by_writer(episodes[0], lab.decode) == [
        ("prompt", f"budget medium {wanted[0].prompt}", 0.0),
        ("controller", write_call("lab-nano"), 0.0),
        ("lab-nano", "<response> 4 </response>", 1e-5),
        ("controller", write_call("lab-mini"), 0.0),
        ("lab-mini", "<response> 4 </response>", 4e-5),
        ("controller", write_answer(wanted[0].reference), 0.0),
    ]
    assert transcript.split_by_writer(episodes[1], lab.decode) == [
        ("prompt", f"budget low {wanted[1].prompt}", 0.0),
        ("controller", "= 3", 0.0),
        ("nobody", "<response> error </response>", 0.0),
        ("controller", write_call("lab-large"), 0.0),
        ("lab-large", "<response> error </response>", 2e-4),
        ("controller", "=", 0.0),
    ]


def test_samples_are_the_episodes_with_their_rewards_in_groups():
    """Words are strata of their own."""
    wanted = [
        make_budget_task(item, 1.0, word)
        for item, word in zip(draw_chains(6), call_protocol.BUDGET_WORDS * 2, strict=True)
    ]
    episodes = roll_out_episodes(
        ScriptedController(write_call("lab-nano"), write_answer(4)), ScriptedExperts(), wanted, 3, 0
    )
    told = make_samples(episodes, 3)
    assert [s.stratum for s in told] == [0, 1, 2, 0, 1, 2]
    assert [s.group for s in told] == [0, 0, 0, 1, 1, 1] and [
        s.group for s in make_samples(episodes)
    ] == [*range(6)]
    for sample, episode in zip(told, episodes, strict=True):
        assert (sample.ids, sample.mask, sample.reward) == (
            episode.ids,
            episode.mask,
            episode.reward,
        )


def test_one_controller_of_every_arm_is_kept_and_no_checkpoint(results, runs):
    assert not list(runs.glob("*/checkpoint*"))
    kept = [
        folder / "model"
        for folder in find_job_folders(runs, "/seed-0")
        if (folder / "model").exists()
    ]
    told = [
        small_systems.flatten_weights(checkpoints.load(place)) for place in kept
    ]  # that of the start included
    assert len(told) == 3 and not any(
        torch.equal(a, b) for a, b in zip(told, told[1:] + told[:1], strict=True)
    )


def test_a_change_that_the_trainer_does_not_know_is_refused(models, runs, results):
    with pytest.raises(ParamsError, match="colour"):
        experiment.run(settings(), [make_variant("Blue", colour="blue")], models, runs)


def test_a_variant_with_groups_asks_every_question_several_times(models, runs, results):
    own = experiment.run(
        settings(batch=16, updates={"soft": 1}),
        [make_variant("Group", advantages="group")],
        models,
        runs,
    )
    told = own.rollouts.query("step == 0")
    assert len(told) == 16 and [len(set(told["difficulty"][i : i + 8])) for i in (0, 8)] == [1, 1]
    assert [len(set(told["condition"][i : i + 8])) for i in (0, 8)] == [1, 1] and told[
        "written"
    ].nunique() > 2
    assert own.learning["value_error"].eq(0).all()


def test_rows_count_questions_over_budgets():
    episodes = roll_out_episodes(
        ScriptedController(write_answer(1)),
        ScriptedExperts(),
        [make_budget_task(item) for item in draw_chains(3)] * 2,
        2,
        0,
    )
    assert make_episode_rows(episodes, num_questions=3)["item"].tolist() == [0, 1, 2, 0, 1, 2]
    assert make_episode_rows(episodes)["item"].tolist() == [0, 1, 2, 3, 4, 5]
