"""Lesson 07's record, and what is read off it, say what their numbers say.

The study here is made up so that its means can be worked out on paper: two test questions of each of five kinds, two
seeds that do the same, four configurations. Each is right on some kinds and wrong on the others, writes 10, 20, 30 or
40 tokens at a hundred-thousandth of a dollar, and is paid 5 if right minus a hundredth of its tokens.
"""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import config, stats
from lib.agent_configuration import action_space as spaces
from lib.agent_configuration import embeddings, theorem_3_2
from lib.agent_configuration import results as recorded
from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_system import ConfiguredAnswer, ConfiguredQuestion
from lib.agent_configuration.agent_team import Note
from lib.agent_configuration.experiment import TEST_DRAW, AgentConfigurationResults
from lib.agent_configuration.questions import KINDS, questions
from lib.agent_configuration.search import BASE
from lib.agent_configuration.variants import TESTED
from lib.experiment import results_table
from lib.llm import reply_shares
from lib.reports.lesson_figures import agents
from lib.stats.verdicts import FAILS, HOLDS, UNDECIDED

PARAMS = config.load("smoke")
OWN = PARAMS.configuration
NAMES = [kind.name for kind in KINDS]
TEST = {name: questions(name, "test", 2) for name in NAMES}
TRAIN = {name: questions(name, "train", OWN.search_items) for name in NAMES}
PLAN = "base/reasoner/plan"
CHOICES = {  # by workflow
    "direct": BASE,
    "reason": Configuration((1, 0, 0, 2, 0, 2)),
    "verify": Configuration((2, 1, 1, 2, 2, 2), ((PLAN,), (), ())),
    "voting": Configuration((5, 0, 0, 0, 0, 0)),
}
TOKENS = {"direct": 10, "reason": 20, "verify": 30, "voting": 40}
RIGHT = {
    "direct": {"choice", "hops"},
    "reason": {"chain", "passage"},
    "verify": {"chain", "mixed"},
    "voting": set(),
}
BEST = {
    "chain": "reason",
    "passage": "reason",
    "choice": "direct",
    "hops": "direct",
    "mixed": "verify",
}  # 18 tokens
ALWAYS = {workflow: dict.fromkeys(NAMES, workflow) for workflow in CHOICES}
ACTS = {  # what is chosen for each kind
    "arc": BEST,
    "arc_no_sft": BEST | {"mixed": "voting", "hops": "voting"},
    "arc_dpo": BEST | {"mixed": "direct"},
    "grpo": ALWAYS["voting"],
    "bandit": ALWAYS["direct"],
    "episodes": ALWAYS["voting"],
    "greedy": ALWAYS["reason"],
    "zero_shot": BEST | {"mixed": "direct", "hops": "voting"},
    "few_shot": ALWAYS["voting"],
    "random": ALWAYS["voting"],
    "only-chain": ALWAYS["reason"],
    "only-passage": ALWAYS["reason"],
    "only-choice": ALWAYS["direct"],
    "only-hops": ALWAYS["direct"],
    "only-mixed": ALWAYS["verify"],
}
ONCE = ("greedy", "zero_shot", "few_shot")  # have one run


def row(item, kind: str, workflow: str, **more) -> dict:
    """As of `system.table`."""
    made, tokens, correct = CHOICES[workflow], TOKENS[workflow], kind in RIGHT[workflow]
    return {
        "key": item.id,
        "prompt": item.prompt,
        "group": kind,
        "difficulty": item.difficulty,
        "workflow": workflow,
        **dict(zip(("w", *list(spaces.DIMENSIONS)[1:]), made.structure, strict=True)),
        "atoms": " | ".join(" , ".join(names) for names in made.atoms),
        "allocated": made.allocated,
        "digest": made.digest,
        "correct": float(correct),
        "reward": 5 * correct - tokens / 100,
        "calls": tokens // 10,
        "turns": 1,
        "tokens_out": tokens,
        "tokens_in": 5,
        "cost_usd": tokens * 1e-5,
        "seconds": tokens * 1e-3,
        "used": min(1, made.allocated),
        "cut": 0,
        "answered": 1.0,
        "answer": "x",
    } | more


def searched() -> pd.DataFrame:
    """Two configurations of the grid and four sampled ones, which do the same in every try."""
    tried = [
        ("grid", "voting"),
        ("grid", "reason"),
        *(("sampled", workflow) for workflow in CHOICES),
    ]
    return pd.DataFrame(
        [
            row(item, kind, workflow, split=split, set=which, number=number)
            for number, (which, workflow) in enumerate(tried)
            for split, items in (("train", TRAIN), ("test", TEST), ("again", TEST))
            for kind in NAMES
            for item in items[kind]
        ]
    )


