"""Exercises of the Conductor: the reward of an emphasis, its gradient, advantages, and a reward function."""

import torch

from lib.conductor import reply_format
from lib.rl import losses
from lib.teaching.exercises_by_lesson import Exercise, Exercises

SHORT, LONG = (
    "<think> 3 + 4 is 7 </think> <answer> 7 </answer>",
    "<think> 3 + 4 is 4 + 3 is 7 </think> <answer> 7 </answer>",
)
SLOPPY = ("7", "<answer> 7", "<answer> 7 </answer> <answer> 8 </answer>", "")


def terse(completions: list[str], **_) -> list[float]:
    """A format reward that is the higher the shorter the thought is, and 0 for a reply that is not well-formed."""
    rewards = []
    for text in completions:
        thought = reply_format.extract_thought(text) or ""
        rewards.append(reply_format.is_well_formed(text) / (1 + len(thought.split())))
    return rewards


def shorter(completions: list[str], **_) -> list[float]:
    """The mistake: any short reply is rewarded, and the empty one is the shortest."""
    return [1 / (1 + len(text.split())) for text in completions]


def _rewards_format_then_brevity(answer) -> bool | str:
    """Checks that malformed replies get reward 0, and that of two well-formed ones the shorter thought gets more.

    Args:
        answer: The student's solution, from completions and prompts to rewards.

    Returns:
        True, or what is wrong.
    """
    num_completions = 2 + len(SLOPPY)
    prompts = ["3 + 4 = ?"] * num_completions
    rewards = [*answer(completions=[SHORT, LONG, *SLOPPY], prompts=prompts)]
    if len(rewards) != num_completions:
        return f"{num_completions} completions need as many rewards, got {len(rewards)}"
    if not all(0 <= reward <= 1 for reward in rewards):
        return "a reward lies in [0, 1]"
    short, long, *sloppy = rewards
    for text, reward in zip(SLOPPY, sloppy, strict=True):
        if reward:
            return f"{text!r} is not well-formed and got a reward above 0"
    if short > long > 0:
        return True
    return "of two well-formed replies the one with the shorter thought gets more, and the other more than 0"


EXERCISES = Exercises(
    Exercise(
        "04.1",
        "easy",
        3,
        r"A group has five replies. All have the format ($r_\text{fmt} = 1$), and their ranks of `ppl` are 0, ¼, ½, ¾ "
        "and 1. The weights are one-hot: a reply gets the reward of its emphasis and no other. What is the expected "
        "reward of a reply with the emphasis `fmt`, minus that of a reply with the emphasis `ppl`?",
        nudge="one of the two rewards is the same for every reply",
        hint="what is the mean of the ranks?",
        answer=0.5,
        worked="Every reply gets 1 for the format, and the ranks have a mean of one half. So the emphasis on a reward "
        "that all replies get has the higher expected reward.",
        wrong=0.0,
        important=True,
    ),
    Exercise(
        "04.2",
        "medium",
        5,
        "Suppose that all five replies to a prompt share one emphasis $a$ and one hidden state $h$ (the *homogeneous* "
        r"mode). Their advantages $A_j$ sum to 0. The update of the Conductor adds up the terms "
        r"$A_j \nabla \log \pi(a \mid h)$ of the five replies. What is the sum?",
        nudge="what differs between the five terms, and what does not?",
        hint="take the common factor out of the sum",
        answer=0.0,
        worked="The gradient is the same for all five, so it is multiplied by the sum of the advantages, which is 0.",
        wrong=1.0,
    ),
    Exercise(
        "04.3",
        "medium",
        6,
        "The replies of a group have the rewards 1, 0, 0, 0, 0. What is the advantage of the first reply, its distance "
        "from the group's mean in standard deviations of the sample (over n - 1)? "
        "`lib.rl.losses.compute_group_advantages(torch.tensor([1.0, 0, 0, 0, 0]), 5)` shows all five. Try the rewards "
        "1, 1, 1, 1, 0 there too, and see which reply has the largest advantage in size.",
        nudge="first the mean of the group, then the sample's deviation",
        hint="squared distances from the mean of 0.2 are 0.64 once and 0.04 four times",
        answer=float(losses.compute_group_advantages(torch.tensor([1.0, 0, 0, 0, 0]), 5)[0]),
        worked="0.8 / 0.447 = 1.79, and -0.45 for the others. Turned round, the one failure gets -1.79: a rare "
        "outcome moves a policy most, and a group in which all are equal not at all.",
        wrong=0.8,
        important=True,
        tolerance=0.01,
    ),
    Exercise(
        "04.4",
        "hard",
        15,
        "Write a reward function as TRL calls it: `f(completions, **others)` returns one number in [0, 1] for each "
        "completion, which is a plain string here. A reply that is not well-formed gets 0; "
        "`lib.conductor.reply_format.is_well_formed` decides this. Every well-formed reply gets more than 0, and "
        "the one with the shorter thought gets more.",
        nudge="two conditions: one decides whether a reply is paid at all, the other how much",
        hint="multiply the format by something that falls with the thought's length; what would an empty reply get?",
        answer=terse,
        worked="A reward for brevity alone is highest for the empty reply. As a factor of the format reward it cannot "
        "be gamed that way.",
        wrong=shorter,
        judge=_rewards_format_then_brevity,
        start="answer = None  # a function of completions and **others",
    ),
)
check = EXERCISES.check
