"""Lesson 07's figures, tables and sentences say what their numbers say.

The study here is made up so that its means can be worked out on paper: two test questions of each of five kinds, two
seeds that do the same, four configurations. Each is right on some kinds and wrong on the others, writes 10, 20, 30 or
40 tokens at a hundred-thousandth of a dollar, and is paid 5 if right minus a hundredth of its tokens.
"""

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from lib import params
from lib.configuration import baselines, embeddings, encoders
from lib.configuration import space as spaces
from lib.configuration.arms import TESTED
from lib.configuration.questions import KINDS, questions
from lib.configuration.search import BASE
from lib.configuration.space import Configuration
from lib.configuration.study import TEST_DRAW, Results
from lib.configuration.system import Job, Outcome
from lib.configuration.team import Note
from lib.page import words
from lib.page.lesson import Lesson
from lib.page.tables import interval_table, table_html
from lib.reporting.configuration import (
    common,
    comparison,
    diversity,
    episodes,
    errors,
    numbers,
    refinement,
    theory,
    training,
    transfer,
    workflows,
)
from lib.reporting.configuration import encoders as reported
from lib.reporting.configuration.common import ALL, DPO, GRPO, PAPER
from lib.reporting.configuration.everybody import BOUND, CONSTANT, ORACLE, everybody
from lib.reporting.estimates import gap
from lib.stats import Interval

PARAMS = params.load("smoke")
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
    "direct": {"choice", "hops"}, "reason": {"chain", "passage"}, "verify": {"chain", "mixed"}, "voting": set(),
}  # fmt: skip
WHY = {
    "chain": "configuration", "passage": "arithmetic", "choice": "knowledge", "hops": "knowledge",
    "mixed": "unclassified",
}  # fmt: skip
BEST = {"chain": "reason", "passage": "reason", "choice": "direct", "hops": "direct", "mixed": "verify"}  # 18 tokens
ALWAYS = {workflow: dict.fromkeys(NAMES, workflow) for workflow in CHOICES}
ACTS = {  # what is chosen for each kind
    "arc": BEST, "arc_no_sft": BEST | {"mixed": "voting", "hops": "voting"}, "arc_dpo": BEST | {"mixed": "direct"},
    "grpo": ALWAYS["voting"], "bandit": ALWAYS["direct"], "episodes": ALWAYS["voting"], "greedy": ALWAYS["reason"],
    "zero_shot": BEST | {"mixed": "direct", "hops": "voting"}, "few_shot": ALWAYS["voting"],
    "random": ALWAYS["voting"], "only-chain": ALWAYS["reason"], "only-passage": ALWAYS["reason"],
    "only-choice": ALWAYS["direct"], "only-hops": ALWAYS["direct"], "only-mixed": ALWAYS["verify"],
}  # fmt: skip
ONCE = ("greedy", "zero_shot", "few_shot")  # have one run
POOR = {**ACTS, "arc": ALWAYS["voting"], "random": BEST, "only-chain": BEST}
SAME = {workflow: set(NAMES) for workflow in CHOICES}
NONE: dict[str, set[str]] = {workflow: set() for workflow in CHOICES}


def row(item, kind: str, made: Configuration, right: float, **more) -> dict:
    """As of `system.table`."""
    tokens = TOKENS[made.workflow]
    used = min(1, made.allocated)
    return {
        "key": item.key, "prompt": item.prompt, "kind": kind, "difficulty": item.difficulty, "workflow": made.workflow,
        **dict(zip(("w", *list(spaces.DIMENSIONS)[1:]), made.structure, strict=True)),
        "atoms": " | ".join(" , ".join(names) for names in made.atoms), "allocated": made.allocated,
        "digest": made.digest, "right": float(right), "reward": 5 * right - tokens / 100, "calls": tokens // 10,
        "turns": 1, "tokens": tokens, "tokens_in": 5, "dollars": tokens * 1e-5, "seconds": tokens * 1e-3,
        "used": used, "cut": 0, "answered": 1.0, "answer": "x",
    } | more  # fmt: skip


