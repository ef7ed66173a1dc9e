"""The shipped tables of outcomes hold what their provenance says."""

import re

import numpy as np
import pandas as pd
import pytest

from lib import config
from lib.recorded_outcomes import tables

PRICES = config.load("smoke").recorded.prices


@pytest.mark.parametrize("name", tables.SHIPPED)
def test_a_shipped_table_is_whole(name):
    table = tables.SHIPPED[name](PRICES)
    n, m = table.correct.shape
    assert (
        len(set(table.items.tolist())) == n == len(table.groups) and len(set(table.models)) == m > 1
    )
    assert np.isfinite(table.correct).all() and ((table.correct >= 0) & (table.correct <= 1)).all()
    assert (
        np.isfinite(table.cost_usd).all()
        and (table.cost_usd > 0).all()
        and np.isfinite(table.features).all()
    )


@pytest.mark.parametrize(
    "name, items, best, correct",
    [  # from the headroom that was measured on the source's own tables
        ("swe-bench", 500, "OpenHands / claude-opus-4-8", 0.838),
        ("swt-bench", 433, "OpenHands / claude-opus-4-8", 0.843),
        ("gaia", 165, "OpenHands / GPT-5.5", 0.861),
        ("swe-multimodal", 68, "OpenHands / claude-opus-4-8", 0.500),
        ("commit0", 16, "OpenHands / claude-opus-4-8", 0.625),
        ("gsm8k", 1307, "gpt-4-1106-preview", 0.8898),
        ("routerarena", 809, "gemini-2.0-flash-001", 0.690),
    ],
)
def test_the_best_constant_is_who_the_source_says(name, items, best, correct):
    table = tables.SHIPPED[name](PRICES)
    top = table.correct.mean(0).argmax()
    assert (len(table), table.models[top]) == (items, best) and table.correct[
        :, top
    ].mean() == pytest.approx(correct, abs=6e-4)


def test_what_is_doubted_is_left_out_and_comes_back_when_asked_for():
    measured, rebuilt, every = (
        tables.load_agents("swe-bench", variant) for variant in tables.VARIANTS
    )
    assert set(measured.models) < set(rebuilt.models) < set(every.models)
    assert "OpenHands / claude-fable-5" in set(every.models) - set(rebuilt.models)
    assert not any(
        name.startswith(("Gemini CLI /", "Codex /")) for name in every.models
    )  # whose dollars are none


def test_stems_of_the_private_hold_out_are_not_shipped_and_no_prompt_is():
    for path in tables.OUTCOMES_FOLDER.glob("*.parquet"):
        rows = pd.read_parquet(path)
        words = rows.select_dtypes(exclude="number").astype(str)
        assert "mmlu_holdout_stem" not in rows and all(
            words[name].str.len().max() < 200 for name in words
        )
    assert (
        pd.read_parquet(tables.OUTCOMES_FOLDER / "llmrouter.parquet")["item"].nunique() == 5_971
    )  # 5,989 less 18


def test_the_shipped_files_are_small():
    sizes = [path.stat().st_size for path in tables.OUTCOMES_FOLDER.iterdir()]
    assert max(sizes) <= 1.5e6 and sum(sizes) <= 4e6


def test_listed_prices_are_those_of_the_list_and_lengths_those_assumed():
    table = tables.load_llmrouter(PRICES)
    longer = tables.load_llmrouter(
        PRICES.model_copy(update={"reply_tokens": PRICES.reply_tokens + 1_000})
    )
    listed = pd.read_csv(tables.OUTCOMES_FOLDER / "prices.csv").set_index("model")[
        "usd_per_million_out"
    ]
    assert np.allclose((longer.cost_usd - table.cost_usd)[0] * 1e3, listed[list(table.models)])


def test_a_meteor_score_below_zero_is_shipped_as_published_and_read_as_zero():
    rows = pd.read_parquet(tables.OUTCOMES_FOLDER / "routerarena.parquet")
    published = rows[rows["score"] < 0]
    assert published["metric"].tolist() == ["meteor_score"]
    table = tables.load_routerarena()
    item = table.items.tolist().index(published["item"].iloc[0])
    model = table.models.index(published["model"].iloc[0])
    assert table.correct[item, model] == 0
    others = pd.Series([-0.2, -0.2, 0.4])
    metrics = pd.Series(["exact_match", "meteor_score", "meteor_score"])
    assert tables.clip_meteor_scores(others, metrics).tolist() == [-0.2, 0.0, 0.4]


def test_one_model_of_routerarena_is_cheaper_and_more_accurate():
    table = tables.load_routerarena()
    best = int(table.correct.mean(0).argmax())
    assert table.cost_usd.mean(0).argmin() == best
    assert table.cost_usd.mean(0)[best] == pytest.approx(4.7e-5, rel=0.02)
    is_better_elsewhere = table.correct.max(1) > table.correct[:, best]
    assert 0.06 < is_better_elsewhere.mean() < 0.12


def test_assumed_prices_grow_with_size_by_the_exponent():
    flat, steep = (
        tables.load_zeroeval("gsm", PRICES.model_copy(update={"exponent": e})) for e in (1.0, 2.0)
    )
    grown = (steep.cost_usd / flat.cost_usd)[0]
    sizes = [float(re.search(r"-(\d+(?:\.\d+)?)[Bb]", name)[1]) for name in flat.models]
    assert np.allclose(grown, sizes)


def test_a_thinned_table_keeps_every_group_in_its_share():
    table = tables.load_agents("swe-bench")
    thin = tables.subsample(table, 150)
    before, after = (pd.Series(each.groups).value_counts() for each in (table, thin))
    assert 130 <= len(thin) <= 170 and set(after.index) == set(before.index)
    assert abs(after["django"] / len(thin) - before["django"] / len(table)) < 0.03
    assert tables.subsample(table, 500) is table


def test_a_shipped_table_is_loaded_with_about_as_many_items_as_asked_for():
    whole = tables.SHIPPED["mmlu"](PRICES)
    assert len(tables.load_shipped("mmlu", PRICES, len(whole))) == len(whole)
    assert len(tables.load_shipped("mmlu", PRICES, 600)) < len(whole) / 2
