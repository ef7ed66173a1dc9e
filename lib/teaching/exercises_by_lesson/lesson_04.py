"""Exercises of the Conductor: what ranks pay, what a gradient needs, and a reward function of one's own."""

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
    """A form reward that is the higher the shorter the thought is, and 0 without the form."""
    rewards = []
    for text in completions:
        thought = reply_format.extract_thought(text) or ""
        rewards.append(reply_format.is_well_formed(text) / (1 + len(thought.split())))
    return rewards


def shorter(completions: list[str], **_) -> list[float]:
    """The mistake: whatever is short is paid, and nothing is shortest."""
    return [1 / (1 + len(text.split())) for text in completions]


def _pays_form_then_brevity(answer) -> bool | str:
    """Checks that replies without the form get 0, and of two in form the shorter thought gets more."""
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
            return f"{text!r} has not the form and was paid"
    if short > long > 0:
        return True
    return "of two replies in form, the one that thinks shorter is paid more, the other a little"


EXERCISES = Exercises(
    Exercise(
        "04.1",
        "easy",
        3,
        r"Five rollouts; all have the format ($r_\text{fmt} = 1$), and `ppl` ranks are 0, ¼, ½, ¾, 1. Weights are "
        "one-hot. What is the expected reward of a rollout that draws `fmt`, minus that of one that draws `ppl`?",
        hint="what is the mean of the ranks?",
        answer=0.5,
        worked="Everybody gets 1 for the format; ranks average one half. Drawing what all have pays.",
        wrong=0.0,
        important=True,
    ),
    Exercise(
        "04.2",
        "medium",
        5,
        "In homogeneous mode all five rollouts of a prompt have one action $a$, one context $h$, and advantages that "
        "sum "
        r"to 0. What is the sum of their REINFORCE terms $A_j \nabla \log \pi(a \mid h)$?",
        hint="take the common factor out of the sum",
        answer=0.0,
        worked="The gradient is the same for all five, so it is multiplied by the sum of the advantages, which is 0.",
        wrong=1.0,
    ),
    Exercise(
        "04.3",
        "medium",
        6,
        "Rewards of a group are 1, 0, 0, 0, 0. What is the advantage of the first rollout (mean and standard "
        "deviation of the group, the latter with n - 1)? Now make it 1, 1, 1, 1, 0 and see who stands out. "
        "`lib.rl.losses.compute_group_advantages(torch.tensor(...), 5)` computes it.",
        hint="(1 - 0.2) / sqrt(0.8 / 4)",
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
        "Write a reward function as TRL calls them: `f(completions, **others)` returns one number in [0, 1] per "
        "completion (plain strings here). A reply without the form gets 0 "
        "(`lib.conductor.reply_format.is_well_formed` "
        "knows it); of two in form the one with the shorter thought is paid more, and both something.",
        hint="multiply the form by something that falls with the thought's length; what would an empty reply get?",
        answer=terse,
        worked="Brevity alone pays the empty reply most. As a factor behind the form it cannot be gamed that way.",
        wrong=shorter,
        judge=_pays_form_then_brevity,
        start="answer = None  # a function of completions and **others",
    ),
)
check = EXERCISES.check
