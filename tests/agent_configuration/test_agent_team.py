"""A call of an agent: what it is told, which tools it has, where its budget ends it, and what it costs."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.agent_configuration.agent_team import MOST_TOOLS, Note, journal
from lib.language_models.chat_template import parse_tool_call
from lib.llm.chat_model import Reply
from tests.agent_configuration.small import Asked, Voice, make_turn, one_call, run, team, voiced

TIERS = (8, 24, 64)
SUM = "<call> calculator 4 * 8 </call>"
DONE = "<answer> 32 </answer>"


# Budgets -------------------------------------------------------------------------------------------


def spender(*num_tokens: int):
    """Who writes so many tokens a turn, or what is left, and calls a tool each time."""
    remaining = iter(num_tokens)

    def reply(request: Asked) -> Reply:
        wants = next(remaining)
        if wants > request.limit:
            return make_turn("", 1, request.limit, None, True)
        return make_turn(SUM, 1, wants, parse_tool_call(SUM))

    return reply


def test_what_is_left_of_a_budget_shrinks_from_turn_to_turn_and_what_was_found_before_a_cut_is_kept():
    voice = Voice(spender(10, 10, 10))
    last, agents = one_call(voice, tiers=TIERS, budget=1)
    assert [request.limit for request in voice.heard] == [24, 14, 4]
    assert (
        agents.usage.tokens_out == 24 and agents.usage.cut == 1 and last.cut and last.answer is None
    )
    assert last.steps == "4 * 8 : 32 ; 4 * 8 : 32" and agents.usage.tools == ["calculator"] * 2


def test_a_budget_that_is_spent_on_a_tools_call_leaves_nothing_to_run_it_with():
    """The call is written, but there is no token left to read its result with."""
    last, agents = one_call(Voice(spender(8)), budget=0, tiers=TIERS)
    assert agents.usage.turns == 1 and agents.usage.tools == [] and last.cut and last.steps == ""


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=7, max_size=7), st.integers(0, 2))
def test_no_call_writes_more_than_its_budget_or_is_asked_without_any(num_tokens, budget):
    voice = Voice(spender(*num_tokens))
    _, agents = one_call(voice, budget=budget, tiers=TIERS)
    limits = [request.limit for request in voice.heard]
    assert agents.usage.tokens_out <= TIERS[budget] and min(limits) >= 1
    assert limits == [TIERS[budget] - sum(num_tokens[:turn]) for turn in range(len(limits))]


@pytest.mark.parametrize(
    "replies, cut", [(make_turn("<think> 4 *", 1, 8, None, True), 1), (make_turn(DONE, 1, 8), 0)]
)
def test_only_calls_that_were_truncated_count_as_cut(replies, cut):
    last, agents = one_call(Voice(voiced(replies)), budget=0, tiers=TIERS)
    assert agents.usage.cut == cut and last.cut == bool(cut)


@pytest.mark.parametrize("tokens_out, is_counted", [(8, True), (5, True), (5, False)])
def test_a_call_that_is_cut_with_budget_left_met_a_limit_of_the_model(tokens_out, is_counted):
    cut_turn = replace(make_turn("<think> 4 *", 1, tokens_out, cut=True), is_counted=is_counted)
    last, agents = one_call(Voice(voiced(cut_turn)), budget=0, tiers=TIERS)
    budget_left = TIERS[0] - tokens_out
    assert last.cut and agents.usage.cut == 1
    assert agents.usage.cut_by_model == int(is_counted and budget_left > 0)


# Tools ---------------------------------------------------------------------------------------------


def test_a_tool_is_run_and_its_result_is_read():
    voice = Voice(
        voiced(SUM, "<call> lookup friend Ana </call>", "<think> so </think> <answer> Bo </answer>")
    )
    last, agents = one_call(voice)
    assert [request.last for request in voice.heard] == ["Q", "32", "Bo"]
    assert (
        agents.usage.tools == ["calculator", "lookup"]
        and agents.usage.calls == 1
        and agents.usage.turns == 3
    )
    assert (last.steps, last.answer) == ("4 * 8 : 32 ; friend Ana : Bo ; so", "Bo")


@pytest.mark.parametrize(
    "allotted, offered", [(0, ()), (1, ("calculator",)), (6, ("search", "lookup"))]
)
def test_only_allotted_tools_are_offered(allotted, offered):
    voice = Voice(voiced(DONE))
    one_call(voice, tools=allotted)
    assert voice.heard[0].tools == offered


def test_the_answerer_of_others_has_no_tools_whatever_is_allotted():
    voice = Voice(voiced("<answer> a </answer>", DONE))
    run(team(voice, (1, 15, 0, 0, 0, 0)))
    assert [len(request.tools) for request in voice.heard] == [4, 0]


def test_a_wrong_call_is_answered_with_error_and_the_agent_goes_on():
    voice = Voice(
        voiced("<call> calculator four </call>", "<call> lookup friend </call>", SUM, DONE)
    )
    last, agents = one_call(voice)
    assert [request.last for request in voice.heard] == ["Q", "error", "error", "32"]
    assert last.answer == "32" and last.steps == "four : error ; friend : error ; 4 * 8 : 32"
    assert agents.usage.tools == ["calculator", "lookup", "calculator"]


# What is left for others ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, steps, answer, whole",
    [
        ("<think> 3 + 4 = 7 </think> <answer> 7 </answer>", "3 + 4 = 7", "7", "3 + 4 = 7 answer 7"),
        ("<answer> 7 </answer>", "", "7", "answer 7"),
        ("<think> 3 + 4", "3 + 4", None, "3 + 4"),
        ("<think> a </think> <think>  b\n c </think>", "a ; b c", None, "a ; b c"),
        ("<think> </think> <answer> 7 </answer>", "", "7", "answer 7"),
        (
            "I add them up . <answer> 7 </answer>",
            "I add them up .",
            "7",
            "I add them up . answer 7",
        ),
        ("It is 7", "It is 7", None, "It is 7"),
        ("", "", None, "nothing"),
        ("<answer> 7", "", None, "nothing"),
    ],
)
def test_a_note_holds_thoughts_and_answer_also_where_they_were_cut(text, steps, answer, whole):
    last, _ = one_call(Voice(voiced(text)))
    assert (last.steps, last.answer, last.whole, last.text) == (steps, answer, whole, text)


# Costs ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "structure, lengths, ready_at",
    [
        ((2, 0, 0, 0, 0, 0), {"reasoner": [4], "verifier": [6], "answerer": [2]}, [2, 5, 6]),
        ((3, 0, 0, 0, 0, 0), {"router": [2], "reasoner": [4], "answerer": [2]}, [1, 3, 4]),
        ((6, 0, 0, 0, 0, 0), {"router": [2], "worker": [8, 4], "answerer": [2]}, [1, 5, 7, 8]),
        ((5, 0, 0, 0, 0, 0), {"reasoner": [4, 10, 6], "answerer": [2]}, [2, 5, 3, 6]),
        ((4, 0, 0, 0, 0, 0), {"router": [2], "worker": [8, 4], "answerer": [2]}, [1, 5, 3, 6]),
    ],
    ids=["verify", "routing", "orchestrator", "voting", "sectioning"],
)
def test_calls_take_the_sum_of_their_seconds_and_those_at_the_same_time_the_longest(
    structure, lengths, ready_at
):
    """At half a second a token."""

    def reply(request: Asked) -> Reply:
        replies = (
            "<answer> first a then b </answer>"
            if request.role == "router"
            else "<answer> x </answer>"
        )
        return make_turn(replies, 1, lengths[request.role][request.number - 1])

    agents = team(Voice(reply, pace=0.5), structure, tiers=(100, 100, 100))
    last = run(agents)
    assert [note.at for note in agents.usage.trail] == ready_at and last.at == ready_at[-1]


def test_failures_are_recorded_and_truncations_are_not_failures():
    replies = [
        make_turn("", 0, 0, failure="timeout"),
        make_turn("x", 1, 1, None, True, "truncated"),
    ]
    agents = team(Voice(voiced(*replies)), (1, 0, 0, 0, 0, 0))
    last = run(agents)
    assert agents.usage.failures == ["timeout"] and agents.usage.cut == 1 and last.answer is None
    assert agents.usage.trail[0].whole == "nothing"


def test_a_tool_that_is_not_allotted_is_never_run():
    voice = Voice(voiced(make_turn("<call> python print </call>", 1, 1, ("python", "print"))))
    last, agents = one_call(voice, tools=1)
    assert (
        agents.usage.tools == []
        and agents.usage.turns == 1
        and last.answer is None
        and last.steps == ""
    )


def test_a_model_of_another_kind_is_told_what_was_wrong():
    voice = Voice(voiced(make_turn("", 1, 1, ("calculator", "four")), DONE), backend="endpoint")
    one_call(voice)
    assert voice.heard[1].last.startswith("error: calculator cannot give 'four'")


def test_an_agent_calls_six_tools_at_the_most():
    last, agents = one_call(Voice(voiced(*[SUM] * 9)), tiers=(8, 24, 10**6))
    assert agents.usage.turns == MOST_TOOLS + 1 == 7 and agents.usage.tools == ["calculator"] * 6
    assert last.answer is None and last.steps == " ; ".join(["4 * 8 : 32"] * 6)


def test_a_journal_is_all_steps_and_the_last_answer():
    contents = (("one", "7"), ("", None), ("three", "9"))
    remaining = [Note("reasoner", 0, steps, answer, "", 0.0) for steps, answer in contents]
    (context,) = journal(remaining)
    assert context.text == "evidence one ; three answer 9" and context.sources == tuple(remaining)
    assert journal(remaining[:2])[0].text == "evidence one" and journal([]) == ()


def test_a_lab_model_is_told_its_role_and_its_hints():
    voice = Voice(voiced("<answer> 7 </answer>", DONE))
    run(
        team(
            voice,
            (1, 0, 0, 0, 0, 0),
            prompts=(["be brief", "avoid error"], [], ["only the answer"]),
        ),
        "3 + 4 = ?",
    )
    assert [request.messages for request in voice.heard] == [
        [
            {"role": "system", "content": "role reasoner be brief avoid error"},
            {"role": "user", "content": "3 + 4 = ?"},
        ],
        [
            {"role": "system", "content": "role answerer only the answer"},
            {"role": "user", "content": "question 3 + 4 = ? evidence answer 7"},
        ],
    ]


def test_tokens_dollars_and_seconds_add_up_over_all_turns():
    turns = [
        make_turn(SUM, 10, 5, ("calculator", "4 * 8")),
        make_turn("<answer> 32 </answer>", 20, 3),
        make_turn(DONE, 30, 2),
    ]
    agents = team(Voice(voiced(*turns), prices=(0.001, 0.1), pace=0.5), (1, 1, 0, 2, 0, 2))
    run(agents)
    assert (
        agents.usage.calls,
        agents.usage.turns,
        agents.usage.tokens_in,
        agents.usage.tokens_out,
    ) == (
        2,
        3,
        60,
        10,
    )
    assert agents.usage.cost_usd == pytest.approx(0.06 + 1.0) and [
        note.at for note in agents.usage.trail
    ] == [4.0, 5.0]
