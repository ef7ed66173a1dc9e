"""Lesson 06's record, and what is read off it, say what their numbers say.

The study here is made up so that its means can be worked out on paper: six pieces of work (two chains, two facts, a
big number, an office task), three seeds that do the same, and calls at round prices in micro-dollars.
"""

import dataclasses
import json
from itertools import product

import pandas as pd
import pytest

from lib import config, stats
from lib.experiment import results_table
from lib.reports.lesson import Lesson
from lib.reports.lesson_figures import orchestra
from lib.tool_orchestration import results as recorded
from lib.tool_orchestration.experiment import AGENT, START, ToolOrchestrationResults
from lib.tool_orchestration.results import UNITS
from lib.tool_orchestration.tool_environment import OwnTokenPrice
from lib.tool_orchestration.tool_menu import list_tools
from tests.tool_orchestration.common import offers

PAPER, LENIENT, CORL = "paper", "lenient", "corl"
OURS = "ToolOrchestra"
NOTHING_TRIED = pd.DataFrame({"tool": [], "calls": []})

PARAMS = config.load("smoke")
OWN = PARAMS.tools
TOOLS = list_tools(OWN)
PRICE = {"calculator": 1, "search": 1, "lookup": 4, "python": 2, "draft": 1, "lab-nano": 5, "lab-mini": 10,
         "lab-large": 60, "reasoner": 10, "answerer": 10}  # fmt: skip  # micro-dollars a call
TIME = 10  # milliseconds a call, and of the orchestrator itself
SELF = 10  # micro-dollars of its own tokens
NANO, MINI, LARGE = "lab-nano", "lab-mini", "lab-large"
WORK = (  # kind, difficulty, menu, tools liked, confidential, P of accuracy, cost, latency
    ("chain", 2, f"{NANO} {LARGE} calculator", NANO, False, (1.0, 1.0, 0.0)),
    ("chain", 5, f"{NANO} {LARGE} calculator", "", False, (1.0, 0.0, 0.0)),
    ("facts", 1, f"search lookup {MINI}", "search lookup", True, (1.0, 0.5, 0.5)),
    ("facts", 2, f"search lookup {MINI}", "", False, (1.0, 0.0, 1.0)),
    ("big", 2, "calculator python", "", False, (1.0, 1.0, 1.0)),
    ("office", 1, "calculator", "", False, (1.0, 0.0, 0.0)),
)
BEFORE = [
    (NANO, 1),
    (NANO, 0),
    (MINI, 0),
    ("search search", 1),
    ("calculator", 1),
    ("", 0),
]  # 3 of 5, and no office
AFTER = [
    (NANO, 1),
    (LARGE, 1),
    ("search", 1),
    ("search search", 1),
    ("calculator", 1),
    ("lookup draft", 1),
]
ACTS = {START: BEFORE, PAPER: AFTER, "published": AFTER, LENIENT: AFTER, CORL: BEFORE}


def row(item: int, called: str, correct: float, work=None, factor: float = 1.0, **more) -> dict:
    """As of `study.rows`."""
    kind, difficulty, menu_, liked, secret, p = work or WORK[item]
    calls = called.split()
    paid = [PRICE[name] * factor * 1e-6 for name in calls]
    cost_usd, seconds = sum(paid) + SELF * 1e-6, (1 + len(calls)) * TIME * 1e-3
    spoken = [("prompt", "tools lab-nano $ 1 / 1 1 + 1 = ?", 0.0)]
    for name, cost in zip(calls, paid, strict=True):
        call = f"<think> + 1 </think> <call> {name} 1 + 1 </call>"
        spoken += [("controller", call, 0.0), (name, "<response> 2 </response>", cost)]
    spoken.append(("controller", "<answer> 2 </answer>", 0.0))
    good = [n for n in menu_.split() if offers()[n].skills.get(kind, 0) >= difficulty]
    told = {
        "item": item,
        "group": kind,
        "difficulty": difficulty,
        "correct": float(correct),
        "cost_usd": cost_usd,
        "seconds": seconds,
        "own_cost_usd": SELF * 1e-6,
        "calls": len(calls),
        "chosen": called,
        "malformed": 0,
        "answered": 1.0,
        "offered": menu_,
        "p": [*[float(name in liked.split()) for name in TOOLS], *p],
        "m": [*[float(calls.count(name)) for name in TOOLS], float(correct), -cost_usd, -seconds],
        "p_accuracy": p[0],
        "p_cost": p[1],
        "p_latency": p[2],
        "liked": liked,
        "confidential": secret,
        "first": (calls or [""])[0],
        "good": " ".join(good),
        "spoken": json.dumps(spoken),
    }
    if kind == "office":
        told |= dict.fromkeys(("execution", "fidelity", "completeness"), float(correct))
    return told | more


