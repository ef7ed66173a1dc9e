"""Figures and tables of lesson 04: what the rewards know, what the Conductor learned, what came of it.

Every title and alt text is made from the numbers that it is about.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import draw, stats
from lib.conductor import sceptic
from lib.conductor.arms import CONSTANT, NAMED
from lib.conductor.data import CATEGORIES
from lib.conductor.rewards import COMPONENTS
from lib.conductor.study import Results
from lib.params import HeadSettings, Params
from lib.stats import Interval

Rows = dict[str, dict[str, Interval]]
NAMES = tuple(CATEGORIES)
SHOWN = ("equal", "nover", "em", "pref", "conductor", "oracle")  # arms in figures over training


STAND_IN = "scripted stand-in"


def label(arm: str, judge: str = STAND_IN) -> str:
    """How an arm is called in tables and figures; judge: who it is that judges."""
    known = NAMED.get(arm)
    if known is None:  # a variant of one's own
        return arm
    return f"{known.label} ({judge})" if known.stand_in else known.label


def _in_arms_order(rows: Rows) -> Rows:
    """Known arms in their order, then others."""
    return {arm: rows[arm] for arm in [*NAMED, *rows] if arm in rows}


def who_judges(params: Params) -> str:
    """The judge of the parameters: a stand-in is called one, anybody else by name."""
    name = params.conductor.judge
    return STAND_IN if params.llm.models[name].backend == "scripted" else name


# Why static weights fail ------------------------------------------------------------------------

# two rewards of two replies, made up: one that thinks aloud and one that does not
BY_HAND = {
    "reasoning": {"thinks": {"pref": 0.7, "len": 0.5}, "brief": {"pref": 0.4, "len": 1.0}, "right": "thinks"},
    "translation": {"thinks": {"pref": 0.9, "len": 0.5}, "brief": {"pref": 0.4, "len": 1.0}, "right": "brief"},
}


def margin(example: Mapping, w: float) -> float:
    """Reward of the right reply minus that of the wrong one under (1 - w) pref + w len."""
    paid = {reply: (1 - w) * example[reply]["pref"] + w * example[reply]["len"] for reply in ("thinks", "brief")}
    right = example["right"]
    return paid[right] - paid["brief" if right == "thinks" else "thinks"]


def by_hand_table() -> pd.DataFrame:
    """The example's numbers."""
    return pd.DataFrame(
        [
            {"category": name, "reply": reply, **example[reply], "right": "yes" if example["right"] == reply else "no"}
            for name, example in BY_HAND.items()
            for reply in ("thinks", "brief")
        ]
    )


def static_weights(w: float | None = None) -> Figure:
    """Margins of the right reply over all static weights, and at one of them."""
    grid = np.linspace(0, 1, 101)
    lines = {name: np.array([margin(example, x) for x in grid]) for name, example in BY_HAND.items()}
    both = np.logical_and(*(line > 1e-9 for line in lines.values()))
    says = "No static weight pays the right reply in both" if not both.any() else "Some weights are right in both"
    with draw.theme():
        figure = draw.sheet(says, draw.WIDTH, 3.4, "Made-up numbers. Above 0 the right reply is paid more.")
        axes = figure.subplots()
        for name, line in lines.items():
            axes.plot(grid, line, color=draw.colour(name), label=name)
            axes.fill_between(grid, 0, line, where=line > 0, color=draw.colour(name), alpha=0.15)
            if w is not None:
                axes.plot([w], [margin(BY_HAND[name], w)], draw.marker(name), color=draw.colour(name))
        axes.axhline(0, color=draw.GREY, lw=1)
        axes.set(xlabel="weight of len (the rest is pref)", ylabel="right minus wrong")
        axes.legend(frameon=False)
    return figure


def static_alt() -> str:
    """The example in words."""
    told = []
    for name, example in BY_HAND.items():
        good = [w for w in np.linspace(0, 1, 1001) if margin(example, w) > 1e-9]
        told.append(f"{name}: weights of len from {min(good):.2f} to {max(good):.2f} pay the right reply more")
    return "Reward of the right reply minus that of the wrong one, against one static weight. " + "; ".join(told) + "."


# What the rewards know --------------------------------------------------------------------------


def knowledge(groups: pd.DataFrame, group: int) -> pd.DataFrame:
    """Correlation of each reward with the verifier within groups, categories by rewards; 0 where nothing varies.

    groups: replies of the start (`study.start`), groups beside each other.
    """
    rows = {}
    for name in NAMES:
        part = groups[groups["category"] == name]
        right = part["right"].to_numpy(dtype=float)
        rows[name] = {r: sceptic.within(part[f"r_{r}"].to_numpy(dtype=float), right, group) for r in COMPONENTS}
    return pd.DataFrame(rows).T.rename_axis("category")


