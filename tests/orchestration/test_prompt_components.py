"""Context components: who has which, that each renders its own section, and that nothing secret gets in."""

import json
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.orchestration import prompt_components
from lib.orchestration.environment_copies import Foresight
from lib.orchestration.prompt_components import (
    TEMPLATES,
    Budget,
    Situation,
    assemble,
    correction,
    interaction_line,
    knowledge_json,
    render,
    result_line,
    summary_request,
    tools_json,
)
from lib.policy_zoo.recipes import SINGLE
from tests.orchestration import zoo

KINDS = ("KO", "TO", "RO")
WEIGHTS = (0.2, 0.31, 0.49)
# Appendix A.2: the system message instructs and remembers, the user message asks and shows.
IN_ORDER = {
    "KO": ["instr", "mem_l", "query", "know", "state", "mem_s"],
    "TO": ["instr", "mem_l", "query", "tools", "state", "mem_s"],
    "RO": ["instr", "mem_l", "query", "tools", "state", "reflect", "mem_s"],
}
SYSTEM = {"instr", "mem_l"}
HEADING = {
    "instr": "# Role", "mem_l": "# Summary of the episode so far", "query": "# Query", "know": "# Policy cards",
    "tools": "# Tools", "state": "# State", "reflect": "# Simulated rollouts", "mem_s": "# Recent steps",
}  # fmt: skip


def situation(world, kind: str, **changes) -> Situation:
    """What an orchestrator shows of a world that it has looked at once."""
    common = {
        "domain": world.words,
        "kind": kind,
        "topic": "Linear Algebra",
        "names": world.menu.names,
        "weights": WEIGHTS,
        "step": world.t + 1,
        "horizon": world.horizon,
        "state": world.state(),
        "summary": "So far so good.",
        "recent": ("step 1: it went well", "step 2: it went on"),
        "results": ("SO-d1: did something",),
        "final": False,
        "limit": 2,
        "steps": 5,
        "cards": knowledge_json(zoo.cards(world.domain)),
        "tools": tools_json(zoo.cards(world.domain), world.words),
    }
    return Situation(**common | changes)


def shown(now: Situation, without=()) -> dict[str, str]:
    """The parts of the prompt, by component."""
    return {
        part.component: part.text
        for part in render(prompt_components.components(now.kind, without), now)
    }


@pytest.fixture(scope="module", params=zoo.DOMAINS)
def world(request):
    return zoo.world(request.param)


@pytest.fixture(scope="module")
def student():
    return zoo.world("education")


# Table 1 -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_an_orchestrator_has_the_components_of_table_1_in_the_order_of_the_appendix(kind, world):
    parts = render(prompt_components.components(kind), situation(world, kind))
    assert [part.component for part in parts] == IN_ORDER[kind]
    system, user = assemble(parts)
    assert (system["role"], user["role"]) == ("system", "user")
    for message, members in ((system, SYSTEM), (user, set(IN_ORDER[kind]) - SYSTEM)):
        found = [name for name in IN_ORDER[kind] if HEADING[name] in message["content"]]
        assert set(found) == members
        places = [message["content"].index(HEADING[name]) for name in found]
        assert places == sorted(places)


@pytest.mark.parametrize(
    ("kind", "gone"), [(kind, name) for kind in KINDS for name in IN_ORDER[kind]]
)
def test_a_removed_component_leaves_no_trace_and_the_others_unchanged(kind, gone, student):
    now = situation(student, kind)
    whole, rest = shown(now), shown(now, without=[gone])
    assert rest == {name: text for name, text in whole.items() if name != gone}
    prompt = "\n\n".join(
        message["content"]
        for message in assemble(render(prompt_components.components(kind, [gone]), now))
    )
    assert HEADING[gone] not in prompt and whole[gone] not in prompt
    assert all(text in prompt for text in rest.values())


# One section each --------------------------------------------------------------------------------

words = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
lines = st.lists(words, min_size=1, max_size=4)
OWN = {  # field -> its values, and the components that show it, by kind
    "recent": (lines, {"mem_s"}),
    "summary": (words, {"mem_l"}),
    "state": (st.dictionaries(words, words, min_size=1, max_size=4), {"state"}),
    "cards": (words, {"know"}),
    "tools": (words, {"tools"}),
    "results": (lines, {"tools", "reflect"}),
    "step": (st.integers(1, 500), {"query"}),
    "horizon": (st.integers(1, 500), {"query"}),
    "topic": (words, {"instr"}),
    "names": (st.lists(words, min_size=1, max_size=4, unique=True).map(tuple), {"instr"}),
    "weights": (
        st.tuples(*[st.integers(0, 100)] * 3).map(lambda w: tuple(each / 100 for each in w)),
        {"instr"},
    ),
    "limit": (st.integers(1, 9), {"instr"}),
    "steps": (st.integers(1, 9), {"instr"}),
    "final": (st.booleans(), {"instr", "query"}),
}
SILENT = {  # what an orchestrator has no use for
    "KO": {"tools", "results", "limit", "steps", "final"},
    "TO": {"cards", "steps"},
    "RO": {"cards"},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", OWN)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_what_changes_in_a_situation_changes_its_own_section_and_no_other(
    field, kind, student, data
):
    """The topic is a part of the minigrid task in no way, hence the student."""
    values, homes = OWN[field]
    before = situation(student, kind)
    after = replace(before, **{field: data.draw(values)})
    old, new = shown(before), shown(after)
    changed = {name for name in old if old[name] != new[name]}
    if getattr(before, field) == getattr(after, field) or field in SILENT[kind]:
        assert changed == set()
    else:
        home = {"TO": {"tools"}, "RO": {"reflect"}}[kind] if field == "results" else homes
        assert changed == home


# Templates ---------------------------------------------------------------------------------------

TEXTS = sorted(path for path in TEMPLATES.glob("*.md") if not path.name.startswith("judge_"))


def all_situations(world) -> Iterator[Situation]:
    """Every branch of the templates: each kind, first and last question, with and without what is optional."""
    for kind, final, full in product(KINDS, (True, False), (True, False)):
        empty = {} if full else {"recent": (), "results": (), "summary": ""}
        yield situation(
            world, kind, final=final, budget=Budget(0.1, 0.05, 0.002) if full else None, **empty
        )


def test_every_branch_renders_without_holes(world):
    for now in all_situations(world):
        asked = [summary_request(now)[0]["content"], correction("it is odd", now.names, now.final)]
        for text in [*shown(now).values(), *asked]:
            assert text == text.strip() and "\n\n\n" not in text
            assert not re.search(r"\{\{|\{%|\{#|None|Undefined|\S  |- \n|: \.", text)


TRICKY = [
    "{{ 7 * 7 }}", "{% for a in b %}", "{# gone #}", "{topic} {0} {}", "%s %(name)d 100%", "<b> & 'quoted' \"twice\"",
    "$HOME `ls` \\n \\u002d", "# Query",
]  # fmt: skip


@pytest.mark.parametrize("text", TRICKY)
def test_signs_of_a_template_language_in_data_are_only_data(text, student):
    now = situation(
        student,
        "TO",
        topic=text,
        state={text: text},
        recent=[text],
        summary=text,
        results=[text],
        names=(text,),
        tools=text,
    )
    parts = shown(now)
    assert f"who is learning {text}." in parts["instr"] and f"exact name: {text}." in parts["instr"]
    assert parts["state"].endswith(f"- {text}: {text}")
    assert parts["mem_s"].endswith(f"- {text}") and parts["mem_l"].endswith(f"\n{text}")
    assert parts["tools"].startswith(f"# Tools\n{text}\n") and parts["tools"].endswith(f"- {text}")
    assert shown(replace(now, kind="KO", cards=text))["know"] == f"# Policy cards\n{text}"
    assert text in summary_request(now)[0]["content"] and text in correction(text, [text], True)


# Cards and tools ---------------------------------------------------------------------------------

FIGURE_12 = {
    "name", "optimized_objective", "overall_strength", "stability", "behavior_hint", "applicability",
    "failure_modes", "example_snippets", "avg_scalar_reward", "std_scalar_reward", "objectives",
}  # fmt: skip


