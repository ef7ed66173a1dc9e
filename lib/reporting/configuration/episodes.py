"""One question under its configuration, call by call: who said what on whose notes, within which budget.

Test rows keep what came of an episode and not what was said in it, so it is played once more: the same question, the
same configuration and the same draw give the same words. Bars are solid where a budget held and dotted where it cut.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path

import pandas as pd

from lib import draw
from lib.configuration import study
from lib.configuration.questions import questions
from lib.configuration.rewards import Weights, reward
from lib.configuration.search import BASE
from lib.configuration.space import AGENTS, DIMENSIONS, TIERS, Configuration
from lib.configuration.study import TEST_DRAW, Means, Results, opened_place
from lib.configuration.system import Job, Outcome
from lib.configuration.team import Note
from lib.models import checkpoints
from lib.page.tables import NOTHING as DASH
from lib.params import Params
from lib.reporting.configuration import common
from lib.reporting.configuration.common import PAPER, THOUSAND
from lib.reporting.configuration.space import ORDINALS
from lib.scenes import spoken

TERMS = {  # of eq. 3, by the coefficients that each needs
    "task success": ("alpha",), "steps": ("beta_s",), "tokens": ("beta_t",),
    "tools": ("eta", "delta_1", "delta_2", "delta_3"),
}  # fmt: skip
_COLUMNS = ("w", *list(DIMENSIONS)[1:])  # of a structure in `system.table`


def telling(results: Results, params: Params, arm: str = PAPER, seed: int = 0) -> pd.Series:
    """The test row in which most can be seen: right, several calls, tools that were used, a budget that cut; and of
    equals a hard question. Raises ValueError where the arm was not tested."""
    rows = common.tests_of(results, arm, params.configuration.model)
    rows = rows[rows["seed"] == seed]
    if rows.empty:
        raise ValueError(f"{arm} has no test episode under seed {seed}; there are {sorted(set(results.tests['arm']))}")
    ranked = rows.assign(several=rows["calls"].clip(upper=4), tooled=rows["used"].clip(upper=2), short=rows["cut"] > 0)
    order = ["right", "several", "tooled", "short", "difficulty", "item"]
    return rows.loc[ranked.sort_values(order, ascending=[False] * 5 + [True], kind="stable").index[0]]


def configuration_of(row: pd.Series) -> Configuration:
    """The configuration of a row of `system.table`."""
    atoms = [[name.strip() for name in agent.split(",") if name.strip()] for agent in row["atoms"].split("|")]
    return Configuration(tuple(int(row[name]) for name in _COLUMNS), tuple(tuple(agent) for agent in atoms))


def job_of(row: pd.Series, params: Params) -> Job:
    """What was done on a test row. Raises ValueError for a question that is not in the exam."""
    found = questions(row["kind"], "test", params.configuration.test_items)
    for item in found:
        if item.prompt == row["prompt"]:
            return Job(item, configuration_of(row), TEST_DRAW)
    raise ValueError(f"no question of {row['kind']} reads {row['prompt']!r}; the exam has {len(found)} of that kind")


def simplest(job: Job) -> Job:
    """The same question and draw under all tools and one call, to hold it against."""
    return Job(job.item, BASE, job.draw)


def played(job: Job, params: Params, models: str | Path = checkpoints.MODELS, runs: str | Path = study.RUNS) -> Outcome:
    """A job once more, by the agents' model. Hosted agents answer from the cassette."""
    own = params.configuration
    means = Means(str(models), str(runs), str(study.CASSETTES), params.llm.model_dump(), own.model_dump())
    with opened_place(means) as place:
        return place.system(own.model).run([job])[0]


def words(job: Job, outcome: Outcome) -> str:
    """The question, the configuration, and how it ended, as lines of text."""
    return (
        f"Question: {job.item.prompt}\nWanted: {job.item.answer}\nConfiguration: {job.configuration}\n"
        f"{verdict_words(outcome)}"
    )


def verdict_words(outcome: Outcome) -> str:
    """How it ended."""
    tools = ", ".join(outcome.tools) or "none"
    return (
        f"{'right' if outcome.right else 'wrong'}: {outcome.answer or 'no answer'}; {outcome.calls} calls, "
        f"{outcome.tokens_out} tokens written, {outcome.cut} calls cut by their budget; tools used: {tools}; "
        f"${outcome.dollars * THOUSAND:.2f} per 1,000 such questions, {outcome.seconds * THOUSAND:.1f} ms"
    )


