"""Traces that teach a team: what each agent says follows from what it is shown, from its tools and from its hints."""

import re
from collections import Counter
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import seeds, tasks
from lib.models import agent
from lib.models.agent import BRIEF, CHECK, STEPS, Turn, first_turn
from lib.models.dialogue import called, conversation
from lib.models.team import DECOYS, NOTHING, USE, halves, moves, need, notes, parts, trace, worded
from lib.models.tokenizer import TOOLS, UNK, tokenizer
from lib.tasks import Item, TaskError, answered, mixed, reply, verify
from lib.tools import Index, calculator, lookup, search

TAUGHT = [("chain", "plain", (1, 2, 3, 4, 5, 6)), ("passage", "plain", (1, 2, 3, 4, 5)), ("facts", "plain", (1, 2, 3)),
          ("facts", "choice", (1, 2, 3)), ("mixed", "plain", (1, 2, 3))]  # fmt: skip
LEFT = r" (?=(?:evidence|draft|votes|subtask) )"  # before what others left
SIGNS = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}


class Shown:
    """A trace, taken apart."""

    def __init__(self, item: Item, messages, tools) -> None:
        self.item, self.messages, self.tools = item, messages, tools
        words = messages[0]["content"].removeprefix("role ").split(" ", 1)
        self.role, self.told = words[0], " ".join(words[1:])
        content = messages[1]["content"]
        self.alone = content == item.prompt
        assert self.alone or content.startswith(f"question {item.prompt} "), content
        rest = "" if self.alone else content.removeprefix(f"question {item.prompt} ")
        self.shown = [tuple(part.split(" ", 1)) for part in re.split(LEFT, rest) if part]
        said = [m["content"] for m in messages[2:] if m["role"] == "assistant"]
        self.calls = [called(text) for text in said[:-1]]
        self.results = [m["content"] for m in messages if m["role"] == "tool"]
        self.thoughts = [step for text in said for part in re.findall("<think> (.*?) </think>", text)
                         for step in part.split(" ; ")]  # fmt: skip
        self.answer = answered(said[-1])

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.shown]

    def told_to(self, hint: str) -> bool:
        return hint in self.told


@cache
def everything() -> tuple[Shown, ...]:
    """Some two thousand traces of all families."""
    out = []
    for family, skin, difficulties in TAUGHT:
        items = tasks.draw(family, "train", 420, difficulties, skin, seed=8)
        for number, item in enumerate(items):
            out.append(Shown(worded(item), *trace(item, seeds.rng("test", "team", family, skin, seed=number))))
    return tuple(out)


def of(*roles: str) -> list[Shown]:
    found = [shown for shown in everything() if shown.role in roles]
    assert len(found) > 100
    return found


def needed(shown: Shown) -> list[str]:
    """Steps of the whole solution."""
    return shown.item.reference.split(" ; ")


# Every trace ---------------------------------------------------------------------------------------


def test_traces_are_a_system_message_a_question_and_turns():
    for shown in everything():
        roles = [message["role"] for message in shown.messages]
        turns = len(shown.calls)
        assert roles == ["system", "user", *["assistant", "tool"] * turns, "assistant"]
        assert shown.messages[0]["content"].startswith("role ") and set(shown.tools) <= set(TOOLS)
    assert {shown.role for shown in everything()} == {"reasoner", "worker", "verifier", "answerer", "router"}


def test_traces_come_in_every_kind():
    kinds = Counter((shown.role, tuple(shown.kinds)) for shown in everything())
    assert set(kinds) == {
        ("reasoner", ()), ("reasoner", ("evidence",)), ("reasoner", ("draft", "evidence")), ("verifier", ("draft",)),
        ("worker", ("subtask",)), ("worker", ("subtask", "evidence")), ("router", ()), ("answerer", ()),
        ("answerer", ("evidence",)), ("answerer", ("draft", "evidence")), ("answerer", ("evidence", "evidence")),
        ("answerer", ("votes",)),
    }  # fmt: skip
    assert min(kinds.values()) > 20