def test_cards_hold_the_fields_of_figure_12_and_the_rubric_once(world):
    text = shown(situation(world, "KO"))["know"]
    told = json.loads(text.removeprefix("# Policy cards\n"))
    assert [card["name"] for card in told["policies"]] == list(SINGLE)
    for card, full in zip(told["policies"], zoo.cards(world.domain), strict=True):
        assert set(card) == FIGURE_12 | {"normalized_reward"}
        assert card["example_snippets"] == full["example_snippets"]
        assert card["avg_scalar_reward"] == pytest.approx(
            full["avg_scalar_reward"], rel=5e-3, abs=1e-9
        )
    assert set(told["rubric"]) == {"accuracy", "mastery", "reward", "stability"}
    assert text.count("normalised reward") == 1


def test_tools_hold_the_fields_of_figure_13(world):
    text = shown(situation(world, "RO"))["tools"]
    told = json.loads(text.removeprefix("# Tools\n"))
    assert [tool["name"] for tool in told["tools"]] == list(SINGLE)
    for tool, card in zip(told["tools"], zoo.cards(world.domain), strict=True):
        assert tool == {key: card[key] for key in ("name", "behavior_hint", "optimized_objective")}
    assert set(told["schema"]) == {"input", "output"}
    assert list(told["schema"]["output"]["rewards"]) == list(world.words.objectives)
    assert all(action in told["schema"]["output"]["did"] for action in world.words.actions)


# Secrets -----------------------------------------------------------------------------------------


def visible(world) -> bytes:
    """What a policy sees, and in the room also where it is."""
    place = repr(world.facts()) if world.domain == "minigrid" else ""
    return world.observation.tobytes() + place.encode()


@pytest.mark.parametrize(("domain", "count"), [("education", 80), ("minigrid", 400)])
def test_worlds_that_look_alike_make_the_same_prompt_whatever_is_hidden_in_them(domain, count):
    worlds = sorted((zoo.world(domain, seed) for seed in range(count)), key=visible)
    alike = [(a, b) for a, b in pairwise(worlds) if visible(a) == visible(b)]
    assert len(alike) >= 5 and all(a.stream != b.stream for a, b in alike)
    if domain == "minigrid":
        assert any(
            (a.env.board != b.env.board).any() for a, b in alike
        )  # what is out of view does differ
    for (a, b), kind in product(alike, KINDS):
        assert shown(situation(a, kind)) == shown(situation(b, kind))


@pytest.mark.parametrize("domain", zoo.DOMAINS)
def test_a_secret_in_the_environment_does_not_get_into_the_prompt(domain):
    plain, canary = zoo.world(domain, 5), zoo.world(domain, 5)
    secret = np.uint64(777_123_456_789)
    canary.stream = canary.draws = secret
    canary.env.key[:] = secret
    for kind in KINDS:
        parts = shown(situation(canary, kind))
        assert parts == shown(situation(plain, kind))
        assert not any(str(secret) in text or hex(secret)[2:] in text for text in parts.values())


def test_what_lies_behind_the_robot_does_not_get_into_the_prompt():
    room = zoo.world("minigrid", 5)
    column, row = room.env.describe(0)["position"]
    before = {kind: shown(situation(room, kind)) for kind in KINDS}
    board, changed = room.env.board, 0
    for cell, code in product(range(16), (1, 8, 9)):  # floor, goal, lava
        kept = board[0, cell]
        board[0, cell] = code
        if np.array_equal(room.env._observe(), room.observation) and kept != code:
            changed += 1
            gold_is_counted = kept == 6
            assert (
                gold_is_counted or {kind: shown(situation(room, kind)) for kind in KINDS} == before
            )
        board[0, cell] = kept
    assert changed > 0, (
        f"everything is in view from column {column}, row {row}: choose another room"
    )


def test_without_anything_for_a_role_there_is_no_message_for_it(student):
    parts = render(prompt_components.components("KO", ["instr", "mem_l"]), situation(student, "KO"))
    assert [message["role"] for message in assemble(parts)] == ["user"]