USERS = [(0.0, 0.0, 1.0), (0.0, 1.0, 0.0), (1.0, 0.0, 0.0)]
EVEN = dict.fromkeys(range(3), NANO)
SAVING = {0: NANO, 1: "calculator", 2: LARGE}  # cheap where cost counts, dear where accuracy does


def exams(method: str) -> dict[str, list[dict]]:
    """After training it takes unseen tools where nothing else is good, another tool when the first one fails, and
    whom users of the grid, with two chains each, pay for gladly."""
    acts, users, reads = ACTS[method], EVEN if method == START else SAVING, method != START
    unseen = [
        ("chain", 5, f"{NANO} reasoner", "", False, (1.0, 0.0, 0.0)),
        ("facts", 1, "search answerer", "", False, (1.0, 0.0, 0.0)),
    ]
    broken = (
        f"{NANO} {LARGE}" if reads else f"{NANO} {NANO}",
        "search search" + (" lookup" if reads else ""),
    )
    return {
        "test": [row(i, *act) for i, act in enumerate(acts)],
        "pilot": [row(i, *act) for i, act in enumerate(acts[:4])],
        "unseen_prices": [row(i, *act, factor=2.0) for i, act in enumerate(acts)],
        "unseen_tools": [
            row(0, "reasoner" if reads else NANO, reads, unseen[0]),
            row(1, "search", 1.0, unseen[1]),
        ],
        "outage": [row(0, broken[0], reads), row(1, broken[1], reads, WORK[3])],
        "simplex": [
            row(
                2 * user + base,
                users[user],
                users[user] == LARGE or base == 0,
                (*WORK[base][:5], p),
            )
            for user, p in enumerate(USERS)
            for base in (0, 1)
        ],
    }


def trained(method: str, seeds: int, updates: int = 10) -> tuple[list[dict], list[dict]]:
    """Two groups of four rollouts an update: as before training in the first half, then as the arm acts; the last of a
    group is malformed. Rewards: 1 for the right and cheap, 0.5 for the right and dear."""
    rollouts, learning = [], []
    for seed, update in product(range(seeds), range(updates)):
        now, told = (
            BEFORE if update < updates / 2 else ACTS[method],
            {"method": method, "seed": seed},
        )
        for group, item in enumerate((1, 2)):
            acts = [now[item], (LARGE if group == 0 else "lookup", 1), now[item], ("", 0)]
            for i, (called, correct) in enumerate(acts):
                paid = correct * (0.5 if called in (LARGE, "lookup") else 1.0)
                more = {
                    "step": update,
                    "rollout_group": group,
                    "reward": paid,
                    "malformed": int(i == 3),
                }
                rollouts.append(row(item, called, correct, **told, **more))
        left = (
            {"kept": 8, "malformed": 0}
            if method in (CORL, LENIENT)
            else {"kept": 3, "malformed": 2}
        )
        agreeing = 8 - left["kept"] - left["malformed"]
        learning.append(told | left | {"step": update + 1, "unanswered": 0, "agreeing": agreeing})
    return rollouts, learning


def tried() -> pd.DataFrame:
    """Every usable tool on its own: right where a card says so."""
    rows = []
    for split, times in (("train", 3), ("test", 1)):
        for i in range(5 * times):
            kind, difficulty, menu_, *_ = WORK[i % 5]
            for name in menu_.split():
                if offers()[name].skills.get(kind) or (offers()[name].model and kind != "big"):
                    correct = float(offers()[name].skills.get(kind, 0) >= difficulty)
                    rows.append(
                        {
                            "split": split,
                            "group": kind,
                            "difficulty": difficulty,
                            "offered": menu_,
                            "item": i,
                            "tool": name,
                            "correct": correct,
                            "cost_usd": PRICE[name] * 1e-6,
                            "seconds": TIME * 1e-3,
                            "calls": 1,
                        }
                    )
    return pd.DataFrame(rows)


