"""Customer service (tau2-bench): an agent talks to a user, calls tools that change a database, and may ask models.

In each turn the agent sends a message or calls tools: the domain's functions, and, where there are any on its menu,
models that read the policy, the conversation and the agent's question. The user is played by a model of llm.models that
reads the scenario, and in telecom has tools of its own. The user ends the conversation, and tau2's evaluator judges the
database (`lib.tasks.tau2_bench`). The agent is a model of llm.models, or the policy that is trained (`service_policy`).

What the agent's model does wrong counts as wrong: it writes nothing, exceeds its window, makes too many failing calls,
does not come to an end. Where the infrastructure lost a reply, or the user's model failed, the episode is not scored.
Limits are those of tau2-bench. Left out: prompts (`service_prompts`), spoken words, agents without a user.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from lib.config import LLMSettings
from lib.llm.chat_model import ChatRequest, Reply, ToolCall
from lib.rl.expert_pool import ExpertPool
from lib.rl.rollout import derive_turn_seed
from lib.rl.tool_conversation import TokenContext
from lib.tasks import Item
from lib.tasks.tau2_bench import ServiceEnvironment, ServiceVerdict, load_domain
from lib.tasks.tau2_bench.user_prompt import ENDINGS, write_user_prompt
from lib.tool_orchestration.episode_specs import Assignment
from lib.tool_orchestration.prompted_baseline import write_call_messages
from lib.tool_orchestration.service_prompts import (
    EXPERT_PREFIX,
    GREETING,
    read_question,
    write_agent_prompt,
    write_expert_messages,
    write_expert_schema,
)
from lib.tool_orchestration.tool_environment import HOSTED_TOKENS_PER_SECOND

VERSION = 1  # of prompts and of what ends an episode
MAX_ERRORS = 10  # calls that fail before the conversation is given up
Speaker = Literal["agent", "user"]
_OTHER: dict[Speaker, Speaker] = {"agent": "user", "user": "agent"}
_TAU2_ROLES = {"agent": "assistant", "user": "user"}


@dataclass
class ServiceEpisode:
    """One conversation about one task.

    Attributes:
        assignment: The task, the models that may be asked with their prices, and perhaps a preference.
        sample: Which of the trials of this task; in training which of all episodes.
        environment: Tools, database and what happened so far.
        messages: What each speaker reads; in each list that speaker is the assistant, and the other one the user.
        turns: Replies of each speaker so far.
        next_speaker: "user" or "agent".
        context: The conversation as the policy's tokens; None for an agent of llm.models.
        ending: Why the conversation ended: "user", "turns", "errors" or "agent: KIND" of failure; "" before.
        failure: Why it cannot be scored: whose reply was lost, and how; "" where it can.
        cost_usd: What the agent and the experts were billed.
        expert_cost_usd: The experts' part of it.
        user_cost_usd: What the user's model was billed, which is not the agent's.
        seconds: Time of the agent's and the experts' replies.
        tokens_in: Read by the agent and the experts.
        tokens_out: Written by them.
        counts: Number of calls by tool.
        num_truncated: Replies of experts that reached their own limit of tokens.
        verdict: Verdict of tau2's evaluators; None where the conversation did not come to its end.
        correct: 1 or 0; nan where it cannot be scored.
    """

    assignment: Assignment
    sample: int
    environment: ServiceEnvironment
    messages: dict[Speaker, list[dict[str, Any]]]
    turns: dict[Speaker, int] = field(default_factory=lambda: {"agent": 0, "user": 0})
    next_speaker: Speaker = "user"
    context: TokenContext | None = None
    ending: str = ""
    failure: str = ""
    cost_usd: float = 0.0
    expert_cost_usd: float = 0.0
    user_cost_usd: float = 0.0
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    num_truncated: int = 0
    verdict: ServiceVerdict | None = None
    correct: float = math.nan

    @property
    def item(self) -> Item:
        """The task."""
        return self.assignment.work

    @property
    def is_done(self) -> bool:
        """Whether nobody speaks any more."""
        return bool(self.ending or self.failure)

    @property
    def has_answer(self) -> bool:
        """Whether the conversation came to its end, so that the task can be judged."""
        return self.ending == "user"

    @property
    def num_malformed(self) -> int:
        """Turns of the agent with a call that cannot be read; the first one ends the conversation."""
        return int(self.ending == "agent: malformed")

    @property
    def ids(self) -> list[int]:
        """All tokens, where the agent is the policy."""
        return self.context.ids if self.context else []

    @property
    def mask(self) -> list[bool]:
        """Of each token, whether the policy wrote it."""
        return self.context.mask if self.context else []

    def say(self, speaker: Speaker, text: str) -> None:
        """Let one speaker say something to the other, who is next."""
        self.environment.say(_TAU2_ROLES[speaker], text)
        self.messages[speaker].append({"role": "assistant", "content": text})
        self.messages[_OTHER[speaker]].append({"role": "user", "content": text})
        self.next_speaker = _OTHER[speaker]

    def stop(self, speaker: Speaker, kind: str, of_infrastructure: bool = False) -> None:
        """End a conversation whose next reply cannot be used.

        Args:
            speaker: Whose reply it is.
            kind: Kind of the failure.
            of_infrastructure: Whether it says nothing about the speaker's model.
        """
        # Whatever the user's model fails to do is not the agent's fault.
        if speaker == "user" or of_infrastructure:
            self.failure = f"{speaker}: {kind}"
        else:
            self.ending = f"{speaker}: {kind}"

    def charge(self, reply: Reply, cost_factor: float = 1.0, time_factor: float = 1.0) -> None:
        """Add a reply of the agent or an expert to what the episode costs.

        Args:
            reply: With its cost and time.
            cost_factor: Of the price on this episode's menu.
            time_factor: Time factor of the latency on this episode's menu.
        """
        seconds = reply.seconds or reply.tokens_out / HOSTED_TOKENS_PER_SECOND
        self.cost_usd += cost_factor * reply.cost_usd
        self.seconds += time_factor * seconds
        self.tokens_in += reply.tokens_in
        self.tokens_out += reply.tokens_out


@dataclass(frozen=True)
class ServiceTeam:
    """Who takes part in conversations.

    Attributes:
        agent: Name in llm.models, or of the policy.
        user: Name in llm.models.
        experts: Names in llm.models of the models that the agent may ask; () for functions alone.
    """

    agent: str
    user: str
    experts: tuple[str, ...] = ()

    @property
    def label(self) -> str:
        """The team's name in tables, such as "small + large"."""
        return " + ".join((self.agent, *self.experts))