def searched(right) -> pd.DataFrame:
    """Two configurations of the grid and four sampled ones, which do the same in every try."""
    tried = [("grid", "voting"), ("grid", "reason"), *(("sampled", workflow) for workflow in CHOICES)]
    rows = []
    for number, (which, workflow) in enumerate(tried):
        for split, items in (("train", TRAIN), ("test", TEST), ("again", TEST)):
            rows += [
                row(item, kind, CHOICES[workflow], kind in right[workflow], split=split, set=which, number=number)
                for kind in NAMES
                for item in items[kind]
            ]
    return pd.DataFrame(rows)


def examined(arm: str, acts, right, seed: int, model: str, why) -> list[dict]:
    return [
        row(item, kind, CHOICES[acts[kind]], kind in right[acts[kind]], text="", seed=seed, arm=arm, model=model,
            error="" if kind in right[acts[kind]] else why[kind], only=arm.removeprefix("only-") if "-" in arm else "",
            failed=float(arm == "few_shot" and kind == "chain"))
        for kind in NAMES
        for item in TEST[kind]
    ]  # fmt: skip


def trained(arm: str, acts, right, seed: int, updates: int = 10, times: int = 1) -> tuple[list[dict], list[dict]]:
    """In the first half all questions go to voting, then to what `acts` says; times: how often an update has each."""
    rollouts, learning = [], []
    for update in range(updates):
        now = ALWAYS["voting"] if update < updates / 2 else acts
        told = {"update": update, "arm": arm, "seed": seed, "only": ""}
        rollouts += [
            row(item, kind, CHOICES[now[kind]], kind in right[now[kind]]) | told
            for kind in NAMES
            for item in TRAIN[kind][:1] * times
        ]
        entropies = {"structure_entropy": 10.0 - update, "prompt_entropy": 2.0 if arm in ("arc", "grpo") else np.nan}
        learning.append(told | entropies)
    return rollouts, learning


def study(acts=ACTS, right=RIGHT, large=RIGHT, runs: int = 2, why=WHY, end: str = "arc") -> Results:
    """acts: by arm, what is chosen for each kind; right, large: on what each configuration is right, with the agents'
    model and with the larger one; end: the arm as which all trainings end."""
    tests, rollouts, learning = [], [], []
    for arm, chosen in acts.items():
        for seed in range(1 if arm in ONCE else runs):
            tests += examined(arm, chosen, right, seed, OWN.model, why)
            if arm == "arc":
                tests += examined(arm, chosen, large, seed, OWN.larger, why)
            if arm in ("arc", "bandit", "episodes", "grpo"):
                played = trained(arm, acts[end], right, seed, *((5, 2) if arm == "grpo" else (10, 1)))
                rollouts += played[0]
                learning += played[1]
    refined = [
        {"arm": "arc", "seed": seed} | about
        for seed in range(runs)
        for about in ({"how": "sft", "tau": 4.8, "elite": 15, "reward": 4.85}, {"how": "dpo", "pairs": 7})
    ]
    return Results(
        searched(right), pd.DataFrame({"tried": [1, 9, 17], "reward": [0.5, 1.0, 1.5]}), CHOICES["reason"],
        pd.DataFrame(tests), pd.DataFrame(rollouts), pd.DataFrame(learning), pd.DataFrame(refined), pd.DataFrame(),
    )  # fmt: skip


@pytest.fixture(scope="module")
def results() -> Results:
    return study()


@pytest.fixture(scope="module")
def poor() -> Results:
    """ARC chooses the worst, everything else may do better; one workflow wins everywhere; the larger model fails."""
    return study(POOR, {**NONE, "reason": set(NAMES)}, NONE, end="episodes")


@pytest.fixture(scope="module")
def everyone(results):
    return everybody(results, PARAMS)


@pytest.fixture(scope="module")
def losers(poor):
    return everybody(poor, PARAMS)


