"""Traces: the controller's words alone are learned, every turn is read as it was meant, and rules are obeyed."""

from collections import Counter

import numpy as np
import pytest
import torch

from lib import seeds
from lib.models import checkpoints
from lib.models.corpus import IGNORED, Dialogue, tensors
from lib.models.dialogue import conversation, token
from lib.models.tokenizer import EOS, decode
from lib.params import WarmSettings
from lib.routing import protocol, warm
from lib.routing.protocol import Answer, Call
from lib.tasks import Item, answered
from tests.models import tiny
from tests.routing.small import EXPERTS, SMOKE, items

ROUNDS = 4
ITEMS = items(60, list(range(1, 9)), "train", 1)
STYLED = [("soft", "low"), ("soft", "high"), ("hard", "low"), ("hard", "medium"), ("hard", "high"), ("number", "004")]


def trace(item: Item, style: str, budget: str, seed: int = 0, rounds: int = ROUNDS) -> Dialogue:
    return warm.trace(item, style, budget, EXPERTS, rounds, seeds.rng("test", item.prompt, seed=seed))


def parts(dialogue: Dialogue, prompt: int) -> list[tuple[bool, str]]:
    """What follows the prompt, by who wrote it: (learned?, text), the end of turn left out."""
    out: list[tuple[bool, list[int]]] = []
    for i, target in zip(dialogue.ids[prompt:-1], dialogue.targets[prompt:-1], strict=True):
        learned = target != IGNORED
        if not out or out[-1][0] != learned:
            out.append((learned, []))
        out[-1][1].append(i)
    return [(learned, decode(ids)) for learned, ids in out]


def taken(item: Item, style: str, budget: str, seed: int = 0, rounds: int = ROUNDS):
    """Turns (parsed) and responses of a trace."""
    told = trace(item, style, budget, seed, rounds)
    asked = conversation(protocol.messages(style, budget, item.prompt))
    told = parts(told, len(asked))
    return [protocol.parse(text, EXPERTS) for own, text in told if own], [text for own, text in told if not own]


def followed(item: Item, turns, responses) -> str:
    """What has to be answered if all responses are believed."""
    chain = item.prompt.removesuffix(" = ?").split()
    for turn, response in zip(turns, responses, strict=False):
        asked = turn.query.removesuffix(" = ?").split()
        assert asked == chain[: len(asked)] and len(asked) >= 3  # the next operations, at least one
        said = response.removeprefix("<response> ").removesuffix(" </response>")
        if said != protocol.ERROR:
            chain = [said, *chain[len(asked) :]]
    return warm.result(chain)


# Whose words --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("style", "budget"), STYLED)
def test_prompt_and_responses_are_given_and_the_controllers_words_are_learned(style, budget):
    for item in ITEMS:
        told = trace(item, style, budget)
        asked = conversation(protocol.messages(style, budget, item.prompt))
        assert list(told.ids[: len(asked)]) == asked and set(told.targets[: len(asked)]) == {IGNORED}
        assert told.ids[-1] == token(EOS) and told.targets[-1] == IGNORED
        assert all(target in (IGNORED, i) for i, target in zip(told.ids, told.targets, strict=True))
        stretches = parts(told, len(asked))
        assert [own for own, _ in stretches] == [i % 2 == 0 for i in range(len(stretches))] and stretches[-1][0]
        for own, text in stretches:
            assert text.startswith("<think>" if own else "<response>") and text.endswith(">")


@pytest.mark.parametrize(("style", "budget"), STYLED)
@pytest.mark.parametrize("rounds", [2, 4])
def test_every_turn_is_read_as_it_was_meant_and_the_last_one_answers(style, budget, rounds):
    for item in ITEMS:
        turns, responses = taken(item, style, budget, rounds=rounds)
        assert all(isinstance(turn, Call) for turn in turns[:-1]) and isinstance(turns[-1], Answer)
        assert len(turns) == len(responses) + 1 <= rounds
        assert all(turn.expert in EXPERTS for turn in turns[:-1])


# What is right ------------------------------------------------------------------------------------


