"""Office tasks as a dialogue: the user leaves parts of the task out, and says them when asked.

ToolOrchestra trains and tests on user-agent-tool interactions. Here the user's first message has placeholders for some
names of the task ("route [boats 1] to [rivers 1] ."). An agent asks about them with the tool `ask_user`, as often as it
has turns, and the task is judged as ever, by the database. The scripted user answers what the question names and is
labelled as scripted wherever it is shown; a chat model of llm.models (`tools.dialogue.user`) answers as people do.
Left out: users who change their minds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from lib.config.budgeted_routing import SCRIPTED_USER
from lib.llm.chat_model import ChatRequest
from lib.rl.expert_pool import ExpertPool, ExpertReply
from lib.tasks.synthesis import Task

MOST_WITHHELD = 3  # names of a task that its user leaves out at most
SCRIPTED_LABEL = "scripted user"
_HINT = "Ask me what stands in brackets."
_PROMPT = (
    "You are a user of an office assistant. Your whole request is: {request}\n"
    "You wrote to the assistant: {opening}\n"
    "The brackets stand for: {answers}.\n"
    "The assistant now asks you something. Answer in one short sentence. Say what a bracket stands for only if the "
    "question is about it, word for word as above. Do not do the work yourself."
)


@dataclass(frozen=True)
class UserDialogue:
    """What the user of an office task says, and keeps back.

    Attributes:
        request: The instruction with everything in it.
        opening: The user's first message.
        withheld: What each placeholder of the opening stands for, by placeholder without brackets.
    """

    request: str
    opening: str
    withheld: Mapping[str, str]


@dataclass(frozen=True)
class UserQuestion:
    """A question of an agent to its user.

    Attributes:
        dialogue: The user's.
        text: The question.
        seed: Seed of a user that is a language model.
    """

    dialogue: UserDialogue
    text: str
    seed: int = 0


class SimulatedUser(Protocol):
    """A user who answers an orchestrator's questions about the task.

    Attributes:
        label: As tables and pages name the user.
    """

    label: str

    def answer_all(self, questions: Sequence[UserQuestion], pool: ExpertPool) -> list[ExpertReply]:
        """Answer questions; returns replies in their order."""
        ...


def make_dialogue(task: Task, most_withheld: int = MOST_WITHHELD) -> UserDialogue | None:
    """Makes a dialogue out of an office task.

    Withheld are keys of records that the golden calls need, in the order of the instruction, the same word everywhere.

    Args:
        task: An office task.
        most_withheld: How many names at most.

    Returns:
        The dialogue; None where the instruction names no record.
    """
    needed = {argument for _, *arguments in task.calls for argument in arguments}
    opening = task.instruction
    withheld: dict[str, str] = {}
    for word in dict.fromkeys(task.instruction.split()):
        table = _find_table(task, word)
        if word not in needed or table is None or len(withheld) == most_withheld:
            continue
        # People and places are counted apart: boats 1, boats 2, rivers 1.
        number = 1 + sum(name.startswith(f"{table} ") for name in withheld)
        placeholder = f"{table} {number}"
        withheld[placeholder] = word
        opening = re.sub(rf"(?<!\S){re.escape(word)}(?!\S)", f"[{placeholder}]", opening)
    if not withheld:
        return None
    return UserDialogue(task.instruction, f"{opening} {_HINT}", withheld)


def _find_table(task: Task, word: str) -> str | None:
    """Find the table of the task's database that has a record of this key; None where there is none."""
    for table, records in task.records.items():
        if word in records:
            return table
    return None


class ScriptedUser:
    """A user by rule: tells what the placeholders in a question stand for, or which placeholders may be asked about."""

    label = SCRIPTED_LABEL

    def answer_all(self, questions: Sequence[UserQuestion], pool: ExpertPool) -> list[ExpertReply]:
        """Answer each question by rule, at no cost; the pool of models is not used."""
        return [ExpertReply(self.answer(question), 0.0) for question in questions]

    def answer(self, question: UserQuestion) -> str:
        """Answer one question by rule: what the placeholders that it names stand for, or which placeholders there are.

        Args:
            question: The orchestrator's question, with what the user withholds.

        Returns:
            The answer.
        """
        withheld = question.dialogue.withheld
        text = question.text.lower()
        # "boats 1" must not be found in "boats 12".
        placeholders = [name for name in withheld if re.search(rf"\b{re.escape(name)}\b", text)]
        if placeholders:
            return " ".join(f"{name} is {withheld[name]} ." for name in placeholders)
        return f"Ask me about {' or '.join(withheld)} ."


@dataclass(frozen=True)
class ChatUser:
    """A user that is a language model.

    Attributes:
        model: Its name in llm.models; the pool has it.
    """

    model: str

    @property
    def label(self) -> str:
        """The user's name in tables and pages."""
        return f"simulated user: {self.model}"

    def answer_all(self, questions: Sequence[UserQuestion], pool: ExpertPool) -> list[ExpertReply]:
        """Let the model answer as the user.

        Args:
            questions: Questions of orchestrators to their users.
            pool: Runs the model.

        Returns:
            Replies in the order of the questions. What a user costs is not the agent's: they are free.
        """
        if not questions:
            return []
        requests = [self.make_request(question) for question in questions]
        replies = pool.generate(self.model, requests)
        return [ExpertReply(reply.text, 0.0, failure=reply.failure) for reply in replies]

    def make_request(self, question: UserQuestion) -> ChatRequest:
        """Make the request that lets a model answer one question as the user of its task.

        Args:
            question: The orchestrator's question, with what the user withholds.

        Returns:
            The request.
        """
        dialogue = question.dialogue
        answers = ", ".join(f"[{name}] {word}" for name, word in dialogue.withheld.items())
        system = _PROMPT.format(request=dialogue.request, opening=dialogue.opening, answers=answers)
        messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": question.text},
        ]
        return ChatRequest(messages, seed=question.seed, caller="user")


def make_user(name: str) -> SimulatedUser:
    """Make the user that the setting `tools.dialogue.user` names: the scripted one, or a model of llm.models."""
    return ScriptedUser() if name == SCRIPTED_USER else ChatUser(name)
