"""A judge reads trajectories and scores them from 0 to 100 (section 4.2.3, Tables 4 and 12).

Four scores say how an orchestrator chose (Table 12), five what it was like for the student, after
NASA-TLX (Table 4). The paper names the criteria and prints no rubric: the one in `judge_system.md` is
ours and continuous, so that a program can be judge as well as a language model. Every episode is judged
by itself, so that scores have intervals. A reply that cannot be used is sent back once, then the
episode's scores are missing and counted; no score is ever invented.

The judge does not learn whose trajectories it reads. Mental, temporal, effort and frustration measure
demand, so lower is better. For performance the paper does not say which end is good; here 100 means that
the student attains the goal, which agrees with its text on KO ("high performance").

Left out: MiniGrid, which the paper does not judge, and pairwise comparison of methods.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import pandas as pd
from pydantic import ConfigDict, Field, ValidationError, create_model

from lib.config import EducationSettings
from lib.experiment import seeds
from lib.llm.client import Client
from lib.llm.errors import ReplyError
from lib.llm.json_replies import InvalidReply, one_object
from lib.orchestration.domains import STUDENT
from lib.orchestration.orchestrators import ANSWERED
from lib.orchestration.prompt_components import again, template

VERSION = 1  # of what a judge is asked and how its scores are read
CRITERIA = (
    "adaptivity", "progression", "exploration", "diversity",  # Table 12: how an orchestrator chose
    "mental", "temporal", "performance", "effort", "frustration",  # Table 4: what it was like for the student
)  # fmt: skip
COLUMNS = (
    "method",
    "seed",
    "episode",
    "step",
    "choice",
    "action",
    "fallback",
    "mastery",
    "mastery_after",
)
_SPENT = ("tokens_in", "tokens_out", "cost_usd")

Score = Annotated[float, Field(ge=0, le=100)]


# A judge's reply; numbers from 0 to 100, none missing. Further fields are ignored.
Scores = create_model(
    "Scores",
    __config__=ConfigDict(extra="ignore", strict=True),
    **dict.fromkeys(CRITERIA, (Score, ...)),
)


async def judge(
    client: Client, model: str, log: pd.DataFrame, education: EducationSettings
) -> pd.DataFrame:
    """What `model` makes of every episode of a decision record in education, one row each: method, seed, item, backend,
    the criteria (nan where no reply could be used), calls, malformed, tokens_in, tokens_out, cost_usd.

    log: rows as `prompted_experiment.run` returns them. Raises ValueError for a log that is empty or not of education;
    lets through what stops a run (BudgetExceeded, LLMError other than ReplyError).
    """
    held = _episodes(log)
    scored = await asyncio.gather(
        *(_scored(client, model, prompt(each, education)) for each in held.values())
    )
    about = [
        {"method": method, "seed": seed, "item": f"{seed}-{number}"}
        for method, seed, number in held
    ]
    rows = pd.DataFrame([one | other for one, other in zip(about, scored, strict=True)])
    return rows.assign(backend=client.settings.models[model].backend)


# The prompt ---------------------------------------------------------------------------------------


def prompt(log: pd.DataFrame, education: EducationSettings) -> list[dict[str, str]]:
    """The messages that ask for scores: the rubric, then one episode, a line a step."""
    (steps,) = _episodes(log).values()
    context = {
        "topic": education.topic,
        "names": CRITERIA,
        "objectives": list(STUDENT.objectives),
        "steps": [step_line(row) for row in steps.to_dict("records")],
        "policies": _menu(steps),
        "goal": education.goal,
        "horizon": education.horizon,
        "fallbacks": steps["fallback"].any(),
    }
    return [
        {"role": role, "content": template(f"judge_{role}.md").render(context).strip()}
        for role in ("system", "user")
    ]


def step_line(row: Mapping[str, Any]) -> str:
    """A step of the record in a line, e.g. `7 | SO-d1 | challenge | 55555 | 0.40 > 0.50 | 3 | 0.67 0.00 0.20`."""
    who = f"{row['choice']} (fallback)" if row["fallback"] else row["choice"]
    did = list(STUDENT.actions)[int(row["action"])]
    mastery = f"{row['mastery']:.2f} > {row['mastery_after']:.2f}"
    rewards = " ".join(f"{row[f'reward_{i}']:.2f}" for i in range(len(STUDENT.objectives)))
    return f"{row['step'] + 1} | {who} | {did} | {row['levels']} | {mastery} | {row['open_failed']:.0f} | {rewards}"


def _menu(log: pd.DataFrame) -> list[str]:
    """The policies that there were to choose from; those that were chosen, where the log does not say."""
    offered = log["alternatives"].iloc[0].split(";") if "alternatives" in log else []
    return list(dict.fromkeys([*offered, *log["choice"]]))


def _episodes(log: pd.DataFrame) -> dict[tuple[str, int, int], pd.DataFrame]:
    """The steps of each episode, by method, seed and number."""
    needed = [
        *COLUMNS,
        "open_failed",
        "levels",
        *(f"reward_{i}" for i in range(len(STUDENT.objectives))),
    ]
    missing = [name for name in needed if name not in log]
    if missing or log.empty:
        what = f"lacks {', '.join(missing)}" if missing else "is empty"
        raise ValueError(f"the judge reads decision records of education; this log {what}")
    groups = log.groupby(["method", "seed", "episode"], sort=False)
    return {name: steps.sort_values("step") for name, steps in groups}


# Scores -------------------------------------------------------------------------------------------


async def _scored(
    client: Client, model: str, messages: Sequence[Mapping[str, str]]
) -> dict[str, float]:
    """The scores of one episode and what they took, asked for again once if the reply is of no use."""
    out = dict.fromkeys(CRITERIA, float("nan")) | dict.fromkeys(("calls", "malformed", *_SPENT), 0)
    for attempt in range(2):
        seed = int(seeds.key("judge", attempt) % 2**31)
        scores, complaint, answered = None, "", True
        try:
            reply = await client.chat(model, messages, seed=seed, sample=0, who="judge")
            said = reply.text
            scores = read(said)
        except InvalidReply as problem:
            complaint = str(problem)
        except ReplyError as problem:
            reply, said, answered = problem, problem.text or "", problem.kind in ANSWERED
            complaint = f"the reply is unusable ({problem.kind})"
        out |= {name: out[name] + getattr(reply, name) for name in _SPENT} | {"calls": attempt + 1}
        if scores:
            return out | scores.model_dump()
        out["malformed"] += 1
        if not answered:
            break
        sent_back = (
            template("judge_correction.md").render(problem=complaint, names=CRITERIA).strip()
        )
        messages = again(messages, said, sent_back)
    return out


def read(text: str) -> Scores:
    """The scores in a reply. Raises InvalidReply, whose message says what was wrong with it."""
    content, _ = one_object(text, CRITERIA)
    try:
        return Scores.model_validate(content)
    except ValidationError as error:
        said = "; ".join(
            f"field {'.'.join(map(str, each['loc']))!r}: {each['msg']}" for each in error.errors()
        )
        raise InvalidReply("wrong_fields", said) from None
