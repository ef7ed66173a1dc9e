"""Which model decides by pass@8 whether an office task can be solved: the strongest of those that are named.

ToolOrchestra, appendix "Data Synthesis", drops a task that no strong model solves in 8 tries. Strength is measured
here: every candidate tries the same few tasks once, prompted with function schemas, and the one that solves most
filters all. `python -m lib tasks make --solvers A,B` does so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from lib.experiment.evaluation import TEST_SEED
from lib.tasks.synthesis import Solver, Task
from lib.tool_orchestration import episode_specs, prompted_baseline
from lib.tool_orchestration.tool_environment import ToolEnvironment
from lib.tool_orchestration.tool_menu import Offer

PROBE_TASKS = 48  # that every candidate tries once
PROBE_ATTEMPT = 99  # its seeds are those of no attempt of the filter
TEMPERATURE = 1.0  # of solvers: tries at the same task have to differ


def make_prompted_solvers(
    environment: ToolEnvironment, office_offer: Offer, models: Sequence[str], max_turns: int
) -> dict[str, Solver]:
    """Make solvers out of prompted models.

    Args:
        environment: Executes tool calls; its pool has the models.
        office_offer: The price of the functions of an office, which prompts say.
        models: Names in llm.models.
        max_turns: Largest number of turns of a try.

    Returns:
        Solvers by name.
    """
    return {
        name: partial(solve_prompted, environment, office_offer, name, max_turns) for name in models
    }


def solve_prompted(
    environment: ToolEnvironment,
    office_offer: Offer,
    model: str,
    max_turns: int,
    tasks: Sequence[Task],
    attempt: int,
) -> list[bool]:
    """Let a prompted model try office tasks once, sampled.

    Args:
        environment: Executes tool calls; its pool has the model.
        office_offer: The price of the functions of an office.
        model: Its name in llm.models.
        max_turns: Largest number of turns of a try.
        tasks: Office tasks.
        attempt: Number of the try, which decides the random numbers.

    Returns:
        Whether each task was solved. A try that the infrastructure lost says nothing, so it counts as solved and drops
        no task.
    """
    assignments = [episode_specs.assign_office_task(task, office_offer) for task in tasks]
    episodes = prompted_baseline.roll_out_assignments(
        environment, model, assignments, max_turns, TEST_SEED - 1 - attempt, TEMPERATURE
    )
    return [episode.failed or episode.correct == 1.0 for episode in episodes]


def measure_solvers(solvers: Mapping[str, Solver], tasks: Sequence[Task]) -> dict[str, float]:
    """Measure the share of a few tasks that each solver solves in one try.

    Args:
        solvers: Solvers by name.
        tasks: Tasks, of which PROBE_TASKS are tried, evenly spread over the list and so over its domains.

    Returns:
        Shares by name, in the order of the solvers; 0 where there are no tasks.
    """
    # A corpus goes domain by domain; the first tasks would be of one domain.
    step = max(1, len(tasks) // PROBE_TASKS)
    probe = list(tasks[::step])[:PROBE_TASKS]
    if not probe:
        return dict.fromkeys(solvers, 0.0)

    rates = {}
    for name, solve in solvers.items():
        num_solved = sum(solve(probe, PROBE_ATTEMPT))
        rates[name] = num_solved / len(probe)
    return rates


def choose_strongest(rates: Mapping[str, float]) -> str:
    """Choose the solver that solves most tasks; of equal ones the first.

    Args:
        rates: Fraction of tasks solved, by the solver's name.

    Returns:
        Its name.

    Raises:
        ValueError: There is none.
    """
    if not rates:
        raise ValueError("no model can try the office tasks; name one of llm.models")
    return max(rates, key=lambda name: rates[name])
