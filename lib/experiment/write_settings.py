"""The command that writes the settings which the pipeline's stages depend on."""

import argparse

from lib.config.load import load
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
    options = parser.parse_args(arguments)
    try:
        # The settings of recorded runs stand beside them, for lessons that show such a run.
        full_settings = load("full").model_dump()
        artifacts.write_json(
            options.out, load(options.profile).model_dump() | {"full": full_settings}
        )
    except ParamsError as error:
        raise SystemExit(f"error: {error}") from None
    if renamed := earlier_jobs.migrate():
        print(f"{renamed} finished jobs of an earlier version are kept under today's names")


if __name__ == "__main__":
    main()
