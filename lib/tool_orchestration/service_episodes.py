"""Customer service (tau2-bench): an agent talks to a user, calls tools that change a database, and may ask models.

Agent and user are models of llm.models. In each turn the agent sends a message or calls tools: the domain's functions,
and, in the setting with models, experts that read the policy, the conversation and the agent's question. The user is
played by a model that reads the scenario, and in telecom has tools of its own. The user ends the conversation, and
tau2's evaluator judges the database (`lib.tasks.tau2_bench`).

What the agent's model does wrong counts as wrong: it writes nothing, exceeds its window, makes too many failing calls,
does not come to an end. Where the infrastructure lost a reply, or the user's model failed, the episode is not scored.
Prompts and limits are those of tau2-bench; the experts' prompt is ours. Left out: spoken words, agents without a user.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lib.config import LLMSettings
from lib.llm.chat_model import ChatRequest, Reply, ToolCall
from lib.llm.cost_estimate import PlannedCalls, take_most_expensive
from lib.llm.token_counts import count_bytes, estimate_tokens
from lib.rl.expert_pool import ExpertPool
from lib.rl.rollout import derive_turn_seed
from lib.tasks import Item
from lib.tasks.tau2_bench import ServiceDomain, ServiceEnvironment, ServiceVerdict, load_domain
from lib.tasks.tau2_bench.user_prompt import ENDINGS, write_user_prompt
from lib.tool_orchestration.prompted_baseline import write_call_messages
from lib.tool_orchestration.tool_environment import HOSTED_TOKENS_PER_SECOND
from lib.tools import Tool, ToolError

VERSION = 1  # of prompts and of what ends an episode
GREETING = "Hi! How can I help you today?"
MAX_ERRORS = 10  # calls that fail before the conversation is given up
EXPERT_PREFIX = "ask_"  # of the tool that asks a model
RESULT_TOKENS = 1_000  # of a tool's result, for the plan of costs
SCENARIO_TOKENS = 1_500  # of a user's scenario and guidelines, for the plan of costs
# As in tau2-bench 0.2, whose agent asks its models through another client.
_AGENT_PROMPT = """\
<instructions>
You are a customer service agent that helps the user according to the <policy> provided below.
In each turn you can either:
- Send a message to the user.
- Make a tool call.
You cannot do both at the same time.

Try to be helpful and always follow the policy. Always make sure you generate valid JSON only.
</instructions>
<policy>
{policy}
</policy>"""
_EXPERT_PROMPT = """\
You advise a customer service agent, who has to keep to the <policy> below and shows you the conversation so far. \
Answer the agent's question: what to do or to say next, with exact arguments where a tool is to be called.
<policy>
{policy}
</policy>"""


_QUESTION = Tool("ask", "Asks a model.", {"question": {"type": "string"}}, str)


@dataclass
class ServiceEpisode:
    """One conversation about one task.

    Attributes:
        item: The task.
        sample: Which of the trials of this task.
        environment: Tools, database and what happened so far.
        agent_messages: What the agent reads.
        user_messages: What the user's model reads, where it is the assistant and the agent the user.
        next_speaker: "user" or "agent".
        agent_turns: Replies of the agent so far.
        user_turns: Replies of the user so far.
        ending: Why the conversation ended: "user", "turns", "errors" or "agent: KIND" of failure; "" before.
        failure: Why it cannot be scored: whose reply was lost, and how; "" where it can.
        cost_usd: What the agent and the experts were billed.
        expert_cost_usd: The experts' part of it.
        user_cost_usd: What the user's model was billed, which is not the agent's.
        seconds: Time of the agent's and the experts' replies.
        tokens_in: Read by the agent and the experts.
        tokens_out: Written by them.
        counts: Number of calls by tool.
        verdict: Of tau2's evaluators; None where the conversation did not come to its end.
        correct: 1 or 0; nan where it cannot be scored.
    """

    item: Item
    sample: int
    environment: ServiceEnvironment
    agent_messages: list[dict[str, Any]] = field(default_factory=list)
    user_messages: list[dict[str, Any]] = field(default_factory=list)
    next_speaker: str = "user"
    agent_turns: int = 0
    user_turns: int = 0
    ending: str = ""
    failure: str = ""
    cost_usd: float = 0.0
    expert_cost_usd: float = 0.0
    user_cost_usd: float = 0.0
    seconds: float = 0.0
    tokens_in: int = 0
    tokens_out: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    verdict: ServiceVerdict | None = None
    correct: float = math.nan

    @property
    def is_done(self) -> bool:
        """Whether nobody speaks any more."""
        return bool(self.ending or self.failure)


@dataclass(frozen=True)
class ServiceTeam:
    """Who takes part in conversations.

    Attributes:
        agent: Name in llm.models.
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


