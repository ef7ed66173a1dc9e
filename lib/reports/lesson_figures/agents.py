"""Lesson 07's drawings: the nine workflows as graphs, and one question under its configuration, call by call.

Test rows keep what came of an episode and not what was said in it, so it is played once more: the same question, the
same configuration and the same draw give the same words. Bars are solid where a budget held and dotted where it cut.
"""

from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from lib import plots
from lib.agent_configuration import experiment
from lib.agent_configuration.action_space import AGENTS, DIMENSIONS, TIERS, WORKFLOWS, Configuration
from lib.agent_configuration.agent_system import Job, Outcome
from lib.agent_configuration.agent_team import Note
from lib.agent_configuration.experiment import TEST_DRAW, opened_place
from lib.agent_configuration.graph import Graph, graph
from lib.agent_configuration.questions import questions
from lib.config import Params
from lib.language_models import checkpoints
from lib.reports.lesson_figures import spoken

plots.register(
    {  # methods, workflows, kinds of questions, agents, errors, the theorem
        "reasoning": ("#0072B2", "o"),
        "ARC without SFT": ("#0072B2", "o"),
        "ARC with DPO": ("#56B4E9", "D"),
        "ARC by GRPO": ("#AA2255", "h"),
        "RL bandit": ("#E69F00", "s"),
        "RL episodes": ("#009E73", "^"),
        "all tools, one call": ("#D55E00", "v"),
        "grid search": ("#999933", ">"),
        "greedy search": ("#117733", "d"),
        "best constant per kind": ("#44AA99", "H"),
        "prompted, zero-shot": ("#CC79A7", "X"),
        "prompted, zero-shot (scripted stand-in)": ("#CC79A7", "X"),
        "prompted, few-shot": ("#8C6239", "8"),
        "prompted, few-shot (scripted stand-in)": ("#8C6239", "8"),
        "oracle of those tried": ("#000000", "*"),
        "direct": ("#8A8A8A", "X"),
        "reason": ("#56B4E9", "o"),
        "verify": ("#0072B2", "s"),
        "routing": ("#D4C420", "^"),
        "sectioning": ("#C2A878", "D"),
        "voting": ("#8C6239", "v"),
        "orchestrator": ("#004D66", "P"),
        "evaluator": ("#D55E00", "d"),
        "autonomous": ("#332288", "H"),
        "chain": ("#0072B2", "o"),
        "passage": ("#E69F00", "s"),
        "choice": ("#AA2255", "^"),
        "hops": ("#44AA99", "D"),
        "mixed": ("#8C6239", "v"),
        "first agent": ("#0072B2", "o"),
        "second agent": ("#D55E00", "s"),
        "third agent": ("#009E73", "^"),
        "policy configuration": ("#D55E00", "v"),
        "execution": ("#56B4E9", "s"),
        "knowledge gap": ("#D4C420", "D"),
        "unclassified": ("#B5B5B5", "X"),
        "threshold tau": ("#000000", "*"),
        "elite, as it was paid": ("#E69F00", "s"),
        "refined, paid once more": ("#332288", "P"),
        "buffer": ("#8A8A8A", "X"),
    }
)
ORDINALS = ("first agent", "second agent", "third agent")
_LANE = 1.15  # between the lanes of two agents
_APART = 0.75  # between calls of one agent at the same time
_NEAR = 0.25  # an arrow that passes a call so close is bent
_WIDE = 3.0  # calls after one another that fit into a panel, at the least
_COLUMNS = ("w", *list(DIMENSIONS)[1:])  # of a structure in `system.table`


def depths(one: Graph) -> list[int]:
    """After how many calls each call can be made at the earliest."""
    found = [0] * len(one.nodes)
    for _ in one.nodes:  # as often as the longest way has calls
        for source, target, _ in one.edges:
            found[target] = max(found[target], found[source] + 1)
    return found


def places(one: Graph) -> np.ndarray:
    """Where each call is drawn, (calls, 2): by depth, and in the lane of its agent; calls that are made at the same
    time beside each other."""
    deep, out = depths(one), np.zeros((len(one.nodes), 2))
    cells: dict[tuple[int, int], list[int]] = {}
    for i, (_, agent) in enumerate(one.nodes):
        cells.setdefault((deep[i], agent), []).append(i)
    for (depth, agent), calls in cells.items():
        for place, i in enumerate(calls):
            out[i] = depth, -agent * _LANE + ((len(calls) - 1) / 2 - place) * _APART
    return out


