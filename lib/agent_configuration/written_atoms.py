"""Prompt atoms that a chat model writes for a user's questions, checked before any agent is told them.

The model sees the roles, the tools and a few training questions, and replies with JSON. A reply that breaks a rule goes
back with the complaint. Held-out questions are not shown; no atom may repeat a question, since it would give away what
the question asks.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from lib.agent_configuration.action_space import AGENTS
from lib.agent_configuration.atoms import BASE, STRATEGIES, Atom, read_library
from lib.experiment import artifacts
from lib.llm.chat_model import ChatModel, ChatRequest
from lib.llm.errors import LLMError
from lib.llm.event_loop import EventLoopThread
from lib.llm.failure_policy import require_reply
from lib.llm.json_replies import InvalidReply, read_object
from lib.tasks import Item

VERSION = 1  # of the request and of the rules
WRITTEN = "written"  # the family of these atoms in the library
ATOMS_PER_ROLE = 3
SHORTEST_ATOM = 3  # words
LONGEST_ATOM = 30
LONGEST_COPY = 6  # words in a row that an atom and a question may not have in common
NUM_EXAMPLES = 5  # questions that the model sees
MAX_ATTEMPTS = 3
REPLY_TOKENS = 1_000
_LONGEST_SHOWN = 600  # characters of a question
_WORD = re.compile(r"\w+")
_ROLES = {
    "reasoner": "works out the answer",
    "verifier": "checks the work of the reasoner, or does a part of the task",
    "answerer": "writes the final answer from what the others found",
}


def write_atoms(
    model: ChatModel, items: Sequence[Item], tools: Sequence[str], loop: EventLoopThread
) -> list[Atom]:
    """Let a chat model write atoms for questions.

    Args:
        model: The model that writes.
        items: Training questions; the first NUM_EXAMPLES are shown, and no atom may repeat any of them.
        tools: The tools that agents may have.
        loop: The event loop that the model is asked on.

    Returns:
        ATOMS_PER_ROLE atoms for each role.

    Raises:
        LLMError: No reply of MAX_ATTEMPTS kept the rules; the message has the last complaint.
        InfrastructureError: The model's server failed.
    """
    messages: list[Mapping[str, Any]] = [
        {"role": "user", "content": _write_request(items[:NUM_EXAMPLES], tools)}
    ]
    complaint = ""
    for attempt in range(MAX_ATTEMPTS):
        request = ChatRequest(
            messages, temperature=0.7, max_tokens=REPLY_TOKENS, seed=attempt, caller="write atoms"
        )
        reply = loop.run(model.reply_to(request))
        require_reply(reply, "the text of prompt atoms")
        try:
            return check_atoms(reply.text, items)
        except InvalidReply as error:
            complaint = str(error)
        messages = [
            *messages,
            {"role": "assistant", "content": reply.text or "(nothing)"},
            {"role": "user", "content": f"That cannot be used: {complaint}. Reply again."},
        ]
    raise LLMError(
        f"--write-atoms {model.name}: none of {MAX_ATTEMPTS} replies kept the rules ({complaint}); name another model, "
        "or leave the option out for the atoms that are shipped"
    )


def _write_request(items: Sequence[Item], tools: Sequence[str]) -> str:
    """Write the prompt that asks a model for instructions: the roles, the tools, some questions, and the form of the
    reply.

    Args:
        items: Example questions.
        tools: Names of the agents' tools.

    Returns:
        The prompt.
    """
    roles = "\n".join(f"- {role}: {work}" for role, work in _ROLES.items())
    questions = "\n".join(f"- {' '.join(item.prompt.split())[:_LONGEST_SHOWN]}" for item in items)
    return (
        "A team of language models answers questions. Each member has a role:\n"
        f"{roles}\n"
        f"The first two may have tools: {', '.join(tools) or 'none'}.\n"
        f"Some of the questions:\n{questions}\n\n"
        f"Write {ATOMS_PER_ROLE} short instructions for each role that help with questions of this kind. Each is one "
        f"sentence of {SHORTEST_ATOM} to {LONGEST_ATOM} words, differs from the others, and repeats nothing of a "
        "single question.\n"
        f"Say of each which strategy it is, one of: {', '.join(STRATEGIES)}.\n"
        'Reply with JSON alone: {"reasoner": [{"strategy": "...", "text": "..."}, ...], "verifier": [...], '
        '"answerer": [...]}'
    )


def check_atoms(text: str, items: Sequence[Item]) -> list[Atom]:
    """Read atoms from a reply.

    Args:
        text: The reply.
        items: Questions that no atom may repeat.

    Returns:
        The atoms.

    Raises:
        InvalidReply: A rule is broken; the message says which, and by what.
    """
    content, _ = read_object(text, AGENTS)
    runs_in_questions: set[tuple[str, ...]] = set()
    for item in items:
        runs_in_questions |= _list_word_runs(item.prompt)
    atoms: list[Atom] = []
    for role in AGENTS:
        entries = content.get(role)
        if not isinstance(entries, list) or len(entries) != ATOMS_PER_ROLE:
            raise InvalidReply("wrong_fields", f"{role} must have a list of {ATOMS_PER_ROLE} atoms")
        for number, entry in enumerate(entries):
            atom = _read_entry(role, number, entry)
            if _list_word_runs(atom.text) & runs_in_questions:
                raise InvalidReply("wrong_fields", f"{atom.text!r} repeats a question")
            if atom.text.lower() in {earlier.text.lower() for earlier in atoms}:
                raise InvalidReply("wrong_fields", f"{atom.text!r} stands twice")
            atoms.append(atom)
    return atoms


def _read_entry(role: str, number: int, entry: object) -> Atom:
    """Read one written instruction (atom) of a role.

    Args:
        role: The role.
        number: Its number among those of the role.
        entry: Its fields, as the model wrote them.

    Returns:
        The atom.

    Raises:
        InvalidReply: It breaks a rule.
    """
    if not isinstance(entry, dict) or not isinstance(entry.get("text"), str):
        raise InvalidReply("wrong_fields", f"an atom of the {role} lacks its text")
    text = " ".join(entry["text"].split())
    num_words = len(text.split())
    if not SHORTEST_ATOM <= num_words <= LONGEST_ATOM:
        raise InvalidReply(
            "wrong_fields",
            f"{text!r} has {num_words} words; write {SHORTEST_ATOM} to {LONGEST_ATOM}",
        )
    strategy = entry.get("strategy")
    if strategy not in STRATEGIES:
        raise InvalidReply(
            "wrong_fields", f"{strategy!r} is no strategy; there are {', '.join(STRATEGIES)}"
        )
    name = f"{WRITTEN}/{role}/atom{number + 1}"
    return Atom(strategy=strategy, text=text, name=name, family=WRITTEN, role=role)


def _list_word_runs(text: str) -> set[tuple[str, ...]]:
    """List all runs of LONGEST_COPY words in a text."""
    words = _WORD.findall(text.lower())
    first_words = range(len(words) - LONGEST_COPY + 1)
    return {tuple(words[first : first + LONGEST_COPY]) for first in first_words}


def write_library(path: Path, atoms: Sequence[Atom]) -> None:
    """Write a library of atoms as YAML, in the form that `atoms.read_library` reads.

    Args:
        path: The file.
        atoms: Atoms of any families; one of them is "base".
    """
    content: dict[str, dict[str, dict[str, dict[str, str]]]] = {BASE: {}}
    for atom in atoms:
        family, role, key = atom.name.split("/")
        entry = {"strategy": atom.strategy, "text": atom.text}
        if atom.hint is not None:
            entry["hint"] = atom.hint
        content.setdefault(family, {}).setdefault(role, {})[key] = entry
    stream = io.StringIO()
    writer = YAML(typ="safe", pure=True)
    writer.sort_base_mapping_type_on_output = False  # in the order of the library
    writer.dump(content, stream)
    artifacts.write_text(path, stream.getvalue())
    read_library(path)  # what was written can be read
