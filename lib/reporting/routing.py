"""Figures and tables of lesson 05: what experts cost, what budgets do to a controller, what it is worth.

Every title and alt text is made from the numbers that it is about. Money is in dollars per million questions,
which is micro-dollars per question.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import seeds, stats
from lib.params import Params, RoutingSettings
from lib.reporting import figures
from lib.routing import baselines, protocol
from lib.routing.arms import NAMED
from lib.routing.baselines import ITSELF, ROUTERS, Tried
from lib.routing.outcomes import IN_PIECES
from lib.routing.study import START, Results
from lib.stats import Interval

Rows = dict[str, dict[str, Interval]]
MILLION = 1e6
DRAWS = 400  # resamples where every one needs a hull
MONEY = "$ per million questions"


def _rng(*name: str) -> np.random.Generator:
    return seeds.rng("report", "routing", *name)


def label(arm: str) -> str:
    """How an arm is called in figures and tables."""
    return NAMED[arm].label if arm in NAMED else arm


def stand_ins(params: Params) -> str:
    """Experts that are scripted, for captions; empty where all are models."""
    names = [w for w, name in params.routing.experts.items() if params.llm.models[name].backend == "scripted"]
    return f" ({', '.join(names)}: scripted stand-in)" if names else ""


def backend(params: Params) -> str:
    """Whose decisions the metrics rest on: lab, or endpoint where an expert is one."""
    kinds = {params.llm.models[name].backend for name in params.routing.experts.values()}
    return next(kind for kind in ("scripted", "endpoint", "replay", "lab") if kind in kinds)


# Prices and budgets -----------------------------------------------------------------------------


def set_name(difficulty: pd.Series, settings: RoutingSettings) -> pd.Series:
    """The test set of each difficulty."""
    names = {d: name for name, part in settings.sets.items() for d in part}
    return difficulty.map(names)


def price_table(results: Results, settings: RoutingSettings) -> pd.DataFrame:
    """Each expert on training questions: share right by set, price of a question, budget that affords it."""
    table = results.experts[results.experts["split"] == "train"]
    table = table.assign(set=set_name(table["difficulty"], settings))
    rows = []
    for expert, price in results.budgets.calls.items():
        mine = table[table["strategy"] == expert]
        right = mine.groupby("set")["right"].mean()
        rows.append(
            {"expert": expert}
            | {f"right, {name}": right.get(name, np.nan) for name in settings.sets}
            | {"$ per million": mine["dollars"].mean() * MILLION, "budget for a call": price * MILLION}
        )
    return pd.DataFrame(rows)


def budget_table(results: Results) -> pd.DataFrame:
    """What each word is worth, in calls with a whole question of the hardest kind."""
    calls = results.budgets.calls
    return pd.DataFrame(
        [
            {"word": word, f"B, {MONEY}": "no limit" if dollars >= 1 else f"{dollars * MILLION:.1f}"}
            | {
                f"calls to {expert}": "-" if dollars >= 1 or not price else f"{dollars / price:.2f}"
                for expert, price in calls.items()
            }
            for word, dollars in results.budgets.words.items()
        ]
    )


# One question taken apart -----------------------------------------------------------------------


def episode_html(episodes: pd.DataFrame, caption: str) -> tuple[str, str]:
    """Episodes with the same question, one below the other: every part in a box by who wrote it, the mask beside it,
    what it cost; and as plain text."""
    blocks, plain = [], []
    for row in episodes.to_dict("records"):
        parts = []
        for who, text, dollars in json.loads(row["spoken"]):
            own = who == "controller"
            cost = f", ${dollars * MILLION:.1f} per million" if dollars else ""
            mask = "mask 1, learned" if own else "mask 0, read only"
            style = "border-left:4px solid #332288" if own else "border-left:4px dotted #8A8A8A"
            said = f"<strong>{escape(text)}</strong>" if own else escape(text)
            parts.append(
                f'<p style="{style};padding-left:.6em;margin:.3em 0"><small>{escape(who)} ({mask}{cost})</small><br>'
                f"<code>{said}</code></p>"
            )
            plain.append(f"{who:10} {mask[:6]} {text}")
        verdict = _verdict_words(row)
        blocks.append(f"<h4>budget {escape(row['label'])}</h4>{''.join(parts)}<p>{escape(verdict)}</p>")
        plain.append(verdict)
    markup = (
        f'<div role="group" aria-label="{escape(caption)}"><p><em>{escape(caption)}</em></p>{"".join(blocks)}</div>\n'
    )
    return markup, "\n".join(plain)


def _verdict_words(row: Mapping) -> str:
    right = "right" if row["right"] else "wrong"
    bound = "within" if row["within"] else "above"
    budget = "no limit" if row["budget"] >= 1 else f"B = {row['budget'] * MILLION:.1f}"
    return (
        f"{right}; spent {row['dollars'] * MILLION:.1f}, {bound} the budget ({budget}); reward {row['reward']:.0f}; "
        f"{row['calls']} calls, {row['malformed']} malformed turns"
    )


def telling(results: Results, arm: str = "corl") -> pd.DataFrame:
    """Episodes of one seed with one question under every budget: the hardest on which spending rises with it."""
    mine = _tests(results, arm)
    mine = mine[mine["seed"] == 0]
    spent = mine.pivot(index="item", columns="label", values="dollars")[list(protocol.WORDS)]
    steps = (spent.diff(axis=1).iloc[:, 1:] > 0).sum(axis=1)
    item = (steps * 100 + mine.groupby("item")["difficulty"].first()).idxmax()
    chosen = mine[mine["item"] == item].set_index("label").loc[list(protocol.WORDS)]
    return chosen.reset_index()


# Calls over training: Figure 3 ------------------------------------------------------------------


def _counted(frame: pd.DataFrame, experts: Sequence[str]) -> pd.DataFrame:
    """Calls to each expert, and whether there was any, as columns."""
    names = frame["called"].str.split()
    counts = {expert: names.map(lambda called, e=expert: called.count(e)).astype(float) for expert in experts}
    return frame.assign(**counts, **{"any": (frame["calls"] > 0).astype(float)})


def calls_over_training(results: Results, arms_: Sequence[str] = ("corl", "hard")) -> Figure:
    """Figure 3: share of questions on which the dearest expert, and any, is called, by budget and prompt."""
    dearest = list(results.budgets.calls)[-1]
    part = _counted(results.rollouts[results.rollouts["arm"].isin(arms_)], list(results.budgets.calls))
    part = part.assign(dear=(part[dearest] > 0).astype(float))
    tables = []
    for column, what in (("any", "any expert"), ("dear", dearest)):
        for arm in arms_:
            mine = part[part["arm"] == arm]
            means = mine.groupby(["seed", "update", "label"])[column].mean().rename("share").reset_index()
            means["update"] = means["update"] / max(mine["update"].max(), 1)
            tables.append(means.assign(panel=f"{'soft' if arm == 'corl' else 'hard'} prompts: {what} called"))
    long = pd.concat(tables, ignore_index=True)
    long["label"] = pd.Categorical(long["label"], protocol.WORDS)
    long = long.sort_values(["panel", "label"], kind="stable").astype({"label": str})
    return figures.curves(
        long, "update", "share", by="label", seed="seed", title=ratio_claim(results), xlabel="share of the training",
        ylabel="share of questions", panels="panel", bins=12,
    )  # fmt: skip


def _shares_called(results: Results, arm: str, column: str) -> dict[str, tuple[float, float]]:
    """Share of training questions with a call (any, or to the dearest expert), first and last fifth, by budget."""
    part = _counted(results.rollouts[results.rollouts["arm"] == arm], list(results.budgets.calls))
    part = part.assign(dear=(part[list(results.budgets.calls)[-1]] > 0).astype(float))
    last = part["update"].max()
    ends = part["update"] <= last / 5, part["update"] >= last * 4 / 5
    return {
        word: tuple(float(part.loc[where & (part["label"] == word), column].mean()) for where in ends)
        for word in protocol.WORDS
    }


def ratio_claim(results: Results) -> str:
    """How often the dearest expert is called at the end of training, by budget and prompt, as a sentence."""
    told = []
    for arm in ("corl", "hard"):
        shares = _shares_called(results, arm, "dear")
        told.append(f"{NAMED[arm].style} " + ", ".join(f"{w} {shares[w][1]:.2f}" for w in protocol.WORDS))
    return f"{list(results.budgets.calls)[-1]} is called on a share of, at the end: {'; '.join(told)}"


def ratio_alt(results: Results) -> str:
    """Figure 3 in words: where the shares start and end."""
    told = [
        f"{label(arm)}, {what}, {word}: {a:.2f} to {b:.2f}"
        for arm in ("corl", "hard")
        for column, what in (("any", "any expert"), ("dear", list(results.budgets.calls)[-1]))
        for word, (a, b) in _shares_called(results, arm, column).items()
    ]
    return "Share of questions with a call, first to last fifth of training. " + "; ".join(told) + "."


def prompts_words(results: Results) -> str:
    """What soft and hard prompts do before and after, as sentences."""
    told = []
    for arm in ("corl", "hard"):
        shares = _shares_called(results, arm, "any")
        updates = int(results.rollouts.loc[results.rollouts["arm"] == arm, "update"].max())
        ends = ", ".join(f"{w} {a:.2f} to {b:.2f}" for w, (a, b) in shares.items())
        told.append(f"{NAMED[arm].style} prompts, {updates + 1} updates: {ends}")
    return f"Share of questions with a call, first to last fifth. {'. '.join(told)}."


# By budget --------------------------------------------------------------------------------------

MEASURES = {
    "right": "accuracy", "reward": "reward", "dollars": MONEY, "violations": "above budget", "calls": "calls",
    "dear calls": "calls to the dearest expert",
}  # fmt: skip


def _tests(results: Results, arm: str, style: str | None = None, drawn: bool = False) -> pd.DataFrame:
    """Test episodes at the temperature of tests, or (`drawn`) of training: the lower one, or the higher."""
    part = results.episodes[results.episodes["arm"] == arm]
    heats = part["temperature"]
    part = part[heats == (heats.max() if drawn else heats.min())]
    return part if style is None else part[part["style"] == style]


def _matrix(part: pd.DataFrame, column: str) -> np.ndarray:
    """(seeds, items)."""
    return part.pivot(index="seed", columns="item", values=column).to_numpy(dtype=float)


def _measured(part: pd.DataFrame, results: Results) -> pd.DataFrame:
    dearest = list(results.budgets.calls)[-1]
    return part.assign(
        **{
            "violations": 1 - part["within"],
            "dollars": part["dollars"] * MILLION,
            "dear calls": part["called"].str.split().map(lambda called: called.count(dearest)).astype(float),
        }
    )


def by_budget(results: Results, arm: str, style: str | None = None, drawn: bool = False) -> Rows:
    """Every measure of test episodes by budget, with intervals over seeds and questions (or questions, for one run)."""
    part = _measured(_tests(results, arm, style, drawn), results)
    rows: Rows = {}
    for word, mine in part.groupby("label", sort=False):
        kinds = {c: _share if c in ("right", "reward", "violations") else _interval for c in MEASURES}
        rows[word] = {c: kinds[c](_matrix(mine, c), arm, str(style), word, c) for c in MEASURES}
    return rows


def _interval(values: np.ndarray, *name: str) -> Interval:
    """Of (seeds, items): both are sampled; of one run, questions are."""
    if len(values) > 1:
        return stats.crossed_interval(values, _rng(*name))
    return stats.mean_interval(values[0], _rng(*name))


def _share(values: np.ndarray, *name: str) -> Interval:
    """`_interval` of shares: no end outside [0, 1]."""
    found = _interval(values, *name)
    return Interval(found.value, *np.clip([found.lo, found.hi], 0, 1).tolist())


def learned_table(results: Results) -> pd.DataFrame:
    """Before and after training, by prompt and budget; reward gained by pairs of question; and with draws as in
    training."""
    rows = []
    for arm in ("corl", "hard"):
        style = NAMED[arm].style
        before, after = by_budget(results, START, style), by_budget(results, arm, style)
        drawn = [by_budget(results, who, style, drawn=True) for who in (START, arm)]
        for word in protocol.WORDS:
            gain = _of(results, arm, style, word) - _of(results, START, style, word)

            def both(column: str, a: Rows = before, b: Rows = after, word: str = word, digits: int = 2) -> str:
                return f"{a[word][column].value:.{digits}f} to {b[word][column].value:.{digits}f}"

            rows.append(
                {
                    "prompts": style,
                    "budget": word,
                    "accuracy": both("right"),
                    "reward": both("reward"),
                    "reward gained": str(_interval(gain, "gain", arm, word)),
                    "above budget": both("violations"),
                    MONEY: both("dollars", digits=1),
                    "reward, drawn": both("reward", *drawn),
                }
            )
    return pd.DataFrame(rows)


def _of(results: Results, arm: str, style: str, word: str) -> np.ndarray:
    """Rewards of test episodes under one budget, (seeds, items)."""
    part = _tests(results, arm, style)
    return _matrix(part[part["label"] == word], "reward")


# Table 2 ----------------------------------------------------------------------------------------


def known(results: Results, split: str) -> Tried:
    """What strategies made of one part of the questions."""
    return baselines.tried_on(results.experts, results.alone, split, list(results.budgets.calls))


def compared(results: Results) -> pd.DataFrame:
    """Every baseline on the test questions under every word's budget."""
    return baselines.compare(known(results, "train"), known(results, "test"), results.budgets.words)


