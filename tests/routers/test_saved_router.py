"""A router that is kept: its folder gives the same router, budgets are kept on average, broken folders are named."""

import json
import math
import pickle

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from lib.experiment.seeds import rng
from lib.recorded_outcomes.build import load_sentence_encoder
from lib.recorded_outcomes.tables import TableError
from lib.recorded_outcomes.user_tables import make_outcome_table
from lib.routers.fit_router import fit_router, measure_average_quality
from lib.routers.prompt_encoder import (
    PromptEncoderError,
    TfidfEncoder,
    choose_dtype,
    find_minilm,
    fit_encoder,
    split_words,
)
from lib.routers.saved_router import ARRAYS_FILE, SETTINGS_FILE, RouterError, load_router
from lib.routers.success_model import METHODS, fit_success_model
from tests.recorded_outcomes.small import long, made

CHEAP, MIDDLE, EXPENSIVE = 1.0, 2.0, 20.0  # mean cost of `made`


def make_table(num_items=300):
    """`made`, whose feature stands in the prompt: prove or add."""
    table = made(num_items)
    words = np.where(table.features[:, 0] > 0, "prove the lemma", "add the numbers")
    prompts = [f"{word} of sheet {index}" for index, word in enumerate(words)]
    rows = long(table, numbers=False).assign(prompt=np.repeat(prompts, 3))
    return make_outcome_table(rows, "made")


TABLE = make_table()


@pytest.fixture(scope="module")
def router():
    return fit_router(TABLE, "logistic", budget_usd=3.0)


def test_words_are_weighted_as_scikit_learn_weights_them():
    encoder = TfidfEncoder.fit(TABLE.prompts)
    vectorizer = TfidfVectorizer(
        token_pattern=r"[#\w]+|[^\w\s]", ngram_range=(1, 2), sublinear_tf=True
    )
    as_words = [" ".join(split_words(prompt)) for prompt in TABLE.prompts]
    matrix = vectorizer.fit_transform(as_words)
    order = [vectorizer.vocabulary_[word] for word in encoder.words]
    expected = matrix[:, order] @ encoder.components.T
    np.testing.assert_allclose(encoder.encode(TABLE.prompts)[:, :-4], expected, atol=1e-12)


def test_an_unknown_word_or_an_empty_prompt_still_gives_a_vector():
    encoder = TfidfEncoder.fit(TABLE.prompts)
    vectors = encoder.encode(["", "zyx", "1234 " * 100_000])
    assert np.isfinite(vectors).all() and len(vectors) == 3


def test_choosing_gains_where_the_prompt_tells_who_is_right(router):
    gain = router.report["gain_over"]["best constant"]
    assert 0.3 < gain["ci_low"] <= gain["value"] < 0.5  # .95 against .5 for 3 dollars
    assert router.report["sentence"].startswith("Choosing gains ")
    assert router.route("prove the lemma of sheet 777").model == "cheap"
    assert router.route("add the numbers of sheet 777").model == "middle"


def test_choosing_does_not_pay_where_nothing_can_be_known():
    coins = long(made(300, dice=True), numbers=False)
    rows = coins.assign(prompt=np.repeat(list(TABLE.prompts), 3))
    report = fit_router(make_outcome_table(rows, "coins"), "logistic", budget_usd=3.0).report
    assert report["sentence"].startswith("Choosing does not pay here")


def test_the_average_quality_over_all_budgets_is_above_that_of_mixtures_where_choosing_pays():
    quality = measure_average_quality(TABLE, "logistic", draws=50)
    assert quality.gain.ci_low > 0.05 and quality.router > quality.mixtures
    assert quality.gain.value == pytest.approx(quality.router - quality.mixtures)
    constant = measure_average_quality(TABLE, "constant", draws=50)
    assert constant.gain.value == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("method", METHODS)
def test_a_router_comes_back_from_its_folder(tmp_path, method):
    router = fit_router(TABLE, method, budget_usd=5.0)
    again = load_router(router.save(tmp_path / "ROUTER"))
    for prompt in (*TABLE.prompts[:20], "", "prove 1 + 1"):
        for budget in (None, 0.5, 1.5, 4.0, 100.0):
            assert again.route(prompt, budget) == router.route(prompt, budget)
    assert again.report == json.loads(json.dumps(router.report))