@pytest.fixture(scope="module")
def compared(results):
    return workflows.compared(results)


@pytest.fixture(scope="module")
def abroad(results):
    return transfer.abroad(results, PARAMS, encoders.encoder("hashing"))


def without(results: Results, *arms: str) -> Results:
    tests = results.tests[~results.tests["arm"].isin(arms)].reset_index(drop=True)
    return dataclasses.replace(results, tests=tests)


def title(figure: Figure) -> str:
    return " ".join(figure.get_suptitle().split())


def holds(found: Interval, value: float) -> None:
    """A value worked out by hand, inside its own interval."""
    assert found.value == pytest.approx(value, abs=1e-9)
    assert not found.known or found.lo - 1e-9 <= found.value <= found.hi + 1e-9


# What all share -----------------------------------------------------------------------------------


def test_rows_get_units_and_a_question(results):
    rows = common.tests_of(results, PAPER, OWN.model)
    assert len(rows) == 2 * 10 and list(common.by_kind(rows)) == [*NAMES, ALL]
    first = rows[rows["kind"] == "chain"].iloc[0]
    assert first["mille"] == pytest.approx(20 * 1e-5 * 1000) and first["ms"] == pytest.approx(20)


def test_a_gap_pairs_questions_whatever_the_numbers_of_runs(results):
    arc, greedy, random_ = (common.tests_of(results, arm, OWN.model) for arm in (PAPER, "greedy", "random"))
    holds(gap(arc, greedy, "right"), 1 - 0.4)
    holds(gap(greedy, arc, "right"), 0.4 - 1)
    holds(gap(arc, random_, "tokens"), 18 - 40)
    assert not words.there(gap(arc, random_[:0], "right"))
    one = gap(greedy, common.tests_of(results, "zero_shot", OWN.model), "right")
    holds(one, 0.4 - 0.6)
    assert one.known


def test_rows_that_are_apart_need_not_be_as_many():
    a, b = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 0.0]]), np.array([[0.0, 0.0]])
    holds(workflows.apart(a, b, "t"), 4 / 6)
    same = workflows.apart(b + 1, b, "t")
    assert (same.lo, same.hi) == (1, 1)


# Workflows ----------------------------------------------------------------------------------------


def test_accuracies_are_means_over_configurations_and_questions(compared):
    assert compared.rows["direct"]["choice"].value == 1 and compared.rows["direct"][ALL].value == 0.4
    assert compared.rows["voting"][ALL].value == 0


def test_no_workflow_wins_everywhere_if_each_is_behind_somewhere(compared):
    best = {one.kind: (one.workflow, one.next) for one in compared.winners}
    assert best["passage"][0] == "reason" and best["mixed"][0] == "verify"
    assert set(best["chain"]) == {"reason", "verify"}
    assert workflows.nowhere_behind(compared) == [] and workflows.verdict(compared) == workflows.HOLDS
    table = workflows.winners_table(compared).set_index("kind")
    assert table["lead is clear"].sum() == 4  # on chains two are always right
    assert table.loc["passage", "lead"].value == 1 and table.loc["passage", "lead is clear"]
    assert "passage reason 1.00" in title(workflows.accuracy_figure(compared))
    assert "direct, chain 0 [0, " in workflows.accuracy_figure(compared).alt_text


# Everybody ----------------------------------------------------------------------------------------


def test_everybody_s_means_stand_side_by_side(everyone):
    holds(everyone.mean(PAPER), 1)
    holds(everyone.mean(PAPER, "tokens"), 18)
    holds(everyone.mean(PAPER, common.MONEY), 18 / 100)
    holds(everyone.mean(PAPER, "reward", "mixed"), 5 - 0.3)
    holds(everyone.mean(CONSTANT), 0.4)  # the base: as often right as two others, with fewer tokens
    assert everyone.rows[CONSTANT] == everyone.rows["base"]  # one quantity, one interval
    holds(everyone.mean("grid", "tokens"), 20)
    assert everyone.mean("by_kind").value == everyone.mean(ORACLE).value == 1
    table = comparison.table(everyone).set_index("who")
    assert table.loc["RL bandit", "reward"].known and not table.loc["RL bandit", "tokens"].known
    assert table.loc["ARC", "accuracy"].value == 1 and table.loc[BOUND, "on the front"] == "oracle"
    assert comparison.kinds_table(everyone).set_index("who").loc["grid search", "chain"].value == 1


