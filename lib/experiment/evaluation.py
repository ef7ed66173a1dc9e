"""The tests of a trained model: every test item under every condition, with the same random numbers for all methods."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

# Random numbers of tests lie apart from those of training: the seed of a test is this one plus the job's seed, so that
# all methods of one seed meet the same items with the same draws.
TEST_SEED = 2**40


def run_tests(
    tests: Sequence[Mapping[str, Any]], run_test: Callable[..., pd.DataFrame]
) -> pd.DataFrame:
    """Runs the tests of a job and stacks their rows.

    Args:
        tests: The conditions of each test, such as {"style": "soft", "temperature": 0.0}.
        run_test: Called with the conditions as keywords; returns a row per episode, or an empty table.

    Returns:
        The rows of all tests, each with its conditions as columns.
    """
    tables = [run_test(**conditions).assign(**conditions) for conditions in tests]
    # A test set may be empty, and its table then has no columns.
    return pd.concat([table for table in tables if len(table)], ignore_index=True)
