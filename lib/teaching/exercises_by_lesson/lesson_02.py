"""Exercises of the orchestration: what asking costs, what looking ahead promises, and a decider of one's own."""

import math
from pathlib import Path

from lib.config import Params
from lib.llm import cost_ledger
from lib.orchestration import baselines, prompted_experiment
from lib.orchestration.decisions import Decision, OrchestrationEpisode
from lib.teaching.exercises_by_lesson import Exercise, Exercises

CLAUDE = cost_ledger.PRICES["Claude 3.7 Sonnet"]


class FailedFirst:
    """Failed questions are asked again until none is open, then it goes on to what is hard."""

    async def decide(self, episode: OrchestrationEpisode) -> Decision:
        return Decision("SO-d2" if episode.world.facts()["open_failed"] else "SO-d1")


def _needs_fewer_steps(answer, settings: Params, zoo: str | Path | None = None) -> bool | str:
    """Checks that episodes end earlier than with random decisions."""
    length = prompted_experiment.try_out(settings, "education", answer, zoo)
    random_length = prompted_experiment.try_out(settings, "education", baselines.Random(), zoo)
    if length < random_length:
        return True
    return f"{length:.1f} steps, random needs {random_length:.1f}"


EXERCISES = Exercises(
    Exercise(
        "02.1",
        "easy",
        5,
        "RO, `scripted-large`: 20 decisions a run, two replies each, 700 tokens in and 60 out per reply, at Claude's "
        "price of Table 8. Dollars per run?",
        hint="40 replies, each with its tokens in and out",
        answer=cost_ledger.llm_cost(40, 700, 60, CLAUDE),
        worked="40 x (700 x 3e-6 + 60 x 15e-6): the look-ahead doubles the bill, because its result is a second reply.",
        wrong=cost_ledger.llm_cost(20, 700, 60, CLAUDE),
        important=True,
        tolerance=0.001,
    ),
    Exercise(
        "02.2",
        "medium",
        10,
        "How many decisions of an episode of 30 steps can KO pay for, with \\$0.03 and 1,100 tokens in and 50 out per "
        "reply, at the same price?",
        hint="what is left after the last affordable one pays for no other",
        answer=int(0.03 / cost_ledger.llm_cost(1, 1_100, 50, CLAUDE)),
        worked="A reply costs 0.00405 dollars. Seven cost 0.02835, and 0.00165 is left over: a hard stop rounds down.",
        wrong=0.03 / cost_ledger.llm_cost(1, 1_100, 50, CLAUDE),
    ),
    Exercise(
        "02.3",
        "medium",
        8,
        "Two policies are equally good. A look-ahead on fresh random numbers shows each of them a number from a "
        "standard normal distribution, and you pick the higher one. What do you expect of the number that you picked, "
        "and what will the step really bring above the mean? Answer with a pair; a few lines of NumPy will do.",
        hint="np.random.default_rng().normal(size=(100_000, 2)).max(axis=1).mean(), and nothing of it is real",
        answer=(1 / math.sqrt(math.pi), 0.0),
        worked="The larger of two standard normals has the mean 1 / sqrt(pi). None of it comes true: with fresh "
        "numbers the choice is as good as a coin. Had the look-ahead shared the environment's numbers, all of it "
        "would.",
        wrong=(0.0, 0.0),
        important=True,
        tolerance=0.02,
    ),
    Exercise(
        "02.4",
        "hard",
        20,
        "Write a decider that needs fewer steps than *random* on the students of this lesson: a class with `async def "
        "decide(self, episode)` that returns `Decision(name)`, from `lib.orchestration.decisions`. Names are SO-d1 "
        "(aptitude), SO-d2 (gap), SO-d3 (performance); `episode.world.facts()` is the state; "
        "`lib.orchestration.baselines` has examples. Your decider plays the same students as everybody above.",
        hint="look at open_failed: what has been failed must be answered before what is hard pays off",
        answer=FailedFirst(),
        worked="A failed question may come back, so that reviewing it is a sure way up. With nothing open, aim high.",
        wrong=baselines.RoundRobin(),
        judge=_needs_fewer_steps,
        needs=("settings",),
        start="answer = None  # your decider, such as controls.RoundRobin()",
    ),
)
check = EXERCISES.check
