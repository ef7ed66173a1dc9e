"""The library of atoms: what is in it, what is refused, and appendix E's measures by hand."""

import math

import numpy as np
import pytest

from lib.agent_configuration import atoms
from lib.agent_configuration.action_space import AGENTS
from lib.agent_configuration.atoms import (
    Atom,
    collect_prompts,
    measure_families,
    read_library,
    select_atoms,
)
from lib.agent_configuration.questions import KINDS
from lib.config import ParamsError
from lib.language_models.tokenizer import UNK, encode, get_tokenizer
from lib.language_models.training import team_traces
from lib.language_models.training.agent_traces import BRIEF, CHECK, STEPS
from tests.agent_configuration.small import ATOMS

LIBRARY = read_library()
GOOD = "{strategy: verify, hint: be brief, text: Be quick.}"


# The library ---------------------------------------------------------------------------------------


def test_the_library_loads_with_names_that_say_where_an_atom_stands():
    assert len({atom.name for atom in LIBRARY}) == len(LIBRARY) > 20
    assert all(atom.name.startswith(f"{atom.family}/{atom.role}/") for atom in LIBRARY)
    assert {atom.family for atom in LIBRARY} == {"base", *(kind.name for kind in KINDS)}
    assert {atom.role for atom in LIBRARY} == set(AGENTS)
    for role in AGENTS:  # no two say the same
        atoms_of_role = [atom for atom in LIBRARY if atom.role == role]
        hints = [atom.hint for atom in atoms_of_role if atom.hint is not None]
        assert len(set(hints)) == len(hints) and len({atom.text for atom in atoms_of_role}) == len(
            atoms_of_role
        )


LAB_ATOMS = select_atoms(LIBRARY, "lab")


@pytest.mark.parametrize("atom", LAB_ATOMS, ids=[atom.name for atom in LAB_ATOMS])
def test_lab_agents_are_offered_only_hints_that_their_role_was_trained_to_obey(atom):
    assert get_tokenizer().convert_tokens_to_ids(UNK) not in encode(atom.hint)
    obeyed = {"reasoner": {STEPS, BRIEF}, "verifier": {CHECK}, "answerer": set()}
    assert atom.hint in obeyed[atom.role] | set(team_traces.TOOL_HINTS.values())
    assert atom.hint not in team_traces.DECOYS


def test_nine_of_the_twenty_seven_instructions_mean_something_to_lab_agents():
    assert len(LIBRARY) == 27 and len(LAB_ATOMS) == 9
    assert select_atoms(LIBRARY, "http") == LIBRARY


def test_a_kind_of_question_is_offered_its_own_instructions_and_those_for_all():
    families = {atom.family for atom in select_atoms(LIBRARY, "http", "chain")}
    assert families == {"base", "chain"}


# Files that are none -------------------------------------------------------------------------------


def test_a_library_keeps_the_order_of_its_file(tmp_path):
    path = tmp_path / "atoms.yaml"
    path.write_text(
        f"base: {{verifier: {{b: {GOOD}, a: {GOOD}}}}}\nchain: {{reasoner: {{c: {GOOD}}}}}"
    )
    atoms_of_file = read_library(path)
    assert [atom.name for atom in atoms_of_file] == [
        "base/verifier/b",
        "base/verifier/a",
        "chain/reasoner/c",
    ]
    assert (atoms_of_file[0].hint, atoms_of_file[0].text, atoms_of_file[0].strategy) == (
        "be brief",
        "Be quick.",
        "verify",
    )


