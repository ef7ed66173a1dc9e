"""Episodes of a controller under a budget (CoRL, algorithm 1): what experts reply, and what the episode is worth.

CoRL trains a small language model, the controller. An episode is one question with a budget. Turn by turn the
controller writes a call to an expert, a model that costs money, and reads its reply, or it writes the answer, which
ends the episode. The reward is 1 if the answer is correct and all calls together cost no more than the budget, else 0.

Left out: which questions and budgets there are (`variants`), and how the controller learns (`lib.rl`).
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


# Episodes -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class BudgetTask:
    """The task of one episode: a question, and a budget that limits what calls to experts may cost.

    Attributes:
        item: The question.
        style: How the prompt states the budget: soft (a word), hard (a word, with a rule for what to do under it) or
            number (digits).
        budget_label: The budget as it stands in the prompt: low, medium or high, or digits.
        budget: B in US dollars, the limit on what the calls of the episode cost.
        reply_sample: Which of an expert's independent replies to the same question the episode meets, from 0 on.
        passes_question: Whether experts get the user's question word for word, whatever query the controller writes.
    """

    item: Item
    style: str
    budget_label: str
    budget: float
    reply_sample: int = 0
    passes_question: bool = False


class BudgetEpisode(rollout.Episode):
    """An episode of a controller under a budget: its tokens, turns and calls (`lib.rl.rollout`), and its reward.

    Rewards are nan where the infrastructure lost an expert's reply or a judge's score: such an episode says nothing
    about the controller.
    """

    @property
    def cost_reward(self) -> float:
        """r_c of CoRL, eq. 5: 1 if the calls to experts cost at most the budget, else 0; nan if a reply was lost."""
        if self.failed:  # what the lost reply would have cost is unknown
            return math.nan
        return compute_cost_reward(self.cost_usd, self.task.budget)

    @property
    def reward(self) -> float:
        """r of CoRL, eq. 7: the answer's score if the calls cost at most the budget, else 0; nan without a score."""
        return compute_budget_reward(self.correct, self.cost_usd, self.task.budget)

    @property
    def is_scored(self) -> bool:
        """Whether the answer has a score; it has none if an expert's reply or a judge's score was lost."""
        return not math.isnan(self.correct)


def roll_out_episodes(
    generator: Generator,
    pool: ExpertPool,
    budget_tasks: Sequence[BudgetTask],
    max_turns: int,
    seed: int,
    temperature: float = 1.0,
    scorer: Scorer | None = None,
) -> list[BudgetEpisode]:
    """Let a controller answer questions under budgets, one episode per task, and score its answers.

    The controller is a language model. In each turn it writes a call to an expert, a model that costs money, and reads
    the reply, or it writes its answer, which ends the episode. With a lab model an episode's random numbers depend on
    the seed and on its index among the tasks, not on the other episodes of the batch.

    Args:
        generator: Writes the controller's turns.
        pool: The experts that it may call.
        budget_tasks: Questions with the budgets that their prompts name.
        max_turns: M of algorithm 1, turns of the controller at the most.
        seed: Seed of the sampling of this batch.
        temperature: Temperature of the controller's sampling; 0 is greedy.
        scorer: Scores replies, with its own rule of what in them is the answer; None for the strict rule of the
            procedural families, whose answers stand in tags.

    Returns:
        The episodes, in the order of the tasks.

    Source: CoRL, algorithm 1.
    """
    episodes = play_episodes(
        generator,
        pool,
        budget_tasks,
        max_turns,
        seed,
        temperature,
        reads_marked_answers=scorer is not None,
    )
    _score_episodes(episodes, pool, scorer)
    return episodes