class ServiceAgent(Protocol):
    """Who replies for the service."""

    def write_replies(
        self, episodes: Sequence[ServiceEpisode], requests: Sequence[ChatRequest]
    ) -> list[Reply]:
        """Write the next reply of every conversation.

        Args:
            episodes: Conversations in which the agent speaks next.
            requests: What it reads in each: the conversation, with the tools that it may call.

        Returns:
            Replies in the order of the episodes.
        """


class ModelAgent:
    """An agent that is a model of llm.models."""

    def __init__(self, pool: ExpertPool, name: str) -> None:
        """
        Args:
            pool: Has the model.
            name: Name of the model in llm.models.
        """
        self.pool = pool
        self.name = name

    def write_replies(
        self, episodes: Sequence[ServiceEpisode], requests: Sequence[ChatRequest]
    ) -> list[Reply]:
        return self.pool.generate(self.name, requests)


class ConversationRunner:
    """Holds conversations of a team with users, side by side."""

    def __init__(
        self,
        pool: ExpertPool,
        llm: LLMSettings,
        team: ServiceTeam,
        max_turns: int,
        temperature: float | None = None,
        agent: ServiceAgent | None = None,
    ) -> None:
        """
        Args:
            pool: Has the models of the team.
            llm: Their settings, for the descriptions of experts.
            team: Agent, user and experts.
            max_turns: Replies of the agent, and of the user, at the most.
            temperature: Temperature of all models of llm.models; None for that of each model's settings.
            agent: Who replies for the service; None for the team's model of llm.models.
        """
        self.pool = pool
        self.llm = llm
        self.team = team
        self.max_turns = max_turns
        self.temperature = temperature
        self.agent = agent or ModelAgent(pool, team.agent)

    def run(
        self, assignments: Sequence[Assignment], samples: Sequence[int], seed: int = 0
    ) -> list[ServiceEpisode]:
        """Hold one conversation for each assignment.

        Args:
            assignments: Tasks of tau2-bench, each with the models that may be asked.
            samples: Samples of each, the index of the trial.
            seed: Seed of the random numbers of all models.

        Returns:
            Scored episodes, in the order of the assignments.
        """
        episodes = []
        for assignment, sample in zip(assignments, samples, strict=True):
            episodes.append(open_episode(assignment, sample))
        # Conversations go side by side, so that a server answers many of them at once.
        while any(not episode.is_done for episode in episodes):
            self._let_users_speak(episodes, seed)
            self._let_agents_speak(episodes, seed)
        for episode in episodes:
            score_episode(episode)
        return episodes

    def _let_users_speak(self, episodes: Sequence[ServiceEpisode], seed: int) -> None:
        """Ask the user's model for one reply in every conversation that waits for it.

        Args:
            episodes: The conversations.
            seed: Seed of the replies.
        """
        waiting = _select_waiting(episodes, "user")
        if not waiting:
            return
        requests = [self._make_request(episode, "user", seed) for episode in waiting]
        replies = self.pool.generate(self.team.user, requests)
        for episode, reply in zip(waiting, replies, strict=True):
            episode.user_cost_usd += reply.cost_usd
            self._take_reply(episode, "user", reply, {})

    def _let_agents_speak(self, episodes: Sequence[ServiceEpisode], seed: int) -> None:
        """Ask the agent for one reply in every conversation that waits for it, and carry out its calls.

        Args:
            episodes: The conversations.
            seed: Seed of the replies.
        """
        waiting = _select_waiting(episodes, "agent")
        if not waiting:
            return
        requests = [self._make_request(episode, "agent", seed) for episode in waiting]
        replies = self.agent.write_replies(waiting, requests)
        expert_replies = self._ask_experts(waiting, requests, replies)
        for index, (episode, reply) in enumerate(zip(waiting, replies, strict=True)):
            episode.charge(reply)
            self._take_reply(episode, "agent", reply, expert_replies.get(index, {}))

    def _make_request(self, episode: ServiceEpisode, speaker: Speaker, seed: int) -> ChatRequest:
        """Make the request of a speaker's next reply.

        Args:
            episode: The conversation so far.
            speaker: Who replies: the agent, with functions and experts, or the user, with functions of its own.
            seed: Seed of the conversations; every turn of every trial draws with a seed of its own.

        Returns:
            The request. Its field `sample` is the trial, so that replies of each trial are recorded.
        """
        if speaker == "agent":
            tools = episode.environment.tools
            offers = episode.assignment.menu.offers
        else:
            tools = episode.environment.user_tools
            offers = ()
        schemas = [tool.schema for tool in tools.values()]
        schemas += [write_expert_schema(self.llm, offer) for offer in offers]
        # Even numbers are the user's turns, odd ones the agent's.
        turn_number = 2 * episode.turns[speaker] + (1 if speaker == "agent" else 0)
        return ChatRequest(
            list(episode.messages[speaker]),
            tools=schemas,
            temperature=self.temperature,
            seed=derive_turn_seed(seed, episode.sample, turn_number),
            sample=episode.sample,
            caller=self.team.label,
        )

    def _ask_experts(
        self,
        episodes: Sequence[ServiceEpisode],
        requests: Sequence[ChatRequest],
        replies: Sequence[Reply],
    ) -> dict[int, dict[int, Reply]]:
        """Ask the experts that agents call, all questions to one model at once.

        Args:
            episodes: In which the agents replied.
            requests: What the agents read.
            replies: Replies of the agents, one for each episode.

        Returns:
            Replies of experts by the index of the episode, then by the index of the call.
        """
        questions: dict[str, dict[tuple[int, int], ChatRequest]] = {}
        for index, (episode, reply) in enumerate(zip(episodes, replies, strict=True)):
            for call_index, call in enumerate(reply.tool_calls):
                question = read_question(call)
                if not question or not _asks_expert(episode, call):
                    continue
                messages = write_expert_messages(
                    episode.environment.domain, episode.messages["agent"], question
                )
                request = requests[index]
                expert = call.name.removeprefix(EXPERT_PREFIX)
                questions.setdefault(expert, {})[index, call_index] = ChatRequest(
                    messages,
                    temperature=request.temperature,
                    seed=request.seed,
                    sample=request.sample,
                    caller=request.caller,
                )

        # Keyed by place, since an agent may ask one model several questions in one turn.
        expert_replies: dict[int, dict[int, Reply]] = {}
        for expert, requests_by_place in questions.items():
            answers = self.pool.generate(expert, list(requests_by_place.values()))
            for (index, call_index), answer in zip(requests_by_place, answers, strict=True):
                expert_replies.setdefault(index, {})[call_index] = answer
        return expert_replies

    def _take_reply(
        self,
        episode: ServiceEpisode,
        speaker: Speaker,
        reply: Reply,
        expert_replies: Mapping[int, Reply],
    ) -> None:
        """Carry out one reply of a speaker: call tools, read experts, write a message, or end the conversation.

        Args:
            episode: The conversation.
            speaker: "agent" or "user".
            reply: Reply of the speaker.
            expert_replies: By the index of the call.
        """
        episode.turns[speaker] += 1
        failure = reply.failure
        if failure is not None and not has_partial_text(reply):
            episode.stop(speaker, failure.kind, failure.of_infrastructure)
            return
        # The agent never sees what the user does on the phone, only what the user says of it.
        has_tools = speaker == "agent" or bool(episode.environment.user_tools)
        if reply.tool_calls and has_tools:
            results = []
            for index, call in enumerate(reply.tool_calls):
                results.append(_take_call(episode, speaker, call, expert_replies.get(index)))
            call_id = f"{speaker}_{episode.turns[speaker]}"
            episode.messages[speaker] += write_call_messages(reply, results, call_id)
        elif not reply.text.strip():
            episode.stop(speaker, "empty")
        else:
            episode.say(speaker, reply.text)
            if speaker == "user" and any(ending in reply.text for ending in ENDINGS):
                episode.ending = "user"
        if not episode.is_done:
            self._check_limits(episode)

    def _check_limits(self, episode: ServiceEpisode) -> None:
        """End a conversation in which too many calls failed, or that does not come to an end."""
        if episode.environment.num_errors >= MAX_ERRORS:
            episode.ending = "errors"
        elif max(episode.turns.values()) >= self.max_turns:
            episode.ending = "turns"