def test_who_is_dominated_is_not_on_the_front(everyone):
    best = comparison.front(everyone)
    assert set(best) == {PAPER, "by_kind", DPO, "bandit", "base", CONSTANT}  # equals are on it together
    table = comparison.table(everyone).set_index("who")
    assert table.loc["ARC", "on the front"] == "yes" and table.loc["random", "on the front"] == "no"


def test_the_oracle_is_above_everybody_and_what_could_be_foreseen_is_told_beside_it(results, everyone):
    assert baselines.dominates(everyone.tests)
    best = everyone.mean(ORACLE, "reward").value
    assert all(best >= everyone.mean(arm, "reward").value - 1e-9 for arm in everyone.arms)
    lucky = results.searched.copy()
    lucky.loc[lucky["split"] == "again", "reward"] *= -1
    foreseen = float(baselines.foreseen(lucky)["reward"].mean())
    assert foreseen < everyone.mean(ORACLE, "reward").value


# Diversity ----------------------------------------------------------------------------------------


def test_diversity_and_what_a_kind_tells(everyone):
    found = diversity.measures(everyone, PAPER)
    entropy = -(2 * 0.4 * np.log2(0.4) + 0.2 * np.log2(0.2))
    holds(found["unique"], 3)
    holds(found["entropy"], entropy)
    holds(found["told"], entropy)
    holds(diversity.measures(everyone, GRPO)["entropy"], 0)
    assert diversity.by_chance(everyone, GRPO) == 0 and 0 < diversity.by_chance(everyone, PAPER) < entropy
    table = diversity.table(everyone).set_index("who")
    assert table.loc["random", "chosen most"] == "voting\u00a0100%" and table.loc["ARC", "workflows"].value == 3
    assert diversity.kinds_table(everyone).set_index("kind").loc["mixed", "workflows"] == "verify 100%"


# Refinement ---------------------------------------------------------------------------------------


def test_refinements_are_held_against_what_they_began_with(results, everyone):
    rows = refinement.before_after(everyone)
    holds(rows["SFT minus before"]["accuracy"], 0.4)
    holds(rows["SFT minus before"]["reward"], 2 + 0.08)
    holds(rows["DPO minus before"]["accuracy"], 0.2)
    table = refinement.elite_table(results)
    assert table[["episodes", "elite", "pairs"]].to_numpy().tolist() == [[50, 15, 7]] * 2
    holds(refinement.threshold(results), 4.8)
    holds(refinement.objectives(everyone)["PPO, then SFT"]["all, minus PPO"], 0.4)


# Transfer -----------------------------------------------------------------------------------------


def test_drops_are_held_against_who_learned_there(abroad):
    assert abroad.accuracies["mixed"]["chain"].value == 1 and abroad.accuracies[ALL]["hops"].value == 1
    holds(abroad.drops["chain", "choice"], -1)
    holds(abroad.drops["chain", "passage"], 0)
    assert transfer.mean_drop(abroad) == (pytest.approx(-15 / 20), 15, 20)
    assert "-0.75 on average, clearly down in 15 of 20" in title(transfer.figure(abroad))
    table = transfer.table(abroad).set_index(["learned from", "tested on"])
    assert table.loc[("chain", "choice"), "clear"] and table.loc[("chain", "choice"), "difference"].value == -1
    assert np.isnan(table.loc[("all kinds", "chain"), "at home"])
    assert "chain: chain 1.00, passage 1.00" in transfer.figure(abroad).alt_text