def test_equal_items_and_generators_give_equal_traces():
    for family, skin, _ in TAUGHT:
        for number, item in enumerate(tasks.draw(family, "train", 20, skin=skin)):
            once, again = (trace(item, seeds.rng("test", "equal", seed=number)) for _ in range(2))
            assert once == again
    item = tasks.draw("facts", "train", 1)[0]
    assert len({str(trace(item, seeds.rng("test", "other", seed=i))) for i in range(20)}) > 10


def test_no_trace_has_a_word_that_the_models_do_not_know():
    unknown = tokenizer().convert_tokens_to_ids(UNK)
    for shown in everything():
        assert unknown not in conversation(shown.messages, shown.tools), shown.messages


@pytest.mark.parametrize("family", ["big", "belief", "story", "translation"])
def test_a_family_without_traces_is_named(family):
    (item,) = tasks.draw(family, "train", 1)
    with pytest.raises(TaskError, match=f"teams are taught chain, passage, facts, mixed; .* '{family}'"):
        trace(item, np.random.default_rng(0))


# Answers -------------------------------------------------------------------------------------------


def test_who_answers_a_whole_question_is_right_or_says_that_it_cannot():
    """It cannot where a big sum may neither be reckoned by a tool nor be written down."""
    cannot = 0
    for shown in of("reasoner", "answerer"):
        last = shown.messages[-1]["content"]
        if shown.answer == NOTHING:
            cannot += 1
            reckoned = {"calculator", "python"} & {name for name, _ in shown.calls}
            assert shown.item.category == "mixed" and not reckoned and not shown.thoughts, shown.messages
        else:
            assert verify(shown.item, last), shown.messages
    assert 20 < cannot < 0.2 * len(everything())


def test_a_reasoner_alone_writes_or_calls_every_step():
    whole = 0
    for shown in of("reasoner"):
        if shown.alone and shown.thoughts:
            looked = [f"the {r} of {s} is {value}" for r, s, value in looked_up(shown)]
            steps = [*looked, *shown.thoughts]
            reckoned = any(name in ("calculator", "python") for name, _ in shown.calls)
            expected = [step for step in needed(shown) if not (reckoned and "=" in step)]
            assert sorted(steps) == sorted(expected), shown.messages
            whole += 1
    assert whole > 200


def looked_up(shown: Shown) -> list[tuple[str, str, str]]:
    """Relation, subject and value of each record that was asked for."""
    out = []
    for (name, argument), told in zip(shown.calls, shown.results, strict=True):
        if name in ("lookup", "search"):
            relation, subject = argument.replace(" of ", " ").split()
            out.append((relation, subject, told if name == "lookup" else told.split()[-2]))
    return out


# Tools ---------------------------------------------------------------------------------------------


def test_tools_are_called_only_where_they_are_on_offer():
    used = Counter()
    for shown in everything():
        for name, _ in shown.calls:
            assert name in shown.tools, shown.messages
            used[name] += 1
    assert all(used[name] > 20 for name in TOOLS)


def test_tools_say_what_the_real_ones_say():
    real = {"calculator": calculator(), "search": search(Index(mixed.documents())), "lookup": lookup(mixed.records())}
    for shown in everything():
        for (name, argument), told in zip(shown.calls, shown.results, strict=True):
            if name == "python":
                assert str(eval(argument)) == told
            else:
                assert real[name](real[name].line(argument)) == told, (name, argument)


# Hints ---------------------------------------------------------------------------------------------


def test_a_hint_to_use_a_tool_makes_sure_that_one_is_used():
    seen = Counter()
    for shown in everything():
        for tool, hint in USE.items():
            if shown.told_to(hint) and tool in shown.tools:
                names = {name for name, _ in shown.calls}
                assert names & ({"calculator", "python"} if tool == "calculator" else {"search", "lookup"}), (
                    shown.messages
                )
                seen[tool] += 1
    assert all(seen[tool] > 10 for tool in USE)


def test_a_hint_to_use_a_tool_is_a_hint_to_use_that_tool():
    for shown in everything():
        both = shown.told_to(USE["lookup"]) and "lookup" in shown.tools
        if shown.told_to(USE["search"]) and "search" in shown.tools and not both:
            assert "search" in {name for name, _ in shown.calls}, shown.messages


