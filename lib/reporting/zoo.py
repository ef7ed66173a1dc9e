"""Tables and figures of the policy zoo lesson: from records to pictures, no state of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from lib import ledger, seeds
from lib.draw import figures
from lib.params import Params, ZooSettings
from lib.stats import Interval
from lib.zoo.evaluate import front_columns, paid_for
from lib.zoo.policies import Policy
from lib.zoo.recipes import ACTIONS, DOMAINS, OBJECTIVES, recipes
from lib.zoo.train import Zoo


def recipe_table(params: Params) -> pd.DataFrame:
    """Who is trained where and for what, one line per policy."""
    lines = [
        {
            "domain": recipe.domain,
            "policy": recipe.name,
            "paid for": _paid_for(recipe),
            "where": recipe.task.replace("_", " "),
            "steps": f"{recipe.settings.timesteps:,}",
            "seeds": params.zoo.seeds,
        }
        for domain in DOMAINS
        for recipe in recipes(params, domain)
    ]
    return pd.DataFrame(lines)


def _paid_for(recipe) -> str:
    weights = getattr(recipe.objective, "weights", None)
    if weights is None:
        return {"RewardMachine": "reward machine", "Vector": "all, gradients combined"}[type(recipe.objective).__name__]
    named = zip(weights, OBJECTIVES[recipe.domain], strict=True)
    return " + ".join(name if w == 1 else f"{w:.2g} {name}" for w, name in named if w)


def caption(domain: str, zoo: ZooSettings) -> str:
    """Caption of a domain's table of results."""
    unit = "per-step means" if domain == "education" else "rates in the composite room"
    return f"{domain}: {unit}, {zoo.episodes} episodes for each of {zoo.seeds} seeds, 95 % intervals over seeds"


def learning_curves(zoo: Zoo) -> Figure:
    """Undiscounted return in what each policy is paid for, one panel with its own scale per policy."""
    return figures.curves(
        _paid(zoo), x="steps", y="value", by="policy", seed="seed", panels="policy",
        title=f"What each {zoo.domain} policy earns while it learns", same_scale=False,
        xlabel="environment steps", ylabel="return, own objectives",
        rng=seeds.rng("figure", "curves", zoo.domain),
    )  # fmt: skip


def curves_alt(zoo: Zoo) -> str:
    """The learning curves in words: mean return in the first and in the last tenth of the steps."""
    frame = _paid(zoo)
    share = frame["steps"] / frame["steps"].groupby(frame["policy"]).transform("max")
    first, last = (frame[part].groupby("policy")["value"].mean() for part in (share <= 0.1, share > 0.9))
    first = first.reindex(last.index).fillna(last)  # a training of one rollout has one value
    told = ", ".join(f"{name} from {first[name]:.2f} to {last[name]:.2f}" for name in zoo.policies)
    return f"Learning curves of the {zoo.domain} policies, mean and interval over seeds. Mean return: {told}."


def _environments(zoo: Zoo, name: str) -> int:
    """How many environments side by side a policy was trained in."""
    return zoo.policies[name][0].about["settings"]["num_envs"]


def _paid(zoo: Zoo) -> pd.DataFrame:
    """Training episodes of all policies with the mean return of their own objectives as `value`."""
    frames = []
    for name in zoo.policies:
        rows = zoo.curves[zoo.curves["arm"] == name]
        settled = rows["steps"] / _environments(zoo, name) > rows["length"].max()
        rows = rows[settled] if settled.any() else rows  # earlier ends are short episodes only: survivors
        columns = [f"return_{i}" for i in paid_for(name)]
        frames.append(rows.assign(value=rows[columns].mean(axis=1), policy=name))
    return pd.concat(frames, ignore_index=True)


def education_actions(record: pd.DataFrame) -> Figure:
    """Shares of the actions by mastery, one panel per trained policy."""
    rows = record[record["method"].str.match("SO-|MO-")]
    rows = rows.assign(mastery=rows["mastery"].round(1))
    return figures.action_shares(
        rows, x="mastery", action="action", names=ACTIONS["education"], by="method",
        title="What each policy asks, by the student's mastery",
    )  # fmt: skip


