"""Bring finished jobs that an earlier version kept to today's names, so that a rename trains nothing again.

A job's key is a hash of its settings, and a setting has a name. Where settings or the columns of the results table
are renamed, the finished jobs under `data/runs` are renamed too: the settings in `job.json`, the folder (its name is
the key), and the columns of the tables. No number changes. `migrate` is called once before the pipeline's stages run;
`schema.json` says which schema the folder has. Left out: what a number depends on, which is a VERSION.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as parquet

from lib.config import ROOT
from lib.experiment import artifacts
from lib.experiment.sweep import Job

RUNS = ROOT / "data/runs"
MODELS = ROOT / "data/models"  # their cards are hashed into the keys of the jobs that ask them
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
COLUMNS_OF = {
    "conductor/items": {
        "category": "group",
        "score": "correct",
        "right": "verified",
        "tokens": "tokens_out",
    },
    "conductor/agreement": {"category": "group"},
    "conductor/components": {"category": "group", "right": "verified"},
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
}

# Values that were numbers and are names now, by table and column; the last name is that of -1.
NAMES_OF = {"conductor/rollouts": {"action": ("fmt", "ppl", "ent", "len", "pref", "")}}
RESULTS = {  # names in the receipts of jobs, besides those of columns
    "constant_dollars": "constant_cost_usd",
    "oracle_dollars": "oracle_cost_usd",
}

# Names of settings wherever they stand, and those of one sweep, by the path of the setting in it.
SETTINGS = {
    "arm": "variant",
    "dollars": "cost_usd",
    "diet": "data_mixture",
    "arms": "variants",  # this and those below: of `versions`
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
    "toolorchestra_glass": {"glass.blur": "observation_noise"},
}
KINDS = {"arm": "variant"}  # of jobs, the value of the setting `job`
# Hashes of settings that stand in other settings: the recipe of lab-reader, from which lab-team is trained.
HASHES = {
    "1bbcf8ef945f1e26b5a0d9fc4daaeb5922ce1f0224bcb01ecb77eff0631f8fb4": (
        "1912a4760151ad86794942b5f4573a48f1a50b57e16675db89f65e1de63fea12"
    ),
}


def mark_new_copy(runs: str | Path) -> None:
    """Writes down that a working copy without jobs has nothing to rename, now or later.

    Sweeps call it before they run: jobs of a notebook that somebody opened first have today's names, and the pipeline
    must not take them for earlier ones.

    Args:
        runs: Folder of the sweeps' folders.
    """
    stamp = Path(runs) / STAMP
    has_jobs = next(Path(runs).rglob("job.json"), None) is not None
    if not (stamp.exists() or has_jobs):
        artifacts.write_json(stamp, {"schema": SCHEMA, "keys": {}, "hashes": {}})


def migrate(runs: str | Path = RUNS, models: str | Path = MODELS) -> int:
    """Rename what an earlier version kept under `runs`; does nothing where it is done.

    Killed anywhere and called again, it goes on: the new keys are written down before the first folder is renamed.

    Args:
        runs: Folder of the sweeps' folders.
        models: Folder of the small models' folders.

    Returns:
        How many finished jobs have another key now.
    """
    runs = Path(runs)
    mark_new_copy(runs)
    stamp = runs / STAMP
    state = (
        artifacts.read_json(stamp) if stamp.exists() else {"schema": 1, "keys": {}, "hashes": {}}
    )
    if state["schema"] >= SCHEMA:
        return 0
    records = {}
    for path in sorted(runs.rglob("job.json")):
        record = artifacts.read_json(path)
        # A job under another root seed has another name than its settings give here, and is left alone.
        is_ours = path.parent.name == Job(record["label"], record["settings"]).key
        if (is_ours or path.parent.name in state["keys"]) and (path.parent / "done.json").exists():
            records[path.parent] = record
    cards = {
        path: _rename_keys(artifacts.read_json(path), COLUMNS, {})
        for path in sorted(Path(models).glob("*/card.json"))
    }
    hashes = HASHES | state["hashes"]
    for path, card in cards.items():
        content = artifacts.to_json(card).encode()
        hashes[artifacts.sha256_file(path)] = hashlib.sha256(content).hexdigest()
    keys = state["keys"] | _plan_keys(records, runs, hashes | state["keys"])
    artifacts.write_json(stamp, {"schema": 1, "keys": keys, "hashes": hashes})

    for folder, record in records.items():
        _migrate_job(folder, record, hashes | keys, runs)
    for path, card in cards.items():
        artifacts.write_json(path, card)
    artifacts.write_json(stamp, {"schema": SCHEMA, "keys": {}, "hashes": {}})
    return sum(earlier != today for earlier, today in keys.items())


def _plan_keys(
    records: Mapping[Path, dict[str, Any]], runs: Path, known: Mapping[str, str]
) -> dict[str, str]:
    """Computes the new key of every job whose settings are renamed.

    A job may name other jobs by their keys, so that those are renamed before it.

    Args:
        records: The content of job.json by the folder of the job.
        runs: Folder of all sweeps.
        known: New keys of jobs that were renamed before, by their earlier key.

    Returns:
        New keys by earlier key; jobs that name one another in a circle are left out.
    """
    pending = dict(records)
    earlier_keys = {folder.name for folder in records}
    keys: dict[str, str] = {}
    while pending:
        ready = [
            folder
            for folder, record in pending.items()
            if _named_keys(record["settings"]) & earlier_keys <= set(keys) | {folder.name}
        ]
        if not ready:
            break  # jobs that name one another in a circle were not written by a sweep
        for folder in ready:
            record = pending.pop(folder)
            keys[folder.name] = _rename_job(folder, record, {**known, **keys}, runs).key
    return keys


def _rename_job(
    folder: Path, record: Mapping[str, Any], keys: Mapping[str, str], runs: Path
) -> Job:
    sweep_name = folder.parent.relative_to(runs).as_posix()
    names = SETTINGS | SETTINGS_OF.get(sweep_name, {})
    return Job(record["label"], _rename_keys(record["settings"], names, keys))


def _migrate_job(
    folder: Path, record: Mapping[str, Any], keys: Mapping[str, str], runs: Path
) -> None:
    """Renames the columns of one job's tables, its settings, and its folder.

    Args:
        folder: Folder of the job.
        record: The content of its job.json.
        keys: New keys of jobs by their earlier key.
        runs: Folder of all sweeps.
    """
    sweep_name = folder.parent.relative_to(runs).as_posix()
    for path in sorted(folder.glob("*.parquet")):
        table = f"{sweep_name}/{path.stem}"
        _rename_columns(path, COLUMNS | COLUMNS_OF.get(table, {}))
        for column, names in NAMES_OF.get(table, {}).items():
            _name_values(path, column, names)
    receipt = artifacts.read_json(folder / "done.json")
    artifacts.write_json(folder / "done.json", _rename_keys(receipt, COLUMNS | RESULTS, {}))
    job = _rename_job(folder, record, keys, runs)
    artifacts.write_json(folder / "job.json", {"label": job.label, "settings": job.settings})
    # A folder under today's key is a job that has run since: it is newer, and stays.
    target = folder.parent / job.key
    if target != folder and not target.exists():
        folder.rename(target)


def _rename_columns(path: Path, names: Mapping[str, str]) -> None:
    columns = parquet.read_schema(path).names
    earlier_columns = [name for name in columns if name in names]
    if earlier_columns:
        table = artifacts.read_parquet(path).rename(columns=names)
        artifacts.write_parquet(path, table)


def _name_values(path: Path, column: str, names: Sequence[str]) -> None:
    table = artifacts.read_parquet(path)
    if pd.api.types.is_integer_dtype(table[column]):
        table[column] = [names[number] for number in table[column]]
        artifacts.write_parquet(path, table)


def _rename_keys(
    value: Any, names: Mapping[str, str], keys: Mapping[str, str], path: str = ""
) -> Any:
    """Renames settings in nested dictionaries, and replaces the keys of jobs that they name.

    Args:
        value: A dictionary, a list or a plain value.
        names: New names by the name of a setting, or by its dotted path where only that one is renamed.
        keys: New keys of jobs by their earlier key.
        path: Dotted path of `value`; empty at the top.
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
