"""A model behind HTTP that can do whatever its prompt asks in words, and knows nothing else of the project.

It computes without mistakes, by the rules that stand in the prompt: where none stands there, by the usual ones, with
precedence and all digits. It calls tools by their schemas, fills in the JSON that a prompt shows, explains before it
answers, and stops at `max_tokens` as servers do.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lib.tools.calculator import evaluate_expression
from tests.llm.server import Answer, Asked, completion

_CHAIN = re.compile(r"(?<![\w.])\d+(?: [-+*] \d+)+")  # 3 + 4 * 2, wherever it stands
_FACT_THEN_SUM = re.compile(r"What is the ([a-z ]+?) of ([A-Z]\w*) ([-+*]) (\d+)")
_SENTENCE = re.compile(r"[Tt]he (\w+) of (\w+) is (\w+)")
_NOTE = re.compile(r"\b([a-z]+) ([A-Z]\w*) : (\w+)")  # of a call to a tool, in somebody's notes
_PIECE = re.compile(r"\w+|[^\w\s]")  # about a token


@dataclass
class Prompt:
    """A request as the model reads it.

    Attributes:
        system: The instructions.
        user: The last message of a user.
        tools: Parameters by the name of the tool.
        facts: By (relation, subject), from notes and from results of tools.
    """

    system: str
    user: str
    tools: Mapping[str, Sequence[str]]
    facts: dict[tuple[str, str], str] = field(default_factory=dict)

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> Prompt:
        """Read the body of a chat completion request."""
        messages = body["messages"]
        system = "\n".join(m["content"] for m in messages if m["role"] == "system")
        user = [m["content"] for m in messages if m["role"] == "user"][-1]
        tools = {}
        for tool in body.get("tools") or ():
            function = tool["function"]
            tools[function["name"]] = list(function["parameters"]["properties"])

        prompt = cls(system, user, tools)
        for message in messages:
            prompt.read_facts(message)
        return prompt

    @property
    def whole(self) -> str:
        return f"{self.system}\n{self.user}"

    def read_facts(self, message: Mapping[str, Any]) -> None:
        """Remember what a message says of the world."""
        text = message.get("content") or ""
        for relation, subject, value in (*_SENTENCE.findall(text), *_NOTE.findall(text)):
            self.facts[relation, subject] = value
        # What a call of `lookup` asked for stands in the assistant's message before its result.
        for call in message.get("tool_calls") or ():
            arguments = json.loads(call["function"]["arguments"])
            self.asked = (arguments.get("relation"), arguments.get("subject"))
        if message["role"] == "tool" and getattr(self, "asked", None) and self.asked[0]:
            self.facts[self.asked] = text.strip()


def evaluate(expression: str, rules: str) -> str:
    """The value of an expression: by the rules in a text, where it has any, else by those of arithmetic."""
    first, *rest = expression.split()
    from_left_to_right = "left to right" in rules and "without precedence" in rules
    only_last_digit = "only the last digit" in rules
    if not from_left_to_right:
        value = int(evaluate_expression(expression))
        return str(value % 10 if only_last_digit else value)
    value = int(first)
    for sign, operand in zip(rest[::2], rest[1::2], strict=True):
        value = int(evaluate_expression(f"({value}) {sign} {operand}"))
        if only_last_digit:
            value %= 10
    return str(value)


@dataclass(frozen=True)
class Solution:
    """What the model makes of a question: an answer, or a fact that it lacks."""

    answer: str | None = None
    missing: tuple[str, str] | None = None


def solve(prompt: Prompt) -> Solution:
    """Work out the question of a prompt."""
    task = _FACT_THEN_SUM.search(prompt.user)
    if task:
        relations, subject, sign, operand = task.groups()
        # "number of the friend" of Ana: the friend of Ana comes first.
        for relation in reversed(relations.split(" of the ")):
            if (relation, subject) not in prompt.facts:
                return Solution(missing=(relation, subject))
            subject = prompt.facts[relation, subject]
        return Solution(evaluate(f"{subject} {sign} {operand}", prompt.system))
    chain = _CHAIN.search(prompt.user)
    if chain:
        return Solution(evaluate(chain[0], prompt.system))
    return Solution()


def reply_to(body: Mapping[str, Any]) -> dict[str, Any]:
    """The message with which the model replies to a request."""
    prompt = Prompt.from_body(body)
    filled_in = fill_in_form(prompt)
    if filled_in is not None:
        return {"role": "assistant", "content": filled_in}

    solution = solve(prompt)
    if solution.missing and ("lookup" in prompt.tools or "search" in prompt.tools):
        return make_call(prompt, *solution.missing)
    answer = take_role(prompt, solution)
    explanation = "" if "briefly" in prompt.system else f"I worked it out and found {answer}. "
    if "<answer>" in prompt.system:
        return {"role": "assistant", "content": f"{explanation}<answer> {answer} </answer>"}
    return {"role": "assistant", "content": f"{explanation}The answer is {answer}."}


def make_call(prompt: Prompt, relation: str, subject: str) -> dict[str, Any]:
    """A call to the tool that knows a fact."""
    if "lookup" in prompt.tools:
        name = "lookup"
        arguments = dict(zip(prompt.tools["lookup"], (relation, subject), strict=True))
    else:
        name = "search"
        arguments = {prompt.tools["search"][0]: f"{relation} of {subject}"}
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{len(prompt.facts)}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def take_role(prompt: Prompt, solution: Solution) -> str:
    """The answer that the role of the prompt asks for; its own solution where there is no role."""
    # What others left stands behind the question, after the words "draft", "evidence" or "votes".
    left_answers = [
        answer
        for answer in re.findall(r"\banswer (\w+)", prompt.user)
        if answer not in ("right", "wrong")
    ]
    votes = prompt.user.partition(" votes ")[2].split()
    if "the word right or the word wrong" in prompt.system:
        is_right = solution.answer is None or solution.answer in left_answers
        return "right" if is_right else "wrong"
    if "one word: direct" in prompt.system:
        return "search"
    if "first ... then ..." in prompt.system:
        question = prompt.user.removesuffix("?").strip()
        return f"first {question} then check {question}"
    if solution.answer is not None:
        return solution.answer
    if votes:
        return Counter(votes).most_common(1)[0][0]
    return left_answers[-1] if left_answers else "unknown"


def fill_in_form(prompt: Prompt) -> str | None:
    """The reply to a prompt that shows its form: JSON, a grade, a verdict; None for any other."""
    text = prompt.whole
    if '"workflow": ...' in text:
        workflows = re.findall(r"(\w+): ", re.search(r"Workflows: (.*)", text)[1])
        tiers = re.search(r"each of (.*)\.", text)[1].split(", ")
        tools = re.search(r"any of (.*)\.", text)[1].split(", ")
        choice = {"workflow": workflows[1], "tools1": tools, "tools2": tools}
        return json.dumps(choice | {"budgets": [tiers[-1]] * 3})
    if '"policy": "NAME"' in text:
        names = re.search(r"by its exact name: (.*?)\.", text)[1].split(", ")
        return json.dumps({"reasoning": "The middle one balances.", "policy": names[1]})
    if "One JSON object" in text and "Score " in prompt.user:
        criteria = re.search(r"Score (.*)\.", prompt.user)[1].split(", ")
        return json.dumps({"reasoning": "Middling."} | dict.fromkeys(criteria, 3))
    if "Rewrite the running summary" in text:
        return "Mastery rises slowly; keep what worked."
    sections = dict(re.findall(r"# (\w+(?: [AB])?)\n(.*)", text))
    is_right = sections.get("Reference", "?") in sections.get("Answer", "")
    if "one decimal number from 0" in text or "Score: <number>" in text:
        return "Score: 1.0" if is_right else "Score: 0.0"
    if "So the result is True" in text:
        return f"I compared both.\nSo the result is {is_right}."
    if "So the better answer is A" in text:
        return "I compared both.\nSo the better answer is A."
    return None


def answer_request(asked: Asked) -> Answer:
    """The response of the model's server to a request, cut off at `max_tokens`."""
    message = reply_to(asked.body)
    calls = message.get("tool_calls") or []
    written = message["content"] or json.dumps(calls)
    pieces = list(_PIECE.finditer(written))
    limit = asked.body.get("max_tokens") or asked.body.get("max_completion_tokens") or len(pieces)
    tokens_in = sum(len(_PIECE.findall(m.get("content") or "")) for m in asked.body["messages"])
    finish = "tool_calls" if calls else "stop"
    if len(pieces) > limit:
        message = {"role": "assistant", "content": written[: pieces[limit].start()]}
        if calls:
            message["content"] = ""
        finish = "length"
    tokens_out = min(len(pieces), limit)
    body = completion("", tokens_in, tokens_out, message=message, finish_reason=finish)
    return Answer(body)
