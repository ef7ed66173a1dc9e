"""Outcomes are read in the form in which RouterBench, RouteLLM, LLMRouter, RouterArena and lm-eval publish them."""

import json

import numpy as np
import pandas as pd
import pytest

from lib.recorded_outcomes.published_formats import PUBLISHED_FORMATS, recognize_format
from lib.recorded_outcomes.tables import CHARACTERS_PER_TOKEN, TableError
from lib.recorded_outcomes.token_prices import TokenPrices
from lib.recorded_outcomes.user_tables import read_outcome_table
from lib.routers.evaluate_command import main

NUM_ITEMS = 12
# Correctness of two models, (items, 2): the first is right on every second item, the second on all but three.
CORRECT = np.column_stack([np.arange(NUM_ITEMS) % 2, np.arange(NUM_ITEMS) > 2]).astype(int)
QUESTIONS = [f"What is {index} plus {index * index}?" for index in range(NUM_ITEMS)]
PRICES = TokenPrices(
    {"a/small": 1e-6, "b-large": 2e-6}, {"a/small": 3e-6, "b-large": 9e-6}, "a list", 100
)
MODELS = ("a/small", "b-large")


def write_json_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def check_outcomes(table, num_groups):
    assert table.models == MODELS
    assert len(table) == NUM_ITEMS and len(set(table.groups)) == num_groups
    order = [table.prompts.index(question) for question in QUESTIONS]
    np.testing.assert_array_equal(table.correct[order], CORRECT)
    return order


# RouterBench ---------------------------------------------------------------------------------------


def make_routerbench():
    """Columns as in routerbench_0shot: prompts are lists of one text, and an oracle stands beside the models."""
    rows = pd.DataFrame({"sample_id": [f"mbpp.dev.{index}" for index in range(NUM_ITEMS)]})
    rows["prompt"] = QUESTIONS
    rows["eval_name"] = [f"eval{index % 3}" for index in range(NUM_ITEMS)]
    for index, model in enumerate(MODELS):
        rows[model] = CORRECT[:, index].astype(float)
        rows[f"{model}|model_response"] = "a reply"
        rows[f"{model}|total_cost"] = 0.001 * (index + 1)
    return rows.assign(oracle_model_to_route_to=MODELS[0])


def test_the_wide_table_of_routerbench_is_read_with_its_costs(tmp_path):
    path = tmp_path / "routerbench_0shot.csv"
    make_routerbench().to_csv(path, index=False)
    table = read_outcome_table(path)
    check_outcomes(table, num_groups=3)
    assert table.cost_usd.mean(0) == pytest.approx([0.001, 0.002])
    assert table.notes[0] == "Read in the format of RouterBench."


def test_an_unscored_cell_of_routerbench_leaves_its_item_out(tmp_path):
    path = tmp_path / "routerbench_0shot.csv"
    rows = make_routerbench()
    rows.loc[4, MODELS[0]] = np.nan
    rows.to_csv(path, index=False)
    table = read_outcome_table(path)
    assert len(table) == NUM_ITEMS - 1 and "mbpp.dev.4" not in table.items
    assert any("1 of 24 calls failed" in note for note in table.notes)


def test_the_pickle_of_routerbench_is_refused_with_the_line_that_converts_it(tmp_path):
    path = tmp_path / "routerbench_0shot.pkl"
    make_routerbench().to_pickle(path)
    with pytest.raises(TableError, match="can run code") as error:
        read_outcome_table(path)
    assert "read_pickle('routerbench_0shot.pkl').to_csv('routerbench_0shot.csv'" in str(error.value)


# RouteLLM ------------------------------------------------------------------------------------------


def make_routellm(responses=True):
    rows = pd.DataFrame({"prompt": QUESTIONS} | dict(zip(MODELS, (CORRECT == 1).T, strict=True)))
    if responses:
        rows = rows.assign(**{f"{model}_response": "four" * 10 for model in MODELS})
    return rows


def test_responses_of_routellm_are_priced_by_their_length(tmp_path):
    path = tmp_path / "gsm8k_responses.csv"
    make_routellm().to_csv(path, index=False)
    table = read_outcome_table(path, PRICES)
    order = check_outcomes(table, num_groups=NUM_ITEMS)
    prompt_tokens = np.array([len(question) for question in QUESTIONS]) / CHARACTERS_PER_TOKEN
    expected = prompt_tokens * 1e-6 + 40 / CHARACTERS_PER_TOKEN * 3e-6
    assert table.cost_usd[order, 0] == pytest.approx(expected)


