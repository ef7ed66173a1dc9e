"""The one kind of mistake that the claims' file can hold."""


class ClaimError(ValueError):
    """A mistake in the file of claims; the message names the claim, what is wrong and what would be right."""