def play_episodes(
    generator: Generator,
    pool: ExpertPool,
    budget_tasks: Sequence[BudgetTask],
    max_turns: int,
    seed: int,
    temperature: float = 1.0,
    reads_marked_answers: bool = False,
) -> list[BudgetEpisode]:
    """Let a controller call experts and answer, one episode per task, as `roll_out_episodes` does, without scores.

    Args:
        generator: Writes the controller's turns.
        pool: The experts that it may call.
        budget_tasks: Questions with the budgets that their prompts name.
        max_turns: M of algorithm 1, turns of the controller at the most.
        seed: Seed of the sampling of this batch.
        temperature: Temperature of the controller's sampling; 0 is greedy.
        reads_marked_answers: Whether an answer may be marked in another way than by tags, for example boxed.

    Returns:
        The episodes, in the order of the tasks; `correct` is 0 in each.
    """
    episodes = []
    for task in budget_tasks:
        messages = call_protocol.make_messages(
            task.style, task.budget_label, task.item.prompt, task.item.history
        )
        prompt_ids = list(generator.encode_prompt(messages))
        # The mask is true for tokens that the controller wrote, of which the prompt has none.
        mask = [False] * len(prompt_ids)
        episodes.append(BudgetEpisode(task, prompt_ids, mask, prompt_length=len(prompt_ids)))

    environment = _ExpertEnvironment(pool, reads_marked_answers)
    rollout.roll_out(generator, environment, episodes, max_turns, seed, temperature)
    return episodes


def _score_episodes(
    episodes: Sequence[BudgetEpisode], pool: ExpertPool, scorer: Scorer | None
) -> None:
    """Score the answers of episodes, by setting `correct` of each.

    Args:
        episodes: With all their turns. `correct` is 0 before, and stays so without an answer; it becomes nan where an
            expert's reply was lost.
        pool: The experts, whose event loop runs the scorer.
        scorer: Scores answers; None for the strict rule of the procedural families, whose answers stand in tags.
    """
    finished_episodes = []
    for episode in episodes:
        if episode.failed:
            episode.correct = math.nan
        elif episode.turns:  # there are none where the question alone fills the model's window
            finished_episodes.append(episode)

    # Procedural families: the last turn is the reply, or it passes on the last reply of an expert.
    if scorer is None:
        for episode in finished_episodes:
            reply = episode.turns[-1].text
            if episode.answers_with_reply:
                reply = tasks.format_reply(episode.answer)
            episode.correct = tasks.score_reply(episode.task.item, reply)
        return

    # Other questions. A last turn that is a call (no turn was left for its reply) holds no answer, whatever a tolerant
    # rule would find in the query.
    answered_episodes = [episode for episode in finished_episodes if episode.turns[-1].call is None]
    replies = []
    for episode in answered_episodes:
        # The expert's whole reply is scored: its answer may be marked in any way, its lines may be code.
        if episode.answers_with_reply:
            replies.append(episode.replies[-1].text)
        else:
            replies.append(episode.turns[-1].text)
    items = [episode.task.item for episode in answered_episodes]
    # On the pool's event loop, since the scorer may be one of its models.
    scores = pool.run(scorer.score_all(items, replies))
    for episode, score in zip(answered_episodes, scores, strict=True):
        episode.correct = score.value


@dataclass(frozen=True)
class _ExpertEnvironment:
    """The environment in which a controller acts: it parses the controller's turns, and experts answer its calls.

    Attributes:
        pool: The experts that a controller may call.
        reads_marked_answers: Whether an answer may be marked in another way than by tags, for example boxed.
    """

    pool: ExpertPool
    reads_marked_answers: bool = False

    def parse_turn(self, episode: rollout.Episode, text: str) -> call_protocol.ParsedTurn:
        """Parse what the controller wrote in a turn: a call to an expert, an answer, or neither (malformed).

        Args:
            episode: Not used; the environments of other systems read it.
            text: The turn.

        Returns:
            The call, the answer, or what is malformed.
        """
        turn = call_protocol.parse_turn(text, self.pool.experts)
        is_malformed = isinstance(turn, call_protocol.Malformed)
        if is_malformed and self.reads_marked_answers and call_protocol.marks_answer(text):
            return call_protocol.Answer(text)
        return turn

    def answer_calls(
        self, calls: Sequence[tuple[rollout.Episode, call_protocol.Call, int]]
    ) -> list[ExpertReply]:
        """Let the experts answer the calls that controllers wrote in one turn of many episodes.

        Args:
            calls: Each call with its episode and the seed of the turn, which is not used: a reply depends on the query
                alone, so that all methods meet the same replies.

        Returns:
            The experts' replies, one per call.
        """
        queries = []
        for episode, call, _ in calls:
            text = call.query
            history: tuple[tuple[str, str], ...] = ()
            task = episode.task
            # The word "question" stands for the user's question as it is.
            if call.query == call_protocol.USER_QUESTION or task.passes_question:
                text = task.item.prompt
                history = task.item.history
            seed = derive_reply_seed(text, task.reply_sample)
            queries.append(ExpertQuery(call.expert, text, seed, history))
        return self.pool.ask(queries)


