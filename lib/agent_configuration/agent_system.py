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
from lib.agent_configuration.questions import kind_of, solved
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


@dataclass(frozen=True)
class ConfiguredQuestion:
    """A question under a configuration. draw: which of several tries of the same it is."""

    item: Item
    configuration: Configuration
    draw: int = 0


@dataclass(frozen=True)
class ConfiguredAnswer:
    """What became of a job. correct: 0 or 1, or between them where a scorer gives parts of a point; text: the last
    turn; calls: of agents, n_steps of the reward; turns: of the model;
    used: calls of tools; seconds: on the longest way, by the declared clock; cut: calls that were cut off;
    cut_by_model: those of them that the model's own limit cut, with budget left."""

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
            tools: By name.
            tiers: Tokens of the three budgets; or a row of three for each of the three agents.
            prompts: The text of each atom by name, as the model is to read it.
            loop: Where calls are awaited.
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
        # Told how many episodes of a batch are finished, and how many there are.
        self.report_progress: Callable[[int, int], None] = lambda num_finished, num_episodes: None

    @property
    def most(self) -> float:
        """T_max: what three agents may write under the largest budgets."""
        return float(np.broadcast_to(self.tiers, (3, 3)).max(axis=1).sum())

    def run(self, jobs: Sequence[ConfiguredQuestion]) -> list[ConfiguredAnswer]:
        """Outcomes of jobs, in order; equal jobs are done once."""
        return self.loop.run(self.all(jobs))

    async def all(self, jobs: Sequence[ConfiguredQuestion]) -> list[ConfiguredAnswer]:
        """The same, for who is on an event loop already."""
        once = {self._name(job): job for job in jobs}
        num_finished = 0

        async def solve_and_count(job: ConfiguredQuestion) -> ConfiguredAnswer:
            nonlocal num_finished
            answer = await self.solve(job)
            num_finished += 1
            self.report_progress(num_finished, len(once))
            return answer

        # What fails ends the work only once everything else has come back: a reply on its way is paid for.
        answers = await asyncio.gather(
            *(solve_and_count(job) for job in once.values()), return_exceptions=True
        )
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        answer_by_name = dict(zip(once, answers, strict=True))
        return [answer_by_name[self._name(job)] for job in jobs]

    async def solve(self, job: ConfiguredQuestion) -> ConfiguredAnswer:
        """One job.

        Raises:
            InfrastructureError: Where a call failed for reasons that say nothing about the agents. Finished replies
                are recorded, so the next run goes on here.
        """
        configuration = job.configuration
        told = [[self.prompts[atom] for atom in atoms] for atoms in configuration.atoms]
        key = int(seeds.key("configuration", "draw", job.item.id, seed=job.draw) >> 2)
        team = Team(self.model, self.tools, configuration, told, self.tiers, key, self.tells_rules)
        last = await self.programs[configuration.workflow](team, job.item.prompt)
        spent = team.spent
        lost = [kind for kind in spent.failures if Failure(kind).may_succeed_later]
        if lost and self.stops_at_lost_calls:
            raise InfrastructureError(
                f"{self.model.name}: {lost[0]} at the question {job.item.prompt[:60]!r}; the answer would be scored as "
                "wrong. Check the server and run again, what is finished is kept"
            )
        failures = list(spent.failures)
        correct, lost_judgement = await self._score(job.item, last.text)
        if lost_judgement:
            failures.append(lost_judgement)
        return ConfiguredAnswer(
            correct,
            last.answer,
            last.text,
            spent.calls,
            spent.turns,
            spent.tokens_in,
            spent.tokens_out,
            spent.cost_usd,
            last.at,
            len(spent.tools),
            tuple(spent.tools),
            spent.cut,
            tuple(failures),
            tuple(spent.trail),
            spent.cut_by_model,
        )

    async def _score(self, item: Item, text: str) -> tuple[float, str]:
        """Score an answer.

        Returns:
            The score from 0 to 1, and "" or the kind of failure of a judgement that was lost.
        """
        if self.scorer is None:
            return float(solved(item, text)), ""
        (score,) = await self.scorer.score_all([item], [text])
        if not score.lost:
            return score.value, ""
        kind = score.failure.partition(":")[0]
        # A judge whose reply cannot be read has lost the judgement too.
        return 0.0, kind if kind in INFRASTRUCTURE_FAILURES else "not_a_reply"

    def rewards(
        self,
        jobs: Sequence[ConfiguredQuestion],
        outcomes: Sequence[ConfiguredAnswer],
        weights: Weights,
    ) -> np.ndarray:
        """R of eq. 3 for each, (n,); nan where the infrastructure lost a turn, which is never scored."""
        held = np.array(
            [[o.correct, o.calls, o.tokens_out, o.used] for o in outcomes], float
        ).reshape(-1, 4)
        allocated = np.array([job.configuration.allocated for job in jobs])
        rewards = reward(
            held[:, 0], held[:, 1], held[:, 2], held[:, 3], allocated, self.most, weights
        )
        is_lost = np.array([outcome.lost_calls > 0 for outcome in outcomes], bool)
        return np.where(is_lost, np.nan, rewards)

    @staticmethod
    def _name(job: ConfiguredQuestion) -> tuple:
        return job.item.prompt, job.configuration, job.draw


def table(
    jobs: Sequence[ConfiguredQuestion],
    outcomes: Sequence[ConfiguredAnswer],
    rewards: np.ndarray,
    name_group: Callable[[Item], str] = kind_of,
) -> pd.DataFrame:
    """One row per job: the question's kind (group) and difficulty, the configuration part by part, what came of it.

    correct is nan where the infrastructure lost a turn (lost_calls), as its reward is."""
    rows = []
    for job, outcome, paid in zip(jobs, outcomes, rewards, strict=True):
        c = job.configuration
        rows.append(
            {
                "key": job.item.id,
                "prompt": job.item.prompt,
                "group": name_group(job.item),
                "difficulty": job.item.difficulty,
                "workflow": c.workflow,
                **dict(
                    zip(
                        ("w", "tools1", "tools2", "budget1", "budget2", "budget3"),
                        c.structure,
                        strict=True,
                    )
                ),
                "atoms": " | ".join(" , ".join(a) for a in c.atoms),
                "allocated": c.allocated,
                "digest": c.digest,
                "correct": np.nan if outcome.lost_calls else float(outcome.correct),
                "reward": float(paid),
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
        )
    return pd.DataFrame(rows)


def read_configurations(rows: pd.DataFrame) -> list[Configuration]:
    """Read the configurations back from the rows of `table`, one for each."""
    configurations = []
    names = ["w", "tools1", "tools2", "budget1", "budget2", "budget3"]
    for structure, atoms in zip(rows[names].to_numpy(), rows["atoms"], strict=True):
        by_agent = [agent.strip() for agent in atoms.split("|")]
        atom_names = tuple(tuple(agent.split(" , ")) if agent else () for agent in by_agent)
        configurations.append(Configuration(tuple(structure.tolist()), atom_names))
    return configurations


def drop_lost_questions(*tables: pd.DataFrame) -> list[pd.DataFrame]:
    """Leave out questions of which the infrastructure lost an answer, for everyone, so that all answer the same ones.

    Args:
        *tables: Of `table`.

    Returns:
        The tables without the rows of a question whose reward is nan in any of them.
    """
    lost_prompts = set()
    for rows in tables:
        lost_prompts |= set(rows.loc[rows["reward"].isna(), "prompt"])
    if not lost_prompts:
        return list(tables)
    return [rows[~rows["prompt"].isin(lost_prompts)].reset_index(drop=True) for rows in tables]
