"""Silence ends where it was asked to end."""

import logging

import datasets
import transformers

from lib.conductor.silence_libraries import silence_libraries

NAMES = ("trl", "accelerate")


def state() -> tuple:
    shown = transformers.utils.logging.is_progress_bar_enabled(), datasets.is_progress_bar_enabled()
    return (
        *shown,
        transformers.utils.logging.get_verbosity(),
        *(logging.getLogger(name).level for name in NAMES),
    )


def test_within_only_errors_are_said():
    with silence_libraries():
        assert state() == (False, False, logging.ERROR, logging.ERROR, logging.ERROR)


def test_afterwards_all_is_as_it_was(monkeypatch):
    for name in NAMES:
        monkeypatch.setattr(logging.getLogger(name), "level", logging.INFO)
    before = state()
    try:
        with silence_libraries():
            raise KeyError
    except KeyError:
        pass
    assert state() == before


def test_who_was_quiet_already_stays_quiet():
    shown = transformers.utils.logging.is_progress_bar_enabled()
    with silence_libraries():
        with silence_libraries():
            pass
        inside = state()
    assert inside[:3] == (False, False, logging.ERROR)
    assert transformers.utils.logging.is_progress_bar_enabled() == shown
