"""Bring finished jobs that an earlier version kept to today's names, so that a rename trains nothing again.

A job's key is a hash of its settings, and a setting has a name. Where settings or the columns of the results table
are renamed, the finished jobs under `data/runs` are renamed too: the settings in `job.json`, the folder (its name is
the key), and the columns of the tables. No number changes. `migrate` is called once before the pipeline's stages run;
`schema.json` says which schema the folder has. Left out: what a number depends on, which is a VERSION.
"""

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet

from lib.config import ROOT
from lib.experiment import artifacts
from lib.experiment.sweep import Job

RUNS = ROOT / "data/runs"
SCHEMA = 2  # of the names below; raised with each rename of settings or columns
STAMP = "schema.json"
_KEY = re.compile(r"[0-9a-f]{16}")

# Columns of every table, and of one table of one sweep, by its path without the job's key.
COLUMNS = {
    "arm": "method",
    "right": "correct",
    "heat": "temperature",
    "try": "sample",
    "dollars": "cost_usd",
    "own_dollars": "own_cost_usd",
    "lo": "ci_low",
    "hi": "ci_high",
}
_CONFIGURATION = {"kind": "group", "tokens": "tokens_out", "update": "step"}
_EPISODES = {"kind": "group", "label": "condition", "called": "chosen", "update": "step"}
_EXPERTS = {"kind": "group", "strategy": "method"}
_TOOLS = {
    "kind": "group",
    "group": "rollout_group",
    "own": "own_cost_usd",
    "called": "chosen",
    "menu": "offered",
    "exam": "style",
    "update": "step",
}
COLUMNS_OF = {
    "conductor/items": {
        "category": "group",
        "score": "correct",
        "right": "verified",
        "tokens": "tokens_out",
    },
    "conductor/agreement": {"category": "group"},
    "conductor/components": {"category": "group"},
    "conductor/rollouts": {
        "category": "group",
        "prompt": "item",
        "asked": "tokens_in",
        "tokens": "tokens_out",
        "quality": "correct",
    },
    **{
        f"configuration/{name}": _CONFIGURATION
        for name in ("greedy", "learning", "rollouts", "searched", "tests")
    },
    **{f"routing/{name}": _EPISODES for name in ("episodes", "learning", "rollouts")},
    **{f"routing/{name}": _EXPERTS for name in ("alone", "experts")},
    **{
        f"toolorchestra/{name}": _TOOLS
        for name in ("episodes", "learning", "pilot", "rollouts", "tried")
    },
}

# Names of settings wherever they stand, and those of one sweep, by the path of the setting in it.
SETTINGS = {
    "arm": "variant",
    "dollars": "cost_usd",
    "diet": "data_mixture",
    "arms": "variants",  # this and those below: of `versions`
    "arms of tool orchestration": "variants of tool orchestration",
    "routing arms": "routing variants",
    "trained arms": "trained variants",
    "training of arms": "training of variants",
}
SETTINGS_OF = {
    "configuration_glass": {
        "glass.looks": "eval_points",
        "glass.dice": "num_samples",
        "glass.blur": "observation_noise",
    },
    "orchestration": {
        "orchestration.copies": "rollout_copies",
        "orchestration.depths": "lookahead_depths",
        "orchestration.sparing": "decision_intervals",
    },
    "recorded": {"settings.ahead": "min_dev_gain"},
    "routing": {
        "routing.unit": "budget_unit_usd",
        "routing.high": "high_budget_usd",
        "routing.numbers": "numeric_budgets",
    },
    "toolorchestra": {"tools.warm.lean": "preference_bias"},
    "toolorchestra_glass": {"glass.blur": "observation_noise"},
}
KINDS = {"arm": "variant"}  # of jobs, the value of the setting `job`
# Hashes of settings that stand in other settings: the recipe of lab-reader, from which lab-team is trained.
HASHES = {
    "1bbcf8ef945f1e26b5a0d9fc4daaeb5922ce1f0224bcb01ecb77eff0631f8fb4": (
        "1912a4760151ad86794942b5f4573a48f1a50b57e16675db89f65e1de63fea12"
    ),
}