def short(role: str) -> str:
    """Two letters of a role, for the inside of a circle."""
    return role[:2].capitalize()


@plots.theme()
def graphs_figure() -> Figure:
    """All workflows as small graphs: calls from left to right, one lane and colour for each agent."""
    every = {name: graph(name) for name in WORKFLOWS}
    roles = dict.fromkeys(role for g in every.values() for role, _ in g.nodes)
    told = ", ".join(f"{short(role)} {role}" for role in roles)
    note = (
        f"{told}. Solid: is shown what the other left. Dashed: waits for it, and is shown nothing."
    )
    blind = ", ".join(
        name for name, one in every.items() if not all(shown for *_, shown in one.edges)
    )
    title = (
        f"{len(every)} workflows; a call waits without being shown anything in {blind or 'none'}"
    )
    sheet = plots.sheet(title, plots.WIDTH + 2.2, 6.4, note)
    sheet.alt_text = (
        f"Who is shown what in each workflow. {'; '.join(map(_told, every, every.values()))}."
    )
    for place, (axes, (name, one)) in enumerate(
        zip(plots.tiles(sheet, len(every)), every.items(), strict=True)
    ):
        least, most = one.calls
        axes.set_title(
            f"{name}: {f'{least} to {most}' if most > least else least} call{'s' * (most > 1)}"
        )
        _draw(axes, one, place % 3 == 0)
    return sheet


def _told(name: str, one: Graph) -> str:
    """A graph in words."""
    edges = [
        f"{one.nodes[a][0]} to {one.nodes[b][0]}{'' if shown else ' (waits only)'}"
        for a, b, shown in sorted(one.edges)
    ]
    return f"{name}: {', '.join(edges) or one.nodes[0][0] + ' alone'}"


def _draw(axes: Axes, one: Graph, named: bool) -> None:
    """named: whether the lanes' names stand beside it."""
    at = places(one)
    for source, target, shown in sorted(one.edges):
        bend = -0.35 if _passes(at, source, target) else 0
        axes.annotate(
            "",
            at[target],
            at[source],
            zorder=1,
            arrowprops={
                "arrowstyle": "-|>",
                "color": plots.GREY,
                "lw": 1.1,
                "linestyle": "-" if shown else (0, (3, 2)),
                "shrinkA": 9,
                "shrinkB": 9,
                "connectionstyle": f"arc3,rad={bend}",
            },
        )
    for (role, agent), (x, y) in zip(one.nodes, at, strict=True):
        shade = plots.colour(ORDINALS[agent])
        axes.plot(
            x,
            y,
            "o",
            markersize=18,
            markerfacecolor="white",
            markeredgecolor=shade,
            markeredgewidth=2,
            zorder=2,
        )
        axes.text(
            x,
            y,
            short(role),
            ha="center",
            va="center",
            fontsize=8,
            color=plots.ink(shade),
            zorder=3,
        )
    lanes = [-agent * _LANE for agent in range(len(ORDINALS))]
    axes.set_yticks(lanes, ORDINALS if named else [""] * len(lanes))
    for text, name in zip(axes.get_yticklabels(), ORDINALS, strict=True):
        text.set_color(plots.ink(plots.colour(name)))
    axes.tick_params(length=0)
    axes.set(xlim=(-0.5, max(at[:, 0].max(), _WIDE) + 0.5), ylim=(lanes[-1] - 0.5, 1.25), xticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)


def _passes(at: np.ndarray, source: int, target: int) -> bool:
    """Whether a straight arrow would run through another call."""
    way = at[target] - at[source]
    for i, place in enumerate(at):
        along = (place - at[source]) @ way / (way @ way)
        if (
            i not in (source, target)
            and 0 < along < 1
            and np.hypot(*(at[source] + along * way - place)) < _NEAR
        ):
            return True
    return False


# An episode ---------------------------------------------------------------------------------------


