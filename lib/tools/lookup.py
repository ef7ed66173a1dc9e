"""Lookup: one field of one record, by exact name. The records are handed in."""

from collections.abc import Iterable, Mapping

from lib.tools.tool import Tool, ToolError

_MAX_LISTED = 8  # names that an error or a description lists


def lookup(records: Mapping[str, Mapping[str, str]]) -> Tool:
    """Makes a tool that looks facts up.

    Args:
        records: By relation and subject, the fact as text.

    Returns:
        The tool; its call raises ToolError for a relation or subject that is not there.
    """

    def run(relation: str, subject: str) -> str:
        facts = _get_entry("relation", relation, records)
        return _get_entry(f"subject of {relation.strip()!r}", subject, facts)

    parameters = {
        "relation": {"type": "string", "description": f"what to look up: {_list_names(records)}"},
        "subject": {"type": "string", "description": "of whom or of what"},
    }
    return Tool("lookup", "Looks up one fact about a subject.", parameters, run)


def _get_entry(kind: str, name: str, entries: Mapping):
    """The entry of a name, blanks around it aside; kind: what the error calls it."""
    if name.strip() not in entries:
        raise ToolError(f"lookup knows no {kind} {name[:40]!r}; there are {_list_names(entries)}")
    return entries[name.strip()]


def _list_names(names: Iterable[str]) -> str:
    """The first names, and how many there are besides, so that an error stays short."""
    names = list(names)
    num_unlisted = len(names) - _MAX_LISTED
    suffix = f" and {num_unlisted} more" if num_unlisted > 0 else ""
    return ", ".join(names[:_MAX_LISTED]) + suffix
