"""Train the lab zoo anew, say whether it behaves like the shipped one, and ship it if told so.

    python -m lib models retrain              train with the shipped seed, compare
    python -m lib models retrain --seed 1     with another one
    python -m lib models retrain --ship       keep what was trained as the shipped zoo
    python -m lib models retrain lab-facts    one model, and those that it is made of

What a model was taught is asked of both zoos on the same items, some thousands a skill; the differences stand in
`data/lab/alike.json`, a row for every model, skill, seed and class of processor instructions that was tried. It is
what lesson 03 prints about how far the zoo depends on the machine that trained it.
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
from lib.config import ROOT, Course, LabModel, LabSettings
from lib.experiment import artifacts, seeds, sweep
from lib.language_models import chat_template, checkpoints, generation, kv_cache_forward, tokenizer
from lib.language_models.chat_template import conversation
from lib.language_models.checkpoints import ModelError
from lib.language_models.kv_cache_forward import Forward
from lib.language_models.training import (
    agent_traces,
    build,
    released_weights,
    team_traces,
    training_data,
)
from lib.language_models.training.pretraining import NotLearned, verify_replies
from lib.language_models.training.released_weights import LAB
from lib.language_models.training.training_data import TRACES, question

RUNS = ROOT / "data/runs/lab-zoo"
CARD = "alike.json"
COLUMNS = [
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


def skills(
    model: LlamaForCausalLM, data_mixture: Sequence[Course], n: int
) -> dict[str, np.ndarray]:
    """Which of n test items of every skill that a data mixture teaches the model solves, (n,) bool by skill.

    A skill is a family in a style: asked plainly, or the first turn of a trace in a random role with random tools. Its
    items are divided among its courses.
    """
    found: dict[str, list[np.ndarray]] = {}
    forward = Forward(model)
    courses = [course for course in data_mixture if course.style != "brief"]
    names = [f"{course.family} {course.style}" for course in courses]
    for course, name in zip(courses, names, strict=True):
        found.setdefault(name, []).append(_solved(forward, course, -(-n // names.count(name))))
    return {name: np.concatenate(parts)[:n] for name, parts in found.items()}


def _solved(forward: Forward, course: Course, n: int) -> np.ndarray:
    items = tasks.draw(course.family, "test", n, course.difficulties, course.skin, seed=23)
    if course.style == "plain":
        asked = [conversation(question(item)) for item in items]
        return verify_replies(forward, asked, [partial(tasks.verify, item) for item in items])
    rng = seeds.rng("models", "alike", course.family, course.style)
    turns = [agent_traces.first_turn(*TRACES[course.style](item, rng)) for item in items]
    asked = [conversation(turn.messages, turn.tools) for turn in turns]
    return verify_replies(
        forward, asked, [partial(agent_traces.agrees, wanted=turn.wanted) for turn in turns]
    )


def measure_one_model(
    job: sweep.Job, folder: Path, progress, weight_folders: Mapping[str, str]
) -> dict[str, list[int]]:
    """Test one model on its skills. weight_folders: of retrained models, by name; released ones are unpacked."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    name, settings = job.settings["name"], config.validate_settings(job.settings["model"], LabModel)
    if job.settings["retrained"]:
        model = checkpoints.load(weight_folders[name])
    else:
        model = released_weights.unpack(name, settings)
    solved_by_skill = skills(model, settings.data_mixture, job.settings["num_items"])
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
        training_job = build.make_training_job(settings, name, ships=False)
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
    """The VERSIONs of the code that decides which test items a model solves."""
    return {
        "random streams": seeds.VERSION,
        "tasks": tasks.VERSION,
        "tokenizer": tokenizer.VERSION,
        "chat template": chat_template.VERSION,
        "initial weights": checkpoints.VERSION,
        "training batches": training_data.VERSION,  # how a question is put
        "forward pass": kv_cache_forward.VERSION,
        "generation": generation.VERSION,
        "agent traces": agent_traces.VERSION,
        "team traces": team_traces.VERSION,
    }


def differences(old: Mapping[str, Mapping], new: Mapping[str, Mapping]) -> pd.DataFrame:
    """Accuracies of both zoos, new minus old by pairs of items with a 95 % interval, one row a model and skill: model,
    skill, items, shipped, anew, value, lo, hi, and alike: the interval lies within MARGIN."""
    rows = []
    for name, before in old.items():
        for skill, solved in before.items():
            gap = new[name][skill].astype(float) - solved
            half = _Z * float(gap.std(ddof=1)) / len(gap) ** 0.5
            value = float(gap.mean())
            row = {
                "model": name,
                "skill": skill,
                "items": len(gap),
                "shipped": float(solved.mean()),
            }
            row |= {
                "anew": float(new[name][skill].mean()),
                "value": value,
                "ci_low": value - half,
                "ci_high": value + half,
            }
            rows.append(row | {"alike": max(half - value, value + half) <= MARGIN})
    return pd.DataFrame(rows)


def ship(settings: LabSettings, runs: Path, root: str | Path = LAB) -> int:
    """Keep the zoo that was trained under `runs`; returns its bytes."""
    for name in settings.models:
        training_job = build.make_training_job(settings, name, ships=False)
        folder = training_job.folder(runs)
        attempt = sweep.read_receipt(training_job, runs)["result"]["attempt"]
        curve = artifacts.read_parquet(folder / "curve.parquet")
        released_weights.ship(
            checkpoints.load(folder / "model"),
            name,
            build.recipe(settings, name),
            attempt,
            curve,
            root,
        )
    return released_weights.size(root)


