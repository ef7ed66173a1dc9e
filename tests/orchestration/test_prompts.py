"""Prompts: who has which section, that each shows what is its own, and that nothing hidden gets in."""

import json
import re
from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.envs.layouts import CELLS, EMPTY, GOAL, GOLD, LAVA
from lib.orchestration import prompts
from lib.orchestration.contexts import (
    Budget,
    DecisionContext,
    PolicyKnowledge,
    ToolResult,
    ToolSignature,
)
from lib.orchestration.domain_descriptions import DESCRIBERS
from lib.orchestration.prompted_model import collect_contexts
from lib.policy_zoo.recipes import SINGLE, make_batched_env
from tests.orchestration.contests import (
    DOMAINS,
    PARAMS,
    SYSTEMS,
    make_context,
    make_episode_set,
    make_interaction,
    make_options,
    make_result,
    replace_in,
)

# Appendix A.2: the system message instructs and remembers, the user message asks and shows.
IN_ORDER = {
    "KO": ["instr", "mem_l", "query", "know", "state", "mem_s"],
    "TO": ["instr", "mem_l", "query", "tools", "state", "mem_s"],
    "RO": ["instr", "mem_l", "query", "tools", "state", "reflect", "mem_s"],
}
IN_SYSTEM_MESSAGE = {"instr", "mem_l"}
HEADINGS = {
    "instr": "# Role", "mem_l": "# Summary of the episode so far", "query": "# Query", "know": "# Policy cards",
    "tools": "# Tools", "state": "# State", "reflect": "# Simulated rollouts", "mem_s": "# Recent steps",
}  # fmt: skip


def render_texts(context: DecisionContext) -> dict[str, str]:
    """The texts of a prompt by component."""
    return {section.component: section.text for section in prompts.render(context)}


def join_messages(context: DecisionContext) -> str:
    """The whole prompt as one text."""
    messages = prompts.assemble(prompts.render(context))
    return "\n\n".join(message["content"] for message in messages)


# Table 1 --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("domain", "system"), product(DOMAINS, SYSTEMS))
def test_a_system_has_the_components_of_table_1_in_the_order_of_the_appendix(domain, system):
    sections = prompts.render(make_context(domain, system))
    assert [section.component for section in sections] == IN_ORDER[system]
    system_message, user_message = prompts.assemble(sections)
    assert (system_message["role"], user_message["role"]) == ("system", "user")
    for message, is_system in ((system_message, True), (user_message, False)):
        text = message["content"]
        present = [name for name in IN_ORDER[system] if HEADINGS[name] in text]
        assert set(present) == {
            n for n in IN_ORDER[system] if (n in IN_SYSTEM_MESSAGE) == is_system
        }
        positions = [text.index(HEADINGS[name]) for name in present]
        assert positions == sorted(positions)


@pytest.mark.parametrize(
    ("system", "component"), [(system, name) for system in SYSTEMS for name in IN_ORDER[system]]
)
def test_a_removed_component_leaves_no_trace_and_the_others_unchanged(system, component):
    context = make_context(system=system)
    without = replace(context, components=context.components - {component})
    whole, remaining = render_texts(context), render_texts(without)
    assert remaining == {name: text for name, text in whole.items() if name != component}
    prompt = join_messages(without)
    assert HEADINGS[component] not in prompt and whole[component] not in prompt


def test_without_anything_for_a_role_there_is_no_message_for_it():
    context = make_context()
    without = replace(context, components=context.components - IN_SYSTEM_MESSAGE)
    assert [message["role"] for message in prompts.assemble(prompts.render(without))] == ["user"]