def test_a_mixture_keeps_its_budget_and_its_propensities_are_true(router):
    budget = 10.0  # between the router's cheapest points and the expensive model
    draws = rng("test", "router", "draws").random(1_500)
    prompts = rng("test", "router", "prompts").integers(len(TABLE), size=len(draws))
    routes = [
        router.route(TABLE.prompts[prompt], budget, draw=draw)
        for prompt, draw in zip(prompts, draws, strict=True)
    ]
    spent = np.mean([route.expected_cost_usd for route in routes])
    assert spent <= 1.1 * budget
    # Importance weights of choices that were drawn with their propensity have the mean 1.
    for model in router.models:
        weights = [
            (route.model == model) / route.probabilities[model] if route.probabilities[model] else 0
            for route in routes
        ]
        possible = np.mean([route.probabilities[model] > 0 for route in routes])
        assert np.mean(weights) == pytest.approx(possible, abs=0.2)


def test_exploring_asks_every_model(router):
    explored = router.route("prove the lemma", explore=0.3)
    assert min(explored.probabilities.values()) == pytest.approx(0.1)
    assert explored.ranking[0] == explored.model and sorted(explored.ranking) == sorted(
        router.models
    )


def test_minilm_reads_new_prompts_where_its_package_is_installed(tmp_path):
    try:
        find_minilm()
    except PromptEncoderError as error:
        pytest.skip(str(error))
    router = fit_router(TABLE, "logistic", budget_usd=3.0, encoder="minilm", num_folds=3)
    again = load_router(router.save(tmp_path / "ROUTER"))
    for prompt in ("prove the lemma of sheet 777", "add the numbers of sheet 777", ""):
        assert again.route(prompt) == router.route(prompt)
    # What cheap is right on, without a word of the prompts that were learned from.
    easy, hard = (again.route(f"{verb} of a sheet").success["cheap"] for verb in ("proof", "sum"))
    assert easy > hard


def test_minilm_in_the_processors_precision_hardly_changes_embeddings():
    try:
        folder = str(find_minilm())
    except PromptEncoderError as error:
        pytest.skip(str(error))
    prompts = [*TABLE.prompts[:20], "", "A train leaves at 9:40 and drives 120 km. " * 8]
    exact = load_sentence_encoder(folder, "float32").embed(prompts)
    chosen = load_sentence_encoder(folder, choose_dtype()).embed(prompts)
    assert (exact * chosen).sum(axis=1).min() > 1 - 1e-3


@pytest.mark.parametrize("has_bfloat16, dtype", [(True, "bfloat16"), (False, "float32")])
def test_the_encoder_takes_the_precision_that_is_fast_here(monkeypatch, has_bfloat16, dtype):
    monkeypatch.setattr("torch.cpu._is_avx512_bf16_supported", lambda: has_bfloat16)
    assert choose_dtype() == dtype


@pytest.mark.parametrize("budget", [0, -1, math.nan, math.inf, "much"])
def test_a_budget_that_is_none_is_named(router, budget):
    with pytest.raises(RouterError, match="US dollars"):
        router.route("prove", budget)


def test_a_broken_folder_is_named_and_nothing_is_unpickled(tmp_path, router):
    with pytest.raises(RouterError, match="holds no router.json"):
        load_router(tmp_path)
    folder = router.save(tmp_path / "ROUTER")
    (folder / ARRAYS_FILE).write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(RouterError, match="not the file"):
        load_router(folder)
    for change, reason in (
        ({"format": 99}, "format 99"),
        ({"versions": {"encoder": 0, "success": 1}}, "version 0"),
        ({"points": [{"cost": 1}]}, "broken"),
    ):
        folder = router.save(tmp_path / "ROUTER")
        settings = json.loads((folder / SETTINGS_FILE).read_text())
        (folder / SETTINGS_FILE).write_text(json.dumps(settings | change))
        with pytest.raises(RouterError, match=reason):
            load_router(folder)


def test_a_logistic_model_of_averaged_samples_predicts_their_mean():
    features = np.repeat([[0.0], [1.0]], 400, axis=0)
    outcomes = np.column_stack([np.repeat([0.25, 0.75], 400), np.ones(800)])
    chances = fit_success_model("logistic", features, outcomes).predict(np.array([[0.0], [1.0]]))
    assert chances[:, 0] == pytest.approx([0.25, 0.75], abs=0.02) and (chances[:, 1] == 1).all()


def test_what_cannot_be_fitted_is_named():
    with pytest.raises(TableError, match="has no prompts"):
        fit_router(made(60), "logistic", 3.0)
    with pytest.raises(TableError, match="buys no model: the cheapest, cheap"):
        fit_router(TABLE, "logistic", 0.1)
    with pytest.raises(PromptEncoderError, match="there are tfidf, minilm"):
        fit_encoder("bert", TABLE.prompts)
