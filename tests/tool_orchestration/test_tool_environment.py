"""The tools at work: what is malformed and what merely fails, what is heard and paid, outages, offices."""

import math

import pytest
from hypothesis import given as forall
from hypothesis import strategies as st

from lib.language_models import tokenizer as lab
from lib.language_models.chat_template import encode_conversation
from lib.llm.chat_model import Failure
from lib.rl import call_protocol
from lib.rl.expert_pool import ExpertReply
from lib.tasks import multi_hop_facts
from lib.tool_orchestration import plain_prompt
from lib.tool_orchestration.single_tools import make_strategy, try_single_tools
from lib.tool_orchestration.tool_environment import (
    OUTAGE,
    ToolEpisode,
    roll_out_assignments,
)
from lib.tool_orchestration.tool_menu import OFFICE
from tests.budgeted_routing.small_systems import ScriptedController
from tests.tool_orchestration import common
from tests.tool_orchestration.common import (
    CLOCK,
    answer,
    at_work,
    call,
    given,
    item,
    offers,
    played,
    told,
)

CHAIN, BIG, FACT = item("chain", 3), item("big", 3), item("facts", 1)
RELATION, PLACE = FACT.id.split("/")[1:]
FACTORS = (2.5, 0.5)  # of the menu's prices to the list's


@pytest.fixture(scope="module")
def desk():
    """Its models say 4."""
    with at_work() as made:
        yield made


@pytest.fixture(autouse=True)
def nothing_asked(desk):
    desk.pool.query_batches.clear()


def menu_of(work, *names, **more):
    return given(
        work, *(names or ("calculator", "search", "python", "lab-mini")), factors=FACTORS, **more
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<think> + 3 </think>", "neither a call nor an answer"),
        ("", "neither"),
        ("<call> </call>", "neither"),
        (
            "<call> lookup home Ana </call>",
            "no tool 'lookup' on the menu",
        ),  # a tool, but not on this menu
        ("<call> lab-large 1 + 1 = ? </call>", "no tool 'lab-large' on the menu"),
        ("<call> moves Ana Loro </call>", "no tool 'moves' on the menu"),  # an office's function
        ("<call> calculator </call>", "calculator takes"),
        ("<call> lab-mini </call>", "lab-mini takes a question"),
    ],
)
def test_what_is_no_call_is_malformed_is_told_so_and_costs_nothing(desk, text, why):
    episode = played(desk, menu_of(CHAIN), text, answer(CHAIN.reference))
    assert why in episode.turns[0].malformed and episode.num_malformed == 1
    assert told(episode) == ["error"] and episode.correct == 1.0
    assert (episode.cost_usd, episode.seconds, episode.counts, episode.called_experts) == (
        0.0,
        0.0,
        {},
        [],
    )
    assert desk.pool.queries == []


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (
            "<call> calculator 1 + 1 </call> <answer> 2 </answer>",
            call_protocol.Answer,
        ),  # the end of the turn counts
        (
            "<answer> 2 </answer> <call> calculator 1 + 1 </call>",
            call_protocol.Call("calculator", "1 + 1"),
        ),
        (
            "<call> search x </call> <call> calculator 2 </call>",
            call_protocol.Call("calculator", "2"),
        ),
        (
            "<call> search <t> home of Ana </t> </call>",
            call_protocol.Call("search", "<t> home of Ana </t>"),
        ),
        ("<call>calculator   1 +\n1</call>", call_protocol.Call("calculator", "1 +\n1")),
        (
            "<call> lab-mini question </call>",
            call_protocol.Call("lab-mini", call_protocol.USER_QUESTION),
        ),
    ],
)
def test_calls_and_answers_mixed_and_nested(desk, text, read):
    turn = desk.parse_turn(ToolEpisode(menu_of(CHAIN), [], [], 0), text)
    assert turn == read if isinstance(read, call_protocol.Call) else isinstance(turn, read)


PIECES = st.sampled_from(
    [
        *lab.list_token_texts(),
        *(f" {name}" for name in common.NAMES),
        "\n",
        "é",
        "\ud800",
        "'",
        "\\",
        "\0",
    ]
)
CALLS = st.tuples(st.sampled_from([*common.NAMES, "moves", "vote"]), st.lists(PIECES, max_size=12))


