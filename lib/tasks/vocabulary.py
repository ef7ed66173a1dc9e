"""Words that several families share."""


def words(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


PEOPLE = (
    "Ana",
    "Bo",
    "Cy",
    "Dee",
    "Eli",
    "Fay",
    "Gus",
    "Hal",
    "Ida",
    "Jon",
    "Kim",
    "Lea",
    "Max",
    "Nia",
    "Oto",
    "Pia",
)
DIGITS = tuple("0123456789")
POINTS = (".", ",", "?", ":", ";", "=")
