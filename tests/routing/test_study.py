"""The experiment at its smallest: cells that are made once, trainings that go on, tables with what was promised."""

import dataclasses
import json

import pandas as pd
import pytest
import torch
from pandas.testing import assert_frame_equal

from lib import params, store, tasks
from lib.models import checkpoints
from lib.models import tokenizer as lab
from lib.models.checkpoints import ModelError
from lib.params import ParamsError
from lib.routing import arms, outcomes, protocol, study
from lib.routing.arms import NAMED, variant
from lib.routing.experts import TRIES, Heard
from lib.routing.rollouts import roll
from lib.routing.voices import Lab
from tests.models import tiny
from tests.routing import small
from tests.routing.small import EXPERTS, PRICES, Choir, Scripted, answer, call, items, task
from tests.studies import Killed, dying, of, refuse, same

CORL, HARD = NAMED["corl"], NAMED["hard"]
COMPARED = [CORL, HARD]
UPDATES, BATCH, ITEMS, SAVE = 4, 24, 12, 2  # some of so many are right by chance


def settings(llm=None, **routing) -> params.Params:
    """Four updates of a few episodes, steps that are long enough to matter, one process, experts that are brief."""
    told = (llm or {}).get("models", {})
    brief = {name: {"max_tokens": 8} | told.get(name, {}) for name in ("nano", "mini", "large")}
    base = {
        "seeds": 1, "jobs": 1, "batch": BATCH, "test_items": ITEMS, "other_seeds": 1, "save_every": SAVE,
        "updates": dict.fromkeys(("soft", "hard", "number"), UPDATES), "turn_tokens": 24,
        "learn": {"learning_rate": 5e-3, "minibatch": 4, "warmup": 1}, "rounds": 3, "test_temperature": 0.0,
        "warm": {"items": 64, "steps": 1, "batch": 16}, "numbers": [1, 40], "base": "lab-control", "train_items": 24,
        "experts": {"lab-nano": "nano", "lab-mini": "mini", "lab-large": "large"}, "questions": {"chain": [1, 2, 3]},
    }  # fmt: skip
    return small.changed(llm=(llm or {}) | {"models": told | brief}, routing=base | routing)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A folder of lab models: experts that write at random, and a base that has half learned the protocol."""
    root = tmp_path_factory.mktemp("models")
    asked = ("lab-nano", "lab-mini", "lab-large")
    others = ("lab-agent", "lab-facts", "lab-passage", "lab-big", "lab-team", "lab-team-large")  # by no one here
    for i, name in enumerate((*asked, *others)):
        place = checkpoints.save(tiny.model(i, hidden=16, intermediate=16), root / name)
        store.write_json(place / "card.json", {"dollars_per_1k_tokens": 0.001 * 3**i})
    place = checkpoints.save(small.schooled(), root / settings().routing.base)
    store.write_json(place / "card.json", {"dollars_per_1k_tokens": 0.002})
    return root


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(autouse=True)
def nothing_of_the_checkout(monkeypatch, tmp_path):
    """Cassettes and runs of the checkout are left alone."""
    monkeypatch.setattr(study, "CASSETTES", tmp_path / "cassettes")


@pytest.fixture(scope="module")
def results(models, runs):
    made = study.run(settings(), COMPARED, models, runs)
    torch.set_flush_denormal(False)
    return made


# Results ------------------------------------------------------------------------------------------


def test_every_arm_is_tested_on_every_question_under_every_budget_of_its(results):
    frame = results.episodes
    assert set(frame["arm"]) == {"corl", "hard", "start"}
    cold, warm = (frame[frame["temperature"] == temperature] for temperature in (0.0, 1.0))
    for here in (cold, warm):
        assert of(here, "corl")["label"].tolist() == [word for word in protocol.WORDS for _ in range(ITEMS)]
        assert of(here, "corl")["item"].tolist() == [*range(ITEMS)] * 3
    start = of(cold, "start")
    assert start.groupby("style")["label"].nunique().to_dict() == {"soft": 3, "hard": 3, "number": 2}
    assert len(start) == (3 + 3 + 2) * ITEMS
    assert set(warm["arm"] + warm["style"]) == {
        "corlsoft",
        "hardhard",
        "startsoft",
        "starthard",
    }  # those of study.DRAWN
    assert set(frame["kind"]) == {"chain"} and set(frame["difficulty"]) <= {1, 2, 3}
    assert frame["reward"].tolist() == (frame["right"] * frame["within"]).tolist()
    assert (frame["within"] == (frame["dollars"] <= frame["budget"])).all()


def test_rollouts_and_the_trainers_words_are_kept_for_every_update(results):
    for arm in COMPARED:
        rows, log = of(results.rollouts, arm.name), of(results.learning, arm.name)
        assert rows["update"].tolist() == [n for n in range(UPDATES) for _ in range(BATCH)]
        assert log["update"].tolist() == [1, 2, 3, 4] and log["ratio"].eq(0).all()
        assert {"loss", "kl", "clipped", "value_error"} <= set(log)
    assert set(of(results.rollouts, "corl")["label"]) == set(protocol.WORDS)


def test_experts_were_tried_and_their_prices_are_the_budgets(results):
    table, told = results.experts, results.budgets
    assert set(table["split"]) == {"train", "test"} and table.groupby("strategy").size().eq(TRIES * 24 + ITEMS).all()
    assert set(told.words) == set(protocol.WORDS) and told.words["high"] == settings().routing.high
    price = outcomes.prices(table[table["split"] == "train"], EXPERTS, settings().routing)
    assert told.calls == price and told.words["low"] == price["lab-nano"] and told.words["medium"] == price["lab-mini"]


def test_the_text_of_every_test_episode_is_kept_by_who_wrote_it(results):
    for row in of(results.episodes, "corl").itertuples():
        parts = json.loads(row.spoken)
        who = [part[0] for part in parts]
        assert who[0] == "prompt" and set(who[1::2]) == {"controller"} and len(parts) >= 2
        assert [name for name in who if name in EXPERTS] == row.called.split()
        assert sum(dollars for *_, dollars in parts) == pytest.approx(row.dollars)
        told = who.count("nobody")  # the last turn is told nothing
        assert row.malformed in (told, told + 1)


def test_the_controller_that_was_tested_is_the_one_that_was_kept(results, models, runs):
    """Played again from the folder, it says the same: the engine knew the weights of the last update."""
    own = settings()
    means = study.Means(str(models), str(runs), str(runs), own.llm.model_dump(), own.routing.model_dump(), {})
    model = checkpoints.load(next(runs.glob("corl-seed-0*/model")))
    voice = Lab(model, own.routing.turn_tokens, own.routing.response_tokens)
    asked = arms.examined(CORL, study.test_items(own.routing), results.budgets, own.routing)
    again = []
    with study.opened_pool(means) as pool:
        for temperature in (0.0, 1.0):
            episodes = roll(voice, pool, asked, own.routing.rounds, study._TEST_KEY, temperature)
            again.append(study.episode_rows(episodes, lab.decode, ITEMS))
    again = pd.concat(again, ignore_index=True)
    assert_frame_equal(of(results.episodes, "corl")[list(again)], again, check_exact=True)


def test_questions_of_tests_are_as_many_of_each_kind_and_learned_by_nobody():
    own = small.SMOKE.model_copy(update={"test_items": 14})
    told = study.test_items(own)
    assert [item.category for item in told] == [*["chain"] * 4, *["facts"] * 4, *["passage"] * 3, *["big"] * 3]
    assert {item.split for item in told} == {"test"} and len({item.key for item in told}) == 14
    learned = study.train_items(own)
    assert {item.split for item in learned} == {"train"} and len(learned) == own.train_items
    assert len({item.category for item in learned}) == 4


# Again --------------------------------------------------------------------------------------------


def test_what_was_done_is_not_done_again(results, models, runs, monkeypatch):
    monkeypatch.setattr(study, "work", refuse)
    monkeypatch.setattr(study, "first_work", refuse)
    same(study.run(settings(), COMPARED, models, runs), results)


def beginning(runs, elsewhere) -> None:
    """Everything but the trainings, so that only they are done again."""
    for place in runs.glob("*"):
        if place.name.startswith(("controller-", "experts-", "start-")):
            (elsewhere / place.name).symlink_to(place)


@pytest.mark.parametrize(("arm", "method", "at"), [(HARD, "update", 4), (CORL, "save", 2)], ids=["update", "save"])
def test_a_training_that_was_killed_goes_on_from_its_checkpoint_to_the_same_tables(
    arm, method, at, results, models, runs, tmp_path, monkeypatch
):
    """In the fourth update, or after it between the tables and the checkpoint; the last checkpoint is of the second.
    The controller that plays on has to be the one of the checkpoint: the engine has weights of its own."""
    beginning(runs, tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(study.Learner, method, dying(getattr(study.Learner, method), at))
        study.run(settings(), [arm], models, tmp_path)
    assert list(tmp_path.glob("*/checkpoint.safetensors"))
    made, updates = study.Learner.update, []
    monkeypatch.setattr(study.Learner, "update", lambda self, told: updates.append(self.step) or made(self, told))
    again = study.run(settings(), [arm], models, tmp_path)
    assert updates == [2, 3]
    for name in ("rollouts", "learning", "episodes"):
        assert_frame_equal(of(getattr(again, name), arm.name), of(getattr(results, name), arm.name), check_exact=True)


def test_a_cell_that_was_killed_in_its_test_is_tested_as_it_was_trained(results, models, runs, tmp_path, monkeypatch):
    beginning(runs, tmp_path)
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(study.Run, "_test", dying(study.Run._test, 1))
        study.run(settings(), [CORL], models, tmp_path)
    monkeypatch.setattr(study.Learner, "update", refuse)
    again = study.run(settings(), [CORL], models, tmp_path)
    assert_frame_equal(of(again.episodes, "corl"), of(results.episodes, "corl"), check_exact=True)
    assert_frame_equal(of(again.rollouts, "corl"), of(results.rollouts, "corl"), check_exact=True)


def test_another_seed_trains_and_tests_differently_and_leaves_the_first_alone(results, models, runs):
    both = study.run(settings(seeds=2), [CORL], models, runs)
    cells = {f"{cell}/seed-{seed}" for cell in ("controller", "corl", "start") for seed in (0, 1)}
    assert set(both.clock["cell"]) == {"experts", *cells}
    assert_frame_equal(of(both.rollouts, "corl"), of(results.rollouts, "corl"))
    one, two = (of(both.rollouts, "corl", seed) for seed in range(2))
    assert len(one) == len(two) and one["difficulty"].tolist() != two["difficulty"].tolist()
    assert of(both.learning, "corl", 1)["loss"].tolist() != of(both.learning, "corl")["loss"].tolist()
    warm = [of(both.episodes, "corl", seed).query("temperature == 1")["spoken"].tolist() for seed in range(2)]
    assert warm[0] != warm[1]


# Names --------------------------------------------------------------------------------------------


@pytest.fixture
def named(models):
    """Names and digests of all cells under changed parameters."""

    def digests(compared=COMPARED, where=models, **changes) -> dict[str, str]:
        own = settings(**changes)
        first = study.first_cells(own, where)
        return {cell.name: cell.digest for cell in [*first, *study.cells(own, compared, first)]}

    return digests


def test_what_changes_no_result_makes_no_new_cells(named):
    before = named()
    for change in (
        {"jobs": 3},
        {"jobs": None},
        {"save_every": 1},
        {"llm": {"models": {"nano": {"timeout": 5.0, "retries": 1, "concurrency": 3}}}},
        {"llm": {"max_dollars": 1.0, "cassette": "replay"}},
        {"llm": {"models": {"agent": {"max_tokens": 5}}}},  # no expert
        {"glass": settings().routing.glass.model_copy(update={"updates": 3}).model_dump()},
    ):
        assert named(**change) == before, change
    more = named(seeds=3)
    assert before.items() <= more.items() and len(more) == len(before) + 2 * 3  # start, warm start and the main arm


LEARN = settings().routing.learn.model_dump()


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"learn": LEARN | {"kl": 0.5}}, {"controller/seed-0", "experts", "start/seed-0"}),
        ({"learn": LEARN | {"advantages": "group"}}, {"controller/seed-0", "experts", "start/seed-0"}),
        ({"batch": 16}, {"controller/seed-0", "experts", "start/seed-0"}),
        ({"quantile": 0.5}, {"controller/seed-0", "experts"}),
        ({"temperature": 0.5}, {"controller/seed-0", "experts"}),
        ({"warm": {"items": 64, "steps": 2, "batch": 16, "seed": 0}}, {"experts"}),
        ({"expert_temperature": 0.5}, {"controller/seed-0"}),
        ({"train_items": 25}, {"controller/seed-0"}),
        ({"rounds": 4}, set()),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_changes_a_result_makes_new_cells(change, kept, named):
    before, after = named(), named(**change)
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] == after[name]} == kept


NEW = {"backend": "endpoint", "base_url": "http://localhost:1/v1", "model": "m", "price_in": 1e-6, "price_out": 1e-6}


@pytest.mark.parametrize(
    "change",
    [{"max_tokens": 50}, {"price_in": 1.0, "price_out": 1.0}, {"omit": ["seed"]}, NEW, NEW | {"model": "other"}],
    ids=lambda change: "-".join(change),
)
def test_another_expert_behind_the_same_name_makes_new_cells(change, named):
    other = NEW if "model" in change and change != NEW else {}  # against an endpoint, or the lab's model
    before, after = (named(llm={"models": {"large": told}}) for told in (other, change))
    assert not before.items() & after.items()


def test_other_models_make_new_cells(named, models, tmp_path):
    for name in ("lab-nano", "lab-mini", "lab-large", settings().routing.base):
        (tmp_path / name).mkdir()
        for file in ("model.safetensors", "card.json"):
            if (models / name / file).exists():
                (tmp_path / name / file).write_bytes((models / name / file).read_bytes())
    assert named(where=tmp_path) == named()
    (tmp_path / "lab-mini/card.json").write_text("{}")  # another price
    assert not named(where=tmp_path).items() & named().items()


def test_an_arm_more_and_what_only_others_need_change_no_cell(named):
    """Updates of other kinds, numbers that no prompt names, what tables call an arm."""
    before, updates = named(), settings().routing.updates
    assert named([CORL]).items() <= before.items() <= named(arms.ARMS).items()
    assert named(updates=updates | {"number": 9}) == before
    for change, new in (
        ({"updates": updates | {"soft": 9}}, "corl/seed-0"),
        ({"updates": updates | {"hard": 9}}, "hard/seed-0"),
        ({"numbers": [1, 41]}, "start/seed-0"),  # which is asked with numbers too
    ):
        assert {name for name, digest in named(**change).items() if digest != before[name]} == {new}, change
    assert named([dataclasses.replace(CORL, label="otherwise"), HARD]) == before


@pytest.mark.parametrize(("held", "lacking"), [([], "lab-control holds no model"), (["lab-control"], "lab-nano")])
def test_a_model_that_is_not_there_is_named_before_anything_starts(held, lacking, models, tmp_path):
    for name in held:
        (tmp_path / name).symlink_to(models / name)
    with pytest.raises(ModelError, match=lacking):
        study.run(settings(), COMPARED, tmp_path, tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


def test_processes_share_the_limits_of_an_endpoint(models, runs, results, monkeypatch):
    """As many as there are: all cores where nobody says how many."""
    told = []
    real = study.opened
    monkeypatch.setattr(study, "opened", lambda *a: told.append(a[4]) or real(*a))
    monkeypatch.setattr(study.os, "cpu_count", lambda: 7)
    for jobs in (3, None):
        own = settings(jobs=jobs)
        means = study.Means(str(models), str(runs), str(runs), own.llm.model_dump(), own.routing.model_dump(), {})
        with study.opened_pool(means) as pool:
            assert pool.experts == EXPERTS
    assert told == [3, 7]


def test_the_plan_says_what_endpoints_may_cost():
    assert study.plan(settings(), COMPARED)
    own = settings(llm={"models": {"large": NEW}})
    assert "$" in study.plan(own, COMPARED) and study.plan(own, COMPARED) != study.plan(settings(), COMPARED)


# Rows ---------------------------------------------------------------------------------------------


def test_rows_by_hand():
    """One that calls twice and is right, one that breaks the form, hears nothing of an expert and is wrong."""
    wanted = items(2)
    scripts = {
        wanted[0].prompt: [call("lab-nano"), call("lab-mini"), answer(wanted[0].answer)],
        wanted[1].prompt: ["= 3", call("lab-large"), "="],
    }

    def reply(query) -> Heard:
        hangs = query.expert == "lab-large"
        return Heard("" if hangs else "4", PRICES[query.expert], failure="timeout" if hangs else "")

    voice = Scripted(say=lambda question, turn: scripts[question][turn])
    episodes = roll(voice, Choir(reply), [task(wanted[0], 5e-5, "medium"), task(wanted[1], 1e-4, "low")], 3, 0)
    one, two = study.episode_rows(episodes).to_dict("records")
    sizes = [len(e.ids) for e in episodes]
    own = [sum(len(lab.encode(x.said)) for x in e.exchanges) for e in episodes]
    assert one == {
        "item": 0, "kind": "chain", "difficulty": wanted[0].difficulty, "label": "medium", "budget": 5e-5,
        "right": 1.0, "within": 1.0,
        "reward": 1.0, "dollars": pytest.approx(5e-5), "calls": 2, "called": "lab-nano lab-mini", "malformed": 0,
        "failures": 0, "turns": 3, "written": own[0], "tokens": sizes[0],
    }  # fmt: skip
    assert two == {
        "item": 1, "kind": "chain", "difficulty": wanted[1].difficulty, "label": "low", "budget": 1e-4,
        "right": 0.0, "within": 0.0,
        "reward": 0.0, "dollars": 2e-4, "calls": 1, "called": "lab-large", "malformed": 2, "failures": 1, "turns": 3,
        "written": own[1], "tokens": sizes[1],
    }  # fmt: skip
    asked = [f"budget {word} {item.prompt}" for word, item in zip(("medium", "low"), wanted, strict=True)]
    assert study.spoken(episodes[0], lab.decode) == [
        ("prompt", asked[0], 0.0),
        ("controller", call("lab-nano"), 0.0), ("lab-nano", "<response> 4 </response>", 1e-5),
        ("controller", call("lab-mini"), 0.0), ("lab-mini", "<response> 4 </response>", 4e-5),
        ("controller", answer(wanted[0].answer), 0.0),
    ]  # fmt: skip
    assert study.spoken(episodes[1], lab.decode) == [
        ("prompt", asked[1], 0.0),
        ("controller", "= 3", 0.0), ("nobody", "<response> error </response>", 0.0),
        ("controller", call("lab-large"), 0.0), ("lab-large", "<response> error </response>", 2e-4),
        ("controller", "=", 0.0),
    ]  # fmt: skip


def test_samples_are_the_episodes_with_their_rewards_in_groups():
    episodes = roll(Scripted(call("lab-nano"), answer(4)), Choir(), [task(item) for item in items(6)], 3, 0)
    told = study.samples(episodes, 3)
    assert [s.group for s in told] == [0, 0, 0, 1, 1, 1] and [s.group for s in study.samples(episodes)] == [*range(6)]
    for sample, episode in zip(told, episodes, strict=True):
        assert (sample.ids, sample.mask, sample.reward) == (episode.ids, episode.mask, episode.reward)
    assert {s.reward for s in told} == {float(tasks.answered(answer(4)) == item.answer) for item in items(6)}


def test_the_start_answers_alone_what_experts_were_tried_on(results):
    assert results.alone.groupby("split").size().to_dict() == {"train": TRIES * 24, "test": ITEMS}
    assert set(results.alone["strategy"]) == {outcomes.ITSELF} and results.alone["dollars"].eq(0).all()


def test_the_controllers_own_price_is_that_of_its_base(results):
    assert results.token_price == pytest.approx(2e-6)


def test_one_controller_of_every_arm_is_kept_and_no_checkpoint(results, runs):
    assert not list(runs.glob("*/checkpoint*"))
    told = [small.weights(checkpoints.load(place)) for place in sorted(runs.glob("*seed-0*/model"))]  # start included
    assert len(told) == 3 and not any(torch.equal(a, b) for a, b in zip(told, told[1:] + told[:1], strict=True))


def test_a_change_that_the_trainer_does_not_know_is_refused(models, runs, results):
    with pytest.raises(ParamsError, match="colour"):
        study.run(settings(), [variant("Blue", colour="blue")], models, runs)


def test_a_variant_with_groups_asks_every_question_several_times(models, runs, results):
    own = study.run(settings(batch=16, updates={"soft": 1}), [variant("Group", advantages="group")], models, runs)
    told = own.rollouts.query("update == 0")
    assert len(told) == 16 and [len(set(told["difficulty"][i : i + 8])) for i in (0, 8)] == [1, 1]
    assert [len(set(told["label"][i : i + 8])) for i in (0, 8)] == [1, 1] and told["written"].nunique() > 2
    assert own.learning["value_error"].eq(0).all()


def test_rows_count_questions_over_budgets():
    episodes = roll(Scripted(answer(1)), Choir(), [task(item) for item in items(3)] * 2, 2, 0)
    assert study.episode_rows(episodes, questions=3)["item"].tolist() == [0, 1, 2, 0, 1, 2]
    assert study.episode_rows(episodes)["item"].tolist() == [0, 1, 2, 3, 4, 5]
    told = study.episode_rows(episodes, lab.decode)["spoken"].map(json.loads)
    assert [parts[0][1] for parts in told] == [f"budget low {item.prompt}" for item in items(3)] * 2
