"""Train the lab models anew, compare their behaviour with the released ones, and release them if asked to.

    python -m lib models retrain              train with the released seed, compare
    python -m lib models retrain --seed 1     with another one
    python -m lib models retrain --ship       release what was trained
    python -m lib models retrain lab-facts    one model, and those that it starts from

Both zoos are asked what a model was taught, on the same items, some thousands a skill. The differences stand in
`data/lab/alike.json`, a row for every model, skill, seed and class of processor instructions that was tried. Lesson
03 shows from it how far the zoo depends on the machine that trained it.
"""

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import LlamaForCausalLM

from lib import config, tasks
from lib.config import ROOT, LabModelSettings, LabSettings, MixtureComponent
from lib.experiment import artifacts, seeds, sweep
from lib.language_models import chat_template, checkpoints, generation, kv_cache_forward, tokenizer
from lib.language_models.chat_template import encode_conversation
from lib.language_models.checkpoints import ModelError
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.training import (
    agent_traces,
    build,
    released_weights,
    team_traces,
    training_data,
)
from lib.language_models.training.pretraining import NotLearned, find_solved_items, verify_replies
from lib.language_models.training.released_weights import LAB
from lib.language_models.training.training_data import TRACE_WRITERS

RUNS = ROOT / "data/runs/lab-zoo"
CARD = "alike.json"
COLUMNS = [  # of that file
    "model",
    "seed",
    "machine",
    "skill",
    "items",
    "shipped",
    "anew",
    "value",
    "ci_low",
    "ci_high",
    "alike",
]
MARGIN = 0.05  # of accuracy, within which two zoos behave alike
_Z = 1.96  # of a 95 % interval


