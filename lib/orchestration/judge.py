"""A judge reads trajectories and scores them from 1 to 5 (section 4.2.3, Tables 4 and 12).

Four scores say how an orchestrator chose (Table 12), five what it was like for the student, after
NASA-TLX (Table 4). The paper names the criteria and prints no rubric: the one in `judge_system.md` is
ours and measurable, so that a program can be judge as well as a language model. Three votes are asked
for, and the median counts. A vote that cannot be used is sent back once, then it is lost and counted;
no score is ever invented.

The judge does not learn whose trajectories it reads. Mental, temporal, effort and frustration measure
demand, so lower is better. For performance the paper does not say which end is good; here 5 means that
the student attains the goal, which agrees with its text on KO ("high performance").

Left out: MiniGrid, which the paper does not judge, and pairwise comparison of methods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Annotated, Any

import pandas as pd
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from lib import seeds
from lib.llm.client import Client
from lib.llm.errors import ReplyError
from lib.llm.replies import InvalidReply, one_object
from lib.orchestration.components import template
from lib.orchestration.orchestrators import ANSWERED
from lib.orchestration.student import WORDS
from lib.params import EducationSettings

CHOOSING = ("adaptivity", "progression", "exploration", "diversity")  # Table 12
STUDENT = ("mental", "temporal", "performance", "effort", "frustration")  # Table 4
CRITERIA = (*CHOOSING, *STUDENT)
SHOWN = 4  # episodes in a prompt, of those that the log holds
VOTES = 3
COLUMNS = ("method", "seed", "episode", "step", "choice", "action", "fallback", "mastery", "mastery_after")


def _whole(value: Any) -> Any:
    """4.0 as 4: `replies` reads every number as a float, and strict integers refuse those."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Score = Annotated[int, BeforeValidator(_whole), Field(ge=1, le=5)]


class Scores(BaseModel):
    """A judge's reply; whole numbers from 1 to 5, none missing. Further fields are ignored."""

    model_config = ConfigDict(extra="ignore", strict=True, frozen=True)

    reasoning: str = ""
    adaptivity: Score
    progression: Score
    exploration: Score
    diversity: Score
    mental: Score
    temporal: Score
    performance: Score
    effort: Score
    frustration: Score