def compared(root: str | Path = LAB) -> pd.DataFrame:
    """All comparisons with the weights that are shipped now, a row each: COLUMNS, those of `differences` with the seed
    and the machine (class of instructions) of the new training. Rows about weights that are shipped no more are left
    out. Raises ModelError for a card that cannot be read."""
    place = Path(root) / CARD
    if not place.is_file():
        return pd.DataFrame(columns=COLUMNS)
    try:
        held = pd.DataFrame(artifacts.read_json(place), columns=["weights", *COLUMNS])
        return held[held["weights"].eq(held["model"].map(lambda name: _weights(name, root)))][
            COLUMNS
        ]
    except (OSError, ValueError, TypeError) as error:
        raise ModelError(
            f"{place} is no card of comparisons ({error}); {released_weights.REMEDY}"
        ) from error


def _weights(name: str, root: str | Path) -> str:
    """A short name of a model's shipped weights, empty where there are none."""
    held = released_weights.card(name, root)
    return held["sha256"][:12] if held else ""


def keep(table: pd.DataFrame, seed: int, root: str | Path = LAB) -> None:
    """Add a comparison to the card; rows of the same model, seed and machine are replaced."""
    now = table.round(4).assign(seed=seed, machine=torch.backends.cpu.get_cpu_capability())
    known = compared(root)
    key = ["model", "seed", "machine"]
    others = known[~known.set_index(key).index.isin(now.set_index(key).index)]
    rows = pd.concat([others, now[COLUMNS]]).sort_values([*key, "skill"])
    rows.insert(0, "weights", [_weights(name, root) for name in rows["model"]])
    artifacts.write_json(Path(root) / CARD, rows.to_dict("records"))


def alone(settings: LabSettings) -> LabSettings:
    """The settings with the model `lab.demo_model` alone, for `lab.demo_steps` updates where that is not None."""
    model = settings.models[settings.demo_model]
    if settings.demo_steps is not None:  # too few to reach anything
        short = {"steps": settings.demo_steps, "warmup": min(model.warmup, settings.demo_steps)}
        model = model.model_copy(
            update=short | {"target": model.target.model_copy(update={"accuracy": 0.0})}
        )
    return settings.model_copy(update={"models": {settings.demo_model: model}})


def only(settings: LabSettings, names: Sequence[str]) -> LabSettings:
    """The settings with these models and their bases; with all where no name is given. Raises ModelError for a name
    that is none."""
    unknown = sorted(set(names) - set(settings.models))
    if unknown:
        raise ModelError(
            f"{unknown[0]} is no lab model; params.yaml (lab.models) has {', '.join(settings.models)}"
        )
    wanted = set()
    for name in names or settings.models:
        while name is not None and name not in wanted:
            wanted.add(name)
            name = settings.models[name].base
    return settings.model_copy(
        update={"models": {name: m for name, m in settings.models.items() if name in wanted}}
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command. Returns 1 where a training misses its target or the zoos are not alike."""
    parser = argparse.ArgumentParser(
        prog="python -m lib models retrain",
        description=__doc__.split("\n")[0],
    )
    parser.add_argument("models", nargs="*", help="which; default: all")
    parser.add_argument(
        "--seed",
        type=int,
        default=None,
        help="of corpora and first weights; default: the shipped one",
    )
    parser.add_argument("--ship", action="store_true", help="keep what was trained in data/lab")
    options = parser.parse_args(argv)
    own = config.load().lab
    if options.ship and options.seed not in (None, own.seed):
        parser.error(
            "only the seed of params.yaml (lab.seed) can be shipped, or recipe and weights would disagree"
        )
    seed = own.seed if options.seed is None else options.seed
    began = time.monotonic()
    os.environ.setdefault("BENCH_PROGRESS", sweep.STDERR)
    try:
        own = only(own, options.models)
        told = _go(own, own.model_copy(update={"seed": seed}), options.ship)
    except (ModelError, NotLearned) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{(time.monotonic() - began) / 60:.1f} minutes on {os.cpu_count()} cores")
    return told


def _go(own: LabSettings, settings: LabSettings, ships: bool) -> int:
    runs = (
        RUNS / torch.backends.cpu.get_cpu_capability()
    )  # what another class of processor trained is another zoo
    build.build(settings, runs / "models", runs, ships=False)
    if ships:
        print(f"{ship(settings, runs):_} bytes of weights are in {LAB.relative_to(ROOT)}")
        return 0
    missing = [name for name in own.models if released_weights.card(name) is None]
    if missing:
        raise ModelError(
            f"{', '.join(missing)} is not shipped, so there is nothing to compare with; {released_weights.REMEDY}"
        )
    table = differences(
        measure_skills(own, runs, retrained=False), measure_skills(settings, runs, retrained=True)
    )
    keep(table, settings.seed)
    print(table.drop(columns=["items"]).to_string(index=False, float_format="{:.3f}".format))
    apart = table[~table["alike"]]
    largest = table["value"].abs().max()
    print(
        f"largest difference {largest:.3f}; {len(apart)} of {len(table)} skills are not within {MARGIN}"
    )
    return int(len(apart) > 0)