def _with_corl(results: Results, rivals: pd.DataFrame, word: str) -> dict[str, pd.DataFrame]:
    """Test rows under one budget by name: baselines have one run, CoRL one per seed."""
    mine = rivals[rivals["label"] == word].assign(seed=0)
    named = {name: part for name, part in mine.groupby("router", sort=False)}
    own = _tests(results, "corl")
    named["CoRL"] = own[own["label"] == word]
    return named


def table_2(results: Results, rivals: pd.DataFrame, settings: RoutingSettings) -> pd.DataFrame:
    """Table 2 as ours: share right and mean cost by test set; the last rows are CoRL under each budget."""
    top = protocol.WORDS[-1]
    named = {name: part for name, part in _with_corl(results, rivals, top).items() if name != "CoRL"}
    for word in protocol.WORDS:
        named[f"CoRL, {word}"] = _with_corl(results, rivals, word)["CoRL"]
    kinds = {i: d for i, d in enumerate(_difficulties(results))}
    rows = []
    for name, part in named.items():
        part = part.assign(set=set_name(part["item"].map(kinds), settings))
        row: dict[str, object] = {"model": name}
        for which in settings.sets:
            some = part[part["set"] == which]
            row[which] = f"{some['right'].mean():.2f} for {some['dollars'].mean() * MILLION:.1f}" if len(some) else "-"
        row["all"] = str(_share(_matrix(part, "right"), "table 2", name))
        row["all, $"] = round(float(part["dollars"].mean()) * MILLION, 1)
        rows.append(row)
    return pd.DataFrame(rows)


