"""Ablations of paying for answers: how CoRL's budget is put into words and whether it is the same for all, and what
ToolOrchestra learns from prices."""

import pandas as pd

from lib.ablations.comparison import Comparison, Measure
from lib.params import Params
from lib.routing import study as corl
from lib.routing.arms import NAMED
from lib.routing.toolorchestra import arms as orchestra
from lib.routing.toolorchestra import study as tools

MILLION = 1e6
REWARD = Measure("reward", "reward")
RIGHT = Measure("right", "accuracy")
MONEY = Measure("dollars", "$ per million questions", "lower")
CALLS = Measure("calls", "calls", "")
DEAR = Measure("dear", "calls to the dearest expert", "")
FIXED = {"fixed-low": "small budget", "fixed-high": "large budget"}
SECONDS = Measure("milliseconds", "ms", "lower")


def prompts(params: Params, results: corl.Results) -> Comparison:
    """Soft prompts name the budget, hard ones also say what to do under it. Each before and after training, on
    questions with the low budget: is it the words or the reward that saves?"""
    arms = {("soft", "start"): corl.START, ("hard", "start"): corl.START, ("soft", "trained"): "corl",
            ("hard", "trained"): "hard"}  # fmt: skip
    parts = [
        _tests(results, arm, style, "low").assign(variant=f"{style}, {when}") for (style, when), arm in arms.items()
    ]
    against = {"hard, start": "soft, start", "soft, trained": "soft, start", "hard, trained": "hard, start"}
    frame = pd.concat(parts, ignore_index=True)
    return Comparison("corl_prompt", "how the low budget is put", frame, against, (CALLS, MONEY, REWARD, RIGHT),
                      params.llm.decided_by(params.routing.experts.values()))  # fmt: skip


def budgets(params: Params, results: corl.Results) -> Comparison:
    """Trained under soft and under hard prompts: the high budget held against the low one (Figure 3)."""
    arms = {"soft": "corl", "hard": "hard"}
    parts = [
        _tests(results, arm, style, word).assign(variant=f"{style}, {word}")
        for style, arm in arms.items()
        for word in ("low", "high")
    ]
    against = {f"{style}, high": f"{style}, low" for style in arms}
    frame = pd.concat(parts, ignore_index=True)
    return Comparison("corl_budgets", "the budget, by prompt", frame, against, (CALLS, MONEY, RIGHT),
                      params.llm.decided_by(params.routing.experts.values()))  # fmt: skip


def fixed(params: Params, results: corl.Results) -> Comparison:
    """Trainings with one budget for all questions, the same word in the prompt: one that affords a call to the cheapest
    expert, and one that affords a call to the dearest (section 5)."""
    parts = [_tests(results, corl.START, "soft", "medium").assign(variant="start")]
    parts += [_tests(results, arm, "soft", None).assign(variant=shown) for arm, shown in FIXED.items()]
    dearest = list(params.routing.experts)[-1]
    frame = pd.concat(parts, ignore_index=True)
    frame = frame.assign(dear=frame["called"].str.split().map(lambda names: float(names.count(dearest))))
    low, high = FIXED.values()
    return Comparison("corl_fixed", "a budget that never changes", frame, {low: "start", high: low},
                      (MONEY, CALLS, DEAR, RIGHT),
                      params.llm.decided_by(params.routing.experts.values()))  # fmt: skip


def over_training(results: corl.Results) -> pd.DataFrame:
    """Trainings with one budget: right and within (the budget), last third of the updates minus the first (Figure 5);
    arm, seed, item."""
    out = []
    for arm, shown in FIXED.items():
        part = results.rollouts[results.rollouts["arm"] == arm]
        updates = int(part["update"].max()) + 1
        third = -(-updates // 3)
        first, last = part[part["update"] < third], part[part["update"] >= updates - third]
        change = last.groupby("seed")[["right", "within"]].mean() - first.groupby("seed")[["right", "within"]].mean()
        out.append(change.reset_index().assign(arm=shown, item="all"))
    return pd.concat(out, ignore_index=True)


def _tests(results: corl.Results, arm: str, style: str, word: str | None) -> pd.DataFrame:
    """Test episodes without dice, of the seeds that every arm has."""
    part = results.episodes[results.episodes["arm"] == arm]
    part = part[part["seed"] <= results.episodes.loc[results.episodes["arm"] == "hard", "seed"].max()]
    part = part[(part["temperature"] == part["temperature"].min()) & (part["style"] == style)]
    if word is not None:
        part = part[part["label"] == word]
    return part.assign(unit=part["item"], dollars=part["dollars"] * MILLION)


def pricing(params: Params, **where) -> dict[str, Comparison]:
    """ToolOrchestra trained at prices by lot, at list prices alone, and with the sign error in circulation; in
    the exam at prices by lot, and at the prices of another list. where: of study.run."""
    compared = [orchestra.NAMED[name] for name in ("paper", "published")] + [orchestra.LISTED]
    results = tools.run(params, compared, label="training at other prices", **where)
    labels = {tools.START: "start"} | {arm.name: arm.label for arm in compared}
    labels["paper"] = "prices by lot"
    return {exam: _priced(params, results, labels, exam) for exam in ("test", "unseen_prices")}


def _priced(params: Params, results: tools.Results, labels, exam: str) -> Comparison:
    rows = results.episodes[results.episodes["exam"] == exam]
    rows = rows[rows["arm"].isin(labels)]
    frame = rows.assign(
        variant=rows["arm"].map(labels), unit=rows["item"],
        dollars=rows["dollars"] * MILLION, milliseconds=rows["seconds"] * 1000,
    )  # fmt: skip
    usual = labels["paper"]
    against = {shown: usual for shown in dict.fromkeys(frame["variant"]) if shown not in (usual, labels[tools.START])}
    where = "prices by lot" if exam == "test" else "prices of another list"
    return Comparison(f"tool_pricing.{exam}", f"prices in training, in the exam with {where}", frame, against,
                      (MONEY, RIGHT, SECONDS), params.llm.decided_by(params.tools.models.values()))  # fmt: skip


def controllers(params: Params, **where) -> corl.Results:
    """The trainings of lesson 05 that the ablations are about. where: of study.run."""
    compared = [NAMED[name] for name in ("corl", "hard", "fixed-low", "fixed-high")]
    return corl.run(params, compared, **where)
