"""What experts make of questions alone: whole, in pieces, and what either costs."""

import pytest

from lib.routing import outcomes, warm
from lib.routing.experts import Heard
from tests.routing.small import EXPERTS, PRICES, Choir, Scripted, answer, items, worked

ITEMS = items(12, [1, 2, 3, 4, 5, 6])
CALLS = {1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3}  # of two operations at a time


def tried(reply, wanted=ITEMS):
    pool = Choir(reply)
    return outcomes.tried(pool, wanted, "test"), pool


def of(table, strategy: str):
    return table[table["strategy"] == strategy].reset_index(drop=True)


def test_every_strategy_is_tried_on_every_item():
    table, _ = tried(worked)
    assert list(table) == ["split", "item", "difficulty", "prompt", "strategy", "right", "dollars", "calls", "reply"]
    assert table["strategy"].drop_duplicates().tolist() == [name for e in EXPERTS for name in (e, f"{e} in pieces")]
    for strategy in table["strategy"].unique():
        mine = of(table, strategy)
        assert mine["item"].tolist() == list(range(12)) and mine["prompt"].tolist() == [i.prompt for i in ITEMS]
        assert mine["difficulty"].tolist() == [i.difficulty for i in ITEMS] and set(mine["split"]) == {"test"}


def test_a_whole_question_is_one_call_that_is_judged():
    table, pool = tried(lambda q: Heard("<answer> 4 </answer>", PRICES[q.expert]))
    for expert in EXPERTS:
        mine = of(table, expert)
        assert mine["right"].tolist() == [float(item.answer == "4") for item in ITEMS] and set(mine["calls"]) == {1}
        assert set(mine["dollars"]) == {PRICES[expert]} and set(mine["reply"]) == {"<answer> 4 </answer>"}
    assert [q.text for q in pool.asked[0]] == [item.prompt for item in ITEMS]


def test_all_pieces_are_paid_and_a_right_chain_of_them_is_right():
    table, pool = tried(worked)
    for expert in EXPERTS:
        mine = of(table, f"{expert} in pieces")
        assert mine["right"].eq(1).all() and mine["calls"].tolist() == [CALLS[item.difficulty] for item in ITEMS]
        assert mine["dollars"].tolist() == pytest.approx([PRICES[expert] * CALLS[i.difficulty] for i in ITEMS])
    pieces = [
        query for n, some in enumerate(pool.asked) if n % 4 for query in some
    ]  # the whole ones, then three rounds
    assert len(pool.asked) == 12 and max(len(query.text.split()) for query in pieces) == 7


@pytest.mark.parametrize("said", ["<answer> 12 </answer>", "nothing", "", "<answer> error </answer>", "<think> 4"])
def test_a_reply_that_is_no_digit_ends_the_pieces_and_is_paid(said):
    table, _ = tried(lambda q: Heard(said, PRICES[q.expert]))
    pieces = of(table, "lab-mini in pieces")
    assert set(pieces["calls"]) == {1} and set(pieces["dollars"]) == {PRICES["lab-mini"]}
    assert pieces["right"].eq(0).all() and set(pieces["reply"]) == {said}


def test_pieces_that_break_off_in_the_middle_are_paid_up_to_there():
    """The second piece of every question comes to nothing; what is done is done."""
    done = []

    def reply(query):
        done.append(query)
        return worked(query) if len(query.text.split()) == 7 and query.text in firsts else Heard("", 1.0)

    wanted = items(4, 6)
    firsts = {" ".join([*item.prompt.split()[:5], "= ?"]) for item in wanted}
    table, _ = tried(reply, wanted)
    mine = of(table, "lab-nano in pieces")
    assert mine["calls"].tolist() == [2] * 4 and mine["right"].eq(0).all()
    assert mine["dollars"].tolist() == pytest.approx([PRICES["lab-nano"] + 1.0] * 4)


def test_every_call_has_a_seed_of_its_own_which_depends_on_nothing_else():
    _, pool = tried(worked)
    keys = [query.key for query in pool.all]
    assert len(set(keys)) == len(keys) and all(0 <= key < 2**63 for key in keys)
    _, again = tried(worked, ITEMS[:5])
    assert [q.key for q in again.asked[0]] == [q.key for q in pool.asked[0]][:5]
    assert outcomes._key("train", "lab-nano", 0, 0) != outcomes._key("test", "lab-nano", 0, 0)


def test_an_expert_begins_and_the_controller_ends():
    """All but the last two operations to the expert, nothing where there are no more than two."""
    pool = Choir(worked)
    voice = Scripted(say=lambda question, turn: answer(warm.result(question.removesuffix(" = ?").split())))
    table = outcomes.shared(voice, pool, ITEMS, "test", 3, 0.0)
    assert table["strategy"].drop_duplicates().tolist() == [f"{e} then itself" for e in EXPERTS]
    for expert in EXPERTS:
        mine = of(table, f"{expert} then itself")
        long = mine["difficulty"] > 2
        assert mine["right"].all() and mine["calls"].tolist() == long.astype(int).tolist()
        assert mine["dollars"].tolist() == [PRICES[expert] * beyond for beyond in long]
    asked = [len(query.text.removesuffix(" = ?").split()) // 2 for query in pool.all if query.expert == EXPERTS[0]]
    assert sorted(asked) == sorted(item.difficulty - 2 for item in ITEMS if item.difficulty > 2)
    wrong = outcomes.shared(voice, Choir("<answer> 0 </answer>"), ITEMS, "test", 3, 0.0)
    assert wrong[wrong["difficulty"] <= 2]["right"].all() and not wrong["right"].all()


def test_a_piece_begins_with_what_was_said_to_the_last():
    """3 + 4 * 2 - 9 + 1 in pieces of two: 3 + 4 * 2, then 5 - 9 + 1 where the expert says 5."""
    (item,) = [items(1, 4)[0]]
    chain = item.prompt.split()
    _, pool = tried("5", [item])
    first, second = pool.asked[1], pool.asked[2]
    assert [q.text for q in first] == [" ".join([*chain[:5], "= ?"])]
    assert [q.text for q in second] == [" ".join(["5", *chain[5:9], "= ?"])]
    assert {q.expert for q in first + second} == {"lab-nano"}


def test_a_thought_in_a_reply_does_not_count():
    table, _ = tried(lambda q: Heard(f"<think> 1 2 3 </think> {worked(q).text}", 1.0))
    assert table["right"].eq(1).all()