def _select_waiting(episodes: Sequence[ServiceEpisode], speaker: Speaker) -> list[ServiceEpisode]:
    """Conversations that wait for a reply of a speaker."""
    return [e for e in episodes if not e.is_done and e.next_speaker == speaker]


def _asks_expert(episode: ServiceEpisode, call: ToolCall) -> bool:
    """Whether a call is a question to a model on the menu of the episode."""
    return call.name in episode.assignment.menu.names


def _take_call(
    episode: ServiceEpisode, speaker: Speaker, call: ToolCall, expert: Reply | None
) -> str:
    """Call a function of the domain, or pass on an expert's reply.

    Args:
        episode: The conversation; counts and costs are updated.
        speaker: Who calls, agent or user.
        call: The call.
        expert: The expert's reply, where the call asks one.

    Returns:
        What the speaker reads.
    """
    if speaker == "user":
        return episode.environment.call(call.name, call.arguments, "user").text or ""
    # Questions to experts are no part of what the evaluator sees: they change nothing.
    if not _asks_expert(episode, call):
        episode.counts[call.name] = episode.counts.get(call.name, 0) + 1
        return episode.environment.call(call.name, call.arguments).text or ""
    # A question without words is no call, or a user who likes a tool could be pleased for nothing.
    if expert is None:
        episode.environment.num_errors += 1
        return 'Error: the arguments are {"question": "..."}'

    episode.counts[call.name] = episode.counts.get(call.name, 0) + 1
    offer = episode.assignment.menu.offer(call.name)
    episode.charge(expert, offer.cost_usd, offer.seconds)
    episode.expert_cost_usd += offer.cost_usd * expert.cost_usd
    # An expert that fails is an outcome that the agent reads, unless the infrastructure lost the reply.
    failure = expert.failure
    if failure is not None and failure.of_infrastructure:
        episode.failure = f"{call.name}: {failure.kind}"
    episode.num_truncated += failure is not None and failure.kind == "truncated"
    return expert.text or "Error: no answer"