def test_a_chain_is_worked_out_by_hand():
    """3 + 4 = 7, 7 * 2 = 14, 4 - 9 = -5."""
    assert warm.steps(["3", "+", "4", "*", "2", "-", "9"]) == ["3 + 4 = 7", "7 * 2 = 4", "4 - 9 = 5"]
    assert (
        warm.result(["3", "+", "4", "*", "2", "-", "9"]) == "5"
        and warm.result(["8"]) == "8"
        and warm.steps(["8"]) == []
    )
    assert all(warm.result(item.prompt.removesuffix(" = ?").split()) == item.answer for item in ITEMS)


@pytest.mark.parametrize(("style", "budget"), STYLED)
def test_where_every_response_is_right_the_answer_is(style, budget, monkeypatch):
    monkeypatch.setattr(warm, "_said", lambda part, rng: warm.result(part))
    called = 0
    for item in ITEMS:
        turns, responses = taken(item, style, budget)
        assert answered(turns[-1].text) == item.answer
        called += len(responses)
    assert called > 0 or (style, budget) == ("hard", "low")


@pytest.mark.parametrize("said", ["7", "error"])
def test_the_answer_follows_what_was_said_be_it_right_or_wrong(said, monkeypatch):
    monkeypatch.setattr(warm, "_said", lambda part, rng: said)
    answers = []
    for item in ITEMS:
        turns, responses = taken(item, "hard", "high")
        assert responses == [f"<response> {said} </response>"] * (len(turns) - 1)
        assert answered(turns[-1].text) == followed(item, turns, responses)
        answers.append(answered(turns[-1].text) == item.answer)
    assert all(answers) if said == "error" else np.mean(answers) < 0.5


@pytest.mark.parametrize(("style", "budget"), STYLED)
def test_the_answer_follows_the_responses_that_were_drawn(style, budget):
    for seed, item in enumerate(ITEMS):
        turns, responses = taken(item, style, budget, seed)
        assert answered(turns[-1].text) == followed(item, turns, responses)


def test_what_it_can_work_out_is_worked_out_and_the_thought_tells_what_is_left():
    for item in ITEMS:
        told = trace(item, "hard", "low")
        ((own, text),) = parts(told, len(conversation(protocol.messages("hard", "low", item.prompt))))
        thought = text.removeprefix("<think> low ").split(" </think>")[0]
        worked = warm.steps(item.prompt.removesuffix(" = ?").split()) if item.difficulty <= warm.SKILL else []
        assert own and thought == " ; ".join([str(item.difficulty), *worked])


# By lot -------------------------------------------------------------------------------------------


def test_low_budgets_lean_to_cheap_experts_and_high_ones_to_dear_ones_and_no_expert_is_left_out():
    rng = np.random.default_rng(0)
    shares = {}
    for budget in protocol.WORDS:
        drawn = Counter(warm._expert(EXPERTS, warm.lean(budget), rng) for _ in range(3_000))
        shares[budget] = [drawn[name] / 3_000 for name in EXPERTS]
    low, high = (np.linspace(1 - tilt, 1 + tilt, 3) / 3 for tilt in (warm.lean("low"), warm.lean("high")))
    assert shares["low"] == pytest.approx(low, abs=0.03) and low[0] > low[1] > low[2] > 0
    assert shares["medium"] == pytest.approx([1 / 3] * 3, abs=0.03)
    assert shares["high"] == pytest.approx(high, abs=0.03) and 0 < high[0] < high[1] < high[2]


def test_equal_arguments_give_equal_traces_and_every_style_has_its_share():
    first, again, other = (warm.corpus(ITEMS, EXPERTS, ROUNDS, seed) for seed in (0, 0, 1))
    assert first == again != other and len(first) == len(ITEMS)
    many = warm.corpus(items(1_000, split="train"), EXPERTS, ROUNDS, 0)
    texts = [decode(told.ids).split(" <")[0] for told in many]
    hard = np.mean([" only" in text for text in texts])
    number = np.mean([text.split()[1].isdigit() for text in texts])
    assert (hard, number) == pytest.approx((warm.STYLES["hard"], warm.STYLES["number"]), abs=0.05)