def study(seeds: int = 3) -> ToolOrchestrationResults:
    pilot_ = [
        row(i, *act) for i, act in enumerate([("lookup", 1), ("", 0), ("search", 1), ("", 0)])
    ]
    tests = [each | {"method": AGENT, "seed": 0, "style": "pilot"} for each in pilot_]
    rollouts, learning = [], []
    for method in ACTS:
        sat = exams(method) if method in (START, PAPER) else {"test": exams(method)["test"]}
        for seed, (exam, rows) in product(range(1 if method == START else seeds), sat.items()):
            tests += [each | {"method": method, "seed": seed, "style": exam} for each in rows]
        if method != START:
            for table, rows in zip((rollouts, learning), trained(method, seeds), strict=True):
                table += rows
    return ToolOrchestrationResults(
        tools=TOOLS,
        tried=tried(),
        episodes=pd.DataFrame(tests),
        rollouts=pd.DataFrame(rollouts),
        learning=pd.DataFrame(learning),
        corpus=pd.DataFrame(),
        budget=2e-5,
        own=OwnTokenPrice(1e-7, 1e-4),
        offers=offers(),
    )


@pytest.fixture(scope="module")
def results() -> ToolOrchestrationResults:
    return study()


@pytest.fixture(scope="module")
def rows(results) -> pd.DataFrame:
    return results_table.make_results(recorded.SYSTEM, recorded.make_rows(results, PARAMS))


@pytest.fixture(scope="module")
def exam(rows) -> pd.DataFrame:
    return results_table.select(rows, style="test", condition="question")


def means(part: pd.DataFrame, column: str) -> dict:
    return stats.mean(part, column, "method")["value"].to_dict()


def test_everybody_stands_on_the_same_questions_in_the_units_of_the_report(rows, exam):
    correct, money = means(exam, "correct"), means(exam, "micro_usd")
    assert correct["start"] == pytest.approx(3 / 5) and correct[OURS] == 1
    assert money[OURS] == pytest.approx(SELF + (5 + 60 + 1 + 2 + 1) / 5)
    assert (
        means(exam, "own_micro_usd")[OURS] == pytest.approx(SELF)
        and means(exam, "own_micro_usd")["oracle"] == 0
    )
    assert list(correct)[:5] == ["start", OURS, "sign error", "failures kept", "CoRL's reward"]
    assert exam.groupby("method")["item"].nunique().eq(5).all()
    roles = rows.drop_duplicates("method").set_index("method")["role"]
    assert roles[OURS] == "paper" and roles["start"] == "start" and roles["oracle"] == "oracle"
    assert set(results_table.select(rows, condition="office", style="test")["method"]) == {
        "start",
        *list(correct)[1:5],
    }


def test_best_always_is_one_of_the_tools_always_and_random_the_mean_of_what_can_be_asked(
    results, exam
):
    best = f"always {recorded.find_best_tool(results)}"
    assert means(exam, "correct")["best single tool"] == means(exam, "correct")[best]
    four = exam[exam["item"] == "4"].set_index("method")["score"]
    assert four["random"] == pytest.approx(four[["always calculator", "always python"]].mean())


def test_scores_by_hand(results, exam):
    """Item 2, wrong before: accuracy 1, cost and latency half: 20 / 11 and 1; a call to search, which is liked."""
    score = exam[(exam["method"] == OURS) & (exam["item"] == "2")]["score"].iloc[0]
    assert score == pytest.approx(2 + 0.5 * 20 / 11 + 0.5)
    whole, blind = (
        recorded.compute_scores(results, weigh=w).groupby("method")["score"].sum()[OURS]
        for w in ((1, 1), (0, 0))
    )
    assert 0 < blind < whole


def test_in_dollars_or_as_printed_spending_does_not_count(results):
    once, twice = (
        [
            recorded.compute_scores(results, per, dearer).groupby("method")["score"].mean()[OURS]
            for per in UNITS.values()
        ]
        for dearer in (1.0, 2.0)
    )
    assert twice[0] < once[0] and twice[1:] == pytest.approx(once[1:])


