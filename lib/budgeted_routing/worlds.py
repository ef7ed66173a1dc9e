"""The worlds of lesson 05: which experts there are, and which questions they are asked.

A controller, a small language model, answers a question itself or pays an expert to. What it can gain depends on the
experts:

    complementary   each expert is right on one kind of questions; prices differ by factors of 10
    ladder          the larger, more expensive expert is better everywhere: the paper's premise (CoRL, appendix A)
    two experts     the cheapest and the most expensive of the complementary experts (as CoRL, 4.3, has one expert)
"""

from lib.budgeted_routing.variants import VARIANTS, VARIANTS_BY_NAME
from lib.config import Params

COMPLEMENTARY = "complementary"
LADDER = "ladder"
TWO_EXPERTS = "two experts"
WORLDS = (COMPLEMENTARY, LADDER, TWO_EXPERTS)
# What is trained in each: budgets in words, in the first two also as numbers, and hard prompts in the first.
VARIANTS_BY_WORLD = {
    COMPLEMENTARY: VARIANTS,
    LADDER: (VARIANTS_BY_NAME["corl"], VARIANTS_BY_NAME["number"]),
    TWO_EXPERTS: (VARIANTS_BY_NAME["corl"],),
}


def select_world(params: Params, world: str) -> Params:
    """Settings in which `routing` has the experts, questions and seeds of a world.

    Args:
        params: All settings, as params.yaml has them.
        world: One of WORLDS.

    Returns:
        A copy. In all worlds but the complementary one, every variant has `routing.ablation_seeds` seeds.

    Raises:
        ValueError: There is no such world.
    """
    routing = params.routing
    if world == COMPLEMENTARY:
        return params
    if world == LADDER:
        changes = {"experts": routing.ladder.experts, "questions": routing.ladder.questions}
    elif world == TWO_EXPERTS:
        names = list(routing.experts)
        cheapest, most_expensive = names[0], names[-1]
        experts = {name: routing.experts[name] for name in (cheapest, most_expensive)}
        changes = {"experts": experts}
    else:
        raise ValueError(f"there is no world {world!r}; there are {', '.join(WORLDS)}")
    changes["seeds"] = min(routing.seeds, routing.ablation_seeds)
    return params.model_copy(update={"routing": routing.model_copy(update=changes)})
