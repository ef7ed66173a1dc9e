"""lab-orchestrator: contexts lose nothing that decides on the way to the lab's words, and the model reads them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from lib import config
from lib.experiment import seeds
from lib.language_models.checkpoints import ModelError
from lib.language_models.tokenizer import encode
from lib.language_models.training.decision_traces import MEMORY, ROLLOUT, STATES, TRIAL
from lib.orchestration.contexts import (
    SYSTEMS,
    DecisionContext,
    Interaction,
    PolicyKnowledge,
    Query,
    State,
    ToolResult,
    compute_utilities,
)
from lib.orchestration.decision_model import Decision, NumericModel
from lib.orchestration.domain_descriptions import DESCRIBERS
from lib.orchestration.lab_orchestrator import LabOrchestrator, deal_names, write_situation
from lib.tasks.vocabulary import PEOPLE
from tests.orchestration.contests import make_episode_set, make_options

SMOKE = config.load("smoke")
POLICIES = ("SO-d1", "SO-d2", "SO-d3")
DOMAINS = tuple(DESCRIBERS)


@cache
def open_lab() -> LabOrchestrator:
    return LabOrchestrator(SMOKE.lab)


def make_context(
    system: str,
    domain: str = "education",
    policies: Sequence[str] = POLICIES,
    past_policies: Sequence[int] = (),
    seed: int = 0,
) -> DecisionContext:
    """A context with random results; past steps are those of the policies with these indices."""
    rng = seeds.rng("tests of lab-orchestrator", system, domain, len(policies), seed=seed)
    describer = DESCRIBERS[domain]
    criteria = describer.domain.criteria
    situations = describer.situations

    def draw_results() -> tuple[float, ...]:
        return tuple(np.round(rng.random(len(criteria)), 3).tolist())

    knowledge: tuple[PolicyKnowledge, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    if system == "KO":
        knowledge = tuple(
            PolicyKnowledge({}, {situation: draw_results() for situation in situations})
            for _ in policies
        )
    else:
        num_steps = 1 if system == "TO" else 3
        tool_results = tuple(ToolResult(name, num_steps, 8, draw_results()) for name in policies)
    recent = tuple(
        Interaction(step, {}, policies[index], "easy", draw_results(), "")
        for step, index in enumerate(past_policies, start=1)
    )
    weights = tuple(rng.dirichlet(np.ones(len(criteria))).tolist())
    situation = situations[int(rng.integers(len(situations)))]
    return DecisionContext(
        system=system,
        domain=describer.domain,
        policies=tuple(policies),
        query=Query(weights, 4, 50),
        state=State({}, {}, situation),
        recent=recent,
        knowledge=knowledge,
        tool_results=tool_results,
    )


def make_contexts(system: str, num_contexts: int = 60, **changes) -> list[DecisionContext]:
    return [make_context(system, seed=seed, **changes) for seed in range(num_contexts)]


# In the lab's words ---------------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("domain", DOMAINS)
def test_a_rational_reader_of_the_lab_s_words_chooses_as_from_the_numbers(system, domain):
    """Nothing that decides is lost but what rounding of importance and results takes."""
    for context in make_contexts(system, domain=domain):
        utilities = compute_utilities(context)
        names = deal_names(context.policies)
        best_name = write_situation(context).ranking[0]
        best = [names[policy] for policy in context.policies].index(best_name)
        assert utilities.max() - utilities[best] < 0.05


def test_systems_differ_in_the_rows_of_their_prompts():
    sources = {}
    for system in SYSTEMS:
        context = make_context(system, past_policies=[0, 2])
        sources[system] = {row.source for row in write_situation(context).rows}
    assert sources["TO"] == {MEMORY, TRIAL} and sources["RO"] == {MEMORY, ROLLOUT}
    assert MEMORY in sources["KO"] and len(sources["KO"]) == 2
    assert sources["KO"] <= {MEMORY, *STATES}


def test_the_row_of_the_state_at_hand_stands_in_the_prompt_and_no_other_row_counts():
    context = make_context("KO", "minigrid")
    situations = DESCRIBERS["minigrid"].situations
    prompts = set()
    for situation in situations:
        here = replace(context, state=replace(context.state, situation=situation))
        written = write_situation(here)
        prompts.add(written.prompt)
        only_row = tuple(
            PolicyKnowledge({}, {situation: card.results[situation]}) for card in context.knowledge
        )
        assert write_situation(replace(here, knowledge=only_row)) == written
    assert len(prompts) == len(situations)


def test_past_steps_stand_in_prompts_about_students_and_not_about_rooms():
    for system in SYSTEMS:
        student = write_situation(make_context(system, past_policies=[1, 1]))
        memory = [row.policy for row in student.rows if row.source == MEMORY]
        assert memory == [deal_names(POLICIES)["SO-d2"]] * 2
        room = write_situation(make_context(system, domain="minigrid", past_policies=[1, 1]))
        assert MEMORY not in {row.source for row in room.rows}


def test_names_of_policies_change_the_names_in_the_prompt_and_no_number():
    context = make_context("TO")
    policies = ("first", "second", "third")
    tool_results = tuple(
        replace(result, policy=name)
        for result, name in zip(context.tool_results, policies, strict=True)
    )
    renamed = replace(context, policies=policies, tool_results=tool_results)
    rows, renamed_rows = write_situation(context).rows, write_situation(renamed).rows
    assert [row.values for row in rows] == [row.values for row in renamed_rows]
    assert [row.policy for row in rows] != [row.policy for row in renamed_rows]


def test_what_is_missing_or_too_much_is_refused_by_name():
    context = make_context("KO")
    with pytest.raises(ValueError, match="a card of every policy; the context has 0 of 3"):
        write_situation(replace(context, knowledge=()))
    tried = make_context("TO")
    with pytest.raises(ValueError, match="SO-d3 was not tried"):
        write_situation(replace(tried, tool_results=tried.tool_results[:2]))
    with pytest.raises(ValueError, match="names for 16 policies, got 40"):
        write_situation(make_context("TO", policies=[f"p{i}" for i in range(40)]))
    with pytest.raises(ValueError, match="KO, TO, RO; the context is of ''"):
        write_situation(replace(tried, system=""))
    long = make_context("TO", past_policies=[0] * 60)
    with pytest.raises(ValueError, match="or shorten the memory"):
        open_lab().decide([long])


# The model ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("system", SYSTEMS)
def test_decisions_are_distributions_over_the_menu_and_say_what_they_took(system):
    for decision in open_lab().decide(make_contexts(system, 20)):
        assert decision.probabilities.shape == (3,)
        assert decision.probabilities.sum() == pytest.approx(1) and not decision.failure
        assert decision.usage.calls == 1 and decision.usage.tokens_out == 1
        assert decision.usage.tokens_in > 30


def test_equal_contexts_get_equal_decisions_whatever_else_is_asked():
    contexts = [context for system in SYSTEMS for context in make_contexts(system, 12)]
    together = open_lab().decide([*contexts, *contexts])
    one_by_one = LabOrchestrator(SMOKE.lab)
    for index, context in enumerate(contexts):
        (alone,) = one_by_one.decide([context])
        assert (alone.probabilities == together[index].probabilities).all()
        assert (alone.probabilities == together[index + len(contexts)].probabilities).all()


def compute_gain(contexts: Sequence[DecisionContext]) -> float:
    """Utility that the model's choices win over a random choice, as a fraction of what can be won."""
    won = 0.0
    available = 0.0
    for context, decision in zip(contexts, open_lab().decide(contexts), strict=True):
        utilities = compute_utilities(context)
        won += utilities[decision.probabilities.argmax()] - utilities.mean()
        available += utilities.max() - utilities.mean()
    return won / available


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("domain", DOMAINS)
def test_the_model_wins_most_of_what_can_be_won_by_what_it_reads(system, domain):
    assert compute_gain(make_contexts(system, 100, domain=domain)) > 0.8


