"""What the studies share: a context that travels to processes, and tables that say whose rows they hold."""

import pickle
from dataclasses import replace

import pandas as pd
import pytest

from lib import config
from lib.experiment import artifacts
from lib.experiment.run_context import RunContext, read_tables
from lib.experiment.sweep import Job


def test_a_context_travels_to_a_process_with_the_clients_settings_and_the_folders_of_earlier_jobs(
    tmp_path,
):
    settings = config.load("smoke")
    context = replace(
        RunContext.of(settings, "models", tmp_path, "cassettes"), inputs={"start": "there"}
    )
    arrived = pickle.loads(pickle.dumps(context))
    assert (
        arrived == context and arrived.llm == settings.llm and arrived.llm is context.llm
    )  # checked once
    assert (arrived.models, arrived.runs, arrived.inputs["start"]) == (
        "models",
        str(tmp_path),
        "there",
    )


@pytest.mark.parametrize("identified", [True, False])
def test_a_table_is_of_the_jobs_that_left_one_and_says_whose_rows_they_are(identified, tmp_path):
    arms = [{"name": "a"}, None, {"name": "b"}]
    jobs = [Job(f"{seed}", {"variant": method, "seed": seed}) for seed, method in enumerate(arms)]
    for job in jobs[:2]:
        rows = pd.DataFrame({"x": [job.settings["seed"], 9]})
        artifacts.write_parquet(job.folder(tmp_path) / "rows.parquet", rows)
    table = read_tables(jobs, tmp_path, "rows", "nobody", identified)
    assert (
        table["x"].tolist() == [0, 9, 1, 9]
        and ("method" in table) == ("seed" in table) == identified
    )
    assert not identified or table["method"].tolist() == ["a", "a", "nobody", "nobody"]
    assert read_tables(jobs, tmp_path, "others").empty
