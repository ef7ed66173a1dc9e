"""Questions under a budget as episodes (CoRL, algorithm 1): the experts reply, the reward is eq. 7.

Left out: which questions and budgets there are (`variants`), and what is learned from an episode.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd

from lib import tasks
from lib.rl import call_protocol, rollout
from lib.rl.budget_reward import compute_budget_reward, compute_cost_reward
from lib.rl.expert_pool import ExpertPool, ExpertQuery, ExpertReply, derive_reply_seed
from lib.rl.generators import Generator
from lib.rl.token_batch import Sample
from lib.rl.transcript import split_by_writer
from lib.tasks import Item
from lib.tasks.scorers import Scorer

VERSION = 1  # of episodes under a budget


@dataclass(frozen=True)
class BudgetTask:
    """A question under a budget.

    Attributes:
        item: The question.
        style: Of the prompt: soft, hard or number.
        label: How the prompt names the budget.
        budget: B in US dollars.
        attempt: Which of the experts' independent replies the episode meets.
    """

    item: Item
    style: str
    label: str
    budget: float
    attempt: int = 0


class BudgetEpisode(rollout.Episode):
    """What became of a question under a budget; nan where nothing may be scored."""

    @property
    def within(self) -> float:
        """r_c of eq. 5; nan where a reply was lost, since nobody knows what the episode would have cost."""
        return math.nan if self.failed else compute_cost_reward(self.cost_usd, self.task.budget)

    @property
    def reward(self) -> float:
        """r of eq. 7."""
        return compute_budget_reward(self.correct, self.cost_usd, self.task.budget)

    @property
    def scored(self) -> bool:
        """Whether there is a score: no reply was lost, and neither was the judgement."""
        return not math.isnan(self.correct)


def roll(
    generator: Generator,
    pool: ExpertPool,
    budget_tasks: Sequence[BudgetTask],
    max_turns: int,
    seed: int,
    temperature: float = 1.0,
    scorer: Scorer | None = None,
) -> list[BudgetEpisode]:
    """Roll out an episode per task.

    With a lab model an episode's random numbers depend on the seed and on its index among the tasks, not on the other
    episodes of the batch.

    Args:
        generator: The controller's.
        pool: The experts.
        budget_tasks: Questions under budgets.
        max_turns: M, turns of the controller at the most.
        seed: Of this batch.
        temperature: Of the controller.
        scorer: How a reply is scored, with its own rule of what in it is the answer; None for the strict rule of the
            procedural families, whose answers stand in tags.

    Returns:
        The episodes, in the order of the tasks.
    """
    episodes = []
    for task in budget_tasks:
        item = task.item
        ids = generator.encode_prompt(
            call_protocol.make_messages(task.style, task.label, item.prompt, item.history)
        )
        episodes.append(BudgetEpisode(task, list(ids), [False] * len(ids), len(ids)))
    environment = _ExpertEnvironment(pool, reads_marked_answers=scorer is not None)
    rollout.roll_out(generator, environment, episodes, max_turns, seed, temperature)
    _score_episodes(episodes, pool, scorer)
    return episodes


def _score_episodes(
    episodes: Sequence[BudgetEpisode], pool: ExpertPool, scorer: Scorer | None
) -> None:
    """Fill in what the answers are worth: 0 for an episode without one, nan for one that may not be scored."""
    scored_episodes = []
    for episode in episodes:
        if episode.failed:
            episode.correct = math.nan
        elif episode.turns:  # none where the question alone fills the window
            scored_episodes.append(episode)
    if scorer is None:
        for episode in scored_episodes:
            last_text = episode.turns[-1].text
            handed_on = episode.answers_with_reply
            reply = tasks.format_reply(episode.answer) if handed_on else last_text
            episode.correct = tasks.score_reply(episode.task.item, reply)
        return

    # The query of a call that was not made any more is no answer, whatever a tolerant rule would find in it.
    answered = [episode for episode in scored_episodes if episode.turns[-1].call is None]
    items = [episode.task.item for episode in answered]
    replies = []
    for episode in answered:
        # What is handed on is the expert's whole reply: its answer may be marked in any way, its lines may be code.
        if episode.answers_with_reply:
            replies.append(episode.replies[-1].text)
        else:
            replies.append(episode.turns[-1].text)
    # On the pool's event loop, since the scorer may be one of its models.
    scores = pool.run(scorer.score_all(items, replies))
    for episode, score in zip(answered, scores, strict=True):
        episode.correct = score.value


@dataclass(frozen=True)
class _ExpertEnvironment:
    """The pool as what a controller acts on.

    Attributes:
        pool: The experts.
        reads_marked_answers: Whether an answer may be marked in another way than by tags, for example boxed.
    """

    pool: ExpertPool
    reads_marked_answers: bool = False

    def parse_turn(self, episode: rollout.Episode, text: str) -> call_protocol.ParsedTurn:
        turn = call_protocol.parse_turn(text, self.pool.experts)
        if not isinstance(turn, call_protocol.Malformed) or not self.reads_marked_answers:
            return turn
        return call_protocol.Answer(text) if call_protocol.marks_answer(text) else turn

    def answer_calls(
        self, calls: Sequence[tuple[rollout.Episode, call_protocol.Call, int]]
    ) -> list[ExpertReply]:
        queries = []
        for episode, call, _ in calls:
            text = call.query
            history: tuple[tuple[str, str], ...] = ()
            if call.query == call_protocol.USER_QUESTION:
                text = episode.task.item.prompt
                history = episode.task.item.history
            seed = derive_reply_seed(text, episode.task.attempt)
            queries.append(ExpertQuery(call.expert, text, seed, history))
        return self.pool.ask(queries)


# Tables and samples ------------------------------------------------------------------------------


def make_samples(episodes: Sequence[BudgetEpisode], group: int = 1) -> list[Sample]:
    """Episodes as the trainer takes them.

    Left out are episodes whose question leaves no room for a turn, which teach nothing, and those that may not be
    scored, because the infrastructure lost a reply or a judgement.

    Args:
        episodes: Of one update.
        group: How many in a row answer the same question.

    Returns:
        Samples; advantages are whitened under each budget word by itself: where little can be won, little is learned
        from otherwise.
    """
    out = []
    for index, episode in enumerate(episodes):
        if not any(episode.mask) or not episode.scored:
            continue
        label = episode.task.label
        is_word = label in call_protocol.BUDGET_WORDS
        stratum = call_protocol.BUDGET_WORDS.index(label) if is_word else 0
        out.append(Sample(episode.ids, episode.mask, episode.reward, index // group, stratum))
    return out


def make_episode_rows(
    episodes: Sequence[BudgetEpisode],
    decode: Callable[[Sequence[int]], str] | None = None,
    questions: int | None = None,
) -> pd.DataFrame:
    """One row per episode.

    Args:
        episodes: What was rolled out.
        decode: Token ids to text; with it the rows have the column spoken, the episode in words.
        questions: How many there are, each under every budget in turn; None: no two are equal.

    Returns:
        Columns item (number of the question), group (its family), difficulty; condition and budget (as the prompt
        names it, and in dollars); correct, within and reward (r_p, r_c and r of eq. 5 to 7; nan where nothing may be
        scored); cost_usd; calls and chosen (experts in order, separated by blanks); malformed turns; failures of
        experts, of both kinds; failed (whether the infrastructure lost a reply), truncated (replies that reached the
        expert's own limit), shortened (replies of which the controller read a part); turns; written (tokens of the
        controller); tokens (all).
    """
    rows = []
    for index, episode in enumerate(episodes):
        task = episode.task
        row = {
            "item": index % (questions or len(episodes)),
            "group": task.item.group,
            "difficulty": task.item.difficulty,
            "condition": task.label,
            "budget": task.budget,
            "correct": episode.correct,
            "within": episode.within,
            "reward": episode.reward,
            "cost_usd": episode.cost_usd,
            "calls": len(episode.called_experts),
            "chosen": " ".join(episode.called_experts),
            "malformed": episode.num_malformed,
            "failures": sum(reply.failure is not None for reply in episode.replies),
            "failed": episode.failed,
            "truncated": episode.num_truncated,
            "shortened": episode.num_shortened,
            "turns": len(episode.turns),
            "written": episode.num_written_tokens,
            "tokens": len(episode.ids),
        }
        if decode:
            row["spoken"] = json.dumps(split_by_writer(episode, decode))
        rows.append(row)
    return pd.DataFrame(rows)