def actions_alt(record: pd.DataFrame) -> str:
    """The favourite action of each trained policy, in words."""
    rows = record[record["method"].str.match("SO-|MO-")]
    shares = rows.groupby("method")["action"].value_counts(normalize=True).unstack(fill_value=0.0)
    names = ACTIONS["education"]
    told = ", ".join(f"{m} {names[int(s.idxmax())]} ({s.max():.0%})" for m, s in shares.iterrows())
    return f"Shares of the actions by mastery, one panel for each policy. Most frequent: {told}."


def sampler(policy: Policy) -> Callable[[np.ndarray], int]:
    """The policy as a function of one view, sampling from a stream of its own."""
    rng = seeds.rng("animation", policy.name)
    return lambda view: int(policy.act(view[None], rng.random(1))[0])


def animation_alt(name: str, frames: np.ndarray) -> str:
    """What an animation shows, in words."""
    return f"{name} walks through a 6 by 6 room with a goal, lava and two pieces of gold for {len(frames) - 1} steps."


FRONT = ("hv_union", "hv_mean", "sparsity", "cardinality")


def measures(rows: dict[str, dict[str, Interval]]) -> dict[str, dict[str, Interval]]:
    """The part of a result that is about single episodes."""
    return {method: {k: v for k, v in measured.items() if k not in FRONT} for method, measured in rows.items()}


def fronts(rows: dict[str, dict[str, Interval]]) -> dict[str, dict[str, Interval]]:
    """The part of a result that is about fronts: both hypervolumes, sparsity, cardinality."""
    return {method: {name: measured[name] for name in FRONT} for method, measured in rows.items()}


def rates(rows: dict[str, dict[str, Interval]]) -> dict[str, dict[str, Interval]]:
    """Success, lava and gold of every method in a minigrid result."""
    return {method: {name: measured[name] for name in ("success", "lava", "gold")} for method, measured in rows.items()}


def union_growth(growth: pd.DataFrame) -> Figure:
    """Union hypervolume against the number of episodes, with that of the mean as a dashed line."""
    with figures.theme():
        figure = Figure(figsize=(6.8, 3.8), layout="constrained")
        axes = figure.add_subplot()
        for method, rows in growth.groupby("method"):
            tint = figures.colour(method)
            axes.plot(rows["episodes"], rows["union"], marker=figures.marker(method), color=tint, label=method)
            axes.axhline(rows["mean"].iloc[0], color=tint, linestyle="--", linewidth=1)
        axes.set_xscale("log")
        sizes = sorted(growth["episodes"].unique())
        axes.set_xticks(sizes, [str(n) for n in sizes])
        axes.minorticks_off()
        axes.legend(loc="upper left", frameon=False)
        axes.set(xlabel="episodes in the union, N", ylabel="hypervolume (dashed: of the mean)")
        axes.set_title("The same policy looks better the more often it is tried")
    return figure


def growth_alt(growth: pd.DataFrame) -> str:
    """The growth of the union's hypervolume in words."""
    ends = growth.sort_values("episodes").groupby("method")
    told = ", ".join(
        f"{m} from {rows['union'].iloc[0]:.2f} to {rows['union'].iloc[-1]:.2f} (mean {rows['mean'].iloc[0]:.2f})"
        for m, rows in ends
    )
    most = growth["episodes"].max()
    return f"Hypervolume of the union of N episodes, N from 1 to {most}, beside that of the mean: {told}."


def pareto(table: pd.DataFrame, domain: str) -> Figure:
    """Mean vectors of the trained policies and the oracle in 3-D and three projections."""
    columns = front_columns(domain)
    kept = table[table["method"].str.match("SO-|MO-|random|oracle")]
    means = kept.groupby(["method", "seed"])[columns].mean()
    points = {method: means.loc[method].to_numpy() for method in means.index.unique("method")}
    per = ", mean per step" if domain == "education" else ", share"
    labels = [name + per for name in OBJECTIVES[domain]]
    return figures.pareto(points, labels=labels, title=f"No {domain} policy has everything")