def migrate(runs: str | Path = RUNS) -> int:
    """Rename what an earlier version kept under `runs`; does nothing where it is done.

    Args:
        runs: Folder of the sweeps' folders.

    Returns:
        How many finished jobs have another key now.
    """
    runs = Path(runs)
    stamp = runs / STAMP
    if not runs.is_dir() or (stamp.exists() and artifacts.read_json(stamp)["schema"] >= SCHEMA):
        return 0
    pending = {
        path.parent: artifacts.read_json(path)
        for path in sorted(runs.rglob("job.json"))
        if (path.parent / "done.json").exists()
    }
    earlier_keys = {folder.name for folder in pending}
    keys = dict(HASHES)  # today's key, by the earlier one
    while pending:
        # A job that names another one by its key waits until that one has its new key.
        ready = [
            folder
            for folder, record in pending.items()
            if not (_named_keys(record["settings"]) & earlier_keys - {folder.name}) - set(keys)
        ]
        if not ready:
            break  # what is left names jobs in a circle, so it was not written by a sweep
        for folder in ready:
            record = pending.pop(folder)
            keys[folder.name] = _migrate_job(folder, record, keys, runs)
    artifacts.write_json(stamp, {"schema": SCHEMA})
    return sum(earlier != today for earlier, today in keys.items()) - len(HASHES)


def _migrate_job(folder: Path, record: dict[str, Any], keys: dict[str, str], runs: Path) -> str:
    """Rename the columns, the settings and the folder of one job; its new key."""
    sweep_name = folder.parent.relative_to(runs).as_posix()
    for path in sorted(folder.glob("*.parquet")):
        _rename_columns(path, COLUMNS | COLUMNS_OF.get(f"{sweep_name}/{path.stem}", {}))
    done = artifacts.read_json(folder / "done.json")
    artifacts.write_json(folder / "done.json", _rename_keys(done, COLUMNS, {}))
    settings = _rename_keys(record["settings"], SETTINGS | SETTINGS_OF.get(sweep_name, {}), keys)
    job = Job(record["label"], settings)
    artifacts.write_json(folder / "job.json", {"label": job.label, "settings": settings})
    target = folder.parent / job.key
    if target != folder and not target.exists():
        folder.rename(target)
    return job.key


def _rename_columns(path: Path, names: dict[str, str]) -> None:
    table = parquet.read_table(path)
    renamed = [names.get(column, column) for column in table.column_names]
    if renamed != table.column_names and len(set(renamed)) == len(renamed):
        artifacts.write_parquet(path, table.rename_columns(renamed).to_pandas())


def _rename_keys(value: Any, names: dict[str, str], keys: dict[str, str], path: str = "") -> Any:
    """Nested settings with today's names, and with today's keys of the jobs that they name.

    names: By the name of a setting, or by its dotted path where only that one is renamed.
    """
    if isinstance(value, dict):
        renamed = {}
        for name, inner in value.items():
            inner_path = f"{path}.{name}" if path else name
            today = names.get(inner_path, names.get(name, name))
            renamed[today] = _rename_keys(inner, names, keys, inner_path)
        if "job" in value:
            renamed["job"] = KINDS.get(value["job"], value["job"])
        return renamed
    if isinstance(value, list):
        return [_rename_keys(inner, names, keys, path) for inner in value]
    return keys.get(value, value) if isinstance(value, str) else value


def _named_keys(value: Any) -> set[str]:
    """Everything in nested settings that looks like a job's key."""
    if isinstance(value, dict):
        return set().union(*map(_named_keys, value.values()))
    if isinstance(value, list):
        return set().union(*map(_named_keys, value))
    return {value} if isinstance(value, str) and _KEY.fullmatch(value) else set()
