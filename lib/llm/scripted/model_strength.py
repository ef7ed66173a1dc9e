"""What tells the scripted models apart, and how they weigh evidence: decisions of ours, fitted to nothing."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Strength:
    """What tells the scripted models apart.

    Attributes:
        window: Characters from the end of the context that it can use; None for all.
        noise: Standard deviation of what it adds to every score; scores are mean results, about 0 to 1, or a judge's
            positions on its scale.
        malformed_rate: Fraction of JSON replies that it spoils, halved after each complaint.
        policies_tried: The fewest and the most policies that it looks at before it decides; None for as many as it may.
        uses_summary: Whether it uses an older summary.
    """

    window: int | None
    noise: float
    malformed_rate: float
    policies_tried: tuple[int, int] | None
    uses_summary: bool


STRENGTHS = {
    "scripted-small": Strength(
        window=1_500, noise=0.12, malformed_rate=0.12, policies_tried=(1, 2), uses_summary=False
    ),
    "scripted-medium": Strength(
        window=3_500, noise=0.04, malformed_rate=0.04, policies_tried=(2, 2), uses_summary=True
    ),
    "scripted-large": Strength(
        window=None, noise=0.01, malformed_rate=0.005, policies_tried=None, uses_summary=True
    ),
}

# How evidence is weighed. Decisions of ours, fitted to nothing.
UNKNOWN_IMPORTANCE = 1 / 3  # of an objective whose importance is out of sight: one of three
CARD_WEIGHT = 4.0  # steps of experience that a card counts as
SUMMARY_WEIGHT = 4.0  # steps that a policy's line in the summary counts as at the most
NEARBY_BONUS = 0.5  # for a policy whose goal is in view at distance 0, times the goal's importance
IDLE_PENALTY = (
    0.1  # for standing still without any reward, times the policy's fraction of those steps
)
EXPECTED_FRACTION = 0.5  # of the steps that an episode may still have, how many to expect
INVENTED = "best_policy"  # what is picked when no name can be seen
SUMMARY_WORDS = 150  # of a summary, at the most