def test_a_quotient_is_of_sums_and_its_gap_is_the_difference(exam):
    paid = exam.assign(paid=exam["micro_usd"] * exam["correct"])
    found, spent = (
        recorded.estimate_ratios(paid, "paid", "correct")["value"],
        [PRICE[NANO], PRICE[LARGE], 1, 2, 1],
    )
    assert found[OURS] == pytest.approx(SELF + sum(spent) / 5)
    assert found["start"] == pytest.approx(SELF + (PRICE[NANO] + 2 + 1) / 3)
    gap = recorded.estimate_ratio_differences(
        paid, "paid", "correct", {"method": OURS}, {"method": "start"}, "split"
    ).iloc[0]
    assert (
        gap["value"] == pytest.approx(found[OURS] - found["start"])
        and gap["ci_low"] < gap["value"] < gap["ci_high"]
    )


def test_where_nothing_can_be_divided_there_is_no_number(exam):
    none = exam.assign(correct=exam["correct"].where(exam["method"] != "start", 0.0))
    assert recorded.estimate_ratios(none, "micro_usd", "correct")["value"].isna()["start"]
    sides = {"method": OURS}, {"method": "start"}
    assert (
        recorded.estimate_ratio_differences(none, "micro_usd", "correct", *sides, "split")["value"]
        .isna()
        .all()
    )
    assert (
        recorded.estimate_ratios(none.assign(correct=0.0), "micro_usd", "correct")["value"]
        .isna()
        .all()
    )


def test_shares_of_calls_are_of_all_calls(results, rows):
    pilot = results_table.select(rows, style="pilot")
    found = recorded.estimate_call_shares(pilot, [*results.tools])["value"]
    assert found["lab-agent", "lookup"] == 0.5 and found["start", NANO] == pytest.approx(2 / 5)
    assert found[OURS, LARGE] == pytest.approx(1 / 5) and found[OURS].sum() == pytest.approx(1)
    assert means(pilot, "correct")["lab-agent"] == 0.5


def test_wanted_calls_are_to_liked_tools_and_of_confidential_users_to_models(exam):
    liking = exam[(exam["own_cost_usd"] > 0) & (exam["liked"] != "")]
    found = recorded.estimate_ratios(
        liking, "preferred_calls", "tool_calls", ["method", "confidential"]
    )["value"]
    assert found["start", False] == 1 and found["start", True] == 1 and found[OURS, True] == 0
    of_start = liking[liking["method"] == "start"]
    confidential = of_start[of_start["confidential"].astype(bool)]
    assert confidential["preferred_at_random"].tolist() == pytest.approx([1 / 3])


def test_an_outage_is_met_at_its_call_and_switching_counts(results, rows):
    """The facts of difficulty 2 fail from their second call on."""
    broken = results_table.select(rows, style="outage")
    assert means(broken, "met_outage")["start"] == 1 and means(broken, "switched")["start"] == 0
    assert means(broken, "switched")[OURS] == 1 and means(broken, "correct_after_outage")[OURS] == 1
    once = dataclasses.replace(
        results, episodes=results.episodes.assign(chosen="search", first="search")
    )
    again = results_table.select(recorded.make_rows(once, PARAMS), style="outage", method=OURS)
    assert again["met_outage"].tolist() == [1, 0] * 3


def test_a_newcomer_is_called_first_and_may_be_the_only_good_one(rows):
    met = results_table.select(rows, style="unseen_tools")
    assert means(met, "newcomer_first") == {"start": 0.0, OURS: 0.5}
    assert met[met["method"] == OURS].groupby("item")[
        "only_newcomer_is_capable"
    ].first().tolist() == [True, False]
    assert met["newcomer_at_random"].tolist() == [0.5] * len(met)


def test_what_has_become_cheaper_is_counted_among_tools(results, rows):
    cheap = set(recorded.list_cheaper_tools(results, OWN))
    mine = results_table.select(rows, style="unseen_prices", method="start")
    assert mine["cheaper_calls"].tolist() == [
        sum(n in cheap for n in names) for names in mine["chosen"]
    ]
    assert mine["tool_calls"].tolist() == [len(names) for names in mine["chosen"]] and cheap < set(
        TOOLS
    )


