"""Training of the lab models: what is taught, in which order, until when, and across interruptions; models on disk."""

import hashlib
import os
import re

import numpy as np
import pytest
import torch

from lib.config import (
    PROFILES,
    LabSettings,
    MixtureComponent,
    ParamsError,
    Target,
    load,
    validate_settings,
)
from lib.experiment import artifacts, sweep
from lib.language_models import checkpoints
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.checkpoints import ModelError
from lib.language_models.tokenizer import EOS, ROLES, decode
from lib.language_models.training import build, released_weights
from lib.language_models.training.pretraining import DEV_ITEMS, NotLearned, Pretraining
from lib.language_models.training.training_data import build_corpus, make_batches, write_question
from tests.language_models import tiny
from tests.studies import Killed, dying


def ignore(share: float) -> None:
    """Nobody looks."""


def kill(settings, folder, at: int) -> None:
    """A training that ends in its at-th update."""
    with pytest.raises(Killed):
        Pretraining(settings, 0).train(folder, dying(ignore, at))


def trained(folder, seed: int = 0, start=None, **changes) -> Pretraining:
    training = Pretraining(tiny.settings(**changes), seed, start)
    training.train(folder, ignore)
    return training


def equal(one, other) -> bool:
    pairs = zip(one.state_dict().items(), other.state_dict().items(), strict=True)
    return all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)


# Training -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def straight(tmp_path_factory) -> Pretraining:
    """A training that nobody interrupts."""
    return trained(tmp_path_factory.mktemp("straight"))


@pytest.mark.parametrize(("at", "left"), [(1, 6), (4, 4), (5, 2)])  # a look every two updates
def test_a_training_that_was_killed_goes_on_from_its_last_look_to_the_same_end(
    at, left, straight, tmp_path
):
    kill(tiny.settings(), tmp_path, at)
    resumed, shares = Pretraining(tiny.settings(), 0), []
    resumed.train(tmp_path, shares.append)
    assert shares == pytest.approx([(step + 1) / 6 for step in range(6 - left, 6)])
    assert equal(resumed.model, straight.model) and resumed.curve.equals(straight.curve)


def test_a_training_may_be_killed_again_and_again_and_across_epochs(tmp_path):
    """40 dialogues in batches of 16 are three updates an epoch."""
    whole = trained(tmp_path / "whole", items=40, steps=8)
    for at in (3, 2, 3):
        kill(tiny.settings(items=40, steps=8), tmp_path / "parts", at)
    assert equal(trained(tmp_path / "parts", items=40, steps=8).model, whole.model)


def test_the_same_seed_gives_the_same_weights_whatever_torch_drew_and_another_seed_others(
    straight, tmp_path
):
    torch.manual_seed(12345)
    before = torch.get_rng_state()
    assert equal(trained(tmp_path / "same").model, straight.model)
    assert not equal(trained(tmp_path / "other", seed=1).model, straight.model)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_target_that_is_out_of_reach_is_an_error_with_numbers_and_a_remedy(tmp_path):
    said = r"after 6 updates.*\d+% of chain at difficulty 3, not 90%.*steps.*params.yaml"
    with pytest.raises(NotLearned, match=said):
        trained(tmp_path, target=Target(family="chain", difficulty=3, accuracy=0.9))


def test_a_training_goes_through_all_steps_and_asks_then(tmp_path, monkeypatch):
    """One that stopped when it is good enough would be another one on another processor."""
    said = iter([0.2, 0.9, 0.7])
    monkeypatch.setattr(
        "lib.language_models.training.pretraining.verify_replies",
        lambda *asked: np.array([next(said)]),
    )
    training = trained(tmp_path, target=Target(family="chain", difficulty=1, accuracy=0.5))
    assert training.step == tiny.settings().steps and training.curve["accuracy"].tolist() == [
        0.2,
        0.9,
        0.7,
    ]


def test_the_target_is_looked_at_on_dev_items_of_its_difficulty():
    training = Pretraining(
        tiny.settings(target=Target(family="chain", difficulty=5, accuracy=0.5)), 3
    )
    assert len(training.dev_set) == DEV_ITEMS
    items = [verdict.args[0] for _, verdict in training.dev_set]
    assert {(i.group, i.difficulty, i.split) for i in items} == {("chain", 5, "dev")}
    assert [ids for ids, _ in training.dev_set] == [
        encode_conversation(write_question(item)) for item in items
    ]
    for item, (_, correct) in zip(items, training.dev_set, strict=True):
        assert correct(item.solution) and not correct("")


