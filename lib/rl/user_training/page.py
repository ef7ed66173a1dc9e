"""The report of a run: one HTML file that loads nothing, and reads well on a phone and in the dark.

page = render_page(Report(...))
artifacts.write_text(folder / "report.html", page)
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

import pandas as pd
from matplotlib.figure import Figure

from lib import plots, stats
from lib.experiment import results_table
from lib.plots.tables import table_html
from lib.rl.user_training.evaluation import (
    MIN_QUESTIONS,
    START,
    TRAINED,
    HeldOutComparison,
    decide_verdicts,
    format_difference,
)
from lib.rl.user_training.learning_figure import draw_learning

PHONE = "(max-width: 600px)"  # screens that get the narrow drawing of a figure
NUM_EPISODES = 6  # that are shown in words
NUM_PRICED = (
    1_000  # questions that prices in the report are for: those of one are too small to read
)
ORACLE_OF_BASELINES = (
    "The oracle knows beforehand which of the baselines' answers is rewarded most, so no baseline exceeds it; a "
    "controller that asks several experts may."
)
LONGEST_SEGMENT = 1_500  # characters of a part of an episode that are shown

_STYLE = """
:root { --ink: #1c2128; --quiet: #57606a; --paper: #ffffff; --shade: #f5f6f8; --line: #d5dae1; --mark: #8a4b00; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #dfe4ea; --quiet: #a0abb8; --paper: #14181d; --shade: #1d232a; --line: #38414c; --mark: #f0b865; }
}
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: var(--paper); font: 1rem/1.55 system-ui, sans-serif; }
main { max-width: 52rem; margin: 0 auto; padding: 1rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; }
h1, li, p, .pairs td { overflow-wrap: anywhere; }
@media (max-width: 600px) {
  main { padding: 0.5rem 0.9rem 3rem; }
  h1 { font-size: 1.3rem; }
  ul { padding-left: 1.2rem; }
}
h2 { margin-top: 2.4rem; padding-top: 0.8rem; border-top: 1px solid var(--line); font-size: 1.3rem; }
.outcome { padding: 0.7rem 1rem; border-left: 0.3rem solid var(--mark); background: var(--shade); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; }
caption, figcaption { padding: 0.4rem 0; text-align: left; color: var(--quiet); }
th, td { padding: 0.25rem 0.6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
.pairs td { min-width: 10rem; white-space: normal; }
.pairs th { white-space: normal; }
figure { margin: 1.2rem 0; }
img { max-width: 100%; height: auto; }
summary { cursor: pointer; }
.segment { margin: 0.6rem 0; padding: 0.4rem 0.7rem; background: var(--shade); border-radius: 6px; }
.segment b { color: var(--quiet); font-weight: 600; }
.controller { border-left: 0.3rem solid var(--mark); }
pre { margin: 0.2rem 0 0; white-space: pre-wrap; overflow-wrap: anywhere; font: 0.85rem/1.45 ui-monospace, monospace; }
"""


@dataclass(frozen=True)
class Report:
    """What a run came to.

    Attributes:
        title: Title of the page.
        outcome: The sentence of `describe_outcome`.
        notes: What else a reader must know, in sentences: losses, questions that were left out, stand-ins.
        settings: By name, what the run was set to.
        costs: By name, what it took.
        learning: A row per update, with `step` and the columns of `curves`.
        curves: Titles of the columns of `learning` that are drawn; dollars are drawn for NUM_PRICED episodes.
        comparison: The evaluation.
        measures: Titles of the measures in the table of methods.
        details: Further tables by caption, such as the methods under each budget.
        baseline_note: Which baselines may exceed which, in a sentence.
        episodes: A row per held-out episode, with method, condition, correct, cost_usd and spoken: its segments by
            writer, as JSON.
    """

    title: str
    outcome: str
    notes: Sequence[str]
    settings: Mapping[str, object]
    costs: Mapping[str, object]
    learning: pd.DataFrame
    curves: Mapping[str, str]
    comparison: HeldOutComparison
    measures: Mapping[str, str]
    details: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    baseline_note: str = ORACLE_OF_BASELINES
    episodes: pd.DataFrame = field(default_factory=pd.DataFrame)


def render_page(report: Report) -> str:
    """Renders the report of a training as one HTML page."""
    sections = [
        f"<h1>{escape(report.title)}</h1>",
        f'<p class="outcome">{escape(report.outcome)}</p>',
        *_render_notes(report.notes),
        "<h2>Against the start and the baselines</h2>",
        *_render_comparison(report),
        "<h2>Learning</h2>",
        *_render_learning(report),
        *_render_details(report.details),
        *_render_episodes(report.episodes),
        "<h2>Settings and cost</h2>",
        _render_pairs(report.costs, "What the run took"),
        _render_pairs(report.settings, "What it was set to"),
    ]
    body = "\n".join(sections)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(report.title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _render_notes(notes: Sequence[str]) -> list[str]:
    if not notes:
        return []
    return ["<ul>", *(f"<li>{escape(note)}</li>" for note in notes), "</ul>"]


def _render_comparison(report: Report) -> list[str]:
    """Renders the section that compares the trained model with its start and the baselines.

    Returns:
        Two tables, an explanation and two figures, as HTML.
    """
    comparison = report.comparison
    differences = comparison.differences
    measured = pd.DataFrame(index=comparison.means["reward"].index)
    for measure, title in report.measures.items():
        measured[title] = stats.intervals(scale_estimates(comparison.means[measure], measure))

    # What the page is read for comes first, in a table that is narrow enough to be seen whole.
    rewards = measured[[report.measures["reward"]]].copy()
    rewards["trained minus this"] = [
        format_difference(differences.loc[method]) if method in differences.index else ""
        for method in rewards.index
    ]
    rewards["verdict"] = decide_verdicts(differences).reindex(rewards.index).fillna("")
    others = measured.drop(columns=report.measures["reward"])
    caption = f"All methods on {comparison.num_questions} held-out questions"
    if comparison.num_questions >= MIN_QUESTIONS:
        caption += ", with 95 % intervals"
    else:
        caption += ", too few for intervals"
    explanation = (
        "<p>A verdict is about the reward after training minus that of the method: it holds where the whole interval "
        f"is above 0. {escape(report.baseline_note)} The best baseline is the best one on these very "
        "questions, which favours it. Intervals are over questions of one training; another seed may give "
        "another controller.</p>"
    )
    return [
        table_html(rewards.rename_axis("method").reset_index(), caption),
        explanation,
        _render_figure(draw_rewards(comparison)),
        table_html(others.rename_axis("method").reset_index(), "What else was measured on them"),
        _render_figure(draw_tradeoff(comparison)),
    ]


def draw_rewards(comparison: HeldOutComparison) -> Figure:
    """Mean reward of every method."""
    rewards = comparison.means["reward"]
    title = "Reward on held-out questions"
    roles = results_table.find_roles(comparison.rows)
    return plots.forest_plot(
        rewards, title, "mean reward of a question", rows="method", roles=roles
    )


def draw_tradeoff(comparison: HeldOutComparison) -> Figure:
    """Share of right answers against dollars."""
    return plots.tradeoff_plot(
        scale_estimates(comparison.means["cost_usd"], "cost_usd"),
        comparison.means["correct"],
        "Accuracy against cost",
        f"dollars for {NUM_PRICED:,} questions",
        "share of right answers",
        roles=results_table.find_roles(comparison.rows),
    )


def scale_estimates(estimates: pd.DataFrame, measure: str) -> pd.DataFrame:
    """Estimates in the unit that the report shows: dollars for NUM_PRICED questions, everything else as it is.

    Args:
        estimates: With value, ci_low and ci_high.
        measure: What they are estimates of; "cost_usd" is in dollars for one question.
    """
    if measure != "cost_usd":
        return estimates
    columns = ["value", "ci_low", "ci_high"]
    return estimates.assign(**{column: NUM_PRICED * estimates[column] for column in columns})


def _render_learning(report: Report) -> list[str]:
    """Renders the learning curves, as HTML."""
    learning = report.learning
    columns = [name for name in report.curves if name in learning and learning[name].notna().any()]
    if learning.empty or not columns:
        return ["<p>There was no update.</p>"]
    scaled = learning.copy()
    if "cost_usd" in scaled:
        scaled["cost_usd"] *= NUM_PRICED
    figure = draw_learning(scaled, {column: report.curves[column] for column in columns})
    return [_render_figure(figure)]


def _render_details(details: Mapping[str, pd.DataFrame]) -> list[str]:
    """Renders further tables, each under its caption, as HTML.

    Args:
        details: Tables by caption.
    """
    sections = []
    for caption, table in details.items():
        sections += [
            f"<h2>{escape(caption)}</h2>",
            table_html(table, f"{caption}: means over the held-out questions"),
        ]
    return sections


def _render_episodes(episodes: pd.DataFrame) -> list[str]:
    """Renders the conversations of a few held-out questions, before and after training, as HTML.

    Args:
        episodes: A row per episode.
    """
    if episodes.empty:
        return []
    sections = ["<h2>Episodes in words</h2>"]
    is_shown = episodes["method"].isin([START, TRAINED])
    questions = episodes.loc[is_shown].drop_duplicates(["item", "sample", "condition"])
    for question in questions.head(NUM_EPISODES // 2).itertuples():
        same_question = (
            is_shown
            & (episodes["item"] == question.item)
            & (episodes["sample"] == question.sample)
            & (episodes["condition"] == question.condition)
        )
        for episode in episodes[same_question].itertuples():
            sections.append(_render_episode(episode))
    return sections


def _render_episode(episode) -> str:
    """Renders the conversation of one episode, folded, as HTML.

    Args:
        episode: A row with method, condition, result, and in `spoken` the writer, text and cost of each segment as
            JSON.
    """
    condition = f", {episode.condition}" if episode.condition else ""
    summary = f"{episode.method}{condition}: correct {episode.correct:g}, ${episode.cost_usd:.2g}"
    parts = [f"<details><summary>{escape(summary)}</summary>"]
    for writer, text, cost_usd in json.loads(episode.spoken):
        price = f", ${cost_usd:.2g}" if cost_usd else ""
        shown = text if len(text) <= LONGEST_SEGMENT else f"{text[:LONGEST_SEGMENT]} [...]"
        kind = "segment controller" if writer == "controller" else "segment"
        parts.append(
            f'<div class="{kind}"><b>{escape(writer)}{price}</b><pre>{escape(shown)}</pre></div>'
        )
    return "".join([*parts, "</details>"])


def _render_pairs(values: Mapping[str, object], caption: str) -> str:
    frame = pd.DataFrame({"": list(values), "value": [str(value) for value in values.values()]})
    table = table_html(frame.rename(columns={"": "name"}), caption)
    return f'<div class="pairs">{table}</div>'


def _render_figure(figure: Figure) -> str:
    """Renders a figure with its alternative text, in a wide and a narrow version."""
    alt = escape(figure.alt_text, quote=True)
    # Asked before anything is drawn: a figure counts as changed afterwards.
    has_narrow = plots.has_narrow(figure)
    image = f'<img src="{_encode_svg(figure)}" alt="{alt}">'
    if has_narrow:
        narrow = _encode_svg(figure.draw_narrow())
        image = f'<picture><source media="{PHONE}" srcset="{narrow}">{image}</picture>'
    return f"<figure>{image}</figure>"


def _encode_svg(figure: Figure) -> str:
    return "data:image/svg+xml;base64," + base64.b64encode(plots.render_svg(figure)).decode()
