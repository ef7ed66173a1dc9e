"""The bench: environments, policies, orchestrators and what the notebooks need of them."""

import os
import sys

# Before any Hugging Face library is imported, for they look once: nothing is fetched, and nobody is told (TRL's
# trainers report home otherwise).
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

EARLIER_COMMANDS = {  # modules of lib that `python -m` started, and what is started now
    "budgeted_routing": "python -m lib train corl",
    "claims.replicate": "python -m lib replicate",
    "conductor": "python -m lib train maestro",
    "configuration": "python -m lib ask",
    "meeting": "python -m lib router evaluate",
    "models.alike": "python -m lib models retrain",
    "models.pretrained": "python -m lib models unpack",
    "models.server": "python -m lib models serve",
    "page.metrics": "python -m lib metrics",
    "params": "python -m lib.experiment.write_settings",
    "routing": "python -m lib train corl",
    "routing.toolorchestra": "python -m lib tasks make",
    "run": "python -m lib.reports.execute",
    "teaching.exercises": "python -m lib exercises",
    "teaching.slides": "python -m lib slides",
    "teaching.student": "python -m lib student",
    "tool_orchestration": "python -m lib tasks make",
}


def _name_new_command(command_line: list[str]) -> None:
    """Ends a command that was started under an earlier name, and says what it is called now."""
    started = command_line[command_line.index("-m") + 1 :][:1] if "-m" in command_line else []
    for module, now in EARLIER_COMMANDS.items():
        if started == [f"lib.{module}"]:
            sys.exit(f"python -m lib.{module} is now: {now} (--help lists what it takes)")


_name_new_command(sys.orig_argv)