def find_solved_by_skill(
    model: LlamaForCausalLM, data_mixture: Sequence[MixtureComponent], n: int
) -> dict[str, np.ndarray]:
    """Test a model on every skill that a data mixture teaches.

    A skill is a family in a style: asked plainly, or the first turn of a trace in a random role with random tools.

    Args:
        model: A lab model.
        data_mixture: What it was taught; answers alone (style brief) are no skill of their own.
        n: Test items per skill, divided among its components.

    Returns:
        By skill: (n,) bool, whether each item is solved.
    """
    forward = Forward(model)
    components = [component for component in data_mixture if component.style != "brief"]
    skills = [f"{component.family} {component.style}" for component in components]
    solved_by_skill: dict[str, list[np.ndarray]] = {}
    for component, skill in zip(components, skills, strict=True):
        # Rounded up; what is too much is cut off below.
        num_items = -(-n // skills.count(skill))
        solved = _test_component(forward, component, num_items)
        solved_by_skill.setdefault(skill, [])
        solved_by_skill[skill].append(solved)
    return {skill: np.concatenate(solved)[:n] for skill, solved in solved_by_skill.items()}


def _test_component(forward: Forward, component: MixtureComponent, n: int) -> np.ndarray:
    """Test a model on one component of the data mixture that it was trained on.

    Args:
        forward: The forward pass of a lab model.
        component: A task family with its difficulties and style: plain questions, or conversations of agents.
        n: Number of test items.

    Returns:
        (n,) bool, whether each item is solved: by the answer, or by the same first turn as a good agent's.
    """
    items = tasks.draw_items(
        component.family, "test", n, component.difficulties, component.skin, seed=23
    )
    if component.style == "plain":
        return find_solved_items(forward, items)
    rng = seeds.rng("models", "alike", component.family, component.style)
    turns = []
    for item in items:
        messages, tools = TRACE_WRITERS[component.style](item, rng)
        turn = agent_traces.get_first_turn(messages, tools)
        turns.append(turn)
    conversations = [encode_conversation(turn.messages, turn.tools) for turn in turns]
    checks = [partial(agent_traces.agrees_with_trace, target=turn.target) for turn in turns]
    return verify_replies(forward, conversations, checks)


def measure_one_model(
    job: sweep.Job, folder: Path, progress, weight_folders: Mapping[str, str]
) -> dict[str, list[int]]:
    """Test one lab model, retrained or released, on the skills that it was taught: the function of a sweep's job.

    Args:
        job: As `measure_skills` makes it; its settings name the model.
        folder: Folder of the job; nothing is written.
        progress: Not called.
        weight_folders: Folders of retrained models, by name; released ones are unpacked.

    Returns:
        By skill: 1 or 0 for every test item.
    """
    # One thread sums in one order, so numbers do not depend on the machine's load; jobs share the cores.
    torch.set_num_threads(1)
    # Denormal numbers are slow on a CPU and too small to matter.
    torch.set_flush_denormal(True)
    name = job.settings["name"]
    settings = config.validate_settings(job.settings["model"], LabModelSettings)
    if job.settings["retrained"]:
        model = checkpoints.load(weight_folders[name])
    else:
        model = released_weights.unpack(name, settings)
    solved_by_skill = find_solved_by_skill(model, settings.data_mixture, job.settings["num_items"])
    return {skill: solved.astype(int).tolist() for skill, solved in solved_by_skill.items()}


def measure_skills(
    settings: LabSettings, runs: Path, retrained: bool
) -> dict[str, dict[str, np.ndarray]]:
    """Test every lab model on the skills that it was taught.

    Args:
        settings: The models, and how many items each skill is tested on.
        runs: Where trained models and test results are kept.
        retrained: Whether to test the models that were trained under `runs`, or else the released weights.

    Returns:
        By model and skill: (num_items,) bool, whether each test item was solved.
    """
    weight_folders, jobs = {}, []
    for name, model in settings.models.items():
        training_job = build.make_training_job(settings, name, use_released=False)
        weight_folders[name] = str(training_job.folder(runs) / "model")
        decided_by = {
            "job": "test skills",
            "name": name,
            "model": model.model_dump(),
            "weights": training_job.key if retrained else released_weights.card(name)["sha256"],
            "retrained": retrained,
            "num_items": settings.retrain_check_items,
            "versions": versions(),
            "machine": torch.backends.cpu.get_cpu_capability(),  # replies may differ between instruction sets
        }
        jobs.append(sweep.Job(f"{'retrained' if retrained else 'released'}/{name}", decided_by))
    work = partial(measure_one_model, weight_folders=weight_folders)
    receipts = sweep.run(work, jobs, runs / "skills", settings.jobs, f"asking {len(jobs)} models")

    solved_by_model = {}
    for job, receipt in zip(jobs, receipts, strict=True):
        solved = {skill: np.array(flags) for skill, flags in receipt["result"].items()}
        solved_by_model[job.settings["name"]] = solved
    return solved_by_model


def versions() -> dict[str, int]:
    """Collect the VERSION numbers of the modules that decide which test items a model solves, for a cache key."""
    return {
        "random streams": seeds.VERSION,
        "tasks": tasks.VERSION,
        "tokenizer": tokenizer.VERSION,
        "chat template": chat_template.VERSION,
        "initial weights": checkpoints.VERSION,
        "training batches": training_data.VERSION,  # how a question is written
        "forward pass": kv_cache_forward.VERSION,
        "generation": generation.VERSION,
        "agent traces": agent_traces.VERSION,
        "team traces": team_traces.VERSION,
    }


def compare_zoos(
    released: Mapping[str, Mapping[str, np.ndarray]],
    retrained: Mapping[str, Mapping[str, np.ndarray]],
) -> pd.DataFrame:
    """Compare the accuracies of retrained and released models on the same test items.

    Args:
        released: By model and skill (n,) bool, whether each item was solved.
        retrained: The same of the models that were trained anew.

    Returns:
        One row a model and skill: model, skill, items (how many), shipped and anew (accuracies of the released and the
        retrained model), value (paired difference, retrained minus released) with its 95 % interval ci_low and
        ci_high, and alike: whether the interval lies within MARGIN of 0.
    """
    rows = []
    for name, solved_by_skill in released.items():
        for skill, solved in solved_by_skill.items():
            # Both models saw the same items, so differences are paired; the interval assumes a normal mean.
            differences = retrained[name][skill].astype(float) - solved  # (n,)
            value = float(differences.mean())
            half_width = _Z * float(differences.std(ddof=1)) / len(differences) ** 0.5
            rows.append(
                {
                    "model": name,
                    "skill": skill,
                    "items": len(differences),
                    "shipped": float(solved.mean()),
                    "anew": float(retrained[name][skill].mean()),
                    "value": value,
                    "ci_low": value - half_width,
                    "ci_high": value + half_width,
                    "alike": max(half_width - value, value + half_width) <= MARGIN,
                }
            )
    return pd.DataFrame(rows)


def release_zoo(settings: LabSettings, runs: Path, root: str | Path = LAB) -> int:
    """Write the weights of all retrained lab models, with their training cards, as the released ones.

    Args:
        settings: Settings of the models.
        runs: Folder of the jobs that trained them.
        root: Folder of the released weights.

    Returns:
        Bytes of all released weights.
    """
    for name in settings.models:
        training_job = build.make_training_job(settings, name, use_released=False)
        folder = training_job.folder(runs)
        attempt = sweep.read_receipt(training_job, runs)["result"]["attempt"]
        curve = artifacts.read_parquet(folder / "curve.parquet")
        released_weights.ship(
            checkpoints.load(folder / "model"),
            name,
            build.make_recipe(settings, name),
            attempt,
            curve,
            root,
        )
    return released_weights.size(root)


def read_comparisons(root: str | Path = LAB) -> pd.DataFrame:
    """Read all comparisons with the weights that are released now.

    Args:
        root: Folder of the released weights, and of the file of comparisons.

    Returns:
        Rows of `compare_zoos` with the seed and the machine (class of instructions) of the retrained zoo: COLUMNS.
        Rows about earlier weights are left out.

    Raises:
        ModelError: For a file that cannot be read.
    """
    path = Path(root) / CARD
    if not path.is_file():
        return pd.DataFrame(columns=COLUMNS)
    try:
        rows = pd.DataFrame(artifacts.read_json(path), columns=["weights", *COLUMNS])
        released = rows["model"].map(lambda name: _shorten_hash(name, root))
        return rows[rows["weights"].eq(released)][COLUMNS]
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{path} is no card of comparisons ({error}); {released_weights.REMEDY}"
        ) from error


