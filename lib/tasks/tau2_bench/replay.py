"""Replays gold actions: the calls by which tau2-bench says that a task is solved, through the tools of this package.

Gold actions are what an agent that knows the scenario would do. Some of them fail on purpose (a customer looked up by a
wrong address) and some by mistake; tau2's evaluator passes over those. `make_facts` counts what happened, for the table
in data/tau2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lib.tasks.tau2_bench.domains import ServiceDomain
from lib.tasks.tau2_bench.environment import ServiceEnvironment, ServiceVerdict

ALL = "all"  # tasks of a domain, in every split


@dataclass(frozen=True)
class ActionError:
    """A gold action that could not be carried out.

    Attributes:
        name: Name of the tool.
        requestor: "assistant" or "user".
        writes: Whether the tool changes a database.
        message: What it replied.
    """

    name: str
    requestor: str
    writes: bool
    message: str


@dataclass(frozen=True)
class Replay:
    """What the gold actions of a task led to.

    Attributes:
        task_id: Id of the task.
        num_actions: Gold actions.
        num_user_actions: Those among them that the user has to do.
        errors: Gold actions that could not be carried out.
        verdict: Verdict of tau2's evaluators.
    """

    task_id: str
    num_actions: int
    num_user_actions: int
    errors: tuple[ActionError, ...]
    verdict: ServiceVerdict

    @property
    def reaches_goal(self) -> bool:
        """Whether the final state is what the task asks for: equal databases, or the assertions that it has."""
        if "DB" in self.verdict.basis:
            return self.verdict.database
        return self.verdict.assertions


def replay_gold_actions(domain: ServiceDomain, task_id: str) -> Replay:
    """Call the gold actions of a task one after the other, say what has to be said, and judge the conversation.

    Args:
        domain: Domain of tau2-bench.
        task_id: Id of one of its tasks.

    Returns:
        What came of it.
    """
    environment = ServiceEnvironment(domain, task_id)
    criteria = environment.task.evaluation_criteria
    actions = criteria.actions or []
    errors = []
    for action in actions:
        reply = environment.call(action.name, action.arguments, action.requestor)
        if reply.is_error:
            writes = environment.changes_state(action.name, action.requestor)
            errors.append(ActionError(action.name, action.requestor, writes, reply.text))
    # The gold actions hold no messages; the values that the user must hear are said at the end.
    environment.say("assistant", " ".join(["Done.", *(criteria.communicate_info or [])]))
    return Replay(
        task_id=task_id,
        num_actions=len(actions),
        num_user_actions=sum(action.requestor == "user" for action in actions),
        errors=tuple(errors),
        verdict=environment.evaluate(),
    )


def count_replays(replays: Sequence[Replay]) -> dict[str, Any]:
    """Count what the gold actions of tasks led to.

    Args:
        replays: Replays of the tasks of one domain.

    Returns:
        Numbers of tasks, and numbers of gold actions that failed by tool and message.
    """
    failed: Counter[str] = Counter()
    for replay in replays:
        for error in replay.errors:
            kind = "changes a record" if error.writes else "looks up"
            failed[f"{error.name} ({kind}): {error.message}"] += 1
    return {
        "tasks": len(replays),
        "reach_gold_state": sum(replay.reaches_goal for replay in replays),
        "reward_1": sum(replay.verdict.reward == 1.0 for replay in replays),
        "equal_databases": sum(replay.verdict.database for replay in replays),
        "without_gold_actions": sum(replay.num_actions == 0 for replay in replays),
        "gold_actions": sum(replay.num_actions for replay in replays),
        "gold_actions_of_users": sum(replay.num_user_actions for replay in replays),
        "tasks_with_a_failed_gold_action": sum(bool(replay.errors) for replay in replays),
        "tasks_with_a_failed_change": sum(
            any(error.writes for error in replay.errors) for replay in replays
        ),
        "failed_gold_actions": dict(sorted(failed.items())),
    }