def test_training_makes_traces_likelier_and_is_the_same_every_time(tmp_path):
    shape = tiny.settings(batch=16, warmup=2)
    base = checkpoints.save(tiny.model(0, spread=3.0), tmp_path / "base")
    told = SMOKE.model_copy(update={"warm": WarmSettings(items=200, steps=20, batch=16, lean=0.6, seed=0)})
    done = []
    folders = [warm.train(base, shape, told, tmp_path / name, done.append) for name in "ab"]
    assert done[:20] == pytest.approx([(i + 1) / 20 for i in range(20)])
    ids, targets = tensors(warm.corpus(items(32, split="dev"), EXPERTS, ROUNDS, 1))

    def loss(folder) -> float:
        with torch.no_grad():
            logits = checkpoints.load(folder)(ids).logits[:, :-1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten()).item()

    assert loss(folders[0]) == loss(folders[1]) < 0.7 * loss(base)
    assert shape.steps == tiny.settings().steps  # the base's own settings stay


def test_hard_traces_obey_their_rule():
    """Never call; call for more than two operations; always call, but for the last turn and where nothing is left."""
    for item in ITEMS:
        assert len(taken(item, "hard", "low")[0]) == 1
        for budget, reach in (("medium", warm.SKILL), ("high", 0)):
            turns, responses = taken(item, "hard", budget)
            left = item.difficulty
            for turn, response in zip(turns, responses, strict=False):
                assert left > reach
                left -= 0 if protocol.ERROR in response else len(turn.query.removesuffix(" = ?").split()) // 2
            assert left <= reach or len(turns) == ROUNDS


def test_some_responses_are_wrong_and_some_are_missing():
    rng, part = np.random.default_rng(0), ["3", "+", "4"]
    said = Counter(warm._said(part, rng) for _ in range(4_000))
    assert said["error"] / 4_000 == pytest.approx(warm.MISSING, abs=0.01)
    wrong = 4_000 - said["error"] - said["7"]
    assert wrong / 4_000 == pytest.approx(0.9 * warm.WRONG, abs=0.015)  # one digit of ten is right by chance
    assert set(said) == {"error", *map(str, range(10))}


def test_traces_lean_by_the_word_or_by_the_logarithm_of_the_number():
    low, middle, high = (warm.lean(word) for word in protocol.WORDS)
    assert low < middle == 0 < high == -low
    leans = [warm.lean(text) for text in ("000", "001", "002", "020", "200", "400", "999")]
    assert leans[0] == leans[1] == low and leans[4:] == pytest.approx([high] * 3)  # 200 is the largest that is drawn
    assert leans == sorted(leans)
    assert leans[4] - leans[3] == pytest.approx(leans[3] - leans[2])  # ten times more, twice


def test_without_a_lean_the_budget_changes_no_trace():
    for item in ITEMS[:20]:
        told = {
            word: warm.trace(item, "soft", word, EXPERTS, ROUNDS, seeds.rng("test", item.prompt), most=0.0)
            for word in protocol.WORDS
        }
        called = {word: decode(x.ids).replace(word, "B") for word, x in told.items()}
        assert called["low"] == called["medium"] == called["high"]
    assert warm.lean("high", 0.3) == -warm.lean("low", 0.3) == 0.3 and warm.lean("200", 0.3) == pytest.approx(0.3)


def test_short_parts_are_drawn_more_often_than_long_ones():
    drawn = [warm._length(6, np.random.default_rng(i)) for i in range(600)]
    counts = [drawn.count(n) for n in (2, 4, 6)]
    assert sum(counts) == 600 and counts[0] > 1.5 * counts[1] > 1.8 * counts[2] > 0
    assert {warm._length(1, np.random.default_rng(i)) for i in range(20)} == {1}


def test_budgets_are_drawn_from_words_or_from_a_range_of_numbers():
    rng = np.random.default_rng(0)
    assert {warm.drawn_budget("soft", rng) for _ in range(60)} == set(protocol.WORDS)
    numbers = [warm.drawn_budget("number", rng) for _ in range(600)]
    assert {len(text) for text in numbers} == {3} and min(numbers) == "001" and "150" < max(numbers) <= "200"
    assert 0.3 < np.mean([n < "014" for n in numbers]) < 0.7  # even on a logarithmic scale
