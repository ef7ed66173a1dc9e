"""Tables of lesson 04 that are read from recorded facts."""

from lib.conductor import pretrained_demonstration
from lib.experiment import artifacts
from lib.reports.lesson_figures import conductor as figures


def test_the_demonstration_is_shown_from_its_table_of_facts():
    rows = artifacts.read_parquet(pretrained_demonstration.TABLE)
    description = artifacts.read_json(pretrained_demonstration.TABLE.with_suffix(".json"))
    table = figures.tabulate_pretrained_test(rows)
    assert table.index.tolist() == ["start", "equal", "conductor"] and table.notna().all(axis=None)

    weights = figures.list_pretrained_weights(rows)
    assert weights.groupby("step")["weight"].sum().round(3).eq(1).all()
    assert weights["step"].max() == 40  # the last of the steps that are averaged
    assert "SmolLM2-135M-Instruct" in figures.describe_pretrained_cost(description)
