"""Every reader refuses every broken file by name, and changes none."""

import pytest

from tests.hardening.files import READERS, attempt, cases

CASES = list(cases())


@pytest.mark.parametrize("name", READERS)
def test_broken_files_are_refused_by_name_and_left_alone(name):
    found = {wrong: attempt(name, content) for reader, wrong, content in CASES if reader == name}
    assert {wrong: said for wrong, said in found.items() if said != ("", False)} == {}


def test_a_whole_file_is_taken(tmp_path):
    for name, reader in READERS.items():
        folder = tmp_path / name.replace(" ", "-")
        folder.mkdir()
        reader.make(folder)
        reader.read(folder)
