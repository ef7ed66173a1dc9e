"""What every section is made of: profiles, kinds of numbers and names, and the error of a mistake."""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

PROFILES = ("smoke", "laptop", "paper")
ROOT = Path(__file__).resolve().parents[2]

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Correlation = Annotated[float, Field(ge=-1, le=1)]
# What names metrics, files and curves: an endpoint's own name, such as anthropic/claude, stands under `model`.
Name = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_+-]*(\.[A-Za-z0-9][A-Za-z0-9_+-]*)*$")]


class ParamsError(ValueError):
    """A mistake in the parameters; the message names the key, the value and what is allowed."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
