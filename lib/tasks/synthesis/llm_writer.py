"""A language model as the writer, asked once per step of the pipeline, in prompts of our own.

The model is a callable from prompt to reply, so that any endpoint will do. Its replies are JSON in the
formats of `domains`, repaired where they are nearly so, and held to the same rules as everything else;
whatever does not keep them is dropped and counted. Steps: ToolOrchestra, appendix "Data Synthesis".
"""

import json
import re
from collections.abc import Callable, Sequence
from string import Template
from typing import Annotated, Any

import json_repair
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from lib.tasks.synthesis.database import CallError, check
from lib.tasks.synthesis.domains import GUILD, Function, Records, TableSchema, TaskDomain
from lib.tasks.synthesis.filters import Dropped
from lib.tasks.synthesis.tasks import Source, Task
from lib.tasks.synthesis.verification import mentions
from lib.tasks.synthesis.writers import Draft

LONGEST = 20_000  # characters of a reply that are read
MALFORMED, INCONSISTENT, DOUBTED, UNFOUNDED, EASY = (
    "malformed",
    "inconsistent",
    "doubted",
    "unfounded",
    "not harder",
)

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


class _Written(BaseModel):
    model_config = ConfigDict(extra="forbid")

    instruction: Line
    calls: Annotated[
        tuple[Annotated[tuple[Line, ...], Field(min_length=1, max_length=3)], ...],
        Field(max_length=8),
    ]
    info: Annotated[tuple[Line, ...], Field(max_length=4)] = ()


