"""Episodes side by side: what each system sees, fair copies, and the same random numbers for everybody."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import chisquare

from lib.orchestration.baseline_models import (
    ConstantModel,
    GreedyModel,
    RandomModel,
    RoundRobinModel,
)
from lib.orchestration.decision_model import (
    LOST,
    UNFUNDED,
    UNUSABLE,
    Decision,
    DecisionUsage,
    NumericModel,
    choose_surely,
)
from lib.orchestration.menus import TrainedMenu
from lib.orchestration.system_options import SystemOptions
from lib.policy_zoo import evaluate
from lib.policy_zoo.recipes import SINGLE
from tests.orchestration import zoo
from tests.orchestration.untrained import (
    DOMAINS,
    FunctionModel,
    WatchedModel,
    make_episode_set,
    make_options,
    make_params,
    take_turns,
)

SYSTEMS = ("", "KO", "TO", "RO")
HAPPENED = ["episode", "step", "choice", "action", "result_0", "result_1", "result_2"]
PLAIN = SystemOptions()


# Equal streams, equal episodes --------------------------------------------------------------------


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("system", ["KO", "RO"])
def test_an_episode_is_the_same_alone_and_in_a_batch(domain, system):
    episode_set = make_episode_set(domain, num_episodes=7)
    options = make_options(domain, system, rollout_steps=2)
    together = episode_set.play(GreedyModel(), options)
    for row in (0, 3, 6):
        random_streams = episode_set.random_streams[[row]]
        alone = make_episode_set(
            domain, random_streams=random_streams, weights=episode_set.weights[[row]]
        )
        played = alone.play(GreedyModel(), options)
        pd.testing.assert_frame_equal(
            played.episodes, together.episodes.iloc[[row]].reset_index(drop=True)
        )
        steps = together.steps[together.steps["episode"] == row].reset_index(drop=True)
        pd.testing.assert_frame_equal(
            played.steps.drop(columns="episode"), steps.drop(columns="episode")
        )


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_order_of_the_episodes_changes_none(domain):
    episode_set = make_episode_set(domain, num_episodes=6)
    order = np.array([4, 0, 5, 2, 1, 3])
    shuffled = make_episode_set(
        domain, random_streams=episode_set.random_streams[order], weights=episode_set.weights[order]
    )
    options = make_options(domain, "TO")
    first = episode_set.play(GreedyModel(), options).episodes.iloc[order].reset_index(drop=True)
    pd.testing.assert_frame_equal(first, shuffled.play(GreedyModel(), options).episodes)


@pytest.mark.parametrize("domain", DOMAINS)
def test_what_is_shown_and_recorded_does_not_change_what_happens(domain):
    """A system, words, tool calls, memory, summaries and look-aheads leave the episode itself alone."""

    class TalkativeModel(FunctionModel):
        reads_words = True
        chooses_calls = True
        summary_interval = 2

        def summarize(self, contexts):
            return [("so far so good", DecisionUsage(calls=1)) for _ in contexts]

    def try_first(context):
        if context.untried and not context.must_decide:
            return Decision(calls=context.untried[: context.calls_at_once])
        return take_turns(context)

    episode_set = make_episode_set(domain)
    plain = episode_set.play(RoundRobinModel(), PLAIN).steps[HAPPENED]
    for system in ("KO", "TO", "RO"):
        options = make_options(domain, system, rollout_steps=3)
        for model in (RoundRobinModel(), TalkativeModel(try_first)):
            steps = episode_set.play(model, options).steps[HAPPENED]
            pd.testing.assert_frame_equal(plain, steps)


def test_another_random_number_of_a_decision_changes_no_student():
    """Equal choices are equal episodes, whether they were drawn or sure."""
    episode_set = make_episode_set("education", num_episodes=30)
    drawn = episode_set.play(RandomModel(), PLAIN)
    choices = drawn.episodes["chosen"]

    def repeat(context):
        name = choices[context.episode][context.query.step - 1]
        return choose_surely(SINGLE.index(name), len(SINGLE))

    repeated = episode_set.play(FunctionModel(repeat), PLAIN)
    pd.testing.assert_frame_equal(drawn.steps[HAPPENED], repeated.steps[HAPPENED])


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_trained_policy_acts_as_in_the_evaluation_of_the_zoo(domain):
    params = zoo.SMOKE
    trained = zoo.policies(domain)
    random_streams = evaluate.evaluation_streams(domain, 0, params.zoo.episodes)
    actors = evaluate.make_actors({name: [policy] for name, policy in trained.items()})
    recorded = evaluate.evaluate(params, actors, domain, zoo.TASK[domain])
    episode_set = make_episode_set(
        domain, params=params, menu=TrainedMenu(trained), random_streams=random_streams
    )
    for name in SINGLE:
        steps = episode_set.play(ConstantModel(name), PLAIN).steps
        expected = recorded[recorded["method"] == name].sort_values(["episode", "step"])
        for column, in_record in (
            ("action", "action"),
            ("result_0", "reward_0"),
            ("result_2", "reward_2"),
        ):
            assert steps[column].tolist() == expected[in_record].tolist()


# What each system sees ----------------------------------------------------------------------------


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize(("system", "num_steps"), [("", 0), ("KO", 0), ("TO", 1), ("RO", 3)])
def test_ko_sees_no_tool_result_to_one_step_and_ro_several(domain, system, num_steps):
    model = WatchedModel()
    make_episode_set(domain).play(model, make_options(domain, system, rollout_steps=3))
    for context in model.contexts:
        assert context.system == system
        assert (len(context.knowledge) > 0) == (system == "KO")
        assert (len(context.tools) > 0) == (system in ("TO", "RO"))
        if num_steps == 0:
            assert context.tool_results == () and context.must_decide
            continue
        assert [result.policy for result in context.tool_results] == list(SINGLE)
        for result in context.tool_results:
            assert (result.num_steps, result.num_copies) == (num_steps, 3)


@pytest.mark.parametrize(
    ("system", "component", "attribute"),
    [("KO", "know", "knowledge"), ("TO", "tools", "tools"), ("RO", "mem_s", "recent")],
)
def test_a_component_that_is_left_out_is_not_in_the_context(system, component, attribute):
    contexts = {}
    for without in ((), (component,)):
        model = WatchedModel()
        options = make_options("education", system, without=without)
        make_episode_set("education", num_episodes=4).play(model, options)
        contexts[without] = model.contexts
    assert all(component in context.components for context in contexts[()])
    assert any(getattr(context, attribute) for context in contexts[()])
    for context in contexts[component,]:
        assert component not in context.components and not getattr(context, attribute)


@pytest.mark.parametrize("memory", [0, 1, 3])
def test_short_term_memory_holds_the_last_steps_as_they_were(memory):
    model = WatchedModel()
    episode_set = make_episode_set("education", num_episodes=5)
    played = episode_set.play(model, make_options("education", "KO", memory=memory))
    by_episode = {episode: rows for episode, rows in played.steps.groupby("episode")}
    for context in model.contexts:
        step = context.query.step
        before = by_episode[context.episode].iloc[max(0, step - 1 - memory) : step - 1]
        assert len(context.recent) == min(memory, step - 1)
        assert [past.step for past in context.recent] == (before["step"] + 1).tolist()
        assert [past.policy for past in context.recent] == before["choice"].tolist()
        for past, row in zip(context.recent, before.itertuples(), strict=True):
            assert past.results[0] == pytest.approx(row.result_0, abs=5e-4)
        expected = before["choice"].tolist()[-1] if len(before) else ""
        assert not memory or context.last_policy == expected


def test_baselines_have_no_memory():
    model = WatchedModel()
    make_episode_set("education").play(model, PLAIN)
    assert all(context.recent == () and context.summary == "" for context in model.contexts)


@pytest.mark.parametrize("domain", DOMAINS)
def test_the_query_and_the_state_are_those_of_the_episode(domain):
    model = WatchedModel()
    episode_set = make_episode_set(domain)
    played = episode_set.play(model, PLAIN)
    columns = [name.replace(" ", "_") for name in model.contexts[0].state.features]
    first_steps = played.steps.set_index(["episode", "step"])
    assert len(model.contexts) == len(first_steps)
    for context in model.contexts:
        assert context.query.weights == tuple(episode_set.weights[context.episode])
        assert context.query.horizon == episode_set.describer.horizon
        row = first_steps.loc[(context.episode, context.query.step - 1)]
        assert row[columns].tolist() == list(context.state.features.values())
        assert context.state.situation in episode_set.describer.situations


def test_words_are_written_for_those_who_read_them_and_for_nobody_else():
    class ReadingModel(WatchedModel):
        reads_words = True

    for model in (WatchedModel(), ReadingModel()):
        make_episode_set("minigrid", num_episodes=3).play(model, make_options("minigrid", "RO"))
        for context in model.contexts:
            texts = [context.state.words, *(result.actions for result in context.tool_results)]
            assert all(bool(text) == model.reads_words for text in texts)


# Calls --------------------------------------------------------------------------------------------


def play_with_calls(system: str, calls_per_reply: int, max_calls: int):
    """A model that tries policies from the last on, and the contexts that it saw."""
    contexts = []

    class CallingModel(NumericModel):
        name = "calling"
        chooses_calls = True

        def decide(self, asked):
            contexts.extend(asked)
            decisions = []
            for context in asked:
                usage = DecisionUsage(calls=1, tokens_in=10, cost_usd=0.5)
                if context.must_decide:
                    decisions.append(replace(take_turns(context), usage=usage))
                else:
                    num_calls = min(calls_per_reply, context.calls_left)
                    calls = context.untried[::-1][:num_calls]
                    decisions.append(Decision(calls=calls, usage=usage))
            return decisions

    options = make_options("education", system, max_calls=max_calls, rollout_steps=2)
    played = make_episode_set("education", num_episodes=4).play(CallingModel(), options)
    return played, contexts


@pytest.mark.parametrize("max_calls", [1, 2, 3, 7])
def test_a_model_that_calls_sees_what_it_asked_for_and_no_more(max_calls):
    played, contexts = play_with_calls("TO", 1, max_calls)
    num_calls = min(max_calls, len(SINGLE))
    assert len(contexts) == (num_calls + 1) * len(played.steps)
    expected = list(SINGLE[::-1][:num_calls])
    for context in contexts:
        tried = [result.policy for result in context.tool_results]
        assert tried == expected[: len(tried)]
        assert context.calls_left == max_calls - len(tried)
        assert all(result.num_steps == 1 for result in context.tool_results)
    assert set(played.steps["tried"]) == {";".join(expected)}


def test_several_policies_can_be_tried_side_by_side_and_every_reply_is_paid():
    played, contexts = play_with_calls("RO", 3, 3)
    assert len(contexts) == 2 * len(played.steps)
    assert (played.steps["calls"] == 2).all() and (played.steps["tokens_in"] == 20).all()
    assert played.episodes["cost_usd"].tolist() == played.episodes["length"].tolist()
    assert contexts[0].calls_at_once == 3


def test_what_is_tried_is_the_same_whoever_asks_and_in_whichever_order():
    """A model that asks for calls sees the numbers that a model sees that is shown them all."""
    _, asked = play_with_calls("TO", 1, 3)
    model = WatchedModel()
    make_episode_set("education", num_episodes=4).play(model, make_options("education", "TO"))
    whole = {(c.episode, c.query.step): c.results_by_policy() for c in model.contexts}
    for context in asked:
        shown = context.results_by_policy()
        expected = whole[context.episode, context.query.step]
        assert shown == {name: expected[name] for name in shown}


# Choices ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", DOMAINS)
@pytest.mark.parametrize("interval", [1, 2, 5, 100])
def test_a_choice_holds_until_the_next_decision(domain, interval):
    episode_set = make_episode_set(domain)
    model = WatchedModel()
    played = episode_set.play(model, SystemOptions(interval=interval))
    lengths = played.episodes["length"]
    assert played.episodes["decisions"].tolist() == (-(-lengths // interval)).tolist()
    assert len(model.contexts) == played.episodes["decisions"].sum()
    for choices in played.episodes["chosen"]:
        assert choices == [choices[step // interval * interval] for step in range(len(choices))]
    decided = played.steps["step"] % interval == 0
    assert (played.steps["decided"] == decided).all()


def test_sampled_decisions_follow_their_distribution():
    probabilities = np.array([0.2, 0.5, 0.3])
    model = FunctionModel(lambda context: Decision(probabilities), is_greedy=False)
    played = make_episode_set("education", num_episodes=300).play(model, PLAIN)
    counts = played.steps["choice"].value_counts()[list(SINGLE)]
    expected = probabilities * counts.sum()
    assert chisquare(counts, expected).pvalue > 0.001
    again = make_episode_set("education", num_episodes=300).play(model, PLAIN)
    pd.testing.assert_frame_equal(played.steps, again.steps)


@pytest.mark.parametrize("scale", [1.0, 7.0])
def test_a_policy_of_probability_0_never_acts_and_the_scale_does_not_matter(scale):
    model = FunctionModel(
        lambda context: Decision(scale * np.array([0.0, 1.0, 0.0])), is_greedy=False
    )
    played = make_episode_set("education").play(model, PLAIN)
    assert set(played.steps["choice"]) == {"SO-d2"}


def test_a_greedy_model_acts_by_its_likeliest_policy():
    model = FunctionModel(lambda context: Decision(np.array([0.3, 0.3, 0.4])))
    played = make_episode_set("education").play(model, PLAIN)
    assert set(played.steps["choice"]) == {"SO-d3"}


def test_random_choices_of_one_step_say_nothing_of_those_of_the_next():
    played = make_episode_set("education", num_episodes=300).play(RandomModel(), PLAIN)
    index = played.steps["choice"].map(SINGLE.index)
    pairs = 3 * index + index.groupby(played.steps["episode"]).shift(-1)
    assert chisquare(np.bincount(pairs.dropna().astype(int), minlength=9)).pvalue > 0.001


def test_another_menu_changes_who_acts_and_nothing_else():
    episode_set = make_episode_set("education")
    plain = episode_set.play(ConstantModel("SO-d2"), PLAIN)
    alone = episode_set.play(
        ConstantModel("SO-d2"), SystemOptions(policies=("SO-d2",), fallback="SO-d2")
    )
    pd.testing.assert_frame_equal(plain.episodes, alone.episodes)


# Failures and budgets -----------------------------------------------------------------------------


def test_lost_and_unusable_decisions_take_the_fallback_and_are_counted_apart():
    failures = {1: UNUSABLE, 2: LOST, 3: UNUSABLE}

    def decide(context):
        failure = failures.get(context.query.step, "")
        return Decision(failure=failure) if failure else choose_surely(2, len(SINGLE))

    played = make_episode_set("education").play(
        FunctionModel(decide), SystemOptions(fallback="SO-d1")
    )
    assert (played.episodes["length"] > 4).all()
    for choices in played.episodes["chosen"]:
        assert choices[:4] == ["SO-d1", "SO-d1", "SO-d1", "SO-d3"]
    assert (played.episodes["malformed"] == 2).all() and (played.episodes["failures"] == 1).all()


def test_without_money_the_last_policy_goes_on_and_at_first_the_fallback_acts():
    def decide_once(context):
        if context.query.step == 3:
            return choose_surely(0, len(SINGLE))
        return Decision(failure=UNFUNDED)

    played = make_episode_set("education").play(
        FunctionModel(decide_once), SystemOptions(fallback="SO-d3")
    )
    for choices in played.episodes["chosen"]:
        assert choices == ["SO-d3"] * 2 + ["SO-d1"] * (len(choices) - 2)
    # Neither the model's fault nor lost on the way.
    assert not played.episodes["malformed"].any() and not played.episodes["failures"].any()


def test_an_episodes_budget_shrinks_by_what_was_spent_in_it_and_in_no_other():
    budgets = []

    def decide(context):
        budgets.append((context.episode, context.query.step, context.budget))
        price = 0.01 * (1 + context.episode)
        return replace(take_turns(context), usage=DecisionUsage(calls=1, cost_usd=price))

    episode_set = make_episode_set("education", num_episodes=3)
    episode_set.play(FunctionModel(decide), SystemOptions(budget_usd=0.05))
    for episode, step, budget in budgets:
        spent = 0.01 * (1 + episode) * (step - 1)
        assert budget.total == 0.05
        assert budget.left == pytest.approx(max(0.0, 0.05 - spent))
        assert budget.typical_reply == pytest.approx(0.01 * (1 + episode) if step > 1 else 0.0)
    assert min(budget.left for _, _, budget in budgets) == 0.0


def test_without_a_budget_none_is_shown():
    model = WatchedModel()
    make_episode_set("education", num_episodes=2).play(model, make_options("education", "KO"))
    assert all(context.budget is None for context in model.contexts)


# Long-term memory ---------------------------------------------------------------------------------


class SummarizingModel(WatchedModel):
    """Its summary lists the steps that it was shown."""

    summary_interval = 4

    def __init__(self) -> None:
        super().__init__()
        self.shown = []

    def summarize(self, contexts):
        self.shown.extend(contexts)
        results = []
        for context in contexts:
            steps = " ".join(str(past.step) for past in context.recent)
            results.append(
                (f"{context.summary} {steps}".strip(), DecisionUsage(calls=1, tokens_out=7))
            )
        return results


@pytest.mark.parametrize("memory", [0, 3])
def test_summaries_cover_every_step_once_however_short_the_short_term_memory_is(memory):
    model = SummarizingModel()
    episode_set = make_episode_set("education", num_episodes=4)
    played = episode_set.play(model, make_options("education", "KO", memory=memory))
    for context in model.contexts:
        num_covered = (context.query.step - 1) // 4 * 4
        assert context.summary == " ".join(str(step) for step in range(1, num_covered + 1))
    expected_calls = (played.episodes["length"] - 1) // 4
    assert played.episodes["calls"].tolist() == expected_calls.tolist()
    assert (played.episodes["tokens_out"] == 7 * expected_calls).all()
    assert not played.steps["calls"].any()  # a summary belongs to no decision


def test_no_summary_is_asked_for_where_the_component_is_left_out():
    model = SummarizingModel()
    options = make_options("education", "KO", without=("mem_l",))
    make_episode_set("education", num_episodes=3).play(model, options)
    assert model.shown == [] and {context.summary for context in model.contexts} == {""}


# Records ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("domain", DOMAINS)
def test_episodes_sum_up_their_steps(domain):
    episode_set = make_episode_set(domain)
    played = episode_set.play(RandomModel(), PLAIN)
    columns = [name for name in played.steps if name.startswith("result_")]
    names = ["d1", "d2", "d3", *episode_set.describer.domain.measures]
    for row in played.episodes.itertuples():
        steps = played.steps[played.steps["episode"] == row.Index]
        results = steps[columns].sum().to_numpy()
        if domain == "education":
            results = results / len(steps)  # a good tutor's episodes are short
        assert row.length == len(steps)
        assert [getattr(row, name) for name in names] == pytest.approx(results.tolist())
        assert row.reward == pytest.approx(results @ episode_set.weights[row.Index])
        assert row.chosen == steps["choice"].tolist()
        assert len(row.outcomes) == len(steps)


def test_the_progress_of_a_student_adds_up_to_the_mastery_that_was_won():
    episode_set = make_episode_set("education")
    played = episode_set.play(RandomModel(), PLAIN)
    for row in played.episodes.itertuples():
        steps = played.steps[played.steps["episode"] == row.Index]
        won = steps["mastery_after"].iloc[-1] - steps["mastery"].iloc[0]
        assert row.progress * row.length == pytest.approx(won)
        assert row.outcomes == steps["mastery_after"].tolist()
        assert (steps["mastery"].iloc[1:].to_numpy() == steps["mastery_after"].iloc[:-1]).all()


def test_episodes_that_are_over_are_neither_asked_nor_stepped(monkeypatch):
    episode_set = make_episode_set(
        "education", num_episodes=20, params=make_params(education={"goal": 0.5})
    )
    num_stepped = []
    act = episode_set.menu.act
    monkeypatch.setattr(
        episode_set.menu,
        "act",
        lambda env, *rest: num_stepped.append(env.num_envs) or act(env, *rest),
    )
    model = WatchedModel()
    played = episode_set.play(model, PLAIN)
    assert played.episodes["length"].nunique() > 1
    assert sum(num_stepped) == len(model.contexts) == played.episodes["length"].sum()
