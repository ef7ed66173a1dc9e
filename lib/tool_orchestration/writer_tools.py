"""Writer tools: a chat model writes a search query or a program for a question, and the tool then executes it.

    query_writer   the model writes words to search for, and the local search finds the documents
    code_writer    the model writes a Python program, and the sandbox runs it

ToolOrchestra has both among its tools (appendix "Tools in training"), each with several models to write. What a call
costs is what the model's reply costs. Lab models and scripted ones, which write neither English nor Python, are
refused: the tool is then not on any menu, and a sentence says why.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lib.config import LLMSettings, ToolSettings
from lib.llm.chat_model import ChatRequest
from lib.tool_orchestration.tool_menu import Offer
from lib.tools.tool import Tool, ToolError

QUERY_WRITER, CODE_WRITER = "query_writer", "code_writer"
DESCRIPTIONS = {
    QUERY_WRITER: "a language model writes a search query for your question, and the documents found come back",
    CODE_WRITER: "a language model writes a program for your question, and what it prints comes back",
}
INCAPABLE_BACKENDS = {
    "lab": "is a lab model, which knows the lab's small language only",
    "scripted": "is a program for other prompts",
}
_PROMPTS = {
    QUERY_WRITER: (
        "Write one query for a full-text search over short documents. Take the few words that a document with the "
        "answer would hold. Reply with the query alone, on one line.\n\nQuestion: {question}"
    ),
    CODE_WRITER: (
        "Write a short Python program that works out the answer and prints it. It has no files, no network and no "
        "input. Reply with the program alone, in one code block.\n\nQuestion: {question}"
    ),
}
_CODE_BLOCK = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)
# Tokens of a usual call, for the price on a menu: the instruction with a question, and a reply.
_TYPICAL_TOKENS_IN = {QUERY_WRITER: 90, CODE_WRITER: 90}
_TYPICAL_TOKENS_OUT = {QUERY_WRITER: 12, CODE_WRITER: 120}


@dataclass(frozen=True)
class WriterTool:
    """A tool in which a chat model writes a search query, or a program, that another tool then executes.

    Attributes:
        name: QUERY_WRITER or CODE_WRITER.
        model: Model of llm.models, that writes.
        executor: The search or the sandbox.
    """

    name: str
    model: str
    executor: Tool

    def make_request(self, question: str, seed: int) -> ChatRequest:
        """Make the request to the chat model.

        Args:
            question: The orchestrator's question.
            seed: Seed of the model's reply.

        Returns:
            A request for a query or a program that answers the question.
        """
        prompt = _PROMPTS[self.name].format(question=question)
        return ChatRequest([{"role": "user", "content": prompt}], seed=seed, caller=self.name)

    def carry_out(self, reply_text: str) -> str:
        """Execute what the model wrote: search for its query, or run its program.

        Args:
            reply_text: The model's reply.

        Returns:
            The documents, or what the program printed.

        Raises:
            ToolError: The reply holds no query and no program, or the search or the sandbox refuses it.
        """
        if self.name == QUERY_WRITER:
            written = read_query(reply_text)
        else:
            written = read_program(reply_text)
        if not written:
            raise ToolError(f"{self.name}: {self.model} wrote nothing that can be used")
        (parameter,) = self.executor.parameters
        return self.executor({parameter: written})

    @property
    def schema(self) -> dict:
        """The function schema of the tool, in the format of OpenAI's API."""
        parameters = {"question": {"type": "string"}}
        return Tool(self.name, DESCRIPTIONS[self.name].capitalize() + ".", parameters, str).schema


def read_query(reply_text: str) -> str:
    """Extract the search query from a model's reply: its first line that is not blank, without quotes around it."""
    lines = [line.strip() for line in reply_text.splitlines() if line.strip()]
    return lines[0].removeprefix("Query:").strip(" \"'`") if lines else ""


def read_program(reply_text: str) -> str:
    """Extract the program from a model's reply: its first code block, or the whole reply where there is none."""
    block = _CODE_BLOCK.search(reply_text)
    return block[1].strip() if block else reply_text.strip()


def choose_writers(
    llm: LLMSettings, settings: ToolSettings, functions: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """Decide which writer tools are on menus: those for which a capable model and the executing function exist.

    Args:
        llm: The models that may be named.
        settings: `query_writer` and `code_writer` name the model that writes; None for no such tool.
        functions: Names of the functions on menus: a query needs "search", a program needs "python".

    Returns:
        The name in llm.models of the model that writes, by the name of its tool.
        A sentence for each writer tool that is on no menu, with the reason.
    """
    models = {}
    sentences = []
    for name, model, executor in (
        (QUERY_WRITER, settings.query_writer, "search"),
        (CODE_WRITER, settings.code_writer, "python"),
    ):
        reason = _explain_absence(llm, name, model, executor, functions)
        if reason:
            sentences.append(f"{name} is not on the menu: {reason}.")
        else:
            models[name] = model
    return models, sentences


def _explain_absence(
    llm: LLMSettings, name: str, model: str | None, executor: str, functions: Collection[str]
) -> str:
    """Explain why a writer tool is on no menu.

    Args:
        llm: The models that may be named.
        name: Name of the tool.
        model: Name in llm.models of the model that would write.
        executor: Name of the function that would execute what the model writes.
        functions: Names of the functions on menus.

    Returns:
        The reason; empty where the tool can be on menus.
    """
    if executor not in functions:
        return f"its {executor} knows nothing of these questions"
    if model is None:
        return f"no model writes for it; name one of llm.models in tools.{name}"
    if model not in llm.models:
        return f"tools.{name} names {model!r}, which is not in llm.models"
    backend = llm.models[model].backend
    if backend in INCAPABLE_BACKENDS:
        return f"{model} {INCAPABLE_BACKENDS[backend]}; name another one in tools.{name}"
    return ""


def make_writer_offer(name: str, llm: LLMSettings, model: str, tokens_per_second: float) -> Offer:
    """Make the menu entry of a writer tool at its usual price.

    Args:
        name: QUERY_WRITER or CODE_WRITER.
        llm: With the model's prices per token.
        model: Name in llm.models of the model that writes.
        tokens_per_second: Speed at which the model writes.

    Returns:
        The entry. As for a model, its price and latency on a menu are factors on what a call costs and takes.
    """
    # By list prices, since nobody has asked it yet; a call is charged what its model bills.
    about = llm.models[model]
    typical_cost_usd = _TYPICAL_TOKENS_IN[name] * (about.price_in or 0.0)
    typical_cost_usd += _TYPICAL_TOKENS_OUT[name] * (about.price_out or 0.0)
    return Offer(
        name,
        model=True,
        cost_usd=1.0,
        seconds=1.0,
        typical_cost_usd=typical_cost_usd,
        typical_seconds=_TYPICAL_TOKENS_OUT[name] / tokens_per_second,
        skills={},
        measured=False,
    )


def make_writers(models: Mapping[str, str], executors: Mapping[str, Tool]) -> dict[str, WriterTool]:
    """Make the writer tools.

    Args:
        models: Name in llm.models of the model that writes, by the name of the writer tool.
        executors: Functions by name, with "search" (executes queries) and "python" (executes programs).

    Returns:
        Writer tools by name.
    """
    executor_names = {QUERY_WRITER: "search", CODE_WRITER: "python"}
    return {
        name: WriterTool(name, model, executors[executor_names[name]])
        for name, model in models.items()
    }