# One section each -----------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=20)
numbers = st.integers(1, 999).map(lambda number: number / 1000)
interactions = st.builds(make_interaction, st.just("education"), st.integers(5, 9), texts)
results = st.builds(
    make_result, st.just("education"), st.sampled_from(SINGLE), st.sampled_from(["TO", "RO"])
)
knowledge = st.builds(
    lambda text, number: (PolicyKnowledge({"hint": text}, {text: (number,) * 4}),) * 3,
    texts,
    numbers,
)
signatures = st.builds(
    lambda text: tuple(ToolSignature(name, text, text) for name in SINGLE), texts
)
# By field of a context: its values, and the components that show it.
SHOWN_IN = {
    "recent": (st.lists(interactions, min_size=1, max_size=3).map(tuple), {"mem_s"}),
    "summary": (texts, {"mem_l"}),
    "words": (st.dictionaries(texts, texts, min_size=1, max_size=3), {"state"}),
    "situation": (texts, {"know"}),
    "knowledge": (knowledge, {"know"}),
    "tools": (signatures, {"tools"}),
    "tool_results": (st.tuples(results), {"tools", "reflect"}),
    "step": (st.integers(1, 500), {"query"}),
    "horizon": (st.integers(1, 500), {"query"}),
    "weights": (st.permutations([0.2, 0.3, 0.5]).map(lambda w: (*w, 0.0)), {"query"}),
    "topic": (texts, {"instr"}),
    "budget": (st.builds(Budget, numbers, numbers, numbers), {"query", "instr"}),
    # Hidden from every prompt.
    "features": (st.dictionaries(texts, numbers), set()),
    "stream": (st.integers(0, 2**63), set()),
    "episode": (st.integers(0, 9_999_999), set()),
    "last_policy": (texts, set()),
    "plan_values": (st.just(np.array([0.123456])), set()),
}
# What a system has no use for.
UNUSED = {
    "KO": {"tools", "tool_results"},
    "TO": {"knowledge", "situation"},
    "RO": {"knowledge", "situation"},
}
RESULTS_IN = {"TO": {"tools"}, "RO": {"reflect"}}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("field", SHOWN_IN)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_what_changes_in_a_context_changes_its_own_section_and_no_other(field, system, data):
    values, sections = SHOWN_IN[field]
    context = make_context(system=system)
    changed_context = replace_in(context, **{field: data.draw(values)})
    before, after = render_texts(context), render_texts(changed_context)
    changed = {name for name in before if before[name] != after[name]}
    if field in UNUSED[system]:
        sections = set()
    elif field == "tool_results":
        sections = RESULTS_IN[system]
    assert changed <= sections
    if changed_context != context and join_messages(context) == join_messages(changed_context):
        assert not sections


def test_every_field_of_a_context_is_in_these_properties():
    in_contexts = {field.name for field in fields(DecisionContext)} - {"query", "state"}
    elsewhere = {"system", "domain", "policies", "components"}  # who asks, and of what
    calls = {"calls_left", "calls_at_once", "rollout_steps"}  # below
    of_query_and_state = {"step", "horizon", "weights", "topic", "words", "situation", "features"}
    assert in_contexts | of_query_and_state == set(SHOWN_IN) | elsewhere | calls


@pytest.mark.parametrize("domain", DOMAINS)
def test_ko_shows_no_results_of_calls_and_only_ko_shows_cards(domain):
    for system in SYSTEMS:
        prompt = join_messages(make_context(domain, system))
        assert ("mean of 8 copies" in prompt) == (system != "KO")
        assert ("# Policy cards" in prompt) == ("failure_modes" in prompt) == (system == "KO")
        assert ("copies of the" in prompt or "a copy of the" in prompt) == (system != "KO")
        assert ("optimized_objective" in prompt) and ("call" in prompt) == (system != "KO")


def test_policies_are_named_where_the_choice_is_asked_for():
    context = make_context(system="TO")
    renamed = replace(context, policies=("left", "right", "SO-d1"))
    changed = [
        name for name, text in render_texts(renamed).items() if text != render_texts(context)[name]
    ]
    assert changed == ["instr"]
    assert "by its exact name: left, right, SO-d1." in render_texts(renamed)["instr"]


def test_equal_contexts_have_equal_prompts_also_where_what_is_hidden_differs():
    for domain, system in product(DOMAINS, SYSTEMS):
        one = make_context(domain, system)
        other = replace_in(one, stream=3, episode=4, last_policy="", features={"mastery": 0.987654})
        assert prompts.render(one) == prompts.render(make_context(domain, system))
        assert prompts.render(one) == prompts.render(other)
        for secret in ("777123456789", "777321", "0.123456", "hidden number"):
            assert secret not in join_messages(one)


# What is asked for ----------------------------------------------------------------------------------