class ConversationRunner:
    """Holds conversations of a team with users, side by side."""

    def __init__(
        self,
        pool: ExpertPool,
        llm: LLMSettings,
        team: ServiceTeam,
        max_turns: int,
        temperature: float | None = None,
        seed: int = 0,
    ) -> None:
        """
        Args:
            pool: Has the models of the team.
            llm: Their settings, for the descriptions of experts.
            team: Agent, user and experts.
            max_turns: Replies of the agent, and of the user, at the most.
            temperature: Of all models; None for that of each model's settings.
            seed: Of the models' random numbers.
        """
        self.pool = pool
        self.team = team
        self.max_turns = max_turns
        self.temperature = temperature
        self.seed = seed
        self.experts = {f"{EXPERT_PREFIX}{name}": name for name in team.experts}
        self.expert_schemas = [write_expert_schema(llm, name) for name in team.experts]

    def run(self, assignments: Sequence[tuple[Item, int]]) -> list[ServiceEpisode]:
        """Hold one conversation for each task and trial.

        Args:
            assignments: Tasks of tau2-bench, each with the index of the trial.

        Returns:
            Scored episodes, in the order of the assignments.
        """
        episodes = [open_episode(item, sample) for item, sample in assignments]
        # Conversations go side by side, so that a server answers many of them at once.
        while any(not episode.is_done for episode in episodes):
            self._let_users_speak(episodes)
            self._let_agents_speak(episodes)
        for episode in episodes:
            score_episode(episode)
        return episodes

    def _let_users_speak(self, episodes: Sequence[ServiceEpisode]) -> None:
        """One reply of the user's model in every conversation that waits for it."""
        waiting = [e for e in episodes if not e.is_done and e.next_speaker == "user"]
        requests = []
        for episode in waiting:
            schemas = [tool.schema for tool in episode.environment.user_tools.values()]
            seed = derive_turn_seed(self.seed, episode.sample, 2 * episode.user_turns)
            requests.append(self._make_request(episode, episode.user_messages, schemas, seed))
        replies = self.pool.generate(self.team.user, requests) if requests else []
        for episode, reply in zip(waiting, replies, strict=True):
            episode.user_turns += 1
            episode.user_cost_usd += reply.cost_usd
            self._take_user_reply(episode, reply)

    def _take_user_reply(self, episode: ServiceEpisode, reply: Reply) -> None:
        """Carry out what the user does: call a tool of the own phone, say something, or end the conversation."""
        # Whatever the user's model fails to do is not the agent's fault.
        if reply.failure is not None and not has_partial_text(reply):
            episode.failure = f"user: {reply.failure.kind}"
            return
        # The agent never sees what the user does on the phone, only what the user says of it.
        if reply.tool_calls and episode.environment.user_tools:
            results = []
            for call in reply.tool_calls:
                result = episode.environment.call(call.name, call.arguments, "user")
                results.append(result.text or "")
            own_id = f"user_{episode.user_turns}"
            episode.user_messages += write_call_messages(reply, results, own_id)
        elif not reply.text.strip():
            episode.failure = "user: empty"
            return
        else:
            episode.environment.say("user", reply.text)
            episode.user_messages.append({"role": "assistant", "content": reply.text})
            if any(ending in reply.text for ending in ENDINGS):
                episode.ending = "user"
                return
            episode.agent_messages.append({"role": "user", "content": reply.text})
            episode.next_speaker = "agent"
        self._check_limits(episode)

    def _let_agents_speak(self, episodes: Sequence[ServiceEpisode]) -> None:
        """One reply of the agent in every conversation that waits for it, and the calls that it makes."""
        waiting = [e for e in episodes if not e.is_done and e.next_speaker == "agent"]
        requests = []
        for episode in waiting:
            schemas = [tool.schema for tool in episode.environment.tools.values()]
            seed = derive_turn_seed(self.seed, episode.sample, 2 * episode.agent_turns + 1)
            requests.append(
                self._make_request(
                    episode, episode.agent_messages, [*schemas, *self.expert_schemas], seed
                )
            )
        replies = self.pool.generate(self.team.agent, requests) if requests else []
        expert_replies = self._ask_experts(waiting, replies)
        for index, (episode, reply) in enumerate(zip(waiting, replies, strict=True)):
            episode.agent_turns += 1
            _charge(episode, reply)
            self._take_agent_reply(episode, reply, expert_replies.get(index, {}))

    def _ask_experts(
        self, episodes: Sequence[ServiceEpisode], replies: Sequence[Reply]
    ) -> dict[int, dict[int, Reply]]:
        """Ask the experts that agents call, all questions to one model at once.

        Args:
            episodes: In which the agents replied.
            replies: Of the agents, one for each episode.

        Returns:
            Replies of experts by the index of the episode, then by the index of the call.
        """
        requests: dict[str, dict[tuple[int, int], ChatRequest]] = {}
        for index, (episode, reply) in enumerate(zip(episodes, replies, strict=True)):
            for call_index, call in enumerate(reply.tool_calls):
                question = read_question(call)
                if call.name in self.experts and question:
                    messages = write_expert_messages(episode, question)
                    seed = derive_turn_seed(self.seed, episode.sample, 2 * episode.agent_turns + 1)
                    request = self._make_request(episode, messages, [], seed)
                    key = (index, call_index)
                    requests.setdefault(self.experts[call.name], {})[key] = request

        # Keyed by place, since an agent may ask one model several questions in one turn.
        expert_replies: dict[int, dict[int, Reply]] = {}
        for model, requests_by_key in requests.items():
            model_replies = self.pool.generate(model, list(requests_by_key.values()))
            for (index, call_index), reply in zip(requests_by_key, model_replies, strict=True):
                expert_replies.setdefault(index, {})[call_index] = reply
        return expert_replies

    def _take_agent_reply(
        self, episode: ServiceEpisode, reply: Reply, expert_replies: Mapping[int, Reply]
    ) -> None:
        """Carry out what the agent does: call tools, read experts, or say something to the user.

        Args:
            episode: The conversation.
            reply: Of the agent.
            expert_replies: By the index of the call.
        """
        failure = reply.failure
        if failure is not None and failure.of_infrastructure:
            episode.failure = f"agent: {failure.kind}"
            return
        if failure is not None and not has_partial_text(reply):
            episode.ending = f"agent: {failure.kind}"
            return
        if reply.tool_calls:
            results = []
            for index, call in enumerate(reply.tool_calls):
                results.append(self._take_call(episode, call, expert_replies.get(index)))
            if episode.failure:
                return
            own_id = f"agent_{episode.agent_turns}"
            episode.agent_messages += write_call_messages(reply, results, own_id)
        elif not reply.text.strip():
            episode.ending = "agent: empty"
            return
        else:
            # What is the agent's message to itself is the user's message to the model that plays the user.
            episode.environment.say("assistant", reply.text)
            episode.agent_messages.append({"role": "assistant", "content": reply.text})
            episode.user_messages.append({"role": "user", "content": reply.text})
            episode.next_speaker = "user"
        self._check_limits(episode)

    def _take_call(self, episode: ServiceEpisode, call: ToolCall, expert: Reply | None) -> str:
        """Call a function of the domain, or pass on what an expert replied; returns what the agent reads."""
        episode.counts[call.name] = episode.counts.get(call.name, 0) + 1
        # Questions to experts are no part of what the evaluator sees: they change nothing.
        if call.name not in self.experts:
            return episode.environment.call(call.name, call.arguments).text or ""
        if expert is None:
            episode.environment.num_errors += 1
            return 'Error: the arguments are {"question": "..."}'
        _charge(episode, expert)
        episode.expert_cost_usd += expert.cost_usd
        if expert.failure is not None and expert.failure.of_infrastructure:
            episode.failure = f"{call.name}: {expert.failure.kind}"
        # An expert that fails is an outcome that the agent reads.
        return expert.text or "Error: no answer"

    def _check_limits(self, episode: ServiceEpisode) -> None:
        """End a conversation in which too many calls failed, or that does not come to an end."""
        if episode.environment.num_errors >= MAX_ERRORS:
            episode.ending = "errors"
        elif max(episode.agent_turns, episode.user_turns) >= self.max_turns:
            episode.ending = "turns"

    def _make_request(
        self,
        episode: ServiceEpisode,
        messages: Sequence[dict[str, Any]],
        schemas: Sequence[dict[str, Any]],
        seed: int,
    ) -> ChatRequest:
        """Make the request of one reply; every trial is recorded by itself."""
        return ChatRequest(
            list(messages),
            tools=schemas,
            temperature=self.temperature,
            seed=seed,
            sample=episode.sample,
            caller=self.team.label,
        )