def test_slopes_are_least_squares_over_users(rows):
    """Calls cost 5, 1 and 60 for users with weight 0, 1 and 0 on cost: 1 - (5 + 60) / 2."""
    grid = results_table.select(rows, style="simplex")
    money, correct = (
        recorded.estimate_weight_slopes(grid, column)["value"]
        for column in ("micro_usd", "correct")
    )
    assert money[OURS] == pytest.approx(1 - 32.5) and money["start"] == pytest.approx(0)
    assert correct[OURS] == pytest.approx(1 - 0.5)


def test_hypervolume_rises_with_choice(rows):
    found = recorded.estimate_hypervolumes(results_table.select(rows, style="simplex"))["value"]
    assert found["start"] == pytest.approx(0.5 * 0.5 * 0.5)
    assert found[OURS] > found["start"]  # the same accuracy for less


def test_updates_are_means_over_rollouts_and_filters_add_up(results):
    curves = recorded.average_updates(results)
    mine = curves[(curves["method"] == OURS) & (curves["seed"] == 0)]
    assert (
        len(mine) == 10 and mine["malformed"].eq(2 / 8).all() and mine["left_out"].eq(5 / 8).all()
    )
    shares = recorded.compute_left_out_shares(results).loc[OURS]
    assert shares.to_dict() == {"malformed": 2 / 8, "unanswered": 0, "agreeing": 3 / 8}


def test_each_trajectory_by_hand_misses_what_it_left_out():
    table = orchestra.make_criteria_table(orchestra.choose_office_task()).set_index("trajectory")
    table = table[["execution", "fidelity", "completeness", "solved"]]
    assert table.loc["everything as it should be"].all() and table["solved"].sum() == 1
    criteria = ["execution", "fidelity", "completeness"]
    for name, missed in (
        ("forgot to write", ["execution"]),
        ("forgot to say", ["fidelity"]),
        # What no call gave is no information, whatever the reply says.
        ("guessed what it should have read", ["fidelity", "completeness"]),
        ("did nothing, said everything", criteria),
    ):
        assert [c for c in criteria if not table.loc[name, c]] == missed


def test_prices_and_times_of_parts_add_up_to_the_episode(results):
    asked = orchestra.make_test_assignments(results, OWN)[0]
    one = (
        results.episodes[
            (results.episodes["method"] == PAPER) & (results.episodes["chosen"] == LARGE)
        ]
        .iloc[0]
        .to_dict()
    )
    found = orchestra.split_episode(one, results.own, asked)
    assert sum(p[2] for p in found) == pytest.approx(one["cost_usd"])
    assert sum(p[3] for p in found) == pytest.approx(one["seconds"])
    assert [p[0] for p in found] == ["prompt", "controller", LARGE, "controller"]


def test_an_episode_is_escaped_and_masked(results):
    told = orchestra.choose_episodes(results)
    markup, plain = orchestra.episode_html(
        told, results.own, orchestra.make_test_assignments(results, OWN)[0], 'a "b" <c>'
    )
    assert "<call>" not in markup and "&lt;call&gt;" in markup and "<c>" not in markup
    assert markup.count("5px solid") == 4 and "mask 1" in plain and "<call> draft" in plain
    assert "correct; $" in plain and "wrong; $" in plain


def test_a_study_of_one_seed_is_a_record_all_the_same():
    found = results_table.make_results(recorded.SYSTEM, recorded.make_rows(study(seeds=1), PARAMS))
    assert set(found["style"]) == {
        "test",
        "pilot",
        "unseen_tools",
        "unseen_prices",
        "outage",
        "simplex",
    }
    assert (
        len(recorded.estimate_weight_slopes(results_table.select(found, style="simplex"), "ms"))
        == 2
    )