@pytest.mark.parametrize("system", SYSTEMS)
def test_menus_larger_than_any_in_training_are_read_too(system):
    policies = [f"policy {number}" for number in range(6)]
    assert compute_gain(make_contexts(system, 100, policies=policies)) > 0.7


def test_the_state_at_hand_decides_which_row_of_a_card_counts():
    """In one state the first policy is better by everything, in all others the second."""
    situations = DESCRIBERS["minigrid"].situations
    context = make_context("KO", "minigrid", policies=POLICIES[:2])
    num_right = 0
    for special in situations:
        cards = [
            {
                s: (0.9, 0.8, 0.9) if (s == special) == is_first else (0.1, 0.2, 0.1)
                for s in situations
            }
            for is_first in (True, False)
        ]
        knowledge = tuple(PolicyKnowledge({}, results) for results in cards)
        for situation in situations:
            state = State({}, {}, situation)
            (decision,) = open_lab().decide([replace(context, state=state, knowledge=knowledge)])
            num_right += decision.probabilities.argmax() == (0 if situation == special else 1)
    assert num_right == len(situations) ** 2


def test_importance_decides():
    context = make_context("TO", policies=POLICIES[:2])
    tool_results = (
        ToolResult("SO-d1", 1, 8, (0.9, 0.1, 0.1, 0.1)),
        ToolResult("SO-d2", 1, 8, (0.1, 0.9, 0.1, 0.1)),
    )
    context = replace(context, tool_results=tool_results)
    for weights, best in (((0.8, 0.2, 0, 0), 0), ((0.2, 0.8, 0, 0), 1)):
        query = replace(context.query, weights=weights)
        (decision,) = open_lab().decide([replace(context, query=query)])
        assert decision.probabilities.argmax() == best