def examined(method: str, seed: int, model: str) -> list[dict]:
    return [
        row(item, kind, chosen, text="", error="", seed=seed, method=method, model=model)
        for kind, chosen in ACTS[method].items()
        for item in TEST[kind]
    ]


def trained(method: str, seed: int) -> tuple[list[dict], list[dict]]:
    """In the first half all questions go to voting, then where ARC sends them; an update of GRPO has each twice."""
    updates, times = (5, 2) if method == "grpo" else (10, 1)
    learning = [{"step": update, "method": method, "seed": seed} for update in range(updates)]
    rollouts = [
        row(item, kind, "voting" if told["step"] < updates / 2 else ACTS["arc"][kind], **told)
        for told in learning
        for kind in NAMES
        for item in TRAIN[kind][:1] * times
    ]
    return rollouts, learning


@pytest.fixture(scope="module")
def results() -> AgentConfigurationResults:
    tests, rollouts, learning = [], [], []
    for method in ACTS:
        for seed in range(1 if method in ONCE else 2):
            for model in (OWN.model, OWN.larger) if method == "arc" else (OWN.model,):
                tests += examined(method, seed, model)
            if method in ("arc", "bandit", "episodes", "grpo"):
                played, learned = trained(method, seed)
                rollouts += played
                learning += learned
    greedy = pd.DataFrame({"tried": [1, 9, 17], "reward": [0.5, 1.0, 1.5]})
    parts = (pd.DataFrame(each) for each in (tests, rollouts, learning, []))
    return AgentConfigurationResults(searched(), greedy, CHOICES["reason"], *parts)


@pytest.fixture(scope="module")
def rows(results):
    return results_table.make_results(recorded.SYSTEM, recorded.rows(results, PARAMS))


@pytest.fixture(scope="module")
def exam(rows):
    return results_table.select(rows, style="exam")


def test_everybody_sits_the_same_exam_and_nobody_is_above_the_oracle(exam):
    labels = [recorded.label(method, PARAMS) for method in TESTED]
    assert (
        list(exam["method"].unique()) == labels
        and "prompted, few-shot (scripted stand-in)" in labels
    )
    assert exam.groupby("method")["item"].nunique().eq(10).all()
    correct, tokens, mille = (
        stats.mean(exam, each, "method")["value"] for each in ("correct", "tokens_out", "mille")
    )
    assert correct["ARC"] == 1 and tokens["ARC"] == 18 and mille["ARC"] == pytest.approx(0.18)
    assert (
        correct["best constant"] == 0.4
    )  # the base: as often right as two others, with fewer tokens
    assert tokens["grid search"] == 20 and correct["best constant per kind"] == 1
    assert stats.paired_difference(
        exam, "correct", {"method": "ARC"}, {"method": "ARC without SFT"}
    )["value"].item() == pytest.approx(0.4)
    assert stats.paired_difference(exam, "correct", {"method": "ARC"}, {"method": "greedy search"})[
        "value"
    ].item() == pytest.approx(0.6)
    oracle = exam[exam["method"] == "oracle"]
    assert (exam["reward"] <= exam["item"].map(oracle.set_index("item")["reward"])).all()
    assert set(oracle["role"]) == {"oracle"}


def test_who_learned_one_kind_alone_and_larger_agents_stand_apart(rows):
    alone = results_table.select(rows, style="alone", group="choice")
    pair = {"method": "ARC on chain alone"}, {"method": "ARC on choice alone"}
    assert stats.paired_difference(alone, "correct", *pair)["value"].item() == -1
    both = results_table.select(rows, style=["exam", "larger"], method="ARC")
    difference = stats.paired_difference(both, "correct", {"style": "larger"}, {"style": "exam"})
    assert difference["value"].item() == 0


def test_leads_name_the_best_workflow_and_how_far_it_is_ahead(rows):
    leads = recorded.leads(results_table.select(rows, style="best")).sort_index()
    best = dict(leads.index.droplevel("other").unique())
    assert (
        best["passage"] == "reason"
        and best["mixed"] == "verify"
        and best["chain"] in ("reason", "verify")
    )
    assert leads.xs("passage")["value"].tolist() == [1, 1, 1]
    assert sorted(leads.xs("chain")["value"]) == [0, 1, 1]