def knowledge_claim(table: pd.DataFrame) -> str:
    """Which reward knows most, by category."""
    told = [f"{row.idxmax()} in {name} ({row.max():+.2f})" for name, row in table.iterrows()]
    return f"What goes with being right: {', '.join(told)}"


def knowledge_alt(table: pd.DataFrame) -> str:
    """The matrix in words."""
    told = [f"{name} " + ", ".join(f"{k} {v:+.2f}" for k, v in row.items()) for name, row in table.iterrows()]
    return "Correlation of each reward with the verifier within groups. " + "; ".join(told) + "."


def thinking(groups: pd.DataFrame, group: int) -> pd.DataFrame:
    """What a thought does to the start's replies: mean over replies that think minus those that do not, of the
    verifier and of the rewards as they are paid, over the groups that have both."""
    rows = []
    for name, part in groups.groupby("category", sort=False):
        number = np.arange(len(part)) // group
        share = part["thinks"].groupby(number).transform("mean").to_numpy()
        mixed = part[(share > 0) & (share < 1)]
        if len(mixed):
            columns = ["right", *(f"r_{reward}" for reward in COMPONENTS)]
            means = mixed.groupby("thinks")[columns].mean().rename(columns=lambda c: c.removeprefix("r_"))
            gap = (means.loc[True] - means.loc[False]).to_dict()
            rows.append({"category": name, "share that thinks": part["thinks"].mean(), **gap})
    return pd.DataFrame(rows)


# One group taken apart --------------------------------------------------------------------------