def _difficulties(results: Results) -> list[int]:
    """Of the test questions, in order."""
    mine = results.experts[results.experts["split"] == "test"].drop_duplicates("item").sort_values("item")
    return mine["difficulty"].tolist()


def reward_rows(results: Results, rivals: pd.DataFrame) -> Rows:
    """Mean reward of everybody under every budget."""
    rows: Rows = {}
    for word in protocol.WORDS:
        for name, part in _with_corl(results, rivals, word).items():
            rows.setdefault(name, {})[word] = _share(_matrix(part, "reward"), "reward", name, word)
    order = [*(n for n in rows if n not in (*ROUTERS, "CoRL")), *ROUTERS, "CoRL"]
    return {name: rows[name] for name in order}


def reward_claim(rows: Rows) -> str:
    """Where CoRL stands under each budget, the oracle left out."""
    told = []
    for word in protocol.WORDS:
        rival = max((n for n in rows if n not in ("CoRL", "oracle")), key=lambda n: rows[n][word].value)
        told.append(f"{word} {rows['CoRL'][word].value:.2f} (best baseline: {rival}, {rows[rival][word].value:.2f})")
    return f"Mean reward of CoRL: {', '.join(told)}"


def reward_alt(rows: Rows) -> str:
    """The figure in words."""
    told = [f"{n} " + ", ".join(f"{w} {row[w].value:.2f}" for w in protocol.WORDS) for n, row in rows.items()]
    return "Mean reward by budget. " + "; ".join(told) + "."