def test_subjects_of_routellm_are_groups_and_unknown_lengths_are_assumed(tmp_path):
    rows = make_routellm(responses=False)
    for subject in range(3):
        rows.iloc[subject::3].to_csv(tmp_path / f"mmlu_subject_{subject}.csv", index=False)
    # Questions that stand there again, under another subject.
    rows.iloc[:2].to_csv(tmp_path / "mmlu_zoology.csv", index=False)
    table = read_outcome_table(tmp_path, PRICES)
    check_outcomes(table, num_groups=3)
    assert set(table.groups) == {"subject_0", "subject_1", "subject_2"}
    assert any("2 prompts stand there more than once" in note for note in table.notes)
    assert any("100 tokens were assumed" in note for note in table.notes)


def test_without_a_price_the_remedy_names_the_models(tmp_path):
    path = tmp_path / "gsm8k_responses.csv"
    make_routellm().to_csv(path, index=False)
    with pytest.raises(TableError, match="give --prices FILE.*for a/small, b-large"):
        read_outcome_table(path)


# LLMRouter -----------------------------------------------------------------------------------------


def make_llmrouter_rows(tokens=True):
    rows = []
    for index, question in enumerate(QUESTIONS):
        for model, correct in zip(MODELS, CORRECT[index], strict=True):
            row = {
                "task_name": f"task{index % 3}", "query": question, "ground_truth": "4", "metric": "em",
                "choices": None, "task_id": None, "model_name": model, "response": "4", "response_time": 1.7,
                "performance": float(correct), "embedding_id": index, "user_id": None, "fig_id": None,
            }  # fmt: skip
            if tokens:
                row |= {"token_num": 30, "input_tokens": 20, "output_tokens": 10}
            rows.append(row)
    return rows


def test_routing_data_of_llmrouter_is_read_from_both_splits(tmp_path):
    rows = make_llmrouter_rows()
    train = write_json_lines(tmp_path / "default_routing_train_data.jsonl", rows[:16])
    test = write_json_lines(tmp_path / "default_routing_test_data.jsonl", rows[16:])
    table = read_outcome_table([train, test], PRICES)
    check_outcomes(table, num_groups=3)
    assert table.cost_usd.mean(0) == pytest.approx([20e-6 + 30e-6, 40e-6 + 90e-6])


def test_the_prices_of_llmrouter_are_read_from_its_own_file(tmp_path, capsys):
    data = write_json_lines(tmp_path / "routing.jsonl", make_llmrouter_rows(tokens=False))
    prices = tmp_path / "default_llm.json"
    models = {model: {"size": "7B", "input_price": 1.0, "output_price": 3.0} for model in MODELS}
    prices.write_text(json.dumps(models))
    options = ["--profile", "smoke", "--prices", str(prices), "--out", str(tmp_path / "out")]
    assert main([str(data), *options]) == 0
    output = capsys.readouterr().out
    assert "Read in the format of LLMRouter" in output and "default_llm.json" in output


# RouterArena ---------------------------------------------------------------------------------------


def make_routerarena_rows(model_index, metric="mcq_accuracy"):
    rows = []
    for index, question in enumerate(QUESTIONS):
        result = {
            "extracted_answer": "A", "ground_truth": "A", "score": float(CORRECT[index, model_index]),
            "metric": metric, "inference_cost": 3e-05,
        }  # fmt: skip
        rows.append(
            {
                "global_index": f"Set_{index % 3}_{index}", "question": question, "llm_selected": MODELS[model_index],
                "generated_answer": "A", "token_usage": {"input_tokens": 9, "output_tokens": 1, "total_tokens": 10},
                "success": True, "provider": "x", "error": None, "evaluation_result": result, "run_number": 1,
            }
        )  # fmt: skip
    return rows


def test_cached_results_of_routerarena_are_read_with_data_sets_as_groups(tmp_path):
    for index in range(2):
        rows = make_routerarena_rows(index)
        if index == 1:  # not evaluated yet
            rows.append(
                rows[0]
                | {"global_index": "Set_0_99", "question": "another", "evaluation_result": None}
            )
        write_json_lines(tmp_path / f"model{index}.jsonl", rows)
    table = read_outcome_table(tmp_path)
    check_outcomes(table, num_groups=3)
    assert set(table.groups) == {"Set_0", "Set_1", "Set_2"}
    assert table.cost_usd.mean(0) == pytest.approx([3e-5, 3e-5])
    assert any("1 of 25 calls failed" in note for note in table.notes)