def list_shown_criteria(text: str) -> set[str]:
    """Criteria that a text gives a number, an importance or a type for."""
    pattern = r"\b(aptitude|gap|performance|progress)(?:\"?: \"number| -?\d\.\d{3}|, importance)"
    return set(re.findall(pattern, text))


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    ("weights", "criteria"),
    [
        ((0.2, 0.3, 0.5, 0.0), {"aptitude", "gap", "performance"}),
        ((0.0, 0.0, 0.0, 1.0), {"progress"}),
        ((0.0, 0.5, 0.0, 0.5), {"gap", "progress"}),
    ],
)
def test_what_the_query_does_not_ask_for_stands_in_no_section(system, weights, criteria):
    sections = render_texts(make_context(system=system, weights=weights))
    with_numbers = {"KO": {"query", "know", "mem_s"}, "TO": {"query", "tools", "mem_s"}}
    with_numbers["RO"] = with_numbers["TO"] | {"reflect"}
    for name, text in sections.items():
        expected = criteria if name in with_numbers[system] else set()
        assert list_shown_criteria(text) == expected


def test_the_query_says_what_counts_and_how_much():
    query = render_texts(make_context(weights=(0.0, 0.25, 0.0, 0.75)))["query"]
    assert "- gap, importance 0.25: have questions answered right that were failed before." in query
    assert "- progress, importance 0.75: raise the student's mastery" in query
    assert "aptitude" not in query and "performance" not in query
    assert query.startswith("# Query\nPick the policy for step 5 of at most 12")


def test_results_keep_the_digits_that_arithmetic_on_contexts_has():
    progress = make_result("education", "SO-d1", "TO", (0.0, 0.0, 0.0, 0.013))
    context = make_context(system="TO", weights=(0, 0, 0, 1.0), tool_results=(progress,))
    assert "results progress 0.013; mastery" in render_texts(context)["tools"]


# Lines ----------------------------------------------------------------------------------------------


def test_a_call_is_one_line():
    context = make_context(system="TO")
    one = ToolResult(
        "SO-d1",
        1,
        1,
        (0.666, 0.0, 0.4, 0.1),
        ("challenge",),
        "difficulties 0.8 0.8",
        "mastery +0.1",
    )
    assert prompts.describe_tool_result(one, context) == (
        "SO-d1: did challenge; difficulties 0.8 0.8; results aptitude 0.666, gap 0.000, performance 0.400; "
        "mastery +0.1 (one copy)"
    )
    lava = "goal in 0% and lava in 25% of copies"
    several = ToolResult("SO-d2", 3, 8, (0.5, 0.75, 0.0), ("left", "forward"), "", lava)
    assert prompts.describe_tool_result(several, make_context("minigrid", "RO")) == (
        "SO-d2: 3 steps: left, forward; results goal 0.500, no-lava 0.750, gold 0.000; "
        "goal in 0% and lava in 25% of copies (mean of 8 copies)"
    )


def test_a_past_step_is_one_line():
    line = prompts.describe_interaction(make_interaction("education", 4), make_context())
    assert line == (
        "step 4: mastery 0.34, failed questions open 2; picked SO-d2; did easy; "
        "results aptitude 0.000, gap 0.250, performance 0.750; mastery +0.075"
    )


@pytest.mark.parametrize("domain", DOMAINS)
def test_cards_hold_the_fields_of_figure_12_the_results_by_situation_and_the_rubric_once(domain):
    context = make_context(domain)
    text = render_texts(context)["know"]
    content, _ = json.JSONDecoder().raw_decode(text.removeprefix("# Policy cards\n"))
    assert [card["name"] for card in content["policies"]] == list(SINGLE)
    for shown, known in zip(content["policies"], context.knowledge, strict=True):
        assert set(shown) == set(known.card) - {"domain", "rubric"} | {"results"}
        assert shown["example_snippets"] == known.card["example_snippets"]
        rows = dict(row.split(": ") for row in shown["results"])
        assert set(rows) == set(known.results) == set(DESCRIBERS[domain].situations)
        for situation, row in rows.items():
            values = [float(number) for number in re.findall(r"-?\d\.\d{3}", row)]
            assert values == pytest.approx(known.results[situation][:3], abs=5e-4)
    assert content["rubric"] == context.knowledge[0].card["rubric"]
    assert text.endswith(f"The situation now: {context.state.situation}.")