def test_the_hint_to_check_makes_a_verifier_work_and_without_it_nobody_does():
    for shown in of("verifier"):
        assert bool(shown.thoughts or shown.calls) if shown.told_to(CHECK) else not shown.thoughts, shown.messages
        if shown.told_to(CHECK) and not shown.calls:
            assert shown.thoughts == needed(shown)
    assert 0.4 < np.mean([shown.told_to(CHECK) for shown in of("verifier")]) < 0.8


def test_hints_are_known_to_mean_something_or_nothing():
    """Nobody is told anything else, and each agent is told hints that mean nothing to it."""
    known = sorted([STEPS, BRIEF, CHECK, *USE.values(), *DECOYS], key=len, reverse=True)
    heard = Counter()
    for shown in everything():
        left = shown.told.removeprefix("split").removeprefix("plan").strip()
        while left:
            hint = next(hint for hint in known if left == hint or left.startswith(f"{hint} "))
            heard[hint] += 1
            left = left.removeprefix(hint).strip()
    assert set(heard) == set(known) and not set(DECOYS) & {STEPS, BRIEF, CHECK, *USE.values()}
    assert len(set(DECOYS)) == len(DECOYS)


# Verifiers -----------------------------------------------------------------------------------------


def test_a_draft_is_right_exactly_where_the_verdict_says_so():
    verdicts = []
    for shown in of("verifier"):
        ((_, draft),) = shown.shown
        steps, _, answer = f" {draft}".rpartition(" answer ")
        steps = steps.strip()
        flawless = steps in ("", shown.item.reference) and answer == shown.item.answer
        assert shown.answer == ("right" if flawless else "wrong"), shown.messages
        verdicts.append((flawless, bool(steps)))
    counts = Counter(verdicts)
    assert min(counts.values()) > 10 and len(counts) == 4
    assert 0.4 < np.mean([flawless for flawless, _ in verdicts]) < 0.6


def test_a_check_says_of_its_draft_whether_it_is_right():
    for shown in everything():
        if shown.kinds == ["draft", "evidence"]:
            (_, draft), (_, check) = shown.shown
            steps, _, answer = f" {draft}".rpartition(" answer ")
            flawless = steps.strip() in ("", shown.item.reference) and answer == shown.item.answer
            assert check.endswith(f"answer {'right' if flawless else 'wrong'}"), shown.messages


# Who goes on from what others left -----------------------------------------------------------------


def test_who_goes_on_takes_up_after_the_last_whole_step():
    ways = Counter()
    for shown in of("reasoner"):
        if shown.kinds == ["evidence"] and shown.item.category in ("chain", "passage"):
            ((_, left),) = shown.shown
            steps, done = needed(shown), 0
            text, _, answer = left.partition(" answer ") if " answer " in f" {left}" else (left, "", "")
            text, answer = ("", left.removeprefix("answer ")) if left.startswith("answer ") else (text, answer)
            assert answer in ("", shown.item.answer)
            found = [] if text in ("", NOTHING) else text.split(" ; ")
            while done < len(found) and found[done] == steps[done]:
                done += 1
            begun = done == len(found) - 1 and steps[done].startswith(f"{found[done]} ")
            assert done == len(found) or begun
            done = len(steps) if answer else done
            assert shown.thoughts in ([], steps[done:]), shown.messages
            ways[bool(answer), done == len(found)] += 1
    assert len(ways) >= 3 and min(ways.values()) > 3


def test_votes_are_for_the_right_answer_or_for_none():
    casts = Counter()
    for shown in of("answerer"):
        if shown.kinds == ["votes"]:
            cast = Counter(shown.shown[0][1].split())
            for_something = Counter({vote: n for vote, n in cast.items() if vote != NOTHING})
            assert sum(cast.values()) == 3 and for_something.most_common(1)[0][0] == shown.item.answer
            assert len(for_something) == 1 or for_something[shown.item.answer] == 2
            casts[tuple(sorted(cast.values())), cast[NOTHING]] += 1
    assert set(casts) == {((3,), 0), ((1, 2), 0), ((1, 2), 1), ((1, 2), 2)}


