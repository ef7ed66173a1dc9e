"""What the appendix of lesson 05 trains: a question in two queries, one fixed budget, means of samples."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from lib import config
from lib.budgeted_routing import appendix_estimates, appendix_run, jobs, variants
from lib.budgeted_routing.appendix_run import RECORDED_STUDIES, STUDIES
from lib.budgeted_routing.budget_episodes import (
    count_written_queries,
    make_episode_rows,
    roll_out_episodes,
)
from lib.budgeted_routing.expert_outcomes import derive_budgets
from lib.budgeted_routing.variants import (
    FIXED_BUDGET_VARIANTS,
    MEAN_OF_SAMPLES,
    QUESTION_PASSED_ON,
    VARIANTS_BY_NAME,
    Budgets,
    RoutingVariant,
)
from lib.budgeted_routing.worlds import COMPLEMENTARY, SPLITTING, select_world
from lib.experiment import results_table
from lib.language_models import checkpoints
from lib.rl import call_protocol, sft_warmup
from tests.budgeted_routing import small_systems

PARAMS = config.load("laptop")
SPLITTING_PARAMS = select_world(PARAMS, SPLITTING)
BUDGETS = Budgets({"low": 1.0, "medium": 2.0, "high": 9.0}, {"lab-nano": 1.0}, None)


def list_calls(text: str) -> list[tuple[str, str]]:
    """Query and response of every call in the text of a trace."""
    calls = []
    for part in text.split("<t> ")[1:]:
        query, rest = part.split(" </t>", 1)
        calls.append((query, rest.split("<response> ")[1].split(" </response>")[0]))
    return calls


# Queries that are written --------------------------------------------------------------------------


def test_the_two_queries_of_a_split_trace_are_the_question_in_two_parts():
    from lib.language_models.tokenizer import decode

    rng = np.random.default_rng(0)
    num_first = set()
    for item in small_systems.draw_chains(200, difficulty=(5, 6, 7, 8), split="train"):
        trace = sft_warmup.make_split_trace(item, "soft", "low", ("lab-mini", "lab-large"), rng)
        (first, subtotal), (second, total) = list_calls(decode(trace.ids))
        first_part = first.removesuffix(" = ?").split()
        rest = item.prompt.removesuffix(" = ?").split()[len(first_part) :]
        assert item.prompt.startswith(" ".join(first_part))
        assert second == f"{' '.join([subtotal, *rest])} = ?"
        assert total == sft_warmup.evaluate_chain([subtotal, *rest])
        if subtotal == sft_warmup.evaluate_chain(first_part):
            assert total == item.reference
        num_first.add(len(first_part) // 2)
    assert num_first == set(range(1, 8))  # cut anywhere


def test_a_share_of_the_traces_is_split_and_without_a_share_none_is():
    from lib.language_models.tokenizer import decode

    items = small_systems.draw_chains(400, difficulty=(1, 4, 8), split="train")
    arguments = (items, ("lab-mini",), 4, (1, 999), 0)
    split = [decode(trace.ids) for trace in sft_warmup.make_traces(*arguments, split_share=0.5)]
    plain = [decode(trace.ids) for trace in sft_warmup.make_traces(*arguments)]
    assert not any(" = ? </t>" in text for text in plain)
    # A third of the items are chains of one operation, which cannot be split.
    assert np.mean([" = ? </t>" in text for text in split]) == pytest.approx(1 / 3, abs=0.08)


def test_an_expert_reads_the_question_whatever_the_query_where_it_is_passed_on():
    (item,) = small_systems.draw_chains(1, difficulty=4)
    for passes_question, expected in ((False, "1 + 1 = ?"), (True, item.prompt)):
        controller = small_systems.ScriptedController(
            small_systems.write_call("lab-nano"), small_systems.write_answer("it")
        )
        experts = small_systems.ScriptedExperts(small_systems.answer_chain)
        (task, *_) = variants.make_test_tasks(
            "soft", [item], BUDGETS, PARAMS.routing, passes_question
        )
        (episode,) = roll_out_episodes(controller, experts, [task], 4, 0)
        assert [query.text for query in experts.queries] == [expected]
        assert episode.correct == (item.reference == "2" if not passes_question else True)
        assert count_written_queries(episode) == 1


def test_the_user_s_question_is_no_query_of_the_controller_s_own():
    controller = small_systems.ScriptedController(
        small_systems.write_call("lab-nano", call_protocol.USER_QUESTION),
        small_systems.write_call("lab-nano", "2 + 2 = ?"),
        small_systems.write_answer("it"),
    )
    task = small_systems.make_budget_task(small_systems.draw_chains(1)[0])
    episodes = roll_out_episodes(controller, small_systems.ScriptedExperts(), [task], 4, 0)
    assert make_episode_rows(episodes)[["calls", "written_queries"]].iloc[0].tolist() == [2, 1]


def test_a_variant_comes_back_from_a_job_and_its_default_leaves_no_trace_in_the_key():
    assert VARIANTS_BY_NAME["corl"].to_job_settings() == {"name": "corl", "style": "soft"}
    again = RoutingVariant.from_job_settings(QUESTION_PASSED_ON.to_job_settings())
    assert again.passes_question and again.name == QUESTION_PASSED_ON.name


def test_medium_affords_two_calls_to_the_cheap_expert_and_none_to_the_other():
    calls = SPLITTING_PARAMS.routing.calls_by_budget
    prices = {"lab-mini": 0.5, "lab-large": 7.0}
    usd_by_word = derive_budgets(prices, SPLITTING_PARAMS.routing, calls)
    assert (usd_by_word["low"], usd_by_word["medium"]) == (0.5, 1.0)


@pytest.mark.usefixtures("lab_model_files")
def test_jobs_of_other_worlds_know_nothing_of_splits():
    models = Path(checkpoints.MODELS)
    for study in RECORDED_STUDIES:
        params = appendix_run.select_study(PARAMS, study)
        first_jobs = jobs.make_first_jobs(params, models)
        is_splitting = study.world == SPLITTING
        assert ("split_share" in first_jobs[1].settings) == is_splitting
        for job in jobs.make_jobs(params, study.compared, first_jobs):
            assert ("calls_by_budget" in job.settings) == is_splitting


# One fixed budget, and samples ---------------------------------------------------------------------


def test_with_one_fixed_budget_the_prompt_reads_the_same_and_only_the_reward_differs():
    items = small_systems.draw_chains(3)
    prompts, budgets = set(), []
    for variant in FIXED_BUDGET_VARIANTS:
        drawn = variants.draw_training_tasks(variant, items, BUDGETS, PARAMS.routing, 6, 1, seed=0)
        tested = variants.make_test_tasks(variant.style, items, BUDGETS, PARAMS.routing)
        assert len(tested) == len(items)
        labels = {task.budget_label for task in (*drawn, *tested)}
        assert labels == {call_protocol.FIXED_BUDGETS[variant.style]}
        prompts |= {
            call_protocol.write_instruction(task.style, task.budget_label) for task in drawn
        }
        budgets.append(drawn[0].budget)
    assert len(prompts) == 1
    assert budgets == [1.0, 2.0, 9.0]


def test_a_mean_of_samples_has_a_test_per_sample_at_the_temperature_of_training():
    routing = PARAMS.routing
    tests = jobs.plan_tests(routing, [MEAN_OF_SAMPLES])
    assert [test["sample"] for test in tests] == list(range(routing.test_samples))
    assert {test["temperature"] for test in tests} == {routing.temperature}


@pytest.mark.usefixtures("lab_model_files")
def test_a_reader_s_run_trains_no_samples_and_the_full_run_does():
    assert MEAN_OF_SAMPLES not in [variant for study in STUDIES for variant in study.compared]
    labels = [job.label for job in appendix_run.list_jobs(config.load("full"))]
    assert len(labels) == len(set(labels))
    for variant in (MEAN_OF_SAMPLES, QUESTION_PASSED_ON, *FIXED_BUDGET_VARIANTS):
        assert any(f"/{variant.name}/seed-0" in label for label in labels)


# Estimates -----------------------------------------------------------------------------------------


def make_rows(method: str, rewards, role: str = "paper", **columns) -> pd.DataFrame:
    """Test rows of one method under the three budgets: its reward on each of four questions."""
    tables = []
    for budget, reward in zip(call_protocol.BUDGET_WORDS, rewards, strict=True):
        row = {
            "method": method,
            "role": role,
            "seed": 0,
            "split": "test",
            "style": "soft",
            "temperature": 0.0,
            "condition": budget,
            "reward": reward,
            "correct": reward,
            "written_queries": 0,
            "world": SPLITTING,
        }
        tables.append(pd.DataFrame([row | columns] * 4).assign(item=list("abcd")))
    return pd.concat(tables, ignore_index=True)


def test_phrasing_is_the_reward_beyond_that_of_the_question_passed_on():
    rows = pd.concat(
        [
            make_rows("CoRL", (0.5, 0.9, 1.0), written_queries=1),
            make_rows(QUESTION_PASSED_ON.label, (0.5, 0.5, 1.0)),
            make_rows("start", (0.25, 0.5, 0.5), "start"),
            make_rows("logistic", (0.5, 0.5, 1.0), "router"),
            make_rows("oracle", (0.5, 0.5, 1.0), "oracle"),
        ]
    )
    estimates = appendix_estimates.collect_estimates(
        results_table.make_results("corl", rows), PARAMS.routing
    )
    assert estimates["splitting.medium.phrasing"]["value"] == pytest.approx(0.4)
    assert estimates["splitting.medium.minus_one_call"]["value"] == pytest.approx(0.4)
    assert estimates["splitting.low.gain"]["value"] == pytest.approx(0.25)
    assert estimates["splitting.low.written"]["value"] == 1.0
    assert not any(key.startswith("samples") for key in estimates)


def test_samples_of_an_answer_are_averaged_before_they_are_compared():
    place = {"world": COMPLEMENTARY}
    sampled = [
        make_rows(MEAN_OF_SAMPLES.label, (reward,) * 3, sample=sample, temperature=1.0, **place)
        for sample, reward in enumerate((0.0, 1.0, 1.0, 0.0))
    ]
    rows = pd.concat(
        [
            *sampled,
            make_rows("best constant", (0.25,) * 3, "constant", sample=0, **place),
            make_rows("logistic", (0.75,) * 3, "router", sample=0, **place),
        ]
    )
    rows = results_table.make_results("corl", rows)
    estimates = appendix_estimates.estimate_samples(rows)
    assert estimates["samples.corl.low.reward"]["value"] == pytest.approx(0.5)
    assert estimates["samples.corl.high.minus_best_constant"]["value"] == pytest.approx(0.25)
    assert estimates["samples.corl.high.minus_logistic"]["value"] == pytest.approx(-0.25)


def test_the_trace_of_a_training_with_one_budget_averages_updates():
    table = make_rows(FIXED_BUDGET_VARIANTS[0].label, (0.0, 0.5, 1.0))
    rows = table.assign(
        split="train",
        step=np.arange(len(table)),
        calls=2,
        within=1.0,
        cost_usd=1e-6,
        style="fixed-low",
    )
    traced = appendix_estimates.trace_fixed_budgets(rows, num_bins=2)
    assert traced["update"].unique().tolist() == [6, 12]
    correct = traced[traced["measured"] == "correct answers"]["mean"].tolist()
    assert correct == pytest.approx([(0.0 * 4 + 0.5 * 2) / 6, (0.5 * 2 + 1.0 * 4) / 6])
    price = traced[traced["measured"] == "$ per million questions"]["mean"]
    assert price.tolist() == pytest.approx([1.0, 1.0])
