"""What an orchestrator is given: work of every kind, menus that can do it, prices within bounds, all by seed."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from lib import tasks
from lib.config import ROOT
from lib.experiment import seeds
from lib.tasks import Item
from lib.tasks.synthesis import Task
from lib.tool_orchestration import episode_specs, tool_menu, user_dialogue
from lib.tool_orchestration.episode_specs import (
    DIFFICULTIES,
    MENU_SIZES,
    QUESTION_SHARES,
    Assignment,
)
from lib.tool_orchestration.tool_menu import ASK_USER, LOCAL_TOOLS, OFFICE
from tests.tool_orchestration import common
from tests.tool_orchestration.common import NAMES, given, item, offers, offices

N, SPREAD = 400, 4.0


def drawn(n: int = N, seed: int = 0) -> list[Assignment]:
    """Three questions for every office task."""
    questions = episode_specs.draw_questions_evenly(n, "train", seed)
    works = [*questions, *(offices() * n)[: len(questions) // 3]]
    return episode_specs.draw_assignments(
        works, offers(), NAMES, SPREAD, seeds.rng("a test", seed=seed)
    )


@pytest.fixture(scope="module")
def many() -> list[Assignment]:
    return drawn()


def test_a_model_of_unknown_skill_is_asked_big_numbers_too_and_no_office_task():
    about_hosted_models = {"dollars_per_1k_tokens": 0.0, "tokens_per_second": 50.0, "accuracy": []}
    prices = tool_menu.read_price_list(ROOT / common.TOOLS.prices)
    hosted = tool_menu.make_offers(prices, {"lab-large": about_hosted_models})["lab-large"]
    assert not hosted.measured and offers()["lab-large"].measured
    for work, is_asked in ((item("big", 4), True), (item("chain", 6), True), (offices()[0], False)):
        assignment = given(work, "lab-nano")
        menu = replace(assignment.menu, offers=(hosted,))
        assert replace(assignment, menu=menu).usable == ([hosted] if is_asked else [])


def test_usable_tools_are_those_that_can_be_asked_at_all():
    names = ("calculator", "search", "lookup", "lab-nano", "lab-mini", "answerer")

    def list_usable(kind, difficulty):
        return [offer.name for offer in given(item(kind, difficulty), *names).usable]

    models = ["lab-nano", "lab-mini", "answerer"]
    assert list_usable("chain", 2) == list_usable("chain", 6) == models
    assert list_usable("big", 4) == ["calculator"]
    assert list_usable("facts", 1) == ["search", "lookup", *models]
    assert given(common.office(changes=True), "search", "lab-mini").usable == []


def is_good(offer, assignment) -> bool:
    """Whether a tool's card says that it is good at the question."""
    return offer.skills.get(assignment.kind, 0) >= assignment.difficulty


def test_a_question_has_two_to_four_different_tools_and_one_is_good_at_it(many):
    asked = [a for a in many if isinstance(a.work, Item)]
    for a in asked:
        assert MENU_SIZES[0] <= len(a.menu.offers) <= MENU_SIZES[1] and len(
            set(a.menu.names)
        ) == len(a.menu.names)
        assert any(is_good(offer, a) for offer in a.menu.offers)
        assert not a.menu.office and a.menu.office_offer is None
    assert set(Counter(len(a.menu.offers) for a in asked)) == {2, 3, 4}


def test_an_office_task_has_all_functions_of_its_office_and_one_to_three_tools(many):
    told = [a for a in many if isinstance(a.work, Task)]
    assert len({a.work.domain.name for a in told}) == 4
    for a in told:
        functions = tuple(f.name for f in a.work.domain.functions)
        assert a.menu.office == functions and a.menu.names[-len(functions) :] == functions
        assert MENU_SIZES[0] - 1 <= len(a.menu.offers) <= MENU_SIZES[1] - 1
        assert len(set(a.menu.names)) == len(a.menu.names)  # its own lookup, and no other
        assert a.menu.office_offer.name == OFFICE and all(
            a.menu.offer(name) is a.menu.office_offer for name in functions
        )


