"""What ARC chooses from: nine workflows, a set of tools for each of two agents, a budget for each of three.

A structure is six whole numbers in the order of `DIMENSIONS`. Tools are a number whose bits say which of `TOOLS`
an agent may call; 0 is none. Three workflows have no second agent: their `tools2` and `budget2` are pinned to 0 by
the mask, since whatever stood there would change nothing (ARC, 3.2 "Action Masking").
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from lib.experiment import artifacts

VERSION = 1  # of the configurations that there are
WORKFLOWS = (  # ARC, appendix A, by number
    "direct", "reason", "verify", "routing", "sectioning", "voting", "orchestrator", "evaluator", "autonomous",
)  # fmt: skip
TOOLS = ("calculator", "search", "lookup", "python")
AGENTS = (
    "reasoner",
    "verifier",
    "answerer",
)  # first, second and third agent, by what they are in "verify"
TIERS = ("low", "medium", "high")
SUBSETS = 2 ** len(TOOLS)
MAX_ATOMS = 3  # of one agent (decision of the bench; ARC leaves it open)

DIMENSIONS = {
    "workflow": len(WORKFLOWS),
    "tools1": SUBSETS,
    "tools2": SUBSETS,
    "budget1": len(TIERS),
    "budget2": len(TIERS),
    "budget3": len(TIERS),
}
SIZES = tuple(DIMENSIONS.values())
SINGLE = ("direct", "reason", "voting")  # workflows 0, 1 and 5: no second agent
_PINNED = ("tools2", "budget2")

Structure = tuple[int, int, int, int, int, int]


class SpaceError(ValueError):
    """A structure that is none; names the dimension, the value and what is allowed."""


@dataclass(frozen=True)
class Configuration:
    """What is chosen for one question.

    Attributes:
        structure: Workflow, tools and budgets, in the order of `DIMENSIONS`.
        atoms: For each agent the names of the atoms in its prompt.
    """

    structure: Structure
    atoms: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]] = ((), (), ())

    def __post_init__(self) -> None:
        check_structure(self.structure)

    @property
    def workflow(self) -> str:
        return WORKFLOWS[self.structure[0]]

    def tools(self, agent: int) -> tuple[str, ...]:
        """Names of the tools that an agent (0, 1 or 2) may call; the answerer has none."""
        return list_tools(self.structure[1 + agent]) if agent < 2 else ()

    def tier(self, agent: int) -> int:
        """The agent's budget: 0 (low) to 2 (high)."""
        return self.structure[3 + agent]

    @property
    def allocated(self) -> int:
        """n_alloc: tools allocated to agents that the workflow has (eq. 4)."""
        return sum(len(self.tools(agent)) for agent in list_agents(self.workflow)[:2] if agent < 2)

    @property
    def digest(self) -> str:
        """A hash of the whole choice."""
        return artifacts.sha256_json([self.structure, self.atoms])[:16]

    def __str__(self) -> str:
        words = [self.workflow]
        for agent in list_agents(self.workflow):
            atoms = [f"'{atom}'" for atom in self.atoms[agent]]
            setup = [TIERS[self.tier(agent)], *self.tools(agent), *atoms]
            words.append(f"{AGENTS[agent]}({', '.join(setup)})")
        return " ".join(words)


def list_agents(workflow: str) -> tuple[int, ...]:
    """List the agents that a workflow has: all three, but the second in `SINGLE` and the third in "direct"."""
    if workflow == "direct":
        return (0,)
    return (0, 2) if workflow in SINGLE else (0, 1, 2)


def list_tools(bits: int) -> tuple[str, ...]:
    """List the tools of a number from 0 to 15: tool i is in the set if bit i is 1."""
    return tuple(tool for i, tool in enumerate(TOOLS) if bits >> i & 1)


def encode_tools(tools: Sequence[str]) -> int:
    """Encode a set of tools as the sum of 2^i over its tools. Raises SpaceError for a tool that there is not."""
    unknown = [tool for tool in tools if tool not in TOOLS]
    if unknown:
        raise SpaceError(f"there is no tool {unknown[0]!r}; there are {', '.join(TOOLS)}")
    return sum(1 << TOOLS.index(tool) for tool in set(tools))


