"""What a served router chose, a line of JSON for each request, with the probability of the choice.

The probabilities make the log one that other routers can be estimated from (`logged_policies`): join the outcome of a
request by its id. Prompts are kept only where the user asks for it; else there is their hash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

LOG_FILE = "choices.jsonl"


class ChoiceLog:
    """A file that grows by a line for each request.

    Attributes:
        path: Of the file.
        keeps_prompts: Whether messages are written.
    """

    def __init__(self, folder: str | Path, keeps_prompts: bool = False) -> None:
        """
        Args:
            folder: Of the file; made where it is not there.
            keeps_prompts: Whether messages are written.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / LOG_FILE
        self.keeps_prompts = keeps_prompts
        # A line at a time, so that a killed process loses none that was answered.
        self._file = self.path.open("a", encoding="utf-8", buffering=1)

    def write(self, entry: Mapping[str, Any], messages: Any) -> None:
        """Adds one request.

        Args:
            entry: Without its prompt.
            messages: The prompt.
        """
        line = dict(entry)
        if self.keeps_prompts:
            line["messages"] = messages
        self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
