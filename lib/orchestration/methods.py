"""The methods that are compared in a world (an environment and a kind of query): single policies, baselines, the
paper's systems, and an upper bound.

A method is a decision model, which picks the policy that acts next, and the context that the model gets to read. The
three systems are contexts: KO reads policy cards, TO may try policies on copies of the environment for one step, RO
for several. Policies are SO-d1, SO-d2 and SO-d3, each trained for one objective alone (`SINGLE`), and references,
which were trained for several objectives at once.
"""

from dataclasses import dataclass, replace

from lib.experiment.harness import JobRun
from lib.orchestration.baseline_models import (
    ConstantModel,
    GreedyModel,
    LinUCBModel,
    PlanModel,
    RandomModel,
    RoundRobinModel,
)
from lib.orchestration.contexts import SYSTEMS
from lib.orchestration.decision_model import DecisionModel
from lib.orchestration.system_options import SystemOptions
from lib.orchestration.training_episodes import collect_training_contexts
from lib.orchestration.worlds import World
from lib.policy_zoo.recipes import REFERENCES, SINGLE

BEST_POLICY = "best policy"
UPPER_BOUND = "plan ahead"
ORACLE = "oracle"  # in hindsight; `experiment.add_oracle` adds it to the rows of all methods
# What is appended to a method's name, by the components that its context lacks.
NAMES_OF_VARIANTS = {
    (): "",
    ("mem_s",): ", no short-term",
    ("mem_l",): ", no long-term",
    ("mem_s", "mem_l"): ", no memory",
}


@dataclass(frozen=True)
class Method:
    """A row of the results tables: who decides, and with what context.

    Attributes:
        name: Name of the method in tables.
        model: The model that decides which policy acts.
        options: The context that the model gets.
        role: expert, constant, router, paper (its references) or oracle, as in `lib.experiment.results_table`.
        num_copies: Copies of the environment on which policies are tried, where it differs from the settings.
    """

    name: str
    model: DecisionModel
    options: SystemOptions
    role: str
    num_copies: int | None = None


def list_methods_of_job(world: World, run: JobRun) -> list[Method]:
    """List the methods that play in a job: decision models, each with what it may read and try.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        world: The episodes of the job, and what is known of its policies.
        run: The job; its kind says whether all methods play ("contest"), a prompted chat model as KO, TO and RO, or one
            whose replies are constrained as one of them.

    Returns:
        The methods.
    """
    if run.kind == "contest":
        return list_methods(world)
    if run.kind == "prompted model":
        return list_prompted_methods(world)
    # A constrained model decides as one system, and only every few steps.
    system = run.settings["system"]
    options = world.make_options(system, interval=run.settings["interval"])
    return [Method(f"{system} {world.model.name}", world.model, options, "router")]


def list_methods(world: World) -> list[Method]:
    """List every method that is compared in a world except prompted models, in the order of the tables.

    A method is a decision model, which picks the policy that acts next, with what it may read and try.

    Args:
        world: The environment, the kind of query, the policies and the decision model.

    Returns:
        The methods.
    """
    baseline_options = world.make_options()
    return [
        *_list_single_policies(world),
        # Baselines that read nothing, and LinUCB.
        Method("random", RandomModel(), baseline_options, "constant"),
        Method("round-robin", RoundRobinModel(), baseline_options, "constant"),
        Method("LinUCB", _train_linucb(world), baseline_options, "router"),
        *_list_systems(world),
        *_list_variants(world),
        Method(UPPER_BOUND, _make_planning_model(world), baseline_options, "oracle"),
    ]


def list_prompted_methods(world: World) -> list[Method]:
    """List KO, TO and RO with the world's prompted chat model, in every variant of the context.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        world: The world; its field `without` holds the variants, each a list of context components that are left out.

    Returns:
        A method for each variant and system.
    """
    methods = []
    for components in world.without:
        missing = tuple(components)
        for system in SYSTEMS:
            options = world.make_options(system, without=missing)
            name = f"{system} {world.model.name}{NAMES_OF_VARIANTS[missing]}"
            methods.append(Method(name, world.model, options, "router"))
    return methods