def check_structure(structure: Sequence[int]) -> Structure:
    """Check a structure.

    Args:
        structure: Six numbers in the order of `DIMENSIONS`.

    Returns:
        The same numbers as plain integers.

    Raises:
        SpaceError: A number is missing, out of range, or pinned and not 0.
    """
    if len(structure) != len(SIZES):
        raise SpaceError(
            f"a structure has the {len(SIZES)} numbers {', '.join(DIMENSIONS)}, not {len(structure)}"
        )
    workflow = structure[0]
    for (name, size), value in zip(DIMENSIONS.items(), structure, strict=True):
        if not 0 <= value < size:
            raise SpaceError(f"{name} lies in 0 to {size - 1}, not {value}")
        if not make_masks()[name][workflow, value]:
            raise SpaceError(
                f"{WORKFLOWS[workflow]} has no second agent: {name} must be 0, not {value}"
            )
    return tuple(int(value) for value in structure)


@cache
def make_masks(tools: tuple[str, ...] = TOOLS) -> dict[str, np.ndarray]:
    """Make m_i(w), the masks that say what is valid once the workflow is chosen (ARC, 3.2).

    Args:
        tools: The tools that agents may be given; sets with any other tool are excluded.

    Returns:
        (workflows, size) bool for each dimension, by name.
    """
    masks = {name: np.ones((len(WORKFLOWS), size), bool) for name, size in DIMENSIONS.items()}
    excluded_bits = SUBSETS - 1 - encode_tools(tools)
    has_excluded_tool = (np.arange(SUBSETS) & excluded_bits) > 0  # (subsets,)
    for name in ("tools1", "tools2"):
        masks[name][:, has_excluded_tool] = False
    for name in _PINNED:
        for workflow in SINGLE:
            masks[name][WORKFLOWS.index(workflow), 1:] = False
    return masks


def total() -> int:
    """|A_struct| = 9 x 16^2 x 3^3 = 62,208 (ARC, 3.2)."""
    return int(np.prod(SIZES))


def valid(tools: tuple[str, ...] = TOOLS) -> int:
    """Count the structures that the mask leaves: 6 x 6,912 + 3 x 144 = 41,904 with all tools (ARC, 3.2)."""
    num_choices = [
        make_masks(tools)[name].sum(1) for name in list(DIMENSIONS)[1:]
    ]  # (workflows,) each
    num_structures_by_workflow = np.prod(num_choices, axis=0)
    return int(num_structures_by_workflow.sum())


def list_structures() -> np.ndarray:
    """List all valid structures: combinations of workflow, tools and budgets.

    Returns:
        (41,904, 6) int, in lexical order.
    """
    all_structures = np.indices(SIZES).reshape(len(SIZES), -1).T  # (62,208, 6)
    workflows = all_structures[:, 0]
    is_valid = np.ones(len(all_structures), bool)
    for number, name in enumerate(DIMENSIONS):
        is_valid &= make_masks()[name][workflows, all_structures[:, number]]
    return all_structures[is_valid]


def repair_structure(structure: Sequence[int]) -> Structure:
    """Make a structure valid: what its workflow has no agent for becomes 0.

    Args:
        structure: Six numbers in the order of `DIMENSIONS`, as a policy without masks may choose them.

    Returns:
        The valid structure, which means the same.
    """
    workflow = int(structure[0])
    values = []
    for name, value in zip(DIMENSIONS, structure, strict=True):
        is_valid = make_masks()[name][workflow, int(value)]
        values.append(int(value) if is_valid else 0)
    return tuple(values)


def without_other_tools(structure: Sequence[int], tools: Sequence[str]) -> Structure:
    """Leave out all tools but some from a structure.

    Args:
        structure: Six numbers in the order of `DIMENSIONS`.
        tools: Names of the tools that stay where they are allocated.

    Returns:
        The structure with these tools alone.
    """
    workflow, tools1, tools2, *budgets = structure
    allowed_bits = encode_tools(tools)
    return (workflow, tools1 & allowed_bits, tools2 & allowed_bits, *budgets)