def test_an_agent_is_looked_at_in_its_roles():
    target = Target(family="big", difficulty=1, style="agent", accuracy=0.5)
    training = Pretraining(tiny.settings(target=target), 3)
    wanted = [verdict.keywords["target"] for _, verdict in training.dev_set]
    assert 10 < sum(text.startswith("<call> calculator") for text in wanted) < 90
    assert all(
        verdict(text) and not verdict("")
        for (_, verdict), text in zip(training.dev_set, wanted, strict=True)
    )


def test_a_model_with_a_base_starts_from_its_weights(tmp_path):
    base = tiny.model(seed=7)
    training = Pretraining(tiny.settings(), 0, base)
    held = {name: weight.clone() for name, weight in tiny.model(seed=7).named_parameters()}
    assert all(
        torch.equal(weight, held[name]) for name, weight in training.model.named_parameters()
    )
    model = training.train(tmp_path, ignore)
    changed = [
        name for name, weight in model.named_parameters() if not torch.equal(weight, held[name])
    ]
    assert len(changed) == len(held)


def test_a_training_goes_through_all_updates_its_loss_falls_and_it_leaves_no_checkpoint(tmp_path):
    training = trained(tmp_path, steps=40, check_every=20, batch=32, items=600, warmup=4)
    assert training.step == 40 and not training.model.training
    assert list(training.curve) == ["step", "loss", "accuracy"] and training.curve[
        "step"
    ].tolist() == [20, 40]
    first, second = training.curve["loss"]
    assert 0 < second < first - 0.5 and first < np.log(400)
    assert not (tmp_path / "checkpoint.safetensors").exists()


def test_the_learning_rate_rises_stays_and_falls_towards_the_last_update():
    training = Pretraining(tiny.settings(steps=100, warmup=10), 0)
    rates = []
    for training.step in range(100):
        rates.append(training._compute_schedule())
    assert rates[0] == 0.1 and rates[9:61] == [1.0] * 52 and rates[-1] == pytest.approx(1 / 40)
    assert rates[:10] == sorted(rates[:10]) and rates[60:] == sorted(rates[60:], reverse=True)


BROKEN = {
    "empty": lambda path: path.write_bytes(b""),
    "no safetensors": lambda path: path.write_bytes(
        b"not a checkpoint, but long enough for a header"
    ),
    "cut off": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    "another file": lambda path: artifacts.write_tensors(path, {"x": np.zeros(3)}),
    "without rows": lambda path: rewrite(path, lambda arrays: arrays.pop("rows")),
    "without a weight": lambda path: rewrite(
        path, lambda arrays: arrays.pop("model.model.norm.weight")
    ),
    "of another size": lambda path: rewrite(
        path, lambda a: a.update({"model.model.norm.weight": np.ones(7)})
    ),
}


def rewrite(path, change) -> None:
    arrays = artifacts.read_tensors(path)
    change(arrays)
    artifacts.write_tensors(path, arrays)


@pytest.mark.parametrize("damage", BROKEN.values(), ids=BROKEN)
def test_a_broken_checkpoint_is_an_error_that_names_the_file(damage, tmp_path):
    kill(tiny.settings(), tmp_path, 3)
    damage(tmp_path / "checkpoint.safetensors")
    with pytest.raises(ValueError, match="checkpoint.safetensors"):
        Pretraining(tiny.settings(), 0).train(tmp_path, ignore)


# What is taught -----------------------------------------------------------------------------------

MIXTURE = [
    MixtureComponent(family="chain", difficulties=[1, 2], skin="plain", share=3.0),
    MixtureComponent(family="belief", difficulties=[2], style="brief"),
    MixtureComponent(family="big", difficulties=[1, 3], style="agent", share=2.0),
]


def turns(dialogue) -> list[tuple[str, str]]:
    """Roles and texts of a dialogue."""
    roles, out = {encode_special(name): role for role, name in ROLES.items()}, []
    for i in dialogue.ids[1:]:
        if i in roles:
            out.append((roles[i], []))
        elif i != encode_special(EOS):
            out[-1][1].append(i)
    return [(role, decode(ids)) for role, ids in out]


def kind(dialogue) -> str:
    (first, *_), text = turns(dialogue)[0], " ".join(text for _, text in turns(dialogue))
    if first == "system":
        return "big"
    return "belief" if "Where does" in text else "chain"


@pytest.fixture(scope="module")
def taught() -> list:
    return build_corpus(MIXTURE, 600, 0)


def test_shares_are_what_the_data_mixture_says_and_courses_are_mixed(taught):
    kinds = [kind(dialogue) for dialogue in taught]
    assert [kinds.count(name) for name in ("chain", "belief", "big")] == [300, 100, 200]
    assert all(30 < kinds[start : start + 100].count("chain") < 70 for start in range(0, 600, 100))


