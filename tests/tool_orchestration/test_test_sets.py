"""What orchestrators are tested on: equal for equal settings, and each exam what it says it is."""

import hypothesis
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.config import ROOT, ToolSettings, validate_settings
from lib.tasks import Item
from lib.tool_orchestration import test_sets, tool_menu
from lib.tool_orchestration.tool_menu import OBJECTIVES
from tests.tool_orchestration import common
from tests.tool_orchestration.common import TOOLS, UNSEEN, offers

ITEMS = 60


def settings(**changes) -> ToolSettings:
    told = TOOLS.model_dump() | {"test_items": ITEMS, "side": 3} | changes
    return validate_settings(told, ToolSettings, "a test")


def exam(name: str, **changes):
    return test_sets.make_test_set(name, offers(), offers(UNSEEN), settings(**changes))


@pytest.fixture(scope="module")
def all_exams():
    return {name: exam(name) for name in test_sets.ALL}


def names(assigned) -> set[str]:
    return {offer.name for offer in assigned.menu.offers}


def test_equal_settings_give_equal_exams_on_work_of_the_test_split(all_exams):
    for name, told in all_exams.items():
        assert exam(name) == told and len(told) > 5 and {a.work.split for a in told} == {"test"}


def test_unseen_tools_are_on_no_menu_but_those_of_their_exam(all_exams):
    for name, told in all_exams.items():
        met = [names(a) & set(TOOLS.unseen) for a in told]
        assert all(met) if name == "unseen_tools" else not any(met)
    assert {n for a in all_exams["unseen_tools"] for n in names(a)} >= set(TOOLS.unseen)


@hypothesis.settings(max_examples=12, deadline=None)
@given(st.integers(12, 80), st.integers(2, 5))
def test_there_are_at_most_as_many_episodes_as_announced(n, side):
    own = settings(test_items=n, side=side)
    assert sum(
        len(test_sets.make_test_set(name, offers(), offers(UNSEEN), own)) for name in test_sets.ALL
    ) <= test_sets.count_episodes(own)


def test_an_unseen_tool_is_good_at_the_question_and_every_other_time_the_only_one(all_exams):
    alone = []
    for a in all_exams["unseen_tools"]:
        (new,) = names(a) & set(TOOLS.unseen)
        assert a.menu.offer(new) in a.capable and a.kind in ("chain", "facts")
        assert 2 <= len(a.menu.offers) <= 4 and len(names(a)) == len(a.menu.offers)
        alone.append(len(a.capable) == 1)
    assert 0.3 < np.mean(alone) < 0.9


def test_unseen_prices_are_those_of_the_other_list_times_the_same_luck(all_exams):
    listed, other = offers(), offers(UNSEEN)
    for before, after in zip(all_exams["test"], all_exams["unseen_prices"], strict=True):
        assert (before.work, before.preference, before.outage) == (
            after.work,
            after.preference,
            after.outage,
        )
        pairs = list(zip(before.menu.offers, after.menu.offers, strict=True))
        if before.menu.office_offer:
            pairs.append((before.menu.office_offer, after.menu.office_offer))
        for one, two in pairs:
            assert (one.name, one.skills) == (two.name, two.skills)
            for key in ("cost_usd", "seconds", "typical_cost_usd", "typical_seconds"):
                luck = [
                    getattr(o, key) / getattr(held[o.name], key)
                    for o, held in ((one, listed), (two, other))
                ]
                assert luck[0] == pytest.approx(luck[1])
            assert (one.cost_usd, one.seconds) != (two.cost_usd, two.seconds)


def test_an_outage_leaves_a_tool_that_is_good_at_the_question(all_exams):
    told = all_exams["outage"]
    assert all(len(a.capable) > 1 and a.outage in (1, 2) and isinstance(a.work, Item) for a in told)
    assert {a.outage for a in told} == {1, 2} and len(told) > ITEMS / 3
    assert not any(a.outage for name, rest in all_exams.items() if name != "outage" for a in rest)


@pytest.mark.parametrize("side", [2, 3, 4, 5, 9])
def test_the_grid_is_on_the_simplex_with_its_corners_and_no_point_twice(side):
    told = [
        tuple(getattr(who, name) for name in OBJECTIVES) for who in test_sets.make_user_grid(side)
    ]
    assert len(told) == len(set(told)) == side * (side + 1) // 2
    assert np.allclose(np.sum(told, axis=1), 1) and min(min(point) for point in told) == 0
    assert {(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)} <= set(told)
    assert not any(who.tools for who in test_sets.make_user_grid(side))


def test_every_user_of_the_grid_gets_the_same_questions_and_menus(all_exams):
    told, users = all_exams["simplex"], test_sets.make_user_grid(3)
    n = len(told) // len(users)
    assert [a.preference for a in told] == [who for who in users for _ in range(n)]
    base = [a for a in all_exams["test"] if isinstance(a.work, Item)]
    for k in range(len(users)):
        part = told[k * n : (k + 1) * n]
        assert [(a.work, a.menu) for a in part] == [
            (a.work, a.menu) for a in base[:: test_sets.GRID_SHARE]
        ]


def test_an_exam_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="no exam 'colour'.*test"):
        exam("colour")


def test_a_tool_that_is_free_can_have_another_price(tmp_path):
    text = (ROOT / common.TRAINING).read_text()
    (tmp_path / "free.yaml").write_text(
        text.replace("python: {cost_usd: 5.0e-7", "python: {cost_usd: 0.0")
    )
    free = tool_menu.make_offers(tool_menu.read_price_list(tmp_path / "free.yaml"), common.cards())
    assert free["python"].cost_usd == 0
    assert len(test_sets.make_test_set("unseen_prices", free, offers(UNSEEN), settings())) == len(
        exam("test")
    )
