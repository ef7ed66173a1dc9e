"""What training changed, the paper's claims with intervals and verdicts, and the metrics that are kept."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from lib.params import Params, RoutingSettings
from lib.reporting import backends
from lib.reporting.routing.common import (
    MEASURES,
    MILLION,
    MONEY,
    Rows,
    by_budget,
    clear,
    gap_to_mixtures,
    interval,
    known,
    listed,
    matrix,
    measured,
    tests_of,
)
from lib.routing import protocol
from lib.routing.arms import NAMED
from lib.routing.baselines import ITSELF
from lib.routing.study import START, Results
from lib.stats import Interval

CEILING = " (ceiling)"
ROUTER = "logistic"  # of the routers that are trained on outcomes, the usual one


def learned_table(results: Results) -> pd.DataFrame:
    """Reward before and after training by prompt and budget, with dice as in training and without; what was gained by
    pairs of question; then, without dice, questions above the budget."""
    rows = []
    for arm in ("corl", "hard"):
        style = NAMED[arm].style
        before, after = by_budget(results, START, style), by_budget(results, arm, style)
        gained = {drawn: gains(results, arm, drawn) for drawn in (True, False)}
        for word in protocol.WORDS:
            row: dict[str, object] = {"prompts": style, "budget": word}
            for drawn, how in ((True, "with dice"), (False, "without")):
                means = [rewards_of(results, who, style, word, drawn).mean() for who in (START, arm)]
                row[f"reward {how}"] = " to ".join(f"{mean:.2f}" for mean in means)
                row[f"gained {how}"] = str(gained[drawn][word])
            a, b = (table[word]["violations"].value for table in (before, after))
            row["above budget"] = f"{a:.2f} to {b:.2f}"
            rows.append(row)
    return pd.DataFrame(rows)


def learned_words(results: Results) -> str:
    """Whether dice make training look better, by budget under soft prompts, as a sentence."""
    drawn, plain = gains(results, drawn=True), gains(results)
    more, less = (
        [w for w in protocol.WORDS if (drawn[w].value > plain[w].value) == up and drawn[w].value != plain[w].value]
        for up in (True, False)
    )
    return (
        f"Under soft prompts training gains more with dice than without under {listed(more)}, and less under "
        f"{listed(less)}."
    )


def rewards_of(results: Results, arm: str, style: str, word: str, drawn: bool = False) -> np.ndarray:
    """Rewards of test episodes under one budget, (seeds, items)."""
    part = tests_of(results, arm, style, drawn)
    return matrix(part[part["label"] == word], "reward")


def gains(results: Results, arm: str = "corl", drawn: bool = False) -> dict[str, Interval]:
    """Reward after minus before training by budget, by pairs of question; drawn: with dice, as in training."""
    style = NAMED[arm].style
    found = {}
    for word in protocol.WORDS:
        gain = rewards_of(results, arm, style, word, drawn) - rewards_of(results, START, style, word, drawn)
        found[word] = interval(gain, "gain", arm, word, str(drawn))
    return found


def rule_table(results: Results, settings: RoutingSettings) -> pd.DataFrame:
    """Who is called by family and budget: the learned rule, as far as it is one."""
    own = tests_of(results, "corl")
    own = own.assign(who=own["called"].replace("", "nobody"))
    rows = []
    for word in protocol.WORDS:
        row: dict[str, object] = {"budget": word}
        for which in settings.questions:
            some = own[(own["label"] == word) & (own["kind"] == which)]["who"]
            shares = some.value_counts(normalize=True).head(2)
            row[which] = ", ".join(f"{who} {share:.0%}" for who, share in shares.items()) or "-"
        rows.append(row)
    return pd.DataFrame(rows)


def order_claims(results: Results, arm: str = "corl", drawn: bool = False) -> Rows:
    """Differences between neighbouring budgets in calls, calls to the dearest expert and spending, paired; arm: CoRL,
    or START for the same controller before training."""
    part = measured(tests_of(results, arm, NAMED["corl"].style, drawn), results)
    rows: Rows = {}
    for less, more in zip(protocol.WORDS, protocol.WORDS[1:], strict=False):
        rows[f"{more} minus {less}"] = {
            MEASURES[c]: interval(
                matrix(part[part["label"] == more], c) - matrix(part[part["label"] == less], c), "order", more, c
            )
            for c in ("calls", "dear calls", "dollars", "right")
        }
    return rows


def best_expert(results: Results) -> str:
    """The expert that is right most often on the training questions."""
    mine = results.experts[results.experts["split"] == "train"]
    right = mine.groupby("strategy")["right"].mean()
    return max(results.budgets.calls, key=lambda expert: right[expert])


def _alone(results: Results, expert: str) -> pd.DataFrame:
    """An expert on whole test questions."""
    mine = results.experts[(results.experts["split"] == "test") & (results.experts["strategy"] == expert)]
    return mine.sort_values("item")


def against_best(results: Results, arm: str = "corl", drawn: bool = False) -> dict[str, Interval]:
    """Accuracy, and cost, at the highest budget minus those of the best single expert, by pairs of question."""
    own = tests_of(results, arm, NAMED["corl"].style, drawn)
    own = own[own["label"] == protocol.WORDS[-1]]
    rival = _alone(results, best_expert(results))
    return {
        c: interval((matrix(own, c) - rival[c].to_numpy(dtype=float)[None]) * scale, "best", c)
        for c, scale in (("right", 1.0), ("dollars", MILLION))
    }


MIXTURES = {
    "random routing": "random routing",
    "single experts": "single experts, mixed",
    "all constants": "all constants, mixed",
}


def at_equal_cost(results: Results, arm: str = "corl", drawn: bool = False) -> Rows:
    """Accuracy minus that of mixtures that cost as much, by budget; seeds and questions are resampled together with
    the mixtures."""
    test = known(results, "test")
    random = test.right[:, list(test.experts)].mean(1), test.dollars[:, list(test.experts)].mean(1)
    whole = [0, *test.experts]
    choices = {
        "random routing": (
            np.column_stack([test.right[:, [0, test.experts[-1]]], random[0]]),
            np.column_stack([test.dollars[:, [0, test.experts[-1]]], random[1]]),
        ),
        "single experts": (test.right[:, whole], test.dollars[:, whole]),
        "all constants": (test.right, test.dollars),
    }
    own = tests_of(results, arm, NAMED["corl"].style, drawn)
    rows: Rows = {}
    for word in protocol.WORDS:
        mine = own[own["label"] == word]
        right, dollars = matrix(mine, "right"), matrix(mine, "dollars")
        rows[word] = {name: gap_to_mixtures(right, dollars, *options, word, name) for name, options in choices.items()}
    return rows


def verdict(gap: Interval) -> str:
    """What an interval says of a claim that the difference is above 0."""
    if gap.value == gap.lo == gap.hi == 0:
        return "no difference"
    if not gap.excludes(0):
        return "undecided"
    return "holds" if gap.value > 0 else "does not hold"


def against_router(
    results: Results, rivals: pd.DataFrame, router: str = ROUTER, arm: str = "corl", drawn: bool = False
) -> dict[str, Interval]:
    """Reward minus that of a router that was trained on outcomes for the same budget, by pairs of question."""
    found = {}
    for word in protocol.WORDS:
        theirs = rivals[(rivals["router"] == router) & (rivals["label"] == word)].sort_values("item")["reward"]
        own = rewards_of(results, arm, NAMED["corl"].style, word, drawn)
        found[word] = interval(own - theirs.to_numpy(dtype=float)[None], "router", router, word)
    return found


def claims(results: Results, rivals: pd.DataFrame, arm: str = "corl", drawn: bool = False) -> dict[str, Interval]:
    """The three claims of the paper, each as the difference that has to be above 0; and one of ours, against a router
    that costs a second to train."""
    found: dict[str, Interval] = {}
    dearest = list(results.budgets.calls)[-1]
    for step, row in order_claims(results, arm, drawn).items():
        names = {"calls": MEASURES["calls"], f"calls to {dearest}": MEASURES["dear calls"], "$ per million": MONEY}
        found |= {f"{name}, {step}": row[what] for name, what in names.items()}
    best = against_best(results, arm, drawn)
    found[f"accuracy, high minus {best_expert(results)} alone"] = best["right"]
    for word, row in at_equal_cost(results, arm, drawn).items():
        found |= {f"at equal cost, {word} minus {about}": row[name] for name, about in MIXTURES.items()}
    routed = against_router(results, rivals, ROUTER, arm, drawn)
    return found | {f"reward, {word} minus {ROUTER} router": gap for word, gap in routed.items()}


def claims_table(results: Results, rivals: pd.DataFrame) -> pd.DataFrame:
    """Every claim before and after training, without dice, and after training with dice, as the paper trains; the
    verdict is on the second."""
    before, after, drawn = (claims(results, rivals, *how) for how in ((START,), (), ("corl", True)))
    rows = [[name, str(before[name]), str(gap), verdict(gap), str(drawn[name])] for name, gap in after.items()]
    table = pd.DataFrame(rows, columns=["to be above 0", "before", "after", "verdict", "after, dice"])
    best = best_expert(results)
    if _alone(results, best)["right"].min() == 1:
        table.loc[table["to be above 0"] == f"accuracy, high minus {best} alone", "verdict"] += CEILING
    return table


def claims_words(table: pd.DataFrame) -> str:
    """How the verdicts fall, as sentences."""
    counts = table["verdict"].str.removesuffix(CEILING).value_counts()
    told = [f"Of {len(table)} claims after training: {', '.join(f'{n} {word!r}' for word, n in counts.items())}."]
    if table["verdict"].str.endswith(CEILING).any():
        told.append(f"{CEILING.strip()}: the expert alone is right on every test question, nobody can be above it.")
    return " ".join(told)


def metrics(results: Results, rivals: pd.DataFrame, params: Params) -> dict[str, object]:
    """The lesson's numbers by key."""
    out: dict[str, object] = {"backend": backends.backend(params.llm, params.routing.experts)}
    short = {
        "right": "accuracy",
        "dollars": "dollars_per_million",
        "dear calls": "calls_large",
        "violations": "violations",
    }
    for word, row in by_budget(results, "corl").items():
        for column, name in {**short, "calls": "calls", "reward": "reward"}.items():
            out[f"corl.{word}.{name}"] = row[column]
        dollars = row["dollars"]
        out[f"corl.{word}.dollars"] = Interval(*(v / MILLION for v in (dollars.value, dollars.lo, dollars.hi)))
        out[f"budget.{word}.dollars"] = results.budgets.words[word]
    for word in protocol.WORDS:
        mine = rivals[(rivals["label"] == word)].assign(seed=0)
        for name, part in mine.groupby("router", sort=False):
            key = name.removeprefix("lab-").replace(" ", "_")
            key = f"expert.{key}" if name in results.budgets.calls else key
            out[f"{key}.{word}.reward"] = interval(matrix(part, "reward"), "metric", name, word)
            if name in (*results.budgets.calls, "random", ITSELF) and word == protocol.WORDS[-1]:
                out[f"{key}.accuracy"] = interval(matrix(part, "right"), "metric", name)
                out[f"{key}.dollars"] = float(part["dollars"].mean())
    return out


