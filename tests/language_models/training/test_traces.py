"""What traces of agents and of teams have in common: they are well formed, right, and follow from what is shown."""

from collections import Counter

import numpy as np
import pytest

from lib import tasks
from lib.experiment import seeds
from lib.language_models.chat_template import encode_conversation, encode_special
from lib.language_models.tokenizer import TOOLS, UNK
from lib.language_models.training import agent_traces, team_traces
from lib.language_models.training.team_traces import NOTHING
from lib.language_models.training.training_data import TRACE_WRITERS
from lib.tasks import TaskError, format_reply, is_correct, mixed
from lib.tools import Index, calculator, lookup, search
from tests.language_models.traces import TAUGHT, of, traces

NEEDS = {"big": "calculator", "mixed": "calculator", "facts": "search"}
pytestmark = pytest.mark.parametrize("style", TRACE_WRITERS)


def test_traces_are_a_system_message_a_question_and_turns_in_words_that_the_models_know(style):
    for shown in traces(style):
        roles = [message["role"] for message in shown.messages]
        assert roles == ["system", "user", *["assistant", "tool"] * len(shown.calls), "assistant"]
        assert shown.messages[0]["content"].startswith("role ") and set(shown.tools) <= set(TOOLS)
        assert encode_special(UNK) not in encode_conversation(shown.messages, shown.tools), (
            shown.messages
        )
    assert {shown.role for shown in traces(style)} == {
        "reasoner",
        "worker",
        "verifier",
        "answerer",
        "router",
    }


def test_equal_items_and_generators_give_equal_traces(style):
    items = [
        item
        for family, skin, _ in TAUGHT[style]
        for item in tasks.draw_items(family, "train", 20, surface_form=skin)
    ]
    once, again, other = (
        [
            TRACE_WRITERS[style](item, seeds.rng("test", "equal", seed=number + more))
            for number, item in enumerate(items)
        ]
        for more in (0, 0, 1)
    )
    assert once == again != other
    assert (
        len(
            {
                str(TRACE_WRITERS[style](items[0], seeds.rng("test", "other", seed=i)))
                for i in range(20)
            }
        )
        > 10
    )


def test_a_family_without_traces_is_named(style):
    taught = dict.fromkeys(family for family, *_ in TAUGHT[style])
    for family in set(tasks.FAMILIES) - set(taught):
        (item,) = tasks.draw_items(family, "train", 1)
        with pytest.raises(
            TaskError, match=f"{style}s are taught {', '.join(taught)}; .* no traces for '{family}'"
        ):
            TRACE_WRITERS[style](item, np.random.default_rng(0))


def test_who_answers_a_whole_question_is_right_or_says_that_it_cannot(style):
    """In a team it cannot where a big sum may neither be reckoned by a tool nor be written down."""
    cannot = 0
    for shown in of(style, "reasoner", "answerer", "worker"):
        if shown.answer == NOTHING and "subtask" not in shown.kinds:
            cannot += 1
            reckoned = {"calculator", "python"} & {name for name, _ in shown.calls}
            assert shown.item.group == "mixed" and not reckoned and not shown.thoughts, (
                shown.messages
            )
        elif "subtask" not in shown.kinds:
            assert is_correct(shown.item, shown.messages[-1]["content"]), shown.messages
    assert 20 < cannot < 0.2 * len(traces(style)) if style == "team" else cannot == 0


def test_tools_are_called_where_they_are_on_offer_and_help_and_say_what_the_real_ones_say(style):
    real = {
        "calculator": calculator(),
        "search": search(Index(mixed.build_documents())),
        "lookup": lookup(mixed.build_records()),
    }
    used = Counter()
    for shown in traces(style):
        assert not shown.calls or shown.item.group in NEEDS
        for (name, argument), told in zip(shown.calls, shown.results, strict=True):
            assert name in shown.tools, shown.messages
            assert (
                str(eval(argument))
                if name == "python"
                else real[name](real[name].parse_line(argument))
            ) == told
            used[name] += 1
    assert set(used) == {*real, *["python"] * (style == "team")} and min(used.values()) > 20


def test_a_draft_is_right_exactly_where_the_verdict_says_so(style):
    verdicts = Counter()
    for shown in of(style, "verifier"):
        assert shown.kinds == ["draft"]
        assert shown.answer == ("right" if shown.flawless else "wrong"), shown.messages
        verdicts[shown.flawless, shown.shown[0][1].startswith("answer ")] += 1
    assert len(verdicts) == (4 if style == "team" else 2) and min(verdicts.values()) > 10
    correct = sum(many for (flawless, _), many in verdicts.items() if flawless)
    assert 0.4 < correct / verdicts.total() < 0.6


def test_votes_are_for_the_right_answer_or_for_none(style):
    casts = set()
    for shown in of(style, "answerer"):
        if shown.kinds == ["votes"]:
            cast = Counter(shown.shown[0][1].split())
            for_something = Counter({vote: n for vote, n in cast.items() if vote != NOTHING})
            assert cast.total() == 3 and for_something.most_common(1)[0][0] == shown.item.reference
            assert len(for_something) == 1 or for_something[shown.item.reference] == 2
            casts.add((tuple(sorted(cast.values())), cast[NOTHING]))
    some = {((1, 2), 0)}  # a team's member may be cut off, or agree with the others
    assert casts == (some | {((3,), 0), ((1, 2), 1), ((1, 2), 2)} if style == "team" else some)


def test_the_router_names_what_a_question_needs(style):
    routed, need = (
        Counter(),
        {"agent": agent_traces.decide_route, "team": team_traces.decide_route}[style],
    )
    for shown in traces(style):
        needs = NEEDS.get(shown.item.group, "direct" if shown.item.difficulty == 1 else "reason")
        assert need(shown.item) == needs
        if shown.role == "router" and not shown.told.startswith(("split", "plan")):
            assert shown.alone and shown.answer == needs and not shown.thoughts and not shown.tools
            routed[shown.item.group] += 1
    assert set(routed) == {family for family, *_ in TAUGHT[style]}


def test_the_first_turn_of_a_trace_is_what_a_model_is_examined_in(style):
    for shown in traces(style)[::7]:
        turn = agent_traces.get_first_turn(shown.messages, shown.tools)
        kind = "tool" if shown.calls else shown.role
        assert turn == agent_traces.TraceTurn(
            shown.messages[:2], shown.tools, shown.messages[2]["content"], kind
        )
        assert agent_traces.agrees_with_trace(
            turn.target, turn.target
        ) and not agent_traces.agrees_with_trace(format_reply("no"), turn.target)