@forall(CALLS, st.booleans())
def test_any_call_is_malformed_or_answered_and_never_an_exception(desk, made, at_office):
    name, pieces = made
    work = common.office(changes=True) if at_office else FACT
    names = [n for n in common.NAMES if not (at_office and n == "lookup")]
    episode = ToolEpisode(given(work, *names), [], [], 0)
    turn = desk.parse_turn(episode, f"<call> {name} {''.join(pieces)} </call>")
    if isinstance(turn, call_protocol.Call):
        (heard,) = desk.answer_calls([(episode, turn, 0)])
        assert isinstance(heard.text, str) and sum(episode.counts.values()) == 1
        assert heard.cost_usd > 0 and episode.seconds > 0


@pytest.mark.parametrize(
    ("tool", "argument", "reply"),
    [
        ("calculator", "47 * 38", "1786"),
        ("python", "47 * 38", "1786"),
        (
            "search",
            f"{RELATION} of {PLACE}",
            multi_hop_facts.RELATIONS[RELATION][2].format(PLACE, FACT.reference),
        ),
        ("lookup", f"{RELATION} {PLACE}", FACT.reference),
        ("calculator", "1 / 0", call_protocol.ERROR_REPLY),
        ("python", "1 / 0", call_protocol.ERROR_REPLY),
        ("python", "home of Ana", call_protocol.ERROR_REPLY),
        ("lookup", "home Loro", call_protocol.ERROR_REPLY),
    ],
)
def test_functions_reply_or_fail_and_cost_what_the_menu_says(desk, tool, argument, reply):
    """A call that fails is an outcome, which is heard as error and paid."""
    episode = played(desk, menu_of(FACT, tool), call(tool, argument), answer(FACT.reference))
    assert told(episode) == [reply] and episode.correct == 1.0
    assert episode.cost_usd == pytest.approx(2.5 * offers()[tool].cost_usd)
    assert episode.seconds == pytest.approx(0.5 * offers()[tool].seconds)
    assert (
        episode.counts == {tool: 1}
        and episode.called_experts == [tool]
        and episode.num_malformed == 0
    )


def test_equal_code_is_run_once_and_replies_the_same(desk, monkeypatch):
    real, ran = desk.sandbox.run, []
    monkeypatch.setattr(desk.sandbox, "run", lambda code: ran.append(code) or real(code))
    codes = ["12 + 30", "12 + 31", "12 + 30", "12 / 0", "12 / 0"]
    heard = [
        played(desk, menu_of(BIG), call("python", code), answer(1)).turns[0].reply for code in codes
    ]
    assert (
        len(ran) == 3 and [h.text for h in heard[:3]] == ["42", "43", "42"] and heard[3] == heard[4]
    )
    assert all(h.cost_usd == heard[0].cost_usd for h in heard)  # remembered, and paid all the same


def test_a_model_is_asked_the_words_of_the_call_at_the_price_and_clock_of_the_menu(desk):
    episode = played(desk, menu_of(CHAIN), call("lab-mini", "1 + 2 = ?"), answer(4))
    (query,) = desk.pool.queries
    assert (query.expert, query.text) == ("lab-mini", "1 + 2 = ?") and told(episode) == ["4"]
    assert episode.cost_usd == pytest.approx(1e-5 * offers()["lab-mini"].cost_usd * 2.5)
    assert episode.seconds == pytest.approx(
        10 * CLOCK["lab-mini"] * offers()["lab-mini"].seconds * 0.5
    )
    heard = episode.turns[0].reply
    assert (heard.tokens_in, heard.tokens_out, heard.failure) == (7, 10, None)


def test_a_model_that_fails_is_heard_as_error_and_paid_what_was_billed():
    with at_work(lambda query: ExpertReply("", 3e-6, 7, 2, failure=Failure("empty"))) as made:
        episode = played(made, menu_of(CHAIN), call("lab-mini", "1 = ?"), answer(CHAIN.reference))
    assert told(episode) == ["error"] and episode.turns[0].reply.failure.kind == "empty"
    assert episode.cost_usd == pytest.approx(3e-6 * 2.5) and episode.seconds == pytest.approx(
        2 * CLOCK["lab-mini"] / 2
    )
    assert episode.counts == {"lab-mini": 1} and episode.correct == 1.0