def finding(
    results: Results, order: Rows, best: Mapping[str, Interval], equal: Rows, routed: Mapping, number: Interval
) -> str:
    """What came of training, of the paper's three claims and of ours, in one sentence each; number: the gap to the
    best constant where the budget is a number."""
    drawn, greedy = (listed(clear(gains(results, drawn=how))) for how in (True, False))
    lost = listed(clear(gains(results), above=False))
    random, constants = ({w: row[name] for w, row in equal.items()} for name in ("random routing", "all constants"))
    gap, rival = best["right"], best_expert(results)
    early = {word: row["random routing"] for word, row in at_equal_cost(results, START).items()}
    return (
        f"Training clearly raises the reward under {drawn} with dice, as in training, and under {greedy} without; it "
        f"clearly lowers it under {lost} without. Without dice {_risen(results, order)}. At the high budget accuracy "
        f"is {gap.value:+.3f} [{gap.lo:+.3f}, {gap.hi:+.3f}] against {rival} alone. At equal cost it is clearly better "
        f"than random routing under {listed(clear(random))} (before training: {listed(clear(early))}), than any "
        f"blind mixture of the constants under {listed(clear(constants))}; its reward is clearly above that of the "
        f"{ROUTER} router under {listed(clear(routed))}. Where the budget is a number, its reward less that of the "
        f"best constant is {number.value:+.3f} [{number.lo:+.3f}, {number.hi:+.3f}]."
    )


def _risen(results: Results, order: Rows) -> str:
    """Whether spending and calls rise with the budget."""
    spent = by_budget(results, "corl")
    told = ", ".join(f"{word} ${spent[word]['dollars'].value:.1f}" for word in protocol.WORDS)

    def rises(steps: Rows, name: str) -> bool:
        return len(clear({step: row[name] for step, row in steps.items()})) == len(steps)

    now = {name: "rises" if rises(order, name) else "does not clearly rise" for name in (MONEY, MEASURES["calls"])}
    before = "rose" if rises(order_claims(results, START), MONEY) else "did not clearly rise"
    return (
        f"spending per million questions {now[MONEY]} with the budget ({told}; before training it {before}); the "
        f"number of calls {now[MEASURES['calls']]}"
    )
