"""A language model as the writer, asked once per step of the pipeline, in prompts of our own.

The model is a callable from prompt to reply, so that any endpoint will do. Its replies are JSON in the
formats of `domains`, repaired where they are nearly so, and have to meet the same rules as everything else;
what does not meet them is dropped and counted. Steps: ToolOrchestra, appendix "Data Synthesis".
"""

import json
import re
from collections.abc import Callable, Sequence
from string import Template
from typing import Annotated, Any

import json_repair
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from lib.tasks.synthesis.database import CallError, find_problems
from lib.tasks.synthesis.domains import GUILD, Function, Records, TableSchema, TaskDomain
from lib.tasks.synthesis.filters import DropRecord
from lib.tasks.synthesis.tasks import Source, Task
from lib.tasks.synthesis.verification import mentions
from lib.tasks.synthesis.writers import Draft

LONGEST = 20_000  # characters of a reply that are read
LONGEST_DETAIL = 200  # characters of a detail that is kept

# why something was dropped
MALFORMED = "malformed"  # the reply is not in the format of its step
INCONSISTENT = "inconsistent"  # records that break a rule
DOUBTED = "doubted"  # records that the model itself does not find in order
UNFOUNDED = "unfounded"  # a task whose information is in no reply
EASY = "not harder"  # a harder task that is none

Line = Annotated[
    str,
    StringConstraints(
        min_length=1, max_length=400, strip_whitespace=True, pattern=r"^[^\x00\r\n]*$"
    ),
]
_LINES = TypeAdapter(list[Line])
_TABLES = TypeAdapter(Annotated[tuple[TableSchema, ...], Field(min_length=1, max_length=6)])
_FUNCTION = TypeAdapter(Function)
_RECORDS = TypeAdapter(dict[str, dict[str, dict[str, str]]])
_FENCE = re.compile(r"```[a-zA-Z]*\s*\n(.*?)```", re.DOTALL)


