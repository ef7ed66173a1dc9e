"""Traces that teach the agent model: it obeys hints, uses tools where they help, and judges drafts rightly."""

import re

import numpy as np
import pytest

from lib import seeds, tasks
from lib.models import agent
from lib.models.agent import need, slip, trace
from lib.models.dialogue import call, called
from lib.tasks import answered, reply, verify
from lib.tasks.facts import documents, records

FAMILIES = ("chain", "big", "facts", "passage")  # those that the agent is taught


def traces(role: str, families=FAMILIES, n: int = 250) -> list[tuple]:
    """Items with the messages and the tools of their traces in one role."""
    out = []
    for name in families:
        for number, item in enumerate(tasks.draw(name, "train", n, skin="any", seed=8)):
            messages, tools = trace(item, seeds.rng("test", "agent", name, seed=number))
            if messages[0]["content"].split()[1] == role:
                out.append((item, messages, tools))
    assert out
    return out


def hints(messages) -> str:
    return " ".join(messages[0]["content"].split()[2:])


def solving(families=FAMILIES) -> list[tuple]:
    return [*traces("reasoner", families), *traces("worker", families)]


# Every role ---------------------------------------------------------------------------------------


def test_traces_name_their_role_and_come_in_every_role():
    roles = set()
    for name in FAMILIES:
        for number, item in enumerate(tasks.draw(name, "train", 100)):
            messages, tools = trace(item, seeds.rng("test", "roles", seed=number))
            assert [m["role"] for m in messages][:2] == ["system", "user"] and messages[-1]["role"] == "assistant"
            assert messages[0]["content"].startswith("role ") and set(tools) <= set(agent.TOOLS)
            roles.add(messages[0]["content"].split()[1])
    assert roles == {"reasoner", "worker", "verifier", "answerer", "router"}


def test_equal_items_and_generators_give_equal_traces():
    for item in tasks.draw("facts", "train", 30):
        once, again = (trace(item, seeds.rng("test", "equal", seed=3)) for _ in range(2))
        assert once == again


@pytest.mark.parametrize("role", ["reasoner", "worker", "answerer"])
def test_what_the_agent_answers_at_last_is_right(role):
    for item, messages, _ in traces(role):
        assert verify(item, messages[-1]["content"]), messages


# Reasoner and worker ------------------------------------------------------------------------------


def test_be_brief_is_obeyed_and_otherwise_the_agent_thinks():
    seen = set()
    for item, messages, _ in solving():
        brief, used = hints(messages) == agent.BRIEF, len(messages) > 3
        assert hints(messages) in ("", agent.BRIEF, agent.STEPS)
        expected = reply(item.answer) if brief or used else item.solution
        assert messages[-1]["content"] == expected
        assert not brief or "<think>" not in "".join(m["content"] for m in messages)
        seen.add((brief, used))
    assert len(seen) == 4


def test_the_calculator_is_used_exactly_where_it_is_on_offer_and_numbers_are_big():
    seen = set()
    for item, messages, tools in solving():
        calls = [called(m["content"]) for m in messages if m["role"] == "assistant"]
        used = any(c and c[0] == "calculator" for c in calls)
        assert used == ("calculator" in tools and item.category == "big"), messages
        seen.add((used, "calculator" in tools, item.category == "big"))
    assert len(seen) == 4


def test_the_calculator_is_asked_for_the_sum_and_tells_its_result():
    for item, messages, tools in solving(["big"]):
        if "calculator" in tools:
            _, user, asked, told, answer = messages
            tool, argument = called(asked["content"])
            assert tool == "calculator" and f"{argument} = ?" == user["content"] == item.prompt
            assert told == {"role": "tool", "content": str(eval(argument))}
            assert answer["content"] == reply(told["content"])


def test_facts_are_looked_up_or_searched_hop_by_hop():
    used = set()
    for item, messages, tools in solving(["facts"]):
        calls = [(called(a["content"]), t["content"]) for a, t in zip(messages[2::2], messages[3::2], strict=False)]
        if not {"lookup", "search"} & set(tools):
            assert calls == []
            continue
        assert len(calls) == item.difficulty
        question = item.prompt.split(" Options ")[0].removeprefix("What is the ").removesuffix(" ?")
        *relations, place = question.replace(" of the ", " of ").split(" of ")
        for (tool, argument), told in calls:
            relation = relations.pop()
            value = records()[relation][place]
            if "lookup" in tools:
                assert (tool, argument, told) == ("lookup", f"{relation} {place}", value)
            else:
                assert (tool, argument) == ("search", f"{relation} of {place}") and told in documents()
                assert told.split()[-2] == value
            place = value
            used.add(tool)
        assert relations == [] and place == (
            dict(zip("ABCD", item.choices, strict=False)).get(item.answer, item.answer)
        )
    assert used == {"lookup", "search"}


# Verifier -----------------------------------------------------------------------------------------


def parts(content: str) -> tuple[str, list[str], str]:
    """Question, steps and answer of a draft."""
    question, rest = content.removeprefix("question ").split(" draft ")
    steps, answer = rest.rsplit(" answer ", 1)
    return question, steps.split(" ; "), answer