def test_a_meteor_score_below_zero_is_read_as_zero_and_any_other_is_refused(tmp_path):
    for metric in ("meteor_score", "mcq_accuracy"):
        rows = [*make_routerarena_rows(0, metric), *make_routerarena_rows(1)]
        rows[0]["evaluation_result"]["score"] = -0.033
        path = write_json_lines(tmp_path / f"{metric}.jsonl", rows)
        if metric == "meteor_score":
            table = read_outcome_table(path)
            check_outcomes(table, num_groups=3)
            assert any(
                "METEOR scores below 0 (1, down to -0.033) were read as 0" in note
                for note in table.notes
            )
        else:
            with pytest.raises(TableError, match="correct of line 1 is -0.033; write 0 to 1"):
                read_outcome_table(path)


# lm-evaluation-harness -----------------------------------------------------------------------------


def make_samples(model_index, task):
    """Lines as --log_samples writes them, with both filters of gsm8k; the strict one never finds an answer."""
    rows = []
    for index in range(task, NUM_ITEMS, 2):
        for name, score in (
            ("strict-match", 0.0),
            ("flexible-extract", float(CORRECT[index, model_index])),
        ):
            rows.append(
                {
                    "doc_id": index, "doc": {"question": QUESTIONS[index], "answer": "#### 4"}, "target": "4",
                    "arguments": {"gen_args_0": {"arg_0": f"<{model_index}> {QUESTIONS[index]}", "arg_1": {}}},
                    "resps": [["It is 4."]], "filtered_resps": ["4"], "filter": name, "metrics": ["exact_match"],
                    "doc_hash": "d", "prompt_hash": "p", "target_hash": "t", "exact_match": score,
                }
            )  # fmt: skip
    return rows


def write_lm_eval(folder):
    for model_index, name in enumerate(("a__small", "b-large")):
        for task in range(2):
            path = folder / name / f"samples_gsm{task}_2026-01-02T03-04-05.678901.jsonl"
            write_json_lines(path, make_samples(model_index, task))
    older = folder / "a__small" / "samples_gsm0_2025-01-02T03-04-05.678901.jsonl"
    write_json_lines(older, [row | {"exact_match": 0.0} for row in make_samples(0, 0)])


def test_sample_logs_of_lm_eval_are_read_from_a_folder_of_models(tmp_path):
    write_lm_eval(tmp_path)
    table = read_outcome_table(tmp_path, PRICES)
    order = check_outcomes(table, num_groups=NUM_ITEMS)
    prompt_tokens = (
        np.array([len(f"<0> {question}") for question in QUESTIONS]) / CHARACTERS_PER_TOKEN
    )
    assert table.cost_usd[order, 0] == pytest.approx(
        prompt_tokens * 1e-6 + 8 / CHARACTERS_PER_TOKEN * 3e-6
    )
    notes = " ".join(table.notes)
    assert "1 older logs" in notes and "exact_match was read" in notes
    assert (
        "Of the filters flexible-extract and strict-match of task gsm0, flexible-extract was read"
        in notes
    )


def test_the_command_reads_logs_of_lm_eval_with_a_price_list(tmp_path, capsys):
    write_lm_eval(tmp_path / "results")
    prices = tmp_path / "prices.csv"
    prices.write_text(
        "model,usd_per_million_in,usd_per_million_out\na/small,0.1,0.2\nb-large,3,15\n"
    )
    options = ["--profile", "smoke", "--prices", str(prices)]
    assert main([str(tmp_path / "results"), *options]) == 0
    assert "Read in the format of lm-evaluation-harness" in capsys.readouterr().out
    prices.write_text("model,usd_per_million_in,usd_per_million_out\na/small,0.1,0.2\n")
    assert main([str(tmp_path / "results"), *options]) == 2
    assert "no price of 'b-large'" in capsys.readouterr().err


# All -----------------------------------------------------------------------------------------------


def test_a_table_in_long_form_is_no_published_format():
    assert recognize_format(["item", "group", "model", "correct", "cost_usd", "prompt"]) is None
    assert recognize_format(["prompt", "model", "correct", "cost_usd", "item"]) is None
    assert len({published.name for published in PUBLISHED_FORMATS}) == 5


def test_files_of_different_formats_are_refused_together(tmp_path):
    make_routerbench().to_csv(tmp_path / "a.csv", index=False)
    make_routellm().to_csv(tmp_path / "b.csv", index=False)
    with pytest.raises(TableError, match=r"a.csv and b.csv are of different formats"):
        read_outcome_table(tmp_path, PRICES)


def test_a_folder_without_data_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(TableError, match="the folder has no data files"):
        read_outcome_table(tmp_path)
