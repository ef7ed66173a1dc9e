"""Traces: the controller's words alone are learned, every turn is read as it was meant, and no budget is told apart."""

from collections import Counter
from itertools import groupby

import numpy as np
import pytest
import torch

from lib import tasks
from lib.config import LabModelSettings, WarmSettings
from lib.experiment import seeds
from lib.language_models import checkpoints
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.tokenizer import EOS, decode
from lib.language_models.training.training_data import IGNORE_INDEX, Dialogue, collate
from lib.rl import call_protocol, sft_warmup
from lib.rl.call_protocol import Answer, Call
from lib.tasks import Item, extract_answer
from tests.budgeted_routing.small_systems import EXPERTS, SMOKE
from tests.language_models import tiny

ROUNDS = 4
BUDGET_RANGE = (5, 160)
QUESTIONS = {"chain": [1, 2, 7, 8], "facts": [1, 2, 3], "passage": [1, 3], "big": [1, 2]}
ITEMS = tasks.draw_evenly(QUESTIONS, "train", 80, seed=1)
ANSWERS = {name: [item.reference for item in ITEMS if item.group == name] for name in QUESTIONS}
STYLED = [
    ("soft", "low"),
    ("soft", "high"),
    ("hard", "low"),
    ("hard", "medium"),
    ("hard", "high"),
    ("number", "040"),
]


def trace(item: Item, style: str, budget: str, seed: int = 0, rounds: int = ROUNDS) -> Dialogue:
    return sft_warmup.make_trace(
        item, style, budget, EXPERTS, rounds, seeds.rng("test", item.prompt, seed=seed), ANSWERS
    )


def parts(dialogue: Dialogue, prompt: int) -> list[tuple[bool, str]]:
    """What follows the prompt, by who wrote it: (learned?, text), the end of turn left out."""
    after = zip(dialogue.ids[prompt:-1], dialogue.targets[prompt:-1], strict=True)
    runs = groupby(after, lambda pair: pair[1] != IGNORE_INDEX)
    return [(learned, decode([i for i, _ in run])) for learned, run in runs]


def taken(item: Item, style: str, budget: str, seed: int = 0, rounds: int = ROUNDS):
    """Turns (parsed) and responses of a trace."""
    asked = encode_conversation(call_protocol.make_messages(style, budget, item.prompt))
    told = parts(trace(item, style, budget, seed, rounds), len(asked))
    return [call_protocol.parse_turn(text, EXPERTS) for own, text in told if own], [
        text for own, text in told if not own
    ]


@pytest.mark.parametrize(("style", "budget"), STYLED)
@pytest.mark.parametrize("rounds", [2, 4])
def test_the_controllers_words_are_learned_and_read_as_they_were_meant_and_the_last_turn_answers(
    style, budget, rounds
):
    for item in ITEMS:
        told = trace(item, style, budget, rounds=rounds)
        asked = encode_conversation(call_protocol.make_messages(style, budget, item.prompt))
        assert list(told.ids[: len(asked)]) == asked and set(told.targets[: len(asked)]) == {
            IGNORE_INDEX
        }
        assert told.ids[-1] == encode_special(EOS) and told.targets[-1] == IGNORE_INDEX
        assert all(
            target in (IGNORE_INDEX, i) for i, target in zip(told.ids, told.targets, strict=True)
        )
        stretches = parts(told, len(asked))
        assert [own for own, _ in stretches] == [
            i % 2 == 0 for i in range(len(stretches))
        ] and stretches[-1][0]
        for own, text in stretches:
            assert text.startswith("<think>" if own else "<response>") and text.endswith(">")
        turns, responses = taken(item, style, budget, rounds=rounds)
        assert all(isinstance(turn, Call) and turn.expert in EXPERTS for turn in turns[:-1])
        assert isinstance(turns[-1], Answer) and len(turns) == len(responses) + 1 <= rounds


def test_a_chain_is_worked_out_by_hand():
    """3 + 4 = 7, 7 * 2 = 14, 4 - 9 = -5."""
    assert sft_warmup.solve_chain(["3", "+", "4", "*", "2", "-", "9"]) == [
        "3 + 4 = 7",
        "7 * 2 = 4",
        "4 - 9 = 5",
    ]
    assert sft_warmup.solve_chain(["8"]) == [] and sft_warmup.evaluate_chain(["8"]) == "8"
    chains = [item for item in ITEMS if item.group == "chain"]
    assert all(
        sft_warmup.evaluate_chain(item.prompt.removesuffix(" = ?").split()) == item.reference
        for item in chains
    )


@pytest.mark.parametrize("response", ["7", "Loro", call_protocol.ERROR_REPLY])
def test_the_answer_is_the_last_response_be_it_right_or_wrong_unless_it_is_an_error(
    response, monkeypatch
):
    monkeypatch.setattr(sft_warmup, "_draw_response", lambda item, answers, rng: response)
    has_reply = []
    for item in ITEMS:
        turns, responses = taken(item, "soft", "low")
        assert set(responses) <= {f"<response> {response} </response>"}
        has_reply.append(bool(responses) and response != call_protocol.ERROR_REPLY)
        assert (extract_answer(turns[-1].text) == call_protocol.LAST_REPLY) == has_reply[-1]
    assert any(has_reply) == (response != call_protocol.ERROR_REPLY)


