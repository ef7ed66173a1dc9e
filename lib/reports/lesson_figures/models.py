"""Drawings and tables of lesson 03 and its appendix: training curves, the ladder, headroom, a reply token by token."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from html import escape

import numpy as np
import pandas as pd
import seaborn as sns
from IPython.display import display
from matplotlib.figure import Figure

from lib import plots, stats
from lib.language_models.generation import Generation
from lib.language_models.tokenizer import get_tokenizer
from lib.plots.render import render_png
from lib.plots.sliders import live
from lib.plots.styles import EMPHASIS

LADDER = ["lab-nano", "lab-mini", "lab-large"]  # from the cheapest to the most expensive
CONTROL = "lab-control"  # the size of lab-mini, the training chains of lab-large
BEST_CONSTANT = "best constant"
RELIABLE = 0.75  # accuracy from which a model counts as reliable
UNRELIABLE = 0.4  # accuracy up to which it does not
# What later lessons rely on: model, operations, comparison, accuracy.
LADDER_REQUIREMENTS = [
    ("lab-nano", 2, ">=", RELIABLE),
    ("lab-nano", 4, "<=", UNRELIABLE),
    ("lab-mini", 4, ">=", RELIABLE),
    ("lab-mini", 6, "<=", UNRELIABLE),
    ("lab-large", 8, ">=", 0.9),
]


@plots.theme()
def plot_training_curves(
    curves: pd.DataFrame, title: str = "Loss and accuracy during training"
) -> Figure:
    """Draws loss and accuracy of every model over its training, a panel for each model.

    Args:
        curves: Rows with model, step, loss and accuracy, as `build.read_curves` returns them.
        title: The message of the figure.

    Returns:
        The figure.
    """
    panels = curves.groupby("model", sort=False)
    num_lines = -(-len(panels) // 3)  # three panels side by side
    note = "Grey: loss on the training corpus, nats per token, left. Colour: accuracy on dev items, right."
    figure = plots.new_figure(title, plots.MAX_WIDTH, 2.4 * num_lines + 0.6, note)
    all_axes = plots.add_panels(figure, len(panels))
    for index, (axes, (name, rows)) in enumerate(zip(all_axes, panels, strict=True)):
        is_leftmost = index % 3 == 0
        is_rightmost = index % 3 == 2 or index == len(panels) - 1
        sns.lineplot(rows, x="step", y="loss", color=plots.FAINT, ax=axes)
        axes.set(title=name, xlabel="updates", yscale="log")
        axes.set_ylabel("loss" if is_leftmost else "")
        right_axes = axes.twinx()
        colour = plots.colour(name)
        sns.lineplot(rows, x="step", y="accuracy", color=colour, marker="o", ax=right_axes)
        right_axes.set_ylim(-0.02, 1.02)
        right_axes.set_ylabel("accuracy" if is_rightmost else "")
        right_axes.grid(False)
    return figure


def find_steepest_rise(curve: pd.DataFrame) -> pd.Series:
    """Finds where accuracy rises most within a tenth of a training.

    Args:
        curve: Curve of one model, rows with step, accuracy and loss.

    Returns:
        step, accuracy and loss before the rise, and the same after it, as "step after" and so on.
    """
    num_rows = max(1, round(len(curve) / 10))
    after = curve.shift(-num_rows).fillna(curve.iloc[-1])
    start = (after["accuracy"] - curve["accuracy"]).idxmax()
    return pd.concat([curve.loc[start], after.loc[start].add_suffix(" after")])


def describe_leap(name: str, curve: pd.DataFrame) -> str:
    """Says what accuracy and loss do where accuracy rises most.

    Args:
        name: The model.
        curve: Of its training, rows with step, accuracy and loss.

    Returns:
        A sentence without a full stop, for a title.
    """
    rise = find_steepest_rise(curve[["step", "accuracy", "loss"]])
    steps = f"updates {rise['step']:.0f} and {rise['step after']:.0f}"
    accuracies = f"from {rise['accuracy']:.0%} to {rise['accuracy after']:.0%} correct"
    return (
        f"between {steps} {name} goes {accuracies}, "
        f"its loss from {rise['loss']:.2f} to {rise['loss after']:.2f}"
    )


def add_best_constant(chains: pd.DataFrame) -> pd.DataFrame:
    """Adds the best constant to the replies: the most common answer for every number of operations.

    Args:
        chains: Replies to arithmetic chains, rows with method, style, difficulty, answer (the reference) and correct.

    Returns:
        The rows, and those of one more method, "best constant".
    """
    questions = chains[chains["method"] == LADDER[0]]
    answers = questions.groupby(["style", "difficulty"])["answer"]
    most_common = answers.transform(lambda references: references.mode()[0])
    is_correct = (questions["answer"] == most_common).astype(float)
    return pd.concat([chains, questions.assign(method=BEST_CONSTANT, correct=is_correct)])


def describe_reach(accuracy: pd.DataFrame, style: str) -> str:
    """Says up to how many operations each model of the ladder is reliable.

    Args:
        accuracy: Estimates by style, method and difficulty (number of operations).
        style: "plain" (digits) or "words".

    Returns:
        A sentence. A model is reliable up to a length if it is so at every shorter one, too.
    """
    by_difficulty = accuracy["value"][style].unstack("method")[LADDER].sort_index()
    is_reliable = by_difficulty >= RELIABLE
    num_operations = is_reliable.cumprod().sum()
    reach = ", ".join(f"{name} up to {number}" for name, number in num_operations.items())
    wording = {"plain": "digits", "words": "words"}[style]
    return f"Correct at least {RELIABLE:.0%} of the time (in {wording}): {reach} operations"


def plot_ladder(accuracy: pd.DataFrame, style: str) -> Figure:
    """Draws accuracy over the number of operations, for the models of the ladder, the control and the best constant.

    Args:
        accuracy: Estimates by style, method and difficulty.
        style: "plain" or "words".

    Returns:
        The figure.
    """
    return plots.line_plot(
        accuracy.loc[style].reset_index(),
        "difficulty",
        "value",
        "method",
        describe_reach(accuracy, style),
        "operations in the chain",
        "accuracy",
        seed=None,
        dashed=[CONTROL, BEST_CONSTANT],
    )


def tabulate_models(
    prices: Mapping[str, object], parameters: Mapping[str, int], curves: pd.DataFrame
) -> pd.DataFrame:
    """Makes the table of models: size, updates of training, operations, price and speed of a token.

    Args:
        prices: `TokenPrice` by model.
        parameters: Number of weights by model.
        curves: Training curves, rows with model and step.

    Returns:
        A row for each model in `prices`.
    """
    last_steps = curves.groupby("model")["step"].max()
    rows = {}
    for name, price in prices.items():
        rows[name] = {
            "parameters": parameters[name],
            "updates": last_steps[name],
            "operations/token": round(price.flops),
            "$/1,000 tokens": 1000 * price.cost_usd,
            "tokens/s by the declared clock": round(1 / price.seconds),
        }
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


def plot_experts(replies: pd.DataFrame) -> Figure:
    """Draws the accuracy of every expert on every kind of question; rows with method, group and correct."""
    by_kind = replies.pivot_table(index="method", columns="group", values="correct", sort=False)
    best_by_kind = by_kind.idxmax()
    if best_by_kind.nunique() == 1:
        title = f"{best_by_kind.iloc[0]} is best for every kind of question"
    else:
        number = best_by_kind.nunique()
        title = f"No model is best for every kind of question: {number} models are needed"
    return plots.heatmap(by_kind, title, "accuracy", "kind of question", "model")


def plot_families(replies: pd.DataFrame) -> Figure:
    """Draws the accuracy of every model in every family; rows with method, group and correct."""
    by_family = replies.pivot_table(index="method", columns="group", values="correct", sort=False)
    by_family = by_family.dropna(axis=1)
    best = by_family.idxmax().where(by_family.max() > 0, "nobody")
    best_families = [f"{name} in {', '.join(best.index[best == name])}" for name in best.unique()]
    number = "No" if best.nunique() > 1 else "One"
    title = f"{number} model is best everywhere: {'; '.join(best_families)}"
    return plots.heatmap(by_family, title, "accuracy", "family", "model")


def plot_temperatures(by_temperature: pd.DataFrame) -> Figure:
    """Draws accuracy over temperature, a line for each model; estimates by method and temperature."""
    values = by_temperature["value"].unstack("temperature").loc[LADDER]
    coldest, hottest = values.columns[0], values.columns[-1]
    ends = values[[coldest, hottest]]
    changes = [f"{name} {cold:.0%} to {hot:.0%}" for name, cold, hot in ends.itertuples()]
    title = f"From temperature {coldest:g} to {hottest:g}: {', '.join(changes)}"
    labels = ("temperature", "value", "method", title, "temperature", "accuracy")
    return plots.line_plot(by_temperature.reset_index(), *labels, seed=None)


def plot_probes(probes: pd.DataFrame) -> Figure:
    """Draws the accuracy of linear probes over layers, a panel for each class that they predict.

    Args:
        probes: Estimates by method ("lab-policy", "untrained", "best constant"), group and layer.
    """
    best_layer = probes["value"].groupby(["group", "method"]).max().unstack()
    added = (best_layer["lab-policy"] - best_layer["untrained"]).drop("category")
    title = (
        f"The probe finds the category in {best_layer.loc['category', 'lab-policy']:.0%} of "
        f"prompts; training adds most for the difficulty of {added.idxmax()} "
        f"({100 * added.max():+.0f} points)"
    )
    labels = ("layer", "value", "method", title, "layer (0: embedding)", "accuracy")
    style = {"panels": "group", "dashed": ["best constant"], "roles": {"untrained": "start"}}
    return plots.line_plot(probes.reset_index(), *labels, seed=None, **style)


def select_wrong_replies(replies: pd.DataFrame) -> pd.DataFrame:
    """The first wrong reply of each model where it is mostly correct, and where it mostly fails.

    Args:
        replies: Rows with method, group, style, difficulty, correct, prompt, reply and answer.

    Returns:
        prompt, reply and answer by method and where: correct on at least half of the items, or on less than a quarter.
    """
    cell_columns = ["method", "group", "style", "difficulty"]
    cell_accuracy = replies.groupby(cell_columns)["correct"].transform("mean")
    labels = ["mostly correct", "mostly wrong"]
    where = np.select([cell_accuracy >= 0.5, cell_accuracy < 0.25], labels, "")
    wrong_replies = replies.assign(where=where, reply=replies["reply"].str[:160])
    wrong_replies = wrong_replies[(wrong_replies["correct"] == 0) & (where != "")]
    first_wrong = wrong_replies.groupby(["method", "where"], sort=False)
    return first_wrong[["prompt", "reply", "answer"]].first()


def collect_ladder(ladder_checks: pd.DataFrame, accuracy: pd.DataFrame) -> dict[str, object]:
    """The metrics of the ladder: accuracy at every length that is checked, and whether all checks hold.

    Args:
        ladder_checks: A row for each of LADDER_REQUIREMENTS, with method, difficulty and holds.
        accuracy: Estimates by style, method and difficulty.
    """
    lengths = list(zip(ladder_checks["method"], ladder_checks["difficulty"], strict=True))
    metrics: dict[str, object] = {}
    for name, length in [*lengths, (CONTROL, 8)]:
        key = f"{name.removeprefix('lab-')}.chain.{length}.accuracy"
        metrics[key] = accuracy.loc["plain", name, length]
    metrics["ladder.holds"] = bool(ladder_checks["holds"].all())
    return metrics


def measure_spread(comparisons: pd.DataFrame, seed: int) -> tuple[float, float]:
    """How far another training moves accuracy in a family, wordings together.

    Args:
        comparisons: Rows with model, skill, seed, machine and value, a difference of accuracy.
        seed: Of the shipped models.

    Returns:
        The largest difference under another seed, and the largest under the same seed on another machine.
    """
    families = comparisons["skill"].str.split().str[0].rename("family")
    columns = ["model", families, "seed", "machine"]
    by_training = comparisons.groupby(columns)["value"].mean().abs()
    is_other_seed = by_training.index.get_level_values("seed") != seed
    return float(by_training[is_other_seed].max()), float(by_training[~is_other_seed].max())


def plot_headroom(headroom_by_choice: pd.DataFrame) -> Figure:
    """Draws the headroom of every choice, beside the least that counts.

    Args:
        headroom_by_choice: Estimates, indexed by "choice".

    Returns:
        The figure.
    """
    num_open = int(stats.is_open(headroom_by_choice).sum())
    title = f"Headroom is clearly above {stats.MIN_HEADROOM:g} for {num_open} of {len(headroom_by_choice)} choices"
    label = "gain over the best constant, in accuracy"
    return plots.forest_plot(headroom_by_choice, title, label, line=stats.MIN_HEADROOM, name=30)


def plot_reliability(replies: pd.DataFrame) -> tuple[Figure, str]:
    """Draws accuracy by confidence in ten bins, a panel for each model.

    Args:
        replies: Rows with method, confidence and correct.

    Returns:
        The figure and its alt text.
    """
    bins = np.minimum((10 * replies["confidence"]).astype(int), 9).rename("bin")
    by_bin = replies.groupby(["method", bins], sort=False)
    by_bin = by_bin.agg(
        confidence=("confidence", "mean"), accuracy=("correct", "mean"), share=("correct", "size")
    ).reset_index()
    num_replies = replies.groupby("method")["correct"].size()
    by_bin["share"] /= by_bin["method"].map(num_replies)

    overconfidence = replies["confidence"] - replies["correct"]
    overconfidence = stats.mean(
        replies.assign(overconfidence=overconfidence), "overconfidence", "method"
    )
    worst = overconfidence["value"].idxmax()
    title = f"{worst} is the most overconfident: confidence minus accuracy is {overconfidence['value'][worst]:+.2f}"
    note = "Confidence: probability of the whole reply. Dots grow with their share of replies. Dotted: calibrated."
    groups = by_bin.groupby("method", sort=False)
    with plots.theme():
        figure = plots.new_figure(title, plots.MAX_WIDTH, 2.5 * -(-len(groups) // 3) + 0.6, note)
        all_axes = plots.add_panels(figure, len(groups), sharex=True, sharey=True)
        for axes, (name, rows) in zip(all_axes, groups, strict=True):
            axes.axline((0, 0), (1, 1), color=plots.GREY, linestyle=":")
            dots = {"size": "share", "sizes": (20, 420), "size_norm": (0, 1), "legend": False}
            colour = plots.colour(name)
            sns.scatterplot(rows, x="confidence", y="accuracy", color=colour, **dots, ax=axes)
            axes.set(title=name)
    return figure, plots.describe_estimates(overconfidence, title)


@contextmanager
def watch_training(
    curves: Callable[[], pd.DataFrame], figure: Callable[[pd.DataFrame], Figure], every: float = 3.0
) -> Iterator[None]:
    """Redraws training curves in a live session while the block runs; does nothing in a report.

    Args:
        curves: Returns the curves as far as they have come, as `build.read_curves` does.
        figure: Draws them.
        every: Seconds between two drawings.
    """
    if not live():
        yield
        return
    from ipywidgets import Image  # imported here: a report needs none

    image = Image(format="png")
    block_ended = threading.Event()
    display(image)

    def redraw_until_end() -> None:
        while not block_ended.wait(every):
            table = curves()
            if len(table):
                image.value = render_png(figure(table))

    watcher = threading.Thread(target=redraw_until_end, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        block_ended.set()
        watcher.join()
        image.close()


def reply_html(prompt: str, reply: Generation) -> tuple[str, str]:
    """Renders a reply token by token: the lower a token's probability, the heavier its line.

    Args:
        prompt: What the model was asked.
        reply: Its reply, with the log-probability and entropy of each token.

    Returns:
        HTML and plain text.
    """
    tokens = get_tokenizer().convert_ids_to_tokens(reply.ids)
    spans, words = [], []
    for token, logprob, entropy in zip(tokens, reply.logprobs, reply.entropies, strict=True):
        probability = float(np.exp(logprob))
        width = 1 + round(5 * (1 - probability))  # pixels
        border = f"border-bottom:{width}px solid {EMPHASIS}"
        style = f"display:inline-block;margin:0 0.35rem 0.5rem 0;{border};text-align:center"
        number = f'<br><small style="opacity:0.75">{probability:.2f}</small>'
        text = token.strip()
        spans.append(
            f'<span style="{style}" title="entropy {entropy:.2f} nats">{escape(text)}{number}</span>'
        )
        words.append(f"{text} ({probability:.2f})")
    prompt_html = f"<p><strong>Asked:</strong> {escape(prompt)}</p>"
    markup = f"<div>{prompt_html}<p>{''.join(spans)}</p></div>\n"
    return markup, f"{prompt} -> {' '.join(words)}"
