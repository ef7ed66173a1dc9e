"""Prompt atoms: what the prompt policy may tell each agent, and how good a library of them is (ARC, appendix E).

Diversity is computed from the texts: how unlike they are, how many of six strategies they cover, how well they fall
into clusters. Of quality, specificity is how far an atom is from the base atoms; coherence and clarity are ratings
that a model gives, and are left out where no model can give them. What an atom changes in the answers of the agents is
measured by `atom_effects`.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sklearn.cluster import KMeans
from sklearn.metrics import silhouette_score

from lib.agent_configuration.action_space import AGENTS
from lib.config import ROOT, ParamsError, from_yaml

VERSION = 2  # of the order of prompt atoms, and what each says to whom
LIBRARY = ROOT / "data/atoms/atoms.yaml"
BASE = "base"
STRATEGIES = ("decompose", "stepwise", "verify", "tools", "brevity", "extraction")


class Atom(BaseModel):
    """One instruction.

    Attributes:
        strategy: Which of the six kinds of appendix E it is.
        hint: What a lab model reads; None for an instruction that lab models do not obey.
        text: What any other model reads.
        name: "family/role/key".
        family: "base", or the kind of question that it was written for.
        role: The agent whose prompt it may be in.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    strategy: Literal["decompose", "stepwise", "verify", "tools", "brevity", "extraction"]
    hint: str | None = Field(default=None, min_length=1)
    text: str = Field(min_length=1)
    name: str = ""
    family: str = ""
    role: str = ""


def read_library(path: str | Path = LIBRARY) -> list[Atom]:
    """Read a library of atoms.

    Args:
        path: A YAML file: atoms by family, role and key.

    Returns:
        The atoms in the order of the file.

    Raises:
        ParamsError: The file cannot be read, or something in it is wrong; the message names the place.
    """
    try:
        content = from_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ParamsError(f"{path} is no library of atoms that can be read ({error})") from error
    if not isinstance(content, dict) or BASE not in content:
        raise ParamsError(
            f"{path} is no library of atoms: it must be a mapping with the family {BASE!r}"
        )
    atoms = []
    for family, entries_by_role in content.items():
        _check_mapping(path, family, entries_by_role)
        for role, entries in entries_by_role.items():
            if role not in AGENTS:
                raise ParamsError(
                    f"{path}, {family}: there is no role {role!r}; there are {', '.join(AGENTS)}"
                )
            _check_mapping(path, f"{family}.{role}", entries)
            for key, entry in entries.items():
                atoms.append(_read_atom(path, family, role, key, entry))
    return atoms


def _read_atom(path: str | Path, family: str, role: str, key: str, entry: object) -> Atom:
    """Read one atom (prompt instruction) of a library.

    Args:
        path: The file, for messages.
        family: First part of its name.
        role: Agent that may get it, the second part.
        key: The last part of its name.
        entry: Its fields.

    Returns:
        The atom.

    Raises:
        ParamsError: A field is wrong; the message says where it stands.
    """
    location = f"{family}.{role}.{key}"
    _check_mapping(path, location, entry)
    name = f"{family}/{role}/{key}"
    try:
        return Atom.model_validate({**entry, "name": name, "family": family, "role": role})
    except ValidationError as error:
        first = error.errors()[0]
        location_of_field = ".".join([location, *map(str, first["loc"])])
        raise ParamsError(
            f"{path}, {location_of_field}: {first['msg']}, got {first['input']!r}"
        ) from error


def _check_mapping(path: str | Path, location: str, value: object) -> None:
    """Raise ParamsError where a part of the file is no mapping, or an empty one."""
    if not isinstance(value, dict) or not value:
        raise ParamsError(
            f"{path}, {location}: it must hold names with what they mean, not {value!r}"
        )


def find_roles(atoms: Sequence[Atom]) -> np.ndarray:
    """Find which agent may get which prompt instruction (atom), (3, atoms) bool."""
    return np.array([[atom.role == role for atom in atoms] for role in AGENTS])