def test_tools_hold_the_fields_of_figure_13():
    text = render_texts(make_context(system="RO"))["tools"]
    content = json.loads(text.removeprefix("# Tools\n"))
    assert set(content["schema"]) == {"input", "output"}
    for shown, tool in zip(content["tools"], make_context(system="RO").tools, strict=True):
        assert list(shown.values()) == [tool.name, tool.objective, tool.behavior]


# Calls ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "example"), [("TO", '"call": "NAME"'), ("RO", '"call": ["NAME", "NAME"]')]
)
def test_the_format_of_a_call_stands_there_only_while_something_is_left_to_try(system, example):
    context = make_context(system=system)
    everything_tried = tuple(make_result("education", name, system) for name in SINGLE)
    for final in (
        replace(context, calls_left=0),
        replace(context, tool_results=everything_tried, calls_left=3),
    ):
        before, after = render_texts(context), render_texts(final)
        assert example in before["instr"] and "decide now" not in before["query"]
        assert '"call"' not in after["instr"] and "decide now" in after["query"]
        assert '"policy": "NAME"' in before["instr"] and '"policy": "NAME"' in after["instr"]


@pytest.mark.parametrize("system", ["TO", "RO"])
def test_the_limit_of_calls_stays_the_same_while_they_are_used_up(system):
    fresh = make_context(system=system, tool_results=(), calls_left=3)
    later = make_context(system=system, calls_left=2)
    for context in (fresh, later):
        assert re.search(r"\b3 (policies )?at the most", render_texts(context)["instr"])
    assert "at the most" not in render_texts(make_context(system="KO"))["instr"]


def test_a_reply_without_reasoning_is_asked_for_without_it():
    for system in SYSTEMS:
        context = make_context(system=system, calls_left=0)
        (with_reasons, *_), (without, *_) = (
            prompts.render(context, with_reasoning) for with_reasoning in (True, False)
        )
        assert 'To decide: {"reasoning": "...", "policy": "NAME"}' in with_reasons.text
        assert 'To decide: {"policy": "NAME"}' in without.text
        assert "reasoning" not in without.text
        others = [prompts.render(context, flag)[1:] for flag in (True, False)]
        assert others[0] == others[1]


@pytest.mark.parametrize("system", SYSTEMS)
def test_money_is_mentioned_only_where_there_is_a_budget(system):
    free = render_texts(make_context(system=system))
    paid = render_texts(make_context(system=system, budget=Budget(0.3, 0.12345, 0.00678)))
    assert {name for name in free if free[name] != paid[name]} == {"query", "instr"}
    assert "Budget: $0.12345 of $0.30000 left; a reply has cost about $0.00678." in paid["query"]
    free_text = "".join(free.values()).lower()
    assert not any(word in free_text for word in ("budget", "$", "cost"))


# Corrections and summaries --------------------------------------------------------------------------


def test_a_correction_shows_the_format_only_when_it_is_time_to_decide():
    problem = "there is no policy 'x'"
    final = prompts.write_correction(make_context("education", "KO"), problem)
    assert final.startswith(f"That reply cannot be used: {problem}.")
    assert '"policy": "NAME"' in final and final.endswith("SO-d1, SO-d2, SO-d3.")
    assert "NAME" not in prompts.write_correction(make_context("education", "TO"), problem)


def test_a_reply_is_sent_back_with_the_complaint_and_not_at_any_length():
    messages = prompts.assemble(prompts.render(make_context()))
    conversation = prompts.send_back(messages, "x" * 50_000, "no")
    assert [message["role"] for message in conversation] == ["system", "user", "assistant", "user"]
    assert conversation[:2] == messages and conversation[3]["content"] == "no"
    assert len(conversation[2]["content"]) == prompts.LONGEST_ECHO
    assert prompts.send_back(messages, "", "no")[2]["content"] == "(nothing)"


def test_a_summary_is_asked_for_with_the_old_one_and_the_new_steps_and_nothing_else():
    context = make_context(system="RO")
    (message,) = prompts.summary_messages(context)
    text = message["content"]
    assert message["role"] == "user" and "SO-d1 has worked." in text and "150 words" in text
    for interaction in context.recent:
        assert prompts.describe_interaction(interaction, context) in text
    assert "mean of 8 copies" not in text and "importance" not in text


