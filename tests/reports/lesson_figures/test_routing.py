"""Episodes shown part by part: who wrote what, and a question on which something can be seen; rows named in words."""

import json
from pathlib import Path

import pandas as pd

from lib.reports.lesson_figures import routing, routing_details
from lib.rl import call_protocol
from tests.budgeted_routing.worked_example import (
    CALL_PRICES,
    CALLS_AND_SCORES,
    LARGE,
    MINI,
    NANO,
    make_episode,
    make_study,
)


def odd_episode() -> pd.DataFrame:
    row = make_episode(0, "medium", MINI, 1, 2e-6)
    parts = [
        ("prompt", "<s> 1 < 2 & 3", 0.0),
        ("controller", "<call> x", 0.0),
        ("lab-mini", "<response> 4", 2e-6),
        ("nobody", "<response> error", 0.0),
    ]
    return pd.DataFrame([row | {"spoken": json.dumps(parts), "malformed": 1}])


def test_an_episode_shows_who_wrote_what_and_escapes_it():
    markup, plain = routing.render_episodes(odd_episode(), 'caption "one" <b>', 1000.0)
    assert "<s>" not in markup and "<call>" not in markup and "<b>" not in markup
    assert (
        "1 &lt; 2 &amp; 3" in markup and 'aria-label="caption &quot;one&quot; &lt;b&gt;"' in markup
    )
    assert [line.split()[0] for line in plain.splitlines()[1:5]] == [
        "prompt",
        "controller",
        "lab-mini",
        "nobody",
    ]
    assert "<s> 1 < 2 & 3" in plain  # plain text is not escaped


def test_the_mask_is_1_for_the_controller_and_0_for_everybody_else():
    markup, plain = routing.render_episodes(odd_episode(), "c", 1000.0)
    learned = [part for part in markup.split("<p style")[1:] if "mask 1, learned" in part]
    (own,) = learned
    assert "<strong>&lt;call&gt; x</strong>" in own and markup.count("<strong>") == 1
    assert "5px solid" in own and markup.count("5px solid") == 1 and markup.count("5px dotted") == 3
    assert markup.count("mask 0, read only") == 3
    assert [("mask 1" in line) for line in plain.splitlines()[1:5]] == [False, True, False, False]


def test_the_question_that_tells_most_has_every_budget_in_order():
    """Spending rises at both steps on questions 1 and 2 of the first seed; 2 is the harder. Question 5 is as dear
    under every budget, 4 cheaper in the middle, 3 rises once."""
    low, high = (
        [["", NANO, NANO, "", LARGE, LARGE], [""] * 6],
        [["", LARGE, LARGE, MINI, LARGE, LARGE], [LARGE] * 6],
    )
    results = make_study(
        {
            "low": (low, [[0] * 6] * 2),
            "medium": CALLS_AND_SCORES["medium"],
            "high": (high, [[0] * 6] * 2),
        }
    )
    frame = results.episodes
    frame.loc[(frame["item"] == 5) & (frame["condition"] == "medium"), "cost_usd"] = CALL_PRICES[
        LARGE
    ]
    told = routing.choose_question(frame.sample(frac=1, random_state=1))
    assert told["condition"].tolist() == list(call_protocol.BUDGET_WORDS) and set(told["item"]) == {
        2
    }
    assert (
        told["chosen"].tolist() == [NANO, MINI, LARGE]
        and set(told["seed"]) == {0}
        and set(told["temperature"]) == {0.0}
    )


ROOT = Path(__file__).resolve().parents[3]
LESSON = "05_budgeted_routing"


def read_committed_metrics(lesson: str) -> dict:
    return json.loads((ROOT / "reports/metrics" / f"{lesson}.json").read_text(encoding="utf-8"))


def test_the_episode_that_the_lesson_writes_by_hand_is_in_the_format_of_the_protocol():
    notebook = json.loads((ROOT / "notebooks" / f"{LESSON}.ipynb").read_text(encoding="utf-8"))
    method = next(cell for cell in notebook["cells"] if "## The method" in "".join(cell["source"]))
    reasoning = call_protocol.format_reasoning("low")
    opening, closing = call_protocol.RESPONSE_TAGS
    question = "What is the home of the friend of Ana ?"
    lines = [
        f"{message['role'] + ':':11} {message['content']}"
        for message in call_protocol.make_messages("soft", "low", question)
    ]
    lines.append(f"controller: {reasoning} {call_protocol.format_call('lab-facts')}")
    lines.append(f"expert:     {opening} Loro {closing}")
    lines.append(f"controller: {reasoning} <answer> it </answer>")
    assert "\n".join(lines) in "".join(method["source"])


def test_every_label_of_both_runs_belongs_to_a_committed_metric_and_to_no_other():
    labels = routing.BOTH_RUNS_LABELS
    assert set(labels) <= set(read_committed_metrics(LESSON))
    assert len(set(labels.values())) == len(labels)


def test_main_estimates_are_named_in_words_and_the_others_left_out():
    comparison = pd.DataFrame(
        {"estimate": ["corl.low.gain", "corl.low.calls"], "this run": ["+0.1", "+0.2"]}
    )
    named = routing.name_main_estimates(comparison)
    assert named["estimate"].tolist() == ["reward minus start, low budget"]
    assert named["this run"].tolist() == ["+0.1"]


def test_estimates_of_written_queries_are_named_in_words():
    metrics = read_committed_metrics("05a_budgeted_routing_details")
    keys = [
        key.removesuffix("_ci_low")
        for key in metrics
        if key.startswith("splitting.") and key.endswith("_ci_low")
    ]
    named = routing_details.name_splitting_estimates(pd.DataFrame({"estimate": keys}))["estimate"]
    assert len(named) == 15 and named.is_unique  # five for each of three budgets
    assert "medium budget: minus start" in set(named)


def test_the_sentence_on_numeric_budgets_has_both_ends_of_the_range():
    by_number = pd.DataFrame(
        {"spent, CoRL": [12.0, 20.0, 13.0], "spent, oracle": [0.1, 4.0, 40.0]},
        index=[1.0, 50.0, 900.0],
    )
    sentence = routing_details.summarize_numeric_spending(by_number)
    assert "from $1 to $900" in sentence
    assert "CoRL spends goes from $12.0 to $13.0" in sentence
    assert "the oracle spends from $0.1 to $40.0" in sentence


def test_pairs_of_budgets_are_named_in_words():
    index = pd.MultiIndex.from_tuples(
        [("medium_low", "cost_usd"), ("high_medium", "calls")], names=["budgets", "quantity"]
    )
    table = routing_details.arrange_synthetic_budget_response(
        pd.DataFrame({"value": [1, 2]}, index=index)
    )
    assert list(table.index) == [("medium minus low", "cost"), ("high minus medium", "calls")]


def test_the_title_of_trainings_under_one_budget_has_their_last_points_as_means_over_seeds():
    rows = []
    for budget, shares in (("low", (0.2, 0.4)), ("high", (0.7, 0.8))):
        for seed, share in enumerate(shares):
            method = f"CoRL, {budget} budget only"
            rows.append((method, seed, 1, "correct answers", 0.99))
            rows.append((method, seed, 2, "correct answers", share))
            rows.append((method, seed, 2, "calls per question", 2 * share))
    curves = pd.DataFrame(rows, columns=["method", "seed", "update", "measured", "mean"])
    title = routing_details.summarize_fixed_budgets(curves, "update", "calls per question")
    assert "30% (low) and 75% (high) correct answers" in title
    assert "0.60 (low) and 1.50 (high) calls per question" in title
