"""Tables of the appendix of lesson 06 on tau2-bench: one task of customer service, and the gold actions of all.

They show shipped facts (`data/tau2`); the package itself is not needed.
"""

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from lib.tasks.tau2_bench.build import SOLVED_BY_NOTHING

_MAX_SHOWN = 90  # characters of arguments and replies


def describe_scenario(example: Mapping[str, Any]) -> str:
    """Write what the user of the example knows and wants, which the agent does not read.

    Args:
        example: A recorded example with the user's scenario.
    """
    scenario = example["scenario"]
    field_names = ("reason_for_call", "known_info", "unknown_info", "task_instructions")
    return "\n".join(f"{name}: {scenario[name]}" for name in field_names if name in scenario)


def make_service_tool_table(example: Mapping[str, Any]) -> pd.DataFrame:
    """Tabulates the tools of a customer service agent: whether each changes a record, its arguments and its purpose.

    Args:
        example: A recorded example with its tools.
    """
    rows = []
    for tool in example["tools"]:
        arguments = ", ".join(tool["arguments"])
        effect = "changes a record" if tool["effect"] == "changes" else "changes nothing"
        rows.append([tool["name"], effect, arguments, tool["summary"]])
    table = pd.DataFrame(rows, columns=["tool", "effect", "arguments", "description"])
    return table.sort_values("effect", kind="stable").set_index("tool")


def make_gold_action_table(example: Mapping[str, Any]) -> pd.DataFrame:
    """Tabulate the gold actions of the example in their order, with arguments and the replies of the tools."""
    rows = []
    for action in example["gold_actions"]:
        arguments = _shorten(json.dumps(action["arguments"]))
        rows.append([action["name"], arguments, _shorten(action["reply"])])
    return pd.DataFrame(rows, columns=["gold action", "arguments", "reply"])


def make_verdict_table(example: Mapping[str, Any]) -> pd.DataFrame:
    """Tabulates how tau2-bench judges three conversations about one task.

    Args:
        example: A recorded example with its verdicts.
    """
    columns = {
        "database": "database as after the gold actions",
        "communication": "values to say were said",
        "actions": "all gold actions called (not asked for)",
        "reward": "reward",
    }
    verdicts = pd.DataFrame(example["verdicts"]).T[list(columns)]
    return verdicts.rename(columns=columns).rename_axis("calls of the agent")


def make_replay_table(facts: Mapping[str, Any]) -> pd.DataFrame:
    """Tabulate the replay of the gold actions of all tasks, by domain.

    Args:
        facts: Counts of tasks and gold actions by domain.
    """
    rows = {}
    for domain, counts in facts["domains"].items():
        replayed = counts["all"]
        rows[domain] = {
            "tasks": replayed["tasks"],
            "gold actions": replayed["gold_actions"],
            "by the user": replayed["gold_actions_of_users"],
            "reach the goal": replayed["reach_gold_state"],
            "a gold action fails": replayed["tasks_with_a_failed_gold_action"],
            "base tasks": counts["base"]["tasks"],
            "solved by doing nothing": counts[SOLVED_BY_NOTHING],
        }
    return pd.DataFrame(rows).T.rename_axis("domain")


def _shorten(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]} ..."
