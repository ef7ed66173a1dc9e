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
from lib.llm.chat_model import ChatModel, ChatRequest
from lib.llm.json_replies import InvalidReply, read_object
from lib.orchestration.domains import STUDENT
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
ATTEMPTS = 2  # at an episode: a reply that cannot be used is sent back once
_SPENT = ("tokens_in", "tokens_out", "cost_usd")

Score = Annotated[float, Field(ge=0, le=100)]


# A judge's reply; numbers from 0 to 100, none missing. Further fields are ignored.
Scores = create_model(
    "Scores",
    __config__=ConfigDict(extra="ignore", strict=True),
    **dict.fromkeys(CRITERIA, (Score, ...)),
)


async def judge(model: ChatModel, log: pd.DataFrame, education: EducationSettings) -> pd.DataFrame:
    """What a model makes of every episode of a decision record in education.

    Args:
        model: The judge.
        log: Rows as `prompted_experiment.run` returns them.
        education: The settings of the episodes, for the prompt.

    Returns:
        A row per episode: method, seed, item, backend, judge (its name), the criteria (nan where no reply could be
        used), calls, malformed, failures (calls that the infrastructure failed), tokens_in, tokens_out, cost_usd.

    Raises:
        ValueError: For a log that is empty or not of education.
    """
    steps_by_episode = _episodes(log)
    score_rows = await asyncio.gather(
        *(_score_episode(model, prompt(steps, education)) for steps in steps_by_episode.values())
    )
    rows = []
    for (method, seed, number), scores in zip(steps_by_episode, score_rows, strict=True):
        rows.append({"method": method, "seed": seed, "item": f"{seed}-{number}"} | scores)
    return pd.DataFrame(rows).assign(backend=model.backend, judge=model.name)


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


def make_first_requests(log: pd.DataFrame, education: EducationSettings) -> list[ChatRequest]:
    """What a judge is asked first about each episode of a decision record."""
    return [_make_request(prompt(steps, education), 0) for steps in _episodes(log).values()]


def _make_request(messages: Sequence[Mapping[str, str]], attempt: int) -> ChatRequest:
    seed = int(seeds.key("judge", attempt) % 2**31)
    return ChatRequest(messages, seed=seed, caller="judge")


# Scores -------------------------------------------------------------------------------------------


async def _score_episode(
    model: ChatModel, messages: Sequence[Mapping[str, str]]
) -> dict[str, float]:
    """The scores of one episode and what they took, asked for again once if the reply is of no use."""
    row = dict.fromkeys(CRITERIA, float("nan"))
    row |= dict.fromkeys(("calls", "malformed", "failures", *_SPENT), 0)
    for attempt in range(ATTEMPTS):
        reply = await model.reply_to(_make_request(messages, attempt))
        row["calls"] += 1
        for name in _SPENT:
            row[name] += getattr(reply, name)
        if reply.failure is None:
            try:
                return row | read(reply.text).model_dump()
            except InvalidReply as problem:
                complaint = str(problem)
        else:
            complaint = f"the reply is unusable ({reply.failure.kind})"

        if reply.failure is not None and reply.failure.of_infrastructure:
            row["failures"] += 1
            break  # nobody spoke, so there is nobody to correct
        row["malformed"] += 1
        correction = template("judge_correction.md").render(problem=complaint, names=CRITERIA)
        messages = again(messages, reply.text, correction.strip())
    return row


def read(text: str) -> Scores:
    """The scores in a reply. Raises InvalidReply, whose message says what was wrong with it."""
    content, _ = read_object(text, CRITERIA)
    try:
        return Scores.model_validate(content)
    except ValidationError as error:
        said = "; ".join(
            f"field {'.'.join(map(str, each['loc']))!r}: {each['msg']}" for each in error.errors()
        )
        raise InvalidReply("wrong_fields", said) from None