# The plane: Figure 2 ----------------------------------------------------------------------------


def plane_points(results: Results, rivals: pd.DataFrame) -> dict[str, tuple[Interval, Interval]]:
    """Cost and accuracy of constants, of random, and of CoRL under each budget."""
    top = protocol.WORDS[-1]
    named = {
        name: part
        for name, part in _with_corl(results, rivals, top).items()
        if name not in ("CoRL", "best constant", "oracle")
    }
    for word in protocol.WORDS:
        named[f"CoRL, {word}"] = _with_corl(results, rivals, word)["CoRL"]
    return {
        name: (
            _interval(_matrix(part.assign(dollars=part["dollars"] * MILLION), "dollars"), "plane $", name),
            _share(_matrix(part, "right"), "plane", name),
        )
        for name, part in named.items()
        if name not in ("nearest neighbours", "logistic", "cascade")
    }


def plane_claim(points: Mapping[str, tuple[Interval, Interval]]) -> str:
    """What CoRL buys, as a sentence."""
    told = ", ".join(
        f"{w} {points[f'CoRL, {w}'][1].value:.2f} for ${points[f'CoRL, {w}'][0].value:.1f}" for w in protocol.WORDS
    )
    return f"Accuracy and cost per million questions of CoRL: {told}"


def plane_alt(points: Mapping[str, tuple[Interval, Interval]]) -> str:
    """The plane in words."""
    told = [f"{name}: {q.value:.2f} right for ${c.value:.1f}" for name, (c, q) in points.items()]
    return "Cost per million questions against accuracy. " + "; ".join(told) + "."


# What the controller costs itself --------------------------------------------------------------


def own_cost(results: Results) -> pd.DataFrame:
    """What CoRL costs when its own tokens are charged like everybody's, and what a blind mixture of experts, which
    needs no controller, buys for the same money. Every token is charged once, as if nothing were read twice."""
    test, own = known(results, "test"), _tests(results, "corl")
    rows = []
    for word in protocol.WORDS:
        mine = own[own["label"] == word]
        paid = float(mine["dollars"].mean())
        itself = float(mine["tokens"].mean()) * results.token_price
        costs, right = test.dollars[:, 1:].mean(0), test.right[:, 1:].mean(0)
        buys = stats.hull_at(costs, right, paid + itself) if paid + itself >= costs.min() else float("nan")
        rows.append(
            {
                "budget": word,
                "tokens per question": round(float(mine["tokens"].mean()), 1),
                "paid to experts": paid * MILLION,
                "controller": itself * MILLION,
                "together": (paid + itself) * MILLION,
                "accuracy": float(mine["right"].mean()),
                "blind mixture of experts for the same": buys,
            }
        )
    return pd.DataFrame(rows)


def own_cost_words(table: pd.DataFrame) -> str:
    """Whether the controller pays for itself, as a sentence."""
    beaten = table["accuracy"] <= table["blind mixture of experts for the same"]  # nan: nothing costs as little
    worth = table[~beaten]["budget"].tolist()
    return f"With its own tokens charged, CoRL is above a blind mixture of experts for as much under {_listed(worth)}."


# The claims -------------------------------------------------------------------------------------


