"""The bench: environments, policies, orchestrators and what the notebooks need of them."""

import os
import sys

# Before any Hugging Face library is imported, for they look once: nothing is fetched, and nobody is told (TRL's
# trainers report home otherwise).
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

EARLIER_COMMANDS = {  # modules that were started with `python -m`, and what is started now
    "lib.budgeted_routing": "lib train corl",
    "lib.claims.replicate": "lib replicate",
    "lib.conductor": "lib train maestro",
    "lib.configuration": "lib ask",
    "lib.meeting": "lib router evaluate",
    "lib.models.alike": "lib models retrain",
    "lib.models.pretrained": "lib models unpack",
    "lib.models.server": "lib models serve",
    "lib.page.metrics": "lib metrics",
    "lib.params": "lib.experiment.write_settings",
    "lib.routing": "lib train corl",
    "lib.routing.toolorchestra": "lib tasks make",
    "lib.run": "lib.reports.execute",
    "lib.teaching.exercises": "lib exercises",
    "lib.teaching.slides": "lib slides",
    "lib.teaching.student": "lib student",
    "lib.tool_orchestration": "lib tasks make",
}


def _name_new_command(command_line: list[str]) -> None:
    """Ends a command that was started under an earlier name, and says what it is called now."""
    module = command_line[command_line.index("-m") + 1 :][:1] if "-m" in command_line else []
    if module and module[0] in EARLIER_COMMANDS:
        now = EARLIER_COMMANDS[module[0]]
        sys.exit(f"python -m {module[0]} is now: python -m {now} (--help lists what it takes)")


_name_new_command(sys.orig_argv)