def test_a_larger_model_is_judged_under_the_same_choices(abroad):
    assert abroad.larger[ALL][transfer.DIFFERENCE]["accuracy"].value == 0
    holds(transfer.abroad(study(large=NONE), PARAMS).larger[ALL][transfer.DIFFERENCE]["accuracy"], -1)
    assert len(transfer.larger_table(abroad)) == 6 * 3


# Errors -------------------------------------------------------------------------------------------


def test_errors_are_shares_of_wrong_answers(everyone, losers):
    assert errors.count(everyone) == (0, 20) and "no wrong answer" in title(errors.figure(everyone))
    assert errors.count(losers) == (20, 20)
    holds(errors.misconfigured(losers), 0.2)
    found = errors.shares(losers)
    holds(found["knowledge gap"], 0.4)
    assert sum(x.value for x in found.values()) == pytest.approx(1)
    assert "20% of wrong answers are the configuration's" in title(errors.figure(losers))
    assert "chain: policy configuration 100" in errors.figure(losers).alt_text
    assert "no wrong answer" in errors.figure(everyone).alt_text
    table = errors.table(losers).set_index("kind")
    assert table.loc["chain", "wrong"] == "4\u00a0of\u00a04" and table.loc["hops", "knowledge gap"].value == 1
    rules = errors.rules_table(losers).set_index("rule")
    assert rules.loc["knowledge", "all kinds"] == 8 and rules.loc["arithmetic", "category"] == "execution"


# Encoders and atoms -------------------------------------------------------------------------------


def test_labels_are_what_is_paid_best(results):
    told = reported.labels(results, PARAMS)
    best = dict(zip(told.kinds, told.wanted.tolist(), strict=True))
    assert best["passage"] == ["reason", "none", "high"] and best["hops"] == ["direct", "tools", "high"]
    assert told.steps[0] == len(TRAIN["chain"][0].reference.split(" ; ")) and len(told.prompts) == 10
    found = reported.commonest(told)
    assert found["ari"] == 0 and found["classification"] == pytest.approx(
        (0.2 + 0.8) / 2
    )  # tools pay on all but passages


def test_encoders_are_ranked(results, monkeypatch):
    monkeypatch.setattr(embeddings, "decision", lambda vectors, wanted: vectors.shape[1] / 1000)
    few = params.settings(profile="smoke", configuration={"encoders": ["hashing"]})
    found = reported.scores(results, few)
    assert list(found) == ["hashing", reported.FEATURES, reported.COMMONEST]
    assert found["hashing"]["overall"] == pytest.approx(embeddings.overall(found["hashing"]))
    fair = {name: {metric: score for metric in reported.METRICS} for name, score in (("a", 0.2), ("b", 0.4))}
    assert reported.table(fair)["encoder"].tolist() == ["b", "a"]


def test_an_atom_is_worth_what_its_workflow_is_paid_more_with_it(results):
    """Two more of verify, without the atom and always wrong: with it 5 * 0.4 more."""
    plain = Configuration((2, 1, 1, 2, 2, 2))
    more = [
        row(item, kind, plain, 0, split=split, set="sampled", number=7)
        for split in ("test", "again")
        for kind in NAMES
        for item in TEST[kind]
    ]
    grown = dataclasses.replace(results, searched=pd.concat([results.searched, pd.DataFrame(more)], ignore_index=True))
    (found, n) = reported.worth(grown)[PLAN]
    assert n == 1 and found.value == pytest.approx(2.0) and not found.known
    assert reported.worth_table(grown).iloc[0]["reward"].value == found.value
    assert reported.worth_table(results).empty


# Theory -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def settled(results):
    return theory.checks(results, PARAMS, buffers=3)


