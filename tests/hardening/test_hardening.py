"""The figures of the hardening: every section runs, on a small scale, and nothing goes wrong in it."""

import json

import pytest

from tests.hardening import __main__ as command
from tests.hardening import clients, purse, replies, secrets, slots, tables
from tests.llm.server import certificate, key

__all__ = ["certificate", "key"]
SMALL = {
    purse: (0.01, {"purse.situations": 21}),
    replies: (0.02, {"replies.hostile": 12}),
    secrets: (1.0, {}),
    tables: (0.1, {"tables.variants": 100}),
    slots: (0.05, {"slots.settings": 15, "slots.questions": 60}),
    clients: (0.05, {"clients.requests": 20}),
}
MAY_BE_ANY = ("secrets.places", "tables.refused")  # beside what counts how much was tried


@pytest.mark.parametrize("section", SMALL, ids=lambda section: section.__name__.rpartition(".")[2])
def test_nothing_goes_wrong_in_a_section(section, key):
    scale, counts = SMALL[section]
    found = section.measure(lambda line: None, scale)
    wrong = {
        name: value for name, value in found.items() if value and name not in (*counts, *MAY_BE_ANY)
    }
    assert wrong == {} and all(found[name] >= least for name, least in counts.items())


def test_sections_keep_what_others_measured(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(
        command, "sections", lambda: {"one": lambda say, scale: {"one.tried": round(10 * scale)}}
    )
    out = tmp_path / "hardening.json"
    out.write_text('{"other.tried": 5}')
    command.main(["one", "--scale", "0.5", "--out", str(out)])
    assert (
        json.loads(out.read_text()) == {"one.tried": 5, "other.tried": 5}
        and "one.tried" in capsys.readouterr().out
    )
    with pytest.raises(SystemExit):
        command.main(["two", "--out", str(out)])
