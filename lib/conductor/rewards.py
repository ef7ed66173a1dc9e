"""The five rewards of MAESTRO, each in [0, 1] (appendix B).

    fmt   1 if the reply has the required parts and nothing else, else 0
    ppl   rank of -NLL(y* | x, y_think) = 1/|y*| log p(y* | x, y_think), in the group; 0 without a readable thought
    ent   rank of the mean entropy of the tokens, in the group
    len   1 up to l_min tokens, falling to 0 at l_max
    pref  score of a reward model trained on preferences, as a probability

`make_reward_functions` makes reward functions as TRL calls them: with the columns of a batch, each returns one number
per completion. `ppl` and `ent` return what is measured, in nats; `normalize_rewards` ranks them, once the rollouts of a
group are together. The measurements are `lib.conductor.policy_readout`'s.

Letters of shapes: B rollouts, K rewards.
"""

from collections.abc import Callable, Sequence

import torch

from lib.conductor.policy_readout import PolicyReadout
from lib.conductor.reply_format import get_completion_text, is_well_formed
from lib.config import RewardSettings

VERSION = 2  # of the five rewards and their normalisation
COMPONENTS = ("fmt", "ppl", "ent", "len", "pref")
RANKED = (
    "ppl",
    "ent",
    "judge",
)  # ranked within the group; of the judge's scores appendix F says so

RewardFunction = Callable[..., list[float]]


def compute_length_reward(num_tokens: int, min_length: int, max_length: int) -> float:
    """r_len: 1 up to `min_length` tokens, then linear to 0 at `max_length`."""
    # (n - l_min) / (l_max - l_min), below 0 for short replies and above 1 for long ones.
    fraction = (num_tokens - min_length) / (max_length - min_length)
    return min(1.0, max(0.0, 1 - fraction))


def rank_within_groups(values: torch.Tensor, group_size: int) -> torch.Tensor:
    """Rank values within their group and scale the ranks: the worst gets 0, the best 1.

    Equal values share the mean of their ranks; a group in which all are equal gets 1/2 throughout. What could not be
    measured (NaN) ranks below everything that was, and gets 0.

    Args:
        values: (B,) with the groups side by side.
        group_size: Rollouts of a group, G.

    Returns:
        (B,) ranks in [0, 1].

    Raises:
        ValueError: The values do not make groups of this size.
    """
    if group_size < 2 or len(values) % group_size:
        raise ValueError(
            f"{len(values)} values do not make groups of {group_size}, or the groups are too small"
        )
    grouped = values.view(-1, group_size)  # (groups, G)
    is_missing = grouped.isnan()
    # Below everything measured, and equal to one another.
    grouped = grouped.masked_fill(is_missing, -torch.inf)
    # Every value against every other of its group: (groups, G, G), summed over the last axis.
    num_below = (grouped[:, :, None] > grouped[:, None, :]).sum(-1)
    num_equal = (grouped[:, :, None] == grouped[:, None, :]).sum(-1) - 1  # without itself
    ranks = (num_below + 0.5 * num_equal) / (group_size - 1)
    return ranks.masked_fill(is_missing, 0.0).flatten().to(values.dtype)


def normalize_rewards(
    measured: torch.Tensor, names: Sequence[str], group_size: int
) -> torch.Tensor:
    """Make rewards in [0, 1] from what was measured: columns of RANKED become ranks within their group.

    Args:
        measured: (B, K) with the groups side by side.
        names: Names of the K rewards.
        group_size: Rollouts of a group.

    Returns:
        (B, K) rewards.
    """
    columns = []
    for name, column in zip(names, measured.unbind(1), strict=True):
        columns.append(rank_within_groups(column, group_size) if name in RANKED else column)
    return torch.stack(columns, 1)


def subtract_group_means(values: torch.Tensor, group_size: int) -> torch.Tensor:
    """Subtract from every value the mean of its group.

    Args:
        values: (B,) or (B, K) with the groups side by side.
        group_size: Rollouts of a group.

    Returns:
        The same shape.
    """
    grouped = values.view(-1, group_size, *values.shape[1:])
    # (groups, G) or (groups, G, K)
    centred = grouped - grouped.mean(1, keepdim=True)
    return centred.view_as(values)


def make_reward_functions(
    settings: RewardSettings,
    preference: RewardFunction,
    get_readout: Callable[[], PolicyReadout],
) -> dict[str, RewardFunction]:
    """Make the five as TRL's reward functions.

    Args:
        settings: Whether a thought is required; between which lengths r_len falls.
        preference: (prompts=, completions=) -> scores in [0, 1].
        get_readout: What the policy says of the batch that is scored.

    Returns:
        By name, in the order of COMPONENTS.
    """

    def score_format(completions, **_) -> list[float]:
        replies = map(get_completion_text, completions)
        return [float(is_well_formed(reply, settings.require_thought)) for reply in replies]

    # In nats; `normalize_rewards` ranks both within their group. The readout is asked for only when rewards are due.
    def measure_likelihood(**_) -> list[float]:
        return get_readout().likelihood.tolist()

    def measure_entropy(**_) -> list[float]:
        return get_readout().entropy.tolist()

    def score_length(completion_ids, **_) -> list[float]:
        lengths = map(len, completion_ids)
        limits = settings.min_length, settings.max_length
        return [compute_length_reward(length, *limits) for length in lengths]

    functions = dict(
        zip(
            COMPONENTS,
            (score_format, measure_likelihood, measure_entropy, score_length, preference),
            strict=True,
        )
    )
    for name, function in functions.items():
        if function is not preference:
            function.__name__ = name  # what TRL's logs call it
    return functions