def _list_single_policies(world: World) -> list[Method]:
    """List the methods in which one policy acts in every step: SO-d1 to SO-d3, the best of them, and references.

    The best policy is the one with the highest mean utility on training episodes.

    Args:
        world: The episodes, and the policies to choose from.

    Returns:
        The methods.
    """
    baseline_options = world.make_options()
    methods = [Method(name, ConstantModel(name), baseline_options, "expert") for name in SINGLE]

    utilities = {}
    for name in SINGLE:
        played_episodes = world.play(
            world.episode_sets["dev"], ConstantModel(name), baseline_options
        )
        utilities[name] = played_episodes.episodes["reward"].mean()
    best_policy = max(utilities, key=utilities.get)
    methods.append(Method(BEST_POLICY, ConstantModel(best_policy), baseline_options, "constant"))

    if world.name != "varied":
        for name in REFERENCES[world.domain]:
            options = replace(baseline_options, policies=(name,), fallback=name)
            methods.append(Method(name, ConstantModel(name), options, "paper"))
    return methods


def _train_linucb(world: World) -> LinUCBModel:
    """LinUCB (a linear contextual bandit), fitted on the training episodes of a world.

    Random choice of policies plays them; in every state that it reaches, all policies are tried on copies.
    """
    contexts = collect_training_contexts(world.episode_sets["linucb"], world.settings.lookahead)
    return LinUCBModel(contexts)


def _list_systems(world: World) -> list[Method]:
    """List KO, TO and RO with two decision models: arithmetic (the best weighted result) and the world's model.

    KO (knowledge-based orchestration) reads descriptions of the policies; TO (tool-based) tries them for one step on
    copies of the environment, RO (reflection-based) for several.

    Args:
        world: The episodes, and its decision model.

    Returns:
        The methods; RO occurs a second time with a single copy, to see what averaging over copies gains.
    """
    methods = []
    for model in (GreedyModel(), world.model):
        for system in SYSTEMS:
            options = world.make_options(system)
            methods.append(Method(f"{system} {model.name}", model, options, "router"))
        one_copy = f"RO {model.name}, one copy"
        methods.append(Method(one_copy, model, world.make_options("RO"), "router", num_copies=1))
    return methods


def _list_variants(world: World) -> list[Method]:
    """List the variants of KO, TO and RO that a world compares.

    Without short-term memory in the paper's worlds, with other depths of the look-ahead for students, and with fewer
    decisions in the varied worlds.

    Args:
        world: The episodes, and its decision model.

    Returns:
        The methods.
    """
    settings = world.settings
    model = world.model
    methods = []
    if world.name == "paper":
        for system in SYSTEMS:
            options = world.make_options(system, without=("mem_s",))
            name = f"{system} {model.name}{NAMES_OF_VARIANTS['mem_s',]}"
            methods.append(Method(name, model, options, "router"))
    if world.name != "varied" and world.domain == "education":
        for depth_model in (GreedyModel(), model):
            for depth in settings.lookahead_depths:
                options = world.make_options("RO", rollout_steps=depth)
                name = f"RO {depth_model.name}, {depth} steps"
                methods.append(Method(name, depth_model, options, "router"))
    if world.name == "varied":
        for system in ("KO", "RO"):
            for interval in settings.decision_intervals:
                options = world.make_options(system, interval=interval)
                name = f"{system} {model.name}, every {interval}"
                methods.append(Method(name, model, options, "router"))
    return methods


def _make_planning_model(world: World) -> PlanModel:
    """Make the upper bound: a decision model that tries plans on copies of the environment and follows the best one.

    A plan is a policy for every coming step: one policy throughout, or one that hands over to another after some steps.
    Plans look further ahead than KO, TO and RO may, so their utility bounds what choosing among policies can gain.

    Args:
        world: Gives the length of a plan, and the steps after which it may hand over.

    Returns:
        A model that decides by the values of all plans of the policies SO-d1 to SO-d3.
    """
    num_steps = world.upper_bound["steps"]
    handover_steps = world.upper_bound["handovers"]
    if (world.domain, world.name) == ("minigrid", "paper"):
        # Episodes of the paper's room are long: plans to their end would take too much computation.
        num_steps = 2 * world.settings.lookahead
        handover_steps = [world.settings.lookahead]
    num_steps = min(num_steps, world.test.describer.horizon)
    return PlanModel(num_steps, handover_steps, num_policies=len(SINGLE))