def weighted(table: pd.DataFrame, domain: str, settings: Sequence[Sequence[float]]) -> Figure:
    """Weighted mean of the objectives for every trained policy, one panel per setting of the weights."""
    columns = front_columns(domain)
    means = table[table["method"].str.match("SO-|MO-")].groupby("method")[columns].mean()
    with figures.theme():
        figure = Figure(figsize=(3.1 * max(2, len(settings)), 3.2), layout="constrained")
        panels = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
        for axes, weights in zip(panels, settings, strict=True):
            share = np.asarray(weights, dtype=float) / max(sum(weights), 1e-9)
            utility = means.to_numpy() @ share
            winner = utility.argmax()
            tints = [figures.colour(m) if i == winner else "0.8" for i, m in enumerate(means.index)]
            axes.barh(means.index, utility, color=tints)
            named = [f"{w:.2f} {name}" for w, name in zip(share, OBJECTIVES[domain], strict=True) if w]
            axes.set(xlabel="weighted mean reward")
            axes.set_title("\n".join(named) or "no weight", fontsize=10)
        figure.suptitle("The weights pick the policy")
    return figure


def training_cost(trained: dict[str, Zoo]) -> pd.DataFrame:
    """Measured core seconds and estimated energy by stack of policies, beside what the paper assumes."""
    lines = []
    for domain, zoo in trained.items():
        for stack, rows in zoo.seconds.groupby("stack"):
            total = float(rows["seconds"].sum())
            lines.append(
                {
                    "domain": domain,
                    "trained together": ", ".join(zoo.stacks[stack]),
                    "seeds": int(rows["seeds"].sum()),
                    "core seconds": round(total, 1),
                    "kWh, estimated": ledger.measured_energy(total, ledger.WATTS_PER_CORE),
                }
            )
    paper = {"domain": "the paper's assumption", "core seconds": 8_000 * 3_600.0, "trained together": "one policy"}
    lines.append(paper | {"seeds": 1, "kWh, estimated": ledger.TABLE_9.train_kwh})
    return pd.DataFrame(lines)


def home_and_away(rows: pd.DataFrame) -> Figure:
    """What each minigrid policy earns in its own objective at home and in the composite room."""
    with figures.theme():
        figure = Figure(figsize=(6.8, 0.9 + 0.6 * len(rows)), layout="constrained")
        axes = figure.add_subplot()
        for place, row in enumerate(rows.itertuples()):
            tint = figures.colour(row.policy)
            axes.plot([row.home.value, row.composite.value], [place, place], color="0.85", zorder=0)
            for where, interval, fill in (("home", row.home, tint), ("away", row.composite, "white")):
                axes.plot([interval.lo, interval.hi], [place, place], color=tint, linewidth=2)
                axes.plot(interval.value, place, "o", color=tint, markerfacecolor=fill, markersize=9)
                if place == 0:
                    axes.annotate(where, (interval.value, place), (0, 9), textcoords="offset points", ha="center")
        axes.set_yticks(range(len(rows)), [f"{row.policy}: {row.objective}" for row in rows.itertuples()])
        axes.invert_yaxis()
        axes.set(xlabel="share of its own objective, per episode", xlim=(-0.02, 1.05))
        axes.set_title("Own objective at home (filled) and in the composite room (hollow)")
        axes.margins(y=0.25)
    return figure


def home_alt(rows: pd.DataFrame) -> str:
    """The same in words."""
    told = ", ".join(f"{r.policy} {r.home.value:.2f} and {r.composite.value:.2f}" for r in rows.itertuples())
    return f"Share of its own objective that each MiniGrid policy gets at home and in the composite room: {told}."


def rates_alt(rows: dict[str, dict[str, Interval]]) -> str:
    """Success, lava and gold rates in words."""
    told = "; ".join(
        f"{method} {m['success'].value:.0%}, {m['lava'].value:.0%}, {m['gold'].value:.0%}" for method, m in rows.items()
    )
    return f"Success, lava and gold in the composite room, with intervals: {told}."


def pareto_alt(table: pd.DataFrame, domain: str) -> str:
    """The mean vectors in words."""
    columns = front_columns(domain)
    means = table[table["method"].str.match("SO-|MO-")].groupby("method")[columns].mean()
    told = "; ".join(f"{method} " + ", ".join(f"{x:.2f}" for x in row) for method, row in means.iterrows())
    return f"Mean vectors ({', '.join(OBJECTIVES[domain])}) of the {domain} policies in space and projections: {told}."
