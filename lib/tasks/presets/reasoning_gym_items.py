"""Items of the package reasoning-gym: more than a hundred procedural tasks, each with its own scorer.

    parse_specification("reasoning_gym:chain_sum?size=50&max_terms=4")

Equal settings and seeds give equal items. Some tasks draw from Python's shared random numbers beside their own, which
are therefore seeded while items are made. The tasks of ORDER_DEPENDENT walk through sets of texts too, whose order
changes with the environment variable PYTHONHASHSEED; a data set's notes say so.
"""

import dataclasses
import json
import random
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import numpy as np

from lib.experiment import seeds
from lib.tasks.item import Item, TaskError
from lib.tasks.presets.preset import make_item
from lib.tasks.scorers.extraction import extract_final_answer, strip_reasoning
from lib.tasks.scorers.scorer import Score

PREFIX = "reasoning_gym:"
SCORER = "lib.tasks.presets.reasoning_gym_items:score_reasoning_gym_reply"
DEFAULT_SIZE = 100
_ANSWER_TAGS = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
ORDER_DEPENDENT = (
    "intermediate_integration",
    "isomorphic_strings",
    "knight_swap",
    "polynomial_multiplication",
    "ransom_note",
    "word_ladder",
)


def parse_specification(source: str) -> tuple[str, dict[str, Any]]:
    """Splits a specification of a task of reasoning-gym into the task's name and its settings.

    Args:
        source: For example "reasoning_gym:chain_sum?size=50".

    Returns:
        (name, settings): "chain_sum", {"size": 50}. Values are parsed as JSON where they are JSON, else kept as text.

    Raises:
        TaskError: There is no such task, or a setting has no value.
    """
    name, _, query = source.removeprefix(PREFIX).partition("?")
    _get_config_class(name)
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
    except ValueError as error:
        raise TaskError(f"{source}: write settings as ?size=50&seed=1 ({error})") from error
    return name, {key: _parse_setting(value) for key, value in pairs}


def _parse_setting(value: str) -> Any:
    """Parse the value of a setting as JSON; a text that is no JSON stays a text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


# They run snippets of code that come with the package, which may write files into the current folder.
REFUSED = ("codeio", "composite")


def _get_config_class(name: str) -> type:
    """Look up the dataclass of settings of a task of reasoning-gym; a TaskError for one that is unknown or refused."""
    from reasoning_gym.factory import DATASETS  # imports a hundred modules

    if name in REFUSED:
        raise TaskError(
            f"{PREFIX}{name} runs code that comes with the package, outside any sandbox; choose another task"
        )
    if name not in DATASETS:
        similar = [task for task in DATASETS if name and (name in task or task in name)]
        listed = ", ".join(sorted(similar) or sorted(DATASETS))
        raise TaskError(f"reasoning_gym has no task {name!r}; there are {listed}")
    return DATASETS[name][1]


def make_reasoning_gym_items(
    name: str, settings: Mapping[str, Any], seed: int
) -> tuple[list[Item], tuple[str, ...]]:
    """Generates items (questions with reference answers) of one task of the package reasoning-gym.

    Args:
        name: Name of the task, for example "chain_sum".
        settings: Settings of the task's generator; `size` is the number of items, `seed` its random seed.
        seed: The generator's seed is derived from it, where the settings have none.

    Returns:
        (items, notes): the items, and sentences on how they were drawn.

    Raises:
        TaskError: The task has no such setting, or refuses its value.
    """
    derived_seed = int(seeds.rng("tasks", "reasoning_gym", name, seed=seed).integers(2**31))
    all_settings = {"size": DEFAULT_SIZE, "seed": derived_seed} | dict(settings)
    if type(all_settings["seed"]) is not int:
        raise TaskError(
            f"{PREFIX}{name}: seed={all_settings['seed']} is no whole number; write one"
        )
    generator = _make_generator(name, json.dumps(all_settings))
    with _seed_shared_random(all_settings["seed"]):
        entries = [generator[index] for index in range(len(generator))]
    items = []
    for entry in entries:
        # Some tasks have many right answers and name none; their scorer checks the reply itself.
        reference = "" if entry["answer"] is None else str(entry["answer"])
        item = make_item(
            entry["question"],
            reference,
            name,
            metadata={"task": name, "settings": all_settings, "entry": entry},
        )
        items.append(item)
    notes = [f"reasoning_gym drew {name} with the seed {all_settings['seed']}."]
    if name in ORDER_DEPENDENT:
        notes.append(f"Items of {name} change with the environment variable PYTHONHASHSEED.")
    return items, tuple(notes)


@contextmanager
def _seed_shared_random(seed: int) -> Iterator[None]:
    """Seed the global random numbers of Python and NumPy within a with statement, and restore their states after it."""
    python_state = random.getstate()
    numpy_state = np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)


@lru_cache(maxsize=16)
def _make_generator(name: str, settings_json: str) -> Any:
    """Create the generator of a task of reasoning-gym, a sequence of questions that also scores answers.

    Args:
        name: Name of the task.
        settings_json: Its settings as a JSON object, a text so that generators can be cached by it.

    Returns:
        The generator.

    Raises:
        TaskError: Where the task has no such setting, or refuses its value.
    """
    import reasoning_gym

    settings = json.loads(settings_json)
    setting_names = [field.name for field in dataclasses.fields(_get_config_class(name))]
    unknown = [key for key in settings if key not in setting_names]
    if unknown:
        raise TaskError(
            f"reasoning_gym's {name} has no setting {unknown[0]!r}; there are {', '.join(setting_names)}"
        )
    try:
        generator = reasoning_gym.create_dataset(name, **settings)
        # A size that is no number is found only now.
        if len(generator) < 1:
            raise ValueError("size has to be 1 at least")
    except Exception as error:  # a hundred generators check their settings each in its own way
        reason = str(error) or type(error).__name__
        raise TaskError(
            f"reasoning_gym's {name} refuses {settings_json} ({reason}); change the settings"
        ) from error
    return generator


def score_reasoning_gym_reply(item: Item, reply: str) -> Score:
    """Scores a reply to a question of reasoning-gym by the rule that the package has for its task.

    Args:
        item: An item that `make_reasoning_gym_items` made; its metadata names the task.
        reply: A model's whole reply.

    Returns:
        The score, in [0, 1]; many tasks give partial credit, for example to an answer with more around it.

    Raises:
        TaskError: The item is not of reasoning_gym.
    """
    try:
        task, settings, entry = (item.metadata[key] for key in ("task", "settings", "entry"))
    except KeyError as error:
        raise TaskError(
            f"item {item.id!r} is not of reasoning_gym; load it with lib.tasks.load('reasoning_gym:...')"
        ) from error
    generator = _make_generator(task, json.dumps(settings))
    # Answers can be grids or code, so that what stands in tags is taken as it stands.
    tagged = _ANSWER_TAGS.findall(strip_reasoning(reply))
    answer = tagged[-1].strip() if tagged else extract_final_answer(reply).text
    value = float(generator.score_answer(answer, entry))
    return Score(min(max(value, 0.0), 1.0), answer)