def group_html(replies: pd.DataFrame, prompt: str, caption: str) -> tuple[str, str]:
    """One group as a table: reply, rewards with the emphasised one marked, sum, advantage; and as plain text."""
    head = "".join(f"<th>{name}</th>" for name in ("reply", "right", *COMPONENTS, "R", "A"))
    rows, plain = [], [prompt]
    for row in replies.to_dict("records"):
        cells = [f"<th scope='row'>{escape(row['reply'])}</th>", f"<td>{row['right']:.2f}</td>"]
        for name in COMPONENTS:
            value = f"{row[f'r_{name}']:.2f}"
            cells.append(f"<td><strong>[{value}]</strong></td>" if row["action"] == name else f"<td>{value}</td>")
        cells.append(f"<td>{row['reward']:.2f}</td><td>{row['advantage']:+.2f}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
        plain.append(f"{row['advantage']:+.2f}  {row['action']:5}  {row['reply']}")
    markup = (
        f'<p><code>{escape(prompt)}</code></p><div class="scroll" role="group" tabindex="0" '
        f'aria-label="{escape(caption)}" style="overflow-x:auto"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>\n"
    )
    return markup, "\n".join(plain)


# Table 1 ----------------------------------------------------------------------------------------


def scores(items: pd.DataFrame) -> Rows:
    """Mean score by arm and category, and over categories, with intervals over seeds and items."""
    rows: Rows = {}
    for arm, part in items.groupby("arm", sort=False):
        matrices = {name: _matrix(part[part["category"] == name]) for name in NAMES}
        rows[arm] = {n: stats.crossed_interval(m) for n, m in matrices.items()}
        rows[arm]["mean"] = stats.crossed_interval(np.hstack(list(matrices.values())))
    return _in_arms_order(rows)


def _matrix(part: pd.DataFrame) -> np.ndarray:
    """Scores, (seeds, items)."""
    return part.pivot(index="seed", columns="item", values="score").to_numpy(dtype=float)


def against_start(items: pd.DataFrame, arms: Sequence[str]) -> Rows:
    """Mean score of each arm minus that of the start, paired by seed and item."""
    return {arm: {"mean": differences(items, arm, ["base"])["base"]["mean"]} for arm in arms}


def against_start_claim(gaps: Rows, judge: str = STAND_IN) -> str:
    """Who got better and who got worse, as a sentence."""
    words = {"above": [], "below": [], "not told apart from": []}
    for arm, row in gaps.items():
        words[_word(row["mean"])].append(label(arm, judge))
    told = [f"{word} the start: {', '.join(names)}" for word, names in words.items() if names]
    return "Mean score " + "; ".join(told) + "."


def marks(rows: Rows, column: str) -> dict[str, str]:
    """`best` and `second` of a column, only where their intervals lie above those of all who come after; the oracle is
    left out."""
    order = sorted((arm for arm in rows if arm != "oracle"), key=lambda arm: -rows[arm][column].value)
    found = {}
    for place, name in enumerate(("best", "second")):
        rest = order[place + 1 :]
        if not rest or not all(rows[order[place]][column].lo > rows[arm][column].hi for arm in rest):
            break
        found[order[place]] = name
    return found


def score_table(rows: Rows, judge: str = STAND_IN) -> pd.DataFrame:
    """Table 1 of the paper, measured here."""
    columns = (*NAMES, "mean")
    marked = {column: marks(rows, column) for column in columns}
    out = []
    for arm, row in rows.items():
        cells = {c: f"{row[c]} {marked[c].get(arm, '')}".strip() for c in columns}
        out.append({"arm": label(arm, judge), **cells})
    return pd.DataFrame(out)


def differences(items: pd.DataFrame, arm: str, rivals: Sequence[str]) -> Rows:
    """Mean score of an arm minus that of each rival, paired by seed and item."""
    rows: Rows = {}
    for rival in rivals:
        gaps = {
            name: _matrix(items[(items["arm"] == arm) & (items["category"] == name)])
            - _matrix(items[(items["arm"] == rival) & (items["category"] == name)])
            for name in NAMES
        }
        rows[rival] = {n: stats.crossed_interval(g) for n, g in gaps.items()}
        rows[rival]["mean"] = stats.crossed_interval(np.hstack(list(gaps.values())))
    return rows


def verdicts(gaps: Rows, judge: str = STAND_IN) -> pd.DataFrame:
    """Each difference with its interval, and what it means."""
    out = []
    for rival, row in gaps.items():
        out.append({"against": label(rival, judge)} | {n: _verdict(each) for n, each in row.items()})
    return pd.DataFrame(out)


def _verdict(gap: Interval) -> str:
    word = "undecided"
    if gap.excludes(0):
        word = "better" if gap.value > 0 else "worse"
    return f"{gap.value:+.2f} [{gap.lo:+.2f}, {gap.hi:+.2f}] {word}" if gap.known else f"{gap.value:+.2f}"


def best_constant(rows: Rows) -> str:
    """Of the arms with fixed weights the one with the highest mean on the test items, hence flattered."""
    return max((arm for arm in CONSTANT if arm in rows), key=lambda arm: rows[arm]["mean"].value)


def score_claim(gaps: Rows) -> str:
    """Where the Conductor stands, as a sentence."""
    told = [f"{_word(row['mean'])} {label(rival)} ({row['mean'].value:+.2f})" for rival, row in gaps.items()]
    return f"Mean score of the Conductor: {', '.join(told)}"


def _word(gap: Interval) -> str:
    if not gap.excludes(0):
        return "not told apart from"
    return "above" if gap.value > 0 else "below"


def score_alt(rows: Rows, judge: str = STAND_IN) -> str:
    """Table 1 in words."""
    told = [f"{label(arm, judge)} " + ", ".join(f"{n} {row[n].value:.2f}" for n in NAMES) for arm, row in rows.items()]
    return "Score by arm and category. " + "; ".join(told) + "."


def component_table(components: pd.DataFrame, judge: str = STAND_IN) -> Rows:
    """What rewards and verifier say of test replies, over all categories, with intervals over seeds."""
    rows: Rows = {}
    for arm, part in components.groupby("arm", sort=False):
        means = part.groupby("seed")[["right", "thinks", *COMPONENTS]].mean()
        rows[arm] = {c: stats.t_interval(means[c].to_numpy()) for c in means}
    return {label(arm, judge): row for arm, row in _in_arms_order(rows).items()}


def verdict_table(components: pd.DataFrame, verdicts: Sequence[bool | None]) -> pd.DataFrame:
    """Share of replies that a judge calls good, beside the verifier, by arm and category; replies without a verdict
    are counted and left out."""
    rows = []
    for (arm, name), part in components.assign(good=verdicts).groupby(["arm", "category"], sort=False):
        known = part[part["good"].notna()]
        good, right = known["good"].astype(bool), known["right"] >= 0.5
        rows.append(
            {
                "arm": label(arm),
                "category": name,
                "judge": str(stats.share_interval(int(good.sum()), len(known))) if len(known) else "no verdict",
                "verifier, at least half right": round(float(right.mean()), 2),
                "agree": round(float((right == good).mean()), 2),
                "no verdict": len(part) - len(known),
            }
        )
    return pd.DataFrame(rows)


# Over training ----------------------------------------------------------------------------------


def weights_over_training(rollouts: pd.DataFrame, weights: Rows) -> Figure:
    """Figure 3: the Conductor's weights by category over training; weights: the final ones, for the title."""
    long = _long(rollouts[rollouts["arm"] == "conductor"], [f"w_{name}" for name in COMPONENTS], "weight")
    return draw.lines(
        long, "step", "weight", by="reward", title=weights_claim(weights), xlabel="GRPO step",
        ylabel="weight", panels="category", note="The weights that the Conductor would give, pi(h), at every rollout.",
    )  # fmt: skip


def _long(rollouts: pd.DataFrame, columns: Sequence[str], value: str) -> pd.DataFrame:
    means = rollouts.groupby(["seed", "step", "category"])[list(columns)].mean().reset_index()
    long = means.melt(["seed", "step", "category"], var_name="reward", value_name=value)
    return _in_order(long.assign(reward=long["reward"].str.removeprefix("w_")))


def _in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows by category, in the order of CATEGORIES: panels come in the order of their first row."""
    return frame.sort_values("category", key=lambda c: c.map(NAMES.index), kind="stable")


def final_weights(components: pd.DataFrame) -> Rows:
    """The Conductor's weights on test replies after training, by category and reward, with intervals over seeds."""
    part = components[components["arm"] == "conductor"]
    rows: Rows = {}
    for name in NAMES:
        means = part[part["category"] == name].groupby("seed")[[f"w_{c}" for c in COMPONENTS]].mean()
        rows[name] = {c: stats.t_interval(means[f"w_{c}"].to_numpy()) for c in COMPONENTS}
    return rows


def weights_claim(weights: Rows) -> str:
    """What the weights settle on, as a sentence: the rewards whose intervals reach that of the heaviest."""
    told: dict[str, list[str]] = {}
    for name, row in weights.items():
        top = max(row.values(), key=lambda each: each.value)
        held = [reward for reward, each in row.items() if each is top or (each.known and each.hi >= top.lo)]
        told.setdefault(" or ".join(held), []).append(name)
    return "The Conductor ends on " + "; ".join(f"{held} ({', '.join(names)})" for held, names in told.items())


def weights_alt(weights: Rows) -> str:
    """Figure 3 in words."""
    told = [f"{name} " + ", ".join(f"{k} {v.value:.2f}" for k, v in row.items()) for name, row in weights.items()]
    return "Weights of the Conductor over training, one panel per category. On test replies: " + "; ".join(told) + "."


def component_curves(rollouts: pd.DataFrame, group: int) -> Figure:
    """What the rewards measure, and the verifier, over training, some arms."""
    columns = ("quality", *COMPONENTS)
    part = rollouts[rollouts["arm"].isin(SHOWN)]
    means = part.groupby(["arm", "seed", "step"])[list(columns)].mean().reset_index()
    long = means.melt(["arm", "seed", "step"], var_name="measure", value_name="value")
    long = long.assign(arm=[label(arm) for arm in long["arm"]])
    return draw.lines(
        long, "step", "value", by="arm", title=components_claim(rollouts), xlabel="GRPO step",
        ylabel="mean of rollouts", panels="measure", same_scale=False, bins=12,
        note=f"As measured, before ranks in groups of {group}: ppl and ent in nats; quality is the verifier's.",
    )  # fmt: skip


def components_claim(rollouts: pd.DataFrame) -> str:
    """How far each arm moved its own reward, as a sentence."""
    told = []
    for arm, reward in (("nover", "ppl"), ("em", "ent"), ("pref", "pref"), ("oracle", "quality")):
        first, last = _ends(rollouts[rollouts["arm"] == arm], reward)
        told.append(f"{label(arm)} {reward} {first:.2f} to {last:.2f}")
    return f"What is paid moves: {', '.join(told)}"


def _ends(part: pd.DataFrame, column: str) -> tuple[float, float]:
    """Means over the first and the last quarter of the steps."""
    steps = part["step"].max() + 1
    first, last = part[part["step"] < steps / 4], part[part["step"] >= steps * 3 / 4]
    return float(first[column].mean()), float(last[column].mean())


def components_alt(rollouts: pd.DataFrame) -> str:
    """The component curves in words."""
    told = []
    for arm in SHOWN:
        ends = {c: _ends(rollouts[rollouts["arm"] == arm], c) for c in ("quality", *COMPONENTS)}
        told.append(f"{label(arm)} " + ", ".join(f"{c} {a:.2f} to {b:.2f}" for c, (a, b) in ends.items()))
    return "Rewards over training, from the first to the last quarter of the steps. " + "; ".join(told) + "."


def lengths(rollouts: pd.DataFrame) -> Figure:
    """Mean tokens of a reply over training, by category, some arms."""
    part = rollouts[rollouts["arm"].isin(SHOWN)]
    means = part.groupby(["arm", "seed", "step", "category"])["tokens"].mean().reset_index()
    means = means.assign(arm=[label(arm) for arm in means["arm"]])
    return draw.lines(
        _in_order(means), "step", "tokens", by="arm", title=length_claim(rollouts), xlabel="GRPO step",
        ylabel="tokens per reply", panels="category", bins=12,
    )  # fmt: skip


def length_claim(rollouts: pd.DataFrame) -> str:
    """How long replies become, as a sentence."""
    told = [f"{label(arm)} {_ends(rollouts[rollouts['arm'] == arm], 'tokens')[1]:.0f}" for arm in SHOWN]
    first = np.mean([_ends(rollouts[rollouts["arm"] == arm], "tokens")[0] for arm in SHOWN])
    return f"From about {first:.0f} tokens per reply to: {', '.join(told)}"


def length_alt(rollouts: pd.DataFrame) -> str:
    """Lengths in words."""
    return f"Tokens per reply over training, one panel per category. {length_claim(rollouts)}."


# The sceptic ------------------------------------------------------------------------------------

BANDITS = {
    "as in the paper": ({}, {}),
    "the state tells the category only": ({"blind": True}, {}),
    "one reward that all have": ({"saturated": True}, {}),
    "the same, centred": ({"saturated": True}, {"centred": True}),
}
BANDIT_RATE = 0.02  # of the head, so that it converges in the updates there are


def bandits(head: HeadSettings, seeds_: int, updates: int = 150) -> Rows:
    """The made-up experiment in four versions, with intervals over seeds."""
    fast = head.model_copy(update={"learning_rate": BANDIT_RATE, "homogeneous": False, "joint": False})
    rows: Rows = {}
    for name, (world, changes) in BANDITS.items():
        own = fast.model_copy(update=changes)
        runs = pd.DataFrame([sceptic.bandit(own, seed, **world, updates=updates) for seed in range(seeds_)])
        rows[name] = {c: stats.t_interval(runs[c].to_numpy()) for c in runs}
    return rows


BANDIT_LABELS = {
    "own": "corr. with the rollout's own score",
    "truth": "corr. with what is true",
    "first": "weight of the reward that all have",
}


def bandit_claim(rows: Rows) -> str:
    """What the experiment says, as a sentence."""
    own, truth = rows["as in the paper"]["own"], rows["as in the paper"]["truth"]
    first = rows["one reward that all have"]["first"]
    told = f"the rollout's own score ({own.value:.2f})", f"the truth ({round(truth.value, 2) + 0.0:.2f})"  # never -0.00
    follows = f"{told[0]}, not {told[1]}" if own.lo > truth.hi and not truth.excludes(0) else " and ".join(told)
    return f"Emphasis follows {follows}; a reward that everybody gets takes {first.value:.0%} of the weight"


def bandit_alt(rows: Rows) -> str:
    """The experiment in words."""
    told = []
    for name, row in rows.items():
        told.append(f"{name}: " + ", ".join(f"{says} {row[column]}" for column, says in BANDIT_LABELS.items()))
    return "Made-up rollouts of which the truth is known. " + "; ".join(told) + "."


def observed(rollouts: pd.DataFrame, group: int, arms: Sequence[str]) -> Rows:
    """What the advantage went with in real training, within groups, with intervals over seeds."""
    rows: Rows = {}
    for arm in arms:
        found = sceptic.observed(rollouts[rollouts["arm"] == arm], group)
        rows[arm] = {c: stats.t_interval(found[c].to_numpy()) for c in found if c != "seed"}
    return rows


# All numbers ------------------------------------------------------------------------------------


def metrics(results: Results, rows: Rows) -> dict[str, object]:
    """Everything that is compared later, by flat name."""
    out: dict[str, object] = {}
    for arm, row in rows.items():
        out |= {f"{arm}.{name}.score": value for name, value in row.items()}
        out[f"{arm}.tokens"] = float(results.items[results.items["arm"] == arm]["tokens"].mean())
    out |= {
        f"conductor.weights.{name}.{reward}": value
        for name, row in final_weights(results.components).items()
        for reward, value in row.items()
    }
    return out | {
        f"reward_model.{row.category}.accuracy": stats.share_interval(row.right, row.pairs)
        for row in results.agreement.itertuples()
    }


def agreement_table(agreement: pd.DataFrame) -> pd.DataFrame:
    """How often the reward model prefers what the verifier scores higher, on held-out pairs."""
    return pd.DataFrame(
        [
            {"category": row.category, "pairs": row.pairs, "agrees": str(stats.share_interval(row.right, row.pairs))}
            for row in agreement.itertuples()
        ]
    )