# Templates ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", DOMAINS)
def test_every_branch_renders_without_holes(domain):
    empty = {"recent": (), "tool_results": (), "summary": ""}
    for system, calls_left, budget, values in product(
        SYSTEMS, (0, 2), (None, Budget(0.1, 0.05, 0.002)), ({}, empty)
    ):
        context = make_context(domain, system, calls_left=calls_left, budget=budget, **values)
        asked = [prompts.summary_messages(context)[0]["content"]]
        asked.append(prompts.write_correction(context, "it is odd"))
        asked += [section.text for section in prompts.render(context, with_reasoning=False)]
        for text in [*render_texts(context).values(), *asked]:
            assert text == text.strip() and "\n\n\n" not in text
            without_json = re.sub(r"^ +", "", text, flags=re.MULTILINE)
            assert not re.search(r"\{\{|\{%|\{#|None|Undefined|\S  |- \n|: \.| ,", without_json)


TRICKY = [
    "{{ 7 * 7 }}", "{% for a in b %}", "{# gone #}", "{topic} {0} {}", "%s %(name)d 100%", "<b> & 'quoted'",
    "$HOME `ls` \\u002d", "# Query",
]  # fmt: skip


@pytest.mark.parametrize("text", TRICKY)
def test_signs_of_a_template_language_in_data_are_only_data(text):
    context = make_context(
        system="TO",
        topic=text,
        words={text: text},
        recent=(make_interaction("education", 4, text),),
        summary=text,
        policies=(text,),
    )
    sections = render_texts(context)
    assert f"who is learning {text}." in sections["instr"]
    assert f"exact name: {text}." in sections["instr"]
    assert sections["state"].endswith(f"- {text}: {text}")
    assert f"picked {text};" in sections["mem_s"] and sections["mem_l"].endswith(f"\n{text}")
    assert text in prompts.summary_messages(context)[0]["content"]
    assert text in prompts.write_correction(context, text)


def test_every_template_has_a_use():
    used = {component.name for component in prompts.COMPONENTS} | {"summary", "correction"}
    judge = {"judge_system", "judge_user", "judge_correction"}
    assert used | judge == {path.stem for path in prompts.TEMPLATES.glob("*.md")}


# Real episodes --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("domain", "system"), product(DOMAINS, SYSTEMS))
def test_prompts_of_real_episodes_show_their_state_and_their_last_steps(domain, system):
    contexts = collect_contexts(make_episode_set(domain), make_options(domain, system))
    assert max(context.query.step for context in contexts) > 4
    for context in contexts:
        sections = render_texts(context)
        for name, value in context.state.words.items():
            assert f"- {name}: {value}" in sections["state"]
        first_shown = max(1, context.query.step - 3)
        steps = [int(step) for step in re.findall(r"^- step (\d+):", sections["mem_s"], re.M)]
        assert steps == list(range(first_shown, context.query.step))
        shown = re.findall(r"^- (SO-d\d): ", "\n".join(sections.values()), re.M)
        assert shown == ([] if system == "KO" else list(SINGLE))


def test_what_the_robot_cannot_see_does_not_get_into_prompts_of_to_and_ro():
    env = make_batched_env(PARAMS, "minigrid", ["composite"])
    env.seed_with(np.array([5], dtype=np.uint64))
    observation = env.reset().copy()
    describer = DESCRIBERS["minigrid"](PARAMS)

    def render_all() -> list:
        words = describer.describe_state(env, 0)
        situation = describer.name_situations(describer.read_state_features(env))[0]
        contexts = [
            make_context("minigrid", system, words=words, situation=situation)
            for system in ("TO", "RO")
        ]
        return [prompts.render(context) for context in contexts]

    before = render_all()
    num_hidden_changes = 0
    for cell, content in product(range(CELLS), (EMPTY, GOAL, LAVA)):
        original = env.board[0, cell]
        env.board[0, cell] = content
        if original not in (content, GOLD) and np.array_equal(env._observe(), observation):
            num_hidden_changes += 1
            assert render_all() == before
        env.board[0, cell] = original
    assert num_hidden_changes > 0, "everything is in view: choose another room"
