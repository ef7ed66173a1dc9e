"""Which model decides by pass@8 whether an office task can be solved: the strongest of those that there are.

ToolOrchestra, appendix "Data Synthesis", drops a task that no strong model solves in 8 tries. Strength is measured
here: every model that `tools.solvers` names tries the same few tasks once, prompted with function schemas, and the one
that solves most filters all. On a laptop that is the lab model lab-agent (58 % of 48 training tasks in one try;
lab-caller solves 56 %, lab-team-large 48 %); with an endpoint in `tools.solvers` it is that, if it is stronger. The
choice and all measured shares are kept beside the tasks.

The orchestrator before training filters only where no model is named. It was taught golden calls of the very tasks: it
solves 88 % of them in one try and 17 % of new ones (lab-agent: 15 %), so what it solves says little of a task.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from lib.experiment import seeds
from lib.experiment.evaluation import TEST_SEED
from lib.tasks.synthesis import Solver, Task
from lib.tool_orchestration import episode_specs, prompted_baseline
from lib.tool_orchestration.tool_menu import list_training_tools

if TYPE_CHECKING:
    from lib.tool_orchestration.tool_environment import ToolWorkbench

VERSION = 1  # of who filters office tasks
PROBE_TASKS = 48  # that every candidate tries once
PROBE_ATTEMPT = 99  # its seeds are those of no attempt of the filter


def make_prompted_solvers(workbench: ToolWorkbench) -> dict[str, Solver]:
    """Solvers out of the models that `tools.solvers` names, by name."""
    return {name: partial(solve_prompted, workbench, name) for name in workbench.settings.solvers}


def solve_prompted(
    workbench: ToolWorkbench, model: str, tasks: Sequence[Task], attempt: int
) -> list[bool]:
    """One sampled try of a prompted model at office tasks.

    Args:
        workbench: The tools at work; its pool holds the model too.
        model: Its name in llm.models.
        tasks: What is to be done.
        attempt: Number of the try, which decides menus and random numbers.

    Returns:
        Whether each task was solved. A try that the infrastructure lost says nothing, so it counts as solved and drops
        no task.
    """
    settings = workbench.settings
    rng = seeds.rng("toolorchestra", "tries", seed=attempt)
    assignments = episode_specs.draw_assignments(
        tasks, workbench.offers, list_training_tools(settings), settings.spread, rng
    )
    episodes = prompted_baseline.roll_out_assignments(
        workbench.environment,
        model,
        assignments,
        settings.rounds,
        TEST_SEED - 1 - attempt,
        settings.temperature,
    )
    return [episode.failed or episode.correct == 1.0 for episode in episodes]


def measure_solvers(solvers: Mapping[str, Solver], tasks: Sequence[Task]) -> dict[str, float]:
    """The share of a few tasks that each solver solves in one try.

    Args:
        solvers: By name.
        tasks: Of which PROBE_TASKS are tried, evenly spread over the list and so over its domains.

    Returns:
        Shares by name, in the order of the solvers; 0 where there are no tasks.
    """
    # A corpus goes domain by domain; the first tasks would be of one domain.
    step = max(1, len(tasks) // PROBE_TASKS)
    probe = list(tasks[::step])[:PROBE_TASKS]
    rates = {}
    for name, solve in solvers.items():
        solved = solve(probe, PROBE_ATTEMPT)
        rates[name] = sum(solved) / len(probe) if probe else 0.0
    return rates


def choose_strongest(rates: Mapping[str, float]) -> str:
    """The name with the highest share; of equal ones the first.

    Raises:
        ValueError: There is none.
    """
    if not rates:
        raise ValueError("no model can try the office tasks; name one in tools.solvers")
    return max(rates, key=lambda name: rates[name])
