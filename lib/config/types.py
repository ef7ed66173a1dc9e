"""What every section is made of: profiles, kinds of numbers and names, and the error of a mistake."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

# full: what lessons show as recorded runs (`make full`); a knob without a value for it has that of laptop.
PROFILES = ("smoke", "laptop", "full", "paper")
REQUIRED_PROFILES = ("smoke", "laptop", "paper")
ROOT = Path(__file__).resolve().parents[2]

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Correlation = Annotated[float, Field(ge=-1, le=1)]
# What names metrics, files and curves: an endpoint's own name, such as anthropic/claude, stands under `model`.
Name = Annotated[
    str,
    Field(max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9_+-]*(\.[A-Za-z0-9][A-Za-z0-9_+-]*)*$"),
]


class ParamsError(ValueError):
    """A mistake in the parameters; the message names the key, the value and what is allowed."""


class Section(BaseModel):
    """One part of the parameters. A job gets only the fields that it reads.

    See `to_job_settings` and `from_job_settings`.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    def to_job_settings(self, *fields: str) -> dict[str, Any]:
        """Selects some fields as plain values, to become settings of a job.

        Args:
            fields: Their names.

        Returns:
            {field: value}.

        Raises:
            KeyError: A name that is no field.
        """
        unknown = sorted(set(fields) - set(type(self).model_fields))
        if unknown:
            raise KeyError(
                f"{type(self).__name__} has no {unknown}; it has {sorted(type(self).model_fields)}"
            )
        return self.model_dump(include=set(fields))

    @classmethod
    def from_job_settings(cls, values: Mapping[str, Any]) -> Self:
        """Rebuilds the section from the settings of a job, with those fields alone.

        Reading another field raises AttributeError, so that a job cannot depend on a setting that its cache key
        leaves out.

        Args:
            values: {field: value}, as of `to_job_settings`.
        """
        fields = {
            name: _adapter(cls, name).validate_python(value) for name, value in values.items()
        }
        section = cls.model_construct(**fields)
        for name in set(cls.model_fields) - set(fields):
            section.__dict__.pop(name, None)  # defaults, which the job was not handed either
        return section

    def __getattr__(self, name: str) -> Any:
        if name in type(self).model_fields:
            raise AttributeError(
                f"the setting {name!r} of {type(self).__name__} was not handed to this job"
            )
        return super().__getattr__(name)


@cache
def _adapter(section: type[Section], field: str) -> TypeAdapter:
    return TypeAdapter(section.model_fields[field].annotation, config=None)
