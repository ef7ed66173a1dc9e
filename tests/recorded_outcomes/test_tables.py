"""Tables of outcomes: the shipped ones hold what their provenance says, anybody's are read or refused by name."""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lib import config
from lib.recorded_outcomes import tables
from lib.recorded_outcomes.tables import TableError
from tests.recorded_outcomes.small import long, made

PRICES = config.load("smoke").recorded.prices


def refused(rows: pd.DataFrame, *parts: str) -> None:
    with pytest.raises(TableError) as error:
        tables.table_from_rows(rows, "mine")
    for part in parts:
        assert part in str(error.value), str(error.value)


# Shipped ------------------------------------------------------------------------------------------


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


# Anybody's ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_in_long_form_comes_back_as_it_was(tmp_path, suffix):
    table, path = made(30), tmp_path / f"mine{suffix}"
    rows = long(table).sample(frac=1, random_state=0)
    rows.to_csv(path, index=False) if suffix == ".csv" else rows.to_parquet(path)
    again = tables.read_table(path)
    at = [again.models.index(name) for name in table.models]
    assert again.items.tolist() == table.items.tolist() and np.allclose(
        again.correct[:, at], table.correct
    )
    assert (
        np.allclose(again.cost_usd[:, at], table.cost_usd)
        and np.allclose(again.features, table.features)
        and again.cost_measures_work
    )


def test_prompts_become_numbers_without_a_look_at_outcomes():
    table = made(40)
    rows = long(table, numbers=False)
    rows["prompt"] = [
        ("prove" if x > 0 else "add") + f" {i}"
        for i, x in enumerate(table.features[:, 0])
        for _ in range(3)
    ]
    one, other = (
        tables.table_from_rows(rows, "a"),
        tables.table_from_rows(rows.assign(correct=1 - rows["correct"]), "a"),
    )
    assert (
        (one.features == other.features).all()
        and one.features.shape[0] == 40
        and np.isfinite(one.features).all()
    )


ROWS = long(made(12))


def test_costs_may_be_called_dollars():
    named = tables.table_from_rows(ROWS.rename(columns={"cost_usd": "dollars"}), "mine")
    assert np.array_equal(named.cost_usd, tables.table_from_rows(ROWS, "mine").cost_usd)


@pytest.mark.parametrize(
    "rows, parts",
    [
        (
            ROWS.drop(columns="cost_usd"),
            ["no column cost_usd", "item, group, model, correct, cost_usd"],
        ),
        (ROWS.assign(cost_usd=-1.0), ["0 or more", "-1", "item 'i0000'"]),
        (ROWS.assign(correct=np.nan), ["correct of row 1", "36 rows"]),
        (ROWS.assign(cost_usd=np.inf), ["cost_usd of row 1"]),
        (ROWS.assign(correct=2.0), ["0 to 1"]),
        (ROWS[ROWS["model"] == "dear"], ["one model, 'dear'", "two"]),
        (ROWS.iloc[1:], ["1 of 36 outcomes", "'cheap'"]),
        (pd.concat([ROWS, ROWS.iloc[:1]]), ["stands there twice", "'i0000'"]),
        (ROWS.assign(group=[f"g{i}" for i in range(36)]), ["groups leak", "11 more"]),
        (ROWS.assign(prompt="the same"), ["groups leak", "prompt"]),
        (ROWS.assign(e0=np.nan), ["finite"]),
        (ROWS.iloc[:0], ["no rows"]),
        (ROWS.assign(item=None), ["item is missing"]),
    ],
)
def test_a_table_that_cannot_be_used_is_refused_with_its_reason(rows, parts):
    refused(rows, *parts)


def test_a_missing_file_and_a_file_of_another_kind_are_named(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no table")
    for name in ("nowhere.csv", "a.parquet"):
        with pytest.raises(TableError, match=re.escape(str(tmp_path / name))):
            tables.read_table(tmp_path / name)


@given(
    content=st.binary(max_size=200)
    | st.text('item,groupmdelcsa01.\n"-', max_size=200).map(str.encode)
)
@example(content=b"item,group,model,correct,dollars\na,b,c,1,1\n")
@example(content=b"item,group,model,correct,dollars\na,b,c,1,1\na,b,d,1,1\n")
@example(content=b'"')
@settings(max_examples=150, deadline=None)
def test_any_file_gives_a_table_or_a_refusal(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "t.csv"
    path.write_bytes(content)
    try:
        table = tables.read_table(path)
    except TableError as error:
        assert str(path) in str(error) and len(str(error)) < 900
        return
    assert (
        np.isfinite(table.correct).all()
        and table.correct.shape == table.cost_usd.shape
        and len(table.models) > 1
    )