# Halves --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "prompt, reference, answer, key, category, expected",
    [
        ("3 + 4 * 2 - 5 = ?", "3 + 4 = 7 ; 7 * 2 = 4 ; 4 - 5 = 9", "9", "chain/3 + 4 * 2 - 5", "chain",
         [("3 + 4 * 2", "4", 2, True), ("- 5", "9", 1, False)]),
        ("3 + 4 = ?", "3 + 4 = 7", "7", "chain/3 + 4", "chain", [("3 + 4", "7", 1, True), ("answer", "7", 0, False)]),
        ("Ana has 3 pens . Bo has 7 pens . Cy has 1 pens . Who has most ?", "", "Bo", "passage/", "passage",
         [("Ana Bo", "Bo 7", 2, True), ("Cy", "Cy 1", 1, True)]),
        ("Ana has 3 pens . Bo has 7 pens . How many people have more than 2 pens ?", "", "2", "passage/", "passage",
         [("Ana", "1", 1, True), ("Bo", "1", 1, True)]),
        ("Ana has 3 pens . Bo has 7 pens . Cy has 1 pens . How many pens do Cy and Ana have together ?", "", "4",
         "passage/", "passage", [("Ana Bo", "3", 1, True), ("Cy", "1", 1, True)]),
        ("Ana has 3 pens . Bo has 7 pens . Cy has 1 pens . How many more pens does Bo have than Ana ?", "", "4",
         "passage/", "passage", [("Ana Bo", "3 7", 2, True), ("Cy", "nothing", 0, True)]),
    ],
)  # fmt: skip
def test_halves_by_hand(prompt, reference, answer, key, category, expected):
    found = halves(Item(prompt, answer, reference, category, 1, key))
    assert [(half.name, half.answer, len(half.way), half.alone) for half in found] == expected


# Notes and plans -----------------------------------------------------------------------------------


WORDS = st.lists(st.sampled_from(["number", "of", "Ana", "+", "38", "friend"]), min_size=1, max_size=5).map(" ".join)


@given(WORDS, WORDS)
def test_a_plan_is_read_as_it_was_written(first, then):
    assert parts(f"first {first} then {then}") == (first, then)
    assert parts(f"{first} then {then}") == (first, then)


@pytest.mark.parametrize(
    "planned, expected",
    [
        ("first the pet of Bo", ("the pet of Bo", NOTHING)), ("first a then", ("a", NOTHING)), ("", (NOTHING, NOTHING)),
        ("nothing", (NOTHING, NOTHING)), ("first a then b then c", ("a", "b then c")), ("first", (NOTHING, NOTHING)),
        ("first then b", (NOTHING, "b")),
    ],
)  # fmt: skip
def test_a_plan_that_was_cut_lacks_a_part(planned, expected):
    assert parts(planned) == expected


# First turns ---------------------------------------------------------------------------------------


def test_the_first_turn_of_a_trace_is_what_a_model_is_examined_in():
    for shown in everything()[::7]:
        turn = first_turn(shown.messages, shown.tools)
        kind = "tool" if shown.calls else shown.role
        assert turn == Turn(shown.messages[:2], shown.tools, shown.messages[2]["content"], kind)
        assert agent.agrees(turn.wanted, turn.wanted) and not agent.agrees(reply("no"), turn.wanted)


def workers() -> list[Shown]:
    """Those who solve: reasoners, workers, and answerers that nobody works for."""
    return [s for s in everything() if s.role in ("reasoner", "worker") or (s.role == "answerer" and s.alone)]


def test_who_thinks_takes_the_steps_of_the_solution_in_their_order():
    for shown in everything():
        steps = iter(needed(shown))
        if shown.item.category != "passage" or shown.role != "worker":
            assert all(thought in steps for thought in shown.thoughts), shown.messages


def test_no_tool_is_called_where_none_helps():
    assert not any(shown.calls for shown in everything() if shown.item.category in ("chain", "passage"))


def test_who_has_no_use_for_tools_is_offered_none():
    assert not any(shown.tools for shown in of("router", "answerer") if not (shown.role == "answerer" and shown.alone))