def test_chances_are_those_of_the_tries(results):
    mean, chance = theory.tried(results)
    assert mean.shape == chance.shape == (10, 6) and set(chance.ravel()) == {0, 1}
    assert mean.min() == pytest.approx(-0.4) and mean.max() == pytest.approx(-0.1)
    turned = results.searched.assign(right=np.where(results.searched["split"] == "again", 0.0, 1.0))
    assert set(theory.tried(dataclasses.replace(results, searched=turned))[1].ravel()) == {0.5}


# One episode --------------------------------------------------------------------------------------


def outcome(right: bool = True) -> Outcome:
    trail = (
        Note("reasoner", 0, "1 + 1 = 2 <b>", "2", "<answer> 2 </answer>", 0.01),
        Note("verifier", 1, "", None, "<think> well", 0.02, cut=True),
        Note("answerer", 2, "", "2", "<answer> 2 </answer>", 0.03),
    )
    return Outcome(right, "2", "", 3, 4, 9, 12, 2e-4, 0.03, 1, ("calculator",), 1, (), trail)


def test_an_episode_is_chosen_and_done_again_as_it_was(results):
    told = episodes.telling(results, PARAMS)
    assert told["right"] == 1 and told["workflow"] == "verify"
    job = episodes.job_of(told, PARAMS)
    assert job.configuration == CHOICES["verify"] and job.draw == TEST_DRAW and job.item in TEST["mixed"]
    assert episodes.simplest(job).configuration == BASE and episodes.simplest(job).item == job.item
    with pytest.raises(ValueError, match="no test episode"):
        episodes.telling(results, PARAMS, arm="oracle")
    with pytest.raises(ValueError, match="reads 'what'"):
        episodes.job_of(pd.Series(told.to_dict() | {"prompt": "what"}), PARAMS)


def test_a_row_s_configuration_is_read_back():
    made = Configuration((2, 5, 8, 0, 1, 2), (("a/b", "c"), (), ("d",)))
    told = pd.Series(row(TEST["chain"][0], "chain", made, 1))
    assert episodes.configuration_of(told) == made


def test_calls_are_shown_one_by_one_and_escaped():
    job = Job(TEST["mixed"][0], CHOICES["verify"], 0)
    markup, plain = episodes.episode_html(job, outcome(), 'a "b" <c>')
    assert "<c>" not in markup and "<b>" not in markup and "&lt;b&gt;" in markup
    assert markup.count("5px solid") == 2 and markup.count("5px dotted") == 1
    assert "cut by its budget" in plain and "it wrote: <think> well" in plain and PLAN in plain
    table = episodes.table(job, outcome())
    assert table["may use"].tolist() == ["calculator", "calculator", "no tool"] and table["cut"].tolist() == [0, 1, 0]
    assert "right: 2" in episodes.words(job, outcome()) and "wrong: 2" in episodes.words(job, outcome(False))
    with pytest.raises(ValueError, match="no call"):
        episodes.episode_html(job, dataclasses.replace(outcome(), trail=()), "caption")


def test_a_reward_is_taken_apart():
    job = Job(TEST["mixed"][0], CHOICES["verify"], 0)  # 3 calls, 12 of 192 tokens, 1 call of the 2 tools it has
    terms = episodes.paid(job, outcome(), PARAMS)
    assert terms == pytest.approx(
        {"task success": 5.0, "steps": -0.06, "tokens": -0.03 * 12 / 192, "tools": 0.3, "R": 5.24 - 0.03 / 16}
    )
    assert sum(terms.values()) == pytest.approx(2 * terms["R"])
    idle = dataclasses.replace(outcome(False), used=0, tools=())
    assert episodes.paid(job, idle, PARAMS)["tools"] == pytest.approx(-0.6)
    table = episodes.paid_table({"ARC": (job, outcome()), "idle": (job, idle)}, PARAMS).set_index("what")
    assert table.loc["R"].tolist() == ["+5.238", "-0.662"] and table.loc["tools allocated"].tolist() == ["2", "2"]
    assert table.loc["R: task success"].tolist() == ["+5.000", "+0.000"] and table.loc["right", "idle"] == "no"


# All together -------------------------------------------------------------------------------------