def read_question(call: ToolCall) -> str:
    """Read the question of a call to an expert; empty where the arguments do not have one."""
    try:
        return _QUESTION.check_arguments(call.arguments)["question"].strip()
    except ToolError:
        return ""


def open_episode(item: Item, sample: int) -> ServiceEpisode:
    """Open a conversation, which the agent begins with a greeting."""
    domain = load_domain(item.metadata["domain"])
    episode = ServiceEpisode(item, sample, ServiceEnvironment(domain, item.metadata["task"]))
    environment = episode.environment
    environment.say("assistant", GREETING)
    has_tools = bool(environment.user_tools)
    user_prompt = write_user_prompt(environment.task, has_tools)
    episode.agent_messages = [
        {"role": "system", "content": write_agent_prompt(domain)},
        {"role": "assistant", "content": GREETING},
    ]
    episode.user_messages = [
        {"role": "system", "content": user_prompt},
        {"role": "user", "content": GREETING},
    ]
    return episode


def write_agent_prompt(domain: ServiceDomain) -> str:
    """The agent's system message, with the domain's policy."""
    return _AGENT_PROMPT.format(policy=domain.policy)


def write_expert_schema(llm: LLMSettings, name: str) -> dict[str, Any]:
    """The tool that asks a model, with its name and prices in the description."""
    settings = llm.models[name]
    prices = f"reads at ${1e6 * (settings.price_in or 0):.3g}, writes at ${1e6 * (settings.price_out or 0):.3g}"
    description = (
        f"Asks the model {settings.model or name} for advice ({prices} per million tokens). It reads the policy and "
        "the conversation so far; it cannot call tools."
    )
    return Tool(f"{EXPERT_PREFIX}{name}", description, _QUESTION.parameters, str).schema