def test_a_corpus_is_reproducible_and_another_seeds_is_another(taught):
    assert build_corpus(MIXTURE, 600, 0) == taught != build_corpus(MIXTURE, 600, 1)


def test_styles_are_plain_brief_and_agent(taught):
    for dialogue in taught:
        said = turns(dialogue)
        match kind(dialogue):
            case "chain":
                assert [role for role, _ in said] == ["user", "assistant"] and said[1][
                    1
                ].startswith("<think>")
            case "belief":
                assert [role for role, _ in said] == ["user", "assistant"] and said[1][
                    1
                ].startswith("<answer>")
            case "big":
                assert said[0][1].startswith("role ")


def test_nothing_of_dev_or_test_is_taught():
    """The key is read back from the question; chain in signs, and sums and products wherever they stand."""
    seen = set()
    for dialogue in build_corpus(MIXTURE, 1_500, 0):
        question = next(text for role, text in turns(dialogue) if role == "user")
        if found := re.fullmatch(r"(\d(?: [-+*] \d)+) = \?", question):
            key = f"chain/{found[1]}"
        elif found := re.search(r"(\d\d+) ([+*]) (\d\d+) = \?", question):
            key = f"big/{found[1]}{found[2]}{found[3]}"
        else:
            key = f"belief/{question}"
        tenth = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "little") % 10
        assert tenth < 8, question
        seen.add(key.split("/")[0])
    assert seen == {"chain", "big", "belief"}


@pytest.mark.parametrize(("n", "size"), [(3, 4), (200, 16), (601, 16), (64, 64), (130, 7)])
def test_an_epochs_batches_hold_every_dialogue_once(n, size):
    dialogues = build_corpus(MIXTURE, n, 0)
    made = make_batches(dialogues, size, 0, 0)
    assert sorted(np.concatenate(made).tolist()) == list(range(len(dialogues)))
    assert max(map(len, made)) <= size and len(made) == -(-len(dialogues) // size)


def test_every_epoch_has_an_order_of_its_own_that_is_reproducible(taught):
    orders = [
        np.concatenate(make_batches(taught, 16, seed, epoch)).tolist()
        for seed in (0, 1)
        for epoch in (0, 1)
    ]
    assert len({tuple(order) for order in orders}) == 4
    first, second = (
        {frozenset(batch.tolist()) for batch in make_batches(taught, 16, 0, epoch)}
        for epoch in (0, 1)
    )
    assert not first & second  # other company, too
    assert np.concatenate(make_batches(taught, 16, 1, 1)).tolist() == orders[-1]


def test_like_lengths_share_a_batch(taught):
    lengths = np.array([len(d.ids) for d in taught])
    within = np.mean([np.ptp(lengths[batch]) for batch in make_batches(taught, 16, 0, 0)])
    assert within < 0.6 * np.mean([np.ptp(lengths[i : i + 16]) for i in range(0, 592, 16)])


# Models on disk -----------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    return checkpoints.save(tiny.model(), tmp_path / "model")


def reconfigure(folder, **changes) -> None:
    artifacts.write_json(
        folder / "config.json", artifacts.read_json(folder / "config.json") | changes
    )


def test_a_model_that_was_saved_gives_the_same_logits(folder):
    ids = torch.tensor([tiny.prompts(1, seed=1)[0]])
    opened = checkpoints.load(folder)
    assert not opened.training
    with torch.inference_mode():
        assert torch.equal(opened(ids).logits, tiny.model()(ids).logits)
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= names
    assert {path.suffix for path in folder.iterdir()} <= {
        ".json",
        ".safetensors",
        ".jinja",
    }  # nothing that runs


SPOILED = {
    "no folder": lambda folder: [path.unlink() for path in folder.iterdir()],
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "empty weights": lambda folder: (folder / "model.safetensors").write_bytes(b""),
    "weights that are none": lambda folder: (folder / "model.safetensors").write_bytes(
        b"pickle? " * 20
    ),
    "weights cut off": lambda folder: os.truncate(folder / "model.safetensors", 10_000),
    "config no json": lambda folder: (folder / "config.json").write_text("{"),
    "config a list": lambda folder: (folder / "config.json").write_text("[]"),
    "wider": lambda folder: reconfigure(folder, hidden_size=64),
    "more words": lambda folder: reconfigure(folder, vocab_size=999),
    "deeper": lambda folder: reconfigure(folder, num_hidden_layers=3),
    "less deep": lambda folder: reconfigure(folder, num_hidden_layers=1),
    "another head": lambda folder: reconfigure(folder, tie_word_embeddings=False),
}


@pytest.mark.parametrize("spoil", SPOILED.values(), ids=SPOILED)
def test_a_folder_that_is_no_whole_model_is_an_error_that_names_it_and_the_remedy(spoil, folder):
    spoil(folder)
    with pytest.raises(ModelError, match=f"{re.escape(str(folder))}.*make repro"):
        checkpoints.load(folder)


# Bases --------------------------------------------------------------------------------------------


def lab(**models) -> LabSettings:
    """Settings of a lab with these models; each a tiny one with some changes."""
    whole = load("smoke").lab.model_dump()
    made = {name: tiny.settings().model_dump() | changes for name, changes in models.items()}
    alone = next((name for name, model in made.items() if not model["base"]), "nobody")
    return validate_settings(whole | {"models": made, "demo_model": alone}, LabSettings, "a test")


def test_bases_are_trained_before_those_that_start_from_them_and_heavy_chains_first():
    settings = lab(
        small={"hidden": 16},
        grandchild={"base": "child"},
        child={"base": "large"},
        large={},
        deep={"layers": 9},
        other={"base": "small", "hidden": 16},
        second={"base": "large"},
    )
    assert build.list_training_chains(settings) == [
        ["deep"],
        ["large", "child", "grandchild", "second"],
        ["small", "other"],
    ]


def test_the_labs_own_models_can_all_be_trained():
    for profile in PROFILES:
        settings = load(profile).lab
        order = [name for chain in build.list_training_chains(settings) for name in chain]
        assert sorted(order) == sorted(settings.models)
        assert all(
            order.index(m.base) < order.index(name) for name, m in settings.models.items() if m.base
        )


def test_a_model_is_another_one_if_its_base_is():
    one, again, other = (
        lab(child={"base": "large"}, large={"muon": muon}) for muon in (0.01, 0.01, 0.02)
    )
    keys = [build.make_training_job(settings, "child").key for settings in (one, again, other)]
    assert keys[0] == keys[1] != keys[2]
    alone = lab(small={}, large={"muon": 0.01})
    assert build.make_training_job(one, "large").key == build.make_training_job(alone, "large").key


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ({"child": {"base": "parent"}}, "child starts from 'parent'.*'child'"),
        ({"child": {"base": "child"}}, "child starts from 'child'"),
        ({"one": {"base": "two"}, "two": {"base": "one"}}, "starts from '(one|two)'"),
        (
            {"one": {"base": "two"}, "two": {"base": "three"}, "three": {"base": "two"}},
            "starts from '(two|three)'",
        ),
        (
            {"child": {"base": "large", "hidden": 64}, "large": {}},
            "child starts from large.*same hidden",
        ),
        (
            {"child": {"base": "large", "window": 512}, "large": {}},
            "child starts from large.*window",
        ),
    ],
    ids=str,
)
def test_a_base_that_cannot_be_is_named(models, said):
    with pytest.raises(ParamsError, match=said):
        lab(**models)