class _TaskReply(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instruction: Line
    calls: Annotated[
        tuple[Annotated[tuple[Line, ...], Field(min_length=1, max_length=3)], ...],
        Field(max_length=8),
    ]
    info: Annotated[tuple[Line, ...], Field(max_length=4)] = ()


class _ValidationReply(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    schema_: bool = Field(alias="schema")
    consistency: bool
    plausibility: bool


_TASK_FORM = """{"instruction": "what a user would ask, with every detail that is needed",
 "calls": [["function", "argument", "argument"]],
 "info": ["a value out of the replies that the user has to be told, if any"]}"""
SUBJECTS_PROMPT = Template("""A small database is wanted about: $topic.
Which $n subjects could such a database centre on? They should differ as much as possible.
Reply with a JSON list of short strings, and nothing else.""")
SCHEMA_PROMPT = Template("""Design the tables of a small database about: $topic.
It is to serve subjects such as: $subjects.
This is the schema of another database:
$example
Rules: at most 6 tables of at most 8 columns. A column is a "choice" among words, a "digit" 0 to 9, a "reference" to
the key of the table in "of", or a "name" that repeats the key. Keys and choices are single words.
Reply with a JSON list of tables in that form, and nothing else.""")
FUNCTIONS_PROMPT = Template("""An assistant works on a database about $topic with these tables:
$schema
These are functions on another database:
$example
Effects: get (parameters field, name), find (field, value), set (name, value; one column), add and take (name, or name
and field; digit columns), remove (name). The first function has the effect get and is called lookup.
Which functions would be used most here? Reply with a JSON list in that form, and nothing else.""")
RECORDS_PROMPT = Template("""These are the tables of a database about $topic:
$schema
Fill them with 4 to 8 records each, about: $subject. Every reference leads to a record that is there.
Reply with JSON, {"table": {"key": {"column": "value"}}}, all values as strings, and nothing else.""")
VALIDATION_PROMPT = Template("""Tables:
$schema
Records:
$records
Judge the records. schema: does each have the columns and kinds of value that its table asks for? consistency: where
one thing is said in two places, do they agree? plausibility: could this be so in the world?
Reply with JSON, {"schema": true, "consistency": true, "plausibility": true} or false where not, and nothing else.""")
INTENTS_PROMPT = Template("""An assistant for $topic can call these functions:
$functions
For which $n purposes would people turn to it? Name purposes that these functions can serve.
Reply with a JSON list of short strings, and nothing else.""")
TASK_PROMPT = Template("""An assistant for $topic can call these functions:
$functions
Its database:
$records
Write a task for the purpose: $intent. It has one right outcome, and the calls reach it on this database.
Reply with JSON in this form, and nothing else:
$form""")
HARDER_TASK_PROMPT = Template("""An assistant for $topic can call these functions:
$functions
Its database:
$records
A task that it can do already:
$task
Write a harder one that contains it: put a condition on it, reach a record through another, do or tell one thing more.
Reply with JSON in this form, and nothing else:
$form""")


class LLMWriter:
    """Writes domains, records and tasks with a language model, one prompt per step.

    Attributes:
        dropped: Replies that could not be used so far, with the reason.
        patience: Databases generated for every one wanted in a split, before the split is left short.
    """

    patience = 2

    def __init__(self, ask: Callable[[str], str], topics: Sequence[str]) -> None:
        """Name a domain after each topic; the model is not called yet.

        Args:
            ask: ask(prompt) gives the model's reply, "" where the call failed. An exception ends the synthesis.
            topics: What the domains are about, for example "Pet shop", whose domain is called "pet_shop".

        Raises:
            ValueError: For topics that do not give different names that begin with a letter.
        """
        self._ask = ask
        self._topics: dict[str, str] = {}  # by the domain's name
        for topic in topics:
            name = re.sub(r"[^a-z0-9]+", "_", topic.lower()).strip("_")[:24]
            self._topics[name] = topic
        if len(self._topics) < len(topics) or not all(name[:1].isalpha() for name in self._topics):
            raise ValueError(
                f"topics need different names that begin with a letter, got {list(topics)}"
            )
        self._subjects: dict[str, list[str]] = {}  # by the domain's name
        self.dropped: list[DropRecord] = []

    def write_domains(self) -> list[TaskDomain]:
        """Let the model design a domain (tables, functions) for each topic; one without a valid reply is left out."""
        domains = [self._write_domain(name, topic) for name, topic in self._topics.items()]
        return [domain for domain in domains if domain is not None]

    def _write_domain(self, name: str, topic: str) -> TaskDomain | None:
        """Let the model design the tables and functions for one topic.

        Args:
            name: Name of the domain, for example "pet_shop".
            topic: What it is about, for example "Pet shop".

        Returns:
            The domain; None where the model gave no valid tables or no function that fits them.
        """
        subjects = self._ask_for_lines("subjects", name, SUBJECTS_PROMPT, n=10)
        self._subjects[name] = subjects

        # Tables for these subjects. The tables of a built-in domain show the format.
        prompt = SCHEMA_PROMPT.substitute(
            topic=topic,
            subjects=", ".join(subjects) or topic,
            example=_dump_tables(GUILD.tables),
        )
        try:
            tables = _TABLES.validate_python(self._ask_for_json(prompt))
        except ValidationError as error:
            return self._drop("schema", MALFORMED, name, error)

        # Functions on these tables. They are added one by one, so that an invalid one is dropped alone.
        prompt = FUNCTIONS_PROMPT.substitute(
            topic=topic, schema=_dump_tables(tables), example=_dump_functions(GUILD)
        )
        reply = self._ask_for_json(prompt)
        candidates = reply if isinstance(reply, list) else [reply]
        domain: TaskDomain | None = None
        for candidate in candidates:
            functions = domain.functions if domain else ()
            try:
                function = _FUNCTION.validate_python(candidate)
                domain = TaskDomain(name=name, tables=tables, functions=(*functions, function))
            except ValidationError as error:
                self._drop("functions", MALFORMED, name, error)
        if domain is None:
            return self._drop("schema", MALFORMED, name, "no function fits these tables")
        return domain

    def write_subjects(self, domain: TaskDomain, n: int, rng: np.random.Generator) -> list[str]:
        """List up to n subjects that a database of a domain could be about, such as "a shop for birds".

        Args:
            domain: The tables and functions.
            n: Number of subjects wanted.
            rng: Not used: the model draws.

        Returns:
            The subjects that the domain was designed for; where they are too few, the model is asked for more.
        """
        subjects = self._subjects.get(domain.name, [])
        if len(subjects) < n:
            subjects = subjects + self._ask_for_lines("subjects", domain.name, SUBJECTS_PROMPT, n=n)
            subjects = list(dict.fromkeys(subjects))
        return subjects[:n]

    def write_records(
        self, domain: TaskDomain, subject: str, rng: np.random.Generator
    ) -> Records | None:
        """Let the model fill the tables of a domain, and check the records by rules and by the model itself.

        Args:
            domain: The tables.
            subject: What the records are about.
            rng: Not used: the model draws.

        Returns:
            Value by table, key and column; None where the reply is malformed or a check fails.
        """
        schema = _dump_tables(domain.tables)
        topic = self._topics[domain.name]
        prompt = RECORDS_PROMPT.substitute(topic=topic, schema=schema, subject=subject)
        try:
            records = _RECORDS.validate_python(_numbers_to_words(self._ask_for_json(prompt)))
        except ValidationError as error:
            return self._drop("records", MALFORMED, domain.name, error)
        # The rules come first, because the model's judgement costs a call.
        problems = find_problems(domain, records)
        if problems:
            return self._drop("records", INCONSISTENT, domain.name, "; ".join(problems))

        prompt = VALIDATION_PROMPT.substitute(schema=schema, records=_dump_json(records))
        try:
            validation = _ValidationReply.model_validate(self._ask_for_json(prompt))
        except ValidationError as error:
            return self._drop("validation", MALFORMED, domain.name, error)
        verdicts = validation.model_dump(by_alias=True)
        doubts = [condition for condition, holds in verdicts.items() if not holds]
        if doubts:
            return self._drop("validation", DOUBTED, domain.name, ", ".join(doubts))
        return records

    def write_intents(self, source: Source, n: int, rng: np.random.Generator) -> list[str]:
        """Ask for up to n different purposes, in a few words each, that users could have with the functions."""
        domain = source.domain
        functions = _dump_functions(domain)
        intents = self._ask_for_lines(
            "intents", domain.name, INTENTS_PROMPT, n=n, functions=functions
        )
        return intents[:n]

    def write_task(self, source: Source, intent: str, rng: np.random.Generator) -> Draft | None:
        """Ask for a task for a purpose: instruction, golden calls and information; None for an unusable reply."""
        return self._ask_for_draft("task", source, TASK_PROMPT, intent=intent)

    def write_harder_task(
        self, source: Source, draft: Draft, rng: np.random.Generator
    ) -> Draft | None:
        """Ask for a harder version of a task.

        Args:
            source: The database.
            draft: The easier task.
            rng: Not used: the model draws.

        Returns:
            The harder task; None for an unusable reply, the same instruction again, or fewer calls than before.
        """
        easier = {"instruction": draft.instruction, "calls": draft.calls, "info": draft.info}
        harder = self._ask_for_draft("evolve", source, HARDER_TASK_PROMPT, task=_dump_json(easier))
        if harder is None:
            return None
        # A model asked for more sometimes gives the same again.
        if harder.instruction == draft.instruction or len(harder.calls) < len(draft.calls):
            return self._drop("evolve", EASY, source.domain.name, harder.instruction)
        return harder

    def _ask_for_draft(
        self, step: str, source: Source, prompt: Template, **fields: str
    ) -> Draft | None:
        """Ask for a task and check its format.

        Args:
            step: Step of the pipeline, "task" or "evolve", for the record of a dropped reply.
            source: The database.
            prompt: Template with topic, functions, records and form, and the names of `fields`.
            fields: Further values for the template.

        Returns:
            The task; None where the reply is malformed, or its information is in no reply of its golden calls, so that
            an agent could not learn it.
        """
        name = source.domain.name
        text = prompt.substitute(
            topic=self._topics[name],
            functions=_dump_functions(source.domain),
            records=_dump_json(source.records),
            form=_TASK_FORM,
            **fields,
        )
        try:
            reply = _TaskReply.model_validate(self._ask_for_json(text))
        except ValidationError as error:
            return self._drop(step, MALFORMED, name, error)
        draft = Draft(reply.instruction, reply.calls, reply.info)
        if not _is_info_in_replies(source, draft):
            detail = f"{', '.join(draft.info)} is in no reply: {draft.instruction}"
            return self._drop(step, UNFOUNDED, name, detail)
        return draft

    def _ask_for_lines(self, step: str, name: str, prompt: Template, **fields: Any) -> list[str]:
        """Ask for a list of lines.

        Args:
            step: Step of the pipeline, for the record of a dropped reply.
            name: Name of the domain.
            prompt: Template with topic and the names of `fields`.
            fields: Further values for the template.

        Returns:
            The lines without duplicates; [] where the reply is no JSON list of them.
        """
        text = prompt.substitute(topic=self._topics[name], **fields)
        try:
            lines = _LINES.validate_python(self._ask_for_json(text))
        except ValidationError as error:
            self._drop(step, MALFORMED, name, error)
            return []
        return list(dict.fromkeys(lines))

    def _ask_for_json(self, prompt: str) -> Any:
        """Send a prompt to the model and parse the JSON in its reply; None where there is none."""
        return read_json(self._ask(prompt))

    def _drop(self, step: str, reason: str, domain: str, detail: object) -> None:
        """Record in `dropped` why a reply of the model could not be used; returns None, as its callers do."""
        if isinstance(detail, ValidationError):
            # One error is enough for a table; without the input, which may be long or odd.
            first = detail.errors(include_url=False, include_input=False, include_context=False)[0]
            detail = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        # A lone surrogate, which a model may write as a JSON escape, could not be stored in a UTF-8 file.
        text = str(detail).encode("utf-8", "replace").decode()
        self.dropped.append(DropRecord(step, reason, domain, text[:LONGEST_DETAIL]))


def read_json(reply: str) -> Any:
    """Parse the JSON in a model's reply, and repair small errors such as a missing bracket.

    Args:
        reply: JSON, bare or in a code fence (```json ... ```); only its first LONGEST characters are read.

    Returns:
        The value; None where the text cannot be repaired into one.
    """
    text = reply[:LONGEST]
    fence = _FENCE.search(text)
    try:
        return json_repair.loads(fence.group(1) if fence else text)
    except (ValueError, RecursionError):
        return None


def _numbers_to_words(value: Any) -> Any:
    """Turn integers in nested dictionaries into strings, {"keys": 3} -> {"keys": "3"}, as records hold strings only."""
    if isinstance(value, dict):
        return {key: _numbers_to_words(inner) for key, inner in value.items()}
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return str(value) if is_number else value


def _dump_json(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=False, ensure_ascii=False)


def _dump_tables(tables: Sequence[TableSchema]) -> str:
    return _dump_json([table.model_dump(exclude_defaults=True) for table in tables])


def _dump_functions(domain: TaskDomain) -> str:
    return _dump_json([function.model_dump(exclude={"phrase"}) for function in domain.functions])


def _is_info_in_replies(source: Source, draft: Draft) -> bool:
    """Whether an agent can learn all information to report from the replies to the golden calls.

    Args:
        source: The database.
        draft: A task as a model wrote it, with golden calls and information.

    Returns:
        Whether each value is in a reply. True also where a golden call fails: `filter_tasks` drops such a task, under
        its own reason.
    """
    task = Task("", source, "", draft.instruction, draft.calls, draft.info)
    try:
        replies = task.golden_outcome.replies
    except CallError:
        return True
    return all(any(mentions(reply, value) for reply in replies) for value in draft.info)