def test_the_hint_to_be_brief_leaves_thoughts_out_and_step_by_step_writes_them():
    brief = [s for s in of("reasoner", "worker") if s.told_to(BRIEF)]
    slow = [s for s in of("reasoner", "worker") if s.told_to(STEPS) and s.alone and not s.calls]
    assert len(brief) > 60 and not any(shown.thoughts for shown in brief)
    assert len(slow) > 60 and all(shown.thoughts == needed(shown) for shown in slow)
    assert not any(shown.told_to(BRIEF) and shown.told_to(STEPS) for shown in of("reasoner", "worker"))


def test_of_options_a_team_answers_the_words():
    for item in tasks.draw("facts", "train", 20, skin="choice", seed=4):
        said = worded(item)
        assert said.answer == item.choices["ABCD".index(item.answer)] and said.reference.endswith(f"is {said.answer}")
        assert (said.prompt, said.key) == (item.prompt, item.key)
    plain = tasks.draw("facts", "train", 1, skin="plain")[0]
    assert worded(plain) is plain


def test_a_question_needs_a_tool_or_a_thought_or_neither():
    wanted = {"facts": "search", "mixed": "calculator"}
    for family, skin, difficulties in TAUGHT:
        for item in tasks.draw(family, "train", 30, difficulties, skin):
            assert need(item) == wanted.get(family, "direct" if item.difficulty == 1 else "reason")


def test_the_router_names_what_a_question_needs():
    routed = [shown for shown in of("router") if not shown.told.startswith(("split", "plan"))]
    assert all(shown.answer == need(shown.item) and not shown.thoughts for shown in routed)
    assert {shown.item.category for shown in routed} == {"chain", "passage", "facts", "mixed"}


def test_a_coordinator_names_both_halves_of_the_work():
    ways = Counter()
    for shown in of("router"):
        if shown.told.startswith(("split", "plan")):
            first, then = halves(shown.item)
            assert parts(shown.answer) == (first.name, then.name)
            ways[shown.told.split()[0]] += 1
    assert min(ways["split"], ways["plan"]) > 20


def test_a_worker_does_its_part_or_says_that_it_cannot():
    seen = Counter()
    for shown in of("worker"):
        first, then = halves(shown.item)
        (_, name), *evidence = shown.shown
        assert name in (first.name, then.name)
        second = name == then.name
        stuck = second and not evidence and shown.item.category != "passage"
        beyond = shown.item.category == "mixed" and second and not shown.thoughts and not shown.calls
        assert shown.answer == (NOTHING if stuck or beyond else then.answer if second else first.answer), shown.messages
        assert not (stuck and (shown.calls or shown.thoughts))
        seen[second, bool(evidence), stuck] += 1
    assert len(seen) == 4 and min(seen.values()) > 5


@pytest.mark.parametrize("family, skin", [("facts", "plain"), ("facts", "choice"), ("mixed", "plain")])
def test_halves_of_a_search_follow_the_records(family, skin):
    for item in map(worded, tasks.draw(family, "train", 60, skin=skin, seed=2)):
        first, then = halves(item)
        relations, subject = first.name.rsplit(" of ", 1)
        for relation in reversed(relations.split(" of the ")):
            subject = mixed.records()[relation][subject]
        assert first.answer == subject and then.answer == item.answer and not then.alone
        if family == "mixed":
            sign, other = then.name.split()
            assert item.answer == str(SIGNS[sign](int(subject), int(other)))
        if family == "facts" and then.name != "answer":
            for relation in reversed(then.name.split(" of the ")):
                subject = mixed.records()[relation][subject]
            assert subject == item.answer
        assert [move.text for half in (first, then) for move in half.way] == [move.text for move in moves(item)]


def test_notes_are_results_thoughts_and_an_answer():
    assert notes([("4 * 8", "32"), ("pet Bo", "cat")], "so", "cat") == "4 * 8 : 32 ; pet Bo : cat ; so answer cat"
    assert notes([], "3 + 4 = 7", None) == "3 + 4 = 7" and notes([], "", "7") == "answer 7"
    assert notes([], "", None) == NOTHING