def _shorten_hash(name: str, root: str | Path) -> str:
    """Return the first 12 digits of the hash of a model's released weights; "" where there are none."""
    card = released_weights.card(name, root)
    return card["sha256"][:12] if card else ""


def save_comparison(table: pd.DataFrame, seed: int, root: str | Path = LAB) -> None:
    """Add a comparison of retrained and released models to the file of comparisons, data/lab/alike.json.

    Args:
        table: As `compare_zoos` returns it; it replaces rows of the same model, seed and machine.
        seed: Seed of the retrained models.
        root: Folder of the released weights.

    Raises:
        ModelError: For a file that cannot be read.
    """
    machine = torch.backends.cpu.get_cpu_capability()
    new_rows = table.round(4).assign(seed=seed, machine=machine)
    old_rows = read_comparisons(root)
    key = ["model", "seed", "machine"]
    new_keys = new_rows.set_index(key).index
    is_replaced = old_rows.set_index(key).index.isin(new_keys)
    kept_rows = old_rows[~is_replaced]
    rows = pd.concat([kept_rows, new_rows[COLUMNS]])
    rows = rows.sort_values([*key, "skill"])
    # A row says which weights it is about, so that it is left out once others are released.
    weights = [_shorten_hash(name, root) for name in rows["model"]]
    rows.insert(0, "weights", weights)
    artifacts.write_json(Path(root) / CARD, rows.to_dict("records"))


def select_demo_model(settings: LabSettings) -> LabSettings:
    """Reduce the settings to the model that a lesson trains while the reader watches.

    Args:
        settings: All lab models.

    Returns:
        The settings with `demo_model` alone, trained for `demo_steps` updates where that is not None.
    """
    model = settings.models[settings.demo_model]
    if settings.demo_steps is not None:
        # So few updates reach no target.
        no_target = model.target.model_copy(update={"accuracy": 0.0})
        warmup = min(model.warmup, settings.demo_steps)
        changes = {"steps": settings.demo_steps, "warmup": warmup, "target": no_target}
        model = model.model_copy(update=changes)
    return settings.model_copy(update={"models": {settings.demo_model: model}})


