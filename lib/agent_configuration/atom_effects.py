"""What each prompt atom changes: the same questions and random numbers with the atom and without it.

Every atom is tried in one workflow in which all three agents act, with all tools and the largest budgets, so that an
effect is the atom's and not that of a scarce budget. An atom without any effect has no place in the library.
"""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from lib import stats
from lib.agent_configuration.action_space import AGENTS, SUBSETS, WORKFLOWS, Configuration
from lib.agent_configuration.agent_system import ConfiguredQuestion
from lib.agent_configuration.atoms import Atom
from lib.agent_configuration.questions import kind_of
from lib.agent_configuration.workbench import TEST_DRAW, ConfigurationWorkbench
from lib.tasks import Item

VERSION = 1  # of the configurations that atoms are tried in
NO_ATOM = "none"
NUM_SAMPLES = 2
REFERENCE = (WORKFLOWS.index("verify"), SUBSETS - 1, SUBSETS - 1, 2, 2, 2)
COLUMNS = ("correct", "reward", "tokens_out", "used")


def measure_atom_effects(bench: ConfigurationWorkbench) -> pd.DataFrame:
    """Play dev questions without atoms, and with each atom that fits their kind.

    Args:
        bench: Agents, tools and library.

    Returns:
        Rows with atom (NO_ATOM for the reference), group (the kind), item, sample and COLUMNS.
    """
    tables = []
    items = bench.draw_items("dev", bench.settings.dev_items)
    for atom in (None, *bench.atoms):
        fitting_items = [item for item in items if atom is None or _fits(atom, item, bench)]
        jobs = [
            ConfiguredQuestion(item, _configure(atom), TEST_DRAW + sample)
            for sample in range(NUM_SAMPLES)
            for item in fitting_items
        ]
        episodes = bench.play(bench.settings.model, jobs)
        rows = episodes[["group", *COLUMNS]].assign(
            atom=NO_ATOM if atom is None else atom.name,
            item=episodes["key"] + episodes["prompt"],
            sample=[job.draw - TEST_DRAW for job in jobs],
        )
        tables.append(rows)
    return pd.concat(tables, ignore_index=True)


def _configure(atom: Atom | None) -> Configuration:
    """Make the reference configuration, with one atom (prompt instruction) for one agent."""
    atoms_by_agent = []
    for role in AGENTS:
        has_atom = atom is not None and atom.role == role
        atoms_by_agent.append((atom.name,) if has_atom else ())
    return Configuration(REFERENCE, tuple(atoms_by_agent))


def _fits(atom: Atom, item: Item, bench: ConfigurationWorkbench) -> bool:
    """Check whether an atom (prompt instruction) may be used for a question of this kind."""
    return atom in bench.select_atoms(kind_of(item))


def estimate_atom_effects(rows: pd.DataFrame, columns: Sequence[str] = COLUMNS) -> pd.DataFrame:
    """Estimate what each atom (prompt instruction) changes, by kind of question and over all kinds.

    Args:
        rows: What `measure_atom_effects` returned.
        columns: What is compared.

    Returns:
        Estimates as of `stats.paired_difference`, indexed by atom, group ("all" for all kinds) and column.
    """
    estimates = {}
    rows = rows.rename(columns={"atom": "method"})
    reference = {"method": NO_ATOM}
    for atom in rows["method"].unique():
        if atom == NO_ATOM:
            continue
        kinds = rows.loc[rows["method"] == atom, "group"].unique()
        compared = rows[rows["method"].isin([atom, NO_ATOM]) & rows["group"].isin(kinds)]
        for kind in ("all", *kinds):
            of_kind = compared if kind == "all" else compared[compared["group"] == kind]
            for column in columns:
                difference = stats.paired_difference(of_kind, column, {"method": atom}, reference)
                estimates[atom, kind, column] = difference.iloc[0]
    return pd.DataFrame(estimates).T.rename_axis(["atom", "group", "column"])


def list_idle_atoms(rows: pd.DataFrame) -> list[str]:
    """List the atoms (prompt instructions) without any effect: every episode is the same with and without them.

    Args:
        rows: What `measure_atom_effects` returned.

    Returns:
        Their names.
    """
    key = ["item", "sample"]
    reference = rows[rows["atom"] == NO_ATOM].set_index(key)[list(COLUMNS)]
    idle = []
    for atom, of_atom in rows[rows["atom"] != NO_ATOM].groupby("atom", sort=False):
        with_atom = of_atom.set_index(key)[list(COLUMNS)]
        if with_atom.equals(reference.loc[with_atom.index]):
            idle.append(atom)
    return idle