@pytest.mark.parametrize("num_lost", [2, 0])
def test_a_prompted_orchestrator_without_an_answer_in_two_of_ten_turns_is_marked(num_lost):
    endpoint = {"backend": "endpoint", "base_url": "https://host/v1", "model": "m"}
    endpoint |= {"price_in": 0.0, "price_out": 0.0}
    params = config.settings(profile="smoke", llm={"models": {OWN.agent: endpoint}})
    rows = pd.DataFrame(
        {
            "method": "lab-agent",
            "chosen": [[NANO]] * 5,
            "calls": 1,  # and a turn that ends the episode, so ten turns in all
            "malformed": [1] * num_lost + [0] * (5 - num_lost),
            "failed": 0,
            "truncated": 0,
        }
    )
    counts = recorded.count_replies(rows, NOTHING_TRIED, params).set_index("model")
    assert list(counts["calls"]) == [5, 10]
    assert counts.loc[OWN.agent, "share_without_answer"] == num_lost / 10
    assert counts.loc[OWN.agent, "too_many"] == (num_lost > 0)
    assert not counts.loc["several", "too_many"]


def test_calls_of_functions_are_no_calls_of_models():
    rows = pd.DataFrame(
        {
            "method": [OURS, OURS, "always calculator"],
            "chosen": [["calculator", NANO], ["search"], ["calculator"]],
            "calls": [2, 1, 1],
            "malformed": 0,
            "truncated": [1, 0, 0],
            "unusable": 0,
        }
    )
    (counts,) = recorded.count_replies(rows, NOTHING_TRIED, PARAMS).itertuples()
    assert (counts.method, counts.calls, counts.truncated) == (OURS, 1, 1)


def test_a_tool_whose_model_is_cut_off_when_it_is_asked_alone_is_marked_under_its_own_name(
    tmp_path,
):
    """The orchestrator's word is lab-nano; who answers is another model."""
    llm = PARAMS.llm
    smol = llm.models["nano"].model_copy(update={"backend": "endpoint", "model": "m"})
    llm = llm.model_copy(update={"models": llm.models | {"smol": smol}})
    tools = OWN.model_copy(update={"models": OWN.models | {NANO: "smol"}})
    params = PARAMS.model_copy(update={"llm": llm, "tools": tools})
    rows = pd.DataFrame({"method": [OURS], "chosen": [["search"]], "calls": 1, "malformed": 0})
    tried = pd.DataFrame(
        {"tool": ["calculator", *[NANO] * 10], "calls": 1, "truncated": [0, *[1] * 6, *[0] * 4]}
    )
    counts = recorded.count_replies(rows, tried, params)
    marked = counts[counts["too_many"]]
    assert marked["method"].tolist() == [f"always {NANO}"] and marked["model"].tolist() == ["smol"]
    assert marked["calls"].item() == 10 and "always calculator" not in set(counts["method"])

    lesson = Lesson("06_tool_orchestration", "Tools", "smoke", {}, tmp_path)
    lesson.name_models(params.llm, params.tools.models)
    lesson.check_replies(counts, rows)
    assert lesson.label(f"always {NANO}") == f"always {NANO} (smol) †"
    assert (
        lesson.label(NANO) == f"{NANO} (smol) †"
        and lesson.label("always search") == "always search"
    )


def test_a_rule_answers_for_the_replies_that_it_took_and_a_prompted_orchestrator_has_a_name():
    """The best single tool took three replies of a model, two of them cut off; random asked that model once."""
    endpoint = {"backend": "endpoint", "base_url": "https://host/v1", "model": "m"}
    endpoint |= {"price_in": 0.0, "price_out": 0.0}
    params = config.settings(profile="smoke", llm={"models": {"nano": endpoint}})
    tried = pd.DataFrame(
        {
            "split": ["train", *["test"] * 4],
            "item": [0, 0, 1, 2, 2],
            "tool": [*[NANO] * 4, "calculator"],
            "calls": 1,
            "truncated": [0, 1, 1, 0, 0],
        }
    )
    rows = pd.DataFrame(
        {
            "method": [*["best single tool"] * 3, "random"],
            "item": ["0", "1", "2", "2"],
            "chosen": [[NANO], [NANO], [NANO], ["calculator", NANO]],
            "calls": 1,
            "malformed": 0,
        }
    )
    counts = recorded.count_replies(rows, tried, params).set_index("method")
    best, random = counts.loc["best single tool"], counts.loc["random"]
    assert (best["calls"], best["truncated"], best["too_many"]) == (3, 2, True)
    assert (random["calls"], random["truncated"], random["too_many"]) == (1, 0, False)
    assert recorded.list_models_by_label(params.tools)["lab-agent"] == params.tools.agent
