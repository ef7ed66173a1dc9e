"""Episodes shown part by part: who wrote what, and a question on which something can be seen."""

import json

import pandas as pd

from lib.reports.lesson_figures import routing
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