def open_episode(assignment: Assignment, sample: int) -> ServiceEpisode:
    """Open a conversation, which the agent begins with a greeting.

    Args:
        assignment: A task of tau2-bench, with the models that may be asked, and perhaps a preference.
        sample: Which of the trials.

    Returns:
        The episode; the user speaks next.
    """
    item = assignment.work
    domain = load_domain(item.metadata["domain"])
    environment = ServiceEnvironment(domain, item.metadata["task"])
    environment.say("assistant", GREETING)
    agent_prompt = write_agent_prompt(domain, assignment.preference)
    user_prompt = write_user_prompt(environment.task, bool(environment.user_tools))
    messages = {
        "agent": [
            {"role": "system", "content": agent_prompt},
            {"role": "assistant", "content": GREETING},
        ],
        "user": [
            {"role": "system", "content": user_prompt},
            {"role": "user", "content": GREETING},
        ],
    }
    return ServiceEpisode(assignment, sample, environment, messages)


def has_partial_text(reply: Reply) -> bool:
    """Whether a reply was cut off at its limit and still says something."""
    return (
        reply.failure is not None and reply.failure.kind == "truncated" and bool(reply.text.strip())
    )


def score_episode(episode: ServiceEpisode) -> None:
    """Score a conversation by tau2's evaluators; it gets 0 where the agent did not bring it to its end.

    Args:
        episode: Gets the score as `correct`, nan where the infrastructure failed.
    """
    if episode.failure:
        episode.correct = math.nan
        return
    if episode.ending != "user":
        episode.correct = 0.0
        return
    episode.verdict = episode.environment.evaluate()
    episode.correct = episode.verdict.reward