def test_good_past_steps_make_a_policy_likelier_than_bad_ones():
    num_higher = 0
    contexts = make_contexts("TO", 40)
    for context in contexts:
        probabilities = []
        for result in (0.0, 1.0):
            past = Interaction(1, {}, "SO-d1", "easy", (result,) * 4, "")
            (decision,) = open_lab().decide([replace(context, recent=(past,) * 3)])
            probabilities.append(decision.probabilities[0])
        num_higher += probabilities[1] > probabilities[0]
    assert num_higher / len(contexts) > 0.8


class WatchedLab(NumericModel):
    """The model, and what it was asked and answered."""

    name = "watched"

    def __init__(self) -> None:
        self.contexts: list[DecisionContext] = []
        self.decisions: list[Decision] = []

    def decide(self, contexts: Sequence[DecisionContext]) -> list[Decision]:
        """See `DecisionModel`."""
        decisions = open_lab().decide(contexts)
        self.contexts += contexts
        self.decisions += decisions
        return decisions


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("system", SYSTEMS)
def test_it_plays_episodes_of_both_domains_with_the_context_of_every_system(domain, system):
    model = WatchedLab()
    played = make_episode_set(domain, 6).play(model, make_options(domain, system))
    assert len(played.episodes) == 6 and (played.episodes["calls"] > 0).all()
    assert {context.system for context in model.contexts} == {system}
    # The likeliest policy acts.
    likeliest = [
        context.policies[decision.probabilities.argmax()]
        for context, decision in zip(model.contexts, model.decisions, strict=True)
    ]
    assert sorted(likeliest) == sorted(played.steps["choice"])


def test_weights_of_another_recipe_are_refused():
    models = dict(SMOKE.lab.models)
    models["lab-orchestrator"] = models["lab-orchestrator"].model_copy(update={"steps": 7})
    with pytest.raises(ModelError, match="not shipped with the recipe"):
        LabOrchestrator(SMOKE.lab.model_copy(update={"models": models}))


def test_the_name_of_a_policy_is_one_token_that_no_other_name_has():
    tokens = [encode(name) for name in PEOPLE]
    assert all(len(ids) == 1 for ids in tokens)
    assert len({ids[0] for ids in tokens}) == len(PEOPLE)
