"""What tells the stand-ins apart, and how they weigh evidence: decisions of ours, fitted to nothing."""

from dataclasses import dataclass

import numpy as np

Draw = np.random.Generator


@dataclass(frozen=True)
class Strength:
    """What tells the stand-ins apart.

    window: characters from the end of the context that it can use, None for all; noise: standard
    deviation of what it adds to every score (scores are mean rewards, about 0 to 1); breaks: share of
    JSON replies that it spoils (halved after each complaint); tries: fewest and most policies that it
    looks at before it decides, None for as many as it may; recalls: whether it uses an older summary.
    """

    window: int | None
    noise: float
    breaks: float
    tries: tuple[int, int] | None
    recalls: bool


STRENGTHS = {
    "scripted-small": Strength(window=1_500, noise=0.12, breaks=0.12, tries=(1, 2), recalls=False),
    "scripted-medium": Strength(window=3_500, noise=0.04, breaks=0.04, tries=(2, 2), recalls=True),
    "scripted-large": Strength(window=None, noise=0.01, breaks=0.005, tries=None, recalls=True),
}

# How evidence is weighed. Decisions of ours, fitted to nothing.
ALIKE = 1 / 3  # importance of an objective whose own is out of sight: one of three
CARD = 4.0  # steps of one's own that a card is worth
MEMORY = 4.0  # steps that a policy's line in the summary is worth at the most
NEARBY = 0.5  # what a thing in view at no distance adds for the policy trained for it, times its importance
STALE = 0.1  # what standing still without any reward takes from the policies that did it
SHARE_OF_REST = 0.5  # of the steps that an episode may still have, how many to expect
INVENTED = "best_policy"  # what is picked when no name can be seen
WORDS = 150  # of a summary, at the most
