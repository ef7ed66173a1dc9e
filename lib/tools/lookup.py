"""Lookup: one field of one record, by exact name. The records are handed in."""

from collections.abc import Iterable, Mapping

from lib.tools.tool import Tool, ToolError

_NAMED = 8  # names that an error lists


def lookup(records: Mapping[str, Mapping[str, str]]) -> Tool:
    """A tool for records[relation][subject]. Its call raises ToolError for a relation or subject that is not there."""

    def run(relation: str, subject: str) -> str:
        rows = _row("relation", relation, records)
        return _row(f"subject of {relation.strip()!r}", subject, rows)

    parameters = {
        "relation": {"type": "string", "description": f"what to look up: {_some(records)}"},
        "subject": {"type": "string", "description": "of whom or of what"},
    }
    return Tool("lookup", "Looks up one fact about a subject.", parameters, run)


def _row(what: str, name: str, rows: Mapping):
    if name.strip() not in rows:
        raise ToolError(f"lookup knows no {what} {name[:40]!r}; there are {_some(rows)}")
    return rows[name.strip()]


def _some(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
