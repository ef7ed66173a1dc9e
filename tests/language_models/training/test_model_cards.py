"""Cards, prices, calibration and probes, on tiny untrained models and hand-made answers."""

import asyncio

import numpy as np
import pandas as pd
import pytest
import torch

from lib import config, stats, tasks
from lib.experiment import results_table
from lib.language_models import checkpoints
from lib.language_models.local_models import fill_in_lab_prices, open_local
from lib.language_models.training import agent_traces, build, linear_probes, model_cards
from lib.llm.chat_model import ChatRequest
from lib.llm.open_models import open_models

SETTINGS = config.load("smoke").lab
TINY = SETTINGS.models["lab-nano"]
EASY = TINY.target.model_copy(update={"accuracy": 0.0})  # two updates reach nothing


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """Two models of the smoke profile, trained for a moment and measured."""
    root = tmp_path_factory.mktemp("lab")
    models = {
        "lab-nano": TINY.model_copy(
            update={"items": 100, "steps": 2, "check_every": 2, "target": EASY}
        )
    }
    settings = SETTINGS.model_copy(update={"models": models, "test_items": 10, "jobs": 1})
    built = build.build_models(settings, root / "models", root / "runs")
    return (
        settings,
        built,
        model_cards.measure_models(settings, root / "models", root / "runs"),
        root,
    )


def answers(rows) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["group", "difficulty", "correct", "confidence"])
    return frame.assign(method="m", style="plain", correct=frame["correct"].astype(float))


def test_operations_are_those_of_the_matrix_products():
    model = checkpoints.fresh(TINY, 0)
    d, f, v, layers, n = TINY.hidden, TINY.intermediate, model.config.vocab_size, TINY.layers, 64
    attention = 2 * 2 * n * d  # scores and mixing, over a context of 64
    by_hand = 2 * (layers * (4 * d * d + 3 * d * f) + d * v) + layers * attention
    assert model_cards.compute_token_price(model, SETTINGS).flops == pytest.approx(
        by_hand, rel=0.01
    )


def test_the_exam_asks_test_items_of_every_family_and_nothing_twice():
    items = model_cards.draw_test_items(SETTINGS, "lab-orchestrator")
    assert {item.split for item in items} == {"test"}
    assert {item.group for item in items} == set(tasks.FAMILIES)
    others = {item.group for item in model_cards.draw_test_items(SETTINGS, "lab-nano")}
    assert others == set(tasks.FAMILIES) - {"situation"}  # which only its reader is asked
    assert len({item.prompt for item in items}) == len(items)


def test_calibration_by_hand():
    found = model_cards.measure_calibration(
        answers([("chain", 1, 1, 0.95)] * 3 + [("chain", 1, 0, 0.95), ("chain", 1, 0, 0.05)])
    )
    assert found["ece"] == pytest.approx(0.8 * 0.20 + 0.2 * 0.05)
    assert found["brier"] == pytest.approx((3 * 0.05**2 + 0.95**2 + 0.05**2) / 5)
    assert found["accuracy"] == pytest.approx(0.6)


def test_a_measured_model_has_a_card_that_agrees_with_its_answers(lab):
    _, _, measured, root = lab
    card = model_cards.read_card("lab-nano", root / "models")
    chains = measured.answers.query("group == 'chain' and style == 'plain' and difficulty == 2")
    (row,) = [
        r
        for r in card["accuracy"]
        if (r["category"], r["skin"], r["difficulty"]) == ("chain", "plain", 2)
    ]
    assert row["n"] == len(chains) and row["accuracy"] == pytest.approx(chains["correct"].mean())
    assert row["ci_low"] <= row["accuracy"] <= row["ci_high"]
    judged = [
        tasks.extract_answer(text) == answer
        for text, answer in zip(chains["reply"], chains["answer"], strict=True)
    ]
    assert judged == chains["correct"].astype(bool).tolist()


def test_answers_are_rows_of_the_record_and_have_exact_intervals(lab, tmp_path):
    settings, _, measured, _ = lab
    results_table.write_results("lab", measured.answers, tmp_path)
    kept = results_table.read_results("lab", tmp_path, split="test", temperature=0)
    assert (
        len(kept)
        == sum(len(model_cards.draw_test_items(settings, name)) for name in settings.models)
        == kept["item"].nunique()
    )
    assert ((kept["reward"] == 1) == (kept["correct"] == 1)).all() and (kept["cost_usd"] > 0).all()
    found = stats.mean(kept.assign(correct=0.0), "correct", "method")
    assert found["ci_high"].item() == pytest.approx(
        1 - 0.025 ** (1 / len(kept))
    )  # Clopper and Pearson, none of n


