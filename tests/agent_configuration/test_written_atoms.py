"""Instructions that a model writes: as many as were asked for, short, different, and nothing of a question."""

import json

import pytest

from lib.agent_configuration.atoms import read_library
from lib.agent_configuration.written_atoms import check_atoms, write_library
from lib.llm.json_replies import InvalidReply
from lib.tasks import Item

QUESTION = Item("How many eggs does the old hen lay in a week?", "7", "", "own", 1, "own/1")
GOOD = {
    role: [
        {"strategy": "verify", "text": f"Look {times} at the work of the {role}."}
        for times in ("once", "twice", "again")
    ]
    for role in ("reasoner", "verifier", "answerer")
}


def make_reply(**changes) -> str:
    first, *others_of_role = GOOD["reasoner"]
    return json.dumps(GOOD | {"reasoner": [first | changes, *others_of_role]})


def test_a_good_reply_becomes_atoms_that_can_be_written_and_read(tmp_path):
    atoms = check_atoms(f"Here it is:\n```json\n{json.dumps(GOOD)}\n```", [QUESTION])
    assert [atom.role for atom in atoms] == [role for role in GOOD for _ in range(3)]
    base = read_library()[:2]
    write_library(tmp_path / "atoms.yaml", [*base, *atoms])
    assert read_library(tmp_path / "atoms.yaml") == [*base, *atoms]


@pytest.mark.parametrize(
    ("reply", "complaint"),
    [
        ("no JSON at all", ""),
        (json.dumps(GOOD | {"verifier": GOOD["verifier"][:2]}), "verifier must have a list of 3"),
        (make_reply(text="Go on."), "has 2 words; write 3 to 30"),
        (make_reply(text="word " * 31), "has 31 words"),
        (make_reply(strategy="luck"), "'luck' is no strategy; there are decompose"),
        (make_reply(text="LOOK twice at the work of the reasoner."), "stands twice"),
        (make_reply(text="Say how many eggs does the old hen lay."), "repeats a question"),
        (make_reply(text=7), "lacks its text"),
    ],
)
def test_a_reply_that_breaks_a_rule_gets_a_complaint_that_names_it(reply, complaint):
    with pytest.raises(InvalidReply) as refused:
        check_atoms(reply, [QUESTION])
    assert complaint in str(refused.value)
