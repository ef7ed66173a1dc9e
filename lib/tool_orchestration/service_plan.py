"""What conversations of customer service (tau2-bench) may cost: upper bounds of calls and tokens, by model."""

from __future__ import annotations

from collections.abc import Sequence

from lib.config import LLMSettings
from lib.llm.cost_estimate import PlannedCalls, take_most_expensive
from lib.llm.token_counts import count_bytes, estimate_tokens
from lib.tasks import Item
from lib.tasks.tau2_bench import ServiceEnvironment, load_domain
from lib.tool_orchestration.service_episodes import ServiceTeam

RESULT_TOKENS = 1_000  # of a tool's result
SCENARIO_TOKENS = 1_500  # of a user's scenario and guidelines


def plan_episodes(
    llm: LLMSettings,
    team: ServiceTeam,
    items: Sequence[Item],
    num_samples: int,
    max_turns: int,
    policy_tokens: int | None = None,
) -> list[PlannedCalls]:
    """Plan the calls of conversations, with upper bounds: each takes all turns, every reply is as long as allowed.

    Args:
        llm: The models.
        team: Agent, user and experts.
        items: Tasks.
        num_samples: Trials of each.
        max_turns: Replies of the agent, and of the user, at the most.
        policy_tokens: Tokens of a turn of the agent, where that is the policy, which nobody is paid for; None for an
            agent of llm.models.

    Returns:
        Calls of the agent (none of a policy), of the user, and where there are experts of the most expensive of them
        in every turn.
    """
    is_paid = policy_tokens is None
    agent_tokens = llm.models[team.agent].max_tokens if is_paid else policy_tokens
    user_tokens = llm.models[team.user].max_tokens
    # A turn adds what both say, and the result of a call. Turn t reads t of them: T (T - 1) / 2 in all.
    turn_tokens = agent_tokens + user_tokens + RESULT_TOKENS
    history_tokens = turn_tokens * max_turns * (max_turns - 1) // 2
    num_calls = len(items) * num_samples * max_turns
    prompt_tokens = 0
    for item in items:
        policy_text_tokens = estimate_tokens(count_bytes(item.history[0][1]))
        prompt_tokens += num_samples * (max_turns * policy_text_tokens + history_tokens)
    schema_tokens = count_schema_tokens(items)

    user_prompt_tokens = (
        len(items) * num_samples * (max_turns * SCENARIO_TOKENS + history_tokens)
        + num_calls * schema_tokens["user"]
    )
    planned = [PlannedCalls(team.user, num_calls, user_prompt_tokens, num_calls * user_tokens)]
    if is_paid:
        agent_prompt_tokens = prompt_tokens + num_calls * schema_tokens["agent"]
        agent_calls = PlannedCalls(
            team.agent, num_calls, agent_prompt_tokens, num_calls * agent_tokens
        )
        planned.insert(0, agent_calls)
    alternatives = []
    for name in team.experts:
        tokens_out = num_calls * llm.models[name].max_tokens
        alternatives.append(PlannedCalls(name, num_calls, prompt_tokens, tokens_out))
    if alternatives:
        planned.append(take_most_expensive(llm, alternatives))
    return planned


def count_schema_tokens(items: Sequence[Item]) -> dict[str, int]:
    """Count the tokens of the function schemas that agent and user read, at the most over domains.

    Args:
        items: Tasks of the domains.

    Returns:
        Tokens by speaker.
    """
    largest = {"agent": 0, "user": 0}
    for name in dict.fromkeys(item.metadata["domain"] for item in items):
        domain = load_domain(name)
        some_task = next(iter(domain.tasks))
        environment = ServiceEnvironment(domain, some_task)
        toolkits = {"agent": environment.tools, "user": environment.user_tools}
        for speaker, tools in toolkits.items():
            text = str([tool.schema for tool in tools.values()])
            num_tokens = estimate_tokens(count_bytes(text))
            largest[speaker] = max(largest[speaker], num_tokens)
    return largest
