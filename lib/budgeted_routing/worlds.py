"""The worlds of lesson 05: which experts there are, and which questions they are asked.

A controller, a small language model, answers a question itself or pays an expert to. What it can gain depends on the
experts:

    complementary   each expert is right on one kind of questions; prices differ by factors of 10
    ladder          the larger, more expensive expert is better everywhere: the paper's premise (CoRL, appendix A)
    two experts     the cheapest and the most expensive of the complementary experts (as CoRL, 4.3, has one expert)

Its appendix has one more, in which the query that the controller writes matters (g of CoRL, eq. 2):

    splitting       the cheap expert can do chains of up to four operations, and there are longer ones: asked for one
                    part after the other it is right on all, at a small part of the expensive expert's price
"""

from lib.budgeted_routing.variants import QUESTION_PASSED_ON, VARIANTS, VARIANTS_BY_NAME
from lib.config import Params

COMPLEMENTARY = "complementary"
LADDER = "ladder"
TWO_EXPERTS = "two experts"
SPLITTING = "splitting"
WORLDS = (COMPLEMENTARY, LADDER, TWO_EXPERTS)
SPLITTING_VARIANTS = (VARIANTS_BY_NAME["corl"], QUESTION_PASSED_ON)
# What is trained in each: budgets in words, in the first two also as numbers, and hard prompts in the first.
VARIANTS_BY_WORLD = {
    COMPLEMENTARY: VARIANTS,
    LADDER: (VARIANTS_BY_NAME["corl"], VARIANTS_BY_NAME["number"]),
    TWO_EXPERTS: (VARIANTS_BY_NAME["corl"],),
}
# Of these, what the lesson itself trains and shows; its appendix trains the rest.
LESSON_VARIANTS_BY_WORLD = {
    COMPLEMENTARY: (VARIANTS_BY_NAME["corl"], VARIANTS_BY_NAME["number"]),
    LADDER: (VARIANTS_BY_NAME["corl"], VARIANTS_BY_NAME["number"]),
}


def select_world(params: Params, world: str) -> Params:
    """Select the settings in which `routing` has the experts, questions and seeds of a world.

    Args:
        params: All settings, as params.yaml has them.
        world: One of WORLDS, or SPLITTING.

    Returns:
        A copy. In all worlds but the complementary one, every variant has `routing.ablation_seeds` seeds, and in the
        splitting one `routing.splitting_seeds`.

    Raises:
        ValueError: There is no such world.
    """
    routing = params.routing
    num_seeds = min(routing.seeds, routing.ablation_seeds)
    if world == COMPLEMENTARY:
        return params
    if world == LADDER:
        changes = {"experts": routing.ladder.experts, "questions": routing.ladder.questions}
    elif world == TWO_EXPERTS:
        names = list(routing.experts)
        cheapest, most_expensive = names[0], names[-1]
        experts = {name: routing.experts[name] for name in (cheapest, most_expensive)}
        changes = {"experts": experts}
    elif world == SPLITTING:
        fields = ("experts", "questions", "base", "warm", "calls_by_budget", "split_share")
        changes = {name: getattr(routing.splitting, name) for name in fields}
        num_seeds = routing.splitting_seeds
    else:
        known_worlds = ", ".join((*WORLDS, SPLITTING))
        raise ValueError(f"there is no world {world!r}; there are {known_worlds}")
    changes["seeds"] = num_seeds
    return params.model_copy(update={"routing": routing.model_copy(update=changes)})
