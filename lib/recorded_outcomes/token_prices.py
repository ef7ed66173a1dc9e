"""Costs of calls whose tokens are known and whose dollars are not.

    prices = read_prices("prices.csv")     # model, usd_per_million_in, usd_per_million_out
    prices.compute_costs(["a", "b"], tokens_in, tokens_out)

Published outcomes seldom say what a call cost. Prices come from a file: CSV with those three columns, as
`data/outcomes/prices.csv`, or LLMRouter's JSON of its models (`input_price` and `output_price`, per million tokens).
Left out: counting tokens; a text of n characters is taken for n / 4 of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from lib.recorded_outcomes.tables import CHARACTERS_PER_TOKEN, TableError

_COLUMNS = ("model", "usd_per_million_in", "usd_per_million_out")
_MILLION = 1e6


@dataclass(frozen=True)
class TokenPrices:
    """Prices of tokens by model.

    Attributes:
        usd_in: By model, USD of an input token.
        usd_out: By model, USD of an output token.
        source: Name of the file that they were read from, for messages.
        reply_tokens: Number of tokens that is assumed of a reply whose length is not known.
    """

    usd_in: Mapping[str, float]
    usd_out: Mapping[str, float]
    source: str
    reply_tokens: int

    def find_missing_models(self, models: Sequence[str]) -> list[str]:
        """Lists the models that have no price, sorted."""
        return sorted(set(models) - set(self.usd_in))

    def compute_costs(
        self, models: Sequence[str], tokens_in: np.ndarray, tokens_out: np.ndarray
    ) -> np.ndarray:
        """Computes what calls cost.

        Args:
            models: The model of each call.
            tokens_in: (calls,), tokens of the prompts.
            tokens_out: (calls,), tokens of the replies.

        Returns:
            (calls,), USD.
        """
        usd_in = np.array([self.usd_in[model] for model in models])
        usd_out = np.array([self.usd_out[model] for model in models])
        return tokens_in * usd_in + tokens_out * usd_out


def read_prices(path: str | Path, reply_tokens: int) -> TokenPrices:
    """Reads a price list.

    Args:
        path: A .csv file, or LLMRouter's .json.
        reply_tokens: Number of tokens that is assumed of a reply whose length is not known.

    Returns:
        The prices, in USD per token.

    Raises:
        TableError: The file cannot be read, or a price is missing, no number or negative; the message names it.
    """
    path = Path(path)
    try:
        if path.suffix.lower() == ".json":
            models = json.loads(path.read_text(encoding="utf-8"))
            rows = [
                (name, model["input_price"], model["output_price"])
                for name, model in models.items()
            ]
            frame = pd.DataFrame(rows, columns=list(_COLUMNS))
        else:
            frame = pd.read_csv(path, skipinitialspace=True)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise TableError(
            f"--prices {path} cannot be read ({error}); give a CSV with {', '.join(_COLUMNS)}, or LLMRouter's JSON "
            "with input_price and output_price"
        ) from error
    absent = [column for column in _COLUMNS if column not in frame]
    if absent:
        raise TableError(f"--prices {path} has no column {absent[0]}; give {', '.join(_COLUMNS)}")
    for column in _COLUMNS[1:]:
        numbers = pd.to_numeric(frame[column], errors="coerce")
        is_wrong = ~(numbers >= 0)
        if is_wrong.any():
            row = int(is_wrong.to_numpy().argmax())
            raise TableError(
                f"--prices {path}: {column} of {frame['model'].iloc[row]!r} is {frame[column].iloc[row]!r}; write "
                "dollars per million tokens, 0 or more"
            )
        frame[column] = numbers / _MILLION
    by_model = frame.astype({"model": str}).set_index("model")
    return TokenPrices(
        usd_in=by_model["usd_per_million_in"].to_dict(),
        usd_out=by_model["usd_per_million_out"].to_dict(),
        source=str(path),
        reply_tokens=reply_tokens,
    )


def count_tokens(text: object) -> float:
    """Estimates the number of tokens of a text by its length; nan for a value that is no text."""
    return len(text) / CHARACTERS_PER_TOKEN if isinstance(text, str) else float("nan")


def add_costs(frame: pd.DataFrame, prices: TokenPrices | None, notes: list[str]) -> pd.DataFrame:
    """Computes the column cost_usd of rows that have numbers of tokens and no costs.

    Args:
        frame: Rows with model, tokens_in and perhaps tokens_out; nan where a number is not known.
        prices: Prices by model; None where the user gave none.
        notes: Sentences about what was assumed; two may be appended.

    Returns:
        The rows with the column cost_usd.

    Raises:
        TableError: There are no prices, or a model has none; the message says which to write.
    """
    models = frame["model"].astype(str).tolist()
    listed = ", ".join(sorted(set(models)))
    if prices is None:
        raise TableError(
            f"the outcomes have no costs; give --prices FILE, a CSV with {', '.join(_COLUMNS)} for {listed}"
        )
    missing = prices.find_missing_models(models)
    if missing:
        raise TableError(
            f"the outcomes have no costs, and {prices.source} has no price of {missing[0]!r}; give --prices FILE, a "
            f"CSV with {', '.join(_COLUMNS)} for {listed}"
        )
    tokens_in = pd.to_numeric(frame["tokens_in"], errors="coerce").to_numpy(float)
    if np.isnan(tokens_in).any():
        raise TableError("tokens_in is missing in some rows; write how long the prompt was")
    tokens_out = np.full(len(frame), np.nan)
    if "tokens_out" in frame:
        tokens_out = pd.to_numeric(frame["tokens_out"], errors="coerce").to_numpy(float)
    is_unknown = np.isnan(tokens_out)
    tokens_out = np.where(is_unknown, prices.reply_tokens, tokens_out)
    notes.append(f"Costs are tokens x price ({prices.source}), not an invoice.")
    if is_unknown.any():
        notes.append(
            f"{is_unknown.sum():,} of {len(frame):,} replies have no known length; {prices.reply_tokens} tokens were "
            "assumed."
        )
    return frame.assign(cost_usd=prices.compute_costs(models, tokens_in, tokens_out))
