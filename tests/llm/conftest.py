"""The planted key in the environment of every test, and the waits between attempts."""

from tests.llm.server import certificate, key, waits

__all__ = ["certificate", "key", "waits"]
