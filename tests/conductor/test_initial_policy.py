"""The start that errs: the declared share of typical mistakes, in form, on items that nobody else is asked."""

import copy

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from lib import tasks
from lib.conductor import data, initial_policy
from lib.conductor.rewards import well_formed
from lib.config import StartSettings
from lib.experiment import artifacts, seeds
from lib.experiment.harness import JobRun
from lib.language_models import checkpoints
from lib.language_models.training.training_data import collate, tokenize_dialogue, write_question
from lib.tasks import arithmetic_chain
from tests.language_models import tiny


def settings(**changes) -> StartSettings:
    return StartSettings(
        **({"items": 900, "mistakes": 0.6, "batch": 16, "learning_rate": 1e-2} | changes)
    )


@pytest.mark.parametrize("mistakes", [0.0, 0.3, 0.6, 1.0])
def test_the_declared_share_of_the_replies_in_every_category_is_wrong_and_in_form(mistakes):
    taught = initial_policy.lessons(settings(mistakes=mistakes), 0)
    assert all(well_formed(text) for _, text in taught)
    for name in data.CATEGORIES:
        mine = [(item, text) for item, text in taught if data.category(item) == name]
        wrong = np.mean([tasks.score_reply(item, text) < 1 for item, text in mine])
        # a chain of zeros is right however it is read, and a few sentences mean the same in either order
        assert abs(wrong - mistakes) < 3 * (0.25 / len(mine)) ** 0.5 + 0.02, name
        thoughts = np.mean(["<think>" in text for _, text in mine])
        assert abs(thoughts - (0.5 if name in data.THOUGHTFUL else 0)) < 0.1


def test_mistakes_are_those_of_their_kind():
    rng = seeds.rng("test of mistakes")
    dial = next(i for i in data.draw("dev", 9, categories=["reasoning"]) if i.difficulty == 3)
    thought, answer = initial_policy.mistake(dial, rng)
    _, *rest = dial.id.removeprefix("chain/").split()
    signs = [step.split()[1] for step in thought.split(" ; ")]
    assert (
        sum(a != b for a, b in zip(signs, rest[::2], strict=True)) == 1
        and answer == thought.split()[-1]
    )
    for step in thought.split(" ; "):  # the sums themselves are right
        a, sign, b, _, result = step.split()
        assert arithmetic_chain.OPERATIONS[sign](int(a), int(b)) == int(result)
    tale = next(item for item in data.draw("dev", 9, categories=["story"]) if item.difficulty == 2)
    attempt, ending = tale.reference.split(" . ")
    assert initial_policy.mistake(tale, rng) == ("", f"{ending} {attempt} .")
    said = data.draw("dev", 1, categories=["translation"])[0]
    thought, answer = initial_policy.mistake(said, rng)
    assert f"Translate : {thought}" == said.prompt and sorted(answer.split()) == sorted(
        said.reference.split()
    )


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_no_exam_and_no_prompt_of_the_reward_model_is_seen(seed):
    seen = {item.id for item, _ in initial_policy.lessons(settings(), seed)}
    for held in (
        data.draw("dev", 600),
        data.draw("test", 600),
        data.draw("train", 600, part="judge"),
    ):
        assert not seen & {item.id for item in held}


def test_starts_of_two_seeds_differ_and_that_of_one_is_the_same_twice(place, tmp_path):
    few_items = settings(items=48)
    weights = []
    for i, seed in enumerate([0, 0, 1]):
        job = initial_policy.make_job(few_items, place, seed)
        initial_policy.work(JobRun(job, tmp_path / str(i), None, None), str(place))
        weights.append(artifacts.sha256_file(tmp_path / str(i) / "model" / "model.safetensors"))
    assert weights[0] == weights[1] != weights[2]
    assert (
        initial_policy.make_job(few_items, place, 0).key
        != initial_policy.make_job(few_items, place, 1).key
    )


def test_a_start_is_another_one_where_its_settings_its_policy_or_the_code_change(
    place, tmp_path, monkeypatch
):
    key = initial_policy.make_job(settings(), place, 0).key
    other_policy = checkpoints.save(tiny.model(1), tmp_path / "policy")
    assert initial_policy.make_job(settings(mistakes=0.5), place, 0).key != key
    assert initial_policy.make_job(settings(), other_policy, 0).key != key
    for module in (initial_policy, data, tasks, seeds):
        with monkeypatch.context() as patch:
            patch.setattr(module, "VERSION", module.VERSION + 1)
            assert initial_policy.make_job(settings(), place, 0).key != key, module.__name__
    assert initial_policy.make_job(settings(), place, 0).key == key


def test_a_policy_learns_what_it_is_taught_by_the_share_of_mistakes(policy):
    """Lessons with nothing but mistakes take the right reply's lead over a mistake (in nats)."""
    item = data.draw("dev", 1, categories=["translation"])[0]
    wrong = tasks.format_reply(initial_policy.mistake(item, seeds.rng("any"))[1])
    said = [
        tokenize_dialogue([*write_question(item), {"role": "assistant", "content": t}])
        for t in (tasks.format_reply(item.reference), wrong)
    ]
    ids, targets = collate(said)
    ahead = {}
    for mistakes in (0.0, 1.0):
        model = copy.deepcopy(policy)
        initial_policy.teach(
            model, initial_policy.lessons(settings(items=240, mistakes=mistakes), 0), settings()
        )
        with torch.no_grad():
            logp = -cross_entropy(
                model(ids).logits[:, :-1].transpose(1, 2), targets[:, 1:], reduction="none"
            ).sum(1)
        ahead[mistakes] = float(logp[0] - logp[1])
    assert ahead[0.0] > ahead[1.0] + 10