def write_expert_messages(episode: ServiceEpisode, question: str) -> list[dict[str, Any]]:
    """What an expert reads: the policy, the conversation so far as text, and the agent's question."""
    lines = []
    for message in episode.agent_messages[1:]:
        for call in message.get("tool_calls") or []:
            lines.append(f"agent calls {call['function']['name']}({call['function']['arguments']})")
        if message.get("content"):
            speaker = {"assistant": "agent", "tool": "result"}.get(message["role"], "user")
            lines.append(f"{speaker}: {message['content']}")
    conversation = "\n".join(lines)
    return [
        {
            "role": "system",
            "content": _EXPERT_PROMPT.format(policy=episode.environment.domain.policy),
        },
        {
            "role": "user",
            "content": f"Conversation:\n{conversation}\n\nThe agent asks: {question}",
        },
    ]


def has_partial_text(reply: Reply) -> bool:
    """Whether a reply was cut off at its limit and still says something."""
    return (
        reply.failure is not None and reply.failure.kind == "truncated" and bool(reply.text.strip())
    )


def _charge(episode: ServiceEpisode, reply: Reply) -> None:
    """Add a reply of the agent or an expert to what the episode costs."""
    episode.cost_usd += reply.cost_usd
    episode.seconds += reply.seconds or reply.tokens_out / HOSTED_TOKENS_PER_SECOND
    episode.tokens_in += reply.tokens_in
    episode.tokens_out += reply.tokens_out


