"""The log of a served router: a line of JSON for each request, with the chosen model and the choice's probability.

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
    """A log file to which a line is appended for each request.

    Attributes:
        path: Path of the file.
        keeps_prompts: Whether the messages of requests are written, too.
    """

    def __init__(self, folder: str | Path, keeps_prompts: bool = False) -> None:
        """
        Args:
            folder: Folder of the file; created if it does not exist.
            keeps_prompts: Whether the messages of requests are written, too.
        """
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / LOG_FILE
        self.keeps_prompts = keeps_prompts
        # Line buffering: a process that is killed loses no request that it has answered.
        self._file = self.path.open("a", encoding="utf-8", buffering=1)

    def write(self, entry: Mapping[str, Any], messages: Any) -> None:
        """Appends the line of one request.

        Args:
            entry: What is logged of the request, without its prompt.
            messages: The prompt, which is written only where `keeps_prompts` is set.
        """
        line = dict(entry)
        if self.keeps_prompts:
            line["messages"] = messages
        self._file.write(json.dumps(line) + "\n")

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