def paid(job: Job, outcome: Outcome, params: Params) -> dict[str, float]:
    """What an episode is paid, term by term, and in all (eq. 3)."""
    told = params.configuration.reward.model_dump()
    held = (outcome.right, outcome.calls, outcome.tokens_out, outcome.used, job.configuration.allocated)
    most = len(AGENTS) * max(params.configuration.tiers)
    parts = {term: {name: told[name] * (name in names) for name in told} for term, names in TERMS.items()}
    return {term: float(reward(*held, most, Weights(**weights))) for term, weights in (parts | {"R": told}).items()}


def paid_table(played: Mapping[str, tuple[Job, Outcome]], params: Params) -> pd.DataFrame:
    """What episodes are paid: what is counted, and the terms of eq. 3; a column for each episode by name."""
    columns = {}
    for name, (job, outcome) in played.items():
        counted = {
            "right": "yes" if outcome.right else "no", "calls of agents": outcome.calls,
            "tokens written": outcome.tokens_out, "calls of tools": outcome.used,
            "tools allocated": job.configuration.allocated,
        }  # fmt: skip
        terms = {f"R: {term}": f"{value + 0.0:+.3f}" for term, value in paid(job, outcome, params).items()}
        columns[name] = {what: str(value) for what, value in (counted | terms).items()}
    return pd.DataFrame(columns).rename({"R: R": "R"}).rename_axis("what").reset_index()


def table(job: Job, outcome: Outcome) -> pd.DataFrame:
    """Every call: role, agent, budget, tools that it might use, what it left, whether its budget cut it."""
    return pd.DataFrame(
        [
            {
                "call": i, "role": note.role, "agent": ORDINALS[note.agent], "budget": _budget(job, note),
                "may use": _tools(job, note), "steps": note.steps or DASH, "answer": note.answer or DASH,
                "cut": note.cut, "ready after, ms": note.at * THOUSAND,
            }
            for i, note in enumerate(outcome.trail, 1)
        ]
    )  # fmt: skip


def _budget(job: Job, note: Note) -> str:
    return TIERS[job.configuration.tier(note.agent)]


def _tools(job: Job, note: Note) -> str:
    return ", ".join(job.configuration.tools(note.agent)) or "no tool"


def episode_html(job: Job, outcome: Outcome, caption: str) -> tuple[str, str]:
    """The calls one below the other in the colour of their agent, and as plain text. Raises ValueError without one."""
    if not outcome.trail:
        raise ValueError("the episode has no call to show")
    parts = [_part(job, note) for note in outcome.trail]
    told = "; ".join(
        f"{AGENTS[agent]}: {', '.join(atoms)}" for agent, atoms in enumerate(job.configuration.atoms) if atoms
    )
    heading = f"{job.configuration.workflow}: {job.item.prompt}"
    more = f"Told besides their roles: {told or 'nothing'}."
    shown = heading, [(f"<p>{escape(more)}</p>", more), *parts], verdict_words(outcome)
    return spoken.together(caption, [shown])


def _part(job: Job, note: Note) -> tuple[str, str]:
    """One call as HTML and as plain text."""
    shade = draw.ink(draw.colour(ORDINALS[note.agent]))
    about = f"{ORDINALS[note.agent]}, budget {_budget(job, note)}, {_tools(job, note)}; ready after "
    about += f"{note.at * THOUSAND:.1f} ms{'; cut by its budget' if note.cut else ''}"
    lines = [f"notes: {note.steps}"] if note.steps else []
    lines += [f"answer: {note.answer}" if note.answer is not None else f"no answer; it wrote: {note.text or 'nothing'}"]
    style = f"border-left:5px {'dotted' if note.cut else 'solid'} {shade};padding-left:.6em;margin:.3em 0"
    body = "<br>".join(f"<code>{escape(line)}</code>" for line in lines)
    head = f"<strong>{escape(note.role)}</strong> <small>({escape(about)})</small>"
    return f'<p style="{style}">{head}<br>{body}</p>', f"{note.role:10} {about}\n    " + "\n    ".join(lines)