# Tables and samples -------------------------------------------------------------------------------


def make_samples(episodes: Sequence[BudgetEpisode], group_size: int = 1) -> list[Sample]:
    """Turn the episodes of one update into training samples for PPO (`lib.rl.token_ppo`).

    Left out are episodes without a turn, because the question fills the model's window, and those without a score,
    because an expert's reply or a judge's score was lost.

    Args:
        episodes: Episodes of one update.
        group_size: Number of successive episodes about the same question.

    Returns:
        Samples: token ids, mask (true for tokens of the controller), reward, group (number of the question) and
        stratum. The stratum is the budget word (0 low, 1 medium, 2 high; always 0 for budgets in numbers). PPO whitens
        advantages within each stratum, since a budget under which rewards vary little would teach little otherwise.
    """
    samples = []
    for index, episode in enumerate(episodes):
        has_turns = any(episode.mask)
        if not has_turns or not episode.is_scored:
            continue
        stratum = 0
        if episode.task.budget_label in call_protocol.BUDGET_WORDS:
            stratum = call_protocol.BUDGET_WORDS.index(episode.task.budget_label)
        group = index // group_size
        samples.append(Sample(episode.ids, episode.mask, episode.reward, group, stratum))
    return samples


def count_written_queries(episode: BudgetEpisode) -> int:
    """How many calls of an episode had a query of the controller's own instead of the user's question."""
    queries = [turn.call.query for turn in episode.turns if turn.call is not None]
    return sum(query != call_protocol.USER_QUESTION for query in queries)


def make_episode_rows(
    episodes: Sequence[BudgetEpisode],
    decode: Callable[[Sequence[int]], str] | None = None,
    num_questions: int | None = None,
) -> pd.DataFrame:
    """Tabulate finished episodes of a controller under a budget: question, budget, outcome, calls and length.

    Args:
        episodes: Finished and scored episodes (`roll_out_episodes`).
        decode: From token ids to text; with it rows have the column spoken, the texts of the episode with their
            writers as JSON.
        num_questions: How many different questions there are, if the episodes go through all of them under one budget
            after another; None if every episode has a question of its own.

    Returns:
        A row per episode. The question: item (its number), group (its family), difficulty. The budget: condition (as
        it stands in the prompt), budget (US dollars). The outcome: correct, within (1 if the calls cost at most the
        budget) and reward (r_p, r_c and r of CoRL, eq. 5 to 7; nan where there is no score), cost_usd. The calls:
        calls (how many), written_queries (of them, those whose query is not the user's question), chosen (their experts
        in order, separated by blanks), malformed (turns that are neither call
        nor answer), failures (replies that failed in any way), failed (whether the infrastructure lost a reply),
        truncated (replies that reached the expert's own limit of tokens), shortened (replies of which the controller
        read a part). The length: turns, written (tokens of the controller), tokens (all).
    """
    if num_questions is None:
        num_questions = len(episodes)
    rows = []
    for index, episode in enumerate(episodes):
        task = episode.task
        row = {
            "item": index % num_questions,
            "group": task.item.group,
            "difficulty": task.item.difficulty,
            "condition": task.budget_label,
            "budget": task.budget,
            "correct": episode.correct,
            "within": episode.cost_reward,
            "reward": episode.reward,
            "cost_usd": episode.cost_usd,
            "calls": len(episode.called_experts),
            "written_queries": count_written_queries(episode),
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