def test_a_model_whose_server_failed_ends_the_episode_without_an_outcome():
    """A server that is down must not look like a tool that is bad."""
    lost = ExpertReply("", 0.0, failure=Failure("connection", "nobody listens"))
    with at_work(lambda query: lost) as made:
        episode = played(made, menu_of(CHAIN), call("lab-mini", "1 = ?"), answer(CHAIN.reference))
        rows = try_single_tools(
            made, [menu_of(CHAIN), menu_of(FACT)], ["lab-mini", "search"], "test"
        )
    assert (
        episode.failed and episode.is_done and math.isnan(episode.correct) and told(episode) == []
    )
    correct = {(row["tool"], row["item"]): row["correct"] for row in rows}
    assert math.isnan(correct["lab-mini", 0]) and correct["search", 1] == 1.0


def test_an_episode_costs_what_its_calls_cost_and_holds_all_that_was_read_and_written(desk):
    turns = [call("calculator", "1 + 1"), "<think>", answer(4)]
    episode = played(desk, menu_of(BIG), *turns)
    num_written = sum(len(lab.encode(turn)) for turn in turns)
    num_read = len(lab.encode("<response> 2 </response> <response> error </response>"))
    prompt = encode_conversation(plain_prompt.write_plain_messages(episode.assignment))
    assert episode.num_written_tokens == num_written
    assert len(episode.ids) == len(prompt) + num_written + num_read
    calculator = offers()["calculator"]
    assert episode.cost_usd == pytest.approx(2.5 * calculator.cost_usd)
    assert episode.seconds == pytest.approx(0.5 * calculator.seconds)


def test_an_outage_from_the_first_call_on_takes_the_time_and_asks_nobody(desk):
    assigned = menu_of(CHAIN, "lab-mini", "lab-nano", outage=1)
    turns = [call(name, "1 = ?") for name in ("lab-mini", "lab-mini", "lab-nano")]
    episode = played(desk, assigned, *turns, answer(4))
    assert told(episode) == ["error", "error", "4"] and [q.expert for q in desk.pool.queries] == [
        "lab-nano"
    ]
    assert [reply.tool_error for reply in episode.replies] == [OUTAGE, OUTAGE, ""]
    assert episode.cost_usd == pytest.approx(2.5e-5 * offers()["lab-nano"].cost_usd)
    down, up = (
        offers()["lab-mini"].typical_seconds,
        10 * CLOCK["lab-nano"] * offers()["lab-nano"].seconds,
    )
    assert episode.seconds == pytest.approx(0.5 * (2 * down + up))
    assert episode.counts == {"lab-mini": 2, "lab-nano": 1} and episode.num_malformed == 0


def test_an_outage_in_the_middle_lets_the_first_call_through(desk):
    work = item("facts", 2)
    plan = make_strategy("lookup", work)
    one = next(plan)
    relation, place = one.split()
    two = plan.send(multi_hop_facts.build_records()[relation][place])
    turns = [
        call("lookup", one),
        call("lookup", two),
        call("search", two.replace(" ", " of ")),
        call("lookup", two),
    ]
    episode = played(
        desk, menu_of(work, "lookup", "search", outage=2), *turns, answer(work.reference)
    )
    one, two, three, four = told(episode)
    assert (
        one != "error"
        and (two, four) == ("error", "error")
        and three.endswith(f"is {work.reference} .")
    )
    lookup, search = offers()["lookup"], offers()["search"]
    assert episode.cost_usd == pytest.approx(
        2.5 * (lookup.cost_usd + search.cost_usd)
    )  # what is down bills nothing
    assert (
        episode.seconds == pytest.approx(0.5 * (3 * lookup.seconds + search.seconds))
        and episode.correct == 1.0
    )


ASKS, CHANGES = common.office(changes=False), common.office(changes=True)


