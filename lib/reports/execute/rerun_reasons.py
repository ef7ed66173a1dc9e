"""Why DVC runs a stage: what differs from the entry that the stage's last run left in dvc.lock.

Read in this process, without DVC's locks, from the hashes that DVC remembers. Left out: why a job of a sweep is run
again, which `lib.experiment.sweep` explains.
"""

import logging
from pathlib import Path

from lib.experiment.sweep import describe_changes

MAX_NAMES = 4  # dependencies that are named before the rest is counted


def explain_run(name: str, root: Path) -> str:
    """Why DVC runs a stage.

    Args:
        name: Stage of dvc.yaml.
        root: Folder of the pipeline.

    Returns:
        "runs for the first time", or what changed, such as
        "runs again: lib/budgeted_routing changed; routing.updates.soft 60 -> 80". Empty where that cannot be found out.
    """
    try:
        return _compare_with_lock(name, root)
    except Exception:  # whatever DVC raises: a run without this line is better than no run
        return ""


def _compare_with_lock(name: str, root: Path) -> str:
    """Explains why DVC runs a stage: what differs from its record in dvc.lock.

    Args:
        name: Name of the stage.
        root: The project's folder.

    Returns:
        A sentence.
    """
    # Imported here: it takes longer than all else, and only DVC's own runs need it.
    from dvc.repo import Repo

    # The DVC that started this run prints the messages that matter.
    logging.getLogger("dvc").setLevel(logging.CRITICAL)
    with Repo(str(root)) as repo:
        stage = repo.stage.load_one(path=str(root / "dvc.yaml"), name=name)
        if not any(dependency.hash_info for dependency in stage.deps):
            return "runs for the first time"
        changes = [*_changed_files(stage), *_changed_settings(stage)]
        if stage.cmd_changed:
            changes.append("another command")
    nothing = "none of its dependencies changed; an output is missing or was edited, or somebody forced it"
    return f"runs again: {'; '.join(changes) or nothing}"


def _changed_files(stage) -> list[str]:
    """Lists changed and new dependencies of a stage, such as ["lib/llm, lib/rl changed"].

    Args:
        stage: Stage of DVC.
    """
    new, changed = [], []
    for dependency in stage.deps:
        if _is_settings(dependency):
            continue
        if not dependency.hash_info:
            new.append(dependency.def_path)
        elif dependency.workspace_status():
            changed.append(dependency.def_path)
    lines = [f"{_name_first(changed)} changed"] if changed else []
    if new:
        lines.append(
            f"{_name_first(new)} {'is a new dependency' if len(new) == 1 else 'are new dependencies'}"
        )
    return lines


def _changed_settings(stage) -> list[str]:
    """Such as ["profile smoke -> laptop, zoo.seeds 2 -> 5"]."""
    lines = []
    for dependency in filter(_is_settings, stage.deps):
        lines += describe_changes(dependency.hash_info.value or {}, dependency.read_params())
    return [", ".join(lines)] if lines else []


def _is_settings(dependency) -> bool:
    return dependency.hash_name == "params"


def _name_first(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    num_more = len(names) - MAX_NAMES
    text = ", ".join(names[:MAX_NAMES])
    return f"{text} and {num_more} more" if num_more > 0 else text
