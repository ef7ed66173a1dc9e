"""Ablation of ToolOrchestra: what an orchestrator learns from the prices that it is trained at."""

from lib.config import Params
from lib.stats.ablation_comparison import Comparison, Measure
from lib.tool_orchestration import experiment, variants

MILLION = 1e6
RIGHT = Measure("correct", "accuracy")
MONEY = Measure("cost_usd", "$ per million questions", "lower")
SECONDS = Measure("milliseconds", "ms", "lower")


def pricing(params: Params, **where) -> dict[str, Comparison]:
    """ToolOrchestra trained at prices by lot, at list prices alone, and with the sign error in circulation; in
    the exam at prices by lot, and at the prices of another list. where: of study.run."""
    compared = [variants.NAMED[name] for name in ("paper", "published")] + [variants.LIST_PRICES]
    results = experiment.run(params, compared, label="training at other prices", **where)
    labels = {experiment.START: "start"} | {variant.name: variant.label for variant in compared}
    labels["paper"] = "prices by lot"
    return {exam: _priced(params, results, labels, exam) for exam in ("test", "unseen_prices")}


def _priced(
    params: Params, results: experiment.ToolOrchestrationResults, labels, exam: str
) -> Comparison:
    rows = results.episodes[results.episodes["style"] == exam]
    rows = rows[rows["method"].isin(labels)]
    frame = rows.assign(
        variant=rows["method"].map(labels),
        unit=rows["item"],
        cost_usd=rows["cost_usd"] * MILLION,
        milliseconds=rows["seconds"] * 1000,
    )
    usual = labels["paper"]
    against = {
        shown: usual
        for shown in dict.fromkeys(frame["variant"])
        if shown not in (usual, labels[experiment.START])
    }
    where = "prices by lot" if exam == "test" else "prices of another list"
    return Comparison(
        f"tool_pricing.{exam}",
        f"prices in training, in the exam with {where}",
        frame,
        against,
        (MONEY, RIGHT, SECONDS),
        params.llm.describe_backend(params.tools.models.values()),
    )
