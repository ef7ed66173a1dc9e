"""Questions of a user: read, checked, and split into those to learn from and those to evaluate on."""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from lib.config import LLMSettings, ParamsError
from lib.experiment import seeds
from lib.language_models.tokenizer import find_unknown_words
from lib.tasks import Dataset, Item, TaskError, load
from lib.tasks.tau2_bench import PREFIX as TAU2_PREFIX

MIN_IDS = 3  # one to evaluate on, two that baselines can compare


@dataclass(frozen=True)
class QuestionSplit:
    """The questions of a run.

    Attributes:
        scorer: As `make_scorer` takes it.
        train: What is learned from.
        test: What the controller and the baselines are evaluated on; no id of them is in train.
        baseline_train: Of train, what baselines learn from.
        note: How they were split, in a sentence.
    """

    scorer: str
    train: tuple[Item, ...]
    test: tuple[Item, ...]
    baseline_train: tuple[Item, ...]
    note: str


def load_questions(options: argparse.Namespace) -> Dataset:
    """Loads the questions of a command line, with the name of the scorer.

    Args:
        options: Options of `parse_options`.

    Returns:
        The data set.

    Raises:
        TaskError: The data cannot be read, or say nothing that an answer could be scored by.
    """
    dataset = load(
        options.data,
        prompt_column=options.prompt_column,
        reference_column=options.reference_column,
        group_column=options.group_column,
        id_column=options.id_column,
        choices_column=options.choices_column,
        scorer=options.scorer,
        split=options.split,
        seed=options.seed,
    )
    if str(options.data).startswith(TAU2_PREFIX) and not options.scorer:
        raise TaskError(
            f"{options.data} has conversations that a database is judged after, and here answers are scored; "
            f"`python -m lib train toolorchestra --tasks {options.data}` learns from them, and "
            f"`python -m lib evaluate toolorchestra --tasks {options.data}` tries models on them"
        )
    if not dataset.scorer:
        raise TaskError(f"{options.data} has no usual scorer; name one, such as --scorer math")
    return dataset


def split_questions(
    dataset: Dataset, held_out_share: float, max_test: int, seed: int = 0
) -> QuestionSplit:
    """Hold out a share of the questions.

    The hash of an item's id decides, so that wordings of one content are on the same side. At least one id is held
    out, and at least two are learned from.

    Args:
        dataset: All questions.
        held_out_share: The fraction of ids that is held out.
        max_test: Questions of the evaluation at the most, further ones that are held out are not asked; and questions
            that baselines learn from.
        seed: Another seed splits anew.

    Returns:
        Both sets.

    Raises:
        TaskError: There are fewer than MIN_IDS different questions.
    """
    ids = list(dict.fromkeys(item.id for item in dataset.items))
    if len(ids) < MIN_IDS:
        raise TaskError(
            f"{dataset.name} holds questions of {len(ids)} id(s), too few to hold one out and learn from the others; "
            f"bring {MIN_IDS} or more"
        )
    # By a hash instead of at random: a file with further questions keeps the order of those that it had.
    ranked_ids = sorted(ids, key=lambda item_id: seeds.key("held out", item_id, seed=seed))
    num_held_out = min(max(1, round(held_out_share * len(ids))), len(ids) - 2)
    held_out_ids = set(ranked_ids[:num_held_out])
    train = [item for item in dataset.items if item.id not in held_out_ids]
    held_out = [item for item in dataset.items if item.id in held_out_ids]

    # In the order of the hash, so that the first ones are a random sample.
    rank_by_id = {item_id: rank for rank, item_id in enumerate(ranked_ids)}
    held_out.sort(key=lambda item: rank_by_id[item.id])
    test = held_out[:max_test]
    baseline_train = sorted(train, key=lambda item: rank_by_id[item.id])[:max_test]
    note = (
        f"{len(train):,} questions to learn from, {len(held_out):,} held out by the hash of their ids (seed {seed}); "
        f"no question of the evaluation is in the training"
    )
    if len(test) < len(held_out):
        note += f"; {len(test):,} of them are asked (--max-test)"
    return QuestionSplit(
        dataset.scorer, tuple(train), tuple(test), tuple(baseline_train), f"{note}."
    )


def split_off_dev(
    questions: QuestionSplit, share: float, max_dev: int, seed: int = 0
) -> tuple[QuestionSplit, tuple[Item, ...]]:
    """Take some of the questions that are learned from for choices that must not be made on the evaluation's.

    Args:
        questions: Questions of `split_questions`.
        share: The fraction of the ids of train that becomes dev.
        max_dev: Dev questions at the most.
        seed: As of `split_questions`.

    Returns:
        The questions without those of dev, and the dev questions.

    Raises:
        TaskError: Fewer than MIN_IDS different questions are left to learn from.
    """
    remaining = Dataset("what is not held out", questions.train, questions.scorer)
    parts = split_questions(remaining, share, max_dev, seed)
    note = f"{questions.note} Of those to learn from, {len(parts.test):,} are for choosing constants only (dev)."
    without_dev = QuestionSplit(
        questions.scorer, parts.train, questions.test, parts.baseline_train, note
    )
    return without_dev, parts.test


def check_vocabulary(llm: LLMSettings, names: Sequence[str], items: Sequence[Item]) -> None:
    """Refuse questions that a lab model among the experts would read with holes.

    Args:
        llm: The models that there are.
        names: Names of llm.models, the experts.
        items: The questions.

    Raises:
        ParamsError: Naming the first question and its unknown words.
    """
    lab_models = [name for name in names if llm.models[name].backend == "lab"]
    if not lab_models:
        return
    for number, item in enumerate(items, start=1):
        words = find_unknown_words(item.prompt)
        if words:
            listed = ", ".join(repr(word) for word in words[:5])
            raise ParamsError(
                f"{', '.join(lab_models)} are lab models, which know a few hundred words; question {number} has "
                f"{listed}; name other models of llm.models"
            )


def hash_questions(items: Sequence[Item]) -> str:
    """A hash of what is asked and what is right, by which a later run knows its questions again."""
    content = [[item.id, item.history, item.prompt, item.reference] for item in items]
    return hashlib.sha256(json.dumps(content, ensure_ascii=True).encode()).hexdigest()[:16]


def name_units(items: Sequence[Item]) -> list[tuple[str, int]]:
    """Item and sample of each question as the results table has them.

    Wordings of one content are samples of one item, so that intervals take them for one question.

    Args:
        items: Questions.

    Returns:
        (id, number of the wording) of each question.
    """
    num_wordings: dict[str, int] = {}
    units = []
    for item in items:
        units.append((item.id, num_wordings.get(item.id, 0)))
        num_wordings[item.id] = units[-1][1] + 1
    return units
