"""The lab world: tools from measured cards, the models behind them, and the menus that all methods are tested on.

    with open_lab_world(context, settings) as world:
        assignments = world.draw_menus("test", 120)

Test menus are the same for all seeds and methods, so that differences are taken inside pairs. Tools that are held out
are on no menu but those of HELD_OUT_MENUS.

Left out: training (`lab_training`) and what is measured on the menus (`lab_tests`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lib.config import LLMSettings
from lib.config.budgeted_routing import LabWorldSettings
from lib.experiment import sweep
from lib.experiment.run_context import RunContext
from lib.language_models.local_models import open_local
from lib.language_models.training import model_cards
from lib.llm.open_models import open_models
from lib.rl.expert_pool import ExpertPool
from lib.tool_orchestration.lab_episodes import LabMenuEnvironment
from lib.tool_orchestration.lab_menus import LabAssignment, LabTool, make_lab_tool
from lib.tool_orchestration.lab_training import draw_assignments

VERSION = 1  # of the menus that all methods are tested on
NAME = "lab world"
TOOL_TEMPERATURE = 1.0  # of the models that are tools

# Sets of menus: two splits of questions, those for steering, and those with tools that training never had.
DEV_MENUS = "dev"
TEST_MENUS = "test"
STEERING_MENUS = "steering of users"
HELD_OUT_MENUS = "held out"


@dataclass(frozen=True)
class LabWorld:
    """The tools of the lab world, and the environment that calls them.

    Attributes:
        tools: All tools, those that are held out of training among them.
        held_out: Names of the tools that are on no menu in training.
        environment: Answers calls to tools.
    """

    tools: tuple[LabTool, ...]
    held_out: tuple[str, ...]
    environment: LabMenuEnvironment

    @property
    def training_tools(self) -> list[LabTool]:
        """The tools that may be on menus in training."""
        return [tool for tool in self.tools if tool.name not in self.held_out]

    def draw_menus(self, name: str, num_menus: int) -> list[LabAssignment]:
        """Draw a set of menus by its name, always the same one (`lab_world.draw_menus`)."""
        return draw_menus(name, num_menus, self.tools, self.held_out)


def draw_menus(
    name: str, num_menus: int, tools: Sequence[LabTool], held_out: Sequence[str]
) -> list[LabAssignment]:
    """Draw a set of menus, which is the same whenever it is drawn.

    Args:
        name: DEV_MENUS, TEST_MENUS, STEERING_MENUS or HELD_OUT_MENUS.
        num_menus: Number of menus that are drawn; of HELD_OUT_MENUS those without a held-out tool are then left out.
        tools: All tools.
        held_out: Names of the tools that are on no menu in training.

    Returns:
        Questions with menus and users.
    """
    split = "dev" if name == DEV_MENUS else "test"
    if name != HELD_OUT_MENUS:
        training_tools = [tool for tool in tools if tool.name not in held_out]
        return draw_assignments(num_menus, split, training_tools, name, seed=0)
    assignments = draw_assignments(num_menus, split, tools, name, seed=0)
    return [assignment for assignment in assignments if has_any_tool(assignment, held_out)]


def has_any_tool(assignment: LabAssignment, names: Sequence[str]) -> bool:
    """Return whether any of the named tools is on the menu."""
    return any(entry.tool.name in names for entry in assignment.entries)


def read_tools(llm: LLMSettings, names: Sequence[str], models: str) -> tuple[LabTool, ...]:
    """Make the tools from the measured cards of lab models.

    Args:
        llm: Settings of the models.
        names: Names of the tools, which are keys of `llm.models`.
        models: Folder of the lab models.

    Returns:
        The tools in the order of the names.
    """
    folders = [llm.models[name].model or name for name in names]
    tools = read_tools_from_folders(folders, models)
    return tuple(replace(tool, name=name) for tool, name in zip(tools, names, strict=True))


def read_tools_from_folders(folders: Sequence[str], models: str) -> tuple[LabTool, ...]:
    """Make a tool of the card in each folder of a lab model, with the folder's name."""
    return tuple(make_lab_tool(name, model_cards.read_card(name, models)) for name in folders)


@contextmanager
def open_lab_world(context: RunContext, settings: LabWorldSettings) -> Iterator[LabWorld]:
    """Load the small language models that are tools, and offer them as an environment.

    Args:
        context: Folders of models and runs, settings of the models, number of processes.
        settings: Names of the models that are tools, and of those that are held out of training.

    Yields:
        The world. Its models are closed when the context ends.
    """
    models = open_models(
        context.llm,
        settings.models,
        NAME,
        context.runs,
        context.cassettes,
        sweep.count_workers(context.workers),
        open_local(context.models),
    )
    names = {name: name for name in settings.models}  # an expert is called by the model's own name
    with ExpertPool(models, names, TOOL_TEMPERATURE) as pool:
        tools = read_tools(context.llm, settings.models, context.models)
        yield LabWorld(tools, tuple(settings.held_out), LabMenuEnvironment(pool))