@pytest.mark.parametrize(
    ("lead", "said"),
    [
        # value, ci_low, p_value of how far a workflow is ahead of another on a kind
        ({("a", "x", "y"): (0.2, 0.1, 0.01), ("b", "y", "x"): (0.2, 0.1, 0.02)}, HOLDS),
        ({("a", "x", "y"): (0.2, 0.1, 0.03), ("b", "y", "x"): (0.2, 0.1, 0.04)}, UNDECIDED),
        ({("a", "x", "y"): (0.2, 0.1, 0.01), ("b", "y", "x"): (0.2, -0.1, 0.2)}, UNDECIDED),
        ({("a", "x", "y"): (0.2, 0.1, 0.01), ("b", "x", "y"): (0.1, -0.1, 0.2)}, FAILS),
        ({("a", "x", "y"): (0.2, 0.1, 0.01), ("b", "x", "y"): (0.0, -0.1, 0.9)}, UNDECIDED),
    ],
)
def test_no_workflow_wins_everywhere_if_each_is_behind_somewhere(lead, said):
    found = pd.DataFrame(lead, index=["value", "ci_low", "p_value"]).T
    found = found.rename_axis(["group", "best", "other"])
    assert recorded.none_wins_everywhere(found) == said


def test_choices_adapt_where_the_kind_tells_the_workflow(exam):
    found = recorded.adapts(exam)
    entropy = -(2 * 0.4 * np.log2(0.4) + 0.2 * np.log2(0.2))
    assert found.loc["ARC", "workflows"].value == 3
    for name in ("entropy, bits", "told by the kind, bits"):
        assert found.loc["ARC", name].value == pytest.approx(entropy)
        assert found.loc["ARC by GRPO", name].value == 0
    assert found.loc["ARC by GRPO", "by chance"] == 0 < found.loc["ARC", "by chance"] < entropy


@given(st.lists(st.integers(1, 30), min_size=1, max_size=9))
def test_diversity_is_that_of_the_definitions(counts):
    choices = np.array([(i, 0) for i, n in enumerate(counts) for _ in range(n)])
    shares = np.array(counts) / sum(counts)
    pairs = np.abs(shares[:, None] - shares[None]).mean()
    assert recorded.unique(choices) == len(counts) and recorded.told(choices) == 0
    assert recorded.gini(choices) == pytest.approx(pairs / (2 * shares.mean()), abs=1e-9)
    assert recorded.entropy(choices) == pytest.approx(
        -sum(p * np.log2(p) for p in shares), abs=1e-9
    )


def test_episodes_are_counted_over_updates_whatever_their_size(results):
    played, learned = recorded.episodes(results)
    assert played.groupby("method")["episodes"].max().to_dict() == dict.fromkeys(
        played["method"].unique(), 50
    )
    assert learned.query("method == 'ARC by GRPO' and seed == 0")["episodes"].tolist() == [
        10,
        20,
        30,
        40,
        50,
    ]


def test_the_theorem_s_floor_holds_without_noise(results):
    found = theorem_3_2.checks(results.searched, share=0.3, rows=400)
    assert (found.query("noise == 0")[["margin"]] >= 0).all(axis=None)
    assert (found.query("noise == 0")["outside"] == 0).all() and set(found["noise"]) == set(
        theorem_3_2.NOISES
    )
    rest, chance = theorem_3_2.tried(results.searched)
    assert rest.shape == chance.shape == (10, 6) and rest.max() == pytest.approx(-0.1)
    assert chance.max() == 1 and chance.min() == 0


def test_labels_are_what_is_paid_best_on_a_question(results):
    wanted = (
        embeddings.labels(recorded.sampled(results, "train"))
        .drop_duplicates("group")
        .set_index("group")
    )
    assert (
        wanted.loc["passage", "workflow"] == "reason"
        and wanted.loc["mixed", "workflow"] == "verify"
    )
    assert wanted.loc["passage", "tools"] == "none" and wanted.loc["choice", "tools"] == "tools"
    assert wanted.loc["chain", "steps"] == len(TRAIN["chain"][0].worked_solution.split(" ; "))


def test_encoders_are_ranked_beside_what_needs_none(results):
    found = embeddings.scores(recorded.sampled(results, "train"), ["hashing"])
    assert set(found.index) == {"hashing", embeddings.FEATURES, embeddings.COMMONEST}
    assert found["overall"].is_monotonic_decreasing and found.loc[embeddings.COMMONEST, "ari"] == 0


# One episode --------------------------------------------------------------------------------------


def test_an_episode_is_chosen_and_done_again_as_it_was(exam):
    told = agents.choose_episode_row(results_table.select(exam, method="ARC", seed=0))
    assert told["correct"] == 1 and told["workflow"] == "verify"
    job = agents.rebuild_job(told, PARAMS)
    assert (
        job.configuration == CHOICES["verify"]
        and job.draw == TEST_DRAW
        and job.item in TEST["mixed"]
    )
    with pytest.raises(ValueError, match="no episode"):
        agents.choose_episode_row(exam[:0])
    with pytest.raises(ValueError, match="reads 'what'"):
        agents.rebuild_job(pd.Series(told.to_dict() | {"prompt": "what"}), PARAMS)