def test_prices_and_latencies_lie_within_the_spread_of_the_list_and_use_all_of_it(many):
    factors = []
    for a in many:
        for o in (*a.menu.offers, *([a.menu.office_offer] if a.menu.office_offer else [])):
            listed = offers()[o.name]
            pair = (o.cost_usd / listed.cost_usd, o.seconds / listed.seconds)
            typical = (
                o.typical_cost_usd / listed.typical_cost_usd,
                o.typical_seconds / listed.typical_seconds,
            )
            assert pair == pytest.approx(typical) and o.skills == listed.skills
            factors.append(pair)
    logs = np.log(np.array(factors)) / np.log(SPREAD)
    assert (
        np.abs(logs).max() <= 1 + 1e-9
        and (np.abs(logs.mean(0)) < 0.1).all()
        and (logs.std(0) > 0.5).all()
    )
    assert abs(np.corrcoef(logs.T)[0, 1]) < 0.1  # one says nothing of the other


def test_users_like_tools_that_are_on_their_menu(many):
    for a in many:
        own = {o.name for o in a.menu.offers}
        assert set(a.preference.tools) <= own
        if a.preference.confidential:
            assert set(a.preference.tools) == own & set(LOCAL_TOOLS)
    assert len({a.preference for a in many}) > 100


def test_equal_seeds_give_equal_assignments_and_others_others():
    one, two, other = drawn(40), drawn(40), drawn(40, seed=1)
    assert one == two and not any(a == b for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("split", tasks.SPLITS)
def test_all_work_is_of_its_split_and_of_all_difficulties(split):
    questions = episode_specs.draw_questions_evenly(N, split, 3)
    assert {item.split for item in questions} == {split}
    for kind, difficulties in DIFFICULTIES.items():
        drawn_difficulties = {item.difficulty for item in questions if item.group == kind}
        assert drawn_difficulties == set(difficulties)
    assert {task.difficulty for task in offices(split)} == {1, 2, 3}


def test_offices_are_as_many_as_asked_for_mixed_and_the_same_again():
    told = episode_specs.draw_office_tasks("test", 20, 1)
    assert len(told) == len({t.id for t in told}) == 20 and {t.split for t in told} == {"test"}
    assert len({t.domain.name for t in told}) == 4 and {t.difficulty for t in told} == {1, 2, 3}
    assert told == episode_specs.draw_office_tasks("test", 20, 1)
    assert [t.id for t in told] != [t.id for t in episode_specs.draw_office_tasks("test", 20, 2)]


def test_where_no_tool_is_good_at_a_question_there_is_a_menu_all_the_same():
    told = episode_specs.draw_menu(
        item("chain", 6), offers(), ["search", "lab-nano"], 1.0, seeds.rng("a test")
    )
    assert set(told.names) == {"search", "lab-nano"}


def test_kinds_come_in_their_shares():
    questions = episode_specs.draw_questions_evenly(200, "train", 0)
    counts = Counter(item.group for item in questions)
    assert {kind: counts[kind] / 200 for kind in QUESTION_SHARES} == QUESTION_SHARES


def test_an_office_task_by_itself_has_its_functions_and_a_user_who_can_be_asked_where_one_keeps_parts_back():
    task = common.office(changes=True)
    functions = tuple(function.name for function in task.domain.functions)
    assignment = episode_specs.assign_office_task(task, offers()[OFFICE])
    assert assignment.menu.names == functions and assignment.prompt == task.instruction
    dialogue = user_dialogue.make_dialogue(task)
    asking = episode_specs.assign_office_task(task, offers()[OFFICE], dialogue)
    assert asking.menu.names == (*functions, ASK_USER) and asking.prompt == dialogue.opening


def test_a_pipeline_that_falls_short_says_so(monkeypatch):
    made = episode_specs.synthesize
    monkeypatch.setattr(episode_specs, "synthesize", lambda **told: made(**told | {"databases": 4}))
    with pytest.raises(tasks.TaskError, match="test, not 200"):
        episode_specs.write_office_corpus("test", 200, 0)