@pytest.mark.parametrize(
    ("kind", "without"), [("XO", []), ("KO", ["tools"]), ("TO", ["reflect"]), ("RO", ["memory"])]
)
def test_an_unknown_orchestrator_or_component_is_named(kind, without):
    with pytest.raises(ValueError, match=without[0] if without else kind):
        prompt_components.components(kind, without)


def test_every_field_of_a_situation_is_in_the_properties_and_every_template_has_a_use():
    assert {field.name for field in fields(Situation)} == set(OWN) | {"domain", "kind", "budget"}
    used = {each.template for each in prompt_components.ORDER} | {"summary.md", "correction.md"}
    assert used == {path.name for path in TEXTS}


@pytest.mark.parametrize("kind", KINDS)
def test_money_is_mentioned_only_where_there_is_a_budget(kind, world):
    free, paid = (
        situation(world, kind),
        situation(world, kind, budget=Budget(0.3, 0.12345, 0.00678)),
    )
    old, new = shown(free), shown(paid)
    assert {name for name in old if old[name] != new[name]} == {"query", "instr"}
    assert "Budget: $0.12345 of $0.30000 left; a reply has cost about $0.00678." in new["query"]
    assert not any(
        word in text.lower() for text in old.values() for word in ("budget", "$", "cost")
    )


@pytest.mark.parametrize(
    ("kind", "example"), [("TO", '"call": "NAME"'), ("RO", '"call": ["NAME", "NAME"]')]
)
def test_when_nothing_is_left_to_try_the_format_of_a_call_is_gone(kind, example, world):
    open_, final = (shown(situation(world, kind, final=final)) for final in (False, True))
    assert example in open_["instr"] and "decide now" not in open_["query"]
    assert '"call"' not in "".join(final.values()) and "decide now" in final["query"]
    assert '"policy": "NAME"' in open_["instr"] and '"policy": "NAME"' in final["instr"]


def test_ko_is_never_told_of_calls_or_copies(world):
    for final in (True, False):
        text = "".join(shown(situation(world, "KO", final=final)).values())
        assert '"call"' not in text and "copies" not in text and "tools" not in text


def test_a_correction_shows_the_format_only_when_it_is_time_to_decide():
    last = correction("there is no policy 'x'", SINGLE, final=True)
    assert (
        last.startswith("That reply cannot be used: there is no policy 'x'.")
        and '"policy": "NAME"' in last
    )
    assert last.endswith("SO-d1, SO-d2, SO-d3.")
    assert "NAME" not in correction("there is no policy 'x'", SINGLE, final=False)


def test_a_look_ahead_is_one_line():
    rewards = np.array([0.666, 0.0, 0.4])
    domain = zoo.world("education").words
    one = Foresight(
        "SO-d1", 1, 1, rewards, ("challenge",), "difficulties 0.8 0.8", "mastery +0.100"
    )
    assert result_line(one, domain) == (
        "SO-d1: did challenge; difficulties 0.8 0.8; rewards aptitude 0.67, gap 0.00, performance 0.40; "
        "mastery +0.100 (one copy)"
    )
    several = Foresight(
        "SO-d2", 3, 8, rewards, ("left", "forward"), "", "goal in 0% and lava in 25% of copies"
    )
    assert result_line(several, zoo.world("minigrid").words) == (
        "SO-d2: 3 steps: left, forward; rewards goal 0.67, no-lava 0.00, gold 0.40; "
        "goal in 0% and lava in 25% of copies (mean of 8 copies)"
    )


def test_a_past_step_is_one_line():
    state = {
        "mastery": "0.40 (the episode ends at 0.80)",
        "failed questions open": "3",
        "further": "x",
    }
    row = {"action": 1, "reward_0": 0.0, "reward_1": 0.2, "reward_2": 1.0}
    line = interaction_line(4, state, "SO-d3", row, "mastery +0.100", zoo.world("education").words)
    assert line == (
        "step 4: mastery 0.40, failed questions open 3; picked SO-d3; did easy; "
        "rewards aptitude 0.00, gap 0.20, performance 1.00; mastery +0.100"
    )