def training_job(settings) -> sweep.Job:
    return sweep.Job("m", {"name": "m", "model": settings.model_dump(), "seed": 5})


def test_a_training_that_misses_its_target_is_tried_again_with_another_seed(tmp_path, monkeypatch):
    said = iter([0.1, 0.2, 0.3, 0.4, 0.4, 0.9])
    monkeypatch.setattr(
        "lib.language_models.training.pretraining.verify_replies",
        lambda *asked: np.array([next(said)]),
    )
    target = Target(family="chain", difficulty=1, accuracy=0.5)
    settings = tiny.settings(target=target, attempts=2)  # three looks each
    result = build.train_model(training_job(settings), tmp_path, ignore)
    assert result == {"attempt": 2} and (tmp_path / "missed-0.json").exists()
    monkeypatch.setattr(
        "lib.language_models.training.pretraining.verify_replies", lambda *asked: np.array([0.9])
    )
    again = trained(tmp_path / "again", seed=1005, target=target)
    weights = checkpoints.load(tmp_path / "model").state_dict()
    wanted = released_weights.round_weights(again.model).state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in wanted.items())


def test_when_every_attempt_misses_the_last_excuse_is_raised(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "lib.language_models.training.pretraining.verify_replies", lambda *asked: np.array([0.1])
    )
    settings = tiny.settings(target=Target(family="chain", difficulty=1, accuracy=0.5), attempts=2)
    job = training_job(settings)
    for _ in range(2):  # the second time nothing is trained again
        with pytest.raises(NotLearned, match="10%"):
            build.train_model(job, tmp_path, ignore)
    assert len(list(tmp_path.glob("missed-*.json"))) == 2
