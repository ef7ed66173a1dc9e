"""Words that several families share."""


def split_words(text: str) -> tuple[str, ...]:
    """Split a text into its words at white space."""
    return tuple(text.split())


PEOPLE = split_words("Ana Bo Cy Dee Eli Fay Gus Hal Ida Jon Kim Lea Max Nia Oto Pia")
DIGITS = tuple("0123456789")
PUNCTUATION = (".", ",", "?", ":", ";", "=")
