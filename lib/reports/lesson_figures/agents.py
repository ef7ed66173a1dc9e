"""Lesson 07's drawings: the nine workflows as graphs, and one question under its configuration, call by call.

The results table holds the outcome of an episode and not the replies, so the episode is run once more: the same
question, configuration and draw give the same replies. Bars are solid for calls within their token budget and dotted
for calls that it cut.
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
from lib.agent_configuration.agent_system import ConfiguredAnswer, ConfiguredQuestion
from lib.agent_configuration.agent_team import Note
from lib.agent_configuration.experiment import TEST_DRAW, open_workbench
from lib.agent_configuration.graph import Graph, trace_graph
from lib.agent_configuration.questions import questions
from lib.config import Params
from lib.language_models import checkpoints
from lib.reports.lesson_figures import spoken

ORDINALS = ("first agent", "second agent", "third agent")
# Lengths in units of the axes: 1 is the distance between two calls after one another.
_LANE_HEIGHT = 1.15  # between the lanes of two agents
_CALL_DISTANCE = 0.75  # between calls of one agent at the same time
_MIN_ARROW_DISTANCE = 0.25  # an arrow that passes a call closer than this is bent
_MIN_WIDTH = 3.0  # of a panel
_STRUCTURE_COLUMNS = ("w", *list(DIMENSIONS)[1:])  # of a configuration in the results table


def compute_depths(graph: Graph) -> list[int]:
    """After how many calls each call can be made at the earliest, in the order of the nodes."""
    depths = [0] * len(graph.nodes)
    for _ in graph.nodes:  # the longest path has no more calls than there are nodes
        for source, target, _ in graph.edges:
            depths[target] = max(depths[target], depths[source] + 1)
    return depths


def layout_calls(graph: Graph) -> np.ndarray:
    """Computes the position of each call in the drawing of a workflow.

    Args:
        graph: Calls of agents, and which of them reads which.

    Returns:
        (calls, 2): x is the depth in the graph, y the lane of the agent; calls of one agent at one depth are stacked.
    """
    depths = compute_depths(graph)
    calls_by_spot: dict[tuple[int, int], list[int]] = {}  # by depth and agent
    for call, (_, agent) in enumerate(graph.nodes):
        calls_by_spot.setdefault((depths[call], agent), []).append(call)
    positions = np.zeros((len(graph.nodes), 2))
    for (depth, agent), calls in calls_by_spot.items():
        for i, call in enumerate(calls):
            offset = ((len(calls) - 1) / 2 - i) * _CALL_DISTANCE  # centred on the lane
            positions[call] = depth, -agent * _LANE_HEIGHT + offset
    return positions


def abbreviate_role(role: str) -> str:
    """Two letters of a role, for the inside of a circle."""
    return role[:2].capitalize()


@plots.theme()
def draw_workflow_graphs() -> Figure:
    """Draws all workflows as small graphs: calls from left to right, one lane and colour for each agent."""
    graphs = {name: trace_graph(name) for name in WORKFLOWS}
    roles = dict.fromkeys(role for g in graphs.values() for role, _ in g.nodes)
    legend = ", ".join(f"{abbreviate_role(role)} {role}" for role in roles)
    note = (
        f"{legend}. Solid arrow: reads what the other wrote. "
        "Dashed: waits for it, and reads nothing."
    )
    # Where runs differ in their calls, the graph has more arrows than any one run.
    sources = {
        name: count_sources_of_answer(g)
        for name, g in graphs.items()
        if g.calls == (len(g.nodes), len(g.nodes))
    }
    fewest, most = min(sources, key=sources.get), max(sources, key=sources.get)
    title = (
        f"What the answer rests on: the answerer reads {sources[fewest]} earlier calls in "
        f"{fewest}, {sources[most]} in {most}"
    )
    figure = plots.new_figure(title, plots.MAX_WIDTH, 6.4, note)
    descriptions = [_describe_graph(name, g) for name, g in graphs.items()]
    message = "Which agent reads what of the others in each workflow"
    figure.alt_text = plots.join_descriptions(message, descriptions)
    figure.data = pd.DataFrame({"workflow": list(graphs), "calls and what they read": descriptions})
    panels = plots.add_panels(figure, len(graphs))
    for i, (axes, (name, g)) in enumerate(zip(panels, graphs.items(), strict=True)):
        fewest_calls, most_calls = g.calls
        num_calls = f" ({fewest_calls} to {most_calls} calls)"
        axes.set_title(name + (num_calls if most_calls > fewest_calls else ""))
        _draw_graph(axes, g, label_lanes=i % 3 == 0)  # three panels in a row
        axes.set_xlabel("order of the calls" if i + 3 >= len(graphs) else "")
    return figure


def count_sources_of_answer(graph: Graph) -> int:
    """How many earlier calls the answerer is shown."""
    count = 0
    for _, target, has_content in graph.edges:
        role, _ = graph.nodes[target]
        count += has_content and role == "answerer"
    return count


def _describe_graph(name: str, graph: Graph) -> str:
    """Describes a workflow graph in words, for its alternative text.

    Args:
        name: Name of the workflow.
        graph: Its calls and edges.
    """
    roles = [role for role, _ in graph.nodes]
    if not graph.edges:
        return f"{name}: {roles[0]} alone"
    edges = []
    for source, target, has_content in sorted(graph.edges):
        note = "" if has_content else " (waits only)"
        edges.append(f"{roles[source]} to {roles[target]}{note}")
    return f"{name}: {', '.join(edges)}"


def _draw_graph(axes: Axes, graph: Graph, label_lanes: bool) -> None:
    """Draws one workflow: calls as circles, from left to right, in a lane for each agent.

    Args:
        axes: The panel.
        graph: Calls of agents, and which of them reads which.
        label_lanes: Whether the names of the agents stand beside the lanes.
    """
    positions = layout_calls(graph)  # (calls, 2)

    # Arrows, below the circles.
    for source, target, has_content in sorted(graph.edges):
        bend = -0.35 if _crosses_a_call(positions, source, target) else 0
        axes.annotate(
            "",
            positions[target],
            positions[source],
            zorder=1,
            arrowprops={
                "arrowstyle": "-|>",
                "color": plots.GREY,
                "lw": 1.1,
                "linestyle": "-" if has_content else (0, (3, 2)),
                "shrinkA": 9,
                "shrinkB": 9,
                "connectionstyle": f"arc3,rad={bend}",
            },
        )

    # Calls as circles in the colour of their agent.
    for (role, agent), (x, y) in zip(graph.nodes, positions, strict=True):
        color = plots.colour(ORDINALS[agent])
        axes.plot(
            x,
            y,
            "o",
            markersize=18,
            markerfacecolor="white",
            markeredgecolor=color,
            markeredgewidth=2,
            zorder=2,
        )
        axes.text(
            x,
            y,
            abbreviate_role(role),
            ha="center",
            va="center",
            fontsize=8.5,
            color=plots.text_colour(color),
            zorder=3,
        )

    # Lanes instead of axes.
    lanes = [-agent * _LANE_HEIGHT for agent in range(len(ORDINALS))]
    axes.set_yticks(lanes, ORDINALS if label_lanes else [""] * len(lanes))
    for text, name in zip(axes.get_yticklabels(), ORDINALS, strict=True):
        text.set_color(plots.text_colour(plots.colour(name)))
    axes.tick_params(length=0)
    right_end = max(positions[:, 0].max(), _MIN_WIDTH) + 0.5
    axes.set(xlim=(-0.5, right_end), ylim=(lanes[-1] - 0.5, 1.25), xticks=[])
    axes.grid(False)
    axes.spines[:].set_visible(False)


def _crosses_a_call(positions: np.ndarray, source: int, target: int) -> bool:
    """Whether a straight arrow between two calls would run through a third one.

    Args:
        positions: (calls, 2) of the drawing.
        source: Index of the call where the arrow begins.
        target: Index of the call where it ends.
    """
    arrow = positions[target] - positions[source]
    for call, position in enumerate(positions):
        if call in (source, target):
            continue
        # The nearest point of the arrow's line, as a fraction of the arrow.
        fraction = (position - positions[source]) @ arrow / (arrow @ arrow)
        nearest = positions[source] + fraction * arrow
        if 0 < fraction < 1 and np.hypot(*(nearest - position)) < _MIN_ARROW_DISTANCE:
            return True
    return False


# An episode ---------------------------------------------------------------------------------------


def choose_episode_row(rows: pd.DataFrame) -> pd.Series:
    """Chooses the episode in which most can be seen.

    It is correct, has several calls, used tools, and had a call cut by its budget, in this order of importance; of
    equal ones it is the hardest question.

    Args:
        rows: Test episodes of the results table.

    Returns:
        One of the rows.

    Raises:
        ValueError: If there is no row.
    """
    if rows.empty:
        raise ValueError("there is no episode to tell of; is a condition misspelled?")
    ranked = rows.assign(
        several=rows["calls"].clip(upper=4),
        tooled=rows["used"].clip(upper=2),
        short=rows["cut"] > 0,
    )
    order = ["correct", "several", "tooled", "short", "difficulty", "item"]
    ascending = [False, False, False, False, False, True]
    ranked = ranked.sort_values(order, ascending=ascending, kind="stable")
    return rows.loc[ranked.index[0]]


def rebuild_job(row: pd.Series, params: Params) -> ConfiguredQuestion:
    """Rebuilds the job behind a row of the results table, so that it can be run again.

    Args:
        row: Question and configuration of an episode.
        params: Settings.

    Raises:
        ValueError: If the question is not in the test set.
    """
    test_questions = questions(row["group"], "test", params.configuration.test_items)
    # Atoms are recorded as "name, name|name", agents separated by bars.
    atoms = []
    for agent_atoms in row["atoms"].split("|"):
        names = [name.strip() for name in agent_atoms.split(",")]
        atoms.append(tuple(name for name in names if name))
    structure = tuple(int(row[column]) for column in _STRUCTURE_COLUMNS)
    configuration = Configuration(structure, tuple(atoms))
    for question in test_questions:
        if question.prompt == row["prompt"]:
            return ConfiguredQuestion(question, configuration, TEST_DRAW)
    raise ValueError(
        f"no question of {row['group']} reads {row['prompt']!r}; "
        f"the exam has {len(test_questions)} of that kind"
    )


def replay_job(
    job: ConfiguredQuestion,
    params: Params,
    models: str | Path = checkpoints.MODELS,
    runs: str | Path = experiment.RUNS,
) -> ConfiguredAnswer:
    """Runs a job once more with the agents' model; hosted models answer from the recorded replies.

    Args:
        job: Question and configuration.
        params: Settings.
        models: Folder of the small models.
        runs: Folder of the jobs' results.
    """
    context = experiment.make_context(params, models, runs)
    with open_workbench(context, params.configuration) as environment:
        return environment.make_system(params.configuration.model).run([job])[0]


def describe_outcome(outcome: ConfiguredAnswer) -> str:
    """Describes the outcome of an episode in a line: correctness, answer, calls, tokens, tools, cost and time.

    Args:
        outcome: Outcome of the episode.
    """
    correctness = "right" if outcome.correct else "wrong"
    tools = ", ".join(outcome.tools) or "none"
    return (
        f"{correctness}: {outcome.answer or 'no answer'}; {outcome.calls} calls, "
        f"{outcome.tokens_out} tokens written, {outcome.cut} calls cut by their budget; tools used: {tools}; "
        f"${outcome.cost_usd * 1e3:.2f} per 1,000 such questions, {outcome.seconds * 1e3:.1f} ms"
    )


def episode_html(
    job: ConfiguredQuestion, outcome: ConfiguredAnswer, caption: str
) -> tuple[str, str]:
    """Renders the calls of an episode one below the other, each in the colour of its agent.

    Args:
        job: The question and its configuration.
        outcome: What the episode came to, with its calls.
        caption: Stands above.

    Returns:
        HTML and plain text.

    Raises:
        ValueError: If the outcome has no calls.
    """
    if not outcome.trail:
        raise ValueError("the episode has no call to show")
    agent_atoms = [
        f"{agent}: {', '.join(atoms)}"
        for agent, atoms in zip(AGENTS, job.configuration.atoms, strict=True)
        if atoms
    ]
    preamble = f"Told besides their roles: {'; '.join(agent_atoms) or 'nothing'}."
    segments = [(f"<p>{escape(preamble)}</p>", preamble)]
    segments += [_render_call(job, note) for note in outcome.trail]
    heading = f"{job.configuration.workflow}: {job.item.prompt}"
    return spoken.join_episodes(caption, [(heading, segments, describe_outcome(outcome))])


def _render_call(job: ConfiguredQuestion, note: Note) -> tuple[str, str]:
    """Renders one call of an agent.

    Args:
        job: Question and configuration of the episode.
        note: What the agent wrote, and when.

    Returns:
        HTML, and plain text.
    """
    budget = TIERS[job.configuration.tier(note.agent)]
    tools = ", ".join(job.configuration.tools(note.agent)) or "no tool"
    about = f"{ORDINALS[note.agent]}, budget {budget}, {tools}; ready after {note.at * 1e3:.1f} ms"
    if note.cut:
        about += "; cut off at its limit of tokens"
    lines = [f"notes: {note.steps}"] if note.steps else []
    if note.answer is not None:
        lines.append(f"answer: {note.answer}")
    else:
        lines.append(f"no answer; it wrote: {note.text or 'nothing'}")

    color = plots.text_colour(plots.colour(ORDINALS[note.agent]))
    # Colour says which agent, the kind of line whether it was cut off.
    bar_style = "dotted" if note.cut else "solid"
    style = f"border-left:5px {bar_style} {color};padding-left:.6em;margin:.3em 0"
    heading = f"<strong>{escape(note.role)}</strong> <small>({escape(about)})</small>"
    body = "<br>".join(f"<code>{escape(line)}</code>" for line in lines)
    markup = f'<p style="{style}">{heading}<br>{body}</p>'
    plain = f"{note.role:10} {about}\n    " + "\n    ".join(lines)
    return markup, plain
