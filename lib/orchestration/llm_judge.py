"""A judge reads trajectories of students and scores them from 1 to 5 (section 4.2.3, Tables 4 and 12).

Four scores say how an orchestrator chose (Table 12), five what it was like for the student, after NASA-TLX (Table 4).
The paper names the criteria and prints no rubric. Ours is `templates/judge_system.md`: words for the scores 1, 3 and 5,
about what stands in a trajectory. Every episode is judged by itself, so that scores have intervals. A reply that cannot
be used is sent back once; then the episode's scores are missing and counted, and no score is ever invented.

The judge does not learn whose trajectories it reads; random choice is judged like any method, as a control. Mental,
temporal, effort and frustration measure demand, so lower is better. For performance the paper does not say which end is
good; here 5 means that the student attains the goal, which agrees with its text on KO ("high performance").

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
from lib.orchestration.domain_descriptions import EDUCATION
from lib.orchestration.prompts import load_template, send_back
from lib.policy_zoo.recipes import SINGLE

VERSION = 2  # of what a judge is asked and how its scores are read
TRAJECTORY_CRITERIA = ("adaptivity", "progression", "exploration", "diversity")  # Table 12
EXPERIENCE_CRITERIA = ("mental", "temporal", "performance", "effort", "frustration")  # Table 4
CRITERIA = TRAJECTORY_CRITERIA + EXPERIENCE_CRITERIA
LOWEST, HIGHEST = 1, 5  # scores
# Of a table of steps; those that name an episode, where it has them, and those that a judge reads.
EPISODE_COLUMNS = ("method", "seed", "item", "episode")
STEP_COLUMNS = (
    "episode",
    "step",
    "choice",
    "action",
    "mastery",
    "mastery_after",
    "failed_questions_open",
    "levels",
    *(f"result_{index}" for index in range(len(EDUCATION.objectives))),
    "failure",
)
ATTEMPTS = 2  # at an episode: a reply that cannot be used is sent back once
_SPENT = ("tokens_in", "tokens_out", "cost_usd")

# Numbers in replies are read as floats.
Score = Annotated[float, Field(ge=LOWEST, le=HIGHEST, multiple_of=1)]
# A judge's reply; no score is missing. Further fields are ignored.
Scores = create_model(
    "Scores",
    __config__=ConfigDict(extra="ignore", strict=True),
    **dict.fromkeys(CRITERIA, (Score, ...)),
)


async def judge(
    model: ChatModel,
    steps: pd.DataFrame,
    education: EducationSettings,
    policies: Sequence[str] = SINGLE,
) -> pd.DataFrame:
    """Let a chat model score every episode of students from 1 to 5, and return a table with a row per episode.

    Args:
        model: The judge.
        steps: A row per step of one method or, with the columns method and seed, of several.
        education: Settings of the episodes, for the prompt.
        policies: Names of the policies that could be chosen.

    Returns:
        Columns: those of EPISODE_COLUMNS that `steps` has, the criteria (whole numbers, nan where no reply
        could be used), calls, malformed (replies that could not be used), failures (calls that the infrastructure
        failed), tokens_in, tokens_out, cost_usd, backend, judge (its name).

    Raises:
        ValueError: The table is empty, or lacks columns that a judge reads.
    """
    episodes = split_episodes(steps)
    scores_by_episode = await asyncio.gather(
        *(
            _score_episode(model, make_prompt(episode, education, policies))
            for _, episode in episodes
        )
    )
    rows = [
        identity | scores for (identity, _), scores in zip(episodes, scores_by_episode, strict=True)
    ]
    return pd.DataFrame(rows).assign(backend=model.backend, judge=model.name)


def make_first_requests(
    steps: pd.DataFrame, education: EducationSettings, policies: Sequence[str] = SINGLE
) -> list[ChatRequest]:
    """The first request to a judge about each episode, without those that follow an unusable reply.

    Args:
        steps: A row per step.
        education: Settings of the episodes, for the prompt.
        policies: Names of the policies that could be chosen.
    """
    return [
        _make_request(make_prompt(episode, education, policies), attempt=0)
        for _, episode in split_episodes(steps)
    ]


# The prompt ---------------------------------------------------------------------------------------


def split_episodes(steps: pd.DataFrame) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """Split a table of steps into episodes.

    Args:
        steps: A row per step of students.

    Returns:
        For each episode the columns that identify it, and its steps in order.

    Raises:
        ValueError: The table is empty, or lacks columns that a judge reads.
    """
    missing = [name for name in STEP_COLUMNS if name not in steps]
    if missing or steps.empty:
        problem = f"lacks {', '.join(missing)}" if missing else "is empty"
        raise ValueError(f"the judge reads steps of education; this table {problem}")
    names = [name for name in EPISODE_COLUMNS if name in steps]
    return [
        (dict(zip(names, values, strict=True)), episode.sort_values("step"))
        for values, episode in steps.groupby(names, sort=False)
    ]


def make_prompt(
    episode: pd.DataFrame, education: EducationSettings, policies: Sequence[str] = SINGLE
) -> list[dict[str, str]]:
    """Write the messages that ask a judge to score one episode: the rubric, then a line for each step.

    Args:
        episode: A row per step of the episode, in order.
        education: Settings of the episode.
        policies: Names of the policies that could be chosen.

    Returns:
        A system and a user message.
    """
    variables = {
        "topic": education.topic,
        "names": CRITERIA,
        "objectives": list(EDUCATION.objectives),
        "steps": [describe_step(row) for row in episode.to_dict("records")],
        # A reference policy stands on no menu.
        "policies": list(dict.fromkeys([*policies, *episode["choice"]])),
        "goal": education.goal,
        "horizon": education.horizon,
        "has_failures": (episode["failure"] != "").any(),
    }
    return [
        {"role": role, "content": load_template(f"judge_{role}").render(variables).strip()}
        for role in ("system", "user")
    ]


def describe_step(row: Mapping[str, Any]) -> str:
    """Describe one step as a line of a prompt, such as `7 | SO-d1 | challenge | 55555 | 0.40 > 0.50 | 3 | 0.67 0.00
    0.20`.

    Args:
        row: The columns of the step.

    Returns:
        step, policy, action, levels of the questions, mastery before and after, failed questions, and objectives.
    """
    action = list(EDUCATION.actions)[int(row["action"])]
    results = [row[f"result_{index}"] for index in range(len(EDUCATION.objectives))]
    fields = [
        str(int(row["step"]) + 1),
        f"{row['choice']} (no choice)" if row["failure"] else row["choice"],
        action,
        row["levels"],
        f"{row['mastery']:.2f} > {row['mastery_after']:.2f}",
        f"{row['failed_questions_open']:.0f}",
        " ".join(f"{result:.2f}" for result in results),
    ]
    return " | ".join(fields)


def _make_request(messages: Sequence[Mapping[str, str]], attempt: int) -> ChatRequest:
    seed = int(seeds.key("judge", attempt)) % 2**31
    return ChatRequest(messages, seed=seed, caller="judge")


# Scores -------------------------------------------------------------------------------------------


async def _score_episode(
    model: ChatModel, messages: Sequence[Mapping[str, str]]
) -> dict[str, float]:
    """Ask the judge to score one episode, and count calls, tokens and dollars.

    Args:
        model: The judge.
        messages: The prompt. Where the reply cannot be used, it is sent back once with a correction.

    Returns:
        A score by criterion, nan where no reply could be used.
    """
    row = dict.fromkeys(CRITERIA, float("nan"))
    row |= dict.fromkeys(("calls", "malformed", "failures", *_SPENT), 0)
    for attempt in range(ATTEMPTS):
        reply = await model.reply_to(_make_request(messages, attempt))
        row["calls"] += 1
        for name in _SPENT:
            row[name] += getattr(reply, name)

        if reply.failure is None:
            try:
                return row | read_scores(reply.text)
            except InvalidReply as problem:
                complaint = str(problem)
        elif reply.failure.of_infrastructure:
            row["failures"] += 1
            break  # nobody spoke, so there is nobody to correct
        else:
            complaint = f"the reply is unusable ({reply.failure.kind})"

        row["malformed"] += 1
        template = load_template("judge_correction")
        correction = template.render(problem=complaint, names=CRITERIA).strip()
        messages = send_back(messages, reply.text, correction)
    return row


def read_scores(text: str) -> dict[str, int]:
    """Parse the scores in a judge's reply, a whole number from LOWEST to HIGHEST for each criterion.

    Args:
        text: The reply.

    Returns:
        Scores by criterion.

    Raises:
        InvalidReply: The message says what is wrong with it.
    """
    content, _ = read_object(text, CRITERIA)
    try:
        scores = Scores.model_validate(content)
    except ValidationError as error:
        problems = [f"field {problem['loc'][0]!r}: {problem['msg']}" for problem in error.errors()]
        raise InvalidReply("wrong_fields", "; ".join(problems)) from None
    return {name: int(score) for name, score in scores.model_dump().items()}
