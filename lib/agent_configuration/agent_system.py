"""The agent system that a configuration sets up: questions in, outcomes out, many at once.

All episodes of a batch are under way together, so the engine of a lab model always has many sequences to step. What
an episode gives depends on its question, its configuration and its draw, not on who else is in the batch.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from lib.agent_configuration.action_space import Configuration
from lib.agent_configuration.agent_models import AgentModel
from lib.agent_configuration.agent_team import Note, Team
from lib.agent_configuration.questions import is_solved, kind_of
from lib.agent_configuration.rewards import Weights, reward
from lib.agent_configuration.workflows import PROGRAMS, Workflow
from lib.experiment import seeds
from lib.llm.chat_model import INFRASTRUCTURE_FAILURES, Failure
from lib.llm.errors import InfrastructureError
from lib.llm.event_loop import EventLoopThread
from lib.tasks import Item
from lib.tasks.scorers import Scorer
from lib.tools.tool import Tool

VERSION = 1  # of outcomes of episodes
# Columns of a structure in tables, in the order of `action_space.DIMENSIONS`.
STRUCTURE_COLUMNS = ("w", "tools1", "tools2", "budget1", "budget2", "budget3")


@dataclass(frozen=True)
class ConfiguredQuestion:
    """A question under a configuration.

    Attributes:
        item: The question.
        configuration: How the agents are set up for it.
        draw: Which of several independent samples it is.
    """

    item: Item
    configuration: Configuration
    draw: int = 0


@dataclass(frozen=True)
class ConfiguredAnswer:
    """The outcome of a question under a configuration.

    Attributes:
        correct: 0 or 1, or between them where a scorer gives parts of a point.
        answer: The answer in the last turn; None where there is none.
        text: The last turn.
        calls: Calls of agents, n_steps of the reward.
        turns: Turns of the model.
        tokens_in: Tokens read.
        tokens_out: Tokens written.
        cost_usd: US dollars.
        seconds: How long it took, by the declared clock; calls that go on together count once.
        used: Calls of tools.
        tools: Their names, in order.
        cut: Calls that were cut off.
        failures: Kinds of failures of turns and of the judgement.
        trail: The notes that the calls left.
        cut_by_model: Calls that the model's own limit cut, with budget left.
    """

    correct: float
    answer: str | None
    text: str
    calls: int
    turns: int
    tokens_in: int
    tokens_out: int
    cost_usd: float
    seconds: float
    used: int
    tools: tuple[str, ...]
    cut: int
    failures: tuple[str, ...]
    trail: tuple[Note, ...]
    cut_by_model: int = 0

    @property
    def lost_calls(self) -> int:
        """Turns that the infrastructure failed, such as by a provider's filter: they say nothing about the agents."""
        return sum(Failure(kind).of_infrastructure for kind in self.failures)