@dataclass(frozen=True)
class Vote:
    """One vote: its scores, or None where no reply could be used; what it took; what went wrong."""

    scores: Scores | None
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    dollars: float = 0.0
    kwh: float = 0.0
    trouble: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What a judge makes of one method. backend: where the judge runs (scripted, endpoint); episodes:
    how many it read."""

    method: str
    judge: str
    backend: str
    episodes: int
    votes: tuple[Vote, ...]

    @property
    def scores(self) -> list[Scores]:
        """The usable votes, in order."""
        return [vote.scores for vote in self.votes if vote.scores]

    @property
    def invalid(self) -> int:
        """Votes lost, because no reply could be used."""
        return len(self.votes) - len(self.scores)

    @property
    def medians(self) -> dict[str, float]:
        """The median vote on each criterion; nan where every vote was lost."""
        votes = self.scores
        return {name: float(median(getattr(v, name) for v in votes)) if votes else float("nan") for name in CRITERIA}

    def spent(self, what: str) -> float:
        """The sum of calls, tokens_in, tokens_out, dollars or kwh over the votes."""
        return sum(getattr(vote, what) for vote in self.votes)


async def judge(
    client: Client,
    model: str,
    log: pd.DataFrame,
    education: EducationSettings,
    votes: int = VOTES,
    shown: int = SHOWN,
) -> Verdict:
    """The verdict of `model` on the decision record of one method in education.

    log: rows as `study.run` returns them; of its episodes `shown` are printed, spread evenly. Raises
    ValueError for a log that is empty, of several methods, or no record of education; lets through
    what stops a run (BudgetExceeded, LLMError other than ReplyError).
    """
    method = _only_method(log)
    messages = prompt(log, education, shown)
    cast = await asyncio.gather(*(_vote(client, model, messages, sample) for sample in range(votes)))
    episodes = min(shown, log.groupby(["seed", "episode"]).ngroups)
    return Verdict(method, model, client.settings.models[model].backend, episodes, tuple(cast))


def table(verdicts: Sequence[Verdict]) -> pd.DataFrame:
    """Median scores by method, the four of Table 12 and the five of Table 4, and what judging took."""
    rows = [
        {
            "method": verdict.method,
            "judge": verdict.judge,
            "backend": verdict.backend,
            **verdict.medians,
            "votes": len(verdict.votes),
            "invalid": verdict.invalid,
            **{what: verdict.spent(what) for what in ("calls", "tokens_in", "tokens_out", "dollars", "kwh")},
        }
        for verdict in verdicts
    ]
    return pd.DataFrame(rows).set_index("method")


# The prompt ---------------------------------------------------------------------------------------


def prompt(log: pd.DataFrame, education: EducationSettings, shown: int = SHOWN) -> list[dict[str, str]]:
    """The messages of a vote: the rubric, then up to `shown` episodes, one line a step."""
    _only_method(log)
    sessions = [steps.sort_values("step") for _, steps in log.groupby(["seed", "episode"])]
    kept = [sessions[i * len(sessions) // min(shown, len(sessions))] for i in range(min(shown, len(sessions)))]
    context = {
        "topic": education.topic,
        "names": CRITERIA,
        "objectives": list(WORDS.objectives),
        "sessions": [[step_line(row) for row in steps.to_dict("records")] for steps in kept],
        "policies": _menu(log),
        "goal": education.goal,
        "horizon": education.horizon,
        "fallbacks": any(steps["fallback"].any() for steps in kept),
    }
    return [
        {"role": role, "content": template(f"judge_{role}.md").render(context).strip()} for role in ("system", "user")
    ]


def step_line(row: Mapping[str, Any]) -> str:
    """A step of the record in a line, e.g. `7 | SO-d1 | challenge | 55555 | 0.40 > 0.50 | 3 | 0.67 0.00 0.20`."""
    who = f"{row['choice']} (fallback)" if row["fallback"] else row["choice"]
    did = list(WORDS.actions)[int(row["action"])]
    mastery = f"{row['mastery']:.2f} > {row['mastery_after']:.2f}"
    rewards = " ".join(f"{row[f'reward_{i}']:.2f}" for i in range(len(WORDS.objectives)))
    return f"{row['step'] + 1} | {who} | {did} | {row['levels']} | {mastery} | {row['open_failed']:.0f} | {rewards}"


def _menu(log: pd.DataFrame) -> list[str]:
    """The policies that there were to choose from; those that were chosen, where the log does not say."""
    offered = log["alternatives"].iloc[0].split(";") if "alternatives" in log else []
    return list(dict.fromkeys([*offered, *log["choice"]]))


def _only_method(log: pd.DataFrame) -> str:
    needed = [*COLUMNS, "open_failed", "levels", *(f"reward_{i}" for i in range(len(WORDS.objectives)))]
    missing = [name for name in needed if name not in log]
    if missing:
        raise ValueError(f"the judge reads decision records of education; this log lacks {', '.join(missing)}")
    methods = log["method"].unique().tolist()
    if len(methods) != 1:
        raise ValueError(f"the judge scores one method at a time, got {methods}; select one, e.g. with groupby")
    return methods[0]


# Votes --------------------------------------------------------------------------------------------


async def _vote(client: Client, model: str, messages: Sequence[Mapping[str, str]], sample: int) -> Vote:
    """One vote, asked for again once if the reply is of no use."""
    trouble, took = [], []
    for attempt in range(2):
        seed = int(seeds.key("judge", sample, attempt) % 2**31)
        try:
            reply = await client.chat(model, messages, seed=seed, sample=sample, who="judge")
            took.append(reply)
            return _cast(read(reply.text), took, trouble)
        except InvalidReply as problem:
            kind, complaint, said, answered = problem.kind, str(problem), reply.text, True
        except ReplyError as problem:
            took.append(problem)
            kind, complaint, said = problem.kind, f"the reply is unusable ({problem.kind})", problem.text or ""
            answered = kind in ANSWERED
        trouble.append(kind)
        if not answered:
            break
        sent_back = template("judge_correction.md").render(problem=complaint, names=CRITERIA).strip()
        messages = [
            *messages,
            {"role": "assistant", "content": said or "(nothing)"},
            {"role": "user", "content": sent_back},
        ]
    return _cast(None, took, trouble)


def _cast(scores: Scores | None, took: Sequence[Any], trouble: Sequence[str]) -> Vote:
    """A vote with what its replies took, used or not."""
    sums = {name: sum(getattr(each, name) for each in took) for name in ("tokens_in", "tokens_out", "dollars", "kwh")}
    return Vote(scores, calls=len(took), **sums, trouble=tuple(trouble))


def read(text: str) -> Scores:
    """The scores in a reply. Raises InvalidReply, whose message says what was wrong with it."""
    content, _ = one_object(text, CRITERIA)
    try:
        scores = Scores.model_validate(content)
        return scores.model_copy(update={"reasoning": scores.reasoning.encode(errors="replace").decode()})
    except ValidationError as error:
        said = "; ".join(f"field {'.'.join(map(str, each['loc']))!r}: {each['msg']}" for each in error.errors())
        raise InvalidReply("wrong_fields", said) from None


def metrics(verdicts: Sequence[Verdict]) -> dict[str, float | str]:
    """`judge.RO.scripted-large.adaptivity` and so on, the medians; scores that were all lost are left out."""
    out: dict[str, float | str] = {}
    for verdict in verdicts:
        name = f"judge.{verdict.method.replace(' ', '.', 1).replace(' ', '-')}"
        out |= {f"{name}.{key}": value for key, value in verdict.medians.items() if value == value}
        out |= {f"{name}.backend": verdict.backend, f"{name}.invalid_votes": verdict.invalid}
    return out
