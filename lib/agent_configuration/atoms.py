"""Prompt atoms: what the prompt policy may tell each agent, and how good a library of them is (ARC, appendix E).

Diversity is computed from the texts: how unlike they are, how many of six strategies they cover, how well they fall
into clusters. Of quality, specificity is how far an atom is from the base atoms; coherence and clarity are ratings
that a model gives, and are left out where no model can give them. What an atom changes in the answers of the agents is
measured by `atom_effects`.
"""

from collections.abc import Callable, Mapping, Sequence
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


def library(path: str | Path = LIBRARY) -> list[Atom]:
    """All atoms of a YAML file, family by family and role by role. Raises ParamsError naming the place."""
    try:
        told = from_yaml(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ParamsError(f"{path} is no library of atoms that can be read ({error})") from error
    if not isinstance(told, dict) or BASE not in told:
        raise ParamsError(
            f"{path} is no library of atoms: it must be a mapping with the family {BASE!r}"
        )
    return [atom for family, roles in told.items() for atom in _family(path, family, roles)]


def _family(path: str | Path, family: str, roles: object) -> list[Atom]:
    out = []
    for role, held in _mapping(path, family, roles).items():
        if role not in AGENTS:
            raise ParamsError(
                f"{path}, {family}: there is no role {role!r}; there are {', '.join(AGENTS)}"
            )
        for key, about in _mapping(path, f"{family}.{role}", held).items():
            place = f"{family}.{role}.{key}"
            named = {"name": f"{family}/{role}/{key}", "family": family, "role": role}
            try:
                out.append(Atom.model_validate(dict(_mapping(path, place, about)) | named))
            except ValidationError as error:
                first = error.errors()[0]
                where = ".".join([place, *map(str, first["loc"])])
                raise ParamsError(
                    f"{path}, {where}: {first['msg']}, got {first['input']!r}"
                ) from error
    return out


def _mapping(path: str | Path, place: str, told: object) -> Mapping:
    if not isinstance(told, dict) or not told:
        raise ParamsError(f"{path}, {place}: it must hold names with what they mean, not {told!r}")
    return told


def roles(atoms: Sequence[Atom]) -> np.ndarray:
    """Which agent may be told which atom, (3, atoms) bool."""
    return np.array([[atom.role == role for atom in atoms] for role in AGENTS])


def select_atoms(atoms: Sequence[Atom], backend: str, kind: str = "") -> list[Atom]:
    """Select the atoms that agents can be told.

    Args:
        atoms: The library.
        backend: Of the agents; a lab model is offered only what it obeys.
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


def prompts(atoms: Sequence[Atom], backend: str) -> dict[str, str]:
    """What each atom says, by name: hints for lab models, sentences for others."""
    selected = select_atoms(atoms, backend)
    return {atom.name: atom.hint if backend == "lab" else atom.text for atom in selected}


# Appendix E ----------------------------------------------------------------------------------------


def uniqueness(vectors: np.ndarray) -> float:
    """1 - mean pairwise cosine similarity; vectors: (n, d) of length 1. nan for fewer than two."""
    n = len(vectors)
    if n < 2:
        return float("nan")
    similarity = vectors @ vectors.T
    return 1 - float((similarity.sum() - np.trace(similarity)) / (n * (n - 1)))


def coverage(atoms: Sequence[Atom]) -> float:
    """Share of the six strategies that the atoms have."""
    return len({atom.strategy for atom in atoms}) / len(STRATEGIES)


def spread(vectors: np.ndarray, clusters: int = 3) -> float:
    """Semantic diversity: silhouette of k-means clusters; nan where there are too few atoms to form them."""
    if len(vectors) <= clusters:
        return float("nan")
    labels = KMeans(clusters, n_init=4, random_state=0).fit_predict(vectors)
    return float(silhouette_score(vectors, labels)) if len(set(labels)) > 1 else float("nan")


def specificity(vectors: np.ndarray, base: np.ndarray) -> float:
    """Mean cosine distance of atoms to the nearest base atom; nan without either."""
    if not len(vectors) or not len(base):
        return float("nan")
    return float((1 - (vectors @ base.T).max(1)).mean())


def measures(
    atoms: Sequence[Atom], phi: Callable[[Sequence[str]], np.ndarray]
) -> dict[str, dict[str, float]]:
    """Appendix E per family: atoms, uniqueness, coverage, semantic, specificity, and diversity, their mean."""
    base = phi([atom.text for atom in atoms if atom.family == BASE])
    out = {}
    for family in dict.fromkeys(atom.family for atom in atoms):
        own = [atom for atom in atoms if atom.family == family]
        vectors = phi([atom.text for atom in own])
        told = {
            "uniqueness": uniqueness(vectors),
            "coverage": coverage(own),
            "semantic": spread(vectors),
        }
        known = [value for value in told.values() if np.isfinite(value)]
        far = float("nan") if family == BASE else specificity(vectors, base)
        out[family] = {
            "atoms": len(own),
            **told,
            "specificity": far,
            "diversity": float(np.mean(known)),
        }
    return out
