"""Databases and tasks made by hand, which the tests share."""

from lib.tasks.synthesis import DOMAINS, Source, Task

HARBOUR, TOWN, GUILD, STORE = DOMAINS
PEOPLE = {
    "Ana": {"job": "baker", "pet": "cat", "friend": "Bo"},
    "Bo": {"job": "miner", "pet": "dog", "friend": "Cy"},
    "Cy": {"job": "nurse", "pet": "cat", "friend": "Ana"},
}
SOURCE = Source(GUILD, {"people": PEOPLE})
THINGS = {
    "Ana": {"coins": "0", "pens": "2", "eggs": "9", "friend": "Bo"},
    "Bo": {"coins": "3", "pens": "0", "eggs": "1", "friend": "Ana"},
}
SHELF = Source(STORE, {"people": THINGS})


def task(
    *calls: str, info: str = "", source: Source = SOURCE, instruction: str = "draft ."
) -> Task:
    """A task with the calls as lines and the information as words."""
    return Task(
        "by-hand",
        source,
        "by hand",
        instruction,
        tuple(tuple(line.split()) for line in calls),
        tuple(info.split()),
    )