def order_claims(results: Results, arm: str = "corl", drawn: bool = False) -> Rows:
    """Differences between neighbouring budgets in calls, calls to the dearest expert and spending, paired; arm: CoRL,
    or START for the same controller before training."""
    part = _measured(_tests(results, arm, NAMED["corl"].style, drawn), results)
    rows: Rows = {}
    for less, more in zip(protocol.WORDS, protocol.WORDS[1:], strict=False):
        rows[f"{more} minus {less}"] = {
            MEASURES[c]: _interval(
                _matrix(part[part["label"] == more], c) - _matrix(part[part["label"] == less], c), "order", more, c
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
    own = _tests(results, arm, NAMED["corl"].style, drawn)
    own = own[own["label"] == protocol.WORDS[-1]]
    rival = _alone(results, best_expert(results))
    return {
        c: _interval((_matrix(own, c) - rival[c].to_numpy(dtype=float)[None]) * scale, "best", c)
        for c, scale in (("right", 1.0), ("dollars", MILLION))
    }


MIXTURES = {
    "random routing": "random routing",
    "single experts": "the best blind mixture of single experts",
    "all constants": "the best blind mixture of all constants above",
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
    own = _tests(results, arm, NAMED["corl"].style, drawn)
    rows: Rows = {}
    for word in protocol.WORDS:
        mine = own[own["label"] == word]
        right, dollars = _matrix(mine, "right"), _matrix(mine, "dollars")
        rows[word] = {name: _gap(right, dollars, *options, word, name) for name, options in choices.items()}
    return rows


def _gap(right, dollars, others_right, others_dollars, *name: str) -> Interval:
    """Mean of right (s, n) minus the hull of others (n, m) at the mean of dollars, with its interval."""
    rng = _rng("gap", *name)

    def gap(runs: np.ndarray, items: np.ndarray) -> float:
        cost = dollars[np.ix_(runs, items)].mean()
        costs, qualities = others_dollars[items].mean(0), others_right[items].mean(0)
        return right[np.ix_(runs, items)].mean() - stats.hull_at(costs, qualities, max(cost, costs.min()))

    s, n = right.shape
    value = gap(np.arange(s), np.arange(n))
    drawn = np.array([gap(rng.integers(s, size=s), rng.integers(n, size=n)) for _ in range(DRAWS)])
    if s > 1:  # deviations stretched, or few seeds would look alike (as in stats.crossed_interval)
        drawn = value + (drawn - drawn.mean()) * (s / (s - 1)) ** 0.5
    lo, hi = np.quantile(drawn, [0.025, 0.975])
    return Interval(float(value), float(lo), float(hi))


def verdict(gap: Interval) -> str:
    """What an interval says of a claim that the difference is above 0."""
    if gap.value == gap.lo == gap.hi == 0:
        return "no difference at all"
    if not gap.excludes(0):
        return "undecided"
    return "holds" if gap.value > 0 else "does not hold"


def claims(results: Results, arm: str = "corl", drawn: bool = False) -> dict[str, Interval]:
    """The three claims of the paper, each as the difference that has to be above 0."""
    found: dict[str, Interval] = {}
    for step, row in order_claims(results, arm, drawn).items():
        found |= {f"{what}: {step}": row[what] for what in (MEASURES["calls"], MEASURES["dear calls"], MONEY)}
    best = against_best(results, arm, drawn)
    found[f"accuracy: high minus {best_expert(results)} alone"] = best["right"]
    for word, row in at_equal_cost(results, arm, drawn).items():
        found |= {f"accuracy at equal cost, {word}: minus {about}": row[name] for name, about in MIXTURES.items()}
    return found


def claims_table(results: Results) -> pd.DataFrame:
    """Every claim before and after training, without dice, and after training with turns drawn as the paper draws them;
    the verdict is on the second."""
    before, after, drawn = claims(results, START), claims(results), claims(results, drawn=True)
    rows = [[name, str(before[name]), str(gap), verdict(gap), str(drawn[name])] for name, gap in after.items()]
    table = pd.DataFrame(rows, columns=["to be above 0", "before training", "after", "verdict", "after, drawn"])
    best = best_expert(results)
    if _alone(results, best)["right"].min() == 1:
        at = table["to be above 0"] == f"accuracy: high minus {best} alone"
        table.loc[at, "verdict"] = f"cannot hold: {best} is always right"
    return table


def rule_table(results: Results, settings: RoutingSettings) -> pd.DataFrame:
    """Who is called by set and budget: the learned rule, as far as it is one."""
    own = _tests(results, "corl")
    own = own.assign(set=set_name(own["difficulty"], settings), who=own["called"].replace("", "nobody"))
    rows = []
    for word in protocol.WORDS:
        row: dict[str, object] = {"budget": word}
        for which in settings.sets:
            some = own[(own["label"] == word) & (own["set"] == which)]["who"]
            shares = some.value_counts(normalize=True).head(2)
            row[which] = ", ".join(f"{who} {share:.0%}" for who, share in shares.items()) or "-"
        rows.append(row)
    return pd.DataFrame(rows)


# One fixed budget: Figures 4 to 7 ---------------------------------------------------------------

FIXED = ("fixed-low", "fixed-high")


def fixed_calls(results: Results) -> Figure:
    """Figure 4: calls to each expert per question over training, for each fixed budget."""
    experts = list(results.budgets.calls)
    part = _counted(results.rollouts[results.rollouts["arm"].isin(FIXED)], experts)
    means = part.groupby(["arm", "seed", "update"])[experts].mean().reset_index()
    long = means.melt(["arm", "seed", "update"], experts, "expert", "calls")
    long["panel"] = long["arm"].map(label)
    return figures.curves(
        long, "update", "calls", by="expert", seed="seed", title=fixed_calls_claim(results), xlabel="PPO update",
        ylabel="calls per question", panels="panel", bins=12,
    )  # fmt: skip


def _ends(results: Results, arm: str, column: str) -> tuple[float, float]:
    """Mean of a column over the first and the last fifth of a training."""
    part = _counted(results.rollouts[results.rollouts["arm"] == arm], list(results.budgets.calls))
    last = part["update"].max()
    return tuple(
        float(part.loc[where, column].mean()) for where in (part["update"] <= last / 5, part["update"] >= last * 4 / 5)
    )


def fixed_calls_claim(results: Results) -> str:
    """Which way calls to the dearest expert went, as a sentence."""
    dearest = list(results.budgets.calls)[-1]
    told = [f"{label(arm)} {a:.2f} to {b:.2f}" for arm in FIXED for a, b in [_ends(results, arm, dearest)]]
    return f"Calls to {dearest} per question, first to last fifth: {'; '.join(told)}"


def fixed_calls_alt(results: Results) -> str:
    """Figure 4 in words."""
    told = [
        f"{label(arm)}, {e}: {a:.2f} to {b:.2f}"
        for arm in FIXED
        for e in results.budgets.calls
        for a, b in [_ends(results, arm, e)]
    ]
    return "Calls per question over training under a fixed budget, first to last fifth. " + "; ".join(told) + "."


REWARDS = {"right": "r_p, right", "within": "r_c, within budget", "reward": "r, both", "dollars": MONEY}


def fixed_rewards(results: Results) -> Figure:
    """Figures 5 and 6: rewards and price over training."""
    part = results.rollouts[results.rollouts["arm"].isin(FIXED)]
    part = part.assign(dollars=part["dollars"] * MILLION)
    means = part.groupby(["arm", "seed", "update"])[list(REWARDS)].mean().rename(columns=REWARDS).reset_index()
    long = means.melt(["arm", "seed", "update"], list(REWARDS.values()), "measure", "value")
    long["budget"] = long["arm"].map(label)
    return figures.curves(
        long, "update", "value", by="budget", seed="seed", title=fixed_rewards_claim(results), xlabel="PPO update",
        ylabel="mean over questions", panels="measure", bins=12, same_scale=False,
    )  # fmt: skip


def fixed_rewards_claim(results: Results) -> str:
    """Where the reward went, as a sentence."""
    told = [f"{label(arm)} {a:.2f} to {b:.2f}" for arm in FIXED for a, b in [_ends(results, arm, "reward")]]
    return f"Reward, first to last fifth: {'; '.join(told)}"


def fixed_rewards_alt(results: Results) -> str:
    """Figures 5 and 6 in words."""
    told = [
        f"{label(arm)}, {name}: {a * scale:.2f} to {b * scale:.2f}"
        for arm in FIXED
        for column, name in REWARDS.items()
        for scale in [MILLION if column == "dollars" else 1]
        for a, b in [_ends(results, arm, column)]
    ]
    return "Rewards and price over training under a fixed budget, first to last fifth. " + "; ".join(told) + "."


def fixed_looks(results: Results) -> Figure:
    """Figure 7: accuracy and cost on unseen questions during training."""
    names = {"right": "accuracy", "dollars": MONEY}
    part = results.looks.assign(dollars=results.looks["dollars"] * MILLION)
    means = part.groupby(["arm", "seed", "update"])[list(names)].mean().rename(columns=names).reset_index()
    long = means.melt(["arm", "seed", "update"], list(names.values()), "measure", "value")
    long["budget"] = long["arm"].map(label)
    return figures.curves(
        long, "update", "value", by="budget", seed="seed", title=looks_claim(results), xlabel="PPO update",
        ylabel="mean over unseen questions", panels="measure", same_scale=False,
    )  # fmt: skip


def _last_look(results: Results, arm: str, column: str) -> float:
    part = results.looks[results.looks["arm"] == arm]
    return float(part.loc[part["update"] == part["update"].max(), column].mean())


def looks_claim(results: Results) -> str:
    """What a larger fixed budget ends with on unseen questions, as a sentence."""
    told = [
        f"{label(arm)}: {_last_look(results, arm, 'right'):.2f} right for ${money:.1f}"
        for arm in FIXED
        for money in [_last_look(results, arm, "dollars") * MILLION]
    ]
    return f"Unseen questions at the end: {'; '.join(told)} per million"


# A budget in numbers ----------------------------------------------------------------------------


def asked_and_spent(results: Results, arm: str = "number") -> pd.DataFrame:
    """One row per asked budget: units, then accuracy, spending, share above the budget and calls as Intervals; arm:
    START for the controller before training."""
    rows = by_budget(results, arm, "number")
    return pd.DataFrame([{"asked": int(word)} | row for word, row in rows.items()])


def numbers_table(asked: pd.DataFrame) -> pd.DataFrame:
    """The same as text."""
    names = {c: MEASURES[c] for c in ("right", "reward", "dollars", "violations", "calls", "dear calls")}
    return asked.assign(**{c: asked[c].map(str) for c in names}).rename(columns={"asked": f"asked, {MONEY}"} | names)


@figures.theme()
def calibration(asked: pd.DataFrame, before: pd.DataFrame) -> Figure:
    """Asked against spent, and the share of questions above the budget; dotted: before training."""
    note = "Bars: 95% intervals over seeds and questions. Dotted: before training."
    sheet = figures.sheet(calibration_claim(asked, before), figures.WIDTH, 3.8, note)
    left, right = figures.tiles(sheet, 2, 2)
    x = asked["asked"].to_numpy(dtype=float)
    for axes, column, shade in (
        (left, "dollars", figures.colour("lab-mini")),
        (right, "violations", figures.colour("lab-large")),
    ):
        y = np.array([i.value for i in asked[column]])
        ends = np.array([[i.value - i.lo, i.hi - i.value] if i.known else [0, 0] for i in asked[column]]).T
        axes.errorbar(x, y, yerr=np.clip(ends, 0, None), fmt="o-", color=shade, capsize=2)
        axes.plot(x, [i.value for i in before[column]], "x:", color=figures.GREY, linewidth=1.3)
        axes.set_xscale("log")
        axes.set_xlabel(f"asked: budget in {MONEY}")
    left.plot(x, x, "--", color=figures.GREY, linewidth=1.2)
    left.annotate("spent = asked", (x[-2], x[-2]), color=figures.GREY, ha="right", va="bottom")
    left.set_yscale("symlog", linthresh=1.0)
    left.set_ylabel(f"spent, {MONEY}")
    right.set_ylim(-0.02, 1.02)
    right.set_ylabel("share above the budget")
    return sheet


def _follows(asked: pd.DataFrame) -> float:
    """Rank correlation of asked and spent; 0 where spending is always the same."""
    spent = pd.Series([i.value for i in asked["dollars"]])
    return 0.0 if spent.nunique() == 1 else float(pd.Series(asked["asked"]).corr(spent, method="spearman"))


def calibration_claim(asked: pd.DataFrame, before: pd.DataFrame) -> str:
    """How spending follows asking before and after training, and what that is worth, as a sentence."""
    told = []
    for when, table in (("before", before), ("after", asked)):
        spent, reward = ([i.value for i in table[c]] for c in ("dollars", "reward"))
        told.append(
            f"{when} training it spends {min(spent):.1f} to {max(spent):.1f} (rank correlation with the number "
            f"{_follows(table):.2f}; mean reward {np.mean(reward):.2f})"
        )
    return f"Asked {asked['asked'].iloc[0]} to {asked['asked'].iloc[-1]}, {'; '.join(told)}"


def calibration_alt(asked: pd.DataFrame, before: pd.DataFrame) -> str:
    """The figure in words."""
    told = [
        f"asked {row['asked']}: spent {row['dollars'].value:.1f} (before training {start:.1f}), above in "
        f"{row['violations'].value:.0%}"
        for row, start in zip(asked.to_dict("records"), [i.value for i in before["dollars"]], strict=True)
    ]
    return "Asked and spent, dollars per million questions. " + "; ".join(told) + "."


@figures.theme()
def front(asked: pd.DataFrame, results: Results, budget: int | None = None) -> Figure:
    """The learned front of the controller that reads numbers, one budget of it marked, constants for comparison."""
    test = known(results, "test")
    points = {
        n: (d * MILLION, r) for n, d, r in zip(test.strategies, test.dollars.mean(0), test.right.mean(0), strict=True)
    }
    title = front_claim(asked) if budget is None else front_words(asked, budget)
    sheet = figures.sheet(title, figures.WIDTH, 4.0, "Grey: constant strategies, questions in pieces hollow.")
    axes, shade = sheet.subplots(), figures.colour("CoRL")
    for name, (cost, right) in points.items():
        hollow = name.endswith(IN_PIECES)
        axes.plot([cost], [right], "s", color=figures.GREY, markerfacecolor="none" if hollow else figures.GREY)
        text, below = name.removeprefix("lab-"), (4, -12)
        axes.annotate(text, (cost, right), xytext=below, textcoords="offset points", color=figures.GREY, fontsize=8)
    cost, right = ([i.value for i in asked[c]] for c in ("dollars", "right"))
    axes.plot(cost, right, "o", color=shade, alpha=0.8)
    for words, place in _labelled(asked["asked"].tolist(), cost, right):
        above = {"xytext": (0, 8), "textcoords": "offset points", "ha": "center", "fontsize": 9}
        axes.annotate(words, place, color=figures.ink(shade), **above)
    if budget is not None:
        at = asked["asked"].tolist().index(budget)
        axes.plot([cost[at]], [right[at]], "o", markersize=15, markerfacecolor="none", markeredgecolor="black")
    axes.set_xscale("symlog", linthresh=2.0)
    axes.set_xlim(-0.3, 2.2 * max(c for c, _ in points.values()))
    axes.set(xlabel=f"spent, {MONEY}", ylabel="accuracy")
    return sheet


def _labelled(names: Sequence[int], cost: Sequence[float], right: Sequence[float]) -> list[tuple[str, tuple]]:
    """One label for budgets in a row that come to nearly the same point: `12 to 80` at the first of them."""
    groups: list[list[int]] = []
    for i in range(len(names)):
        last = groups[-1][0] if groups else None
        near = last is not None and abs(cost[i] - cost[last]) <= 0.3 * cost[last] and abs(right[i] - right[last]) < 0.07
        if near:
            groups[-1].append(i)
        else:
            groups.append([i])
    return [
        (f"{names[g[0]]} to {names[g[-1]]}" if len(g) > 1 else str(names[g[0]]), (cost[g[0]], right[g[0]]))
        for g in groups
    ]


def front_claim(asked: pd.DataFrame) -> str:
    """The ends of the learned front, as a sentence."""
    first, last = asked.iloc[0], asked.iloc[-1]
    told = [
        f"asked {row['asked']}, {row['right'].value:.2f} right for {row['dollars'].value:.1f}" for row in (first, last)
    ]
    return f"Budgets in numbers as points: {'; '.join(told)}"


def front_words(asked: pd.DataFrame, budget: int) -> str:
    """One budget as a sentence."""
    row = asked[asked["asked"] == budget].iloc[0]
    return (
        f"Asked {budget}: spends {row['dollars'].value:.1f}, {row['right'].value:.2f} right, "
        f"{row['calls'].value:.1f} calls, above the budget in {row['violations'].value:.0%}"
    )


def front_alt(asked: pd.DataFrame) -> str:
    """The front in words."""
    told = [
        f"{row['asked']}: {row['right'].value:.2f} for {row['dollars'].value:.1f}" for row in asked.to_dict("records")
    ]
    return "Accuracy and spending by asked budget, dollars per million questions. " + "; ".join(told) + "."


# What else could have been done -----------------------------------------------------------------


def counterfactuals(results: Results, word: str = "medium", n: int = 10) -> pd.DataFrame:
    """Questions with what CoRL did (first seed) and what every strategy would have scored."""
    own = _tests(results, "corl")
    own = own[(own["label"] == word) & (own["seed"] == 0)].sort_values("item")
    test = known(results, "test")
    places = np.unique(np.linspace(0, len(own) - 1, n).round().astype(int))
    rows = []
    for i in places:
        done = own.iloc[i]
        row = {"question": test.prompts[done["item"]], "CoRL called": done["called"] or "nobody"}
        row["CoRL"] = _scored(done["right"], done["dollars"])
        for m, name in enumerate(test.strategies):
            row[name] = _scored(test.right[done["item"], m], test.dollars[done["item"], m])
        rows.append(row)
    return pd.DataFrame(rows)


def _scored(right: float, dollars: float) -> str:
    return f"{'✓' if right >= 0.5 else '✗'} {dollars * MILLION:.1f}"


# Metrics ----------------------------------------------------------------------------------------


def metrics(results: Results, rivals: pd.DataFrame, params: Params) -> dict[str, object]:
    """The lesson's numbers by key."""
    out: dict[str, object] = {"backend": backend(params)}
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
            out[f"{key}.{word}.reward"] = _interval(_matrix(part, "reward"), "metric", name, word)
            if name in (*results.budgets.calls, "random", ITSELF) and word == protocol.WORDS[-1]:
                out[f"{key}.accuracy"] = _interval(_matrix(part, "right"), "metric", name)
                out[f"{key}.dollars"] = float(part["dollars"].mean())
    return out


def gains(results: Results) -> dict[str, Interval]:
    """Reward after minus before training by budget, by pairs of question."""
    style = NAMED["corl"].style
    return {
        word: _interval(_of(results, "corl", style, word) - _of(results, START, style, word), "gain", "corl", word)
        for word in protocol.WORDS
    }


def finding(results: Results, order: Rows, best: Mapping[str, Interval], equal: Rows) -> str:
    """What came of the paper's three claims, in one sentence each."""
    spent = by_budget(results, "corl")
    told = ", ".join(f"{word} ${spent[word]['dollars'].value:.1f}" for word in protocol.WORDS)
    rises = all(row[MONEY].excludes(0) and row[MONEY].value > 0 for row in order.values())
    calls = all(row[MEASURES["calls"]].excludes(0) and row[MEASURES["calls"]].value > 0 for row in order.values())
    gap = best["right"]
    words = f"{gap.value:+.3f} [{gap.lo:+.3f}, {gap.hi:+.3f}]"
    clear = [w for w, row in equal.items() if row["random routing"].excludes(0) and row["random routing"].value > 0]
    blind = [w for w, row in equal.items() if row["all constants"].excludes(0) and row["all constants"].value > 0]
    gained = [w for w, gap in gains(results).items() if gap.excludes(0) and gap.value > 0]
    return (
        f"Spending per million questions {'rises' if rises else 'does not clearly rise'} with the budget ({told}); the "
        f"number of calls {'rises' if calls else 'does not clearly rise'}. Training clearly raises the reward under "
        f"{_listed(gained)}. At the high budget accuracy is {words} against {best_expert(results)} alone. At equal "
        f"cost it is better than random routing under {_listed(clear)}, and better than any blind mixture of the "
        f"constants under {_listed(blind)}."
    )


def _listed(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words) or "no budget"