def select_models(settings: LabSettings, names: Sequence[str]) -> LabSettings:
    """Reduce the settings to some lab models and those whose weights they start from (their `base`).

    Args:
        settings: Settings of all lab models.
        names: Names of models; none selects all.

    Returns:
        The settings, with fewer models.

    Raises:
        ModelError: For a name that is no lab model.
    """
    unknown = sorted(set(names) - set(settings.models))
    if unknown:
        raise ModelError(
            f"{unknown[0]} is no lab model; params.yaml (lab.models) has {', '.join(settings.models)}"
        )
    selected = set()
    for name in names or settings.models:
        while name is not None and name not in selected:
            selected.add(name)
            name = settings.models[name].base
    models = {name: model for name, model in settings.models.items() if name in selected}
    return settings.model_copy(update={"models": models})


def main(argv: Sequence[str] | None = None) -> int:
    """Run `python -m lib models retrain`: train lab models anew, and compare them with the released ones.

    Args:
        argv: Arguments of the command line; None takes those of the process.

    Returns:
        The exit code: 1 where a training misses its target or the models do not behave alike, else 0.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lib models retrain",
        description=__doc__.split("\n")[0],
    )
    parser.add_argument("models", nargs="*", help="which; default: all")
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="of corpora and first weights; default: the released one",
    )
    parser.add_argument("--ship", action="store_true", help="release what was trained, in data/lab")
    options = parser.parse_args(argv)
    settings = config.load().lab
    if options.ship and options.seed not in (None, settings.seed):
        parser.error(
            "only the seed of params.yaml (lab.seed) can be shipped, or recipe and weights would disagree"
        )
    seed = settings.seed if options.seed is None else options.seed
    started = time.monotonic()
    # A command shows its progress where it runs.
    os.environ.setdefault("BENCH_PROGRESS", sweep.STDERR)
    try:
        exit_code = retrain(select_models(settings, options.models), seed, options.ship)
    except (ModelError, NotLearned) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{(time.monotonic() - started) / 60:.1f} minutes on {os.cpu_count()} cores")
    return exit_code


def retrain(settings: LabSettings, seed: int, release: bool) -> int:
    """Train lab models anew, and release them or compare them with the released ones.

    Args:
        settings: The models, with the seed of the released ones.
        seed: To train with.
        release: Whether to release them.

    Returns:
        1 where the zoos do not behave alike, else 0.

    Raises:
        NotLearned: Where a training misses its target.
        ModelError: Where there is nothing to compare with.
    """
    retrained_settings = settings.model_copy(update={"seed": seed})
    # What another class of processor trained is another zoo.
    runs = RUNS / torch.backends.cpu.get_cpu_capability()
    build.build_models(retrained_settings, runs / "models", runs, use_released=False)
    if release:
        num_bytes = release_zoo(retrained_settings, runs)
        print(f"{num_bytes:_} bytes of weights are in {LAB.relative_to(ROOT)}")
        return 0

    missing = [name for name in settings.models if released_weights.card(name) is None]
    if missing:
        raise ModelError(
            f"{', '.join(missing)} is not shipped, so there is nothing to compare with; {released_weights.REMEDY}"
        )
    released_skills = measure_skills(settings, runs, retrained=False)
    retrained_skills = measure_skills(retrained_settings, runs, retrained=True)
    table = compare_zoos(released_skills, retrained_skills)
    save_comparison(table, seed)
    print(table.drop(columns=["items"]).to_string(index=False, float_format="{:.3f}".format))
    num_different = int((~table["alike"]).sum())
    largest = table["value"].abs().max()
    print(
        f"largest difference {largest:.3f}; {num_different} of {len(table)} skills are not within {MARGIN}"
    )
    return int(num_different > 0)