def test_a_draft_is_wrong_exactly_where_the_verdict_says_so():
    verdicts = []
    for item, messages, _ in traces("verifier"):
        question, steps, answer = parts(messages[1]["content"])
        assert question == item.prompt
        flawless = steps == item.reference.split(" ; ") and answer == item.answer
        assert answered(messages[-1]["content"]) == ("right" if flawless else "wrong"), messages
        verdicts.append(flawless)
    assert 0.4 < sum(verdicts) / len(verdicts) < 0.6


def test_the_checked_steps_are_right_and_end_at_the_first_slip():
    careful = 0
    for item, messages, _ in traces("verifier"):
        _, steps, _ = parts(messages[1]["content"])
        right = item.reference.split(" ; ")
        said = messages[-1]["content"]
        assert ("<think>" in said) == (hints(messages) == agent.CHECK)
        if "<think>" in said:
            checked = re.fullmatch(r"<think> (.*) </think> <answer> \w+ </answer>", said)[1].split(" ; ")
            slips = [i for i, (a, b) in enumerate(zip(steps, right, strict=True)) if a != b]
            assert checked == right[: slips[0] + 1 if slips else None], messages
            careful += 1
    assert careful > 50


def test_a_slip_of_a_chain_is_one_false_step_and_the_others_reckon_on_from_it():
    signs = {"+": lambda a, b: a + b, "-": lambda a, b: a - b, "*": lambda a, b: a * b}
    for item in tasks.draw("chain", "train", 100, seed=9):
        steps = item.reference.split(" ; ")
        for at in range(len(steps)):
            out = slip(steps, at, seeds.rng("test", "slip", seed=at), follow=True)
            assert out[:at] == steps[:at]
            false = []
            for i, step in enumerate(out):
                a, sign, b, _, result = step.split()
                false += [i] if signs[sign](int(a), int(b)) % 10 != int(result) else []
                assert i == 0 or a == out[i - 1].split()[-1]
                assert step.split()[1:3] == steps[i].split()[1:3]
            assert false == [at]


# Answerer and router ------------------------------------------------------------------------------


def test_the_answer_is_what_most_votes_say_or_what_the_evidence_leads_to():
    kinds = set()
    for item, messages, tools in traces("answerer"):
        content = messages[1]["content"]
        assert content.startswith(f"question {item.prompt} ") and tools == []
        shown = content.removeprefix(f"question {item.prompt} ")
        kind, given = shown.split(" ", 1)
        if kind == "votes":
            votes = given.split()
            assert len(votes) == 3 and sorted(map(votes.count, set(votes))) == [1, 2]
            assert max(votes, key=votes.count) == item.answer
        else:
            assert kind == "evidence" and given == item.reference
        assert messages[-1]["content"] == reply(item.answer)
        kinds.add(kind)
    assert kinds == {"votes", "evidence"}


def test_a_turn_agrees_with_a_trace_in_what_it_does_and_not_in_its_words():
    asked = call("calculator", "4 + 7")
    assert agent.agrees(asked, asked) and not agent.agrees(call("calculator", "4 + 8"), asked)
    assert not agent.agrees(tasks.reply("11"), asked) and not agent.agrees(asked, tasks.reply("11"))
    assert agent.agrees(tasks.reply("11", "4 + 7 = 11"), tasks.reply("11"))
    assert not agent.agrees("11", tasks.reply("11"))


@pytest.mark.parametrize("family", ["belief", "story", "translation"])
def test_a_family_without_traces_is_named(family):
    (item,) = tasks.draw(family, "train", 1)
    with pytest.raises(tasks.TaskError, match=family):
        agent.trace(item, np.random.default_rng(0))


def test_a_slip_elsewhere_changes_one_result_into_another_of_its_kind():
    for name in ("big", "facts", "passage"):
        for number, item in enumerate(tasks.draw(name, "train", 60, skin="any")):
            steps = item.reference.split(" ; ")
            at = number % len(steps)
            out = slip(steps, at, seeds.rng("test", "slip", seed=number), follow=False)
            before, after = steps[at].split(), out[at].split()
            assert before[:-1] == after[:-1] and before[-1] != after[-1]
            assert before[-1].isdigit() == after[-1].isdigit() and len(out) == len(steps)
            assert [s for i, s in enumerate(out) if i != at] == [s for i, s in enumerate(steps) if i != at]


def test_the_router_sends_big_numbers_to_the_calculator_facts_to_the_search_and_chains_to_thought():
    needs = {("big", d): "calculator" for d in (1, 2, 3, 4)} | {("facts", d): "search" for d in (1, 2, 3)}
    needs |= {(name, d): "direct" if d == 1 else "reason" for name in ("chain", "passage") for d in range(1, 9)}
    for item, messages, tools in traces("router"):
        assert messages[1]["content"] == item.prompt and tools == []
        assert messages[-1]["content"] == reply(needs[item.category, item.difficulty]) == reply(need(item))