def score_episode(episode: ServiceEpisode) -> None:
    """Score a conversation that ended: by tau2's evaluators, or 0 where the agent did not bring it to its end."""
    if episode.failure:
        episode.correct = math.nan
        return
    if episode.ending != "user":
        episode.correct = 0.0
        return
    episode.verdict = episode.environment.evaluate()
    episode.correct = episode.verdict.reward


def plan_episodes(
    llm: LLMSettings, team: ServiceTeam, items: Sequence[Item], num_samples: int, max_turns: int
) -> list[PlannedCalls]:
    """Plan the calls of conversations, with upper bounds: each takes all turns, every reply is as long as allowed.

    Args:
        llm: The models.
        team: Agent, user and experts.
        items: Tasks.
        num_samples: Trials of each.
        max_turns: Replies of the agent, and of the user, at the most.

    Returns:
        Calls of the agent, of the user, and where there are experts of the most expensive of them in every turn.
    """
    agent_tokens = llm.models[team.agent].max_tokens
    user_tokens = llm.models[team.user].max_tokens
    # A turn adds what both say, and the result of a call. Turn t reads t of them: T (T - 1) / 2 in all.
    turn_tokens = agent_tokens + user_tokens + RESULT_TOKENS
    history_tokens = turn_tokens * max_turns * (max_turns - 1) // 2
    num_calls = len(items) * num_samples * max_turns
    prompt_tokens = 0
    for item in items:
        policy_tokens = estimate_tokens(count_bytes(item.history[0][1]))
        prompt_tokens += num_samples * (max_turns * policy_tokens + history_tokens)
    schema_tokens = _count_schema_tokens(items)
    user_prompt_tokens = (
        len(items) * num_samples * (max_turns * SCENARIO_TOKENS + history_tokens)
        + num_calls * schema_tokens["user"]
    )
    agent_prompt_tokens = prompt_tokens + num_calls * schema_tokens["agent"]
    planned = [
        PlannedCalls(team.agent, num_calls, agent_prompt_tokens, num_calls * agent_tokens),
        PlannedCalls(team.user, num_calls, user_prompt_tokens, num_calls * user_tokens),
    ]
    alternatives = []
    for name in team.experts:
        tokens_out = num_calls * llm.models[name].max_tokens
        alternatives.append(PlannedCalls(name, num_calls, prompt_tokens, tokens_out))
    if alternatives:
        planned.append(take_most_expensive(llm, alternatives))
    return planned


def _count_schema_tokens(items: Sequence[Item]) -> dict[str, int]:
    """Tokens of the function schemas of agent and user, at the most over the domains of the items."""
    largest = {"agent": 0, "user": 0}
    for name in dict.fromkeys(item.metadata["domain"] for item in items):
        domain = load_domain(name)
        environment = ServiceEnvironment(domain, next(iter(domain.tasks)))
        for speaker, tools in (("agent", environment.tools), ("user", environment.user_tools)):
            text = str([tool.schema for tool in tools.values()])
            largest[speaker] = max(largest[speaker], estimate_tokens(count_bytes(text)))
    return largest