def test_calls_are_shown_one_by_one_and_escaped():
    notes = (
        Note("reasoner", 0, "1 + 1 = 2 <b>", "2", "<answer> 2 </answer>", 0.01),
        Note("verifier", 1, "", None, "<think> well", 0.02, cut=True),
        Note("answerer", 2, "", "2", "<answer> 2 </answer>", 0.03),
    )
    outcome = ConfiguredAnswer(
        True, "2", "", 3, 4, 9, 12, 2e-4, 0.03, 1, ("calculator",), 1, (), notes
    )
    job = ConfiguredQuestion(TEST["mixed"][0], CHOICES["verify"], 0)
    markup, plain = agents.episode_html(job, outcome, 'a "b" <c>')
    assert "<c>" not in markup and "<b>" not in markup and "&lt;b&gt;" in markup
    assert markup.count("5px solid") == 2 and markup.count("5px dotted") == 1
    assert (
        "cut off at its limit of tokens" in plain
        and "it wrote: <think> well" in plain
        and PLAN in plain
        and "right: 2" in plain
    )
    with pytest.raises(ValueError, match="no call"):
        agents.episode_html(job, replace(outcome, trail=()), "caption")


@pytest.mark.parametrize("num_cut_off", [2, 0])
def test_agents_that_their_own_limit_cuts_in_two_of_ten_turns_leave_the_verdicts(rows, num_cut_off):
    """A budget cuts every turn, which marks nobody: it is what the configuration came to."""
    endpoint = {"backend": "endpoint", "base_url": "https://host/v1", "model": "m"}
    endpoint |= {"price_in": 0.0, "price_out": 0.0}
    params = config.settings(profile="smoke", llm={"models": {OWN.model: endpoint}})
    # Ten questions of each seed, one turn each.
    is_arc = (rows["method"] == "ARC") & (rows["style"] == "exam")
    number = is_arc.groupby(rows["seed"]).cumsum()
    is_cut = (is_arc & (number <= num_cut_off)).astype(int)
    changed = rows.assign(turns=1, cut=1, cut_by_model=is_cut, failures=0)
    counts = recorded.count_replies(changed, params).set_index(["method", "style", "model"])
    arc = counts.loc["ARC", "exam", OWN.model]
    assert arc["calls"] == 20 and arc["truncated"] == 2 * num_cut_off
    assert arc["too_many"] == (num_cut_off > 0) and counts["too_many"].sum() == (num_cut_off > 0)

    marked = reply_shares.mark_rows(changed, counts.reset_index())
    exam = results_table.select(marked, style="exam")
    pair = {"method": "ARC"}, {"method": "greedy search"}
    above = stats.paired_difference(exam, "correct", *pair)
    assert (stats.verdict(above).item() == "untestable") == (num_cut_off > 0)


def test_a_prompted_policy_answers_for_its_own_choices_beside_those_of_its_agents(results):
    failed = (results.tests["method"] == "zero_shot").astype(float)
    made = replace(results, tests=results.tests.assign(failed=failed))
    rows = results_table.make_results(
        recorded.SYSTEM, recorded.rows(made, PARAMS).assign(turns=1, failures=0)
    )
    counts = recorded.count_replies(rows, PARAMS).set_index(["method", "model"])
    own = counts.loc[recorded.label("zero_shot", PARAMS), OWN.prompted]
    assert own["calls"] == own["fallback"] == 10 and not own["too_many"]  # a stand-in
    assert counts.loc[recorded.label("few_shot", PARAMS), OWN.prompted]["fallback"] == 0


def test_a_question_whose_choice_was_lost_is_counted_as_failed_and_asked_of_nobody(results):
    is_lost = (results.tests["method"] == "zero_shot") & (results.tests["group"] == "chain")
    tests = results.tests.assign(lost_choice=is_lost.astype(float), failed=is_lost.astype(float))
    tests[["correct", "reward"]] = tests[["correct", "reward"]].mask(is_lost)
    made = replace(results, tests=tests)
    rows = results_table.make_results(
        recorded.SYSTEM, recorded.rows(made, PARAMS).assign(failures=0)
    )
    counts = recorded.count_replies(rows, PARAMS).set_index(["method", "model"])
    own = counts.loc[recorded.label("zero_shot", PARAMS), OWN.prompted]
    assert (own["calls"], own["failed"], own["fallback"]) == (10, 2, 2)

    scored, scored_rows = recorded.drop_lost_questions(made, rows)
    for table in (scored.tests, scored.searched[scored.searched["split"] != "train"], scored_rows):
        assert set(table["group"]) == set(NAMES) - {"chain"} and table["reward"].notna().all()
    exam = results_table.select(scored_rows, style="exam")
    names = [recorded.label(method, PARAMS) for method in ("arc", "zero_shot")]
    pair = {"method": names[0]}, {"method": names[1]}
    assert stats.paired_difference(exam, "correct", *pair)["num_items"].item() == 8
