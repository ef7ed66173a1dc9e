"""Questions under a budget as episodes (CoRL, algorithm 1): the experts reply, the reward is eq. 7."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lib import tasks
from lib.rl import call_protocol, rollout
from lib.rl.budget_reward import cost_reward, reward
from lib.rl.expert_pool import Heard, Pool, Query, drawn
from lib.rl.generators import Voice
from lib.rl.rollout import play
from lib.tasks import Item

VERSION = 1  # of episodes under a budget


@dataclass(frozen=True)
class BudgetTask:
    """A question under a budget. label: how the prompt names the budget; budget: B in dollars; attempt: which of the
    experts' independent replies are heard."""

    item: Item
    style: str
    label: str
    budget: float
    attempt: int = 0


class BudgetEpisode(rollout.Episode):
    """What became of a question under a budget."""

    @property
    def within(self) -> float:
        """r_c of eq. 5."""
        return cost_reward(self.cost_usd, self.task.budget)

    @property
    def reward(self) -> float:
        """r of eq. 7."""
        return reward(self.correct, self.cost_usd, self.task.budget)


Judge = Callable[[Item, str], float]


def roll(
    voice: Voice,
    pool: Pool,
    wanted: Sequence[BudgetTask],
    rounds: int,
    key: int,
    temperature: float = 1.0,
    judge: Judge = tasks.score,
) -> list[BudgetEpisode]:
    """An episode per task, in order. key: seed of this batch; judge(item, reply): r_p in [0, 1].

    With a lab voice an episode's draws depend on key and on its place in `wanted`, not on who else is in the batch.
    """
    rolled = []
    for task in wanted:
        ids = voice.prompt(call_protocol.messages(task.style, task.label, task.item.prompt))
        rolled.append(BudgetEpisode(task, list(ids), [False] * len(ids), len(ids)))
    play(voice, _Experts(pool), rolled, rounds, key, temperature)
    for episode in rolled:
        if episode.exchanges:  # none where the question alone fills the window
            said, answer = episode.exchanges[-1].said, episode.answer
            handed_on = answer is not None and answer != tasks.answered(said)
            episode.correct = judge(episode.task.item, tasks.reply(answer) if handed_on else said)
    return rolled


@dataclass(frozen=True)
class _Experts:
    """The pool as who replies."""

    pool: Pool

    def read(self, episode: rollout.Episode, text: str) -> call_protocol.Turn:
        return call_protocol.parse(text, self.pool.experts)

    def reply(
        self, asked: Sequence[tuple[rollout.Episode, call_protocol.Call, int]]
    ) -> list[Heard]:
        texts = [
            episode.task.item.prompt if call.query == call_protocol.AS_IT_STANDS else call.query
            for episode, call, _ in asked
        ]
        return self.pool.ask(
            [
                Query(call.expert, text, drawn(text, episode.task.attempt))
                for (episode, call, _), text in zip(asked, texts, strict=True)
            ]
        )