def telling(rows: pd.DataFrame) -> pd.Series:
    """The row of the record in which most can be seen: right, several calls, tools that were used, a budget that cut;
    and of equals a hard question. Raises ValueError where there is none."""
    if rows.empty:
        raise ValueError("there is no episode to tell of; is a condition misspelled?")
    seen = rows.assign(
        several=rows["calls"].clip(upper=4),
        tooled=rows["used"].clip(upper=2),
        short=rows["cut"] > 0,
    )
    order = ["correct", "several", "tooled", "short", "difficulty", "item"]
    return rows.loc[seen.sort_values(order, ascending=[False] * 5 + [True], kind="stable").index[0]]


def job_of(row: pd.Series, params: Params) -> Job:
    """What was done on a row of the record. Raises ValueError for a question that is not in the exam."""
    found = questions(row["group"], "test", params.configuration.test_items)
    named = [
        [name.strip() for name in agent.split(",") if name.strip()]
        for agent in row["atoms"].split("|")
    ]
    made = Configuration(tuple(int(row[name]) for name in _COLUMNS), tuple(map(tuple, named)))
    for item in found:
        if item.prompt == row["prompt"]:
            return Job(item, made, TEST_DRAW)
    raise ValueError(
        f"no question of {row['group']} reads {row['prompt']!r}; the exam has {len(found)} of that kind"
    )


def played(
    job: Job,
    params: Params,
    models: str | Path = checkpoints.MODELS,
    runs: str | Path = experiment.RUNS,
) -> Outcome:
    """A job once more, by the agents' model. Hosted agents answer from the cassette."""
    with opened_place(experiment.make_context(params, models, runs), params.configuration) as place:
        return place.system(params.configuration.model).run([job])[0]


def verdict_words(outcome: Outcome) -> str:
    """How it ended."""
    tools = ", ".join(outcome.tools) or "none"
    return (
        f"{'right' if outcome.correct else 'wrong'}: {outcome.answer or 'no answer'}; {outcome.calls} calls, "
        f"{outcome.tokens_out} tokens written, {outcome.cut} calls cut by their budget; tools used: {tools}; "
        f"${outcome.cost_usd * 1e3:.2f} per 1,000 such questions, {outcome.seconds * 1e3:.1f} ms"
    )


def episode_html(job: Job, outcome: Outcome, caption: str) -> tuple[str, str]:
    """The calls one below the other in the colour of their agent, and as plain text. Raises ValueError without one."""
    if not outcome.trail:
        raise ValueError("the episode has no call to show")
    named = zip(AGENTS, job.configuration.atoms, strict=True)
    atoms = "; ".join(f"{agent}: {', '.join(told)}" for agent, told in named if told)
    heading = f"{job.configuration.workflow}: {job.item.prompt}"
    more = f"Told besides their roles: {atoms or 'nothing'}."
    parts = [(f"<p>{escape(more)}</p>", more), *(_part(job, note) for note in outcome.trail)]
    return spoken.together(caption, [(heading, parts, verdict_words(outcome))])


def _part(job: Job, note: Note) -> tuple[str, str]:
    """One call as HTML and as plain text."""
    shade = plots.ink(plots.colour(ORDINALS[note.agent]))
    budget, tools = (
        TIERS[job.configuration.tier(note.agent)],
        ", ".join(job.configuration.tools(note.agent)),
    )
    about = f"{ORDINALS[note.agent]}, budget {budget}, {tools or 'no tool'}; ready after "
    about += f"{note.at * 1e3:.1f} ms{'; cut by its budget' if note.cut else ''}"
    lines = [f"notes: {note.steps}"] if note.steps else []
    lines += [
        f"answer: {note.answer}"
        if note.answer is not None
        else f"no answer; it wrote: {note.text or 'nothing'}"
    ]
    style = f"border-left:5px {'dotted' if note.cut else 'solid'} {shade};padding-left:.6em;margin:.3em 0"
    body = "<br>".join(f"<code>{escape(line)}</code>" for line in lines)
    head = f"<strong>{escape(note.role)}</strong> <small>({escape(about)})</small>"
    return (
        f'<p style="{style}">{head}<br>{body}</p>',
        f"{note.role:10} {about}\n    " + "\n    ".join(lines),
    )
