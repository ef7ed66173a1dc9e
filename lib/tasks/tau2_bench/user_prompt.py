"""What a model that plays the user of a tau2-bench task reads: tau2's guidelines and the scenario of the task."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from lib.tasks.tau2_bench.installation import import_tau2

# What the user writes to end the conversation: solved, handed over, or not in the scenario.
ENDINGS = ("###STOP###", "###TRANSFER###", "###OUT-OF-SCOPE###")
_PROMPT = "{guidelines}\n\n<scenario>\n{scenario}\n</scenario>"


def write_user_prompt(task: Any, has_tools: bool) -> str:
    """Write the system message of the model that plays the user.

    Args:
        task: Task of tau2-bench.
        has_tools: Whether the user has tools (telecom), for which there are other guidelines.

    Returns:
        The guidelines as the package has them, and the scenario.
    """
    return _PROMPT.format(guidelines=_read_guidelines(has_tools), scenario=task.user_scenario)


@cache
def _read_guidelines(has_tools: bool) -> str:
    """Read the guidelines from the package."""
    folder = Path(import_tau2("tau2.utils").DATA_DIR) / "tau2/user_simulator"
    name = "simulation_guidelines_tools.md" if has_tools else "simulation_guidelines.md"
    return (folder / name).read_text(encoding="utf-8")
