"""Attacks on the bench, counted: `python -m tests.hardening` prints the figures and keeps them."""