class _Opinion(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    schema_: bool = Field(alias="schema")
    consistency: bool
    plausibility: bool


_TASK = """{"instruction": "what a user would ask, with every detail that is needed",
 "calls": [["function", "argument", "argument"]],
 "info": ["a value out of the replies that the user has to be told, if any"]}"""
SUBJECTS = Template("""A small database is wanted about: $topic.
Which $n subjects could such a database centre on? They should differ as much as possible.
Reply with a JSON list of short strings, and nothing else.""")
SCHEMA = Template("""Design the tables of a small database about: $topic.
It is to serve subjects such as: $subjects.
This is the schema of another database:
$example
Rules: at most 6 tables of at most 8 columns. A column is a "choice" among words, a "digit" 0 to 9, a "reference" to
the key of the table in "of", or a "name" that repeats the key. Keys and choices are single words.
Reply with a JSON list of tables in that form, and nothing else.""")
FUNCTIONS = Template("""An assistant works on a database about $topic with these tables:
$schema
These are functions on another database:
$example
Effects: get (parameters field, name), find (field, value), set (name, value; one column), add and take (name, or name
and field; digit columns), remove (name). The first function has the effect get and is called lookup.
Which functions would be used most here? Reply with a JSON list in that form, and nothing else.""")
RECORDS = Template("""These are the tables of a database about $topic:
$schema
Fill them with 4 to 8 records each, about: $subject. Every reference leads to a record that is there.
Reply with JSON, {"table": {"key": {"column": "value"}}}, all values as strings, and nothing else.""")
VALIDATION = Template("""Tables:
$schema
Records:
$records
Judge the records. schema: does each have the columns and kinds of value that its table asks for? consistency: where
one thing is said in two places, do they agree? plausibility: could this be so in the world?
Reply with JSON, {"schema": true, "consistency": true, "plausibility": true} or false where not, and nothing else.""")
INTENTS = Template("""An assistant for $topic can call these functions:
$functions
For which $n purposes would people turn to it? Name purposes that these functions can serve.
Reply with a JSON list of short strings, and nothing else.""")
TASK = Template("""An assistant for $topic can call these functions:
$functions
Its database:
$records
Write a task for the purpose: $intent. It has one right outcome, and the calls reach it on this database.
Reply with JSON in this form, and nothing else:
$form""")
EVOLVE = Template("""An assistant for $topic can call these functions:
$functions
Its database:
$records
A task that it can do already:
$task
Write a harder one that contains it: put a condition on it, reach a record through another, do or tell one thing more.
Reply with JSON in this form, and nothing else:
$form""")


class LLMWriter:
    """A writer that asks a language model.

    ask: from prompt to reply; where a call came to nothing it gives an empty text. Whatever it raises ends the
    synthesis. topics: what domains are wanted about; they name them. Raises ValueError for topics that cannot.
    """

    patience = 2

    def __init__(self, ask: Callable[[str], str], topics: Sequence[str]) -> None:
        self._ask = ask
        self._topics = {
            re.sub(r"[^a-z0-9]+", "_", topic.lower()).strip("_")[:24]: topic for topic in topics
        }
        if len(self._topics) < len(topics) or not all(name[:1].isalpha() for name in self._topics):
            raise ValueError(
                f"topics need different names that begin with a letter, got {list(topics)}"
            )
        self._subjects: dict[str, list[str]] = {}
        self.dropped: list[Dropped] = []

    def domains(self) -> list[TaskDomain]:
        """A domain for each topic that the model could give a schema and functions."""
        written = [self._domain(name, topic) for name, topic in self._topics.items()]
        return [domain for domain in written if domain is not None]

    def subjects(self, domain: TaskDomain, n: int, rng: np.random.Generator) -> list[str]:
        """Up to n subjects: those that the schema was made for, and more where they are too few."""
        known = self._subjects.get(domain.name, [])
        if len(known) < n:
            known = list(
                dict.fromkeys(known + self._listed("subjects", domain.name, SUBJECTS, n=n))
            )
        return known[:n]

    def records(self, domain: TaskDomain, subject: str, rng: np.random.Generator) -> Records | None:
        """Records on a subject that both the rules and the model itself find in order."""
        schema = _json_of([table.model_dump(exclude_defaults=True) for table in domain.tables])
        topic = self._topics[domain.name]
        answer = _read(self._ask(RECORDS.substitute(topic=topic, schema=schema, subject=subject)))
        try:
            records = _RECORDS.validate_python(_words(answer))
        except ValidationError as error:
            return self._drop("records", MALFORMED, domain.name, error)
        problems = check(domain, records)
        if problems:
            return self._drop("records", INCONSISTENT, domain.name, "; ".join(problems))
        answer = _read(self._ask(VALIDATION.substitute(schema=schema, records=_json_of(records))))
        try:
            opinion = _Opinion.model_validate(answer)
        except ValidationError as error:
            return self._drop("validation", MALFORMED, domain.name, error)
        doubts = [name for name, fine in opinion.model_dump(by_alias=True).items() if not fine]
        return (
            self._drop("validation", DOUBTED, domain.name, ", ".join(doubts)) if doubts else records
        )

    def intents(self, source: Source, n: int, rng: np.random.Generator) -> list[str]:
        """Up to n purposes that the functions can serve."""
        return self._listed(
            "intents", source.domain.name, INTENTS, n=n, functions=_functions(source.domain)
        )[:n]

    def task(self, source: Source, intent: str, rng: np.random.Generator) -> Draft | None:
        """A task for a purpose."""
        return self._draft("task", source, TASK, intent=intent)

    def evolve(self, source: Source, draft: Draft, rng: np.random.Generator) -> Draft | None:
        """A harder task; one that asks for the same, or with fewer calls, is none."""
        old = _json_of({"instruction": draft.instruction, "calls": draft.calls, "info": draft.info})
        harder = self._draft("evolve", source, EVOLVE, task=old)
        if harder and (
            harder.instruction == draft.instruction or len(harder.calls) < len(draft.calls)
        ):
            return self._drop("evolve", EASY, source.domain.name, harder.instruction)
        return harder

    def _domain(self, name: str, topic: str) -> TaskDomain | None:
        subjects = self._listed("subjects", name, SUBJECTS, n=10)
        self._subjects[name] = subjects
        example = _json_of([table.model_dump(exclude_defaults=True) for table in GUILD.tables])
        prompt = SCHEMA.substitute(
            topic=topic, subjects=", ".join(subjects) or topic, example=example
        )
        try:
            tables = _TABLES.validate_python(_read(self._ask(prompt)))
        except ValidationError as error:
            return self._drop("schema", MALFORMED, name, error)
        schema = _json_of([table.model_dump(exclude_defaults=True) for table in tables])
        prompt = FUNCTIONS.substitute(topic=topic, schema=schema, example=_functions(GUILD))
        domain: TaskDomain | None = None
        for answer in _items(_read(self._ask(prompt))):
            try:
                function = _FUNCTION.validate_python(answer)
                functions = (*(domain.functions if domain else ()), function)
                domain = TaskDomain(name=name, tables=tables, functions=functions)
            except ValidationError as error:
                self._drop("functions", MALFORMED, name, error)
        return domain or self._drop("schema", MALFORMED, name, "no function fits these tables")

    def _listed(self, step: str, name: str, prompt: Template, **parts: Any) -> list[str]:
        answer = _read(self._ask(prompt.substitute(topic=self._topics[name], **parts)))
        try:
            return list(dict.fromkeys(_LINES.validate_python(answer)))
        except ValidationError as error:
            self._drop(step, MALFORMED, name, error)
            return []

    def _draft(self, step: str, source: Source, prompt: Template, **parts: str) -> Draft | None:
        name = source.domain.name
        asked = prompt.substitute(
            topic=self._topics[name],
            functions=_functions(source.domain),
            records=_json_of(source.records),
            form=_TASK,
            **parts,
        )
        try:
            written = _Written.model_validate(_read(self._ask(asked)))
        except ValidationError as error:
            return self._drop(step, MALFORMED, name, error)
        draft = Draft(written.instruction, written.calls, written.info)
        if not _founded(source, draft):
            return self._drop(
                step,
                UNFOUNDED,
                name,
                f"{', '.join(draft.info)} is in no reply: {draft.instruction}",
            )
        return draft

    def _drop(self, step: str, reason: str, domain: str, detail: object) -> None:
        if isinstance(detail, ValidationError):
            first = detail.errors(include_url=False, include_input=False, include_context=False)[0]
            detail = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        said = str(detail).encode("utf-8", "replace").decode()  # a file takes no half characters
        self.dropped.append(Dropped(step, reason, domain, said[:200]))


def _read(reply: str) -> Any:
    """The JSON in a reply, repaired; None where there is none."""
    fenced = _FENCE.search(reply[:LONGEST])
    try:
        return json_repair.loads(fenced.group(1) if fenced else reply[:LONGEST])
    except (ValueError, RecursionError):
        return None


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _words(value: Any) -> Any:
    """Numbers as words, as records have them; all else as it is."""
    if isinstance(value, dict):
        return {key: _words(each) for key, each in value.items()}
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _json_of(value: Any) -> str:
    return json.dumps(value, indent=1, sort_keys=False, ensure_ascii=False)


def _functions(domain: TaskDomain) -> str:
    return _json_of([function.model_dump(exclude={"phrase"}) for function in domain.functions])


def _founded(source: Source, draft: Draft) -> bool:
    """Whether what has to be told is in the golden replies; calls that fail are for the filters to drop."""
    try:
        replies = Task("", source, "", draft.instruction, draft.calls, draft.info).golden.replies
    except CallError:
        return True
    return all(any(mentions(reply, told) for reply in replies) for told in draft.info)