def test_metrics_have_the_keys_that_are_promised(results, everyone, compared, abroad, settled, tmp_path):
    scores = {"lab:lab-team": {"overall": 0.5}}
    found = numbers.metrics(results, PARAMS, everyone, compared, abroad, settled, scores)
    promised = [
        f"{arm}.{kind}{what}"
        for arm in TESTED
        for kind in ("", "chain.", "mixed.")
        for what in ("accuracy", "tokens", "dollars", "reward")
    ]
    promised += ["space.total", "space.valid", "transfer.chain.hops.accuracy", "larger.accuracy", "larger.hops.reward",
                 "errors.wrong", "theorem.noise_100.fresh", "encoders.lab_lab_team.overall", "gap.random.reward",
                 "refinement.sft.reward", "workflows.best.chain", "oracle.foreseen",
                     "oracle.dominates", "sft.tau"]  # fmt: skip
    assert set(promised) <= set(found)
    assert (found["backend"], found["zero_shot.backend"]) == ("lab", "scripted")
    assert (found["space.total"], found["space.valid"]) == (62_208, 41_904)
    holds(found["arc.dollars"], 18e-5)
    holds(found["gap.best_constant.dollars"], 8e-5)
    Lesson("07_agent_configuration", "t", "smoke", {}, tmp_path).metrics(found)  # every key and value is one
    assert set(numbers.key_metrics(found)) <= set(found) and len(numbers.key_metrics(found)) == 4


HOLES = {  # what tiny studies lack
    "one seed, nobody is right, nothing of one kind alone": lambda r: without(
        study(runs=1, right=NONE, large=NONE), *(f"only-{name}" for name in NAMES)
    ),
    "one kind": lambda r: dataclasses.replace(
        r, **{name: getattr(r, name)[getattr(r, name)["kind"] == "hops"] for name in ("searched", "tests", "rollouts")}
    ),
}  # fmt: skip


@pytest.mark.parametrize("hole", HOLES)
def test_studies_with_holes_are_reported_all_the_same(results, hole):
    tiny = HOLES[hole](results)
    all_, best, away = everybody(tiny, PARAMS), workflows.compared(tiny), transfer.abroad(tiny, PARAMS)
    checked = theory.checks(tiny, PARAMS, (0.0, 1.0), 2)
    tables = [comparison.table(all_), comparison.kinds_table(all_), comparison.gaps_table(all_), diversity.table(all_),
              diversity.kinds_table(all_), workflows.winners_table(best), workflows.best_table(tiny),
              interval_table(refinement.before_after(all_)), refinement.elite_table(tiny),
              interval_table(refinement.objectives(all_)), transfer.table(away), transfer.larger_table(away),
              errors.table(all_), errors.rules_table(all_), errors.arms_table(all_), theory.table(checked),
              reported.worth_table(tiny)]  # fmt: skip
    assert not any(re.search(r"\bnan\b", table_html(table, "a table").lower()) for table in tables)
    drawn = [workflows.accuracy_figure(best), workflows.spread_figure(tiny), comparison.plane(all_),
             training.curves(tiny), training.shares(tiny), training.shares(tiny, "arm"), training.tools(tiny),
             training.tools(tiny, "arm"), training.entropy(tiny), transfer.figure(away), errors.figure(all_),
             theory.figure(checked)]  # fmt: skip
    assert all(title(figure) for figure in drawn)
    told = [comparison.searches_words(tiny), *(figure.alt_text for figure in drawn),
            numbers.finding(all_, best, away), numbers.limits(tiny, PARAMS, all_, best, away, checked)]  # fmt: skip
    assert all(len(text) > 10 and not re.search(r"\bnan\b", text) for text in told)
    for value in numbers.metrics(tiny, PARAMS, all_, best, away, checked, {}).values():
        assert isinstance(value, (str, int, float, Interval))
        assert not isinstance(value, Interval) or (value.known and value.lo <= value.hi)