def select_atoms(atoms: Sequence[Atom], backend: str, kind: str = "") -> list[Atom]:
    """Select the prompt instructions (atoms) that agents can get.

    Args:
        atoms: The library.
        backend: Backend of the agents; a lab model is offered only what it obeys.
        kind: The kind of question; "" for all kinds. An atom that was written for another kind is left out.

    Returns:
        The atoms, in the order of the library.
    """
    selected = []
    for atom in atoms:
        is_obeyed = backend != "lab" or atom.hint is not None
        fits_kind = kind in ("", atom.family) or atom.family == BASE
        if is_obeyed and fits_kind:
            selected.append(atom)
    return selected


def collect_prompts(atoms: Sequence[Atom], backend: str) -> dict[str, str]:
    """Collect the text of each atom, by name: hints for lab models, sentences for others."""
    selected = select_atoms(atoms, backend)
    return {atom.name: atom.hint if backend == "lab" else atom.text for atom in selected}


# Appendix E ----------------------------------------------------------------------------------------


def compute_uniqueness(vectors: np.ndarray) -> float:
    """Compute 1 minus the mean cosine similarity of pairs of atoms.

    Args:
        vectors: (n, d) of the atoms' texts, each of length 1.

    Returns:
        The uniqueness; nan for fewer than two atoms.
    """
    n = len(vectors)
    if n < 2:
        return float("nan")
    similarity = vectors @ vectors.T  # (n, n), 1 on the diagonal
    sum_over_pairs = similarity.sum() - np.trace(similarity)
    return 1 - float(sum_over_pairs / (n * (n - 1)))


def compute_coverage(atoms: Sequence[Atom]) -> float:
    """Compute the share of the six strategies that the atoms have."""
    return len({atom.strategy for atom in atoms}) / len(STRATEGIES)


def compute_semantic_diversity(vectors: np.ndarray, num_clusters: int = 3) -> float:
    """Compute how well atoms fall into clusters: the silhouette of k-means.

    Args:
        vectors: (n, d) of the atoms' texts.
        num_clusters: k.

    Returns:
        The silhouette; nan where there are too few atoms to form the clusters.
    """
    if len(vectors) <= num_clusters:
        return float("nan")
    labels = KMeans(num_clusters, n_init=4, random_state=0).fit_predict(vectors)
    if len(set(labels)) < 2:
        return float("nan")
    return float(silhouette_score(vectors, labels))


def compute_specificity(vectors: np.ndarray, base_vectors: np.ndarray) -> float:
    """Compute the mean cosine distance of atoms to the nearest base atom.

    Args:
        vectors: (n, d) of the atoms' texts, each of length 1.
        base_vectors: (b, d) of the base atoms' texts, each of length 1.

    Returns:
        The specificity; nan without atoms or base atoms.
    """
    if not len(vectors) or not len(base_vectors):
        return float("nan")
    similarity_to_nearest = (vectors @ base_vectors.T).max(1)  # (n,)
    return float((1 - similarity_to_nearest).mean())


def measure_families(
    atoms: Sequence[Atom], encode: Callable[[Sequence[str]], np.ndarray]
) -> dict[str, dict[str, float]]:
    """Measure each family of a library by appendix E of ARC.

    Args:
        atoms: The library.
        encode: Returns vectors (n, d) of length 1 for n texts.

    Returns:
        For each family atoms (their number), uniqueness, coverage, semantic (diversity), specificity, and diversity
        (the mean of the first three measures, without those that are nan).
    """
    base_vectors = encode([atom.text for atom in atoms if atom.family == BASE])
    measures_by_family = {}
    for family in dict.fromkeys(atom.family for atom in atoms):
        atoms_of_family = [atom for atom in atoms if atom.family == family]
        vectors = encode([atom.text for atom in atoms_of_family])
        measures = {
            "uniqueness": compute_uniqueness(vectors),
            "coverage": compute_coverage(atoms_of_family),
            "semantic": compute_semantic_diversity(vectors),
        }
        # A family with few atoms has no pairs and no clusters: nan for those measures.
        finite_values = [value for value in measures.values() if np.isfinite(value)]
        diversity = float(np.mean(finite_values))
        measures["specificity"] = float("nan")
        # Specificity is distance from the base family, which has none from itself.
        if family != BASE:
            measures["specificity"] = compute_specificity(vectors, base_vectors)
        measures_by_family[family] = {
            "atoms": len(atoms_of_family),
            **measures,
            "diversity": diversity,
        }
    return measures_by_family