def test_heat_and_skills_are_recorded_item_by_item(lab):
    settings, _, _, root = lab
    model = checkpoints.load(root / "models/lab-nano")
    warm = model_cards.measure_by_temperature(
        {"lab-nano": model}, {"lab-nano": 2}, [0.0, 1.5], settings
    )
    assert (
        stats.mean(warm, "correct", ["method", "temperature"])["num_items"].tolist()
        == [settings.test_items] * 2
    )
    asked = model_cards.measure_first_turns(model, "lab-nano", settings)
    counts = stats.mean(asked, "correct", "group")["num_items"]
    assert counts.to_dict() == dict.fromkeys(agent_traces.FAMILIES, 5 * settings.test_items)


def test_what_is_measured_is_not_measured_again(lab, monkeypatch):
    settings, _, measured, root = lab
    monkeypatch.setattr(model_cards, "collect_answers", None)  # calling it would fail
    again = model_cards.measure_models(settings, root / "models", root / "runs")
    pd.testing.assert_frame_equal(again.answers, measured.answers)


def test_a_lab_model_replies_at_its_measured_price(lab, tmp_path):
    models = lab[3] / "models"
    llm = config.load("smoke").llm
    llm = llm.model_copy(update={"models": {"nano": llm.models["nano"]}})
    requests = [
        ChatRequest([{"role": "user", "content": f"{n} + 1 = ?"}], seed=n) for n in range(5)
    ]

    async def ask():
        async with open_models(
            fill_in_lab_prices(llm, models),
            ["nano"],
            "a test",
            tmp_path,
            tmp_path,
            open_local=open_local(models),
        ) as opened:
            return await opened["nano"].reply_to_all(requests)

    first, second = asyncio.run(ask()), asyncio.run(ask())
    price_per_token = model_cards.read_card("lab-nano", models)["dollars_per_1k_tokens"] / 1000
    for reply, repeated in zip(first, second, strict=True):
        if reply.failure is not None:  # an untrained model seldom stops by itself
            assert reply.failure.kind == "truncated"
            assert reply.tokens_out == llm.models["nano"].max_tokens
        assert reply.cost_usd == pytest.approx(
            (reply.tokens_in + reply.tokens_out) * price_per_token
        )
        assert reply.text and reply.text == repeated.text


def test_a_lab_model_that_is_not_there_is_named(lab):
    llm = config.load("smoke").llm
    with pytest.raises(checkpoints.ModelError, match="lab-agent|lab-large|lab-mini"):
        fill_in_lab_prices(llm, lab[3] / "models")


def test_probes_find_what_is_there_and_nothing_in_noise():
    rng = np.random.default_rng(0)
    labels = np.repeat(["a", "b", "c"], 100)
    known, new = (rng.normal(size=(300, 8)) + 4 * (labels[:, None] == "b") for _ in range(2))
    guessed = linear_probes.fit_and_classify(known, labels, new)
    assert ((guessed == "b") == (labels == "b")).mean() > 0.99
    assert (guessed[labels != "b"] == labels[labels != "b"]).mean() == pytest.approx(0.5, abs=0.12)


def test_states_are_those_of_transformers():
    model = checkpoints.fresh(TINY, 0).eval()
    items = tasks.draw_items("chain", "test", 3, difficulty=[1, 8])
    found = linear_probes.compute_prompt_states(model, items, max_batch_size=2)
    from lib.language_models.chat_template import encode_conversation
    from lib.language_models.training.training_data import write_question

    for i, item in enumerate(items):
        with torch.inference_mode():
            wanted = model(
                torch.tensor([encode_conversation(write_question(item))]), output_hidden_states=True
            ).hidden_states
        for layer, state in enumerate(wanted):
            np.testing.assert_allclose(found[layer, i], state[0, -1].numpy(), atol=1e-5)


def test_a_dearer_model_is_dearer_and_slower():
    small, large = (
        model_cards.compute_token_price(checkpoints.fresh(SETTINGS.models[n], 0), SETTINGS)
        for n in ("lab-nano", "lab-large")
    )
    assert (
        large.cost_usd > 5 * small.cost_usd
        and large.seconds > small.seconds > SETTINGS.seconds_per_token
    )


def test_a_missing_card_names_the_remedy(tmp_path):
    with pytest.raises(checkpoints.ModelError, match="make repro"):
        model_cards.read_card("lab-nano", tmp_path)


def test_the_category_is_probed_against_the_best_constant():
    found = linear_probes.measure_probes(
        checkpoints.fresh(TINY, 0).eval(), "lab-nano", ["chain", "story"], 40
    )
    category = stats.mean(
        results_table.make_results("probe", found).query("group == 'category'"), "correct", "layer"
    )
    assert category.index.tolist() == [0, 1, 2] and (category["num_items"] == 80).all()
    assert found.loc[found["group"] == "category", "constant"].mean() == 0.5
    assert category["value"].iloc[-1] > 0.9  # the words differ