class System:
    """Agents that can be configured."""

    def __init__(
        self,
        model: AgentModel,
        tools: Mapping[str, Tool],
        tiers: Sequence[int] | Sequence[Sequence[int]],
        prompts: Mapping[str, str],
        loop: EventLoopThread,
        programs: Mapping[str, Workflow] = PROGRAMS,
        scorer: Scorer | None = None,
        stops_at_lost_calls: bool = True,
        tells_rules: bool = True,
    ) -> None:
        """Prepare to work on questions.

        Args:
            model: What all agents are.
            tools: Tools by name.
            tiers: Tokens of the three budgets; or a row of three for each of the three agents.
            prompts: The text of each atom by name, as the model is to read it.
            loop: The event loop that calls are awaited on.
            programs: The program of each workflow.
            scorer: Scores the last turn of an episode; None for the rule of the lesson's questions.
            stops_at_lost_calls: Whether a call that a later run may get answered ends the work; if not, its episode
                has no score.
            tells_rules: Whether agents are told the rule of the lab's chains of digits.
        """
        self.model = model
        self.tools = dict(tools)
        self.tiers = tuple(tiers)
        self.prompts = dict(prompts)
        self.loop = loop
        self.programs = programs
        self.scorer = scorer
        self.stops_at_lost_calls = stops_at_lost_calls
        self.tells_rules = tells_rules
        # Called with the number of episodes of a batch that are finished, and the number of all.
        self.report_progress: Callable[[int, int], None] = lambda num_finished, num_episodes: None

    @property
    def max_tokens(self) -> float:
        """T_max: what three agents may write under the largest budgets."""
        return float(np.broadcast_to(self.tiers, (3, 3)).max(axis=1).sum())

    def run(self, jobs: Sequence[ConfiguredQuestion]) -> list[ConfiguredAnswer]:
        """Answer questions under configurations.

        Args:
            jobs: The questions; equal jobs are done once.

        Returns:
            The outcome of each job, in order.
        """
        return self.loop.run(self.run_async(jobs))

    async def run_async(self, jobs: Sequence[ConfiguredQuestion]) -> list[ConfiguredAnswer]:
        """Answer questions under configurations, on an event loop that is running already.

        Args:
            jobs: The questions; equal jobs are done once.

        Returns:
            The outcome of each job, in order.
        """
        distinct_jobs = {self._name(job): job for job in jobs}
        num_finished = 0

        async def solve_and_count(job: ConfiguredQuestion) -> ConfiguredAnswer:
            nonlocal num_finished
            answer = await self.solve(job)
            num_finished += 1
            self.report_progress(num_finished, len(distinct_jobs))
            return answer

        # What fails ends the work only once everything else has come back: a reply on its way is paid for.
        answers = await asyncio.gather(
            *(solve_and_count(job) for job in distinct_jobs.values()), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        answer_by_name = dict(zip(distinct_jobs, answers, strict=True))
        return [answer_by_name[self._name(job)] for job in jobs]

    async def solve(self, job: ConfiguredQuestion) -> ConfiguredAnswer:
        """Answer one question under its configuration.

        Args:
            job: The question.

        Returns:
            The outcome.

        Raises:
            InfrastructureError: Where a call failed for reasons that say nothing about the agents. Finished replies
                are recorded, so the next run goes on here.
        """
        item, configuration = job.item, job.configuration
        prompts = [[self.prompts[atom] for atom in atoms] for atoms in configuration.atoms]
        # The key names the question and the draw alone, so that configurations share random numbers.
        key = int(seeds.key("configuration", "draw", item.id, seed=job.draw) >> 2)
        team = Team(
            self.model, self.tools, configuration, prompts, self.tiers, key, self.tells_rules
        )
        last_note = await self.programs[configuration.workflow](team, item.prompt)
        usage = team.usage
        self._check_failures(item, usage.failures)
        failures = list(usage.failures)

        # A judge that was lost is a failure like a lost turn: the answer is neither right nor wrong.
        correct, lost_judgement = await self._score(item, last_note.text)
        if lost_judgement:
            failures.append(lost_judgement)
        return ConfiguredAnswer(
            correct=correct,
            answer=last_note.answer,
            text=last_note.text,
            calls=usage.calls,
            turns=usage.turns,
            tokens_in=usage.tokens_in,
            tokens_out=usage.tokens_out,
            cost_usd=usage.cost_usd,
            seconds=last_note.at,
            used=len(usage.tools),
            tools=tuple(usage.tools),
            cut=usage.cut,
            failures=tuple(failures),
            trail=tuple(usage.trail),
            cut_by_model=usage.cut_by_model,
        )

    def _check_failures(self, item: Item, failures: Sequence[str]) -> None:
        """Check that no call was lost that a later run may get answered.

        Args:
            item: The question.
            failures: Kinds of the failed calls.

        Raises:
            InfrastructureError: A call was lost.
        """
        lost = [kind for kind in failures if Failure(kind).may_succeed_later]
        if lost and self.stops_at_lost_calls:
            raise InfrastructureError(
                f"{self.model.name}: {lost[0]} at the question {item.prompt[:60]!r}; the answer would be scored as "
                "wrong. Check the server and run again, what is finished is kept"
            )

    async def _score(self, item: Item, text: str) -> tuple[float, str]:
        """Score an answer.

        Args:
            item: The question.
            text: The last turn of its episode.

        Returns:
            The score from 0 to 1, and "" or the kind of failure of a judgement that was lost.
        """
        if self.scorer is None:
            return float(is_solved(item, text)), ""
        (score,) = await self.scorer.score_all([item], [text])
        if not score.lost:
            return score.value, ""
        kind = score.failure.partition(":")[0]
        # A judge whose reply cannot be read has lost the judgement too.
        return 0.0, kind if kind in INFRASTRUCTURE_FAILURES else "not_a_reply"

    def compute_rewards(
        self,
        jobs: Sequence[ConfiguredQuestion],
        outcomes: Sequence[ConfiguredAnswer],
        weights: Weights,
    ) -> np.ndarray:
        """Compute R of eq. 3.

        Args:
            jobs: n questions under configurations.
            outcomes: Their outcomes.
            weights: Coefficients of the reward.

        Returns:
            (n,) rewards; nan where the infrastructure lost a turn, which is never scored.
        """
        rewards = reward(
            correct=np.array([outcome.correct for outcome in outcomes], float),
            steps=np.array([outcome.calls for outcome in outcomes], float),
            tokens=np.array([outcome.tokens_out for outcome in outcomes], float),
            used=np.array([outcome.used for outcome in outcomes], float),
            allocated=np.array([job.configuration.allocated for job in jobs]),
            max_tokens=self.max_tokens,
            weights=weights,
        )
        is_lost = np.array([outcome.lost_calls > 0 for outcome in outcomes], bool)
        return np.where(is_lost, np.nan, rewards)

    @staticmethod
    def _name(job: ConfiguredQuestion) -> tuple:
        """Equal for jobs that have the same outcome."""
        return job.item.prompt, job.configuration, job.draw


def make_table(
    jobs: Sequence[ConfiguredQuestion],
    outcomes: Sequence[ConfiguredAnswer],
    rewards: np.ndarray,
    name_group: Callable[[Item], str] = kind_of,
) -> pd.DataFrame:
    """Make a row for each job: the question, the configuration by dimension, and the outcome.

    Args:
        jobs: n questions under configurations.
        outcomes: Their outcomes.
        rewards: (n,) of the outcomes.
        name_group: What the column `group` says of a question; its kind by default.

    Returns:
        The rows. `correct` is nan where the infrastructure lost a turn (lost_calls), as the reward is.
    """
    rows = []
    for job, outcome, reward_of_job in zip(jobs, outcomes, rewards, strict=True):
        item, configuration = job.item, job.configuration
        row = {
            "key": item.id,
            "prompt": item.prompt,
            "group": name_group(item),
            "difficulty": item.difficulty,
            "workflow": configuration.workflow,
        }
        row |= dict(zip(STRUCTURE_COLUMNS, configuration.structure, strict=True))
        row |= {
            "atoms": " | ".join(" , ".join(names) for names in configuration.atoms),
            "allocated": configuration.allocated,
            "digest": configuration.digest,
            # An episode that lost a turn is neither right nor wrong.
            "correct": np.nan if outcome.lost_calls else float(outcome.correct),
            "reward": float(reward_of_job),
            "calls": outcome.calls,
            "turns": outcome.turns,
            "tokens_out": outcome.tokens_out,
            "tokens_in": outcome.tokens_in,
            "cost_usd": outcome.cost_usd,
            "seconds": outcome.seconds,
            "used": outcome.used,
            "cut": outcome.cut,
            "cut_by_model": outcome.cut_by_model,
            "failures": len(outcome.failures),
            "lost_calls": outcome.lost_calls,
            "answered": float(outcome.answer is not None),
            "answer": outcome.answer or "",
            "text": outcome.text,
        }
        rows.append(row)
    return pd.DataFrame(rows)


def read_configurations(rows: pd.DataFrame) -> list[Configuration]:
    """Parse the configurations of a table of answers.

    Args:
        rows: Rows of `make_table`.

    Returns:
        A configuration for each row.
    """
    configurations = []
    structures = rows[list(STRUCTURE_COLUMNS)].to_numpy()
    for structure, atoms in zip(structures, rows["atoms"], strict=True):
        atoms_by_agent = []
        for names in atoms.split("|"):  # such as "base/reasoner/stepwise , base/reasoner/brief "
            names = names.strip()
            atoms_by_agent.append(tuple(names.split(" , ")) if names else ())
        configurations.append(Configuration(tuple(structure.tolist()), tuple(atoms_by_agent)))
    return configurations


def drop_lost_questions(*tables: pd.DataFrame) -> list[pd.DataFrame]:
    """Leave out questions of which the infrastructure lost an answer, for everyone, so that all answer the same ones.

    Args:
        *tables: Tables of `make_table`.

    Returns:
        The tables without the rows of a question whose reward is nan in any of them.
    """
    lost_prompts = set()
    for rows in tables:
        lost_prompts |= set(rows.loc[rows["reward"].isna(), "prompt"])
    if not lost_prompts:
        return list(tables)
    return [rows[~rows["prompt"].isin(lost_prompts)].reset_index(drop=True) for rows in tables]
