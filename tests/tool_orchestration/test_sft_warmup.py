"""The first lesson: traces in words that the lab has, learned only where the orchestrator speaks, with a preference
bias."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from lib.experiment import seeds
from lib.language_models import tokenizer as lab
from lib.language_models.chat_template import encode_conversation, encode_special, parse_tool_call
from lib.language_models.training.training_data import IGNORE_INDEX
from lib.tasks import extract_answer
from lib.tasks.synthesis import Task, verify_trajectory
from lib.tool_orchestration import episode_specs, experiment, sft_warmup
from lib.tool_orchestration.tool_menu import UserPreference
from tests.tool_orchestration import common
from tests.tool_orchestration.common import NAMES, UNK, given, item, offers, offices

OPEN, CLOSE = "<response>", "</response>"


@pytest.fixture(scope="module")
def traces():
    """Assignments with their traces."""
    rng, works = seeds.rng("a test"), episode_specs.draw_mixed_tasks(300, "train", 0, offices())
    told = [
        sft_warmup.shuffle_descriptions(a, rng)
        for a in episode_specs.draw_assignments(works, offers(), NAMES, 4.0, rng)
    ]
    return [(a, sft_warmup.make_trace(a, 0.5, rng)) for a in told]


def turns(assigned, dialogue) -> list[tuple[str, str]]:
    """What the orchestrator said, turn by turn, and what it heard; after its answer nothing."""
    text = lab.decode(dialogue.ids[len(encode_conversation(assigned.messages)) :])
    parts = (part.partition(OPEN) for part in text.split(CLOSE))
    return [(said.strip(), heard.strip()) for said, _, heard in parts]


def calls(assigned, dialogue) -> list[tuple[str, str]]:
    return [found for said, _ in turns(assigned, dialogue) if (found := parse_tool_call(said))]


def test_traces_are_in_words_of_the_lab_begin_with_the_prompt_and_end(traces):
    for assigned, told in traces:
        prompt = encode_conversation(assigned.messages)
        assert list(told.ids[: len(prompt)]) == prompt and told.ids[-1] == encode_special(lab.EOS)
        *asking, (last, nothing) = turns(assigned, told)
        assert nothing == "" and extract_answer(last) is not None and parse_tool_call(last) is None
        assert all(parse_tool_call(said)[0] in assigned.menu.names for said, _ in asking)
        assert UNK not in told.ids


def test_only_the_orchestrators_words_are_learned(traces):
    """All of them, and neither prompt nor replies."""
    for assigned, told in traces:
        prompt, inside = len(encode_conversation(assigned.messages)), False
        for at, (i, target) in enumerate(zip(told.ids, told.targets, strict=True)):
            piece = lab.decode([i])
            inside = inside or piece == OPEN
            given = at < prompt or inside or at == len(told.ids) - 1
            assert target == (IGNORE_INDEX if given else i)
            inside = inside and piece != CLOSE
        assert not inside


def test_tools_are_used_whether_they_are_good_at_it_or_not(traces):
    """Nothing in the traces tells which tool is able to do what."""
    chains = [(assigned, told) for assigned, told in traces if assigned.kind == "chain"]
    able = Counter(
        name in {o.name for o in a.capable} for a, told in chains for name, _ in calls(a, told)
    )
    assert able[True] > 20 and able[False] > 20


def test_replies_are_mostly_right_sometimes_wrong_or_missing(traces):
    asked = [(a.work.reference, turns(a, told)) for a, told in traces if a.kind in ("chain", "big")]
    replies = [
        (heard, answer)
        for answer, said_and_heard in asked
        for said, heard in said_and_heard
        if parse_tool_call(said)
    ]
    missing = np.mean([heard == "error" for heard, _ in replies])
    correct = np.mean([heard == answer for heard, answer in replies])
    assert correct > 0.7 and 0.04 < missing < 0.2 and 0.01 < 1 - correct - missing < 0.15


def test_after_a_missing_reply_another_tool_is_tried_where_there_is_one(traces):
    seen = 0
    for assigned, told in traces:
        steps, failed = turns(assigned, told), set()
        for (said, heard), (then, _) in pairwise(steps):
            if assigned.kind != "office" and heard == "error" and parse_tool_call(then):
                seen += 1
                failed.add(parse_tool_call(said)[0])
                assert (
                    parse_tool_call(then)[0] not in failed
                    or {o.name for o in assigned.usable} <= failed
                )
    assert seen > 10


def test_short_chains_are_sometimes_worked_out_and_never_wrongly(traces):
    own = [(a, t) for a, t in traces if a.kind == "chain" and not calls(a, t)]
    assert own and all(a.difficulty <= sft_warmup.SKILL for a, _ in own)
    for assigned, told in own:
        ((said, _),) = turns(assigned, told)
        assert (
            extract_answer(said) == assigned.work.reference
            and said.count(";") == assigned.difficulty
        )
    short = [a for a, _ in traces if a.kind == "chain" and a.difficulty <= sft_warmup.SKILL]
    assert 0.1 < len(own) / len(short) < 0.45


def test_traces_of_offices_solve_their_task_when_they_are_carried_out(traces):
    told, failures = [(a, t) for a, t in traces if isinstance(a.work, Task)], 0
    for assigned, dialogue in told:
        database = assigned.work.open()
        *asking, (last, _) = turns(assigned, dialogue)
        for said, heard in asking:
            function, argument = parse_tool_call(said)
            failures += heard == "error"
            assert heard == "error" or database.call(function, argument.split()) == heard
        assert verify_trajectory(assigned.work, database, extract_answer(last)).solved
    assert len(told) > 30 and failures > 2


def test_chances_lean_to_the_cheap_the_fast_and_the_liked():
    names = ("search", "lookup", "lab-nano", "lab-large")

    def chances(*who) -> np.ndarray:
        told = given(item("facts", 1), *names, preference=UserPreference(*who))
        return sft_warmup.compute_tool_probabilities(told, told.usable, 0.5)

    for who, key in (((0, 1, 0), "typical_cost_usd"), ((0, 0, 1), "typical_seconds")):
        told, amounts = chances(*who), [getattr(offers()[n], key) for n in names]
        assert len(set(amounts)) == 4 and told.sum() == pytest.approx(1)
        assert np.argsort(-told).tolist() == np.argsort(amounts).tolist()
    liked = chances(0, 0, 0, ("lookup",))
    assert liked.argmax() == 1 and liked[1] / liked[0] == pytest.approx(np.e)
    assert liked[[0, 2, 3]] == pytest.approx([liked[0]] * 3)


def test_shuffling_deals_out_descriptions_of_models_and_nothing_else():
    rng, moved = seeds.rng("a test"), 0
    told = given(item("chain", 2), "lab-nano", "search", "lab-mini", "answerer", "calculator")
    priced = tuple(
        offer.scale_prices(1.0 + i, 2.0 + i) for i, offer in enumerate(told.menu.offers)
    )  # all different
    told = replace(told, menu=replace(told.menu, offers=priced))
    for _ in range(20):
        after = sft_warmup.shuffle_descriptions(told, rng)
        pairs = list(zip(told.menu.offers, after.menu.offers, strict=True))
        assert [replace(b, skills=a.skills) for a, b in pairs] == [
            a for a, _ in pairs
        ]  # names and prices stay
        assert all(a.skills == b.skills for a, b in pairs if not a.model)
        dealt = [[dict(o.skills) for o in told_.menu.offers if o.model] for told_ in (told, after)]
        assert sorted(map(str, dealt[0])) == sorted(map(str, dealt[1]))
        assert (after.work, after.preference, after.outage) == (
            told.work,
            told.preference,
            told.outage,
        )
        moved += dealt[0] != dealt[1]
    assert moved > 8


def test_no_trace_has_a_tool_that_is_kept_for_the_tests():
    """Neither on a menu, nor among what a user likes, nor in a call."""
    told = sft_warmup.make_traces(
        300, experiment.select_training_offers(offers(), common.TOOLS), 4.0, 0.5, offices(), 0
    )
    words = set(lab.decode([i for trace in told for i in trace.ids]).split())
    assert not set(common.TOOLS.unseen) & words and set(common.SEEN) <= words