def first(task) -> str:
    """A turn with the first call that solves it."""
    name, *arguments = task.calls[0]
    return call(name, " ".join(arguments))


def test_an_office_task_is_judged_by_execution_fidelity_and_completeness(desk):

    def verdict(task, *turns):
        episode = played(desk, menu_of(task, "search"), *turns)
        v = episode.verdict
        assert episode.correct == float(v.execution and v.fidelity and v.completeness)
        return v.execution, v.fidelity, v.completeness

    assert verdict(ASKS, first(ASKS), answer(ASKS.answer)) == (True, True, True)
    assert verdict(ASKS, first(ASKS), answer("nothing")) == (True, False, True)
    # A guess: no call gave the information.
    assert verdict(ASKS, answer(ASKS.answer)) == (True, False, False)
    assert verdict(CHANGES, first(CHANGES), answer("done")) == (True, True, True)
    assert verdict(CHANGES, answer("done")) == (False, True, False)
    assert verdict(CHANGES, first(CHANGES), first(CHANGES), answer("done"))[1:] == (True, True)


def test_every_episode_has_the_office_to_itself(desk):
    generator = ScriptedController(first(CHANGES), answer("done"), window=common.WINDOW)
    both = roll_out_assignments(generator, desk, [menu_of(CHANGES, "search")] * 2, 3, 0)
    assert [e.correct for e in both] == [1.0, 1.0] and both[0].office is not both[1].office
    again = played(desk, menu_of(CHANGES, "search"), answer("done"))
    assert again.correct == 0.0  # nobody's changes are left over


def test_an_episode_is_the_same_alone_and_in_a_batch(desk):
    works = [CHAIN, BIG, FACT, CHANGES, item("facts", 2)]
    says = {
        CHAIN.prompt: [call("lab-mini", call_protocol.USER_QUESTION), "<call>", answer(4)],
        BIG.prompt: [call("python", BIG.prompt.removesuffix(" = ?")), answer(BIG.reference)],
        FACT.prompt: [
            call("search", f"{RELATION} of {PLACE}"),
            call("search", "home"),
            answer(FACT.reference),
        ],
        CHANGES.instruction: [first(CHANGES), answer("done")],
        works[4].prompt: [answer("nothing")],
    }

    def episodes(some):
        return roll_out_assignments(
            ScriptedController(write=lambda q, t: says[q][t], window=common.WINDOW),
            desk,
            [menu_of(w) for w in some],
            4,
            3,
        )

    together = episodes(works)
    for work, one in zip(works, together, strict=True):
        (alone,) = episodes([work])
        for name in ("ids", "mask", "correct", "cost_usd", "seconds", "counts", "turns"):
            assert getattr(alone, name) == getattr(one, name), name
    assert [e.correct for e in together] == [float(CHAIN.reference == "4"), 1.0, 1.0, 1.0, 0.0]


def test_a_malformed_call_is_not_the_first(desk):
    turns = [
        call("lookup", "home"),
        call("search", f"{RELATION} of {PLACE}"),
        call("lookup", f"{RELATION} {PLACE}"),
    ]
    episode = played(
        desk, menu_of(FACT, "lookup", "search", outage=1), *turns, answer(FACT.reference)
    )
    assert episode.first == "search" and told(episode) == ["error", "error", FACT.reference]


@pytest.mark.parametrize("argument", ["cat Ana", "home Abra", "? ?"])
def test_an_office_function_with_wrong_words_is_heard_as_error_and_paid(desk, argument):
    episode = played(desk, menu_of(ASKS, "search"), call("lookup", argument), answer("done"))
    assert episode.num_malformed == 0 and told(episode) == ["error"]
    assert episode.cost_usd == pytest.approx(2.5 * offers()[OFFICE].cost_usd)
    assert episode.seconds == pytest.approx(0.5 * offers()[OFFICE].seconds)


def test_the_sandbox_is_closed_after_the_desk():
    with at_work() as made:
        played(made, menu_of(BIG), call("python", "1 + 2 + 3"), answer(6))
        assert made.sandbox._worker is not None
    assert made.sandbox._worker is None
