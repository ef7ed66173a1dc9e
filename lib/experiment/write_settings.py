"""The command that writes the settings which the pipeline's stages depend on."""

import argparse
from pathlib import Path
from typing import Any

from lib.config.load import Params, load
from lib.config.types import PROFILES, ParamsError
from lib.experiment import artifacts, earlier_jobs


def main(arguments: list[str] | None = None) -> None:
    """Write the resolved parameters of a profile to a JSON file."""
    parser = argparse.ArgumentParser(
        prog="python -m lib.experiment.write_settings", description=main.__doc__
    )
    parser.add_argument(
        "--profile", choices=PROFILES, help="default: $PROFILE, then the file's own"
    )
    parser.add_argument("--out", default="data/settings.json", help="default: %(default)s")
    parser.add_argument(
        "--check",
        action="store_true",
        help="write no file, and say nothing: exit 1 unless it already holds these settings",
    )
    options = parser.parse_args(arguments)
    try:
        settings = _describe(load(options.profile))
        # The settings of recorded runs stand beside them, for lessons that show such a run.
        settings["full"] = _describe(load("full"))
    except ParamsError as error:
        raise SystemExit(1 if options.check else f"error: {error}") from None
    if options.check and not _is_written(options.out, settings):
        raise SystemExit(1)
    if not options.check:
        artifacts.write_json(options.out, settings)
    if renamed := earlier_jobs.migrate():
        print(f"{renamed} finished jobs of an earlier version are kept under today's names")


def _is_written(path: str, settings: dict[str, Any]) -> bool:
    """Whether the file has exactly the text that these settings are written as."""
    written = Path(path)
    return written.is_file() and written.read_bytes() == artifacts.to_json(settings).encode()


def _describe(params: Params) -> dict[str, Any]:
    """All sections, and for each section that names models the section llm with those alone."""
    by_section = {section: params.select_models(section) for section in params.models_by_section}
    return params.model_dump() | {"llm_of": by_section}


if __name__ == "__main__":
    main()
