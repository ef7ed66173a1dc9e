"""Write the facts on tau2-bench that the lesson shows: `python -m lib.tasks.tau2_bench.build`, about five minutes.

The gold actions of all tasks are replayed, and what came of it is counted (data/tau2/replay.json); one task is written
down with its tools, gold actions and verdicts (data/tau2/example.json). It needs the package (`make tau2`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lib.config import ROOT
from lib.experiment import artifacts
from lib.tasks.tau2_bench.domains import BASE_SPLIT, DOMAINS, ServiceDomain, load_domain
from lib.tasks.tau2_bench.environment import VERSION, ServiceEnvironment, ServiceVerdict
from lib.tasks.tau2_bench.installation import PACKAGE, PACKAGE_VERSION
from lib.tasks.tau2_bench.replay import ALL, Replay, count_replays, replay_gold_actions

FOLDER = ROOT / "data/tau2"
SOLVED_BY_NOTHING = "base_tasks_solved_by_doing_nothing"
EXAMPLE_DOMAIN = "retail"
EXAMPLE_TASK = "0"
_MAX_REPLY = 200  # characters of a tool's reply in the example


def read_replay_facts(folder: Path = FOLDER) -> dict[str, Any]:
    """Read the counts of replayed gold actions: by domain, then by split ("all" or "base").

    Beside the splits stands the number of base tasks that are solved by doing nothing.
    """
    return artifacts.read_json(folder / "replay.json")


def read_example(folder: Path = FOLDER) -> dict[str, Any]:
    """Read the example: the user's scenario, the tools, the gold actions, and how the task is judged."""
    return artifacts.read_json(folder / "example.json")


def replay_domain(domain: ServiceDomain) -> list[Replay]:
    """Replay the gold actions of all tasks of a domain."""
    return [replay_gold_actions(domain, task_id) for task_id in domain.tasks]


def count_by_split(domain: ServiceDomain, replays: list[Replay]) -> dict[str, dict[str, Any]]:
    """Count replays of all tasks, and of those that scores are published on.

    Args:
        domain: Domain of tau2-bench.
        replays: Replays of all its tasks.

    Returns:
        Counts by "all" and "base".
    """
    base_ids = set(domain.splits[BASE_SPLIT])
    base_replays = [replay for replay in replays if replay.task_id in base_ids]
    return {ALL: count_replays(replays), BASE_SPLIT: count_replays(base_replays)}


def count_solved_by_nothing(domain: ServiceDomain) -> int:
    """Count the base tasks that an agent solves that calls no tool and says no more than "Done."."""
    verdicts = [judge_calls(domain, task_id, []) for task_id in domain.splits[BASE_SPLIT]]
    return sum(verdict.reward == 1.0 for verdict in verdicts)


def describe_example(domain: ServiceDomain, task_id: str) -> dict[str, Any]:
    """Describe one task: what the user wants, the tools, the gold actions, and verdicts of three conversations.

    Args:
        domain: Domain of tau2-bench.
        task_id: Id of a task.

    Returns:
        JSON.
    """
    environment = ServiceEnvironment(domain, task_id)
    task = environment.task
    tools = []
    for name, tool in environment.tools.items():
        changes = "changes" if environment.changes_state(name, "assistant") else "reads"
        summary = " ".join(tool.description.split()).partition(". ")[0].removesuffix(".")
        arguments = list(tool.parameters)
        tools.append({"name": name, "effect": changes, "arguments": arguments, "summary": summary})
    actions = []
    for action in task.evaluation_criteria.actions:
        reply = environment.call(action.name, action.arguments, action.requestor)
        text = reply.text if len(reply.text) <= _MAX_REPLY else f"{reply.text[:_MAX_REPLY]} ..."
        actions.append({"name": action.name, "arguments": action.arguments, "reply": text})
    environment.say("assistant", "Done.")
    verdicts = {"all gold actions": describe_verdict(environment.evaluate())}
    verdicts["all but the last"] = describe_verdict(judge_calls(domain, task_id, actions[:-1]))
    verdicts["the last alone"] = describe_verdict(judge_calls(domain, task_id, actions[-1:]))
    return {
        "domain": domain.name,
        "task": task_id,
        "scenario": task.user_scenario.instructions.model_dump(exclude_none=True),
        "policy_characters": len(domain.policy),
        "policy_first_lines": [line for line in domain.policy.splitlines() if line.strip()][:4],
        "tools": tools,
        "gold_actions": actions,
        "communicate": task.evaluation_criteria.communicate_info,
        "basis": [element.value for element in task.evaluation_criteria.reward_basis],
        "verdicts": verdicts,
    }


def judge_calls(domain: ServiceDomain, task_id: str, calls: list[dict[str, Any]]) -> ServiceVerdict:
    """Judge a conversation that has only these calls of the agent."""
    environment = ServiceEnvironment(domain, task_id)
    for call in calls:
        environment.call(call["name"], call["arguments"])
    environment.say("assistant", "Done.")
    return environment.evaluate()


def describe_verdict(verdict: ServiceVerdict) -> dict[str, Any]:
    """A verdict as JSON."""
    return {
        "reward": verdict.reward,
        "database": verdict.database,
        "actions": verdict.actions,
        "communication": verdict.communication,
    }


def main() -> None:
    """Replay all tasks and write both files."""
    domains: dict[str, Any] = {}
    for name in DOMAINS:
        domain = load_domain(name)
        domains[name] = count_by_split(domain, replay_domain(domain))
        domains[name][SOLVED_BY_NOTHING] = count_solved_by_nothing(domain)
        print(name, json.dumps(domains[name], indent=1), flush=True)
    source = {"package": PACKAGE, "package_version": PACKAGE_VERSION, "version": VERSION}
    artifacts.write_json(FOLDER / "replay.json", {**source, "domains": domains})
    example = describe_example(load_domain(EXAMPLE_DOMAIN), EXAMPLE_TASK)
    artifacts.write_json(FOLDER / "example.json", {**source, **example})


if __name__ == "__main__":
    main()