def test_alone_it_works_out_short_chains_and_guesses_at_everything_else(monkeypatch):
    monkeypatch.setattr(sft_warmup, "ANSWER_AT_ONCE_PROBABILITY", 1.0)
    correct = {name: [] for name in QUESTIONS}
    for item in ITEMS:
        told = trace(item, "soft", "low")
        ((own, text),) = parts(
            told, len(encode_conversation(call_protocol.make_messages("soft", "low", item.prompt)))
        )
        thought, able = (
            text.split(" </think>")[0],
            item.group == "chain" and item.difficulty <= sft_warmup.MAX_SOLVED_OPERATIONS,
        )
        worked = sft_warmup.solve_chain(item.prompt.removesuffix(" = ?").split()) if able else []
        assert own and thought == " ; ".join(["<think> low", *worked])
        assert not able or extract_answer(text) == item.reference
        assert extract_answer(text) in ANSWERS[item.group]
        if not able:
            correct[item.group].append(extract_answer(text) == item.reference)
    assert all(np.mean(hits) < 0.4 for hits in correct.values()), (
        "a guess knows nothing of the question"
    )


def test_no_budget_and_no_prompt_changes_whether_a_trace_calls_or_whom():
    """What START does under a budget is never what training is praised for."""
    for item in ITEMS:
        called = set()
        for style, budget in STYLED:
            turns, responses = taken(item, style, budget)
            called.add(
                (
                    tuple(turn.expert for turn in turns[:-1]),
                    tuple(responses),
                    extract_answer(turns[-1].text),
                )
            )
        assert len(called) == 1


def test_all_experts_are_called_alike_and_hear_the_question_as_it_stands():
    calls = [
        turn
        for item in ITEMS
        for seed in range(8)
        for turn in taken(item, "soft", "low", seed)[0][:-1]
    ]
    counts = Counter(call.expert for call in calls)
    assert {call.query for call in calls} == {call_protocol.USER_QUESTION}
    assert (
        all(n / len(calls) == pytest.approx(1 / 3, abs=0.06) for n in counts.values())
        and len(counts) == 3
    )


def test_equal_arguments_give_equal_traces_and_every_style_has_its_share():
    first, again, other = (
        sft_warmup.make_traces(ITEMS, EXPERTS, ROUNDS, BUDGET_RANGE, seed) for seed in (0, 0, 1)
    )
    assert first == again != other and len(first) == len(ITEMS)
    many = sft_warmup.make_traces(
        tasks.draw_evenly(QUESTIONS, "train", 1_000), EXPERTS, ROUNDS, BUDGET_RANGE, 0
    )
    texts = [decode(told.ids).split(" <")[0] for told in many]
    hard = np.mean([" only" in text for text in texts])
    number = np.mean([text.split()[1].isdigit() for text in texts])
    assert (hard, number) == pytest.approx(
        (sft_warmup.STYLE_SHARES["hard"], sft_warmup.STYLE_SHARES["number"]), abs=0.05
    )


def test_training_makes_traces_likelier_and_is_the_same_every_time(tmp_path):
    shape = tiny.settings(batch=16, warmup=2)
    base = checkpoints.save(tiny.model(0, spread=3.0), tmp_path / "base")
    told = SMOKE.model_copy(update={"warm": WarmSettings(items=200, steps=20, batch=16, seed=0)})
    done = []
    handed = LabModelSettings.from_job_settings(
        shape.to_job_settings(*sft_warmup.BASE_SETTINGS)
    )  # as a job is
    folders = [
        sft_warmup.train_protocol(base, given, told, EXPERTS, tmp_path / name, done.append)
        for name, given in zip("ab", (shape, handed), strict=True)
    ]
    assert done[:20] == pytest.approx([(i + 1) / 20 for i in range(20)])
    ids, targets = collate(
        sft_warmup.make_traces(
            tasks.draw_evenly(QUESTIONS, "dev", 32), EXPERTS, ROUNDS, BUDGET_RANGE, 1
        )
    )

    def loss(folder) -> float:
        with torch.no_grad():
            logits = checkpoints.load(folder)(ids).logits[:, :-1]
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), targets[:, 1:].flatten()
        ).item()

    assert loss(folders[0]) == loss(folders[1]) < 0.8 * loss(base)
    assert shape.steps == tiny.settings().steps  # the base's own settings stay
    assert sft_warmup.train_protocol(
        base, shape, told, EXPERTS, tmp_path / "c", done.append, seed=1
    )
    assert loss(tmp_path / "c") != loss(folders[0])  # a seed has a start of its own


def test_some_responses_are_wrong_and_some_are_missing():
    rng = np.random.default_rng(0)
    (item,) = [item for item in ITEMS if item.group == "big"][:1]
    responses = Counter(sft_warmup._draw_response(item, ANSWERS, rng) for _ in range(4_000))
    assert responses["error"] / 4_000 == pytest.approx(sft_warmup.MISSING_RESPONSE_SHARE, abs=0.01)
    wrong = 4_000 - responses["error"] - responses[item.reference]
    assert wrong / 4_000 == pytest.approx(sft_warmup.WRONG_RESPONSE_SHARE, abs=0.02)
    assert set(responses) <= {"error", *ANSWERS["big"]}


def test_budgets_are_drawn_from_words_or_from_a_range_of_numbers():
    rng = np.random.default_rng(0)
    assert {call_protocol.draw_budget("soft", rng, (5, 160)) for _ in range(60)} == set(
        call_protocol.BUDGET_WORDS
    )
    numbers = [call_protocol.draw_budget("number", rng, (5, 160)) for _ in range(600)]
    assert (
        {len(text) for text in numbers} == {3}
        and min(numbers) == "005"
        and "140" < max(numbers) <= "160"
    )
    assert 0.3 < np.mean([n < "028" for n in numbers]) < 0.7  # even on a logarithmic scale