@pytest.mark.parametrize(
    "text, complaint",
    [
        (None, "is no library"),
        ("base: {reasoner: {a: [", "is no library of atoms that can be read"),
        ("- base", "it must be a mapping with the family 'base'"),
        ("chain: {}", "it must be a mapping with the family 'base'"),
        ("", "it must be a mapping with the family 'base'"),
        ("base: 7", "base: it must hold names with what they mean, not 7"),
        ("base: {reasoner: }", "base.reasoner: it must hold names"),
        (
            f"base: {{judge: {{a: {GOOD}}}}}",
            "base: there is no role 'judge'; there are reasoner, verifier, answerer",
        ),
        (
            "base: {reasoner: {a: be brief}}",
            "base.reasoner.a: it must hold names with what they mean, not 'be brief'",
        ),
        (
            "base: {reasoner: {a: {strategy: verify, hint: be brief}}}",
            "base.reasoner.a.text: Field required",
        ),
        (
            "base: {reasoner: {a: {hint: be brief, text: Be.}}}",
            "base.reasoner.a.strategy: Field required",
        ),
        (
            "base: {reasoner: {a: {strategy: luck, hint: h, text: t}}}",
            "base.reasoner.a.strategy: Input should be",
        ),
        (
            "base: {reasoner: {a: {strategy: verify, hint: '', text: t}}}",
            "base.reasoner.a.hint: String should have",
        ),
        (
            f"base: {{reasoner: {{a: {GOOD[:-1]}, mood: good}}}}}}",
            "base.reasoner.a.mood: Extra inputs",
        ),
    ],
)
def test_a_library_that_is_none_is_refused_with_file_and_place(tmp_path, text, complaint):
    path = tmp_path / "atoms.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ParamsError) as error:
        read_library(path)
    assert str(path) in str(error.value) and complaint in str(error.value)


# Appendix E ----------------------------------------------------------------------------------------

EAST, NORTH, DIAGONAL = [1.0, 0.0], [0.0, 1.0], [math.sqrt(0.5), math.sqrt(0.5)]


def test_uniqueness_is_one_minus_the_mean_similarity_of_pairs():
    assert atoms.compute_uniqueness(np.array([EAST, NORTH])) == pytest.approx(1.0)
    assert atoms.compute_uniqueness(np.array([EAST, EAST, EAST])) == pytest.approx(0.0)
    assert atoms.compute_uniqueness(np.array([EAST, NORTH, DIAGONAL])) == pytest.approx(
        1 - 2 * math.sqrt(0.5) / 3
    )
    assert math.isnan(atoms.compute_uniqueness(np.array([EAST])))


def test_spread_is_large_for_clusters_and_unknown_for_few_atoms():
    tight = (
        np.array([EAST, EAST, NORTH, NORTH, DIAGONAL, DIAGONAL]) + np.linspace(0, 1e-4, 6)[:, None]
    )
    assert atoms.compute_semantic_diversity(tight) > 0.99
    assert math.isnan(
        atoms.compute_semantic_diversity(np.array([EAST, NORTH, DIAGONAL]))
    ) and math.isnan(atoms.compute_semantic_diversity(np.array([EAST])))


def test_measures_of_a_family_are_those_of_its_own_atoms():
    vectors_by_letter = {"e": EAST, "n": NORTH, "d": DIAGONAL}
    measures = measure_families(
        [
            Atom(strategy=strategy, hint="be brief", text=text, family=family, role="reasoner")
            for text, strategy, family in (
                ("e", "verify", "base"),
                ("n", "tools", "base"),
                ("d", "tools", "chain"),
                ("e", "tools", "chain"),
            )
        ],
        lambda texts: np.array([vectors_by_letter[text] for text in texts]),
    )
    assert list(measures) == ["base", "chain"]
    near = math.sqrt(0.5)
    base, chain = measures["base"], measures["chain"]
    assert (base["atoms"], base["uniqueness"], base["coverage"]) == (
        2,
        pytest.approx(1),
        pytest.approx(2 / 6),
    )
    assert math.isnan(base["semantic"]) and math.isnan(base["specificity"])
    assert base["diversity"] == pytest.approx((1 + 2 / 6) / 2)
    assert (chain["uniqueness"], chain["coverage"]) == (
        pytest.approx(1 - near),
        pytest.approx(1 / 6),
    )
    assert chain["specificity"] == pytest.approx((1 - near) / 2)
    assert chain["diversity"] == pytest.approx((1 - near + 1 / 6) / 2)


def test_lab_models_get_hints_and_others_sentences():
    assert collect_prompts(ATOMS[:2], "lab") == {
        "base/reasoner/steps": "step by step",
        "base/reasoner/brief": "be brief",
    }
    for backend in ("endpoint", "scripted"):
        assert collect_prompts(ATOMS[:1], backend) == {"base/reasoner/steps": "Go slowly."}


def test_roles_say_which_agent_may_be_told_what():
    assert atoms.find_roles(ATOMS).astype(int).tolist() == [
        [1, 1, 1, 1, 0, 0, 0],
        [0, 0, 0, 0, 1, 0, 0],
        [0] * 5 + [1, 1],
    ]
